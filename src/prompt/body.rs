//! Request bodies while they arrive, under a cap per request and one for all of them together. Bytes.
//!
//! Invariant: `held_bytes` is the sum of what the living `Body` values hold and were charged; dropping one gives it back.
//! Small chunks are joined as they come, so that a drip of single bytes costs no more than its bytes.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use bytes::{Bytes, BytesMut};
use prometheus::{IntCounterVec, IntGauge};

use crate::{
    config::BodyLimits,
    observe::Metrics,
    types::{ErrorKind, Rejection},
};

/// Chunks below this many bytes are copied together; larger ones are kept as they came.
const SMALL_CHUNK: usize = 4096;
/// Joined small chunks become one piece at this many bytes.
const JOINED: usize = 64 * 1024;

/// What all buffered bodies may hold together.
pub struct BodyBudget {
    limits: BodyLimits,
    held: AtomicUsize,
    gauge: IntGauge,
    rejected: IntCounterVec,
}

impl BodyBudget {
    /// A budget of `limits`, nothing held.
    pub fn new(limits: BodyLimits, metrics: &Metrics) -> Arc<Self> {
        let gauge = metrics.gauges("kinference_body_held_bytes", "Bytes of request bodies held.", &[]);
        let rejected = metrics.counters(
            "kinference_body_rejections_total",
            "Request bodies turned away by a cap, by error kind.",
            &["kind"],
        );
        let gauge = gauge.with_label_values::<&str>(&[]);
        let limit = metrics.gauges(
            "kinference_body_limit_bytes",
            "The most bytes of request bodies that may be held.",
            &[],
        );
        limit.with_label_values::<&str>(&[]).set(i64::try_from(limits.total_bytes).unwrap_or(i64::MAX));
        Arc::new(Self { limits, held: AtomicUsize::new(0), gauge, rejected })
    }

    /// An empty body.
    pub fn open(self: &Arc<Self>) -> Body {
        Body { budget: Arc::clone(self), pieces: Vec::new(), small: BytesMut::new(), len: 0, charged: 0 }
    }

