//! Taking a mount away: by the system call where that is allowed, else by `fusermount3`.
//!
//! It never takes away anything but what stands at the path it is given, and of a path that somebody else has named only a
//! mount of its own.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::sys::{self, consts};

/// Why a mount could not be taken away.
#[derive(Debug, thiserror::Error)]
pub enum UnmountError {
    /// Something still uses it.
    #[error("{0} is in use")]
    Busy(PathBuf),
    /// Neither the system call nor `fusermount3` was allowed to.
    #[error("{path}: {cause}")]
    Refused {
        /// The mount point.
        path: PathBuf,
        /// Why.
        cause: String,
    },
    /// An ordinary user needs `fusermount3`, which is not installed.
    #[error("{0}: fusermount3 is not installed")]
    NoHelper(PathBuf),
}

/// Takes the mount at `path` away; `lazy` also when it is in use or dead.
pub fn unmount(path: &Path, lazy: bool) -> Result<(), UnmountError> {
    match sys::umount(path, lazy) {
        Ok(()) => Ok(()),
        Err(error) if error.errno() == consts::EBUSY => Err(UnmountError::Busy(path.to_path_buf())),
        Err(error) if error.errno() == consts::EPERM => by_helper(path, lazy),
        Err(error) => Err(UnmountError::Refused {
            path: path.to_path_buf(),
            cause: error.to_string(),
        }),
    }
}

/// Takes away, also when it is in use, what stands at `path` if it is the filesystem of this device number. Where that is
/// not known, the path was named by whoever mounted it.
pub(super) fn unmount_own(path: &Path, device: Option<u64>) -> Result<(), UnmountError> {
    let there = || -> sys::Result<u64> {
        let fd = sys::open_path(path, consts::O_PATH | consts::O_NOFOLLOW)?;
        Ok(sys::stat_unasked(&fd)?.dev)
    };
    match (device, there()) {
        (Some(own), Ok(dev)) if dev != own => Err(UnmountError::Refused {
            path: path.to_path_buf(),
            cause: "another filesystem stands there".to_owned(),
        }),
        _ => unmount(path, true),
    }
}

fn by_helper(path: &Path, lazy: bool) -> Result<(), UnmountError> {
    let Some(helper) = find_helper() else {
        return Err(UnmountError::NoHelper(path.to_path_buf()));
    };
    let mut command = Command::new(helper);
    command
        .arg("-u")
        .args(lazy.then_some("-z"))
        .arg("--")
        .arg(path)
        .stdin(Stdio::null());
    let refused = |cause: String| UnmountError::Refused {
        path: path.to_path_buf(),
        cause,
    };
    let output = command
        .output()
        .map_err(|error: io::Error| refused(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if said.contains("busy") {
        Err(UnmountError::Busy(path.to_path_buf()))
    } else {
        Err(refused(said))
    }
}

/// Where `fusermount3` is, if it is installed.
#[must_use]
pub fn find_helper() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/bin", "/bin", "/usr/local/bin"].map(PathBuf::from);
    let mut places = std::env::split_paths(&path)
        .filter(|place| place.is_absolute())
        .chain(usual);
    places.find_map(|place| Some(place.join("fusermount3")).filter(|file| file.is_file()))
}
