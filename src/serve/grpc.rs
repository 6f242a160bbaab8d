//! The gRPC server on `listen`: ext_proc and health, tuned for a proxy that keeps one stream per request.

use tokio::{net::TcpListener, sync::watch, time::Duration};
use tokio_util::sync::CancellationToken;
use tonic::transport::{Server as Transport, server::TcpIncoming};

use super::{ext_proc::ExtProc, health, rate_limiter::RateLimits, token_review::TokenReviews};

/// A proxy keeps one stream open for as long as a request lives.
const MAX_STREAMS: u32 = 65_536;
/// Clients that go away reset streams in bursts; a proxy's connection must survive them.
const MAX_RESETS: usize = 65_536;
/// Bodies of many streams share a connection.
const CONNECTION_WINDOW: u32 = 16 * 1024 * 1024;
const STREAM_WINDOW: u32 = 1024 * 1024;
const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Why the server ended.
#[derive(Debug, thiserror::Error)]
#[error("gRPC server: {0}")]
pub struct ServeError(#[from] tonic::transport::Error);

/// What is served.
pub struct Server {
    /// The ext_proc front door.
    pub ext_proc: ExtProc,
    /// TokenReview, if served.
    pub token_reviews: Option<TokenReviews>,
    /// RateLimiter, if served.
    pub rate_limits: Option<RateLimits>,
    /// Whether the fleet can serve.
    pub ready: watch::Receiver<bool>,
}

impl Server {
    /// Serves until `shutdown`, then takes no new connection or stream and returns once the open ones are over.
    /// How long that may take is the caller's to bound.
    ///
    /// # Errors
    /// The transport's.
    pub async fn run(self, listener: TcpListener, shutdown: CancellationToken) -> Result<(), ServeError> {
        // A server that failed needs no health any more; the caller's token is not ours to cancel.
        let healthy = shutdown.child_token();
        let (reporter, health_service) = tonic_health::server::health_reporter();
        let server = Transport::builder()
            .max_concurrent_streams(MAX_STREAMS)
            .http2_max_pending_accept_reset_streams(Some(MAX_RESETS))
            .http2_max_local_error_reset_streams(Some(MAX_RESETS))
            .initial_connection_window_size(CONNECTION_WINDOW)
            .initial_stream_window_size(STREAM_WINDOW)
            .http2_keepalive_interval(Some(KEEPALIVE))
            .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
            .add_service(health_service)
            .add_service(self.ext_proc.into_server())
            .add_optional_service(self.token_reviews.map(TokenReviews::into_server))
            .add_optional_service(self.rate_limits.map(RateLimits::into_server))
            .serve_with_incoming_shutdown(
                TcpIncoming::from(listener).with_nodelay(Some(true)),
                shutdown.cancelled_owned(),
            );
        let (served, ()) = tokio::join!(
            async {
                let served = server.await;
                healthy.cancel();
                served
            },
            health::follow(reporter, self.ready, healthy.clone()),
        );
        Ok(served?)
    }
}
