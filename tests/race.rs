//! Races, forced at fault points: an outsider acts between judgement and change, and nobody's work is destroyed.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::stat::Mode;
use support::Tree;
use unclobber::faults::{self, Armed, point};
use unclobber::guard::{CacheRule, CreateRule, Policy};

const PATIENCE: Duration = Duration::from_secs(5);

/// Fault points belong to the process: one test at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Runs `action` the first time the point is reached.
fn once(point: &'static str, action: impl Fn() + Send + Sync + 'static) -> Armed {
    let done = AtomicBool::new(false);
    faults::arm(point, move || {
        if !done.swap(true, Ordering::SeqCst) {
            action();
        }
    })
}

fn errno(result: std::io::Result<()>) -> Option<Errno> {
    result.err().and_then(|error| error.raw_os_error()).map(Errno::from_raw)
}

fn text(path: impl AsRef<Path>) -> String {
    let mut text = String::new();
    File::open(path).unwrap().read_to_string(&mut text).unwrap();
    text
}

/// Everything in the attic, as texts.
fn kept(tree: &Tree) -> Vec<String> {
    let Ok(entries) = fs::read_dir(tree.backing.join(".unclobber/attic")) else {
        return Vec::new();
    };
    entries.map(|entry| text(entry.unwrap().path())).collect()
}

fn create_and_sync(path: &Path, content: &str) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(content.as_bytes())?;
    file.sync_all()
}

// semantics: S1 S3 S5
#[test]
fn a_publication_lost_to_an_outsider_leaves_the_winner_and_keeps_the_loser() {
    let _alone = alone();
    let mut tree = Tree::new(|_| ());
    let a = tree.owner("a");
    let name = tree.backing.join("f");
    let _armed = once(point::PUBLISH_BEFORE_LINK, move || {
        fs::write(&name, "outsider").unwrap()
    });
    assert_eq!(errno(create_and_sync(&a.join("f"), "mine")), Some(Errno::EEXIST));
    assert_eq!(text(tree.backing.join("f")), "outsider");
    assert_eq!(text(a.join("f")), "outsider");
    assert_eq!(kept(&tree), ["mine"]);
    let refusals = tree.refusals();
    assert_eq!(refusals.len(), 1, "{refusals:?}");
    assert!(refusals[0].contains("FS_NOT_OBSERVED"), "{refusals:?}");
    assert!(refusals[0].ends_with("read the file, then retry"), "{refusals:?}");
    // The step: reading it (done above), then the retry.
    fs::write(a.join("f"), "mine").unwrap();
    assert_eq!(text(tree.backing.join("f")), "mine");
}

#[test]
fn a_winner_that_is_no_file_is_never_to_be_read_first() {
    let _alone = alone();
    type Win = fn(&Path);
    let winners: [(&str, Win, Errno); 3] = [
        ("directory", |path| fs::create_dir(path).unwrap(), Errno::EISDIR),
        (
            "fifo",
            |path| nix::unistd::mkfifo(path, Mode::S_IRWXU).unwrap(),
            Errno::EEXIST,
        ),
        (
            "dangling symlink",
            |path| symlink("nowhere", path).unwrap(),
            Errno::EEXIST,
        ),
    ];
    for (what, win, expected) in winners {
        for at in [point::PUBLISH_BEFORE_LINK, point::CREATE_BEFORE_CLAIM] {
            let mut tree = Tree::new(|_| ());
            let create = if at == point::CREATE_BEFORE_CLAIM {
                CreateRule::Direct
            } else {
                CreateRule::Staged
            };
            let policy = Policy {
                create,
                ..Policy::default()
            };
            let a = tree.owner_with("a", policy);
            let name = tree.backing.join("f");
            let _armed = once(at, move || win(&name));
            assert_eq!(
                errno(create_and_sync(&a.join("f"), "mine")),
                Some(expected),
                "{what} at {at}"
            );
            let refusals = tree.refusals();
            assert_eq!(refusals.len(), 1, "{what} at {at}: {refusals:?}");
            assert!(refusals[0].contains("FS_NOT_REGULAR_FILE"), "{refusals:?}");
            assert!(!refusals[0].contains("read the file"), "{refusals:?}");
            assert!(refusals[0].ends_with("choose another name"), "{refusals:?}");
            create_and_sync(&a.join("another"), "mine").expect("under another name");
            assert!(
                fs::symlink_metadata(tree.backing.join("f")).unwrap().file_type()
                    != fs::metadata(file!()).unwrap().file_type()
            );
        }
    }
}

