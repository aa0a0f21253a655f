//! Who asks: from a thread id to an owner, and what a thread's next request says about its last.
//!
//! A miss inside a creating call is no observation: the kernel looks a name up and then creates it within one system
//! call, and the process was never told of the miss. Only when the thread's next request is something else has it
//! seen `ENOENT`. Where the kernel held an entry for the name it even looks twice: once to find that its entry is no
//! longer valid, and once more.

#![expect(
    clippy::significant_drop_tightening,
    reason = "a lock is held from the check to the change on purpose"
)]

use std::cell::Cell;
use std::ffi::OsStr;
use std::sync::{Arc, Weak};

use super::events::Judged;
use super::ledger::entry_key;
use super::mount::Mount;
use super::{FsError, Guard, Result};
use crate::clock;
use crate::guard::{EntryKey, FileKey, Generation, Intent, OwnerId, Process, Timestamp};
use crate::owner::{Attribution, Owners, Thread};
use crate::store::{Node, StoreError};
use crate::sys;

/// Seconds in which the kernel has certainly looked again.
const SENT_BACK_SECONDS: i64 = 2;

/// What a request says of its caller.
#[derive(Debug, Clone, Copy)]
pub struct Caller {
    /// The thread id; 0 when the kernel cannot tell.
    pub tid: u32,
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

/// What is remembered of a thread between two of its requests.
#[derive(Debug, Default)]
pub struct Notes {
    miss: Option<Miss>,
    found: Option<Found>,
    reported: Option<Reported>,
    /// The file or directory for which the kernel was told to look again, then what it found when it did; and since when.
    sent_back: Option<(u64, Timestamp)>,
    /// When the kernel was told to look again for a directory.
    sent_back_for_dir: Option<Timestamp>,
    /// The name of the thread's command, and when that was looked up.
    pub(super) command: Option<(Arc<str>, Timestamp)>,
}

#[derive(Debug)]
struct Miss {
    entry: EntryKey,
    dir: Weak<Node>,
    owner: OwnerId,
    /// The guard's latest generation when the name was looked up.
    at: Generation,
    /// The kernel may have held an entry for the name: then this was its revalidation, and the kernel looks the name
    /// up once more within the same call.
    revalidates: bool,
    /// The changes of others that the mount had seen before the look-up.
    changes: u64,
}

/// The last name that led the thread to a file.
#[derive(Debug)]
struct Found {
    dir: Weak<Node>,
    name: Arc<OsStr>,
    node: u64,
    /// By the thread's latest look-up.
    fresh: bool,
}

impl Found {
    fn is_at(&self, dir: &Arc<Node>, name: &OsStr) -> bool {
        *self.name == *name && std::ptr::eq(self.dir.as_ptr(), Arc::as_ptr(dir))
    }
}

/// A refusal with `ESTALE`: the kernel repeats the call once by itself, and that is no second refusal.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reported {
    intent: Intent,
    dir: Option<FileKey>,
    name: Arc<OsStr>,
}

impl Reported {
    pub(super) fn new(intent: Intent, at: &At) -> Self {
        Self {
            intent,
            dir: at.dir.as_ref().map(|dir| dir.key()),
            name: at.name.clone(),
        }
    }

    fn is_of(&self, intent: Intent, at: &At) -> bool {
        self.intent == intent && self.dir == at.dir.as_ref().map(|dir| dir.key()) && self.name == at.name
    }
}

