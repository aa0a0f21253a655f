//! Fault points: named places where a test can force an event between two steps.
//!
//! A release pays one relaxed load per point. Nothing outside tests arms a point, and there is no way to arm one
//! from outside the process.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::sync::Mutex;

type Action = Arc<dyn Fn() + Send + Sync>;

static ARMED: AtomicUsize = AtomicUsize::new(0);
static ACTIONS: Mutex<Option<HashMap<&'static str, Action>>> = Mutex::new(None);

/// The points, by the step they stand before.
pub mod point {
    /// A staged file holds its data and is about to be linked to its name.
    pub const PUBLISH_BEFORE_LINK: &str = "publish.before_link";
    /// What stands at a name is about to be looked at, since it is to be bound or could not be.
    pub const NAME_BEFORE_LOOK: &str = "name.before_look";
    /// A direct create has been judged and is about to claim its name.
    pub const CREATE_BEFORE_CLAIM: &str = "create.before_claim";
    /// A truncating replace has been judged and is about to truncate.
    pub const REPLACE_BEFORE_TRUNCATE: &str = "replace.before_truncate";
    /// A look-up has arrived, and nothing is locked here.
    pub const LOOKUP_ARRIVED: &str = "lookup.arrived";
    /// The kernel is about to be told to forget a name.
    pub const CACHE_BEFORE_FORGET: &str = "cache.before_forget";
    /// It has forgotten the name.
    pub const CACHE_FORGOTTEN: &str = "cache.forgotten";
    /// A rename has arrived: the kernel has looked both names up, and nothing is locked here.
    pub const RENAME_ARRIVED: &str = "rename.arrived";
    /// A rename over something has been judged and is about to replace it in one step.
    pub const RENAME_BEFORE_PLAIN: &str = "rename.before_plain";
    /// The removal of a directory has arrived: the kernel has looked the name up, and nothing is locked here.
    pub const RMDIR_ARRIVED: &str = "rmdir.arrived";
    /// A rename over a file has been judged and is about to exchange the names.
    pub const RENAME_BEFORE_EXCHANGE: &str = "rename.before_exchange";
    /// The names have been exchanged and the displaced file is about to be looked at.
    pub const RENAME_AFTER_EXCHANGE: &str = "rename.after_exchange";
    /// An unlink has been judged and is about to happen.
    pub const UNLINK_BEFORE_REMOVE: &str = "unlink.before_remove";
    /// The last descriptor of a file was closed some time ago, and this is told only now.
    pub const RELEASE_ARRIVED: &str = "release.arrived";
    /// An edit has been judged and is about to be written.
    pub const EDIT_BEFORE_WRITE: &str = "edit.before_write";
}

/// Runs what a test has put at `point`, if anything.
pub fn hit(point: &'static str) {
    if ARMED.load(Ordering::Relaxed) == 0 {
        return;
    }
    let action = ACTIONS.lock().as_ref().and_then(|map| map.get(point).cloned());
    if let Some(action) = action {
        action();
    }
}

/// Puts `action` at `point` until the returned value is dropped.
pub fn arm(point: &'static str, action: impl Fn() + Send + Sync + 'static) -> Armed {
    ACTIONS.lock().get_or_insert_default().insert(point, Arc::new(action));
    ARMED.fetch_add(1, Ordering::Relaxed);
    Armed { point }
}

/// A fault point in use; dropping it clears the point.
#[derive(Debug)]
pub struct Armed {
    point: &'static str,
}

impl Drop for Armed {
    fn drop(&mut self) {
        if let Some(map) = ACTIONS.lock().as_mut() {
            map.remove(self.point);
        }
        ARMED.fetch_sub(1, Ordering::Relaxed);
    }
}
