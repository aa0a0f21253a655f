//! The virtual directory at a mount's root, for those who have no command at hand: who they are there, and what was
//! refused to them.
//!
//! It exists in no directory of the disk and no listing, is the same for nobody (each sees its own owner's), and can be
//! read only. Never shadows a name of the tree, is never judged, and reading it is no observation.

use std::ffi::OsStr;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::Told;
use super::activity::Become;
use super::caller::{Arrival, Caller, Who};
use super::dir::DirItem;
use super::errno::{FsError, Result};
use super::lookup::{Attr, Entry};
use super::mount::Mount;
use crate::audit::Report;
use crate::clock;
use crate::guard::{Mode, OwnerId, SHOW, Timestamp, printable};
use crate::store::{Node, ROOT_ID, libc_flags as c};
use crate::sys::Stat;

/// Its name, and the one it has where the first is that of something in the tree.
const NAMES: [&str; 2] = [".unclobber", ".unclobber-guard"];
/// Node ids: above those of files, which are inode numbers or count up from the highest bit.
const DIR: u64 = 0b11 << 62;
/// What is in it; the node ids follow that of the directory.
const FILES: [&str; 4] = ["refusals", "refusals.json", "owner", "status"];
/// Numbers of handles on it have this bit, which no other handle's has.
const HANDLE: u64 = 1 << 63;
/// The version of the JSON form.
const VERSION: u32 = 1;

const DT_DIR: u8 = 4;

/// Whether a node id is that of the virtual directory or of a file in it.
#[must_use]
pub fn is_virtual(id: u64) -> bool {
    (DIR..=DIR + FILES.len() as u64).contains(&id)
}

/// Whether a handle is one on them.
pub(super) fn is_virtual_handle(handle: u64) -> bool {
    handle & HANDLE != 0
}

impl Mount {
    /// Looks a name up that may be virtual; nothing when it is not.
    pub(super) fn lookup_virtual(&self, caller: &Caller, parent: u64, name: &OsStr) -> Option<Result<Entry>> {
        if parent == ROOT_ID {
            if !self.is_virtual_name(self.guard().store.root(), name) {
                return None;
            }
            self.arrive(caller, Arrival::Looks(self.guard().store.root().key(), name));
            return Some(self.attr_virtual(DIR).map(momentary));
        }
        if !is_virtual(parent) {
            return None;
        }
        let found = FILES.iter().zip(DIR + 1..).find(|(file, _)| name == **file);
        let id = found.map(|(_, id)| id).filter(|_| parent == DIR);
        Some(
            id.ok_or(FsError::Errno(c::ENOENT))
                .and_then(|id| self.attr_virtual(id))
                .map(momentary),
        )
    }

    /// Whether a name may become that of the virtual directory.
    pub(super) fn may_become_virtual(dir: &Node, name: &OsStr) -> bool {
        dir.id() == ROOT_ID && NAMES.iter().any(|own| name == *own)
    }

    /// Whether `name` in `dir` is that of the virtual directory now: a name of the tree comes first.
    pub(super) fn is_virtual_name(&self, dir: &Arc<Node>, name: &OsStr) -> bool {
        dir.id() == ROOT_ID && NAMES.iter().any(|own| name == *own) && self.virtual_name() == name.to_str()
    }

