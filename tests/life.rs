//! The program's own life: exit codes, start directories, one guard for a directory, its end, and its death.
//!
//! Every test has a run-time directory of its own, so no guard of another is met; what is left is ended by its number.

#![expect(clippy::print_stdout, reason = "a skip is said aloud")]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_unclobber");

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(20);

struct Place {
    _all: TempDir,
    dir: PathBuf,
    runtime: PathBuf,
}

impl Place {
    /// `None`, said aloud, where nothing can be mounted.
    fn new() -> Option<Self> {
        let open = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
        if let Err(error) = open {
            assert!(
                std::env::var_os("UNCLOBBER_REQUIRE_FUSE").is_none(),
                "/dev/fuse: {error}"
            );
            println!("SKIPPED: /dev/fuse: {error}");
            return None;
        }
        let all = TempDir::new_in("/var/tmp").expect("a temporary directory");
        let root = all.path().canonicalize().expect("its path");
        let (dir, runtime) = (root.join("work"), root.join("run"));
        fs::create_dir_all(dir.join("sub/below")).expect("the tree");
        fs::write(dir.join("f"), "one\n").expect("a file");
        fs::create_dir(&runtime).expect("the run-time directory");
        Some(Self {
            _all: all,
            dir,
            runtime,
        })
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .args(words)
            .env("XDG_RUNTIME_DIR", &self.runtime)
            .env_remove("RUST_LOG");
        command.current_dir(&self.dir).stdin(Stdio::null());
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("the program starts")
    }

    fn files(&self, ending: &str) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.runtime.join("unclobber")) else {
            return Vec::new();
        };
        let paths = entries.flatten().map(|entry| entry.path());
        paths
            .filter(|path| path.extension().is_some_and(|found| found == ending))
            .collect()
    }

    fn guards(&self) -> Vec<i32> {
        let texts = self
            .files("pid")
            .into_iter()
            .filter_map(|path| fs::read_to_string(path).ok());
        texts.filter_map(|text| text.trim().parse().ok()).collect()
    }

    fn kill_guard(&self, signal: i32) {
        let guards = self.guards();
        assert_eq!(guards.len(), 1, "one guard: {guards:?}");
        unclobber::sys::kill(guards[0], signal).expect("kill");
        until("the guard is gone", || {
            !Path::new(&format!("/proc/{}", guards[0])).exists()
        });
    }

    fn is_mounted(&self) -> bool {
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
        mounts
            .lines()
            .any(|line| line.contains(" - fuse.unclobber ") && line.contains(&format!(" {} ", self.dir.display())))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        while self.is_mounted() && unclobber::sys::umount(&self.dir, true).is_ok() {}
        for guard in self.guards() {
            // A number that was left by a killed guard may be anybody's by now.
            let name = fs::read_to_string(format!("/proc/{guard}/comm")).unwrap_or_default();
            if name.trim() == "unclobber" {
                drop(unclobber::sys::kill(guard, unclobber::sys::SIGTERM));
                until("the guard ends", || !Path::new(&format!("/proc/{guard}")).exists());
            }
        }
    }
}

/// Polls until `condition` holds; a test fails rather than waits for ever.
fn until(what: &str, condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::yield_now();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| unreachable!("{output:?}"))
}

#[test]
fn exit_codes_are_the_commands_or_say_what_failed() {
    let Some(place) = Place::new() else { return };
    let sh = |script: &str| code(&place.run(&["run", "--", "sh", "-c", script]));
    assert_eq!(
        (sh("exit 0"), sh("exit 7"), sh("kill -9 $$"), sh("kill $$")),
        (0, 7, 137, 143)
    );
    assert_eq!(code(&place.run(&["run", "--", "no-such-command"])), 127);
    assert_eq!(code(&place.run(&["run", "--", "./f"])), 126);
    assert_eq!(code(&place.run(&["run", "--bogus", "--", "true"])), 2);
    for words in [
        ["run", "-w", "/absent", "true"],
        ["run", "-w", "/", "true"],
        ["run", "-w", "f", "true"],
    ] {
        let output = place.run(&words);
        let told = text(&output.stderr);
        assert_eq!(code(&output), 125, "{told}");
        assert!(told.starts_with("unclobber: ") && told.contains("\nhint: "), "{told}");
    }
}

