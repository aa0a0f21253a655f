//! A filesystem that does nothing but answer: a tree in memory, with the answers' lifetimes and flags of unclobber, so
//! that the kernel sends the same requests. What it costs is the limit of any filesystem that is asked this way.
//!
//! Never looks at the disk; data is in memory files that the kernel reads and writes by itself, as with unclobber.

#![expect(
    clippy::significant_drop_tightening,
    reason = "one lock for the whole tree, held for the whole answer"
)]

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    BackingId, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, Session,
    SessionACL, TimeOrNow, WriteFlags,
};
use parking_lot::Mutex;
use unclobber::fs::{RequestKind, Requests};
use unclobber::sys;

use super::memory::{Body, Inode, Tree, attributes};

/// How unclobber answers. To be kept in step with `src/front`: the bench compares the requests of both.
struct Answers {
    entry: Duration,
    attr: Duration,
    /// Lifetime of the news that there is nothing; none where that is not remembered.
    absent: Option<Duration>,
    /// Handles that cannot write need no FLUSH.
    readers_no_flush: bool,
    /// What is appended comes as WRITE requests.
    appends_by_daemon: bool,
    threads: usize,
}

const ANSWERS: Answers = Answers {
    entry: Duration::from_secs(60),
    attr: Duration::from_secs(60),
    absent: None,
    readers_no_flush: true,
    appends_by_daemon: true,
    threads: 4,
};

/// The name of the attribute of the root by which the bench asks for the counts.
pub(crate) const COUNTS: &str = "user.null.requests";

const GENERATION: Generation = Generation(0);
const O_ACCMODE: i32 = 3;
const O_TRUNC: i32 = 0o1000;
const O_APPEND: i32 = 0o2000;

type Listing = Vec<(u64, FileType, OsString)>;

struct Null {
    tree: Mutex<Tree>,
    listings: Mutex<HashMap<u64, Listing>>,
    requests: Requests,
    memory: OwnedFd,
    passthrough: bool,
}

impl Null {
    fn count(&self, kind: RequestKind) {
        self.requests.count(kind);
    }

    fn new_file(&self) -> Result<File, Errno> {
        sys::open_tmpfile(&self.memory, 2, 0o600)
            .map(File::from)
            .map_err(|_| Errno::EIO)
    }

    fn backing(&self, id: u64, register: impl FnOnce(&File) -> io::Result<BackingId>) -> Option<Arc<BackingId>> {
        if !self.passthrough {
            return None;
        }
        let mut tree = self.tree.lock();
        let Body::File(file, backing) = &mut tree.inodes.get_mut(&id)?.body else {
            return None;
        };
        if backing.is_none() {
            *backing = register(file).ok().map(Arc::new);
        }
        backing.clone()
    }

    fn with_file<R>(&self, id: u64, act: impl FnOnce(&File) -> io::Result<R>) -> Result<R, Errno> {
        let tree = self.tree.lock();
        match tree.inodes.get(&id).map(|inode| &inode.body) {
            Some(Body::File(file, _)) => act(file).map_err(|_| Errno::EIO),
            Some(Body::Dir(_) | Body::Link(_)) => Err(Errno::EINVAL),
            None => Err(Errno::ESTALE),
        }
    }

    fn make(&self, parent: u64, name: &OsStr, kind: FileType, perm: u32, body: Body, reply: ReplyEntry) {
        match self.tree.lock().make(parent, name, kind, perm, body) {
            Ok(attr) => reply.entry_with_ttls(&ANSWERS.attr, &ANSWERS.entry, &attr, GENERATION),
            Err(errno) => reply.error(errno),
        }
    }

    fn remove(&self, parent: u64, name: &OsStr, reply: ReplyEmpty) {
        match self.tree.lock().remove(parent, name) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }
}

fn flags(writes: bool) -> FopenFlags {
    if !writes && ANSWERS.readers_no_flush {
        FopenFlags::FOPEN_NOFLUSH
    } else {
        FopenFlags::empty()
    }
}

