//! Names: creating, linking, renaming, removing, listing.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, RenameFlags, open, openat, readlink, renameat2};
use nix::sys::stat::{Mode, SFlag, lstat, makedev, mkdirat, mknod, stat};
use nix::unistd::{UnlinkatFlags, linkat, mkdir, mkfifo, symlinkat, unlink, unlinkat};

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

pub(crate) const CASES: &[Case] = &[
    case("creating", creating),
    case("special files", special),
    Case {
        name: "devices",
        needs: &[],
        root: true,
        run: devices,
    },
    case("symbolic links", symbolic),
    case("hard links", hard),
    case("renaming", renaming),
    case("rename flags", flags),
    case("renaming directories", directories),
    case("removing", removing),
    case("long names", long),
    case("deeper than a path can say", deep),
    case("odd names", odd),
    case("listing while deleting", listing),
    case("listing after each change", after_each_change),
    case("a directory that is gone", gone),
];

fn mode() -> Mode {
    Mode::from_bits_truncate(0o644)
}

fn put(path: &Path, text: &str) {
    fs::write(path, text).expect("a file of the case's own");
}

fn opened(log: &mut Log, what: &str, path: &Path, flags: OFlag) {
    log.done(what, open(path, flags, mode()));
}

fn creating(d: &Path) -> String {
    let mut log = Log::default();
    opened(
        &mut log,
        "create",
        &d.join("f"),
        OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY,
    );
    opened(
        &mut log,
        "create again",
        &d.join("f"),
        OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY,
    );
    opened(&mut log, "open missing", &d.join("g"), OFlag::O_RDONLY);
    opened(
        &mut log,
        "create below a file",
        &d.join("f/x"),
        OFlag::O_CREAT | OFlag::O_WRONLY,
    );
    opened(
        &mut log,
        "create below nothing",
        &d.join("no/x"),
        OFlag::O_CREAT | OFlag::O_WRONLY,
    );
    opened(
        &mut log,
        "create with a slash",
        &d.join("g/"),
        OFlag::O_CREAT | OFlag::O_WRONLY,
    );
    opened(&mut log, "directory for writing", d, OFlag::O_WRONLY);
    opened(&mut log, "directory truncated", d, OFlag::O_RDWR | OFlag::O_TRUNC);
    opened(&mut log, "file as a directory", &d.join("f"), OFlag::O_DIRECTORY);
    opened(&mut log, "an O_PATH handle", &d.join("f"), OFlag::O_PATH);
    log.done("mkdir", mkdir(&d.join("d"), Mode::S_IRWXU));
    log.done("mkdir again", mkdir(&d.join("d"), Mode::S_IRWXU));
    log.done("mkdir over a file", mkdir(&d.join("f"), Mode::S_IRWXU));
    log.done("mkdir below nothing", mkdir(&d.join("no/d"), Mode::S_IRWXU));
    log.stat("file", stat(&d.join("f")));
    log.stat("missing", stat(&d.join("g")));
    log.stat("below a file", stat(&d.join("f/g")));
    log.names("names", d);
    log.text()
}

fn special(d: &Path) -> String {
    let mut log = Log::default();
    log.done("fifo", mkfifo(&d.join("p"), mode()));
    log.done("fifo again", mkfifo(&d.join("p"), mode()));
    log.done("mknod of a file", mknod(&d.join("f"), SFlag::S_IFREG, mode(), 0));
    log.done("mknod of a socket", mknod(&d.join("s"), SFlag::S_IFSOCK, mode(), 0));
    // By a short relative name in a real run; an address holds 108 bytes only.
    let listener = UnixListener::bind(d.join("u"));
    log.note("bind", listener.as_ref().map(|_| ()).map_err(|error| error.kind()));
    log.note(
        "bind again",
        UnixListener::bind(d.join("u"))
            .map(|_| ())
            .map_err(|error| error.raw_os_error()),
    );
    for name in ["p", "f", "s", "u"] {
        log.stat(name, lstat(&d.join(name)));
    }
    opened(
        &mut log,
        "fifo without a reader",
        &d.join("p"),
        OFlag::O_WRONLY | OFlag::O_NONBLOCK,
    );
    opened(&mut log, "socket", &d.join("s"), OFlag::O_RDONLY);
    for name in ["p", "s", "u"] {
        log.done("unlink", unlink(&d.join(name)));
    }
    log.names("names", d);
    log.text()
}

fn devices(d: &Path) -> String {
    let mut log = Log::default();
    log.done(
        "a character device",
        mknod(&d.join("null"), SFlag::S_IFCHR, mode(), makedev(1, 3)),
    );
    log.note("device number", lstat(&d.join("null")).map(|s| s.st_rdev));
    log.io("write", fs::write(d.join("null"), "x"));
    log.io("read", fs::read(d.join("null")));
    log.done(
        "a block device",
        mknod(&d.join("loop"), SFlag::S_IFBLK, mode(), makedev(7, 200)),
    );
    log.note("block device number", lstat(&d.join("loop")).map(|s| s.st_rdev));
    log.text()
}

