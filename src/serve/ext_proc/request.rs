//! The request's side of a stream as a pure state machine: what is answered, when, and in which order.
//!
//! Invariant: headers are answered once. A body that is echoed comes back byte for byte but for its rewrite, its end
//! exactly once; one that is not is answered once a message. After a rejection nothing is answered.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use super::{
    effect::{Effect, Sight, Unrenamed},
    head::Head,
    inbound::{BodyMode, Chunk},
    names,
    reply::{Edit, Picked, Reply, cut},
};
use crate::{
    pipeline::Rewrite,
    prompt::spliced,
    types::{Decision, ErrorKind, ErrorShape, Rejection},
};

/// What was decided of a request.
#[derive(Debug)]
pub struct Placed {
    /// Where it goes.
    pub decision: Arc<Decision>,
    /// The bytes of the body held so far.
    pub body: Bytes,
    /// How the body has to change: possible only where all of it is held.
    pub rewrite: Option<Rewrite>,
    /// The client's name for the model, where the engine knows it by another.
    pub client_model: Option<Arc<str>>,
}

/// What happens to the request.
#[derive(Debug)]
pub enum Event {
    /// Its headers came; the flag: it has no body.
    Headers(Arc<Head>, bool),
    /// A piece of its body came.
    Body(Chunk),
    /// Its trailers came.
    Trailers,
    /// No body came for a while after the headers.
    Quiet,
    /// It was decided.
    Placed(Placed),
    /// The decision turns it away.
    Rejected(Rejection),
    /// It is turned away before it was decided.
    Refused(Rejection),
    /// It is answered with that.
    Answered(Value),
    /// The proxy answers the client itself.
    Overtaken,
}

/// What has come of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// More may come.
    No,
    /// There is none: the headers said so.
    AtHeaders,
    /// The last chunk came.
    AtBody,
    /// Trailers came.
    AtTrailers,
}

/// Which message carries the pick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Headers,
    Body,
    Trailers,
}

/// A request that waits for its decision.
#[derive(Debug)]
pub struct Deciding {
    head: Arc<Head>,
    due: Due,
    ended: Ended,
    sight: Sight,
    /// Bodies that came meanwhile and are to be answered one by one.
    owed: usize,
    /// Trailers came meanwhile.
    trailers: bool,
}

/// A body that nobody wants any more.
#[derive(Debug)]
pub struct Draining {
    rejection: Rejection,
    shape: ErrorShape,
    /// Bytes that may still come before the client is cut off.
    left: usize,
}

/// How much of an unwanted body is read to its end.
const MOST_DRAINED: usize = 32 * 1024 * 1024;

/// Where the request is.
#[derive(Debug, Default)]
pub enum Request {
    /// Nothing came yet.
    #[default]
    Idle,
    /// The decision waits for the body.
    Receiving(Arc<Head>),
    /// The decision is being made.
    Deciding(Deciding),
    /// Turned away while its body still comes: the rest is thrown away first, because a client that is cut off
    /// while it sends may never read its answer.
    Draining(Draining),
    /// Decided, or none of our business: what else comes goes on as it is.
    Passing(Ended),
    /// Nothing is answered any more.
    Closed,
}

type Step = (Request, Vec<Effect>);

impl Request {
    /// One step.
    pub fn step(self, event: Event, mode: BodyMode) -> Step {
        match (self, event) {
            (Self::Closed, _) => (Self::Closed, Vec::new()),
            (state, Event::Rejected(rejection)) => state.reject(rejection, mode),
            (state, Event::Refused(rejection)) => state.refuse(rejection, mode),
            (Self::Idle, Event::Overtaken) => (Self::Passing(Ended::No), Vec::new()),
            (Self::Passing(ended), Event::Overtaken) => (Self::Passing(ended), Vec::new()),
            (_, Event::Overtaken) => (Self::Closed, vec![Effect::Abandon]),
            (Self::Idle, Event::Headers(head, last)) => begin(head, last, mode),
            (state, Event::Body(chunk)) => state.body(chunk, mode),
            (state, Event::Trailers) => state.trailers(mode),
            (Self::Receiving(head), Event::Quiet) if mode == BodyMode::Inferred => {
                decide(head, Due::Headers, Ended::No, Sight::Unseen)
            }
            (Self::Deciding(_), Event::Answered(body)) => {
                (Self::Closed, vec![Effect::Reply(Reply::Answer(body)), Effect::Close])
            }
            (Self::Deciding(deciding), Event::Placed(placed)) => deciding.placed(placed, mode),
            (state, _) => (state, Vec::new()),
        }
    }

