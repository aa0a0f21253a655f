//! Reading the record of events back: older files first, then the one that is written to, also while that goes on.
//!
//! It never changes a file, and a line that cannot be read hides nothing but itself.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::guarding;
use super::output::{Problem, note};
use super::place;
use super::recording;
use crate::audit::numbered;
use crate::control::{Client, Surroundings};
use crate::sys;

/// Older files looked for, at most.
const MOST: u32 = 100;
/// The longest line that is believed in.
const LINE_LIMIT: usize = 1 << 20;

/// The record of a directory's guard.
#[derive(Debug)]
pub(crate) struct Record {
    /// Where it is written.
    pub(crate) path: PathBuf,
    /// The owner that the caller is: it is shown what is of that owner and of those below it.
    pub(crate) own: Option<String>,
    /// The guard that writes it.
    pub(crate) vigil: Option<Vigil>,
}

/// A look at whether a guard lives, which never keeps it alive.
#[derive(Debug)]
pub(crate) struct Vigil {
    id: String,
    root: String,
    client: Option<Client>,
}

/// What has become of a guard since the last look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    /// Nothing.
    None,
    /// It has ended in order.
    Ended,
    /// It has ended without taking its socket away.
    Killed,
}

impl Vigil {
    /// Looks; of an end it tells once.
    pub(crate) fn look(&mut self) -> News {
        let Some(client) = &mut self.client else {
            let dirs = Surroundings::real().existing();
            self.client = dirs.iter().find_map(|dir| Client::open(dir, &self.id));
            return News::None;
        };
        let lives = match sys::wait_readable(&*client, 0) {
            Ok(true) => client.read_events().unwrap_or(false),
            Ok(false) => true,
            Err(_) => false,
        };
        if lives {
            return News::None;
        }
        self.client = None;
        let dirs = Surroundings::real().existing();
        let socket = format!("{}.sock", self.id);
        if dirs.iter().any(|dir| dir.entry(&socket).exists()) {
            News::Killed
        } else {
            News::Ended
        }
    }

    /// The guarded directory.
    pub(crate) fn root(&self) -> &str {
        &self.root
    }
}

/// Where the guard of a directory writes, or wrote, its events. A guard that runs writes down first what it still holds.
pub(crate) fn find(dir: Option<&Path>) -> Result<Record, Problem> {
    let place = place::resolve(dir.unwrap_or_else(|| Path::new(".")))?;
    let what = || format!("no events of {}", place.path.display());
    let id = match &place.guarded {
        Some(guarded) => guarded.guard.clone(),
        None => guarding::id_of(&place)?,
    };
    let dirs = Surroundings::real().existing();
    let mut running = dirs.iter().filter_map(|dir| {
        let mut client = Client::open(dir, &id)?;
        let status = client.status().ok()?;
        Some((client, status))
    });
    if let Some((mut client, status)) = running.next() {
        if let Err(error) = client.write_record() {
            note(&format!("the last events may be missing: {error}"));
        }
        let path = status.events.map(PathBuf::from).ok_or_else(|| {
            Problem::new(what(), "its guard keeps no record")
                .hint("it was started with `--events off`, or its log says why it cannot")
        })?;
        return Ok(Record {
            path,
            own: status.own,
            vigil: Some(Vigil {
                id,
                root: status.root,
                client: Some(client),
            }),
        });
    }
    let left = dirs.iter().map(|dir| recording::default_file(dir.path(), &id));
    left.into_iter()
        .find(|path| path.exists() || numbered(path, 1).exists())
        .map(Record::left)
        .ok_or_else(|| {
            Problem::new(what(), "no guard of yours serves it, and none has left a record")
                .hint("name the file that was written to: --events FILE")
        })
}

impl Record {
    /// One that no guard writes to now, as far as is known.
    pub(crate) fn left(path: PathBuf) -> Self {
        Self {
            path,
            own: None,
            vigil: None,
        }
    }

