//! Renaming: judged at the source as a removal, at the target as a replacement.

use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::caller::{Arrival, At, Caller, Who};
use super::changing::{change_under_way, note_taken_away, others_write_on};
use super::errno::{FsError, Result};
use super::judge::{Subject, Verdict, at};
use super::mount::Mount;
use super::moved::MovedDir;
use crate::audit::Change;
use crate::faults::{self, point};
use crate::guard::{Code, Intent, Keep, Level, Reason, Step, There, Why};
use crate::store::{
    DirState, Exchange, Expected, FileState, Kind, Node, Place, Slot, StoreError, Winner, libc_flags as c,
};
use crate::sync::MutexGuard;
use crate::sys::Stat;

/// Times a rename is judged again when something changes between judgement and rename.
const TRIES: usize = 3;

/// One end of a rename, looked at under the locks.
struct End {
    at: At,
    dir: Arc<Node>,
    /// A file's attributes are looked at when it is locked.
    found: Option<(Arc<Node>, Option<Stat>)>,
    level: Level,
}

impl End {
    fn regular(&self) -> Option<(&Arc<Node>, &Stat)> {
        match &self.found {
            Some((node, Some(stat))) if node.kind() == Kind::Regular => Some((node, stat)),
            Some(_) | None => None,
        }
    }

    /// The node of the file, to be locked while this is looked at again.
    fn file(&self) -> Option<Arc<Node>> {
        self.node().filter(|node| node.kind() == Kind::Regular).cloned()
    }

    fn node(&self) -> Option<&Arc<Node>> {
        self.found.as_ref().map(|(node, _)| node)
    }

    fn end(&self) -> (&Arc<Node>, &OsStr) {
        (&self.dir, &self.at.name)
    }
}

impl Mount {
    /// Renames.
    ///
    /// # Errors
    /// A refusal at either end; the backing filesystem's.
    pub fn rename(
        &self,
        caller: &Caller,
        (old_parent, old_name): (u64, &OsStr),
        (new_parent, new_name): (u64, &OsStr),
        flags: u32,
    ) -> Result<()> {
        let (from, to) = (self.node(old_parent)?, self.node(new_parent)?);
        let who = self.arrive(caller, Arrival::Creates(to.key(), new_name));
        self.refuse_bound(&who, "rename", &from, old_name)?;
        self.refuse_bound(&who, "rename", &to, new_name)?;
        if flags & !(c::RENAME_NOREPLACE | c::RENAME_EXCHANGE) != 0 {
            return Err(FsError::Errno(c::EINVAL));
        }
        self.check_dirs(&who, [&from, &to])?;
        faults::hit(point::RENAME_ARRIVED);
        let mut locks = lock_both(&from, &to);
        let exchanges = flags & c::RENAME_EXCHANGE != 0;
        let mut evidence = vec![self.evidence_comes(&to, new_name)];
        self.evidence_goes(&from, old_name);
        if exchanges {
            evidence.push(self.evidence_comes(&from, old_name));
            self.evidence_goes(&to, new_name);
        }
        let mut tries = TRIES;
        let done = loop {
            tries -= 1;
            locks.publish(self, &from, old_name, &to, new_name);
            match self.rename_found(&who, (&from, old_name), (&to, new_name), flags) {
                // Changed between judgement and rename: judged again, as what is there now.
                Err(FsError::Store(StoreError::Changed | StoreError::Lost(Winner::Regular | Winner::Nothing)))
                    if tries > 0 => {}
                other => break other,
            }
        };
        if done.is_ok() {
            self.guard()
                .touched
                .renamed(who.owner, (&from, old_name), (&to, new_name));
            self.name_changed(&from, old_name);
            self.name_changed(&to, new_name);
        }
        drop(locks);
        let moved = done?;
        for moved in moved.into_iter().flatten() {
            self.after_move(&who, moved);
        }
        for evidence in evidence {
            self.evidence_came(&who, evidence);
        }
        Ok(())
    }

