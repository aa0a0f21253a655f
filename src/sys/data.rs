//! Content: reading, writing, room, syncing, leases and locks on an open descriptor.

#![expect(unsafe_code, reason = "the data calls")]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use super::call::{check, count, offset, retry};
use super::error::{Result, SysError};

/// Reads at `at`; fewer bytes than asked for, or none, at the end.
pub fn pread(fd: impl AsFd, buf: &mut [u8], at: u64) -> Result<usize> {
    let fd = fd.as_fd();
    offset(at)
        .and_then(|at| {
            // SAFETY: the buffer is valid for its length and ours alone.
            retry(|| unsafe { libc::pread(fd.as_raw_fd(), buf.as_mut_ptr().cast(), buf.len(), at) })
        })
        .map(count)
        .map_err(|errno| SysError::new("pread", errno).fd(fd).number(buf.len()).number(at))
}

/// Writes at `at`; may write less than given. Never on a descriptor opened with `O_APPEND`: Linux appends there.
pub fn pwrite(fd: impl AsFd, buf: &[u8], at: u64) -> Result<usize> {
    let fd = fd.as_fd();
    offset(at)
        .and_then(|at| {
            // SAFETY: the buffer is valid for its length.
            retry(|| unsafe { libc::pwrite(fd.as_raw_fd(), buf.as_ptr().cast(), buf.len(), at) })
        })
        .map(count)
        .map_err(|errno| SysError::new("pwrite", errno).fd(fd).number(buf.len()).number(at))
}

/// Appends in one step with finding the end, on a descriptor without `O_APPEND`; may write less than given.
pub fn pwrite_append(fd: impl AsFd, buf: &[u8]) -> Result<usize> {
    let fd = fd.as_fd();
    let part = libc::iovec {
        iov_base: buf.as_ptr().cast_mut().cast(),
        iov_len: buf.len(),
    };
    // SAFETY: one part is given and it spans a buffer that the kernel only reads.
    retry(|| unsafe { libc::pwritev2(fd.as_raw_fd(), &raw const part, 1, 0, libc::RWF_APPEND) })
        .map(count)
        .map_err(|errno| {
            SysError::new("pwritev2", errno)
                .fd(fd)
                .number(buf.len())
                .name("RWF_APPEND")
        })
}

/// Sets the size of a file open for writing.
pub fn ftruncate(fd: impl AsFd, size: u64) -> Result<()> {
    let fd = fd.as_fd();
    offset(size)
        .and_then(|size| {
            // SAFETY: integers only.
            retry(|| unsafe { libc::ftruncate(fd.as_raw_fd(), size) })
        })
        .map(drop)
        .map_err(|errno| SysError::new("ftruncate", errno).fd(fd).number(size))
}

/// Allocates, punches or moves; `mode` is of `FALLOC_FL_*`.
pub fn fallocate(fd: impl AsFd, mode: i32, at: u64, len: u64) -> Result<()> {
    let fd = fd.as_fd();
    offset(at)
        .and_then(|at| Ok((at, offset(len)?)))
        // SAFETY: integers only.
        .and_then(|(at, len)| retry(|| unsafe { libc::fallocate(fd.as_raw_fd(), mode, at, len) }))
        .map(drop)
        .map_err(|errno| {
            SysError::new("fallocate", errno)
                .fd(fd)
                .hex(mode)
                .number(at)
                .number(len)
        })
}

/// Copies within the kernel; may copy less than asked for; 0 at the end of the source.
pub fn copy_file_range(
    from: impl AsFd,
    from_at: u64,
    to: impl AsFd,
    to_at: u64,
    len: usize,
    flags: u32,
) -> Result<usize> {
    let (from, to) = (from.as_fd(), to.as_fd());
    let fail = |errno| {
        let error = SysError::new("copy_file_range", errno).fd(from).number(from_at);
        error.fd(to).number(to_at).number(len)
    };
    let mut from_pos = offset(from_at).map_err(fail)?;
    let mut to_pos = offset(to_at).map_err(fail)?;
    retry(|| {
        // SAFETY: both positions live through the call.
        unsafe {
            libc::copy_file_range(
                from.as_raw_fd(),
                &raw mut from_pos,
                to.as_raw_fd(),
                &raw mut to_pos,
                len,
                flags,
            )
        }
    })
    .map(count)
    .map_err(fail)
}

/// Shares the whole content of one file with another (`FICLONE`), where the filesystem can. EOPNOTSUPP, EINVAL or EXDEV
/// where it cannot.
pub fn clone_content(from: impl AsFd, to: impl AsFd) -> Result<()> {
    let (from, to) = (from.as_fd(), to.as_fd());
    // SAFETY: two descriptors, no memory.
    check(unsafe { libc::ioctl(to.as_raw_fd(), libc::FICLONE, from.as_raw_fd()) })
        .map(drop)
        .map_err(|errno| SysError::new("ioctl(FICLONE)", errno).fd(to).fd(from))
}

/// lseek: with `SEEK_DATA` or `SEEK_HOLE` it finds, and says where; ENXIO past the end.
pub fn seek(fd: impl AsFd, at: i64, whence: i32) -> Result<i64> {
    let fd = fd.as_fd();
    // SAFETY: integers only.
    check(unsafe { libc::lseek(fd.as_raw_fd(), at, whence) })
        .map_err(|errno| SysError::new("lseek", errno).fd(fd).number(at).number(whence))
}

/// Syncs data and metadata.
pub fn fsync(fd: impl AsFd) -> Result<()> {
    let fd = fd.as_fd();
    // SAFETY: integers only.
    retry(|| unsafe { libc::fsync(fd.as_raw_fd()) })
        .map(drop)
        .map_err(|errno| SysError::new("fsync", errno).fd(fd))
}

