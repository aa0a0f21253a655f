//! The ordered list of rules that users gave, compiled.
//!
//! The globs are those of gitignore files, relative to the workspace. Never looks at the disk.

use std::path::{Path, PathBuf};

use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::guard::Level;

/// Where a rule stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// In the workspace's file, at this line.
    File(usize),
    /// On the command line.
    CommandLine,
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// A glob as in a gitignore file.
    pub pattern: String,
    /// The level it gives.
    pub level: Level,
    /// The only executable whose processes it holds for.
    pub command: Option<PathBuf>,
    /// Where it stands.
    pub source: Source,
}

impl Rule {
    /// Whether it speaks of `.git` by name: no other rule reaches there.
    pub(super) fn names_git(&self) -> bool {
        self.pattern.split('/').any(|part| part == ".git")
    }
}

/// A rule of the command line: `LEVEL:GLOB`.
///
/// # Errors
/// What is wrong with it, in words.
pub fn parse_word(word: &str) -> Result<Rule, String> {
    let wrong = || format!("{word:?} is no rule: LEVEL:GLOB, where LEVEL is guard, keep or off");
    let (level, pattern) = word.split_once(':').ok_or_else(wrong)?;
    let level = Level::named(level).ok_or_else(wrong)?;
    check_pattern(pattern)?;
    Ok(Rule {
        pattern: pattern.to_owned(),
        level,
        command: None,
        source: Source::CommandLine,
    })
}

/// Whether a pattern can stand in a rule.
pub(super) fn check_pattern(pattern: &str) -> Result<(), String> {
    let refuse = |why: &str| Err(format!("{pattern:?} is no pattern: {why}"));
    match pattern.chars().next() {
        None => return refuse("it is empty"),
        Some('!') => {
            return refuse("no pattern begins with \"!\"; a later rule with another level takes names out again");
        }
        Some('#') => return refuse("it would be a comment; write \\# for a name that begins with #"),
        Some(_) => {}
    }
    if pattern.trim().is_empty() || pattern.contains(['\n', '\r', '\0']) {
        return refuse("it is not one line of a gitignore file");
    }
    let mut builder = builder();
    // Git takes it for one that matches nothing: a mistake in a rule is told instead.
    builder.allow_unclosed_class(false);
    if let Err(error) = builder.add_line(None, pattern) {
        return refuse(&plain(&error));
    }
    match builder.build() {
        Err(error) => refuse(&plain(&error)),
        Ok(built) if built.is_empty() => refuse("it matches nothing"),
        Ok(_) => Ok(()),
    }
}

/// What is wrong, without the pattern, which is told already.
fn plain(error: &ignore::Error) -> String {
    let text = error.to_string();
    text.rsplit_once("': ").map_or(text.clone(), |(_, why)| why.to_owned())
}

fn builder() -> GitignoreBuilder {
    // Paths are told from the workspace's root: nothing is to be stripped from them.
    GitignoreBuilder::new(".")
}

/// Patterns of which the last that matches counts, and those of them that name `.git`.
#[derive(Debug)]
struct Matcher {
    all: Gitignore,
    of_git: Gitignore,
}

impl Matcher {
    fn of<'r>(rules: impl Iterator<Item = (usize, &'r Rule)>) -> Result<Self, String> {
        let (mut all, mut of_git) = (builder(), builder());
        for (index, rule) in rules {
            // All that a match brings back of its pattern is where it came from: there the number goes.
            let number = || Some(PathBuf::from(index.to_string()));
            let fail = |error: ignore::Error| error.to_string();
            all.add_line(number(), &rule.pattern).map_err(fail)?;
            if rule.names_git() {
                of_git.add_line(number(), &rule.pattern).map_err(fail)?;
            }
        }
        let build = |builder: GitignoreBuilder| builder.build().map_err(|error| error.to_string());
        Ok(Self {
            all: build(all)?,
            of_git: build(of_git)?,
        })
    }

    fn last(&self, path: &Path, is_dir: bool, in_git: bool) -> Option<usize> {
        let globs = if in_git { &self.of_git } else { &self.all };
        let matched = globs.matched(path, is_dir);
        let glob = matched.inner()?;
        glob.from()?.to_str()?.parse().ok()
    }
}

/// One executable with rules of its own.
#[derive(Debug)]
struct Command {
    path: PathBuf,
    matcher: Matcher,
}

/// The rules in their order.
#[derive(Debug)]
pub struct RuleList {
    rules: Vec<Rule>,
    general: Matcher,
    commands: Vec<Command>,
}

impl Default for RuleList {
    fn default() -> Self {
        let empty = || Gitignore::empty();
        Self {
            rules: Vec::new(),
            general: Matcher {
                all: empty(),
                of_git: empty(),
            },
            commands: Vec::new(),
        }
    }
}

impl RuleList {
    /// Compiles the rules.
    ///
    /// # Errors
    /// What is wrong with one that was never checked.
    pub fn compile(rules: Vec<Rule>) -> Result<Self, String> {
        let numbered = || rules.iter().enumerate();
        let general = Matcher::of(numbered().filter(|(_, rule)| rule.command.is_none()))?;
        let mut paths: Vec<&PathBuf> = rules.iter().filter_map(|rule| rule.command.as_ref()).collect();
        paths.sort_unstable();
        paths.dedup();
        let command = |path: &PathBuf| {
            let of_this = numbered().filter(|(_, rule)| rule.command.as_ref() == Some(path));
            Ok(Command {
                path: path.clone(),
                matcher: Matcher::of(of_this)?,
            })
        };
        let commands = paths.into_iter().map(command).collect::<Result<_, String>>()?;
        Ok(Self {
            rules,
            general,
            commands,
        })
    }

    /// The rules.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The executables that have rules of their own; their place here is the number of an audience.
    pub fn commands(&self) -> impl ExactSizeIterator<Item = &Path> {
        self.commands.iter().map(|command| command.path.as_path())
    }

    /// The last rule that matches a path from the root: of those for everybody, or of those for one executable.
    #[must_use]
    pub fn last(&self, command: Option<usize>, path: &Path, is_dir: bool, in_git: bool) -> Option<(usize, Level)> {
        let matcher = match command {
            None => &self.general,
            Some(number) => &self.commands.get(number)?.matcher,
        };
        let index = matcher.last(path, is_dir, in_git)?;
        Some((index, self.rules.get(index)?.level))
    }
}
