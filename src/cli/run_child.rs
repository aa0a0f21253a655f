//! The child side of `run`: a process that makes its view of the directory, waits for the guard, and becomes the
//! command.
//!
//! The mount is made in the child, so that the process that speaks to the guard keeps the namespaces it was started
//! in, and the mount ends with the last process that can see it.

use std::convert::Infallible;
use std::ffi::{CString, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use super::fuse_options::MountFlags;
use super::mounting;
use super::output::Problem;
use super::place;
use crate::control::{Lines, send};
use crate::sys::{self, SysError, consts};

/// How the directory is shown to the command.
#[derive(Debug, Clone)]
pub(crate) enum View {
    /// It is there already.
    AsItIs,
    /// In a mount namespace of the command's own.
    PrivateMounts(Over),
    /// In a user and mount namespace of the command's own.
    UserNamespace(Over),
}

/// A directory that is mounted over itself.
#[derive(Debug, Clone)]
pub(crate) struct Over {
    pub(crate) dir: PathBuf,
    pub(crate) flags: MountFlags,
}

/// Where the command starts, and with what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Start<'a> {
    /// Its directory.
    pub(crate) dir: &'a Path,
    /// As root: it keeps what it could leave its view by.
    pub(crate) keep_capabilities: bool,
}

/// What a command of root could leave its view by: undo the mount, enter other namespaces, or reach through other
/// processes' directories under `/proc`, or open files past every mount by their handles.
const LEAVING: [u32; 3] = [sys::CAP_SYS_ADMIN, sys::CAP_SYS_PTRACE, sys::CAP_DAC_READ_SEARCH];

impl View {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::AsItIs => "using the mount that is there",
            Self::PrivateMounts(_) => "mounting in a private mount namespace",
            Self::UserNamespace(_) => "mounting in a user namespace",
        }
    }

    /// Makes the view in this process; the descriptor of the mount that was made.
    fn make(&self) -> Result<Option<OwnedFd>, SysError> {
        let (over, open_to_others) = match self {
            Self::AsItIs => return Ok(None),
            Self::PrivateMounts(over) => {
                enter_private_mounts()?;
                (over, true)
            }
            Self::UserNamespace(over) => {
                enter_user_namespace()?;
                (over, false)
            }
        };
        let source = over.dir.to_string_lossy();
        mounting::by_call(&source, &over.dir, over.flags, open_to_others).map(Some)
    }
}

/// Gives this process, which must have one thread, a mount namespace from which nothing propagates back.
pub(crate) fn enter_private_mounts() -> Result<(), SysError> {
    sys::unshare_mount_ns()?;
    sys::make_slave(Path::new("/"))
}

/// The same inside a user namespace in which the caller's ids mean themselves and no other id exists.
pub(crate) fn enter_user_namespace() -> Result<(), SysError> {
    sys::unshare_user_and_mount_ns(sys::geteuid(), sys::getegid())?;
    sys::make_slave(Path::new("/"))
}

/// Why a view could not be made.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub(crate) struct PrepareError {
    message: String,
    hint: Option<String>,
}

impl PrepareError {
    pub(crate) fn hint(&self) -> Option<String> {
        self.hint.clone()
    }
}

/// The child, waiting to become the command.
#[derive(Debug)]
pub(crate) struct Child {
    pid: i32,
    link: UnixStream,
    lines: Lines,
    gone: bool,
}

/// What came of the wish to become the command.
#[derive(Debug)]
pub(crate) enum Ended {
    /// It is the command now.
    Running(i32),
    /// Something before failed.
    Failed(String),
    /// The command could not be executed.
    NotExecuted(i32),
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.gone {
            // It waits for a word that will not come; the end of the link is word enough.
            drop(self.link.shutdown(std::net::Shutdown::Both));
            if let Err(error) = sys::wait(self.pid, false, false) {
                log::debug!("{error}");
            }
        }
    }
}

