//! Other processes: pidfds, what `/proc` says of them, their namespaces.

#![expect(unsafe_code, reason = "pidfd_open, poll and the PIDFD_GET_INFO ioctl")]

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::call::{check, own, retry};
use super::error::{Result, SysError};
use super::fd::open_path;
use super::stat::{Stat, stat_unasked};

/// Pins a process, or with `thread` one task (6.9+; EINVAL before), against reuse of its number. ESRCH when gone.
pub fn pidfd_open(pid: u32, thread: bool) -> Result<OwnedFd> {
    // PIDFD_THREAD has the value of O_EXCL.
    let flags = if thread { libc::O_EXCL } else { 0 };
    // SAFETY: integers only.
    check(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, flags) })
        .map(own)
        .map_err(|errno| SysError::new("pidfd_open", errno).number(pid).hex(flags))
}

/// Whether what the pidfd pins has exited. One poll(2) that does not wait. In doubt: yes.
pub fn pidfd_exited(fd: impl AsFd) -> bool {
    let mut poll = libc::pollfd {
        fd: fd.as_fd().as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one record, which lives through the call.
    !matches!(retry(|| unsafe { libc::poll(&raw mut poll, 1, 0) }), Ok(0))
}

/// What the kernel says of the task a pidfd pins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PidInfo {
    /// The task's number.
    pub pid: u32,
    /// Its thread group.
    pub tgid: u32,
    /// Its parent's thread group; 0 when that is outside this pid namespace.
    pub ppid: u32,
    /// The id of its cgroup, where there is one.
    pub cgroup: Option<u64>,
}

/// The first version of `struct pidfd_info`.
#[repr(C)]
#[derive(Default)]
struct RawPidInfo {
    mask: u64,
    cgroup: u64,
    pid: u32,
    tgid: u32,
    ppid: u32,
    rest: [u32; 9],
}

const PIDFD_INFO_PID: u64 = 1;
const PIDFD_INFO_CGROUP: u64 = 4;
/// `_IOWR(0xff, 11, struct pidfd_info)`.
const PIDFD_GET_INFO: libc::c_ulong = (3 << 30) | (64 << 16) | (0xff << 8) | 11;

/// The parentage of the pinned task in one call; `None` where the kernel cannot say (before 6.13) or the task is gone.
pub fn pidfd_info(fd: impl AsFd) -> Option<PidInfo> {
    const { assert!(std::mem::size_of::<RawPidInfo>() == 64) };
    let mut raw = RawPidInfo {
        mask: PIDFD_INFO_PID | PIDFD_INFO_CGROUP,
        ..RawPidInfo::default()
    };
    // SAFETY: the request names the record's size and the record lives through the call.
    check(unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), PIDFD_GET_INFO, &raw mut raw) }).ok()?;
    (raw.mask & PIDFD_INFO_PID != 0 && raw.tgid != 0).then_some(PidInfo {
        pid: raw.pid,
        tgid: raw.tgid,
        ppid: raw.ppid,
        cgroup: (raw.mask & PIDFD_INFO_CGROUP != 0).then_some(raw.cgroup),
    })
}

/// What `/proc/PID/stat` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcStat {
    /// The command's name, at most 15 bytes.
    pub comm: String,
    /// The state's letter.
    pub state: char,
    /// The parent's number.
    pub ppid: u32,
    /// The process group.
    pub pgrp: u32,
    /// The session.
    pub session: u32,
    /// When it started, in clock ticks since boot.
    pub start: u64,
}

/// Reads `/proc/PID/stat`; `pid` may be a thread's number. ENOENT or ESRCH when it is gone.
pub fn read_proc_stat(pid: u32) -> Result<ProcStat> {
    let text = read_proc(pid, "stat")?;
    parse_stat(&text).ok_or_else(|| SysError::new("read", libc::EIO).name(&format!("/proc/{pid}/stat")))
}

fn parse_stat(text: &str) -> Option<ProcStat> {
    // The name may hold anything, also parentheses: it ends at the last one.
    let (head, tail) = text.rsplit_once(')')?;
    let (_, comm) = head.split_once('(')?;
    let mut fields = tail.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let ppid = fields.next()?.parse().ok()?;
    let pgrp = fields.next()?.parse().ok()?;
    let session = fields.next()?.parse().ok()?;
    // Field 22, and `session` is field 6.
    let start = fields.nth(15)?.parse().ok()?;
    Some(ProcStat {
        comm: comm.to_owned(),
        state,
        ppid,
        pgrp,
        session,
        start,
    })
}

