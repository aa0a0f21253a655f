//! A known file of the backing tree.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use super::state::FileState;
use super::table::Table;
use crate::guard::{FileKey, Level, Timestamp};
use crate::sync::Mutex;
use crate::sys::{Handle, Stat};

/// What a node is; never changes during the life of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A regular file.
    Regular,
    /// A symbolic link.
    Symlink,
    /// A fifo, socket or device.
    Special,
}

impl Kind {
    /// The kind that `stat` tells of.
    #[must_use]
    pub fn of(stat: &Stat) -> Self {
        if stat.is_file() {
            Self::Regular
        } else if stat.is_dir() {
            Self::Directory
        } else if stat.is_symlink() {
            Self::Symlink
        } else {
            Self::Special
        }
    }
}

/// Where a node was last found.
#[derive(Debug, Clone)]
pub struct Place {
    /// The directory; none for the root.
    pub parent: Option<Arc<Node>>,
    /// The name in it.
    pub name: Arc<OsStr>,
}

/// What the directory lock guards.
#[derive(Debug, Default)]
pub struct DirState {
    /// Names that exist through the mount and are not yet published in the backing directory.
    pub staged: BTreeMap<Arc<OsStr>, Arc<Node>>,
}

/// The values of `Node::held`, in the order of strictness.
const NOT_HELD: u8 = 0;
const HELD_AT_KEEP: u8 = 1;
const HELD_AT_GUARD: u8 = 2;

/// A known file, directory or other object of the tree: one per file, however many names and mounts lead to it.
#[derive(Debug)]
pub struct Node {
    id: u64,
    key: FileKey,
    kind: Kind,
    handle: Option<Handle>,
    place: Mutex<Place>,
    fd: Mutex<Option<Arc<OwnedFd>>>,
    pins: AtomicU32,
    touched: AtomicBool,
    displaced: AtomicBool,
    /// A place for the layer above to cache what it derived from the node's place.
    pub(crate) level: AtomicU64,
    /// It has no capability (`security.capability`), as long as nobody is seen to set one.
    no_capability: AtomicBool,
    /// Guarded so closely under whatever name: its content came to one that is guarded less without having been seen.
    held: AtomicU8,
    /// Somebody outside the mounts has changed the content or attributes since this was last cleared; only where they are
    /// watched.
    touched_outside: AtomicBool,
    /// Of a directory.
    dir: Option<Box<DirPart>>,
    content: Mutex<FileState>,
    table: Weak<Table>,
}

/// What only directories have.
#[derive(Debug, Default)]
struct DirPart {
    /// Whether it tells upper from lower case; not asked yet, no, yes.
    case: AtomicU8,
    staged_names: AtomicU32,
    /// The latest time a name was staged: shown as the directory's time of change until the backing one is later.
    staged_at: Mutex<Timestamp>,
    /// Which in the order of watched directories it is, or 0.
    watched: AtomicU64,
    names: Mutex<DirState>,
}

/// That of what is no directory, in which there are no names.
static NO_DIR: LazyLock<DirPart> = LazyLock::new(DirPart::default);

impl Node {
    pub(super) fn new(
        id: u64,
        key: FileKey,
        kind: Kind,
        handle: Option<Handle>,
        place: Place,
        table: Weak<Table>,
    ) -> Self {
        Self {
            id,
            key,
            kind,
            handle,
            place: Mutex::new(place),
            fd: Mutex::new(None),
            pins: AtomicU32::new(0),
            touched: AtomicBool::new(false),
            displaced: AtomicBool::new(false),
            level: AtomicU64::new(0),
            no_capability: AtomicBool::new(false),
            held: AtomicU8::new(NOT_HELD),
            touched_outside: AtomicBool::new(false),
            dir: (kind == Kind::Directory).then(Box::default),
            content: Mutex::default(),
            table,
        }
    }

    fn as_dir(&self) -> &DirPart {
        self.dir.as_deref().unwrap_or(&NO_DIR)
    }

    /// The FUSE node id: the inode number where that is free.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The identity of the file.
    #[must_use]
    pub fn key(&self) -> FileKey {
        self.key
    }

