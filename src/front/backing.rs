//! Files registered with the kernel for passthrough: one registration per inode, shared by all its open handles.

use std::collections::HashMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};

use fuser::BackingId;

use crate::sync::Mutex;

/// The registrations of one mount.
#[derive(Debug, Default)]
pub(super) struct Backings {
    by_node: Mutex<HashMap<u64, Weak<BackingId>>>,
    by_handle: Mutex<HashMap<u64, Arc<BackingId>>>,
}

impl Backings {
    /// The registration of a node, made by `register` if none of its handles holds one; held until the handle is
    /// released.
    pub(super) fn hold(
        &self,
        node: u64,
        handle: u64,
        file: BorrowedFd<'_>,
        register: impl FnOnce(BorrowedFd<'_>) -> io::Result<BackingId>,
    ) -> io::Result<Arc<BackingId>> {
        let mut nodes = self.by_node.lock();
        let held = match nodes.get(&node).and_then(Weak::upgrade) {
            Some(held) => held,
            None => {
                let made = Arc::new(register(file)?);
                nodes.insert(node, Arc::downgrade(&made));
                made
            }
        };
        drop(nodes);
        self.by_handle.lock().insert(handle, Arc::clone(&held));
        Ok(held)
    }

    /// The handle is gone.
    pub(super) fn release(&self, node: u64, handle: u64) {
        let Some(held) = self.by_handle.lock().remove(&handle) else {
            return;
        };
        let mut nodes = self.by_node.lock();
        if Arc::strong_count(&held) == 1 {
            nodes.remove(&node);
        }
        // Under the lock, so that no other open finds it on its way out.
        drop(held);
        drop(nodes);
    }
}
