//! Changes that are under way: whoever has made or emptied a file is about to write it, and others neither take what
//! they read meanwhile for a version nor write into it.
//!
//! Through a handle for writing alone that goes on without a judgement, since the kernel moves the data by itself: until it
//! is closed the content is its owner's alone. Through one for reading and writing each write is judged, and others are
//! kept off only while the first is still expected.

use std::sync::Arc;
use std::time::Duration;

use super::Guard;
use super::caller::At;
use super::errno::{FsError, Result, errno_text, refusal_errno};
use super::events::level_name;
use super::handle::FileHandle;
use super::mount::Mount;
use crate::audit::Details;
use crate::clock;
use crate::guard::{Code, Intent, Level, OwnerId, Reason, Refusal, Step, There, Timestamp, Why, Writer};
use crate::store::{Changing, FileState, KeptInfo, Node, Slot, TakenAway};
use crate::sync::MutexGuard;
use crate::sys::{self, Stat};

/// Time for which the first writes through a handle that made or emptied a file are waited for, unless it is flushed or
/// closed before: until then, what is there is half of a change.
const UNSETTLED_FOR: Duration = Duration::from_secs(1);
/// Time for which a close that has been flushed may take to be told to the daemon: the kernel does that after `close` has
/// returned, and whoever waited for it may be here already.
const CLOSING_FOR: Duration = Duration::from_millis(100);
/// Time within which the last close of a file is told to the daemon, by far.
const TOLD_WITHIN: Duration = Duration::from_secs(1);
/// How often it is looked for.
const CLOSING_STEP: Duration = Duration::from_micros(200);

impl Mount {
    /// Notes that the content is about to change through a handle.
    pub(super) fn begin_changing(&self, handle: &FileHandle, state: &mut FileState) {
        self.end_changing(handle, state);
        state.changing.push(Changing {
            owner: handle.owner(),
            process: handle.process(),
            handle: (self.id(), handle.id()),
            since: clock::now(),
            settled: None,
            flushed: None,
            unjudged: handle.is_unjudged(),
        });
    }

    /// A handle was flushed, as at every close of a descriptor of it: what it changed until now has been credited.
    pub(super) fn note_flushed(&self, handle: &FileHandle, state: &mut FileState) {
        let of_handle = (self.id(), handle.id());
        for changing in state
            .changing
            .iter_mut()
            .filter(|changing| changing.handle == of_handle)
        {
            changing.flushed = Some(clock::now());
        }
    }

    /// A handle was flushed or synced while the file held data: what is there now is a version.
    pub(super) fn settle_changing(&self, handle: &FileHandle, state: &mut FileState) {
        let of_handle = (self.id(), handle.id());
        state
            .changing
            .retain(|changing| changing.unjudged || changing.handle != of_handle);
        for changing in &mut state.changing {
            if changing.handle == of_handle {
                changing.settled = Some(clock::now());
            }
        }
    }

    /// A handle was closed.
    pub(super) fn end_changing(&self, handle: &FileHandle, state: &mut FileState) {
        let of_handle = (self.id(), handle.id());
        state.changing.retain(|changing| changing.handle != of_handle);
    }

    /// Whether nothing is at the name now.
    fn is_gone(&self, at: &At) -> bool {
        let store = &self.guard().store;
        at.dir
            .as_ref()
            .is_some_and(|dir| matches!(store.peek(dir, &at.name), Ok(None)))
    }

    /// What was written to a file after another owner had removed or replaced it is in the attic and nowhere else, and
    /// could not be refused when it was written: the writer is told when it is flushed or synced.
    ///
    /// # Errors
    /// That refusal.
    pub(super) fn tell_taken_away(&self, open: &FileHandle, state: &FileState, stat: &Stat) -> Result<()> {
        // At keep nothing is refused; what is written is kept, as anywhere.
        let Some(taken) = written_late(open, state, stat).filter(|_| open.level() == Level::Guard) else {
            return Ok(());
        };
        let reason = Reason {
            code: Code::StaleVersion,
            step: if self.is_gone(open.at()) {
                Step::LookThenCreate
            } else {
                Step::ReadAgainThenRetry
            },
            why: Why::TakenAway,
            intent: Intent::Edit,
            there: There::Regular,
        };
        if open.is_untold() {
            let guard = self.guard();
            let errno = refusal_errno(reason.code, reason.intent, reason.there);
            if let Some(id) = &taken.kept {
                guard.store.attic().note(&KeptInfo {
                    at: taken.at.sec,
                    written_by: Some(guard.owners().name(open.owner()).to_string()),
                    ..KeptInfo::now(
                        id.clone(),
                        guard.owners().name(taken.owner).to_string(),
                        taken.operation,
                        guard.real_path_of(open.at()),
                        stat.size,
                    )
                });
            }
            let refusal = Refusal {
                operation: "write",
                path: guard.path_of(open.at()),
                code: reason.code,
                errno_text: errno_text(errno),
                owner: guard.owners().name(open.owner()).to_string(),
                changed_by: Some(guard.owners().name(taken.owner).to_string()),
                changed_at: Some(taken.at),
                step: reason.step,
                why: reason.why,
                writer: None,
                kept: taken.kept.clone(),
            };
            let details = Details {
                actor: self.refused_actor(&open.who(0)),
                errno,
                intent: Some(reason.intent),
                level: level_name(open.level()),
                rule: reason.rule(),
                ..Details::default()
            };
            guard
                .events()
                .refused(clock::now(), open.owner(), self.enforces(), refusal, details);
        }
        if self.enforces() {
            Err(FsError::Refused(reason))
        } else {
            Ok(())
        }
    }
}

