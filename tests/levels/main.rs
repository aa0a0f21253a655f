//! Levels of paths: rules of the workspace's file, of the command line and of git's ignore files, on real mounts.

mod asking;
mod command;
#[path = "../common/mod.rs"]
#[expect(dead_code, reason = "each test program uses its own part of the harness")]
mod common;
mod file;

use common::NOT_OBSERVED;
use common::mount::Mount;
use common::session::{Session, fine, refused};
use common::snapshot::kept;
use common::tree::{Tree, require_fuse};
use common::wait::{PATIENCE, wait_until};

const EXISTS_TEXT: &str = "File exists";
const RULES: &str = ".unclobber.toml";

fn rule(pattern: &str, level: &str) -> String {
    format!("[[rule]]\npattern = \"{pattern}\"\nlevel = \"{level}\"\n")
}

fn rule_for(pattern: &str, level: &str, command: &str) -> String {
    format!("{}command = \"{command}\"\n", rule(pattern, level))
}

/// A tree with these files, and a shell of owner a.
fn guarded(test: &str, files: &[(&str, &str)], flags: &[&str]) -> Option<(Tree, Session)> {
    if !require_fuse(test) {
        return None;
    }
    let tree = Tree::new();
    for (name, content) in files {
        tree.write(name, content);
    }
    let a = Session::guarded(&tree, "a", flags);
    Some((tree, a))
}

fn is_kept(tree: &Tree, content: &str) -> bool {
    kept(&tree.at(".unclobber"), content.as_bytes())
}

/// Does something until it works: a rule that has changed is noticed within a second.
fn comes_to_work(session: &mut Session, text: &str) {
    assert!(wait_until(PATIENCE, || session.sh(text).ok()), "{:?}", session.sh(text));
}

// semantics: L1 L7
#[test]
fn at_keep_nothing_is_refused_and_what_is_displaced_is_kept() {
    let rules = rule("docs/**", "keep");
    let files = [
        (RULES, rules.as_str()),
        ("docs/replaced", "1 old\n"),
        ("docs/renamed-over", "2 old\n"),
        ("docs/edited", "3 old\n"),
        ("docs/removed", "4 old\n"),
        ("docs/gone", "5 old\n"),
        ("docs/stale", "6 old\n"),
        ("docs/cut", "7 old\n"),
        ("docs/mapped", "8 old\n"),
        ("f", "guarded\n"),
    ];
    let Some((tree, mut a)) = guarded("keep", &files, &[]) else {
        return;
    };
    refused(&a.sh("echo mine >f"), EXISTS_TEXT);
    fine(&a.sh("echo mine >docs/replaced"));
    fine(&a.sh("echo mine >docs/new && mv docs/new docs/renamed-over"));
    fine(&a.sh("printf X | dd of=docs/edited conv=notrunc status=none"));
    fine(&a.sh("rm docs/removed"));
    fine(&a.sh("truncate -s 1 docs/cut"));
    fine(&a.sh("cat docs/gone docs/stale"));
    tree.remove("docs/gone");
    fine(&a.sh("echo mine >docs/gone"));
    tree.write("docs/stale", "6 changed outside\n");
    fine(&a.sh("echo mine >docs/stale"));
    fine(&a.sh(
        "python3 -c 'import mmap\nwith open(\"docs/mapped\", \"r+b\") as f, mmap.mmap(f.fileno(), 0) as m: m[0:1] = b\"X\"'",
    ));
    for name in ["replaced", "renamed-over", "gone", "stale"] {
        let name = format!("docs/{name}");
        assert_eq!(tree.read(&name).as_deref(), Some("mine\n"), "{name}");
    }
    assert_eq!(tree.read("docs/edited").as_deref(), Some("X old\n"));
    assert_eq!(tree.read("docs/mapped").as_deref(), Some("X old\n"));
    for old in [
        "1 old\n",
        "2 old\n",
        "3 old\n",
        "4 old\n",
        "6 changed outside\n",
        "7 old\n",
        "8 old\n",
    ] {
        assert!(is_kept(&tree, old), "{old:?} is not in the attic");
    }
    // What its maker has read as it is need not be kept.
    assert!(!is_kept(&tree, "5 old\n"));
    let said = a.close();
    let refusals: Vec<_> = said.iter().filter(|line| line.contains("docs/")).collect();
    assert!(refusals.is_empty(), "{refusals:?}");
}

