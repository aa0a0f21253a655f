//! Flags of files: immutable, append-only and the like, which are kept by the backing filesystem.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::caller::{Arrival, Caller};
use super::errno::{FsError, Result};
use super::mount::Mount;
use crate::store::{Kind, Node, libc_flags as c};
use crate::sys::{self, FlagCall, FlagData};

/// What a file's data is journalled by (`chattr +j`): the only flag that takes a right which nobody but the filesystem
/// itself asks for, and of the daemon it would ask in vain.
const JOURNALLED: u32 = 0x4000;

impl Mount {
    /// Asks for or sets the flags of a file or directory. A change of flags is no change of content (O9).
    ///
    /// # Errors
    /// `ENOTTY` for any other ioctl; the backing filesystem's.
    pub fn file_flags(&self, caller: &Caller, id: u64, number: u32, given: &[u8]) -> Result<FlagData> {
        self.arrive(caller, Arrival::Other);
        let node = self.node(id)?;
        let call = FlagCall::from_number(number).ok_or(FsError::Errno(c::ENOTTY))?;
        if !matches!(node.kind(), Kind::Regular | Kind::Directory) {
            return Err(FsError::Errno(c::ENOTTY));
        }
        let mut data = FlagData::default();
        let room = data.get_mut(..given.len()).ok_or(FsError::Errno(c::EINVAL))?;
        room.copy_from_slice(given);
        let file = self.readable(&node)?;
        if !call.sets() {
            sys::file_flags(&file, call, &mut data)?;
            return Ok(data);
        }
        if call == FlagCall::SetFlags && caller.uid != 0 {
            let mut now = FlagData::default();
            sys::file_flags(&file, FlagCall::Flags, &mut now)?;
            if (first_word(&now) ^ first_word(&data)) & JOURNALLED != 0 {
                return Err(FsError::Errno(c::EPERM));
            }
        }
        if node.kind() == Kind::Directory {
            sys::file_flags(&file, call, &mut data)?;
        } else {
            let state = node.content().lock();
            self.metadata_change(&node, &state, || Ok(sys::file_flags(&file, call, &mut data)?))?;
            drop(state);
        }
        // The kernel takes no ioctl for a change of attributes.
        self.forget_attributes(&node);
        self.attributes_changed(&node);
        Ok(data)
    }

    fn readable(&self, node: &Arc<Node>) -> Result<OwnedFd> {
        match node.staged_file() {
            Some(file) => Ok(sys::dup(&*file)?),
            None => {
                let fd = self.guard().store.fd(node)?;
                Ok(sys::reopen(&*fd, c::O_RDONLY | c::O_NONBLOCK | c::O_NOCTTY)?)
            }
        }
    }
}

fn first_word(data: &FlagData) -> u32 {
    u32::from_ne_bytes([data[0], data[1], data[2], data[3]])
}