    /// Bytes held now.
    pub fn held_bytes(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// The caps.
    pub fn limits(&self) -> &BodyLimits {
        &self.limits
    }

    fn take(&self, bytes: usize) -> bool {
        let fits = |held: usize| held.checked_add(bytes).filter(|&sum| sum <= self.limits.total_bytes);
        let taken = self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok();
        if taken {
            self.gauge.add(i64::try_from(bytes).unwrap_or(i64::MAX));
        }
        taken
    }

    fn take_or_reject(&self, bytes: usize) -> Result<(), Rejection> {
        if self.take(bytes) {
            return Ok(());
        }
        let message = "Too many request bodies are being received at once. Please try again shortly.";
        Err(self.reject(ErrorKind::Overloaded, message.into()))
    }

    fn give_back(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
        self.gauge.sub(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    fn reject(&self, kind: ErrorKind, message: String) -> Rejection {
        self.rejected.with_label_values(&[kind.label()]).inc();
        Rejection::new(kind, message)
    }

    fn too_large(&self) -> Rejection {
        let kb = self.limits.request_bytes / 1024;
        self.reject(
            ErrorKind::BodyTooLarge,
            format!("The request body is too large: at most {kb} KB are accepted."),
        )
    }
}

/// One request body as it arrives. Dropping it gives its bytes back to the budget.
pub struct Body {
    budget: Arc<BodyBudget>,
    pieces: Vec<Bytes>,
    small: BytesMut,
    len: usize,
    charged: usize,
}

impl Body {
    /// Appends a chunk.
    ///
    /// # Errors
    /// 413 when this body, 429 when all bodies together pass their cap. The body then holds what it held.
    pub fn push(&mut self, chunk: Bytes) -> Result<(), Rejection> {
        if chunk.len() > self.budget.limits.request_bytes - self.len {
            return Err(self.budget.too_large());
        }
        self.budget.take_or_reject(chunk.len())?;
        self.len += chunk.len();
        if chunk.len() < SMALL_CHUNK && self.len > chunk.len() {
            self.small.extend_from_slice(&chunk);
            if self.small.len() >= JOINED {
                self.seal();
            }
        } else if !chunk.is_empty() {
            self.seal();
            self.pieces.push(chunk);
        }
        Ok(())
    }

    /// Counts what is held along with the body, its head for one, until the body is dropped.
    ///
    /// # Errors
    /// 429 when all bodies together pass their cap.
    pub fn charge(&mut self, bytes: usize) -> Result<(), Rejection> {
        self.budget.take_or_reject(bytes)?;
        self.charged += bytes;
        Ok(())
    }

    /// Bytes received.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing was received.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The whole body in one piece; a body of a single chunk is not copied.
    pub fn bytes(&mut self) -> Bytes {
        self.seal();
        if self.pieces.len() > 1 {
            let mut whole = BytesMut::with_capacity(self.len);
            self.pieces.drain(..).for_each(|piece| whole.extend_from_slice(&piece));
            self.pieces.push(whole.freeze());
        }
        self.pieces.first().cloned().unwrap_or_default()
    }

    /// Turns a body away by its `content-length`, before it arrives.
    ///
    /// # Errors
    /// 413 when that length passes the cap of one body.
    pub fn expect_length(&mut self, content_length: usize) -> Result<(), Rejection> {
        if content_length > self.budget.limits.request_bytes { Err(self.budget.too_large()) } else { Ok(()) }
    }

    fn seal(&mut self) {
        if !self.small.is_empty() {
            self.pieces.push(std::mem::take(&mut self.small).freeze());
        }
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        self.budget.give_back(self.len + self.charged);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn budget(total_bytes: usize, request_bytes: usize) -> Arc<BodyBudget> {
        BodyBudget::new(BodyLimits { total_bytes, request_bytes, ..BodyLimits::default() }, &Metrics::new())
    }

    #[test]
    fn a_single_chunk_is_not_copied() {
        let chunk = Bytes::from(vec![7; 9000]);
        let mut body = budget(100_000, 100_000).open();
        body.push(chunk.clone()).unwrap();
        assert_eq!(body.bytes().as_ptr(), chunk.as_ptr());
    }

    #[test]
    fn caps_reject_with_their_own_kind() {
        let budget = budget(150, 100);
        let (mut one, mut two) = (budget.open(), budget.open());
        one.push(Bytes::from(vec![0; 100])).unwrap();
        assert_eq!(one.push(Bytes::from_static(b"x")).unwrap_err().kind, ErrorKind::BodyTooLarge);
        assert_eq!(two.push(Bytes::from(vec![0; 51])).unwrap_err().kind, ErrorKind::Overloaded);
        assert_eq!(two.expect_length(101).unwrap_err().kind, ErrorKind::BodyTooLarge);
        two.expect_length(100).unwrap();
        two.push(Bytes::from(vec![0; 50])).unwrap();
        assert_eq!(budget.held_bytes(), 150);
        assert_eq!(two.charge(1).unwrap_err().kind, ErrorKind::Overloaded);
        drop(one);
        two.charge(30).unwrap();
        assert_eq!((budget.held_bytes(), two.len()), (80, 50));
        drop(two);
        assert_eq!(budget.held_bytes(), 0);
    }

    proptest! {
        #[test]
        fn any_chunking_gives_the_same_bytes_and_gives_back_all(
            bodies in prop::collection::vec(prop::collection::vec(0usize..6000, 0..20), 0..6)
        ) {
            let budget = budget(60_000, 20_000);
            let mut open = Vec::new();
            for sizes in bodies {
                let mut body = budget.open();
                let mut want = Vec::new();
                for (n, size) in sizes.into_iter().enumerate() {
                    let chunk = vec![n as u8; size];
                    if body.push(Bytes::from(chunk.clone())).is_ok() {
                        want.extend(chunk);
                    }
                }
                prop_assert!(want.len() <= 20_000);
                prop_assert_eq!(body.len(), want.len());
                prop_assert_eq!(body.bytes(), Bytes::from(want));
                open.push(body);
            }
            let held: usize = open.iter().map(Body::len).sum();
            prop_assert!(held <= 60_000);
            prop_assert_eq!(budget.held_bytes(), held);
            drop(open);
            prop_assert_eq!(budget.held_bytes(), 0);
        }
    }
}
