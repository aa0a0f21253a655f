//! `unclobber top` on a terminal: it shows what happens, and leaves the terminal as it was, however it ends.

#[expect(dead_code, reason = "each test program uses its own part of the harness")]
mod common;

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use common::session::Session;
use common::tree::{Tree, program, require_fuse};
use common::wait::{PATIENCE, wait_until};
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{Termios, tcgetattr};
use nix::unistd::Pid;

const LEAVES: &str = "\u{1b}[?1049l";
const SHOWS_CURSOR: &str = "\u{1b}[?25h";

/// The program on a terminal of 80 columns and 24 lines.
struct Top {
    child: Child,
    keys: File,
    terminal: OwnedFd,
    before: Termios,
    shown: Arc<Mutex<Vec<u8>>>,
}

impl Top {
    fn start(tree: &Tree) -> Top {
        let mut command = tree.unclobber();
        command.arg("top").arg(tree.root());
        Top::of(command)
    }

    /// The same as a command of an owner.
    fn within(tree: &Tree, owner: &str) -> Top {
        let mut command = tree.unclobber();
        command
            .args(["run", "--owner", owner, "--linger", "0", "--workspace"])
            .arg(tree.root());
        command.arg("--").arg(program()).arg("top").arg(tree.root());
        Top::of(command)
    }

    fn of(mut command: Command) -> Top {
        let size = Winsize {
            ws_row: 24,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pair = openpty(Some(&size), None).expect("a terminal");
        let before = tcgetattr(&pair.slave).expect("its settings");
        let end = || Stdio::from(pair.slave.try_clone().expect("another descriptor"));
        command.args(["--interval", "0.1"]);
        let child = command.env("TERM", "xterm").stdin(end()).stdout(end()).stderr(end());
        let child = child.spawn().expect("unclobber top");
        let keys = File::from(pair.master);
        let mut output = keys.try_clone().expect("another descriptor");
        let shown = Arc::<Mutex<Vec<u8>>>::default();
        let sink = Arc::clone(&shown);
        thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut part) {
                sink.lock().expect("the screen").extend_from_slice(&part[..count]);
            }
        });
        Top {
            child,
            keys,
            terminal: pair.slave,
            before,
            shown,
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().expect("the screen")).into_owned()
    }

    fn shows(&self, text: &str) {
        let shown = wait_until(PATIENCE, || words(&self.text()).contains(text));
        assert!(shown, "{text:?} in {:?}", words(&self.text()));
    }

    /// Its exit code, once it has ended; the terminal is as it was.
    fn ended(mut self) -> (Option<i32>, String) {
        let gone = wait_until(PATIENCE, || self.child.try_wait().expect("its end").is_some());
        assert!(gone, "it goes on: {:?}", self.text());
        let code = self.child.wait().expect("its end").code();
        assert_eq!(
            tcgetattr(&self.terminal).expect("its settings"),
            self.before,
            "the terminal is changed"
        );
        let left = wait_until(PATIENCE, || self.text().contains(LEAVES));
        assert!(left, "{:?}", self.text());
        let text = self.text();
        let (_, rest) = text.rsplit_once(LEAVES).expect("it left the other screen");
        assert!(rest.contains(SHOWS_CURSOR), "{rest:?}");
        (code, rest.to_owned())
    }
}

/// What was written, without what only moves the cursor or sets colours: where nothing is written, there is a space.
fn words(text: &str) -> String {
    let mut parts = text.split('\u{1b}');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part
            .find(|c: char| c.is_ascii_alphabetic())
            .map_or(part.len(), |end| end + 1);
        plain.push(' ');
        plain.push_str(&part[end..]);
    }
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn setting(test: &str) -> Option<(Tree, Session)> {
    if !require_fuse(test) {
        return None;
    }
    let tree = Tree::new();
    tree.write("notes.txt", "old\n");
    let a = Session::guarded(&tree, "alice", &[]);
    Some((tree, a))
}

