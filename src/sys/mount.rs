//! Mounting, namespaces, and the FUSE device.

#![expect(unsafe_code, reason = "mount, umount2 and unshare")]

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::call::{check, own, retry, with_path};
use super::error::{Result, SysError};
use super::fd::open_path;

pub use libc::{MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_RDONLY};

/// What a FUSE mount is made with.
#[derive(Debug, Clone)]
pub struct FuseMount<'a> {
    /// What `mount` and `df` show as the source.
    pub fsname: &'a str,
    /// What they show after `fuse.`.
    pub subtype: &'a str,
    /// `MS_*` flags.
    pub flags: u64,
    /// The kind and permissions of the root.
    pub root_mode: u32,
    /// The user the mount belongs to.
    pub uid: u32,
    /// The group the mount belongs to.
    pub gid: u32,
    /// Further options, such as `allow_other,default_permissions`; may be empty.
    pub options: &'a str,
}

/// How access times move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessTimes {
    /// With the first access after a change, and once a day.
    Relative,
    /// With every access.
    Strict,
    /// Not at all.
    Still,
}

/// `struct mount_attr` of `linux/mount.h`; of its bits, those of `MOUNT_ATTR__ATIME` (0x70) are used here.
#[repr(C)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

/// Opens `/dev/fuse`.
pub fn open_fuse_device() -> Result<OwnedFd> {
    open_path(Path::new("/dev/fuse"), libc::O_RDWR)
}

/// Whether `fd` is an open `/dev/fuse`.
pub fn is_fuse_device(fd: impl AsFd) -> Result<bool> {
    let stat = super::stat::stat(fd)?;
    Ok(stat.kind() == libc::S_IFCHR && (stat.rdev_major, stat.rdev_minor) == (10, 229))
}

/// The device number of the filesystem that an open `/dev/fuse` has been mounted as; nothing where the kernel does not tell
/// (before 6.17).
#[must_use]
pub fn fuse_connection(fd: impl AsFd) -> Option<u64> {
    let path = format!("/proc/self/fdinfo/{}", fd.as_fd().as_raw_fd());
    let told = std::fs::read_to_string(path).ok()?;
    let minor = told.lines().find_map(|line| line.strip_prefix("fuse_connection:"))?;
    Some(libc::makedev(0, minor.trim().parse().ok()?))
}

/// Mounts the FUSE connection of `fuse` on `target` with mount(2).
pub fn mount_fuse(fuse: impl AsFd, target: &Path, mount: &FuseMount<'_>) -> Result<()> {
    let mut data = format!(
        "fd={},rootmode={:o},user_id={},group_id={}",
        fuse.as_fd().as_raw_fd(),
        mount.root_mode,
        mount.uid,
        mount.gid
    );
    if !mount.options.is_empty() {
        data.push(',');
        data.push_str(mount.options);
    }
    let kind = format!("fuse.{}", mount.subtype);
    mount_call(Some(mount.fsname), target, Some(&kind), mount.flags, Some(&data))
}

/// Changes the flags of the mount at `target`; those not given are taken away.
pub fn remount(target: &Path, flags: u64) -> Result<()> {
    mount_call(None, target, None, libc::MS_REMOUNT | flags, None)
}

/// Mounts from outside still come in below `target`, ours do not go out.
pub fn make_slave(target: &Path) -> Result<()> {
    let done = mount_call(None, target, None, libc::MS_REC | libc::MS_SLAVE, None);
    done.map_err(|mut error| {
        error.call = "mount(MS_SLAVE)";
        error
    })
}

