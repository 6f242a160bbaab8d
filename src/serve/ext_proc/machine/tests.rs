//! The whole stream: each mode's order of answers, and properties over any order of messages.

mod provider;
mod rename;
mod watching;

use std::sync::Arc;

use bytes::Bytes;
use envoy_types::pb::envoy::{
    config::core::v3::HeaderValue, service::ext_proc::v3::processing_response::Response,
};
use proptest::prelude::*;

use super::*;
use crate::{
    serve::ext_proc::{
        effect::{Sight, Unrenamed},
        head::Head,
        inbound::Chunk,
        reply::{CHUNK_BYTES, Edit, Reply},
    },
    types::{Candidate, Decision, ErrorKind, ErrorShape, RuleSaid, Ruled, Target, WorkerId, WorkerTarget},
};

fn decision() -> Arc<Decision> {
    let candidate = |id: u64| {
        Candidate::new(
            Target::Worker(WorkerTarget {
                id: WorkerId(id),
                name: format!("w{id}").into(),
                workerset: "s".into(),
                endpoint: format!("10.0.0.{id}:80").into(),
            }),
            None,
        )
    };
    Arc::new(Decision {
        candidates: vec![candidate(1), candidate(2)],
        fallbacks: vec![1],
        ..Decision::default()
    })
}

fn placed(held: Vec<u8>) -> Placed {
    Placed { decision: decision(), body: held.into(), rewrite: None, client_model: None }
}

fn head(kind: RequestKind) -> Arc<Head> {
    Arc::new(Head {
        request_id: "r".into(),
        path: "/v1/chat/completions?x=1".into(),
        kind,
        shape: ErrorShape::OpenAi,
        content_type: None,
        content_encoding: None,
        content_length: Some(3),
        tenant: None,
        tags: vec![],
        pool: None,
        subset: None,
        traceparent: None,
        began: tokio::time::Instant::now(),
        forged: vec![],
    })
}

fn headers(last: bool) -> Message {
    Message::RequestHeaders { head: head(RequestKind::Inference(Api::ChatCompletions)), last }
}

fn chunk(bytes: impl Into<Bytes>, last: bool) -> Chunk {
    Chunk { bytes: bytes.into(), last }
}

fn response(status: u16, last: bool) -> Message {
    Message::ResponseHeaders(ResponseHead { status, last, ..ResponseHead::default() })
}

/// The loop without I/O: holds the body, decides when told to.
struct Loop {
    machine: Machine,
    held: Vec<u8>,
    pending: Option<Sight>,
    replies: Vec<Reply>,
    finished: Vec<Outcome>,
    closed: bool,
    unrenamed: Vec<Unrenamed>,
    unheeded: usize,
    refused: usize,
}

impl Loop {
    fn new(request: BodyMode, response: BodyMode) -> Self {
        let machine = Machine::new(Modes { request, response }, false);
        Self {
            machine,
            held: vec![],
            pending: None,
            replies: vec![],
            finished: vec![],
            closed: false,
            unrenamed: vec![],
            unheeded: 0,
            refused: 0,
        }
    }

    fn feed(&mut self, event: Event) {
        let (machine, effects) = mem::take(&mut self.machine).step(event);
        self.machine = machine;
        for effect in effects {
            match effect {
                Effect::Hold(bytes) => self.held.extend(bytes),
                Effect::Decide(_, sight) => {
                    assert!(self.pending.is_none(), "decided twice");
                    self.pending = Some(sight);
                }
                Effect::Reply(reply) => self.replies.push(reply),
                Effect::Abandon => self.pending = None,
                Effect::Finish(outcome, _) => self.finished.push(outcome),
                Effect::Close => self.closed = true,
                Effect::Unrenamed(reason) => self.unrenamed.push(reason),
                Effect::Unheeded => self.unheeded += 1,
                Effect::Refused(..) => self.refused += 1,
                Effect::Expect(_) | Effect::FirstToken | Effect::ServedBy(_) | Effect::MadeResponse(_) => {}
            }
        }
    }

