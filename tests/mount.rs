//! The guard on real mounts, served inside the test process.

mod support;

use std::fs;
use std::io::{Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use support::Tree;
use unclobber::guard::{Mode, Policy, RemoveRule, UnseenRule};
use unclobber::store::AtticLimits;

#[test]
fn a_mount_shows_the_tree_and_takes_new_files() {
    let mut tree = Tree::new(|dir| {
        fs::create_dir(dir.join("d")).unwrap();
        fs::write(dir.join("d/f"), "hello").unwrap();
    });
    let a = tree.owner("a");
    assert_eq!(fs::read_to_string(a.join("d/f")).unwrap(), "hello");
    assert_eq!(
        fs::metadata(a.join("d/f")).unwrap().ino(),
        fs::metadata(tree.backing.join("d/f")).unwrap().ino()
    );
    fs::write(a.join("new"), "content").unwrap();
    assert_eq!(fs::read_to_string(tree.backing.join("new")).unwrap(), "content");
    let mut file = fs::File::create_new(a.join("staged")).unwrap();
    file.write_all(b"x").unwrap();
    drop(file);
    let mut names: Vec<_> = fs::read_dir(&a)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["d", "new", "staged"]);
}

#[test]
fn the_recovery_chain() {
    let mut tree = Tree::new(|dir| fs::write(dir.join("f"), "one").unwrap());
    let a = tree.owner("a");
    let f = a.join("f");
    assert_eq!(fs::write(&f, "blind").unwrap_err().raw_os_error(), Some(libc_eexist()));
    assert_eq!(fs::read_to_string(tree.backing.join("f")).unwrap(), "one");
    let mut text = String::new();
    fs::File::open(&f).unwrap().read_to_string(&mut text).unwrap();
    fs::write(&f, "two").unwrap();
    fs::remove_file(tree.backing.join("f")).unwrap();
    assert_eq!(fs::write(&f, "three").unwrap_err().raw_os_error(), Some(116));
    assert!(!tree.backing.join("f").exists());
    assert_eq!(fs::read(&f).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    fs::write(&f, "four").unwrap();
    assert_eq!(fs::read_to_string(tree.backing.join("f")).unwrap(), "four");
    for line in tree.refusals() {
        println!("{line}");
    }
    assert_eq!(tree.refusals().len(), 2);
}

#[test]
fn a_mount_that_observes_reports_every_change_it_would_refuse() {
    let mut tree = Tree::new(|dir| fs::write(dir.join("f"), "one").unwrap());
    let a = tree.owner_with(
        "a",
        Policy {
            mode: Mode::Observe,
            ..Policy::default()
        },
    );
    let f = a.join("f");
    assert_eq!(fs::read_to_string(&f).unwrap(), "one");
    for round in 1..=3 {
        fs::write(tree.backing.join("f"), format!("outsider {round}")).unwrap();
        fs::write(&f, "mine").unwrap();
        assert_eq!(tree.refusals().len(), round, "{:?}", tree.refusals());
    }
}

#[test]
fn a_file_that_loses_one_of_its_names_to_a_rename_is_not_changed() {
    let mut tree = Tree::new(|dir| {
        fs::write(dir.join("f"), "one").unwrap();
        fs::hard_link(dir.join("f"), dir.join("g")).unwrap();
    });
    let (a, b) = (tree.owner("a"), tree.owner("b"));
    for mount in [&a, &b] {
        assert_eq!(fs::read_to_string(mount.join("f")).unwrap(), "one");
    }
    fs::write(a.join("t"), "two").unwrap();
    fs::rename(a.join("t"), a.join("f")).unwrap();
    // The content both have read is still at the other name.
    fs::write(b.join("g"), "three").unwrap();
    assert_eq!(fs::read_to_string(tree.backing.join("g")).unwrap(), "three");
    assert_eq!(tree.refusals(), Vec::<String>::new());
}

#[test]
fn a_file_that_loses_one_of_its_names_to_an_unlink_is_not_changed() {
    for mode in [Mode::Enforce, Mode::Observe] {
        let mut tree = Tree::new(|dir| {
            fs::write(dir.join("f"), "one").unwrap();
            fs::hard_link(dir.join("f"), dir.join("g")).unwrap();
        });
        let (a, b) = (
            tree.owner_with(
                "a",
                Policy {
                    mode,
                    ..Policy::default()
                },
            ),
            tree.owner("b"),
        );
        assert_eq!(fs::read_to_string(b.join("g")).unwrap(), "one");
        fs::remove_file(a.join("f")).unwrap();
        fs::write(b.join("g"), "two").unwrap();
        assert_eq!(tree.refusals(), Vec::<String>::new(), "{mode:?}");
    }
}

#[test]
fn a_change_through_a_handle_does_not_bind_the_name_that_was_its_file_s() {
    let mut tree = Tree::new(|dir| fs::write(dir.join("f"), "one").unwrap());
    let a = tree.owner("a");
    let mut held = fs::OpenOptions::new().write(true).open(a.join("f")).unwrap();
    assert_eq!(fs::read_to_string(a.join("f")).unwrap(), "one");
    fs::rename(a.join("f"), a.join("g")).unwrap();
    held.write_all(b"two").unwrap();
    // The owner itself took the name away: it is free to be used again.
    fs::write(a.join("f"), "three").unwrap();
    assert_eq!(tree.refusals(), Vec::<String>::new());
}

// semantics: O5
#[test]
fn an_owner_that_removes_what_is_no_file_knows_that_the_name_is_free() {
    let mut tree = Tree::new(|dir| {
        fs::create_dir(dir.join("d")).unwrap();
        std::os::unix::fs::symlink("nowhere", dir.join("l")).unwrap();
    });
    let a = tree.owner("a");
    fs::rename(a.join("l"), a.join("f")).unwrap();
    fs::remove_file(a.join("f")).unwrap();
    fs::write(a.join("f"), "one").unwrap();
    fs::rename(a.join("d"), a.join("g")).unwrap();
    fs::remove_dir(a.join("g")).unwrap();
    fs::write(a.join("g"), "one").unwrap();
    assert_eq!(tree.refusals(), Vec::<String>::new());
}

// semantics: D9
#[test]
fn a_name_read_through_a_handle_that_needs_no_judgement_is_known() {
    let mut tree = Tree::new(|dir| {
        fs::write(dir.join("f"), "one").unwrap();
        fs::hard_link(dir.join("f"), dir.join("g")).unwrap();
    });
    let a = tree.owner("a");
    assert_eq!(fs::read_to_string(a.join("f")).unwrap(), "one");
    let mut text = String::new();
    fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(a.join("g"))
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    assert_eq!(text, "one");
    fs::remove_file(tree.backing.join("g")).unwrap();
    assert_eq!(fs::write(a.join("g"), "two").unwrap_err().raw_os_error(), Some(116));
}

// semantics: O8 D9
#[test]
fn a_lookup_of_a_renamed_name_inside_a_creating_call_is_no_observation() {
    for taken in [false, true] {
        let mut tree = Tree::new(|dir| {
            if taken {
                fs::write(dir.join("f"), "one").unwrap();
            }
        });
        let a = tree.owner("a");
        if taken {
            assert_eq!(fs::read_to_string(a.join("f")).unwrap(), "one");
        }
        fs::write(a.join("t"), "two").unwrap();
        fs::rename(a.join("t"), a.join("f")).unwrap();
        fs::remove_file(tree.backing.join("f")).unwrap();
        assert_eq!(
            fs::write(a.join("f"), "three").unwrap_err().raw_os_error(),
            Some(116),
            "taken: {taken}"
        );
        assert_eq!(fs::read(a.join("f")).unwrap_err().kind(), std::io::ErrorKind::NotFound);
        fs::write(a.join("f"), "three").unwrap();
    }
}

fn libc_eexist() -> i32 {
    17
}

fn text(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).expect("a text")
}

