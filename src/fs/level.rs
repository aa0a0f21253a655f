//! The level of a name: derived from the names above it, and cached on the nodes.

use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hashbrown::{HashMap, HashSet};

use super::Guard;
use super::ledger::entry_key;
use crate::guard::levels::{Kind, Marker, Verdict, of_name};
use crate::guard::{EntryKey, FileKey, Level};
use crate::store::Node;
use crate::sync::Mutex;
use crate::sys;

/// How the level of a directory is kept in its node: the epoch of places, and whether it may still change.
const OFF: u64 = 1;
const GUARD: u64 = 2;
const EPOCH_SHIFT: u32 = 8;
/// Directories remembered as derived, at most.
const MAX_DERIVED: usize = 1 << 14;

/// Directories that a marker made derived, and the name at which it did: renamed, they are looked at anew.
#[derive(Debug, Default)]
pub(super) struct Derived(Mutex<HashMap<FileKey, EntryKey>>);

impl Derived {
    fn note(&self, dir: FileKey, place: EntryKey) {
        let mut all = self.0.lock();
        if all.len() >= MAX_DERIVED {
            // Forgotten means guarded.
            all.clear();
        }
        all.insert(dir, place);
    }

    fn was_at(&self, dir: &FileKey, place: &EntryKey) -> bool {
        self.0.lock().get(dir) == Some(place)
    }
}

impl Guard {
    /// The level of a file named `name` in `dir`.
    pub(super) fn level_of(&self, dir: Option<&Arc<Node>>, name: &OsStr) -> Level {
        let Some(dir) = dir else { return Level::Guard };
        let above = self.level_of_dir(dir);
        match of_name(above, name, Kind::File) {
            Verdict::Level(level) => level,
            Verdict::IfAny(markers) => self.by_markers(above, dir, name, markers),
        }
    }

    /// The level of a file found under a name: at least that of a name under which its content was not seen.
    pub(super) fn level_of_file(&self, dir: Option<&Arc<Node>>, name: &OsStr, node: &Node) -> Level {
        match self.level_of(dir, name) {
            Level::Off if node.is_held() => Level::Guard,
            level @ (Level::Off | Level::Guard | Level::Keep) => level,
        }
    }

    /// The level of a directory and of what is in it.
    pub(super) fn level_of_dir(&self, dir: &Arc<Node>) -> Level {
        let epoch = self.places.load(Ordering::Acquire);
        // Up to the nearest directory whose level is known, then down again.
        let mut path = Vec::new();
        let mut at = Arc::clone(dir);
        // Outsiders move directories unseen: places that are out of date may lead round in a circle.
        let mut met = dir.id();
        let mut level = loop {
            if at.is_held() {
                break Level::Guard;
            }
            if let Some(level) = cached(&at, epoch) {
                break level;
            }
            let place = at.place();
            let Some(parent) = place.parent else { break Level::Guard };
            path.push((at, Arc::clone(&parent), place.name));
            at = parent;
            if at.id() == met {
                return Level::Guard;
            }
            if path.len().is_power_of_two() {
                met = at.id();
            }
        };
        while let Some((node, parent, name)) = path.pop() {
            let (found, settled) = match of_name(level, &name, Kind::Directory) {
                Verdict::Level(found) => (found, true),
                Verdict::IfAny(markers) => {
                    let found = self.by_evidence(level, &node, &parent, &name, markers);
                    // A marker may still appear: only what it decided is kept.
                    (found, found == Level::Off)
                }
            };
            level = found;
            if settled {
                remember(&node, epoch, level);
            } else {
                // What is below depends on it too.
                return self.unsettled(level, path);
            }
        }
        level
    }

    /// The level that a directory's name gives it, whether or not it is guarded under every name.
    pub(super) fn level_by_name(&self, dir: &Arc<Node>) -> Level {
        let place = dir.place();
        let Some(parent) = place.parent else {
            return Level::Guard;
        };
        let above = self.level_of_dir(&parent);
        match of_name(above, &place.name, Kind::Directory) {
            Verdict::Level(level) => level,
            Verdict::IfAny(markers) => self.by_evidence(above, dir, &parent, &place.name, markers),
        }
    }

    /// The rest of the way down from a directory whose level may change: nothing is kept.
    fn unsettled(&self, mut level: Level, mut path: Vec<(Arc<Node>, Arc<Node>, Box<OsStr>)>) -> Level {
        while let Some((node, parent, name)) = path.pop() {
            level = match of_name(level, &name, Kind::Directory) {
                Verdict::Level(found) => found,
                Verdict::IfAny(markers) => self.by_evidence(level, &node, &parent, &name, markers),
            };
        }
        level
    }

    /// By markers, now or once: nobody looked at what was made in the directory while it was derived, so that its own
    /// makers could not remove it any more once the marker is gone (`rm -r` takes names in any order).
    fn by_evidence(&self, above: Level, node: &Node, parent: &Arc<Node>, name: &OsStr, markers: &[Marker]) -> Level {
        let place = entry_key(parent.key(), name);
        if self.by_markers(above, parent, name, markers) == Level::Off {
            self.derived.note(node.key(), place);
            return Level::Off;
        }
        if self.derived.was_at(&node.key(), &place) {
            Level::Off
        } else {
            above
        }
    }

    /// Guards a file, or a directory and what is in it, under whatever name it has from now on.
    pub(super) fn hold(&self, node: &Arc<Node>) {
        if !node.is_held() {
            node.hold();
            self.held.lock().push(Arc::clone(node));
        }
    }

    /// Guards a node by its name again.
    pub(super) fn let_go(&self, node: &Arc<Node>) {
        node.let_go();
        self.held.lock().retain(|known| !Arc::ptr_eq(known, node));
    }

    /// Lets go of what is not there any more. What is there stays: forgotten, it would be guarded less.
    pub(super) fn tidy_held(&self) {
        let all = self.held.lock().clone();
        let gone = |node: &&Arc<Node>| !self.store.stat(node).is_ok_and(|stat| stat.nlink > 0);
        let doomed: HashSet<_> = all.iter().filter(gone).map(|node| node.id()).collect();
        self.held.lock().retain(|node| !doomed.contains(&node.id()));
    }

    fn by_markers(&self, above: Level, parent: &Arc<Node>, name: &OsStr, markers: &[Marker]) -> Level {
        let Ok(parent) = self.store.fd(parent) else {
            return above;
        };
        let found = markers.iter().any(|marker| match marker {
            Marker::Sibling(sibling) => sys::stat_at(&*parent, OsStr::new(sibling)).is_ok(),
            Marker::Child(child) => {
                sys::open_child(&*parent, name).is_ok_and(|inner| sys::stat_at(&inner, OsStr::new(child)).is_ok())
            }
        });
        if found { Level::Off } else { above }
    }
}

fn cached(node: &Node, epoch: u64) -> Option<Level> {
    let kept = node.level.load(Ordering::Acquire);
    if kept >> EPOCH_SHIFT != epoch {
        return None;
    }
    Some(if kept & OFF == OFF { Level::Off } else { Level::Guard })
}

fn remember(node: &Node, epoch: u64, level: Level) {
    let value = match level {
        Level::Off => OFF,
        Level::Guard | Level::Keep => GUARD,
    };
    node.level.store(epoch << EPOCH_SHIFT | value, Ordering::Release);
}