/// Syncs data and what is needed to read it back.
pub fn fdatasync(fd: impl AsFd) -> Result<()> {
    let fd = fd.as_fd();
    // SAFETY: integers only.
    retry(|| unsafe { libc::fdatasync(fd.as_raw_fd()) })
        .map(drop)
        .map_err(|errno| SysError::new("fdatasync", errno).fd(fd))
}

/// Begins to write all changed pages of the file back, without waiting for that to end: a store through a mapping into a
/// page that is being written back, or has been, moves the file's times again.
pub fn start_writeback(fd: impl AsFd) -> Result<()> {
    // A page that was changed again while it is on its way would be passed over: hence the wait for what is on its way.
    const FLAGS: libc::c_uint = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE;
    let fd = fd.as_fd();
    // SAFETY: integers only.
    retry(|| unsafe { libc::sync_file_range(fd.as_raw_fd(), 0, 0, FLAGS) })
        .map(drop)
        .map_err(|errno| SysError::new("sync_file_range", errno).fd(fd))
}

/// Syncs the whole filesystem of `fd` (which must not be `O_PATH`).
pub fn syncfs(fd: impl AsFd) -> Result<()> {
    let fd = fd.as_fd();
    // SAFETY: integers only.
    retry(|| unsafe { libc::syncfs(fd.as_raw_fd()) })
        .map(drop)
        .map_err(|errno| SysError::new("syncfs", errno).fd(fd))
}

/// What statfs says of a filesystem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statfs {
    /// The filesystem's magic number.
    pub kind: i64,
    /// `f_bsize`.
    pub bsize: u32,
    /// `f_frsize`.
    pub frsize: u32,
    /// All blocks.
    pub blocks: u64,
    /// Free blocks.
    pub bfree: u64,
    /// Free blocks for ordinary users.
    pub bavail: u64,
    /// All inodes.
    pub files: u64,
    /// Free inodes.
    pub ffree: u64,
    /// The longest name.
    pub namelen: u32,
    /// `ST_*` mount flags.
    pub flags: u64,
}

impl Statfs {
    /// The filesystem is mounted read-only.
    #[must_use]
    pub const fn read_only(&self) -> bool {
        self.flags & libc::ST_RDONLY != 0
    }
}

/// `struct statfs` of 64-bit Linux; libc hides the flags.
#[repr(C)]
#[derive(Default)]
struct RawStatfs {
    kind: i64,
    bsize: i64,
    blocks: u64,
    bfree: u64,
    bavail: u64,
    files: u64,
    ffree: u64,
    fsid: [i32; 2],
    namelen: i64,
    frsize: i64,
    flags: u64,
    spare: [u64; 4],
}

/// Of the filesystem of `fd`, which may be `O_PATH`.
pub fn statfs(fd: impl AsFd) -> Result<Statfs> {
    let fd = fd.as_fd();
    let mut raw = RawStatfs::default();
    // SAFETY: the result lives through the call and has the size of the kernel's record.
    retry(|| unsafe { libc::syscall(libc::SYS_fstatfs, fd.as_raw_fd(), &raw mut raw) })
        .map_err(|errno| SysError::new("fstatfs", errno).fd(fd))?;
    let narrow = |value: i64| u32::try_from(value).unwrap_or(u32::MAX);
    Ok(Statfs {
        kind: raw.kind,
        bsize: narrow(raw.bsize),
        frsize: narrow(raw.frsize),
        blocks: raw.blocks,
        bfree: raw.bfree,
        bavail: raw.bavail,
        files: raw.files,
        ffree: raw.ffree,
        namelen: narrow(raw.namelen),
        flags: raw.flags,
    })
}

/// A write lease: held only while nobody else has the file open; whoever opens it waits until this is dropped (or
/// until the kernel's lease-break time is over).
#[derive(Debug)]
pub struct Lease<'fd> {
    fd: BorrowedFd<'fd>,
}

impl Lease<'_> {
    /// Somebody waits for this lease to be given up.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        // SAFETY: F_GETLEASE takes no argument. A lease being broken reads as what it shall become.
        let lease = unsafe { libc::fcntl(self.fd.as_raw_fd(), libc::F_GETLEASE) };
        lease != libc::F_WRLCK
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        // SAFETY: F_SETLEASE takes an integer. Failure means that the kernel has taken the lease back already.
        unsafe { libc::fcntl(self.fd.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK) };
    }
}

/// Takes a write lease: EAGAIN when another descriptor of the file is open anywhere (`O_PATH` does not count), EACCES
/// when the file is neither ours nor have we `CAP_LEASE`. The kernel tells of a break by SIGIO: see `ignore_signals`.
pub fn write_lease<'fd, F: AsFd + ?Sized>(fd: &'fd F) -> Result<Lease<'fd>> {
    let fd = fd.as_fd();
    // SAFETY: F_SETLEASE takes an integer.
    retry(|| unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) })
        .map(|_| Lease { fd })
        .map_err(|errno| SysError::new("fcntl", errno).fd(fd).name("F_SETLEASE"))
}

/// Takes an exclusive flock without waiting: EWOULDBLOCK when another open file description holds it. Held until the
/// description is closed.
pub fn lock_file(fd: impl AsFd) -> Result<()> {
    let fd = fd.as_fd();
    // SAFETY: integers only.
    retry(|| unsafe { libc::flock(fd.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) })
        .map(drop)
        .map_err(|errno| SysError::new("flock", errno).fd(fd))
}