    fn rename_found(
        &self,
        who: &Who,
        from: (&Arc<Node>, &OsStr),
        to: (&Arc<Node>, &OsStr),
        flags: u32,
    ) -> Result<[Option<MovedDir<'_>>; 2]> {
        let mut source = self.find_end(who, from)?;
        let mut target = self.find_end(who, to)?;
        let Some(moved) = source.node().cloned() else {
            return Err(FsError::Errno(c::ENOENT));
        };
        if flags & c::RENAME_EXCHANGE == 0 {
            self.is_as_told(who, to, target.node())?;
        }
        if flags & c::RENAME_NOREPLACE != 0 && target.found.is_some() {
            return Err(FsError::Errno(c::EEXIST));
        }
        let same = target.node().is_some_and(|node| Arc::ptr_eq(node, &moved));
        if same && flags & c::RENAME_EXCHANGE == 0 {
            // Two names of one file, or one name: POSIX says that nothing happens.
            self.guard().store.rename_plain(from, to, 0)?;
            return Ok([None, None]);
        }
        let dir = self.before_move(&moved);
        if flags & c::RENAME_EXCHANGE != 0 {
            let other = target.node().and_then(|node| self.before_move(node));
            self.exchange(who, &mut source, &mut target)?;
            self.record_renamed(who, &source, &target, Change::Exchange, &moved);
            return Ok([dir, other]);
        }
        let (one, other) = (source.file(), target.file());
        let (mut moving, mut displaced) = lock_contents(one.as_ref(), other.as_ref());
        self.look_again(&mut source)?;
        self.look_again(&mut target)?;
        let level = self.level_of(who, Some(&target.dir), &target.at.name);
        self.judge_source(who, &source, moving.as_deref(), level)?;
        let verdict = self.judge_target(who, &target, displaced.as_deref())?;
        self.carry_out(who, &source, &target, &moved, verdict, flags, displaced.as_deref_mut())?;
        self.note_renamed(who, &source, &target, &moved);
        if let (Level::Off, Level::Guard, Some(state)) = (source.level, target.level, moving.as_deref_mut()) {
            self.guard().note_writers_along(&moved, state);
        }
        let change = match target.found {
            Some(_) => Change::RenameOver,
            None => Change::Rename,
        };
        self.record_renamed(who, &source, &target, change, &moved);
        drop((moving, displaced));
        Ok([dir, None])
    }

