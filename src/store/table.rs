//! The table of known nodes, and the bound on descriptors kept for them.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::hash::BuildHasher;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};

use super::ROOT_ID;
use super::node::{Kind, Node, Place};
use crate::guard::FileKey;
use crate::sync::{Mutex, Sharded};
use crate::sys::{self, Handle, Stat};

/// Ids of nodes whose inode number is taken by another live node have this bit.
pub(super) const ALTERNATIVE: u64 = 1 << 63;

/// The identity of an open file, and its handle where that can be opened again.
///
/// The generation is taken from the file handle, which holds the inode's own; where the filesystem gives no handle
/// it is the time of birth.
pub(super) fn identify(fd: impl AsFd, stat: &Stat) -> (FileKey, Option<Handle>) {
    let handle = sys::handle_of(fd).ok().map(|(handle, _mount)| handle);
    let generation = match (&handle, stat.btime) {
        (Some(handle), _) => fnv1a(&handle.bytes),
        (None, Some(btime)) => u64::try_from(btime.sec)
            .unwrap_or(0)
            .wrapping_mul(1_000_000_000)
            .wrapping_add(u64::from(btime.nsec)),
        (None, None) => 0,
    };
    let key = FileKey {
        dev: stat.dev,
        ino: stat.ino,
        generation,
    };
    (key, handle.filter(|handle| handle.decodable))
}

/// The generation that a file handle stands for.
pub(super) fn generation_of(handle: &Handle) -> u64 {
    fnv1a(&handle.bytes)
}

/// FNV-1a: two handles of one inode number differ only in a few bytes of generation, which this keeps apart.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// All nodes somebody holds.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// By inode number: whoever has one finds all that have or had it, and whether it is taken as an id.
    nodes: Sharded<HashTable<Slot>>,
    /// By the generation, which is that of the file handle; where nodes are looked for by handle and the handle does not tell
    /// the inode number.
    handles: Sharded<HashMap<u64, Weak<Node>>>,
    by_handle: AtomicBool,
    /// Handles of eight bytes begin with the inode number.
    handles_tell: AtomicBool,
    hasher: DefaultHashBuilder,
    alternative: AtomicU64,
    count: AtomicUsize,
}

#[derive(Debug)]
struct Slot {
    key: FileKey,
    id: u64,
    node: Weak<Node>,
}

impl Table {
    pub(super) fn root(self: &Arc<Self>, key: FileKey, fd: Arc<OwnedFd>) -> Arc<Node> {
        let place = Place {
            parent: None,
            name: OsStr::new("").into(),
        };
        let node = Arc::new(Node::new(
            ROOT_ID,
            key,
            Kind::Directory,
            None,
            place,
            Arc::downgrade(self),
        ));
        node.pin(fd);
        let slot = Slot {
            key,
            id: ROOT_ID,
            node: Arc::downgrade(&node),
        };
        let (hash, hasher) = (self.hash(key.ino), |slot: &Slot| self.hash(slot.key.ino));
        self.nodes.lock(&key.ino).insert_unique(hash, slot, hasher);
        self.count.fetch_add(1, Ordering::Relaxed);
        node
    }

    fn hash(&self, ino: u64) -> u64 {
        self.hasher.hash_one(ino)
    }