    /// Told at once, though the answer may wait for the rest of the body.
    fn refuse(self, rejection: Rejection, mode: BodyMode) -> Step {
        let head = match &self {
            Self::Receiving(head) | Self::Deciding(Deciding { head, .. }) => Some(head.clone()),
            _ => None,
        };
        let told = head.map(|head| Effect::Refused(head, rejection.clone()));
        let (state, effects) = self.reject(rejection, mode);
        (state, told.into_iter().chain(effects).collect())
    }

    fn reject(self, rejection: Rejection, mode: BodyMode) -> Step {
        match self {
            Self::Receiving(head) => {
                let comes = mode.echoes() && rejection.kind != ErrorKind::BodyTimeout;
                if comes && head.content_length.is_none_or(|length| length <= MOST_DRAINED) {
                    let draining = Draining { rejection, shape: head.shape, left: MOST_DRAINED };
                    return (Self::Draining(draining), vec![Effect::Abandon]);
                }
                turn_away(rejection, head.shape)
            }
            Self::Deciding(deciding) => turn_away(rejection, deciding.head.shape),
            // The rest is late; what the client did first is what it is told.
            Self::Draining(draining) => turn_away(draining.rejection, draining.shape),
            // Its headers have gone on: nothing of ours can turn it away any more.
            state => (state, Vec::new()),
        }
    }

    fn body(self, chunk: Chunk, mode: BodyMode) -> Step {
        match self {
            Self::Receiving(head) if mode.echoes() => {
                let last = chunk.last;
                let hold = Effect::Hold(chunk.bytes);
                if last {
                    let (state, then) = decide(head, Due::Headers, Ended::AtBody, Sight::Held);
                    return (state, std::iter::once(hold).chain(then).collect());
                }
                (Self::Receiving(head), vec![hold])
            }
            Self::Receiving(head) if mode == BodyMode::BufferedPartial && !chunk.last => {
                decide(head, Due::Body, Ended::No, Sight::Unseen)
            }
            Self::Receiving(head) => {
                let ended = if chunk.last { Ended::AtBody } else { Ended::No };
                let (state, then) = decide(head, Due::Body, ended, Sight::Held);
                (state, std::iter::once(Effect::Hold(chunk.bytes)).chain(then).collect())
            }
            Self::Draining(draining) => draining.body(&chunk),
            Self::Deciding(mut deciding) if mode.echoes() => {
                if deciding.ended != Ended::No {
                    return (Self::Deciding(deciding), Vec::new());
                }
                if chunk.last {
                    deciding.ended = Ended::AtBody;
                }
                (Self::Deciding(deciding), vec![Effect::Hold(chunk.bytes)])
            }
            Self::Deciding(mut deciding) => {
                deciding.owed += 1;
                (Self::Deciding(deciding), Vec::new())
            }
            // A stream that begins with a body skips the headers: nothing can be picked.
            Self::Idle => Self::Passing(Ended::No).body(chunk, mode),
            Self::Passing(ended) if mode.echoes() => {
                if ended != Ended::No {
                    return (Self::Passing(ended), Vec::new());
                }
                let ended = if chunk.last { Ended::AtBody } else { ended };
                (Self::Passing(ended), echo(chunk.bytes, chunk.last).collect())
            }
            Self::Passing(ended) => {
                (Self::Passing(ended), vec![Effect::Reply(Reply::RequestBody(Edit::default()))])
            }
            Self::Closed => (Self::Closed, Vec::new()),
        }
    }

    fn trailers(self, mode: BodyMode) -> Step {
        match self {
            Self::Receiving(head) => {
                let due = if mode.echoes() { Due::Headers } else { Due::Trailers };
                let (mut state, effects) = decide(head, due, Ended::AtTrailers, Sight::Held);
                if let Self::Deciding(deciding) = &mut state {
                    deciding.trailers = true;
                }
                (state, effects)
            }
            Self::Deciding(mut deciding) => {
                deciding.trailers = true;
                if deciding.ended == Ended::No {
                    deciding.ended = Ended::AtTrailers;
                }
                (Self::Deciding(deciding), Vec::new())
            }
            Self::Draining(draining) => turn_away(draining.rejection, draining.shape),
            Self::Passing(Ended::AtTrailers) => (Self::Passing(Ended::AtTrailers), Vec::new()),
            Self::Idle | Self::Passing(_) => {
                let reply = Effect::Reply(Reply::RequestTrailers(Edit::default()));
                (Self::Passing(Ended::AtTrailers), vec![reply])
            }
            Self::Closed => (Self::Closed, Vec::new()),
        }
    }
}

