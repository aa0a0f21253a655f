//! `unclobber status --metrics`: every count in the text form of Prometheus.
//!
//! It never counts anything itself; the names are a contract (`docs/EVENTS.md`).

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::control::Status;

/// A name, what it counts, and how to find it in a status.
struct Metric {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    samples: fn(&Status) -> Vec<Sample>,
}

type Label = (&'static str, String);
/// Labels and a count.
type Sample = (Vec<Label>, u64);

/// Counts of the guard by the names that `status` gives them.
pub(super) const OF_GUARD: [(&str, &str, &str, &str); 12] = [
    (
        "operations",
        "unclobber_operations_total",
        "counter",
        "Requests answered.",
    ),
    (
        "observations",
        "unclobber_observations_total",
        "counter",
        "Reads and misses that counted as observations.",
    ),
    (
        "refusals",
        "unclobber_refusals_total",
        "counter",
        "Refusals, enforced or only recorded.",
    ),
    (
        "recorded refusals",
        "unclobber_would_refuse_total",
        "counter",
        "Refusals that were only recorded (--mode observe).",
    ),
    (
        "kept files",
        "unclobber_kept_files_total",
        "counter",
        "Files put into the attic.",
    ),
    (
        "files not kept",
        "unclobber_not_kept_total",
        "counter",
        "Displaced content that could not be kept.",
    ),
    (
        "allowed once",
        "unclobber_allowed_total",
        "counter",
        "Changes that `unclobber allow` let through.",
    ),
    (
        "events written",
        "unclobber_events_written_total",
        "counter",
        "Events written down.",
    ),
    (
        "events dropped",
        "unclobber_events_dropped_total",
        "counter",
        "Events that found no room or could not be written.",
    ),
    (
        "known files",
        "unclobber_known_files",
        "gauge",
        "Files and directories in memory.",
    ),
    (
        "file records",
        "unclobber_file_records",
        "gauge",
        "Records of files in memory.",
    ),
    (
        "name records",
        "unclobber_name_records",
        "gauge",
        "Records of names in memory.",
    ),
];

/// Begins the name of a count that is about one code.
pub(super) const BY_CODE: &str = "refusals ";

const OTHERS: [Metric; 7] = [
    Metric {
        name: "unclobber_refusals_by_code_total",
        kind: "counter",
        help: "Refusals by code, enforced or only recorded.",
        samples: |status| {
            let of_code = |(name, count): (&String, &u64)| Some((name.strip_prefix(BY_CODE)?.to_owned(), *count));
            let found = status.counts.iter().filter_map(of_code);
            found.map(|(code, count)| (vec![("code", code)], count)).collect()
        },
    },
    Metric {
        name: "unclobber_owner_operations_total",
        kind: "counter",
        help: "Requests of an owner.",
        samples: |status| of_owners(status, "operations"),
    },
    Metric {
        name: "unclobber_owner_observations_total",
        kind: "counter",
        help: "Observations of an owner.",
        samples: |status| of_owners(status, "observations"),
    },
    Metric {
        name: "unclobber_owner_refusals_total",
        kind: "counter",
        help: "Refusals of an owner.",
        samples: |status| of_owners(status, "refusals"),
    },
    Metric {
        name: "unclobber_mounts",
        kind: "gauge",
        help: "Mounts being served.",
        samples: |status| vec![(Vec::new(), status.mounts.len() as u64)],
    },
    Metric {
        name: "unclobber_owners",
        kind: "gauge",
        help: "Owners that are known.",
        samples: |status| vec![(Vec::new(), status.owners.len() as u64)],
    },
    Metric {
        name: "unclobber_age_seconds",
        kind: "gauge",
        help: "Seconds since the guard began.",
        samples: |status| vec![(Vec::new(), status.age)],
    },
];

fn of_owners(status: &Status, count: &str) -> Vec<Sample> {
    let of_owner = |owner: &crate::control::OwnerStatus| {
        let count = owner.counts.get(count).copied().unwrap_or_default();
        (vec![("owner", owner.name.clone())], count)
    };
    status.owners.iter().map(of_owner).collect()
}

/// All counts of all guards.
pub(super) fn text(guards: &[Status]) -> String {
    let mut text = String::new();
    for (count, name, kind, help) in OF_GUARD {
        let of_guard = |guard: &Status| {
            guard
                .counts
                .get(count)
                .map(|count| (Vec::new(), *count))
                .into_iter()
                .collect()
        };
        family(&mut text, (name, kind, help), guards, of_guard);
    }
    for metric in OTHERS {
        family(
            &mut text,
            (metric.name, metric.kind, metric.help),
            guards,
            metric.samples,
        );
    }
    text
}

fn family(
    text: &mut String,
    (name, kind, help): (&str, &str, &str),
    guards: &[Status],
    samples: impl Fn(&Status) -> Vec<Sample>,
) {
    let mut lines = format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
    for guard in guards {
        let of_guard = [("guard", guard.guard.clone()), ("root", guard.root.clone())];
        // One sample for each set of labels: owners of the same name would be two of one.
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        for (labels, count) in samples(guard) {
            let labels: Vec<String> = of_guard
                .iter()
                .chain(&labels)
                .map(|(name, value)| format!("{name}=\"{}\"", escape(value)))
                .collect();
            *sums.entry(labels.join(",")).or_default() += count;
        }
        for (labels, count) in sums {
            if writeln!(lines, "{name}{{{labels}}} {count}").is_err() {
                return;
            }
        }
    }
    text.push_str(&lines);
}

/// A label's value as the text form has it.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::OwnerStatus;

    #[test]
    fn names_come_with_their_meaning_and_labels_are_escaped() {
        let owner = OwnerStatus {
            name: "A".to_owned(),
            counts: [("refusals".to_owned(), 2)].into(),
            ..OwnerStatus::default()
        };
        let guard = Status {
            guard: "id".to_owned(),
            root: "/a\"b\\c\nd".to_owned(),
            owners: vec![owner],
            counts: [("kept files".to_owned(), 7), ("refusals FS_NOT_OBSERVED".to_owned(), 2)].into(),
            ..Status::default()
        };
        let text = text(&[guard]);
        let labels = "guard=\"id\",root=\"/a\\\"b\\\\c\\nd\"";
        for line in [
            "# TYPE unclobber_kept_files_total counter".to_owned(),
            format!("unclobber_kept_files_total{{{labels}}} 7"),
            format!("unclobber_refusals_by_code_total{{{labels},code=\"FS_NOT_OBSERVED\"}} 2"),
            format!("unclobber_owner_refusals_total{{{labels},owner=\"A\"}} 2"),
            format!("unclobber_mounts{{{labels}}} 0"),
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
