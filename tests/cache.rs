//! What the kernel remembers of names and attributes, against those who change them behind its back: in both ways of
//! remembering, by outsiders and through another mount.

#![expect(clippy::unwrap_used, reason = "a test")]

mod support;

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use support::Tree;
use unclobber::fs::GuardOptions;
use unclobber::guard::{CacheRule, Policy};

const ESTALE: i32 = 116;

/// A tree as for an ordinary user: directories are watched one by one, and data goes through the daemon.
fn watching_directories(fill: impl FnOnce(&Path)) -> Tree {
    let options = GuardOptions {
        watch_own: true,
        watch_directories: true,
        ..GuardOptions::default()
    };
    Tree::with_options(tempfile::TempDir::new_in("/var/tmp").unwrap(), options, fill)
}

fn text(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap()
}

fn errno<T>(result: std::io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

/// A tree, a mount that remembers by `cache`, and where somebody else changes it: past all mounts, or through another.
struct Place {
    mount: PathBuf,
    behind: PathBuf,
    cache: CacheRule,
    by_directory: bool,
    tree: Tree,
}

impl Place {
    /// Goes through the eight ways: as root, and as for an ordinary user.
    fn each(fill: impl Fn(&Path), test: impl Fn(&Self)) {
        let all = [
            (false, CacheRule::Strict),
            (false, CacheRule::Coherent),
            (true, CacheRule::Strict),
            (true, CacheRule::Coherent),
        ];
        for (by_directory, cache) in all {
            for through_mount in [false, true] {
                let mut tree = if by_directory {
                    watching_directories(&fill)
                } else {
                    Tree::new(&fill)
                };
                let policy = Policy {
                    cache,
                    ..Policy::default()
                };
                let mount = tree.owner_with("a", policy);
                let other = tree.owner_with("b", policy);
                let behind = if through_mount { other } else { tree.backing.clone() };
                test(&Self {
                    mount,
                    behind,
                    cache,
                    by_directory,
                    tree,
                });
            }
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.mount.join(name)
    }

    fn behind(&self, name: &str) -> PathBuf {
        self.behind.join(name)
    }

    /// Strict: at once. Coherent: a moment later.
    fn sees(&self, what: &str, holds: impl Fn() -> bool) {
        let begin = Instant::now();
        while !holds() {
            assert!(
                self.cache == CacheRule::Coherent && begin.elapsed() < Duration::from_secs(2),
                "{what} is not seen: {:?}, behind {}, directories {}",
                self.cache,
                self.behind.display(),
                self.by_directory
            );
            std::thread::yield_now();
        }
    }

    /// Lets the kernel remember the names.
    fn know(&self, names: &[&str]) {
        for name in names {
            fs::symlink_metadata(self.at(name)).unwrap();
            fs::symlink_metadata(self.behind(name)).unwrap();
        }
    }

    fn replace_behind(&self, name: &str, content: &str) {
        let new = self.behind(".new");
        fs::write(&new, content).unwrap();
        drop(File::open(self.behind(name)));
        fs::rename(new, self.behind(name)).unwrap();
    }
}

fn fill(dir: &Path) {
    fs::create_dir(dir.join("d")).unwrap();
    fs::create_dir(dir.join("d/e")).unwrap();
    for name in ["f", "g", "d/f", "d/e/f"] {
        fs::write(dir.join(name), format!("first {name}")).unwrap();
    }
}

// semantics: C1 C2 C3
#[test]
fn what_others_change_is_read_at_once_and_shown_soon() {
    Place::each(fill, |place| {
        place.know(&["f", "g", "d/f", "d/e/f"]);
        let size = |name: &str| fs::symlink_metadata(place.at(name)).map_or(0, |found| found.len());
        // Grown, shrunk, and of the same size.
        for content in ["a content that is longer", "short", "shorT"] {
            text(place.behind("f"));
            fs::write(place.behind("f"), content).unwrap();
            assert_eq!(text(place.at("f")), content);
            place.sees("the size", || size("f") == content.len() as u64);
        }
        // Replaced by rename.
        place.replace_behind("f", "another file");
        assert_eq!(text(place.at("f")), "another file");
        place.sees("the file", || size("f") == 12);
        // Removed, and made again.
        text(place.behind("g"));
        fs::remove_file(place.behind("g")).unwrap();
        assert_eq!(errno(File::open(place.at("g"))), Some(libc::ENOENT));
        place.sees("the removal", || !place.at("g").exists());
        place.sees("the removal in the listing", || {
            !fs::read_dir(&place.mount)
                .unwrap()
                .any(|entry| entry.unwrap().file_name() == "g")
        });
        fs::write(place.behind("g"), "made again").unwrap();
        place.sees("the new file", || place.at("g").exists());
        assert_eq!(text(place.at("g")), "made again");
        // Attributes.
        fs::set_permissions(place.behind("f"), fs::Permissions::from_mode(0o600)).unwrap();
        place.sees("the mode", || {
            fs::metadata(place.at("f")).unwrap().mode() & 0o777 == 0o600
        });
        fs::set_permissions(place.behind("d"), fs::Permissions::from_mode(0o700)).unwrap();
        place.sees("the directory's mode", || {
            fs::metadata(place.at("d")).unwrap().mode() & 0o777 == 0o700
        });
        // A second name.
        fs::hard_link(place.behind("f"), place.behind("h")).unwrap();
        place.sees("the link", || fs::metadata(place.at("f")).unwrap().nlink() == 2);
    });
}

// semantics: C1
#[test]
fn nothing_is_written_by_a_name_that_leads_elsewhere() {
    Place::each(fill, |place| {
        // The file is renamed away, and another put at its name: with no time for the kernel to be told.
        assert_eq!(text(place.at("f")), "first f");
        assert_eq!(text(place.at("g")), "first g");
        place.know(&["f", "g"]);
        text(place.behind("f"));
        fs::rename(place.behind("f"), place.behind("moved")).unwrap();
        fs::write(place.behind("f"), "not seen").unwrap();
        for done in [
            fs::write(place.at("f"), "mine"),
            OpenOptions::new()
                .write(true)
                .open(place.at("f"))
                .and_then(|file| file.write_all_at(b"mine", 0)),
            nix::unistd::truncate(&place.at("f"), 0).map_err(Into::into),
        ] {
            assert_eq!(errno(done), Some(ESTALE));
        }
        assert_eq!(
            (text(place.at("f")), text(place.at("moved"))),
            ("not seen".into(), "first f".into())
        );
        fs::write(place.at("f"), "mine").unwrap();
        // The file is removed: what is written makes a new one, and nothing goes into the old.
        let old = File::open(place.behind("g")).unwrap();
        fs::remove_file(place.behind("g")).unwrap();
        assert_eq!(errno(fs::write(place.at("g"), "mine")), Some(ESTALE), "known, and gone");
        assert_eq!(errno(File::open(place.at("g"))), Some(libc::ENOENT));
        fs::write(place.at("g"), "mine").unwrap();
        let mut held = [0; 7];
        old.read_exact_at(&mut held, 0).unwrap();
        assert_eq!(&held, b"first g");
        assert_eq!(text(place.behind("g")), "mine");
    });
}

// semantics: C1
#[test]
fn nothing_is_made_or_removed_in_a_directory_that_was_renamed() {
    Place::each(fill, |place| {
        place.know(&["d", "d/e", "d/e/f"]);
        text(place.behind("d/e/f"));
        text(place.behind("d/f"));
        fs::rename(place.behind("d"), place.behind("away")).unwrap();
        fs::create_dir(place.behind("d")).unwrap();
        fs::create_dir(place.behind("d/e")).unwrap();
        fs::write(place.behind("d/e/f"), "not seen").unwrap();
        // No time for the kernel to be told.
        fs::write(place.at("d/e/new"), "mine").unwrap();
        fs::create_dir(place.at("d/e/dir")).unwrap();
        assert!(fs::remove_file(place.at("d/e/f")).is_err());
        assert_eq!(text(place.behind("away/e/f")), "first d/e/f");
        assert_eq!(text(place.behind("d/e/f")), "not seen");
        assert!(!place.behind("away/e/new").exists() && !place.behind("away/e/dir").exists());
        assert_eq!(text(place.behind("d/e/new")), "mine");
        // Who stands in the directory goes on in it.
        let inside = File::open(place.at("away/e")).unwrap();
        fs::rename(place.behind("away"), place.behind("further")).unwrap();
        let by_descriptor = PathBuf::from(format!(
            "/proc/self/fd/{}/made",
            std::os::fd::AsRawFd::as_raw_fd(&inside)
        ));
        fs::write(by_descriptor, "by descriptor").unwrap();
        assert_eq!(text(place.at("further/e/made")), "by descriptor");
    });
}

// semantics: C1
#[test]
fn files_without_their_name_can_be_opened_again_by_descriptor() {
    Place::each(fill, |place| {
        let open = File::open(place.at("f")).unwrap();
        let again = PathBuf::from(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&open)));
        text(place.behind("f"));
        fs::remove_file(place.behind("f")).unwrap();
        assert_eq!(text(&again), "first f");
        place.sees("the removal", || !place.at("f").exists());
        assert_eq!(text(&again), "first f");
    });
}

