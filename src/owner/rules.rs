//! Owners by rule, for processes below no registered one: by session, process, user or cgroup.
//!
//! Two processes share an owner here only while it is proven that they share what the rule is about.

use std::sync::{Arc, Weak};

use hashbrown::HashMap;
use smallvec::SmallVec;

use super::OwnerBy;
use super::names::{Names, OwnerKind};
use super::record::{Record, Records};
use crate::guard::OwnerId;
use crate::sync::Mutex;
use crate::sys;

/// What an owner by rule is kept under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    /// The number and its leader; without a leader, nobody but its known members can say which session of that number
    /// it is.
    Session(u32, Option<Leader>),
    User(u32),
    Cgroup(u64),
}

/// The leader of a session, told apart from any later process of its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Leader {
    start: u64,
    /// The number of its pidfd's inode, which is never given twice (6.9+; before, all have the same).
    inode: u64,
}

#[derive(Debug)]
struct Entry {
    owner: OwnerId,
    used: u64,
    /// Of a session: some who were found in it. While one of them runs in it, it is still the same session.
    members: Vec<Weak<Record>>,
}

/// How many members of a session are remembered.
const MEMBERS: usize = 8;
/// How far up the shells are looked for in which a process was started.
const MAX_ANCESTORS: usize = 64;

/// The owners by rule, bounded: the longest unused are forgotten.
#[derive(Debug)]
pub(super) struct Rules {
    table: Mutex<Table>,
    limit: usize,
}

#[derive(Debug, Default)]
struct Table {
    entries: HashMap<Key, Entry>,
    clock: u64,
}

impl Rules {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            table: Mutex::default(),
            limit: limit.max(16),
        }
    }

    /// The owner of a process by `rule`. What a process was first found to be (but its user, which is the request's)
    /// it stays.
    pub(super) fn owner(
        &self,
        (record, records): (&Arc<Record>, &Records),
        rule: OwnerBy,
        uid: u32,
        names: &Mutex<Names>,
    ) -> OwnerId {
        if rule == OwnerBy::User {
            return self.keyed(Key::User(uid), &[], names);
        }
        let known = *record.state.lock().by_rule(rule);
        if let Some(owner) = known {
            return owner;
        }
        let owner = match rule {
            OwnerBy::Session => self.session(record, records, names),
            OwnerBy::Cgroup => match record.cgroup_now() {
                Some(cgroup) => self.keyed(Key::Cgroup(cgroup), &[], names),
                None => of_process(record, names),
            },
            OwnerBy::Process | OwnerBy::User => of_process(record, names),
        };
        // Two threads of one process may have come here at once: the first answer stands for both.
        *record.state.lock().by_rule(rule).get_or_insert(owner)
    }

    fn session(&self, record: &Arc<Record>, records: &Records, names: &Mutex<Names>) -> OwnerId {
        let number = record.session;
        let leader = leader_of(number);
        // While the process was in the session, its number could not be given to anybody else.
        if record.session_now() != Some(number) {
            return of_process(record, names);
        }
        let members = members_by(record, records);
        match leader {
            Some(_) => self.keyed(Key::Session(number, leader), &members, names),
            None => self.leaderless(number, &members, names),
        }
    }

    /// Nobody says when the session began: it is the one in which a known member still is, else a new one.
    fn leaderless(&self, number: u32, members: &[Arc<Record>], names: &Mutex<Names>) -> OwnerId {
        let known = self.table.lock().sessions(number);
        let lives = |members: Vec<Weak<Record>>| {
            members
                .iter()
                .filter_map(Weak::upgrade)
                .any(|member| member.session_now() == Some(number))
        };
        let same = known
            .into_iter()
            .find_map(|(key, members)| lives(members).then_some(key));
        if same.is_none() {
            self.forget(&Key::Session(number, None), names);
        }
        self.keyed(same.unwrap_or(Key::Session(number, None)), members, names)
    }

    fn keyed(&self, key: Key, members: &[Arc<Record>], names: &Mutex<Names>) -> OwnerId {
        let mut table = self.table.lock();
        table.clock += 1;
        let used = table.clock;
        let entry = table.entries.entry(key).or_insert_with(|| {
            let (base, kind) = describe(key);
            Entry {
                owner: names.lock().fresh(&base, kind, None),
                used,
                members: Vec::new(),
            }
        });
        entry.used = used;
        for member in members {
            entry
                .members
                .retain(|known| known.strong_count() > 0 && !std::ptr::eq(known.as_ptr(), Arc::as_ptr(member)));
            if entry.members.len() >= MEMBERS {
                entry.members.remove(0);
            }
            entry.members.push(Arc::downgrade(member));
        }
        let owner = entry.owner;
        let forgotten = if table.entries.len() > self.limit {
            table.make_room(self.limit)
        } else {
            Vec::new()
        };
        drop(table);
        if !forgotten.is_empty() {
            let mut names = names.lock();
            forgotten.into_iter().for_each(|id| names.forget(id));
        }
        owner
    }

    fn forget(&self, key: &Key, names: &Mutex<Names>) {
        let entry = self.table.lock().entries.remove(key);
        if let Some(entry) = entry {
            names.lock().forget(entry.owner);
        }
    }
}

