//! Data of open files: reads that count, writes that are judged, and the moments at which a writer is credited.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::caller::{Caller, Who};
use super::changing::{change_under_way, lock_to_change, others_write_on, written_late};
use super::errno::{FsError, Result};
use super::handle::{FileHandle, IoMode};
use super::judge::{Subject, Verdict, credit};
use super::mount::Mount;
use super::open::present;
use super::virtual_dir::is_virtual_handle;
use crate::faults::{self, point};
use crate::guard::{Author, Code, Intent, Keep, Level, Reason, Step, There, Why};
use crate::store::{FileState, Mapper, Node, Winner, libc_flags as c};
use crate::sync::MutexGuard;
use crate::sys::{self, Stat};

impl Mount {
    /// Reads. Through a handle that may still have to be judged, a read is what makes its owner's view current.
    ///
    /// # Errors
    /// The backing filesystem's.
    pub fn read(&self, handle: u64, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.guard().events().operations.add();
        if is_virtual_handle(handle) {
            return self.read_virtual(handle, offset, buffer);
        }
        let open = self.file(handle)?;
        self.settle(&open);
        self.observe_by_handle(&open)?;
        Ok(sys::pread(open.file(), buffer, offset)?)
    }

    /// O3, through a read-write handle.
    fn observe_by_handle(&self, open: &FileHandle) -> Result<()> {
        if open.level() == Level::Off || !open.reads_count() {
            return Ok(());
        }
        let who = open.who(0);
        let at = self.name_now(open);
        let state = open.node().content().lock();
        let ticks = self.guard().store.features().ticks;
        if let Some(stat) = ticks.settled(open.file(), sys::stat(open.file())?)? {
            let present = present(open.node(), &stat, self.guard().credit(open.node(), &stat, &state));
            self.guard()
                .observe_read((who.owner, who.process), &at, &present, (&state, open.file()));
        }
        drop(state);
        Ok(())
    }

    fn settle(&self, open: &FileHandle) {
        if open.io() == IoMode::Direct {
            self.settle_direct(open.node().id(), open.id());
        }
    }

    /// Writes. `flags` are the handle's status flags now: `O_APPEND` may have been cleared since the open.
    /// `kills_setid`: the caller may not keep set-id bits, which the daemon's own write would leave.
    ///
    /// # Errors
    /// A refusal; the backing filesystem's.
    pub fn write(
        &self,
        caller: &Caller,
        handle: u64,
        offset: u64,
        data: &[u8],
        flags: i32,
        kills_setid: bool,
    ) -> Result<usize> {
        let open = self.file(handle)?;
        self.settle(&open);
        let appends = flags & c::O_APPEND != 0;
        let intent = if appends { Intent::Append } else { Intent::Edit };
        self.change(caller, &open, "write", intent, || {
            if kills_setid {
                clear_setid(open.file(), &open.who(caller.tid))?;
            }
            Ok(if appends {
                sys::pwrite_append(open.file(), data)?
            } else {
                sys::pwrite(open.file(), data, offset)?
            })
        })
    }

    /// Makes a change through a handle: judged when it is made, and credited to whoever opened the handle.
    pub(super) fn change<T>(
        &self,
        caller: &Caller,
        open: &FileHandle,
        operation: &'static str,
        intent: Intent,
        apply: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        self.guard().events().operation(open.owner());
        let at = (open.level() != Level::Off && !open.is_granted()).then(|| self.name_now(open));
        if open.may_have_mapped() {
            self.guard().catch_up();
        }
        let mut state = match at {
            Some(_) if intent != Intent::Append => lock_to_change(open.node(), open.owner()),
            Some(_) | None => open.node().content().lock(),
        };
        if let Some(winner) = state.lost {
            return Err(FsError::Refused(lost_reason(winner)));
        }
        let Some(at) = at.filter(|_| !open.is_granted()) else {
            drop(state);
            return apply();
        };
        let stat = sys::stat(open.file())?;
        self.take_for_own(open, &stat, &state);
        let who = open.who(caller.tid);
        let author = self.guard().credit(open.node(), &stat, &state);
        let there = Some((&**open.node(), &stat, author));
        let under_way = change_under_way(&state, open.owner(), intent);
        let subject = Subject {
            operation,
            intent,
            at: &at,
            there,
            owner: open.owner(),
            under_way,
            level: open.level(),
        };
        let verdict = self.judge(&who, &subject)?;
        self.note_edit(&who, open, intent);
        let unseen = verdict.keeps() == Some(Keep::Yes);
        if unseen && !open.has_kept(stat.token()) {
            self.keep_copy(&who, &subject, open.file(), &stat)?;
        }
        if matches!(verdict, Verdict::Recorded | Verdict::Overridden) {
            // Recorded once; or let through once, whole.
            open.grant();
        }
        faults::hit(point::EDIT_BEFORE_WRITE);
        if open.is_granted() {
            // What follows is not judged.
            open.count_writer(&mut state);
        }
        let done = apply()?;
        self.produced(&who, &at, open.node(), open.file(), false)?;
        if unseen {
            open.note_kept(sys::stat(open.file())?.token());
        }
        drop(state);
        Ok(done)
    }

