//! An ordinary user: in a user namespace (`run`) and through `fusermount3` (`mount`); and who is which owner.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::time::{Duration, Instant};

use nix::errno::Errno;

use crate::common::tree::{say, tool_is_there};
use crate::common::wait::{PATIENCE, wait_until};
use crate::contained::{Place, USER, Who, contained, errno, nothing, text};

/// Files of others, as root leaves them.
fn files_of_others(place: &Place) {
    let files = [
        ("readable", 0, 0o644),
        ("closed", 0, 0o600),
        ("of_group", USER, 0o664),
        ("group_reads", USER, 0o640),
    ];
    for (name, group, mode) in files {
        let path = place.at(name);
        fs::write(&path, "theirs\n").expect("a file");
        chown(&path, Some(0), Some(group)).expect("chown");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("chmod");
    }
}

/// Whether this user can mount by the helper; said where not.
fn helper_works(place: &Place, name: &str) -> bool {
    let said = place.unclobber(&["doctor"]).out;
    let works = said
        .lines()
        .any(|line| line.starts_with("ok") && line.contains("fusermount3"));
    assert!(works || !tool_is_there("fusermount3"), "{said}");
    if !works {
        say(&format!("SKIPPED {name}: fusermount3 is not installed"));
    }
    works
}

// semantics: E1 E2 E7 G3 G5 O3
#[test]
fn run_refuses_reads_and_retries_between_two_owners() {
    let name = "user::run_refuses_reads_and_retries_between_two_owners";
    contained(name, Who::User, nothing, |place| {
        fs::write(place.at("f"), "one\n").expect("a file");
        let blind = place.run("A", "echo two > f");
        assert!(blind.code != 0 && blind.err.contains("FS_NOT_OBSERVED"), "{blind:?}");
        assert_eq!(text(place.at("f")), "one\n");
        let retried = place.run("A", "cat f; echo two > f; echo x > new; id -u");
        assert_eq!((retried.code, retried.out.as_str()), (0, "one\n65534\n"), "{retried:?}");
        assert_eq!(
            (text(place.at("f")), text(place.at("new"))),
            ("two\n".into(), "x\n".into())
        );
        let other = place.run("B", "echo bee > f || { cat f; echo bee > f; }");
        assert_eq!((other.code, other.out.as_str()), (0, "two\n"), "{other:?}");
        assert!(other.err.contains("changed by owner \"A\""), "{other:?}");
        let stale = place.run("A", "echo three > f");
        assert!(stale.code != 0 && stale.err.contains("FS_STALE_VERSION"), "{stale:?}");
        assert_eq!(text(place.at("f")), "bee\n");
        assert_eq!(place.guards().len(), 1);
        // The mount cannot be taken away from under the command, nor another made in its place.
        let away = place.run("A", "umount -l . 2>&1; unshare -m true 2>&1; cat f; echo three > g");
        assert!(away.out.ends_with("bee\n"), "{away:?}");
    });
}

// semantics: C1 C2
#[test]
fn what_the_kernel_remembers_is_taken_back_when_outsiders_change_it() {
    let name = "user::what_the_kernel_remembers_is_taken_back_when_outsiders_change_it";
    contained(name, Who::User, nothing, |place| {
        place.sh_ok("mkdir $W/d && echo one > $W/d/f && echo one > $W/d/g");
        let outsider = {
            let (looked, f, g) = (place.at("d/looked"), place.at("d/f"), place.at("d/g"));
            std::thread::spawn(move || {
                let begin = Instant::now();
                while !looked.exists() {
                    assert!(begin.elapsed() < Duration::from_secs(30), "nobody has looked");
                    std::thread::yield_now();
                }
                fs::write(f, "longer than it was\n").expect("an outsider's write");
                fs::remove_file(g).expect("an outsider's removal");
            })
        };
        // All of one shell: what it looks at again it may take from what the kernel remembers.
        let look = "ls -l d d >/dev/null; ls -l d >/dev/null; test -e d/missing; : > d/looked; n=0
            until [ -s d/f ] && [ $(stat -c %s d/f) -gt 4 ] && ! [ -e d/g ]; do
                n=$((n+1)); [ $n -lt 3000 ] || { echo never; exit 1; }
            done; cat d/f";
        let seen = place.run("A", look);
        outsider.join().expect("the outsider");
        assert_eq!((seen.code, seen.out.as_str()), (0, "longer than it was\n"), "{seen:?}");
    });
}

