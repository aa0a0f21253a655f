//! What is said while the guard only lingers: no mount is live, and a new one without flags is what counts.

use super::common::session::Session;
use super::common::tree::{Tree, require_fuse};
use super::{json, outside, text};

// semantics: W1 L1 L3
#[test]
fn without_a_mount_it_is_judged_by_the_rules_as_a_new_one_would() {
    if !require_fuse("why: no mount") {
        return;
    }
    let tree = Tree::new();
    tree.write(
        ".unclobber.toml",
        "[[rule]]\npattern = \"*.txt\"\nlevel = \"keep\"\n[[rule]]\npattern = \"plain.txt\"\nlevel = \"guard\"\n",
    );
    tree.write(".gitignore", "ignored\n");
    let names = ["f.txt", "plain.txt", "b.o", "ignored", ".git/config", "f"];
    for name in names {
        tree.write(name, "old\n");
    }
    let ended = tree
        .unclobber()
        .args(["run", "--owner", "a", "--linger", "30", "--mode", "observe", "-w"])
        .arg(tree.root())
        .args(["--", "cat", "f.txt"])
        .output()
        .expect("a command");
    assert!(ended.status.success(), "{ended:?}");
    let ask = |name: &str| {
        let typed = tree.at(name).display().to_string();
        let answer = outside(&tree, &["--json", &typed]);
        let found = json(&text(&answer), &format!("{answer:?}"));
        assert_eq!(found["mounted"], false, "{found:#}");
        let level = found["level"].as_str().unwrap_or_default().to_owned();
        (level, answer.status.code())
    };
    let told: Vec<_> = names.iter().map(|name| ask(name)).collect();
    let expected = ["keep", "guard", "off", "keep", "off", "guard"];
    let expected = expected.map(|level| (level.to_owned(), Some(i32::from(level == "guard"))));
    assert_eq!(told, expected, "{names:?}");
    // What has changed since is looked at anew.
    tree.write(".unclobber.toml", "[[rule]]\npattern = \"f\"\nlevel = \"off\"\n");
    assert_eq!(ask("f"), ("off".to_owned(), Some(0)));
    let line = "(nothing is mounted now: this is how the next `run` would judge it)";
    let typed = tree.at("f").display().to_string();
    let screen = text(&outside(&tree, &[&typed]));
    assert!(screen.contains(line), "{screen}");
    let mounted = Session::guarded(&tree, "b", &[]);
    let screen = text(&outside(&tree, &[&typed]));
    assert!(!screen.contains(line), "{screen}");
    drop(mounted);
}
