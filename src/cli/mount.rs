//! `unclobber mount`: a guarded view of a directory that lasts until it is unmounted, and `mount.fuse.unclobber`,
//! the same as mount(8) calls it.
//!
//! It never mounts where the guard would have to go through its own mount.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::args::{LogArgs, MountArgs};
use super::fuse_options::{self, FuseOptions, MountFlags};
use super::guarding;
use super::mounting;
use super::output::{Problem, USAGE, note};
use super::place::{self, Place};
use crate::control::{Attach, Attribution, Client, unmount};
use crate::sys::{self, Signals};

/// Mounts; with `--foreground` stays until the mount ends.
pub(crate) fn mount(args: &MountArgs, log: &LogArgs) -> Result<ExitCode, Problem> {
    let mut args = args.clone();
    let options = fuse_options::apply(&mut args).map_err(|why| {
        Problem::new("wrong command line", why)
            .hint("`unclobber help options` lists the mount options")
            .code(USAGE)
    })?;
    let place = place::resolve_to_mount(&args.dir)?;
    let target = args.mountpoint.as_deref().map(place::resolve_to_mount).transpose()?;
    check_places(&place, target.as_ref()).map_err(|problem| inside_a_run(problem, &place))?;
    let point = target
        .as_ref()
        .map_or_else(|| place.path.clone(), |target| target.path.clone());
    drop(target);
    let signals = args.foreground.then(hold_signals).transpose()?;
    // The guard must not write through its own mount.
    args.policy.recording.resolved(&point)?;
    let mut client = guarding::reach(&place, &args.policy, log)?;
    guarding::check_rules(&mut client, &place)?;
    let mount =
        attach(&mut client, &args, &options, &place, &point).map_err(|problem| inside_a_run(problem, &place))?;
    if let Ok(here) = std::env::current_dir()
        && here.starts_with(&point)
    {
        note(&format!(
            "this shell is still in the directory beneath the mount, which is not guarded: cd {}",
            here.display()
        ));
    }
    drop(place);
    match signals {
        Some(signals) => stay(&mut client, mount, &signals, &point),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// What helps is something else where a `run` has started this process.
fn inside_a_run(problem: Problem, place: &Place) -> Problem {
    let Some(owner) = guarding::own_owner() else {
        return problem;
    };
    problem.hint(if place.guarded.is_some() {
        format!("owner {owner} works in a guarded view here already: nothing needs to be mounted")
    } else {
        format!("what `unclobber run` has started (here as owner {owner}) cannot mount: mount outside the run")
    })
}

fn check_places(place: &Place, target: Option<&Place>) -> Result<(), Problem> {
    let dir = place.path.display();
    if let Some(guarded) = &place.guarded {
        let point = guarded.mount.point.display();
        return Err(Problem::new(
            format!("cannot mount {dir}"),
            format!("it is already on the unclobber mount at {point}"),
        )
        .hint(format!("use that mount, or end it first: unclobber umount {point}")));
    }
    guarding::check_guardable(place)?;
    let Some(target) = target else { return Ok(()) };
    let point = target.path.display();
    let what = format!("cannot mount {dir} at {point}");
    if let Some(guarded) = &target.guarded {
        let there = guarded.mount.point.display();
        return Err(Problem::new(
            what,
            format!("the mount point is already on the unclobber mount at {there}"),
        )
        .hint(format!(
            "choose another mount point, or end that mount first: unclobber umount {there}"
        )));
    }
    if target.path == Path::new("/") {
        return Err(Problem::new(what, "a mount over / would be seen by nobody").hint("choose another mount point"));
    }
    guarding::check_no_kernel_view(target, "mount at")?;
    if target.path != place.path && target.path.starts_with(&place.path) {
        return Err(Problem::new(
            what,
            "the mount point is inside the directory, so the view would contain itself",
        )
        .hint("mount over the directory itself (leave MOUNTPOINT out), or choose a mount point outside"));
    }
    Ok(())
}

fn hold_signals() -> Result<Signals, Problem> {
    Signals::hold(&[sys::SIGINT, sys::SIGTERM, sys::SIGHUP])
        .map_err(|error| Problem::new("cannot watch for signals", error))
}

fn attach(
    client: &mut Client,
    args: &MountArgs,
    options: &FuseOptions,
    place: &Place,
    point: &Path,
) -> Result<u64, Problem> {
    let flags = mounting::inherit(options, &place.fd);
    let source = options
        .fsname
        .clone()
        .unwrap_or_else(|| place.path.to_string_lossy().into_owned());
    let multi_user = sys::geteuid() == 0 || options.allow_other || options.default_permissions;
    let fuse = make(&source, point, flags, options, multi_user)?;
    let attribution = match &args.owner {
        Some(name) => Attribution::Owner {
            name: Some(name.clone()),
            process: false,
        },
        None => Attribution::By(args.owner_by.unwrap_or_default()),
    };
    let request = Attach {
        label: point.to_string_lossy().into_owned(),
        attribution,
        policy: args.policy.policy(),
        multi_user,
        read_only: flags.read_only,
        noatime: flags.noatime,
        strictatime: flags.strictatime,
        only_ids: None,
        namespace_of: None,
        linger: args.policy.linger.map(|time| time.as_secs()),
        rules: args.policy.rules.request(),
    };
    let attached = client.attach(request, fuse.as_fd()).map_err(|error| {
        if let Err(error) = unmount(point, true) {
            log::warn!("{error}");
        }
        guarding::client_problem(format!("cannot guard {}", place.path.display()), &error)
    })?;
    log::info!(
        "{} is guarded at {}, data through the {:?}",
        place.path.display(),
        point.display(),
        attached.data
    );
    Ok(attached.mount)
}

fn make(
    source: &str,
    point: &Path,
    flags: MountFlags,
    options: &FuseOptions,
    multi_user: bool,
) -> Result<OwnedFd, Problem> {
    if sys::geteuid() == 0 {
        return mounting::by_call(source, point, flags, multi_user).map_err(|error| {
            Problem::new(format!("cannot mount at {}", point.display()), mounting::tell(&error))
                .hint(mounting::call_hint(&error))
        });
    }
    if !flags.nosuid || !flags.nodev {
        return Err(Problem::new("mount options suid and dev", "only root may use them").hint("leave them out"));
    }
    mounting::by_helper(source, point, flags, options.allow_other || options.default_permissions)
}

/// Waits until the mount ends; a signal ends it.
fn stay(client: &mut Client, mount: u64, signals: &Signals, point: &Path) -> Result<ExitCode, Problem> {
    let fail = |error| guarding::client_problem("cannot wait for the mount's end", &error);
    client.begin_wait(mount).map_err(fail)?;
    loop {
        let waited = signals
            .wait_with(Some(&*client), None)
            .map_err(|error| Problem::new("cannot wait", error))?;
        if waited.1 {
            let lives = client.read_events().map_err(fail)?;
            if !lives {
                return Err(Problem::new(
                    format!("the mount at {} has ended", point.display()),
                    "its guard has gone",
                )
                .hint("mount it again"));
            }
            return Ok(ExitCode::SUCCESS);
        }
        let arrived = signals.next().map_err(|error| Problem::new("cannot wait", error))?;
        if arrived.is_some() {
            unmount(point, true).map_err(|error| Problem::new("cannot unmount", error))?;
        }
    }
}

/// `mount -o remount`, as mount(8) calls its helper: changes what the kernel holds of a mount that is there.
pub(crate) fn remount(args: &MountArgs) -> Result<ExitCode, Problem> {
    let point = args.mountpoint.as_deref().unwrap_or(&args.dir);
    let place = place::resolve(point)?;
    let what = format!("cannot remount {}", place.path.display());
    if place
        .guarded
        .as_ref()
        .is_none_or(|guarded| guarded.mount.point != place.path)
    {
        return Err(Problem::new(what, "no unclobber mount is there"));
    }
    let flags = fuse_options::of_remount(&args.options).map_err(|why| {
        Problem::new(&*what, why)
            .hint("`unclobber help options` lists the mount options")
            .code(USAGE)
    })?;
    sys::remount(&place.path, flags.bits()).map_err(|error| Problem::new(what, mounting::tell(&error)))?;
    Ok(ExitCode::SUCCESS)
}

/// The command line of a mount helper, `SRC MNT [-sfnvrw] [-t TYPE] [-o LIST]`, as that of `mount`.
pub(crate) fn helper_arguments(words: &[OsString]) -> Result<(MountArgs, u8), String> {
    let mut places: Vec<PathBuf> = Vec::new();
    let mut args = MountArgs::default();
    let mut verbose = 0;
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let text = word.to_string_lossy();
        let Some(flags) = text.strip_prefix('-').filter(|flags| !flags.is_empty()) else {
            places.push(PathBuf::from(word));
            continue;
        };
        for (index, flag) in flags.char_indices() {
            let attached = &flags[index + flag.len_utf8()..];
            match flag {
                's' | 'f' | 'n' | 'i' => {}
                'v' => verbose += 1,
                'r' => args.options.push("ro".to_owned()),
                'w' => args.options.push("rw".to_owned()),
                'o' | 't' | 'N' => {
                    let value = if attached.is_empty() {
                        rest.next().map(|value| value.to_string_lossy().into_owned())
                    } else {
                        Some(attached.to_owned())
                    };
                    let value = value.ok_or_else(|| format!("-{flag} needs a value"))?;
                    if flag == 'o' {
                        args.options.push(value);
                    }
                    break;
                }
                _ => return Err(format!("unknown flag -{flag}")),
            }
        }
    }
    let [dir, point] = <[PathBuf; 2]>::try_from(places)
        .map_err(|places| format!("a source and a mount point are needed, {} were given", places.len()))?;
    // mount(8) says `none` or repeats the type where a file system has no source.
    (args.dir, args.mountpoint) = (dir, Some(point));
    Ok((args, verbose))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn helper(words: &[&str]) -> Result<(MountArgs, u8), String> {
        helper_arguments(&words.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn the_helper_understands_what_mount_says() {
        let (args, verbose) = helper(&[
            "/d",
            "/m",
            "-sn",
            "-v",
            "-t",
            "fuse.unclobber",
            "-o",
            "rw,mode=observe",
            "-onoexec",
        ])
        .unwrap();
        assert_eq!(
            (args.dir, args.mountpoint),
            (PathBuf::from("/d"), Some(PathBuf::from("/m")))
        );
        assert_eq!(args.options, ["rw,mode=observe", "noexec"]);
        assert_eq!(verbose, 1);
        assert!(helper(&["/d"]).unwrap_err().contains("mount point"));
        assert!(helper(&["/d", "/m", "-z"]).unwrap_err().contains("-z"));
        assert!(helper(&["/d", "/m", "-o"]).unwrap_err().contains("-o"));
    }

    #[test]
    fn a_mount_point_inside_the_directory_is_refused() {
        let tmp = tempfile::tempdir().unwrap();
        let inside = tmp.path().join("in");
        std::fs::create_dir(&inside).unwrap();
        let (dir, inside) = (place::resolve(tmp.path()).unwrap(), place::resolve(&inside).unwrap());
        assert!(check_places(&dir, Some(&inside)).unwrap_err().cause.contains("inside"));
        assert_eq!(check_places(&inside, Some(&dir)), Ok(()));
        assert_eq!(check_places(&dir, Some(&dir)), Ok(()));
        let root = place::resolve(Path::new("/")).unwrap();
        assert!(check_places(&root, None).is_err());
        assert!(check_places(&dir, Some(&root)).is_err());
    }
}
