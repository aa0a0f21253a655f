//! An open file: what its handle remembers, who moves its data, and the change that may be under way through it.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::caller::{At, Who};
use super::errno::Result;
use super::events::Written;
use super::mount::Mount;
use super::open::{BY_ITSELF, EXEC};
use crate::guard::{Level, OwnerId, Process, Token};
use crate::store::{FileState, Mapper, Node, Slot, StoreError, libc_flags as c};
use crate::sync::Mutex;
use crate::sys;

/// Largest file that is copied before it may be mapped unseen.
const PRE_IMAGE_LIMIT: u64 = 64 << 20;

/// Who moves the data of an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoMode {
    /// The kernel, past the daemon.
    Passthrough,
    /// The daemon, request by request, on an inode that the kernel serves by itself for other handles.
    PassthroughDirect,
    /// The daemon, request by request; a shared mapping is refused by the kernel.
    Direct,
    /// The daemon, through the kernel's page cache.
    Cached,
}

impl IoMode {
    /// Stores through a mapping go past the daemon; in all other modes they come as writes, before the flush.
    fn passes_by(self) -> bool {
        matches!(self, Self::Passthrough | Self::PassthroughDirect)
    }
}

/// The answer to an open.
#[derive(Debug)]
pub struct Opened {
    /// The handle's number.
    pub handle: u64,
    /// Who moves the data.
    pub io: IoMode,
    /// Nothing will have to be flushed.
    pub no_flush: bool,
    /// The open file; what passthrough registers with the kernel.
    pub file: Arc<FileHandle>,
}

/// An open file.
#[derive(Debug)]
pub struct FileHandle {
    id: u64,
    node: Arc<Node>,
    /// Shared with the node while that waits for publication.
    file: Arc<OwnedFd>,
    flags: i32,
    owner: OwnerId,
    process: Option<Process>,
    uid: u32,
    gid: u32,
    at: At,
    level: Level,
    io: IoMode,
    /// No change through this handle needs a judgement of its own: it made or emptied the file for writing alone, nothing
    /// is judged here, or the mount only observes and has recorded one. Once granted it stays so, and counts among the
    /// writers.
    granted: AtomicBool,
    /// Its writes reach the file unjudged and unseen, until it is closed: others keep their hands off the content.
    unjudged: bool,
    /// Its owner has been told that the file was taken away while it was being written.
    told: AtomicBool,
    /// Counted among the file's writers.
    counted: AtomicBool,
    /// The version that the last edit through it made, of which what was displaced unseen is kept already.
    kept: Mutex<Option<Token>>,
    /// Its owner had the file current, and may map it for writing without the daemon's knowledge.
    maps: bool,
    /// What the file held when it was opened by an owner who had not seen it, and whom the kernel will not keep from
    /// mapping it.
    pre_image: Mutex<Option<Slot>>,
    /// What it has changed since that was last put on record; nothing where no record is kept.
    written: Mutex<Option<Box<Written>>>,
}

impl FileHandle {
    /// The handle's number.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The node it was opened on.
    #[must_use]
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// The descriptor.
    #[must_use]
    pub fn file(&self) -> &OwnedFd {
        &self.file
    }

    pub(super) fn owner(&self) -> OwnerId {
        self.owner
    }

    pub(super) fn process(&self) -> Option<Process> {
        self.process
    }

    pub(super) fn at(&self) -> &At {
        &self.at
    }

    pub(super) fn io(&self) -> IoMode {
        self.io
    }

    pub(super) fn level(&self) -> Level {
        self.level
    }

    pub(super) fn written(&self) -> &Mutex<Option<Box<Written>>> {
        &self.written
    }

    /// Whether it was opened for writing, too.
    #[must_use]
    pub fn writes(&self) -> bool {
        self.flags & c::O_ACCMODE != c::O_RDONLY
    }

    pub(super) fn executes(&self) -> bool {
        self.flags & EXEC != 0
    }

    pub(super) fn reads_and_writes(&self) -> bool {
        self.flags & c::O_ACCMODE == c::O_RDWR
    }

    /// Reads come to the daemon, and count when they do.
    pub(super) fn reads_count(&self) -> bool {
        self.reads_and_writes() || self.flags == BY_ITSELF
    }

    pub(super) fn is_granted(&self) -> bool {
        self.granted.load(Ordering::Acquire)
    }

    pub(super) fn is_unjudged(&self) -> bool {
        self.unjudged
    }

    /// Whether its owner is yet to be told that the file was taken away; asked once.
    pub(super) fn is_untold(&self) -> bool {
        !self.told.swap(true, Ordering::AcqRel)
    }