// semantics: C2
#[test]
fn what_was_looked_at_is_remembered() {
    for mut tree in [Tree::new(fill), watching_directories(fill)] {
        let mount = tree.owner("a");
        let look = || {
            for name in ["f", "d/f", "d/e/f"] {
                fs::symlink_metadata(mount.join(name)).unwrap();
            }
        };
        look();
        look();
        tree.guard.settle_caches();
        look();
        let before = tree.guard.events().operations.get();
        for _ in 0..10 {
            look();
        }
        assert_eq!(tree.guard.events().operations.get(), before, "the kernel asks again");
    }
}

// semantics: C2
#[test]
fn what_cannot_be_watched_is_not_remembered() {
    let mut tree = watching_directories(|dir| {
        fill(dir);
        fs::hard_link(dir.join("f"), dir.join("d/link")).unwrap();
    });
    let mount = tree.owner("a");
    let look = |name: &str| fs::symlink_metadata(mount.join(name)).unwrap();
    for _ in 0..3 {
        look("f");
        look("d/link");
    }
    // By its other name, in a directory that nobody looks into.
    fs::create_dir(tree.backing.join("unseen")).unwrap();
    fs::hard_link(tree.backing.join("f"), tree.backing.join("unseen/f")).unwrap();
    tree.guard.settle_caches();
    look("f");
    fs::write(tree.backing.join("unseen/f"), "longer than it was").unwrap();
    assert_eq!((look("f").len(), look("d/link").len()), (18, 18));
    // An open file's content goes by its times.
    let mut open = File::open(mount.join("g")).unwrap();
    let mut part = [0; 5];
    std::io::Read::read_exact(&mut open, &mut part).unwrap();
    look("g");
    fs::write(tree.backing.join("g"), "other content").unwrap();
    let length = std::io::Read::read(&mut open, &mut part).unwrap();
    assert_eq!(&part[..length], b" cont");
}

