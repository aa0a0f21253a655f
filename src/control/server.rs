//! The daemon's side of the control socket: who may ask, and one thread pair per conversation.
//!
//! It never takes the caller's word for who it is: user and process come from the kernel.

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use super::conversation::Conversation;
use super::host::Host;
use super::lifecycle::Lifecycle;
use super::protocol::{self, Code, Failure, Reply};
use super::wire::{Lines, send};
use crate::sync::Mutex;
use crate::sys::{self, PeerCred};

/// Conversations at one time; more are turned away.
const CONVERSATION_LIMIT: usize = 512;

/// Of one process.
const PROCESS_LIMIT: usize = 64;

/// Messages waiting for a client that does not read.
const QUEUE: usize = 1024;

/// What every conversation shares.
pub struct Server {
    /// The guard.
    pub host: Arc<dyn Host>,
    /// Its life.
    pub life: Arc<Lifecycle>,
    /// The guard's id.
    pub guard: String,
    /// The backing directory's path when the guard began.
    pub root: String,
    /// The user whose guard this is.
    pub uid: u32,
    open: AtomicUsize,
    /// The same by process.
    by_process: Mutex<HashMap<u32, usize>>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("guard", &self.guard)
            .field("root", &self.root)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// A server for `host`.
    pub fn new(host: Arc<dyn Host>, life: Arc<Lifecycle>, guard: String, root: String, uid: u32) -> Self {
        Self {
            host,
            life,
            guard,
            root,
            uid,
            open: AtomicUsize::new(0),
            by_process: Mutex::default(),
        }
    }

    /// Accepts conversations on a thread of their own, for as long as the process lives.
    pub fn listen(self: Arc<Self>, listener: UnixListener) -> io::Result<()> {
        thread::Builder::new().name("control".to_owned()).spawn(move || {
            for socket in listener.incoming() {
                match socket {
                    Ok(socket) => self.admit(socket),
                    Err(error) => {
                        log::warn!("accept on the control socket: {error}");
                        thread::sleep(std::time::Duration::from_millis(50));
                    }
                }
            }
        })?;
        Ok(())
    }

    fn admit(self: &Arc<Self>, socket: UnixStream) {
        let peer = match sys::peer_cred(&socket) {
            Ok(peer) => peer,
            Err(error) => return log::warn!("a client without credentials was turned away: {error}"),
        };
        if peer.uid != self.uid && peer.uid != 0 {
            log::warn!("user {} (process {}) was turned away", peer.uid, peer.pid);
            return refuse(&socket, "only the user who started the guard may ask it");
        }
        let Some(place) = Place::take(self, &peer) else {
            return refuse(&socket, "too many conversations at one time");
        };
        let server = Arc::clone(self);
        let talk = move || {
            if let Err(error) = server.talk(socket, peer) {
                log::debug!("conversation with process {}: {error}", peer.pid);
            }
            drop(place);
        };
        if let Err(error) = thread::Builder::new().name("conversation".to_owned()).spawn(talk) {
            log::error!("no thread for a conversation: {error}");
        }
    }

    fn talk(self: &Arc<Self>, socket: UnixStream, peer: PeerCred) -> io::Result<()> {
        let out = Outgoing::start(socket.try_clone()?)?;
        let process = sys::peer_pidfd(&socket);
        let mut lines = Lines::new(socket);
        let mut conversation = Conversation::new(Arc::clone(self), peer, process, out.clone());
        while let Some(line) = lines.next_line()? {
            let reply = match protocol::parse_request(&line) {
                Ok(request) => conversation.answer(request, || lines.take_descriptor()),
                Err(failure) => Reply::Error(failure),
            };
            if !out.send(&reply) {
                break;
            }
        }
        Ok(())
    }
}

/// Room for one conversation, given back when this is dropped.
struct Place {
    server: Arc<Server>,
    process: u32,
}

impl Place {
    /// No process takes the room of all others. Those that cannot be told apart count together, as all.
    fn take(server: &Arc<Server>, peer: &PeerCred) -> Option<Self> {
        let all = server.open.fetch_add(1, Ordering::AcqRel);
        let of_process = *server
            .by_process
            .lock()
            .entry(peer.pid)
            .and_modify(|count| *count += 1)
            .or_insert(1);
        let place = Self {
            server: Arc::clone(server),
            process: peer.pid,
        };
        (all < CONVERSATION_LIMIT && (of_process <= PROCESS_LIMIT || peer.pid == 0)).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.server.open.fetch_sub(1, Ordering::AcqRel);
        if let Entry::Occupied(mut entry) = self.server.by_process.lock().entry(self.process) {
            *entry.get_mut() -= 1;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }
}

fn refuse(socket: &UnixStream, why: &str) {
    let reply = Reply::Error(Failure::new(Code::Forbidden, why));
    let sent = protocol::format(&reply).map(|line| send(socket, &line, None));
    log::debug!("turned a client away: {why} ({sent:?})");
}

/// The writing half of a conversation: a bounded queue and the thread that empties it.
#[derive(Debug, Clone)]
pub struct Outgoing {
    queue: Sender<Vec<u8>>,
    dropped: Arc<AtomicUsize>,
}

impl Outgoing {
    fn start(socket: UnixStream) -> io::Result<Self> {
        let (queue, lines) = bounded(QUEUE);
        thread::Builder::new()
            .name("answers".to_owned())
            .spawn(move || write_lines(&socket, &lines))?;
        Ok(Self {
            queue,
            dropped: Arc::default(),
        })
    }

    /// Queues an answer, waiting for room; false when the client has gone.
    pub fn send(&self, reply: &Reply) -> bool {
        let dropped = self.dropped.swap(0, Ordering::AcqRel);
        if dropped > 0 {
            let count = u64::try_from(dropped).unwrap_or(u64::MAX);
            if !self.send_line(&Reply::Dropped { count }) {
                return false;
            }
        }
        self.send_line(reply)
    }

    fn send_line(&self, reply: &Reply) -> bool {
        let line = protocol::format(reply).or_else(|failure| protocol::format(&Reply::Error(failure)));
        line.is_ok_and(|line| self.queue.send(line).is_ok())
    }

    /// Queues an event if there is room, else counts it.
    pub fn tell(&self, event: &Reply) {
        let Ok(line) = protocol::format(event) else { return };
        if let Err(TrySendError::Full(_)) = self.queue.try_send(line) {
            self.dropped.fetch_add(1, Ordering::AcqRel);
        }
    }
}

fn write_lines(socket: &UnixStream, lines: &Receiver<Vec<u8>>) {
    for line in lines {
        if let Err(error) = send(socket, &line, None) {
            log::debug!("a client went away: {error}");
            return;
        }
    }
}
