//! The life of the guard process: leaving the caller, claiming the directory, listening, ending.
//!
//! It never opens the backing directory by path: it holds the descriptor it was started with.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::host::Host;
use super::lifecycle::{End, Lifecycle};
use super::runtime_dir::{RuntimeDir, is_guard_id};
use super::server::Server;
use super::unmounting;
use crate::audit::EventFileOptions;
use crate::sys::{self, consts};

/// What a guard is started with.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The guard's id.
    pub guard: String,
    /// The backing directory's path, for people.
    pub root: String,
    /// Where its files go.
    pub runtime_dir: PathBuf,
    /// How long the attic keeps content, where somebody has said so.
    pub attic_age: Option<Duration>,
    /// How many bytes the attic keeps, where somebody has said so.
    pub attic_size: Option<u64>,
    /// How much is copied into it, where somebody has said so.
    pub attic_copy: Option<u64>,
    /// Nothing is kept in it.
    pub attic_off: bool,
    /// How many files, and how many names, are remembered, where somebody has said so.
    pub max_records: Option<u32>,
    /// Where events go.
    pub events: Option<EventFileOptions>,
    /// Whether observations are among them.
    pub events_observations: bool,
}

/// How a guard's process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It served and ended.
    Served,
    /// Another process holds the directory.
    Busy,
}

/// How long mounts may take to end when the guard is asked to.
const END_LIMIT: Duration = Duration::from_secs(2);

/// How many logs of ended guards are kept.
const LOGS_KEPT: usize = 16;

/// A file longer than this is begun anew.
const LOG_LIMIT: u64 = 1 << 20;

/// Leaves the caller: a process of its own, in a session of its own, hidden from others of the same user. Returns
/// the backing directory and the pipe for the first word. The caller's process must have one thread.
pub fn leave_caller() -> io::Result<(OwnedFd, File)> {
    sys::close_inherited()?;
    let (root, first_word) = sys::take_standard_descriptors()?;
    if let sys::Side::Parent(_) = sys::fork_process()? {
        sys::end_now(0);
    }
    sys::setsid()?;
    std::env::set_current_dir("/")?;
    sys::keep_serving_capabilities()?;
    sys::set_dumpable(false)?;
    sys::clear_umask();
    sys::ignore_signals(&[sys::SIGPIPE, sys::SIGIO, sys::SIGHUP, sys::SIGINT, sys::SIGQUIT])?;
    // The limits of the command that happened to come first must not end the guard of all.
    sys::ignore_signals(&[sys::SIGXFSZ, sys::SIGXCPU])?;
    sys::raise_command_limits()?;
    Ok((root, File::from(first_word)))
}

/// Opens the guard's log in its run-time directory.
pub fn open_log(settings: &Settings) -> io::Result<File> {
    let dir = RuntimeDir::open(&settings.runtime_dir, sys::geteuid())?;
    let path = dir.entry(&format!("{}.log", settings.guard));
    let mut options = OpenOptions::new();
    options
        .create(true)
        .append(true)
        .mode(0o600)
        .custom_flags(consts::O_NOFOLLOW);
    prune_files(&dir, ".log");
    prune_files(&dir, ".events.jsonl");
    let file = options.open(path)?;
    if file.metadata()?.len() > LOG_LIMIT {
        file.set_len(0)?;
    }
    Ok(file)
}

/// Takes away what guards that have ended left behind, but for the latest: each is worth reading only for a while.
fn prune_files(dir: &RuntimeDir, ending: &str) {
    let Ok(entries) = fs::read_dir(dir.entry(".")) else {
        return;
    };
    let ended = |path: &Path| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        // Older files of one guard have a number at the end.
        let id = name
            .as_deref()
            .and_then(|name| name.split_once(ending))
            .map(|(id, _)| id.to_owned());
        id.is_some_and(|id| !dir.entry(&format!("{id}.lock")).exists())
    };
    let logs = entries.flatten().map(|entry| entry.path()).filter(|path| ended(path));
    let mut aged: Vec<_> = logs
        .filter_map(|path| Some((fs::metadata(&path).ok()?.modified().ok()?, path)))
        .collect();
    aged.sort();
    for (_, path) in aged.iter().rev().skip(LOGS_KEPT) {
        remove(path);
    }
}

