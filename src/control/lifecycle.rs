//! The life of a guard: its mounts and conversations, and when it may end.
//!
//! It never does the ending: `daemon` waits here and acts.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use super::options::Policy;
use super::protocol::DataPath;
use crate::guard::OwnerId;
use crate::sync::{Condvar, Mutex};

/// How long a guard waits for its first mount.
const FIRST_MOUNT: Duration = Duration::from_secs(30);

/// How long a guard with named owners stays after its last mount when nobody has said otherwise.
pub(super) const NAMED_LINGER: Duration = Duration::from_secs(600);

/// A mount.
#[derive(Debug, Clone)]
pub struct MountRecord {
    /// The mount point.
    pub label: String,
    /// Its one owner, or nothing when a rule decides.
    pub owner: Option<OwnerId>,
    /// The owner or the rule, for people.
    pub attribution: String,
    /// What it is asked to do.
    pub policy: Policy,
    /// How data travels.
    pub data: DataPath,
    /// Nothing may be changed through it.
    pub read_only: bool,
    /// The mount namespace that alone holds it.
    pub namespace: Option<u64>,
    /// The device number of the mounted filesystem, where that is known.
    pub device: Option<u64>,
}

#[derive(Debug)]
struct State {
    mounts: BTreeMap<u64, MountRecord>,
    next_mount: u64,
    conversations: usize,
    deadline: Instant,
    linger: Duration,
    asked_to_end: bool,
    ending: bool,
    namespaces: HashMap<u64, OwnerId>,
}

/// Counts what keeps the guard alive.
#[derive(Debug)]
pub struct Lifecycle {
    state: Mutex<State>,
    changed: Condvar,
    began: Instant,
}

/// Why the wait was over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Nothing needs the guard any more.
    Idle,
    /// Somebody asked.
    Asked,
}

impl Default for Lifecycle {
    fn default() -> Self {
        let began = Instant::now();
        let state = State {
            mounts: BTreeMap::new(),
            next_mount: 1,
            conversations: 0,
            deadline: began + FIRST_MOUNT,
            linger: Duration::ZERO,
            asked_to_end: false,
            ending: false,
            namespaces: HashMap::new(),
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
            began,
        }
    }
}

impl Lifecycle {
    /// Time since the guard began.
    pub fn age(&self) -> Duration {
        self.began.elapsed()
    }

    /// How long the guard stays after its last mount.
    pub fn linger(&self) -> Duration {
        self.state.lock().linger
    }

    /// A conversation begins, unless the guard is about to end.
    pub fn begin_conversation(&self) -> bool {
        let mut state = self.state.lock();
        if !state.ending {
            state.conversations += 1;
        }
        !state.ending
    }

    /// A conversation that had begun is over.
    pub fn end_conversation(&self) {
        let mut state = self.state.lock();
        state.conversations -= 1;
        if state.conversations == 0 && state.next_mount == 1 {
            // Whoever came first went without mounting anything: there is nothing to wait for.
            state.deadline = Instant::now();
        }
        drop(state);
        self.changed.notify_all();
    }

    /// How long somebody wants the guard to stay: as the user said, else by whether the owner has a name. The
    /// longest wish counts.
    pub(super) fn wish_linger(&self, said: Option<Duration>, named: bool) {
        let wish = said.unwrap_or(if named { NAMED_LINGER } else { Duration::ZERO });
        let mut state = self.state.lock();
        state.linger = state.linger.max(wish);
    }

    /// A mount is served; its number.
    pub fn begin_mount(&self, record: MountRecord) -> u64 {
        let mut state = self.state.lock();
        let number = state.next_mount;
        state.next_mount += 1;
        if let (Some(namespace), Some(owner)) = (record.namespace, record.owner) {
            state.namespaces.insert(namespace, owner);
        }
        state.mounts.insert(number, record);
        number
    }

    /// A mount has ended.
    pub fn end_mount(&self, number: u64) {
        let mut state = self.state.lock();
        if let Some(namespace) = state.mounts.remove(&number).and_then(|record| record.namespace) {
            state.namespaces.remove(&namespace);
        }
        state.deadline = Instant::now() + state.linger;
        drop(state);
        self.changed.notify_all();
    }

