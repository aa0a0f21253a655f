//! What is made of the record and the counts for those who read: the log, the report of a run, the summary, metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read as _;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use super::common;
use super::common::session::{Session, fine};
use super::common::tree::{Tree, require_fuse};
use super::common::wait::{PATIENCE, wait_until};
use super::{DOCUMENT, ended, file, lines, run, works};

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
        // Whole lines: a read may end within one.
        while text.matches('\n').count() < 60 {
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
    // The step was taken, and the change made: it is not advised again.
    assert_eq!(
        of_f[2],
        "unclobber:   50 x open f: cleared, the change was made afterwards"
    );
    assert!(
        said.contains("unclobber:   1 x rename g: read the file, then retry\n"),
        "{said}"
    );
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
    assert_eq!(
        (&refusals[0]["cleared"], &refusals[1]["cleared"]),
        (&"made".into(), &Value::Null)
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
        !proposal.contains("theirs") && proposal.contains("# 1 refusal kept somebody's work"),
        "{proposal}"
    );
    let people = works(&tree, &["report", "--events", &name]);
    assert!(
        people.starts_with("5 changes would have been refused (--mode observe), 6 were made\n"),
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
fn what_has_just_happened_is_in_the_log() {
    if !require_fuse("log at once") {
        return;
    }
    let tree = Tree::new();
    let mut a = Session::guarded(&tree, "A", &[]);
    // The writer of the record looks at what waits ever less often: it must have gone to its longest pause.
    for number in 0..5 {
        assert!(!wait_until(Duration::from_millis(150), || false));
        fine(&a.sh(&format!("echo x >f{number}")));
        let log = works(&tree, &["log", "--path", &format!("/f{number}")]);
        assert!(log.contains(&format!(": create f{number}\n")), "{number}: {log}");
    }
    tree.write("h", "old\n");
    assert_ne!(a.sh("echo x >h").code, 0);
    let report = works(&tree, &["report"]);
    assert!(report.starts_with("1 change was refused, 5 were made\n"), "{report}");
    assert!(report.contains("# Proposed from what was refused: "), "{report}");
    // The proposal alone is a file of rules.
    let rules = works(&tree, &["report", "--toml"]);
    assert!(
        report.ends_with(&rules) && rules.starts_with("# Proposed from"),
        "{rules}"
    );
    tree.write(".unclobber.toml", &rules);
    // It fails where the file is wrong.
    works(&tree, &["rules", "h"]);
    // Many alike are one line and a count.
    tree.write("g", "old\n");
    assert_ne!(a.sh("for i in $(seq 50); do echo x >g; done").code, 0);
    let log = works(&tree, &["log", "--path", "/g"]);
    assert_eq!(log.lines().count(), 2, "{log}");
    assert!(log.ends_with("  A: open g: the same again, 49 times\n"), "{log}");
}

// semantics: E8
#[test]
fn the_path_that_run_names_can_be_used_where_it_was_started() {
    if !require_fuse("run's lines") {
        return;
    }
    let tree = Tree::new();
    tree.write("sub/deep/q.txt", "old\n");
    let run = |words: &[&str], from: &str| {
        let mut command = tree.unclobber();
        command.arg("run").args(words).current_dir(tree.root().join(from));
        let done = command.output().expect("run");
        assert!(!done.status.success(), "{done:?}");
        String::from_utf8_lossy(&done.stderr).into_owned()
    };
    // Here the directory above is the workspace, and the file is named from within.
    let root = tree.root().canonicalize().expect("the tree's path");
    let workspace = root.to_string_lossy().into_owned();
    let below = [
        "--workspace",
        &workspace,
        "--owner",
        "A",
        "--",
        "sh",
        "-c",
        "echo y >q.txt",
    ];
    let said = run(&below, "sub/deep");
    let path = format!("{workspace}/sub/deep/q.txt");
    assert!(said.contains(&format!("unclobber: refused: open {path}: ")), "{said}");
    assert!(
        said.contains(&format!("unclobber:   1 x open {path}: read the file, then retry\n")),
        "{said}"
    );
    assert!(!said.contains("without --owner"), "{said}");
    // From the workspace itself the short path leads there, and a nameless owner is of one run.
    let said = run(&["--", "sh", "-c", "echo y >sub/deep/q.txt"], "");
    assert!(said.contains("unclobber: refused: open sub/deep/q.txt: "), "{said}");
    assert!(
        said.ends_with(
            "unclobber:   1 x open sub/deep/q.txt: read the file, then retry\n\
             unclobber: each `run` without --owner is an owner of its own: read and retry in one `run`, or give both the \
             same --owner NAME\n"
        ),
        "{said}"
    );
}

// semantics: W10
#[test]
fn inside_a_run_what_others_did_is_not_shown() {
    if !require_fuse("log inside") {
        return;
    }
    let tree = Tree::new();
    let (mut a, mut b) = (Session::guarded(&tree, "A", &[]), Session::guarded(&tree, "B", &[]));
    fine(&a.sh("echo x >of-a"));
    fine(&b.sh("echo x >of-b"));
    let program = common::tree::program();
    let mut inside = |words: &str| a.sh(&format!("'{}' {words}", program.display()));
    let log = inside("log");
    assert!(
        log.stdout.contains("create of-a") && !log.stdout.contains("of-b"),
        "{log:?}"
    );
    assert!(
        log.stderr.contains("what owner A and those below it did is shown"),
        "{log:?}"
    );
    let other = inside("log --owner B");
    assert!(
        other.code == 1 && other.stderr.contains("ask outside the run"),
        "{other:?}"
    );
    let report = inside("report");
    assert!(
        report.stdout.starts_with("0 changes were refused, 1 was made\n"),
        "{report:?}"
    );
    let status = inside("status");
    assert!(
        status.stdout.contains("\n    A  ") && !status.stdout.contains("\n    B  "),
        "{status:?}"
    );
    let nested = inside("run --owner b -- sh -c 'echo x >below'");
    fine(&nested);
    assert!(inside("log --owner A/b").stdout.contains("create below"));
    let all = works(&tree, &["log"]);
    assert!(all.contains("create of-a") && all.contains("create of-b"), "{all}");
    let status = works(&tree, &["status"]);
    assert!(status.contains("\n    A  ") && status.contains("\n    B  "), "{status}");
}
