//! What every call shares: reading errno, restarting after a signal, C strings, taking a new descriptor.

#![expect(
    unsafe_code,
    reason = "a descriptor number returned by the kernel becomes an OwnedFd here"
)]

use std::ffi::{CStr, OsStr};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::NixPath;

/// The return types of system calls: -1 says that errno is set.
pub(super) trait Ret: Copy {
    fn value(self) -> i64;
}

impl Ret for i32 {
    fn value(self) -> i64 {
        i64::from(self)
    }
}

impl Ret for i64 {
    fn value(self) -> i64 {
        self
    }
}

impl Ret for isize {
    fn value(self) -> i64 {
        self as i64
    }
}

/// Calls made so far, in builds with debug assertions: what an operation costs below, without a clock.
static CALLS: AtomicU64 = AtomicU64::new(0);

/// System calls made by this layer so far, in all threads; those that cannot fail and those of the watch are left out. Always
/// 0 without debug assertions.
#[doc(hidden)]
pub fn calls_made() -> u64 {
    CALLS.load(Ordering::Relaxed)
}

/// The value, or errno.
pub(super) fn check(ret: impl Ret) -> Result<i64, i32> {
    if cfg!(debug_assertions) {
        CALLS.fetch_add(1, Ordering::Relaxed);
    }
    match ret.value() {
        -1 => Err(errno()),
        value => Ok(value),
    }
}

/// The same, made again while a signal interrupts it. Not for close and not for waiting calls.
pub(super) fn retry<R: Ret>(mut call: impl FnMut() -> R) -> Result<i64, i32> {
    loop {
        match check(call()) {
            Err(libc::EINTR) => {}
            other => return other,
        }
    }
}

pub(super) fn errno() -> i32 {
    nix::errno::Errno::last_raw()
}

/// Runs `f` on one name as a C string. A name is one component: never empty, never `..`, no slash, no NUL.
pub(super) fn with_name<T>(name: &OsStr, f: impl FnOnce(&CStr) -> Result<T, i32>) -> Result<T, i32> {
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes == b".." || bytes.contains(&b'/') {
        return Err(libc::EINVAL);
    }
    with_path(name, f)
}

/// Runs `f` on any path or string as a C string (on the stack when short).
pub(super) fn with_path<T>(path: &OsStr, f: impl FnOnce(&CStr) -> Result<T, i32>) -> Result<T, i32> {
    path.with_nix_path(f).unwrap_or(Err(libc::EINVAL))
}

/// Owns the descriptor a successful call returned.
pub(super) fn own(fd: i64) -> OwnedFd {
    let raw = i32::try_from(fd).unwrap_or(-1);
    debug_assert!(raw >= 0, "the kernel returned no descriptor");
    // SAFETY: the kernel just returned this descriptor to us and nobody else knows it.
    unsafe { OwnedFd::from_raw_fd(raw) }
}

/// A byte count or an offset for the kernel, which counts in i64.
pub(super) fn offset(value: u64) -> Result<i64, i32> {
    i64::try_from(value).map_err(|_| libc::EINVAL)
}

/// A count the kernel returned; never negative after `check`.
pub(super) fn count(value: i64) -> usize {
    usize::try_from(value).unwrap_or(0)
}

/// A descriptor number in decimal, as a C string on the stack: the names in `/proc/self/fd`.
#[derive(Debug)]
pub(super) struct FdName([u8; 12]);

impl FdName {
    pub(super) fn new(fd: i32) -> Self {
        let mut digits = [0_u8; 12];
        let mut rest = fd.unsigned_abs();
        let mut at = digits.len() - 1;
        loop {
            at -= 1;
            digits[at] = b'0' + u8::try_from(rest % 10).unwrap_or(0);
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        digits.rotate_left(at);
        Self(digits)
    }

    pub(super) fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).unwrap_or(c"")
    }
}
