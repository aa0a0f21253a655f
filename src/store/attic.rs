//! The attic: displaced content, kept on the same filesystem by rename or link, hidden from the mount.
//!
//! Lives in a directory of its own at the root of the backing tree, 0700, made when first needed and removed when
//! nothing is left in it. A failure to keep is reported to the caller, who decides; a failure to tidy up never fails
//! an operation.

#![expect(
    clippy::significant_drop_tightening,
    reason = "a lock is held from the check to the change on purpose"
)]

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use super::home::Home;
use super::kept::Gone;
use super::libc_flags as c;
use super::{Result, copy};
use crate::clock;
use crate::guard::Timestamp;
use crate::sync::Mutex;
use crate::sys::{self, Stat};

/// Names tried for the attic's home, in order, where an earlier one is taken by something else.
pub(super) const HOMES: [&str; 3] = [".unclobber", ".unclobber.1", ".unclobber.2"];
/// The file that marks a home as ours.
const MARKER: &str = "format";
const MARKER_TEXT: &[u8] = b"unclobber store 1\n";
pub(super) const JOURNAL: &str = "kept.jsonl";
const NEW_JOURNAL: &str = "kept.jsonl.new";
pub(super) const ATTIC: &str = "attic";

/// Bounds of the attic.
#[derive(Debug, Clone, Copy)]
pub struct AtticLimits {
    /// Seconds that content is kept.
    pub age: i64,
    /// Bytes kept in all; the oldest go first.
    pub size: u64,
    /// Bytes that are copied at most to keep content that somebody has seen, or at level keep, where they cannot be shared.
    pub copy: u64,
    /// Nothing is kept.
    pub off: bool,
}

impl Default for AtticLimits {
    fn default() -> Self {
        Self {
            age: 7 * 24 * 3600,
            size: 1 << 30,
            copy: 1 << 20,
            off: false,
        }
    }
}

/// The name of one kept file: sorts by time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot(OsString);

impl Slot {
    /// The name, for events and listings.
    #[must_use]
    pub fn name(&self) -> &OsStr {
        &self.0
    }
}

/// What is noted about a kept file: one line of the journal.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KeptInfo {
    /// The kept file's name in the attic.
    pub id: String,
    /// The owner whose change displaced it.
    pub owner: String,
    /// The operation.
    pub operation: String,
    /// Where it was, below the root of the tree.
    pub path: String,
    /// When, in seconds since the epoch.
    pub at: i64,
    /// Its size in bytes.
    pub size: u64,
}

/// The attic of one tree.
#[derive(Debug)]
pub struct Attic {
    root: Arc<OwnedFd>,
    name: &'static str,
    limits: AtticLimits,
    home: Mutex<Option<Arc<Home>>>,
    counter: AtomicU32,
    /// Bytes kept since the bounds were last looked at.
    added: AtomicU64,
    /// Set once the filesystem has said that files cannot share their content.
    no_sharing: AtomicBool,
}

/// Ends the name of a copy that is not whole yet.
const PART: &str = ".part";
/// Seconds after which nobody writes to such a copy any more.
const PART_AGE: i64 = 60;
/// The attic is looked through again when this part of its bound has been added.
const SHARE: u64 = 8;

impl Attic {
    pub(super) fn new(root: Arc<OwnedFd>, limits: AtticLimits) -> Self {
        let name = HOMES.into_iter().find(|name| usable(&root, name)).unwrap_or(HOMES[0]);
        if name != HOMES[0] {
            log::warn!(
                "{} is taken by something else; displaced content is kept in {name}",
                HOMES[0]
            );
        }
        Self {
            root,
            name,
            limits,
            home: Mutex::new(None),
            counter: AtomicU32::new(0),
            added: AtomicU64::new(0),
            no_sharing: AtomicBool::new(false),
        }
    }

    /// Whether anything is kept.
    #[must_use]
    pub fn is_on(&self) -> bool {
        !self.limits.off
    }

