//! What is said of rules that are wrong, and of paths they say nothing of.

use std::process::Output;

use super::RULES;
use super::common::tree::{Tree, require_fuse};

fn asked(tree: &Tree, words: &[&str]) -> (Option<i32>, String, String) {
    let mut command = tree.unclobber();
    let done: Output = command
        .args(words)
        .current_dir(tree.root())
        .output()
        .expect("the program starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (done.status.code(), text(&done.stdout), text(&done.stderr))
}

// semantics: L3
#[test]
fn doctor_fails_where_the_rules_cannot_be_read() {
    if !require_fuse("doctor: rules") {
        return;
    }
    let tree = Tree::new();
    let fine = asked(&tree, &["doctor", "."]);
    assert!(fine.0 == Some(0) && fine.1.contains("rules: "), "{fine:?}");
    tree.write(RULES, "[[rule]]\npattern = \"*.txt\"\nlevel = \"kep\"\n");
    let (code, out, _) = asked(&tree, &["doctor", "."]);
    let told = format!("FAIL  rules: {RULES}:3:");
    assert!(code == Some(1) && out.contains(&told), "{code:?} {out}");
    let after = out.split(&told).nth(1).unwrap_or_default();
    assert!(
        after.lines().nth(1).is_some_and(|line| line.contains("cure: ")),
        "{out}"
    );
    assert!(out.ends_with("`unclobber run` cannot work here\n"), "{out}");
}

// semantics: L3
#[test]
fn a_path_outside_has_no_rules() {
    let tree = Tree::new();
    let (code, out, err) = asked(&tree, &["rules", "/etc/passwd"]);
    assert!(code == Some(1) && out.is_empty(), "{code:?} {out}");
    assert!(
        err.contains("neither in a guarded directory nor in the current one"),
        "{err}"
    );
    let (code, _, err) = asked(&tree, &["rules", "-w", ".", "/etc/passwd"]);
    assert!(code == Some(1) && err.contains("it is not in "), "{code:?} {err}");
    assert_eq!(asked(&tree, &["rules", "new"]).0, Some(0));
}

// semantics: L3
#[test]
fn a_glob_that_is_none_is_told_in_the_file_and_on_the_command_line() {
    let tree = Tree::new();
    for glob in ["[", "a[b", "a{b"] {
        let (code, _, err) = asked(&tree, &["run", "--rule", &format!("off:{glob}"), "--", "true"]);
        assert_eq!(code, Some(2), "{glob}: {err}");
        assert!(err.contains(&format!("{glob:?} is no pattern")), "{err}");
        tree.write(RULES, &format!("[[rule]]\npattern = \"{glob}\"\nlevel = \"off\"\n"));
        let (code, out, _) = asked(&tree, &["rules"]);
        assert_eq!(code, Some(1), "{out}");
        assert!(out.contains(&format!("{RULES}:2:")), "{out}");
    }
}
