//! later
use std::io;
#[derive(Debug, clap::Args)]
pub(crate) struct GrowthArgs {}
pub(crate) fn run(_args: &GrowthArgs) -> io::Result<bool> {
    Ok(true)
}
