//! What an attic holds, for people who want it back: listing, reading, restoring and dropping kept files.
//!
//! Works on the backing directory alone, whether or not a guard runs there. What it replaces it keeps, and it never
//! rewrites the journal: a guard may be adding to it.

use std::collections::{BTreeMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};

use serde::Serialize;

use super::attic;
use super::home::{self, ATTIC, HOMES};
use super::journal::{Gone, JOURNAL, KeptInfo, append_line, read_all};
use super::libc_flags as c;
use super::{Result, copy};
use crate::sys::{self, Stat, SysError};

/// The operation, and the owner, of what an undo has displaced.
pub const UNDO: &str = "undo";

/// The operation of a creation whose directory had gone before the file got its name.
pub const HOMELESS: &str = "create_in_removed";

/// `R_OK`.
const MAY_READ: i32 = 4;

/// The attic of a directory, as found there.
#[derive(Debug)]
pub struct KeptFiles {
    root: OwnedFd,
    name: &'static str,
    home: OwnedFd,
    attic: OwnedFd,
}

/// One kept file, or what is known of one.
#[derive(Debug, Clone)]
pub struct Kept {
    /// Its name in the attic.
    pub id: String,
    /// When it was kept, in seconds since the epoch, where its name says so.
    pub at: Option<i64>,
    /// What was noted about it. Nothing if the guard was killed before it could: the content may be incomplete.
    pub note: Option<KeptInfo>,
    /// What is there of it. Nothing if the content has gone and only the note is left.
    pub file: Option<Stat>,
    /// Whether this process may read it.
    pub readable: bool,
}

impl Kept {
    fn without_content(note: KeptInfo) -> Self {
        Self {
            id: note.id.clone(),
            at: attic::slot_time(OsStr::new(&note.id)),
            note: Some(note),
            file: None,
            readable: false,
        }
    }
}

/// All that is known of an attic.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    /// The kept files, the oldest first.
    pub kept: Vec<Kept>,
    /// Numbers of the journal's lines that cannot be read.
    pub unreadable_lines: Vec<usize>,
}

/// What a journal says.
#[derive(Debug, Default)]
struct Lines {
    notes: Vec<KeptInfo>,
    /// Those that left, or were about to: it says nothing of a file that is there.
    gone: HashSet<String>,
    unreadable: Vec<usize>,
}

/// How a kept file came back.
#[derive(Debug)]
pub enum Restored {
    /// It is the very file, and no longer in the attic.
    Moved,
    /// On another filesystem: a copy, and the attic still has the file. With what could not be copied besides content.
    Copied(Vec<SysError>),
}

