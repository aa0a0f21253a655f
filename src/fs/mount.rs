//! One mount: the inodes its kernel knows, and its open files.

#![expect(
    clippy::significant_drop_tightening,
    reason = "a lock is held from the check to the change on purpose"
)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Instant;

use std::ffi::OsStr;
use std::hash::{BuildHasher as _, RandomState};

use hashbrown::{HashMap, HashSet};

use super::absent::Absences;
use super::cache::{Doubt, KernelCache};
use super::dir::DirHandle;
use super::errno::{FsError, Result};
use super::handle::FileHandle;
use super::inode::Inode;
use super::virtual_dir::is_virtual;
use super::workspace::MountRules;
use super::{Guard, MountStatus, Requests};
use crate::clock;
use crate::guard::{Mode, Policy, Timestamp};
use crate::owner::{Attribution, OwnerBy};
use crate::rules::Rule;
use crate::store::{Node, ROOT_ID, libc_flags as c};
use crate::sync::{Mutex, Sharded};
use crate::sys::{self, AccessTimes};

/// Seconds after which an answered open is certainly on the kernel's books.
const SETTLE_SECONDS: i64 = 2;

/// How a mount was asked to behave.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// What is refused, and how files are created.
    pub policy: Policy,
    /// Whose processes come through it.
    pub attribution: Attribution,
    /// The mount point, as the user named it.
    pub label: String,
    /// Other users may come through it: the kernel checks permission, and new files are given to the caller.
    pub multi_user: bool,
    /// Nothing may be changed.
    pub read_only: bool,
    /// How access times are to move, where it was said.
    pub access_times: Option<AccessTimes>,
    /// The only user and group there are in the user namespace of the mount. Files of others are shown as theirs: the
    /// kernel would let nobody write to a file whose owner it cannot name. Who may do what is decided by the daemon's
    /// own credentials, as on the backing filesystem.
    pub only_ids: Option<(u32, u32)>,
    /// The callers' process ids mean something to this process.
    pub pids_visible: bool,
    /// Levels of paths, and what may be changed of them from inside.
    pub rules: RuleOptions,
}

/// What a mount was asked about rules.
#[derive(Debug, Clone, Default)]
pub struct RuleOptions {
    /// Rules of its own, after those of the workspace.
    pub own: Vec<Rule>,
    /// The workspace's file of rules may be changed through it.
    pub writable: bool,
    /// Owners may let their own changes through.
    pub self_allow: bool,
}

/// One mount of a guarded tree.
#[derive(Debug)]
pub struct Mount {
    guard: Arc<Guard>,
    id: u64,
    options: MountOptions,
    pub(super) inodes: Sharded<HashMap<u64, Box<Inode>>>,
    /// Names the kernel was told of, as hashes of directory and name, with the node told: it may hold
    /// entries for them, and for no others.
    pub(super) entries: Sharded<HashMap<u64, u64>>,
    /// Names that the kernel was told are missing.
    pub(super) absences: Absences,
    pub(super) names: RandomState,
    /// The kernel's side, where it may remember anything.
    pub(super) kernel: OnceLock<Box<dyn KernelCache>>,
    /// The thread that tells it what to forget.
    pub(super) teller: OnceLock<Option<Thread>>,
    /// Changes made by others, so far.
    pub(super) changes: AtomicU64,
    /// Names that it was told to forget just now, and when: somebody may be under way by them.
    pub(super) forgotten: Mutex<HashMap<u64, Instant>>,
    /// What it is to be told to forget.
    pub(super) doubts: Mutex<HashSet<Doubt>>,
    /// Directories that may not be where it believes them.
    pub(super) moved_dirs: Mutex<Vec<(u64, Timestamp)>>,
    pub(super) files: Sharded<HashMap<u64, Arc<FileHandle>>>,
    pub(super) dirs: Sharded<HashMap<u64, Arc<DirHandle>>>,
    /// What open virtual files hold.
    pub(super) virtuals: Sharded<HashMap<u64, Arc<[u8]>>>,
    next_handle: AtomicU64,
    passthrough: AtomicBool,
    pub(super) ended: AtomicBool,
    requests: Requests,
    /// New files must be given to the caller by hand: the daemon is root, the callers may not be.
    as_root: bool,
    pub(super) rules: MountRules,
}

