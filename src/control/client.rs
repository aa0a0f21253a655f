//! The client's side of the control socket: finding the guard of a directory, starting it, asking it.
//!
//! It never starts a guard where one answers.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::asking::{WhyReply, WhyRequest};
use super::protocol::{self, Attach, Code, DataPath, Failure, Refusal, Reply, Request, Status};
use super::report::{Allowance, RulesReport};
use super::runtime_dir::{RuntimeDir, Surroundings};
use super::wire::{Lines, send};
use crate::fs::Activity;
use crate::sys;

/// How long a guard may take for an answer that needs no work.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// How long to try to reach or start a guard.
const START_LIMIT: Duration = Duration::from_secs(15);

/// Why a guard could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// It answered with an error.
    #[error(transparent)]
    Refused(#[from] Failure),
    /// The conversation broke.
    #[error("the guard cannot be reached: {0}")]
    Broken(#[from] io::Error),
    /// It took the request and did not answer.
    #[error("the guard has not answered for {0} s: it is stopped or stuck")]
    Silent(u64),
    /// It could not be started.
    #[error("cannot start the guard: {0}")]
    Start(String),
    /// There is no place for its files.
    #[error("no run-time directory can be used: {0}")]
    NoRuntimeDir(io::Error),
}

/// How to start a guard.
#[derive(Debug, Clone)]
pub struct Launch {
    /// The program.
    pub program: PathBuf,
    /// The guard's id.
    pub guard: String,
    /// The backing directory's path, for people.
    pub root: String,
    /// Where the log goes; a file in the run-time directory otherwise.
    pub log_file: Option<PathBuf>,
    /// How many times `-v` was given.
    pub verbose: u8,
    /// How long the attic keeps content, where somebody has said so.
    pub attic_age: Option<Duration>,
    /// How many bytes the attic keeps, where somebody has said so.
    pub attic_size: Option<u64>,
    /// Further flags of the guard.
    pub flags: Vec<OsString>,
}

/// A conversation with a guard.
#[derive(Debug)]
pub struct Client {
    socket: UnixStream,
    lines: Lines,
    refusals: VecDeque<Refusal>,
}

/// What an attached mount is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attached {
    /// Its number.
    pub mount: u64,
    /// Its one owner.
    pub owner: Option<String>,
    /// How data travels.
    pub data: DataPath,
}

impl Client {
    /// Speaks to the guard `id` if it is running.
    pub fn find(surroundings: &Surroundings, id: &str) -> Option<Self> {
        surroundings
            .existing()
            .iter()
            .find_map(|dir| Self::open(dir, id).and_then(Self::begin))
    }

    /// Connects without keeping the guard alive: for looking on.
    #[must_use]
    pub fn open(dir: &RuntimeDir, id: &str) -> Option<Self> {
        let socket = UnixStream::connect(dir.entry(&format!("{id}.sock"))).ok()?;
        Self::over(socket).ok()
    }

    /// A conversation over a connected socket.
    pub fn over(socket: UnixStream) -> io::Result<Self> {
        let lines = Lines::new(socket.try_clone()?);
        Ok(Self {
            socket,
            lines,
            refusals: VecDeque::new(),
        })
    }

    fn begin(mut self) -> Option<Self> {
        let hello = Request::Hello {
            program: env!("CARGO_PKG_VERSION").to_owned(),
        };
        match self.ask_in_time(&hello, ANSWER_LIMIT) {
            Ok(Reply::Hello { .. }) => Some(self),
            other => {
                log::debug!("a guard that answers, but not hello: {other:?}");
                None
            }
        }
    }

    /// Speaks to the guard of the directory `root`, starting it if it is not running.
    pub fn find_or_start(surroundings: &Surroundings, launch: &Launch, root: &OwnedFd) -> Result<Self, ClientError> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            if let Some(client) = Self::find(surroundings, &launch.guard) {
                return Ok(client);
            }
            let dir = surroundings
                .choose_outside(Path::new(&launch.root))
                .map_err(ClientError::NoRuntimeDir)?;
            let outcome = launch.start(&dir, root)?;
            if Instant::now() > deadline {
                return Err(ClientError::Start(format!(
                    "it does not answer (last word: {outcome:?})"
                )));
            }
            if outcome == Outcome::Busy {
                // Another guard of this directory is just starting or just ending; neither can be waited for.
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }

    /// Sends a request and reads the answer to it; refusals that come before are kept.
    pub fn ask(&mut self, request: &Request, fd: Option<BorrowedFd<'_>>) -> Result<Reply, ClientError> {
        send(&self.socket, &protocol::format(request)?, fd)?;
        loop {
            let line = self
                .lines
                .next_line()?
                .ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
            let reply = self.keep_event(protocol::parse_reply(&line)?);
            match reply {
                None => {}
                Some(Reply::Error(failure)) => return Err(failure.into()),
                Some(reply) => return Ok(reply),
            }
        }
    }

