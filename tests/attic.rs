//! The attic's commands: what comes back, what is never replaced, who gets at what, and what a killed guard leaves.

#[expect(dead_code, reason = "each test program uses its own part of the harness")]
mod common;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;

use common::session::{Session, fine};
use common::tree::{Tree, require_fuse, run, say, works};
use common::wait::{PATIENCE, wait_until};
use serde_json::Value;

const OLD: &str = "old\n";

/// A tree with one old file, and a shell of owner A with these flags.
fn guarded(test: &str, flags: &[&str]) -> Option<(Tree, Session)> {
    guarded_with(test, flags, |_| ())
}

/// The same with what else is there before the guard begins.
fn guarded_with(test: &str, flags: &[&str], fill: impl FnOnce(&Tree)) -> Option<(Tree, Session)> {
    if !require_fuse(test) {
        return None;
    }
    let tree = Tree::new();
    tree.write("f", OLD);
    fill(&tree);
    let a = Session::guarded(&tree, "a", flags);
    Some((tree, a))
}

fn fails(tree: &Tree, words: &[&str]) -> String {
    let done = run(tree, words);
    assert_eq!(done.status.code(), Some(1), "{words:?}: {done:?}");
    String::from_utf8_lossy(&done.stderr).into_owned()
}

fn listed(tree: &Tree) -> Vec<Value> {
    let all: Value = serde_json::from_str(&works(tree, &["attic", "list", "--json"])).expect("JSON");
    assert_eq!(all["v"], 1);
    all["kept"].as_array().expect("a list").clone()
}

fn text(entry: &Value, name: &str) -> String {
    entry[name].as_str().unwrap_or_default().to_owned()
}

/// The id of the one file that is kept.
fn only(tree: &Tree) -> String {
    let all = listed(tree);
    assert_eq!(all.len(), 1, "{all:?}");
    text(&all[0], "id")
}

fn home(tree: &Tree) -> PathBuf {
    tree.at(".unclobber")
}

/// Ends the guard of the tree without a word.
fn kill_guard(tree: &Tree) {
    let found = fs::read_dir(tree.run_time().join("unclobber")).expect("the run-time directory");
    let pids: Vec<i32> = found
        .map_while(Result::ok)
        .filter(|entry| entry.path().extension().is_some_and(|end| end == "pid"))
        .filter_map(|entry| fs::read_to_string(entry.path()).ok()?.trim().parse().ok())
        .collect();
    assert_eq!(pids.len(), 1, "one guard: {pids:?}");
    unclobber::sys::kill(pids[0], unclobber::sys::SIGKILL).expect("kill");
    assert!(wait_until(PATIENCE, || !std::path::Path::new(&format!(
        "/proc/{}",
        pids[0]
    ))
    .exists()));
}

