//! The run-time directory: where a user's guards keep their sockets, locks and logs.
//!
//! It never trusts a directory that somebody else owns or can write to, and never follows a symbolic link to it.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::sys::{self, consts};

/// A verified run-time directory, held open so that no later mount or rename leads elsewhere.
#[derive(Debug)]
pub struct RuntimeDir {
    path: PathBuf,
    place: OwnedFd,
}

/// What the choice depends on.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// The effective user id.
    pub uid: u32,
    /// `$XDG_RUNTIME_DIR`, when set.
    pub xdg: Option<OsString>,
    /// `/run`.
    pub run: PathBuf,
    /// `/tmp`.
    pub tmp: PathBuf,
}

impl Surroundings {
    /// Those of this process.
    #[must_use]
    pub fn real() -> Self {
        let xdg = std::env::var_os("XDG_RUNTIME_DIR").filter(|value| !value.is_empty());
        Self {
            uid: sys::geteuid(),
            xdg,
            run: PathBuf::from("/run"),
            tmp: PathBuf::from("/tmp"),
        }
    }

    /// The possible places, best first.
    #[must_use]
    pub fn candidates(&self) -> Vec<PathBuf> {
        let mut places = Vec::new();
        if let Some(xdg) = self.xdg.as_ref().map(Path::new).filter(|xdg| self.is_own_absolute(xdg)) {
            places.push(xdg.join("unclobber"));
        }
        if self.uid == 0 {
            places.push(self.run.join("unclobber"));
        }
        places.push(self.tmp.join(format!("unclobber-{}", self.uid)));
        places
    }

    fn is_own_absolute(&self, path: &Path) -> bool {
        path.is_absolute() && fs::metadata(path).is_ok_and(|found| found.is_dir() && found.uid() == self.uid)
    }

    /// The first place that can be used, made if it is not there.
    pub fn choose(&self) -> io::Result<RuntimeDir> {
        self.first_of(self.candidates())
    }

