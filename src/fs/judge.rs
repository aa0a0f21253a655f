//! The one step that judges: gathers what is known, asks the decision table, reports a refusal.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::Guard;
use super::caller::{At, Reported, Who};
use super::changing::{all_are_closing, writer_of};
use super::errno::{FsError, Result, errno_text, refusal_errno};
use super::events::Judged;
use super::ledger::Present;
use super::mount::Mount;
use crate::clock;
use crate::guard::{
    self, Author, Case, Change, Decision, EntryRecord, FileRecord, Generation, Intent, Keep, Level, OwnerId, Policy,
    Reason,
};
use crate::guard::{Refusal, Sight, Standing, Step, There, Why, Writer};
use crate::store::{Changing, FileState, Kind, Node, Slot, StoreError, libc_flags as c};
use crate::sys::{self, Stat};

/// What is about to be changed, looked at under the locks that are held until the change is done.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subject<'a> {
    /// The operation, as reports name it.
    pub(super) operation: &'static str,
    /// What is about to be done to it.
    pub(super) intent: Intent,
    /// The name.
    pub(super) at: &'a At,
    /// The file there, its attributes now, and who holds it open for writing.
    pub(super) there: Option<(&'a Node, &'a Stat, Author)>,
    /// Whose view of the file counts: the owner the handle was opened by, else the caller.
    pub(super) owner: OwnerId,
    /// A change by another owner that is under way.
    pub(super) under_way: Option<Changing>,
    /// How closely it is guarded; never off.
    pub(super) level: Level,
}

/// What a judgement allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The change, to the version judged; and whether what it displaces is kept.
    Judged(Keep),
    /// Making the name, exclusively.
    Exclusive,
    /// What the backing filesystem says.
    Plain,
    /// The same, though it would have been refused: the mount only observes.
    Recorded,
    /// The change, though it would have been refused: somebody has asked for that. What it displaces is kept.
    Overridden,
}

impl Verdict {
    /// Of a change that is allowed to one version: whether what it displaces is kept.
    pub(super) fn keeps(self) -> Option<Keep> {
        match self {
            Self::Judged(keep) => Some(keep),
            Self::Overridden => Some(Keep::Yes),
            Self::Exclusive | Self::Plain | Self::Recorded => None,
        }
    }
}

/// What is known when a refusal is reported.
#[derive(Debug, Clone, Copy)]
pub(super) struct Finding {
    pub(super) standing: Standing,
    foreign: bool,
    /// The owner was refused a change of the file, and has not read it since.
    refused: bool,
    /// Its view rests on a change that nobody saw happening.
    pub(super) presumed: bool,
    /// The owner has made the name itself, and nobody else has changed the file since.
    own_name: bool,
    /// Another name leads to the file, too.
    linked: bool,
    process_old: bool,
    by: Option<Change>,
    judged: Judged,
}

/// How closely a path is guarded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Strictness {
    /// The level of the path.
    pub(super) level: Level,
    /// It was guarded when the last change by somebody else was made.
    pub(super) was_guarded: bool,
}

impl Strictness {
    fn decide(self, case: &Case, policy: &Policy) -> Decision {
        if self.was_guarded
            && let refused @ Decision::Refuse(_) = guard::decide(case, policy)
        {
            return refused;
        }
        guard::decide_at(self.level, case, policy)
    }
}

impl Finding {
    /// From what is known.
    pub(super) fn of(sight: &Sight<'_>, there: Option<&Present>) -> Self {
        let (standing, owner) = (guard::standing(sight), sight.owner);
        let file = sight.file;
        Self {
            standing,
            foreign: guard::foreign(sight),
            refused: file.is_some_and(|file| file.was_refused(owner)),
            presumed: file.is_some_and(|file| file.is_presumed(owner)),
            own_name: sight
                .entry
                .is_some_and(|entry| entry.is_own(owner, sight.there, file.map(FileRecord::history))),
            linked: false,
            process_old: standing == Standing::Stale && file.is_some_and(|file| file.is_current(owner)),
            by: last_change(sight.entry, file, owner),
            judged: Judged::new(standing, there, file, owner),
        }
    }

