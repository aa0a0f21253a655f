//! The backing tree as pinned descriptors.
//!
//! Owns: the root descriptor, the table of known nodes, exclusive creation, staging and publication, displacement
//! and the attic. Takes and gives single names and descriptors, never a path string, and never judges: whether a
//! change may happen was decided before it gets here.

mod attic;
mod copy;
mod create;
mod error;
mod home;
mod journal;
mod kept;
mod node;
mod replace;
mod search;
mod state;
mod table;
mod ticks;

pub use attic::{Attic, AtticLimits, Slot};
pub use error::{Result, StoreError, Winner};
pub use journal::{KeptInfo, Renamed, path_as_text};
pub use kept::{HOMELESS, Kept, KeptFiles, Listing, Restored, UNDO, descend, descend_again};
pub use node::{DirState, Kind, Node, Place};
pub use replace::{Exchange, Expected};
pub use state::{Changing, FileState, FileUse, Mapper, Staged, TakenAway};
pub use ticks::Ticks;

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::guard::FileKey;
use crate::sync::Mutex;
use crate::sys::{self, AccessTimes, Handle, Stat, Watch};
use table::{FdCache, Table};

/// The FUSE node id of the root of every mount.
pub const ROOT_ID: u64 = 1;

/// Longest chain of directories walked to find a node again; a longer one is taken for a cycle of stale places.
const MAX_DEPTH: usize = 100_000;

/// What the backing filesystem offers, found out once when the tree is opened.
#[derive(Debug, Clone, Copy)]
pub struct Features {
    /// Unnamed files (`O_TMPFILE`) that can be linked to a name.
    pub tmpfile: bool,
    /// Nodes can be opened again by file handle (`open_by_handle_at`, which needs `CAP_DAC_READ_SEARCH`).
    pub handles: bool,
    /// How finely changes are dated.
    pub ticks: Ticks,
}

/// One backing tree.
#[derive(Debug)]
pub struct Store {
    root: Arc<Node>,
    /// A readable descriptor of the root, the mount that file handles are opened in.
    mount: Option<OwnedFd>,
    /// The id of that mount: what lies on another is not part of the tree.
    mount_id: i32,
    /// The device of the root.
    dev: u64,
    table: Arc<Table>,
    fds: FdCache,
    /// Where numbers were met, while somebody asks for them.
    numbers: Mutex<Option<search::Numbers>>,
    features: Features,
    attic: Attic,
    /// Set once `RENAME_EXCHANGE` has been refused by the backing filesystem.
    no_exchange: AtomicBool,
    /// The root is on a mount that nobody else can reach.
    is_private: bool,
    /// How access times move on the mount that the root was given on.
    access_times: AccessTimes,
}

impl Store {
    /// Opens the tree whose root directory `root` (an `O_PATH` descriptor) leads to.
    ///
    /// `max_fds` bounds the descriptors kept for known nodes; nodes beyond it are opened again when needed.
    ///
    /// # Errors
    /// When the root cannot be looked at.
    pub fn open(root: OwnedFd, max_fds: usize, limits: AtticLimits) -> Result<Self> {
        // By a mount of its own, what the guard itself and the kernel on its behalf write is told from what others do.
        let (root, is_private) = match sys::private_mount(&root) {
            Ok(private) => (private, true),
            Err(error) => {
                log::info!("the directory is used by the mount it was given on: {error}");
                (root, false)
            }
        };
        let stat = sys::stat(&root)?;
        let access_times = sys::access_times(&root)?;
        let mount = sys::reopen(&root, libc_flags::O_RDONLY | libc_flags::O_DIRECTORY).ok();
        let unnamed = sys::open_tmpfile(&root, libc_flags::O_RDWR, 0o600).ok();
        let ticks = Ticks::probe(&root, unnamed.as_ref());
        let tmpfile = unnamed.is_some();
        let table = Arc::new(Table::default());
        let root = Arc::new(root);
        let (key, handle) = table::identify(&*root, &stat);
        let handles = match (&mount, &handle) {
            (Some(mount), Some(handle)) => sys::open_by_handle(mount, handle, libc_flags::O_PATH).is_ok(),
            (Some(_), None) | (None, _) => false,
        };
        let node = table.root(key, Arc::clone(&root));
        let mount_id = sys::handle_of(&*root).map_or(0, |(_, mount)| mount);
        if handles {
            table.find_by_handle(&node, handle.as_ref());
        }
        Ok(Self {
            mount_id,
            dev: stat.dev,
            attic: Attic::new(Arc::clone(&root), limits),
            root: node,
            mount,
            table,
            fds: FdCache::new(max_fds),
            numbers: Mutex::default(),
            features: Features {
                tmpfile,
                handles,
                ticks,
            },
            no_exchange: AtomicBool::new(false),
            is_private,
            access_times,
        })
    }

