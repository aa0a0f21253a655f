//! Names to files, and what files say of themselves.

#![expect(
    clippy::significant_drop_tightening,
    reason = "a lock is held from the check to the change on purpose"
)]

use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::time::Duration;

use super::caller::{Arrival, Caller};
use super::errno::{FsError, Result};
use super::ledger::entry_key;
use super::mount::Mount;
use super::virtual_dir::is_virtual;
use crate::faults::{self, point};
use crate::guard::Timestamp;
use crate::store::{Kind, Node, libc_flags as c};
use crate::sys::{self, Stat, Statfs};

/// What a name leads to.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Its attributes.
    pub attr: Attr,
    /// How long the kernel may remember the name.
    pub name_ttl: Duration,
}

/// The attributes of a file, as the mount shows them.
#[derive(Debug, Clone, Copy)]
pub struct Attr {
    /// The node id, which is the inode number wherever that is free.
    pub ino: u64,
    /// Tells files apart that have the same node id one after the other.
    pub generation: u32,
    /// What the backing filesystem says, adjusted for what only the mount knows.
    pub stat: Stat,
    /// How long the kernel may remember them.
    pub ttl: Duration,
}

impl Mount {
    /// Looks a name up.
    ///
    /// # Errors
    /// `ENOENT` when there is nothing; the thread has then seen that, unless its next request makes the name.
    /// [`FsError::Absent`] where the kernel may remember it as long as a name.
    pub fn lookup(&self, caller: &Caller, parent: u64, name: &OsStr) -> Result<Entry> {
        if let Some(found) = self.lookup_virtual(caller, parent, name) {
            return found;
        }
        if let Some(found) = self.lookup_by_number(caller, parent, name) {
            return found;
        }
        let dir = self.node(parent)?;
        let who = self.arrive(caller, Arrival::Looks(dir.key(), name));
        let guard = self.guard();
        if guard.store.is_hidden(&dir, name) {
            return Err(FsError::Errno(c::ENOENT));
        }
        faults::hit(point::LOOKUP_ARRIVED);
        // Before anything is looked at.
        guard.watch_dir(&dir);
        let at = guard.ledger.latest();
        let since = self.changes_seen();
        let found = match self.staged_child(&dir, name) {
            Some(node) => self.attributes_of(&node).map(|stat| (node, stat)),
            None => guard.store.lookup(&dir, name).map_err(FsError::from),
        };
        match found {
            Ok((node, stat)) => {
                who.found(&dir, name, &node);
                if node.kind() == Kind::Regular && self.notes_looks(&who, &dir, name) {
                    let key = entry_key(dir.key(), name);
                    guard
                        .ledger
                        .with_known_entry_since(&key, node.key(), at, |entry| entry.saw_something(who.owner));
                }
                let entry = self.entry(&dir, &node, &stat);
                self.entry_known(&dir, name, &node, since);
                Ok(entry)
            }
            Err(error) if error.errno() == c::ENOENT => {
                let revalidates = self.looks_twice(&who, &dir, name);
                who.found_nothing(&dir, name);
                if self.notes_looks(&who, &dir, name) {
                    who.missed(&dir, name, at, (revalidates, since));
                }
                if !revalidates && self.remembers_absence(&who, &dir, name, since) {
                    return Err(FsError::Absent);
                }
                Err(FsError::Errno(c::ENOENT))
            }
            Err(error) => Err(error),
        }
    }

    /// The answer that tells the kernel of a node.
    pub(super) fn entry(&self, dir: &Node, node: &Arc<Node>, stat: &Stat) -> Entry {
        self.know(node);
        Entry {
            attr: self.attr(node, stat),
            name_ttl: self.name_ttl(dir),
        }
    }

    pub(super) fn staged_child(&self, dir: &Arc<Node>, name: &OsStr) -> Option<Arc<Node>> {
        if !dir.has_staged() {
            return None;
        }
        dir.names().lock().staged.get(name).cloned()
    }

    /// The attributes of a file by node or open handle.
    ///
    /// # Errors
    /// The backing filesystem's.
    pub fn getattr(&self, caller: &Caller, id: u64, handle: Option<u64>) -> Result<Attr> {
        self.count_asker(caller);
        if is_virtual(id) {
            return self.attr_virtual(id);
        }
        let node = self.node(id)?;
        let stat = match handle.and_then(|handle| self.file(handle).ok()) {
            Some(open) => sys::stat(open.file())?,
            None => self.attributes_of(&node)?,
        };
        Ok(self.attr(&node, &stat))
    }

    /// The attributes of a node, by whatever descriptor there is.
    pub(super) fn attributes_of(&self, node: &Arc<Node>) -> Result<Stat> {
        if node.kind() == Kind::Regular
            && let Some(file) = node.staged_file()
        {
            return Ok(sys::stat(&*file)?);
        }
        self.guard().store.stat(node).map_err(Into::into)
    }

    /// Adjusts what the backing filesystem says by what only the mount knows: files not yet published, and links that
    /// lie in the attic.
    pub(super) fn attr(&self, node: &Arc<Node>, stat: &Stat) -> Attr {
        let mut stat = *stat;
        let mut ttl = self.attributes_ttl(node, &stat, None);
        match node.kind() {
            Kind::Regular => {
                let state = node.content().lock();
                ttl = self.attributes_ttl(node, &stat, Some(&state));
                if state.staged.is_some() {
                    // Programs may link it; the kernel would not let them with no link at all.
                    stat.nlink = stat.nlink.max(1);
                } else if state.in_attic {
                    stat.nlink = stat.nlink.saturating_sub(1);
                }
            }
            Kind::Directory => {
                let staged_at = node.staged_at();
                if staged_at != Timestamp::default() {
                    stat.mtime = stat.mtime.max(staged_at);
                    stat.ctime = stat.ctime.max(staged_at);
                }
            }
            Kind::Symlink | Kind::Special => {}
        }
        if let Some((uid, gid)) = self.options().only_ids {
            (stat.uid, stat.gid) = (uid, gid);
        }
        let is_root = self.guard().store.root().id() == node.id();
        Attr {
            ino: if is_root { stat.ino } else { node.id() },
            generation: if is_root { 0 } else { short(node.key().generation) },
            stat,
            ttl,
        }
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// The backing filesystem's.
    pub fn readlink(&self, caller: &Caller, id: u64) -> Result<OsString> {
        self.arrive(caller, Arrival::Other);
        let node = self.node(id)?;
        let fd = self.guard().store.fd(&node)?;
        Ok(sys::readlink(&*fd)?)
    }

    /// Whether the daemon's own user may do what `mask` says; only asked where the kernel does not check itself.
    ///
    /// # Errors
    /// `EACCES`, or the backing filesystem's.
    pub fn access(&self, caller: &Caller, id: u64, mask: i32) -> Result<()> {
        self.arrive(caller, Arrival::Other);
        if is_virtual(id) {
            return Self::access_virtual(mask);
        }
        let node = self.node(id)?;
        let fd = self.guard().store.fd(&node)?;
        Ok(sys::access(&*fd, mask)?)
    }

    /// What the backing filesystem says of its space.
    ///
    /// # Errors
    /// The backing filesystem's.
    pub fn statfs(&self, caller: &Caller, id: u64) -> Result<Statfs> {
        self.arrive(caller, Arrival::Other);
        let node = self.node_or_root(id)?;
        let fd = self.guard().store.fd(&node)?;
        Ok(sys::statfs(&*fd)?)
    }
}

/// The kernel keeps 32 bits of a generation.
fn short(generation: u64) -> u32 {
    let [a, b, c, d, ..] = generation.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}
