//! Chains of steps between owners and outsiders: a refusal, the step it names, and what works after it.

#[expect(dead_code, reason = "each test program uses its own part of the harness")]
mod common;

use std::fs;
use std::os::unix::fs::symlink;

use common::session::{Session, fine, names, refused};
use common::tree::{Tree, require_fuse};
use common::wait::{PATIENCE, wait_until};
use common::{NOT_OBSERVED, STALE};

const STALE_TEXT: &str = "Stale file handle";
const EXISTS_TEXT: &str = "File exists";

/// Waits until an outsider sees this content: what a guarded program wrote is published at its last close at the latest.
fn becomes(tree: &Tree, name: &str, content: &str) {
    let seen = wait_until(PATIENCE, || tree.read(name).as_deref() == Some(content));
    assert!(seen, "{name} is {:?}, expected {content:?}", tree.read(name));
}

/// A tree with one file that was there before the guard, and a shell of owner A.
fn one_owner(test: &str, content: &str) -> Option<(Tree, Session)> {
    if !require_fuse(test) {
        return None;
    }
    let tree = Tree::new();
    tree.write("f", content);
    let a = Session::guarded(&tree, "a", &[]);
    Some((tree, a))
}

fn two_owners(test: &str, content: &str) -> Option<(Tree, Session, Session)> {
    let (tree, a) = one_owner(test, content)?;
    let b = Session::guarded(&tree, "b", &[]);
    Some((tree, a, b))
}

/// All that an owner was told, at the end: nothing.
fn told_nothing(session: Session) {
    let mut said = session.close();
    said.retain(|line| !line.contains(" unread file"));
    assert!(said.is_empty(), "refused what must pass: {said:?}");
}

// --- The recovery chain -------------------------------------------------------------------------------------------

// semantics: D9 E2 O1 V4
#[test]
fn after_a_deletion_the_next_create_needs_a_look() {
    let Some((tree, mut a)) = one_owner("recovery chain", "v1\n") else {
        return;
    };
    fine(&a.sh("cat f"));
    tree.remove("f");
    refused(&a.sh("echo mine >f"), STALE_TEXT);
    assert!(a.told("f", STALE), "no line for the refusal: {:?}", a.said());
    let looked = a.sh("cat f");
    refused(&looked, "No such file or directory");
    fine(&a.sh("echo mine >f"));
    becomes(&tree, "f", "mine\n");
}

// semantics: D9 O1
#[test]
fn after_a_deletion_a_stat_is_a_look() {
    let Some((tree, mut a)) = one_owner("stat after a deletion", "v1\n") else {
        return;
    };
    fine(&a.sh("cat f"));
    tree.remove("f");
    refused(&a.sh("echo mine >f"), STALE_TEXT);
    fine(&a.sh("test ! -e f"));
    fine(&a.sh("echo mine >f"));
    becomes(&tree, "f", "mine\n");
}

// semantics: D3
#[test]
fn a_file_rotated_away_can_be_appended_to() {
    let Some((tree, mut a)) = one_owner("log rotation", "v1\n") else {
        return;
    };
    fine(&a.sh("cat f"));
    fs::rename(tree.at("f"), tree.at("f.1")).expect("an outsider's rename");
    fine(&a.sh("echo more >>f"));
    becomes(&tree, "f", "more\n");
    told_nothing(a);
}

// semantics: E10 P5
#[test]
fn one_refusal_is_one_line() {
    let Some((tree, mut a)) = one_owner("one line a refusal", "v1\n") else {
        return;
    };
    fine(&a.sh("cat f"));
    tree.write("f", "v2\n");
    refused(&a.sh("echo mine >f"), STALE_TEXT);
    let said = a.close();
    let lines = said.iter().filter(|line| line.contains(STALE)).count();
    assert_eq!(lines, 1, "the kernel's own repeat was reported too: {said:?}");
    assert_eq!(tree.read("f").as_deref(), Some("v2\n"));
}

