//! A directory on disk with everything a guarded test needs around it, and what the machine has.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use tempfile::TempDir;

/// A backing tree, and beside it the scratch space, home and run-time directory of the processes that work in it.
#[derive(Debug)]
pub(crate) struct Tree {
    base: TempDir,
}

impl Tree {
    pub(crate) fn new() -> Tree {
        let base = tempfile::Builder::new()
            .prefix("unclobber-test-")
            .tempdir_in(disk())
            .expect("a scratch directory");
        fs::set_permissions(base.path(), fs::Permissions::from_mode(0o755)).expect("chmod of the scratch directory");
        let tree = Tree { base };
        for part in ["work", "scratch", "home", "run", "mnt"] {
            fs::create_dir(tree.base.path().join(part)).expect("a part of the scratch directory");
        }
        fs::set_permissions(tree.run_time(), fs::Permissions::from_mode(0o700))
            .expect("chmod of the run-time directory");
        tree
    }

    /// The backing directory, as an outsider sees it (and, inside a guarded shell, the guarded view of it).
    pub(crate) fn root(&self) -> PathBuf {
        self.base.path().join("work")
    }

    pub(crate) fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.root().join(name)
    }

    /// Space of the harness outside the backing tree.
    pub(crate) fn scratch(&self) -> PathBuf {
        self.base.path().join("scratch")
    }

    /// An empty directory to mount on.
    pub(crate) fn mount_point(&self) -> PathBuf {
        self.base.path().join("mnt")
    }

    /// Another.
    pub(crate) fn other_mount_point(&self) -> PathBuf {
        let point = self.base.path().join("mnt2");
        fs::create_dir_all(&point).expect("a mount point");
        point
    }

    pub(crate) fn run_time(&self) -> PathBuf {
        self.base.path().join("run")
    }

    /// What an outsider does: writes the file in place, as `>` would.
    pub(crate) fn write(&self, name: &str, content: &str) {
        let path = self.at(name);
        fs::create_dir_all(path.parent().expect("a file has a directory")).expect("its directory");
        fs::write(&path, content).expect("an outsider's write");
    }

    pub(crate) fn read(&self, name: &str) -> Option<String> {
        fs::read(self.at(name))
            .ok()
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    pub(crate) fn remove(&self, name: &str) {
        fs::remove_file(self.at(name)).expect("an outsider's unlink");
    }

    /// The program under test, in the environment of this tree.
    pub(crate) fn unclobber(&self) -> Command {
        let mut command = Command::new(program());
        self.dress(&mut command);
        command
    }

    /// Gives a command the same surroundings on every machine, and its own run-time directory.
    pub(crate) fn dress(&self, command: &mut Command) {
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .env("PATH", format!("/usr/bin:/bin:/usr/sbin:/sbin:{path}"))
            .env("HOME", self.base.path().join("home"))
            .env("XDG_RUNTIME_DIR", self.run_time())
            .env("LC_ALL", "C")
            .env("TZ", "UTC")
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_AUTHOR_NAME", "a")
            .env("GIT_AUTHOR_EMAIL", "a@example.org")
            .env("GIT_COMMITTER_NAME", "a")
            .env("GIT_COMMITTER_EMAIL", "a@example.org")
            .env("GIT_AUTHOR_DATE", "2024-01-01T00:00:00Z")
            .env("GIT_COMMITTER_DATE", "2024-01-01T00:00:00Z")
            .env_remove("RUST_LOG")
            .env_remove("BASH_ENV")
            .env_remove("ENV");
    }
}

/// The program under test: the one just built, or the one named by `UNCLOBBER_BIN`.
pub(crate) fn program() -> PathBuf {
    std::env::var_os("UNCLOBBER_BIN").map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_unclobber")), PathBuf::from)
}

/// A directory on a disk filesystem that every user can reach, else the build's own.
fn disk() -> PathBuf {
    let wanted = std::env::var_os("UNCLOBBER_TEST_DIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from);
    match statfs(&wanted) {
        Ok(found) if found.filesystem_type() != TMPFS_MAGIC => wanted,
        Ok(_) | Err(_) => PathBuf::from(env!("CARGO_TARGET_TMPDIR")),
    }
}

/// Says something past the test runner's capture, so that it is seen also when the test passes.
pub(crate) fn say(text: &str) {
    let line = format!("{text}\n");
    let written = std::io::stderr().lock().write_all(line.as_bytes());
    assert!(written.is_ok(), "standard error is closed");
}

/// Whether tests on a real mount can run here. Where they must (`UNCLOBBER_REQUIRE_FUSE=1`), a "no" is a failure.
pub(crate) fn require_fuse(test: &str) -> bool {
    let opened = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let Err(error) = opened else { return true };
    assert!(
        !required("UNCLOBBER_REQUIRE_FUSE"),
        "{test}: /dev/fuse is required here and cannot be opened: {error}"
    );
    say(&format!("SKIPPED {test}: /dev/fuse cannot be opened: {error}"));
    false
}

/// Whether the program `tool` is on the path. Where every tool must be (`UNCLOBBER_REQUIRE_TOOLS=1`), a "no" is a failure.
pub(crate) fn tool_is_there(tool: &str) -> bool {
    let there = Command::new("sh")
        .args([
            "-c",
            "PATH=/usr/bin:/bin:/usr/sbin:/sbin:$PATH; command -v -- \"$1\"",
            "sh",
            tool,
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    assert!(
        there || !required("UNCLOBBER_REQUIRE_TOOLS"),
        "{tool} is required here; scripts/test-packages.txt lists it"
    );
    there
}

fn required(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| value == "1")
}

/// `unclobber` with these words, in the tree.
pub(crate) fn run(tree: &Tree, words: &[&str]) -> std::process::Output {
    let mut command = tree.unclobber();
    command.args(words).current_dir(tree.root());
    command.output().expect("the program starts")
}

/// The same, which must go well; gives what it printed.
#[track_caller]
pub(crate) fn works(tree: &Tree, words: &[&str]) -> String {
    let done = run(tree, words);
    assert!(done.status.success(), "{words:?}: {done:?}");
    String::from_utf8_lossy(&done.stdout).into_owned()
}
