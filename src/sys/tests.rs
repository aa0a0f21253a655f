//! The calls on real directories: one on the disk, one on tmpfs.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::*;
use crate::guard::Timestamp;

fn os(name: &str) -> &OsStr {
    OsStr::new(name)
}

fn dirs() -> Vec<(tempfile::TempDir, OwnedFd)> {
    let on_disk = tempfile::tempdir().unwrap();
    let in_memory = tempfile::tempdir_in("/dev/shm").unwrap();
    [on_disk, in_memory]
        .into_iter()
        .map(|dir| (open_path(dir.path(), libc::O_PATH).unwrap(), dir))
        .map(swap)
        .collect()
}

fn swap<A, B>((a, b): (A, B)) -> (B, A) {
    (b, a)
}

fn root() -> bool {
    if geteuid() == 0 && in_initial_user_namespace() {
        return true;
    }
    eprintln!("SKIPPED: needs root");
    false
}

#[test]
fn errors_show_the_call_as_it_was_made() {
    let (dir, fd) = dirs().remove(0);
    let number = fd.as_raw_fd();
    let missing = open_at(&fd, os("notes.txt"), libc::O_RDONLY, 0).unwrap_err();
    assert_eq!(
        missing.to_string(),
        format!("openat2({number}, \"notes.txt\", O_RDONLY): No such file or directory")
    );
    assert_eq!(std::io::Error::from(missing).kind(), std::io::ErrorKind::NotFound);
    fs::write(dir.path().join("f"), "x").unwrap();
    let taken = open_at(&fd, os("f"), libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL, 0o600).unwrap_err();
    assert_eq!(
        taken.to_string(),
        format!("openat2({number}, \"f\", O_WRONLY|O_CREAT|O_EXCL): File exists")
    );
    let busy = rename_at(&fd, os("f"), &fd, os("f\nx/y"), 1).unwrap_err();
    assert_eq!(
        busy.to_string(),
        format!("renameat2({number}, \"f\", {number}, \"f\\nx/y\", 0x1): Invalid argument")
    );
    let read = pread(&fd, &mut [0; 4], 7).unwrap_err();
    assert_eq!(read.to_string(), format!("pread({number}, 4, 7): Bad file descriptor"));
    assert_eq!(open_child(&fd, os("a\0b")).unwrap_err().errno(), libc::EINVAL);
    assert_eq!(open_child(&fd, os("..")).unwrap_err().errno(), libc::EINVAL);
}

#[test]
fn a_child_is_pinned_and_opened_again() {
    for (dir, fd) in dirs() {
        fs::write(dir.path().join("f"), "content").unwrap();
        let pinned = open_child(&fd, os("f")).unwrap();
        fs::rename(dir.path().join("f"), dir.path().join("g")).unwrap();
        let opened = reopen(&pinned, libc::O_RDWR).unwrap();
        let mut buf = [0; 16];
        assert_eq!(pread(&opened, &mut buf, 3).unwrap(), 4);
        assert_eq!(&buf[..4], b"tent");
        assert_eq!(stat(&pinned).unwrap(), stat_at(&fd, os("g")).unwrap());
        assert!(stat(&pinned).unwrap().is_file());
    }
}

#[test]
fn neither_symlinks_nor_mounts_are_crossed() {
    let (dir, fd) = dirs().remove(0);
    std::os::unix::fs::symlink("/etc/passwd", dir.path().join("l")).unwrap();
    let link = open_child(&fd, os("l")).unwrap();
    assert!(stat(&link).unwrap().is_symlink());
    assert_eq!(readlink(&link).unwrap(), "/etc/passwd");
    assert_eq!(
        open_at(&fd, os("l"), libc::O_RDONLY, 0).unwrap_err().errno(),
        libc::ELOOP
    );
    let top = open_path(Path::new("/"), libc::O_PATH).unwrap();
    assert_eq!(open_child(&top, os("proc")).unwrap_err().errno(), libc::EXDEV);
    assert_eq!(
        open_at(&top, os("proc"), libc::O_RDONLY, 0).unwrap_err().errno(),
        libc::EXDEV
    );
    let proc = open_path(Path::new("/proc"), libc::O_PATH).unwrap();
    assert_eq!(
        open_at(&proc, os("self"), libc::O_RDONLY, 0).unwrap_err().errno(),
        libc::ELOOP
    );
}

#[test]
fn an_unnamed_file_gets_a_name_once() {
    for (dir, fd) in dirs() {
        let file = open_tmpfile(&fd, libc::O_RDWR, 0o644).unwrap();
        pwrite(&file, b"staged", 0).unwrap();
        link_fd_at(&file, &fd, os("new")).unwrap();
        assert_eq!(fs::read(dir.path().join("new")).unwrap(), b"staged");
        assert_eq!(link_fd_at(&file, &fd, os("new")).unwrap_err().errno(), libc::EEXIST);
    }
}