/// What `/proc/PID/status` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcStatus {
    /// The thread group.
    pub tgid: u32,
    /// The parent's number.
    pub ppid: u32,
    /// The supplementary groups.
    pub groups: Vec<u32>,
    /// The file mode creation mask.
    pub umask: Option<u32>,
}

/// Reads `/proc/PID/status`; `pid` may be a thread's number.
pub fn read_proc_status(pid: u32) -> Result<ProcStatus> {
    let text = read_proc(pid, "status")?;
    parse_status(&text).ok_or_else(|| SysError::new("read", libc::EIO).name(&format!("/proc/{pid}/status")))
}

fn parse_status(text: &str) -> Option<ProcStatus> {
    let (mut tgid, mut ppid, mut groups, mut umask) = (None, None, None, None);
    // The name in the first line is escaped: no other line can be forged through it.
    for (key, value) in text.lines().filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        match key {
            "Tgid" => tgid = value.parse().ok(),
            "PPid" => ppid = value.parse().ok(),
            "Umask" => umask = u32::from_str_radix(value, 8).ok(),
            "Groups" => groups = value.split_ascii_whitespace().map(|id| id.parse().ok()).collect(),
            _ => {}
        }
    }
    Some(ProcStatus {
        tgid: tgid?,
        ppid: ppid?,
        groups: groups?,
        umask,
    })
}

/// The cgroup path of a process in the unified hierarchy, as seen from our own cgroup namespace.
pub fn proc_cgroup(pid: u32) -> Result<String> {
    let text = read_proc(pid, "cgroup")?;
    let unified = text.lines().find_map(|line| line.strip_prefix("0::"));
    let path = unified.or_else(|| text.lines().next());
    path.map(str::to_owned)
        .ok_or_else(|| SysError::new("read", libc::ENODATA).name(&format!("/proc/{pid}/cgroup")))
}

/// The program that a process executes, as this process can reach it; `None` when it is gone or we may not look.
#[must_use]
pub fn program_of(pid: u32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/exe")).ok()
}

/// The number of the system call a thread sits in; `None` while it runs, or when we may not look.
#[must_use]
pub fn syscall_of(tid: u32) -> Option<i64> {
    read_proc(tid, "syscall")
        .ok()?
        .split_ascii_whitespace()
        .next()?
        .parse()
        .ok()
        .filter(|&number| number >= 0)
}

/// Whether a process is in our own pid namespace. EACCES when we may not look.
pub fn same_pid_namespace(pid: u32) -> Result<bool> {
    let inode = |path: String| {
        std::fs::metadata(&path)
            .map(|meta| (meta.dev(), meta.ino()))
            .map_err(|error| SysError::from_io("stat", &error).name(&path))
    };
    Ok(inode(format!("/proc/{pid}/ns/pid"))? == inode("/proc/self/ns/pid".to_owned())?)
}

/// The program that a thread runs: of the file, not of its name. No file server is asked.
pub fn executable_of(tid: u32) -> Result<Stat> {
    let fd = open_path(Path::new(&format!("/proc/{tid}/exe")), libc::O_PATH)?;
    stat_unasked(&fd)
}

/// One read of a file in `/proc/PID`: these are made anew at each open, and most fit a page.
/// The command of a process, as the kernel names it: at most 15 bytes, chosen by the program.
pub fn command_of(pid: u32) -> Result<String> {
    Ok(read_proc(pid, "comm")?.trim_end_matches('\n').to_owned())
}

fn read_proc(pid: u32, file: &str) -> Result<String> {
    let path = format!("/proc/{pid}/{file}");
    let fail = |call, error: &std::io::Error| SysError::from_io(call, error).name(&path);
    let mut opened = File::open(&path).map_err(|error| fail("open", &error))?;
    let mut bytes = Vec::with_capacity(2048);
    opened.read_to_end(&mut bytes).map_err(|error| fail("read", &error))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Whether the process has a writable shared mapping of a file with this inode number. Evidence, not proof: the device is
/// not compared, since a mapping that passes through a mount shows the one or the other.
#[must_use]
pub fn maps_writable(pid: u32, ino: u64) -> bool {
    let Ok(maps) = std::fs::read_to_string(format!("/proc/{pid}/maps")) else {
        return false;
    };
    let ino = ino.to_string();
    maps.lines().any(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let writable = fields
            .next()
            .is_some_and(|bits| bits.contains('w') && bits.ends_with('s'));
        writable && fields.nth(2) == Some(ino.as_str())
    })
}

