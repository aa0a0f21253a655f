//! What keeping displaced content costs, and keeping a record: the same operations with it and without, by turns in one run,
//! as a ratio.
//!
//! Not run by default: `cargo test --release --test attic_cost -- --ignored --nocapture`.

#[expect(dead_code, reason = "each test program uses its own part of the harness")]
mod common;

use std::time::Duration;

use common::session::Session;
use common::tree::{Tree, require_fuse, say};

/// Files a round works on, and rounds.
const FILES: usize = 400;
const ROUNDS: usize = 7;

/// What is measured: the name, what prepares a round outside the mount, and the round. Both are shell text without a
/// program started for each file, and the content is somebody else's each time.
const OPERATIONS: [(&str, &str, &str); 3] = [
    ("unlink", "", "rm f*"),
    (
        "rename over",
        "mkdir -p n; i=0; while [ $i -lt 400 ]; do echo new >n/f$i; i=$((i+1)); done",
        "cat f* >/dev/null; mv -f n/* .",
    ),
    (
        "truncating replace",
        "",
        "cat f* >/dev/null; i=0; while [ $i -lt 400 ]; do echo new >f$i; i=$((i+1)); done",
    ),
];

#[test]
#[ignore = "a measurement: takes a while, and says something on a quiet machine only"]
fn the_cost_of_the_attic_is_a_ratio() {
    if !require_fuse("the cost of the attic") {
        return;
    }
    for (name, prepare, operation) in OPERATIONS {
        let flags = [["--attic=on", "--events=off"], ["--attic=off", "--events=off"]];
        compare(
            &format!("{name}, with the attic and without"),
            flags,
            prepare,
            operation,
        );
    }
}

#[test]
#[ignore = "a measurement: takes a while, and says something on a quiet machine only"]
fn the_cost_of_the_record_is_a_ratio() {
    if !require_fuse("the cost of the record") {
        return;
    }
    let operation = "i=0; while [ $i -lt 400 ]; do echo new >g$i; i=$((i+1)); done; rm g*";
    for (name, record) in [
        ("changes", "--events-size=64M"),
        ("observations, too", "--events-observations"),
    ] {
        let flags = [["--attic=off", record], ["--attic=off", "--events=off"]];
        compare(
            &format!("create, write and unlink, with a record ({name}) and without"),
            flags,
            "",
            operation,
        );
    }
}

/// Takes turns, so that what else the machine does falls on both, and compares the best of each.
fn compare(name: &str, flags: [[&str; 2]; 2], prepare: &str, operation: &str) {
    let mut best = [Duration::MAX; 2];
    for round in 0..ROUNDS * 2 {
        let took = one_round(&flags[round % 2], prepare, operation);
        let slot = &mut best[round % 2];
        *slot = took.min(*slot);
    }
    let [with, without] = best;
    let per_file = |took: Duration| took.as_secs_f64() * 1e6 / FILES as f64;
    say(&format!(
        "{name}: {:.1} us and {:.1} us a file, ratio {:.2}",
        per_file(with),
        per_file(without),
        with.as_secs_f64() / without.as_secs_f64()
    ));
    assert!(with < without * 10, "{name}: it has become the whole cost");
}

fn one_round(flags: &[&str], prepare: &str, operation: &str) -> Duration {
    let tree = Tree::new();
    for number in 0..FILES {
        tree.write(
            &format!("f{number}"),
            "what somebody else has written, a line or two of it\n",
        );
    }
    let mut outside = Session::plain(&tree, "outside");
    assert!(outside.sh(&format!("{prepare}\ntrue")).ok());
    let mut a = Session::guarded(&tree, "a", flags);
    let start = std::time::Instant::now();
    let done = a.sh(operation);
    let took = start.elapsed();
    assert!(done.ok(), "{done:?}");
    took
}
