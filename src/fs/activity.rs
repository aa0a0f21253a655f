//! What owners are doing now, for those who look on.
//!
//! Bounded, and only ever shown: nothing is decided by it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::sync::{Arc, Weak};

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

use super::caller::At;
use super::explained::{Asker, Changed, Explained, Operation, Outcome, Question};
use super::{Guard, Told};
use crate::audit::Report;
use crate::clock;
use crate::guard::{Intent, OwnerId, Policy};
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

    /// The owner has given what it opened last another name.
    pub(super) fn renamed(&self, owner: OwnerId, (from, old): (&Arc<Node>, &OsStr), (to, new): (&Arc<Node>, &OsStr)) {
        let mut shard = self.0.lock(&owner);
        if let Some(last) = shard.get_mut(&owner)
            && &*last.1 == old
            && std::ptr::eq(last.0.as_ptr(), Arc::as_ptr(from))
        {
            *last = (Arc::downgrade(to), new.into());
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
    /// Numbers of refusals whose step was taken since. Of many of one kind it is that of the last, and stands for all.
    pub settled: Vec<u64>,
    /// The same of refusals of which nothing is there any more.
    pub gone: Vec<u64>,
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
    /// What would have been refused, but was only recorded.
    pub would_refuse: u64,
    /// Files it has open, a few of them.
    pub open: Vec<String>,
    /// The file it opened last.
    pub last: Option<String>,
}

/// What has become of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Become {
    /// Its step was taken.
    Settled,
    /// Nothing is there any more.
    Gone,
}

impl Guard {
    /// What the owners for which `who` says yes are doing, and what was refused to them after the report `since`.
    pub fn activity(self: &Arc<Self>, since: u64, mut who: impl FnMut(OwnerId, &str) -> bool) -> Activity {
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
                refusals: counts.refusals - counts.would_refuse,
                would_refuse: counts.would_refuse,
                open: open.remove(&owner.id).unwrap_or_default(),
                last: self.last_touched(owner.id),
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
        let mut refusals = folded(new);
        refusals.drain(..refusals.len().saturating_sub(MAX_REFUSALS));
        for told in &mut refusals {
            told.line = short(std::mem::take(&mut told.line));
            told.cause = short(std::mem::take(&mut told.cause));
            told.path = short(std::mem::take(&mut told.path));
        }
        let (settled, gone) = self.settled(recent.iter().filter(|report| shown.contains(&report.owner)));
        Activity {
            settled,
            gone,
            at: clock::now().sec,
            owners: all,
            more_owners,
            refusals,
            sequence,
        }
    }

    /// The file that an owner opened last, if it is still there: names of the moment say nothing.
    fn last_touched(&self, owner: OwnerId) -> Option<String> {
        let at = self.touched.last(owner)?;
        let dir = at.dir.as_ref()?;
        // A staged name is there though the backing directory does not have it.
        let is_gone = matches!(self.store.peek(dir, &at.name), Ok(None)) && !dir.has_staged();
        (!is_gone).then(|| short(self.path_of(&at)))
    }

    /// Of the last refusals, those whose step was taken since, and those of which nothing is there any more.
    fn settled<'r>(self: &Arc<Self>, recent: impl DoubleEndedIterator<Item = &'r Arc<Report>>) -> (Vec<u64>, Vec<u64>) {
        let mut looked_at: Vec<&Report> = Vec::new();
        let (mut settled, mut gone) = (Vec::new(), Vec::new());
        for report in recent.rev() {
            let same = |known: &&Report| {
                let of = |report: &Report| (report.owner, report.refusal.operation);
                of(known) == of(report) && known.refusal.path == report.refusal.path
            };
            if looked_at.iter().any(same) {
                continue;
            }
            if looked_at.len() == MAX_REFUSALS {
                break;
            }
            looked_at.push(report);
            match self.become_of(report) {
                Some(Become::Settled) => settled.push(report.sequence),
                Some(Become::Gone) => gone.push(report.sequence),
                None => {}
            }
        }
        (settled, gone)
    }

    /// What has become of a refusal, by what its owner knows now; nothing while its step is still to be taken.
    pub(super) fn become_of(self: &Arc<Self>, report: &Report) -> Option<Become> {
        let (refusal, intent) = (&report.refusal, report.details.intent?);
        if refusal.path.contains('\u{fffd}') {
            return None;
        }
        let path: Vec<OsString> = refusal.path.split('/').map(OsString::from).collect();
        let question = Question {
            path: &path,
            operation: match intent {
                Intent::Remove => Operation::Remove,
                Intent::Edit => Operation::Edit,
                Intent::Create | Intent::Replace | Intent::RenameOver | Intent::Link | Intent::Append => {
                    Operation::Write
                }
            },
            owners: &[Some(report.owner)],
            policy: Policy::default(),
            mount: self.mounts().first().map(|mount| mount.id()),
            read_only: false,
            asker: Asker { uid: 0, gid: 0, pid: 0 },
            difference: false,
        };
        let Ok(Explained::Answer(answer)) = self.explain(&question) else {
            return None;
        };
        let view = answer.views.first()?;
        if refusal.kept.is_some() {
            // What was written is somewhere else until it is written anew.
            let anew = |changed: &Changed| changed.own && changed.at.is_some_and(|at| at >= report.at.sec);
            return view.changed.as_ref().is_some_and(anew).then_some(Become::Settled);
        }
        if answer.there == "nothing" && view.view != "stale" {
            return Some(Become::Gone);
        }
        let knows = ["current", "absent"].contains(&view.view.as_str());
        (knows && view.outcome == Outcome::Allowed).then_some(Become::Settled)
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

/// Each once, where it happened last, with how often it did.
fn folded<'r>(reports: impl Iterator<Item = &'r Arc<Report>>) -> Vec<Told> {
    let mut alike: HashMap<_, (&Report, u64)> = HashMap::new();
    for report in reports {
        let refusal = &report.refusal;
        let key = (
            report.owner,
            refusal.operation,
            refusal.path.as_str(),
            refusal.code,
            report.enforced,
        );
        let (last, count) = alike.entry(key).or_insert((report, 0));
        *last = report;
        *count += 1;
    }
    let told = alike.into_values().map(|(report, count)| Told {
        more: count - 1,
        ..Told::of(report)
    });
    let mut told: Vec<Told> = told.collect();
    told.sort_unstable_by_key(|told| told.sequence);
    told
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