// semantics: E8 E9 V7
#[test]
fn a_refusal_line_says_what_why_and_the_next_step() {
    let Some((tree, mut a, mut b)) = two_owners("the refusal's line", "v1\n") else {
        return;
    };
    fine(&a.sh("cat f"));
    fine(&b.sh("cat f; echo theirs >f"));
    refused(&a.sh("echo mine >f"), STALE_TEXT);
    assert!(a.told("f", STALE), "{:?}", a.said());
    let line = a
        .said()
        .into_iter()
        .find(|line| line.contains(STALE))
        .expect("the line");
    assert!(line.contains('b'), "the line does not name who changed it: {line}");
    assert!(line.contains("read"), "the line does not name the next step: {line}");
    assert_eq!(tree.read("f").as_deref(), Some("theirs\n"));
}

// --- Nothing there, or nothing regular ------------------------------------------------------------------------------

// semantics: D2 D16 E3
#[test]
fn editing_what_is_not_there_says_not_found() {
    let Some((tree, mut a)) = one_owner("not found", "v1\n") else {
        return;
    };
    fine(&a.sh("test ! -e g"));
    for command in [
        "dd if=f of=g conv=notrunc,nocreat",
        "python3 -c 'import os; os.truncate(\"g\", 3)'",
        "python3 -c 'open(\"g\", \"r+\")'",
        "sed -i s/a/b/ g",
        "rm g",
        "mv g h",
    ] {
        refused(&a.sh(command), "No such file or directory");
    }
    assert_eq!(tree.read("g"), None);
}

// semantics: D9
#[test]
fn editing_what_went_away_says_not_found_or_stale() {
    let Some((tree, mut a)) = one_owner("edit of what went away", "v1\n") else {
        return;
    };
    fine(&a.sh("cat f"));
    tree.remove("f");
    let done = a.sh("python3 -c 'import os; os.truncate(\"f\", 0)'");
    assert!(
        done.code != 0 && (done.stderr.contains("No such file") || done.stderr.contains(STALE_TEXT)),
        "{done:?}"
    );
    assert_eq!(tree.read("f"), None, "a refused edit has created the file");
}

// semantics: D1 D15 S1
#[test]
fn another_who_wins_the_creation_is_kept() {
    let Some((tree, mut a, mut b)) = two_owners("another's creation", "v1\n") else {
        return;
    };
    fine(&a.sh("test ! -e g"));
    fine(&b.sh("echo theirs >g"));
    refused(&a.sh("echo mine >g"), EXISTS_TEXT);
    assert!(a.told("g", NOT_OBSERVED), "{:?}", a.said());
    becomes(&tree, "g", "theirs\n");
    fine(&a.sh("cat g"));
    fine(&a.sh("echo mine >g"));
    becomes(&tree, "g", "mine\n");
    drop(b);
}

// semantics: D1 S1 V6
#[test]
fn an_outsider_who_wins_the_creation_is_kept() {
    let Some((tree, mut a)) = one_owner("an outsider's creation", "v1\n") else {
        return;
    };
    fine(&a.sh("test ! -e g"));
    tree.write("g", "theirs\n");
    refused(&a.sh("echo mine >g"), EXISTS_TEXT);
    assert!(a.told("g", NOT_OBSERVED), "{:?}", a.said());
    assert_eq!(tree.read("g").as_deref(), Some("theirs\n"));
}

// semantics: D1 V3 V6
#[test]
fn another_who_wins_the_recreation_is_kept() {
    let Some((tree, mut a)) = one_owner("re-creation", "v1\n") else {
        return;
    };
    fine(&a.sh("cat f"));
    tree.remove("f");
    fine(&a.sh("! cat f"));
    tree.write("f", "theirs\n");
    refused(&a.sh("echo mine >f"), EXISTS_TEXT);
    assert!(a.told("f", NOT_OBSERVED), "{:?}", a.said());
    assert_eq!(tree.read("f").as_deref(), Some("theirs\n"));
    fine(&a.sh("cat f; echo mine >f"));
    becomes(&tree, "f", "mine\n");
}

