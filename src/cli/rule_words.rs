//! Rules in the words of the protocol.
//!
//! It never decides: it tells what the layers below have.

use std::path::Path;

use crate::control::{Decided, DecidedAs, DecidedFor, MountRules, RuleLine, RulesReport};
use crate::fs::Guard;
use crate::rules::{self, Explained, Explainer, Rule, RuleList, Source};

/// What holds in a guard: on one mount, or without rules of any mount.
/// With `look`, also which of the rules match anything.
pub(crate) fn report(guard: &Guard, mount: Option<u64>, path: Option<&str>, look: bool) -> RulesReport {
    let mounts = guard.mounts();
    let on = mounts.iter().find(|known| Some(known.id()) == mount);
    let list = on.map_or_else(|| guard.workspace_rules(), |mount| mount.rules());
    let with_own = mounts.iter().filter(|mount| !mount.options().rules.own.is_empty());
    let decided = path.and_then(|path| {
        let root = guard.root().ok()?;
        Some(decide(&root, &list, path))
    });
    let root = if look { guard.root().ok() } else { None };
    RulesReport {
        problem: guard.rules_problem().map(|problem| problem.to_string()),
        rules: lines(&list, root.as_ref()),
        mounts: with_own
            .map(|mount| MountRules {
                mount: mount.id(),
                label: mount.options().label.clone(),
                rules: mount.options().rules.own.iter().map(word).collect(),
            })
            .collect(),
        decided,
    }
}

/// What rules say of a path below a directory.
pub(crate) fn decide(root: &std::os::fd::OwnedFd, list: &RuleList, path: &str) -> Decided {
    let Explained {
        level,
        why,
        through,
        commands,
        is_there,
        as_directory,
    } = Explainer::new(root, list).explain(Path::new(path));
    Decided {
        path: path.to_owned(),
        level: level.as_str().to_owned(),
        by: why,
        through: through.map(|dir| dir.to_string_lossy().into_owned()),
        commands: commands
            .into_iter()
            .map(|(command, level, by)| DecidedFor {
                command: command.to_string_lossy().into_owned(),
                level: level.as_str().to_owned(),
                by,
            })
            .collect(),
        absent: !is_there,
        as_directory: as_directory.map(|(level, by)| DecidedAs {
            level: level.as_str().to_owned(),
            by,
        }),
    }
}

/// The rules in their order; with a root, also whether they match anything below it.
pub(crate) fn lines(list: &RuleList, root: Option<&std::os::fd::OwnedFd>) -> Vec<RuleLine> {
    let rules = list.rules();
    let found = root.map_or_else(|| vec![None; rules.len()], |root| rules::matches(root, rules));
    let both = rules.iter().zip(found);
    both.map(|(rule, matches)| RuleLine { matches, ..line(rule) }).collect()
}

/// One rule.
fn line(rule: &Rule) -> RuleLine {
    let (source, line) = match rule.source {
        Source::File(line) => ("file", Some(line)),
        Source::CommandLine => ("command-line", None),
    };
    RuleLine {
        level: rule.level.as_str().to_owned(),
        pattern: rule.pattern.clone(),
        command: rule.command.as_ref().map(|path| path.to_string_lossy().into_owned()),
        source: source.to_owned(),
        line,
        matches: None,
    }
}

fn word(rule: &Rule) -> String {
    format!("{}:{}", rule.level.as_str(), rule.pattern)
}
