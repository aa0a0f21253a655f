//! Reaching the guard of a directory: what `run`, `mount` and `status` need of it before they begin.
//!
//! It never asks a guard for anything but hello.

use std::path::{Path, PathBuf};

use super::args::{BoundsArgs, LogArgs, PolicyArgs};
use super::output::{Problem, note};
use super::place::{self, Guarded, Place};
use super::recording::RecordingArgs;
use crate::control::{Client, ClientError, Launch, Surroundings, guard_id};
use crate::sys::{self, consts};

/// The id of the guard of an unguarded directory.
pub(crate) fn id_of(place: &Place) -> Result<String, Problem> {
    let found = sys::stat(&place.fd);
    found
        .map(|found| guard_id(&found))
        .map_err(|error| Problem::new(format!("cannot look at {}", place.path.display()), error))
}

/// Whether a guard of this user runs.
pub(crate) fn is_running(id: &str) -> bool {
    let dirs = Surroundings::real().existing();
    dirs.iter().any(|dir| Client::open(dir, id).is_some())
}

/// The owner that this process is, of whichever guard: what a `run` has started can neither mount nor unmount.
pub(crate) fn own_owner() -> Option<String> {
    for dir in Surroundings::real().existing() {
        for id in dir.guards().unwrap_or_default() {
            let status = Client::open(&dir, &id).and_then(|mut client| client.status().ok());
            if let Some(own) = status.and_then(|status| status.own) {
                return Some(own);
            }
        }
    }
    None
}

/// Whether a guard of this user runs and has mounts, or may have: it does not say.
pub(crate) fn has_mounts(id: &str) -> bool {
    let dirs = Surroundings::real().existing();
    let mut running = dirs.iter().filter_map(|dir| Client::open(dir, id));
    running.any(|mut client| client.status().map_or(true, |status| !status.mounts.is_empty()))
}

/// Speaks to the guard of `place`, which is on no unclobber mount, starting it if it is not running.
pub(crate) fn reach(place: &Place, policy: &PolicyArgs, log: &LogArgs) -> Result<Client, Problem> {
    let bounds = &policy.bounds;
    let recording = policy.recording.resolved(&place.path)?;
    let what = || format!("cannot guard {}", place.path.display());
    let program = std::env::current_exe().map_err(|error| Problem::new(what(), error))?;
    let log_file = log.log_file.as_deref().map(place::absolute).transpose()?;
    let guard = id_of(place)?;
    let wishes = *bounds != BoundsArgs::default() || recording != RecordingArgs::default();
    if wishes && is_running(&guard) {
        note(
            "the guard of this directory runs already, and goes on as it was started: --attic, --attic-age, --attic-size, --attic-copy, --max-records and --events... have no effect",
        );
    }
    if !is_running(&guard) {
        note_neighbours(&place.path);
    }
    let launch = Launch {
        program: real_program(program),
        guard,
        attic_age: bounds.attic_age,
        attic_size: bounds.attic_size,
        flags: bounds.flags().into_iter().chain(recording.flags()).collect(),
        root: place.path.to_string_lossy().into_owned(),
        log_file,
        verbose: log.verbose,
    };
    let found = Client::find_or_start(&Surroundings::real(), &launch, &place.fd);
    found.map_err(|error| client_problem(what(), &error))
}

/// Says which directories above and below are guarded already: a guard knows of its own directory only.
fn note_neighbours(path: &Path) {
    for dir in Surroundings::real().existing() {
        for id in dir.guards().unwrap_or_default() {
            let status = Client::open(&dir, &id).and_then(|mut client| client.status().ok());
            let Some(root) = status.map(|status| PathBuf::from(status.root)) else {
                continue;
            };
            if root != path && path.starts_with(&root) {
                let (path, root) = (path.display(), root.display());
                note(&format!(
                    "{path} is inside {root}, which is guarded already, by a guard of its own: the two know nothing of each other's owners; for one guard of both, use `unclobber run --workspace {root}` here, too"
                ));
            } else if root != path && root.starts_with(path) {
                let (path, root) = (path.display(), root.display());
                note(&format!(
                    "{root}, inside {path}, is guarded already, by a guard of its own: the two know nothing of each other's owners; for one guard of both, use `unclobber run --workspace {path}` there, too"
                ));
            }
        }
    }
}

