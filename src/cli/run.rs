//! `unclobber run`: one command as one owner in a guarded view of a directory.
//!
//! It never leaves the command without a guard: where none of the ways to mount works, the command is not started.

use std::ffi::OsString;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::args::{BoundsArgs, LogArgs, RuleArgs, RunArgs};
use super::fuse_options::{FuseOptions, MountFlags};
use super::guarding;
use super::host::UNREAD;
use super::mounting;
use super::output::{Problem, RUN_FAILED, complain, note};
use super::place::{self, Place};
use super::reader::{Reader, directory_to_name};
use super::recording::RecordingArgs;
use super::refusals::Refusals;
use super::report_diff;
use super::run_child::{self, Child, Ended, View};
use super::supervise::{self, Supervision};
use crate::control::{Attach, Attribution, Client, Policy, RuntimeDir, Surroundings, unmount};
use crate::sys::{self, Terminal, consts};

/// Runs the command; its exit code.
pub(crate) fn run(args: &RunArgs, log: &LogArgs) -> Result<ExitCode, Problem> {
    start(args, log).map_err(|problem| {
        if problem.code == super::output::FAILED {
            problem.code(RUN_FAILED)
        } else {
            problem
        }
    })
}

fn start(args: &RunArgs, log: &LogArgs) -> Result<ExitCode, Problem> {
    args.report.as_deref().map(check_report).transpose()?;
    let workspace = args.workspace.as_deref().unwrap_or_else(|| Path::new("."));
    let place = place::resolve_to_mount(workspace)?;
    if let Some(guarded) = &place.guarded {
        let mut client = guarding::reach_mounted(guarded)?;
        if args.policy.policy() != Policy::default()
            || args.policy.bounds != BoundsArgs::default()
            || args.policy.recording != RecordingArgs::default()
            || args.policy.rules != RuleArgs::default()
        {
            note(&format!(
                "the rules of the mount at {} hold; those of this command line (--mode, --rule and so on) have no effect",
                guarded.mount.point.display()
            ));
        }
        let what = format!("cannot join the mount at {}", guarded.mount.point.display());
        let owner = client
            .join(args.owner.clone(), args.policy.linger.map(|time| time.as_secs()))
            .map_err(|error| guarding::client_problem(what, &error))?;
        guarding::note_rules_problem(&mut client);
        log::info!("joined {} as owner {owner}", guarded.mount.point.display());
        let start = start_directory(&place.path, None);
        let mut session = Session::begin(client)?;
        session.owner = owner;
        session.reader.root = root_to_tell(&guarded.mount.point, &guarded.mount.point);
        session.reader.directory = session
            .client
            .status()
            .ok()
            .and_then(|status| directory_to_name(Path::new(&status.root)));
        if guarded.mount.root != Path::new("/") {
            // Only a part is shown there: paths of the whole lead nowhere from it.
            session.reader.root = None;
        }
        return session.run_in_place(&start, args, None);
    }
    guarding::check_guardable(&place)?;
    let mut client = guarding::reach(&place, &args.policy, log)?;
    guarding::check_rules(&mut client, &place)?;
    Session::begin(client)?.run_guarded(args, &place)
}

/// Where the command starts: where it was started from if that is in the directory, else in the directory.
/// `shown_at` is another place at which the directory is shown.
fn start_directory(dir: &Path, shown_at: Option<&Path>) -> PathBuf {
    let here = std::env::current_dir().ok();
    let below = here
        .as_deref()
        .and_then(|here| here.strip_prefix(dir).ok())
        .unwrap_or_else(|| Path::new(""));
    shown_at.unwrap_or(dir).join(below)
}

/// Where the directory is shown, unless this was started in `dir` itself, from which the guard's paths lead.
fn root_to_tell(shown_at: &Path, dir: &Path) -> Option<PathBuf> {
    let is_here = std::env::current_dir().is_ok_and(|here| here == dir);
    (!is_here).then(|| shown_at.to_owned())
}

