//! Process life: fork, exec, signals as data, standard descriptors.
//!
//! Never knows what the processes are for.

#![expect(unsafe_code, reason = "fork, _exit, close_range and the capability calls of prctl")]

use std::convert::Infallible;
use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{ForkResult, execvp, fork};

use super::call::check;
use super::cred::inherit_no_capabilities;
use super::error::{Result, SysError};
use super::fd::open_path;
use super::own::kill;

/// Which side of a fork this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The process that forked, with the child's number.
    Parent(i32),
    /// The new process.
    Child,
}

fn failed(call: &'static str, errno: Errno) -> SysError {
    SysError::new(call, errno as i32)
}

/// Makes a child process. Only for a process with one thread: the child goes on with all of its code.
pub fn fork_process() -> Result<Side> {
    // SAFETY: callers have one thread, so no lock is held by a thread that the child lacks.
    match unsafe { fork() }.map_err(|errno| failed("fork", errno))? {
        ForkResult::Parent { child } => Ok(Side::Parent(child.as_raw())),
        ForkResult::Child => Ok(Side::Child),
    }
}

/// Becomes the program `argv[0]`, looked for in `PATH`. Returns only on failure.
pub fn become_program(argv: &[CString]) -> Result<Infallible> {
    let name = argv.first().map_or(c"", CString::as_c_str);
    execvp(name, argv).map_err(|errno| failed("execvp", errno).name(OsStr::from_bytes(name.to_bytes())))
}

/// Ends this process at once, without running anything registered for its end: for a child that did not exec.
pub fn end_now(code: i32) -> ! {
    // SAFETY: _exit has no precondition.
    unsafe { libc::_exit(code) }
}

/// Closes every descriptor above the standard three. Only right at the start of a program that has opened none.
pub fn close_inherited() -> Result<()> {
    // SAFETY: called first in the program, when nothing in it owns a descriptor above 2.
    check(unsafe { libc::close_range(3, libc::c_uint::MAX, 0) })
        .map(drop)
        .map_err(|errno| SysError::new("close_range", errno))
}

/// Takes capabilities away from what this process executes: the bounding set keeps them from coming back, and nothing is
/// inherited. A user namespace made later has its own, but cannot undo a mount it did not make.
pub fn renounce(capabilities: &[u32]) -> Result<()> {
    const NONE: libc::c_ulong = 0;
    let clear = libc::PR_CAP_AMBIENT_CLEAR_ALL;
    // SAFETY: PR_CAP_AMBIENT takes integers only.
    check(unsafe { libc::prctl(libc::PR_CAP_AMBIENT, clear, NONE, NONE, NONE) })
        .map_err(|errno| SysError::new("prctl", errno).name("PR_CAP_AMBIENT_CLEAR_ALL"))?;
    for &capability in capabilities {
        let capability = libc::c_ulong::from(capability);
        // SAFETY: PR_CAPBSET_READ takes integers only.
        let held = check(unsafe { libc::prctl(libc::PR_CAPBSET_READ, capability, NONE, NONE, NONE) });
        if held.is_ok_and(|held| held == 0) {
            continue;
        }
        // SAFETY: PR_CAPBSET_DROP takes integers only.
        check(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, NONE, NONE, NONE) })
            .map_err(|errno| SysError::new("prctl", errno).name("PR_CAPBSET_DROP"))?;
    }
    inherit_no_capabilities()
}

/// Lets files be made with the mode asked for.
pub fn clear_umask() {
    umask(Mode::empty());
}

fn mask(how: SigmaskHow, set: &SigSet) -> Result<SigSet> {
    let mut before = SigSet::empty();
    sigprocmask(how, Some(set), Some(&mut before)).map_err(|errno| failed("sigprocmask", errno))?;
    Ok(before)
}

fn signal_of(number: i32) -> Result<Signal> {
    Signal::try_from(number).map_err(|errno| failed("signal", errno).number(number))
}

/// Does `action` while `signal` is blocked.
pub(super) fn blocked<T>(signal: i32, action: impl FnOnce() -> Result<T>) -> Result<T> {
    let before = mask(SigmaskHow::SIG_BLOCK, &SigSet::from(signal_of(signal)?))?;
    let result = action();
    mask(SigmaskHow::SIG_SETMASK, &before)?;
    result
}

