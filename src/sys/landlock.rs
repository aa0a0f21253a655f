//! Domains of the Landlock security module: a process in one can neither trace nor look into processes outside of it, nor go
//! through their directories and descriptors under `/proc`.
//!
//! A domain has to forbid something. That it handles no access to files matters: else the kernel would refuse every
//! mount(2) in it, also in a user namespace of its own. What is forbidden is to connect to abstract Unix sockets made outside.

#![expect(unsafe_code, reason = "the Landlock calls, which libc does not have")]

use std::os::fd::AsRawFd;

use super::call::{check, own};
use super::error::{Result, SysError};

const SYS_LANDLOCK_CREATE_RULESET: i64 = 444;
const SYS_LANDLOCK_RESTRICT_SELF: i64 = 446;
const CREATE_RULESET_VERSION: u32 = 1;
const SCOPE_ABSTRACT_UNIX_SOCKET: u64 = 1;
/// The version of the interface that has scopes: Linux 6.12.
const WITH_SCOPES: i64 = 6;

/// `struct landlock_ruleset_attr`.
#[repr(C)]
struct Ruleset {
    handled_access_fs: u64,
    handled_access_net: u64,
    scoped: u64,
}

/// Whether the kernel has domains as they are needed here.
#[must_use]
pub fn has_domains() -> bool {
    let (nothing, none) = (std::ptr::null::<Ruleset>(), 0_usize);
    // SAFETY: with this flag the kernel looks at no memory and answers with a version.
    let version = unsafe { libc::syscall(SYS_LANDLOCK_CREATE_RULESET, nothing, none, CREATE_RULESET_VERSION) };
    version >= WITH_SCOPES
}

/// Puts the calling thread, and whatever it starts, into a domain of its own, inside the one it is in. ENOSYS or EOPNOTSUPP
/// where the kernel has none, EPERM without `CAP_SYS_ADMIN`, E2BIG inside too many.
pub fn enter_domain() -> Result<()> {
    let rules = Ruleset {
        handled_access_fs: 0,
        handled_access_net: 0,
        scoped: SCOPE_ABSTRACT_UNIX_SOCKET,
    };
    let fd = check(
        // SAFETY: the structure is valid for its size, and only read.
        unsafe {
            libc::syscall(
                SYS_LANDLOCK_CREATE_RULESET,
                &raw const rules,
                size_of::<Ruleset>(),
                0_u32,
            )
        },
    )
    .map_err(|errno| SysError::new("landlock_create_ruleset", errno))?;
    let fd = own(fd);
    // SAFETY: takes integers only.
    check(unsafe { libc::syscall(SYS_LANDLOCK_RESTRICT_SELF, fd.as_raw_fd(), 0_u32) })
        .map(drop)
        .map_err(|errno| SysError::new("landlock_restrict_self", errno))
}
