//! Watching a filesystem for changes of names and attributes, by whomever they are made (fanotify, as root).
//!
//! Reads without waiting; what an event means is for others.

#![expect(unsafe_code, reason = "libc has no safe wrapper for fanotify's records")]

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::call::{check, own, retry};
use super::error::{Result, SysError};

/// What a watch tells of.
const MASK: u64 = libc::FAN_CREATE
    | libc::FAN_DELETE
    | libc::FAN_MOVED_FROM
    | libc::FAN_MOVED_TO
    | libc::FAN_MODIFY
    | libc::FAN_ATTRIB
    | libc::FAN_ONDIR;
/// `FAN_MARK_IGNORE | FAN_MARK_IGNORED_SURV_MODIFY`: events of a mark are not told, also after the file was changed.
const FAN_MARK_IGNORE_SURV: u32 = 0x400 | 0x40;
/// Bytes of the fixed part of an event.
const FIXED: usize = 24;
/// Bytes before the file handle in a record: its header and the filesystem's id.
const BEFORE_HANDLE: usize = 12;

/// A watch of one filesystem.
#[derive(Debug)]
pub struct Watch {
    fd: OwnedFd,
    /// Ends a wait.
    bell: OwnedFd,
}

/// One event.
#[derive(Debug, Clone, Copy)]
pub struct WatchEvent<'a> {
    /// The process that made the change; 0 when it cannot be seen from here.
    pub pid: u32,
    /// Events were dropped: anything may have changed.
    pub overflow: bool,
    /// A name came or went.
    pub names: bool,
    /// The handle of the directory, and the name, where the kernel tells them.
    pub name: Option<(&'a [u8], &'a OsStr)>,
    /// The handle of the file or directory itself, where the kernel tells it.
    pub object: Option<&'a [u8]>,
    /// It is a directory.
    pub directory: bool,
}

impl Watch {
    /// Watches single directories, those that are added: what is done to the names in them, to the files in them by these
    /// names, and to themselves. Anybody may do that, within bounds (`/proc/sys/fs/fanotify`); of others' events the process is
    /// not told.
    pub fn directories() -> Result<Self> {
        Self::begin(0)
    }

