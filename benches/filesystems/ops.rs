//! Workloads of single operations, each by system calls of this process: it times nothing but the operation.
//!
//! It keeps to the guard's rules: what it replaces, appends to and removes, it has made itself.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use serde_json::json;
use unclobber::sys;

const BLOCK: [u8; 4096] = [b'x'; 4096];
const CHUNK: usize = 1 << 20;
/// Of the file that is written and read in one go, in chunks.
const CHUNKS: u32 = 64;

/// What one measurement gave: the name of its row, nanoseconds in all, operations done, and how many of the nanoseconds
/// programs spent on their own computing.
pub(crate) type Measured = (&'static str, u64, u32, u64);

/// Groups of operations; those of a group follow each other because one makes the cache of the next.
pub(crate) const GROUPS: [&str; 9] = [
    "create",
    "stat",
    "missing",
    "read",
    "replace",
    "append",
    "rename",
    "sequential",
    "unlink",
];

/// What the guard asks of the filesystem below where a plain filesystem asks less, each with the row it is the work of:
/// measured on the bare directory only, for the limit.
pub(crate) const WAYS: [(&str, &str); 3] = [
    ("create-staged", "create"),
    ("unlink-moved", "unlink"),
    ("rename-exchanged", "rename"),
];

fn name(dir: &Path, index: u32) -> PathBuf {
    dir.join(format!("file-{index}"))
}

fn timed(count: u32, mut act: impl FnMut(u32) -> io::Result<()>) -> io::Result<u64> {
    let began = Instant::now();
    for index in 0..count {
        act(index)?;
    }
    Ok(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

fn create(path: &Path) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(&BLOCK)
}

/// The same by a file without a name, which is given one when it is whole.
fn create_staged(dir: &OwnedFd, name: &OsStr) -> io::Result<()> {
    let file = sys::open_tmpfile(dir, sys::consts::O_RDWR, 0o666).map_err(io::Error::other)?;
    sys::pwrite(&file, &BLOCK, 0).map_err(io::Error::other)?;
    sys::link_fd_at(&file, dir, name).map_err(io::Error::other)
}

/// The steps by which the guard makes, removes and replaces, as system calls on the bare directory and nothing else.
fn ways(way: &str, dir: &Path, count: u32) -> io::Result<Option<Measured>> {
    let Some((key, _)) = WAYS.into_iter().find(|(key, _)| *key == way) else {
        return Ok(None);
    };
    let attic = dir.join("attic");
    if way == "create-staged" {
        run("create", dir, 0)?;
    } else {
        ready(dir, count)?;
        fs::create_dir_all(&attic)?;
    }
    let open = |path: &Path| sys::open_path(path, sys::consts::O_PATH | sys::consts::O_DIRECTORY);
    let here = open(dir).map_err(io::Error::other)?;
    let ns = timed(count, |index| {
        let (plain, temporary) = (format!("file-{index}"), format!("file-{index}.tmp"));
        match way {
            "create-staged" => create_staged(&here, plain.as_ref()),
            "unlink-moved" => {
                fs::rename(dir.join(&plain), attic.join(&plain))?;
                fs::remove_file(attic.join(&plain))
            }
            _ => {
                create_staged(&here, temporary.as_ref())?;
                let (new, old) = (OsStr::new(&temporary), OsStr::new(&plain));
                sys::rename_at(&here, new, &here, old, sys::consts::RENAME_EXCHANGE).map_err(io::Error::other)?;
                fs::rename(dir.join(&temporary), attic.join(&plain))
            }
        }
    })?;
    if attic.exists() {
        fs::remove_dir_all(&attic)?;
    }
    Ok(Some((key, ns, count, 0)))
}

fn stat(path: &Path) -> io::Result<()> {
    fs::symlink_metadata(path).map(drop)
}

fn miss(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Err(io::Error::other("it is there")),
    }
}

/// Drops the kernel's names and inodes, of every filesystem; twice, since a filesystem in user space lets go of what
/// lies below it only after the first.
pub(crate) fn drop_names() -> io::Result<()> {
    for _ in 0..2 {
        fs::write("/proc/sys/vm/drop_caches", "2")?;
        std::thread::sleep(std::time::Duration::from_millis(30));
    }
    Ok(())
}

/// What every filesystem is brought to before a group, untimed: the files are there and have been looked at.
fn ready(dir: &Path, count: u32) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    for index in 0..count {
        let path = name(dir, index);
        if !path.exists() {
            create(&path)?;
        }
        stat(&path)?;
    }
    Ok(())
}