// semantics: E5 E7 S5
#[test]
fn where_the_directory_has_gone_the_filesystem_says_so() {
    let _alone = alone();
    let mut tree = Tree::new(|backing| fs::create_dir(backing.join("d")).unwrap());
    let a = tree.owner("a");
    let dir = tree.backing.join("d");
    let armed = once(point::PUBLISH_BEFORE_LINK, move || fs::remove_dir(&dir).unwrap());
    assert_eq!(errno(create_and_sync(&a.join("d/f"), "mine")), Some(Errno::ENOENT));
    drop(armed);
    assert_eq!(kept(&tree), ["mine"]);
    let refusals = tree.refusals();
    assert_eq!(refusals.len(), 1, "{refusals:?}");
    assert!(
        refusals[0].contains("d/f: FS_IO_ERROR (No such file or directory)")
            && refusals[0].contains("is kept in the attic as"),
        "{refusals:?}"
    );
    // The step: what was wrong below is put right, then the retry.
    fs::create_dir(tree.backing.join("d")).unwrap();
    create_and_sync(&a.join("d/f"), "mine").unwrap();
    assert_eq!(text(tree.backing.join("d/f")), "mine");
}

// semantics: S5
#[test]
fn what_is_written_after_the_name_was_lost_is_kept_and_told() {
    let _alone = alone();
    type Loss = fn(&Path);
    let losses: [(Loss, &str); 2] = [
        (|dir| fs::remove_dir(dir).unwrap(), "FS_IO_ERROR"),
        (|dir| fs::write(dir.join("f"), "outsider").unwrap(), "FS_NOT_OBSERVED"),
    ];
    for (lose, code) in losses {
        let mut tree = Tree::new(|backing| fs::create_dir(backing.join("d")).unwrap());
        let a = tree.owner("a");
        let dir = File::open(a.join("d")).unwrap();
        let mut file = File::create(a.join("d/f")).unwrap();
        lose(&tree.backing.join("d"));
        // Whoever syncs the directory publishes what waits in it: it is still empty.
        assert!(dir.sync_all().is_err(), "{code}");
        assert_eq!(kept(&tree), [""; 0], "{code}");
        // Where the kernel moves the data by itself this is no request.
        let written = file.write_all(b"late");
        let synced = file.sync_all();
        assert!(synced.is_err(), "{code}");
        drop(file);
        let refusals = tree.refusals();
        assert!(refusals.iter().all(|line| line.contains(code)), "{refusals:?}");
        if written.is_ok() {
            assert_eq!(kept(&tree), ["late"], "{code}");
            let last = refusals.last().unwrap();
            assert!(last.contains("is kept in the attic as"), "{refusals:?}");
        } else {
            assert!(!refusals.is_empty(), "{code}");
        }
    }
}

/// The name is taken whenever it is to be bound, and nothing is there whenever it is looked at.
// semantics: S5
#[test]
fn a_name_that_comes_and_goes_is_an_error_of_the_filesystem() {
    let _alone = alone();
    let mut tree = Tree::new(|_| ());
    let a = tree.owner("a");
    let name = tree.backing.join("f");
    let taken = name.clone();
    let comes = faults::arm(point::PUBLISH_BEFORE_LINK, move || {
        fs::write(&taken, "outsider").unwrap()
    });
    let goes = faults::arm(point::NAME_BEFORE_LOOK, move || drop(fs::remove_file(&name)));
    assert_eq!(errno(create_and_sync(&a.join("f"), "mine")), Some(Errno::EIO));
    drop((comes, goes));
    assert_eq!(kept(&tree), ["mine"]);
    let refusals = tree.refusals();
    assert_eq!(refusals.len(), 1, "{refusals:?}");
    assert!(refusals[0].contains("FS_IO_ERROR"), "{refusals:?}");
    assert!(
        refusals[0].ends_with("check the underlying filesystem, then retry"),
        "{refusals:?}"
    );
    // The step: nobody disturbs it any more. Then the retry.
    create_and_sync(&a.join("f"), "mine").unwrap();
    assert_eq!(text(tree.backing.join("f")), "mine");
}

