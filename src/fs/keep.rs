//! Keeping content that is about to be overwritten in place.
//!
//! Whatever goes wrong here, a change that has been allowed does not fail for it.

use std::os::fd::OwnedFd;

use super::caller::{At, Who};
use super::judge::Verdict;
use super::mount::Mount;
use crate::guard::{Intent, Keep, Level};
use crate::sys::Stat;

impl Mount {
    /// Keeps what a truncation is about to do away with: what its owner has not seen, and of a whole content also what
    /// others made. What the owner itself made last is its own to replace.
    pub(super) fn keep_replaced(
        &self,
        who: &Who,
        (operation, intent): (&'static str, Intent),
        at: &At,
        (file, stat): (&OwnedFd, &Stat),
        (verdict, level): (Verdict, Level),
    ) {
        let own = who.judged.get().is_some_and(|judged| judged.own);
        match verdict {
            Verdict::Judged(Keep::Yes) if level != Level::Keep => {
                self.keep_copy(who, operation, at, (file, stat), level);
            }
            // At level keep nothing is asked of anybody: an owner that writes its own again and again pays nothing.
            Verdict::Judged(_) if intent == Intent::Replace && !own => {
                self.keep_copy(who, operation, at, (file, stat), Level::Keep);
            }
            Verdict::Judged(_) | Verdict::Exclusive | Verdict::Plain | Verdict::Recorded => {}
        }
    }

    /// Copies content that is about to be overwritten in place to the attic; at level keep only what is cheap to copy.
    /// What cannot be kept is counted.
    pub(super) fn keep_copy(
        &self,
        who: &Who,
        operation: &'static str,
        at: &At,
        (file, stat): (&OwnedFd, &Stat),
        level: Level,
    ) {
        let guard = self.guard();
        if stat.size == 0 || !guard.store.attic().is_on() {
            return;
        }
        match guard.store.attic().keep_copy(file, stat, level == Level::Keep) {
            Ok(Some(slot)) => guard.note_kept(&slot, who.owner, operation, at, stat.size),
            Ok(None) => {}
            Err(error) => {
                guard.events().not_kept.add();
                log::warn!("{}: what is replaced could not be kept: {error}", guard.path_of(at));
            }
        }
    }
}