    /// What it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    pub(super) fn handle(&self) -> Option<&Handle> {
        self.handle.as_ref()
    }

    /// The directory is watched by itself from now on, as the one of this number.
    pub fn note_watched(&self, number: u64) {
        self.as_dir().watched.store(number, Ordering::Release);
    }

    /// Its number among the directories that are watched one by one.
    #[must_use]
    pub fn watched(&self) -> Option<u64> {
        let number = self.dir.as_ref()?.watched.load(Ordering::Acquire);
        (number > 0).then_some(number)
    }

    /// Somebody outside has taken it from a name: it may not be where it was last found.
    pub fn doubt_place(&self) {
        self.displaced.store(true, Ordering::Release);
    }

    /// The directory it was last found in, as far as nobody is known to have moved it since.
    #[must_use]
    pub fn certain_parent(&self) -> Option<Arc<Self>> {
        let place = self.place.lock();
        let parent = place.parent.clone();
        drop(place);
        parent.filter(|_| !self.displaced.load(Ordering::Acquire))
    }

    /// Where it was last found.
    #[must_use]
    pub fn place(&self) -> Place {
        self.place.lock().clone()
    }

    /// Whether it was last found by this name in this directory.
    #[must_use]
    pub fn is_at(&self, dir: &Self, name: &OsStr) -> bool {
        let place = self.place.lock();
        &*place.name == name && place.parent.as_ref().is_some_and(|parent| parent.id == dir.id)
    }

    /// The name, if it was last found by this one in this directory.
    #[must_use]
    pub fn name_at(&self, dir: &Self, name: &OsStr) -> Option<Arc<OsStr>> {
        let place = self.place.lock();
        let is_at = &*place.name == name && place.parent.as_ref().is_some_and(|parent| parent.id == dir.id);
        let name = is_at.then(|| Arc::clone(&place.name));
        drop(place);
        name
    }

    /// Notes where it was found.
    pub(super) fn found_at(&self, dir: &Arc<Self>, name: &OsStr) {
        self.displaced.store(false, Ordering::Release);
        if !self.is_at(dir, name) && self.id != super::ROOT_ID {
            self.set_place(Place {
                parent: Some(Arc::clone(dir)),
                name: name.into(),
            });
        }
    }

    /// Notes where it is now.
    pub fn set_place(&self, place: Place) {
        self.displaced.store(false, Ordering::Release);
        let old = std::mem::replace(&mut *self.place.lock(), place);
        // Dropping the last reference to the old parent takes table locks: not under this one.
        drop(old);
    }

    /// Whether names in the directory that differ by case are two names, found out once by `ask`.
    pub(super) fn tells_case(&self, ask: impl FnOnce() -> bool) -> bool {
        const NO: u8 = 1;
        const YES: u8 = 2;
        match self.as_dir().case.load(Ordering::Relaxed) {
            NO => false,
            YES => true,
            _ => {
                let told = ask();
                self.as_dir().case.store(if told { YES } else { NO }, Ordering::Relaxed);
                told
            }
        }
    }

    /// Notes that the file has no capability, or may have one.
    pub fn note_no_capability(&self, none: bool) {
        self.no_capability.store(none, Ordering::Release);
    }

    /// Whether the file was found to have no capability, and nobody was seen to set one since.
    #[must_use]
    pub fn has_no_capability(&self) -> bool {
        self.no_capability.load(Ordering::Acquire)
    }

    /// Guards the file at least so closely under every name from now on.
    pub fn hold(&self, level: Level) {
        let value = match level {
            Level::Guard => HELD_AT_GUARD,
            Level::Keep => HELD_AT_KEEP,
            Level::Off => NOT_HELD,
        };
        self.held.fetch_max(value, Ordering::AcqRel);
    }

    /// Guards the file by its name again.
    pub fn let_go(&self) {
        self.held.store(NOT_HELD, Ordering::Release);
    }

    /// How closely the file is guarded under every name at least.
    #[must_use]
    pub fn held(&self) -> Option<Level> {
        match self.held.load(Ordering::Acquire) {
            NOT_HELD => None,
            HELD_AT_KEEP => Some(Level::Keep),
            _ => Some(Level::Guard),
        }
    }

    /// Notes a change by somebody outside the mounts.
    pub fn note_touched_outside(&self) {
        self.touched_outside.store(true, Ordering::Release);
    }

    /// From now on it is noted anew whether somebody outside changes the file.
    pub fn clear_touched_outside(&self) {
        self.touched_outside.store(false, Ordering::Release);
    }

    /// Whether somebody outside has changed the file since that was cleared.
    #[must_use]
    pub fn is_touched_outside(&self) -> bool {
        self.touched_outside.load(Ordering::Acquire)
    }

    /// Whether the file is guarded under every name.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.held().is_some()
    }

    /// The lock of a directory's names, held from judgement to change of any name in it.
    #[must_use]
    pub fn names(&self) -> &Mutex<DirState> {
        &self.as_dir().names
    }

    /// The lock of a file's content, held from judgement to change of it.
    #[must_use]
    pub fn content(&self) -> &Mutex<FileState> {
        &self.content
    }

    /// The unnamed file, while this one waits for publication.
    #[must_use]
    pub fn staged_file(&self) -> Option<Arc<OwnedFd>> {
        self.content
            .lock()
            .staged
            .as_ref()
            .map(|staged| Arc::clone(&staged.file))
    }

    /// Whether any name in this directory waits for publication; cheap, without the lock.
    #[must_use]
    pub fn has_staged(&self) -> bool {
        self.as_dir().staged_names.load(Ordering::Acquire) > 0
    }

    /// The latest time a name was staged in this directory.
    #[must_use]
    pub fn staged_at(&self) -> Timestamp {
        *self.as_dir().staged_at.lock()
    }

    /// Puts a staged name into the directory.
    pub fn stage(&self, names: &mut DirState, name: &OsStr, node: &Arc<Self>, at: Timestamp) {
        names.staged.insert(name.into(), Arc::clone(node));
        {
            let mut latest = self.as_dir().staged_at.lock();
            *latest = latest.max(at);
        }
        self.as_dir().staged_names.fetch_add(1, Ordering::Release);
    }

    /// Takes a staged name out of the directory.
    pub fn unstage(&self, names: &mut DirState, name: &OsStr) -> Option<Arc<Self>> {
        let node = names.staged.remove(name)?;
        if self.as_dir().staged_names.fetch_sub(1, Ordering::Release) == 1 {
            self.show_own_times();
        }
        Some(node)
    }

    /// From now on the directory's times are those it has: it has got all its names, or its times have been set.
    pub fn show_own_times(&self) {
        *self.as_dir().staged_at.lock() = Timestamp::default();
    }

    pub(super) fn cached_fd(&self) -> Option<Arc<OwnedFd>> {
        let fd = self.fd.lock().clone();
        if fd.is_some() {
            self.touched.store(true, Ordering::Relaxed);
        }
        fd
    }

    /// Stores a descriptor; says whether there was none before.
    pub(super) fn cache_fd(&self, fd: &Arc<OwnedFd>) -> bool {
        let mut slot = self.fd.lock();
        let fresh = slot.is_none();
        if fresh {
            *slot = Some(Arc::clone(fd));
        }
        fresh
    }

    /// Drops the descriptor unless it is pinned or was used since the last call; says whether it was dropped.
    pub(super) fn evict_fd(&self) -> bool {
        if self.touched.swap(false, Ordering::Relaxed) || self.pins.load(Ordering::Acquire) > 0 {
            return false;
        }
        let fd = self.fd.lock().take();
        drop(fd);
        true
    }

    pub(super) fn pin(&self, fd: Arc<OwnedFd>) {
        self.pins.fetch_add(1, Ordering::AcqRel);
        let mut slot = self.fd.lock();
        if slot.is_none() {
            *slot = Some(fd);
        }
    }

    /// Undoes the pin of a removal of the last name that did not happen.
    pub fn unpin_last(&self, links: u32) {
        if links <= 1 {
            self.unpin();
        }
    }

    /// Lets go of the descriptor: the next one is opened when it is needed.
    pub(super) fn drop_fd(&self) {
        let fd = self.fd.lock().take();
        drop(fd);
    }

    /// Undoes one pin.
    pub fn unpin(&self) {
        self.pins.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(table) = self.table.upgrade() {
            table.forget(self.key);
        }
        // Not by recursion: a chain of directories may be longer than a stack.
        let mut above = self.place.get_mut().parent.take();
        while let Some(mut node) = above.and_then(Arc::into_inner) {
            above = node.place.get_mut().parent.take();
        }
    }
}
