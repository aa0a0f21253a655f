//! unclobber: a guarded view of a directory in which nobody's unseen work is destroyed.
//!
//! The folders are the layers; each may use only what stands below it:
//!
//! ```text
//! main -> cli -> { front, control } -> fs -> { store, owner, audit, rules } -> guard
//!                              store, owner, audit, rules -> sys      leaves: sync, clock, faults
//! ```
//!
//! `docs/ARCHITECTURE.md` says what each layer owns and what it must never do.

pub mod audit;
pub mod cli;
pub mod clock;
pub mod control;
pub mod faults;
pub mod front;
pub mod fs;
pub mod guard;
pub mod owner;
pub mod rules;
pub mod store;
pub mod sync;
pub mod sys;
