//! A file that several owners read and change is a register with compare-and-swap: a change is let through if and only if the
//! file is what its owner knows. Histories of owners at work at the same time are checked for an order of all operations that
//! explains every answer.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

#[expect(dead_code, reason = "each test program uses its own part of the harness")]
mod support;

use std::fs;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::{Barrier, Mutex};

use nix::errno::Errno;
use support::Tree;
use todc_utils::linearizability::WGLChecker;
use todc_utils::linearizability::history::{Action, History};
use todc_utils::specifications::Specification;
use unclobber::guard::{Mode, Policy};

const OWNERS: usize = 4;
const ROUNDS: u32 = 40;

/// What an owner did, and what came of it; the answer of a call is not known yet.
#[derive(Debug, Clone, Copy)]
enum Operation {
    Read(u32),
    /// From, to, whether it was let through.
    Swap(u32, u32, bool),
}

struct Register;

impl Specification for Register {
    type State = u32;
    type Operation = Operation;

    fn init() -> u32 {
        0
    }

    fn apply(operation: &Operation, state: &u32) -> (bool, u32) {
        match *operation {
            Operation::Read(value) => (value == *state, *state),
            Operation::Swap(from, to, true) => (from == *state, to),
            Operation::Swap(from, _, false) => (from != *state, *state),
        }
    }
}

/// What happened, in its order.
#[derive(Default)]
struct Record(Mutex<Vec<(usize, Action<Operation>)>>);

impl Record {
    fn read(&self, owner: usize, read: impl FnOnce() -> u32) -> u32 {
        self.0.lock().unwrap().push((owner, Action::Call(Operation::Read(0))));
        let value = read();
        self.0
            .lock()
            .unwrap()
            .push((owner, Action::Response(Operation::Read(value))));
        value
    }

    /// Says whether the change was let through.
    fn swap(&self, owner: usize, from: u32, to: u32, change: impl FnOnce() -> io::Result<()>) -> bool {
        let call = Action::Call(Operation::Swap(from, to, false));
        self.0.lock().unwrap().push((owner, call));
        let through = match change() {
            Ok(()) => true,
            // Changed since; or what it has read was renamed over while it opened it, and what is at the name it has not seen.
            Err(error)
                if [Errno::ESTALE, Errno::EEXIST]
                    .map(|errno| Some(errno as i32))
                    .contains(&error.raw_os_error()) =>
            {
                false
            }
            Err(error) => panic!("owner {owner}, {from} to {to}: {error}"),
        };
        let response = Action::Response(Operation::Swap(from, to, through));
        self.0.lock().unwrap().push((owner, response));
        through
    }

    /// How many changes were let through and how many refused; whether some order explains it all.
    fn judge(self) -> (usize, usize, bool) {
        let actions = self.0.into_inner().unwrap();
        let count = |which: bool| {
            let swaps = actions.iter().filter(
                |(_, action)| matches!(action, Action::Response(Operation::Swap(.., through)) if *through == which),
            );
            swaps.count()
        };
        let (through, refused) = (count(true), count(false));
        let explained = WGLChecker::<Register>::is_linearizable(History::from_actions(actions));
        (through, refused, explained)
    }
}

fn number(bytes: &[u8]) -> u32 {
    std::str::from_utf8(bytes).unwrap().parse().unwrap()
}

fn digits(value: u32) -> String {
    format!("{value:08}")
}

/// One owner's way to read and to change.
trait Way {
    fn read(&mut self) -> u32;
    fn change(&mut self, to: u32) -> io::Result<()>;
}

/// Reads the file, and renames another over it.
struct ByRename<'a>(&'a Path);

impl Way for ByRename<'_> {
    fn read(&mut self) -> u32 {
        number(&fs::read(self.0.join("f")).unwrap())
    }

    fn change(&mut self, to: u32) -> io::Result<()> {
        let other = self.0.join(format!("other-{to}"));
        fs::write(&other, digits(to)).unwrap();
        let done = fs::rename(&other, self.0.join("f"));
        if done.is_err() {
            fs::remove_file(&other).unwrap();
        }
        done
    }
}

/// Reads and writes through a handle that stays open.
struct InPlace(fs::File);

impl Way for InPlace {
    fn read(&mut self) -> u32 {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, 0).unwrap();
        number(&bytes)
    }

    fn change(&mut self, to: u32) -> io::Result<()> {
        self.0.write_all_at(digits(to).as_bytes(), 0)
    }
}

/// Each owner reads, changes, and changes once more what it has made, until it is refused.
fn work(owner: usize, way: &mut dyn Way, record: &Record) {
    let mut known = None;
    for round in 0..ROUNDS {
        let from = known.unwrap_or_else(|| record.read(owner, || way.read()));
        // No value comes twice.
        let to = 1 + round * u32::try_from(OWNERS).unwrap() + u32::try_from(owner).unwrap();
        let through = record.swap(owner, from, to, || way.change(to));
        known = (through && round % 2 == 0).then_some(to);
    }
}

fn history(way: impl for<'a> Fn(&'a Path) -> Box<dyn Way + 'a> + Sync) {
    let mut tree = Tree::new(|dir| fs::write(dir.join("f"), digits(0)).unwrap());
    let mounts: Vec<_> = (0..OWNERS).map(|owner| tree.owner(&format!("o{owner}"))).collect();
    let (record, start) = (Record::default(), Barrier::new(OWNERS));
    std::thread::scope(|scope| {
        for (owner, mount) in mounts.iter().enumerate() {
            let (record, start, way) = (&record, &start, &way);
            scope.spawn(move || {
                start.wait();
                work(owner, &mut *way(mount), record);
            });
        }
    });
    let (through, refused, explained) = record.judge();
    assert!(explained, "no order explains {through} changes and {refused} refusals");
    assert!(through > 0, "nothing was changed");
}

// semantics: D4 D8 C1
#[test]
fn renaming_over_is_compare_and_swap() {
    history(|mount| Box::new(ByRename(mount)));
}

// semantics: D4 D8 D17
#[test]
fn writing_in_place_is_compare_and_swap() {
    history(|mount| {
        let file = fs::OpenOptions::new().read(true).write(true).open(mount.join("f"));
        Box::new(InPlace(file.unwrap()))
    });
}

/// Both read, the first changes, and then the second tries.
fn lost_update(policy: Policy) -> (usize, usize, bool) {
    let mut tree = Tree::new(|dir| fs::write(dir.join("f"), digits(0)).unwrap());
    let (a, b) = (tree.owner_with("a", policy), tree.owner_with("b", policy));
    let (mut a, mut b, record) = (ByRename(&a), ByRename(&b), Record::default());
    let values = (record.read(0, || a.read()), record.read(1, || b.read()));
    assert_eq!(values, (0, 0));
    record.swap(0, 0, 1, || a.change(1));
    record.swap(1, 0, 2, || b.change(2));
    record.read(0, || a.read());
    record.judge()
}

// semantics: D8 D14
#[test]
fn without_the_guard_an_update_is_lost_and_found_to_be() {
    assert_eq!(lost_update(Policy::default()), (1, 1, true));
    let observing = Policy {
        mode: Mode::Observe,
        ..Policy::default()
    };
    assert_eq!(lost_update(observing), (2, 0, false));
}
