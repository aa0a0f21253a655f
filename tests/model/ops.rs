//! The operations, each carried out alike on a mount, on the backing directory and on the plain twin.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use nix::fcntl::{FallocateFlags, RenameFlags};
use nix::sys::stat::Mode;

/// The paths the operations choose from.
pub(crate) const PATHS: [&str; 8] = ["f", "g", "h", "d/f", "d/g", "e", "l", "d"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    Read,
    Write,
    ReadWrite,
    Append,
    /// Emptied, and nothing written yet.
    Empty,
    Truncate,
    Create,
}

impl Hold {
    pub(crate) fn replaces(self) -> bool {
        matches!(self, Self::Empty | Self::Truncate | Self::Create)
    }
}

/// One operation on paths of [`PATHS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Read(usize),
    Stat(usize),
    /// `O_WRONLY | O_CREAT | O_TRUNC`
    Save(usize),
    /// `O_WRONLY | O_TRUNC`
    Overwrite(usize),
    /// `O_WRONLY | O_CREAT | O_EXCL`
    Exclusive(usize),
    /// `O_WRONLY`, and a write
    Edit(usize),
    /// `O_RDWR`, and a write
    EditBlind(usize),
    /// `O_RDWR`, a read, and a write
    Modify(usize),
    /// `O_WRONLY | O_APPEND`, with or without `O_CREAT`
    Append(usize, bool),
    Truncate(usize, u64),
    /// To the size it has.
    TruncateSame(usize),
    Allocate(usize),
    Copy(usize, usize),
    /// `O_WRONLY`, and nothing else
    Touch(usize),
    Rename(usize, usize),
    RenameFree(usize, usize),
    Exchange(usize, usize),
    Link(usize, usize),
    Unlink(usize),
    Mkdir(usize),
    Rmdir(usize),
    Chmod(usize, bool),
    Times(usize),
    Hold(usize, Hold),
    /// Through the n-th of the handles held.
    HeldWrite(usize),
    HeldRead(usize),
    HeldTruncate(usize, u64),
    HeldAllocate(usize),
    HeldSync(usize),
    /// Closes a second descriptor of it.
    HeldFlush(usize),
    HeldClose(usize),
    /// In place, of the same size.
    Scribble(usize),
    /// By a new file renamed over the old one.
    Supplant(usize),
}

/// What an operation answered: what it read, or an errno.
pub(crate) type Outcome = Result<Vec<u8>, i32>;

pub(crate) fn outcome(result: io::Result<Vec<u8>>) -> Outcome {
    result.map_err(|error| error.raw_os_error().unwrap_or(-1))
}

/// Unlike any other from its first bytes on.
fn text(tag: u32) -> String {
    format!("{tag:03}+++")
}

fn written(file: &File, text: &str) -> io::Result<Vec<u8>> {
    file.write_all_at(text.as_bytes(), 0)?;
    Ok(Vec::new())
}

fn done(result: io::Result<()>) -> io::Result<Vec<u8>> {
    result.map(|()| Vec::new())
}

fn read_all(file: &mut File) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    file.read_to_end(&mut content)?;
    Ok(content)
}

/// Carries out an operation below `root`; `tag` makes what is written unique.
pub(crate) fn perform(root: &Path, op: Op, tag: u32) -> Outcome {
    outcome(try_perform(root, op, tag))
}

