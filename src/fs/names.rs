//! Taking names away.

use std::ffi::OsStr;
use std::sync::Arc;

use super::caller::{Arrival, At, Caller, Who};
use super::changing::{change_under_way, level_beside_writers, note_taken_away, others_write_on};
use super::errno::{FsError, Result};
use super::judge::{Subject, at};
use super::mount::Mount;
use super::rename::lock_both;
use crate::audit::Change;
use crate::faults::{self, point};
use crate::guard::{Intent, Keep, Level};
use crate::store::{DirState, Expected, Kind, Node, StoreError, libc_flags as c};
use crate::sys;

/// Times a removal is judged again when the file changes between judgement and removal.
const TRIES: usize = 3;

impl Mount {
    /// Removes a name that is not a directory's.
    ///
    /// # Errors
    /// A refusal; the backing filesystem's.
    pub fn unlink(&self, caller: &Caller, parent: u64, name: &OsStr) -> Result<()> {
        let who = self.arrive(caller, Arrival::Other);
        let dir = self.node(parent)?;
        self.refuse_hidden(&dir, name)?;
        self.check_dir(&who, &dir)?;
        self.refuse_rules_name(&who, "unlink", &dir, name)?;
        let at = at(&dir, name);
        let mut names = dir.names().lock();
        self.evidence_goes(&dir, name);
        let mut tries = TRIES;
        let done = loop {
            tries -= 1;
            self.publish_name(&dir, &mut names, name);
            let node = self.guard().store.find(&dir, name)?;
            let level = self.level_of_file(&who, Some(&dir), name, &node);
            match self.unlink_found(&who, &at, &node, level) {
                // Changed between judgement and removal: judged again, as what it is now.
                Err(FsError::Store(StoreError::Changed)) if tries > 0 => {}
                other => {
                    if other.is_ok() {
                        self.record_change(&who, ("unlink", Change::Remove), (&at, None), level, None);
                    }
                    break other;
                }
            }
        };
        if done.is_ok() {
            self.entry_gone(&dir, name);
            self.name_changed(&dir, name);
        }
        drop(names);
        done
    }

    /// Publishes a staged name whose directory's lock is held; if the name is lost to somebody, the operation goes on
    /// with what is there.
    pub(super) fn publish_name(&self, dir: &Arc<Node>, names: &mut DirState, name: &OsStr) {
        if let Some(node) = names.staged.get(name).cloned()
            && let Err(error) = self.guard().publish_in(dir, names, &node)
        {
            log::info!("a file was not published: {error}");
        }
    }