// semantics: D12
#[test]
fn what_may_be_written_and_neither_read_nor_kept_is_refused() {
    let name = "user::what_may_be_written_and_neither_read_nor_kept_is_refused";
    contained(name, Who::User, nothing, |place| {
        fs::write(place.at("f"), "one\n").expect("a file");
        fs::write(place.at("g"), "one\n").expect("a file");
        place.sh_ok("chmod 0200 $W/f $W/g");
        let changes = ["echo two > f", "dd if=/dev/zero of=f bs=1 count=1 conv=notrunc"];
        for (owner, change) in ["A", "B"].into_iter().zip(changes) {
            let refused = place.run(owner, change);
            assert!(refused.code != 0, "{change}: {refused:?}");
            assert!(refused.err.contains("FS_NOT_OBSERVED"), "{change}: {refused:?}");
            assert!(refused.err.contains("make the file readable"), "{change}: {refused:?}");
            let done = place.run(owner, &format!("chmod u+r f && cat f && {change} && chmod 0200 f"));
            assert!(done.code == 0, "{change}: {done:?}");
        }
        // Its content goes along when it is removed.
        let removed = place.run("A", "rm -f g");
        assert!(removed.code == 0, "{removed:?}");
    });
}

/// A directory of root's in which this user may write, with files of root's.
fn tree_of_another(place: &Place, mode: u32) {
    for name in ["gone", "replaced", "over"] {
        fs::write(place.at(name), name).expect("a file");
        fs::set_permissions(place.at(name), fs::Permissions::from_mode(0o666)).expect("chmod");
    }
    chown(place.work(), Some(0), Some(0)).expect("chown");
    fs::set_permissions(place.work(), fs::Permissions::from_mode(mode)).expect("chmod");
}

fn kept_paths(place: &Place) -> Vec<String> {
    let work = place.work().display().to_string();
    let list = place.unclobber(&["attic", "list", "--json", &work]);
    assert_eq!(list.code, 0, "{list:?}");
    let all: serde_json::Value = serde_json::from_str(&list.out).expect("JSON");
    let kept = all["kept"].as_array().expect("a list");
    kept.iter()
        .map(|kept| kept["path"].as_str().unwrap_or("not noted").to_owned())
        .collect()
}

// semantics: A1 A2 A8
#[test]
fn in_a_directory_of_somebody_else_is_kept_what_is_displaced() {
    let name = "user::in_a_directory_of_somebody_else_is_kept_what_is_displaced";
    contained(
        name,
        Who::User,
        |place| tree_of_another(place, 0o777),
        |place| {
            let done = place.run(
                "A",
                "rm gone && cat replaced over && echo new > replaced && echo new > t && mv t over && ls -A",
            );
            assert_eq!(done.code, 0, "{done:?}");
            assert_eq!(done.out, "replacedoverover\nreplaced\n", "{done:?}");
            assert_eq!(kept_paths(place), ["gone", "replaced", "over"]);
            for _ in 0..3 {
                place.sh_ok("$U undo $W");
            }
            for name in ["gone", "replaced", "over"] {
                assert_eq!(text(place.at(name)), name);
            }
            place.sh_ok("$U attic prune --all -w $W; kill $(cat $XDG_RUNTIME_DIR/unclobber/*.pid)");
            let left = || fs::read_dir(place.work()).expect("the tree").count();
            assert!(
                wait_until(PATIENCE, || left() == 3),
                "no litter: {}",
                place.sh_ok("ls -lA $W")
            );
        },
    );
}

// semantics: A1 A2 A8 D6
#[test]
fn in_a_sticky_directory_of_somebody_else_is_kept_what_may_be_displaced() {
    let name = "user::in_a_sticky_directory_of_somebody_else_is_kept_what_may_be_displaced";
    contained(
        name,
        Who::User,
        |place| tree_of_another(place, 0o1777),
        |place| {
            // `protected_regular` may keep even root's own shell from opening them with O_CREAT.
            let change = "cat replaced && python3 -c \"import os; os.truncate('replaced', 0)\" && echo mine > t && cat t > u && mv t u";
            let done = place.run("A", &format!("! rm -f gone && {change}"));
            assert_eq!(done.code, 0, "{done:?}");
            assert!(!done.err.contains("FS_"), "the directory's own answer: {done:?}");
            assert_eq!(text(place.at("gone")), "gone");
            assert_eq!(kept_paths(place)[0], "replaced");
            place.sh_ok("$U attic prune --all -w $W; kill $(cat $XDG_RUNTIME_DIR/unclobber/*.pid)");
            let left = || fs::read_dir(place.work()).expect("the tree").count();
            assert!(
                wait_until(PATIENCE, || left() == 4),
                "no litter: {}",
                place.sh_ok("ls -lA $W")
            );
        },
    );
}

