//! A test that runs in mount and pid namespaces of its own, as root or as an ordinary user, so that nothing it mounts or
//! starts outlives it, and so that what it takes away from the machine (a device, a program, a right) is missing for it alone.
//!
//! The test program calls itself: outside it makes the namespaces, inside it runs the body.

use std::fmt::Debug;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::tree::{program, require_fuse, say};

/// The ordinary user and group of these tests: known by number only, as in many containers.
pub(crate) const USER: u32 = 65_534;

/// Who runs the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    Root,
    User,
}

/// What came of a command.
#[derive(Debug, Clone)]
pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// The directories of one test.
#[derive(Debug)]
pub(crate) struct Place {
    base: PathBuf,
}

const INSIDE: &str = "UNCLOBBER_TEST_CONTAINED";

/// Runs `body` in namespaces of its own. `name` is the test's full name; `prepare` runs first, as root.
pub(crate) fn contained(name: &str, who: Who, prepare: impl Fn(&Place), body: impl Fn(&Place)) {
    if let Some(base) = std::env::var_os(INSIDE) {
        let place = Place { base: base.into() };
        body(&place);
        // A body that never ran must not look like one that passed.
        fs::write(place.base.join("home/done"), "").expect("the mark of the end");
        return;
    }
    if !require_fuse(name) || !can_contain(name) {
        return;
    }
    let base = tempfile::Builder::new()
        .prefix("unclobber-env-")
        .tempdir_in("/var/tmp")
        .expect("a scratch directory");
    let place = Place {
        base: base.path().to_path_buf(),
    };
    place.furnish(who);
    prepare(&place);
    let done = place.finish(
        Command::new("timeout")
            .args(["-k", "5", "170", "unshare", "-mpf", "--mount-proc"])
            .args([
                "--kill-child",
                "sh",
                "-c",
                SETUP,
                "sh",
                &place.base.display().to_string(),
                if who == Who::User { "user" } else { "root" },
                name,
            ]),
    );
    assert!(
        done.code == 0 && place.base.join("home/done").exists(),
        "{name}, inside: {}\n{}\n{}",
        done.code,
        done.out,
        done.err
    );
    for line in done
        .err
        .lines()
        .filter(|line| line.starts_with("SKIPPED") || line.starts_with("MEASURED"))
    {
        say(line);
    }
}

/// Gives everybody `/dev/fuse`, in this mount namespace alone, and becomes the user. A shell stays as process 1, to reap.
const SETUP: &str = r#"base=$1 who=$2 name=$3
mount --make-rprivate / && mknod -m 666 "$base/fuse" c 10 229 && mount --bind "$base/fuse" /dev/fuse || exit 1
export UNCLOBBER_TEST_CONTAINED="$base" UNCLOBBER_BIN="$base/bin/unclobber" XDG_RUNTIME_DIR="$base/run" HOME="$base/home" LC_ALL=C
unset RUST_LOG
cd "$base/home" || exit 1
set -- "$base/bin/test" --exact "$name" --nocapture
[ "$who" = root ] || set -- setpriv --reuid 65534 --regid 65534 --clear-groups "$@"
setsid -w "$@"; code=$?
exit $code"#;

fn can_contain(name: &str) -> bool {
    let tried = Command::new("unshare")
        .args(["-mpf", "--mount-proc", "true"])
        .stderr(Stdio::null())
        .status();
    let can = nix::unistd::geteuid().is_root() && tried.is_ok_and(|status| status.success());
    if !can {
        say(&format!(
            "SKIPPED {name}: needs root and the right to make mount and pid namespaces"
        ));
    }
    can
}

impl Place {
    fn furnish(&self, who: Who) {
        fs::set_permissions(&self.base, fs::Permissions::from_mode(0o755)).expect("chmod");
        for part in ["work", "home", "run", "mnt", "bin"] {
            let path = self.base.join(part);
            fs::create_dir(&path).expect("a part of the scratch directory");
            if who == Who::User && part != "bin" {
                chown(&path, Some(USER), Some(USER)).expect("chown");
            }
        }
        fs::set_permissions(self.runtime(), fs::Permissions::from_mode(0o700)).expect("chmod");
        let this = std::env::current_exe().expect("the test program");
        for (from, name) in [(program(), "unclobber"), (this, "test")] {
            let to = self.base.join("bin").join(name);
            // Copied where it cannot be linked: the build may be where the user cannot go.
            if fs::hard_link(&from, &to).is_err() {
                fs::copy(&from, &to).expect("a copy of the program");
            }
        }
    }

    pub(crate) fn base(&self) -> PathBuf {
        self.base.clone()
    }

