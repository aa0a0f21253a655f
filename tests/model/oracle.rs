//! The reference: full logs of who changed what, who bound which name, and who was shown what. Every standing is
//! worked out from the logs when it is asked for. Written from `docs/SEMANTICS.md`; shares nothing with the guard.

use std::collections::BTreeMap;

use unclobber::guard::{Mode, Policy, RemoveRule, UnseenRule, ViewRule};

/// A name in a directory: the inode number of the directory, and the name.
pub(crate) type Entry = (u64, String);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Author {
    Owner(usize),
    Outsider,
    Several,
}

#[derive(Debug, Clone)]
enum Fact {
    /// The content of a file changed.
    Changed(Author, u64),
    /// A name came to lead to a file, or to nothing.
    Bound(Author, Entry, Option<u64>),
    /// An owner has seen the present content of a file (O3, O4).
    Saw { owner: usize, file: u64, how: How },
    /// An owner was refused a change of a file (D20).
    Refused { owner: usize, file: u64 },
    /// An owner came to know which file is at a name.
    Knew {
        owner: usize,
        entry: Entry,
        file: u64,
        read: bool,
    },
    /// An owner was told that nothing is at a name (O1, O5).
    Missed { owner: usize, entry: Entry, read: bool },
}

/// How an owner has come to see a content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// Its process has read it.
    Read,
    /// Its process has made all of it.
    Whole,
    /// Its process has changed what the owner had seen.
    Part,
    /// It was noticed that the owner has changed what it had seen (O10).
    Noticed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Unseen,
    Absent,
    Current,
    Stale,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Intent {
    /// `O_CREAT` with or without `O_EXCL`, `O_TRUNC`, truncation to nothing.
    Replace,
    RenameOver,
    Edit,
    Append,
    Remove,
}

/// What a refusal looks like to the caller and in the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) code: &'static str,
    pub(crate) errno: i32,
    /// The file that was to be changed.
    pub(crate) file: Option<u64>,
}

const EEXIST: i32 = 17;
const EBUSY: i32 = 16;
const ESTALE: i32 = 116;

impl Refused {
    pub(crate) fn stale(file: Option<u64>) -> Self {
        Self {
            code: "FS_STALE_VERSION",
            errno: ESTALE,
            file,
        }
    }

    fn unseen(file: u64, errno: i32) -> Self {
        Self {
            code: "FS_NOT_OBSERVED",
            errno,
            file: Some(file),
        }
    }
}

/// The logs of one tree.
#[derive(Debug, Default)]
pub(crate) struct Oracle {
    log: Vec<Fact>,
}

impl Oracle {
    pub(crate) fn changed(&mut self, author: Author, file: u64) {
        self.log.push(Fact::Changed(author, file));
    }

    pub(crate) fn bound(&mut self, author: Author, entry: &Entry, file: Option<u64>) {
        self.log.push(Fact::Bound(author, entry.clone(), file));
    }

    pub(crate) fn read(&mut self, owner: usize, entry: Option<&Entry>, file: u64) {
        let how = How::Read;
        self.log.push(Fact::Saw { owner, file, how });
        if let Some(entry) = entry {
            self.log.push(Fact::Knew {
                owner,
                entry: entry.clone(),
                file,
                read: true,
            });
        }
    }

    pub(crate) fn produced(&mut self, owner: usize, file: u64, how: How) {
        self.log.push(Fact::Saw { owner, file, how });
    }

    pub(crate) fn refused(&mut self, owner: usize, file: u64) {
        self.log.push(Fact::Refused { owner, file });
    }

    pub(crate) fn knows(&mut self, owner: usize, entry: &Entry, file: u64) {
        self.log.push(Fact::Knew {
            owner,
            entry: entry.clone(),
            file,
            read: false,
        });
    }

    pub(crate) fn missed(&mut self, owner: usize, entry: &Entry, read: bool) {
        self.log.push(Fact::Missed {
            owner,
            entry: entry.clone(),
            read,
        });
    }

    /// The names that an outsider was the last to bind.
    pub(crate) fn bound_outside(&self) -> impl Iterator<Item = &Entry> {
        let last: BTreeMap<_, _> = self
            .log
            .iter()
            .filter_map(|fact| match fact {
                Fact::Bound(author, entry, _) => Some((entry, *author)),
                _ => None,
            })
            .collect();
        last.into_iter()
            .filter_map(|(entry, author)| (author == Author::Outsider).then_some(entry))
    }

