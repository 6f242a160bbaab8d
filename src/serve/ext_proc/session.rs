//! One ext_proc stream: the thin loop that feeds the machine and does what it says.
//!
//! Invariant: whatever ends the stream, dropping the session releases the body and the load. It holds nothing
//! that grows but the capped body: it reads no message while answers wait to be sent.

use std::{collections::VecDeque, mem};

use envoy_types::pb::envoy::service::ext_proc::v3::{ProcessingRequest, ProcessingResponse};
use futures::{Stream, StreamExt, future::BoxFuture};
use tokio::time::{Duration, Instant};
use tonic::{Code, Status};

use super::{
    effect::{Effect, Sight},
    head::Head,
    inbound::{Message, Modes},
    machine::{Event, Machine, Wait, is_stored},
    reply::Reply,
    request::Placed,
    shared::Shared,
    stats::End,
};
use crate::{
    pipeline::{IncomingBody, Placement},
    prompt::Body,
    types::{ErrorKind, Rejection},
};

/// How long a sender that tells no body mode may send no body before it is answered without one: long for a
/// body that is on its way, short against the message timeout of proxies that wait for the answer (200 ms).
const SIGN_GRACE: Duration = Duration::from_millis(100);

/// One stream and all that it holds.
pub struct Session<S> {
    shared: std::sync::Arc<Shared>,
    inbound: S,
    inbound_over: bool,
    closing: bool,
    /// The response's body is looked at.
    watched: bool,
    machine: Option<Machine>,
    replies: VecDeque<Reply>,
    body: Option<Body>,
    deciding: Option<BoxFuture<'static, Result<Placement, Rejection>>>,
    placement: Option<Placement>,
    began: Instant,
    heard: Instant,
    end: End,
}

/// What the loop woke up for.
enum Woken {
    Said(Box<ProcessingRequest>),
    Broke(Status),
    HalfClosed,
    Decided(Result<Placement, Rejection>),
    Late(Wait),
}