fn open_rw(path: impl AsRef<Path>) -> fs::File {
    fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .expect("a handle")
}

// semantics: D17 O10
#[test]
fn an_edit_is_judged_when_it_is_made() {
    let mut tree = Tree::new(|dir| fs::write(dir.join("f"), "one").unwrap());
    let (a, b) = (tree.owner("a"), tree.owner("b"));
    let outsider = tree.backing.join("f");
    let by_b = || {
        assert!(!text(b.join("f")).is_empty());
        fs::write(b.join("f"), "from b").unwrap();
    };
    let by_outsider = || fs::write(&outsider, "outside").unwrap();
    for change in [&by_b as &dyn Fn(), &by_outsider] {
        // Current when it was opened and read, and nobody else knew the file; then somebody changes it.
        let mut file = open_rw(a.join("f"));
        let mut seen = String::new();
        file.read_to_string(&mut seen).unwrap();
        change();
        let now = text(&outsider);
        assert_eq!(errno(file.write_all(b"lost")), Some(116));
        assert_eq!(text(&outsider), now);
        // The step, through the same handle.
        file.seek(std::io::SeekFrom::Start(0)).unwrap();
        file.read_to_string(&mut seen).unwrap();
        file.seek(std::io::SeekFrom::Start(0)).unwrap();
        file.write_all(b"edit").unwrap();
        file.write_all(b"ed").unwrap();
        drop(file);
        assert!(text(&outsider).starts_with("edited"));
    }
}