/// What a request is, as far as the thread's last miss is concerned.
#[derive(Debug, Clone, Copy)]
pub(super) enum Arrival<'a> {
    /// May make this name.
    Creates(FileKey, &'a OsStr),
    /// Looks this name up.
    Looks(FileKey, &'a OsStr),
    /// Asks for attributes: the kernel does that between the two halves of a creating call, too.
    Asks,
    /// Anything else.
    Other,
}

/// The caller of one request, resolved.
#[derive(Debug, Clone)]
pub(crate) struct Who {
    pub(crate) owner: OwnerId,
    pub(crate) process: Option<Process>,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) tid: u32,
    pub(super) thread: Option<Arc<Thread<Notes>>>,
    /// What the last judgement of a change by this caller rested on.
    pub(super) judged: Cell<Option<Judged>>,
    /// Of a creation whose name was looked up just before, and not found: the changes of others seen before that.
    pub(super) looked_up: Cell<Option<u64>>,
}

/// The table of owners, bounded by what the descriptor limit allows.
pub(super) fn owners(max_fds: u64) -> Owners<Notes> {
    Owners::new(crate::owner::Limits::for_descriptors(max_fds / 4))
}

impl Mount {
    /// Counts a request by which nothing is observed and nothing changed.
    pub(super) fn count_asker(&self, caller: &Caller) {
        let guard = self.guard();
        let known = guard
            .owners()
            .thread_as_met(caller.tid)
            .filter(|_| self.options().pids_visible);
        match known {
            Some(thread) => {
                let owner = guard
                    .owners()
                    .owner_of(&thread, &self.options().attribution, caller.uid);
                guard.events().operation(owner);
            }
            None => drop(self.arrive(caller, Arrival::Asks)),
        }
    }

    /// Resolves the caller, and settles what its thread's last miss was.
    pub(super) fn arrive(&self, caller: &Caller, arrival: Arrival<'_>) -> Who {
        let guard = self.guard();
        let options = self.options();
        let thread = if options.pids_visible {
            guard.owners().thread(caller.tid)
        } else {
            None
        };
        let owner = match &thread {
            Some(thread) => guard.owners().owner_of(thread, &options.attribution, caller.uid),
            None => match options.attribution {
                Attribution::Fixed(owner) => owner,
                Attribution::By(_) => OwnerId::NOBODY,
            },
        };
        guard.events().operation(owner);
        let process = thread.as_ref().map(|thread| thread.process);
        let who = Who {
            owner,
            process,
            uid: caller.uid,
            gid: caller.gid,
            tid: caller.tid,
            thread,
            judged: Cell::default(),
            looked_up: Cell::default(),
        };
        who.settle(guard, arrival);
        who
    }
}

impl Who {
    /// Whoever opened a handle: changes through it are theirs, whichever thread they arrive from.
    pub(super) fn of_handle(owner: OwnerId, process: Option<Process>, (uid, gid): (u32, u32), tid: u32) -> Self {
        Self {
            owner,
            process,
            uid,
            gid,
            tid,
            thread: None,
            judged: Cell::default(),
            looked_up: Cell::default(),
        }
    }

    fn settle(&self, guard: &Guard, arrival: Arrival<'_>) {
        let Some(thread) = &self.thread else { return };
        if matches!(arrival, Arrival::Asks) {
            return;
        }
        let mut notes = thread.notes.lock();
        let Some(miss) = notes.miss.take() else { return };
        drop(notes);
        let is_same = |dir, name: &OsStr| miss.entry.dir == dir && *miss.entry.name == *name;
        let untold = match arrival {
            Arrival::Creates(dir, name) => is_same(dir, name),
            Arrival::Looks(dir, name) => miss.revalidates && is_same(dir, name),
            Arrival::Asks | Arrival::Other => false,
        };
        if untold {
            if matches!(arrival, Arrival::Creates(..)) {
                self.looked_up.set(Some(miss.changes));
            }
            return;
        }
        guard.observe_miss(miss, thread);
    }

    /// Notes that the thread is about to be told that there is nothing.
    pub(super) fn missed(&self, dir: &Arc<Node>, name: &OsStr, at: Generation, (revalidates, changes): (bool, u64)) {
        if self.owner == OwnerId::NOBODY {
            return;
        }
        if let Some(thread) = &self.thread {
            let mut notes = thread.notes.lock();
            notes.sent_back = None;
            notes.miss = Some(Miss {
                entry: entry_key(dir.key(), name),
                dir: Arc::downgrade(dir),
                owner: self.owner,
                at,
                revalidates,
                changes,
            });
        }
    }

