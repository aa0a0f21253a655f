//! The daemon's death under load, the mount it leaves, and what remains of a mount that has ended.

use std::collections::BTreeSet;
use std::fs;

use crate::common::tree::{say, tool_is_there};
use crate::common::wait::{PATIENCE, wait_until};
use crate::contained::{Place, Who, contained, lives, nothing, text};

/// Writers that never stop by themselves; each file's content says whether it is whole.
const LOAD: &str = r"
import os, sys, threading
top, block = sys.argv[1], b'x' * 65536
def work(n):
    d = f'{top}/d{n}'; os.mkdir(d); i = 0
    try:
        while True:
            i += 1
            with open(f'{d}/f{i % 50}', 'wb') as f: f.write(block); f.write(b'end')
            with open(f'{d}/t', 'wb') as f: f.write(b'old'); f.flush(); os.fsync(f.fileno())
            os.rename(f'{d}/t', f'{d}/r')
            open(f'{d}/r').read()
            if i == 30: print('busy', flush=True)
            if i % 3 == 0: os.unlink(f'{d}/f{i % 50}')
    except OSError as e: pass
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
print('ended', flush=True)
";

fn killed_under_load(place: &Place) {
    fs::write(place.base().join("home/load.py"), LOAD).expect("the load");
    for n in 0..20 {
        fs::write(place.at(&format!("quiet{n}")), "quiet").expect("a file that nobody writes");
    }
    let m = place.mount(&place.work(), "m", &["--owner", "A"]);
    let guards = place.guards();
    assert_eq!(guards.len(), 1, "{guards:?}");
    let script = format!(
        "python3 $B/home/load.py {} > $B/home/said & tries=0; \
         until [ $(grep -c busy $B/home/said) -ge 4 ]; do tries=$((tries + 1)); [ $tries -lt 20000 ] || exit 99; done; \
         kill -9 {}; wait; cat $B/home/said",
        m.display(),
        guards[0]
    );
    let said = place.sh_ok(&script);
    assert!(
        said.ends_with("ended\n"),
        "the writers end with errors, they do not hang: {said}"
    );
    assert!(wait_until(PATIENCE, || !lives(guards[0])));
    let mut strange = BTreeSet::new();
    for entry in fs::read_dir(place.work()).expect("the tree").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("quiet") {
            assert_eq!(text(entry.path()), "quiet");
        } else if name.starts_with('d') {
            check_writers(&entry.path(), &mut strange);
        } else {
            strange.insert(name);
        }
    }
    let strange: Vec<_> = strange.iter().filter(|name| !name.starts_with(".unclobber")).collect();
    assert!(strange.is_empty(), "names that nobody made: {strange:?}");
}

/// What a writer left: its own names only. A file that was being written may be short, as after the writer's own death.
fn check_writers(dir: &std::path::Path, strange: &mut BTreeSet<String>) {
    for entry in fs::read_dir(dir).expect("a writer's directory").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let bytes = fs::read(entry.path()).unwrap_or_default();
        match name.as_bytes() {
            [b'f', rest @ ..] if !rest.is_empty() && rest.iter().all(u8::is_ascii_digit) => {
                assert!(bytes.iter().all(|byte| b"xend".contains(byte)), "{name}");
            }
            b"r" => assert_eq!(bytes, b"old", "a file that was published whole"),
            b"t" => assert!(b"old".starts_with(&bytes[..]), "{name}"),
            _ => {
                strange.insert(name);
            }
        }
    }
}

#[test]
fn a_killed_daemon_harms_nothing_and_its_mount_is_cleared() {
    contained(
        "life::a_killed_daemon_harms_nothing_and_its_mount_is_cleared",
        Who::Root,
        nothing,
        |place| {
            killed_under_load(place);
            let m = place.base().join("mnt/m");
            assert!(fs::metadata(m.join("quiet1")).is_err(), "the mount is dead");
            let again = place.mount(&place.work(), "m", &["--owner", "A"]);
            assert_eq!(text(again.join("quiet1")), "quiet");
            place.umount(&again);
            assert!(
                fs::read_dir(&m).expect("the mount point").next().is_none(),
                "nothing lies below"
            );
        },
    );
}

