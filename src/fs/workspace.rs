//! What is known of the workspace's rules: its own file, git's ignore files, the programs that rules name.
//!
//! Owns when they are read: a file of rules about once a second, an ignore file when the level of its directory is
//! derived; never while a request waits for the level of a known name. What is wrong with a file changes nothing: the
//! last good rules hold.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;
use smallvec::SmallVec;

use super::Guard;
use super::mount::Mount;
use crate::audit::Counter;
use crate::guard::{Author, Change, FileKey, Generation, Timestamp, Token};
use crate::rules::{self, Executable, FILE_NAME, IGNORE_NAME, IgnoreFile, Rule, RuleList, RulesError};
use crate::store::Node;
use crate::sync::{Mutex, RwLock};
use crate::sys::{self, Stat};

/// Ignore files remembered, at most.
const MAX_IGNORES: usize = 1 << 14;
/// Versions of one ignore file remembered, at most.
const MAX_VERSIONS: usize = 8;

/// Which file, and which version of it.
type Seen = Option<(u64, u64, Token)>;

fn seen(stat: &Stat) -> (u64, u64, Token) {
    (stat.dev, stat.ino, stat.token())
}

/// The rules of the workspace, and the ignore files in it.
#[derive(Debug, Default)]
pub(super) struct Workspace {
    list: RwLock<Arc<RuleList>>,
    /// Moves with the list.
    version: AtomicU64,
    /// The file as it was last looked at, good or not.
    looked_at: Mutex<Option<Seen>>,
    /// What is wrong with the file as it is now.
    problem: Mutex<Option<RulesError>>,
    programs: RwLock<HashMap<PathBuf, Executable>>,
    ignores: Mutex<HashMap<FileKey, Ignores>>,
    /// Files of rules and ignore files read, and directories whose level was derived.
    counts: RuleCounts,
}

/// Work that levels have cost.
#[derive(Debug, Default)]
pub struct RuleCounts {
    /// Files of rules and ignore files read.
    pub read: Counter,
    /// Directories whose level was derived.
    pub derived: Counter,
}

/// The versions of one directory's ignore file, the latest last.
#[derive(Debug, Default)]
struct Ignores {
    seen: Seen,
    versions: SmallVec<[Version; 1]>,
}

/// What an ignore file said from some moment on: it holds for changes that came later. Owners' changes are told by their
/// generation; an outsider's by its date, since it is noticed some time after it was made, as an ignore file of theirs is.
#[derive(Debug)]
struct Version {
    since: Generation,
    made_at: Timestamp,
    file: Option<Arc<IgnoreFile>>,
}

impl Ignores {
    fn now(&self) -> Option<Arc<IgnoreFile>> {
        self.versions.last()?.file.clone()
    }

    fn at(&self, change: &Change) -> Option<Arc<IgnoreFile>> {
        let held = |version: &&Version| match change.author {
            Author::Owner(_) => version.since < change.generation,
            Author::Outsider | Author::Several => version.made_at < change.at,
        };
        self.versions.iter().rev().find(held)?.file.clone()
    }

    fn push(&mut self, seen: Seen, version: Version) {
        self.seen = seen;
        if self.versions.len() == MAX_VERSIONS {
            // What is forgotten ignored nothing: it is guarded.
            self.versions.remove(0);
        }
        self.versions.push(version);
    }
}

impl Workspace {
    /// The rules of the workspace's file, and their version.
    pub(super) fn list(&self) -> (u64, Arc<RuleList>) {
        // The version first: an older version with a newer list is looked at again.
        let version = self.version.load(Ordering::Acquire);
        (version, Arc::clone(&self.list.read()))
    }

    /// Whether a process runs the program at this path.
    pub(super) fn is_program(&self, path: &Path, running: Executable) -> bool {
        self.programs.read().get(path) == Some(&running)
    }

    fn take(&self, list: RuleList, root: Option<&Path>) {
        self.look_for_programs(&list, root);
        *self.list.write() = Arc::new(list);
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    fn look_for_programs(&self, list: &RuleList, root: Option<&Path>) {
        let found: HashMap<_, _> = list
            .commands()
            .filter_map(|path| Some((path.to_path_buf(), rules::find_executable(path, root)?)))
            .collect();
        let same = *self.programs.read() == found;
        if !same {
            *self.programs.write() = found;
        }
    }
}

/// The rules of one mount: those of the workspace, then its own.
#[derive(Debug)]
pub(super) struct MountRules {
    /// 0 for those who have none of their own: they share what is cached.
    id: u64,
    combined: Mutex<Option<(u64, Arc<RuleList>)>>,
}

impl MountRules {
    pub(super) fn new(mount: u64, own: &[Rule]) -> Self {
        Self {
            id: if own.is_empty() { 0 } else { mount },
            combined: Mutex::default(),
        }
    }
}

impl Mount {
    /// Which list of rules holds on the mount, among those there are in the guard.
    pub(super) fn rules_id(&self) -> u64 {
        self.rules.id
    }

    /// The rules that hold on the mount.
    pub fn rules(&self) -> Arc<RuleList> {
        let (version, list) = self.guard().workspace.list();
        if self.rules.id == 0 {
            return list;
        }
        let mut combined = self.rules.combined.lock();
        if let Some((known, combined)) = &*combined
            && *known == version
        {
            return Arc::clone(combined);
        }
        let rules = list.rules().iter().chain(&self.options().rules.own).cloned();
        let compiled = RuleList::compile(rules.collect()).unwrap_or_else(|error| {
            log::error!("the rules of the mount cannot be compiled: {error}");
            RuleList::default()
        });
        let compiled = Arc::new(compiled);
        *combined = Some((version, Arc::clone(&compiled)));
        compiled
    }
}

impl Guard {
    /// What is wrong with the file of rules as it is now; the last good rules hold.
    pub fn rules_problem(&self) -> Option<RulesError> {
        self.workspace.problem.lock().clone()
    }

