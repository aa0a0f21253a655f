//! What the kernel of a mount may remember of names and attributes, and by which name it came to a file.
//!
//! Nothing is decided by what the kernel remembers: whoever opens or changes a file is sent back to look again
//! (`ESTALE`, which the kernel answers by looking every name up anew) when the name it may have come by does not lead there
//! any more, or may have been another.

use std::ffi::OsStr;
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Guard;
use super::caller::{At, Who};
use super::errno::{FsError, Result};
use super::inode::Told;
use super::mount::Mount;
use crate::clock;
use crate::faults::{self, point};
use crate::guard::{CacheRule, Timestamp};
use crate::store::{FileState, Kind, Node, ROOT_ID, StoreError, libc_flags as c};
use crate::sys::{self, Stat};

/// How long the kernel may remember what nobody changes.
pub(super) const LONG: Duration = Duration::from_secs(60);
/// Seconds after which a request that was under way while the kernel was told to forget has certainly come.
const SETTLE_SECONDS: i64 = 2;

/// The same, of names that it was told to forget.
const SETTLES: Duration = Duration::from_secs(2);

/// How long the kernel may take to look again when it was sent back.
const LOOKS_AGAIN: Duration = Duration::from_secs(1);

/// The kernel's side of a mount, which can be told to forget.
pub trait KernelCache: Send + Sync + std::fmt::Debug {
    /// Forgets what a name leads to. Waits for the kernel's operations in that directory: never to be called by whoever
    /// answers them, or holds a lock.
    fn forget_name(&self, dir: u64, name: &OsStr);
    /// Forgets the attributes of a file or directory.
    fn forget_attributes(&self, node: u64);
}

/// What the kernel is to be told to forget.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Doubt {
    Name(u64, Arc<OsStr>),
    /// That there is nothing at a name.
    Absence(u64, Arc<OsStr>),
    Attributes(u64),
}

/// What the kernel holds of a name.
enum Remembers {
    /// Nothing, or what is right.
    Nothing,
    /// It is just about to ask by itself.
    LooksAgain,
    /// An entry, known by this hash.
    In(u64),
}

/// The names by which the kernel may come to a node.
#[derive(Debug, Default)]
struct Names {
    certain: usize,
    only: u64,
    doubtful: bool,
}