    /// A change that nobody has made by a request, and no outsider by a write, which would have been watched: the owner of
    /// the handle has stored it through a mapping that is no more. The watch has been caught up with before the lock of the
    /// file was taken.
    pub(super) fn take_for_own(&self, open: &FileHandle, stat: &Stat, state: &FileState) {
        let (guard, node, owner) = (self.guard(), open.node(), open.owner());
        let watched = open.may_have_mapped() && guard.watches_all() && !node.is_touched_outside();
        let others = |mapper: &Mapper| mapper.owner != owner && mapper.may_store(stat.ino);
        if !watched || state.mappers.iter().any(others) {
            return;
        }
        let moved = guard
            .ledger
            .with_known_file(node.key(), |record| record.token() != stat.token());
        if moved == Some(true) && guard.credit(node, stat, state) == Author::Outsider {
            // An outsider may have mapped the file, too, or written it by asynchronous I/O, which is not told: what is displaced
            // is kept until the owner has read it.
            guard
                .ledger
                .with_file(&present(node, stat, Author::Owner(owner)), |record| {
                    record.presume(owner)
                });
        }
    }

    /// A descriptor of the file was closed: publishes what holds data, and credits a writer with what it wrote.
    ///
    /// # Errors
    /// Of a lost or failed publication; never a refusal that could have come earlier.
    pub fn flush(&self, handle: u64) -> Result<()> {
        self.guard().events().operations.add();
        let open = self.file(handle)?;
        self.settle(&open);
        if !open.writes() {
            return Ok(());
        }
        let (mut state, known) = self.publish_if_it_holds_data(&open)?;
        if let Some(winner) = state.lost {
            self.guard().keep_written_after_loss(&mut state);
            return Err(FsError::Refused(lost_reason(winner)));
        }
        self.note_unjudged_stores(&open, false);
        let stat = self.credit_writer(&open, &state, known, false)?;
        self.note_flushed(&open, &mut state);
        self.record_unless_late(&open, &state, &stat, "flush");
        if stat.size > 0 {
            self.settle_changing(&open, &mut state);
        }
        let told = self.tell_taken_away(&open, &state, &stat);
        if open.level() == Level::Keep && stat.size > 0 && others_write_on(&state, open.owner()) {
            self.keep_what_may_be_written_over(&open, &stat);
        }
        drop(state);
        self.note_rules(open.at().dir.as_ref(), &open.at().name);
        told
    }

    /// Puts what was written through a handle on record as a change of its path, unless it is nowhere in the tree.
    fn record_unless_late(&self, open: &FileHandle, state: &FileState, stat: &Stat, operation: &'static str) {
        if state.lost.is_none() && written_late(open, state, stat).is_none() {
            self.record_written(open, operation);
        }
    }

    /// Another owner goes on writing the file by a handle that is not judged, and nothing is refused here.
    fn keep_what_may_be_written_over(&self, open: &FileHandle, stat: &Stat) {
        let guard = self.guard();
        match guard.store.attic().keep_copy(open.file(), stat, false) {
            Ok(None) => {}
            Ok(Some(slot)) => guard.note_kept(&slot, open.owner(), "flush", open.at(), stat.size),
            Err(error) => log::warn!("content that may be written over could not be kept: {error}"),
        }
    }