    /// Finds or makes the node of `key`; says whether it was made.
    pub(super) fn intern(
        self: &Arc<Self>,
        key: FileKey,
        kind: Kind,
        handle: Option<Handle>,
        (dir, name): (&Arc<Node>, &OsStr),
    ) -> (Arc<Node>, bool) {
        let hash = self.hash(key.ino);
        let mut shard = self.nodes.lock(&key.ino);
        let known = shard
            .find(hash, |slot| slot.key == key)
            .and_then(|slot| slot.node.upgrade());
        if let Some(node) = known {
            drop(shard);
            node.found_at(dir, name);
            return (node, false);
        }
        // Of a node of the same key that is on its way out its successor takes over the id.
        let old = shard.find(hash, |slot| slot.key == key).map(|slot| slot.id);
        let id = old.unwrap_or_else(|| self.choose_id(&shard, key));
        let place = Place {
            parent: Some(Arc::clone(dir)),
            name: name.into(),
        };
        let node = Arc::new(Node::new(id, key, kind, handle, place, Arc::downgrade(self)));
        let slot = Slot {
            key,
            id,
            node: Arc::downgrade(&node),
        };
        match shard.find_mut(hash, |slot| slot.key == key) {
            Some(there) => *there = slot,
            None => {
                shard.insert_unique(hash, slot, |slot| self.hash(slot.key.ino));
            }
        }
        drop(shard);
        if self.finds_by_handle() && !self.handles_tell() {
            self.handles
                .lock(&key.generation)
                .insert(key.generation, Arc::downgrade(&node));
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        (node, true)
    }

    /// The inode number, where no other node of that number has it for its id.
    fn choose_id(&self, shard: &HashTable<Slot>, key: FileKey) -> u64 {
        let wanted = key.ino;
        let same = |slot: &Slot| slot.key.ino == wanted && slot.id == wanted;
        if wanted > ROOT_ID && wanted < ALTERNATIVE && shard.find(self.hash(wanted), same).is_none() {
            return wanted;
        }
        ALTERNATIVE | self.alternative.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn forget(&self, key: FileKey) {
        let mut shard = self.nodes.lock(&key.ino);
        // A newer node of the same key may already stand here; it keeps its place.
        let gone = |slot: &Slot| slot.key == key && slot.node.strong_count() == 0;
        if let Ok(slot) = shard.find_entry(self.hash(key.ino), gone) {
            slot.remove();
        }
        drop(shard);
        if self.finds_by_handle() && !self.handles_tell() {
            let mut handles = self.handles.lock(&key.generation);
            if handles
                .get(&key.generation)
                .is_some_and(|weak| weak.strong_count() == 0)
            {
                handles.remove(&key.generation);
            }
        }
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether nodes are found by file handle.
    pub(super) fn finds_by_handle(&self) -> bool {
        self.by_handle.load(Ordering::Acquire)
    }

    fn handles_tell(&self) -> bool {
        self.handles_tell.load(Ordering::Acquire)
    }

    /// Finds nodes by file handle from now on; `handle` is that of the root.
    pub(super) fn find_by_handle(&self, root: &Arc<Node>, handle: Option<&Handle>) {
        if self.finds_by_handle() {
            return;
        }
        if handle.is_some_and(|handle| handle.inode() == Some(root.key().ino)) {
            self.handles_tell.store(true, Ordering::Release);
            self.by_handle.store(true, Ordering::Release);
            return;
        }
        let generation = root.key().generation;
        self.handles.lock(&generation).insert(generation, Arc::downgrade(root));
        self.by_handle.store(true, Ordering::Release);
        self.nodes.each(|shard| {
            for slot in &*shard {
                let generation = slot.key.generation;
                self.handles
                    .lock(&generation)
                    .insert(generation, Weak::clone(&slot.node));
            }
        });
    }

    /// The live node of an id that is its inode number.
    pub(super) fn by_id(&self, id: u64) -> Option<Arc<Node>> {
        let shard = self.nodes.lock(&id);
        let slot = shard.find(self.hash(id), |slot| slot.id == id && slot.key.ino == id);
        let node = slot.and_then(|slot| slot.node.upgrade());
        drop(shard);
        node
    }

    /// The node of a file handle.
    pub(super) fn by_handle(&self, bytes: &[u8]) -> Option<Arc<Node>> {
        let generation = fnv1a(bytes);
        if !self.handles_tell() {
            return self.handles.lock(&generation).get(&generation).and_then(Weak::upgrade);
        }
        let ino = u64::from(u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?));
        let same = |slot: &Slot| slot.key.ino == ino && slot.key.generation == generation;
        let shard = self.nodes.lock(&ino);
        let node = shard.find(self.hash(ino), same).and_then(|slot| slot.node.upgrade());
        drop(shard);
        node
    }

    pub(super) fn each(&self, mut visit: impl FnMut(&Node)) {
        let mut all = Vec::new();
        self.nodes
            .each(|shard| all.extend(shard.iter().filter_map(|slot| slot.node.upgrade())));
        // Outside the locks: the last reference takes them.
        all.iter().for_each(|node| visit(node));
    }

    pub(super) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

/// The descriptors kept for nodes: first in, first out, with a second chance for those in use.
#[derive(Debug)]
pub(super) struct FdCache {
    queue: Mutex<VecDeque<Weak<Node>>>,
    limit: usize,
}

impl FdCache {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            queue: Mutex::new(VecDeque::new()),
            limit: limit.max(8),
        }
    }

    pub(super) fn keep(&self, node: &Arc<Node>, fd: &Arc<OwnedFd>) {
        if !node.cache_fd(fd) {
            return;
        }
        // Dropping the last reference to a node takes table locks: after this one is let go.
        let mut met = Vec::new();
        let mut queue = self.queue.lock();
        queue.push_back(Arc::downgrade(node));
        // Twice round at most: the first pass may only clear the marks of use.
        let mut tries = queue.len() * 2;
        while queue.len() > self.limit && tries > 0 {
            tries -= 1;
            let Some(oldest) = queue.pop_front() else { break };
            let Some(node) = oldest.upgrade() else { continue };
            if !node.evict_fd() {
                queue.push_back(oldest);
            }
            met.push(node);
        }
        drop(queue);
        drop(met);
    }
}
