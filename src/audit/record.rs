//! One event, and the line of JSON it becomes: the contract is `docs/EVENTS.md`.
//!
//! It never asks for anything: whoever makes an event says all there is to say.

use std::sync::Arc;

use serde::Serialize;

use super::refusals::Report;
use crate::guard::{FileKey, Generation, Intent, Standing, Timestamp, Token};

/// The version of the lines.
pub const EVENTS_VERSION: u32 = 1;

/// Who did something.
#[derive(Debug, Clone, Default)]
pub struct Actor {
    /// The process, where it is known.
    pub pid: Option<u32>,
    /// The name of its command.
    pub command: Option<Arc<str>>,
    /// The program it executes; looked up for refusals only.
    pub program: Option<Arc<str>>,
}

/// An owner's view of what was there before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum View {
    /// It knew nothing of it.
    Unseen,
    /// It knew that nothing was there.
    Absent,
    /// It had seen the version there.
    Current,
    /// It had seen another version, or a file that is gone.
    Stale,
}

impl From<Standing> for View {
    fn from(standing: Standing) -> Self {
        match standing {
            Standing::Unseen => Self::Unseen,
            Standing::Absent => Self::Absent,
            Standing::Current => Self::Current,
            Standing::Stale => Self::Stale,
        }
    }
}

/// One version of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    /// The file.
    pub file: FileKey,
    /// Its number: greater is later, in one life of a guard.
    pub generation: Generation,
    /// The evidence for it.
    pub token: Token,
}

/// What was done to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// A name was made where none was.
    Create,
    /// The whole content gave way.
    Replace,
    /// What was written through a handle that made or emptied the file.
    Write,
    /// A part of the content was changed.
    Edit,
    /// Something was added at the end.
    Append,
    /// A name was taken away.
    Remove,
    /// A name was moved to a free one.
    Rename,
    /// A name was moved over a file.
    RenameOver,
    /// Two names gave each other what they lead to.
    Exchange,
    /// A file got another name.
    Link,
}

/// What happened.
#[derive(Debug, Clone)]
pub enum Happened {
    /// A guarded path was changed.
    Changed(Box<Changed>),
    /// A change was refused, or would have been.
    Refused(Arc<Report>),
    /// An owner saw something it had not seen before.
    Observed(Box<Observed>),
    /// Displaced content was put into the attic.
    Kept(Box<KeptContent>),
    /// Anything else that belongs on record, such as a permission given by hand.
    Noted {
        /// Whom it concerns; everybody without one.
        owner: Option<Arc<str>>,
        /// Which path.
        path: String,
        /// What it is, in one word.
        operation: &'static str,
        /// What there is to say of it.
        text: String,
    },
}

/// A change of a guarded path that was allowed.
#[derive(Debug, Clone)]
pub struct Changed {
    /// When.
    pub at: Timestamp,
    /// Whose.
    pub owner: Arc<str>,
    /// Which process.
    pub actor: Actor,
    /// The operation of the filesystem.
    pub operation: &'static str,
    /// What it did.
    pub change: Change,
    /// The path.
    pub path: String,
    /// The other path of a rename, an exchange or a link.
    pub to: Option<String>,
    /// The level of the path.
    pub level: &'static str,
    /// The owner's view of what was there.
    pub view: Option<View>,
    /// What was there.
    pub before: Option<Version>,
    /// What is there now; of a removal nothing.
    pub after: Option<Version>,
}

/// An observation that moved an owner's view.
#[derive(Debug, Clone)]
pub struct Observed {
    /// When.
    pub at: Timestamp,
    /// Whose.
    pub owner: Arc<str>,
    /// Which process.
    pub actor: Actor,
    /// `read` or `miss`.
    pub operation: &'static str,
    /// The path.
    pub path: String,
    /// What was seen; of a miss nothing.
    pub after: Option<Version>,
}

