//! Making, linking, renaming and removing names in pinned directories.

#![expect(unsafe_code, reason = "the *at calls that change names")]

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStringExt;

use super::call::{FdName, check, count, retry, with_name, with_path};
use super::cred::with_own_umask;
use super::error::{Result, SysError};
use super::fd::proc_fd;

/// Makes a directory.
pub fn mkdir_at(dir: impl AsFd, name: &OsStr, mode: u32) -> Result<()> {
    let dir = dir.as_fd();
    with_name(name, |name| {
        with_own_umask()?;
        // SAFETY: the name is a C string.
        retry(|| unsafe { libc::mkdirat(dir.as_raw_fd(), name.as_ptr(), mode & 0o7777) })
    })
    .map(drop)
    .map_err(|errno| SysError::new("mkdirat", errno).fd(dir).name(name))
}

/// Makes a fifo, a socket, a device or an empty file; `mode` says which, `rdev` is the device's number.
pub fn mknod_at(dir: impl AsFd, name: &OsStr, mode: u32, rdev: u64) -> Result<()> {
    let dir = dir.as_fd();
    with_name(name, |name| {
        with_own_umask()?;
        // SAFETY: the name is a C string.
        retry(|| unsafe { libc::mknodat(dir.as_raw_fd(), name.as_ptr(), mode, rdev) })
    })
    .map(drop)
    .map_err(|errno| SysError::new("mknodat", errno).fd(dir).name(name).hex(mode))
}

/// Makes a symbolic link that says `target`.
pub fn symlink_at(target: &OsStr, dir: impl AsFd, name: &OsStr) -> Result<()> {
    let dir = dir.as_fd();
    with_path(target, |target| {
        with_name(name, |name| {
            // SAFETY: both are C strings.
            retry(|| unsafe { libc::symlinkat(target.as_ptr(), dir.as_raw_fd(), name.as_ptr()) })
        })
    })
    .map(drop)
    .map_err(|errno| SysError::new("symlinkat", errno).name(target).fd(dir).name(name))
}

/// What the symbolic link that `fd` pins says.
pub fn readlink(fd: impl AsFd) -> Result<OsString> {
    let fd = fd.as_fd();
    let mut buf = vec![0_u8; 256];
    loop {
        // SAFETY: "" is a C string, the buffer is valid for its length.
        let ret = unsafe { libc::readlinkat(fd.as_raw_fd(), c"".as_ptr(), buf.as_mut_ptr().cast(), buf.len()) };
        let read = count(check(ret).map_err(|errno| SysError::new("readlinkat", errno).fd(fd))?);
        if read < buf.len() {
            buf.truncate(read);
            return Ok(OsString::from_vec(buf));
        }
        // It may have been cut off.
        buf.resize(buf.len() * 4, 0);
    }
}

/// Links the inode that `fd` pins (also an unnamed one) to a name; EEXIST when the name is taken.
pub fn link_fd_at(fd: impl AsFd, dir: impl AsFd, name: &OsStr) -> Result<()> {
    let (fd, dir) = (fd.as_fd(), dir.as_fd());
    let fail = |errno| SysError::new("linkat", errno).fd(fd).fd(dir).name(name);
    let direct = with_name(name, |name| {
        // SAFETY: both names are C strings.
        retry(|| unsafe {
            libc::linkat(
                fd.as_raw_fd(),
                c"".as_ptr(),
                dir.as_raw_fd(),
                name.as_ptr(),
                libc::AT_EMPTY_PATH,
            )
        })
    });
    match direct {
        Ok(_) => return Ok(()),
        // AT_EMPTY_PATH is for those with CAP_DAC_READ_SEARCH; all others go through /proc.
        Err(libc::ENOENT | libc::EPERM | libc::EACCES) => {}
        Err(errno) => return Err(fail(errno)),
    }
    let proc = proc_fd()?.as_raw_fd();
    let source = FdName::new(fd.as_raw_fd());
    with_name(name, |name| {
        // SAFETY: both names are C strings.
        retry(|| unsafe {
            libc::linkat(
                proc,
                source.as_c_str().as_ptr(),
                dir.as_raw_fd(),
                name.as_ptr(),
                libc::AT_SYMLINK_FOLLOW,
            )
        })
    })
    .map(drop)
    .map_err(fail)
}

/// Links what a name leads to (a symlink itself) to a second name.
pub fn link_at(old_dir: impl AsFd, old_name: &OsStr, new_dir: impl AsFd, new_name: &OsStr) -> Result<()> {
    let (old_dir, new_dir) = (old_dir.as_fd(), new_dir.as_fd());
    with_name(old_name, |old| {
        with_name(new_name, |new| {
            // SAFETY: both names are C strings.
            retry(|| unsafe { libc::linkat(old_dir.as_raw_fd(), old.as_ptr(), new_dir.as_raw_fd(), new.as_ptr(), 0) })
        })
    })
    .map(drop)
    .map_err(|errno| {
        SysError::new("linkat", errno)
            .fd(old_dir)
            .name(old_name)
            .fd(new_dir)
            .name(new_name)
    })
}

/// Removes a name that leads to anything but a directory.
pub fn unlink_at(dir: impl AsFd, name: &OsStr) -> Result<()> {
    remove(dir, name, 0)
}

/// Removes an empty directory.
pub fn rmdir_at(dir: impl AsFd, name: &OsStr) -> Result<()> {
    remove(dir, name, libc::AT_REMOVEDIR)
}

fn remove(dir: impl AsFd, name: &OsStr, flags: i32) -> Result<()> {
    let dir = dir.as_fd();
    with_name(name, |name| {
        // SAFETY: the name is a C string.
        retry(|| unsafe { libc::unlinkat(dir.as_raw_fd(), name.as_ptr(), flags) })
    })
    .map(drop)
    .map_err(|errno| SysError::new("unlinkat", errno).fd(dir).name(name).hex(flags))
}

/// Renames; `flags` are `RENAME_NOREPLACE` or `RENAME_EXCHANGE`.
pub fn rename_at(old_dir: impl AsFd, old_name: &OsStr, new_dir: impl AsFd, new_name: &OsStr, flags: u32) -> Result<()> {
    let (old_dir, new_dir) = (old_dir.as_fd(), new_dir.as_fd());
    with_name(old_name, |old| {
        with_name(new_name, |new| {
            retry(|| {
                // SAFETY: both names are C strings.
                unsafe {
                    libc::syscall(
                        libc::SYS_renameat2,
                        old_dir.as_raw_fd(),
                        old.as_ptr(),
                        new_dir.as_raw_fd(),
                        new.as_ptr(),
                        flags,
                    )
                }
            })
        })
    })
    .map(drop)
    .map_err(|errno| {
        SysError::new("renameat2", errno)
            .fd(old_dir)
            .name(old_name)
            .fd(new_dir)
            .name(new_name)
            .hex(flags)
    })
}
