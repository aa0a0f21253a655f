//! What is known of one name in one directory: what it leads to, who bound it there, and what owners saw at it.
//!
//! Owns the observations O1, O2 and O5. Never looks the name up: what it leads to is given to it.

use smallvec::SmallVec;

use super::history::History;
use super::version::{Author, Change, Generation};
use super::views::{ProcessViews, Seen};
use super::{FileKey, OwnerId, Process};

/// What an owner saw at a name last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EntryView {
    /// Nothing.
    Absent,
    /// This file.
    Present(FileKey),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct OwnerView {
    owner: OwnerId,
    saw: Saw,
    generation: Generation,
}

/// The same as an `EntryView`, in less room: most have seen what is there.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Saw {
    Absent,
    /// What the name leads to.
    Bound,
    /// Another file.
    Other(Box<FileKey>),
}

/// One name, and every owner's and process's view of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryRecord {
    bound: Option<FileKey>,
    generation: Generation,
    history: History,
    /// In order of owner: a name may have been seen by very many.
    owners: SmallVec<[OwnerView; 1]>,
    processes: ProcessViews,
}

impl EntryRecord {
    /// A name that nobody is known to have bound elsewhere since the guard began.
    #[must_use]
    pub fn new(bound: Option<FileKey>, generation: Generation) -> Self {
        let (history, owners) = (History::default(), SmallVec::new());
        Self {
            bound,
            generation,
            history,
            owners,
            processes: ProcessViews::default(),
        }
    }

    /// What the name leads to.
    #[must_use]
    pub fn bound(&self) -> Option<FileKey> {
        self.bound
    }

    /// The version of the binding.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Who bound the name.
    #[must_use]
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Compares what the name leads to now with what was known. Says whether the generation moved.
    pub fn refresh(&mut self, bound: Option<FileKey>, change: Change) -> bool {
        if bound == self.bound {
            return false;
        }
        self.advance(bound, change);
        true
    }

    /// O1: the owner, by this process, was told that there is nothing.
    pub fn observe_absent(&mut self, owner: OwnerId, process: Option<Process>) {
        self.observe(owner, process, EntryView::Absent);
    }

    /// O1, noted late: the owner was told that there is nothing when the guard was at `at`, and the name may have been
    /// bound since. What the owner saw after `at` stands.
    pub fn observe_absent_at(&mut self, owner: OwnerId, process: Option<Process>, at: Generation) {
        if owner == OwnerId::NOBODY {
            return;
        }
        let view = OwnerView {
            owner,
            saw: Saw::Absent,
            generation: at,
        };
        match self.position(owner) {
            Ok(index) if self.owners[index].generation > at => return,
            Ok(index) => self.owners[index] = view,
            Err(index) => self.owners.insert(index, view),
        }
        self.processes.observe(owner, process, Seen::nothing(at));
    }

    /// O3, through this name: the owner, by this process, has read `file` here.
    pub fn observe_present(&mut self, owner: OwnerId, process: Option<Process>, file: FileKey) {
        self.observe(owner, process, EntryView::Present(file));
    }

    /// O3, noted late: the owner has read `file` through this name, which leads elsewhere by now.
    pub fn observe_former(&mut self, owner: OwnerId, file: FileKey) {
        if owner == OwnerId::NOBODY {
            return;
        }
        if let Err(index) = self.position(owner) {
            let view = OwnerView {
                owner,
                saw: Saw::Other(Box::new(file)),
                generation: Generation(0),
            };
            self.owners.insert(index, view);
        }
    }

    /// O2: the owner was told that there is something, and no more. It no longer knows the name as absent.
    pub fn saw_something(&mut self, owner: OwnerId) {
        if let Ok(index) = self.position(owner)
            && self.owners[index].saw == Saw::Absent
        {
            self.owners.remove(index);
        }
    }

    /// O4 and O5: the owner itself created, replaced, renamed or removed what the name leads to.
    pub fn own_change(&mut self, owner: OwnerId, process: Option<Process>, bound: Option<FileKey>, change: Change) {
        self.advance(bound, change);
        if owner != OwnerId::NOBODY {
            self.see(owner, bound.map_or(EntryView::Absent, EntryView::Present));
            let seen = Seen {
                generation: self.generation,
                miss: bound.is_none(),
            };
            self.processes.advance(owner, process, seen);
        }
    }

    /// What the owner saw here last.
    #[must_use]
    pub fn view(&self, owner: OwnerId) -> Option<EntryView> {
        let index = self.position(owner).ok()?;
        match (&self.owners[index].saw, self.bound) {
            (Saw::Absent, _) => Some(EntryView::Absent),
            (Saw::Bound, bound) => bound.map(EntryView::Present),
            (Saw::Other(file), _) => Some(EntryView::Present(**file)),
        }
    }