/// Claims the directory, opens the host, listens, and returns when the guard's life is over. `ready` is called once
/// the guard can be reached.
pub fn serve(
    settings: &Settings,
    open_host: impl FnOnce() -> io::Result<Arc<dyn Host>>,
    ready: impl FnOnce() -> io::Result<()>,
) -> io::Result<Outcome> {
    if !is_guard_id(&settings.guard) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a guard's id"));
    }
    let dir = RuntimeDir::open(&settings.runtime_dir, sys::geteuid())?;
    let Some(claim) = Claim::take(&dir, &settings.guard)? else {
        return Ok(Outcome::Busy);
    };
    match sys::raise_nofile_limit() {
        Ok((limit, _)) => log::info!("{limit} descriptors may be open"),
        Err(error) => log::warn!("the number of descriptors stays as it is: {error}"),
    }
    let signals = sys::Signals::hold(&[sys::SIGTERM])?;
    let host = open_host()?;
    let life = Arc::new(Lifecycle::default());
    let (guard, root) = (settings.guard.clone(), settings.root.clone());
    let server = Arc::new(Server::new(
        Arc::clone(&host),
        Arc::clone(&life),
        guard,
        root,
        sys::geteuid(),
    ));
    server.listen(claim.listen()?)?;
    watch_signals(signals, Arc::clone(&life))?;
    ready()?;
    log::info!("guarding {} as {}", settings.root, settings.guard);
    let end = life.wait_end();
    log::info!("ending ({end:?})");
    claim.close_socket();
    if end == End::Asked {
        detach_all(&life);
    }
    host.shutdown();
    drop(claim);
    Ok(Outcome::Served)
}

fn watch_signals(signals: sys::Signals, life: Arc<Lifecycle>) -> io::Result<()> {
    let watch = move || {
        loop {
            let arrived = signals.wait_with(None, None).and_then(|_| signals.next());
            match arrived {
                Ok(Some(_)) => return life.ask_end(),
                Ok(None) => {}
                Err(error) => return log::error!("signals are no longer watched: {error}"),
            }
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(watch).map(drop)
}

/// Takes away the mounts that can be reached from here; the rest lose their connection when this process ends.
fn detach_all(life: &Lifecycle) {
    let reachable = |(number, record): (u64, super::lifecycle::MountRecord)| {
        record
            .namespace
            .is_none()
            .then_some((number, record.label, record.device))
    };
    let mounts: Vec<(u64, String, Option<u64>)> = life.mounts().into_iter().filter_map(reachable).collect();
    for (_, label, device) in &mounts {
        if let Err(error) = unmounting::unmount_own(Path::new(label), *device) {
            log::warn!("cannot unmount {label}: {error}");
        }
    }
    for (number, label, _) in mounts {
        if !life.wait_mount_end(number, Some(END_LIMIT)) {
            log::warn!("{label} is still in use");
        }
    }
}

/// The exclusive right to guard a directory, held by a lock on a file for the life of the process.
struct Claim<'a> {
    dir: &'a RuntimeDir,
    guard: String,
    _lock: File,
}

impl<'a> Claim<'a> {
    fn take(dir: &'a RuntimeDir, guard: &str) -> io::Result<Option<Self>> {
        let path = dir.entry(&format!("{guard}.lock"));
        loop {
            let mut options = OpenOptions::new();
            options
                .create(true)
                .write(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(consts::O_NOFOLLOW);
            let lock = options.open(&path)?;
            match sys::lock_file(&lock) {
                Err(error) if error.errno() == consts::EWOULDBLOCK => return Ok(None),
                other => other?,
            }
            // The last holder takes its file away; a lock on a file that has no name any more claims nothing.
            let named = fs::symlink_metadata(&path).is_ok_and(|found| {
                lock.metadata()
                    .is_ok_and(|locked| (locked.dev(), locked.ino()) == (found.dev(), found.ino()))
            });
            if named {
                return Ok(Some(Self {
                    dir,
                    guard: guard.to_owned(),
                    _lock: lock,
                }));
            }
        }
    }

    fn file(&self, ending: &str) -> PathBuf {
        self.dir.entry(&format!("{}.{ending}", self.guard))
    }

    fn listen(&self) -> io::Result<UnixListener> {
        remove(&self.file("sock"));
        let listener = UnixListener::bind(self.file("sock"))?;
        fs::set_permissions(self.file("sock"), fs::Permissions::from_mode(0o600))?;
        let mut options = OpenOptions::new();
        options
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .custom_flags(consts::O_NOFOLLOW);
        writeln!(options.open(self.file("pid"))?, "{}", std::process::id())?;
        Ok(listener)
    }

    fn close_socket(&self) {
        remove(&self.file("sock"));
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        for ending in ["sock", "pid", "lock"] {
            remove(&self.file(ending));
        }
        let log = self.file("log");
        if fs::metadata(&log).is_ok_and(|found| found.len() == 0) {
            remove(&log);
        }
    }
}

fn remove(path: &Path) {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => log::warn!("{}: {error}", path.display()),
        _ => {}
    }
}
