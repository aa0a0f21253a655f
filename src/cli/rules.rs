//! `unclobber rules`: how closely paths are guarded, and which rule decides.
//!
//! It never reads through a mount: that would count as reading by whoever asks. A guard that runs is asked instead.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::args::RulesArgs;
use super::guarding;
use super::output::{FAILED, Problem, Style, print};
use super::place::{self, Place};
use super::rule_words;
use crate::control::{Client, Decided, RuleLine, RulesReport, Surroundings};
use crate::fs::VIRTUAL_MOUNT_XATTR;
use crate::guard::levels::{BUILT_IN, Kind, Marker, Rule};
use crate::rules::{self, FILE_NAME, RuleList};
use crate::sys;

/// Prints the rules.
pub(crate) fn rules(args: &RulesArgs) -> Result<ExitCode, Problem> {
    let subject = Subject::find(args.path.as_deref(), args.workspace.as_deref())?;
    if let (Some(path), true) = (&args.path, subject.is_elsewhere) {
        return Err(Problem::new(
            format!("cannot tell the rules of {}", path.display()),
            "it is neither in a guarded directory nor in the current one",
        )
        .hint("name the directory whose rules are meant with --workspace"));
    }
    let mut report = subject.report()?;
    let elsewhere = subject.elsewhere(&report)?;
    if subject.mount.is_some() {
        report.mounts.clear();
    }
    let text = if args.json {
        json(&subject, &report, &elsewhere)?
    } else {
        text(&subject, &report, &elsewhere)
    };
    print(&text)?;
    Ok(match report.problem {
        Some(_) => ExitCode::from(FAILED),
        None => ExitCode::SUCCESS,
    })
}

/// What is asked about.
pub(crate) struct Subject {
    /// The guarded directory, or a directory on its mount.
    pub(crate) place: Place,
    /// The path of the root, as the user sees it.
    pub(crate) root: PathBuf,
    /// From the root.
    pub(crate) path: Option<String>,
    /// The number of the mount it is on.
    pub(crate) mount: Option<u64>,
    /// No directory that is guarded, has rules or was named is at or above it.
    is_elsewhere: bool,
}

impl Subject {
    /// Finds the guarded directory, and the path from its root.
    pub(crate) fn find(path: Option<&Path>, workspace: Option<&Path>) -> Result<Self, Problem> {
        let full = path.map(full_path).transpose()?;
        let (start, is_elsewhere) = match (workspace, &full) {
            (Some(dir), _) => (place::resolve(dir)?, false),
            (None, Some(full)) => nearest(full.parent().unwrap_or_else(|| Path::new("/")))?,
            (None, None) => nearest(&place::resolve(Path::new("."))?.path)?,
        };
        let root = start
            .guarded
            .as_ref()
            .map_or_else(|| start.path.clone(), |guarded| guarded.mount.point.clone());
        let below = full.map(|full| {
            let below = full
                .strip_prefix(&root)
                .map(|below| below.to_string_lossy().into_owned());
            below.map_err(|_| {
                Problem::new(
                    format!("cannot tell the rules of {}", full.display()),
                    format!("it is not in {}", root.display()),
                )
                .hint("name the guarded directory with --workspace")
            })
        });
        let mount = start.guarded.as_ref().and_then(|_| {
            let value = sys::get_xattr(&start.fd, OsStr::new(VIRTUAL_MOUNT_XATTR), 32).ok()?;
            String::from_utf8(value).ok()?.parse().ok()
        });
        Ok(Self {
            place: start,
            root,
            path: below.transpose()?,
            mount,
            is_elsewhere,
        })
    }

    /// The guard that runs, if one does.
    pub(crate) fn client(&self) -> Result<Option<Client>, Problem> {
        if let Some(guarded) = &self.place.guarded {
            return guarding::reach_mounted(guarded).map(Some);
        }
        Ok(Client::find(&Surroundings::real(), &guarding::id_of(&self.place)?))
    }

    fn report(&self) -> Result<RulesReport, Problem> {
        let Some(mut client) = self.client()? else {
            return Ok(self.report_without_guard());
        };
        ask(&mut client, self.path.clone(), self.mount)
    }

    fn report_without_guard(&self) -> RulesReport {
        let (list, problem) = match rules::read(&self.place.fd, Some(&self.place.path)) {
            Ok((found, _)) => match RuleList::compile(found) {
                Ok(list) => (list, None),
                Err(error) => (RuleList::default(), Some(error)),
            },
            Err(problem) => (RuleList::default(), Some(problem.to_string())),
        };
        RulesReport {
            problem,
            rules: rule_words::lines(&list, self.path.is_none().then_some(&self.place.fd)),
            mounts: Vec::new(),
            decided: self
                .path
                .as_deref()
                .map(|path| rule_words::decide(&self.place.fd, &list, path)),
        }
    }