    /// Whether so much has been kept that the bounds should be looked at before the time.
    #[must_use]
    pub fn is_filling(&self) -> bool {
        self.added.load(Ordering::Relaxed) > self.limits.size / SHARE
    }

    /// Whether `name` at the root of the tree is the attic's home, or would become it: not where somebody has put
    /// something of their own there since.
    #[must_use]
    pub fn is_own(&self, name: &OsStr) -> bool {
        name == self.name && (self.has_home() || usable(&self.root, self.name))
    }

    fn has_home(&self) -> bool {
        let home = self.home.lock();
        home.as_ref()
            .is_some_and(|home| sys::stat(&home.home).is_ok_and(|stat| stat.nlink > 0))
    }

    /// The home as it was last seen: for calls that fail where it is gone.
    pub(super) fn known_home(&self) -> Result<Arc<Home>> {
        let known = self.home.lock().clone().filter(|_| !self.limits.off);
        known.map_or_else(|| self.home(), Ok)
    }

    fn home(&self) -> Result<Arc<Home>> {
        if self.limits.off {
            return Err(sys::SysError::new("keep (the attic is off)", c::EOPNOTSUPP).into());
        }
        let mut slot = self.home.lock();
        // Whoever prunes from outside takes the empty attic away.
        if let Some(home) = slot.as_ref()
            && sys::stat(&home.attic).is_ok_and(|stat| stat.nlink > 0)
        {
            return Ok(Arc::clone(home));
        }
        let home = Arc::new(self.make_home()?);
        *slot = Some(Arc::clone(&home));
        Ok(home)
    }

    fn make_home(&self) -> Result<Home> {
        if !usable(&self.root, self.name) {
            log::warn!("{} is something else's by now: nothing can be kept", self.name);
            return Err(sys::SysError::new("mkdirat", c::EEXIST).into());
        }
        let home = make_dir(&*self.root, OsStr::new(self.name))?;
        // The owner of the tree must be able to remove it; the files in it keep their own modes and owners.
        let root = sys::stat(&*self.root)?;
        if sys::stat(&home)?.uid != root.uid {
            sys::chown(&home, Some(root.uid), Some(root.gid))?;
        }
        write_once(&home, MARKER, MARKER_TEXT)?;
        write_once(&home, ".gitignore", b"*\n")?;
        let attic = make_dir(&home, OsStr::new(ATTIC))?;
        Ok(Home::new(home, attic))
    }

    fn fresh_slot(&self) -> Slot {
        let now = clock::now();
        let count = self.counter.fetch_add(1, Ordering::Relaxed);
        Slot(format!("{:010x}-{:08x}-{count:08x}", now.sec, now.nsec).into())
    }

    /// Moves the file `name` in `dir` into the attic.
    pub(super) fn displace(&self, dir: &OwnedFd, name: &OsStr) -> Result<Slot> {
        let mut home = self.known_home()?;
        let slot = self.fresh_slot();
        match sys::rename_at(dir, name, &home.attic, &slot.0, c::RENAME_NOREPLACE) {
            Err(error) if error.errno() == c::EINVAL => sys::rename_at(dir, name, &home.attic, &slot.0, 0)?,
            Err(error) if error.errno() == c::ENOENT && sys::stat_at(dir, name).is_ok() => {
                // The file is there: it is the attic that somebody has removed.
                *self.home.lock() = None;
                home = self.home()?;
                sys::rename_at(dir, name, &home.attic, &slot.0, c::RENAME_NOREPLACE)?;
            }
            other => other?,
        }
        Ok(slot)
    }

    /// An `O_PATH` descriptor of a file in the attic, and its attributes.
    pub(super) fn look(&self, slot: &Slot) -> Result<(OwnedFd, Stat)> {
        let home = self.known_home()?;
        let fd = sys::open_child(&home.attic, &slot.0)?;
        let stat = sys::stat(&fd)?;
        Ok((fd, stat))
    }