    /// Lets access times move so, or as on the mount that the root was given on. Only by a mount of our own, so that it
    /// concerns nobody else.
    pub fn move_access_times(&self, wish: Option<AccessTimes>) {
        let Some(mount) = self.mount.as_ref().filter(|_| self.is_private) else {
            return;
        };
        if let Err(error) = sys::set_access_times(mount, wish.unwrap_or(self.access_times)) {
            log::info!("access times move as the backing mount says: {error}");
        }
    }

    /// The root directory.
    pub fn root(&self) -> &Arc<Node> {
        &self.root
    }

    /// What the backing filesystem offers.
    pub fn features(&self) -> Features {
        self.features
    }

    /// The place where displaced content is kept.
    pub fn attic(&self) -> &Attic {
        &self.attic
    }

    /// Whether `name` in `dir` is the guard's own and not part of the tree.
    pub fn is_hidden(&self, dir: &Node, name: &OsStr) -> bool {
        dir.id() == ROOT_ID && self.attic.is_own(name)
    }

    /// Watches the filesystem for what outsiders change; without `CAP_SYS_ADMIN`, or `by_directory`, those directories that are
    /// added, and says so. Every node that is known later is found by its handle.
    ///
    /// # Errors
    /// Where that cannot be done: where files have no handles.
    pub fn watch(&self, by_directory: bool) -> Result<(Watch, bool)> {
        let root = self.fd(&self.root)?;
        let (handle, _) = sys::handle_of(&*root)?;
        let whole = if by_directory {
            None
        } else {
            let whole = Watch::filesystem(&*root);
            whole
                .inspect_err(|error| log::info!("directories are watched one by one: {error}"))
                .ok()
        };
        let by_directory = whole.is_none();
        let watch = whole.map_or_else(Watch::directories, Ok)?;
        if by_directory {
            // Not every filesystem tells of its directories.
            watch.add_directory(&*root)?;
        }
        if self.is_private
            && !by_directory
            && let Err(error) = watch.ignore_writes(&*root)
        {
            log::info!("the guard's own writes are watched like those of others: {error}");
        }
        self.table.find_by_handle(&self.root, Some(&handle));
        Ok((watch, by_directory))
    }

    /// Lets a watch rest.
    ///
    /// # Errors
    /// If the root cannot be opened again.
    pub fn watch_nothing(&self, watch: &Watch) -> Result<()> {
        Ok(watch.rest(&*self.fd(&self.root)?)?)
    }

    /// Lets a watch go on.
    ///
    /// # Errors
    /// As of [`Store::watch`].
    pub fn watch_again(&self, watch: &Watch) -> Result<()> {
        Ok(watch.resume(&*self.fd(&self.root)?)?)
    }

    /// The known node of a file handle.
    pub fn by_handle(&self, bytes: &[u8]) -> Option<Arc<Node>> {
        self.table.by_handle(bytes)
    }

    /// Visits every node that can be found by its handle.
    pub fn each_node(&self, visit: impl FnMut(&Node)) {
        self.table.each(visit);
    }

    /// Number of nodes known.
    pub fn known_nodes(&self) -> usize {
        self.table.len()
    }