    /// What is decided otherwise on mounts with rules of their own.
    fn elsewhere(&self, report: &RulesReport) -> Result<Vec<(String, Decided)>, Problem> {
        if self.mount.is_some() || self.path.is_none() || report.mounts.is_empty() {
            return Ok(Vec::new());
        }
        let Some(mut client) = self.client()? else {
            return Ok(Vec::new());
        };
        let mut found = Vec::new();
        for mount in &report.mounts {
            let there = ask(&mut client, self.path.clone(), Some(mount.mount))?.decided;
            found.extend(
                there
                    .filter(|there| Some(there) != report.decided.as_ref())
                    .map(|there| (mount.label.clone(), there)),
            );
        }
        Ok(found)
    }
}

fn ask(client: &mut Client, path: Option<String>, mount: Option<u64>) -> Result<RulesReport, Problem> {
    let look = path.is_none();
    client
        .rules(path, mount, look)
        .map_err(|error| guarding::client_problem("cannot ask for the rules", &error))
}

/// The path without symbolic links above its last name; the name itself may lead to nothing.
fn full_path(path: &Path) -> Result<PathBuf, Problem> {
    let path = place::absolute(path)?;
    let is_link = path.symlink_metadata().is_ok_and(|found| found.is_symlink());
    if let Some(target) = is_link.then(|| path.canonicalize().ok()).flatten() {
        // What is opened by a symbolic link is judged by its own name.
        return Ok(target);
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(place::resolve(&path)?.path);
    };
    Ok(match parent.canonicalize() {
        Ok(parent) => parent.join(name),
        // What is not there yet has a level, too.
        Err(_) => path,
    })
}

/// The nearest directory at or above this one that is guarded or has rules, else the current directory; else the
/// directory itself, with `true`: it has nothing to do with any of them.
fn nearest(from: &Path) -> Result<(Place, bool), Problem> {
    let existing = from
        .ancestors()
        .find(|dir| dir.is_dir() || place::is_dead_at(dir))
        .unwrap_or_else(|| Path::new("/"));
    let start = place::resolve(existing)?;
    if start.guarded.is_some() {
        return Ok((start, false));
    }
    for dir in start.path.ancestors() {
        let has_rules = dir.join(FILE_NAME).symlink_metadata().is_ok();
        let Ok(place) = place::resolve(dir) else { continue };
        if has_rules || guarding::id_of(&place).is_ok_and(|id| guarding::is_running(&id)) {
            return Ok((place, false));
        }
    }
    let here = place::resolve(Path::new("."))?;
    if from.starts_with(&here.path) {
        Ok((here, false))
    } else {
        Ok((start, true))
    }
}

fn text(subject: &Subject, report: &RulesReport, elsewhere: &[(String, Decided)]) -> String {
    let style = Style::of_output();
    if let Some(decided) = &report.decided {
        let mut text = told(decided, style);
        for (label, there) in elsewhere {
            text.push_str(&format!("on the mount at {label}, which has rules of its own:\n"));
            text.push_str(&told(there, style));
        }
        problem_line(&mut text, report);
        return text;
    }
    let mut text = format!(
        "Rules of {}. The last of these parts that speaks of a path decides.\n",
        subject.root.display()
    );
    text.push_str("\nbuilt in (of these, the first that matches the name)\n");
    for rule in BUILT_IN {
        text.push_str(&format!(
            "  {:<6} {:<18} {}\n",
            rule.level.as_str(),
            rule.pattern,
            wrapped(&about(rule), 28)
        ));
    }
    text.push_str("\nignored by git (.gitignore), where no built-in rule speaks of the name: keep\n");
    own_rules(
        &mut text,
        &format!("{FILE_NAME} (of these, the last that matches)"),
        report,
        "file",
    );
    own_rules(
        &mut text,
        "--rule (of these, the last that matches)",
        report,
        "command-line",
    );
    for mount in &report.mounts {
        text.push_str(&format!(
            "\nthe mount at {} has rules of its own, after these\n",
            mount.label
        ));
        for rule in &mount.rules {
            text.push_str(&format!("  --rule {rule}\n"));
        }
    }
    problem_line(&mut text, report);
    text
}

