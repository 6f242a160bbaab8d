//! Encoded bodies, decoded under a budget of their own: what comes out is held on top of what came in.
//!
//! Invariant: decoded bodies never hold more than `body_max_total_kb` together, however small they came.

use std::sync::Arc;

use bytes::Bytes;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

use crate::{
    config::BodyLimits,
    prompt::{DecodeError, decoded},
    types::{ErrorKind, Rejection},
};

/// The budget, in KiB.
pub(super) struct Decoding {
    free: Arc<Semaphore>,
    limits: BodyLimits,
}

/// A body to be read, and its part of the budget.
pub(super) struct Decoded {
    pub body: Bytes,
    pub held: Option<OwnedSemaphorePermit>,
}

/// Why there is no body to be read.
pub(super) enum Undecoded {
    /// An encoding that is not known: no fault of the client's.
    Unknown,
    /// To be told to the client.
    Rejected(Rejection),
}

impl Decoding {
    pub(super) fn new(limits: BodyLimits) -> Self {
        // At least one body fits.
        let free = kb(limits.total_bytes.max(limits.request_bytes)) as usize;
        Self { free: Arc::new(Semaphore::new(free)), limits }
    }

    /// The body as it is to be read. One that is encoded waits, until the deadline, for room for the largest
    /// that it may decode to, and then keeps what it takes.
    pub(super) async fn run(
        &self,
        encoding: Option<&str>,
        body: Bytes,
        deadline: Instant,
    ) -> Result<Decoded, Undecoded> {
        let rejected = |kind, message: &str| Undecoded::Rejected(Rejection::new(kind, message));
        let Some(encoding) = encoding else { return Ok(Decoded { body, held: None }) };
        let most = kb(self.limits.request_bytes);
        let mut held = self.room(self.limits.request_bytes, deadline).await.map_err(Undecoded::Rejected)?;
        let body =
            decoded(Some(encoding), body, self.limits.request_bytes).await.map_err(|error| match error {
                DecodeError::UnknownEncoding => Undecoded::Unknown,
                DecodeError::Corrupt => {
                    rejected(ErrorKind::BadRequest, "The body does not decode as its content-encoding says.")
                }
                DecodeError::TooLarge => rejected(ErrorKind::BodyTooLarge, "The decoded body is too large."),
            })?;
        let spare = most.saturating_sub(kb(body.len())) as usize;
        drop(held.split(spare));
        Ok(Decoded { body, held: Some(held) })
    }

    /// Room for that many bytes made of a body, by the deadline.
    ///
    /// # Errors
    /// 429 when there is none by then.
    pub(super) async fn room(
        &self,
        bytes: usize,
        deadline: Instant,
    ) -> Result<OwnedSemaphorePermit, Rejection> {
        let room = timeout_at(deadline, self.free.clone().acquire_many_owned(kb(bytes))).await;
        let why = "Too many encoded request bodies are being read at once. Please try again shortly.";
        room.ok().and_then(Result::ok).ok_or_else(|| Rejection::new(ErrorKind::Overloaded, why))
    }
}

fn kb(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use async_compression::tokio::bufread::GzipEncoder;
    use tokio::{io::AsyncReadExt, time::Duration};

    use super::*;

    async fn gzip(body: &[u8]) -> Bytes {
        let mut out = Vec::new();
        GzipEncoder::new(body).read_to_end(&mut out).await.unwrap();
        out.into()
    }

    fn kind<T>(result: Result<T, Undecoded>) -> Option<ErrorKind> {
        match result {
            Err(Undecoded::Rejected(rejection)) => Some(rejection.kind),
            _ => None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn decoded_bodies_share_one_budget_and_give_it_back() {
        let decoding =
            Decoding::new(BodyLimits { total_bytes: 4096, request_bytes: 4096, ..BodyLimits::default() });
        let soon = || Instant::now() + Duration::from_secs(1);
        let packed = gzip(&[b' '; 3000]).await;
        let first = decoding.run(Some("gzip"), packed.clone(), soon()).await.ok().unwrap();
        assert_eq!(
            (first.body.len(), decoding.free.available_permits()),
            (3000, 1),
            "the spare room is free"
        );
        let second = decoding.run(Some("gzip"), packed.clone(), soon()).await;
        assert_eq!(kind(second), Some(ErrorKind::Overloaded));
        let plain = decoding.run(None, packed.clone(), soon()).await.ok().unwrap();
        assert!(plain.held.is_none(), "what is not encoded is counted where it came in");
        drop(first);
        assert!(decoding.run(Some("gzip"), packed.clone(), soon()).await.is_ok());
        let bomb = gzip(&[b' '; 5000]).await;
        assert_eq!(kind(decoding.run(Some("gzip"), bomb, soon()).await), Some(ErrorKind::BodyTooLarge));
        let garbage = decoding.run(Some("gzip"), Bytes::from_static(b"no gzip"), soon()).await;
        assert_eq!(kind(garbage), Some(ErrorKind::BadRequest));
        assert!(matches!(decoding.run(Some("lzma"), packed, soon()).await, Err(Undecoded::Unknown)));
        assert_eq!(decoding.free.available_permits(), 4);
    }
}
