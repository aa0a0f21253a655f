//! A long-lived shell, guarded or plain, that runs one command at a time and answers with what came of it.

use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use super::tree::Tree;
use super::wait::{PATIENCE, wait_until};

/// What came of one command.
#[derive(Debug, Clone)]
pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Done {
    pub(crate) fn ok(&self) -> bool {
        self.code == 0
    }
}

/// A command must have gone well.
#[track_caller]
pub(crate) fn fine(done: &Done) {
    assert!(done.ok(), "{done:?}");
}

/// A command must have failed, and said so.
#[track_caller]
pub(crate) fn refused(done: &Done, text: &str) {
    assert!(
        done.code != 0 && done.stderr.contains(text),
        "expected a refusal that says {text:?}: {done:?}"
    );
}

/// A shell that outlives its commands, so that one owner can act, then another, then the first again.
#[derive(Debug)]
pub(crate) struct Session {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    replies: Receiver<String>,
    lines: Receiver<String>,
    said: Vec<String>,
    scratch: PathBuf,
    count: u32,
}

impl Session {
    /// `unclobber run --owner NAME -- sh` in the tree.
    pub(crate) fn guarded(tree: &Tree, owner: &str, flags: &[&str]) -> Session {
        Session::guarded_shell(tree, owner, flags, "sh")
    }

    pub(crate) fn guarded_shell(tree: &Tree, owner: &str, flags: &[&str], shell: &str) -> Session {
        let mut command = tree.unclobber();
        command
            .arg("run")
            .arg("--workspace")
            .arg(tree.root())
            .args(["--owner", owner, "--linger", "0"]);
        command.args(flags).args(["--", shell]);
        Session::start(tree, owner, command)
    }

    /// The same shell without a guard.
    pub(crate) fn plain(tree: &Tree, name: &str) -> Session {
        let mut command = Command::new("sh");
        tree.dress(&mut command);
        Session::start(tree, name, command)
    }

    fn start(tree: &Tree, name: &str, mut command: Command) -> Session {
        command
            .current_dir(tree.root())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("the shell's start");
        let scratch = tree.scratch().join(format!("{name}-{}", child.id()));
        fs::create_dir_all(&scratch).expect("the session's scratch directory");
        let replies = follow(child.stdout.take().expect("piped standard output"));
        let lines = follow(child.stderr.take().expect("piped standard error"));
        let stdin = child.stdin.take();
        let mut session = Session {
            name: name.to_owned(),
            child,
            stdin,
            replies,
            lines,
            said: Vec::new(),
            scratch,
            count: 0,
        };
        let ready = session.sh("umask 022; mkdir -p \"$HOME\"; pwd");
        assert!(
            ready.ok(),
            "the session {name} could not start: {ready:?} {:?}",
            session.said()
        );
        session
    }

    /// Runs shell text in the session's own shell and waits for its end.
    pub(crate) fn sh(&mut self, text: &str) -> Done {
        self.sh_for(text, Duration::from_secs(120))
    }

    pub(crate) fn sh_for(&mut self, text: &str, patience: Duration) -> Done {
        self.count += 1;
        let part = |end: &str| self.scratch.join(format!("{}.{end}", self.count));
        let (script, out, err) = (part("sh"), part("out"), part("err"));
        fs::write(&script, format!("{text}\n")).expect("the command's text");
        let mark = format!("@{}", self.count);
        let line = format!(
            "{{ . '{}'; }} >'{}' 2>'{}' </dev/null; echo \"{mark} $?\"\n",
            script.display(),
            out.display(),
            err.display()
        );
        let stdin = self.stdin.as_mut().expect("a session that was not closed");
        let sent = stdin.write_all(line.as_bytes()).and_then(|()| stdin.flush());
        let code = sent.ok().and_then(|()| self.reply(&mark, patience));
        let Some(code) = code else {
            let errors = read(&err);
            let said = self.said().join("\n");
            self.end();
            assert!(
                code.is_some(),
                "session {}: no end of: {text}\nstderr: {errors}\nsaid: {said}",
                self.name
            );
            return Done {
                code: -1,
                stdout: String::new(),
                stderr: errors,
            };
        };
        Done {
            code,
            stdout: read(&out),
            stderr: read(&err),
        }
    }

    /// Runs shell text in a directory, and goes back where it was.
    pub(crate) fn at(&mut self, directory: &Path, text: &str) -> Done {
        let home = self.scratch.clone();
        self.sh(&format!(
            "cd '{}' || {{ echo 'no such directory' >&2; return 99; }}\n{{ :\n{text}\n}}\nCODE=$?; cd '{}'; return $CODE",
            directory.display(),
            home.display()
        ))
    }

    fn reply(&self, mark: &str, patience: Duration) -> Option<i32> {
        loop {
            let line = self.replies.recv_timeout(patience).ok()?;
            if let Some(code) = line.strip_prefix(mark) {
                return code.trim().parse().ok();
            }
        }
    }

    /// Everything the session's own standard error has said so far: the guard's refusal lines.
    pub(crate) fn said(&mut self) -> Vec<String> {
        self.said.extend(self.lines.try_iter());
        self.said.clone()
    }

    /// Waits for a line that names the path and the code.
    pub(crate) fn told(&mut self, path: &str, code: &str) -> bool {
        wait_until(PATIENCE, || names(&self.said(), path, code))
    }

    /// Ends the shell and gives back all its standard error said, complete now that nobody is left to write to it.
    pub(crate) fn close(mut self) -> Vec<String> {
        self.end();
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => self.said.push(line),
                Err(RecvTimeoutError::Disconnected) => return std::mem::take(&mut self.said),
                Err(RecvTimeoutError::Timeout) => break,
            }
        }
        unreachable!(
            "session {}: somebody still holds its standard error: {:?}",
            self.name, self.said
        )
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn end(&mut self) {
        drop(self.stdin.take());
        let child = &mut self.child;
        let gone = wait_until(PATIENCE, || matches!(child.try_wait(), Ok(Some(_)) | Err(_)));
        if !gone {
            // Dropping is no place to fail: a process that is gone already is what was wanted.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
    }
}

/// Whether one of the lines names the path (as a whole name at its end) and the code.
pub(crate) fn names(lines: &[String], path: &str, code: &str) -> bool {
    lines.iter().any(|line| line.contains(code) && mentions(line, path))
}

/// Whether a line speaks of a path: the text occurs and does not go on as a longer name.
pub(crate) fn mentions(line: &str, path: &str) -> bool {
    let part_of_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '~' | '/');
    line.match_indices(path).any(|(start, found)| {
        let before = line.get(..start).and_then(|text| text.chars().next_back());
        let after = line.get(start + found.len()..).and_then(|text| text.chars().next());
        before.is_none_or(|c| c == '/' || !part_of_name(c)) && after.is_none_or(|c| !part_of_name(c) || c == '.')
    })
}

fn read(path: &Path) -> String {
    fs::read(path)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default()
}

/// Passes on the lines of a pipe until everybody has closed it.
fn follow(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver): (Sender<String>, Receiver<String>) = channel();
    thread::spawn(move || {
        for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
            if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                return;
            }
        }
    });
    receiver
}
