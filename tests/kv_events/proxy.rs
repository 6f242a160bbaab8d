//! Connections that die in silence.

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

use crate::engine::Engine;

/// An endpoint of its own for an engine's events. Told to hold still, connections made before carry nothing any
/// more and stay open.
pub async fn proxied(proxies: &mut JoinSet<()>, engine: &Engine, holding: watch::Receiver<bool>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = format!("tcp://{}", listener.local_addr().unwrap());
    proxies.spawn(forward(listener, engine.events_at.trim_start_matches("tcp://").into(), holding));
    near
}

async fn forward(listener: TcpListener, to: String, holding: watch::Receiver<bool>) {
    let mut open = JoinSet::new();
    while let Ok((mut near, _)) = listener.accept().await {
        let (to, mut holding) = (to.clone(), holding.clone());
        holding.mark_unchanged();
        open.spawn(async move {
            let mut far = TcpStream::connect(to).await.unwrap();
            tokio::select! {
                _ = copy_bidirectional(&mut near, &mut far) => {}
                _ = holding.changed() => std::future::pending().await,
            }
        });
    }
}
