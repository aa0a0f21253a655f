//! The way of an event to its file: a bounded queue, and the thread that empties it.
//!
//! It never blocks whoever puts an event in, and never wakes a thread for one: the writer looks by itself every few
//! milliseconds. What finds no room is counted, and the count is written down.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle, Thread};
use std::time::{Duration, Instant};
use std::{io, thread};

use crossbeam_channel::{Receiver, Sender, bounded};

use super::counts::Counter;
use super::file::EventFile;
use super::record::{self, Happened, Mark};
use crate::guard::Timestamp;

/// Events that wait at most.
pub(super) const ROOM: usize = 16_384;
/// How often the writer looks while there is something to do, and when there has long been nothing.
const BUSY: Duration = Duration::from_millis(4);
const IDLE: Duration = Duration::from_millis(64);
/// Bytes gathered before they are written.
const BATCH: usize = 1 << 16;

/// What the writer and those who put events in have in common.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Not written yet, and not mentioned yet.
    unmentioned: Counter,
    pub(super) dropped: Counter,
    pub(super) written: Counter,
    stopping: AtomicBool,
    /// How many times somebody has wished that what waits be written, and how many of these wishes are fulfilled.
    wished: AtomicU64,
    fulfilled: AtomicU64,
}

/// A wish that what waits be written, which can be waited for without the queue.
#[derive(Debug)]
pub(super) struct Wish {
    shared: Arc<Shared>,
    writer: Thread,
    number: u64,
}

impl Wish {
    /// Waits until it is fulfilled, for this time at most; whether it is.
    pub(super) fn wait(&self, limit: Duration) -> bool {
        const PAUSE: Duration = Duration::from_millis(1);
        let end = Instant::now() + limit;
        self.writer.unpark();
        loop {
            if self.shared.fulfilled.load(Ordering::Acquire) >= self.number {
                return true;
            }
            if Instant::now() >= end {
                return false;
            }
            thread::sleep(PAUSE);
        }
    }
}

/// A queue with its writer.
#[derive(Debug)]
pub(super) struct EventQueue {
    queue: Sender<Happened>,
    pub(super) shared: Arc<Shared>,
    writer: JoinHandle<()>,
}

impl EventQueue {
    /// Starts the writer.
    pub(super) fn start(file: EventFile, guard: String, root: String, room: usize) -> io::Result<Self> {
        let (queue, events) = bounded(room);
        let shared = Arc::new(Shared::default());
        let writer = Writer {
            events,
            shared: Arc::clone(&shared),
            file,
            guard,
            root,
            began: crate::clock::now(),
            sequence: 0,
            batch: Vec::new(),
            lines: 0,
        };
        let writer = Builder::new().name("events".to_owned()).spawn(move || writer.run())?;
        Ok(Self { queue, shared, writer })
    }

    /// Puts an event in if there is room, else counts it.
    pub(super) fn put(&self, happened: Happened) {
        if self.queue.try_send(happened).is_err() {
            self.shared.unmentioned.add();
            self.shared.dropped.add();
        }
    }

    /// Wishes that everything put in so far be written.
    pub(super) fn wish(&self) -> Wish {
        Wish {
            number: self.shared.wished.fetch_add(1, Ordering::AcqRel) + 1,
            shared: Arc::clone(&self.shared),
            writer: self.writer.thread().clone(),
        }
    }

    /// Writes what waits, and ends.
    pub(super) fn close(self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.writer.thread().unpark();
        if self.writer.join().is_err() {
            log::error!("the writer of events has failed");
        }
    }
}

struct Writer {
    events: Receiver<Happened>,
    shared: Arc<Shared>,
    file: EventFile,
    guard: String,
    root: String,
    began: Timestamp,
    sequence: u64,
    batch: Vec<u8>,
    /// Lines in the batch.
    lines: u64,
}

