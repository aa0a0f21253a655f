//! One glob for paths, as in a `.gitignore`, for those who filter by it.

use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::list::check_pattern;

/// A compiled glob.
#[derive(Debug)]
pub struct Glob(Gitignore);

impl Glob {
    /// Compiles it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(glob: &str) -> Result<Self, String> {
        check_pattern(glob)?;
        let mut builder = GitignoreBuilder::new("");
        let told = |error: ignore::Error| error.to_string();
        builder.add_line(None, glob).map_err(told)?;
        builder.build().map(Self).map_err(told)
    }

    /// Whether it matches a path from the root, or a directory above it.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        !path.is_empty() && self.0.matched_path_or_any_parents(path, false).is_ignore()
    }
}
