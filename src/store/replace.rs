//! Replacing and removing what was judged, and nothing else: check and change through the same descriptor, and
//! whatever a rename displaces is looked at before it goes.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::libc_flags as c;
use super::{Node, Result, Slot, Store, StoreError};
use crate::faults::{self, point};
use crate::guard::{FileKey, Token};
use crate::sys::{self, Stat};

/// The file and version that was judged.
#[derive(Debug, Clone, Copy)]
pub struct Expected {
    /// The file.
    pub key: FileKey,
    /// Its version.
    pub token: Token,
}

impl Expected {
    /// Whether a file that has just been renamed is the one expected: the time of change is left out, since a rename
    /// moves it on most filesystems.
    fn is(&self, key: FileKey, stat: &Stat) -> bool {
        key == self.key && self.is_version(stat)
    }

    fn is_version(&self, stat: &Stat) -> bool {
        stat.size == self.token.size && stat.mtime == self.token.mtime
    }
}

/// How a rename over a file ended.
#[derive(Debug)]
pub enum Exchange {
    /// The displaced file, as judged.
    Displaced(Slot),
    /// The rename took effect, and was itself replaced by an outsider at once; what the outsider displaced
    /// meanwhile is in this slot and has been seen by nobody.
    Overtaken(Slot),
    /// The displaced file had been judged, could not be moved to the attic, and was removed.
    Removed,
}

/// One end of a rename.
pub(super) type End<'a> = (&'a Arc<Node>, &'a OsStr);

impl Store {
    /// Truncates an open file if it still is at the version judged.
    ///
    /// A write lease, where nobody else has the file open, keeps outsiders from opening it between the check and the
    /// truncation; where somebody has, the check is as close to the truncation as it can be.
    ///
    /// # Errors
    /// [`StoreError::Changed`] when it is at another version; it is left as it is.
    pub fn truncate_judged(&self, file: &OwnedFd, judged: &Token, size: u64) -> Result<()> {
        faults::hit(point::REPLACE_BEFORE_TRUNCATE);
        let lease = sys::write_lease(file).ok();
        let now = sys::stat(file)?;
        if now.token() != *judged {
            return Err(StoreError::Changed);
        }
        let done = sys::ftruncate(file, size);
        drop(lease);
        Ok(done?)
    }

