//! The refusals of one `run`: each told once as it happens, repeats folded into a count, all of them summed up at the end.
//!
//! It never prints anything itself. What it holds is bounded, and a refusal costs the same however often it is repeated.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::cleared::Fate;
use super::output::counted;
use super::reader::Reader;
use super::why_screen::shell_word;
use crate::audit::rfc3339;
use crate::clock;
use crate::control::Refusal;

/// The version of the report.
const VERSION: u32 = 1;
/// Different refusals that are told apart, at most.
const MOST: usize = 10_000;
/// Lines of the summary, at most.
const SUMMARY: usize = 10;
/// How long repeats are gathered before they are told, at first and at most.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(64);
/// Why a step that was taken in another `run` changes nothing.
const ONE_RUN: &str = "each `run` without --owner is an owner of its own: read and retry in one `run`, or give both the same --owner NAME";

/// What makes two refusals the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key {
    owner: String,
    operation: String,
    path: String,
    code: String,
    decision: String,
}

/// One refusal and its repeats.
#[derive(Debug)]
struct Folded {
    /// Which of the different refusals it is.
    index: usize,
    below: bool,
    count: u64,
    /// How many of them have been told.
    told: u64,
    first: Value,
    last: Value,
    line: String,
    due: Option<Instant>,
    pause: Duration,
    /// What has become of it, once that was asked.
    fate: Fate,
}

/// All refusals of a `run`.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    reader: Reader,
    all: HashMap<Key, Folded>,
    /// Refusals in all, of the command's owner and those below.
    total: u64,
    /// Refusals that found no room here, or were never sent.
    omitted: u64,
    /// The next time at which repeats are to be told.
    due: Option<Instant>,
}

impl Refusals {
    pub(crate) fn for_reader(reader: Reader) -> Self {
        Self {
            reader,
            ..Self::default()
        }
    }

    /// Takes a refusal in; the lines to be shown at once.
    pub(crate) fn take(&mut self, refusal: &Refusal, now: Instant) -> Vec<String> {
        let Some(event) = &refusal.event else {
            // Only the line of it could be sent; a notice stands for no refusal.
            self.omitted += refusal.count;
            return vec![self.reader.bare(refusal)];
        };
        self.total += 1;
        let key = Key::of(event);
        let line = self
            .reader
            .line(&refusal.line, (&key.path, &key.code), event["id"].as_str());
        let again = event["again"].as_bool().unwrap_or(false);
        let is_full = self.all.len() >= MOST;
        let index = self.all.len();
        let Some(folded) = self.all.get_mut(&key) else {
            let mut lines = Vec::new();
            if is_full {
                self.omitted += 1;
            } else {
                self.all.insert(key, Folded::new(index, refusal.below, &line, event));
            }
            if !refusal.below {
                lines.push(line);
            }
            return lines;
        };
        let mut lines = Vec::new();
        if !again && !folded.below {
            // The step was taken, and something else has happened since.
            lines.extend(folded.repeats());
            lines.push(line.clone());
            folded.told += 1;
            folded.due = None;
            folded.pause = PAUSE;
        }
        folded.count += 1;
        folded.last = event.clone();
        folded.line = line;
        if again && !folded.below {
            let due = *folded.due.get_or_insert_with(|| now + folded.pause);
            self.due = Some(self.due.map_or(due, |earlier| earlier.min(due)));
        }
        lines
    }

    /// When repeats are to be told next.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// The repeats whose time has come; with no time, all.
    pub(crate) fn repeats(&mut self, now: Option<Instant>) -> Vec<String> {
        if now.is_some_and(|now| self.due.is_none_or(|due| due > now)) {
            return Vec::new();
        }
        let mut lines = Vec::new();
        self.due = None;
        for folded in self.all.values_mut() {
            match (folded.due, now) {
                (Some(due), Some(now)) if due > now => {
                    self.due = Some(self.due.map_or(due, |earlier| earlier.min(due)));
                }
                (Some(_), _) => {
                    folded.due = None;
                    folded.pause = (folded.pause * 2).min(LONGEST_PAUSE);
                    lines.extend(folded.repeats().map(|line| (folded.index, line)));
                }
                (None, _) => {}
            }
        }
        lines.sort();
        lines.into_iter().map(|(_, line)| line).collect()
    }

