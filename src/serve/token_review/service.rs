//! The gRPC side: a request is parsed, a verdict told. Failures are told in words of ours, the log has the API server's.

use std::{sync::Arc, time::Duration};

use futures::FutureExt;
use tonic::{Request, Response, Status};

use super::{
    desk::{Answer, Ask, Desk},
    key::Keyer,
    stats::{Ended, Stats},
};
use crate::{
    config::TokenReviewConfig,
    kubernetes::{self, Client, Question, ReviewError, Token, Verdict},
    observe::Metrics,
    serve::{
        proto::{
            ExtraValues, ReviewRequest, ReviewResponse,
            token_review_server::{TokenReview, TokenReviewServer},
        },
        status::{Reason, refusal},
    },
    types::ErrorKind,
};

/// The service.
pub struct TokenReviews {
    desk: Arc<Desk>,
    stats: Arc<Stats>,
}

impl TokenReviews {
    /// Asks that client's API server.
    pub fn new(client: Client, config: TokenReviewConfig, metrics: &Metrics) -> Self {
        let ask = move |question| kubernetes::review(client.clone(), question).boxed();
        Self::asking(Box::new(ask), config, metrics)
    }

    /// Asks whom it is told to.
    pub(super) fn asking(ask: Ask, config: TokenReviewConfig, metrics: &Metrics) -> Self {
        let stats = Arc::new(Stats::new(metrics));
        let desk = Desk::new(ask, config, (Keyer::new(rand::random()), stats.clone()));
        Self { desk, stats }
    }

    /// As a gRPC service.
    pub fn into_server(self) -> TokenReviewServer<Self> {
        TokenReviewServer::new(self)
    }

    /// Questions that the API server is asked now.
    #[cfg(test)]
    pub(super) fn desk_in_flight(&self) -> usize {
        self.desk.in_flight()
    }
}

#[tonic::async_trait]
impl TokenReview for TokenReviews {
    async fn review(&self, request: Request<ReviewRequest>) -> Result<Response<ReviewResponse>, Status> {
        let ReviewRequest { token, audiences, deadline_ms } = request.into_inner();
        let Some(token) = Token::parse(token) else {
            self.stats.ended(Ended::BadRequest);
            return Err(refusal(ErrorKind::BadRequest, "there is no token to review"));
        };
        let budget = deadline_ms.map(|ms| Duration::from_millis(ms.into()));
        match self.desk.review(Question::new(token, audiences), budget).await {
            Ok(answer) => {
                self.stats.ended(match *answer.verdict {
                    Verdict::Authenticated(_) => Ended::Authenticated,
                    Verdict::Denied(_) => Ended::Denied,
                });
                Ok(Response::new(told(&answer)))
            }
            Err(error) => {
                let (end, reason, message) = failure(&error);
                self.stats.ended(end);
                Err(refusal(reason, message))
            }
        }
    }
}

fn told(answer: &Answer) -> ReviewResponse {
    let cached = answer.cached;
    match &*answer.verdict {
        Verdict::Denied(why) => ReviewResponse { error: why.clone(), cached, ..ReviewResponse::default() },
        Verdict::Authenticated(user) => {
            let user = user.clone();
            let extra = user.extra.into_iter().map(|(key, values)| (key, ExtraValues { values }));
            ReviewResponse {
                authenticated: true,
                username: user.username,
                uid: user.uid,
                groups: user.groups,
                audiences: user.audiences,
                extra: extra.collect(),
                error: String::new(),
                cached,
            }
        }
    }
}

const fn failure(error: &ReviewError) -> (Ended, Reason, &'static str) {
    use Ended::{TimedOut, Unavailable};
    use Reason::{ReviewTimeout, ReviewUnavailable};
    match error {
        ReviewError::TimedOut => {
            (TimedOut, ReviewTimeout, "the Kubernetes API server did not answer in time")
        }
        ReviewError::Unreachable(_) => {
            (Unavailable, ReviewUnavailable, "the Kubernetes API server can't be reached")
        }
        ReviewError::Refused(_) => (
            Unavailable,
            ReviewUnavailable,
            "the Kubernetes API server does not let Kinference review tokens: it needs `create` on tokenreviews in authentication.k8s.io",
        ),
        ReviewError::Unreadable { .. } => {
            (Unavailable, ReviewUnavailable, "the Kubernetes API server's answer is no TokenReview")
        }
    }
}