#[test]
fn a_name_claimed_by_an_outsider_is_left_to_it() {
    let _alone = alone();
    let mut tree = Tree::new(|_| ());
    let a = tree.owner("a");
    let name = tree.backing.join("f");
    let armed = once(point::CREATE_BEFORE_CLAIM, move || {
        fs::write(&name, "outsider").unwrap()
    });
    let made = OpenOptions::new().write(true).create_new(true).open(a.join("f"));
    assert_eq!(errno(made.map(drop)), Some(Errno::EEXIST));
    assert_eq!(text(tree.backing.join("f")), "outsider");
    drop(armed);
    let policy = Policy {
        create: CreateRule::Direct,
        ..Policy::default()
    };
    let b = tree.owner_with("b", policy);
    let name = tree.backing.join("g");
    let _armed = once(point::CREATE_BEFORE_CLAIM, move || {
        fs::write(&name, "outsider").unwrap()
    });
    assert_eq!(errno(fs::write(b.join("g"), "mine")), Some(Errno::EEXIST));
    assert_eq!(text(tree.backing.join("g")), "outsider");
}

fn in_place(path: &Path) {
    let mut file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all(b"OUT").unwrap();
}

fn by_rename(path: &Path) {
    let other = path.with_extension("outsider");
    fs::write(&other, "OUT").unwrap();
    fs::rename(other, path).unwrap();
}

type Change = fn(&Path);
const CHANGES: [(&str, Change); 2] = [("in place", in_place), ("by rename", by_rename)];

#[test]
fn a_truncating_replace_never_destroys_what_an_outsider_slips_in() {
    let _alone = alone();
    for (how, change) in CHANGES {
        let mut tree = Tree::new(|dir| fs::write(dir.join("f"), "one").unwrap());
        let a = tree.owner("a");
        assert_eq!(text(a.join("f")), "one");
        let name = tree.backing.join("f");
        let _armed = once(point::REPLACE_BEFORE_TRUNCATE, move || change(&name));
        let replaced = fs::write(a.join("f"), "mine");
        assert_eq!(errno(replaced), Some(Errno::ESTALE), "{how}");
        assert_eq!(text(tree.backing.join("f")), "OUT", "{how}");
        let refusals = tree.refusals();
        assert_eq!(refusals.len(), 1, "{how}: {refusals:?}");
        assert!(refusals[0].ends_with("read the file again, then retry"), "{refusals:?}");
        assert_eq!(text(a.join("f")), "OUT");
        fs::write(a.join("f"), "mine").unwrap();
        assert_eq!(text(tree.backing.join("f")), "mine");
    }
}

#[test]
fn a_rename_over_never_destroys_what_an_outsider_slips_in() {
    let _alone = alone();
    for (how, change) in CHANGES {
        let mut tree = Tree::new(|dir| fs::write(dir.join("f"), "one").unwrap());
        let a = tree.owner("a");
        assert_eq!(text(a.join("f")), "one");
        fs::write(a.join("t"), "mine").unwrap();
        let name = tree.backing.join("f");
        let _armed = once(point::RENAME_BEFORE_EXCHANGE, move || change(&name));
        assert_eq!(
            errno(fs::rename(a.join("t"), a.join("f"))),
            Some(Errno::ESTALE),
            "{how}"
        );
        assert_eq!(text(tree.backing.join("f")), "OUT", "{how}");
        assert_eq!(text(tree.backing.join("t")), "mine", "{how}");
        assert_eq!(tree.refusals().len(), 1, "{how}: {:?}", tree.refusals());
        assert_eq!(text(a.join("f")), "OUT");
        fs::rename(a.join("t"), a.join("f")).unwrap();
        assert_eq!(text(tree.backing.join("f")), "mine");
        assert!(!tree.backing.join("t").exists());
    }
}

