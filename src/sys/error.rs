//! The error of a system call: which call, on what, and the errno.
//!
//! Owns no policy: what an errno means for an operation is decided above.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// The result of a system call.
pub type Result<T> = std::result::Result<T, SysError>;

/// One argument of a failed call, kept as it was given; written out only when shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Arg {
    Fd(RawFd),
    Name(Box<OsStr>),
    OpenFlags(i32),
    Number(i64),
    Hex(u64),
}

/// A system call that failed: the call, its arguments, and the errno.
#[derive(Clone, PartialEq, Eq)]
pub struct SysError {
    /// The system call's name.
    pub call: &'static str,
    /// The errno it failed with.
    pub errno: i32,
    args: Vec<Arg>,
}

impl SysError {
    /// An error of `call` with `errno` and no arguments yet.
    #[must_use]
    pub const fn new(call: &'static str, errno: i32) -> Self {
        Self {
            call,
            errno,
            args: Vec::new(),
        }
    }

    /// The errno of the call.
    #[must_use]
    pub const fn errno(&self) -> i32 {
        self.errno
    }

    pub(super) fn fd(self, fd: BorrowedFd<'_>) -> Self {
        self.arg(Arg::Fd(fd.as_raw_fd()))
    }

    pub(super) fn name(self, name: &(impl AsRef<OsStr> + ?Sized)) -> Self {
        self.arg(Arg::Name(name.as_ref().into()))
    }

    pub(super) fn open_flags(self, flags: i32) -> Self {
        self.arg(Arg::OpenFlags(flags))
    }

    pub(super) fn number(self, number: impl TryInto<i64>) -> Self {
        self.arg(Arg::Number(number.try_into().unwrap_or(i64::MAX)))
    }

    pub(super) fn hex(self, bits: impl TryInto<u64>) -> Self {
        self.arg(Arg::Hex(bits.try_into().unwrap_or(u64::MAX)))
    }

    fn arg(mut self, arg: Arg) -> Self {
        self.args.push(arg);
        self
    }

    /// The error of a call made through the standard library.
    pub(super) fn from_io(call: &'static str, error: &io::Error) -> Self {
        Self::new(call, error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl fmt::Display for SysError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", self.call)?;
        for (index, arg) in self.args.iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            match arg {
                Arg::Fd(fd) if *fd == libc::AT_FDCWD => f.write_str("AT_FDCWD")?,
                Arg::Fd(fd) => write!(f, "{fd}")?,
                Arg::Name(name) => write!(f, "{name:?}")?,
                Arg::OpenFlags(flags) => write_open_flags(f, *flags)?,
                Arg::Number(number) => write!(f, "{number}")?,
                Arg::Hex(bits) => write!(f, "{bits:#x}")?,
            }
        }
        let text = io::Error::from_raw_os_error(self.errno).to_string();
        let (text, _) = text.split_once(" (os error").unwrap_or((&text, ""));
        write!(f, "): {text}")
    }
}

impl fmt::Debug for SysError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl std::error::Error for SysError {}

impl From<SysError> for io::Error {
    fn from(error: SysError) -> Self {
        Self::from_raw_os_error(error.errno)
    }
}

/// Flags in the order shown; a flag that contains another stands before it.
const OPEN_FLAGS: &[(i32, &str)] = &[
    (libc::O_CREAT, "O_CREAT"),
    (libc::O_EXCL, "O_EXCL"),
    (libc::O_TRUNC, "O_TRUNC"),
    (libc::O_APPEND, "O_APPEND"),
    (libc::O_NONBLOCK, "O_NONBLOCK"),
    (libc::O_NOCTTY, "O_NOCTTY"),
    (libc::O_SYNC, "O_SYNC"),
    (libc::O_DSYNC, "O_DSYNC"),
    (libc::O_DIRECT, "O_DIRECT"),
    (libc::O_NOATIME, "O_NOATIME"),
    (libc::O_PATH, "O_PATH"),
    (libc::O_TMPFILE, "O_TMPFILE"),
    (libc::O_DIRECTORY, "O_DIRECTORY"),
];

fn write_open_flags(f: &mut fmt::Formatter<'_>, flags: i32) -> fmt::Result {
    f.write_str(match flags & libc::O_ACCMODE {
        libc::O_RDONLY => "O_RDONLY",
        libc::O_WRONLY => "O_WRONLY",
        libc::O_RDWR => "O_RDWR",
        _ => "O_ACCMODE",
    })?;
    // These are always given: they tell nobody anything.
    let mut rest = flags & !(libc::O_ACCMODE | libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_LARGEFILE);
    for (bits, name) in OPEN_FLAGS {
        if rest & bits == *bits {
            write!(f, "|{name}")?;
            rest &= !bits;
        }
    }
    if rest == 0 { Ok(()) } else { write!(f, "|{rest:#x}") }
}