fn mount_call(source: Option<&str>, target: &Path, kind: Option<&str>, flags: u64, data: Option<&str>) -> Result<()> {
    let text = |part: Option<&str>| OsStr::from_bytes(part.unwrap_or("none").as_bytes()).to_owned();
    let (source, kind, data_text) = (text(source), text(kind), text(data));
    with_path(&source, |source| {
        with_path(target.as_os_str(), |target| {
            with_path(&kind, |kind| {
                with_path(&data_text, |data_c| {
                    let data_ptr = if data.is_some() {
                        data_c.as_ptr()
                    } else {
                        std::ptr::null()
                    };
                    // SAFETY: all strings live through the call; the data is a C string or null.
                    check(unsafe {
                        libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, data_ptr.cast())
                    })
                })
            })
        })
    })
    .map(drop)
    .map_err(|errno| {
        SysError::new("mount", errno)
            .name(&source)
            .name(target)
            .name(&kind)
            .hex(flags)
            .name(&data_text)
    })
}

/// Unmounts what is on top at `target`; with `detach` also while it is in use. Never follows a symlink there.
pub fn umount(target: &Path, detach: bool) -> Result<()> {
    let flags = libc::UMOUNT_NOFOLLOW | if detach { libc::MNT_DETACH } else { 0 };
    with_path(target.as_os_str(), |target| {
        // SAFETY: the path is a C string.
        check(unsafe { libc::umount2(target.as_ptr(), flags) })
    })
    .map(drop)
    .map_err(|errno| SysError::new("umount2", errno).name(target).hex(flags))
}

/// A mount of what `dir` leads to, with all that is mounted below, that nobody else can reach. Needs `CAP_SYS_ADMIN`.
pub fn private_mount(dir: impl AsFd) -> Result<OwnedFd> {
    let dir = dir.as_fd();
    let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC;
    let path = libc::AT_EMPTY_PATH | libc::AT_RECURSIVE;
    // SAFETY: "" is a C string; the rest are integers.
    retry(|| unsafe {
        libc::syscall(
            libc::SYS_open_tree,
            dir.as_raw_fd(),
            c"".as_ptr(),
            flags | path.unsigned_abs(),
        )
    })
    .map(own)
    .map_err(|errno| SysError::new("open_tree", errno).fd(dir))
}

/// Says how access times move through the mount whose root `mount` leads to. Needs `CAP_SYS_ADMIN`.
pub fn set_access_times(mount: impl AsFd, times: AccessTimes) -> Result<()> {
    let mount = mount.as_fd();
    let attr = MountAttr {
        attr_set: match times {
            AccessTimes::Relative => 0,
            AccessTimes::Still => 0x10,
            AccessTimes::Strict => 0x20,
        },
        attr_clr: 0x70,
        propagation: 0,
        userns_fd: 0,
    };
    // SAFETY: "" is a C string; `attr` lives through the call, which is told its size.
    retry(|| unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attr,
            size_of::<MountAttr>(),
        )
    })
    .map(drop)
    .map_err(|errno| SysError::new("mount_setattr", errno).fd(mount))
}

/// Gives this thread a mount namespace of its own (a whole process, when it has one thread). Needs `CAP_SYS_ADMIN`.
pub fn unshare_mount_ns() -> Result<()> {
    unshare(libc::CLONE_NEWNS, "CLONE_NEWNS")
}

/// Gives this process, which must have one thread only, user and mount namespaces of its own, in which `uid` and `gid`
/// are themselves and nobody else exists. It may mount there until it executes another program.
pub fn unshare_user_and_mount_ns(uid: u32, gid: u32) -> Result<()> {
    unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS, "CLONE_NEWUSER|CLONE_NEWNS")?;
    write_text("/proc/self/setgroups", "deny")?;
    write_text("/proc/self/uid_map", &format!("{uid} {uid} 1"))?;
    write_text("/proc/self/gid_map", &format!("{gid} {gid} 1"))
}

fn unshare(flags: i32, name: &'static str) -> Result<()> {
    // SAFETY: integers only.
    check(unsafe { libc::unshare(flags) })
        .map(drop)
        .map_err(|errno| SysError::new("unshare", errno).name(name))
}

fn write_text(path: &str, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(|error| SysError::from_io("write", &error).name(path).name(text))
}