    /// With the number of names that the file has.
    pub(super) fn with_links(self, links: u32) -> Self {
        Self {
            linked: links > 1,
            ..self
        }
    }

    /// The change that stands in the way.
    pub(super) fn by(&self) -> Option<Change> {
        self.by
    }

    /// What is to be done about a change: the table, and what stands beside it. Pure.
    pub(super) fn weigh(
        &mut self,
        subject: (Intent, There),
        readable: bool,
        under_way: Option<Changing>,
        (policy, latest): (&Policy, Generation),
        strictness: Strictness,
    ) -> Decision {
        let (intent, there) = subject;
        if intent == Intent::Remove && there == There::Regular && self.own_name && self.linked {
            // A name of the owner's own making, and another leads to the file: nobody's content goes with it.
            return Decision::Allow(Keep::Yes);
        }
        let decide = |case: &Case| strictness.decide(case, policy);
        let mut case = Case {
            intent,
            there,
            standing: self.standing,
            foreign: self.foreign,
            readable,
        };
        let mut decision = decide(&case);
        let by = under_way.map(|changing| Change {
            generation: latest,
            author: Author::Owner(changing.owner),
            at: changing.since,
        });
        if let (Decision::Refuse(reason), Some(_)) = (&mut decision, by)
            && matches!(reason.step, Step::ReadThenRetry | Step::ReadAgainThenRetry)
        {
            // A read alone would not clear it: it observes nothing yet, or the other would write over the change.
            self.by = by;
            (reason.step, reason.why) = (Step::WaitThenRead, Why::BeingWritten);
            return decision;
        }
        if let (Decision::Allow(_), Some(_)) = (decision, by) {
            // What the other is about to write, this owner has not seen; and its own change would be written over.
            case.standing = Standing::Stale;
            self.by = by;
            let mut decision = decide(&case);
            if let Decision::Refuse(reason) = &mut decision {
                (reason.step, reason.why) = (Step::WaitThenRead, Why::BeingWritten);
            }
            return decision;
        }
        if decision == Decision::Allow(Keep::Yes) && intent == Intent::Remove && self.refused {
            // Programs that are refused one way try the other. Last, so that the kernel's repeat of what was refused as
            // stale is decided alike.
            case.foreign = true;
            return decide(&case);
        }
        decision
    }
}

impl Mount {
    /// Judges a change.
    ///
    /// # Errors
    /// [`FsError::Refused`], already reported, when it is refused.
    pub(super) fn judge(&self, who: &Who, subject: &Subject<'_>) -> Result<Verdict> {
        let mut finding = self.look(who, subject);
        if finding.standing == Standing::Stale {
            // Another thread of the owner may have been told that the file is gone, and have ended since.
            if let Some(entry) = subject.at.entry() {
                self.guard().settle_misses(subject.owner, &entry, who.tid)?;
                finding = self.look(who, subject);
            }
        }
        let there = there(subject.there.map(|(node, _, _)| node.kind()));
        let readable = subject.there.is_none_or(|(_, stat, _)| may_read(who, stat));
        let decision = finding.weigh(
            (subject.intent, there),
            readable,
            subject.under_way,
            (self.policy(), self.guard().ledger.latest()),
            self.strictness(who, subject, &finding),
        );
        if !matches!(decision, Decision::Refuse(_)) {
            who.passed(subject.intent, subject.at);
        }
        finding.judged.rule = rule(&decision, &finding, subject.intent);
        who.judged.set(Some(finding.judged));
        match decision {
            Decision::Allow(_) if self.enforces() && finding.presumed && subject.intent != Intent::Append => {
                Ok(Verdict::Judged(Keep::Yes))
            }
            Decision::Allow(keep) if self.enforces() => Ok(Verdict::Judged(keep)),
            Decision::Allow(_) | Decision::Posix => Ok(Verdict::Plain),
            Decision::CreateExclusively => Ok(if self.enforces() {
                Verdict::Exclusive
            } else {
                Verdict::Plain
            }),
            Decision::Refuse(reason) if self.enforces() && self.is_allowed(who, subject, reason) => {
                let case = Case {
                    intent: subject.intent,
                    there,
                    standing: finding.standing,
                    foreign: finding.foreign,
                    readable,
                };
                Ok(match guard::decide_at(Level::Keep, &case, self.policy()) {
                    Decision::CreateExclusively => Verdict::Exclusive,
                    Decision::Allow(_) => Verdict::Overridden,
                    Decision::Posix | Decision::Refuse(_) => Verdict::Plain,
                })
            }
            Decision::Refuse(mut reason) => {
                if finding.process_old && reason.why == Why::ChangedSince {
                    reason.why = Why::ProcessHoldsOld;
                }
                self.refuse(who, subject, reason, finding.by)?;
                Ok(Verdict::Recorded)
            }
        }
    }

