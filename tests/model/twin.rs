//! The twin: a plain directory on which every operation that is not refused is repeated. It says what the backing
//! filesystem would answer, and which names and contents there must be.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::oracle::Entry;

/// What a name leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Dir,
    Symlink(String),
}

/// The names there are, and the contents of every file that ever was, by inode number.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    pub(crate) names: BTreeMap<Entry, (u64, Kind)>,
    /// Content, and the time of the last change of anything.
    pub(crate) files: BTreeMap<u64, (Vec<u8>, (i64, i64))>,
    root: u64,
}

/// Where a path leads.
#[derive(Debug, Clone, Default)]
pub(crate) struct Place {
    /// The name at which a lookup finds nothing, though the walk had to go on.
    pub(crate) missing_parent: Option<Entry>,
    /// The last name.
    pub(crate) entry: Option<Entry>,
    /// What it leads to.
    pub(crate) there: Option<(u64, Kind)>,
}

impl Place {
    /// The regular file there.
    pub(crate) fn file(&self) -> Option<u64> {
        match &self.there {
            Some((file, Kind::File)) => Some(*file),
            _ => None,
        }
    }

    pub(crate) fn is_free(&self) -> bool {
        self.entry.is_some() && self.there.is_none()
    }

    /// The name of which a caller is told that nothing is there, if it is told so.
    pub(crate) fn missed(&self) -> Option<&Entry> {
        self.missing_parent
            .as_ref()
            .or(if self.is_free() { self.entry.as_ref() } else { None })
    }
}

impl Snapshot {
    pub(crate) fn resolve(&self, path: &str, follow: bool) -> Place {
        self.walk(self.root, path, follow, 0)
    }

    fn walk(&self, dir: u64, path: &str, follow: bool, depth: u32) -> Place {
        let (name, rest) = path
            .split_once('/')
            .map_or((path, None), |(name, rest)| (name, Some(rest)));
        let entry = (dir, name.to_owned());
        let there = self.names.get(&entry).cloned();
        match (there, rest) {
            (Some((_, Kind::Symlink(target))), _) if rest.is_some() || follow => {
                let whole = rest.map_or(target.clone(), |rest| format!("{target}/{rest}"));
                if depth > 40 {
                    Place::default()
                } else {
                    self.walk(dir, &whole, follow, depth + 1)
                }
            }
            (there, None) => Place {
                missing_parent: None,
                entry: Some(entry),
                there,
            },
            (Some((dir, Kind::Dir)), Some(rest)) => self.walk(dir, rest, follow, depth),
            (Some(_), Some(_)) => Place::default(),
            (None, Some(_)) => Place {
                missing_parent: Some(entry),
                ..Place::default()
            },
        }
    }

    /// Whether any name leads to a file.
    pub(crate) fn leads_to(&self, number: u64) -> bool {
        self.names.values().any(|(there, _)| *there == number)
    }

    /// The path of a name.
    pub(crate) fn path_of(&self, (dir, name): &Entry) -> Option<String> {
        if *dir == self.root {
            return Some(name.clone());
        }
        let (parent, _) = self.names.iter().find(|(_, (number, _))| number == dir)?;
        Some(format!("{}/{name}", self.path_of(parent)?))
    }

    /// The names whose binding differs, with what they lead to in `after`.
    pub(crate) fn rebound<'a>(&'a self, after: &'a Self) -> Vec<(&'a Entry, Option<(u64, Kind)>)> {
        let mut names: Vec<&Entry> = self.names.keys().chain(after.names.keys()).collect();
        names.sort();
        names.dedup();
        names.retain(|name| self.names.get(*name) != after.names.get(*name));
        names
            .into_iter()
            .map(|name| (name, after.names.get(name).cloned()))
            .collect()
    }

    /// The files whose content differs, or also those of which anything else does.
    pub(crate) fn changed(&self, after: &Self, in_any_way: bool) -> Vec<u64> {
        let differs = |file: &u64, now: &(Vec<u8>, (i64, i64))| match self.files.get(file) {
            None => true,
            Some(before) => before.0 != now.0 || in_any_way && before.1 != now.1,
        };
        after
            .files
            .iter()
            .filter(|(file, now)| differs(file, now))
            .map(|(file, _)| *file)
            .collect()
    }
}

/// The plain directory.
#[derive(Debug)]
pub(crate) struct Twin {
    pub(crate) root: PathBuf,
    /// Every inode seen is held open, so that no number is used twice.
    pins: BTreeMap<u64, (File, bool)>,
}

impl Twin {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self {
            root,
            pins: BTreeMap::new(),
        }
    }

    pub(crate) fn look(&mut self) -> Snapshot {
        let mut snapshot = Snapshot {
            root: fs::metadata(&self.root).unwrap().ino(),
            ..Snapshot::default()
        };
        let root = self.root.clone();
        self.enter(&root, &mut snapshot);
        for (number, (pin, regular)) in &self.pins {
            if *regular {
                let meta = pin.metadata().unwrap();
                let mut content = vec![0; usize::try_from(meta.len()).unwrap()];
                pin.read_exact_at(&mut content, 0).unwrap();
                snapshot
                    .files
                    .insert(*number, (content, (meta.ctime(), meta.ctime_nsec())));
            }
        }
        snapshot
    }

    fn enter(&mut self, dir: &Path, snapshot: &mut Snapshot) {
        let number = fs::metadata(dir).unwrap().ino();
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let path = entry.path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let kind = kind(&path, &meta);
            self.pins.entry(meta.ino()).or_insert_with(|| {
                let flags = libc::O_NOFOLLOW | if kind == Kind::File { 0 } else { libc::O_PATH };
                (
                    OpenOptions::new().read(true).custom_flags(flags).open(&path).unwrap(),
                    kind == Kind::File,
                )
            });
            if kind == Kind::Dir {
                self.enter(&path, snapshot);
            }
            snapshot
                .names
                .insert((number, entry.file_name().into_string().unwrap()), (meta.ino(), kind));
        }
    }
}

fn kind(path: &Path, meta: &fs::Metadata) -> Kind {
    if meta.is_dir() {
        Kind::Dir
    } else if meta.is_symlink() {
        Kind::Symlink(fs::read_link(path).unwrap().to_str().unwrap().to_owned())
    } else {
        Kind::File
    }
}

/// A tree as text: paths, permissions, link counts, link targets and contents.
pub(crate) fn listing(root: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    list(root, "", &mut found);
    found
}

/// The contents kept in the attic of a backing directory.
pub(crate) fn attic(backing: &Path) -> Vec<Vec<u8>> {
    let Ok(entries) = fs::read_dir(backing.join(".unclobber/attic")) else {
        return Vec::new();
    };
    entries.map(|entry| fs::read(entry.unwrap().path()).unwrap()).collect()
}

fn list(dir: &Path, prefix: &str, found: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let path = entry.path();
        let shown = format!("{prefix}{name}");
        let meta = fs::symlink_metadata(&path).unwrap();
        let about = match kind(&path, &meta) {
            Kind::Dir => format!("{:o} directory", meta.mode()),
            Kind::Symlink(target) => format!("-> {target}"),
            Kind::File => {
                let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
                format!("{:o} {} {} {text:?}", meta.mode(), meta.nlink(), meta.len())
            }
        };
        found.insert(shown.clone(), about);
        if meta.is_dir() {
            list(&path, &format!("{shown}/"), found);
        }
    }
}
