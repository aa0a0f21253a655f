//! What is changed behind the mount is what the mount shows: at the next open, stat and listing, whoever moves the data.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

#[expect(dead_code, reason = "each test program uses its own part of the harness")]
mod support;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{AT_FDCWD, OFlag, RenameFlags, renameat2};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::stat::{UtimensatFlags, utimensat};
use nix::sys::time::TimeSpec;
use support::Tree;
use unclobber::guard::{Mode, Policy};
use unclobber::sys;

/// From now on the daemon moves the data of files opened through the tree's mounts, as it does for ordinary users.
fn daemon_moves_data(tree: &Tree) {
    for (_, serving) in &tree.mounts {
        serving.as_ref().expect("a mount").mount().set_passthrough(false);
    }
}

fn observing() -> Policy {
    Policy {
        mode: Mode::Observe,
        ..Policy::default()
    }
}

/// Everything a program can see of a tree: names, what they lead to, attributes, content.
fn seen(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    walk(root, Path::new(""), &mut all);
    all
}

fn walk(root: &Path, below: &Path, all: &mut BTreeMap<PathBuf, String>) {
    let mut names: Vec<OsString> = fs::read_dir(root.join(below))
        .expect("a directory that stands still")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    names.sort();
    for name in names {
        let path = below.join(&name);
        if path == Path::new(".unclobber") {
            continue;
        }
        let full = root.join(&path);
        let s = fs::symlink_metadata(&full).expect("what is listed is there");
        let kind = s.file_type();
        let mut said = format!(
            "{:o} {} {} {} {} {} {}.{:09} {}.{:09}",
            s.mode(),
            s.ino(),
            s.nlink(),
            s.uid(),
            s.gid(),
            s.size(),
            s.mtime(),
            s.mtime_nsec(),
            s.ctime(),
            s.ctime_nsec()
        );
        if kind.is_file() {
            let file = File::open(&full).expect("a file");
            let listed = sys::list_xattr(&file, 0).expect("its attributes");
            said += &format!(
                " {} [{}]",
                fs::read(&full).expect("its content").escape_ascii(),
                listed.escape_ascii()
            );
        } else if kind.is_symlink() {
            said += &format!(" -> {}", fs::read_link(&full).expect("its target").display());
        }
        all.insert(path.clone(), said);
        if kind.is_dir() {
            walk(root, &path, all);
        }
    }
}

fn write_at(path: &Path, at: u64, bytes: &[u8]) {
    let file = OpenOptions::new()
        .write(true)
        .open(path)
        .expect("a file behind the mount");
    file.write_all_at(bytes, at).expect("a write behind the mount");
}

fn set_mtime(path: &Path, to: &fs::Metadata) {
    let (a, m) = (
        TimeSpec::new(to.atime(), to.atime_nsec()),
        TimeSpec::new(to.mtime(), to.mtime_nsec()),
    );
    utimensat(AT_FDCWD, path, &a, &m, UtimensatFlags::FollowSymlink).expect("setting times back");
}

fn by_rename(path: &Path, text: &str) {
    let other = path.with_extension("outside");
    fs::write(&other, text).expect("another file");
    fs::rename(other, path).expect("a rename behind the mount");
}