    /// How closely the path is guarded. At one that only an ignore file leaves unguarded, what somebody else made while it was
    /// guarded still is: nobody takes the guard from another's work by a line in such a file.
    fn strictness(&self, who: &Who, subject: &Subject<'_>, finding: &Finding) -> Strictness {
        let was_guarded = |by: Change| self.level_then(who, subject.at, by) == Level::Guard;
        Strictness {
            level: subject.level,
            was_guarded: subject.level == Level::Keep && self.enforces() && finding.by.is_some_and(was_guarded),
        }
    }

    fn look(&self, who: &Who, subject: &Subject<'_>) -> Finding {
        let present = subject.there.map(|(node, stat, author)| Present {
            key: node.key(),
            token: stat.token(),
            author,
        });
        let entry = subject.at.entry();
        self.guard()
            .ledger
            .consult((entry.as_ref(), subject.at.locked), present.as_ref(), |entry, file| {
                let sight = Sight {
                    owner: subject.owner,
                    process: who.process,
                    rule: self.policy().view,
                    entry: entry.as_deref(),
                    file: file.as_deref(),
                    there: present.map(|present| present.key),
                };
                let links = subject.there.map_or(0, |(_, stat, _)| stat.nlink);
                Finding::of(&sight, present.as_ref()).with_links(links)
            })
    }

    /// Reports a refusal and makes it one, unless the mount only observes.
    pub(super) fn refuse(&self, who: &Who, subject: &Subject<'_>, reason: Reason, by: Option<Change>) -> Result<()> {
        let guard = self.guard();
        let errno = refusal_errno(reason.code, reason.intent, reason.there);
        let present = subject.there.map(|(node, stat, author)| Present {
            key: node.key(),
            token: stat.token(),
            author,
        });
        let again = guard.ledger.consult(
            (subject.at.entry().as_ref(), subject.at.locked),
            present.as_ref(),
            |entry, file| {
                if let Some(entry) = entry {
                    entry.refused_stale(subject.owner, who.process);
                }
                file.is_some_and(|file| {
                    let again = file.was_refused(subject.owner);
                    file.refused_stale(subject.owner, who.process);
                    again
                })
            },
        );
        let reported = Reported::new(reason.intent, subject.at);
        // The kernel repeats what failed with ESTALE once by itself; what is only recorded does not fail.
        let repeated = self.enforces() && reason.code == guard::Code::StaleVersion && who.is_repeated(reported);
        if !repeated {
            let refusal = Refusal {
                operation: subject.operation,
                path: guard.path_of(subject.at),
                code: reason.code,
                errno_text: errno_text(errno),
                owner: guard.owners().name(subject.owner).to_string(),
                changed_by: by.map(|change| guard.author_name(change.author)),
                changed_at: by.map(|change| change.at),
                step: reason.step,
                why: reason.why,
                writer: subject.under_way.and_then(|changing| self.writer(reason, changing)),
                kept: None,
            };
            let details = self.details(who, subject, &reason, (errno, again));
            guard
                .events()
                .refused(clock::now(), subject.owner, self.enforces(), refusal, details);
        }
        if self.enforces() {
            Err(FsError::Refused(reason))
        } else {
            Ok(())
        }
    }

    /// The process that is writing, where it is what stands in the way and can be seen.
    fn writer(&self, reason: Reason, changing: Changing) -> Option<Writer> {
        (reason.why == Why::BeingWritten && self.options().pids_visible)
            .then(|| writer_of(&changing))
            .flatten()
    }

