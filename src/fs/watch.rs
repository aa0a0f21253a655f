//! Watching the backing filesystem for what outsiders change, so that the kernels of the mounts forget it.
//!
//! Events are fetched a few milliseconds after the first, never one wake-up each; and by whoever opens or changes a file
//! before it relies on what it was told, so that what was changed before it began is known to it. Never waits for a kernel
//! with a lock held.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Guard;
use crate::store::{Node, libc_flags as c};
use crate::sync::Mutex;
use crate::sys::{Watch, WatchEvent};

/// Time between the first event and the look at all that have come.
const PAUSE: Duration = Duration::from_millis(5);
/// How long to wait for an event before it is looked whether the guard is still there.
const PATIENCE: Duration = Duration::from_millis(500);
/// Bytes of events read at a time.
const BATCH: usize = 1 << 16;

thread_local! {
    /// How many directories were watched when the request began that this thread answers.
    static SO_FAR: Cell<u64> = const { Cell::new(0) };
}

/// The watch of a guard.
#[derive(Debug)]
pub(super) struct Watcher {
    watch: Watch,
    buffer: Mutex<Vec<u8>>,
    own: u32,
    /// Directories are watched one by one.
    by_directory: bool,
    /// So many are.
    marks: AtomicU64,
    /// There is no room for more.
    full: AtomicBool,
    /// Something went wrong: nothing may be remembered any more.
    blind: AtomicBool,
    /// There is no mount: nothing is watched meanwhile.
    resting: AtomicBool,
    /// Held while that changes.
    turn: Mutex<()>,
}

impl Guard {
    fn watcher(&self) -> Option<&Watcher> {
        let watcher = self.watcher.get()?.as_ref()?;
        let sees = !watcher.blind.load(Ordering::Acquire) && !watcher.resting.load(Ordering::Acquire);
        sees.then_some(watcher)
    }

    /// Whether outsiders' changes are watched, at least those in directories that are looked into.
    pub(super) fn watches(&self) -> bool {
        self.watcher().is_some()
    }

    /// Whether all of them are.
    pub(super) fn watches_all(&self) -> bool {
        self.watcher().is_some_and(|watcher| !watcher.by_directory)
    }

    /// A request begins: what is looked at from here on is watched where it is watched now.
    pub(super) fn note_watched_so_far(&self) {
        if let Some(watcher) = self.watcher() {
            SO_FAR.set(watcher.marks.load(Ordering::Acquire));
        }
    }

    /// Whether what outsiders do to a directory, and to the names and files in it, has been watched since this request began,
    /// so that it will be known if what was looked at in the meantime is true no more.
    pub(super) fn has_watched(&self, dir: &Node) -> bool {
        let is_within =
            |watcher: &Watcher| !watcher.by_directory || dir.watched().is_some_and(|number| number <= SO_FAR.get());
        self.watcher().is_some_and(is_within)
    }

    /// Watches a directory from now on, before it is looked into, where they are watched one by one and there is room.
    pub(super) fn watch_dir(&self, dir: &Arc<Node>) {
        let Some(watcher) = self.watcher().filter(|watcher| watcher.by_directory) else {
            return;
        };
        if dir.watched().is_some() || watcher.full.load(Ordering::Relaxed) {
            return;
        }
        let added = self.store.fd(dir).and_then(|fd| Ok(watcher.watch.add_directory(&*fd)?));
        match added {
            Ok(()) => {
                let number = watcher.marks.fetch_add(1, Ordering::AcqRel) + 1;
                dir.note_watched(number);
                SO_FAR.set(number);
            }
            Err(error) if error.is(c::ENOSPC) => {
                if !watcher.full.swap(true, Ordering::Relaxed) {
                    log::warn!(
                        "no more directories can be watched, so the kernel asks each time for what is in others: {error}"
                    );
                }
            }
            // One that may not be listed, say.
            Err(error) => log::debug!("a directory is not watched: {error}"),
        }
    }

    /// Begins to watch, or goes on, for a mount that is among the guard's already; where that cannot be done the kernels
    /// remember nothing.
    pub(super) fn begin_watch(self: &Arc<Self>) {
        let watcher = self
            .watcher
            .get_or_init(|| match self.store.watch(self.options.watch_directories) {
                Ok((watch, by_directory)) => {
                    let watcher = Watcher {
                        watch,
                        buffer: Mutex::new(vec![0; BATCH]),
                        own: std::process::id(),
                        by_directory,
                        marks: AtomicU64::new(0),
                        full: AtomicBool::new(false),
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
        // Marks of directories stand, and cost something only there.
        let needless = !watcher.by_directory && self.mounts().is_empty() && !watcher.blind.load(Ordering::Acquire);
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

    /// What was changed before this call is known afterwards. The kernels are told soon: by the thread that watches, which may
    /// have slept through the events that are read here.
    pub(super) fn catch_up(&self) {
        if self.take_in() && self.mounts().iter().any(|mount| mount.has_doubts()) {
            self.wake_watch();
        }
    }

    /// Takes in all events there are; says whether there was any of others.
    fn take_in(&self) -> bool {
        let Some(Some(watcher)) = self.watcher.get() else {
            return false;
        };
        let mut some = false;
        let mut buffer = watcher.buffer.lock();
        loop {
            let read = watcher
                .watch
                .read(&mut buffer, |event| some |= self.changed_outside(watcher, &event));
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
        some
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
        self.take_in();
        self.for_caching(super::mount::Mount::tell_doubts);
    }

    /// Says whether it was a change by somebody else, of something that is known.
    fn changed_outside(&self, watcher: &Watcher, event: &WatchEvent<'_>) -> bool {
        if event.overflow {
            log::warn!("too many changes at once: everything is looked at anew");
            self.store.each_node(|node| node.note_no_capability(false));
            self.for_caching(super::mount::Mount::doubt_everything);
            return true;
        }
        if event.pid == watcher.own && !self.options.watch_own {
            return false;
        }
        let dir = event.name.and_then(|(handle, _)| self.store.by_handle(handle));
        // A directory's own attributes are told by its name in itself.
        let itself = event
            .name
            .filter(|(_, name)| !event.names && *name == ".")
            .map(|(handle, _)| handle);
        let object = event.object.or(itself).and_then(|handle| self.store.by_handle(handle));
        let is_known = dir.is_some() || object.is_some();
        if is_known {
            // Also where the file is not known: somebody may just be getting to know it.
            self.for_caching(super::mount::Mount::note_change);
        }
        if let (true, Some((_, name)), Some(dir)) = (event.names, event.name, dir) {
            self.for_caching(|mount| mount.doubt_name_if_changed(&dir, name));
        }
        if let Some(node) = object {
            node.note_no_capability(false);
            if event.names {
                node.doubt_place();
            } else {
                node.note_touched_outside();
            }
            self.for_caching(|mount| mount.doubt_attributes(node.id()));
        }
        is_known
    }

    /// Another mount has something to forget: soon rather than at the next event.
    pub(super) fn wake_watch(&self) {
        if self.doubts_wait.swap(true, Ordering::AcqRel) {
            return;
        }
        let Some(watcher) = self.watcher() else { return };
        if let Err(error) = watcher.watch.ring() {
            log::debug!("the watch goes on sleeping for a while: {error}");
        }
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
        if woken || strong.doubts_wait.load(Ordering::Acquire) {
            std::thread::sleep(PAUSE);
            strong.doubts_wait.store(false, Ordering::Release);
            strong.take_in();
            strong.let_tell();
            if watcher.blind.load(Ordering::Acquire) {
                return;
            }
        }
    }
}
