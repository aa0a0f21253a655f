//! The plug: the guard of a backing tree as the control server needs it.
//!
//! It never judges; it only puts what `control` asks into the words of the layers below.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::{host_why, metrics, rule_words};
use crate::audit::WatcherId;
use crate::control::{self, Policy, RulesReport, Whose, WhyReply, WhyRequest, options};
use crate::control::{Code, DataPath, Failure, Host, OwnerStatus, Refusal, Serve, ServeFor, Serving, Settings, Sink};
use crate::front;
use crate::fs::{Activity, Allowance, Asker, Guard, GuardOptions, MountOptions, Pending, RuleOptions};
use crate::guard::{self, OwnerId};
use crate::owner::{Attribution, Gone, OwnerBy, OwnerKind, process_of};
use crate::rules;
use crate::store::AtticLimits;
use crate::sys;

/// An owner's count of files that it displaced unread, and which are kept.
pub(super) const UNREAD: &str = "unread files kept";

/// How long somebody who reads the record waits for it to be complete, at most.
const RECORD_LIMIT: Duration = Duration::from_secs(1);

/// Opens the guard of the directory `root`.
pub(crate) fn open(root: OwnedFd, settings: &Settings) -> io::Result<Arc<dyn Host>> {
    sys::share_heap();
    let (_, max_fds) = sys::raise_nofile_limit()?;
    let usual = AtticLimits::default();
    let age = settings
        .attic_age
        .map(|age| i64::try_from(age.as_secs()).unwrap_or(i64::MAX));
    let records = settings
        .max_records
        .map(|most| usize::try_from(most).unwrap_or(usize::MAX));
    let options = GuardOptions {
        attic: AtticLimits {
            age: age.unwrap_or(usual.age),
            size: settings.attic_size.unwrap_or(usual.size),
            copy: settings.attic_copy.unwrap_or(usual.copy),
            off: settings.attic_off,
        },
        id: settings.guard.clone(),
        max_fds,
        max_records: records.unwrap_or(GuardOptions::default().max_records),
        ..GuardOptions::default()
    };
    let guard = Guard::open(root, options).map_err(io::Error::other)?;
    let events = record(&guard, settings)?;
    Ok(Arc::new(Plug { guard, events }))
}

/// Begins the record of events; where it is.
fn record(guard: &Guard, settings: &Settings) -> io::Result<Option<String>> {
    let Some(options) = settings.events.clone() else {
        return Ok(None);
    };
    let (path, asked_for) = (options.path.to_string_lossy().into_owned(), !options.temporary);
    let begun = guard
        .events()
        .record_to(options, settings.events_observations, &settings.guard, &settings.root);
    match begun {
        Ok(()) => Ok(Some(path)),
        Err(error) if asked_for => Err(io::Error::new(
            error.kind(),
            format!("events cannot be written to {path}: {error}"),
        )),
        Err(error) => {
            log::warn!("no events are written: {path}: {error}");
            Ok(None)
        }
    }
}

struct Plug {
    guard: Arc<Guard>,
    events: Option<String>,
}

impl Plug {
    fn words_of(&self, pending: &Pending) -> control::Allowance {
        control::Allowance {
            path: pending.path.clone(),
            owner: pending.owner.map(|owner| self.name_of(owner)),
            seconds: pending.left.as_secs(),
            by_owner: pending.by_owner,
        }
    }
}

/// A watch on the refusals of one owner.
struct Watch {
    guard: Arc<Guard>,
    id: WatcherId,
    notice: WatcherId,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.guard.events().unwatch(self.id);
        self.guard.events().notices.end(self.notice);
    }
}

fn gone(pid: u32) -> Failure {
    Failure::new(
        Code::Forbidden,
        format!("process {pid} has gone, or who is above it cannot be told"),
    )
}

impl Host for Plug {
    fn owner_of(&self, pid: u32) -> io::Result<Option<OwnerId>> {
        self.guard
            .owners()
            .owner_of_process(pid)
            .map_err(|Gone| io::Error::from_raw_os_error(sys::consts::ESRCH))
    }

    fn enrol(&self, above: Option<OwnerId>, name: Option<&str>, process: Option<u32>) -> Result<OwnerId, Failure> {
        let owners = self.guard.owners();
        let owner = match name {
            Some(name) => owners.join(above, name),
            None => {
                let base = process.map_or_else(|| "run".to_owned(), |pid| format!("run-{pid}"));
                owners.join_fresh(above, &base)
            }
        };
        let owner = owner.map_err(|error| Failure::new(Code::Failed, error.to_string()))?;
        if let Some(pid) = process {
            let root = process_of(pid).map_err(|Gone| gone(pid))?;
            owners.register(root, owner).map_err(|Gone| gone(pid))?;
        }
        Ok(owner)
    }

    fn dismiss(&self, process: u32) {
        if let Ok(root) = process_of(process) {
            self.guard.owners().unregister(root);
        }
    }

    fn name_of(&self, owner: OwnerId) -> String {
        self.guard.owners().name(owner).to_string()
    }

