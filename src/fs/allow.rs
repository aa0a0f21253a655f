//! Changes that somebody has asked to let through once.
//!
//! Owns who may still use which exception, and for how long. An exception is used up by the first change that would have
//! been refused without it, by the owner and of the path it was given for; what it displaces is kept.

use std::ffi::OsStr;
use std::path::{Component, Path};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::Guard;
use super::caller::{At, Who};
use super::changing::is_younger;
use super::errno::errno_text;
use super::judge::Subject;
use super::ledger::entry_key;
use super::mount::Mount;
use crate::audit::Happened;
use crate::clock;
use crate::guard::{Code, EntryKey, FileKey, OwnerId, Reason, Timestamp, Why, printable};
use crate::store::{Kind, Node};
use crate::sync::Mutex;

/// Exceptions that wait to be used, at most.
const MAX_WAITING: usize = 1024;

/// What is let through.
#[derive(Debug, Clone)]
pub struct Allowance {
    /// The path, as reports name it.
    pub path: String,
    /// The only owner that may use it; anybody without one.
    pub owner: Option<OwnerId>,
    /// How long.
    pub lasts: Duration,
    /// It was asked for by an owner itself: it counts only on mounts that let owners do so.
    pub by_owner: bool,
}

/// An exception that waits to be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// The path, as it was named.
    pub path: String,
    /// The only owner that may use it; anybody without one.
    pub owner: Option<OwnerId>,
    /// How much of its time is left.
    pub left: Duration,
    /// It was asked for by an owner itself.
    pub by_owner: bool,
}

/// Why a change cannot be let through.
#[derive(Debug, thiserror::Error)]
pub enum AllowError {
    /// The path leads nowhere in the tree.
    #[error("{0}")]
    Path(String),
    /// There are too many exceptions that nobody has used.
    #[error("there are {MAX_WAITING} exceptions that wait to be used")]
    TooMany,
}

#[derive(Debug)]
struct Waiting {
    entry: EntryKey,
    file: Option<FileKey>,
    since: Timestamp,
    allowance: Allowance,
}

impl Waiting {
    fn is_due(&self, now: Timestamp) -> bool {
        is_younger(self.since, now, self.allowance.lasts)
    }

    fn pending(&self, now: Timestamp) -> Pending {
        let whole = |from: i64, to: i64| u64::try_from(to.saturating_sub(from)).unwrap_or(0);
        let passed = Duration::from_secs(whole(self.since.sec, now.sec));
        Pending {
            path: self.allowance.path.clone(),
            owner: self.allowance.owner,
            left: self.allowance.lasts.saturating_sub(passed),
            by_owner: self.allowance.by_owner,
        }
    }

    fn is_for(&self, owner: OwnerId, entry: Option<&EntryKey>, file: Option<FileKey>, self_allow: bool) -> bool {
        let for_owner = self.allowance.owner.is_none_or(|only| only == owner);
        let for_path = entry == Some(&self.entry) || (file.is_some() && file == self.file);
        for_owner && for_path && (self_allow || !self.allowance.by_owner)
    }
}

/// The exceptions that wait to be used.
#[derive(Debug, Default)]
pub(super) struct Allowances {
    waiting: Mutex<Vec<Waiting>>,
    count: AtomicUsize,
}

impl Allowances {
    fn add(&self, waiting: Waiting) -> Result<(), AllowError> {
        let now = waiting.since;
        let mut all = self.waiting.lock();
        all.retain(|known| {
            let of = |waiting: &Waiting| (waiting.allowance.owner, waiting.allowance.by_owner);
            let same = known.entry == waiting.entry && of(known) == of(&waiting);
            known.is_due(now) && !same
        });
        if all.len() >= MAX_WAITING {
            return Err(AllowError::TooMany);
        }
        all.push(waiting);
        self.count.store(all.len(), Ordering::Release);
        drop(all);
        Ok(())
    }

    fn take(&self, owner: OwnerId, entry: Option<&EntryKey>, file: Option<FileKey>, self_allow: bool) -> bool {
        if self.count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let now = clock::now();
        let mut all = self.waiting.lock();
        all.retain(|known| known.is_due(now));
        let found = all
            .iter()
            .position(|known| known.is_for(owner, entry, file, self_allow));
        let taken = found.map(|index| all.swap_remove(index));
        self.count.store(all.len(), Ordering::Release);
        drop(all);
        taken.is_some()
    }

    /// Those that wait.
    fn waiting(&self) -> Vec<Pending> {
        let now = clock::now();
        let known = |known: &Waiting| known.is_due(now).then(|| known.pending(now));
        self.waiting.lock().iter().filter_map(known).collect()
    }

    /// Takes those back of which `which` says so.
    fn take_back(&self, which: impl Fn(&Pending) -> bool) -> Vec<Pending> {
        let now = clock::now();
        let mut all = self.waiting.lock();
        all.retain(|known| known.is_due(now));
        let taken: Vec<_> = all.extract_if(.., |known| which(&known.pending(now))).collect();
        self.count.store(all.len(), Ordering::Release);
        drop(all);
        taken.iter().map(|known| known.pending(now)).collect()
    }

    /// Whether there is one to take.
    fn waits(&self, owner: OwnerId, entry: Option<&EntryKey>, file: Option<FileKey>, self_allow: bool) -> bool {
        let now = clock::now();
        self.count.load(Ordering::Acquire) > 0
            && self
                .waiting
                .lock()
                .iter()
                .any(|known| known.is_due(now) && known.is_for(owner, entry, file, self_allow))
    }
}

