//! How many requests an operation costs, on a real mount, counted by the guard itself. Times drift; counts do not: a
//! count that grows is a slower guard, and one that falls is to be written down here. So with the system calls that the guard
//! makes for them.
//!
//! Requests that nobody waits for (FORGET, RELEASE, RELEASEDIR) are left out.

#[expect(dead_code, reason = "each test program uses its own part of the harness")]
mod support;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use support::Tree;
use unclobber::sys;

/// Files each operation is done on; the bounds are for one.
const FILES: u64 = 20;
/// What directories and the like may add to all files together, seldom: an entry that lapses on the way.
const SLACK: u64 = 2;

/// System calls of the guard's own threads, which look after it now and then, and of a process that is met for the first time.
const CALLS_SLACK: u64 = 18;

const EXT4: i64 = 0xEF53;

type Prepare = fn(&Path);
type Operation = fn(&Path);

/// One operation: what is there before (made through the mount, and looked at), what is done to each file, and the most
/// requests that it may cost.
struct Bound {
    name: &'static str,
    prepare: Prepare,
    operation: Operation,
    most: u64,
    /// The same of system calls that the guard makes for it.
    calls: u64,
}

/// `cargo test --test requests -- --nocapture` shows the counts: lower a bound when an operation has become cheaper.
const BOUNDS: [Bound; 11] = [
    Bound {
        name: "stat again",
        prepare: make,
        operation: look,
        most: 1,
        calls: 0,
    },
    Bound {
        name: "stat of a missing name again",
        prepare: miss,
        operation: miss,
        most: 0,
        calls: 0,
    },
    Bound {
        name: "open, read, close",
        prepare: make,
        operation: read,
        most: 2,
        calls: 5,
    },
    Bound {
        name: "create, write, close",
        prepare: nothing,
        operation: write_new,
        most: 6,
        calls: 13,
    },
    Bound {
        name: "replace",
        prepare: make,
        operation: write_new,
        most: 6,
        calls: 10,
    },
    Bound {
        name: "append",
        prepare: make,
        operation: append,
        most: 5,
        calls: 10,
    },
    Bound {
        name: "temporary file, rename over",
        prepare: make,
        operation: rename_over,
        most: 9,
        calls: 31,
    },
    Bound {
        name: "unlink",
        prepare: make,
        operation: unlink,
        most: 3,
        calls: 7,
    },
    Bound {
        name: "mkdir",
        prepare: nothing,
        operation: mkdir,
        most: 4,
        calls: 8,
    },
    Bound {
        name: "rmdir",
        prepare: mkdir,
        operation: rmdir,
        most: 3,
        calls: 8,
    },
    Bound {
        name: "list a directory",
        prepare: make,
        operation: list_parent,
        most: 4,
        calls: 49,
    },
];

fn nothing(_path: &Path) {}

fn make(path: &Path) {
    fs::write(path, "content").expect("makes");
    look(path);
}

fn look(path: &Path) {
    fs::symlink_metadata(path).expect("is there");
}

fn miss(path: &Path) {
    fs::symlink_metadata(path).expect_err("is not there");
}

fn read(path: &Path) {
    let mut buffer = [0; 4096];
    let length = File::open(path).expect("opens").read(&mut buffer).expect("reads");
    assert_eq!(&buffer[..length], b"content");
}

fn write_new(path: &Path) {
    File::create(path)
        .expect("creates")
        .write_all(b"more content")
        .expect("writes");
}

fn append(path: &Path) {
    let mut file = OpenOptions::new().append(true).open(path).expect("opens");
    file.write_all(b"more").expect("writes");
}

fn rename_over(path: &Path) {
    let temporary = path.with_extension("tmp");
    write_new(&temporary);
    fs::rename(temporary, path).expect("renames");
}

fn unlink(path: &Path) {
    fs::remove_file(path).expect("removes");
}

fn mkdir(path: &Path) {
    fs::create_dir(path).expect("makes");
}

fn rmdir(path: &Path) {
    fs::remove_dir(path).expect("removes");
}

fn list_parent(path: &Path) {
    let parent = path.parent().expect("a directory");
    assert!(fs::read_dir(parent).expect("lists").count() > 0);
}

/// Requests so far that somebody waited for, by kind.
fn counts(tree: &Tree) -> BTreeMap<&'static str, u64> {
    let mut sums = BTreeMap::new();
    let mounts = tree.guard.mounts();
    for (kind, count) in mounts.iter().flat_map(|mount| mount.requests().counts()) {
        if kind.is_waited_for() {
            *sums.entry(kind.name()).or_default() += count;
        }
    }
    sums
}

