//! Opening a file: what is observed, what is judged at once, and who moves the data afterwards.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::caller::{Arrival, At, Caller, Who};
use super::errno::{FsError, Result};
use super::events::Written;
use super::judge::{Subject, Verdict, change_under_way};
use super::ledger::Present;
use super::mount::Mount;
use crate::audit::Change;
use crate::clock;
use crate::guard::{Author, Intent, Level, OwnerId, Process, Produced, Token};
use crate::store::{Changing, FileState, Kind, Node, Slot, StoreError, libc_flags as c};
use crate::sync::Mutex;
use crate::sys::{self, Stat};

/// The kernel's own flag for an open by `execve`.
const EXEC: i32 = 0x20;
/// Largest file that is copied before it may be mapped unseen.
const PRE_IMAGE_LIMIT: u64 = 64 << 20;
/// Times a truncation is judged again when the file changes between judgement and truncation.
const TRIES: usize = 3;

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
    file: OwnedFd,
    flags: i32,
    owner: OwnerId,
    process: Option<Process>,
    uid: u32,
    gid: u32,
    at: At,
    level: Level,
    io: IoMode,
    /// No change through this handle needs a judgement of its own: it made or emptied the file, its writes bring no
    /// request, or the mount only observes and has recorded one. Once granted it stays so, and counts among the writers.
    granted: AtomicBool,
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

    pub(super) fn writes(&self) -> bool {
        self.flags & c::O_ACCMODE != c::O_RDONLY
    }

    pub(super) fn reads_and_writes(&self) -> bool {
        self.flags & c::O_ACCMODE == c::O_RDWR
    }

    pub(super) fn is_granted(&self) -> bool {
        self.granted.load(Ordering::Acquire)
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

    pub(super) fn forget_mapper(&self, state: &mut FileState) {
        let Some(process) = self.process.filter(|_| self.maps) else {
            return;
        };
        if let Some(index) = state
            .mappers
            .iter()
            .position(|known| *known == (self.owner, process.tgid))
        {
            state.mappers.swap_remove(index);
        }
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
    pub(super) file: OwnedFd,
    /// The owner has the file current.
    pub(super) current: bool,
    /// The file has just been made or emptied, for its content to be written through this handle.
    pub(super) replaces: bool,
}

impl Mount {
    /// Opens a regular file.
    ///
    /// # Errors
    /// A refusal where `O_TRUNC` would destroy what the owner has not seen; `ESTALE` where the name has come to lead
    /// elsewhere, upon which the kernel looks again; the backing filesystem's.
    pub fn open(&self, caller: &Caller, id: u64, flags: i32) -> Result<Opened> {
        let who = self.arrive(caller, Arrival::Other);
        let node = self.node(id)?;
        let guard = self.guard();
        let mut at = who.name_of(&node);
        let level = guard.level_of_file(at.dir.as_ref(), &at.name, &node);
        let truncates = flags & c::O_TRUNC != 0;
        let writes = flags & c::O_ACCMODE != c::O_RDONLY;
        match self.recheck(&at, &node) {
            // Renamed over since the look-up. A reader has the old file then, as anywhere: the kernel looks again only
            // once, and a name that is renamed over all the time must not be unreadable. At the name it has seen nothing.
            Err(FsError::Store(StoreError::Moved)) if !writes && !truncates => at.dir = None,
            checked => checked?,
        }
        let file = self.open_backing(&node, flags)?;
        let mut state = node.content().lock();
        let mut current = level == Level::Off;
        if truncates {
            self.truncate(&who, "open", &at, &node, &mut state, &file, 0, level)?;
            current = true;
        } else if writes && level != Level::Off {
            current = self.has_current(&who, &at, &node, &state, &file)?;
            if current && flags & c::O_ACCMODE == c::O_RDWR {
                self.note_readable_name(&who, &at, &node);
            }
        }
        let executes = flags & EXEC != 0;
        if !writes && !executes && level != Level::Off {
            let stat = sys::stat(&file)?;
            let now = present(&node, &stat, self.guard().credit(&node, &stat, &state));
            self.guard().observe_read((who.owner, who.process), &at, &now, &state);
        }
        let opening = Opening {
            who: &who,
            node: &node,
            at,
            level,
            flags,
            file,
            current,
            replaces: truncates,
        };
        let opened = self.hold(opening, &mut state);
        drop(state);
        opened
    }

    /// Whether the name the thread came by still leads to the node.
    fn recheck(&self, at: &At, node: &Arc<Node>) -> Result<()> {
        let (Some(dir), true) = (&at.dir, at.certain) else {
            return Ok(());
        };
        if self
            .staged_child(dir, &at.name)
            .is_some_and(|staged| Arc::ptr_eq(&staged, node))
        {
            return Ok(());
        }
        match self.guard().store.peek(dir, &at.name) {
            Ok(Some((key, _))) if key == node.key() => Ok(()),
            // Opened through a descriptor after its name went: /proc/self/fd leads here without a name.
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err(FsError::Store(StoreError::Moved)),
            Err(error) => Err(error.into()),
        }
    }

    /// The name a handle was opened by, as far as it still leads to the file: what is at the name now is another
    /// matter, and a file without its name is judged by itself.
    pub(super) fn name_now(&self, open: &FileHandle) -> At {
        let (at, node) = (open.at(), open.node());
        let leads_there = at.dir.as_ref().is_some_and(|dir| {
            self.staged_child(dir, &at.name)
                .is_some_and(|staged| Arc::ptr_eq(&staged, node))
                || matches!(self.guard().store.peek(dir, &at.name), Ok(Some((key, _))) if key == node.key())
        });
        if leads_there {
            at.clone()
        } else {
            At {
                dir: None,
                name: at.name.clone(),
                certain: false,
                locked: false,
            }
        }
    }

    /// A descriptor for the data, of a file that may wait for publication.
    fn open_backing(&self, node: &Arc<Node>, flags: i32) -> Result<OwnedFd> {
        let flags = if flags & c::O_TRUNC != 0 && flags & c::O_ACCMODE == c::O_RDONLY {
            (flags & !c::O_ACCMODE) | c::O_RDWR
        } else {
            flags
        };
        match node.staged_file() {
            Some(file) => Ok(sys::reopen(&*file, flags & c::O_ACCMODE)?),
            None => self.guard().store.open_io(node, flags).map_err(Into::into),
        }
    }

    /// Whether the owner has the file current, so that edits through the handle need no judgement of their own.
    fn has_current(&self, who: &Who, at: &At, node: &Node, state: &FileState, file: &OwnedFd) -> Result<bool> {
        use crate::guard::{Sight, Standing, standing};
        let stat = sys::stat(file)?;
        let present = present(node, &stat, self.guard().credit(node, &stat, state));
        Ok(self
            .guard()
            .ledger
            .consult((at.entry().as_ref(), at.locked), Some(&present), |entry, file| {
                let sight = Sight {
                    owner: who.owner,
                    process: who.process,
                    rule: self.policy().view,
                    entry: entry.as_deref(),
                    file: file.as_deref(),
                    there: Some(present.key),
                };
                standing(&sight) == Standing::Current
            }))
    }

    /// The kernel may serve the reads of a granted handle by itself. What they show is current anyway, but not under
    /// which name it was read: it would be forgotten that there was a file at this one.
    fn note_readable_name(&self, who: &Who, at: &At, node: &Node) {
        if let Some(entry) = at.entry() {
            self.guard().ledger.with_entry_of(entry, node.key(), |record| {
                record.observe_present(who.owner, None, node.key());
            });
        }
    }

    /// Changes the size of a file, as judged.
    #[expect(
        clippy::too_many_arguments,
        reason = "the caller's lock and descriptor are what proves the check"
    )]
    pub(super) fn truncate(
        &self,
        who: &Who,
        operation: &'static str,
        at: &At,
        node: &Arc<Node>,
        state: &mut FileState,
        file: &OwnedFd,
        size: u64,
        level: Level,
    ) -> Result<()> {
        if level == Level::Off {
            return Ok(sys::ftruncate(file, size)?);
        }
        let intent = if size == 0 { Intent::Replace } else { Intent::Edit };
        for _ in 0..TRIES {
            let stat = sys::stat(file)?;
            let (there, under_way) = (
                Some((&**node, &stat, self.guard().credit(node, &stat, state))),
                change_under_way(state, who.owner),
            );
            let subject = Subject {
                operation,
                intent,
                at,
                there,
                owner: who.owner,
                under_way,
            };
            let verdict = self.judge(who, &subject)?;
            self.keep_replaced(who, (operation, intent), at, (file, &stat), (verdict, level));
            let done = match verdict {
                Verdict::Judged(_) => self.guard().store.truncate_judged(file, &stat.token(), size),
                Verdict::Exclusive | Verdict::Plain | Verdict::Recorded => {
                    sys::ftruncate(file, size).map_err(StoreError::from)
                }
            };
            match done {
                // Changed between judgement and change: judged again, as what it is now.
                Err(StoreError::Changed) => {}
                Err(error) => return Err(error.into()),
                Ok(()) => {
                    self.produced(who, at, node, file, intent == Intent::Replace)?;
                    let change = if size == 0 { Change::Replace } else { Change::Edit };
                    self.record_change(who, (operation, change), (at, None), level, Some(node));
                    return Ok(());
                }
            }
        }
        Err(FsError::Errno(c::ESTALE))
    }

    /// O4: the owner has made the content that is there now, or changed what it had current.
    pub(super) fn produced(&self, who: &Who, at: &At, node: &Node, file: &OwnedFd, whole: bool) -> Result<()> {
        let ledger = &self.guard().ledger;
        let stat = sys::stat(file)?;
        let author = Author::Owner(who.owner);
        let known = ledger.with_known_file(node.key(), |record| {
            let knows = match whole {
                true => Produced::Whole,
                false if record.is_current(who.owner) => Produced::Part,
                false => Produced::Blind,
            };
            let change = ledger.change(author, stat.ctime);
            record.own_change(who.owner, who.process, stat.token(), change, knows);
        });
        if known.is_none() {
            let now = present(node, &stat, author);
            ledger.with_file(&now, |record| {
                let change = ledger.change(author, stat.ctime);
                let knows = if whole { Produced::Whole } else { Produced::Blind };
                record.own_change(who.owner, who.process, stat.token(), change, knows);
            });
        }
        if let (true, Some(entry)) = (whole, at.entry()) {
            ledger.with_entry_of(entry, node.key(), |record| {
                record.observe_present(who.owner, None, node.key());
            });
        }
        Ok(())
    }

    /// Makes the handle of an open, and settles who moves its data.
    pub(super) fn hold(&self, opening: Opening<'_>, state: &mut FileState) -> Result<Opened> {
        let id = self.next_handle();
        let io = self.io_mode(&opening, id);
        let writes = opening.flags & c::O_ACCMODE != c::O_RDONLY;
        let guarded = opening.level != Level::Off;
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
            granted: AtomicBool::new(!guarded || opening.replaces),
            counted: AtomicBool::new(false),
            kept: Mutex::default(),
            maps: guarded && opening.current && io.passes_by() && opening.flags & c::O_ACCMODE == c::O_RDWR,
            pre_image: Mutex::new(None),
            written: Mutex::new(written),
        });
        state.handles += 1;
        if let (true, Some(process)) = (handle.maps, handle.process) {
            state.mappers.push((handle.owner, process.tgid));
        }
        let unseen = guarded && !opening.current && self.enforces();
        if unseen && io == IoMode::PassthroughDirect && handle.reads_and_writes() {
            self.keep_before_mapping(&handle);
        }
        if writes && guarded && handle.is_granted() {
            handle.count_writer(state);
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
        let kept = sys::stat(&handle.file).map_err(StoreError::from).and_then(|stat| {
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

    /// Notes that the content may change through a handle without a request, until that is flushed with data or closed.
    pub(super) fn begin_changing(&self, handle: &FileHandle, state: &mut FileState) {
        let (owner, since) = (handle.owner, clock::now());
        state.changing.push(Changing {
            owner,
            handle: (self.id(), handle.id),
            since,
        });
    }

    pub(super) fn end_changing(&self, handle: &FileHandle, state: &mut FileState) {
        state
            .changing
            .retain(|changing| changing.handle != (self.id(), handle.id));
    }

    /// One family of modes per inode: plain direct I/O only while no handle of the inode is in passthrough.
    fn io_mode(&self, opening: &Opening<'_>, handle: u64) -> IoMode {
        let id = opening.node.id();
        let accmode = opening.flags & c::O_ACCMODE;
        let writes = accmode != c::O_RDONLY;
        let edits = writes && !opening.replaces && opening.level != Level::Off;
        // A mount that only observes must not keep programs from mapping what they may map.
        let forbids_mapping = edits && !opening.current && self.enforces();
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
        if edits || appends {
            IoMode::PassthroughDirect
        } else {
            IoMode::Passthrough
        }
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

pub(super) fn present(node: &Node, stat: &Stat, author: Author) -> Present {
    debug_assert!(node.kind() == Kind::Regular);
    Present {
        key: node.key(),
        token: stat.token(),
        author,
    }
}
