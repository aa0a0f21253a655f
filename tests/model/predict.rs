//! Which refusal an operation must meet: what the operation means, put to the logs.

use super::ops::{Op, PATHS};
use super::oracle::{Entry, Intent, Refused};
use super::twin::{Kind, Place, Snapshot};
use super::world::World;

impl World {
    /// An open that makes or replaces a file; one that does neither is not judged.
    pub(crate) fn judge_open(&self, owner: usize, place: &Place, replaces: bool, creates: bool) -> Option<Refused> {
        let judged = replaces && (place.file().is_some() || creates && place.is_free());
        if !judged {
            return None;
        }
        self.judge(owner, Intent::Replace, place.entry.as_ref(), place.file())
    }

    pub(crate) fn judge(
        &self,
        owner: usize,
        intent: Intent,
        entry: Option<&Entry>,
        there: Option<u64>,
    ) -> Option<Refused> {
        let in_place = matches!(intent, Intent::Replace | Intent::Edit);
        let under_way =
            there.is_some_and(|file| self.is_changing(owner, file) || in_place && self.is_written(owner, file));
        let policy = &self.setting.policies[owner];
        let linked = there.is_some_and(|file| self.linked.contains(&file));
        self.oracle
            .judge((owner, policy), intent, entry, there, (under_way, linked))
    }

    /// The refusals that an operation meets, if none of them stops it.
    pub(crate) fn predict(&self, owner: usize, op: Op, before: &Snapshot) -> Vec<Refused> {
        let (first, second) = places(op, before);
        if matches!(op, Op::Rename(..) | Op::RenameFree(..) | Op::Exchange(..)) {
            return second.map_or_else(Vec::new, |second| self.predict_rename(owner, op, &first, &second));
        }
        self.predict_one(owner, op, before, &first, second.as_ref())
            .into_iter()
            .collect()
    }

    fn predict_one(
        &self,
        owner: usize,
        op: Op,
        before: &Snapshot,
        first: &Place,
        second: Option<&Place>,
    ) -> Option<Refused> {
        let edit = |place: &Place, intent| {
            place
                .file()
                .and_then(|number| self.judge(owner, intent, place.entry.as_ref(), Some(number)))
        };
        match op {
            Op::Save(_) => self.judge_open(owner, first, true, true),
            Op::Overwrite(_) => self.judge_open(owner, first, true, false),
            Op::Exclusive(_) if first.is_free() => self.judge_open(owner, first, true, true),
            Op::Edit(_) | Op::EditBlind(_) | Op::Allocate(_) => edit(first, Intent::Edit),
            // What leaves every byte as it is is no change.
            Op::Truncate(_, to) if first.file().is_some_and(|number| size(before, number) == to) => None,
            Op::Truncate(_, 0) => edit(first, Intent::Replace),
            Op::Truncate(..) => edit(first, Intent::Edit),
            // What it reads is current, unless another owner is about to change it.
            Op::Modify(_) if first.file().is_some_and(|file| self.is_changing(owner, file)) => {
                edit(first, Intent::Edit)
            }
            // What it has read is current, and still not its to change.
            Op::Modify(_) => first
                .file()
                .filter(|file| self.is_written(owner, *file))
                .map(|file| Refused::stale(Some(file))),
            Op::Copy(..) => self.predict_copy(owner, before, first, second?),
            Op::Unlink(_) => edit(first, Intent::Remove),
            _ => None,
        }
    }

    fn predict_copy(&self, owner: usize, before: &Snapshot, from: &Place, to: &Place) -> Option<Refused> {
        let (source, target) = (from.file()?, to.file()?);
        // Where there is nothing to copy, or the same bytes of the same file, the kernel asks nobody.
        let empty = before.files.get(&source).is_none_or(|(content, _)| content.is_empty());
        if source == target || empty {
            return None;
        }
        self.judge(owner, Intent::Edit, to.entry.as_ref(), Some(target))
    }

    fn predict_rename(&self, owner: usize, op: Op, from: &Place, to: &Place) -> Vec<Refused> {
        let Some(source) = from.there.as_ref() else {
            return Vec::new();
        };
        let same = to.there.as_ref().is_some_and(|there| there.0 == source.0);
        let taken = to.there.is_some();
        if !matches!(op, Op::Exchange(..)) && is_dir(from) != is_dir(to) && taken
            || within(from, to)
            || within(to, from)
        {
            return Vec::new();
        }
        if same
            || to.entry.is_none()
            || matches!(op, Op::RenameFree(..)) && taken
            || matches!(op, Op::Exchange(..)) && !taken
        {
            return Vec::new();
        }
        // An exchange puts another content at both names.
        let at_source = if matches!(op, Op::Exchange(..)) {
            Intent::RenameOver
        } else {
            Intent::Remove
        };
        let source = from
            .file()
            .and_then(|number| self.judge(owner, at_source, from.entry.as_ref(), Some(number)));
        let target = match (to.file(), taken) {
            (None, true) => None,
            (target, _) => self.judge(owner, Intent::RenameOver, to.entry.as_ref(), target),
        };
        source.into_iter().chain(target).collect()
    }
}

fn is_dir(place: &Place) -> bool {
    matches!(place.there, Some((_, Kind::Dir)))
}

/// Whether the second place is in the directory that the first leads to; directories are one deep here.
fn within(dir: &Place, place: &Place) -> bool {
    is_dir(dir) && dir.there.as_ref().map(|there| there.0) == place.entry.as_ref().map(|entry| entry.0)
}

pub(crate) fn size(snapshot: &Snapshot, number: u64) -> u64 {
    snapshot
        .files
        .get(&number)
        .map_or(0, |(content, _)| content.len() as u64)
}

/// Where the paths of an operation lead, before it.
pub(crate) fn places(op: Op, before: &Snapshot) -> (Place, Option<Place>) {
    let follow = !matches!(
        op,
        Op::Stat(_)
            | Op::Exclusive(_)
            | Op::Rename(..)
            | Op::RenameFree(..)
            | Op::Exchange(..)
            | Op::Link(..)
            | Op::Unlink(_)
            | Op::Mkdir(_)
            | Op::Rmdir(_)
    );
    match op {
        Op::Rename(from, to)
        | Op::RenameFree(from, to)
        | Op::Exchange(from, to)
        | Op::Link(from, to)
        | Op::Copy(from, to) => (
            before.resolve(PATHS[from], follow),
            Some(before.resolve(PATHS[to], follow)),
        ),
        Op::Read(at)
        | Op::Stat(at)
        | Op::Save(at)
        | Op::Overwrite(at)
        | Op::Exclusive(at)
        | Op::Edit(at)
        | Op::EditBlind(at)
        | Op::Modify(at)
        | Op::Append(at, _)
        | Op::Truncate(at, _)
        | Op::TruncateSame(at)
        | Op::Allocate(at)
        | Op::Touch(at)
        | Op::Unlink(at)
        | Op::Mkdir(at)
        | Op::Rmdir(at)
        | Op::Chmod(at, _)
        | Op::Times(at)
        | Op::Hold(at, _)
        | Op::Scribble(at)
        | Op::Supplant(at) => (before.resolve(PATHS[at], follow), None),
        Op::HeldWrite(_)
        | Op::HeldRead(_)
        | Op::HeldTruncate(..)
        | Op::HeldAllocate(_)
        | Op::HeldSync(_)
        | Op::HeldFlush(_)
        | Op::HeldClose(_) => (Place::default(), None),
    }
}
