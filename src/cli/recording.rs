//! The flags about the record of events: from the command line to the guard that keeps it.
//!
//! It never writes an event.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;

use super::args::parse_size;
use super::output::Problem;
use super::place;
use crate::audit::EventFileOptions;

/// Bytes after which the file is begun anew, and files kept in all, unless somebody says otherwise.
const SIZE: u64 = 4 << 20;
const FILES: u32 = 4;

/// Where events go. It is the guard's: it counts where this command starts it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub(crate) struct RecordingArgs {
    /// Where the guard writes what happens, one line of JSON each, or `off` [default: a file in its run-time directory]
    #[arg(long, value_name = "FILE")]
    pub(crate) events: Option<PathBuf>,
    /// Also write down what owners see
    #[arg(long)]
    pub(crate) events_observations: bool,
    /// How long the file may grow before it is begun anew: 500K, 20M, 1G [default: 4M]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) events_size: Option<u64>,
    /// How many files are kept in all, the one written to included [default: 4]
    #[arg(long, value_name = "N", value_parser = parse_files)]
    pub(crate) events_files: Option<u32>,
}

pub(crate) fn parse_files(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| (1..=100).contains(number));
    number.ok_or_else(|| format!("{text:?} is no number of files from 1 to 100"))
}

impl RecordingArgs {
    /// The same with a whole path, which must not lead into the guarded directory: the guard would wait for itself.
    pub(crate) fn resolved(&self, guarded: &Path) -> Result<Self, Problem> {
        let Some(path) = self.events.as_deref().filter(|path| *path != Path::new("off")) else {
            return Ok(self.clone());
        };
        let what = || format!("cannot write events to {}", path.display());
        let full = place::absolute(path)?;
        let parent = full.parent().map(Path::canonicalize).transpose();
        let parent = parent.map_err(|error| {
            Problem::new(what(), error).hint("name a file in a directory that exists, outside the guarded one")
        })?;
        let (Some(parent), Some(name)) = (parent, full.file_name()) else {
            return Err(Problem::new(what(), "it names no file"));
        };
        if parent.starts_with(guarded.canonicalize().unwrap_or_else(|_| guarded.to_owned())) {
            return Err(Problem::new(what(), "it is in the guarded directory itself").hint("name a file outside of it"));
        }
        Ok(Self {
            events: Some(parent.join(name)),
            ..self.clone()
        })
    }

    /// The flags of the guard that is started.
    pub(crate) fn flags(&self) -> Vec<OsString> {
        let mut flags: Vec<OsString> = Vec::new();
        if let Some(path) = &self.events {
            flags.extend(["--events".into(), path.into()]);
        }
        if self.events_observations {
            flags.push("--events-observations".into());
        }
        flags.extend(self.events_size.map(|size| format!("--events-size={size}").into()));
        flags.extend(self.events_files.map(|files| format!("--events-files={files}").into()));
        flags
    }

    /// What the guard `id` with its files in `dir` is to write to.
    pub(crate) fn options(&self, dir: &Path, id: &str) -> Option<EventFileOptions> {
        let path = match &self.events {
            Some(path) if path == Path::new("off") => return None,
            Some(path) => path.clone(),
            None => default_file(dir, id),
        };
        Some(EventFileOptions {
            path,
            size: self.events_size.unwrap_or(SIZE).max(1 << 12),
            files: self.events_files.unwrap_or(FILES),
            temporary: self.events.is_none(),
        })
    }
}

/// Where a guard writes unless somebody says otherwise.
pub(crate) fn default_file(dir: &Path, id: &str) -> PathBuf {
    dir.join(format!("{id}.events.jsonl"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_come_back_as_what_they_were() {
        use clap::Parser;
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            args: RecordingArgs,
        }
        for args in [
            RecordingArgs::default(),
            RecordingArgs {
                events: Some("/a b".into()),
                events_observations: true,
                events_size: Some(9000),
                events_files: Some(7),
            },
        ] {
            let words = std::iter::once(OsString::from("x")).chain(args.flags());
            assert_eq!(
                Line::try_parse_from(words)
                    .unwrap_or_else(|error| panic!("{error}"))
                    .args,
                args
            );
        }
    }

    #[test]
    fn events_never_go_into_the_guarded_directory() {
        let dir = tempfile::tempdir().unwrap();
        let inside = RecordingArgs {
            events: Some(dir.path().join("events")),
            ..RecordingArgs::default()
        };
        assert!(
            inside
                .resolved(dir.path())
                .unwrap_err()
                .cause
                .contains("guarded directory")
        );
        assert!(inside.resolved(Path::new("/nowhere")).is_ok());
        let off = RecordingArgs {
            events: Some("off".into()),
            ..RecordingArgs::default()
        };
        assert_eq!(off.resolved(dir.path()).unwrap(), off);
        assert!(off.options(dir.path(), "id").is_none());
        assert!(RecordingArgs::default().options(dir.path(), "id").unwrap().temporary);
    }
}
