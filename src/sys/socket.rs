//! Passing descriptors over a socket, and who is at its other end.

#![expect(unsafe_code, reason = "received descriptors, and SO_PEERPIDFD")]

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, getsockopt, recvmsg, sendmsg, sockopt};

use super::call::{check, own};
use super::error::{Result, SysError};

/// The most descriptors taken with one message.
pub const MAX_FDS: usize = 8;

/// Sends bytes (at least one) and with their first byte the descriptors; says how many bytes went.
pub fn send_with_fds(stream: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<usize> {
    let stream = stream.as_fd();
    let raw: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let control: &[ControlMessage<'_>] = if raw.is_empty() { &[] } else { &rights };
    loop {
        match sendmsg::<()>(
            stream.as_raw_fd(),
            &[IoSlice::new(bytes)],
            control,
            MsgFlags::MSG_NOSIGNAL,
            None,
        ) {
            Err(Errno::EINTR) => {}
            Ok(sent) => return Ok(sent),
            Err(errno) => {
                return Err(SysError::new("sendmsg", errno as i32)
                    .fd(stream)
                    .number(bytes.len())
                    .number(fds.len()));
            }
        }
    }
}

/// Receives bytes and the descriptors that came with them; 0 bytes when the peer has closed.
pub fn recv_with_fds(stream: impl AsFd, buf: &mut [u8]) -> Result<(usize, Vec<OwnedFd>)> {
    let stream = stream.as_fd();
    loop {
        match receive(stream, buf) {
            Err(Errno::EINTR) => {}
            Ok(received) => return Ok(received),
            Err(errno) => return Err(SysError::new("recvmsg", errno as i32).fd(stream).number(buf.len())),
        }
    }
}

fn receive(stream: BorrowedFd<'_>, buf: &mut [u8]) -> nix::Result<(usize, Vec<OwnedFd>)> {
    let mut space = nix::cmsg_space!([RawFd; MAX_FDS]);
    let mut parts = [IoSliceMut::new(buf)];
    let message = recvmsg::<()>(
        stream.as_raw_fd(),
        &mut parts,
        Some(&mut space),
        MsgFlags::MSG_CMSG_CLOEXEC,
    )?;
    let mut fds = Vec::new();
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(raw) = control {
            // SAFETY: the kernel made these descriptors for us with this message and nobody else knows them.
            fds.extend(raw.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
        }
    }
    Ok((message.bytes, fds))
}

/// Who connected to, or made, the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerCred {
    /// Its process when it connected; the number may have been reused since: see `peer_pidfd`.
    pub pid: u32,
    /// Its effective user.
    pub uid: u32,
    /// Its effective group.
    pub gid: u32,
}

/// Who is at the other end, by the kernel's word.
pub fn peer_cred(stream: impl AsFd) -> Result<PeerCred> {
    let stream = stream.as_fd();
    let cred = getsockopt(&stream, sockopt::PeerCredentials)
        .map_err(|errno| SysError::new("getsockopt", errno as i32).fd(stream).name("SO_PEERCRED"))?;
    Ok(PeerCred {
        pid: cred.pid().unsigned_abs(),
        uid: cred.uid(),
        gid: cred.gid(),
    })
}

/// Pins the process at the other end (6.5+); `None` where the kernel cannot.
pub fn peer_pidfd(stream: impl AsFd) -> Option<OwnedFd> {
    const SO_PEERPIDFD: i32 = 77;
    let mut fd: RawFd = -1;
    let mut size = libc::socklen_t::try_from(std::mem::size_of::<RawFd>()).ok()?;
    let stream = stream.as_fd().as_raw_fd();
    // SAFETY: the value and its size live through the call.
    check(unsafe {
        libc::getsockopt(
            stream,
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut fd).cast(),
            &raw mut size,
        )
    })
    .ok()?;
    (fd >= 0).then(|| own(i64::from(fd)))
}
