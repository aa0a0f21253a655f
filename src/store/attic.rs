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
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::home::{self, HOMES, Home, list};
use super::journal::{Gone, Journal, KeptInfo};
use super::kept::descend;
use super::libc_flags as c;
use super::{Result, copy};
use serde::Serialize;

use crate::clock;
use crate::guard::Timestamp;
use crate::sync::Mutex;
use crate::sys::{self, Stat};

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
        let name = home::choose(&root);
        if name != HOMES[0] {
            log::warn!("displaced content is kept in {name}");
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
        name == self.name && (self.has_home() || home::usable(&self.root, self.name))
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
        if let Some(home) = slot.as_ref().filter(|home| home.is_there()) {
            return Ok(Arc::clone(home));
        }
        let home = Arc::new(Home::make(&self.root, self.name)?);
        *slot = Some(Arc::clone(&home));
        Ok(home)
    }

    /// A name for what is kept next.
    pub fn fresh_slot(&self) -> Slot {
        let now = clock::now();
        let count = self.counter.fetch_add(1, Ordering::Relaxed);
        Slot(format!("{:010x}-{:08x}-{count:08x}", now.sec, now.nsec).into())
    }

    /// Moves the file `name` in `dir` into the attic, as `slot`.
    pub(super) fn displace(&self, dir: &OwnedFd, name: &OsStr, slot: Slot) -> Result<Slot> {
        let mut home = self.known_home()?;
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

    /// Links the file `name` in `dir` into the attic, as `slot`; gives an `O_PATH` descriptor of what was linked.
    pub(super) fn link(&self, dir: &OwnedFd, name: &OsStr, slot: &Slot) -> Result<(OwnedFd, Stat)> {
        let home = self.home()?;
        sys::link_at(dir, name, &home.attic, &slot.0)?;
        self.look(slot)
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
        if let Err(error) = copy::copy_owner_and_mode(copy, stat) {
            // What an ordinary user keeps of a file of somebody else is that user's copy.
            log::debug!("a copy in the attic is not its owner's: {error}");
            copy::copy_mode_alone(copy, stat)?;
        }
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

    /// Notes what a kept file was; whether it could. The file is kept whether or not the note can be written.
    pub fn note(&self, info: &KeptInfo) -> bool {
        self.added.fetch_add(info.size, Ordering::Relaxed);
        self.add_line(info)
    }

    /// Takes back a note of what was to be kept, and is not.
    pub fn strike(&self, slot: &Slot) {
        self.add_line(&Gone {
            id: slot.0.to_string_lossy().into_owned(),
            gone: "not kept".to_owned(),
        });
    }

    fn add_line(&self, line: &impl Serialize) -> bool {
        let mut line = serde_json::to_vec(line).unwrap_or_default();
        line.push(b'\n');
        let noted = self
            .known_home()
            .and_then(|home| home.journal.note(&line))
            .and_then(|noted| {
                // Somebody may have taken it away, or there was nothing to note yet.
                if noted {
                    return Ok(true);
                }
                let home = self.home()?;
                home.journal.note_anew(&home.home, &line)
            });
        if let Err(error) = &noted {
            log::warn!("a kept file could not be noted in the attic's journal: {error}");
        }
        noted.is_ok()
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
        let mut dropped = HashSet::new();
        for (name, size) in &kept {
            if total <= self.limits.size && now.sec - slot_time(name).unwrap_or(now.sec) <= self.limits.age {
                break;
            }
            match sys::unlink_at(&home.attic, name) {
                Ok(()) => {
                    total -= size;
                    dropped.insert(name.as_os_str());
                }
                Err(error) => log::warn!("a kept file past its bounds could not be removed: {error}"),
            }
        }
        if !dropped.is_empty() {
            log::info!("the attic dropped {} files past its bounds", dropped.len());
            let shortened = list(&home.attic).and_then(|left| {
                let left: HashSet<OsString> = left.into_iter().collect();
                home.journal.shorten(&home.home, |id| {
                    let id = OsStr::new(id);
                    // What was noted just now may be about to come.
                    let is_new = slot_time(id).is_some_and(|at| now.sec - at <= PART_AGE);
                    dropped.contains(id) || !left.contains(id) && !is_new
                })
            });
            if let Err(error) = shortened {
                log::warn!("the attic's journal could not be shortened: {error}");
            }
        }
        Ok((kept.len() - dropped.len(), total))
    }

    /// Finishes what a guard that was killed has left half done in the tree itself. Before anybody else is served.
    ///
    /// # Errors
    /// When the attic cannot be looked through.
    pub fn finish_renames(&self) -> Result<()> {
        if !self.is_on() {
            return Ok(());
        }
        home::clear_unfinished(&self.root);
        let Some(home) = self.existing_home() else {
            return Ok(());
        };
        home.journal.mend(&home.home)?;
        for note in Journal::last_renames(&home.home)? {
            match self.finish_rename(&home, &note) {
                Ok(false) => {}
                Ok(true) => log::info!(
                    "a rename over {} was finished, which a killed guard had begun",
                    note.path
                ),
                Err(error) => log::warn!("a rename over {} that was begun stays half done: {error}", note.path),
            }
        }
        Ok(())
    }

    /// If the names had been exchanged and nobody has changed anything since, what is displaced goes from the old name into
    /// the attic; whether it did.
    fn finish_rename(&self, home: &Home, note: &KeptInfo) -> Result<bool> {
        let Some(renamed) = &note.renamed else { return Ok(false) };
        let id = OsStr::new(&note.id);
        if sys::stat_at(&home.attic, id).is_ok() {
            return Ok(false);
        }
        let (Some(from), Some(to)) = (self.end(renamed.real_from()), self.end(note.real_path())) else {
            return Ok(false);
        };
        let is_displaced = |stat: &Stat| {
            (stat.ino, stat.size, stat.mtime.sec, stat.mtime.nsec)
                == (renamed.displaced, note.size, renamed.modified.0, renamed.modified.1)
        };
        let Ok(new) = sys::stat_at(&to.0, to.1) else {
            return Ok(false);
        };
        if is_displaced(&new) {
            // The names were never exchanged.
            self.strike(&Slot(id.to_owned()));
            return Ok(false);
        }
        if new.ino != renamed.source || !sys::stat_at(&from.0, from.1).is_ok_and(|old| is_displaced(&old)) {
            return Ok(false);
        }
        sys::rename_at(&from.0, from.1, &home.attic, id, c::RENAME_NOREPLACE)?;
        if !is_displaced(&sys::stat_at(&home.attic, id)?) {
            sys::rename_at(&home.attic, id, &from.0, from.1, c::RENAME_NOREPLACE)?;
            return Ok(false);
        }
        Ok(true)
    }

    /// The directory and the name that a path below the root leads to.
    fn end<'a>(&self, path: &'a OsStr) -> Option<(OwnedFd, &'a OsStr)> {
        let mut names: Vec<&OsStr> = Path::new(path).iter().collect();
        let name = names.pop()?;
        let names: Vec<OsString> = names.into_iter().map(OsStr::to_owned).collect();
        Some((descend(&*self.root, &names).ok()?, name))
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
        home::remove(&self.root, self.name, &home.home, &home.attic);
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

pub(super) fn slot_time(name: &OsStr) -> Option<i64> {
    let text = std::str::from_utf8(name.as_bytes()).ok()?;
    i64::from_str_radix(text.split('-').next()?, 16).ok()
}
