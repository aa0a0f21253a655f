//! How closely a path is guarded, by its name: the levels and the built-in rules.
//!
//! Owns the list of what can be made again, or has a lock protocol of its own. Never looks at the disk: where a name
//! alone does not settle it, the verdict names the evidence to look for.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// How closely something is guarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Level {
    /// The decision table applies.
    #[default]
    Guard,
    /// Nothing is refused; displaced content is kept.
    Keep,
    /// Nothing is judged or kept.
    Off,
}

impl Level {
    /// The level as it is written in rules and reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Guard => "guard",
            Self::Keep => "keep",
            Self::Off => "off",
        }
    }

    /// The level of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Guard, Self::Keep, Self::Off]
            .into_iter()
            .find(|level| level.as_str() == name)
    }

    /// Whether what is at this level is guarded less closely than at the other.
    #[must_use]
    pub const fn is_looser_than(self, other: Self) -> bool {
        self.rank() < other.rank()
    }

    const fn rank(self) -> u8 {
        match self {
            Self::Off => 0,
            Self::Keep => 1,
            Self::Guard => 2,
        }
    }
}

/// What a name belongs to, as far as rules care.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A directory.
    Directory,
    /// Anything else.
    File,
}

/// Evidence that a directory of an ambiguous name is derived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Marker {
    /// This name exists beside it.
    Sibling(&'static str),
    /// This name exists in it.
    Child(&'static str),
}

/// What a name says about its level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The level.
    Level(Level),
    /// [`Level::Off`] if one of these exists, else the level of the parent.
    IfAny(&'static [Marker]),
}

/// One rule. The first that matches decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// A glob for one name: `*`, `?` and `[a-z]`.
    pub pattern: &'static str,
    /// What it applies to; `None` is everything.
    pub kind: Option<Kind>,
    /// The level it gives.
    pub level: Level,
    /// If there are any, one of them must exist for the rule to apply.
    pub markers: &'static [Marker],
    /// Why the rule is there, for whoever asks.
    pub why: &'static str,
}

const SECRET: &str = "secrets and databases cannot be made again";
const SQLITE: &str = "a journal that SQLite shares between processes by locks of its own";
const GIT: &str = "git has its own lock protocol, and a refusal inside it corrupts repositories";
const INSTALLED: &str = "installed packages, made again by the package manager";
const CACHE: &str = "a tool's cache, made again by the tool";
const BUILT: &str = "build output, made again by the build";
const EDITOR: &str = "an editor's swap, lock or backup file, managed by the editor";

/// The built-in rules, in order.
pub const BUILT_IN: &[Rule] = &[
    // Before the databases themselves, whose patterns they match.
    Rule {
        pattern: "*.db-shm",
        kind: Some(Kind::File),
        level: Level::Off,
        markers: &[],
        why: SQLITE,
    },
    Rule {
        pattern: "*.db-wal",
        kind: Some(Kind::File),
        level: Level::Off,
        markers: &[],
        why: SQLITE,
    },
    Rule {
        pattern: "*.db-journal",
        kind: Some(Kind::File),
        level: Level::Off,
        markers: &[],
        why: SQLITE,
    },
    Rule {
        pattern: "*.sqlite*-shm",
        kind: Some(Kind::File),
        level: Level::Off,
        markers: &[],
        why: SQLITE,
    },
    Rule {
        pattern: "*.sqlite*-wal",
        kind: Some(Kind::File),
        level: Level::Off,
        markers: &[],
        why: SQLITE,
    },
    Rule {
        pattern: "*.sqlite*-journal",
        kind: Some(Kind::File),
        level: Level::Off,
        markers: &[],
        why: SQLITE,
    },
    // Next, so that no rule for derived files takes them.
    Rule {
        pattern: ".env*",
        kind: Some(Kind::File),
        level: Level::Guard,
        markers: &[],
        why: SECRET,
    },
    Rule {
        pattern: "*.pem",
        kind: Some(Kind::File),
        level: Level::Guard,
        markers: &[],
        why: SECRET,
    },
    Rule {
        pattern: "*.key",
        kind: Some(Kind::File),
        level: Level::Guard,
        markers: &[],
        why: SECRET,
    },
    Rule {
        pattern: "*.sqlite*",
        kind: Some(Kind::File),
        level: Level::Guard,
        markers: &[],
        why: SECRET,
    },
    Rule {
        pattern: "*.db",
        kind: Some(Kind::File),
        level: Level::Guard,
        markers: &[],
        why: SECRET,
    },
    // A file in worktrees and submodules.
    off(".git", None, GIT),
    directory("node_modules", INSTALLED),
    directory(".venv", INSTALLED),
    if_any("venv", &[Marker::Child("pyvenv.cfg")], INSTALLED),
    directory("__pycache__", CACHE),
    directory(".pytest_cache", CACHE),
    directory(".mypy_cache", CACHE),
    directory(".ruff_cache", CACHE),
    directory(".tox", CACHE),
    directory(".nox", CACHE),
    // The one in a home holds settings and credentials.
    if_any(".gradle", GRADLE, CACHE),
    directory(".next", CACHE),
    directory(".nuxt", CACHE),
    directory(".svelte-kit", CACHE),
    directory(".parcel-cache", CACHE),
    directory(".turbo", CACHE),
    directory(".sass-cache", CACHE),
    // Homes have a .cache too, and that holds more than tools make again.
    if_any(
        ".cache",
        &[
            Marker::Child("CACHEDIR.TAG"),
            Marker::Child("clangd"),
            Marker::Sibling("package.json"),
        ],
        CACHE,
    ),
    if_any("target", TARGET, BUILT),
    if_any("build", BUILD, BUILT),
    if_any("cmake-build-*", CMAKE, BUILT),
    if_any("dist", DIST, BUILT),
    directory("CMakeFiles", BUILT),
    directory("*.egg-info", BUILT),
    file("*.[oa]", BUILT),
    file("*.d", BUILT),
    file("*.lo", BUILT),
    file("*.class", BUILT),
    file("*.py[co]", BUILT),
    file(".*.sw[j-px]", EDITOR),
    file(".*.kate-swp", EDITOR),
    file("*~", EDITOR),
    file(".#*", EDITOR),
    file("#*#", EDITOR),
];