// semantics: A1 A5 A6
#[test]
fn an_unseen_removal_is_undone() {
    let Some((tree, mut a)) = guarded("undo", &[]) else {
        return;
    };
    tree.write("sub/g", "one\n");
    fs::set_permissions(tree.at("f"), fs::Permissions::from_mode(0o4741)).expect("chmod");
    let root = nix::unistd::geteuid().is_root();
    if root {
        std::os::unix::fs::chown(tree.at("f"), Some(1234), Some(4321)).expect("chown");
        fs::set_permissions(tree.at("f"), fs::Permissions::from_mode(0o4741)).expect("chmod");
    }
    let marked = unclobber::sys::open_path(&tree.at("f"), unclobber::sys::consts::O_PATH)
        .and_then(|f| unclobber::sys::set_xattr(&f, "user.colour".as_ref(), b"blue", 0));
    let before = fs::metadata(tree.at("f")).expect("f");
    drop(a);
    a = Session::guarded(&tree, "a", &[]);
    fine(&a.sh("rm f; rm -r sub"));
    assert!(wait_until(PATIENCE, || listed(&tree).len() == 2), "{:?}", listed(&tree));
    // The guard runs, and what comes back is seen through its mount.
    assert_eq!(
        works(&tree, &["undo", "--owner", "a", "--last", "2"]),
        "restored sub/g\nrestored f\n"
    );
    let after = fs::metadata(tree.at("f")).expect("f");
    assert_eq!(tree.read("f").as_deref(), Some(OLD));
    assert_eq!(
        (
            after.ino(),
            after.mode(),
            after.uid(),
            after.gid(),
            after.mtime(),
            after.mtime_nsec()
        ),
        (
            before.ino(),
            before.mode(),
            before.uid(),
            before.gid(),
            before.mtime(),
            before.mtime_nsec()
        )
    );
    if marked.is_ok() {
        let f = unclobber::sys::open_path(&tree.at("f"), unclobber::sys::consts::O_PATH).expect("f");
        assert_eq!(
            unclobber::sys::get_xattr(&f, "user.colour".as_ref(), 64).expect("colour"),
            b"blue"
        );
    }
    let seen = a.sh("cat sub/g f && echo mine >sub/g && cat sub/g");
    assert_eq!((seen.code, seen.stdout.as_str()), (0, "one\nold\nmine\n"), "{seen:?}");
    // What was read and replaced in place had been made by somebody else: it is kept, too.
    let left = listed(&tree);
    assert_eq!(
        (left.len(), text(&left[0], "operation")),
        (1, "open".to_owned()),
        "{left:?}"
    );
    works(&tree, &["attic", "prune", "--all"]);
    assert!(fails(&tree, &["undo", "--owner", "a"]).contains("nothing to undo"));
    drop(a);
    assert!(wait_until(PATIENCE, || !home(&tree).exists()), "the empty attic goes");
}

// semantics: A5 A10
#[test]
fn what_is_in_the_way_is_not_replaced_and_an_undo_exchanges() {
    let Some((tree, mut a)) = guarded("restore", &["--unseen", "allow"]) else {
        return;
    };
    fine(&a.sh("echo new >g && mv g f"));
    drop(a);
    let id = only(&tree);
    let told = fails(&tree, &["attic", "restore", &id]);
    assert!(
        told.contains("something is there") && told.contains("--to PATH"),
        "{told}"
    );
    assert_eq!(tree.read("f").as_deref(), Some("new\n"));
    assert_eq!(works(&tree, &["attic", "show", &id]), OLD);
    let diff = works(&tree, &["attic", "diff", &id]);
    assert!(diff.contains("-old\n+new\n") && diff.contains("+++ f\n"), "{diff}");
    let told = works(&tree, &["undo"]);
    assert_eq!(tree.read("f").as_deref(), Some(OLD));
    let id = only(&tree);
    assert_eq!(told, format!("restored f; what was there is kept as {id}\n"));
    assert_eq!(works(&tree, &["attic", "show", &id]), "new\n");
    // An undo is not undone by another.
    assert!(fails(&tree, &["undo"]).contains("nothing to undo"));
    assert!(fails(&tree, &["attic", "restore", &id]).contains("something is there"));
    tree.write("taken", "theirs\n");
    assert!(fails(&tree, &["attic", "restore", &id, "--to", "taken"]).contains("something is there"));
    assert_eq!(tree.read("taken").as_deref(), Some("theirs\n"));
    fs::create_dir(tree.at("d")).expect("mkdir");
    // The beginning of an id is enough.
    assert_eq!(
        works(&tree, &["attic", "restore", &id[..20], "--to", "d/back"]),
        "restored d/back\n"
    );
    assert_eq!(
        (tree.read("d/back").as_deref(), tree.read("f").as_deref()),
        (Some("new\n"), Some(OLD))
    );
    assert!(!home(&tree).exists(), "the empty attic goes when no guard runs");
    assert!(fails(&tree, &["attic", "show", &id]).contains("nothing is kept"));
    assert_eq!(works(&tree, &["attic", "list"]), "nothing is kept\n");
}

