//! `unclobber why`: what an owner knows of a path, what would happen to a change, and the step that clears it. Every
//! answer that names a step is put to the test: the step is taken, and the change is made.

#[expect(dead_code, reason = "each test program uses its own part of the harness")]
mod common;
#[expect(dead_code, reason = "each test program uses its own part of the harness")]
mod support;

use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, Output};

use common::mount::Mount;
use common::session::{Session, fine};
use common::tree::{Tree, program, require_fuse};
use common::wait::{PATIENCE, wait_until};
use serde_json::Value;
use unclobber::fs::{Asker, Explained, Operation, Outcome, Question};
use unclobber::guard::{Policy, ViewRule};

/// A tree with some old files, and a shell of owner A.
fn guarded(test: &str, flags: &[&str]) -> Option<(Tree, Session)> {
    if !require_fuse(test) {
        return None;
    }
    let tree = Tree::new();
    tree.write("f", "one\ntwo\nthree\n");
    tree.write("g", "old\n");
    let a = Session::guarded(&tree, "a", flags);
    Some((tree, a))
}

fn why(arguments: &str) -> String {
    format!("'{}' why {arguments}", program().display())
}

fn ask(session: &mut Session, arguments: &str) -> (i32, Value) {
    let done = session.sh(&why(&format!("--json {arguments}")));
    (done.code, json(&done.stdout, &format!("{done:?}")))
}

fn json(text: &str, context: &str) -> Value {
    let parsed = serde_json::from_str(text);
    assert!(parsed.is_ok(), "no JSON: {context}");
    parsed.unwrap_or_default()
}

fn view(answer: &Value) -> &Value {
    assert_eq!(answer["views"].as_array().map(Vec::len), Some(1), "{answer:#}");
    &answer["views"][0]
}

fn is(answer: &(i32, Value), code: i32, standing: &str, outcome: &str) {
    let (found, answer) = answer;
    let view = view(answer);
    assert_eq!(
        (*found, view["view"].as_str(), view["outcome"].as_str()),
        (code, Some(standing), Some(outcome)),
        "{answer:#}"
    );
}