    fn say(&mut self, messages: impl IntoIterator<Item = Message>) -> &mut Self {
        messages.into_iter().for_each(|message| self.feed(Event::Message(message)));
        self
    }

    fn place(&mut self) -> &mut Self {
        if self.pending.take().is_some() {
            self.feed(Event::Placed(placed(self.held.clone())));
        }
        self
    }

    /// The answers so far, one word each, then forgotten.
    fn words(&mut self) -> Vec<String> {
        let pick =
            |name: &str, edit: &Edit| format!("{name}{}", if edit.pick.is_some() { "+pick" } else { "" });
        let piece = |name: &str, chunk: &Chunk| {
            format!("{name}:{}{}", chunk.bytes.len(), if chunk.last { "." } else { "" })
        };
        let word = |reply: &Reply| match reply {
            Reply::RequestHeaders(edit) => pick("headers", edit),
            Reply::RequestBody(edit) => pick("body", edit),
            Reply::RequestTrailers(edit) => pick("trailers", edit),
            Reply::RequestChunk(chunk) => piece("chunk", chunk),
            Reply::ResponseHeaders { .. } => "r-headers".into(),
            Reply::ResponseBody(new) => if new.is_some() { "r-body-new" } else { "r-body" }.into(),
            Reply::ResponseChunk(chunk) => piece("r-chunk", chunk),
            Reply::ResponseTrailers => "r-trailers".into(),
            Reply::Immediate(rejection, ..) => rejection.kind.label().into(),
            Reply::Answer(_) => "answer".into(),
        };
        mem::take(&mut self.replies).iter().map(word).collect()
    }
}

#[test]
fn duplex_waits_for_the_decision_then_answers_in_order() {
    let mut duplex = Loop::new(BodyMode::Duplex, BodyMode::Duplex);
    duplex.say([headers(false), Message::RequestBody(chunk(vec![0; 100_000], false))]);
    assert!(duplex.words().is_empty() && duplex.pending.is_none());
    duplex.say([Message::RequestBody(chunk("", true)), Message::RequestBody(chunk("", true))]);
    assert_eq!(duplex.pending, Some(Sight::Held));
    assert!(duplex.words().is_empty());
    assert_eq!(duplex.place().words(), ["headers+pick", "chunk:62000", "chunk:38000."]);
    duplex.say([response(200, false), Message::ResponseBody(chunk("abc", false))]);
    duplex.say([Message::ResponseBody(chunk("", true)), Message::ResponseBody(chunk("", true))]);
    assert_eq!(duplex.words(), ["r-headers", "r-chunk:3", "r-chunk:0."]);
    assert_eq!(duplex.finished, [Outcome::Completed]);
}

#[test]
fn trailers_end_bodies() {
    for mode in [BodyMode::Duplex, BodyMode::Inferred] {
        let mut duplex = Loop::new(mode, mode);
        duplex.say([headers(false), Message::RequestBody(chunk("abc", false)), Message::RequestTrailers]);
        assert_eq!(duplex.place().words(), ["headers+pick", "chunk:3", "trailers"]);
        duplex.say([
            response(404, false),
            Message::ResponseBody(chunk("x", false)),
            Message::ResponseTrailers,
        ]);
        assert_eq!(duplex.words(), ["r-headers", "r-chunk:1", "r-trailers"]);
        assert_eq!(duplex.finished, [Outcome::ClientError]);
    }
    let mut buffered = Loop::new(BodyMode::Buffered, BodyMode::Buffered);
    buffered.say([headers(false), Message::RequestTrailers]);
    assert_eq!(buffered.place().words(), ["headers", "trailers+pick"]);
}

