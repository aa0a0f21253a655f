//! The file that events are written to: begun anew when it is full, a few older ones kept beside it.
//!
//! It never follows a symbolic link, never writes to what is no regular file of its own user, and only its user can
//! read it.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::sys::{self, consts};

/// Where events go, and how much of them is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventFileOptions {
    /// The file.
    pub path: PathBuf,
    /// Bytes after which it is begun anew.
    pub size: u64,
    /// Files kept in all, this one included.
    pub files: u32,
    /// Taken away at the end if nothing is in it.
    pub temporary: bool,
}

/// The open file.
#[derive(Debug)]
pub(super) struct EventFile {
    options: EventFileOptions,
    file: File,
    length: u64,
    /// The last line written may have no end.
    torn: bool,
    /// Whoever wrote to it before has not put its end there.
    unended: bool,
}

impl EventFile {
    pub(super) fn open(options: EventFileOptions) -> io::Result<Self> {
        let (file, length) = open(&options.path)?;
        // Whoever wrote to it last may have been killed within a line.
        let torn = length > 0;
        let before = if torn {
            options.path.clone()
        } else {
            numbered(&options.path, 1)
        };
        Ok(Self {
            // Where another guard writes to it, too, a last line of its says nothing.
            unended: sys::lock_file(&file).is_ok() && last_line(&before).is_some_and(|line| !is_end(&line)),
            options,
            file,
            length,
            torn,
        })
    }

    /// Whether the record that was there has no end: its writer was killed.
    pub(super) fn is_unended(&self) -> bool {
        self.unended
    }

    /// Adds whole lines.
    pub(super) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.length > 0 && self.length + lines.len() as u64 > self.options.size {
            self.rotate()?;
        }
        if self.torn {
            // An empty line is no event, and ends one that is not whole.
            self.file.write_all(b"\n")?;
            self.length += 1;
            self.torn = false;
        }
        let done = self.file.write_all(lines);
        self.torn = done.is_err();
        self.length += lines.len() as u64;
        done
    }

    /// Moves the older files on by one, this one among them, and begins a new one.
    fn rotate(&mut self) -> io::Result<()> {
        let path = &self.options.path;
        let oldest = self.options.files.max(1) - 1;
        if oldest == 0 {
            self.file.set_len(0)?;
        } else {
            for number in (1..oldest).rev() {
                rename_if_there(&numbered(path, number), &numbered(path, number + 1))?;
            }
            rename_if_there(path, &numbered(path, 1))?;
        }
        let (file, length) = open(path)?;
        if let Err(error) = sys::lock_file(&file) {
            log::debug!("another guard writes to this record, too: {error}");
        }
        (self.file, self.length, self.torn) = (file, length, length > 0);
        Ok(())
    }

    /// Takes the file away if it is temporary and holds nothing.
    pub(super) fn retire(&self) {
        if self.options.temporary
            && self.length == 0
            && let Err(error) = fs::remove_file(&self.options.path)
        {
            log::debug!("the empty file of events stays: {error}");
        }
    }
}

/// The name of an older file: 1 is the latest of them.
#[must_use]
pub fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(format!(".{number}"));
    PathBuf::from(name)
}

/// The last line of a file, or as much of its end as can be the mark of an end; nothing where there is none.
fn last_line(path: &Path) -> Option<Vec<u8>> {
    const MOST: u64 = 4096;
    let file = File::open(path).ok()?;
    let found = file.metadata().ok().filter(fs::Metadata::is_file)?;
    let start = found.len().saturating_sub(MOST);
    let mut text = vec![0; usize::try_from(found.len() - start).ok()?];
    file.read_exact_at(&mut text, start).ok()?;
    let mut lines = text.rsplit(|byte| *byte == b'\n');
    lines.find(|line| !line.is_empty()).map(<[u8]>::to_vec)
}

fn is_end(line: &[u8]) -> bool {
    serde_json::from_slice::<serde_json::Value>(line).is_ok_and(|line| line["event"] == "end")
}

