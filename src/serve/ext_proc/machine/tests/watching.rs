//! A response whose body is not watched: what is asked of the proxy, what becomes of one that sends it all the same.

use super::*;

/// A decided request of that kind over a proxy that sends responses in that mode, not watched; its response has begun.
fn begun(kind: RequestKind, response_mode: BodyMode, client_model: Option<&str>) -> Loop {
    let mut it = Loop::new(BodyMode::Duplex, response_mode);
    it.machine = mem::take(&mut it.machine).watching(false);
    it.say([Message::RequestHeaders { head: head(kind), last: true }]);
    assert!(it.pending.take().is_some());
    it.feed(Event::Placed(Placed { client_model: client_model.map(Arc::from), ..placed(vec![]) }));
    it.replies.clear();
    it.say([response(200, false)]);
    it
}

fn unwatched(it: &mut Loop) -> bool {
    match mem::take(&mut it.replies)[..] {
        [Reply::ResponseHeaders { unwatched, .. }] => unwatched,
        ref replies => panic!("{replies:?}"),
    }
}

#[test]
fn a_body_that_nobody_needs_is_left_to_the_proxy() {
    let (chat, stored) = (Api::ChatCompletions, Api::Responses);
    let table = [
        (chat, BodyMode::Streamed, None, true),
        (chat, BodyMode::Buffered, None, true),
        (chat, BodyMode::Duplex, None, false),
        (chat, BodyMode::Inferred, None, false),
        (chat, BodyMode::None, None, false),
        (chat, BodyMode::Streamed, Some("public"), false),
        (stored, BodyMode::Streamed, None, false),
    ];
    for (api, mode, client_model, want) in table {
        let mut it = begun(RequestKind::Inference(api), mode, client_model);
        assert_eq!(unwatched(&mut it), want, "{api:?} {mode:?} {client_model:?}");
        let over = want || mode == BodyMode::None;
        assert_eq!(it.machine.cut_off(), over.then_some(Outcome::Completed), "{api:?} {mode:?}");
    }
}

#[test]
fn a_proxy_that_sends_it_all_the_same_is_answered_and_told_of_once() {
    let mut it = begun(RequestKind::Inference(Api::ChatCompletions), BodyMode::Streamed, None);
    assert!(unwatched(&mut it));
    it.say([Message::ResponseBody(chunk("abc", false))]);
    assert_eq!((it.words(), it.unheeded, it.machine.cut_off()), (vec!["r-body".into()], 1, None));
    it.say([Message::ResponseBody(chunk("", true))]);
    assert_eq!((it.words(), it.unheeded), (vec!["r-body".into()], 1));
    assert_eq!(it.finished, [Outcome::Completed]);
}