/// A program that was replaced on disk while it runs is shown with this ending; the link itself still works.
fn real_program(program: PathBuf) -> PathBuf {
    if program.exists() {
        program
    } else {
        PathBuf::from("/proc/self/exe")
    }
}

/// Speaks to the guard that serves an unclobber mount.
pub(crate) fn reach_mounted(guarded: &Guarded) -> Result<Client, Problem> {
    Client::find(&Surroundings::real(), &guarded.guard).ok_or_else(|| {
        let point = guarded.mount.point.display();
        Problem::new(
            format!("cannot join the mount at {point}"),
            "its guard does not answer this user here",
        )
        .hint("use the user who mounted it and the same XDG_RUNTIME_DIR; or run the command without `unclobber run`")
    })
}

/// A problem with a guard.
pub(crate) fn client_problem(what: impl Into<String>, error: &ClientError) -> Problem {
    let hint = match error {
        ClientError::Refused(failure) => failure.hint.clone().or_else(|| {
            // The guard looks at its callers there.
            failure.message.contains("/proc/").then(|| {
                "where /proc is that of another pid namespace, mount this one's first: mount -t proc proc /proc"
                    .to_owned()
            })
        }),
        ClientError::Broken(_) => Some("the guard's log in its run-time directory may say why it ended".to_owned()),
        ClientError::Start(_) | ClientError::Silent(_) => Some("`unclobber doctor` looks for the cause".to_owned()),
        ClientError::NoRuntimeDir(_) => Some(
            "set XDG_RUNTIME_DIR to a directory of yours, outside the guarded one, that only you can enter".to_owned(),
        ),
    };
    let problem = Problem::new(what, error);
    match hint {
        Some(hint) => problem.hint(hint),
        None => problem,
    }
}

/// Sees to it that the directory's own rules can be read before it is mounted.
pub(crate) fn check_rules(client: &mut Client, place: &Place) -> Result<(), Problem> {
    let what = || format!("cannot guard {}", place.path.display());
    let report = client
        .rules(None, None, false)
        .map_err(|error| client_problem(what(), &error))?;
    match report.problem {
        None => Ok(()),
        Some(problem) => {
            Err(Problem::new(what(), problem).hint("correct the file; `unclobber rules` shows the rules that hold"))
        }
    }
}

/// Says what is wrong with the rules of a mount that is there already: the last good ones hold.
pub(crate) fn note_rules_problem(client: &mut Client) {
    match client.rules(None, None, false) {
        Ok(report) => {
            if let Some(problem) = report.problem {
                note(&format!("{problem}; the rules as they were hold"));
            }
        }
        Err(error) => log::debug!("{error}"),
    }
}

/// A refusal to guard what cannot be guarded.
pub(crate) fn check_guardable(place: &Place) -> Result<(), Problem> {
    if place.path == Path::new("/") {
        return Err(
            Problem::new("cannot guard /", "the root directory holds what the guard itself needs")
                .hint("name a directory below it"),
        );
    }
    check_no_kernel_view(place, "guard")?;
    super::folding::check(place)
}

/// Refuses `/proc` and `/sys`: no file of anybody is there, and the guard itself looks at both through their names, so
/// that a mount over them would wait for itself.
pub(crate) fn check_no_kernel_view(place: &Place, act: &str) -> Result<(), Problem> {
    let found = sys::statfs(&place.fd).map(|found| found.kind);
    if matches!(found, Ok(consts::PROC_SUPER_MAGIC | consts::SYSFS_MAGIC)) {
        let what = format!("cannot {act} {}", place.path.display());
        return Err(
            Problem::new(what, "it is a view of the kernel, not a place of files").hint("name another directory")
        );
    }
    Ok(())
}
