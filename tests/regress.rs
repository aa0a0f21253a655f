//! Ways that once led past the guard, or stood in the way of ordinary work.

mod support;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use support::Tree;

fn attic_of(tree: &Tree) -> Vec<Vec<u8>> {
    fs::read_dir(tree.backing.join(".unclobber/attic"))
        .map(|kept| {
            kept.map(|entry| fs::read(entry.expect("lists").path()).expect("reads"))
                .collect()
        })
        .unwrap_or_default()
}

#[test]
fn a_directory_with_an_unpublished_file_is_not_renamed_over() {
    let mut tree = Tree::new(|_| {});
    let alice = tree.owner("alice");
    fs::create_dir(alice.join("full")).expect("makes");
    fs::create_dir(alice.join("other")).expect("makes");
    let mut file = File::create(alice.join("full/f")).expect("creates");
    let error = fs::rename(alice.join("other"), alice.join("full")).expect_err("it is not empty");
    assert_eq!(error.kind(), std::io::ErrorKind::DirectoryNotEmpty);
    file.write_all(b"data").expect("writes");
    drop(file);
    assert_eq!(fs::read(alice.join("full/f")).expect("reads"), b"data");
}

#[test]
fn a_hard_link_under_an_unguarded_name_is_no_way_to_change_content_unseen() {
    let mut tree = Tree::new(|backing| fs::write(backing.join("f"), "bob's").expect("writes"));
    let (alice, bob) = (tree.owner("alice"), tree.owner("bob"));
    fs::hard_link(alice.join("f"), alice.join("x.o")).expect("a link is never refused");
    assert!(File::create(alice.join("x.o")).is_err(), "emptied unseen");
    let mut edit = OpenOptions::new().write(true).open(alice.join("x.o")).expect("opens");
    assert!(edit.write_all(b"mine").is_err(), "edited unseen");
    drop(edit);
    assert!(
        File::create(bob.join("x.o")).is_err(),
        "emptied unseen by another owner"
    );
    assert_eq!(fs::read(alice.join("x.o")).expect("reads"), b"bob's");
    fs::write(alice.join("x.o"), "seen").expect("the step named works");
}

#[test]
fn an_unguarded_name_is_no_way_to_remove_a_directory_unseen() {
    let mut tree = Tree::new(|backing| {
        fs::create_dir(backing.join("public")).expect("makes");
        fs::write(backing.join("package.json"), "{}").expect("writes");
    });
    let (alice, bob) = (tree.owner("alice"), tree.owner("bob"));
    fs::write(bob.join("public/page"), "new work").expect("creates");
    fs::rename(alice.join("public"), alice.join("dist")).expect("renames");
    assert!(fs::remove_dir_all(alice.join("dist")).is_err(), "removed unseen");
    assert!(File::create(alice.join("dist/page")).is_err(), "emptied unseen");
    assert_eq!(fs::read(alice.join("dist/page")).expect("reads"), b"new work");
    fs::remove_dir_all(alice.join("dist")).expect("the step named works");
}

#[test]
fn a_directory_all_of_which_is_ones_own_may_become_a_derived_one() {
    let mut tree = Tree::new(|backing| fs::write(backing.join("package.json"), "{}").expect("writes"));
    let (alice, bob) = (tree.owner("alice"), tree.owner("bob"));
    fs::create_dir_all(alice.join("out/deep")).expect("makes");
    fs::write(alice.join("out/deep/a"), "a").expect("creates");
    fs::rename(alice.join("out"), alice.join("dist")).expect("renames");
    fs::write(bob.join("dist/deep/a"), "b").expect("derived files are not guarded");
    fs::remove_dir_all(bob.join("dist")).expect("derived files are not guarded");
    assert!(tree.refusals().is_empty(), "{:?}", tree.refusals());
}

#[test]
fn what_comes_out_of_a_derived_directory_is_its_movers() {
    let mut tree = Tree::new(|backing| fs::write(backing.join("package.json"), "{}").expect("writes"));
    let (alice, bob) = (tree.owner("alice"), tree.owner("bob"));
    fs::create_dir_all(alice.join("dist/deep")).expect("makes");
    fs::write(alice.join("dist/a"), "a").expect("creates");
    fs::write(alice.join("dist/deep/b"), "b").expect("creates");
    fs::rename(alice.join("dist"), alice.join("release")).expect("renames");
    assert!(File::create(bob.join("release/a")).is_err(), "bob has not seen it");
    fs::write(alice.join("release/a"), "again").expect("alice put it there");
    fs::remove_dir_all(alice.join("release")).expect("alice put it there");
}