    fn serve(&self, mount: Serve, fuse: OwnedFd) -> io::Result<Box<dyn Serving>> {
        if !sys::is_fuse_device(&fuse)? {
            return Err(io::Error::other("the descriptor that came with it is not of /dev/fuse"));
        }
        let attribution = match mount.attribution {
            ServeFor::Owner(owner) => Attribution::Fixed(owner),
            ServeFor::By(rule) => Attribution::By(owner_by(rule)),
        };
        let access_times = access_times(&mount);
        let own: Result<Vec<_>, _> = mount.rules.own.iter().map(|word| rules::parse_word(word)).collect();
        let options = MountOptions {
            policy: policy(&mount.policy),
            attribution,
            label: mount.label,
            multi_user: mount.multi_user,
            read_only: mount.read_only,
            access_times,
            only_ids: mount.only_ids,
            pids_visible: mount.pids_visible,
            rules: RuleOptions {
                own: own.map_err(io::Error::other)?,
                writable: mount.rules.writable,
                self_allow: mount.rules.self_allow,
            },
        };
        let device = sys::fuse_connection(&fuse);
        let serving = front::serve(&self.guard, options, fuse)?;
        Ok(Box::new(Served { serving, device }))
    }

    fn status(&self) -> (Vec<OwnerStatus>, Vec<(String, u64)>) {
        let events = self.guard.events();
        let owners = self.guard.owners().list().into_iter().map(|owner| {
            let counts = events.counts_of(owner.id);
            OwnerStatus {
                name: owner.name.to_string(),
                named: owner.kind == OwnerKind::Named,
                counts: [
                    ("operations".to_owned(), counts.operations),
                    ("observations".to_owned(), counts.observations),
                    ("refusals".to_owned(), counts.refusals),
                    ("recorded refusals".to_owned(), counts.would_refuse),
                    (UNREAD.to_owned(), counts.displaced_unread),
                ]
                .into(),
            }
        });
        let status = self.guard.status();
        let (written, dropped) = events.recorded();
        let mut counts = vec![
            ("operations".to_owned(), status.operations),
            ("observations".to_owned(), status.observations),
            ("refusals".to_owned(), status.refusals),
            ("kept files".to_owned(), status.kept),
            ("allowed once".to_owned(), events.allowed.get()),
            ("known files".to_owned(), status.nodes as u64),
            ("file records".to_owned(), status.file_records as u64),
            ("name records".to_owned(), status.name_records as u64),
            ("recorded refusals".to_owned(), events.would_refuse.get()),
            ("files not kept".to_owned(), events.not_kept.get()),
            ("events written".to_owned(), written),
            ("events dropped".to_owned(), dropped),
        ];
        let by_code = events.by_code.each();
        counts.extend(by_code.map(|(code, count)| (format!("{}{code}", metrics::BY_CODE), count)));
        (owners.collect(), counts)
    }

    fn requests(&self) -> Vec<(String, u64)> {
        let mut sums = std::collections::BTreeMap::new();
        for (kind, count) in self.guard.mounts().iter().flat_map(|mount| mount.requests().counts()) {
            *sums.entry(kind.name().to_owned()).or_default() += count;
        }
        sums.into_iter().collect()
    }

    fn events_file(&self) -> Option<String> {
        self.events.clone()
    }

    fn rules_problem(&self) -> Option<String> {
        self.guard.rules_problem().map(|problem| problem.to_string())
    }

    fn rules(&self, mount: Option<u64>, path: Option<&str>, matches: bool) -> RulesReport {
        if let Err(problem) = self.guard.look_at_rules() {
            log::info!("{problem}");
        }
        rule_words::report(&self.guard, mount, path, matches)
    }

    fn allows_itself(&self, mount: u64) -> bool {
        let mounts = self.guard.mounts();
        mounts
            .iter()
            .any(|known| known.id() == mount && known.options().rules.self_allow)
    }

    fn allow(&self, path: &str, owner: Option<OwnerId>, seconds: u64, by_owner: bool) -> Result<(), Failure> {
        let allowance = Allowance {
            path: path.to_owned(),
            owner,
            lasts: Duration::from_secs(seconds),
            by_owner,
        };
        self.guard
            .allow(Path::new(path), allowance)
            .map_err(|error| Failure::new(Code::Failed, error.to_string()))
    }

    fn allowances(&self) -> Vec<control::Allowance> {
        let waiting = self.guard.allowances_waiting();
        waiting.iter().map(|pending| self.words_of(pending)).collect()
    }

    fn disallow(&self, path: &str, which: &dyn Fn(&control::Allowance) -> bool) -> usize {
        self.guard
            .take_back(Path::new(path), |pending| which(&self.words_of(pending)))
    }