#[test]
fn buffered_picks_in_the_body_answer() {
    let mut buffered = Loop::new(BodyMode::Buffered, BodyMode::None);
    buffered.say([headers(false)]);
    assert_eq!((buffered.words(), buffered.machine.wait()), (vec!["headers".into()], Wait::Whole));
    buffered.say([Message::RequestBody(chunk("abc", true))]);
    assert_eq!(buffered.place().words(), ["body+pick"]);
    buffered.say([response(200, false)]);
    assert_eq!(buffered.words(), ["r-headers"]);
    assert_eq!(buffered.machine.cut_off(), Some(Outcome::Completed));

    let mut partial = Loop::new(BodyMode::BufferedPartial, BodyMode::None);
    partial.say([headers(false), Message::RequestBody(chunk("abc", false))]);
    assert_eq!(partial.pending, Some(Sight::Unseen));
    assert_eq!(partial.place().words(), ["headers", "body+pick"]);
}

#[test]
fn streamed_picks_unseen_and_answers_each_chunk() {
    let mut streamed = Loop::new(BodyMode::Streamed, BodyMode::Streamed);
    streamed.say([headers(false), Message::RequestBody(chunk("early", false))]);
    assert_eq!(streamed.pending, Some(Sight::Unseen));
    assert_eq!(streamed.place().words(), ["headers+pick", "body"]);
    streamed.say([Message::RequestBody(chunk("abc", true)), response(503, false)]);
    streamed.say([Message::ResponseBody(chunk("abc", true))]);
    assert_eq!(streamed.words(), ["body", "r-headers", "r-body"]);
    assert_eq!(streamed.finished, [Outcome::Failed]);
}

#[test]
fn what_needs_no_body_is_decided_at_once() {
    for mode in [BodyMode::Duplex, BodyMode::Inferred, BodyMode::Buffered, BodyMode::None] {
        let mut get = Loop::new(mode, mode);
        get.say([headers(true)]);
        assert_eq!(get.pending, Some(Sight::Nothing));
        assert_eq!(get.place().words(), ["headers+pick"]);
    }
    let mut upload = Loop::new(BodyMode::Duplex, BodyMode::Duplex);
    upload.say([Message::RequestHeaders { head: head(RequestKind::Other), last: false }]);
    assert_eq!(upload.pending, Some(Sight::Unseen));
    upload.say([Message::RequestBody(chunk("ab", false))]);
    assert_eq!(upload.place().words(), ["headers+pick", "chunk:2"]);
    upload.say([Message::RequestBody(chunk("c", true))]);
    assert_eq!(upload.words(), ["chunk:1."]);
}

#[test]
fn a_sender_that_tells_no_mode_is_answered_before_it_gives_up() {
    let mut inferred = Loop::new(BodyMode::Inferred, BodyMode::Inferred);
    inferred.say([headers(false)]);
    assert_eq!(inferred.machine.wait(), Wait::Sign);
    inferred.feed(Event::Quiet);
    assert_eq!(inferred.pending, Some(Sight::Unseen));
    assert_eq!(inferred.place().words(), ["headers+pick"]);
    inferred.say([Message::RequestBody(chunk("abc", true))]);
    assert_eq!(inferred.words(), ["chunk:3."]);
}

#[test]
fn a_rejection_is_the_last_word() {
    for mode in [BodyMode::Duplex, BodyMode::Buffered, BodyMode::Streamed] {
        let mut rejected = Loop::new(mode, mode);
        rejected.say([headers(false), Message::RequestBody(chunk("x", true))]).words();
        rejected.feed(Event::Rejected(Rejection::new(ErrorKind::NoWorker, "none")));
        assert_eq!(rejected.words(), ["no_worker"]);
        // The decision has told of it.
        assert!(rejected.closed && rejected.refused == 0);
        rejected.say([
            Message::RequestBody(chunk("x", true)),
            response(503, false),
            Message::ResponseTrailers,
        ]);
        assert!(rejected.words().is_empty());
    }
}

