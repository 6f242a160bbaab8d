//! The response's side of a stream as a pure state machine: everything is answered, nothing is changed.
//!
//! Invariant: a response finishes at most once. A body that is echoed comes back byte for byte, its end once.

use super::{
    answer::{Answer, Seen},
    effect::Effect,
    inbound::{BodyMode, Chunk, ResponseHead},
    reply::{Reply, cut},
};
use crate::types::Outcome;

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
    },
    /// Over; trailers may still be asked about.
    Over,
    /// Over, trailers and all; or we answered the client ourselves, and nothing more is said.
    Closed,
}

type Step = (Response, Vec<Effect>);

impl Response {
    /// Its headers came; `reply` answers them, `stored` says whether its id names it in later requests.
    pub fn headers(self, head: ResponseHead, reply: Reply, stored: bool) -> Step {
        if !matches!(self, Self::Waiting) {
            return (self, Vec::new());
        }
        let mut effects = vec![Effect::Reply(reply)];
        let answer = Box::new(Answer::new(&head, stored));
        effects.extend(head.served.map(Effect::ServedBy));
        let state = Self::Flowing { status: head.status, answer };
        if head.last { state.finish(effects) } else { (state, effects) }
    }

    /// A piece of its body came.
    pub fn body(self, chunk: Chunk, mode: BodyMode) -> Step {
        match self {
            // The proxy was told not to send its headers: there is nothing to learn, but it wants answers.
            Self::Waiting => Self::unknown().body(chunk, mode),
            Self::Flowing { status, mut answer } => {
                let mut effects = seen(answer.push(&chunk.bytes));
                let last = chunk.last;
                effects.extend(reply(chunk, mode));
                let state = Self::Flowing { status, answer };
                if last { state.finish(effects) } else { (state, effects) }
            }
            state if mode.echoes() || matches!(state, Self::Closed) => (state, Vec::new()),
            state => (state, vec![Effect::Reply(Reply::ResponseBody)]),
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
        (mode == BodyMode::None || *status >= 500).then(|| outcome(*status))
    }

    fn unknown() -> Self {
        let head = ResponseHead { encoded: true, ..ResponseHead::default() };
        Self::Flowing { status: head.status, answer: Box::new(Answer::new(&head, false)) }
    }

    fn finish(self, mut effects: Vec<Effect>) -> Step {
        if let Self::Flowing { status, mut answer } = self {
            let (last, usage) = answer.finish();
            effects.extend(seen(last));
            effects.push(Effect::Finish(outcome(status), usage));
        }
        (Self::Over, effects)
    }
}

fn seen(seen: Seen) -> Vec<Effect> {
    let first = seen.first_token.then_some(Effect::FirstToken);
    first.into_iter().chain(seen.stored.map(Effect::MadeResponse)).collect()
}

fn reply(chunk: Chunk, mode: BodyMode) -> Vec<Effect> {
    if mode.echoes() {
        return cut(chunk.bytes, chunk.last).map(|c| Effect::Reply(Reply::ResponseChunk(c))).collect();
    }
    vec![Effect::Reply(Reply::ResponseBody)]
}

const fn outcome(status: u16) -> Outcome {
    match status {
        0..400 => Outcome::Completed,
        400..500 => Outcome::ClientError,
        500.. => Outcome::Failed,
    }
}