/// Runs a group in `dir`.
pub(crate) fn run(group: &str, dir: &Path, count: u32) -> io::Result<Vec<Measured>> {
    if let Some(measured) = ways(group, dir, count)? {
        return Ok(vec![measured]);
    }
    let file = |index| name(dir, index);
    match group {
        "create" => {
            fs::create_dir_all(dir)?;
            for entry in fs::read_dir(dir)? {
                fs::remove_file(entry?.path())?;
            }
            Ok(vec![("create", timed(count, |index| create(&file(index)))?, count, 0)])
        }
        "stat" => {
            ready(dir, count)?;
            drop_names()?;
            stat(dir)?;
            let first = timed(count, |index| stat(&file(index)))?;
            // The second time from another process: what the first has seen must help it.
            let again = in_another_process("stat-again", dir, count)?;
            Ok(vec![("stat-first", first, count, 0), again])
        }
        "stat-again" => Ok(vec![(
            "stat-again",
            timed(count, |index| stat(&file(index)))?,
            count,
            0,
        )]),
        "missing" => {
            ready(dir, 0)?;
            stat(dir)?;
            let look = |index: u32| miss(&dir.join(format!("missing-{}-{index}", std::process::id())));
            let first = timed(count, look)?;
            Ok(vec![
                ("missing", first, count, 0),
                ("missing-again", timed(count, look)?, count, 0),
            ])
        }
        "read" => {
            ready(dir, count)?;
            let mut buffer = [0; 4096];
            let ns = timed(count, |index| File::open(file(index))?.read(&mut buffer).map(drop))?;
            Ok(vec![("read", ns, count, 0)])
        }
        "replace" => {
            ready(dir, count)?;
            Ok(vec![("replace", timed(count, |index| create(&file(index)))?, count, 0)])
        }
        "append" => {
            ready(dir, count)?;
            let ns = timed(count, |index| {
                OpenOptions::new().append(true).open(file(index))?.write_all(&BLOCK)
            })?;
            Ok(vec![("append", ns, count, 0)])
        }
        "rename" => {
            ready(dir, count)?;
            let ns = timed(count, |index| {
                let temporary = dir.join(format!("file-{index}.tmp"));
                create(&temporary)?;
                fs::rename(temporary, file(index))
            })?;
            Ok(vec![("rename", ns, count, 0)])
        }
        "unlink" => {
            ready(dir, count)?;
            Ok(vec![(
                "unlink",
                timed(count, |index| fs::remove_file(file(index)))?,
                count,
                0,
            )])
        }
        "read-again" => {
            let mut buffer = [0; 4096];
            let ns = timed(count, |index| File::open(file(index % 64))?.read(&mut buffer).map(drop))?;
            Ok(vec![("read-again", ns, count, 0)])
        }
        "sequential" => sequential(dir),
        _ => Err(io::Error::other(format!("no such group: {group}"))),
    }
}

fn sequential(dir: &Path) -> io::Result<Vec<Measured>> {
    ready(dir, 0)?;
    let path = dir.join("large");
    let mut chunk = vec![b'y'; CHUNK];
    let mut file = File::create(&path)?;
    let write = timed(CHUNKS, |_| file.write_all(&chunk))?;
    drop(file);
    let mut file = File::open(&path)?;
    let read = timed(CHUNKS, |_| file.read_exact(&mut chunk))?;
    drop(file);
    fs::remove_file(&path)?;
    Ok(vec![("seq-write", write, CHUNKS, 0), ("seq-read", read, CHUNKS, 0)])
}

fn in_another_process(group: &'static str, dir: &Path, count: u32) -> io::Result<Measured> {
    let output = Command::new(std::env::current_exe()?)
        .args(["op", group])
        .arg(dir)
        .arg(count.to_string())
        .output()?;
    let rows: Vec<(String, u64, u32, u64)> = serde_json::from_slice(&output.stdout)
        .map_err(|_| io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()))?;
    let (_, ns, count, _) = rows.into_iter().next().ok_or_else(|| io::Error::other("no answer"))?;
    Ok((group, ns, count, 0))
}

/// One line for the process that asked.
pub(crate) fn line(rows: &[Measured]) -> String {
    json!(rows).to_string()
}
