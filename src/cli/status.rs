//! `unclobber status`: what the user's guards are doing.
//!
//! It never starts a guard, and never keeps one alive.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;

use serde_json::json;

use super::args::StatusArgs;
use super::guarding;
use super::metrics;
use super::mountinfo;
use super::output::{Problem, Style, note, print};
use super::place;
use crate::control::{Client, ClientError, MountStatus, OwnerStatus, Status, Surroundings};

/// The version of the JSON form.
const VERSION: u32 = 1;

/// How long a mount may take to say whether it is dead.
const PROBE_LIMIT: Duration = Duration::from_secs(1);

/// Shows the guards.
pub(crate) fn status(args: &StatusArgs) -> Result<ExitCode, Problem> {
    let Found {
        mut guards,
        all_answered,
    } = all();
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
        print(&describe_all(&guards, &dead, Style::of_output()))?;
    }
    Ok(ExitCode::SUCCESS)
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

fn describe_all(guards: &[Status], dead: &[String], style: Style) -> String {
    let mut parts: Vec<String> = guards.iter().map(|guard| describe(guard, style)).collect();
    parts.extend(dead.iter().map(|point| {
        format!(
            "{}  {}\n  what to do: {}\n",
            style.paint("1;31", point),
            place::GUARD_ENDED,
            place::dead_step(Path::new(point))
        )
    }));
    if parts.is_empty() {
        return "nothing is guarded\n".to_owned();
    }
    parts.join("\n")
}

fn describe(guard: &Status, style: Style) -> String {
    let mut text = format!(
        "{}  guard {}, process {}, since {}, stays {} after its last mount\n",
        style.paint("1", &guard.root),
        guard.guard,
        guard.pid,
        time(guard.age),
        time(guard.linger)
    );
    let mounts = guard.mounts.iter().map(describe_mount);
    let owners = guard.owners.iter().map(describe_owner);
    text.extend(section("mounts", mounts.collect()));
    let title = guard.own.as_ref().map_or_else(
        || "owners".to_owned(),
        |own| format!("owners: {own}, who asks, and those below it; all are shown outside the run"),
    );
    text.extend(section(&title, owners.collect()));
    text.extend(section(
        "rules",
        guard
            .rules_problem
            .iter()
            .map(|problem| format!("{problem}; the rules as they were hold"))
            .collect(),
    ));
    if !guard.counts.is_empty() {
        let counts = guard.counts.iter().filter(|(_, count)| **count > 0);
        text.extend(section(
            "counts (what is not named is 0)",
            counts.map(|(name, count)| format!("{name} {count}")).collect(),
        ));
    }
    if let Some(events) = &guard.events {
        text.extend(section("events", vec![events.clone()]));
    }
    text
}

fn section(name: &str, lines: Vec<String>) -> Option<String> {
    let mut text = format!("  {name}\n");
    for line in &lines {
        if writeln!(text, "    {line}").is_err() {
            return None;
        }
    }
    (!lines.is_empty()).then_some(text)
}

fn describe_mount(mount: &MountStatus) -> String {
    let policy = &mount.policy;
    let mode = format!("{:?}", policy.mode).to_lowercase();
    let create = format!("{:?}", policy.create).to_lowercase();
    let data = format!("{:?}", mount.data).to_lowercase();
    let private = if mount.private { ", seen by one run only" } else { "" };
    let read_only = if mount.read_only { ", read-only" } else { "" };
    format!(
        "{}  owner {}, {mode}, {create} creation, data by {data}{private}{read_only}",
        mount.label, mount.owner
    )
}

fn describe_owner(owner: &OwnerStatus) -> String {
    let counts: Vec<String> = owner
        .counts
        .iter()
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    let named = if owner.named { "" } else { " (unnamed)" };
    format!("{}{named}  {}", owner.name, counts.join(", "))
        .trim_end()
        .to_owned()
}

fn time(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        _ => format!("{}h", seconds / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_is_described() {
        let mount = MountStatus {
            label: "/w".to_owned(),
            owner: "A".to_owned(),
            private: true,
            ..MountStatus::default()
        };
        let owner = OwnerStatus {
            name: "A".to_owned(),
            named: true,
            counts: [("refused".to_owned(), 2)].into(),
        };
        let guard = Status {
            root: "/w".to_owned(),
            linger: 600,
            mounts: vec![mount],
            owners: vec![owner],
            ..Status::default()
        };
        let text = describe_all(std::slice::from_ref(&guard), &["/x".to_owned()], Style::of_output());
        assert!(
            text.contains("\n/x  its guard has ended") && text.contains("what to do: "),
            "{text}"
        );
        assert!(
            text.contains("/w  owner A, enforce, staged creation, data by daemon, seen by one run only"),
            "{text}"
        );
        assert!(text.contains("A  refused 2") && text.contains("stays 10m"), "{text}");
        assert_eq!(describe_all(&[], &[], Style::of_output()), "nothing is guarded\n");
        let inside = Status {
            own: Some("A".to_owned()),
            ..guard
        };
        let text = describe_all(&[inside], &[], Style::of_output());
        assert!(text.contains("owners: A, who asks"), "{text}");
    }
}
