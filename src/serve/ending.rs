//! Services with streams that know no end: they end when the server stops, because it waits for open streams.
//!
//! Invariant: what a stream has to say at that moment is still said; then it ends with UNAVAILABLE. So does what it is
//! asked, because a service may hold on to that: a connection has the stream for as long as anybody holds it.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use http::{HeaderMap, Request, Response};
use http_body::{Body as HttpBody, Frame};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::{Status, body::Body, codegen::Service, server::NamedService};

use super::grpc::GrpcService;

/// A service whose streams end at `stop`.
#[derive(Clone)]
pub struct Ending<S> {
    inner: S,
    stop: CancellationToken,
}

impl<S> Ending<S> {
    /// Ends the streams of `inner` at `stop`.
    pub const fn new(inner: S, stop: CancellationToken) -> Self {
        Self { inner, stop }
    }
}

impl<S: NamedService> NamedService for Ending<S> {
    const NAME: &'static str = S::NAME;
}

impl<S: GrpcService> Service<Request<Body>> for Ending<S> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let stop = self.stop.clone();
        let until = move |body, end| {
            Body::new(Until { body, stop: Some(Box::pin(stop.clone().cancelled_owned())), end })
        };
        let answer = self.inner.call(request.map(|body| until(body, End::Silent)));
        Box::pin(async move { answer.await.map(|response| response.map(|body| until(body, End::Told))) })
    }
}

/// How a body ends that is cut off.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// As if that had been all: a request.
    Silent,
    /// With a status: a response.
    Told,
}

struct Until {
    body: Body,
    end: End,
    /// `None`: it has ended.
    stop: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl HttpBody for Until {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Self { body, stop, end } = &mut *self;
        let Some(stopped) = stop else { return Poll::Ready(None) };
        if let Poll::Ready(frame) = Pin::new(body).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        std::task::ready!(stopped.poll_unpin(cx));
        *stop = None;
        if *end == End::Silent {
            return Poll::Ready(None);
        }
        let mut trailers = HeaderMap::new();
        let told = Status::unavailable("The server is shutting down.").add_header(&mut trailers);
        Poll::Ready(Some(told.map(|()| Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.stop.is_none() || self.body.is_end_stream()
    }
}
