//! Who is asking: from the thread number of a request to the owner who holds observations.
//!
//! A named owner is who a `run` made one: the registered process and everything that descends from it. All others are
//! attributed by the mount's rule. Numbers of processes are reused; nothing here believes one without proof that the
//! task it was met as still runs. In doubt there is no owner: `thread` gives `None`, `owner_of` gives `NOBODY`.
//!
//! Never trusts what a process says of itself (its name, its environment): only what the kernel says of it.
//!
//! Locks, in order: `Rules::table`, then `Names`; `Tree::roots`, then one `Record::state`. The others stand alone, and
//! none is held over a system call, save that `/proc` entries are never read under any.

mod names;
mod record;
mod rules;
#[cfg(test)]
mod tests;
mod threads;
mod tree;

use std::sync::Arc;

pub use names::{NameError, OwnerKind, is_automatic_name};
pub use threads::Thread;
pub use tree::Gone;

use crate::guard::{OwnerId, Process};
use crate::sync::Mutex;
use crate::sys;
use names::Names;
use rules::Rules;
use threads::Threads;
use tree::Tree;

/// What makes one owner of several processes that no `run` started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnerBy {
    /// Their session.
    Session,
    /// Nothing: each process is its own owner.
    Process,
    /// Their user.
    User,
    /// Their cgroup.
    Cgroup,
}

/// How a mount attributes those who are below no registered process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attribution {
    /// All are this owner.
    Fixed(OwnerId),
    /// By this rule.
    By(OwnerBy),
}

/// How much is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Threads, each with a descriptor.
    pub threads: usize,
    /// Processes, each with a descriptor; those of cached threads and registered ones come on top.
    pub processes: usize,
    /// Owners that were asked for, by name or for a `run`.
    pub asked_for: usize,
    /// Owners by rule.
    pub by_rule: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            threads: 1024,
            processes: 1024,
            asked_for: 16384,
            by_rule: 4096,
        }
    }
}

impl Limits {
    /// Such that no more than a quarter of `descriptors` is held here.
    #[must_use]
    pub fn for_descriptors(descriptors: u64) -> Self {
        let share = usize::try_from(descriptors / 8).unwrap_or(usize::MAX).clamp(16, 1024);
        Self {
            threads: share,
            processes: share,
            ..Self::default()
        }
    }
}

/// One owner, for listings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerInfo {
    /// Its number.
    pub id: OwnerId,
    /// Its name.
    pub name: Arc<str>,
    /// How it came to be.
    pub kind: OwnerKind,
    /// The owner above a sub-owner.
    pub parent: Option<OwnerId>,
    /// The registered processes that still run.
    pub roots: Vec<Process>,
}

/// The owners of one guard. `T` is what the layer above notes for each thread.
#[derive(Debug)]
pub struct Owners<T = ()> {
    names: Mutex<Names>,
    tree: Tree,
    rules: Rules,
    threads: Threads<T>,
}

