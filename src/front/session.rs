//! The session with the kernel: the handshake on a descriptor that somebody else mounted, and the threads that
//! answer.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use fuser::{Config, INodeNo, Notifier, Session, SessionACL};

use super::filesystem::Front;
use crate::fs::{Guard, KernelCache, Mount, MountOptions};

/// Threads that answer requests: more than one, so that a request which has to wait holds up nobody else.
const THREADS: usize = 4;

/// A mount being served.
#[derive(Debug)]
pub struct Serving {
    mount: Arc<Mount>,
    thread: JoinHandle<io::Result<()>>,
}

/// Serves a mounted FUSE descriptor. Returns once the handshake is done; the requests are answered on threads of
/// their own.
///
/// # Errors
/// When the handshake fails, or the kernel lacks what the guard rests on.
pub fn serve(guard: &Arc<Guard>, options: MountOptions, fuse: OwnedFd) -> io::Result<Serving> {
    let mount = guard.add_mount(options);
    let mut config = Config::default();
    config.n_threads = Some(THREADS);
    config.acl = SessionACL::All;
    let session = Session::from_fd(Front::new(Arc::clone(&mount)), fuse, SessionACL::All, config)?;
    mount.set_kernel_cache(Box::new(Kernel(session.notifier())));
    let served = Arc::clone(&mount);
    let thread = Builder::new().name(format!("mount-{}", mount.id())).spawn(move || {
        let ended = session.run();
        served.end();
        ended.or_else(end_of_connection)
    })?;
    Ok(Serving { mount, thread })
}

/// A connection that ends while a request is on its way to a thread answers that thread's read with `ECONNABORTED`, all
/// others with `ENODEV`, which `Session` takes for the end by itself. What the request wanted has ended as well.
fn end_of_connection(error: io::Error) -> io::Result<()> {
    if error.raw_os_error() == Some(crate::sys::consts::ECONNABORTED) {
        Ok(())
    } else {
        Err(error)
    }
}

impl Serving {
    /// The mount's number.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.mount.id()
    }

    /// The mount.
    #[must_use]
    pub fn mount(&self) -> &Arc<Mount> {
        &self.mount
    }

    /// Waits until the kernel has ended the connection.
    ///
    /// # Errors
    /// Of the session.
    pub fn wait(self) -> io::Result<()> {
        self.thread
            .join()
            .map_err(|_| io::Error::other("a thread that served a mount panicked"))?
    }
}

/// The kernel's side of a mount.
#[derive(Debug)]
struct Kernel(Notifier);

impl KernelCache for Kernel {
    fn forget_name(&self, dir: u64, name: &OsStr) {
        note(self.0.inval_entry(INodeNo(dir), name));
    }

    fn forget_attributes(&self, node: u64) {
        // A negative offset leaves the pages alone: what is cached of content is not the daemon's.
        note(self.0.inval_inode(INodeNo(node), -1, 0));
    }
}

/// The kernel need not know a name or file any more.
fn note(told: io::Result<()>) {
    if let Err(error) = told
        && error.kind() != io::ErrorKind::NotFound
    {
        log::debug!("the kernel was not told to forget: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::{end_of_connection, io};
    use crate::sys::consts;

    #[test]
    fn only_an_ended_connection_ends_a_mount_well() {
        let with = |errno| end_of_connection(io::Error::from_raw_os_error(errno));
        assert!(with(consts::ECONNABORTED).is_ok(), "a request was on its way");
        assert!(with(consts::EIO).is_err());
        assert!(end_of_connection(io::Error::other("a panic")).is_err());
    }
}
