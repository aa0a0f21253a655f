//! The semantics, pure: identities, versions, observations, the ledger, levels, the decision table, refusals.
//!
//! No input or output, no clock, no lock, no errno. `docs/SEMANTICS.md` is this layer in words.

mod decide;
mod entry;
mod file;
mod grade;
mod history;
mod ids;
mod refusal;
mod standing;
mod version;
mod views;

pub mod levels;
pub mod policy;

#[cfg(test)]
mod tests;

pub use decide::{Case, Decision, Intent, Keep, Reason, There, decide, decide_at};
pub use entry::{EntryRecord, EntryView};
pub use file::{FileRecord, Produced, Version};
pub use grade::{By, Grade, Signs};
pub use history::History;
pub use ids::{EntryKey, FileKey, OwnerId, Process, Timestamp, Token};
pub use levels::Level;
pub use policy::{
    CacheRule, CreateRule, DurabilityRule, Mode, PassthroughRule, Policy, RemoveRule, UnseenRule, ViewRule,
};
pub use refusal::{Code, OUTSIDE, RULES_FIXED, Refusal, SEVERAL, SHOW, Step, Why, Writer, age, printable};
pub use standing::{Sight, Standing, foreign, process_holds_old, standing};
pub use version::{Author, Change, Generation};
