//! The decision table: what may be done, from an intent, what is there, and where the owner stands.
//!
//! Owns every judgement of the guard, and is total. Never looks at the mode of the mount: whoever carries a decision
//! out decides between refusing and recording.

use super::levels::Level;
use super::policy::{Policy, RemoveRule, UnseenRule};
use super::refusal::{Code, Step, Why};
use super::standing::Standing;

/// What the caller is about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Intent {
    /// Make a file at a name that is free, and nothing else (`O_EXCL`, or a creation that lost its race).
    Create,
    /// Put a whole new content in place of what is there, or create it: `O_TRUNC`, truncation to nothing, publication.
    Replace,
    /// Put another file in place of what is there by rename or exchange.
    RenameOver,
    /// Make a name that by itself replaces nothing: link, directory, symbolic link, special file.
    Link,
    /// Change a part of the content.
    Edit,
    /// Add to the end.
    Append,
    /// Take the name away: unlink, or rename to elsewhere.
    Remove,
}

/// What is at the name now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum There {
    /// Nothing.
    Nothing,
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// Anything else: a symbolic link, a fifo, a socket, a device.
    Other,
}

/// All that a decision depends on besides the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Case {
    /// What is about to be done.
    pub intent: Intent,
    /// What is there.
    pub there: There,
    /// Where the owner stands towards it.
    pub standing: Standing,
    /// Somebody else changed it since the guard began, and the owner has not observed it since.
    pub foreign: bool,
    /// The caller may read it. One who may only write cannot be told to read first.
    pub readable: bool,
}

/// Whether the displaced content goes to the attic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Keep {
    /// The owner has seen it: it need not.
    No,
    /// Nobody is known to have a copy: it must.
    Yes,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Decision {
    /// Do it, to the version that was judged and no other.
    Allow(Keep),
    /// Make the name, failing if it has appeared meanwhile.
    CreateExclusively,
    /// Not the guard's matter: do it, and give the backing filesystem's answer.
    Posix,
    /// Do not do it.
    Refuse(Reason),
}

/// Why something is refused, and what clears it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reason {
    /// The class of refusal.
    pub code: Code,
    /// What the caller can do.
    pub step: Step,
    /// What is wrong.
    pub why: Why,
    /// What was about to be done; with `there` it settles the errno.
    pub intent: Intent,
    /// What was there.
    pub there: There,
}

/// Looks the case up.
#[must_use]
pub fn decide(case: &Case, policy: &Policy) -> Decision {
    match case.there {
        There::Nothing => nothing_there(case),
        There::Regular => file_there(case, policy),
        There::Directory | There::Other => no_file_there(case),
    }
}

/// Looks the case up for a path of this level. At keep nothing is refused, and what would have been is kept.
#[must_use]
pub fn decide_at(level: Level, case: &Case, policy: &Policy) -> Decision {
    match (level, decide(case, policy)) {
        (Level::Guard, decision) => decision,
        (Level::Off, _) => Decision::Posix,
        (Level::Keep, Decision::Refuse(reason)) => leniently(case, reason),
        (Level::Keep, decision) => decision,
    }
}

/// What happens instead of a refusal where nothing is refused.
fn leniently(case: &Case, reason: Reason) -> Decision {
    match (case.there, case.intent) {
        // Creating never replaces, at no level.
        (There::Regular, Intent::Create) => Decision::Refuse(reason),
        (There::Regular, _) => Decision::Allow(Keep::Yes),
        (There::Nothing, Intent::Create | Intent::Replace | Intent::RenameOver) => Decision::CreateExclusively,
        (There::Nothing | There::Directory | There::Other, _) => Decision::Posix,
    }
}

fn nothing_there(case: &Case) -> Decision {
    let knows_a_file = match case.standing {
        Standing::Unseen | Standing::Absent => false,
        // Nothing can be current where nothing is: the view is of what was there.
        Standing::Current | Standing::Stale => true,
    };
    match case.intent {
        Intent::Create | Intent::Replace | Intent::RenameOver | Intent::Edit if knows_a_file => {
            case.refuse(Code::StaleVersion, Step::LookThenCreate, Why::GoneSince)
        }
        Intent::Edit => case.refuse(Code::NotFound, Step::CreateInstead, Why::NothingThere),
        Intent::Create | Intent::Replace | Intent::RenameOver | Intent::Link | Intent::Append => {
            Decision::CreateExclusively
        }
        Intent::Remove => Decision::Posix,
    }
}

fn file_there(case: &Case, policy: &Policy) -> Decision {
    match case.intent {
        Intent::Create => case.refuse(Code::NotObserved, case.read(Step::ReadThenRetry), Why::LostRace),
        Intent::Link => Decision::Posix,
        Intent::Append => Decision::Allow(Keep::No),
        Intent::Replace | Intent::RenameOver | Intent::Edit | Intent::Remove => match case.standing {
            Standing::Current => Decision::Allow(Keep::No),
            Standing::Stale => case.refuse(
                Code::StaleVersion,
                case.read(Step::ReadAgainThenRetry),
                Why::ChangedSince,
            ),
            // A miss before the file appeared is no view of the file.
            Standing::Unseen | Standing::Absent => unseen_file(case, policy),
        },
    }
}

fn unseen_file(case: &Case, policy: &Policy) -> Decision {
    let lenient = match case.intent {
        Intent::Remove => policy.remove == RemoveRule::Baseline,
        Intent::Create | Intent::Replace | Intent::RenameOver | Intent::Link | Intent::Edit | Intent::Append => {
            policy.unseen == UnseenRule::Allow
        }
    };
    if !case.foreign && (lenient || !case.readable) {
        return Decision::Allow(Keep::Yes);
    }
    case.refuse(Code::NotObserved, case.read(Step::ReadThenRetry), Why::NeverRead)
}

fn no_file_there(case: &Case) -> Decision {
    match case.intent {
        Intent::Create | Intent::Replace => case.refuse(Code::NotRegularFile, Step::ChooseAnotherName, Why::NotRegular),
        Intent::RenameOver | Intent::Link | Intent::Edit | Intent::Append | Intent::Remove => Decision::Posix,
    }
}

impl Reason {
    /// The rule of `docs/SEMANTICS.md` that says so, as far as the reason alone tells.
    #[must_use]
    pub fn rule(&self) -> &'static str {
        match (self.why, self.intent) {
            (Why::NeverRead, Intent::Remove) => "D6",
            (Why::NeverRead, _) => "D5",
            (Why::ChangedSince, _) => "D8",
            (Why::ProcessHoldsOld, _) => "P2",
            (Why::GoneSince, _) => "D9",
            (Why::BeingWritten, _) => "D21",
            (Why::TakenAway, _) => "D22",
            (Why::LostRace, _) => "D15",
            (Why::NotRegular, _) => "D10",
            (Why::NothingThere, _) => "D2",
            (Why::DirectoryGone, _) => "S5",
            (Why::RulesFixed, _) => "L13",
        }
    }
}

impl Case {
    /// The step `read`, for a caller who can take it.
    fn read(&self, read: Step) -> Step {
        if self.readable { read } else { Step::MakeReadable }
    }

    fn refuse(&self, code: Code, step: Step, why: Why) -> Decision {
        Decision::Refuse(Reason {
            code,
            step,
            why,
            intent: self.intent,
            there: self.there,
        })
    }
}
