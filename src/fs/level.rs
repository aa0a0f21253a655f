//! The level of a name: derived from the names above it, and cached.
//!
//! Directories: on the node where nothing but built-in rules bears on them, else as a context that is derived again when
//! the epoch of places moves, at the latest after a second. Files: on the node, for the name they were last met by. No
//! rule is read and no pattern is matched for what is cached.

use std::ffi::OsStr;
use std::hash::BuildHasher as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hashbrown::{HashMap, HashSet};
use smallvec::SmallVec;

use super::Guard;
use super::caller::{At, Who};
use super::ledger::entry_key;
use super::mount::Mount;
use crate::guard::levels::{BUILT_IN, Kind, Marker, matching};
use crate::guard::{By, Change, EntryKey, FileKey, Grade, Level, Signs};
use crate::rules::{self, Executable, IgnoreFile, RuleList};
use crate::store::Node;
use crate::sync::{Mutex, Sharded};
use crate::sys;

/// How a level is kept in a node.
const OFF: u64 = 1;
const GUARD: u64 = 2;
const KEEP: u64 = 4;
/// Of a directory: nothing but built-in rules bears on what is in it.
const PLAIN: u64 = 8;
const VALUE_BITS: u32 = 4;
/// Of a file: the bits of the hash of the name that it was met by.
const NAME_BITS: u32 = 32;
/// Directories remembered as derived, at most.
const MAX_DERIVED: usize = 1 << 14;
/// Contexts in one part of the table, at most.
const MAX_CONTEXTS: usize = 1 << 10;

/// Directories that a marker made derived, and the name at which it did: renamed, they are looked at anew.
#[derive(Debug, Default)]
pub(super) struct Derived(Mutex<HashMap<FileKey, EntryKey>>);

impl Derived {
    fn note(&self, dir: FileKey, place: EntryKey) {
        let mut all = self.0.lock();
        if all.len() >= MAX_DERIVED {
            // Forgotten means guarded.
            all.clear();
        }
        all.insert(dir, place);
    }

    fn was_at(&self, dir: &FileKey, place: &EntryKey) -> bool {
        self.0.lock().get(dir) == Some(place)
    }
}

/// What bears on the names in one directory.
#[derive(Debug, Clone)]
pub(super) struct Context {
    epoch: u64,
    rules: Arc<RuleList>,
    /// The directory's path, from the root or from a directory above which nothing but built-in rules bears on names.
    path: Vec<u8>,
    /// The ignore files above and in it, the innermost last, with the length of their directory's path.
    ignores: SmallVec<[(Arc<IgnoreFile>, usize); 2]>,
    /// Of the directory, for everybody.
    grade: Grade,
    /// The same for those who run a program that has rules of its own, in the order of the list.
    programs: SmallVec<[Grade; 1]>,
    /// Nothing that may appear at any moment would change it.
    settled: bool,
}

/// The contexts of directories, by list of rules and directory.
#[derive(Debug, Default)]
pub(super) struct Contexts(Sharded<HashMap<(u64, FileKey), Arc<Context>>>);

impl Contexts {
    fn get(&self, key: &(u64, FileKey), epoch: u64) -> Option<Arc<Context>> {
        let found = self.0.lock(key).get(key).cloned();
        found.filter(|context| context.epoch == epoch)
    }

    fn put(&self, key: (u64, FileKey), context: Arc<Context>) {
        let mut shard = self.0.lock(&key);
        if shard.len() >= MAX_CONTEXTS {
            shard.clear();
        }
        shard.insert(key, context);
    }

    /// Forgets what is out of date.
    pub(super) fn tidy(&self, epoch: u64) {
        self.0.each(|shard| shard.retain(|_, context| context.epoch == epoch));
    }
}

impl Context {
    fn top(epoch: u64, rules: Arc<RuleList>, grade: Grade) -> Self {
        let programs = rules.commands().map(|_| grade).collect();
        Self {
            epoch,
            rules,
            path: Vec::new(),
            ignores: SmallVec::new(),
            grade,
            programs,
            settled: true,
        }
    }

    fn is_plain(&self) -> bool {
        self.rules.is_empty() && self.ignores.is_empty() && self.grade.floor.is_none()
    }