    /// Finds out what has become of the command's own refusals that are told at the end, by asking `become_of`.
    pub(crate) fn follow_up(&mut self, mut become_of: impl FnMut(&Value) -> Fate) {
        let own = self
            .all
            .iter_mut()
            .filter(|(key, folded)| !folded.below && key.decision == "refused");
        let mut own: Vec<_> = own.map(|(_, folded)| folded).collect();
        own.sort_by_key(|folded| (std::cmp::Reverse(folded.count), folded.index));
        for folded in own.into_iter().take(SUMMARY) {
            folded.fate = become_of(&folded.last);
        }
    }

    /// The command's own refusals, when there were any.
    pub(crate) fn summary(&self) -> Vec<String> {
        let mut own: Vec<_> = self.all.iter().filter(|(_, folded)| !folded.below).collect();
        own.sort_by_key(|(_, folded)| (std::cmp::Reverse(folded.count), folded.index));
        let count: u64 = own.iter().map(|(_, folded)| folded.count).sum();
        if count == 0 {
            return Vec::new();
        }
        let only_recorded = own.iter().all(|(key, _)| key.decision == "would_refuse");
        let done = match (only_recorded, count) {
            (true, 1) => "would have been refused",
            (true, _) => "would have been refused in all",
            (false, 1) => "was refused",
            (false, _) => "were refused in all",
        };
        let changes = if count == 1 {
            "1 change"
        } else {
            &format!("{count} changes")
        };
        let mut lines = vec![format!("{changes} {done}:")];
        for (key, folded) in own.iter().take(SUMMARY) {
            let step = match folded.fate.cleared {
                Some(cleared) => cleared.words(),
                // Nothing needs doing about what was let through.
                None if key.decision == "would_refuse" => key.code.as_str(),
                None => folded.last["step"].as_str().unwrap_or_default(),
            };
            let step = match (folded.last["id"].as_str(), folded.fate.cleared) {
                (None, None) if folded.last["rule"] == "D22" => {
                    format!("what was written is NOT in the file, and nothing was kept; {step}")
                }
                (None, _) => step.to_owned(),
                (Some(id), None) => {
                    let show = self.reader.show_kept(id);
                    format!("what was written is NOT in the file, but kept in the attic: `{show}`; {step}")
                }
                (Some(id), Some(_)) => format!(
                    "{step}; what was written before is in the attic: `{}`",
                    self.reader.show_kept(id)
                ),
            };
            lines.push(format!(
                "  {} x {} {}: {step}",
                folded.count,
                key.operation,
                super::attic::plain(&self.reader.path(&key.path))
            ));
            if folded.fate.differs && folded.asks_for_reading(key) && !self.reader.nameless {
                let path = self.reader.path(&key.path);
                lines.push(format!(
                    "      what has changed since it was read: unclobber why --owner {} --diff {}",
                    key.owner,
                    shell_word(Path::new(&path))
                ));
            }
        }
        if own.len() > SUMMARY {
            let others = (own.len() - SUMMARY) as u64;
            lines.push(format!("  and {}", counted(others, "other")));
        }
        if self.reader.nameless && own.iter().any(|(key, folded)| folded.asks_for_reading(key)) {
            lines.push(ONE_RUN.to_owned());
        }
        lines
    }

    /// The report, as `docs/EVENTS.md` describes it.
    pub(crate) fn report(&self, owner: &str, command: &[String], exit_code: u8) -> Value {
        let mut owners: BTreeMap<&str, Vec<(&Key, &Folded)>> = BTreeMap::new();
        for (key, folded) in &self.all {
            owners.entry(&key.owner).or_default().push((key, folded));
        }
        let of_owner = |(owner, mut found): (&str, Vec<(&Key, &Folded)>)| {
            found.sort_by_key(|(_, folded)| folded.index);
            let count: u64 = found.iter().map(|(_, folded)| folded.count).sum();
            let refusals: Vec<Value> = found.into_iter().map(|(key, folded)| folded.to_json(key)).collect();
            json!({ "owner": owner, "count": count, "refusals": refusals })
        };
        json!({
            "v": VERSION,
            "time": rfc3339(clock::now()),
            "owner": owner,
            "command": command,
            "exit_code": exit_code,
            "count": self.total,
            "omitted": self.omitted,
            "owners": owners.into_iter().map(of_owner).collect::<Vec<_>>(),
        })
    }
}

impl Key {
    fn of(event: &Value) -> Self {
        let of = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
        Self {
            owner: of("owner"),
            operation: of("operation"),
            path: of("path"),
            code: of("code"),
            decision: of("decision"),
        }
    }
}

