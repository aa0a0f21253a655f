//! The record of events, the reports and the counts: what is documented is what is written, and nothing is lost unsaid.

#[expect(dead_code, reason = "each test program uses its own part of the harness")]
mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use common::session::{Session, fine};
use common::tree::{Tree, require_fuse, tool_is_there};
use common::wait::{PATIENCE, wait_until};
use serde_json::Value;

const DOCUMENT: &str = include_str!("../docs/EVENTS.md");

fn run(tree: &Tree, words: &[&str]) -> Output {
    let mut command = tree.unclobber();
    command.args(words).current_dir(tree.root());
    command.output().expect("the program starts")
}

fn works(tree: &Tree, words: &[&str]) -> String {
    let done = run(tree, words);
    assert!(done.status.success(), "{words:?}: {done:?}");
    String::from_utf8_lossy(&done.stdout).into_owned()
}

fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| unreachable!("{line}: {error}")))
        .collect()
}

/// A file outside the tree for events.
fn file(tree: &Tree) -> (PathBuf, String) {
    let path = tree.scratch().join("events.jsonl");
    let flag = format!("--events={}", path.display());
    (path, flag)
}

/// The events of a file, once a guard has ended in order.
fn ended(path: &Path) -> Vec<Value> {
    let whole = || fs::read_to_string(path).unwrap_or_default();
    assert!(
        wait_until(PATIENCE, || whole().contains("\"event\":\"end\"")),
        "no end: {}",
        whole()
    );
    lines(&whole())
}

/// What an event is, as far as it has a form of its own.
fn kind(event: &Value) -> (String, String) {
    let of = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
    let form = match of("event").as_str() {
        "change" => of("change"),
        "observation" => of("operation"),
        "refusal" if event.get("changed_by").is_some() => "foreign".to_owned(),
        _ => String::new(),
    };
    (of("event"), form)
}

/// The fields of an event with the types of their values.
fn shape(event: &Value) -> BTreeMap<String, String> {
    let mut shape = BTreeMap::new();
    for (name, value) in event.as_object().expect("an object") {
        let of = match value {
            Value::Object(inner) => format!("{:?}", inner.keys().collect::<BTreeSet<_>>()),
            Value::String(_) => "text".to_owned(),
            Value::Number(_) => "number".to_owned(),
            Value::Bool(_) => "bool".to_owned(),
            Value::Null | Value::Array(_) => "nothing that is documented".to_owned(),
        };
        shape.insert(name.clone(), of);
    }
    shape
}

/// The table of fields: name to kinds.
fn documented_fields() -> BTreeMap<String, String> {
    let table = DOCUMENT
        .split("## Fields")
        .nth(1)
        .and_then(|text| text.split("## Examples").next());
    let rows = table.unwrap_or_default().lines().filter(|line| line.starts_with("| `"));
    rows.filter_map(|row| {
        let mut cells = row.split('|').map(str::trim).skip(1);
        Some((cells.next()?.trim_matches('`').to_owned(), cells.next()?.to_owned()))
    })
    .collect()
}

/// Everything that can happen, by two owners, in one life of a guard.
fn busy(tree: &Tree, flag: &str) {
    for (name, text) in [("f", "a\n"), ("g", "b\n"), ("h", "c\n")] {
        tree.write(name, text);
    }
    let flags = [flag, "--events-observations"];
    let (mut a, mut b) = (Session::guarded(tree, "A", &flags), Session::guarded(tree, "B", &flags));
    assert_ne!(a.sh("echo x >f").code, 0);
    fine(&b.sh("cat f"));
    fine(&a.sh("cat f; echo y >f; echo more >>g; rm h; touch new; mv new new2; ln f f2; mkdir d; rmdir d"));
    assert_ne!(b.sh("echo z >f").code, 0);
    assert_ne!(b.sh("echo z >f").code, 0);
    fine(&a.sh("echo z >f3; mv f3 f2; [ -e none ]; : <g; printf abc | dd of=f bs=1 seek=1 conv=notrunc status=none"));
    let swap = "import ctypes,sys; l=ctypes.CDLL(None); sys.exit(-l.renameat2(-100,b'f',-100,b'f2',2))";
    fine(&a.sh(&format!("python3 -c \"{swap}\"")));
    tree.write("i", "d\n");
    works(tree, &["allow", "i", "--owner", "A"]);
    fine(&a.sh("echo mine >i"));
}

