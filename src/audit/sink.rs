//! The way of an event to its file: a bounded queue, and the thread that empties it.
//!
//! It never blocks whoever puts an event in, and never wakes a thread for one: the writer looks by itself every few
//! milliseconds. What finds no room is counted, and the count is written down.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use std::{io, thread};

use crossbeam_channel::{Receiver, Sender, bounded};

use super::counts::Counter;
use super::file::EventFile;
use super::record::{self, Happened, Mark};

/// Events that wait at most.
const ROOM: usize = 16_384;
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
    pub(super) fn start(file: EventFile, guard: String, root: String) -> io::Result<Self> {
        let (queue, events) = bounded(ROOM);
        let shared = Arc::new(Shared::default());
        let writer = Writer {
            events,
            shared: Arc::clone(&shared),
            file,
            guard,
            root,
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

    /// Writes what waits, and ends.
    pub(super) fn close(self) {
        self.shared.stopping.store(true, Ordering::Release);
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
            let some = self.drain();
            if stopping {
                if self.sequence > 0 {
                    self.mark(Mark::End);
                    self.flush();
                }
                self.file.retire();
                return;
            }
            pause = if some { BUSY } else { (pause * 2).min(IDLE) };
            thread::sleep(pause);
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
