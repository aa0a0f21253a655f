//! What owners are doing now, for those who look on.
//!
//! Bounded, and only ever shown: nothing is decided by it.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsStr;
use std::sync::{Arc, Weak};

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

use super::caller::At;
use super::{Guard, Told};
use crate::clock;
use crate::guard::OwnerId;
use crate::owner::OwnerKind;
use crate::store::Node;
use crate::sync::Sharded;

/// Owners told of, the busiest first.
const MAX_OWNERS: usize = 64;
/// Open files told of one owner.
const MAX_FILES: usize = 3;
/// Refusals told of at once.
const MAX_REFUSALS: usize = 20;
/// Bytes of a path or line told.
const MAX_TEXT: usize = 400;

/// A name, without holding on to its directory.
type Name = (Weak<Node>, Arc<OsStr>);

/// The file each owner opened last.
#[derive(Debug, Default)]
pub(super) struct Touched(Sharded<HashMap<OwnerId, Name>>);

impl Touched {
    pub(super) fn note(&self, owner: OwnerId, at: &At) {
        if let Some(dir) = &at.dir {
            let last = (Arc::downgrade(dir), at.name.clone());
            let before = self.0.lock(&owner).insert(owner, last);
            drop(before);
        }
    }

    pub(super) fn retain_owners(&self, mut keep: impl FnMut(OwnerId) -> bool) {
        self.0.each(|shard| shard.retain(|owner, _| keep(*owner)));
    }

    fn last(&self, owner: OwnerId) -> Option<At> {
        let (dir, name) = self.0.lock(&owner).get(&owner).cloned()?;
        Some(At {
            dir: Some(dir.upgrade()?),
            name,
            certain: false,
            locked: false,
        })
    }
}

/// What a guard is doing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Activity {
    /// When, in seconds since the epoch.
    pub at: i64,
    /// The owners.
    pub owners: Vec<OwnerActivity>,
    /// Owners that are not among them.
    pub more_owners: usize,
    /// Refusals after the one that was named, the oldest first.
    pub refusals: Vec<Told>,
    /// The number of the last refusal there was.
    pub sequence: u64,
}

/// What one owner is doing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OwnerActivity {
    /// Its name.
    pub name: String,
    /// A user chose the name.
    pub named: bool,
    /// Requests since the guard began.
    pub operations: u64,
    /// Observations since the guard began.
    pub observations: u64,
    /// Refusals since the guard began.
    pub refusals: u64,
    /// Files it has open, a few of them.
    pub open: Vec<String>,
    /// The file it opened last.
    pub last: Option<String>,
}

impl Guard {
    /// What the owners for which `who` says yes are doing, and what was refused to them after the report `since`.
    pub fn activity(&self, since: u64, mut who: impl FnMut(OwnerId, &str) -> bool) -> Activity {
        let mut open = self.open_files();
        let mut all: Vec<OwnerActivity> = Vec::new();
        let mut shown = Vec::new();
        for owner in self.owners().list() {
            if !who(owner.id, &owner.name) {
                continue;
            }
            shown.push(owner.id);
            let counts = self.events().counts_of(owner.id);
            all.push(OwnerActivity {
                name: owner.name.to_string(),
                named: owner.kind == OwnerKind::Named,
                operations: counts.operations,
                observations: counts.observations,
                refusals: counts.refusals,
                open: open.remove(&owner.id).unwrap_or_default(),
                last: self.touched.last(owner.id).map(|at| short(self.path_of(&at))),
            });
        }
        all.sort_by(|a, b| b.operations.cmp(&a.operations).then_with(|| a.name.cmp(&b.name)));
        let more_owners = all.len().saturating_sub(MAX_OWNERS);
        all.truncate(MAX_OWNERS);
        let recent = self.events().recent();
        let sequence = recent.last().map_or(since, |report| report.sequence);
        let new = recent
            .iter()
            .filter(|report| report.sequence > since && shown.contains(&report.owner));
        let mut refusals: VecDeque<Told> = VecDeque::new();
        for report in new {
            let told = Told::of(report);
            match refusals.back_mut() {
                Some(last) if last.is_like(&told) => {
                    let more = last.more + 1;
                    *last = Told { more, ..told };
                }
                Some(_) | None => refusals.push_back(told),
            }
            if refusals.len() > MAX_REFUSALS {
                refusals.pop_front();
            }
        }
        let mut refusals: Vec<Told> = refusals.into();
        for told in &mut refusals {
            told.line = short(std::mem::take(&mut told.line));
            told.path = short(std::mem::take(&mut told.path));
        }
        Activity {
            at: clock::now().sec,
            owners: all,
            more_owners,
            refusals,
            sequence,
        }
    }

    /// A few of the files that each owner has open, by path.
    fn open_files(&self) -> BTreeMap<OwnerId, Vec<String>> {
        let mut found: BTreeMap<OwnerId, Vec<String>> = BTreeMap::new();
        for mount in self.mounts() {
            let mut some: Vec<(OwnerId, At)> = Vec::new();
            mount.files.each(|shard| {
                for handle in shard.values() {
                    let known = some.iter().filter(|(owner, _)| *owner == handle.owner()).count();
                    if known < MAX_FILES {
                        some.push((handle.owner(), handle.at().clone()));
                    }
                }
            });
            for (owner, at) in some {
                let files = found.entry(owner).or_default();
                let path = short(self.path_of(&at));
                if files.len() < MAX_FILES && !files.contains(&path) {
                    files.push(path);
                }
            }
        }
        found
    }
}

fn short(mut text: String) -> String {
    if text.len() > MAX_TEXT {
        let mut end = MAX_TEXT;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
    text
}
