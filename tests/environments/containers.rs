//! Where rights are missing, as in containers: no CAP_SYS_ADMIN, a user namespace as root, other pid namespaces, no device.

use std::fs;

use crate::common::tree::{say, tool_is_there};
use crate::contained::{Place, Who, contained, nothing, text};

fn core(place: &Place, wrapped: &str) {
    fs::write(place.at("f"), "one\n").expect("a file");
    let run = "$U run -w $W --owner A --linger 0 -- sh -c";
    let done = place.sh(&format!(
        "{wrapped} sh -c '{run} \"echo two > f && exit 9; cat f; echo two > f && cat f\"'"
    ));
    assert_eq!((done.code, done.out.as_str()), (0, "one\ntwo\n"), "{wrapped}: {done:?}");
    assert!(done.err.contains("FS_NOT_OBSERVED"), "{done:?}");
    assert_eq!(text(place.at("f")), "two\n");
}

#[test]
fn root_without_the_right_to_mount() {
    contained(
        "containers::root_without_the_right_to_mount",
        Who::Root,
        nothing,
        |place| {
            let less = "setpriv --bounding-set -sys_admin --inh-caps -sys_admin";
            core(place, less);
            let told = place.sh(&format!("{less} $U doctor $W"));
            assert!(
                told.out
                    .contains("private mount namespace: unshare: Operation not permitted"),
                "{told:?}"
            );
            assert!(
                told.out
                    .contains("CAP_SYS_ADMIN in the machine's own user namespace is missing"),
                "{told:?}"
            );
            assert!(!told.out.contains("run as root"), "it is root already: {told:?}");
            assert!(
                told.code == 0 && told.out.ends_with("`unclobber run` can work here\n"),
                "{told:?}"
            );
        },
    );
}

#[test]
fn root_of_a_user_namespace() {
    contained("containers::root_of_a_user_namespace", Who::Root, nothing, |place| {
        core(place, "unshare -Urm");
        let told = place.sh("unshare -Urm $U doctor $W");
        assert!(
            told.code == 0 && told.out.contains("warn  data at native speed"),
            "{told:?}"
        );
        core(
            place,
            "unshare -Urm --map-root-user setpriv --bounding-set -sys_admin --inh-caps -sys_admin",
        );
    });
}

#[test]
fn no_namespace_and_no_right_to_mount_is_said() {
    contained(
        "containers::no_namespace_and_no_right_to_mount_is_said",
        Who::Root,
        nothing,
        |place| {
            let none = "echo 0 > /proc/sys/user/max_user_namespaces; exec setpriv --bounding-set -sys_admin --inh-caps -sys_admin";
            // A limit of the namespace it is written in, so of nobody else.
            let wrap = |words: &str| format!("unshare -Um --map-root-user sh -c '{none} {words}'");
            fs::write(place.at("f"), "one\n").expect("a file");
            let told = place.sh(&wrap("$U run -w $W -- true"));
            assert_eq!(told.code, 125, "{told:?}");
            assert!(
                told.err.starts_with("unclobber: cannot mount ") && told.err.contains("\nhint: "),
                "{told:?}"
            );
            let doctor = place.sh(&wrap("$U doctor $W"));
            assert!(doctor.out.contains("user.max_user_namespaces=0"), "{doctor:?}");
            assert!(doctor.out.contains("sysctl user.max_user_namespaces"), "{doctor:?}");
        },
    );
}

// semantics: G4 G6
#[test]
fn callers_the_daemon_cannot_see() {
    contained(
        "containers::callers_the_daemon_cannot_see",
        Who::Root,
        nothing,
        |place| {
            let m = place.point("m").display().to_string();
            let hidden = |flags: &str, script: &str| {
                fs::write(place.at("f"), "one\n").expect("a file");
                // The guard lives in a pid namespace below; its callers are outside and have no number there.
                place.sh(&format!(
                    "unshare -pf --kill-child $U mount $W {m} {flags} --foreground --linger 0 & \
                 tries=0; until mountpoint -q {m}; do tries=$((tries + 1)); [ $tries -lt 2000 ] || exit 99; done; \
                 cd {m}; {script}; code=$?; cd /; umount {m}; wait; exit $code"
                ))
            };
            let refused = hidden("--owner-by session", "read x < f; echo two > f");
            assert!(refused.code != 0 && refused.err.contains("File exists"), "{refused:?}");
            assert_eq!(text(place.at("f")), "one\n");
            let fixed = hidden("--owner FIX", "echo two > f; cat f; echo three > f && cat f");
            assert_eq!((fixed.code, fixed.out.as_str()), (0, "one\nthree\n"), "{fixed:?}");
            assert!(fixed.err.contains("File exists"), "{fixed:?}");
            let joining = hidden("--owner FIX", "$U run --owner OTHER -- cat f");
            assert!(
                joining.code == 125 && joining.err.contains("cannot be seen"),
                "{joining:?}"
            );
            assert!(joining.err.contains("\nhint: "), "{joining:?}");
        },
    );
}