type Change = (&'static str, fn(&Path));

/// Each is made behind the mount, one after the other, in a tree that `fill` has made.
const CHANGES: &[Change] = &[
    ("grow", |b| write_at(&b.join("d/f"), 5, &[b'g'; 9000])),
    ("shrink", |b| {
        OpenOptions::new()
            .write(true)
            .open(b.join("d/f"))
            .unwrap()
            .set_len(3)
            .unwrap();
    }),
    ("rewrite in the same size", |b| write_at(&b.join("d/f"), 0, b"NEW")),
    ("rewrite in the same size, with the old time", |b| {
        let before = fs::metadata(b.join("d/f")).unwrap();
        write_at(&b.join("d/f"), 0, b"old");
        set_mtime(&b.join("d/f"), &before);
    }),
    ("replace by rename", |b| by_rename(&b.join("d/f"), "renamed over")),
    ("replace by rename, same size and time", |b| {
        let before = fs::metadata(b.join("d/f")).unwrap();
        by_rename(&b.join("d/f"), "RENAMED OVER");
        set_mtime(&b.join("d/f"), &before);
    }),
    ("empty", |b| fs::write(b.join("d/f"), "").unwrap()),
    ("remove", |b| fs::remove_file(b.join("d/f")).unwrap()),
    ("create again", |b| fs::write(b.join("d/f"), "again").unwrap()),
    ("remove and create", |b| {
        fs::remove_file(b.join("d/f")).unwrap();
        fs::write(b.join("d/f"), "third").unwrap();
    }),
    ("create another", |b| fs::write(b.join("d/new"), "new").unwrap()),
    ("link", |b| fs::hard_link(b.join("d/f"), b.join("d/e/linked")).unwrap()),
    ("write by the link", |b| write_at(&b.join("d/e/linked"), 0, b"LINK")),
    ("remove the first name", |b| fs::remove_file(b.join("d/f")).unwrap()),
    ("mode", |b| {
        fs::set_permissions(b.join("d/new"), std::os::unix::fs::PermissionsExt::from_mode(0o4711)).unwrap();
    }),
    ("extended attribute", |b| {
        let file = File::open(b.join("d/new")).unwrap();
        sys::set_xattr(&file, "user.outside".as_ref(), b"1", 0).unwrap();
    }),
    ("rename a file", |b| {
        fs::rename(b.join("d/new"), b.join("moved")).unwrap()
    }),
    ("rename a directory", |b| {
        fs::rename(b.join("d/e"), b.join("d/z")).unwrap()
    }),
    ("write below the renamed directory", |b| {
        write_at(&b.join("d/z/g"), 0, b"G")
    }),
    ("another directory at its old name", |b| {
        fs::create_dir(b.join("d/e")).unwrap();
        fs::write(b.join("d/e/g"), "another g").unwrap();
    }),
    ("exchange directories", |b| {
        renameat2(
            AT_FDCWD,
            &b.join("d/e"),
            AT_FDCWD,
            &b.join("d/z"),
            RenameFlags::RENAME_EXCHANGE,
        )
        .unwrap();
    }),
    ("a file becomes a directory", |b| {
        fs::remove_file(b.join("moved")).unwrap();
        fs::create_dir(b.join("moved")).unwrap();
        fs::write(b.join("moved/in"), "in").unwrap();
    }),
    ("a directory becomes a link", |b| {
        fs::remove_dir_all(b.join("moved")).unwrap();
        symlink("d/e", b.join("moved")).unwrap();
    }),
    ("the link leads elsewhere", |b| {
        fs::remove_file(b.join("moved")).unwrap();
        symlink("d/z/g", b.join("moved")).unwrap();
    }),
    ("a link becomes a file", |b| by_rename(&b.join("moved"), "a file")),
    ("exchange files", |b| {
        renameat2(
            AT_FDCWD,
            &b.join("moved"),
            AT_FDCWD,
            &b.join("d/e/g"),
            RenameFlags::RENAME_EXCHANGE,
        )
        .unwrap();
    }),
    ("remove a tree", |b| fs::remove_dir_all(b.join("d")).unwrap()),
    ("make it again", |b| {
        fs::create_dir_all(b.join("d/e")).unwrap();
        fs::write(b.join("d/e/g"), "last").unwrap();
    }),
];

fn fill(dir: &Path) {
    fs::create_dir_all(dir.join("d/e")).unwrap();
    fs::write(dir.join("d/f"), "first").unwrap();
    fs::write(dir.join("d/e/g"), "g").unwrap();
}

fn every_change_is_seen(by_daemon: bool) {
    let mut tree = Tree::new(fill);
    let m = tree.owner("a");
    if by_daemon {
        daemon_moves_data(&tree);
    }
    assert_eq!(seen(&m), seen(&tree.backing), "before any change");
    for (what, change) in CHANGES {
        change(&tree.backing);
        let mounted = seen(&m);
        assert_eq!(mounted, seen(&tree.backing), "{what}");
        assert_eq!(mounted, seen(&m), "{what}, looked at again");
    }
}

#[test]
fn every_change_behind_the_mount_is_seen_where_the_kernel_moves_the_data() {
    every_change_is_seen(false);
}

#[test]
fn every_change_behind_the_mount_is_seen_where_the_daemon_moves_the_data() {
    every_change_is_seen(true);
}

/// A handle opened before a change behind the mount goes on showing its own file, as it is now.
fn held_handles_follow(by_daemon: bool) {
    let mut tree = Tree::new(|dir| fs::write(dir.join("f"), "0123456789").unwrap());
    let m = tree.owner_with("a", observing());
    if by_daemon {
        daemon_moves_data(&tree);
    }
    let b = tree.backing.join("f");
    let (mut held, plain) = (File::open(m.join("f")).unwrap(), File::open(&b).unwrap());
    let mut same = |what: &str| {
        // By a second open: of a file that is cached, the kernel looks for changes when it is opened.
        let again = fs::read(m.join("f"));
        let mut now = String::new();
        held.seek(SeekFrom::Start(0)).unwrap();
        held.read_to_string(&mut now).unwrap();
        let mut bytes = [0; 64];
        let length = plain.read_at(&mut bytes, 0).unwrap();
        assert_eq!(now.as_bytes(), &bytes[..length], "{what}");
        assert_eq!(
            held.metadata().unwrap().size(),
            plain.metadata().unwrap().size(),
            "{what}"
        );
        assert_eq!(
            held.metadata().unwrap().nlink(),
            plain.metadata().unwrap().nlink(),
            "{what}"
        );
        assert_eq!(again.ok(), fs::read(&b).ok(), "{what}, by its name");
    };
    same("nothing");
    write_at(&b, 0, b"abc");
    same("rewritten");
    write_at(&b, 10, b"longer");
    same("longer");
    OpenOptions::new().write(true).open(&b).unwrap().set_len(4).unwrap();
    same("shorter");
    let old = OpenOptions::new().write(true).open(&b).unwrap();
    by_rename(&b, "another file");
    same("replaced");
    old.write_all_at(b"after it was replaced", 0).unwrap();
    same("written after it was replaced");
    fs::remove_file(&b).unwrap();
    same("the other removed");
}

#[test]
fn a_held_handle_shows_its_own_file_where_the_kernel_moves_the_data() {
    held_handles_follow(false);
}

#[test]
fn a_held_handle_shows_its_own_file_where_the_daemon_moves_the_data() {
    held_handles_follow(true);
}

#[test]
fn nothing_is_written_into_a_file_that_has_been_replaced() {
    let mut tree = Tree::new(|dir| fs::write(dir.join("f"), "0\n").unwrap());
    let m = tree.owner_with("a", observing());
    let (f, b) = (m.join("f"), tree.backing.join("f"));
    for round in 1..200 {
        assert!(fs::metadata(&f).is_ok(), "the kernel knows the name");
        let text = format!("{round}\n");
        by_rename(&b, &text);
        match round % 4 {
            0 => fs::write(&f, "mine").unwrap(),
            1 => OpenOptions::new()
                .append(true)
                .open(&f)
                .unwrap()
                .write_all(b"mine")
                .unwrap(),
            2 => OpenOptions::new()
                .write(true)
                .open(&f)
                .unwrap()
                .write_all_at(b"mine", text.len() as u64)
                .unwrap(),
            _ => nix::unistd::truncate(&f, 1).unwrap(),
        }
        let expected = match round % 4 {
            0 => "mine".to_owned(),
            1 | 2 => format!("{text}mine"),
            _ => text[..1].to_owned(),
        };
        assert_eq!(fs::read_to_string(&b).unwrap(), expected, "round {round}");
    }
}

#[test]
fn a_held_directory_lists_what_is_there_now() {
    let mut tree = Tree::new(|dir| {
        fs::create_dir(dir.join("d")).unwrap();
        fs::write(dir.join("d/a"), "a").unwrap();
    });
    let m = tree.owner("a");
    let mut held = nix::dir::Dir::open(&m.join("d"), OFlag::O_RDONLY, nix::sys::stat::Mode::empty()).unwrap();
    let mut listed = || {
        let mut names: Vec<String> = held
            .iter()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .filter(|name| name != "." && name != "..")
            .collect();
        names.sort();
        names.join(" ")
    };
    assert_eq!(listed(), "a");
    fs::write(tree.backing.join("d/b"), "b").unwrap();
    assert_eq!(listed(), "a b");
    fs::rename(tree.backing.join("d"), tree.backing.join("e")).unwrap();
    fs::remove_file(tree.backing.join("e/a")).unwrap();
    assert_eq!(listed(), "b", "also under its new name");
    fs::remove_file(tree.backing.join("e/b")).unwrap();
    fs::remove_dir(tree.backing.join("e")).unwrap();
    assert_eq!(listed(), "", "also when it is gone");
}

/// A descriptor that is open for writing keeps everybody from executing the file, also past the mount: the daemon keeps
/// none after the file was closed.
#[test]
fn a_program_made_through_the_mount_can_be_executed_past_it() {
    let mut tree = Tree::new(|_| {});
    let m = tree.owner("a");
    for exclusive in [false, true] {
        let name = if exclusive { "claimed" } else { "staged" };
        let mut options = OpenOptions::new();
        options.write(true).create(true).create_new(exclusive).mode(0o755);
        let mut file = options.open(m.join(name)).unwrap();
        std::io::copy(&mut File::open("/bin/true").unwrap(), &mut file).unwrap();
        // Whoever reads it beside its writer, and longer than that, keeps nobody from it.
        let beside = File::open(m.join(name)).unwrap();
        drop(file);
        let done = in_time(name, || std::process::Command::new(tree.backing.join(name)).status());
        assert!(done.success(), "{name}");
        assert!(std::process::Command::new(m.join(name)).status().unwrap().success());
        drop(beside);
    }
}

/// The daemon is told of the last close after it has returned.
fn in_time<T, E: std::fmt::Debug>(what: &str, mut attempt: impl FnMut() -> Result<T, E>) -> T {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match attempt() {
            Ok(done) => return done,
            Err(error) => assert!(Instant::now() < deadline, "{what}: {error:?}"),
        }
        thread::yield_now();
    }
}

