//! What `unclobber why` says would happen is what happens: random changes of two owners and an outsider.

use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::path::Path;

use unclobber::fs::{Asker, Explained, Operation, Outcome, Question};
use unclobber::guard::{Policy, ViewRule};

use super::common::tree::require_fuse;
use super::common::wait::{PATIENCE, wait_until};
use super::support;

/// What one owner, or somebody outside, does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Read,
    Write,
    Edit,
    Append,
    Remove,
    Create,
}

fn act(path: &Path, act: Act) -> std::io::Result<()> {
    let mut options = fs::OpenOptions::new();
    match act {
        Act::Read => fs::read(path).map(drop),
        Act::Write => fs::write(path, "whole\n"),
        Act::Edit => options.write(true).open(path)?.write_all(b"part"),
        Act::Append => options.append(true).create(true).open(path)?.write_all(b"more\n"),
        Act::Remove => fs::remove_file(path),
        Act::Create => options.write(true).create_new(true).open(path)?.write_all(b"new\n"),
    }
}

/// The kernel tells of a close after it has returned, and until then what somebody outside writes counts as the writer's
/// (O10): an answer and the change must not stand on two sides of that.
fn wait_for_closes(tree: &support::Tree) {
    let open = || tree.guard.status().mounts.iter().any(|mount| mount.open_files > 0);
    assert!(wait_until(PATIENCE, || !open()), "a handle stays open");
}

/// What can be asked of it beforehand: reading and appending are never refused.
fn asked(act: Act) -> Option<Operation> {
    match act {
        Act::Read | Act::Append => None,
        Act::Write => Some(Operation::Write),
        Act::Edit => Some(Operation::Edit),
        Act::Remove => Some(Operation::Remove),
        Act::Create => Some(Operation::Create),
    }
}

// semantics: W2
#[test]
fn what_would_happen_is_what_happens() {
    if !require_fuse("why: predictions") {
        return;
    }
    let mut tree = support::Tree::new(|backing| {
        for name in ["f", "g", "other"] {
            fs::write(backing.join(name), "old\n").expect("a file");
        }
    });
    // One process does everything here: what it saw as another owner is no copy that it holds.
    let policy = Policy {
        view: ViewRule::Owner,
        ..Policy::default()
    };
    let points = [tree.owner_with("a", policy), tree.owner_with("b", policy)];
    let owners = ["a", "b"].map(|name| tree.guard.owners().named(name).expect("an owner"));
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below).expect("a small number")
    };
    let acts = [
        Act::Read,
        Act::Read,
        Act::Read,
        Act::Read,
        Act::Write,
        Act::Write,
        Act::Edit,
        Act::Append,
        Act::Remove,
        Act::Create,
    ];
    let (mut refused, mut allowed) = (0, 0);
    for step in 0..1500 {
        let (who, name, what) = (next(7) % 3, ["f", "g"][next(2)], acts[next(10)]);
        let Some(point) = points.get(who) else {
            drop(act(&tree.backing.join(name), what));
            continue;
        };
        // Within some 10 ms of somebody else's change the kernel answers some calls by itself (section 14): that is not asked.
        tree.guard.settle_caches();
        let path = [OsString::from(name)];
        let told = asked(what).map(|operation| {
            let question = Question {
                path: &path,
                operation,
                owners: &[Some(owners[who])],
                policy,
                mount: None,
                read_only: false,
                asker: Asker { uid: 0, gid: 0, pid: 0 },
                difference: false,
            };
            let Ok(Explained::Answer(answer)) = tree.guard.explain(&question) else {
                unreachable!("the path is in the tree");
            };
            answer.views[0].clone()
        });
        let done = act(&point.join(name), what);
        wait_for_closes(&tree);
        // The thread's next request: it was told whatever it was told.
        fs::metadata(point.join("other")).expect("another file");
        let Some(told) = told else { continue };
        let context = format!("step {step}: {what:?} {name} by {who}: {done:?}, told {told:#?}");
        if let Err(error) = done {
            assert_ne!(told.outcome, Outcome::Allowed, "{context}");
            let text = error.to_string();
            assert_eq!(text.split(" (os").next(), told.error.as_deref(), "{context}");
            refused += 1;
        } else {
            assert_eq!(told.outcome, Outcome::Allowed, "{context}");
            allowed += 1;
        }
    }
    assert!(refused > 100 && allowed > 100, "{refused} refused, {allowed} allowed");
}