    /// Copies content that is about to be overwritten in place, and that its owner has not seen, to the attic.
    ///
    /// # Errors
    /// A refusal where it cannot be kept.
    pub(super) fn keep_copy(&self, who: &Who, subject: &Subject<'_>, file: &OwnedFd, stat: &Stat) -> Result<()> {
        let guard = self.guard();
        if stat.size == 0 || !guard.store.attic().is_on() {
            return Ok(());
        }
        match guard.store.attic().keep_copy(file, stat, false) {
            Ok(slot) => {
                if let Some(slot) = slot {
                    guard.note_kept(&slot, who.owner, subject.operation, subject.at, stat.size);
                    if subject.level == Level::Guard {
                        guard.events().displaced_unread(who.owner);
                    }
                }
                Ok(())
            }
            Err(error) => Err(self.cannot_keep(who, subject, error)),
        }
    }

    /// What cannot be kept is neither removed nor overwritten unseen: the reader's way is still open.
    pub(super) fn cannot_keep(&self, who: &Who, subject: &Subject<'_>, error: StoreError) -> FsError {
        let StoreError::Sys(cause) = &error else {
            return error.into();
        };
        if self.is_stuck(subject, cause.errno()) {
            return error.into();
        }
        // Whatever it is that keeps it from the attic: reading it first needs no attic.
        log::warn!("content nobody has seen could not be kept: {cause}");
        let readable = subject.there.is_none_or(|(_, stat, _)| may_read(who, stat));
        let reason = Reason {
            code: guard::Code::NotObserved,
            step: if readable {
                Step::ReadThenRetry
            } else {
                Step::MakeReadable
            },
            why: Why::NeverRead,
            intent: subject.intent,
            there: There::Regular,
        };
        match self.refuse(who, subject, reason, None) {
            Err(refused) => refused,
            Ok(()) => error.into(),
        }
    }

    /// Whether the directory itself lets nobody but others take the file away: reading it first would not help.
    fn is_stuck(&self, subject: &Subject<'_>, errno: i32) -> bool {
        let (Some(dir), Some((_, file, _))) = (&subject.at.dir, subject.there) else {
            return false;
        };
        let user = sys::geteuid();
        errno == c::EPERM
            && file.uid != user
            && self
                .guard()
                .store
                .stat(dir)
                .is_ok_and(|dir| dir.permissions() & 0o1000 != 0 && dir.uid != user)
    }

    /// Keeps a displaced file in the attic, or drops it.
    pub(super) fn settle_slot(
        &self,
        slot: Option<Slot>,
        keep: bool,
        who: &Who,
        operation: &'static str,
        at: &At,
        size: u64,
    ) {
        let Some(slot) = slot else { return };
        let guard = self.guard();
        if keep {
            guard.note_kept(&slot, who.owner, operation, at, size);
        } else {
            guard.store.attic().discard(&slot);
        }
    }
}

impl Guard {
    /// The path of a name below the root, for people.
    pub(super) fn path_of(&self, at: &At) -> String {
        let path = self.real_path_of(at).into_string();
        path.unwrap_or_else(|path| path.to_string_lossy().into_owned())
    }

    /// The path of a name below the root, exactly.
    pub(super) fn real_path_of(&self, at: &At) -> OsString {
        let mut names = vec![at.name.clone()];
        let mut dir = at.dir.clone();
        while let Some(node) = dir {
            let place = node.place();
            if place.parent.is_none() || names.len() > 512 {
                break;
            }
            names.push(place.name.clone());
            dir = place.parent;
        }
        names.reverse();
        names.join(OsStr::new("/"))
    }