fn symbolic(d: &Path) -> String {
    let mut log = Log::default();
    put(&d.join("f"), "content");
    log.done("to a file", symlinkat("f", AT_FDCWD, &d.join("l")));
    log.done("again", symlinkat("f", AT_FDCWD, &d.join("l")));
    log.done("dangling", symlinkat("nowhere", AT_FDCWD, &d.join("n")));
    log.done("loop", symlinkat("loop", AT_FDCWD, &d.join("loop")));
    log.done("absolute", symlinkat("/dev/null", AT_FDCWD, &d.join("a")));
    log.done("long", symlinkat("x".repeat(4000).as_str(), AT_FDCWD, &d.join("long")));
    log.done(
        "too long",
        symlinkat("x".repeat(4096).as_str(), AT_FDCWD, &d.join("longer")),
    );
    log.done("empty", symlinkat("", AT_FDCWD, &d.join("empty")));
    for name in ["l", "n", "loop", "a", "f"] {
        log.note(name, readlink(&d.join(name)));
        log.stat("itself", lstat(&d.join(name)));
    }
    log.note("long's length", readlink(&d.join("long")).map(|target| target.len()));
    log.content("through it", &d.join("l"));
    opened(
        &mut log,
        "no following",
        &d.join("l"),
        OFlag::O_RDONLY | OFlag::O_NOFOLLOW,
    );
    opened(&mut log, "loop", &d.join("loop"), OFlag::O_RDONLY);
    opened(
        &mut log,
        "exclusive through a dangling link",
        &d.join("n"),
        OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY,
    );
    opened(
        &mut log,
        "create through a dangling link",
        &d.join("n"),
        OFlag::O_CREAT | OFlag::O_WRONLY,
    );
    log.names("names", d);
    log.text()
}

fn hard(d: &Path) -> String {
    let mut log = Log::default();
    put(&d.join("f"), "content");
    fs::create_dir(d.join("d")).expect("a directory");
    let link = |from: &str, to: &str| linkat(AT_FDCWD, &d.join(from), AT_FDCWD, &d.join(to), AtFlags::empty());
    log.done("link", link("f", "d/g"));
    log.done("link again", link("f", "d/g"));
    log.done("link of a directory", link("d", "e"));
    log.done("link of nothing", link("no", "e"));
    log.stat("f", stat(&d.join("f")));
    let inode = |name: &str| fs::metadata(d.join(name)).map(|found| found.ino()).unwrap_or_default();
    log.note("one file", inode("f") == inode("d/g"));
    put(&d.join("d/g"), "changed");
    log.content("through the other name", &d.join("f"));
    log.done("unlink one", unlink(&d.join("f")));
    log.stat("the other", stat(&d.join("d/g")));
    log.done("link back", link("d/g", "f"));
    log.content("again", &d.join("f"));
    symlink("f", d.join("l")).expect("a symlink");
    log.done("link of a symlink", link("l", "m"));
    log.stat("its second name", lstat(&d.join("m")));
    log.done(
        "link of what it leads to",
        linkat(
            AT_FDCWD,
            &d.join("l"),
            AT_FDCWD,
            &d.join("o"),
            AtFlags::AT_SYMLINK_FOLLOW,
        ),
    );
    log.stat("o", lstat(&d.join("o")));
    log.names("names", d);
    log.text()
}

fn rename(d: &Path, from: &str, to: &str, flags: RenameFlags) -> Result<(), Errno> {
    renameat2(AT_FDCWD, &d.join(from), AT_FDCWD, &d.join(to), flags)
}

fn renaming(d: &Path) -> String {
    let mut log = Log::default();
    put(&d.join("a"), "a");
    put(&d.join("b"), "b");
    fs::create_dir_all(d.join("d/e")).expect("directories");
    let plain = RenameFlags::empty();
    log.done("to a free name", rename(d, "a", "c", plain));
    log.done("over another", rename(d, "c", "b", plain));
    log.content("b", &d.join("b"));
    log.done("onto itself", rename(d, "b", "b", plain));
    log.done("of nothing", rename(d, "a", "z", plain));
    log.done("onto a directory", rename(d, "b", "d", plain));
    log.done("below a file", rename(d, "d", "b/x", plain));
    log.done("into a directory", rename(d, "b", "d/b", plain));
    log.done("a name of 256 bytes", rename(d, "d/b", &"x".repeat(256), plain));
    fs::hard_link(d.join("d/b"), d.join("h")).expect("a hard link");
    log.done("onto a hard link of itself", rename(d, "h", "d/b", plain));
    log.names("both stay", d);
    let open = File::open(d.join("d/b")).expect("the file");
    log.done("while open", rename(d, "d/b", "d/e/c", plain));
    log.io("length", open.metadata().map(|found| found.len()));
    log.names("names", &d.join("d/e"));
    log.text()
}

