//! The last changes, as few as answer "what did somebody else do last?" for every owner.
//!
//! Owns two slots. Never grows with the number of changes or owners.

use super::OwnerId;
use super::version::{Author, Change};

/// The last change, and the last one made by a different author.
///
/// Two slots are enough: for an owner who did not make the last change, that is the answer; for the one who did, the
/// other slot holds the last change by anybody else.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct History(Option<Box<Slots>>);

/// Apart, since most files are never changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slots {
    last: Change,
    other: Option<Change>,
}

impl History {
    /// Adds a change, later than all before it.
    pub fn record(&mut self, change: Change) {
        match &mut self.0 {
            Some(slots) => {
                if slots.last.author != change.author {
                    slots.other = Some(slots.last);
                }
                slots.last = change;
            }
            None => {
                self.0 = Some(Box::new(Slots {
                    last: change,
                    other: None,
                }));
            }
        }
    }

    /// The last change.
    #[must_use]
    pub fn last(&self) -> Option<&Change> {
        self.0.as_ref().map(|slots| &slots.last)
    }

    /// The last change that is foreign to `owner`.
    #[must_use]
    pub fn last_foreign(&self, owner: OwnerId) -> Option<&Change> {
        let slots = self.0.as_ref()?;
        if slots.last.author.is_foreign_to(owner) {
            return Some(&slots.last);
        }
        debug_assert!(slots.other.is_none_or(|other| other.author != Author::Owner(owner)));
        slots.other.as_ref()
    }

    /// The last change by `owner`, as far as it is known still.
    #[must_use]
    pub fn last_of(&self, owner: OwnerId) -> Option<&Change> {
        let slots = self.0.as_ref()?;
        let own = |change: &&Change| change.author == Author::Owner(owner);
        Some(&slots.last)
            .filter(own)
            .or_else(|| slots.other.as_ref().filter(own))
    }

    /// Whether nothing was changed since the guard began.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}
