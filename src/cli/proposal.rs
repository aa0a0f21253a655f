//! A proposed `.unclobber.toml` from what an observed run would have refused.
//!
//! It loosens only what nobody else's work stood against: a refusal that kept one owner from another's change is never
//! argued away, nor one that kept secrets and databases, which cannot be made again, from being overwritten.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use super::output::counted;
use crate::guard::{Level, levels};

/// A refusal, as far as a proposal depends on it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) path: String,
    /// The program that was refused, with its whole path, where that is known.
    pub(super) program: Option<String>,
    /// The rule of `docs/SEMANTICS.md` that decided.
    pub(super) rule: String,
    /// Somebody else's change stood against it.
    pub(super) foreign: bool,
    pub(super) count: u64,
}

/// Rules whose refusals can only come from content that nobody else has touched.
const LOOSE: [&str; 4] = ["D5", "D6", "D13", "D20"];
/// Paths from which on a pattern is proposed instead of each of them.
const MANY: usize = 3;
/// Single paths proposed, at most.
const SINGLES: usize = 20;

/// Programs that do what somebody tells them: to trust them is to trust everybody.
const SHELLS: [&str; 24] = [
    "sh", "bash", "dash", "zsh", "fish", "ksh", "busybox", "python", "perl", "ruby", "node", "deno", "bun", "php",
    "lua", "env", "sudo", "rm", "mv", "cp", "tee", "dd", "ln", "install",
];

#[derive(Debug, PartialEq, Eq)]
struct Rule {
    why: String,
    pattern: String,
    level: Level,
    command: Option<String>,
}

/// The text of the proposal; `from` says what was refused.
pub(super) fn propose(refused: &[Refused], from: &str) -> String {
    let is_loose = |one: &&Refused| !one.foreign && LOOSE.contains(&one.rule.as_str());
    let (of_rules, refused): (Vec<&Refused>, Vec<&Refused>) = refused.iter().partition(|one| one.rule == "L13");
    let (loose, strict): (Vec<&Refused>, Vec<&Refused>) = refused.into_iter().partition(is_loose);
    let (secret, loose): (Vec<&Refused>, Vec<&Refused>) = loose.into_iter().partition(|one| is_secret(&one.path));
    let mut rules = Vec::new();
    let rest = by_program(&loose, &mut rules);
    let mut paths = Vec::new();
    let left_out = by_path(&rest, &mut paths);
    paths.extend(rules);
    let mut notes = Vec::new();
    let kept = total(&strict);
    if kept > 0 {
        let those = if kept == 1 { "it" } else { "them" };
        notes.push(format!(
            "{} kept somebody's work from being overwritten: no rule is proposed for {those}.",
            counted(kept, "refusal")
        ));
    }
    if !of_rules.is_empty() {
        notes.push(format!(
            "{} of changes of .unclobber.toml itself: no rule lets them be, only --rules-writable does.",
            counted(total(&of_rules), "refusal")
        ));
    }
    if !secret.is_empty() {
        notes.push(format!(
            "{} of files as secrets and databases are: no rule is proposed, they cannot be made again.",
            counted(total(&secret), "refusal")
        ));
    }
    if left_out > 0 {
        notes.push(format!(
            "{} that nothing connects with others had a refusal now and then.",
            counted(left_out as u64, "more path")
        ));
    }
    write_toml(&paths, from, &notes)
}

/// Whether a built-in rule guards the name of a path more closely than its directory.
fn is_secret(path: &str) -> bool {
    let name = Path::new(path).file_name().unwrap_or_default();
    let rule = levels::matching(name, levels::Kind::File).and_then(|number| levels::BUILT_IN.get(number));
    rule.is_some_and(|rule| rule.level == Level::Guard)
}

/// One pattern for all names that are so.
fn secrets() -> String {
    let guarded = levels::BUILT_IN.iter().filter(|rule| rule.level == Level::Guard);
    let patterns: Vec<&str> = guarded.map(|rule| rule.pattern).collect();
    format!("{{{}}}", patterns.join(","))
}

