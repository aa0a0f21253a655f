//! What outlives the mount: what a program was told is on disk is there after a power cut, as natively: the device is copied at the moment the
//! syncing call has returned, and the copy is mounted, its journal replayed, and looked at.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, symlink};
use std::path::Path;

use crate::common::tree::{say, tool_is_there};
use crate::common::wait::{PATIENCE, wait_until};
use crate::contained::{Place, Who, contained, nothing};
use crate::filesystems::on_image;

/// What is done, ending with the call that is waited for; and what must be left, as `state` puts it.
struct Point {
    what: &'static str,
    step: fn(&Path),
    left: &'static str,
}

fn put(path: &Path, text: &str) -> File {
    let mut file = File::create(path).expect("a new file");
    file.write_all(text.as_bytes()).expect("a write");
    file
}

fn sync(path: &Path) {
    File::open(path).and_then(|file| file.sync_all()).expect("fsync");
}

fn sync_written(file: &File) {
    file.sync_all().expect("fsync");
}

const POINTS: &[Point] = &[
    // The method sees what is not synced: nothing of this is on disk.
    Point {
        what: "a file that nobody has synced",
        step: |d| drop(put(&d.join("f"), "data")),
        left: "",
    },
    Point {
        what: "a new file, synced",
        step: |d| sync_written(&put(&d.join("f"), "data")),
        left: "f=data",
    },
    Point {
        what: "a new file, its data synced",
        step: |d| put(&d.join("f"), "data").sync_data().expect("fdatasync"),
        left: "f=data",
    },
    Point {
        what: "a new file by another handle",
        step: |d| {
            drop(put(&d.join("f"), "data"));
            sync(&d.join("f"));
        },
        left: "f=data",
    },
    Point {
        what: "a new exclusive file",
        step: |d| {
            let mut file = File::create_new(d.join("f")).expect("a new file");
            file.write_all(b"data").expect("a write");
            sync_written(&file);
        },
        left: "f=data",
    },
    Point {
        what: "an append",
        step: |d| {
            sync_written(&put(&d.join("f"), "one"));
            let mut file = OpenOptions::new().append(true).open(d.join("f")).expect("the file");
            file.write_all(b"two").expect("an append");
            sync_written(&file);
        },
        left: "f=onetwo",
    },
    Point {
        what: "O_SYNC",
        step: |d| {
            sync_written(&put(&d.join("f"), "one"));
            let mut file = OpenOptions::new()
                .write(true)
                .custom_flags(nix::fcntl::OFlag::O_SYNC.bits())
                .open(d.join("f"))
                .expect("the file");
            file.write_all(b"TWO").expect("a synchronous write");
        },
        left: "f=TWO",
    },
    Point {
        what: "the directory of a new name",
        step: |d| {
            let file = File::create_new(d.join("f")).expect("a new file");
            sync(d);
            drop(file);
        },
        left: "f=",
    },
    Point {
        what: "the directory of a name that is staged",
        step: |d| {
            let file = File::create(d.join("f")).expect("a new file");
            sync(d);
            drop(file);
        },
        left: "f=",
    },
    Point {
        what: "a new directory",
        step: |d| {
            fs::create_dir(d.join("e")).expect("a directory");
            sync(d);
        },
        left: "e/",
    },
    Point {
        what: "an unlink",
        step: |d| {
            sync_written(&put(&d.join("f"), "data"));
            fs::remove_file(d.join("f")).expect("an unlink");
            sync(d);
        },
        left: "",
    },
    Point {
        what: "a removed directory",
        step: |d| {
            fs::create_dir(d.join("e")).expect("a directory");
            sync(d);
            fs::remove_dir(d.join("e")).expect("its removal");
            sync(d);
        },
        left: "",
    },
    Point {
        what: "a rename",
        step: |d| {
            sync_written(&put(&d.join("f"), "data"));
            fs::rename(d.join("f"), d.join("g")).expect("a rename");
            sync(d);
        },
        left: "g=data",
    },
    Point {
        what: "a rename over, as editors save",
        step: |d| {
            sync_written(&put(&d.join("f"), "old"));
            sync_written(&put(&d.join("t"), "new"));
            fs::rename(d.join("t"), d.join("f")).expect("a rename over");
            sync(d);
        },
        left: "f=new",
    },
    Point {
        what: "a rename over a file that is not its maker's any more",
        step: |d| {
            sync_written(&put(&d.join("f"), "old"));
            let held = File::open(d.join("f")).expect("a reader");
            sync_written(&put(&d.join("t"), "new"));
            fs::rename(d.join("t"), d.join("f")).expect("a rename over");
            sync(d);
            drop(held);
        },
        left: "f=new",
    },
    Point {
        what: "a rename into another directory",
        step: |d| {
            fs::create_dir(d.join("e")).expect("a directory");
            sync_written(&put(&d.join("f"), "data"));
            fs::rename(d.join("f"), d.join("e/f")).expect("a rename");
            sync(&d.join("e"));
            sync(d);
        },
        left: "e/ e/f=data",
    },
    Point {
        what: "a renamed directory",
        step: |d| {
            fs::create_dir(d.join("e")).expect("a directory");
            sync_written(&put(&d.join("e/f"), "data"));
            fs::rename(d.join("e"), d.join("g")).expect("a rename");
            sync(d);
        },
        left: "g/ g/f=data",
    },
    Point {
        what: "links",
        step: |d| {
            sync_written(&put(&d.join("f"), "data"));
            fs::hard_link(d.join("f"), d.join("g")).expect("a link");
            symlink("f", d.join("l")).expect("a symbolic link");
            sync(d);
        },
        left: "f=data g=data l->f",
    },
    Point {
        what: "a truncation",
        step: |d| {
            let file = put(&d.join("f"), "longer");
            sync_written(&file);
            file.set_len(3).expect("a truncation");
            sync_written(&file);
        },
        left: "f=lon",
    },
    Point {
        what: "a truncating replacement",
        step: |d| {
            sync_written(&put(&d.join("f"), "old and longer"));
            sync_written(&put(&d.join("f"), "new"));
        },
        left: "f=new",
    },
];

