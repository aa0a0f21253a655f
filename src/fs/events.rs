//! What operations put on record: changes, observations, kept content, and what is known of a refusal.
//!
//! Everything here first asks whether anybody keeps a record, and does nothing, allocates nothing and takes no lock if
//! not. Nothing here decides anything.

use std::ffi::OsStr;
use std::sync::Arc;

use super::Guard;
use super::caller::{At, Notes, Who};
use super::handle::{FileHandle, Opening};
use super::judge::Subject;
use super::ledger::Present;
use super::mount::Mount;
use crate::audit::{Actor, Change, Changed, Details, Happened, KeptContent, Observed, Version, View};
use crate::clock;
use crate::guard::{Author, FileRecord, Generation, Intent, Level, OwnerId, Process, Reason, Standing, Timestamp};
use crate::owner::Thread;
use crate::store::{Kind, Node, Slot, libc_flags as c};
use crate::sys;

/// How long the name of a thread's command is taken for true: it changes at `exec`, which nobody tells.
const COMMAND_AGE_NSEC: i64 = 5_000_000;

/// What a judgement rested on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Judged {
    standing: Standing,
    version: Option<Version>,
    /// The owner itself made the version that was there.
    pub(super) own: bool,
    /// The rule by which it was refused.
    pub(super) rule: &'static str,
}

impl Judged {
    pub(super) fn new(standing: Standing, there: Option<&Present>, file: Option<&FileRecord>, owner: OwnerId) -> Self {
        let version = there.zip(file).map(|(there, file)| Version {
            file: there.key,
            generation: file.generation(),
            token: there.token,
        });
        let author = file.and_then(|file| file.history().last()).map(|change| change.author);
        Self {
            standing,
            version,
            own: author == Some(Author::Owner(owner)),
            rule: "",
        }
    }
}

/// What an open handle has changed since that was last put on record.
#[derive(Debug)]
pub(super) struct Written {
    actor: Actor,
    change: Option<Change>,
    view: Option<View>,
    before: Option<Version>,
}

impl Mount {
    /// Puts a change of a name on record. `node` is what the change was made with, and is there now.
    pub(super) fn record_change(
        &self,
        who: &Who,
        (operation, change): (&'static str, Change),
        (at, to): (&At, Option<&At>),
        level: Level,
        node: Option<&Node>,
    ) {
        let guard = self.guard();
        if level == Level::Off || !guard.events().is_recording() {
            return;
        }
        let judged = who.judged.take();
        let after = node.and_then(|node| guard.version_of(node));
        guard.events().record(Happened::Changed(Box::new(Changed {
            at: clock::now(),
            owner: guard.owners().name(who.owner),
            actor: who.actor(),
            operation,
            change,
            path: guard.path_of(at),
            to: to.map(|to| guard.path_of(to)),
            level: level_name(level),
            view: judged.map(|judged| judged.standing.into()),
            before: judged.and_then(|judged| judged.version),
            after,
        })));
    }

    /// Begins to watch what is written through a handle that is just being opened.
    pub(super) fn begin_written(&self, opening: &Opening<'_>) -> Option<Box<Written>> {
        let writes = opening.flags & c::O_ACCMODE != c::O_RDONLY;
        if !writes || opening.level == Level::Off || !self.guard().events().is_recording() {
            return None;
        }
        Some(Box::new(Written {
            actor: opening.who.actor(),
            change: opening.replaces.then_some(Change::Write),
            view: opening.replaces.then_some(View::Current),
            before: self.guard().version_of(opening.node),
        }))
    }

    /// Notes what the first change through a handle found.
    pub(super) fn note_edit(&self, who: &Who, open: &FileHandle, intent: Intent) {
        if !self.guard().events().is_recording() {
            return;
        }
        let Some(judged) = who.judged.take() else { return };
        let mut slot = open.written().lock();
        let Some(written) = slot.as_mut() else { return };
        if written.change.is_none() {
            let appends = intent == Intent::Append;
            written.change = Some(if appends { Change::Append } else { Change::Edit });
            written.view = Some(judged.standing.into());
            written.before = judged.version;
        }
        drop(slot);
    }

    /// Puts on record, once for all writes since the last time, what a handle has changed. Its file's lock is held, and
    /// its record is up to date.
    pub(super) fn record_written(&self, open: &FileHandle, operation: &'static str) {
        let guard = self.guard();
        if !guard.events().is_recording() {
            return;
        }
        let mut slot = open.written().lock();
        let Some(written) = slot.as_mut() else { return };
        let now = guard.ledger.with_known_file(open.node().key(), |record| {
            let author = record.history().last().map(|change| change.author);
            (guard.version(open.node(), record), author)
        });
        let Some((now, author)) = now else { return };
        if written.before.is_some_and(|before| before.generation == now.generation) {
            return;
        }
        let before = written.before.replace(now);
        if !matches!(author, Some(Author::Several)) && author != Some(Author::Owner(open.owner())) {
            return;
        }
        let changed = Changed {
            at: clock::now(),
            owner: guard.owners().name(open.owner()),
            actor: written.actor.clone(),
            operation,
            change: written.change.unwrap_or(Change::Edit),
            path: guard.path_of(open.at()),
            to: None,
            level: level_name(open.level()),
            view: written.view,
            before,
            after: Some(now),
        };
        written.view = Some(View::Current);
        drop(slot);
        guard.events().record(Happened::Changed(Box::new(changed)));
    }

    /// Who was refused, as far as processes can be seen.
    pub(super) fn refused_actor(&self, who: &Who) -> Actor {
        if self.options().pids_visible {
            refused_actor(who)
        } else {
            Actor::default()
        }
    }

    /// What is known of a refusal besides what its line says.
    pub(super) fn details(
        &self,
        who: &Who,
        subject: &Subject<'_>,
        reason: &Reason,
        (errno, again): (i32, bool),
    ) -> Details {
        let judged = who.judged.take();
        let level = subject.level;
        let rule = judged.map(|judged| judged.rule).filter(|rule| !rule.is_empty());
        Details {
            actor: self.refused_actor(who),
            errno,
            view: judged.map(|judged| judged.standing.into()),
            version: judged.and_then(|judged| judged.version),
            intent: Some(reason.intent),
            level: level_name(level),
            rule: rule.unwrap_or_else(|| reason.rule()),
            again,
        }
    }
}

impl Guard {
    fn version(&self, node: &Node, record: &FileRecord) -> Version {
        Version {
            file: node.key(),
            generation: record.generation(),
            token: record.token(),
        }
    }

