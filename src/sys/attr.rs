//! Attributes of what a descriptor pins, `O_PATH` and symlinks included: permissions, owner, times, extended attributes.

#![expect(unsafe_code, reason = "the attribute calls")]

use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use super::call::{FdName, check, count, offset, retry, with_path};
use super::error::{Result, SysError};
use super::fd::proc_fd;
use crate::guard::Timestamp;

/// Calls a kernel lacks are asked for once.
static NO_FCHMODAT2: AtomicBool = AtomicBool::new(false);
static NO_XATTRAT: AtomicBool = AtomicBool::new(false);

const SYS_FCHMODAT2: i64 = 452;
const SYS_SETXATTRAT: i64 = 463;
const SYS_GETXATTRAT: i64 = 464;
const SYS_LISTXATTRAT: i64 = 465;
const SYS_REMOVEXATTRAT: i64 = 466;

/// Sets the permission bits.
pub fn chmod(fd: impl AsFd, mode: u32) -> Result<()> {
    let fd = fd.as_fd();
    let mode = mode & 0o7777;
    let fail = |errno| SysError::new("fchmodat2", errno).fd(fd).hex(mode);
    if !NO_FCHMODAT2.load(Ordering::Relaxed) {
        let ret = retry(|| {
            // SAFETY: "" is a C string.
            unsafe { libc::syscall(SYS_FCHMODAT2, fd.as_raw_fd(), c"".as_ptr(), mode, libc::AT_EMPTY_PATH) }
        });
        match ret {
            Ok(_) => return Ok(()),
            Err(libc::ENOSYS) => NO_FCHMODAT2.store(true, Ordering::Relaxed),
            Err(errno) => return Err(fail(errno)),
        }
    }
    through_proc(fd, |proc, name| {
        // SAFETY: the name is a C string.
        retry(|| unsafe { libc::fchmodat(proc.as_raw_fd(), name.as_ptr(), mode, 0) })
    })?
    .map(drop)
    .map_err(fail)
}

/// Sets owner, group, or both.
pub fn chown(fd: impl AsFd, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
    let fd = fd.as_fd();
    // -1 leaves it as it is.
    let (uid, gid) = (uid.unwrap_or(u32::MAX), gid.unwrap_or(u32::MAX));
    // SAFETY: "" is a C string.
    retry(|| unsafe { libc::fchownat(fd.as_raw_fd(), c"".as_ptr(), uid, gid, libc::AT_EMPTY_PATH) })
        .map(drop)
        .map_err(|errno| SysError::new("fchownat", errno).fd(fd).number(uid).number(gid))
}

/// What a time is set to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeSet {
    /// The kernel's present time.
    Now,
    /// This time.
    At(Timestamp),
}

/// The time by which the kernel dates changes where it does so coarsely: that of its last tick.
#[must_use]
pub fn coarse_time() -> Timestamp {
    match nix::time::clock_gettime(nix::time::ClockId::CLOCK_REALTIME_COARSE) {
        Ok(at) => Timestamp {
            sec: at.tv_sec(),
            nsec: u32::try_from(at.tv_nsec()).unwrap_or(0),
        },
        // Every kernel has this clock; if not, ticks are known by their length alone.
        Err(_) => Timestamp { sec: i64::MAX, nsec: 0 },
    }
}

/// Sets the access time, the modification time, or both.
pub fn set_times(fd: impl AsFd, atime: Option<TimeSet>, mtime: Option<TimeSet>) -> Result<()> {
    let fd = fd.as_fd();
    let times = [timespec(atime), timespec(mtime)];
    let direct = retry(|| {
        // SAFETY: "" is a C string and two times are given.
        unsafe { libc::utimensat(fd.as_raw_fd(), c"".as_ptr(), times.as_ptr(), libc::AT_EMPTY_PATH) }
    });
    let fail = |errno| SysError::new("utimensat", errno).fd(fd);
    match direct {
        Ok(_) => return Ok(()),
        // Before 5.8 utimensat knew no AT_EMPTY_PATH.
        Err(libc::EINVAL) => {}
        Err(errno) => return Err(fail(errno)),
    }
    through_proc(fd, |proc, name| {
        // SAFETY: the name is a C string and two times are given.
        retry(|| unsafe { libc::utimensat(proc.as_raw_fd(), name.as_ptr(), times.as_ptr(), 0) })
    })?
    .map(drop)
    .map_err(fail)
}

