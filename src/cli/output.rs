//! What people see: problems with their cause and cure, refusals, text.
//!
//! It never decides what to say, only how it looks.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

/// A command that failed: what, why, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) what: String,
    pub(crate) cause: String,
    pub(crate) hint: Option<String>,
    pub(crate) code: u8,
}

/// The exit code of a failure.
pub(crate) const FAILED: u8 = 1;
/// The exit code of a wrong command line.
pub(crate) const USAGE: u8 = 2;
/// The exit code of `run` when it is unclobber that failed.
pub(crate) const RUN_FAILED: u8 = 125;

impl Problem {
    pub(crate) fn new(what: impl Into<String>, cause: impl Display) -> Self {
        Self {
            what: what.into(),
            cause: cause.to_string(),
            hint: None,
            code: FAILED,
        }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }

    /// Shows it on standard error; its exit code.
    pub(crate) fn show(&self) -> ExitCode {
        complain(&format!("{}: {}", self.what, self.cause));
        if let Some(hint) = &self.hint {
            explain("", hint);
        }
        ExitCode::from(self.code)
    }
}

/// One line on standard error, in the program's name.
pub(crate) fn complain(line: &str) {
    let mark = Style::of_errors().paint("1;31", "unclobber:");
    write_error(&format!("{mark} {line}\n"));
}

/// What follows a complaint: more about it, and what to do.
pub(crate) fn explain(more: &str, hint: &str) {
    let mark = Style::of_errors().paint("36", "hint:");
    let end = if more.is_empty() { "" } else { "\n" };
    write_error(&format!("{more}{end}{mark} {hint}\n"));
}

/// What is said to somebody who has asked for nothing.
pub(crate) fn explain_start(text: &str) {
    write_error(text);
}

/// A refusal, as the guard worded it: one line, never coloured inside.
pub(crate) fn show_refusal(line: &str) {
    complain(line);
}

/// A note that is no error.
pub(crate) fn note(line: &str) {
    write_error(&format!("unclobber: {line}\n"));
}

fn write_error(text: &str) {
    // One write, so that lines of programs that share the terminal do not mix with it. Nobody is left to tell when
    // standard error itself is gone.
    if io::stderr().lock().write_all(text.as_bytes()).is_err() {
        log::debug!("standard error is closed");
    }
}

/// Prints text on standard output. A reader that has gone away is no error.
pub(crate) fn print(text: &str) -> Result<(), Problem> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Problem::new("standard output", error)),
        _ => Ok(()),
    }
}

/// Copies a file to standard output, byte for byte. A reader that has gone away is no error.
pub(crate) fn print_file(mut file: File) -> Result<(), Problem> {
    let mut out = io::stdout().lock();
    match io::copy(&mut file, &mut out).and_then(|_| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Problem::new("standard output", error)),
        _ => Ok(()),
    }
}

/// A number of things: `1 owner`, `2 owners`.
pub(crate) fn counted(count: u64, thing: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {thing}{plural}")
}

/// A length of time in a unit in which it says something.
pub(crate) fn lasting(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// Colour, on terminals only.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Style {
    colour: bool,
}

impl Style {
    pub(crate) fn of_errors() -> Self {
        Self::when(io::stderr().is_terminal())
    }

    pub(crate) fn of_output() -> Self {
        Self::when(io::stdout().is_terminal())
    }

    fn when(terminal: bool) -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            colour: terminal && !refused,
        }
    }

    pub(crate) fn paint(self, code: &str, text: &str) -> String {
        if self.colour {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}
