//! Questions about a place that nothing else here answers.
//!
//! Never changes anything that outlives the question.

use std::ffi::OsStr;
use std::os::fd::AsFd;

use nix::sys::statvfs::{FsFlags, fstatvfs};

use super::error::{Result, SysError};
use super::mount::AccessTimes;
use super::names::rename_at;

/// What the mount forbids that `fd` lies on: `MS_NOEXEC`, `MS_NOSUID` and `MS_NODEV`, as far as it does.
pub fn mount_forbids(fd: impl AsFd) -> Result<u64> {
    let fd = fd.as_fd();
    let found = fstatvfs(fd)
        .map_err(|errno| SysError::new("fstatvfs", errno as i32).fd(fd))?
        .flags();
    let all = [
        (FsFlags::ST_NOEXEC, libc::MS_NOEXEC),
        (FsFlags::ST_NOSUID, libc::MS_NOSUID),
        (FsFlags::ST_NODEV, libc::MS_NODEV),
    ];
    Ok(all
        .into_iter()
        .filter(|(flag, _)| found.contains(*flag))
        .fold(0, |bits, (_, bit)| bits | bit))
}

/// How access times move through the mount that `fd` lies on.
pub fn access_times(fd: impl AsFd) -> Result<AccessTimes> {
    let fd = fd.as_fd();
    let found = fstatvfs(fd)
        .map_err(|errno| SysError::new("fstatvfs", errno as i32).fd(fd))?
        .flags();
    Ok(if found.contains(FsFlags::ST_NOATIME) {
        AccessTimes::Still
    } else if found.contains(FsFlags::ST_RELATIME) {
        AccessTimes::Relative
    } else {
        AccessTimes::Strict
    })
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
