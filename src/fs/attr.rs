//! Attributes: what may be changed of a file besides its content, and its size.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::Asker;
use super::caller::{Arrival, Caller, Who};
use super::changing::lock_to_change;
use super::errno::{FsError, Result};
use super::handle::FileHandle;
use super::ledger::Present;
use super::lookup::Attr;
use super::mount::Mount;
use super::open::present;
use super::virtual_dir::{is_virtual, xattr_virtual};
use crate::guard::{Intent, Level};
use crate::store::{FileState, Kind, Node, libc_flags as c};
use crate::sys::{self, Stat, TimeSet};

/// The virtual attribute by which a mount tells which guard serves it; never listed, never stored.
pub const VIRTUAL_GUARD_XATTR: &str = "user.unclobber.guard";
/// The virtual attribute that holds the number of a mount.
pub const VIRTUAL_MOUNT_XATTR: &str = "user.unclobber.mount";
/// The virtual attribute of every file that says where the caller's owner stands towards it.
pub const VIRTUAL_STATE_XATTR: &str = "user.unclobber.state";

/// Which attributes to change; those not given stay.
#[derive(Debug, Clone, Copy, Default)]
pub struct Change {
    /// Permission bits.
    pub mode: Option<u32>,
    /// User.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Time of last access.
    pub atime: Option<TimeSet>,
    /// Time of last modification.
    pub mtime: Option<TimeSet>,
}

/// Where the capabilities of a program are kept.
const CAPABILITY: &str = "security.capability";
/// Where the access list of a file is kept.
const ACCESS_LIST: &str = "system.posix_acl_access";

/// Who sets an access list and is no member of the file's group takes the set-group-id bit away. The kernel tells the
/// daemon so by a flag that the FUSE library cannot receive.
fn clear_setgid(fd: &OwnedFd, who: &Who) -> sys::Result<()> {
    let stat = sys::stat(fd)?;
    if stat.mode & c::S_ISGID != 0 && !who.is_in_group(stat.gid) {
        sys::chmod(fd, stat.permissions() & !c::S_ISGID)?;
    }
    Ok(())
}

impl Mount {
    /// Changes attributes.
    ///
    /// # Errors
    /// A refusal where the size changes; the backing filesystem's.
    pub fn setattr(&self, caller: &Caller, id: u64, handle: Option<u64>, change: &Change) -> Result<Attr> {
        let who = self.arrive(caller, Arrival::Other);
        let node = self.node(id)?;
        self.refuse_rules_file(&who, "setattr", &node)?;
        if let Some(size) = change.size {
            self.set_size(&who, caller, &node, handle, size)?;
        }
        let more = Change { size: None, ..*change };
        let mut now = None;
        if more.mode.is_some()
            || more.uid.is_some()
            || more.gid.is_some()
            || more.atime.is_some()
            || more.mtime.is_some()
        {
            now = self.set_metadata(&node, &more)?;
        }
        self.attributes_changed(&node);
        let stat = now.map_or_else(|| self.attributes_of(&node), Ok)?;
        Ok(self.attr(&node, &stat))
    }

    fn set_size(&self, who: &Who, caller: &Caller, node: &Arc<Node>, handle: Option<u64>, size: u64) -> Result<()> {
        let open = handle.and_then(|handle| self.file(handle).ok());
        let Some(open) = open.filter(|open| open.writes()) else {
            let file = self.writable(node)?;
            self.set_size_by_name(who, node, &file, size)?;
            return self.truncated_for(who, node, &file);
        };
        self.set_size_by_handle(caller, node, &open, size)?;
        self.truncated_for(who, node, open.file())
    }

    fn set_size_by_name(&self, who: &Who, node: &Arc<Node>, file: &OwnedFd, size: u64) -> Result<()> {
        let at = self.locate(who, node, false)?;
        let level = self.level_of_file(who, at.dir.as_ref(), &at.name, node);
        if self.touch_size(node, file, size)? {
            return Ok(());
        }
        let mut state = lock_to_change(node, who.owner);
        let done = self.truncate(who, "truncate", &at, node, &mut state, file, size, level);
        drop(state);
        done
    }

    fn set_size_by_handle(&self, caller: &Caller, node: &Arc<Node>, open: &Arc<FileHandle>, size: u64) -> Result<()> {
        if self.touch_size(node, open.file(), size)? {
            return Ok(());
        }
        if open.level() == Level::Off || open.is_granted() {
            return self.change(caller, open, "truncate", Intent::Edit, || {
                Ok(sys::ftruncate(open.file(), size)?)
            });
        }
        let at = self.name_now(open);
        if open.may_have_mapped() {
            self.guard().catch_up();
        }
        let mut state = lock_to_change(node, open.owner());
        self.take_for_own(open, &sys::stat(open.file())?, &state);
        let who = open.who(caller.tid);
        self.truncate(&who, "truncate", &at, node, &mut state, open.file(), size, open.level())?;
        if size == 0 {
            // What is written then must not be refused because somebody else came in between.
            self.begin_changing(open, &mut state);
        }
        drop(state);
        Ok(())
    }

