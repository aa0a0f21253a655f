//! One short list of what the guard promises, on every filesystem that can be made here; full and read-only ones.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use nix::errno::Errno;

use crate::common::snapshot::kept;
use crate::common::tree::{say, tool_is_there};
use crate::common::wait::{PATIENCE, wait_until};
use crate::contained::{Place, Who, contained, errno, nothing, text};

/// Fills a fresh directory, mounts it for two owners, and goes through the list.
fn short_list(place: &Place, dir: &Path) {
    fill(dir);
    list(place, dir);
}

fn fill(dir: &Path) {
    let files = [("f", "one"), ("g", "gee"), ("h", "aitch"), ("r", "arr"), ("i", "eye")];
    for (name, content) in files {
        fs::write(dir.join(name), content).expect("a file of the backing tree");
    }
}

fn list(place: &Place, dir: &Path) {
    let a = place.mount(dir, "a", &["--owner", "A"]);
    let b = place.mount(dir, "b", &["--owner", "B"]);
    refused_read_retried(dir, &a, &b);
    created_and_removed(dir, &a, &b);
    lost_publication(dir, &a);
    let reused = a.join("i");
    assert_eq!(text(&reused), "eye");
    fs::remove_file(dir.join("i")).expect("an outsider's unlink");
    fs::write(dir.join("i"), "EYE").expect("an outsider's file, often of the same inode number");
    assert_eq!(errno(fs::write(&reused, "mine")), Errno::ESTALE);
    assert_eq!(text(dir.join("i")), "EYE");
    let hidden = fs::read_dir(&a).expect("a listing").flatten();
    let hidden: Vec<_> = hidden
        .filter(|entry| entry.file_name().to_string_lossy().starts_with('.'))
        .collect();
    assert!(hidden.is_empty(), "nothing of the guard is listed: {hidden:?}");
    place.umount(&a);
    place.umount(&b);
}

fn refused_read_retried(dir: &Path, a: &Path, b: &Path) {
    assert_eq!(errno(fs::write(a.join("f"), "blind")), Errno::EEXIST);
    assert_eq!(text(dir.join("f")), "one");
    assert_eq!(text(a.join("f")), "one");
    fs::write(a.join("f"), "two").expect("what was read may be replaced");
    assert_eq!((text(dir.join("f")), text(b.join("f"))), ("two".into(), "two".into()));
    fs::write(a.join("f"), "three").expect("what the owner wrote it has seen");
    assert_eq!(errno(fs::write(b.join("f"), "bee")), Errno::ESTALE);
    assert_eq!(text(b.join("f")), "three");
    fs::write(b.join("f"), "four").expect("after the step that was named");
    assert_eq!(text(dir.join("f")), "four");
}

fn created_and_removed(dir: &Path, a: &Path, b: &Path) {
    fs::write(a.join("new"), "new").expect("a new file");
    assert_eq!(text(dir.join("new")), "new");
    assert_eq!(errno(File::create_new(b.join("new"))), Errno::EEXIST);
    assert_eq!(errno(fs::write(b.join("new"), "no")), Errno::EEXIST);
    fs::write(a.join("t"), "tee").expect("a new file");
    assert_eq!(errno(fs::rename(a.join("t"), a.join("g"))), Errno::EEXIST);
    assert_eq!((text(dir.join("g")), text(dir.join("t"))), ("gee".into(), "tee".into()));
    assert_eq!(text(a.join("g")), "gee");
    fs::rename(a.join("t"), a.join("g")).expect("over what was read");
    assert_eq!((text(dir.join("g")), dir.join("t").exists()), ("tee".into(), false));
    fs::remove_file(a.join("h")).expect("an unseen file of the baseline");
    assert!(
        !dir.join("h").exists() && kept(dir, b"aitch"),
        "the removed file is kept"
    );
    fs::create_dir(a.join("d")).expect("a directory");
    fs::rename(a.join("g"), a.join("d/g")).expect("into a directory");
    fs::remove_file(a.join("d/g")).expect("its own file");
    fs::remove_dir(a.join("d")).expect("an empty directory");
}

