//! One conversation: what a peer may ask, and what is done for it.
//!
//! It never lets a process that belongs to an owner act for anybody but that owner and owners below it.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::asking::WhyRequest;
use super::host::{Serve, ServeFor, Whose};
use super::lifecycle::MountRecord;
use super::protocol::{Attach, Attribution, Code, Failure, MountStatus, Refusal, Reply, Request, Status};
use super::server::{Outgoing, Server};
use crate::fs::Asker;
use crate::guard::OwnerId;
use crate::sys::{self, PeerCred};

/// What to do about a wrong file of rules.
const RULES_HINT: &str = "correct the file; `unclobber rules` shows the rules that hold";
/// What to do where an owner may not allow anything.
const ALLOW_HINT: &str = "ask the user to run `unclobber allow` outside, or to mount with --self-allow";

/// How long `flush` waits for a mount to end.
const END_LIMIT: Duration = Duration::from_secs(5);

/// One client's conversation.
pub(super) struct Conversation {
    server: Arc<Server>,
    peer: PeerCred,
    /// Holds on to the peer's process, whose number may be another's once it has ended.
    process: Option<OwnedFd>,
    out: Outgoing,
    begun: bool,
    enrolled: bool,
    subscription: Option<Box<dyn Send>>,
}

impl std::fmt::Debug for Conversation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Conversation")
            .field("peer", &self.peer)
            .field("begun", &self.begun)
            .finish_non_exhaustive()
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        self.subscription = None;
        self.leave();
        if self.begun {
            self.server.life.end_conversation();
        }
    }
}

impl Conversation {
    /// A conversation with `peer`.
    #[must_use]
    pub(super) fn new(server: Arc<Server>, peer: PeerCred, process: Option<OwnedFd>, out: Outgoing) -> Self {
        Self {
            server,
            peer,
            process,
            out,
            begun: false,
            enrolled: false,
            subscription: None,
        }
    }

    /// Carries out one request. `descriptor` takes the next descriptor that came with the requests.
    pub(super) fn answer(&mut self, request: Request, descriptor: impl FnOnce() -> Option<OwnedFd>) -> Reply {
        let result = match request {
            Request::Hello { program } => self.hello(&program),
            Request::Attach(attach) => self.attach(*attach, descriptor()),
            Request::Join { owner, linger } => self.join(owner.as_deref(), linger),
            Request::Status => Ok(Reply::Status(Box::new(self.status()))),
            Request::Detach { mount } => self.detach(mount),
            Request::Refusals => self.refusals(),
            Request::Flush { ended, record } => Ok(self.flush(ended, record)),
            Request::Leave => {
                self.leave();
                Ok(Reply::Done)
            }
            Request::Rules { path, mount, matches } => {
                let report = self.server.host.rules(mount, path.as_deref(), matches);
                Ok(Reply::Rules(Box::new(report)))
            }
            Request::Allow {
                path,
                owner,
                seconds,
                mount,
            } => self.allow(&path, owner.as_deref(), seconds, mount),
            Request::Allowances => self.allowances(),
            Request::Disallow { path, owner } => self.disallow(&path, owner.as_deref()),
            Request::Wait { mount } => {
                self.server.life.wait_mount_end(mount, None);
                Ok(Reply::Done)
            }
            Request::Why(request) => self.why(&request),
            Request::Activity { since } => self.activity(since),
        };
        result.unwrap_or_else(Reply::Error)
    }

    fn hello(&mut self, program: &str) -> Result<Reply, Failure> {
        if !self.begun {
            if !self.server.life.begin_conversation() {
                return Err(Failure::new(Code::Ending, "this guard is about to end"));
            }
            self.begun = true;
        }
        log::debug!(
            "process {} (program version {program}) began a conversation",
            self.peer.pid
        );
        Ok(Reply::Hello {
            guard: self.server.guard.clone(),
            root: self.server.root.clone(),
            pid: std::process::id(),
            program: env!("CARGO_PKG_VERSION").to_owned(),
        })
    }

