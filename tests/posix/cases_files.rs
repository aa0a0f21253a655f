//! Files as such: modes, owners, times, and files that have no name any more.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use nix::fcntl::AT_FDCWD;
use nix::sys::stat::{FchmodatFlags, Mode, UtimensatFlags, fchmod, fchmodat, fstat, futimens, lstat, stat, utimensat};
use nix::sys::statvfs::statvfs;
use nix::sys::time::TimeSpec;
use nix::unistd::{AccessFlags, Gid, Uid, access, chown, fchown, ftruncate, truncate};

use crate::Case;
use crate::transcript::Log;

const fn case(name: &'static str, run: fn(&Path) -> String) -> Case {
    Case {
        name,
        needs: &[],
        root: false,
        run,
    }
}

const fn as_root(name: &'static str, run: fn(&Path) -> String) -> Case {
    Case {
        name,
        needs: &[],
        root: true,
        run,
    }
}

pub(crate) const CASES: &[Case] = &[
    case("modes", modes),
    as_root("owners", owners),
    as_root("setgid directories", setgid),
    case("times", times),
    case("times move", times_move),
    case("truncating", truncating),
    case("open and unlinked", unlinked),
    case("open and replaced", replaced),
    case("open and renamed", renamed),
    case("sizes and blocks", blocks),
    case("filesystem", filesystem),
    case("syncing", syncing),
    case("append only and read only handles", handles),
    case("many handles", many),
];

fn put(path: &Path, text: &str) {
    fs::write(path, text).expect("a file of the case's own");
}

fn modes(d: &Path) -> String {
    let mut log = Log::default();
    let f = d.join("f");
    put(&f, "f");
    for mode in [0o600, 0o777, 0o000, 0o4755, 0o2755, 0o1777, 0o640] {
        log.io("chmod", fs::set_permissions(&f, Permissions::from_mode(mode)));
        log.stat("is", stat(&f));
    }
    let handle = File::open(&f).expect("the file");
    log.done("fchmod", fchmod(&handle, Mode::from_bits_truncate(0o604)));
    log.stat("is", fstat(&handle));
    std::os::unix::fs::symlink("f", d.join("l")).expect("a symlink");
    let through = fchmodat(
        AT_FDCWD,
        &d.join("l"),
        Mode::from_bits_truncate(0o640),
        FchmodatFlags::FollowSymlink,
    );
    log.done("chmod through a symlink", through);
    log.stat("is", stat(&f));
    log.done(
        "chmod of nothing",
        fchmodat(AT_FDCWD, &d.join("n"), Mode::S_IRWXU, FchmodatFlags::FollowSymlink),
    );
    for (what, flags) in [
        ("r", AccessFlags::R_OK),
        ("w", AccessFlags::W_OK),
        ("x", AccessFlags::X_OK),
        ("f", AccessFlags::F_OK),
    ] {
        log.done(what, access(&f, flags));
    }
    log.done("mkdir", mkdir_with(&d.join("d"), 0o751));
    log.stat("directory", stat(&d.join("d")));
    log.text()
}

fn mkdir_with(path: &Path, mode: u32) -> nix::Result<()> {
    nix::unistd::mkdir(path, Mode::from_bits_truncate(mode))
}