/// A client that is cut off while it sends may never read why: what it still sends is thrown away first.
#[test]
fn an_unwanted_body_is_read_to_its_end_before_it_is_turned_away() {
    let too_large = || Event::Refused(Rejection::new(ErrorKind::BodyTooLarge, "too large"));
    let mut rejected = Loop::new(BodyMode::Duplex, BodyMode::Duplex);
    rejected.say([headers(false)]).feed(too_large());
    assert_eq!(rejected.machine.wait(), Wait::Chunk);
    rejected.say([Message::RequestBody(chunk("more", false))]);
    assert!(rejected.words().is_empty() && !rejected.closed && rejected.refused == 1);
    rejected.say([Message::RequestBody(chunk("end", true))]);
    assert_eq!(rejected.words(), ["body_too_large"]);
    assert!(rejected.closed);

    // One that stalls, or never ends, is told at once.
    let mut stalled = Loop::new(BodyMode::Duplex, BodyMode::Duplex);
    stalled.say([headers(false)]).feed(too_large());
    stalled.feed(Event::Refused(Rejection::new(ErrorKind::BodyTimeout, "late")));
    assert_eq!((stalled.words(), stalled.refused), (vec!["body_too_large".to_owned()], 1));
    let mut endless = Loop::new(BodyMode::Duplex, BodyMode::Duplex);
    endless.say([headers(false)]).feed(too_large());
    endless.say((0..40).map(|_| Message::RequestBody(chunk(vec![0; 1024 * 1024], false))));
    assert_eq!(endless.words(), ["body_too_large"]);
}

#[test]
fn a_local_reply_of_the_proxy_overtakes_the_decision() {
    let mut overtaken = Loop::new(BodyMode::Duplex, BodyMode::Duplex);
    overtaken.say([headers(false), Message::RequestBody(chunk("x", true)), response(408, true)]);
    assert!(overtaken.pending.is_none());
    assert_eq!(overtaken.words(), ["r-headers"]);
}

fn any_mode() -> impl Strategy<Value = BodyMode> {
    use BodyMode::{Buffered, BufferedPartial, Duplex, Inferred, None, Streamed};
    prop::sample::select(vec![Inferred, None, Streamed, Buffered, BufferedPartial, Duplex])
}

fn any_chunk() -> impl Strategy<Value = Chunk> {
    (prop::collection::vec(any::<u8>(), 0..5), prop::bool::weighted(0.2))
        .prop_map(|(bytes, last)| chunk(bytes, last))
}

#[derive(Clone, Debug)]
enum Act {
    Say(Message),
    Place,
    Quiet,
    Refuse,
}

fn any_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => any::<bool>().prop_map(|last| Act::Say(headers(last))),
        1 => any::<bool>().prop_map(|last| Act::Say(Message::RequestHeaders { head: head(RequestKind::Other), last })),
        8 => any_chunk().prop_map(|chunk| Act::Say(Message::RequestBody(chunk))),
        2 => Just(Act::Say(Message::RequestTrailers)),
        2 => (200u16..600, any::<bool>()).prop_map(|(status, last)| Act::Say(response(status, last))),
        4 => any_chunk().prop_map(|chunk| Act::Say(Message::ResponseBody(chunk))),
        1 => Just(Act::Say(Message::ResponseTrailers)),
        4 => Just(Act::Place),
        1 => Just(Act::Quiet),
        1 => Just(Act::Refuse),
    ]
}

/// What was echoed of a body: its bytes, and how many chunks were marked last; none may follow such a one.
fn echoed<'a>(chunks: impl Iterator<Item = &'a Chunk>) -> (Vec<u8>, usize) {
    let mut out = (Vec::new(), 0);
    for chunk in chunks {
        assert_eq!(out.1, 0, "a chunk after the last");
        assert!(chunk.bytes.len() <= CHUNK_BYTES);
        out.0.extend_from_slice(&chunk.bytes);
        out.1 += usize::from(chunk.last);
    }
    out
}

