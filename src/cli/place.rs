//! A directory as a user names it: opened, its path known, a dead mount or one of unclobber recognised.
//!
//! It never mounts anything.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use super::mountinfo::{self, Mount};
use super::output::{Problem, note};
use crate::control::{UnmountError, unmount};
use crate::fs::VIRTUAL_GUARD_XATTR;
use crate::sys::{self, SysError, consts};

/// A directory.
#[derive(Debug)]
pub(crate) struct Place {
    /// Open on it (`O_PATH`).
    pub(crate) fd: OwnedFd,
    /// Its path without symbolic links.
    pub(crate) path: PathBuf,
    /// The unclobber mount it is on.
    pub(crate) guarded: Option<Guarded>,
}

/// The unclobber mount a directory is on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Guarded {
    /// The guard's id.
    pub(crate) guard: String,
    /// The mount.
    pub(crate) mount: Mount,
}

/// `f_type` of every FUSE file system.
pub(crate) const FUSE_MAGIC: i64 = 0x6573_5546;

/// Opens the directory `dir`. On a dead mount that is said, and left as it is.
pub(crate) fn resolve(dir: &Path) -> Result<Place, Problem> {
    match look(&absolute(dir)?) {
        Err(Trouble::Dead(at)) => Err(dead(&at)),
        Err(Trouble::Other(problem)) => Err(problem),
        Ok(place) => Ok(place),
    }
}

/// Opens the directory `dir` to mount it: dead mounts of ours over it are taken away, which is said.
pub(crate) fn resolve_to_mount(dir: &Path) -> Result<Place, Problem> {
    let path = absolute(dir)?;
    // Each turn clears one dead mount; several can be stacked.
    for _ in 0..16 {
        match look(&path) {
            Err(Trouble::Dead(at)) => clear_dead(&at)?,
            Err(Trouble::Other(problem)) => return Err(problem),
            Ok(place) => return Ok(place),
        }
    }
    Err(
        Problem::new(path.display().to_string(), "too many dead mounts lie over it")
            .hint("unmount them with `umount -l`"),
    )
}

enum Trouble {
    Dead(PathBuf),
    Other(Problem),
}

fn is_dead(error: &SysError) -> bool {
    matches!(error.errno(), consts::ENOTCONN | consts::ECONNABORTED)
}

/// Whether what is mounted there has lost its server.
pub(crate) fn is_dead_at(point: &Path) -> bool {
    let asked = sys::open_path(point, consts::O_PATH | consts::O_DIRECTORY).and_then(|fd| sys::statfs(&fd).map(drop));
    asked.is_err_and(|error| is_dead(&error))
}

fn look(path: &Path) -> Result<Place, Trouble> {
    let trouble = |error: SysError| {
        if is_dead(&error) {
            Trouble::Dead(path.to_path_buf())
        } else {
            Trouble::Other(cannot_open(path, &error))
        }
    };
    let fd = sys::open_path(path, consts::O_PATH | consts::O_DIRECTORY).map_err(trouble)?;
    let link = sys::fd_path(&fd);
    let real = fs::read_link(&link).map_err(|error| Trouble::Other(Problem::new(link.display().to_string(), error)))?;
    let is_fuse = match sys::statfs(&fd).map(|found| found.kind == FUSE_MAGIC) {
        Err(error) if is_dead(&error) => return Err(Trouble::Dead(real)),
        other => other.map_err(trouble)?,
    };
    let guarded = if is_fuse { guard_of(&fd, &real)? } else { None };
    Ok(Place {
        fd,
        path: real,
        guarded,
    })
}

fn guard_of(fd: &OwnedFd, real: &Path) -> Result<Option<Guarded>, Trouble> {
    let mounts = mountinfo::read().map_err(|error| Trouble::Other(Problem::new("/proc/self/mountinfo", error)))?;
    let Some(mount) = mountinfo::covering(&mounts, real).filter(|mount| mount.is_ours()) else {
        return Ok(None);
    };
    let value = match sys::get_xattr(fd, OsStr::new(VIRTUAL_GUARD_XATTR), 64) {
        Err(error) if is_dead(&error) => return Err(Trouble::Dead(real.to_path_buf())),
        Err(error) if matches!(error.errno(), consts::ENODATA | consts::EOPNOTSUPP) => Vec::new(),
        Err(error) => return Err(Trouble::Other(cannot_open(real, &error))),
        Ok(value) => value,
    };
    let guard = String::from_utf8(value)
        .ok()
        .filter(|id| crate::control::is_guard_id(id));
    match guard {
        Some(guard) => Ok(Some(Guarded {
            guard,
            mount: mount.clone(),
        })),
        None => Err(Trouble::Other(
            Problem::new(
                real.display().to_string(),
                "it is on an unclobber mount that does not name its guard",
            )
            .hint("use the same version of unclobber inside the mount and outside"),
        )),
    }
}

