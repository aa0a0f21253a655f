//! Flags of files, such as immutable or append-only, and what else belongs to them: calls that are all ioctl.

#![expect(unsafe_code, reason = "ioctl")]

use std::os::fd::{AsFd, AsRawFd};

use super::call::check;
use super::error::{Result, SysError};

/// What can be asked or set. No other ioctl is known here: it might take a pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlagCall {
    /// `FS_IOC_GETFLAGS`
    Flags,
    /// `FS_IOC_SETFLAGS`
    SetFlags,
    /// `FS_IOC_FSGETXATTR`
    Extended,
    /// `FS_IOC_FSSETXATTR`
    SetExtended,
    /// `FS_IOC_GETVERSION`
    Generation,
}

/// Room for what any of the calls reads or writes.
pub type FlagData = [u8; 32];

impl FlagCall {
    const ALL: [Self; 5] = [
        Self::Flags,
        Self::SetFlags,
        Self::Extended,
        Self::SetExtended,
        Self::Generation,
    ];

    /// The call with an ioctl's number.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|call| call.number() == number)
    }

    /// Whether it changes something.
    #[must_use]
    pub fn sets(self) -> bool {
        matches!(self, Self::SetFlags | Self::SetExtended)
    }

    fn number(self) -> u32 {
        match self {
            Self::Flags => 0x8008_6601,
            Self::SetFlags => 0x4008_6602,
            Self::Extended => 0x801c_581f,
            Self::SetExtended => 0x401c_5820,
            Self::Generation => 0x8008_7601,
        }
    }
}

/// Asks for or sets flags of a file or directory, by a descriptor that is not `O_PATH`.
pub fn file_flags(fd: impl AsFd, call: FlagCall, data: &mut FlagData) -> Result<()> {
    let fd = fd.as_fd();
    // SAFETY: each of the calls takes a pointer to at most 28 bytes, and the data has 32.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), u64::from(call.number()), data.as_mut_ptr()) })
        .map(drop)
        .map_err(|errno| SysError::new("ioctl", errno).fd(fd).hex(call.number()))
}