#[test]
fn a_killed_daemon_of_an_ordinary_user() {
    contained(
        "life::a_killed_daemon_of_an_ordinary_user",
        Who::User,
        nothing,
        |place| {
            if !tool_is_there("fusermount3") {
                return;
            }
            killed_under_load(place);
            let m = place.base().join("mnt/m");
            assert!(fs::metadata(m.join("quiet1")).is_err(), "the mount is dead");
            let again = place.mount(&place.work(), "m", &["--owner", "A"]);
            assert_eq!(text(again.join("quiet1")), "quiet");
            place.umount(&again);
            // A dead mount over the directory itself is cleared by `run`.
            let work = place.work().display().to_string();
            assert_eq!(place.unclobber(&["mount", &work]).code, 0);
            place.sh_ok(&format!("kill -9 {}", place.guards()[0]));
            let done = place.run("B", "cat quiet1");
            assert_eq!((done.code, done.out.as_str()), (0, "quiet"), "{done:?}");
        },
    );
}

#[test]
fn a_killed_daemon_under_a_run() {
    contained("life::a_killed_daemon_under_a_run", Who::User, nothing, |place| {
        fs::write(place.at("f"), "one\n").expect("a file");
        let done = place.run(
            "A",
            "kill -9 $(cat $XDG_RUNTIME_DIR/unclobber/*.pid); cat f; echo two > f; exit 7",
        );
        assert_eq!(done.code, 7, "the command's own code: {done:?}");
        assert_eq!(
            (done.out.as_str(), text(place.at("f"))),
            ("", "one\n".to_owned()),
            "{done:?}"
        );
        let done = place.run("A", "cat f");
        assert_eq!((done.code, done.out.as_str()), (0, "one\n"), "{done:?}");
    });
}

/// Those that lead to files or sockets; the callers that are remembered have a bound of their own.
fn descriptors(pid: i32) -> usize {
    let all = fs::read_dir(format!("/proc/{pid}/fd")).expect("root sees them");
    let targets = all.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    targets
        .filter(|target| !target.to_string_lossy().contains("[pidfd]"))
        .count()
}

fn counted(place: &Place, name: &str) -> u64 {
    let status = place.unclobber(&["status", "--verbose"]).out;
    let line = status.lines().find_map(|line| line.trim().strip_prefix(name));
    let number = line.and_then(|rest| rest.trim().parse().ok());
    assert!(number.is_some(), "{name}: {status}");
    number.unwrap_or_default()
}

#[test]
fn a_mount_that_has_ended_leaves_nothing_in_the_daemon() {
    contained(
        "life::a_mount_that_has_ended_leaves_nothing_in_the_daemon",
        Who::Root,
        nothing,
        |place| {
            place.sh_ok("cd $W; mkdir d; for i in $(seq 300); do echo $i > d/f$i; done");
            let use_it = |name: &str| {
                let m = place.mount(&place.work(), name, &["--owner", "A"]);
                let script = format!(
                    "cd {}; cat d/* | wc -l; for i in 1 2 3 4 5 6 7 8 9; do echo x > new$i; mv new$i new; done; rm -f new; \
                 exec 9< d/f1; echo y >> d/f2; ls -R > /dev/null; rm d/f10{name}",
                    m.display()
                );
                assert!(
                    place
                        .sh_ok(&script)
                        .trim()
                        .parse::<u32>()
                        .is_ok_and(|lines| lines > 250)
                );
                place.umount(&m);
            };
            use_it("1");
            let guard = place.guards()[0];
            let settled = || counted(place, "known files") <= 2;
            assert!(
                wait_until(PATIENCE, settled),
                "{}",
                place.unclobber(&["status", "--verbose"]).out
            );
            let (before, threads) = (descriptors(guard), threads(guard));
            for name in ["2", "3", "4"] {
                use_it(name);
            }
            assert!(
                wait_until(PATIENCE, settled),
                "{}",
                place.unclobber(&["status", "--verbose"]).out
            );
            assert!(
                wait_until(PATIENCE, || descriptors(guard) <= before
                    && self::threads(guard) <= threads),
                "descriptors: {before}, then {}",
                place.sh(&format!("ls -l /proc/{guard}/fd")).out
            );
            assert_eq!(place.guards(), [guard], "it lingers");
        },
    );
}

fn threads(pid: i32) -> usize {
    fs::read_dir(format!("/proc/{pid}/task")).expect("its threads").count()
}