    /// The owner of the caller: by its process tree, else by the mount namespace it is in, which stays with
    /// processes whose parents have gone.
    fn standing(&self) -> Result<Option<OwnerId>, Failure> {
        let pid = self.peer.pid;
        if pid == 0 {
            return Err(Failure::new(
                Code::Forbidden,
                "the caller's process cannot be seen from the guard's pid namespace",
            )
            .with_hint("set XDG_RUNTIME_DIR to a directory of this container's own, so that it has its own guard"));
        }
        if self.process.as_ref().is_some_and(sys::pidfd_exited) {
            return Err(Failure::new(Code::Forbidden, format!("process {pid} has gone")));
        }
        let unknown =
            |error: io::Error| Failure::new(Code::Forbidden, format!("cannot tell whose process {pid} is: {error}"));
        if let Some(owner) = self.server.host.owner_of(pid).map_err(unknown)? {
            return Ok(Some(owner));
        }
        if !self.server.life.knows_namespaces() {
            return Ok(None);
        }
        let namespace = mount_namespace(pid).map_err(unknown)?;
        Ok(self.server.life.owner_of_namespace(namespace))
    }

    fn forbid_guarded(&self, what: &str) -> Result<(), Failure> {
        match self.standing()? {
            None => Ok(()),
            Some(owner) => Err(
                Failure::new(Code::Forbidden, format!("{} may not {what}", self.describe(owner))).with_hint(
                    "inside a guarded run, `unclobber run --owner NAME -- CMD` starts an owner below its own",
                ),
            ),
        }
    }

    fn describe(&self, owner: OwnerId) -> String {
        format!("a process of owner {}", self.server.host.name_of(owner))
    }

    fn attach(&mut self, attach: Attach, fuse: Option<OwnedFd>) -> Result<Reply, Failure> {
        let Some(fuse) = fuse else {
            return Err(Failure::new(Code::Malformed, "attach came without a FUSE descriptor"));
        };
        self.forbid_guarded("attach a mount")?;
        if let Some(problem) = self.server.host.rules_problem() {
            return Err(Failure::new(Code::Failed, problem).with_hint(RULES_HINT));
        }
        let namespace = attach
            .namespace_of
            .map(|child| self.child_namespace(child))
            .transpose()?;
        let (owner, attribution, serve_for) = self.resolve(&attach)?;
        let owner_name = owner.map(|owner| self.server.host.name_of(owner));
        let serve = Serve {
            label: attach.label.clone(),
            attribution: serve_for,
            policy: attach.policy,
            multi_user: attach.multi_user,
            read_only: attach.read_only,
            noatime: attach.noatime,
            strictatime: attach.strictatime,
            only_ids: attach.only_ids,
            pids_visible: self.peer.pid != 0,
            rules: attach.rules.clone(),
        };
        let serving = self.server.host.serve(serve, fuse).map_err(|error| {
            Failure::new(
                Code::Failed,
                format!("cannot serve the mount {}: {error}", attach.label),
            )
        })?;
        let named = matches!(&attach.attribution, Attribution::Owner { name: Some(_), .. });
        self.server
            .life
            .wish_linger(attach.linger.map(Duration::from_secs), named);
        let data = serving.data_path();
        let record = MountRecord {
            label: attach.label,
            owner,
            attribution,
            policy: attach.policy,
            data,
            read_only: attach.read_only,
            namespace,
            device: serving.device(),
        };
        let life = Arc::clone(&self.server.life);
        let label = record.label.clone();
        let mount = life.begin_mount(record);
        log::info!("mount {mount} at {label} is ready");
        let wait = move || {
            if let Err(error) = serving.wait() {
                log::warn!("mount {mount} at {label}: {error}");
            }
            log::info!("mount {mount} at {label} has ended");
            life.end_mount(mount);
        };
        thread::Builder::new()
            .name(format!("mount-{mount}"))
            .spawn(wait)
            .map_err(|error| {
                self.server.life.end_mount(mount);
                Failure::new(Code::Failed, format!("no thread for the mount: {error}"))
            })?;
        Ok(Reply::Attached {
            mount,
            owner: owner_name,
            data,
        })
    }

    /// The caller's child's mount namespace. That it is the caller's child keeps one caller from claiming the
    /// namespace of another.
    fn child_namespace(&self, child: u32) -> Result<u64, Failure> {
        let fail = |why: String| Failure::new(Code::Forbidden, why);
        let parent = sys::read_proc_stat(child)
            .map_err(|error| fail(error.to_string()))?
            .ppid;
        if parent != self.peer.pid {
            return Err(fail(format!(
                "process {child} is no child of process {}",
                self.peer.pid
            )));
        }
        let read = |pid| mount_namespace(pid).map_err(|error| fail(format!("process {pid}'s mounts: {error}")));
        let namespace = read(child)?;
        // A caller with more capabilities than this process cannot be looked into.
        let of_peer = mount_namespace(self.peer.pid).ok();
        if namespace == read(std::process::id())? || Some(namespace) == of_peer {
            return Err(fail(format!("process {child} has no mount namespace of its own")));
        }
        Ok(namespace)
    }