/// Ways to make a name.
const MAKING: [fn(&Path); 5] = [
    |path| fs::write(path, "").expect("creates"),
    |path| {
        let other = path.with_file_name("renamed");
        fs::write(&other, "").expect("creates");
        fs::rename(other, path).expect("renames");
    },
    |path| {
        let other = path.with_file_name("linked");
        fs::write(&other, "").expect("creates");
        fs::hard_link(other, path).expect("links");
    },
    |path| std::os::unix::fs::symlink("nowhere", path).expect("links"),
    |path| fs::create_dir(path).expect("makes"),
];

// semantics: L18
#[test]
fn evidence_takes_the_guard_from_nobodys_work() {
    for (round, make) in MAKING.into_iter().enumerate() {
        for (evidence, dir) in [
            ("build/CMakeCache.txt", "build"),
            ("Cargo.toml", "target"),
            ("CMakeLists.txt", "cmake-build-x"),
        ] {
            let mut tree = Tree::new(|backing| {
                fs::create_dir_all(backing.join(dir).join("deep")).expect("makes");
                fs::write(backing.join(dir).join("deep/old"), "old").expect("writes");
            });
            let (alice, bob) = (tree.owner("alice"), tree.owner("bob"));
            let dir = Path::new(dir);
            fs::write(bob.join(dir).join("deploy.sh"), "bob's").expect("creates");
            fs::write(alice.join(dir).join("out"), "alice's").expect("creates");
            fs::set_permissions(alice.join(dir).join("deep/old"), fs::Permissions::from_mode(0o600)).expect("its mode");
            make(&alice.join(evidence));
            let context = format!("{round}: {evidence}");
            for name in ["deploy.sh", "deep/old"] {
                let file = alice.join(dir).join(name);
                assert!(fs::write(&file, "mine").is_err(), "{context}: {name} is emptied unseen");
                assert!(fs::remove_file(&file).is_err(), "{context}: {name} is removed unseen");
                fs::write(alice.join("other"), "mine").expect("creates");
                assert!(
                    fs::rename(alice.join("other"), &file).is_err(),
                    "{context}: {name} is replaced unseen"
                );
                fs::remove_file(alice.join("other")).expect("removes");
                fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("its mode");
                assert!(fs::write(&file, "mine").is_err(), "{context}: {name} is emptied unseen");
                fs::read(&file).expect("reads");
                fs::write(&file, "seen").expect("the step named works");
            }
            // It has become a derived one for all else.
            fs::write(bob.join(dir).join("out"), "bob's").expect("derived files are not guarded");
            fs::write(alice.join(dir).join("deep/new"), "alice's").expect("creates");
            fs::remove_file(bob.join(dir).join("deep/new")).expect("derived files are not guarded");
        }
    }
}

// semantics: L18
#[test]
fn a_name_that_makes_less_guarded_is_no_way_round_the_evidence() {
    let mut tree = Tree::new(|_| {});
    let (alice, bob) = (tree.owner("alice"), tree.owner("bob"));
    fs::create_dir(bob.join("build")).expect("makes");
    fs::write(bob.join("build/deploy.sh"), "bob's").expect("creates");
    fs::write(alice.join("build/CMakeCache.txt"), "").expect("creates");
    fs::rename(alice.join("build"), alice.join("node_modules")).expect("renames");
    assert!(
        fs::write(alice.join("node_modules/deploy.sh"), "mine").is_err(),
        "emptied unseen"
    );
    assert_eq!(
        fs::read(tree.backing.join("node_modules/deploy.sh")).expect("reads"),
        b"bob's"
    );
}

