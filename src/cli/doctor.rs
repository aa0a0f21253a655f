//! `unclobber doctor`: can this machine, container or CI runner mount, and what to do if it cannot.
//!
//! It never changes the machine; what it makes in the directory it looks at, it takes away again.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use serde_json::json;

use super::args::DoctorArgs;
use super::folding;
use super::fuse_options::MountFlags;
use super::guarding;
use super::mounting;
use super::output::{FAILED, Problem, Style, print};
use super::place::{self, Place};
use super::run_child::{enter_private_mounts, enter_user_namespace};
use crate::control::{Surroundings, find_helper};
use crate::rules::{self, RuleList};
use crate::sys::{self, SysError, consts};

/// The version of the JSON form.
const VERSION: u32 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    Ok,
    Warn,
    Fail,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Check {
    name: &'static str,
    level: Level,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cure: Option<String>,
}

fn good(name: &'static str, found: impl ToString) -> Check {
    Check {
        name,
        level: Level::Ok,
        found: found.to_string(),
        cure: None,
    }
}

fn poor(name: &'static str, level: Level, found: impl ToString, cure: impl ToString) -> Check {
    Check {
        name,
        level,
        found: found.to_string(),
        cure: Some(cure.to_string()),
    }
}

/// Looks and tells.
pub(crate) fn doctor(args: &DoctorArgs) -> Result<ExitCode, Problem> {
    let place = place::resolve(args.dir.as_deref().unwrap_or_else(|| Path::new(".")))?;
    let checks = look(&place);
    let works = checks.iter().all(|check| check.level != Level::Fail);
    if args.json {
        let report = json!({ "v": VERSION, "works": works, "checks": checks });
        let text = serde_json::to_string_pretty(&report).map_err(|error| Problem::new("doctor", error))?;
        print(&format!("{text}\n"))?;
    } else {
        print(&describe(&checks, works, Style::of_output()))?;
    }
    Ok(if works {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(FAILED)
    })
}

fn look(place: &Place) -> Vec<Check> {
    let root = sys::geteuid() == 0;
    let ways = [private_mounts(root), user_namespace()];
    let helper = helper();
    let device = fuse_device();
    let run = run_check(&device, &ways, &helper);
    let mut checks = vec![device, kernel()];
    checks.extend(ways.into_iter().flatten());
    checks.extend([helper, fuse_conf(), run, passthrough(root)]);
    checks.extend(root.then(walls));
    checks.extend(directory(place));
    checks.push(own_rules(place));
    checks.push(runtime_dir());
    checks
}

fn fuse_device() -> Check {
    let name = "/dev/fuse";
    match sys::open_fuse_device() {
        Ok(_) => good(name, "can be opened"),
        Err(error) => poor(name, Level::Fail, place::cause(&error), mounting::call_hint(&error)),
    }
}

fn kernel() -> Check {
    let release = sys::kernel_release();
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version >= (5, 10) {
        good("kernel", release)
    } else {
        poor(
            "kernel",
            Level::Warn,
            format!("{release} is older than 5.10"),
            "use a newer kernel",
        )
    }
}

/// Why a child could not mount.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ChildError {
    told: String,
    hint: String,
}

/// Whether a child of this process can mount a FUSE connection (which nobody serves) once it is in the namespaces
/// that `enter` makes.
fn try_in_child(enter: fn() -> Result<(), SysError>) -> Result<(), ChildError> {
    let broken = |error: &dyn std::fmt::Display| ChildError {
        told: error.to_string(),
        hint: String::new(),
    };
    let (mut ours, theirs) = UnixStream::pair().map_err(|error| broken(&error))?;
    match sys::fork_process().map_err(|error| broken(&error))? {
        sys::Side::Child => {
            let mounted = enter()
                .and_then(|()| mounting::by_call("doctor", Path::new("/"), MountFlags::default(), false).map(drop));
            let word = match mounted {
                Ok(()) => "ok".to_owned(),
                Err(error) => format!("{}\t{}", mounting::tell(&error), mounting::call_hint(&error)),
            };
            let sent = io::Write::write_all(&mut &theirs, word.as_bytes());
            sys::end_now(i32::from(sent.is_err()));
        }
        sys::Side::Parent(pid) => {
            drop(theirs);
            let mut word = String::new();
            let read = io::Read::read_to_string(&mut ours, &mut word);
            sys::wait(pid, false, false).map_err(|error| broken(&error))?;
            read.map_err(|error| broken(&error))?;
            child_word(&word)
        }
    }
}

fn child_word(word: &str) -> Result<(), ChildError> {
    if word == "ok" {
        return Ok(());
    }
    let (told, hint) = word.split_once('\t').unwrap_or(("the child ended without a word", ""));
    Err(ChildError {
        told: told.to_owned(),
        hint: hint.to_owned(),
    })
}

fn private_mounts(root: bool) -> Option<Check> {
    let name = "private mount namespace";
    root.then(|| match try_in_child(enter_private_mounts) {
        Ok(()) => good(name, "can be made and mounted in"),
        Err(error) => poor(name, Level::Warn, error.told, error.hint),
    })
}

