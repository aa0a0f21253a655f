//! The rounds: every workload on every filesystem in turn, again and again, so that what drifts drifts for all alike.
//!
//! Each result is written down at once: a run that was broken off goes on where it stopped.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use unclobber::fs::RequestKind;

use super::places::{self, Place};
use super::trees::{self, Sources};
use super::{ops, say};

/// Rounds after which the longest workload, which differs least, is left out.
const COMPILE_ROUNDS: u32 = 2;
/// A workload that takes longer has hung.
const LIMIT: &str = "120";

/// One result.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) mode: String,
    pub(crate) round: u32,
    /// The workload that was run.
    pub(crate) workload: String,
    /// The filesystem.
    pub(crate) place: String,
    /// Row, nanoseconds, operations, nanoseconds that programs computed by themselves. None when it failed.
    pub(crate) rows: Vec<(String, u64, u32, u64)>,
    /// Requests that somebody waited for, with those of the preparation.
    #[serde(default)]
    pub(crate) requests: Option<BTreeMap<String, u64>>,
    #[serde(default)]
    pub(crate) failure: Option<String>,
}

/// What a run is asked for.
#[derive(Debug, clap::Args)]
pub(crate) struct SuiteArgs {
    /// Where everything is done; the filesystem to be measured
    #[arg(long)]
    dir: PathBuf,
    /// Where archives and repositories lie, on another filesystem
    #[arg(long)]
    sources: PathBuf,
    /// The program
    #[arg(long)]
    unclobber: PathBuf,
    /// What is written down
    #[arg(long)]
    record: PathBuf,
    /// `pinned` or `unpinned`: said of the results; who pins is the caller
    #[arg(long)]
    mode: String,
    #[arg(long, default_value_t = 7)]
    rounds: u32,
    /// Only these workloads
    #[arg(long)]
    workload: Vec<String>,
    /// Only these filesystems, and native
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    #[arg(long)]
    quick: bool,
    /// No further round begins that would not end within so many seconds
    #[arg(long, default_value_t = 380)]
    seconds: u64,
}

/// The names of all workloads.
pub(crate) fn workloads() -> Vec<&'static str> {
    ops::GROUPS.into_iter().chain(trees::WORKLOADS).collect()
}

/// All that was written down.
pub(crate) fn records(path: &Path) -> io::Result<Vec<Record>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    // A last line that was cut short is a result that is not there.
    let lines = BufReader::new(file).lines().map_while(Result::ok);
    Ok(lines.filter_map(|line| serde_json::from_str(&line).ok()).collect())
}

struct Suite<'a> {
    args: &'a SuiteArgs,
    count: u32,
    record: File,
    done: BTreeSet<(u32, String, String)>,
    failed: BTreeSet<String>,
}

/// Runs all rounds; says whether nothing failed.
pub(crate) fn run(args: &SuiteArgs) -> io::Result<bool> {
    let began = Instant::now();
    let names = places::available(&args.only, &args.unclobber, &mut say)?;
    let known = workloads();
    if let Some(wrong) = args.workload.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(io::Error::other(format!(
            "no such workload: {wrong} (there are: {})",
            known.join(" ")
        )));
    }
    let asked = |name: &&str| args.workload.is_empty() || args.workload.iter().any(|asked| asked == name);
    let mut list: Vec<&str> = known.iter().copied().filter(asked).collect();
    if unclobber::sys::geteuid() != 0 && list.contains(&"stat") {
        say("SKIPPED stat: only root may drop the kernel's names".to_owned());
        list.retain(|name| *name != "stat");
    }
    Sources::make(&args.sources, args.quick)?;
    let earlier = records(&args.record)?;
    let of_this = earlier.iter().filter(|record| record.mode == args.mode);
    let mut suite = Suite {
        args,
        count: if args.quick { 100 } else { 400 },
        record: OpenOptions::new().create(true).append(true).open(&args.record)?,
        done: of_this
            .map(|record| (record.round, record.workload.clone(), record.place.clone()))
            .collect(),
        failed: BTreeSet::new(),
    };
    let mut mounted = Vec::new();
    for name in names {
        match Place::mount(name, &args.dir, &args.unclobber) {
            Ok(place) => mounted.push(place),
            Err(error) => suite.fail(name, &error.to_string()),
        }
    }
    let mut longest = Duration::ZERO;
    for round in 0..args.rounds {
        if round > 0 && began.elapsed() + longest > Duration::from_secs(args.seconds) {
            say(format!(
                "{}: the time is up after {round} rounds of {}",
                args.mode, args.rounds
            ));
            break;
        }
        let of_round = Instant::now();
        suite.round(round, &list, &mounted)?;
        longest = longest.max(of_round.elapsed());
        say(format!(
            "{}: round {} of {} done after {} s",
            args.mode,
            round + 1,
            args.rounds,
            began.elapsed().as_secs()
        ));
    }
    for place in mounted {
        let refusals = place.refusals();
        if refusals > 0 {
            suite.fail(
                place.name,
                &format!("{refusals} refusals: the guard stood in the way of the workloads"),
            );
        }
        place.unmount()?;
    }
    Ok(suite.failed.is_empty())
}