// semantics: A5 A10
#[test]
fn an_undo_goes_on_past_what_cannot_be_restored() {
    let Some((tree, mut a)) = guarded_with("undo past what is blocked", &[], |tree| tree.write("g", OLD)) else {
        return;
    };
    fine(&a.sh("rm f"));
    fine(&a.sh("rm g"));
    // What somebody else has put there is in the way; the latest is in the way of nothing but itself.
    tree.write("g", "new\n");
    let done = run(&tree, &["undo"]);
    drop(a);
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    assert_eq!(String::from_utf8_lossy(&done.stdout), "restored f\n");
    let told = String::from_utf8_lossy(&done.stderr);
    assert!(
        told.contains("as g: something is there") && told.contains("1 kept file could not be restored"),
        "{told}"
    );
    assert_eq!(
        (tree.read("f").as_deref(), tree.read("g").as_deref()),
        (Some(OLD), Some("new\n"))
    );
}

// semantics: A7 A10
#[test]
fn a_killed_undo_leaves_a_list_that_is_true() {
    let Some((tree, mut a)) = guarded("a killed undo", &["--unseen", "allow"]) else {
        return;
    };
    fine(&a.sh("echo new >g && mv g f"));
    drop(a);
    let attic = home(&tree).join("attic");
    let id = only(&tree);
    works(&tree, &["undo"]);
    let fresh = only(&tree);
    // As it is when it is killed after the exchange: the last note is missing, and the old id still in use.
    let journal = home(&tree).join("kept.jsonl");
    let notes = fs::read_to_string(&journal).expect("the journal");
    let last = notes.trim_end().rfind('\n').expect("several lines") + 1;
    fs::write(&journal, &notes[..last]).expect("the journal");
    let listed_as = |id: &str, operation: &str| {
        let all = listed(&tree);
        assert_eq!(all.len(), 1, "{all:?}");
        assert_eq!(
            (text(&all[0], "id").as_str(), text(&all[0], "operation").as_str()),
            (id, operation)
        );
    };
    listed_as(&fresh, "undo");
    fs::rename(attic.join(&fresh), attic.join(&id)).expect("the old id");
    listed_as(&id, "undo");
    assert_eq!(works(&tree, &["attic", "show", &id]), "new\n");
    assert!(fails(&tree, &["undo"]).contains("nothing to undo"));
    assert_eq!(tree.read("f").as_deref(), Some(OLD));
    // Before the exchange: nothing has happened yet.
    let (kept, file) = (attic.join(&id), tree.at("f"));
    fs::rename(&kept, tree.at("between"))
        .and_then(|()| fs::rename(&file, &kept))
        .and_then(|()| fs::rename(tree.at("between"), &file))
        .expect("the exchange, undone");
    listed_as(&id, "rename");
    assert!(works(&tree, &["undo"]).starts_with("restored f; what was there is kept as"));
    assert_eq!(tree.read("f").as_deref(), Some(OLD));
    assert_eq!(works(&tree, &["attic", "show", &only(&tree)]), "new\n");
}

// semantics: A2 A5
#[test]
fn what_had_a_name_that_is_no_text_comes_back_to_it() {
    use std::os::unix::ffi::OsStrExt as _;
    let Some((tree, a)) = guarded("names that are no text", &[]) else {
        return;
    };
    drop(a);
    let dir = tree.root().join(std::ffi::OsStr::from_bytes(b"d\xff"));
    fs::create_dir(&dir).expect("a directory");
    let (removed, replaced) = (dir.join(std::ffi::OsStr::from_bytes(b"\xfe\xff")), dir.join("g"));
    for path in [&removed, &replaced] {
        fs::write(path, OLD).expect("a file");
    }
    let mut a = Session::guarded(&tree, "a", &["--unseen", "allow"]);
    fine(&a.sh("cd d* && rm [!g]* && echo new >t && mv t g"));
    drop(a);
    assert!(
        listed(&tree)
            .iter()
            .all(|kept| text(kept, "path").starts_with("d\u{fffd}/"))
    );
    let id = text(&listed(&tree)[1], "id");
    assert!(works(&tree, &["attic", "diff", &id]).contains("-old\n+new\n"));
    works(&tree, &["undo", "--last", "2"]);
    for path in [&removed, &replaced] {
        assert_eq!(
            fs::read_to_string(path).ok().as_deref(),
            Some(OLD),
            "{}",
            path.display()
        );
    }
}

