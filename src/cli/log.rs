//! `unclobber log`: the record of events, filtered, for people or programs.
//!
//! It never starts a guard, and never keeps one alive.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::args::EventLogArgs;
use super::attic::plain;
use super::event_reader::{self, Events, News, Record, Vigil};
use super::output::{Problem, Style, counted, explain, note};
use super::place;
use crate::rules::Glob;
use crate::store::HOMELESS;

/// How often a followed file is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// How long repeats of a refusal are gathered before they are told, at first and at most.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(64);

/// Shows events.
pub(crate) fn log(args: &EventLogArgs) -> Result<ExitCode, Problem> {
    let mut record = match &args.events {
        Some(path) => Record::left(path.clone()),
        None => event_reader::find(args.dir.as_deref())?,
    };
    let owner = record.owner_shown(args.owner.as_deref())?;
    if args.follow && args.events.is_none() && record.vigil.is_none() {
        note("no guard runs now; what the next one writes is shown here, too");
    }
    let path = record.path.clone();
    if !args.follow && !path.exists() && !crate::audit::numbered(&path, 1).exists() {
        return Err(
            Problem::new(format!("no events in {}", path.display()), "there is no such file")
                .hint("a guard writes its file with the first event"),
        );
    }
    let filter = Filter::new(args, owner)?;
    let style = Style::of_output();
    let mut events = Events::open(&path);
    let mut folding = Folding::default();
    let (mut shown, mut has_ended) = (0_u64, true);
    loop {
        let news = record.vigil.as_mut().filter(|_| args.follow).map(Vigil::look);
        let found = events
            .read()
            .map_err(|error| Problem::new(format!("cannot read {}", path.display()), error))?;
        has_ended = found.last().map_or(has_ended, |event| event.fields["event"] == "end");
        let mut text = String::new();
        for event in found.iter().filter(|event| filter.passes(&event.fields)) {
            shown += 1;
            if args.json {
                text.push_str(&event.line);
                text.push('\n');
            } else {
                text.push_str(&folding.take(&event.fields, style));
            }
        }
        if !args.follow || folding.is_due(Instant::now()) {
            text.push_str(&folding.told());
        }
        if !show(&text)? {
            return Ok(ExitCode::SUCCESS);
        }
        if !args.follow {
            break;
        }
        if let (Some(news), Some(vigil)) = (news, &record.vigil) {
            tell(news, vigil);
        }
        std::thread::sleep(LOOK);
    }
    if events.unreadable > 0 {
        note(&format!("{} cannot be read", counted(events.unreadable, "line")));
    }
    if !has_ended && record.vigil.is_none() && args.events.is_none() {
        note(
            "the record has no end: its guard was killed, or the machine went down, and its last events may be missing; \
             `unclobber status` says whether a dead mount is left",
        );
    }
    if shown == 0 && !args.json {
        let is_any = args.owner.is_none() && args.path.is_none();
        note(match (args.refused, is_any) {
            (true, true) => "no refusal is on record",
            (true, false) => "no refusal on record is what was asked for",
            (false, _) => "nothing on record is what was asked for",
        });
    }
    Ok(ExitCode::SUCCESS)
}

/// Says that the guard has ended, which would otherwise look like a time in which nothing happens.
fn tell(news: News, vigil: &Vigil) {
    let root = vigil.root();
    match news {
        News::None => {}
        News::Ended => note("the guard has ended; the next guard of the directory goes on here"),
        News::Killed => {
            note(&format!(
                "the guard of {root} has ended without a word (was it killed?): its last events may be missing, and its mounts \
                 are dead; the directory is whole"
            ));
            explain("", &place::dead_step(Path::new(root)));
        }
    }
}

/// Repeats of one refusal: the first is shown, the rest are a count.
#[derive(Debug, Default)]
struct Folding {
    shown: Option<Vec<Value>>,
    again: u64,
    /// When the last was, and who was refused what.
    last: String,
    what: String,
    due: Option<Instant>,
    pause: Duration,
}

impl Folding {
    /// The lines of one more event.
    fn take(&mut self, event: &Value, style: Style) -> String {
        let marks = ["event", "owner", "operation", "path", "code", "decision"];
        let key: Vec<Value> = marks.iter().map(|mark| event[mark].clone()).collect();
        if event["event"] == "refusal" && self.shown.as_ref() == Some(&key) {
            self.again += 1;
            self.last = time_of(event);
            self.what = format!(
                "{}: {} {}",
                plain(event["owner"].as_str().unwrap_or_default()),
                plain(event["operation"].as_str().unwrap_or_default()),
                plain(event["path"].as_str().unwrap_or_default())
            );
            self.due.get_or_insert_with(|| Instant::now() + self.pause);
            return String::new();
        }
        let mut text = self.told();
        self.shown = Some(key);
        self.pause = PAUSE;
        text.push_str(&describe(event, style));
        text.push('\n');
        text
    }

