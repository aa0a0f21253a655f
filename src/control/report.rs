//! What a guard says of its rules and of exceptions from them, in the words of the protocol.
//!
//! It never decides anything: `cli::host` fills it in.

use serde::{Deserialize, Serialize};

/// The rules that hold, and what they say of one path.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RulesReport {
    /// What is wrong with the workspace's file as it is now; the last good rules hold.
    pub problem: Option<String>,
    /// The rules in their order, the mount's own last.
    pub rules: Vec<RuleLine>,
    /// The mounts that have rules of their own.
    pub mounts: Vec<MountRules>,
    /// What they say of the path that was asked about.
    pub decided: Option<Decided>,
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RuleLine {
    /// `guard`, `keep` or `off`.
    pub level: String,
    /// The glob.
    pub pattern: String,
    /// The only executable it holds for.
    pub command: Option<String>,
    /// `file` or `command-line`.
    pub source: String,
    /// The line in the workspace's file.
    pub line: Option<usize>,
    /// Whether it matches anything that is there; unknown where not everything was looked at.
    pub matches: Option<bool>,
}

/// An exception that waits to be used.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Allowance {
    /// The path, from the root.
    pub path: String,
    /// The only owner that may use it; anybody without one.
    pub owner: Option<String>,
    /// For how many seconds more.
    pub seconds: u64,
    /// An owner has asked for it itself.
    pub by_owner: bool,
}

/// A mount with rules of its own.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MountRules {
    /// Its number, as the attribute `user.unclobber.mount` tells it.
    pub mount: u64,
    /// Its mount point.
    pub label: String,
    /// Its rules, as on the command line.
    pub rules: Vec<String>,
}

/// What decided for a path.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Decided {
    /// The path, from the root.
    pub path: String,
    /// The level.
    pub level: String,
    /// Which rule, and where it stands.
    pub by: String,
    /// The directory above the path that the rule speaks of.
    pub through: Option<String>,
    /// Levels of single executables that differ.
    pub commands: Vec<DecidedFor>,
    /// Nothing is there: it is what would hold.
    pub absent: bool,
    /// What would hold for a directory there, if that is something else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub as_directory: Option<DecidedAs>,
}

impl Decided {
    /// Whether no rule speaks of the path.
    #[must_use]
    pub fn is_by_default(&self) -> bool {
        self.by.starts_with("no rule")
    }
}

/// What would decide for a path, if something else were there.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DecidedAs {
    /// The level.
    pub level: String,
    /// Which rule, and where it stands.
    pub by: String,
}

/// What decided for a path and one executable.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DecidedFor {
    /// The executable.
    pub command: String,
    /// The level.
    pub level: String,
    /// Which rule, and where it stands.
    pub by: String,
}
