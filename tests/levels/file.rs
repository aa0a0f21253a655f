//! The workspace's own file of rules: wrong, changed, and not to be changed by owners.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use super::common::session::Session;
use super::common::tree::{Tree, require_fuse};
use super::common::wait::{PATIENCE, wait_until};
use super::{EXISTS_TEXT, RULES, comes_to_work, fine, guarded, is_kept, refused, rule};

const READ_ONLY_TEXT: &str = "Read-only file system";

// semantics: L11
#[test]
fn a_wrong_file_of_rules_is_told_with_line_and_column() {
    if !require_fuse("a wrong file of rules") {
        return;
    }
    let wrong = [
        (
            "[[rule]]\npattern = \"x\"\nlevel = \"kept\"\n",
            ":3:9: ",
            "guard, keep or off",
        ),
        (
            "# mine\n [rule] # one\npattern = \"x\"\nlevel = \"keep\"\n",
            ":2:2: ",
            "[rule] must be [[rule]]",
        ),
        (
            "[rule]\npattern = \"x\"\nlevel = \"keep\"\n[rule]\npattern = \"y\"\nlevel = \"keep\"\n",
            ":1:1: ",
            "[rule] must be [[rule]]",
        ),
        ("[[rule]]\npattern = \"x\"\nlevl = \"keep\"\n", ":3:1: ", "levl"),
        (
            "[[rule]]\npattern = \"[z-a]\"\nlevel = \"keep\"\n",
            ":2:11: ",
            "pattern",
        ),
        ("[[rule]]\npattern = \"!x\"\nlevel = \"keep\"\n", ":2:11: ", "!"),
        ("[[rule]]\npattern = \"x\nlevel = \"keep\"\n", ":2:", "x"),
        (
            "[[rule]]\npattern = \"x\"\nlevel = \"keep\"\ncommand = \"git\"\n",
            ":4:11: ",
            "absolute",
        ),
        ("# \u{e9}\n\n[[rules]]\n", ":3:3: ", "rules"),
    ];
    for (text, place, why) in wrong {
        let tree = Tree::new();
        tree.write(RULES, text);
        let run = tree
            .unclobber()
            .args(["run", "--linger", "0", "-w"])
            .arg(tree.root())
            .args(["--", "touch", "ran"])
            .output()
            .expect("unclobber run");
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.status.code(), Some(125), "{said}");
        assert!(
            said.contains(&format!("{RULES}{place}")) && said.contains(why),
            "{text}: {said}"
        );
        assert_eq!(tree.read("ran"), None);
        let mount = tree
            .unclobber()
            .args(["mount", "--linger", "0"])
            .arg(tree.root())
            .arg(tree.mount_point())
            .output()
            .expect("unclobber mount");
        let said = String::from_utf8_lossy(&mount.stderr).into_owned();
        assert_eq!(mount.status.code(), Some(1), "{said}");
        assert!(said.contains(&format!("{RULES}{place}")), "{said}");
    }
    let tree = Tree::new();
    let word = tree
        .unclobber()
        .args(["run", "--rule", "kept:x", "--", "true"])
        .output()
        .expect("unclobber run");
    assert_eq!(word.status.code(), Some(2), "{word:?}");
}

// semantics: L11
#[test]
fn an_unreadable_file_of_rules_is_told() {
    if !require_fuse("an unreadable file of rules") {
        return;
    }
    let tree = Tree::new();
    std::os::unix::fs::symlink("elsewhere", tree.at(RULES)).expect("a link");
    let run = tree
        .unclobber()
        .args(["run", "--linger", "0", "-w"])
        .arg(tree.root())
        .args(["--", "true"])
        .output()
        .expect("unclobber run");
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(
        run.status.code() == Some(125) && said.contains("symbolic link"),
        "{said}"
    );
}

