//! What is known of one file's content: its version, who changed it, and who has seen which version.
//!
//! Owns the observations O3 and O4 and the generation of a file. Never reads the file: tokens and generations are
//! given to it.

use smallvec::SmallVec;

use super::history::History;
use super::version::{Author, Change, Generation};
use super::views::{ProcessViews, Seen};
use super::{OwnerId, Process, Timestamp, Token};

/// What an owner knows of the content it has just changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Produced {
    /// No more than before: it had not seen the version before.
    Blind,
    /// The result: it had seen the version before.
    Part,
    /// The result: it made all of it.
    Whole,
}

/// What tells the copy of a version apart from those of others, wherever it is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    /// Its size in bytes.
    pub size: u64,
    /// When its content was changed last.
    pub mtime: Timestamp,
}

impl From<Token> for Version {
    fn from(token: Token) -> Self {
        Self {
            size: token.size,
            mtime: token.mtime,
        }
    }
}

/// A token without the bytes that its times leave unused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PackedToken {
    size: u64,
    seconds: [i64; 2],
    nanoseconds: [u32; 2],
}

impl From<Token> for PackedToken {
    fn from(token: Token) -> Self {
        Self {
            size: token.size,
            seconds: [token.mtime.sec, token.ctime.sec],
            nanoseconds: [token.mtime.nsec, token.ctime.nsec],
        }
    }
}

impl From<PackedToken> for Token {
    fn from(packed: PackedToken) -> Self {
        let ([mtime, ctime], [mtime_nsec, ctime_nsec]) = (packed.seconds, packed.nanoseconds);
        Self {
            size: packed.size,
            mtime: Timestamp {
                sec: mtime,
                nsec: mtime_nsec,
            },
            ctime: Timestamp {
                sec: ctime,
                nsec: ctime_nsec,
            },
        }
    }
}

/// One file, and every owner's and process's view of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRecord {
    token: PackedToken,
    generation: Generation,
    history: History,
    /// In order of owner: a file may have been seen by very many.
    owners: SmallVec<[(OwnerId, Generation); 1]>,
    processes: ProcessViews,
    /// What there is to know of few files.
    rare: Option<Box<Rare>>,
}

/// What is known of files that were changed or refused; apart, since most were only read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Rare {
    /// Versions before the present one that owners saw last: no more than there are such owners.
    past: Vec<(Generation, Version)>,
    /// Owners that were told to read the file and have not.
    refused: SmallVec<[OwnerId; 2]>,
    /// Owners whose view moved along with a change that was put down to them without having been seen happening.
    presumed: SmallVec<[OwnerId; 2]>,
}

impl FileRecord {
    /// A file unchanged since the guard began.
    #[must_use]
    pub fn baseline(token: Token, generation: Generation) -> Self {
        let (history, owners) = (History::default(), SmallVec::new());
        Self {
            token: token.into(),
            generation,
            history,
            owners,
            processes: ProcessViews::default(),
            rare: None,
        }
    }

    /// A file first met when it had already changed, or that was just made.
    #[must_use]
    pub fn changed(token: Token, change: Change) -> Self {
        let mut record = Self::baseline(token, change.generation);
        record.history.record(change);
        record
    }

    /// The evidence for the present version.
    #[must_use]
    pub fn token(&self) -> Token {
        self.token.into()
    }

    /// The present version.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Who changed the content.
    #[must_use]
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Compares the file as it is now with what was known: another token means that `change.author` may have changed
    /// the content. Says whether the generation moved.
    ///
    /// The view of an owner who made the change, and had the version before it, moves along (stores through a mapping
    /// arrive without a caller). Process views stay: no change by their own owner makes them old.
    pub fn refresh(&mut self, now: Token, change: Change) -> bool {
        if now == self.token() {
            return false;
        }
        let follows = match change.author {
            Author::Owner(owner) if self.is_current(owner) => Some(owner),
            Author::Owner(_) | Author::Outsider | Author::Several => None,
        };
        self.advance(now, change);
        if let Some(owner) = follows {
            self.see(owner);
        }
        true
    }

    /// Takes over the token after a change of metadata alone that went through the mount.
    pub fn retoken(&mut self, now: Token) {
        self.token = now.into();
    }

    /// O3: the owner, by this process, has read the present version.
    ///
    /// Processes of the owner that were refused take this for their own read: the advised step is often done by a
    /// child. [`OwnerId::NOBODY`] observes nothing.
    pub fn observe(&mut self, owner: OwnerId, process: Option<Process>) {
        if owner != OwnerId::NOBODY {
            self.see(owner);
            self.processes.observe(owner, process, Seen::there(self.generation));
        }
    }

    /// O4: the owner has changed the content.
    ///
    /// A process view that is already old stays so after a change of a part, or an append would license the old copy
    /// that is saved after it. Nothing is older than a content that the process has made as a whole.
    pub fn own_change(
        &mut self,
        owner: OwnerId,
        process: Option<Process>,
        token: Token,
        change: Change,
        produced: Produced,
    ) {
        self.advance(token, change);
        if produced == Produced::Blind || owner == OwnerId::NOBODY {
            return;
        }
        self.see(owner);
        let is_old = || process.is_some_and(|process| self.process_is_old(owner, process));
        if produced == Produced::Whole || !is_old() {
            self.processes.advance(owner, process, Seen::there(self.generation));
        }
    }

    /// The version the owner saw last.
    #[must_use]
    pub fn view(&self, owner: OwnerId) -> Option<Generation> {
        self.position(owner).ok().map(|index| self.owners[index].1)
    }

