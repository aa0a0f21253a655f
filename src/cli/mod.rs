//! The command line: one table of commands and flags, one file per command.
//!
//! Owns what a user types and sees: flags, exit codes, messages. It never judges a file operation.

mod allow;
mod args;
mod attic;
mod cleared;
mod doctor;
mod event_reader;
mod folding;
mod fuse_options;
mod guard;
mod guarding;
mod help;
mod host;
mod host_why;
mod locate;
mod log;
mod logging;
mod metrics;
mod mount;
mod mountinfo;
mod mounting;
mod output;
mod place;
mod proposal;
mod reader;
mod recording;
mod refusals;
mod report;
mod report_diff;
mod rule_words;
mod rules;
mod run;
mod run_child;
mod status;
mod status_screen;
mod supervise;
mod top;
mod top_screen;
mod topics;
mod umount;
mod undo;
mod why;
mod why_screen;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command, LogArgs};
use output::{Problem, USAGE};

/// Parses the command line and runs the command.
#[must_use]
pub fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    let result = if is_mount_helper(words.first()) {
        mount_helper(&words[1..])
    } else {
        command(&words)
    };
    result.unwrap_or_else(|problem| problem.show())
}

/// True when mount(8) has called this program as its helper for this file system type.
fn is_mount_helper(name: Option<&OsString>) -> bool {
    let base = name.and_then(|name| Path::new(name).file_name());
    base.is_some_and(|base| base == "mount.fuse.unclobber" || base == "mount.unclobber")
}

fn mount_helper(words: &[OsString]) -> Result<ExitCode, Problem> {
    let (mut args, verbose) = mount::helper_arguments(words).map_err(|why| {
        Problem::new("wrong command line", why)
            .hint("mount.fuse.unclobber DIR MOUNTPOINT [-o LIST]")
            .code(USAGE)
    })?;
    let log = LogArgs {
        verbose,
        log_file: None,
    };
    logging::init(&log)?;
    if crate::sys::geteuid() == 0 {
        // What mount(8) takes for granted of every filesystem it does not say.
        args.options.insert(0, "suid,dev".to_owned());
    }
    if fuse_options::asks_for_remount(&args.options) {
        return mount::remount(&args);
    }
    mount::mount(&args, &log)
}

fn command(words: &[OsString]) -> Result<ExitCode, Problem> {
    if words.len() < 2 {
        output::explain_start(topics::START);
        return Ok(ExitCode::from(USAGE));
    }
    let cli = match Cli::try_parse_from(words) {
        Ok(cli) => cli,
        Err(error) => return tell_usage(&error),
    };
    let log = &cli.log;
    if !matches!(cli.command, Command::Guard(_)) {
        logging::init(log).map_err(|problem| {
            if matches!(cli.command, Command::Run(_)) {
                problem.code(output::RUN_FAILED)
            } else {
                problem
            }
        })?;
    }
    match &cli.command {
        Command::Run(args) => run::run(args, log),
        Command::Mount(args) => mount::mount(args, log),
        Command::Umount(args) => umount::umount(args),
        Command::Status(args) => status::status(args, log),
        Command::Top(args) => top::top(args),
        Command::Why(args) => why::why(args),
        Command::Log(args) => self::log::log(args),
        Command::Report(args) => report::report(args),
        Command::Rules(args) => rules::rules(args),
        Command::Allow(args) => allow::allow(args),
        Command::Attic(args) => attic::attic(args),
        Command::Undo(args) => undo::undo(args),
        Command::Doctor(args) => doctor::doctor(args),
        Command::Help(args) => help::help(args),
        Command::Guard(args) => guard::guard(args, log),
        Command::Man => help::man(),
        Command::Completions(args) => help::completions(args),
    }
}

/// Help and version go to standard output; a wrong command line is a problem like any other.
fn tell_usage(error: &clap::Error) -> Result<ExitCode, Problem> {
    let text = error.render().to_string();
    if !error.use_stderr() {
        output::print(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    let plain = text.trim_end().trim_start_matches("error: ");
    let (first, rest) = plain.split_once('\n').unwrap_or((plain, ""));
    output::complain(&format!("wrong command line: {first}"));
    output::explain(
        rest.trim(),
        "`unclobber help COMMAND` lists its flags; `unclobber help` lists the commands",
    );
    Ok(ExitCode::from(USAGE))
}