    /// A truncation to the size there is: moves the times and no byte, so that what was seen stays seen. Says whether it
    /// was one. Never by truncating: whoever makes the file longer meanwhile, past the daemon, must not lose that.
    fn touch_size(&self, node: &Arc<Node>, file: &OwnedFd, size: u64) -> Result<bool> {
        let state = node.content().lock();
        let before = sys::stat(file)?;
        if before.size != size {
            return Ok(false);
        }
        let author = self.guard().credit(node, &before, &state);
        self.guard().ledger.with_file(&present(node, &before, author), |_| ());
        let has_setid = before.mode & (c::S_ISUID | c::S_ISGID) != 0;
        if has_setid || sys::set_times(file, None, Some(TimeSet::Now)).is_err() {
            // Only a truncation clears set-id bits, and setting one time alone takes the file's owner.
            sys::ftruncate(file, size)?;
        }
        let after = sys::stat(file)?;
        if after.size == before.size {
            self.guard()
                .ledger
                .with_known_file(node.key(), |record| record.retoken(after.token()));
        }
        drop(state);
        Ok(true)
    }

    fn writable(&self, node: &Arc<Node>) -> Result<OwnedFd> {
        match node.staged_file() {
            Some(file) => Ok(sys::dup(&*file)?),
            None => self
                .guard()
                .store
                .open_io(node, c::O_WRONLY | c::O_NONBLOCK)
                .map_err(Into::into),
        }
    }

    /// Says what the attributes are then, where that is known.
    fn set_metadata(&self, node: &Arc<Node>, change: &Change) -> Result<Option<Stat>> {
        let fd = self.guard().store.fd(node)?;
        let apply = || -> Result<()> {
            if change.uid.is_some() || change.gid.is_some() {
                sys::chown(&*fd, change.uid, change.gid)?;
            }
            if let Some(mode) = change.mode {
                sys::chmod(&*fd, mode & 0o7777)?;
            }
            if change.atime.is_some() || change.mtime.is_some() {
                sys::set_times(&*fd, change.atime, change.mtime)?;
            }
            Ok(())
        };
        if node.kind() == Kind::Directory && change.mtime.is_some() {
            return self.set_directory_times(node, apply).map(|()| None);
        }
        if node.kind() != Kind::Regular {
            return apply().map(|()| None);
        }
        let state = node.content().lock();
        if change.mtime.is_none() {
            let done = self.metadata_change(node, &state, apply);
            drop(state);
            return done.map(|((), after)| after);
        }
        let before = sys::stat(&*fd)?;
        // What has been stored through a mapping so far is its owner's; after this only the time set here shows.
        let author = self.guard().credit(node, &before, &state);
        self.guard().ledger.with_file(&present(node, &before, author), |_| ());
        let done = apply();
        let after = sys::stat(&*fd)?;
        if after.size == before.size {
            self.guard()
                .ledger
                .with_known_file(node.key(), |record| record.retoken(after.token()));
        }
        drop(state);
        done.map(|()| Some(after))
    }

    /// A name that is staged would move the times once more when it is published, and shows in them until then.
    fn set_directory_times(&self, node: &Arc<Node>, apply: impl FnOnce() -> Result<()>) -> Result<()> {
        if let Err(error) = self.guard().publish_children(node) {
            log::info!("a file was not published before its directory's times were set: {error}");
        }
        apply()?;
        node.show_own_times();
        Ok(())
    }

    /// Makes a change of metadata that leaves the content as it is: the generation stays, unless size or modification
    /// time show that somebody else changed the content meanwhile. The file's lock is held. Gives what the attributes are
    /// then, too, where that is known.
    pub(super) fn metadata_change<T>(
        &self,
        node: &Arc<Node>,
        state: &FileState,
        apply: impl FnOnce() -> Result<T>,
    ) -> Result<(T, Option<Stat>)> {
        let guard = self.guard();
        let before = guard.store.stat(node)?;
        let known = Present {
            key: node.key(),
            token: before.token(),
            author: guard.credit(node, &before, state),
        };
        let tracked = guard.ledger.with_known_file(node.key(), |_| ()).is_some();
        if tracked || before.ctime <= guard.ledger.started() {
            guard.ledger.with_file(&known, |_| ());
        }
        // One that fails may have moved the time of change all the same.
        let done = apply();
        let after = guard.store.stat(node).ok();
        if let Some(after) = after
            && after.size == before.size
            && after.mtime == before.mtime
        {
            guard
                .ledger
                .with_known_file(node.key(), |record| record.retoken(after.token()));
        }
        Ok((done?, after))
    }