fn request_chunk(reply: &Reply) -> Option<&Chunk> {
    if let Reply::RequestChunk(chunk) = reply { Some(chunk) } else { None }
}

fn response_chunk(reply: &Reply) -> Option<&Chunk> {
    if let Reply::ResponseChunk(chunk) = reply { Some(chunk) } else { None }
}

proptest! {
    #[test]
    fn any_order_of_messages_is_survived(
        modes in (any_mode(), any_mode()),
        acts in prop::collection::vec(any_act(), 0..24),
    ) {
        let mut it = Loop::new(modes.0, modes.1);
        let (mut bodies_in, mut response_bodies_in) = ((Vec::new(), 0), (Vec::new(), 0));
        for act in acts {
            match act {
                Act::Say(message) => {
                    match &message {
                        Message::RequestBody(c) => { bodies_in.0.extend_from_slice(&c.bytes); bodies_in.1 += 1; }
                        Message::ResponseBody(c) => { response_bodies_in.0.extend_from_slice(&c.bytes); response_bodies_in.1 += 1; }
                        _ => {}
                    }
                    it.feed(Event::Message(message));
                }
                Act::Place => { it.place(); }
                Act::Quiet => it.feed(Event::Quiet),
                Act::Refuse => it.feed(Event::Refused(Rejection::new(ErrorKind::BodyTimeout, "late"))),
            }
        }
        let count = |is: fn(&Reply) -> bool| it.replies.iter().filter(|reply| is(reply)).count();
        prop_assert!(count(|r| matches!(r, Reply::RequestHeaders(_))) <= 1);
        let response_headers = count(|r| matches!(r, Reply::ResponseHeaders { .. }));
        prop_assert!(response_headers <= 1);
        prop_assert!(count(|r| matches!(r, Reply::RequestTrailers(_))) <= 1);
        prop_assert!(count(|r| matches!(r, Reply::RequestBody(_))) <= bodies_in.1);
        prop_assert!(count(|r| matches!(r, Reply::ResponseBody(None))) <= response_bodies_in.1);
        let immediates = count(|r| matches!(r, Reply::Immediate(..)));
        prop_assert!(immediates <= 1);
        prop_assert_eq!(immediates == 1, it.closed);
        // A decision turns nobody away here: whoever is, is told of, once. One who leaves meanwhile gets no answer.
        prop_assert!(it.refused <= 1 && immediates <= it.refused);
        if immediates == 1 {
            prop_assert!(matches!(it.replies.last(), Some(Reply::Immediate(..))));
        }
        prop_assert!(it.finished.len() <= 1);
        let request = echoed(it.replies.iter().filter_map(request_chunk));
        let response = echoed(it.replies.iter().filter_map(response_chunk));
        prop_assert!(bodies_in.0.starts_with(&request.0));
        prop_assert!(response_bodies_in.0.starts_with(&response.0));
    }

    #[test]
    fn bodies_come_back_byte_for_byte(
        mode in prop::sample::select(vec![BodyMode::Duplex, BodyMode::Inferred]),
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..5), 0..8),
        trailers: bool,
        stop in 0usize..8,
        early: bool,
    ) {
        let mut it = Loop::new(mode, mode);
        let kind = if early { RequestKind::Other } else { RequestKind::Inference(Api::Completions) };
        it.say([Message::RequestHeaders { head: head(kind), last: false }]);
        for (i, piece) in pieces.iter().enumerate() {
            if i == stop {
                it.place();
            }
            it.say([Message::RequestBody(chunk(piece.clone(), false))]);
        }
        it.say([if trailers { Message::RequestTrailers } else { Message::RequestBody(chunk("", true)) }]);
        it.place();
        it.say([response(200, false)]);
        it.say(pieces.iter().map(|piece| Message::ResponseBody(chunk(piece.clone(), false))));
        it.say([if trailers { Message::ResponseTrailers } else { Message::ResponseBody(chunk("", true)) }]);
        let whole = (pieces.concat(), usize::from(!trailers));
        prop_assert_eq!(&echoed(it.replies.iter().filter_map(request_chunk)), &whole);
        prop_assert_eq!(&echoed(it.replies.iter().filter_map(response_chunk)), &whole);
        prop_assert_eq!(&it.finished, &[Outcome::Completed]);
        let words = it.words();
        prop_assert_eq!(words.first().map(String::as_str), Some("headers+pick"));
        prop_assert_eq!(words.iter().filter(|word| *word == "trailers").count(), usize::from(trailers));
    }
}