impl Guard {
    /// A file that was moved from an unguarded name to a guarded one may be open for writing still: those handles go on
    /// unjudged, and until they are closed the content is theirs. The file's lock is held.
    pub(super) fn note_writers_along(&self, node: &Arc<Node>, state: &mut FileState) {
        if state.writing.is_empty() {
            return;
        }
        for mount in self.mounts() {
            mount.files.each(|shard| {
                let of_file = |handle: &&Arc<FileHandle>| {
                    Arc::ptr_eq(handle.node(), node) && handle.writes() && handle.level() == Level::Off
                };
                for handle in shard.values().filter(of_file) {
                    state.changing.push(Changing {
                        owner: handle.owner(),
                        process: handle.process(),
                        handle: (mount.id(), handle.id()),
                        since: clock::now(),
                        settled: Some(clock::now()),
                        flushed: None,
                        unjudged: true,
                    });
                }
            });
        }
    }
}

/// Whether the handle's owner has written on after another has taken the file's last name away: then it is that which has.
pub(super) fn written_late<'s>(open: &FileHandle, state: &'s FileState, stat: &Stat) -> Option<&'s TakenAway> {
    let taken = state.taken_away.as_deref()?;
    let is_writer = open.is_unjudged() && open.owner() != taken.owner;
    (is_writer && (taken.size, taken.mtime) != (stat.size, stat.mtime)).then_some(taken)
}

/// The lock of a file whose content is to be changed in place. Another owner's handle that is being closed is waited for.
pub(super) fn lock_to_change(node: &Arc<Node>, owner: OwnerId) -> MutexGuard<'_, FileState> {
    loop {
        let state = node.content().lock();
        let now = clock::now();
        let closing = |changing: &Changing| {
            is_others(changing, owner)
                && changing
                    .settled
                    .is_some_and(|settled| is_younger(settled, now, CLOSING_FOR))
        };
        if !state.changing.iter().any(closing) {
            return state;
        }
        drop(state);
        std::thread::sleep(CLOSING_STEP);
    }
}

/// A change by another owner that keeps this one from doing what it intends.
pub(super) fn change_under_way(state: &FileState, owner: OwnerId, intent: Intent) -> Option<Changing> {
    let in_place = matches!(intent, Intent::Replace | Intent::Edit);
    change_unsettled(state, owner).or_else(|| {
        state
            .changing
            .iter()
            .copied()
            .find(|changing| in_place && changing.unjudged && is_others(changing, owner))
    })
}

/// A change by another owner of which nothing is known to be there yet.
pub(super) fn change_unsettled(state: &FileState, owner: OwnerId) -> Option<Changing> {
    if state.changing.is_empty() {
        return None;
    }
    let now = clock::now();
    let unsettled = |changing: &Changing| {
        is_others(changing, owner) && changing.settled.is_none() && is_younger(changing.since, now, UNSETTLED_FOR)
    };
    state.changing.iter().copied().find(unsettled)
}

/// Whether another owner may go on writing the file, whatever becomes of its name.
pub(super) fn others_write_on(state: &FileState, owner: OwnerId) -> bool {
    state
        .changing
        .iter()
        .any(|changing| changing.unjudged && is_others(changing, owner))
}

/// Whether all who may change the file without a request have just closed it, as far as is known: the kernel tells the last
/// close some time after the program has gone on.
pub(super) fn all_are_closing(state: &FileState) -> bool {
    let now = clock::now();
    let closing = |changing: &Changing| {
        changing
            .flushed
            .is_some_and(|flushed| is_younger(flushed, now, TOLD_WITHIN))
    };
    state.writers.len() <= state.changing.len() && state.changing.iter().all(closing)
}

/// The process through whose handle a file is being written.
pub(super) fn writer_of(changing: &Changing) -> Option<Writer> {
    let pid = changing.process?.tgid;
    let command = sys::command_of(pid).ok()?;
    Some(Writer { command, pid })
}

/// The level of a name whose file another owner is writing through a guarded handle: moved to an unguarded name, what that one
/// writes is kept all the same.
pub(super) fn level_beside_writers(level: Level, state: &FileState, owner: OwnerId) -> Level {
    if level == Level::Off && others_write_on(state, owner) {
        Level::Keep
    } else {
        level
    }
}

/// Notes that an owner has taken the file's last name away, and where it is kept.
pub(super) fn note_taken_away(
    state: &mut FileState,
    (owner, operation): (OwnerId, &'static str),
    stat: &Stat,
    kept: Option<&Slot>,
) {
    if others_write_on(state, owner) {
        state.taken_away = Some(Box::new(TakenAway {
            owner,
            operation,
            kept: kept.map(|slot| slot.name().to_string_lossy().into_owned()),
            at: clock::now(),
            size: stat.size,
            mtime: stat.mtime,
        }));
    }
}

fn is_others(changing: &Changing, owner: OwnerId) -> bool {
    changing.owner != owner || owner == OwnerId::NOBODY
}

/// Whether something happened less than `bound` ago; not where the clock has been set back since.
pub(super) fn is_younger(at: Timestamp, now: Timestamp, bound: Duration) -> bool {
    let of = |at: Timestamp| Some(Duration::new(u64::try_from(at.sec).ok()?, at.nsec));
    let age = || of(now)?.checked_sub(of(at)?);
    age().is_some_and(|age| age < bound)
}
