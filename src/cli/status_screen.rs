//! What `unclobber status` shows: in short, for somebody who knows nothing of the product, or with everything there is.
//!
//! It never asks a guard: it words what it was given.

use std::path::Path;

use super::output::{Style, counted, lasting};
use super::place;
use super::why_screen::shell_word;
use crate::control::{Mode, MountStatus, OwnerStatus, Status};
use crate::guard::printable;

/// Owners shown at most, where not everything is asked for.
const MOST: usize = 20;

/// All guards, and the mounts whose guard has ended.
pub(super) fn describe_all(guards: &[Status], dead: &[String], all: bool, style: Style) -> String {
    let one = |guard| {
        if all {
            describe_wholly(guard, style)
        } else {
            describe(guard, style)
        }
    };
    let mut parts: Vec<String> = guards.iter().map(one).collect();
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
    if !all && !guards.is_empty() {
        let dir = match guards {
            [guard] => shell_word(Path::new(&guard.root)),
            _ => "DIR".to_owned(),
        };
        parts.push(format!(
            "what was refused: unclobber log --refused {dir}\n\
             what to do about it: unclobber why FILE\n\
             more about all this: unclobber status --verbose\n"
        ));
    }
    parts.join("\n")
}

/// The short form.
fn describe(guard: &Status, style: Style) -> String {
    let mut text = format!("{}\n", style.paint("1", &printable(&guard.root)));
    let end = match guard.linger {
        0 => "the guard ends with its last mount".to_owned(),
        linger => format!("the guard stays for {} after its last mount", lasting(linger)),
    };
    text.push_str(&format!("  guarded for {}; {end}\n", lasting(guard.age)));
    if guard.mounts.is_empty() {
        text.push_str("  nothing is mounted now\n");
    } else {
        text.push_str("\n  mounted at\n");
    }
    let width = guard.mounts.iter().map(|mount| mount.label.chars().count()).max();
    for mount in &guard.mounts {
        let label = printable(&mount.label);
        text.push_str(&format!("    {label:<0$}  {1}\n", width.unwrap_or(0), about(mount)));
    }
    text.push_str(&owners(guard, style));
    if let Some(problem) = &guard.rules_problem {
        text.push_str(&format!("\n  rules\n    {problem}; the rules as they were hold\n"));
    }
    let lost = guard.counts.get("files not kept").copied().unwrap_or(0);
    if lost > 0 {
        text.push_str(&format!(
            "\n  {} could not be kept in the attic; the guard's log says why\n",
            counted(lost, "displaced file")
        ));
    }
    text
}

/// What a mount does, in words.
fn about(mount: &MountStatus) -> String {
    let whose = match mount.owner.strip_prefix("by ") {
        Some(rule) => format!("each {rule} is an owner"),
        None => format!("owner {}", printable(&mount.owner)),
    };
    let does = match mount.policy.mode {
        Mode::Enforce => "refuses to overwrite what was not read",
        Mode::Observe => "refuses nothing (--mode observe)",
    };
    let private = if mount.private { ", seen by one run only" } else { "" };
    let read_only = if mount.read_only { ", read-only" } else { "" };
    format!("{does}, {whose}{private}{read_only}")
}

fn owners(guard: &Status, style: Style) -> String {
    if guard.owners.is_empty() {
        return String::new();
    }
    let title = guard.own.as_ref().map_or_else(
        || "owners".to_owned(),
        |own| format!("owners: {own}, who asks, and those below it"),
    );
    let names: Vec<String> = guard.owners.iter().map(|owner| printable(&owner.name)).collect();
    let shown = || guard.owners.iter().zip(&names).take(MOST);
    let width = shown().map(|(_, name)| name.chars().count()).max().unwrap_or(0).max(20);
    let observed = guard.owners.iter().any(|owner| would_refuse(owner) > 0);
    let mut head = format!("{:<width$}  {:>8}  {:>8}", "", "read", "refused");
    if observed {
        head.push_str("  would be refused");
    }
    let mut text = format!("\n  {title}\n    {}\n", style.paint("1", &head));
    for (owner, name) in shown() {
        let recorded = would_refuse(owner);
        let refused = count(owner, "refusals").saturating_sub(recorded);
        let mut line = format!("    {name:<width$}  {:>8}  {refused:>8}", count(owner, "observations"));
        if observed {
            line.push_str(&format!("  {recorded:>16}"));
        }
        text.push_str(&line);
        text.push('\n');
    }
    if guard.owners.len() > MOST {
        text.push_str(&format!("    and {} more (--verbose)\n", guard.owners.len() - MOST));
    }
    text
}

fn count(owner: &OwnerStatus, name: &str) -> u64 {
    owner.counts.get(name).copied().unwrap_or(0)
}

fn would_refuse(owner: &OwnerStatus) -> u64 {
    count(owner, "recorded refusals")
}

