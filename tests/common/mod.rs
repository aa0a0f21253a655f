//! The tests' harness: a guarded tree on disk, long-lived guarded shells, and an outsider beside them.
//!
//! Owns every wait, every child process and every scratch directory of the tests; a test itself never sleeps and never
//! looks a process up by name. What the program prints is read here and nowhere else.

pub(crate) mod mount;
pub(crate) mod session;
pub(crate) mod snapshot;
pub(crate) mod tree;
pub(crate) mod wait;

/// The code of a refusal to change what its owner has never read.
pub(crate) const NOT_OBSERVED: &str = "FS_NOT_OBSERVED";
/// The code of a refusal to change what somebody else has changed since its owner read it.
pub(crate) const STALE: &str = "FS_STALE_VERSION";
