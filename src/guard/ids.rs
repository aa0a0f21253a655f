//! Identities and versions.

use std::ffi::OsStr;
use std::sync::Arc;

/// Who holds observations. The number means nothing outside one guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnerId(pub u32);

impl OwnerId {
    /// A caller who cannot be told apart: holds no observation, ever.
    pub const NOBODY: Self = Self(0);
}

/// A thread group, told apart from a later one of the same number by its start time (clock ticks since boot).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Process {
    /// The thread group id.
    pub tgid: u32,
    /// Field 22 of `/proc/TGID/stat`.
    pub start: u64,
}

/// What a name leads to: device, inode number, and what tells a reused inode number apart (the generation in the
/// file handle, or the birth time).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileKey {
    /// `st_dev`.
    pub dev: u64,
    /// `st_ino`.
    pub ino: u64,
    /// The inode's generation or its birth time in nanoseconds.
    pub generation: u64,
}

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EntryKey {
    /// The directory.
    pub dir: FileKey,
    /// The name, one component.
    pub name: Arc<OsStr>,
}

/// Seconds and nanoseconds since the epoch, as in `struct timespec`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Timestamp {
    /// Seconds, negative before 1970.
    pub sec: i64,
    /// Nanoseconds, 0 to 999,999,999.
    pub nsec: u32,
}

/// Evidence for a version of a file's content: differs when the content may have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token {
    /// `st_size`.
    pub size: u64,
    /// `st_mtim`.
    pub mtime: Timestamp,
    /// `st_ctim`.
    pub ctime: Timestamp,
}
