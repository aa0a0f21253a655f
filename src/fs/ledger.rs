//! The guard's records behind locks: one per file and one per name, bounded, sharded.
//!
//! Owns the counter of generations. Does no input or output, and holds its locks for a look and a change only; the
//! order is names before files.

#![expect(
    clippy::significant_drop_tightening,
    reason = "a lock is held from the check to the change on purpose"
)]

use std::ffi::OsStr;
use std::sync::atomic::{AtomicU64, Ordering};

use super::records::Records;
use crate::guard::{
    Author, Change, EntryKey, EntryRecord, EntryView, FileKey, FileRecord, Generation, OwnerId, Process,
};
use crate::guard::{Timestamp, Token};
use crate::sync::Sharded;

/// What an operation finds at a file now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Present {
    /// The file.
    pub(crate) key: FileKey,
    /// Its version.
    pub(crate) token: Token,
    /// Who is to be credited with a change not known yet.
    pub(crate) author: Author,
}

/// All records of one guard.
#[derive(Debug)]
pub(crate) struct Ledger {
    files: Sharded<Records<FileKey, FileRecord>>,
    entries: Sharded<Records<EntryKey, EntryRecord>>,
    counter: AtomicU64,
    started: Timestamp,
    limit: usize,
}

/// Records per shard that are dropped at a time when the bound is reached.
const DROP_SHARE: usize = 8;

impl Ledger {
    pub(crate) fn new(started: Timestamp, limit: usize) -> Self {
        let limit = (limit / 64).max(64);
        Self {
            files: Sharded::default(),
            entries: Sharded::default(),
            counter: AtomicU64::new(1),
            started,
            limit,
        }
    }

    /// When the guard began: what changed later is foreign to whoever did not change it.
    pub(crate) fn started(&self) -> Timestamp {
        self.started
    }

    /// The latest generation given out.
    pub(crate) fn latest(&self) -> Generation {
        Generation(self.counter.load(Ordering::Acquire))
    }

    pub(crate) fn change(&self, author: Author, at: Timestamp) -> Change {
        Change {
            generation: Generation(self.counter.fetch_add(1, Ordering::AcqRel) + 1),
            author,
            at,
        }
    }

    /// Looks at a file's record, brought up to date with what is there now.
    pub(crate) fn with_file<R>(&self, now: &Present, look: impl FnOnce(&mut FileRecord) -> R) -> R {
        let mut shard = self.files.lock(&now.key);
        if !shard.contains(&now.key) {
            make_room(&mut shard, self.limit, FileRecord::is_idle);
        }
        let record = shard.get_or_insert_with(now.key, || self.first_met(now));
        if record.token() != now.token {
            record.refresh(now.token, self.change(now.author, now.token.ctime));
        }
        look(record)
    }

    fn first_met(&self, now: &Present) -> FileRecord {
        if now.token.ctime <= self.started {
            let generation = Generation(self.counter.fetch_add(1, Ordering::AcqRel) + 1);
            return FileRecord::baseline(now.token, generation);
        }
        let author = match now.author {
            Author::Owner(owner) => Author::Owner(owner),
            Author::Outsider | Author::Several => now.author,
        };
        FileRecord::changed(now.token, self.change(author, now.token.ctime))
    }

    /// Looks at a file's record if there is one, as it is.
    pub(crate) fn with_known_file<R>(&self, key: FileKey, look: impl FnOnce(&mut FileRecord) -> R) -> Option<R> {
        self.files.lock(&key).get_mut(&key).map(look)
    }

    /// Looks at the record of a name, if there is one, brought up to date with what the name leads to now; `author` is to
    /// be credited with a binding not known yet.
    pub(crate) fn bound_by(
        &self,
        key: &EntryKey,
        bound: Option<FileKey>,
        author: Author,
        look: impl FnOnce(&mut EntryRecord),
    ) {
        let mut shard = self.entries.lock(key);
        let Some(record) = shard.get_mut(key) else { return };
        if record.bound() != bound {
            record.refresh(bound, self.change(author, crate::clock::now()));
        }
        look(record);
    }