    /// The backing tree.
    pub(crate) fn work(&self) -> PathBuf {
        self.base.join("work")
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.work().join(name)
    }

    pub(crate) fn runtime(&self) -> PathBuf {
        self.base.join("run")
    }

    /// A fresh mount point.
    pub(crate) fn point(&self, name: &str) -> PathBuf {
        let point = self.base.join("mnt").join(name);
        if let Err(error) = fs::create_dir(&point) {
            // A mount point that is there, alive or dead.
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{error}");
        }
        point
    }

    /// Runs the program; a hang ends as code 124.
    pub(crate) fn unclobber(&self, words: &[&str]) -> Done {
        self.finish(
            Command::new("timeout")
                .args(["-k", "5", "60"])
                .arg(program())
                .args(words),
        )
    }

    /// Runs shell text, with the program as `$U`, the backing tree as `$W` and the base directory as `$B`.
    pub(crate) fn sh(&self, script: &str) -> Done {
        let mut command = Command::new("timeout");
        command.args(["-k", "5", "120", "sh", "-c", script]);
        self.finish(&mut command)
    }

    /// The same, which must succeed; its output.
    pub(crate) fn sh_ok(&self, script: &str) -> String {
        let done = self.sh(script);
        assert_eq!(done.code, 0, "{script}\n{done:?}");
        done.out
    }

    /// Shell text as the owner in a `run` of the backing tree.
    pub(crate) fn run(&self, owner: &str, script: &str) -> Done {
        let work = self.work().display().to_string();
        let words = [
            "run", "-w", &work, "--owner", owner, "--linger", "60", "--", "sh", "-c", script,
        ];
        self.unclobber(&words)
    }

    /// `mount DIR POINT FLAGS...`; the mount point.
    pub(crate) fn mount(&self, dir: &Path, name: &str, flags: &[&str]) -> PathBuf {
        let point = self.point(name);
        let (from, to) = (dir.display().to_string(), point.display().to_string());
        let done = self.unclobber(&[&["mount", &from, &to, "--linger", "60"], flags].concat());
        assert_eq!(done.code, 0, "unclobber mount {flags:?}: {done:?}");
        point
    }

    pub(crate) fn umount(&self, point: &Path) {
        let done = self.unclobber(&["umount", &point.display().to_string()]);
        assert_eq!(done.code, 0, "unclobber umount: {done:?}");
    }

    /// The process ids of the guards of this run-time directory.
    pub(crate) fn guards(&self) -> Vec<i32> {
        let entries = fs::read_dir(self.runtime().join("unclobber"))
            .into_iter()
            .flatten()
            .flatten();
        let pids = entries.filter(|entry| entry.path().extension().is_some_and(|found| found == "pid"));
        pids.filter_map(|entry| fs::read_to_string(entry.path()).ok()?.trim().parse().ok())
            .collect()
    }

    fn finish(&self, command: &mut Command) -> Done {
        command
            .env("U", program())
            .env("B", &self.base)
            .env("W", self.work())
            .stdin(Stdio::null());
        // Files, not pipes: what a command leaves running may hold them open.
        let part = || tempfile::tempfile().expect("a file for its output");
        let (out, err) = (part(), part());
        let copy = |file: &fs::File| file.try_clone().expect("a second descriptor");
        let status = command
            .stdout(copy(&out))
            .stderr(copy(&err))
            .status()
            .expect("it starts");
        Done {
            code: status.code().unwrap_or(-1),
            out: all_of(out),
            err: all_of(err),
        }
    }
}

fn all_of(mut file: fs::File) -> String {
    use io::{Read as _, Seek as _};
    let mut bytes = Vec::new();
    file.rewind()
        .and_then(|()| file.read_to_end(&mut bytes))
        .expect("its output");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The errno of a call that must fail.
#[track_caller]
pub(crate) fn errno<T: Debug>(result: io::Result<T>) -> nix::errno::Errno {
    let error = result.expect_err("it must be refused");
    nix::errno::Errno::from_raw(error.raw_os_error().unwrap_or(0))
}

#[track_caller]
pub(crate) fn text(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    let read = fs::read_to_string(path);
    assert!(read.is_ok(), "{}: {read:?}", path.display());
    read.unwrap_or_default()
}

/// No preparation.
pub(crate) fn nothing(_: &Place) {}

/// Whether a process is still there, other than as a zombie.
pub(crate) fn lives(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .ok()
        .and_then(|stat| stat.rsplit_once(") ").map(|(_, rest)| !rest.starts_with(['Z', 'X'])))
        .unwrap_or(false)
}
