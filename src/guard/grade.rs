//! Which of several rules decides the level of a name: the order of the sources, and what comes down from above.
//!
//! Owns the order: built-in rules, then git's ignore files, then the rules of the workspace and of the command line,
//! of which the last that matches decides. Never matches a pattern: what matched is told.

use std::ffi::OsStr;

use super::levels::{BUILT_IN, Level};

/// What decided a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum By {
    /// Nothing that speaks of the name or of a directory above it.
    #[default]
    Default,
    /// The built-in rule of this number.
    BuiltIn(usize),
    /// An ignore file of git.
    Ignored,
    /// The rule of this number in the ordered list of the workspace and the command line.
    Rule(usize),
    /// Its content came to this name unseen, from one that was guarded more closely.
    Held,
}

/// The level of a name, and what of it comes down to the names below.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Grade {
    /// The level.
    pub level: Level,
    /// What decided it.
    pub by: By,
    /// Neither rules nor ignore files loosen what is below to less than this.
    pub floor: Option<Level>,
    /// It is `.git` or inside it, where only a rule that names `.git` has a say.
    pub in_git: bool,
}

/// What speaks of one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Signs {
    /// The built-in rule that matches it, if its evidence is there.
    pub built_in: Option<usize>,
    /// An ignore file of git matches it.
    pub ignored: bool,
    /// The last rule that matches it, and its level.
    pub rule: Option<(usize, Level)>,
}

impl Grade {
    /// That of a node which is guarded under every name, at this level at least.
    #[must_use]
    pub const fn held(level: Level) -> Self {
        Self {
            level,
            by: By::Held,
            floor: Some(level),
            in_git: false,
        }
    }

    /// Whether a name below this one is `.git` or inside it.
    #[must_use]
    pub fn leads_into_git(&self, name: &OsStr) -> bool {
        self.in_git || name == ".git"
    }

    /// The rule that matches the name or a directory above it, whichever comes last in the list.
    #[must_use]
    pub fn rule_below(&self, name: &OsStr, rule: Option<(usize, Level)>) -> Option<(usize, Level)> {
        let above = match self.by {
            // What holds for a directory does not reach into a `.git` below it.
            By::Rule(index) if self.in_git || name != ".git" => Some((index, self.level)),
            By::Rule(_) | By::Default | By::BuiltIn(_) | By::Ignored | By::Held => None,
        };
        rule.into_iter()
            .chain(above)
            .max_by_key(|(index, _)| *index)
            .filter(|(_, level)| !self.loosens(*level))
    }

    /// Whether an ignore file could have a say about a name below this one, of which a built-in rule speaks or does not.
    #[must_use]
    pub fn may_be_ignored(&self, built_in: Option<usize>) -> bool {
        built_in.is_none() && self.level == Level::Guard && !self.loosens(Level::Keep)
    }

    fn loosens(&self, level: Level) -> bool {
        self.floor.is_some_and(|floor| level.is_looser_than(floor))
    }

    /// The grade of a name below this one.
    #[must_use]
    pub fn below(&self, name: &OsStr, signs: &Signs) -> Self {
        let (level, by) = if let Some((index, level)) = self.rule_below(name, signs.rule) {
            (level, By::Rule(index))
        } else if self.level == Level::Off {
            // Also for secrets: inside a tree that is rewritten by its own protocol a single guarded file would be
            // refused half-way through.
            (self.level, self.by)
        } else if let Some(index) = signs.built_in {
            (BUILT_IN[index].level, By::BuiltIn(index))
        } else if signs.ignored && self.may_be_ignored(None) {
            (Level::Keep, By::Ignored)
        } else {
            (self.level, self.by)
        };
        Self {
            level,
            by,
            floor: self.floor,
            in_git: self.leads_into_git(name),
        }
    }
}