impl Mount {
    /// The kernel's side from now on; none before the handshake.
    pub fn set_kernel_cache(self: &Arc<Self>, kernel: Box<dyn KernelCache>) {
        if self.will_cache() && self.kernel.set(kernel).is_ok() {
            self.teller.get_or_init(|| super::teller::start(self));
            self.guard().caching.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Whether the kernel will be told what it may remember for longer than a moment.
    pub fn will_cache(&self) -> bool {
        self.policy().cache == CacheRule::Coherent && self.options().pids_visible && self.guard().watches()
    }

    /// Whether the kernel may remember anything.
    pub(super) fn caches(&self) -> bool {
        self.kernel.get().is_some() && self.is_passthrough() && self.guard().watches()
    }

    /// How long the kernel may remember a name.
    pub fn name_ttl(&self) -> Duration {
        if self.caches() { LONG } else { Duration::ZERO }
    }

    /// How long the kernel may remember attributes: not where they change without the daemon or this kernel knowing.
    pub(super) fn attributes_ttl(&self, stat: &Stat, state: Option<&FileState>) -> Duration {
        // A write that the daemon carries out clears the set-id bits.
        let set_id = stat.mode & (c::S_ISUID | c::S_ISGID) != 0 && state.is_some();
        if !self.caches() || set_id {
            return Duration::ZERO;
        }
        let volatile =
            state.is_some_and(|state| state.mappable > 0 || state.writing.iter().any(|(mount, _)| *mount != self.id()));
        if volatile { Duration::ZERO } else { LONG }
    }

    /// The name by which the calling thread comes to a file that it opens or truncates.
    ///
    /// # Errors
    /// `ESTALE` where the kernel has to look again.
    pub(super) fn locate(&self, who: &Who, node: &Arc<Node>, only_reads: bool) -> Result<At> {
        if !self.caches() {
            let mut at = who.name_of(node);
            return match self.recheck(&at, node) {
                // Renamed over since the look-up. A reader has the old file then, as anywhere: the kernel looks again
                // only once, and a name that is renamed over all the time must not be unreadable. At the name it has
                // seen nothing.
                Err(FsError::Store(StoreError::Moved)) if only_reads => {
                    at.dir = None;
                    Ok(at)
                }
                checked => checked.map(|()| at),
            };
        }
        self.guard().catch_up();
        let again = who.was_sent_back(node.id());
        // A look-up says by which name the file is opened only where the kernel was made to look: it may have been by
        // another call, of another name.
        let fresh = who.takes_fresh_name(node.id()) && again;
        let names = self.names_told(node.id(), again);
        let mut at = who.name_of(node);
        if !fresh && names.certain == 1 && self.hash_of(&at) != Some(names.only) {
            let place = node.place();
            at = At {
                dir: place.parent,
                name: place.name,
                certain: false,
                locked: false,
            };
        }
        at.certain = match names.certain {
            1 => fresh || self.hash_of(&at) == Some(names.only),
            _ => fresh,
        };
        let moved = || at.dir.as_ref().is_some_and(|dir| self.may_have_moved(dir));
        let unsure = names.doubtful && !fresh || names.certain > 0 && !at.certain || !again && moved();
        if unsure && !again {
            return Err(self.send_back(who, node));
        }
        match self.leads_to(&at, node)? {
            true => Ok(at),
            false if !again => Err(self.send_back(who, node)),
            // It has looked again, and comes by a descriptor, or the name is changed all the time.
            false if only_reads || self.is_free(&at)? => {
                at.dir = None;
                Ok(at)
            }
            false => Err(FsError::Store(StoreError::Moved)),
        }
    }

    /// Lets the kernel look again. What it holds of the file it then asks about by itself: it is not told to forget it
    /// meanwhile, or nobody would know whether a name that is not found will be looked up a second time in the same call.
    fn send_back(&self, who: &Who, node: &Arc<Node>) -> FsError {
        if let Some(inode) = self.inodes.lock(&node.id()).get_mut(&node.id()) {
            inode.set_sent_back(Some(Instant::now()));
        }
        who.send_back(node.id())
    }

    fn leads_to(&self, at: &At, node: &Arc<Node>) -> Result<bool> {
        let Some(dir) = &at.dir else { return Ok(true) };
        let staged = self.staged_child(dir, &at.name);
        if let Some(staged) = staged {
            return Ok(Arc::ptr_eq(&staged, node));
        }
        Ok(self.guard().store.leads_to(dir, &at.name, node)?)
    }

    fn is_free(&self, at: &At) -> Result<bool> {
        let Some(dir) = &at.dir else { return Ok(true) };
        Ok(self.staged_child(dir, &at.name).is_none() && self.guard().store.peek(dir, &at.name)?.is_none())
    }

    /// Whether a directory may not be where the kernel believes it, by whatever way it came there.
    fn may_have_moved(&self, dir: &Arc<Node>) -> bool {
        let doubtful = self.moved_dirs.lock();
        !doubtful.is_empty() && is_below(dir, &doubtful)
    }

    /// Sends a caller back once that changes names in a directory which may not be where the kernel believes it.
    ///
    /// # Errors
    /// `ESTALE`.
    pub(super) fn check_dir(&self, who: &Who, dir: &Arc<Node>) -> Result<()> {
        self.check_dirs(who, [dir, dir])
    }

    /// The same for the two directories of a rename.
    ///
    /// # Errors
    /// `ESTALE`.
    pub(super) fn check_dirs(&self, who: &Who, dirs: [&Arc<Node>; 2]) -> Result<()> {
        if !self.caches() {
            return Ok(());
        }
        self.guard().catch_up();
        if dirs.iter().any(|dir| self.may_have_moved(dir)) && who.may_be_sent_back_for_dir() {
            return Err(FsError::Store(StoreError::Moved));
        }
        Ok(())
    }

    fn names_told(&self, id: u64, again: bool) -> Names {
        let now = clock::now();
        let mut found = Names::default();
        if let Some(inode) = self.inodes.lock(&id).get_mut(&id) {
            if again {
                inode.set_sent_back(None);
            }
            inode
                .told
                .retain(|told| told.doubtful.is_none_or(|since| since.age(now) < SETTLE_SECONDS));
            for told in &inode.told {
                match told.doubtful {
                    Some(_) => found.doubtful = true,
                    None => {
                        found.certain += 1;
                        found.only = told.hash;
                    }
                }
            }
        }
        found
    }

    fn hash_of(&self, at: &At) -> Option<u64> {
        Some(self.entry_hash(at.dir.as_ref()?, &at.name))
    }

    /// Notes that the kernel may hold an entry for a name, which was found to lead to the node after `since`.
    pub(super) fn entry_known(&self, dir: &Arc<Node>, name: &OsStr, node: &Node, since: u64) {
        let (hash, id) = (self.entry_hash(dir, name), node.id());
        self.absences.end(hash);
        let old = self.entries.lock(&hash).insert(hash, id);
        if let Some(old) = old.filter(|old| *old != id) {
            self.untell(old, hash);
        }
        if let Some(inode) = self.inodes.lock(&id).get_mut(&id) {
            inode.set_sent_back(None);
            match inode.told.iter_mut().find(|told| told.hash == hash) {
                Some(told) => told.doubtful = None,
                None => inode.told.push(Told { hash, doubtful: None }),
            }
        }
        if self.changes_seen() != since && self.caches() {
            // Something was changed after it was looked at, and this was not known yet: it may have been this.
            self.doubt_name(dir, name);
            self.guard().wake_watch();
        }
    }

    /// The node id that the kernel was last told of for a name, as far as it may still hold that.
    pub(super) fn entry_told(&self, dir: &Node, name: &OsStr) -> Option<u64> {
        let hash = self.entry_hash(dir, name);
        self.entries.lock(&hash).get(&hash).copied()
    }

    /// Notes that the kernel will hold no entry for a name; says whether it may have held one.
    pub(super) fn entry_gone(&self, dir: &Node, name: &OsStr) -> bool {
        let hash = self.entry_hash(dir, name);
        let Some(old) = self.entries.lock(&hash).remove(&hash) else {
            return false;
        };
        self.untell(old, hash);
        true
    }

    /// Whether the kernel looks a name up, at which nothing is, once more in the same call: it held an entry for the name, and
    /// this was its revalidation. Whoever was under way while it was told to forget the entry may do so, too, if the call
    /// makes names; others are told that there is nothing.
    pub(super) fn looks_twice(&self, who: &Who, dir: &Node, name: &OsStr) -> bool {
        if self.entry_gone(dir, name) {
            return true;
        }
        let hash = self.entry_hash(dir, name);
        let forgotten = self.forgotten.lock().get(&hash).copied();
        forgotten.is_some_and(|since| since.elapsed() < SETTLES) && sys::is_making_names(who.tid)
    }

    fn untell(&self, id: u64, hash: u64) {
        if let Some(inode) = self.inodes.lock(&id).get_mut(&id) {
            inode.told.retain(|told| told.hash != hash);
            inode.set_sent_back(None);
        }
    }

    /// Somebody else has changed a name, or may have: whoever comes by it is sent back, until the kernel has forgotten it.
    pub(super) fn doubt_name(&self, dir: &Arc<Node>, name: &OsStr) {
        if !self.knows(dir.id()) {
            return;
        }
        let hash = self.entry_hash(dir, name);
        self.doubt_absence(hash, dir.id(), name);
        let id = self.entries.lock(&hash).get(&hash).copied();
        let now = clock::now();
        if let Some(id) = id {
            let mut moved = None;
            if let Some(inode) = self.inodes.lock(&id).get_mut(&id) {
                moved = match inode.node.kind() {
                    Kind::Directory => Some(id),
                    // Any path may have led through it.
                    Kind::Symlink => Some(ROOT_ID),
                    Kind::Regular | Kind::Special => None,
                };
                for told in inode.told.iter_mut().filter(|told| told.hash == hash) {
                    told.doubtful = Some(now.into());
                }
            }
            if let Some(moved) = moved {
                self.moved_dirs.lock().push((moved, now));
            }
            self.doubt(Doubt::Name(dir.id(), name.into()));
            self.doubt(Doubt::Attributes(id));
        }
        self.doubt(Doubt::Attributes(dir.id()));
    }

    /// The same, if the name does not lead where the kernel was told it does. Never with the lock of the directory held.
    pub(super) fn doubt_name_if_changed(&self, dir: &Arc<Node>, name: &OsStr) {
        let hash = self.entry_hash(dir, name);
        let id = self.entries.lock(&hash).get(&hash).copied();
        if id.is_some_and(|id| self.leads_still(dir, name, id)) {
            self.doubt_attributes(dir.id());
        } else {
            self.doubt_name(dir, name);
        }
    }

    fn leads_still(&self, dir: &Arc<Node>, name: &OsStr, id: u64) -> bool {
        let node = self.inodes.lock(&id).get(&id).map(|inode| Arc::clone(&inode.node));
        let Some(node) = node else { return false };
        match self.staged_child(dir, name) {
            Some(staged) => Arc::ptr_eq(&staged, &node),
            None => self.guard().store.leads_to(dir, name, &node).unwrap_or(false),
        }
    }

    /// Somebody else has changed attributes, or may have.
    pub(super) fn doubt_attributes(&self, id: u64) {
        if self.knows(id) {
            self.doubt(Doubt::Attributes(id));
        }
    }

    pub(super) fn doubt(&self, what: Doubt) {
        self.doubts.lock().insert(what);
    }

    fn knows(&self, id: u64) -> bool {
        self.inodes.lock(&id).contains_key(&id)
    }

    /// Moves with every change that somebody else has made.
    pub(super) fn changes_seen(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    pub(super) fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Everything the kernel was told may have changed.
    pub(super) fn doubt_everything(&self) {
        self.note_change();
        self.doubt_absences();
        let mut all = Vec::new();
        self.inodes
            .each(|shard| all.extend(shard.values().map(|inode| Arc::clone(&inode.node))));
        let now = clock::now();
        for node in all {
            if let Some(inode) = self.inodes.lock(&node.id()).get_mut(&node.id()) {
                for told in &mut inode.told {
                    told.doubtful = Some(now.into());
                }
            }
            if node.kind() == Kind::Directory {
                self.moved_dirs.lock().push((node.id(), now));
            }
            let place = node.place();
            if let Some(dir) = place.parent {
                self.doubt(Doubt::Name(dir.id(), place.name));
            }
            self.doubt(Doubt::Attributes(node.id()));
        }
    }

    /// Tells the kernel to forget what is in doubt. Holds no lock while it does.
    pub(super) fn tell_doubts(&self) {
        let Some(kernel) = self.kernel.get() else { return };
        let doubts = std::mem::take(&mut *self.doubts.lock());
        for doubt in doubts {
            match doubt {
                Doubt::Attributes(node) => kernel.forget_attributes(node),
                Doubt::Absence(dir, name) => {
                    let hash = self.names.hash_one((dir, &*name));
                    // It may have been told of what is there now.
                    if !self.entries.lock(&hash).contains_key(&hash) {
                        self.forgotten.lock().insert(hash, Instant::now());
                        kernel.forget_name(dir, &name);
                    }
                }
                Doubt::Name(dir, name) => match self.remembers(dir, &name) {
                    Remembers::Nothing => {}
                    Remembers::LooksAgain => {
                        self.doubt(Doubt::Name(dir, name));
                        self.guard().wake_watch();
                    }
                    // Programs may stand in a directory whose entry is taken away.
                    Remembers::In(hash) if self.is_still_right(dir, &name, hash) => {}
                    Remembers::In(hash) => {
                        faults::hit(point::CACHE_BEFORE_FORGET);
                        self.forgotten.lock().insert(hash, Instant::now());
                        kernel.forget_name(dir, &name);
                        self.forgotten(hash);
                        faults::hit(point::CACHE_FORGOTTEN);
                    }
                },
            }
        }
        self.forgotten.lock().retain(|_, since| since.elapsed() < SETTLES);
        let now = clock::now();
        self.moved_dirs
            .lock()
            .retain(|(_, since)| now.sec.saturating_sub(since.sec) < SETTLE_SECONDS);
    }

    /// What the kernel may hold of a name that is in doubt.
    fn remembers(&self, dir: u64, name: &OsStr) -> Remembers {
        let hash = self.names.hash_one((dir, name));
        let Some(id) = self.entries.lock(&hash).get(&hash).copied() else {
            return Remembers::Nothing;
        };
        match self.inodes.lock(&id).get(&id) {
            Some(inode) if inode.sent_back().is_some_and(|since| since.elapsed() < LOOKS_AGAIN) => {
                Remembers::LooksAgain
            }
            Some(inode)
                if !inode
                    .told
                    .iter()
                    .any(|told| told.hash == hash && told.doubtful.is_some()) =>
            {
                // It was told anew.
                Remembers::Nothing
            }
            Some(_) | None => Remembers::In(hash),
        }
    }

    /// Whether a name in doubt leads where the kernel was told it does: then it is in doubt no more.
    fn is_still_right(&self, dir: u64, name: &OsStr, hash: u64) -> bool {
        let Ok(dir) = self.node(dir) else { return false };
        let Some(id) = self.entries.lock(&hash).get(&hash).copied() else {
            return false;
        };
        if !self.leads_still(&dir, name, id) {
            return false;
        }
        if let Some(inode) = self.inodes.lock(&id).get_mut(&id) {
            for told in inode.told.iter_mut().filter(|told| told.hash == hash) {
                told.doubtful = None;
            }
        }
        true
    }

    /// The kernel holds no entry for a name any more, unless it was told of it anew meanwhile. Who is under way by it may
    /// still come: it stays in doubt for a while.
    fn forgotten(&self, hash: u64) {
        let mut entries = self.entries.lock(&hash);
        let Some(id) = entries.get(&hash).copied() else { return };
        let doubtful = self.inodes.lock(&id).get(&id).is_none_or(|inode| {
            inode
                .told
                .iter()
                .any(|told| told.hash == hash && told.doubtful.is_some())
        });
        if doubtful {
            entries.remove(&hash);
        }
    }

    /// This mount has changed what a name leads to: the kernels of the others must learn of it.
    pub(super) fn name_changed(&self, dir: &Arc<Node>, name: &OsStr) {
        self.tell_others(|other| other.doubt_name(dir, name));
    }

    /// The kernel of this mount holds attributes that have moved, or may move, without a request that tells it so. Takes no
    /// lock of the kernel's that an operation holds while it waits for the daemon.
    pub(super) fn forget_attributes(&self, node: &Node) {
        if let Some(kernel) = self.kernel.get() {
            kernel.forget_attributes(node.id());
        }
    }

    /// This mount has changed attributes: the kernels of the others must learn of it.
    pub(super) fn attributes_changed(&self, node: &Node) {
        self.tell_others(|other| other.doubt_attributes(node.id()));
    }

    fn tell_others(&self, tell: impl Fn(&Self)) {
        let guard = self.guard();
        let caching = guard.caching.load(Ordering::Acquire);
        if caching == 0 || caching == 1 && self.kernel.get().is_some() {
            return;
        }
        for other in guard.mounts() {
            if other.id() != self.id() && other.kernel.get().is_some() {
                other.note_change();
                tell(&other);
            }
        }
        guard.wake_watch();
    }
}

/// Whether a directory is one of these, or below one.
fn is_below(dir: &Arc<Node>, doubtful: &[(u64, Timestamp)]) -> bool {
    let mut at = Arc::clone(dir);
    // Outsiders move directories unseen: the way up may lead round in a circle.
    for _ in 0..4096 {
        if doubtful.iter().any(|(id, _)| *id == at.id()) {
            return true;
        }
        let Some(above) = at.place().parent else { return false };
        at = above;
    }
    true
}

impl Guard {
    /// Passes on what an outsider has changed to every kernel that may remember it.
    pub(super) fn for_caching(&self, mut tell: impl FnMut(&Mount)) {
        for mount in self.mounts() {
            if mount.kernel.get().is_some() {
                tell(&mount);
            }
        }
    }
}
