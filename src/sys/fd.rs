//! Opening: children of a pinned directory, unnamed files, descriptors opened again, file handles.
//!
//! Never follows a symlink and never crosses a mount on the way to a child.

#![expect(unsafe_code, reason = "openat2, openat and the file handle calls")]

use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use smallvec::SmallVec;

use super::call::{FdName, check, own, retry, with_name, with_path};
use super::cred::with_own_umask;
use super::error::{Result, SysError};

const NEVER_OUTSIDE: u64 = libc::RESOLVE_NO_XDEV | libc::RESOLVE_NO_MAGICLINKS;

/// Pins what `name` in `dir` leads to (`O_PATH`), without opening it: a symlink is pinned itself.
/// What another filesystem is mounted on is refused with EXDEV.
pub fn open_child(dir: impl AsFd, name: &OsStr) -> Result<OwnedFd> {
    openat2(dir.as_fd(), name, libc::O_PATH | libc::O_NOFOLLOW, 0, NEVER_OUTSIDE)
}

/// Opens or creates `name` in `dir`. A symlink there is refused with ELOOP.
pub fn open_at(dir: impl AsFd, name: &OsStr, flags: i32, mode: u32) -> Result<OwnedFd> {
    openat2(
        dir.as_fd(),
        name,
        flags | libc::O_NOFOLLOW,
        mode,
        NEVER_OUTSIDE | libc::RESOLVE_NO_SYMLINKS,
    )
}

fn openat2(dir: BorrowedFd<'_>, name: &OsStr, flags: i32, mode: u32, resolve: u64) -> Result<OwnedFd> {
    // openat2 refuses what open silently ignores, such as a mode without O_CREAT.
    let mode = if flags & libc::O_CREAT != 0 { mode & 0o7777 } else { 0 };
    let how = OpenHow {
        flags: u64::from((flags | libc::O_CLOEXEC | libc::O_LARGEFILE).cast_unsigned()),
        mode: u64::from(mode),
        resolve,
    };
    with_name(name, |name| {
        if flags & libc::O_CREAT != 0 {
            with_own_umask()?;
        }
        retry(|| {
            // SAFETY: the name is a C string and `how` lives through the call, its size given.
            unsafe {
                libc::syscall(
                    libc::SYS_openat2,
                    dir.as_raw_fd(),
                    name.as_ptr(),
                    &raw const how,
                    std::mem::size_of::<OpenHow>(),
                )
            }
        })
    })
    .map(own)
    .map_err(|errno| SysError::new("openat2", errno).fd(dir).name(name).open_flags(flags))
}

/// `struct open_how`.
#[repr(C)]
struct OpenHow {
    flags: u64,
    mode: u64,
    resolve: u64,
}

/// Opens a directory or file by path, following symlinks: for the paths a user names, never below the backing root.
pub fn open_path(path: &Path, flags: i32) -> Result<OwnedFd> {
    let flags = flags | libc::O_CLOEXEC;
    with_path(path.as_os_str(), |path| {
        // SAFETY: the path is a C string.
        retry(|| unsafe { libc::open(path.as_ptr(), flags) })
    })
    .map(own)
    .map_err(|errno| SysError::new("open", errno).name(path).open_flags(flags))
}

/// Makes an unnamed file in `dir` (which may be an `O_PATH` descriptor).
pub fn open_tmpfile(dir: impl AsFd, flags: i32, mode: u32) -> Result<OwnedFd> {
    let dir = dir.as_fd();
    let flags = flags | libc::O_TMPFILE | libc::O_CLOEXEC;
    with_own_umask()
        // SAFETY: "." is a C string; the mode is the variadic argument that O_TMPFILE asks for.
        .and_then(|()| retry(|| unsafe { libc::openat(dir.as_raw_fd(), c".".as_ptr(), flags, mode & 0o7777) }))
        .map(own)
        .map_err(|errno| SysError::new("openat", errno).fd(dir).name(".").open_flags(flags))
}

