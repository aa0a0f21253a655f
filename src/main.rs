//! The `unclobber` program: hands over to the command line layer.

use std::process::ExitCode;

fn main() -> ExitCode {
    unclobber::cli::main()
}