    fn last(&self, wanted: impl Fn(&Fact) -> bool) -> Option<usize> {
        self.log.iter().rposition(wanted)
    }

    fn last_change(&self, file: u64) -> Option<usize> {
        self.last(|fact| matches!(fact, Fact::Changed(_, changed) if *changed == file))
    }

    fn last_sight(&self, owner: usize, file: u64) -> Option<usize> {
        self.last(|fact| matches!(fact, Fact::Saw { owner: by, file: seen, .. } if *by == owner && *seen == file))
    }

    pub(crate) fn has_seen(&self, owner: usize, file: u64) -> bool {
        self.last_sight(owner, file).is_some()
    }

    /// Whether the owner made the last change of the file.
    pub(crate) fn made_last_change(&self, owner: usize, file: u64) -> bool {
        self.last_change(file)
            .is_some_and(|at| matches!(self.log[at], Fact::Changed(Author::Owner(by), _) if by == owner))
    }

    /// D20: refused, and not read since.
    fn was_refused(&self, owner: usize, file: u64) -> bool {
        let refused =
            self.last(|fact| matches!(fact, Fact::Refused { owner: by, file: of } if *by == owner && *of == file));
        refused.is_some() && refused > self.last_sight(owner, file)
    }

    pub(crate) fn is_current(&self, owner: usize, file: u64) -> bool {
        self.last_sight(owner, file)
            .is_some_and(|seen| self.last_change(file).is_none_or(|changed| changed < seen))
    }

    /// The file the owner last knew at the name.
    pub(crate) fn known_at(&self, owner: usize, entry: &Entry) -> Option<u64> {
        let about = |fact: &Fact| match fact {
            Fact::Knew {
                owner: by, entry: at, ..
            }
            | Fact::Missed {
                owner: by, entry: at, ..
            } => *by == owner && at == entry,
            Fact::Changed(..) | Fact::Bound(..) | Fact::Saw { .. } | Fact::Refused { .. } => false,
        };
        match self.last(about).map(|at| &self.log[at]) {
            Some(Fact::Knew { file, .. }) => Some(*file),
            _ => None,
        }
    }

    fn told_absent(&self, owner: usize, entry: &Entry) -> bool {
        let about = |fact: &Fact| match fact {
            Fact::Knew {
                owner: by, entry: at, ..
            }
            | Fact::Missed {
                owner: by, entry: at, ..
            } => *by == owner && at == entry,
            Fact::Changed(..) | Fact::Bound(..) | Fact::Saw { .. } | Fact::Refused { .. } => false,
        };
        matches!(self.last(about).map(|at| &self.log[at]), Some(Fact::Missed { .. }))
    }

    /// Section 4 of the document.
    fn owners_standing(&self, owner: usize, entry: Option<&Entry>, there: Option<u64>) -> Standing {
        let known = entry.and_then(|entry| self.known_at(owner, entry));
        match there {
            Some(file) if self.is_current(owner, file) => Standing::Current,
            Some(file) if self.has_seen(owner, file) || known.is_some_and(|known| known != file) => Standing::Stale,
            Some(_) => Standing::Unseen,
            None if entry.is_some_and(|entry| self.told_absent(owner, entry)) => Standing::Absent,
            None if known.is_some() => Standing::Stale,
            None => Standing::Unseen,
        }
    }

    /// Section 6: the owner's only process has a view of the file that is older than a foreign change of it.
    fn process_objects_to_file(&self, owner: usize, file: u64) -> bool {
        let (mut view, mut foreign) = (None, None);
        for (at, fact) in self.log.iter().enumerate() {
            match fact {
                Fact::Changed(author, of) if *of == file && *author != Author::Owner(owner) => foreign = Some(at),
                Fact::Saw {
                    owner: by,
                    file: of,
                    how,
                } if *by == owner && *of == file => {
                    let moves = match how {
                        How::Read => true,
                        How::Whole => view.is_some(),
                        How::Part => view.is_some() && foreign < view,
                        How::Noticed => false,
                    };
                    if moves {
                        view = Some(at);
                    }
                }
                _ => (),
            }
        }
        view.is_some() && foreign > view
    }