impl<T: Default + Send> Owners<T> {
    /// No owner but `NOBODY`.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            names: Mutex::new(Names::new(limits.asked_for, limits.by_rule)),
            tree: Tree::new(limits.processes),
            rules: Rules::new(limits.by_rule),
            threads: Threads::new(limits.threads),
        }
    }

    /// The owner of that name, found or made.
    pub fn named(&self, name: &str) -> Result<OwnerId, NameError> {
        self.names.lock().named(name)
    }

    /// A new owner with a unique name derived from `base`, such as a command's name and number.
    pub fn fresh(&self, base: &str) -> Result<OwnerId, NameError> {
        self.make_fresh(base, None)
    }

    /// The owner `parent/name`, found or made.
    pub fn sub_owner(&self, parent: OwnerId, name: &str) -> Result<OwnerId, NameError> {
        self.names.lock().below(parent, name)
    }

    /// What a peer under `peer` (its named owner, if any) becomes when it asks to be `name`. Those under no named owner
    /// may be anybody; those under one only somebody below it, never another.
    pub fn join(&self, peer: Option<OwnerId>, name: &str) -> Result<OwnerId, NameError> {
        match peer {
            None => self.named(name),
            Some(parent) => self.sub_owner(parent, name),
        }
    }

    /// The same for a peer that asks for no name.
    pub fn join_fresh(&self, peer: Option<OwnerId>, base: &str) -> Result<OwnerId, NameError> {
        self.make_fresh(base, peer)
    }

    fn make_fresh(&self, base: &str, parent: Option<OwnerId>) -> Result<OwnerId, NameError> {
        if self.names.lock().is_full() {
            self.forget_idle();
        }
        let mut names = self.names.lock();
        if names.is_full() {
            return Err(NameError::TooMany);
        }
        if parent.is_some_and(|id| names.get(id).is_none_or(|entry| entry.kind.by_rule())) {
            return Err(NameError::NoParent);
        }
        Ok(names.fresh(base, OwnerKind::Fresh, parent))
    }

    /// Forgets owners made for a `run` of which no process runs any more and whose name nobody chose.
    fn forget_idle(&self) {
        let in_use: Vec<_> = self.tree.owners_in_use();
        let mut names = self.names.lock();
        let parents: Vec<_> = names.iter().filter_map(|(_, entry)| entry.parent).collect();
        let idle: Vec<_> = names
            .iter()
            .filter(|(id, entry)| entry.kind == OwnerKind::Fresh && !in_use.contains(id) && !parents.contains(id))
            .map(|(id, _)| id)
            .collect();
        idle.into_iter().for_each(|id| names.forget(id));
        drop(names);
    }

    /// The name of an owner; of a forgotten one its number.
    pub fn name(&self, id: OwnerId) -> Arc<str> {
        let name = self.names.lock().get(id).map(|entry| Arc::clone(&entry.name));
        match name {
            Some(name) => name,
            None if id == OwnerId::NOBODY => "nobody".into(),
            None => format!("owner {}", id.0).into(),
        }
    }

    /// How an owner came to be; `None` when it is forgotten.
    pub fn kind(&self, id: OwnerId) -> Option<OwnerKind> {
        self.names.lock().get(id).map(|entry| entry.kind)
    }

    /// The numbers of all owners, also of those that are forgotten and that a known process still has; in order.
    pub fn ids(&self) -> Vec<OwnerId> {
        let mut ids: Vec<_> = self.names.lock().iter().map(|(id, _)| id).collect();
        ids.extend(self.tree.records.owners_by_rule());
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// All owners.
    pub fn list(&self) -> Vec<OwnerInfo> {
        let roots = self.tree.roots();
        let names = self.names.lock();
        let info = |id, entry: &names::Entry| OwnerInfo {
            id,
            name: Arc::clone(&entry.name),
            kind: entry.kind,
            parent: entry.parent,
            roots: roots
                .iter()
                .filter(|(_, owner)| *owner == id)
                .map(|(process, _)| *process)
                .collect(),
        };
        names.iter().map(|(id, entry)| info(id, entry)).collect()
    }

    /// Makes a running process, and all who descend from it, `owner`.
    pub fn register(&self, root: Process, owner: OwnerId) -> Result<(), Gone> {
        self.tree.register(root, owner)
    }

    /// Ends a registration. Descendants that still run keep the owner, also those that have asked for nothing yet: so
    /// call this while the process still holds them together (as their parent or subreaper).
    pub fn unregister(&self, root: Process) {
        self.tree.unregister(root);
    }

    /// The threads known, also those that have ended and were not missed yet.
    pub fn threads(&self) -> Vec<Arc<Thread<T>>> {
        self.threads.all()
    }

    /// Whether the process still runs. Reads `/proc`: for sweeps, not for requests.
    pub fn is_running(&self, process: Process) -> bool {
        process_of(process.tgid).is_ok_and(|now| now == process)
    }

    /// The thread of a request; `None`: number 0, or gone.
    pub fn thread(&self, tid: u32) -> Option<Arc<Thread<T>>> {
        self.threads.get(tid, &self.tree.records)
    }

    /// A thread as it was last met under this number, without a proof that it still is that one: for counts.
    pub fn thread_as_met(&self, tid: u32) -> Option<Arc<Thread<T>>> {
        self.threads.as_met(tid)
    }

    /// The owner of a request by `thread`, made by `uid`.
    pub fn owner_of(&self, thread: &Thread<T>, rule: &Attribution, uid: u32) -> OwnerId {
        match (self.tree.named(&thread.record), rule) {
            (Ok(Some(owner)), _) => owner,
            (Ok(None), Attribution::Fixed(owner)) => *owner,
            (Ok(None), Attribution::By(rule)) => {
                let known = (&thread.record, &self.tree.records);
                self.rules.owner(known, *rule, uid, &self.names)
            }
            (Err(Gone), _) => OwnerId::NOBODY,
        }
    }

    /// The named owner of a process by its tree. `Gone` must never be taken for "no owner": a process that may not
    /// join others would only have to die in time.
    pub fn owner_of_process(&self, pid: u32) -> Result<Option<OwnerId>, Gone> {
        let record = self.tree.records.get(pid).ok_or(Gone)?;
        self.tree.named(&record)
    }
}

/// The running process of that number, as it is told apart from a later one.
pub fn process_of(pid: u32) -> Result<Process, Gone> {
    sys::read_proc_stat(pid)
        .map(|stat| Process {
            tgid: pid,
            start: stat.start,
        })
        .map_err(|_| Gone)
}