    fn resolve(&mut self, attach: &Attach) -> Result<(Option<OwnerId>, String, ServeFor), Failure> {
        match &attach.attribution {
            Attribution::By(rule) => {
                let rule_name = format!("by {}", format!("{rule:?}").to_lowercase());
                Ok((None, rule_name, ServeFor::By(*rule)))
            }
            Attribution::Owner { name, process } => {
                let owner = self.enrol(None, name.as_deref(), *process)?;
                Ok((Some(owner), self.server.host.name_of(owner), ServeFor::Owner(owner)))
            }
        }
    }

    fn enrol(&mut self, above: Option<OwnerId>, name: Option<&str>, process: bool) -> Result<OwnerId, Failure> {
        let owner = self.server.host.enrol(above, name, process.then_some(self.peer.pid))?;
        self.enrolled |= process;
        Ok(owner)
    }

    fn leave(&mut self) {
        if std::mem::take(&mut self.enrolled) {
            self.server.host.dismiss(self.peer.pid);
        }
    }

    fn join(&mut self, name: Option<&str>, linger: Option<u64>) -> Result<Reply, Failure> {
        let above = self.standing()?;
        let owner = self.enrol(above, name, true)?;
        // Who is below another owner comes and goes with it and has no wish of its own unless it says so.
        let named = name.is_some() && above.is_none();
        self.server.life.wish_linger(linger.map(Duration::from_secs), named);
        Ok(Reply::Joined {
            owner: self.server.host.name_of(owner),
        })
    }

    /// A caller that belongs to an owner may do this for itself and owners below it, and only where the mount lets it.
    fn allow(&self, path: &str, name: Option<&str>, seconds: u64, mount: Option<u64>) -> Result<Reply, Failure> {
        let host = &self.server.host;
        let standing = self.standing()?;
        let own = standing.map(|owner| host.name_of(owner));
        if let (Some(standing), Some(own)) = (standing, &own) {
            let for_itself = name.is_none_or(|name| is_at_or_below(name, own));
            let lets = mount.is_some_and(|mount| host.allows_itself(mount));
            if !lets || !for_itself {
                let what = if lets {
                    "allow changes of other owners"
                } else {
                    "allow changes"
                };
                return Err(
                    Failure::new(Code::Forbidden, format!("{} may not {what}", self.describe(standing)))
                        .with_hint(ALLOW_HINT),
                );
            }
        }
        let owner = match name {
            Some(name) => Some(host.find_owner(name).ok_or_else(|| {
                Failure::new(Code::Missing, format!("there is no owner {name:?}"))
                    .with_hint("`unclobber status` lists the owners; without --owner, whoever changes the file first is let through")
            })?),
            None => standing,
        };
        host.allow(path, owner, seconds, standing.is_some())?;
        Ok(Reply::Allowed {
            owner: owner.map(|owner| host.name_of(owner)),
        })
    }

    /// A caller that belongs to an owner hears of what it and those below it could use.
    fn allowances(&self) -> Result<Reply, Failure> {
        let host = &self.server.host;
        let own = self.standing()?.map(|owner| host.name_of(owner));
        let mut waiting = host.allowances();
        waiting.retain(|one| match (&own, &one.owner) {
            (Some(own), Some(owner)) => is_at_or_below(owner, own),
            (None, _) | (_, None) => true,
        });
        Ok(Reply::Allowances { waiting })
    }

    /// A caller that belongs to an owner may take back what it, or an owner below it, has asked for.
    fn disallow(&self, path: &str, name: Option<&str>) -> Result<Reply, Failure> {
        let host = &self.server.host;
        let own = self.standing()?.map(|owner| host.name_of(owner));
        let count = host.disallow(path, &|one| {
            let named = name.is_none_or(|name| one.owner.as_deref() == Some(name));
            let may = own.as_ref().is_none_or(|own| {
                let owner = one.owner.as_deref();
                one.by_owner && owner.is_some_and(|owner| is_at_or_below(owner, own))
            });
            named && may
        });
        Ok(Reply::Disallowed { count })
    }