// semantics: O10 A1
#[test]
fn a_view_that_is_only_presumed_loses_nothing() {
    let mut tree = Tree::new(|dir| fs::write(dir.join("f"), "one").unwrap());
    let a = tree.owner("a");
    assert_eq!(text(a.join("f")), "one");
    // It may have been mapped and stored to; here it was an outsider.
    let file = open_rw(a.join("f"));
    fs::write(tree.backing.join("f"), "outside").unwrap();
    drop(file);
    match fs::write(a.join("f"), "mine") {
        Ok(()) => assert_eq!(kept(&tree), ["outside"]),
        // Where the daemon moves the data there is no mapping that it does not hear of.
        Err(error) => assert_eq!(error.raw_os_error(), Some(116)),
    }
    fs::write(a.join("f"), "more").unwrap();
    assert_eq!(kept(&tree).len(), 1, "what it made itself is not kept");
}

// semantics: D19
#[test]
fn what_may_be_mapped_unseen_is_kept_first() {
    let mut tree = Tree::new(|dir| {
        fs::write(dir.join("f"), "one").unwrap();
        fs::write(dir.join("g"), "two").unwrap();
    });
    let a = tree.owner("a");
    let script = "import mmap, sys\nf = open(sys.argv[1], 'r+b')\nm = mmap.mmap(f.fileno(), 0)\nm[0:1] = b'X'";
    let map = |name: &str| {
        let path = a.join(name);
        std::process::Command::new("python3")
            .args(["-c", script])
            .arg(path)
            .output()
            .unwrap()
    };
    let refused = map("f");
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("No such device"),
        "{refused:?}"
    );
    assert_eq!(text(tree.backing.join("f")), "one");
    // While a handle of the file is in passthrough, the kernel can refuse no mapping.
    let reader = fs::File::open(a.join("g")).unwrap();
    fs::write(tree.backing.join("g"), "two").unwrap();
    let done = map("g");
    drop(reader);
    assert!(done.status.success(), "{done:?}");
    assert_eq!(text(tree.backing.join("g")), "Xwo");
    wait_for(|| kept(&tree) == ["two"]);
}

/// The last close is told to the daemon after `close` has returned.
fn wait_for(mut done: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !done() {
        assert!(start.elapsed().as_secs() < 10, "it does not come");
        std::thread::yield_now();
    }
}

// semantics: D21
#[test]
fn a_change_under_way_is_no_version() {
    let mut tree = Tree::new(|dir| fs::write(dir.join("f"), "one").unwrap());
    let (a, b) = (tree.owner("a"), tree.owner("b"));
    assert_eq!(text(a.join("f")), "one");
    assert_eq!(text(b.join("f")), "one");
    let mut open = fs::File::create(a.join("f")).unwrap();
    // What is there now is half of a's change: b may look, and has seen nothing.
    assert_eq!(text(b.join("f")), "");
    assert_eq!(errno(fs::write(b.join("f"), "b")), Some(116));
    open.write_all(b"two").unwrap();
    drop(open);
    assert_eq!(errno(fs::write(b.join("f"), "b")), Some(116));
    assert_eq!(text(b.join("f")), "two");
    fs::write(b.join("f"), "three").unwrap();
    assert_eq!(text(tree.backing.join("f")), "three");
}

// semantics: D21
#[test]
fn a_change_that_is_synced_is_no_longer_under_way() {
    let mut tree = Tree::new(|_| ());
    let (a, b) = (tree.owner("a"), tree.owner("b"));
    let mut open = fs::File::create(a.join("f")).unwrap();
    open.write_all(b"one").unwrap();
    assert_eq!(text(b.join("f")), "one");
    assert!(fs::remove_file(b.join("f")).is_err());
    open.sync_all().unwrap();
    assert_eq!(text(b.join("f")), "one");
    fs::remove_file(b.join("f")).unwrap();
}

// semantics: D20 D13
#[test]
fn a_refused_removal_takes_no_other_change_away() {
    let mut tree = Tree::new(|dir| fs::write(dir.join("f"), "one").unwrap());
    let a = tree.owner_with(
        "a",
        Policy {
            unseen: UnseenRule::Allow,
            remove: RemoveRule::Observed,
            ..Policy::default()
        },
    );
    assert_eq!(errno(fs::remove_file(a.join("f"))), Some(16));
    fs::write(a.join("f"), "two").unwrap();
    assert_eq!(kept(&tree), ["one"]);
}

