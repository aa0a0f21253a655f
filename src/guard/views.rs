//! The views that single processes hold, of one file or one name.
//!
//! Owns when a process objects. Never licenses anything: a process view can only make a standing worse.

use smallvec::SmallVec;

use super::history::History;
use super::version::Generation;
use super::{OwnerId, Process};

/// What one process saw last.
///
/// There may be very many: no byte is left between the fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ProcessView {
    start: u64,
    /// The generation, and in the lowest bits whether what it saw was that nothing is there, and whether the process was
    /// refused: then the owner's next observation, by any of its processes, counts as its own.
    seen: u64,
    owner: OwnerId,
    tgid: u32,
}

/// What a process saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    /// Which version.
    pub(super) generation: Generation,
    /// That nothing is there.
    pub(super) miss: bool,
}

impl Seen {
    /// That something is there.
    pub(super) const fn there(generation: Generation) -> Self {
        Self {
            generation,
            miss: false,
        }
    }

    /// That nothing is there.
    pub(super) const fn nothing(generation: Generation) -> Self {
        Self { generation, miss: true }
    }
}

const REFUSED: u64 = 1;
const MISS: u64 = 2;
const BITS: u32 = 2;

impl ProcessView {
    fn new(owner: OwnerId, process: Process, seen: Seen) -> Self {
        Self {
            start: process.start,
            seen: Self::packed(seen),
            owner,
            tgid: process.tgid,
        }
    }

    fn packed(seen: Seen) -> u64 {
        seen.generation.0 << BITS | if seen.miss { MISS } else { 0 }
    }

    fn process(&self) -> Process {
        Process {
            tgid: self.tgid,
            start: self.start,
        }
    }

    fn generation(&self) -> Generation {
        Generation(self.seen >> BITS)
    }

    fn is_miss(&self) -> bool {
        self.seen & MISS != 0
    }

    fn is_refused(&self) -> bool {
        self.seen & REFUSED != 0
    }

    fn refuse(&mut self) {
        self.seen |= REFUSED;
    }

    /// Sees a version; whether it was refused stays, or is over.
    fn see(&mut self, seen: Seen, stays: bool) {
        self.seen = Self::packed(seen) | if stays { self.seen & REFUSED } else { 0 };
    }
}

/// The process views of one file or one name, in order of owner and process: there may be very many.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ProcessViews(SmallVec<[ProcessView; 1]>);

impl ProcessViews {
    /// The process (if it is known) has seen this; those of the same owner that wait for it saw it too.
    pub(super) fn observe(&mut self, owner: OwnerId, process: Option<Process>, seen: Seen) {
        let first = self.0.partition_point(|view| view.owner < owner);
        let of_owner = self.0[first..].iter_mut().take_while(|view| view.owner == owner);
        of_owner
            .filter(|view| view.is_refused())
            .for_each(|view| view.see(seen, false));
        let Some(process) = process else { return };
        match self.position(owner, process) {
            Ok(index) => self.0[index].see(seen, true),
            Err(index) => self.0.insert(index, ProcessView::new(owner, process, seen)),
        }
    }

    /// Moves the view of a process that has one. Never makes one: whoever writes need not hold a copy.
    pub(super) fn advance(&mut self, owner: OwnerId, process: Option<Process>, seen: Seen) {
        if let Some(view) = process.and_then(|process| self.find_mut(owner, process)) {
            view.see(seen, false);
        }
    }

    /// Whether the process was told that nothing is there, and has seen nothing there since.
    pub(super) fn is_miss(&self, owner: OwnerId, process: Process) -> bool {
        self.position(owner, process).is_ok_and(|index| self.0[index].is_miss())
    }

    /// Whether the process holds a copy older than the last change by anybody else.
    pub(super) fn is_old(&self, owner: OwnerId, process: Process, history: &History) -> bool {
        let Ok(index) = self.position(owner, process) else {
            return false;
        };
        history
            .last_foreign(owner)
            .is_some_and(|change| self.0[index].generation() < change.generation)
    }

    /// The owner's processes that hold a copy older than the last change by anybody else.
    pub(super) fn old(&self, owner: OwnerId, history: &History) -> Vec<Process> {
        let Some(change) = history.last_foreign(owner) else {
            return Vec::new();
        };
        let views = self.0.iter().filter(|view| view.owner == owner);
        views
            .filter(|view| view.generation() < change.generation)
            .map(ProcessView::process)
            .collect()
    }

    /// Lets the owner's next observation count as the process's own.
    pub(super) fn refuse(&mut self, owner: OwnerId, process: Option<Process>) {
        if let Some(view) = process.and_then(|process| self.find_mut(owner, process)) {
            view.refuse();
        }
    }

    pub(super) fn forget_owner(&mut self, owner: OwnerId) {
        self.0.retain(|view| view.owner != owner);
    }

    pub(super) fn retain_owners(&mut self, mut keep: impl FnMut(OwnerId) -> bool) {
        self.0.retain(|view| keep(view.owner));
    }

    pub(super) fn retain(&mut self, mut keep: impl FnMut(Process) -> bool) {
        self.0.retain(|view| keep(view.process()));
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
            .binary_search_by_key(&(owner, process), |view| (view.owner, view.process()))
    }
}
