//! The table of known nodes, and the bound on descriptors kept for them.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use hashbrown::HashMap;

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

/// All nodes somebody holds, by identity and by id.
#[derive(Debug, Default)]
pub(super) struct Table {
    by_key: Sharded<HashMap<FileKey, (u64, Weak<Node>)>>,
    ids: Sharded<HashMap<u64, FileKey>>,
    /// By the generation, which is that of the file handle; where nodes are looked for by handle.
    handles: Sharded<HashMap<u64, Weak<Node>>>,
    by_handle: AtomicBool,
    alternative: AtomicU64,
    count: AtomicUsize,
}

impl Table {
    pub(super) fn root(self: &Arc<Self>, key: FileKey, fd: Arc<OwnedFd>) -> Arc<Node> {
        let place = Place {
            parent: None,
            name: std::ffi::OsStr::new("").into(),
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
        self.by_key.lock(&key).insert(key, (ROOT_ID, Arc::downgrade(&node)));
        self.ids.lock(&ROOT_ID).insert(ROOT_ID, key);
        self.count.fetch_add(1, Ordering::Relaxed);
        node
    }

    /// Finds or makes the node of `key`; says whether it was made.
    pub(super) fn intern(
        self: &Arc<Self>,
        key: FileKey,
        kind: Kind,
        handle: Option<Handle>,
        place: Place,
    ) -> (Arc<Node>, bool) {
        let mut shard = self.by_key.lock(&key);
        if let Some(node) = shard.get(&key).and_then(|(_, weak)| weak.upgrade()) {
            drop(shard);
            node.found_at(place);
            return (node, false);
        }
        let id = self.choose_id(key);
        let node = Arc::new(Node::new(id, key, kind, handle, place, Arc::downgrade(self)));
        shard.insert(key, (id, Arc::downgrade(&node)));
        drop(shard);
        if self.finds_by_handle() {
            self.handles
                .lock(&key.generation)
                .insert(key.generation, Arc::downgrade(&node));
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        (node, true)
    }

    fn choose_id(&self, key: FileKey) -> u64 {
        let wanted = key.ino;
        if wanted > ROOT_ID && wanted < ALTERNATIVE {
            let mut ids = self.ids.lock(&wanted);
            // The same key here is a node on its way out, whose id its successor takes over.
            if *ids.entry(wanted).or_insert(key) == key {
                return wanted;
            }
        }
        let id = ALTERNATIVE | self.alternative.fetch_add(1, Ordering::Relaxed);
        self.ids.lock(&id).insert(id, key);
        id
    }

    pub(super) fn forget(&self, key: FileKey, id: u64) {
        let mut shard = self.by_key.lock(&key);
        // A newer node of the same key may already stand here; it keeps its place, and the id if it took it over.
        let successor = match shard.get(&key) {
            Some((_, weak)) if weak.strong_count() == 0 => {
                shard.remove(&key);
                None
            }
            Some((id, _)) => Some(*id),
            None => None,
        };
        if successor != Some(id) {
            self.ids.lock(&id).remove(&id);
        }
        drop(shard);
        if self.finds_by_handle() {
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

    /// Finds nodes by file handle from now on.
    pub(super) fn find_by_handle(&self, root: &Arc<Node>) {
        if self.finds_by_handle() {
            return;
        }
        let generation = root.key().generation;
        self.handles.lock(&generation).insert(generation, Arc::downgrade(root));
        self.by_handle.store(true, Ordering::Release);
        self.by_key.each(|shard| {
            for (key, (_, node)) in &*shard {
                self.handles
                    .lock(&key.generation)
                    .insert(key.generation, Weak::clone(node));
            }
        });
    }

    /// The live node of an id.
    pub(super) fn by_id(&self, id: u64) -> Option<Arc<Node>> {
        let key = *self.ids.lock(&id).get(&id)?;
        self.by_key.lock(&key).get(&key).and_then(|(_, weak)| weak.upgrade())
    }

    /// The node of a file handle.
    pub(super) fn by_handle(&self, bytes: &[u8]) -> Option<Arc<Node>> {
        let generation = fnv1a(bytes);
        self.handles.lock(&generation).get(&generation).and_then(Weak::upgrade)
    }

    pub(super) fn each(&self, mut visit: impl FnMut(&Node)) {
        let mut all = Vec::new();
        self.handles
            .each(|shard| all.extend(shard.values().filter_map(Weak::upgrade)));
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