    fn detach(&self, number: u64) -> Result<Reply, Failure> {
        let missing = || Failure::new(Code::Missing, format!("there is no mount {number}"));
        let record = self.server.life.mount(number).ok_or_else(missing)?;
        if let Some(owner) = self.standing()?.filter(|owner| record.owner != Some(*owner)) {
            return Err(Failure::new(
                Code::Forbidden,
                format!("{} may not end this mount", self.describe(owner)),
            ));
        }
        if record.namespace.is_some() {
            return Err(
                Failure::new(Code::Failed, "a mount made by `run` ends with its command").with_hint("end the command"),
            );
        }
        super::unmounting::unmount_own(record.label.as_ref(), record.device)
            .map_err(|error| Failure::new(Code::Failed, error.to_string()))?;
        self.server.life.wait_mount_end(number, Some(END_LIMIT));
        Ok(Reply::Done)
    }

    fn refusals(&mut self) -> Result<Reply, Failure> {
        let Some(owner) = self.standing()? else {
            return Err(Failure::new(
                Code::Forbidden,
                "only an owner's own process can follow its refusals",
            ));
        };
        let out = self.out.clone();
        let sink = Box::new(move |refusal: Refusal| out.tell(&Reply::Refusal(Box::new(refusal))));
        self.subscription = Some(self.server.host.subscribe(owner, sink));
        Ok(Reply::Done)
    }

    /// A guarded caller may ask for itself only: what others have seen is none of its business.
    fn why(&self, request: &WhyRequest) -> Result<Reply, Failure> {
        let asker = Asker {
            uid: self.peer.uid,
            gid: self.peer.gid,
            pid: self.peer.pid,
        };
        let host = &self.server.host;
        let named = request.owner.as_deref().map(|name| {
            let found = host.find_owner(name);
            found.ok_or_else(|| {
                Failure::new(Code::Missing, format!("there is no owner {name:?} here"))
                    .with_hint("`unclobber status` lists the owners")
            })
        });
        let whose = match (self.standing()?, named) {
            (Some(own), None) => Whose::Own(own),
            (Some(own), Some(Ok(named))) if own == named => Whose::Own(own),
            (Some(own), Some(_)) => {
                let message = format!("{} may ask for its own view only", self.describe(own));
                return Err(Failure::new(Code::Forbidden, message).with_hint("leave --owner out"));
            }
            (None, Some(named)) => Whose::Named(named?),
            (None, None) => {
                let own = request.mount.and_then(|mount| host.owner_on_mount(mount, &asker));
                own.map_or(Whose::All, Whose::Own)
            }
        };
        Ok(match host.why(request, whose, asker)? {
            Ok(answer) => Reply::Why(Box::new(answer)),
            Err(path) => Reply::Elsewhere {
                path: path.into_os_string().into(),
            },
        })
    }

    fn activity(&self, since: u64) -> Result<Reply, Failure> {
        let only = self.standing()?;
        Ok(Reply::Activity(Box::new(self.server.host.activity(since, only))))
    }

    fn flush(&self, ended: Option<u64>, record: bool) -> Reply {
        if let Some(mount) = ended {
            self.server.life.wait_mount_end(mount, Some(END_LIMIT));
        }
        self.server.host.flush();
        if record {
            self.server.host.write_record();
        }
        Reply::Done
    }

    fn status(&self) -> Status {
        let life = &self.server.life;
        let (mut owners, counts) = self.server.host.status();
        // Who cannot be told apart works through no `run` here.
        let own = self.standing().ok().flatten();
        let own = own.map(|owner| self.server.host.name_of(owner));
        if let Some(own) = &own {
            owners.retain(|owner| is_at_or_below(&owner.name, own));
        }
        let mounts = life.mounts().into_iter().map(|(mount, record)| MountStatus {
            mount,
            label: record.label,
            private: record.namespace.is_some(),
            owner: record.attribution,
            policy: record.policy,
            data: record.data,
            read_only: record.read_only,
        });
        Status {
            own,
            guard: self.server.guard.clone(),
            root: self.server.root.clone(),
            pid: std::process::id(),
            age: life.age().as_secs(),
            linger: life.linger().as_secs(),
            mounts: mounts.collect(),
            owners,
            counts: counts.into_iter().collect(),
            requests: self.server.host.requests().into_iter().collect(),
            events: self.server.host.events_file(),
            rules_problem: self.server.host.rules_problem(),
        }
    }
}

/// Whether an owner's name is this one, or that of an owner below it.
fn is_at_or_below(name: &str, own: &str) -> bool {
    name.strip_prefix(own)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn mount_namespace(pid: u32) -> io::Result<u64> {
    Ok(fs::metadata(format!("/proc/{pid}/ns/mnt"))?.ino())
}