    fn unlink_found(&self, who: &Who, at: &At, node: &Arc<Node>, level: Level) -> Result<()> {
        let Some(dir) = &at.dir else {
            return Err(FsError::Errno(c::ENOENT));
        };
        let guard = self.guard();
        if node.kind() != Kind::Regular {
            self.remove_plainly(dir, &at.name)?;
            if level != Level::Off {
                self.note_bound(who, at, None);
            }
            return Ok(());
        }
        let mut state = node.content().lock();
        // As it is now that nobody who comes through a mount can change it any more.
        let stat = &guard.store.stat(node)?;
        if stat.nlink <= 1 {
            // Its last name: whoever still has it open, or stands by it, goes on by descriptor.
            guard.store.pin(node)?;
        }
        let level = level_beside_writers(level, &state, who.owner);
        if level == Level::Off {
            self.remove_plainly(dir, &at.name)
                .inspect_err(|_| node.unpin_last(stat.nlink))?;
            self.note_links(node);
            return Ok(());
        }
        let (there, under_way) = (
            Some((&**node, stat, guard.credit(node, stat, &state))),
            change_under_way(&state, who.owner, Intent::Remove),
        );
        let subject = Subject {
            operation: "unlink",
            intent: Intent::Remove,
            at,
            there,
            owner: who.owner,
            under_way,
            level,
        };
        let verdict = self.judge(who, &subject);
        let Some(keep) = verdict.inspect_err(|_| node.unpin_last(stat.nlink))?.keeps() else {
            self.remove_plainly(dir, &at.name)
                .inspect_err(|_| node.unpin_last(stat.nlink))?;
            self.note_bound(who, at, None);
            self.note_links(node);
            return Ok(());
        };
        // Content that another name still leads to is not displaced.
        let last = stat.nlink <= 1;
        let unseen = keep == Keep::Yes;
        let keep = last && (unseen || others_write_on(&state, who.owner)) && guard.store.attic().is_on();
        let expected = Expected {
            key: node.key(),
            token: stat.token(),
        };
        let removed = guard.store.remove_judged((dir, &at.name), node, &expected, keep);
        let slot = match removed {
            Ok(slot) => slot,
            Err(error) => {
                node.unpin_last(stat.nlink);
                return Err(if keep {
                    self.cannot_keep(who, &subject, error)
                } else {
                    error.into()
                });
            }
        };
        // An outsider may have taken the other names away meanwhile: then this was the last.
        let is_last_now = || guard.store.stat(node).is_ok_and(|stat| stat.nlink <= 1);
        let keep = keep || unseen && !last && slot.is_some() && is_last_now();
        state.in_attic = keep && slot.is_some();
        if last {
            note_taken_away(&mut state, (who.owner, "unlink"), stat, slot.as_ref().filter(|_| keep));
        }
        if unseen && keep && slot.is_some() && stat.size > 0 && level == Level::Guard {
            guard.events().displaced_unread(who.owner);
        }
        self.settle_slot(slot, keep, who, "unlink", at, stat.size);
        self.note_bound(who, at, None);
        if !last || keep || state.handles > 0 {
            self.note_links(node);
        }
        drop(state);
        Ok(())
    }

    /// A link has gone or come: the time of change moved, the content did not.
    pub(super) fn note_links(&self, node: &Arc<Node>) {
        let guard = self.guard();
        if let Ok(stat) = guard.store.stat(node) {
            guard.ledger.with_known_file(node.key(), |record| {
                let before = record.token();
                if before.size == stat.size && before.mtime == stat.mtime {
                    record.retoken(stat.token());
                }
            });
        }
    }

    fn remove_plainly(&self, dir: &Arc<Node>, name: &OsStr) -> Result<()> {
        let fd = self.guard().store.fd(dir)?;
        Ok(sys::unlink_at(&*fd, name)?)
    }

    /// Removes a directory, which must be empty: a staged file in it counts.
    ///
    /// # Errors
    /// The backing filesystem's.
    pub fn rmdir(&self, caller: &Caller, parent: u64, name: &OsStr) -> Result<()> {
        let who = self.arrive(caller, Arrival::Other);
        let dir = self.node(parent)?;
        self.refuse_hidden(&dir, name)?;
        self.check_dir(&who, &dir)?;
        self.refuse_rules_name(&who, "rmdir", &dir, name)?;
        faults::hit(point::RMDIR_ARRIVED);
        let store = &self.guard().store;
        let (node, _) = store.lookup(&dir, name)?;
        self.is_as_told(&who, (&dir, name), Some(&node))?;
        if node.kind() != Kind::Directory {
            return Err(FsError::Errno(c::ENOTDIR));
        }
        // Nobody may stage a file in it meanwhile.
        let locks = lock_both(&dir, &node);
        if store.peek(&dir, name)?.is_none_or(|(key, _)| key != node.key()) {
            return Err(FsError::Store(StoreError::Moved));
        }
        if node.has_staged() {
            return Err(FsError::Errno(c::ENOTEMPTY));
        }
        self.evidence_goes(&dir, name);
        store.pin(&node)?;
        let done = sys::rmdir_at(&*store.fd(&dir)?, name);
        if done.is_err() {
            node.unpin();
        } else {
            self.entry_gone(&dir, name);
            self.name_changed(&dir, name);
            if self.level_of(&who, Some(&dir), name) != Level::Off {
                self.note_bound(&who, &at(&dir, name), None);
                let change = ("rmdir", Change::Remove);
                self.record_change(&who, change, (&at(&dir, name), None), Level::Guard, None);
            }
        }
        drop(locks);
        Ok(done?)
    }
}
