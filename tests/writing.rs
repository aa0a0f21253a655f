//! Files that somebody keeps open while writing them: a slow redirect, a log, a database.

#![expect(clippy::unwrap_used, reason = "a test")]
#![expect(clippy::print_stdout, reason = "a skip is said aloud")]

mod support;

use std::fs;
use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use support::Tree;

const ESTALE: i32 = 116;

fn text(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap()
}

fn errno<T>(result: std::io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

fn kept(tree: &Tree) -> Vec<String> {
    let Ok(entries) = fs::read_dir(tree.backing.join(".unclobber/attic")) else {
        return Vec::new();
    };
    entries.map(|entry| text(entry.unwrap().path())).collect()
}

fn last_line(tree: &Tree) -> String {
    tree.refusals().pop().unwrap()
}

/// Every way to change the content where it is.
fn in_place(path: &Path) -> Vec<(&'static str, std::io::Result<()>)> {
    let edit = |change: &dyn Fn(&fs::File) -> std::io::Result<()>| {
        let file = fs::OpenOptions::new().write(true).open(path)?;
        change(&file)
    };
    vec![
        ("replace", fs::write(path, "b")),
        ("write", edit(&|file| file.write_all_at(b"b", 0))),
        ("ftruncate", edit(&|file| file.set_len(0))),
        ("truncate", nix::unistd::truncate(path, 1).map_err(Into::into)),
        (
            "fallocate",
            edit(&|file| {
                let flags = nix::fcntl::FallocateFlags::empty();
                nix::fcntl::fallocate(file, flags, 0, 4096).map_err(Into::into)
            }),
        ),
    ]
}

// semantics: D21 E7
#[test]
fn the_content_is_its_writer_s_until_that_is_closed() {
    let mut tree = Tree::new(|dir| fs::write(dir.join("f"), "one").unwrap());
    let (a, b) = (tree.owner("a"), tree.owner("b"));
    for how in ["emptied", "made"] {
        let name = if how == "made" { "new" } else { "f" };
        if how == "emptied" {
            assert_eq!(text(a.join(name)), "one");
        }
        let mut slow = fs::File::create(a.join(name)).unwrap();
        slow.write_all(b"half").unwrap();
        // What has been flushed or synced can be read, and is a version.
        slow.sync_all().unwrap();
        assert_eq!(text(b.join(name)), "half");
        for (way, done) in in_place(&b.join(name)) {
            assert_eq!(errno(done), Some(ESTALE), "{how}: {way}");
            let line = last_line(&tree);
            assert!(
                line.contains("owner \"a\" (") && line.contains("), who opened it"),
                "{line}"
            );
            assert!(line.contains("is still writing it"), "{line}");
            assert!(
                line.ends_with("wait until the writer has closed it, read the file again, then retry"),
                "{line}"
            );
        }
        slow.write_all(b" whole").unwrap();
        assert_eq!(text(a.join(name)), "half whole", "{how}: nothing was lost");
        // The step that was named.
        drop(slow);
        assert_eq!(text(b.join(name)), "half whole");
        for (way, done) in in_place(&b.join(name)) {
            assert!(done.is_ok(), "{how}: {way}: {done:?}");
        }
    }
}

// semantics: D21
#[test]
fn whoever_waited_for_a_close_is_not_refused_for_it() {
    let mut tree = Tree::new(|dir| fs::write(dir.join("f"), "0").unwrap());
    let (a, b) = (tree.owner("a"), tree.owner("b"));
    for round in 0..200 {
        for (mount, tag) in [(&a, "a"), (&b, "b")] {
            text(mount.join("f"));
            let done = fs::write(mount.join("f"), format!("{tag}{round}"));
            assert!(done.is_ok(), "round {round}: {done:?}");
        }
    }
    assert_eq!(tree.guard.events().refusals.get(), 0);
}

// semantics: D21
#[test]
fn a_writer_s_own_owner_is_not_kept_off() {
    let mut tree = Tree::new(|_| ());
    let a = tree.owner("a");
    let mut log = fs::File::create(a.join("log")).unwrap();
    log.write_all(b"one\n").unwrap();
    log.sync_all().unwrap();
    fs::write(a.join("log"), "two\n").unwrap();
    fs::OpenOptions::new()
        .append(true)
        .open(a.join("log"))
        .unwrap()
        .write_all(b"three\n")
        .unwrap();
    assert_eq!(text(a.join("log")), "two\nthree\n");
}

// semantics: D22 A1
#[test]
fn a_writer_whose_file_is_taken_away_is_told_and_its_content_kept() {
    for way in ["rename over", "unlink"] {
        let mut tree = Tree::new(|_| ());
        let (a, b) = (tree.owner("a"), tree.owner("b"));
        let mut slow = fs::File::create(a.join("f")).unwrap();
        slow.write_all(b"half").unwrap();
        slow.sync_all().unwrap();
        assert_eq!(text(b.join("f")), "half");
        if way == "unlink" {
            fs::remove_file(b.join("f")).unwrap();
        } else {
            fs::write(b.join("t"), "from b").unwrap();
            fs::rename(b.join("t"), b.join("f")).unwrap();
        }
        slow.write_all(b" whole").unwrap();
        assert_eq!(kept(&tree), ["half whole"], "{way}");
        // Nothing in the tree was damaged, and the writer learns of it: at each sync and close, and in one report.
        assert_eq!(errno(slow.sync_all()), Some(ESTALE), "{way}");
        assert_eq!(nix::unistd::close(slow), Err(nix::errno::Errno::ESTALE), "{way}");
        assert_eq!(tree.guard.events().refusals.get(), 1, "{way}");
        let line = last_line(&tree);
        assert!(line.contains("removed or replaced by owner \"b\""), "{line}");
        assert!(line.contains("kept in the attic"), "{line}");
        let step = if way == "unlink" {
            "look at the path again (`ls PATH` itself, not its directory) to see that it is gone, then create it"
        } else {
            "read the file again, then retry"
        };
        assert!(line.ends_with(step), "{line}");
        // The step that was named.
        match fs::read(a.join("f")) {
            Ok(content) => assert_eq!(content, b"from b"),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound),
        }
        fs::write(a.join("f"), "half whole").unwrap();
        assert_eq!(text(tree.backing.join("f")), "half whole");
    }
}

