//! What the guard knows of a path and would decide, for those who ask why.
//!
//! Runs the very decision that a change would meet, on copies of what is known. Never records or changes anything: no
//! observation, no refusal, no record.

use std::sync::Arc;

use super::Guard;
use super::caller::At;
use super::changing::{change_under_way, writer_of};
use super::difference::{Difference, compare};
use super::errno::{Result, errno_text, refusal_errno};
use super::explained::{
    Asker, Changed, Explained, Explanation, Holder, KeptCopy, Operation, Outcome, Question, Told, View, Writing,
};
use super::judge::{Finding, Strictness, mode_lets_read, there};
use super::ledger::Present;
use super::mount::Mount;
use super::spot::Spot;
use crate::audit::Report;
use crate::clock;
use crate::guard::{
    Author, Change, Code, Decision, EntryRecord, EntryView, FileKey, FileRecord, History, Intent, Keep, Level, Mode,
    OUTSIDE, OwnerId, Policy, RULES_FIXED, Reason, Refusal, Sight, Standing, Step, There, Timestamp, Version, Why,
    Writer,
};
use crate::store::{Changing, Kind, Node, libc_flags as c};
use crate::sys::{self, Stat};

/// Stands for anybody who has seen nothing: no owner has this number.
const ANYBODY: OwnerId = OwnerId(u32::MAX);

/// A path, and all that is the same for everybody.
struct Scene<'q> {
    question: &'q Question<'q>,
    at: At,
    path: String,
    found: Option<(Arc<Node>, Stat)>,
    /// The file there, if it is one.
    present: Option<Present>,
    /// Changes under way, by whomever.
    changing: Vec<Changing>,
    there: There,
    level: Level,
    /// The mount whose rules hold; where there is none, one as `run` without flags would make it.
    judged_on: Arc<Mount>,
    readable: bool,
    nowhere: bool,
    /// It is the file of rules, which nobody may change on this mount.
    protected: bool,
    /// Exceptions that owners have made for themselves count.
    self_allow: bool,
}

/// What one owner knows.
struct Knowledge {
    owner: OwnerId,
    entry: Option<EntryRecord>,
    file: Option<FileRecord>,
}

/// Files are dated by the filesystem, which may be so much behind, in nanoseconds.
const BEHIND: i128 = 20_000_000;

impl Knowledge {
    /// Whether the owner has changed what is there after it was told, at `then`, that what it had written is not.
    fn has_written_since(&self, then: Timestamp) -> bool {
        let nanoseconds = |at: Timestamp| i128::from(at.sec) * 1_000_000_000 + i128::from(at.nsec);
        let after = |history: &History| {
            // Whoever took the name away came before it was told: a last change that is the owner's own came after.
            let is_last = history
                .last()
                .is_some_and(|last| last.author == Author::Owner(self.owner));
            let behind = if is_last { BEHIND } else { 0 };
            history
                .last_of(self.owner)
                .is_some_and(|own| nanoseconds(own.at) + behind > nanoseconds(then))
        };
        let (entry, file) = (self.entry.as_ref(), self.file.as_ref());
        entry.is_some_and(|entry| after(entry.history())) || file.is_some_and(|file| after(file.history()))
    }
}

impl Scene<'_> {
    /// The level that the name had when this change was made.
    fn level_then(&self, then: Change) -> Level {
        self.at.dir.as_ref().map_or(Level::Keep, |dir| {
            self.judged_on.level_then_for_all(dir, &self.at.name, then)
        })
    }
}

impl Guard {
    /// Answers a question about a path.
    ///
    /// # Errors
    /// The backing filesystem's, where the path cannot be followed.
    pub fn explain(self: &Arc<Self>, question: &Question<'_>) -> Result<Explained> {
        let follow = question.operation != Operation::Remove && question.operation != Operation::Create;
        let (at, found, nowhere) = match self.spot(question.path, follow)? {
            Spot::Elsewhere(path) => return Ok(Explained::Elsewhere(path)),
            Spot::Here { at, found, nowhere } => (at, found, nowhere),
        };
        let scene = self.scene(question, at, found, nowhere)?;
        let views = question.owners.iter().map(|owner| self.view(&scene, *owner));
        let file = scene.found.as_ref().filter(|_| scene.there == There::Regular);
        let written = under_way(&scene, ANYBODY);
        Ok(Explained::Answer(Box::new(Explanation {
            path: scene.path.clone(),
            level: level_word(scene.level).to_owned(),
            operation: question.operation,
            there: there_word(scene.there).to_owned(),
            size: file.map(|(_, stat)| stat.size),
            modified: scene.found.as_ref().map(|(_, stat)| stat.mtime.sec),
            being_written_by: written.map(|changing| self.owners().name(changing.owner).to_string()),
            writer: written.and_then(|changing| writing(&scene, &changing)),
            views: views.collect(),
        })))
    }