// semantics: A8
#[test]
fn an_empty_attic_goes_while_the_guard_stays() {
    if !require_fuse("attic of a lingering guard") {
        return;
    }
    let tree = Tree::new();
    for name in ["f", "g", "h"] {
        tree.write(name, OLD);
    }
    let linger = |text: &str| {
        works(
            &tree,
            &["run", "--linger", "10m", "--owner", "a", "--", "sh", "-c", text],
        )
    };
    // What was read before it was removed is not kept, though it goes by way of the attic.
    linger("cat f; rm f");
    assert!(works(&tree, &["status", "."]).contains("stays for 10 min"));
    assert!(wait_until(PATIENCE, || !home(&tree).exists()), "the empty attic stays");
    // What is kept stays, until it is brought back.
    linger("rm g");
    assert!(home(&tree).exists());
    assert_eq!(works(&tree, &["undo"]), "restored g\n");
    assert!(wait_until(PATIENCE, || !home(&tree).exists()), "the empty attic stays");
    linger("rm h");
    assert_eq!(listed(&tree).len(), 1);
    kill_guard(&tree);
}

// semantics: A5
#[test]
fn a_copy_in_the_attic_and_a_copy_out_of_it_are_whole() {
    let Some((tree, a)) = guarded("copies", &[]) else {
        return;
    };
    drop(a);
    fs::set_permissions(tree.at("f"), fs::Permissions::from_mode(0o640)).expect("chmod");
    let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    let file = fs::File::options().write(true).open(tree.at("f")).expect("f");
    file.set_modified(long_ago).expect("utimens");
    let path_only = unclobber::sys::consts::O_PATH;
    let marked = unclobber::sys::open_path(&tree.at("f"), path_only)
        .and_then(|f| unclobber::sys::set_xattr(&f, "user.colour".as_ref(), b"blue", 0));
    let mut a = Session::guarded(&tree, "a", &["--unseen", "allow"]);
    // A truncation leaves no old file to move: what is kept is a copy.
    fine(&a.sh("echo longer than it was >f"));
    drop(a);
    let id = only(&tree);
    let elsewhere = tempfile::TempDir::new_in("/dev/shm").expect("a directory on another filesystem");
    let to = elsewhere.path().join("f");
    let done = works(&tree, &["attic", "restore", &id, "--to", &to.to_string_lossy()]);
    assert!(done.contains("the attic still has it"), "{done}");
    assert_eq!(fs::read_to_string(&to).expect("the copy"), OLD);
    let found = fs::metadata(&to).expect("the copy");
    assert_eq!((found.mode() & 0o7777, found.mtime()), (0o640, 1_000_000_000));
    if marked.is_ok() {
        // Not every filesystem holds attributes: the copy in the attic, on the tree's own, does.
        let kept = home(&tree).join("attic").join(&id);
        let colour = unclobber::sys::open_path(&kept, path_only)
            .and_then(|f| unclobber::sys::get_xattr(&f, "user.colour".as_ref(), 64));
        assert_eq!(colour.expect("the attribute of the copy"), b"blue");
    }
    assert_eq!(only(&tree), id);
    assert!(fails(&tree, &["attic", "restore", &id, "--to", &to.to_string_lossy()]).contains("something is there"));
}

// semantics: A6
#[test]
fn on_a_mount_there_is_no_way_to_the_attic() {
    let Some((tree, mut a)) = guarded("the attic from inside", &[]) else {
        return;
    };
    fine(&a.sh("rm f"));
    let program = common::tree::program();
    for words in [
        "attic list",
        "attic list --json",
        "undo --owner a",
        "attic prune --all",
        "attic show 00",
    ] {
        let done = a.sh(&format!("'{}' {words}", program.display()));
        assert!(
            done.code == 1 && done.stderr.contains("outside `unclobber run`"),
            "{words}: {done:?}"
        );
    }
    assert_eq!(listed(&tree).len(), 1);
}

