//! Watching the backing filesystem for what outsiders change, so that the kernels of the mounts forget it.
//!
//! Events are fetched a few milliseconds after the first, never one wake-up each; and by whoever opens or changes a file
//! before it relies on what it was told, so that what was changed before it began is known to it. Never waits for a kernel
//! with a lock held.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Guard;
use crate::sync::Mutex;
use crate::sys::{Watch, WatchEvent};

/// Time between the first event and the look at all that have come.
const PAUSE: Duration = Duration::from_millis(5);
/// How long to wait for an event before it is looked whether the guard is still there.
const PATIENCE: Duration = Duration::from_millis(500);
/// Bytes of events read at a time.
const BATCH: usize = 1 << 16;

/// The watch of a guard.
#[derive(Debug)]
pub(super) struct Watcher {
    watch: Watch,
    buffer: Mutex<Vec<u8>>,
    own: u32,
    /// Something went wrong: nothing may be remembered any more.
    blind: AtomicBool,
    /// There is no mount: nothing is watched meanwhile.
    resting: AtomicBool,
    /// Held while that changes.
    turn: Mutex<()>,
}

impl Guard {
    /// Whether outsiders' changes are watched.
    pub(super) fn watches(&self) -> bool {
        self.watcher
            .get()
            .and_then(Option::as_ref)
            .is_some_and(|watcher| !watcher.blind.load(Ordering::Acquire) && !watcher.resting.load(Ordering::Acquire))
    }

    /// Begins to watch, or goes on, for a mount that is among the guard's already; where that cannot be done the kernels
    /// remember nothing.
    pub(super) fn begin_watch(self: &Arc<Self>) {
        let watcher = self.watcher.get_or_init(|| match self.store.watch() {
            Ok(watch) => {
                let watcher = Watcher {
                    watch,
                    buffer: Mutex::new(vec![0; BATCH]),
                    own: std::process::id(),
                    blind: AtomicBool::new(false),
                    resting: AtomicBool::new(false),
                    turn: Mutex::new(()),
                };
                self.start_thread().then_some(watcher)
            }
            Err(error) => {
                log::info!("outsiders' changes cannot be watched, so the kernel asks each time: {error}");
                None
            }
        });
        if let Some(watcher) = watcher {
            self.go_on_watching(watcher);
        }
    }

    fn go_on_watching(&self, watcher: &Watcher) {
        let _turn = watcher.turn.lock();
        if !watcher.resting.load(Ordering::Acquire) {
            return;
        }
        if let Err(error) = self.store.watch_again(&watcher.watch) {
            self.lose_sight(watcher, &error);
        }
        // What has happened meanwhile was not seen.
        self.store.each_node(|node| {
            node.note_no_capability(false);
            node.note_touched_outside();
        });
        watcher.resting.store(false, Ordering::Release);
    }

    /// Watches nothing while there is no mount: every change on the filesystem, wherever it is made, would go on costing
    /// something.
    pub(super) fn rest_watch(&self) {
        let Some(Some(watcher)) = self.watcher.get() else {
            return;
        };
        let _turn = watcher.turn.lock();
        let needless = self.mounts().is_empty() && !watcher.blind.load(Ordering::Acquire);
        if !needless || watcher.resting.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Err(error) = self.store.watch_nothing(&watcher.watch) {
            log::warn!("the watch for changes goes on without a mount: {error}");
            watcher.resting.store(false, Ordering::Release);
        }
        self.catch_up();
    }

    fn start_thread(self: &Arc<Self>) -> bool {
        let weak = Arc::downgrade(self);
        let started = std::thread::Builder::new()
            .name("watch".to_owned())
            .spawn(move || run(&weak));
        if let Err(error) = &started {
            log::error!("no thread to watch for changes, so the kernel asks each time: {error}");
        }
        started.is_ok()
    }

    /// What was changed before this call is known afterwards.
    pub(super) fn catch_up(&self) {
        let Some(Some(watcher)) = self.watcher.get() else {
            return;
        };
        let mut buffer = watcher.buffer.lock();
        loop {
            let read = watcher
                .watch
                .read(&mut buffer, |event| self.changed_outside(watcher, &event));
            match read {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    self.lose_sight(watcher, &error);
                    break;
                }
            }
        }
        drop(buffer);
    }

    /// Nothing can be watched any more: said once, and from now on nothing is remembered.
    fn lose_sight(&self, watcher: &Watcher, error: &dyn std::fmt::Display) {
        if !watcher.blind.swap(true, Ordering::AcqRel) {
            log::error!("outsiders' changes cannot be watched any more, the kernel asks each time: {error}");
            self.for_caching(super::mount::Mount::doubt_everything);
        }
    }

    /// Lets the kernels forget at once what has changed so far. Done soon after a change anyway.
    pub fn settle_caches(&self) {
        self.catch_up();
        self.for_caching(super::mount::Mount::tell_doubts);
    }

    fn changed_outside(&self, watcher: &Watcher, event: &WatchEvent<'_>) {
        if event.overflow {
            log::warn!("too many changes at once: everything is looked at anew");
            self.store.each_node(|node| node.note_no_capability(false));
            self.for_caching(super::mount::Mount::doubt_everything);
            return;
        }
        if event.pid == watcher.own && !self.options.watch_own {
            return;
        }
        let dir = event.name.and_then(|(handle, _)| self.store.by_handle(handle));
        // A directory's own attributes are told by its name in itself.
        let itself = event
            .name
            .filter(|(_, name)| !event.names && *name == ".")
            .map(|(handle, _)| handle);
        let object = event.object.or(itself).and_then(|handle| self.store.by_handle(handle));
        if dir.is_some() || object.is_some() {
            // Also where the file is not known: somebody may just be getting to know it.
            self.for_caching(super::mount::Mount::note_change);
        }
        if let (true, Some((_, name)), Some(dir)) = (event.names, event.name, dir) {
            self.for_caching(|mount| mount.doubt_name_if_changed(&dir, name));
        }
        if let Some(node) = object {
            node.note_no_capability(false);
            if !event.names {
                node.note_touched_outside();
            }
            self.for_caching(|mount| mount.doubt_attributes(node.id()));
        }
    }

    /// Another mount has something to forget: soon rather than at the next event.
    pub(super) fn wake_watch(&self) {
        self.doubts_wait.store(true, Ordering::Release);
    }
}

fn run(guard: &Weak<Guard>) {
    loop {
        let Some(strong) = guard.upgrade() else { return };
        if strong.is_stopping() {
            return;
        }
        // The initialiser that started this thread may not have returned yet.
        let Some(found) = strong.watcher.get() else {
            drop(strong);
            std::thread::sleep(PAUSE);
            continue;
        };
        let Some(watcher) = found else { return };
        // The guard's own changes are events, too: whatever one mount does wakes the thread for the others.
        let woken = watcher.watch.wait(PATIENCE).unwrap_or_else(|error| {
            strong.lose_sight(watcher, &error);
            true
        });
        if woken || strong.doubts_wait.swap(false, Ordering::AcqRel) {
            std::thread::sleep(PAUSE);
            strong.catch_up();
            strong.let_tell();
            if watcher.blind.load(Ordering::Acquire) {
                return;
            }
        }
    }
}