impl Mount {
    /// A mount that nobody comes through, as one without flags would be: to judge by where there is none.
    pub(super) fn stand_in(guard: Arc<Guard>, policy: Policy) -> Self {
        let options = MountOptions {
            policy,
            attribution: Attribution::By(OwnerBy::Session),
            label: String::new(),
            multi_user: false,
            read_only: false,
            access_times: None,
            only_ids: None,
            pids_visible: false,
            rules: RuleOptions::default(),
        };
        // Those that are served count from 1.
        Self::new(guard, 0, options)
    }

    pub(super) fn new(guard: Arc<Guard>, id: u64, options: MountOptions) -> Self {
        let mount = Self {
            guard,
            id,
            rules: MountRules::new(id, &options.rules.own),
            options,
            inodes: Sharded::default(),
            entries: Sharded::default(),
            absences: Absences::default(),
            names: RandomState::new(),
            kernel: OnceLock::new(),
            teller: OnceLock::new(),
            changes: AtomicU64::new(0),
            forgotten: Mutex::default(),
            doubts: Mutex::default(),
            moved_dirs: Mutex::default(),
            files: Sharded::default(),
            dirs: Sharded::default(),
            virtuals: Sharded::default(),
            next_handle: AtomicU64::new(1),
            passthrough: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            requests: Requests::default(),
            as_root: sys::geteuid() == 0,
        };
        let root = Arc::clone(mount.guard.store.root());
        mount.inodes.lock(&ROOT_ID).insert(ROOT_ID, Inode::new(root, 1));
        mount
    }

    /// The guard it belongs to.
    pub fn guard(&self) -> &Arc<Guard> {
        &self.guard
    }

    /// Its number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// How it was asked to behave.
    pub fn options(&self) -> &MountOptions {
        &self.options
    }

    /// Whether it is over; somebody may still hold it.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// The requests its kernel has sent.
    pub fn requests(&self) -> &Requests {
        &self.requests
    }

    pub(super) fn policy(&self) -> &Policy {
        &self.options.policy
    }

    pub(super) fn enforces(&self) -> bool {
        self.options.policy.mode == Mode::Enforce
    }

    pub(super) fn as_root(&self) -> bool {
        self.as_root
    }

    /// The kernel moves the data of judged files itself from now on, or does not.
    pub fn set_passthrough(&self, on: bool) {
        self.passthrough.store(on, Ordering::Release);
    }

    /// How many filesystems may be stacked for passthrough: a backing tree on overlayfs is a stack already.
    pub fn stack_depth(&self) -> u32 {
        const OVERLAYFS: i64 = 0x794c_7630;
        let store = &self.guard.store;
        let kind = store
            .fd(store.root())
            .ok()
            .and_then(|fd| sys::statfs(&*fd).ok())
            .map(|found| found.kind);
        if kind == Some(OVERLAYFS) { 2 } else { 1 }
    }

    /// Whether the kernel moves the data of judged files itself.
    pub fn is_passthrough(&self) -> bool {
        self.passthrough.load(Ordering::Acquire)
    }

    pub(super) fn status(&self) -> MountStatus {
        let (mut open_files, mut inodes) = (0, 0);
        self.files.each(|shard| open_files += shard.len());
        self.inodes.each(|shard| inodes += shard.len());
        MountStatus {
            id: self.id,
            label: self.options.label.clone(),
            data_path: if self.is_passthrough() { "passthrough" } else { "daemon" },
            options: self.options.clone(),
            open_files,
            inodes,
            requests: self.requests.counts(),
        }
    }

    /// The node the kernel means by a node id.
    pub(super) fn node(&self, id: u64) -> Result<Arc<Node>> {
        match self.inodes.lock(&id).get(&id) {
            Some(inode) => Ok(Arc::clone(&inode.node)),
            // Whatever needs a node would change it.
            None if is_virtual(id) => Err(FsError::Errno(c::EROFS)),
            None => Err(FsError::Errno(c::ESTALE)),
        }
    }

    /// Notes that the kernel is about to be told of a node.
    pub(super) fn know(&self, node: &Arc<Node>) {
        let id = node.id();
        self.inodes
            .lock(&id)
            .entry(id)
            .or_insert_with(|| Inode::new(Arc::clone(node), 0))
            .lookups += 1;
    }

