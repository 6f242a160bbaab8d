//! A model that is another one for the engine, in each mode: what becomes of both bodies and of what tells of them.

use super::*;
use crate::{
    pipeline::Rewrite,
    prompt::name_model,
    serve::ext_proc::{names, reply::NewBody},
};

const ASKED: &str = r#"{"model":"public","n":1e400}"#;
const SENT_ON: &str = r#"{"model":"engine/tiny","n":1e400}"#;
const ANSWERED: &str = r#"{"id":"x","model":"engine/tiny","n":1e400}"#;
const SENT_BACK: &str = r#"{"id":"x","model":"public","n":1e400}"#;

/// The decision for the body so far, as one that renames.
fn renaming(held: &[u8]) -> Placed {
    let rewrite = name_model(held, "engine/tiny").map(Rewrite::Splices);
    Placed { rewrite, client_model: Some("public".into()), ..placed(held.to_vec()) }
}

/// A request in these modes, up to its renaming decision; the answers to it.
fn asked(modes: (BodyMode, BodyMode)) -> (Loop, Vec<Reply>) {
    let mut it = Loop::new(modes.0, modes.1);
    it.say([headers(false), Message::RequestBody(chunk(ASKED, true))]);
    assert!(it.pending.take().is_some());
    it.feed(Event::Placed(renaming(&it.held.clone())));
    let replies = mem::take(&mut it.replies);
    (it, replies)
}

fn json(encoded: bool) -> Message {
    let content_type = "application/json".into();
    Message::ResponseHeaders(ResponseHead { status: 200, content_type, encoded, ..ResponseHead::default() })
}

/// An answer in pieces; what comes of each.
fn answered(it: &mut Loop, encoded: bool) -> Vec<Reply> {
    it.say([json(encoded)]);
    let (first, last) = ANSWERED.split_at(ANSWERED.find("tiny").unwrap());
    it.say([Message::ResponseBody(chunk(first, false)), Message::ResponseBody(chunk(last, true))]);
    mem::take(&mut it.replies)
}

fn response_headers(resized: bool) -> Reply {
    Reply::ResponseHeaders { explained: None, resized, unwatched: false }
}

#[test]
fn duplex_sends_the_body_on_with_the_engines_name_and_back_with_the_clients() {
    for mode in [BodyMode::Duplex, BodyMode::Inferred] {
        let (mut it, replies) = asked((mode, mode));
        let [Reply::RequestHeaders(edit), Reply::RequestChunk(sent)] = &replies[..] else {
            panic!("{replies:?}")
        };
        assert_eq!((&edit.remove[..], &edit.body), (&[names::CONTENT_LENGTH][..], &None));
        assert_eq!(*sent, chunk(SENT_ON, true));
        let replies = answered(&mut it, false);
        assert_eq!(replies[0], response_headers(true));
        let back = echoed(replies.iter().filter_map(response_chunk));
        assert_eq!(back, (SENT_BACK.as_bytes().to_vec(), 1));
        assert!(it.unrenamed.is_empty());
    }
}

