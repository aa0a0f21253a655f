//! Bad input and missing parts: a clear message with a cause and a step, the right exit code, never a hang.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::common::tree::say;
use crate::contained::{Done, Place, Who, contained, nothing};

/// A message of the program's own: what failed and what to do.
#[track_caller]
fn told(done: &Done, code: i32, words: &[&str]) {
    assert_eq!(done.code, code, "{done:?}");
    let own = done.err.lines().any(|line| line.starts_with("unclobber: ")) && done.err.contains("\nhint: ");
    assert!(own, "a message and a hint: {done:?}");
    for word in words {
        assert!(done.err.contains(word), "{word:?}: {done:?}");
    }
}

/// The same of a command line that the parser turned down.
#[track_caller]
fn wrong_words(done: &Done, word: &str) {
    assert!(done.code == 2 && done.err.contains(word), "{word:?}: {done:?}");
}

#[test]
fn directories_that_cannot_be_guarded() {
    contained(
        "input::directories_that_cannot_be_guarded",
        Who::Root,
        nothing,
        |place| {
            fs::write(place.at("file"), "").expect("a file");
            let of = |dir: &str| {
                [
                    place.unclobber(&["run", "-w", dir, "--", "true"]),
                    place.unclobber(&["mount", dir]),
                ]
            };
            let file = place.at("file").display().to_string();
            for (dir, words) in [
                ("/absent", &["/absent", "No such file"][..]),
                (&file, &["Not a directory"]),
                ("/", &["/"]),
                ("/proc", &["/proc", "view of the kernel"]),
                ("/sys", &["/sys", "view of the kernel"]),
            ] {
                let [run, mount] = of(dir);
                told(&run, 125, words);
                told(&mount, 1, words);
            }
            let work = place.work().display().to_string();
            told(
                &place.unclobber(&["mount", &work, "/absent"]),
                1,
                &["/absent", "No such file"],
            );
            told(&place.unclobber(&["mount", &work, &file]), 1, &["Not a directory"]);
            told(&place.unclobber(&["mount", &work, "/"]), 1, &["/"]);
            told(&place.unclobber(&["mount", &work, "/proc"]), 1, &["view of the kernel"]);
            told(&place.unclobber(&["umount", &work]), 1, &[]);
            told(&place.unclobber(&["status", &work]), 1, &["no guard"]);
            fs::create_dir(place.at("gone")).expect("a directory");
            let gone = place.sh("cd $W/gone && rmdir $W/gone && $U run -- true");
            told(&gone, 125, &[]);
        },
    );
}

#[test]
fn a_directory_without_permission() {
    let close = |place: &Place| {
        fs::create_dir(place.at("closed")).expect("a directory");
        fs::set_permissions(place.at("closed"), fs::Permissions::from_mode(0o700)).expect("chmod");
        fs::create_dir(place.at("closed/sub")).expect("a directory");
        fs::create_dir(place.at("listed")).expect("a directory");
    };
    contained("input::a_directory_without_permission", Who::User, close, |place| {
        let sub = place.at("closed/sub").display().to_string();
        told(
            &place.unclobber(&["run", "-w", &sub, "--", "true"]),
            125,
            &["Permission denied"],
        );
        told(&place.unclobber(&["mount", &sub]), 1, &["Permission denied"]);
        let closed = place.at("closed").display().to_string();
        let done = place.unclobber(&["run", "-w", &closed, "--", "true"]);
        told(&done, 125, &["ermission"]);
        // A directory of somebody else that may be read: guarded, and changes fail as they would without the guard.
        let listed = place.at("listed").display().to_string();
        let done = place.unclobber(&["run", "-w", &listed, "--", "sh", "-c", "ls -a; echo x > f"]);
        assert!(done.code != 0 && done.err.contains("Permission denied"), "{done:?}");
        assert!(!done.err.contains("FS_"), "{done:?}");
    });
}

