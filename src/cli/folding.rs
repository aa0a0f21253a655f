//! Whether a directory tells names apart that differ only in case.
//!
//! Where it does not, one file has names that nobody lists: what is known of one of them says nothing of the others, and
//! the guard's own names could be reached by them. Looks first, and makes a file for a moment only where that tells nothing.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use super::output::Problem;
use super::place::Place;
use crate::sys::{self, FlagCall, FlagData, consts};

/// ext4, f2fs, tmpfs, xfs, btrfs and overlayfs: they tell names apart unless a directory is flagged otherwise.
const TELL_APART: [i64; 6] = [0xEF53, 0xF2F5_2010, 0x0102_1994, 0x5846_5342, 0x9123_683E, 0x794c_7630];
/// `FS_CASEFOLD_FL`
const CASEFOLD: u32 = 0x4000_0000;
/// Bytes of names looked at.
const BATCH: usize = 1 << 14;

/// Whether names that differ only in case are one name in the directory; no where that cannot be found out, since nothing can
/// be made there.
pub(crate) fn folds_case(place: &Place) -> bool {
    let Ok(dir) = sys::reopen(&place.fd, consts::O_RDONLY | consts::O_DIRECTORY) else {
        return false;
    };
    let kind = sys::statfs(&dir).map_or(0, |found| found.kind);
    if TELL_APART.contains(&kind) {
        return is_flagged(&dir);
    }
    by_listed_names(&dir).or_else(|| by_a_new_name(&dir)).unwrap_or(false)
}

/// Refuses a directory in which they are.
pub(crate) fn check(place: &Place) -> Result<(), Problem> {
    if !folds_case(place) {
        return Ok(());
    }
    let what = format!("cannot guard {}", place.path.display());
    Err(Problem::new(
        what,
        "names that differ only in case are one name there, as on FAT, exFAT or NTFS",
    )
    .hint("guard a directory on a filesystem that tells them apart"))
}

fn is_flagged(dir: &OwnedFd) -> bool {
    let mut data = FlagData::default();
    let asked = sys::file_flags(dir, FlagCall::Flags, &mut data);
    let [a, b, c, d, ..] = data;
    asked.is_ok() && u32::from_ne_bytes([a, b, c, d]) & CASEFOLD != 0
}

/// By a name that has letters, if one is listed.
fn by_listed_names(dir: &OwnedFd) -> Option<bool> {
    let mut buffer = vec![0; BATCH];
    let entries = sys::read_dir_entries(dir, &mut buffer).ok()?;
    let names: Vec<OsString> = entries.map(|entry| entry.name.to_owned()).collect();
    let swapped = names.iter().map(|name| swap_case(name));
    // One that is listed itself is another file, or may be.
    let unlisted = names
        .iter()
        .zip(swapped)
        .find(|(name, swapped)| *name != swapped && !names.contains(swapped));
    unlisted.map(|(_, swapped)| is_there(dir, &swapped))
}

fn by_a_new_name(dir: &OwnedFd) -> Option<bool> {
    let name = OsString::from(format!(".unclobber-case-{}", std::process::id()));
    let made = sys::open_at(dir, &name, consts::O_WRONLY | consts::O_CREAT | consts::O_EXCL, 0o600);
    made.ok()?;
    let folds = is_there(dir, &swap_case(&name));
    if let Err(error) = sys::unlink_at(dir, &name) {
        log::warn!("{error}");
    }
    Some(folds)
}

fn is_there(dir: &OwnedFd, name: &OsStr) -> bool {
    sys::stat_at(dir, name).is_ok()
}

fn swap_case(name: &OsStr) -> OsString {
    let swap = |byte: &u8| match byte {
        b'a'..=b'z' => byte.to_ascii_uppercase(),
        other => other.to_ascii_lowercase(),
    };
    OsString::from_vec(name.as_bytes().iter().map(swap).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::place;

    #[test]
    fn an_ordinary_directory_tells_names_apart() {
        let dir = tempfile::TempDir::new().unwrap();
        let place = place::resolve(dir.path()).unwrap();
        assert!(!folds_case(&place));
        let open = sys::reopen(&place.fd, consts::O_RDONLY | consts::O_DIRECTORY).unwrap();
        assert_eq!(by_listed_names(&open), None, "nothing is listed");
        assert_eq!(by_a_new_name(&open), Some(false));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
        for name in ["f", "F", "1", "\u{e4}"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let open = || sys::reopen(&place.fd, consts::O_RDONLY | consts::O_DIRECTORY).unwrap();
        assert_eq!(by_listed_names(&open()), None, "f and F are both listed");
        std::fs::write(dir.path().join("Name"), "").unwrap();
        assert_eq!(by_listed_names(&open()), Some(false));
    }

    #[test]
    fn only_the_case_of_letters_is_swapped() {
        assert_eq!(swap_case(OsStr::new(".Ab1-\u{e4}")), ".aB1-\u{e4}");
    }
}