/// Whether the system call that a thread sits in may make a name in a directory; also where we may not look.
#[must_use]
pub fn is_making_names(tid: u32) -> bool {
    read_proc(tid, "syscall").map_or(true, |text| call_makes_names(&text))
}

/// The same from `/proc/TID/syscall`: the number of the call and its arguments, or a word while the thread runs.
fn call_makes_names(text: &str) -> bool {
    let mut fields = text.split_ascii_whitespace();
    let Some(number) = fields.next().and_then(|field| field.parse::<i64>().ok()) else {
        return true;
    };
    let flags_at = match number {
        libc::SYS_open => 1,
        libc::SYS_openat => 2,
        _ => return number < 0 || makes_names(number),
    };
    let flags = fields.nth(flags_at).and_then(|field| field.strip_prefix("0x"));
    let flags = flags.and_then(|digits| i64::from_str_radix(digits, 16).ok());
    flags.is_none_or(|flags| flags & i64::from(libc::O_CREAT) != 0)
}

/// Whether a system call of this number may make a name in a directory.
#[must_use]
pub fn makes_names(number: i64) -> bool {
    const MAKING: [i64; 20] = [
        libc::SYS_open,
        libc::SYS_openat,
        libc::SYS_openat2,
        libc::SYS_creat,
        libc::SYS_mknod,
        libc::SYS_mknodat,
        libc::SYS_mkdir,
        libc::SYS_mkdirat,
        libc::SYS_link,
        libc::SYS_linkat,
        libc::SYS_symlink,
        libc::SYS_symlinkat,
        libc::SYS_rename,
        libc::SYS_renameat,
        libc::SYS_renameat2,
        libc::SYS_bind,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_setup,
        libc::SYS_acct,
        libc::SYS_swapon,
    ];
    MAKING.contains(&number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_makes_a_name_is_told_from_one_that_looks() {
        let call =
            |number: i64, flags: i32| format!("{number} 0xffffff9c 0x7ffe {flags:#x} 0x1b6 0x0 0x0 0x7ffd 0x7f1a\n");
        assert!(call_makes_names(&call(
            libc::SYS_openat,
            libc::O_CREAT | libc::O_WRONLY
        )));
        assert!(!call_makes_names(&call(libc::SYS_openat, libc::O_WRONLY)));
        assert!(call_makes_names(&call(libc::SYS_openat2, 0)));
        assert!(call_makes_names(&call(libc::SYS_renameat2, 0)));
        assert!(!call_makes_names(&call(libc::SYS_newfstatat, 0)));
        assert!(call_makes_names(&format!("{} 0x7ffe 0x40 0x1b6", libc::SYS_open)));
        assert!(!call_makes_names(&format!("{} 0x7ffe 0x0 0x1b6", libc::SYS_open)));
        for unknown in ["running\n", "-1 0x7ffe 0x7f1a\n", "", "257"] {
            assert!(call_makes_names(unknown), "{unknown}");
        }
    }

    #[test]
    fn a_command_name_with_parentheses_does_not_shift_the_fields() {
        let line = "12 (a) R 9 (b) S 7 12 11 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 1000 1 ...";
        let stat = parse_stat(line).unwrap();
        assert_eq!(stat.comm, "a) R 9 (b");
        assert_eq!((stat.ppid, stat.pgrp, stat.session, stat.start), (7, 12, 11, 4242));
    }

    #[test]
    fn our_own_facts_agree() {
        let me = std::process::id();
        let fd = pidfd_open(me, false).unwrap();
        assert!(!pidfd_exited(&fd));
        let stat = read_proc_stat(me).unwrap();
        let status = read_proc_status(me).unwrap();
        assert_eq!((status.tgid, status.ppid), (me, stat.ppid));
        if let Some(info) = pidfd_info(&fd) {
            assert_eq!((info.pid, info.tgid, info.ppid), (me, me, stat.ppid));
        }
        assert!(same_pid_namespace(me).unwrap());
        assert!(proc_cgroup(me).unwrap().starts_with('/'));
    }

    #[test]
    fn an_exited_child_is_seen() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let fd = pidfd_open(child.id(), true)
            .or_else(|_| pidfd_open(child.id(), false))
            .unwrap();
        assert!(!pidfd_exited(&fd));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(pidfd_exited(&fd));
        let beyond_all = 1 << 29;
        assert_eq!(pidfd_open(beyond_all, false).unwrap_err().errno(), libc::ESRCH);
    }
}