    /// The grades of a name in it, for everybody and for each program.
    fn grades(&self, name: &OsStr, kind: Kind, built_in: Option<usize>) -> (Grade, SmallVec<[Grade; 1]>) {
        let mut path: SmallVec<[u8; 256]> = SmallVec::from_slice(&self.path);
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name.as_bytes());
        let is_dir = kind == Kind::Directory;
        let whole = Path::new(OsStr::from_bytes(&path));
        let last = |command, grade: &Grade| self.rules.last(command, whole, is_dir, grade.leads_into_git(name));
        let general = last(None, &self.grade);
        let mut ignored = None;
        let mut grade_of = |above: &Grade, rule: Option<(usize, Level)>| {
            let may_be = above.rule_below(name, rule).is_none() && above.may_be_ignored(built_in);
            let signs = Signs {
                built_in,
                ignored: may_be && *ignored.get_or_insert_with(|| self.is_ignored(&path, is_dir)),
                rule,
            };
            above.below(name, &signs)
        };
        let grade = grade_of(&self.grade, general);
        let programs = self.programs.iter().enumerate().map(|(number, above)| {
            let own = last(Some(number), above);
            grade_of(above, general.into_iter().chain(own).max_by_key(|(index, _)| *index))
        });
        (grade, programs.collect())
    }

    fn is_ignored(&self, path: &[u8], is_dir: bool) -> bool {
        let verdicts = self.ignores.iter().rev().filter_map(|(file, length)| {
            let below = path.get(*length..)?;
            let below = below.strip_prefix(b"/").unwrap_or(below);
            file.verdict(Path::new(OsStr::from_bytes(below)), is_dir)
        });
        verdicts.map(|(ignored, _)| ignored).next().unwrap_or(false)
    }
}

impl Mount {
    /// The level of a file named `name` in `dir`, for the caller.
    pub(super) fn level_of(&self, who: &Who, dir: Option<&Arc<Node>>, name: &OsStr) -> Level {
        let Some(dir) = dir else { return Level::Guard };
        let epoch = self.guard().places.load(Ordering::Acquire);
        if self.rules_id() == 0
            && !dir.is_held()
            && let Some((above, PLAIN)) = cached(dir, epoch)
        {
            return in_plain(above, name);
        }
        self.level_in(who, &self.context(dir, epoch), name).0
    }

    /// The level of a file found under a name: at least that of a name under which its content was not seen.
    pub(super) fn level_of_file(&self, who: &Who, dir: Option<&Arc<Node>>, name: &OsStr, node: &Node) -> Level {
        let level = self.level_of_known(who, dir, name, node);
        match node.held() {
            Some(held) if level.is_looser_than(held) => held,
            Some(_) | None => level,
        }
    }

    fn level_of_known(&self, who: &Who, dir: Option<&Arc<Node>>, name: &OsStr, node: &Node) -> Level {
        let Some(dir) = dir.filter(|_| self.rules_id() == 0 && node.kind() == crate::store::Kind::Regular) else {
            return self.level_of(who, dir, name);
        };
        let epoch = self.guard().places.load(Ordering::Acquire);
        if let Some((above, PLAIN)) = cached(dir, epoch).filter(|_| !dir.is_held()) {
            return in_plain(above, name);
        }
        let hash = self.guard().name_hash(dir, name);
        if let Some(level) = cached_file(node, epoch, hash) {
            return level;
        }
        let context = self.context(dir, epoch);
        let (level, for_everybody) = self.level_in(who, &context, name);
        if for_everybody && context.settled {
            remember_file(node, epoch, hash, level);
        }
        level
    }

    /// Whether anybody's looks at a name of the directory are to be noted for the caller.
    pub(super) fn notes_looks(&self, who: &Who, dir: &Arc<Node>, name: &OsStr) -> bool {
        self.level_of_dir(dir) != Level::Off
            || (!self.rules().is_empty() && self.level_of(who, Some(dir), name) != Level::Off)
    }