impl<S> Session<S>
where
    S: Stream<Item = Result<ProcessingRequest, Status>> + Send + Unpin,
{
    /// A new stream.
    pub fn new(shared: std::sync::Arc<Shared>, inbound: S) -> Self {
        shared.stats.began();
        let (now, watched) = (Instant::now(), shared.watches());
        Self {
            shared,
            watched,
            inbound,
            inbound_over: false,
            closing: false,
            machine: None,
            replies: VecDeque::new(),
            body: None,
            deciding: None,
            placement: None,
            began: now,
            heard: now,
            end: End::default(),
        }
    }

    /// The next answer; `None` at the end.
    pub async fn next(&mut self) -> Option<ProcessingResponse> {
        loop {
            if let Some(reply) = self.replies.pop_front() {
                return Some(reply.encode());
            }
            if self.placement.is_some() {
                // Everything held has been sent on.
                self.body = None;
            }
            if self.closing || (self.inbound_over && self.deciding.is_none()) {
                return None;
            }
            match self.wake().await {
                Woken::Said(message) => self.said(*message),
                Woken::Broke(status) => self.broke(&status),
                Woken::HalfClosed => self.inbound_over = true,
                Woken::Decided(result) => self.decided(result),
                Woken::Late(Wait::Sign) => self.feed(Event::Quiet),
                Woken::Late(_) => {
                    let why = "The request body did not arrive in time.";
                    self.feed(Event::Refused(Rejection::new(ErrorKind::BodyTimeout, why)));
                }
            }
        }
    }

    async fn wake(&mut self) -> Woken {
        let wait = self.machine.as_ref().map_or(Wait::None, Machine::wait);
        let limits = self.shared.budget.limits();
        let whole = self.began + limits.ttl;
        let late = match wait {
            Wait::None => None,
            Wait::Sign => Some(self.heard + SIGN_GRACE),
            Wait::Chunk => Some(whole.min(self.heard + limits.idle_timeout)),
            Wait::Whole => Some(whole),
        };
        let deciding = async {
            match &mut self.deciding {
                Some(deciding) => deciding.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            result = deciding => Woken::Decided(result),
            said = self.inbound.next(), if !self.inbound_over => match said {
                Some(Ok(message)) => Woken::Said(Box::new(message)),
                Some(Err(status)) => Woken::Broke(status),
                None => Woken::HalfClosed,
            },
            () = tokio::time::sleep_until(late.unwrap_or(whole)), if late.is_some() => Woken::Late(wait),
        }
    }

    fn said(&mut self, message: ProcessingRequest) {
        self.heard = Instant::now();
        if self.machine.is_none() {
            let modes = Modes::of(message.protocol_config.as_ref());
            let machine = Machine::new(modes, self.shared.config.explain_headers);
            self.machine = Some(machine.watching(self.watched));
        }
        let Some(message) = Message::parse(message, &self.shared.config, || self.shared.own_id()) else {
            return;
        };
        self.shared.stats.received(&message);
        self.feed(Event::Message(message));
    }

    /// A reset of the stream is how most of them end; only what we could not read is worth a line.
    fn broke(&mut self, status: &Status) {
        self.closing = true;
        // A reset that meets a read looks like a fault; where all was said, it is none.
        let unread = matches!(
            status.code(),
            Code::OutOfRange | Code::Internal | Code::InvalidArgument | Code::DataLoss
        );
        if unread && self.end != End::Completed {
            self.end = End::Broken;
            tracing::warn!(code = ?status.code(), message = status.message(), "ext_proc stream broke");
        }
    }

    fn decided(&mut self, result: Result<Placement, Rejection>) {
        self.deciding = None;
        match result {
            Ok(mut placement) => {
                let placed = Placed {
                    decision: placement.decision.clone(),
                    body: self.body.as_mut().map(Body::bytes).unwrap_or_default(),
                    rewrite: placement.rewrite.take(),
                    client_model: placement.client_model.take(),
                };
                self.placement = Some(placement);
                self.feed(Event::Placed(placed));
            }
            Err(rejection) => self.feed(Event::Rejected(rejection)),
        }
    }

    fn feed(&mut self, event: Event) {
        let mut next = Some(event);
        while let Some(event) = next.take() {
            let (machine, effects) = self.machine.take().unwrap_or_default().step(event);
            self.machine = Some(machine);
            next = effects.into_iter().try_for_each(|effect| self.perform(effect)).err();
        }
    }

    /// `Err`: that happens at once instead of the effects after it.
    fn perform(&mut self, effect: Effect) -> Result<(), Event> {
        match effect {
            Effect::Expect(length) => self.body().expect_length(length).map_err(Event::Refused)?,
            Effect::Hold(bytes) => self.body().push(bytes).map_err(Event::Refused)?,
            Effect::Decide(head, sight) => self.decide(&head, sight)?,
            Effect::Refused(head, rejection) => {
                (self.shared.refused)(&head.incoming(IncomingBody::Unseen), &rejection);
            }
            Effect::Reply(reply) => {
                match &reply {
                    Reply::Immediate(rejection, ..) => {
                        self.end = End::Rejected;
                        self.shared.stats.rejected(rejection.kind);
                    }
                    Reply::Answer(_) => self.end = End::Completed,
                    _ => {}
                }
                self.replies.push_back(reply);
            }
            Effect::Unrenamed(reason) => {
                self.shared.stats.unrenamed(reason);
                tracing::debug!(reason = reason.label(), "a body keeps its name of the model");
            }
            Effect::Unheeded => self.shared.unheeded(),
            Effect::Abandon => (self.deciding, self.body) = (None, None),
            Effect::Close => {
                (self.closing, self.deciding, self.body) = (true, None, None);
            }
            Effect::FirstToken => self.placed(Placement::first_token),
            Effect::ServedBy(endpoint) => self.placed(|placement| placement.served_by(&endpoint)),
            Effect::MadeResponse(id) => self.placed(|placement| placement.made_response(&id)),
            Effect::Finish(outcome, usage) => {
                self.end = End::Completed;
                if let Some(placement) = self.placement.take() {
                    placement.finish(outcome, usage);
                }
            }
        }
        Ok(())
    }

    fn decide(&mut self, head: &Head, sight: Sight) -> Result<(), Event> {
        let shape = head.shape;
        let mut incoming = head.incoming(self.sight(sight));
        incoming.sees_response = self.watched || is_stored(&incoming.kind);
        match self.shared.models.as_ref().and_then(|models| models(&incoming, shape)) {
            Some(Ok(body)) => Err(Event::Answered(body)),
            Some(Err(rejection)) => Err(Event::Rejected(rejection)),
            None => {
                self.deciding = Some((self.shared.decide)(incoming));
                Ok(())
            }
        }
    }

    fn body(&mut self) -> &mut Body {
        self.body.get_or_insert_with(|| self.shared.budget.open())
    }

    fn sight(&mut self, sight: Sight) -> IncomingBody {
        match sight {
            Sight::Unseen => IncomingBody::Unseen,
            Sight::Nothing => IncomingBody::Empty,
            Sight::Held => match self.body.as_mut().map(Body::bytes) {
                Some(bytes) if !bytes.is_empty() => IncomingBody::Full(bytes),
                _ => IncomingBody::Empty,
            },
        }
    }

    fn placed(&mut self, act: impl FnOnce(&mut Placement)) {
        if let Some(placement) = &mut self.placement {
            act(placement);
        }
    }
}

impl<S> Drop for Session<S> {
    fn drop(&mut self) {
        // A response whose body we were never shown ended with its headers, as far as we can tell.
        let outcome = self.machine.as_ref().and_then(Machine::cut_off);
        if let (Some(outcome), Some(placement)) = (outcome, mem::take(&mut self.placement)) {
            self.end = End::Completed;
            placement.finish(outcome, None);
        }
        self.shared.stats.ended(self.end);
    }
}