fn user_namespace() -> Option<Check> {
    let name = "user namespace";
    Some(match try_in_child(enter_user_namespace) {
        Ok(()) => good(name, "can be made and mounted in"),
        Err(error) => {
            let switches = [
                "kernel/unprivileged_userns_clone",
                "user/max_user_namespaces",
                "kernel/apparmor_restrict_unprivileged_userns",
            ];
            let told = switches.iter().filter_map(|switch| {
                let value = fs::read_to_string(format!("/proc/sys/{switch}")).ok()?;
                Some(format!("{}={}", switch.replace('/', "."), value.trim()))
            });
            let told: Vec<String> = told.collect();
            poor(
                name,
                Level::Warn,
                format!("{} ({})", error.told, told.join(", ")),
                error.hint,
            )
        }
    })
}

fn helper() -> Check {
    let name = "fusermount3";
    let Some(path) = find_helper() else {
        return poor(
            name,
            Level::Warn,
            "not installed: `mount` works for root only",
            "as root: apt-get install fuse3",
        );
    };
    let set_user_id = fs::metadata(&path).is_ok_and(|found| found.mode() & 0o4000 != 0 && found.uid() == 0);
    if set_user_id {
        good(name, path.display())
    } else {
        let cure = format!("as root: chmod u+s {}", path.display());
        poor(
            name,
            Level::Warn,
            "not set-user-ID root: of no use to ordinary users",
            cure,
        )
    }
}

fn fuse_conf() -> Check {
    let name = "/etc/fuse.conf";
    let text = fs::read_to_string(name).unwrap_or_default();
    let allows = text.lines().any(|line| line.trim() == "user_allow_other");
    let found = if allows {
        "user_allow_other is set"
    } else {
        "user_allow_other is not set (-o allow_other is for root only)"
    };
    good(name, found)
}

fn run_check(device: &Check, ways: &[Option<Check>; 2], helper: &Check) -> Check {
    let name = "run";
    if ways.iter().flatten().any(|way| way.level == Level::Ok) {
        return good(name, "the directory can be mounted over itself for the command alone");
    }
    let cure = ways
        .iter()
        .flatten()
        .find_map(|way| way.cure.clone())
        .unwrap_or_default();
    // The helper opens the device as the user who calls it.
    if helper.level == Level::Ok && device.level == Level::Ok {
        return poor(
            name,
            Level::Warn,
            "the command will work on a mount point instead of in the directory",
            cure,
        );
    }
    poor(name, Level::Fail, "there is no way to mount", cure)
}

fn passthrough(root: bool) -> Check {
    let name = "data at native speed";
    let release = sys::kernel_release();
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version < (6, 9) {
        return poor(
            name,
            Level::Warn,
            "the kernel has no FUSE passthrough; the guard serves data",
            "use Linux 6.9 or later",
        );
    }
    if !has_admin() {
        let (why, cure) = if root {
            (
                "CAP_SYS_ADMIN in the machine's own user namespace is missing",
                "let the container have it, or go on at lower speed",
            )
        } else {
            (
                "ordinary users may not use FUSE passthrough",
                "run as root, or go on at lower speed",
            )
        };
        return poor(name, Level::Warn, format!("{why}; the guard serves data"), cure);
    }
    good(name, "FUSE passthrough")
}

/// Whether commands that root runs are kept from each other.
fn walls() -> Check {
    let name = "Landlock";
    if sys::has_domains() {
        good(name, "commands of root are walled off from each other")
    } else {
        poor(
            name,
            Level::Warn,
            "commands of root can walk out of their view through each other's /proc/PID/root",
            "use Linux 6.12 or later with Landlock switched on (lsm=), or run commands as different users",
        )
    }
}

/// Whether CAP_SYS_ADMIN is effective in the first user namespace: in a nested one it is not enough for passthrough.
fn has_admin() -> bool {
    // Only the first one maps every user id.
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    if map.split_whitespace().nth(2) != Some("4294967295") {
        return false;
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective
        .and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok())
        .unwrap_or(0);
    bits & (1 << 21) != 0
}

/// What the file system of the directory offers. Tried in a directory of its own that is taken away again.
fn directory(place: &Place) -> Vec<Check> {
    let name = "directory";
    if let Some(guarded) = &place.guarded {
        let found = format!(
            "{} is on the unclobber mount at {}",
            place.path.display(),
            guarded.mount.point.display()
        );
        return vec![good(name, found)];
    }
    let mut checks = vec![match sys::handle_of(&place.fd) {
        Ok(_) => good("file handles", "supported"),
        Err(error) => poor(
            "file handles",
            Level::Warn,
            place::cause(&error),
            "nothing to do: files are opened by name instead",
        ),
    }];
    checks.push(if folding::folds_case(place) {
        let found = "names that differ only in case are one name: it cannot be guarded";
        poor(name, Level::Fail, found, "use a filesystem that tells them apart")
    } else {
        good("names", "told apart by case")
    });
    let trial = place.path.join(format!(".unclobber-doctor-{}", std::process::id()));
    if let Err(error) = fs::create_dir(&trial) {
        let found = format!("nothing can be created in {}: {error}", place.path.display());
        checks.push(poor(
            name,
            Level::Warn,
            found,
            "make it writable if commands are to change it",
        ));
        return checks;
    }
    checks.extend(try_names(&trial));
    if let Err(error) = fs::remove_dir_all(&trial) {
        log::warn!("{}: {error}", trial.display());
    }
    checks
}