    /// The level in a context for the caller, and whether it is the same for everybody.
    fn level_in(&self, who: &Who, context: &Context, name: &OsStr) -> (Level, bool) {
        let (grade, programs) = context.grades(name, Kind::File, matching(name, Kind::File));
        if programs.iter().all(|program| program.level == grade.level) {
            return (grade.level, true);
        }
        // Only now does it matter what the caller runs, and it runs that until its call returns.
        let mut level = grade;
        if let Some(running) = who.executable() {
            for (program, path) in programs.iter().zip(context.rules.commands()) {
                if index_of(program) > index_of(&level) && self.guard().workspace.is_program(path, running) {
                    level = *program;
                }
            }
        }
        (level.level, false)
    }

    /// The level of a file, for everybody who runs no program with rules of its own.
    pub(super) fn level_for_all(&self, dir: &Arc<Node>, name: &OsStr, node: Option<&Node>) -> Level {
        let epoch = self.guard().places.load(Ordering::Acquire);
        let context = self.context(dir, epoch);
        let level = context.grades(name, Kind::File, matching(name, Kind::File)).0.level;
        match node.and_then(Node::held) {
            Some(held) if level.is_looser_than(held) => held,
            Some(_) | None => level,
        }
    }

    /// The level of a directory and of what is in it, for everybody who runs no program with rules of its own.
    pub(super) fn level_of_dir(&self, dir: &Arc<Node>) -> Level {
        let epoch = self.guard().places.load(Ordering::Acquire);
        if self.rules_id() == 0
            && !dir.is_held()
            && let Some((level, _)) = cached(dir, epoch)
        {
            return level;
        }
        self.context(dir, epoch).grade.level
    }

    /// The level that a directory's name gives it, whether or not it is guarded under every name.
    pub(super) fn level_by_name(&self, dir: &Arc<Node>) -> Level {
        let place = dir.place();
        let Some(parent) = place.parent else {
            return Level::Guard;
        };
        let epoch = self.guard().places.load(Ordering::Acquire);
        let above = self.context(&parent, epoch);
        let (built_in, _) = self.guard().built_in(dir, &parent, &place.name);
        above.grades(&place.name, Kind::Directory, built_in).0.level
    }

    /// The level that a name had when this change was made, as far as ignore files decide it. Of a file that has lost its
    /// name nothing is known: it is what it was opened as.
    pub(super) fn level_then(&self, who: &Who, at: &At, then: Change) -> Level {
        let Some(dir) = &at.dir else { return Level::Keep };
        let epoch = self.guard().places.load(Ordering::Acquire);
        let context = self.derive(dir, epoch, Some(then));
        self.level_in(who, &context, &at.name).0
    }

    /// The same for everybody who runs no program with rules of its own.
    pub(super) fn level_then_for_all(&self, dir: &Arc<Node>, name: &OsStr, then: Change) -> Level {
        let epoch = self.guard().places.load(Ordering::Acquire);
        let context = self.derive(dir, epoch, Some(then));
        context.grades(name, Kind::File, matching(name, Kind::File)).0.level
    }

    fn context(&self, dir: &Arc<Node>, epoch: u64) -> Arc<Context> {
        self.derive(dir, epoch, None)
    }

    /// What is known already of a directory.
    fn known(&self, dir: &Arc<Node>, epoch: u64) -> Option<Arc<Context>> {
        if self.rules_id() == 0
            && let Some((level, PLAIN)) = cached(dir, epoch).filter(|_| !dir.is_held())
        {
            let grade = Grade {
                level,
                ..Grade::default()
            };
            return Some(Arc::new(Context::top(epoch, self.rules(), grade)));
        }
        self.guard().contexts.get(&(self.rules_id(), dir.key()), epoch)
    }

