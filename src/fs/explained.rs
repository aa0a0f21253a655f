//! The answer to `why`: plain values that are sent and printed as they are. A contract: `docs/COMMANDS.md`.
//!
//! Never computes anything.

use serde::{Deserialize, Serialize};

use super::Difference;
use crate::guard::{Intent, OwnerId, Policy};

/// What somebody means to do to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// Put new content in its place, or create it: `>`, `cp`, an editor's save.
    #[default]
    Write,
    /// Change a part of it.
    Edit,
    /// Take it away: `rm`, `mv` to elsewhere.
    Remove,
    /// Make it, and fail if it is there.
    Create,
}

impl Operation {
    /// As what it is judged.
    #[must_use]
    pub fn intent(self) -> Intent {
        match self {
            Self::Write => Intent::Replace,
            Self::Edit => Intent::Edit,
            Self::Remove => Intent::Remove,
            Self::Create => Intent::Create,
        }
    }

    /// Its word on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Edit => "edit",
            Self::Remove => "remove",
            Self::Create => "create",
        }
    }
}

/// Who wants to know: what may be shown of content depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asker {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The process.
    pub pid: u32,
}

/// What is asked.
#[derive(Debug, Clone)]
pub struct Question<'a> {
    /// The names from the root of the tree to the path, as they were given.
    pub path: &'a [std::ffi::OsString],
    /// What would be done.
    pub operation: Operation,
    /// Whose views; `None` stands for anybody who has seen nothing.
    pub owners: &'a [Option<OwnerId>],
    /// The rules of the mount it would be done on.
    pub policy: Policy,
    /// That mount, if it is one.
    pub mount: Option<u64>,
    /// It is read-only.
    pub read_only: bool,
    /// Who wants to know.
    pub asker: Asker,
    /// Show what has changed, where that can be shown.
    pub difference: bool,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Explained {
    /// The path leads out of the tree: to an absolute path, or one from the root of the tree that begins with `..`.
    Elsewhere(std::path::PathBuf),
    /// The answer.
    Answer(Box<Explanation>),
}

/// What is known of a path.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Explanation {
    /// From the root of the tree, links followed.
    pub path: String,
    /// `guard`, `keep` or `off`.
    pub level: String,
    /// What would be done.
    pub operation: Operation,
    /// What is there: `nothing`, `file`, `directory` or `other`.
    pub there: String,
    /// The size of a file.
    pub size: Option<u64>,
    /// When its content was changed last, by its own time stamp; in seconds since the epoch.
    pub modified: Option<i64>,
    /// An owner of the guard is in the middle of changing it.
    pub being_written_by: Option<String>,
    /// The process of that owner which does so, where it can be seen.
    pub writer: Option<Writing>,
    /// What each owner asked about knows of it, and may do to it.
    pub views: Vec<View>,
}

/// What one owner knows of a path, and may do to it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct View {
    /// Its name; nothing for anybody who has seen nothing.
    pub owner: Option<String>,
    /// `unseen`, `absent`, `current` or `stale`.
    pub view: String,
    /// The last change: of those by others, if the view is stale.
    pub changed: Option<Changed>,
    /// The last refusal.
    pub last_refusal: Option<Told>,
    /// The last refusal that left what the owner had written in the attic, and nowhere else.
    pub lost: Option<Told>,
    /// What would happen now.
    pub outcome: Outcome,
    /// The code of the refusal.
    pub code: Option<String>,
    /// The errno's text, of a refusal or a failure.
    pub error: Option<String>,
    /// Why, in words.
    pub cause: Option<String>,
    /// What clears it, in words.
    pub step: Option<String>,
    /// The mount only observes: it would be recorded, and done.
    pub recorded: bool,
    /// The content that is there would be kept in the attic.
    pub keeps: bool,
    /// It would be refused, but somebody has asked to let it through once, which it would use up.
    pub allowed_once: bool,
    /// It is the file of rules, which cannot be changed here.
    pub protected: bool,
    /// Programs of the owner that hold an older copy: they would be refused until the owner has read the file again.
    pub old_copies: Vec<Holder>,
    /// Where the version that the owner saw is kept.
    pub copy: Option<KeptCopy>,
    /// What has changed since, where that was asked for.
    pub difference: Option<Difference>,
}

/// What would happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The guard allows it.
    #[default]
    Allowed,
    /// The guard refuses it.
    Refused,
    /// It fails whatever the owner has seen: as on any filesystem, or because it is the file of rules.
    Fails,
}

/// A change.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Changed {
    /// An owner's name, `outside the mount`, `several owners` or `an unknown process`.
    pub by: String,
    /// It is the owner whose view this is.
    pub own: bool,
    /// The command that made it, where that is known.
    pub command: Option<String>,
    /// Its process.
    pub pid: Option<u32>,
    /// When, in seconds since the epoch; nothing where it was noticed only now.
    pub at: Option<i64>,
    /// And nanoseconds.
    pub nsec: u32,
    /// What was there has gone.
    pub gone: bool,
}

/// A refusal that was told.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Told {
    /// Counts up for each guard.
    pub sequence: u64,
    /// When, in seconds since the epoch.
    pub at: i64,
    /// To whom.
    pub owner: String,
    /// The operation.
    pub operation: String,
    /// The path, from the root of the tree.
    pub path: String,
    /// The code.
    pub code: String,
    /// What clears it.
    pub step: String,
    /// False where the mount only observes.
    pub enforced: bool,
    /// The line that told it.
    pub line: String,
    /// What was wrong.
    pub cause: String,
    /// Where in the attic that is which the owner had written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
    /// How often the same had happened before and is told by this alone.
    #[serde(default, skip_serializing_if = "is_none")]
    pub more: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_none(more: &u64) -> bool {
    *more == 0
}

impl Told {
    /// Whether another is the same, at another time.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        (&self.owner, &self.operation, &self.path, &self.code, self.enforced)
            == (&other.owner, &other.operation, &other.path, &other.code, other.enforced)
    }

    /// From what was reported.
    #[must_use]
    pub fn of(report: &crate::audit::Report) -> Self {
        Self {
            sequence: report.sequence,
            at: report.at.sec,
            owner: report.refusal.owner.clone(),
            operation: report.refusal.operation.to_owned(),
            path: report.refusal.path.clone(),
            code: report.refusal.code.as_str().to_owned(),
            step: report.refusal.step.as_str().to_owned(),
            enforced: report.enforced,
            line: report.line(),
            cause: report.refusal.cause(report.at),
            kept: report.refusal.kept.clone(),
            more: 0,
        }
    }
}

/// A process that is writing a file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Writing {
    /// Its command.
    pub command: String,
    /// Its number.
    pub pid: u32,
    /// Since when, in seconds since the epoch.
    pub since: i64,
}

/// A process that holds an old copy.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Holder {
    /// Its number.
    pub pid: u32,
    /// Its command.
    pub command: String,
}

/// A kept copy.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct KeptCopy {
    /// Its id in the attic.
    pub id: String,
    /// When it was kept, in seconds since the epoch.
    pub at: Option<i64>,
}