impl Filesystem for Null {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for wanted in [
            InitFlags::FUSE_ATOMIC_O_TRUNC,
            InitFlags::FUSE_DONT_MASK,
            InitFlags::FUSE_AUTO_INVAL_DATA,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_POSIX_ACL,
        ] {
            if let Err(lacking) = config.add_capabilities(wanted) {
                log::info!("this kernel's FUSE lacks {lacking:?}");
            }
        }
        self.passthrough =
            config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok() && config.set_max_stack_depth(1).is_ok();
        config
            .set_max_write(1 << 20)
            .map_err(|_| io::Error::other("no write size"))?;
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.count(RequestKind::Lookup);
        let mut tree = self.tree.lock();
        let found = tree.child(parent.0, name);
        match found.map(|id| tree.attr(id)) {
            Ok(Some(attr)) => reply.entry_with_ttls(&ANSWERS.attr, &ANSWERS.entry, &attr, GENERATION),
            Ok(None) => reply.error(Errno::ESTALE),
            Err(_) => match ANSWERS.absent {
                Some(ttl) => {
                    let nothing = FileAttr {
                        ino: INodeNo(0),
                        ..attributes(0, FileType::RegularFile, 0)
                    };
                    reply.entry(&ttl, &nothing, GENERATION);
                }
                None => reply.error(Errno::ENOENT),
            },
        }
    }

    fn forget(&self, _request: &Request, ino: INodeNo, _nlookup: u64) {
        self.count(RequestKind::Forget);
        let mut tree = self.tree.lock();
        if tree.inodes.get(&ino.0).is_some_and(|inode| inode.attr.nlink == 0) {
            tree.inodes.remove(&ino.0);
        }
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        self.count(RequestKind::Getattr);
        match self.tree.lock().attr(ino.0) {
            Some(attr) => reply.attr(&ANSWERS.attr, &attr),
            None => reply.error(Errno::ESTALE),
        }
    }

    fn setattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        self.count(RequestKind::Setattr);
        let mut tree = self.tree.lock();
        let Some(inode) = tree.inodes.get_mut(&ino.0) else {
            return reply.error(Errno::ESTALE);
        };
        if let Some(mode) = mode {
            inode.attr.perm = u16::try_from(mode & 0o7777).unwrap_or(inode.attr.perm);
        }
        (inode.attr.uid, inode.attr.gid) = (uid.unwrap_or(inode.attr.uid), gid.unwrap_or(inode.attr.gid));
        let mtime = mtime.map(|time| match time {
            TimeOrNow::SpecificTime(at) => at,
            TimeOrNow::Now => SystemTime::now(),
        });
        inode.attr.mtime = mtime.unwrap_or(inode.attr.mtime);
        if let Body::File(file, _) = &inode.body {
            let done = size.map_or(Ok(()), |size| file.set_len(size));
            if done.is_err() || mtime.is_some_and(|at| file.set_modified(at).is_err()) {
                return reply.error(Errno::EIO);
            }
        }
        match tree.attr(ino.0) {
            Some(attr) => reply.attr(&ANSWERS.attr, &attr),
            None => reply.error(Errno::ESTALE),
        }
    }

    fn readlink(&self, _request: &Request, ino: INodeNo, reply: ReplyData) {
        self.count(RequestKind::Readlink);
        match self.tree.lock().inodes.get(&ino.0).map(|inode| &inode.body) {
            Some(Body::Link(target)) => reply.data(target.as_encoded_bytes()),
            Some(Body::Dir(_) | Body::File(..)) | None => reply.error(Errno::EINVAL),
        }
    }

    fn mkdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        self.count(RequestKind::Mkdir);
        let body = Body::Dir(HashMap::new());
        self.make(parent.0, name, FileType::Directory, mode & !umask, body, reply);
    }

    fn symlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        self.count(RequestKind::Symlink);
        let body = Body::Link(target.as_os_str().to_owned());
        self.make(parent.0, name, FileType::Symlink, 0o777, body, reply);
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.count(RequestKind::Unlink);
        self.remove(parent.0, name, reply);
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.count(RequestKind::Rmdir);
        let full = {
            let mut tree = self.tree.lock();
            let child = tree.child(parent.0, name);
            child.and_then(|id| tree.dir(id).map(|names| !names.is_empty()))
        };
        match full {
            Ok(true) => reply.error(Errno::ENOTEMPTY),
            Ok(false) => self.remove(parent.0, name, reply),
            Err(errno) => reply.error(errno),
        }
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        self.count(RequestKind::Rename);
        let mut tree = self.tree.lock();
        let id = match tree.child(parent.0, name) {
            Ok(id) => id,
            Err(errno) => return reply.error(errno),
        };
        if tree.child(newparent.0, newname).is_ok() {
            if flags.contains(RenameFlags::RENAME_NOREPLACE) {
                return reply.error(Errno::EEXIST);
            }
            if let Err(errno) = tree.remove(newparent.0, newname) {
                return reply.error(errno);
            }
        }
        let moved = tree
            .dir(parent.0)
            .map(|names| names.remove(name))
            .and_then(|_| tree.dir(newparent.0).map(|names| names.insert(newname.to_owned(), id)));
        match moved {
            Ok(_) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn link(&self, _request: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        self.count(RequestKind::Link);
        let mut tree = self.tree.lock();
        match tree.child(newparent.0, newname) {
            Ok(_) => return reply.error(Errno::EEXIST),
            Err(errno) if errno.code() != Errno::ENOENT.code() => return reply.error(errno),
            Err(_) => {}
        }
        if let Some(inode) = tree.inodes.get_mut(&ino.0) {
            inode.attr.nlink += 1;
        }
        if let Ok(names) = tree.dir(newparent.0) {
            names.insert(newname.to_owned(), ino.0);
        }
        match tree.attr(ino.0) {
            Some(attr) => reply.entry_with_ttls(&ANSWERS.attr, &ANSWERS.entry, &attr, GENERATION),
            None => reply.error(Errno::ESTALE),
        }
    }

    fn open(&self, _request: &Request, ino: INodeNo, mode: OpenFlags, reply: ReplyOpen) {
        self.count(RequestKind::Open);
        if mode.0 & O_TRUNC != 0
            && let Err(errno) = self.with_file(ino.0, |file| file.set_len(0))
        {
            return reply.error(errno);
        }
        let mut bits = flags(mode.0 & O_ACCMODE != 0);
        if mode.0 & O_APPEND != 0 && ANSWERS.appends_by_daemon {
            bits |= FopenFlags::FOPEN_DIRECT_IO;
        }
        match self.backing(ino.0, |file| reply.open_backing(file)) {
            Some(backing) => reply.opened_passthrough(FileHandle(ino.0), bits, &backing),
            None => reply.opened(FileHandle(ino.0), bits),
        }
    }

    fn create(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        self.count(RequestKind::Create);
        let made = self.new_file().and_then(|file| {
            let body = Body::File(file, None);
            self.tree
                .lock()
                .make(parent.0, name, FileType::RegularFile, mode & !umask, body)
        });
        let attr = match made {
            Ok(attr) => attr,
            Err(errno) => return reply.error(errno),
        };
        let handle = FileHandle(attr.ino.0);
        match self.backing(attr.ino.0, |file| reply.open_backing(file)) {
            Some(backing) => {
                reply.created_passthrough(&ANSWERS.entry, &attr, GENERATION, handle, flags(true), &backing);
            }
            None => reply.created(&ANSWERS.entry, &attr, GENERATION, handle, flags(true)),
        }
    }

    fn read(
        &self,
        _request: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.count(RequestKind::Read);
        let mut buffer = vec![0; usize::try_from(size).unwrap_or(0)];
        match self.with_file(ino.0, |file| file.read_at(&mut buffer, offset)) {
            Ok(length) => reply.data(&buffer[..length]),
            Err(errno) => reply.error(errno),
        }
    }

    fn write(
        &self,
        _request: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.count(RequestKind::Write);
        match self.with_file(ino.0, |file| file.write_at(data, offset)) {
            Ok(written) => reply.written(u32::try_from(written).unwrap_or(0)),
            Err(errno) => reply.error(errno),
        }
    }

    fn flush(&self, _request: &Request, _ino: INodeNo, _fh: FileHandle, _lock_owner: LockOwner, reply: ReplyEmpty) {
        self.count(RequestKind::Flush);
        reply.ok();
    }

    fn release(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.count(RequestKind::Release);
        reply.ok();
    }

    fn fsync(&self, _request: &Request, _ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        self.count(RequestKind::Fsync);
        reply.ok();
    }

    fn opendir(&self, _request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        self.count(RequestKind::Opendir);
        let listing = {
            let mut tree = self.tree.lock();
            match tree.dir(ino.0) {
                Ok(names) => {
                    let all: Vec<(OsString, u64)> = names.iter().map(|(name, id)| (name.clone(), *id)).collect();
                    let kind = |id: &u64| {
                        tree.inodes
                            .get(id)
                            .map_or(FileType::RegularFile, |inode| inode.attr.kind)
                    };
                    all.into_iter()
                        .map(|(name, id)| (id, kind(&id), name))
                        .collect::<Listing>()
                }
                Err(errno) => return reply.error(errno),
            }
        };
        let mut listings = self.listings.lock();
        let handle = listings.keys().max().map_or(1, |last| last + 1);
        listings.insert(handle, listing);
        drop(listings);
        reply.opened(FileHandle(handle), FopenFlags::empty());
    }

    fn readdir(&self, _request: &Request, ino: INodeNo, fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        self.count(RequestKind::Readdir);
        let listings = self.listings.lock();
        let Some(listing) = listings.get(&fh.0) else {
            return reply.error(Errno::EBADF);
        };
        let dots = [".", ".."].map(|name| (ino.0, FileType::Directory, OsString::from(name)));
        for (next, (id, kind, name)) in (1..).zip(dots.iter().chain(listing)) {
            if next > offset && reply.add(INodeNo(*id), next, *kind, name) {
                break;
            }
        }
        drop(listings);
        reply.ok();
    }

    fn releasedir(&self, _request: &Request, _ino: INodeNo, fh: FileHandle, _flags: OpenFlags, reply: ReplyEmpty) {
        self.count(RequestKind::Releasedir);
        self.listings.lock().remove(&fh.0);
        reply.ok();
    }

    fn statfs(&self, _request: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        self.count(RequestKind::Statfs);
        reply.statfs(1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 4096, 255, 4096);
    }

    fn getxattr(&self, _request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if ino == INodeNo(1) && name == COUNTS {
            let counts = self.requests.counts();
            let text: String = counts
                .iter()
                .map(|(kind, n)| format!("{} {n}\n", kind.name()))
                .collect();
            return if size == 0 {
                reply.size(4096)
            } else {
                reply.data(text.as_bytes())
            };
        }
        self.count(RequestKind::Getxattr);
        reply.error(Errno::NO_XATTR);
    }
}

