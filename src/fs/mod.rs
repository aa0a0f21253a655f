//! The operations: the only place where store, guard, owner and audit meet.
//!
//! One method per operation, plain reply types, one errno table. Knows nothing of FUSE's wire format and no fuser
//! type.

mod absent;
mod activity;
mod again;
mod allow;
mod attr;
mod cache;
mod caller;
mod changing;
mod create;
mod data;
mod difference;
mod dir;
mod doers;
mod errno;
mod events;
mod evidence;
mod explain;
mod explained;
mod flags;
mod handle;
mod inode;
mod judge;
mod keep;
mod ledger;
mod level;
mod listed;
mod lookup;
mod mount;
mod moved;
mod names;
mod observe;
mod open;
#[doc(hidden)]
pub mod probe;
mod protect;
mod publish;
mod records;
mod rename;
mod requests;
mod spot;
mod teller;
mod upkeep;
mod virtual_dir;
mod watch;
mod workspace;

pub use activity::{Activity, OwnerActivity};
pub use allow::{AllowError, Allowance, Pending};
pub use attr::{Change as AttrChange, VIRTUAL_GUARD_XATTR, VIRTUAL_MOUNT_XATTR, VIRTUAL_STATE_XATTR};
pub use cache::KernelCache;
pub use caller::Caller;
pub use difference::Difference;
pub use errno::{FsError, Result, errno_text, refusal_errno};
pub use explained::{
    Asker, Changed, Explained, Explanation, Holder, KeptCopy, Operation, Outcome, Question, Told, View, Writing,
};
pub use handle::{IoMode, Opened};
pub use lookup::{Attr, Entry};
pub use mount::{Mount, MountOptions, RuleOptions};
pub use requests::{RequestKind, Requests};
pub use spot::names_of;
pub use virtual_dir::is_virtual;
pub use workspace::RuleCounts;

use std::hash::RandomState;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use crate::audit::Events;
use crate::clock;
use crate::guard::CacheRule;
use crate::owner::Owners;
use crate::store::{AtticLimits, Node, Store, StoreError};
use crate::sync::Mutex;
use crate::sys;
use caller::Notes;
use ledger::Ledger;

/// Bounds and names of a guard.
#[derive(Debug, Clone)]
pub struct GuardOptions {
    /// The name other processes find the guard by.
    pub id: String,
    /// Descriptors the guard may use in all.
    pub max_fds: u64,
    /// Records of files, and of names, kept at most.
    pub max_records: usize,
    /// Bounds of the attic.
    pub attic: AtticLimits,
    /// This process makes changes past its mounts, too, as tests do: what it does itself is watched like the rest.
    pub watch_own: bool,
    /// Directories are watched one by one also where the whole filesystem could be, as for an ordinary user.
    pub watch_directories: bool,
}

impl Default for GuardOptions {
    fn default() -> Self {
        Self {
            id: String::new(),
            max_fds: 1024,
            max_records: 1 << 20,
            attic: AtticLimits::default(),
            watch_own: false,
            watch_directories: false,
        }
    }
}

