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

/// A time as people write it: `2026-01-31T23:59:59Z`.
#[must_use]
pub fn utc(at: Timestamp) -> String {
    let (days, second) = (at.sec.div_euclid(86_400), at.sec.rem_euclid(86_400));
    // From the day to the date in years that begin in March, which puts the leap day last.
    let shifted = days + 719_468;
    let (era, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let date = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!(
        "{:04}-{month:02}-{date:02}T{:02}:{:02}:{:02}Z",
        year + era * 400 + next,
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_people_do() {
        let utc = |sec| utc(Timestamp { sec, nsec: 0 });
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(utc(1_798_761_599), "2026-12-31T23:59:59Z");
        assert_eq!(utc(-1), "1969-12-31T23:59:59Z");
    }
}
