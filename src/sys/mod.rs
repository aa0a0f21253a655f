//! Every system call of the crate, and all of its `unsafe`.
//!
//! Functions take descriptors and single names, never paths below the backing root, and return errors that keep the
//! call, its arguments and the errno. No policy: what a failure means is decided above.

mod attr;
mod call;
mod cred;
mod data;
mod dir;
mod error;
mod fanotify;
mod fd;
mod flags;
mod landlock;
mod mount;
mod names;
mod own;
mod probe;
mod process;
mod socket;
mod spawn;
mod stat;
#[cfg(test)]
mod tests;
mod tty;

pub use attr::{
    TimeSet, access, chmod, chown, coarse_time, get_xattr, list_xattr, remove_xattr, set_times, set_xattr, truncate,
};
pub use call::calls_made;
pub use cred::{CredScope, Creds, as_caller, keep_serving_capabilities};
pub use data::{
    Lease, Statfs, clone_content, copy_file_range, fallocate, fdatasync, fsync, ftruncate, lock_file, pread, pwrite,
    pwrite_append, seek, start_writeback, statfs, syncfs, write_lease,
};
pub use dir::{DirEntries, DirEntry, read_dir_entries, seek_dir};
pub use error::{Result, SysError};
pub use fanotify::{Watch, WatchEvent};
pub use fd::{
    Handle, dup, fd_path, handle_at, handle_of, open_at, open_by_handle, open_child, open_path, open_tmpfile, reopen,
};
pub use flags::{FlagCall, FlagData, file_flags};
pub use landlock::{enter_domain, has_domains};
pub use mount::{
    AccessTimes, FuseMount, MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_RDONLY, fuse_connection, is_fuse_device, make_slave,
    mount_fuse, open_fuse_device, private_mount, remount, set_access_times, umount, unshare_mount_ns,
    unshare_user_and_mount_ns,
};
pub use names::{link_at, link_fd_at, mkdir_at, mknod_at, readlink, rename_at, rmdir_at, symlink_at, unlink_at};
pub use own::{
    CAP_DAC_READ_SEARCH, CAP_SETUID, CAP_SYS_ADMIN, CAP_SYS_PTRACE, SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGIO, SIGKILL,
    SIGPIPE, SIGQUIT, SIGSTOP, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2, SIGWINCH, SIGXCPU, SIGXFSZ,
    Waited, default_signals, getegid, geteuid, getgid, getpgrp, gettid, getuid, has_cap, ignore_signals,
    in_initial_user_namespace, kill, pre_exec, raise_command_limits, raise_nofile_limit, read_signal,
    set_child_subreaper, set_dumpable, setpgid, setsid, share_heap, signal_fd, tcgetpgrp, tcsetpgrp,
    unblock_all_signals, wait,
};
pub use probe::{access_times, exchange_names, kernel_release, mount_forbids};
pub use process::{
    PidInfo, ProcStat, ProcStatus, command_of, executable_of, is_making_names, makes_names, maps_writable,
    pidfd_exited, pidfd_info, pidfd_open, proc_cgroup, program_of, read_proc_stat, read_proc_status,
    same_pid_namespace, syscall_of,
};
pub use socket::{MAX_FDS, PeerCred, peer_cred, peer_pidfd, recv_with_fds, send_with_fds};
pub use spawn::{
    Arrived, Readable, Side, Signals, become_program, clear_umask, close_inherited, end_now, fork_process, renounce,
    stop_self, take_standard_descriptors, wait_readable,
};
pub use stat::{Stat, stat, stat_at, stat_unasked};
pub use tty::Terminal;

pub mod consts;
