//! The one table from errors to errno. Total: a new kind of error does not compile until it has a number.

use crate::guard::{Code, Intent, Reason, There};
use crate::store::{StoreError, Winner, libc_flags as c};
use crate::sys::SysError;

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum FsError {
    /// The backing filesystem's own answer, or one that POSIX prescribes.
    #[error("errno {0}")]
    Errno(i32),
    /// There is nothing, and the kernel may remember that for a while.
    #[error("nothing is there")]
    Absent,
    /// The store could not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The guard refused it; already reported.
    #[error("refused with {}", .0.code)]
    Refused(Reason),
}

/// The result of an operation.
pub type Result<T> = std::result::Result<T, FsError>;

impl From<SysError> for FsError {
    fn from(error: SysError) -> Self {
        Self::Store(StoreError::Sys(error))
    }
}

impl FsError {
    /// The errno that the calling program gets.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Errno(errno) => *errno,
            Self::Absent => c::ENOENT,
            Self::Store(error) => store_errno(error),
            Self::Refused(reason) => refusal_errno(reason.code, reason.intent, reason.there),
        }
    }
}

/// The errno of a refusal: `docs/SEMANTICS.md`, section on errno and codes.
#[must_use]
pub fn refusal_errno(code: Code, intent: Intent, there: There) -> i32 {
    match (code, intent) {
        // "File exists" would tell nobody anything about a removal.
        (Code::NotObserved, Intent::Remove) => c::EBUSY,
        (
            Code::NotObserved,
            Intent::Create | Intent::Replace | Intent::RenameOver | Intent::Link | Intent::Edit | Intent::Append,
        ) => c::EEXIST,
        (Code::StaleVersion, _) => c::ESTALE,
        (Code::NotFound, _) => c::ENOENT,
        (Code::NotRegularFile, _) => match there {
            There::Directory => c::EISDIR,
            There::Nothing | There::Regular | There::Other => c::EEXIST,
        },
        // No tool answers that by unlinking and making anew, nor by changing permissions first.
        (Code::RulesFixed, _) => c::EROFS,
        (Code::IoError, _) => c::EIO,
    }
}

fn store_errno(error: &StoreError) -> i32 {
    match error {
        StoreError::Sys(error) => error.errno(),
        // ESTALE makes the kernel look the name up again and repeat the call.
        StoreError::Moved | StoreError::Changed => c::ESTALE,
        StoreError::Lost(winner) => match winner {
            Winner::Directory => c::EISDIR,
            Winner::Regular | Winner::Other => c::EEXIST,
            Winner::Nothing => c::ENOENT,
        },
    }
}

/// The words that go with an errno, as the C library has them.
#[must_use]
pub fn errno_text(errno: i32) -> String {
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}
