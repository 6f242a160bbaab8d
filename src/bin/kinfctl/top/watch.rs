//! What the server tells of its workers, for as long as we look: when it goes away it is asked again, once a second.

use std::time::Duration;

use anyhow::anyhow;
use kinference::serve::proto::{WatchWorkersRequest, WatchWorkersResponse, fleet_client::FleetClient};
use tokio::time::sleep;
use tonic::Streaming;

use super::fleet::Told;
use crate::client::Server;

const AGAIN: Duration = Duration::from_secs(1);

/// A watch.
pub struct Watch {
    server: Server,
    worker_set: String,
    updates: Option<Streaming<WatchWorkersResponse>>,
}

impl Watch {
    /// The server answers.
    ///
    /// # Errors
    /// It does not.
    pub async fn start(server: Server, worker_set: String) -> anyhow::Result<Self> {
        let updates = Some(ask(&server, &worker_set).await?);
        Ok(Self { server, worker_set, updates })
    }

    /// The next news. Cancelled, it loses none.
    pub async fn next(&mut self) -> Told {
        loop {
            let Some(updates) = &mut self.updates else {
                sleep(AGAIN).await;
                match ask(&self.server, &self.worker_set).await {
                    Ok(updates) => self.updates = Some(updates),
                    Err(error) => return Told::Lost(format!("{error:#}")),
                }
                continue;
            };
            let lost = match updates.message().await {
                Ok(Some(WatchWorkersResponse { update: Some(update) })) => {
                    return Told::Update(update.into());
                }
                Ok(Some(_)) => continue,
                Ok(None) => anyhow!("the server ended the watch"),
                Err(status) => self.server.ended(&status),
            };
            self.updates = None;
            return Told::Lost(format!("{lost:#}"));
        }
    }
}

async fn ask(server: &Server, worker_set: &str) -> anyhow::Result<Streaming<WatchWorkersResponse>> {
    let mut client = FleetClient::new(server.connect().await?);
    let request = WatchWorkersRequest { worker_set: worker_set.to_owned() };
    Ok(client.watch_workers(request).await.map_err(|status| server.refused(&status))?.into_inner())
}
