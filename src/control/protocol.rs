//! The messages of the control socket as lines of JSON: parsing and formatting, nothing else.
//!
//! It never touches a socket. The contract is `docs/CONTROL.md`.

use serde::{Deserialize, Serialize};

use super::asking::{PathText, WhyReply, WhyRequest};
use super::options::{OwnerBy, Policy};
use super::report::{Allowance, RulesReport};
use crate::fs::Activity;

/// The version every message carries.
pub(super) const VERSION: u32 = 1;

/// The longest line either side accepts, its end included.
pub(super) const LINE_LIMIT: usize = 64 * 1024;

/// The longest owner name.
pub(super) const NAME_LIMIT: usize = 128;

/// What a client asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Request {
    /// Opens the conversation: the daemon stays while it lasts.
    Hello {
        /// The version of the client's program.
        #[serde(default)]
        program: String,
    },
    /// Serve the FUSE descriptor that comes with this line.
    Attach(Box<Attach>),
    /// Make the caller and its descendants an owner on the mounts that are there.
    Join {
        /// Its name; the daemon chooses one when absent.
        #[serde(default)]
        owner: Option<String>,
        /// How many seconds the daemon stays after its last mount, when the user has said.
        #[serde(default)]
        linger: Option<u64>,
    },
    /// What is mounted, by whom, and what has happened.
    Status,
    /// End a mount.
    Detach {
        /// Which.
        mount: u64,
    },
    /// Send every refusal of the caller's owner from now on as an event.
    Refusals,
    /// Answer when every refusal that has happened is sent.
    Flush {
        /// First wait (a bounded time) until this mount has ended and its files are closed.
        #[serde(default)]
        ended: Option<u64>,
        /// Also wait (a bounded time) until every event that has happened is written down.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        record: bool,
    },
    /// The caller, which was made an owner's first process, is about to end: what descends from it stays that owner.
    Leave,
    /// Answer when this mount has ended.
    Wait {
        /// Which.
        mount: u64,
    },
    /// What is known of a path, and what would happen to it.
    Why(Box<WhyRequest>),
    /// What owners are doing, and what was refused to them; a guarded caller hears of its own and those below it.
    Activity {
        /// Refusals after the one of this number.
        #[serde(default)]
        since: u64,
    },
    /// The rules that hold, looked at anew.
    Rules {
        /// What do they say of this path, from the root?
        #[serde(default)]
        path: Option<String>,
        /// On the mount of this number, as `user.unclobber.mount` tells it.
        #[serde(default)]
        mount: Option<u64>,
        /// Also look which rules match anything.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        matches: bool,
    },
    /// Let the next change of a path through, once.
    Allow {
        /// The path, from the root.
        path: String,
        /// The owner; the caller's own if it has one, else whoever changes it first.
        #[serde(default)]
        owner: Option<String>,
        /// For how many seconds.
        seconds: u64,
        /// The mount that the caller is on, as `user.unclobber.mount` tells it.
        #[serde(default)]
        mount: Option<u64>,
    },
    /// Which of these wait to be used; a guarded caller hears of those it could use.
    Allowances,
    /// Take those for a path back.
    Disallow {
        /// The path, from the root.
        path: String,
        /// Only that of this owner.
        #[serde(default)]
        owner: Option<String>,
    },
}

/// A mount to serve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attach {
    /// The mount point, as the user named it.
    pub label: String,
    /// To whom what happens on it is attributed.
    pub attribution: Attribution,
    /// What it is asked to do.
    #[serde(default)]
    pub policy: Policy,
    /// Other users may come in and the kernel checks permissions.
    #[serde(default)]
    pub multi_user: bool,
    /// Nothing may be changed through it.
    #[serde(default)]
    pub read_only: bool,
    /// Access times stand still.
    #[serde(default)]
    pub noatime: bool,
    /// Access times move with every access.
    #[serde(default)]
    pub strictatime: bool,
    /// The only user and group id that exist in the user namespace it was mounted in.
    #[serde(default)]
    pub only_ids: Option<(u32, u32)>,
    /// The process, a child of the caller, whose mount namespace alone holds it.
    #[serde(default)]
    pub namespace_of: Option<u32>,
    /// How many seconds the daemon stays after its last mount, when the user has said.
    #[serde(default)]
    pub linger: Option<u64>,
    /// Rules of its own, and what may be changed of them from inside.
    #[serde(default)]
    pub rules: AttachRules,
}

/// What a mount is asked about rules.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AttachRules {
    /// Rules after those of the workspace, `LEVEL:GLOB` each.
    pub own: Vec<String>,
    /// The workspace's file of rules may be changed through the mount.
    pub writable: bool,
    /// Owners may let their own changes through.
    pub self_allow: bool,
}