/// `syncfs` is no request that the kernel passes on: natively it is as good as a sync of every file.
fn sync_filesystem(d: &Path) {
    drop(put(&d.join("f"), "data"));
    nix::unistd::syncfs(File::open(d).expect("the directory")).expect("syncfs");
}

/// The names in a directory, sorted, with what is in them.
fn state(dir: &Path) -> String {
    fn below(dir: &Path, prefix: &str, all: &mut Vec<String>) {
        for entry in fs::read_dir(dir).expect("the directory of the point").flatten() {
            let (path, name) = (entry.path(), format!("{prefix}{}", entry.file_name().to_string_lossy()));
            if let Ok(target) = fs::read_link(&path) {
                all.push(format!("{name}->{}", target.display()));
            } else if path.is_dir() {
                all.push(format!("{name}/"));
                below(&path, &format!("{name}/"), all);
            } else {
                all.push(format!("{name}={}", fs::read_to_string(&path).unwrap_or_default()));
            }
        }
    }
    let mut all = Vec::new();
    below(dir, "", &mut all);
    all.sort();
    all.join(" ")
}

/// What is left of `dir`, a path below the filesystem's root, if the power fails now.
fn after_a_cut(place: &Place, dir: &str) -> String {
    place.sh_ok("cp --sparse=always $B/image $B/cut && mkdir -p $B/after && mount -t ext4 -o loop $B/cut $B/after");
    let left = state(&place.base().join("after").join(dir));
    place.sh_ok("umount $B/after && rm $B/cut");
    left
}

