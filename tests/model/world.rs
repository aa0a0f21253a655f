//! One run: a guarded tree with a mount for each owner, the twin, and the logs; every step is predicted, carried out,
//! compared, and written to the logs.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use tempfile::TempDir;
use unclobber::guard::Policy;

use super::ops::{Hold, Op, Outcome, PATHS, hold, perform, perform_held};
use super::oracle::{Author, Entry, How, Intent, Oracle, Refused, Standing};
use super::predict::{places, size};
use super::support::Tree;
use super::twin::{Kind, Place, Snapshot, Twin, attic, listing};

/// Who acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Actor {
    Owner(usize),
    Outsider,
}

/// One step of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) actor: Actor,
    pub(crate) op: Op,
    /// Makes what is written unique.
    pub(crate) tag: u32,
    /// Whether the tree is read through a mount afterwards.
    pub(crate) look: bool,
}

/// What a run begins with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting {
    pub(crate) policies: [Policy; 3],
    pub(crate) linked: bool,
}

#[derive(Debug)]
struct Held {
    owner: usize,
    file: File,
    twin: File,
    number: u64,
    entry: Entry,
    how: Hold,
    /// Nothing through it is judged any more (D17, N2).
    granted: bool,
    /// The kernel moves its data: its reads show its owner nothing.
    silent: bool,
    /// Changes noticed in the file count as its owner's (O10).
    changes: bool,
    /// Its owner may have mapped the file: when it is closed, what nobody has noticed counts as its owner's (O10).
    maps: bool,
    /// When the change began that is under way through it, until it is settled (D21).
    changing: Option<Instant>,
    /// What it writes reaches the file unjudged: others keep their hands off the content (D21).
    unjudged: bool,
    /// Another owner has taken the file's last name away: what it held then (D22).
    taken: Option<(u64, SystemTime)>,
    /// Its owner has been told so.
    told: bool,
}

impl Held {
    fn writes(&self) -> bool {
        self.how != Hold::Read
    }

    /// It was flushed with data, or synced with data.
    fn ends_changing(&mut self) {
        if self.twin.metadata().unwrap().len() > 0 {
            self.changing = None;
        }
    }

    fn version(&self) -> (u64, SystemTime) {
        let now = self.twin.metadata().unwrap();
        (now.len(), now.modified().unwrap())
    }

    /// D22: it has written what is nowhere in the tree.
    fn writes_in_vain(&self) -> bool {
        self.taken.is_some_and(|taken| taken != self.version())
    }
}

/// The owner by which the whole tree is looked at.
const LOOKER: usize = 3;
/// A change is under way for a second at most; nothing here is left to a bound in time.
const LONG: Duration = Duration::from_millis(300);

pub(crate) struct World {
    held: Vec<Held>,
    tree: Tree,
    mounts: Vec<PathBuf>,
    looker: PathBuf,
    pub(crate) setting: Setting,
    twin: Twin,
    pub(crate) oracle: Oracle,
    /// The files with more than one name, before what is done now.
    pub(crate) linked: BTreeSet<u64>,
    reports: u64,
    /// What must be in the attic (A1).
    displaced: Vec<(u64, Vec<u8>)>,
    _dir: TempDir,
}

fn fill(root: &Path, linked: bool) {
    fs::create_dir(root.join("d")).unwrap();
    fs::create_dir(root.join("e")).unwrap();
    fs::write(root.join("f"), "first f").unwrap();
    fs::write(root.join("g"), "first g").unwrap();
    fs::write(root.join("d/f"), "first d/f").unwrap();
    std::os::unix::fs::symlink("f", root.join("l")).unwrap();
    if linked {
        fs::hard_link(root.join("g"), root.join("d/g")).unwrap();
    }
}

macro_rules! check {
    ($holds:expr, $($message:tt)+) => { if !$holds { return Err(format!($($message)+)); } };
}