fn cannot_open(path: &Path, error: &SysError) -> Problem {
    let what = format!("cannot use the directory {}", path.display());
    let hint = match error.errno() {
        consts::ENOENT => "check the path, or create the directory first",
        consts::ENOTDIR => "name a directory",
        consts::EACCES => "search permission is missing on a directory of the path",
        consts::ELOOP => "a symbolic link of the path leads back to itself",
        _ => return Problem::new(what, error),
    };
    Problem::new(what, cause(error)).hint(hint)
}

/// What the C library says of the errno.
pub(crate) fn cause(error: &SysError) -> String {
    let text = std::io::Error::from_raw_os_error(error.errno()).to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

/// The path from the root, without looking at anything: a dead mount cannot be looked at.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf, Problem> {
    if path.as_os_str().is_empty() {
        return Err(Problem::new("cannot use the directory \"\"", "the path is empty").hint("name a directory"));
    }
    if path.is_absolute() {
        return Ok(path.to_path_buf());
    }
    let here = std::env::current_dir().map_err(|error| {
        Problem::new("cannot tell the current directory", error).hint("change to a directory that exists")
    })?;
    let plain = path.components().filter(|part| *part != Component::CurDir);
    Ok(here.join(plain.collect::<PathBuf>()))
}

/// What is said of a mount whose guard has ended.
pub(crate) const GUARD_ENDED: &str =
    "its guard has ended (was it killed?), so the mount is dead; the directory beneath is whole";

/// The one step that helps with the dead mount at `point`.
pub(crate) fn dead_step(point: &Path) -> String {
    if can_unmount() {
        format!(
            "take the dead mount away: unclobber umount {} (`unclobber run` and `unclobber mount` of it do so, too)",
            point.display()
        )
    } else {
        "end the command that `unclobber run` has started here, and run it anew".to_owned()
    }
}

/// Whether this process could take a mount of ours away: what `run` has started cannot.
pub(crate) fn can_unmount() -> bool {
    if sys::geteuid() == 0 || !sys::in_initial_user_namespace() {
        return sys::has_cap(sys::CAP_SYS_ADMIN);
    }
    true
}

/// The mount of ours that is dead and covers `path`, or why that cannot be said.
fn dead_mount(path: &Path) -> Result<Mount, Problem> {
    let mounts = mountinfo::read().map_err(|error| Problem::new("/proc/self/mountinfo", error))?;
    let what = || format!("{} lies on a dead mount", path.display());
    let Some(mount) = mountinfo::covering(&mounts, path) else {
        return Err(Problem::new(what(), "Transport endpoint is not connected"));
    };
    let point = mount.point.display();
    if !mount.is_ours() {
        return Err(
            Problem::new(what(), format!("{point}, of type {}, has lost its server", mount.kind))
                .hint(format!("unmount it: umount -l {point}")),
        );
    }
    Ok(mount.clone())
}

/// What is said of a path on a dead mount.
pub(crate) fn dead(path: &Path) -> Problem {
    match dead_mount(path) {
        Ok(mount) => Problem::new(
            format!("the unclobber mount at {} cannot be used", mount.point.display()),
            GUARD_ENDED,
        )
        .hint(dead_step(&mount.point)),
        Err(problem) => problem,
    }
}

/// Takes away the dead mount of ours that covers `path`.
fn clear_dead(path: &Path) -> Result<(), Problem> {
    let mount = dead_mount(path)?;
    let point = mount.point.display();
    if !can_unmount() {
        return Err(dead(path));
    }
    unmount(&mount.point, true).map_err(|error| {
        let hint = match error {
            UnmountError::NoHelper(_) => "install fuse3, or as root: umount -l ",
            UnmountError::Busy(_) | UnmountError::Refused { .. } => "as root: umount -l ",
        };
        let what = format!("{} lies on a dead mount", path.display());
        Problem::new(what, error).hint(format!("{hint}{point}"))
    })?;
    note(&format!(
        "the dead mount at {point} was taken away: its guard had ended (was it killed?); the directory beneath is whole"
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_found_by_its_real_path() {
        let tmp = tempfile::tempdir().unwrap();
        let real = tmp.path().canonicalize().unwrap().join("d");
        fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, tmp.path().join("l")).unwrap();
        let place = resolve(&tmp.path().join("l")).unwrap();
        assert_eq!(place.path, real);
        assert_eq!(place.guarded, None);
    }

    #[test]
    fn what_is_no_directory_is_told_with_its_cause() {
        let tmp = tempfile::tempdir().unwrap();
        let file = tmp.path().join("f");
        fs::write(&file, "").unwrap();
        let problem = resolve(&file).unwrap_err();
        assert!(problem.cause.contains("Not a directory"), "{problem:?}");
        let problem = resolve(&tmp.path().join("absent")).unwrap_err();
        assert!(problem.cause.contains("No such file"), "{problem:?}");
        assert!(problem.hint.is_some());
        assert!(resolve(Path::new("")).is_err());
    }

    #[test]
    fn relative_paths_begin_here() {
        let here = std::env::current_dir().unwrap();
        assert_eq!(absolute(Path::new(".")).unwrap(), here);
        assert_eq!(absolute(Path::new("./a")).unwrap(), here.join("a"));
        assert_eq!(absolute(Path::new("/x")).unwrap(), Path::new("/x"));
    }
}