    /// Who is to be credited with a change of a file that was not seen happening. Its lock is held.
    pub(super) fn credit(&self, node: &Node, stat: &Stat, state: &FileState) -> Author {
        let author = credit(state);
        if let Author::Owner(_) = author
            && all_are_closing(state)
            && self.has_moved(node, stat)
            && (!self.watches_all() || node.is_touched_outside())
        {
            // It was credited with its own changes when it flushed, and may have closed it since.
            return Author::Several;
        }
        if author != Author::Outsider || state.mappers.is_empty() {
            return author;
        }
        if !self.has_moved(node, stat) {
            return author;
        }
        // Something has changed, and somebody may have stored it through a mapping.
        let mut mapped = state
            .mappers
            .iter()
            .filter(|mapper| sys::maps_writable(mapper.pid, stat.ino))
            .map(|mapper| mapper.owner);
        match mapped.next() {
            None => Author::Outsider,
            Some(owner) if mapped.all(|other| other == owner) => Author::Owner(owner),
            Some(_) => Author::Several,
        }
    }

    /// Whether a file that is known is another version now.
    fn has_moved(&self, node: &Node, stat: &Stat) -> bool {
        self.ledger
            .with_known_file(node.key(), |record| record.token() != stat.token())
            == Some(true)
    }

    pub(super) fn author_name(&self, author: Author) -> String {
        match author {
            Author::Owner(OwnerId::NOBODY) => "an unknown process".to_owned(),
            Author::Owner(owner) => self.owners().name(owner).to_string(),
            Author::Outsider => guard::OUTSIDE.to_owned(),
            Author::Several => guard::SEVERAL.to_owned(),
        }
    }
}

/// Who may have changed a file through a handle whose writes bring no request.
pub(super) fn credit(state: &FileState) -> Author {
    match state.writers.as_slice() {
        [] => Author::Outsider,
        [(owner, _)] => Author::Owner(*owner),
        _ => Author::Several,
    }
}

/// The later of the last foreign changes of the name and of the file.
fn last_change(entry: Option<&EntryRecord>, file: Option<&FileRecord>, owner: OwnerId) -> Option<Change> {
    let by_name = entry.and_then(|entry| entry.history().last_foreign(owner));
    let by_file = file.and_then(|file| file.history().last_foreign(owner));
    by_name
        .into_iter()
        .chain(by_file)
        .max_by_key(|change| change.generation)
        .copied()
}

pub(super) fn there(kind: Option<Kind>) -> There {
    match kind {
        None => There::Nothing,
        Some(Kind::Regular) => There::Regular,
        Some(Kind::Directory) => There::Directory,
        Some(Kind::Symlink | Kind::Special) => There::Other,
    }
}

/// The rule of `docs/SEMANTICS.md` by which something is refused.
fn rule(decision: &Decision, finding: &Finding, intent: Intent) -> &'static str {
    let Decision::Refuse(reason) = decision else { return "" };
    match reason.why {
        Why::ChangedSince if finding.process_old => "P2",
        Why::NeverRead if intent == Intent::Remove && finding.refused => "D20",
        Why::NeverRead if intent == Intent::Remove && !finding.foreign => "D13",
        Why::NeverRead
        | Why::ChangedSince
        | Why::GoneSince
        | Why::BeingWritten
        | Why::TakenAway
        | Why::ProcessHoldsOld
        | Why::LostRace
        | Why::NotRegular
        | Why::NothingThere
        | Why::DirectoryGone
        | Why::RulesFixed => reason.rule(),
    }
}

/// Whether the caller could take the step `read the file`.
fn may_read(who: &Who, stat: &Stat) -> bool {
    mode_lets_read(who.uid, stat, || who.is_in_group(stat.gid))
}

/// Whether a user may read a file by its mode.
pub(super) fn mode_lets_read(uid: u32, stat: &Stat, in_group: impl FnOnce() -> bool) -> bool {
    const OWNER: u32 = 0o400;
    const GROUP: u32 = 0o040;
    const OTHER: u32 = 0o004;
    if uid == 0 {
        return true;
    }
    let bit = match () {
        () if uid == stat.uid => OWNER,
        () if stat.mode & GROUP == stat.mode & OTHER << 3 => OTHER,
        () if in_group() => GROUP,
        () => OTHER,
    };
    stat.mode & bit != 0
}

/// A name in a directory whose lock is held, as the subject of a judgement.
pub(super) fn at(dir: &Arc<Node>, name: &OsStr) -> At {
    At {
        dir: Some(Arc::clone(dir)),
        name: name.into(),
        certain: true,
        locked: true,
    }
}
