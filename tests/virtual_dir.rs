//! The virtual directory `.unclobber` and the virtual attribute `user.unclobber.state`: there for who asks by name, and
//! for nobody else.

#[expect(dead_code, reason = "each test program uses its own part of the harness")]
mod common;

use std::ffi::OsStr;
use std::fs;

use common::session::{Done, Session, fine};
use common::tree::{Tree, require_fuse, tool_is_there};
use unclobber::sys;

fn guarded(test: &str) -> Option<(Tree, Session)> {
    if !require_fuse(test) {
        return None;
    }
    let tree = Tree::new();
    tree.write("f", "old\n");
    let a = Session::guarded(&tree, "a", &[]);
    Some((tree, a))
}

fn says(done: &Done, text: &str) {
    assert!(
        done.code != 0 && done.stderr.contains(text),
        "expected {text:?}: {done:?}"
    );
}

// semantics: W5
#[test]
fn refusals_can_be_read_where_no_command_is_at_hand() {
    let Some((tree, mut a)) = guarded("virtual: refusals") else {
        return;
    };
    let mut b = Session::guarded(&tree, "b", &[]);
    assert_eq!(a.sh("cat .unclobber/owner").stdout, "a\n");
    assert_eq!(b.sh("cat .unclobber/owner").stdout, "b\n");
    assert_eq!(a.sh("cat .unclobber/refusals").stdout, "");
    says(&a.sh("echo mine >f"), "File exists");
    says(&a.sh("ln f l; rm f"), "Device or resource busy");
    let lines = a.sh("cat .unclobber/refusals").stdout;
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(
        lines[0].contains("refused: unlink f: FS_NOT_OBSERVED"),
        "the newest first: {lines:?}"
    );
    assert!(
        lines[1].ends_with("\"a\" has not read it; read the file, then retry"),
        "{lines:?}"
    );
    assert_eq!(
        b.sh("cat .unclobber/refusals").stdout,
        "",
        "those of others are not shown"
    );
    let json = a.sh("cat .unclobber/refusals.json").stdout;
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((json["v"].as_u64(), json["owner"].as_str()), (Some(1), Some("a")));
    assert_eq!(json["refusals"][1]["path"], "f");
    assert_eq!(json["refusals"][1]["step"], "read the file, then retry");
    let status = a.sh("cat .unclobber/status").stdout;
    for part in [
        "you: owner a\n",
        "mode: enforce\n",
        "refusals: 2 (see .unclobber/refusals)\n",
    ] {
        assert!(status.contains(part), "{status}");
    }
    // Programs that look at sizes first find what is there all the same.
    let read = "wc -l <.unclobber/refusals; grep -c refused: .unclobber/refusals; tail -n 1 .unclobber/refusals | wc -l; head -n 1 .unclobber/owner";
    assert_eq!(a.sh(read).stdout, "2\n2\n1\na\n");
    // A loop that tries again and again is one line.
    fine(&a.sh("for i in $(seq 50); do (echo again >f) 2>/dev/null; done; true"));
    let lines = a.sh("cat .unclobber/refusals").stdout;
    assert_eq!(lines.lines().count(), 2, "{lines}");
    assert!(
        lines
            .lines()
            .next()
            .is_some_and(|line| line.contains("Z (51 times) refused: open f")),
        "{lines}"
    );
    // Also between others.
    tree.write("h", "old\n");
    fine(&a.sh("for i in 1 2 3; do (echo x >h; echo again >f) 2>/dev/null; done; true"));
    let lines = a.sh("cat .unclobber/refusals").stdout;
    assert_eq!(lines.matches("refused: open f").count(), 1, "{lines}");
    // The step that they name works, and then they say so.
    assert!(!lines.contains("cleared since"), "{lines}");
    fine(&a.sh("cat f && echo mine >f"));
    let lines = a.sh("cat .unclobber/refusals").stdout;
    let line = lines.lines().find(|line| line.contains("refused: open f"));
    assert!(line.is_some_and(|line| line.ends_with(" - cleared since")), "{lines}");
}

// semantics: W6
#[test]
fn it_is_in_no_listing_and_on_no_disk() {
    let Some((tree, mut a)) = guarded("virtual: listings") else {
        return;
    };
    fine(&a.sh("cat .unclobber/status >/dev/null"));
    assert_eq!(
        a.sh("ls -A; find . -mindepth 1; echo *; echo .[!.]*").stdout,
        "f\n./f\nf\n.[!.]*\n"
    );
    assert_eq!(
        a.sh("ls -a .unclobber").stdout,
        ".\n..\nowner\nrefusals\nrefusals.json\nstatus\n"
    );
    assert!(!tree.at(".unclobber").exists());
    let scratch = tree.scratch();
    fine(&a.sh(&format!("tar cf '{}/t' . && tar tf '{0}/t'", scratch.display())));
    fine(&a.sh(&format!("cp -a . '{}/copy'", scratch.display())));
    assert!(!scratch.join("copy/.unclobber").exists());
    if tool_is_there("git") {
        let status = a.sh("git init -q . && git status --porcelain --ignored");
        assert_eq!(status.stdout, "?? f\n", "{status:?}");
    }
    fine(&a.sh("cat f; rm -rf ./* .git"));
    assert_eq!(
        a.sh("cat .unclobber/owner").stdout,
        "a\n",
        "and nothing has taken it away"
    );
}