/// Whoever takes a lease for writing must be the only one that has the file open: the daemon has none open that is closed.
#[test]
fn a_file_that_was_read_through_the_mount_can_be_leased_past_it() {
    let mut tree = Tree::new(|dir| fs::write(dir.join("f"), "content").unwrap());
    let m = tree.owner("a");
    assert_eq!(fs::read_to_string(m.join("f")).unwrap(), "content");
    let past = OpenOptions::new()
        .read(true)
        .write(true)
        .open(tree.backing.join("f"))
        .unwrap();
    drop(in_time("a lease", || sys::write_lease(&past)));
    assert_eq!(fs::read_to_string(m.join("f")).unwrap(), "content");
}

/// That a file has no capabilities is remembered, since the kernel asks before it writes: not longer than it is true.
#[test]
fn capabilities_that_a_file_gets_are_shown() {
    const NAME: &str = "security.capability";
    // Version 2, one permitted capability.
    let value = [&[1, 0, 0, 2, 0, 4, 0, 0][..], &[0; 12]].concat();
    let mut tree = Tree::new(|dir| fs::write(dir.join("old"), "old").unwrap());
    let (m, other) = (tree.owner("a"), tree.owner("b"));
    fs::write(m.join("new"), "new").unwrap();
    for file in ["old", "new"] {
        let through = |mount: &Path| sys::get_xattr(File::open(mount.join(file)).unwrap(), NAME.as_ref(), 64).ok();
        for _ in 0..2 {
            assert_eq!(through(&m), None, "{file}");
        }
        let past = File::open(tree.backing.join(file)).unwrap();
        sys::set_xattr(&past, NAME.as_ref(), &value, 0).unwrap();
        assert_eq!(through(&m).as_deref(), Some(&value[..]), "{file}: set past the mount");
        sys::remove_xattr(&past, NAME.as_ref()).unwrap();
        assert_eq!(through(&m), None, "{file}");
        let by_other = File::open(other.join(file)).unwrap();
        sys::set_xattr(&by_other, NAME.as_ref(), &value, 0).unwrap();
        assert_eq!(through(&m).as_deref(), Some(&value[..]), "{file}: set by another mount");
    }
}

