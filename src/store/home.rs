//! The attic's home: the directory at the root of the tree that kept content and its journal lie in.
//!
//! It is found, made, finished where somebody was killed while making it, and taken away; never trusted where somebody
//! else may have put it.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};

use super::Result;
use super::journal::Journal;
use super::libc_flags as c;
use crate::sys;

/// Names tried for the attic's home, in order, where an earlier one is taken by something else.
pub(super) const HOMES: [&str; 3] = [".unclobber", ".unclobber.1", ".unclobber.2"];
/// The file that marks a home as ours.
const MARKER: &str = "format";
const MARKER_TEXT: &[u8] = b"unclobber store 1\n";
const IGNORE: &str = ".gitignore";
pub(super) const ATTIC: &str = "attic";

/// The attic's home, open.
#[derive(Debug)]
pub(super) struct Home {
    pub(super) home: OwnedFd,
    /// The directory that the files lie in.
    pub(super) attic: OwnedFd,
    pub(super) journal: Journal,
}

impl Home {
    /// Opens the home, and makes what is missing of it. What cannot be finished is taken away again, so that it can be
    /// tried anew.
    pub(super) fn make(root: &OwnedFd, name: &str) -> Result<Self> {
        let home = make_dir(root, OsStr::new(name))?;
        // Whoever may write to the tree's root may have put something else there just now.
        if !is_ours(root, &home) {
            log::warn!("{name} is something else's by now: nothing can be kept");
            return Err(sys::SysError::new("mkdirat", c::EEXIST).into());
        }
        match finish(root, &home) {
            Ok(attic) => Ok(Self {
                home,
                attic,
                journal: Journal::default(),
            }),
            Err(error) => {
                take_away(root, name, &home);
                Err(error)
            }
        }
    }

    /// Whether the directory of the files is there still: whoever prunes from outside takes the empty attic away.
    pub(super) fn is_there(&self) -> bool {
        sys::stat(&self.attic).is_ok_and(|stat| stat.nlink > 0)
    }
}

fn finish(root: &OwnedFd, home: &OwnedFd) -> Result<OwnedFd> {
    // The owner of the tree must be able to remove it; the files in it keep their own modes and owners. An ordinary user
    // cannot give it away, and in somebody else's tree it is that user's own.
    let of_tree = sys::stat(root)?;
    if sys::stat(home)?.uid != of_tree.uid
        && let Err(error) = sys::chown(home, Some(of_tree.uid), Some(of_tree.gid))
    {
        log::debug!("the attic's home is not the tree's owner's: {error}");
    }
    write_once(home, MARKER, MARKER_TEXT)?;
    write_once(home, IGNORE, b"*\n")?;
    make_dir(home, OsStr::new(ATTIC))
}

/// The name of the tree's home: that of one which is there, else the first that is free.
pub(super) fn choose(root: &OwnedFd) -> &'static str {
    let is_home = |name: &&str| {
        sys::open_child(root, OsStr::new(name))
            .is_ok_and(|home| is_trusted(root, &home) && has_marker(&home).unwrap_or(false))
    };
    let there = HOMES.into_iter().find(is_home);
    let name = there.or_else(|| HOMES.into_iter().find(|name| usable(root, name)));
    name.unwrap_or(HOMES[0])
}

/// Whether `name` is free, or a home of ours, finished or not.
pub(super) fn usable(root: &OwnedFd, name: &str) -> bool {
    match sys::open_child(root, OsStr::new(name)) {
        Ok(home) => is_ours(root, &home),
        Err(error) => error.errno() == c::ENOENT,
    }
}

fn is_ours(root: &OwnedFd, home: &OwnedFd) -> bool {
    is_trusted(root, home) && (has_marker(home).unwrap_or(false) || is_unfinished(home))
}