    /// Whether it can be mapped for writing past the daemon, whoever may do so.
    pub(super) fn may_be_mapped(&self) -> bool {
        self.io.passes_by() && self.reads_and_writes()
    }

    pub(super) fn may_have_mapped(&self) -> bool {
        self.maps
    }

    pub(super) fn take_pre_image(&self) -> Option<Slot> {
        self.pre_image.lock().take()
    }

    pub(super) fn put_pre_image(&self, slot: Slot) {
        *self.pre_image.lock() = Some(slot);
    }

    /// The handle is closed. Where its process has the file mapped still, it goes on as one who may store into it.
    pub(super) fn forget_mapper(&self, state: &mut FileState) {
        let Some(process) = self.process.filter(|_| self.maps) else {
            return;
        };
        let own = |mapper: &Mapper| (mapper.owner, mapper.pid, mapper.closed) == (self.owner, process.tgid, false);
        if let Some(mapper) = state.mappers.iter_mut().find(|mapper| own(mapper)) {
            mapper.closed = true;
        }
        let ino = self.node.key().ino;
        state.mappers.retain(|mapper| mapper.may_store(ino));
    }

    /// Whether its process has the file mapped for writing.
    pub(super) fn is_mapped(&self) -> bool {
        let ino = self.node.key().ino;
        self.process
            .is_some_and(|process| sys::maps_writable(process.tgid, ino))
    }

    /// Notes that no change through it needs a judgement any more.
    pub(super) fn grant(&self) {
        self.granted.store(true, Ordering::Release);
    }

    /// Whether what is there now was made by the last edit through the handle, and what that displaced was kept.
    pub(super) fn has_kept(&self, now: Token) -> bool {
        *self.kept.lock() == Some(now)
    }

    /// Notes the version made by an edit of what nobody is known to have a copy of, and which is kept.
    pub(super) fn note_kept(&self, made: Token) {
        *self.kept.lock() = Some(made);
    }

    /// Counts the handle among the file's writers, once.
    pub(super) fn count_writer(&self, state: &mut FileState) {
        if !self.counted.swap(true, Ordering::AcqRel) {
            state.add_writer(self.owner);
        }
    }

    pub(super) fn uncount_writer(&self, state: &mut FileState) -> bool {
        let counted = self.counted.swap(false, Ordering::AcqRel);
        if counted {
            state.remove_writer(self.owner);
        }
        counted
    }

    /// The caller a change through this handle is put down to: whoever opened it.
    pub(super) fn who(&self, tid: u32) -> Who {
        Who::of_handle(self.owner, self.process, (self.uid, self.gid), tid)
    }
}

/// What an open is going to be, before there is a handle for it.
pub(super) struct Opening<'a> {
    pub(super) who: &'a Who,
    pub(super) node: &'a Arc<Node>,
    pub(super) at: At,
    pub(super) level: Level,
    pub(super) flags: i32,
    pub(super) file: Arc<OwnedFd>,
    /// The owner has the file current.
    pub(super) current: bool,
    /// The file has just been made or emptied, for its content to be written through this handle.
    pub(super) replaces: bool,
}

impl Opening<'_> {
    /// Who made or emptied the file for writing alone goes on as begun. Who also reads it may keep it open for long and
    /// share it with others by locks of its own, so that each write is judged.
    fn goes_on_unjudged(&self) -> bool {
        self.replaces && self.flags & (c::O_ACCMODE | c::O_APPEND) == c::O_WRONLY
    }
}

