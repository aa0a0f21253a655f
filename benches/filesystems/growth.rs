//! The cost of an operation as what is known grows: files, owners, clients, observations; and the cost of a start.
//!
//! Files and owners are measured inside this process, on mounts that no kernel asks, so that nothing but the guard is
//! in the memory that grows.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::hint::black_box;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use unclobber::fs::probe::LedgerProbe;
use unclobber::fs::{Caller, Guard, GuardOptions, Mount, MountOptions};
use unclobber::guard::{FileKey, OwnerId, Policy, Process, Timestamp, Token};
use unclobber::owner::Attribution;
use unclobber::store::{Node, ROOT_ID};
use unclobber::sys;

use super::places::Place;
use super::say;
use super::table::Spread;

/// What an operation may cost at the largest size, against the smallest.
const FLAT: f64 = 1.3;
const BYTES_PER_FILE: f64 = 400.0;
const BYTES_PER_OBSERVATION: f64 = 100.0;
/// What a start may cost more than the command alone, in milliseconds.
const START: f64 = 30.0;
const FILES_PER_DIR: u32 = 1000;
/// Operations that are timed at each size.
const SAMPLE: u32 = 20_000;

/// What is asked for.
#[derive(Debug, clap::Args)]
pub(crate) struct GrowthArgs {
    /// Where the files are made
    #[arg(long)]
    dir: PathBuf,
    #[arg(long)]
    unclobber: PathBuf,
    /// A tenth of everything
    #[arg(long)]
    quick: bool,
    /// Only this part; each has a process of its own, so that its memory is its own
    #[arg(long)]
    part: Option<String>,
}

const PARTS: [&str; 5] = ["observations", "owners", "files", "starts", "clients"];

/// A line of results that all say whether they are within their bounds.
struct Findings {
    kept: bool,
}

impl Findings {
    fn flat(&mut self, what: &str, unit: &str, sizes: &[(u32, f64)]) {
        let shown: Vec<String> = sizes.iter().map(|(size, time)| format!("{size}: {time:.2}")).collect();
        let growth = match (sizes.first(), sizes.last()) {
            (Some((_, first)), Some((_, last))) if *first > 0.0 => last / first,
            _ => return,
        };
        self.line(
            &format!("{what}, {unit} at {}", shown.join(", ")),
            growth,
            FLAT,
            "times the first",
        );
    }

    fn line(&mut self, what: &str, value: f64, most: f64, unit: &str) {
        let kept = value <= most;
        self.kept &= kept;
        let word = if kept { "kept" } else { "NOT KEPT" };
        println!("{what}: {value:.2} {unit} (at most {most}): {word}");
    }
}

/// Measures all of it; says whether every bound was kept.
pub(crate) fn run(args: &GrowthArgs) -> io::Result<bool> {
    let Some(part) = &args.part else {
        let mut kept = true;
        for part in PARTS {
            kept &= in_a_process_of_its_own(args, part)?;
        }
        return Ok(kept);
    };
    let mut findings = Findings { kept: true };
    sys::raise_nofile_limit().map_err(io::Error::other)?;
    match part.as_str() {
        "observations" => observations(args, &mut findings)?,
        "owners" => owners(args, &mut findings)?,
        "files" => files(args, &mut findings)?,
        "starts" => starts(args, &mut findings)?,
        "clients" => clients(args, &mut findings)?,
        _ => {
            return Err(io::Error::other(format!(
                "no such part: {part} (there are: {})",
                PARTS.join(" ")
            )));
        }
    }
    Ok(findings.kept)
}

fn in_a_process_of_its_own(args: &GrowthArgs, part: &str) -> io::Result<bool> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["growth", "--part", part, "--dir"]).arg(&args.dir);
    command.arg("--unclobber").arg(&args.unclobber);
    if args.quick {
        command.arg("--quick");
    }
    Ok(command.status()?.success())
}

fn resident() -> io::Result<f64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kib.map(|kib| kib * 1024.0).ok_or_else(|| io::Error::other("no VmRSS"))
}

