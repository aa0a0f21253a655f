//! Refusals as they happen: for those who watch now, and for those who ask later.
//!
//! Bounded. It never waits for whoever watches.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::record::{Actor, Version, View};
use crate::guard::{OwnerId, Refusal, Timestamp};
use crate::sync::Mutex;

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
    /// What else is known.
    pub details: Details,
}

/// What is known of a refusal besides what its line says.
#[derive(Debug, Clone, Default)]
pub struct Details {
    /// The process that was refused.
    pub actor: Actor,
    /// The errno it got, or would have got.
    pub errno: i32,
    /// The owner's view of what is there.
    pub view: Option<View>,
    /// What is there.
    pub version: Option<Version>,
    /// The level of the path.
    pub level: &'static str,
    /// The rule of `docs/SEMANTICS.md` that decided.
    pub rule: &'static str,
    /// The owner was refused before and has not taken the step since.
    pub again: bool,
}

impl Report {
    /// The report in one line.
    #[must_use]
    pub fn line(&self) -> String {
        let line = self.refusal.line(self.at, self.details.again);
        if self.enforced {
            line
        } else {
            line.replacen("refused:", "would be refused:", 1)
        }
    }

    /// The report as an object, as `docs/EVENTS.md` describes it; `seq` counts refusals alone.
    #[must_use]
    pub fn fields(&self) -> serde_json::Value {
        super::record::fields(self)
    }
}

/// Takes reports as they happen, on the thread of the refused request: it must not block.
pub type Sink = Box<dyn Fn(&Report) + Send + Sync>;

/// Names a watcher, to end it by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatcherId(pub(super) u64);

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

/// The refusals of a guard.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    watchers: Mutex<Vec<Watcher>>,
    recent: Mutex<VecDeque<Arc<Report>>>,
    sequence: AtomicU64,
    next_watcher: AtomicU64,
}

impl Refusals {
    pub(super) fn next_sequence(&self) -> u64 {
        self.sequence.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn tell(&self, report: &Arc<Report>) {
        {
            let mut recent = self.recent.lock();
            if recent.len() == RECENT {
                recent.pop_front();
            }
            recent.push_back(Arc::clone(report));
        }
        for watcher in &*self.watchers.lock() {
            if watcher.owner.is_none_or(|wanted| wanted == report.owner) {
                (watcher.sink)(report);
            }
        }
    }

    /// Whether the same was refused before for the same cause, as far as is remembered.
    pub(super) fn is_repeated(&self, owner: OwnerId, enforced: bool, refusal: &Refusal) -> bool {
        let is_same = |report: &Arc<Report>| {
            let last = &report.refusal;
            report.owner == owner
                && report.enforced == enforced
                && (last.operation, last.code, last.changed_at) == (refusal.operation, refusal.code, refusal.changed_at)
                && last.path == refusal.path
        };
        self.recent.lock().iter().rev().any(is_same)
    }

    pub(super) fn watch(&self, owner: Option<OwnerId>, sink: Sink) -> WatcherId {
        let id = WatcherId(self.next_watcher.fetch_add(1, Ordering::Relaxed));
        self.watchers.lock().push(Watcher { id, owner, sink });
        id
    }

    pub(super) fn unwatch(&self, id: WatcherId) {
        let ended: Vec<_> = self
            .watchers
            .lock()
            .extract_if(.., |watcher| watcher.id == id)
            .collect();
        drop(ended);
    }

    pub(super) fn recent(&self) -> Vec<Arc<Report>> {
        self.recent.lock().iter().cloned().collect()
    }
}
