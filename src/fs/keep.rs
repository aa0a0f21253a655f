//! Keeping content that is about to be overwritten in place, and noting what is kept.
//!
//! What nobody is known to have seen must be kept, or is not overwritten. For the rest a change that has been allowed does
//! not fail because of the attic.

use std::os::fd::OwnedFd;

use super::Guard;
use super::caller::{At, Who};
use super::errno::Result;
use super::judge::{Subject, Verdict};
use super::mount::Mount;
use crate::guard::{Intent, Keep, OwnerId};
use crate::store::{HOMELESS, KeptInfo, Node, Renamed, Slot, path_as_text};
use crate::sys::{self, Stat};

/// Directories of a path that are noted, at most.
const MOST_DIRS: usize = 64;

impl Mount {
    /// Keeps what a truncation is about to do away with: what its owner has not seen, and of a whole content also what
    /// others made. What the owner itself made last is its own to replace.
    ///
    /// # Errors
    /// A refusal where what nobody has seen cannot be kept.
    pub(super) fn keep_replaced(
        &self,
        who: &Who,
        subject: &Subject<'_>,
        (file, stat): (&OwnedFd, &Stat),
        verdict: Verdict,
    ) -> Result<()> {
        let own = who.judged.get().is_some_and(|judged| judged.own);
        match verdict {
            Verdict::Judged(Keep::Yes) | Verdict::Overridden => self.keep_copy(who, subject, file, stat),
            Verdict::Judged(_) if subject.intent == Intent::Replace && !own => {
                self.keep_cheaply(who, subject, file, stat);
                Ok(())
            }
            Verdict::Judged(_) | Verdict::Exclusive | Verdict::Plain | Verdict::Recorded => Ok(()),
        }
    }

    /// Copies content to the attic where it can be shared or is small. What cannot be kept is counted.
    fn keep_cheaply(&self, who: &Who, subject: &Subject<'_>, file: &OwnedFd, stat: &Stat) {
        let guard = self.guard();
        if stat.size == 0 || !guard.store.attic().is_on() {
            return;
        }
        match guard.store.attic().keep_copy(file, stat, true) {
            Ok(Some(slot)) => guard.note_kept(&slot, who.owner, subject.operation, subject.at, stat.size),
            Ok(None) => {}
            Err(error) => {
                guard.events().not_kept.add();
                let path = guard.path_of(subject.at);
                log::warn!("{path}: what is replaced could not be kept: {error}");
            }
        }
    }

    /// Notes what a rename is about to displace; whether that could be noted.
    pub(super) fn note_rename(
        &self,
        who: &Who,
        (from, to): (&At, &At),
        (moved, displaced, stat): (&Node, &Node, &Stat),
        slot: &Slot,
    ) -> bool {
        let guard = self.guard();
        if !guard.store.attic().is_on() {
            return false;
        }
        let (from, from_bytes) = path_as_text(guard.real_path_of(from));
        guard.store.attic().note(&KeptInfo {
            renamed: Some(Renamed {
                from,
                from_bytes,
                source: moved.key().ino,
                displaced: displaced.key().ino,
                modified: (stat.mtime.sec, stat.mtime.nsec),
            }),
            ..guard.kept_info(slot, who.owner, "rename", to, stat.size)
        })
    }
}

impl Guard {
    /// Notes a kept file in the attic's journal.
    pub(super) fn note_kept(&self, slot: &Slot, owner: OwnerId, operation: &str, at: &At, size: u64) {
        self.count_kept(slot, owner, operation, at, size);
        self.store
            .attic()
            .note(&self.kept_info(slot, owner, operation, at, size));
    }

    /// Counts and records a kept file that is noted in the attic's journal already.
    pub(super) fn count_kept(&self, slot: &Slot, owner: OwnerId, operation: &str, at: &At, size: u64) {
        self.events().kept.add();
        self.record_kept(slot, owner, operation, at, size);
    }

    /// What is noted about a file kept now.
    pub(super) fn kept_info(&self, slot: &Slot, owner: OwnerId, operation: &str, at: &At, size: u64) -> KeptInfo {
        let note = KeptInfo::now(
            slot.name().to_string_lossy().into_owned(),
            self.owners().name(owner).to_string(),
            operation,
            self.real_path_of(at),
            size,
        );
        // Where the file is replaced its directory stays, and a look at it would be one for each replacement.
        let may_go = ["unlink", "create", HOMELESS].contains(&operation);
        KeptInfo {
            dirs: if may_go { self.dirs_of(at) } else { Vec::new() },
            ..note
        }
    }

    /// Mode, owner and group of the directories of a path, which may go, too. Nothing where one cannot be looked at.
    fn dirs_of(&self, at: &At) -> Vec<(u32, u32, u32)> {
        let mut dirs = Vec::new();
        let mut dir = at.dir.clone();
        while let Some(node) = dir {
            dir = node.place().parent;
            if dir.is_none() {
                break;
            }
            match self.store.fd(&node).and_then(|fd| Ok(sys::stat(&*fd)?)) {
                Ok(stat) if dirs.len() < MOST_DIRS => dirs.push((stat.permissions(), stat.uid, stat.gid)),
                Ok(_) | Err(_) => return Vec::new(),
            }
        }
        dirs.reverse();
        dirs
    }
}
