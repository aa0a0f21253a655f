//! What has become of a refusal by the end of a `run`: whether its step was taken, and the change made after all.
//!
//! It never judges: the guard is asked what would happen now.

use serde_json::Value;

use crate::audit::rfc3339;
use crate::control::{Client, PathText, WhyReply, WhyRequest};
use crate::fs::{Changed, Explanation, Operation, Outcome};
use crate::guard::Timestamp;

/// What has become of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cleared {
    /// The change was made later.
    Made,
    /// The step was taken: the change would not be refused any more.
    Possible,
    /// What was to be changed is gone.
    Gone,
}

impl Cleared {
    /// As the report has it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Made => "made",
            Self::Possible => "possible",
            Self::Gone => "gone",
        }
    }

    /// As the summary has it, in place of a step.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Made => "cleared, the change was made afterwards",
            Self::Possible => "cleared, it is not refused any more",
            Self::Gone => "over, nothing is there any more",
        }
    }
}

/// What is known of a refusal at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Fate {
    /// Nothing if it would still be refused, or that cannot be said.
    pub(crate) cleared: Option<Cleared>,
    /// What has changed since the file was read can be shown.
    pub(crate) differs: bool,
}

/// Asks what has become of the refusal that this event tells of.
pub(crate) fn ask(client: &mut Client, event: &Value) -> Fate {
    explain(client, event).map_or_else(Fate::default, |answer| Fate {
        cleared: of_answer(&answer.explanation, event),
        differs: answer.explanation.there == "file"
            && answer.explanation.views.first().is_some_and(|view| view.copy.is_some()),
    })
}

fn explain(client: &mut Client, event: &Value) -> Option<WhyReply> {
    let operation = match (event["code"].as_str()?, event["intent"].as_str()) {
        ("FS_NOT_OBSERVED" | "FS_STALE_VERSION", Some("remove")) => Operation::Remove,
        ("FS_NOT_OBSERVED" | "FS_STALE_VERSION", Some("edit")) | ("FS_NOT_FOUND", _) => Operation::Edit,
        ("FS_NOT_OBSERVED" | "FS_STALE_VERSION" | "FS_NOT_REGULAR_FILE", _) => Operation::Write,
        _ => return None,
    };
    let names = event["path"].as_str()?.split('/');
    let request = WhyRequest {
        path: names.map(|name| PathText::Text(name.to_owned())).collect(),
        owner: None,
        operation,
        mount: None,
        difference: false,
    };
    match client.why(request) {
        Ok(answer) => answer.ok(),
        Err(error) => {
            log::debug!("what has become of a refusal cannot be said: {error}");
            None
        }
    }
}

fn of_answer(found: &Explanation, event: &Value) -> Option<Cleared> {
    let view = found.views.first()?;
    let to_be_read = event["step"].as_str()?.contains("read the file");
    if to_be_read && found.there == "nothing" && view.view != "stale" {
        return Some(Cleared::Gone);
    }
    let since = event["time"].as_str()?;
    let made = |nsec: Option<u32>| {
        let at = |changed: &Changed, sec| {
            rfc3339(Timestamp {
                sec,
                nsec: nsec.unwrap_or(changed.nsec),
            })
        };
        let of = |changed: &Changed| changed.own && changed.at.is_some_and(|sec| at(changed, sec).as_str() > since);
        view.changed.as_ref().is_some_and(of)
    };
    // Allowed for another reason than that the step was taken, such as a mount's own rule, clears nothing.
    let knows = ["current", "absent"].contains(&view.view.as_str());
    if view.outcome != Outcome::Allowed || view.recorded || view.allowed_once || !knows {
        // What has been put there may be unread itself.
        return made(None).then_some(Cleared::Made);
    }
    // Files are dated by the filesystem, which may be a little behind.
    let made = made(Some(999_999_999));
    match made {
        true => Some(Cleared::Made),
        // What was written is somewhere else, whatever may be written now.
        false if event["id"].is_string() || event["rule"] == "D22" => None,
        false => Some(Cleared::Possible),
    }
}