/// Microseconds for each of `times`, in the best of ten batches: what others on the machine do comes on top.
fn each(times: u32, mut act: impl FnMut(u32) -> io::Result<()>) -> io::Result<f64> {
    let batch = (times / 10).max(1);
    let mut best = f64::INFINITY;
    for first in (0..10).map(|index| index * batch) {
        let began = Instant::now();
        (first..first + batch).try_for_each(&mut act)?;
        best = best.min(began.elapsed().as_secs_f64() * 1e6 / f64::from(batch));
    }
    Ok(best)
}

/// An order that no cache foresees.
fn scattered(step: u32, size: u32) -> u32 {
    u32::try_from(u64::from(step) * 611_953 % u64::from(size.max(1))).unwrap_or(0)
}

fn key(ino: u32) -> FileKey {
    FileKey {
        dev: 1,
        ino: u64::from(ino),
        generation: 1,
    }
}

const TOKEN: Token = Token {
    size: 4096,
    mtime: Timestamp { sec: 1, nsec: 0 },
    ctime: Timestamp { sec: 1, nsec: 0 },
};

/// Observations of a thousand files by more and more owners, each by a process of its own, in a ledger alone.
fn observations(args: &GrowthArgs, findings: &mut Findings) -> io::Result<()> {
    let (files, most): (u32, u32) = (1000, if args.quick { 100 } else { 1000 });
    let ledger = LedgerProbe::new(4 << 20);
    let name = OsString::from("file");
    let by = |owner: u32| {
        let process = Process {
            tgid: 1000 + owner,
            start: 1,
        };
        (OwnerId(owner + 1), Some(process))
    };
    let empty = resident()?;
    let mut times = Vec::new();
    let mut known = 0;
    for owners in [1, 10, 100, 1000].into_iter().filter(|owners| *owners <= most) {
        for owner in known..owners {
            let (owner, process) = by(owner);
            (0..files).for_each(|file| ledger.observe(owner, process, key(file), TOKEN));
        }
        known = owners;
        let time = each(SAMPLE * 10, |step| {
            let (owner, process) = by(scattered(step, owners));
            let file = scattered(step, files);
            black_box(ledger.standing(owner, process, (key(u32::MAX), &name), (key(file), TOKEN)));
            Ok(())
        });
        times.push((owners, time?));
    }
    let full = resident()?;
    let count = f64::from(files) * f64::from(known);
    let text = format!("memory for each of {count} observations");
    findings.line(&text, (full - empty) / count, BYTES_PER_OBSERVATION, "bytes");
    // A look into memory, and no operation: what its growth is to one is measured by those of the owners, below.
    let shown: Vec<String> = times.iter().map(|(size, time)| format!("{size}: {time:.2}")).collect();
    println!(
        "for comparison, a judgement alone by owners of one file, microseconds at {}",
        shown.join(", ")
    );
    let (file, entry) = LedgerProbe::record_bytes();
    println!(
        "a record of a file has {file} bytes, one of a name {entry}, a node {}",
        size_of::<Node>()
    );
    Ok(())
}

fn guard_of(dir: &Path) -> io::Result<Arc<Guard>> {
    let root = sys::open_path(dir, sys::consts::O_PATH | sys::consts::O_DIRECTORY).map_err(io::Error::other)?;
    let (_, max_fds) = sys::raise_nofile_limit().map_err(io::Error::other)?;
    let options = GuardOptions {
        max_fds,
        ..GuardOptions::default()
    };
    Guard::open(root, options).map_err(io::Error::other)
}

fn mount_for(guard: &Arc<Guard>, owner: OwnerId) -> Arc<Mount> {
    guard.add_mount(MountOptions {
        policy: Policy::default(),
        attribution: Attribution::Fixed(owner),
        label: "growth".to_owned(),
        multi_user: false,
        read_only: false,
        access_times: None,
        only_ids: None,
        pids_visible: true,
        rules: unclobber::fs::RuleOptions::default(),
    })
}

fn caller() -> Caller {
    Caller {
        tid: std::process::id(),
        uid: sys::getuid(),
        gid: sys::getgid(),
    }
}

