//! The controlling terminal: whose it is now.
//!
//! Never decides whose it should be.

use std::os::fd::OwnedFd;
use std::path::Path;

use super::error::Result;
use super::fd::open_path;
use super::own::{getpgrp, tcgetpgrp, tcsetpgrp};
use super::spawn::blocked;

/// The terminal of this session, when it was this process's group that held it.
#[derive(Debug)]
pub struct Terminal {
    device: OwnedFd,
    group: i32,
}

impl Terminal {
    /// The terminal, if there is one and this process is in its foreground group.
    #[must_use]
    pub fn held() -> Option<Self> {
        let device = open_path(Path::new("/dev/tty"), libc::O_RDWR | libc::O_NOCTTY).ok()?;
        let group = getpgrp();
        (tcgetpgrp(&device).ok()? == group).then_some(Self { device, group })
    }

    /// Makes this process's group the foreground group again, whoever took the terminal meanwhile.
    pub fn take_back(&self) -> Result<()> {
        if tcgetpgrp(&self.device) == Ok(self.group) {
            return Ok(());
        }
        blocked(libc::SIGTTOU, || tcsetpgrp(&self.device, self.group))
    }
}