fn flags(d: &Path) -> String {
    let mut log = Log::default();
    put(&d.join("a"), "a");
    put(&d.join("b"), "b");
    fs::create_dir(d.join("d")).expect("a directory");
    put(&d.join("d/in"), "in");
    log.done(
        "noreplace over another",
        rename(d, "a", "b", RenameFlags::RENAME_NOREPLACE),
    );
    log.done(
        "noreplace to a free name",
        rename(d, "a", "c", RenameFlags::RENAME_NOREPLACE),
    );
    log.done("exchange", rename(d, "c", "b", RenameFlags::RENAME_EXCHANGE));
    log.content("b", &d.join("b"));
    log.content("c", &d.join("c"));
    log.done(
        "exchange with nothing",
        rename(d, "c", "z", RenameFlags::RENAME_EXCHANGE),
    );
    log.done(
        "exchange with a directory",
        rename(d, "c", "d", RenameFlags::RENAME_EXCHANGE),
    );
    log.content("the directory's new name", &d.join("c/in"));
    log.content("the file's new name", &d.join("d"));
    log.done(
        "exchange with what is inside",
        rename(d, "c", "c/in", RenameFlags::RENAME_EXCHANGE),
    );
    let both = RenameFlags::RENAME_EXCHANGE | RenameFlags::RENAME_NOREPLACE;
    log.done("both flags", rename(d, "b", "c", both));
    log.names("names", d);
    log.text()
}

fn directories(d: &Path) -> String {
    let mut log = Log::default();
    fs::create_dir_all(d.join("a/b/c")).expect("directories");
    fs::create_dir_all(d.join("x/y")).expect("directories");
    fs::create_dir(d.join("empty")).expect("a directory");
    put(&d.join("f"), "f");
    let plain = RenameFlags::empty();
    log.done("into itself", rename(d, "a", "a/b/d", plain));
    log.done("over its own parent", rename(d, "a/b", "a", plain));
    log.done("over one that is not empty", rename(d, "a", "x", plain));
    log.done("over a file", rename(d, "a", "f", plain));
    log.done("over an empty one", rename(d, "a", "empty", plain));
    log.stat("links of the moved", stat(&d.join("empty")));
    log.done("across", rename(d, "empty/b", "x/b", plain));
    log.stat("links of the old parent", stat(&d.join("empty")));
    log.stat("links of the new parent", stat(&d.join("x")));
    log.names("below", &d.join("x/b"));
    log.io(
        "up from it",
        fs::canonicalize(d.join("x/b/..")).map(|up| up.ends_with("x")),
    );
    log.text()
}

fn removing(d: &Path) -> String {
    let mut log = Log::default();
    fs::create_dir_all(d.join("d/e")).expect("directories");
    put(&d.join("f"), "f");
    let rmdir = |name: &str| unlinkat(AT_FDCWD, &d.join(name), UnlinkatFlags::RemoveDir);
    log.done("unlink of a directory", unlink(&d.join("d")));
    log.done("rmdir of a file", rmdir("f"));
    log.done("rmdir of a full directory", rmdir("d"));
    log.done("rmdir of .", rmdir("d/."));
    log.done("rmdir of ..", rmdir("d/e/.."));
    log.done("rmdir of nothing", rmdir("no"));
    log.done("unlink with a slash", unlink(&d.join("f/")));
    log.done("rmdir", rmdir("d/e"));
    log.done("rmdir of its parent", rmdir("d"));
    log.done("unlink", unlink(&d.join("f")));
    log.done("unlink again", unlink(&d.join("f")));
    log.done(
        "create again",
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(d.join("f"))
            .map_err(|_| Errno::EEXIST),
    );
    log.names("names", d);
    log.text()
}

fn long(d: &Path) -> String {
    let mut log = Log::default();
    let (fits, too_long) = ("n".repeat(255), "n".repeat(256));
    log.io("255 bytes", fs::write(d.join(&fits), "x"));
    log.io("256 bytes", fs::write(d.join(&too_long), "x"));
    log.stat("255 bytes", stat(&d.join(&fits)));
    log.stat("256 bytes", stat(&d.join(&too_long)));
    log.done("mkdir, 256 bytes", mkdir(&d.join(&too_long), Mode::S_IRWXU));
    log.done("symlink, 256 bytes", symlinkat("x", AT_FDCWD, &d.join(&too_long)));
    log.io(
        "rename to 255 bytes",
        fs::rename(d.join(&fits), d.join("m".repeat(255))),
    );
    log.names("names", d);
    log.text()
}

