//! Files registered with the kernel for passthrough: one registration per inode, shared by all its open handles.
//!
//! That of a file that was only read outlives its last handle for a while, within a bound: the kernel then need not be asked
//! for it by the next. It goes before anybody truncates the file, and with what the kernel knows of the inode.
//!
//! What is registered is the path (`O_PATH`): whoever opens the file beside it may take a lease on it, or execute it. Kernels
//! before 6.16 take none: there it is the open file, and one that is open for writing is not kept, since it would keep others
//! from executing the file.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use fuser::BackingId;
use hashbrown::{HashMap, HashSet};

use crate::guard::FileKey;
use crate::sync::Mutex;

/// Registrations without a handle that are kept on each mount.
const KEPT: usize = 1024;

#[derive(Debug)]
struct Held {
    backing: Arc<BackingId>,
    file: FileKey,
    handles: usize,
    /// Registered by a descriptor that does not write.
    reads: bool,
    /// In the queue of those that have no handle, or had none.
    queued: bool,
}

#[derive(Debug, Default)]
struct Table {
    nodes: HashMap<u64, Held>,
    handles: HashSet<u64>,
    idle: VecDeque<u64>,
}

/// The registrations of one mount.
#[derive(Debug, Default)]
pub(super) struct Backings(Mutex<Table>);

impl Backings {
    /// The registration of a node, made by `register` if there is none, who says whether it was by a descriptor that
    /// does not write; held until the handle is released.
    pub(super) fn hold(
        &self,
        (node, file): (u64, FileKey),
        handle: u64,
        register: impl FnOnce() -> io::Result<(BackingId, bool)>,
    ) -> io::Result<Arc<BackingId>> {
        let mut table = self.0.lock();
        // A number of another file that is gone: never the registration of that one.
        let known = table.nodes.get_mut(&node).filter(|held| held.file == file);
        let backing = if let Some(held) = known {
            held.handles += 1;
            Arc::clone(&held.backing)
        } else {
            let (backing, reads) = register()?;
            let backing = Arc::new(backing);
            let held = Held {
                backing: Arc::clone(&backing),
                file,
                handles: 1,
                reads,
                queued: false,
            };
            let before = table.nodes.insert(node, held);
            drop(before);
            backing
        };
        table.handles.insert(handle);
        drop(table);
        Ok(backing)
    }

    /// The handle is gone.
    pub(super) fn release(&self, node: u64, handle: u64) {
        let mut table = self.0.lock();
        if !table.handles.remove(&handle) {
            return;
        }
        let Some(held) = table.nodes.get_mut(&node) else { return };
        held.handles = held.handles.saturating_sub(1);
        if held.handles > 0 {
            return;
        }
        if !held.reads {
            table.nodes.remove(&node);
            return;
        }
        if !std::mem::replace(&mut held.queued, true) {
            table.idle.push_back(node);
        }
        while table.idle.len() > KEPT {
            let Some(oldest) = table.idle.pop_front() else { break };
            table.drop_idle(oldest);
        }
        drop(table);
    }

    /// Ends what is kept of a node that no handle is open on.
    pub(super) fn let_go(&self, node: u64) {
        let mut table = self.0.lock();
        if table.nodes.get(&node).is_some_and(|held| held.handles == 0) {
            table.nodes.remove(&node);
        }
        drop(table);
    }
}

impl Table {
    fn drop_idle(&mut self, node: u64) {
        if let Some(held) = self.nodes.get_mut(&node) {
            held.queued = false;
            if held.handles == 0 {
                self.nodes.remove(&node);
            }
        }
    }
}
