//! A TCP proxy before an API server, that a test can cut or stall: what a network partition looks like from one side.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinSet,
    time::sleep,
};

/// After a stall, between what passes: so that a server acts on a request before it sees that its sender has given up.
const LINGER: Duration = Duration::from_millis(100);

/// What becomes of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Bytes pass.
    Up,
    /// Connections are closed, and new ones as soon as they come.
    Cut,
    /// Connections stay open and are accepted, and no byte passes. Up again, the bytes held back pass.
    Stalled,
}

/// One that runs until it is dropped.
pub struct Proxy {
    pub addr: SocketAddr,
    link: watch::Sender<Link>,
    _task: JoinSet<()>,
}

impl Proxy {
    pub async fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (link, state) = watch::channel(Link::Up);
        let mut task = JoinSet::new();
        task.spawn(accept(listener, to, state));
        Self { addr, link, _task: task }
    }

    pub fn set(&self, link: Link) {
        self.link.send_replace(link);
    }
}

async fn accept(listener: TcpListener, to: SocketAddr, state: watch::Receiver<Link>) {
    let mut connections = JoinSet::new();
    loop {
        let (client, _) = listener.accept().await.unwrap();
        connections.spawn(carry(client, to, state.clone()));
        while connections.try_join_next().is_some() {}
    }
}

async fn carry(client: TcpStream, to: SocketAddr, mut state: watch::Receiver<Link>) {
    if state.wait_for(|link| *link != Link::Stalled).await.is_err_and(|_| true)
        || *state.borrow() == Link::Cut
    {
        return;
    }
    let Ok(server) = TcpStream::connect(to).await else { return };
    let ((client_in, client_out), (server_in, server_out)) = (client.into_split(), server.into_split());
    let cut = async |mut state: watch::Receiver<Link>| {
        state.wait_for(|link| *link == Link::Cut).await.ok();
    };
    tokio::select! {
        () = pump(client_in, server_out, state.clone()) => {}
        () = pump(server_in, client_out, state.clone()) => {}
        () = cut(state) => {}
    }
}

async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut state: watch::Receiver<Link>) {
    let mut buffer = vec![0; 16 * 1024];
    let mut slow = false;
    while let Ok(n @ 1..) = from.read(&mut buffer).await {
        slow |= *state.borrow() == Link::Stalled;
        if state.wait_for(|link| *link != Link::Stalled).await.is_err() {
            return;
        }
        if to.write_all(&buffer[..n]).await.is_err() {
            return;
        }
        if slow {
            sleep(LINGER).await;
        }
    }
}
