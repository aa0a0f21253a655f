//! What was called and what came of it, in a form that is the same on every filesystem that behaves the same.

use std::fmt::{Debug, Write as _};
use std::fs;
use std::path::Path;
use std::process::Command;

use nix::errno::Errno;
use nix::sys::stat::FileStat;

/// A growing transcript.
#[derive(Debug, Default)]
pub(crate) struct Log(String);

impl Log {
    /// Notes only whether a call worked: descriptors and the like differ from run to run.
    pub(crate) fn done<T>(&mut self, what: &str, result: Result<T, Errno>) -> Option<T> {
        match &result {
            Ok(_) => self.note(what, "done"),
            Err(errno) => self.note(what, errno),
        }
        result.ok()
    }

    /// The same for the standard library's calls.
    pub(crate) fn io<T>(&mut self, what: &str, result: std::io::Result<T>) -> Option<T> {
        self.done(
            what,
            result.map_err(|error| error.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw)),
        )
    }

    pub(crate) fn note(&mut self, what: &str, value: impl Debug) {
        writeln!(self.0, "{what}: {value:?}").expect("writing to a string");
    }

    /// Notes what a stat says, without what nobody chose.
    pub(crate) fn stat(&mut self, what: &str, result: Result<FileStat, Errno>) {
        match result {
            Ok(s) => self.note(
                what,
                (format!("{:o}", s.st_mode), s.st_nlink, s.st_uid, s.st_gid, s.st_size),
            ),
            Err(errno) => self.note(what, errno),
        }
    }

    /// Notes a file's content.
    pub(crate) fn content(&mut self, what: &str, path: &Path) {
        match fs::read(path) {
            Ok(bytes) => self.note(what, bytes.escape_ascii().to_string()),
            Err(error) => self.note(what, error.raw_os_error()),
        }
    }

    /// Notes the sorted names in a directory.
    pub(crate) fn names(&mut self, what: &str, directory: &Path) {
        let found = fs::read_dir(directory).map(|entries| {
            let mut names: Vec<_> = entries.map_while(Result::ok).map(|entry| entry.file_name()).collect();
            names.sort();
            names
        });
        self.note(what, found.map_err(|error| error.raw_os_error()));
    }

    pub(crate) fn text(self) -> String {
        self.0
    }
}

/// Runs shell text in a directory: its output and exit code are the transcript.
pub(crate) fn shell(directory: &Path, text: &str) -> String {
    let done = Command::new("sh")
        .args(["-c", &format!("umask 022\n{text}\n")])
        .current_dir(directory)
        .env("LC_ALL", "C")
        .env(
            "PATH",
            format!(
                "/usr/bin:/bin:/usr/sbin:/sbin:{}",
                std::env::var("PATH").unwrap_or_default()
            ),
        )
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("a shell");
    let part = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(&*directory.to_string_lossy(), "HERE");
    format!(
        "{}stderr: {}\nexit: {:?}\n",
        part(&done.stdout),
        part(&done.stderr),
        done.status.code()
    )
}

/// The lines in which two transcripts differ.
pub(crate) fn difference(expected: &str, found: &str) -> String {
    let (expected, found): (Vec<_>, Vec<_>) = (expected.lines().collect(), found.lines().collect());
    let longer = expected.len().max(found.len());
    let line = |lines: &[&str], index: usize| lines.get(index).copied().unwrap_or("(nothing)").to_owned();
    (0..longer)
        .filter(|index| expected.get(*index) != found.get(*index))
        .map(|index| {
            format!(
                "  natively: {}\n  mounted:  {}\n",
                line(&expected, index),
                line(&found, index)
            )
        })
        .collect()
}