impl Child {
    /// Forks the child and lets it make the view. Must be called by a process with one thread.
    pub(crate) fn prepare(
        view: &View,
        signals: &sys::Signals,
        start: Start<'_>,
        command: &[OsString],
    ) -> Result<(Self, Option<OwnedFd>), PrepareError> {
        let fail = |what: &str, error: &dyn std::fmt::Display| PrepareError {
            message: format!("{what}: {error}"),
            hint: None,
        };
        let argv = command
            .iter()
            .map(|word| CString::new(word.clone().into_vec()))
            .collect::<Result<Vec<_>, _>>();
        let argv = argv.map_err(|error| fail("command line", &error))?;
        let (ours, theirs) = UnixStream::pair().map_err(|error| fail("socketpair", &error))?;
        let pid = match sys::fork_process().map_err(|error| fail(view.name(), &error))? {
            sys::Side::Child => {
                drop(ours);
                let never = become_command(view, signals, start, &argv, theirs);
                log::debug!("the child of run ends: {:?}", never.err());
                sys::end_now(127);
            }
            sys::Side::Parent(pid) => pid,
        };
        drop(theirs);
        let lines = ours.try_clone().map(Lines::new).map_err(|error| fail("dup", &error))?;
        let mut child = Self {
            pid,
            link: ours,
            lines,
            gone: false,
        };
        let word = child
            .lines
            .next_line()
            .map_err(|error| fail(view.name(), &error))?
            .unwrap_or_default();
        match parse_word(&word) {
            Word::Ready => {
                let fuse = child.lines.take_descriptor();
                Ok((child, fuse))
            }
            Word::Failed { message, hint } => Err(PrepareError {
                message: format!("{}: {message}", view.name()),
                hint,
            }),
            Word::NotExecuted(_) | Word::Nothing => Err(fail(view.name(), &"the child ended without a word")),
        }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// Lets it become the command.
    pub(crate) fn go(mut self) -> Result<Ended, Problem> {
        let fail = |error: io::Error| Problem::new("cannot start the command", error);
        send(&self.link, b"go\n", None).map_err(fail)?;
        let word = self.lines.next_line().map_err(fail)?;
        let Some(word) = word else {
            self.gone = true;
            return Ok(Ended::Running(self.pid));
        };
        Ok(match parse_word(&word) {
            Word::NotExecuted(errno) => Ended::NotExecuted(errno),
            Word::Failed { message, .. } => Ended::Failed(message),
            Word::Ready | Word::Nothing => Ended::Failed("the child gave a word that does not fit".to_owned()),
        })
    }
}

/// What the child says over the link, one line each.
#[derive(Debug, PartialEq, Eq)]
enum Word {
    Ready,
    Failed { message: String, hint: Option<String> },
    NotExecuted(i32),
    Nothing,
}

fn parse_word(line: &[u8]) -> Word {
    let text = String::from_utf8_lossy(line);
    let mut fields = text.split('\t');
    match (fields.next(), fields.next(), fields.next()) {
        (Some("ready"), ..) => Word::Ready,
        (Some("failed"), Some(message), hint) => Word::Failed {
            message: message.to_owned(),
            hint: hint.map(str::to_owned),
        },
        (Some("errno"), Some(number), _) => Word::NotExecuted(number.parse().unwrap_or(consts::EIO)),
        _ => Word::Nothing,
    }
}

fn failed(error: &dyn std::fmt::Display, hint: &str) -> Vec<u8> {
    let plain = error.to_string().replace(['\t', '\n'], " ");
    format!("failed\t{plain}\t{hint}\n").into_bytes()
}

/// The child's life until it is the command. Returns only when it cannot become it.
fn become_command(
    view: &View,
    signals: &sys::Signals,
    start: Start<'_>,
    argv: &[CString],
    link: UnixStream,
) -> io::Result<Infallible> {
    let fuse = match view.make() {
        Ok(fuse) => fuse,
        Err(error) => {
            log::debug!("{error}");
            send(
                &link,
                &failed(&mounting::tell(&error), mounting::call_hint(&error)),
                None,
            )?;
            return Err(error.into());
        }
    };
    send(&link, b"ready\n", fuse.as_ref().map(AsFd::as_fd))?;
    // From here on the guard alone holds the connection: its end must be seen when the guard ends.
    drop(fuse);
    let mut lines = Lines::new(link.try_clone()?);
    if lines.next_line()?.as_deref() != Some(b"go") {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
    }
    if let Err(error) = enter(view, signals, start) {
        send(&link, &failed(&error, ""), None)?;
        return Err(error);
    }
    match sys::become_program(argv) {
        Ok(never) => match never {},
        Err(error) => {
            send(&link, format!("errno\t{}\n", error.errno()).as_bytes(), None)?;
            Err(error.into())
        }
    }
}

/// The last steps before the command: its directory, by path, so inside the new mount; its rights; its signals.
fn enter(view: &View, signals: &sys::Signals, start: Start<'_>) -> io::Result<()> {
    let at = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", start.dir.display()));
    std::env::set_current_dir(start.dir).map_err(at)?;
    match view {
        View::UserNamespace(over) => {
            check_inside(&over.dir)?;
            sys::renounce(&LEAVING)?;
        }
        View::PrivateMounts(over) => check_inside(&over.dir)?,
        View::AsItIs => {}
    }
    if sys::geteuid() == 0 && !start.keep_capabilities {
        if !matches!(view, View::UserNamespace(_)) {
            wall_off();
        }
        sys::renounce(&LEAVING)?;
    }
    sys::default_signals(&[sys::SIGPIPE])?;
    Ok(signals.restore_mask()?)
}

/// Keeps the command, which has no more capabilities than other commands of root elsewhere, from walking out through their
/// directories under `/proc`. As for ordinary users, the user namespace of each does that.
fn wall_off() {
    match sys::enter_domain() {
        Ok(()) => {}
        // Inside a command that is walled off already.
        Err(error) if matches!(error.errno(), consts::EPERM | consts::E2BIG) => log::debug!("{error}"),
        Err(error) => log::info!("the command is not walled off from other commands of root: {error}"),
    }
}

/// The directory, reached by path, must be the mount: a path that was swapped meanwhile leads around it.
fn check_inside(dir: &Path) -> io::Result<()> {
    let found = sys::open_path(dir, consts::O_PATH | consts::O_DIRECTORY)?;
    let outside = || {
        io::Error::other(format!(
            "{} is not the guarded view: it was replaced meanwhile",
            dir.display()
        ))
    };
    let root = fs::metadata(dir)?;
    let fuse = sys::statfs(&found)?.kind == place::FUSE_MAGIC;
    let parent = dir.parent().and_then(|parent| fs::metadata(parent).ok());
    let crossed = parent.is_none_or(|parent| parent.dev() != root.dev());
    if fuse && crossed { Ok(()) } else { Err(outside()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(dir: &str) -> Start<'_> {
        Start {
            dir: Path::new(dir),
            keep_capabilities: true,
        }
    }

    fn signals() -> sys::Signals {
        sys::Signals::hold(&[]).unwrap()
    }

    #[test]
    fn words_survive_the_link() {
        let line = failed(&"mount(/a\tb): no", "ask");
        let message = "mount(/a b): no".to_owned();
        assert_eq!(
            parse_word(line.trim_ascii_end()),
            Word::Failed {
                message,
                hint: Some("ask".to_owned())
            }
        );
        assert_eq!(parse_word(b"errno\t2"), Word::NotExecuted(2));
        assert_eq!(parse_word(b""), Word::Nothing);
    }

    #[test]
    fn a_command_that_is_missing_is_told_by_its_errno() {
        let name = [OsString::from("/absent/program")];
        let (child, fuse) = Child::prepare(&View::AsItIs, &signals(), at("/"), &name).unwrap();
        assert!(fuse.is_none());
        assert!(matches!(child.go().unwrap(), Ended::NotExecuted(consts::ENOENT)));
    }

    #[test]
    fn a_start_directory_that_is_missing_is_a_failure() {
        let name = [OsString::from("true")];
        let (child, _) = Child::prepare(&View::AsItIs, &signals(), at("/absent"), &name).unwrap();
        assert!(matches!(child.go().unwrap(), Ended::Failed(_)));
    }

    #[test]
    fn a_child_that_is_not_wanted_ends() {
        let name = [OsString::from("true")];
        let (child, _) = Child::prepare(&View::AsItIs, &signals(), at("/"), &name).unwrap();
        let pid = child.pid();
        drop(child);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }
}
