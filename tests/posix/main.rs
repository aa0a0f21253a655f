//! One list of POSIX cases, run on a plain directory and on a mount: what each of them sees must be the same.
//!
//! A case takes a directory that is its own and gives back a transcript: what was called and what came of it, without inode
//! numbers, device numbers and times that nobody set. What differs, and has to, is a list of its own: `docs/POSIX.md` says
//! why, and a difference that is not in it fails here, as does one in it that is no more.

mod cases_data;
mod cases_differences;
mod cases_files;
mod cases_names;
mod cases_programs;
mod cases_remembered;
mod cases_traps;
#[path = "../common/mod.rs"]
#[expect(dead_code, reason = "each test program uses its own part of the harness")]
mod common;
mod transcript;

use std::fs;
use std::path::Path;

use common::mount::Mount;
use common::tree::{Tree, require_fuse, say, tool_is_there};

/// One case.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) needs: &'static [&'static str],
    /// Whether it takes the rights of the superuser.
    pub(crate) root: bool,
    pub(crate) run: fn(&Path) -> String,
}

static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// Runs the cases on a plain directory and on the mount, and hands what each gave to `look`; not where there is no FUSE.
fn on_both(test: &str, cases: &[Case], mut look: impl FnMut(&Case, &str, &str)) {
    // What one test has open, another's child would inherit, and the mount would be in use.
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let tree = Tree::new();
    let plain = tree.scratch();
    let natively: Vec<(&Case, String)> = runnable(cases).map(|case| (case, run(case, &plain))).collect();
    assert!(!natively.is_empty(), "{test}: nothing can be run here");
    if !require_fuse(test) {
        return;
    }
    let mount = Mount::new(&tree, &["--owner", "test"]);
    for (case, expected) in &natively {
        look(case, expected, &run(case, &mount.path()));
    }
    drop(mount);
}