    /// Looks at the record of a name, if there is one, for somebody who found `bound` there when the guard was at
    /// `since` and holds no lock: what was noted later stands, and is not looked at.
    pub(crate) fn with_known_entry_since(
        &self,
        key: &EntryKey,
        bound: FileKey,
        since: Generation,
        look: impl FnOnce(&mut EntryRecord),
    ) {
        let mut shard = self.entries.lock(key);
        if let Some(record) = shard.get_mut(key)
            && self.bring_up(record, bound, since)
        {
            look(record);
        }
    }

    /// Brings a record up to what was found at `since`, unless something else was noted after that.
    fn bring_up(&self, record: &mut EntryRecord, bound: FileKey, since: Generation) -> bool {
        if record.bound() == Some(bound) {
            return true;
        }
        if record.generation() > since {
            return false;
        }
        record.refresh(Some(bound), self.change(Author::Outsider, crate::clock::now()));
        true
    }

    /// Looks at the record of a name, made if there is none, as long as it leads to this file: whoever came by the name
    /// holds no lock, and it may lead elsewhere by now.
    pub(crate) fn with_entry_of(&self, key: EntryKey, file: FileKey, look: impl FnOnce(&mut EntryRecord)) {
        self.with_entry_met(key, file, |record| {
            if record.bound() == Some(file) {
                look(record);
            }
        });
    }

    /// Looks at the record of a name at which somebody who holds no lock has met this file, made if there is none.
    fn with_entry_met(&self, key: EntryKey, file: FileKey, look: impl FnOnce(&mut EntryRecord)) {
        let mut shard = self.entries.lock(&key);
        if !shard.contains(&key) {
            make_room(&mut shard, self.limit, EntryRecord::is_idle);
        }
        let generation = || Generation(self.counter.fetch_add(1, Ordering::AcqRel) + 1);
        let record = shard.get_or_insert_with(key, || EntryRecord::new(Some(file), generation()));
        look(record);
    }

    /// O3, by a name: the owner has read `file` there. Where the name has come to lead elsewhere meanwhile, that is what the
    /// owner knows of it.
    pub(crate) fn observe_present(&self, key: EntryKey, owner: OwnerId, process: Option<Process>, file: FileKey) {
        self.with_entry_met(key, file, |record| {
            if record.bound() == Some(file) {
                record.observe_present(owner, process, file);
            } else {
                record.observe_former(owner, file);
            }
        });
    }

    /// Looks at the record of a name whose binding the caller itself is about to note.
    pub(crate) fn with_entry_unchecked<R>(
        &self,
        key: EntryKey,
        bound: Option<FileKey>,
        look: impl FnOnce(&mut EntryRecord) -> R,
    ) -> R {
        let mut shard = self.entries.lock(&key);
        if !shard.contains(&key) {
            make_room(&mut shard, self.limit, EntryRecord::is_idle);
        }
        look(shard.get_or_insert_with(key, || EntryRecord::new(bound, self.latest())))
    }

    /// O1, some time after the miss: what the owner was told then, whatever was bound since.
    pub(crate) fn observe_absent(&self, key: EntryKey, owner: OwnerId, process: Option<Process>, at: Generation) {
        let mut shard = self.entries.lock(&key);
        if !shard.contains(&key) {
            make_room(&mut shard, self.limit, EntryRecord::is_idle);
        }
        let record = shard.get_or_insert_with(key, || EntryRecord::new(None, at));
        if record.generation() <= at && record.bound().is_some() {
            // Nothing was there at the miss, and whoever bound the name elsewhere did not come through a mount.
            record.refresh(None, self.change(Author::Outsider, crate::clock::now()));
            record.observe_absent(owner, process);
        } else {
            record.observe_absent_at(owner, process, at);
        }
    }

