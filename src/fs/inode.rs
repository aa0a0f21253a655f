//! An inode the kernel of a mount knows. There may be very many: what few of them have stands apart.

use std::num::NonZeroI64;
use std::sync::Arc;
use std::time::Instant;

use smallvec::SmallVec;

use crate::guard::Timestamp;
use crate::store::Node;

/// A point in time, to the second.
#[derive(Debug, Clone, Copy)]
pub(super) struct Second(NonZeroI64);

impl From<Timestamp> for Second {
    fn from(at: Timestamp) -> Self {
        // The first second of all is long past, whatever the clock says.
        Self(NonZeroI64::new(at.sec).unwrap_or(NonZeroI64::MIN))
    }
}

impl Second {
    /// Seconds from it to `now`.
    pub(super) fn age(self, now: Timestamp) -> i64 {
        now.sec.saturating_sub(self.0.get())
    }
}

/// A name that the kernel was told of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Told {
    pub(super) hash: u64,
    /// Since when it may lead elsewhere; the kernel is being told to forget it.
    pub(super) doubtful: Option<Second>,
}

/// An inode the kernel of this mount knows.
#[derive(Debug)]
pub(super) struct Inode {
    pub(super) node: Arc<Node>,
    pub(super) lookups: u64,
    /// Names by which the kernel was told of it, and may still come.
    pub(super) told: SmallVec<[Told; 1]>,
    /// Files open in passthrough; may lag behind the kernel's own count, never below it.
    pub(super) passthrough: u32,
    rare: Option<Box<Rare>>,
}

#[derive(Debug, Default)]
struct Rare {
    /// When the kernel was last made to look again for it.
    sent_back: Option<Instant>,
    /// An open that was answered with plain direct I/O and may not have reached the kernel's books yet.
    unsettled: Option<(u64, Timestamp)>,
}

impl Inode {
    pub(super) fn new(node: Arc<Node>, lookups: u64) -> Box<Self> {
        Box::new(Self {
            node,
            lookups,
            told: SmallVec::new(),
            passthrough: 0,
            rare: None,
        })
    }

    /// When the kernel was last made to look again for it.
    pub(super) fn sent_back(&self) -> Option<Instant> {
        self.rare.as_ref()?.sent_back
    }

    pub(super) fn set_sent_back(&mut self, at: Option<Instant>) {
        if at.is_some() {
            self.rare.get_or_insert_default().sent_back = at;
        } else if let Some(rare) = &mut self.rare {
            rare.sent_back = None;
            self.tidy();
        }
    }

    /// The handle of an open that was answered with plain direct I/O and may not have reached the kernel's books yet, and when
    /// that was.
    pub(super) fn unsettled(&self) -> Option<(u64, Timestamp)> {
        self.rare.as_ref()?.unsettled
    }

    pub(super) fn set_unsettled(&mut self, open: Option<(u64, Timestamp)>) {
        if open.is_some() {
            self.rare.get_or_insert_default().unsettled = open;
        } else if let Some(rare) = &mut self.rare {
            rare.unsettled = None;
            self.tidy();
        }
    }

    fn tidy(&mut self) {
        let is_empty = |rare: &Rare| rare.sent_back.is_none() && rare.unsettled.is_none();
        if self.rare.as_deref().is_some_and(is_empty) {
            self.rare = None;
        }
    }
}
