//! Finding a file by its number alone, as whoever holds a file handle asks for it when all names of it are forgotten.
//!
//! Where a number was met is a hint, taken from one look through the whole tree and proven each time by the names that
//! lead there. It is kept for a while, since those who ask for one file usually ask for more.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashMap;

use super::node::{Kind, Node};
use super::table::ALTERNATIVE;
use super::{MAX_DEPTH, Result, Store, libc_flags as c};
use crate::sys::{self, Handle};

/// Numbers that are noted at most: of a larger tree, those that are met first.
const MOST: usize = 1 << 20;
/// How long what was met is kept after it was last asked for.
const KEPT: Duration = Duration::from_secs(30);
/// Bytes asked of the backing filesystem at a time.
const BATCH: usize = 1 << 16;

/// Where a number was met.
#[derive(Debug, Clone, Copy)]
struct Met {
    /// The number of the directory.
    dir: u64,
    /// Where in it: the cookie before the entry.
    before: i64,
}

/// What the last look through the tree has met.
#[derive(Debug)]
pub(super) struct Numbers {
    met: HashMap<u64, Met>,
    used: Instant,
}

impl Numbers {
    fn way(&mut self, number: u64, root: u64) -> Option<Vec<(u64, i64)>> {
        self.used = Instant::now();
        let (mut way, mut at) = (Vec::new(), number);
        while at != root {
            let met = self.met.get(&at).filter(|_| way.len() < MAX_DEPTH)?;
            way.push((at, met.before));
            at = met.dir;
        }
        Some(way)
    }
}

impl Store {
    /// The file of a number, if the tree has it.
    pub fn find_number(&self, number: u64) -> Option<Arc<Node>> {
        if let Some(node) = self.table.by_id(number) {
            return Some(node);
        }
        if let Some(found) = self.where_met(number) {
            return Some(found);
        }
        if number >= ALTERNATIVE || self.is_nowhere(number) {
            return None;
        }
        let met = self.look_through();
        *self.numbers.lock() = Some(Numbers {
            met,
            used: Instant::now(),
        });
        self.where_met(number)
    }

    /// Lets go of what was met when nobody has asked for a while.
    pub fn forget_numbers(&self) {
        let mut numbers = self.numbers.lock();
        if numbers.as_ref().is_some_and(|numbers| numbers.used.elapsed() > KEPT) {
            *numbers = None;
        }
    }

    /// The directory that a directory lies in.
    ///
    /// # Errors
    /// `ENOENT` where it has been removed, or the backing filesystem's.
    pub fn parent_of(&self, dir: &Arc<Node>) -> Result<Arc<Node>> {
        let place = dir.place();
        if let Some(parent) = place.parent
            && self.leads_to(&parent, &place.name, dir).unwrap_or(false)
        {
            return Ok(parent);
        }
        let gone = || sys::SysError::new("openat", c::ENOENT);
        // Moved behind the mount: its own entry says where to.
        let fd = sys::reopen(&*self.fd(dir)?, c::O_RDONLY | c::O_DIRECTORY)?;
        let above = sys::open_child(&fd, "..".as_ref()).map_err(|_| gone())?;
        let number = sys::stat(&above)?.ino;
        if number == self.root.key().ino {
            return Ok(Arc::clone(&self.root));
        }
        Ok(self.find_number(number).ok_or_else(gone)?)
    }

    /// The backing filesystem has no file of this number; only where it can be asked for one by number.
    fn is_nowhere(&self, number: u64) -> bool {
        const EXT: i64 = 0xEF53;
        let Some(mount) = self.mount.as_ref().filter(|_| self.features.handles) else {
            return false;
        };
        let is_ext = sys::statfs(mount).is_ok_and(|found| found.kind == EXT);
        let Some(handle) = Handle::of_inode(number).filter(|_| is_ext) else {
            return false;
        };
        let found = sys::open_by_handle(mount, &handle, c::O_PATH | c::O_NOFOLLOW);
        found.is_err_and(|error| error.errno() == c::ESTALE)
    }

    /// Goes by what was met, from the root down to the number.
    fn where_met(&self, number: u64) -> Option<Arc<Node>> {
        let way = self.way_to(number)?;
        let mut node = Arc::clone(&self.root);
        for (number, before) in way.into_iter().rev() {
            node = self.child_of_number(&node, number, before)?;
        }
        Some(node)
    }

    /// The numbers from the file up to what the root holds.
    fn way_to(&self, number: u64) -> Option<Vec<(u64, i64)>> {
        let root = self.root.key().ino;
        let mut numbers = self.numbers.lock();
        let way = numbers.as_mut().and_then(|numbers| numbers.way(number, root));
        drop(numbers);
        way
    }

    /// What has this number in a directory: where it was met, or anywhere in it.
    fn child_of_number(&self, dir: &Arc<Node>, number: u64, before: i64) -> Option<Arc<Node>> {
        if let Some(node) = self.table.by_id(number)
            && node.place().parent.is_some_and(|parent| parent.id() == dir.id())
            && self.leads_to(dir, &node.place().name, &node).unwrap_or(false)
        {
            return Some(node);
        }
        for from in [before, 0] {
            let mut named: Option<OsString> = None;
            let listed = self.list(dir, from, &mut |entry, _| {
                if entry.ino == number && named.is_none() {
                    named = Some(entry.name.to_owned());
                }
                // Where it was met it is the first.
                named.is_none() && from == 0
            });
            let found = listed.ok().and(named).and_then(|name| self.lookup(dir, &name).ok());
            if let Some((node, _)) = found.filter(|(_, stat)| stat.ino == number) {
                return Some(node);
            }
        }
        None
    }

    /// Meets every name of the tree.
    fn look_through(&self) -> HashMap<u64, Met> {
        let mut met = HashMap::new();
        let mut dirs = VecDeque::from([Arc::clone(&self.root)]);
        while let Some(dir) = dirs.pop_front() {
            let number = dir.key().ino;
            let mut below = Vec::new();
            let listed = self.list(&dir, 0, &mut |entry, before| {
                met.entry(entry.ino).or_insert(Met { dir: number, before });
                if matches!(entry.kind, c::DT_DIR | c::DT_UNKNOWN) {
                    below.push(entry.name.to_owned());
                }
                met.len() < MOST
            });
            if let Err(error) = listed {
                log::debug!("a directory is left out of the look for a number: {error}");
            }
            if met.len() >= MOST {
                log::info!("the tree is larger than what is looked through for a number");
                return met;
            }
            let found = below.iter().filter_map(|name| self.lookup(&dir, name).ok());
            dirs.extend(
                found
                    .map(|(node, _)| node)
                    .filter(|node| node.kind() == Kind::Directory),
            );
        }
        met
    }

    /// Shows the entries of a directory, from a cookie on, with the cookie before each, while `more` says so.
    fn list(&self, dir: &Arc<Node>, from: i64, more: &mut dyn FnMut(&sys::DirEntry<'_>, i64) -> bool) -> Result<()> {
        let fd = sys::reopen(&*self.fd(dir)?, c::O_RDONLY | c::O_DIRECTORY)?;
        if from != 0 {
            sys::seek_dir(&fd, from)?;
        }
        let (mut buffer, mut before) = (vec![0; BATCH], from);
        loop {
            let batch = sys::read_dir_entries(&fd, &mut buffer)?;
            if batch.is_empty() {
                return Ok(());
            }
            for entry in batch {
                let own = entry.name == "." || entry.name == ".." || self.is_hidden(dir, entry.name);
                if !own && !more(&entry, before) {
                    return Ok(());
                }
                before = entry.offset;
            }
        }
    }
}