/// Whether what is refused for this reason can be let through.
fn can_be_allowed(reason: Reason) -> bool {
    match (reason.why, reason.code) {
        // The other would write over it.
        (Why::BeingWritten, _) => false,
        (_, Code::NotObserved | Code::StaleVersion) => true,
        // Nobody could want that let through.
        (_, Code::NotFound | Code::NotRegularFile | Code::RulesFixed | Code::IoError) => false,
    }
}

impl Guard {
    /// Lets the next change of `path`, below the root, through once. Gives the path as reports name it.
    ///
    /// # Errors
    /// When the path leads to nothing that could be changed.
    pub fn allow(&self, path: &Path, allowance: Allowance) -> Result<(), AllowError> {
        let (dir, name) = self.locate(path)?;
        let found = self.store.peek(&dir, &name).ok().flatten();
        if found.is_some_and(|(_, stat)| stat.is_dir()) {
            return Err(AllowError::Path("it is a directory: name a file".to_owned()));
        }
        let line = format!(
            "one change of {:?} by {} is let through within {} s",
            allowance.path,
            self.whom(allowance.owner),
            allowance.lasts.as_secs()
        );
        let (path, owner) = (allowance.path.clone(), allowance.owner);
        self.allowances.add(Waiting {
            entry: entry_key(dir.key(), &name),
            file: found.map(|(key, _)| key),
            since: clock::now(),
            allowance,
        })?;
        self.note_allowance("allow_given", owner, path, line);
        Ok(())
    }

    /// The exceptions that wait to be used.
    pub fn allowances_waiting(&self) -> Vec<Pending> {
        self.allowances.waiting()
    }

    /// Takes those for a path back of which `which` says so; how many.
    pub fn take_back(&self, path: &Path, which: impl Fn(&Pending) -> bool) -> usize {
        let taken = self
            .allowances
            .take_back(|pending| Path::new(&pending.path) == path && which(pending));
        for pending in &taken {
            let line = format!(
                "no change of {:?} by {} is let through any more",
                pending.path,
                self.whom(pending.owner)
            );
            self.note_allowance("allow_cancelled", pending.owner, pending.path.clone(), line);
        }
        taken.len()
    }

    fn whom(&self, owner: Option<OwnerId>) -> String {
        owner.map_or_else(
            || "anybody".to_owned(),
            |owner| format!("owner {:?}", self.owners().name(owner)),
        )
    }

    /// What somebody has done about exceptions, in the log and on record.
    fn note_allowance(&self, operation: &'static str, owner: Option<OwnerId>, path: String, line: String) {
        log::warn!(target: "unclobber::allow", "{line}");
        if self.events().is_recording() {
            self.events().record(Happened::Noted {
                owner: owner.map(|owner| self.owners().name(owner)),
                path,
                operation,
                text: line,
            });
        }
    }

    /// Whether a change that would be refused for this reason would be let through. Uses nothing up.
    pub(super) fn would_be_allowed(
        &self,
        (owner, self_allow): (OwnerId, bool),
        at: &At,
        file: Option<FileKey>,
        reason: Reason,
    ) -> bool {
        can_be_allowed(reason) && self.allowances.waits(owner, at.entry().as_ref(), file, self_allow)
    }

    /// The directory and the name that a path leads to, without following symbolic links.
    fn locate(&self, path: &Path) -> Result<(Arc<Node>, Arc<OsStr>), AllowError> {
        let wrong = |why: &str| AllowError::Path(why.to_owned());
        let mut names = Vec::new();
        for part in path.components() {
            match part {
                Component::Normal(name) => names.push(name),
                Component::CurDir => {}
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                    return Err(wrong("it does not lead down from the root of the directory"));
                }
            }
        }
        let Some(last) = names.pop() else {
            return Err(wrong("it is the directory itself: name a file"));
        };
        let mut dir = Arc::clone(self.store.root());
        for name in names {
            let (node, _) = self
                .store
                .lookup(&dir, name)
                .map_err(|_| wrong("a directory above it is not there"))?;
            if node.kind() != Kind::Directory {
                return Err(wrong("what stands above it is no directory"));
            }
            dir = node;
        }
        Ok((dir, last.into()))
    }
}

impl Mount {
    /// Whether somebody has asked to let this through, which is used up then.
    pub(super) fn is_allowed(&self, who: &Who, subject: &Subject<'_>, reason: Reason) -> bool {
        if !can_be_allowed(reason) {
            return false;
        }
        let guard = self.guard();
        let file = subject.there.map(|(node, _, _)| node.key());
        let entry = subject.at.entry();
        let self_allow = self.options().rules.self_allow;
        if !guard.allowances.take(subject.owner, entry.as_ref(), file, self_allow) {
            return false;
        }
        let errno = super::errno::refusal_errno(reason.code, reason.intent, reason.there);
        let path = guard.path_of(subject.at);
        let line = format!(
            "allowed once: {} {} by owner {:?}, which would have been refused: {} ({}); what was there is kept",
            subject.operation,
            printable(&path),
            guard.owners().name(subject.owner),
            reason.code,
            errno_text(errno)
        );
        guard.events().allowed(who.owner, &line, &path);
        if guard.events().is_recording() {
            guard.events().record(Happened::Noted {
                owner: Some(guard.owners().name(subject.owner)),
                path,
                operation: "allow",
                text: line,
            });
        }
        true
    }
}
