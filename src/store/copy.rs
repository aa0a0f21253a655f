//! Copies of files: content, and what else belongs to a file.
//!
//! It never decides whether something is copied, nor under which name.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use super::libc_flags as c;
use crate::sys::{self, Stat, SysError, TimeSet};

/// Copies the content, sharing its blocks where the filesystem can.
pub(super) fn copy_content(from: &OwnedFd, to: &OwnedFd) -> sys::Result<()> {
    const CHUNK: usize = 1 << 30;
    let mut at = 0;
    loop {
        match sys::copy_file_range(from, at, to, at, CHUNK, 0) {
            Ok(0) => return Ok(()),
            Ok(copied) => at += copied as u64,
            // Between some filesystems, and on some, the kernel does not copy.
            Err(error) if at == 0 && matches!(error.errno(), c::EXDEV | c::EOPNOTSUPP | c::ENOSYS | c::EINVAL) => {
                return copy_by_hand(from, to);
            }
            Err(error) => return Err(error),
        }
    }
}

fn copy_by_hand(from: &OwnedFd, to: &OwnedFd) -> sys::Result<()> {
    let mut buffer = vec![0; 1 << 18];
    let mut at = 0;
    loop {
        let length = sys::pread(from, &mut buffer, at)?;
        if length == 0 {
            return Ok(());
        }
        let mut written = 0;
        while written < length {
            written += sys::pwrite(to, &buffer[written..length], at + written as u64)?;
        }
        at += length as u64;
    }
}

/// Gives the copy the owner and the permissions of the original.
pub(super) fn copy_owner_and_mode(to: &OwnedFd, stat: &Stat) -> sys::Result<()> {
    let now = sys::stat(to)?;
    if (now.uid, now.gid) != (stat.uid, stat.gid) {
        sys::chown(to, Some(stat.uid), Some(stat.gid))?;
    }
    sys::chmod(to, stat.permissions())
}

/// Gives a copy whose owner is another the permissions of the original: set-user-ID is for the owner it does not have.
pub(super) fn copy_mode_alone(to: &OwnedFd, stat: &Stat) -> sys::Result<()> {
    sys::chmod(to, stat.permissions() & 0o777)
}

/// Gives the copy the extended attributes and, last, the times of the original; what could not be given.
pub(super) fn copy_rest(from: &OwnedFd, to: &OwnedFd, stat: &Stat) -> Vec<SysError> {
    let mut failed = Vec::new();
    match sys::list_xattr(from, 0) {
        Ok(names) => {
            for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
                let name = OsStr::from_bytes(name);
                let copied = sys::get_xattr(from, name, 0).and_then(|value| {
                    // Labels that the system gave the copy itself need not be set.
                    if sys::get_xattr(to, name, value.len()).is_ok_and(|there| there == value) {
                        return Ok(());
                    }
                    sys::set_xattr(to, name, &value, 0)
                });
                failed.extend(copied.err());
            }
        }
        Err(error) if error.errno() == c::EOPNOTSUPP => {}
        Err(error) => failed.push(error),
    }
    let times = sys::set_times(to, Some(TimeSet::At(stat.atime)), Some(TimeSet::At(stat.mtime)));
    failed.extend(times.err());
    failed
}