/// What `act` costs, in all and by kind.
fn cost(tree: &Tree, act: impl FnOnce()) -> (u64, String) {
    let before = counts(tree);
    act();
    let after = counts(tree);
    let mut spent = String::new();
    let mut sum = 0;
    for (kind, count) in after {
        let more = count - before.get(kind).unwrap_or(&0);
        if more > 0 {
            spent.push_str(&format!(" {kind} {more}"));
            sum += more;
        }
    }
    (sum, spent)
}

/// What was measured, each bound with its count, and what is more than its bound.
#[derive(Default)]
struct Counted {
    lines: Vec<String>,
    complaints: Vec<String>,
}

impl Counted {
    fn add(&mut self, name: &str, (sum, spent): (u64, String), most: u64, slack: u64) {
        let line = format!("{name}: {sum} requests of at most {most}:{spent}");
        if sum > most + slack {
            self.complaints.push(line.clone());
        }
        self.lines.push(line);
    }

    fn add_calls(&mut self, name: &str, calls: u64, most: u64) {
        let line = format!("{name}: {calls} system calls of at most {most}");
        if calls > most + CALLS_SLACK {
            self.complaints.push(line.clone());
        }
        self.lines.push(line);
    }
}

/// System calls are counted for all of the process: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn no_operation_costs_more_requests_than_it_must() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut tree = fresh();
    let point = tree.owner("alice");
    let mut counted = Counted::default();
    // Elsewhere other calls tell one file from another.
    let root = sys::open_path(&tree.backing, sys::consts::O_PATH).expect("the directory");
    let counts_calls = sys::geteuid() == 0 && sys::statfs(root).is_ok_and(|found| found.kind == EXT4);
    for bound in &BOUNDS {
        let dir = point.join(bound.name.replace([' ', ','], "-"));
        fs::create_dir(&dir).expect("makes");
        let files: Vec<PathBuf> = (0..FILES).map(|index| dir.join(format!("file-{index}"))).collect();
        files.iter().for_each(|file| (bound.prepare)(file));
        let before = sys::calls_made();
        let spent = cost(&tree, || files.iter().for_each(|file| (bound.operation)(file)));
        let calls = sys::calls_made() - before;
        counted.add(bound.name, spent, bound.most * FILES, SLACK);
        if counts_calls {
            counted.add_calls(bound.name, calls, bound.calls * FILES);
        }
    }
    assert!(tree.refusals().is_empty(), "{:?}", tree.refusals());
    println!("{}", counted.lines.join("\n"));
    assert!(counted.complaints.is_empty(), "{}", counted.complaints.join("\n"));
}

fn run(dir: &Path, program: &str, args: &[&str]) {
    let output = Command::new(program)
        .args(args)
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .expect("runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {said}");
}

/// Requests for each file that `tar` unpacks, and for all directories and for starting it besides.
const UNTAR: (u64, u64) = (14, 15);
/// Requests of `git status` for each file, and besides.
const STATUS: (u64, u64) = (6, 12);

#[test]
fn no_tool_costs_more_requests_than_it_must() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut tree = fresh();
    let point = tree.owner("alice");
    let outside = tempfile::tempdir().expect("a directory");
    let files = 100;
    let source = outside.path().join("tree");
    fs::create_dir(&source).expect("makes");
    for index in 0..files {
        fs::write(source.join(format!("file-{index}")), "content\n").expect("writes");
    }
    // Older than the index will be: what git finds younger, it reads again.
    run(outside.path(), "tar", &["cf", "tree.tar", "--mtime=2026-01-01", "tree"]);
    let archive = outside.path().join("tree.tar");
    let mut counted = Counted::default();
    let untar = || run(&point, "tar", &["xf", archive.to_str().expect("a path")]);
    let spent = cost(&tree, untar);
    counted.add("untar", spent, UNTAR.0 * files + UNTAR.1, 5);
    assert!(tree.backing.join("tree/file-0").exists(), "it went elsewhere");
    let work = point.join("tree");
    run(&work, "git", &["init", "-q"]);
    run(&work, "git", &["add", "."]);
    // The first may write the index again.
    run(&work, "git", &["status", "--porcelain"]);
    let spent = cost(&tree, || run(&work, "git", &["status", "--porcelain"]));
    counted.add("git status", spent, STATUS.0 * files + STATUS.1, 10);
    println!("{}", counted.lines.join("\n"));
    assert!(counted.complaints.is_empty(), "{}", counted.complaints.join("\n"));
}

/// A tree that nobody changes past the mount.
fn fresh() -> Tree {
    let dir = tempfile::TempDir::new_in("/var/tmp").expect("a temporary directory");
    Tree::with_options(dir, unclobber::fs::GuardOptions::default(), |_| {})
}
