//! Bytes: appending, holes, allocation, copying, locks.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::thread;

use nix::errno::Errno;
use nix::fcntl::{
    FallocateFlags, FcntlArg, Flock, FlockArg, OFlag, PosixFadviseAdvice, copy_file_range, fallocate, fcntl,
    posix_fadvise,
};
use nix::sys::sendfile::sendfile;
use nix::unistd::{Whence, lseek};

use crate::Case;
use crate::transcript::Log;

const fn case(name: &'static str, run: fn(&Path) -> String) -> Case {
    Case {
        name,
        needs: &[],
        root: false,
        run,
    }
}

pub(crate) const CASES: &[Case] = &[
    case("appending", appending),
    case("several appenders", appenders),
    case("append cleared", cleared),
    case("data and holes", holes),
    case("allocating", allocating),
    case("copy_file_range", copying),
    case("reading and writing at the edges", edges),
    case("direct", direct),
    case("large", large),
    case("locks of one process", locks),
    case("write, then read elsewhere", elsewhere),
    case("random writes", random),
];

fn put(path: &Path, bytes: impl AsRef<[u8]>) {
    fs::write(path, bytes).expect("a file of the case's own");
}

fn both(path: &Path) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .expect("a handle")
}

fn appending(d: &Path) -> String {
    let mut log = Log::default();
    let f = d.join("f");
    let append = || {
        OpenOptions::new()
            .append(true)
            .create(true)
            .open(&f)
            .expect("an appending handle")
    };
    let (mut one, mut two) = (append(), append());
    for _ in 0..3 {
        log.io("one", one.write_all(b"one,"));
        log.io("two", two.write_all(b"two;"));
    }
    log.content("in turn", &f);
    log.io("pwrite goes to the end too", one.write_all_at(b"P", 0));
    log.content("content", &f);
    both(&f).write_all(b"ONE").expect("another handle's write");
    log.io("after another's write", two.write_all(b"!"));
    log.done("truncate below", nix::unistd::ftruncate(&one, 2));
    log.io("after truncation", one.write_all(b"end"));
    log.content("content", &f);
    log.note("offset", lseek(&one, 0, Whence::SeekCur));
    log.text()
}

fn appenders(d: &Path) -> String {
    let mut log = Log::default();
    let f = d.join("f");
    put(&f, "");
    thread::scope(|scope| {
        for name in ["a", "b", "c", "d"] {
            let f = &f;
            scope.spawn(move || {
                let mut file = OpenOptions::new().append(true).open(f).expect("an appending handle");
                for i in 0..100 {
                    file.write_all(format!("{name} {i:03}\n").as_bytes())
                        .expect("an append");
                }
            });
        }
    });
    let text = fs::read_to_string(&f).expect("what was appended");
    let mut lines: Vec<&str> = text.lines().collect();
    log.note("lines", lines.len());
    lines.sort_unstable();
    lines.dedup();
    log.note(
        "different and whole lines",
        lines.iter().filter(|line| line.len() == 5).count(),
    );
    log.text()
}

fn cleared(d: &Path) -> String {
    let mut log = Log::default();
    let f = d.join("f");
    put(&f, "0123456789");
    let mut file = OpenOptions::new().append(true).open(&f).expect("an appending handle");
    log.io("appended", file.write_all(b"A"));
    log.note("flags cleared", fcntl(&file, FcntlArg::F_SETFL(OFlag::empty())));
    log.io("written at 0", file.write_all_at(b"W", 0));
    log.content("content", &f);
    log.note("flags set", fcntl(&file, FcntlArg::F_SETFL(OFlag::O_APPEND)));
    log.io("appended again", file.write_all_at(b"B", 0));
    log.content("content", &f);
    log.text()
}

fn holes(d: &Path) -> String {
    let mut log = Log::default();
    let file = both(&d.join("f"));
    for offset in [1 << 16, 1 << 20] {
        log.io("write", file.write_all_at(&[b'x'; 4096], offset));
    }
    log.done("length", nix::unistd::ftruncate(&file, 2 << 20));
    log.io("fsync", file.sync_all());
    for (what, offset, whence) in [
        ("data from 0", 0, Whence::SeekData),
        ("hole from 0", 0, Whence::SeekHole),
        ("hole in data", 1 << 16, Whence::SeekHole),
        ("data after the first", (1 << 16) + 4096, Whence::SeekData),
        ("hole after the last", 1 << 20, Whence::SeekHole),
        ("data after the last", (1 << 20) + 4096, Whence::SeekData),
        ("data beyond the end", 3 << 20, Whence::SeekData),
        ("end", 0, Whence::SeekEnd),
        ("negative", -1, Whence::SeekSet),
    ] {
        log.note(what, lseek(&file, offset, whence));
    }
    log.note("blocks", file.metadata().map(|found| found.blocks()).ok());
    log.text()
}

