//! What has changed since an owner read a file: shown where a copy was kept, and to those alone who may see both.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use serde_json::Value;
use unclobber::fs::{Asker, Explained, Operation, Question};
use unclobber::guard::Policy;

use super::common::session::{Session, fine};
use super::common::tree::{Tree, require_fuse};
use super::{ask, guarded, is, json, support, view, why};

// semantics: W4
#[test]
fn what_has_changed_since_it_was_read_is_shown() {
    let Some((tree, mut a)) = guarded("why: the difference", &[]) else {
        return;
    };
    fine(&a.sh("cat f"));
    let mut b = Session::guarded(&tree, "b", &[]);
    // An unread file that is removed is kept, and what is made in its place is another.
    fine(&b.sh("rm f; printf 'one\\n2\\nthree\\n\\033[31mfour\\n' >f"));
    let answer = ask(&mut a, "--diff f");
    is(&answer, 1, "stale", "refused");
    let shown = view(&answer.1)["difference"]["text"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    assert!(shown.contains("-two\n") && shown.contains("+2\n"), "{answer:#?}");
    assert!(
        shown.contains("+\\u{1b}[31mfour"),
        "nothing that a terminal obeys: {shown}"
    );
    let screen = a.sh(&why("f"));
    assert!(screen.stdout.contains("unclobber why f --diff"), "{screen:?}");
    // Showing it is no read.
    assert!(!a.sh("echo mine >f").ok());
    fine(&a.sh("cat f && echo mine >f"));
    // What an owner replaces that it had read, and others too, is kept as well.
    fine(&b.sh("cat f && printf 'theirs\\n' >f"));
    let answer = ask(&mut a, "--diff f");
    is(&answer, 1, "stale", "refused");
    let shown = view(&answer.1)["difference"]["text"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    assert!(shown.contains("-mine\n+theirs\n"), "{answer:#?}");
    fine(&a.sh("cat f"));
    // Where no copy was kept, that is said.
    fine(&a.sh("cat g"));
    tree.write("g", "by an outsider\n");
    let answer = ask(&mut a, "--diff g");
    is(&answer, 1, "stale", "refused");
    let none = view(&answer.1)["difference"]["none"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let why = "no copy of the version that \"a\" read was kept: it was changed outside the mount";
    assert_eq!(none, why, "{answer:#?}");
}

// semantics: W4
#[test]
fn the_report_of_a_run_shows_it_to_its_owner_alone() {
    if !require_fuse("why: reports") {
        return;
    }
    let tree = Tree::new();
    for (mode, shows) in [(None, true), (Some(0o644), false)] {
        tree.write("f", "one\ntwo\n");
        let report = tree.scratch().join(format!("report-{shows}"));
        if let Some(mode) = mode {
            fs::write(&report, "").expect("a report");
            fs::set_permissions(&report, fs::Permissions::from_mode(mode)).expect("its mode");
        }
        let mut a = Session::guarded(&tree, "a", &["--report", &report.to_string_lossy()]);
        let mut b = Session::guarded(&tree, "b", &[]);
        fine(&a.sh("cat f"));
        fine(&b.sh("cat f && printf 'one\\n2\\n' >f"));
        assert!(!a.sh("echo mine >f").ok());
        drop(a.close());
        let text = fs::read_to_string(&report).expect("a report");
        let found = json(&text, &text);
        let refusal = &found["owners"][0]["refusals"][0];
        assert_eq!(refusal["code"], "FS_STALE_VERSION", "{found:#}");
        let shown = refusal["difference"]["text"].as_str().unwrap_or_default();
        assert_eq!(shown.contains("-two\n+2\n"), shows, "{found:#}");
    }
}

// semantics: W4
#[test]
fn content_is_shown_to_nobody_who_may_not_read_it() {
    if !require_fuse("why: no content") {
        return;
    }
    let mut tree = support::Tree::new(|backing| fs::write(backing.join("f"), "one\n").expect("a file"));
    let (a, b) = (tree.owner("a"), tree.owner("b"));
    fs::read(a.join("f")).expect("a's read");
    fs::remove_file(b.join("f")).expect("b's removal");
    fs::write(b.join("f"), "secret\n").expect("b's file");
    fs::set_permissions(b.join("f"), fs::Permissions::from_mode(0o600)).expect("its mode");
    let owner = tree.guard.owners().named("a").expect("an owner");
    let path = [OsString::from("f")];
    let difference = |uid| {
        let question = Question {
            path: &path,
            operation: Operation::Write,
            owners: &[Some(owner)],
            policy: Policy::default(),
            mount: None,
            read_only: false,
            asker: Asker { uid, gid: uid, pid: 0 },
            difference: true,
        };
        let Ok(Explained::Answer(answer)) = tree.guard.explain(&question) else {
            unreachable!("the path is in the tree");
        };
        answer.views[0].difference.clone().expect("an answer")
    };
    let stranger = difference(65_534);
    assert_eq!(stranger.text, None);
    assert_eq!(stranger.none.as_deref(), Some("you may not read the file"));
    let mine = difference(fs::metadata(tree.backing.join("f")).expect("the file").uid());
    assert_eq!(mine.text.map(|text| text.contains("+secret\n")), Some(true));
}

// semantics: W4
#[test]
fn of_what_is_not_guarded_nothing_is_shown() {
    let Some((_tree, mut a)) = guarded("why: not guarded", &[]) else {
        return;
    };
    fine(&a.sh("mkdir .git; echo x >.git/f; cat .git/f"));
    let off = ask(&mut a, "--diff .git/f");
    assert_eq!(off.1["level"], "off");
    assert_eq!(view(&off.1)["difference"], Value::Null);
}
