//! The first bytes of a connection, read before it is handed on: a client that says nothing never becomes one.
//!
//! Nobody else would notice it: HTTP/2 pings begin after the client's preface, and a server that stops waits for it.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

/// What every HTTP/2 client says first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection whose client has begun to speak. Reads as if nothing had been read of it.
pub struct Begun<Io> {
    io: Io,
    read: [u8; PREFACE.len()],
    /// Which bytes of `read` are still to be handed on.
    left: std::ops::Range<usize>,
}

impl<Io: AsyncRead + Unpin> Begun<Io> {
    /// Waits for the preface, or for anything else, which is not ours to answer.
    ///
    /// # Errors
    /// The connection ended, or broke.
    pub async fn begin(mut io: Io) -> io::Result<Self> {
        let (mut read, mut len) = ([0; PREFACE.len()], 0);
        while len < PREFACE.len() && PREFACE.starts_with(&read[..len]) {
            match io.read(&mut read[len..]).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                more => len += more,
            }
        }
        Ok(Self { io, read, left: 0..len })
    }
}

impl<Io: AsyncRead + Unpin> AsyncRead for Begun<Io> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.left.is_empty() {
            return Pin::new(&mut self.io).poll_read(cx, into);
        }
        let end = self.left.end.min(self.left.start + into.remaining());
        into.put_slice(&self.read[self.left.start..end]);
        self.left.start = end;
        Poll::Ready(Ok(()))
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for Begun<Io> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

impl<Io: Connected> Connected for Begun<Io> {
    type ConnectInfo = Io::ConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.io.connect_info()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::AsyncWriteExt;

    use super::*;

    /// Sends the pieces, then ends; what is read of it, in reads of at most `step` bytes.
    async fn through(pieces: &[Vec<u8>], step: usize) -> io::Result<Vec<u8>> {
        let (mut client, server) = tokio::io::duplex(4096);
        let said = async {
            for piece in pieces {
                client.write_all(piece).await.unwrap();
                tokio::task::yield_now().await;
            }
            drop(client);
        };
        let heard = async {
            let (mut begun, mut heard) = (Begun::begin(server).await?, Vec::new());
            let mut some = vec![0; step];
            loop {
                match begun.read(&mut some).await? {
                    0 => return Ok(heard),
                    n => heard.extend_from_slice(&some[..n]),
                }
            }
        };
        tokio::join!(said, heard).1
    }

    proptest! {
        #[test]
        fn nothing_is_lost(
            kept in 0..=PREFACE.len(),
            rest in prop::collection::vec(any::<u8>(), 0..60),
            (cut, step) in (1..30usize, 1..40usize),
        ) {
            let said = [&PREFACE[..kept], &rest].concat();
            let pieces: Vec<_> = said.chunks(cut).map(<[u8]>::to_vec).collect();
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let heard = runtime.block_on(through(&pieces, step));
            if PREFACE.starts_with(&said) && said.len() < PREFACE.len() {
                prop_assert_eq!(heard.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
            } else {
                prop_assert_eq!(heard.unwrap(), said);
            }
        }
    }
}
