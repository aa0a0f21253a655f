//! Acting as the caller of a request, on one thread, for one operation.
//!
//! The kernel has checked the caller's permission already (`default_permissions`); what is switched here makes new
//! files belong to the caller and the setgid rules be the caller's. Never changes the credentials of other threads.

#![expect(
    unsafe_code,
    reason = "raw credential calls: those of libc would change every thread"
)]

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::OnceLock;

use super::call::check;
use super::error::{Result, SysError};

/// Who a request comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Creds<'a> {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The supplementary groups, where they matter and are known; `None` leaves the daemon's.
    pub groups: Option<&'a [u32]>,
    /// The file mode creation mask.
    pub umask: u32,
}

/// While this lives, the thread's file system identity is the caller's. Put back when dropped, save for the umask, which
/// is put back before this thread makes anything of its own (`with_own_umask`): most callers have the same.
#[derive(Debug)]
pub struct CredScope {
    identity: Option<Identity>,
    /// Belongs to the thread that made it.
    not_send: PhantomData<*const ()>,
}

/// What is put back.
#[derive(Debug)]
struct Identity {
    uid: u32,
    gid: u32,
    groups: Option<Vec<u32>>,
    caps: Caps,
}

/// The umask of the process, known once a thread has parted from it.
static OWN_UMASK: OnceLock<u32> = OnceLock::new();

/// What this thread knows of itself, so that the kernel need not be asked: nobody else changes it.
#[derive(Debug, Clone, Copy)]
struct Now {
    /// Its umask, once it has one of its own.
    umask: Option<u32>,
    /// Its file system user and group outside every scope.
    ids: Option<(u32, u32)>,
    /// It acts as a caller.
    in_scope: bool,
}

thread_local! {
    static NOW: Cell<Now> = const { Cell::new(Now { umask: None, ids: None, in_scope: false }) };
}

fn note(change: impl FnOnce(&mut Now)) {
    let mut now = NOW.get();
    change(&mut now);
    NOW.set(now);
}

impl CredScope {
    /// Takes the caller's identity. EPERM when this process may not: then nothing is changed.
    pub fn enter(creds: &Creds<'_>) -> Result<Self> {
        part_umask()?;
        let (uid, gid) = own_ids();
        let identity = if creds.uid == uid && creds.gid == gid && creds.groups.is_none() {
            None
        } else {
            let groups = creds.groups.map(|_| get_groups()).transpose()?;
            let mut saved = Some(Identity {
                uid,
                gid,
                groups,
                caps: Caps::get()?,
            });
            switch(creds).inspect_err(|_| saved.take().into_iter().for_each(restore))?;
            saved
        };
        take_umask(creds.umask);
        note(|now| now.in_scope = true);
        Ok(Self {
            identity,
            not_send: PhantomData,
        })
    }
}

impl Drop for CredScope {
    fn drop(&mut self) {
        note(|now| now.in_scope = false);
        self.identity.take().into_iter().for_each(restore);
    }
}

/// Runs `f` as the caller.
pub fn as_caller<T>(creds: &Creds<'_>, f: impl FnOnce() -> T) -> Result<T> {
    let scope = CredScope::enter(creds)?;
    let result = f();
    drop(scope);
    Ok(result)
}

fn switch(creds: &Creds<'_>) -> Result<()> {
    if let Some(groups) = creds.groups {
        set_groups(groups)?;
    }
    // The group first: leaving uid 0 takes nothing that the group needs, but an order that always works is simpler.
    set_fs_gid(creds.gid)?;
    set_fs_uid(creds.uid)?;
    if creds.uid != 0 {
        Caps::get()?.with_access().set()?;
    }
    Ok(())
}

