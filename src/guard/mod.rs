//! The semantics, pure: identities, versions, observations, the ledger, levels, the decision table, refusals.
//!
//! No input or output, no clock, no lock, no errno.

mod ids;

pub use ids::{EntryKey, FileKey, OwnerId, Process, Timestamp, Token};