    fn begin(more: u32) -> Result<Self> {
        let flags = libc::FAN_CLASS_NOTIF
            | libc::FAN_CLOEXEC
            | libc::FAN_NONBLOCK
            | libc::FAN_REPORT_FID
            | libc::FAN_REPORT_DIR_FID
            | libc::FAN_REPORT_NAME
            | libc::FAN_REPORT_TARGET_FID
            | more;
        let access = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_LARGEFILE;
        // SAFETY: fanotify_init takes integers only.
        let fd = retry(|| unsafe { libc::fanotify_init(flags, access.unsigned_abs()) })
            .map(own)
            .map_err(|errno| SysError::new("fanotify_init", errno))?;
        // SAFETY: eventfd takes integers only.
        let bell = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })
            .map(own)
            .map_err(|errno| SysError::new("eventfd", errno))?;
        Ok(Self { fd, bell })
    }

    /// Ends the wait of whoever waits, or the next.
    pub fn ring(&self) -> Result<()> {
        match nix::unistd::write(&self.bell, &1_u64.to_ne_bytes()) {
            // It has been rung very often.
            Ok(_) | Err(nix::errno::Errno::EAGAIN) => Ok(()),
            Err(errno) => Err(SysError::new("write", errno as i32).fd(self.bell.as_fd())),
        }
    }

    /// Watches a directory, too. Whoever does must be able to list it; ENOSPC where there are too many.
    pub fn add_directory(&self, dir: impl AsFd) -> Result<()> {
        let (group, dir) = (self.fd.as_raw_fd(), dir.as_fd());
        let (mark, mask) = (
            libc::FAN_MARK_ADD | libc::FAN_MARK_ONLYDIR,
            MASK | libc::FAN_EVENT_ON_CHILD,
        );
        // SAFETY: "." is a C string; the rest are integers.
        check(unsafe { libc::fanotify_mark(group, mark, mask, dir.as_raw_fd(), c".".as_ptr()) })
            .map(drop)
            .map_err(|errno| SysError::new("fanotify_mark", errno).fd(dir))
    }

    /// Watches the filesystem that `dir` lies on. Needs `CAP_SYS_ADMIN`.
    pub fn filesystem(dir: impl AsFd) -> Result<Self> {
        let dir = dir.as_fd();
        let watch = Self::begin(libc::FAN_UNLIMITED_QUEUE)?;
        watch.resume(dir)?;
        Ok(watch)
    }

    /// Goes on watching the filesystem that `dir` lies on.
    pub fn resume(&self, dir: impl AsFd) -> Result<()> {
        self.mark(libc::FAN_MARK_ADD, dir.as_fd())
    }

    /// Watches nothing until it is to go on: each event costs whoever causes it, and whoever reads it.
    pub fn rest(&self, dir: impl AsFd) -> Result<()> {
        self.mark(libc::FAN_MARK_REMOVE, dir.as_fd())
    }

    fn mark(&self, how: libc::c_uint, dir: BorrowedFd<'_>) -> Result<()> {
        let mark = how | libc::FAN_MARK_FILESYSTEM;
        // SAFETY: "." is a C string; the rest are integers.
        check(unsafe { libc::fanotify_mark(self.fd.as_raw_fd(), mark, MASK, dir.as_raw_fd(), c".".as_ptr()) })
            .map(drop)
            .map_err(|errno| SysError::new("fanotify_mark", errno).fd(dir))
    }

    /// Leaves out what is written through the mount that `on_mount` lies on.
    pub fn ignore_writes(&self, on_mount: impl AsFd) -> Result<()> {
        let on_mount = on_mount.as_fd();
        let mark = libc::FAN_MARK_ADD | libc::FAN_MARK_MOUNT | FAN_MARK_IGNORE_SURV;
        let (group, dir) = (self.fd.as_raw_fd(), on_mount.as_raw_fd());
        // SAFETY: "." is a C string; the rest are integers.
        check(unsafe { libc::fanotify_mark(group, mark, libc::FAN_MODIFY, dir, c".".as_ptr()) })
            .map(drop)
            .map_err(|errno| SysError::new("fanotify_mark", errno).fd(on_mount))
    }

    /// Waits until there is an event, or the bell rings; says whether so.
    pub fn wait(&self, bound: Duration) -> Result<bool> {
        let bound = PollTimeout::try_from(bound).unwrap_or(PollTimeout::MAX);
        let mut wanted = [&self.fd, &self.bell].map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN));
        match poll(&mut wanted, bound) {
            Ok(ready) => {
                // Empty as a rule; one that is rung after this is heard by the next wait.
                let heard = nix::unistd::read(&self.bell, &mut [0; 8]);
                Ok(ready > 0 || heard.is_ok())
            }
            Err(nix::errno::Errno::EINTR) => Ok(false),
            Err(errno) => Err(SysError::new("poll", errno as i32)),
        }
    }

    /// Reads the events there are, as far as they fit; says whether there were any.
    pub fn read(&self, buffer: &mut [u8], mut each: impl FnMut(WatchEvent<'_>)) -> Result<bool> {
        let read = nix::unistd::read(&self.fd, buffer);
        let length = match read {
            Ok(length) => length,
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => return Ok(false),
            Err(errno) => return Err(SysError::new("read", errno as i32).fd(self.fd.as_fd())),
        };
        let mut rest = buffer.get(..length).unwrap_or_default();
        while rest.len() >= FIXED {
            let size = usize::try_from(number(rest, 0)).unwrap_or(0).clamp(FIXED, rest.len());
            let (event, after) = rest.split_at(size);
            each(parse(event));
            rest = after;
        }
        Ok(length > 0)
    }
}

fn parse(event: &[u8]) -> WatchEvent<'_> {
    let mask = u64::from(number(event, 8)) | u64::from(number(event, 12)) << 32;
    let mut found = WatchEvent {
        pid: number(event, 20),
        overflow: mask & libc::FAN_Q_OVERFLOW != 0,
        names: mask & (libc::FAN_CREATE | libc::FAN_DELETE | libc::FAN_MOVED_FROM | libc::FAN_MOVED_TO) != 0,
        name: None,
        object: None,
        directory: mask & libc::FAN_ONDIR != 0,
    };
    let fixed = event
        .get(6..8)
        .map_or(0, |bytes| usize::from(u16::from_ne_bytes([bytes[0], bytes[1]])));
    let mut rest = event.get(fixed.max(FIXED)..).unwrap_or_default();
    while let Some(&[kind, _, low, high]) = rest.get(..4) {
        let size = usize::from(u16::from_ne_bytes([low, high]));
        let Some(record) = rest.get(..size).filter(|_| size > BEFORE_HANDLE + 8) else {
            break;
        };
        let length = usize::try_from(number(record, BEFORE_HANDLE)).unwrap_or(0);
        let start = BEFORE_HANDLE + 8;
        if let Some(handle) = record.get(start..start + length) {
            match kind {
                libc::FAN_EVENT_INFO_TYPE_FID => found.object = Some(handle),
                libc::FAN_EVENT_INFO_TYPE_DFID_NAME => {
                    let name = record.get(start + length..).unwrap_or_default();
                    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
                    found.name = Some((handle, OsStr::from_bytes(&name[..end])));
                }
                _ => {}
            }
        }
        rest = rest.get(size..).unwrap_or_default();
    }
    found
}

fn number(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..at + 4)
        .and_then(|four| four.try_into().ok())
        .map_or(0, u32::from_ne_bytes)
}