// semantics: G3
#[test]
fn a_daemon_ends_when_it_has_lingered() {
    contained(
        "life::a_daemon_ends_when_it_has_lingered",
        Who::Root,
        nothing,
        |place| {
            fs::write(place.at("f"), "one\n").expect("a file");
            let run = |linger: &str| {
                let work = place.work().display().to_string();
                let done = place.unclobber(&["run", "-w", &work, "--owner", "A", "--linger", linger, "--", "cat", "f"]);
                assert_eq!(done.code, 0, "{done:?}");
            };
            run("1");
            let guard = place.guards()[0];
            assert!(wait_until(PATIENCE, || !lives(guard)), "it ends");
            let left = fs::read_dir(place.runtime().join("unclobber")).expect("the run-time directory");
            let left: Vec<_> = left.flatten().map(|entry| entry.file_name()).collect();
            let left: Vec<_> = left
                .iter()
                .filter(|name| !name.to_string_lossy().ends_with(".log"))
                .collect();
            assert!(left.is_empty(), "it takes its files with it: {left:?}");
        },
    );
}

#[test]
fn a_busy_mount_is_told_with_its_users() {
    contained(
        "life::a_busy_mount_is_told_with_its_users",
        Who::User,
        nothing,
        |place| {
            if !tool_is_there("fusermount3") {
                return;
            }
            let m = place.mount(&place.work(), "m", &[]);
            let done = place.sh(&format!("cd {} && {{ $U umount . ; echo $? $$; }}", m.display()));
            let mut said = done.out.split_whitespace();
            assert_eq!(said.next(), Some("1"), "{done:?}");
            let process = format!("process {}", said.next().unwrap_or("?"));
            assert!(done.err.contains(&process) && done.err.contains("hint: "), "{done:?}");
            place.umount(&m);
        },
    );
}

#[test]
fn the_limits_of_the_first_command_do_not_end_the_guard() {
    let name = "life::the_limits_of_the_first_command_do_not_end_the_guard";
    contained(name, Who::User, nothing, |place| {
        let run = "$U run -w $W --owner A --linger 60 -- sh -c";
        let large = "head -c 1000000 /dev/zero > big; wc -c < big";
        let first = place.sh(&format!("ulimit -S -f 100; {run} '{large}'"));
        assert!(
            first.out.trim().parse::<u32>().is_ok_and(|size| size < 1_000_000),
            "{first:?}"
        );
        let second = place.sh(&format!("{run} 'rm big; {large}'"));
        assert_eq!((second.code, second.out.trim()), (0, "1000000"), "{second:?}");
        place.sh_ok(&format!("kill {}", place.guards()[0]));
        assert!(wait_until(PATIENCE, || place.guards().is_empty()));
        // A hard limit stays, as an error of the write and no end of the guard.
        let first = place.sh(&format!("ulimit -f 100; {run} 'cat big | wc -c'"));
        assert_eq!(first.code, 0, "{first:?}");
        let second = place.sh(&format!(
            "{run} 'head -c 1000000 /dev/zero > big2 && exit 9; rm big2; echo lives'"
        ));
        assert_eq!((second.code, second.out.as_str()), (0, "lives\n"), "{second:?}");
        assert!(second.err.contains("File too large"), "{second:?}");
    });
}

#[test]
fn a_stopped_guard_holds_up_no_command_for_ever() {
    contained(
        "life::a_stopped_guard_holds_up_no_command_for_ever",
        Who::Root,
        nothing,
        |place| {
            fs::write(place.at("f"), "one\n").expect("a file");
            let m = place.mount(&place.work(), "m", &["--owner", "A"]);
            let guard = place.guards()[0];
            place.sh_ok(&format!("kill -STOP {guard}"));
            let done = place.sh(&format!(
                "cd $B/home; $U status > s.out 2> s.err & $U run -w $W -- true 2> r.err & run=$!; \
             $U umount {} || exit 9; wait $run; echo $?; wait; cat s.out s.err r.err",
                m.display()
            ));
            assert!(done.code == 0 && done.out.starts_with("125\n"), "{done:?}");
            assert!(done.out.contains("stopped or stuck"), "status says so: {done:?}");
            assert!(
                done.out.contains("does not answer") && done.out.contains("hint: "),
                "run says so: {done:?}"
            );
            place.sh_ok(&format!("kill -CONT {guard}"));
            let again = place.run("A", "cat f");
            assert_eq!((again.code, again.out.as_str()), (0, "one\n"), "{again:?}");
        },
    );
}