fn timespec(time: Option<TimeSet>) -> libc::timespec {
    match time {
        None => libc::timespec {
            tv_sec: 0,
            tv_nsec: libc::UTIME_OMIT,
        },
        Some(TimeSet::Now) => libc::timespec {
            tv_sec: 0,
            tv_nsec: libc::UTIME_NOW,
        },
        Some(TimeSet::At(at)) => libc::timespec {
            tv_sec: at.sec,
            tv_nsec: i64::from(at.nsec),
        },
    }
}

/// Sets the size of what `fd` pins without opening it for writing by flags: through `/proc/self/fd`, with the caller's
/// permissions checked by the kernel.
pub fn truncate(fd: impl AsFd, size: u64) -> Result<()> {
    let fd = fd.as_fd();
    let path = super::fd::fd_path(fd);
    offset(size)
        .and_then(|size| {
            with_path(path.as_os_str(), |path| {
                // SAFETY: the path is a C string.
                retry(|| unsafe { libc::truncate(path.as_ptr(), size) })
            })
        })
        .map(drop)
        .map_err(|errno| SysError::new("truncate", errno).fd(fd).number(size))
}

fn through_proc<T>(fd: BorrowedFd<'_>, f: impl FnOnce(BorrowedFd<'_>, &CStr) -> T) -> Result<T> {
    let name = FdName::new(fd.as_raw_fd());
    Ok(f(proc_fd()?, name.as_c_str()))
}

/// `struct xattr_args`.
#[repr(C)]
struct XattrArgs {
    value: u64,
    size: u32,
    flags: u32,
}

/// The value of an extended attribute; `hint` is the size to try first. ENODATA when there is none.
pub fn get_xattr(fd: impl AsFd, name: &OsStr, hint: usize) -> Result<Vec<u8>> {
    let fd = fd.as_fd();
    grow(hint.max(64), |buf| with_path(name, |name| get_once(fd, name, buf)))
        .map_err(|errno| SysError::new("getxattrat", errno).fd(fd).name(name))
}

/// The names of all extended attributes, each ended by a NUL.
pub fn list_xattr(fd: impl AsFd, hint: usize) -> Result<Vec<u8>> {
    let fd = fd.as_fd();
    grow(hint.max(256), |buf| list_once(fd, buf)).map_err(|errno| SysError::new("listxattrat", errno).fd(fd))
}

/// Tries a buffer, and one as large as the kernel's limit when it was too small.
fn grow(
    size: usize,
    mut read: impl FnMut(&mut [u8]) -> std::result::Result<usize, i32>,
) -> std::result::Result<Vec<u8>, i32> {
    const XATTR_SIZE_MAX: usize = 65536;
    let mut buf = vec![0; size.min(XATTR_SIZE_MAX)];
    let len = match read(&mut buf) {
        Err(libc::ERANGE) if buf.len() < XATTR_SIZE_MAX => {
            buf.resize(XATTR_SIZE_MAX, 0);
            read(&mut buf)?
        }
        other => other?,
    };
    buf.truncate(len);
    Ok(buf)
}

fn get_once(fd: BorrowedFd<'_>, name: &CStr, buf: &mut [u8]) -> std::result::Result<usize, i32> {
    let size = u32::try_from(buf.len()).unwrap_or(u32::MAX);
    let mut args = XattrArgs {
        value: address(buf.as_mut_ptr()),
        size,
        flags: 0,
    };
    xattrat(
        fd,
        |proc, file| {
            // SAFETY: both names are C strings; the arguments, and the buffer they name, live through the call.
            unsafe {
                libc::syscall(
                    SYS_GETXATTRAT,
                    proc.as_raw_fd(),
                    file.as_ptr(),
                    0,
                    name.as_ptr(),
                    &raw mut args,
                    std::mem::size_of::<XattrArgs>(),
                )
            }
        },
        |path| {
            // SAFETY: both names are C strings and the buffer is valid for its length.
            unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), buf.as_mut_ptr().cast(), buf.len()) as i64 }
        },
    )
    .map(count)
}