impl Draining {
    fn body(mut self, chunk: &Chunk) -> Step {
        self.left = self.left.saturating_sub(chunk.bytes.len());
        if chunk.last || self.left == 0 {
            return turn_away(self.rejection, self.shape);
        }
        (Request::Draining(self), Vec::new())
    }
}

fn turn_away(rejection: Rejection, shape: ErrorShape) -> Step {
    (Request::Closed, vec![Effect::Reply(Reply::Immediate(rejection, shape, None)), Effect::Close])
}

impl Deciding {
    fn placed(self, placed: Placed, mode: BodyMode) -> Step {
        let Self { head, due, ended, sight, owed, trailers } = self;
        let unrenamed = sight == Sight::Unseen && (placed.rewrite.is_some() || placed.client_model.is_some());
        let mut effects: Vec<_> =
            unrenamed.then_some(Effect::Unrenamed(Unrenamed::RequestUnseen)).into_iter().collect();
        let pick = Picked::new(&placed.decision, &head.path);
        let mut edit = Edit { pick: Some(pick), remove: head.forged.clone(), body: None };
        let mut body = placed.body;
        if let Some(rewrite) = placed.rewrite.filter(|_| sight == Sight::Held) {
            if matches!(rewrite, Rewrite::Whole(_)) {
                edit.remove.push(names::CONTENT_ENCODING);
            }
            body = rewritten(&body, rewrite);
            match due {
                Due::Headers => edit.remove.push(names::CONTENT_LENGTH),
                Due::Body | Due::Trailers => edit.body = Some(body.clone()),
            }
        }
        match due {
            Due::Headers => effects.push(Effect::Reply(Reply::RequestHeaders(std::mem::take(&mut edit)))),
            Due::Body => effects.push(Effect::Reply(Reply::RequestBody(std::mem::take(&mut edit)))),
            Due::Trailers => {}
        }
        if mode.echoes() {
            effects.extend(echo(body, ended == Ended::AtBody));
        } else {
            effects.extend((0..owed).map(|_| Effect::Reply(Reply::RequestBody(Edit::default()))));
        }
        if trailers {
            effects.push(Effect::Reply(Reply::RequestTrailers(edit)));
        }
        (Request::Passing(if trailers { Ended::AtTrailers } else { ended }), effects)
    }
}

fn rewritten(body: &Bytes, rewrite: Rewrite) -> Bytes {
    match rewrite {
        Rewrite::Splices(splices) => spliced(body, &splices),
        Rewrite::Whole(body) => body,
    }
}

fn begin(head: Arc<Head>, last: bool, mode: BodyMode) -> Step {
    if last {
        return decide(head, Due::Headers, Ended::AtHeaders, Sight::Nothing);
    }
    let unseen = matches!(mode, BodyMode::None | BodyMode::Streamed) || !head.needs_body();
    if unseen {
        return decide(head, Due::Headers, Ended::No, Sight::Unseen);
    }
    let mut effects: Vec<_> = head.content_length.map(Effect::Expect).into_iter().collect();
    if !mode.echoes() {
        // The body comes only after this answer; the pick follows with the answer to the body.
        let edit = Edit { remove: head.forged.clone(), ..Edit::default() };
        effects.push(Effect::Reply(Reply::RequestHeaders(edit)));
    }
    (Request::Receiving(head), effects)
}

fn decide(head: Arc<Head>, due: Due, ended: Ended, sight: Sight) -> Step {
    let deciding = Deciding { head: head.clone(), due, ended, sight, owed: 0, trailers: false };
    (Request::Deciding(deciding), vec![Effect::Decide(head, sight)])
}

fn echo(bytes: Bytes, last: bool) -> impl Iterator<Item = Effect> {
    cut(bytes, last).map(|chunk| Effect::Reply(Reply::RequestChunk(chunk)))
}