    /// Links the file `name` in `dir` into the attic; gives an `O_PATH` descriptor of what was linked.
    pub(super) fn link(&self, dir: &OwnedFd, name: &OsStr) -> Result<(Slot, OwnedFd, Stat)> {
        let home = self.home()?;
        let slot = self.fresh_slot();
        sys::link_at(dir, name, &home.attic, &slot.0)?;
        let (fd, stat) = self.look(&slot)?;
        Ok((slot, fd, stat))
    }

    /// Links an open, unnamed file into the attic.
    ///
    /// # Errors
    /// The backing filesystem's.
    pub fn keep_open_file(&self, file: impl AsFd) -> Result<Slot> {
        let home = self.home()?;
        let slot = self.fresh_slot();
        sys::link_fd_at(file, &home.attic, &slot.0)?;
        Ok(slot)
    }

    /// Copies the content of a file into the attic, sharing its blocks where the filesystem can; with `cheaply`, only where
    /// it can or the file is small enough. The copy has its name when it is whole.
    ///
    /// # Errors
    /// The backing filesystem's.
    pub fn keep_copy(&self, file: &OwnedFd, stat: &Stat, cheaply: bool) -> Result<Option<Slot>> {
        let home = self.home()?;
        let source = sys::reopen(file, c::O_RDONLY)?;
        let slot = self.fresh_slot();
        let limit = if cheaply { self.limits.copy } else { u64::MAX };
        if let Ok(unnamed) = sys::open_tmpfile(&home.attic, c::O_RDWR, 0o600) {
            if !self.fill(&source, &unnamed, stat, limit)? {
                return Ok(None);
            }
            sys::link_fd_at(&unnamed, &home.attic, &slot.0)?;
            return Ok(Some(slot));
        }
        let mut part = slot.0.clone();
        part.push(PART);
        let copy = sys::open_at(&home.attic, &part, c::O_WRONLY | c::O_CREAT | c::O_EXCL, 0o600)?;
        match self.fill(&source, &copy, stat, limit) {
            Ok(true) => sys::rename_at(&home.attic, &part, &home.attic, &slot.0, 0)?,
            other => {
                sys::unlink_at(&home.attic, &part)?;
                return other.map(|_| None);
            }
        }
        Ok(Some(slot))
    }

    /// Fills a copy, and gives it what else belongs to the file; whether it is within `limit` or shares its blocks.
    fn fill(&self, source: &OwnedFd, copy: &OwnedFd, stat: &Stat, limit: u64) -> Result<bool> {
        if !self.share(source, copy) {
            if stat.size > limit {
                return Ok(false);
            }
            copy::copy_content(source, copy)?;
        }
        copy::copy_owner_and_mode(copy, stat)?;
        for error in copy::copy_rest(source, copy, stat) {
            log::debug!("a copy in the attic is without an attribute: {error}");
        }
        Ok(true)
    }

    fn share(&self, source: &OwnedFd, copy: &OwnedFd) -> bool {
        if self.no_sharing.load(Ordering::Relaxed) {
            return false;
        }
        let shared = sys::clone_content(source, copy);
        if shared.as_ref().is_err_and(|error| error.errno() == c::EOPNOTSUPP) {
            self.no_sharing.store(true, Ordering::Relaxed);
        }
        shared.is_ok()
    }

    /// Moves a displaced file back to a name, which must be free.
    pub(super) fn put_back(&self, slot: &Slot, dir: &OwnedFd, name: &OsStr) -> Result<()> {
        let home = self.known_home()?;
        Ok(sys::rename_at(&home.attic, &slot.0, dir, name, c::RENAME_NOREPLACE)?)
    }

    /// Drops a displaced file that its owner has seen.
    pub fn discard(&self, slot: &Slot) {
        let gone = self
            .known_home()
            .and_then(|home| Ok(sys::unlink_at(&home.attic, &slot.0)?));
        if let Err(error) = gone {
            log::warn!("a displaced file stays in the attic: {error}");
        }
    }