// semantics: L1 L8
#[test]
fn off_guard_and_keep_come_from_the_file_and_the_command_line() {
    let rules = rule("out/", "off") + &rule("src/*.o", "guard") + &rule("/data", "keep");
    let files = [
        (RULES, rules.as_str()),
        ("out/x", "out old\n"),
        ("src/x.o", "built\n"),
        ("data", "data old\n"),
        ("more/x", "more old\n"),
        ("more/kept/x", "kept old\n"),
        ("more/data", "not the one\n"),
    ];
    let flags = ["--rule", "off:more/**", "--rule", "keep:more/kept/"];
    let Some((tree, mut a)) = guarded("off, guard and keep", &files, &flags) else {
        return;
    };
    fine(&a.sh("echo mine >out/x; echo mine >data; echo mine >more/x; echo mine >more/kept/x"));
    refused(&a.sh("echo mine >src/x.o"), EXISTS_TEXT);
    fine(&a.sh("cat src/x.o; echo mine >src/x.o"));
    for (old, there) in [
        ("out old\n", false),
        ("data old\n", true),
        ("more old\n", false),
        ("kept old\n", true),
    ] {
        assert_eq!(is_kept(&tree, old), there, "{old:?}");
    }
    // A mount without these rules has other levels, at the same time.
    let mut b = Session::guarded(&tree, "b", &[]);
    refused(&b.sh("echo theirs >more/data"), EXISTS_TEXT);
    fine(&a.sh("echo mine >more/data"));
    refused(&b.sh("echo theirs >more/data"), EXISTS_TEXT);
}

// semantics: L8
#[test]
fn the_last_rule_that_matches_decides_also_for_a_directory_above() {
    let rules = rule("docs/", "keep")
        + &rule("docs/strict/**", "guard")
        + &rule("*.tmp", "off")
        + &rule("docs/late.tmp", "guard");
    let files = [
        (RULES, rules.as_str()),
        ("docs/x", "old\n"),
        ("docs/strict/x", "old\n"),
        ("docs/strict/x.tmp", "off old\n"),
        ("docs/late.tmp", "old\n"),
        ("node_modules/m", "module old\n"),
    ];
    let Some((tree, mut a)) = guarded("the last rule decides", &files, &["--rule", "guard:node_modules/m"]) else {
        return;
    };
    fine(&a.sh("echo mine >docs/x; echo mine >docs/strict/x.tmp"));
    assert!(!is_kept(&tree, "off old\n"));
    refused(&a.sh("echo mine >docs/strict/x"), EXISTS_TEXT);
    refused(&a.sh("echo mine >docs/late.tmp"), EXISTS_TEXT);
    refused(&a.sh("echo mine >node_modules/m"), EXISTS_TEXT);
    // No dead end where only a rule guards: what is gone can be seen to be.
    fine(&a.sh("cat node_modules/m"));
    tree.remove("node_modules/m");
    refused(&a.sh("echo mine >node_modules/m"), "Stale file handle");
    fine(&a.sh("ls node_modules/m 2>/dev/null || echo mine >node_modules/m"));
}

// semantics: L2 L8
#[test]
fn only_a_rule_that_names_git_reaches_into_it() {
    let rules = rule("**", "guard") + &rule("named/.git/config", "keep");
    let files = [
        (RULES, rules.as_str()),
        (".git/config", "old\n"),
        ("named/.git/config", "named old\n"),
        ("target.o", "old\n"),
    ];
    let Some((tree, mut a)) = guarded("git is off", &files, &[]) else {
        return;
    };
    fine(&a.sh("echo mine >.git/config; echo mine >named/.git/config"));
    assert!(!is_kept(&tree, "old\n") && is_kept(&tree, "named old\n"));
    refused(&a.sh("echo mine >target.o"), EXISTS_TEXT);
}

// semantics: L4 L9
#[test]
fn what_git_ignores_is_kept_but_secrets_are_guarded() {
    let files = [
        (".gitignore", "*.log\n!keep.log\n/cache/\n"),
        ("sub/.gitignore", "*.tmp\n!x.log\n"),
        ("x.log", "1 old\n"),
        ("keep.log", "old\n"),
        ("cache/deep/x", "2 old\n"),
        ("cache/.env", "old\n"),
        ("cache/lib.a", "3 off\n"),
        ("sub/x.tmp", "4 old\n"),
        ("sub/x.log", "old\n"),
        ("sub/y.log", "5 old\n"),
        ("x.tmp", "old\n"),
        ("sub/cache/x", "old\n"),
    ];
    let Some((tree, mut a)) = guarded("ignored by git", &files, &[]) else {
        return;
    };
    for name in ["x.log", "cache/deep/x", "sub/x.tmp", "sub/y.log", "cache/lib.a"] {
        fine(&a.sh(&format!("echo mine >{name}")));
    }
    for name in ["keep.log", "cache/.env", "sub/x.log", "x.tmp", "sub/cache/x"] {
        refused(&a.sh(&format!("echo mine >{name}")), EXISTS_TEXT);
    }
    for old in ["1 old\n", "2 old\n", "4 old\n", "5 old\n"] {
        assert!(is_kept(&tree, old), "{old:?}");
    }
    assert!(!is_kept(&tree, "3 off\n"));
}