    /// Up to the nearest directory of which all is known, then down again. With `then`, nothing is taken for known.
    fn derive(&self, dir: &Arc<Node>, epoch: u64, then: Option<Change>) -> Arc<Context> {
        let guarded = || Arc::new(Context::top(epoch, self.rules(), Grade::default()));
        let mut path = Vec::new();
        let mut at = Arc::clone(dir);
        // Outsiders move directories unseen: places that are out of date may lead round in a circle.
        let mut met = dir.id();
        let mut context = loop {
            if let Some(known) = self.known(&at, epoch).filter(|_| then.is_none()) {
                break known;
            }
            let place = at.place();
            let Some(parent) = place.parent else {
                let mut root = Context::top(epoch, self.rules(), Grade::default());
                self.guard().enter(&mut root, &at, then);
                break self.keep_context(&at, root, then);
            };
            path.push((at, Arc::clone(&parent), place.name));
            at = parent;
            if at.id() == met {
                return guarded();
            }
            if path.len().is_power_of_two() {
                met = at.id();
            }
        };
        while let Some((node, parent, name)) = path.pop() {
            self.guard().rule_counts().derived.add();
            let below = self.guard().below(&context, (&node, &parent, &name), then);
            context = self.keep_context(&node, below, then);
        }
        context
    }

    fn keep_context(&self, node: &Arc<Node>, context: Context, then: Option<Change>) -> Arc<Context> {
        if then.is_some() || !context.settled {
            return Arc::new(context);
        }
        if self.rules_id() == 0 {
            let plain = if context.is_plain() { PLAIN } else { 0 };
            remember(node, context.epoch, context.grade.level, plain);
        }
        let plain = context.is_plain() && self.rules_id() == 0;
        let context = Arc::new(context);
        if !plain {
            let key = (self.rules_id(), node.key());
            self.guard().contexts.put(key, Arc::clone(&context));
        }
        context
    }
}

impl Guard {
    /// The level of a file on a mount, or on any without rules of its own; for everybody who runs no program with rules of
    /// its own.
    pub(super) fn level_for_all(
        &self,
        mount: Option<u64>,
        dir: Option<&Arc<Node>>,
        name: &OsStr,
        node: Option<&Node>,
    ) -> Level {
        match (self.mount_for_levels(mount), dir) {
            (Some(mount), Some(dir)) => mount.level_for_all(dir, name, node),
            (None, _) | (_, None) => Level::Guard,
        }
    }

    /// The mount whose rules hold: the wanted one, else one with none of its own, else any.
    pub(super) fn mount_for_levels(&self, mount: Option<u64>) -> Option<Arc<Mount>> {
        let mounts = self.mounts();
        let wanted = |known: &&Arc<Mount>| mount.is_some_and(|id| known.id() == id);
        let found = mounts.iter().find(wanted);
        found
            .or_else(|| mounts.iter().find(|known| known.rules_id() == 0))
            .or_else(|| mounts.first())
            .cloned()
    }

