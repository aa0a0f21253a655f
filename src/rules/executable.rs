//! Which program a rule's command names: a file, known by device and inode number, not by its name.
//!
//! Looks at files by path: never call it while a request of a mount waits for the answer, since the path could lead
//! through that mount.

use std::io::Read as _;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::sys::{self, consts};

/// A program on disk, or the one that a process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Executable {
    /// The device.
    pub dev: u64,
    /// The inode number.
    pub ino: u64,
}

/// The path of the directory that a descriptor leads to, as this process sees it.
#[must_use]
pub fn path_of(dir: impl AsFd) -> Option<PathBuf> {
    std::fs::read_link(sys::fd_path(dir)).ok()
}

/// The program at a path now; `None` when there is none, or when it is in the workspace `root`, whose owners could put
/// anything there.
#[must_use]
pub fn find_executable(path: &Path, root: Option<&Path>) -> Option<Executable> {
    let inside = |path: &Path| root.is_some_and(|root| path.starts_with(root));
    if inside(path) {
        return None;
    }
    let fd = sys::open_path(path, consts::O_PATH).ok()?;
    if path_of(&fd).is_none_or(|real| inside(&real)) {
        return None;
    }
    let stat = sys::stat(&fd).ok().filter(sys::Stat::is_file)?;
    Some(Executable {
        dev: stat.dev,
        ino: stat.ino,
    })
}

/// Whether what is at the path can be told by the process that runs it. What is not there may come.
pub(super) fn check(path: &Path, root: Option<&Path>) -> Result<(), String> {
    if !path.is_absolute() {
        return Err(format!(
            "the command {path:?} is no absolute path: a name alone could be any program's"
        ));
    }
    if root.is_some_and(|root| path.starts_with(root)) {
        return Err(format!(
            "the command {path:?} is in the workspace, whose owners could put another program there"
        ));
    }
    if find_executable(path, root).is_none() {
        return Ok(());
    }
    let mut first = [0; 2];
    let opened = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(consts::O_NONBLOCK)
        .open(path);
    let script = opened.is_ok_and(|mut file| file.read_exact(&mut first).is_ok() && first == *b"#!");
    if script {
        return Err(format!(
            "the command {path:?} is a script: its processes run the interpreter, as those of any other script do"
        ));
    }
    Ok(())
}