#[test]
fn the_command_starts_where_it_was_started_if_that_is_inside() {
    let Some(place) = Place::new() else { return };
    let inside = |from: &Path| {
        let workspace = place.dir.display().to_string();
        let output = place
            .command(&["run", "-w", &workspace, "--", "pwd"])
            .current_dir(from)
            .output();
        text(&output.expect("the program starts").stdout).trim().to_owned()
    };
    let sub = place.dir.join("sub/below");
    assert_eq!(inside(&sub), sub.display().to_string());
    assert_eq!(inside(Path::new("/")), place.dir.display().to_string());
}

#[test]
fn the_mount_is_seen_by_the_command_alone_and_goes_with_it() {
    let Some(place) = Place::new() else { return };
    let output = place.run(&[
        "run",
        "--",
        "sh",
        "-c",
        "grep -c \"fuse.unclobber $PWD \" /proc/self/mountinfo",
    ]);
    assert_eq!(text(&output.stdout), "1\n");
    assert!(!place.is_mounted());
    until("the guard ends", || {
        place.files("sock").is_empty() && place.files("lock").is_empty()
    });
}

#[test]
fn many_at_once_have_one_guard() {
    let Some(place) = Place::new() else { return };
    let script = "read word; grep -c \"fuse.unclobber $PWD \" /proc/self/mountinfo";
    let start = |_| {
        let mut command = place.command(&["run", "--", "sh", "-c", script]);
        // A test that fails closes the pipe, and the command ends.
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts")
    };
    let children: Vec<_> = (0..8).map(start).collect();
    let mounts = || {
        text(&place.run(&["status"]).stdout)
            .matches("seen by one run only")
            .count()
    };
    until("all are mounted", || mounts() == 8);
    assert_eq!((place.guards().len(), place.files("sock").len()), (1, 1));
    for mut child in children {
        let word = child.stdin.take().expect("a pipe").write_all(b"go\n");
        word.expect("the command listens");
        let output = child.wait_with_output().expect("the command ends");
        assert_eq!((code(&output), text(&output.stdout).as_str()), (0, "1\n"));
    }
}

#[test]
fn a_named_owner_goes_on_where_it_was() {
    let Some(place) = Place::new() else { return };
    let as_a = |script: &str| place.run(&["run", "--owner", "A", "--", "sh", "-c", script]);
    let refused = as_a("echo two > f");
    assert_ne!(code(&refused), 0);
    let told = text(&refused.stderr);
    let is_refusal = |line: &str| line.starts_with("unclobber: ") && line.contains("FS_NOT_OBSERVED");
    assert!(told.lines().any(is_refusal), "{told}");
    assert_eq!(code(&as_a("cat f")), 0);
    let guard = place.guards();
    assert_eq!(code(&as_a("echo two > f")), 0);
    assert_eq!(place.guards(), guard);
    place.kill_guard(unclobber::sys::SIGTERM);
    assert!(place.files("sock").is_empty());
}

#[test]
fn guards_of_a_directory_and_of_one_below_it_are_told_of_each_other() {
    let Some(place) = Place::new() else { return };
    let told = |words: &[&str]| {
        let output = place.run(words);
        assert_eq!(code(&output), 0, "{output:?}");
        text(&output.stderr)
    };
    let sub = place.dir.join("sub");
    let (dir, sub) = (place.dir.to_str().expect("a path"), sub.to_str().expect("a path"));
    assert_eq!(told(&["run", "--owner", "A", "--", "true"]), "");
    let below = told(&["run", "--workspace", sub, "--owner", "B", "--linger", "0", "--", "true"]);
    assert!(
        below.contains(&format!("{sub} is inside {dir}, which is guarded already")),
        "{below}"
    );
    // The step: one guard, and nothing to say.
    let joined = [
        "run",
        "--workspace",
        dir,
        "--owner",
        "B",
        "--",
        "sh",
        "-c",
        "cd sub && pwd",
    ];
    assert_eq!(told(&joined), "");
    place.kill_guard(unclobber::sys::SIGTERM);
    assert!(told(&["run", "--workspace", sub, "--owner", "B", "--", "true"]).is_empty());
    let above = told(&["run", "--owner", "A", "--", "true"]);
    assert!(
        above.contains(&format!("{sub}, inside {dir}, is guarded already")),
        "{above}"
    );
}

