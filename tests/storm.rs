//! A storm: everybody changes a few files at once, through a mount and behind it.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

#[expect(dead_code, reason = "each test program uses its own part of the harness")]
mod common;

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use common::mount::Mount;
use common::snapshot::Snapshot;
use common::tree::{Tree, require_fuse};
use common::wait::wait_until;

fn fill(dir: &Path) {
    for d in 0..4 {
        fs::create_dir(dir.join(format!("d{d}"))).unwrap();
        for f in 0..20 {
            fs::write(dir.join(format!("d{d}/f{f}")), format!("{d} {f}")).unwrap();
        }
    }
}

/// Two change the backing tree, three the mount, and three look at the mount, each so often as `goes_on` says: every call
/// ends, and what is seen then is what is there.
fn storm(goes_on: impl Fn(u64) -> bool + Copy + Send + 'static) {
    const PATIENCE: Duration = Duration::from_secs(120);
    let tree = Tree::new();
    if !require_fuse("a storm") {
        return;
    }
    fill(&tree.root());
    let mount = Mount::new(&tree, &["--owner", "a", "--mode", "observe"]);
    let (backing, m) = (&tree.root(), &mount.path());
    let (ended, all_ended) = mpsc::channel();
    let mut workers = 0;
    let mut start = |root: &Path, seed: u64, work: fn(&Path, &mut Random)| {
        let (root, ended) = (root.to_owned(), ended.clone());
        workers += 1;
        thread::spawn(move || {
            let (mut random, mut round) = (Random(seed), 0);
            while goes_on(round) {
                work(&root, &mut random);
                round += 1;
            }
            ended.send(()).unwrap();
        });
    };
    for seed in 1..3 {
        start(backing, seed, change);
    }
    for seed in 11..14 {
        start(m, seed, look);
        start(m, seed + 10, change);
    }
    drop(ended);
    for _ in 0..workers {
        all_ended.recv_timeout(PATIENCE).expect("every call ends");
    }
    // Staged files are published within a second, by and by.
    let own = [".unclobber"];
    let same = || Snapshot::of(m, &own) == Snapshot::of(backing, &own);
    let settled = wait_until(PATIENCE, same);
    let left = Snapshot::of(m, &own).difference(&Snapshot::of(backing, &own));
    assert!(settled, "{left}");
}

#[test]
fn a_storm_of_changes_behind_the_mount_ends() {
    storm(|round| round < 2000);
}

#[test]
#[ignore = "it takes a minute"]
fn a_storm_of_a_minute_ends() {
    let until = Instant::now() + Duration::from_secs(60);
    storm(move |_| Instant::now() < until);
}

/// What may fail, since others work at the same names, but must end. Only the errors of such races are taken.
fn raced<T>(result: std::io::Result<T>) {
    use nix::errno::Errno;
    if let Err(error) = result {
        let errno = Errno::from_raw(error.raw_os_error().unwrap_or_default());
        assert!(
            matches!(
                errno,
                Errno::ENOENT | Errno::EEXIST | Errno::ESTALE | Errno::EISDIR | Errno::ENOTDIR | Errno::ENOTEMPTY
            ),
            "{error}"
        );
    }
}

fn change(root: &Path, random: &mut Random) {
    let (one, other) = (random.file(root), random.file(root));
    match random.below(8) {
        0 => raced(fs::remove_file(one)),
        1 => raced(fs::rename(one, other)),
        2 | 3 => raced(fs::write(
            one,
            "x".repeat(1 + usize::try_from(random.below(9000)).unwrap()),
        )),
        4 => raced(fs::hard_link(one, other)),
        5 => raced(
            OpenOptions::new()
                .append(true)
                .create(true)
                .open(one)
                .and_then(|mut file| file.write_all(b"more")),
        ),
        6 => {
            let (from, to) = (root.join(format!("d{}", random.below(4))), root.join("moved"));
            if fs::rename(&from, &to).is_ok() {
                raced(fs::rename(to, from));
            }
        }
        _ => raced(
            OpenOptions::new()
                .write(true)
                .open(one)
                .and_then(|file| file.set_len(random.below(5000))),
        ),
    }
}

fn look(root: &Path, random: &mut Random) {
    let file = random.file(root);
    match random.below(4) {
        0 => raced(fs::read(file)),
        1 => raced(fs::metadata(file)),
        2 => raced(fs::read_dir(root.join(format!("d{}", random.below(4)))).map(|entries| entries.count())),
        _ => raced(fs::read_link(file).or_else(|error| match error.raw_os_error() {
            Some(22) => Ok(PathBuf::new()),
            _ => Err(error),
        })),
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % n
    }

    fn file(&mut self, root: &Path) -> PathBuf {
        root.join(format!("d{}/f{}", self.below(4), self.below(20)))
    }
}
