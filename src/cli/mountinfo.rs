//! `/proc/self/mountinfo`: which mount a path is on.
//!
//! It never touches the mounts themselves, so that a dead one cannot hold it up.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The file system type every mount of this program carries in `/proc/self/mountinfo`.
const FILESYSTEM_TYPE: &str = "fuse.unclobber";

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    /// Its number in this mount namespace.
    pub(crate) id: u64,
    /// Which directory of the file system is shown, from its root.
    pub(crate) root: PathBuf,
    /// Where.
    pub(crate) point: PathBuf,
    /// The file system's type.
    pub(crate) kind: String,
    /// What is mounted.
    pub(crate) source: PathBuf,
}

impl Mount {
    /// True for a mount of this program.
    pub(crate) fn is_ours(&self) -> bool {
        self.kind == FILESYSTEM_TYPE
    }
}

/// All mounts of this mount namespace, in the order they were made.
pub(crate) fn read() -> io::Result<Vec<Mount>> {
    Ok(parse(&fs::read("/proc/self/mountinfo")?))
}

fn parse(text: &[u8]) -> Vec<Mount> {
    text.split(|byte| *byte == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let root = unescape(fields.by_ref().nth(2)?);
    let point = unescape(fields.next()?);
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let kind = String::from_utf8_lossy(rest.next()?).into_owned();
    let source = unescape(rest.next()?);
    Some(Mount {
        id,
        root,
        point,
        kind,
        source,
    })
}

/// Undoes the kernel's `\ooo` for space, tab, newline and backslash.
fn unescape(field: &[u8]) -> PathBuf {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((byte, after)) = rest.split_first() {
        let octal = if *byte == b'\\' { after.get(..3) } else { None };
        let code = octal.and_then(|digits| std::str::from_utf8(digits).ok());
        if let Some(code) = code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            plain.push(code);
            rest = &after[3..];
        } else {
            plain.push(*byte);
            rest = after;
        }
    }
    PathBuf::from(OsString::from_vec(plain))
}

/// The mount that a (canonical) path is on: of the deepest, the latest.
pub(crate) fn covering<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    let around = mounts.iter().filter(|mount| path.starts_with(&mount.point));
    around.max_by_key(|mount| mount.point.as_os_str().as_bytes().len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
        30 27 0:27 / /w rw shared:1 master:2 - fuse.unclobber /w rw,user_id=0\n\
        31 27 0:28 / /w/a\\040b\\134c rw - tmpfs none rw\n\
        32 30 0:29 / /w rw - ext4 /dev/vdb rw\n\nbroken line\n";

    #[test]
    fn lines_are_read_and_others_skipped() {
        let mounts = parse(TEXT);
        assert_eq!(mounts.len(), 4);
        assert_eq!(mounts[1].id, 30);
        assert_eq!(mounts[2].point, Path::new("/w/a b\\c"));
        assert!(mounts[1].is_ours());
        assert_eq!(mounts[1].source, Path::new("/w"));
        assert_eq!(mounts[1].root, Path::new("/"));
    }

    #[test]
    fn the_deepest_and_latest_mount_covers() {
        let mounts = parse(TEXT);
        let kind = |path: &str| covering(&mounts, Path::new(path)).unwrap().kind.clone();
        assert_eq!(kind("/etc"), "ext4");
        assert_eq!(kind("/w/x"), "ext4");
        assert_eq!(
            covering(&mounts, Path::new("/w")).unwrap().source,
            Path::new("/dev/vdb")
        );
        assert_eq!(kind("/w/a b\\c/d"), "tmpfs");
        assert_eq!(kind("/ww"), "ext4");
        assert_eq!(covering(&mounts, Path::new("/ww")).unwrap().point, Path::new("/"));
    }

    #[test]
    fn this_machine_has_mounts() {
        assert!(covering(&read().unwrap(), Path::new("/")).is_some());
    }
}
