//! Which rules match anything that is there: a walk over the names below a directory, bounded.
//!
//! Never changes or reads a file, and never goes through a mount: it is given the backing directory.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::list::Rule;
use crate::sys::{self, consts};

/// Names looked at, at most.
const NAMES: usize = 20_000;
/// Names matched against rules, at most: so much for each of them.
const TESTS: usize = 1_000_000;
/// Directories below each other, at most.
const DEPTH: usize = 64;
/// Where the guard itself keeps things, at the root.
const OWN: &str = ".unclobber";

struct Open<'r> {
    number: usize,
    rule: &'r Rule,
    glob: Gitignore,
}

struct Walk<'r> {
    /// The rules that have matched nothing yet.
    open: Vec<Open<'r>>,
    names: usize,
    tests: usize,
    /// Everything has been looked at.
    whole: bool,
}

/// Of each rule, whether it matches anything below `root`; unknown where that was not found and not everything could be
/// looked at.
#[must_use]
pub fn matches(root: &OwnedFd, rules: &[Rule]) -> Vec<Option<bool>> {
    let glob = |pattern: &str| {
        let mut builder = GitignoreBuilder::new("");
        builder.add_line(None, pattern).ok()?;
        builder.build().ok()
    };
    let open = rules.iter().enumerate().filter_map(|(number, rule)| {
        let glob = glob(&rule.pattern)?;
        Some(Open { number, rule, glob })
    });
    let mut walk = Walk {
        open: open.collect(),
        names: 0,
        tests: 0,
        whole: true,
    };
    walk.directory(root, Path::new(""), (false, DEPTH));
    let mut found = vec![Some(true); rules.len()];
    for left in &walk.open {
        found[left.number] = if walk.whole { Some(false) } else { None };
    }
    found
}

impl Walk<'_> {
    fn is_over(&self) -> bool {
        self.open.is_empty() || self.names >= NAMES || self.tests >= TESTS
    }

    fn directory(&mut self, dir: impl AsFd, path: &Path, (in_git, depth): (bool, usize)) {
        let Ok(reading) = sys::reopen(&dir, consts::O_RDONLY | consts::O_DIRECTORY) else {
            self.whole = false;
            return;
        };
        let mut buffer = vec![0; 1 << 15];
        loop {
            let entries = match sys::read_dir_entries(&reading, &mut buffer) {
                Ok(entries) if entries.is_empty() => return,
                Ok(entries) => entries,
                Err(_) => {
                    self.whole = false;
                    return;
                }
            };
            let mut below = Vec::new();
            for entry in entries {
                if [".", ".."].iter().any(|dots| entry.name == *dots) || (path == Path::new("") && entry.name == OWN) {
                    continue;
                }
                if self.is_over() {
                    self.whole = false;
                    return;
                }
                let is_dir = match entry.kind {
                    consts::DT_UNKNOWN => sys::stat_at(&dir, entry.name).is_ok_and(|stat| stat.is_dir()),
                    kind => kind == consts::DT_DIR,
                };
                let in_git = in_git || entry.name == ".git";
                let here = path.join(entry.name);
                self.look(&here, is_dir, in_git);
                if is_dir && (!in_git || self.open.iter().any(|open| open.rule.names_git())) {
                    below.push((here, entry.name.to_owned(), in_git));
                }
            }
            for (here, name, in_git) in below {
                self.enter(&dir, &name, &here, (in_git, depth));
            }
        }
    }

    fn enter(&mut self, dir: impl AsFd, name: &std::ffi::OsStr, path: &Path, (in_git, depth): (bool, usize)) {
        if self.open.is_empty() {
            return;
        }
        match sys::open_child(dir, name) {
            Ok(found) if depth > 0 => self.directory(found, path, (in_git, depth - 1)),
            Ok(_) | Err(_) => self.whole = false,
        }
    }

    fn look(&mut self, path: &Path, is_dir: bool, in_git: bool) {
        self.names += 1;
        self.tests += self.open.len();
        self.open
            .retain(|open| (in_git && !open.rule.names_git()) || !open.glob.matched(path, is_dir).is_ignore());
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::parse_word;
    use super::*;

    fn look(dir: &Path, words: &[&str]) -> Vec<Option<bool>> {
        let root = sys::open_path(dir, consts::O_PATH | consts::O_DIRECTORY).unwrap();
        let rules: Vec<Rule> = words.iter().map(|word| parse_word(word).unwrap()).collect();
        matches(&root, &rules)
    }

    // semantics: L15
    #[test]
    fn what_matches_nothing_is_found() {
        let tmp = tempfile::tempdir().unwrap();
        fs::create_dir_all(tmp.path().join("docs/deep")).unwrap();
        fs::create_dir_all(tmp.path().join(".git/hooks")).unwrap();
        fs::create_dir_all(tmp.path().join(".unclobber")).unwrap();
        fs::write(tmp.path().join("docs/deep/a.md"), "").unwrap();
        fs::write(tmp.path().join(".git/hooks/run"), "").unwrap();
        fs::write(tmp.path().join(".unclobber/kept.jsonl"), "").unwrap();
        let words = [
            "keep:*.md",
            "keep:docs/**",
            "keep:doc/**",
            "off:deep/",
            "off:a.md/",
            "keep:/a.md",
            "keep:run",
            "keep:.git/hooks/run",
            "keep:*.jsonl",
        ];
        let found: Vec<bool> = look(tmp.path(), &words).into_iter().map(Option::unwrap).collect();
        assert_eq!(found, [true, true, false, true, false, false, false, true, false]);
    }

    #[test]
    fn a_walk_that_was_cut_short_says_so() {
        let tmp = tempfile::tempdir().unwrap();
        let mut dir = tmp.path().to_path_buf();
        for _ in 0..=DEPTH + 1 {
            dir.push("d");
            fs::create_dir(&dir).unwrap();
        }
        assert_eq!(look(tmp.path(), &["keep:d", "keep:none"]), [Some(true), None]);
    }
}
