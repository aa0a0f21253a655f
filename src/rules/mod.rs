//! Rules that users write: the workspace's file, rules of the command line, and git's ignore files; read, compiled and
//! matched.
//!
//! Owns their forms and what is wrong with them. Never decides between them: which source wins is `guard::grade`'s.

mod executable;
mod explain;
mod file;
mod glob;
mod ignored;
mod list;
mod matched;
#[cfg(test)]
mod tests;

pub use executable::{Executable, find_executable, path_of};
pub use explain::{Explained, Explainer, describe, evidence};
pub use file::{FILE_NAME, RulesError, parse, read};
pub use glob::Glob;
pub use ignored::{IGNORE_NAME, IgnoreFile, read_ignore_file};
pub use list::{Rule, RuleList, Source, parse_word};
pub use matched::matches;

use std::io;
use std::os::fd::AsFd;

use crate::sys::{self, consts};
use std::ffi::OsStr;

/// The longest file of rules that is read.
const SIZE_LIMIT: u64 = 1 << 20;

/// The content of a regular file by its name in a directory; `None` when there is nothing. Never follows a symbolic
/// link, and never waits for a fifo.
fn read_named(dir: impl AsFd, name: &str) -> io::Result<Option<(Vec<u8>, sys::Stat)>> {
    let name = OsStr::new(name);
    // Opening a device can do things.
    match sys::stat_at(&dir, name) {
        Err(error) if error.errno() == consts::ENOENT => return Ok(None),
        Ok(stat) if !stat.is_file() && !stat.is_symlink() => return Err(io::Error::other("it is no regular file")),
        Ok(_) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = consts::O_RDONLY | consts::O_NOFOLLOW | consts::O_NONBLOCK;
    let file = match sys::open_at(dir, name, flags, 0) {
        Err(error) if error.errno() == consts::ENOENT => return Ok(None),
        Err(error) if error.errno() == consts::ELOOP => return Err(io::Error::other("it is a symbolic link")),
        other => other?,
    };
    let stat = sys::stat(&file)?;
    if !stat.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    if stat.size > SIZE_LIMIT {
        return Err(io::Error::other("it is longer than 1 MiB"));
    }
    let mut bytes = vec![0; usize::try_from(SIZE_LIMIT + 1).unwrap_or(0)];
    let mut length = 0;
    loop {
        let at = u64::try_from(length).unwrap_or(u64::MAX);
        match sys::pread(&file, &mut bytes[length..], at)? {
            0 => break,
            more => length += more,
        }
        if length == bytes.len() {
            return Err(io::Error::other("it is longer than 1 MiB"));
        }
    }
    bytes.truncate(length);
    Ok(Some((bytes, stat)))
}