/// A thread that cannot get its own identity back must not serve another request as somebody else.
fn restore(saved: Identity) {
    let groups = saved.groups.as_deref().map_or(Ok(()), set_groups);
    let uid = set_fs_uid(saved.uid);
    let gid = set_fs_gid(saved.gid);
    let caps = saved.caps.set();
    if let Err(error) = groups.and(uid).and(gid).and(caps) {
        log::error!("cannot leave the identity of a caller: {error}");
        std::process::abort();
    }
}

/// Threads of a process share one umask unless they part; a thread parts once.
fn part_umask() -> Result<()> {
    if NOW.get().umask.is_some() {
        return Ok(());
    }
    // SAFETY: integers only; from here on this thread has its own umask and working directory.
    check(unsafe { libc::unshare(libc::CLONE_FS) })
        .map_err(|errno| SysError::new("unshare", errno).name("CLONE_FS"))?;
    // What this thread had, it had from the one that made it: from the process, or from a thread that acts as callers do.
    let had = set_umask(0);
    let own = *OWN_UMASK.get_or_init(|| had);
    set_umask(own);
    note(|now| now.umask = Some(own));
    Ok(())
}

fn take_umask(mask: u32) {
    let mask = mask & 0o777;
    if NOW.get().umask != Some(mask) {
        set_umask(mask);
        note(|now| now.umask = Some(mask));
    }
}

/// Before this thread makes something: outside every scope it is made with the umask of the process, whatever caller the
/// thread acted as last.
pub(super) fn with_own_umask() -> std::result::Result<(), i32> {
    let Some(own) = OWN_UMASK.get() else { return Ok(()) };
    if !NOW.get().in_scope {
        part_umask().map_err(|error| error.errno())?;
        take_umask(*own);
    }
    Ok(())
}

fn set_umask(mask: u32) -> u32 {
    // SAFETY: integers only; umask cannot fail.
    unsafe { libc::umask(mask & 0o777) }
}

/// An id no kernel accepts: the set calls then only report the present one.
const NO_ID: u32 = u32::MAX;

fn raw_fs_uid(uid: u32) -> u32 {
    // SAFETY: integers only; returns the former id, never an error.
    let old = unsafe { libc::syscall(libc::SYS_setfsuid, uid) };
    id_of(old)
}

fn raw_fs_gid(gid: u32) -> u32 {
    // SAFETY: integers only; returns the former id, never an error.
    let old = unsafe { libc::syscall(libc::SYS_setfsgid, gid) };
    id_of(old)
}

/// Ids come back in the low half of a long; those above `i32::MAX` may come sign-extended.
fn id_of(ret: i64) -> u32 {
    u32::try_from(ret & 0xffff_ffff).unwrap_or(NO_ID)
}

/// The thread's file system user and group outside every scope: asked for once.
fn own_ids() -> (u32, u32) {
    NOW.get().ids.unwrap_or_else(|| {
        let ids = (fs_uid(), fs_gid());
        note(|now| now.ids = Some(ids));
        ids
    })
}

fn fs_uid() -> u32 {
    raw_fs_uid(NO_ID)
}

fn fs_gid() -> u32 {
    raw_fs_gid(NO_ID)
}

/// setfsuid says nothing when it is refused: ask afterwards.
fn set_fs_uid(uid: u32) -> Result<()> {
    raw_fs_uid(uid);
    if fs_uid() == uid {
        Ok(())
    } else {
        Err(SysError::new("setfsuid", libc::EPERM).number(uid))
    }
}

fn set_fs_gid(gid: u32) -> Result<()> {
    raw_fs_gid(gid);
    if fs_gid() == gid {
        Ok(())
    } else {
        Err(SysError::new("setfsgid", libc::EPERM).number(gid))
    }
}

fn get_groups() -> Result<Vec<u32>> {
    let fail = |errno| SysError::new("getgroups", errno);
    // SAFETY: a size of 0 asks for the number only.
    let number = check(unsafe { libc::getgroups(0, std::ptr::null_mut()) }).map_err(fail)?;
    let mut groups = vec![0_u32; super::call::count(number)];
    let size = i32::try_from(groups.len()).unwrap_or(0);
    // SAFETY: the list has room for as many as are said.
    let number = check(unsafe { libc::getgroups(size, groups.as_mut_ptr()) }).map_err(fail)?;
    groups.truncate(super::call::count(number));
    Ok(groups)
}