// semantics: G7
#[test]
fn a_guarded_command_of_root_cannot_leave_its_view() {
    let name = "life::a_guarded_command_of_root_cannot_leave_its_view";
    contained(name, Who::Root, nothing, |place| {
        fs::write(place.at("f"), "one\n").expect("a file");
        let work = place.work().display().to_string();
        let ways = [
            "umount -l .; cd /; cd $W".to_owned(),
            "umount -l . && cd /; cd $W".to_owned(),
            format!("cd /proc/1/root{work}"),
            format!("cd /proc/$PPID/root{work}"),
            "cd /proc/$PPID/cwd".to_owned(),
            format!("for guard in $B/run/unclobber/*.pid; do cd /proc/$(cat $guard)/root{work}; done"),
            "exec nsenter -t 1 -m sh -c 'echo mine > f'".to_owned(),
            "unshare -Urm sh -c 'umount -l .'".to_owned(),
            "mount -t tmpfs none .".to_owned(),
        ];
        for way in ways {
            let left = place.run("A", &format!("{way}; echo mine > f"));
            assert!(left.code != 0, "{way}: {left:?}");
            assert_eq!(text(place.at("f")), "one\n", "{way}");
        }
        // The same steps lead out where they are left to it: what is tested above is what keeps it in.
        let words = ["run", "-w", &work, "--owner", "A", "--keep-capabilities", "--"];
        let out = [&words[..], &["sh", "-c", "umount -l .; cd /; cd $W; echo mine > f"]].concat();
        assert_eq!(place.unclobber(&out).code, 0);
        assert_eq!(text(place.at("f")), "mine\n");
    });
}

/// A command of somebody else with the same user and rights, by whose directories the unguarded one can be reached.
const ELSEWHERE: &str = "mkdir -p $B/home/elsewhere; \
    $U run -w $B/home/elsewhere --owner E -- sh -c 'cd $W; exec 3<$W; echo $$ > $B/home/pid; sleep 100 & echo $! > $B/home/nap; wait' & \
    until [ -s $B/home/nap ]; do sleep 0.1; done";

/// Tries each way from a guarded command to that other one; none leads to the file.
fn nothing_leads_through_others(place: &Place) {
    let work = place.work().display().to_string();
    let ways = [
        format!("cd /proc/$(cat $B/home/pid)/root{work}"),
        format!("cd /proc/$(cat $B/home/nap)/root{work}"),
        "cd /proc/$(cat $B/home/pid)/cwd".to_owned(),
        "cd /proc/$(cat $B/home/pid)/fd/3".to_owned(),
        "exec nsenter -t $(cat $B/home/pid) -m sh -c \"cd $W; echo mine > f\"".to_owned(),
        format!("cat /proc/$(cat $B/home/pid)/root{work}/f || exit 1"),
    ];
    for way in ways {
        let left = place.sh(&format!("$U run -w $W --owner A -- sh -c '{way}; echo mine > f'"));
        assert!(left.code != 0, "{way}: {left:?}");
        assert_eq!(text(place.at("f")), "one\n", "{way}");
    }
}

// semantics: G7
#[test]
fn a_guarded_command_of_root_cannot_leave_through_another_one() {
    let name = "life::a_guarded_command_of_root_cannot_leave_through_another_one";
    contained(name, Who::Root, nothing, |place| {
        let doctor = place.sh("$U doctor $W").out;
        if doctor.contains("warn  Landlock") {
            say(&format!("SKIPPED {name}: the kernel has no Landlock"));
            return;
        }
        fs::write(place.at("f"), "one\n").expect("a file");
        place.sh_ok(ELSEWHERE);
        nothing_leads_through_others(place);
        // Also on a mount that it joins.
        let m = place.mount(&place.work(), "m", &["--owner-by", "session"]);
        let way = format!("cat /proc/$(cat $B/home/pid)/root{}/f", place.work().display());
        let left = place.sh(&format!("$U run -w {} --owner J -- sh -c '{way}'", m.display()));
        assert!(left.code != 0 && left.out.is_empty(), "{left:?}");
        place.umount(&m);
        place.sh_ok("kill $(cat $B/home/pid) $(cat $B/home/nap)");
    });
}

