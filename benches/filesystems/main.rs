//! Compares filesystems under one set of workloads; `scripts/bench` sets the stage and runs it.

#![expect(clippy::print_stdout, reason = "results are what it is for")]

mod growth;
mod memory;
mod null;
mod ops;
mod places;
mod report;
mod suite;
mod table;
mod trees;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "bench", about = "Compares filesystems; see scripts/bench")]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// All workloads on all filesystems, in rounds
    Suite(suite::SuiteArgs),
    /// Tables, JSON and the document, from what the rounds wrote down
    Report(report::ReportArgs),
    /// The time and memory of an operation as what is known grows
    Growth(growth::GrowthArgs),
    /// Puts what comes on standard input between the marks of a document
    Insert { document: PathBuf, mark: String },
    /// One group of operations
    Op { group: String, dir: PathBuf, count: u32 },
    /// One workload of tools
    Tree {
        workload: String,
        dir: PathBuf,
        sources: PathBuf,
        #[arg(long)]
        quick: bool,
    },
    /// The filesystem that only answers
    Null { point: PathBuf },
}

/// Says what a person who waits wants to know.
fn say(text: String) {
    if writeln!(io::stderr(), "bench: {text}").is_err() {
        log::debug!("nobody listens");
    }
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Task::Suite(args) => suite::run(&args),
        Task::Report(args) => report::run(&args),
        Task::Growth(args) => growth::run(&args),
        Task::Insert { document, mark } => io::read_to_string(io::stdin())
            .and_then(|text| report::update(&document, &mark, &text))
            .map(|()| true),
        Task::Op { group, dir, count } => ops::run(&group, &dir, count).map(|rows| {
            println!("{}", ops::line(&rows));
            true
        }),
        Task::Tree {
            workload,
            dir,
            sources,
            quick,
        } => trees::Sources::make(&sources, quick)
            .and_then(|sources| sources.run(&workload, &dir))
            .map(|row| {
                println!("{}", ops::line(&[row]));
                true
            }),
        Task::Null { point } => null::serve(&point).map(|()| true),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(error.to_string());
            ExitCode::FAILURE
        }
    }
}
