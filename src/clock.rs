//! Wall-clock time, in one place so that everything above can be given a time instead of asking for one.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::guard::Timestamp;

/// The present time of `CLOCK_REALTIME`, in the same units as file time stamps.
#[must_use]
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp {
        sec: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nsec: since.subsec_nanos(),
    }
}
