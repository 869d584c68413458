//! Stream: what a connection to the store is made of: TCP, or TLS over it.
//!
//! Invariant: without TLS a read or write is TCP's own.

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// See the module.
#[derive(Debug)]
pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// To `host:port`, or `host`; `tls`: how, if it is spoken.
    pub(super) async fn connect(authority: &str, tls: Option<&Arc<ClientConfig>>) -> io::Result<Self> {
        let split = authority.rsplit_once(':').filter(|(_, port)| !port.contains(']'));
        let stream = match split {
            Some(_) => TcpStream::connect(authority).await?,
            None => TcpStream::connect(format!("{authority}:{}", if tls.is_some() { 443 } else { 80 })).await?,
        };
        stream.set_nodelay(true)?;
        let Some(tls) = tls else { return Ok(Self::Plain(stream)) };
        let host = split.map_or(authority, |(host, _)| host).trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let stream = TlsConnector::from(Arc::clone(tls)).connect(name, stream).await?;
        Ok(Self::Tls(Box::new(stream)))
    }

    /// Whether the other end still is there, and says nothing.
    pub(super) fn is_silent(&mut self) -> bool {
        let mut byte = [0];
        match self {
            Self::Plain(stream) => {
                matches!(stream.try_read(&mut byte), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
            }
            // What TLS says for itself, such as tickets, is taken on the way.
            Self::Tls(stream) => {
                let mut context = Context::from_waker(Waker::noop());
                Pin::new(stream).poll_read(&mut context, &mut ReadBuf::new(&mut byte)).is_pending()
            }
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
