//! `unclobber log`: the record of events, filtered, for people or programs.
//!
//! It never starts a guard, and never keeps one alive.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;

use super::args::EventLogArgs;
use super::attic::plain;
use super::event_reader::{self, Events};
use super::output::{Problem, Style, note};
use crate::rules::Glob;

/// How often a followed file is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// Shows events.
pub(crate) fn log(args: &EventLogArgs) -> Result<ExitCode, Problem> {
    let path = match &args.events {
        Some(path) => path.clone(),
        None => event_reader::find(args.dir.as_deref())?,
    };
    if !args.follow && !path.exists() && !crate::audit::numbered(&path, 1).exists() {
        return Err(
            Problem::new(format!("no events in {}", path.display()), "there is no such file")
                .hint("a guard writes its file with the first event"),
        );
    }
    let filter = Filter::new(args)?;
    let style = Style::of_output();
    let mut events = Events::open(&path);
    loop {
        let found = events
            .read()
            .map_err(|error| Problem::new(format!("cannot read {}", path.display()), error))?;
        let mut text = String::new();
        for event in found.iter().filter(|event| filter.passes(&event.fields)) {
            if args.json {
                text.push_str(&event.line);
            } else {
                text.push_str(&describe(&event.fields, style));
            }
            text.push('\n');
        }
        if !show(&text)? {
            return Ok(ExitCode::SUCCESS);
        }
        if !args.follow {
            break;
        }
        std::thread::sleep(LOOK);
    }
    if events.unreadable > 0 {
        note(&format!("{} lines cannot be read", events.unreadable));
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints at once; false when nobody reads any more.
fn show(text: &str) -> Result<bool, Problem> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Problem::new("standard output", error)),
    }
}

/// What is to be shown.
struct Filter {
    owner: Option<String>,
    path: Option<Glob>,
    refused: bool,
}

impl Filter {
    fn new(args: &EventLogArgs) -> Result<Self, Problem> {
        let path = args.path.as_deref().map(Glob::new);
        let path = path
            .transpose()
            .map_err(|error| Problem::new("cannot read the pattern of --path", error).code(super::output::USAGE))?;
        Ok(Self {
            owner: args.owner.clone(),
            path,
            refused: args.refused,
        })
    }

    fn passes(&self, event: &Value) -> bool {
        let of = |name: &str| event[name].as_str();
        let by_owner = self.owner.as_deref().is_none_or(|wanted| {
            of("owner").is_some_and(|owner| {
                owner
                    .strip_prefix(wanted)
                    .is_some_and(|below| below.is_empty() || below.starts_with('/'))
            })
        });
        let by_path = self.path.as_ref().is_none_or(|globs| {
            let fits = |path: &str| globs.matches(path.trim_start_matches('/'));
            of("path").is_some_and(fits) || of("to").is_some_and(fits)
        });
        by_owner && by_path && (!self.refused || of("event") == Some("refusal"))
    }
}

/// One event in one line.
pub(super) fn describe(event: &Value, style: Style) -> String {
    let of = |name: &str| plain(event[name].as_str().unwrap_or_default());
    let time = of("time");
    let time = time.get(..23).unwrap_or(&time).replace('T', " ");
    let who = match (event["pid"].as_u64(), of("command")) {
        (Some(pid), command) if !command.is_empty() => format!("{} ({command} {pid})", of("owner")),
        _ => of("owner"),
    };
    let what = match event["event"].as_str().unwrap_or_default() {
        "refusal" => style.paint("31", &of("message")),
        "change" => {
            let to = of("to");
            let to = if to.is_empty() { to } else { format!(" -> {to}") };
            format!("{} {}{to}", of("change").replace('_', " "), of("path"))
        }
        "observation" => match event["operation"].as_str() {
            Some("miss") => format!("saw that there is no {}", of("path")),
            _ => format!("read {}", of("path")),
        },
        "kept" => format!("kept {} as {}", of("path"), of("id")),
        "note" => format!("{} {}: {}", of("operation"), of("path"), of("message")),
        "dropped" => style.paint("33", &format!("{} events were not written down", event["count"])),
        "begin" => format!("a guard of {} begins", of("root")),
        "end" => "the guard ends".to_owned(),
        other => format!("{} {}", plain(other), of("path")),
    };
    if who.is_empty() {
        format!("{time}  {what}")
    } else {
        format!("{time}  {who}: {what}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn filter(owner: Option<&str>, path: Option<&str>, refused: bool) -> Filter {
        Filter::new(&EventLogArgs {
            owner: owner.map(str::to_owned),
            path: path.map(str::to_owned),
            refused,
            ..EventLogArgs::default()
        })
        .unwrap()
    }

    #[test]
    fn filters_are_of_owners_paths_and_refusals() {
        let event = json!({"event": "change", "owner": "A/b", "path": "src/a.rs", "to": "doc/a.md"});
        for (owner, path, refused, passes) in [
            (None, None, false, true),
            (Some("A"), None, false, true),
            (Some("A/b"), Some("*.rs"), false, true),
            (Some("A/"), None, false, false),
            (Some("B"), None, false, false),
            (None, Some("/src"), false, true),
            (None, Some("src/**"), false, true),
            (None, Some("doc/*.md"), false, true),
            (None, Some("*.c"), false, false),
            (None, None, true, false),
        ] {
            assert_eq!(
                filter(owner, path, refused).passes(&event),
                passes,
                "{owner:?} {path:?} {refused}"
            );
        }
        assert!(
            Filter::new(&EventLogArgs {
                path: Some("a{b".to_owned()),
                ..EventLogArgs::default()
            })
            .is_err()
        );
    }

    #[test]
    fn an_event_is_one_line() {
        let event = json!({
            "event": "change", "time": "2026-11-30T23:04:23.924047825Z", "owner": "A", "pid": 7, "command": "mv",
            "change": "rename_over", "path": "a\nb", "to": "c",
        });
        assert_eq!(
            describe(&event, Style::of_output()),
            "2026-11-30 23:04:23.924  A (mv 7): rename over a\\nb -> c"
        );
    }
}
