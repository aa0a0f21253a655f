//! Which named owner a process belongs to: the nearest registered process above it.
//!
//! What was found stays with the process: when those above it have died and it was given to another parent, it is
//! still who it was. A registration counts for all who live below it, also for those met before.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;

use super::record::{Record, Records};
use crate::guard::{OwnerId, Process};
use crate::sync::Mutex;

/// The process is gone, or who is above it could not be found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone;

impl std::fmt::Display for Gone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the process is gone")
    }
}

impl std::error::Error for Gone {}

/// Longer lines of descent than this are nobody's, rather than everybody's.
const MAX_DEPTH: usize = 1024;
/// Parents change while they are looked at; each change is seen and looked at again, so often.
const MAX_TRIES: usize = 8;

/// The registered processes, and the walk up to them.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) records: Records,
    roots: Mutex<HashMap<Process, (Arc<Record>, OwnerId)>>,
    /// Grows with each registration: what was found before is looked for again.
    epoch: AtomicU64,
}

impl Tree {
    pub(super) fn new(records: usize) -> Self {
        Self {
            records: Records::new(records),
            roots: Mutex::new(HashMap::new()),
            epoch: AtomicU64::new(1),
        }
    }

    pub(super) fn register(&self, root: Process, owner: OwnerId) -> Result<(), Gone> {
        let record = self
            .records
            .get(root.tgid)
            .filter(|record| record.process == root)
            .ok_or(Gone)?;
        self.prune();
        let mut roots = self.roots.lock();
        if roots.get(&root).is_some_and(|(_, before)| *before == owner) {
            return Ok(());
        }
        let epoch = self.epoch.load(Ordering::Acquire) + 1;
        {
            let mut state = record.state.lock();
            state.named = Some(owner);
            state.is_root = true;
            state.since = epoch;
            state.checked = epoch;
        }
        roots.insert(root, (record, owner));
        // Last: whoever sees this epoch sees the root, too.
        self.epoch.store(epoch, Ordering::Release);
        drop(roots);
        Ok(())
    }

    /// The root is one no more; those below it who still run keep its owner, also those never met: they are met now.
    pub(super) fn unregister(&self, root: Process) {
        let Some(owner) = self.roots.lock().get(&root).map(|(_, owner)| *owner) else {
            return;
        };
        let below = self.running_below(owner);
        let mut roots = self.roots.lock();
        for record in below.into_iter().filter(|record| record.process != root) {
            roots.entry(record.process).or_insert((record, owner));
        }
        if let Some((record, _)) = roots.remove(&root) {
            let mut state = record.state.lock();
            state.named = None;
            state.is_root = false;
            state.since = 0;
            state.checked = 0;
        }
    }

    fn running_below(&self, owner: OwnerId) -> Vec<Arc<Record>> {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        entries
            .filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()))
            .filter_map(|tgid| self.records.get(tgid))
            .filter(|record| self.named(record) == Ok(Some(owner)))
            .collect()
    }

    /// The registered processes that still run, and their owners.
    pub(super) fn roots(&self) -> Vec<(Process, OwnerId)> {
        self.prune();
        self.roots
            .lock()
            .iter()
            .map(|(&process, &(_, owner))| (process, owner))
            .collect()
    }

    /// The owners that running processes have.
    pub(super) fn owners_in_use(&self) -> Vec<OwnerId> {
        self.prune();
        let mut owners: Vec<_> = self.roots.lock().values().map(|&(_, owner)| owner).collect();
        owners.extend(self.records.owners());
        owners
    }

    fn prune(&self) {
        let all: Vec<_> = self
            .roots
            .lock()
            .values()
            .map(|(record, _)| Arc::clone(record))
            .collect();
        let dead: Vec<_> = all.into_iter().filter(|record| !record.alive()).collect();
        let mut roots = self.roots.lock();
        for record in dead {
            roots.remove(&record.process);
        }
    }

    /// The named owner of a process; `None`: it is below no registered one.
    pub(super) fn named(&self, record: &Arc<Record>) -> Result<Option<OwnerId>, Gone> {
        let epoch = self.epoch.load(Ordering::Acquire);
        {
            let state = record.state.lock();
            if state.checked >= epoch {
                return Ok(state.named);
            }
        }
        for _ in 0..MAX_TRIES {
            if let Ok(chain) = self.line_of(record, epoch) {
                return Ok(inherit(&chain, epoch));
            }
            // Somebody in the line died while we looked. If it was this one, nobody asks any more.
            if !record.alive() {
                break;
            }
        }
        Err(Gone)
    }

    /// A process and those above it, up to one that has been looked at in this epoch, or to the top.
    fn line_of(&self, record: &Arc<Record>, epoch: u64) -> Result<Vec<Arc<Record>>, Gone> {
        let mut line = vec![Arc::clone(record)];
        let mut last = Arc::clone(record);
        while let Some(parent) = self.parent_of(&last)? {
            if line.len() >= MAX_DEPTH {
                return Err(Gone);
            }
            line.push(Arc::clone(&parent));
            if parent.state.lock().checked >= epoch {
                break;
            }
            last = parent;
        }
        Ok(line)
    }

    /// The parent, proven: it had the number before and after the child was found to name it.
    fn parent_of(&self, child: &Record) -> Result<Option<Arc<Record>>, Gone> {
        for _ in 0..MAX_TRIES {
            let number = child.parent_now().ok_or(Gone)?;
            if number == 0 || child.process.tgid == 1 {
                return Ok(None);
            }
            let parent = self.records.get(number);
            if child.parent_now().ok_or(Gone)? != number {
                continue;
            }
            match parent {
                // It has that number and cannot be looked at: it is above everything that was registered.
                None => return Ok(None),
                Some(parent) if !parent.alive() => {}
                Some(parent) if parent.process.start > child.process.start => return Ok(None),
                Some(parent) => return Ok(Some(parent)),
            }
        }
        Err(Gone)
    }
}

/// Hands what the top of the line knows down to its first, and says what that one has then.
fn inherit(line: &[Arc<Record>], epoch: u64) -> Option<OwnerId> {
    let mut above = (None, 0);
    for record in line.iter().rev() {
        let mut state = record.state.lock();
        if !state.is_root && above.1 > state.since {
            (state.named, state.since) = above;
        }
        state.checked = state.checked.max(epoch);
        above = (state.named, state.since);
    }
    above.0
}