/// The directory's own rules: nothing is mounted over it while they cannot be read.
fn own_rules(place: &Place) -> Check {
    let name = "rules";
    // What is on a mount is not read: that would be an observation.
    let problem = match &place.guarded {
        Some(guarded) => guarding::reach_mounted(guarded)
            .ok()
            .and_then(|mut client| client.rules(None, None, false).ok()?.problem),
        None => rules::read(&place.fd, Some(&place.path))
            .map_err(|problem| problem.to_string())
            .and_then(|(found, _)| RuleList::compile(found))
            .err(),
    };
    match problem {
        None => good(name, format!("{} can be read, or is not there", rules::FILE_NAME)),
        Some(problem) => poor(
            name,
            Level::Fail,
            problem,
            "correct that line of the file, or take the file away; `unclobber help rules` describes it",
        ),
    }
}

fn try_names(trial: &Path) -> Vec<Check> {
    let unnamed = match open_directory(trial).and_then(|dir| sys::open_tmpfile(dir, consts::O_RDWR, 0o600)) {
        Ok(_) => good("unnamed files (O_TMPFILE)", "supported"),
        Err(error) => {
            let cure = "nothing to do: new files appear at once there, as with --create direct";
            poor("unnamed files (O_TMPFILE)", Level::Warn, place::cause(&error), cure)
        }
    };
    let create = |name: &str| OpenOptions::new().write(true).create_new(true).open(trial.join(name));
    let made = create("a").and_then(|_| create("b"));
    let links = match made.and_then(|_| fs::hard_link(trial.join("a"), trial.join("c"))) {
        Ok(()) => good("hard links", "supported"),
        Err(error) => poor("hard links", Level::Warn, error, "use --create direct"),
    };
    let exchanged = open_directory(trial).and_then(|dir| sys::exchange_names(&dir, "a", "b"));
    let exchange = match exchanged {
        Ok(()) => good("exchange of names", "supported"),
        Err(error) => {
            let cure = "use another file system, or expect outsiders' races to be reported instead of undone";
            poor("exchange of names", Level::Warn, place::cause(&error), cure)
        }
    };
    vec![unnamed, links, exchange]
}

fn open_directory(path: &Path) -> sys::Result<OwnedFd> {
    sys::open_path(path, consts::O_PATH | consts::O_DIRECTORY)
}

fn runtime_dir() -> Check {
    let name = "run-time directory";
    match Surroundings::real().choose() {
        Ok(dir) => good(name, dir.path().display()),
        Err(error) => poor(
            name,
            Level::Fail,
            error,
            "set XDG_RUNTIME_DIR to a directory of yours that only you can enter",
        ),
    }
}

fn describe(checks: &[Check], works: bool, style: Style) -> String {
    let mut text = String::new();
    for check in checks {
        let mark = match check.level {
            Level::Ok => style.paint("32", "ok  "),
            Level::Warn => style.paint("33", "warn"),
            Level::Fail => style.paint("31", "FAIL"),
        };
        text.push_str(&format!("{mark}  {}: {}\n", check.name, check.found));
        if let Some(cure) = &check.cure {
            text.push_str(&format!("      {}: {cure}\n", style.paint("36", "cure")));
        }
    }
    text.push_str(if works {
        "`unclobber run` can work here\n"
    } else {
        "`unclobber run` cannot work here\n"
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_works_when_one_way_does() {
        let ok = || good("w", "");
        let bad = || poor("w", Level::Warn, "", "cure it");
        assert_eq!(run_check(&ok(), &[Some(ok()), Some(bad())], &bad()).level, Level::Ok);
        assert_eq!(run_check(&ok(), &[None, Some(bad())], &ok()).level, Level::Warn);
        assert_eq!(run_check(&bad(), &[None, Some(bad())], &ok()).level, Level::Fail);
        let none = run_check(&ok(), &[None, Some(bad())], &bad());
        assert_eq!((none.level, none.cure.as_deref()), (Level::Fail, Some("cure it")));
    }

    #[test]
    fn a_directory_is_left_as_it_was() {
        let tmp = tempfile::tempdir().unwrap();
        let place = place::resolve(tmp.path()).unwrap();
        let checks = directory(&place);
        assert!(checks.iter().any(|check| check.name == "hard links"), "{checks:?}");
        assert_eq!(fs::read_dir(tmp.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_childs_word_is_understood() {
        assert_eq!(child_word("ok"), Ok(()));
        let error = child_word("unshare(): no\tcure").unwrap_err();
        assert_eq!((error.told.as_str(), error.hint.as_str()), ("unshare(): no", "cure"));
        assert!(child_word("").is_err());
    }
}