// semantics: L3 L18
#[test]
fn evidence_that_is_made_anew_leaves_a_derived_directory_derived() {
    type Renew = fn(&Path);
    let ways: [Renew; 3] = [
        // As git does when it checks out another version.
        |path| {
            fs::remove_file(path).expect("its content is kept");
            fs::write(path, "[package]\nname='new'").expect("creates");
        },
        |path| {
            fs::rename(path, path.with_file_name("away")).expect("its content goes along");
            fs::write(path, "[package]\nname='new'").expect("creates");
        },
        |path| {
            fs::read(path).expect("reads");
            let new = path.with_file_name("new");
            fs::write(&new, "[package]\nname='new'").expect("creates");
            fs::rename(new, path).expect("it was read");
        },
    ];
    for renew in ways {
        let mut tree = Tree::new(|backing| {
            fs::create_dir(backing.join("target")).expect("makes");
            fs::write(backing.join("target/out"), "built").expect("writes");
            fs::write(backing.join("Cargo.toml"), "[package]").expect("writes");
        });
        let alice = tree.owner("alice");
        renew(&alice.join("Cargo.toml"));
        fs::write(alice.join("target/out"), "built anew").expect("derived files are not guarded");
        assert!(tree.refusals().is_empty(), "{:?}", tree.refusals());
    }
    // What somebody makes outside is believed.
    let mut tree = Tree::new(|backing| {
        fs::create_dir(backing.join("target")).expect("makes");
        fs::write(backing.join("target/out"), "built").expect("writes");
    });
    let alice = tree.owner("alice");
    fs::write(tree.backing.join("Cargo.toml"), "[package]").expect("writes");
    fs::write(alice.join("target/out"), "built anew").expect("derived files are not guarded");
}

// semantics: L9 L10
#[test]
fn an_ignore_file_counts_from_when_it_was_made() {
    let mut tree = Tree::new(|_| {});
    let (alice, bob) = (tree.owner("alice"), tree.owner("bob"));
    fs::write(bob.join("x.log"), "one").expect("creates");
    let mut held = OpenOptions::new().append(true).open(bob.join("x.log")).expect("opens");
    fs::write(alice.join(".gitignore"), "*.log\n").expect("creates");
    // Nobody has asked for a level in between.
    held.write_all(b"two").expect("appends");
    drop(held);
    fs::write(alice.join("x.log"), "mine").expect("it was ignored when bob changed it last");
    // The same, of somebody outside.
    let made = fs::metadata(tree.backing.join(".gitignore")).expect("it is there");
    let outside = tree.backing.join("y.log");
    while fs::metadata(&outside).map_or(true, |now| {
        (now.ctime(), now.ctime_nsec()) <= (made.ctime(), made.ctime_nsec())
    }) {
        fs::write(&outside, "outside").expect("writes");
    }
    fs::write(alice.join("y.log"), "mine").expect("it was ignored when it was made");
    assert!(tree.refusals().is_empty(), "{:?}", tree.refusals());
    let mut kept = attic_of(&tree);
    kept.sort();
    assert_eq!(
        kept,
        [b"onetwo".to_vec(), b"outside".to_vec()],
        "what is displaced unseen is kept"
    );
}

#[test]
fn a_derived_directory_stays_derived_when_its_marker_goes_first() {
    let mut tree = Tree::new(|_| {});
    let alice = tree.owner("alice");
    for round in 0..2 {
        // The second time by a mount that never saw the directory with its marker.
        let project = alice.join("project");
        fs::create_dir_all(project.join("target/debug")).expect("makes");
        fs::write(project.join("Cargo.toml"), "[package]").expect("creates");
        fs::write(project.join("target/debug/out"), "built").expect("creates");
        let dirs = (alice.join("one"), alice.join("two"));
        fs::create_dir(&dirs.0).expect("makes");
        fs::rename(&dirs.0, &dirs.1).expect("levels are derived again");
        fs::remove_dir(&dirs.1).expect("removes");
        fs::remove_file(project.join("Cargo.toml")).expect("removes");
        let remover = if round == 0 { alice.clone() } else { tree.owner("alice") };
        fs::remove_dir_all(remover.join("project")).expect("nothing in it is guarded");
    }
    assert!(tree.refusals().is_empty(), "{:?}", tree.refusals());
    assert!(attic_of(&tree).is_empty());
}

#[test]
fn what_one_removed_oneself_is_no_surprise_whatever_it_was() {
    let mut tree = Tree::new(|_| {});
    let alice = tree.owner("alice");
    for _ in 0..2 {
        fs::create_dir(alice.join("new")).expect("makes");
        fs::rename(alice.join("new"), alice.join("old")).expect("renames a directory");
        fs::remove_dir(alice.join("old")).expect("removes");
        std::os::unix::fs::symlink("nowhere", alice.join("new")).expect("links");
        fs::rename(alice.join("new"), alice.join("link")).expect("renames a symbolic link");
        fs::remove_file(alice.join("link")).expect("removes");
    }
    fs::write(alice.join("old"), "a file").expect("creates");
    fs::write(alice.join("link"), "a file").expect("creates");
    assert!(tree.refusals().is_empty(), "{:?}", tree.refusals());
}

