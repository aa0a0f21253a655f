//! Directories: listing, with what is staged and without what is hidden, and syncing.

#![expect(
    clippy::significant_drop_tightening,
    reason = "a lock is held from the check to the change on purpose"
)]

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::caller::{Arrival, Caller};
use super::errno::Result;
use super::mount::Mount;
use super::virtual_dir::{is_virtual, is_virtual_handle};
use crate::store::{Node, libc_flags as c};
use crate::sync::Mutex;
use crate::sys;

/// Bytes asked of the backing filesystem at a time.
const BATCH: usize = 1 << 16;

/// An open directory.
#[derive(Debug)]
pub(super) struct DirHandle {
    node: Arc<Node>,
    dir: OwnedFd,
    listing: Mutex<Listing>,
}

/// One pass over a directory. Positions given to the kernel are counted from 1, so that names which exist only
/// through the mount have positions too: they come first. Of the others a position is kept as the backing filesystem's own,
/// and names only as far as they were read last.
#[derive(Debug, Default)]
struct Listing {
    /// Names that exist only through the mount, in their order.
    staged: Vec<Item>,
    /// Where the backing listing goes on after each name that was read.
    cookies: Vec<i64>,
    /// What was read last.
    batch: Vec<Item>,
    /// How many names were read before that.
    first: usize,
    /// The backing directory has no more.
    complete: bool,
}

#[derive(Debug)]
struct Item {
    ino: u64,
    kind: u8,
    name: OsString,
}

/// One name in a listing.
#[derive(Debug, Clone, Copy)]
pub struct DirItem<'a> {
    /// The inode number.
    pub ino: u64,
    /// Where the listing goes on after it.
    pub next: u64,
    /// What it is: `DT_*`.
    pub kind: u8,
    /// The name.
    pub name: &'a OsStr,
}

impl Mount {
    /// Opens a directory.
    ///
    /// # Errors
    /// The backing filesystem's.
    pub fn opendir(&self, caller: &Caller, id: u64) -> Result<u64> {
        if is_virtual(id) {
            return Ok(self.opendir_virtual(caller));
        }
        self.arrive(caller, Arrival::Other);
        let node = self.node(id)?;
        let fd = self.guard().store.fd(&node)?;
        let dir = sys::reopen(&*fd, c::O_RDONLY | c::O_DIRECTORY)?;
        let handle = self.next_handle();
        let open = Arc::new(DirHandle {
            node,
            dir,
            listing: Mutex::default(),
        });
        self.dirs.lock(&handle).insert(handle, open);
        Ok(handle)
    }

    /// Lists a directory from a position on, until `fill` says that it has enough.
    ///
    /// # Errors
    /// The backing filesystem's.
    pub fn readdir(&self, handle: u64, position: u64, mut fill: impl FnMut(DirItem<'_>) -> bool) -> Result<()> {
        self.guard().events().operations.add();
        if is_virtual_handle(handle) {
            self.readdir_virtual(position, fill);
            return Ok(());
        }
        let open = self.dir_handle(handle)?;
        let mut listing = open.listing.lock();
        if position == 0 {
            self.rewind(&open, &mut listing)?;
        }
        let mut index = usize::try_from(position).unwrap_or(usize::MAX);
        while let Some(item) = self.item(&open, &mut listing, index)? {
            index += 1;
            let next = index as u64;
            if fill(DirItem {
                ino: item.ino,
                next,
                kind: item.kind,
                name: &item.name,
            }) {
                break;
            }
        }
        Ok(())
    }

    /// The name at a position, which was given out, or is the next.
    fn item<'a>(&self, open: &DirHandle, listing: &'a mut Listing, index: usize) -> Result<Option<&'a Item>> {
        let Some(index) = index.checked_sub(listing.staged.len()) else {
            return Ok(listing.staged.get(index));
        };
        if index < listing.first || index > listing.first + listing.batch.len() {
            // Not where it was left: a program has gone back to where it was before.
            if index > listing.cookies.len() {
                return Ok(None);
            }
            listing.cookies.truncate(index);
            sys::seek_dir(&open.dir, listing.cookies.last().copied().unwrap_or(0))?;
            listing.batch.clear();
            listing.first = index;
            listing.complete = false;
        }
        while index == listing.first + listing.batch.len() && !listing.complete {
            self.read_more(open, listing)?;
        }
        Ok(listing.batch.get(index - listing.first))
    }

    /// The directory of a handle.
    pub(super) fn dir_of(&self, handle: u64) -> Result<Arc<Node>> {
        Ok(Arc::clone(&self.dir_handle(handle)?.node))
    }

    fn rewind(&self, open: &DirHandle, listing: &mut Listing) -> Result<()> {
        *listing = Listing::default();
        sys::seek_dir(&open.dir, 0)?;
        if open.node.has_staged() {
            let names = open.node.names().lock();
            for (name, node) in &names.staged {
                listing.staged.push(Item {
                    ino: node.id(),
                    kind: c::DT_REG,
                    name: name.to_os_string(),
                });
            }
        }
        Ok(())
    }

    fn read_more(&self, open: &DirHandle, listing: &mut Listing) -> Result<()> {
        let mut buffer = vec![0; BATCH];
        let batch = sys::read_dir_entries(&open.dir, &mut buffer)?;
        listing.complete = batch.is_empty();
        if listing.complete {
            return Ok(());
        }
        listing.first += listing.batch.len();
        listing.batch.clear();
        for entry in batch {
            // A name published since the listing began is in both.
            let known = listing
                .staged
                .binary_search_by(|item| item.name.as_os_str().cmp(entry.name));
            if known.is_ok() || self.guard().store.is_hidden(&open.node, entry.name) {
                continue;
            }
            listing.cookies.push(entry.offset);
            listing.batch.push(Item {
                ino: entry.ino,
                kind: entry.kind,
                name: entry.name.to_owned(),
            });
        }
        Ok(())
    }

    /// Closes a directory.
    pub fn releasedir(&self, handle: u64) {
        let gone = self.dirs.lock(&handle).remove(&handle);
        drop(gone);
    }

    /// Syncs a directory: what is staged in it is published first.
    ///
    /// # Errors
    /// Of a publication or the backing filesystem's.
    pub fn fsyncdir(&self, caller: &Caller, handle: u64, data_only: bool) -> Result<()> {
        self.arrive(caller, Arrival::Other);
        let open = self.dir_handle(handle)?;
        self.guard().publish_children(&open.node)?;
        if data_only {
            sys::fdatasync(&open.dir)?
        } else {
            sys::fsync(&open.dir)?
        }
        Ok(())
    }
}
