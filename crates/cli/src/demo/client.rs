//! A blocking NBD client for the demo: one request at a time, simple replies.
//!
//! The codecs are those of the product. Limit: no reconnection and no pipelining; whoever needs them takes libnbd.

use forebay_wire::nbd::Terms;
use forebay_wire::nbd::client_handshake::{ClientHandshake, Progress};
use forebay_wire::nbd::constants::CommandFlags;
use forebay_wire::nbd::reply::{Decoded, Head, SIMPLE_BYTES, decode};
use forebay_wire::nbd::request::{Command, Request};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A server that stays silent for this long is given up.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The connection failed.
    #[error("the connection to the volume failed: {0}")]
    Connection(#[from] io::Error),
    /// The server said no, or something else than NBD.
    #[error("the server's handshake failed: {0}")]
    Handshake(forebay_wire::Error),
    /// The server broke the protocol.
    #[error("the server broke the protocol: {0}")]
    Protocol(&'static str),
    /// The request failed.
    #[error("the server answered {0}")]
    Refused(String),
}

/// A connection to an export.
#[derive(Debug)]
pub struct NbdClient<Stream> {
    stream: Stream,
    terms: Terms,
    cookie: u64,
}

impl NbdClient<UnixStream> {
    /// Connects to an export over a unix socket.
    ///
    /// # Errors
    /// When nobody listens, or there is no such export.
    pub fn connect(socket: &Path, export: &str) -> Result<Self, ClientError> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Self::handshake(stream, export)
    }
}

impl<Stream: Read + Write> NbdClient<Stream> {
    /// Agrees on an export over a fresh connection.
    ///
    /// # Errors
    /// When the server refuses.
    pub fn handshake(mut stream: Stream, export: &str) -> Result<Self, ClientError> {
        let mut handshake = ClientHandshake::new(export, false).map_err(ClientError::Handshake)?;
        let mut input = [0; 512];
        loop {
            let length = stream.read(&mut input)?;
            if length == 0 {
                return Err(ClientError::Handshake(handshake.closed()));
            }
            let (consumed, progress) = handshake.feed(&input[..length]);
            if let Progress::Failed(error) = progress {
                // A goodbye, which a server that has hung up does not miss.
                let _ = stream.write_all(handshake.output());
                return Err(ClientError::Handshake(error));
            }
            stream.write_all(handshake.output())?;
            handshake.sent(handshake.output().len());
            match progress {
                Progress::Ready(terms) if consumed == length => return Ok(Self { stream, terms, cookie: 0 }),
                Progress::Ready(_) => return Err(ClientError::Protocol("it spoke before the first request")),
                Progress::Pending | Progress::Failed(_) => {}
            }
        }
    }

    /// The export's size.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.terms.size_bytes
    }

    /// Reads `buffer.len()` bytes at `offset`.
    ///
    /// # Errors
    /// When the server refuses or the connection fails.
    pub fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), ClientError> {
        self.request(Command::Read, offset, buffer.len() as u32, &[])?;
        Ok(self.stream.read_exact(buffer)?)
    }

    /// Writes `data` at `offset`.
    ///
    /// # Errors
    /// When the server refuses or the connection fails.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), ClientError> {
        self.request(Command::Write, offset, data.len() as u32, data)
    }

    /// Makes every answered write durable.
    ///
    /// # Errors
    /// When the server refuses or the connection fails.
    pub fn flush(&mut self) -> Result<(), ClientError> {
        self.request(Command::Flush, 0, 0, &[])
    }

    /// Says goodbye.
    ///
    /// # Errors
    /// When the connection fails.
    pub fn disconnect(mut self) -> Result<(), ClientError> {
        self.send(Command::Disconnect, 0, 0, &[])
    }

    fn send(&mut self, command: Command, offset: u64, length: u32, payload: &[u8]) -> Result<(), ClientError> {
        self.cookie += 1;
        let request = Request { flags: CommandFlags::NONE, command, cookie: self.cookie, offset, length };
        self.stream.write_all(&request.encode())?;
        Ok(self.stream.write_all(payload)?)
    }

    /// Sends a request and receives the head of its reply.
    fn request(&mut self, command: Command, offset: u64, length: u32, payload: &[u8]) -> Result<(), ClientError> {
        self.send(command, offset, length, payload)?;
        let mut reply = [0; SIMPLE_BYTES];
        self.stream.read_exact(&mut reply)?;
        match decode(&reply) {
            Decoded::Head(Head::Simple { cookie, .. }, _) if cookie != self.cookie => {
                Err(ClientError::Protocol("a reply carries another request's cookie"))
            }
            Decoded::Head(Head::Simple { error: Some(errno), .. }, _) => {
                Err(ClientError::Refused(format!("{errno:?}")))
            }
            Decoded::Head(Head::Simple { error: None, .. }, _) => Ok(()),
            _ => Err(ClientError::Protocol("its reply is not a simple one")),
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
