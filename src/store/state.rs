//! What is known of a file that is open or waits for publication.
//!
//! Owns the counts of who may change it, and how. Guarded by the lock of its node's content.

use std::ffi::OsStr;
use std::ops::{Deref, DerefMut};
use std::os::fd::OwnedFd;
use std::sync::{Arc, LazyLock};

use smallvec::SmallVec;

use super::node::Node;
use crate::guard::{OwnerId, Process, Timestamp};
use crate::sys;

/// A file that exists through the mount and has no name in the backing tree yet.
#[derive(Debug)]
pub struct Staged {
    /// The directory it will be published in.
    pub dir: Arc<Node>,
    /// The name it will be published under.
    pub name: Arc<OsStr>,
    /// The unnamed file.
    pub file: Arc<OwnedFd>,
    /// Who made it.
    pub owner: OwnerId,
    /// Sync data before, and the directory after, publication.
    pub durable: bool,
    /// When it was made, on the guard's clock.
    pub since: Timestamp,
}

/// A change under way through a handle that made or emptied the file.
#[derive(Debug, Clone, Copy)]
pub struct Changing {
    /// By whom.
    pub owner: OwnerId,
    /// By which process, where that is known.
    pub process: Option<Process>,
    /// Through which handle.
    pub handle: (u64, u64),
    /// Since when.
    pub since: Timestamp,
    /// When it was last flushed or synced with data in the file.
    pub settled: Option<Timestamp>,
    /// When it was last flushed, as at every close.
    pub flushed: Option<Timestamp>,
    /// Its writes are not judged one by one.
    pub unjudged: bool,
}

/// A process that has the file open for reading and writing, or had it and has it mapped still: a mapping outlives its handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapper {
    /// Whose it is.
    pub owner: OwnerId,
    /// Its number.
    pub pid: u32,
    /// The handle is closed.
    pub closed: bool,
}

impl Mapper {
    /// Whether it may store into the file of this inode number now.
    #[must_use]
    pub fn may_store(&self, ino: u64) -> bool {
        !self.closed || sys::maps_writable(self.pid, ino)
    }
}

/// The file's last name was taken away while somebody else was writing the file.
#[derive(Debug, Clone)]
pub struct TakenAway {
    /// By whom.
    pub owner: OwnerId,
    /// By which operation.
    pub operation: &'static str,
    /// Its name in the attic, if it is kept.
    pub kept: Option<String>,
    /// When.
    pub at: Timestamp,
    /// What it held then.
    pub size: u64,
    /// When that was last modified.
    pub mtime: Timestamp,
}

/// What the file lock guards.
#[derive(Debug, Default)]
pub struct FileState {
    /// The publication was lost to somebody else; the bytes are in the attic.
    pub lost: Option<super::Winner>,
    /// The file's last name was displaced into the attic: that link is not part of the tree.
    pub in_attic: bool,
    /// The name was published after the last sync of its directory.
    pub name_unsynced: bool,
    /// Apart, since few of the known files are open.
    use_of: Option<Box<FileUse>>,
}

/// What is known of a file as long as it is open or waits for publication.
#[derive(Debug, Default)]
pub struct FileUse {
    /// Present while the file waits for publication.
    pub staged: Option<Box<Staged>>,
    /// Owners that may change the file without a request to the daemon, with the number of their handles.
    pub writers: SmallVec<[(OwnerId, u32); 1]>,
    /// Handles that have made or emptied the file, until they are closed; where each write is judged, until they are
    /// flushed with data.
    pub changing: Vec<Changing>,
    /// It has lost its name while it was empty, and nothing of it is kept yet; with what the backing filesystem said.
    pub lost_empty: Option<(Box<Staged>, Option<i32>)>,
    /// It has lost its last name to another owner than those who write it.
    pub taken_away: Option<Box<TakenAway>>,
    /// Who may have mapped the file: stores through a mapping bring no request.
    pub mappers: SmallVec<[Mapper; 1]>,
    /// Handles by which it is being executed.
    pub executing: u32,
    /// Handles through which the file may be mapped for writing past the daemon: its times move unseen meanwhile.
    pub mappable: u32,
    /// Handles open on the file, on any mount.
    pub handles: u32,
    /// Mounts with the file open for writing, and the number of such handles.
    pub writing: SmallVec<[(u64, u32); 1]>,
}

/// That of a file that is not in use.
static NO_USE: LazyLock<FileUse> = LazyLock::new(FileUse::default);

impl Deref for FileState {
    type Target = FileUse;

    fn deref(&self) -> &FileUse {
        self.use_of.as_deref().unwrap_or(&NO_USE)
    }
}

impl DerefMut for FileState {
    fn deref_mut(&mut self) -> &mut FileUse {
        self.use_of.get_or_insert_default()
    }
}

impl FileUse {
    fn is_over(&self) -> bool {
        self.handles == 0
            && self.staged.is_none()
            && self.lost_empty.is_none()
            && self.taken_away.is_none()
            && self.changing.is_empty()
            && self.writers.is_empty()
            && self.mappers.is_empty()
            && self.writing.is_empty()
            && self.executing == 0
            && self.mappable == 0
    }
}

impl FileState {
    /// Lets go of what is known of a file that is in use no more.
    pub fn tidy(&mut self) {
        if self.use_of.as_ref().is_some_and(|file| file.is_over()) {
            self.use_of = None;
        }
    }

    /// Notes a handle open for writing.
    pub fn add_writer(&mut self, owner: OwnerId) {
        match self.writers.iter_mut().find(|(who, _)| *who == owner) {
            Some((_, count)) => *count += 1,
            None => self.writers.push((owner, 1)),
        }
    }

    /// Notes a handle by which a mount may change the file.
    pub fn begin_writing(&mut self, mount: u64) {
        match self.writing.iter_mut().find(|(which, _)| *which == mount) {
            Some((_, count)) => *count += 1,
            None => self.writing.push((mount, 1)),
        }
    }

    /// Notes that such a handle is gone.
    pub fn end_writing(&mut self, mount: u64) {
        let file = &mut **self;
        if let Some(index) = file.writing.iter().position(|(which, _)| *which == mount) {
            file.writing[index].1 -= 1;
            if file.writing[index].1 == 0 {
                file.writing.swap_remove(index);
            }
        }
    }

    /// Notes that a handle open for writing is gone.
    pub fn remove_writer(&mut self, owner: OwnerId) {
        let file = &mut **self;
        if let Some(index) = file.writers.iter().position(|(who, _)| *who == owner) {
            file.writers[index].1 -= 1;
            if file.writers[index].1 == 0 {
                file.writers.swap_remove(index);
            }
        }
    }
}