fn lost_publication(dir: &Path, a: &Path) {
    let mut file = File::create(a.join("race")).expect("a staged file");
    let won = File::create_new(dir.join("race")).and_then(|mut winner| winner.write_all(b"winner"));
    let lost = file.write_all(b"loser").and_then(|()| file.sync_all());
    // Where the filesystem stages nothing, or a slow machine published before the outsider came, the outsider lost.
    if won.is_ok() {
        assert_eq!(errno(lost), Errno::EEXIST);
        // Where the kernel moves the data past the daemon, a write cannot fail, but what follows it does.
        let further = file.write_all(b"more").and_then(|()| file.sync_all());
        assert!(further.is_err(), "further writes fail");
        drop(file);
        assert_eq!(text(dir.join("race")), "winner");
        let bytes_are_kept = kept(dir, b"loser") || kept(dir, b"losermore");
        assert!(bytes_are_kept, "the loser's bytes are kept");
    } else {
        lost.expect("whoever won can write");
        assert_eq!(text(dir.join("race")), "loser");
    }
}

/// Makes a filesystem in a file and mounts it on the backing directory; says what is missing here.
pub(crate) fn on_image(place: &Place, kind: &str, megabytes: u64, maker: &[&str], options: &str) -> bool {
    if !tool_is_there(maker[0]) {
        say(&format!("SKIPPED {kind}: {} is not installed", maker[0]));
        return false;
    }
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let image = place.base().join("image");
    let made = File::create(&image).and_then(|file| file.set_len(megabytes << 20));
    made.expect("an image file");
    let done = Command::new(maker[0]).args(&maker[1..]).arg(&image).output();
    let done = done.expect("it starts");
    assert!(done.status.success(), "{maker:?}: {done:?}");
    let mounted = place.sh(&format!("mount -t {kind} -o loop{options} $B/image $W"));
    if mounted.code != 0 {
        // Only a kernel without the filesystem, or a machine without loop devices, may say no.
        let lacking = !known.lines().any(|line| line.trim() == kind) || !Path::new("/dev/loop-control").exists();
        assert!(lacking, "{kind}: {mounted:?}");
        say(&format!(
            "SKIPPED {kind}: this kernel cannot mount it: {}",
            mounted.err.trim()
        ));
        return false;
    }
    true
}

// semantics: A1 A2 A3 D1 D4 D5 D8 D15 E7 S5
#[test]
fn ext4() {
    contained("filesystems::ext4", Who::Root, nothing, |place| {
        if on_image(place, "ext4", 64, &["mkfs.ext4", "-q", "-F"], "") {
            short_list(place, &place.work());
        }
    });
}

#[test]
fn xfs() {
    contained("filesystems::xfs", Who::Root, nothing, |place| {
        if on_image(place, "xfs", 320, &["mkfs.xfs", "-q", "-f"], "") {
            short_list(place, &place.work());
        }
    });
}

#[test]
fn btrfs_with_a_subvolume() {
    contained("filesystems::btrfs_with_a_subvolume", Who::Root, nothing, |place| {
        if !on_image(place, "btrfs", 160, &["mkfs.btrfs", "-q", "-f"], "") {
            return;
        }
        place.sh_ok("btrfs subvolume create $W/sub && echo low > $W/sub/f && echo high > $W/up && echo rm > $W/sub/rm");
        let m = place.mount(&place.work(), "sub", &["--owner", "A"]);
        assert_eq!(errno(fs::write(m.join("sub/f"), "blind")), Errno::EEXIST);
        assert_eq!(text(m.join("sub/f")), "low\n");
        fs::write(m.join("sub/f"), "two").expect("after reading");
        fs::write(m.join("sub/new"), "new").expect("a new file of the subvolume");
        assert_eq!(errno(fs::rename(m.join("up"), m.join("sub/up"))), Errno::EXDEV);
        assert_eq!(errno(fs::hard_link(m.join("up"), m.join("sub/up"))), Errno::EXDEV);
        assert_eq!(
            (text(place.at("sub/f")), text(place.at("sub/new"))),
            ("two".into(), "new".into())
        );
        // A rename cannot cross the border to the attic: what cannot be kept is not removed unseen.
        assert_eq!(errno(fs::remove_file(m.join("sub/rm"))), Errno::EBUSY);
        assert_eq!(text(m.join("sub/rm")), "rm\n");
        fs::remove_file(m.join("sub/rm")).expect("after reading");
        place.umount(&m);
        fs::create_dir(place.at("list")).expect("a directory");
        short_list(place, &place.at("list"));
    });
}