#[test]
fn no_device_no_helper_no_setuid() {
    contained("input::no_device_no_helper_no_setuid", Who::Root, nothing, |place| {
        let work = place.work().display().to_string();
        fs::set_permissions(place.runtime(), fs::Permissions::from_mode(0o777)).expect("chmod");
        fs::set_permissions(place.work(), fs::Permissions::from_mode(0o777)).expect("chmod");
        let user = "setpriv --reuid 65534 --regid 65534 --clear-groups env XDG_RUNTIME_DIR=";
        place.sh_ok("mkdir $B/empty");
        place.sh_ok("umount /dev/fuse; mount -t tmpfs none /dev; mknod -m 666 /dev/null c 1 3");
        let no_device = [
            place.unclobber(&["run", "-w", &work, "--", "true"]),
            place.unclobber(&["mount", &work]),
        ];
        told(&no_device[0], 125, &["/dev/fuse", "No such file", "modprobe fuse"]);
        told(&no_device[1], 1, &["/dev/fuse", "No such file", "modprobe fuse"]);
        let doctor = place.unclobber(&["doctor", &work]);
        assert!(
            doctor.code == 1 && doctor.out.contains("FAIL  /dev/fuse: No such file"),
            "{doctor:?}"
        );
        assert!(doctor.out.ends_with("`unclobber run` cannot work here\n"), "{doctor:?}");
        place.sh_ok("mknod -m 600 /dev/fuse c 10 229");
        let closed = place.sh(&format!("{user} $U run -w $W -- true"));
        told(&closed, 125, &["/dev/fuse", "Permission denied", "chmod 0666"]);
        place.sh_ok("chmod 666 /dev/fuse");
        let helper = place.sh("command -v fusermount3");
        if helper.code != 0 {
            say("SKIPPED: fusermount3 is not installed, so its absence cannot be made");
            return;
        }
        place.sh_ok("cp $(command -v fusermount3) $B/plain && chmod 755 $B/plain && mount --bind $B/plain $(readlink -f $(command -v fusermount3))");
        let unprivileged = place.sh(&format!("{user} $U mount $W"));
        told(&unprivileged, 1, &["fusermount3", "chmod u+s"]);
        let doctor = place.sh(&format!("{user} $U doctor $W"));
        assert!(
            doctor.code == 0 && doctor.out.contains("warn  fusermount3: not set-user-ID"),
            "{doctor:?}"
        );
    });
}

#[test]
fn mounting_twice_inside_and_over() {
    contained("input::mounting_twice_inside_and_over", Who::Root, nothing, |place| {
        fs::create_dir(place.at("sub")).expect("a directory");
        fs::write(place.at("sub/f"), "one\n").expect("a file");
        let work = place.work().display().to_string();
        let sub = place.at("sub").display().to_string();
        told(&place.unclobber(&["mount", &work, &sub]), 1, &["inside the directory"]);
        let m = place.mount(&place.work(), "m", &["--owner", "A"]);
        let point = m.display().to_string();
        told(
            &place.unclobber(&["mount", &work, &point]),
            1,
            &["already on the unclobber mount", "umount"],
        );
        told(
            &place.unclobber(&["mount", &point]),
            1,
            &["already on the unclobber mount"],
        );
        told(
            &place.unclobber(&["mount", &work, &m.join("sub").display().to_string()]),
            1,
            &["already on"],
        );
        // The directory on two mount points, over itself, and a directory inside the guarded one: each is a view.
        let second = place.mount(&place.work(), "second", &["--owner", "B"]);
        assert_eq!(place.unclobber(&["mount", &work, "--owner", "C"]).code, 0);
        for view in [&m, &second, &place.work()] {
            let listed = place.sh(&format!("ls {}/sub && cat {}/sub/f", view.display(), view.display()));
            assert_eq!((listed.code, listed.out.as_str()), (0, "f\none\n"), "{listed:?}");
        }
        place.umount(&place.work());
        place.umount(&second);
        let inner = place.mount(&place.at("sub"), "inner", &["--owner", "D"]);
        let blind = place.sh(&format!("echo two > {}/f", inner.display()));
        assert!(blind.code != 0 && blind.err.contains("File exists"), "{blind:?}");
        place.umount(&inner);
        // Over the backing directory that already has a view elsewhere, and under another file system's mount.
        place.sh_ok("mount -t tmpfs none $W/sub");
        let below = place.sh(&format!("ls -A {point}/sub; echo x > {point}/sub/new; ls $W/sub"));
        assert!(
            !below.out.contains("new") || below.code != 0,
            "nothing goes across a mount: {below:?}"
        );
        place.sh_ok("umount $W/sub");
        place.umount(&m);
    });
}

#[test]
fn a_runtime_directory_and_a_log_inside_the_tree() {
    contained(
        "input::a_runtime_directory_and_a_log_inside_the_tree",
        Who::Root,
        nothing,
        |place| {
            let done = place
                .sh("mkdir -m 700 $W/run; echo one > $W/f; cd $W; XDG_RUNTIME_DIR=$W/run $U run --linger 0 -- cat f");
            assert_eq!((done.code, done.out.as_str()), (0, "one\n"), "{done:?}");
            let done = place.sh("cd $W; XDG_RUNTIME_DIR=$W/run $U mount . && cat f && $U umount $W || XDG_RUNTIME_DIR=$W/run $U umount $W");
            assert!(done.code == 0 && done.out.contains("one\n"), "{done:?}");
            let done = place.sh(
                "cd $W; $U --log-file $W/log -vv run --linger 0 -- sh -c 'cat f; echo two > f'; tail -c 1 log | wc -c",
            );
            assert_eq!((done.code, done.out.as_str()), (0, "one\n1\n"), "{done:?}");
            let done = place.sh("cd $W; $U --log-file /absent/log run -- true");
            told(&done, 125, &["/absent/log"]);
        },
    );
}

