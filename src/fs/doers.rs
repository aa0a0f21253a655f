//! Which command made a change: the last few, for those who ask why.
//!
//! Bounded, and only ever shown to people: nothing is decided by it.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::DefaultHashBuilder;

use crate::guard::{EntryKey, FileKey, OwnerId, Process};
use crate::sync::Mutex;
use crate::sys;

/// Changes remembered.
const MEMORY: usize = 4096;
/// How far back a process is looked for: as many as may be at work at a time.
const RECENT: usize = 32;

/// Who made a change, as far as it was asked at the time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Doer {
    /// The process.
    pub(super) process: Process,
    /// Its command, as the kernel names it.
    pub(super) command: Arc<str>,
}

#[derive(Debug, Clone)]
struct Noted {
    place: u64,
    owner: OwnerId,
    doer: Doer,
}

/// The last changes made through the mounts.
#[derive(Debug, Default)]
pub(super) struct Doers {
    hasher: DefaultHashBuilder,
    noted: Mutex<VecDeque<Noted>>,
}

impl Doers {
    /// A process of the owner has changed a file.
    pub(super) fn changed_file(&self, owner: OwnerId, process: Option<Process>, file: FileKey) {
        self.note(owner, process, self.hasher.hash_one(file));
    }

    /// A process of the owner has bound a name, or unbound it.
    pub(super) fn bound_name(&self, owner: OwnerId, process: Option<Process>, name: &EntryKey) {
        self.note(owner, process, self.hasher.hash_one(name));
    }

    fn note(&self, owner: OwnerId, process: Option<Process>, place: u64) {
        let Some(process) = process else { return };
        // The usual case is a few programs that make many changes: each is asked for its name once.
        let recent = |noted: &VecDeque<Noted>| {
            let mut recent = noted.iter().rev().take(RECENT);
            recent.find(|noted| noted.doer.process == process).cloned()
        };
        let last = recent(&self.noted.lock());
        if last
            .as_ref()
            .is_some_and(|last| last.place == place && last.owner == owner)
        {
            return;
        }
        let known = last.map(|last| last.doer);
        let doer = match known {
            Some(doer) => doer,
            None => match sys::command_of(process.tgid) {
                Ok(command) => Doer {
                    process,
                    command: command.into(),
                },
                Err(_) => return,
            },
        };
        let mut noted = self.noted.lock();
        if noted.len() == MEMORY {
            noted.pop_front();
        }
        noted.push_back(Noted { place, owner, doer });
    }

    /// Who of the owner changed the file or bound the name last.
    pub(super) fn last(&self, owner: OwnerId, file: Option<&FileKey>, name: Option<&EntryKey>) -> Option<Doer> {
        let file = file.map(|file| self.hasher.hash_one(file));
        let name = name.map(|name| self.hasher.hash_one(name));
        let noted = self.noted.lock();
        noted
            .iter()
            .rev()
            .find(|noted| noted.owner == owner && (Some(noted.place) == file || Some(noted.place) == name))
            .map(|noted| noted.doer.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_an_owner_is_found_by_file_or_name() {
        let doers = Doers::default();
        let file = |ino| FileKey {
            dev: 1,
            ino,
            generation: 0,
        };
        let me = Process {
            tgid: std::process::id(),
            start: 1,
        };
        let name = crate::fs::ledger::entry_key(file(2), std::ffi::OsStr::new("a"));
        doers.changed_file(OwnerId(1), Some(me), file(7));
        doers.bound_name(OwnerId(2), Some(me), &name);
        assert_eq!(doers.last(OwnerId(1), Some(&file(7)), None).unwrap().process, me);
        assert_eq!(doers.last(OwnerId(1), Some(&file(8)), Some(&name)), None);
        assert!(doers.last(OwnerId(2), None, Some(&name)).is_some());
        for ino in 0..2 * MEMORY as u64 {
            doers.changed_file(OwnerId(3), Some(me), file(ino));
        }
        assert_eq!(doers.noted.lock().len(), MEMORY);
    }
}