#[test]
fn a_rename_overtaken_within_the_exchange_loses_nothing() {
    let _alone = alone();
    for (how, change) in CHANGES {
        let mut tree = Tree::new(|dir| fs::write(dir.join("f"), "one").unwrap());
        let a = tree.owner("a");
        assert_eq!(text(a.join("f")), "one");
        fs::write(a.join("t"), "mine").unwrap();
        let name = tree.backing.join("f");
        let _armed = once(point::RENAME_AFTER_EXCHANGE, move || change(&name));
        fs::rename(a.join("t"), a.join("f")).unwrap();
        // The outsider came after the rename: its version stands, and what the rename displaced is kept.
        assert!(text(tree.backing.join("f")).starts_with("OUT"), "{how}");
        assert_eq!(kept(&tree), ["one"], "{how}");
    }
}

/// What a guard that is killed in the exchange leaves is enough to finish it.
// semantics: A7 S8
#[test]
fn what_a_rename_displaces_is_noted_before() {
    let _alone = alone();
    let mut tree = Tree::new(|dir| fs::write(dir.join("f"), "one").unwrap());
    let a = tree.owner("a");
    assert_eq!(text(a.join("f")), "one");
    fs::write(a.join("t"), "mine").unwrap();
    let (journal, noted) = (tree.backing.join(".unclobber/kept.jsonl"), tree.backing.join("noted"));
    let copy = noted.clone();
    let _armed = once(point::RENAME_AFTER_EXCHANGE, move || {
        fs::copy(&journal, &copy).unwrap();
    });
    fs::rename(a.join("t"), a.join("f")).unwrap();
    let note: serde_json::Value = serde_json::from_str(&text(noted)).unwrap();
    let found = fs::metadata(tree.backing.join("f")).unwrap();
    assert_eq!(
        (note["path"].as_str(), note["renamed"]["from"].as_str()),
        (Some("f"), Some("t"))
    );
    assert_eq!(note["renamed"]["source"], std::os::unix::fs::MetadataExt::ino(&found));
    assert_eq!(kept(&tree), ["one"]);
}

// semantics: S8
#[test]
fn a_rename_stays_a_success_when_nothing_can_be_kept() {
    let _alone = alone();
    let mut tree = Tree::new(|dir| fs::write(dir.join("f"), "one").unwrap());
    let a = tree.owner("a");
    assert_eq!(text(a.join("f")), "one");
    fs::write(a.join("t"), "mine").unwrap();
    let home = tree.backing.join(".unclobber");
    let _armed = once(point::RENAME_AFTER_EXCHANGE, move || {
        if home.exists() {
            fs::remove_dir_all(&home).unwrap();
        }
        fs::create_dir(&home).unwrap();
        fs::write(home.join("attic"), "no directory").unwrap();
    });
    fs::rename(a.join("t"), a.join("f")).unwrap();
    assert_eq!(text(tree.backing.join("f")), "mine");
    assert!(!tree.backing.join("t").exists());
}

#[test]
fn a_target_that_appears_is_not_renamed_over() {
    let _alone = alone();
    let mut tree = Tree::new(|_| ());
    let a = tree.owner("a");
    fs::write(a.join("t"), "mine").unwrap();
    let name = tree.backing.join("f");
    let _armed = once(point::RENAME_BEFORE_EXCHANGE, move || {
        fs::write(&name, "outsider").unwrap()
    });
    assert_eq!(errno(fs::rename(a.join("t"), a.join("f"))), Some(Errno::EEXIST));
    assert_eq!(text(tree.backing.join("f")), "outsider");
    assert_eq!(text(tree.backing.join("t")), "mine");
}

