//! What a directory holds, in a form that can be compared.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::Path;

/// Names to what they lead to: kind, mode and content.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Snapshot(pub(crate) BTreeMap<String, String>);

impl Snapshot {
    /// Reads a directory, leaving out any entry (and what is below it) whose name is in `without`.
    pub(crate) fn of(directory: &Path, without: &[&str]) -> Snapshot {
        let mut entries = BTreeMap::new();
        walk(directory, "", without, &mut entries);
        Snapshot(entries)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The lines in which two snapshots differ.
    pub(crate) fn difference(&self, other: &Snapshot) -> String {
        let names = self
            .0
            .keys()
            .chain(other.0.keys())
            .collect::<std::collections::BTreeSet<_>>();
        names
            .into_iter()
            .filter(|name| self.0.get(*name) != other.0.get(*name))
            .map(|name| format!("  {name}: {:?} != {:?}\n", self.0.get(name), other.0.get(name)))
            .collect()
    }
}

fn walk(directory: &Path, prefix: &str, without: &[&str], entries: &mut BTreeMap<String, String>) {
    // A directory that goes away while it is read is read again by whoever waits for it to settle.
    let Ok(found) = fs::read_dir(directory) else { return };
    for entry in found.map_while(Result::ok) {
        let name = entry.file_name().to_string_lossy().into_owned();
        if without.contains(&name.as_str()) {
            continue;
        }
        let path = entry.path();
        let full = format!("{prefix}{name}");
        entries.insert(full.clone(), describe(&path));
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            walk(&path, &format!("{full}/"), without, entries);
        }
    }
}

fn describe(path: &Path) -> String {
    let Ok(found) = fs::symlink_metadata(path) else {
        return "gone".to_owned();
    };
    let mode = found.permissions().mode() & 0o7777;
    let kind = found.file_type();
    if kind.is_symlink() {
        let to = fs::read_link(path).unwrap_or_default();
        return format!("symlink to {}", String::from_utf8_lossy(to.as_os_str().as_bytes()));
    }
    if kind.is_dir() {
        return format!("directory {mode:o}");
    }
    if kind.is_fifo() || kind.is_socket() || kind.is_block_device() || kind.is_char_device() {
        return format!("special {mode:o}");
    }
    let bytes = fs::read(path).unwrap_or_default();
    format!("file {mode:o} {}", bytes.escape_ascii())
}

/// Whether any file below the directory, hidden ones too, holds exactly these bytes.
pub(crate) fn kept(directory: &Path, bytes: &[u8]) -> bool {
    let Ok(found) = fs::read_dir(directory) else {
        return false;
    };
    found.map_while(Result::ok).any(|entry| {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => kept(&path, bytes),
            Ok(kind) if kind.is_file() => fs::read(&path).is_ok_and(|content| content == bytes),
            Ok(_) | Err(_) => false,
        }
    })
}