impl Folded {
    fn new(index: usize, below: bool, line: &str, event: &Value) -> Self {
        Self {
            index,
            below,
            count: 1,
            told: 1,
            first: event.clone(),
            last: event.clone(),
            line: line.to_owned(),
            due: None,
            pause: PAUSE,
            fate: Fate::default(),
        }
    }

    /// Whether it is cleared by reading, and has not been.
    fn asks_for_reading(&self, key: &Key) -> bool {
        let step = self.last["step"].as_str().unwrap_or_default();
        key.decision == "refused" && self.fate.cleared.is_none() && step.contains("read ")
    }

    /// The line that tells of the repeats not told yet.
    fn repeats(&mut self) -> Option<String> {
        let count = self.count - self.told;
        self.told = self.count;
        let times = if count == 1 { "time" } else { "times" };
        (count > 0).then(|| {
            self.line
                .replacen("refused:", &format!("refused {count} more {times}:"), 1)
        })
    }

    fn to_json(&self, key: &Key) -> Value {
        let mut all = serde_json::Map::new();
        for name in ["operation", "path", "code", "decision"] {
            all.insert(name.to_owned(), self.last[name].clone());
        }
        all.insert("count".to_owned(), json!(self.count));
        all.insert("first".to_owned(), self.first["time"].clone());
        all.insert("last".to_owned(), self.last["time"].clone());
        let others = [
            "step",
            "error",
            "errno",
            "rule",
            "level",
            "view",
            "changed_by",
            "changed_at",
            "intent",
            "id",
            "command",
            "program",
            "message",
        ];
        for name in others {
            if let Some(value) = self.last.get(name) {
                all.insert(name.to_owned(), value.clone());
            }
        }
        if let Some(cleared) = self.fate.cleared {
            all.insert("cleared".to_owned(), json!(cleared.as_str()));
        }
        debug_assert_eq!(all.get("path").and_then(Value::as_str), Some(key.path.as_str()));
        Value::Object(all)
    }
}

#[cfg(test)]
mod tests {
    use super::super::cleared::Cleared;
    use super::*;

    fn fate(cleared: Option<Cleared>) -> Fate {
        Fate {
            cleared,
            differs: false,
        }
    }

    fn refusal(path: &str, again: bool) -> Refusal {
        let still = if again { "still not read: " } else { "" };
        Refusal {
            line: format!("refused: open {path}: FS_NOT_OBSERVED (File exists): {still}\"A\" has not read it; read it"),
            count: 1,
            event: Some(json!({
                "owner": "A", "operation": "open", "path": path, "code": "FS_NOT_OBSERVED", "decision": "refused",
                "again": again, "step": "read the file, then retry", "time": "t",
            })),
            ..Refusal::default()
        }
    }

    #[test]
    fn repeats_are_one_line_and_a_count() {
        let (mut all, start) = (Refusals::default(), Instant::now());
        assert_eq!(all.take(&refusal("f", false), start).len(), 1);
        for _ in 0..49 {
            assert!(all.take(&refusal("f", true), start).is_empty());
        }
        assert!(all.repeats(Some(start)).is_empty());
        let due = all.due().unwrap();
        let told = all.repeats(Some(due));
        assert_eq!(told.len(), 1);
        assert!(
            told[0].starts_with("refused 49 more times: open f:") && told[0].contains("still not read"),
            "{told:?}"
        );
        assert_eq!((all.due(), all.repeats(None).len()), (None, 0));
        // The next pause is longer, and the end waits for none.
        assert!(all.take(&refusal("f", true), due).is_empty());
        assert_eq!(all.due(), Some(due + 2 * PAUSE));
        assert!(all.repeats(None)[0].starts_with("refused 1 more time:"));
        assert_eq!(
            all.summary(),
            [
                "51 changes were refused in all:",
                "  51 x open f: read the file, then retry"
            ]
        );
    }

    #[test]
    fn what_is_refused_for_another_reason_is_told_anew() {
        let (mut all, now) = (Refusals::default(), Instant::now());
        all.take(&refusal("f", false), now);
        all.take(&refusal("f", true), now);
        let told = all.take(&refusal("f", false), now);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(
            told[0].starts_with("refused 1 more time:") && told[1].starts_with("refused: "),
            "{told:?}"
        );
        assert!(all.repeats(None).is_empty());
    }

