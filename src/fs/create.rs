//! Making names: files staged or claimed at once, directories, special files, symbolic and hard links.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::caller::{Arrival, At, Caller, Who};
use super::errno::{FsError, Result};
use super::handle::{Opened, Opening};
use super::judge::{Subject, at};
use super::ledger::entry_key;
use super::lookup::Entry;
use super::mount::Mount;
use crate::audit::Change;
use crate::clock;
use crate::guard::{self, Author, Code, CreateRule, DurabilityRule, Intent, Level, Produced, Reason, Step, Why};
use crate::store::{DirState, Kind, Node, Place, Staged, StoreError, Winner, libc_flags as c};
use crate::sys::{self, Creds, Stat};

/// What the caller wants made.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    mode: u32,
    umask: u32,
    flags: i32,
}

impl Mount {
    /// Creates a regular file and opens it. Never replaces and never opens what is there.
    ///
    /// # Errors
    /// `EEXIST` with `O_EXCL` when something is there; `ESTALE` without, upon which the kernel looks again and opens
    /// it; a refusal where the owner has seen a file here that is gone.
    pub fn create(
        &self,
        caller: &Caller,
        parent: u64,
        name: &OsStr,
        (mode, umask): (u32, u32),
        flags: i32,
    ) -> Result<(Entry, Opened)> {
        let dir = self.node(parent)?;
        let who = self.arrive(caller, Arrival::Creates(dir.key(), name));
        self.refuse_bound(&who, "create", &dir, name)?;
        let wanted = Wanted { mode, umask, flags };
        self.check_dir(&who, &dir)?;
        let at = at(&dir, name);
        let mut names = dir.names().lock();
        let level = self.level_of(&who, Some(&dir), name);
        let winner = match names.staged.get(name) {
            Some(_) => Winner::Regular,
            // Claiming a name says so itself; and the look-up just before is still true if nothing has changed since.
            None if level == Level::Off || self.is_still_free(&who, &dir, name) => Winner::Nothing,
            None => self.guard().store.winner(&dir, name)?,
        };
        if winner != Winner::Nothing {
            return Err(self.name_taken(&who, &at, flags, winner));
        }
        if level != Level::Off {
            let intent = if flags & c::O_APPEND == 0 {
                Intent::Replace
            } else {
                Intent::Append
            };
            let subject = Subject {
                operation: "create",
                intent,
                at: &at,
                there: None,
                owner: who.owner,
                under_way: None,
                level,
            };
            self.judge(&who, &subject)?;
        }
        let evidence = self.evidence_comes(&dir, name);
        // It counts from the moment at which it is there: not some time after what was there before was looked at.
        let stages = evidence.is_empty();
        let (file, staged) = match self.make_file(&who, &dir, name, wanted, (level, stages)) {
            Ok(made) => made,
            Err(FsError::Store(StoreError::Lost(winner))) => return Err(self.name_taken(&who, &at, flags, winner)),
            Err(error) => return Err(error),
        };
        let made = self.adopt_created(&who, at, &mut names, wanted, level, file, staged);
        drop(names);
        self.evidence_came(&who, evidence);
        made
    }

    /// Whether the thread has just looked the name up and found nothing, and nobody has changed anything since. The kernel
    /// looks a name up and creates it without letting another operation on the directory in between; what other mounts and
    /// outsiders change is counted.
    fn is_still_free(&self, who: &Who, dir: &Arc<Node>, name: &OsStr) -> bool {
        self.caches_all() && who.looked_up.get() == Some(self.changes_seen()) && self.entry_told(dir, name).is_none()
    }

    /// What a creation answers when something is at the name. What is there stays untouched.
    fn name_taken(&self, who: &Who, at: &At, flags: i32, winner: Winner) -> FsError {
        if flags & c::O_EXCL != 0 {
            return FsError::Errno(c::EEXIST);
        }
        match winner {
            // The kernel looks again and opens it: the open is judged as what it then is.
            Winner::Regular | Winner::Nothing => FsError::Errno(c::ESTALE),
            Winner::Directory | Winner::Other => {
                let there = if winner == Winner::Directory {
                    guard::There::Directory
                } else {
                    guard::There::Other
                };
                let reason = Reason {
                    code: Code::NotRegularFile,
                    step: Step::ChooseAnotherName,
                    why: Why::NotRegular,
                    intent: Intent::Replace,
                    there,
                };
                let subject = Subject {
                    operation: "create",
                    intent: Intent::Replace,
                    at,
                    there: None,
                    owner: who.owner,
                    under_way: None,
                    level: Level::Guard,
                };
                match self.refuse(who, &subject, reason, None) {
                    Err(error) => error,
                    Ok(()) => FsError::Errno(c::ESTALE),
                }
            }
        }
    }

