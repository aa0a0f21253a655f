//! Making a FUSE mount, by mount(2) or by `fusermount3`, and the problems of doing so.
//!
//! It never serves a mount: it returns the descriptor for the guard.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use super::fuse_options::{FuseOptions, MountFlags, escape};
use super::output::Problem;
use super::place;
use crate::control::find_helper;
use crate::sys::{self, FuseMount, SysError, consts};

/// Mounts by mount(2): needs the right to mount in this namespace. The new connection's descriptor.
pub(crate) fn by_call(
    source: &str,
    target: &Path,
    flags: MountFlags,
    open_to_others: bool,
) -> Result<OwnedFd, SysError> {
    let fuse = sys::open_fuse_device()?;
    let mount = FuseMount {
        fsname: source,
        subtype: "unclobber",
        flags: flags.bits(),
        root_mode: consts::S_IFDIR,
        uid: sys::geteuid(),
        gid: sys::getegid(),
        options: if open_to_others {
            "allow_other,default_permissions"
        } else {
            ""
        },
    };
    sys::mount_fuse(&fuse, target, &mount)?;
    Ok(fuse)
}

/// Mounts by the set-user-ID helper `fusermount3`, for ordinary users.
pub(crate) fn by_helper(
    source: &str,
    target: &Path,
    flags: MountFlags,
    open_to_others: bool,
) -> Result<OwnedFd, Problem> {
    let what = format!("cannot mount at {}", target.display());
    let Some(helper) = find_helper() else {
        return Err(Problem::new(what, "fusermount3 is not installed").hint("as root: apt-get install fuse3"));
    };
    let (ours, theirs) = UnixStream::pair().map_err(|error| Problem::new(what.clone(), error))?;
    let mut command = Command::new(&helper);
    // The helper's end of the pair is its standard input: a number that needs no agreement.
    command
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(OwnedFd::from(theirs)));
    command
        .arg("-o")
        .arg(helper_options(source, flags, open_to_others))
        .arg("--")
        .arg(target);
    let output = command
        .output()
        .map_err(|error| Problem::new(what.clone(), format!("{}: {error}", helper.display())))?;
    drop(command);
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        let hint = helper_hint(&said);
        return Err(Problem::new(
            what,
            if said.is_empty() {
                format!("fusermount3: {}", output.status)
            } else {
                said
            },
        )
        .hint(hint));
    }
    let mut byte = [0; 1];
    let (_, mut fds) = sys::recv_with_fds(&ours, &mut byte).map_err(|error| Problem::new(what.clone(), error))?;
    fds.pop()
        .ok_or_else(|| Problem::new(what, "fusermount3 handed over no descriptor"))
}

fn helper_options(source: &str, flags: MountFlags, open_to_others: bool) -> String {
    let mut words = vec![format!("fsname={}", escape(source)), "subtype=unclobber".to_owned()];
    let mut word = |set: bool, name: &str| words.extend(set.then(|| name.to_owned()));
    word(true, if flags.read_only { "ro" } else { "rw" });
    word(flags.nosuid, "nosuid");
    word(flags.nodev, "nodev");
    word(flags.noexec, "noexec");
    word(flags.noatime, "noatime");
    word(flags.sync, "sync");
    word(open_to_others, "allow_other,default_permissions");
    words.join(",")
}

fn helper_hint(said: &str) -> &'static str {
    if said.contains("user_allow_other") {
        "as root: add the line user_allow_other to /etc/fuse.conf, or leave -o allow_other out"
    } else if said.contains("/dev/fuse") || said.contains("fuse device") {
        "load the fuse module (as root: modprobe fuse), and as root: chmod 0666 /dev/fuse"
    } else if said.contains("Operation not permitted") {
        "fusermount3 must be set-user-ID root: as root: chmod u+s \"$(command -v fusermount3)\""
    } else if said.contains("too many FUSE filesystems") {
        "as root: raise mount_max in /etc/fuse.conf"
    } else {
        "`unclobber doctor` looks for the cause"
    }
}

/// A failed call of the mounting kind, in words.
pub(crate) fn tell(error: &SysError) -> String {
    if error.to_string().contains("/dev/fuse") && error.call != "mount" {
        return format!("/dev/fuse: {}", place::cause(error));
    }
    format!("{}: {}", error.call, place::cause(error))
}

/// What to do about a failed call of the mounting kind.
pub(crate) fn call_hint(error: &SysError) -> &'static str {
    let of_device = error.to_string().contains("/dev/fuse");
    hint_of(error.call, of_device, error.errno())
}

/// The same of a call, whether it was about the FUSE device, and an errno.
pub(crate) fn hint_of(call: &str, of_device: bool, errno: i32) -> &'static str {
    match (call, errno) {
        ("open", consts::ENOENT | consts::ENXIO | consts::ENODEV) if of_device => {
            "load the fuse module (as root: modprobe fuse); a container needs --device /dev/fuse"
        }
        ("open", consts::EACCES | consts::EPERM) if of_device => {
            "as root: chmod 0666 /dev/fuse; a container needs --device /dev/fuse"
        }
        ("unshare", consts::ENOSPC) => "as root: sysctl user.max_user_namespaces=10000",
        ("unshare" | "write" | "open", consts::EPERM | consts::EACCES) => {
            "user namespaces are switched off: as root: sysctl kernel.unprivileged_userns_clone=1, or \
             kernel.apparmor_restrict_unprivileged_userns=0 on Ubuntu, or let the container have CAP_SYS_ADMIN"
        }
        ("mount(MS_SLAVE)", consts::EINVAL) => {
            "the root directory here is no mount point, as in a plain chroot: outside, as root, \
             mount --bind ROOT ROOT, then chroot into it anew"
        }
        ("mount" | "mount(MS_SLAVE)", consts::EPERM | consts::EACCES) => {
            "mounting is not allowed here: a container needs --cap-add SYS_ADMIN --security-opt apparmor=unconfined"
        }
        ("mount", consts::ENODEV) => "this kernel has no FUSE: as root: modprobe fuse",
        _ => "`unclobber doctor` looks for the cause",
    }
}

/// What a directory's own mount forbids is forbidden in the view of it too.
pub(crate) fn inherit(options: &FuseOptions, dir: &OwnedFd) -> MountFlags {
    let mut flags = options.flags;
    match sys::mount_forbids(dir) {
        Ok(forbids) => {
            flags.noexec |= forbids & consts::MS_NOEXEC != 0 && !options.exec;
            flags.nosuid |= forbids & consts::MS_NOSUID != 0;
            flags.nodev |= forbids & consts::MS_NODEV != 0;
        }
        Err(error) => log::debug!("{error}"),
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_helper_gets_every_option_escaped() {
        let flags = MountFlags {
            read_only: true,
            noexec: true,
            ..MountFlags::default()
        };
        let words = helper_options("/a,b", flags, true);
        assert_eq!(
            words,
            "fsname=/a\\,b,subtype=unclobber,ro,nosuid,nodev,noexec,allow_other,default_permissions"
        );
    }

    #[test]
    fn hints_name_the_cure() {
        assert!(hint_of("open", true, consts::EACCES).contains("chmod 0666"));
        assert!(hint_of("unshare", false, consts::ENOSPC).contains("max_user_namespaces"));
        assert!(hint_of("mount(MS_SLAVE)", false, consts::EINVAL).contains("mount --bind ROOT ROOT"));
    }
}