// semantics: D22
#[test]
fn a_writer_that_had_written_everything_is_told_nothing() {
    let mut tree = Tree::new(|_| ());
    let (a, b) = (tree.owner("a"), tree.owner("b"));
    let mut done = fs::File::create(a.join("f")).unwrap();
    done.write_all(b"whole").unwrap();
    done.sync_all().unwrap();
    assert_eq!(text(b.join("f")), "whole");
    fs::remove_file(b.join("f")).unwrap();
    assert_eq!(kept(&tree), ["whole"], "it could have gone on");
    nix::unistd::close(done).unwrap();
    assert_eq!(tree.guard.events().refusals.get(), 0);
}

// semantics: D17 D21
#[test]
fn who_made_a_file_to_read_and_write_it_shares_it_and_is_judged_each_time() {
    let mut tree = Tree::new(|_| ());
    let (a, b) = (tree.owner("a"), tree.owner("b"));
    let open = |path: &Path| {
        fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .unwrap()
    };
    // As a database does: a made the file and keeps it open, b writes to it.
    let base = open(&a.join("base"));
    base.write_all_at(b"page 1", 0).unwrap();
    base.sync_all().unwrap();
    let mut other = open(&b.join("base"));
    let mut page = String::new();
    other.read_to_string(&mut page).unwrap();
    assert_eq!(page, "page 1");
    other.write_all_at(b"PAGE", 0).unwrap();
    // What a writes now would go over what b wrote.
    assert_eq!(errno(base.write_all_at(b"row", 5)), Some(ESTALE));
    assert_eq!(text(tree.backing.join("base")), "PAGE 1");
    base.read_exact_at(&mut [0; 6], 0).unwrap();
    base.write_all_at(b"2", 5).unwrap();
    assert_eq!(text(tree.backing.join("base")), "PAGE 2");
}

/// Stores through a mapping that it makes and takes away, waits for a line, and then writes.
const STORES_THEN_WRITES: &str = "import ctypes, os, sys
libc = ctypes.CDLL(None); libc.mmap.restype = ctypes.c_void_p
open(sys.argv[1]).read(); fd = os.open(sys.argv[1], os.O_RDWR)
m = libc.mmap(None, ctypes.c_long(4096), 3, 1, fd, ctypes.c_long(0)); ctypes.memset(m, 109, 1)
libc.munmap(ctypes.c_void_p(m), ctypes.c_long(4096)); print('stored', flush=True); sys.stdin.readline()
try: os.pwrite(fd, b'w', 1); print(0)
except OSError as e: print(e.errno)";