// semantics: D10 D11 E4
#[test]
fn what_is_no_regular_file_is_never_to_be_read_first() {
    let Some((tree, mut a)) = one_owner("no regular file", "v1\n") else {
        return;
    };
    fine(&a.sh("test ! -e d; test ! -e p; test ! -e l; echo mine >t"));
    fs::create_dir(tree.at("d")).expect("an outsider's directory");
    nix::unistd::mkfifo(&tree.at("p"), nix::sys::stat::Mode::S_IRWXU).expect("an outsider's fifo");
    symlink("nowhere", tree.at("l")).expect("an outsider's dangling symlink");
    refused(&a.sh("echo mine >d"), "Is a directory");
    refused(&a.sh("python3 -c 'open(\"p\", \"x\")'"), EXISTS_TEXT);
    refused(&a.sh("python3 -c 'open(\"l\", \"x\")'"), EXISTS_TEXT);
    refused(
        &a.sh("python3 -c 'import os; os.rename(\"t\", \"d\")'"),
        "Is a directory",
    );
    fine(&a.sh("test -d d && test -p p && test -L l && cat t"));
    let said = a.close();
    let advised = said
        .iter()
        .filter(|line| line.contains(NOT_OBSERVED) || line.contains(STALE))
        .count();
    assert_eq!(advised, 0, "told to read what cannot be read: {said:?}");
}

// --- Views of processes ---------------------------------------------------------------------------------------------

/// A process that holds what it read in a variable, does what it is told line by line, and says how each step ended.
const EDITOR: &str = r#"
import os, subprocess, sys
buffer = open("f").read()
for step in os.environ["STEPS"].split(";"):
    try:
        if step == "save":
            with open("f", "w") as f: f.write(buffer.upper())
        elif step == "rename":
            with open("f.tmp", "w") as f: f.write(buffer.upper())
            os.rename("f.tmp", "f")
        elif step == "edit":
            fd = os.open("f", os.O_WRONLY); os.write(fd, b"X"); os.close(fd)
        elif step == "remove":
            os.remove("f")
        elif step == "reload":
            buffer = open("f").read()
        elif step == "wait":
            print("waiting", file=open(os.environ["TO"], "w"), flush=True)
            open(os.environ["FROM"]).read()
        else:
            subprocess.run(step, shell=True, check=True, stdout=subprocess.DEVNULL)
        print(step, "done")
    except OSError as error:
        print(step, error.errno)
"#;