fn list_once(fd: BorrowedFd<'_>, buf: &mut [u8]) -> std::result::Result<usize, i32> {
    let (start, size) = (buf.as_mut_ptr(), buf.len());
    xattrat(
        fd,
        |proc, file| {
            // SAFETY: the name is a C string and the buffer is valid for its length.
            unsafe { libc::syscall(SYS_LISTXATTRAT, proc.as_raw_fd(), file.as_ptr(), 0, start, size) }
        },
        |path| {
            // SAFETY: the path is a C string and the buffer is valid for its length.
            unsafe { libc::listxattr(path.as_ptr(), start.cast(), size) as i64 }
        },
    )
    .map(count)
}

/// Sets an extended attribute; `flags` are `XATTR_CREATE` or `XATTR_REPLACE`.
pub fn set_xattr(fd: impl AsFd, name: &OsStr, value: &[u8], flags: i32) -> Result<()> {
    let fd = fd.as_fd();
    let fail = |errno| {
        SysError::new("setxattrat", errno)
            .fd(fd)
            .name(name)
            .number(value.len())
            .hex(flags)
    };
    let size = u32::try_from(value.len()).map_err(|_| fail(libc::E2BIG))?;
    let mut args = XattrArgs {
        value: address(value.as_ptr()),
        size,
        flags: flags.cast_unsigned(),
    };
    with_path(name, |name| {
        xattrat(
            fd,
            |proc, file| {
                // SAFETY: both names are C strings; the arguments, and the value they name, live through the call.
                unsafe {
                    libc::syscall(
                        SYS_SETXATTRAT,
                        proc.as_raw_fd(),
                        file.as_ptr(),
                        0,
                        name.as_ptr(),
                        &raw mut args,
                        std::mem::size_of::<XattrArgs>(),
                    )
                }
            },
            |path| {
                // SAFETY: both names are C strings and the value is valid for its length.
                i64::from(unsafe {
                    libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), flags)
                })
            },
        )
    })
    .map(drop)
    .map_err(fail)
}

/// Removes an extended attribute.
pub fn remove_xattr(fd: impl AsFd, name: &OsStr) -> Result<()> {
    let fd = fd.as_fd();
    with_path(name, |name| {
        xattrat(
            fd,
            |proc, file| {
                // SAFETY: both names are C strings.
                unsafe { libc::syscall(SYS_REMOVEXATTRAT, proc.as_raw_fd(), file.as_ptr(), 0, name.as_ptr()) }
            },
            |path| {
                // SAFETY: both names are C strings.
                i64::from(unsafe { libc::removexattr(path.as_ptr(), name.as_ptr()) })
            },
        )
    })
    .map(drop)
    .map_err(|errno| SysError::new("removexattrat", errno).fd(fd).name(name))
}

/// The *xattrat calls (6.13) on the entry of the pinned `/proc/self/fd`; on an older kernel the calls by path.
/// With `AT_EMPTY_PATH` they would refuse an `O_PATH` descriptor.
fn xattrat(
    fd: BorrowedFd<'_>,
    mut at: impl FnMut(BorrowedFd<'_>, &CStr) -> i64,
    mut by_path: impl FnMut(&CStr) -> i64,
) -> std::result::Result<i64, i32> {
    let proc = proc_fd().map_err(|error| error.errno)?;
    let name = FdName::new(fd.as_raw_fd());
    if !NO_XATTRAT.load(Ordering::Relaxed) {
        match check(at(proc, name.as_c_str())) {
            Err(libc::ENOSYS) => NO_XATTRAT.store(true, Ordering::Relaxed),
            other => return other,
        }
    }
    with_path(super::fd::fd_path(fd).as_os_str(), |path| check(by_path(path)))
}

/// An address as the 64 bits that the kernel's records hold.
fn address(pointer: *const u8) -> u64 {
    pointer.expose_provenance() as u64
}

/// Whether this process's effective user may do what `mask` (`R_OK`, `W_OK`, `X_OK`) says to what `fd` pins.
pub fn access(fd: impl AsFd, mask: i32) -> Result<()> {
    let fd = fd.as_fd();
    let flags = libc::AT_EMPTY_PATH | libc::AT_EACCESS;
    // SAFETY: the path is a C string; the rest are integers.
    let ret = unsafe { libc::syscall(libc::SYS_faccessat2, fd.as_raw_fd(), c"".as_ptr(), mask, flags) };
    check(ret)
        .map(drop)
        .map_err(|errno| SysError::new("faccessat2", errno).fd(fd).number(mask))
}