    /// The version a file is known to be at.
    fn version_of(&self, node: &Node) -> Option<Version> {
        if node.kind() != Kind::Regular {
            return None;
        }
        self.ledger
            .with_known_file(node.key(), |record| self.version(node, record))
    }

    pub(super) fn record_read(
        &self,
        (owner, process): (OwnerId, Option<Process>),
        at: &At,
        present: &Present,
        generation: Generation,
    ) {
        let command = process.and_then(|process| self.owners().thread(process.tgid));
        self.events().record(Happened::Observed(Box::new(Observed {
            at: clock::now(),
            owner: self.owners().name(owner),
            actor: Actor {
                pid: process.map(|process| process.tgid),
                command: command.map(|thread| command_of(&thread)),
                program: None,
            },
            operation: "read",
            path: self.path_of(at),
            after: Some(Version {
                file: present.key,
                generation,
                token: present.token,
            }),
        })));
    }

    pub(super) fn record_miss(&self, owner: OwnerId, thread: &Thread<Notes>, dir: Option<Arc<Node>>, name: &OsStr) {
        let at = At {
            dir,
            name: name.into(),
            certain: false,
            locked: false,
        };
        self.events().record(Happened::Observed(Box::new(Observed {
            at: clock::now(),
            owner: self.owners().name(owner),
            actor: Actor {
                pid: Some(thread.process.tgid),
                command: Some(Arc::clone(&thread.command)),
                program: None,
            },
            operation: "miss",
            path: self.path_of(&at),
            after: None,
        })));
    }

    pub(super) fn record_kept(&self, slot: &Slot, owner: OwnerId, operation: &str, at: &At, size: u64) {
        if !self.events().is_recording() {
            return;
        }
        self.events().record(Happened::Kept(Box::new(KeptContent {
            at: clock::now(),
            owner: self.owners().name(owner),
            operation: operation.to_owned(),
            path: self.path_of(at),
            id: slot.name().to_string_lossy().into_owned(),
            size,
        })));
    }
}

impl Who {
    /// Who does it, as far as that is known without looking it up for every request.
    fn actor(&self) -> Actor {
        Actor {
            pid: self.process.map(|process| process.tgid),
            command: self.thread.as_deref().map(command_of),
            program: None,
        }
    }
}

/// The name of a thread's command, at most a few milliseconds old.
fn command_of(thread: &Thread<Notes>) -> Arc<str> {
    let now = clock::now();
    let known = thread.notes.lock().command.clone();
    if let Some((command, at)) = known
        && is_fresh(at, now)
    {
        return command;
    }
    // Reads /proc: not under the lock.
    let command = thread.command_now();
    thread.notes.lock().command = Some((Arc::clone(&command), now));
    command
}

fn is_fresh(at: Timestamp, now: Timestamp) -> bool {
    let passed = (now.sec - at.sec) * 1_000_000_000 + i64::from(now.nsec) - i64::from(at.nsec);
    (0..COMMAND_AGE_NSEC).contains(&passed)
}

/// Who was refused: looked up at this moment, while the process waits for its answer.
fn refused_actor(who: &Who) -> Actor {
    // Through a handle, whoever opened it may not be who writes.
    let pid = match (&who.thread, who.tid) {
        (None, tid) if tid != 0 => sys::read_proc_status(tid).ok().map(|status| status.tgid),
        (_, _) => who.process.map(|process| process.tgid),
    };
    let command = pid
        .and_then(|pid| sys::read_proc_stat(pid).ok())
        .map(|stat| stat.comm.into());
    let program = pid
        .and_then(sys::program_of)
        .map(|program| program.to_string_lossy().into());
    Actor { pid, command, program }
}

/// A level in one word.
pub(super) fn level_name(level: Level) -> &'static str {
    match level {
        Level::Guard => "guard",
        Level::Keep => "keep",
        Level::Off => "off",
    }
}