/// To whom a mount attributes what happens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Attribution {
    /// To one owner; the daemon chooses the name when it is absent. With `process` the caller becomes that owner's
    /// first process.
    Owner {
        /// The name the user gave.
        #[serde(default)]
        name: Option<String>,
        /// Register the caller and its descendants.
        #[serde(default)]
        process: bool,
    },
    /// By a rule.
    By(OwnerBy),
}

/// What the daemon answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "lowercase")]
pub enum Reply {
    /// To hello.
    Hello {
        /// The guard's id.
        guard: String,
        /// The backing directory's path when the daemon began.
        root: String,
        /// The daemon's process id.
        pid: u32,
        /// The version of the daemon's program.
        #[serde(default)]
        program: String,
    },
    /// To attach: the mount is ready.
    Attached {
        /// Its number.
        mount: u64,
        /// The owner's name, when it has one owner.
        #[serde(default)]
        owner: Option<String>,
        /// How data travels.
        #[serde(default)]
        data: DataPath,
    },
    /// To join.
    Joined {
        /// The owner's full name.
        owner: String,
    },
    /// To status.
    Status(Box<Status>),
    /// To why.
    Why(Box<WhyReply>),
    /// To why: the path leads out of the tree, to an absolute path or one from the root of the tree.
    Elsewhere {
        /// Where.
        path: PathText,
    },
    /// To activity.
    Activity(Box<Activity>),
    /// To rules.
    Rules(Box<RulesReport>),
    /// To allow.
    Allowed {
        /// The owner that may use it; anybody without one.
        #[serde(default)]
        owner: Option<String>,
    },
    /// To allowances.
    Allowances {
        /// Those that wait, the oldest first.
        waiting: Vec<Allowance>,
    },
    /// To disallow.
    Disallowed {
        /// How many were taken back.
        count: usize,
    },
    /// Done.
    Done,
    /// A refusal; an event, not an answer.
    Refusal(Box<Refusal>),
    /// Refusals that could not be sent in time; an event, not an answer.
    Dropped {
        /// How many.
        count: u64,
    },
    /// It cannot be done.
    Error(Failure),
}

/// A refusal that is told as it happens.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Refusal {
    /// The line that tells it.
    pub line: String,
    /// It is of an owner below the one that follows its refusals.
    #[serde(default)]
    pub below: bool,
    /// It is something else that the owner is to be told, and no refusal.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub notice: bool,
    /// The path, from the root, that such a line speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// How many refusals the line speaks of that are told no other way. Never sent.
    #[serde(skip)]
    pub count: u64,
    /// The same as an event, as `docs/EVENTS.md` describes it; left out where the line alone is long already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<serde_json::Value>,
}

/// Why a request was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// Which kind.
    pub code: Code,
    /// What failed and why.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// The kinds of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Code {
    /// The line is not a request.
    Malformed,
    /// The version or the operation is unknown.
    Unsupported,
    /// The caller may not.
    Forbidden,
    /// There is no such mount.
    Missing,
    /// The daemon is about to end: start another.
    Ending,
    /// It was tried and failed.
    Failed,
    /// A code this program does not know.
    #[serde(other)]
    Other,
}

/// How data travels through a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DataPath {
    /// By the kernel, at native speed.
    Passthrough,
    /// By the daemon.
    #[default]
    #[serde(other)]
    Daemon,
}

/// What a guard is doing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The owner that the caller is, if it is one's process: then only that owner and those below it are told of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own: Option<String>,
    /// The guard's id.
    pub guard: String,
    /// The backing directory.
    pub root: String,
    /// The daemon's process id.
    pub pid: u32,
    /// Seconds since it began.
    pub age: u64,
    /// Seconds it stays after its last mount.
    pub linger: u64,
    /// Its mounts.
    pub mounts: Vec<MountStatus>,
    /// Its owners.
    pub owners: Vec<OwnerStatus>,
    /// Counts by name.
    pub counts: std::collections::BTreeMap<String, u64>,
    /// Requests from the kernel on the mounts there are, by kind.
    pub requests: std::collections::BTreeMap<String, u64>,
    /// Where events are written to.
    pub events: Option<String>,
    /// What is wrong with the workspace's file of rules as it is now; the last good rules hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rules_problem: Option<String>,
}

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MountStatus {
    /// Its number.
    pub mount: u64,
    /// The mount point.
    pub label: String,
    /// True when only the processes of one `run` can see it.
    pub private: bool,
    /// Its one owner, or `by` and the rule.
    pub owner: String,
    /// What it was asked to do.
    pub policy: Policy,
    /// How data travels.
    pub data: DataPath,
    /// Nothing may be changed through it.
    pub read_only: bool,
}