    /// Renames onto a name that is free.
    ///
    /// # Errors
    /// [`StoreError::Lost`] when the name has been taken; both names are left as they are.
    pub fn rename_to_free(&self, from: End<'_>, to: End<'_>) -> Result<()> {
        let (old, new) = (self.fd(from.0)?, self.fd(to.0)?);
        faults::hit(point::RENAME_BEFORE_EXCHANGE);
        match sys::rename_at(&*old, from.1, &*new, to.1, c::RENAME_NOREPLACE) {
            Ok(()) => Ok(()),
            Err(error) if error.errno() == c::EEXIST => Err(self.lost_to(to.0, to.1)),
            Err(error) if error.errno() == c::EINVAL => {
                // A directory into itself, or a filesystem without NOREPLACE: a plain rename says which.
                if self.peek(to.0, to.1)?.is_some() {
                    return Err(self.lost_to(to.0, to.1));
                }
                Ok(sys::rename_at(&*old, from.1, &*new, to.1, 0)?)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Renames with the caller's flags and no check of what is displaced: directories, other objects, level off.
    ///
    /// # Errors
    /// The backing filesystem's.
    pub fn rename_plain(&self, from: End<'_>, to: End<'_>, flags: u32) -> Result<()> {
        let (old, new) = (self.fd(from.0)?, self.fd(to.0)?);
        Ok(sys::rename_at(&*old, from.1, &*new, to.1, flags)?)
    }

    /// Renames `source` over the regular file that was judged, by exchanging the names, so that what is displaced
    /// can be looked at before it goes.
    ///
    /// # Errors
    /// [`StoreError::Changed`] or [`StoreError::Lost`] when another version or file was there; both names are as they
    /// were. With `must_keep`, also when the displaced file cannot be moved to the attic, as `slot`.
    pub fn rename_over(
        &self,
        (source, target): (FileKey, &Arc<Node>),
        from: End<'_>,
        to: End<'_>,
        judged: &Expected,
        (must_keep, slot): (bool, &Slot),
    ) -> Result<Exchange> {
        faults::hit(point::RENAME_BEFORE_EXCHANGE);
        if self.no_exchange.load(Ordering::Relaxed) {
            return self.rename_over_by_link(from, to, judged, (must_keep, slot));
        }
        let (old, new) = (self.fd(from.0)?, self.fd(to.0)?);
        match sys::rename_at(&*old, from.1, &*new, to.1, c::RENAME_EXCHANGE) {
            Ok(()) => {}
            Err(error) if error.errno() == c::EINVAL || error.errno() == c::ENOSYS => {
                self.no_exchange.store(true, Ordering::Relaxed);
                return self.rename_over_by_link(from, to, judged, (must_keep, slot));
            }
            Err(error) if error.errno() == c::ENOENT && self.peek(to.0, to.1)?.is_none() => {
                return Err(StoreError::Lost(super::Winner::Nothing));
            }
            Err(error) => return Err(error.into()),
        }
        faults::hit(point::RENAME_AFTER_EXCHANGE);
        if self.is_judged(&*old, from.1, target, judged).unwrap_or(false) {
            return self.take_displaced(target, from, to, judged, (must_keep, slot));
        }
        self.undo_exchange(source, from, to, slot)
    }

    /// The same of what was moved to the attic; in doubt it is not, and goes back.
    fn is_kept_as_judged(&self, slot: &Slot, node: &Arc<Node>, judged: &Expected) -> bool {
        let home = self.attic.known_home();
        home.and_then(|home| self.is_judged(&home.attic, slot.name(), node, judged))
            .unwrap_or(false)
    }

    /// Whether what a name leads to now is what was judged.
    fn is_judged(&self, dir: impl AsFd + Copy, name: &OsStr, node: &Arc<Node>, judged: &Expected) -> Result<bool> {
        if node.handle().is_some() {
            // As long as it is held open its inode number is no other file's.
            let held = self.fd(node)?;
            let found = match sys::stat_at(dir, name) {
                Ok(stat) => (stat.dev, stat.ino) == (judged.key.dev, judged.key.ino) && judged.is_version(&stat),
                Err(error) if error.errno() == c::ENOENT => false,
                Err(error) => return Err(error.into()),
            };
            drop(held);
            return Ok(found);
        }
        let fd = match sys::open_child(dir, name) {
            Err(error) if error.errno() == c::ENOENT => return Ok(false),
            opened => opened?,
        };
        let stat = sys::stat(&fd)?;
        Ok(judged.is(super::table::identify(&fd, &stat).0, &stat))
    }

    /// After the exchange: what stands at the source name is what was judged; moves it away.
    fn take_displaced(
        &self,
        target: &Arc<Node>,
        from: End<'_>,
        to: End<'_>,
        judged: &Expected,
        (must_keep, slot): (bool, &Slot),
    ) -> Result<Exchange> {
        let old = self.fd(from.0)?;
        match self.attic.displace(&old, from.1, slot.clone()) {
            Ok(slot) => {
                if !self.is_kept_as_judged(&slot, target, judged) {
                    // A third party changed the source name within the exchange: its file is not ours to drop.
                    return Ok(Exchange::Overtaken(slot));
                }
                Ok(Exchange::Displaced(slot))
            }
            Err(error) if must_keep => {
                let new = self.fd(to.0)?;
                sys::rename_at(&*old, from.1, &*new, to.1, c::RENAME_EXCHANGE)?;
                Err(error)
            }
            Err(error) => {
                // The rename has taken effect, and its owner had seen what it displaced.
                if self.attic.is_on() {
                    log::warn!("a displaced file could not be moved to the attic: {error}");
                }
                let new = self.fd(to.0)?;
                match sys::unlink_at(&*old, from.1) {
                    Ok(()) => Ok(Exchange::Removed),
                    Err(gone) => {
                        sys::rename_at(&*old, from.1, &*new, to.1, c::RENAME_EXCHANGE)?;
                        Err(gone.into())
                    }
                }
            }
        }
    }

    /// After the exchange displaced something that was not judged: puts it back.
    fn undo_exchange(&self, source: FileKey, from: End<'_>, to: End<'_>, slot: &Slot) -> Result<Exchange> {
        let (old, new) = (self.fd(from.0)?, self.fd(to.0)?);
        sys::rename_at(&*old, from.1, &*new, to.1, c::RENAME_EXCHANGE)?;
        if self.peek(from.0, from.1)?.is_some_and(|(key, _)| key == source) {
            return Err(StoreError::Changed);
        }
        // An outsider replaced the target once more between the two exchanges. The newest version goes back to the
        // target; the one displaced before it is kept.
        sys::rename_at(&*old, from.1, &*new, to.1, c::RENAME_EXCHANGE)?;
        let slot = self.attic.displace(&old, from.1, slot.clone())?;
        Ok(Exchange::Overtaken(slot))
    }

    /// Without `RENAME_EXCHANGE`: the target is linked into the attic first, so that it survives the rename.
    fn rename_over_by_link(
        &self,
        from: End<'_>,
        to: End<'_>,
        judged: &Expected,
        (must_keep, slot): (bool, &Slot),
    ) -> Result<Exchange> {
        let (old, new) = (self.fd(from.0)?, self.fd(to.0)?);
        let Some((key, stat)) = self.peek(to.0, to.1)? else {
            return Err(StoreError::Lost(super::Winner::Nothing));
        };
        if !judged.is(key, &stat) {
            return Err(StoreError::Changed);
        }
        let slot = match self.attic.link(&new, to.1, slot) {
            Ok((fd, stat)) => {
                if !judged.is(super::table::identify(&fd, &stat).0, &stat) {
                    // Replaced between the look and the link: it is not what was judged.
                    self.attic.discard(slot);
                    return Err(StoreError::Changed);
                }
                Some(slot.clone())
            }
            Err(error) if must_keep => return Err(error),
            Err(_) => None,
        };
        sys::rename_at(&*old, from.1, &*new, to.1, 0)?;
        Ok(slot.map_or(Exchange::Removed, Exchange::Displaced))
    }

    /// Takes the regular file that was judged out of its directory: into the attic first, where it is looked at.
    ///
    /// `must_keep`: fail rather than remove it when it cannot be moved to the attic.
    ///
    /// # Errors
    /// [`StoreError::Changed`] when another file or version was there; it is back at its name.
    pub fn remove_judged(
        &self,
        at: End<'_>,
        node: &Arc<Node>,
        judged: &Expected,
        must_keep: bool,
    ) -> Result<Option<Slot>> {
        let dir = self.fd(at.0)?;
        faults::hit(point::UNLINK_BEFORE_REMOVE);
        match self.attic.displace(&dir, at.1, self.attic.fresh_slot()) {
            Ok(slot) => {
                if self.is_kept_as_judged(&slot, node, judged) {
                    return Ok(Some(slot));
                }
                self.attic.put_back(&slot, &dir, at.1)?;
                Err(StoreError::Changed)
            }
            Err(StoreError::Sys(error)) if error.errno() == c::ENOENT => Err(StoreError::Lost(super::Winner::Nothing)),
            Err(error) if must_keep => Err(error),
            Err(error) => {
                log::debug!("removed without passing through the attic: {error}");
                match self.peek(at.0, at.1)? {
                    Some((key, stat)) if judged.is(key, &stat) => {}
                    Some(_) => return Err(StoreError::Changed),
                    None => return Err(StoreError::Lost(super::Winner::Nothing)),
                }
                sys::unlink_at(&*dir, at.1)?;
                Ok(None)
            }
        }
    }
}