#[test]
fn a_long_body_is_cut_after_it_has_grown() {
    let mut it = Loop::new(BodyMode::Duplex, BodyMode::Duplex);
    let body = format!(r#"{{"prompt":"{}","model":"m"}}"#, "x".repeat(CHUNK_BYTES - 25));
    it.say([headers(false), Message::RequestBody(chunk(body.clone(), false)), Message::RequestTrailers]);
    it.pending = None;
    it.feed(Event::Placed(renaming(body.as_bytes())));
    let want = body.replace(r#""m""#, r#""engine/tiny""#);
    assert_eq!(echoed(it.replies.iter().filter_map(request_chunk)), (want.into_bytes(), 0));
    assert_eq!(it.words(), ["headers+pick", "chunk:62000", "chunk:10", "trailers"]);
}

#[test]
fn a_buffered_body_is_replaced_with_its_length() {
    for mode in [BodyMode::Buffered, BodyMode::BufferedPartial] {
        let (mut it, replies) = asked((mode, BodyMode::Buffered));
        let [Reply::RequestHeaders(_), Reply::RequestBody(edit)] = &replies[..] else {
            panic!("{replies:?}")
        };
        assert_eq!(edit.body.as_deref(), Some(SENT_ON.as_bytes()));
        assert!(edit.pick.is_some() && edit.remove.is_empty());
        it.say([json(false), Message::ResponseBody(chunk(ANSWERED, true))]);
        let whole = Reply::ResponseBody(Some(NewBody { bytes: SENT_BACK.into(), whole: true }));
        assert_eq!(it.replies, [response_headers(false), whole]);
    }
}

/// A body with trailers comes whole, but is not the last message.
#[test]
fn a_buffered_body_with_trailers_is_replaced_too() {
    let mut it = Loop::new(BodyMode::Buffered, BodyMode::None);
    it.say([headers(false), Message::RequestBody(chunk(ASKED, false)), Message::RequestTrailers]);
    it.pending = None;
    it.feed(Event::Placed(renaming(ASKED.as_bytes())));
    let Reply::RequestBody(edit) = &it.replies[1] else { panic!("{:?}", it.replies) };
    assert_eq!(edit.body.as_deref(), Some(SENT_ON.as_bytes()));
}

#[test]
fn a_body_that_is_not_seen_in_time_keeps_its_name_and_that_is_said() {
    for mode in [BodyMode::Streamed, BodyMode::None] {
        let mut it = Loop::new(mode, mode);
        it.say([headers(false)]);
        it.pending = None;
        it.feed(Event::Placed(renaming(ASKED.as_bytes())));
        it.say([Message::RequestBody(chunk(ASKED, true))]);
        assert_eq!(it.words(), ["headers+pick", "body"], "{mode:?}");
        assert_eq!(it.unrenamed, [Unrenamed::RequestUnseen]);
    }
    let mut nothing = Loop::new(BodyMode::Streamed, BodyMode::Streamed);
    nothing.say([headers(true)]);
    nothing.feed(Event::Placed(Placed { client_model: Some("public".into()), ..placed(vec![]) }));
    assert!(nothing.unrenamed.is_empty());
}

#[test]
fn a_streamed_answer_is_replaced_piece_by_piece() {
    let (mut it, _) = asked((BodyMode::Duplex, BodyMode::Streamed));
    it.say([json(false)]);
    let pieces = [r#"{"id":"x","#, r#""model":"engi"#, "ne", r#"/tiny","n":1e400}"#];
    it.say(pieces.map(|piece| Message::ResponseBody(chunk(piece, piece.ends_with('}')))));
    let new = |bytes: &'static str| Some(NewBody { bytes: bytes.into(), whole: false });
    let want = [None, new(r#""model":"public""#), new(""), new(r#","n":1e400}"#)].map(Reply::ResponseBody);
    assert_eq!(it.replies[0], response_headers(true));
    assert_eq!(it.replies[1..], want);
}

#[test]
fn an_answer_that_cannot_be_read_keeps_its_name_and_that_is_said() {
    let (mut it, _) = asked((BodyMode::Duplex, BodyMode::Streamed));
    let replies = answered(&mut it, true);
    assert_eq!(replies, [response_headers(false), Reply::ResponseBody(None), Reply::ResponseBody(None)]);
    assert_eq!(it.unrenamed, [Unrenamed::ResponseEncoded]);

    let (mut unseen, _) = asked((BodyMode::Duplex, BodyMode::None));
    unseen.say([json(false)]);
    assert_eq!(unseen.replies, [response_headers(false)]);
    assert_eq!(unseen.unrenamed, [Unrenamed::ResponseUnseen]);

    let (mut other, _) = asked((BodyMode::Duplex, BodyMode::None));
    other.say([response(200, false)]);
    assert!(other.unrenamed.is_empty());
}

#[test]
fn an_encoded_body_goes_on_decoded() {
    for (mode, removed) in [
        (BodyMode::Duplex, &[names::CONTENT_ENCODING, names::CONTENT_LENGTH][..]),
        (BodyMode::Buffered, &[names::CONTENT_ENCODING]),
    ] {
        let mut it = Loop::new(mode, mode);
        it.say([headers(false), Message::RequestBody(chunk("gzip", true))]).words();
        it.pending = None;
        let rewrite = Some(Rewrite::Whole(SENT_ON.into()));
        it.feed(Event::Placed(Placed { rewrite, ..placed(b"gzip".to_vec()) }));
        let edit = match it.replies.remove(0) {
            Reply::RequestHeaders(edit) => edit,
            Reply::RequestBody(edit) => {
                assert_eq!(edit.body.as_deref(), Some(SENT_ON.as_bytes()));
                edit
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(edit.remove, removed);
        if mode == BodyMode::Duplex {
            assert_eq!(it.replies, [Reply::RequestChunk(chunk(SENT_ON, true))]);
        }
    }
}