    /// Whose events are shown: those of the owner asked for, else of the caller's own; a caller that is an owner's process
    /// is not shown what is none of its business.
    pub(crate) fn owner_shown(&self, asked: Option<&str>) -> Result<Option<String>, Problem> {
        let Some(own) = &self.own else {
            return Ok(asked.map(str::to_owned));
        };
        match asked {
            None => {
                note(&format!(
                    "inside a run: what owner {} and those below it did is shown; outside, what everybody did",
                    super::attic::plain(own)
                ));
                Ok(Some(own.clone()))
            }
            Some(asked) if is_of(asked, own) => Ok(Some(asked.to_owned())),
            Some(asked) => Err(Problem::new(
                format!("cannot show what owner {asked} did"),
                format!("a process of owner {own} is shown what that owner and those below it did"),
            )
            .hint("ask outside the run, or leave --owner out")),
        }
    }
}

/// Whether an owner's name is this one, or that of an owner below it.
pub(super) fn is_of(name: &str, owner: &str) -> bool {
    name.strip_prefix(owner)
        .is_some_and(|below| below.is_empty() || below.starts_with('/'))
}

/// One event.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    /// As it was written.
    pub(crate) line: String,
    pub(crate) fields: Value,
}

/// The events of a file and its older ones.
#[derive(Debug)]
pub(crate) struct Events {
    path: PathBuf,
    open: Option<Open>,
    /// Files to be read after the open one.
    next: VecDeque<Open>,
    pub(crate) unreadable: u64,
}

#[derive(Debug)]
struct Open {
    file: File,
    ino: u64,
    at: u64,
    rest: Vec<u8>,
}

impl Events {
    /// Begins with the oldest file there is.
    pub(crate) fn open(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            open: None,
            next: opened(path, MOST, || ino_of(path)),
            unreadable: 0,
        }
    }

    /// Reads what there is by now, once; none when everything so far has been read.
    pub(crate) fn read(&mut self) -> io::Result<Vec<Event>> {
        let mut events = Vec::new();
        loop {
            if self.open.is_none() {
                if self.next.is_empty() {
                    // None has been there so far: several may have come at once.
                    self.next = opened(&self.path, MOST, || ino_of(&self.path));
                }
                let Some(oldest) = self.next.pop_front() else {
                    // It may come yet.
                    return Ok(events);
                };
                self.open = Some(oldest);
            }
            let Some(open) = &mut self.open else { continue };
            // Before the last look at its content: what is written later is in another file.
            let moved = self.next.is_empty() && ino_of(&self.path) != Some(open.ino);
            for line in open.lines()? {
                match serde_json::from_slice(&line) {
                    Ok(fields) => events.push(Event {
                        line: String::from_utf8_lossy(&line).into_owned(),
                        fields,
                    }),
                    Err(_) => self.unreadable += 1,
                }
            }
            if moved {
                self.next = later_than(&self.path, open.ino);
            }
            if self.next.is_empty() {
                return Ok(events);
            }
            self.open = None;
        }
    }
}

impl Open {
    fn of(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        Ok(Self {
            ino: file.metadata()?.ino(),
            file,
            at: 0,
            rest: Vec::new(),
        })
    }

    /// The whole lines that have come since the last time.
    fn lines(&mut self) -> io::Result<Vec<Vec<u8>>> {
        if self.file.metadata()?.len() < self.at {
            // Begun anew in its place.
            self.at = 0;
            self.rest.clear();
        }
        self.file.seek(SeekFrom::Start(self.at))?;
        let mut lines = Vec::new();
        let mut buffer = vec![0; 1 << 16];
        loop {
            let length = self.file.read(&mut buffer)?;
            if length == 0 {
                return Ok(lines);
            }
            self.at += length as u64;
            for piece in buffer[..length].split_inclusive(|byte| *byte == b'\n') {
                self.rest.extend_from_slice(piece);
                if self.rest.ends_with(b"\n") {
                    let line = std::mem::take(&mut self.rest);
                    let line = line.trim_ascii();
                    if !line.is_empty() {
                        lines.push(line.to_vec());
                    }
                } else if self.rest.len() > LINE_LIMIT {
                    self.rest.clear();
                }
            }
        }
    }
}