    /// Where an owner stands towards a file, and what clears the way to change it, in a few words.
    pub(super) fn state_text(
        self: &Arc<Self>,
        who: (OwnerId, Asker),
        (mount, policy): (u64, Policy),
        at: At,
        node: &Arc<Node>,
    ) -> Result<String> {
        let question = Question {
            path: &[],
            operation: Operation::Write,
            owners: &[],
            policy,
            mount: Some(mount),
            read_only: false,
            asker: who.1,
            difference: false,
        };
        let stat = match node.staged_file() {
            Some(file) => sys::stat(&*file)?,
            None => self.store.stat(node)?,
        };
        let scene = self.scene(&question, at, Some((Arc::clone(node), stat)), false)?;
        if scene.level == Level::Off {
            return Ok("off: not guarded".to_owned());
        }
        let view = self.view(&scene, Some(who.0));
        let may = view.step.as_deref().unwrap_or("it may be changed");
        Ok(match (&view.cause, view.recorded) {
            _ if view.allowed_once => {
                format!(
                    "{}: allowed once (unclobber allow); what is there would be kept",
                    view.view
                )
            }
            (Some(cause), false) => format!("{}: {cause}; {may}", view.view),
            (Some(cause), true) => format!("{}: {cause}; nothing is refused here", view.view),
            (None, _) => format!("{}: {may}", view.view),
        })
    }

