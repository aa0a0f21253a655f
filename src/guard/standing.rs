//! Where an owner stands towards what is at a name now.
//!
//! Owns the step from records to one word. Never decides what may be done.

use super::entry::{EntryRecord, EntryView};
use super::file::FileRecord;
use super::policy::ViewRule;
use super::{FileKey, OwnerId, Process};

/// The owner's view of what is there now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Standing {
    /// The owner knows nothing of it.
    Unseen,
    /// The owner knows that nothing is there, and nothing is.
    Absent,
    /// The owner has seen the version that is there.
    Current,
    /// The owner has seen something, and that is not what is there.
    Stale,
}

/// All that a standing is computed from: who asks, what is known, and what is there. The records must have been
/// refreshed under the lock that is held until the change is done.
#[derive(Debug, Clone, Copy)]
pub struct Sight<'a> {
    /// Whose standing.
    pub owner: OwnerId,
    /// The calling process, where it is known.
    pub process: Option<Process>,
    /// Whose views count.
    pub rule: ViewRule,
    /// What is known of the name.
    pub entry: Option<&'a EntryRecord>,
    /// What is known of the file that is there.
    pub file: Option<&'a FileRecord>,
    /// What is there.
    pub there: Option<FileKey>,
}

/// Where the owner stands.
#[must_use]
pub fn standing(sight: &Sight<'_>) -> Standing {
    if sight.owner == OwnerId::NOBODY {
        return Standing::Unseen;
    }
    let owner = owner_standing(sight);
    let damaging = match owner {
        // Content that the owner has not seen is protected as unseen already.
        Standing::Unseen => sight.there.is_none(),
        Standing::Absent | Standing::Current => true,
        Standing::Stale => return Standing::Stale,
    };
    if damaging && process_holds_old(sight) {
        Standing::Stale
    } else {
        owner
    }
}

/// Whether the calling process itself holds a copy, or knows of a miss, older than the last foreign change.
#[must_use]
pub fn process_holds_old(sight: &Sight<'_>) -> bool {
    let Some(process) = sight.process else { return false };
    let by_file = || {
        sight
            .there_file()
            .is_some_and(|file| file.process_is_old(sight.owner, process))
    };
    let by_name = || {
        sight
            .entry
            .is_some_and(|entry| entry.process_is_old(sight.owner, process, sight.there))
    };
    sight.rule == ViewRule::Process && (by_file() || by_name())
}

/// Whether somebody else changed what is there, or put it there, and the owner has not observed it since.
#[must_use]
pub fn foreign(sight: &Sight<'_>) -> bool {
    sight.there_file().is_some_and(|file| file.is_foreign(sight.owner))
        || sight.entry.is_some_and(|entry| entry.is_foreign(sight.owner))
}

impl<'a> Sight<'a> {
    /// The record of the file, if a file is there at all.
    fn there_file(&self) -> Option<&'a FileRecord> {
        self.there.and(self.file)
    }
}

fn owner_standing(sight: &Sight<'_>) -> Standing {
    let name = sight.entry.and_then(|entry| entry.view(sight.owner));
    let Some(there) = sight.there else {
        return match name {
            None => Standing::Unseen,
            Some(EntryView::Absent) => Standing::Absent,
            Some(EntryView::Present(_)) => Standing::Stale,
        };
    };
    match sight
        .file
        .and_then(|file| file.view(sight.owner).map(|seen| seen == file.generation()))
    {
        Some(true) => Standing::Current,
        Some(false) => Standing::Stale,
        None => match name {
            Some(EntryView::Present(seen)) if seen != there => Standing::Stale,
            Some(EntryView::Present(_) | EntryView::Absent) | None => Standing::Unseen,
        },
    }
}