    /// Section 6: the same of the name. Who was told last that nothing is there, where nothing is, holds no copy.
    fn process_objects_to_name(&self, owner: usize, entry: Option<&Entry>, there: Option<u64>) -> bool {
        let Some(entry) = entry else { return false };
        let made = self.log.iter().any(|fact| match fact {
            Fact::Knew {
                owner: by,
                entry: at,
                read: true,
                ..
            }
            | Fact::Missed {
                owner: by,
                entry: at,
                read: true,
            } => *by == owner && at == entry,
            _ => false,
        });
        let moved = self.last(|fact| match fact {
            Fact::Knew {
                owner: by, entry: at, ..
            }
            | Fact::Missed {
                owner: by, entry: at, ..
            } => *by == owner && at == entry,
            Fact::Bound(Author::Owner(by), at, _) => *by == owner && at == entry,
            _ => false,
        });
        let foreign = self.last(|fact| match fact {
            Fact::Bound(author, at, _) => *author != Author::Owner(owner) && at == entry,
            _ => false,
        });
        let told_nothing =
            moved.is_some_and(|at| matches!(self.log[at], Fact::Missed { .. } | Fact::Bound(_, _, None)));
        made && foreign > moved && !(there.is_none() && told_nothing)
    }

    pub(crate) fn standing(&self, owner: usize, entry: Option<&Entry>, there: Option<u64>, view: ViewRule) -> Standing {
        let standing = self.owners_standing(owner, entry, there);
        let can_worsen = matches!(standing, Standing::Current | Standing::Absent);
        let objects = || {
            self.process_objects_to_name(owner, entry, there)
                || there.is_some_and(|file| self.process_objects_to_file(owner, file))
        };
        if view == ViewRule::Process && can_worsen && objects() {
            return Standing::Stale;
        }
        standing
    }

    /// Changed or put there by somebody else, and not observed since.
    pub(crate) fn is_foreign(&self, owner: usize, entry: Option<&Entry>, file: u64) -> bool {
        let seen = self.last_sight(owner, file);
        let foreign = self.last(|fact| match fact {
            Fact::Changed(author, changed) => *author != Author::Owner(owner) && *changed == file,
            Fact::Bound(author, at, Some(bound)) => {
                *author != Author::Owner(owner) && Some(at) == entry && *bound == file
            }
            _ => false,
        });
        foreign.is_some() && foreign > seen
    }

    /// D23: the owner has led the name there, and nobody else has changed the file since.
    fn is_own_name(&self, owner: usize, entry: Option<&Entry>, file: u64) -> bool {
        let bound = self.last(|fact| matches!(fact, Fact::Bound(_, at, _) if Some(at) == entry));
        let own = bound.is_some_and(
            |at| matches!(self.log[at], Fact::Bound(Author::Owner(by), _, Some(to)) if by == owner && to == file),
        );
        let foreign = self.last(
            |fact| matches!(fact, Fact::Changed(author, changed) if *author != Author::Owner(owner) && *changed == file),
        );
        own && foreign < bound
    }

    /// Section 5: the table, for a regular file or nothing. `under_way`: another owner is about to change it (D21); `linked`:
    /// another name leads there.
    pub(crate) fn judge(
        &self,
        (owner, policy): (usize, &Policy),
        intent: Intent,
        entry: Option<&Entry>,
        there: Option<u64>,
        (under_way, linked): (bool, bool),
    ) -> Option<Refused> {
        if intent == Intent::Remove && linked && there.is_some_and(|file| self.is_own_name(owner, entry, file)) {
            return None;
        }
        let standing = self.standing(owner, entry, there, policy.view);
        let Some(file) = there else {
            let creates = matches!(intent, Intent::Replace | Intent::RenameOver);
            return (creates && standing == Standing::Stale).then(|| Refused::stale(None));
        };
        let foreign = self.is_foreign(owner, entry, file);
        let refused = match (intent, standing) {
            (Intent::Append, _) => return None,
            (_, Standing::Current) => None,
            (_, Standing::Stale) => Some(Refused::stale(there)),
            (Intent::Remove, _) => {
                let refuse = foreign || policy.remove == RemoveRule::Observed;
                refuse.then(|| Refused::unseen(file, EBUSY))
            }
            (Intent::Replace | Intent::RenameOver | Intent::Edit, _) => {
                let refuse = foreign || policy.unseen == UnseenRule::Refuse;
                refuse.then(|| Refused::unseen(file, EEXIST))
            }
        };
        let hidden = || under_way.then(|| Refused::stale(there));
        let tried = || {
            let unseen = intent == Intent::Remove && standing != Standing::Current;
            (unseen && self.was_refused(owner, file)).then(|| Refused::unseen(file, EBUSY))
        };
        refused.or_else(hidden).or_else(tried)
    }

    pub(crate) fn enforces(policy: &Policy) -> bool {
        policy.mode == Mode::Enforce
    }
}
