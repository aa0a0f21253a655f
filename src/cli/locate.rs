//! A path as a user types it: which guard it belongs to, and where in that guard's tree it is.
//!
//! Never looks a name up in a guarded mount: that would be an observation. Names there go to the guard as they are.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use super::guarding;
use super::mountinfo::{self, Mount};
use super::output::Problem;
use super::place;
use crate::control::{Client, Surroundings};
use crate::fs::VIRTUAL_MOUNT_XATTR;
use crate::sys;

/// Symbolic links followed, as the kernel does.
const MAX_LINKS: usize = 40;

/// A path in the tree of a guard that runs.
#[derive(Debug)]
pub(crate) struct Located {
    /// The guard.
    pub(crate) client: Client,
    /// The names from the root of its tree, links not followed.
    pub(crate) names: Vec<OsString>,
    /// The mount it was reached by.
    pub(crate) mount: Option<u64>,
    /// Where the root of the tree is for this process.
    pub(crate) base: PathBuf,
}

/// As far as a path leads without entering a guarded mount.
struct Reached {
    /// Without symbolic links.
    real: PathBuf,
    /// Names that follow: of what is not there, or in the guarded mount.
    rest: VecDeque<OsString>,
    mount: Option<Mount>,
}

/// Finds the guard of `path`; `follow` says whether a symbolic link at its end is meant, or what it leads to.
pub(crate) fn locate(path: &Path, follow: bool) -> Result<Located, Problem> {
    let reached = reach(&place::absolute(path)?, follow)?;
    match &reached.mount {
        Some(mount) => in_mount(path, &reached, mount),
        None => outside(path, &reached),
    }
}

fn in_mount(path: &Path, reached: &Reached, mount: &Mount) -> Result<Located, Problem> {
    let place = place::resolve(&mount.point)?;
    let guarded = place.guarded.as_ref().ok_or_else(|| not_guarded(path))?;
    let client = Client::find(&Surroundings::real(), &guarded.guard).ok_or_else(|| {
        let point = mount.point.display();
        Problem::new(
            format!("cannot ask about {}", path.display()),
            format!("the guard of the mount at {point} does not answer this user here"),
        )
        .hint(format!(
            "use the user who mounted it and the same XDG_RUNTIME_DIR; or read {point}/.unclobber/refusals"
        ))
    })?;
    let number = sys::get_xattr(&place.fd, OsStr::new(VIRTUAL_MOUNT_XATTR), 32).ok();
    let number = number.and_then(|text| String::from_utf8(text).ok()?.parse().ok());
    let below = reached
        .real
        .strip_prefix(&mount.point)
        .unwrap_or_else(|_| Path::new(""));
    let shown = mount.root.strip_prefix("/").unwrap_or(&mount.root);
    let names = shown.iter().chain(below).map(OsStr::to_owned);
    Ok(Located {
        client,
        names: names.chain(reached.rest.iter().cloned()).collect(),
        mount: number,
        base: mount.point.clone(),
    })
}

/// The innermost directory above the path that a guard of this user runs for.
fn outside(path: &Path, reached: &Reached) -> Result<Located, Problem> {
    let surroundings = Surroundings::real();
    for above in reached.real.ancestors().filter(|above| above.is_dir()) {
        let place = place::resolve(above)?;
        let id = guarding::id_of(&place)?;
        if let Some(client) = Client::find(&surroundings, &id) {
            let below = reached.real.strip_prefix(above).unwrap_or_else(|_| Path::new(""));
            let names = below.iter().map(OsStr::to_owned);
            return Ok(Located {
                client,
                names: names.chain(reached.rest.iter().cloned()).collect(),
                mount: None,
                base: above.to_path_buf(),
            });
        }
    }
    Err(not_guarded(path))
}

fn not_guarded(path: &Path) -> Problem {
    Problem::new(
        format!("cannot say anything about {}", path.display()),
        "no guard of yours runs for it, so nothing is refused there",
    )
    .hint("`unclobber status` lists the guarded directories")
}

fn reach(path: &Path, follow: bool) -> Result<Reached, Problem> {
    let mounts = mountinfo::read().map_err(|error| Problem::new("/proc/self/mountinfo", error))?;
    let mut rest: VecDeque<OsString> = names(path);
    let mut real = PathBuf::from("/");
    let mut links = MAX_LINKS;
    loop {
        if let Some(mount) = mountinfo::covering(&mounts, &real).filter(|mount| mount.is_ours()) {
            let mount = Some(mount.clone());
            return Ok(Reached { real, rest, mount });
        }
        let Some(name) = rest.pop_front() else { break };
        if name == ".." {
            real.pop();
            continue;
        }
        let next = real.join(&name);
        let found = match fs::symlink_metadata(&next) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                rest.push_front(name);
                break;
            }
            Err(_) if place::is_dead_at(&next) => return Err(place::dead(&next)),
            Err(error) => return Err(Problem::new(format!("cannot look at {}", next.display()), error)),
        };
        if found.is_symlink() && (follow || !rest.is_empty()) {
            links = links.checked_sub(1).ok_or_else(|| {
                Problem::new(format!("cannot follow {}", path.display()), "too many symbolic links")
                    .hint("a symbolic link of the path leads back to itself")
            })?;
            let target =
                fs::read_link(&next).map_err(|error| Problem::new(format!("cannot read {}", next.display()), error))?;
            if target.is_absolute() {
                real = PathBuf::from("/");
            }
            for name in names(&target).into_iter().rev() {
                rest.push_front(name);
            }
        } else {
            real = next;
        }
    }
    Ok(Reached {
        real,
        rest,
        mount: None,
    })
}

fn names(path: &Path) -> VecDeque<OsString> {
    let parts = path.components();
    parts
        .filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir))
        .map(|part| part.as_os_str().to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_followed_as_far_as_it_leads() {
        let tmp = tempfile::tempdir().unwrap();
        let base = tmp.path().canonicalize().unwrap();
        fs::create_dir(base.join("d")).unwrap();
        std::os::unix::fs::symlink("d", base.join("l")).unwrap();
        std::os::unix::fs::symlink("loop", base.join("loop")).unwrap();
        let reached = reach(&base.join("l/../l/x/y"), true).unwrap();
        assert_eq!(reached.real, base.join("d"));
        assert_eq!(reached.rest, ["x", "y"]);
        assert_eq!(reach(&base.join("l"), false).unwrap().real, base.join("l"));
        assert_eq!(reach(&base.join("l"), true).unwrap().real, base.join("d"));
        assert!(reach(&base.join("loop"), true).is_err());
        let problem = locate(&base.join("d"), true).unwrap_err();
        assert!(problem.cause.contains("no guard"), "{problem:?}");
    }
}
