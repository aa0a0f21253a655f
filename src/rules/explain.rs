//! What decides for one path, and from where: the walk that a mount takes, done once, by names from the root.
//!
//! Never changes anything, and never goes through a mount: it is given the backing directory.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use super::file::FILE_NAME;
use super::ignored::{IGNORE_NAME, IgnoreFile, read_ignore_file};
use super::list::{Rule, RuleList, Source};
use crate::guard::levels::{BUILT_IN, Kind, Marker, matching};
use crate::guard::{By, Grade, Level, Signs};
use crate::sys;

/// What decided for a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explained {
    /// The level.
    pub level: Level,
    /// Which rule, and where it stands, in words.
    pub why: String,
    /// The directory above the path that the rule speaks of, if it is not the path itself.
    pub through: Option<PathBuf>,
    /// Levels for single executables that differ.
    pub commands: Vec<(PathBuf, Level, String)>,
    /// Something is at the path.
    pub is_there: bool,
    /// Where nothing is: what would hold for a directory there, and why, if that is something else.
    pub as_directory: Option<(Level, String)>,
}

/// The walk: a root, and the rules there are.
#[derive(Debug)]
pub struct Explainer<'a> {
    root: &'a OwnedFd,
    rules: &'a RuleList,
}

/// An ignore file on the way, with the length of its directory's path.
struct Above {
    file: IgnoreFile,
    dir: PathBuf,
}

/// Where a walk stands: one grade per audience, with the path it was decided at.
struct Audience {
    command: Option<usize>,
    grade: Grade,
    decided_at: PathBuf,
    ignored_by: Option<(PathBuf, usize)>,
}

impl<'a> Explainer<'a> {
    /// Of the directory that `root` leads to.
    #[must_use]
    pub fn new(root: &'a OwnedFd, rules: &'a RuleList) -> Self {
        Self { root, rules }
    }

    /// What decides for `path`, below the root. What is not there is taken for what it would have to be: above the last name
    /// for directories; and of the last name it is told what would hold for a file, and for a directory.
    #[must_use]
    pub fn explain(&self, path: &Path) -> Explained {
        let mut found = self.explain_as(path, false);
        if !found.is_there {
            let as_directory = self.explain_as(path, true);
            if as_directory.level != found.level {
                found.as_directory = Some((as_directory.level, as_directory.why));
            }
        }
        found
    }

    fn explain_as(&self, path: &Path, as_directory: bool) -> Explained {
        let names: Vec<&OsStr> = path
            .components()
            .filter_map(|part| match part {
                Component::Normal(name) => Some(name),
                Component::CurDir | Component::ParentDir | Component::RootDir | Component::Prefix(_) => None,
            })
            .collect();
        let audience = |command| Audience {
            command,
            grade: Grade::default(),
            decided_at: PathBuf::new(),
            ignored_by: None,
        };
        let mut audiences = vec![audience(None)];
        audiences.extend((0..self.rules.commands().len()).map(|number| audience(Some(number))));
        let mut dir = sys::dup(self.root).ok();
        let mut ignores = Vec::new();
        let mut here = PathBuf::new();
        let (last, mut is_there) = (names.len().saturating_sub(1), true);
        for (number, name) in names.into_iter().enumerate() {
            if let Some(dir) = &dir
                && let Ok(Some((file, _))) = read_ignore_file(dir)
            {
                let dir = here.clone();
                ignores.push(Above { file, dir });
            }
            here.push(name);
            let inner = dir.as_ref().and_then(|dir| sys::open_child(dir, name).ok());
            let is_dir = match &inner {
                Some(inner) => sys::stat(inner).is_ok_and(|stat| stat.is_dir()),
                None => {
                    is_there = false;
                    number < last || as_directory
                }
            };
            let built_in = built_in(dir.as_ref(), name, is_dir);
            for audience in &mut audiences {
                self.step(audience, &here, name, is_dir, built_in, &ignores);
            }
            dir = inner.filter(|_| is_dir);
        }
        Explained {
            is_there,
            ..self.tell(path, &audiences)
        }
    }

