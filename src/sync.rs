//! Locks, in one place: every lock of the project is one of these, and the order they are taken in is
//! written in `docs/ARCHITECTURE.md`.

pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};

use std::hash::{BuildHasher, Hash};

use hashbrown::DefaultHashBuilder;

/// A fixed number of independently locked parts, chosen by hash, so that unrelated keys do not contend.
#[derive(Debug)]
pub struct Sharded<T> {
    shards: Box<[Mutex<T>]>,
    hasher: DefaultHashBuilder,
}

/// Number of parts; a power of two.
const SHARDS: usize = 64;

impl<T: Default> Default for Sharded<T> {
    fn default() -> Self {
        Self::new(T::default)
    }
}

impl<T> Sharded<T> {
    /// Makes the parts, each by one call of `make`.
    pub fn new(mut make: impl FnMut() -> T) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::new(make())).collect(),
            hasher: DefaultHashBuilder::default(),
        }
    }

    /// Locks the part that `key` belongs to.
    pub fn lock<K: Hash + ?Sized>(&self, key: &K) -> MutexGuard<'_, T> {
        let hash = self.hasher.hash_one(key);
        // Not the bits that the table within chooses by.
        let index = usize::try_from((hash >> 32) & (SHARDS as u64 - 1)).unwrap_or(0);
        self.shards[index].lock()
    }

    /// Visits every part in turn, one lock at a time.
    pub fn each(&self, mut visit: impl FnMut(&mut T)) {
        for shard in &self.shards {
            visit(&mut shard.lock());
        }
    }
}
