//! What an inode is and says of itself: one statx.

#![expect(unsafe_code, reason = "statx")]

use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use super::call::{retry, with_name};
use super::error::{Result, SysError};
use crate::guard::{Timestamp, Token};

/// What statx says of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// `st_dev`.
    pub dev: u64,
    /// `st_ino`.
    pub ino: u64,
    /// `st_mode`: kind and permissions.
    pub mode: u32,
    /// `st_nlink`.
    pub nlink: u32,
    /// `st_uid`.
    pub uid: u32,
    /// `st_gid`.
    pub gid: u32,
    /// Of a device: its major number.
    pub rdev_major: u32,
    /// Of a device: its minor number.
    pub rdev_minor: u32,
    /// `st_size`.
    pub size: u64,
    /// `st_blocks`, of 512 bytes.
    pub blocks: u64,
    /// `st_blksize`.
    pub blksize: u32,
    /// `st_atim`.
    pub atime: Timestamp,
    /// `st_mtim`.
    pub mtime: Timestamp,
    /// `st_ctim`.
    pub ctime: Timestamp,
    /// When the inode was made, where the filesystem knows.
    pub btime: Option<Timestamp>,
    /// The mount it was reached by.
    pub mount_id: Option<u64>,
    /// `STATX_ATTR_*`, only those the filesystem knows.
    pub attributes: u64,
}

impl Stat {
    /// The evidence for the version of the content.
    #[must_use]
    pub const fn token(&self) -> Token {
        Token {
            size: self.size,
            mtime: self.mtime,
            ctime: self.ctime,
        }
    }

    /// The bits that say what kind of file it is.
    #[must_use]
    pub const fn kind(&self) -> u32 {
        self.mode & libc::S_IFMT
    }

    /// The permission bits, with setuid, setgid and sticky.
    #[must_use]
    pub const fn permissions(&self) -> u32 {
        self.mode & 0o7777
    }

    /// A directory.
    #[must_use]
    pub const fn is_dir(&self) -> bool {
        self.kind() == libc::S_IFDIR
    }

    /// A regular file.
    #[must_use]
    pub const fn is_file(&self) -> bool {
        self.kind() == libc::S_IFREG
    }

    /// A symbolic link.
    #[must_use]
    pub const fn is_symlink(&self) -> bool {
        self.kind() == libc::S_IFLNK
    }

    /// `st_rdev`.
    #[must_use]
    pub const fn rdev(&self) -> u64 {
        libc::makedev(self.rdev_major, self.rdev_minor)
    }
}

/// Of what `fd` pins.
pub fn stat(fd: impl AsFd) -> Result<Stat> {
    let fd = fd.as_fd();
    statx(fd, c"", libc::AT_EMPTY_PATH).map_err(|errno| SysError::new("statx", errno).fd(fd))
}

/// Of what `fd` pins, as the kernel has it: no file server is asked, so that it may be called by one.
pub fn stat_unasked(fd: impl AsFd) -> Result<Stat> {
    let fd = fd.as_fd();
    statx(fd, c"", libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC).map_err(|errno| SysError::new("statx", errno).fd(fd))
}

/// Of what `name` in `dir` leads to; of a symlink itself; without mounting anything.
pub fn stat_at(dir: impl AsFd, name: &OsStr) -> Result<Stat> {
    let dir = dir.as_fd();
    with_name(name, |name| {
        statx(dir, name, libc::AT_SYMLINK_NOFOLLOW | libc::AT_NO_AUTOMOUNT)
    })
    .map_err(|errno| SysError::new("statx", errno).fd(dir).name(name))
}

fn statx(dir: BorrowedFd<'_>, name: &CStr, flags: i32) -> std::result::Result<Stat, i32> {
    let mask = libc::STATX_BASIC_STATS | libc::STATX_BTIME | libc::STATX_MNT_ID;
    // SAFETY: all-zero bytes are a valid statx, a plain record of integers.
    let mut raw: libc::statx = unsafe { std::mem::zeroed() };
    retry(|| {
        // SAFETY: the name is a C string and the result lives through the call.
        unsafe { libc::statx(dir.as_raw_fd(), name.as_ptr(), flags, mask, &raw mut raw) }
    })?;
    Ok(from_raw(&raw))
}

fn from_raw(raw: &libc::statx) -> Stat {
    let has = |bit: u32| raw.stx_mask & bit != 0;
    Stat {
        dev: libc::makedev(raw.stx_dev_major, raw.stx_dev_minor),
        ino: raw.stx_ino,
        mode: u32::from(raw.stx_mode),
        nlink: raw.stx_nlink,
        uid: raw.stx_uid,
        gid: raw.stx_gid,
        rdev_major: raw.stx_rdev_major,
        rdev_minor: raw.stx_rdev_minor,
        size: raw.stx_size,
        blocks: raw.stx_blocks,
        blksize: raw.stx_blksize,
        atime: timestamp(raw.stx_atime),
        mtime: timestamp(raw.stx_mtime),
        ctime: timestamp(raw.stx_ctime),
        btime: has(libc::STATX_BTIME).then(|| timestamp(raw.stx_btime)),
        mount_id: has(libc::STATX_MNT_ID).then_some(raw.stx_mnt_id),
        attributes: raw.stx_attributes & raw.stx_attributes_mask,
    }
}

const fn timestamp(raw: libc::statx_timestamp) -> Timestamp {
    Timestamp {
        sec: raw.tv_sec,
        nsec: raw.tv_nsec,
    }
}