/// Content that was put into the attic.
#[derive(Debug, Clone)]
pub struct KeptContent {
    /// When.
    pub at: Timestamp,
    /// Whose change displaced it.
    pub owner: Arc<str>,
    /// The operation of the filesystem.
    pub operation: String,
    /// Where it was.
    pub path: String,
    /// Its name in the attic.
    pub id: String,
    /// Its size in bytes.
    pub size: u64,
}

#[derive(Debug, Default, Serialize)]
struct Line<'a> {
    v: u32,
    seq: u64,
    time: String,
    event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    program: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    operation: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    intent: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<Change>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    level: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    view: Option<View>,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<VersionForm>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<VersionForm>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    errno: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    changed_by: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    changed_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    again: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    guard: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    root: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unended: Option<bool>,
}

#[derive(Debug, Serialize)]
struct VersionForm {
    generation: u64,
    file: String,
    size: u64,
    mtime: String,
}

impl From<Version> for VersionForm {
    fn from(version: Version) -> Self {
        let FileKey { dev, ino, generation } = version.file;
        Self {
            generation: version.generation.0,
            file: format!("{dev:x}-{ino:x}-{generation:x}"),
            size: version.token.size,
            mtime: rfc3339(version.token.mtime),
        }
    }
}

/// What is written besides what happened.
#[derive(Debug, Clone, Copy)]
pub(super) enum Mark<'a> {
    /// A guard begins to write.
    Begin {
        guard: &'a str,
        root: &'a str,
        at: Timestamp,
        unended: bool,
    },
    /// Events that found no room.
    Dropped { count: u64 },
    /// The guard has ended in order.
    End,
}

/// The line of an event, its end included.
pub(super) fn line(sequence: u64, happened: &Happened) -> Vec<u8> {
    match happened {
        Happened::Changed(changed) => finish(sequence, of_change(changed)),
        Happened::Refused(report) => finish(sequence, of_refusal(report)),
        Happened::Observed(seen) => finish(
            sequence,
            Line {
                time: rfc3339(seen.at),
                event: "observation",
                owner: Some(&seen.owner),
                operation: Some(seen.operation),
                path: Some(&seen.path),
                after: seen.after.map(Into::into),
                ..by(&seen.actor)
            },
        ),
        Happened::Kept(kept) => finish(
            sequence,
            Line {
                time: rfc3339(kept.at),
                event: "kept",
                decision: Some("kept"),
                owner: Some(&kept.owner),
                operation: Some(&kept.operation),
                path: Some(&kept.path),
                id: Some(&kept.id),
                size: Some(kept.size),
                ..Line::default()
            },
        ),
        Happened::Noted {
            owner,
            path,
            operation,
            text,
        } => finish(
            sequence,
            Line {
                time: rfc3339(crate::clock::now()),
                event: "note",
                owner: owner.as_deref(),
                operation: Some(operation),
                path: Some(path),
                message: Some(text.clone()),
                ..Line::default()
            },
        ),
    }
}

/// The line of a mark, its end included.
pub(super) fn mark(sequence: u64, mark: Mark<'_>) -> Vec<u8> {
    let line = match mark {
        Mark::Begin {
            guard,
            root,
            at,
            unended,
        } => Line {
            event: "begin",
            time: rfc3339(at),
            unended: unended.then_some(true),
            guard: Some(guard),
            root: Some(root),
            pid: Some(std::process::id()),
            ..Line::default()
        },
        Mark::Dropped { count } => Line {
            event: "dropped",
            count: Some(count),
            ..Line::default()
        },
        Mark::End => Line {
            event: "end",
            ..Line::default()
        },
    };
    let time = if line.time.is_empty() {
        rfc3339(crate::clock::now())
    } else {
        line.time.clone()
    };
    finish(sequence, Line { time, ..line })
}

/// A refusal as an object; its sequence number is that of the report.
pub(super) fn fields(report: &Report) -> serde_json::Value {
    let line = Line {
        v: EVENTS_VERSION,
        seq: report.sequence,
        ..of_refusal(report)
    };
    // Nothing in it can fail to be written as JSON: strings, numbers and words.
    serde_json::to_value(line).unwrap_or_default()
}

