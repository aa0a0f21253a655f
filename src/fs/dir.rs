//! Directories: listing, with what is staged and without what is hidden, and syncing.

use std::collections::HashSet;
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

/// Positions of names that exist only through the mount begin here: above all of the backing filesystem, save that of the end
/// of a directory, which some have as the largest there is.
const STAGED: u64 = 0x7fff_ffff_8000_0000;
/// And end here.
const STAGED_END: u64 = 0x7fff_ffff_ffff_fff0;
/// Names that an open directory remembers to have existed only through the mount, from one pass over it to the next.
const REMEMBERED: usize = 1024;

/// The passes over a directory. Names which exist only through the mount come first; the positions of the others are those of
/// the backing filesystem. Names are kept as far as they were read last.
#[derive(Debug, Default)]
struct Listing {
    /// Names that exist only through the mount, or have been published since; one that went keeps its place.
    staged: Vec<Item>,
    /// The same.
    known: HashSet<OsString>,
    /// What was read last.
    batch: Vec<Item>,
    /// Where the backing listing was before that.
    start: i64,
    /// Which of the batch was asked for last: the next is the one after it.
    last: usize,
}

#[derive(Debug)]
struct Item {
    ino: u64,
    kind: u8,
    name: OsString,
    /// Where the backing listing goes on after it, of a name that is there.
    after: i64,
}

impl Listing {
    /// The staged name that a position leads to, or the position of the backing filesystem that it is.
    fn at(&self, position: u64) -> std::result::Result<usize, i64> {
        let index = match position {
            0 => 0,
            STAGED..STAGED_END => usize::try_from(position - STAGED).unwrap_or(usize::MAX),
            backing => return Err(backing.cast_signed()),
        };
        if index < self.staged.len() { Ok(index) } else { Err(0) }
    }

    /// Notes a name that exists only through the mount.
    fn note_staged(&mut self, name: &OsStr, ino: u64) {
        if self.known.insert(name.to_os_string()) {
            self.staged.push(Item {
                ino,
                kind: c::DT_REG,
                name: name.to_os_string(),
                after: 0,
            });
        }
    }

    /// Which of the batch comes after a position of the backing filesystem; its length where that is the next to be read.
    fn find(&self, backing: i64) -> Option<usize> {
        if backing == self.start {
            return Some(0);
        }
        let after = |index: &usize| self.batch.get(*index).is_some_and(|item| item.after == backing);
        let found = Some(self.last).filter(after);
        let found = found.or_else(|| self.batch.iter().position(|item| item.after == backing));
        found.map(|index| index + 1)
    }
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
        let mut position = position;
        while let Some((item, next)) = self.item(&open, &mut listing, position)? {
            position = next;
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

    /// The name after a position, and the position after it.
    fn item<'a>(&self, open: &DirHandle, listing: &'a mut Listing, position: u64) -> Result<Option<(&'a Item, u64)>> {
        let mut position = position;
        let mut backing = loop {
            let index = match listing.at(position) {
                Ok(index) => index,
                Err(backing) => break backing,
            };
            position = STAGED + index as u64 + 1;
            let is_there = |item: &Item| self.is_there(&open.node, &item.name);
            if listing.staged.get(index).is_some_and(is_there) {
                return Ok(listing.staged.get(index).map(|item| (item, position)));
            }
        };
        if listing.find(backing).is_none() {
            // Not where it was left: a program has gone back to where it was before.
            sys::seek_dir(&open.dir, backing)?;
            (listing.start, listing.last) = (backing, 0);
            listing.batch.clear();
        }
        loop {
            let index = listing.find(backing).unwrap_or(0);
            if index < listing.batch.len() {
                listing.last = index;
                return Ok(listing.batch.get(index).map(|item| (item, item.after.cast_unsigned())));
            }
            if !self.read_more(open, listing)? {
                return Ok(None);
            }
            backing = listing.start;
        }
    }

    /// Whether a name that existed only through the mount still exists, published or not.
    fn is_there(&self, dir: &Arc<Node>, name: &OsStr) -> bool {
        self.staged_child(dir, name).is_some() || !matches!(self.guard().store.peek(dir, name), Ok(None))
    }

    /// The directory of a handle.
    pub(super) fn dir_of(&self, handle: u64) -> Result<Arc<Node>> {
        Ok(Arc::clone(&self.dir_handle(handle)?.node))
    }

