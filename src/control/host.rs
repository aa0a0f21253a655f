//! What the control server needs of the guard it stands before.
//!
//! It never knows how mounts are served: `cli::host` plugs the file system in.

use std::io;
use std::os::fd::OwnedFd;

use super::asking::{WhyReply, WhyRequest};
use super::options::{OwnerBy, Policy};
use super::protocol::{AttachRules, DataPath, Failure, OwnerStatus, Refusal};
use super::report::{Allowance, RulesReport};
use crate::fs::{Activity, Asker};
use crate::guard::OwnerId;

/// A guard: owners, mounts, refusals of one backing tree.
pub trait Host: Send + Sync + 'static {
    /// The owner that the kernel's facts give to this process; `None` when it descends from no owner's process.
    ///
    /// A process that has gone is an error, never `None`.
    fn owner_of(&self, pid: u32) -> io::Result<Option<OwnerId>>;

    /// Finds or makes the owner `name` (below `above`, if given), or a fresh one without a name. With `process`, that
    /// process and its descendants become it.
    fn enrol(&self, above: Option<OwnerId>, name: Option<&str>, process: Option<u32>) -> Result<OwnerId, Failure>;

    /// An enrolled process is about to end: its descendants stay its owner.
    fn dismiss(&self, process: u32);

    /// The full name of an owner.
    fn name_of(&self, owner: OwnerId) -> String;

    /// Serves a FUSE descriptor; returns when the mount is ready.
    fn serve(&self, mount: Serve, fuse: OwnedFd) -> io::Result<Box<dyn Serving>>;

    /// The owners that exist, and counts by name.
    fn status(&self) -> (Vec<OwnerStatus>, Vec<(String, u64)>);

    /// The requests that the kernels of its mounts have sent, by kind.
    fn requests(&self) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// Where events are written to.
    fn events_file(&self) -> Option<String> {
        None
    }

    /// What is wrong with the workspace's rules, as far as that is known; nothing is looked at.
    fn rules_problem(&self) -> Option<String>;

    /// The rules that hold, on a mount or anywhere, looked at anew; and what they say of a path. With `matches`, also which
    /// of them match anything.
    fn rules(&self, mount: Option<u64>, path: Option<&str>, matches: bool) -> RulesReport;

    /// Whether a mount lets owners allow their own changes.
    fn allows_itself(&self, mount: u64) -> bool;

    /// Lets the next change of a path by an owner, or by anybody, through. `by_owner`: an owner has asked for itself.
    fn allow(&self, path: &str, owner: Option<OwnerId>, seconds: u64, by_owner: bool) -> Result<(), Failure>;

    /// The exceptions that wait to be used.
    fn allowances(&self) -> Vec<Allowance>;

    /// Takes those for a path back of which `which` says so; how many.
    fn disallow(&self, path: &str, which: &dyn Fn(&Allowance) -> bool) -> usize;

    /// Tells `sink` every refusal of this owner and those below it from now on, until the returned value is dropped.
    fn subscribe(&self, owner: OwnerId, sink: Sink) -> Box<dyn Send>;

    /// Returns when every refusal that has happened has been told.
    fn flush(&self);

    /// Returns when every event that has happened is written down, or a moment has passed.
    fn write_record(&self);

    /// The owner of that full name, if there is one; none is made.
    fn find_owner(&self, name: &str) -> Option<OwnerId>;

    /// The owner that a process is on a mount that tells owners apart by a rule.
    fn owner_on_mount(&self, mount: u64, asker: &Asker) -> Option<OwnerId>;

    /// What is known of a path; `Ok(Err(path))` when it leads out of the tree.
    fn why(
        &self,
        request: &WhyRequest,
        whose: Whose,
        asker: Asker,
    ) -> Result<Result<WhyReply, std::path::PathBuf>, Failure>;

    /// What owners are doing, and what was refused after `since`: of everybody, or of one owner and those below it.
    fn activity(&self, since: u64, only: Option<OwnerId>) -> Activity;

    /// Closes what is open and ends. Nothing is called after it.
    fn shutdown(&self);
}

/// Whose view of a path is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// The caller's own.
    Own(OwnerId),
    /// This owner's.
    Named(OwnerId),
    /// Everybody's.
    All,
}

/// Where refusals go. It never blocks.
pub type Sink = Box<dyn Fn(Refusal) + Send + Sync>;

/// A mount as the host serves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Serve {
    /// The mount point.
    pub label: String,
    /// To whom what happens on it is attributed.
    pub attribution: ServeFor,
    /// What it is asked to do.
    pub policy: Policy,
    /// Other users may come in and the kernel checks permissions.
    pub multi_user: bool,
    /// Nothing may be changed through it.
    pub read_only: bool,
    /// Access times stand still.
    pub noatime: bool,
    /// Access times move with every access.
    pub strictatime: bool,
    /// The only ids that exist in the user namespace it was mounted in.
    pub only_ids: Option<(u32, u32)>,
    /// Whether callers' process ids can be seen from here.
    pub pids_visible: bool,
    /// Rules of its own, and what may be changed of them from inside.
    pub rules: AttachRules,
}

/// To whom a mount attributes what happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServeFor {
    /// To this owner, which has been enrolled.
    Owner(OwnerId),
    /// By a rule.
    By(OwnerBy),
}

/// A mount being served.
pub trait Serving: Send {
    /// How data travels.
    fn data_path(&self) -> DataPath;

    /// The device number of the mounted filesystem, where that is known.
    fn device(&self) -> Option<u64> {
        None
    }

    /// Returns when the kernel has ended the connection and every file opened through it is closed.
    fn wait(self: Box<Self>) -> io::Result<()>;
}