/// Why a tree cannot be guarded.
#[derive(Debug, thiserror::Error)]
#[error("the directory cannot be opened: {0}")]
pub struct GuardError(#[from] StoreError);

/// The guard of one backing tree: one ledger, whatever mounts there are.
#[derive(Debug)]
pub struct Guard {
    pub(crate) store: Store,
    pub(crate) ledger: Ledger,
    owners: Owners<Notes>,
    events: Events,
    /// Which commands made the last changes.
    doers: doers::Doers,
    /// What owners opened last.
    touched: activity::Touched,
    options: GuardOptions,
    mounts: Mutex<Vec<Weak<Mount>>>,
    next_mount: AtomicU64,
    /// Held while it is said how access times move.
    settling: Mutex<()>,
    /// Files waiting for publication, for the one-second bound.
    pub(crate) waiting: Mutex<Vec<Weak<Node>>>,
    /// Moves when a directory is renamed: levels derived from places are derived again.
    pub(crate) places: AtomicU64,
    /// Directories that were derived once, and where.
    derived: level::Derived,
    /// What bears on the names in each directory.
    contexts: level::Contexts,
    /// Rules, and what they are about.
    workspace: workspace::Workspace,
    /// Changes that are let through once.
    allowances: allow::Allowances,
    /// Where the directory was when the guard began.
    root_path: Option<PathBuf>,
    /// The file of rules was changed through a mount.
    rules_move: AtomicBool,
    /// For hashes of names that nobody can foresee.
    names: RandomState,
    /// Guarded under whatever name they have: kept known, so that this is not forgotten.
    held: Mutex<Vec<Arc<Node>>>,
    stopping: AtomicBool,
    /// The watch of the backing filesystem: none yet, none possible, or one.
    watcher: OnceLock<Option<watch::Watcher>>,
    /// Mounts whose kernel remembers names and attributes.
    caching: AtomicUsize,
    /// A kernel has something to forget.
    doubts_wait: AtomicBool,
}

/// What a guard can say of itself.
#[derive(Debug, Clone)]
pub struct GuardStatus {
    /// The name other processes find the guard by.
    pub id: String,
    /// The mounts there are.
    pub mounts: Vec<MountStatus>,
    /// Files and directories known.
    pub nodes: usize,
    /// Records of files.
    pub file_records: usize,
    /// Records of names.
    pub name_records: usize,
    /// Requests answered.
    pub operations: u64,
    /// Observations made.
    pub observations: u64,
    /// Refusals, enforced or recorded.
    pub refusals: u64,
    /// Files kept in the attic since the guard began.
    pub kept: u64,
    /// Whether new files are staged (`O_TMPFILE` works) or claimed at once.
    pub staging: bool,
}

/// What a guard can say of one of its mounts.
#[derive(Debug, Clone)]
pub struct MountStatus {
    /// The mount's number.
    pub id: u64,
    /// Its mount point, as the user named it.
    pub label: String,
    /// `passthrough` or `daemon`: who moves the data of files that need no more judgement.
    pub data_path: &'static str,
    /// Its options.
    pub options: MountOptions,
    /// Files open.
    pub open_files: usize,
    /// Files and directories the kernel knows.
    pub inodes: usize,
    /// Requests from the kernel by kind.
    pub requests: Vec<(RequestKind, u64)>,
}

impl Guard {
    /// Opens the guard of the directory that `root`, an `O_PATH` descriptor, leads to.
    ///
    /// # Errors
    /// When the directory cannot be looked at.
    pub fn open(root: OwnedFd, options: GuardOptions) -> std::result::Result<Arc<Self>, GuardError> {
        let cached = usize::try_from(options.max_fds / 4).unwrap_or(256).clamp(16, 1 << 16);
        // By the mount it was given on: the store may use one of its own.
        let root_path = crate::rules::path_of(&root);
        let store = Store::open(root, cached, options.attic)?;
        if let Err(error) = store.attic().finish_renames() {
            log::warn!("the attic could not be looked through: {error}");
        }
        let guard = Arc::new(Self {
            store,
            ledger: Ledger::new(clock::now(), options.max_records),
            owners: caller::owners(options.max_fds),
            events: Events::default(),
            doers: doers::Doers::default(),
            touched: activity::Touched::default(),
            options,
            mounts: Mutex::new(Vec::new()),
            next_mount: AtomicU64::new(1),
            settling: Mutex::default(),
            waiting: Mutex::new(Vec::new()),
            places: AtomicU64::new(1),
            derived: level::Derived::default(),
            contexts: level::Contexts::default(),
            workspace: workspace::Workspace::default(),
            allowances: allow::Allowances::default(),
            root_path,
            rules_move: AtomicBool::new(false),
            names: RandomState::new(),
            held: Mutex::default(),
            stopping: AtomicBool::new(false),
            watcher: OnceLock::new(),
            caching: AtomicUsize::new(0),
            doubts_wait: AtomicBool::new(false),
        });
        if let Err(problem) = guard.look_at_rules() {
            // Whoever mounts is told.
            log::warn!("{problem}");
        }
        upkeep::start(&guard);
        Ok(guard)
    }

    /// The name other processes find the guard by.
    pub fn id(&self) -> &str {
        &self.options.id
    }

    /// Where the directory was when the guard began.
    #[must_use]
    pub fn root_path(&self) -> Option<&Path> {
        self.root_path.as_deref()
    }

    /// The directory it guards, not through a mount.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn root(&self) -> Result<OwnedFd> {
        Ok(sys::dup(&*self.store.fd(self.store.root())?)?)
    }

    /// Who there is.
    pub fn owners(&self) -> &Owners<Notes> {
        &self.owners
    }

    /// What was refused, and counts.
    pub fn events(&self) -> &Events {
        &self.events
    }

    /// Begins a mount.
    pub fn add_mount(self: &Arc<Self>, options: MountOptions) -> Arc<Mount> {
        let watched = options.policy.cache == CacheRule::Coherent && options.pids_visible;
        let id = self.next_mount.fetch_add(1, Ordering::Relaxed);
        let mount = Arc::new(Mount::new(Arc::clone(self), id, options));
        mount.tell_virtual_name();
        let mut mounts = self.mounts.lock();
        mounts.retain(|known| known.strong_count() > 0);
        mounts.push(Arc::downgrade(&mount));
        drop(mounts);
        if watched {
            self.begin_watch();
        }
        self.settle_access_times();
        mount
    }

    /// All mounts are served by one mount of the guard's own: access times move as all of them want, else as behind them.
    pub(super) fn settle_access_times(&self) {
        let settling = self.settling.lock();
        let mounts = self.mounts();
        let mut wishes = mounts.iter().map(|mount| mount.options().access_times);
        if let Some(first) = wishes.next() {
            let wish = first.filter(|_| wishes.all(|wish| wish == first));
            self.store.move_access_times(wish);
        }
        drop(settling);
    }

    /// The mounts there are.
    pub fn mounts(&self) -> Vec<Arc<Mount>> {
        let known: Vec<_> = self.mounts.lock().iter().filter_map(Weak::upgrade).collect();
        // Somebody may be just letting go of one that has ended.
        known.into_iter().filter(|mount| !mount.has_ended()).collect()
    }

    /// What the guard can say of itself.
    pub fn status(&self) -> GuardStatus {
        let (file_records, name_records) = self.ledger.len();
        GuardStatus {
            id: self.options.id.clone(),
            mounts: self.mounts().iter().map(|mount| mount.status()).collect(),
            nodes: self.store.known_nodes(),
            file_records,
            name_records,
            operations: self.events.operations.get(),
            observations: self.events.observations.get(),
            refusals: self.events.refusals.get(),
            kept: self.events.kept.get(),
            staging: self.store.features().tmpfile,
        }
    }

    /// Ends the guard's own work; what is staged is published.
    pub fn shutdown(&self) {
        self.stopping.store(true, Ordering::Release);
        self.publish_all();
        self.store.attic().retire();
        self.events.stop_recording();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}