#[test]
fn a_removal_never_destroys_what_an_outsider_slips_in() {
    let _alone = alone();
    for (how, change) in CHANGES {
        let mut tree = Tree::new(|dir| fs::write(dir.join("f"), "one").unwrap());
        let a = tree.owner("a");
        assert_eq!(text(a.join("f")), "one");
        let name = tree.backing.join("f");
        let _armed = once(point::UNLINK_BEFORE_REMOVE, move || change(&name));
        assert_eq!(errno(fs::remove_file(a.join("f"))), Some(Errno::ESTALE), "{how}");
        assert_eq!(text(tree.backing.join("f")), "OUT", "{how}");
        assert_eq!(text(a.join("f")), "OUT");
        fs::remove_file(a.join("f")).unwrap();
        assert!(!tree.backing.join("f").exists());
    }
}

// semantics: D23 A1
#[test]
fn a_further_name_that_becomes_the_last_one_meanwhile_is_kept() {
    let _alone = alone();
    for made in ["by another owner", "before"] {
        let mut tree = Tree::new(|dir| fs::write(dir.join("f"), "one").unwrap());
        let (a, b) = (tree.owner("a"), tree.owner("b"));
        if made == "by another owner" {
            assert_eq!(text(b.join("f")), "one");
            fs::write(b.join("f"), "two").unwrap();
        }
        fs::hard_link(a.join("f"), a.join("l")).unwrap();
        let other = tree.backing.join("f");
        let _armed = once(point::UNLINK_BEFORE_REMOVE, move || fs::remove_file(&other).unwrap());
        fs::remove_file(a.join("l")).unwrap();
        let content = if made == "before" { "one" } else { "two" };
        assert!(kept(&tree).contains(&content.to_owned()), "{made}: {:?}", kept(&tree));
    }
}

/// The kernel takes the directory it has looked up for the one that is replaced or removed, and for dead from then on.
#[test]
fn a_directory_that_an_outsider_moves_away_in_time_stays_alive() {
    let _alone = alone();
    let mut tree = Tree::new(|dir| {
        for name in ["one", "target", "late", "removed", "other"] {
            fs::create_dir(dir.join(name)).unwrap();
        }
        fs::write(dir.join("one/f"), "f").unwrap();
    });
    let m = tree.owner("a");
    let move_away = |from: &str, to: &str, then: &'static str| {
        let (from, to, root) = (tree.backing.join(from), tree.backing.join(to), tree.backing.clone());
        move || {
            fs::rename(&from, &to).unwrap();
            if !then.is_empty() {
                fs::rename(root.join(then), &from).unwrap();
            }
        }
    };
    // Somebody has them open: the kernel cannot forget them meanwhile.
    let held = ["target", "late", "removed"].map(|name| File::open(m.join(name)).unwrap());
    let armed = once(point::RENAME_ARRIVED, move_away("target", "moved", ""));
    fs::rename(m.join("one"), m.join("target")).unwrap();
    drop(armed);
    let armed = once(point::RENAME_BEFORE_PLAIN, move_away("late", "moved late", ""));
    fs::rename(m.join("target"), m.join("late")).unwrap();
    drop(armed);
    let armed = once(point::RMDIR_ARRIVED, move_away("removed", "kept", "other"));
    fs::remove_dir(m.join("removed")).unwrap();
    drop(armed);
    for name in ["moved", "moved late", "kept"] {
        fs::write(m.join(name).join("g"), "g").unwrap();
        assert_eq!(fs::read_dir(m.join(name)).unwrap().count(), 1, "{name}");
    }
    drop(held);
    assert_eq!(text(m.join("late/f")), "f");
    assert!(!tree.backing.join("removed").exists());
}