// semantics: O10 D8
#[test]
fn stores_through_a_mapping_that_is_gone_are_their_owner_s_and_hide_no_outsider() {
    type Meanwhile = fn(&Path, &Path);
    let cases: [(Meanwhile, i32, &str); 7] = [
        (|_, _| (), 0, "mwxx"),
        (
            |backing, _| {
                let file = fs::OpenOptions::new().write(true).open(backing).unwrap();
                file.write_all_at(b"outsider", 0).unwrap();
            },
            ESTALE,
            "outs",
        ),
        (|backing, _| nix::unistd::truncate(backing, 3).unwrap(), ESTALE, "mxx"),
        (
            |_, other| {
                text(other);
                fs::write(other, "another owner").unwrap();
            },
            ESTALE,
            "anot",
        ),
        // By a name under which nothing is judged: no request says what is written, stored or cut off there.
        (
            |_, other| {
                let file = fs::OpenOptions::new()
                    .write(true)
                    .open(other.with_extension("o"))
                    .unwrap();
                file.write_all_at(b"off the record", 0).unwrap();
            },
            ESTALE,
            "off ",
        ),
        (
            |_, other| {
                let store = "import mmap, sys; f = open(sys.argv[1], 'r+b'); mmap.mmap(f.fileno(), 0)[0:4] = b'else'";
                let mut python = Command::new("python3");
                let stored = python.args(["-c", store]).arg(other.with_extension("o")).status();
                assert!(stored.unwrap().success());
            },
            ESTALE,
            "else",
        ),
        (
            |_, other| nix::unistd::truncate(&other.with_extension("o"), 3).unwrap(),
            ESTALE,
            "mxx",
        ),
    ];
    for (meanwhile, expected, left) in cases {
        let mut tree = Tree::new(|dir| {
            fs::write(dir.join("f"), "x".repeat(4096)).unwrap();
            fs::hard_link(dir.join("f"), dir.join("f.o")).unwrap();
        });
        let (a, b) = (tree.owner("a"), tree.owner("b"));
        let mut child = Command::new("python3")
            .args(["-c", STORES_THEN_WRITES])
            .arg(a.join("f"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "stored");
        meanwhile(&tree.backing.join("f"), &b.join("f"));
        child.stdin.take().unwrap().write_all(b"\n").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), expected.to_string(), "{left}");
        assert!(child.wait().unwrap().success());
        assert!(text(tree.backing.join("f")).starts_with(left), "{left}");
    }
}

/// Keeps a mapping without a descriptor, stores into it once before it says so, and again after each line.
const STORES_AGAIN: &str = "import ctypes, os, sys
libc = ctypes.CDLL(None); libc.mmap.restype = ctypes.c_void_p
open(sys.argv[1]).read(); fd = os.open(sys.argv[1], os.O_RDWR)
m = libc.mmap(None, ctypes.c_long(4096), 3, 1, fd, ctypes.c_long(0)); os.close(fd)
for letter in b'123456':
    ctypes.memset(m, letter, 1); print('stored', flush=True)
    if not sys.stdin.readline(): break";

