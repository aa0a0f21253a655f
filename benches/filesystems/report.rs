//! Tables for people, JSON for programs, and the block of the document that holds the last result.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::ops;
use super::places;
use super::suite::{self, Record};
use super::table::{PEERS, ROWS, Results, Row, Spread};

const MODES: [(&str, &str); 2] = [
    ("pinned", "Everything on one core"),
    (
        "unpinned",
        "Unpinned: programs and daemons wherever the scheduler puts them",
    ),
];
/// The guard's own price may be so much on rows of metadata.
const PRICE: f64 = 1.10;
/// What cannot reach its target must come so near to the limit.
const NEAR: f64 = 1.15;

/// What is to be made of the records.
#[derive(Debug, clap::Args)]
pub(crate) struct ReportArgs {
    #[arg(long)]
    record: PathBuf,
    /// Write JSON here
    #[arg(long)]
    json: PathBuf,
    /// Write the tables into this document
    #[arg(long)]
    update_docs: Option<PathBuf>,
    /// What the filesystem below was
    #[arg(long)]
    backing: String,
    /// What was left out of the workloads' size
    #[arg(long)]
    quick: bool,
}

/// Makes all of it; says whether nothing had failed.
pub(crate) fn run(args: &ReportArgs) -> io::Result<bool> {
    let records = suite::records(&args.record)?;
    let mut text = machine_line(args);
    let mut modes = serde_json::Map::new();
    for (mode, title) in MODES {
        let results = Results::of(&records, mode);
        if results.is_empty() {
            continue;
        }
        text.push_str(&table(&results, mode, title));
        text.push_str(&ways_line(&results));
        modes.insert(mode.to_owned(), as_json(&results));
    }
    text.push_str(&requests_table(&records));
    let failures: Vec<&Record> = records.iter().filter(|record| record.failure.is_some()).collect();
    let all = json!({
        "v": 1,
        "machine": machine(&args.backing),
        "quick": args.quick,
        "modes": modes,
        "requests": requests(&records),
        "failures": failures,
    });
    fs::write(&args.json, serde_json::to_string_pretty(&all)?)?;
    println!("{text}");
    if let Some(document) = &args.update_docs {
        update(document, "results", &text)?;
    }
    Ok(failures.is_empty())
}

fn machine(backing: &str) -> Value {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown", |(_, model)| model);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    // A kernel's own suffix names whoever built it; the version is what counts.
    let kernel = kernel.split('-').next().unwrap_or_default().trim();
    json!({ "cores": cores, "cpu": model, "kernel": kernel, "backing": backing })
}

fn machine_line(args: &ReportArgs) -> String {
    let machine = machine(&args.backing);
    let word = |key: &str| machine[key].as_str().unwrap_or_default().to_owned();
    let quick = if args.quick {
        " Small workloads (`--quick`)."
    } else {
        ""
    };
    format!(
        "Measured on {} cores ({}), Linux {}, {}.{quick}\n",
        machine["cores"],
        word("cpu"),
        word("kernel"),
        word("backing")
    )
}

/// Columns of unclobber's ways that were measured.
fn columns(results: &Results) -> Vec<&'static str> {
    let measured = |name: &&str| ROWS.iter().any(|row| results.ratio(row.key, name, "native").is_some());
    places::names()
        .into_iter()
        .filter(|name| *name != "native" && *name != "null")
        .filter(measured)
        .collect()
}

fn table(results: &Results, mode: &str, title: &str) -> String {
    let columns = columns(results);
    let pinned = mode == "pinned";
    let mut out = format!("\n### {title}\n\n");
    let mut head = vec!["workload".to_owned(), "native, µs".to_owned()];
    head.extend(columns.iter().map(|name| (*name).to_owned()));
    head.push("limit".to_owned());
    if pinned {
        head.push("target".to_owned());
    }
    head.extend(["guard to best peer", "target", "guard to off"].map(str::to_owned));
    push_line(&mut out, &head);
    push_line(&mut out, &head.iter().map(|_| "---".to_owned()).collect::<Vec<_>>());
    for row in &ROWS {
        if let Some(line) = line(results, row, &columns, pinned) {
            push_line(&mut out, &line);
        }
    }
    let described = columns
        .iter()
        .map(|name| format!("`{name}`: {}", places::meaning(name)));
    let all: Vec<String> = described.collect();
    out.push_str(&format!("\n{}.\n", all.join("; ")));
    out
}

/// What the guard's own steps cost on the bare directory, against what the program would have asked for.
fn ways_line(results: &Results) -> String {
    let ratio = |(way, of): (&str, &str)| {
        let (way_us, of_us) = (results.micros(way, "native")?, results.micros(of, "native")?);
        Some(format!(
            "`{way}` {} µs to `{of}` {} µs",
            number(way_us.median),
            number(of_us.median)
        ))
    };
    let all: Vec<String> = ops::WAYS.into_iter().filter_map(ratio).collect();
    if all.is_empty() {
        return String::new();
    }
    format!(
        "\nOf the limit, natively (the guard's steps, and the plain ones): {}.\n",
        all.join("; ")
    )
}

fn push_line(out: &mut String, cells: &[String]) {
    out.push_str(&format!("| {} |\n", cells.join(" | ")));
}

