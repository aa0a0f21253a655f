//! Names at which there is nothing, as far as the kernel was told to remember that.
//!
//! Only on mounts of one owner, and only of names about which that owner has nothing left to be told: other processes on the
//! mount then ask no more, so that nobody would learn what they have seen. Whoever makes such a name past the mount, or
//! through another, is noticed as with names that lead somewhere; a creation that comes by what the kernel remembers and finds
//! a file is sent back to look again.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashMap;

use super::cache::{Doubt, LONG};
use super::caller::Who;
use super::ledger::entry_key;
use super::mount::Mount;
use crate::owner::Attribution;
use crate::store::Node;
use crate::sync::Sharded;

/// Names in each part of the table, at most; of further ones the kernel asks each time.
const MOST: usize = 256;
/// The kernel counts from when it has the answer.
const HELD: Duration = Duration::from_secs(LONG.as_secs() + 10);

/// A name that the kernel was told of.
#[derive(Debug)]
struct Absent {
    dir: u64,
    name: Arc<OsStr>,
    until: Instant,
}

/// All of them, by the hash of directory and name.
#[derive(Debug, Default)]
pub(super) struct Absences(Sharded<HashMap<u64, Absent>>);

impl Absences {
    /// Notes one, if there is room.
    fn note(&self, hash: u64, dir: u64, name: &OsStr) -> bool {
        let now = Instant::now();
        let mut shard = self.0.lock(&hash);
        if shard.len() >= MOST {
            shard.retain(|_, absent| absent.until > now);
        }
        let room = shard.len() < MOST;
        if room {
            let absent = Absent {
                dir,
                name: name.into(),
                until: now + HELD,
            };
            shard.insert(hash, absent);
        }
        drop(shard);
        room
    }

    /// The kernel is told otherwise, or to forget it; says whether it may have remembered it.
    pub(super) fn end(&self, hash: u64) -> bool {
        self.0.lock(&hash).remove(&hash).is_some()
    }

    fn take_all(&self) -> Vec<(u64, Arc<OsStr>)> {
        let mut all = Vec::new();
        self.0
            .each(|shard| all.extend(shard.drain().map(|(_, absent)| (absent.dir, absent.name))));
        all
    }
}

impl Mount {
    /// Whether the kernel may remember that there is nothing at a name, which was found so when this mount had seen `since`
    /// changes by others; it is noted if so.
    pub(super) fn remembers_absence(&self, who: &Who, dir: &Arc<Node>, name: &OsStr, since: u64) -> bool {
        let guard = self.guard();
        if !self.caches() || self.options().attribution != Attribution::Fixed(who.owner) {
            return false;
        }
        let told = guard.ledger.knows_absent(&entry_key(dir.key(), name), who.owner);
        if !told || Self::may_become_virtual(dir, name) || !guard.store.tells_case(dir) {
            return false;
        }
        let hash = self.entry_hash(dir, name);
        if !self.absences.note(hash, dir.id(), name) {
            return false;
        }
        // Whoever makes the name from now on finds the note.
        let still = self.changes_seen() == since;
        if !still {
            self.absences.end(hash);
        }
        still
    }

    /// Somebody else may have made a name: the kernel is to forget that there was nothing.
    pub(super) fn doubt_absence(&self, hash: u64, dir: u64, name: &OsStr) {
        if self.absences.end(hash) {
            self.doubt(Doubt::Absence(dir, name.into()));
        }
    }

    /// The same of all names.
    pub(super) fn doubt_absences(&self) {
        for (dir, name) in self.absences.take_all() {
            self.doubt(Doubt::Absence(dir, name));
        }
    }
}
