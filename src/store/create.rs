//! Making names: exclusively, or staged and published by link. Creating never replaces.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::libc_flags as c;
use super::{Node, Result, Staged, Store, StoreError, Winner};
use crate::faults::{self, point};
use crate::sys::{self, CredScope, Creds};

/// What a file that is made keeps of the caller's flags: its writes may go through the daemon, and must be as durable.
const SYNCHRONOUS: i32 = c::O_SYNC | c::O_DSYNC;

impl Store {
    /// Claims `name` in `dir` for a new regular file, at once and exclusively; `flags` may ask for synchronous writes.
    ///
    /// # Errors
    /// [`StoreError::Lost`] when something is there; it is left as it is.
    pub fn claim(&self, dir: &Arc<Node>, name: &OsStr, mode: u32, flags: i32, creds: &Creds) -> Result<OwnedFd> {
        let parent = self.fd(dir)?;
        faults::hit(point::CREATE_BEFORE_CLAIM);
        let made = {
            let _scope = CredScope::enter(creds)?;
            let flags = (flags & SYNCHRONOUS) | c::O_RDWR | c::O_CREAT | c::O_EXCL;
            sys::open_at(&*parent, name, flags, mode)
        };
        match made {
            Ok(file) => Ok(file),
            Err(error) if error.errno() == c::EEXIST => Err(self.lost_to(dir, name)),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes an unnamed file that can be published in `dir` later; `flags` as for [`Self::claim`].
    ///
    /// # Errors
    /// The backing filesystem's.
    pub fn stage(&self, dir: &Arc<Node>, mode: u32, flags: i32, creds: &Creds) -> Result<OwnedFd> {
        let parent = self.fd(dir)?;
        let made = {
            let _scope = CredScope::enter(creds)?;
            sys::open_tmpfile(&*parent, (flags & SYNCHRONOUS) | c::O_RDWR, mode)
        };
        match made {
            // What ext4 says of a directory that has been removed. Programs take EPERM for something else.
            Err(error) if error.errno() == c::EPERM && sys::stat(&*parent)?.nlink == 0 => {
                Err(sys::SysError::new("open", c::ENOENT).into())
            }
            made => Ok(made?),
        }
    }

    /// Gives a staged file its name. Never replaces.
    ///
    /// # Errors
    /// [`StoreError::Lost`] when the name is taken: the winner is untouched, the staged file still unnamed.
    pub fn publish(&self, staged: &Staged) -> Result<()> {
        if staged.durable {
            sys::fsync(&*staged.file)?;
        }
        let parent = self.fd(&staged.dir)?;
        let link = || {
            faults::hit(point::PUBLISH_BEFORE_LINK);
            sys::link_fd_at(&*staged.file, &*parent, &staged.name)
        };
        let linked = match link() {
            Err(error) if error.errno() == c::EEXIST => match self.winner(&staged.dir, &staged.name)? {
                // The winner has gone again meanwhile: the name is free.
                Winner::Nothing => link(),
                winner @ (Winner::Regular | Winner::Directory | Winner::Other) => return Err(StoreError::Lost(winner)),
            },
            other => other,
        };
        linked.map_err(|error| match error.errno() {
            c::EEXIST => self.lost_to(&staged.dir, &staged.name),
            _ => error.into(),
        })?;
        if staged.durable
            && let Err(error) = self.sync_dir(&staged.dir, false)
        {
            // Published all the same: a failed sync of the directory must not turn success into failure.
            log::warn!("a directory could not be synced after a publication: {error}");
        }
        Ok(())
    }

    /// What stands at a name.
    ///
    /// # Errors
    /// The backing filesystem's, other than `ENOENT`.
    pub fn winner(&self, dir: &Arc<Node>, name: &OsStr) -> Result<Winner> {
        faults::hit(point::NAME_BEFORE_LOOK);
        match sys::stat_at(&*self.fd(dir)?, name) {
            Ok(stat) if stat.is_file() => Ok(Winner::Regular),
            Ok(stat) if stat.is_dir() => Ok(Winner::Directory),
            Ok(_) => Ok(Winner::Other),
            Err(error) if error.errno() == c::ENOENT => Ok(Winner::Nothing),
            Err(error) => Err(error.into()),
        }
    }

    /// What to say of a name that was taken.
    pub(super) fn lost_to(&self, dir: &Arc<Node>, name: &OsStr) -> StoreError {
        self.winner(dir, name).map_or_else(|error| error, StoreError::Lost)
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// The backing filesystem's.
    pub fn make_dir(&self, dir: &Arc<Node>, name: &OsStr, mode: u32, creds: &Creds) -> Result<()> {
        let parent = self.fd(dir)?;
        let _scope = CredScope::enter(creds)?;
        Ok(sys::mkdir_at(&*parent, name, mode)?)
    }

    /// Makes a fifo, socket, device or empty regular file.
    ///
    /// # Errors
    /// The backing filesystem's.
    pub fn make_node(&self, dir: &Arc<Node>, name: &OsStr, mode: u32, rdev: u64, creds: &Creds) -> Result<()> {
        let parent = self.fd(dir)?;
        let _scope = CredScope::enter(creds)?;
        Ok(sys::mknod_at(&*parent, name, mode, rdev)?)
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// The backing filesystem's.
    pub fn make_symlink(&self, dir: &Arc<Node>, name: &OsStr, target: &OsStr, creds: &Creds) -> Result<()> {
        let parent = self.fd(dir)?;
        let _scope = CredScope::enter(creds)?;
        Ok(sys::symlink_at(target, &*parent, name)?)
    }

    /// Gives a file another name.
    ///
    /// # Errors
    /// The backing filesystem's.
    pub fn make_link(&self, node: &Arc<Node>, dir: &Arc<Node>, name: &OsStr) -> Result<()> {
        let file = self.fd(node)?;
        let parent = self.fd(dir)?;
        Ok(sys::link_fd_at(&*file, &*parent, name)?)
    }

    /// Syncs a directory.
    ///
    /// # Errors
    /// The backing filesystem's.
    pub fn sync_dir(&self, dir: &Arc<Node>, data_only: bool) -> Result<()> {
        let fd = self.fd(dir)?;
        let open = sys::reopen(&*fd, c::O_RDONLY | c::O_DIRECTORY)?;
        if data_only {
            sys::fdatasync(&open)?
        } else {
            sys::fsync(&open)?
        }
        Ok(())
    }
}
