//! One glob for paths, as in a `.gitignore`, for those who filter by it.

use ignore::gitignore::{Gitignore, GitignoreBuilder};

/// A compiled glob.
#[derive(Debug)]
pub struct Glob(Gitignore);

impl Glob {
    /// Compiles it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(glob: &str) -> Result<Self, ignore::Error> {
        let mut builder = GitignoreBuilder::new("");
        builder.add_line(None, glob)?;
        builder.build().map(Self)
    }

    /// Whether it matches a path from the root, or a directory above it.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        !path.is_empty() && self.0.matched_path_or_any_parents(path, false).is_ignore()
    }
}