fn own_rules(text: &mut String, title: &str, report: &RulesReport, source: &str) {
    let of_source: Vec<_> = report.rules.iter().filter(|rule| rule.source == source).collect();
    if of_source.is_empty() {
        return;
    }
    text.push_str(&format!("\n{title}\n"));
    for rule in of_source {
        let line = rule.line.map_or_else(String::new, |line| format!("  line {line}"));
        let only = rule
            .command
            .as_ref()
            .map_or_else(String::new, |command| format!("  only for {command}"));
        let nothing = match rule.matches {
            Some(false) => "  MATCHES NOTHING that is there now",
            None => "  matches nothing among the names looked at: there are too many to look at all",
            Some(true) => "",
        };
        text.push_str(&format!(
            "  {:<6} {:<18}{line}{only}{nothing}\n",
            rule.level, rule.pattern
        ));
    }
}

fn problem_line(text: &mut String, report: &RulesReport) {
    if let Some(problem) = &report.problem {
        text.push_str(&format!("\n{problem}; the rules above hold\n"));
    }
}

fn told(decided: &Decided, style: Style) -> String {
    let level = style.paint("1", &decided.level);
    let through = decided
        .through
        .as_ref()
        .map_or_else(String::new, |dir| format!(" (of the directory {dir})"));
    let by = if decided.is_by_default() { "" } else { "by " };
    let mut text = format!("{}: {level}, {by}{}{through}\n", decided.path, decided.by);
    if let Some(other) = &decided.as_directory {
        let by = if other.by.starts_with("no rule") { "" } else { "by " };
        text.push_str(&format!(
            "  nothing is there now; for a directory by that name, and what is in it: {}, {by}{}\n",
            style.paint("1", &other.level),
            other.by
        ));
    }
    for other in &decided.commands {
        text.push_str(&format!("  {} for {}, by {}\n", other.level, other.command, other.by));
    }
    text
}

/// A text on lines of at most 80 columns, of which the first begins at this one and the others are moved to it.
fn wrapped(text: &str, column: usize) -> String {
    let (mut lines, mut width) = (String::new(), column);
    for word in text.split(' ') {
        let length = word.chars().count();
        if width > column && width + 1 + length > 80 {
            lines.push_str(&format!("\n{:column$}", ""));
            width = column;
        } else if width > column {
            lines.push(' ');
            width += 1;
        }
        lines.push_str(word);
        width += length;
    }
    lines
}

/// What a built-in rule applies to, and why it is there.
fn about(rule: &Rule) -> String {
    let mut text = match rule.kind {
        Some(Kind::Directory) => "directories".to_owned(),
        Some(Kind::File) => "files".to_owned(),
        None => "files and directories".to_owned(),
    };
    let markers: Vec<String> = rule.markers.iter().map(marker).collect();
    if !markers.is_empty() {
        text.push_str(&format!(" {}", markers.join(" or ")));
    }
    text.push_str(": ");
    text.push_str(rule.why);
    text
}

fn marker(marker: &Marker) -> String {
    match marker {
        Marker::Sibling(name) => format!("beside {name}"),
        Marker::Child(name) => format!("with {name} inside"),
    }
}

fn json(subject: &Subject, report: &RulesReport, elsewhere: &[(String, Decided)]) -> Result<String, Problem> {
    let built_in: Vec<serde_json::Value> = BUILT_IN
        .iter()
        .map(|rule| {
            serde_json::json!({
                "level": rule.level.as_str(),
                "pattern": rule.pattern,
                "applies_to": match rule.kind {
                    Some(Kind::Directory) => "directories",
                    Some(Kind::File) => "files",
                    None => "all",
                },
                "evidence": rule.markers.iter().map(marker).collect::<Vec<_>>(),
                "why": rule.why,
            })
        })
        .collect();
    let lines: &Vec<RuleLine> = &report.rules;
    let elsewhere: Vec<serde_json::Value> = elsewhere
        .iter()
        .map(|(label, decided)| serde_json::json!({ "mount": label, "decided": decided }))
        .collect();
    let value = serde_json::json!({
        "v": 1,
        "directory": subject.root.to_string_lossy(),
        "problem": report.problem,
        "built_in": built_in,
        "rules": lines,
        "mounts": report.mounts,
        "decided": report.decided,
        "elsewhere": elsewhere,
    });
    let text = serde_json::to_string_pretty(&value).map_err(|error| Problem::new("cannot write JSON", error))?;
    Ok(format!("{text}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_rules_are_shown_on_eighty_columns() {
        for rule in BUILT_IN {
            let text = about(rule);
            let shown = format!("{:28}{}", "", wrapped(&text, 28));
            assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
            assert_eq!(shown.split_whitespace().collect::<Vec<_>>().join(" "), text);
        }
    }
}