    fn subscribe(&self, owner: OwnerId, sink: Sink) -> Box<dyn Send> {
        let sink = Arc::new(sink);
        let also = Arc::clone(&sink);
        let below = format!("{}/", self.guard.owners().name(owner));
        let told = Box::new(move |report: &crate::audit::Report| {
            let own = report.owner == owner;
            if own || report.refusal.owner.starts_with(&below) {
                sink(told(report, !own));
            }
        });
        let id = self.guard.events().watch(None, told);
        let notices = &self.guard.events().notices;
        let notice = notices.listen(
            owner,
            Box::new(move |line: &str, path: &str| also(notice_of(line, path))),
        );
        Box::new(Watch {
            guard: Arc::clone(&self.guard),
            id,
            notice,
        })
    }

    fn find_owner(&self, name: &str) -> Option<OwnerId> {
        let owners = self.guard.owners().list();
        owners.iter().find(|owner| *owner.name == *name).map(|owner| owner.id)
    }

    fn owner_on_mount(&self, mount: u64, asker: &Asker) -> Option<OwnerId> {
        host_why::owner_on_mount(&self.guard, mount, asker)
    }

    fn why(
        &self,
        request: &WhyRequest,
        whose: Whose,
        asker: Asker,
    ) -> Result<Result<WhyReply, std::path::PathBuf>, Failure> {
        host_why::why(&self.guard, request, whose, asker)
    }

    fn activity(&self, since: u64, only: Option<OwnerId>) -> Activity {
        let own = only.map(|owner| self.name_of(owner));
        let below = |name: &str| {
            own.as_deref().is_none_or(|own| {
                name.strip_prefix(own)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
        };
        self.guard
            .activity(since, |id, name| only.is_none_or(|only| id == only || below(name)))
    }

    /// Refusals are told before the refused request is answered.
    fn flush(&self) {}

    fn write_record(&self) {
        if !self.guard.events().written_within(RECORD_LIMIT) {
            log::info!("events are still being written");
        }
    }

    fn shutdown(&self) {
        self.guard.shutdown();
    }
}

/// A refusal as it is sent. A name can be so long that it fits in a line once, and not twice.
fn told(report: &crate::audit::Report, below: bool) -> Refusal {
    const LONG: usize = 16 << 10;
    let line = report.line();
    Refusal {
        below,
        event: (line.len() < LONG).then(|| report.fields()),
        line,
        ..Refusal::default()
    }
}

/// What is said besides refusals: a line, and no refusal to be counted.
fn notice_of(line: &str, path: &str) -> Refusal {
    Refusal {
        line: line.to_owned(),
        notice: true,
        path: Some(path.to_owned()),
        ..Refusal::default()
    }
}

struct Served {
    serving: front::Serving,
    device: Option<u64>,
}

impl Serving for Served {
    fn data_path(&self) -> DataPath {
        if self.serving.mount().is_passthrough() {
            DataPath::Passthrough
        } else {
            DataPath::Daemon
        }
    }

    fn device(&self) -> Option<u64> {
        self.device
    }

    fn wait(self: Box<Self>) -> io::Result<()> {
        self.serving.wait()
    }
}

fn access_times(mount: &Serve) -> Option<sys::AccessTimes> {
    match (mount.noatime, mount.strictatime) {
        (true, _) => Some(sys::AccessTimes::Still),
        (false, true) => Some(sys::AccessTimes::Strict),
        (false, false) => None,
    }
}

fn owner_by(rule: options::OwnerBy) -> OwnerBy {
    match rule {
        options::OwnerBy::Session => OwnerBy::Session,
        options::OwnerBy::Process => OwnerBy::Process,
        options::OwnerBy::User => OwnerBy::User,
        options::OwnerBy::Cgroup => OwnerBy::Cgroup,
    }
}

fn policy(asked: &Policy) -> guard::Policy {
    guard::Policy {
        mode: match asked.mode {
            options::Mode::Enforce => guard::Mode::Enforce,
            options::Mode::Observe => guard::Mode::Observe,
        },
        unseen: match asked.unseen {
            options::Unseen::Refuse => guard::UnseenRule::Refuse,
            options::Unseen::Allow => guard::UnseenRule::Allow,
        },
        remove: match asked.remove {
            options::Remove::Baseline => guard::RemoveRule::Baseline,
            options::Remove::Observed => guard::RemoveRule::Observed,
        },
        view: match asked.view {
            options::View::Process => guard::ViewRule::Process,
            options::View::Owner => guard::ViewRule::Owner,
        },
        create: match asked.create {
            options::Create::Staged => guard::CreateRule::Staged,
            options::Create::Direct => guard::CreateRule::Direct,
        },
        durability: match asked.durability {
            options::Durability::Caller => guard::DurabilityRule::Caller,
            options::Durability::Publish => guard::DurabilityRule::Publish,
        },
        cache: match asked.cache {
            options::Cache::Coherent => guard::CacheRule::Coherent,
            options::Cache::Strict => guard::CacheRule::Strict,
        },
        passthrough: match asked.passthrough {
            options::Passthrough::On => guard::PassthroughRule::On,
            options::Passthrough::Off => guard::PassthroughRule::Off,
        },
    }
}