#[test]
fn a_name_that_is_renamed_over_all_the_time_can_always_be_read() {
    use std::sync::atomic::{AtomicBool, Ordering};

    let mut tree = Tree::new(|backing| fs::write(backing.join("f"), "x").expect("writes"));
    let alice = tree.owner("alice");
    let outside = tree.backing.clone();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                fs::write(outside.join("t"), "x").expect("writes");
                fs::rename(outside.join("t"), outside.join("f")).expect("renames");
            }
        });
        let read: std::io::Result<Vec<_>> = (0..3000).map(|_| fs::read(alice.join("f"))).collect();
        done.store(true, Ordering::Relaxed);
        assert!(read.expect("always readable").iter().all(|content| content == b"x"));
    });
}

#[test]
fn creating_in_a_directory_that_is_gone_finds_nothing() {
    let mut tree = Tree::new(|backing| fs::create_dir(backing.join("d")).expect("makes"));
    let alice = tree.owner("alice");
    let dir = File::open(alice.join("d")).expect("opens");
    fs::remove_dir(tree.backing.join("d")).expect("removes");
    let inside = format!("/proc/self/fd/{}/f", std::os::fd::AsRawFd::as_raw_fd(&dir));
    let error = File::create(inside).expect_err("the directory is gone");
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn a_read_through_an_old_handle_says_nothing_of_the_name() {
    use std::io::Read;

    let mut tree = Tree::new(|backing| fs::write(backing.join("f"), "one").expect("writes"));
    let (alice, bob) = (tree.owner("alice"), tree.owner("bob"));
    let mut held = OpenOptions::new()
        .read(true)
        .write(true)
        .open(bob.join("f"))
        .expect("opens");
    for version in ["two", "three"] {
        fs::read(alice.join("f")).expect("reads");
        fs::write(alice.join("t"), version).expect("creates");
        fs::rename(alice.join("t"), alice.join("f")).expect("alice has seen it");
        let mut content = String::new();
        held.read_to_string(&mut content).expect("reads the old file");
        fs::write(alice.join("f"), version).expect("nobody else changed what alice made");
    }
    assert!(tree.refusals().is_empty(), "{:?}", tree.refusals());
}

#[test]
fn an_edit_through_an_old_handle_says_nothing_of_the_name() {
    let mut tree = Tree::new(|backing| fs::write(backing.join("f"), "one").expect("writes"));
    let alice = tree.owner("alice");
    for _ in 0..2 {
        let mut held = OpenOptions::new()
            .read(true)
            .write(true)
            .open(alice.join("f"))
            .expect("opens");
        fs::read(alice.join("f")).expect("reads");
        fs::remove_file(alice.join("f")).expect("removes");
        held.write_all(b"two").expect("alice has seen it");
        fs::write(alice.join("f"), "one").expect("alice removed it herself");
    }
    assert!(tree.refusals().is_empty(), "{:?}", tree.refusals());
}

#[test]
fn places_that_lead_round_in_a_circle_hold_nothing_up() {
    let mut tree = Tree::new(|backing| {
        fs::create_dir_all(backing.join("a/b")).expect("makes");
        fs::create_dir(backing.join("x")).expect("makes");
    });
    let alice = tree.owner("alice");
    let inner = File::open(alice.join("a/b")).expect("opens");
    let below = format!("/proc/self/fd/{}", inner.as_raw_fd());
    fs::rename(tree.backing.join("a/b"), tree.backing.join("b")).expect("renames");
    fs::rename(tree.backing.join("a"), tree.backing.join("b/a")).expect("renames");
    // Whatever the kernel says to it: the guard has found `a` in `b`, which it has not met outside `a` yet.
    drop(fs::symlink_metadata(format!("{below}/a")));
    fs::rename(alice.join("x"), alice.join("y")).expect("levels are derived anew");
    assert!(fs::symlink_metadata(format!("{below}/nothing")).is_err());
}
