//! The response's side of a stream as a pure state machine: everything is answered, nothing is changed but, where it is
//! another one for the client, the model's name.
//!
//! Invariant: a response finishes at most once. A body that is echoed comes back byte for byte but for that name, its
//! end once.

use std::sync::Arc;

use super::{
    answer::{Answer, Seen},
    effect::{Effect, Unrenamed},
    inbound::{BodyMode, Chunk, Media, ResponseHead},
    rename::Renamer,
    reply::{Explained, NewBody, Reply, cut},
};
use crate::types::Outcome;

/// What its request tells of a response.
#[derive(Default)]
pub struct Known {
    /// What is to be explained.
    pub explained: Option<Explained>,
    /// The response's id names it in later requests.
    pub stored: bool,
    /// The client's name for the model, where the engine answers with another.
    pub client_model: Option<Arc<str>>,
    /// Its body is not to be sent to us.
    pub unwatched: bool,
    /// Which object of an event is the answer itself.
    pub inner: Option<&'static str>,
}

/// Where the response is.
#[derive(Default)]
pub enum Response {
    /// Not begun.
    #[default]
    Waiting,
    /// Its body goes by.
    Flowing {
        /// `:status`
        status: u16,
        /// What its body says.
        answer: Box<Answer>,
        /// Gives the model its name again, where that changes.
        renamer: Option<Box<Renamer>>,
    },
    /// Over; trailers may still be asked about.
    Over,
    /// Over, trailers and all; or we answered the client ourselves, and nothing more is said.
    Closed,
}

type Step = (Response, Vec<Effect>);

impl Response {
    /// Its headers came.
    pub fn headers(self, head: ResponseHead, known: Known, mode: BodyMode) -> Step {
        if !matches!(self, Self::Waiting) {
            return (self, Vec::new());
        }
        let answer = Box::new(Answer::new(&head, known.stored));
        let (renamer, unrenamed) = match renamer(&head, &known, mode) {
            Ok(renamer) => (renamer.map(Box::new), None),
            Err(why) => (None, Some(Effect::Unrenamed(why))),
        };
        // A body that comes in one piece tells its length itself.
        let resized = renamer.is_some() && mode != BodyMode::Buffered;
        let Known { explained, unwatched, .. } = known;
        let mut effects = vec![Effect::Reply(Reply::ResponseHeaders { explained, resized, unwatched })];
        effects.extend(unrenamed);
        effects.extend(head.served.map(Effect::ServedBy));
        let state = Self::Flowing { status: head.status, answer, renamer };
        if head.last { state.finish(effects) } else { (state, effects) }
    }

    /// A piece of its body came.
    pub fn body(self, chunk: Chunk, mode: BodyMode) -> Step {
        match self {
            // The proxy was told not to send its headers: there is nothing to learn, but it wants answers.
            Self::Waiting => Self::unknown().body(chunk, mode),
            Self::Flowing { status, mut answer, mut renamer } => {
                let mut effects = seen(answer.push(&chunk.bytes));
                let last = chunk.last;
                effects.extend(reply(chunk, renamer.as_deref_mut(), mode));
                let state = Self::Flowing { status, answer, renamer };
                if last { state.finish(effects) } else { (state, effects) }
            }
            state if mode.echoes() || matches!(state, Self::Closed) => (state, Vec::new()),
            state => (state, vec![Effect::Reply(Reply::ResponseBody(None))]),
        }
    }

    /// Its trailers came.
    pub fn trailers(self) -> Step {
        let reply = Effect::Reply(Reply::ResponseTrailers);
        match self {
            Self::Waiting => Self::unknown().trailers(),
            Self::Closed => (Self::Closed, Vec::new()),
            state => {
                let (_, effects) = state.finish(vec![reply]);
                (Self::Closed, effects)
            }
        }
    }

    /// How a response ended that was cut off by the end of the stream; `None`: nothing is known of it.
    pub fn cut_off(&self, mode: BodyMode) -> Option<Outcome> {
        let Self::Flowing { status, .. } = self else { return None };
        // A body that we never see can't be missed; a 5xx is the engine's fault however it ends.
        (mode == BodyMode::None || *status >= 500).then(|| Outcome::of_status(*status))
    }

    fn unknown() -> Self {
        let head = ResponseHead { encoded: true, ..ResponseHead::default() };
        Self::Flowing { status: head.status, answer: Box::new(Answer::new(&head, false)), renamer: None }
    }

    fn finish(self, mut effects: Vec<Effect>) -> Step {
        if let Self::Flowing { status, mut answer, .. } = self {
            let (last, usage) = answer.finish();
            effects.extend(seen(last));
            effects.push(Effect::Finish(Outcome::of_status(status), usage));
        }
        (Self::Over, effects)
    }
}

fn seen(seen: Seen) -> Vec<Effect> {
    let first = seen.first_token.then_some(Effect::FirstToken);
    first.into_iter().chain(seen.stored.map(Effect::MadeResponse)).collect()
}

/// What gives the model its name again, if anything has to.
fn renamer(head: &ResponseHead, known: &Known, mode: BodyMode) -> Result<Option<Renamer>, Unrenamed> {
    let media = head.media();
    let Some(name) = known.client_model.as_deref().filter(|_| !head.last && media != Media::Other) else {
        return Ok(None);
    };
    match mode {
        BodyMode::None => Err(Unrenamed::ResponseUnseen),
        _ if head.encoded => Err(Unrenamed::ResponseEncoded),
        _ => Ok(Renamer::new(name, known.inner, media)),
    }
}

fn reply(chunk: Chunk, renamer: Option<&mut Renamer>, mode: BodyMode) -> Vec<Effect> {
    let new = renamer.map(|renamer| renamer.step(chunk.bytes.clone()));
    if mode.echoes() {
        let bytes = new.unwrap_or(chunk.bytes);
        return cut(bytes, chunk.last).map(|c| Effect::Reply(Reply::ResponseChunk(c))).collect();
    }
    let new = new.filter(|new| *new != chunk.bytes);
    let body = new.map(|bytes| NewBody { bytes, whole: mode == BodyMode::Buffered });
    vec![Effect::Reply(Reply::ResponseBody(body))]
}
