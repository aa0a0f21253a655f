//! What the guard did: refusals for those who watch, and counts.
//!
//! Bounded everywhere. Never blocks an operation: whoever watches must take a report at once.

mod notices;

pub use notices::{LineSink, Notices};

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;

use crate::guard::{OwnerId, Refusal, Timestamp};
use crate::sync::{Mutex, Sharded};

/// Reports kept for those who ask later.
const RECENT: usize = 256;

/// One refusal, as it happened.
#[derive(Debug, Clone)]
pub struct Report {
    /// Counts up from 1 for each guard.
    pub sequence: u64,
    /// When.
    pub at: Timestamp,
    /// Whose change was refused.
    pub owner: OwnerId,
    /// Whether it was refused, or only recorded (`--mode observe`).
    pub enforced: bool,
    /// What, where, why, and what clears it.
    pub refusal: Refusal,
}

impl Report {
    /// The report in one line.
    #[must_use]
    pub fn line(&self) -> String {
        let line = self.refusal.line(self.at);
        if self.enforced {
            line
        } else {
            line.replacen("refused:", "would be refused:", 1)
        }
    }
}

/// A count of things that happened.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Counts one more.
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// The count.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What one owner did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OwnerCounts {
    /// Requests.
    pub operations: u64,
    /// Reads and misses that counted as observations.
    pub observations: u64,
    /// Refusals, enforced or not.
    pub refusals: u64,
}

/// Takes reports as they happen, on the thread of the refused request: it must not block.
pub type Sink = Box<dyn Fn(&Report) + Send + Sync>;

/// Names a watcher, to end it by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatcherId(u64);

struct Watcher {
    id: WatcherId,
    owner: Option<OwnerId>,
    sink: Sink,
}

impl std::fmt::Debug for Watcher {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Watcher")
            .field("id", &self.id)
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}

/// Where reports go, and what is counted.
#[derive(Debug, Default)]
pub struct Events {
    watchers: Mutex<Vec<Watcher>>,
    recent: Mutex<VecDeque<Arc<Report>>>,
    sequence: AtomicU64,
    next_watcher: AtomicU64,
    by_owner: Sharded<HashMap<OwnerId, OwnerCounts>>,
    /// Requests from the kernel.
    pub operations: Counter,
    /// Reads and misses that counted as observations.
    pub observations: Counter,
    /// Refusals, enforced or not.
    pub refusals: Counter,
    /// Files kept in the attic.
    pub kept: Counter,
    /// Changes let through by `unclobber allow`.
    pub allowed: Counter,
    /// What is said besides refusals.
    pub notices: Notices,
}

impl Events {
    /// Passes a refusal on to whoever watches.
    pub fn refused(&self, at: Timestamp, owner: OwnerId, enforced: bool, refusal: Refusal) {
        self.refusals.add();
        self.by_owner.lock(&owner).entry(owner).or_default().refusals += 1;
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed) + 1;
        let report = Arc::new(Report {
            sequence,
            at,
            owner,
            enforced,
            refusal,
        });
        log::warn!(target: "unclobber::refusal", "{}", report.line());
        {
            let mut recent = self.recent.lock();
            if recent.len() == RECENT {
                recent.pop_front();
            }
            recent.push_back(Arc::clone(&report));
        }
        for watcher in &*self.watchers.lock() {
            if watcher.owner.is_none_or(|wanted| wanted == report.owner) {
                (watcher.sink)(&report);
            }
        }
    }

    /// Counts a request of an owner.
    pub fn operation(&self, owner: OwnerId) {
        self.operations.add();
        self.by_owner.lock(&owner).entry(owner).or_default().operations += 1;
    }

    /// Counts an observation of an owner.
    pub fn observation(&self, owner: OwnerId) {
        self.observations.add();
        self.by_owner.lock(&owner).entry(owner).or_default().observations += 1;
    }

    /// What one owner did.
    pub fn counts_of(&self, owner: OwnerId) -> OwnerCounts {
        self.by_owner.lock(&owner).get(&owner).copied().unwrap_or_default()
    }

    /// Forgets the counts of owners that `keep` says are forgotten.
    pub fn retain_owners(&self, mut keep: impl FnMut(OwnerId) -> bool) {
        self.by_owner.each(|shard| shard.retain(|owner, _| keep(*owner)));
    }

    /// Tells `sink` every report from now on, of one owner or of all.
    pub fn watch(&self, owner: Option<OwnerId>, sink: Sink) -> WatcherId {
        let id = WatcherId(self.next_watcher.fetch_add(1, Ordering::Relaxed));
        self.watchers.lock().push(Watcher { id, owner, sink });
        id
    }

    /// Ends a watch; the sink is not called any more when this returns.
    pub fn unwatch(&self, id: WatcherId) {
        let ended: Vec<_> = self
            .watchers
            .lock()
            .extract_if(.., |watcher| watcher.id == id)
            .collect();
        drop(ended);
    }

    /// The latest reports, oldest first.
    pub fn recent(&self) -> Vec<Arc<Report>> {
        self.recent.lock().iter().cloned().collect()
    }
}