// semantics: O8 D9
#[test]
fn a_second_look_in_a_creating_call_is_no_observation_while_the_kernel_is_told_to_forget() {
    let _alone = alone();
    let mut tree = Tree::new(|backing| fs::write(backing.join("f"), "old").unwrap());
    let (a, b) = (tree.owner("a"), tree.owner("b"));
    assert_eq!((text(a.join("f")), text(b.join("f"))), ("old".into(), "old".into()));
    let (begun, begins) = crossbeam_channel::unbounded();
    let (looked, looks) = crossbeam_channel::unbounded();
    let (forgot, forgets) = crossbeam_channel::unbounded();
    // The kernel looks b's name up once more while it is told to forget it, and finds that out of date in between.
    let forced = [
        once(point::CACHE_BEFORE_FORGET, move || {
            begun.send(()).unwrap();
            looks.recv_timeout(PATIENCE).unwrap();
        }),
        once(point::CACHE_FORGOTTEN, move || forgot.send(()).unwrap()),
    ];
    fs::remove_file(a.join("f")).unwrap();
    let guard = std::sync::Arc::clone(&tree.guard);
    let settling = std::thread::spawn(move || guard.settle_caches());
    begins.recv_timeout(PATIENCE).unwrap();
    let looking = once(point::LOOKUP_ARRIVED, move || {
        looked.send(()).unwrap();
        forgets.recv_timeout(PATIENCE).unwrap();
    });
    let written = fs::write(b.join("f"), "mine");
    settling.join().unwrap();
    drop((forced, looking));
    assert_eq!(errno(written), Some(Errno::ESTALE), "b was not told that f has gone");
    assert!(File::open(b.join("f")).is_err());
    fs::write(b.join("f"), "mine").unwrap();
}

// semantics: O10 V8 D8
#[test]
fn what_an_outsider_writes_after_the_close_is_not_put_down_to_who_closed() {
    type Change = fn(&Path) -> std::io::Result<()>;
    let changes: [Change; 2] = [|file| fs::write(file, "mine"), |file| fs::remove_file(file)];
    let _alone = alone();
    for cache in [CacheRule::Strict, CacheRule::Coherent] {
        for change in changes {
            let mut tree = Tree::new(|_| ());
            let a = tree.owner_with(
                "a",
                Policy {
                    cache,
                    ..Policy::default()
                },
            );
            // The kernel tells the last close when it likes.
            let (tell, told) = crossbeam_channel::bounded::<()>(1);
            let held = once(point::RELEASE_ARRIVED, move || {
                let _told_or_failed = told.recv_timeout(PATIENCE);
            });
            fs::write(a.join("f"), "own").unwrap();
            fs::write(tree.backing.join("f"), "outsider").unwrap();
            assert_eq!(errno(change(&a.join("f"))), Some(Errno::ESTALE), "{cache:?}");
            assert_eq!(text(tree.backing.join("f")), "outsider", "{cache:?}");
            tell.send(()).unwrap();
            drop(held);
            assert_eq!(text(a.join("f")), "outsider");
            assert_eq!(errno(change(&a.join("f"))), None, "{cache:?}: the step was taken");
        }
    }
}

#[test]
fn ten_thousand_creations_against_an_outsider() {
    let _alone = alone();
    let mut tree = Tree::new(|_| ());
    let a = tree.owner("a");
    let backing = tree.backing.clone();
    let (start, starts) = crossbeam_channel::bounded::<u32>(0);
    let (end, ends) = crossbeam_channel::bounded::<bool>(0);
    let outsider = std::thread::spawn(move || {
        for round in starts {
            let path = backing.join(format!("f{round}"));
            let made = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&path);
            let won = made.is_ok_and(|mut file| file.write_all(b"outsider").is_ok());
            end.send(won).unwrap();
        }
    });
    let (mut wins, mut losses) = (0, 0);
    for round in 0..10_000 {
        start.send(round).unwrap();
        let mine = create_and_sync_quickly(&a.join(format!("f{round}")));
        let theirs = ends.recv().unwrap();
        let path = tree.backing.join(format!("f{round}"));
        let content = text(&path);
        assert!(
            !(mine && theirs),
            "both believe they made f{round}, which holds {content:?}"
        );
        assert_eq!(content, if theirs { "outsider" } else { "mine" }, "f{round}");
        if theirs {
            losses += 1
        } else {
            wins += 1
        }
        fs::remove_file(&path).unwrap();
    }
    println!("won {wins}, lost {losses}");
    drop(start);
    outsider.join().unwrap();
}

/// `open(O_CREAT | O_TRUNC)` without `O_EXCL`, as a shell does it; whether all of it succeeded.
fn create_and_sync_quickly(path: &Path) -> bool {
    let Ok(mut file) = File::create(path) else { return false };
    if file.write_all(b"mine").is_err() {
        return false;
    }
    nix::unistd::close(file).is_ok()
}
