//! Processes as this guard knows them, each proven to be the one it was.
//!
//! A number says nothing by itself: the kernel gives it to another process soon after. Every record holds a pidfd and
//! is asked whether its process still runs before it is believed.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hashbrown::HashMap;

use super::OwnerBy;
use crate::guard::{OwnerId, Process};
use crate::sync::Mutex;
use crate::sys;

/// What tells a task from a later one of the same number.
#[derive(Debug)]
pub(super) enum Proof {
    /// The kernel says when the task has exited.
    Pidfd(OwnedFd),
    /// Without a pidfd: its start time, read again each time.
    Start(u64),
}

/// Set when the kernel has no pidfds of threads (before 6.9).
static NO_THREAD_PIDFD: AtomicBool = AtomicBool::new(false);

impl Proof {
    /// `None` when the task is gone, or cannot be told apart from a later one.
    pub(super) fn of_thread(tid: u32) -> Option<Self> {
        if !NO_THREAD_PIDFD.load(Ordering::Relaxed) {
            match sys::pidfd_open(tid, true) {
                Ok(fd) => return Some(Self::Pidfd(fd)),
                Err(error) if error.errno() == libc::EINVAL => NO_THREAD_PIDFD.store(true, Ordering::Relaxed),
                Err(error) if error.errno() == libc::ESRCH => return None,
                // No descriptor left, or forbidden: the start time still tells.
                Err(_) => {}
            }
        }
        sys::read_proc_stat(tid).ok().map(|stat| Self::Start(stat.start))
    }

    fn of_process(tgid: u32) -> Option<Self> {
        match sys::pidfd_open(tgid, false) {
            Ok(fd) => Some(Self::Pidfd(fd)),
            Err(error) if error.errno() == libc::ESRCH => None,
            Err(_) => sys::read_proc_stat(tgid).ok().map(|stat| Self::Start(stat.start)),
        }
    }

    /// Whether the task still runs. In doubt: no.
    pub(super) fn alive(&self, number: u32) -> bool {
        match self {
            Self::Pidfd(fd) => !sys::pidfd_exited(fd),
            Self::Start(start) => sys::read_proc_stat(number).is_ok_and(|stat| stat.start == *start),
        }
    }

    pub(super) fn info(&self) -> Option<sys::PidInfo> {
        match self {
            Self::Pidfd(fd) => sys::pidfd_info(fd),
            Self::Start(_) => None,
        }
    }
}

/// One process.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) process: Process,
    pub(super) command: Arc<str>,
    /// The session it was in when first met: it keeps the owner of that one.
    pub(super) session: u32,
    proof: Proof,
    pub(super) used: AtomicU64,
    pub(super) state: Mutex<State>,
}

/// What has been found out about a process's owner.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The epoch in which `named` was last looked for; 0: never.
    pub(super) checked: u64,
    /// Its owner by process tree.
    pub(super) named: Option<OwnerId>,
    /// The epoch of the registration that `named` comes from; only a later one above it changes it.
    pub(super) since: u64,
    /// It was registered itself: what is above does not count.
    pub(super) is_root: bool,
    by_rule: [Option<OwnerId>; 4],
}

impl State {
    pub(super) const fn by_rule(&mut self, rule: OwnerBy) -> &mut Option<OwnerId> {
        &mut self.by_rule[match rule {
            OwnerBy::Session => 0,
            OwnerBy::Process => 1,
            OwnerBy::User => 2,
            OwnerBy::Cgroup => 3,
        }]
    }
}

impl Record {
    fn read(tgid: u32) -> Option<Self> {
        let proof = Proof::of_process(tgid)?;
        let stat = sys::read_proc_stat(tgid).ok()?;
        let record = Self {
            process: Process {
                tgid,
                start: stat.start,
            },
            command: stat.comm.into(),
            session: stat.session,
            proof,
            used: AtomicU64::new(0),
            state: Mutex::new(State::default()),
        };
        // Only now is it known that what was read is of the process that the proof pins.
        record.alive().then_some(record)
    }

    pub(super) fn alive(&self) -> bool {
        self.proof.alive(self.process.tgid)
    }

    /// Its parent's number at this moment, while it runs.
    pub(super) fn parent_now(&self) -> Option<u32> {
        if let Some(info) = self.proof.info() {
            return Some(info.ppid);
        }
        let stat = sys::read_proc_stat(self.process.tgid).ok()?;
        self.alive().then_some(stat.ppid)
    }