    fn scene<'q>(
        self: &Arc<Self>,
        question: &'q Question<'q>,
        at: At,
        mut found: Option<(Arc<Node>, Stat)>,
        nowhere: bool,
    ) -> Result<Scene<'q>> {
        let (mut present, mut changing) = (None, Vec::new());
        if let Some((node, stat)) = &mut found
            && node.kind() == Kind::Regular
        {
            let state = node.content().lock();
            // As it is while nobody who comes through a mount can change it.
            *stat = match &state.staged {
                Some(staged) => sys::stat(&*staged.file)?,
                None => self.store.stat(node)?,
            };
            present = Some(Present {
                key: node.key(),
                token: stat.token(),
                author: self.credit(node, stat, &state),
            });
            changing.extend_from_slice(&state.changing);
        }
        let kind = found.as_ref().map(|(node, _)| node.kind());
        let judged_on = self.mount_for_levels(question.mount);
        let judged_on = judged_on.unwrap_or_else(|| Arc::new(Mount::stand_in(Arc::clone(self), question.policy)));
        let file = found.as_ref().map(|(node, _)| &**node);
        let file = file.filter(|node| node.kind() == Kind::Regular);
        let level = at
            .dir
            .as_ref()
            .map_or(Level::Guard, |dir| judged_on.level_for_all(dir, &at.name, file));
        let readable = found
            .as_ref()
            .is_none_or(|(_, stat)| asker_may_read(question.asker, stat));
        let mount = self
            .mounts()
            .into_iter()
            .find(|mount| Some(mount.id()) == question.mount);
        let (writable, self_allow) = mount.map_or((false, false), |mount| {
            let rules = &mount.options().rules;
            (rules.writable, rules.self_allow)
        });
        let node = found.as_ref().map(|(node, _)| &**node);
        let protected = !writable && self.is_rules_place(&at, node, question.operation);
        Ok(Scene {
            question,
            protected,
            self_allow,
            path: self.path_of(&at),
            at,
            found,
            present,
            changing,
            there: there(kind),
            level,
            judged_on,
            readable,
            nowhere,
        })
    }

    fn view(&self, scene: &Scene<'_>, asked: Option<OwnerId>) -> View {
        let known = self.knowledge(scene, asked.unwrap_or(ANYBODY));
        let links = scene.found.as_ref().map_or(0, |(_, stat)| stat.nlink);
        let finding = Finding::of(&known.sight(scene), scene.present.as_ref()).with_links(links);
        let mut view = View {
            owner: asked.map(|owner| self.owners().name(owner).to_string()),
            view: standing_word(finding.standing).to_owned(),
            changed: self.changed(scene, &known, finding.standing),
            last_refusal: self.last_refusal(scene, asked, |_| true),
            lost: self.last_refusal(scene, asked, |report| {
                report.refusal.kept.is_some() && !known.has_written_since(report.at)
            }),
            old_copies: self.old_copies(scene, &known),
            ..View::default()
        };
        self.judge_view(scene, &known, finding, &mut view);
        if finding.standing == Standing::Stale && scene.level == Level::Guard {
            self.show_what_was_seen(scene, &known, &mut view);
        }
        view
    }

    fn knowledge(&self, scene: &Scene<'_>, owner: OwnerId) -> Knowledge {
        let key = scene.at.entry();
        let (mut entry, file) = self.ledger.copies(key.as_ref(), scene.present.as_ref());
        if let (Some(key), None) = (&key, &scene.found)
            && let Some(at) = self.unsettled_miss(owner, key)
        {
            entry
                .get_or_insert_with(|| EntryRecord::new(None, at))
                .observe_absent_at(owner, None, at);
        }
        Knowledge { owner, entry, file }
    }

    fn judge_view(&self, scene: &Scene<'_>, known: &Knowledge, mut finding: Finding, view: &mut View) {
        let question = scene.question;
        if let Some(errno) = plain_failure(scene) {
            fail_view(scene, errno, view);
            return;
        }
        // What is no file and no directory the kernel opens by itself.
        if scene.level == Level::Off || scene.there == There::Other {
            return;
        }
        let was_guarded = scene.level == Level::Keep
            && question.policy.mode == Mode::Enforce
            && finding.by().is_some_and(|by| scene.level_then(by) == Level::Guard);
        let decision = finding.weigh(
            (question.operation.intent(), scene.there),
            scene.readable,
            under_way(scene, known.owner),
            (&question.policy, self.ledger.latest()),
            Strictness {
                level: scene.level,
                was_guarded,
            },
        );
        match decision {
            Decision::Allow(keep) => view.keeps = keep == Keep::Yes || finding.presumed,
            Decision::CreateExclusively | Decision::Posix => {}
            Decision::Refuse(reason) if self.is_let_through(scene, known.owner, reason) => {
                view.allowed_once = true;
                view.keeps = scene.there == There::Regular;
            }
            Decision::Refuse(reason) => self.refuse_view((scene, known.owner), finding, reason, view),
        }
    }

    /// Whether somebody has asked to let it through, and nobody has used that up.
    fn is_let_through(&self, scene: &Scene<'_>, owner: OwnerId, reason: Reason) -> bool {
        let file = scene.found.as_ref().map(|(node, _)| node.key());
        scene.question.policy.mode == Mode::Enforce
            && self.would_be_allowed((owner, scene.self_allow), &scene.at, file, reason)
    }

    fn refuse_view(&self, (scene, owner): (&Scene<'_>, OwnerId), finding: Finding, reason: Reason, view: &mut View) {
        let errno = errno_text(refusal_errno(reason.code, reason.intent, reason.there));
        let by = finding.by();
        let written = under_way(scene, owner).filter(|_| reason.why == Why::BeingWritten);
        let refusal = Refusal {
            operation: scene.question.operation.as_str(),
            path: scene.path.clone(),
            code: reason.code,
            errno_text: errno.clone(),
            owner: view.owner.clone().unwrap_or_else(|| "anybody".to_owned()),
            changed_by: by.map(|change| self.author_name(change.author)),
            changed_at: by.map(|change| change.at),
            step: reason.step,
            why: reason.why,
            writer: written.and_then(|changing| visible_writer(scene, &changing)),
            kept: None,
        };
        view.recorded = scene.question.policy.mode == Mode::Observe;
        if !view.recorded {
            view.outcome = Outcome::Refused;
        }
        view.code = Some(reason.code.as_str().to_owned());
        view.error = Some(errno);
        view.cause = Some(refusal.cause(clock::now()));
        view.step = Some(reason.step.as_str().to_owned());
    }

    /// The last change; of those by others, if it is they that made the view old.
    fn changed(&self, scene: &Scene<'_>, known: &Knowledge, standing: Standing) -> Option<Changed> {
        let of = |history: &History| match standing {
            Standing::Stale => history.last_foreign(known.owner).copied(),
            Standing::Unseen | Standing::Absent | Standing::Current => history.last().copied(),
        };
        let by_name = known.entry.as_ref().and_then(|entry| of(entry.history()));
        let by_file = known.file.as_ref().and_then(|file| of(file.history()));
        let noticed_now = by_name.is_some_and(|change| change.generation > self.ledger.latest());
        let change: Change = by_name
            .into_iter()
            .chain(by_file)
            .max_by_key(|change| change.generation)?;
        let doer = match change.author {
            Author::Owner(owner) => {
                let file = scene.present.as_ref().map(|present| present.key);
                self.doers.last(owner, file.as_ref(), scene.at.entry().as_ref())
            }
            Author::Outsider | Author::Several => None,
        };
        Some(Changed {
            by: self.author_name(change.author),
            own: change.author == Author::Owner(known.owner),
            command: doer.as_ref().map(|doer| doer.command.to_string()),
            pid: doer.map(|doer| doer.process.tgid),
            // Of a name that somebody outside has bound, only the time of noticing is known; of a file, its own.
            at: (!noticed_now || by_file.is_some()).then_some(change.at.sec),
            nsec: change.at.nsec,
            gone: scene.found.is_none(),
        })
    }

    fn last_refusal(&self, scene: &Scene<'_>, owner: Option<OwnerId>, which: impl Fn(&Report) -> bool) -> Option<Told> {
        let recent = self.events().recent_of(owner?);
        let fits = |report: &&Arc<Report>| report.refusal.path == scene.path && which(report);
        let of_this = recent.iter().rev().find(fits);
        of_this.map(|report| Told::of(report))
    }

    fn old_copies(&self, scene: &Scene<'_>, known: &Knowledge) -> Vec<Holder> {
        let rule = scene.question.policy.view;
        let file = known.file.as_ref().filter(|_| rule == crate::guard::ViewRule::Process);
        let old = file.map(|file| file.old_processes(known.owner)).unwrap_or_default();
        old.into_iter()
            .filter(|process| self.owners().is_running(*process))
            .map(|process| Holder {
                pid: process.tgid,
                command: sys::command_of(process.tgid).unwrap_or_default(),
            })
            .collect()
    }

    /// Where the version that the owner saw is kept, and what has changed since.
    fn show_what_was_seen(&self, scene: &Scene<'_>, known: &Knowledge, view: &mut View) {
        let kept = self
            .seen_version(scene, known)
            .and_then(|(key, version)| self.kept_copy(key, version, &scene.path));
        view.copy = kept.as_ref().map(|kept| KeptCopy {
            id: kept.id.clone(),
            at: kept.at,
        });
        if !scene.question.difference {
            return;
        }
        let readable = |stat: &Stat| asker_may_read(scene.question.asker, stat);
        view.difference = Some(match kept.as_ref().map(|kept| (kept, kept.file)) {
            None | Some((_, None)) => {
                let is_outside = view.changed.as_ref().is_some_and(|changed| changed.by == OUTSIDE);
                let why = if is_outside {
                    ": it was changed outside the mount"
                } else {
                    ""
                };
                Difference::none(format!(
                    "no copy of the version that {} read was kept{why}",
                    name_of(view)
                ))
            }
            Some((_, Some(file))) if !(scene.readable && readable(&file)) => {
                Difference::none("you may not read the file")
            }
            Some((kept, Some(_))) => {
                let seen = self.open_kept(&kept.id);
                let there = scene.found.as_ref().map(|(node, _)| self.open_there(node)).transpose();
                match (seen, there) {
                    (Ok(Some(seen)), Ok(there)) => compare(seen, there),
                    (Ok(None) | Err(_), _) | (_, Err(_)) => Difference::none("it cannot be read"),
                }
            }
        });
    }

    fn open_there(&self, node: &Arc<Node>) -> Result<std::os::fd::OwnedFd> {
        match node.staged_file() {
            Some(file) => Ok(sys::reopen(&*file, c::O_RDONLY)?),
            None => Ok(self.store.open_io(node, c::O_RDONLY)?),
        }
    }

    /// The version that the owner saw last at this name: of the file there, or of one that was there before.
    fn seen_version(&self, scene: &Scene<'_>, known: &Knowledge) -> Option<(FileKey, Version)> {
        let there = scene.present.as_ref().map(|present| present.key);
        if let (Some(key), Some(file)) = (there, &known.file)
            && let Some(version) = file.seen_version(known.owner)
        {
            return Some((key, version));
        }
        match known.entry.as_ref()?.view(known.owner)? {
            EntryView::Present(key) => {
                let version = self
                    .ledger
                    .with_known_file(key, |record| record.seen_version(known.owner))??;
                Some((key, version))
            }
            EntryView::Absent => None,
        }
    }
}

