//! Files that somebody holds a handle to (`name_to_handle_at`) and the kernel has forgotten: it asks for them by number, as
//! for "." in them, and for the directory above one by "..".

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Duration;

use super::caller::{Arrival, Caller};
use super::errno::{FsError, Result};
use super::lookup::Entry;
use super::mount::Mount;
use super::virtual_dir::is_virtual;
use crate::store::{Kind, Node, ROOT_ID, libc_flags as c};

impl Mount {
    /// Finds a file again by its number, or the directory that a directory lies in; nothing for any other name.
    pub(super) fn lookup_by_number(&self, caller: &Caller, id: u64, name: &OsStr) -> Option<Result<Entry>> {
        let found = match name.as_encoded_bytes() {
            b"." => self.find_again(id),
            b".." => self.find_above(id),
            _ => return None,
        };
        // A look, by whatever name: nothing is seen by it.
        self.arrive(caller, Arrival::Other);
        Some(found.and_then(|node| self.entry_by_number(&node)))
    }

    fn find_again(&self, id: u64) -> Result<Arc<Node>> {
        if is_virtual(id) {
            return Err(FsError::Errno(c::ESTALE));
        }
        let node = match self.node(id) {
            Ok(node) => node,
            Err(_) => self.guard().store.find_number(id).ok_or(FsError::Errno(c::ESTALE))?,
        };
        // The number may have become another file's, and what has no name is there only while somebody has it open.
        let is_it = node.id() == id && !self.is_over(&node)?;
        is_it.then_some(node).ok_or(FsError::Errno(c::ESTALE))
    }

    fn find_above(&self, id: u64) -> Result<Arc<Node>> {
        let node = self.node(id)?;
        if node.kind() != Kind::Directory || id == ROOT_ID {
            return Err(FsError::Errno(c::ESTALE));
        }
        Ok(self.guard().store.parent_of(&node)?)
    }

    fn is_over(&self, node: &Arc<Node>) -> Result<bool> {
        if node.kind() != Kind::Regular {
            return Ok(self.attributes_of(node)?.nlink == 0);
        }
        let stat = self.attributes_of(node)?;
        let state = node.content().lock();
        let links = stat.nlink.saturating_sub(u32::from(state.in_attic));
        let over = links == 0 && state.staged.is_none() && state.handles == 0;
        drop(state);
        Ok(over)
    }

    fn entry_by_number(&self, node: &Arc<Node>) -> Result<Entry> {
        let stat = self.attributes_of(node)?;
        self.know(node);
        let mut entry = Entry {
            attr: self.attr(node, &stat),
            name_ttl: Duration::ZERO,
        };
        if node.id() == ROOT_ID {
            // The one field says the node and, until it is asked for, the number: the node it has to be.
            entry.attr.ino = ROOT_ID;
            entry.attr.ttl = Duration::ZERO;
        }
        Ok(entry)
    }
}
