//! The one place where a test waits: for a condition, up to a deadline.

use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long anything may take before a test gives up on it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Asks again and again whether `condition` holds, and says whether it did before `patience` ran out.
pub(crate) fn wait_until(patience: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + patience;
    // Nobody ever sends: receiving with a time limit is the pause between two questions.
    let (_never, pause) = mpsc::channel::<()>();
    let mut step = Duration::from_micros(200);
    loop {
        if condition() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        assert_eq!(
            pause.recv_timeout(step),
            Err(mpsc::RecvTimeoutError::Timeout),
            "the pause was cut short"
        );
        step = (step * 2).min(Duration::from_millis(20));
    }
}