    /// An `O_PATH` descriptor of a node: the one kept, or the file opened again by handle, or found again by name
    /// and checked to be the same file.
    ///
    /// # Errors
    /// [`StoreError::Moved`] when the node is not where it was last found and cannot be opened by handle.
    pub fn fd(&self, node: &Arc<Node>) -> Result<Arc<OwnedFd>> {
        if let Some(fd) = node.cached_fd() {
            return Ok(fd);
        }
        let fd = Arc::new(self.open_again(node)?);
        self.fds.keep(node, &fd);
        Ok(fd)
    }

    fn open_again(&self, node: &Arc<Node>) -> Result<OwnedFd> {
        if let Some(fd) = self.open_by_handle(node) {
            return fd;
        }
        // Up to the nearest ancestor that can be reached at once, then down again by name: never by recursion, since
        // trees may be deeper than a stack.
        let mut path = vec![(Arc::clone(node), node.place())];
        let mut above = loop {
            let Some((_, place)) = path.last() else {
                return Err(StoreError::Moved);
            };
            let Some(parent) = place.parent.clone() else {
                return Err(StoreError::Moved);
            };
            if let Some(fd) = parent.cached_fd() {
                break fd;
            }
            if let Some(fd) = self.open_by_handle(&parent) {
                break Arc::new(fd?);
            }
            if path.len() > MAX_DEPTH {
                return Err(StoreError::Moved);
            }
            let place = parent.place();
            path.push((parent, place));
        };
        while let Some((step, place)) = path.pop() {
            let fd = sys::open_child(&*above, &place.name)?;
            let stat = sys::stat(&fd)?;
            if table::identify(&fd, &stat).0 != step.key() {
                return Err(StoreError::Moved);
            }
            if path.is_empty() {
                return Ok(fd);
            }
            above = Arc::new(fd);
        }
        Err(StoreError::Moved)
    }

    fn open_by_handle(&self, node: &Node) -> Option<Result<OwnedFd>> {
        if !self.features.handles {
            return None;
        }
        let (mount, handle) = (self.mount.as_ref()?, node.handle()?);
        let flags = libc_flags::O_PATH | libc_flags::O_NOFOLLOW;
        Some(sys::open_by_handle(mount, handle, flags).map_err(Into::into))
    }

    /// Finds `name` in `dir`.
    ///
    /// # Errors
    /// The backing filesystem's; `ENOENT` when there is no such name.
    pub fn lookup(&self, dir: &Arc<Node>, name: &OsStr) -> Result<(Arc<Node>, Stat)> {
        let parent = self.fd(dir)?;
        let handle = self.handle_at(&parent, name)?;
        if let Some(handle) = &handle
            && let Some(found) = self.found_by_handle(&parent, (dir, name), handle)
        {
            return Ok(found);
        }
        let fd = sys::open_child(&*parent, name)?;
        let stat = sys::stat(&fd)?;
        let (key, handle) = self.identify(&fd, &stat, handle);
        let (node, fresh) = self.table.intern(key, Kind::of(&stat), handle, (dir, name));
        if fresh || node.cached_fd().is_none() {
            self.fds.keep(&node, &Arc::new(fd));
        }
        Ok((node, stat))
    }

    /// The known node of a handle that was just read by a name, and its attributes; one that is not kept open is not opened
    /// for that. Nothing where the name leads elsewhere by now.
    fn found_by_handle(
        &self,
        parent: &OwnedFd,
        (dir, name): (&Arc<Node>, &OsStr),
        handle: &Handle,
    ) -> Option<(Arc<Node>, Stat)> {
        let node = self.known(handle)?;
        let stat = match node.cached_fd() {
            Some(fd) => sys::stat(&*fd).ok()?,
            // By a directory's descriptor everything in it is found.
            None if !self.features.handles || node.kind() == Kind::Directory => self.stat(&node).ok()?,
            None => {
                let stat = sys::stat_at(parent, name).ok()?;
                let key = node.key();
                ((stat.dev, stat.ino) == (key.dev, key.ino)).then_some(stat)?
            }
        };
        node.found_at(dir, name);
        Some((node, stat))
    }

