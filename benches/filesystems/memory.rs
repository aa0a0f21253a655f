//! A tree of files in memory, for the filesystem that only answers.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::SystemTime;

use fuser::{BackingId, Errno, FileAttr, FileType, INodeNo};
use unclobber::sys;

pub(crate) enum Body {
    Dir(HashMap<OsString, u64>),
    File(File, Option<Arc<BackingId>>),
    Link(OsString),
}

pub(crate) struct Inode {
    pub(crate) attr: FileAttr,
    pub(crate) body: Body,
}

pub(crate) struct Tree {
    pub(crate) inodes: HashMap<u64, Inode>,
    pub(crate) next: u64,
}

impl Tree {
    pub(crate) fn attr(&mut self, id: u64) -> Option<FileAttr> {
        let inode = self.inodes.get_mut(&id)?;
        if let Body::File(file, _) = &inode.body
            && let Ok(meta) = file.metadata()
        {
            inode.attr.size = meta.len();
            inode.attr.blocks = meta.blocks();
            inode.attr.mtime = meta.modified().unwrap_or(inode.attr.mtime);
        }
        Some(inode.attr)
    }

    pub(crate) fn dir(&mut self, id: u64) -> Result<&mut HashMap<OsString, u64>, Errno> {
        match self.inodes.get_mut(&id).map(|inode| &mut inode.body) {
            Some(Body::Dir(names)) => Ok(names),
            Some(Body::File(..) | Body::Link(_)) => Err(Errno::ENOTDIR),
            None => Err(Errno::ESTALE),
        }
    }

    pub(crate) fn child(&mut self, parent: u64, name: &OsStr) -> Result<u64, Errno> {
        self.dir(parent)?.get(name).copied().ok_or(Errno::ENOENT)
    }

    pub(crate) fn make(
        &mut self,
        parent: u64,
        name: &OsStr,
        kind: FileType,
        perm: u32,
        body: Body,
    ) -> Result<FileAttr, Errno> {
        if self.dir(parent)?.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        let id = self.next;
        self.next += 1;
        let attr = attributes(id, kind, perm);
        self.dir(parent)?.insert(name.to_owned(), id);
        self.inodes.insert(id, Inode { attr, body });
        Ok(attr)
    }

    /// Takes a name away; the kernel forgets the inode after that.
    pub(crate) fn remove(&mut self, parent: u64, name: &OsStr) -> Result<(), Errno> {
        let id = self.dir(parent)?.remove(name).ok_or(Errno::ENOENT)?;
        if let Some(inode) = self.inodes.get_mut(&id) {
            inode.attr.nlink = inode.attr.nlink.saturating_sub(1);
        }
        Ok(())
    }
}

pub(crate) fn attributes(id: u64, kind: FileType, perm: u32) -> FileAttr {
    let now = SystemTime::now();
    FileAttr {
        ino: INodeNo(id),
        size: 0,
        blocks: 0,
        atime: now,
        mtime: now,
        ctime: now,
        crtime: now,
        kind,
        perm: u16::try_from(perm & 0o7777).unwrap_or(0o755),
        nlink: 1,
        uid: sys::getuid(),
        gid: sys::getgid(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}
