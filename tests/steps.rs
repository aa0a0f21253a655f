//! For every code, and every step that is named: somebody is refused, does what the refusal says and nothing else, and the
//! same change is made. The forms of ordinary programs, each in every situation, are in `tests/forms`.

#[expect(dead_code, reason = "each test program uses its own part of the harness")]
mod common;

use common::session::{Session, fine};
use common::tree::{Tree, require_fuse, tool_is_there};
use common::wait::{PATIENCE, wait_until};

const READ: &str = "read the file, then retry";
const READ_AGAIN: &str = "read the file again, then retry";
const LOOK: &str =
    "look at the path again (`ls PATH` itself, not its directory) to see that it is gone, then create it";
const CREATE: &str = "create it instead of editing it";
const WAIT: &str = "wait until the writer has closed it, read the file again, then retry";

struct Case {
    /// What happens before; `theirs` by another owner, the rest by whoever is refused.
    mine: &'static str,
    theirs: &'static str,
    /// The change.
    change: &'static str,
    code: &'static str,
    told: &'static str,
    /// What the refused does about it.
    step: &'static str,
}

const EDIT: &str = "printf x | dd of=N bs=1 conv=notrunc,nocreat status=none";

const CASES: [Case; 15] = [
    case("", "", "echo x >N", "FS_NOT_OBSERVED", READ, "cat N"),
    case("", "", EDIT, "FS_NOT_OBSERVED", READ, "cat N"),
    case("echo x >t", "", "mv -f t N", "FS_NOT_OBSERVED", READ, "cat N"),
    case("", "cat N; echo b >N", "rm N", "FS_NOT_OBSERVED", READ, "cat N"),
    case("", "cat N; echo b >N", "mv N away", "FS_NOT_OBSERVED", READ, "cat N"),
    // Refused as a write: the file must not go either before it is read.
    case("! echo x >N", "", "rm N", "FS_NOT_OBSERVED", READ, "cat N"),
    case(
        "cat N",
        "cat N; echo b >N",
        "echo x >N",
        "FS_STALE_VERSION",
        READ_AGAIN,
        "cat N",
    ),
    case(
        "cat N",
        "cat N; echo b >N",
        EDIT,
        "FS_STALE_VERSION",
        READ_AGAIN,
        "cat N",
    ),
    case(
        "cat N",
        "cat N; echo b >N",
        "truncate -s 0 N",
        "FS_STALE_VERSION",
        READ_AGAIN,
        "cat N",
    ),
    case(
        "cat N",
        "cat N; echo b >N",
        "rm N",
        "FS_STALE_VERSION",
        READ_AGAIN,
        "cat N",
    ),
    case(
        "cat N; echo x >t",
        "cat N; echo b >N",
        "mv -f t N",
        "FS_STALE_VERSION",
        READ_AGAIN,
        "cat N",
    ),
    // Made by a name of the moment, and refused by the one that is meant.
    case("", "echo s >Ns", "ln -f Ns N", "FS_NOT_OBSERVED", READ, "cat N"),
    case(
        "cat N",
        "cat N; echo b >N; echo s >Ns",
        "ln -f Ns N",
        "FS_STALE_VERSION",
        READ_AGAIN,
        "cat N",
    ),
    // Of what is gone, a look says so: reading it, or listing it.
    case("cat N", "rm N", "echo x >N", "FS_STALE_VERSION", LOOK, "! cat N"),
    case("cat N; echo x >t", "rm N", "mv t N", "FS_STALE_VERSION", LOOK, "! ls N"),
];

const fn case(
    mine: &'static str,
    theirs: &'static str,
    change: &'static str,
    code: &'static str,
    told: &'static str,
    step: &'static str,
) -> Case {
    Case {
        mine,
        theirs,
        change,
        code,
        told,
        step,
    }
}

// semantics: E2 O1
#[test]
fn of_what_is_gone_a_listing_of_its_directory_is_no_look() {
    if !require_fuse("a listing") {
        return;
    }
    let tree = Tree::new();
    tree.write("d/f", "old\n");
    let mut a = Session::guarded(&tree, "a", &[]);
    fine(&a.sh("cat d/f"));
    tree.remove("d/f");
    let told = |a: &mut Session, heard: usize| a.said()[heard..].iter().any(|line| line.ends_with(LOOK));
    assert!(!a.sh("echo x >d/f").ok());
    assert!(wait_until(PATIENCE, || told(&mut a, 0)), "{:?}", a.said());
    fine(&a.sh("ls -la d; ls d"));
    assert!(!a.sh("echo x >d/f").ok(), "a listing has cleared it");
    fine(&a.sh("! ls d/f"));
    fine(&a.sh("echo x >d/f"));
}

