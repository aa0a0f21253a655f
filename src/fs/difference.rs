//! What changed since an owner looked: the difference between the version it saw, where a copy of that was kept, and
//! what is there.
//!
//! Bounded in size, lines and time. Never shows content to somebody who may not read it, and is no observation.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use similar::TextDiff;

use super::Guard;
use super::errno::Result;
use crate::guard::{FileKey, Version};
use crate::store::{Kept, KeptFiles};

/// Largest file that is compared.
const SIZE_LIMIT: u64 = 1 << 20;
/// Most lines shown.
const LINE_LIMIT: usize = 200;
/// Most bytes shown, as they are sent.
const COST_LIMIT: usize = 40_000;
/// Longest that is spent on finding a short difference.
const TIME_LIMIT: Duration = Duration::from_millis(500);

/// What changed, or why that cannot be shown.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Difference {
    /// In the unified form, control characters escaped.
    pub text: Option<String>,
    /// More has changed than is shown.
    pub cut: bool,
    /// Why nothing is shown.
    pub none: Option<String>,
}

impl Difference {
    pub(super) fn none(why: impl Into<String>) -> Self {
        Self {
            none: Some(why.into()),
            ..Self::default()
        }
    }
}

impl Guard {
    /// The kept copy of a version of a file that was at `path`.
    pub(super) fn kept_copy(&self, key: FileKey, version: Version, path: &str) -> Option<Kept> {
        let root = self.store.fd(self.store.root()).ok()?;
        let kept = KeptFiles::open(&root).ok()??.list().ok()?;
        kept.kept.into_iter().find(|kept| {
            let same_place = kept.note.as_ref().is_some_and(|note| note.path == path);
            kept.file.is_some_and(|file| {
                file.is_file()
                    && file.size == version.size
                    && file.mtime == version.mtime
                    && (same_place || file.ino == key.ino)
            })
        })
    }

    /// Opens a kept copy.
    pub(super) fn open_kept(&self, id: &str) -> Result<Option<OwnedFd>> {
        let root = self.store.fd(self.store.root())?;
        Ok(KeptFiles::open(&root)?.map(|kept| kept.open_file(id)).transpose()?)
    }
}

/// The difference between two open files; `None` for what is not there.
pub(super) fn compare(seen: OwnedFd, there: Option<OwnedFd>) -> Difference {
    let (Ok(seen), Ok(there)) = (text(seen), there.map_or(Ok(Some(String::new())), text)) else {
        return Difference::none("it cannot be read");
    };
    let (Some(seen), Some(there)) = (seen, there) else {
        return Difference::none("it is not text, or too large to compare");
    };
    if seen == there {
        return Difference::none("the bytes are the same as in the version that was read");
    }
    let mut config = TextDiff::configure();
    config.timeout(TIME_LIMIT);
    let diff = config.diff_lines(&seen, &there);
    let unified = diff
        .unified_diff()
        .context_radius(3)
        .header("the version that was read", "there now")
        .to_string();
    shorten(&unified)
}

/// The content, if it is text of a bearable size.
fn text(file: OwnedFd) -> std::io::Result<Option<String>> {
    let mut bytes = Vec::new();
    File::from(file).take(SIZE_LIMIT + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > SIZE_LIMIT || bytes.contains(&0) {
        return Ok(None);
    }
    Ok(String::from_utf8(bytes).ok())
}

fn shorten(unified: &str) -> Difference {
    let (mut text, mut cost, mut cut) = (String::new(), 0, false);
    for (count, line) in unified.lines().enumerate() {
        let line = escape(line);
        // Backslashes and quotes take two bytes in a message.
        cost += line.len() + line.matches(['\\', '"', '\t']).count() + 2;
        if count == LINE_LIMIT || cost > COST_LIMIT {
            cut = true;
            break;
        }
        text.push_str(&line);
        text.push('\n');
    }
    Difference {
        text: Some(text),
        cut,
        none: None,
    }
}

/// Nothing that a terminal would obey.
fn escape(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    for character in line.chars() {
        if character == '\t' || !character.is_control() {
            out.push(character);
        } else {
            out.extend(character.escape_default());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_short_and_harmless() {
        let long: String = (0..1000).map(|n| format!("+line {n}\n")).collect();
        let shown = shorten(&long);
        assert!(shown.cut);
        assert_eq!(shown.text.unwrap().lines().count(), LINE_LIMIT);
        let wide = format!("+{}\n", "\u{1b}".repeat(20_000));
        let shown = shorten(&wide);
        assert!(shown.cut && shown.text.unwrap().is_empty());
        assert_eq!(escape("a\tb\u{1b}[2J"), "a\tb\\u{1b}[2J");
    }

    #[test]
    fn two_files_are_compared() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, content).unwrap();
            OwnedFd::from(File::open(path).unwrap())
        };
        let shown = compare(file("a", b"one\ntwo\n"), Some(file("b", b"one\n2\n")));
        let text = shown.text.unwrap();
        assert!(text.contains("-two\n+2\n") && text.contains(" one\n"), "{text}");
        assert!(compare(file("a", b"\0"), Some(file("b", b"x"))).none.is_some());
        let gone = compare(file("a", b"x\n"), None).text.unwrap();
        assert!(gone.contains("-x\n"), "{gone}");
    }
}