// semantics: L12
#[test]
fn a_later_change_of_the_rules_is_taken_up_if_it_is_right() {
    let rules = rule("x", "keep");
    let Some((tree, mut a)) = guarded(
        "rules change",
        &[(RULES, &rules), ("x", "1 old\n"), ("y", "2 old\n")],
        &[],
    ) else {
        return;
    };
    refused(&a.sh("echo mine >y"), EXISTS_TEXT);
    tree.write(RULES, "[[rule]]\npattern = 1\n");
    let told = |a: &mut Session, text: &str| {
        let told = wait_until(PATIENCE, || a.said().iter().any(|line| line.contains(text)));
        assert!(told, "{text:?}: {:?}", a.said());
    };
    told(&mut a, ".unclobber.toml:2:11: ");
    told(&mut a, "the rules as they were hold");
    fine(&a.sh("echo mine >x"));
    assert!(is_kept(&tree, "1 old\n"));
    let status = tree.unclobber().args(["status"]).output().expect("unclobber status");
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(status.contains(".unclobber.toml:2:11: "), "{status}");
    tree.write(RULES, &rule("y", "keep"));
    comes_to_work(&mut a, "echo mine >y");
    tree.write("x", "3 changed\n");
    refused(&a.sh("echo mine >x"), "Stale file handle");
    tree.remove(RULES);
    let guarded = wait_until(PATIENCE, || {
        tree.write("y", "4 changed\n");
        a.sh("echo mine >y").stderr.contains("Stale file handle")
    });
    assert!(guarded, "the rules that are gone still hold");
}

// semantics: L13
#[test]
fn owners_cannot_change_their_own_rules() {
    let rules = rule("docs/**", "keep");
    let Some((tree, mut a)) = guarded("rules are read-only", &[(RULES, &rules), ("f", "old\n")], &[]) else {
        return;
    };
    let before = fs::metadata(tree.at(RULES)).expect("the rules");
    fine(&a.sh("cat .unclobber.toml; echo mine >new"));
    let tries = [
        "echo >.unclobber.toml",
        "echo >>.unclobber.toml",
        "truncate -s 0 .unclobber.toml",
        "rm -f .unclobber.toml",
        "mv new .unclobber.toml",
        "mv .unclobber.toml old.toml",
        "cp -f new .unclobber.toml",
        "cp --remove-destination new .unclobber.toml",
        "sed -i s/keep/off/ .unclobber.toml",
        "ln .unclobber.toml other",
        "ln -sf new .unclobber.toml",
        "chmod 600 .unclobber.toml",
        "touch .unclobber.toml",
        "python3 -c 'import os; os.open(\".unclobber.toml\", os.O_RDWR)'",
        "python3 -c 'import os; os.setxattr(\".unclobber.toml\", \"user.x\", b\"1\")'",
    ];
    for text in tries {
        refused(&a.sh(text), READ_ONLY_TEXT);
    }
    let after = fs::metadata(tree.at(RULES)).expect("the rules");
    assert_eq!(
        (before.ino(), before.mtime(), before.ctime()),
        (after.ino(), after.mtime(), after.ctime())
    );
    assert_eq!(tree.read(RULES), Some(rules));
    let told = wait_until(PATIENCE, || {
        a.said().iter().any(|line| line.contains("--rules-writable"))
    });
    assert!(told, "{:?}", a.said());
    // The step: outside.
    tree.write(RULES, &rule("f", "keep"));
    comes_to_work(&mut a, "echo mine >f");
    // Where there is none, none can be made; below the root the name is like any other.
    tree.remove(RULES);
    refused(&a.sh("cp new .unclobber.toml"), READ_ONLY_TEXT);
    refused(&a.sh("mkdir .unclobber.toml"), READ_ONLY_TEXT);
    fine(&a.sh("mkdir d; echo >d/.unclobber.toml; rm d/.unclobber.toml"));
}

// semantics: L13
#[test]
fn a_mount_may_let_owners_change_the_rules() {
    let Some((tree, mut a)) = guarded("rules are writable", &[("f", "old\n")], &["--rules-writable"]) else {
        return;
    };
    fine(&a.sh("printf '[[rule]]\\npattern = \"f\"\\nlevel = \"keep\"\\n' >.unclobber.toml"));
    comes_to_work(&mut a, "echo mine >f");
    assert!(is_kept(&tree, "old\n"));
    // It is guarded like any other file.
    tree.write(RULES, &rule("g", "keep"));
    refused(&a.sh("echo >.unclobber.toml"), "Stale file handle");
    fine(&a.sh("cat .unclobber.toml; echo >.unclobber.toml"));
}