fn outside(tree: &Tree, arguments: &[&str]) -> Output {
    let mut command = tree.unclobber();
    command.arg("why").args(arguments).output().expect("unclobber why")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

// semantics: W1 W2
#[test]
fn every_standing_is_told_and_its_step_works() {
    let Some((tree, mut a)) = guarded("why: standings", &[]) else {
        return;
    };
    let unseen = ask(&mut a, "f");
    is(&unseen, 1, "unseen", "refused");
    let told = view(&unseen.1);
    assert_eq!(told["code"], "FS_NOT_OBSERVED");
    assert_eq!(told["error"], "File exists");
    assert_eq!(told["step"], "read the file, then retry");
    assert_eq!(told["changed"], Value::Null, "nobody has changed it");
    assert_eq!(unseen.1["own"], "a");
    assert!(!a.sh("echo mine >f").ok());
    let after = ask(&mut a, "f");
    assert_eq!(view(&after.1)["last_refusal"]["code"], "FS_NOT_OBSERVED");
    fine(&a.sh("cat f"));
    is(&ask(&mut a, "f"), 0, "current", "allowed");
    fine(&a.sh("echo mine >f"));

    let mut b = Session::guarded(&tree, "b", &[]);
    fine(&b.sh("cat f && echo theirs >f"));
    let stale = ask(&mut a, "f");
    is(&stale, 1, "stale", "refused");
    let told = view(&stale.1);
    assert_eq!(
        (told["code"].as_str(), told["changed"]["by"].as_str()),
        (Some("FS_STALE_VERSION"), Some("b"))
    );
    assert_eq!(told["changed"]["command"], "sh");
    assert_eq!(told["changed"]["pid"].as_u64().map(|pid| pid > 0), Some(true));
    assert!(!a.sh("echo mine >f").ok());
    fine(&a.sh("cat f"));
    is(&ask(&mut a, "f"), 0, "current", "allowed");
    fine(&a.sh("echo mine >f"));

    tree.remove("f");
    let gone = ask(&mut a, "f");
    is(&gone, 1, "stale", "refused");
    assert_eq!(view(&gone.1)["changed"]["by"], "outside the mount");
    assert_eq!(view(&gone.1)["changed"]["gone"], true);
    fine(&a.sh("! cat f"));
    is(&ask(&mut a, "f"), 0, "absent", "allowed");
    fine(&a.sh("echo anew >f"));
}

// semantics: W1
#[test]
fn every_operation_is_judged_as_it_would_be() {
    let Some((tree, mut a)) = guarded("why: operations", &[]) else {
        return;
    };
    is(&ask(&mut a, "--op edit f"), 1, "unseen", "refused");
    let taken = ask(&mut a, "--op create f");
    is(&taken, 1, "unseen", "fails");
    assert_eq!(view(&taken.1)["error"], "File exists");
    assert_eq!(view(&taken.1)["cause"], "the name is taken");
    assert_eq!(
        view(&taken.1)["step"],
        "replace it without O_EXCL, or choose another name"
    );
    let remove = ask(&mut a, "--op remove f");
    is(&remove, 0, "unseen", "allowed");
    assert_eq!(view(&remove.1)["keeps"], true);
    fine(&a.sh("rm f"));
    assert_eq!(tree.read("f"), None);
    // Refused one way, it may not be taken the other.
    assert!(!a.sh("echo x >g").ok());
    is(&ask(&mut a, "--op remove g"), 1, "unseen", "refused");
    assert!(!a.sh("rm g").ok());
    let nothing = ask(&mut a, "--op edit nothing");
    is(&nothing, 1, "unseen", "fails");
    assert_eq!(view(&nothing.1)["error"], "No such file or directory");
    assert_eq!(view(&nothing.1)["step"], "create it instead of editing it");
    is(&ask(&mut a, "--op remove nothing"), 1, "unseen", "fails");
    is(&ask(&mut a, "--op create nothing"), 0, "unseen", "allowed");
    is(&ask(&mut a, "no/such/directory"), 1, "unseen", "fails");
    let directory = ask(&mut a, ".");
    assert_eq!(view(&directory.1)["code"], "FS_NOT_REGULAR_FILE");
    fine(&a.sh("mkdir -p .git d"));
    let removed = ask(&mut a, "--op remove d");
    is(&removed, 1, "unseen", "fails");
    assert_eq!(view(&removed.1)["error"], "Is a directory");
    assert!(a.sh("rm d").stderr.contains("Is a directory"));
    let taken = ask(&mut a, "--op create d");
    is(&taken, 1, "unseen", "fails");
    assert_eq!(view(&taken.1)["step"], "choose another name");
    fine(&a.sh("rmdir d"));
    let off = ask(&mut a, ".git/config");
    assert_eq!((off.0, off.1["level"].as_str()), (0, Some("off")));
}

// semantics: W2
#[test]
fn asking_is_no_observation_and_no_refusal() {
    let Some((tree, mut a)) = guarded("why: asking", &[]) else {
        return;
    };
    for _ in 0..3 {
        is(&ask(&mut a, "f"), 1, "unseen", "refused");
        is(&ask(&mut a, "nothing"), 0, "unseen", "allowed");
    }
    assert!(!a.sh("echo mine >f").ok(), "asking is not reading");
    fine(&a.sh("cat f g >/dev/null"));
    tree.remove("f");
    for _ in 0..3 {
        is(&ask(&mut a, "f"), 1, "stale", "refused");
    }
    assert!(!a.sh("echo mine >f").ok(), "asking is no miss either");
    // The owner's one refusal before, and this one.
    let refusals = a.sh("cat .unclobber/refusals").stdout;
    assert_eq!(refusals.lines().count(), 2, "{refusals}");
}

// semantics: W1
#[test]
fn a_path_is_found_however_it_is_typed() {
    let Some((tree, mut a)) = guarded("why: paths", &[]) else {
        return;
    };
    std::os::unix::fs::symlink("../f", {
        fs::create_dir(tree.at("sub")).expect("a directory");
        tree.at("sub/link")
    })
    .expect("a link");
    std::os::unix::fs::symlink(tree.at("g"), tree.at("absolute")).expect("a link");
    std::os::unix::fs::symlink(tree.root(), tree.scratch().join("tree")).expect("a link");
    fine(&a.sh("cat f"));
    let root = tree.root();
    let scratch = tree.scratch();
    let paths = [
        "f".to_owned(),
        "./sub/../f".to_owned(),
        "sub/link".to_owned(),
        format!("{}/f", root.display()),
        format!("{}/tree/f", scratch.display()),
        "../work/f".to_owned(),
    ];
    for path in &paths {
        let answer = ask(&mut a, path);
        is(&answer, 0, "current", "allowed");
        assert_eq!(answer.1["path"], "f", "{path}");
    }
    let answer = ask(&mut a, "absolute");
    is(&answer, 1, "unseen", "refused");
    assert_eq!(answer.1["path"], "g");
    // Not followed where the link itself is meant.
    assert_eq!(ask(&mut a, "--op remove sub/link").1["there"], "other");
    let below = a.sh(&format!("cd sub && {}", why("--json ../f")));
    assert_eq!(below.code, 0, "{below:?}");
    // From outside, by the directory's own path.
    let typed = root.join("f");
    let answer = outside(&tree, &["--owner", "a", "--json", &typed.to_string_lossy()]);
    is(
        &(answer.status.code().unwrap_or(-1), json(&text(&answer), "outside")),
        0,
        "current",
        "allowed",
    );
    let linked = outside(
        &tree,
        &["--owner", "a", "--json", &scratch.join("tree/g").to_string_lossy()],
    );
    assert_eq!(linked.status.code(), Some(1), "{linked:?}");
}

// semantics: W1 W3
#[test]
fn in_a_mount_elsewhere_the_caller_is_who_it_is_there() {
    if !require_fuse("why: a mount elsewhere") {
        return;
    }
    let tree = Tree::new();
    tree.write("f", "old\n");
    let mount = Mount::new(&tree, &["--owner-by", "session"]);
    let path = mount.path().join("f");
    let script = format!(
        "'{0}' why --json '{1}' >'{2}/1'; cat '{1}' >/dev/null; '{0}' why --json '{1}' >'{2}/2'",
        program().display(),
        path.display(),
        tree.scratch().display()
    );
    let mut shell = Command::new("sh");
    tree.dress(&mut shell);
    let done = shell.args(["-c", &script]).output().expect("a shell");
    let answers = ["1", "2"].map(|file| fs::read_to_string(tree.scratch().join(file)).expect("an answer"));
    assert!(done.status.success(), "{done:?}\n{answers:#?}");
    for (answer, standing) in answers.iter().zip(["unseen", "current"]) {
        let answer = json(answer, standing);
        assert_eq!(view(&answer)["view"], standing, "{answer:#}");
        assert!(
            answer["own"].as_str().is_some_and(|own| own.starts_with("session-")),
            "{answer:#}"
        );
    }
}

// semantics: W3
#[test]
fn an_owner_may_ask_for_itself_only_and_an_outsider_for_everybody() {
    let Some((tree, mut a)) = guarded("why: owners", &[]) else {
        return;
    };
    fine(&a.sh("cat f"));
    let mut b = Session::guarded(&tree, "b", &[]);
    let refused = b.sh(&why("--owner a f"));
    assert_eq!(refused.code, 125, "{refused:?}");
    assert!(refused.stderr.contains("its own view only"), "{refused:?}");
    assert_eq!(b.sh(&why("--owner b f")).code, 1);
    let typed = tree.at("f");
    let all = outside(&tree, &[&typed.to_string_lossy()]);
    let screen = text(&all);
    assert_eq!(all.status.code(), Some(1), "{screen}");
    for line in [
        "\"a\"           has read it as it is now; writing to it now: ALLOWED",
        "anybody else  has not read it; writing to it now: REFUSED: read the file, then retry",
    ] {
        assert!(screen.contains(line), "{screen}");
    }
    let stranger = outside(&tree, &["--owner", "stranger", &typed.to_string_lossy()]);
    assert_eq!(stranger.status.code(), Some(125));
    let nowhere = outside(&tree, &["/nowhere/at/all"]);
    assert_eq!(nowhere.status.code(), Some(125));
    assert!(
        String::from_utf8_lossy(&nowhere.stderr).contains("no guard of yours"),
        "{nowhere:?}"
    );
    assert_eq!(outside(&tree, &["--op", "explode", "f"]).status.code(), Some(2));
}

// semantics: W1
#[test]
fn whoever_is_writing_it_is_named_and_waited_for() {
    let Some((tree, mut a)) = guarded("why: being written", &[]) else {
        return;
    };
    fine(&a.sh("cat f"));
    let mut b = Session::guarded(&tree, "b", &[]);
    fine(&b.sh("cat f; exec 3>f; echo half >&3"));
    let answer = ask(&mut a, "f");
    is(&answer, 1, "stale", "refused");
    assert_eq!(answer.1["being_written_by"], "b");
    let screen = a.sh(&why("f"));
    assert!(screen.stdout.contains("what to do next: wait until"), "{screen:?}");
    fine(&b.sh("exec 3>&-"));
    assert_eq!(ask(&mut a, "f").1["being_written_by"], Value::Null);
    fine(&a.sh("cat f && echo mine >f"));
}

// semantics: D21 E7 W1
#[test]
fn who_has_not_read_what_is_being_written_is_told_to_wait_at_once() {
    let Some((tree, mut a)) = guarded("why: unseen and being written", &[]) else {
        return;
    };
    let mut b = Session::guarded(&tree, "b", &[]);
    fine(&b.sh("cat f; exec 3>f; echo half >&3"));
    let answer = ask(&mut a, "f");
    is(&answer, 1, "unseen", "refused");
    let told = view(&answer.1);
    assert_eq!(told["code"], "FS_NOT_OBSERVED");
    let wait = "wait until that is closed, read the file again, then retry";
    assert_eq!(told["step"], wait);
    let done = a.sh("echo mine >f");
    assert!(done.stderr.contains("File exists"), "{done:?}");
    let after = ask(&mut a, "f");
    let line = view(&after.1)["last_refusal"]["line"].as_str().unwrap_or_default();
    assert!(line.contains("FS_NOT_OBSERVED (File exists)"), "{line}");
    assert!(line.contains("is still writing it") && line.ends_with(wait), "{line}");
    fine(&b.sh("exec 3>&-"));
    fine(&a.sh("cat f && echo mine >f"));
}

// semantics: W2 L13
#[test]
fn of_the_file_of_rules_it_is_said_that_nothing_changes_it_here() {
    if !require_fuse("why: the file of rules") {
        return;
    }
    let tree = Tree::new();
    tree.write(".unclobber.toml", "");
    tree.write("f", "old\n");
    let mut a = Session::guarded(&tree, "a", &[]);
    fine(&a.sh("cat .unclobber.toml"));
    let create = "python3 -c 'import os; os.open(\".unclobber.toml\", os.O_CREAT | os.O_EXCL | os.O_WRONLY)'";
    let tries = [
        ("write", "echo >.unclobber.toml", "Read-only file system"),
        (
            "edit",
            "dd if=f of=.unclobber.toml conv=notrunc",
            "Read-only file system",
        ),
        ("remove", "rm -f .unclobber.toml", "Read-only file system"),
        ("create", create, "File exists"),
    ];
    for (operation, command, error) in tries {
        let answer = ask(&mut a, &format!("--op {operation} .unclobber.toml"));
        is(&answer, 1, "current", "fails");
        let told = view(&answer.1);
        assert_eq!(
            (&told["error"], &told["protected"]),
            (&error.into(), &true.into()),
            "{told:#}"
        );
        assert_eq!(
            told["step"],
            "change them outside the mount, or mount with --rules-writable"
        );
        let done = a.sh(command);
        assert!(!done.ok() && done.stderr.contains(error), "{done:?}");
    }
    let screen = a.sh(&why(".unclobber.toml"));
    assert!(
        screen.stdout.contains("FAILS") && !screen.stdout.contains("no refusal of unclobber"),
        "{screen:?}"
    );
    tree.remove(".unclobber.toml");
    for (operation, command) in [("write", "echo >.unclobber.toml"), ("create", create)] {
        let answer = ask(&mut a, &format!("--op {operation} .unclobber.toml"));
        assert_eq!(view(&answer.1)["error"], "Read-only file system", "{answer:?}");
        assert!(a.sh(command).stderr.contains("Read-only file system"));
    }
    let mut free = Session::guarded(&tree, "free", &["--rules-writable"]);
    is(&ask(&mut free, ".unclobber.toml"), 0, "unseen", "allowed");
    fine(&free.sh("echo >.unclobber.toml"));
}

// semantics: W2 L10
#[test]
fn what_others_made_before_it_was_ignored_is_refused_and_told_so() {
    let Some((tree, mut a)) = guarded("why: ignored meanwhile", &[]) else {
        return;
    };
    let mut b = Session::guarded(&tree, "b", &[]);
    fine(&b.sh("echo theirs >new"));
    fine(&a.sh("echo own >mine; printf 'new\\nmine\\n' >.gitignore"));
    let rules = format!("'{}' rules mine | grep -q keep", program().display());
    assert!(
        wait_until(PATIENCE, || a.sh(&rules).ok()),
        "the ignore file is not noticed"
    );
    let answer = ask(&mut a, "new");
    is(&answer, 1, "unseen", "refused");
    assert_ne!(a.sh("echo x >new").code, 0);
    let answer = ask(&mut a, "mine");
    assert_eq!((answer.0, view(&answer.1)["outcome"].as_str()), (0, Some("allowed")));
    fine(&a.sh("echo x >mine; cat new; echo x >new"));
}

// semantics: W4
#[test]
fn what_has_changed_since_it_was_read_is_shown() {
    let Some((tree, mut a)) = guarded("why: the difference", &[]) else {
        return;
    };
    fine(&a.sh("cat f"));
    let mut b = Session::guarded(&tree, "b", &[]);
    // An unread file that is removed is kept, and what is made in its place is another.
    fine(&b.sh("rm f; printf 'one\\n2\\nthree\\n\\033[31mfour\\n' >f"));
    let answer = ask(&mut a, "--diff f");
    is(&answer, 1, "stale", "refused");
    let shown = view(&answer.1)["difference"]["text"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    assert!(shown.contains("-two\n") && shown.contains("+2\n"), "{answer:#?}");
    assert!(
        shown.contains("+\\u{1b}[31mfour"),
        "nothing that a terminal obeys: {shown}"
    );
    let screen = a.sh(&why("f"));
    assert!(screen.stdout.contains("unclobber why f --diff"), "{screen:?}");
    // Showing it is no read.
    assert!(!a.sh("echo mine >f").ok());
    fine(&a.sh("cat f && echo mine >f"));
    // What an owner replaces that it had read, and others too, is kept as well.
    fine(&b.sh("cat f && printf 'theirs\\n' >f"));
    let answer = ask(&mut a, "--diff f");
    is(&answer, 1, "stale", "refused");
    let shown = view(&answer.1)["difference"]["text"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    assert!(shown.contains("-mine\n+theirs\n"), "{answer:#?}");
    fine(&a.sh("cat f"));
    // Where no copy was kept, that is said.
    fine(&a.sh("cat g"));
    tree.write("g", "by an outsider\n");
    let answer = ask(&mut a, "--diff g");
    is(&answer, 1, "stale", "refused");
    let none = view(&answer.1)["difference"]["none"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    assert!(none.contains("no copy of the version"), "{answer:#?}");
}

// semantics: W4
#[test]
fn the_report_of_a_run_shows_it_to_its_owner_alone() {
    if !require_fuse("why: reports") {
        return;
    }
    let tree = Tree::new();
    for (mode, shows) in [(None, true), (Some(0o644), false)] {
        tree.write("f", "one\ntwo\n");
        let report = tree.scratch().join(format!("report-{shows}"));
        if let Some(mode) = mode {
            fs::write(&report, "").expect("a report");
            fs::set_permissions(&report, fs::Permissions::from_mode(mode)).expect("its mode");
        }
        let mut a = Session::guarded(&tree, "a", &["--report", &report.to_string_lossy()]);
        let mut b = Session::guarded(&tree, "b", &[]);
        fine(&a.sh("cat f"));
        fine(&b.sh("cat f && printf 'one\\n2\\n' >f"));
        assert!(!a.sh("echo mine >f").ok());
        drop(a.close());
        let text = fs::read_to_string(&report).expect("a report");
        let found = json(&text, &text);
        let refusal = &found["owners"][0]["refusals"][0];
        assert_eq!(refusal["code"], "FS_STALE_VERSION", "{found:#}");
        let shown = refusal["difference"]["text"].as_str().unwrap_or_default();
        assert_eq!(shown.contains("-two\n+2\n"), shows, "{found:#}");
    }
}

// semantics: W4
#[test]
fn content_is_shown_to_nobody_who_may_not_read_it() {
    if !require_fuse("why: no content") {
        return;
    }
    let mut tree = support::Tree::new(|backing| fs::write(backing.join("f"), "one\n").expect("a file"));
    let (a, b) = (tree.owner("a"), tree.owner("b"));
    fs::read(a.join("f")).expect("a's read");
    fs::remove_file(b.join("f")).expect("b's removal");
    fs::write(b.join("f"), "secret\n").expect("b's file");
    fs::set_permissions(b.join("f"), fs::Permissions::from_mode(0o600)).expect("its mode");
    let owner = tree.guard.owners().named("a").expect("an owner");
    let path = [OsString::from("f")];
    let difference = |uid| {
        let question = Question {
            path: &path,
            operation: Operation::Write,
            owners: &[Some(owner)],
            policy: Policy::default(),
            mount: None,
            read_only: false,
            asker: Asker { uid, gid: uid, pid: 0 },
            difference: true,
        };
        let Ok(Explained::Answer(answer)) = tree.guard.explain(&question) else {
            unreachable!("the path is in the tree");
        };
        answer.views[0].difference.clone().expect("an answer")
    };
    let stranger = difference(65_534);
    assert_eq!(stranger.text, None);
    assert_eq!(stranger.none.as_deref(), Some("you may not read the file"));
    let mine = difference(fs::metadata(tree.backing.join("f")).expect("the file").uid());
    assert_eq!(mine.text.map(|text| text.contains("+secret\n")), Some(true));
}

// semantics: W4
#[test]
fn of_what_is_not_guarded_nothing_is_shown() {
    let Some((_tree, mut a)) = guarded("why: not guarded", &[]) else {
        return;
    };
    fine(&a.sh("mkdir .git; echo x >.git/f; cat .git/f"));
    let off = ask(&mut a, "--diff .git/f");
    assert_eq!(off.1["level"], "off");
    assert_eq!(view(&off.1)["difference"], Value::Null);
}

// semantics: W1
#[test]
fn a_program_with_an_old_copy_is_named() {
    let Some((tree, mut a)) = guarded("why: old copies", &[]) else {
        return;
    };
    // The shell itself reads it, as an editor would; then a child of it reads the newer one.
    fine(&a.sh("read -r line <f"));
    tree.write("f", "by an outsider\n");
    fine(&a.sh("cat f"));
    let answer = ask(&mut a, "f");
    is(&answer, 0, "current", "allowed");
    assert_eq!(view(&answer.1)["old_copies"][0]["command"], "sh", "{answer:#?}");
    let screen = a.sh(&why("f"));
    assert!(screen.stdout.contains("holds an older copy"), "{screen:?}");
}

// semantics: W1
#[test]
fn the_screen_says_what_to_do_next() {
    let Some((tree, mut a)) = guarded("why: the screen", &[]) else {
        return;
    };
    let screen = a.sh(&why("f"));
    for part in [
        "you are       owner \"a\"",
        "you know      you have not read it",
        "there now     a file of 14 bytes",
        "changed by    nobody since the guard began",
        "writing to it now: REFUSED, with the error \"File exists\" (FS_NOT_OBSERVED)",
        "what to do next: read the file, then retry\n  for example:   cat f\n",
    ] {
        assert!(screen.stdout.contains(part), "{part}\n{}", screen.stdout);
    }
    // Outside, the step is one that works there.
    let typed = tree.at("f");
    let answer = outside(&tree, &["--owner", "a", &typed.to_string_lossy()]);
    let screen = text(&answer);
    let step = screen.split("for example:").nth(1).and_then(|rest| rest.lines().next());
    let step = step
        .expect("a step")
        .trim()
        .replace("unclobber run ", &format!("'{}' run --linger 0 ", program().display()));
    let mut shell = Command::new("sh");
    tree.dress(&mut shell);
    let done = shell
        .current_dir(Path::new("/"))
        .args(["-c", &step])
        .output()
        .expect("a shell");
    assert!(done.status.success(), "{step}: {done:?}");
    fine(&a.sh("echo mine >f"));
    // A mount that only observes refuses nothing, and says so.
    drop(a);
    let mut c = Session::guarded(&tree, "c", &["--mode", "observe"]);
    let answer = ask(&mut c, "g");
    is(&answer, 0, "unseen", "allowed");
    assert_eq!(view(&answer.1)["recorded"], true);
}

/// What one owner, or somebody outside, does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Read,
    Write,
    Edit,
    Append,
    Remove,
    Create,
}

fn act(path: &Path, act: Act) -> std::io::Result<()> {
    let mut options = fs::OpenOptions::new();
    match act {
        Act::Read => fs::read(path).map(drop),
        Act::Write => fs::write(path, "whole\n"),
        Act::Edit => options.write(true).open(path)?.write_all(b"part"),
        Act::Append => options.append(true).create(true).open(path)?.write_all(b"more\n"),
        Act::Remove => fs::remove_file(path),
        Act::Create => options.write(true).create_new(true).open(path)?.write_all(b"new\n"),
    }
}

/// The kernel tells of a close after it has returned, and until then what somebody outside writes counts as the writer's
/// (O10): an answer and the change must not stand on two sides of that.
fn wait_for_closes(tree: &support::Tree) {
    let open = || tree.guard.status().mounts.iter().any(|mount| mount.open_files > 0);
    assert!(wait_until(PATIENCE, || !open()), "a handle stays open");
}

// semantics: W2
#[test]
fn what_would_happen_is_what_happens() {
    if !require_fuse("why: predictions") {
        return;
    }
    let mut tree = support::Tree::new(|backing| {
        for name in ["f", "g", "other"] {
            fs::write(backing.join(name), "old\n").expect("a file");
        }
    });
    // One process does everything here: what it saw as another owner is no copy that it holds.
    let policy = Policy {
        view: ViewRule::Owner,
        ..Policy::default()
    };
    let points = [tree.owner_with("a", policy), tree.owner_with("b", policy)];
    let owners = ["a", "b"].map(|name| tree.guard.owners().named(name).expect("an owner"));
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below).expect("a small number")
    };
    let acts = [
        Act::Read,
        Act::Read,
        Act::Read,
        Act::Read,
        Act::Write,
        Act::Write,
        Act::Edit,
        Act::Append,
        Act::Remove,
        Act::Create,
    ];
    let (mut refused, mut allowed) = (0, 0);
    for step in 0..1500 {
        let (who, name, what) = (next(7) % 3, ["f", "g"][next(2)], acts[next(10)]);
        let Some(point) = points.get(who) else {
            drop(act(&tree.backing.join(name), what));
            continue;
        };
        let operation = match what {
            Act::Read | Act::Append => None,
            Act::Write => Some(Operation::Write),
            Act::Edit => Some(Operation::Edit),
            Act::Remove => Some(Operation::Remove),
            Act::Create => Some(Operation::Create),
        };
        let path = [OsString::from(name)];
        let told = operation.map(|operation| {
            let question = Question {
                path: &path,
                operation,
                owners: &[Some(owners[who])],
                policy,
                mount: None,
                read_only: false,
                asker: Asker { uid: 0, gid: 0, pid: 0 },
                difference: false,
            };
            let Ok(Explained::Answer(answer)) = tree.guard.explain(&question) else {
                unreachable!("the path is in the tree");
            };
            answer.views[0].clone()
        });
        let done = act(&point.join(name), what);
        wait_for_closes(&tree);
        // The thread's next request: it was told whatever it was told.
        fs::metadata(point.join("other")).expect("another file");
        let Some(told) = told else { continue };
        let context = format!("step {step}: {what:?} {name} by {who}: {done:?}, told {told:#?}");
        if let Err(error) = done {
            assert_ne!(told.outcome, Outcome::Allowed, "{context}");
            let text = error.to_string();
            assert_eq!(text.split(" (os").next(), told.error.as_deref(), "{context}");
            refused += 1;
        } else {
            assert_eq!(told.outcome, Outcome::Allowed, "{context}");
            allowed += 1;
        }
    }
    assert!(refused > 100 && allowed > 100, "{refused} refused, {allowed} allowed");
}
