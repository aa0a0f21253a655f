//! `unclobber why`: what an owner knows of a path, what would happen to a change, and the step that clears it. Every
//! answer that names a step is put to the test: the step is taken, and the change is made.

#[path = "../common/mod.rs"]
#[expect(dead_code, reason = "each test program uses its own part of the harness")]
mod common;
mod difference;
mod promise;
#[path = "../support/mod.rs"]
#[expect(dead_code, reason = "each test program uses its own part of the harness")]
mod support;
mod unmounted;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use common::mount::Mount;
use common::session::{Session, fine};
use common::tree::{Tree, program, require_fuse};
use common::wait::{PATIENCE, wait_until};
use serde_json::Value;

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
    assert_eq!(
        view(&gone.1)["step"],
        "look at the path again (`ls PATH` itself, not its directory) to see that it is gone, then create it"
    );
    let screen = a.sh(&why("f"));
    assert!(screen.stdout.contains("  for example:   ls f\n"), "{screen:?}");
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
    // The kernel opens such a thing by itself.
    fine(&a.sh("mkfifo pipe"));
    is(&ask(&mut a, "pipe"), 0, "unseen", "allowed");
    fine(&a.sh("cat pipe >/dev/null & echo x >pipe; wait"));
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

// semantics: G6 W1
#[test]
fn what_an_owner_by_rule_has_to_do_is_done_where_it_is() {
    if !require_fuse("why: an owner by rule") {
        return;
    }
    let tree = Tree::new();
    tree.write("f", "old\n");
    let mount = Mount::new(&tree, &["--owner-by", "session"]);
    let path = mount.path().join("f").display().to_string();
    // In a session of its own.
    let mut shell = Command::new("setsid");
    tree.dress(&mut shell);
    let script = format!(
        "! echo mine 2>/dev/null >'{path}' && cat '{}/.unclobber/owner'",
        mount.path().display()
    );
    let done = shell.args(["-w", "sh", "-c", &script]).output().expect("a shell");
    let owner = text(&done).trim().to_owned();
    assert!(owner.starts_with("session-"), "{done:?}");
    let screen = text(&outside(&tree, &["--owner", &owner, &path]));
    let example = format!("  for example:   in that session itself: cat {path}\n");
    assert!(screen.contains(&example), "{screen}");
    // Nobody becomes it by its name, or takes the name from it.
    let mut other = tree.unclobber();
    other
        .args(["run", "--owner", &owner, "-w"])
        .arg(tree.root())
        .args(["--", "true"]);
    let other = other.output().expect("unclobber run");
    let said = String::from_utf8_lossy(&other.stderr).into_owned();
    assert_eq!(other.status.code(), Some(2), "{said}");
    assert!(
        said.contains("as the guard gives it to owners that nobody named"),
        "{said}"
    );
    assert!(text(&outside(&tree, &["--owner", &owner, &path])).contains(&format!("\"{owner}\"")));
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
    let wait = "wait until the writer has closed it, read the file again, then retry";
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
        is(
            &answer,
            1,
            "current",
            if operation == "create" { "fails" } else { "refused" },
        );
        let told = view(&answer.1);
        assert_eq!(
            (&told["error"], &told["protected"]),
            (&error.into(), &true.into()),
            "{told:#}"
        );
        assert_eq!(
            told["step"],
            "change .unclobber.toml outside the mount, or use --rules-writable"
        );
        let done = a.sh(command);
        assert!(!done.ok() && done.stderr.contains(error), "{done:?}");
    }
    let screen = a.sh(&why(".unclobber.toml"));
    assert!(
        screen
            .stdout
            .contains("REFUSED, with the error \"Read-only file system\" (FS_RULES_FIXED)")
            && !screen.stdout.contains("no refusal of unclobber"),
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
    let screen = c.sh(&why("g")).stdout;
    for part in [
        "writing to it now: ALLOWED, since this mount only observes (--mode observe)\n",
        "  it would go on record as what would be refused: FS_NOT_OBSERVED\n",
        "what to do next: nothing, go ahead; where it is enforced: read the file, then retry\n",
    ] {
        assert!(screen.contains(part), "{part}\n{screen}");
    }
}
