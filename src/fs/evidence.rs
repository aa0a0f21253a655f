//! Names that make a directory a derived one (`Cargo.toml` beside `target`), as they appear and go.
//!
//! Evidence that an owner makes takes the guard from nobody's work: what others had in the directory before, and what nobody
//! has changed since the guard began, stays as closely guarded as it was. What outsiders make is believed. Never changes
//! anything on the disk.

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::sync::Arc;

use hashbrown::HashSet;

use super::Guard;
use super::caller::Who;
use super::errno::Result;
use super::mount::Mount;
use super::moved::MovedDir;
use crate::guard::levels::{BUILT_IN, Kind as Of, Marker, is_marker, matching};
use crate::guard::{Author, Level};
use crate::store::{Kind, Node, libc_flags as c};
use crate::sys::{self, Stat};

/// Files of one directory that are held one by one, at most: with more, all of it stays as it was.
const MAX_HELD: usize = 4096;
/// Bytes asked of the backing filesystem at a time.
const BATCH: usize = 1 << 16;

/// Directories that a name about to be bound may make derived. While this lives they are guarded as before.
#[derive(Debug, Default)]
pub(super) struct Evidence<'g> {
    dirs: Vec<MovedDir<'g>>,
}

impl Evidence<'_> {
    /// Whether the name changes nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.dirs.is_empty()
    }
}

impl Mount {
    /// A name is about to be bound, and the lock of its directory is held.
    pub(super) fn evidence_comes(&self, dir: &Arc<Node>, name: &OsStr) -> Evidence<'_> {
        if !self.may_be_evidence(dir, name) {
            return Evidence::default();
        }
        let guard = self.guard();
        let not_derived = guard.marked_by(dir, name).into_iter().filter(|found| {
            let place = found.place();
            place
                .parent
                .is_some_and(|parent| !guard.built_in(found, &parent, &place.name).1)
        });
        let dirs = not_derived.filter_map(|found| self.before_move(&found));
        Evidence {
            dirs: dirs.filter(MovedDir::was_guarded).collect(),
        }
    }

    /// The name has been bound, and no lock is held.
    pub(super) fn evidence_came(&self, who: &Who, evidence: Evidence<'_>) {
        for mut dir in evidence.dirs {
            match self.hold_others(who, dir.dir()) {
                Ok(true) => {}
                Ok(false) => dir.stays(),
                Err(error) => {
                    log::debug!("a directory that becomes a derived one could not be looked through: {error}");
                    dir.stays();
                }
            }
        }
    }

    /// A name is about to be taken away: what it makes derived stays so, though the name be made anew by an owner.
    pub(super) fn evidence_goes(&self, dir: &Arc<Node>, name: &OsStr) {
        if !self.may_be_evidence(dir, name) {
            return;
        }
        for found in self.guard().marked_by(dir, name) {
            let place = found.place();
            if let Some(parent) = place.parent {
                self.guard().built_in(&found, &parent, &place.name);
            }
        }
    }

    fn may_be_evidence(&self, dir: &Arc<Node>, name: &OsStr) -> bool {
        // Below what is off already nothing is guarded less.
        is_marker(name) && self.level_of_dir(dir) != Level::Off
    }

    /// Guards each file below a directory that is not the caller's own as closely as now, under every name; says whether it
    /// could do so.
    fn hold_others(&self, who: &Who, top: &Arc<Node>) -> Result<bool> {
        let mut others = Vec::new();
        let whole = self.walk(top, |parent, node, stat, name| {
            if !self.guard().is_own(who, node, stat) {
                let level = self.level_of_file(who, Some(parent), name, node);
                if level != Level::Off {
                    others.push((Arc::clone(node), level));
                }
            }
            if others.len() > MAX_HELD {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        if whole {
            for (node, level) in others {
                self.guard().hold(&node, level);
            }
        }
        Ok(whole)
    }
}

impl Guard {
    /// The directories that a name in this one is evidence for.
    fn marked_by(&self, dir: &Arc<Node>, name: &OsStr) -> Vec<Arc<Node>> {
        let mut found = Vec::new();
        let is = |marker: &Marker, beside: bool| match marker {
            Marker::Sibling(sibling) => beside && name == OsStr::new(sibling),
            Marker::Child(child) => !beside && name == OsStr::new(child),
        };
        let speaks = |index: usize, beside| BUILT_IN[index].markers.iter().any(|marker| is(marker, beside));
        if matching(&dir.place().name, Of::Directory).is_some_and(|index| speaks(index, false)) {
            found.push(Arc::clone(dir));
        }
        let beside: HashSet<usize> = (0..BUILT_IN.len()).filter(|index| speaks(*index, true)).collect();
        let globs = beside
            .iter()
            .any(|index| BUILT_IN[*index].pattern.contains(['*', '?', '[']));
        let mut take = |name: &OsStr| {
            if matching(name, Of::Directory).is_some_and(|index| beside.contains(&index))
                && let Ok((node, _)) = self.store.lookup(dir, name)
                && node.kind() == Kind::Directory
            {
                found.push(node);
            }
        };
        if globs {
            if let Err(error) = self.each_name(dir, &mut take) {
                log::debug!("a directory could not be listed: {error}");
            }
        } else {
            beside
                .iter()
                .for_each(|index| take(OsStr::new(BUILT_IN[*index].pattern)));
        }
        found
    }

    fn each_name(&self, dir: &Arc<Node>, mut take: impl FnMut(&OsStr)) -> Result<()> {
        let open = sys::reopen(&*self.store.fd(dir)?, c::O_RDONLY | c::O_DIRECTORY)?;
        let mut buffer = vec![0; BATCH];
        loop {
            let batch = sys::read_dir_entries(&open, &mut buffer)?;
            if batch.is_empty() {
                return Ok(());
            }
            batch.for_each(|entry| take(entry.name));
        }
    }

    /// Whether what a file holds now was made by the caller's owner.
    fn is_own(&self, who: &Who, node: &Node, stat: &Stat) -> bool {
        let own = |record: &mut crate::guard::FileRecord| {
            let last = record.history().last().map(|change| change.author);
            record.token() == stat.token() && last == Some(Author::Owner(who.owner)) && record.is_current(who.owner)
        };
        self.ledger.with_known_file(node.key(), own).unwrap_or(false)
    }
}
