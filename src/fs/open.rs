//! Opening a file: what is observed, what is judged at once, and who moves the data afterwards.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::caller::{Arrival, At, Caller, Who};
use super::changing::{change_under_way, level_beside_writers, lock_to_change};
use super::errno::{FsError, Result};
use super::handle::{FileHandle, Opened, Opening};
use super::judge::{Subject, Verdict};
use super::ledger::Present;
use super::mount::Mount;
use crate::audit::Change;
use crate::guard::{Author, Intent, Level, Produced};
use crate::store::{FileState, Kind, Node, StoreError, libc_flags as c};
use crate::sys::{self, Stat};

/// The kernel's own flag for an open by `execve`.
pub(super) const EXEC: i32 = 0x20;
/// Times a truncation is judged again when the file changes between judgement and truncation.
const TRIES: usize = 3;
/// The flags with which the kernel opens a file by itself, to ask for its flags (`lsattr`). A program's open carries
/// `O_LARGEFILE`, save that of an old 32-bit one: whoever reads through such a handle is seen when it does.
pub(super) const BY_ITSELF: i32 = c::O_RDONLY;

impl Mount {
    /// Opens a regular file.
    ///
    /// # Errors
    /// A refusal where `O_TRUNC` would destroy what the owner has not seen; `ESTALE` where the name has come to lead
    /// elsewhere, upon which the kernel looks again; the backing filesystem's.
    pub fn open(&self, caller: &Caller, id: u64, flags: i32) -> Result<Opened> {
        let who = self.arrive(caller, Arrival::Other);
        let node = self.node(id)?;
        let truncates = flags & c::O_TRUNC != 0;
        let writes = flags & c::O_ACCMODE != c::O_RDONLY;
        if writes || truncates {
            self.refuse_rules_file(&who, "open", &node)?;
        }
        let at = if flags == BY_ITSELF {
            // By a descriptor that somebody has: there is no name that the kernel could look up again.
            At {
                certain: false,
                ..who.name_of(&node)
            }
        } else {
            self.locate(&who, &node, !writes && !truncates)?
        };
        let level = self.level_of_file(&who, at.dir.as_ref(), &at.name, &node);
        let file = self.open_backing(&node, flags)?;
        let mut state = if truncates {
            lock_to_change(&node, who.owner)
        } else {
            node.content().lock()
        };
        if state.mappers.is_empty() && state.writing.is_empty() {
            // Before it is looked what is there: what comes after that is not to be missed.
            node.clear_touched_outside();
        }
        if truncates && !writes && state.executing > 0 {
            // Of an open for writing the kernel knows this before it asks, of this one only after the file is empty.
            return Err(FsError::Errno(c::ETXTBSY));
        }
        let level = if truncates {
            level_beside_writers(level, &state, who.owner)
        } else {
            level
        };
        let mut current = level == Level::Off;
        if truncates {
            self.truncate(&who, "open", &at, &node, &mut state, &file, 0, level)?;
            self.truncated_for(&who, &node, &file)?;
            current = true;
        } else if writes && level != Level::Off {
            current = change_under_way(&state, who.owner, Intent::Edit).is_none()
                && self.has_current(&who, &at, &node, &state, &file)?;
            if current && flags & c::O_ACCMODE == c::O_RDWR {
                self.note_readable_name(&who, &at, &node);
            }
        }
        let executes = flags & EXEC != 0;
        if !writes && !executes && flags != BY_ITSELF && level != Level::Off {
            let ticks = self.guard().store.features().ticks;
            if let Some(stat) = ticks.settled(&file, sys::stat(&file)?)? {
                let now = present(&node, &stat, self.guard().credit(&node, &stat, &state));
                self.guard()
                    .observe_read((who.owner, who.process), &at, &now, (&state, &file));
            }
        }
        let opening = Opening {
            who: &who,
            node: &node,
            at,
            level,
            flags,
            file: Arc::new(file),
            current,
            replaces: truncates,
        };
        let opened = self.hold(opening, &mut state);
        drop(state);
        opened
    }

    /// Whether the name the thread came by still leads to the node.
    pub(super) fn recheck(&self, at: &At, node: &Arc<Node>) -> Result<()> {
        let (Some(dir), true) = (&at.dir, at.certain) else {
            return Ok(());
        };
        if self
            .staged_child(dir, &at.name)
            .is_some_and(|staged| Arc::ptr_eq(&staged, node))
        {
            return Ok(());
        }
        if self.guard().store.leads_to(dir, &at.name, node)? {
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
                || self.guard().store.leads_to(dir, &at.name, node).unwrap_or(false)
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
            node.note_touched_outside();
            return Ok(sys::ftruncate(file, size)?);
        }
        let intent = if size == 0 { Intent::Replace } else { Intent::Edit };
        for _ in 0..TRIES {
            let stat = sys::stat(file)?;
            let (there, under_way) = (
                Some((&**node, &stat, self.guard().credit(node, &stat, state))),
                change_under_way(state, who.owner, intent),
            );
            let subject = Subject {
                operation,
                intent,
                at,
                there,
                owner: who.owner,
                under_way,
                level,
            };
            let verdict = self.judge(who, &subject)?;
            self.keep_replaced(who, &subject, (file, &stat), verdict)?;
            let done = match verdict {
                Verdict::Judged(_) | Verdict::Overridden => {
                    self.guard().store.truncate_judged(file, &stat.token(), size)
                }
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
        let stat = self.guard().store.features().ticks.sharpen(file, sys::stat(file)?)?;
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
        self.guard().doers.changed_file(who.owner, who.process, node.key());
        Ok(())
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