    /// Notes what a kept file was. The file is kept whether or not the note can be written.
    pub fn note(&self, info: &KeptInfo) {
        self.added.fetch_add(info.size, Ordering::Relaxed);
        let mut line = serde_json::to_vec(info).unwrap_or_default();
        line.push(b'\n');
        let noted = self.known_home().and_then(|home| home.note(&line)).and_then(|noted| {
            // Somebody may have taken it away, or there was nothing to note yet.
            if noted { Ok(true) } else { self.home()?.note_anew(&line) }
        });
        if let Err(error) = noted {
            log::warn!("a kept file could not be noted in the attic's journal: {error}");
        }
    }

    /// Drops what is older than the bound on age, then the oldest until the rest is within the bound on size.
    /// Gives the number of files and bytes kept.
    ///
    /// # Errors
    /// When the attic cannot be listed.
    pub fn prune(&self, now: Timestamp) -> Result<(usize, u64)> {
        self.added.store(0, Ordering::Relaxed);
        let Some(home) = self.existing_home() else {
            return Ok((0, 0));
        };
        drop_parts(&home, now)?;
        let mut kept: Vec<(OsString, u64)> = Vec::new();
        for name in list(&home.attic)? {
            match sys::stat_at(&home.attic, &name) {
                Ok(stat) => kept.push((name, stat.blocks * 512)),
                Err(error) => log::debug!("the attic changed while it was listed: {error}"),
            }
        }
        // A copy under way is not kept yet.
        kept.retain(|(name, _)| !name.as_bytes().ends_with(PART.as_bytes()));
        kept.sort();
        let mut total: u64 = kept.iter().map(|(_, size)| size).sum();
        let mut left = kept.len();
        for (name, size) in &kept {
            if total <= self.limits.size && now.sec - slot_time(name).unwrap_or(now.sec) <= self.limits.age {
                break;
            }
            match sys::unlink_at(&home.attic, name) {
                Ok(()) => {
                    total -= size;
                    left -= 1;
                }
                Err(error) => log::warn!("a kept file past its bounds could not be removed: {error}"),
            }
        }
        if left < kept.len() {
            log::info!("the attic dropped {} files past its bounds", kept.len() - left);
            if let Err(error) = Self::shorten_journal(&home) {
                log::warn!("the attic's journal could not be shortened: {error}");
            }
        }
        Ok((left, total))
    }

    /// Writes the journal anew without the notes of files that are gone.
    fn shorten_journal(home: &Home) -> Result<()> {
        let mut open = home.journal.lock();
        *open = None;
        let (old, new) = (OsStr::new(JOURNAL), OsStr::new(NEW_JOURNAL));
        let journal = sys::open_at(&home.home, old, c::O_RDONLY, 0)?;
        let text = read_all(&journal)?;
        let left: HashSet<OsString> = list(&home.attic)?.into_iter().collect();
        let mut kept = Vec::new();
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            let noted = serde_json::from_slice::<KeptInfo>(line).map(|note| note.id);
            let id = noted.or_else(|_| serde_json::from_slice::<Gone>(line).map(|line| line.id));
            if id.is_ok_and(|id| !left.contains(OsStr::new(&id))) {
                continue;
            }
            if !line.is_empty() {
                kept.extend_from_slice(line);
            }
        }
        remove_if_there(&home.home, NEW_JOURNAL)?;
        let file = sys::open_at(&home.home, new, c::O_WRONLY | c::O_CREAT | c::O_EXCL, 0o600)?;
        sys::pwrite(&file, &kept, 0)?;
        Ok(sys::rename_at(&home.home, new, &home.home, old, 0)?)
    }

    /// Ends a last line of the journal that was torn when a guard was killed, so that nothing is added to it.
    fn mend_journal(home: &Home) -> Result<()> {
        let _one_writer = home.journal.lock();
        let journal = match sys::open_at(&home.home, OsStr::new(JOURNAL), c::O_RDWR, 0o600) {
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

    /// Cleans up after a guard that was killed, and brings the attic within its bounds.
    ///
    /// # Errors
    /// When the attic cannot be looked through.
    pub fn begin(&self, now: Timestamp) -> Result<()> {
        if let Some(home) = self.existing_home() {
            remove_if_there(&home.home, NEW_JOURNAL)?;
            Self::mend_journal(&home)?;
        }
        self.prune(now).map(drop)
    }

    fn existing_home(&self) -> Option<Arc<Home>> {
        if let Some(home) = self.home.lock().as_ref() {
            return Some(Arc::clone(home));
        }
        let there = sys::stat_at(&*self.root, OsStr::new(self.name)).is_ok();
        there.then(|| self.home().ok()).flatten()
    }

    /// Whether it has been used since it was last retired.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.home.lock().is_some()
    }

    /// Lets go of the home, and removes it if nothing is kept in it.
    pub fn retire(&self) {
        let Some(home) = self.existing_home() else { return };
        remove_home(&self.root, self.name, &home.home, &home.attic);
        *self.home.lock() = None;
    }
}