/// Opens what an `O_PATH` descriptor pins, through `/proc/self/fd`.
pub fn reopen(fd: impl AsFd, flags: i32) -> Result<OwnedFd> {
    let fd = fd.as_fd();
    // The entry in /proc is a magic link that must be followed; what it leads to is followed no further.
    let flags = (flags | libc::O_CLOEXEC) & !(libc::O_NOFOLLOW | libc::O_CREAT | libc::O_EXCL);
    let proc = proc_fd()?.as_raw_fd();
    let name = FdName::new(fd.as_raw_fd());
    // SAFETY: the name is a C string.
    retry(|| unsafe { libc::openat(proc, name.as_c_str().as_ptr(), flags) })
        .map(own)
        .map_err(|errno| {
            SysError::new("openat", errno)
                .fd(fd)
                .name("/proc/self/fd")
                .open_flags(flags)
        })
}

/// The path under which this process reaches what `fd` pins.
#[must_use]
pub fn fd_path(fd: impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()))
}

/// `/proc/self/fd`, pinned once and known to be procfs, so that a later mount over `/proc` cannot redirect us.
///
/// Belongs to the process that first used it: never use it between fork and exec.
pub(super) fn proc_fd() -> Result<BorrowedFd<'static>> {
    static PROC_FD: OnceLock<std::result::Result<OwnedFd, SysError>> = OnceLock::new();
    match PROC_FD.get_or_init(open_proc_fd) {
        Ok(fd) => Ok(fd.as_fd()),
        Err(error) => Err(error.clone()),
    }
}

fn open_proc_fd() -> Result<OwnedFd> {
    let path = Path::new("/proc/self/fd");
    let fd = open_path(path, libc::O_PATH | libc::O_DIRECTORY)?;
    if super::data::statfs(&fd)?.kind != libc::PROC_SUPER_MAGIC {
        return Err(SysError::new("open", libc::ENOSYS).name(path));
    }
    Ok(fd)
}

/// A file handle: names an inode of one filesystem, and a later inode of the same number differently.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Handle {
    /// `handle_type`.
    pub kind: i32,
    /// The bytes, opaque but comparable.
    pub bytes: SmallVec<[u8; 16]>,
    /// Whether `open_by_handle` can open it; else it only identifies.
    pub decodable: bool,
}

/// `FILEID_INO32_GEN`: the number and the generation, of 32 bits each.
const INO32_GEN: i32 = 1;

impl Handle {
    /// A handle of whatever file has this number, as ext2 to ext4 take it: a generation of 0 is any.
    #[must_use]
    pub fn of_inode(number: u64) -> Option<Self> {
        let [a, b, c, d] = u32::try_from(number).ok()?.to_ne_bytes();
        Some(Self {
            kind: INO32_GEN,
            bytes: SmallVec::from_slice(&[a, b, c, d, 0, 0, 0, 0]),
            decodable: true,
        })
    }

    /// The inode number, where the handle is known to hold it (`FILEID_INO32_GEN`: ext2 to ext4 and others).
    #[must_use]
    pub fn inode(&self) -> Option<u64> {
        let bytes: [u8; 8] = self.bytes.as_slice().try_into().ok()?;
        let [a, b, c, d, ..] = bytes;
        (self.kind == INO32_GEN).then(|| u64::from(u32::from_ne_bytes([a, b, c, d])))
    }
}

const MAX_HANDLE: usize = 128;

/// `struct file_handle` with room for the largest handle.
#[repr(C)]
struct RawHandle {
    size: u32,
    kind: i32,
    bytes: [u8; MAX_HANDLE],
}

/// `AT_HANDLE_FID`: a handle that identifies, from filesystems that cannot open by handle (6.5+).
const AT_HANDLE_FID: i32 = 0x200;