fn rename_if_there(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn open(path: &Path) -> io::Result<(File, u64)> {
    let mut options = OpenOptions::new();
    options
        .create(true)
        .append(true)
        .mode(0o600)
        // A fifo that nobody reads must not hold up the guard's start.
        .custom_flags(consts::O_NOFOLLOW | consts::O_NONBLOCK | consts::O_NOCTTY);
    let file = options.open(path)?;
    let found = file.metadata()?;
    let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, format!("{}: {why}", path.display()));
    if !found.is_file() {
        return Err(wrong("not a regular file"));
    }
    if found.uid() != sys::geteuid() {
        return Err(wrong("it belongs to another user"));
    }
    if found.mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok((file, found.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(dir: &Path, size: u64, files: u32) -> EventFileOptions {
        EventFileOptions {
            path: dir.join("events.jsonl"),
            size,
            files,
            temporary: true,
        }
    }

    #[test]
    fn a_full_file_makes_room_and_the_oldest_goes() {
        let dir = tempfile::tempdir().unwrap();
        let wanted = options(dir.path(), 20, 3);
        let mut file = EventFile::open(wanted.clone()).unwrap();
        for line in ["first line\n", "second line\n", "third line\n", "fourth line\n"] {
            file.append(line.as_bytes()).unwrap();
        }
        let read = |path: &Path| fs::read_to_string(path).unwrap();
        assert_eq!(read(&wanted.path), "fourth line\n");
        assert_eq!(read(&numbered(&wanted.path, 1)), "third line\n");
        assert_eq!(read(&numbered(&wanted.path, 2)), "second line\n");
        assert!(!numbered(&wanted.path, 3).exists());
        for path in [wanted.path.clone(), numbered(&wanted.path, 1)] {
            assert_eq!(fs::metadata(path).unwrap().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn what_was_torn_ends_before_the_next_line() {
        let dir = tempfile::tempdir().unwrap();
        let wanted = options(dir.path(), 1000, 2);
        fs::write(&wanted.path, "half a li").unwrap();
        fs::set_permissions(&wanted.path, Permissions::from_mode(0o666)).unwrap();
        EventFile::open(wanted.clone()).unwrap().append(b"whole\n").unwrap();
        assert_eq!(fs::read_to_string(&wanted.path).unwrap(), "half a li\nwhole\n");
        assert_eq!(fs::metadata(&wanted.path).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn whether_the_record_before_has_its_end_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let wanted = options(dir.path(), 1000, 2);
        let unended = || EventFile::open(wanted.clone()).unwrap().is_unended();
        assert!(!unended(), "there is none");
        let change = "{\"event\":\"change\"}\n".repeat(1000);
        let end = "{\"event\":\"end\"}\n";
        for (text, expected) in [
            (change.clone(), true),
            (change.clone() + end, false),
            (change.clone() + end + "\n", false),
            (change.clone() + end + "{\"event\":\"en", true),
        ] {
            fs::write(&wanted.path, text).unwrap();
            assert_eq!(unended(), expected);
        }
        // Another guard that writes to the same file has not ended.
        let other = EventFile::open(wanted.clone()).unwrap();
        assert!(other.is_unended() && !unended());
        drop(other);
        // Begun anew, and nothing was written since.
        fs::rename(&wanted.path, numbered(&wanted.path, 1)).unwrap();
        assert!(unended());
    }

    #[test]
    fn only_regular_files_are_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("target");
        std::os::unix::fs::symlink(&target, dir.path().join("events.jsonl")).unwrap();
        assert!(EventFile::open(options(dir.path(), 100, 2)).is_err());
        assert!(!target.exists());
        let fifo = dir.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let to_fifo = EventFileOptions {
            path: fifo,
            ..options(dir.path(), 100, 2)
        };
        assert!(EventFile::open(to_fifo).is_err());
    }

    #[test]
    fn an_empty_temporary_file_goes() {
        let dir = tempfile::tempdir().unwrap();
        let wanted = options(dir.path(), 100, 2);
        let mut file = EventFile::open(wanted.clone()).unwrap();
        file.append(b"x\n").unwrap();
        file.retire();
        assert!(wanted.path.exists());
        fs::remove_file(&wanted.path).unwrap();
        EventFile::open(wanted.clone()).unwrap().retire();
        assert!(!wanted.path.exists());
    }
}
