//! A mount on a mount point of its own, seen by the test process itself.

use std::path::PathBuf;
use std::process::Command;

use super::tree::Tree;

/// Unmounts when it goes.
#[derive(Debug)]
pub(crate) struct Mount {
    path: PathBuf,
    umount: Command,
}

impl Mount {
    pub(crate) fn new(tree: &Tree, flags: &[&str]) -> Mount {
        Mount::at(tree, tree.mount_point(), flags)
    }

    pub(crate) fn at(tree: &Tree, path: PathBuf, flags: &[&str]) -> Mount {
        let mut command = tree.unclobber();
        command
            .arg("mount")
            .arg(tree.root())
            .arg(&path)
            .args(flags)
            .args(["--linger", "0"]);
        if nix::unistd::geteuid().is_root() {
            command.args(["-o", "allow_other,default_permissions,suid,dev"]);
        }
        let done = command.output().expect("unclobber mount");
        assert!(done.status.success(), "unclobber mount: {done:?}");
        let mut umount = tree.unclobber();
        umount.arg("umount").arg(&path);
        Mount { path, umount }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.path.clone()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let done = self.umount.output();
        let gone = done.as_ref().is_ok_and(|done| done.status.success());
        // A second panic while the first unwinds would end the whole test program without a word.
        assert!(gone || std::thread::panicking(), "unclobber umount: {done:?}");
    }
}
