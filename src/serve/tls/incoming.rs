//! Connections of the gRPC listener. A client that is slow, broken or a stranger is dropped; accepting goes on.
//!
//! Handshakes (of TLS, if any, then HTTP/2's preface) run side by side, each in its own task, at most [`HANDSHAKES`] of
//! them and no step longer than [`HANDSHAKE`]; while so many are under way, further connections wait in the listener's queue.

use std::{io, net::SocketAddr, time::Duration};

use futures::{Stream, stream};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use super::{Tls, preface::Begun};

/// Handshakes under way at most.
const HANDSHAKES: usize = 1024;
/// The longest that a step of one may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Pause after an error that is not one connection's: out of file descriptors, most often.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

/// Connections whose clients have begun to speak.
pub(in crate::serve) fn plain(listener: TcpListener) -> impl Stream<Item = io::Result<Begun<TcpStream>>> {
    connections(listener, begun)
}

/// The same, secured.
pub(in crate::serve) fn secured(
    listener: TcpListener,
    tls: Tls,
) -> impl Stream<Item = io::Result<Begun<TlsStream<TcpStream>>>> {
    connections(listener, move |connection, peer| {
        let tls = tls.clone();
        async move { begun(tls.handshake(connection, peer).await?, peer).await }
    })
}

/// Connections that were set up.
fn connections<Io: Send + 'static, F: Future<Output = Option<Io>> + Send + 'static>(
    listener: TcpListener,
    set_up: impl Fn(TcpStream, SocketAddr) -> F,
) -> impl Stream<Item = io::Result<Io>> {
    let state = (listener, set_up, JoinSet::new());
    stream::unfold(state, |(listener, set_up, mut handshakes)| async move {
        let connection = loop {
            tokio::select! {
                // A handshake that panicked has the same end as one that failed.
                Some(ended) = handshakes.join_next() => if let Ok(Some(connection)) = ended {
                    break connection;
                },
                (connection, peer) = accept(&listener), if handshakes.len() < HANDSHAKES => {
                    handshakes.spawn(set_up(connection, peer));
                }
            }
        };
        Some((Ok(connection), (listener, set_up, handshakes)))
    })
}

/// `None`: its client said nothing in time, or went away.
async fn begun<Io: AsyncRead + Unpin>(io: Io, peer: SocketAddr) -> Option<Begun<Io>> {
    match timeout(HANDSHAKE, Begun::begin(io)).await {
        Ok(Ok(begun)) => Some(begun),
        Ok(Err(error)) => {
            tracing::debug!(%peer, %error, "a connection ended before it began");
            None
        }
        Err(_) => {
            tracing::debug!(%peer, "a client said nothing in time");
            None
        }
    }
}

async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((connection, peer)) => {
                if let Err(error) = connection.set_nodelay(true) {
                    tracing::debug!(%peer, %error, "no TCP_NODELAY");
                }
                return (connection, peer);
            }
            Err(error) if is_of_one_connection(&error) => tracing::debug!(%error, "a connection was lost"),
            Err(error) => {
                tracing::warn!(%error, pause = ?ACCEPT_PAUSE, "no connection can be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

impl Tls {
    /// `None`: it failed, which has been counted.
    async fn handshake<Io>(&self, io: Io, peer: SocketAddr) -> Option<TlsStream<Io>>
    where
        Io: AsyncRead + AsyncWrite + Unpin,
    {
        let acceptor = TlsAcceptor::from(self.current.load_full());
        let (outcome, connection) = match timeout(HANDSHAKE, acceptor.accept(io)).await {
            Ok(Ok(connection)) => ("done", Some(connection)),
            Ok(Err(error)) => {
                tracing::debug!(%peer, %error, "a TLS handshake failed");
                ("failed", None)
            }
            Err(_) => ("timeout", None),
        };
        self.handshakes.with_label_values(&[outcome]).inc();
        connection
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::TlsConfig, observe::Metrics};

    #[tokio::test(start_paused = true)]
    async fn a_client_that_says_nothing_is_dropped_in_time() {
        let (metrics, config) = (Metrics::new(), TlsConfig { self_signed: true, ..TlsConfig::default() });
        let (tls, _) = Tls::load(&config, &metrics).await.unwrap().unwrap();
        let (_client, server) = tokio::io::duplex(64);
        let peer = ([127, 0, 0, 1], 1).into();
        assert!(tls.handshake(server, peer).await.is_none());
        let (_client, server) = tokio::io::duplex(64);
        assert!(begun(server, peer).await.is_none());
        assert!(metrics.render().contains("kinference_tls_handshakes_total{outcome=\"timeout\"} 1"));
    }
}