    /// Publishes a staged file that holds data. Gives the lock of the file, and its attributes where they were just looked at.
    fn publish_if_it_holds_data<'o>(&self, open: &'o FileHandle) -> Result<(MutexGuard<'o, FileState>, Option<Stat>)> {
        let node = open.node();
        let state = node.content().lock();
        let Some(dir) = state.staged.as_ref().map(|staged| Arc::clone(&staged.dir)) else {
            return Ok((state, None));
        };
        let stat = sys::stat(open.file())?;
        if stat.size == 0 {
            return Ok((state, Some(stat)));
        }
        // The directory's lock stands above the file's.
        drop(state);
        let mut names = dir.names().lock();
        let mut state = node.content().lock();
        let published = self
            .guard()
            .publish_locked(&dir, &mut names, node, &mut state, Some(stat));
        drop(names);
        Ok((state, published?))
    }

    /// Brings the file's record up to date while the writer is still counted, so that the change is put down to it.
    fn credit_writer(&self, open: &FileHandle, state: &FileState, known: Option<Stat>, released: bool) -> Result<Stat> {
        let mut stat = known.map_or_else(|| sys::stat(open.file()), Ok)?;
        if open.level() == Level::Off {
            return Ok(stat);
        }
        let author = credit(state);
        // It may have been mapped, and unmapped before it was closed; or an outsider has changed it meanwhile.
        let seen = released && self.guard().watches() && open.node().is_touched_outside();
        let mapped = author == Author::Outsider && open.may_have_mapped() && !seen;
        let author = if mapped { Author::Owner(open.owner()) } else { author };
        let presumed = mapped || released;
        if !released && author == Author::Owner(open.owner()) {
            stat = self.guard().store.features().ticks.sharpen(open.file(), stat)?;
        }
        let ledger = &self.guard().ledger;
        let moves = ledger.with_known_file(open.node().key(), |record| record.token() != stat.token());
        ledger.with_file(&present(open.node(), &stat, author), |record| {
            if presumed && moves == Some(true) {
                record.presume(open.owner());
            }
        });
        Ok(stat)
    }

    /// The last descriptor of an open file is gone.
    pub fn release(&self, handle: u64) {
        self.guard().events().operations.add();
        if is_virtual_handle(handle) {
            return self.release_virtual(handle);
        }
        faults::hit(point::RELEASE_ARRIVED);
        let Some(open) = self.files.lock(&handle).remove(&handle) else {
            return;
        };
        self.settle(&open);
        self.close(&open);
    }

    pub(super) fn close(&self, open: &Arc<FileHandle>) {
        let node = open.node();
        if open.may_have_mapped() {
            self.guard().catch_up();
        }
        let last = {
            let mut state = node.content().lock();
            self.note_unjudged_stores(open, true);
            open.forget_mapper(&mut state);
            if open.executes() {
                state.executing = state.executing.saturating_sub(1);
            }
            if open.may_be_mapped() {
                state.mappable = state.mappable.saturating_sub(1);
            }
            // Every close has been flushed, and is told some time later: what has changed since then was stored through a
            // mapping, or is an outsider's.
            if open.reads_and_writes()
                && let Err(error) = self.credit_writer(open, &state, None, true)
            {
                log::debug!("a closed file could not be looked at: {error}");
            }
            if open.writes() {
                state.end_writing(self.id());
                self.attributes_changed(node);
            }
            if let Ok(stat) = sys::stat(open.file()) {
                self.record_unless_late(open, &state, &stat, "close");
            }
            open.uncount_writer(&mut state);
            self.end_changing(open, &mut state);
            state.handles = state.handles.saturating_sub(1);
            self.guard().keep_written_after_loss(&mut state);
            let last = state.handles == 0 && state.staged.is_some();
            state.tidy();
            last
        };
        if last && let Err(error) = self.guard().publish(node) {
            log::info!("a file was not published when it was closed: {error}");
        }
        if matches!(open.io(), IoMode::Passthrough | IoMode::PassthroughDirect) {
            self.end_passthrough(node.id());
        }
    }

    /// Stores through a shared mapping bring no request: what a handle changed without a judgement is noticed here, and
    /// what was there before stays kept.
    fn note_unjudged_stores(&self, open: &FileHandle, last: bool) {
        let Some(slot) = open.take_pre_image() else { return };
        let guard = self.guard();
        let stat = sys::stat(open.file());
        let moved = stat.as_ref().ok().and_then(|stat| {
            guard
                .ledger
                .with_known_file(open.node().key(), |record| record.token() != stat.token())
        });
        match moved {
            Some(false) if last && !open.is_mapped() => guard.store.attic().discard(&slot),
            Some(false) if !last => open.put_pre_image(slot),
            Some(_) | None => {
                let how = if moved == Some(false) { "may be" } else { "was" };
                log::warn!(
                    "{}: {how} changed through a mapping without a judgement",
                    guard.path_of(open.at())
                );
                let size = stat.map_or(0, |stat| stat.size);
                guard.note_kept(&slot, open.owner(), "mmap", open.at(), size);
            }
        }
    }

    /// Syncs a file: its data, and its name if that was published since the last sync.
    ///
    /// # Errors
    /// Of the publication or the backing filesystem's.
    pub fn fsync(&self, handle: u64, data_only: bool) -> Result<()> {
        self.guard().events().operations.add();
        let open = self.file(handle)?;
        drop(self.publish_if_it_holds_data(&open)?);
        if data_only {
            sys::fdatasync(open.file())?
        } else {
            sys::fsync(open.file())?
        }
        if open.writes() {
            let mut state = open.node().content().lock();
            let stat = self.credit_writer(&open, &state, None, false)?;
            if stat.size > 0 {
                self.settle_changing(&open, &mut state);
            }
            self.record_unless_late(&open, &state, &stat, "fsync");
            self.tell_taken_away(&open, &state, &stat)?;
            drop(state);
        }
        let unsynced = {
            let mut state = open.node().content().lock();
            if let Some(winner) = state.lost {
                // The name was lost earlier, perhaps while nobody waited for an answer: what is synced has no name.
                self.guard().keep_written_after_loss(&mut state);
                return Err(FsError::Refused(lost_reason(winner)));
            }
            std::mem::take(&mut state.name_unsynced)
        };
        if unsynced && let Some(dir) = open.node().place().parent {
            self.guard().store.sync_dir(&dir, false)?;
        }
        Ok(())
    }

    /// Allocates or deallocates space.
    ///
    /// # Errors
    /// A refusal; the backing filesystem's.
    pub fn fallocate(&self, caller: &Caller, handle: u64, offset: u64, length: u64, mode: i32) -> Result<()> {
        let open = self.file(handle)?;
        self.change(caller, &open, "fallocate", Intent::Edit, || {
            self.clear_setid_for(caller, &open)?;
            Ok(sys::fallocate(open.file(), mode, offset, length)?)
        })
    }

    /// Copies between two open files; the source is observed, the destination judged.
    ///
    /// # Errors
    /// A refusal; the backing filesystem's.
    pub fn copy_file_range(
        &self,
        caller: &Caller,
        (from, from_offset): (u64, u64),
        (to, to_offset): (u64, u64),
        length: usize,
        flags: u32,
    ) -> Result<usize> {
        let (source, target) = (self.file(from)?, self.file(to)?);
        self.observe_by_handle(&source)?;
        let copied = self.change(caller, &target, "copy_file_range", Intent::Edit, || {
            self.clear_setid_for(caller, &target)?;
            Ok(sys::copy_file_range(
                source.file(),
                from_offset,
                target.file(),
                to_offset,
                length,
                flags,
            )?)
        });
        // The kernel does not think of the time of access of what was read.
        self.forget_attributes(source.node());
        copied
    }

    fn clear_setid_for(&self, caller: &Caller, open: &FileHandle) -> Result<()> {
        if self.as_root() && caller.uid != 0 {
            clear_setid(open.file(), &open.who(caller.tid))?;
        }
        Ok(())
    }

    /// A truncation has been made for the caller. The daemon's own leaves set-id bits where the caller's would not, and
    /// the kernel does not ask for it: not at all of a truncating open, and not of the set-group-id bit of a file that its
    /// group may not execute.
    pub(super) fn truncated_for(&self, who: &Who, node: &Arc<Node>, file: &OwnedFd) -> Result<()> {
        if self.as_root() && who.uid != 0 && clear_setid(file, who)? {
            // The time of change has moved, the content has not.
            self.note_links(node);
        }
        Ok(())
    }

    /// Finds data or holes.
    ///
    /// # Errors
    /// The backing filesystem's.
    pub fn lseek(&self, handle: u64, offset: i64, whence: i32) -> Result<i64> {
        self.guard().events().operations.add();
        let open = self.file(handle)?;
        Ok(sys::seek(open.file(), offset, whence)?)
    }
}

/// Clears the set-id bits, as a write by an ordinary user does; says whether there were any. The set-group-id bit of a
/// file that its group may not execute stays for members of the group.
fn clear_setid(file: &OwnedFd, who: &Who) -> Result<bool> {
    const GROUP_EXECUTE: u32 = 0o010;
    let stat = sys::stat(file)?;
    let mode = stat.permissions();
    let mut kept = mode & !c::S_ISUID;
    if mode & c::S_ISGID != 0 && (mode & GROUP_EXECUTE != 0 || !who.is_in_group(stat.gid)) {
        kept &= !c::S_ISGID;
    }
    if kept != mode {
        sys::chmod(file, kept)?;
    }
    Ok(kept != mode)
}

/// Why a handle whose publication was lost can write no more.
fn lost_reason(winner: Winner) -> Reason {
    let (code, there) = match winner {
        Winner::Regular => (Code::NotObserved, There::Regular),
        Winner::Directory => (Code::NotRegularFile, There::Directory),
        Winner::Other => (Code::NotRegularFile, There::Other),
        Winner::Nothing => (Code::IoError, There::Nothing),
    };
    Reason {
        code,
        step: Step::ReadThenRetry,
        why: Why::LostRace,
        intent: Intent::Create,
        there,
    }
}