    /// Whether repeats have been gathered for long enough.
    fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// The line that tells of repeats not told yet.
    fn told(&mut self) -> String {
        self.due = None;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        match std::mem::take(&mut self.again) {
            0 => String::new(),
            count => format!(
                "{}  {}: the same again, {}\n",
                self.last,
                self.what,
                counted(count, "time")
            ),
        }
    }
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
    fn new(args: &EventLogArgs, owner: Option<String>) -> Result<Self, Problem> {
        let path = args.path.as_deref().map(Glob::new);
        let path = path.transpose().map_err(|error| {
            Problem::new("wrong command line: --path", error)
                .hint(
                    "a pattern as in .gitignore, in quotes: 'src/**', '*.rs'; a [ that is meant itself is written \\[",
                )
                .code(super::output::USAGE)
        })?;
        Ok(Self {
            owner,
            path,
            refused: args.refused,
        })
    }

    fn passes(&self, event: &Value) -> bool {
        let of = |name: &str| event[name].as_str();
        let by_owner = self
            .owner
            .as_deref()
            .is_none_or(|wanted| of("owner").is_some_and(|owner| event_reader::is_of(owner, wanted)));
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
    let time = time_of(event);
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
        "kept" if ["create", HOMELESS].contains(&event["operation"].as_str().unwrap_or_default()) => format!(
            "kept what was written for {}, and was never there, in the attic as {}",
            of("path"),
            of("id")
        ),
        "kept" => format!("kept what was at {} in the attic as {}", of("path"), of("id")),
        "note" => of("message"),
        "dropped" => {
            let count = counted(event["count"].as_u64().unwrap_or_default(), "event");
            style.paint("33", &format!("{count} could not be written down here"))
        }
        "begin" => {
            let before = if event["unended"] == true {
                "; the record before has no end: that guard was killed, or the machine went down, and its last events may \
                 be missing"
            } else {
                ""
            };
            format!("the guard of {} begins{}", of("root"), style.paint("33", before))
        }
        "end" => "the guard ends".to_owned(),
        other => format!("{} {}", plain(other), of("path")),
    };
    if who.is_empty() {
        format!("{time}  {what}")
    } else {
        format!("{time}  {who}: {what}")
    }
}

fn time_of(event: &Value) -> String {
    let time = plain(event["time"].as_str().unwrap_or_default());
    time.get(..23).unwrap_or(&time).replace('T', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn repeats_are_one_line_and_a_count() {
        let refusal = |path: &str, second: u32| {
            json!({
                "event": "refusal", "owner": "A", "operation": "open", "path": path, "code": "FS_NOT_OBSERVED",
                "decision": "refused", "message": format!("refused: open {path}"),
                "time": format!("2026-11-30T23:04:{second:02}.000000000Z"),
            })
        };
        let mut folding = Folding::default();
        let style = Style::of_output();
        let mut text = String::new();
        for second in 0..50 {
            text.push_str(&folding.take(&refusal("f", second), style));
        }
        text.push_str(&folding.take(&refusal("g", 51), style));
        text.push_str(&folding.told());
        assert_eq!(
            text,
            "2026-11-30 23:04:00.000  A: refused: open f\n\
             2026-11-30 23:04:49.000  A: open f: the same again, 49 times\n\
             2026-11-30 23:04:51.000  A: refused: open g\n"
        );
    }

    fn filter(owner: Option<&str>, path: Option<&str>, refused: bool) -> Filter {
        let args = EventLogArgs {
            path: path.map(str::to_owned),
            refused,
            ..EventLogArgs::default()
        };
        Filter::new(&args, owner.map(str::to_owned)).unwrap()
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
            Filter::new(
                &EventLogArgs {
                    path: Some("a{b".to_owned()),
                    ..EventLogArgs::default()
                },
                None
            )
            .is_err()
        );
    }

    #[test]
    fn what_was_never_at_its_name_is_not_said_to_have_been() {
        let line = |operation: &str| {
            let event = json!({"event": "kept", "owner": "A", "operation": operation, "path": "f", "id": "1-2-3"});
            describe(&event, Style::of_output())
        };
        for operation in ["create", HOMELESS] {
            assert!(
                line(operation).ends_with("A: kept what was written for f, and was never there, in the attic as 1-2-3")
            );
        }
        assert!(line("unlink").ends_with("A: kept what was at f in the attic as 1-2-3"));
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