    /// The context of a directory below another.
    fn below(
        &self,
        above: &Context,
        (node, parent, name): (&Arc<Node>, &Arc<Node>, &OsStr),
        then: Option<Change>,
    ) -> Context {
        let (built_in, settled) = self.built_in(node, parent, name);
        let (mut grade, mut programs) = above.grades(name, Kind::Directory, built_in);
        if let Some(level) = node.held() {
            grade = Grade::held(level);
            programs.fill(grade);
        }
        let mut path = above.path.clone();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name.as_bytes());
        let mut context = Context {
            epoch: above.epoch,
            rules: Arc::clone(&above.rules),
            path,
            ignores: above.ignores.clone(),
            grade,
            programs,
            settled: above.settled && settled,
        };
        self.enter(&mut context, node, then);
        context
    }

    /// Takes the directory's own ignore file in, where it could have a say.
    fn enter(&self, context: &mut Context, dir: &Arc<Node>, then: Option<Change>) {
        if !context.grade.may_be_ignored(None) {
            return;
        }
        if let Some(file) = self.ignore_file(dir, then) {
            context.ignores.push((file, context.path.len()));
        }
    }

    /// The built-in rule that speaks of a directory, and whether that is settled: a marker may still appear.
    pub(super) fn built_in(&self, node: &Node, parent: &Arc<Node>, name: &OsStr) -> (Option<usize>, bool) {
        let Some(index) = matching(name, Kind::Directory) else {
            return (None, true);
        };
        let markers = BUILT_IN[index].markers;
        if markers.is_empty() || self.is_derived(node, parent, name, markers) {
            (Some(index), true)
        } else {
            (None, false)
        }
    }

    /// By markers, now or once: nobody looked at what was made in the directory while it was derived, so that its own
    /// makers could not remove it any more once the marker is gone (`rm -r` takes names in any order).
    fn is_derived(&self, node: &Node, parent: &Arc<Node>, name: &OsStr, markers: &[Marker]) -> bool {
        let place = entry_key(parent.key(), name);
        let found = self
            .store
            .fd(parent)
            .is_ok_and(|parent| rules::evidence(&*parent, name, markers));
        if found {
            self.derived.note(node.key(), place);
            return true;
        }
        self.derived.was_at(&node.key(), &place)
    }

    fn name_hash(&self, dir: &Node, name: &OsStr) -> u64 {
        self.names.hash_one((dir.id(), name)) & ((1 << NAME_BITS) - 1)
    }

    /// Guards a file, or a directory and what is in it, at least so closely under whatever name it has from now on.
    pub(super) fn hold(&self, node: &Arc<Node>, level: Level) {
        let before = node.is_held();
        node.hold(level);
        if !before {
            self.held.lock().push(Arc::clone(node));
        }
    }

    /// Guards a node by its name again.
    pub(super) fn let_go(&self, node: &Arc<Node>) {
        node.let_go();
        self.held.lock().retain(|known| !Arc::ptr_eq(known, node));
    }

    /// Lets go of what is not there any more. What is there stays: forgotten, it would be guarded less.
    pub(super) fn tidy_held(&self) {
        let all = self.held.lock().clone();
        let gone = |node: &&Arc<Node>| !self.store.stat(node).is_ok_and(|stat| stat.nlink > 0);
        let doomed: HashSet<_> = all.iter().filter(gone).map(|node| node.id()).collect();
        self.held.lock().retain(|node| !doomed.contains(&node.id()));
    }
}

impl Who {
    /// The program that the caller runs, while its call waits for an answer.
    pub(super) fn executable(&self) -> Option<Executable> {
        self.process?;
        let stat = sys::executable_of(self.tid).ok()?;
        Some(Executable {
            dev: stat.dev,
            ino: stat.ino,
        })
    }
}

fn index_of(grade: &Grade) -> Option<usize> {
    match grade.by {
        By::Rule(index) => Some(index),
        By::Default | By::BuiltIn(_) | By::Ignored | By::Held => None,
    }
}

/// The level of a file where nothing but built-in rules bears on names.
fn in_plain(above: Level, name: &OsStr) -> Level {
    if above == Level::Off {
        return above;
    }
    matching(name, Kind::File).map_or(above, |index| BUILT_IN[index].level)
}

const fn value_of(level: Level) -> u64 {
    match level {
        Level::Off => OFF,
        Level::Guard => GUARD,
        Level::Keep => KEEP,
    }
}

const fn level_of_value(value: u64) -> Option<Level> {
    match value & (OFF | GUARD | KEEP) {
        OFF => Some(Level::Off),
        GUARD => Some(Level::Guard),
        KEEP => Some(Level::Keep),
        _ => None,
    }
}

/// The level of a directory, and whether it is plain.
fn cached(node: &Node, epoch: u64) -> Option<(Level, u64)> {
    let kept = node.level.load(Ordering::Acquire);
    if kept >> VALUE_BITS != epoch {
        return None;
    }
    Some((level_of_value(kept)?, kept & PLAIN))
}

fn remember(node: &Node, epoch: u64, level: Level, plain: u64) {
    let value = epoch << VALUE_BITS | plain | value_of(level);
    node.level.store(value, Ordering::Release);
}

const fn file_key(epoch: u64, hash: u64) -> u64 {
    epoch << (NAME_BITS + VALUE_BITS) | hash << VALUE_BITS
}

fn cached_file(node: &Node, epoch: u64, hash: u64) -> Option<Level> {
    let kept = node.level.load(Ordering::Acquire);
    let value = kept & ((1 << VALUE_BITS) - 1);
    (kept - value == file_key(epoch, hash)).then(|| level_of_value(value))?
}

fn remember_file(node: &Node, epoch: u64, hash: u64, level: Level) {
    node.level
        .store(file_key(epoch, hash) | value_of(level), Ordering::Release);
}
