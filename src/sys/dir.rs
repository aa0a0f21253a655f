//! Reading directories: getdents64 into the caller's buffer, parsed in place.

#![expect(unsafe_code, reason = "getdents64 and lseek")]

use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;

use super::call::{check, count, retry};
use super::error::{Result, SysError};

/// One entry of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// The inode number the directory records.
    pub ino: u64,
    /// Where reading goes on after this entry: a cookie for `seek_dir`, not a count.
    pub offset: i64,
    /// `DT_*`; `DT_UNKNOWN` (0) where the filesystem does not say.
    pub kind: u8,
    /// The name; `.` and `..` are listed too.
    pub name: &'a OsStr,
}

/// The entries of one getdents64.
#[derive(Debug, Clone)]
pub struct DirEntries<'a> {
    rest: &'a [u8],
}

impl DirEntries<'_> {
    /// No entry came: the directory ends here.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}

/// Where the fields of `struct linux_dirent64` stand.
const OFFSET_AT: usize = 8;
const LENGTH_AT: usize = 16;
const KIND_AT: usize = 18;
const NAME_AT: usize = 19;

impl<'a> Iterator for DirEntries<'a> {
    type Item = DirEntry<'a>;

    fn next(&mut self) -> Option<DirEntry<'a>> {
        let record = self.rest;
        let length = usize::from(u16::from_ne_bytes(*record.get(LENGTH_AT..)?.first_chunk()?));
        let (record, rest) = record.split_at_checked(length)?;
        self.rest = rest;
        let name = CStr::from_bytes_until_nul(record.get(NAME_AT..)?).ok()?;
        Some(DirEntry {
            ino: u64::from_ne_bytes(*record.first_chunk()?),
            offset: i64::from_ne_bytes(*record.get(OFFSET_AT..)?.first_chunk()?),
            kind: *record.get(KIND_AT)?,
            name: OsStr::from_bytes(name.to_bytes()),
        })
    }
}

/// Reads the next entries into `buf` (at least 300 bytes, or a long name gives EINVAL); none at the end.
pub fn read_dir_entries(fd: impl AsFd, buf: &mut [u8]) -> Result<DirEntries<'_>> {
    let fd = fd.as_fd();
    let read = retry(|| {
        // SAFETY: the buffer is valid for its length and nobody else uses it meanwhile.
        unsafe { libc::syscall(libc::SYS_getdents64, fd.as_raw_fd(), buf.as_mut_ptr(), buf.len()) }
    })
    .map_err(|errno| SysError::new("getdents64", errno).fd(fd).number(buf.len()))?;
    let rest: &[u8] = buf.get(..count(read)).unwrap_or_default();
    Ok(DirEntries { rest })
}

/// Goes to where `offset`, a cookie of an earlier entry, or 0 points.
pub fn seek_dir(fd: impl AsFd, offset: i64) -> Result<()> {
    let fd = fd.as_fd();
    // SAFETY: lseek takes integers only. A cookie may be any 64-bit number, also one that reads as -1.
    match check(unsafe { libc::lseek(fd.as_raw_fd(), offset, libc::SEEK_SET) }) {
        Ok(_) => Ok(()),
        Err(errno) => Err(SysError::new("lseek", errno).fd(fd).number(offset)),
    }
}