/// What a descriptor of inotify has seen, without the moment.
fn watched(watch: &Inotify) -> usize {
    watch.read_events().map_or(0, |events| events.len())
}

// posix: Y1
#[test]
fn inotify_on_the_mount_tells_of_changes_through_it_only() {
    let mut tree = Tree::new(|dir| fs::write(dir.join("f"), "f").unwrap());
    let m = tree.owner("a");
    let on = |path: &Path| {
        let watch = Inotify::init(InitFlags::IN_NONBLOCK).unwrap();
        let what = AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_CREATE;
        watch.add_watch(path, what).unwrap();
        watch
    };
    let (mounted, behind) = (on(&m), on(&tree.backing));
    fs::write(tree.backing.join("outside"), "x").unwrap();
    assert_eq!(
        (watched(&mounted), watched(&behind) > 0),
        (0, true),
        "a change behind the mount"
    );
    fs::write(m.join("inside"), "x").unwrap();
    assert!(watched(&mounted) > 0, "a change through the mount");
    assert!(watched(&behind) > 0, "is one of the directory, too");
}

// posix: Y2
#[test]
fn locks_are_those_of_one_mount() {
    use nix::fcntl::{Flock, FlockArg};
    let mut tree = Tree::new(|dir| fs::write(dir.join("f"), "f").unwrap());
    let (a, b) = (tree.owner("a"), tree.owner("b"));
    let free = |path: &Path| Flock::lock(File::open(path).unwrap(), FlockArg::LockExclusiveNonblock).is_ok();
    let held = Flock::lock(File::open(a.join("f")).unwrap(), FlockArg::LockExclusiveNonblock).unwrap();
    assert!(!free(&a.join("f")), "within the mount");
    assert!(free(&b.join("f")), "another mount of the same guard");
    assert!(free(&tree.backing.join("f")), "behind the mount");
    drop(held);
    assert!(free(&a.join("f")));
}