    /// Reads an extended attribute.
    ///
    /// # Errors
    /// The backing filesystem's.
    pub fn getxattr(&self, caller: &Caller, id: u64, name: &OsStr, hint: usize) -> Result<Vec<u8>> {
        if name == CAPABILITY && self.has_no_capability(id) {
            self.count_asker(caller);
            return Err(FsError::Errno(c::ENODATA));
        }
        let who = self.arrive(caller, Arrival::Asks);
        if name == VIRTUAL_GUARD_XATTR {
            return Ok(self.guard().id().as_bytes().to_vec());
        }
        if name == VIRTUAL_MOUNT_XATTR {
            return Ok(self.id().to_string().into_bytes());
        }
        xattr_virtual(id)?;
        if name == VIRTUAL_STATE_XATTR {
            return self.state_text(&who, &self.node(id)?);
        }
        let node = self.node(id)?;
        let fd = self.guard().store.fd(&node)?;
        if name == CAPABILITY && node.kind() == Kind::Regular && self.caches_all() {
            // Before the look: whoever sets one after it takes the note back.
            node.note_no_capability(true);
        }
        let value = sys::get_xattr(&*fd, name, hint);
        if value.as_ref().err().is_none_or(|error| error.errno() != c::ENODATA) {
            node.note_no_capability(false);
        }
        Ok(value?)
    }

    /// Whether a file is known to have no capability, which the kernel asks about before it writes to it. Whoever sets one
    /// is seen doing so.
    fn has_no_capability(&self, id: u64) -> bool {
        let Ok(node) = self.node(id) else { return false };
        if !self.caches_all() || !node.has_no_capability() {
            return false;
        }
        self.guard().catch_up();
        node.has_no_capability()
    }

    /// What `user.unclobber.state` says of a file to the caller.
    fn state_text(&self, who: &Who, node: &Arc<Node>) -> Result<Vec<u8>> {
        if node.kind() != Kind::Regular {
            return Err(FsError::Errno(c::ENODATA));
        }
        let asker = Asker {
            uid: who.uid,
            gid: who.gid,
            pid: who.tid,
        };
        let text = self
            .guard()
            .state_text((who.owner, asker), (self.id(), *self.policy()), who.name_of(node), node)?;
        Ok(text.into_bytes())
    }

    /// Lists extended attributes.
    ///
    /// # Errors
    /// The backing filesystem's.
    pub fn listxattr(&self, caller: &Caller, id: u64, hint: usize) -> Result<Vec<u8>> {
        self.arrive(caller, Arrival::Asks);
        if is_virtual(id) {
            return Ok(Vec::new());
        }
        let fd = self.xattr_fd(id)?;
        Ok(sys::list_xattr(&*fd, hint)?)
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// The backing filesystem's.
    pub fn setxattr(&self, caller: &Caller, id: u64, name: &OsStr, value: &[u8], flags: i32) -> Result<()> {
        let who = self.arrive(caller, Arrival::Other);
        refuse_virtual(name)?;
        let clears = name == ACCESS_LIST && self.as_root() && who.uid != 0;
        self.change_xattr(&who, id, |fd| {
            sys::set_xattr(fd, name, value, flags)?;
            if clears { clear_setgid(fd, &who) } else { Ok(()) }
        })
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// The backing filesystem's.
    pub fn removexattr(&self, caller: &Caller, id: u64, name: &OsStr) -> Result<()> {
        let who = self.arrive(caller, Arrival::Other);
        refuse_virtual(name)?;
        self.change_xattr(&who, id, |fd| sys::remove_xattr(fd, name))
    }

    fn change_xattr(&self, who: &Who, id: u64, change: impl FnOnce(&OwnedFd) -> sys::Result<()>) -> Result<()> {
        let node = self.node(id)?;
        self.refuse_rules_file(who, "setxattr", &node)?;
        let fd = self.guard().store.fd(&node)?;
        let done = if node.kind() == Kind::Regular {
            let state = node.content().lock();
            let done = self.metadata_change(&node, &state, || Ok(change(&fd)?));
            node.note_no_capability(false);
            drop(state);
            done.map(|((), _)| ())
        } else {
            Ok(change(&fd)?)
        };
        self.attributes_changed(&node);
        done
    }

    fn xattr_fd(&self, id: u64) -> Result<Arc<OwnedFd>> {
        let node = self.node(id)?;
        self.guard().store.fd(&node).map_err(FsError::from)
    }
}

/// Virtual attributes are made by the mount and never stored.
fn refuse_virtual(name: &OsStr) -> Result<()> {
    let own = [VIRTUAL_GUARD_XATTR, VIRTUAL_MOUNT_XATTR, VIRTUAL_STATE_XATTR];
    if own.iter().any(|own| name == *own) {
        return Err(FsError::Errno(c::EPERM));
    }
    Ok(())
}
