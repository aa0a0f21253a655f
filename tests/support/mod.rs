//! A guard served inside the test process, with one mount per owner: what one owner does goes through its own mount,
//! and what an outsider does goes to the backing directory.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;
use unclobber::front::{Serving, serve};
use unclobber::fs::{Guard, GuardOptions, MountOptions, RuleOptions};
use unclobber::guard::{PassthroughRule, Policy};
use unclobber::owner::Attribution;
use unclobber::store::AtticLimits;
use unclobber::sys;

/// A guarded tree.
pub(crate) struct Tree {
    by_directory: bool,
    pub(crate) guard: Arc<Guard>,
    pub(crate) mounts: Vec<(PathBuf, Option<Serving>)>,
    pub(crate) backing: PathBuf,
    dir: TempDir,
}

impl Tree {
    /// A fresh tree on the disk filesystem, filled by `fill` before the guard begins.
    pub(crate) fn new(fill: impl FnOnce(&Path)) -> Self {
        let dir = TempDir::new_in("/var/tmp").expect("a temporary directory");
        Self::in_dir(dir, fill)
    }

    pub(crate) fn in_dir(dir: TempDir, fill: impl FnOnce(&Path)) -> Self {
        Self::with(dir, AtticLimits::default(), fill)
    }

    /// A fresh tree in `dir`, with bounds of its attic.
    pub(crate) fn with(dir: TempDir, attic: AtticLimits, fill: impl FnOnce(&Path)) -> Self {
        let options = GuardOptions {
            attic,
            watch_own: true,
            ..GuardOptions::default()
        };
        Self::with_options(dir, options, fill)
    }

    /// A fresh tree in `dir`. Without `watch_own` nobody in this process changes it past the mounts.
    pub(crate) fn with_options(dir: TempDir, options: GuardOptions, fill: impl FnOnce(&Path)) -> Self {
        let backing = dir.path().join("backing");
        fs::create_dir(&backing).expect("the backing directory");
        fill(&backing);
        sys::ignore_signals(&[sys::SIGIO]).expect("SIGIO is ignored");
        let root: OwnedFd = sys::open_path(&backing, sys::consts::O_PATH | sys::consts::O_DIRECTORY).expect("opens");
        let (_, hard) = sys::raise_nofile_limit().expect("descriptor limit");
        // All tests of a program can be run so.
        let by_directory = options.watch_directories || std::env::var_os("UNCLOBBER_TEST_DIRECTORIES").is_some();
        let options = GuardOptions {
            id: "test".to_owned(),
            max_fds: hard,
            watch_directories: by_directory,
            ..options
        };
        let guard = Guard::open(root, options).expect("a guard");
        Self {
            guard,
            by_directory,
            mounts: Vec::new(),
            backing,
            dir,
        }
    }

    /// A mount for the owner `name`.
    pub(crate) fn owner(&mut self, name: &str) -> PathBuf {
        self.owner_with(name, Policy::default())
    }

    pub(crate) fn owner_with(&mut self, name: &str, mut policy: Policy) -> PathBuf {
        if self.by_directory {
            policy.passthrough = PassthroughRule::Off;
        }
        let owner = self.guard.owners().named(name).expect("an owner");
        let point = self.dir.path().join(format!("mount-{}-{name}", self.mounts.len()));
        fs::create_dir(&point).expect("a mount point");
        let fuse = sys::open_fuse_device().expect("/dev/fuse");
        let mount = sys::FuseMount {
            fsname: "test",
            subtype: "unclobber",
            flags: 0,
            root_mode: 0o40755,
            uid: sys::getuid(),
            gid: sys::getgid(),
            options: "allow_other,default_permissions",
        };
        sys::mount_fuse(&fuse, &point, &mount).expect("mounts");
        let options = MountOptions {
            policy,
            attribution: Attribution::Fixed(owner),
            label: point.display().to_string(),
            multi_user: true,
            read_only: false,
            access_times: None,
            only_ids: None,
            pids_visible: true,
            rules: RuleOptions::default(),
        };
        let serving = serve(&self.guard, options, fuse).expect("the handshake");
        self.mounts.push((point.clone(), Some(serving)));
        point
    }

    /// The lines of the refusals so far.
    pub(crate) fn refusals(&self) -> Vec<String> {
        self.guard
            .events()
            .recent()
            .iter()
            .map(|report| report.line())
            .collect()
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        for (point, serving) in &mut self.mounts {
            sys::umount(point, true).expect("the mount is there");
            if let Some(serving) = serving.take() {
                serving.wait().expect("the session ends well");
            }
        }
        let left = self.guard.status();
        let ended = left.mounts.is_empty();
        assert!(ended || std::thread::panicking(), "mounts are left: {left:?}");
        self.guard.shutdown();
    }
}