/// Whether a guard, by number, watches the filesystem of its directory.
fn is_watching(pid: i32) -> bool {
    let entries = fs::read_dir(format!("/proc/{pid}/fdinfo")).expect("the guard's descriptors");
    let texts = entries.filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok());
    texts.into_iter().any(|text| text.contains("fanotify sdev:"))
}

#[test]
fn a_guard_that_lingers_watches_nothing_until_there_is_a_mount_again() {
    let Some(place) = Place::new() else { return };
    assert_eq!(code(&place.run(&["run", "--owner", "A", "--", "cat", "f"])), 0);
    let guard = place.guards()[0];
    until("nothing is watched", || !is_watching(guard));
    fs::write(place.dir.join("f"), "two\n").expect("an outsider's change");
    let script = "cat f; echo; read word; cat f; echo three > f";
    let mut child = place
        .command(&["run", "--owner", "A", "--", "sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut line = || lines.next().expect("a line").expect("text");
    assert_eq!((line(), line()), ("two".to_owned(), String::new()));
    if unclobber::sys::getuid() == 0 {
        assert!(is_watching(guard), "there is a mount");
    }
    fs::write(place.dir.join("f"), "changed\n").expect("an outsider's change");
    writeln!(child.stdin.take().expect("a pipe"), "go").expect("the command listens");
    assert_eq!(line(), "changed");
    assert!(child.wait().expect("the command ends").success());
    assert_eq!(fs::read_to_string(place.dir.join("f")).expect("f"), "three\n");
}

#[test]
fn a_run_inside_joins_below_and_cannot_mount() {
    let Some(place) = Place::new() else { return };
    let script = format!("{PROGRAM} run --owner B -- true && {PROGRAM} status && {PROGRAM} mount .");
    let output = place.run(&["run", "--owner", "A", "--linger", "0", "--", "sh", "-c", &script]);
    assert!(text(&output.stdout).contains("A/B"), "{output:?}");
    assert_eq!(code(&output), 1);
    assert!(
        text(&output.stderr).contains("already on the unclobber mount"),
        "{output:?}"
    );
}

#[test]
fn a_signal_to_run_reaches_the_command() {
    let Some(place) = Place::new() else { return };
    let script = "trap 'exit 9' TERM; echo > ready; i=0; while [ $i -lt 400 ]; do sleep 0.05; i=$((i+1)); done";
    let mut child = place
        .command(&["run", "--", "sh", "-c", script])
        .spawn()
        .expect("the program starts");
    until("the command runs", || place.dir.join("ready").exists());
    unclobber::sys::kill(i32::try_from(child.id()).expect("a number"), unclobber::sys::SIGTERM).expect("kill");
    assert_eq!(child.wait().expect("the command ends").code(), Some(9));
}

#[test]
fn a_mount_is_made_refused_twice_found_busy_and_taken_away() {
    let Some(place) = Place::new() else { return };
    let dir = place.dir.display().to_string();
    assert_eq!(code(&place.run(&["mount", &dir])), 0);
    assert!(place.is_mounted());
    let twice = place.run(&["mount", &dir]);
    assert_eq!(code(&twice), 1);
    assert!(
        text(&twice.stderr).contains("already on the unclobber mount"),
        "{twice:?}"
    );
    let mut user = Command::new("sleep")
        .arg("1000")
        .current_dir(&place.dir)
        .spawn()
        .expect("sleep");
    let busy = Command::new(PROGRAM)
        .args(["umount", &dir])
        .env("XDG_RUNTIME_DIR", &place.runtime)
        .current_dir("/")
        .output();
    let busy = busy.expect("the program starts");
    user.kill().expect("kill");
    user.wait().expect("the end of sleep");
    assert!(
        text(&busy.stderr).contains(&format!("process {}", user.id())),
        "{busy:?}"
    );
    // Typed in a shell that is in it itself.
    let within = |script: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", &script.replace("UMOUNT", &format!("'{PROGRAM}' umount '{dir}'"))]);
        let shell = shell.env("XDG_RUNTIME_DIR", &place.runtime).current_dir(&place.dir);
        shell.output().expect("the shell starts")
    };
    let typed = within("UMOUNT; exit $?");
    let said = text(&typed.stderr);
    assert!(
        code(&typed) == 1 && said.contains("in use by sh (process") && said.contains("cd out of it"),
        "{said}"
    );
    // Nobody uses it but the command itself.
    let alone = within("exec UMOUNT");
    assert_eq!(code(&alone), 0, "{alone:?}");
    assert!(!place.is_mounted());
    let status = text(&place.run(&["status"]).stdout);
    assert!(!status.contains(&dir), "{status}");
    assert_eq!(code(&place.run(&["umount", &dir])), 1);
}

#[test]
fn a_dead_mount_is_cleared_by_the_next_command() {
    let Some(place) = Place::new() else { return };
    let dir = place.dir.display().to_string();
    let outside = |words: &[&str]| {
        place
            .command(words)
            .current_dir("/")
            .output()
            .expect("the program starts")
    };
    assert_eq!(code(&outside(&["mount", &dir])), 0);
    place.kill_guard(unclobber::sys::SIGKILL);
    assert!(fs::metadata(place.dir.join("f")).is_err());
    let output = outside(&["run", "-w", &dir, "--", "cat", &format!("{dir}/f")]);
    assert_eq!((code(&output), text(&output.stdout).as_str()), (0, "one\n"));
    assert!(!place.is_mounted());
    assert_eq!(code(&outside(&["mount", &dir])), 0);
    place.kill_guard(unclobber::sys::SIGKILL);
    assert_eq!(code(&outside(&["mount", &dir])), 0);
    assert_eq!(
        fs::read_to_string(place.dir.join("f")).expect("readable again"),
        "one\n"
    );
}

#[test]
fn of_a_dead_mount_it_is_said_what_helps_and_nothing_clears_it_unasked() {
    let Some(place) = Place::new() else { return };
    let dir = place.dir.display().to_string();
    let file = format!("{dir}/f");
    let outside = |words: &[&str]| {
        let mut command = place.command(words);
        command.current_dir("/").output().expect("the program starts")
    };
    assert_eq!(code(&outside(&["mount", &dir])), 0);
    fs::write(place.dir.join("new"), "made\n").expect("a change that is on record");
    let (shown, said) = (place.runtime.join("shown"), place.runtime.join("said"));
    let mut follower = place.command(&["log", "--follow", &dir]);
    let mut follower = follower
        .current_dir("/")
        .stdout(fs::File::create(&shown).expect("a file"))
        .stderr(fs::File::create(&said).expect("a file"))
        .spawn()
        .expect("log --follow");
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    until("it follows", || read(&shown).contains("create new"));
    place.kill_guard(unclobber::sys::SIGKILL);
    until("it says that the guard has ended", || read(&said).contains("hint: "));
    let told = read(&said);
    follower.kill().and_then(|()| follower.wait()).expect("its end");
    assert!(
        told.contains("has ended without a word") && told.contains("the directory is whole"),
        "{told}"
    );
    let status = text(&outside(&["status"]).stdout);
    assert!(
        status.contains(&format!("{dir}  its guard has ended"))
            && status.contains("the directory beneath is whole")
            && status.contains(&format!("unclobber umount {dir}")),
        "{status}"
    );
    let listed = text(&outside(&["status", "--json"]).stdout);
    assert!(listed.contains("\"dead_mounts\": [\n"), "{listed}");
    for words in [
        vec!["status", &dir],
        vec!["why", &file],
        vec!["attic", "list", &dir],
        vec!["undo", &dir],
        vec!["log", &dir],
        vec!["report", &dir],
        vec!["rules", &file],
        vec!["allow", &file],
        vec!["doctor", &dir],
    ] {
        let output = outside(&words);
        let errors = text(&output.stderr);
        let failed = if words[0] == "why" { 125 } else { 1 };
        assert_eq!(code(&output), failed, "{words:?}: {output:?}");
        assert!(
            errors.contains("its guard has ended")
                && errors.contains("the directory beneath is whole")
                && errors.contains(&format!("hint: take the dead mount away: unclobber umount {dir}")),
            "{words:?}: {errors}"
        );
        assert!(place.is_mounted(), "{words:?} has cleared it");
    }
    assert_eq!(code(&outside(&["umount", &dir])), 0);
    assert_eq!(fs::read_to_string(&file).expect("whole"), "one\n");
    let status = text(&outside(&["status"]).stdout);
    assert!(!status.contains(&dir), "{status}");
}

#[test]
fn inside_a_run_mounting_and_unmounting_have_hints_of_their_own() {
    let Some(place) = Place::new() else { return };
    let dir = place.dir.display().to_string();
    let inside = |words: &str| {
        let line = format!("cd / && '{PROGRAM}' {words}");
        text(&place.run(&["run", "--owner", "A", "--", "sh", "-c", &line]).stderr)
    };
    let umount = inside(&format!("umount {dir}"));
    assert!(umount.contains("hint: end the command or shell"), "{umount}");
    let mount = inside(&format!("mount {dir}"));
    assert!(
        mount.contains("hint: owner A works in a guarded view here already"),
        "{mount}"
    );
    let other = place.runtime.join("other");
    fs::create_dir(&other).expect("a directory");
    let mount = inside(&format!("mount {}", other.display()));
    assert!(mount.contains("cannot mount: mount outside the run"), "{mount}");
    // On a mount that everybody sees, somebody outside can end it.
    let mut command = place.command(&["mount", &dir]);
    assert_eq!(code(&command.current_dir("/").output().expect("mount")), 0);
    let umount = inside(&format!("umount {dir}"));
    assert!(
        umount.contains(&format!(
            "hint: outside the run, or by whoever mounted it: unclobber umount {dir}"
        )),
        "{umount}"
    );
    assert!(place.is_mounted());
}

#[test]
fn who_asks_for_nothing_is_told_how_to_begin() {
    let output = Command::new(PROGRAM).output().expect("the program starts");
    let told = text(&output.stderr);
    assert_eq!(code(&output), 2);
    assert!(output.stdout.is_empty() && told.lines().count() < 20, "{output:?}");
    for part in ["unclobber run -- CMD", "unclobber why FILE", "unclobber help"] {
        assert!(told.contains(part), "{part}\n{told}");
    }
}

#[test]
fn the_mount_helper_and_its_options() {
    let Some(place) = Place::new() else { return };
    if unclobber::sys::geteuid() != 0 {
        println!("SKIPPED: mount(8) calls its helpers as root");
        return;
    }
    let helper = place.runtime.join("mount.fuse.unclobber");
    symlink(PROGRAM, &helper).expect("a link");
    let point = place.runtime.join("point");
    fs::create_dir(&point).expect("the mount point");
    let mount = |options: &str| {
        let mut command = Command::new(&helper);
        command
            .arg(&place.dir)
            .arg(&point)
            .args(["-n", "-o", options])
            .env("XDG_RUNTIME_DIR", &place.runtime);
        command.output().expect("the helper starts")
    };
    let wrong = mount("rw,cheese");
    assert_eq!(code(&wrong), 2);
    assert!(text(&wrong.stderr).contains("cheese"), "{wrong:?}");
    assert_eq!(code(&mount("rw,noexec,fsname=a\\,b,mode=observe,nofail")), 0);
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
    let line = mounts
        .lines()
        .find(|line| line.contains(&format!(" {} ", point.display())))
        .expect("the mount");
    assert!(
        line.contains("noexec") && line.contains("fuse.unclobber a,b "),
        "{line}"
    );
    assert!(text(&place.run(&["status"]).stdout).contains("observe"));
    // As of any filesystem that mount(8) mounts, unless it says otherwise.
    assert!(!line.contains("nosuid") && !line.contains("nodev"), "{line}");
    let file = point.join("new");
    fs::write(&file, "x").expect("written");
    let wrong = mount("remount,ro,cheese");
    assert_eq!(code(&wrong), 2, "{wrong:?}");
    assert_eq!(
        code(&mount(
            "remount,ro,nosuid,mode=observe,user_id=0,group_id=0,default_permissions,allow_other"
        )),
        0
    );
    let denied = fs::write(&file, "y").expect_err("read-only");
    assert_eq!(denied.raw_os_error(), Some(nix::errno::Errno::EROFS as i32));
    assert_eq!(code(&mount("remount,rw")), 0);
    fs::write(&file, "y").expect("written");
    assert_eq!(code(&place.run(&["umount", &point.display().to_string()])), 0);
    let nothing = mount("remount,ro");
    assert_eq!(code(&nothing), 1, "{nothing:?}");
}