// semantics: W6
#[test]
fn it_can_only_be_read() {
    let Some((tree, mut a)) = guarded("virtual: read-only") else {
        return;
    };
    const READ_ONLY: &str = "Read-only file system";
    for attempt in [
        "echo x >.unclobber/owner",
        "echo x >>.unclobber/owner",
        "echo x >.unclobber/new",
        "rm -f .unclobber/owner",
        "rmdir .unclobber",
        "mv f .unclobber/f",
        "mv .unclobber elsewhere",
        "mv .unclobber/owner stolen",
        "chmod 777 .unclobber",
        "touch .unclobber/owner",
        "ln f .unclobber/f",
        "mkdir .unclobber/d",
    ] {
        says(&a.sh(attempt), READ_ONLY);
    }
    says(&a.sh("mkdir .unclobber"), "File exists");
    says(&a.sh("echo x >.unclobber"), "Is a directory");
    says(&a.sh("cat .unclobber/nothing"), "No such file");
    assert_eq!(
        a.sh("head -c 1 .unclobber/owner; stat -c %s .unclobber/owner").stdout,
        "a0\n"
    );
    // Copied out of it, it is a file like any other.
    fine(&a.sh("cp .unclobber/owner copy && cat copy && mv copy moved"));
    assert_eq!(tree.read("moved").as_deref(), Some("a\n"));
    assert_eq!(
        a.sh("cat .unclobber/refusals").stdout,
        "",
        "none of this was a matter of refusals"
    );
}

// semantics: W6
#[test]
fn a_name_of_the_tree_comes_first() {
    if !require_fuse("virtual: a name that is taken") {
        return;
    }
    let tree = Tree::new();
    tree.write(".unclobber", "the user's own\n");
    let mut a = Session::guarded(&tree, "a", &[]);
    assert_eq!(a.sh("cat .unclobber; ls -A").stdout, "the user's own\n.unclobber\n");
    assert_eq!(a.sh("cat .unclobber-guard/owner").stdout, "a\n");
    let status = a.sh("cat .unclobber-guard/status").stdout;
    assert!(
        status.contains("these files are in .unclobber-guard, since .unclobber"),
        "{status}"
    );
    fine(&a.sh("echo mine >.unclobber && rm .unclobber"));
    assert_eq!(
        a.sh("cat .unclobber/owner").stdout,
        "a\n",
        "it is back where people look for it"
    );
    says(&a.sh("cat .unclobber-guard/owner"), "No such file");
}

// semantics: W6
#[test]
fn a_name_that_the_tree_gets_later_comes_first_too() {
    let Some((tree, mut a)) = guarded("virtual: a name that is taken later") else {
        return;
    };
    assert_eq!(a.sh("cat .unclobber/owner").stdout, "a\n");
    fs::create_dir(tree.at(".unclobber")).expect("an outsider's directory");
    tree.write(".unclobber/owner", "the user's own\n");
    assert_eq!(
        a.sh("cat .unclobber/owner; ls -A").stdout,
        "the user's own\n.unclobber\nf\n"
    );
    assert_eq!(a.sh("cat .unclobber-guard/owner").stdout, "a\n");
    // Nothing of the guard's goes into it: what cannot be kept is not removed unread.
    says(&a.sh("rm f"), "Device or resource busy");
    fine(&a.sh("cat f && rm f"));
    assert_eq!(fs::read_dir(tree.at(".unclobber")).expect("the directory").count(), 1);
}

fn state(session: &mut Session, path: &str) -> Done {
    session.sh(&format!(
        "python3 -c 'import os,sys; print(os.getxattr(sys.argv[1], \"user.unclobber.state\").decode())' {path}"
    ))
}

// semantics: W7
#[test]
fn every_file_says_where_its_caller_stands() {
    let Some((tree, mut a)) = guarded("virtual: the attribute") else {
        return;
    };
    if !tool_is_there("python3") {
        return;
    }
    let starts = |done: &Done, text: &str| assert!(done.stdout.starts_with(text), "expected {text:?}: {done:?}");
    starts(
        &state(&mut a, "f"),
        "unseen: \"a\" has not read it; read the file, then retry",
    );
    says(&a.sh("echo mine >f"), "File exists");
    fine(&a.sh("cat f"));
    starts(&state(&mut a, "f"), "current: it may be changed");
    tree.write("f", "by an outsider\n");
    starts(&state(&mut a, "f"), "stale: changed outside the mount");
    fine(&a.sh("cat f && mkdir .git && echo x >.git/x"));
    starts(&state(&mut a, ".git/x"), "off: not guarded");
    assert_ne!(state(&mut a, ".").code, 0, "a directory has none");
    // It is in no list, and cannot be set or taken away.
    assert_eq!(
        a.sh("python3 -c 'import os; print(os.listxattr(\"f\"))'").stdout,
        "[]\n"
    );
    for attempt in [
        "setxattr(\"f\", \"user.unclobber.state\", b\"x\")",
        "removexattr(\"f\", \"user.unclobber.state\")",
    ] {
        says(
            &a.sh(&format!("python3 -c 'import os; os.{attempt}'")),
            "Operation not permitted",
        );
    }
    fine(&a.sh(&format!("cp -a f '{}/copy'", tree.scratch().display())));
    let copy = fs::File::open(tree.scratch().join("copy")).expect("the copy");
    assert!(sys::get_xattr(&copy, OsStr::new("user.unclobber.state"), 64).is_err());
}
