//! The rows: what each is called, what it is to reach, and the numbers made of the records.

use std::collections::BTreeMap;

use serde::Serialize;

use super::ops::WAYS;
use super::suite::Record;

/// A row, and what it is to reach with the guard enforced: the ratio to native on one core, and that to the best peer.
pub(crate) struct Row {
    pub(crate) key: &'static str,
    pub(crate) label: &'static str,
    pub(crate) target: Option<f64>,
    pub(crate) against_peer: Option<f64>,
}

const fn row(key: &'static str, label: &'static str, target: Option<f64>, against_peer: Option<f64>) -> Row {
    Row {
        key,
        label,
        target,
        against_peer,
    }
}

pub(crate) const ROWS: [Row; 20] = [
    row("create", "create, write 4 KiB, close", Some(2.7), Some(0.8)),
    row("stat-first", "stat, first touch", Some(6.5), Some(0.8)),
    row("stat-again", "stat again, by another process", Some(1.2), None),
    row("missing", "stat of a missing name", Some(3.2), Some(0.8)),
    row("missing-again", "stat of a missing name, again", Some(1.2), None),
    row("read", "open, read 4 KiB, close", Some(4.5), Some(0.55)),
    row("replace", "replace (O_TRUNC, write, close)", Some(1.5), Some(0.55)),
    row("append", "append", Some(4.0), Some(0.55)),
    row("rename", "temp file + rename over", Some(2.3), Some(0.8)),
    row("unlink", "unlink", Some(2.3), Some(0.55)),
    row("seq-write", "sequential write, 1 MiB", Some(1.05), None),
    row("seq-read", "sequential read, 1 MiB", Some(1.05), None),
    row("untar", "untar 3,000 files", Some(3.5), Some(0.55)),
    row("find", "find with sizes, x3", Some(1.6), Some(0.55)),
    row("grep", "grep -r, x2", Some(3.7), Some(0.55)),
    row("rm", "rm -r", Some(2.3), Some(0.55)),
    row("clone", "git clone (local)", Some(3.0), Some(0.55)),
    row("status", "git status, x3", Some(1.9), Some(0.8)),
    row("switch", "git switch there and back", Some(2.0), Some(0.8)),
    row("compile", "compile 100 C files, ar", Some(1.05), None),
];

pub(crate) const PEERS: [&str; 2] = ["bindfs", "fuse-overlayfs"];

/// A number and how far its rounds lie apart.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    /// The median distance from the median.
    pub(crate) deviation: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) rounds: usize,
}

impl Spread {
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let mid = median(values)?;
        let distances: Vec<f64> = values.iter().map(|value| (value - mid).abs()).collect();
        Some(Self {
            median: mid,
            deviation: median(&distances)?,
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(0.0, f64::max),
            rounds: values.len(),
        })
    }
}

fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    Some(if sorted.len() % 2 == 1 {
        upper
    } else {
        f64::midpoint(upper, sorted[middle - 1])
    })
}

/// The results of one mode: nanoseconds per operation by row, filesystem and round.
#[derive(Debug, Default)]
pub(crate) struct Results {
    times: BTreeMap<(String, String), BTreeMap<u32, f64>>,
    /// Of the time on the bare directory, what programs computed by themselves.
    computed: BTreeMap<(String, u32), f64>,
}

impl Results {
    pub(crate) fn of(records: &[Record], mode: &str) -> Self {
        let mut results = Self::default();
        for record in records
            .iter()
            .filter(|record| record.mode == mode && record.failure.is_none())
        {
            for (row, ns, count, own) in &record.rows {
                #[expect(clippy::cast_precision_loss, reason = "nanoseconds of a workload are far from 2^53")]
                let [each, own] = [*ns, *own].map(|ns| ns as f64 / f64::from((*count).max(1)));
                if record.place == "native" {
                    results.computed.insert((row.clone(), record.round), own);
                }
                let rounds = results.times.entry((row.clone(), record.place.clone())).or_default();
                rounds.insert(record.round, each);
            }
        }
        results
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    fn rounds(&self, row: &str, place: &str) -> Option<&BTreeMap<u32, f64>> {
        self.times.get(&(row.to_owned(), place.to_owned()))
    }

    /// Time per operation in microseconds.
    pub(crate) fn micros(&self, row: &str, place: &str) -> Option<Spread> {
        let values: Vec<f64> = self.rounds(row, place)?.values().map(|ns| ns / 1000.0).collect();
        Spread::of(&values)
    }

    /// The ratio to another filesystem's time in the same round.
    pub(crate) fn ratio(&self, row: &str, place: &str, to: &str) -> Option<Spread> {
        self.against(row, place, |round| self.rounds(row, to)?.get(&round).copied())
    }

    /// The ratio to the peer that was fastest in the same round.
    pub(crate) fn against_best_peer(&self, row: &str, place: &str) -> Option<Spread> {
        self.against(row, place, |round| {
            let times = PEERS
                .iter()
                .filter_map(|peer| self.rounds(row, peer)?.get(&round).copied());
            times.min_by(f64::total_cmp)
        })
    }

    fn against(&self, row: &str, place: &str, base: impl Fn(u32) -> Option<f64>) -> Option<Spread> {
        let rounds = self.rounds(row, place)?;
        let ratios: Vec<f64> = rounds
            .iter()
            .filter_map(|(round, ns)| Some(ns / base(*round)?))
            .collect();
        Spread::of(&ratios)
    }

    /// The limit: what the same requests cost when they are answered from memory, and the work of the filesystem below
    /// besides, which is the native time without the programs' own; where the guard has to ask more of that filesystem than
    /// the program would, the native time of just that. None for bulk data, which no request carries.
    pub(crate) fn limit(&self, row: &str) -> Option<Spread> {
        if row.starts_with("seq-") {
            return None;
        }
        let (null, native) = (self.rounds(row, "null")?, self.rounds(row, "native")?);
        let way = WAYS.into_iter().find(|(_, of)| *of == row);
        let asked = way.and_then(|(way, _)| self.rounds(way, "native")).unwrap_or(native);
        let of_round = |(round, native): (&u32, &f64)| {
            let own = self.computed.get(&(row.to_owned(), *round)).copied().unwrap_or(0.0);
            Some((null.get(round)? + (asked.get(round)? - own).max(0.0)) / native)
        };
        let limits: Vec<f64> = native.iter().filter_map(of_round).collect();
        Spread::of(&limits)
    }
}