fn owners(d: &Path) -> String {
    let mut log = Log::default();
    let f = d.join("f");
    put(&f, "f");
    let to = |uid: u32, gid: u32| chown(&f, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
    for (uid, gid) in [(1234, 4321), (0, 7), (65_534, 65_534), (4_000_000_000, 4_000_000_000)] {
        log.done("chown", to(uid, gid));
        log.stat("is", stat(&f));
    }
    log.done("one of them", chown(&f, None, Some(Gid::from_raw(9))));
    log.stat("is", stat(&f));
    log.io(
        "setuid and setgid",
        fs::set_permissions(&f, Permissions::from_mode(0o6755)),
    );
    log.done("chown", to(1, 1));
    log.stat("they are cleared", stat(&f));
    log.io(
        "setgid without x",
        fs::set_permissions(&f, Permissions::from_mode(0o2644)),
    );
    let handle = File::open(&f).expect("the file");
    log.done("fchown", fchown(&handle, Some(Uid::from_raw(2)), None));
    log.stat("is", fstat(&handle));
    std::os::unix::fs::symlink("f", d.join("l")).expect("a symlink");
    log.io("lchown", std::os::unix::fs::lchown(d.join("l"), Some(5), Some(6)));
    log.stat("the link", lstat(&d.join("l")));
    log.stat("the file", stat(&f));
    log.text()
}

fn setgid(d: &Path) -> String {
    let mut log = Log::default();
    let s = d.join("s");
    fs::create_dir(&s).expect("a directory");
    chown(&s, None, Some(Gid::from_raw(77))).expect("its group");
    log.io("setgid", fs::set_permissions(&s, Permissions::from_mode(0o2775)));
    put(&s.join("f"), "f");
    fs::create_dir(s.join("d")).expect("a directory below");
    nix::unistd::mkfifo(&s.join("p"), Mode::S_IRWXU).expect("a fifo");
    std::os::unix::fs::symlink("f", s.join("l")).expect("a symlink");
    for name in ["f", "d", "p", "l"] {
        log.stat(name, lstat(&s.join(name)));
    }
    log.text()
}

fn times(d: &Path) -> String {
    let mut log = Log::default();
    let f = d.join("f");
    put(&f, "f");
    let set = |a: TimeSpec, m: TimeSpec| utimensat(AT_FDCWD, &f, &a, &m, UtimensatFlags::FollowSymlink);
    let each = |log: &mut Log, what: &str, a: (i64, i64), m: (i64, i64)| {
        log.done(what, set(TimeSpec::new(a.0, a.1), TimeSpec::new(m.0, m.1)));
        log.note(
            "are",
            stat(&f).map(|s| (s.st_atime, s.st_atime_nsec, s.st_mtime, s.st_mtime_nsec)),
        );
    };
    each(
        &mut log,
        "nanoseconds",
        (1_000_000_001, 123_456_789),
        (1_000_000_002, 987_654_321),
    );
    each(&mut log, "before 1970", (-1, 999_999_999), (-1_000_000_000, 1));
    each(&mut log, "the epoch", (0, 0), (0, 1));
    each(&mut log, "after 2038", (2_147_483_648, 5), (4_294_967_296, 999_999_999));
    each(&mut log, "far away", (9_000_000_000, 0), (15_000_000_000, 7));
    log.done("omit one", set(TimeSpec::UTIME_OMIT, TimeSpec::new(3, 4)));
    log.note("are", stat(&f).map(|s| (s.st_atime, s.st_mtime, s.st_mtime_nsec)));
    log.done("omit the other", set(TimeSpec::new(5, 6), TimeSpec::UTIME_OMIT));
    log.note(
        "are",
        stat(&f).map(|s| (s.st_atime, s.st_atime_nsec, s.st_mtime, s.st_mtime_nsec)),
    );
    let handle = File::open(&f).expect("the file");
    log.done(
        "futimens",
        futimens(&handle, &TimeSpec::new(7, 8), &TimeSpec::new(9, 10)),
    );
    log.note(
        "are",
        fstat(&handle).map(|s| (s.st_atime, s.st_atime_nsec, s.st_mtime, s.st_mtime_nsec)),
    );
    std::os::unix::fs::symlink("f", d.join("l")).expect("a symlink");
    let link = utimensat(
        AT_FDCWD,
        &d.join("l"),
        &TimeSpec::new(1, 2),
        &TimeSpec::new(3, 4),
        UtimensatFlags::NoFollowSymlink,
    );
    log.done("of a symlink", link);
    log.note("its", lstat(&d.join("l")).map(|s| (s.st_mtime, s.st_mtime_nsec)));
    log.note("the file's", stat(&f).map(|s| (s.st_mtime, s.st_mtime_nsec)));
    fs::create_dir(d.join("d")).expect("a directory");
    log.done(
        "of a directory",
        utimensat(
            AT_FDCWD,
            &d.join("d"),
            &TimeSpec::new(1, 2),
            &TimeSpec::new(3, 4),
            UtimensatFlags::FollowSymlink,
        ),
    );
    log.note("its", stat(&d.join("d")).map(|s| (s.st_mtime, s.st_mtime_nsec)));
    log.text()
}

/// Which calls move which time; each is set to a known past before the call.
fn times_move(d: &Path) -> String {
    let mut log = Log::default();
    let (f, dir) = (d.join("f"), d.join("d"));
    put(&f, "f");
    fs::create_dir(&dir).expect("a directory");
    let old = TimeSpec::new(1_000, 0);
    let mut check = |what: &str, call: &mut dyn FnMut()| {
        for path in [&f, &dir] {
            utimensat(AT_FDCWD, path, &old, &old, UtimensatFlags::FollowSymlink).expect("setting the times back");
        }
        let changed = |path: &Path| stat(path).map(|s| (s.st_ctime, s.st_ctime_nsec)).ok();
        let before = (changed(&f), changed(&dir));
        call();
        let moved = |path: &Path| stat(path).map(|s| s.st_mtime != 1_000).ok();
        log.note(
            what,
            (
                moved(&f),
                before.0 != changed(&f),
                moved(&dir),
                before.1 != changed(&dir),
            ),
        );
    };
    check("nothing", &mut || {});
    check("write", &mut || put(&f, "g"));
    check("append", &mut || {
        let mut file = OpenOptions::new().append(true).open(&f).expect("the file");
        file.write_all(b"more").expect("appending");
    });
    check("truncate", &mut || truncate(&f, 1).expect("truncating"));
    check("chmod", &mut || {
        fs::set_permissions(&f, Permissions::from_mode(0o600)).expect("chmod")
    });
    check("link", &mut || fs::hard_link(&f, dir.join("g")).expect("a link"));
    check("unlink", &mut || fs::remove_file(dir.join("g")).expect("an unlink"));
    check("create", &mut || put(&dir.join("h"), "h"));
    check("rename in", &mut || {
        fs::rename(dir.join("h"), dir.join("i")).expect("a rename")
    });
    check("mkdir", &mut || fs::create_dir(dir.join("e")).expect("a directory"));
    check("rmdir", &mut || fs::remove_dir(dir.join("e")).expect("its removal"));
    log.text()
}

fn truncating(d: &Path) -> String {
    let mut log = Log::default();
    let f = d.join("f");
    put(&f, "0123456789");
    for length in [5, 0, 3, 12] {
        log.done("truncate", truncate(&f, length));
        log.content("content", &f);
    }
    log.done("negative", truncate(&f, -1));
    log.done("of a directory", truncate(d, 0));
    log.done("of nothing", truncate(&d.join("n"), 0));
    log.done("too large", truncate(&f, i64::MAX));
    let reader = File::open(&f).expect("the file");
    log.done("by a reading handle", ftruncate(&reader, 1));
    let mut writer = OpenOptions::new().write(true).open(&f).expect("the file");
    log.io("write", writer.write_all(b"abc"));
    log.done("by a writing handle", ftruncate(&writer, 1));
    log.io("write past the end", writer.write_all(b"d"));
    log.content("content", &f);
    log.io("O_TRUNC", OpenOptions::new().write(true).truncate(true).open(&f));
    log.stat("size", stat(&f));
    log.text()
}

fn unlinked(d: &Path) -> String {
    let mut log = Log::default();
    let f = d.join("f");
    put(&f, "0123456789");
    let mut file = OpenOptions::new().read(true).write(true).open(&f).expect("the file");
    fs::remove_file(&f).expect("unlink");
    log.stat("fstat", fstat(&file));
    log.io("write", file.write_all(b"abc"));
    log.done("ftruncate", ftruncate(&file, 6));
    log.done("fchmod", fchmod(&file, Mode::from_bits_truncate(0o600)));
    log.done("futimens", futimens(&file, &TimeSpec::new(1, 2), &TimeSpec::new(3, 4)));
    log.stat("fstat", fstat(&file));
    log.io("seek", file.seek(SeekFrom::Start(0)));
    let mut text = String::new();
    log.io("read", file.read_to_string(&mut text));
    log.note("content", text);
    log.io("fsync", file.sync_all());
    log.stat("by name", stat(&f));
    put(&f, "another");
    log.io("write to the old", file.write_all(b"xyz"));
    log.content("the new one", &f);
    log.note("the old one's length", file.metadata().map(|found| found.len()).ok());
    log.text()
}

fn replaced(d: &Path) -> String {
    let mut log = Log::default();
    put(&d.join("f"), "old");
    put(&d.join("g"), "newer");
    let old = OpenOptions::new()
        .read(true)
        .write(true)
        .open(d.join("f"))
        .expect("the old one");
    log.io("rename over", fs::rename(d.join("g"), d.join("f")));
    log.note("links of the old", fstat(&old).map(|s| s.st_nlink));
    log.io("write to the old", old.write_all_at(b"OLD", 0));
    let mut bytes = [0; 8];
    log.note("read of the old", old.read_at(&mut bytes, 0).ok());
    log.note("its content", bytes.escape_ascii().to_string());
    log.content("the new", &d.join("f"));
    log.text()
}

fn renamed(d: &Path) -> String {
    let mut log = Log::default();
    fs::create_dir(d.join("d")).expect("a directory");
    put(&d.join("d/f"), "content");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(d.join("d/f"))
        .expect("the file");
    log.io("rename", fs::rename(d.join("d/f"), d.join("g")));
    log.io("rename of its directory", fs::rename(d.join("d"), d.join("e")));
    log.io("write", file.write_all_at(b"CON", 0));
    log.done("ftruncate", ftruncate(&file, 5));
    log.content("by its new name", &d.join("g"));
    put(&d.join("e/f"), "another");
    log.content("another of its old name", &d.join("e/f"));
    log.text()
}

fn blocks(d: &Path) -> String {
    let mut log = Log::default();
    let file = File::create(d.join("f")).expect("the file");
    for (what, offset) in [
        ("at 0", 0),
        ("at 1 MiB", 1 << 20),
        ("at 1 GiB", 1 << 30),
        ("at 1 TiB", 1_u64 << 40),
    ] {
        log.io(what, file.write_all_at(&[b'x'; 4096], offset));
        log.io("fsync", file.sync_all());
        log.note(
            "size, blocks",
            file.metadata().map(|found| (found.len(), found.blocks())).ok(),
        );
    }
    log.io(
        "beyond the largest",
        file.write_all_at(b"x", i64::MAX.unsigned_abs() - 1),
    );
    log.note("block size", file.metadata().map(|found| found.blksize()).ok());
    let mut bytes = [1; 16];
    log.note("read from the hole", file.read_at(&mut bytes, 1 << 25).ok());
    log.note("zeros", bytes);
    log.text()
}

fn filesystem(d: &Path) -> String {
    let mut log = Log::default();
    let found = statvfs(d);
    log.note(
        "block size",
        found.as_ref().map(|s| (s.block_size(), s.fragment_size())),
    );
    log.note("size", found.as_ref().map(|s| (s.blocks(), s.files())));
    log.note("longest name", found.as_ref().map(|s| s.name_max()));
    log.note("of a file", statvfs(&d.join("no")).map(|s| s.name_max()));
    log.text()
}

fn syncing(d: &Path) -> String {
    let mut log = Log::default();
    let mut file = File::create(d.join("f")).expect("the file");
    log.io("fsync of nothing", file.sync_all());
    log.io("write", file.write_all(b"data"));
    log.io("fdatasync", file.sync_data());
    log.io("fsync", file.sync_all());
    log.io(
        "fsync of the directory",
        File::open(d).and_then(|directory| directory.sync_all()),
    );
    log.done("syncfs", nix::unistd::syncfs(&file));
    log.io(
        "fsync by a reading handle",
        File::open(d.join("f")).and_then(|reader| reader.sync_all()),
    );
    log.content("content", &d.join("f"));
    log.text()
}

fn handles(d: &Path) -> String {
    let mut log = Log::default();
    let f = d.join("f");
    put(&f, "0123456789");
    let reader = File::open(&f).expect("a reading handle");
    log.io("write by a reader", reader.write_all_at(b"x", 0));
    let writer = OpenOptions::new().write(true).open(&f).expect("a writing handle");
    let mut byte = [0];
    log.io("read by a writer", writer.read_at(&mut byte, 0));
    log.io("write", writer.write_all_at(b"x", 3));
    log.note("seen by the reader", reader.read_at(&mut byte, 3).ok());
    log.note("byte", byte);
    fs::set_permissions(&f, Permissions::from_mode(0o444)).expect("chmod");
    log.io("write by the handle after chmod", writer.write_all_at(b"y", 4));
    log.content("content", &f);
    log.text()
}

fn many(d: &Path) -> String {
    let mut log = Log::default();
    let f = d.join("f");
    put(&f, "");
    let handles: Vec<File> = (0..200)
        .map(|i| {
            OpenOptions::new()
                .read(true)
                .append(i % 2 == 0)
                .write(true)
                .open(&f)
                .expect("a handle")
        })
        .collect();
    for (i, handle) in (0_u64..).zip(&handles) {
        handle.write_all_at(b"x", i).expect("a write");
    }
    log.note("length", fs::metadata(&f).map(|found| found.len()).ok());
    log.note("open", handles.len());
    drop(handles);
    let files: Vec<File> = (0..300)
        .map(|i| File::create(d.join(format!("f{i}"))).expect("a file"))
        .collect();
    log.note("files", files.len());
    log.text()
}