// semantics: C1
#[test]
fn a_mapped_file_is_never_remembered() {
    Place::each(fill, |place| {
        text(place.at("f"));
        let script = "import mmap, os, sys
f = open(sys.argv[1], 'r+b'); before = os.stat(sys.argv[1])
m = mmap.mmap(f.fileno(), 7); m[0:1] = b'X'; m.flush()
after = os.stat(sys.argv[1])
sys.exit(after.st_mtime_ns <= before.st_mtime_ns)";
        let done = std::process::Command::new("python3")
            .arg("-c")
            .arg(script)
            .arg(place.at("f"))
            .status();
        assert!(done.unwrap().success(), "the time of change is remembered");
        assert_eq!(text(place.tree.backing.join("f")), "Xirst f");
    });
}

// semantics: C1
#[test]
fn changes_behind_the_mount_without_an_end() {
    let mut tree = Tree::new(fill);
    let mount = tree.owner("a");
    let seconds = std::env::var("UNCLOBBER_STORM_SECONDS").map_or(2, |text| text.parse().unwrap());
    let end = Instant::now() + Duration::from_secs(seconds);
    std::thread::scope(|scope| {
        for worker in 0..2 {
            let backing = &tree.backing;
            scope.spawn(move || {
                for round in 0_u64.. {
                    if Instant::now() > end {
                        break;
                    }
                    let (one, two) = (
                        backing.join(format!("s{worker}")),
                        backing.join("d").join(format!("s{worker}")),
                    );
                    drop(fs::write(&one, round.to_string()));
                    drop(fs::rename(&one, &two));
                    drop(fs::rename(backing.join("d"), backing.join("d2")));
                    drop(fs::create_dir(backing.join("d")));
                    drop(fs::remove_dir(backing.join("d")));
                    drop(fs::rename(backing.join("d2"), backing.join("d")));
                    drop(fs::remove_file(two));
                }
            });
            let mount = &mount;
            scope.spawn(move || {
                for round in 0_u64.. {
                    if Instant::now() > end {
                        break;
                    }
                    // Whatever the answers: every call ends.
                    for name in ["s0", "s1", "d/s0", "d/s1", "d/f", "d/e/f"] {
                        drop(fs::read(mount.join(name)));
                        drop(fs::metadata(mount.join(name)));
                    }
                    drop(fs::read_dir(mount.join("d")).map(|entries| entries.flatten().count()));
                    let own = mount.join(format!("d/own{worker}-{}", round % 7));
                    if let Ok(mut file) = File::create(&own) {
                        drop(file.write_all(b"own"));
                    }
                    drop(fs::remove_file(own));
                }
            });
        }
    });
    // What was created in the directory that is made and removed all the time may be lost with it, which is said (S5).
    let is_lost =
        |line: &String| line.contains("FS_IO_ERROR") && line.contains("the directory it was made in was removed");
    let refused: Vec<String> = tree.refusals().into_iter().filter(|line| !is_lost(line)).collect();
    assert_eq!(refused, Vec::<String>::new());
    tree.guard.settle_caches();
    let list = |dir: &Path| {
        let mut names: Vec<_> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.retain(|name| name != ".unclobber");
        names.sort();
        names
    };
    assert_eq!(list(&mount), list(&tree.backing));
    if tree.backing.join("d").exists() {
        assert_eq!(list(&mount.join("d")), list(&tree.backing.join("d")));
    }
}