// semantics: D17 D13 A1
#[test]
fn an_edit_of_unseen_content_is_judged_each_time_and_kept_once() {
    let mut tree = Tree::new(|dir| fs::write(dir.join("f"), "one").unwrap());
    let lenient = Policy {
        unseen: UnseenRule::Allow,
        ..Policy::default()
    };
    let (a, b) = (tree.owner_with("a", lenient), tree.owner("b"));
    let mut open = fs::File::options().write(true).open(a.join("f")).unwrap();
    open.write_all(b"a").unwrap();
    open.write_all(b"a").unwrap();
    assert_eq!(kept(&tree), ["one"]);
    assert_eq!(text(b.join("f")), "aae");
    fs::write(b.join("f"), "two").unwrap();
    assert_eq!(errno(open.write_all(b"a")), Some(17), "b's work is foreign to a");
    assert_eq!(text(b.join("f")), "two");
}

// semantics: D14 O4 O10
#[test]
fn a_mount_that_observes_knows_every_write_of_its_own() {
    let mut tree = Tree::new(|dir| fs::write(dir.join("f"), "one").unwrap());
    let observing = Policy {
        mode: Mode::Observe,
        ..Policy::default()
    };
    let (a, b) = (tree.owner_with("a", observing), tree.owner("b"));
    assert_eq!(text(b.join("f")), "one");
    assert_eq!(text(a.join("f")), "one");
    let mut open = fs::File::options().write(true).open(a.join("f")).unwrap();
    open.write_all(b"a").unwrap();
    open.write_all(b"a").unwrap();
    drop(open);
    fs::write(a.join("f"), "two").unwrap();
    assert_eq!(tree.refusals(), [""; 0]);
}

// semantics: P3 D14
#[test]
fn a_process_that_made_the_whole_content_holds_no_old_copy() {
    let mut tree = Tree::new(|dir| fs::write(dir.join("f"), "one").unwrap());
    let observing = Policy {
        mode: Mode::Observe,
        ..Policy::default()
    };
    let (a, b) = (tree.owner_with("a", observing), tree.owner("b"));
    assert_eq!(text(a.join("f")), "one");
    let mut open = fs::File::options().append(true).open(b.join("f")).unwrap();
    open.write_all(b"two").unwrap();
    drop(open);
    fs::rename(a.join("f"), a.join("h")).unwrap();
    fs::File::options()
        .write(true)
        .open(a.join("h"))
        .unwrap()
        .set_len(0)
        .unwrap();
    let recorded = tree.refusals().len();
    fs::remove_file(a.join("h")).unwrap();
    assert_eq!(tree.refusals().len(), recorded, "{:?}", tree.refusals());
}

// semantics: L6 D6
#[test]
fn a_backup_name_is_no_way_to_remove_unseen_content() {
    let mut tree = Tree::new(|dir| {
        fs::write(dir.join("f"), "one").unwrap();
        fs::write(dir.join("g"), "two").unwrap();
    });
    let a = tree.owner("a");
    fs::rename(a.join("f"), a.join("f~")).unwrap();
    assert_eq!(errno(fs::write(a.join("f~"), "blind")), Some(17), "it stays guarded");
    assert_eq!(
        errno(fs::remove_file(a.join("f~"))),
        Some(16),
        "and refused once, it is read first"
    );
    assert_eq!(text(a.join("f~")), "one");
    fs::remove_file(a.join("f~")).unwrap();
    fs::rename(a.join("g"), a.join("g~")).unwrap();
    fs::remove_file(a.join("g~")).unwrap();
    assert_eq!(kept(&tree), ["two"]);
}

// semantics: A4
#[test]
fn the_attic_is_bounded_by_size_and_age() {
    let fill = |dir: &Path| (0..8).for_each(|n| fs::write(dir.join(format!("f{n}")), [b'x'; 4096]).unwrap());
    let limits = |age, size| AtticLimits {
        age,
        size,
        ..AtticLimits::default()
    };
    for (limits, left) in [
        (limits(1000, 3 * 4096), 3),
        (limits(-1, 1 << 30), 0),
        (limits(1000, 1 << 30), 8),
    ] {
        let mut tree = Tree::with(tempfile::TempDir::new_in("/var/tmp").unwrap(), limits, fill);
        let a = tree.owner("a");
        (0..8).for_each(|n| fs::remove_file(a.join(format!("f{n}"))).unwrap());
        tree.guard.tidy();
        assert_eq!(kept(&tree).len(), left, "{limits:?}");
        let journal = text(tree.backing.join(".unclobber/kept.jsonl"));
        assert_eq!(
            journal.lines().count(),
            left,
            "{limits:?}: notes go with what they speak of"
        );
    }
}

/// Everything in the attic, as texts.
fn kept(tree: &Tree) -> Vec<String> {
    let Ok(entries) = fs::read_dir(tree.backing.join(".unclobber/attic")) else {
        return Vec::new();
    };
    entries.map(|entry| text(entry.expect("an entry").path())).collect()
}

fn errno(result: std::io::Result<()>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}