    /// The same, where a guard that is stopped or stuck must not hold up who asks.
    fn ask_in_time(&mut self, request: &Request, limit: Duration) -> Result<Reply, ClientError> {
        self.socket.set_read_timeout(Some(limit))?;
        let reply = self.ask(request, None);
        self.socket.set_read_timeout(None)?;
        match reply {
            Err(ClientError::Broken(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(ClientError::Silent(limit.as_secs()))
            }
            other => other,
        }
    }

    /// Keeps what is an event; gives back what is an answer.
    fn keep_event(&mut self, reply: Reply) -> Option<Reply> {
        if let Reply::Refusal(refusal) = reply {
            let count = u64::from(!refusal.notice);
            self.refusals.push_back(Refusal { count, ..*refusal });
            None
        } else if let Reply::Dropped { count } = reply {
            self.refusals.push_back(dropped(count));
            None
        } else {
            Some(reply)
        }
    }

    fn expect_done(&mut self, request: &Request) -> Result<(), ClientError> {
        let reply = self.ask(request, None)?;
        if reply == Reply::Done {
            Ok(())
        } else {
            Err(unexpected(&reply))
        }
    }

    /// Hands over a FUSE descriptor; returns when the mount is ready.
    pub fn attach(&mut self, attach: Attach, fuse: BorrowedFd<'_>) -> Result<Attached, ClientError> {
        let reply = self.ask(&Request::Attach(Box::new(attach)), Some(fuse))?;
        if let Reply::Attached { mount, owner, data } = reply {
            Ok(Attached { mount, owner, data })
        } else {
            Err(unexpected(&reply))
        }
    }

    /// Becomes an owner; its full name.
    pub fn join(&mut self, owner: Option<String>, linger: Option<u64>) -> Result<String, ClientError> {
        let reply = self.ask(&Request::Join { owner, linger }, None)?;
        if let Reply::Joined { owner } = reply {
            Ok(owner)
        } else {
            Err(unexpected(&reply))
        }
    }

    /// What the guard is doing.
    pub fn status(&mut self) -> Result<Status, ClientError> {
        let reply = self.ask_in_time(&Request::Status, ANSWER_LIMIT)?;
        if let Reply::Status(mut status) = reply {
            // The number it has here: the guard may live in a process namespace of its own.
            if let Ok(peer) = sys::peer_cred(&self.socket) {
                status.pid = peer.pid;
            }
            Ok(*status)
        } else {
            Err(unexpected(&reply))
        }
    }

    /// The rules that hold, looked at anew, and what they say of a path from the root; with `matches`, also which of them
    /// match anything.
    pub fn rules(
        &mut self,
        path: Option<String>,
        mount: Option<u64>,
        matches: bool,
    ) -> Result<RulesReport, ClientError> {
        let reply = self.ask_in_time(&Request::Rules { path, mount, matches }, ANSWER_LIMIT)?;
        if let Reply::Rules(report) = reply {
            Ok(*report)
        } else {
            Err(unexpected(&reply))
        }
    }

    /// Lets the next change of a path through; by which owner, or by anybody.
    pub fn allow(
        &mut self,
        path: String,
        owner: Option<String>,
        seconds: u64,
        mount: Option<u64>,
    ) -> Result<Option<String>, ClientError> {
        let request = Request::Allow {
            path,
            owner,
            seconds,
            mount,
        };
        let reply = self.ask_in_time(&request, ANSWER_LIMIT)?;
        if let Reply::Allowed { owner } = reply {
            Ok(owner)
        } else {
            Err(unexpected(&reply))
        }
    }

    /// The exceptions that wait to be used.
    pub fn allowances(&mut self) -> Result<Vec<Allowance>, ClientError> {
        let reply = self.ask_in_time(&Request::Allowances, ANSWER_LIMIT)?;
        if let Reply::Allowances { waiting } = reply {
            Ok(waiting)
        } else {
            Err(unexpected(&reply))
        }
    }

    /// Takes those for a path back; how many there were.
    pub fn disallow(&mut self, path: String, owner: Option<String>) -> Result<usize, ClientError> {
        let reply = self.ask_in_time(&Request::Disallow { path, owner }, ANSWER_LIMIT)?;
        if let Reply::Disallowed { count } = reply {
            Ok(count)
        } else {
            Err(unexpected(&reply))
        }
    }

    /// Asks for the refusals of this process's owner as they happen.
    pub fn follow_refusals(&mut self) -> Result<(), ClientError> {
        self.expect_done(&Request::Refusals)
    }

    /// Returns when every refusal so far has come; first waits a bounded time for the end of a mount.
    pub fn flush(&mut self, ended: Option<u64>) -> Result<(), ClientError> {
        self.expect_done(&Request::Flush { ended, record: false })
    }

    /// Returns when every event so far is written down, or the guard has taken a moment for it.
    pub fn write_record(&mut self) -> Result<(), ClientError> {
        let request = Request::Flush {
            ended: None,
            record: true,
        };
        self.ask_in_time(&request, ANSWER_LIMIT).map(drop)
    }

    /// Returns when the mount has ended.
    pub fn wait(&mut self, mount: u64) -> Result<(), ClientError> {
        self.expect_done(&Request::Wait { mount })
    }

    /// Sends the wish to be told of a mount's end, and does not wait: its answer makes the descriptor readable.
    pub fn begin_wait(&mut self, mount: u64) -> Result<(), ClientError> {
        let line = protocol::format(&Request::Wait { mount })?;
        send(&self.socket, &line, None)?;
        Ok(())
    }

    /// Tells the guard that this process is about to end, so that what descends from it stays who it is.
    pub fn leave(&mut self) -> Result<(), ClientError> {
        self.expect_done(&Request::Leave)
    }

    /// What the guard knows of a path; `Err` inside when the path leads out of the tree.
    pub fn why(&mut self, request: WhyRequest) -> Result<Result<WhyReply, PathBuf>, ClientError> {
        let reply = self.ask_in_time(&Request::Why(Box::new(request)), ANSWER_LIMIT)?;
        if let Reply::Why(answer) = reply {
            Ok(Ok(*answer))
        } else if let Reply::Elsewhere { path } = reply {
            Ok(Err(OsString::from(path).into()))
        } else {
            Err(unexpected(&reply))
        }
    }

    /// What owners are doing, and what was refused after `since`.
    pub fn activity(&mut self, since: u64) -> Result<Activity, ClientError> {
        let reply = self.ask_in_time(&Request::Activity { since }, ANSWER_LIMIT)?;
        if let Reply::Activity(activity) = reply {
            Ok(*activity)
        } else {
            Err(unexpected(&reply))
        }
    }

    /// Ends a mount.
    pub fn detach(&mut self, mount: u64) -> Result<(), ClientError> {
        self.expect_done(&Request::Detach { mount })
    }

    /// Reads what has come without being asked for, once; false when the guard has gone.
    pub fn read_events(&mut self) -> Result<bool, ClientError> {
        let open = self.lines.fill()?;
        while let Some(line) = self.lines.buffered_line() {
            if let Some(reply) = self.keep_event(protocol::parse_reply(&line)?) {
                log::debug!("an answer to nothing: {reply:?}");
            }
        }
        Ok(open)
    }

    /// The oldest refusal that has come.
    pub fn next_refusal(&mut self) -> Option<Refusal> {
        self.refusals.pop_front()
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.lines.as_fd()
    }
}

fn dropped(count: u64) -> Refusal {
    Refusal {
        line: format!("{count} more refusals could not be shown; `unclobber log --refused` shows them"),
        count,
        ..Refusal::default()
    }
}

fn unexpected(reply: &Reply) -> ClientError {
    ClientError::Refused(Failure::new(
        Code::Other,
        format!("the guard gave an answer that does not fit: {reply:?}"),
    ))
}

/// A new guard's first word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Ready,
    Busy,
}