/// Rules for programs that write in many places; what they do not speak of.
fn by_program<'r>(loose: &[&'r Refused], rules: &mut Vec<Rule>) -> Vec<&'r Refused> {
    let mut of_program: BTreeMap<&str, Vec<&Refused>> = BTreeMap::new();
    for one in loose {
        if let Some(program) = one.program.as_deref().filter(|program| is_special(program)) {
            of_program.entry(program).or_default().push(one);
        }
    }
    of_program.retain(|_, found| distinct(found) >= MANY);
    for (program, found) in &of_program {
        rules.push(Rule {
            why: in_files(found),
            pattern: "**".to_owned(),
            level: Level::Keep,
            command: Some((*program).to_owned()),
        });
        rules.push(Rule {
            why: "but secrets and databases stay guarded from it".to_owned(),
            pattern: secrets(),
            level: Level::Guard,
            command: Some((*program).to_owned()),
        });
    }
    let is_left = |one: &&&Refused| {
        one.program
            .as_deref()
            .is_none_or(|program| !of_program.contains_key(program))
    };
    loose.iter().filter(is_left).copied().collect()
}

/// Rules for paths: of one kind in one directory together, else each alone. How many paths are left out.
fn by_path(rest: &[&Refused], rules: &mut Vec<Rule>) -> usize {
    let mut groups: BTreeMap<(String, String), Vec<&Refused>> = BTreeMap::new();
    for one in rest {
        let path = Path::new(&one.path);
        let part = |part: Option<&std::ffi::OsStr>| part.map(|part| part.to_string_lossy().into_owned());
        let dir = part(path.parent().map(Path::as_os_str)).unwrap_or_default();
        groups
            .entry((dir, part(path.extension()).unwrap_or_default()))
            .or_default()
            .push(one);
    }
    let mut singles: BTreeMap<&str, u64> = BTreeMap::new();
    for ((dir, extension), found) in &groups {
        if distinct(found) < MANY || extension.is_empty() {
            for one in found {
                *singles.entry(&one.path).or_default() += one.count;
            }
            continue;
        }
        let dir = if dir.is_empty() {
            String::new()
        } else {
            format!("{}/", escape(dir))
        };
        rules.push(Rule {
            why: in_files(found),
            pattern: format!("/{dir}*.{}", escape(extension)),
            level: Level::Keep,
            command: None,
        });
    }
    let left_out = singles.len().saturating_sub(SINGLES);
    rules.extend(singles.iter().take(SINGLES).map(|(path, count)| Rule {
        why: counted(*count, "refusal"),
        pattern: format!("/{}", escape(path)),
        level: Level::Keep,
        command: None,
    }));
    left_out
}

fn is_special(program: &str) -> bool {
    let name = Path::new(program).file_name().unwrap_or_default().to_string_lossy();
    let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    program.starts_with('/') && !SHELLS.contains(&plain) && !program.ends_with(" (deleted)")
}

fn distinct(found: &[&Refused]) -> usize {
    found.iter().map(|one| &one.path).collect::<BTreeSet<_>>().len()
}

fn in_files(found: &[&Refused]) -> String {
    let files = counted(distinct(found) as u64, "file");
    format!("{} in {files}", counted(total(found), "refusal"))
}

fn total(found: &[&Refused]) -> u64 {
    found.iter().map(|one| one.count).sum()
}

/// A path as a pattern that fits nothing else.
fn escape(path: &str) -> String {
    let mut out = String::new();
    for c in path.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '{' | '}' | '\\' | ' ') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// A text as TOML has it: its basic strings are written like those of JSON, but for one character.
fn quoted(text: &str) -> String {
    serde_json::to_string(text)
        .unwrap_or_default()
        .replace('\u{7f}', "\\u007F")
}

