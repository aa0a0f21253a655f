//! The views that single processes hold, of one file or one name.
//!
//! Owns when a process objects. Never licenses anything: a process view can only make a standing worse.

use smallvec::SmallVec;

use super::history::History;
use super::version::Generation;
use super::{OwnerId, Process};

/// What one process saw last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ProcessView {
    owner: OwnerId,
    process: Process,
    generation: Generation,
    /// What it saw was that nothing is there.
    miss: bool,
    /// The process was refused: the owner's next observation, by any of its processes, counts as its own.
    refused: bool,
}

/// The process views of one file or one name, in order of owner and process: there may be very many.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ProcessViews(SmallVec<[ProcessView; 1]>);

impl ProcessViews {
    /// The process (if it is known) saw `generation`; those of the same owner that wait for it saw it too.
    pub(super) fn observe(&mut self, owner: OwnerId, process: Option<Process>, generation: Generation, miss: bool) {
        let first = self.0.partition_point(|view| view.owner < owner);
        let of_owner = self.0[first..].iter_mut().take_while(|view| view.owner == owner);
        for view in of_owner.filter(|view| view.refused) {
            (view.generation, view.miss, view.refused) = (generation, miss, false);
        }
        let Some(process) = process else { return };
        match self.position(owner, process) {
            Ok(index) => (self.0[index].generation, self.0[index].miss) = (generation, miss),
            Err(index) => self.0.insert(
                index,
                ProcessView {
                    owner,
                    process,
                    generation,
                    miss,
                    refused: false,
                },
            ),
        }
    }

    /// Moves the view of a process that has one. Never makes one: whoever writes need not hold a copy.
    pub(super) fn advance(&mut self, owner: OwnerId, process: Option<Process>, generation: Generation, miss: bool) {
        if let Some(view) = process.and_then(|process| self.find_mut(owner, process)) {
            (view.generation, view.miss, view.refused) = (generation, miss, false);
        }
    }

    /// Whether the process was told that nothing is there, and has seen nothing there since.
    pub(super) fn is_miss(&self, owner: OwnerId, process: Process) -> bool {
        self.position(owner, process).is_ok_and(|index| self.0[index].miss)
    }

    /// Whether the process holds a copy older than the last change by anybody else.
    pub(super) fn is_old(&self, owner: OwnerId, process: Process, history: &History) -> bool {
        let Ok(index) = self.position(owner, process) else {
            return false;
        };
        history
            .last_foreign(owner)
            .is_some_and(|change| self.0[index].generation < change.generation)
    }

    /// The owner's processes that hold a copy older than the last change by anybody else.
    pub(super) fn old(&self, owner: OwnerId, history: &History) -> Vec<Process> {
        let Some(change) = history.last_foreign(owner) else {
            return Vec::new();
        };
        let views = self.0.iter().filter(|view| view.owner == owner);
        views
            .filter(|view| view.generation < change.generation)
            .map(|view| view.process)
            .collect()
    }

    /// Lets the owner's next observation count as the process's own.
    pub(super) fn refuse(&mut self, owner: OwnerId, process: Option<Process>) {
        if let Some(view) = process.and_then(|process| self.find_mut(owner, process)) {
            view.refused = true;
        }
    }

    pub(super) fn forget_owner(&mut self, owner: OwnerId) {
        self.0.retain(|view| view.owner != owner);
    }

    pub(super) fn retain_owners(&mut self, mut keep: impl FnMut(OwnerId) -> bool) {
        self.0.retain(|view| keep(view.owner));
    }

    pub(super) fn retain(&mut self, mut keep: impl FnMut(Process) -> bool) {
        self.0.retain(|view| keep(view.process));
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn find_mut(&mut self, owner: OwnerId, process: Process) -> Option<&mut ProcessView> {
        let index = self.position(owner, process).ok()?;
        self.0.get_mut(index)
    }

    /// Where the view is, or where it belongs.
    fn position(&self, owner: OwnerId, process: Process) -> Result<usize, usize> {
        self.0
            .binary_search_by_key(&(owner, process), |view| (view.owner, view.process))
    }
}