    /// The owner to whom a mount namespace belongs.
    pub fn owner_of_namespace(&self, namespace: u64) -> Option<OwnerId> {
        self.state.lock().namespaces.get(&namespace).copied()
    }

    /// True when some mount namespace belongs to an owner.
    pub fn knows_namespaces(&self) -> bool {
        !self.state.lock().namespaces.is_empty()
    }

    /// The mounts, by number.
    pub fn mounts(&self) -> Vec<(u64, MountRecord)> {
        self.state
            .lock()
            .mounts
            .iter()
            .map(|(number, record)| (*number, record.clone()))
            .collect()
    }

    /// One mount.
    pub fn mount(&self, number: u64) -> Option<MountRecord> {
        self.state.lock().mounts.get(&number).cloned()
    }

    /// Waits until the mount has ended, at most `limit` (for ever without); false when the time is over.
    pub fn wait_mount_end(&self, number: u64, limit: Option<Duration>) -> bool {
        let mut state = self.state.lock();
        let lives = |state: &mut State| state.mounts.contains_key(&number);
        match limit {
            None => self.changed.wait_while(&mut state, lives),
            Some(limit) => drop(self.changed.wait_while_for(&mut state, lives, limit)),
        }
        let ended = !lives(&mut state);
        drop(state);
        ended
    }

    /// Asks the guard to end although it has mounts.
    pub fn ask_end(&self) {
        self.state.lock().asked_to_end = true;
        self.changed.notify_all();
    }

    /// Waits until the guard may end. From then on no conversation begins.
    pub fn wait_end(&self) -> End {
        let mut state = self.state.lock();
        let end = loop {
            if state.asked_to_end {
                break End::Asked;
            }
            if !state.mounts.is_empty() || state.conversations > 0 {
                self.changed.wait(&mut state);
                continue;
            }
            let deadline = state.deadline;
            if Instant::now() >= deadline {
                break End::Idle;
            }
            self.changed.wait_until(&mut state, deadline);
        };
        state.ending = true;
        drop(state);
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(namespace: Option<u64>) -> MountRecord {
        MountRecord {
            label: "/w".to_owned(),
            owner: Some(OwnerId(1)),
            attribution: "A".to_owned(),
            policy: Policy::default(),
            data: DataPath::Daemon,
            read_only: false,
            namespace,
            device: None,
        }
    }

    #[test]
    fn it_ends_at_once_after_the_last_mount_without_named_owners() {
        let life = Lifecycle::default();
        assert!(life.begin_conversation());
        let mount = life.begin_mount(record(None));
        life.end_mount(mount);
        life.end_conversation();
        assert_eq!(life.wait_end(), End::Idle);
        assert!(!life.begin_conversation());
    }

    #[test]
    fn it_does_not_wait_for_a_client_that_went_without_mounting() {
        let life = Lifecycle::default();
        assert!(life.begin_conversation());
        life.end_conversation();
        assert_eq!(life.wait_end(), End::Idle);
    }

    #[test]
    fn a_named_owner_makes_it_stay_as_long_as_the_longest_wish() {
        let life = Lifecycle::default();
        assert_eq!(life.linger(), Duration::ZERO);
        life.wish_linger(None, false);
        assert_eq!(life.linger(), Duration::ZERO);
        life.wish_linger(Some(Duration::from_secs(1)), true);
        assert_eq!(life.linger(), Duration::from_secs(1));
        life.wish_linger(Some(Duration::ZERO), true);
        assert_eq!(life.linger(), Duration::from_secs(1));
        life.wish_linger(None, true);
        assert_eq!(life.linger(), NAMED_LINGER);
    }

    #[test]
    fn asking_ends_it_with_mounts() {
        let life = Lifecycle::default();
        life.begin_mount(record(None));
        life.ask_end();
        assert_eq!(life.wait_end(), End::Asked);
    }

    #[test]
    fn a_namespace_belongs_to_its_owner_while_its_mount_lives() {
        let life = Lifecycle::default();
        let mount = life.begin_mount(record(Some(9)));
        assert_eq!(life.owner_of_namespace(9), Some(OwnerId(1)));
        assert!(!life.wait_mount_end(mount, Some(Duration::ZERO)));
        life.end_mount(mount);
        assert_eq!(life.owner_of_namespace(9), None);
        assert!(life.wait_mount_end(mount, None));
    }
}