fn look_up(mount: &Mount, parent: u64, name: &OsStr) -> io::Result<u64> {
    let found = mount.lookup(&caller(), parent, name).map_err(io::Error::other)?;
    Ok(found.attr.ino)
}

fn read(mount: &Mount, file: u64) -> io::Result<()> {
    // As a program's open arrives: without it the open is taken for one that the kernel makes by itself, which observes nothing.
    const LARGE_FILE: i32 = 0o100_000;
    let opened = mount.open(&caller(), file, LARGE_FILE).map_err(io::Error::other)?;
    mount.release(opened.handle);
    Ok(())
}

/// More and more owners, each on a mount of its own, read the same hundred files.
fn owners(args: &GrowthArgs, findings: &mut Findings) -> io::Result<()> {
    let dir = args.dir.join("owners");
    fs::create_dir_all(&dir)?;
    let names: Vec<String> = (0..100).map(|index| format!("file-{index}")).collect();
    names.iter().try_for_each(|name| fs::write(dir.join(name), ""))?;
    let guard = guard_of(&dir)?;
    let mut mounts = Vec::new();
    let mut times = Vec::new();
    for count in [1, 10, 100, 1000] {
        for owner in u32::try_from(mounts.len()).unwrap_or(0)..count {
            let owner = guard
                .owners()
                .named(&format!("owner-{owner}"))
                .map_err(io::Error::other)?;
            let mount = mount_for(&guard, owner);
            let files: io::Result<Vec<u64>> = names
                .iter()
                .map(|name| look_up(&mount, ROOT_ID, name.as_ref()))
                .collect();
            let files = files?;
            files.iter().try_for_each(|file| read(&mount, *file))?;
            mounts.push((mount, files));
        }
        let time = each(SAMPLE, |step| {
            let at = usize::try_from(scattered(step, count)).unwrap_or(0);
            let (mount, files) = &mounts[at];
            read(mount, files[usize::try_from(scattered(step, 100)).unwrap_or(0)])
        })?;
        times.push((count, time));
    }
    findings.flat("open and release by owners of one file", "microseconds", &times);
    mounts.iter().for_each(|(mount, _)| mount.end());
    guard.shutdown();
    Ok(())
}

