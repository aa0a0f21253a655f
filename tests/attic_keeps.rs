//! Whatever an allowed change displaces can be had back, byte for byte and with all that belongs to it; and keeping it never
//! stands in the way of a change.

#[expect(dead_code, reason = "each test program uses its own part of the harness")]
mod common;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use common::session::{Session, fine};
use common::tree::{Tree, require_fuse, tool_is_there, works};
use common::wait::{PATIENCE, wait_until};
use serde_json::Value;
use unclobber::sys;

const OLD: &[u8] = b"old \0 bytes\n";

fn guarded(test: &str, flags: &[&str]) -> Option<(Tree, Session)> {
    if !require_fuse(test) {
        return None;
    }
    let tree = Tree::new();
    precious(&tree.at("f"));
    let a = Session::guarded(&tree, "a", flags);
    Some((tree, a))
}

/// A file of which every part could be lost.
fn precious(path: &Path) {
    fs::write(path, OLD).expect("an old file");
    if nix::unistd::geteuid().is_root() {
        std::os::unix::fs::chown(path, Some(1234), Some(4321)).expect("chown");
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o4641)).expect("chmod");
    let pinned = sys::open_path(path, sys::consts::O_PATH).expect("the file");
    sys::set_xattr(&pinned, "user.colour".as_ref(), b"blue", 0)
        .expect("an attribute, on the disk filesystem of the tests");
    let times = fs::FileTimes::new().set_modified(UNIX_EPOCH + Duration::new(1_000_000_000, 5_000));
    fs::File::open(path)
        .and_then(|file| file.set_times(times))
        .expect("utimens");
}

/// All that must come back: content, mode, owner, group, time of change, attribute.
type Whole = (Vec<u8>, u32, u32, u32, Option<SystemTime>, Vec<u8>);

fn whole(path: &Path) -> Whole {
    let found = fs::metadata(path).expect("the file");
    let pinned = sys::open_path(path, sys::consts::O_PATH).expect("the file");
    let colour = sys::get_xattr(&pinned, "user.colour".as_ref(), 64).unwrap_or_default();
    let content = fs::read(path).expect("its content");
    (
        content,
        found.mode(),
        found.uid(),
        found.gid(),
        found.modified().ok(),
        colour,
    )
}

fn listed(tree: &Tree) -> Vec<Value> {
    let all: Value = serde_json::from_str(&works(tree, &["attic", "list", "--json"])).expect("JSON");
    all["kept"].as_array().expect("a list").clone()
}

fn home(tree: &Tree) -> PathBuf {
    tree.at(".unclobber")
}

fn count(tree: &Tree, name: &str) -> u64 {
    let all: Value = serde_json::from_str(&works(tree, &["status", "--json", "."])).expect("JSON");
    all["guards"][0]["counts"][name].as_u64().expect("a count")
}

// semantics: A1 A5 A10
#[test]
fn what_cp_and_the_shell_replace_in_place_comes_back_whole() {
    let Some((tree, mut a)) = guarded("cp -f", &["--unseen", "allow"]) else {
        return;
    };
    let before = whole(&tree.at("f"));
    tree.write("new", "new\n");
    fine(&a.sh("cp -f new f"));
    assert_eq!(tree.read("f").as_deref(), Some("new\n"));
    let told = works(&tree, &["undo", "--owner", "a"]);
    assert!(told.starts_with("restored f; what was there is kept as "), "{told}");
    assert_eq!(whole(&tree.at("f")), before);
    // Read and replaced, and once more: what the owner made itself is its own to replace.
    fine(&a.sh("cat f; echo one >f; echo two >f"));
    works(&tree, &["undo", "--owner", "a"]);
    assert_eq!(whole(&tree.at("f")), before);
    // Both undoings have kept what they displaced.
    let kept: Vec<_> = listed(&tree).iter().map(|kept| kept["operation"].clone()).collect();
    assert_eq!(kept, ["undo", "undo"], "{kept:?}");
    // The guard takes what came back for a change from outside.
    assert_eq!(a.sh("echo three >f").code, 2);
    fine(&a.sh("cat f && echo three >f"));
}