    /// The session it is in at this moment, while it runs.
    pub(super) fn session_now(&self) -> Option<u32> {
        let stat = sys::read_proc_stat(self.process.tgid).ok()?;
        self.alive().then_some(stat.session)
    }

    pub(super) fn cgroup_now(&self) -> Option<u64> {
        if let Some(cgroup) = self.proof.info().and_then(|info| info.cgroup) {
            return Some(cgroup);
        }
        let path = sys::proc_cgroup(self.process.tgid).ok()?;
        let inode = std::fs::metadata(format!("/sys/fs/cgroup{path}"))
            .ok()
            .map(|meta| std::os::unix::fs::MetadataExt::ino(&meta))?;
        self.alive().then_some(inode)
    }
}

/// The processes known, bounded: the dead go first, then those without a named owner, then the longest unused.
#[derive(Debug)]
pub(super) struct Records {
    table: Mutex<HashMap<u32, Arc<Record>>>,
    limit: usize,
    clock: AtomicU64,
}

impl Records {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            table: Mutex::new(HashMap::new()),
            limit: limit.max(16),
            clock: AtomicU64::new(1),
        }
    }

    /// The running process of that number; `None` when there is none, or it cannot be looked at.
    pub(super) fn get(&self, tgid: u32) -> Option<Arc<Record>> {
        let known = self.table.lock().get(&tgid).map(Arc::clone);
        if let Some(record) = known.filter(|record| record.alive()) {
            record
                .used
                .store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
            return Some(record);
        }
        let record = Arc::new(Record::read(tgid)?);
        record
            .used
            .store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        self.insert(record)
    }

    fn insert(&self, record: Arc<Record>) -> Option<Arc<Record>> {
        let tgid = record.process.tgid;
        // Of two threads that met a process at once, the first record stands; a dead one never does.
        let before = self.table.lock().get(&tgid).map(Arc::clone);
        if let Some(before) = before {
            if before.alive() {
                return Some(before);
            }
            let mut table = self.table.lock();
            if table.get(&tgid).is_some_and(|now| Arc::ptr_eq(now, &before)) {
                table.remove(&tgid);
            }
        }
        let (standing, full) = {
            let mut table = self.table.lock();
            let standing = Arc::clone(table.entry(tgid).or_insert(record));
            (standing, table.len() > self.limit)
        };
        if full {
            self.make_room();
        }
        standing.alive().then_some(standing)
    }

    /// The named owners of those that still run.
    pub(super) fn owners(&self) -> Vec<OwnerId> {
        let all: Vec<_> = self.table.lock().values().map(Arc::clone).collect();
        all.iter()
            .filter(|record| record.alive())
            .filter_map(|record| record.state.lock().named)
            .collect()
    }

    /// The owners by rule of all that are known.
    pub(super) fn owners_by_rule(&self) -> Vec<OwnerId> {
        let all: Vec<_> = self.table.lock().values().map(Arc::clone).collect();
        all.iter()
            .flat_map(|record| record.state.lock().by_rule.into_iter().flatten())
            .collect()
    }

    fn make_room(&self) {
        let all: Vec<_> = self.table.lock().values().map(Arc::clone).collect();
        let dead: Vec<_> = all
            .iter()
            .filter(|record| !record.alive())
            .map(|record| record.process)
            .collect();
        let target = self.limit - self.limit / 4;
        let mut idle: Vec<_> = all
            .iter()
            // One is in the table, one in `all`: whoever else holds it still needs it.
            .filter(|record| Arc::strong_count(record) <= 2)
            .map(|record| {
                (
                    record.state.lock().named.is_some(),
                    record.used.load(Ordering::Relaxed),
                    record.process,
                )
            })
            .collect();
        idle.sort_unstable_by_key(|&(named, used, _)| (named, used));
        let mut table = self.table.lock();
        let dead = dead.into_iter();
        for process in dead.chain(idle.into_iter().map(|(_, _, process)| process)) {
            if table.len() <= target {
                break;
            }
            if table.get(&process.tgid).is_some_and(|record| record.process == process) {
                table.remove(&process.tgid);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.table.lock().len()
    }
}