#[test]
fn tmpfs_and_overlayfs() {
    contained("filesystems::tmpfs_and_overlayfs", Who::Root, nothing, |place| {
        place.sh_ok("mount -t tmpfs -o size=32m none $W && mkdir $W/list $W/lower $W/upper $W/wd $B/over && echo low > $W/lower/low");
        short_list(place, &place.at("list"));
        let over = place.base().join("over");
        let mounted = place.sh("mount -t overlay -o lowerdir=$W/lower,upperdir=$W/upper,workdir=$W/wd none $B/over");
        if mounted.code != 0 {
            say(&format!("SKIPPED overlayfs: {}", mounted.err.trim()));
            return;
        }
        short_list(place, &over);
        let m = place.mount(&over, "low", &["--owner", "L"]);
        assert_eq!(errno(fs::write(m.join("low"), "blind")), Errno::EEXIST);
        assert_eq!(text(m.join("low")), "low\n");
        fs::write(m.join("low"), "up").expect("after reading, through a copy up");
        assert_eq!(
            (text(over.join("low")), text(place.at("lower/low"))),
            ("up".into(), "low\n".into())
        );
        place.umount(&m);
    });
}

/// Where names that differ only in case are one name, nothing is guarded, and that is said.
fn one_name_in_any_case(place: &Place) {
    fs::write(place.at("f"), "one").expect("a file");
    assert_eq!(text(place.at("F")), "one");
    for (content, left) in [("f", vec!["f".to_owned()]), ("", Vec::new())] {
        if content.is_empty() {
            fs::remove_file(place.at("f")).expect("no name is left to look at");
        }
        for refused in [
            place.sh("$U run -w $W --owner A -- true"),
            place.sh("mkdir -p $B/mnt/case; $U mount $W $B/mnt/case"),
        ] {
            assert!(refused.code != 0, "{refused:?}");
            assert!(refused.err.contains("differ only in case are one name"), "{refused:?}");
        }
        let doctor = place.sh("$U doctor $W");
        assert!(
            doctor.code != 0 && doctor.out.contains("differ only in case"),
            "{doctor:?}"
        );
        let names: Vec<_> = fs::read_dir(place.work()).expect("a listing").flatten().collect();
        let names: Vec<_> = names
            .iter()
            .map(|name| name.file_name().into_string().expect("text"))
            .collect();
        assert_eq!(names, left, "nothing is left behind");
    }
}

#[test]
fn vfat() {
    contained("filesystems::vfat", Who::Root, nothing, |place| {
        if on_image(place, "vfat", 32, &["mkfs.vfat"], "") {
            one_name_in_any_case(place);
        }
    });
}

#[test]
fn exfat_by_a_helper() {
    contained("filesystems::exfat_by_a_helper", Who::Root, nothing, |place| {
        let made = place.sh(
            "truncate -s 32M $B/image && mkfs.exfat $B/image >&2 && loop=$(losetup -f --show $B/image) && \
             mount.exfat-fuse $loop $W >&2 && losetup -d $loop && stat -f -c %T $W",
        );
        if made.code != 0 || made.out.trim() != "fuseblk" {
            say(&format!(
                "SKIPPED exfat: it cannot be mounted here: {}",
                made.err.trim()
            ));
            return;
        }
        one_name_in_any_case(place);
        place.sh_ok("umount $W");
    });
}

/// Answers as a plain filesystem would: no unnamed files, hard links, exchange, extended attributes or file handles.
const PLAIN: &str = r"
import ctypes, os, struct, sys, platform
x86 = platform.machine() == 'x86_64'
calls = {'openat': 257, 'linkat': 265, 'renameat2': 316, 'handle': 303, 'by_handle': 304, 'fsetxattr': 190, 'setxattr': 188} if x86 else \
    {'openat': 56, 'linkat': 37, 'renameat2': 276, 'handle': 264, 'by_handle': 265, 'fsetxattr': 7, 'setxattr': 5}
def op(code, jt, jf, k): return struct.pack('HBBI', code, jt, jf, k)
def fail(errno): return op(6, 0, 0, 0x50000 | errno)
allow, load = op(6, 0, 0, 0x7fff0000), lambda at: op(0x20, 0, 0, at)
prog = load(0)
def whole(name, errno):
    return op(0x15, 0, 1, calls[name]) + fail(errno)
def flagged(name, arg, bit, errno):
    return op(0x15, 0, 4, calls[name]) + load(16 + 8 * arg) + op(0x45, 0, 1, bit) + fail(errno) + allow
