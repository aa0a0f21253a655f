//! This process: limits, signals, dumpability, capabilities, job control, waiting for children.

#![expect(unsafe_code, reason = "prctl, rlimit, signal, terminal and wait calls")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::call::{check, own, retry};
use super::cred::Caps;
use super::error::{Result, SysError};

pub use libc::{
    SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGIO, SIGKILL, SIGPIPE, SIGQUIT, SIGSTOP, SIGTERM, SIGTSTP, SIGTTIN,
};
pub use libc::{SIGTTOU, SIGUSR1, SIGUSR2, SIGWINCH, SIGXCPU, SIGXFSZ};

/// The administrator's capability, which mounting and passthrough need.
pub const CAP_SYS_ADMIN: u32 = 21;
/// By which a process reaches into others, and into the directories they see.
pub const CAP_SYS_PTRACE: u32 = 19;
/// To open by handle.
pub const CAP_DAC_READ_SEARCH: u32 = 2;
/// To act as another user.
pub const CAP_SETUID: u32 = 7;

/// One heap for all threads, which grows by a megabyte at a time: each of several would grow page by page, and what one
/// thread has allocated and another frees would lie about in all of them.
pub fn share_heap() {
    #[cfg(target_env = "gnu")]
    {
        const STEP: i32 = 1 << 20;
        // SAFETY: integers only.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
        // SAFETY: integers only.
        unsafe { libc::mallopt(libc::M_TOP_PAD, STEP) };
    }
}

/// Our real user id.
#[must_use]
pub fn getuid() -> u32 {
    nix::unistd::getuid().as_raw()
}

/// Our effective user id.
#[must_use]
pub fn geteuid() -> u32 {
    nix::unistd::geteuid().as_raw()
}

/// Our real group id.
#[must_use]
pub fn getgid() -> u32 {
    nix::unistd::getgid().as_raw()
}

/// Our effective group id.
#[must_use]
pub fn getegid() -> u32 {
    nix::unistd::getegid().as_raw()
}

/// The calling thread's number.
#[must_use]
pub fn gettid() -> u32 {
    nix::unistd::gettid().as_raw().unsigned_abs()
}

/// Whether this thread may use `cap` in its own user namespace.
#[must_use]
pub fn has_cap(cap: u32) -> bool {
    Caps::get().is_ok_and(|caps| caps.has_effective(cap))
}

/// Whether our user namespace maps every id to itself, as only the initial one (or its twin) does.
#[must_use]
pub fn in_initial_user_namespace() -> bool {
    std::fs::read_to_string("/proc/self/uid_map")
        .is_ok_and(|map| map.split_ascii_whitespace().eq(["0", "0", "4294967295"]))
}

/// Whether other processes of this user may look into this one (its memory, its descriptors under `/proc`).
pub fn set_dumpable(on: bool) -> Result<()> {
    prctl(libc::PR_SET_DUMPABLE, u64::from(on))
}

/// Orphaned descendants become our children instead of init's.
pub fn set_child_subreaper(on: bool) -> Result<()> {
    prctl(libc::PR_SET_CHILD_SUBREAPER, u64::from(on))
}

fn prctl(option: i32, value: u64) -> Result<()> {
    // SAFETY: these options take integers; the unused ones must be 0.
    check(unsafe { libc::prctl(option, value, 0_u64, 0_u64, 0_u64) })
        .map(drop)
        .map_err(|errno| SysError::new("prctl", errno).number(option).number(value))
}

/// Raises the soft limit of open files to the hard one; says (soft, hard) as they are then.
pub fn raise_nofile_limit() -> Result<(u64, u64)> {
    raise_limit(Resource::RLIMIT_NOFILE)
}

/// Raises the soft limits that are meant for one command, of a file's size, of memory and of time, to the hard ones.
pub fn raise_command_limits() -> Result<()> {
    let limits = [
        Resource::RLIMIT_FSIZE,
        Resource::RLIMIT_AS,
        Resource::RLIMIT_DATA,
        Resource::RLIMIT_CPU,
    ];
    limits.into_iter().try_for_each(|which| raise_limit(which).map(drop))
}

fn raise_limit(which: Resource) -> Result<(u64, u64)> {
    let fail = |call, errno: nix::errno::Errno| SysError::new(call, errno as i32).name(&format!("{which:?}"));
    let (soft, hard) = getrlimit(which).map_err(|errno| fail("getrlimit", errno))?;
    if soft < hard {
        setrlimit(which, hard, hard).map_err(|errno| fail("setrlimit", errno))?;
    }
    Ok((hard.max(soft), hard))
}

/// Ignores signals for good, such as SIGPIPE and SIGIO (lease breaks). What we execute would inherit it: see
/// `default_signals`.
pub fn ignore_signals(signals: &[i32]) -> Result<()> {
    signals.iter().try_for_each(|&signal| set_signal(signal, libc::SIG_IGN))
}

/// Gives signals their default action back, also between fork and exec.
pub fn default_signals(signals: &[i32]) -> Result<()> {
    signals.iter().try_for_each(|&signal| set_signal(signal, libc::SIG_DFL))
}

fn set_signal(signal: i32, action: libc::sighandler_t) -> Result<()> {
    // SAFETY: the action is SIG_IGN or SIG_DFL: no handler runs.
    let old = unsafe { libc::signal(signal, action) };
    if old == libc::SIG_ERR {
        return Err(SysError::new("signal", super::call::errno()).number(signal));
    }
    Ok(())
}

/// Blocks signals in this thread (and those it makes later) and reads them from a descriptor instead.
pub fn signal_fd(signals: &[i32]) -> Result<OwnedFd> {
    let set = signal_set(signals);
    mask_signals(libc::SIG_BLOCK, &set)?;
    // SAFETY: the set is valid; -1 asks for a new descriptor.
    check(unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC) })
        .map(own)
        .map_err(|errno| SysError::new("signalfd", errno))
}