// semantics: S3
#[test]
fn mount_by_the_helper_and_staged_creation() {
    let name = "user::mount_by_the_helper_and_staged_creation";
    contained(name, Who::User, nothing, |place| {
        if !helper_works(place, name) {
            return;
        }
        fs::write(place.at("f"), "one").expect("a file");
        let m = place.mount(&place.work(), "m", &["--owner", "A"]);
        assert_eq!(errno(fs::write(m.join("f"), "blind")), Errno::EEXIST);
        assert_eq!(text(m.join("f")), "one");
        fs::write(m.join("f"), "two").expect("after reading");
        let began = Instant::now();
        let mut file = File::create(m.join("staged")).expect("a new file");
        let (inside, outside) = (m.join("staged").exists(), place.at("staged").exists());
        // After a second it is published anyway.
        assert!(inside && (!outside || began.elapsed() > Duration::from_millis(900)));
        file.write_all(b"whole")
            .and_then(|()| file.sync_all())
            .expect("published");
        drop(file);
        assert_eq!(text(place.at("staged")), "whole");
        let status = place.unclobber(&["status", "--verbose"]).out;
        assert!(status.contains("data by daemon"), "{status}");
        place.umount(&m);
        // Over the directory itself.
        let work = place.work().display().to_string();
        assert_eq!(
            place
                .unclobber(&["mount", &work, "--owner", "B", "--linger", "60"])
                .code,
            0
        );
        assert_eq!(errno(fs::write(place.at("f"), "blind")), Errno::EEXIST);
        assert_eq!(text(place.at("f")), "two");
        fs::write(place.at("f"), "three").expect("after reading");
        place.umount(&place.work());
        assert_eq!(text(place.at("f")), "three");
    });
}

const DATA: &str = r"
import fcntl, mmap, os
block = os.urandom(1 << 20)
with open('big', 'wb') as f:
    for _ in range(64): f.write(block)
assert os.stat('big').st_size == 64 << 20
with open('big', 'rb') as f:
    for _ in range(64): assert f.read(1 << 20) == block
    assert f.read() == b''
    m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ); assert m[5 << 20:6 << 20] == block; m.close()
fd = os.open('big', os.O_RDWR)
m = mmap.mmap(fd, 0); m[100:105] = b'hello'; m.flush(); m.close(); os.close(fd)
with open('big', 'rb') as f: assert f.read(105)[100:] == b'hello'
fd = os.open('big', os.O_RDONLY)
m = mmap.mmap(fd, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE); m[0:3] = b'abc'; m.close(); os.close(fd)
with open('big', 'rb') as f: assert f.read(3) == block[:3]
for word in (b'one', b'two'):
    with open('log', 'ab') as f: f.write(word)
fd = os.open('log', os.O_WRONLY | os.O_APPEND)
os.pwrite(fd, b'three', 0)
fcntl.fcntl(fd, fcntl.F_SETFL, 0); os.pwrite(fd, b'ONE', 0); os.close(fd)
assert open('log').read() == 'ONEtwothree', open('log').read()
fd = os.open('unseen', os.O_RDWR)
try: mmap.mmap(fd, 0); raise SystemExit('an unseen file was mapped for writing')
except OSError as e: assert e.errno == 19, e
os.close(fd)
def can(name, mode):
    try:
        with open(name, mode) as f: f.read() if mode == 'r' else f.write('x')
        return True
    except PermissionError: return False
    except FileExistsError: return 'refused'
assert [can('readable', m) for m in 'raw'] == [True, False, False]
assert [can('closed', m) for m in 'raw'] == [False, False, False]
assert [can('group_reads', m) for m in 'raw'] == [True, False, False]
assert [can('of_group', m) for m in 'wraw'] == ['refused', True, True, True]
assert os.stat('readable').st_uid in (0, 65534)
os.chmod('log', 0o600); os.utime('log', (1, 1)); os.truncate('log', 3)
assert os.stat('log').st_mode & 0o777 == 0o600 and os.stat('log').st_size == 3
";