impl World {
    pub(crate) fn new(setting: Setting) -> Self {
        let dir = TempDir::new_in("/var/tmp").unwrap();
        fill(dir.path(), setting.linked);
        let mut twin = Twin::new(dir.path().to_owned());
        twin.look();
        let mut tree = Tree::new(|root| fill(root, setting.linked));
        let names = ["a", "b", "c"];
        let mounts = (0..3)
            .map(|owner| tree.owner_with(names[owner], setting.policies[owner]))
            .collect();
        let looker = tree.owner("looker");
        Self {
            held: Vec::new(),
            tree,
            mounts,
            looker,
            setting,
            twin,
            oracle: Oracle::default(),
            linked: BTreeSet::new(),
            reports: 0,
            displaced: Vec::new(),
            _dir: dir,
        }
    }

    /// Carries out one step.
    pub(crate) fn step(&mut self, step: Step) -> Result<(), String> {
        self.end_long_changes();
        // What the kernels remember for a moment is the matter of other tests.
        self.tree.guard.settle_caches();
        let before = self.twin.look();
        match step.actor {
            Actor::Outsider => self.outside(step)?,
            Actor::Owner(owner) => self.inside(owner, step)?,
        }
        self.settle()?;
        self.walk_to_moved_directories(&before);
        let expected = listing(&self.twin.root);
        let mut backing = listing(&self.tree.backing);
        backing.retain(|path, _| path != ".unclobber" && !path.starts_with(".unclobber/"));
        check!(
            backing == expected,
            "the backing directory holds\n{backing:#?}\nnot\n{expected:#?}"
        );
        if step.look {
            self.look()?;
        }
        Ok(())
    }

    /// A kernel that knows a directory by a name it no longer has cannot be led to it by another one while it renames
    /// (`ESTALE`): every mount looks at the names that directories have lost, which those who find nothing are told.
    fn walk_to_moved_directories(&mut self, before: &Snapshot) {
        let after = self.twin.look();
        for (entry, _) in before.rebound(&after) {
            let was_dir = before.names.get(entry).is_some_and(|(_, kind)| *kind == Kind::Dir);
            let Some(path) = after.path_of(entry).filter(|_| was_dir) else {
                continue;
            };
            for (owner, mount) in self.mounts.iter().chain([&self.looker]).enumerate() {
                let found = fs::symlink_metadata(mount.join(&path));
                if found.is_err() && owner < self.mounts.len() {
                    self.oracle.missed(owner, entry, true);
                }
            }
        }
    }

    /// Compares the tree as the mount shows it.
    pub(crate) fn look(&mut self) -> Result<(), String> {
        self.tree.guard.settle_caches();
        let expected = listing(&self.twin.root);
        let seen = listing(&self.looker);
        check!(seen == expected, "the mount shows\n{seen:#?}\nnot\n{expected:#?}");
        for (entry, (number, kind)) in self.twin.look().names {
            if kind == Kind::File {
                self.reads(LOOKER, Some(&entry), number);
            }
        }
        self.settle()
    }

    /// Closes what has been about to change for so long that the guard might soon take it for something else.
    fn end_long_changes(&mut self) {
        self.close_held(|held| held.changing.is_some_and(|since| since.elapsed() >= LONG));
    }

    /// Closes handles; what they have written in vain is reported then.
    fn close_held(&mut self, which: impl Fn(&Held) -> bool) {
        for held in self.held.extract_if(.., |held| which(held)) {
            self.reports += u64::from(held.writes_in_vain() && !held.told);
        }
    }

    /// D21: whether another owner is about to change the file.
    pub(crate) fn is_changing(&self, owner: usize, number: u64) -> bool {
        self.held
            .iter()
            .any(|held| held.owner != owner && held.number == number && held.changing.is_some())
    }

    /// D21: whether another owner is writing the file unjudged.
    pub(crate) fn is_written(&self, owner: usize, number: u64) -> bool {
        self.held
            .iter()
            .any(|held| held.owner != owner && held.number == number && held.unjudged)
    }