    /// The kernel has forgotten `lookups` of the times it was told of a node.
    pub fn forget(&self, id: u64, lookups: u64) {
        let mut shard = self.inodes.lock(&id);
        let Some(inode) = shard.get_mut(&id) else { return };
        inode.lookups = inode.lookups.saturating_sub(lookups);
        if inode.lookups == 0 && id != ROOT_ID {
            let gone = shard.remove(&id);
            drop(shard);
            for told in gone.iter().flat_map(|inode| &inode.told) {
                let mut entries = self.entries.lock(&told.hash);
                if entries.get(&told.hash) == Some(&id) {
                    entries.remove(&told.hash);
                }
            }
            // Outside the lock: the last reference takes table locks.
            drop(gone);
        }
    }

    pub(super) fn entry_hash(&self, dir: &Node, name: &OsStr) -> u64 {
        self.names.hash_one((dir.id(), name))
    }

    pub(super) fn next_handle(&self) -> u64 {
        self.next_handle.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn file(&self, handle: u64) -> Result<Arc<FileHandle>> {
        self.files
            .lock(&handle)
            .get(&handle)
            .cloned()
            .ok_or(FsError::Errno(c::EBADF))
    }

    pub(super) fn dir_handle(&self, handle: u64) -> Result<Arc<DirHandle>> {
        self.dirs
            .lock(&handle)
            .get(&handle)
            .cloned()
            .ok_or(FsError::Errno(c::EBADF))
    }

    /// How many handles of an inode are open in passthrough.
    pub(super) fn passthrough_count(&self, id: u64) -> u32 {
        self.inodes.lock(&id).get(&id).map_or(0, |inode| inode.passthrough)
    }

    /// Counts an open in passthrough; says no when an open in plain direct I/O is not certain to have settled.
    pub(super) fn begin_passthrough(&self, id: u64) -> bool {
        let mut shard = self.inodes.lock(&id);
        let Some(inode) = shard.get_mut(&id) else { return false };
        let fresh = |at: Timestamp| clock::now().sec.saturating_sub(at.sec) < SETTLE_SECONDS;
        if inode.passthrough == 0 && inode.unsettled().is_some_and(|open| fresh(open.1)) {
            return false;
        }
        inode.passthrough += 1;
        true
    }

    pub(super) fn end_passthrough(&self, id: u64) {
        if let Some(inode) = self.inodes.lock(&id).get_mut(&id) {
            inode.passthrough = inode.passthrough.saturating_sub(1);
        }
    }

    /// Begins an open in plain direct I/O if no passthrough open forbids it.
    pub(super) fn begin_direct(&self, id: u64, handle: u64) -> bool {
        let mut shard = self.inodes.lock(&id);
        let Some(inode) = shard.get_mut(&id) else { return false };
        if inode.passthrough > 0 {
            return false;
        }
        inode.set_unsettled(Some((handle, clock::now())));
        true
    }

    /// A request on the handle has arrived: the kernel has its open on the books.
    pub(super) fn settle_direct(&self, id: u64, handle: u64) {
        if let Some(inode) = self.inodes.lock(&id).get_mut(&id)
            && inode.unsettled().is_some_and(|open| open.0 == handle)
        {
            inode.set_unsettled(None);
        }
    }

    /// The connection has ended: publishes what is staged and lets go of everything.
    pub fn end(&self) {
        if !self.ended.swap(true, Ordering::AcqRel) && self.kernel.get().is_some() {
            self.guard.caching.fetch_sub(1, Ordering::AcqRel);
        }
        if let Some(Some(teller)) = self.teller.get() {
            teller.unpark();
        }
        let mut open = Vec::new();
        self.files
            .each(|shard| open.extend(shard.drain().map(|(_, handle)| handle)));
        for handle in open {
            self.close(&handle);
        }
        let mut dirs = Vec::new();
        self.dirs.each(|shard| dirs.extend(shard.drain()));
        drop(dirs);
        let mut inodes = Vec::new();
        self.inodes.each(|shard| inodes.extend(shard.drain()));
        drop(inodes);
        self.guard.settle_access_times();
    }
}
