//! Publication: a staged file gets its name, or loses it to somebody else.

use std::sync::{Arc, Weak};

use hashbrown::HashSet;

use super::Guard;
use super::caller::At;
use super::errno::{FsError, Result, errno_text, refusal_errno};
use super::events::level_name;
use super::judge::credit;
use super::ledger::Present;
use crate::audit::Details;
use crate::clock;
use crate::guard::{Author, Code, Intent, OwnerId, Reason, Refusal, Step, There, Timestamp, Why};
use crate::store::libc_flags::{ENOENT, ESTALE};
use crate::store::{DirState, FileState, HOMELESS, Node, Place, Staged, StoreError, Winner};
use crate::sys::{self, Stat};

impl Guard {
    /// Publishes a file if it waits for that. Takes the lock of its directory and then its own.
    ///
    /// # Errors
    /// When the publication is lost, reported already, or fails.
    pub(super) fn publish(&self, node: &Arc<Node>) -> Result<()> {
        let Some(dir) = node
            .content()
            .lock()
            .staged
            .as_ref()
            .map(|staged| Arc::clone(&staged.dir))
        else {
            return Ok(());
        };
        let mut names = dir.names().lock();
        let done = self.publish_in(&dir, &mut names, node);
        drop(names);
        done
    }

    /// Publishes a file in a directory whose lock is held.
    pub(super) fn publish_in(&self, dir: &Arc<Node>, names: &mut DirState, node: &Arc<Node>) -> Result<()> {
        let mut state = node.content().lock();
        let done = self.publish_locked(dir, names, node, &mut state, None);
        drop(state);
        done.map(drop)
    }

    /// The same where the lock of the file is held, too, and it may just have been looked at. Gives the attributes it has
    /// when it is published, if that is done here.
    ///
    /// # Errors
    /// As of [`Self::publish`].
    pub(super) fn publish_locked(
        &self,
        dir: &Arc<Node>,
        names: &mut DirState,
        node: &Arc<Node>,
        state: &mut FileState,
        looked: Option<Stat>,
    ) -> Result<Option<Stat>> {
        let Some(staged) = state.staged.take() else {
            return Ok(None);
        };
        if !Arc::ptr_eq(&staged.dir, dir) {
            // Staged elsewhere meanwhile: not this caller's to publish.
            state.staged = Some(staged);
            return Ok(None);
        }
        // What was written so far is the owner's; then the link moves the time of change and nothing else.
        let before = looked.or_else(|| sys::stat(&*staged.file).ok());
        self.refresh_file(node, state, &staged, before.as_ref());
        match self.store.publish(&staged) {
            Ok(()) => {
                dir.unstage(names, &staged.name);
                node.set_place(Place {
                    parent: Some(Arc::clone(dir)),
                    name: staged.name.clone(),
                });
                self.store.unpin_named(node);
                state.tidy();
                // The directory changes now; the kernels that were told before do not know when.
                self.for_caching(|mount| mount.doubt_attributes(dir.id()));
                state.name_unsynced = !staged.durable;
                let after = sys::stat(&*staged.file).ok();
                if let (Some(before), Some(after)) = (before, after)
                    && (before.size, before.mtime) == (after.size, after.mtime)
                {
                    self.ledger
                        .with_known_file(node.key(), |record| record.retoken(after.token()));
                }
                Ok(after)
            }
            Err(StoreError::Lost(winner)) => {
                dir.unstage(names, &staged.name);
                Err(self.lose(state, staged, winner, None))
            }
            // The directory itself has gone.
            Err(error) if error.is(ENOENT) || error.is(ESTALE) => {
                dir.unstage(names, &staged.name);
                let _told = self.lose(state, staged, Winner::Nothing, Some(ENOENT));
                Err(error.into())
            }
            Err(error) => {
                // A full disk, say: it stays staged, and the next flush tries again.
                state.staged = Some(staged);
                Err(error.into())
            }
        }
    }

    fn refresh_file(&self, node: &Arc<Node>, state: &FileState, staged: &Staged, now: Option<&Stat>) {
        if let Some(stat) = now {
            let author = match credit(state) {
                // Every writer has closed it already: still nobody but its maker could write it.
                Author::Outsider => Author::Owner(staged.owner),
                author @ (Author::Owner(_) | Author::Several) => author,
            };
            let present = Present {
                key: node.key(),
                token: stat.token(),
                author,
            };
            self.ledger.with_file(&present, |_| ());
        }
    }

    /// A publication is lost. What is still empty has nothing that could be kept: whoever has it open may write to it yet.
    fn lose(&self, state: &mut FileState, staged: Box<Staged>, winner: Winner, errno: Option<i32>) -> FsError {
        state.lost = Some(winner);
        let error = self.lost(&staged, winner, errno);
        if state.handles > 0 && sys::stat(&*staged.file).is_ok_and(|stat| stat.size == 0) {
            state.lost_empty = Some((staged, errno));
        }
        error
    }

    /// What was written to a file after it had lost its name, which the kernel may have moved by itself, goes to the attic,
    /// and its writer is told. The lock of the file is held.
    pub(super) fn keep_written_after_loss(&self, state: &mut FileState) {
        let (Some(winner), Some((staged, errno))) = (state.lost, state.lost_empty.take()) else {
            return;
        };
        if sys::stat(&*staged.file).is_ok_and(|stat| stat.size > 0) {
            self.lost(&staged, winner, errno);
        } else if state.handles > 0 {
            state.lost_empty = Some((staged, errno));
        }
    }

