//! What the loop does on the machine's behalf, in order. The first one that fails drops those after it.

use bytes::Bytes;

use super::{head::Head, reply::Reply};
use crate::types::{Outcome, Usage};

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

/// One thing to do.
#[derive(Debug)]
pub enum Effect {
    /// The body will have that many bytes: turn it away now if it can't be held.
    Expect(usize),
    /// Hold these bytes of the body.
    Hold(Bytes),
    /// Ask for a decision.
    Decide(Box<Head>, Sight),
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
    /// End the stream once everything is sent.
    Close,
}
