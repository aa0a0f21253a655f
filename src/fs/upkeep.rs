//! Work of the guard that nobody waits for: the one-second bound on publication, the bounds of the attic, and
//! forgetting owners that are known no more and processes that have ended.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Guard;
use crate::clock;
use crate::guard::OwnerId;

/// How often staged files are looked at.
const TICK: Duration = Duration::from_millis(200);
/// Ticks between two looks at the files of rules.
const RULES: u32 = 5;
/// Ticks between two looks at the attic's bounds and at processes that have ended.
const SLOW: u32 = 150;

/// Starts the thread; it ends with the guard.
pub(super) fn start(guard: &Arc<Guard>) {
    let weak = Arc::downgrade(guard);
    let started = std::thread::Builder::new()
        .name("upkeep".to_owned())
        .spawn(move || run(&weak));
    if let Err(error) = started {
        log::error!("no thread for upkeep: files open for long are published when they are closed: {error}");
    }
}

fn run(guard: &Weak<Guard>) {
    let mut ticks = 0_u32;
    if let Some(guard) = guard.upgrade()
        && let Err(error) = guard.store.attic().begin(clock::now())
    {
        log::warn!("the attic could not be looked through: {error}");
    }
    loop {
        {
            let Some(guard) = guard.upgrade() else { return };
            if guard.is_stopping() {
                return;
            }
            guard.publish_due();
            if guard.store.attic().is_open() && guard.mounts().is_empty() {
                // While the guard lingers, nothing is put there: an attic in which nothing is left need not stay.
                guard.store.attic().retire();
            }
            if ticks.is_multiple_of(RULES) || guard.rules_moved() {
                guard.refresh_rules();
                guard.rest_watch();
            }
            if ticks.is_multiple_of(SLOW) {
                guard.tidy();
                guard.store.forget_numbers();
            } else if guard.store.attic().is_filling() {
                guard.tidy_attic();
            }
        }
        ticks = ticks.wrapping_add(1);
        std::thread::sleep(TICK);
    }
}

impl Guard {
    /// Looks whether the rules are what they were. Levels are derived anew: ignore files are looked at then.
    fn refresh_rules(&self) {
        if let Err(problem) = self.look_at_rules() {
            log::debug!("{problem}");
        }
        let epoch = self.places.fetch_add(1, Ordering::AcqRel) + 1;
        self.contexts.tidy(epoch);
    }

    /// Brings the attic within its bounds and forgets owners and processes that are no more. Done from time to time anyway.
    pub fn tidy(&self) {
        self.tidy_attic();
        self.tidy_held();
        self.forget_owners();
        self.ledger
            .retain_processes(|process| self.owners().is_running(process));
    }

    fn tidy_attic(&self) {
        if let Err(error) = self.store.attic().prune(clock::now()) {
            log::warn!("the attic could not be looked through: {error}");
        }
    }

    /// Their numbers are never given again, so what they have seen can count for nobody.
    fn forget_owners(&self) {
        let known = self.owners.ids();
        let Some(newest) = known.last().copied() else { return };
        // Those that come after this look are newer than all of these.
        let keep = |id: OwnerId| id > newest || id == OwnerId::NOBODY || known.binary_search(&id).is_ok();
        self.ledger.retain_owners(keep);
        self.events.retain_owners(keep);
        self.touched.retain_owners(keep);
    }
}
