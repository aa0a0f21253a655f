//! `unclobber status`: what the user's guards are doing.
//!
//! It never starts a guard, and never keeps one alive.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;

use serde_json::json;

use super::args::{LogArgs, StatusArgs};
use super::guarding;
use super::metrics;
use super::mountinfo;
use super::output::{Problem, Style, note, print};
use super::place;
use super::status_screen::describe_all;
use crate::control::{Client, ClientError, Status, Surroundings};

/// The version of the JSON form.
const VERSION: u32 = 1;

/// How long a mount may take to say whether it is dead.
const PROBE_LIMIT: Duration = Duration::from_secs(1);

/// Shows the guards.
pub(crate) fn status(args: &StatusArgs, log: &LogArgs) -> Result<ExitCode, Problem> {
    let Found {
        mut guards,
        all_answered,
    } = all();
    hide_others(&mut guards);
    // One that does not answer could hold up whoever looks at its mount.
    let mut dead = if all_answered { dead_mounts(&guards) } else { Vec::new() };
    if let Some(path) = &args.mountpoint {
        let id = guard_at(path)?;
        guards.retain(|guard| guard.guard == id);
        dead.clear();
        if guards.is_empty() {
            return Err(
                Problem::new(format!("cannot show {}", path.display()), "no guard of yours serves it")
                    .hint("`unclobber status` lists all of them"),
            );
        }
    }
    if args.json {
        let all = json!({ "v": VERSION, "guards": guards, "dead_mounts": dead });
        let text = serde_json::to_string_pretty(&all).map_err(|error| Problem::new("status", error))?;
        print(&format!("{text}\n"))?;
    } else if args.metrics {
        print(&metrics::text(&guards))?;
    } else {
        print(&describe_all(&guards, &dead, log.verbose > 0, Style::of_output()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Sorts guards by their directory; inside an owner, those of others are shown without their owners.
fn hide_others(guards: &mut [Status]) {
    guards.sort_by(|a, b| a.root.cmp(&b.root));
    if guards.iter().any(|guard| guard.own.is_some()) {
        let others = guards.iter_mut().filter(|guard| guard.own.is_none());
        others.for_each(|guard| guard.owners.clear());
    }
}

fn guard_at(path: &Path) -> Result<String, Problem> {
    let place = place::resolve(path)?;
    match &place.guarded {
        Some(guarded) => Ok(guarded.guard.clone()),
        None => guarding::id_of(&place),
    }
}

struct Found {
    guards: Vec<Status>,
    all_answered: bool,
}

fn all() -> Found {
    let mut found: Vec<Status> = Vec::new();
    let mut all_answered = true;
    for dir in Surroundings::real().existing() {
        for id in dir.guards().unwrap_or_default() {
            match Client::open(&dir, &id).map(|mut client| client.status()) {
                Some(Ok(status)) => found.push(status),
                Some(Err(error @ ClientError::Silent(_))) => {
                    all_answered = false;
                    note(&format!("guard {id}: {error}"));
                }
                other => log::debug!("guard {id} does not answer: {other:?}"),
            }
        }
    }
    Found {
        guards: found,
        all_answered,
    }
}

/// The mounts of ours whose guard has ended; those that a guard here serves are not looked at.
fn dead_mounts(guards: &[Status]) -> Vec<String> {
    let mounts = mountinfo::read().unwrap_or_else(|error| {
        log::debug!("/proc/self/mountinfo: {error}");
        Vec::new()
    });
    let is_served = |label: &str| {
        let mut served = guards.iter().flat_map(|guard| &guard.mounts);
        served.any(|mount| mount.label == label)
    };
    let mut dead: Vec<String> = mounts
        .iter()
        .filter(|mount| mount.is_ours() && !is_served(&mount.point.to_string_lossy()) && is_dead(mount.point.clone()))
        .map(|mount| mount.point.to_string_lossy().into_owned())
        .collect();
    dead.dedup();
    dead
}

/// Whether a mount is dead; one that does not answer soon is not.
fn is_dead(point: PathBuf) -> bool {
    let (sender, receiver) = mpsc::channel();
    // Whoever serves it may be stopped: the answer is waited for by another thread.
    let asking = std::thread::Builder::new().spawn(move || {
        if sender.send(place::is_dead_at(&point)).is_err() {
            log::debug!("{} answers late", point.display());
        }
    });
    asking.is_ok() && receiver.recv_timeout(PROBE_LIMIT).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::OwnerStatus;

    #[test]
    fn inside_an_owner_those_of_other_guards_are_not_shown() {
        let guard = |root: &str, own: Option<&str>| Status {
            root: root.to_owned(),
            own: own.map(str::to_owned),
            owners: vec![OwnerStatus::default()],
            ..Status::default()
        };
        let shown = |mut guards: Vec<Status>| -> Vec<(String, usize)> {
            hide_others(&mut guards);
            guards
                .into_iter()
                .map(|guard| (guard.root, guard.owners.len()))
                .collect()
        };
        let of = |root: &str, count| (root.to_owned(), count);
        assert_eq!(
            shown(vec![guard("/b", Some("A")), guard("/a", None)]),
            [of("/a", 0), of("/b", 1)]
        );
        assert_eq!(
            shown(vec![guard("/b", None), guard("/a", None)]),
            [of("/a", 1), of("/b", 1)]
        );
    }
}
