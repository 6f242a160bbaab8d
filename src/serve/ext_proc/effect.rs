//! What the loop does on the machine's behalf, in order. The first one that fails drops those after it.

use std::sync::Arc;

use bytes::Bytes;

use super::{head::Head, reply::Reply};
use crate::types::{Outcome, Rejection, Usage};

/// What of the body the decision is made on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// What is held is the whole body.
    Held,
    /// There is none.
    Nothing,
    /// It comes later.
    Unseen,
}

/// Why a body goes on with another name of the model than it should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unrenamed {
    /// The request's body comes after the decision, or never: the engine gets the client's name.
    RequestUnseen,
    /// The response's body is not shown to us.
    ResponseUnseen,
    /// The response has a content encoding.
    ResponseEncoded,
}

impl Unrenamed {
    /// Each of them.
    pub const ALL: [Self; 3] = [Self::RequestUnseen, Self::ResponseUnseen, Self::ResponseEncoded];

    /// As metrics and logs name it.
    pub const fn label(self) -> &'static str {
        match self {
            Self::RequestUnseen => "request_unseen",
            Self::ResponseUnseen => "response_unseen",
            Self::ResponseEncoded => "response_encoded",
        }
    }
}

/// One thing to do.
#[derive(Debug)]
pub enum Effect {
    /// The body will have that many bytes: turn it away now if it can't be held.
    Expect(usize),
    /// Hold these bytes of the body.
    Hold(Bytes),
    /// Ask for a decision.
    Decide(Arc<Head>, Sight),
    /// Tell of a request that is turned away before it was decided.
    Refused(Arc<Head>, Rejection),
    /// Send.
    Reply(Reply),
    /// Forget body and decision: the proxy answers the client itself.
    Abandon,
    /// The first byte of a streamed answer came.
    FirstToken,
    /// That endpoint serves it.
    ServedBy(String),
    /// The engine keeps a response of that id.
    MadeResponse(String),
    /// The response is over.
    Finish(Outcome, Option<Usage>),
    /// A body keeps its name of the model.
    Unrenamed(Unrenamed),
    /// The proxy was told to keep the response's body to itself, and sends it.
    Unheeded,
    /// End the stream once everything is sent.
    Close,
}
