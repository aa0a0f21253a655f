//! How finely the backing filesystem dates changes.
//!
//! A version is known by its size and times. Where two changes within one tick of the filesystem's clock get the same
//! times, a version dated by the tick that still runs may be changed again and look the same: it must not be trusted.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::time::Duration;

use super::libc_flags as c;
use crate::clock;
use crate::guard::Timestamp;
use crate::sys::{self, Stat, TimeSet};

/// The longest tick of a kernel's coarse clock (100 Hz).
const KERNEL_TICK: Duration = Duration::from_millis(10);
/// The longest step of a filesystem that keeps no fractions of a second (FAT: 2 s).
const SECONDS_TICK: Duration = Duration::from_secs(2);
/// How long a tick that is late is waited for, each time.
const LATE_TICK: Duration = Duration::from_millis(1);
/// Pairs of changes by which it is found out.
const PROBES: usize = 8;
/// Times a version is looked at again that keeps changing.
const TRIES: usize = 3;

/// The step of a filesystem's clock; none where every change that somebody has looked at in between gets a time of its
/// own (multigrain timestamps, Linux 6.13).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticks(Option<Duration>);

impl Ticks {
    /// Finds out by an unnamed file; where there are none, by one with a name, that is there for a moment; where nothing can
    /// be made, by what is known.
    pub(super) fn probe(root: &OwnedFd, unnamed: Option<&OwnedFd>) -> Self {
        if let Some(file) = unnamed {
            return Self::by_changing(file);
        }
        if let Some(named) = Named::make(root) {
            return Self::by_changing(&named.file);
        }
        let kind = sys::statfs(root).map_or(0, |found| found.kind);
        if is_known_fine(kind, &sys::kernel_release()) {
            return Self(None);
        }
        let whole = sys::stat(root).is_ok_and(|stat| stat.mtime.nsec == 0 && stat.ctime.nsec == 0);
        Self(Some(if whole { SECONDS_TICK } else { KERNEL_TICK }))
    }

    fn by_changing(file: &OwnedFd) -> Self {
        let mut times = Vec::new();
        for _ in 0..=PROBES {
            if sys::pwrite(file, b"x", 0).is_err() {
                return Self(Some(KERNEL_TICK));
            }
            match sys::stat(file) {
                Ok(stat) => times.push(stat.ctime),
                Err(_) => return Self(Some(KERNEL_TICK)),
            }
        }
        if times.iter().all(|time| time.nsec == 0) {
            return Self(Some(SECONDS_TICK));
        }
        let fine = times.windows(2).all(|pair| pair[0] != pair[1]);
        Self((!fine).then_some(KERNEL_TICK))
    }

    /// Whether every change is told from the last.
    #[must_use]
    pub fn are_fine(self) -> bool {
        self.0.is_none()
    }

    /// Attributes of a file that nobody can change any more without changing them: waits for the running tick to end.
    /// Nothing when the file keeps changing, or the tick is too long to be waited for.
    ///
    /// # Errors
    /// Of looking at the file.
    pub fn settled(self, file: &OwnedFd, stat: Stat) -> sys::Result<Option<Stat>> {
        let Some(tick) = self.0 else { return Ok(Some(stat)) };
        let mut stat = stat;
        for _ in 0..TRIES {
            let latest = stat.ctime.max(stat.mtime);
            if left_of(tick, latest).is_none() {
                return Ok(Some(stat));
            }
            if tick > KERNEL_TICK {
                return Ok(None);
            }
            while let Some(left) = left_of(tick, latest) {
                std::thread::sleep(left);
            }
            stat = sys::stat(file)?;
        }
        Ok(None)
    }

