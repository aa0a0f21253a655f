//! From a path as somebody wrote it to what it leads to, without a mount: nobody is told of a name, and nothing is
//! observed.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::Guard;
use super::caller::At;
use super::errno::{FsError, Result};
use crate::store::{Kind, Node, libc_flags as c};
use crate::sys::{self, Stat};

/// Symbolic links followed, as the kernel does.
const MAX_LINKS: usize = 40;

/// Where a path leads.
pub(super) enum Spot {
    /// Out of the tree.
    Elsewhere(PathBuf),
    /// To a name.
    Here {
        /// The name; of the root, without a directory.
        at: At,
        /// What is there.
        found: Option<(Arc<Node>, Stat)>,
        /// The directory of the name is not there either.
        nowhere: bool,
    },
}

impl Guard {
    /// Follows `path` from the root of the tree; its last name through a symbolic link only if `follow` says so.
    pub(super) fn spot(&self, path: &[OsString], follow: bool) -> Result<Spot> {
        let mut dir = Arc::clone(self.store.root());
        let mut left: VecDeque<OsString> = path.iter().cloned().collect();
        let mut links = MAX_LINKS;
        while let Some(name) = left.pop_front() {
            if name == "." || name.is_empty() {
                continue;
            }
            if name == ".." {
                match dir.place().parent {
                    Some(above) => dir = above,
                    None => return Ok(Spot::Elsewhere(rest(Path::new(".."), &left))),
                }
                continue;
            }
            let last = left.iter().all(|name| name == "." || name.is_empty());
            let Some((node, stat)) = self.child(&dir, &name)? else {
                return Ok(Spot::Here {
                    nowhere: !last,
                    at: here(&dir, &if last { name } else { rest_of(&name, &left) }),
                    found: None,
                });
            };
            match node.kind() {
                Kind::Symlink if !last || follow => {
                    links = links.checked_sub(1).ok_or(FsError::Errno(c::ELOOP))?;
                    let target = PathBuf::from(sys::readlink(&*self.store.fd(&node)?)?);
                    if target.is_absolute() {
                        return Ok(Spot::Elsewhere(rest(&target, &left)));
                    }
                    for part in target.components().rev() {
                        left.push_front(part.as_os_str().to_owned());
                    }
                }
                Kind::Directory if !last => dir = node,
                Kind::Regular | Kind::Symlink | Kind::Special if !last => return Err(FsError::Errno(c::ENOTDIR)),
                Kind::Directory | Kind::Regular | Kind::Symlink | Kind::Special => {
                    return Ok(Spot::Here {
                        at: here(&dir, &name),
                        found: Some((node, stat)),
                        nowhere: false,
                    });
                }
            }
        }
        let stat = self.store.stat(&dir)?;
        let place = dir.place();
        let at = At {
            dir: place.parent,
            name: place.name,
            certain: true,
            locked: true,
        };
        Ok(Spot::Here {
            at,
            found: Some((dir, stat)),
            nowhere: false,
        })
    }

    /// What is at a name, also what waits for publication.
    fn child(&self, dir: &Arc<Node>, name: &OsStr) -> Result<Option<(Arc<Node>, Stat)>> {
        if self.store.is_hidden(dir, name) {
            // The attic is no part of the tree, and the virtual directory that stands there can only be read.
            return Err(FsError::Errno(c::EROFS));
        }
        let staged = dir.has_staged().then(|| dir.names().lock().staged.get(name).cloned());
        if let Some(node) = staged.flatten()
            && let Some(file) = node.staged_file()
        {
            let stat = sys::stat(&*file)?;
            return Ok(Some((node, stat)));
        }
        match self.store.lookup(dir, name) {
            Ok(found) => Ok(Some(found)),
            Err(error) => match FsError::from(error) {
                error if error.errno() == c::ENOENT => Ok(None),
                error => Err(error),
            },
        }
    }
}

fn here(dir: &Arc<Node>, name: &OsStr) -> At {
    super::judge::at(dir, name)
}

fn rest_of(first: &OsStr, left: &VecDeque<OsString>) -> OsString {
    rest(Path::new(first), left).into_os_string()
}

fn rest(first: &Path, left: &VecDeque<OsString>) -> PathBuf {
    let mut path = first.to_path_buf();
    path.extend(left);
    path
}

/// The names of a path, for [`Guard::explain`].
#[must_use]
pub fn names_of(path: &Path) -> Vec<OsString> {
    let parts = path.components();
    let names = parts.filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    names
        .map(|part| OsStr::from_bytes(part.as_os_str().as_bytes()).to_owned())
        .collect()
}