/// More and more files, each looked up, then read by one owner. Leaves the tree behind.
fn files(args: &GrowthArgs, findings: &mut Findings) -> io::Result<()> {
    let dir = args.dir.join("files");
    fs::create_dir_all(&dir)?;
    let guard = guard_of(&dir)?;
    let owner = guard.owners().named("growth").map_err(io::Error::other)?;
    let mount = mount_for(&guard, owner);
    let name = |index: u32| (format!("dir-{}", index / FILES_PER_DIR), format!("file-{index}"));
    let mut known: Vec<u64> = Vec::with_capacity(1 << 20);
    let mut parents: Vec<u64> = Vec::with_capacity(1 << 10);
    let (mut look_ups, mut opens, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    let (mut looked, mut observed) = (0.0, 0.0);
    for size in [1_000, 10_000, 100_000, 1_000_000]
        .into_iter()
        .filter(|size| !args.quick || *size <= 100_000)
    {
        let from = u32::try_from(known.len()).unwrap_or(u32::MAX);
        for index in from..size {
            let (sub, file) = name(index);
            if index % FILES_PER_DIR == 0 {
                fs::create_dir_all(dir.join(&sub))?;
                parents.push(look_up(&mount, ROOT_ID, sub.as_ref())?);
            }
            fs::write(dir.join(sub).join(file), "")?;
        }
        let before = resident()?;
        for index in from..size {
            let parent = parents[usize::try_from(index / FILES_PER_DIR).unwrap_or(0)];
            known.push(look_up(&mount, parent, name(index).1.as_ref())?);
        }
        let between = resident()?;
        (from..size).try_for_each(|index| read(&mount, known[usize::try_from(index).unwrap_or(0)]))?;
        let after = resident()?;
        looked = (between - before) / f64::from(size - from);
        observed = (after - between) / f64::from(size - from);
        say(format!(
            "{size} files: {looked:.0} bytes for each known, {observed:.0} for each read"
        ));
        bare.push((
            size,
            each(SAMPLE, |step| {
                let (sub, file) = name(scattered(step, size));
                fs::symlink_metadata(dir.join(sub).join(file)).map(drop)
            })?,
        ));
        look_ups.push((
            size,
            each(SAMPLE, |step| {
                let index = scattered(step, size);
                let parent = parents[usize::try_from(index / FILES_PER_DIR).unwrap_or(0)];
                look_up(&mount, parent, name(index).1.as_ref()).map(drop)
            })?,
        ));
        opens.push((
            size,
            each(SAMPLE, |step| {
                read(&mount, known[usize::try_from(scattered(step, size)).unwrap_or(0)])
            })?,
        ));
    }
    findings.line(
        "memory for each file known and read",
        looked + observed,
        BYTES_PER_FILE,
        "bytes",
    );
    println!("of it, {looked:.0} bytes since it was looked up and {observed:.0} since it was read");
    findings.flat("look-up of a known file", "microseconds", &look_ups);
    findings.flat("open and release of a known file", "microseconds", &opens);
    let native: Vec<String> = bare.iter().map(|(size, time)| format!("{size}: {time:.2}")).collect();
    println!(
        "for comparison, stat on the bare directory, microseconds at {}",
        native.join(", ")
    );
    mount.end();
    guard.shutdown();
    Ok(())
}

/// `unclobber run -- true` against `true`, on a small tree and on the large one.
fn starts(args: &GrowthArgs, findings: &mut Findings) -> io::Result<()> {
    let large = args.dir.join("files");
    let small = args.dir.join("small");
    fs::create_dir_all(&small)?;
    fs::write(small.join("file"), "")?;
    for (what, tree) in [("a small tree", small.as_path()), ("a large tree", large.as_path())] {
        let mut more = Vec::new();
        for _ in 0..15 {
            let bare = time_of(Command::new("true"))?;
            let mut command = Command::new(&args.unclobber);
            command.args(["run", "--workspace"]).arg(tree).args(["--", "true"]);
            more.push(time_of(command)? - bare);
        }
        if let Some(spread) = Spread::of(&more) {
            let text = format!("`unclobber run -- true` more than `true` on {what}");
            findings.line(&text, spread.median, START, "ms");
        }
    }
    Ok(())
}

fn time_of(mut command: Command) -> io::Result<f64> {
    let began = Instant::now();
    let status = command.stdin(Stdio::null()).status()?;
    if !status.success() {
        return Err(io::Error::other(format!("{command:?}: {status}")));
    }
    Ok(began.elapsed().as_secs_f64() * 1000.0)
}

/// The same number of reads of files, shared by more and more processes on one mount.
fn clients(args: &GrowthArgs, findings: &mut Findings) -> io::Result<()> {
    let place = Place::mount("guard", &args.dir, &args.unclobber)?;
    let reads: u32 = if args.quick { 6_400 } else { 32_000 };
    let dir = place.dir().join("files");
    fs::create_dir_all(&dir)?;
    (0..64).try_for_each(|index| fs::write(dir.join(format!("file-{index}")), "content"))?;
    let mut times = Vec::new();
    for count in [1, 2, 4, 16, 64] {
        let began = Instant::now();
        let started: io::Result<Vec<_>> = (0..count)
            .map(|_| {
                let mut command = Command::new(std::env::current_exe()?);
                command
                    .args(["op", "read-again"])
                    .arg(&dir)
                    .arg((reads / count).to_string());
                command.stdout(Stdio::null()).spawn()
            })
            .collect();
        for mut client in started? {
            if !client.wait()?.success() {
                return Err(io::Error::other("a client failed"));
            }
        }
        times.push((count, began.elapsed().as_secs_f64() * 1e6 / f64::from(reads)));
    }
    findings.flat(
        "open, read, close by clients at once, all together",
        "microseconds",
        &times,
    );
    place.unmount()
}