impl Knowledge {
    fn sight(&self, scene: &Scene<'_>) -> Sight<'_> {
        Sight {
            owner: self.owner,
            process: None,
            rule: scene.question.policy.view,
            entry: self.entry.as_ref(),
            file: self.file.as_ref(),
            there: scene.present.as_ref().map(|present| present.key),
        }
    }
}

fn under_way(scene: &Scene<'_>, owner: OwnerId) -> Option<Changing> {
    let mut state = crate::store::FileState::default();
    state.changing = scene.changing.to_vec();
    change_under_way(&state, owner, scene.question.operation.intent())
}

/// The process that is writing, where processes can be seen.
fn visible_writer(scene: &Scene<'_>, changing: &Changing) -> Option<Writer> {
    let visible = scene.judged_on.options().pids_visible;
    visible.then(|| writer_of(changing)).flatten()
}

fn writing(scene: &Scene<'_>, changing: &Changing) -> Option<Writing> {
    let Writer { command, pid } = visible_writer(scene, changing)?;
    let since = changing.since.sec;
    Some(Writing { command, pid, since })
}

/// What fails whoever does it, and what helps.
fn fail_view(scene: &Scene<'_>, errno: i32, view: &mut View) {
    view.outcome = Outcome::Fails;
    view.error = Some(errno_text(errno));
    view.protected = scene.protected && matches!(errno, c::EROFS | c::EEXIST);
    if view.protected && errno == c::EROFS && !scene.question.read_only {
        view.outcome = Outcome::Refused;
        view.code = Some(Code::RulesFixed.as_str().to_owned());
    }
    let (cause, step) = match (scene.question.operation, scene.there) {
        _ if view.protected => (Some(RULES_FIXED), Some(Step::ChangeOutside.as_str())),
        (Operation::Create, There::Regular) => (
            Some("the name is taken"),
            Some("replace it without O_EXCL, or choose another name"),
        ),
        (Operation::Create, There::Directory | There::Other) => {
            (Some("the name is taken"), Some(Step::ChooseAnotherName.as_str()))
        }
        (Operation::Remove, There::Directory) => (Some("it is a directory"), Some("remove it with rmdir or rm -r")),
        (Operation::Edit, There::Nothing) => (None, Some(Step::CreateInstead.as_str())),
        (Operation::Create | Operation::Remove | Operation::Edit | Operation::Write, _) => (None, None),
    };
    view.cause = cause.map(str::to_owned);
    view.step = step.map(str::to_owned);
}

/// What fails whoever does it, and needs no guard.
fn plain_failure(scene: &Scene<'_>) -> Option<i32> {
    let intent = scene.question.operation.intent();
    match scene.there {
        There::Nothing if scene.nowhere => Some(c::ENOENT),
        // The kernel answers that by itself, also where nothing can be changed.
        There::Regular | There::Directory | There::Other if intent == Intent::Create => Some(c::EEXIST),
        _ if scene.question.read_only => Some(c::EROFS),
        // A program that edits opens what is there: it is answered before anything could be judged.
        There::Nothing if matches!(intent, Intent::Remove | Intent::Edit) => Some(c::ENOENT),
        There::Directory if matches!(intent, Intent::Remove | Intent::Edit) => Some(c::EISDIR),
        _ if scene.protected => Some(c::EROFS),
        There::Nothing | There::Regular | There::Directory | There::Other => None,
    }
}

fn asker_may_read(asker: Asker, stat: &Stat) -> bool {
    mode_lets_read(asker.uid, stat, || {
        let of_process = || sys::read_proc_status(asker.pid).is_ok_and(|status| status.groups.contains(&stat.gid));
        asker.gid == stat.gid || of_process()
    })
}

fn name_of(view: &View) -> String {
    view.owner
        .as_ref()
        .map_or_else(|| "anybody".to_owned(), |name| format!("\"{name}\""))
}

fn level_word(level: Level) -> &'static str {
    match level {
        Level::Guard => "guard",
        Level::Keep => "keep",
        Level::Off => "off",
    }
}

fn there_word(there: There) -> &'static str {
    match there {
        There::Nothing => "nothing",
        There::Regular => "file",
        There::Directory => "directory",
        There::Other => "other",
    }
}

pub(super) fn standing_word(standing: Standing) -> &'static str {
    match standing {
        Standing::Unseen => "unseen",
        Standing::Absent => "absent",
        Standing::Current => "current",
        Standing::Stale => "stale",
    }
}