/// One owner.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OwnerStatus {
    /// Its name.
    pub name: String,
    /// True when a user chose the name: it outlives its processes.
    pub named: bool,
    /// Counts by name.
    pub counts: std::collections::BTreeMap<String, u64>,
}

impl Failure {
    /// A failure without advice.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: None,
        }
    }

    /// The same with advice.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

#[derive(Serialize)]
struct Outgoing<'a, T> {
    v: u32,
    #[serde(flatten)]
    message: &'a T,
}

/// A message as one line, its end included.
pub(super) fn format<T: Serialize>(message: &T) -> Result<Vec<u8>, Failure> {
    let mut line = serde_json::to_vec(&Outgoing { v: VERSION, message })
        .map_err(|error| Failure::new(Code::Failed, format!("cannot write the message: {error}")))?;
    line.push(b'\n');
    if line.len() > LINE_LIMIT {
        return Err(Failure::new(Code::Failed, "the message is longer than a line may be"));
    }
    Ok(line)
}

/// The request in `line`.
pub(super) fn parse_request(line: &[u8]) -> Result<Request, Failure> {
    let value = parse_versioned(line)?;
    let op = value.get("op").and_then(serde_json::Value::as_str).map(str::to_owned);
    let Some(op) = op else {
        return Err(Failure::new(Code::Malformed, "the request names no operation (\"op\")"));
    };
    if !OPERATIONS.contains(&op.as_str()) {
        return Err(Failure::new(Code::Unsupported, format!("unknown operation {op:?}")));
    }
    let request = serde_json::from_value(value)
        .map_err(|error| Failure::new(Code::Malformed, format!("not a valid {op} request: {error}")))?;
    check(&request)?;
    Ok(request)
}

const OPERATIONS: [&str; 15] = [
    "hello",
    "attach",
    "join",
    "status",
    "detach",
    "refusals",
    "flush",
    "leave",
    "wait",
    "why",
    "activity",
    "rules",
    "allow",
    "allowances",
    "disallow",
];

/// The reply or event in `line`.
pub(super) fn parse_reply(line: &[u8]) -> Result<Reply, Failure> {
    serde_json::from_value(parse_versioned(line)?)
        .map_err(|error| Failure::new(Code::Malformed, format!("not a valid reply: {error}")))
}

fn parse_versioned(line: &[u8]) -> Result<serde_json::Value, Failure> {
    let value: serde_json::Value = serde_json::from_slice(line)
        .map_err(|error| Failure::new(Code::Malformed, format!("not a line of JSON: {error}")))?;
    match value.get("v").and_then(serde_json::Value::as_u64) {
        Some(version) if version == u64::from(VERSION) => Ok(value),
        Some(version) => Err(Failure::new(
            Code::Unsupported,
            format!("protocol version {version} is not {VERSION}, the one known"),
        )),
        None => Err(Failure::new(Code::Malformed, "the message carries no version (\"v\")")),
    }
}

fn check(request: &Request) -> Result<(), Failure> {
    let name = match request {
        Request::Join { owner, .. } => owner.as_deref(),
        Request::Attach(attach) => match &attach.attribution {
            Attribution::Owner { name, .. } => name.as_deref(),
            Attribution::By(_) => None,
        },
        Request::Hello { .. }
        | Request::Status
        | Request::Detach { .. }
        | Request::Refusals
        | Request::Flush { .. }
        | Request::Leave
        | Request::Wait { .. }
        | Request::Why(_)
        | Request::Activity { .. }
        | Request::Rules { .. }
        | Request::Allowances
        // Full names hold slashes, and those that no owner has are told as that.
        | Request::Allow { .. }
        | Request::Disallow { .. } => None,
    };
    name.map_or(Ok(()), |name| {
        check_owner_name(name).map_err(|why| Failure::new(Code::Malformed, why))
    })
}

/// Whether `name` can be an owner's name. A slash separates an owner from the one above it, so no name holds one.
pub fn check_owner_name(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("an owner name cannot be empty".to_owned());
    }
    if name.len() > NAME_LIMIT {
        return Err(format!("an owner name has at most {NAME_LIMIT} bytes"));
    }
    if crate::owner::is_automatic_name(name) {
        return Err(format!(
            "{name:?} is a name as the guard gives it to owners that nobody named: choose another"
        ));
    }
    let fits = |c: char| c.is_alphanumeric() || "._-+@:".contains(c);
    if name.chars().all(fits) {
        Ok(())
    } else {
        Err(format!(
            "{name:?} is no owner name: only letters, digits and ._-+@: can stand in one"
        ))
    }
}

#[cfg(test)]
#[path = "protocol_tests.rs"]
mod tests;