/// Headers that explain a decision.
fn explaining(decision: Arc<Decision>) -> Reply {
    let explained = Explained { decision, request_id: "r".into() };
    Reply::ResponseHeaders { explained: Some(explained), resized: false, unwatched: false }
}

#[test]
fn the_rule_that_decided_is_explained() {
    let mut ruled = (*decision()).clone();
    ruled.candidates.iter_mut().for_each(|one| one.model = Some("served".into()));
    let plain = explaining(Arc::new(ruled.clone()));
    let rule = RuleSaid { policy: "p".into(), rule: "r".into(), ..RuleSaid::default() };
    ruled.ruled = Some(Arc::new(Ruled { rules: vec![rule], ..Ruled::default() }));
    let told = explaining(Arc::new(ruled));
    let sent = |reply: Reply| {
        let Some(Response::ResponseHeaders(headers)) = reply.encode().response else { panic!("no headers") };
        let set = headers.response.unwrap().header_mutation.unwrap().set_headers.into_iter();
        let pair = |header: HeaderValue| (header.key, String::from_utf8(header.raw_value).unwrap());
        set.filter_map(|option| option.header).map(pair).collect::<Vec<_>>()
    };
    let (plain, told) = (sent(plain), sent(told));
    assert_eq!(told[..plain.len()], plain);
    let added = [("x-kinference-model", "served"), ("x-kinference-rule", "p/r")];
    assert_eq!(told[plain.len()..], added.map(|(name, value)| (name.to_owned(), value.to_owned())));
}

#[test]
fn what_we_know_ourselves_is_answered_and_nothing_follows() {
    let mut asked = Loop::new(BodyMode::Duplex, BodyMode::Duplex);
    asked.say([headers(true)]).words();
    asked.feed(Event::Answered(serde_json::json!({})));
    assert_eq!(asked.words(), ["answer"]);
    assert!(asked.closed);
    asked.say([response(200, false), Message::ResponseTrailers]);
    assert!(asked.words().is_empty());
}

#[test]
fn an_explained_answer_names_its_request_also_where_it_is_turned_away() {
    for explain in [true, false] {
        let modes = Modes { request: BodyMode::Duplex, response: BodyMode::Duplex };
        let mut it =
            Loop { machine: Machine::new(modes, explain), ..Loop::new(BodyMode::Duplex, BodyMode::Duplex) };
        it.say([headers(false), Message::RequestBody(chunk("abc", true))]).place();
        it.say([response(200, true)]);
        let explained = it.replies.iter().find_map(|reply| match reply {
            Reply::ResponseHeaders { explained, .. } => Some(explained.as_ref().map(|one| &*one.request_id)),
            _ => None,
        });
        assert_eq!(explained, Some(explain.then_some("r")));
        let mut it =
            Loop { machine: Machine::new(modes, explain), ..Loop::new(BodyMode::Duplex, BodyMode::Duplex) };
        it.say([headers(false)]).feed(Event::Refused(Rejection::new(ErrorKind::BodyTimeout, "late")));
        let Some(Reply::Immediate(.., request_id)) = it.replies.last() else { panic!("{:?}", it.replies) };
        assert_eq!(request_id.as_deref(), explain.then_some("r"));
    }
}