    /// What the version that the owner saw last was, as far as that is still known.
    #[must_use]
    pub fn seen_version(&self, owner: OwnerId) -> Option<Version> {
        let seen = self.view(owner)?;
        if seen == self.generation {
            return Some(self.token().into());
        }
        let past = &self.rare.as_ref()?.past;
        let past = past.iter().find(|(generation, _)| *generation == seen);
        past.map(|(_, version)| *version)
    }

    /// The owner's processes that hold an older copy than the last foreign change.
    #[must_use]
    pub fn old_processes(&self, owner: OwnerId) -> Vec<Process> {
        self.processes.old(owner, &self.history)
    }

    /// Whether the owner has seen the present version.
    #[must_use]
    pub fn is_current(&self, owner: OwnerId) -> bool {
        self.view(owner) == Some(self.generation)
    }

    /// Whether somebody else changed the file since the guard began and this owner has not observed it since.
    #[must_use]
    pub fn is_foreign(&self, owner: OwnerId) -> bool {
        let Some(change) = self.history.last_foreign(owner) else {
            return false;
        };
        self.view(owner).is_none_or(|seen| seen < change.generation)
    }

    /// Whether the process's own last view is older than the last change by anybody but its owner.
    #[must_use]
    pub fn process_is_old(&self, owner: OwnerId, process: Process) -> bool {
        self.processes.is_old(owner, process, &self.history)
    }

    /// The process was refused and told to read: the owner's next read counts as the process's own.
    ///
    /// To be called for every refusal whose step is a read, `FS_NOT_OBSERVED` as well as `FS_STALE_VERSION`, on the
    /// record of the file and on that of the name.
    pub fn refused_stale(&mut self, owner: OwnerId, process: Option<Process>) {
        self.processes.refuse(owner, process);
        if owner != OwnerId::NOBODY && !self.was_refused(owner) {
            self.rare.get_or_insert_default().refused.push(owner);
        }
    }

    /// The last change was put down to the owner, who may have made it through a mapping: nobody saw it happen.
    pub fn presume(&mut self, owner: OwnerId) {
        if self.is_current(owner) && !self.is_presumed(owner) {
            self.rare.get_or_insert_default().presumed.push(owner);
        }
    }

    /// Whether the owner's view rests on a change that is only put down to it: what it displaces must be kept.
    #[must_use]
    pub fn is_presumed(&self, owner: OwnerId) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.presumed.contains(&owner))
    }

    /// Whether the owner was refused a change of the file and has not read it since. What it may not change it may not
    /// remove either: programs that are refused one way try the other.
    #[must_use]
    pub fn was_refused(&self, owner: OwnerId) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.refused.contains(&owner))
    }

    /// Forgets the owner's view and those of its processes.
    pub fn forget_owner(&mut self, owner: OwnerId) {
        self.owners.retain(|(known, _)| *known != owner);
        self.processes.forget_owner(owner);
        self.tidy(|known| known != owner);
    }

    /// Forgets what all owners have seen for which `keep` says no.
    pub fn retain_owners(&mut self, mut keep: impl FnMut(OwnerId) -> bool) {
        self.owners.retain(|(known, _)| keep(*known));
        self.processes.retain_owners(&mut keep);
        self.tidy(keep);
    }

    /// Forgets the views of a process that has ended.
    pub fn forget_process(&mut self, process: Process) {
        self.processes.retain(|known| known != process);
    }

    /// Forgets the views of all processes for which `keep` says no.
    pub fn retain_processes(&mut self, keep: impl FnMut(Process) -> bool) {
        self.processes.retain(keep);
    }

    /// Whether nothing would be lost with this record: no views, and no change since the guard began.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let refused = self.rare.as_ref().is_some_and(|rare| !rare.refused.is_empty());
        !refused && self.owners.is_empty() && self.processes.is_empty() && self.history.is_empty()
    }

    fn see(&mut self, owner: OwnerId) {
        let generation = self.generation;
        match self.position(owner) {
            Ok(index) => self.owners[index].1 = generation,
            Err(index) => self.owners.insert(index, (owner, generation)),
        }
        self.tidy(|known| known != owner);
    }

    /// Forgets versions that nobody saw last any more, and of owners that `keep` does not name that they were refused, or
    /// their view is presumed.
    fn tidy(&mut self, mut keep: impl FnMut(OwnerId) -> bool) {
        let Some(rare) = &mut self.rare else { return };
        rare.refused.retain(|known| keep(*known));
        rare.presumed.retain(|known| keep(*known));
        let owners = &self.owners;
        rare.past
            .retain(|(generation, _)| owners.iter().any(|(_, seen)| seen == generation));
        if rare.past.is_empty() && rare.refused.is_empty() && rare.presumed.is_empty() {
            self.rare = None;
        }
    }

    /// Where the owner's view is, or where it belongs.
    fn position(&self, owner: OwnerId) -> Result<usize, usize> {
        self.owners.binary_search_by_key(&owner, |(known, _)| *known)
    }

    fn advance(&mut self, token: Token, change: Change) {
        if self.owners.iter().any(|(_, seen)| *seen == self.generation) {
            let past = &mut self.rare.get_or_insert_default().past;
            past.push((self.generation, Token::from(self.token).into()));
        }
        self.token = token.into();
        // A number out of order could make an old view look current. In doubt nobody has seen anything.
        if change.generation <= self.generation {
            self.owners.clear();
            self.processes.clear();
            if let Some(rare) = &mut self.rare {
                rare.past.clear();
            }
        }
        self.generation = self.generation.max(change.generation);
        self.history.record(change);
    }
}