prog += flagged('openat', 2, 0o20000000, 95) + flagged('renameat2', 4, 2, 22)
for name, errno in (('linkat', 1), ('handle', 95), ('by_handle', 95), ('fsetxattr', 95), ('setxattr', 95)):
    prog += whole(name, errno)
prog += allow
buffer = ctypes.create_string_buffer(prog, len(prog))
class Fprog(ctypes.Structure): _fields_ = [('len', ctypes.c_ushort), ('filter', ctypes.c_void_p)]
fprog = Fprog(len(prog) // 8, ctypes.addressof(buffer))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0, ctypes.get_errno()
assert libc.prctl(22, 2, ctypes.byref(fprog), 0, 0) == 0, ctypes.get_errno()
os.execv(sys.argv[1], sys.argv[1:])
";

#[test]
fn a_filesystem_without_links_unnamed_files_or_handles() {
    let name = "filesystems::a_filesystem_without_links_unnamed_files_or_handles";
    contained(name, Who::Root, nothing, |place| {
        fs::write(place.base().join("plain.py"), PLAIN).expect("the filter");
        let doctor = place.sh("python3 $B/plain.py $U doctor $W");
        if doctor.err.contains("AssertionError") {
            say(&format!("SKIPPED {name}: system calls cannot be filtered here"));
            return;
        }
        for (what, cure) in [
            ("hard links", "--create direct"),
            ("O_TMPFILE", "appear at once"),
            ("file handles", "opened by name"),
            ("exchange of names", "reported"),
        ] {
            assert!(
                doctor
                    .out
                    .lines()
                    .any(|line| line.starts_with("warn") && line.contains(what)),
                "{doctor:?}"
            );
            assert!(doctor.out.contains(cure), "{doctor:?}");
        }
        fill(&place.work());
        // The first mount starts the guard, under the filter; the others find it.
        place.sh_ok("mkdir $B/mnt/first && python3 $B/plain.py $U mount $W $B/mnt/first --linger 60");
        list(place, &place.work());
    });
}

// semantics: V8
#[test]
fn a_filesystem_that_dates_by_the_second_and_has_no_unnamed_files() {
    let name = "filesystems::a_filesystem_that_dates_by_the_second_and_has_no_unnamed_files";
    contained(name, Who::Root, nothing, |place| {
        if !on_image(place, "ext4", 64, &["mkfs.ext4", "-q", "-F", "-I", "128"], "") {
            return;
        }
        fs::write(place.base().join("plain.py"), PLAIN).expect("the filter");
        let first = "rm -rf $W/lost+found; mkdir $B/mnt/first && python3 $B/plain.py $U mount $W $B/mnt/first --owner A --linger 60";
        let mounted = place.sh(first);
        if mounted.err.contains("AssertionError") {
            say(&format!("SKIPPED {name}: system calls cannot be filtered here"));
            return;
        }
        assert_eq!(mounted.code, 0, "{mounted:?}");
        let listed = fs::read_dir(place.work()).expect("a listing").count();
        assert_eq!(listed, 0, "what it was found out by is gone");
        let a = place.base().join("mnt/first");
        for round in 0..20 {
            fs::write(place.at("f"), "one").expect("an outsider's change");
            assert_eq!(text(a.join("f")), "one");
            fs::write(place.at("f"), "two").expect("an outsider's change, mostly of the same second");
            assert!(fs::write(a.join("f"), "mine").is_err(), "round {round}");
            assert_eq!(text(place.at("f")), "two");
        }
        place.umount(&a);
    });
}

// semantics: E5 S8
#[test]
fn a_full_disk_takes_nothing_and_says_so() {
    contained(
        "filesystems::a_full_disk_takes_nothing_and_says_so",
        Who::Root,
        nothing,
        |place| {
            if !on_image(
                place,
                "ext4",
                8,
                &["mkfs.ext4", "-q", "-F", "-b", "1024", "-m", "0", "-O", "^inline_data"],
                "",
            ) {
                return;
            }
            fs::write(place.at("old"), "old").expect("a file");
            fs::create_dir(place.at("d")).expect("a directory");
            let name = |letter: &str| letter.repeat(250);
            // Three such names fill the directory's only block.
            for letter in ["a", "b", "c"] {
                fs::write(place.at("d").join(name(letter)), "").expect("a long name");
            }
            let m = place.mount(&place.work(), "full", &["--owner", "A"]);
            staged_write_without_space(place, &m);
            let new = m.join("d").join(name("n"));
            let mut file = File::create(&new).expect("a staged file");
            file.write_all(b"small").expect("there is space");
            place.sh("dd if=/dev/zero of=$W/filler bs=64k 2>/dev/null; dd if=/dev/zero of=$W/filler2 bs=1k 2>/dev/null; sync -f $W");
            let published = file.sync_all();
            drop(file);
            if let Err(error) = published {
                assert_eq!(error.raw_os_error(), Some(Errno::ENOSPC as i32));
                assert!(!place.at("d").join(name("n")).exists(), "nothing half");
            } else {
                assert_eq!(text(place.at("d").join(name("n"))), "small");
            }
            assert_eq!(
                (text(place.at("old")), text(m.join("old"))),
                ("old".into(), "old".into())
            );
            place.sh_ok("rm $W/filler $W/filler2");
            if !new.exists() {
                fs::write(&new, "again").expect("there is space again");
                assert_eq!(text(place.at("d").join(name("n"))), "again");
            }
            place.umount(&m);
        },
    );
}

fn staged_write_without_space(place: &Place, m: &Path) {
    let mut file = File::create(m.join("big")).expect("a staged file");
    let block = vec![7; 1 << 20];
    let failed = (0..64).find_map(|_| file.write_all(&block).and_then(|()| file.sync_data()).err());
    assert_eq!(failed.expect("64 MiB on 8").raw_os_error(), Some(Errno::ENOSPC as i32));
    drop(file);
    fs::remove_file(m.join("big")).expect("the owner's own file");
    assert_eq!(text(m.join("old")), "old");
    fs::write(m.join("old"), "old").expect("there is space");
    assert_eq!(text(place.at("old")), "old");
}

// semantics: E5
#[test]
fn a_read_only_backing_filesystem() {
    contained(
        "filesystems::a_read_only_backing_filesystem",
        Who::Root,
        nothing,
        |place| {
            place.sh_ok("mount -t tmpfs none $W && echo one > $W/f && mkdir $W/d && mount -o remount,ro $W");
            let done = place.run(
                "A",
                "cat f; echo x > f; echo $?; echo x > new; echo $?; rm f; echo $?; mv f d; echo $?; mkdir e; echo $?",
            );
            assert_eq!(done.code, 0, "{done:?}");
            let codes: Vec<&str> = done.out.lines().collect();
            assert!(
                codes[0] == "one" && codes[1..].iter().all(|code| *code != "0"),
                "{done:?}"
            );
            assert!(done.err.matches("Read-only file system").count() >= 5, "{done:?}");
            assert!(!done.err.contains("FS_"), "{done:?}");
        },
    );
}

// semantics: A1 E1 E5
#[test]
fn no_inode_is_left() {
    contained("filesystems::no_inode_is_left", Who::Root, nothing, |place| {
        place.sh_ok("mount -t tmpfs -o nr_inodes=12 none $W; cd $W; for i in a b c d; do echo $i > $i; done");
        let m = place.mount(&place.work(), "m", &["--owner", "A"]);
        place.sh("cd $W; i=0; while echo x > fill$i; do i=$((i + 1)); done");
        assert_eq!(errno(fs::write(m.join("new"), "new")), Errno::ENOSPC);
        // What cannot be kept is not removed unseen; what was seen is, as ever.
        assert_eq!(errno(fs::remove_file(m.join("a"))), Errno::EBUSY);
        assert_eq!(text(m.join("a")), "a\n");
        fs::remove_file(m.join("a")).expect("after reading");
        assert_eq!(text(m.join("c")), "c\n");
        assert_eq!(text(m.join("d")), "d\n");
        fs::rename(m.join("c"), m.join("d")).expect("over what was read");
        assert_eq!((text(place.at("d")), place.at("c").exists()), ("c\n".into(), false));
        place.umount(&m);
    });
}

// semantics: A1 A9
#[test]
fn what_could_not_be_kept_once_can_be_when_there_is_room_again() {
    let name = "filesystems::what_could_not_be_kept_once_can_be_when_there_is_room_again";
    contained(name, Who::Root, nothing, |place| {
        // For the directory itself, and for no part of it but the first.
        for parts in ["", "x", "x x"] {
            place.sh_ok("mount -t tmpfs -o nr_inodes=20 none $W; cd $W; echo a > a; echo b > b");
            let m = place.mount(&place.work(), "m", &["--owner", "A"]);
            let fill = "cd $W; i=0; while echo x 2>/dev/null > fill$i; do i=$((i + 1)); done; rm fill0; \
                        j=1; for part in PARTS; do rm fill$j; j=$((j + 1)); done";
            place.sh_ok(&fill.replace("PARTS", parts));
            assert_eq!(errno(fs::remove_file(m.join("a"))), Errno::EBUSY, "{parts:?}");
            assert!(!place.at(".unclobber").exists(), "nothing half-made stays: {parts:?}");
            place.sh_ok("rm $W/fill*");
            fs::remove_file(m.join("b")).expect("an unseen file of the baseline");
            assert!(kept(&place.work(), b"b\n"), "{parts:?}");
            place.umount(&m);
            place.sh_ok("kill $(cat $XDG_RUNTIME_DIR/unclobber/*.pid); umount -l $W");
        }
    });
}

// semantics: A4 A7
#[test]
fn a_journal_for_which_there_is_no_room_loses_no_note() {
    let name = "filesystems::a_journal_for_which_there_is_no_room_loses_no_note";
    contained(name, Who::Root, nothing, |place| {
        place.sh_ok("mount -t tmpfs -o size=4m,nr_inodes=4k none $W; cd $W; for i in $(seq 600); do echo $i > file-of-a-long-name-$i; done");
        let run = |script: &str| {
            let work = place.work().display().to_string();
            let words = ["--owner", "A", "--linger", "0s", "--attic-age", "1h"];
            let done = place.unclobber(&[&["run", "-w", &work], &words[..], &["--", "sh", "-c", script]].concat());
            assert_eq!(done.code, 0, "{done:?}");
        };
        run("rm file-of-a-long-name-*");
        assert!(wait_until(PATIENCE, || place.guards().is_empty()));
        // The oldest is past its bound, and there is room for a part of a new journal only.
        place.sh_ok(
            "cd $W/.unclobber; id=$(ls attic | head -n 1); mv attic/$id attic/0000000001${id#??????????}; \
             sed -i s/$id/0000000001${id#??????????}/ kept.jsonl; \
             cd ..; dd if=/dev/zero of=fill bs=4k 2>/dev/null; truncate -s -24K fill",
        );
        let id = "0000000001*";
        run(&format!(
            "i=0; while [ $i -lt 600 ]; do sleep 0.1; [ -e {}/.unclobber/attic/{id} ] || break; done",
            "$W"
        ));
        let list = place
            .unclobber(&["attic", "list", &place.work().display().to_string()])
            .out;
        assert_eq!(list.matches("removed by A").count(), 600, "{list}");
        assert!(!list.contains("nothing was noted"), "{list}");
    });
}

/// A filesystem that dates changes by the kernel's coarse clock: two within one tick get the same times.
// semantics: V8
#[test]
fn a_filesystem_with_coarse_times() {
    contained(
        "filesystems::a_filesystem_with_coarse_times",
        Who::Root,
        nothing,
        |place| {
            place.sh_ok("mount -t ramfs none $W && mkdir $W/race $W/list");
            short_list(place, &place.at("list"));
            let dir = place.at("race");
            let coarse = (0..100).any(|_| {
                let mut dates = [0, 1].map(|_| {
                    fs::write(dir.join("f"), "0").expect("a change");
                    fs::metadata(dir.join("f")).expect("its times").modified().ok()
                });
                dates.sort();
                dates[0] == dates[1]
            });
            assert!(
                coarse,
                "ramfs dates finely here: another filesystem must be found for this test"
            );
            let a = place.mount(&dir, "a", &["--owner", "A"]);
            let behind = |content: &str| fs::write(dir.join("f"), content).expect("an outsider's change");
            for round in 0..50 {
                // What is read within the tick of a change may be changed again, and look the same.
                behind("one");
                assert_eq!(text(a.join("f")), "one");
                behind("two");
                assert_eq!(
                    errno(fs::write(a.join("f"), "mine")),
                    Errno::ESTALE,
                    "read, round {round}"
                );
                assert_eq!(text(dir.join("f")), "two");
                // So may what the owner has just written itself.
                assert_eq!(text(a.join("f")), "two");
                fs::write(a.join("f"), "own").expect("what was read may be replaced");
                behind("two");
                assert_eq!(
                    errno(fs::write(a.join("f"), "mine")),
                    Errno::ESTALE,
                    "written, round {round}"
                );
                assert_eq!(text(dir.join("f")), "two");
            }
            place.umount(&a);
        },
    );
}