fn ino_of(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().map(|found| found.ino())
}

/// The file and the `older` files that are there, the oldest first. They are renamed whenever one is begun: it is begun anew
/// until `mark` is the same before and after.
fn opened(path: &Path, older: u32, mark: impl Fn() -> Option<u64>) -> VecDeque<Open> {
    const TRIES: u32 = 1000;
    for tries in 1.. {
        let before = mark();
        let older = (1..=older).rev().map(|number| numbered(path, number));
        let all = older
            .chain([path.to_owned()])
            .filter_map(|path| Open::of(&path).ok())
            .collect();
        if mark() == before || tries == TRIES {
            return all;
        }
    }
    VecDeque::new()
}

/// The files that were begun after the one with this inode number: all, where that has gone.
fn later_than(path: &Path, ino: u64) -> VecDeque<Open> {
    const TRIES: u32 = 1000;
    for _ in 0..TRIES {
        if ino_of(path).is_none() {
            return VecDeque::new();
        }
        let place = (1..=MOST).find(|number| ino_of(&numbered(path, *number)) == Some(ino));
        let Some(place) = place else {
            if ino_of(path) == Some(ino) {
                return VecDeque::new();
            }
            return opened(path, MOST, || ino_of(path));
        };
        let later = opened(path, place - 1, || ino_of(path));
        // Still where it was: none has been renamed meanwhile.
        if ino_of(&numbered(path, place)) == Some(ino) {
            return later;
        }
    }
    VecDeque::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(events: &mut Events) -> Vec<u64> {
        let found = events.read().unwrap();
        found.iter().filter_map(|event| event.fields["seq"].as_u64()).collect()
    }

    fn line(seq: u64) -> String {
        format!("{{\"seq\":{seq}}}\n")
    }

    #[test]
    fn older_files_come_first_and_files_that_move_are_followed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("e");
        let put = |path: &Path, text: &str| fs::write(path, text).unwrap();
        put(&numbered(&path, 2), &line(1));
        put(&numbered(&path, 1), &(line(2) + "torn\n" + &line(3)));
        put(&path, &(line(4) + "{\"seq\""));
        let mut events = Events::open(&path);
        assert_eq!(numbers(&mut events), [1, 2, 3, 4]);
        assert_eq!(events.unreadable, 1);
        // The rest of a line, and two more files, between two looks.
        put(&path, &(line(4) + "{\"seq\":5}\n"));
        let moved = |from: PathBuf, to: PathBuf| fs::rename(from, to).unwrap();
        moved(path.clone(), numbered(&path, 2));
        put(&numbered(&path, 1), &line(6));
        put(&path, &line(7));
        assert_eq!(numbers(&mut events), [5, 6, 7]);
        assert_eq!(numbers(&mut events), [0; 0]);
        // Its file has gone altogether: everything that is there is later.
        put(&dir.path().join("new"), &line(9));
        moved(path.clone(), dir.path().join("elsewhere"));
        put(&numbered(&path, 1), &line(8));
        fs::remove_file(numbered(&path, 2)).unwrap();
        moved(dir.path().join("new"), path.clone());
        assert_eq!(numbers(&mut events), [8, 9]);
        // Emptied in its place.
        put(&path, "");
        assert_eq!(numbers(&mut events), [0; 0]);
        put(&path, &line(10));
        assert_eq!(numbers(&mut events), [10]);
    }

    #[test]
    fn nothing_there_is_nothing_to_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("e");
        let mut events = Events::open(&path);
        assert_eq!(numbers(&mut events), [0; 0]);
        fs::write(&path, line(1)).unwrap();
        assert_eq!(numbers(&mut events), [1]);
    }
}