// semantics: A6
#[test]
fn kept_files_are_for_those_who_may_read_them() {
    let test = "another user's kept file";
    if !require_fuse(test) {
        return;
    }
    if !nix::unistd::geteuid().is_root() {
        return say(&format!("SKIPPED {test}: only root can be two users"));
    }
    let tree = Tree::new();
    let (mine, theirs) = ("00000000aa-00000000-00000000", "00000000bb-00000000-00000000");
    let attic = home(&tree).join("attic");
    fs::create_dir_all(&attic).expect("an attic");
    fs::write(home(&tree).join("format"), "unclobber store 1\n").expect("the mark");
    for (id, owner) in [(mine, 1234), (theirs, 0)] {
        fs::write(attic.join(id), id).expect("a kept file");
        fs::set_permissions(attic.join(id), fs::Permissions::from_mode(0o600)).expect("chmod");
        std::os::unix::fs::chown(attic.join(id), Some(owner), None).expect("chown");
    }
    for dir in [tree.root(), home(&tree), attic.clone()] {
        std::os::unix::fs::chown(dir, Some(1234), None).expect("chown");
    }
    let as_user = |user: u32, words: &[&str]| {
        let mut command = tree.unclobber();
        command.args(words).current_dir(tree.root()).uid(user).gid(user);
        command.output().expect("the program starts")
    };
    assert_eq!(as_user(1234, &["attic", "show", mine]).stdout, mine.as_bytes());
    for words in [
        vec!["attic", "show", theirs],
        vec!["attic", "restore", theirs, "--to", "got"],
    ] {
        let done = as_user(1234, &words);
        assert!(
            done.status.code() == Some(1) && done.stdout.is_empty(),
            "{words:?}: {done:?}"
        );
    }
    assert!(!tree.at("got").exists() && attic.join(theirs).exists());
    fs::set_permissions(home(&tree), fs::Permissions::from_mode(0o700)).expect("chmod");
    let done = as_user(4321, &["attic", "list"]);
    assert!(done.status.code() == Some(1) && done.stdout.is_empty(), "{done:?}");
}

// semantics: A7
#[test]
fn a_killed_guard_leaves_its_attic() {
    let Some((tree, mut a)) = guarded("kill -9", &[]) else {
        return;
    };
    fine(&a.sh("rm f"));
    let id = only(&tree);
    kill_guard(&tree);
    drop(a);
    assert_eq!(works(&tree, &["attic", "show", &id]), OLD);
    // A new guard leaves it be, and so does its end.
    fine(&Session::guarded(&tree, "b", &[]).sh("true"));
    assert_eq!(works(&tree, &["undo"]), "restored f\n");
    assert_eq!(tree.read("f").as_deref(), Some(OLD));
}