    /// Whether somebody else bound the name since the guard began and this owner has not observed it since.
    #[must_use]
    pub fn is_foreign(&self, owner: OwnerId) -> bool {
        let Some(change) = self.history.last_foreign(owner) else {
            return false;
        };
        let seen = self.position(owner).ok().map(|index| self.owners[index].generation);
        seen.is_none_or(|seen| seen < change.generation)
    }

    /// Whether it was this owner who led the name to what is there, and nobody else has changed that file, of which this is
    /// the history, since then.
    #[must_use]
    pub fn is_own(&self, owner: OwnerId, there: Option<FileKey>, file: Option<&History>) -> bool {
        let Some(made) = self.history.last() else { return false };
        let changed = file.and_then(|file| file.last_foreign(owner));
        owner != OwnerId::NOBODY
            && there.is_some()
            && self.bound == there
            && made.author == Author::Owner(owner)
            && changed.is_none_or(|changed| changed.generation < made.generation)
    }

    /// Whether the process's own last view is older than the last binding by anybody but its owner, and not still true:
    /// a process that was told that nothing is there, where nothing is, holds no copy of anything.
    #[must_use]
    pub fn process_is_old(&self, owner: OwnerId, process: Process, there: Option<FileKey>) -> bool {
        let still_true = || there.is_none() && self.processes.is_miss(owner, process);
        self.processes.is_old(owner, process, &self.history) && !still_true()
    }

    /// The process was refused and told to read: the owner's next read or miss here counts as the process's own.
    /// See [`super::FileRecord::refused_stale`].
    pub fn refused_stale(&mut self, owner: OwnerId, process: Option<Process>) {
        self.processes.refuse(owner, process);
    }

    /// Forgets the owner's view and those of its processes.
    pub fn forget_owner(&mut self, owner: OwnerId) {
        self.owners.retain(|view| view.owner != owner);
        self.processes.forget_owner(owner);
    }

    /// Forgets what all owners have seen for which `keep` says no.
    pub fn retain_owners(&mut self, mut keep: impl FnMut(OwnerId) -> bool) {
        self.owners.retain(|view| keep(view.owner));
        self.processes.retain_owners(keep);
    }

    /// Forgets the views of a process that has ended.
    pub fn forget_process(&mut self, process: Process) {
        self.processes.retain(|known| known != process);
    }

    /// Forgets the views of all processes for which `keep` says no.
    pub fn retain_processes(&mut self, keep: impl FnMut(Process) -> bool) {
        self.processes.retain(keep);
    }

    /// Whether nothing would be lost with this record: no views, and no change since the guard began.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.owners.is_empty() && self.processes.is_empty() && self.history.is_empty()
    }

    fn observe(&mut self, owner: OwnerId, process: Option<Process>, saw: EntryView) {
        if owner != OwnerId::NOBODY {
            self.see(owner, saw);
            let seen = Seen {
                generation: self.generation,
                miss: saw == EntryView::Absent,
            };
            self.processes.observe(owner, process, seen);
        }
    }

    fn see(&mut self, owner: OwnerId, saw: EntryView) {
        let generation = self.generation;
        let saw = match saw {
            EntryView::Absent => Saw::Absent,
            EntryView::Present(file) if self.bound == Some(file) => Saw::Bound,
            EntryView::Present(file) => Saw::Other(Box::new(file)),
        };
        let view = OwnerView { owner, saw, generation };
        match self.position(owner) {
            Ok(index) => self.owners[index] = view,
            Err(index) => self.owners.insert(index, view),
        }
    }

    /// Where the owner's view is, or where it belongs.
    fn position(&self, owner: OwnerId) -> Result<usize, usize> {
        self.owners.binary_search_by_key(&owner, |view| view.owner)
    }

    fn advance(&mut self, bound: Option<FileKey>, change: Change) {
        if self.bound != bound {
            for view in self.owners.iter_mut().filter(|view| view.saw == Saw::Bound) {
                view.saw = self.bound.map_or(Saw::Absent, |old| Saw::Other(Box::new(old)));
            }
            let is_new = |view: &&mut OwnerView| matches!(&view.saw, Saw::Other(file) if Some(**file) == bound);
            let of_new = self.owners.iter_mut().filter(is_new);
            of_new.for_each(|view| view.saw = Saw::Bound);
        }
        self.bound = bound;
        // As for files: a number out of order must not make an old view look newer than a change.
        if change.generation <= self.generation {
            self.owners.clear();
            self.processes.clear();
        }
        self.generation = self.generation.max(change.generation);
        self.history.record(change);
    }
}
