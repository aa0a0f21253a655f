//! Commands that tune the guard: `unclobber rules` tells what decides, `unclobber allow` lets one change through.

#[expect(dead_code, reason = "each test program uses its own part of the harness")]
mod common;
#[expect(dead_code, reason = "each test program uses its own part of the harness")]
mod support;

use std::fs;
use std::process::Output;
use std::time::{Duration, SystemTime};

use common::mount::Mount;
use common::session::{Session, fine, refused};
use common::snapshot::kept;
use common::tree::{Tree, require_fuse, say};
use common::wait::{PATIENCE, wait_until};

const EXISTS_TEXT: &str = "File exists";
const STALE_TEXT: &str = "Stale file handle";

fn is_kept(tree: &Tree, content: &str) -> bool {
    kept(&tree.at(".unclobber"), content.as_bytes())
}

/// Runs the program outside the mount, in the tree's directory.
fn outside(tree: &Tree, arguments: &[&str]) -> Output {
    tree.unclobber()
        .args(arguments)
        .current_dir(tree.root())
        .output()
        .expect("unclobber")
}

#[track_caller]
fn said(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn program() -> String {
    common::tree::program().display().to_string()
}

fn tree_with_rules() -> Tree {
    let tree = Tree::new();
    let rules = "[[rule]]\npattern = \"docs/**\"\nlevel = \"keep\"\n\n[[rule]]\npattern = \"docs/api/\"\nlevel = \"off\"\n\
                 \n[[rule]]\npattern = \"src/**\"\nlevel = \"keep\"\ncommand = \"/bin/true\"\n";
    tree.write(".unclobber.toml", rules);
    tree.write(".gitignore", "# built\n*.log\n");
    tree.write("sub/.gitignore", "x.log\n");
    tree.write("docs/a", "");
    tree.write("docs/api/deep/x", "");
    tree.write("sub/x.log", "");
    tree
}

const DECIDED: [(&str, &str); 8] = [
    ("docs/a", "docs/a: keep, by .unclobber.toml:2: keep docs/**\n"),
    (
        "docs/api/deep/x",
        "docs/api/deep/x: off, by .unclobber.toml:6: off docs/api/ (of the directory docs/api)\n",
    ),
    ("y.log", "y.log: keep, by .gitignore:2: ignored by git\n"),
    ("sub/x.log", "sub/x.log: keep, by sub/.gitignore:1: ignored by git\n"),
    (
        "a.pem",
        "a.pem: guard, by built-in rule *.pem: secrets and databases cannot be made again\n",
    ),
    (
        ".git/x",
        ".git/x: off, by built-in rule .git: git has its own lock protocol, and a refusal inside it corrupts \
         repositories (of the directory .git)\n",
    ),
    ("plain", "plain: guard, by no rule speaks of it\n"),
    (
        "src/x",
        "src/x: guard, by no rule speaks of it\n  keep for /bin/true, by .unclobber.toml:10: keep src/** for /bin/true\n",
    ),
];

// semantics: L15
#[test]
fn the_rules_are_told_without_a_guard() {
    let tree = tree_with_rules();
    fs::create_dir(tree.at(".git")).expect(".git");
    for (path, line) in DECIDED {
        let told = said(&outside(&tree, &["rules", path]));
        assert_eq!(told, line.replace("by no rule", "no rule"), "{path}");
    }
    // From elsewhere, the directory with rules above the path is found.
    let path = tree.at("docs/a").display().to_string();
    let elsewhere = tree.unclobber().args(["rules", &path]).current_dir("/").output();
    assert!(said(&elsewhere.expect("unclobber")).starts_with("docs/a: keep, by .unclobber.toml:2"));
    let all = said(&outside(&tree, &["rules"]));
    for line in [
        "built in (of these, the first that matches the name)",
        "  off    .git ",
        "  guard  .env* ",
        "directories beside Cargo.toml",
        "  keep   docs/**             line 2",
        "  keep   src/**              line 10  only for /bin/true",
    ] {
        assert!(all.contains(line), "{line:?} is not in:\n{all}");
    }
}

// semantics: L15
#[test]
fn the_rules_are_told_in_json() {
    let tree = tree_with_rules();
    let told = said(&outside(&tree, &["rules", "--json", "docs/api/deep/x"]));
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(told["v"], 1);
    assert_eq!(told["decided"]["level"], "off");
    assert_eq!(told["decided"]["through"], "docs/api");
    assert_eq!(told["rules"][2]["command"], "/bin/true");
    assert_eq!(told["rules"][0]["line"], 2);
    assert!(told["built_in"].as_array().is_some_and(|rules| rules.len() > 20));
    assert!(told["problem"].is_null());
}

// semantics: L15
#[test]
fn a_wrong_file_is_told_by_rules() {
    let tree = Tree::new();
    tree.write(".unclobber.toml", "[[rule]]\n");
    let done = outside(&tree, &["rules"]);
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    assert!(text.contains(".unclobber.toml:1:1: missing field `pattern`"), "{text}");
}

// semantics: L15
#[test]
fn the_rules_are_told_inside_and_outside_a_mount_alike() {
    if !require_fuse("rules of a mount") {
        return;
    }
    let tree = tree_with_rules();
    tree.write("f", "old\n");
    let mut a = Session::guarded(&tree, "a", &["--rule", "off:docs/**"]);
    let inside = |a: &mut Session, path: &str| a.sh(&format!("{} rules {path}", program()));
    for (path, line) in DECIDED {
        // No .git is there.
        if path.starts_with("docs/") || path.starts_with(".git/") {
            continue;
        }
        let line = line.replace("by no rule", "no rule");
        assert_eq!(said(&outside(&tree, &["rules", path])), line);
        assert_eq!(inside(&mut a, path).stdout, line);
    }
    assert_eq!(inside(&mut a, "docs/a").stdout, "docs/a: off, by --rule off:docs/**\n");
    let both = said(&outside(&tree, &["rules", "docs/a"]));
    assert!(both.starts_with("docs/a: keep, by .unclobber.toml:2"), "{both}");
    assert!(
        both.contains("rules of its own:\ndocs/a: off, by --rule off:docs/**\n"),
        "{both}"
    );
    let all = said(&outside(&tree, &["rules"]));
    assert!(
        all.contains("has rules of its own") && all.contains("--rule off:docs/**"),
        "{all}"
    );
    // Asking is not reading.
    fine(&inside(&mut a, "f"));
    fine(&inside(&mut a, ".gitignore"));
    refused(&a.sh("echo mine >.gitignore"), EXISTS_TEXT);
    refused(&a.sh("echo mine >f"), EXISTS_TEXT);
}

// semantics: L16
#[test]
fn one_change_is_let_through_and_what_it_displaces_is_kept() {
    if !require_fuse("allow") {
        return;
    }
    let tree = Tree::new();
    for (name, content) in [("f", "1 old\n"), ("g", "2 old\n"), ("e", "3 old\n"), ("d/r", "4 old\n")] {
        tree.write(name, content);
    }
    let mut a = Session::guarded(&tree, "a", &[]);
    refused(&a.sh("echo mine >f"), EXISTS_TEXT);
    let told = said(&outside(&tree, &["allow", "f", "--owner", "a"]));
    assert_eq!(
        told,
        "the next change of f that would be refused is let through: owner a, within 60 s, once\n"
    );
    fine(&a.sh("echo mine >f"));
    assert!(is_kept(&tree, "1 old\n"));
    let noted = wait_until(PATIENCE, || {
        a.said()
            .iter()
            .any(|line| line.contains("allowed once: open f by owner \"a\""))
    });
    assert!(noted, "{:?}", a.said());
    // Once.
    tree.write("f", "changed\n");
    refused(&a.sh("echo mine >f"), STALE_TEXT);
    // Stale and gone as well.
    said(&outside(&tree, &["allow", "f"]));
    fine(&a.sh("echo mine >f"));
    assert!(is_kept(&tree, "changed\n"));
    tree.remove("f");
    refused(&a.sh("echo mine >f"), STALE_TEXT);
    said(&outside(&tree, &["allow", "f", "--for", "10m"]));
    fine(&a.sh("echo mine >f"));
    // A rename over, an edit in several writes, a removal; each is one change.
    said(&outside(&tree, &["allow", "g"]));
    fine(&a.sh("echo new >n; mv n g"));
    said(&outside(&tree, &["allow", "e"]));
    fine(&a.sh("printf abcd | dd of=e bs=1 conv=notrunc status=none"));
    assert_eq!(tree.read("e").as_deref(), Some("abcdd\n"));
    refused(&a.sh("printf x | dd of=e conv=notrunc status=none"), EXISTS_TEXT);
    refused(&a.sh("echo x >d/r; rm d/r"), "busy");
    said(&outside(&tree, &["allow", "d/r", "--json"]));
    fine(&a.sh("rm d/r"));
    for old in ["2 old\n", "3 old\n", "4 old\n"] {
        assert!(is_kept(&tree, old), "{old:?}");
    }
}

// semantics: W2 L16
#[test]
fn who_asks_why_is_told_of_an_exception_and_uses_none_up() {
    if !require_fuse("why and allow") {
        return;
    }
    let tree = Tree::new();
    tree.write("f", "old\n");
    let mut a = Session::guarded(&tree, "a", &[]);
    let mut b = Session::guarded(&tree, "b", &[]);
    let why = format!("{} why", program());
    refused(&a.sh("echo mine >f"), EXISTS_TEXT);
    assert_eq!(a.sh(&format!("{why} f")).code, 1);
    said(&outside(&tree, &["allow", "f", "--owner", "a"]));
    for _ in 0..2 {
        let screen = a.sh(&format!("{why} f"));
        assert_eq!(screen.code, 0, "{screen:?}");
        assert!(screen.stdout.contains("ALLOWED ONCE (unclobber allow)"), "{screen:?}");
        assert!(screen.stdout.contains("would be kept"), "{screen:?}");
    }
    let answer = a.sh(&format!("{why} --json f"));
    let answer: serde_json::Value = serde_json::from_str(&answer.stdout).expect("JSON");
    let view = &answer["views"][0];
    assert_eq!(
        (&view["outcome"], &view["allowed_once"], &view["keeps"]),
        (&"allowed".into(), &true.into(), &true.into()),
        "{view:#}"
    );
    let state = a.sh("python3 -c 'import os; print(os.getxattr(\"f\", \"user.unclobber.state\").decode())'");
    assert!(state.stdout.starts_with("unseen: allowed once"), "{state:?}");
    // It is for this owner and this path.
    assert_eq!(b.sh(&format!("{why} f")).code, 1);
    fine(&a.sh("echo mine >f"));
    assert!(is_kept(&tree, "old\n"));
    tree.write("f", "changed\n");
    assert_eq!(a.sh(&format!("{why} f")).code, 1, "it is used up");
    refused(&a.sh("echo mine >f"), STALE_TEXT);
}

// semantics: L16
#[test]
fn an_exception_is_for_one_owner_one_path_and_a_time() {
    if !require_fuse("whose exception") {
        return;
    }
    let tree = Tree::new();
    tree.write("f", "old\n");
    tree.write("g", "old\n");
    let mut a = Session::guarded(&tree, "a", &[]);
    let mut b = Session::guarded(&tree, "b", &[]);
    said(&outside(&tree, &["allow", "f", "--owner", "b"]));
    refused(&a.sh("echo mine >f"), EXISTS_TEXT);
    refused(&b.sh("echo theirs >g"), EXISTS_TEXT);
    // What needs no exception uses none up.
    fine(&b.sh("echo more >>f; stat f"));
    fine(&b.sh("echo theirs >f"));
    said(&outside(&tree, &["allow", "g", "--for", "0s"]));
    let passed = wait_until(PATIENCE, || !a.sh("echo mine >g").ok());
    assert!(passed, "an exception outlives its time");
    let nobody = outside(&tree, &["allow", "g", "--owner", "c"]);
    assert!(
        !nobody.status.success() && String::from_utf8_lossy(&nobody.stderr).contains("no owner"),
        "{nobody:?}"
    );
    let nowhere = outside(&tree, &["allow", "no/such/file"]);
    assert!(!nowhere.status.success(), "{nowhere:?}");
}

// semantics: L16 L17 R2
#[test]
fn exceptions_that_wait_can_be_listed_and_taken_back() {
    if !require_fuse("allow --list") {
        return;
    }
    let tree = Tree::new();
    tree.write("f", "old\n");
    tree.write("g", "old\n");
    let mut a = Session::guarded(&tree, "a", &["--self-allow"]);
    let mut b = Session::guarded(&tree, "b", &["--self-allow"]);
    let list = |tree: &Tree| said(&outside(tree, &["allow", "--list"]));
    assert_eq!(list(&tree), "no exception waits to be used\n");
    let given = said(&outside(&tree, &["allow", "f", "--owner", "a", "--for", "3d"]));
    assert!(given.contains("owner a, within 3 days, once"), "{given}");
    said(&outside(&tree, &["allow", "g"]));
    let listed = list(&tree);
    assert!(
        listed.contains("owner a ") && listed.contains("  f\n") && listed.contains("whoever makes it first"),
        "{listed}"
    );
    let json: serde_json::Value =
        serde_json::from_str(&said(&outside(&tree, &["allow", "--list", "--json"]))).expect("JSON");
    assert_eq!(
        (&json["waiting"][0]["path"], &json["waiting"][0]["owner"]),
        (&"f".into(), &"a".into())
    );
    // Inside, an owner sees what it could use, and takes back what it has asked for itself.
    let allow = format!("{} allow", program());
    let seen = b.sh(&format!("{allow} --list")).stdout;
    assert!(seen.contains("  g\n") && !seen.contains("  f\n"), "{seen}");
    refused(&b.sh(&format!("{allow} --cancel g")), "no exception of yours");
    refused(&a.sh(&format!("{allow} --cancel f")), "no exception of yours");
    fine(&b.sh(&format!("{allow} f && {allow} --cancel f")));
    refused(&b.sh("echo theirs >f"), EXISTS_TEXT);
    // Outside, anything.
    let gone = said(&outside(&tree, &["allow", "--cancel", "f", "--owner", "a"]));
    assert_eq!(gone, "no change of f is let through any more\n");
    said(&outside(&tree, &["allow", "g", "--cancel"]));
    refused(&a.sh("echo mine >f"), EXISTS_TEXT);
    refused(&a.sh("echo mine >g"), EXISTS_TEXT);
    assert_eq!(list(&tree), "no exception waits to be used\n");
    let none = outside(&tree, &["allow", "--cancel", "g"]);
    assert_eq!(none.status.code(), Some(1), "{none:?}");
    let log = said(&outside(&tree, &["log", "--json"]));
    let count = |operation: &str| log.matches(&format!("\"operation\":\"{operation}\"")).count();
    assert_eq!(
        (count("allow_given"), count("allow_cancelled"), count("allow")),
        (3, 3, 0)
    );
}

// semantics: L15
#[test]
fn rules_that_match_nothing_are_told() {
    if !require_fuse("rules that match nothing") {
        return;
    }
    let tree = Tree::new();
    tree.write("docs/a", "");
    tree.write(
        ".unclobber.toml",
        "[[rule]]\npattern = \"docs/**\"\nlevel = \"keep\"\n[[rule]]\npattern = \"doc/**\"\nlevel = \"keep\"\n",
    );
    let check = |text: &str| {
        let line = |pattern: &str| text.lines().find(|line| line.contains(pattern)).unwrap_or_default();
        assert!(!line("docs/**").contains("NOTHING"), "{text}");
        assert!(
            line("doc/**").ends_with("line 5  MATCHES NOTHING that is there now"),
            "{text}"
        );
    };
    check(&said(&outside(&tree, &["rules"])));
    let mut a = Session::guarded(&tree, "a", &["--rule", "off:none/**"]);
    check(&said(&outside(&tree, &["rules"])));
    let inside = a.sh(&format!("{} rules", program())).stdout;
    check(&inside);
    assert!(inside.contains("none/**             MATCHES NOTHING"), "{inside}");
    let json: serde_json::Value = serde_json::from_str(&said(&outside(&tree, &["rules", "--json"]))).expect("JSON");
    assert_eq!(
        (&json["rules"][0]["matches"], &json["rules"][1]["matches"]),
        (&true.into(), &false.into())
    );
}

// semantics: L17
#[test]
fn an_owner_may_not_let_its_own_changes_through() {
    if !require_fuse("allow inside") {
        return;
    }
    let tree = Tree::new();
    tree.write("f", "old\n");
    let mut other = Session::guarded(&tree, "other", &["--self-allow"]);
    let mut a = Session::guarded(&tree, "a", &[]);
    let allow = format!("{} allow", program());
    refused(&a.sh(&format!("{allow} f")), "may not allow changes");
    refused(&a.sh(&format!("{allow} f --owner a")), "--self-allow");
    // Nor by leaving everything it can leave.
    refused(
        &a.sh(&format!("(cd / && setsid {allow} {})", tree.at("f").display())),
        "may not",
    );
    refused(&a.sh("echo mine >f"), EXISTS_TEXT);
    // Where the mount lets it, it may, for itself and those below it.
    refused(&other.sh(&format!("{allow} f --owner a")), "other owners");
    fine(&other.sh(&format!("{allow} f")));
    refused(&a.sh("echo mine >f"), EXISTS_TEXT);
    fine(&other.sh("echo theirs >f"));
    assert!(is_kept(&tree, "old\n"));
}

// semantics: L17
#[test]
fn an_exception_of_its_own_counts_only_where_owners_may_make_them() {
    if !require_fuse("one owner in two mounts") {
        return;
    }
    let tree = Tree::new();
    tree.write("f", "old\n");
    let mut lenient = Session::guarded(&tree, "a", &["--self-allow"]);
    let mut strict = Session::guarded(&tree, "a", &[]);
    fine(&lenient.sh(&format!("{} allow f", program())));
    refused(&strict.sh("echo mine >f"), EXISTS_TEXT);
    fine(&lenient.sh("echo mine >f"));
}

// semantics: D12 L16
#[test]
fn who_may_write_and_not_read_is_told_of_allow() {
    if !require_fuse("write-only files") {
        return;
    }
    if !nix::unistd::geteuid().is_root() {
        say("SKIPPED write-only files: only root can be another user");
        return;
    }
    use std::os::unix::fs::PermissionsExt as _;
    let tree = Tree::new();
    tree.write("f", "old\n");
    fs::set_permissions(tree.root(), fs::Permissions::from_mode(0o777)).expect("chmod");
    let mount = Mount::new(&tree, &["--owner", "a"]);
    // A filesystem's clock may lag behind by a tick: what is changed within it seems older than the guard.
    let later = SystemTime::now() + Duration::from_millis(20);
    let changed = wait_until(PATIENCE, || {
        tree.write("f", "changed\n");
        fs::metadata(tree.at("f"))
            .and_then(|found| found.modified())
            .is_ok_and(|at| at > later)
    });
    assert!(changed);
    fs::set_permissions(tree.at("f"), fs::Permissions::from_mode(0o222)).expect("chmod");
    let write = || {
        std::process::Command::new("setpriv")
            .args([
                "--reuid",
                "65534",
                "--regid",
                "65534",
                "--clear-groups",
                "sh",
                "-c",
                "echo mine >f",
            ])
            .current_dir(mount.path())
            .output()
            .expect("setpriv")
    };
    let log = || {
        let logs = fs::read_dir(tree.run_time().join("unclobber")).expect("the run-time directory");
        let logs = logs
            .flatten()
            .filter(|entry| entry.path().extension().is_some_and(|end| end == "log"));
        logs.map(|entry| fs::read_to_string(entry.path()).unwrap_or_default())
            .collect::<String>()
    };
    let done = write();
    assert!(
        String::from_utf8_lossy(&done.stderr).contains(EXISTS_TEXT),
        "{done:?} {}",
        log()
    );
    assert!(log().contains("; have it allowed with `unclobber allow`"), "{}", log());
    said(&outside(&tree, &["allow", "f"]));
    let done = write();
    assert!(done.status.success(), "{done:?}");
    assert!(is_kept(&tree, "changed\n"));
    assert!(log().contains("allowed once: open f "), "{}", log());
}

/// Levels cost a derivation per directory and second, and a file of rules is read once, however many requests come.
#[test]
fn rules_are_not_read_for_each_request() {
    let mut tree = support::Tree::new(|dir| {
        fs::write(
            dir.join(".unclobber.toml"),
            "[[rule]]\npattern = \"docs/**\"\nlevel = \"keep\"\n",
        )
        .expect("rules");
        fs::write(dir.join(".gitignore"), "*.log\n").expect("an ignore file");
        fs::create_dir_all(dir.join("a/b/c")).expect("directories");
        fs::write(dir.join("a/b/c/f"), "x").expect("a file");
    });
    let a = tree.owner("a");
    let counts = |tree: &support::Tree| {
        let counts = tree.guard.rule_counts();
        (counts.derived.get(), counts.read.get())
    };
    let began = std::time::Instant::now();
    let file = a.join("a/b/c/f");
    fs::read(&file).expect("reads");
    let (_, read) = counts(&tree);
    let (before, _) = counts(&tree);
    for round in 0..2000_u32 {
        fs::read(&file).expect("reads");
        fs::write(&file, round.to_string()).expect("writes");
    }
    let (after, read_now) = counts(&tree);
    assert_eq!(read_now, read, "files of rules were read again");
    // Three directories a second, and as many more where a second has just begun.
    let bound = 3 * (began.elapsed().as_secs() + 2);
    assert!(
        after - before <= bound,
        "{} derivations, at most {bound}",
        after - before
    );
}
