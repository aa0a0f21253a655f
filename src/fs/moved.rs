//! Directories that a rename takes across levels: what is in them was not looked at, or is not going to be.
//!
//! Walks what lies below, without a lock. Never changes anything on the disk.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Guard;
use super::caller::Who;
use super::errno::Result;
use super::judge::at;
use super::mount::Mount;
use crate::guard::Level;
use crate::store::{Kind, Node, libc_flags as c};
use crate::sys::{self, Stat};

/// Names looked at below one directory, at most.
const MAX_NAMES: usize = 200_000;
/// Bytes asked of the backing filesystem at a time.
const BATCH: usize = 1 << 16;

/// A directory that is renamed, and its level before. While this lives it is guarded under whatever name it has, so
/// that nobody meets it at an unguarded one before it has been looked through.
#[derive(Debug)]
pub(super) struct MovedDir<'g> {
    guard: &'g Guard,
    dir: Arc<Node>,
    before: Level,
    /// It was not guarded so already, and need not stay so.
    releases: bool,
}

impl Drop for MovedDir<'_> {
    fn drop(&mut self) {
        if self.releases {
            self.guard.let_go(&self.dir);
            self.guard.places.fetch_add(1, Ordering::AcqRel);
        }
    }
}

impl MovedDir<'_> {
    pub(super) fn dir(&self) -> &Arc<Node> {
        &self.dir
    }

    pub(super) fn was_guarded(&self) -> bool {
        self.before != Level::Off
    }

    /// It goes on being guarded as it was.
    pub(super) fn stays(&mut self) {
        self.releases = false;
    }
}

impl Mount {
    /// The directory among what is renamed, with its level now.
    pub(super) fn before_move(&self, node: &Arc<Node>) -> Option<MovedDir<'_>> {
        if node.kind() != Kind::Directory {
            return None;
        }
        let guard = &**self.guard();
        let before = self.level_of_dir(node);
        let releases = before != Level::Off && !node.is_held();
        if releases {
            guard.hold(node, before);
        }
        Some(MovedDir {
            guard,
            dir: Arc::clone(node),
            before,
            releases,
        })
    }

    /// A directory has been renamed. Come out of an unguarded place, its files are what this owner put there, as a
    /// single file would be. Gone to an unguarded one, it stays guarded if its owner has not seen all of it: a derived
    /// name is no way to remove content unseen.
    pub(super) fn after_move(&self, who: &Who, mut moved: MovedDir<'_>) {
        let guard = self.guard();
        let dir = Arc::clone(&moved.dir);
        let after = self.level_by_name(&dir);
        match (moved.before, after) {
            (Level::Off, Level::Guard | Level::Keep) => {
                let walked = self.walk(&dir, |parent, node, stat, name| {
                    self.note_made(who, &at(parent, name), node, stat);
                    ControlFlow::Continue(())
                });
                if let Err(error) = walked {
                    log::debug!("a renamed directory could not be looked through: {error}");
                }
            }
            (before, after) if after.is_looser_than(before) => {
                let seen = self.walk(&dir, |_, node, stat, _| {
                    let current = guard
                        .ledger
                        .with_known_file(node.key(), |file| {
                            file.token() == stat.token() && file.is_current(who.owner)
                        })
                        .unwrap_or(false);
                    if current {
                        ControlFlow::Continue(())
                    } else {
                        ControlFlow::Break(())
                    }
                });
                moved.releases &= seen.is_ok_and(|seen| seen);
            }
            (Level::Off | Level::Guard | Level::Keep, _) => {}
        }
    }

    /// Shows every guarded regular file below a directory to `look`, until that has seen enough; says whether it was
    /// shown all.
    pub(super) fn walk(
        &self,
        top: &Arc<Node>,
        mut look: impl FnMut(&Arc<Node>, &Arc<Node>, &Stat, &std::ffi::OsStr) -> ControlFlow<()>,
    ) -> Result<bool> {
        let store = &self.guard().store;
        let mut dirs = vec![Arc::clone(top)];
        let mut left = MAX_NAMES;
        let mut buffer = vec![0; BATCH];
        while let Some(dir) = dirs.pop() {
            if dir.has_staged() {
                return Ok(false);
            }
            let open = sys::reopen(&*store.fd(&dir)?, c::O_RDONLY | c::O_DIRECTORY)?;
            loop {
                let batch = sys::read_dir_entries(&open, &mut buffer)?;
                if batch.is_empty() {
                    break;
                }
                for entry in batch {
                    if entry.name == "." || entry.name == ".." {
                        continue;
                    }
                    left -= 1;
                    if left == 0 {
                        return Ok(false);
                    }
                    let Ok((node, stat)) = store.lookup(&dir, entry.name) else {
                        continue;
                    };
                    match node.kind() {
                        Kind::Directory if !self.is_off_below(top, &node) => dirs.push(node),
                        Kind::Regular if look(&dir, &node, &stat, entry.name).is_break() => return Ok(false),
                        Kind::Directory | Kind::Regular | Kind::Symlink | Kind::Special => {}
                    }
                }
            }
        }
        Ok(true)
    }

    fn is_off_below(&self, top: &Arc<Node>, dir: &Arc<Node>) -> bool {
        !Arc::ptr_eq(top, dir) && self.level_of_dir(dir) == Level::Off
    }
}