    /// What levels have cost.
    pub fn rule_counts(&self) -> &RuleCounts {
        &self.workspace.counts
    }

    /// The rules of the workspace's file that hold.
    pub fn workspace_rules(&self) -> Arc<RuleList> {
        self.workspace.list().1
    }

    /// Reads the file of rules anew if it has changed, and finds the programs that it names.
    ///
    /// # Errors
    /// What is wrong with the file as it is now: the last good rules hold.
    pub fn look_at_rules(&self) -> Result<(), RulesError> {
        let Ok(root) = self.store.fd(self.store.root()) else {
            return Ok(());
        };
        let root_path = self.root_path.as_deref();
        let now = sys::stat_at(&*root, std::ffi::OsStr::new(FILE_NAME))
            .ok()
            .as_ref()
            .map(seen);
        let changed = {
            let mut looked_at = self.workspace.looked_at.lock();
            let changed = *looked_at != Some(now);
            *looked_at = Some(now);
            changed
        };
        if changed {
            self.read_rules(&root, root_path);
        } else {
            let (_, list) = self.workspace.list();
            self.workspace.look_for_programs(&list, root_path);
        }
        self.rules_problem().map_or(Ok(()), Err)
    }

    fn read_rules(&self, root: &OwnedFd, root_path: Option<&Path>) {
        self.workspace.counts.read.add();
        let read = rules::read(root, root_path).and_then(|(rules, stat)| {
            let compiled = RuleList::compile(rules).map_err(|message| RulesError { at: None, message })?;
            Ok((compiled, stat))
        });
        match read {
            Ok((list, stat)) => {
                *self.workspace.looked_at.lock() = Some(stat.as_ref().map(seen));
                let had_problem = self.workspace.problem.lock().take().is_some();
                let same = self.workspace.list().1.rules() == list.rules();
                if !same || had_problem {
                    self.tell_all(&format!("{FILE_NAME} has changed; its rules as they are now hold"));
                }
                if !same {
                    self.workspace.take(list, root_path);
                    self.places.fetch_add(1, Ordering::AcqRel);
                }
            }
            Err(problem) => {
                let before = self.workspace.problem.lock().replace(problem.clone());
                if before.as_ref() != Some(&problem) {
                    self.tell_all(&format!("{problem}; the rules as they were hold"));
                }
            }
        }
    }

    /// Whether this is the file of rules, by whatever name.
    pub(super) fn is_rules_file(&self, node: &Node) -> bool {
        let key = node.key();
        let known = || {
            let looked_at = self.workspace.looked_at.lock();
            matches!(*looked_at, Some(Some((dev, ino, _))) if (dev, ino) == (key.dev, key.ino))
        };
        known() || node.is_at(self.store.root(), std::ffi::OsStr::new(FILE_NAME))
    }

    /// Says something to everybody who follows refusals, and in the log.
    fn tell_all(&self, line: &str) {
        log::warn!("{line}");
        self.events().notices.tell(None, line, FILE_NAME);
    }

    /// The name of an ignore file is bound or unbound through a mount: what is found there then, however old, says nothing
    /// of what was ignored before.
    pub(super) fn ignore_file_bound(&self, dir: &Node) {
        let mut known = self.workspace.ignores.lock();
        let ignores = known.entry(dir.key()).or_default();
        if ignores.versions.is_empty() {
            ignores.versions.push(Version {
                since: Generation(0),
                made_at: Timestamp::default(),
                file: None,
            });
        }
        drop(known);
    }

    /// The ignore file of a directory: as it is now, or as it was when this change was made.
    pub(super) fn ignore_file(&self, dir: &Arc<Node>, then: Option<Change>) -> Option<Arc<IgnoreFile>> {
        if let Some(change) = then {
            return self.workspace.ignores.lock().get(&dir.key())?.at(&change);
        }
        let fd = self.store.fd(dir).ok()?;
        let now = sys::stat_at(&*fd, std::ffi::OsStr::new(IGNORE_NAME))
            .ok()
            .as_ref()
            .map(seen);
        {
            let known = self.workspace.ignores.lock();
            match known.get(&dir.key()) {
                None if now.is_none() => return None,
                Some(ignores) if ignores.seen == now => return ignores.now(),
                None | Some(_) => {}
            }
        }
        self.workspace.counts.read.add();
        let read = rules::read_ignore_file(&*fd).unwrap_or_else(|error| {
            // What cannot be read ignores nothing: guarded.
            log::info!("an ignore file cannot be read: {error}");
            None
        });
        let (file, stat) = read.unzip();
        // It held already for changes made before it was read only if it has been there since the guard began.
        let began = self.ledger.started();
        let mut known = self.workspace.ignores.lock();
        if known.len() >= MAX_IGNORES {
            known.clear();
        }
        let ignores = known.entry(dir.key()).or_default();
        let old = stat.as_ref().is_some_and(|stat| stat.ctime <= began);
        let (since, made_at) = if old && ignores.versions.is_empty() {
            (Generation(0), Timestamp::default())
        } else {
            let made_at = stat.as_ref().map_or_else(crate::clock::now, |stat| stat.ctime);
            (self.ledger.latest(), made_at)
        };
        let file = file.map(Arc::new);
        let seen = stat.as_ref().map(seen).or(now);
        let version = Version {
            since,
            made_at,
            file: file.clone(),
        };
        ignores.push(seen, version);
        drop(known);
        file
    }
}
