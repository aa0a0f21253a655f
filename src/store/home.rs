//! The directory that an attic is in, and the journal of what is kept there.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;

use super::Result;
use super::attic::JOURNAL;
use super::libc_flags as c;
use crate::sync::Mutex;
use crate::sys;

/// The attic's directory, where its files lie, and its journal.
#[derive(Debug)]
pub(super) struct Home {
    pub(super) home: OwnedFd,
    /// The directory that the files lie in.
    pub(super) attic: OwnedFd,
    /// The journal, kept open once something was noted; whoever writes to it or replaces it holds the lock.
    pub(super) journal: Mutex<Option<OwnedFd>>,
}

impl Home {
    pub(super) fn new(home: OwnedFd, attic: OwnedFd) -> Self {
        Self {
            home,
            attic,
            journal: Mutex::new(None),
        }
    }

    /// Adds a line to the journal, if that is open and still there; says whether it was.
    pub(super) fn note(&self, line: &[u8]) -> Result<bool> {
        let journal = self.journal.lock();
        match journal.as_ref() {
            Some(file) if sys::stat(file).is_ok_and(|stat| stat.nlink > 0) => append_line(file, line).map(|()| true),
            Some(_) | None => Ok(false),
        }
    }

    /// The same, and opens or makes the journal first.
    pub(super) fn note_anew(&self, line: &[u8]) -> Result<bool> {
        let mut journal = self.journal.lock();
        let file = sys::open_at(&self.home, OsStr::new(JOURNAL), c::O_WRONLY | c::O_CREAT, 0o600)?;
        append_line(&file, line)?;
        *journal = Some(file);
        drop(journal);
        Ok(true)
    }
}

/// On a full disk a part may be written: the next note must not go on in the middle of this one.
fn append_line(file: &OwnedFd, line: &[u8]) -> Result<()> {
    if sys::pwrite_append(file, line)? < line.len() {
        sys::pwrite_append(file, b"\n")?;
    }
    Ok(())
}