fn allocating(d: &Path) -> String {
    let mut log = Log::default();
    let f = d.join("f");
    put(&f, [b'x'; 10_000]);
    let file = both(&f);
    let mut each = |what: &str, flags: FallocateFlags, offset: i64, length: i64| {
        log.done(what, fallocate(&file, flags, offset, length));
        let bytes = fs::read(&f).unwrap_or_default();
        let xs = bytes.iter().filter(|byte| **byte == b'x').count();
        log.note("length, x", (bytes.len(), xs));
    };
    let keep = FallocateFlags::FALLOC_FL_KEEP_SIZE;
    each("longer", FallocateFlags::empty(), 0, 20_000);
    each("beyond, size kept", keep, 20_000, 20_000);
    each("hole", FallocateFlags::FALLOC_FL_PUNCH_HOLE | keep, 100, 5_000);
    each("zeros", FallocateFlags::FALLOC_FL_ZERO_RANGE, 9_000, 500);
    each(
        "zeros, size kept",
        FallocateFlags::FALLOC_FL_ZERO_RANGE | keep,
        19_000,
        5_000,
    );
    each("hole without keeping", FallocateFlags::FALLOC_FL_PUNCH_HOLE, 0, 10);
    each("nothing", FallocateFlags::empty(), 0, 0);
    each("negative", FallocateFlags::empty(), -1, 10);
    let reader = File::open(&f).expect("a reading handle");
    log.done("by a reader", fallocate(&reader, FallocateFlags::empty(), 0, 10));
    log.done(
        "fadvise",
        posix_fadvise(&reader, 0, 100, PosixFadviseAdvice::POSIX_FADV_DONTNEED),
    );
    log.text()
}

fn copying(d: &Path) -> String {
    let mut log = Log::default();
    put(&d.join("from"), "0123456789");
    let from = File::open(d.join("from")).expect("the source");
    let to = both(&d.join("to"));
    let (mut at, mut into) = (2, 4);
    log.note(
        "at offsets",
        copy_file_range(&from, Some(&mut at), &to, Some(&mut into), 5),
    );
    log.note("offsets", (at, into));
    log.content("to", &d.join("to"));
    log.note("at the position", copy_file_range(&from, None, &to, None, 100));
    log.content("to", &d.join("to"));
    let (mut at, mut into) = (50, 0);
    log.note(
        "beyond the end",
        copy_file_range(&from, Some(&mut at), &to, Some(&mut into), 5),
    );
    let (mut at, mut into) = (0, 20);
    log.note(
        "within one file",
        copy_file_range(&to, Some(&mut at), &to, Some(&mut into), 5),
    );
    let (mut at, mut into) = (0, 2);
    log.note(
        "overlapping",
        copy_file_range(&to, Some(&mut at), &to, Some(&mut into), 5),
    );
    let (mut at, mut into) = (0, 0);
    log.note(
        "into a reader",
        copy_file_range(&to, Some(&mut at), &from, Some(&mut into), 5),
    );
    log.content("to", &d.join("to"));
    let mut start = 1;
    log.note("sendfile", sendfile(&to, &from, Some(&mut start), 3));
    log.content("to", &d.join("to"));
    log.text()
}

fn edges(d: &Path) -> String {
    let mut log = Log::default();
    let file = both(&d.join("f"));
    let mut bytes = [0; 16];
    log.note("read of nothing", file.read_at(&mut bytes, 0).ok());
    log.io("write of nothing", file.write_at(b"", 100));
    log.note("length", file.metadata().map(|found| found.len()).ok());
    log.io("write", file.write_all_at(b"abc", 10));
    log.note("read across the end", file.read_at(&mut bytes, 8).ok());
    log.note("bytes", bytes.escape_ascii().to_string());
    log.note("read beyond", file.read_at(&mut bytes, 1 << 40).ok());
    log.note(
        "page edges",
        [4095_u64, 4096, 131_071, 131_072, 1_048_575].map(|at| file.write_at(b"xy", at).ok()),
    );
    log.note("length", file.metadata().map(|found| found.len()).ok());
    let mut all = Vec::new();
    log.io("read all", both(&d.join("f")).read_to_end(&mut all));
    log.note("sum", all.iter().map(|byte| u64::from(*byte)).sum::<u64>());
    log.text()
}

/// A buffer as O_DIRECT wants it.
#[repr(align(4096))]
struct Aligned([u8; 8192]);