// semantics: R2
#[test]
fn what_is_written_is_what_is_documented() {
    if !require_fuse("events") || !tool_is_there("python3") {
        return;
    }
    let tree = Tree::new();
    let (path, flag) = file(&tree);
    busy(&tree, &flag);
    let events = ended(&path);
    let fields = documented_fields();
    for (event, number) in events.iter().zip(1..) {
        assert_eq!(
            (&event["v"], &event["seq"]),
            (&Value::from(1), &Value::from(number)),
            "{event}"
        );
        let kind = event["event"].as_str().unwrap_or_default();
        for name in event.as_object().expect("an object").keys() {
            let of = fields
                .get(name)
                .unwrap_or_else(|| unreachable!("{name} is not documented"));
            assert!(
                of == "all" || of.split(", ").any(|of| of == kind),
                "{name} of {kind}: {of}"
            );
        }
    }
    let examples: Vec<Value> = lines(
        &DOCUMENT
            .lines()
            .filter(|line| line.starts_with("{\"v\":"))
            .collect::<Vec<_>>()
            .join("\n"),
    );
    let shown: BTreeSet<_> = examples.iter().map(kind).collect();
    for event in &events {
        assert!(shown.contains(&kind(event)), "no example of {event}");
    }
    for example in &examples {
        // This one is shown by tests of the layer itself: no guard is too slow on demand.
        if example["event"] == "dropped" {
            continue;
        }
        let of_kind: Vec<_> = events
            .iter()
            .filter(|event| kind(event) == kind(example))
            .map(shape)
            .collect();
        assert!(of_kind.contains(&shape(example)), "{example}\nis none of\n{of_kind:#?}");
    }
}

// semantics: R1 R2 L13 L16
#[test]
fn what_is_no_refusal_is_told_and_noted_and_not_counted_as_one() {
    if !require_fuse("notices") {
        return;
    }
    let tree = Tree::new();
    let (path, flag) = file(&tree);
    tree.write("f", "old\n");
    let report = tree.scratch().join("report.json");
    let to = format!("--report={}", report.display());
    {
        let mut a = Session::guarded(&tree, "A", &[&flag, &to]);
        works(&tree, &["allow", "f", "--owner", "A"]);
        fine(&a.sh("echo mine >f"));
        assert_ne!(a.sh("echo >.unclobber.toml").code, 0);
        let told = wait_until(PATIENCE, || {
            let said = a.said();
            let has = |text: &str| said.iter().any(|line| line.contains(text));
            has("allowed once:") && has("--rules-writable")
        });
        assert!(told, "{:?}", a.said());
    }
    assert!(wait_until(PATIENCE, || {
        fs::read_to_string(&report).is_ok_and(|text| text.contains("omitted"))
    }));
    let summed: Value = serde_json::from_str(&fs::read_to_string(&report).expect("a report")).expect("JSON");
    assert_eq!(
        (&summed["count"], &summed["omitted"]),
        (&0.into(), &0.into()),
        "{summed:#}"
    );
    let events = ended(&path);
    let notes: Vec<_> = events.iter().filter(|event| event["event"] == "note").collect();
    assert_eq!(notes.len(), 1, "{events:#?}");
    let note = notes[0];
    assert_eq!(
        (&note["owner"], &note["operation"], &note["path"]),
        (&"A".into(), &"allow".into(), &"f".into())
    );
    let message = note["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("allowed once: open \"f\" by owner \"A\""), "{note}");
}