    fn rewind(&self, open: &DirHandle, listing: &mut Listing) -> Result<()> {
        let staged = std::mem::take(&mut listing.staged);
        let known = std::mem::take(&mut listing.known);
        *listing = Listing::default();
        if staged.len() <= REMEMBERED {
            (listing.staged, listing.known) = (staged, known);
        }
        sys::seek_dir(&open.dir, 0)?;
        if open.node.has_staged() {
            let names = open.node.names().lock();
            for (name, node) in &names.staged {
                listing.note_staged(name, node.id());
            }
        }
        Ok(())
    }

    /// Reads on; says whether there is more. What is left out, as the guard's own or as listed already, may be all.
    fn read_more(&self, open: &DirHandle, listing: &mut Listing) -> Result<bool> {
        let mut buffer = vec![0; BATCH];
        let batch = sys::read_dir_entries(&open.dir, &mut buffer)?;
        if batch.is_empty() {
            return Ok(false);
        }
        if let Some(item) = listing.batch.last() {
            listing.start = item.after;
        }
        listing.batch.clear();
        listing.last = 0;
        for entry in batch {
            // A name published since the listing began is in both.
            if listing.known.contains(entry.name) || self.guard().store.is_hidden(&open.node, entry.name) {
                continue;
            }
            listing.batch.push(Item {
                ino: entry.ino,
                kind: entry.kind,
                name: entry.name.to_owned(),
                after: entry.offset,
            });
        }
        Ok(true)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn item(after: i64) -> Item {
        let (ino, kind, name) = (1, c::DT_REG, OsString::from("name"));
        Item { ino, kind, name, after }
    }

    #[test]
    fn positions_of_both_kinds_are_told_apart() {
        let mut listing = Listing::default();
        assert_eq!([0, STAGED].map(|position| listing.at(position)), [Err(0), Err(0)]);
        for name in ["a", "b", "a"] {
            listing.note_staged(OsStr::new(name), 1);
        }
        let staged = [0, STAGED, STAGED + 1, STAGED + 2].map(|position| listing.at(position));
        assert_eq!(staged, [Ok(0), Ok(0), Ok(1), Err(0)]);
        // The last two are the largest hash of ext4, and its end of a directory.
        for backing in [1, 12, 1 << 40, 0x7fff_fffe_ffff_ffff, i64::MAX] {
            assert_eq!(listing.at(backing.cast_unsigned()), Err(backing));
        }
    }

    #[test]
    fn a_listing_goes_on_where_it_was_left() {
        let listing = Listing {
            batch: vec![item(7), item(5), item(9)],
            start: 3,
            last: 1,
            ..Listing::default()
        };
        let found = [3, 7, 5, 9, 4].map(|backing| listing.find(backing));
        assert_eq!(found, [Some(0), Some(1), Some(2), Some(3), None]);
    }

    #[test]
    fn of_many_names_only_those_are_kept_that_were_read_last() {
        const NAMES: usize = 6000;
        let dir = tempfile::tempdir().unwrap();
        for number in 0..NAMES {
            std::fs::File::create(dir.path().join(number.to_string())).unwrap();
        }
        let root = sys::open_path(dir.path(), c::O_PATH | c::O_DIRECTORY).unwrap();
        let guard = crate::fs::Guard::open(root, crate::fs::GuardOptions::default()).unwrap();
        let mount = Mount::stand_in(guard, crate::guard::Policy::default());
        let caller = Caller {
            tid: sys::gettid(),
            uid: sys::getuid(),
            gid: sys::getgid(),
        };
        let handle = mount.opendir(&caller, crate::store::ROOT_ID).unwrap();
        let (mut names, mut position, mut most) = (HashSet::new(), 0, 0);
        loop {
            let mut left = 100;
            let before = names.len();
            mount
                .readdir(handle, position, |item| {
                    let full = left == 0;
                    if !full {
                        (left, position) = (left - 1, item.next);
                        names.insert(item.name.to_os_string());
                    }
                    full
                })
                .unwrap();
            most = most.max(mount.dir_handle(handle).unwrap().listing.lock().batch.len());
            if names.len() == before {
                break;
            }
        }
        assert_eq!(names.len(), NAMES + 2);
        assert!(most > 100 && most < NAMES / 2, "{most}");
    }
}
