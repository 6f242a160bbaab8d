//! The RateLimiter service. Admits every reservation and remembers none: only the calls are counted.

use prometheus::IntCounter;
use tonic::{Request, Response, Status};

use super::{
    proto::{
        ReleaseRequest, ReleaseResponse, ReserveRequest, ReserveResponse, SettleRequest, SettleResponse,
        rate_limiter_server::{RateLimiter, RateLimiterServer},
    },
    status::refusal,
};
use crate::{observe::Metrics, types::ErrorKind};

/// The service.
pub struct RateLimits {
    reserved: IntCounter,
    settled: IntCounter,
    released: IntCounter,
}

impl RateLimits {
    /// Says in the log that nothing is limited: whoever enables it must know.
    pub fn new(metrics: &Metrics) -> Self {
        tracing::warn!(
            "[rate_limit] is enabled, but nothing is limited: every reservation is admitted and no budget is tracked"
        );
        let calls = metrics.counters(
            "kinference_rate_limiter_calls_total",
            "Calls of the rate limiter that were answered, by kind.",
            &["call"],
        );
        let [reserved, settled, released] =
            ["reserve", "settle", "release"].map(|call| calls.with_label_values(&[call]));
        Self { reserved, settled, released }
    }

    /// As a gRPC service.
    pub fn into_server(self) -> RateLimiterServer<Self> {
        RateLimiterServer::new(self)
    }
}

#[tonic::async_trait]
impl RateLimiter for RateLimits {
    async fn reserve(&self, request: Request<ReserveRequest>) -> Result<Response<ReserveResponse>, Status> {
        if request.get_ref().tenant.is_empty() {
            return Err(refusal(ErrorKind::BadRequest, "a reservation needs a tenant"));
        }
        self.reserved.inc();
        // Unique across replicas and restarts without a word between them.
        let reservation_id = format!("{:032x}", rand::random::<u128>());
        Ok(Response::new(ReserveResponse { admitted: true, reservation_id, retry_after_ms: 0 }))
    }

    async fn settle(&self, _: Request<SettleRequest>) -> Result<Response<SettleResponse>, Status> {
        self.settled.inc();
        Ok(Response::new(SettleResponse {}))
    }

    async fn release(&self, _: Request<ReleaseRequest>) -> Result<Response<ReleaseResponse>, Status> {
        self.released.inc();
        Ok(Response::new(ReleaseResponse {}))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use tonic_types::StatusExt;

    use super::*;

    fn reserve(tenant: &str) -> Request<ReserveRequest> {
        Request::new(ReserveRequest {
            tenant: tenant.into(),
            output_tokens: u64::MAX,
            ..ReserveRequest::default()
        })
    }

    #[tokio::test]
    async fn everything_is_admitted_under_its_own_id() {
        let metrics = Metrics::new();
        let limits = RateLimits::new(&metrics);
        let mut ids = HashSet::new();
        for _ in 0..100 {
            let answer = limits.reserve(reserve("t")).await.unwrap().into_inner();
            assert!(answer.admitted && !answer.reservation_id.is_empty());
            assert!(ids.insert(answer.reservation_id));
        }
        let reservation_id = ids.into_iter().next().unwrap();
        let settle = SettleRequest { reservation_id, ..SettleRequest::default() };
        for _ in 0..2 {
            limits.settle(Request::new(settle.clone())).await.unwrap();
        }
        limits.release(Request::new(ReleaseRequest { reservation_id: "unknown".into() })).await.unwrap();
        let text = metrics.render();
        for (call, times) in [("reserve", 100), ("settle", 2), ("release", 1)] {
            let line = format!("kinference_rate_limiter_calls_total{{call=\"{call}\"}} {times}");
            assert!(text.contains(&line), "{text}");
        }
    }

    #[tokio::test]
    async fn a_reservation_is_somebodys() {
        let refused = RateLimits::new(&Metrics::new()).reserve(reserve("")).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument);
        let info = refused.get_details_error_info().unwrap();
        assert_eq!((info.reason.as_str(), info.metadata["http_status"].as_str()), ("BAD_REQUEST", "400"));
    }
}
