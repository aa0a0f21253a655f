//! What the guard did: counts, refusals for those who watch, events for those who keep a record.
//!
//! Bounded everywhere. Never blocks an operation: whoever watches must take a report at once, and an event that finds
//! no room is counted instead.

mod counts;
mod file;
mod notices;
mod record;
mod refusals;
mod sink;

pub use counts::{ByCode, Counter, OwnerCounts};
pub use file::{EventFileOptions, numbered};
pub use notices::{LineSink, Notices};
pub use record::{Actor, Change, Changed, EVENTS_VERSION, Happened, KeptContent, Observed, Version, View, rfc3339};
pub use refusals::{Details, Report, Sink, WatcherId};

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use hashbrown::HashMap;

use crate::guard::{OwnerId, Refusal, Timestamp};
use crate::sync::{RwLock, Sharded};
use file::EventFile;
use refusals::Refusals;
use sink::{EventQueue, Shared};

/// How much is put on record, as one number that every operation looks at.
const NOTHING: u8 = 0;
const CHANGES: u8 = 1;
const OBSERVATIONS: u8 = 2;

/// Where reports and events go, and what is counted.
#[derive(Debug, Default)]
pub struct Events {
    told: Refusals,
    by_owner: Sharded<HashMap<OwnerId, OwnerCounts>>,
    recording: AtomicU8,
    queue: RwLock<Option<EventQueue>>,
    /// Requests from the kernel.
    pub operations: Counter,
    /// Reads and misses that counted as observations.
    pub observations: Counter,
    /// Refusals, enforced or not.
    pub refusals: Counter,
    /// Refusals that were only recorded.
    pub would_refuse: Counter,
    /// Refusals by code, enforced or not.
    pub by_code: ByCode,
    /// Files kept in the attic.
    pub kept: Counter,
    /// Displaced content that should have been kept and could not be.
    pub not_kept: Counter,
    /// Changes let through by `unclobber allow`.
    pub allowed: Counter,
    /// What is said besides refusals.
    pub notices: Notices,
}

impl Events {
    /// Passes a refusal on to whoever watches, and puts it on record.
    pub fn refused(&self, at: Timestamp, owner: OwnerId, enforced: bool, refusal: Refusal, mut details: Details) {
        self.refusals.add();
        self.by_code.add(refusal.code);
        if !enforced {
            self.would_refuse.add();
        }
        let mut by_owner = self.by_owner.lock(&owner);
        let counts = by_owner.entry(owner).or_default();
        counts.refusals += 1;
        counts.would_refuse += u64::from(!enforced);
        drop(by_owner);
        // Where there is no file, nothing is noted of it that could tell.
        details.again |= details.version.is_none() && self.told.is_repeated(owner, enforced, &refusal);
        let report = Arc::new(Report {
            sequence: self.told.next_sequence(),
            at,
            owner,
            enforced,
            refusal,
            details,
        });
        // A loop that tries again and again must not fill the log.
        let level = if report.details.again {
            log::Level::Debug
        } else {
            log::Level::Warn
        };
        log::log!(target: "unclobber::refusal", level, "{}", report.line());
        self.told.tell(&report);
        if self.is_recording() {
            self.record(Happened::Refused(report));
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

    /// Counts a file that an owner has displaced unread at guard, and which is kept.
    pub fn displaced_unread(&self, owner: OwnerId) {
        self.by_owner.lock(&owner).entry(owner).or_default().displaced_unread += 1;
    }

    /// What one owner did.
    pub fn counts_of(&self, owner: OwnerId) -> OwnerCounts {
        self.by_owner.lock(&owner).get(&owner).copied().unwrap_or_default()
    }

    /// Forgets the counts and reports of owners but those that `keep` names.
    pub fn retain_owners(&self, mut keep: impl FnMut(OwnerId) -> bool) {
        self.by_owner.each(|shard| shard.retain(|owner, _| keep(*owner)));
        self.told.retain(keep);
    }

    /// Tells `sink` every report from now on, of one owner or of all.
    pub fn watch(&self, owner: Option<OwnerId>, sink: Sink) -> WatcherId {
        self.told.watch(owner, sink)
    }

    /// Ends a watch; the sink is not called any more when this returns.
    pub fn unwatch(&self, id: WatcherId) {
        self.told.unwatch(id);
    }

    /// The latest reports of everybody, oldest first.
    pub fn recent(&self) -> Vec<Arc<Report>> {
        self.told.recent()
    }

    /// The latest reports of one owner, oldest first; what others were refused pushes none of them out.
    pub fn recent_of(&self, owner: OwnerId) -> Vec<Arc<Report>> {
        self.told.recent_of(owner)
    }

    /// Whether changes are put on record: to be asked before anything is done to make an event.
    pub fn is_recording(&self) -> bool {
        self.recording.load(Ordering::Relaxed) != NOTHING
    }

    /// Whether observations are, too.
    pub fn is_recording_observations(&self) -> bool {
        self.recording.load(Ordering::Relaxed) == OBSERVATIONS
    }

    /// Puts events on record from now on.
    ///
    /// # Errors
    /// When the file cannot be written to.
    pub fn record_to(&self, options: EventFileOptions, observations: bool, guard: &str, root: &str) -> io::Result<()> {
        let file = EventFile::open(options)?;
        let queue = EventQueue::start(file, guard.to_owned(), root.to_owned(), sink::ROOM)?;
        let before = self.queue.write().replace(queue);
        self.recording
            .store(if observations { OBSERVATIONS } else { CHANGES }, Ordering::Release);
        if let Some(before) = before {
            before.close();
        }
        Ok(())
    }

    /// Puts an event on record, if there is one and room in its queue.
    pub fn record(&self, happened: Happened) {
        if let Some(queue) = &*self.queue.read() {
            queue.put(happened);
        }
    }

    /// Waits until everything that has happened so far is written down, for this time at most; whether it is.
    pub fn written_within(&self, limit: Duration) -> bool {
        let wish = self.queue.read().as_ref().map(EventQueue::wish);
        wish.is_none_or(|wish| wish.wait(limit))
    }

    /// Writes what waits; nothing is put on record any more.
    pub fn stop_recording(&self) {
        self.recording.store(NOTHING, Ordering::Release);
        let queue = self.queue.write().take();
        if let Some(queue) = queue {
            queue.close();
        }
    }

    /// Events written, and events that found no room or could not be written.
    pub fn recorded(&self) -> (u64, u64) {
        let count = |shared: &Shared| (shared.written.get(), shared.dropped.get());
        self.queue.read().as_ref().map_or((0, 0), |queue| count(&queue.shared))
    }
}
