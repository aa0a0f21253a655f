//! The control layer: the socket by which commands and the guard of a directory speak.
//!
//! Owns the protocol, the daemon's life and the run-time directory. It never judges a file operation, and it never
//! takes a caller's word for who it is.

mod asking;
mod client;
mod conversation;
mod daemon;
mod host;
mod lifecycle;
pub mod options;
mod protocol;
mod report;
mod runtime_dir;
mod server;
#[cfg(test)]
mod tests;
mod unmounting;
mod wire;

pub use asking::{PathText, WhyReply, WhyRequest};
pub use client::{Attached, Client, ClientError, Launch};
pub use daemon::{Outcome, Settings, leave_caller, open_log, serve};
pub use host::{Host, Serve, ServeFor, Serving, Sink, Whose};
pub use lifecycle::{Lifecycle, MountRecord};
pub use options::{Cache, Create, Durability, Mode, OwnerBy, Passthrough, Policy, Remove, Unseen, View};
pub use protocol::{
    Attach, AttachRules, Attribution, Code, DataPath, Failure, MountStatus, OwnerStatus, Refusal, Reply, Request,
    Status, check_owner_name,
};
pub use report::{Allowance, Decided, DecidedAs, DecidedFor, MountRules, RuleLine, RulesReport};
pub use runtime_dir::{RuntimeDir, Surroundings, guard_id, is_guard_id};
pub use server::{Outgoing, Server};
pub use unmounting::{UnmountError, find_helper, unmount};
pub use wire::{Lines, send};