impl KeptFiles {
    /// The attic of the directory `root`, if it has one.
    ///
    /// # Errors
    /// When it is there and cannot be looked into.
    pub fn open(root: &OwnedFd) -> Result<Option<Self>> {
        let (mut of_others, mut refused) = (None, None);
        for name in HOMES {
            match Self::open_home(root, name) {
                // Another user's guard may have a home of its own in this tree.
                Ok(Some(found)) if home::is_trusted(root, &found.home) => return Ok(Some(found)),
                Ok(Some(found)) => of_others = of_others.or(Some(found)),
                Ok(None) => {}
                Err(error) if error.is(c::EACCES) => refused = refused.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        match (of_others, refused) {
            (None, Some(error)) => Err(error),
            (found, _) => Ok(found),
        }
    }

    fn open_home(root: &OwnedFd, name: &'static str) -> Result<Option<Self>> {
        let home = match sys::open_at(root, OsStr::new(name), c::O_PATH | c::O_DIRECTORY | c::O_NOFOLLOW, 0) {
            Ok(home) => home,
            Err(error) if matches!(error.errno(), c::ENOENT | c::ENOTDIR | c::ELOOP) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if !home::has_marker(&home)? {
            return Ok(None);
        }
        let flags = c::O_RDONLY | c::O_DIRECTORY | c::O_NOFOLLOW;
        match sys::open_at(&home, OsStr::new(ATTIC), flags, 0) {
            Ok(attic) => Ok(Some(Self {
                root: sys::dup(root)?,
                name,
                home,
                attic,
            })),
            Err(error) if error.errno() == c::ENOENT => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Lists what is kept, noted or not, and what was noted and is no longer there.
    ///
    /// # Errors
    /// When the attic or its journal cannot be read at all.
    pub fn list(&self) -> Result<Listing> {
        let mut kept = BTreeMap::new();
        for name in home::list(&self.attic)? {
            // Whatever else somebody has put there is not ours to show.
            let Some(id) = name.to_str().filter(|id| is_id(id)) else {
                continue;
            };
            if let Some(found) = self.look(id)? {
                kept.insert(id.to_owned(), found);
            }
        }
        let lines = self.lines()?;
        for note in lines.notes {
            let Some(found) = kept.get_mut(&note.id) else {
                // What left was noted as that, or what was to come never came.
                if !lines.gone.contains(&note.id) && note.ino.is_none() {
                    kept.insert(note.id.clone(), Kept::without_content(note));
                }
                continue;
            };
            let is_of_it = |file: Stat| note.ino.is_none_or(|ino| file.ino == ino);
            if found.file.is_none_or(is_of_it) {
                // What is noted again, of a late write, does not say where it was.
                let before = found
                    .note
                    .take()
                    .filter(|before| note.dirs.is_empty() && before.path == note.path);
                let dirs = before.map_or_else(|| note.dirs.clone(), |before| before.dirs);
                found.note = Some(KeptInfo { dirs, ..note });
            }
        }
        Ok(Listing {
            kept: kept.into_values().collect(),
            unreadable_lines: lines.unreadable,
        })
    }

    fn look(&self, id: &str) -> Result<Option<Kept>> {
        let file = match sys::open_child(&self.attic, OsStr::new(id)) {
            Ok(file) => file,
            Err(error) if error.errno() == c::ENOENT => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let stat = sys::stat(&file)?;
        Ok(Some(Kept {
            id: id.to_owned(),
            at: attic::slot_time(OsStr::new(id)),
            note: None,
            readable: !stat.is_file() || sys::access(&file, MAY_READ).is_ok(),
            file: Some(stat),
        }))
    }

    /// What the journal says.
    fn lines(&self) -> Result<Lines> {
        let mut lines = Lines::default();
        let journal = match sys::open_at(&self.home, OsStr::new(JOURNAL), c::O_RDONLY | c::O_NOFOLLOW, 0) {
            Ok(journal) => journal,
            Err(error) if error.errno() == c::ENOENT => return Ok(lines),
            Err(error) => return Err(error.into()),
        };
        let text = read_all(&journal)?;
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            if line.is_empty() {
                continue;
            }
            if let Ok(note) = serde_json::from_slice::<KeptInfo>(line)
                && is_id(&note.id)
            {
                lines.notes.push(note);
            } else if let Ok(line) = serde_json::from_slice::<Gone>(line) {
                lines.gone.insert(line.id);
            } else {
                lines.unreadable.push(index + 1);
            }
        }
        Ok(lines)
    }

    /// Opens a kept file for reading, with the caller's own rights.
    ///
    /// # Errors
    /// The filesystem's.
    pub fn open_file(&self, id: &str) -> Result<OwnedFd> {
        let flags = c::O_RDONLY | c::O_NOFOLLOW | c::O_NONBLOCK | c::O_NOCTTY;
        Ok(sys::open_at(&self.attic, OsStr::new(id), flags, 0)?)
    }

    /// Brings a kept file back as `name` in `dir`, which must be free. It is moved where that can be done.
    ///
    /// # Errors
    /// The filesystem's: EEXIST when the name is taken, EACCES when the caller may not read the file.
    pub fn restore(&self, id: &str, dir: &OwnedFd, name: &OsStr) -> Result<Restored> {
        let slot = OsStr::new(id);
        let file = sys::open_child(&self.attic, slot)?;
        let stat = sys::stat(&file)?;
        if stat.is_file() {
            // Whoever may write to the attic's directory could move the file: that is no right to its content.
            sys::access(&file, MAY_READ)?;
        }
        // Before it leaves, so that whoever is killed meanwhile leaves a list that is true.
        self.strike(id, "restored");
        let moved = match sys::rename_at(&self.attic, slot, dir, name, c::RENAME_NOREPLACE) {
            Err(error) if error.errno() == c::EINVAL => {
                sys::link_at(&self.attic, slot, dir, name).and_then(|()| sys::unlink_at(&self.attic, slot))
            }
            other => other,
        };
        match moved {
            Ok(()) => Ok(Restored::Moved),
            Err(error) if error.errno() == c::EXDEV && stat.is_file() => {
                self.restore_copy(id, &stat, dir, name).map(Restored::Copied)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Brings a kept file back as `name` in `dir`, where a regular file is: that one takes its place in the attic. Gives
    /// the id under which it is kept.
    ///
    /// # Errors
    /// The filesystem's: ENOENT when nothing is there, EXDEV on another filesystem, EACCES when the caller may not read
    /// the file.
    pub fn exchange(&self, id: &str, dir: &OwnedFd, name: &OsStr, path: &OsStr) -> Result<String> {
        let slot = OsStr::new(id);
        let file = sys::open_child(&self.attic, slot)?;
        if sys::stat(&file)?.is_file() {
            // As for a restore.
            sys::access(&file, MAY_READ)?;
        }
        let there = sys::stat_at(dir, name)?;
        if !there.is_file() {
            return Err(SysError::new("exchange", c::EISDIR).into());
        }
        let now = crate::clock::now();
        let fresh = format!("{:010x}-{:08x}-{:08x}", now.sec, now.nsec, std::process::id());
        let note = |id: &str, ino| KeptInfo {
            ino,
            ..KeptInfo::now(id.to_owned(), UNDO.to_owned(), UNDO, path.to_owned(), there.size)
        };
        // What was there stands under the old id until it has its own. That is noted first, each for this very file, so that
        // whoever is killed on the way leaves a list that is true.
        self.add_line(&note(id, Some(there.ino)));
        self.add_line(&note(&fresh, Some(there.ino)));
        self.strike(id, "restored");
        sys::rename_at(&self.attic, slot, dir, name, c::RENAME_EXCHANGE)?;
        sys::rename_at(&self.attic, slot, &self.attic, OsStr::new(&fresh), c::RENAME_NOREPLACE)?;
        self.add_line(&note(&fresh, None));
        Ok(fresh)
    }

    /// Where unnamed files can be made, the copy has its name only when it is whole.
    fn restore_copy(&self, id: &str, stat: &Stat, dir: &OwnedFd, name: &OsStr) -> Result<Vec<SysError>> {
        let from = self.open_file(id)?;
        if let Ok(unnamed) = sys::open_tmpfile(dir, c::O_RDWR, 0o600) {
            let failed = fill(&from, &unnamed, stat)?;
            sys::link_fd_at(&unnamed, dir, name)?;
            return Ok(failed);
        }
        let flags = c::O_RDWR | c::O_CREAT | c::O_EXCL | c::O_NOFOLLOW;
        let named = sys::open_at(dir, name, flags, 0o600)?;
        match fill(&from, &named, stat) {
            Ok(failed) => Ok(failed),
            Err(error) => {
                sys::unlink_at(dir, name)?;
                Err(error.into())
            }
        }
    }

    /// Drops a kept file.
    ///
    /// # Errors
    /// The filesystem's.
    pub fn discard(&self, id: &str) -> Result<()> {
        self.strike(id, "pruned");
        match sys::unlink_at(&self.attic, OsStr::new(id)) {
            Err(error) if error.errno() != c::ENOENT => Err(error.into()),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Notes that a file leaves. Without the note it would be listed as one whose content is missing.
    fn strike(&self, id: &str, gone: &str) {
        self.add_line(&Gone {
            id: id.to_owned(),
            gone: gone.to_owned(),
        });
    }

    fn add_line(&self, line: &impl Serialize) {
        let mut text = serde_json::to_vec(line).unwrap_or_default();
        text.push(b'\n');
        let flags = c::O_WRONLY | c::O_CREAT | c::O_NOFOLLOW;
        let noted = sys::open_at(&self.home, OsStr::new(JOURNAL), flags, 0o600)
            .map_err(Into::into)
            .and_then(|journal| append_line(&journal, &text));
        if let Err(error) = noted {
            log::warn!("the attic's journal could not be brought up to date: {error}");
        }
    }

    /// Removes the attic's directories if nothing is kept. Not while a guard may be about to keep something.
    pub fn retire(self) {
        home::remove(&self.root, self.name, &self.home, &self.attic);
    }
}

fn fill(from: &OwnedFd, to: &OwnedFd, stat: &Stat) -> sys::Result<Vec<SysError>> {
    copy::copy_content(from, to)?;
    let mut failed = Vec::new();
    if let Err(error) = copy::copy_owner_and_mode(to, stat) {
        failed.push(error);
        copy::copy_mode_alone(to, stat)?;
    }
    failed.extend(copy::copy_rest(from, to, stat));
    sys::fsync(to)?;
    Ok(failed)
}

/// Whether `id` is formed like the name of a kept file.
fn is_id(id: &str) -> bool {
    !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

/// The directory that `names` lead to from `root`, as [`descend`] finds it; what is missing is made as it was by `dirs`
/// (mode, owner and group of each), or only for `owner` where that is not known or cannot be done. Also the names of those.
///
/// # Errors
/// The filesystem's.
pub fn descend_again(
    root: impl AsFd,
    names: &[OsString],
    dirs: &[(u32, u32, u32)],
    owner: (u32, u32),
) -> Result<(OwnedFd, Vec<OsString>)> {
    let mut dir = sys::reopen(root, c::O_PATH | c::O_DIRECTORY)?;
    let mut private = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let made = match sys::mkdir_at(&dir, name, 0o700) {
            Ok(()) => true,
            Err(error) if error.errno() == c::EEXIST => false,
            Err(error) => return Err(error.into()),
        };
        dir = sys::open_at(&dir, name, c::O_PATH | c::O_DIRECTORY | c::O_NOFOLLOW, 0)?;
        if !made {
            continue;
        }
        let known = dirs.get(index).filter(|_| dirs.len() == names.len());
        let (uid, gid) = known.map_or(owner, |known| (known.1, known.2));
        let now = sys::stat(&dir)?;
        let is_theirs = (now.uid, now.gid) == (uid, gid) || sys::chown(&dir, Some(uid), Some(gid)).is_ok();
        match known.filter(|_| is_theirs) {
            Some((mode, ..)) => sys::chmod(&dir, *mode)?,
            None => private.push(
                names
                    .iter()
                    .take(index + 1)
                    .collect::<std::path::PathBuf>()
                    .into_os_string(),
            ),
        }
    }
    Ok((dir, private))
}

/// The directory that `names` lead to from `root`, never through a symbolic link.
///
/// # Errors
/// The filesystem's.
pub fn descend(root: impl AsFd, names: &[OsString]) -> Result<OwnedFd> {
    let mut dir = sys::reopen(root, c::O_PATH | c::O_DIRECTORY)?;
    for name in names {
        dir = sys::open_at(&dir, name, c::O_PATH | c::O_DIRECTORY | c::O_NOFOLLOW, 0)?;
    }
    Ok(dir)
}