    /// Finds `name` in `dir`; of a node that is known, without a look at its attributes.
    ///
    /// # Errors
    /// Those of [`Self::lookup`].
    pub fn find(&self, dir: &Arc<Node>, name: &OsStr) -> Result<Arc<Node>> {
        let parent = self.fd(dir)?;
        let handle = self.handle_at(&parent, name)?;
        if let Some(node) = handle.and_then(|handle| self.known(&handle)) {
            node.found_at(dir, name);
            return Ok(node);
        }
        Ok(self.lookup(dir, name)?.0)
    }

    /// The handle of what `name` in `dir` leads to, where nodes are found by that and it is part of the tree.
    fn handle_at(&self, dir: &OwnedFd, name: &OsStr) -> Result<Option<Handle>> {
        if !self.table.finds_by_handle() {
            return Ok(None);
        }
        match sys::handle_at(dir, name) {
            Ok((handle, mount)) => Ok((mount == self.mount_id).then_some(handle)),
            Err(error) if error.errno() == libc_flags::ENOENT => Err(error.into()),
            Err(_) => Ok(None),
        }
    }

    /// The known node of a file that was just found: by the whole handle, not only by the hash it is kept under.
    fn known(&self, handle: &Handle) -> Option<Arc<Node>> {
        let node = self.table.by_handle(&handle.bytes)?;
        (node.handle() == Some(handle)).then_some(node)
    }

    /// The identity of an open file; its handle has just been read by its name, and is its own if the inode number is.
    fn identify(&self, fd: &OwnedFd, stat: &Stat, handle: Option<Handle>) -> (FileKey, Option<Handle>) {
        let own = handle.filter(|handle| handle.inode() == Some(stat.ino) && stat.dev == self.dev);
        let Some(handle) = own else {
            return table::identify(fd, stat);
        };
        let key = FileKey {
            dev: stat.dev,
            ino: stat.ino,
            generation: table::generation_of(&handle),
        };
        (key, Some(handle))
    }