    /// Notes which name led the thread to a file.
    pub(super) fn found(&self, dir: &Arc<Node>, name: &OsStr, node: &Node) {
        if let Some(thread) = &self.thread {
            // The node has the name already, as a rule: one for all who keep it.
            let name = node.name_at(dir, name).unwrap_or_else(|| name.into());
            let mut notes = thread.notes.lock();
            if let Some((again, _)) = &mut notes.sent_back {
                *again = node.id();
            }
            notes.found = Some(Found {
                dir: Arc::downgrade(dir),
                name,
                node: node.id(),
                fresh: true,
            });
        }
    }

    /// Whether the latest name by which the thread was led anywhere led it to this node; asked once.
    pub(super) fn takes_fresh_name(&self, node: u64) -> bool {
        let Some(thread) = &self.thread else { return false };
        let mut notes = thread.notes.lock();
        let found = notes.found.as_mut().filter(|found| found.node == node);
        found.is_some_and(|found| std::mem::replace(&mut found.fresh, false))
    }

    /// Whether the thread's last request for this node was answered by "look again", or cannot be.
    pub(super) fn was_sent_back(&self, node: u64) -> bool {
        let Some(thread) = &self.thread else { return true };
        let Some((again, since)) = thread.notes.lock().sent_back.take() else {
            return false;
        };
        again == node && clock::now().sec.saturating_sub(since.sec) < SENT_BACK_SECONDS
    }

    /// Lets the kernel look again for the directory of a name, once in each call.
    pub(super) fn may_be_sent_back_for_dir(&self) -> bool {
        let Some(thread) = &self.thread else { return false };
        let mut notes = thread.notes.lock();
        let now = clock::now();
        let again = notes
            .sent_back_for_dir
            .take()
            .is_some_and(|since| now.sec.saturating_sub(since.sec) < SENT_BACK_SECONDS);
        if !again {
            notes.sent_back_for_dir = Some(now);
        }
        !again
    }

    /// Lets the kernel look again, once.
    pub(super) fn send_back(&self, node: u64) -> FsError {
        if let Some(thread) = &self.thread {
            thread.notes.lock().sent_back = Some((node, clock::now()));
        }
        FsError::Store(StoreError::Moved)
    }

    /// Notes that there is nothing at a name that may have led the thread to a file before.
    pub(super) fn found_nothing(&self, dir: &Arc<Node>, name: &OsStr) {
        let Some(thread) = &self.thread else { return };
        let mut notes = thread.notes.lock();
        if notes.found.as_ref().is_some_and(|found| found.is_at(dir, name)) {
            notes.found = None;
        }
    }

    /// The node id that the thread was last led to by this name, if that was the last name that led it anywhere: what
    /// the kernel takes for the object of the call it is in.
    pub(super) fn told_of(&self, dir: &Arc<Node>, name: &OsStr) -> Option<u64> {
        let notes = self.thread.as_ref()?.notes.lock();
        let found = notes.found.as_ref()?;
        found.is_at(dir, name).then_some(found.node)
    }

    /// The name by which the thread was last led to `node`; whether that is known, or the place it was last found at
    /// by anybody.
    pub(super) fn name_of(&self, node: &Arc<Node>) -> At {
        let found = self.thread.as_ref().and_then(|thread| {
            let notes = thread.notes.lock();
            let found = notes.found.as_ref().filter(|found| found.node == node.id())?;
            Some((found.dir.upgrade()?, found.name.clone()))
        });
        if let Some((dir, name)) = found {
            return At {
                dir: Some(dir),
                name,
                certain: true,
                locked: false,
            };
        }
        let place = node.place();
        At {
            dir: place.parent,
            name: place.name,
            certain: false,
            locked: false,
        }
    }

