//! The messages about what the guard knows: `why` and `activity`.
//!
//! It never asks: the forms only.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use serde::{Deserialize, Serialize};

use crate::fs::{Explanation, Operation};

/// One name of a path: text where it is, else its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PathText {
    /// Valid UTF-8.
    Text(String),
    /// Anything else.
    Bytes(Vec<u8>),
}

impl From<OsString> for PathText {
    fn from(name: OsString) -> Self {
        name.into_string()
            .map_or_else(|name| Self::Bytes(name.into_vec()), Self::Text)
    }
}

impl From<PathText> for OsString {
    fn from(name: PathText) -> Self {
        match name {
            PathText::Text(text) => text.into(),
            PathText::Bytes(bytes) => Self::from_vec(bytes),
        }
    }
}

/// What is known of a path, and what would happen to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhyRequest {
    /// Its names from the root of the tree, links not followed.
    pub path: Vec<PathText>,
    /// Whose view: an owner's full name. Without it the caller's own, or where it has none, everybody's.
    #[serde(default)]
    pub owner: Option<String>,
    /// What would be done.
    #[serde(default)]
    pub operation: Operation,
    /// On which mount, by the number in its attribute `user.unclobber.mount`.
    #[serde(default)]
    pub mount: Option<u64>,
    /// Show what has changed since the owner looked. Only of one owner.
    #[serde(default)]
    pub difference: bool,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WhyReply {
    /// The caller's own owner, if the answer is about that.
    pub own: Option<String>,
    /// Owners that have no view of the path and are not shown.
    pub others: usize,
    /// Where the directory itself was when the guard began, which the attic's commands are to name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root: Option<std::path::PathBuf>,
    /// Nothing is mounted: it was judged as `run` without flags would judge it.
    pub unmounted: bool,
    /// What is wrong with the workspace's file of rules as it is now: it was judged by the last good ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rules_problem: Option<String>,
    /// What is known.
    pub explanation: Explanation,
}
