//! What screens say where the step is not "read it": the right path, where content is that is not where it was to be, whom to
//! wait for, and how a record ends.

#[expect(dead_code, reason = "each test program uses its own part of the harness")]
mod common;

use std::fs;

use common::session::{Session, fine, refused};
use common::tree::{Tree, program, require_fuse, run, tool_is_there, works};
use common::wait::{PATIENCE, wait_until};
use serde_json::Value;

const READ: &str = "read the file, then retry";

/// A shell of each of two owners in a tree with these files.
fn pair(test: &str, files: &[&str]) -> Option<(Tree, Session, Session)> {
    if !require_fuse(test) {
        return None;
    }
    let tree = Tree::new();
    for name in files {
        tree.write(name, "old\n");
    }
    let (a, b) = (Session::guarded(&tree, "a", &[]), Session::guarded(&tree, "b", &[]));
    Some((tree, a, b))
}

/// The line of a refusal of this path.
fn line_of(session: &mut Session, path: &str) -> String {
    let start = format!(" {path}: FS_");
    let find = |session: &mut Session| session.said().into_iter().rev().find(|line| line.contains(&start));
    assert!(wait_until(PATIENCE, || find(session).is_some()), "{:?}", session.said());
    find(session).unwrap_or_default()
}

fn names(tree: &Tree) -> Vec<String> {
    let found = fs::read_dir(tree.root()).expect("the tree").map_while(Result::ok);
    let mut names: Vec<String> = found
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.retain(|name| name != ".unclobber");
    names.sort();
    names
}

