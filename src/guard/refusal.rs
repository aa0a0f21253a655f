//! What a refused caller is told.
//!
//! Owns the codes, the steps and the words. Never chooses an errno (the fs layer has the one table) and never asks
//! what time it is.

use std::fmt::{self, Display};

use super::Timestamp;

/// The class of a refusal: a contract for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// The owner has not seen what would be destroyed.
    NotObserved,
    /// The owner has seen another version than the one that would be destroyed.
    StaleVersion,
    /// There is nothing to change.
    NotFound,
    /// What is there is no regular file.
    NotRegularFile,
    /// It is the workspace's own file of rules, which owners may not change.
    RulesFixed,
    /// The backing filesystem failed.
    IoError,
}

impl Code {
    /// The code as it is written in messages and events.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotObserved => "FS_NOT_OBSERVED",
            Self::StaleVersion => "FS_STALE_VERSION",
            Self::NotFound => "FS_NOT_FOUND",
            Self::NotRegularFile => "FS_NOT_REGULAR_FILE",
            Self::RulesFixed => "FS_RULES_FIXED",
            Self::IoError => "FS_IO_ERROR",
        }
    }
}

impl Display for Code {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

/// What the caller can do about a refusal. Its text completes a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// The owner has not read the file yet.
    ReadThenRetry,
    /// The owner has read another version.
    ReadAgainThenRetry,
    /// The owner knew a file at the name, and nothing is there now.
    LookThenCreate,
    /// Somebody else is writing the file.
    WaitThenRead,
    /// There is nothing to edit.
    CreateInstead,
    /// The name is taken by something that is no file.
    ChooseAnotherName,
    /// The caller may not read the file.
    MakeReadable,
    /// The rules are for whoever is outside.
    ChangeOutside,
    /// The backing filesystem failed.
    CheckBacking,
}

impl Step {
    /// The step in words.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReadThenRetry => "read the file, then retry",
            Self::ReadAgainThenRetry => "read the file again, then retry",
            // Reading it again can only say that it is not there: that is the look that clears it.
            Self::LookThenCreate => {
                "look at the path again (`ls PATH` itself, not its directory) to see that it is gone, then create it"
            }
            Self::WaitThenRead => "wait until the writer has closed it, read the file again, then retry",
            Self::CreateInstead => "create it instead of editing it",
            Self::ChooseAnotherName => "choose another name",
            Self::MakeReadable => {
                "have it allowed with `unclobber allow`, or make the file readable and read it, then retry"
            }
            Self::ChangeOutside => "change .unclobber.toml outside the mount, or use --rules-writable",
            Self::CheckBacking => "check the underlying filesystem, then retry",
        }
    }

    /// What has not been done, for an owner that was told before.
    #[must_use]
    pub fn still(self) -> &'static str {
        match self {
            Self::ReadThenRetry => "still not read: ",
            Self::ReadAgainThenRetry => "still not read again: ",
            Self::LookThenCreate => "still not looked at again: ",
            Self::WaitThenRead => "still not closed: ",
            Self::MakeReadable => "still not readable: ",
            Self::CreateInstead | Self::ChooseAnotherName | Self::ChangeOutside | Self::CheckBacking => "still so: ",
        }
    }
}

impl Display for Step {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

/// What is wrong, in more detail than the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Why {
    /// The owner has never read the file.
    NeverRead,
    /// The file was changed or replaced since the owner read it.
    ChangedSince,
    /// The file was removed since the owner read it.
    GoneSince,
    /// The owner has seen the file as it is, but the calling process itself holds an older copy.
    ProcessHoldsOld,
    /// Another owner has made or emptied the file and is still writing it.
    BeingWritten,
    /// The file was removed or replaced while the owner was writing it.
    TakenAway,
    /// The name was free when the creation began, and is not any more.
    LostRace,
    /// What is there is no regular file.
    NotRegular,
    /// Nothing is there.
    NothingThere,
    /// The directory that a new file was to lie in has been removed.
    DirectoryGone,
    /// It is the file of rules.
    RulesFixed,
}

/// What `changed_by` says when the change did not come through a mount.
pub const OUTSIDE: &str = "outside the mount";

/// What stands in the way of a change of the file of rules.
pub const RULES_FIXED: &str = "the rules of this directory cannot be changed from inside it";

/// The command that prints what is kept in the attic.
pub const SHOW: &str = "unclobber attic show";

/// What `changed_by` says when one of several owners made the change.
pub const SEVERAL: &str = "several owners";

/// A process that is writing a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Writer {
    /// The name of its command.
    pub command: String,
    /// Its number.
    pub pid: u32,
}

/// One refusal, as it is reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The operation: `open`, `create`, `write`, `truncate`, `rename`, `link`, `unlink` and so on.
    pub operation: &'static str,
    /// The path, as the caller would write it from the mount's root.
    pub path: String,
    /// The class.
    pub code: Code,
    /// The errno in words, as the caller's own message shows it.
    pub errno_text: String,
    /// The owner that was refused.
    pub owner: String,
    /// The name of the owner who made the change, [`OUTSIDE`] or [`SEVERAL`], where that is known.
    pub changed_by: Option<String>,
    /// When it was made, where that is known.
    pub changed_at: Option<Timestamp>,
    /// What clears the refusal.
    pub step: Step,
    /// What is wrong.
    pub why: Why,
    /// Of a change under way: the process that makes it, where that is known.
    pub writer: Option<Writer>,
    /// Where in the attic that is which the owner has written, and which is not at the path.
    pub kept: Option<String>,
}