// semantics: A7
#[test]
fn what_is_half_there_is_listed_with_what_is_known() {
    let tree = Tree::new();
    let attic = home(&tree).join("attic");
    fs::create_dir_all(&attic).expect("an attic");
    fs::write(home(&tree).join("format"), "unclobber store 1\n").expect("the mark");
    let (bare, lost, up) = (
        "0000000001-00000000-00000000",
        "0000000002-00000000-00000000",
        "0000000003-00000000-00000000",
    );
    fs::write(attic.join(bare), "half").expect("a kept file");
    fs::write(attic.join(up), "sly").expect("a kept file");
    let note = |id: &str, path: &str| {
        format!(
            "{{\"id\":\"{id}\",\"owner\":\"a\",\"operation\":\"unlink\",\"path\":\"{path}\",\"at\":2,\"size\":4}}\n"
        )
    };
    let journal = format!("no note at all\n{}{}{{\"id\":", note(lost, "gone"), note(up, "../up"));
    fs::write(home(&tree).join("kept.jsonl"), journal).expect("the journal");
    let all = listed(&tree);
    let facts: Vec<_> = all
        .iter()
        .map(|entry| (text(entry, "id"), entry["noted"] == true, entry["there"] == true))
        .collect();
    assert_eq!(
        facts,
        [
            (bare.to_owned(), false, true),
            (lost.to_owned(), true, false),
            (up.to_owned(), true, true)
        ]
    );
    let shown = run(&tree, &["attic", "list"]);
    let (out, err) = (
        String::from_utf8_lossy(&shown.stdout),
        String::from_utf8_lossy(&shown.stderr),
    );
    assert!(
        out.contains("nothing was noted") && out.contains("its content has gone"),
        "{out}"
    );
    assert!(err.contains("cannot be read: 1, 4"), "{err}");
    assert!(fails(&tree, &["attic", "restore", bare]).contains("--to PATH"));
    assert!(fails(&tree, &["attic", "show", lost]).contains("its content has gone"));
    assert!(fails(&tree, &["attic", "restore", up]).contains("../up"));
    assert!(fails(&tree, &["attic", "show", "00000000"]).contains("several ids"));
    assert!(fails(&tree, &["attic", "show", "ff"]).contains("no kept file"));
    works(&tree, &["attic", "restore", bare, "--to", "whole"]);
    assert_eq!(tree.read("whole").as_deref(), Some("half"));
}

// semantics: A4 A8
#[test]
fn pruning_drops_what_is_old_or_all() {
    let Some((tree, mut a)) = guarded("prune", &[]) else {
        return;
    };
    tree.write("g", "other\n");
    tree.write("h", "third\n");
    drop(a);
    a = Session::guarded(&tree, "a", &["--unseen", "allow"]);
    fine(&a.sh("rm f && rm g"));
    assert_eq!(listed(&tree).len(), 2);
    make_old(&tree, "f");
    assert_eq!(
        works(&tree, &["attic", "prune", "--older-than", "1d"]),
        "dropped 1 kept file, 4 B\n"
    );
    let left = listed(&tree);
    assert_eq!((left.len(), text(&left[0], "path")), (1, "g".to_owned()), "{left:?}");
    assert_eq!(works(&tree, &["attic", "prune", "--all"]), "dropped 1 kept file, 6 B\n");
    assert!(listed(&tree).is_empty());
    assert_eq!(run(&tree, &["attic", "prune"]).status.code(), Some(2));
    // Somebody takes the empty attic away under a running guard: what is displaced next is kept all the same.
    fs::remove_dir_all(home(&tree)).expect("the empty attic");
    fine(&a.sh("echo new >h"));
    assert!(wait_until(PATIENCE, || listed(&tree).len() == 1), "{:?}", listed(&tree));
    assert_eq!(works(&tree, &["attic", "show", &only(&tree)]), "third\n");
    // Kept within this second, it has been kept for longer than no time at all.
    fine(&a.sh("rm h"));
    let dropped = works(&tree, &["attic", "prune", "--older-than", "0"]);
    assert!(
        dropped.starts_with("dropped ") && !dropped.starts_with("dropped 0"),
        "{dropped}"
    );
    assert!(listed(&tree).is_empty(), "{:?}", listed(&tree));
    drop(a);
    assert!(wait_until(PATIENCE, || !home(&tree).exists()), "the empty attic goes");
}

// semantics: A4
#[test]
fn undo_says_that_there_was_less_than_asked_for() {
    let Some((tree, mut a)) = guarded("undo of less", &[]) else {
        return;
    };
    fine(&a.sh("rm f"));
    assert!(wait_until(PATIENCE, || listed(&tree).len() == 1), "{:?}", listed(&tree));
    let done = run(&tree, &["undo", "--last", "5"]);
    let told = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{done:?}");
    assert!(
        told.contains("the last 5 were asked for, and there was only 1"),
        "{told}"
    );
}