    /// Whether this refusal is the kernel's own repetition of the last one.
    pub(super) fn is_repeated(&self, report: Reported) -> bool {
        let Some(thread) = &self.thread else { return false };
        let mut notes = thread.notes.lock();
        if notes.reported.take().is_some_and(|last| last == report) {
            return true;
        }
        notes.reported = Some(report);
        false
    }

    /// What was refused last has been allowed: a later refusal is a new one.
    pub(super) fn passed(&self, intent: Intent, at: &At) {
        let Some(thread) = &self.thread else { return };
        let mut notes = thread.notes.lock();
        if notes.reported.as_ref().is_some_and(|last| last.is_of(intent, at)) {
            notes.reported = None;
        }
    }

    /// Whether the caller is a member of a group.
    pub(super) fn is_in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups().is_some_and(|groups| groups.contains(&gid))
    }

    /// The supplementary groups of the calling thread, where they are needed and known.
    pub(super) fn groups(&self) -> Option<Vec<u32>> {
        sys::read_proc_status(self.tid).ok().map(|status| status.groups)
    }
}

/// A name a file was reached by.
#[derive(Debug, Clone)]
pub(crate) struct At {
    pub(crate) dir: Option<Arc<Node>>,
    pub(crate) name: Arc<OsStr>,
    /// The calling thread itself came by this name.
    pub(crate) certain: bool,
    /// The directory's lock is held: what the name leads to is certain, too.
    pub(crate) locked: bool,
}

impl At {
    pub(crate) fn entry(&self) -> Option<EntryKey> {
        self.dir.as_ref().map(|dir| EntryKey {
            dir: dir.key(),
            name: Arc::clone(&self.name),
        })
    }
}

impl Guard {
    fn observe_miss(&self, miss: Miss, thread: &Thread<Notes>) {
        self.events().observation(miss.owner);
        if self.events().is_recording_observations() {
            self.record_miss(miss.owner, thread, miss.dir.upgrade(), &miss.entry.name);
        }
        self.ledger
            .observe_absent(miss.entry, miss.owner, Some(thread.process), miss.at);
    }

    /// Misses of other threads of `owner` that were told, and whose next request never came (their program has ended
    /// or waits elsewhere): they count once it is certain that no creating call is under way in the thread.
    pub(super) fn settle_misses(&self, owner: OwnerId, entry: &EntryKey, but: u32) -> Result<()> {
        for thread in self.owners().threads() {
            if thread.tid == but || told_miss(&thread, owner, entry).is_none() {
                continue;
            }
            let miss = thread.notes.lock().miss.take();
            if let Some(miss) = miss {
                self.observe_miss(miss, &thread);
            }
        }
        Ok(())
    }

    /// When the owner was told that there is nothing, by a miss that would be settled if it were asked about now.
    pub(super) fn unsettled_miss(&self, owner: OwnerId, entry: &EntryKey) -> Option<Generation> {
        let threads = self.owners().threads();
        threads
            .iter()
            .filter_map(|thread| told_miss(thread, owner, entry))
            .max()
    }
}

/// When the thread looked the name up and was told that there is nothing, where that has not been settled.
fn told_miss(thread: &Thread<Notes>, owner: OwnerId, entry: &EntryKey) -> Option<Generation> {
    let at = {
        let notes = thread.notes.lock();
        let miss = notes.miss.as_ref()?;
        (miss.owner == owner && miss.entry == *entry).then_some(miss.at)?
    };
    told(thread).then_some(at)
}

/// Whether the thread has certainly returned from the call that missed: it has ended, or sleeps in a call that makes
/// no name.
fn told(thread: &Thread<Notes>) -> bool {
    if !thread.alive() {
        return true;
    }
    sys::syscall_of(thread.tid).is_some_and(|number| !sys::makes_names(number))
}