fn write_toml(rules: &[Rule], from: &str, notes: &[String]) -> String {
    let mut text = format!("# Proposed from {from}: read it before you use it.\n");
    text.push_str("# It goes into .unclobber.toml at the top of the guarded directory, written outside the mount.\n");
    let mut lines: Vec<String> = notes.iter().map(|note| format!("# {note}")).collect();
    if rules.is_empty() {
        lines.push("# Nothing needs a rule.".to_owned());
    }
    for rule in rules {
        lines.push(String::new());
        lines.push(format!("# {}", rule.why));
        lines.push("[[rule]]".to_owned());
        lines.push(format!("pattern = {}", quoted(&rule.pattern)));
        lines.push(format!("level = \"{}\"", rule.level.as_str()));
        lines.extend(
            rule.command
                .as_ref()
                .map(|command| format!("command = {}", quoted(command))),
        );
    }
    for line in lines {
        if writeln!(text, "{line}").is_err() {
            return text;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(path: &str, program: &str, rule: &str, foreign: bool) -> Refused {
        Refused {
            path: path.to_owned(),
            program: Some(program.to_owned()),
            rule: rule.to_owned(),
            foreign,
            count: 2,
        }
    }

    #[test]
    fn a_program_that_writes_everywhere_is_trusted_and_a_shell_is_not() {
        let mut all: Vec<Refused> = ["a.rs", "src/b.rs", "src/c.rs"]
            .iter()
            .map(|path| refused(path, "/usr/bin/rustfmt", "D5", false))
            .collect();
        let text = propose(&all, "an observed run");
        assert!(
            text.contains("# 6 refusals in 3 files\n[[rule]]\npattern = \"**\"\nlevel = \"keep\"\ncommand = \"/usr/bin/rustfmt\"\n"),
            "{text}"
        );
        assert_eq!(text.matches("[[rule]]").count(), 2);
        assert!(text.contains("pattern = \"{.env*,*.pem,*.key,"), "{text}");
        for one in &mut all {
            one.program = Some("/usr/bin/python3.11".to_owned());
        }
        assert!(!propose(&all, "an observed run").contains("command"));
    }

    #[test]
    fn paths_of_one_kind_are_one_pattern_and_the_others_stand_alone() {
        let mut all: Vec<Refused> = ["log/a.log", "log/b.log", "log/c.log", "we*rd \"x\""]
            .iter()
            .map(|path| refused(path, "/bin/sh", "D5", false))
            .collect();
        all.push(refused("log/a.log", "/bin/sh", "D20", false));
        let text = propose(&all, "an observed run");
        assert!(
            text.contains("pattern = \"/log/*.log\"") && text.contains("# 8 refusals in 3 files"),
            "{text}"
        );
        assert!(text.contains("pattern = \"/we\\\\*rd\\\\ \\\"x\\\"\""), "{text}");
        assert!(!text.contains("level = \"off\""));
    }

    #[test]
    fn a_change_of_the_rules_is_nobody_s_work_that_was_kept() {
        let all = [refused(".unclobber.toml", "/bin/sh", "L13", false)];
        let text = propose(&all, "what was refused");
        assert!(
            text.contains("2 refusals of changes of .unclobber.toml itself"),
            "{text}"
        );
        assert!(
            !text.contains("somebody's work") && !text.contains("[[rule]]"),
            "{text}"
        );
    }

    #[test]
    fn secrets_and_databases_are_never_loosened() {
        let all: Vec<Refused> = [
            ".env",
            ".env.local",
            "a/b.pem",
            "x.key",
            "data.sqlite3",
            "y.db",
            "notes",
        ]
        .iter()
        .map(|path| refused(path, "/bin/sh", "D5", false))
        .collect();
        let text = propose(&all, "what was refused");
        assert!(text.starts_with("# Proposed from what was refused: "), "{text}");
        assert!(
            text.contains("# 12 refusals of files as secrets and databases are"),
            "{text}"
        );
        assert_eq!(text.matches("[[rule]]").count(), 1);
        assert!(text.contains("pattern = \"/notes\""), "{text}");
        // The rule that takes them out of what a program is trusted with is one that fits their names and no other.
        let list = crate::rules::RuleList::compile(
            crate::rules::parse(
                &format!("[[rule]]\npattern = {}\nlevel = \"guard\"\n", quoted(&secrets())),
                None,
            )
            .unwrap(),
        )
        .unwrap();
        for one in &all {
            let found = list.last(None, Path::new(&one.path), false, false);
            assert_eq!(found.is_some(), one.path != "notes", "{}", one.path);
        }
    }

    #[test]
    fn what_protects_somebody_is_never_loosened() {
        let all = [
            refused("f", "/bin/x", "D8", true),
            refused("g", "/bin/x", "P2", false),
            refused("h", "/bin/x", "D5", true),
        ];
        let text = propose(&all, "an observed run");
        assert!(
            text.contains("# 6 refusals kept somebody's work") && text.contains("Nothing needs a rule"),
            "{text}"
        );
        assert!(!text.contains("[[rule]]"));
    }
}