// semantics: A4 A8
#[test]
fn the_bounds_are_those_the_guard_was_started_with() {
    let Some((tree, mut a)) = guarded("bounds", &[]) else {
        return;
    };
    tree.write("g", "other\n");
    tree.write("h", "third\n");
    drop(a);
    a = Session::guarded(&tree, "a", &[]);
    fine(&a.sh("rm f; rm g"));
    drop(a);
    make_old(&tree, "f");
    let names = || {
        listed(&tree)
            .iter()
            .map(|entry| text(entry, "path"))
            .collect::<Vec<_>>()
    };
    a = Session::guarded(&tree, "a", &["--attic-age", "1h"]);
    assert!(wait_until(PATIENCE, || names() == ["g"]), "{:?}", names());
    let mut b = Session::guarded(&tree, "b", &["--attic-size", "0"]);
    assert!(
        wait_until(PATIENCE, || b.said().iter().any(|line| line.contains("--attic-size"))),
        "{:?}",
        b.said()
    );
    drop((a, b));
    a = Session::guarded(&tree, "a", &["--attic-size", "0"]);
    assert!(wait_until(PATIENCE, || names().is_empty()), "{:?}", names());
    drop(a);
}

/// Gives the kept file of this path an id of long ago.
fn make_old(tree: &Tree, path: &str) {
    let journal = home(tree).join("kept.jsonl");
    let notes = fs::read_to_string(&journal).expect("the journal");
    let all = listed(tree);
    let id = all
        .iter()
        .find(|entry| entry["path"] == path)
        .map(|entry| text(entry, "id"));
    let id = id.expect("it is kept");
    let old = format!("{:010x}{}", 1_000_000, &id[10..]);
    fs::write(&journal, notes.replace(&id, &old)).expect("the journal");
    fs::rename(home(tree).join("attic").join(&id), home(tree).join("attic").join(&old)).expect("the kept file");
}

/// A command of the tool in a directory of the tree.
fn in_dir(tree: &Tree, dir: &str, words: &[&str]) -> (Option<i32>, String, String) {
    let done = tree.unclobber().current_dir(tree.at(dir)).args(words).output();
    let done = done.expect("the command");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (done.status.code(), text(&done.stdout), text(&done.stderr))
}

// semantics: A5 A10
#[test]
fn commands_that_are_told_work_where_they_are_told() {
    let Some((tree, mut a)) = guarded("commands to paste", &[]) else {
        return;
    };
    fine(&a.sh("mkdir d; rm f; echo new >f"));
    assert!(wait_until(PATIENCE, || listed(&tree).len() == 1), "{:?}", listed(&tree));
    let (id, root) = (only(&tree), tree.root().display().to_string());
    let elsewhere = tree.scratch().to_string_lossy().into_owned();
    let (code, _, told) = in_dir(&tree, &elsewhere, &["attic", "restore", "-w", &root, &id]);
    assert_eq!(code, Some(1), "{told}");
    for word in ["diff", "restore"] {
        assert!(
            told.contains(&format!("unclobber attic {word} -w {root} {id}")),
            "{told}"
        );
    }
    assert!(fails(&tree, &["attic", "restore", &id]).contains(&format!("unclobber attic diff {id};")));
}

// semantics: A5
#[test]
fn below_the_guarded_directory_its_attic_is_found_or_named() {
    let Some((tree, mut a)) = guarded("below", &[]) else {
        return;
    };
    fine(&a.sh("mkdir d; rm f"));
    assert!(wait_until(PATIENCE, || listed(&tree).len() == 1), "{:?}", listed(&tree));
    let (id, root) = (only(&tree), tree.root().display().to_string());
    let (code, list, told) = in_dir(&tree, "d", &["attic", "list"]);
    assert!(
        code == Some(0) && list.contains(&id) && told.contains(&root),
        "{list}{told}"
    );
    assert_eq!(in_dir(&tree, "d", &["attic", "show", &id]).1, OLD);
    // What changes something takes the directory that was meant.
    let (code, _, told) = in_dir(&tree, "d", &["undo"]);
    assert!(
        code == Some(1) && told.contains(&format!("unclobber undo {root}")),
        "{told}"
    );
    let (_, done, told) = in_dir(&tree, "d", &["attic", "prune", "--all"]);
    assert!(
        done.starts_with("dropped 0") && told.contains(&format!("-w {root}")),
        "{done}{told}"
    );
    assert_eq!(only(&tree), id);
}

