//! The cli layer.

use std::process::ExitCode;

/// Parses the command line and runs the command.
#[must_use]
pub fn main() -> ExitCode {
    ExitCode::SUCCESS
}