/// A mount on a mount point that was made for one command; it goes with the command.
struct MadeMount {
    point: PathBuf,
    mount: u64,
    mounted: bool,
}

impl Drop for MadeMount {
    fn drop(&mut self) {
        if self.mounted
            && let Err(error) = unmount(&self.point, true)
        {
            log::warn!("{error}");
        }
        if let Err(error) = fs::remove_dir(&self.point) {
            log::warn!("{}: {error}", self.point.display());
        }
    }
}

/// The running of one command.
struct Session {
    client: Client,
    signals: sys::Signals,
    terminal: Option<Terminal>,
    /// The command's owner.
    owner: String,
    /// Who reads what is told.
    reader: Reader,
}

impl Session {
    fn begin(client: Client) -> Result<Self, Problem> {
        let fail = |error: sys::SysError| Problem::new("cannot prepare to run the command", error);
        let terminal = Terminal::held();
        sys::set_child_subreaper(true).map_err(fail)?;
        let signals = sys::Signals::hold(&supervise::HELD).map_err(fail)?;
        Ok(Self {
            client,
            signals,
            terminal,
            owner: String::new(),
            reader: Reader::default(),
        })
    }

    /// Tries each way to mount until one works.
    fn run_guarded(mut self, args: &RunArgs, place: &Place) -> Result<ExitCode, Problem> {
        let flags = mounting::inherit(&FuseOptions::default(), &place.fd);
        let start = start_directory(&place.path, None);
        self.reader.root = root_to_tell(&place.path, &place.path);
        self.reader.directory = directory_to_name(&place.path);
        let mut causes = Vec::new();
        for view in private_views(place, flags) {
            match Child::prepare(&view, &self.signals, beginning(&start, args), &args.command) {
                Ok((child, fuse)) => {
                    let fuse = fuse.ok_or_else(|| Problem::new("cannot mount", "no descriptor came from the child"))?;
                    let attach = attach_request(args, &place.path, &view, Some(child.pid()));
                    let mount = self.attach(attach, &fuse)?;
                    drop(fuse);
                    return self.finish(child, Some(mount), None, args);
                }
                Err(failure) => {
                    log::info!("{failure}");
                    causes.push(failure);
                }
            }
        }
        let made = self
            .mount_aside(args, place, flags)
            .map_err(|problem| all_failed(place, &causes, problem))?;
        note(&format!(
            "{} cannot be mounted over itself here; the command works in {} instead",
            place.path.display(),
            made.point.display()
        ));
        let start = start_directory(&place.path, Some(&made.point));
        self.reader.root = root_to_tell(&made.point, &place.path);
        self.run_in_place(&start, args, Some(made))
    }

    fn attach(&mut self, attach: Attach, fuse: &OwnedFd) -> Result<u64, Problem> {
        let what = format!("cannot guard {}", attach.label);
        let attached = self.client.attach(attach, fuse.as_fd());
        let attached = attached.map_err(|error| guarding::client_problem(what, &error))?;
        log::info!(
            "mount {} is ready, data through the {:?}",
            attached.mount,
            attached.data
        );
        self.owner = attached.owner.unwrap_or_default();
        Ok(attached.mount)
    }

    /// Runs the command where the view is there already.
    fn run_in_place(self, start: &Path, args: &RunArgs, made: Option<MadeMount>) -> Result<ExitCode, Problem> {
        let prepared = Child::prepare(&View::AsItIs, &self.signals, beginning(start, args), &args.command);
        let (child, _) = prepared.map_err(|failure| Problem::new("cannot run the command", failure))?;
        let mount = made.as_ref().map(|made| made.mount);
        self.finish(child, mount, made, args)
    }

