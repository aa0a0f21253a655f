//! The thread of a mount that tells its kernel what to forget.
//!
//! The kernel waits for operations in the directory concerned, which may take as long as a program likes: one that waits
//! holds up nobody but its own mount.

use std::sync::{Arc, Weak};
use std::thread::{self, Builder, Thread};

use super::Guard;
use super::mount::Mount;

/// Starts the thread; it ends with the mount. None where there can be no thread: then whoever watches tells the kernel.
pub(super) fn start(mount: &Arc<Mount>) -> Option<Thread> {
    let (weak, id) = (Arc::downgrade(mount), mount.id());
    let started = Builder::new().name(format!("forget-{id}")).spawn(move || run(&weak));
    match started {
        Ok(thread) => Some(thread.thread().clone()),
        Err(error) => {
            log::warn!("no thread of its own tells the kernel of mount {id} what to forget: {error}");
            None
        }
    }
}

fn run(mount: &Weak<Mount>) {
    loop {
        thread::park();
        let Some(mount) = mount.upgrade() else { return };
        if mount.has_ended() {
            return;
        }
        mount.tell_doubts();
    }
}

impl Guard {
    /// Lets every kernel that has something to forget be told so, without waiting for it.
    pub(super) fn let_tell(&self) {
        self.for_caching(|mount| {
            if !mount.has_doubts() {
                return;
            }
            match mount.teller.get() {
                Some(Some(thread)) => thread.unpark(),
                Some(None) | None => mount.tell_doubts(),
            }
        });
    }
}

impl Mount {
    pub(super) fn has_doubts(&self) -> bool {
        !self.doubts.lock().is_empty() || !self.moved_dirs.lock().is_empty() || !self.forgotten.lock().is_empty()
    }
}
