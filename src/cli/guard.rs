//! `unclobber guard`: the process that serves a directory, started by the other commands.
//!
//! It never speaks to a terminal: its first word goes to whoever started it, the rest to its log.

use std::fs::File;
use std::io::Write;
use std::process::ExitCode;

use super::args::{AtticSwitch, GuardArgs, LogArgs};
use super::output::{FAILED, Problem};
use super::{host, logging};
use crate::control::{self, Outcome, Settings};

/// Serves until nobody needs it.
pub(crate) fn guard(args: &GuardArgs, log: &LogArgs) -> Result<ExitCode, Problem> {
    let what = "cannot start the guard";
    let settings = Settings {
        guard: args.id.clone(),
        root: args.root.clone(),
        runtime_dir: args.runtime_dir.clone(),
        attic_age: args.bounds.attic_age,
        attic_size: args.bounds.attic_size,
        attic_copy: args.bounds.attic_copy,
        attic_off: args.bounds.attic == Some(AtticSwitch::Off),
        max_records: args.bounds.max_records,
        events: args.recording.options(&args.runtime_dir, &args.id),
        events_observations: args.recording.events_observations,
    };
    let (root, first_word) = control::leave_caller().map_err(|error| Problem::new(what, error))?;
    let log_file = match &log.log_file {
        Some(path) => logging::open(path),
        None => control::open_log(&settings).map_err(|error| Problem::new("cannot open the guard's log", error)),
    };
    let mut word = FirstWord(Some(first_word));
    match log_file {
        Ok(file) => logging::init_guard(log.verbose, file),
        Err(problem) => {
            word.say(&format!("{}: {}", problem.what, problem.cause));
            return Err(problem);
        }
    }
    let open = || host::open(root, &settings);
    let ready = || {
        word.say("ready");
        Ok(())
    };
    let outcome = control::serve(&settings, open, ready);
    match outcome {
        Ok(Outcome::Served) => Ok(ExitCode::SUCCESS),
        Ok(Outcome::Busy) => {
            word.say("busy");
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            log::error!("{what}: {error}");
            word.say(&error.to_string());
            Ok(ExitCode::from(FAILED))
        }
    }
}

/// The pipe to whoever started this process. It is closed with the first word, which is the only one.
struct FirstWord(Option<File>);

impl FirstWord {
    fn say(&mut self, word: &str) {
        if let Some(mut pipe) = self.0.take()
            && let Err(error) = writeln!(pipe, "{word}")
        {
            log::debug!("nobody waits for the first word: {error}");
        }
    }
}
