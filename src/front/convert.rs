//! Between the words of the fs layer and those of fuser.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{Errno, FileAttr, FileType, FopenFlags, Generation, INodeNo, Request, TimeOrNow};

use crate::fs::{Attr, Caller, FsError, IoMode};
use crate::guard::Timestamp;
use crate::sys::TimeSet;

pub(super) fn caller(request: &Request) -> Caller {
    Caller {
        tid: request.pid(),
        uid: request.uid(),
        gid: request.gid(),
    }
}

pub(super) fn errno(error: &FsError) -> Errno {
    Errno::from_i32(error.errno())
}

pub(super) fn attr(attr: &Attr) -> FileAttr {
    let stat = &attr.stat;
    FileAttr {
        ino: INodeNo(attr.ino),
        size: stat.size,
        blocks: stat.blocks,
        atime: system_time(stat.atime),
        mtime: system_time(stat.mtime),
        ctime: system_time(stat.ctime),
        crtime: stat.btime.map_or(UNIX_EPOCH, system_time),
        kind: file_type(stat.mode),
        perm: u16::try_from(stat.mode & 0o7777).unwrap_or(0),
        nlink: stat.nlink,
        uid: stat.uid,
        gid: stat.gid,
        rdev: encode_device(stat.rdev_major, stat.rdev_minor),
        blksize: stat.blksize,
        flags: 0,
    }
}

pub(super) fn generation(attr: &Attr) -> Generation {
    Generation(u64::from(attr.generation))
}

/// The attributes of nothing.
pub(super) fn nothing() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

fn system_time(at: Timestamp) -> SystemTime {
    let nanos = Duration::from_nanos(u64::from(at.nsec));
    let whole = Duration::from_secs(at.sec.unsigned_abs());
    if at.sec >= 0 {
        UNIX_EPOCH + whole + nanos
    } else {
        UNIX_EPOCH - whole + nanos
    }
}

/// A time the caller sets. fuser 0.18 reads the nanoseconds of a time before 1970 with the wrong sign; this takes it
/// back to the seconds and nanoseconds that were sent.
pub(super) fn time_set(time: TimeOrNow) -> TimeSet {
    let at = match time {
        TimeOrNow::Now => return TimeSet::Now,
        TimeOrNow::SpecificTime(at) => at,
    };
    let (sec, nsec) = match at.duration_since(UNIX_EPOCH) {
        Ok(after) => (i64::try_from(after.as_secs()).unwrap_or(i64::MAX), after.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            (
                i64::try_from(before.as_secs()).map_or(i64::MIN, |sec| -sec),
                before.subsec_nanos(),
            )
        }
    };
    TimeSet::At(Timestamp { sec, nsec })
}

/// The kernel's 32-bit form of a device number.
fn encode_device(major: u32, minor: u32) -> u32 {
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

/// The C library's form of the kernel's 32-bit device number.
pub(super) fn decode_device(device: u32) -> u64 {
    let major = u64::from((device & 0x000f_ff00) >> 8);
    let minor = u64::from((device & 0xff) | ((device >> 12) & 0x000f_ff00));
    ((major & 0xffff_f000) << 32) | ((major & 0xfff) << 8) | ((minor & 0xffff_ff00) << 12) | (minor & 0xff)
}

fn file_type(mode: u32) -> FileType {
    directory_type(u8::try_from((mode >> 12) & 0xf).unwrap_or(0))
}

/// From `DT_*`, which are the kind bits of a mode.
pub(super) fn directory_type(kind: u8) -> FileType {
    match kind {
        1 => FileType::NamedPipe,
        2 => FileType::CharDevice,
        4 => FileType::Directory,
        6 => FileType::BlockDevice,
        10 => FileType::Symlink,
        12 => FileType::Socket,
        // 8, and 0 where the filesystem does not say: programs then ask by stat.
        _ => FileType::RegularFile,
    }
}

/// The flags of an open besides passthrough.
pub(super) fn open_flags(io: IoMode, no_flush: bool) -> FopenFlags {
    let mut flags = match io {
        IoMode::Passthrough | IoMode::Cached => FopenFlags::empty(),
        IoMode::PassthroughDirect | IoMode::Direct => FopenFlags::FOPEN_DIRECT_IO,
    };
    if no_flush {
        flags |= FopenFlags::FOPEN_NOFLUSH;
    }
    flags
}
