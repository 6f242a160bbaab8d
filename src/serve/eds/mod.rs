//! Envoy's endpoint discovery: one cluster for each worker set, `kinference/<worker set>`, that follows the fleet.
//!
//! All streams share one look at the fleet every 200 ms. A stream is pulled by its client, so it holds no queue.

mod machine;
mod stats;
mod view;
mod wanted;

use std::{collections::HashSet, convert::Infallible, pin::Pin, sync::Arc};

use envoy_types::pb::envoy::service::{
    discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse},
    endpoint::v3::endpoint_discovery_service_server::{
        EndpointDiscoveryService, EndpointDiscoveryServiceServer,
    },
};
use futures::{Stream, stream};
use parking_lot::Mutex;
use tokio::sync::watch::Receiver;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use self::{
    machine::{Delta, Machine, Sotw},
    stats::{Open, Stats},
    view::View,
    wanted::{MAX_NAMES, Wrong},
};
use super::live::{Live, Told};
use crate::{
    fleet::{Registry, Snapshot},
    observe::Metrics,
};

/// The service. Cheap to clone.
#[derive(Clone)]
pub struct Endpoints {
    live: Arc<Live<View>>,
    registry: Arc<Registry>,
    stats: Stats,
    shutdown: CancellationToken,
}

impl Endpoints {
    /// Follows that registry. Streams end at `shutdown`: the server waits for them. Call once: it registers metrics.
    pub fn new(registry: Arc<Registry>, metrics: &Metrics, shutdown: CancellationToken) -> Self {
        let (looked, unusable) = (registry.clone(), Unusable::default());
        let live = Live::new(move || {
            // Described sets first: one that joins in between is then in the fleet as well.
            let described = looked.described();
            let fleet = looked.snapshot();
            unusable.tell(&fleet);
            View::of(&fleet, &described)
        });
        Self { live, registry, stats: Stats::new(metrics), shutdown }
    }

    /// Keeps what streams are told fresh, for ever.
    pub async fn run(self) -> Infallible {
        self.live.run(self.registry.watch()).await
    }

    /// As a service of a gRPC server.
    pub fn into_server(self) -> EndpointDiscoveryServiceServer<Self> {
        EndpointDiscoveryServiceServer::new(self)
    }

    fn serve<M: Machine>(&self, requests: Streaming<M::Request>) -> Replies<M::Reply> {
        let open = self.stats.open(M::NAME);
        let session = Session {
            machine: M::default(),
            requests,
            told: self.live.subscribe(),
            shutdown: self.shutdown.clone(),
            open,
        };
        Box::pin(stream::unfold(Some(session), |session| async {
            let mut session = session?;
            match session.next().await {
                Ok(reply) => reply.map(|reply| (Ok(reply), Some(session))),
                Err(status) => Some((Err(status), None)),
            }
        }))
    }
}

type Replies<R> = Pin<Box<dyn Stream<Item = Result<R, Status>> + Send>>;

struct Session<M: Machine> {
    machine: M,
    requests: Streaming<M::Request>,
    told: Receiver<Told<View>>,
    shutdown: CancellationToken,
    open: Open,
}

impl<M: Machine> Session<M> {
    /// The next response; `None` ends the stream.
    async fn next(&mut self) -> Result<Option<M::Reply>, Status> {
        loop {
            let reply = tokio::select! {
                () = self.shutdown.cancelled() => return Ok(None),
                request = self.requests.message() => {
                    // A client that goes away, in whichever way, is a normal end.
                    let Ok(Some(request)) = request else { return Ok(None) };
                    let view = self.told.borrow().value.clone();
                    let step = self.machine.request(request, &view).map_err(ended)?;
                    if let Some(why) = step.refused {
                        self.open.refused();
                        tracing::warn!(%why, variant = M::NAME, "a proxy refused the endpoints that it was sent");
                    }
                    step.reply
                }
                changed = self.told.changed() => {
                    if changed.is_err() {
                        return Ok(None);
                    }
                    let view = self.told.borrow_and_update().value.clone();
                    self.machine.changed(&view)
                }
            };
            if reply.is_some() {
                self.open.sent();
                return Ok(reply);
            }
        }
    }
}

fn ended(wrong: Wrong) -> Status {
    match wrong {
        Wrong::Type => Status::invalid_argument(format!("only {} is served here", view::type_url())),
        Wrong::Names => Status::resource_exhausted(format!("more than {MAX_NAMES} clusters on one stream")),
    }
}

/// Workers that no cluster can hold, each told of once: a proxy resolves no names here.
#[derive(Default)]
struct Unusable(Mutex<HashSet<u64>>);

impl Unusable {
    fn tell(&self, fleet: &Snapshot) {
        let mut told = self.0.lock();
        told.retain(|generation| fleet.values().any(|member| member.generation == *generation));
        for member in fleet.values().filter(|member| view::socket(member).is_none()) {
            if told.insert(member.generation) {
                let (worker, endpoint) = (&member.worker.name, &member.worker.endpoint);
                tracing::warn!(%worker, %endpoint, "not an IP address and port: left out of the endpoints for Envoy");
            }
        }
    }
}

#[tonic::async_trait]
impl EndpointDiscoveryService for Endpoints {
    type StreamEndpointsStream = Replies<DiscoveryResponse>;

    async fn stream_endpoints(
        &self,
        request: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamEndpointsStream>, Status> {
        Ok(Response::new(self.serve::<Sotw>(request.into_inner())))
    }

    type DeltaEndpointsStream = Replies<DeltaDiscoveryResponse>;

    async fn delta_endpoints(
        &self,
        request: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaEndpointsStream>, Status> {
        Ok(Response::new(self.serve::<Delta>(request.into_inner())))
    }

    async fn fetch_endpoints(
        &self,
        _request: Request<DiscoveryRequest>,
    ) -> Result<Response<DiscoveryResponse>, Status> {
        Err(Status::unimplemented("endpoints are streamed: StreamEndpoints or DeltaEndpoints"))
    }
}

#[cfg(test)]
mod tests;