/// The events on record so far.
fn events(tree: &Tree) -> Vec<Value> {
    let text = works(tree, &["log", "--json"]);
    text.lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

// semantics: D23 E7
#[test]
fn a_forced_link_is_refused_for_its_target_and_leaves_nothing_behind() {
    let Some((tree, mut a, mut b)) = pair("ln -f", &["f", "g", "s"]) else {
        return;
    };
    // The source is unread and another owner's; then one that has changed since it was read.
    fine(&a.sh("cat s g"));
    fine(&b.sh("echo new >other; cat s; echo changed >s"));
    for (source, target) in [("other", "f"), ("s", "f")] {
        refused(&a.sh(&format!("ln -f {source} {target}")), "File exists");
        let line = line_of(&mut a, target);
        assert!(line.contains("FS_NOT_OBSERVED") && line.ends_with(READ), "{line}");
        assert_eq!(names(&tree), ["f", "g", "other", "s"]);
        assert_eq!(tree.read("f").as_deref(), Some("old\n"));
    }
    assert!(a.said().iter().all(|line| !line.contains(" Cu")), "{:?}", a.said());
    // The step, and what needs none.
    fine(&a.sh("cat f; ln -f other f; ln -f s g"));
    assert_eq!(
        (tree.read("f").as_deref(), tree.read("g").as_deref()),
        (Some("new\n"), Some("changed\n"))
    );
    assert_eq!(names(&tree), ["f", "g", "other", "s"]);
    drop(b);
    let said = a.close();
    let summed: Vec<&String> = said.iter().filter(|line| line.contains(" x rename f: ")).collect();
    assert_eq!(summed.len(), 1, "{said:?}");
    assert!(
        summed[0].ends_with("cleared, the change was made afterwards"),
        "{said:?}"
    );
}

// semantics: D23
#[test]
fn a_further_name_of_ones_own_may_go_and_nobodys_content_with_it() {
    let Some((tree, mut a, mut b)) = pair("a further name", &["s"]) else {
        return;
    };
    fine(&b.sh("cat s; echo theirs >s"));
    refused(&a.sh("rm s"), "Device or resource busy");
    fine(&a.sh("ln s l; rm l; ln s l; mv l m; rm m"));
    assert_eq!(tree.read("s").as_deref(), Some("theirs\n"));
    // Once somebody has changed it by that name, it may be theirs that goes.
    fine(&a.sh("ln s l"));
    fine(&b.sh("echo more >>l"));
    for change in ["rm l", "mv l m"] {
        assert!(!a.sh(change).ok(), "{change}");
    }
    fine(&a.sh("cat l; rm l"));
    // The last name is no further one.
    fine(&b.sh("echo again >>s"));
    fine(&a.sh("ln s l"));
    fine(&b.sh("rm s"));
    assert!(!a.sh("rm l").ok());
    assert_eq!(tree.read("l").as_deref(), Some("theirs\nmore\nagain\n"));
    // It does not make what is at it unguarded either.
    fine(&b.sh("echo b >t"));
    fine(&a.sh("mkdir -p node_modules; ln t l2; mv l2 node_modules/l2"));
    refused(&a.sh("echo mine >node_modules/l2"), "File exists");
}

/// What `why` says of a's view of a path through another mount.
fn why_at_another_place(tree: &Tree, path: &str) -> String {
    let point = tree.scratch().join("point");
    fs::create_dir(&point).expect("a mount point");
    let (root, point) = (
        tree.root().to_string_lossy().into_owned(),
        point.to_string_lossy().into_owned(),
    );
    works(tree, &["mount", &root, &point]);
    let there = run(tree, &["why", "--owner", "a", &format!("{point}/{path}")]);
    works(tree, &["umount", &point]);
    String::from_utf8_lossy(&there.stdout).into_owned()
}

// semantics: D22 R1 W1
#[test]
fn what_was_written_too_late_is_said_to_be_where_it_is() {
    let Some((tree, mut a, mut b)) = pair("a late write", &[]) else {
        return;
    };
    fine(&a.sh("exec 3>f; echo half >&3"));
    fine(&b.sh("cat f; echo theirs >t; mv t f"));
    a.sh("echo late >&3; exec 3>&-");
    let line = line_of(&mut a, "f");
    assert!(
        line.contains("what \"a\" wrote is NOT in the file at this path"),
        "{line}"
    );
    let (_, rest) = line.split_once("`unclobber ").expect("a command");
    let (command, _) = rest.split_once('`').expect("its end");
    let words: Vec<&str> = command.split(' ').collect();
    assert_eq!(words[..2], ["attic", "show"], "{line}");
    assert_eq!(works(&tree, &words), "half\nlate\n");
    assert_eq!(tree.read("f").as_deref(), Some("theirs\n"));
    let why = a.sh(&format!("'{}' why f", program().display()));
    assert!(why.stdout.contains("is NOT in this file, but in the attic"), "{why:?}");
    let shown = format!("`unclobber attic show -w {} {}`", tree.root().display(), words[2]);
    assert!(why.stdout.contains(&shown), "{shown}\n{why:?}");
    let own = a.sh("cat .unclobber/refusals").stdout;
    assert!(own.contains(&shown), "{own}");
    let outside = String::from_utf8_lossy(&run(&tree, &["why", "f"]).stdout).into_owned();
    assert!(
        outside.contains("what \"a\" wrote ") && outside.contains(&shown),
        "{outside}"
    );
    // Through a mount at another place the command names the directory itself, too.
    let there = why_at_another_place(&tree, "f");
    assert!(there.contains(&shown), "{shown}\n{there}");
    let listed = works(&tree, &["attic", "list"]);
    let label = "f (renamed over by b while a was writing it; holds what a wrote then, which is NOT in f)";
    assert!(listed.contains(label), "{listed}");
    // One story: b's rename keeps it, a is refused, and nothing says that a changed f after that.
    let told: Vec<(String, String)> = events(&tree)
        .iter()
        .filter(|event| event["path"] == "f" || event["to"] == "f")
        .map(|event| {
            let of = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
            (of("owner"), of("event"))
        })
        .collect();
    let told: Vec<(&str, &str)> = told.iter().map(|(owner, event)| (&**owner, &**event)).collect();
    assert_eq!(
        told,
        [
            ("a", "change"),
            ("a", "change"),
            ("b", "kept"),
            ("b", "change"),
            ("a", "refusal")
        ]
    );
    let refusal = events(&tree)
        .into_iter()
        .find(|event| event["event"] == "refusal")
        .expect("one");
    assert_eq!(
        (&refusal["id"], &refusal["rule"]),
        (&words[2].into(), &"D22".into()),
        "{refusal}"
    );
    // Reading the file brings nothing back.
    fine(&a.sh("cat f"));
    let said = a.close();
    let summed = said
        .iter()
        .find(|line| line.contains(" x write f: "))
        .expect("a summary");
    assert!(
        summed.contains("what was written is NOT in the file, but kept in the attic: `unclobber attic show "),
        "{summed}"
    );
    assert!(!summed.contains("cleared"), "{summed}");
}

// semantics: D22
#[test]
fn what_was_written_too_late_and_then_anew_is_cleared() {
    let Some((tree, mut a, mut b)) = pair("a late write, anew", &[]) else {
        return;
    };
    fine(&a.sh("exec 3>f; echo half >&3"));
    fine(&b.sh("cat f; rm f"));
    a.sh("echo late >&3; exec 3>&-");
    let line = line_of(&mut a, "f");
    assert!(line.contains("look at the path again"), "{line}");
    let why = |a: &mut Session| a.sh(&format!("'{}' why f", program().display())).stdout;
    let told = why(&mut a);
    assert!(told.contains("is NOT in this file"), "{told}");
    fine(&a.sh("! ls f; echo anew >f"));
    assert_eq!(tree.read("f").as_deref(), Some("anew\n"));
    let told = why(&mut a);
    assert!(
        !told.contains("is NOT in this file") && told.contains("ALLOWED"),
        "{told}"
    );
    // Whatever somebody else does to it then.
    fine(&b.sh("cat f; echo more >f"));
    let told = why(&mut a);
    assert!(!told.contains("is NOT in this file"), "{told}");
    fine(&a.sh("cat f; echo anew >f"));
    let said = a.close();
    let summed = said
        .iter()
        .find(|line| line.contains(" x write f: "))
        .expect("a summary");
    let words =
        "cleared, the change was made afterwards; what was written before is in the attic: `unclobber attic show ";
    assert!(summed.contains(words), "{summed}");
}

// semantics: D22 A11
#[test]
fn what_was_written_too_late_and_not_kept_is_never_said_to_be_cleared() {
    if !require_fuse("a late write, not kept") {
        return;
    }
    let tree = Tree::new();
    let mut a = Session::guarded(&tree, "a", &["--attic", "off"]);
    let mut b = Session::guarded(&tree, "b", &[]);
    fine(&a.sh("exec 3>f; echo half >&3"));
    fine(&a.sh("exec 4>g; echo half >&4"));
    fine(&b.sh("cat f g; echo theirs >t; mv t f; rm g; echo theirs >g"));
    a.sh("echo late >&3; exec 3>&-; echo late >&4; exec 4>&-");
    for name in ["f", "g"] {
        let line = line_of(&mut a, name);
        assert!(
            line.contains("wrote is NOT in the file at this path, and nothing was kept"),
            "{line}"
        );
    }
    fine(&a.sh("cat f g"));
    let said = a.close();
    for name in ["f", "g"] {
        let line = format!(" x write {name}: what was written is NOT in the file, and nothing was kept; read the file");
        assert!(said.iter().any(|said| said.contains(&line)), "{said:?}");
    }
}

// semantics: D21 E8 W1
#[test]
fn whom_to_wait_for_is_named() {
    let Some((_tree, mut a, mut b)) = pair("the writer", &["f", "g"]) else {
        return;
    };
    fine(&a.sh("cat f"));
    fine(&b.sh("cat f g; exec 3>f 4>g; echo half >&3; echo half >&4"));
    refused(&a.sh("echo mine >f"), "Stale file handle");
    refused(&a.sh("echo mine >g"), "File exists");
    let pid = b.sh("echo $$").stdout.trim().to_owned();
    for name in ["f", "g"] {
        let line = line_of(&mut a, name);
        let writer = format!("owner \"b\" (sh, process {pid}), who opened it ");
        assert!(
            line.contains(&writer) && line.contains("reading it does not help before that is closed"),
            "{line}"
        );
        let why = a.sh(&format!("'{}' why {name}", program().display()));
        let wait = format!("  first wait:    owner \"b\" has it open for writing (sh, process {pid}, opened ");
        assert!(why.stdout.contains(&wait), "{wait}\n{why:?}");
        assert!(
            why.stdout.contains(&format!(
                "`unclobber why {name}` says when that is over\n  and then:      cat {name}\n"
            )),
            "{why:?}"
        );
    }
    fine(&b.sh("exec 3>&- 4>&-"));
    fine(&a.sh("cat f g; echo mine >f; echo mine >g"));
}

// semantics: R1
#[test]
fn what_is_gone_is_over_and_not_cleared() {
    let Some((tree, mut a, mut b)) = pair("what is gone", &["s"]) else {
        return;
    };
    let report = tree.scratch().join("report.json");
    fine(&b.sh("cat s; echo theirs >s"));
    let mut c = Session::guarded(&tree, "c", &[&format!("--report={}", report.display())]);
    for session in [&mut a, &mut c] {
        refused(&session.sh("rm s"), "Device or resource busy");
    }
    fine(&b.sh("rm s"));
    assert!(wait_until(PATIENCE, || !a.sh("ls s").ok()));
    for session in [a, c] {
        let said = session.close();
        let summed = said.iter().find(|line| line.contains(" x unlink s: ")).cloned();
        let summed = summed.unwrap_or_default();
        assert!(summed.ends_with("over, nothing is there any more"), "{said:?}");
    }
    let summed: Value = serde_json::from_str(&fs::read_to_string(&report).expect("a report")).expect("JSON");
    let refusal = &summed["owners"][0]["refusals"][0];
    assert_eq!(
        (&refusal["cleared"], &refusal["intent"]),
        (&"gone".into(), &"remove".into()),
        "{refusal}"
    );
}

// semantics: R1 W4
#[test]
fn the_summary_names_the_command_that_shows_what_has_changed() {
    let Some((tree, mut a, mut b)) = pair("what has changed", &["f"]) else {
        return;
    };
    fine(&a.sh("cat f"));
    fine(&b.sh("cat f; echo new >f"));
    refused(&a.sh("echo mine >f"), "Stale file handle");
    let lines = a.close();
    let command = lines
        .iter()
        .find_map(|line| line.split_once("what has changed since it was read: unclobber "))
        .map(|(_, command)| command.to_owned());
    assert_eq!(command.as_deref(), Some("why --owner a --diff f"), "{lines:?}");
    let shown = run(&tree, &["why", "--owner", "a", "--diff", "f"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("-old\n+new\n"), "{shown}");
}

// semantics: E12 L13 R1 R2 E8
#[test]
fn a_change_of_the_rules_is_refused_on_record() {
    let Some((tree, mut a, _b)) = pair("the rules on record", &[]) else {
        return;
    };
    refused(&a.sh("echo >.unclobber.toml"), "Read-only file system");
    refused(
        &a.sh("echo >.unclobber.toml; mkdir .unclobber.toml"),
        "Read-only file system",
    );
    let line = line_of(&mut a, ".unclobber.toml");
    let step = "change .unclobber.toml outside the mount, or use --rules-writable";
    assert!(
        line.contains("FS_RULES_FIXED (Read-only file system)") && line.ends_with(step),
        "{line}"
    );
    let log = works(&tree, &["log", "--refused"]);
    assert!(log.contains("create .unclobber.toml: FS_RULES_FIXED"), "{log}");
    let own = a.sh("cat .unclobber/refusals").stdout;
    assert!(own.contains("FS_RULES_FIXED"), "{own}");
    let why = a.sh(&format!("'{}' why .unclobber.toml", program().display()));
    assert!(
        why.stdout
            .contains("REFUSED, with the error \"Read-only file system\" (FS_RULES_FIXED)")
            && why.stdout.contains("last refusal")
            && why.stdout.contains(&format!("what to do next: {step}")),
        "{why:?}"
    );
    let metrics = works(&tree, &["status", "--metrics", "."]);
    let of_code = metrics
        .lines()
        .find(|line| line.contains("code=\"FS_RULES_FIXED\""))
        .unwrap_or_default();
    assert!(of_code.ends_with(" 3"), "{of_code}");
    let said = a.close();
    assert!(
        said.iter()
            .any(|line| line.ends_with(&format!("2 x create .unclobber.toml: {step}"))),
        "{said:?}"
    );
}

// semantics: R2
#[test]
fn a_record_says_that_its_guard_was_killed() {
    let Some((tree, mut a, b)) = pair("a killed guard", &[]) else {
        return;
    };
    fine(&a.sh("echo x >f"));
    assert!(works(&tree, &["log"]).contains("create f\n"));
    let begun = |tree: &Tree| -> Vec<Value> {
        events(tree)
            .into_iter()
            .filter(|event| event["event"] == "begin")
            .collect()
    };
    let all = events(&tree);
    assert!(
        all[0]["event"] == "begin" && all[0].get("unended").is_none(),
        "{all:#?}"
    );
    assert!(
        all[0]["time"].as_str() <= all[1]["time"].as_str(),
        "it began after its first event: {all:#?}"
    );
    let status: Value = serde_json::from_str(&works(&tree, &["status", "--json", "."])).expect("JSON");
    let pid = status["guards"][0]["pid"]
        .as_i64()
        .and_then(|pid| i32::try_from(pid).ok())
        .expect("its process");
    unclobber::sys::kill(pid, unclobber::sys::SIGKILL).expect("kill");
    drop((a, b));
    assert!(wait_until(PATIENCE, || !std::path::Path::new(&format!("/proc/{pid}")).exists()));
    let log = run(&tree, &["log"]);
    let said = String::from_utf8_lossy(&log.stderr).into_owned();
    assert!(said.contains("the record has no end: its guard was killed"), "{log:?}");
    let mut a = Session::guarded(&tree, "a", &[]);
    fine(&a.sh("echo x >g"));
    let log = works(&tree, &["log"]);
    assert!(
        log.contains("begins; the record before has no end: that guard was killed"),
        "{log}"
    );
    assert_eq!(begun(&tree)[1]["unended"], true);
    drop(a);
    let gone = || works(&tree, &["log"]).ends_with("the guard ends\n");
    assert!(wait_until(PATIENCE, gone));
    assert!(!String::from_utf8_lossy(&run(&tree, &["log"]).stderr).contains("no end"));
}

#[test]
fn a_pattern_that_is_none_is_said_to_be_so() {
    let tree = Tree::new();
    let done = run(&tree, &["log", "--events", "/dev/null", "--path", "["]);
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(2), "{done:?}");
    assert!(
        said.contains("wrong command line: --path") && said.contains("unclosed"),
        "{said}"
    );
}

// semantics: L15
#[test]
fn of_what_is_not_there_the_rules_that_would_hold_are_told() {
    let tree = Tree::new();
    let told = |path: &str| works(&tree, &["rules", "-w", ".", path]);
    let inside = told("node_modules/x");
    assert!(
        inside.starts_with("node_modules/x: off, by built-in rule node_modules:"),
        "{inside}"
    );
    let itself = told("node_modules");
    assert!(
        itself.starts_with("node_modules: guard, no rule") && itself.contains("nothing is there now; for a directory by that name, and what is in it: off, by built-in rule node_modules"),
        "{itself}"
    );
    tree.write("f", "");
    assert!(!told("f").contains("nothing is there"), "{}", told("f"));
}

// semantics: W1 L12
#[test]
fn why_says_that_the_rules_are_wrong() {
    if !require_fuse("why: wrong rules") {
        return;
    }
    let tree = Tree::new();
    tree.write("f", "old\n");
    {
        let words = ["run", "--owner", "a", "--linger", "60", "--", "cat", "f"];
        works(&tree, &words);
    }
    tree.write(".unclobber.toml", "[[rule]]\nnonsense = 1\n");
    let done = run(&tree, &["why", "--owner", "a", "f"]);
    let screen = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(
        screen.contains(".unclobber.toml:2")
            && screen.contains("`run` and `mount` refuse to start until that is corrected"),
        "{screen}"
    );
    tree.remove(".unclobber.toml");
    let done = run(&tree, &["why", "--owner", "a", "f"]);
    assert!(
        !String::from_utf8_lossy(&done.stdout).contains("refuse to start"),
        "{done:?}"
    );
}

// semantics: A10
#[test]
fn an_undo_says_whose_later_change_it_puts_aside() {
    let Some((tree, mut a, mut b)) = pair("undo over another's change", &["f"]) else {
        return;
    };
    fine(&a.sh("cat f; echo from a >f"));
    fine(&b.sh("cat f; printf 'from b' | dd of=f conv=notrunc status=none"));
    let told = works(&tree, &["undo", "--owner", "a"]);
    assert!(
        told.contains(
            "restored f; what was there, changed since then by owner \"b\", is NOT in it any more, and kept as "
        ),
        "{told}"
    );
    let (_, rest) = told.split_once("`unclobber ").expect("a command");
    let (command, _) = rest.split_once('`').expect("its end");
    assert_eq!(works(&tree, &command.split(' ').collect::<Vec<_>>()), "from b\n");
    assert_eq!(tree.read("f").as_deref(), Some("old\n"));
    // Nothing is left to undo: it is said how to get at what is kept.
    let hint = |words: &[&str]| {
        let done = run(&tree, words);
        assert_eq!(done.status.code(), Some(1), "{done:?}");
        String::from_utf8_lossy(&done.stderr).into_owned()
    };
    let other = hint(&["undo", "--owner", "c"]);
    assert!(
        other.contains("nothing to undo") && other.contains("attic list"),
        "{other}"
    );
    fine(&b.sh("cat f; echo more >f"));
    let other = hint(&["undo", "--owner", "c"]);
    assert!(other.contains("changes of b displaced"), "{other}");
}

// semantics: D14
#[test]
fn a_mount_that_observes_keeps_nothing_and_counts_no_refusals() {
    if !require_fuse("observing") || !tool_is_there("rm") {
        return;
    }
    let tree = Tree::new();
    tree.write("f", "old\n");
    tree.write("g", "old\n");
    let mut a = Session::guarded(&tree, "a", &["--mode", "observe"]);
    fine(&a.sh("echo x >f; rm g"));
    let status = works(&tree, &["status", "."]);
    let row = status
        .lines()
        .find(|line| line.trim_start().starts_with("a "))
        .unwrap_or_default();
    let numbers: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(numbers, ["a", "0", "0", "1"], "{status}");
    assert!(status.contains("would be refused"), "{status}");
    assert_eq!(works(&tree, &["attic", "list"]), "nothing is kept\n");
}
