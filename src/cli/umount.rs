//! `unclobber umount`: ends a mount, or says who uses it.
//!
//! It never unmounts what is not a mount of this program.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use super::args::UmountArgs;
use super::mountinfo::{self, Mount};
use super::output::Problem;
use super::place;
use crate::control::{Client, MountStatus, Surroundings, UnmountError, unmount};
use crate::sys::{self, consts};

/// Unmounts.
pub(crate) fn umount(args: &UmountArgs) -> Result<ExitCode, Problem> {
    let mounts = mountinfo::read().map_err(|error| Problem::new("/proc/self/mountinfo", error))?;
    let point = real_path(&args.mountpoint, &mounts)?;
    let what = format!("cannot unmount {}", point.display());
    let mount = match mountinfo::covering(&mounts, &point) {
        Some(mount) if mount.point == point && mount.is_ours() => mount.id,
        Some(mount) if mount.is_ours() => {
            let there = mount.point.display();
            return Err(
                Problem::new(what, format!("the mount is at {there}")).hint(format!("unclobber umount {there}"))
            );
        }
        _ => {
            return Err(Problem::new(what, "there is no unclobber mount").hint("`unclobber status` lists the mounts"));
        }
    };
    let served = server_of(&point);
    if !place::can_unmount() {
        return Err(not_from_inside(what, &point, place::is_dead_at(&point)));
    }
    // This process itself must not be who uses it.
    if let Err(error) = std::env::set_current_dir("/") {
        log::debug!("/: {error}");
    }
    unmount_patiently(&point, args.lazy, mount).map_err(|error| explain(what, &point, mount, &error))?;
    if let Some((mut client, mount)) = served.filter(|_| !args.lazy)
        && let Err(error) = client.flush(Some(mount))
    {
        log::debug!("the guard ended with its mount: {error}");
    }
    Ok(ExitCode::SUCCESS)
}

/// What `run` has started leaves its view by ending.
fn not_from_inside(what: String, point: &Path, dead: bool) -> Problem {
    let private = serving_at(point).is_some_and(|(_, mount)| mount.private);
    let hint = if private || dead {
        "end the command or shell that `unclobber run` has started: its view goes with it, and outside nothing is mounted"
            .to_owned()
    } else {
        format!(
            "outside the run, or by whoever mounted it: unclobber umount {}",
            point.display()
        )
    };
    Problem::new(
        what,
        "this process has no right to unmount, as nothing has that `unclobber run` has started",
    )
    .hint(hint)
}

/// Unmounts, and tries again for a moment while it is in use by nobody who could be named: a file just closed, or a
/// process between fork and exec.
fn unmount_patiently(point: &Path, lazy: bool, mount: u64) -> Result<(), UnmountError> {
    const PAUSE: Duration = Duration::from_millis(20);
    const TRIES: usize = 25;
    for _ in 1..TRIES {
        match unmount(point, lazy) {
            Err(UnmountError::Busy(_)) if users_of(mount).is_empty() => thread::sleep(PAUSE),
            other => return other,
        }
    }
    unmount(point, lazy)
}

/// The path without symbolic links. A mount of ours is found without a look at it: its guard may be dead or stopped.
fn real_path(path: &Path, mounts: &[Mount]) -> Result<PathBuf, Problem> {
    let path = place::absolute(path)?;
    let real = path
        .parent()
        .and_then(|parent| parent.canonicalize().ok())
        .zip(path.file_name());
    let below = real.map_or(path.clone(), |(parent, name)| parent.join(name));
    if mounts.iter().any(|mount| mount.point == below && mount.is_ours()) {
        return Ok(below);
    }
    Ok(path.canonicalize().unwrap_or(below))
}

/// The guard of the mount at `point`, and the mount's number there.
fn server_of(point: &Path) -> Option<(Client, u64)> {
    let (client, mount) = serving_at(point).filter(|(_, mount)| !mount.private)?;
    Some((client, mount.mount))
}

