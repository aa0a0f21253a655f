//! The owners of one guard: their numbers and names.
//!
//! Numbers only grow and are never given twice, so that an owner forgotten here has seen nothing when it comes back.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Weak};

use hashbrown::HashMap;

use super::record::Record;
use crate::guard::OwnerId;

/// How an owner came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnerKind {
    /// Asked for by name; lives as long as the guard.
    Named,
    /// Made for one `run`, its name chosen by the guard.
    Fresh,
    /// By rule: one session.
    Session,
    /// By rule: one process.
    Process,
    /// By rule: one user.
    User,
    /// By rule: one cgroup.
    Cgroup,
}

impl OwnerKind {
    /// Made by a rule, not by a `run`.
    #[must_use]
    pub const fn by_rule(self) -> bool {
        !matches!(self, Self::Named | Self::Fresh)
    }
}

/// Why a name cannot be given to an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameError {
    /// It has no character.
    Empty,
    /// It has more than 128 characters, or with its parents more than 1024.
    TooLong,
    /// It contains a control character or a slash.
    BadCharacter,
    /// It is the name of an owner that was not asked for by name.
    Automatic,
    /// The parent is no owner that a `run` made.
    NoParent,
    /// The guard holds as many owners as it may.
    TooMany,
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "an owner's name must not be empty",
            Self::TooLong => "an owner's name has at most 128 characters",
            Self::BadCharacter => "an owner's name contains neither control characters nor '/'",
            Self::Automatic => {
                "that is the name of an owner that nobody named: it cannot be joined, choose another name"
            }
            Self::NoParent => "the owner above is not known any more",
            Self::TooMany => "this guard holds as many owners as it may; names in use can still be joined",
        })
    }
}

impl std::error::Error for NameError {}

const MAX_CHARS: usize = 128;
const MAX_BYTES_WITH_PARENTS: usize = 1024;

/// What a name of an owner must be.
pub(super) fn check_name(name: &str) -> Result<(), NameError> {
    if name.is_empty() {
        Err(NameError::Empty)
    } else if name.chars().count() > MAX_CHARS {
        Err(NameError::TooLong)
    } else if name.chars().any(|c| c.is_control() || c == '/') {
        Err(NameError::BadCharacter)
    } else {
        Ok(())
    }
}

/// Whether a name has the form that only the guard gives: `run-N`, `session-N`, `user-N`, `cgroup-N` or `COMMAND[N]`, perhaps
/// below another owner, perhaps with a further number.
#[must_use]
pub fn is_automatic_name(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let own = name.rsplit('/').next().unwrap_or(name);
    let own = match own.rsplit_once('.') {
        Some((base, number)) if is_number(number) => base,
        _ => own,
    };
    let of_rule = |kind: &str| own.strip_prefix(kind).and_then(|rest| rest.strip_prefix('-'));
    let numbered = ["run", "session", "user", "cgroup"].into_iter().filter_map(of_rule);
    own == "nobody" || own.ends_with(']') || numbered.into_iter().any(is_number)
}

/// One owner.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) name: Arc<str>,
    pub(super) kind: OwnerKind,
    pub(super) parent: Option<OwnerId>,
}

/// All owners that are not forgotten.
#[derive(Debug)]
pub(super) struct Names {
    by_name: HashMap<Arc<str>, OwnerId>,
    by_id: BTreeMap<OwnerId, Entry>,
    next: u32,
    /// Those of the process rule in the order they were made: the first to be forgotten, once their process is gone.
    of_processes: VecDeque<(OwnerId, Weak<Record>)>,
    asked_for: usize,
    max_asked_for: usize,
    max_of_processes: usize,
}

impl Names {
    pub(super) fn new(max_asked_for: usize, max_of_processes: usize) -> Self {
        Self {
            by_name: HashMap::new(),
            by_id: BTreeMap::new(),
            next: OwnerId::NOBODY.0 + 1,
            of_processes: VecDeque::new(),
            asked_for: 0,
            max_asked_for,
            max_of_processes,
        }
    }