// semantics: D7 D19
#[test]
fn data_through_the_daemon() {
    let name = "user::data_through_the_daemon";
    contained(name, Who::User, files_of_others, |place| {
        fs::write(place.at("unseen"), "unseen").expect("a file");
        fs::write(place.base().join("home/data.py"), DATA).expect("the program");
        let done = place.run("A", "exec python3 \"$B/home/data.py\"");
        assert_eq!(done.code, 0, "{done:?}");
        assert_eq!(fs::metadata(place.at("big")).expect("there").len(), 64 << 20);
        assert_eq!(
            (text(place.at("log")), text(place.at("of_group"))),
            ("ONE".into(), "x".into())
        );
        assert_eq!(text(place.at("readable")), "theirs\n");
    });
}

/// What must come of a second process's `echo > f`, after a first has read it.
fn second_writer(place: &Place, rule: &str, first: &str, second: &str) -> bool {
    fs::write(place.at("f"), "one\n").expect("a file");
    let m = place.mount(&place.work(), rule, &["--owner-by", rule]);
    let seen = place.sh(&format!("cd {}; {first}", m.display()));
    assert!(seen.code == 0 && seen.out.starts_with("one\n"), "{rule}: {seen:?}");
    let done = place.sh(&format!("cd {}; {second}", m.display()));
    assert!(done.code == 0 || done.err.contains("File exists"), "{rule}: {done:?}");
    place.umount(&m);
    done.code == 0
}

// semantics: G4
#[test]
fn owner_by_session() {
    contained("user::owner_by_session", Who::Root, nothing, |place| {
        let writer = |first, second| second_writer(place, "session", first, second);
        assert!(!writer("setsid -w cat f", "setsid -w sh -c 'echo two > f'"));
        assert!(writer("cat f", "sh -c 'echo two > f'"));
        assert!(writer("setsid -w cat f", "setsid -w sh -c 'cat f; echo two > f'"));
    });
}

// semantics: G4
#[test]
fn owner_by_process() {
    contained("user::owner_by_process", Who::Root, nothing, |place| {
        let writer = |first, second| second_writer(place, "process", first, second);
        assert!(!writer("cat f", "echo two > f"));
        assert!(!writer("cat f", "cat f; echo two > f"));
        assert!(writer("cat f", "read line < f; echo two > f"));
    });
}

// semantics: G4
#[test]
fn owner_by_user() {
    let open = |place: &Place| {
        fs::set_permissions(place.work(), fs::Permissions::from_mode(0o777)).expect("chmod");
        fs::write(place.at("f"), "").expect("a file");
        fs::set_permissions(place.at("f"), fs::Permissions::from_mode(0o666)).expect("chmod");
    };
    contained("user::owner_by_user", Who::Root, open, |place| {
        let by = "setpriv --clear-groups --reuid";
        let writer = |first: &str, second: &str| {
            second_writer(place, "user", &format!("{by} {first}"), &format!("{by} {second}"))
        };
        assert!(!writer(
            "7001 --regid 7001 cat f",
            "7002 --regid 7002 sh -c 'echo two > f'"
        ));
        assert!(writer(
            "7001 --regid 7001 cat f",
            "7001 --regid 7009 setsid -w sh -c 'echo two > f'"
        ));
    });
}

// semantics: G4
#[test]
fn owner_by_cgroup() {
    let name = "user::owner_by_cgroup";
    contained(name, Who::Root, nothing, |place| {
        place.sh_ok("mkdir $B/home/cg");
        let made = place.sh("mount -t cgroup2 none $B/home/cg && mkdir $B/home/cg/unclobber-test-$$ && echo $$");
        if made.code != 0 {
            say(&format!("SKIPPED {name}: no cgroup can be made: {}", made.err.trim()));
            return;
        }
        let group = place
            .base()
            .join("home/cg")
            .join(format!("unclobber-test-{}", made.out.trim()));
        let inside = |script: &str| format!("sh -c 'echo 0 > {}/cgroup.procs; {script}'", group.display());
        let writer = |first: &str, second: &str| second_writer(place, "cgroup", first, second);
        assert!(!writer(&inside("cat f"), "echo two > f"));
        assert!(writer(&inside("cat f"), &inside("setsid -w sh -c \"echo two > f\"")));
        fs::remove_dir(&group).expect("nobody is left in it");
    });
}