/// Mounts at `point` and answers until it is unmounted.
pub(crate) fn serve(point: &Path) -> io::Result<()> {
    sys::raise_nofile_limit().map_err(io::Error::other)?;
    let fuse = sys::open_fuse_device().map_err(io::Error::other)?;
    let mount = sys::FuseMount {
        fsname: "null",
        subtype: "null",
        flags: 0,
        root_mode: 0o40755,
        uid: sys::getuid(),
        gid: sys::getgid(),
        options: "allow_other,default_permissions",
    };
    let memory = sys::open_path(Path::new("/dev/shm"), sys::consts::O_PATH | sys::consts::O_DIRECTORY)
        .map_err(io::Error::other)?;
    sys::mount_fuse(&fuse, point, &mount).map_err(io::Error::other)?;
    let root = Inode {
        attr: FileAttr {
            nlink: 2,
            ..attributes(1, FileType::Directory, 0o755)
        },
        body: Body::Dir(HashMap::new()),
    };
    let null = Null {
        tree: Mutex::new(Tree {
            inodes: HashMap::from([(1, root)]),
            next: 2,
        }),
        listings: Mutex::default(),
        requests: Requests::default(),
        memory,
        passthrough: false,
    };
    let mut config = Config::default();
    config.n_threads = Some(ANSWERS.threads);
    config.acl = SessionACL::All;
    Session::from_fd(null, fuse, SessionACL::All, config)?.run()
}