// semantics: W8 W9
#[test]
fn refusals_are_shown_as_they_happen_and_q_ends_it() {
    let Some((tree, mut a)) = setting("top: q") else {
        return;
    };
    let mut top = Top::start(&tree);
    top.shows("alice");
    top.shows("q quit");
    top.shows("nothing since this view began");
    assert!(!a.sh("echo mine >notes.txt").ok());
    top.shows("why: \"alice\" has not read it");
    top.shows("do: read the file, then retry");
    assert!(a.sh("cat notes.txt").ok());
    top.shows("notes.txt");
    top.shows("cleared since");
    top.keys.write_all(b"q").expect("a key");
    assert_eq!(top.ended().0, Some(0));
}

// semantics: W8
#[test]
fn names_of_the_moment_are_not_shown() {
    let Some((tree, mut a)) = setting("top: names of the moment") else {
        return;
    };
    let mut b = Session::guarded(&tree, "bob", &[]);
    assert!(a.sh("echo x >scratch-a; mv scratch-a kept.txt").ok());
    assert!(b.sh("echo x >scratch-b; rm scratch-b").ok());
    // Refused for a name that is gone since.
    assert!(
        b.sh("cat notes.txt; echo theirs >notes.txt; ln notes.txt scratch-c")
            .ok()
    );
    assert!(!a.sh("rm scratch-c").ok());
    assert!(b.sh("rm scratch-c").ok());
    let mut top = Top::start(&tree);
    top.shows("kept.txt");
    top.shows("bob");
    assert!(!words(&top.text()).contains("scratch"), "{}", words(&top.text()));
    top.keys.write_all(b"q").expect("a key");
    assert_eq!(top.ended().0, Some(0));
}

// semantics: W8
#[test]
fn inside_an_owner_it_shows_that_owner_alone() {
    let Some((tree, mut a)) = setting("top: one owner") else {
        return;
    };
    let mut top = Top::within(&tree, "bob");
    top.shows("bob");
    assert!(!a.sh("echo mine >notes.txt").ok());
    // Seen by a later look than the refusal, since it is asked for after it.
    let mut bob = Session::guarded(&tree, "bob", &[]);
    assert!(!bob.sh("echo his >notes.txt").ok());
    top.shows("bob open notes.txt");
    assert!(!words(&top.text()).contains("alice"), "{}", words(&top.text()));
    top.keys.write_all(b"q").expect("a key");
    assert_eq!(top.ended().0, Some(0));
}

// semantics: W9
#[test]
fn control_c_and_a_signal_leave_the_terminal_clean() {
    let Some((tree, _a)) = setting("top: signals") else {
        return;
    };
    let mut top = Top::start(&tree);
    top.shows("alice");
    top.keys.write_all(b"\x03").expect("a key");
    assert_eq!(top.ended().0, Some(0));
    let top = Top::start(&tree);
    top.shows("alice");
    let pid = Pid::from_raw(i32::try_from(top.child.id()).expect("a process number"));
    kill(pid, Signal::SIGTERM).expect("a signal");
    assert_eq!(top.ended().0, Some(0));
}

// semantics: W9
#[test]
fn when_the_guard_goes_it_says_so_on_a_clean_terminal() {
    let Some((tree, a)) = setting("top: the guard's end") else {
        return;
    };
    let top = Top::start(&tree);
    top.shows("alice");
    // The guard lingers for no time after its last mount, and nobody who looks on keeps it.
    drop(a);
    let (code, rest) = top.ended();
    assert_eq!(code, Some(1));
    assert!(rest.contains("the guard has ended"), "{rest:?}");
}

// semantics: W9
#[test]
fn without_a_terminal_it_names_what_there_is_instead() {
    let tree = Tree::new();
    let done = tree.unclobber().arg("top").output().expect("unclobber top");
    assert_eq!(done.status.code(), Some(1));
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(said.contains("unclobber status --json"), "{said}");
}