/// Goes down by descriptors: no path leads there.
fn deep(d: &Path) -> String {
    let mut log = Log::default();
    let name = "d".repeat(200);
    let directory = OFlag::O_DIRECTORY | OFlag::O_RDONLY;
    let mut chain: Vec<OwnedFd> = vec![open(d, directory, Mode::empty()).expect("the case's directory")];
    let mut depth = 0;
    while depth < 30 {
        let at = chain.last().expect("the deepest directory");
        let made = mkdirat(at, name.as_str(), Mode::S_IRWXU)
            .and_then(|()| openat(at, name.as_str(), directory, Mode::empty()));
        let Ok(next) = made else { break };
        chain.push(next);
        depth += 1;
    }
    log.note("depth", depth);
    let deepest = chain.last().expect("the deepest directory");
    let file = openat(deepest, "f", OFlag::O_CREAT | OFlag::O_RDWR, mode());
    log.note("file", file.as_ref().map(|file| nix::unistd::write(file, b"deep")));
    log.done("rename", nix::fcntl::renameat(deepest, "f", deepest, "g"));
    log.done(
        "by the whole path",
        stat(&d.join(vec![name.as_str(); 30].join("/")).join("g")),
    );
    log.done("unlink", unlinkat(deepest, "g", UnlinkatFlags::NoRemoveDir));
    while chain.len() > 1 {
        drop(chain.pop());
        let parent = chain.last().expect("a parent");
        if let Err(errno) = unlinkat(parent, name.as_str(), UnlinkatFlags::RemoveDir) {
            log.note("rmdir", errno);
        }
    }
    log.names("all removed", d);
    log.text()
}

fn odd(d: &Path) -> String {
    let mut log = Log::default();
    for name in [
        &b"new\nline"[..],
        b" space ",
        b"\xff\xfe",
        b"\\back",
        b"...",
        b"-",
        b"*",
        "\u{e9}".as_bytes(),
        "e\u{301}".as_bytes(),
    ] {
        let path = d.join(OsStr::from_bytes(name));
        log.io("write", fs::write(&path, name));
        log.content("read", &path);
    }
    log.io("a capital", fs::write(d.join("Name"), "capital"));
    log.io("no capital", fs::write(d.join("name"), "small"));
    log.content("capital", &d.join("Name"));
    log.names("names", d);
    log.text()
}

fn listing(d: &Path) -> String {
    let mut log = Log::default();
    for i in 0..5000 {
        File::create(d.join(format!("file-{i:04}"))).expect("one of many");
    }
    let mut seen = std::collections::BTreeSet::new();
    let mut twice = 0;
    for entry in fs::read_dir(d).expect("the listing").map_while(Result::ok) {
        let name = entry.file_name();
        fs::remove_file(entry.path()).expect("deleting what was listed");
        twice += u32::from(!seen.insert(name));
    }
    log.note("seen", seen.len());
    log.note("twice", twice);
    log.names("left", d);
    log.text()
}

fn after_each_change(d: &Path) -> String {
    let mut log = Log::default();
    log.names("empty", d);
    put(&d.join("a"), "");
    log.names("one", d);
    fs::create_dir(d.join("b")).expect("a directory");
    log.names("two", d);
    fs::rename(d.join("a"), d.join("b/c")).expect("a rename");
    log.names("moved", d);
    log.names("moved there", &d.join("b"));
    let kinds = fs::read_dir(d).map(|found| {
        found
            .map_while(Result::ok)
            .map(|e| e.file_type().map(|k| k.is_dir()).ok())
            .collect::<Vec<_>>()
    });
    log.note("kinds", kinds.ok());
    fs::remove_dir_all(d.join("b")).expect("removal of all");
    log.names("none", d);
    log.text()
}

fn gone(d: &Path) -> String {
    let mut log = Log::default();
    let path = d.join("d");
    fs::create_dir(&path).expect("a directory");
    let handle = open(&path, OFlag::O_DIRECTORY | OFlag::O_RDONLY, Mode::empty()).expect("its handle");
    fs::remove_dir(&path).expect("its removal");
    log.done(
        "create in it",
        openat(&handle, "f", OFlag::O_CREAT | OFlag::O_WRONLY, mode()),
    );
    log.done("mkdir in it", mkdirat(&handle, "e", Mode::S_IRWXU));
    log.note("links", nix::sys::stat::fstat(&handle).map(|s| s.st_nlink));
    fs::create_dir(&path).expect("a new one of the same name");
    log.done(
        "create in the old one",
        openat(&handle, "f", OFlag::O_CREAT | OFlag::O_WRONLY, mode()),
    );
    log.names("the new one", &path);
    log.text()
}