/// Stops this process by `signal`, also while it is blocked; returns when it is continued.
pub fn stop_self(signal: i32) -> Result<()> {
    let set = SigSet::from(signal_of(signal)?);
    kill(i32::try_from(std::process::id()).unwrap_or(0), signal)?;
    let before = mask(SigmaskHow::SIG_UNBLOCK, &set)?;
    mask(SigmaskHow::SIG_SETMASK, &before).map(drop)
}

/// Signals held back from their effect and read as data instead.
#[derive(Debug)]
pub struct Signals {
    fd: SignalFd,
    before: SigSet,
}

/// One signal that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrived {
    /// Its number.
    pub signal: i32,
    /// True when a process sent it, false when the kernel did (a terminal key, a child's change).
    pub by_process: bool,
}

/// Something whose descriptor can be waited for.
pub trait Readable {
    /// The descriptor.
    fn descriptor(&self) -> BorrowedFd<'_>;
}

impl<T: AsFd> Readable for T {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }
}

impl Signals {
    /// Holds back `signals` in this thread and all that it starts.
    pub fn hold(signals: &[i32]) -> Result<Self> {
        let mut set = SigSet::empty();
        for signal in signals {
            set.add(signal_of(*signal)?);
        }
        let before = mask(SigmaskHow::SIG_BLOCK, &set)?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let fd = SignalFd::with_flags(&set, flags).map_err(|errno| failed("signalfd", errno))?;
        Ok(Self { fd, before })
    }

    /// The next signal, if one has arrived.
    pub fn next(&self) -> Result<Option<Arrived>> {
        let Some(info) = self.fd.read_signal().map_err(|errno| failed("read", errno))? else {
            return Ok(None);
        };
        // Codes of the kernel's own are positive, those of kill, tkill and sigqueue are not.
        let by_process = info.ssi_code <= 0;
        Ok(Some(Arrived {
            signal: i32::try_from(info.ssi_signo).unwrap_or(0),
            by_process,
        }))
    }

    /// Gives a child the signal mask this process had before.
    pub fn restore_mask(&self) -> Result<()> {
        mask(SigmaskHow::SIG_SETMASK, &self.before).map(drop)
    }

    /// Waits until a signal has arrived or `other` can be read, at most `milliseconds` if given; says which of the two
    /// (signal, other).
    pub fn wait_with(&self, other: Option<&dyn Readable>, milliseconds: Option<u16>) -> Result<(bool, bool)> {
        let mut fds = vec![PollFd::new(self.fd.as_fd(), PollFlags::POLLIN)];
        fds.extend(other.map(|other| PollFd::new(other.descriptor(), PollFlags::POLLIN)));
        match poll(&mut fds, milliseconds.map_or(PollTimeout::NONE, PollTimeout::from)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(failed("poll", errno)),
        }
        let ready = |index: usize| fds.get(index).is_some_and(|fd| fd.any().unwrap_or(false));
        Ok((ready(0), ready(1)))
    }
}

/// Waits until `fd` can be read (or has ended), at most `milliseconds`; false when the time is over.
pub fn wait_readable(fd: impl AsFd, milliseconds: u16) -> Result<bool> {
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    loop {
        match poll(&mut fds, PollTimeout::from(milliseconds)) {
            Ok(count) => return Ok(count > 0),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(failed("poll", errno)),
        }
    }
}

/// Points the three standard descriptors at `/dev/null`, and gives back what input and output were.
pub fn take_standard_descriptors() -> Result<(OwnedFd, OwnedFd)> {
    let input = super::dup(std::io::stdin())?;
    let output = super::dup(std::io::stdout())?;
    let null = open_path(Path::new("/dev/null"), libc::O_RDWR)?;
    nix::unistd::dup2_stdin(&null).map_err(|errno| failed("dup2", errno).number(0))?;
    nix::unistd::dup2_stdout(&null).map_err(|errno| failed("dup2", errno).number(1))?;
    nix::unistd::dup2_stderr(&null).map_err(|errno| failed("dup2", errno).number(2))?;
    Ok((input, output))
}