/// Everything there is.
fn describe_wholly(guard: &Status, style: Style) -> String {
    let mut text = format!(
        "{}  guard {}, process {}, since {}, stays {} after its last mount\n",
        style.paint("1", &printable(&guard.root)),
        guard.guard,
        guard.pid,
        lasting(guard.age),
        lasting(guard.linger)
    );
    let mounts = guard.mounts.iter().map(describe_mount);
    let owners = guard.owners.iter().map(describe_owner);
    text.push_str(&section("mounts", &mounts.collect::<Vec<_>>()));
    let title = guard.own.as_ref().map_or_else(
        || "owners".to_owned(),
        |own| format!("owners: {own}, who asks, and those below it; all are shown outside the run"),
    );
    text.push_str(&section(&title, &owners.collect::<Vec<_>>()));
    let problem = guard.rules_problem.iter();
    let problem = problem.map(|problem| format!("{problem}; the rules as they were hold"));
    text.push_str(&section("rules", &problem.collect::<Vec<_>>()));
    let width = guard.counts.keys().map(|name| name.len()).max().unwrap_or(0);
    let counts = guard.counts.iter().filter(|(_, count)| **count > 0);
    let counts = counts.map(|(name, count)| format!("{name:<width$}  {count:>10}"));
    text.push_str(&section("counts (what is not named is 0)", &counts.collect::<Vec<_>>()));
    text.push_str(&section("events", &guard.events.iter().cloned().collect::<Vec<_>>()));
    text
}

fn section(name: &str, lines: &[String]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let lines: String = lines.iter().map(|line| format!("    {line}\n")).collect();
    format!("  {name}\n{lines}")
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
        printable(&mount.label),
        printable(&mount.owner)
    )
}

fn describe_owner(owner: &OwnerStatus) -> String {
    let counts: Vec<String> = owner
        .counts
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    let named = if owner.named { "" } else { " (unnamed)" };
    format!("{}{named}  {}", printable(&owner.name), counts.join(", "))
        .trim_end()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard() -> Status {
        let mount = |owner: &str, mode, private| MountStatus {
            label: "/w".to_owned(),
            owner: owner.to_owned(),
            policy: crate::control::Policy {
                mode,
                ..crate::control::Policy::default()
            },
            private,
            ..MountStatus::default()
        };
        let owner = |name: &str, refusals, recorded| OwnerStatus {
            name: name.to_owned(),
            named: true,
            counts: [
                ("observations".to_owned(), 3),
                ("operations".to_owned(), 40),
                ("recorded refusals".to_owned(), recorded),
                ("refusals".to_owned(), refusals),
            ]
            .into(),
        };
        Status {
            root: "/w".to_owned(),
            guard: "fe00-1".to_owned(),
            age: 26,
            linger: 600,
            mounts: vec![
                mount("by session", Mode::Enforce, false),
                mount("A", Mode::Observe, true),
            ],
            owners: vec![owner("A", 5, 4), owner("b", 0, 0)],
            counts: [("known files".to_owned(), 7)].into(),
            ..Status::default()
        }
    }

    #[test]
    fn in_short_it_is_plain_and_aligned_and_counts_what_was_refused() {
        let text = describe_all(&[guard()], &["/x".to_owned()], false, Style::of_output());
        let expected = "\
/w
  guarded for 26 s; the guard stays for 10 min after its last mount

  mounted at
    /w  refuses to overwrite what was not read, each session is an owner
    /w  refuses nothing (--mode observe), owner A, seen by one run only

  owners
                              read   refused  would be refused
    A                            3         1                 4
    b                            3         0                 0
";
        assert!(text.starts_with(expected), "{text}");
        assert!(
            text.contains("\n/x  its guard has ended") && text.contains("what to do: "),
            "{text}"
        );
        assert!(
            text.contains("unclobber why FILE") && text.contains("--verbose"),
            "{text}"
        );
        assert!(!text.contains("known files") && !text.contains("fe00-1"), "{text}");
        assert_eq!(
            describe_all(&[], &[], false, Style::of_output()),
            "nothing is guarded\n"
        );
    }

    #[test]
    fn verbosely_it_has_everything() {
        let text = describe_all(&[guard()], &[], true, Style::of_output());
        for part in [
            "guard fe00-1, process 0, since 26 s, stays 10 min",
            "/w  owner A, observe, staged creation, data by daemon, seen by one run only",
            "A  observations 3, operations 40, recorded refusals 4, refusals 5",
            "known files           7",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(!text.contains("refusals 0"), "{text}");
        let inside = Status {
            own: Some("A".to_owned()),
            ..guard()
        };
        for all in [false, true] {
            let text = describe_all(std::slice::from_ref(&inside), &[], all, Style::of_output());
            assert!(text.contains("owners: A, who asks"), "{text}");
        }
    }
}
