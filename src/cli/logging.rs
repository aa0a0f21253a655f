//! Where the log goes and how much of it.
//!
//! It never writes anything itself.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use env_logger::{Builder, Env, Target};
use log::LevelFilter;

use super::args::LogArgs;
use super::output::Problem;

/// The log of a command a user started: warnings and worse on standard error unless more is asked for.
pub(crate) fn init(args: &LogArgs) -> Result<(), Problem> {
    let file = args.log_file.as_deref().map(open).transpose()?;
    start(args.verbose, LevelFilter::Warn, file);
    Ok(())
}

/// The log of a guard: its events are of use after the fact.
pub(crate) fn init_guard(verbose: u8, file: File) {
    start(verbose, LevelFilter::Info, Some(file));
}

/// Opens a log file for adding to it.
pub(crate) fn open(path: &Path) -> Result<File, Problem> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .map_err(|error| {
            Problem::new(format!("cannot write the log {}", path.display()), error)
                .hint("give --log-file a file in a directory you can write to")
        })
}

fn start(verbose: u8, least: LevelFilter, file: Option<File>) {
    let asked = match verbose {
        0 => LevelFilter::Warn,
        1 => LevelFilter::Info,
        2 => LevelFilter::Debug,
        _ => LevelFilter::Trace,
    };
    let level = asked.max(least);
    let mut builder = Builder::from_env(Env::default().default_filter_or(level.as_str()));
    match file {
        Some(file) => {
            builder.target(Target::Pipe(Box::new(file))).format_timestamp_millis();
        }
        None => {
            builder.format(|out, record| {
                writeln!(
                    out,
                    "unclobber: {}: {}",
                    record.level().as_str().to_lowercase(),
                    record.args()
                )
            });
        }
    }
    if builder.try_init().is_err() {
        log::debug!("the log had been set up before");
    }
}