// posix: Y4
#[test]
fn what_others_mount_below_goes_with_a_name_that_changes_behind() {
    let mut tree = Tree::new(|dir| fs::create_dir(dir.join("d")).unwrap());
    let m = tree.owner("a");
    let point = m.join("d");
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "none"])
        .arg(&point)
        .status();
    assert!(mounted.unwrap().success());
    let is_mounted = || {
        let all = fs::read_to_string("/proc/self/mountinfo").unwrap();
        all.contains(&format!(" {} ", point.display()))
    };
    assert!(is_mounted());
    fs::rename(tree.backing.join("d"), tree.backing.join("e")).unwrap();
    in_time("the kernel lets it go", || {
        if is_mounted() { Err("it is mounted") } else { Ok(()) }
    });
    assert!(m.join("e").is_dir() && !point.exists());
}

// semantics: S2
#[test]
fn a_file_made_only_to_be_read_is_there_for_outsiders_at_once() {
    let mut tree = Tree::new(|_| ());
    let m = tree.owner("a");
    let open = |flags: OFlag, name: &str| {
        nix::fcntl::open(&m.join(name), OFlag::O_CREAT | flags, nix::sys::stat::Mode::S_IRUSR).unwrap()
    };
    let lock = open(OFlag::O_RDONLY, "lock");
    assert!(tree.backing.join("lock").exists(), "others can lock it too");
    let before = nix::sys::stat::fstat(&lock).unwrap();
    drop(lock);
    let after = fs::metadata(m.join("lock")).unwrap();
    assert_eq!(
        (before.st_ctime, before.st_ctime_nsec),
        (after.ctime(), after.ctime_nsec())
    );
    let _written = open(OFlag::O_WRONLY, "written");
    assert!(!tree.backing.join("written").exists(), "what will be written is staged");
}

/// Look-ups, open files and nodes go with the mount that had them, also when it ends while files are open, unpublished or
/// without a name.
#[test]
fn nothing_of_an_ended_mount_stays() {
    let mut tree = Tree::new(|dir| {
        for f in 0..50 {
            fs::write(dir.join(format!("f{f}")), "x").unwrap();
        }
    });
    let m = tree.owner("a");
    let written = File::create(m.join("staged")).unwrap();
    let mut read = File::open(m.join("f1")).unwrap();
    let gone = OpenOptions::new().read(true).write(true).open(m.join("f2")).unwrap();
    fs::remove_file(m.join("f2")).unwrap();
    let held = nix::dir::Dir::open(&m, OFlag::O_RDONLY, nix::sys::stat::Mode::empty()).unwrap();
    seen(&m);
    let inside = tree.guard.status();
    assert!(inside.nodes > 50 && inside.mounts[0].open_files >= 3, "{inside:?}");
    let (point, serving) = tree.mounts.pop().unwrap();
    // Gone for others; what is open keeps it.
    sys::umount(&point, true).unwrap();
    let mut text = String::new();
    read.read_to_string(&mut text).unwrap();
    assert_eq!(text, "x");
    drop((written, read, gone, held));
    serving.unwrap().wait().unwrap();
    let after = tree.guard.status();
    assert!(
        after.mounts.is_empty() && after.nodes == 1,
        "only the root is known: {after:?}"
    );
    assert!(tree.backing.join("staged").exists(), "what was staged is published");
}