    /// Gives a change that has just been made a time of its own, so that a later one within the tick is told from it.
    /// Only where the change has dated the file: a time that somebody has set tells it already.
    ///
    /// # Errors
    /// Of looking at the file.
    pub fn sharpen(self, file: &OwnedFd, stat: Stat) -> sys::Result<Stat> {
        let Some(tick) = self.0.filter(|tick| *tick <= KERNEL_TICK) else {
            return Ok(stat);
        };
        if left_of(tick, stat.mtime).is_none() {
            return Ok(stat);
        }
        match sys::set_times(file, None, Some(TimeSet::At(clock::now()))) {
            Ok(()) => sys::stat(file),
            Err(error) => {
                // Who may write a file of somebody else may not date it.
                log::debug!("{error}");
                Ok(stat)
            }
        }
    }
}

/// A file that goes when this does.
#[derive(Debug)]
struct Named<'r> {
    root: &'r OwnedFd,
    name: OsString,
    file: OwnedFd,
}

impl<'r> Named<'r> {
    fn make(root: &'r OwnedFd) -> Option<Self> {
        let name = OsString::from(format!(".unclobber-probe-{}", std::process::id()));
        let file = sys::open_at(root, &name, c::O_RDWR | c::O_CREAT | c::O_EXCL, 0o600).ok()?;
        Some(Self { root, name, file })
    }
}

impl Drop for Named<'_> {
    fn drop(&mut self) {
        if let Err(error) = sys::unlink_at(self.root, &self.name) {
            log::warn!("{error}");
        }
    }
}

/// What is left of the tick that a time was taken in; nothing when it is over.
fn left_of(tick: Duration, at: Timestamp) -> Option<Duration> {
    left_at(tick, at, clock::now(), sys::coarse_time())
}

fn left_at(tick: Duration, at: Timestamp, now: Timestamp, coarse: Timestamp) -> Option<Duration> {
    let of = |at: Timestamp| Some(Duration::new(u64::try_from(at.sec).ok()?, at.nsec));
    // Dated ahead of the clock: by its own tick at most, where nobody has set the time.
    let age = of(now)?.checked_sub(of(at)?)?;
    let left = tick.checked_sub(age).filter(|left| !left.is_zero());
    // A machine that is held up has its ticks late, and a change is still dated by the last.
    left.or_else(|| (coarse <= at).then_some(LATE_TICK))
}

/// ext4, xfs, btrfs and tmpfs date finely from Linux 6.13 on.
fn is_known_fine(kind: i64, release: &str) -> bool {
    const FINE: [i64; 4] = [0xEF53, 0x5846_5342, 0x9123_683E, 0x0102_1994];
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    FINE.contains(&kind) && version >= (6, 13)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_and_filesystems_that_date_finely() {
        assert!(is_known_fine(0xEF53, "6.13.0-rc1"));
        assert!(is_known_fine(0x0102_1994, "7.0"));
        assert!(!is_known_fine(0xEF53, "6.12.9"));
        assert!(!is_known_fine(0xEF53, "5.15"));
        assert!(!is_known_fine(0x4d44, "6.18.1"));
        assert!(!is_known_fine(0xEF53, ""));
    }

    #[test]
    fn a_tick_ends() {
        let now = clock::now();
        assert!(left_of(Duration::from_secs(100), now).is_some());
        let past = Timestamp {
            sec: now.sec - 1,
            nsec: now.nsec,
        };
        assert_eq!(left_of(KERNEL_TICK, past), None);
        let set = Timestamp {
            sec: now.sec + 1000,
            nsec: 0,
        };
        assert_eq!(left_of(KERNEL_TICK, set), None);
        assert_eq!(left_of(KERNEL_TICK, Timestamp { sec: -5, nsec: 0 }), None);
    }

    #[test]
    fn a_tick_that_is_late_has_not_ended() {
        let at = |nsec| Timestamp { sec: 7, nsec };
        let left = |coarse| left_at(KERNEL_TICK, at(1_000_000), at(50_000_000), coarse);
        assert_eq!(
            left(at(1_000_000)),
            Some(LATE_TICK),
            "a change now would be dated alike"
        );
        assert_eq!(left(at(5_000_000)), None);
    }
}