// semantics: A1 D5 D6 D20
#[test]
fn what_is_refused_is_whole_where_it_was() {
    let Some((tree, mut a)) = guarded("refusals", &[]) else {
        return;
    };
    let before = whole(&tree.at("f"));
    tree.write("new", "new\n");
    assert_ne!(a.sh("cp -f new f").code, 0);
    assert_eq!(whole(&tree.at("f")), before);
    if tool_is_there("tar") {
        let made = a.sh("mkdir t && echo packed >t/f && tar -C t -cf a.tar f && rm t/f && rmdir t");
        fine(&made);
        assert_ne!(a.sh("tar --overwrite -xf a.tar").code, 0);
        assert_eq!(whole(&tree.at("f")), before);
        fine(&a.sh("cat f >/dev/null && tar --overwrite -xf a.tar"));
        assert_eq!(tree.read("f").as_deref(), Some("packed\n"));
        works(&tree, &["undo", "--owner", "a"]);
        assert_eq!(whole(&tree.at("f")), before);
    }
    assert!(a.told("f", common::NOT_OBSERVED));
}

// semantics: A1 D6
#[test]
fn git_does_not_do_away_with_what_another_owner_has_written() {
    let test = "git checkout";
    if !require_fuse(test) || !tool_is_there("git") {
        return;
    }
    let tree = Tree::new();
    let mut outside = Session::plain(&tree, "outside");
    fine(&outside.sh("git init -q . && echo one >f && echo one >g && git add f g && git commit -qm one"));
    fine(&outside.sh("git checkout -qb two && echo two >f && echo two >g && git commit -qam two && git checkout -q -"));
    let (mut a, mut b) = (Session::guarded(&tree, "a", &[]), Session::guarded(&tree, "b", &[]));
    fine(&b.sh("cat f; echo by b >f; chmod 640 f"));
    let before = whole(&tree.at("f"));
    assert_ne!(a.sh("git checkout -f -q two").code, 0);
    assert_eq!(whole(&tree.at("f")), before, "what B wrote is where it was");
    // A file that nobody has changed is git's to replace, and kept.
    fine(&a.sh("cat f && git checkout -f -q two"));
    assert_eq!(tree.read("g").as_deref(), Some("two\n"));
    let kept = listed(&tree);
    let of = |path: &str| {
        let found = kept
            .iter()
            .find(|kept| kept["path"] == path)
            .map(|kept| kept["id"].clone());
        found.and_then(|id| id.as_str().map(str::to_owned))
    };
    if let Some(id) = of("g") {
        assert_eq!(works(&tree, &["attic", "show", &id]), "one\n");
    } else {
        unreachable!("{kept:?}");
    }
}

// semantics: A9
#[test]
fn nothing_that_is_wrong_with_the_attic_fails_a_change() {
    let Some((tree, a)) = guarded("a broken attic", &[]) else {
        return;
    };
    drop(a);
    fs::create_dir_all(home(&tree)).expect("a home");
    fs::write(home(&tree).join("format"), "unclobber store 1\n").expect("the mark");
    fs::write(home(&tree).join("attic"), "in the way").expect("no directory");
    let mut a = Session::guarded(&tree, "a", &[]);
    fine(&a.sh("cat f >/dev/null && echo new >f && echo newer >g && mv g f && rm f"));
    assert!(count(&tree, "files not kept") >= 1);
    assert_eq!(tree.read("f"), None);
    tree.write("unseen", "precious\n");
    drop(a);
    a = Session::guarded(&tree, "a", &[]);
    // Only what nobody has seen is not removed without it, and the step that clears that needs no attic.
    assert_ne!(a.sh("rm -f unseen").code, 0);
    fine(&a.sh("cat unseen && rm unseen"));
}