// semantics: G1
#[test]
fn a_run_in_a_pid_namespace_or_a_changed_root() {
    contained(
        "containers::a_run_in_a_pid_namespace_or_a_changed_root",
        Who::Root,
        nothing,
        |place| {
            core(place, "unshare -pf --mount-proc");
            // The /proc of another pid namespace tells the guard nothing of its callers.
            let blind = place.sh("unshare -pf $U run -w $W -- true");
            assert!(blind.code == 125 && blind.err.contains("\nhint: "), "{blind:?}");
            if tool_is_there("chroot") {
                let root = "mkdir -p $B/root; mount --rbind / $B/root;";
                place.sh_ok(root);
                core(place, "chroot $B/root");
            }
        },
    );
}

/// Lets nobody below make a user namespace. Installed by root, so that set-user-ID programs go on working.
const NO_USER_NAMESPACE: &str = r"
import ctypes, os, platform, struct, sys
def op(code, jt, jf, k): return struct.pack('HBBI', code, jt, jf, k)
unshare = 272 if platform.machine() == 'x86_64' else 97
prog = op(0x20, 0, 0, 0) + op(0x15, 0, 3, unshare) + op(0x20, 0, 0, 16) + op(0x45, 0, 1, 0x10000000)
prog += op(6, 0, 0, 0x50001) + op(6, 0, 0, 0x7fff0000)
buffer = ctypes.create_string_buffer(prog, len(prog))
class Fprog(ctypes.Structure): _fields_ = [('len', ctypes.c_ushort), ('filter', ctypes.c_void_p)]
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(22, 2, ctypes.byref(Fprog(len(prog) // 8, ctypes.addressof(buffer))), 0, 0) == 0, ctypes.get_errno()
os.execvp(sys.argv[1], sys.argv[1:])
";

#[test]
fn without_user_namespaces_the_command_works_on_a_mount_point() {
    let name = "containers::without_user_namespaces_the_command_works_on_a_mount_point";
    contained(name, Who::Root, nothing, |place| {
        fs::write(place.base().join("filter.py"), NO_USER_NAMESPACE).expect("the filter");
        fs::write(place.at("f"), "one\n").expect("a file");
        place.sh_ok("chown -R 65534:65534 $W $B/run; mkdir $W/sub");
        let user = "python3 $B/filter.py setpriv --reuid 65534 --regid 65534 --clear-groups";
        if place.sh("python3 $B/filter.py true").code != 0 || !tool_is_there("fusermount3") {
            say(&format!(
                "SKIPPED {name}: system calls cannot be filtered here, or fusermount3 is missing"
            ));
            return;
        }
        let script = "pwd; echo two > f; cat f; echo two > f";
        let done = place.sh(&format!(
            "cd $W && {user} $U run --owner A --linger 60 -- sh -c '{script}'"
        ));
        let point = done.out.lines().next().unwrap_or_default().to_owned();
        assert!(point.starts_with(&place.runtime().display().to_string()), "{done:?}");
        assert!(
            done.code == 0 && done.err.contains(&format!("the command works in {point} instead")),
            "{done:?}"
        );
        assert!(
            done.err.contains("FS_NOT_OBSERVED") && done.out.ends_with("\none\n"),
            "{done:?}"
        );
        assert_eq!(text(place.at("f")), "two\n");
        assert!(
            !std::path::Path::new(&point).exists(),
            "the mount point goes with the command"
        );
        let doctor = place.sh(&format!("{user} $U doctor $W"));
        assert!(
            doctor.code == 0 && doctor.out.contains("warn  user namespace: unshare"),
            "{doctor:?}"
        );
        assert!(
            doctor.out.contains("warn  run: the command will work on a mount point"),
            "{doctor:?}"
        );
        let none = place.sh(&format!("mkdir $B/up $B/wk && mount -t tmpfs none $B/up && mkdir $B/up/u $B/up/w && \
             mount -t overlay -o lowerdir=/usr/bin,upperdir=$B/up/u,workdir=$B/up/w none /usr/bin && \
             rm -f /usr/bin/fusermount3 /usr/bin/fusermount && ! command -v fusermount3 && exec {user} $U run -w $W -- true"));
        if none.code == 125 {
            assert!(
                none.err.contains("fusermount3 is not installed") && none.err.contains("\nhint: "),
                "{none:?}"
            );
            let mount = place.sh(&format!("{user} $U mount $W"));
            assert!(
                mount.code == 1 && mount.err.contains("apt-get install fuse3"),
                "{mount:?}"
            );
            let doctor = place.sh(&format!("{user} $U doctor $W"));
            assert!(
                doctor.code == 1 && doctor.out.contains("FAIL  run: there is no way to mount"),
                "{doctor:?}"
            );
            assert!(doctor.out.contains("warn  fusermount3: not installed"), "{doctor:?}");
        } else {
            say(&format!(
                "SKIPPED the absence of fusermount3: it cannot be hidden here: {}",
                none.err.trim()
            ));
        }
    });
}