/// Whether a name is evidence for some directory, beside it or in it.
#[must_use]
pub fn is_marker(name: &OsStr) -> bool {
    let is = |marker: &Marker| match marker {
        Marker::Sibling(marker) | Marker::Child(marker) => name == OsStr::new(marker),
    };
    BUILT_IN.iter().any(|rule| rule.markers.iter().any(is))
}

const TARGET: &[Marker] = &[
    Marker::Sibling("Cargo.toml"),
    Marker::Sibling("pom.xml"),
    Marker::Sibling("build.sbt"),
    CACHEDIR_TAG,
];
const BUILD: &[Marker] = &[
    Marker::Child("CMakeCache.txt"),
    Marker::Child("build.ninja"),
    CACHEDIR_TAG,
    Marker::Sibling("package.json"),
    Marker::Sibling("pyproject.toml"),
    Marker::Sibling("setup.py"),
    Marker::Sibling("build.gradle"),
    Marker::Sibling("build.gradle.kts"),
];
const GRADLE: &[Marker] = &[
    Marker::Sibling("build.gradle"),
    Marker::Sibling("build.gradle.kts"),
    Marker::Sibling("settings.gradle"),
    Marker::Sibling("settings.gradle.kts"),
];
const CMAKE: &[Marker] = &[Marker::Child("CMakeCache.txt"), Marker::Sibling("CMakeLists.txt")];
const DIST: &[Marker] = &[
    CACHEDIR_TAG,
    Marker::Sibling("package.json"),
    Marker::Sibling("pyproject.toml"),
    Marker::Sibling("setup.py"),
    Marker::Sibling("setup.cfg"),
];
const CACHEDIR_TAG: Marker = Marker::Child("CACHEDIR.TAG");

const fn off(pattern: &'static str, kind: Option<Kind>, why: &'static str) -> Rule {
    Rule {
        pattern,
        kind,
        level: Level::Off,
        markers: &[],
        why,
    }
}

const fn directory(pattern: &'static str, why: &'static str) -> Rule {
    off(pattern, Some(Kind::Directory), why)
}

const fn file(pattern: &'static str, why: &'static str) -> Rule {
    off(pattern, Some(Kind::File), why)
}

const fn if_any(pattern: &'static str, markers: &'static [Marker], why: &'static str) -> Rule {
    Rule {
        pattern,
        kind: Some(Kind::Directory),
        level: Level::Off,
        markers,
        why,
    }
}

/// What the built-in rules say about a name in a directory of level `parent`.
///
/// Off holds for everything below, also for secrets: inside a tree that is rewritten by its own protocol a single
/// guarded file would be refused half-way through.
#[must_use]
pub fn of_name(parent: Level, name: &OsStr, kind: Kind) -> Verdict {
    if parent == Level::Off {
        return Verdict::Level(Level::Off);
    }
    let rule = matching(name, kind).map(|index| &BUILT_IN[index]);
    match rule {
        None => Verdict::Level(parent),
        Some(rule) if rule.markers.is_empty() => Verdict::Level(rule.level),
        Some(rule) => Verdict::IfAny(rule.markers),
    }
}

/// The number of the built-in rule that speaks of a name. One with markers applies only where one of them is.
#[must_use]
pub fn matching(name: &OsStr, kind: Kind) -> Option<usize> {
    let name = name.as_bytes();
    BUILT_IN
        .iter()
        .position(|rule| rule.kind.is_none_or(|applies| applies == kind) && glob(rule.pattern.as_bytes(), name))
}

/// Whether `name` as a whole matches a pattern of `*`, `?`, `[a-z]` and plain bytes.
fn glob(pattern: &[u8], name: &[u8]) -> bool {
    let (mut pattern, mut name) = (pattern, name);
    // Where to go on after a mismatch: behind the last star, with one more byte of the name given to it.
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', rest @ ..] = pattern {
            pattern = rest;
            retry = Some((rest, name));
        } else if let Some(rest) = one(pattern, name) {
            (pattern, name) = (rest, &name[1..]);
        } else if pattern.is_empty() && name.is_empty() {
            return true;
        } else {
            let Some((after, [_, shorter @ ..])) = retry else {
                return false;
            };
            (pattern, name) = (after, shorter);
            retry = Some((after, shorter));
        }
    }
}

/// What is left of the pattern after it matched the first byte of the name.
fn one<'p>(pattern: &'p [u8], name: &[u8]) -> Option<&'p [u8]> {
    let byte = *name.first()?;
    match pattern {
        [b'?', rest @ ..] => Some(rest),
        [b'[', set @ ..] => {
            let end = set.iter().position(|close| *close == b']')?;
            in_set(&set[..end], byte).then_some(&set[end + 1..])
        }
        [plain, rest @ ..] => (*plain == byte).then_some(rest),
        [] => None,
    }
}

fn in_set(set: &[u8], byte: u8) -> bool {
    match set {
        [low, b'-', high, rest @ ..] => (*low..=*high).contains(&byte) || in_set(rest, byte),
        [plain, rest @ ..] => *plain == byte || in_set(rest, byte),
        [] => false,
    }
}