/// The kernel remembers that a name is missing, too. Whoever makes it is noticed; who opens it to create it is sent back.
#[test]
fn a_name_that_was_missing_appears() {
    Place::each(
        |dir| fs::create_dir(dir.join("d")).unwrap(),
        |place| {
            for name in ["f", "d/f"] {
                let missing = || errno(fs::metadata(place.at(name))) == Some(2);
                assert!(missing() && missing());
                fs::write(place.behind(name), "theirs").unwrap();
                place.sees("a new file", || !missing());
                assert_eq!(text(place.at(name)), "theirs");
                fs::remove_file(place.behind(name)).unwrap();
                place.sees("a removal", missing);
            }
        },
    );
}

// semantics: S1
#[test]
fn a_creation_by_a_name_that_was_missing_finds_what_is_there() {
    Place::each(
        |_| {},
        |place| {
            for round in 0..20 {
                let name = |what| format!("{what}{round}");
                for what in ["kept", "own", "link"] {
                    assert_eq!(errno(fs::metadata(place.at(&name(what)))), Some(2));
                    fs::write(place.behind(&name(what)), "theirs").unwrap();
                }
                let opened = OpenOptions::new()
                    .append(true)
                    .create(true)
                    .open(place.at(&name("kept")));
                drop(opened.unwrap());
                assert_eq!(text(place.at(&name("kept"))), "theirs");
                let taken = OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .open(place.at(&name("own")));
                assert_eq!(errno(taken), Some(17));
                let taken = fs::hard_link(place.at(&name("kept")), place.at(&name("link")));
                assert_eq!(errno(taken), Some(17));
                assert!(fs::write(place.at(&name("own")), "blind").is_err(), "never seen");
                assert_eq!(text(place.behind(&name("own"))), "theirs");
            }
        },
    );
}