// semantics: A11
#[test]
fn an_attic_that_is_off_keeps_nothing() {
    let Some((tree, mut a)) = guarded("--attic off", &["--attic", "off"]) else {
        return;
    };
    tree.write("g", "old\n");
    drop(a);
    a = Session::guarded(&tree, "a", &["--attic", "off"]);
    fine(&a.sh("rm f && cat g && echo new >g && echo newer >h && mv h g"));
    assert_eq!((tree.read("f"), tree.read("g").as_deref()), (None, Some("newer\n")));
    assert!(!home(&tree).exists() && listed(&tree).is_empty());
    let mut b = Session::guarded(&tree, "b", &[]);
    assert_ne!(b.sh("echo b >g").code, 0, "refusals are as ever");
}

// semantics: O11
#[test]
fn what_is_remembered_is_bounded_as_asked_for() {
    let Some((tree, a)) = guarded("--max-records", &[]) else {
        return;
    };
    drop(a);
    for index in 0..6000 {
        tree.write(&format!("many/file-{index}"), "x");
    }
    let mut a = Session::guarded(&tree, "a", &["--max-records", "4096"]);
    fine(&a.sh("cat many/* >/dev/null"));
    let told = a
        .sh(&format!("{} status --metrics", env!("CARGO_BIN_EXE_unclobber")))
        .stdout;
    for name in ["unclobber_file_records{", "unclobber_name_records{"] {
        let line = told.lines().find(|line| line.starts_with(name));
        let count = line.and_then(|line| line.split(' ').next_back()?.parse::<u32>().ok());
        assert!(count.is_some_and(|count| (1000..=4096).contains(&count)), "{told}");
    }
    // Of those that were forgotten each is refused; of the others none, and each that is written is remembered in turn.
    let refused = a
        .sh("n=0; for f in many/*; do echo y 2>/dev/null >$f || n=$((n+1)); done; echo refused $n")
        .stdout;
    let count = refused
        .split("refused ")
        .nth(1)
        .and_then(|count| count.trim().parse::<u32>().ok());
    assert!(count.is_some_and(|count| (1000..6000).contains(&count)), "{refused}");
}

// semantics: A1
#[test]
fn what_is_copied_is_bounded() {
    let Some((tree, a)) = guarded("--attic-copy", &[]) else {
        return;
    };
    drop(a);
    let shares = {
        let (from, to) = (tree.at("clone-from"), tree.at("clone-to"));
        fs::write(&from, "x").expect("a file");
        let copied = sys::clone_content(
            fs::File::open(&from).expect("a file"),
            fs::File::create(&to).expect("a file"),
        );
        tree.remove("clone-from");
        tree.remove("clone-to");
        copied.is_ok()
    };
    tree.write("big", &"x".repeat(5000));
    let mut a = Session::guarded(&tree, "a", &["--attic-copy", "4K"]);
    fine(&a.sh("cat f big >/dev/null; echo new >f; echo new >big"));
    let kept: Vec<_> = listed(&tree).iter().map(|kept| kept["path"].clone()).collect();
    let wanted: &[&str] = if shares { &["f", "big"] } else { &["f"] };
    assert_eq!(kept, wanted);
    drop(a);
    tree.write("g", "old\n");
    a = Session::guarded(&tree, "a", &["--attic-copy", "0"]);
    fine(&a.sh("cat g; echo new >g"));
    assert_eq!(listed(&tree).len(), wanted.len() + usize::from(shares));
    // Unread content is copied whatever its size.
    drop(a);
    tree.write("big", &"y".repeat(5000));
    a = Session::guarded(&tree, "a", &["--attic-copy", "0", "--unseen", "allow"]);
    fine(&a.sh("echo new >big"));
    let kept = listed(&tree);
    let last = kept.last().expect("kept");
    assert_eq!(
        (&last["path"], &last["size"]),
        (&Value::from("big"), &Value::from(5000))
    );
}

