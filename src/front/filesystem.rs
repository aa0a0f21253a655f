//! `fuser::Filesystem`: one method per request, each a conversion, a call and a reply.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use fuser::{
    AccessFlags, BackingId, BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use super::backing::Backings;
use super::convert::{attr, caller, decode_device, directory_type, errno, generation, nothing, open_flags, time_set};
use crate::fs::{AttrChange, Entry, FsError, IoMode, Mount, Opened, RequestKind, is_virtual};
use crate::guard::PassthroughRule;
use crate::sys::{self, consts};

const MAX_WRITE: u32 = 1 << 20;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The front end of one mount.
#[derive(Debug)]
pub(super) struct Front {
    mount: Arc<Mount>,
    backings: Backings,
}

impl Front {
    pub(super) fn new(mount: Arc<Mount>) -> Self {
        Self {
            mount,
            backings: Backings::default(),
        }
    }

    fn count(&self, kind: RequestKind) {
        self.mount.requests().count(kind);
    }

    /// The registration an open needs, or none when the daemon moves the data. `Err`: the open must fail.
    fn registration(
        &self,
        opened: &Opened,
        register: impl Fn(std::os::fd::BorrowedFd<'_>) -> io::Result<BackingId>,
    ) -> Result<Option<Arc<BackingId>>, Errno> {
        if !matches!(opened.io, IoMode::Passthrough | IoMode::PassthroughDirect) {
            return Ok(None);
        }
        let (node, file) = (opened.file.node(), &opened.file);
        let made = || match self.mount.path_of_open(file).map(|path| register(path.as_fd())) {
            Some(Ok(backing)) => Ok((backing, true)),
            Some(Err(_)) | None => Ok((register(file.file().as_fd())?, !file.writes())),
        };
        match self.backings.hold((node.id(), node.key()), opened.handle, made) {
            Ok(held) => Ok(Some(held)),
            Err(error) => {
                log::warn!("the kernel did not register a file for passthrough: {error}");
                if self.mount.passthrough_failed(opened) {
                    Ok(None)
                } else {
                    Err(Errno::EIO)
                }
            }
        }
    }
}

fn reply_entry(mount: &Mount, reply: ReplyEntry, result: Result<Entry, FsError>) {
    match result {
        // An entry without a node says that there is nothing, and for how long.
        Err(FsError::Absent) => reply.entry(&mount.absence_ttl(), &nothing(), Generation(0)),
        Ok(entry) => {
            reply.entry_with_ttls(
                &entry.attr.ttl,
                &entry.name_ttl,
                &attr(&entry.attr),
                generation(&entry.attr),
            );
        }
        Err(error) => reply.error(errno(&error)),
    }
}

fn reply_empty(reply: ReplyEmpty, result: Result<(), FsError>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(&error)),
    }
}

fn reply_xattr(reply: ReplyXattr, size: u32, result: Result<Vec<u8>, FsError>) {
    match result {
        Ok(value) => {
            let length = u32::try_from(value.len()).unwrap_or(u32::MAX);
            if size == 0 {
                reply.size(length);
            } else if length > size {
                reply.error(Errno::ERANGE);
            } else {
                reply.data(&value);
            }
        }
        Err(error) => reply.error(errno(&error)),
    }
}