impl Table {
    /// All sessions that have, or had, that number, and members of each.
    fn sessions(&self, number: u32) -> Vec<(Key, Vec<Weak<Record>>)> {
        let same = self
            .entries
            .iter()
            .filter(|(key, _)| matches!(key, Key::Session(n, _) if *n == number));
        same.map(|(key, entry)| (*key, entry.members.clone())).collect()
    }

    fn make_room(&mut self, limit: usize) -> Vec<OwnerId> {
        let mut by_use: Vec<_> = self.entries.iter().map(|(key, entry)| (entry.used, *key)).collect();
        by_use.sort_unstable_by_key(|&(used, _)| used);
        let surplus = by_use.len().saturating_sub(limit - limit / 4);
        let oldest = by_use.into_iter().take(surplus);
        oldest
            .filter_map(|(_, key)| self.entries.remove(&key))
            .map(|entry| entry.owner)
            .collect()
    }
}

/// The leader of a session, while there is one. Believe it only when the number was held by the session meanwhile.
fn leader_of(number: u32) -> Option<Leader> {
    let pidfd = sys::pidfd_open(number, false).ok();
    let inode = pidfd.and_then(|fd| sys::stat(fd).ok()).map_or(0, |stat| stat.ino);
    let stat = sys::read_proc_stat(number).ok().filter(|stat| stat.session == number)?;
    Some(Leader {
        start: stat.start,
        inode,
    })
}

/// A process of a session, its parent, and the eldest above it, as far as they are in the session, too: a shell outlives the
/// commands that are met, and may never be met itself.
fn members_by(record: &Arc<Record>, records: &Records) -> SmallVec<[Arc<Record>; 3]> {
    let mut members: SmallVec<[Arc<Record>; 3]> = SmallVec::from_iter([Arc::clone(record)]);
    let mut at = Arc::clone(record);
    for _ in 0..MAX_ANCESTORS {
        let parent = at.parent_now().and_then(|number| records.get(number));
        let Some(parent) = parent.filter(|parent| parent.session_now() == Some(record.session)) else {
            break;
        };
        members.truncate(2);
        members.push(Arc::clone(&parent));
        at = parent;
    }
    members
}

fn of_process(record: &Arc<Record>, names: &Mutex<Names>) -> OwnerId {
    let base = format!("{}[{}]", record.command, record.process.tgid);
    names.lock().of_process(&base, record)
}

fn describe(key: Key) -> (String, OwnerKind) {
    match key {
        Key::Session(number, _) => (format!("session-{number}"), OwnerKind::Session),
        Key::User(uid) => (format!("user-{uid}"), OwnerKind::User),
        Key::Cgroup(id) => (format!("cgroup-{id}"), OwnerKind::Cgroup),
    }
}