#[test]
fn words_that_are_not_understood() {
    contained("input::words_that_are_not_understood", Who::Root, nothing, |place| {
        let work = place.work().display().to_string();
        for words in [
            &["run", "--bogus", "--", "true"][..],
            &["run", "--unseen", "cheese", "--", "true"],
            &["run", "--linger", "cheese", "--", "true"],
            &["mount", "--owner-by", "cheese", &work],
            &["mount", &work, "-o", "cheese"],
            &["mount", &work, "-o", "mode=cheese"],
            &["mount", &work, "--owner", "A", "--owner-by", "user"],
            &["cheese"],
        ] {
            let done = place.unclobber(words);
            let word = words
                .iter()
                .rev()
                .find(|word| word.contains("cheese") || word.contains("bogus"));
            wrong_words(&done, word.map_or("--owner", |word| word.trim_start_matches("mode=")));
        }
        for name in ["", "a/b", "a\nb", &"n".repeat(300)] {
            let done = place.unclobber(&["run", "-w", &work, "--owner", name, "--", "true"]);
            assert!(
                matches!(done.code, 2 | 125) && !done.err.is_empty(),
                "{name:?}: {done:?}"
            );
        }
        wrong_words(&place.unclobber(&["run"]), "");
        wrong_words(&place.unclobber(&["mount"]), "");
    });
}

#[test]
fn no_runtime_directory_that_can_be_trusted() {
    contained(
        "input::no_runtime_directory_that_can_be_trusted",
        Who::Root,
        nothing,
        |place| {
            place.sh_ok(
                "chmod 777 $W; mount -t tmpfs none /tmp && chmod 1777 /tmp && mkdir -m 777 /tmp/unclobber-65534",
            );
            let user = "env XDG_RUNTIME_DIR=/absent setpriv --reuid 65534 --regid 65534 --clear-groups";
            let run = place.sh(&format!("{user} $U run -w $W -- true"));
            told(&run, 125, &["/tmp/unclobber-65534", "XDG_RUNTIME_DIR"]);
            told(
                &place.sh(&format!("{user} $U mount $W")),
                1,
                &["/tmp/unclobber-65534", "XDG_RUNTIME_DIR"],
            );
            let doctor = place.sh(&format!("{user} $U doctor $W"));
            assert!(
                doctor.code == 1 && doctor.out.contains("FAIL  run-time directory"),
                "{doctor:?}"
            );
            // The directory to be guarded holds the only place for the guard's files.
            let own = place.sh("rm -r /tmp/unclobber-65534; chown 65534 /tmp; ! setpriv --reuid 65534 --clear-groups --regid 65534 env XDG_RUNTIME_DIR=/absent $U run -w /tmp -- true");
            assert!(own.code == 0 && own.err.contains("inside the directory"), "{own:?}");
        },
    );
}

/// Asks the guard to serve what is no FUSE connection.
const ATTACH: &str = r#"
import glob, os, socket
for path in '/dev/null', os.environ['W'] + '/f':
    s = socket.socket(socket.AF_UNIX); s.connect(glob.glob(os.environ['XDG_RUNTIME_DIR'] + '/unclobber/*.sock')[0])
    line = b'{"v":1,"op":"attach","label":"/w","attribution":{"by":"user"}}\n'
    socket.send_fds(s, [line], [os.open(path, os.O_RDWR)]); print(s.recv(4096).decode(), end='')
"#;

#[test]
fn only_a_fuse_device_is_served() {
    contained("input::only_a_fuse_device_is_served", Who::Root, nothing, |place| {
        fs::write(place.at("f"), "no requests").expect("a file");
        let m = place.mount(&place.work(), "m", &["--owner", "A"]);
        fs::write(place.base().join("home/attach.py"), ATTACH).expect("the program");
        let out = place.sh_ok("python3 $B/home/attach.py");
        let refused = |line: &str| line.contains("\"failed\"") && line.contains("not of /dev/fuse");
        assert!(out.lines().count() == 2 && out.lines().all(refused), "{out}");
        let content = fs::read_to_string(m.join("f")).expect("the mount goes on");
        assert_eq!(content, "no requests");
    });
}