impl Mount {
    /// Makes the handle of an open, and settles who moves its data.
    pub(super) fn hold(&self, opening: Opening<'_>, state: &mut FileState) -> Result<Opened> {
        let id = self.next_handle();
        let io = self.io_mode(&opening, id);
        let writes = opening.flags & c::O_ACCMODE != c::O_RDONLY;
        let guarded = opening.level != Level::Off;
        let unjudged = opening.goes_on_unjudged();
        let written = self.begin_written(&opening);
        let handle = Arc::new(FileHandle {
            id,
            node: Arc::clone(opening.node),
            file: opening.file,
            flags: opening.flags,
            owner: opening.who.owner,
            process: opening.who.process,
            uid: opening.who.uid,
            gid: opening.who.gid,
            at: At {
                locked: false,
                ..opening.at
            },
            level: opening.level,
            io,
            granted: AtomicBool::new(!guarded || unjudged || opening.replaces && !self.enforces()),
            unjudged: unjudged && guarded,
            told: AtomicBool::new(false),
            counted: AtomicBool::new(false),
            kept: Mutex::default(),
            maps: guarded && opening.current && io.passes_by() && opening.flags & c::O_ACCMODE == c::O_RDWR,
            pre_image: Mutex::new(None),
            written: Mutex::new(written),
        });
        state.handles += 1;
        if handle.executes() {
            state.executing += 1;
        }
        if handle.may_be_mapped() {
            state.mappable += 1;
            // What it was told before may be remembered for long.
            self.forget_attributes(opening.node);
        }
        self.guard().touched.note(handle.owner, &handle.at);
        if writes {
            state.begin_writing(self.id());
            self.attributes_changed(opening.node);
        }
        if writes && !guarded || handle.may_be_mapped() && !handle.maps {
            // What it changes is on no record.
            opening.node.note_touched_outside();
        }
        if let (true, Some(process)) = (handle.maps, handle.process) {
            state.mappers.push(Mapper {
                owner: handle.owner,
                pid: process.tgid,
                closed: false,
            });
        }
        let unseen = guarded && !opening.current && self.enforces();
        if unseen && io == IoMode::PassthroughDirect && handle.reads_and_writes() {
            self.keep_before_mapping(&handle);
        }
        if writes && guarded && handle.is_granted() {
            handle.count_writer(state);
        }
        if writes && guarded && opening.replaces {
            self.begin_changing(&handle, state);
        }
        self.files.lock(&id).insert(id, Arc::clone(&handle));
        Ok(Opened {
            handle: id,
            io,
            no_flush: !writes,
            file: handle,
        })
    }

    /// The kernel will let the file be mapped for writing by an owner who has not seen it, since another handle of the
    /// inode is in passthrough: what it holds is kept first, as far as that is affordable.
    fn keep_before_mapping(&self, handle: &FileHandle) {
        let kept = sys::stat(&*handle.file).map_err(StoreError::from).and_then(|stat| {
            if stat.size == 0 || stat.size > PRE_IMAGE_LIMIT {
                return Ok(None);
            }
            self.guard().store.attic().keep_copy(&handle.file, &stat, false)
        });
        match kept {
            Ok(slot) => *handle.pre_image.lock() = slot,
            Err(error) => log::warn!("content that may be mapped unseen could not be kept: {error}"),
        }
    }

    /// One family of modes per inode: plain direct I/O only while no handle of the inode is in passthrough.
    fn io_mode(&self, opening: &Opening<'_>, handle: u64) -> IoMode {
        let id = opening.node.id();
        let accmode = opening.flags & c::O_ACCMODE;
        let writes = accmode != c::O_RDONLY;
        let goes_on = opening.goes_on_unjudged() || opening.replaces && !self.enforces();
        let edits = writes && !goes_on && opening.level != Level::Off;
        // A mount that only observes must not keep programs from mapping what they may map.
        let forbids_mapping = edits && opening.level == Level::Guard && !opening.current && self.enforces();
        if !self.is_passthrough() {
            return if forbids_mapping {
                IoMode::Direct
            } else {
                IoMode::Cached
            };
        }
        if forbids_mapping && accmode == c::O_RDWR && self.begin_direct(id, handle) {
            return IoMode::Direct;
        }
        if !self.begin_passthrough(id) {
            return IoMode::Direct;
        }
        // The kernel's own appending on a backing file would outlive the flag being cleared by fcntl.
        let appends = writes && opening.flags & c::O_APPEND != 0;
        let by_itself = opening.flags == BY_ITSELF;
        if by_itself || edits || appends || writes && may_clear_set_id(opening) {
            IoMode::PassthroughDirect
        } else {
            IoMode::Passthrough
        }
    }

    /// A descriptor of an open file that neither reads nor writes it; none of a file that has no name yet, since nobody past the
    /// mount could mind one that does.
    pub fn path_of_open(&self, open: &FileHandle) -> Option<Arc<OwnedFd>> {
        if open.node.staged_file().is_some() {
            return None;
        }
        self.guard().store.fd(&open.node).ok()
    }

    /// The kernel would not register the file for passthrough: its data goes through the daemon from now on, unless others
    /// have it open in passthrough; says which. The handle is counted until it is closed.
    pub fn passthrough_failed(&self, opened: &Opened) -> bool {
        let alone = self.passthrough_count(opened.file.node.id()) <= 1;
        if alone {
            self.set_passthrough(false);
        }
        alone
    }
}

/// Whether a write clears the set-id bits: the kernel moves data with the daemon's rights, which leave them.
fn may_clear_set_id(opening: &Opening<'_>) -> bool {
    opening.who.uid != 0 && sys::stat(&*opening.file).is_ok_and(|stat| stat.mode & (c::S_ISUID | c::S_ISGID) != 0)
}
