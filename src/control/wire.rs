//! Lines, and the descriptors that come with them, over one stream socket.
//!
//! It never interprets a line.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use super::protocol::LINE_LIMIT;
use crate::sys;

/// Sends all of `bytes`, and `fd` with the first of them.
pub fn send(socket: &UnixStream, bytes: &[u8], fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut fds = Vec::from_iter(fd);
    let mut rest = bytes;
    while !rest.is_empty() {
        let sent = sys::send_with_fds(socket, rest, &fds)?;
        rest = &rest[sent..];
        fds.clear();
    }
    Ok(())
}

/// The reading half of a conversation.
#[derive(Debug)]
pub struct Lines {
    socket: UnixStream,
    buffer: Vec<u8>,
    fds: VecDeque<OwnedFd>,
}

impl Lines {
    /// Reads lines from `socket`.
    #[must_use]
    pub fn new(socket: UnixStream) -> Self {
        Self {
            socket,
            buffer: Vec::new(),
            fds: VecDeque::new(),
        }
    }

    /// The next line without its end; `None` when the other side has closed.
    pub fn next_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(line) = self.buffered_line() {
                return Ok(Some(line));
            }
            if !self.fill()? {
                return Ok(None);
            }
        }
    }

    /// The next line, if one has been read already.
    pub fn buffered_line(&mut self) -> Option<Vec<u8>> {
        let end = self.buffer.iter().position(|byte| *byte == b'\n')?;
        let mut line: Vec<u8> = self.buffer.drain(..=end).collect();
        line.pop();
        Some(line)
    }

    /// Reads once; false when the other side has closed.
    pub fn fill(&mut self) -> io::Result<bool> {
        if self.buffer.len() > LINE_LIMIT {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a line is longer than the protocol allows",
            ));
        }
        let mut part = [0; 8192];
        let (count, fds) = sys::recv_with_fds(&self.socket, &mut part)?;
        self.fds.extend(fds);
        if self.fds.len() > 8 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "more descriptors than requests",
            ));
        }
        self.buffer.extend_from_slice(&part[..count]);
        Ok(count > 0)
    }

    /// The oldest descriptor that has come and not been taken.
    pub fn take_descriptor(&mut self) -> Option<OwnedFd> {
        self.fds.pop_front()
    }
}

impl AsFd for Lines {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_descriptor_travels_with_its_line() {
        let (here, there) = UnixStream::pair().unwrap();
        let mut lines = Lines::new(here);
        send(&there, b"a\nb\n", Some(there.as_fd())).unwrap();
        assert_eq!(lines.next_line().unwrap().unwrap(), b"a");
        assert!(lines.take_descriptor().is_some());
        assert!(lines.take_descriptor().is_none());
    }

    #[test]
    fn lines_come_whole_however_they_were_cut() {
        let (here, mut there) = UnixStream::pair().unwrap();
        let mut lines = Lines::new(here);
        there.write_all(b"a\nb").unwrap();
        assert_eq!(lines.next_line().unwrap().unwrap(), b"a");
        assert_eq!(lines.buffered_line(), None);
        there.write_all(b"c\n\n").unwrap();
        assert_eq!(lines.next_line().unwrap().unwrap(), b"bc");
        assert_eq!(lines.next_line().unwrap().unwrap(), b"");
        drop(there);
        assert_eq!(lines.next_line().unwrap(), None);
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let (here, mut there) = UnixStream::pair().unwrap();
        let writer = std::thread::spawn(move || there.write_all(&vec![b'x'; 2 * LINE_LIMIT]).is_ok());
        let mut lines = Lines::new(here);
        assert_eq!(lines.next_line().unwrap_err().kind(), io::ErrorKind::InvalidData);
        drop(lines);
        writer.join().unwrap();
    }
}