impl Launch {
    /// Starts the guard; returns when it can be reached, or another holds its place.
    ///
    /// The directory travels as standard input and the first word comes back on standard output, which needs no
    /// agreement on numbers.
    fn start(&self, dir: &RuntimeDir, root: &OwnedFd) -> Result<Outcome, ClientError> {
        let mut command = Command::new(&self.program);
        command.arg("guard").args(["--id", &self.guard, "--root", &self.root]);
        command.arg("--runtime-dir").arg(dir.path());
        command.args(
            self.log_file
                .iter()
                .flat_map(|file| ["--log-file".as_ref(), file.as_os_str()]),
        );
        command.args((0..self.verbose).map(|_| "-v"));
        let age = self.attic_age.map(|age| format!("--attic-age={}", age.as_secs()));
        let size = self.attic_size.map(|size| format!("--attic-size={size}"));
        command.args(age.into_iter().chain(size));
        command.args(&self.flags);
        let root = root.try_clone()?;
        let fail = |error: io::Error| ClientError::Start(format!("{}: {error}", self.program.display()));
        let mut child = command
            .stdin(Stdio::from(root))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .current_dir("/")
            .spawn()
            .map_err(fail)?;
        let word = child
            .stdout
            .take()
            .map(first_word)
            .transpose()
            .map_err(fail)?
            .unwrap_or_default();
        let end = child.wait().map_err(fail)?;
        match word.trim() {
            "ready" => Ok(Outcome::Ready),
            "busy" => Ok(Outcome::Busy),
            "" => Err(ClientError::Start(format!("it ended without a word ({end})"))),
            other => Err(ClientError::Start(other.to_owned())),
        }
    }
}

fn first_word(output: std::process::ChildStdout) -> io::Result<String> {
    if !sys::wait_readable(&output, u16::MAX / 4)? {
        return Err(io::Error::from(io::ErrorKind::TimedOut));
    }
    let mut word = String::new();
    io::Read::read_to_string(&mut io::Read::take(output, 4096), &mut word)?;
    Ok(word)
}
