//! Reading as an observation (O3): what a read makes known to its owner.
//!
//! Owns the moment at which a version counts as seen. Judges nothing.

use std::os::fd::OwnedFd;

use super::Guard;
use super::caller::At;
use super::changing::change_unsettled;
use super::ledger::{Present, entry_key};
use crate::clock;
use crate::guard::{Author, OwnerId, Process};
use crate::store::FileState;
use crate::sys;

/// Seconds after which the kernel has written changed pages back, by far: it begins to after 30 by default.
const LONG_WRITTEN_BACK: i64 = 600;

impl Guard {
    /// O3: the owner reads the file, reached by this name. The file's lock is held.
    ///
    /// What another owner is in the middle of changing is no version: reading it observes nothing.
    pub(super) fn observe_read(
        &self,
        (owner, process): (OwnerId, Option<Process>),
        at: &At,
        present: &Present,
        (state, data): (&FileState, &OwnedFd),
    ) {
        if change_unsettled(state, owner).is_some() {
            return;
        }
        self.events().observation(owner);
        let moved = self.ledger.with_file(present, |file| {
            let moved = !file.is_current(owner);
            file.observe(owner, process);
            moved.then(|| (file.generation(), file.history().last().map(|last| last.author)))
        });
        if let Some((generation, author)) = moved {
            if may_be_stored_on(author, present) {
                date_further_stores(data);
            }
            if self.events().is_recording_observations() {
                self.record_read((owner, process), at, present, generation);
            }
        }
        if let Some(dir) = &at.dir {
            let key = entry_key(dir.key(), &at.name);
            self.ledger.observe_present(key, owner, process, present.key);
        }
    }
}

/// Whether somebody else may have stored into pages of the file through a mapping that are still to be written back.
///
/// Another store into such a page moves no time. A mapping outlives the handle it was made by, and whoever changed the file
/// last is not the only one; but what has lain for long was written back.
fn may_be_stored_on(author: Option<Author>, present: &Present) -> bool {
    author.is_some() || clock::now().sec.saturating_sub(present.token.ctime.sec) < LONG_WRITTEN_BACK
}

/// Makes further stores through mappings move the file's times, before what is in it now is read.
fn date_further_stores(data: &OwnedFd) {
    if let Err(error) = sys::start_writeback(data) {
        log::debug!("{error}");
    }
}
