//! The words of the options, the same on the command line and in the protocol.
//!
//! It never says what an option does: that is `guard::policy`.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// `--mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Refuse what must be refused
    #[default]
    Enforce,
    /// Refuse nothing, record what would have been refused
    Observe,
}

/// `--unseen`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Unseen {
    /// Refuse to replace or edit content its owner has not read
    #[default]
    Refuse,
    /// Refuse only what is stale or was changed by somebody else
    Allow,
}

/// `--remove`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Remove {
    /// Unread files may be removed when nobody has changed them
    #[default]
    Baseline,
    /// Only files read at their current version may be removed
    Observed,
}

/// `--view`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum View {
    /// A process that holds an old copy is stale although its owner has read the new one
    #[default]
    Process,
    /// Only what the owner has read counts
    Owner,
}

/// `--create`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Create {
    /// New files appear to outsiders when they hold data
    #[default]
    Staged,
    /// New files appear at once
    Direct,
}

/// `--durability`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// The program's own fsync decides
    #[default]
    Caller,
    /// A new file is synced before its name appears
    Publish,
}

/// `--cache`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Cache {
    /// The kernel remembers names and attributes until somebody changes them
    #[default]
    Coherent,
    /// The kernel asks each time
    Strict,
}

/// `--passthrough`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Passthrough {
    /// The kernel, where it can
    #[default]
    On,
    /// The guard
    Off,
}

/// `--owner-by`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum OwnerBy {
    /// One owner per session (setsid)
    #[default]
    Session,
    /// One owner per process
    Process,
    /// One owner per user id
    User,
    /// One owner per control group
    Cgroup,
}

/// What a mount is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    /// `--mode`.
    pub mode: Mode,
    /// `--unseen`.
    pub unseen: Unseen,
    /// `--remove`.
    pub remove: Remove,
    /// `--view`.
    pub view: View,
    /// `--create`.
    pub create: Create,
    /// `--durability`.
    pub durability: Durability,
    /// `--cache`.
    pub cache: Cache,
    /// `--passthrough`.
    pub passthrough: Passthrough,
}