    /// Lets the guard notice what an outsider has done to a file, before a handle by which it may be mapped is closed.
    fn notice(&mut self, number: u64, now: &Snapshot) {
        if !self.held.iter().any(|held| held.maps && held.number == number) {
            return;
        }
        let entry = now.names.iter().find(|(_, (there, _))| *there == number);
        match entry.and_then(|(entry, _)| now.path_of(entry)) {
            Some(path) => {
                drop(File::open(self.looker.join(path)));
                if let Some((entry, _)) = entry {
                    self.reads(LOOKER, Some(&entry.clone()), number);
                }
            }
            // Nobody else comes by it any more, and its closing puts what has changed down to its owner (O10).
            None => self.close_held(|held| held.number == number),
        }
    }

    fn stands_current(&self, owner: usize, place: &Place) -> bool {
        let view = self.setting.policies[owner].view;
        let standing = self.oracle.standing(owner, place.entry.as_ref(), place.file(), view);
        standing == Standing::Current
    }

    /// O3, unless D21.
    fn reads(&mut self, owner: usize, entry: Option<&Entry>, number: u64) {
        if !self.is_changing(owner, number) {
            self.oracle.read(owner, entry, number);
        }
    }

    /// Waits until the kernel has told the guard of every file that was closed.
    fn settle(&self) -> Result<(), String> {
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            let open: usize = self
                .tree
                .guard
                .status()
                .mounts
                .iter()
                .map(|mount| mount.open_files)
                .sum();
            if open == self.held.len() {
                return Ok(());
            }
            check!(
                Instant::now() < deadline,
                "{open} files are open, not {}",
                self.held.len()
            );
            std::thread::yield_now();
        }
    }

    fn writers(&self, number: u64) -> Vec<usize> {
        let mut owners: Vec<usize> = self
            .held
            .iter()
            .filter(|held| held.changes && held.number == number)
            .map(|held| held.owner)
            .collect();
        owners.sort_unstable();
        owners.dedup();
        owners
    }

    /// Of several changes that outsiders make to a name between two looks only the last is known (V8): the guard is
    /// made to look at what they have changed before they change it again.
    fn notice_outsiders(&self, before: &Snapshot) {
        for path in self.oracle.bound_outside().filter_map(|entry| before.path_of(entry)) {
            drop(fs::symlink_metadata(self.looker.join(path)));
        }
        // Whoever was told of a miss goes on to something else (O8).
        drop(fs::symlink_metadata(self.looker.join("nothing")));
    }

    fn outside(&mut self, step: Step) -> Result<(), String> {
        let before = self.twin.look();
        self.notice_outsiders(&before);
        let expected = perform(&self.twin.root, step.op, step.tag);
        let found = perform(&self.tree.backing, step.op, step.tag);
        check!(found == expected, "the outsider got {found:?}, not {expected:?}");
        let after = self.twin.look();
        for number in before.changed(&after, true) {
            self.past_daemon(number, None);
            self.notice(number, &after);
        }
        for (entry, now) in before.rebound(&after) {
            self.oracle
                .bound(Author::Outsider, entry, now.map(|(number, _)| number));
        }
        Ok(())
    }

    fn inside(&mut self, owner: usize, step: Step) -> Result<(), String> {
        let before = self.twin.look();
        let numbers = before.names.values().map(|(number, _)| *number);
        let mut known = BTreeSet::new();
        self.linked = numbers.filter(|number| !known.insert(*number)).collect();
        match step.op {
            Op::Hold(at, how) => self.open_held(owner, at, how, step, &before),
            Op::HeldClose(which) => {
                if let Some(at) = self.held_by(owner, which) {
                    let held = self.held.remove(at);
                    self.reports += u64::from(held.writes_in_vain() && !held.told);
                }
                Ok(())
            }
            Op::HeldWrite(which)
            | Op::HeldRead(which)
            | Op::HeldTruncate(which, _)
            | Op::HeldAllocate(which)
            | Op::HeldSync(which)
            | Op::HeldFlush(which) => match self.held_by(owner, which) {
                Some(at) => self.use_held(at, step, &before),
                None => Ok(()),
            },
            _ => self.by_path(owner, step, &before),
        }
    }

    fn held_by(&self, owner: usize, which: usize) -> Option<usize> {
        let own: Vec<usize> = (0..self.held.len())
            .filter(|at| self.held[*at].owner == owner)
            .collect();
        (!own.is_empty()).then(|| own[which % own.len()])
    }

    /// Whether what came back is the first of the refusals predicted, or none of them where nothing is refused, and
    /// what was reported goes with it.
    fn compare(&mut self, owner: usize, refused: &[Refused], found: &Result<(), i32>) -> Result<bool, String> {
        let enforced = Oracle::enforces(&self.setting.policies[owner]);
        let refused = if enforced {
            &refused[..refused.len().min(1)]
        } else {
            refused
        };
        let total = self.tree.guard.events().refusals.get();
        let new = usize::try_from(total - self.reports).unwrap();
        self.reports = total;
        let mut recent = self.tree.guard.events().recent();
        let recent = recent.split_off(recent.len().saturating_sub(new));
        let codes: Vec<_> = recent.iter().map(|report| report.refusal.code.as_str()).collect();
        let lines: Vec<_> = recent.iter().map(|report| report.line()).collect();
        check!(
            codes == refused.iter().map(|refused| refused.code).collect::<Vec<_>>(),
            "{refused:?} was to be reported, not {lines:?}; the answer was {found:?}"
        );
        for file in refused.iter().filter_map(|refused| refused.file) {
            self.oracle.refused(owner, file);
        }
        match refused.first().filter(|_| enforced) {
            Some(refused) => {
                check!(
                    *found == Err(refused.errno),
                    "{refused:?} was expected, not {found:?} {lines:?}"
                );
                Ok(true)
            }
            None => Ok(false),
        }
    }

    fn open_held(&mut self, owner: usize, at: usize, how: Hold, step: Step, before: &Snapshot) -> Result<(), String> {
        let place = before.resolve(PATHS[at], true);
        let refused = self.judge_open(owner, &place, how.replaces(), how == Hold::Create);
        let found = hold(&self.mounts[owner], at, how, step.tag);
        let answer = found.as_ref().map(|_| ()).map_err(|errno| *errno);
        if self.compare(owner, refused.as_slice(), &answer)? {
            return Ok(());
        }
        let twin = hold(&self.twin.root, at, how, step.tag);
        let (file, twin) = match (found, twin) {
            (Ok(file), Ok(twin)) => (file, twin),
            (Err(found), Err(expected)) if found == expected => {
                self.told(owner, found, &place);
                return Ok(());
            }
            (found, twin) => return Err(format!("opening gave {found:?}, not {twin:?}")),
        };
        let after = self.twin.look();
        self.displace(owner, before, &after);
        let there = after.resolve(PATHS[at], true);
        // A directory can be opened, and is of no interest.
        let (Some(entry), Some(number)) = (there.entry.clone(), there.file()) else {
            return Ok(());
        };
        let granted = how.replaces();
        let maps = how == Hold::ReadWrite && self.stands_current(owner, &there);
        match how {
            Hold::Read => self.reads(owner, Some(&entry), number),
            Hold::ReadWrite => self.know_by_handle(owner, &there),
            Hold::Write | Hold::Append => (),
            Hold::Empty => self.through_daemon(owner, Some(&entry), number, true),
            Hold::Truncate | Hold::Create => {
                self.through_daemon(owner, Some(&entry), number, true);
                self.past_daemon(number, Some(owner));
            }
        }
        self.rebind(owner, before, &after);
        self.held.push(Held {
            owner,
            file,
            twin,
            number,
            entry,
            how,
            granted,
            silent: granted,
            changes: granted,
            maps,
            changing: (granted && how != Hold::Create).then(Instant::now),
            unjudged: granted,
            taken: None,
            told: false,
        });
        Ok(())
    }

    fn told(&mut self, owner: usize, errno: i32, place: &Place) {
        if errno == libc::ENOENT
            && let Some(entry) = place.missed()
        {
            self.oracle.missed(owner, entry, true);
        }
    }

    fn use_held(&mut self, at: usize, step: Step, before: &Snapshot) -> Result<(), String> {
        let held = &self.held[at];
        let (owner, number, granted, how) = (held.owner, held.number, held.granted, held.how);
        // A file without the name it was opened by is judged by itself.
        let leads_there = before.names.get(&held.entry).is_some_and(|(there, _)| *there == number);
        let entry = leads_there.then(|| held.entry.clone());
        let intent = match step.op {
            _ if !held.writes() => None,
            Op::HeldWrite(_) if how == Hold::Append => Some(Intent::Append),
            // What leaves every byte as it is is no change.
            Op::HeldTruncate(_, to) if to == size(before, number) => None,
            Op::HeldTruncate(_, 0) => Some(Intent::Replace),
            Op::HeldWrite(_) | Op::HeldTruncate(..) | Op::HeldAllocate(_) => Some(Intent::Edit),
            _ => None,
        };
        let refused = intent
            .filter(|_| !granted)
            .and_then(|intent| self.judge(owner, intent, entry.as_ref(), Some(number)));
        if matches!(step.op, Op::HeldSync(_) | Op::HeldFlush(_)) && self.held[at].writes_in_vain() {
            return self.learn_of_vain(at, step);
        }
        let held = &mut self.held[at];
        let found = perform_held(&mut held.file, step.op, step.tag);
        let answer = found.as_ref().map(|_| ()).map_err(|errno| *errno);
        if self.compare(owner, refused.as_slice(), &answer)? {
            return Ok(());
        }
        let held = &mut self.held[at];
        let expected = perform_held(&mut held.twin, step.op, step.tag);
        check!(found == expected, "the handle gave {found:?}, not {expected:?}");
        if expected.is_err() {
            return Ok(());
        }
        match step.op {
            Op::HeldSync(_) | Op::HeldFlush(_) => held.ends_changing(),
            Op::HeldRead(_) if how == Hold::ReadWrite && !held.silent => self.reads(owner, entry.as_ref(), number),
            _ => (),
        }
        let Some(intent) = intent else { return Ok(()) };
        if granted {
            self.past_daemon(number, None);
            return Ok(());
        }
        // What the owner itself has made through the handle is not kept each time.
        if !self.oracle.made_last_change(owner, number) {
            let after = self.twin.look();
            self.displace(owner, before, &after);
        }
        self.through_daemon(owner, entry.as_ref(), number, intent == Intent::Replace);
        let held = &mut self.held[at];
        // What is only observed is recorded once.
        let recorded = refused.is_some() && !matches!(step.op, Op::HeldTruncate(..));
        held.granted = recorded;
        held.changes |= held.granted;
        if intent == Intent::Replace {
            held.changing = Some(Instant::now());
        }
        Ok(())
    }

    /// D22: a flush or sync of what was written after the file was taken away.
    fn learn_of_vain(&mut self, at: usize, step: Step) -> Result<(), String> {
        let held = &mut self.held[at];
        let owner = held.owner;
        let found = perform_held(&mut held.file, step.op, step.tag).map(|_| ());
        perform_held(&mut held.twin, step.op, step.tag).map_err(|errno| format!("the twin failed: {errno}"))?;
        held.ends_changing();
        let refused = Refused::stale(None);
        let known = std::mem::replace(&mut held.told, true);
        if known && Oracle::enforces(&self.setting.policies[owner]) {
            check!(found == Err(refused.errno), "what is written in vain gave {found:?}");
        }
        let reported = if known { &[][..] } else { std::slice::from_ref(&refused) };
        self.compare(owner, reported, &found).map(|_| ())
    }

    /// A change of content that the daemon carries out itself: its caller's, whoever else may change the file.
    fn through_daemon(&mut self, owner: usize, entry: Option<&Entry>, number: u64, whole: bool) {
        let produced = whole || self.oracle.is_current(owner, number);
        self.oracle.changed(Author::Owner(owner), number);
        if !produced {
            return;
        }
        let how = if whole { How::Whole } else { How::Part };
        self.oracle.produced(owner, number, how);
        if let Some(entry) = entry.filter(|_| whole) {
            self.oracle.knows(owner, entry, number);
        }
    }

    /// A change of content that is noticed afterwards (O10); `also` may make such changes besides those who hold the
    /// file open.
    fn past_daemon(&mut self, number: u64, also: Option<usize>) {
        let mut writers = self.writers(number);
        writers.extend(also.filter(|also| !writers.contains(also)));
        match *writers {
            [] => self.oracle.changed(Author::Outsider, number),
            [owner] => {
                let current = self.oracle.is_current(owner, number);
                self.oracle.changed(Author::Owner(owner), number);
                if current {
                    self.oracle.produced(owner, number, How::Noticed);
                }
            }
            _ => self.oracle.changed(Author::Several, number),
        }
    }

    /// Writes to the logs which names an owner's operation bound.
    fn rebind(&mut self, owner: usize, before: &Snapshot, after: &Snapshot) {
        for (entry, now) in before.rebound(after) {
            self.oracle
                .bound(Author::Owner(owner), entry, now.as_ref().map(|(number, _)| *number));
            match now {
                None => self.oracle.missed(owner, entry, false),
                // Who binds a name knows what is there by that name.
                Some((number, _)) => self.oracle.knows(owner, entry, number),
            }
        }
    }

    /// A handle for reading and writing that needs no judgement: its reads may not come by, and may have happened.
    fn know_by_handle(&mut self, owner: usize, place: &Place) {
        let (Some(entry), Some(number)) = (&place.entry, place.file()) else {
            return;
        };
        let view = self.setting.policies[owner].view;
        if self.oracle.standing(owner, Some(entry), Some(number), view) == Standing::Current {
            self.oracle.knows(owner, entry, number);
        }
    }

    fn by_path(&mut self, owner: usize, step: Step, before: &Snapshot) -> Result<(), String> {
        let refused = self.predict(owner, step.op, before);
        let (first, second) = places(step.op, before);
        if matches!(step.op, Op::EditBlind(_) | Op::Modify(_)) {
            self.know_by_handle(owner, &first);
        }
        if let Op::Copy(..) = step.op
            && let Some(number) = first.file()
        {
            self.reads(owner, first.entry.as_ref(), number);
        }
        if let (Op::Modify(_), Some(number)) = (step.op, first.file())
            && self.is_written(owner, number)
        {
            // It reads before it is refused.
            self.reads(owner, first.entry.as_ref(), number);
        }
        let found = perform(&self.mounts[owner], step.op, step.tag);
        let answer = found.as_ref().map(|_| ()).map_err(|errno| *errno);
        if self.compare(owner, &refused, &answer)? {
            return Ok(());
        }
        let expected = perform(&self.twin.root, step.op, step.tag);
        check!(found == expected, "the answer was {found:?}, not {expected:?}");
        let after = self.twin.look();
        if !matches!(step.op, Op::Modify(_)) {
            self.displace(owner, before, &after);
        }
        self.tell(owner, step.op, &expected, &first, second.as_ref());
        if expected.is_ok() {
            self.change(owner, step.op, before, &after, &first, second.as_ref());
        }
        self.rebind(owner, before, &after);
        Ok(())
    }

    /// Writes to the logs whose content an operation has changed.
    fn change(
        &mut self,
        owner: usize,
        op: Op,
        before: &Snapshot,
        after: &Snapshot,
        first: &Place,
        second: Option<&Place>,
    ) {
        let entry = first.entry.as_ref();
        let there = entry
            .and_then(|entry| after.names.get(entry))
            .filter(|(_, kind)| *kind == Kind::File)
            .map(|(number, _)| *number);
        let Some(number) = there else { return };
        match op {
            Op::Save(_) | Op::Overwrite(_) | Op::Exclusive(_) => {
                self.through_daemon(owner, entry, number, true);
                self.past_daemon(number, Some(owner));
            }
            Op::Append(..) if first.is_free() => {
                self.through_daemon(owner, entry, number, true);
                self.past_daemon(number, Some(owner));
            }
            Op::Truncate(_, to) if to == size(before, number) => (),
            Op::Truncate(_, to) => self.through_daemon(owner, entry, number, to == 0),
            Op::Edit(_) | Op::EditBlind(_) | Op::Modify(_) | Op::Append(..) | Op::Allocate(_) => {
                self.through_daemon(owner, None, number, false);
            }
            Op::Copy(..) if size(before, number) > 0 => {
                if let Some(target) = second.and_then(Place::file) {
                    self.through_daemon(owner, None, target, false);
                }
            }
            _ => (),
        }
    }

    /// A1: content without which the tree is left by an owner who had not seen it is kept.
    fn displace(&mut self, owner: usize, before: &Snapshot, after: &Snapshot) {
        if !Oracle::enforces(&self.setting.policies[owner]) {
            return;
        }
        for (number, (content, _)) in &before.files {
            let lost = before.leads_to(*number) && !after.leads_to(*number);
            for held in self.held.iter_mut().filter(|held| lost && held.number == *number) {
                if held.owner != owner && held.unjudged {
                    held.taken = Some(held.version());
                }
            }
            let remains = after.files.get(number).is_some_and(|(now, _)| now.starts_with(content));
            if (lost || !remains) && !content.is_empty() && !self.oracle.is_current(owner, *number) {
                self.displaced.push((*number, content.clone()));
            }
        }
    }

    /// What was displaced unseen is in the attic.
    ///
    /// What was taken away whole is kept as the file it is (A2), which those who have it open may go on changing.
    pub(crate) fn look_in_attic(&mut self) -> Result<(), String> {
        let now = self.twin.look();
        let kept = attic(&self.tree.backing);
        let missing: Vec<_> = self
            .displaced
            .iter()
            .filter(|(number, content)| {
                let went_on = !now.leads_to(*number) && kept.contains(&now.files[number].0);
                !kept.contains(content) && !went_on
            })
            .collect();
        let text = |(_, content): &&(u64, Vec<u8>)| String::from_utf8_lossy(content).into_owned();
        check!(
            missing.is_empty(),
            "not kept: {:?}",
            missing.iter().map(text).collect::<Vec<_>>()
        );
        Ok(())
    }

    /// What the owner was shown or told.
    fn tell(&mut self, owner: usize, op: Op, answer: &Outcome, first: &Place, second: Option<&Place>) {
        match (op, answer) {
            (Op::Read(_) | Op::Modify(_), Ok(_)) => {
                if let Some(number) = first.file() {
                    self.reads(owner, first.entry.as_ref(), number);
                }
            }
            // The kernel gives up by itself after a lookup of the target that found nothing; nobody can tell the guard.
            (Op::Rename(..) | Op::RenameFree(..) | Op::Link(..), Err(libc::EINVAL | libc::EPERM)) => {
                let entry = second
                    .filter(|second| second.is_free())
                    .and_then(|second| second.entry.clone());
                if let Some(entry) = entry {
                    self.oracle.missed(owner, &entry, true);
                }
            }
            (_, Err(libc::ENOENT)) => {
                let parent = second.and_then(|second| second.missing_parent.clone());
                let missed = match (&first.missing_parent, parent) {
                    (None, Some(parent)) if !matches!(op, Op::Link(..) | Op::Copy(..)) => Some(parent),
                    _ => first.missed().or(second.and_then(Place::missed)).cloned(),
                };
                if let Some(entry) = missed {
                    self.oracle.missed(owner, &entry, true);
                }
            }
            _ => (),
        }
    }
}
