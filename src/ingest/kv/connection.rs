//! One connection to an engine's PUB socket: dialled once, never redialled by the library behind our back.
//!
//! Owner: a subscription. Invariant: a connection that is lost says so, after all that arrived before.

use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, channel::mpsc};
use zeromq::{Socket, SocketEvent, SocketOptions, SocketRecv, SubSocket, ZmqError};

/// How long making a connection may take. The library retries a refused one meanwhile, ever more rarely.
pub const DIAL_TIMEOUT: Duration = Duration::from_secs(2);

/// Options of our sockets.
pub fn options() -> SocketOptions {
    let mut options = SocketOptions::default();
    options.connect_timeout(DIAL_TIMEOUT);
    options
}

/// The next monitor event that ends a connection.
pub async fn lost(monitor: &mut mpsc::Receiver<SocketEvent>) {
    while let Some(event) = monitor.next().await {
        if matches!(event, SocketEvent::Disconnected(_) | SocketEvent::Closed) {
            return;
        }
    }
}

/// A subscribed SUB socket with one connection.
pub struct Connection {
    socket: SubSocket,
    monitor: mpsc::Receiver<SocketEvent>,
}

impl Connection {
    /// Connects and subscribes to everything.
    ///
    /// # Errors
    /// An endpoint that is none, nobody there, or no handshake in time.
    pub async fn dial(endpoint: &str) -> Result<Self, ZmqError> {
        let mut socket = SubSocket::with_options(options());
        let monitor = socket.monitor();
        // Before connecting, so that the handshake carries it.
        socket.subscribe("").await?;
        socket.connect(endpoint).await?;
        Ok(Self { socket, monitor })
    }

    /// The frames of the next message; `None` when the connection is lost. Cancel-safe.
    pub async fn next(&mut self) -> Option<Vec<Bytes>> {
        tokio::select! {
            biased;
            message = self.socket.recv() => message.ok().map(zeromq::ZmqMessage::into_vec),
            () = lost(&mut self.monitor) => None,
        }
    }
}