// semantics: R2
#[test]
fn a_reader_can_rebuild_who_saw_and_changed_what() {
    if !require_fuse("rebuilding") || !tool_is_there("python3") {
        return;
    }
    let tree = Tree::new();
    let (path, flag) = file(&tree);
    busy(&tree, &flag);
    let events = ended(&path);
    // Which version each file is at, and which each owner has seen.
    let mut at: BTreeMap<String, u64> = BTreeMap::new();
    let mut seen: BTreeMap<(String, String), u64> = BTreeMap::new();
    for event in &events {
        let owner = event["owner"].as_str().unwrap_or_default().to_owned();
        let version = |name: &str| {
            let version = event.get(name)?;
            Some((version["file"].as_str()?.to_owned(), version["generation"].as_u64()?))
        };
        if let Some((file, generation)) = version("before") {
            let known = *at.entry(file.clone()).or_insert(generation);
            assert_eq!(known, generation, "nobody else changed {file} meanwhile: {event}");
            let view = seen.get(&(owner.clone(), file.clone()));
            let wanted = match view {
                None => "unseen",
                Some(view) if *view == generation => "current",
                Some(_) => "stale",
            };
            if event["operation"] != "rename" {
                assert_eq!(event["view"], wanted, "{event}");
            }
        }
        if let Some((file, generation)) = version("after") {
            at.insert(file.clone(), generation);
            let blind = event["change"] == "append" && event["view"] != "current";
            if !blind && event["change"] != "link" {
                seen.insert((owner, file), generation);
            }
        }
    }
    let refused: Vec<_> = events.iter().filter(|event| event["event"] == "refusal").collect();
    let facts: Vec<_> = refused
        .iter()
        .map(|event| {
            let of = |name: &str| event[name].as_str().unwrap_or_default();
            (
                of("owner"),
                of("rule"),
                of("changed_by"),
                event["again"].as_bool().unwrap_or_default(),
            )
        })
        .collect();
    assert_eq!(
        facts,
        [("A", "D5", "", false), ("B", "D8", "A", false), ("B", "D8", "A", true)]
    );
    assert!(
        refused[0]["program"]
            .as_str()
            .is_some_and(|program| program.starts_with('/'))
    );
    let removed = events
        .iter()
        .find(|event| event["change"] == "remove" && event["path"] == "h")
        .expect("rm");
    assert_eq!(
        (&removed["command"], &removed["view"]),
        (&Value::from("rm"), &Value::from("unseen"))
    );
    assert!(
        events
            .iter()
            .any(|event| event["event"] == "kept" && event["path"] == "h")
    );
    let mode = fs::metadata(&path).expect("the file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "for its owner alone");
}

// semantics: R2
#[test]
fn many_writes_are_one_change_and_off_is_none() {
    if !require_fuse("one change") {
        return;
    }
    let tree = Tree::new();
    let (path, flag) = file(&tree);
    tree.write("f", &"x".repeat(100));
    let mut a = Session::guarded(&tree, "A", &[&flag]);
    fine(&a.sh("cat f >/dev/null; dd if=/dev/zero of=f bs=1 count=50 conv=notrunc status=none; mkdir node_modules; echo x >node_modules/y"));
    drop(a);
    let events = ended(&path);
    let of_f = events.iter().filter(|event| event["path"] == "f").collect::<Vec<_>>();
    assert_eq!(of_f.len(), 1, "{of_f:?}");
    assert_eq!(of_f[0]["change"], "edit");
    assert!(
        !events
            .iter()
            .any(|event| event["path"] == "node_modules/y" || event["event"] == "observation")
    );
}

// semantics: R2
#[test]
fn the_log_follows_through_files_that_are_begun_anew() {
    if !require_fuse("log --follow") {
        return;
    }
    let tree = Tree::new();
    let (path, flag) = file(&tree);
    for number in 0..60 {
        tree.write(&format!("f{number}"), "old\n");
    }
    let mut follow = tree.unclobber();
    follow
        .args(["log", "--follow", "--refused", "--json", "--path", "/f*", "--events"])
        .arg(&path);
    let mut follow = follow.stdout(Stdio::piped()).spawn().expect("log --follow");
    let mut out = follow.stdout.take().expect("its output");
    let mut a = Session::guarded(&tree, "A", &[&flag, "--events-size", "8K", "--events-files", "90"]);
    assert_ne!(
        a.sh("for i in $(seq 0 59); do echo x >f$i; done; echo y >g; rm g; false")
            .code,
        0
    );
    drop(a);
    assert!(
        wait_until(PATIENCE, || path.with_extension("jsonl.1").exists()),
        "it was never full"
    );
    // What the follower says, until everything has come; then it is ended.
    let reader = std::thread::spawn(move || {
        let (mut text, mut buffer) = (String::new(), [0; 4096]);
        while text.lines().count() < 60 {
            match out.read(&mut buffer) {
                Ok(length) if length > 0 => text.push_str(&String::from_utf8_lossy(&buffer[..length])),
                Ok(_) | Err(_) => break,
            }
        }
        text
    });
    assert!(wait_until(PATIENCE, || reader.is_finished()), "events are missing");
    follow.kill().and_then(|()| follow.wait()).expect("the follower's end");
    let text = reader.join().expect("what it said");
    let paths: Vec<_> = lines(&text).iter().map(|event| event["path"].clone()).collect();
    let wanted: Vec<_> = (0..60).map(|number| Value::from(format!("f{number}"))).collect();
    assert_eq!(paths, wanted);
    let name = path.to_string_lossy();
    let all = lines(&works(&tree, &["log", "--json", "--events", &name]));
    let numbers: Vec<_> = all.iter().filter_map(|event| event["seq"].as_u64()).collect();
    let gapless: Vec<u64> = (1..=all.len() as u64).collect();
    assert_eq!(numbers, gapless);
    let people = works(&tree, &["log", "--owner", "A", "--path", "g", "--events", &name]);
    assert!(
        people.contains("create g\n") && people.contains("remove g\n") && !people.contains("f1"),
        "{people}"
    );
    assert_eq!(works(&tree, &["log", "--owner", "B", "--events", &name]), "");
}

// semantics: R1
#[test]
fn repeated_refusals_are_one_line_and_a_count() {
    if !require_fuse("run's report") {
        return;
    }
    let tree = Tree::new();
    tree.write("f", "old\n");
    tree.write("g", "old\n");
    let report = tree.scratch().join("report.json");
    let text = "for i in $(seq 50); do echo x >f; done 2>/dev/null; mv -f g g2; cat f && echo x >f && exit 7";
    let mut command = tree.unclobber();
    command.arg("run").arg("--report").arg(&report);
    command
        .args(["--owner", "A", "--remove", "observed", "--", "sh", "-c", text])
        .current_dir(tree.root());
    let done = command.output().expect("run");
    assert_eq!(done.status.code(), Some(7), "{done:?}");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    let of_f: Vec<_> = said.lines().filter(|line| line.contains("open f")).collect();
    assert_eq!(of_f.len(), 3, "one line, one count, one of the summary: {said}");
    assert!(
        of_f[0].starts_with("unclobber: refused: open f: FS_NOT_OBSERVED")
            && of_f[0].ends_with("; read the file, then retry")
    );
    assert!(
        of_f[1].starts_with("unclobber: refused 49 more times: open f:")
            && of_f[1].contains("still not read: ")
            && of_f[1].ends_with("; read the file, then retry"),
        "{said}"
    );
    assert_eq!(of_f[2], "unclobber:   50 x open f: read the file, then retry");
    assert!(
        said.contains("unclobber: 51 changes were refused in all:\n") && !said.contains('\u{1b}'),
        "{said}"
    );
    let report: Value = serde_json::from_str(&fs::read_to_string(&report).expect("the report")).expect("JSON");
    assert_eq!(
        (&report["v"], &report["count"], &report["exit_code"]),
        (&1.into(), &51.into(), &7.into())
    );
    let refusals = report["owners"][0]["refusals"].as_array().expect("a list");
    let facts: Vec<_> = refusals
        .iter()
        .map(|one| (&one["operation"], &one["path"], &one["count"], &one["rule"]))
        .collect();
    assert_eq!(
        facts,
        [
            (&"open".into(), &"f".into(), &50.into(), &"D5".into()),
            (&"rename".into(), &"g".into(), &1.into(), &"D13".into())
        ]
    );
    for field in report
        .as_object()
        .expect("an object")
        .keys()
        .chain(refusals[0].as_object().expect("an object").keys())
    {
        assert!(DOCUMENT.contains(&format!("`{field}`")), "{field} is not documented");
    }
    // Nothing refused: a report all the same, and not a word.
    let path = tree.scratch().join("none.json");
    let quiet = run(&tree, &["run", "--report", &path.to_string_lossy(), "--", "true"]);
    assert!(quiet.status.success() && quiet.stderr.is_empty(), "{quiet:?}");
    assert!(fs::read_to_string(path).expect("the report").contains("\"count\": 0"));
    let nowhere = run(&tree, &["run", "--report", "/nowhere/report", "--", "touch", "ran"]);
    assert_eq!((nowhere.status.code(), tree.read("ran")), (Some(125), None));
}

// semantics: R1
#[test]
fn what_is_gone_is_told_once_too_and_an_owner_below_is_in_the_report() {
    if !require_fuse("refusals without a file") {
        return;
    }
    let tree = Tree::new();
    tree.write("f", "old\n");
    let report = tree.scratch().join("report.json");
    let flag = format!("--report={}", report.display());
    let mut a = Session::guarded(&tree, "A", &[&flag]);
    fine(&a.sh("cat f"));
    tree.remove("f");
    assert_ne!(a.sh("for i in 1 2 3 4 5; do echo x >f; done").code, 0);
    assert!(a.told("f", common::STALE));
    fine(&a.sh("cat f; echo mine >f"));
    let nested = a.sh(&format!(
        "'{}' run --owner b -- sh -c 'echo x >f'",
        common::tree::program().display()
    ));
    assert_ne!(nested.code, 0);
    assert!(nested.stderr.contains("\"A/b\" has not read it"), "{nested:?}");
    let said = a.close();
    let of_f = said
        .iter()
        .filter(|line| line.contains("create f:") && line.contains(common::STALE))
        .count();
    assert_eq!(of_f, 2, "{said:?}");
    assert!(
        !said.iter().any(|line| line.contains("A/b")),
        "told by its own run: {said:?}"
    );
    let report: Value = serde_json::from_str(&fs::read_to_string(report).expect("the report")).expect("JSON");
    let owners: Vec<_> = report["owners"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|of| (&of["owner"], &of["count"]))
        .collect();
    assert_eq!(owners, [(&"A".into(), &5.into()), (&"A/b".into(), &1.into())]);
}

// semantics: D14 R3
#[test]
fn an_observed_run_is_summed_up_with_rules() {
    if !require_fuse("report") {
        return;
    }
    let tree = Tree::new();
    let (path, flag) = file(&tree);
    for name in ["log/a.log", "log/b.log", "log/c.log", "f", "theirs"] {
        tree.write(name, "old\n");
    }
    let flags = [flag.as_str(), "--mode", "observe"];
    let (mut a, mut b) = (
        Session::guarded(&tree, "A", &flags),
        Session::guarded(&tree, "B", &flags),
    );
    fine(&b.sh("cat theirs; echo by b >theirs"));
    fine(&a.sh("for f in log/a.log log/b.log log/c.log f theirs; do echo new >$f; done"));
    drop((a, b));
    let events = ended(&path);
    let decisions: BTreeSet<_> = events
        .iter()
        .filter(|event| event["event"] == "refusal")
        .map(|event| event["decision"].as_str().unwrap_or_default())
        .collect();
    assert_eq!(decisions, BTreeSet::from(["would_refuse"]));
    let name = path.to_string_lossy();
    let sum: Value = serde_json::from_str(&works(&tree, &["report", "--json", "--events", &name])).expect("JSON");
    assert_eq!((&sum["would_refuse"], &sum["refused"]), (&5.into(), &0.into()));
    assert_eq!(
        (&sum["paths"][0]["path"], &sum["paths"][0]["count"]),
        (&"f".into(), &1.into())
    );
    let rules: Vec<_> = sum["rules"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|rule| &rule["rule"])
        .collect();
    assert_eq!(rules, ["D5"]);
    let proposal = sum["proposal"].as_str().expect("a text");
    assert!(
        proposal.contains("[[rule]]\npattern = \"/log/*.log\"\nlevel = \"keep\"\n")
            && proposal.contains("pattern = \"/f\"\n"),
        "{proposal}"
    );
    assert!(
        !proposal.contains("theirs") && proposal.contains("# 1 refusals kept somebody's work"),
        "{proposal}"
    );
    let people = works(&tree, &["report", "--events", &name]);
    assert!(
        people.starts_with("5 changes would have been refused, 0 were refused"),
        "{people}"
    );
    assert!(
        people.contains("replaced or edited unread") && people.ends_with(proposal),
        "{people}"
    );
    for field in sum.as_object().expect("an object").keys() {
        assert!(DOCUMENT.contains(&format!("`{field}`")), "{field} is not documented");
    }
}

// semantics: R4
#[test]
fn every_count_is_a_metric_with_a_meaning() {
    if !require_fuse("metrics") {
        return;
    }
    let tree = Tree::new();
    tree.write("f", "old\n");
    let mut a = Session::guarded(&tree, "A", &[]);
    assert_ne!(a.sh("echo x >f").code, 0);
    let text = works(&tree, &["status", "--metrics", "."]);
    let (mut types, mut helps, mut samples) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a name and a meaning");
            assert!(help.ends_with('.') && helps.insert(name.to_owned()), "{line}");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, of) = rest.split_once(' ').expect("a name and a type");
            assert_eq!(of == "counter", name.ends_with("_total"), "{line}");
            types.insert(name.to_owned(), of.to_owned());
        } else {
            let (series, value) = line.rsplit_once(' ').expect("a sample");
            let (name, labels) = series.split_once('{').expect("labels");
            assert!(
                labels.ends_with('}') && labels.contains("guard=\"") && labels.contains("root=\""),
                "{line}"
            );
            assert!(types.contains_key(name) && helps.contains(name), "{line}");
            let value: u64 = value.parse().expect("a whole number");
            assert_eq!(samples.insert(series.to_owned(), value), None, "twice: {line}");
        }
    }
    for name in types.keys() {
        assert!(DOCUMENT.contains(&format!("| `{name}` |")), "{name} is not documented");
    }
    let sum = |name: &str, label: &str| -> u64 {
        let of = samples
            .iter()
            .filter(|(series, _)| series.starts_with(&format!("{name}{{")) && series.contains(label));
        of.map(|(_, value)| value).sum()
    };
    assert_eq!(sum("unclobber_refusals_total", ""), 1);
    assert_eq!(sum("unclobber_refusals_by_code_total", "code=\"FS_NOT_OBSERVED\""), 1);
    assert_eq!(sum("unclobber_owner_refusals_total", "owner=\"A\""), 1);
    assert_eq!(sum("unclobber_mounts", ""), 1);
    // Whatever `status` counts is there.
    let status: Value = serde_json::from_str(&works(&tree, &["status", "--json", "."])).expect("JSON");
    let counts = status["guards"][0]["counts"].as_object().expect("counts").len();
    let of_guard = samples
        .keys()
        .filter(|series| !series.contains("owner=") && !series.contains("mounts{"));
    assert_eq!(of_guard.count(), counts + 2, "and the age, and the number of owners");
}