/// The guard that serves a mount at `point`, and what it says of that.
fn serving_at(point: &Path) -> Option<(Client, MountStatus)> {
    let label = point.to_string_lossy();
    for dir in Surroundings::real().existing() {
        for id in dir.guards().unwrap_or_default() {
            let Some(mut client) = Client::open(&dir, &id) else {
                continue;
            };
            let Ok(status) = client.status() else { continue };
            // One that everybody sees comes first: others at the same path are seen by one run each.
            let mut there: Vec<MountStatus> = status.mounts;
            there.retain(|mount| mount.label == label);
            there.sort_by_key(|mount| mount.private);
            if let Some(mount) = there.into_iter().next() {
                return Some((client, mount));
            }
        }
    }
    None
}

fn explain(what: String, point: &Path, mount: u64, error: &UnmountError) -> Problem {
    let lazy = format!("unclobber umount --lazy {}", point.display());
    match error {
        UnmountError::Busy(_) => {
            let users = users_of(mount);
            let told = if users.is_empty() {
                String::new()
            } else {
                format!(" by {}", users.join(", "))
            };
            let hint = if users.is_empty() {
                format!("by nobody who can be seen from here: wait a moment, look as root, or: {lazy}")
            } else if uses(parent_id(), mount) {
                format!(
                    "cd out of it: process {} is the shell or program that started this; or: {lazy}",
                    parent_id()
                )
            } else {
                format!("end those processes or leave the directory, or: {lazy}")
            };
            Problem::new(what, format!("it is in use{told}")).hint(hint)
        }
        UnmountError::NoHelper(_) => Problem::new(what, error).hint("as root: apt-get install fuse3"),
        UnmountError::Refused { .. } => {
            Problem::new(what, error).hint("only the user who mounted it, or root, can unmount it")
        }
    }
}

/// Processes whose working directory, root, program or open files are on the mount, as far as can be seen. Nothing
/// is asked of the mount itself, which may not answer.
fn users_of(mount: u64) -> Vec<String> {
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let ids = processes
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let using = ids
        .filter(|pid| *pid != std::process::id() && uses(*pid, mount))
        .take(8);
    using.map(|pid| format!("{} (process {pid})", name_of(pid))).collect()
}

fn uses(pid: u32, mount: u64) -> bool {
    let base = PathBuf::from(format!("/proc/{pid}"));
    let places = ["cwd", "root", "exe"].map(|name| base.join(name));
    if places.iter().any(|link| mount_of_place(link) == Some(mount)) {
        return true;
    }
    let Ok(open) = fs::read_dir(base.join("fdinfo")) else {
        return false;
    };
    open.flatten()
        .any(|entry| mount_in_fdinfo(&entry.path()) == Some(mount))
}

/// The mount that a link in `/proc` leads to, without opening what it leads to.
fn mount_of_place(link: &Path) -> Option<u64> {
    let pinned = sys::open_path(link, consts::O_PATH).ok()?;
    mount_in_fdinfo(&PathBuf::from(format!("/proc/self/fdinfo/{}", pinned.as_raw_fd())))
}

fn mount_in_fdinfo(file: &Path) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix("mnt_id:"))?
        .trim()
        .parse()
        .ok()
}

fn name_of(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_its_directory() {
        let here = std::env::current_dir().unwrap();
        let mounts = mountinfo::read().unwrap();
        let mount = mountinfo::covering(&mounts, &here).unwrap().id;
        assert!(uses(std::process::id(), mount));
        assert!(!uses(std::process::id(), u64::MAX));
    }

    #[test]
    fn what_is_not_mounted_is_told() {
        let tmp = tempfile::tempdir().unwrap();
        let problem = umount(&UmountArgs {
            mountpoint: tmp.path().to_path_buf(),
            lazy: false,
        })
        .unwrap_err();
        assert!(problem.cause.contains("no unclobber mount"), "{problem:?}");
    }
}