fn line(results: &Results, row: &Row, columns: &[&str], pinned: bool) -> Option<Vec<String>> {
    let native = results.micros(row.key, "native")?;
    let mut cells = vec![row.label.to_owned(), number(native.median)];
    let guard = results.ratio(row.key, "guard", "native");
    let limit = results.limit(row.key);
    cells.extend(columns.iter().map(|name| cell(results.ratio(row.key, name, "native"))));
    cells.push(cell(limit));
    if pinned {
        cells.push(verdict(guard, row.target, limit.map(|limit| limit.median * NEAR)));
    }
    let against = results.against_best_peer(row.key, "guard");
    cells.push(cell(against));
    cells.push(verdict(against, row.against_peer, None));
    cells.push(cell(results.ratio(row.key, "guard", "off")));
    Some(cells)
}

/// A target and whether it is reached; a target beyond the limit is reached near the limit.
fn verdict(reached: Option<Spread>, target: Option<f64>, near_limit: Option<f64>) -> String {
    match (reached, target) {
        (_, None) => String::new(),
        (None, Some(target)) => format!("<= {target}"),
        (Some(reached), Some(target)) => {
            let word = if reached.median <= target {
                "yes"
            } else if near_limit.is_some_and(|limit| reached.median <= limit) {
                "at the limit"
            } else {
                "**no**"
            };
            format!("<= {target}: {word}")
        }
    }
}

fn cell(spread: Option<Spread>) -> String {
    spread.map_or_else(String::new, |spread| {
        format!("{} ±{}", number(spread.median), number(spread.deviation))
    })
}

fn number(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

type Counts = BTreeMap<String, u64>;

/// Requests by workload, of the guard and of the filesystem that stands for the limit.
fn requests(records: &[Record]) -> BTreeMap<String, BTreeMap<String, Counts>> {
    let mut all: BTreeMap<String, BTreeMap<String, Counts>> = BTreeMap::new();
    for record in records {
        if let Some(counts) = &record.requests {
            let of_workload = all.entry(record.workload.clone()).or_default();
            of_workload
                .entry(record.place.clone())
                .or_insert_with(|| counts.clone());
        }
    }
    all
}

/// Says how far the limit's requests are the guard's: else the limit is one of something else.
fn requests_table(records: &[Record]) -> String {
    let all = requests(records);
    let mut out = String::from("\n### Requests that somebody waited for, each workload with its preparation\n\n");
    out.push_str("| workload | guard | limit | differences, guard to limit |\n| --- | --- | --- | --- |\n");
    for workload in suite::workloads() {
        let Some((guard, null)) = all
            .get(workload)
            .and_then(|of| Some((of.get("guard")?, of.get("null")?)))
        else {
            continue;
        };
        let (sum, limit): (u64, u64) = (guard.values().sum(), null.values().sum());
        let kinds: std::collections::BTreeSet<&String> = guard.keys().chain(null.keys()).collect();
        let mut differences = String::new();
        for kind in kinds {
            let (ours, theirs) = (guard.get(kind).unwrap_or(&0), null.get(kind).unwrap_or(&0));
            // One or two are those of a directory whose entry had just lapsed.
            if ours.abs_diff(*theirs) > 2 + theirs / 50 && write!(differences, "{kind} {ours} to {theirs}; ").is_err() {
                break;
            }
        }
        push_line(
            &mut out,
            &[
                workload.to_owned(),
                sum.to_string(),
                limit.to_string(),
                differences.trim_end_matches("; ").to_owned(),
            ],
        );
    }
    out
}

fn as_json(results: &Results) -> Value {
    let mut rows = serde_json::Map::new();
    for row in &ROWS {
        let Some(native) = results.micros(row.key, "native") else {
            continue;
        };
        let ratios: serde_json::Map<String, Value> = places::names()
            .into_iter()
            .filter_map(|name| Some((name.to_owned(), json!(results.ratio(row.key, name, "native")?))))
            .collect();
        let price = results.ratio(row.key, "guard", "off");
        rows.insert(
            row.key.to_owned(),
            json!({
                "label": row.label,
                "native_us": native,
                "to_native": ratios,
                "limit": results.limit(row.key),
                "guard_to_best_peer": results.against_best_peer(row.key, "guard"),
                "guard_to_off": price,
                "price_kept": price.map(|price| price.median <= PRICE),
                "target": row.target,
                "target_to_peer": row.against_peer,
            }),
        );
    }
    json!({ "rows": rows, "peers": PEERS })
}

/// Writes text between two marks of the document.
pub(crate) fn update(document: &Path, mark: &str, text: &str) -> io::Result<()> {
    let begin = format!("<!-- {mark}: written by scripts/bench --update-docs -->");
    let end = format!("<!-- end of {mark} -->");
    let old = fs::read_to_string(document)?;
    let parts = old
        .split_once(&begin)
        .and_then(|(before, rest)| Some((before, rest.split_once(&end)?.1)));
    let Some((before, after)) = parts else {
        return Err(io::Error::other(format!(
            "{} has no place for {mark}",
            document.display()
        )));
    };
    fs::write(document, format!("{before}{begin}\n\n{}\n\n{end}{after}", text.trim()))
}