// semantics: R2
#[test]
fn the_record_is_where_it_is_said_and_never_in_the_tree() {
    if !require_fuse("the record's place") {
        return;
    }
    let tree = Tree::new();
    let inside = run(&tree, &["run", "--events", "events.jsonl", "--", "true"]);
    let said = String::from_utf8_lossy(&inside.stderr).into_owned();
    assert!(
        inside.status.code() == Some(125) && said.contains("in the guarded directory itself"),
        "{said}"
    );
    assert_eq!(tree.read("events.jsonl"), None);
    let mut a = Session::guarded(&tree, "A", &[]);
    fine(&a.sh("echo x >f"));
    let status: Value = serde_json::from_str(&works(&tree, &["status", "--json", "."])).expect("JSON");
    let path = PathBuf::from(status["guards"][0]["events"].as_str().expect("a path"));
    assert!(path.starts_with(tree.run_time()), "{path:?}");
    assert!(wait_until(PATIENCE, || works(&tree, &["log"]).contains("create f\n")));
    drop(a);
    assert!(
        wait_until(PATIENCE, || works(&tree, &["log"]).contains("the guard ends\n")),
        "read after its end, too"
    );
    a = Session::guarded(&tree, "A", &["--events", "off"]);
    fine(&a.sh("echo y >g"));
    let none = run(&tree, &["log"]);
    let said = String::from_utf8_lossy(&none.stderr).into_owned();
    assert!(none.status.code() == Some(1) && said.contains("--events off"), "{said}");
}