// semantics: A7 A4
#[test]
fn what_a_killed_guard_left_half_done_is_cleaned_up() {
    let Some((tree, a)) = guarded("half-made", &[]) else {
        return;
    };
    drop(a);
    let attic = home(&tree).join("attic");
    fs::create_dir_all(&attic).expect("an attic");
    fs::write(home(&tree).join("format"), "unclobber store 1\n").expect("the mark");
    fs::write(home(&tree).join("kept.jsonl"), "{\"id\":\"torn").expect("the journal");
    fs::write(home(&tree).join("kept.jsonl.new"), "half").expect("the journal's successor");
    let part = |name: &str, age: u64| {
        let path = attic.join(name);
        fs::write(&path, "half").expect("a copy");
        let times = fs::FileTimes::new().set_modified(SystemTime::now() - Duration::from_secs(age));
        fs::File::open(&path)
            .and_then(|file| file.set_times(times))
            .expect("utimens");
        path
    };
    let (old, fresh) = (
        part("0000000001-00000000-00000000.part", 1000),
        part("0000000002-00000000-00000000.part", 0),
    );
    let mut a = Session::guarded(&tree, "a", &[]);
    assert!(wait_until(PATIENCE, || !old.exists()
        && !home(&tree).join("kept.jsonl.new").exists()));
    assert!(fresh.exists(), "another guard may be at it");
    fine(&a.sh("rm f"));
    let kept = listed(&tree);
    assert_eq!(
        (kept.len(), &kept[0]["noted"], &kept[0]["path"]),
        (1, &Value::from(true), &Value::from("f"))
    );
}

// semantics: A7 N5
#[test]
fn a_rename_in_which_the_guard_was_killed_is_finished() {
    let Some((tree, mut a)) = guarded("killed in a rename", &[]) else {
        return;
    };
    let attic = home(&tree).join("attic");
    fine(&a.sh("mkdir d && cat f >/dev/null && echo new >d/t && mv d/t f"));
    drop(a);
    let id = listed(&tree)[0]["id"].as_str().map(str::to_owned).expect("kept");
    let kept = attic.join(&id);
    let before = whole(&kept);
    // As the exchange leaves it.
    fs::rename(&kept, tree.at("d/t")).expect("back to the old name");
    let told = works(&tree, &["attic", "list"]);
    assert!(told.contains("or it is still at d/t"), "{told}");
    let mut a = Session::guarded(&tree, "a", &[]);
    // Before any request: the old content can be put over the new no more.
    assert_ne!(a.sh("mv d/t f").code, 0);
    assert_eq!(tree.read("f").as_deref(), Some("new\n"));
    assert_eq!((whole(&kept), tree.read("d/t")), (before.clone(), None));
    drop(a);
    // Something else is kept, so that the attic stays.
    fs::write(attic.join(format!("{}f0000000", &id[..20])), "").expect("another file");
    // What somebody has changed since, at one name or the other, stays where it is.
    let next_guard = || drop(Session::guarded(&tree, "a", &[]));
    let (old_name, name) = (tree.at("d/t"), tree.at("f"));
    fs::rename(&kept, &old_name).expect("back to the old name");
    fs::rename(&name, tree.at("aside")).expect("it is there");
    tree.write("f", "new\n");
    next_guard();
    assert_eq!((whole(&old_name), kept.exists()), (before, false));
    fs::rename(tree.at("aside"), &name).expect("as it was");
    // Before the exchange: nothing was displaced, and nothing is said to have been.
    let new = tree.at("aside");
    fs::rename(&name, &new)
        .and_then(|()| fs::rename(&old_name, &name))
        .and_then(|()| fs::rename(&new, &old_name))
        .expect("as it was before");
    let journal = fs::read(home(&tree).join("kept.jsonl")).expect("the journal");
    next_guard();
    let left = listed(&tree);
    assert!(left.len() == 1 && left[0]["noted"] == false, "{left:?}");
    fs::write(home(&tree).join("kept.jsonl"), journal).expect("the journal");
    fs::rename(&name, &new)
        .and_then(|()| fs::rename(&old_name, &name))
        .and_then(|()| fs::rename(&new, &old_name))
        .expect("exchanged");
    tree.write("d/t", "changed\n");
    next_guard();
    assert_eq!((tree.read("d/t").as_deref(), kept.exists()), (Some("changed\n"), false));
}