    /// The same, not inside `tree`: a guard's socket cannot be reached through the guard's own mount.
    pub fn choose_outside(&self, tree: &Path) -> io::Result<RuntimeDir> {
        let (inside, outside): (Vec<_>, Vec<_>) = self.candidates().into_iter().partition(|path| {
            let parent = path.parent().unwrap_or(path);
            parent
                .canonicalize()
                .map_or_else(|_| parent.starts_with(tree), |parent| parent.starts_with(tree))
        });
        if let (Some(path), true) = (inside.first(), outside.is_empty()) {
            let why = format!("{}: it is inside the directory to be guarded", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        self.first_of(outside)
    }

    fn first_of(&self, candidates: Vec<PathBuf>) -> io::Result<RuntimeDir> {
        let mut first_error = None;
        for path in candidates {
            match RuntimeDir::create(&path, self.uid) {
                Ok(dir) => return Ok(dir),
                Err(error) => {
                    let error = io::Error::new(error.kind(), format!("{}: {error}", path.display()));
                    first_error.get_or_insert(error);
                }
            }
        }
        Err(first_error.unwrap_or_else(|| io::Error::from(io::ErrorKind::NotFound)))
    }

    /// Every place that is there and can be used: a guard may have been started with another environment.
    #[must_use]
    pub fn existing(&self) -> Vec<RuntimeDir> {
        self.candidates()
            .iter()
            .filter_map(|path| RuntimeDir::open(path, self.uid).ok())
            .collect()
    }
}

impl RuntimeDir {
    fn create(path: &Path, uid: u32) -> io::Result<Self> {
        match DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        Self::open(path, uid)
    }

    /// Opens and verifies `path`.
    pub fn open(path: &Path, uid: u32) -> io::Result<Self> {
        let flags = consts::O_PATH | consts::O_DIRECTORY | consts::O_NOFOLLOW | consts::O_CLOEXEC;
        let place = File::options().read(true).custom_flags(flags).open(path)?;
        let found = place.metadata()?;
        if found.uid() != uid {
            return Err(unsafe_place("belongs to another user"));
        }
        if found.mode() & 0o077 != 0 {
            return Err(unsafe_place("can be entered by other users"));
        }
        Ok(Self {
            path: path.to_path_buf(),
            place: place.into(),
        })
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A name in it by way of the open descriptor: short enough for a socket address, and the same directory
    /// whatever has been mounted over its path.
    #[must_use]
    pub fn entry(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.place.as_raw_fd()))
    }

    /// The ids of the guards that have a socket here.
    pub fn guards(&self) -> io::Result<Vec<String>> {
        let mut ids = Vec::new();
        for entry in fs::read_dir(self.entry("."))? {
            let name = entry?.file_name();
            ids.extend(
                name.to_str()
                    .and_then(|name| name.strip_suffix(".sock"))
                    .map(str::to_owned),
            );
        }
        ids.sort();
        Ok(ids)
    }
}

fn unsafe_place(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

/// The id of the guard of the directory with this identity.
#[must_use]
pub fn guard_id(directory: &sys::Stat) -> String {
    // The birth time tells a reused inode number apart, wherever the file system keeps one.
    let birth = directory.btime.map_or(0, |time| {
        let seconds = u64::try_from(time.sec).unwrap_or(0);
        seconds.wrapping_mul(1_000_000_000).wrapping_add(u64::from(time.nsec))
    });
    format!("{:x}-{:x}-{birth:x}", directory.dev, directory.ino)
}

/// Whether `id` has the form of a guard's id, so that it can stand in a file name.
#[must_use]
pub fn is_guard_id(id: &str) -> bool {
    let is_number = |part: &str| (1..=16).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_hexdigit());
    let parts: Vec<&str> = id.split('-').collect();
    parts.len() == 3 && parts.into_iter().all(is_number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn surroundings(tmp: &Path) -> Surroundings {
        Surroundings {
            uid: sys::geteuid(),
            xdg: None,
            run: tmp.join("absent"),
            tmp: tmp.to_path_buf(),
        }
    }

    #[test]
    fn the_directory_is_made_private() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = surroundings(tmp.path()).choose().unwrap();
        let found = fs::metadata(dir.path()).unwrap();
        assert_eq!(found.mode() & 0o777, 0o700);
        assert!(dir.guards().unwrap().is_empty());
        File::create(dir.entry("1-2-3.sock")).unwrap();
        assert_eq!(dir.guards().unwrap(), ["1-2-3"]);
    }

    #[test]
    fn a_place_inside_the_guarded_directory_is_passed_over() {
        let tmp = tempfile::tempdir().unwrap();
        let root = tmp.path().canonicalize().unwrap();
        let tree = root.join("tree");
        fs::create_dir(&tree).unwrap();
        let mut here = surroundings(&root);
        here.xdg = Some(tree.as_os_str().to_owned());
        assert_eq!(here.choose().unwrap().path(), tree.join("unclobber"));
        let outside = here.choose_outside(&tree).unwrap();
        assert_eq!(outside.path(), root.join(format!("unclobber-{}", here.uid)));
        let nowhere = here.choose_outside(&root).unwrap_err();
        assert!(nowhere.to_string().contains("inside the directory"), "{nowhere}");
    }

    #[test]
    fn an_own_xdg_directory_comes_first_and_a_foreign_or_relative_one_never() {
        let tmp = tempfile::tempdir().unwrap();
        let mut here = surroundings(tmp.path());
        here.xdg = Some(tmp.path().as_os_str().to_owned());
        assert_eq!(here.candidates()[0], tmp.path().join("unclobber"));
        here.uid += 1;
        assert_ne!(here.candidates()[0], tmp.path().join("unclobber"));
        here.xdg = Some("relative".into());
        assert!(here.candidates().iter().all(|path| path.is_absolute()));
    }

    #[test]
    fn an_open_directory_or_a_link_is_not_trusted() {
        let tmp = tempfile::tempdir().unwrap();
        let here = surroundings(tmp.path());
        let path = here.candidates().pop().unwrap();
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(
            RuntimeDir::open(&path, here.uid).unwrap_err().kind(),
            io::ErrorKind::PermissionDenied
        );
        fs::remove_dir(&path).unwrap();
        let target = tmp.path().join("target");
        DirBuilder::new().mode(0o700).create(&target).unwrap();
        symlink(&target, &path).unwrap();
        assert!(RuntimeDir::open(&path, here.uid).is_err());
        assert!(RuntimeDir::open(&target, here.uid + 1).is_err());
    }

    #[test]
    fn ids() {
        let tmp = tempfile::tempdir().unwrap();
        let id = guard_id(&sys::stat(File::open(tmp.path()).unwrap()).unwrap());
        assert!(is_guard_id(&id), "{id}");
        for bad in ["", "1-2", "1-2-3-4", "1-2-g", "../1-2-3", "1--3"] {
            assert!(!is_guard_id(bad), "{bad}");
        }
    }
}
