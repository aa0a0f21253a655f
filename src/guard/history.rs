//! The last changes, as few as answer "what did somebody else do last?" for every owner.
//!
//! Owns two slots. Never grows with the number of changes or owners.

use super::OwnerId;
use super::version::{Author, Change};

/// The last change, and the last one made by a different author.
///
/// Two slots are enough: for an owner who did not make the last change, that is the answer; for the one who did, the
/// other slot holds the last change by anybody else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct History {
    last: Option<Change>,
    other: Option<Change>,
}

impl History {
    /// Adds a change, later than all before it.
    pub fn record(&mut self, change: Change) {
        if self.last.is_some_and(|last| last.author != change.author) {
            self.other = self.last;
        }
        self.last = Some(change);
    }

    /// The last change.
    #[must_use]
    pub fn last(&self) -> Option<&Change> {
        self.last.as_ref()
    }

    /// The last change that is foreign to `owner`.
    #[must_use]
    pub fn last_foreign(&self, owner: OwnerId) -> Option<&Change> {
        let last = self.last.as_ref()?;
        if last.author.is_foreign_to(owner) {
            return Some(last);
        }
        debug_assert!(self.other.is_none_or(|other| other.author != Author::Owner(owner)));
        self.other.as_ref()
    }

    /// Whether nothing was changed since the guard began.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.last.is_none()
    }
}