fn try_perform(root: &Path, op: Op, tag: u32) -> io::Result<Vec<u8>> {
    let path = |index: usize| root.join(PATHS[index]);
    let text = text(tag);
    let longer = text.repeat(2 + tag as usize % 3);
    let write = || OpenOptions::new().write(true).clone();
    match op {
        Op::Read(at) => read_all(&mut File::open(path(at))?),
        Op::Stat(at) => fs::symlink_metadata(path(at)).map(|_| Vec::new()),
        Op::Save(at) => {
            let mut file = write().create(true).truncate(true).open(path(at))?;
            done(file.write_all(longer.as_bytes()))
        }
        Op::Overwrite(at) => {
            let mut file = write().truncate(true).open(path(at))?;
            done(file.write_all(longer.as_bytes()))
        }
        Op::Exclusive(at) => done(write().create_new(true).open(path(at))?.write_all(longer.as_bytes())),
        Op::Edit(at) | Op::Scribble(at) => written(&write().open(path(at))?, &text),
        Op::EditBlind(at) => written(&write().read(true).open(path(at))?, &text),
        Op::Modify(at) => {
            let mut file = write().read(true).open(path(at))?;
            let content = read_all(&mut file)?;
            written(&file, &text)?;
            Ok(content)
        }
        Op::Append(at, create) => {
            let mut file = OpenOptions::new().append(true).create(create).open(path(at))?;
            done(file.write_all(text.as_bytes()))
        }
        Op::Truncate(at, size) => {
            done(nix::unistd::truncate(&path(at), i64::try_from(size).unwrap()).map_err(Into::into))
        }
        Op::TruncateSame(at) => {
            let size = fs::metadata(path(at))?.len();
            done(nix::unistd::truncate(&path(at), i64::try_from(size).unwrap()).map_err(Into::into))
        }
        Op::Allocate(at) => allocate(&write().open(path(at))?),
        Op::Copy(from, to) => {
            let from = File::open(path(from))?;
            let to = write().open(path(to))?;
            let copied = unclobber::sys::copy_file_range(&from, 0, &to, 0, 4, 0);
            copied
                .map(|_| Vec::new())
                .map_err(|error| io::Error::from_raw_os_error(error.errno()))
        }
        Op::Touch(at) => write().open(path(at)).map(|_| Vec::new()),
        Op::Rename(from, to) => rename(&path(from), &path(to), RenameFlags::empty()),
        Op::RenameFree(from, to) => rename(&path(from), &path(to), RenameFlags::RENAME_NOREPLACE),
        Op::Exchange(from, to) => rename(&path(from), &path(to), RenameFlags::RENAME_EXCHANGE),
        Op::Link(from, to) => done(fs::hard_link(path(from), path(to))),
        Op::Unlink(at) => done(fs::remove_file(path(at))),
        Op::Mkdir(at) => done(fs::create_dir(path(at))),
        Op::Rmdir(at) => done(fs::remove_dir(path(at))),
        Op::Chmod(at, more) => done(fs::set_permissions(
            path(at),
            fs::Permissions::from_mode(if more { 0o755 } else { 0o700 }),
        )),
        Op::Times(at) => times(&path(at)),
        Op::Supplant(at) => supplant(root, &path(at), &longer),
        Op::Hold(..)
        | Op::HeldWrite(_)
        | Op::HeldRead(_)
        | Op::HeldTruncate(..)
        | Op::HeldAllocate(_)
        | Op::HeldSync(_)
        | Op::HeldFlush(_)
        | Op::HeldClose(_) => {
            unreachable!("held")
        }
    }
}

fn allocate(file: &File) -> io::Result<Vec<u8>> {
    done(nix::fcntl::fallocate(file.as_fd(), FallocateFlags::empty(), 0, 64).map_err(Into::into))
}

fn rename(from: &Path, to: &Path, flags: RenameFlags) -> io::Result<Vec<u8>> {
    done(nix::fcntl::renameat2(nix::fcntl::AT_FDCWD, from, nix::fcntl::AT_FDCWD, to, flags).map_err(Into::into))
}

fn times(path: &Path) -> io::Result<Vec<u8>> {
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let stamp = nix::sys::time::TimeSpec::from_duration(then.duration_since(SystemTime::UNIX_EPOCH).unwrap());
    let follow = nix::sys::stat::UtimensatFlags::FollowSymlink;
    done(nix::sys::stat::utimensat(nix::fcntl::AT_FDCWD, path, &stamp, &stamp, follow).map_err(Into::into))
}

fn supplant(root: &Path, path: &Path, text: &str) -> io::Result<Vec<u8>> {
    let other = root.join(".supplant");
    fs::write(&other, text)?;
    let renamed = fs::rename(&other, path);
    if renamed.is_err() {
        fs::remove_file(&other)?;
    }
    done(renamed)
}

/// Opens a file to be held. One that is made is written and synced at once, so that it is published.
pub(crate) fn hold(root: &Path, at: usize, how: Hold, tag: u32) -> Result<File, i32> {
    let path = root.join(PATHS[at]);
    let mut options = OpenOptions::new();
    match how {
        Hold::Read => options.read(true),
        Hold::Write => options.write(true),
        Hold::ReadWrite => options.read(true).write(true),
        Hold::Append => options.append(true),
        Hold::Empty | Hold::Truncate => options.write(true).truncate(true),
        Hold::Create => options.write(true).create(true).truncate(true),
    };
    options.mode(Mode::from_bits_truncate(0o644).bits());
    let open = || {
        let mut file = options.open(path)?;
        if matches!(how, Hold::Truncate | Hold::Create) {
            file.write_all(text(tag).as_bytes())?;
        }
        if how == Hold::Create {
            file.sync_all()?;
        }
        Ok(file)
    };
    open().map_err(|error: io::Error| error.raw_os_error().unwrap_or(-1))
}

/// Carries out an operation on a handle held.
pub(crate) fn perform_held(file: &mut File, op: Op, tag: u32) -> Outcome {
    let text = text(tag);
    outcome(match op {
        Op::HeldRead(_) => {
            let mut content = vec![0; 64];
            file.read_at(&mut content, 0).map(|count| {
                content.truncate(count);
                content
            })
        }
        Op::HeldTruncate(_, size) => done(file.set_len(size)),
        Op::HeldAllocate(_) => allocate(file),
        Op::HeldSync(_) => done(file.sync_all()),
        Op::HeldFlush(_) => done(file.try_clone().and_then(|other| Ok(nix::unistd::close(other)?))),
        _ => written(file, &text),
    })
}