#[test]
fn names_are_made_and_removed() {
    for (dir, fd) in dirs() {
        mkdir_at(&fd, os("d"), 0o755).unwrap();
        let sub = open_child(&fd, os("d")).unwrap();
        mknod_at(&sub, os("p"), libc::S_IFIFO | 0o600, 0).unwrap();
        symlink_at(os("p"), &sub, os("s")).unwrap();
        link_at(&sub, os("s"), &fd, os("t")).unwrap();
        rename_at(&sub, os("p"), &fd, os("q"), 0).unwrap();
        assert_eq!(
            rename_at(&fd, os("q"), &fd, os("t"), libc::RENAME_NOREPLACE)
                .unwrap_err()
                .errno(),
            libc::EEXIST
        );
        rename_at(&fd, os("q"), &fd, os("t"), libc::RENAME_EXCHANGE).unwrap();
        assert!(stat_at(&fd, os("q")).unwrap().is_symlink());
        assert_eq!(rmdir_at(&fd, os("d")).unwrap_err().errno(), libc::ENOTEMPTY);
        unlink_at(&sub, os("s")).unwrap();
        rmdir_at(&fd, os("d")).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}

#[test]
fn a_directory_is_read_in_parts_and_from_a_cookie() {
    for (dir, fd) in dirs() {
        for n in 0..100 {
            fs::write(dir.path().join(format!("a name of some length {n}")), "").unwrap();
        }
        let open = reopen(&fd, libc::O_RDONLY | libc::O_DIRECTORY).unwrap();
        let mut buf = [0; 512];
        let mut all = Vec::new();
        loop {
            let entries = read_dir_entries(&open, &mut buf).unwrap();
            if entries.is_empty() {
                break;
            }
            all.extend(entries.map(|entry| (entry.name.to_owned(), entry.offset, entry.kind)));
        }
        assert_eq!(all.len(), 102);
        seek_dir(&open, all[50].1).unwrap();
        let mut after = read_dir_entries(&open, &mut buf).unwrap();
        let next = after.next().unwrap();
        assert_eq!((next.name, next.offset), (all[51].0.as_os_str(), all[51].1));
    }
}

#[test]
fn data_calls() {
    for (_dir, fd) in dirs() {
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
        let file = open_at(&fd, os("f"), flags, 0o600).unwrap();
        assert_eq!(pwrite_append(&file, b"one").unwrap(), 3);
        assert_eq!(pwrite_append(&file, b"two").unwrap(), 3);
        let copy = open_at(&fd, os("g"), flags, 0o600).unwrap();
        assert_eq!(copy_file_range(&file, 2, &copy, 0, 100, 0).unwrap(), 4);
        fallocate(&file, 0, 0, 8192).unwrap();
        ftruncate(&file, 65536).unwrap();
        assert_eq!(seek(&file, 0, libc::SEEK_DATA).unwrap(), 0);
        assert!(seek(&file, 0, libc::SEEK_HOLE).unwrap() >= 6);
        fsync(&file).unwrap();
        fdatasync(&file).unwrap();
        syncfs(&file).unwrap();
        truncate(open_child(&fd, os("f")).unwrap(), 1).unwrap();
        assert_eq!(stat(&file).unwrap().size, 1);
        let whole = statfs(&fd).unwrap();
        assert!(whole.namelen >= 255 && whole.blocks >= whole.bfree && !whole.read_only());
    }
}

#[test]
fn attributes_of_pinned_files_and_links() {
    for (_dir, fd) in dirs() {
        drop(open_at(&fd, os("f"), libc::O_WRONLY | libc::O_CREAT, 0o600).unwrap());
        symlink_at(os("f"), &fd, os("l")).unwrap();
        let (file, link) = (open_child(&fd, os("f")).unwrap(), open_child(&fd, os("l")).unwrap());
        chmod(&file, 0o640).unwrap();
        let at = Timestamp {
            sec: 1_000_000_000,
            nsec: 123_456_789,
        };
        set_times(&file, None, Some(TimeSet::At(at))).unwrap();
        set_times(&link, Some(TimeSet::Now), Some(TimeSet::At(at))).unwrap();
        chown(&link, None, None).unwrap();
        assert_eq!(
            (stat(&file).unwrap().permissions(), stat(&file).unwrap().mtime),
            (0o640, at)
        );
        assert_eq!(stat(&link).unwrap().mtime, at);
        let name = os("user.test");
        assert_eq!(get_xattr(&file, name, 0).unwrap_err().errno(), libc::ENODATA);
        set_xattr(&file, name, &[7; 300], libc::XATTR_CREATE).unwrap();
        assert_eq!(
            set_xattr(&file, name, b"", libc::XATTR_CREATE).unwrap_err().errno(),
            libc::EEXIST
        );
        assert_eq!(get_xattr(&file, name, 0).unwrap(), [7; 300]);
        assert!(
            list_xattr(&file, 0)
                .unwrap()
                .windows(10)
                .any(|part| part == b"user.test\0")
        );
        remove_xattr(&file, name).unwrap();
        assert_eq!(get_xattr(&link, name, 0).unwrap_err().errno(), libc::ENODATA);
        if root() {
            set_xattr(&link, os("trusted.test"), b"v", 0).unwrap();
            assert_eq!(get_xattr(&link, os("trusted.test"), 64).unwrap(), b"v");
            assert_eq!(
                get_xattr(&file, os("trusted.test"), 64).unwrap_err().errno(),
                libc::ENODATA
            );
        }
    }
}

#[test]
fn a_handle_tells_a_reused_inode_apart() {
    for (_dir, fd) in dirs() {
        let mut seen = std::collections::HashSet::new();
        for _ in 0..8 {
            let file = open_at(&fd, os("f"), libc::O_RDWR | libc::O_CREAT, 0o600).unwrap();
            let (handle, _) = handle_of(&file).unwrap();
            assert_eq!(handle_of(open_child(&fd, os("f")).unwrap()).unwrap().0, handle);
            if handle.decodable && root() {
                let again = open_by_handle(reopen(&fd, libc::O_RDONLY).unwrap(), &handle, libc::O_PATH).unwrap();
                assert_eq!(stat(&again).unwrap().ino, stat(&file).unwrap().ino);
            }
            drop(file);
            unlink_at(&fd, os("f")).unwrap();
            if handle.decodable && root() {
                let gone = open_by_handle(reopen(&fd, libc::O_RDONLY).unwrap(), &handle, libc::O_PATH);
                // Another test's fork may hold the descriptor a moment longer.
                assert!(gone.map_or_else(|e| e.errno() == libc::ESTALE, |fd| stat(fd).unwrap().nlink == 0));
            }
            assert!(seen.insert(handle), "the same handle again");
        }
    }
}

#[test]
fn a_lease_holds_others_until_it_is_given_up() {
    ignore_signals(&[SIGIO]).unwrap();
    for (dir, fd) in dirs() {
        let file = open_at(&fd, os("f"), libc::O_RDWR | libc::O_CREAT, 0o600).unwrap();
        let pinned = open_child(&fd, os("f")).unwrap();
        let lease = write_lease(&file).unwrap();
        assert!(!lease.is_wanted());
        assert_eq!(stat(&pinned).unwrap().size, 0);
        let path = dir.path().join("f");
        let nonblock = open_path(&path, libc::O_RDONLY | libc::O_NONBLOCK);
        assert_eq!(nonblock.unwrap_err().errno(), libc::EWOULDBLOCK);
        assert!(lease.is_wanted());
        let opener = std::thread::spawn(move || File::open(path).unwrap());
        drop(lease);
        let reader = opener.join().unwrap();
        assert_eq!(write_lease(&file).unwrap_err().errno(), libc::EAGAIN);
        drop(reader);
    }
}

#[test]
fn a_locked_file_is_locked_for_others() {
    let (dir, fd) = dirs().remove(0);
    let file = open_at(&fd, os("f"), libc::O_RDWR | libc::O_CREAT, 0o600).unwrap();
    lock_file(&file).unwrap();
    lock_file(dup(&file).unwrap()).unwrap();
    let other = File::open(dir.path().join("f")).unwrap();
    assert_eq!(lock_file(&other).unwrap_err().errno(), libc::EWOULDBLOCK);
}

#[test]
fn what_the_caller_makes_is_the_callers() {
    if !root() {
        return;
    }
    for (dir, fd) in dirs() {
        fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let before = (
            fs::metadata("/proc/self/task").unwrap().uid(),
            has_cap(CAP_DAC_READ_SEARCH),
        );
        let creds = Creds {
            uid: 1000,
            gid: 1001,
            groups: Some(&[1001, 1002]),
            umask: 0o077,
        };
        as_caller(&creds, || {
            open_at(&fd, os("f"), libc::O_WRONLY | libc::O_CREAT, 0o666).unwrap()
        })
        .unwrap();
        let made = stat_at(&fd, os("f")).unwrap();
        assert_eq!((made.uid, made.gid, made.permissions()), (1000, 1001, 0o600));
        // Not the daemon's right to change what is another's.
        File::create(dir.path().join("roots")).unwrap();
        let roots = open_child(&fd, os("roots")).unwrap();
        assert_eq!(
            as_caller(&creds, || chmod(&roots, 0o777)).unwrap().unwrap_err().errno(),
            libc::EPERM
        );
        chmod(&roots, 0o600).unwrap();
        assert_eq!(before.1, has_cap(CAP_DAC_READ_SEARCH));
        drop(open_at(&fd, os("mine"), libc::O_WRONLY | libc::O_CREAT, 0o666).unwrap());
        assert_eq!(
            (
                stat_at(&fd, os("mine")).unwrap().uid,
                stat_at(&fd, os("mine")).unwrap().gid
            ),
            (before.0, 0)
        );
    }
}

#[test]
fn setgid_directories_follow_the_callers_groups() {
    if !root() {
        return;
    }
    for (_dir, fd) in dirs() {
        mkdir_at(&fd, os("d"), 0o777).unwrap();
        let sub = open_child(&fd, os("d")).unwrap();
        chown(&sub, None, Some(1002)).unwrap();
        chmod(&sub, 0o2777).unwrap();
        let make = |name: &str, groups: &[u32]| {
            let creds = Creds {
                uid: 1000,
                gid: 1000,
                groups: Some(groups),
                umask: 0,
            };
            as_caller(&creds, || {
                drop(open_at(&sub, os(name), libc::O_WRONLY | libc::O_CREAT, 0o2775).unwrap())
            })
            .unwrap();
            let made = stat_at(&sub, os(name)).unwrap();
            (made.gid, made.permissions())
        };
        assert_eq!(make("member", &[1002]), (1002, 0o2775));
        assert_eq!(make("stranger", &[]), (1002, 0o775));
    }
}

#[test]
fn an_identity_is_put_back_after_a_panic_and_other_threads_keep_theirs() {
    if !root() {
        return;
    }
    let creds = Creds {
        uid: 1000,
        gid: 1000,
        groups: Some(&[]),
        umask: 0o027,
    };
    let status = || read_proc_status(gettid()).unwrap();
    let before = status();
    let result = std::panic::catch_unwind(|| {
        as_caller(&creds, || {
            assert_eq!(status().umask, Some(0o027));
            assert!(status().groups.is_empty());
            let other = std::thread::scope(|scope| scope.spawn(stat_owner_of_new_file).join().unwrap());
            assert_eq!(other, 1000, "a thread made meanwhile inherits the identity");
            let untouched = read_proc_status(std::process::id()).unwrap();
            assert_ne!(untouched.umask, Some(0o027));
            panic!("on purpose");
        })
    });
    assert!(result.is_err());
    // What is made next is made with the umask of the process again, which is put back then.
    let shm = open_path(Path::new("/dev/shm"), libc::O_PATH).unwrap();
    let made = stat(open_tmpfile(&shm, libc::O_RDWR, 0o666).unwrap()).unwrap();
    assert_eq!((made.uid, made.permissions()), (0, 0o666 & !before.umask.unwrap()));
    assert_eq!(status(), before);
}

#[test]
fn a_thread_that_acted_as_a_caller_makes_its_own_files_with_its_own_umask() {
    let (dir, fd) = dirs().remove(0);
    let own = read_proc_status(gettid()).unwrap().umask.unwrap();
    let creds = |umask| Creds {
        uid: geteuid(),
        gid: getegid(),
        groups: None,
        umask,
    };
    let mode = |name: &str| stat_at(&fd, os(name)).unwrap().permissions();
    let make = |name: &str| drop(open_at(&fd, os(name), libc::O_WRONLY | libc::O_CREAT, 0o666).unwrap());
    as_caller(&creds(0o777), || make("callers")).unwrap();
    mkdir_at(&fd, os("d"), 0o777).unwrap();
    as_caller(&creds(0o077), || make("anothers")).unwrap();
    make("own");
    as_caller(&creds(0o070), || ()).unwrap();
    mknod_at(&fd, os("p"), libc::S_IFIFO | 0o666, 0).unwrap();
    assert_eq!((mode("callers"), mode("anothers")), (0, 0o600));
    assert_eq!(
        (mode("own"), mode("p"), mode("d")),
        (0o666 & !own, 0o666 & !own, 0o777 & !own)
    );
    as_caller(&creds(0o777), || ()).unwrap();
    std::thread::scope(|scope| scope.spawn(|| make("by a thread made by it")).join().unwrap());
    assert_eq!(mode("by a thread made by it"), 0o666 & !own);
    drop(dir);
}

fn stat_owner_of_new_file() -> u32 {
    let shm = open_path(Path::new("/dev/shm"), libc::O_PATH).unwrap();
    stat(open_tmpfile(&shm, libc::O_RDWR, 0o600).unwrap()).unwrap().uid
}

#[test]
fn descriptors_travel_and_the_peer_is_known() {
    let (left, right) = UnixStream::pair().unwrap();
    let (dir, fd) = dirs().remove(0);
    fs::write(dir.path().join("f"), "x").unwrap();
    let null = File::open("/dev/null").unwrap();
    assert_eq!(send_with_fds(&left, b"hello", &[fd.as_fd(), null.as_fd()]).unwrap(), 5);
    let mut buf = [0; 32];
    let (size, fds) = recv_with_fds(&right, &mut buf).unwrap();
    assert_eq!((&buf[..size], fds.len()), (&b"hello"[..], 2));
    assert!(stat_at(&fds[0], os("f")).unwrap().is_file());
    (&left).write_all(b"plain").unwrap();
    assert_eq!(recv_with_fds(&right, &mut buf).unwrap().1.len(), 0);
    let peer = peer_cred(&right).unwrap();
    assert_eq!((peer.pid, peer.uid), (std::process::id(), geteuid()));
    if let Some(pidfd) = peer_pidfd(&right) {
        assert!(!pidfd_exited(&pidfd));
    }
    drop(left);
    assert_eq!(recv_with_fds(&right, &mut buf).unwrap().0, 0);
}

#[test]
fn children_are_waited_for() {
    let mut command = std::process::Command::new("sh");
    command
        .args(["-c", "kill -STOP $$; read x; exit 7"])
        .stdin(std::process::Stdio::piped());
    pre_exec(&mut command, || Ok(setpgid(0, 0)?));
    #[expect(clippy::zombie_processes, reason = "waited for by the call under test")]
    let mut child = command.spawn().unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    assert_eq!(
        wait(pid, true, false).unwrap(),
        Some((child.id(), Waited::Stopped(SIGSTOP)))
    );
    assert_eq!(read_proc_stat(child.id()).unwrap().pgrp, child.id());
    assert_eq!(wait(pid, false, true).unwrap(), None);
    kill(-pid, SIGCONT).unwrap();
    assert_eq!(wait(pid, true, false).unwrap().unwrap().1, Waited::Continued);
    drop(child.stdin.take());
    assert_eq!(wait(pid, false, false).unwrap().unwrap().1, Waited::Exited(7));
}

#[test]
fn signals_are_read_from_a_descriptor() {
    std::thread::spawn(|| {
        let signals = signal_fd(&[SIGUSR2]).unwrap();
        nix::sys::signal::raise(nix::sys::signal::Signal::SIGUSR2).unwrap();
        assert_eq!(read_signal(&signals).unwrap(), (SIGUSR2, std::process::id()));
        unblock_all_signals().unwrap();
    })
    .join()
    .unwrap();
}

#[test]
fn a_thread_in_a_system_call_shows_its_number() {
    let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
    let asleep = [Some(libc::SYS_clock_nanosleep), Some(libc::SYS_nanosleep)];
    while !asleep.contains(&syscall_of(child.id())) {
        std::thread::yield_now();
    }
    child.kill().unwrap();
    // Ended, but nobody has waited for it: the number is not free for another test's process.
    while read_proc_stat(child.id()).unwrap().state != 'Z' {
        std::thread::yield_now();
    }
    assert_eq!(syscall_of(child.id()), None);
    child.wait().unwrap();
}

/// In a process of its own, for it changes the whole process.
#[test]
fn pinned_files_are_reached_by_a_process_that_cannot_be_looked_into() {
    let inner = "sys::tests::reaches_pinned_files_without_being_dumpable";
    let exe = std::env::current_exe().unwrap();
    let output = std::process::Command::new(exe)
        .args(["--exact", inner, "--ignored"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
#[ignore = "run by the test above"]
fn reaches_pinned_files_without_being_dumpable() {
    set_dumpable(false).unwrap();
    for (_dir, fd) in dirs() {
        let file = open_tmpfile(&fd, libc::O_RDWR, 0o600).unwrap();
        link_fd_at(&file, &fd, os("f")).unwrap();
        let pinned = open_child(&fd, os("f")).unwrap();
        pwrite(reopen(&pinned, libc::O_WRONLY).unwrap(), b"x", 0).unwrap();
        set_xattr(&pinned, os("user.test"), b"v", 0).unwrap();
        truncate(&pinned, 0).unwrap();
    }
}