    fn step(
        &self,
        audience: &mut Audience,
        here: &Path,
        name: &OsStr,
        is_dir: bool,
        built_in: Option<usize>,
        ignores: &[Above],
    ) {
        let grade = audience.grade;
        let in_git = grade.leads_into_git(name);
        let general = self.rules.last(None, here, is_dir, in_git);
        let own = audience
            .command
            .and_then(|command| self.rules.last(Some(command), here, is_dir, in_git));
        let ignored_by = ignores.iter().rev().find_map(|above| {
            let below = here.strip_prefix(&above.dir).ok()?;
            let (ignored, line) = above.file.verdict(below, is_dir)?;
            Some(ignored.then(|| (above.dir.join(IGNORE_NAME), line)))
        });
        let ignored_by = ignored_by.flatten();
        let signs = Signs {
            built_in,
            ignored: ignored_by.is_some(),
            rule: general.into_iter().chain(own).max_by_key(|(index, _)| *index),
        };
        audience.grade = grade.below(name, &signs);
        if audience.grade.by != grade.by || audience.grade.level != grade.level {
            audience.decided_at = here.to_path_buf();
            audience.ignored_by = ignored_by.filter(|_| audience.grade.by == By::Ignored);
        }
    }

    fn tell(&self, path: &Path, audiences: &[Audience]) -> Explained {
        let Some((general, others)) = audiences.split_first() else {
            return Explained {
                level: Level::Guard,
                why: String::new(),
                through: None,
                commands: Vec::new(),
                is_there: true,
                as_directory: None,
            };
        };
        let differing = others.iter().filter(|other| other.grade.level != general.grade.level);
        let commands = differing.filter_map(|other| {
            let path = self.rules.commands().nth(other.command?)?.to_path_buf();
            Some((path, other.grade.level, self.why(other)))
        });
        Explained {
            level: general.grade.level,
            why: self.why(general),
            through: (general.decided_at != path && general.grade.by != By::Default)
                .then(|| general.decided_at.clone()),
            commands: commands.collect(),
            is_there: true,
            as_directory: None,
        }
    }

    fn why(&self, audience: &Audience) -> String {
        match audience.grade.by {
            By::Default => "no rule speaks of it".to_owned(),
            By::BuiltIn(index) => format!("built-in rule {}: {}", BUILT_IN[index].pattern, BUILT_IN[index].why),
            By::Ignored => match &audience.ignored_by {
                Some((file, line)) => format!("{}:{line}: ignored by git", file.display()),
                None => "ignored by git".to_owned(),
            },
            By::Rule(index) => self.rules.rules().get(index).map(describe).unwrap_or_default(),
            By::Held => "its content came here unseen".to_owned(),
        }
    }
}

/// A rule and where it stands, in words.
#[must_use]
pub fn describe(rule: &Rule) -> String {
    let (level, pattern) = (rule.level.as_str(), &rule.pattern);
    let only = match &rule.command {
        Some(command) => format!(" for {}", command.display()),
        None => String::new(),
    };
    match rule.source {
        Source::File(line) => format!("{FILE_NAME}:{line}: {level} {pattern}{only}"),
        Source::CommandLine => format!("--rule {level}:{pattern}{only}"),
    }
}

fn built_in(dir: Option<&OwnedFd>, name: &OsStr, is_dir: bool) -> Option<usize> {
    let kind = if is_dir { Kind::Directory } else { Kind::File };
    let index = matching(name, kind)?;
    let markers = BUILT_IN[index].markers;
    let found = markers.is_empty() || dir.is_some_and(|dir| evidence(dir, name, markers));
    found.then_some(index)
}

/// Whether one of the markers is there.
pub fn evidence(parent: impl AsFd, name: &OsStr, markers: &[Marker]) -> bool {
    let parent = parent.as_fd();
    markers.iter().any(|marker| match marker {
        Marker::Sibling(sibling) => sys::stat_at(parent, OsStr::new(sibling)).is_ok(),
        Marker::Child(child) => {
            sys::open_child(parent, name).is_ok_and(|inner| sys::stat_at(&inner, OsStr::new(child)).is_ok())
        }
    })
}