/// Drops copies that were never finished: whoever made them has been killed.
fn drop_parts(home: &Home, now: Timestamp) -> Result<()> {
    for name in list(&home.attic)? {
        if !name.as_bytes().ends_with(PART.as_bytes()) {
            continue;
        }
        let old = sys::stat_at(&home.attic, &name).is_ok_and(|stat| now.sec - stat.mtime.sec > PART_AGE);
        if old && let Err(error) = sys::unlink_at(&home.attic, &name) {
            log::warn!("a copy that was never finished stays in the attic: {error}");
        }
    }
    Ok(())
}

/// Removes a home, with its journal, if nothing is kept in it.
pub(super) fn remove_home(root: &OwnedFd, name: &str, home: &OwnedFd, attic: &OwnedFd) {
    let empty = list(attic).is_ok_and(|names| names.is_empty());
    if empty {
        let gone = sys::rmdir_at(home, OsStr::new(ATTIC))
            .and_then(|()| remove_if_there(home, JOURNAL))
            .and_then(|()| remove_if_there(home, NEW_JOURNAL))
            .and_then(|()| remove_if_there(home, ".gitignore"))
            .and_then(|()| remove_if_there(home, MARKER))
            .and_then(|()| sys::rmdir_at(root, OsStr::new(name)));
        if let Err(error) = gone {
            log::debug!("the empty attic stays: {error}");
        }
    }
}

/// Whether a home belongs to the owner of the tree or to us: what others have put there is not ours to trust.
fn is_trusted(root: &OwnedFd, home: &OwnedFd) -> bool {
    let (Ok(root), Ok(home)) = (sys::stat(root), sys::stat(home)) else {
        return false;
    };
    home.is_dir() && (home.uid == root.uid || home.uid == sys::geteuid())
}

/// Whether `name` is free, or a home of ours.
fn usable(root: &OwnedFd, name: &str) -> bool {
    match sys::open_child(root, OsStr::new(name)) {
        Ok(home) => has_marker(&home).unwrap_or(false) && is_trusted(root, &home),
        Err(error) => error.errno() == c::ENOENT,
    }
}

/// Whether a directory is marked as a home of ours.
pub(super) fn has_marker(home: &OwnedFd) -> sys::Result<bool> {
    match sys::stat_at(home, OsStr::new(MARKER)) {
        Ok(stat) => Ok(stat.is_file()),
        Err(error) if error.errno() == c::ENOENT => Ok(false),
        Err(error) => Err(error),
    }
}

/// All that a file holds.
pub(super) fn read_all(file: &OwnedFd) -> sys::Result<Vec<u8>> {
    let mut text = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let length = sys::pread(file, &mut buffer, text.len() as u64)?;
        if length == 0 {
            return Ok(text);
        }
        text.extend_from_slice(&buffer[..length]);
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

fn remove_if_there(dir: &OwnedFd, name: &str) -> sys::Result<()> {
    match sys::unlink_at(dir, OsStr::new(name)) {
        Err(error) if error.errno() != c::ENOENT => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

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

pub(super) fn slot_time(name: &OsStr) -> Option<i64> {
    let text = std::str::from_utf8(name.as_bytes()).ok()?;
    i64::from_str_radix(text.split('-').next()?, 16).ok()
}