impl Writer {
    fn run(mut self) {
        let mut pause = BUSY;
        loop {
            // Before the look at the queue: what was put in before the end is written.
            let stopping = self.shared.stopping.load(Ordering::Acquire);
            let wished = self.shared.wished.load(Ordering::Acquire);
            let some = self.drain();
            self.shared.fulfilled.store(wished, Ordering::Release);
            if stopping {
                if self.sequence > 0 {
                    self.mark(Mark::End);
                    self.flush();
                }
                self.file.retire();
                return;
            }
            pause = if some { BUSY } else { (pause * 2).min(IDLE) };
            // Cut short by the end, and by who wishes to read what is written.
            thread::park_timeout(pause);
        }
    }

    /// Writes what waits; whether anything did.
    fn drain(&mut self) -> bool {
        let mut some = false;
        while let Ok(happened) = self.events.try_recv() {
            some = true;
            self.begin();
            self.sequence += 1;
            let line = record::line(self.sequence, &happened);
            self.add(&line);
        }
        let count = self.shared.unmentioned.take();
        if count > 0 {
            some = true;
            self.begin();
            self.mark(Mark::Dropped { count });
        }
        self.flush();
        some
    }

    fn begin(&mut self) {
        if self.sequence == 0 {
            let (guard, root) = (std::mem::take(&mut self.guard), std::mem::take(&mut self.root));
            self.mark(Mark::Begin {
                guard: &guard,
                root: &root,
                at: self.began,
                unended: self.file.is_unended(),
            });
        }
    }

    fn mark(&mut self, mark: Mark<'_>) {
        self.sequence += 1;
        let line = record::mark(self.sequence, mark);
        self.add(&line);
    }

    fn add(&mut self, line: &[u8]) {
        self.batch.extend_from_slice(line);
        self.lines += 1;
        if self.batch.len() >= BATCH {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        match self.file.append(&self.batch) {
            Ok(()) => self.shared.written.add_many(self.lines),
            Err(error) => {
                // Said once for each run of failures, or a full disk would be filled further by the log.
                if self.shared.unmentioned.get() == 0 {
                    log::warn!("{} events could not be written: {error}", self.lines);
                }
                self.shared.unmentioned.add_many(self.lines);
                self.shared.dropped.add_many(self.lines);
            }
        }
        self.batch.clear();
        self.lines = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::super::file::EventFileOptions;
    use super::*;
    use serde_json::Value;

    /// The fields of the example of a kind in the document.
    fn documented(kind: &str) -> Vec<String> {
        let lines = include_str!("../../docs/EVENTS.md")
            .lines()
            .filter(|line| line.starts_with("{\"v\":"));
        let examples = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
        let example = examples.into_iter().find(|example| example["event"] == kind).unwrap();
        example.as_object().unwrap().keys().cloned().collect()
    }

    // semantics: R3
    #[test]
    fn what_finds_no_room_is_counted_and_written_down() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        let options = EventFileOptions {
            path: path.clone(),
            size: 1 << 20,
            files: 1,
            temporary: false,
        };
        let file = EventFile::open(options).unwrap();
        let queue = EventQueue::start(file, "id".to_owned(), "/root-of-it".to_owned(), 2).unwrap();
        let total = 5000;
        for number in 0..total {
            queue.put(Happened::Noted {
                owner: Some("A".into()),
                path: number.to_string(),
                operation: "allow",
                text: "one change".to_owned(),
            });
        }
        let shared = Arc::clone(&queue.shared);
        queue.close();
        let text = std::fs::read_to_string(path).unwrap();
        let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let of = |kind: &str| events.iter().filter(|event| event["event"] == kind).collect::<Vec<_>>();
        let missing: u64 = of("dropped").iter().map(|event| event["count"].as_u64().unwrap()).sum();
        let written = of("note").len() as u64;
        assert!(missing > 0 && written > 0, "{written} of {total}");
        assert_eq!((written + missing, shared.dropped.get()), (total, missing));
        assert_eq!(shared.written.get(), events.len() as u64);
        assert_eq!((of("begin").len(), of("end").len()), (1, 1));
        for (event, number) in events.iter().zip(1_u64..) {
            assert_eq!(event["seq"], number);
        }
        for kind in ["note", "dropped"] {
            let fields: Vec<String> = of(kind)[0].as_object().unwrap().keys().cloned().collect();
            assert_eq!(fields, documented(kind));
        }
    }
}
