//! The attic's journal: one line for each kept file, and one for each that has left again.
//!
//! The guard adds to it and shortens it; commands add to it. It never decides what is kept.

#![expect(
    clippy::significant_drop_tightening,
    reason = "a lock is held from the check to the change on purpose"
)]

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use serde::{Deserialize, Serialize};

use super::Result;
use super::home::remove_if_there;
use super::libc_flags as c;
use crate::clock;
use crate::sync::Mutex;
use crate::sys::{self, SysError};

pub(super) const JOURNAL: &str = "kept.jsonl";
const NEW_JOURNAL: &str = "kept.jsonl.new";

/// Bytes at the end of the journal that hold what was under way when the guard was killed.
const LAST: u64 = 1 << 16;

/// What is noted about a kept file: one line of the journal.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KeptInfo {
    /// The kept file's name in the attic.
    pub id: String,
    /// The owner whose change displaced it.
    pub owner: String,
    /// The operation.
    pub operation: String,
    /// Where it was, below the root of the tree; for people only where that is no UTF-8.
    pub path: String,
    /// The same where it is no UTF-8, exactly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<Vec<u8>>,
    /// When, in seconds since the epoch.
    pub at: i64,
    /// Its size in bytes.
    pub size: u64,
    /// The owner who went on writing it after it had been displaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_by: Option<String>,
    /// Mode, owner and group of the directories it was in, from the root of the tree on, which is left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dirs: Vec<(u32, u32, u32)>,
    /// Noted before the file came: it holds of the file with this inode number alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ino: Option<u64>,
    /// Of a rename over it: noted before the names are exchanged, to be finished if the guard is killed then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renamed: Option<Renamed>,
}

/// A rename over a file that is about to happen.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Renamed {
    /// The name that is moved, below the root of the tree; for people only where that is no UTF-8.
    pub from: String,
    /// The same where it is no UTF-8, exactly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_bytes: Option<Vec<u8>>,
    /// The inode number of what is moved.
    pub source: u64,
    /// The inode number of the file that it displaces.
    pub displaced: u64,
    /// When that was modified: seconds and nanoseconds.
    pub modified: (i64, u32),
}

impl Renamed {
    /// `from`, exactly.
    #[must_use]
    pub fn real_from(&self) -> &OsStr {
        real(&self.from, self.from_bytes.as_deref())
    }
}

/// A path as text, and exactly where that is no UTF-8.
#[must_use]
pub fn path_as_text(path: OsString) -> (String, Option<Vec<u8>>) {
    match path.into_string() {
        Ok(path) => (path, None),
        Err(path) => (path.to_string_lossy().into_owned(), Some(path.into_vec())),
    }
}

fn real<'a>(path: &'a str, bytes: Option<&'a [u8]>) -> &'a OsStr {
    bytes.map_or_else(|| OsStr::new(path), OsStr::from_bytes)
}

impl KeptInfo {
    /// What is noted of a file kept now.
    #[must_use]
    pub fn now(id: String, owner: String, operation: &str, path: OsString, size: u64) -> Self {
        let (path, path_bytes) = path_as_text(path);
        Self {
            id,
            owner,
            operation: operation.to_owned(),
            path,
            path_bytes,
            at: clock::now().sec,
            size,
            written_by: None,
            dirs: Vec::new(),
            ino: None,
            renamed: None,
        }
    }

    /// Where it was, exactly.
    #[must_use]
    pub fn real_path(&self) -> &OsStr {
        real(&self.path, self.path_bytes.as_deref())
    }
}

/// A line of the journal about a kept file that has left the attic.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Gone {
    pub(super) id: String,
    pub(super) gone: String,
}

/// The journal of a guard that adds to it.
#[derive(Debug, Default)]
pub(super) struct Journal {
    /// Kept open once something was noted; whoever writes to it or replaces it holds the lock.
    open: Mutex<Option<OwnedFd>>,
    /// One shortens it at a time.
    shortening: Mutex<()>,
}

impl Journal {
    /// Adds a line, if the journal is open and still there; says whether it was.
    pub(super) fn note(&self, line: &[u8]) -> Result<bool> {
        let open = self.open.lock();
        match open.as_ref() {
            Some(file) if sys::stat(file).is_ok_and(|stat| stat.nlink > 0) => append_line(file, line).map(|()| true),
            Some(_) | None => Ok(false),
        }
    }

    /// The same, and opens or makes the journal first.
    pub(super) fn note_anew(&self, home: &OwnedFd, line: &[u8]) -> Result<bool> {
        let mut open = self.open.lock();
        let file = sys::open_at(home, OsStr::new(JOURNAL), c::O_WRONLY | c::O_CREAT, 0o600)?;
        append_line(&file, line)?;
        *open = Some(file);
        Ok(true)
    }

