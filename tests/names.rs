//! What one `run` makes at a name that another has found missing is there for the other a moment later, whichever call made
//! it: the guard tells their kernels itself, since it does not watch what it does.

#[expect(dead_code, reason = "each test program uses its own part of the harness")]
mod common;

use common::session::{Session, fine};
use common::tree::{Tree, require_fuse};
use common::wait::wait_until;
use std::time::Duration;

/// Far less than the kernel remembers by itself.
const SOON: Duration = Duration::from_secs(5);

// semantics: C1 C2
#[test]
fn what_another_run_makes_appears_whoever_has_missed_it() {
    if !require_fuse("names made by another run") {
        return;
    }
    let tree = Tree::new();
    tree.write("old", "old\n");
    tree.write("d/old", "old\n");
    let (mut a, mut b) = (Session::guarded(&tree, "a", &[]), Session::guarded(&tree, "b", &[]));
    for dir in ["", "d/"] {
        for (name, make) in [
            ("file", "echo theirs >N"),
            ("exclusive", "set -C; echo theirs >N; set +C"),
            ("directory", "mkdir N"),
            ("symlink", "ln -s nowhere N"),
            ("link", "ln old N"),
            ("fifo", "mkfifo N"),
            ("renamed", "echo theirs >tmp; mv tmp N"),
        ] {
            let name = format!("{dir}{name}");
            // Twice: the second time the kernel answers by itself.
            for _ in 0..2 {
                assert_ne!(a.sh(&format!("stat {name}")).code, 0, "{name}");
            }
            fine(&b.sh(&make.replace('N', &name)));
            let seen = wait_until(SOON, || a.sh(&format!("stat {name}")).ok());
            assert!(seen, "{name} was made by another run and is missing");
            fine(&b.sh(&format!("rm -r {name}")));
            let gone = wait_until(SOON, || !a.sh(&format!("stat {name}")).ok());
            assert!(gone, "{name} was removed by another run and is there");
        }
    }
}

// semantics: P2 D1
#[test]
fn a_name_that_came_and_went_may_be_created_by_who_was_told_it_is_missing() {
    if !require_fuse("a name that came and went") {
        return;
    }
    let tree = Tree::new();
    let (mut a, mut b) = (Session::guarded(&tree, "a", &[]), Session::guarded(&tree, "b", &[]));
    for name in ["lock", "other"] {
        // The shell itself looks, so that the view is that of the process which creates.
        assert_ne!(a.sh(&format!("test -e {name}")).code, 0);
        fine(&b.sh(&format!("echo theirs >{name}; rm {name}")));
        let create = if name == "lock" {
            "set -C; echo mine >N; set +C"
        } else {
            "echo mine >N"
        };
        fine(&a.sh(&create.replace('N', name)));
        assert_eq!(tree.read(name).as_deref(), Some("mine\n"), "{name}");
    }
}
