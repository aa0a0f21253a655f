//! The workspace's own rules: `.unclobber.toml` at the root of the backing tree.
//!
//! Owns its form. What is wrong with it is told with line and column; nothing of it is taken then.

use std::fmt;
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;

use super::executable;
use super::list::{Rule, Source, check_pattern};
use crate::guard::Level;
use crate::sys::Stat;

/// The name of the file at the root of the workspace.
pub const FILE_NAME: &str = ".unclobber.toml";

/// What is wrong with the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RulesError {
    /// The line and the column, from 1, where that is known.
    pub at: Option<(usize, usize)>,
    /// What is wrong, in one line.
    pub message: String,
}

impl std::error::Error for RulesError {}

impl fmt::Display for RulesError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at {
            Some((line, column)) => write!(out, "{FILE_NAME}:{line}:{column}: {}", self.message),
            None => write!(out, "{FILE_NAME}: {}", self.message),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    #[serde(default)]
    rule: Vec<Spanned<Entry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    pattern: Spanned<String>,
    level: Spanned<String>,
    command: Option<Spanned<String>>,
}

/// Reads the file in the directory `root`, which is at `path`, and what it says of itself. No file is no rules.
///
/// # Errors
/// What is wrong with it.
pub fn read(root: impl AsFd, path: Option<&Path>) -> Result<(Vec<Rule>, Option<Stat>), RulesError> {
    let plain = |message: String| RulesError { at: None, message };
    let Some((bytes, stat)) = super::read_named(&root, FILE_NAME).map_err(|error| plain(cause(&error)))? else {
        return Ok((Vec::new(), None));
    };
    let text = match std::str::from_utf8(&bytes) {
        Ok(text) => text,
        Err(error) => {
            let valid = std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default();
            return Err(RulesError {
                at: Some(position(valid, valid.len())),
                message: "it is not UTF-8".to_owned(),
            });
        }
    };
    Ok((parse(text, path)?, Some(stat)))
}

fn cause(error: &std::io::Error) -> String {
    let text = match error.raw_os_error() {
        Some(errno) => std::io::Error::from_raw_os_error(errno).to_string(),
        None => error.to_string(),
    };
    let words = text.split(" (os error").next().unwrap_or_default();
    format!("it cannot be read: {words}")
}

/// The rules of a file with this text, of the workspace at `root`.
///
/// # Errors
/// What is wrong with it.
pub fn parse(text: &str, root: Option<&Path>) -> Result<Vec<Rule>, RulesError> {
    let table: Table = toml::from_str(text).map_err(|error| {
        let at = error.span().map(|span| position(text, span.start));
        single_bracket(text, at).unwrap_or_else(|| RulesError {
            at,
            message: error.message().lines().collect::<Vec<_>>().join(" "),
        })
    })?;
    table.rule.into_iter().map(|entry| rule(text, root, entry)).collect()
}

/// The most likely mistake: `[rule]`, which is one table and no list of them.
fn single_bracket(text: &str, at: Option<(usize, usize)>) -> Option<RulesError> {
    let is_single = |line: &str| {
        let line = line.split('#').next().unwrap_or_default();
        line.split_whitespace().collect::<String>() == "[rule]"
    };
    let (line, found) = (1..).zip(text.lines()).find(|(_, line)| is_single(line))?;
    // What is wrong before it is told first.
    if at.is_some_and(|(wrong, _)| wrong < line) {
        return None;
    }
    let column = found.chars().take_while(|c| c.is_whitespace()).count() + 1;
    Some(RulesError {
        at: Some((line, column)),
        message: "[rule] must be [[rule]], with two brackets on each side: there may be several".to_owned(),
    })
}

fn rule(text: &str, root: Option<&Path>, entry: Spanned<Entry>) -> Result<Rule, RulesError> {
    let wrong = |span: Range<usize>| {
        move |message: String| RulesError {
            at: Some(position(text, span.start)),
            message,
        }
    };
    let entry = entry.into_inner();
    let (pattern, level) = (entry.pattern, entry.level);
    let line = position(text, pattern.span().start).0;
    check_pattern(pattern.get_ref()).map_err(wrong(pattern.span()))?;
    let level = Level::named(level.get_ref())
        .ok_or_else(|| format!("{:?} is no level: guard, keep or off", level.get_ref()))
        .map_err(wrong(level.span()))?;
    let command = entry.command.map(|command| {
        let span = command.span();
        let path = PathBuf::from(command.into_inner());
        executable::check(&path, root).map_err(wrong(span)).map(|()| path)
    });
    Ok(Rule {
        pattern: pattern.into_inner(),
        level,
        command: command.transpose()?,
        source: Source::File(line),
    })
}

/// Line and column of a byte, from 1; the column counts characters.
fn position(text: &str, byte: usize) -> (usize, usize) {
    let before = text.get(..byte).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (line, before[start..].chars().count() + 1)
}