    #[test]
    fn the_report_has_everybody_and_the_screen_the_command_alone() {
        let (mut all, now) = (Refusals::default(), Instant::now());
        assert!(all.summary().is_empty());
        all.take(&refusal("f", false), now);
        let mut below = refusal("g", false);
        below.below = true;
        below.event.as_mut().unwrap()["owner"] = json!("A/b");
        assert!(all.take(&below, now).is_empty());
        let lost = Refusal {
            line: "3 more refusals could not be shown".to_owned(),
            count: 3,
            ..Refusal::default()
        };
        assert_eq!(all.take(&lost, now).len(), 1);
        let report = all.report("A", &["sh".to_owned()], 7);
        assert_eq!((&report["count"], &report["omitted"]), (&json!(2), &json!(3)));
        assert_eq!(report["owners"][1]["owner"], "A/b");
        assert_eq!(report["owners"][0]["refusals"][0]["count"], 1);
        assert_eq!(all.summary().len(), 2);
    }

    #[test]
    fn what_was_cleared_is_not_advised_again() {
        let (mut all, now) = (Refusals::default(), Instant::now());
        for path in ["f", "g", "h"] {
            all.take(&refusal(path, false), now);
        }
        all.follow_up(|event| match event["path"].as_str() {
            Some("f") => fate(Some(Cleared::Made)),
            Some("g") => fate(Some(Cleared::Possible)),
            _ => fate(None),
        });
        assert_eq!(
            all.summary(),
            [
                "3 changes were refused in all:",
                "  1 x open f: cleared, the change was made afterwards",
                "  1 x open g: cleared, it is not refused any more",
                "  1 x open h: read the file, then retry",
            ]
        );
        let report = all.report("A", &[], 0);
        let told: Vec<&Value> = (0..3)
            .map(|number| &report["owners"][0]["refusals"][number]["cleared"])
            .collect();
        assert_eq!(told, [&json!("made"), &json!("possible"), &Value::Null]);
    }

    #[test]
    fn of_an_owner_without_a_name_it_is_said_where_to_read() {
        let nameless = || Reader {
            nameless: true,
            ..Reader::default()
        };
        let (mut all, now) = (Refusals::for_reader(nameless()), Instant::now());
        all.take(&refusal("f", false), now);
        all.take(&refusal("g", false), now);
        let told = all.summary();
        assert_eq!((told.len(), told[3].as_str()), (4, ONE_RUN));
        // Once the step was taken there is nothing to explain, and where it is another step neither.
        all.follow_up(|_| fate(Some(Cleared::Possible)));
        assert_eq!(all.summary().len(), 3);
        let mut all = Refusals::for_reader(nameless());
        let mut other = refusal("f", false);
        other.event.as_mut().unwrap()["step"] = json!("choose another name");
        all.take(&other, now);
        assert_eq!(all.summary().len(), 2);
    }

    #[test]
    fn of_what_can_be_shown_it_is_said_how() {
        let (mut all, now) = (Refusals::default(), Instant::now());
        all.take(&refusal("a f", false), now);
        all.follow_up(|_| Fate {
            cleared: None,
            differs: true,
        });
        assert_eq!(
            all.summary()[2],
            "      what has changed since it was read: unclobber why --owner A --diff 'a f'"
        );
        all.follow_up(|_| Fate {
            cleared: Some(Cleared::Possible),
            differs: true,
        });
        assert_eq!(all.summary().len(), 2);
    }

    #[test]
    fn a_path_leads_from_where_the_command_was_started() {
        let reader = Reader {
            root: Some(std::path::PathBuf::from("/tree")),
            ..Reader::default()
        };
        let (mut all, now) = (Refusals::for_reader(reader), Instant::now());
        let told = all.take(&refusal("a/f", false), now);
        assert!(
            told[0].starts_with("refused: open /tree/a/f: FS_NOT_OBSERVED ("),
            "{told:?}"
        );
        all.take(&refusal("a/f", true), now);
        let told = all.repeats(None);
        assert!(told[0].starts_with("refused 1 more time: open /tree/a/f: "), "{told:?}");
        assert_eq!(all.summary()[1], "  2 x open /tree/a/f: read the file, then retry");
        // For programs it stays as it is everywhere.
        assert_eq!(all.report("A", &[], 0)["owners"][0]["refusals"][0]["path"], "a/f");
    }

    #[test]
    fn what_is_held_is_bounded() {
        let (mut all, now) = (Refusals::default(), Instant::now());
        for number in 0..MOST + 5 {
            assert_eq!(all.take(&refusal(&number.to_string(), false), now).len(), 1);
        }
        assert_eq!((all.all.len(), all.omitted), (MOST, 5));
        assert_eq!(all.summary().len(), SUMMARY + 2);
    }
}
