//! The threads requests come from, cached by number and proven on every call not to be another's.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hashbrown::HashMap;

use super::record::{Proof, Record, Records};
use crate::guard::Process;
use crate::sync::{Mutex, Sharded};
use crate::sys;

/// One thread, and what the layer above notes about it. Forgotten when it exits, or when it is long unused.
pub struct Thread<T> {
    /// Its number.
    pub tid: u32,
    /// Its process.
    pub process: Process,
    /// The command's name when the process was first met; see `command_now`.
    pub command: Arc<str>,
    /// The layer above's.
    pub notes: Mutex<T>,
    pub(super) record: Arc<Record>,
    proof: Proof,
    used: AtomicU64,
}

impl<T> fmt::Debug for Thread<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Thread")
            .field("tid", &self.tid)
            .field("process", &self.process)
            .field("command", &self.command)
            .finish_non_exhaustive()
    }
}

impl<T> Thread<T> {
    /// Whether it still runs; when not, its number may be another's by now.
    #[must_use]
    pub fn alive(&self) -> bool {
        self.proof.alive(self.tid)
    }

    /// The command's name at this moment (it changes at exec). Reads `/proc`: for messages, not for every request.
    #[must_use]
    pub fn command_now(&self) -> Arc<str> {
        let now = sys::read_proc_stat(self.process.tgid)
            .ok()
            .filter(|stat| stat.start == self.process.start);
        now.map_or_else(|| Arc::clone(&self.command), |stat| stat.comm.into())
    }
}

impl<T: Default> Thread<T> {
    /// Meets a thread: its process is looked up while the thread is proven to run.
    fn meet(tid: u32, records: &Records) -> Option<Self> {
        let proof = Proof::of_thread(tid)?;
        let tgid = match proof.info() {
            Some(info) => info.tgid,
            None => sys::read_proc_status(tid).ok()?.tgid,
        };
        let record = records.get(tgid)?;
        if !proof.alive(tid) {
            return None;
        }
        Some(Self {
            tid,
            process: record.process,
            command: Arc::clone(&record.command),
            notes: Mutex::default(),
            record,
            proof,
            used: AtomicU64::new(0),
        })
    }
}

type Shard<T> = HashMap<u32, Arc<Thread<T>>>;

/// The cache: a shard's lock is held for a look-up only, never for a system call.
#[derive(Debug)]
pub(super) struct Threads<T> {
    shards: Sharded<Shard<T>>,
    count: AtomicUsize,
    clock: AtomicU64,
    limit: usize,
}

impl<T: Default> Threads<T> {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            shards: Sharded::default(),
            count: AtomicUsize::new(0),
            clock: AtomicU64::new(1),
            limit: limit.max(16),
        }
    }

    pub(super) fn get(&self, tid: u32, records: &Records) -> Option<Arc<Thread<T>>> {
        if tid == 0 {
            return None;
        }
        let known = self.shards.lock(&tid).get(&tid).map(Arc::clone);
        if let Some(thread) = known {
            if thread.alive() {
                self.touch(&thread);
                return Some(thread);
            }
            self.drop_if(&thread);
        }
        let thread = Arc::new(Thread::meet(tid, records)?);
        self.touch(&thread);
        self.insert(thread)
    }

    pub(super) fn as_met(&self, tid: u32) -> Option<Arc<Thread<T>>> {
        self.shards.lock(&tid).get(&tid).map(Arc::clone)
    }

    fn touch(&self, thread: &Thread<T>) {
        thread
            .used
            .store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Of two calls that met a thread at once, the first stands, so that notes are not lost between them.
    fn insert(&self, thread: Arc<Thread<T>>) -> Option<Arc<Thread<T>>> {
        let tid = thread.tid;
        let standing = {
            let mut shard = self.shards.lock(&tid);
            let before = shard.len();
            let standing = Arc::clone(shard.entry(tid).or_insert(thread));
            self.count.fetch_add(shard.len() - before, Ordering::Relaxed);
            standing
        };
        if self.count.load(Ordering::Relaxed) > self.limit {
            self.make_room();
        }
        standing.alive().then_some(standing)
    }

    fn drop_if(&self, thread: &Arc<Thread<T>>) {
        let mut shard = self.shards.lock(&thread.tid);
        let stands = shard.get(&thread.tid).is_some_and(|now| Arc::ptr_eq(now, thread));
        let dropped = if stands { shard.remove(&thread.tid) } else { None };
        drop(shard);
        // Closing its descriptors is a system call: not under the lock.
        if dropped.is_some() {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The dead go first, then the longest unused, until a quarter of the room is free.
    fn make_room(&self) {
        let mut all = Vec::new();
        self.shards.each(|shard| all.extend(shard.values().map(Arc::clone)));
        let mut order: Vec<_> = all
            .iter()
            .map(|thread| (thread.alive(), thread.used.load(Ordering::Relaxed), thread))
            .collect();
        order.sort_unstable_by_key(|&(alive, used, _)| (alive, used));
        let surplus = order.len().saturating_sub(self.limit - self.limit / 4);
        for (_, _, thread) in order.into_iter().take(surplus) {
            self.drop_if(thread);
        }
    }

    pub(super) fn all(&self) -> Vec<Arc<Thread<T>>> {
        let mut all = Vec::new();
        self.shards.each(|shard| all.extend(shard.values().map(Arc::clone)));
        all
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}
