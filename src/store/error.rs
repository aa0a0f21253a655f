//! What can go wrong below a judgement, by what the caller can do about it.

use crate::sys::SysError;

/// What stands at a name that somebody else won.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Winner {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link, fifo, socket or device.
    Other,
    /// Nothing any more.
    Nothing,
}

/// An error of the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A system call failed; the backing filesystem's own answer.
    #[error(transparent)]
    Sys(#[from] SysError),
    /// The node is no longer where it was found: look the name up again.
    #[error("the file is no longer where it was found")]
    Moved,
    /// Somebody else bound the name, or changed the file, between judgement and change. Nothing was touched.
    #[error("lost a race: the name now leads to {0:?}")]
    Lost(Winner),
    /// The content there is not the version that was judged. Nothing was touched.
    #[error("the file changed between judgement and change")]
    Changed,
}

/// The result of a store operation.
pub type Result<T> = std::result::Result<T, StoreError>;

impl StoreError {
    /// Whether the backing filesystem answered with this errno.
    #[must_use]
    pub fn is(&self, errno: i32) -> bool {
        matches!(self, Self::Sys(error) if error.errno() == errno)
    }
}
