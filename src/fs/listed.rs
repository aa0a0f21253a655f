//! Listing a directory together with the attributes of what is in it, so that the kernel need not ask for each.

use std::ffi::OsStr;
use std::sync::Arc;

use super::dir::DirItem;
use super::errno::Result;
use super::lookup::{Attr, Entry};
use super::mount::Mount;
use super::virtual_dir::is_virtual_handle;
use crate::store::Node;

impl Mount {
    /// Lists a directory from a position on, with attributes, until `fill` says that it has enough. What has gone since
    /// it was listed is left out.
    ///
    /// # Errors
    /// The backing filesystem's.
    pub fn readdirplus(
        &self,
        handle: u64,
        position: u64,
        mut fill: impl FnMut(DirItem<'_>, &Attr) -> bool,
    ) -> Result<()> {
        if is_virtual_handle(handle) {
            self.readdir_virtual(position, |item| match self.attr_virtual(item.ino) {
                Ok(found) => fill(item, &found),
                Err(_) => false,
            });
            return Ok(());
        }
        let dir = self.dir_of(handle)?;
        self.guard().note_watched_so_far();
        self.guard().watch_dir(&dir);
        self.readdir(handle, position, |item| {
            if item.name == "." || item.name == ".." {
                // The kernel knows these, and does not count them.
                return match self.attributes_of(&dir) {
                    Ok(stat) => {
                        let attr = self.attr(&dir, &stat);
                        let ino = if item.name == ".." { item.ino } else { attr.ino };
                        fill(item, &Attr { ino, ..attr })
                    }
                    Err(_) => false,
                };
            }
            let since = self.changes_seen();
            let Ok((node, entry)) = self.listed(&dir, item.name) else {
                return false;
            };
            // There is one time for both.
            let ttl = entry.attr.ttl.min(entry.name_ttl);
            let full = fill(item, &Attr { ttl, ..entry.attr });
            if full {
                // It was not told.
                self.forget(node.id(), 1);
            } else {
                self.entry_known(&dir, item.name, &node, since);
            }
            full
        })
    }

    fn listed(&self, dir: &Arc<Node>, name: &OsStr) -> Result<(Arc<Node>, Entry)> {
        let (node, stat) = match self.staged_child(dir, name) {
            Some(node) => {
                let stat = self.attributes_of(&node)?;
                (node, stat)
            }
            None => self.guard().store.lookup(dir, name)?,
        };
        let entry = self.entry(dir, &node, &stat);
        Ok((node, entry))
    }
}
