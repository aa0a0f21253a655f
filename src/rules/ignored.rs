//! Git's ignore files, one per directory.
//!
//! A line that git would not understand matches nothing, as with git. Symbolic links are not followed, as with git.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::sys::Stat;

/// Their name.
pub const IGNORE_NAME: &str = ".gitignore";

/// One ignore file.
#[derive(Debug)]
pub struct IgnoreFile(Gitignore);

impl IgnoreFile {
    /// Compiles its text.
    #[must_use]
    pub fn compile(text: &[u8]) -> Self {
        let mut builder = GitignoreBuilder::new(".");
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let Ok(line) = std::str::from_utf8(line) else { continue };
            let line = line.strip_suffix('\r').unwrap_or(line);
            let line = if index == 0 {
                line.strip_prefix('\u{feff}').unwrap_or(line)
            } else {
                line
            };
            let number = PathBuf::from((index + 1).to_string());
            if let Err(error) = builder.add_line(Some(number), line) {
                log::debug!("line {} of an ignore file: {error}", index + 1);
            }
        }
        Self(builder.build().unwrap_or_else(|error| {
            log::info!("an ignore file counts for nothing: {error}");
            Gitignore::empty()
        }))
    }

    /// Whether it says that a path, from its own directory, is ignored or is not, and in which line.
    #[must_use]
    pub fn verdict(&self, path: &Path, is_dir: bool) -> Option<(bool, usize)> {
        let found = self.0.matched(path, is_dir);
        let line = |glob: &ignore::gitignore::Glob| glob.from()?.to_str()?.parse().ok();
        match found {
            Match::None => None,
            Match::Ignore(glob) => Some((true, line(glob).unwrap_or(0))),
            Match::Whitelist(glob) => Some((false, line(glob).unwrap_or(0))),
        }
    }
}

/// Reads the ignore file of a directory, if there is one.
///
/// # Errors
/// When there is something that cannot be read.
pub fn read_ignore_file(dir: impl AsFd) -> io::Result<Option<(IgnoreFile, Stat)>> {
    let found = super::read_named(dir, IGNORE_NAME)?;
    Ok(found.map(|(text, stat)| (IgnoreFile::compile(&text), stat)))
}
