//! `unclobber report`: what a run has been refused, or would have been, summed up, with rules that would change it.
//!
//! It only reads the record of events.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::process::ExitCode;

use serde_json::{Value, json};

use super::args::ReportArgs;
use super::attic::plain;
use super::event_reader::{self, Event, Events, Record};
use super::output::{Problem, Style, counted, note, print};
use super::proposal::{Refused, propose};

/// The version of the JSON form.
const VERSION: u32 = 1;
/// Paths and commands listed for people, at most.
const LISTED: usize = 20;

/// Sums the record up.
pub(crate) fn report(args: &ReportArgs) -> Result<ExitCode, Problem> {
    let record = match &args.events {
        Some(path) => Record::left(path.clone()),
        None => event_reader::find(args.dir.as_deref())?,
    };
    let (owner, path) = (record.owner_shown(None)?, record.path);
    let what = || format!("cannot read {}", path.display());
    if !path.exists() {
        return Err(Problem::new(what(), "there is no such file").hint("a guard writes its file with the first event"));
    }
    let mut events = Events::open(&path);
    let mut sum = Sum::default();
    for event in events.read().map_err(|error| Problem::new(what(), error))? {
        let by = event.fields["owner"].as_str();
        let is_shown = owner
            .as_deref()
            .is_none_or(|owner| by.is_none_or(|by| event_reader::is_of(by, owner)));
        if is_shown {
            sum.add(&event);
        }
    }
    if events.unreadable > 0 {
        note(&format!("{} cannot be read", counted(events.unreadable, "line")));
    }
    if args.json {
        let text = serde_json::to_string_pretty(&sum.to_json()).map_err(|error| Problem::new("report", error))?;
        print(&format!("{text}\n"))?;
    } else if args.toml {
        print(&sum.proposal())?;
    } else {
        print(&sum.describe(Style::of_output()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Refusals of one kind of thing.
#[derive(Debug, Default)]
struct Tally {
    refused: u64,
    would_refuse: u64,
    paths: BTreeSet<String>,
    commands: BTreeSet<String>,
    rules: BTreeSet<String>,
}

impl Tally {
    fn count(&self) -> u64 {
        self.refused + self.would_refuse
    }
}

/// All that is summed up.
#[derive(Debug, Default)]
struct Sum {
    all: Tally,
    by_path: BTreeMap<String, Tally>,
    by_command: BTreeMap<String, Tally>,
    by_rule: BTreeMap<String, Tally>,
    by_owner: BTreeMap<String, Tally>,
    changes: u64,
    dropped: u64,
    first: Option<String>,
    last: Option<String>,
    refused: Vec<Refused>,
}

impl Sum {
    fn add(&mut self, event: &Event) {
        let fields = &event.fields;
        let of = |name: &str| fields[name].as_str().unwrap_or_default().to_owned();
        match fields["event"].as_str() {
            // What is written into a file that was made or emptied for it belongs to that change.
            Some("change") if event.fields["change"] == "write" => {}
            Some("change") => self.changes += 1,
            Some("dropped") => self.dropped += fields["count"].as_u64().unwrap_or_default(),
            Some("refusal") => {
                let time = of("time");
                self.first.get_or_insert_with(|| time.clone());
                self.last = Some(time);
                self.add_refusal(fields);
            }
            Some(_) | None => {}
        }
    }

    fn add_refusal(&mut self, fields: &Value) {
        let of = |name: &str| fields[name].as_str().map(str::to_owned);
        let (path, rule) = (of("path").unwrap_or_default(), of("rule").unwrap_or_default());
        let program = of("program");
        let command = program
            .clone()
            .or_else(|| of("command"))
            .unwrap_or_else(|| "?".to_owned());
        let only_recorded = fields["decision"] == "would_refuse";
        let owner = of("owner").unwrap_or_default();
        let tallies = [
            &mut self.all,
            self.by_path.entry(path.clone()).or_default(),
            self.by_command.entry(command.clone()).or_default(),
            self.by_rule.entry(rule.clone()).or_default(),
            self.by_owner.entry(owner).or_default(),
        ];
        for tally in tallies {
            if only_recorded {
                tally.would_refuse += 1;
            } else {
                tally.refused += 1;
            }
            tally.paths.insert(path.clone());
            tally.commands.insert(command.clone());
            tally.rules.insert(rule.clone());
        }
        let one = Refused {
            path,
            program,
            rule,
            foreign: fields.get("changed_by").is_some(),
            count: 1,
        };
        self.note(one);
    }

    /// Many of the same are one with a count.
    fn note(&mut self, one: Refused) {
        let is_same = |known: &&mut Refused| {
            Refused {
                count: 1,
                ..(*known).clone()
            } == one
        };
        match self.refused.last_mut().filter(is_same) {
            Some(last) => last.count += 1,
            None => self.refused.push(one),
        }
    }

    fn to_json(&self) -> Value {
        let listed = |tallies: &BTreeMap<String, Tally>, name: &str| -> Vec<Value> {
            let one = |(key, tally): (&String, &Tally)| {
                json!({
                    name: key, "count": tally.count(), "refused": tally.refused, "would_refuse": tally.would_refuse,
                    "paths": tally.paths.len(), "commands": tally.commands, "rules": tally.rules,
                })
            };
            tallies.iter().map(one).collect()
        };
        json!({
            "v": VERSION,
            "first": self.first,
            "last": self.last,
            "refused": self.all.refused,
            "would_refuse": self.all.would_refuse,
            "changes": self.changes,
            "dropped": self.dropped,
            "rules": listed(&self.by_rule, "rule"),
            "commands": listed(&self.by_command, "command"),
            "owners": listed(&self.by_owner, "owner"),
            "paths": listed(&self.by_path, "path"),
            "proposal": self.proposal(),
        })
    }

    /// What happened in all. What was only observed is not spoken of where everything was enforced, and the reverse.
    fn head(&self) -> String {
        let was = |count: u64| if count == 1 { "was" } else { "were" };
        let Tally {
            refused, would_refuse, ..
        } = self.all;
        let mut parts = Vec::new();
        if would_refuse > 0 {
            let changes = counted(would_refuse, "change");
            parts.push(format!("{changes} would have been refused (--mode observe)"));
        }
        if refused > 0 || would_refuse == 0 {
            parts.push(format!("{} {} refused", counted(refused, "change"), was(refused)));
        }
        parts.push(format!("{} {} made", self.changes, was(self.changes)));
        format!("{}\n", parts.join(", "))
    }

    fn proposal(&self) -> String {
        let observed = match (self.all.would_refuse, self.all.refused) {
            (0, _) => "what was refused",
            (_, 0) => "an observed run",
            _ => "what was refused, or would have been",
        };
        propose(&self.refused, observed)
    }

    fn describe(&self, style: Style) -> String {
        let mut text = self.head();
        if let (Some(first), Some(last)) = (&self.first, &self.last) {
            add_line(
                &mut text,
                &format!("the first refusal was at {first}, the last at {last}"),
            );
        }
        if self.dropped > 0 {
            let missing = counted(self.dropped, "event");
            add_line(&mut text, &format!("{missing} could not be put on record"));
        }
        if self.all.count() == 0 {
            return text;
        }
        let meaning = |rule: &str| format!("{rule:<4} {}", meaning(rule));
        section(&mut text, style, "rules that decided", &self.by_rule, meaning);
        let in_paths = |(key, tally): (&String, &Tally)| {
            format!("{} in {}", plain(key), counted(tally.paths.len() as u64, "path"))
        };
        let of_command = |key: &str| {
            let found = self.by_command.get_key_value(key);
            found.map_or_else(String::new, in_paths)
        };
        section(&mut text, style, "programs", &self.by_command, of_command);
        let of_path = |key: &str| {
            let rules = self.by_path.get(key).map(|tally| &tally.rules);
            let rules: Vec<&str> = rules.into_iter().flatten().map(String::as_str).collect();
            format!("{} ({})", plain(key), rules.join(", "))
        };
        section(&mut text, style, "paths", &self.by_path, of_path);
        add_line(
            &mut text,
            &style.paint("1", "proposed .unclobber.toml (--toml prints it alone)"),
        );
        text.push_str(&self.proposal());
        text
    }
}

fn section(
    text: &mut String,
    style: Style,
    title: &str,
    tallies: &BTreeMap<String, Tally>,
    describe: impl Fn(&str) -> String,
) {
    add_line(text, &style.paint("1", title));
    let mut order: Vec<_> = tallies.iter().collect();
    order.sort_by_key(|(_, tally)| std::cmp::Reverse(tally.count()));
    for (key, tally) in order.iter().take(LISTED) {
        add_line(text, &format!("{:>8}  {}", tally.count(), describe(key)));
    }
    if order.len() > LISTED {
        let others = (order.len() - LISTED) as u64;
        add_line(text, &format!("          and {}", counted(others, "other")));
    }
}

fn add_line(text: &mut String, line: &str) {
    if writeln!(text, "{line}").is_err() {
        log::debug!("a line of the report was lost");
    }
}

/// What a rule is about, in a few words.
fn meaning(rule: &str) -> &'static str {
    match rule {
        "D2" => "nothing there to edit",
        "D5" => "replaced or edited unread",
        "D6" | "D13" => "removed unread",
        "D8" => "changed by others since it was read",
        "D9" => "gone since it was read",
        "D10" => "no regular file",
        "D15" | "S5" => "the name was taken meanwhile",
        "D20" => "removed after a refusal, still unread",
        "D21" => "somebody is in the middle of changing it",
        "D22" => "taken away while it was written",
        "L13" => "the rules cannot be changed from inside",
        "P2" => "the process itself holds an old copy",
        _ => "see docs/SEMANTICS.md",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(fields: Value) -> Event {
        Event {
            line: fields.to_string(),
            fields,
        }
    }

    #[test]
    fn an_observed_run_is_summed_up() {
        let mut sum = Sum::default();
        for path in ["a", "a", "b"] {
            sum.add(&event(json!({
                "event": "refusal", "decision": "would_refuse", "path": path, "rule": "D5", "owner": "A",
                "command": "sh", "program": "/bin/sh", "time": "t",
            })));
        }
        sum.add(&event(
            json!({ "event": "refusal", "decision": "refused", "path": "c", "rule": "D8", "changed_by": "B" }),
        ));
        sum.add(&event(json!({ "event": "change", "change": "create", "path": "a" })));
        sum.add(&event(json!({ "event": "change", "change": "write", "path": "a" })));
        sum.add(&event(json!({ "event": "dropped", "count": 4 })));
        let all = sum.to_json();
        assert_eq!((&all["would_refuse"], &all["refused"]), (&json!(3), &json!(1)));
        assert_eq!((&all["changes"], &all["dropped"]), (&json!(1), &json!(4)));
        assert_eq!(all["paths"][0]["count"], 2);
        assert_eq!(all["commands"][0]["paths"], 2);
        let text = sum.describe(Style::of_output());
        for part in [
            "3 changes would have been refused (--mode observe), 1 change was refused, 1 was made",
            "D5   replaced or edited unread",
            "/bin/sh in 2 paths",
            "a (D5)",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert_eq!(sum.refused.len(), 3);
    }
}
