//! What a guard has to say that is no refusal: a change of its rules, an exception that was used.

use crate::guard::OwnerId;
use crate::sync::Mutex;

use super::WatcherId;

/// Takes a line as it is said, and the path that it speaks of: it must not block.
pub type LineSink = Box<dyn Fn(&str, &str) + Send + Sync>;

struct Listener {
    id: WatcherId,
    owner: OwnerId,
    sink: LineSink,
}

/// Who listens.
#[derive(Default)]
pub struct Notices {
    listeners: Mutex<(u64, Vec<Listener>)>,
}

impl std::fmt::Debug for Notices {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Notices").finish_non_exhaustive()
    }
}

impl Notices {
    /// Says a line about a path to those who listen for one owner, or to all.
    pub fn tell(&self, owner: Option<OwnerId>, line: &str, path: &str) {
        for listener in &self.listeners.lock().1 {
            if owner.is_none_or(|owner| owner == listener.owner) {
                (listener.sink)(line, path);
            }
        }
    }

    /// Tells `sink` every line for an owner from now on.
    pub fn listen(&self, owner: OwnerId, sink: LineSink) -> WatcherId {
        let mut listeners = self.listeners.lock();
        listeners.0 += 1;
        let id = WatcherId(listeners.0);
        listeners.1.push(Listener { id, owner, sink });
        id
    }

    /// Ends that.
    pub fn end(&self, id: WatcherId) {
        let ended: Vec<_> = self
            .listeners
            .lock()
            .1
            .extract_if(.., |listener| listener.id == id)
            .collect();
        drop(ended);
    }
}

impl super::Events {
    /// Notes that a change was let through which would have been refused, because somebody had asked for that.
    pub fn allowed(&self, owner: OwnerId, line: &str, path: &str) {
        self.allowed.add();
        log::warn!(target: "unclobber::allow", "{line}");
        self.notices.tell(Some(owner), line, path);
    }
}
