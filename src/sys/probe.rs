//! Questions about a place that nothing else here answers.
//!
//! Never changes anything that outlives the question.

use std::ffi::OsStr;
use std::os::fd::AsFd;

use nix::sys::statvfs::{FsFlags, fstatvfs};

use super::error::{Result, SysError};
use super::names::rename_at;

/// Whether the mount that `fd` lies on forbids execution.
pub fn mount_forbids_exec(fd: impl AsFd) -> Result<bool> {
    let fd = fd.as_fd();
    fstatvfs(fd)
        .map(|found| found.flags().contains(FsFlags::ST_NOEXEC))
        .map_err(|errno| SysError::new("fstatvfs", errno as i32).fd(fd))
}

/// Lets two names in `dir` change places (`RENAME_EXCHANGE`).
pub fn exchange_names(dir: impl AsFd, one: &str, other: &str) -> Result<()> {
    let dir = dir.as_fd();
    rename_at(dir, OsStr::new(one), dir, OsStr::new(other), libc::RENAME_EXCHANGE)
}

/// The release of the running kernel.
#[must_use]
pub fn kernel_release() -> String {
    nix::sys::utsname::uname().map_or_else(|_| String::new(), |name| name.release().to_string_lossy().into_owned())
}