fn direct(d: &Path) -> String {
    let mut log = Log::default();
    let f = d.join("f");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(OFlag::O_DIRECT.bits())
        .open(&f)
        .expect("a direct handle");
    let mut buffer = Box::new(Aligned([b'd'; 8192]));
    log.note("write", file.write_at(&buffer.0, 0).ok());
    log.note("write further", file.write_at(&buffer.0[..4096], 16_384).ok());
    buffer.0.fill(0);
    log.note("read", file.read_at(&mut buffer.0, 4096).ok());
    log.note("sum", buffer.0.iter().map(|byte| u64::from(*byte)).sum::<u64>());
    let cached = fs::read(&f).map(|bytes| (bytes.len(), bytes.iter().filter(|byte| **byte == b'd').count()));
    log.note("by another handle", cached.ok());
    both(&f).write_all_at(b"cached", 0).expect("a cached write");
    log.note("read after a cached write", file.read_at(&mut buffer.0, 0).ok());
    log.note("bytes", buffer.0[..8].escape_ascii().to_string());
    log.text()
}

fn large(d: &Path) -> String {
    let mut log = Log::default();
    let block: Vec<u8> = (0..1_u32 << 20).map(|i| i.to_le_bytes()[1]).collect();
    let mut file = File::create(d.join("f")).expect("the file");
    for _ in 0..16 {
        file.write_all(&block).expect("a large write");
    }
    drop(file);
    let read = fs::read(d.join("f")).expect("a large read");
    log.note("length", read.len());
    log.note("same", read.chunks(1 << 20).all(|chunk| chunk == block));
    log.io("copy", fs::copy(d.join("f"), d.join("g")));
    log.note(
        "copies are the same",
        fs::read(d.join("g")).is_ok_and(|copy| copy == read),
    );
    log.text()
}

fn locks(d: &Path) -> String {
    let mut log = Log::default();
    let f = d.join("f");
    put(&f, "");
    let again = |how: FlockArg| {
        Flock::lock(both(&f), how)
            .map(drop)
            .map_err(|(_, errno): (File, Errno)| errno)
    };
    let held = Flock::lock(both(&f), FlockArg::LockSharedNonblock);
    log.note("shared", held.is_ok());
    log.note("shared again", again(FlockArg::LockSharedNonblock));
    log.note("exclusive", again(FlockArg::LockExclusiveNonblock));
    drop(held);
    log.note("exclusive after the close", again(FlockArg::LockExclusiveNonblock));
    let held = Flock::lock(both(&f), FlockArg::LockExclusiveNonblock);
    log.note("shared beside exclusive", again(FlockArg::LockSharedNonblock));
    drop(held);
    log.note("after the close", again(FlockArg::LockSharedNonblock));
    log.text()
}

fn elsewhere(d: &Path) -> String {
    let mut log = Log::default();
    let f = d.join("f");
    let mut writer = File::create(&f).expect("the file");
    log.note("at once", fs::read(&f).map(|bytes| bytes.len()).ok());
    for i in 0..5 {
        writer.write_all(format!("line {i}\n").as_bytes()).expect("a write");
        log.content("before the close", &f);
        log.note("length", fs::metadata(&f).map(|found| found.len()).ok());
    }
    fs::rename(&f, d.join("g")).expect("a rename before the close");
    writer.write_all(b"after the rename\n").expect("a write");
    drop(writer);
    log.content("at the end", &d.join("g"));
    log.names("names", d);
    log.text()
}

/// The same pseudo-random writes, truncations and reads, through several handles.
fn random(d: &Path) -> String {
    let mut log = Log::default();
    let f = d.join("f");
    let handles = [both(&f), both(&f), both(&f)];
    let mut state: u64 = 0x2545_f491_4f6c_dd1d;
    let mut next = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut sum: u64 = 0;
    for step in 0..600_u32 {
        let handle = &handles[usize::try_from(next(3)).expect("a small number")];
        let offset = next(300_000);
        let length = usize::try_from(next(40_000)).expect("a small number");
        match next(8) {
            0 => nix::unistd::ftruncate(handle, i64::try_from(offset).expect("a small number")).expect("truncating"),
            1..=3 => {
                let mut bytes = vec![0; length];
                let read = handle.read_at(&mut bytes, offset).expect("reading");
                sum = bytes[..read]
                    .iter()
                    .fold(sum, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
            }
            _ => handle
                .write_all_at(&vec![step.to_le_bytes()[0]; length], offset)
                .expect("writing"),
        }
    }
    log.note("what was read", sum);
    let bytes = fs::read(&f).expect("all of it");
    log.note(
        "what is left",
        bytes
            .iter()
            .fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte))),
    );
    log.note("length", bytes.len());
    log.text()
}