// semantics: G7
#[test]
fn a_guarded_command_of_a_user_cannot_leave_through_another_one() {
    let name = "life::a_guarded_command_of_a_user_cannot_leave_through_another_one";
    contained(name, Who::User, nothing, |place| {
        fs::write(place.at("f"), "one\n").expect("a file");
        place.sh_ok(ELSEWHERE);
        nothing_leads_through_others(place);
        place.sh_ok("kill $(cat $B/home/pid) $(cat $B/home/nap)");
    });
}

// semantics: G2 G7
#[test]
fn what_a_command_of_root_may_do_to_its_own_it_still_may() {
    let name = "life::what_a_command_of_root_may_do_to_its_own_it_still_may";
    contained(name, Who::Root, nothing, |place| {
        fs::write(place.at("f"), "one\n").expect("a file");
        let own = [
            // To look into and trace its children.
            "sleep 100 & cat /proc/$!/environ >n && readlink /proc/$!/root /proc/$!/cwd && kill $!",
            "python3 - <<EOF\nimport ctypes, os, signal\nlibc = ctypes.CDLL(None, use_errno=True)\npid = os.fork()\n\
if not pid: signal.pause()\nassert libc.ptrace(16, pid, 0, 0) == 0, ctypes.get_errno()\nos.waitpid(pid, 0)\n\
assert libc.ptrace(17, pid, 0, 0) == 0\nos.kill(pid, 9)\nEOF",
            // Mounts and roots of its own.
            "unshare -Urm sh -ec 'mount -t tmpfs none /mnt; mount --bind /proc /mnt; mkdir -p d; chroot / true'",
            // Files on other filesystems, across directories, special ones, and unnamed ones.
            "mkdir one two && echo x >one/x && mv one/x two/y && ln two/y one/z && mknod one/fifo p && mknod one/null c 1 3",
            "mkdir $B/home/away && echo x >$B/home/away/x && mv $B/home/away/x $B/home/y && mknod $B/home/null c 1 3",
            // Sockets in files and abstract ones, and signals to processes outside.
            "python3 - <<EOF\nimport socket\nfor name in 'sock', chr(0) + 'unclobber-test':\n    \
a = socket.socket(socket.AF_UNIX); a.bind(name); a.listen()\n    b = socket.socket(socket.AF_UNIX); b.connect(name)\nEOF",
            "kill -0 1",
            // Another owner below it, and below that.
            "$U run --owner H -- sh -c 'cat f && $U run --owner I -- cat f && echo new >f'",
        ];
        for script in own {
            let script = script.replace('\'', "'\\''");
            let done = place.sh(&format!("$U run -w $W --owner A -- sh -ec '{script}'"));
            assert_eq!(done.code, 0, "{script}: {done:?}");
        }
        // The many that there can be below each other.
        let deep = (0..20).fold("true".to_owned(), |inner, level| {
            format!("$U run --owner L{level} -- {inner}")
        });
        let done = place.sh(&format!("cd $W && {deep}"));
        assert_eq!(done.code, 0, "{done:?}");
    });
}

#[test]
fn a_guard_that_ends_takes_away_no_mount_of_others() {
    let name = "life::a_guard_that_ends_takes_away_no_mount_of_others";
    contained(name, Who::Root, nothing, |place| {
        let m = place.mount(&place.work(), "m", &["--owner", "A"]);
        let other = place.mount(&place.work(), "other", &["--owner", "A"]);
        let guard = place.guards()[0];
        let (over, free) = (m.display(), other.display());
        // Somebody has mounted over it: that name leads to another filesystem now.
        place.sh_ok(&format!(
            "mount -t tmpfs none {over} && echo theirs > {over}/f && kill -TERM {guard}"
        ));
        assert!(wait_until(PATIENCE, || !lives(guard)), "the guard ends");
        assert_eq!(place.sh_ok(&format!("cat {over}/f")), "theirs\n");
        let left = place.sh_ok(&format!("grep -c ' {free} ' /proc/self/mountinfo || true"));
        assert_eq!(left, "0\n", "its own");
        place.sh_ok(&format!("umount {over}; umount -l {over}"));
    });
}