/// Whether a home belongs to the owner of the tree or to us: what others have put there is not ours to trust.
pub(super) fn is_trusted(root: &OwnedFd, home: &OwnedFd) -> bool {
    let (Ok(root), Ok(home)) = (sys::stat(root), sys::stat(home)) else {
        return false;
    };
    home.is_dir() && (home.uid == root.uid || home.uid == sys::geteuid())
}

/// Whether a directory is marked as a home of ours.
pub(super) fn has_marker(home: &OwnedFd) -> sys::Result<bool> {
    match sys::stat_at(home, OsStr::new(MARKER)) {
        Ok(stat) => Ok(stat.is_file()),
        Err(error) if error.errno() == c::ENOENT => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether a directory is what is left where somebody was killed while making a home: as we make it, and nothing in it.
fn is_unfinished(home: &OwnedFd) -> bool {
    sys::stat(home).is_ok_and(|stat| stat.permissions() & 0o777 == 0o700)
        && list(home).is_ok_and(|names| names.iter().all(|name| name == IGNORE))
}

/// Takes away what was left of homes that were never finished.
pub(super) fn clear_unfinished(root: &OwnedFd) {
    for name in HOMES {
        if let Ok(home) = sys::open_child(root, OsStr::new(name))
            && is_trusted(root, &home)
            && matches!(has_marker(&home), Ok(false))
            && is_unfinished(&home)
        {
            take_away(root, name, &home);
        }
    }
}

/// Removes a home, with its journal, if nothing is kept in it.
pub(super) fn remove(root: &OwnedFd, name: &str, home: &OwnedFd, attic: &OwnedFd) {
    if list(attic).is_ok_and(|names| names.is_empty()) {
        take_away(root, name, home);
    }
}

/// The directory of the files goes first, and only if it is empty; the mark goes last.
fn take_away(root: &OwnedFd, name: &str, home: &OwnedFd) {
    let attic_gone = match sys::rmdir_at(home, OsStr::new(ATTIC)) {
        Err(error) if error.errno() == c::ENOENT => Ok(()),
        other => other,
    };
    let gone = attic_gone
        .and_then(|()| Journal::remove(home))
        .and_then(|()| remove_if_there(home, IGNORE))
        .and_then(|()| remove_if_there(home, MARKER))
        .and_then(|()| sys::rmdir_at(root, OsStr::new(name)));
    if let Err(error) = gone {
        log::debug!("the empty attic stays: {error}");
    }
}

fn make_dir(parent: impl AsFd + Copy, name: &OsStr) -> Result<OwnedFd> {
    match sys::mkdir_at(parent, name, 0o700) {
        Ok(()) => {}
        Err(error) if error.errno() == c::EEXIST => {}
        Err(error) => return Err(error.into()),
    }
    Ok(sys::open_at(parent, name, c::O_RDONLY | c::O_DIRECTORY, 0)?)
}

fn write_once(dir: &OwnedFd, name: &str, text: &[u8]) -> Result<()> {
    match sys::open_at(dir, OsStr::new(name), c::O_WRONLY | c::O_CREAT | c::O_EXCL, 0o600) {
        Ok(file) => {
            sys::pwrite(&file, text, 0)?;
            Ok(())
        }
        Err(error) if error.errno() == c::EEXIST => Ok(()),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn remove_if_there(dir: &OwnedFd, name: &str) -> sys::Result<()> {
    match sys::unlink_at(dir, OsStr::new(name)) {
        Err(error) if error.errno() != c::ENOENT => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The names in a directory.
pub(super) fn list(dir: &OwnedFd) -> Result<Vec<OsString>> {
    let dir = sys::reopen(dir, c::O_RDONLY | c::O_DIRECTORY)?;
    let mut names = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let batch = sys::read_dir_entries(&dir, &mut buffer)?;
        if batch.is_empty() {
            return Ok(names);
        }
        names.extend(
            batch
                .map(|entry| entry.name.to_owned())
                .filter(|name| name != "." && name != ".."),
        );
    }
}