// semantics: A7 A8
#[test]
fn a_home_that_was_never_finished_is_finished_or_goes() {
    let Some((tree, a)) = guarded("an unfinished home", &[]) else {
        return;
    };
    drop(a);
    let unfinished = |name: &str, mode: u32| {
        fs::create_dir(tree.at(name)).expect("a directory");
        fs::set_permissions(tree.at(name), fs::Permissions::from_mode(mode)).expect("chmod");
    };
    unfinished(".unclobber", 0o700);
    unfinished(".unclobber.2", 0o700);
    let mut a = Session::guarded(&tree, "a", &[]);
    assert_eq!(a.sh("ls -A | grep -Fx .unclobber").stdout, "", "it is hidden");
    assert!(wait_until(PATIENCE, || !tree.at(".unclobber.2").exists()));
    fine(&a.sh("rm f"));
    assert!(!tree.at(".unclobber.1").exists());
    assert_eq!(listed(&tree).len(), 1);
    drop(a);
    works(&tree, &["undo"]);
    assert!(wait_until(PATIENCE, || !home(&tree).exists()), "nothing is left");
    // What is not as the guard makes it is somebody's own.
    unfinished(".unclobber", 0o755);
    let mut a = Session::guarded(&tree, "a", &[]);
    fine(&a.sh("rm f"));
    assert!(home(&tree).exists() && tree.at(".unclobber.1/attic").exists());
    drop(a);
    // What is kept is found where it is, also when the first name is free again.
    fs::remove_dir(home(&tree)).expect("it is empty");
    tree.write("g", "other\n");
    let mut a = Session::guarded(&tree, "a", &[]);
    fine(&a.sh("rm g"));
    assert!(!home(&tree).exists());
    assert_eq!(listed(&tree).len(), 2);
}

// semantics: A4
#[test]
fn the_bound_on_size_holds_also_between_two_looks() {
    let Some((tree, a)) = guarded("filling", &[]) else {
        return;
    };
    drop(a);
    for name in 0..30 {
        tree.write(&format!("big{name}"), &"x".repeat(20_000));
    }
    let mut a = Session::guarded(&tree, "a", &["--attic-size", "100K"]);
    fine(&a.sh("rm big*"));
    let size = || {
        listed(&tree)
            .iter()
            .filter_map(|kept| kept["size"].as_u64())
            .sum::<u64>()
    };
    // Long before the half minute at which the guard looks anyway.
    assert!(
        wait_until(Duration::from_secs(10), || size() <= 100 << 10),
        "{}",
        size()
    );
    assert!(size() > 0);
}

// semantics: A3 A6
#[test]
fn nobody_gets_at_the_attic_through_the_mount() {
    let Some((tree, mut a)) = guarded("the attic in the mount", &["--unseen", "allow"]) else {
        return;
    };
    fine(&a.sh("echo new >f"));
    let mode = |path: &Path| fs::metadata(path).expect("it").mode() & 0o7777;
    assert_eq!((mode(&home(&tree)), mode(&home(&tree).join("attic"))), (0o700, 0o700));
    assert_eq!(mode(&home(&tree).join("kept.jsonl")), 0o600);
    for form in ["cat .unclobber/kept.jsonl", "ls .unclobber/attic", "mv .unclobber x"] {
        assert_ne!(a.sh(form).code, 0, "{form}");
    }
    // What is at the name is virtual, and says nothing of what is kept.
    assert_eq!(a.sh("ls .unclobber").stdout, "owner\nrefusals\nrefusals.json\nstatus\n");
}
