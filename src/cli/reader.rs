//! Whom the lines of a `run` are for: paths and commands in them as that reader can use them.
//!
//! It never prints anything itself.

use std::path::{Path, PathBuf};

use super::why_screen::shell_word;
use crate::control::Refusal;
use crate::guard::{SHOW, printable};

/// Whom the lines are for.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    /// Where the guarded directory is, if its paths do not lead from where the command was started.
    pub(crate) root: Option<PathBuf>,
    /// The guarded directory itself, outside of any mount, if the command was not started there: the attic's commands name it.
    pub(crate) directory: Option<PathBuf>,
    /// Nobody gave the owner a name: it is that of this `run` alone.
    pub(crate) nameless: bool,
}

impl Reader {
    /// A path that can be used as it is.
    pub(super) fn path(&self, path: &str) -> String {
        let shown = self.root.as_ref().map(|root| root.join(path));
        shown.map_or_else(|| path.to_owned(), |shown| shown.to_string_lossy().into_owned())
    }

    /// The command that prints what is kept under this id.
    pub(super) fn show_kept(&self, id: &str) -> String {
        match &self.directory {
            Some(directory) => format!("{SHOW} -w {} {id}", shell_word(directory)),
            None => format!("{SHOW} {id}"),
        }
    }

    /// The command that lists what is kept.
    pub(super) fn list_kept(&self) -> String {
        match &self.directory {
            Some(directory) => format!("unclobber attic list {}", shell_word(directory)),
            None => "unclobber attic list".to_owned(),
        }
    }

    /// The guard's line about a refusal of this path and code, with such a path; and with such a command, if what was
    /// written is kept.
    pub(super) fn line(&self, line: &str, (path, code): (&str, &str), kept: Option<&str>) -> String {
        let mut line = line.to_owned();
        if self.root.is_some() {
            let part = |path: &str| format!(" {}: {code} (", printable(path));
            line = line.replacen(&part(path), &part(&self.path(path)), 1);
        }
        match kept {
            Some(id) => line.replacen(&format!("`{SHOW} {id}`"), &format!("`{}`", self.show_kept(id)), 1),
            None => line,
        }
    }

    /// A line that was sent without an event: something else that is to be told, or a refusal of a very long path.
    pub(super) fn bare(&self, told: &Refusal) -> String {
        let line = &told.line;
        if self.root.is_none() {
            return line.clone();
        }
        let found = match &told.path {
            Some(path) => {
                let shown = printable(path);
                let start = format!(" {shown} by owner ");
                let at = if line.starts_with(&shown) {
                    Some(0)
                } else {
                    line.find(&start).map(|at| at + 1)
                };
                at.map(|at| (at, at + shown.len()))
            }
            None => path_of(line),
        };
        let parts = found.and_then(|(start, end)| Some((line.get(..start)?, line.get(start..end)?, line.get(end..)?)));
        match parts {
            Some((before, path, after)) => format!("{before}{}{after}", self.path(path)),
            None => line.clone(),
        }
    }
}

/// Where the path stands in the line of a refusal, as it is printed.
fn path_of(line: &str) -> Option<(usize, usize)> {
    const WORD: &str = "refused: ";
    let start = line.find(WORD)? + WORD.len();
    let start = start + line.get(start..)?.find(' ')? + 1;
    let start = if line.get(start..)?.starts_with("to ") {
        start + "to ".len()
    } else {
        start
    };
    let end = start + line.get(start..)?.find(": FS_")?;
    Some((start, end))
}

/// The guarded directory, unless this was started there.
pub(super) fn directory_to_name(directory: &Path) -> Option<PathBuf> {
    let is_here = std::env::current_dir().is_ok_and(|here| here == directory);
    (!is_here).then(|| directory.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader() -> Reader {
        Reader {
            root: Some("/w".into()),
            directory: Some("/w x".into()),
            nameless: false,
        }
    }

    #[test]
    fn a_refusal_without_an_event_has_a_path_that_can_be_used() {
        let told = |line: &str| Refusal {
            line: line.to_owned(),
            ..Refusal::default()
        };
        for (line, shown) in [
            ("refused: open a b: FS_X (y): z", "refused: open /w/a b: FS_X (y): z"),
            (
                "would be refused: write to d/f: FS_X (y): z",
                "would be refused: write to /w/d/f: FS_X (y): z",
            ),
            (
                "3 more refusals could not be shown",
                "3 more refusals could not be shown",
            ),
        ] {
            assert_eq!(reader().bare(&told(line)), shown);
        }
        assert_eq!(
            Reader::default().bare(&told("refused: open a: FS_X")),
            "refused: open a: FS_X"
        );
    }

    #[test]
    fn so_has_what_else_is_told() {
        let told = |path: &str, line: &str| Refusal {
            line: line.to_owned(),
            path: Some(path.to_owned()),
            notice: true,
            ..Refusal::default()
        };
        assert_eq!(
            reader().bare(&told("o", "allowed once: open o by owner \"A\", which")),
            "allowed once: open /w/o by owner \"A\", which"
        );
        assert_eq!(
            reader().bare(&told(".unclobber.toml", ".unclobber.toml: line 1, column 2: no")),
            "/w/.unclobber.toml: line 1, column 2: no"
        );
    }

    #[test]
    fn the_command_for_what_is_kept_names_the_directory() {
        let line = "refused: write to f: FS_S (y): it is kept as 1-2-3 (outside: `unclobber attic show 1-2-3`); read";
        assert_eq!(
            reader().line(line, ("f", "FS_S"), Some("1-2-3")),
            "refused: write to /w/f: FS_S (y): it is kept as 1-2-3 (outside: `unclobber attic show -w '/w x' 1-2-3`); read"
        );
        assert_eq!(Reader::default().line(line, ("f", "FS_S"), Some("1-2-3")), line);
    }
}