    /// Looks at the records of a name and of the file there, in that order, for a judgement. Without the lock of the
    /// name's directory (`locked`) the name may lead elsewhere by now, and then has no say.
    pub(crate) fn consult<R>(
        &self,
        (entry, locked): (Option<&EntryKey>, bool),
        now: Option<&Present>,
        look: impl FnOnce(Option<&mut EntryRecord>, Option<&mut FileRecord>) -> R,
    ) -> R {
        let mut entries = entry.map(|key| self.entries.lock(key));
        let record = match (entry, entries.as_mut()) {
            (Some(key), Some(shard)) => shard.get_mut(key),
            (None, _) | (_, None) => None,
        };
        let bound = now.map(|now| now.key);
        let mut record = record.filter(|record| locked || record.bound() == bound);
        if let Some(record) = record.as_deref_mut()
            && record.bound() != bound
        {
            record.refresh(bound, self.change(Author::Outsider, crate::clock::now()));
        }
        match now {
            Some(now) => self.with_file(now, |file| look(record, Some(file))),
            None => look(record, None),
        }
    }

    /// What the records of a name and of the file there would say if they were brought up to date now; they are not.
    pub(crate) fn copies(
        &self,
        entry: Option<&EntryKey>,
        now: Option<&Present>,
    ) -> (Option<EntryRecord>, Option<FileRecord>) {
        let change = |author, at| Change {
            generation: Generation(self.latest().0 + 1),
            author,
            at,
        };
        let bound = now.map(|now| now.key);
        let known = entry.and_then(|key| self.entries.lock(key).get(key).cloned());
        let name = known.map(|mut record| {
            record.refresh(bound, change(Author::Outsider, crate::clock::now()));
            record
        });
        let Some(now) = now else { return (name, None) };
        let file = match self.with_known_file(now.key, |record| record.clone()) {
            Some(mut record) => {
                record.refresh(now.token, change(now.author, now.token.ctime));
                record
            }
            None if now.token.ctime <= self.started => FileRecord::baseline(now.token, self.latest()),
            None => FileRecord::changed(now.token, change(now.author, now.token.ctime)),
        };
        (name, Some(file))
    }

    /// Whether an owner that is told that there is nothing at a name learns nothing by it: nothing is known of the name, or
    /// this, and nobody else has bound it.
    pub(crate) fn knows_absent(&self, key: &EntryKey, owner: OwnerId) -> bool {
        self.entries.lock(key).get(key).is_none_or(|record| {
            record.bound().is_none()
                && record.view(owner) == Some(EntryView::Absent)
                && record.history().last_foreign(owner).is_none()
        })
    }

    /// Number of records of files and of names.
    pub(crate) fn len(&self) -> (usize, usize) {
        let (mut files, mut entries) = (0, 0);
        self.files.each(|shard| files += shard.len());
        self.entries.each(|shard| entries += shard.len());
        (files, entries)
    }

    /// Forgets what owners have seen that `keep` says are forgotten.
    pub(crate) fn retain_owners(&self, mut keep: impl FnMut(OwnerId) -> bool) {
        self.files
            .each(|shard| shard.values_mut().for_each(|record| record.retain_owners(&mut keep)));
        self.entries
            .each(|shard| shard.values_mut().for_each(|record| record.retain_owners(&mut keep)));
    }

    /// Forgets what processes have seen that `keep` says have ended.
    pub(crate) fn retain_processes(&self, mut keep: impl FnMut(Process) -> bool) {
        self.files
            .each(|shard| shard.values_mut().for_each(|record| record.retain_processes(&mut keep)));
        self.entries
            .each(|shard| shard.values_mut().for_each(|record| record.retain_processes(&mut keep)));
    }
}

/// The key of a name.
pub(crate) fn entry_key(dir: FileKey, name: &OsStr) -> EntryKey {
    EntryKey { dir, name: name.into() }
}

/// Drops records when a shard is full: first those that say nothing, then arbitrary ones. What is dropped is unseen
/// from then on.
fn make_room<K: Eq + std::hash::Hash, V>(shard: &mut Records<K, V>, limit: usize, idle: impl Fn(&V) -> bool) {
    if shard.len() < limit {
        return;
    }
    shard.retain(|record| !idle(record));
    if shard.len() >= limit {
        shard.drop_some((limit / DROP_SHARE).max(1));
    }
}