    pub(super) fn get(&self, id: OwnerId) -> Option<&Entry> {
        self.by_id.get(&id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (OwnerId, &Entry)> {
        self.by_id.iter().map(|(&id, entry)| (id, entry))
    }

    /// The owner that was given that name, found or made. One that was not asked for by name keeps its own to itself.
    pub(super) fn named(&mut self, name: &str) -> Result<OwnerId, NameError> {
        check_name(name)?;
        self.find_or_make(name, None)
    }

    /// The owner `name` below `parent`, found or made.
    pub(super) fn below(&mut self, parent: OwnerId, name: &str) -> Result<OwnerId, NameError> {
        check_name(name)?;
        let above = self
            .by_id
            .get(&parent)
            .filter(|entry| !entry.kind.by_rule())
            .ok_or(NameError::NoParent)?;
        let full = format!("{}/{name}", above.name);
        if full.len() > MAX_BYTES_WITH_PARENTS {
            return Err(NameError::TooLong);
        }
        self.find_or_make(&full, Some(parent))
    }

    fn find_or_make(&mut self, name: &str, parent: Option<OwnerId>) -> Result<OwnerId, NameError> {
        if let Some(&id) = self.by_name.get(name) {
            let is_named = self.by_id.get(&id).is_some_and(|entry| entry.kind == OwnerKind::Named);
            return if is_named { Ok(id) } else { Err(NameError::Automatic) };
        }
        if self.asked_for >= self.max_asked_for {
            return Err(NameError::TooMany);
        }
        Ok(self.insert(name.into(), OwnerKind::Named, parent))
    }

    /// A new owner whose name begins with `base` and is nobody else's.
    pub(super) fn fresh(&mut self, base: &str, kind: OwnerKind, parent: Option<OwnerId>) -> OwnerId {
        let above = parent
            .and_then(|id| self.by_id.get(&id))
            .map(|entry| Arc::clone(&entry.name));
        let base = clean(base);
        let full = above.map_or_else(|| base.clone(), |above| format!("{above}/{base}"));
        let name = self.unique(&full);
        self.insert(name, kind, parent)
    }

    /// An owner of the process rule; the oldest whose process is gone makes room for it.
    pub(super) fn of_process(&mut self, base: &str, record: &Arc<Record>) -> OwnerId {
        let mut looks = 64;
        while self.of_processes.len() >= self.max_of_processes {
            let Some((id, process)) = self.of_processes.pop_front() else {
                break;
            };
            looks -= 1;
            if looks > 0 && process.upgrade().is_some_and(|process| process.alive()) {
                self.of_processes.push_back((id, process));
            } else {
                self.forget(id);
            }
        }
        let id = self.fresh(base, OwnerKind::Process, None);
        self.of_processes.push_back((id, Arc::downgrade(record)));
        id
    }

    /// Forgets an owner; its number is never given again.
    pub(super) fn forget(&mut self, id: OwnerId) {
        if let Some(entry) = self.by_id.remove(&id) {
            self.by_name.remove(&entry.name);
            if !entry.kind.by_rule() {
                self.asked_for -= 1;
            }
        }
    }

    /// How many owners were asked for, and whether that is as many as may be.
    pub(super) const fn is_full(&self) -> bool {
        self.asked_for >= self.max_asked_for
    }

    fn insert(&mut self, name: Arc<str>, kind: OwnerKind, parent: Option<OwnerId>) -> OwnerId {
        let id = OwnerId(self.next);
        // After four thousand million owners all further ones are nobody: they have seen nothing, for ever.
        let Some(next) = self.next.checked_add(1) else {
            return OwnerId::NOBODY;
        };
        self.next = next;
        self.by_name.insert(Arc::clone(&name), id);
        self.by_id.insert(id, Entry { name, kind, parent });
        if !kind.by_rule() {
            self.asked_for += 1;
        }
        id
    }

    fn unique(&self, base: &str) -> Arc<str> {
        if !self.by_name.contains_key(base) {
            return base.into();
        }
        // The next number never repeats, so the first try all but always fits.
        (self.next..)
            .map(|n| format!("{base}.{n}"))
            .find(|name| !self.by_name.contains_key(name.as_str()))
            .map_or_else(|| base.into(), Into::into)
    }
}

/// A name made from any text, such as a command's.
fn clean(base: &str) -> String {
    let name: String = base
        .chars()
        .map(|c| if c.is_control() || c == '/' { '_' } else { c })
        .take(MAX_CHARS - 16)
        .collect();
    if name.is_empty() { "owner".to_owned() } else { name }
}