fn by(actor: &Actor) -> Line<'_> {
    Line {
        pid: actor.pid,
        command: actor.command.as_deref(),
        program: actor.program.as_deref(),
        ..Line::default()
    }
}

fn of_change(changed: &Changed) -> Line<'_> {
    Line {
        time: rfc3339(changed.at),
        event: "change",
        decision: Some("allowed"),
        owner: Some(&changed.owner),
        operation: Some(changed.operation),
        change: Some(changed.change),
        path: Some(&changed.path),
        to: changed.to.as_deref(),
        level: Some(changed.level),
        view: changed.view,
        before: changed.before.map(Into::into),
        after: changed.after.map(Into::into),
        ..by(&changed.actor)
    }
}

fn of_refusal(report: &Report) -> Line<'_> {
    let (refusal, details) = (&report.refusal, &report.details);
    Line {
        time: rfc3339(report.at),
        event: "refusal",
        decision: Some(if report.enforced { "refused" } else { "would_refuse" }),
        owner: Some(&refusal.owner),
        operation: Some(refusal.operation),
        intent: details.intent.map(intent_word),
        path: Some(&refusal.path),
        level: Some(details.level),
        view: details.view,
        before: details.version.map(Into::into),
        rule: Some(details.rule),
        code: Some(refusal.code.as_str()),
        errno: Some(details.errno),
        error: Some(&refusal.errno_text),
        step: Some(refusal.step.as_str()),
        changed_by: refusal.changed_by.as_deref(),
        changed_at: refusal.changed_at.map(rfc3339),
        again: Some(details.again),
        message: Some(report.line()),
        id: refusal.kept.as_deref(),
        ..by(&details.actor)
    }
}

fn intent_word(intent: Intent) -> &'static str {
    match intent {
        Intent::Create => "create",
        Intent::Replace => "replace",
        Intent::RenameOver => "rename_over",
        Intent::Link => "link",
        Intent::Edit => "edit",
        Intent::Append => "append",
        Intent::Remove => "remove",
    }
}

fn finish(sequence: u64, line: Line<'_>) -> Vec<u8> {
    let whole = Line {
        v: EVENTS_VERSION,
        seq: sequence,
        ..line
    };
    // Nothing in it can fail to be written as JSON: strings, numbers and words.
    let mut text = serde_json::to_vec(&whole).unwrap_or_default();
    text.push(b'\n');
    text
}

/// A time in UTC as RFC 3339 has it, to the nanosecond.
#[must_use]
pub fn rfc3339(at: Timestamp) -> String {
    let (days, second) = (at.sec.div_euclid(86_400), at.sec.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:09}Z",
        second / 3600,
        second / 60 % 60,
        second % 60,
        at.nsec
    )
}

/// The date of a number of days since 1970-01-01, in the calendar of today carried back and forth. Counted in eras of 400
/// years that begin on the first of March, so that the leap day is the last of its year.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates() {
        let at = |sec, nsec| rfc3339(Timestamp { sec, nsec });
        assert_eq!(at(0, 0), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(at(951_782_399, 999_999_999), "2000-02-28T23:59:59.999999999Z");
        assert_eq!(at(951_782_400, 1), "2000-02-29T00:00:00.000000001Z");
        assert_eq!(at(951_868_800, 0), "2000-03-01T00:00:00.000000000Z");
        assert_eq!(at(4_107_542_400, 0), "2100-03-01T00:00:00.000000000Z");
        assert_eq!(at(-1, 5), "1969-12-31T23:59:59.000000005Z");
    }

    #[test]
    fn marks_are_lines() {
        let text = String::from_utf8(mark(7, Mark::Dropped { count: 3 })).unwrap();
        assert!(
            text.ends_with("}\n") && text.contains("\"seq\":7") && text.contains("\"count\":3"),
            "{text}"
        );
        assert!(!text.contains("path"), "what does not apply is left out: {text}");
    }
}
