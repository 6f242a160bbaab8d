//! Bodies that come in chunks, and their keeping until a pick claims them. Bytes.
//!
//! Invariant: bytes are counted against `BodyBudget` from their arrival on, heads included, and given back when the body is
//! dropped: on an error at once, unclaimed after `body_ttl_secs`. What is kept is thereby bounded by `body_max_total_kb`.

use std::sync::Arc;

use futures::{Stream, StreamExt};
use tokio::time::{Instant, timeout_at};
use tonic::{Code, Status};

use crate::{
    prompt::{Body, BodyBudget},
    serve::{
        proto::{BodyHead, PushBodyRequest, push_body_request::Part},
        status::{Reason, Refusal},
    },
    types::ErrorKind,
};

/// What keeping a body costs besides its bytes and its head's, so that empty ones count too.
const UPKEEP: usize = 512;

/// The caller is told.
const HEADLESS: &str = "The first message must be the head.";

/// A body and its head.
pub struct Pushed {
    /// Its head.
    pub head: BodyHead,
    /// Its bytes, and their place in the budget.
    pub body: Body,
}

/// Receives one body.
///
/// # Errors
/// A cap, a timeout, messages out of order, or the caller went away; with the head, if it came. Nothing is held then.
pub async fn receive<S>(
    budget: &Arc<BodyBudget>,
    inbound: S,
) -> Result<Pushed, (Option<Box<BodyHead>>, Refusal)>
where
    S: Stream<Item = Result<PushBodyRequest, Status>> + Unpin,
{
    let mut head = None;
    match (collect(budget, inbound, &mut head).await, head) {
        (Ok(body), Some(head)) => Ok(Pushed { head, body }),
        (Ok(_), None) => Err((None, out_of_order(HEADLESS))),
        (Err(refusal), head) => Err((head.map(Box::new), refusal)),
    }
}

async fn collect<S>(
    budget: &Arc<BodyBudget>,
    mut inbound: S,
    head: &mut Option<BodyHead>,
) -> Result<Body, Refusal>
where
    S: Stream<Item = Result<PushBodyRequest, Status>> + Unpin,
{
    let limits = *budget.limits();
    let whole = Instant::now() + limits.ttl;
    let mut body = budget.open();
    loop {
        let late = whole.min(Instant::now() + limits.idle_timeout);
        let Ok(message) = timeout_at(late, inbound.next()).await else {
            return Err(Refusal::new(ErrorKind::BodyTimeout, "The request body did not arrive in time."));
        };
        let part = match message {
            None => return Ok(body),
            Some(Err(status)) => return Err(broken(&status)),
            Some(Ok(message)) => message.part,
        };
        match (part, &*head) {
            (Some(Part::Head(first)), None) => {
                let (length, upkeep) = (first.content_length, size(&first) + UPKEEP);
                *head = Some(first);
                body.expect_length(usize::try_from(length).unwrap_or(usize::MAX))?;
                body.charge(upkeep)?;
            }
            (Some(Part::Chunk(chunk)), Some(_)) => body.push(chunk.into())?,
            (Some(Part::Head(_)), Some(_)) => return Err(out_of_order("Only the first message is a head.")),
            (_, None) => return Err(out_of_order(HEADLESS)),
            // A part of a later version of the API.
            (None, Some(_)) => {}
        }
    }
}

fn out_of_order(why: &str) -> Refusal {
    Refusal::new(ErrorKind::BadRequest, why)
}

fn broken(status: &Status) -> Refusal {
    match status.code() {
        Code::OutOfRange | Code::ResourceExhausted => {
            Refusal::new(ErrorKind::BodyTooLarge, "A message of the body is larger than the server takes.")
        }
        _ => Refusal::new(Reason::Cancelled, "The stream of the body broke off."),
    }
}

fn size(head: &BodyHead) -> usize {
    let BodyHead { request_id, method, path, content_type, content_encoding, content_length: _ } = head;
    [request_id, method, path, content_type, content_encoding].iter().map(|text| text.len()).sum()
}