    /// A lost publication: the winner is untouched, the loser's bytes go to the attic. `errno` is what the backing filesystem
    /// said where the directory has gone.
    fn lost(&self, staged: &Staged, winner: Winner, errno: Option<i32>) -> FsError {
        let kept = self.keep_lost(staged, errno.is_some());
        let there = match winner {
            Winner::Regular => There::Regular,
            Winner::Directory => There::Directory,
            Winner::Other => There::Other,
            Winner::Nothing => There::Nothing,
        };
        let (code, step, why) = match winner {
            Winner::Regular => (Code::NotObserved, Step::ReadThenRetry, Why::LostRace),
            Winner::Directory | Winner::Other => (Code::NotRegularFile, Step::ChooseAnotherName, Why::NotRegular),
            Winner::Nothing if errno.is_some() => (Code::IoError, Step::CheckBacking, Why::DirectoryGone),
            Winner::Nothing => (Code::IoError, Step::CheckBacking, Why::NothingThere),
        };
        let errno = errno.unwrap_or_else(|| refusal_errno(code, Intent::Create, there));
        let reason = Reason {
            code,
            step,
            why,
            intent: Intent::Create,
            there,
        };
        let at = At {
            dir: Some(Arc::clone(&staged.dir)),
            name: staged.name.clone(),
            certain: true,
            locked: true,
        };
        let (author, changed_at) = self.winner_author(&at, staged.owner);
        let refusal = Refusal {
            operation: "create",
            path: self.path_of(&at),
            code,
            errno_text: errno_text(errno),
            owner: self.owners().name(staged.owner).to_string(),
            changed_by: author,
            changed_at,
            step,
            why,
            writer: None,
            kept,
        };
        let details = Details {
            errno,
            intent: Some(Intent::Create),
            level: level_name(self.level_for_all(None, Some(&staged.dir), &staged.name, None)),
            rule: "S5",
            ..Details::default()
        };
        self.events()
            .refused(clock::now(), staged.owner, true, refusal, details);
        FsError::Refused(reason)
    }

    /// Who bound the name that was lost; the owner's own view of it goes, since what it made is not there.
    fn winner_author(&self, at: &At, loser: OwnerId) -> (Option<String>, Option<Timestamp>) {
        let now = at
            .dir
            .as_ref()
            .and_then(|dir| self.store.peek(dir, &at.name).ok().flatten());
        if let Some(key) = at.entry() {
            let there = now.map(|(key, _)| key);
            self.ledger
                .bound_by(&key, there, Author::Outsider, |entry| entry.forget_owner(loser));
        }
        (Some(crate::guard::OUTSIDE.to_owned()), now.map(|(_, stat)| stat.ctime))
    }

    /// Keeps what was written; where. `homeless`: its directory has gone.
    fn keep_lost(&self, staged: &Staged, homeless: bool) -> Option<String> {
        let size = sys::stat(&*staged.file).map_or(0, |stat| stat.size);
        if size == 0 || !self.store.attic().is_on() {
            return None;
        }
        let at = At {
            dir: Some(Arc::clone(&staged.dir)),
            name: staged.name.clone(),
            certain: true,
            locked: true,
        };
        match self.store.attic().keep_open_file(&*staged.file) {
            Ok(slot) => {
                let operation = if homeless { HOMELESS } else { "create" };
                self.note_kept(&slot, staged.owner, operation, &at, size);
                Some(slot.name().to_string_lossy().into_owned())
            }
            Err(error) => {
                self.events().not_kept.add();
                log::error!("the content of a lost creation could not be kept: {error}");
                None
            }
        }
    }

    /// Publishes what has waited for a second or more.
    pub(super) fn publish_due(&self) {
        let now = clock::now();
        // The files' own locks stand above that of the list, and may be held for as long as a write takes. What is looked at
        // stays in the list meanwhile: whoever publishes everything must find it there.
        let waiting = self.waiting.lock().clone();
        let mut settled = HashSet::new();
        for weak in &waiting {
            if !self.waits_still(weak, now) {
                settled.insert(weak.as_ptr());
            }
        }
        self.waiting.lock().retain(|known| !settled.contains(&known.as_ptr()));
    }

    /// Publishes a file that has waited for long enough; whether it waits now.
    fn waits_still(&self, node: &Weak<Node>, now: Timestamp) -> bool {
        let Some(node) = node.upgrade() else { return false };
        let since = node.content().lock().staged.as_ref().map(|staged| staged.since);
        let Some(since) = since else { return false };
        let age = (now.sec - since.sec) * 1000 + (i64::from(now.nsec) - i64::from(since.nsec)) / 1_000_000;
        if age >= 1000
            && let Err(error) = self.publish(&node)
        {
            log::info!("a file was not published: {error}");
        }
        node.content().lock().staged.is_some()
    }

    /// Publishes everything.
    pub(super) fn publish_all(&self) {
        let all: Vec<_> = self.waiting.lock().drain(..).collect();
        for node in all.iter().filter_map(Weak::upgrade) {
            if let Err(error) = self.publish(&node) {
                log::error!("a file was not published: {error}");
            }
        }
    }

    /// Publishes what waits in a directory.
    ///
    /// # Errors
    /// The first that fails; the rest is published all the same.
    pub(super) fn publish_children(&self, dir: &Arc<Node>) -> Result<()> {
        if !dir.has_staged() {
            return Ok(());
        }
        let mut names = dir.names().lock();
        let waiting: Vec<_> = names.staged.values().cloned().collect();
        let mut first = Ok(());
        for node in waiting {
            let done = self.publish_in(dir, &mut names, &node);
            if first.is_ok() {
                first = done;
            }
        }
        drop(names);
        first
    }
}
