//! Rules for single programs.

use std::fs;

use super::common::STALE;
use super::common::tree::{Tree, require_fuse, tool_is_there};
use super::{EXISTS_TEXT, RULES, fine, guarded, is_kept, refused, rule_for};

// semantics: L14
#[test]
fn a_rule_for_a_command_holds_for_the_program_and_not_for_its_name() {
    if !tool_is_there("dd") {
        return;
    }
    let dd = fs::canonicalize("/usr/bin/dd")
        .or_else(|_| fs::canonicalize("/bin/dd"))
        .expect("dd");
    let rules = rule_for("work/**", "keep", &dd.display().to_string());
    let names: Vec<String> = (1..=8).map(|number| format!("work/f{number}")).collect();
    let mut files = vec![(RULES, rules.as_str())];
    files.extend(names.iter().map(|name| (name.as_str(), "old\n")));
    let Some((tree, mut a)) = guarded("a rule for a command", &files, &[]) else {
        return;
    };
    let write = |program: &str, name: &str| format!("echo mine | {program} of={name} status=none");
    fine(&a.sh(&write("dd", "work/f1")));
    assert!(is_kept(&tree, "old\n"));
    // Another process, a copy by the same name, and a shell that is not it.
    refused(&a.sh("echo mine >work/f2"), EXISTS_TEXT);
    let copy = tree.scratch().join("dd");
    fs::copy(&dd, &copy).expect("a copy");
    refused(&a.sh(&write(&copy.display().to_string(), "work/f3")), EXISTS_TEXT);
    // The same file by another name is the same program.
    fine(&a.sh(&format!(
        "ln -s {} \"$HOME/other\"; {}",
        dd.display(),
        write("\"$HOME/other\"", "work/f4")
    )));
    // Who becomes another program is that; who becomes this one is this one.
    fine(&a.sh("echo mine | sh -c 'exec dd of=work/f5 status=none'"));
    refused(
        &a.sh("python3 -c 'import os; os.execvp(\"sh\", [\"sh\", \"-c\", \"echo mine >work/f6\"])'"),
        EXISTS_TEXT,
    );
    // At the same time others are judged as ever, whoever looked first.
    fine(&a.sh("cat work/f7 >/dev/null"));
    tree.write("work/f7", "changed\n");
    refused(&a.sh("echo mine >work/f7"), "Stale file handle");
    fine(&a.sh(&write("dd", "work/f7")));
    refused(&a.sh("echo mine >work/f8"), EXISTS_TEXT);
    assert!(a.told("work/f7", STALE));
}

// semantics: L14
#[test]
fn what_a_trusted_command_starts_is_not_it() {
    let sh = fs::canonicalize("/bin/sh").expect("sh").display().to_string();
    let rules = rule_for("**", "off", &sh);
    let files = [(RULES, rules.as_str()), ("f", "old\n"), ("g", "old\n"), ("h", "old\n")];
    let Some((tree, mut a)) = guarded("children of a command", &files, &[]) else {
        return;
    };
    fine(&a.sh("echo mine >f"));
    refused(&a.sh("echo mine | tee g"), EXISTS_TEXT);
    // Off for one is not off for others, although both have the file open.
    refused(&a.sh("exec 3<>h; echo mine | dd of=h status=none"), EXISTS_TEXT);
    assert_eq!(tree.read("g").as_deref(), Some("old\n"));
    assert_eq!(tree.read("h").as_deref(), Some("old\n"));
}

// semantics: L14
#[test]
fn a_script_is_no_command_and_nothing_inside_is_trusted() {
    if !require_fuse("commands that cannot be told") {
        return;
    }
    let tree = Tree::new();
    let script = tree.scratch().join("script");
    fs::write(&script, "#!/bin/sh\n").expect("a script");
    let inside = tree.at("tool");
    for (command, why) in [(script, "interpreter"), (inside, "workspace")] {
        tree.write(RULES, &rule_for("x", "keep", &command.display().to_string()));
        let run = tree
            .unclobber()
            .args(["run", "--linger", "0", "-w"])
            .arg(tree.root())
            .args(["--", "true"])
            .output()
            .expect("unclobber run");
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert!(
            run.status.code() == Some(125) && said.contains(why) && said.contains(":4:11: "),
            "{said}"
        );
    }
}