/// Runs the editor in the session of A; while it waits, `meanwhile` happens.
fn edit(tree: &Tree, a: &mut Session, steps: &str, meanwhile: impl FnOnce()) -> String {
    let (to, from) = (tree.scratch().join("to"), tree.scratch().join("from"));
    for pipe in [&to, &from] {
        nix::unistd::mkfifo(pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe to the editor");
    }
    let program = tree.scratch().join("editor.py");
    fs::write(&program, EDITOR).expect("the editor");
    let out = tree.scratch().join("editor.out");
    fine(&a.sh(&format!(
        "STEPS='{steps}' TO='{}' FROM='{}' python3 '{}' >'{}' 2>&1 & EDITOR=$!",
        to.display(),
        from.display(),
        program.display(),
        out.display()
    )));
    // Opening and reading the pipe waits for the editor; opening and closing the other lets it go on.
    let waiting = fs::read_to_string(&to).expect("the editor's word");
    assert_eq!(waiting, "waiting\n");
    meanwhile();
    drop(
        fs::OpenOptions::new()
            .write(true)
            .open(&from)
            .expect("the editor's pipe"),
    );
    fine(&a.sh("wait $EDITOR"));
    for pipe in [&to, &from] {
        fs::remove_file(pipe).expect("removing a pipe");
    }
    fs::read_to_string(&out).expect("what the editor printed")
}

// semantics: P1 P2
#[test]
fn a_childs_read_does_not_freshen_an_editors_old_buffer() {
    let Some((tree, mut a, mut b)) = two_owners("stale buffer", "v1\n") else {
        return;
    };
    for way in ["save", "rename", "edit", "remove"] {
        let printed = edit(&tree, &mut a, &format!("wait;grep -c . f;{way}"), || {
            fine(&b.sh(&format!("cat f; echo theirs, {way} >f")));
        });
        assert_eq!(printed, format!("wait done\ngrep -c . f done\n{way} 116\n"));
        assert_eq!(tree.read("f"), Some(format!("theirs, {way}\n")), "{way} went through");
    }
    assert!(a.told("f", STALE), "{:?}", a.said());
}

// semantics: P5 E7
#[test]
fn the_advised_step_works_from_the_refused_process() {
    let Some((tree, mut a, mut b)) = two_owners("retry by the refused process", "v1\n") else {
        return;
    };
    let printed = edit(&tree, &mut a, "wait;grep -c . f;save;cat f;save", || {
        fine(&b.sh("cat f; echo theirs >f"))
    });
    assert_eq!(
        printed,
        "wait done\ngrep -c . f done\nsave 116\ncat f done\nsave done\n"
    );
    becomes(&tree, "f", "V1\n");
}

// semantics: P1 N3
#[test]
fn an_editor_that_reloads_may_save() {
    let Some((tree, mut a, mut b)) = two_owners("reload, then save", "v1\n") else {
        return;
    };
    let printed = edit(&tree, &mut a, "wait;reload;save", || {
        fine(&b.sh("cat f; echo theirs >f"))
    });
    assert_eq!(printed, "wait done\nreload done\nsave done\n");
    becomes(&tree, "f", "THEIRS\n");
    told_nothing(a);
}

// semantics: P4
#[test]
fn changes_by_the_same_owner_never_make_a_process_old() {
    let Some((tree, mut a)) = one_owner("same owner", "v1\n") else {
        return;
    };
    let printed = edit(&tree, &mut a, "wait;sed -i s/v1/v2/ f;save", || {});
    assert_eq!(printed, "wait done\nsed -i s/v1/v2/ f done\nsave done\n");
    becomes(&tree, "f", "V1\n");
    told_nothing(a);
}

// semantics: P2
#[test]
fn an_old_buffer_is_caught_with_an_outsider_too() {
    let Some((tree, mut a)) = one_owner("stale buffer, outsider", "v1\n") else {
        return;
    };
    let printed = edit(&tree, &mut a, "wait;cat f;save", || tree.write("f", "theirs\n"));
    assert_eq!(printed, "wait done\ncat f done\nsave 116\n");
    assert_eq!(tree.read("f").as_deref(), Some("theirs\n"));
}

// semantics: P6
#[test]
fn with_the_owners_view_a_childs_read_counts() {
    if !require_fuse("--view owner") {
        return;
    }
    let tree = Tree::new();
    tree.write("f", "v1\n");
    let mut a = Session::guarded(&tree, "a", &["--view", "owner"]);
    let printed = edit(&tree, &mut a, "wait;cat f;save", || tree.write("f", "theirs\n"));
    assert_eq!(printed, "wait done\ncat f done\nsave done\n");
    told_nothing(a);
}

// semantics: O4 O5 P3 P4
#[test]
fn a_shells_ordinary_work_passes() {
    let Some((tree, mut a)) = one_owner("a shell's ordinary work", "v1\n") else {
        return;
    };
    fine(&a.sh("printf 'a\\n' >g; sed -i s/a/b/ g; printf 'c\\n' >g; cat g >/dev/null; printf 'd\\n' >g"));
    becomes(&tree, "g", "d\n");
    fine(&a.sh("rm -f g; printf 'e\\n' >g; mv g h; printf 'f\\n' >g; mv -f g h; printf 'g\\n' >h"));
    becomes(&tree, "h", "g\n");
    fine(&a.sh("read line <h; printf 'x\\n' >h; sed -i s/x/y/ h; read line <h; printf '%s\\n' $line >h"));
    becomes(&tree, "h", "y\n");
    fine(&a.sh("for i in 1 2 3; do cat h >h.new; echo $i >>h.new; mv h.new h; done; wc -l <h"));
    becomes(&tree, "h", "y\n1\n2\n3\n");
    told_nothing(a);
}

// semantics: P4 L3
#[test]
fn a_configure_script_passes() {
    let Some((tree, mut a)) = one_owner("a configure script", "v1\n") else {
        return;
    };
    let script = "rm -f conftest*\n\
                  for i in 1 2 3 4 5 6 7 8; do\n\
                  cat >conftest.c <<EOF\nint main(void) { return $i - $i; }\nEOF\n\
                  rm -f conftest.o conftest\n\
                  gcc -c conftest.c >conftest.err 2>&1 && mv -f conftest.o conftest.out && cat conftest.err\n\
                  sed s/main/main/ conftest.c >conftest.tmp && mv conftest.tmp conftest.c\n\
                  rm -f core conftest.err conftest.out conftest.c\n\
                  echo \"checked $i\" >>config.log\n\
                  done\n\
                  cat >config.status <<EOF\n#!/bin/sh\nsed s/@V@/1/ config.in >config.h\nEOF\n\
                  chmod +x config.status; echo '#define V @V@' >config.in; ./config.status; ./config.status\n\
                  rm -f conftest*; cat config.h";
    let done = a.sh(script);
    fine(&done);
    assert_eq!(done.stdout, "#define V 1\n");
    becomes(&tree, "config.h", "#define V 1\n");
    told_nothing(a);
}

// --- Several owners, one file ---------------------------------------------------------------------------------------

/// Reads, adds one and writes, by one process.
const COUNT: &str = "python3 -c '
n = int(open(\"count\").read())
h = open(\"count\", \"w\"); h.write(str(n + 1)); h.close()'";

// semantics: O3 G5
#[test]
fn two_owners_in_turn_lose_no_update() {
    let Some((tree, mut a, mut b)) = two_owners("in turn", "v1\n") else {
        return;
    };
    tree.write("count", "0");
    for _ in 0..10 {
        fine(&a.sh(COUNT));
        fine(&b.sh(COUNT));
    }
    becomes(&tree, "count", "20");
    told_nothing(a);
    told_nothing(b);
}

// semantics: D8 S6
#[test]
fn of_two_who_read_the_same_the_second_is_told() {
    let Some((tree, mut a, mut b)) = two_owners("read by both", "v1\n") else {
        return;
    };
    for round in 0..10 {
        fine(&a.sh("cat f"));
        fine(&b.sh("cat f"));
        let (first, second) = if round % 2 == 0 {
            (&mut a, &mut b)
        } else {
            (&mut b, &mut a)
        };
        fine(&first.sh(&format!("echo first {round} >f")));
        refused(&second.sh(&format!("echo second {round} >f")), STALE_TEXT);
        assert!(second.told("f", STALE), "{:?}", second.said());
        becomes(&tree, "f", &format!("first {round}\n"));
        fine(&second.sh(&format!("cat f; echo second {round} >f")));
        becomes(&tree, "f", &format!("second {round}\n"));
    }
}

/// Adds its own lines to a file by reading and rewriting the whole, again whenever it is refused.
const ADD: &str = "python3 -c '
import os, sys
name, refused = sys.argv[1], 0
for i in range(8):
    while True:
        text = open(\"list\").read()
        try:
            h = os.open(\"list\", os.O_WRONLY)
            data = (text + \"%s %d\\n\" % (name, i)).encode()
            try: os.write(h, data)
            finally: os.close(h)
            break
        except OSError: refused += 1
print(refused)' ";

// semantics: D17 S6
#[test]
fn owners_who_append_by_rewriting_lose_no_line() {
    if !require_fuse("append by rewriting") {
        return;
    }
    let tree = Tree::new();
    tree.write("list", "");
    let names = ["a", "b", "c", "d"];
    let mut sessions: Vec<Session> = names.iter().map(|name| Session::guarded(&tree, name, &[])).collect();
    for (session, name) in sessions.iter_mut().zip(names) {
        fine(&session.sh(&format!(
            "{ADD} {name} >'{}' 2>&1 & WORKER=$!",
            tree.scratch().join(name).display()
        )));
    }
    for session in &mut sessions {
        fine(&session.sh("wait $WORKER"));
    }
    let list = tree.read("list").expect("the list");
    let refusals: usize = names
        .iter()
        .map(|name| fs::read_to_string(tree.scratch().join(name)).unwrap_or_default())
        .map(|text| text.trim().parse::<usize>().expect("a worker's count of refusals"))
        .sum();
    for name in names {
        for i in 0..8 {
            assert!(
                list.lines().any(|line| line == format!("{name} {i}")),
                "{name} {i} is lost ({refusals} refusals):\n{list}"
            );
        }
    }
    assert_eq!(list.lines().count(), 32, "{list}");
}

// semantics: D18 E11
#[test]
fn a_refused_program_leaves_the_old_file_whole() {
    let Some((tree, mut a, mut b)) = two_owners("the old file is whole", "v1\n") else {
        return;
    };
    fine(&a.sh("cat f"));
    fine(&b.sh("cat f; echo theirs >f"));
    for command in [
        "echo mine >f",
        "cp /etc/passwd f",
        "tee f </etc/passwd",
        "truncate -s 0 f",
        "rm -f f",
        "mv f g",
        "dd if=/etc/passwd of=f",
    ] {
        let done = a.sh(command);
        assert!(!done.ok(), "{command}: {done:?}");
        assert_eq!(tree.read("f").as_deref(), Some("theirs\n"), "{command}");
    }
    assert_eq!(b.sh("cat f").stdout, "theirs\n");
}

// semantics: N2
#[test]
fn a_handle_granted_stays_granted() {
    let Some((tree, mut a, mut b)) = two_owners("a granted handle", "v1\n") else {
        return;
    };
    fine(&a.sh("cat f; exec 5<>f; echo one >&5"));
    fine(&b.sh("cat f"));
    fine(&a.sh("echo two >&5; exec 5>&-"));
    becomes(&tree, "f", "one\ntwo\n");
    refused(&b.sh("echo theirs >f"), STALE_TEXT);
}

// semantics: G1 G3 O12
#[test]
fn observations_of_one_owner_end_with_nothing_but_the_guard() {
    let Some((tree, mut a)) = one_owner("a second run of the same owner", "v1\n") else {
        return;
    };
    fine(&a.sh("cat f"));
    let mut again = Session::guarded(&tree, "a", &[]);
    fine(&again.sh("echo mine >f"));
    becomes(&tree, "f", "mine\n");
    let mut other = Session::guarded(&tree, "c", &[]);
    refused(&other.sh("echo theirs >f"), EXISTS_TEXT);
    assert!(names(&other.close(), "f", NOT_OBSERVED));
}

// semantics: G5 O12
#[test]
fn the_first_of_two_runs_may_end_before_the_second() {
    let Some((tree, mut a, mut b)) = two_owners("the first ends first", "v1\n") else {
        return;
    };
    fine(&a.sh("cat f; echo mine >f"));
    fine(&b.sh("cat f"));
    told_nothing(a);
    fine(&b.sh("echo theirs >f"));
    becomes(&tree, "f", "theirs\n");
    let mut c = Session::guarded(&tree, "c", &[]);
    refused(&c.sh("echo mine >f"), EXISTS_TEXT);
    told_nothing(b);
}

// semantics: G2 G6
#[test]
fn a_nested_run_is_another_owner() {
    let Some((tree, mut a)) = one_owner("a nested run", "v1\n") else {
        return;
    };
    fine(&a.sh("cat f"));
    let program = common::tree::program();
    let done = a.sh(&format!(
        "'{}' run --owner inner -- sh -c 'echo mine >f'",
        program.display()
    ));
    refused(&done, EXISTS_TEXT);
    assert_eq!(tree.read("f").as_deref(), Some("v1\n"));
    fine(&a.sh(&format!(
        "'{}' run --owner inner -- sh -c 'cat f; echo mine >f'",
        program.display()
    )));
    becomes(&tree, "f", "mine\n");
    refused(&a.sh("echo a >f"), STALE_TEXT);
}