impl Filesystem for Front {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let needed = InitFlags::FUSE_ATOMIC_O_TRUNC | InitFlags::FUSE_DONT_MASK | InitFlags::FUSE_AUTO_INVAL_DATA;
        config
            .add_capabilities(needed)
            .map_err(|lacking| io::Error::other(format!("this kernel's FUSE lacks {lacking:?}")))?;
        for wanted in [
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_EXPORT_SUPPORT,
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
        ] {
            if config.add_capabilities(wanted).is_err() {
                log::info!("this kernel's FUSE lacks {wanted:?}");
            }
        }
        if self.mount.will_cache() {
            let listing = InitFlags::FUSE_DO_READDIRPLUS | InitFlags::FUSE_READDIRPLUS_AUTO;
            if config.add_capabilities(listing).is_err() {
                log::info!("this kernel's FUSE lists names without attributes");
            }
        }
        if self.mount.options().multi_user && config.add_capabilities(InitFlags::FUSE_POSIX_ACL).is_err() {
            log::warn!("this kernel's FUSE does not check POSIX ACLs");
        }
        let may = sys::has_cap(sys::CAP_SYS_ADMIN) && sys::in_initial_user_namespace();
        let passthrough = may
            && self.mount.options().policy.passthrough == PassthroughRule::On
            && config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok()
            && config.set_max_stack_depth(self.mount.stack_depth()).is_ok();
        self.mount.set_passthrough(passthrough);
        config
            .set_max_write(MAX_WRITE)
            .map_err(|_| io::Error::other("no write size"))?;
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.count(RequestKind::Lookup);
        reply_entry(&self.mount, reply, self.mount.lookup(&caller(request), parent.0, name));
    }

    fn forget(&self, _request: &Request, ino: INodeNo, nlookup: u64) {
        self.count(RequestKind::Forget);
        // First: the number may be another file's as soon as it is forgotten.
        self.backings.let_go(ino.0);
        self.mount.forget(ino.0, nlookup);
    }

    fn getattr(&self, request: &Request, ino: INodeNo, fh: Option<FileHandle>, reply: ReplyAttr) {
        self.count(RequestKind::Getattr);
        match self.mount.getattr(&caller(request), ino.0, fh.map(|fh| fh.0)) {
            Ok(found) => reply.attr(&found.ttl, &attr(&found)),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        self.count(RequestKind::Setattr);
        if size.is_some() {
            self.backings.let_go(ino.0);
        }
        let (atime, mtime) = (atime.map(time_set), mtime.map(time_set));
        let change = AttrChange {
            mode,
            uid,
            gid,
            size,
            atime,
            mtime,
        };
        match self.mount.setattr(&caller(request), ino.0, fh.map(|fh| fh.0), &change) {
            Ok(now) => reply.attr(&now.ttl, &attr(&now)),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData) {
        self.count(RequestKind::Readlink);
        match self.mount.readlink(&caller(request), ino.0) {
            Ok(target) => reply.data(target.as_encoded_bytes()),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        self.count(RequestKind::Mknod);
        let rdev = decode_device(rdev);
        reply_entry(
            &self.mount,
            reply,
            self.mount.mknod(&caller(request), parent.0, name, (mode, umask), rdev),
        );
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        self.count(RequestKind::Mkdir);
        reply_entry(
            &self.mount,
            reply,
            self.mount.mkdir(&caller(request), parent.0, name, (mode, umask)),
        );
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.count(RequestKind::Unlink);
        reply_empty(reply, self.mount.unlink(&caller(request), parent.0, name));
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.count(RequestKind::Rmdir);
        reply_empty(reply, self.mount.rmdir(&caller(request), parent.0, name));
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        self.count(RequestKind::Symlink);
        reply_entry(
            &self.mount,
            reply,
            self.mount.symlink(&caller(request), parent.0, name, target.as_os_str()),
        );
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        self.count(RequestKind::Rename);
        let (from, to) = ((parent.0, name), (newparent.0, newname));
        reply_empty(reply, self.mount.rename(&caller(request), from, to, flags.bits()));
    }

    fn link(&self, request: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        self.count(RequestKind::Link);
        reply_entry(
            &self.mount,
            reply,
            self.mount.link(&caller(request), ino.0, newparent.0, newname),
        );
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.count(RequestKind::Open);
        if is_virtual(ino.0) {
            let bits = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_NOFLUSH;
            return match self.mount.open_virtual(&caller(request), ino.0, flags.0) {
                Ok(handle) => reply.opened(FileHandle(handle), bits),
                Err(error) => reply.error(errno(&error)),
            };
        }
        if flags.0 & consts::O_TRUNC != 0 {
            self.backings.let_go(ino.0);
        }
        let opened = match self.mount.open(&caller(request), ino.0, flags.0) {
            Ok(opened) => opened,
            Err(error) => return reply.error(errno(&error)),
        };
        let bits = open_flags(opened.io, opened.no_flush);
        match self.registration(&opened, |fd| reply.open_backing(fd)) {
            Ok(Some(backing)) => reply.opened_passthrough(FileHandle(opened.handle), bits, &backing),
            Ok(None) => reply.opened(FileHandle(opened.handle), bits),
            Err(error) => {
                self.mount.release(opened.handle);
                reply.error(error);
            }
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        self.count(RequestKind::Create);
        let (entry, opened) = match self
            .mount
            .create(&caller(request), parent.0, name, (mode, umask), flags)
        {
            Ok(made) => made,
            Err(error) => return reply.error(errno(&error)),
        };
        let bits = open_flags(opened.io, opened.no_flush);
        // One time for both: the shorter.
        let ttl = entry.attr.ttl.min(entry.name_ttl);
        let (generation, handle) = (generation(&entry.attr), FileHandle(opened.handle));
        let attr = attr(&entry.attr);
        match self.registration(&opened, |fd| reply.open_backing(fd)) {
            Ok(Some(backing)) => reply.created_passthrough(&ttl, &attr, generation, handle, bits, &backing),
            Ok(None) => reply.created(&ttl, &attr, generation, handle, bits),
            Err(error) => {
                self.mount.release(opened.handle);
                reply.error(error);
            }
        }
    }

    fn read(
        &self,
        _request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.count(RequestKind::Read);
        BUFFER.with_borrow_mut(|buffer| {
            let size = usize::try_from(size).unwrap_or(0);
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            match self.mount.read(fh.0, offset, &mut buffer[..size]) {
                Ok(length) => reply.data(&buffer[..length]),
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn write(
        &self,
        request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.count(RequestKind::Write);
        let kills_setid = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        match self
            .mount
            .write(&caller(request), fh.0, offset, data, flags.0, kills_setid)
        {
            Ok(written) => reply.written(u32::try_from(written).unwrap_or(0)),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn flush(&self, _request: &Request, _ino: INodeNo, fh: FileHandle, _lock_owner: LockOwner, reply: ReplyEmpty) {
        self.count(RequestKind::Flush);
        reply_empty(reply, self.mount.flush(fh.0));
    }

    fn release(
        &self,
        _request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.count(RequestKind::Release);
        self.mount.release(fh.0);
        self.backings.release(ino.0, fh.0);
        reply.ok();
    }

    fn fsync(&self, _request: &Request, _ino: INodeNo, fh: FileHandle, datasync: bool, reply: ReplyEmpty) {
        self.count(RequestKind::Fsync);
        reply_empty(reply, self.mount.fsync(fh.0, datasync));
    }

    fn opendir(&self, request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        self.count(RequestKind::Opendir);
        match self.mount.opendir(&caller(request), ino.0) {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::empty()),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn readdir(&self, _request: &Request, _ino: INodeNo, fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        self.count(RequestKind::Readdir);
        let listed = self.mount.readdir(fh.0, offset, |item| {
            reply.add(INodeNo(item.ino), item.next, directory_type(item.kind), item.name)
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn readdirplus(
        &self,
        _request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let listed = self.mount.readdirplus(fh.0, offset, |item, found| {
            let ino = INodeNo(found.ino);
            reply.add(ino, item.next, item.name, &found.ttl, &attr(found), generation(found))
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn releasedir(&self, _request: &Request, _ino: INodeNo, fh: FileHandle, _flags: OpenFlags, reply: ReplyEmpty) {
        self.count(RequestKind::Releasedir);
        self.mount.releasedir(fh.0);
        reply.ok();
    }

    fn fsyncdir(&self, request: &Request, _ino: INodeNo, fh: FileHandle, datasync: bool, reply: ReplyEmpty) {
        self.count(RequestKind::Fsyncdir);
        reply_empty(reply, self.mount.fsyncdir(&caller(request), fh.0, datasync));
    }

    fn statfs(&self, request: &Request, ino: INodeNo, reply: ReplyStatfs) {
        self.count(RequestKind::Statfs);
        match self.mount.statfs(&caller(request), ino.0) {
            Ok(found) => reply.statfs(
                found.blocks,
                found.bfree,
                found.bavail,
                found.files,
                found.ffree,
                found.bsize,
                found.namelen,
                found.frsize,
            ),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        self.count(RequestKind::Setxattr);
        reply_empty(reply, self.mount.setxattr(&caller(request), ino.0, name, value, flags));
    }

    fn getxattr(&self, request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        self.count(RequestKind::Getxattr);
        let hint = usize::try_from(size).unwrap_or(0);
        reply_xattr(reply, size, self.mount.getxattr(&caller(request), ino.0, name, hint));
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        self.count(RequestKind::Listxattr);
        let hint = usize::try_from(size).unwrap_or(0);
        reply_xattr(reply, size, self.mount.listxattr(&caller(request), ino.0, hint));
    }

    fn removexattr(&self, request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.count(RequestKind::Removexattr);
        reply_empty(reply, self.mount.removexattr(&caller(request), ino.0, name));
    }

    fn access(&self, request: &Request, ino: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        self.count(RequestKind::Access);
        reply_empty(reply, self.mount.access(&caller(request), ino.0, mask.bits()));
    }

    fn ioctl(
        &self,
        request: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _flags: IoctlFlags,
        cmd: u32,
        in_data: &[u8],
        out_size: u32,
        reply: ReplyIoctl,
    ) {
        self.count(RequestKind::Ioctl);
        match self.mount.file_flags(&caller(request), ino.0, cmd, in_data) {
            Ok(data) => {
                let size = usize::try_from(out_size).unwrap_or(0).min(data.len());
                reply.ioctl(0, &data[..size]);
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn fallocate(
        &self,
        request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        self.count(RequestKind::Fallocate);
        reply_empty(
            reply,
            self.mount.fallocate(&caller(request), fh.0, offset, length, mode),
        );
    }

    fn lseek(&self, _request: &Request, _ino: INodeNo, fh: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        self.count(RequestKind::Lseek);
        match self.mount.lseek(fh.0, offset, whence) {
            Ok(offset) => reply.offset(offset),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn copy_file_range(
        &self,
        request: &Request,
        _ino_in: INodeNo,
        fh_in: FileHandle,
        offset_in: u64,
        _ino_out: INodeNo,
        fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        self.count(RequestKind::CopyFileRange);
        // The reply has 32 bits for the length; what is left is asked for again.
        let length = usize::try_from(len.min(1 << 30)).unwrap_or(1 << 30);
        let (from, to) = ((fh_in.0, offset_in), (fh_out.0, offset_out));
        match self.mount.copy_file_range(&caller(request), from, to, length, 0) {
            Ok(copied) => reply.written(u32::try_from(copied).unwrap_or(0)),
            Err(error) => reply.error(errno(&error)),
        }
    }
}