    fn finish(
        mut self,
        child: Child,
        mount: Option<u64>,
        made: Option<MadeMount>,
        args: &RunArgs,
    ) -> Result<ExitCode, Problem> {
        let follow = self.client.follow_refusals();
        follow.map_err(|error| guarding::client_problem("cannot follow refusals", &error))?;
        let name = args
            .command
            .first()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        let pid = match child.go()? {
            Ended::Running(pid) => pid,
            Ended::Failed(why) => {
                return Err(Problem::new("cannot start the command", why)
                    .hint("you need to be allowed to enter the directory and those above it"));
            }
            Ended::NotExecuted(errno) => return Err(not_executed(&name, errno)),
        };
        let (before, list) = (self.displaced_unread(), self.reader.list_kept());
        let supervision = Supervision {
            child: pid,
            signals: &self.signals,
            terminal: self.terminal.as_ref(),
        };
        self.reader.nameless = args.owner.is_none();
        let mut refusals = Refusals::for_reader(std::mem::take(&mut self.reader));
        let (code, survivors) = supervision.until_end(&mut self.client, &mut refusals)?;
        if survivors {
            log::info!("the command left processes behind; they stay guarded until they end");
        }
        drop(made);
        supervise::last_refusals(&mut self.client, mount.filter(|_| !survivors), &mut refusals);
        match self.displaced_unread().saturating_sub(before) {
            0 => {}
            1 => note(&format!("1 unread file was removed or replaced, and is kept: {list}")),
            count => note(&format!(
                "{count} unread files were removed or replaced, and are kept: {list}"
            )),
        }
        if let Some(path) = &args.report {
            let mut report = refusals.report(&self.owner, &words(&args.command), code);
            report_diff::add_differences(&mut report, &self.owner, path, &mut self.client);
            write_report(path, &report);
        }
        if let Err(error) = self.client.leave() {
            log::debug!("{error}");
        }
        Ok(ExitCode::from(code))
    }

    /// Files that the command's owner has displaced unread so far, and which are kept.
    fn displaced_unread(&mut self) -> u64 {
        let status = self.client.status().ok();
        let own = status.and_then(|status| status.owners.into_iter().find(|owner| owner.name == self.owner));
        own.and_then(|owner| owner.counts.get(UNREAD).copied())
            .unwrap_or_default()
    }

    /// Mounts on a mount point in the run-time directory, by `fusermount3`.
    fn mount_aside(&mut self, args: &RunArgs, place: &Place, flags: MountFlags) -> Result<MadeMount, Problem> {
        let dir = Surroundings::real()
            .choose_outside(&place.path)
            .map_err(|error| Problem::new("no run-time directory", error))?;
        let mut made = MadeMount {
            point: make_mount_point(&dir)?,
            mount: 0,
            mounted: false,
        };
        let fuse = mounting::by_helper(&place.path.to_string_lossy(), &made.point, flags, false)?;
        made.mounted = true;
        made.mount = self.attach(attach_request(args, &made.point, &View::AsItIs, None), &fuse)?;
        Ok(made)
    }
}

fn beginning<'a>(dir: &'a Path, args: &RunArgs) -> run_child::Start<'a> {
    run_child::Start {
        dir,
        keep_capabilities: args.keep_capabilities,
    }
}

/// The ways to mount the directory over itself where only the command sees it, best first.
fn private_views(place: &Place, flags: MountFlags) -> Vec<View> {
    let over = run_child::Over {
        dir: place.path.clone(),
        flags,
    };
    let mut views = Vec::new();
    if sys::geteuid() == 0 {
        views.push(View::PrivateMounts(over.clone()));
    }
    views.push(View::UserNamespace(over));
    views
}

fn attach_request(args: &RunArgs, label: &Path, view: &View, child: Option<i32>) -> Attach {
    Attach {
        label: label.to_string_lossy().into_owned(),
        attribution: Attribution::Owner {
            name: args.owner.clone(),
            process: true,
        },
        policy: args.policy.policy(),
        multi_user: matches!(view, View::PrivateMounts(_)),
        read_only: false,
        noatime: false,
        strictatime: false,
        only_ids: matches!(view, View::UserNamespace(_)).then(|| (sys::geteuid(), sys::getegid())),
        namespace_of: child.and_then(|pid| u32::try_from(pid).ok()),
        linger: args.policy.linger.map(|time| time.as_secs()),
        rules: args.policy.rules.request(),
    }
}