    /// The first of the names that is free.
    fn virtual_name(&self) -> Option<&'static str> {
        let store = &self.guard().store;
        let root = store.root();
        NAMES.into_iter().find(|name| {
            let name = OsStr::new(name);
            store.is_hidden(root, name)
                || (self.staged_child(root, name).is_none() && matches!(store.peek(root, name), Ok(None)))
        })
    }

    /// Says in the log where the virtual directory is, if that is not where people look for it.
    pub(super) fn tell_virtual_name(&self) {
        match self.virtual_name() {
            Some(name) if name == NAMES[0] => {}
            Some(name) => log::warn!("{} is a name of the tree; the virtual directory is at {name}", NAMES[0]),
            None => log::warn!(
                "{} and {} are names of the tree; there is no virtual directory",
                NAMES[0],
                NAMES[1]
            ),
        }
    }

    /// The attributes of a virtual node. Sizes are 0, as in `/proc`: what a file holds is known when it is opened.
    pub(super) fn attr_virtual(&self, id: u64) -> Result<Attr> {
        let root = self.guard().store.stat(self.guard().store.root())?;
        let started = self.guard().ledger.started();
        let (uid, gid) = self.options().only_ids.unwrap_or((root.uid, root.gid));
        let stat = Stat {
            ino: id,
            mode: if id == DIR {
                c::S_IFDIR | 0o555
            } else {
                c::S_IFREG | 0o444
            },
            nlink: if id == DIR { 2 } else { 1 },
            uid,
            gid,
            size: 0,
            blocks: 0,
            atime: started,
            mtime: started,
            ctime: started,
            btime: Some(started),
            ..root
        };
        Ok(Attr {
            generation: 0,
            ino: id,
            stat,
            ttl: Duration::ZERO,
        })
    }

    /// Opens a virtual file: what it holds is what it held at this moment.
    ///
    /// # Errors
    /// `EROFS` for writing.
    pub fn open_virtual(&self, caller: &Caller, id: u64, flags: i32) -> Result<u64> {
        let who = self.arrive(caller, Arrival::Other);
        if flags & c::O_ACCMODE != c::O_RDONLY || flags & c::O_TRUNC != 0 {
            return Err(FsError::Errno(c::EROFS));
        }
        let content: Arc<[u8]> = match FILES.iter().zip(DIR + 1..).find(|(_, file)| *file == id) {
            Some((&"refusals", _)) => self.refusal_lines(&who),
            Some((&"refusals.json", _)) => self.refusal_json(&who),
            Some((&"owner", _)) => format!("{}\n", self.guard().owners().name(who.owner)),
            Some(_) => self.status_text(&who),
            None => return Err(FsError::Errno(c::EISDIR)),
        }
        .into_bytes()
        .into();
        let handle = HANDLE | self.next_handle();
        self.virtuals.lock(&handle).insert(handle, content);
        Ok(handle)
    }

    pub(super) fn read_virtual(&self, handle: u64, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let content = self.virtuals.lock(&handle).get(&handle).cloned();
        let content = content.ok_or(FsError::Errno(c::EBADF))?;
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(content.len());
        let length = buffer.len().min(content.len() - start);
        buffer[..length].copy_from_slice(&content[start..start + length]);
        Ok(length)
    }

    pub(super) fn release_virtual(&self, handle: u64) {
        let gone = self.virtuals.lock(&handle).remove(&handle);
        drop(gone);
    }

    /// A handle on the directory; it holds nothing.
    pub(super) fn opendir_virtual(&self, caller: &Caller) -> u64 {
        self.arrive(caller, Arrival::Other);
        HANDLE | self.next_handle()
    }

    pub(super) fn readdir_virtual(&self, position: u64, mut fill: impl FnMut(DirItem<'_>) -> bool) {
        let files = FILES.iter().zip(DIR + 1..).map(|(name, id)| (id, c::DT_REG, *name));
        let dots = [(DIR, DT_DIR, "."), (ROOT_ID, DT_DIR, "..")];
        let skip = usize::try_from(position).unwrap_or(usize::MAX);
        for (next, (ino, kind, name)) in (1..).zip(dots.into_iter().chain(files)).skip(skip) {
            if fill(DirItem {
                ino,
                next,
                kind,
                name: OsStr::new(name),
            }) {
                return;
            }
        }
    }

    /// What was refused to the caller's owner, the newest first.
    fn refused(&self, who: &Who) -> Vec<Told> {
        if who.owner == OwnerId::NOBODY {
            return Vec::new();
        }
        let recent = self.guard().events().recent_of(who.owner);
        let told = |report: &Arc<Report>| {
            let told = Told::of(report);
            Told {
                line: self.with_place(told.line, told.kept.as_deref()),
                ..told
            }
        };
        recent.iter().rev().map(told).collect()
    }

    /// The command that shows what is kept is for outside, where the reader is in no directory of this tree.
    fn with_place(&self, line: String, kept: Option<&str>) -> String {
        let (Some(id), Some(root)) = (kept, self.guard().root_path()) else {
            return line;
        };
        let named = format!("`{SHOW} -w {} {id}`", shell_quoted(&root.to_string_lossy()));
        line.replacen(&format!("`{SHOW} {id}`"), &named, 1)
    }

    /// One line each, with what has become of it; what was tried again and again is one line, too. How long ago something was
    /// is told as it is now.
    fn refusal_lines(&self, who: &Who) -> String {
        if who.owner == OwnerId::NOBODY {
            return String::new();
        }
        let recent = self.guard().events().recent_of(who.owner);
        let mut latest: Vec<(&Arc<Report>, usize)> = Vec::new();
        for report in recent.iter().rev() {
            let of = |report: &Report| (report.refusal.operation, report.refusal.code, report.enforced);
            let same = |(known, _): &&mut (&Arc<Report>, usize)| {
                of(known) == of(report) && known.refusal.path == report.refusal.path
            };
            match latest.iter_mut().find(same) {
                Some((_, count)) => *count += 1,
                None => latest.push((report, 1)),
            }
        }
        let (mut text, now) = (String::new(), clock::now());
        for (report, count) in latest {
            let at = clock::utc(Timestamp {
                sec: report.at.sec,
                nsec: 0,
            });
            let times = match count {
                1 => String::new(),
                count => format!("({count} times) "),
            };
            let became = match self.guard().become_of(report) {
                Some(Become::Settled) => " - cleared since",
                Some(Become::Gone) => " - over: nothing is there any more",
                None => "",
            };
            let line = self.with_place(report.line_at(now), report.refusal.kept.as_deref());
            // Writing to a string cannot fail.
            let _written = writeln!(text, "{at} {times}{line}{became}");
        }
        text
    }

    fn refusal_json(&self, who: &Who) -> String {
        let all = json!({
            "v": VERSION,
            "owner": *self.guard().owners().name(who.owner),
            "refusals": self.refused(who),
        });
        format!("{all:#}\n")
    }

    fn status_text(&self, who: &Who) -> String {
        let (guard, options) = (self.guard(), self.options());
        let counts = guard.events().counts_of(who.owner);
        let name = self.virtual_name().unwrap_or(NAMES[0]);
        let mut lines = vec![
            "This directory is guarded by unclobber: programs cannot overwrite what they have not read.".to_owned(),
            format!("you: owner {}", printable(&guard.owners().name(who.owner))),
            format!("mount: {}", printable(&options.label)),
            match options.policy.mode {
                Mode::Enforce => "mode: enforce".to_owned(),
                Mode::Observe => "mode: observe (nothing is refused, only recorded)".to_owned(),
            },
            format!("guard: {}", guard.id()),
            format!("operations: {}", counts.operations),
            format!("observations: {}", counts.observations),
            format!("refusals: {} (see {name}/refusals)", counts.refusals),
            "when a change is refused: read the file (cat FILE), then try again".to_owned(),
            "where you stand towards a file: its extended attribute user.unclobber.state".to_owned(),
        ];
        if name != NAMES[0] {
            lines.push(format!(
                "these files are in {name}, since {} is a name of the tree",
                NAMES[0]
            ));
        }
        lines.push(String::new());
        lines.join("\n")
    }

    /// What is asked of any mount, of a virtual node.
    pub(super) fn access_virtual(mask: i32) -> Result<()> {
        const W_OK: i32 = 2;
        if mask & W_OK != 0 {
            return Err(FsError::Errno(c::EROFS));
        }
        Ok(())
    }

    /// A node that any question about the filesystem as a whole can be put to.
    pub(super) fn node_or_root(&self, id: u64) -> Result<Arc<Node>> {
        self.node(if is_virtual(id) { ROOT_ID } else { id })
    }
}

/// Extended attributes of a virtual node: none.
pub(super) fn xattr_virtual(id: u64) -> Result<()> {
    if is_virtual(id) {
        return Err(FsError::Errno(c::ENODATA));
    }
    Ok(())
}

/// A name of the tree may come to stand where the virtual directory is.
fn momentary(attr: Attr) -> Entry {
    Entry {
        attr,
        name_ttl: Duration::ZERO,
    }
}

/// A path as a shell takes it.
fn shell_quoted(path: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+@:,=".contains(c);
    if path.chars().all(plain) {
        path.to_owned()
    } else {
        format!("'{}'", printable(path).replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_ids_are_out_of_the_range_of_files() {
        assert!(is_virtual(DIR) && is_virtual(DIR + 4));
        assert!(!is_virtual(DIR + 5) && !is_virtual(ROOT_ID) && !is_virtual(1 << 63) && !is_virtual(1 << 62));
        assert!(is_virtual_handle(HANDLE | 1) && !is_virtual_handle(1));
    }
}