fn set_groups(groups: &[u32]) -> Result<()> {
    // SAFETY: the list is valid for its length. The raw call changes this thread only.
    check(unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) })
        .map(drop)
        .map_err(|errno| SysError::new("setgroups", errno).number(groups.len()))
}

/// The capability sets of this thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Caps([CapWord; 2]);

/// `struct __user_cap_data_struct`: 32 capabilities.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct CapWord {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// `struct __user_cap_header_struct`, version 3, of the calling thread.
#[repr(C)]
struct CapHeader {
    version: u32,
    pid: i32,
}

impl CapHeader {
    const fn new() -> Self {
        Self {
            version: 0x2008_0522,
            pid: 0,
        }
    }
}

const CAP_DAC_OVERRIDE: u32 = 1;
const CAP_DAC_READ_SEARCH: u32 = 2;

/// What a daemon that serves files for others needs of root: to own and reach every file (CHOWN, DAC_OVERRIDE,
/// DAC_READ_SEARCH, FOWNER, FSETID, MKNOD, SETFCAP), to act as the caller (SETGID, SETUID), to look at callers' processes
/// (SYS_PTRACE), to register files for passthrough (SYS_ADMIN), descriptors beyond the limit (SYS_RESOURCE), leases on
/// files of others (LEASE), to set the flags of files that the kernel has let the caller set (LINUX_IMMUTABLE).
const SERVING: [u32; 14] = [0, 1, 2, 3, 4, 6, 7, 9, 19, 21, 24, 27, 28, 31];

/// Gives up every capability that serving files does not need, for this thread and those it makes from now on.
pub fn keep_serving_capabilities() -> Result<()> {
    let keep = SERVING.iter().fold(0, |all, cap| all | 1 << cap);
    let mut caps = Caps::get()?;
    caps.0[0].effective &= keep;
    caps.0[0].permitted &= keep;
    caps.0[0].inheritable = 0;
    caps.0[1] = CapWord::default();
    caps.set()
}

/// What this thread executes gets no capability by inheritance.
pub(super) fn inherit_no_capabilities() -> Result<()> {
    let mut caps = Caps::get()?;
    for word in &mut caps.0 {
        word.inheritable = 0;
    }
    caps.set()
}

impl Caps {
    pub(super) fn get() -> Result<Self> {
        let mut words = [CapWord::default(); 2];
        let mut header = CapHeader::new();
        // SAFETY: version 3 fills two words.
        check(unsafe { libc::syscall(libc::SYS_capget, &raw mut header, words.as_mut_ptr()) })
            .map(|_| Self(words))
            .map_err(|errno| SysError::new("capget", errno))
    }

    fn set(&self) -> Result<()> {
        let mut header = CapHeader::new();
        // SAFETY: version 3 reads two words.
        check(unsafe { libc::syscall(libc::SYS_capset, &raw mut header, self.0.as_ptr()) })
            .map(drop)
            .map_err(|errno| SysError::new("capset", errno))
    }

    /// With access to every file, as far as permitted: access has been decided. Not with `CAP_FSETID` nor
    /// `CAP_FOWNER`, which would lift the caller's setgid and ownership rules.
    fn with_access(mut self) -> Self {
        let access = (1 << CAP_DAC_OVERRIDE) | (1 << CAP_DAC_READ_SEARCH);
        self.0[0].effective |= access & self.0[0].permitted;
        self
    }

    pub(super) fn has_effective(&self, cap: u32) -> bool {
        let word = usize::try_from(cap / 32).unwrap_or(usize::MAX);
        self.0
            .get(word)
            .is_some_and(|word| word.effective & (1 << (cap % 32)) != 0)
    }
}