fn compare(test: &str, cases: &[Case]) {
    let mut wrong = Vec::new();
    on_both(test, cases, |case, expected, found| {
        if found != expected {
            wrong.push(format!("{}:\n{}", case.name, transcript::difference(expected, found)));
        }
    });
    assert!(
        wrong.is_empty(),
        "{test}: the mount differs in {} cases\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

fn runnable(cases: &[Case]) -> impl Iterator<Item = &Case> {
    cases.iter().filter(|case| {
        let missing = case.needs.iter().find(|tool| !tool_is_there(tool));
        if let Some(tool) = missing {
            say(&format!("SKIPPED posix case {}: {tool} is not installed", case.name));
        }
        let forgets = case.name.ends_with("the kernel forgot");
        if forgets
            && fs::OpenOptions::new()
                .write(true)
                .open("/proc/sys/vm/drop_caches")
                .is_err()
        {
            say(&format!(
                "SKIPPED posix case {}: caches cannot be dropped here",
                case.name
            ));
            return false;
        }
        let allowed = !case.root || nix::unistd::geteuid().is_root();
        if !allowed {
            say(&format!("SKIPPED posix case {}: it takes root", case.name));
        }
        missing.is_none() && allowed
    })
}

fn run(case: &Case, below: &Path) -> String {
    let directory = below.join(case.name.replace(' ', "-"));
    fs::create_dir(&directory).expect("the case's directory");
    let transcript = (case.run)(&directory);
    assert!(
        transcript.lines().count() > 1,
        "{}: an empty transcript shows nothing: {transcript}",
        case.name
    );
    transcript
}

#[test]
fn names_and_directories() {
    compare("names and directories", cases_names::CASES);
}

#[test]
fn files_and_their_attributes() {
    compare("files and their attributes", cases_files::CASES);
}

#[test]
fn data() {
    compare("data", cases_data::CASES);
}

#[test]
fn programs_and_users() {
    compare("programs and users", cases_programs::CASES);
}

#[test]
fn what_the_kernel_remembers() {
    compare("what the kernel remembers", cases_remembered::CASES);
}

#[test]
fn known_traps() {
    compare("known traps", cases_traps::CASES);
}

/// What `sh` prints.
fn printed(directory: &Path, script: &str) -> String {
    let done = std::process::Command::new("sh")
        .args(["-c", script])
        .current_dir(directory)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .expect("sh starts");
    assert!(done.status.success(), "{script}: {done:?}");
    String::from_utf8_lossy(&done.stdout).into_owned()
}

// semantics: C1
#[test]
fn numbers_of_files_outlive_caches_and_mounts_so_that_git_reads_nothing_again() {
    if !require_fuse("numbers of files") || !tool_is_there("git") {
        return;
    }
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let tree = Tree::new();
    let args = ["--owner", "test"];
    let mount = Mount::new(&tree, &args);
    // Not of the second in which the index is written: git would read those again anywhere.
    let make = "mkdir d; for n in 1 2 3 4 5 6 7 8 9; do echo $n >d/$n; ln -s $n d/l$n; done; ln d/1 d/link
        touch -h -d @1000000000 d/*; git init -q .; git add .; git -c user.name=a -c user.email=a@b commit -qm all; git status";
    printed(&mount.path(), make);
    let look =
        "stat -c '%i %n' . d d/*; git diff --quiet; git update-index -q --refresh; git status; sha256sum .git/index";
    let before = printed(&mount.path(), look);
    // Only root may, and the numbers must not need it.
    if fs::write("/proc/sys/vm/drop_caches", "2").is_ok() {
        assert_eq!(printed(&mount.path(), look), before, "after the caches were dropped");
    }
    drop(mount);
    let mount = Mount::new(&tree, &args);
    assert_eq!(printed(&mount.path(), look), before, "on another mount");
}

#[test]
fn access_times_stand_still_where_a_mount_asks_for_that() {
    if !require_fuse("access times") || !nix::unistd::geteuid().is_root() {
        say("SKIPPED access times: a mount of the guard's own takes root");
        return;
    }
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let tree = Tree::new();
    fs::create_dir(tree.root().join("d")).expect("a directory");
    fs::write(tree.root().join("d/f"), "#!/bin/sh\n").expect("a file");
    std::os::unix::fs::symlink("f", tree.root().join("d/l")).expect("a link");
    // By the kernel and by the daemon, a listing, a link, and executing.
    let look = "chmod 755 d/f; touch -h -d @1000000000 d/f d/l d; cat d/f; ls d; readlink d/l; d/f; dd if=d/f of=/dev/null 2>&1 | tail -n 0
        exec 3<>d/f; read line <&3; stat -c '%X %n' d d/f d/l";
    let still = "f\nl\nf\n1000000000 d\n1000000000 d/f\n1000000000 d/l\n";
    let shown = |flags: &[&str]| {
        let mount = Mount::new(&tree, flags);
        printed(&mount.path(), look).replacen("#!/bin/sh\n", "", 1)
    };
    assert_eq!(shown(&["--owner", "test", "-o", "noatime"]), still);
    // The guard may still be ending the mount before.
    drop(Mount::new(&tree, &["--owner", "test"]));
    assert_eq!(shown(&["--owner", "test", "-o", "noatime"]), still);
    let moving = shown(&["--owner", "test"]);
    assert!(moving.contains(" d/f") && !moving.contains("1000000000"), "{moving}");
}

/// Whether a second reading, with nothing changed since the first, moves the access time.
fn second_reading_moves(at: &Path) -> bool {
    let look = "cat d/f >/dev/null; stat -c %x d/f";
    printed(at, look) != printed(at, look)
}

#[test]
fn access_times_move_as_all_mounts_of_a_guard_ask_for() {
    if !require_fuse("access times") || !nix::unistd::geteuid().is_root() {
        say("SKIPPED access times: a mount of the guard's own takes root");
        return;
    }
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let tree = Tree::new();
    fs::create_dir(tree.root().join("d")).expect("a directory");
    fs::write(tree.root().join("d/f"), "content").expect("a file");
    let strict = ["--owner", "test", "-o", "strictatime"];
    let one = Mount::new(&tree, &strict);
    assert!(second_reading_moves(&one.path()), "with every access");
    // One guard serves both: neither gets what the other does not want.
    let still = Mount::at(&tree, tree.other_mount_point(), &["--owner", "other", "-o", "noatime"]);
    assert!(!second_reading_moves(&one.path()), "as behind the mount: once");
    let moves = "touch -d @1000000000 d/f; cat d/f >/dev/null; stat -c %X d/f";
    assert_ne!(printed(&still.path(), moves), "1000000000\n", "as behind the mount");
    drop(one);
    // The guard may still be ending that one.
    drop(Mount::new(&tree, &["--owner", "test", "-o", "noatime"]));
    assert_eq!(
        printed(&still.path(), moves),
        "1000000000\n",
        "all that are left want it so"
    );
}

#[test]
fn file_handles_outlive_the_mount_and_the_guard() {
    if !require_fuse("file handles") || !tool_is_there("python3") || !nix::unistd::geteuid().is_root() {
        say("SKIPPED file handles: opening by handle takes root");
        return;
    }
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let tree = Tree::new();
    fs::create_dir_all(tree.root().join("d/e")).expect("a directory");
    fs::write(tree.root().join("d/e/f"), "content\n").expect("a file");
    fs::write(tree.root().join("gone"), "gone\n").expect("a file");
    let handles = tree.scratch().join("handles").display().to_string();
    let with = |at: &Path, what: &str| printed(at, &format!("python3 -c '{HANDLES_IN_A_FILE}' {what} {handles}"));
    let mount = Mount::new(&tree, &["--owner", "test"]);
    assert_eq!(with(&mount.path(), "take"), "d/e/f d/e gone\n");
    drop(mount);
    // Meanwhile, behind all mounts.
    fs::rename(tree.root().join("d/e"), tree.root().join("elsewhere")).expect("a rename");
    fs::remove_file(tree.root().join("gone")).expect("a removal");
    let mount = Mount::new(&tree, &["--owner", "test"]);
    assert_eq!(with(&mount.path(), "open"), "content\n['f']\n116\n");
    // It is the file of that name by now, and judged as such.
    let file = fs::read_to_string(mount.path().join("elsewhere/f")).expect("the same file");
    assert_eq!(file, "content\n");
}

/// Takes the handles of three files into a file, or opens by them.
const HANDLES_IN_A_FILE: &str = r#"
import ctypes, os, pickle, sys
libc = ctypes.CDLL(None, use_errno=True)
class Handle(ctypes.Structure): _fields_ = [("size", ctypes.c_uint), ("kind", ctypes.c_int), ("bytes", ctypes.c_ubyte * 128)]
names = ["d/e/f", "d/e", "gone"]
if sys.argv[1] == "take":
    hs = []
    for n in names:
        h = Handle(128); m = ctypes.c_int(); assert libc.name_to_handle_at(-100, n.encode(), ctypes.byref(h), ctypes.byref(m), 0) == 0
        hs.append(bytes(h))
    pickle.dump(hs, open(sys.argv[2], "wb")); print(*names)
else:
    d = os.open(".", os.O_RDONLY)
    for raw in pickle.load(open(sys.argv[2], "rb")):
        h = Handle.from_buffer_copy(raw); fd = libc.open_by_handle_at(d, ctypes.byref(h), os.O_RDONLY)
        if fd < 0: print(ctypes.get_errno())
        elif os.path.isdir("/proc/self/fd/%d" % fd): print(os.listdir(fd))
        else: print(open(fd).read(), end="")
"#;

/// The numbers of the rows of `docs/POSIX.md` whose ids begin with this letter, in their order.
fn listed(letter: char) -> Vec<&'static str> {
    let rows = include_str!("../../docs/POSIX.md").lines();
    rows.filter_map(|row| row.strip_prefix("| **")?.strip_prefix(letter)?.split_once("** |"))
        .map(|(number, _)| number)
        .collect()
}

#[test]
fn every_other_difference_has_a_test_that_names_it() {
    let shown = [
        include_str!("../coherence.rs"),
        include_str!("../environments/powercut.rs"),
    ];
    let numbers = listed('Y');
    assert!(!numbers.is_empty(), "docs/POSIX.md has lost a table");
    for number in numbers {
        let named = format!("// posix: Y{number}\n");
        assert!(
            shown.iter().any(|text| text.contains(&named)),
            "no test shows Y{number}"
        );
    }
}

fn number_of(case: &Case) -> &str {
    let id = case.name.split(' ').next().and_then(|word| word.strip_prefix('X'));
    id.expect("a difference has an id")
}

#[test]
fn what_is_listed_as_different_is_what_differs() {
    let shown: Vec<&str> = cases_differences::CASES.iter().map(number_of).collect();
    assert_eq!(
        listed('X'),
        shown,
        "docs/POSIX.md and the cases name the same differences"
    );
    let tree = Tree::new();
    let kind = nix::sys::statfs::statfs(&tree.scratch())
        .expect("its filesystem")
        .filesystem_type();
    if kind != nix::sys::statfs::EXT4_SUPER_MAGIC {
        say("SKIPPED the listed differences: they are those from ext4, and this is none");
        return;
    }
    let mut same = Vec::new();
    on_both("differences", cases_differences::CASES, |case, expected, found| {
        if expected == found {
            same.push(format!("{}:\n{expected}", case.name));
        }
    });
    assert!(same.is_empty(), "these differ no more:\n{}", same.join("\n"));
}