/// The handle of what `fd` pins, and the id of the mount it was reached by. EOPNOTSUPP where the filesystem has none.
pub fn handle_of(fd: impl AsFd) -> Result<(Handle, i32)> {
    let fd = fd.as_fd();
    match name_to_handle(fd, 0) {
        Ok((kind, bytes, mount)) => Ok((
            Handle {
                kind,
                bytes,
                decodable: true,
            },
            mount,
        )),
        Err(libc::EOPNOTSUPP) => match name_to_handle(fd, AT_HANDLE_FID) {
            Ok((kind, bytes, mount)) => Ok((
                Handle {
                    kind,
                    bytes,
                    decodable: false,
                },
                mount,
            )),
            // EINVAL: a kernel without AT_HANDLE_FID.
            Err(libc::EINVAL) => Err(SysError::new("name_to_handle_at", libc::EOPNOTSUPP).fd(fd)),
            Err(errno) => Err(SysError::new("name_to_handle_at", errno).fd(fd).hex(AT_HANDLE_FID)),
        },
        Err(errno) => Err(SysError::new("name_to_handle_at", errno).fd(fd)),
    }
}

/// The handle of what `name` in `dir` leads to, and the id of the mount that it lies on; a symbolic link is not followed.
pub fn handle_at(dir: impl AsFd, name: &OsStr) -> Result<(Handle, i32)> {
    let dir = dir.as_fd();
    with_name(name, |name| path_to_handle(dir, name, 0))
        .map(|(kind, bytes, mount)| {
            let handle = Handle {
                kind,
                bytes,
                decodable: true,
            };
            (handle, mount)
        })
        .map_err(|errno| SysError::new("name_to_handle_at", errno).fd(dir).name(name))
}

type HandleParts = (i32, SmallVec<[u8; 16]>, i32);

fn name_to_handle(fd: BorrowedFd<'_>, flags: i32) -> std::result::Result<HandleParts, i32> {
    path_to_handle(fd, c"", libc::AT_EMPTY_PATH | flags)
}

fn path_to_handle(fd: BorrowedFd<'_>, path: &CStr, flags: i32) -> std::result::Result<HandleParts, i32> {
    let mut raw = RawHandle {
        size: 128,
        kind: 0,
        bytes: [0; MAX_HANDLE],
    };
    let mut mount = 0_i32;
    // SAFETY: the handle says how much room it has, and both results live through the call.
    let ret = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            fd.as_raw_fd(),
            path.as_ptr(),
            &raw mut raw,
            &raw mut mount,
            flags,
        )
    };
    check(ret)?;
    let size = usize::try_from(raw.size).unwrap_or(0).min(MAX_HANDLE);
    Ok((raw.kind, SmallVec::from_slice(&raw.bytes[..size]), mount))
}

/// Opens the inode that `handle` names on the filesystem of `mount_fd` (any descriptor on it that is not `O_PATH`
/// on older kernels). Needs `CAP_DAC_READ_SEARCH`; ESTALE when the inode is gone.
pub fn open_by_handle(mount_fd: impl AsFd, handle: &Handle, flags: i32) -> Result<OwnedFd> {
    let mount_fd = mount_fd.as_fd();
    let flags = flags | libc::O_CLOEXEC;
    let fail = |errno| SysError::new("open_by_handle_at", errno).fd(mount_fd).open_flags(flags);
    if !handle.decodable || handle.bytes.len() > MAX_HANDLE {
        return Err(fail(libc::EOPNOTSUPP));
    }
    let mut raw = RawHandle {
        size: u32::try_from(handle.bytes.len()).unwrap_or(0),
        kind: handle.kind,
        bytes: [0; MAX_HANDLE],
    };
    raw.bytes[..handle.bytes.len()].copy_from_slice(&handle.bytes);
    retry(|| {
        // SAFETY: the handle says how many of its bytes count, and lives through the call.
        unsafe { libc::syscall(libc::SYS_open_by_handle_at, mount_fd.as_raw_fd(), &raw mut raw, flags) }
    })
    .map(own)
    .map_err(fail)
}

/// A second descriptor of the same open file description.
pub fn dup(fd: impl AsFd) -> Result<OwnedFd> {
    let fd = fd.as_fd();
    fd.try_clone_to_owned()
        .map_err(|error| SysError::from_io("dup", &error).fd(fd))
}