// semantics: A10 D6
#[test]
fn a_file_removed_and_made_anew_was_replaced_and_is_said_to_be_kept() {
    let Some((tree, mut a)) = guarded_with("remove and create", &[], |tree| tree.write("g", OLD)) else {
        return;
    };
    fine(&a.sh("rm f; echo new >f; rm g"));
    let mut b = Session::guarded(&tree, "b", &[]);
    fine(&b.sh("! cat g; echo theirs >g"));
    let root = tree.root().display().to_string();
    let said = a.close();
    let line = said.iter().find(|line| line.contains("removed or replaced"));
    let line = line.unwrap_or_else(|| panic!("{said:?}"));
    assert!(
        line.contains("2 unread files were ") && line.contains("unclobber attic list"),
        "{line}"
    );
    // Of what somebody else has made since, nothing is touched.
    let done = run(&tree, &["undo", "--last", "2", &root]);
    let (out, told) = (
        String::from_utf8_lossy(&done.stdout).into_owned(),
        String::from_utf8_lossy(&done.stderr).into_owned(),
    );
    assert!(out.starts_with("restored f; what was there is kept as "), "{out}{told}");
    assert!(told.contains("as g") && told.contains("something is there"), "{told}");
    assert_eq!(
        (tree.read("f").as_deref(), tree.read("g").as_deref()),
        (Some(OLD), Some("theirs\n"))
    );
    // What has displaced nothing says nothing.
    assert!(
        !b.close()
            .iter()
            .any(|line| line.contains("are kept") || line.contains("is kept"))
    );
}

// semantics: A5
#[test]
fn directories_that_have_gone_come_back_as_they_were_or_private() {
    let set = |tree: &Tree, name: &str, mode| {
        fs::set_permissions(tree.at(name), fs::Permissions::from_mode(mode)).expect("chmod");
    };
    let fill = |tree: &Tree| {
        tree.write("d/secret/g", OLD);
        tree.write("e/h", OLD);
        set(tree, "d", 0o2751);
        set(tree, "d/secret", 0o700);
        if nix::unistd::geteuid().is_root() {
            std::os::unix::fs::chown(tree.at("d/secret"), Some(1234), Some(4321)).expect("chown");
        }
    };
    let Some((tree, mut a)) = guarded_with("directories", &[], fill) else {
        return;
    };
    let mode = |name: &str| fs::metadata(tree.at(name)).expect("there").mode() & 0o7777;
    let before = fs::metadata(tree.at("d/secret")).expect("there");
    fine(&a.sh("rm -r d e"));
    assert!(wait_until(PATIENCE, || listed(&tree).len() == 2), "{:?}", listed(&tree));
    drop(a);
    // Where nothing was noted about them they are for nobody else, and that is said.
    let journal = home(&tree).join("kept.jsonl");
    let text = fs::read_to_string(&journal).expect("the journal");
    let lines = text.lines().map(|line| match line.contains("e/h") {
        true => line.replace("\"dirs\"", "\"other\"") + "\n",
        false => line.to_owned() + "\n",
    });
    fs::write(&journal, lines.collect::<String>()).expect("the journal");
    let done = run(&tree, &["undo", "--last", "2"]);
    let told = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(told.contains("directory e was made again with mode 0700"), "{told}");
    assert!(!told.contains("directory d"), "{told}");
    let after = fs::metadata(tree.at("d/secret")).expect("there");
    assert_eq!((mode("d"), mode("d/secret"), mode("e")), (0o2751, 0o700, 0o700));
    assert_eq!((after.uid(), after.gid()), (before.uid(), before.gid()));
}