    /// Writes the journal anew without the notes of files that are gone. The old one stays until the new one is whole and on
    /// disk.
    pub(super) fn shorten(&self, home: &OwnedFd, is_gone: impl Fn(&str) -> bool) -> Result<()> {
        let _one = self.shortening.lock();
        let (old, new) = (OsStr::new(JOURNAL), OsStr::new(NEW_JOURNAL));
        let journal = sys::open_at(home, old, c::O_RDONLY, 0)?;
        let text = read_all(&journal)?;
        remove_if_there(home, NEW_JOURNAL)?;
        let file = sys::open_at(home, new, c::O_WRONLY | c::O_CREAT | c::O_EXCL, 0o600)?;
        let kept = without(&text, is_gone);
        let replaced = write_whole(&file, &kept, 0)
            .and_then(|()| Ok(sys::fsync(&file)?))
            .and_then(|()| {
                // Nobody waits for the disk: only now nothing may be added, and what was meanwhile comes along.
                let mut open = self.open.lock();
                let added = read_from(&journal, text.len() as u64)?;
                write_whole(&file, &added, kept.len() as u64)?;
                sys::rename_at(home, new, home, old, 0)?;
                *open = None;
                Ok(())
            });
        if replaced.is_err() {
            remove_if_there(home, NEW_JOURNAL)?;
        }
        replaced
    }

    /// Cleans up after a guard that was killed: a journal that was not yet whole goes, and a torn last line is ended, so
    /// that nothing is added to it.
    pub(super) fn mend(&self, home: &OwnedFd) -> Result<()> {
        remove_if_there(home, NEW_JOURNAL)?;
        let _one_writer = self.open.lock();
        let journal = match sys::open_at(home, OsStr::new(JOURNAL), c::O_RDWR, 0o600) {
            Err(error) if error.errno() == c::ENOENT => return Ok(()),
            other => other?,
        };
        let size = sys::stat(&journal)?.size;
        let mut last = [b'\n'];
        if size > 0 && sys::pread(&journal, &mut last, size - 1)? == 1 && last != [b'\n'] {
            sys::pwrite_append(&journal, b"\n")?;
        }
        Ok(())
    }

    /// The renames over a file that were noted last, and not as having come to nothing: those that whoever was killed may not
    /// have finished.
    pub(super) fn last_renames(home: &OwnedFd) -> Result<Vec<KeptInfo>> {
        let journal = match sys::open_at(home, OsStr::new(JOURNAL), c::O_RDONLY, 0) {
            Err(error) if error.errno() == c::ENOENT => return Ok(Vec::new()),
            other => other?,
        };
        let text = read_from(&journal, sys::stat(&journal)?.size.saturating_sub(LAST))?;
        let (mut notes, mut gone) = (Vec::new(), HashSet::new());
        for line in text.split(|byte| *byte == b'\n') {
            if let Ok(note) = serde_json::from_slice::<KeptInfo>(line) {
                notes.extend(Some(note).filter(|note| note.renamed.is_some()));
            } else if let Ok(line) = serde_json::from_slice::<Gone>(line) {
                gone.insert(line.id);
            }
        }
        notes.retain(|note| !gone.contains(&note.id));
        Ok(notes)
    }

    /// Removes the journal of a home in which nothing is kept.
    pub(super) fn remove(home: &OwnedFd) -> sys::Result<()> {
        remove_if_there(home, JOURNAL).and_then(|()| remove_if_there(home, NEW_JOURNAL))
    }
}

/// On a full disk a part may be written: the next note must not go on in the middle of this one.
pub(super) fn append_line(file: &OwnedFd, line: &[u8]) -> Result<()> {
    if sys::pwrite_append(file, line)? < line.len() {
        sys::pwrite_append(file, b"\n")?;
        return Err(SysError::new("pwritev2", c::ENOSPC).into());
    }
    Ok(())
}

/// Writes all of it, or fails.
fn write_whole(file: &OwnedFd, text: &[u8], at: u64) -> Result<()> {
    let (mut rest, mut at) = (text, at);
    while !rest.is_empty() {
        let written = sys::pwrite(file, rest, at)?;
        if written == 0 {
            return Err(SysError::new("pwrite", c::ENOSPC).into());
        }
        rest = rest.get(written..).unwrap_or_default();
        at += written as u64;
    }
    Ok(())
}

fn without(text: &[u8], is_gone: impl Fn(&str) -> bool) -> Vec<u8> {
    let mut kept = Vec::new();
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let noted = serde_json::from_slice::<KeptInfo>(line).map(|note| note.id);
        let id = noted.or_else(|_| serde_json::from_slice::<Gone>(line).map(|line| line.id));
        if id.is_ok_and(|id| is_gone(&id)) {
            continue;
        }
        kept.extend_from_slice(line);
    }
    kept
}

/// All that a file holds.
pub(super) fn read_all(file: &OwnedFd) -> sys::Result<Vec<u8>> {
    read_from(file, 0)
}

fn read_from(file: &OwnedFd, at: u64) -> sys::Result<Vec<u8>> {
    let mut text = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let length = sys::pread(file, &mut buffer, at + text.len() as u64)?;
        if length == 0 {
            return Ok(text);
        }
        text.extend_from_slice(&buffer[..length]);
    }
}