/// A process that runs [`STORES_AGAIN`], which has stored once.
struct Storing {
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Storing {
    fn start(file: &Path) -> Self {
        let mut child = Command::new("python3")
            .args(["-c", STORES_AGAIN])
            .arg(file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "stored");
        Self { child, stdin, lines }
    }

    fn again(&mut self) {
        self.stdin.write_all(b"\n").unwrap();
        assert_eq!(self.lines.next().unwrap().unwrap(), "stored");
    }

    fn end(mut self) {
        drop(self.stdin);
        assert!(self.child.wait().unwrap().success());
    }
}

/// Whether stores through mappings are dated, as on all filesystems that write back; said if not.
fn stores_are_dated(tree: &Tree) -> bool {
    let dated = nix::sys::statfs::statfs(&tree.backing).unwrap().filesystem_type() != nix::sys::statfs::TMPFS_MAGIC;
    if !dated {
        println!("SKIPPED: tmpfs does not date stores through mappings");
    }
    dated
}

// semantics: V8 D8
#[test]
fn a_further_store_into_a_mapped_page_is_another_version() {
    type Change = fn(&Path) -> std::io::Result<()>;
    let changes: [(&str, Change); 3] = [
        ("write", |file| {
            fs::OpenOptions::new().write(true).open(file)?.write_all_at(b"a", 9)
        }),
        ("unlink", |file| fs::remove_file(file)),
        ("replace", |file| fs::write(file, "a")),
    ];
    for mapped_through in [
        "the backing directory",
        "the mount",
        "the backing directory, and appended to",
    ] {
        let mut tree = Tree::new(|dir| fs::write(dir.join("f"), "x".repeat(4096)).unwrap());
        if !stores_are_dated(&tree) {
            return;
        }
        let (a, b) = (tree.owner("a"), tree.owner("b"));
        let by_mount = mapped_through == "the mount";
        let mut storing = Storing::start(&if by_mount { b.join("f") } else { tree.backing.join("f") });
        if mapped_through.ends_with("appended to") {
            // The last change is not that of the mapping.
            let log = fs::OpenOptions::new().append(true).open(b.join("f"));
            log.unwrap().write_all(b"appended").unwrap();
        }
        for (letter, (way, change)) in ('2'..).zip(changes) {
            text(a.join("f"));
            storing.again();
            let case = format!("{way} of what is mapped through {mapped_through}");
            assert_eq!(errno(change(&a.join("f"))), Some(ESTALE), "{case}");
            assert!(
                text(tree.backing.join("f")).starts_with(&format!("{letter}x")),
                "{case}"
            );
        }
        // The step: it is read again, and then changed.
        text(a.join("f"));
        assert_eq!(errno(fs::remove_file(a.join("f"))), None, "{mapped_through}");
        storing.end();
    }
}

// semantics: O10 D8
#[test]
fn a_mapping_that_outlives_its_handle_is_not_taken_for_another_owner_s() {
    let mut tree = Tree::new(|dir| fs::write(dir.join("f"), "x".repeat(4096)).unwrap());
    if !stores_are_dated(&tree) {
        return;
    }
    let (a, b) = (tree.owner("a"), tree.owner("b"));
    let mut storing = Storing::start(&b.join("f"));
    let mut file = fs::OpenOptions::new().read(true).write(true).open(a.join("f")).unwrap();
    file.read_exact(&mut [0; 8]).unwrap();
    let file = {
        // Opened by an owner who has the file current, and so may map it.
        drop(file);
        fs::OpenOptions::new().read(true).write(true).open(a.join("f")).unwrap()
    };
    storing.again();
    assert_eq!(errno(file.set_len(0)), Some(ESTALE));
    assert_eq!(errno(file.write_all_at(b"a", 9)), Some(ESTALE));
    assert!(text(tree.backing.join("f")).starts_with("2x"));
    storing.end();
}

// semantics: O10 A1
#[test]
fn what_an_outsider_stores_while_an_owner_may_have_the_file_mapped_is_kept() {
    let mut tree = Tree::new(|dir| fs::write(dir.join("f"), "x".repeat(4096)).unwrap());
    if !stores_are_dated(&tree) {
        return;
    }
    let a = tree.owner("a");
    text(a.join("f"));
    let file = fs::OpenOptions::new().read(true).write(true).open(a.join("f")).unwrap();
    let storing = Storing::start(&tree.backing.join("f"));
    // Nobody can tell it from a store of a's own.
    file.write_all_at(b"a", 9).unwrap();
    file.set_len(0).unwrap();
    drop(file);
    storing.end();
    assert!(
        kept(&tree).iter().any(|kept| kept.starts_with("1xxx")),
        "{:?}",
        kept(&tree)
    );
}

// semantics: D22 L7
#[test]
fn what_is_written_on_under_an_unguarded_name_is_kept() {
    type Change = fn(&Path) -> std::io::Result<()>;
    let changes: [Change; 2] = [|file| fs::remove_file(file), |file| fs::write(file, "theirs")];
    for change in changes {
        let mut tree = Tree::new(|dir| fs::create_dir(dir.join("node_modules")).unwrap());
        let (a, b) = (tree.owner("a"), tree.owner("b"));
        let mut slow = fs::File::create(a.join("f")).unwrap();
        slow.write_all(b"half").unwrap();
        slow.sync_all().unwrap();
        assert_eq!(text(b.join("f")), "half");
        fs::rename(b.join("f"), b.join("node_modules/f")).unwrap();
        change(&b.join("node_modules/f")).unwrap();
        assert!(kept(&tree).contains(&"half".to_owned()), "{:?}", kept(&tree));
        drop(slow);
    }
}

// semantics: D21
#[test]
fn who_goes_on_writing_what_was_moved_to_a_guarded_name_is_not_written_over() {
    let mut tree = Tree::new(|_| ());
    let (a, b) = (tree.owner("a"), tree.owner("b"));
    let mut slow = fs::File::create(a.join("f~")).unwrap();
    slow.write_all(b"half").unwrap();
    fs::rename(a.join("f~"), a.join("f")).unwrap();
    slow.sync_all().unwrap();
    assert_eq!(text(b.join("f")), "half");
    for (way, done) in in_place(&b.join("f")) {
        assert_eq!(errno(done), Some(ESTALE), "{way}");
    }
    slow.write_all(b" whole").unwrap();
    drop(slow);
    assert_eq!(text(b.join("f")), "half whole");
    for (way, done) in in_place(&b.join("f")) {
        assert!(done.is_ok(), "{way}: {done:?}");
    }
}