fn words(command: &[OsString]) -> Vec<String> {
    command.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// Makes sure, before the command starts, that its report can be written.
fn check_report(path: &Path) -> Result<(), Problem> {
    // What has changed may be shown in it: for nobody else, unless its owner has made it so.
    let opened = fs::OpenOptions::new().create(true).append(true).mode(0o600).open(path);
    opened.map(drop).map_err(|error| {
        Problem::new(format!("cannot write the report {}", path.display()), error)
            .hint("give --report a file in a directory you can write to")
    })
}

/// The command has ended, and its exit code stands: a report that cannot be written is only told.
fn write_report(path: &Path, report: &serde_json::Value) {
    let written = serde_json::to_string_pretty(report)
        .map_err(std::io::Error::other)
        .and_then(|text| fs::write(path, text + "\n"));
    if let Err(error) = written {
        complain(&format!("cannot write the report {}: {error}", path.display()));
    }
}

fn make_mount_point(dir: &RuntimeDir) -> Result<PathBuf, Problem> {
    let point = dir.path().join(format!("view-{}", std::process::id()));
    match fs::create_dir(&point) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(Problem::new(
            format!("cannot make the mount point {}", point.display()),
            error,
        )),
        _ => Ok(point),
    }
}

fn all_failed(place: &Place, causes: &[run_child::PrepareError], last: Problem) -> Problem {
    let mut told: Vec<String> = causes.iter().map(ToString::to_string).collect();
    told.push(format!("{}: {}", last.what, last.cause));
    let hint = causes.iter().find_map(run_child::PrepareError::hint).or(last.hint);
    let problem = Problem::new(format!("cannot mount {}", place.path.display()), told.join("; "));
    problem.hint(hint.unwrap_or_else(|| "`unclobber doctor` looks for the cause".to_owned()))
}

/// Whether a directory of `PATH` holds something by this name.
fn is_on_path(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(name).symlink_metadata().is_ok())
}

fn not_executed(name: &str, errno: i32) -> Problem {
    let what = format!("cannot execute {name}");
    let error = sys::SysError::new("execvp", errno);
    // A directory of PATH that may not be searched makes a name that is nowhere look forbidden.
    let nowhere = errno == consts::EACCES && !name.contains('/') && !is_on_path(name);
    if nowhere || matches!(errno, consts::ENOENT | consts::ENOTDIR) {
        return Problem::new(what, "not found")
            .hint("check the name and PATH; of a script, also its first line")
            .code(127);
    }
    Problem::new(what, place::cause(&error))
        .hint("is it executable, and made for this machine?")
        .code(126)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_directory_keeps_its_place_inside() {
        let here = std::env::current_dir().unwrap();
        let parent = here.parent().unwrap();
        assert_eq!(start_directory(parent, None), here);
        let below = here.strip_prefix(parent).unwrap();
        assert_eq!(
            start_directory(parent, Some(Path::new("/v"))),
            Path::new("/v").join(below)
        );
        assert_eq!(start_directory(Path::new("/absent"), None), Path::new("/absent"));
    }

    #[test]
    fn exit_codes_of_what_cannot_be_executed() {
        assert_eq!(not_executed("x", consts::ENOENT).code, 127);
        assert_eq!(not_executed("./x", consts::EACCES).code, 126);
        assert_eq!(not_executed("sh", consts::EACCES).code, 126);
        assert_eq!(not_executed("no-such-command", consts::EACCES).code, 127);
        assert_eq!(not_executed("x", consts::ENOEXEC).code, 126);
    }
}