// semantics: S7
// posix: Y3
#[test]
fn what_is_synced_is_there_after_a_power_cut() {
    contained(
        "powercut::what_is_synced_is_there_after_a_power_cut",
        Who::Root,
        nothing,
        |place| {
            // The filesystem by itself writes nothing for minutes.
            if !on_image(place, "ext4", 32, &["mkfs.ext4", "-q", "-F"], ",commit=600") {
                return;
            }
            place.sh_ok("mkdir $W/native $W/guarded");
            let m = place.mount(&place.at("guarded"), "m", &["--owner", "A"]);
            let mut wrong = Vec::new();
            for (index, point) in POINTS.iter().enumerate() {
                for (root, kind) in [(place.at("native"), "native"), (m.clone(), "guarded")] {
                    let name = format!("{index}");
                    let dir = root.join(&name);
                    fs::create_dir(&dir).expect("the point's directory");
                    place.sh_ok("sync");
                    (point.step)(&dir);
                    let left = after_a_cut(place, &format!("{kind}/{name}"));
                    if left != point.left {
                        wrong.push(format!("{kind}: {}: {left:?}, not {:?}", point.what, point.left));
                    }
                }
            }
            assert!(wrong.is_empty(), "{}", wrong.join("\n"));
            for (root, kind, left) in [(place.at("native"), "native", "f=data"), (m.clone(), "guarded", "")] {
                fs::create_dir(root.join("syncfs")).expect("its directory");
                place.sh_ok("sync");
                sync_filesystem(&root.join("syncfs"));
                assert_eq!(after_a_cut(place, &format!("{kind}/syncfs")), left, "{kind}: syncfs");
            }
            place.sh_ok("sync");
            assert_eq!(
                after_a_cut(place, "guarded/syncfs"),
                "f=data",
                "sync reaches everything"
            );
            place.umount(&m);
        },
    );
}

/// What git remembers of files (inode, times, owner, size) stays true when the kernel forgets, and when the guard and its
/// mount are new: nothing has to be read again.
#[test]
fn inode_numbers_and_times_outlive_caches_mounts_and_guards() {
    let name = "powercut::inode_numbers_and_times_outlive_caches_mounts_and_guards";
    contained(name, Who::Root, nothing, |place| {
        if !tool_is_there("git") {
            return;
        }
        let m = place.point("m");
        place.sh_ok(&format!("$U mount $W {} --owner A --linger 0", m.display()));
        let make = "git init -q . && git config user.email a@b && git config user.name a && mkdir -p d/e && \
                    for i in $(seq 300); do echo $i > f$i; echo $i > d/e/f$i; done; ln f1 linked; mv f2 d/moved; \
                    sleep 1.1; git add . && git commit -qm one && git switch -qc other && echo x > f3 && git commit -qam two && \
                    git switch -q - && git update-index --refresh";
        let mounted = m.display().to_string();
        place.sh_ok(&format!("cd {mounted} && {make}"));
        // What differs in anything git remembers is listed here, whatever its content.
        let differing = |dir: &str| place.sh_ok(&format!("cd {dir} && git diff-files && echo looked"));
        let forget = "sync; for i in 1 2 3; do echo 2 > /proc/sys/vm/drop_caches || exit 1; done";
        assert_eq!(differing(&mounted), "looked\n", "at once");
        if place.sh(forget).code == 0 {
            assert_eq!(differing(&mounted), "looked\n", "forgotten by the kernel");
        } else {
            say("SKIPPED: caches cannot be dropped here");
        }
        place.umount(&m);
        assert!(wait_until(PATIENCE, || place.guards().is_empty()), "the guard ends");
        assert_eq!(
            differing(&place.work().display().to_string()),
            "looked\n",
            "behind the mount"
        );
        let again = place.mount(&place.work(), "n", &["--owner", "B"]);
        assert_eq!(differing(&again.display().to_string()), "looked\n", "another guard");
        place.umount(&again);
    });
}