/// Waits for the next signal on a descriptor of `signal_fd`: its number and the sender's pid.
pub fn read_signal(fd: impl AsFd) -> Result<(i32, u32)> {
    let fd = fd.as_fd();
    // SAFETY: all-zero bytes are a valid record of integers.
    let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
    let size = std::mem::size_of::<libc::signalfd_siginfo>();
    // SAFETY: the record lives through the call and its size is given.
    retry(|| unsafe { libc::read(fd.as_raw_fd(), (&raw mut info).cast(), size) })
        .map_err(|errno| SysError::new("read", errno).fd(fd))?;
    Ok((i32::try_from(info.ssi_signo).unwrap_or(0), info.ssi_pid))
}

/// Unblocks every signal, also between fork and exec.
pub fn unblock_all_signals() -> Result<()> {
    mask_signals(libc::SIG_SETMASK, &signal_set(&[]))
}

fn signal_set(signals: &[i32]) -> libc::sigset_t {
    let mut set = nix::sys::signal::SigSet::empty();
    for signal in signals
        .iter()
        .filter_map(|&signal| nix::sys::signal::Signal::try_from(signal).ok())
    {
        set.add(signal);
    }
    *set.as_ref()
}

fn mask_signals(how: i32, set: &libc::sigset_t) -> Result<()> {
    // SAFETY: the set is valid and the former one is not asked for. Returns the error instead of setting errno.
    match unsafe { libc::pthread_sigmask(how, set, std::ptr::null_mut()) } {
        0 => Ok(()),
        errno => Err(SysError::new("pthread_sigmask", errno).number(how)),
    }
}

/// Sends a signal; a negative `pid` is a process group.
pub fn kill(pid: i32, signal: i32) -> Result<()> {
    // SAFETY: integers only.
    check(unsafe { libc::kill(pid, signal) })
        .map(drop)
        .map_err(|errno| SysError::new("kill", errno).number(pid).number(signal))
}

/// What became of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// It ended with this code.
    Exited(i32),
    /// A signal ended it.
    Killed(i32),
    /// A signal stopped it.
    Stopped(i32),
    /// It runs again.
    Continued,
}

/// Waits for a child (-1: any): also for stops and continuations with `job_control`; without waiting when `poll`, and
/// then `None` says that nothing happened. ECHILD when there is none. EINTR is returned.
pub fn wait(pid: i32, job_control: bool, poll: bool) -> Result<Option<(u32, Waited)>> {
    let mut flags = 0;
    if job_control {
        flags |= libc::WUNTRACED | libc::WCONTINUED;
    }
    if poll {
        flags |= libc::WNOHANG;
    }
    let mut status = 0;
    // SAFETY: the status lives through the call.
    let child = check(unsafe { libc::waitpid(pid, &raw mut status, flags) })
        .map_err(|errno| SysError::new("waitpid", errno).number(pid).hex(flags))?;
    Ok(u32::try_from(child)
        .ok()
        .filter(|&child| child != 0)
        .map(|child| (child, waited(status))))
}

fn waited(status: i32) -> Waited {
    if libc::WIFEXITED(status) {
        Waited::Exited(libc::WEXITSTATUS(status))
    } else if libc::WIFSIGNALED(status) {
        Waited::Killed(libc::WTERMSIG(status))
    } else if libc::WIFSTOPPED(status) {
        Waited::Stopped(libc::WSTOPSIG(status))
    } else {
        Waited::Continued
    }
}

/// The terminal's foreground process group. ENOTTY when it is no terminal of ours.
pub fn tcgetpgrp(fd: impl AsFd) -> Result<i32> {
    let fd = fd.as_fd();
    // SAFETY: integers only.
    check(unsafe { libc::tcgetpgrp(fd.as_raw_fd()) })
        .map(|pgrp| i32::try_from(pgrp).unwrap_or(0))
        .map_err(|errno| SysError::new("tcgetpgrp", errno).fd(fd))
}

/// Gives the terminal to a process group. From a background process this stops us unless SIGTTOU is blocked or ignored.
pub fn tcsetpgrp(fd: impl AsFd, pgrp: i32) -> Result<()> {
    let fd = fd.as_fd();
    // SAFETY: integers only.
    retry(|| unsafe { libc::tcsetpgrp(fd.as_raw_fd(), pgrp) })
        .map(drop)
        .map_err(|errno| SysError::new("tcsetpgrp", errno).fd(fd).number(pgrp))
}

/// Our process group.
#[must_use]
pub fn getpgrp() -> i32 {
    nix::unistd::getpgrp().as_raw()
}

/// Puts a process (0: this one) into a process group (0: its own number).
pub fn setpgid(pid: i32, pgrp: i32) -> Result<()> {
    // SAFETY: integers only.
    check(unsafe { libc::setpgid(pid, pgrp) })
        .map(drop)
        .map_err(|errno| SysError::new("setpgid", errno).number(pid).number(pgrp))
}

/// Starts a session of our own, away from the terminal.
pub fn setsid() -> Result<()> {
    // SAFETY: no argument.
    check(unsafe { libc::setsid() })
        .map(drop)
        .map_err(|errno| SysError::new("setsid", errno))
}

/// Runs `f` in the child between fork and exec. It may call what this module offers (plain system calls), and must
/// neither allocate on its good path, nor take a lock, nor use a descriptor of `/proc/self/fd`.
pub fn pre_exec(command: &mut Command, f: impl FnMut() -> io::Result<()> + Send + Sync + 'static) {
    // SAFETY: the contract above: the closures of this crate make plain system calls only, which are safe after fork.
    unsafe { command.pre_exec(f) };
}