    /// The identity of what `name` in `dir` leads to now, or `None` when nothing is there.
    ///
    /// # Errors
    /// The backing filesystem's, other than `ENOENT`.
    pub fn peek(&self, dir: &Arc<Node>, name: &OsStr) -> Result<Option<(FileKey, Stat)>> {
        let parent = self.fd(dir)?;
        match sys::open_child(&*parent, name) {
            Ok(fd) => {
                let stat = sys::stat(&fd)?;
                Ok(Some((table::identify(&fd, &stat).0, stat)))
            }
            Err(error) if error.errno() == libc_flags::ENOENT => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether names in a directory that differ by case are two names. In doubt they are not.
    pub fn tells_case(&self, dir: &Arc<Node>) -> bool {
        // ext2 to ext4, btrfs, xfs, tmpfs.
        const KNOWN: [i64; 4] = [0xEF53, 0x9123_683E, 0x5846_5342, 0x0102_1994];
        /// `FS_CASEFOLD_FL`
        const FOLDS: u8 = 0x40;
        let ask = || -> Result<bool> {
            let fd = self.fd(dir)?;
            if !KNOWN.contains(&sys::statfs(&*fd)?.kind) {
                return Ok(false);
            }
            let mut flags = sys::FlagData::default();
            let open = sys::reopen(&*fd, libc_flags::O_RDONLY | libc_flags::O_DIRECTORY)?;
            sys::file_flags(&open, sys::FlagCall::Flags, &mut flags)?;
            // The fourth byte of a word in the machine's own order.
            let word = u32::from_ne_bytes([flags[0], flags[1], flags[2], flags[3]]);
            Ok(word.to_be_bytes()[0] & FOLDS == 0)
        };
        dir.tells_case(|| ask().unwrap_or(false))
    }

    /// Whether `name` in `dir` leads to `node`.
    ///
    /// # Errors
    /// The backing filesystem's, other than `ENOENT`.
    pub fn leads_to(&self, dir: &Arc<Node>, name: &OsStr, node: &Node) -> Result<bool> {
        if node.handle().is_some() {
            let parent = self.fd(dir)?;
            return match sys::handle_at(&*parent, name) {
                Ok((handle, _)) => Ok(table::generation_of(&handle) == node.key().generation),
                Err(error) if error.errno() == libc_flags::ENOENT => Ok(false),
                Err(error) => Err(error.into()),
            };
        }
        Ok(self.peek(dir, name)?.is_some_and(|(key, _)| key == node.key()))
    }

    /// The attributes of a node.
    ///
    /// # Errors
    /// The backing filesystem's.
    pub fn stat(&self, node: &Arc<Node>) -> Result<Stat> {
        let fd = self.fd(node)?;
        Ok(sys::stat(&*fd)?)
    }

    /// Makes the node for a file that was just made, or has been `staged`. The descriptor, which is open for writing, is
    /// not kept with it: nobody could execute the file past the mount.
    pub fn adopt(&self, dir: &Arc<Node>, name: &OsStr, file: &OwnedFd, stat: &Stat, staged: bool) -> Arc<Node> {
        let (key, handle) = table::identify(file, stat);
        let (node, _) = self.table.intern(key, Kind::of(stat), handle, (dir, name));
        if !staged {
            self.keep_open(&node);
        }
        node
    }

    /// Keeps a node open, as far as that is affordable: its inode number is then not given to another file.
    fn keep_open(&self, node: &Arc<Node>) {
        if let Some(Ok(fd)) = self.open_by_handle(node) {
            self.fds.keep(node, &Arc::new(fd));
        }
    }

    /// Keeps the unnamed file open for as long as it has no name: it cannot be found again.
    pub fn pin_unnamed(&self, node: &Node, file: Arc<OwnedFd>) {
        node.pin(file);
    }

    /// Ends that: it has a name.
    pub fn unpin_named(&self, node: &Arc<Node>) {
        node.unpin();
        node.drop_fd();
        self.keep_open(node);
    }

    /// Keeps the node's descriptor open for as long as the node is known: its last name is about to go.
    ///
    /// # Errors
    /// When the node cannot be opened any more.
    pub fn pin(&self, node: &Arc<Node>) -> Result<()> {
        let fd = self.fd(node)?;
        node.pin(fd);
        Ok(())
    }

    /// A regular descriptor of the node for reading or writing, with the status flags a backing file may carry.
    ///
    /// `O_APPEND`, `O_DIRECT`, and the flags that act on names are left out: appending is decided by the flags that
    /// arrive with each write, and the caller's buffers need not be aligned on this side.
    ///
    /// # Errors
    /// The backing filesystem's.
    pub fn open_io(&self, node: &Arc<Node>, flags: i32) -> Result<OwnedFd> {
        let keep = libc_flags::O_ACCMODE | libc_flags::O_NONBLOCK | libc_flags::O_SYNC | libc_flags::O_DSYNC;
        let flags_kept = (flags & keep) | libc_flags::O_NOCTTY;
        if node.kind() == Kind::Regular
            && self.features.handles
            && let (Some(mount), Some(handle)) = (&self.mount, node.handle())
            && let Ok(file) = sys::open_by_handle(mount, handle, flags_kept)
        {
            return Ok(file);
        }
        let fd = self.fd(node)?;
        match sys::reopen(fd.as_fd(), flags_kept) {
            // A file that can only be appended to (`chattr +a`) can only be opened so.
            Err(error) if error.errno() == libc_flags::EPERM && flags & libc_flags::O_APPEND != 0 => {
                Ok(sys::reopen(fd.as_fd(), flags_kept | libc_flags::O_APPEND)?)
            }
            opened => Ok(opened?),
        }
    }
}

/// The numbers of flags and errors, from the one layer that knows them.
pub(crate) use crate::sys::consts as libc_flags;
