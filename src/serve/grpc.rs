//! The gRPC server on `listen`: the front doors with health and reflection, over TLS or not.
//!
//! Invariant: whoever adds a service here also gives it a health name; there is no other list of services.

use std::convert::Infallible;

use http::{Request, Response};
use tokio::{net::TcpListener, sync::watch};
use tokio_util::sync::CancellationToken;
use tonic::{
    body::Body, codegen::Service, server::NamedService, service::RoutesBuilder,
    transport::Server as Transport,
};

use super::{
    ending::Ending,
    health, limits, reflection,
    tls::{self, Tls},
};

/// Why the server ended, or never began.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The transport's.
    #[error("gRPC server: {0}")]
    Transport(#[from] tonic::transport::Error),
    /// Descriptors that don't fit together: a fault of ours.
    #[error("gRPC reflection: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
}

/// What is served, beside health and reflection.
#[derive(Default)]
pub struct Services {
    routes: RoutesBuilder,
    names: health::Names,
}

impl Services {
    /// Adds a service that answers whatever the state of the fleet.
    #[must_use]
    pub fn with<S: GrpcService>(mut self, service: S) -> Self {
        self.names.always.push(S::NAME);
        self.routes.add_service(service);
        self
    }

    /// Adds a service that is of use only while the fleet can serve: its health follows readiness.
    #[must_use]
    pub fn with_routing<S: GrpcService>(mut self, service: S) -> Self {
        self.names.ready.push(S::NAME);
        self.routes.add_service(service);
        self
    }
}

/// A generated service: what the router takes.
pub trait GrpcService:
    Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send + 'static>
    + NamedService
    + Clone
    + Send
    + Sync
    + 'static
{
}

impl<S> GrpcService for S where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send + 'static>
        + NamedService
        + Clone
        + Send
        + Sync
        + 'static
{
}

/// The server.
pub struct Server {
    /// What is served.
    pub services: Services,
    /// Whether the fleet can serve.
    pub ready: watch::Receiver<bool>,
    /// What connections are secured with; `None`: they are not.
    pub tls: Option<Tls>,
}

impl Server {
    /// Serves until `shutdown`, then takes no new connection or stream and returns once the open ones are over.
    /// How long that may take is the caller's to bound.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub async fn run(self, listener: TcpListener, shutdown: CancellationToken) -> Result<(), ServeError> {
        // A server that failed needs no health any more; the caller's token is not ours to cancel.
        let healthy = shutdown.child_token();
        let (reporter, health_service) = tonic_health::server::health_reporter();
        let Services { mut routes, names } = self.services;
        let watches = CancellationToken::new();
        routes.add_service(Ending::new(health_service, watches.clone()));
        let listed = names.always.iter().chain(&names.ready).copied();
        reflection::add(&mut routes, listed, &watches)?;
        let ready = *self.ready.borrow();
        health::begin(&reporter, &names, ready).await;
        let router = transport().add_routes(routes.routes());
        let stop = shutdown.cancelled_owned();
        let (served, ()) = tokio::join!(
            async {
                let served = match self.tls {
                    Some(tls) => router.serve_with_incoming_shutdown(tls::secured(listener, tls), stop).await,
                    None => router.serve_with_incoming_shutdown(tls::plain(listener), stop).await,
                };
                healthy.cancel();
                served
            },
            async {
                health::follow(reporter, names, self.ready, healthy.clone()).await;
                watches.cancel();
            },
        );
        Ok(served?)
    }
}

fn transport() -> Transport {
    Transport::builder()
        .max_concurrent_streams(limits::STREAMS)
        .http2_max_pending_accept_reset_streams(Some(limits::RESETS))
        .http2_max_local_error_reset_streams(Some(limits::RESETS))
        .http2_max_header_list_size(limits::HEADERS)
        .initial_connection_window_size(limits::CONNECTION_WINDOW)
        .initial_stream_window_size(limits::STREAM_WINDOW)
        .http2_keepalive_interval(Some(limits::KEEPALIVE))
        .http2_keepalive_timeout(Some(limits::KEEPALIVE_TIMEOUT))
}
