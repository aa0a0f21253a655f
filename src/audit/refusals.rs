//! Refusals as they happen: for those who watch now, and for those who ask later.
//!
//! Bounded. It never waits for whoever watches.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;

use super::record::{Actor, Version, View};
use crate::guard::{Intent, OwnerId, Refusal, Timestamp};
use crate::sync::Mutex;

/// Reports of one owner kept for those who ask later: nobody's are pushed out by another's.
const RECENT: usize = 128;
/// Owners whose reports are kept; beyond it, those of whoever was refused longest ago go.
const OWNERS: usize = 256;

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
    /// What was about to be done.
    pub intent: Option<Intent>,
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
        self.line_at(self.at)
    }

    /// The same as it is told later: how long ago something was is told from then.
    #[must_use]
    pub fn line_at(&self, now: Timestamp) -> String {
        let line = self.refusal.line(now, self.details.again);
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
    recent: Mutex<HashMap<OwnerId, VecDeque<Arc<Report>>>>,
    sequence: AtomicU64,
    next_watcher: AtomicU64,
}

impl Refusals {
    pub(super) fn next_sequence(&self) -> u64 {
        self.sequence.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn tell(&self, report: &Arc<Report>) {
        remember(&mut self.recent.lock(), report);
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
            report.enforced == enforced
                && (last.operation, last.code, last.changed_at) == (refusal.operation, refusal.code, refusal.changed_at)
                && last.path == refusal.path
        };
        let recent = self.recent.lock();
        recent
            .get(&owner)
            .is_some_and(|reports| reports.iter().rev().any(is_same))
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
        let mut all: Vec<_> = self.recent.lock().values().flatten().cloned().collect();
        all.sort_by_key(|report| report.sequence);
        all
    }

    pub(super) fn recent_of(&self, owner: OwnerId) -> Vec<Arc<Report>> {
        let recent = self.recent.lock();
        recent.get(&owner).into_iter().flatten().cloned().collect()
    }

    pub(super) fn retain(&self, mut keep: impl FnMut(OwnerId) -> bool) {
        self.recent.lock().retain(|owner, _| keep(*owner));
    }
}

fn remember(recent: &mut HashMap<OwnerId, VecDeque<Arc<Report>>>, report: &Arc<Report>) {
    if recent.len() == OWNERS && !recent.contains_key(&report.owner) {
        let latest = |reports: &VecDeque<Arc<Report>>| reports.back().map(|report| report.sequence);
        let oldest = recent.iter().min_by_key(|(_, reports)| latest(reports));
        let oldest = oldest.map(|(owner, _)| *owner);
        oldest.and_then(|owner| recent.remove(&owner));
    }
    let own = recent.entry(report.owner).or_default();
    if own.len() == RECENT {
        own.pop_front();
    }
    own.push_back(Arc::clone(report));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::{Code, Step, Why};

    fn report(owner: u32, path: &str, sequence: u64) -> Arc<Report> {
        Arc::new(Report {
            sequence,
            at: Timestamp::default(),
            owner: OwnerId(owner),
            enforced: true,
            refusal: Refusal {
                operation: "open",
                path: path.to_owned(),
                code: Code::NotObserved,
                errno_text: String::new(),
                owner: String::new(),
                changed_by: None,
                changed_at: None,
                step: Step::ReadThenRetry,
                why: Why::NeverRead,
                writer: None,
                kept: None,
            },
            details: Details::default(),
        })
    }

    // semantics: W5
    #[test]
    fn nobodys_reports_are_pushed_out_by_anothers() {
        let refusals = Refusals::default();
        let tell = |owner: u32, path: &str| refusals.tell(&report(owner, path, refusals.next_sequence()));
        tell(1, "mine");
        for number in 0..3 * RECENT {
            tell(2, &number.to_string());
        }
        let own = refusals.recent_of(OwnerId(1));
        assert_eq!((own.len(), own[0].refusal.path.as_str()), (1, "mine"));
        let others = refusals.recent_of(OwnerId(2));
        assert_eq!(others.len(), RECENT);
        assert_eq!(others[RECENT - 1].refusal.path, (3 * RECENT - 1).to_string());
        let all: Vec<u64> = refusals.recent().iter().map(|report| report.sequence).collect();
        assert!(all.is_sorted() && all.len() == RECENT + 1, "{all:?}");
        // Owners are bounded, too: whoever was refused longest ago is forgotten first.
        for owner in 3..u32::try_from(OWNERS).unwrap() + 2 {
            tell(owner, "f");
        }
        assert!(refusals.recent_of(OwnerId(1)).is_empty());
        assert_eq!(refusals.recent_of(OwnerId(2)).len(), RECENT);
        refusals.retain(|owner| owner == OwnerId(2));
        assert_eq!(refusals.recent().len(), RECENT);
    }
}