    /// Makes the file: unnamed, or at its name. Says whether it was staged.
    fn make_file(
        &self,
        who: &Who,
        dir: &Arc<Node>,
        name: &OsStr,
        wanted: Wanted,
        (level, stages): (Level, bool),
    ) -> Result<(OwnedFd, bool)> {
        let store = &self.guard().store;
        let groups = self.setgid_groups(who, dir, wanted.mode);
        let creds = self.creds(who, wanted.umask, groups.as_deref());
        // Where nothing is refused, no publication may be lost to somebody else.
        let staged = stages
            && level == Level::Guard
            && self.enforces()
            && self.policy().create == CreateRule::Staged
            && wanted.flags & c::O_EXCL == 0
            // Nothing will be written through it: a lock file, say, which others are to see.
            && wanted.flags & c::O_ACCMODE != c::O_RDONLY
            && store.features().tmpfile;
        if staged {
            match store.stage(dir, wanted.mode, wanted.flags, &creds) {
                Ok(file) => return Ok((file, true)),
                // Another filesystem below the root may not have unnamed files.
                Err(error) if error.is(c::EOPNOTSUPP) || error.is(c::EISDIR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok((store.claim(dir, name, wanted.mode, wanted.flags, &creds)?, false))
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the caller's lock is what proves that the name is free"
    )]
    fn adopt_created(
        &self,
        who: &Who,
        at: At,
        names: &mut DirState,
        wanted: Wanted,
        level: Level,
        file: OwnedFd,
        staged: bool,
    ) -> Result<(Entry, Opened)> {
        let guard = self.guard();
        let Some(dir) = at.dir.clone() else {
            return Err(FsError::Errno(c::ENOENT));
        };
        let since = self.changes_seen();
        let file = Arc::new(file);
        let mut stat = sys::stat(&*file)?;
        let node = guard.store.adopt(&dir, &at.name, &file, &stat, staged);
        node.note_no_capability(self.caches_all());
        let now = clock::now();
        let mut state = node.content().lock();
        if staged {
            let durable = self.policy().durability == DurabilityRule::Publish;
            let unnamed = Arc::clone(&file);
            state.staged = Some(Box::new(Staged {
                dir: Arc::clone(&dir),
                name: at.name.clone(),
                file: Arc::clone(&unnamed),
                owner: who.owner,
                durable,
                since: now,
            }));
            guard.store.pin_unnamed(&node, unnamed);
            // The filesystem's own time of its making: the link that comes later is never earlier.
            dir.stage(names, &at.name, &node, stat.ctime);
            guard.waiting.lock().push(Arc::downgrade(&node));
            stat.nlink = stat.nlink.max(1);
        }
        if level != Level::Off {
            self.note_made(who, &at, &node, &stat);
        }
        let opening = Opening {
            who,
            node: &node,
            at,
            level,
            flags: wanted.flags,
            file,
            current: true,
            replaces: true,
        };
        // Before the open: whether the kernel may move the data is noted on what it knows.
        self.know(&node);
        let opened = self.hold(opening, &mut state)?;
        let change = ("create", Change::Create);
        self.record_change(who, change, (opened.file.at(), None), level, Some(&node));
        drop(state);
        who.found(&dir, &opened.file.at().name, &node);
        self.entry_known(&dir, &opened.file.at().name, &node, since);
        self.name_changed(&dir, &opened.file.at().name);
        self.attributes_changed(&dir);
        let entry = Entry {
            attr: self.attr(&node, &stat),
            name_ttl: self.name_ttl(&dir),
        };
        Ok((entry, opened))
    }

    /// O4: the owner has made a file.
    pub(super) fn note_made(&self, who: &Who, at: &At, node: &Node, stat: &Stat) {
        let ledger = &self.guard().ledger;
        let author = Author::Owner(who.owner);
        let present = super::open::present(node, stat, author);
        ledger.with_file(&present, |record| {
            record.own_change(
                who.owner,
                who.process,
                stat.token(),
                ledger.change(author, stat.ctime),
                Produced::Whole,
            );
        });
        self.guard().doers.changed_file(who.owner, who.process, node.key());
        self.note_bound(who, at, Some(node));
    }

    /// O4, O5: the owner has bound a name, or unbound it.
    pub(super) fn note_bound(&self, who: &Who, at: &At, node: Option<&Node>) {
        self.note_rules(at.dir.as_ref(), &at.name);
        let Some(key) = at.entry() else { return };
        let ledger = &self.guard().ledger;
        let bound = node.map(Node::key);
        let change = ledger.change(Author::Owner(who.owner), clock::now());
        self.guard().doers.bound_name(who.owner, who.process, &key);
        ledger.with_entry_unchecked(key, bound, |record| {
            record.own_change(who.owner, who.process, bound, change)
        });
    }

    /// Makes a fifo, socket, device or empty regular file.
    ///
    /// # Errors
    /// The backing filesystem's; a refusal where the owner has seen a file here that is gone.
    pub fn mknod(
        &self,
        caller: &Caller,
        parent: u64,
        name: &OsStr,
        (mode, umask): (u32, u32),
        rdev: u64,
    ) -> Result<Entry> {
        let dir = self.node(parent)?;
        let who = self.arrive(caller, Arrival::Creates(dir.key(), name));
        self.check_dir(&who, &dir)?;
        let names = self.free_name(&who, "mknod", &dir, name)?;
        let is_file = mode & c::S_IFMT == c::S_IFREG || mode & c::S_IFMT == 0;
        let at = at(&dir, name);
        let level = self.level_of(&who, Some(&dir), name);
        if is_file && level != Level::Off {
            let free = self.guard().store.winner(&dir, name)? == Winner::Nothing;
            let subject = Subject {
                operation: "mknod",
                intent: Intent::Create,
                at: &at,
                there: None,
                owner: who.owner,
                under_way: None,
                level,
            };
            if free {
                self.judge(&who, &subject)?;
            }
        }
        let groups = self.setgid_groups(&who, &dir, mode);
        let creds = self.creds(&who, umask, groups.as_deref());
        let evidence = self.evidence_comes(&dir, name);
        self.guard().store.make_node(&dir, name, mode, rdev, &creds)?;
        let kind = if is_file { Kind::Regular } else { Kind::Special };
        let entry = self.made(&who, &at, &dir, kind);
        drop(names);
        self.evidence_came(&who, evidence);
        entry
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// The backing filesystem's.
    pub fn mkdir(&self, caller: &Caller, parent: u64, name: &OsStr, (mode, umask): (u32, u32)) -> Result<Entry> {
        let dir = self.node(parent)?;
        let who = self.arrive(caller, Arrival::Creates(dir.key(), name));
        self.check_dir(&who, &dir)?;
        let names = self.free_name(&who, "mkdir", &dir, name)?;
        let groups = self.setgid_groups(&who, &dir, mode);
        let creds = self.creds(&who, umask, groups.as_deref());
        let evidence = self.evidence_comes(&dir, name);
        self.guard().store.make_dir(&dir, name, mode, &creds)?;
        let entry = self.made(&who, &at(&dir, name), &dir, Kind::Directory);
        drop(names);
        self.evidence_came(&who, evidence);
        entry
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// The backing filesystem's.
    pub fn symlink(&self, caller: &Caller, parent: u64, name: &OsStr, target: &OsStr) -> Result<Entry> {
        let dir = self.node(parent)?;
        let who = self.arrive(caller, Arrival::Creates(dir.key(), name));
        self.check_dir(&who, &dir)?;
        let names = self.free_name(&who, "symlink", &dir, name)?;
        let creds = self.creds(&who, 0, None);
        let evidence = self.evidence_comes(&dir, name);
        self.guard().store.make_symlink(&dir, name, target, &creds)?;
        let entry = self.made(&who, &at(&dir, name), &dir, Kind::Symlink);
        drop(names);
        self.evidence_came(&who, evidence);
        entry
    }

    /// Gives a file another name. A free name is never refused: git takes `EEXIST` for "already stored".
    ///
    /// # Errors
    /// The backing filesystem's.
    pub fn link(&self, caller: &Caller, id: u64, parent: u64, name: &OsStr) -> Result<Entry> {
        let dir = self.node(parent)?;
        let who = self.arrive(caller, Arrival::Creates(dir.key(), name));
        let node = self.node(id)?;
        self.refuse_rules_file(&who, "link", &node)?;
        self.check_dir(&who, &dir)?;
        self.guard().publish(&node)?;
        let names = self.free_name(&who, "link", &dir, name)?;
        let since = self.changes_seen();
        let at = at(&dir, name);
        let old = who.name_of(&node);
        let from = self.level_of_file(&who, old.dir.as_ref(), &old.name, &node);
        let level = self.level_of(&who, Some(&dir), name);
        if node.kind() == Kind::Regular && level.is_looser_than(from) {
            // By the new name the content could be changed unseen, and the old one leads to it still.
            self.guard().hold(&node, from);
        }
        let evidence = self.evidence_comes(&dir, name);
        if node.kind() == Kind::Regular {
            let state = node.content().lock();
            self.metadata_change(&node, &state, || {
                self.guard().store.make_link(&node, &dir, name).map_err(FsError::from)
            })?;
        } else {
            self.guard().store.make_link(&node, &dir, name)?;
        }
        let stat = self.attributes_of(&node)?;
        node.set_place(Place {
            parent: Some(Arc::clone(&dir)),
            name: name.into(),
        });
        if level != Level::Off {
            self.note_bound(&who, &at, Some(&node));
        }
        self.record_change(&who, ("link", Change::Link), (&old, Some(&at)), level, Some(&node));
        let entry = self.entry(&dir, &node, &stat);
        self.entry_known(&dir, name, &node, since);
        self.name_changed(&dir, name);
        self.attributes_changed(&node);
        self.attributes_changed(&dir);
        drop(names);
        self.evidence_came(&who, evidence);
        Ok(entry)
    }

    /// The attributes of what was just made at a name. If something else is there already, an outsider was faster than
    /// the look at it: the kernel takes no other kind of file for an answer, and looks again.
    fn made(&self, who: &Who, at: &At, dir: &Arc<Node>, kind: Kind) -> Result<Entry> {
        let name = &*at.name;
        self.name_changed(dir, name);
        let since = self.changes_seen();
        let (node, stat) = self.guard().store.lookup(dir, name)?;
        if node.kind() != kind {
            return Err(FsError::Errno(c::ESTALE));
        }
        let guarded = kind == Kind::Regular && self.level_of(who, Some(dir), name) != Level::Off;
        // What holds data already is not what was made.
        if guarded && stat.size == 0 {
            self.note_made(who, at, &node, &stat);
        } else {
            let author = if guarded {
                Author::Outsider
            } else {
                Author::Owner(who.owner)
            };
            let key = entry_key(dir.key(), name);
            self.guard().ledger.bound_by(&key, Some(node.key()), author, |_| ());
        }
        let operation = match kind {
            Kind::Regular | Kind::Special => "mknod",
            Kind::Directory => "mkdir",
            Kind::Symlink => "symlink",
        };
        if self.guard().events().is_recording() {
            let level = self.level_of(who, Some(dir), name);
            self.record_change(who, (operation, Change::Create), (at, None), level, Some(&node));
        }
        who.found(dir, name, &node);
        let entry = self.entry(dir, &node, &stat);
        self.entry_known(dir, name, &node, since);
        self.attributes_changed(dir);
        Ok(entry)
    }

    /// The directory's lock, if the name is not the guard's own and not staged.
    fn free_name<'d>(
        &self,
        who: &Who,
        operation: &'static str,
        dir: &'d Arc<Node>,
        name: &OsStr,
    ) -> Result<crate::sync::MutexGuard<'d, DirState>> {
        self.refuse_bound(who, operation, dir, name)?;
        let names = dir.names().lock();
        if names.staged.contains_key(name) {
            return Err(FsError::Errno(c::EEXIST));
        }
        Ok(names)
    }

    /// Names that nobody may bind or rename.
    pub(super) fn refuse_bound(&self, who: &Who, operation: &'static str, dir: &Arc<Node>, name: &OsStr) -> Result<()> {
        self.refuse_hidden(dir, name)?;
        self.refuse_rules_name(who, operation, dir, name)
    }

    /// The attic's home and the virtual directory are not part of the tree: nothing may be made or taken away under their
    /// names.
    pub(super) fn refuse_hidden(&self, dir: &Arc<Node>, name: &OsStr) -> Result<()> {
        if self.is_virtual_name(dir, name) {
            Err(FsError::Errno(c::EROFS))
        } else if self.guard().store.is_hidden(dir, name) {
            Err(FsError::Errno(c::EACCES))
        } else {
            Ok(())
        }
    }

    /// Whom a new file belongs to.
    fn creds<'g>(&self, who: &Who, umask: u32, groups: Option<&'g [u32]>) -> Creds<'g> {
        if self.as_root() {
            Creds {
                uid: who.uid,
                gid: who.gid,
                groups,
                umask,
            }
        } else {
            // The daemon's user is the caller's: only the umask is the caller's own.
            Creds {
                uid: sys::geteuid(),
                gid: sys::getegid(),
                groups: None,
                umask,
            }
        }
    }

    /// The caller's groups, where they decide whether a set-group-id bit stays.
    fn setgid_groups(&self, who: &Who, dir: &Arc<Node>, mode: u32) -> Option<Vec<u32>> {
        if !self.as_root() || who.uid == 0 || mode & c::S_ISGID == 0 {
            return None;
        }
        let parent = self.attributes_of(dir).ok()?;
        (parent.mode & c::S_ISGID != 0).then(|| who.groups()).flatten()
    }
}