    /// What the kernel takes for a directory that a call removes is dead to it from then on. If that directory is no longer
    /// at the name, it must look again: else it would show as empty wherever it has gone.
    pub(super) fn is_as_told(
        &self,
        who: &Who,
        (dir, name): (&Arc<Node>, &OsStr),
        now: Option<&Arc<Node>>,
    ) -> Result<()> {
        // By its own look-up, which there always is for the target of a rename; else by any.
        let told = who.told_of(dir, name).or_else(|| self.entry_told(dir, name));
        let told = told.and_then(|id| self.node(id).ok());
        match told {
            Some(told) if told.kind() == Kind::Directory && now.is_none_or(|now| !Arc::ptr_eq(now, &told)) => {
                Err(FsError::Errno(c::ESTALE))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// After a rename over a directory: if that one lives on, somebody has moved it away just before. The kernel would take
    /// it for dead; it must look again.
    fn undo_unless_dead(&self, source: &End, target: &End, displaced: &Arc<Node>) -> Result<()> {
        let store = &self.guard().store;
        if !store.stat(displaced).is_ok_and(|stat| stat.nlink > 0) {
            return Ok(());
        }
        displaced.unpin();
        store.rename_plain(target.end(), source.end(), c::RENAME_NOREPLACE)?;
        Err(FsError::Errno(c::ESTALE))
    }

    fn find_end(&self, who: &Who, (dir, name): (&Arc<Node>, &OsStr)) -> Result<End> {
        let store = &self.guard().store;
        let found = match store.find(dir, name) {
            Ok(node) if node.kind() == Kind::Regular => Ok((node, None)),
            Ok(_) => store.lookup(dir, name).map(|(node, stat)| (node, Some(stat))),
            Err(error) => Err(error),
        };
        let found = match found {
            Ok(found) => Some(found),
            Err(error) if error.is(c::ENOENT) => None,
            Err(error) => return Err(error.into()),
        };
        let level = match &found {
            Some((node, _)) => self.level_of_file(who, Some(dir), name, node),
            None => self.level_of(who, Some(dir), name),
        };
        Ok(End {
            at: at(dir, name),
            dir: Arc::clone(dir),
            found,
            level,
        })
    }

    /// A file as it is now that it is locked, and nobody who comes through a mount can change it any more.
    fn look_again(&self, end: &mut End) -> Result<()> {
        if let Some((node, stat)) = &mut end.found
            && node.kind() == Kind::Regular
        {
            *stat = Some(self.guard().store.stat(node)?);
        }
        Ok(())
    }

    /// Renaming a file away is taking its name away; its content goes along, so there is nothing to keep. Where it goes
    /// unseen it stays guarded, whatever the new name: a backup name is no way to remove content unseen.
    fn judge_source(&self, who: &Who, source: &End, state: Option<&FileState>, to: Level) -> Result<()> {
        let Some((node, _)) = source.regular().filter(|_| source.level != Level::Off) else {
            return Ok(());
        };
        let unseen = self.judge_end(who, source, Intent::Remove, state)? == Verdict::Judged(Keep::Yes);
        if unseen && to.is_looser_than(source.level) {
            self.guard().hold(node, source.level);
        }
        Ok(())
    }

    fn judge_target(&self, who: &Who, target: &End, state: Option<&FileState>) -> Result<Verdict> {
        let is_no_file = target.found.is_some() && target.regular().is_none();
        if target.level == Level::Off || is_no_file {
            return Ok(Verdict::Plain);
        }
        self.judge_end(who, target, Intent::RenameOver, state)
    }

    /// Judges at a name where nothing is, or a file whose lock is held.
    fn judge_end(&self, who: &Who, end: &End, intent: Intent, state: Option<&FileState>) -> Result<Verdict> {
        let file = end.regular().zip(state);
        let subject = Subject {
            operation: "rename",
            intent,
            at: &end.at,
            there: file.map(|((node, stat), state)| (&**node, stat, self.guard().credit(node, stat, state))),
            owner: who.owner,
            under_way: state.and_then(|state| change_under_way(state, who.owner, intent)),
            level: end.level,
        };
        let verdict = self.judge(who, &subject)?;
        // Judged now; what it lets through is kept like anything unseen.
        Ok(verdict.keeps().map_or(verdict, Verdict::Judged))
    }

    /// Whatever a rename displaces is kept, seen or not, unless another name still leads to it. What is kept is noted before
    /// the names are exchanged, so that a rename in which the guard is killed can be finished.
    fn rename_over_judged(
        &self,
        who: &Who,
        source: &End,
        target: &End,
        moved: &Arc<Node>,
        keep: Keep,
        state: Option<&mut FileState>,
    ) -> Result<()> {
        let (guard, store) = (self.guard(), &self.guard().store);
        let Some((displaced, stat)) = target.regular() else {
            return Err(FsError::Errno(c::ENOENT));
        };
        let expected = Expected {
            key: displaced.key(),
            token: stat.token(),
        };
        let last = stat.nlink <= 1;
        if last {
            store.pin(displaced)?;
        }
        let written = state.as_deref().is_some_and(|state| others_write_on(state, who.owner));
        let must_keep = keep == Keep::Yes && store.attic().is_on();
        let keep = last && (keep == Keep::Yes || stat.size > 0 || written);
        let slot = store.attic().fresh_slot();
        let noted = keep && self.note_rename(who, (&source.at, &target.at), (moved, displaced, stat), &slot);
        let done = store.rename_over(
            (moved.key(), displaced),
            source.end(),
            target.end(),
            &expected,
            (must_keep, &slot),
        );
        if noted && matches!(done, Err(_) | Ok(Exchange::Removed)) {
            store.attic().strike(&slot);
        }
        let kept = |slot: &Slot| {
            if noted {
                guard.count_kept(slot, who.owner, "rename", &target.at, stat.size);
            } else {
                guard.note_kept(slot, who.owner, "rename", &target.at, stat.size);
            }
        };
        match done {
            Ok(Exchange::Displaced(slot)) => {
                if let Some(state) = state {
                    state.in_attic = keep;
                    if last {
                        note_taken_away(state, (who.owner, "rename"), stat, Some(&slot).filter(|_| keep));
                    }
                }
                if keep {
                    kept(&slot);
                } else {
                    store.attic().discard(&slot);
                }
            }
            Ok(Exchange::Overtaken(slot)) => kept(&slot),
            // It could not go to the attic.
            Ok(Exchange::Removed) => {
                if let Some(state) = state.filter(|_| last) {
                    note_taken_away(state, (who.owner, "rename"), stat, None);
                }
            }
            Err(error) => {
                displaced.unpin_last(stat.nlink);
                // Exchanged and back: the times of change moved, the contents did not.
                self.note_links(moved);
                self.note_links(displaced);
                return Err(error.into());
            }
        }
        // Another name may still lead to it, or an open handle.
        self.note_links(displaced);
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "the files' locks are what proves the check")]
    fn carry_out(
        &self,
        who: &Who,
        source: &End,
        target: &End,
        moved: &Arc<Node>,
        verdict: Verdict,
        flags: u32,
        state: Option<&mut FileState>,
    ) -> Result<()> {
        let store = &self.guard().store;
        match (verdict, target.regular()) {
            (Verdict::Exclusive, _) => match store.rename_to_free(source.end(), target.end()) {
                Err(StoreError::Lost(winner @ (Winner::Directory | Winner::Other))) => {
                    Err(self.taken_by_no_file(who, target, winner))
                }
                other => Ok(other?),
            },
            (Verdict::Judged(keep), Some(_)) if moved.kind() != Kind::Directory => {
                self.rename_over_judged(who, source, target, moved, keep, state)
            }
            (Verdict::Judged(_) | Verdict::Overridden | Verdict::Plain | Verdict::Recorded, _) => {
                let Some((displaced, stat)) = &target.found else {
                    return Ok(store.rename_plain(source.end(), target.end(), flags)?);
                };
                let is_last = displaced.kind() == Kind::Directory || stat.is_none_or(|stat| stat.nlink <= 1);
                if displaced.has_staged() {
                    return Err(FsError::Errno(c::ENOTEMPTY));
                }
                if is_last {
                    store.pin(displaced)?;
                }
                faults::hit(point::RENAME_BEFORE_PLAIN);
                let done = store.rename_plain(source.end(), target.end(), flags);
                if done.is_err() && is_last {
                    displaced.unpin();
                }
                if done.is_ok() && displaced.kind() == Kind::Directory {
                    self.undo_unless_dead(source, target, displaced)?;
                }
                if displaced.kind() == Kind::Regular {
                    self.note_links(displaced);
                }
                Ok(done?)
            }
        }
    }

    fn taken_by_no_file(&self, who: &Who, target: &End, winner: Winner) -> FsError {
        let there = if winner == Winner::Directory {
            There::Directory
        } else {
            There::Other
        };
        let (code, step, why) = (Code::NotRegularFile, Step::ChooseAnotherName, Why::NotRegular);
        let reason = Reason {
            code,
            step,
            why,
            intent: Intent::RenameOver,
            there,
        };
        let intent = Intent::RenameOver;
        let subject = Subject {
            operation: "rename",
            intent,
            at: &target.at,
            there: None,
            owner: who.owner,
            under_way: None,
            level: target.level,
        };
        match self.refuse(who, &subject, reason, None) {
            Err(error) => error,
            Ok(()) => FsError::Store(StoreError::Changed),
        }
    }

    /// Each of two names gets what the other had: judged at both as a replacement.
    fn exchange(&self, who: &Who, source: &mut End, target: &mut End) -> Result<()> {
        if target.found.is_none() {
            return Err(FsError::Errno(c::ENOENT));
        }
        let (one, other) = (source.file(), target.file());
        let locked = lock_contents(one.as_ref(), other.as_ref());
        self.look_again(source)?;
        self.look_again(target)?;
        let (source, target) = (&*source, &*target);
        let of_source = locked.0.as_deref();
        // Two names of one file have one lock.
        let of_target = locked.1.as_deref().or(of_source);
        self.judge_target(who, source, of_source)?;
        self.judge_target(who, target, of_target)?;
        self.guard()
            .store
            .rename_plain(source.end(), target.end(), c::RENAME_EXCHANGE)?;
        if let (Some(one), Some(other)) = (source.node(), target.node()) {
            self.note_at(who, source, Some(other));
            self.note_at(who, target, Some(one));
            self.moved(one, target);
            self.moved(other, source);
            self.note_come_from_off(who, source, target);
            self.note_come_from_off(who, target, source);
        }
        drop(locked);
        Ok(())
    }

    fn note_renamed(&self, who: &Who, source: &End, target: &End, moved: &Arc<Node>) {
        self.entry_gone(&source.dir, &source.at.name);
        self.note_at(who, source, None);
        self.note_at(who, target, Some(moved));
        self.moved(moved, target);
        self.note_come_from_off(who, source, target);
    }

    /// A move between a guarded and an unguarded name is a change of the guarded one.
    fn record_renamed(&self, who: &Who, source: &End, target: &End, change: Change, moved: &Node) {
        let level = match source.level {
            Level::Off => target.level,
            level @ (Level::Guard | Level::Keep) => level,
        };
        self.record_change(
            who,
            ("rename", change),
            (&source.at, Some(&target.at)),
            level,
            Some(moved),
        );
    }

    fn note_come_from_off(&self, who: &Who, source: &End, target: &End) {
        if source.level == Level::Off
            && target.level != Level::Off
            && let Some((node, _)) = source.regular()
            && let Ok(stat) = self.guard().store.stat(node)
        {
            // Nobody looked while it was made; from here on it is what this owner put at the name.
            self.note_made(who, &target.at, node, &stat);
        }
    }

    fn note_at(&self, who: &Who, end: &End, node: Option<&Arc<Node>>) {
        if end.level != Level::Off || node.is_some_and(|node| node.is_held()) {
            self.note_bound(who, &end.at, node.map(|node| &**node));
        }
    }

    /// The file's lock, if it is a file, is held.
    fn moved(&self, node: &Arc<Node>, to: &End) {
        // The kernel moves its entry along without looking the name up.
        self.entry_known(&to.dir, &to.at.name, node, self.changes_seen());
        node.set_place(Place {
            parent: Some(Arc::clone(&to.dir)),
            name: to.at.name.clone(),
        });
        match node.kind() {
            Kind::Directory => {
                // What lies below may be guarded otherwise now.
                self.guard().places.fetch_add(1, Ordering::AcqRel);
            }
            Kind::Regular => self.note_links(node),
            Kind::Symlink | Kind::Special => {}
        }
    }
}

type Contents<'n> = Option<MutexGuard<'n, FileState>>;

/// The locks of one or two files, in the order of node ids: from judgement to change, and since a rename moves the files'
/// times of change, which nobody may take for a change of content meanwhile.
fn lock_contents<'n>(one: Option<&'n Arc<Node>>, other: Option<&'n Arc<Node>>) -> (Contents<'n>, Contents<'n>) {
    let lock = |node: Option<&'n Arc<Node>>| node.map(|node| node.content().lock());
    match (one, other) {
        (Some(first), Some(second)) if Arc::ptr_eq(first, second) => (lock(one), None),
        (Some(first), Some(second)) if second.id() < first.id() => {
            let second = lock(other);
            (lock(one), second)
        }
        (_, _) => (lock(one), lock(other)),
    }
}

/// The locks of the names in one or two directories.
pub(super) struct NameLocks<'d> {
    first: MutexGuard<'d, DirState>,
    second: Option<MutexGuard<'d, DirState>>,
    /// The first lock is that of the source.
    source_first: bool,
}

/// Locks in the order of node ids.
pub(super) fn lock_both<'d>(from: &'d Arc<Node>, to: &'d Arc<Node>) -> NameLocks<'d> {
    if Arc::ptr_eq(from, to) {
        return NameLocks {
            first: from.names().lock(),
            second: None,
            source_first: true,
        };
    }
    let source_first = from.id() < to.id();
    let (one, other) = if source_first { (from, to) } else { (to, from) };
    let first = one.names().lock();
    let second = Some(other.names().lock());
    NameLocks {
        first,
        second,
        source_first,
    }
}

impl NameLocks<'_> {
    fn publish(&mut self, mount: &Mount, from: &Arc<Node>, old: &OsStr, to: &Arc<Node>, new: &OsStr) {
        let Some(second) = self.second.as_mut() else {
            mount.publish_name(from, &mut self.first, old);
            mount.publish_name(to, &mut self.first, new);
            return;
        };
        let (source, target) = if self.source_first {
            (&mut *self.first, &mut **second)
        } else {
            (&mut **second, &mut *self.first)
        };
        mount.publish_name(from, source, old);
        mount.publish_name(to, target, new);
    }
}