// semantics: L9
#[test]
fn a_change_of_an_ignore_file_is_noticed() {
    let files = [("sub/x.tmp", "1 old\n"), ("sub/y.tmp", "2 old\n"), ("z.tmp", "3 old\n")];
    let Some((tree, mut a)) = guarded("ignore files change", &files, &[]) else {
        return;
    };
    refused(&a.sh("echo mine >sub/x.tmp"), EXISTS_TEXT);
    tree.write("sub/.gitignore", "*.tmp\n");
    comes_to_work(&mut a, "echo mine >sub/x.tmp");
    refused(&a.sh("echo mine >z.tmp"), EXISTS_TEXT);
    // By an owner it is noticed at once.
    fine(&a.sh("cat sub/.gitignore; echo '*.log' >sub/.gitignore"));
    refused(&a.sh("echo mine >sub/y.tmp"), EXISTS_TEXT);
    fine(&a.sh("echo '*.tmp' >.gitignore; echo mine >z.tmp"));
    fine(&a.sh("rm .gitignore; mv sub/.gitignore .gitignore"));
    tree.write("w.tmp", "4 old\n");
    refused(&a.sh("echo mine >w.tmp"), EXISTS_TEXT);
    assert!(is_kept(&tree, "1 old\n") && is_kept(&tree, "3 old\n"));
}

// semantics: L10
#[test]
fn an_ignore_file_takes_the_guard_from_nobodys_work() {
    let files = [("old.txt", "baseline\n")];
    let Some((tree, mut a)) = guarded("others' work stays guarded", &files, &[]) else {
        return;
    };
    let mut b = Session::guarded(&tree, "b", &[]);
    fine(&b.sh("echo theirs >work.txt"));
    fine(&a.sh("echo '*.txt' >.gitignore"));
    refused(&a.sh("echo mine >work.txt"), EXISTS_TEXT);
    refused(&a.sh("rm work.txt"), "busy");
    assert_eq!(tree.read("work.txt").as_deref(), Some("theirs\n"));
    // Nor from an outsider's, although that is noticed only now.
    tree.write("outside.md", "outside\n");
    fine(&a.sh("cat .gitignore; echo '*.md' >>.gitignore"));
    refused(&a.sh("echo mine >outside.md"), EXISTS_TEXT);
    // What is made now is made as ignored, and what nobody has touched has no maker here.
    fine(&b.sh("echo theirs >later.txt"));
    fine(&a.sh("echo mine >later.txt; echo mine >old.txt"));
    assert!(is_kept(&tree, "theirs\n") && is_kept(&tree, "baseline\n"));
    // The advised step clears it.
    fine(&a.sh("cat work.txt; echo mine >work.txt"));
    assert!(a.told("work.txt", NOT_OBSERVED));
}

// semantics: L6
#[test]
fn what_moves_unseen_to_a_looser_name_stays_as_guarded_as_it_was() {
    let rules = rule("kept/**", "keep") + &rule("off/**", "off");
    let files = [
        (RULES, rules.as_str()),
        ("f", "1 old\n"),
        ("dir/g", "2 old\n"),
        ("kept/h", "3 old\n"),
        ("off/x", "x\n"),
    ];
    let Some((tree, mut a)) = guarded("moves across levels", &files, &[]) else {
        return;
    };
    fine(&a.sh("mv f kept/f; mv dir kept/dir; mv kept/h off/h"));
    refused(&a.sh("echo mine >kept/f"), EXISTS_TEXT);
    refused(&a.sh("echo mine >kept/dir/g"), EXISTS_TEXT);
    fine(&a.sh("echo mine >off/h"));
    assert!(
        is_kept(&tree, "3 old\n"),
        "kept content is lost by way of an unguarded name"
    );
    fine(&a.sh("cat kept/dir/g; echo mine >kept/dir/g"));
}

// semantics: L8
#[test]
fn a_joined_mount_keeps_its_own_rules() {
    if !require_fuse("rules of a joined mount") {
        return;
    }
    let tree = Tree::new();
    tree.write("f", "old\n");
    tree.write("g", "old\n");
    let mount = Mount::new(&tree, &["--rule", "keep:f"]);
    let run = |text: &str| {
        tree.unclobber()
            .args(["run", "--owner", "a", "--linger", "0", "--rule", "keep:g", "-w"])
            .arg(mount.path())
            .args(["--", "sh", "-c", text])
            .output()
            .expect("unclobber run")
    };
    let done = run("echo mine >f");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success() && said.contains("have no effect"), "{said}");
    assert!(!run("echo mine >g").status.success());
}

// semantics: L7
#[test]
fn at_keep_a_slow_writer_loses_nobodys_work() {
    let rules = rule("docs/**", "keep");
    let Some((tree, mut a)) = guarded("a slow writer at keep", &[(RULES, &rules), ("docs/f", "old\n")], &[]) else {
        return;
    };
    let mut b = Session::guarded(&tree, "b", &[]);
    fine(&b.sh("exec 7>docs/f 8>docs/g; echo slow >&7"));
    fine(&a.sh("echo quick >docs/f; echo quick >docs/g"));
    // The slow one goes on where it was, over what the quick one wrote.
    fine(&b.sh("echo slower >&7; echo slow slow slow >&8"));
    fine(&a.sh("rm docs/g"));
    fine(&b.sh("exec 7>&- 8>&-"));
    assert!(is_kept(&tree, "quick\n") && is_kept(&tree, "slow slow slow\n"));
    let said = b.close();
    assert!(!said.iter().any(|line| line.contains("docs/")), "{said:?}");
}
