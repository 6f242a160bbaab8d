//! The native API's Fleet service: who the workers are now, and what changes.
//!
//! All watchers share one look at the fleet every 200 ms; none of them has a queue longer than one look's changes.

mod convert;
mod watch;

use std::{convert::Infallible, pin::Pin, sync::Arc};

use futures::{Stream, stream};
use tokio::sync::watch::Receiver;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use self::watch::{Scope, Watch};
use super::{
    live::{Live, Told},
    proto::{
        ListWorkersRequest, ListWorkersResponse, WatchWorkersRequest, WatchWorkersResponse, fleet_server,
    },
};
use crate::roster::{Roster, WorkerView};

/// The service. Cheap to clone.
#[derive(Clone)]
pub struct Fleet {
    live: Arc<Live<Vec<WorkerView>>>,
    roster: Roster,
    shutdown: CancellationToken,
}

impl Fleet {
    /// Shows that roster. Watches end at `shutdown`: the server waits for open streams.
    pub fn new(roster: Roster, shutdown: CancellationToken) -> Self {
        let looked = roster.clone();
        Self { live: Live::new(move || looked.workers()), roster, shutdown }
    }

    /// Keeps what watchers are told fresh, for ever.
    pub async fn run(self) -> Infallible {
        self.live.run(self.roster.registry.watch()).await
    }

    /// As a service of a gRPC server.
    pub fn into_server(self) -> fleet_server::FleetServer<Self> {
        fleet_server::FleetServer::new(self)
    }
}

#[tonic::async_trait]
impl fleet_server::Fleet for Fleet {
    async fn list_workers(
        &self,
        request: Request<ListWorkersRequest>,
    ) -> Result<Response<ListWorkersResponse>, Status> {
        let scope = Scope::of(request.into_inner().worker_set);
        let workers = self.roster.workers();
        let workers = workers.iter().filter(|worker| scope.has(worker)).map(Into::into).collect();
        Ok(Response::new(ListWorkersResponse { workers }))
    }

    type WatchWorkersStream = Pin<Box<dyn Stream<Item = Result<WatchWorkersResponse, Status>> + Send>>;

    async fn watch_workers(
        &self,
        request: Request<WatchWorkersRequest>,
    ) -> Result<Response<Self::WatchWorkersStream>, Status> {
        let watch = Watch::new(Scope::of(request.into_inner().worker_set));
        let told = self.live.subscribe();
        let state = (watch, told, self.shutdown.clone());
        Ok(Response::new(Box::pin(stream::unfold(state, next))))
    }
}

type Watching = (Watch, Receiver<Told<Vec<WorkerView>>>, CancellationToken);

/// The next message, once the consumer asks for it.
async fn next(
    (mut watch, mut told, shutdown): Watching,
) -> Option<(Result<WatchWorkersResponse, Status>, Watching)> {
    loop {
        if let Some(message) = watch.next() {
            return Some((Ok(message), (watch, told, shutdown)));
        }
        let newest = told.borrow_and_update().clone();
        if watch.see(&newest) {
            continue;
        }
        tokio::select! {
            () = shutdown.cancelled() => return None,
            changed = told.changed() => changed.ok()?,
        }
    }
}

#[cfg(test)]
mod tests;