impl Suite<'_> {
    fn fail(&mut self, name: &str, why: &str) {
        say(format!("FAILED {name}: {why}"));
        self.failed.insert(name.to_owned());
    }

    fn round(&mut self, round: u32, list: &[&str], mounted: &[Place]) -> io::Result<()> {
        for workload in list {
            if *workload == "compile" && round >= COMPILE_ROUNDS {
                continue;
            }
            for turn in 0..mounted.len() {
                // Another filesystem goes first in every round.
                let shift = usize::try_from(round).unwrap_or(0);
                let place = &mounted[(turn + shift) % mounted.len()];
                let key = (round, (*workload).to_owned(), place.name.to_owned());
                if self.done.contains(&key) || self.failed.contains(place.name) {
                    continue;
                }
                self.measure_and_write(round, workload, place)?;
                for (way, of) in ops::WAYS {
                    if of == *workload && place.name == "native" {
                        self.measure_and_write(round, way, place)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn measure_and_write(&mut self, round: u32, workload: &str, place: &Place) -> io::Result<()> {
        let record = self.measure(round, workload, place)?;
        writeln!(self.record, "{}", serde_json::to_string(&record)?)?;
        if let Some(why) = &record.failure {
            self.fail(place.name, &format!("{workload}: {why}"));
        }
        Ok(())
    }

    fn measure(&self, round: u32, workload: &str, place: &Place) -> io::Result<Record> {
        let of_ops = ops::GROUPS.contains(&workload) || ops::WAYS.iter().any(|(way, _)| *way == workload);
        let dir = place.dir().join(if of_ops { "ops" } else { "trees" });
        fs::create_dir_all(&dir)?;
        // What others have left to be written must not be written meanwhile.
        Command::new("sync").arg("-f").arg(&self.args.dir).status()?;
        let before = if round == 0 { place.requests() } else { None };
        let mut command = Command::new("timeout");
        command.arg(LIMIT).arg(std::env::current_exe()?);
        if of_ops {
            command.args(["op", workload]).arg(&dir).arg(self.count.to_string());
        } else {
            command.args(["tree", workload]).arg(&dir).arg(&self.args.sources);
            if self.args.quick {
                command.arg("--quick");
            }
        }
        let output = command.output()?;
        let rows: Vec<(String, u64, u32, u64)> = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let said = String::from_utf8_lossy(&output.stderr);
        let failure =
            (!output.status.success() || rows.is_empty()).then(|| format!("{} {}", output.status, said.trim()));
        Ok(Record {
            mode: self.args.mode.clone(),
            round,
            workload: workload.to_owned(),
            place: place.name.to_owned(),
            rows,
            requests: before.and_then(|before| Some(difference(&before, &place.requests()?))),
            failure,
        })
    }
}

/// The requests that somebody waited for, between two counts.
fn difference(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    // STATFS comes of the question itself: `status` looks what kind of filesystem it is asked of.
    let counts = |kind: &RequestKind| kind.is_waited_for() && *kind != RequestKind::Statfs;
    let waited = RequestKind::ALL.into_iter().filter(counts);
    let count = |counts: &BTreeMap<String, u64>, kind: RequestKind| counts.get(kind.name()).copied().unwrap_or(0);
    waited
        .map(|kind| {
            (
                kind.name().to_owned(),
                count(after, kind).saturating_sub(count(before, kind)),
            )
        })
        .filter(|(_, made)| *made > 0)
        .collect()
}
