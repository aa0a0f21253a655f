//! The record of events, the reports and the counts: what is documented is what is written, and nothing is lost unsaid.

#[path = "../common/mod.rs"]
#[expect(dead_code, reason = "each test program uses its own part of the harness")]
mod common;
mod reading;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use common::session::{Session, fine};
use common::tree::{Tree, require_fuse, run, tool_is_there, works};
use common::wait::{PATIENCE, wait_until};
use serde_json::Value;

const DOCUMENT: &str = include_str!("../../docs/EVENTS.md");

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
fn an_exception_is_noted_and_no_refusal_and_a_change_of_the_rules_is_one() {
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
        (&1.into(), &0.into()),
        "{summed:#}"
    );
    let events = ended(&path);
    let notes: Vec<_> = events.iter().filter(|event| event["event"] == "note").collect();
    assert_eq!(notes.len(), 2, "{events:#?}");
    let given = notes[0];
    assert_eq!(
        (&given["owner"], &given["operation"], &given["path"]),
        (&"A".into(), &"allow_given".into(), &"f".into())
    );
    let refusals: Vec<_> = events.iter().filter(|event| event["event"] == "refusal").collect();
    assert_eq!(refusals.len(), 1, "{events:#?}");
    let refusal = refusals[0];
    assert_eq!(
        (&refusal["code"], &refusal["rule"], &refusal["path"], &refusal["errno"]),
        (
            &"FS_RULES_FIXED".into(),
            &"L13".into(),
            &".unclobber.toml".into(),
            &nix::libc::EROFS.into()
        ),
        "{refusal}"
    );
    assert_eq!(
        refusal["step"],
        "change .unclobber.toml outside the mount, or use --rules-writable"
    );
    let note = notes[1];
    assert_eq!(
        (&note["owner"], &note["operation"], &note["path"]),
        (&"A".into(), &"allow".into(), &"f".into())
    );
    let message = note["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("allowed once: open f by owner \"A\""), "{note}");
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
