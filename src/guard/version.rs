//! Versions and changes: what moved, who moved it, when.
//!
//! Owns the meaning of *foreign*. Never compares clocks: order comes from generations alone.

use super::{OwnerId, Timestamp};

/// A version of a file's content, or of what a name leads to.
///
/// All numbers come from one counter of the guard and are never used twice, so a later change has the greater number,
/// whatever was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Generation(pub u64);

/// Who made a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Author {
    /// An owner, through a mount. [`OwnerId::NOBODY`] is a caller who cannot be told apart.
    Owner(OwnerId),
    /// Somebody who did not come through a mount of this guard.
    Outsider,
    /// One of several owners who held the file open for writing; which one cannot be known.
    Several,
}

impl Author {
    /// Whether a change by this author is somebody else's change to `owner`.
    ///
    /// To [`OwnerId::NOBODY`] every change is: two callers who cannot be told apart need not be the same.
    #[must_use]
    pub fn is_foreign_to(self, owner: OwnerId) -> bool {
        match self {
            Self::Owner(author) => author != owner || owner == OwnerId::NOBODY,
            Self::Outsider | Self::Several => true,
        }
    }
}

/// One change, of a file's content or of what a name leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Change {
    /// The version it made.
    pub generation: Generation,
    /// Who made it.
    pub author: Author,
    /// When it was made or noticed. Shown to people, never compared.
    pub at: Timestamp,
}
