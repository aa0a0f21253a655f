//! The ledger as benches see it: the steps an operation takes on the records, without the operation.
//!
//! Nothing in the program uses it.

use std::ffi::OsStr;

use super::ledger::{Ledger, Present, entry_key};
use crate::clock;
use crate::guard::{Author, FileKey, OwnerId, Process, Sight, Standing, Token, ViewRule, standing};

/// A ledger alone.
#[derive(Debug)]
pub struct LedgerProbe(Ledger);

impl LedgerProbe {
    /// A ledger for at most `limit` records of a kind.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self(Ledger::new(clock::now(), limit))
    }

    /// A file is read.
    pub fn observe(&self, owner: OwnerId, process: Option<Process>, file: FileKey, token: Token) {
        self.0
            .with_file(&present(file, token), |record| record.observe(owner, process));
    }

    /// A name is found to lead to a file, and read by it.
    pub fn observe_name(&self, owner: OwnerId, process: Option<Process>, dir: FileKey, name: &OsStr, file: FileKey) {
        self.0.with_entry_of(entry_key(dir, name), file, |record| {
            record.observe_present(owner, process, file);
        });
    }

    /// Where an owner stands before a change.
    #[must_use]
    pub fn standing(
        &self,
        owner: OwnerId,
        process: Option<Process>,
        at: (FileKey, &OsStr),
        now: (FileKey, Token),
    ) -> Standing {
        let key = entry_key(at.0, at.1);
        let there = present(now.0, now.1);
        self.0.consult((Some(&key), true), Some(&there), |entry, file| {
            standing(&Sight {
                owner,
                process,
                rule: ViewRule::Process,
                entry: entry.as_deref(),
                file: file.as_deref(),
                there: Some(there.key),
            })
        })
    }

    /// Records of files and of names.
    #[must_use]
    pub fn records(&self) -> (usize, usize) {
        self.0.len()
    }

    /// Bytes of one record of a file and of one of a name, without what they point to.
    #[must_use]
    pub fn record_bytes() -> (usize, usize) {
        use crate::guard::{EntryKey, EntryRecord, FileRecord};
        (size_of::<(FileKey, FileRecord)>(), size_of::<(EntryKey, EntryRecord)>())
    }
}

fn present(key: FileKey, token: Token) -> Present {
    Present {
        key,
        token,
        author: Author::Outsider,
    }
}