impl Refusal {
    /// The refusal in one line that ends with the step; `again`: the owner was told before, and has not taken it. Names
    /// from outside cannot break the line.
    #[must_use]
    pub fn line(&self, now: Timestamp, again: bool) -> String {
        let to = if self.operation == "write" { " to" } else { "" };
        let path = printable(&self.path);
        let mut line = format!(
            "refused: {}{to} {path}: {} ({}): ",
            self.operation, self.code, self.errno_text
        );
        if again {
            line.push_str(self.step.still());
        }
        line.push_str(&self.cause(now));
        line.push_str("; ");
        line.push_str(self.step.as_str());
        line
    }

    /// What is wrong, in words.
    #[must_use]
    pub fn cause(&self, now: Timestamp) -> String {
        let owner = quoted(&self.owner);
        match self.why {
            Why::NeverRead if self.changed_by.is_none() => format!("{owner} has not read it"),
            Why::NeverRead => format!("changed {}, and {owner} has not read it", self.by_whom(now)),
            Why::ChangedSince => format!("changed {} since {owner} read it", self.by_whom(now)),
            Why::GoneSince => format!("removed {} since {owner} read it", self.by_whom(now)),
            Why::BeingWritten => format!(
                "{} is still writing it, and reading it does not help before that is closed",
                self.who_since(now)
            ),
            Why::TakenAway => format!(
                "removed or replaced {} while {owner} was writing it{}",
                self.by_whom(now),
                self.not_there()
            ),
            Why::ProcessHoldsOld => {
                let by_whom = self.by_whom(now);
                format!("changed {by_whom} since this program read it (another program of {owner} has read it since)")
            }
            Why::LostRace => format!(
                "created {} at the same moment, and {owner} has not read it{}",
                self.by(),
                self.not_there()
            ),
            Why::NotRegular => format!("what is there is not a regular file{}", self.not_there()),
            Why::NothingThere => format!("nothing is there{}", self.not_there()),
            Why::DirectoryGone => format!(
                "the directory it was made in was removed {} before the file could appear there{}",
                self.by_whom(now),
                self.not_there()
            ),
            Why::RulesFixed => RULES_FIXED.to_owned(),
        }
    }

    /// Where that is which the owner has written, if it is not where it was to be.
    fn not_there(&self) -> String {
        let owner = quoted(&self.owner);
        match (&self.kept, self.why) {
            (Some(id), _) => format!(
                ": what {owner} wrote is NOT in the file at this path, it is kept in the attic as {id} (outside the mount: \
                 `{SHOW} {id}`)"
            ),
            (None, Why::TakenAway) => {
                format!(": what {owner} wrote is NOT in the file at this path, and nothing was kept")
            }
            (None, _) => String::new(),
        }
    }

    /// `owner "b" (sh, process 7), who opened it 3 s ago,`, as far as it is known.
    fn who_since(&self, now: Timestamp) -> String {
        let mut who = match self.changed_by.as_deref() {
            Some(owner) => format!("owner {}", quoted(owner)),
            None => "somebody else".to_owned(),
        };
        if let Some(Writer { command, pid }) = &self.writer {
            who = format!("{who} ({}, process {pid})", printable(command));
        }
        match self.changed_at {
            Some(at) => format!("{who}, who opened it {},", age(at, now)),
            None => who,
        }
    }

    fn by(&self) -> String {
        match self.changed_by.as_deref() {
            Some(OUTSIDE) => OUTSIDE.to_owned(),
            Some(SEVERAL) => format!("by one of {SEVERAL}"),
            Some(owner) => format!("by owner {}", quoted(owner)),
            None => "by somebody else".to_owned(),
        }
    }

    /// `by owner "b" 3 s ago`, as far as it is known.
    fn by_whom(&self, now: Timestamp) -> String {
        let mut text = self.by();
        if let Some(at) = self.changed_at {
            text.push(' ');
            text.push_str(&age(at, now));
        }
        text
    }
}

/// How long ago `at` was, in the largest unit that says something. Clocks may run backwards.
#[must_use]
pub fn age(at: Timestamp, now: Timestamp) -> String {
    match now.sec.saturating_sub(at.sec) {
        i64::MIN..=0 => "just now".to_owned(),
        seconds @ 1..=119 => format!("{seconds} s ago"),
        seconds @ 120..=7199 => format!("{} min ago", seconds / 60),
        seconds @ 7200..=172_799 => format!("{} h ago", seconds / 3600),
        seconds => format!("{} days ago", seconds / 86_400),
    }
}

/// The text with everything escaped that could break the line or hide in it; quotes are left alone.
#[must_use]
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '"' | '\'' => out.push(character),
            other => out.extend(other.escape_debug()),
        }
    }
    out
}

fn quoted(name: &str) -> String {
    let mut out = String::from('"');
    for character in name.chars() {
        match character {
            '\'' => out.push(character),
            other => out.extend(other.escape_debug()),
        }
    }
    out.push('"');
    out
}

impl Display for Refusal {
    /// The line without a time.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let timeless = Self {
            changed_at: None,
            ..self.clone()
        };
        out.write_str(&timeless.line(Timestamp::default(), false))
    }
}