// semantics: E1 E2 E7 D20
#[test]
fn whoever_does_what_the_refusal_says_is_not_refused_again() {
    if !require_fuse("every step") {
        return;
    }
    let tree = Tree::new();
    for number in 0..CASES.len() {
        tree.write(&format!("n{number}"), "old\n");
    }
    let (mut a, mut b) = (Session::guarded(&tree, "a", &[]), Session::guarded(&tree, "b", &[]));
    for (case, number) in CASES.iter().zip(0..) {
        let name = format!("n{number}");
        let of = |text: &str| {
            let text = text.replace('N', &name);
            if text.is_empty() { ":".to_owned() } else { text }
        };
        fine(&a.sh(&of(case.mine)));
        fine(&b.sh(&of(case.theirs)));
        let change = of(case.change);
        let context = format!("{}; {}; {change}", of(case.mine), of(case.theirs));
        let heard = a.said().len();
        let before = tree.read(&name);
        let refused = a.sh(&change);
        assert_ne!(refused.code, 0, "{context}");
        assert_eq!(
            tree.read(&name),
            before,
            "{context}: a refused change has changed something"
        );
        let told = |line: &String| {
            line.contains(case.code) && line.ends_with(case.told) && line.contains(&format!(" {name}: "))
        };
        let said = wait_until(PATIENCE, || a.said()[heard..].iter().any(told));
        assert!(said, "{context}: {:?}", &a.said()[heard..]);
        fine(&a.sh(&of(case.step)));
        fine(&a.sh(&change));
    }
}

// semantics: E2 E7 D21
#[test]
fn whoever_waits_and_reads_is_not_refused_again() {
    if !require_fuse("the step of waiting") {
        return;
    }
    let tree = Tree::new();
    tree.write("f", "old\n");
    let (mut a, mut b) = (Session::guarded(&tree, "a", &[]), Session::guarded(&tree, "b", &[]));
    fine(&a.sh("cat f"));
    fine(&b.sh("cat f; exec 3>f; echo b >&3"));
    assert_ne!(a.sh("echo x >f").code, 0);
    let told = wait_until(PATIENCE, || a.said().iter().any(|line| line.ends_with(WAIT)));
    assert!(told, "{:?}", a.said());
    fine(&b.sh("exec 3>&-"));
    fine(&a.sh("cat f"));
    fine(&a.sh("echo x >f"));
}

// semantics: E12 L13
#[test]
fn the_rules_are_changed_outside_or_where_the_mount_lets_them() {
    if !require_fuse("the step of changing rules") {
        return;
    }
    let tree = Tree::new();
    tree.write("f", "old\n");
    let change = "printf '[[rule]]\\npattern = \"f\"\\nlevel = \"keep\"\\n' >.unclobber.toml";
    let mut a = Session::guarded(&tree, "a", &[]);
    assert!(!a.sh(change).ok());
    let told = |line: &String| {
        line.contains("FS_RULES_FIXED")
            && line.ends_with("change .unclobber.toml outside the mount, or use --rules-writable")
    };
    assert!(wait_until(PATIENCE, || a.said().iter().any(told)), "{:?}", a.said());
    // The second way, then the first.
    let mut b = Session::guarded(&tree, "b", &["--rules-writable"]);
    fine(&b.sh(change));
    fine(&Session::plain(&tree, "outside").sh(change));
    assert!(
        wait_until(PATIENCE, || a.sh("echo mine >f").ok()),
        "the rule does not hold"
    );
}

// semantics: D22 E7
#[test]
fn what_was_written_too_late_is_fetched_and_written_anew() {
    if !require_fuse("the step of a late writer") {
        return;
    }
    let tree = Tree::new();
    let (mut a, mut b) = (Session::guarded(&tree, "a", &[]), Session::guarded(&tree, "b", &[]));
    fine(&a.sh("exec 3>f; echo half >&3"));
    fine(&b.sh("cat f; echo theirs >t; mv t f"));
    a.sh("echo late >&3; exec 3>&-");
    let kept = |a: &mut Session| {
        let line = a.said().into_iter().find(|line| line.ends_with(READ_AGAIN))?;
        let (_, rest) = line.split_once("(outside the mount: `")?;
        Some(rest.split_once('`')?.0.to_owned())
    };
    assert!(wait_until(PATIENCE, || kept(&mut a).is_some()), "{:?}", a.said());
    let command = kept(&mut a).unwrap_or_default();
    let program = common::tree::program();
    let command = command.replacen("unclobber", &format!("'{}'", program.display()), 1);
    let shown = Session::plain(&tree, "outside").sh(&command);
    assert_eq!(shown.stdout, "half\nlate\n", "{command}: {shown:?}");
    fine(&a.sh("cat f; printf 'half\\nlate\\n' >f"));
    assert_eq!(tree.read("f"), Some(shown.stdout));
}

// semantics: E3 E7
#[test]
fn what_is_not_there_is_created_instead() {
    if !require_fuse("the step of creating") || !tool_is_there("python3") {
        return;
    }
    let tree = Tree::new();
    let mut a = Session::guarded(&tree, "a", &[]);
    let program = common::tree::program();
    let why = a.sh(&format!("'{}' why --op edit f", program.display()));
    assert!(
        why.code == 1 && why.stdout.contains(&format!("what to do next: {CREATE}\n")),
        "{why:?}"
    );
    assert_ne!(a.sh("python3 -c 'open(\"f\", \"r+\")'").code, 0);
    fine(&a.sh("echo x >f"));
    fine(&a.sh("python3 -c 'open(\"f\", \"r+\").write(\"y\")'"));
}
