//! Usage, first tokens and ids out of answers of every API, cut at every byte.

use super::*;

const CHAT: &str = r#"{"id":"chatcmpl-1","choices":[{"message":{"content":"say \"usage\": {}"}}],"usage":{"prompt_tokens":34,"total_tokens":42,"completion_tokens":8,"prompt_tokens_details":{"cached_tokens":32,"multimodal_tokens":null}},"metrics":null}"#;
const CHAT_STREAM: &str = "data: {\"id\":\"c\",\"choices\":[{\"delta\":{\"content\":\"\u{e9}\"}}],\"usage\":null}\n\n\
    data: {\"id\":\"c\",\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4,\"prompt_tokens_details\":null}}\n\n\
    data: [DONE]\n\n";
const RESPONSES: &str = r#"{"id":"resp_1","object":"response","usage":{"input_tokens":28,"input_tokens_details":{"cached_tokens":16},"output_tokens":4}}"#;
const RESPONSES_STREAM: &str = "event: response.created\r\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_2\",\"usage\":null}}\r\n\r\n\
    event: response.output_text.delta\r\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"x\",\"item_id\":\"msg\"}\r\n\r\n\
    event: response.completed\r\ndata: {\"type\":\"response.completed\",\"response\":{\"id\":\"resp_2\",\"usage\":{\"input_tokens\":5,\"output_tokens\":6}}}\r\n\r\n";
const MESSAGES_STREAM: &str = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"usage\":{\"input_tokens\":28,\"output_tokens\":0,\"cache_read_input_tokens\":12}}}\n\n\
    event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{},\"usage\":{\"output_tokens\":4}}\n\n\
    event: message_stop\ndata: {\"type\":\"message_stop\"}";

fn head(content_type: &str) -> ResponseHead {
    ResponseHead { status: 200, content_type: content_type.into(), ..ResponseHead::default() }
}

fn usage(prompt_tokens: u64, completion_tokens: u64, cached_tokens: Option<u64>) -> Option<Usage> {
    Some(Usage { prompt_tokens, completion_tokens, cached_tokens })
}

/// Feeds pieces; answers (first tokens, ids told, usage).
fn watch(mut answer: Answer, pieces: &[&[u8]]) -> (usize, Vec<String>, Option<Usage>) {
    let mut all: Vec<_> = pieces.iter().map(|piece| answer.push(piece)).collect();
    let (last, usage) = answer.finish();
    all.push(last);
    let first = all.iter().filter(|seen| seen.first_token).count();
    (first, all.into_iter().filter_map(|seen| seen.stored).collect(), usage)
}

#[test]
fn every_cut_tells_the_same() {
    const SSE: &str = "text/event-stream; charset=utf-8";
    let table = [
        (CHAT, "application/json", 0, None, usage(34, 8, Some(32))),
        (CHAT_STREAM, SSE, 1, None, usage(9, 4, None)),
        (RESPONSES, "application/json", 0, Some("resp_1"), usage(28, 4, Some(16))),
        (RESPONSES_STREAM, SSE, 1, Some("resp_2"), usage(5, 6, None)),
        (MESSAGES_STREAM, SSE, 1, None, usage(28, 4, Some(12))),
    ];
    for (text, content_type, first, id, used) in table {
        let want = (first, id.map(str::to_owned).into_iter().collect::<Vec<_>>(), used);
        let bytes = text.as_bytes();
        for cut in 0..=bytes.len() {
            let answer = Answer::new(&head(content_type), id.is_some());
            assert_eq!(watch(answer, &[&bytes[..cut], &bytes[cut..]]), want, "cut at {cut} of {text}");
        }
        let single: Vec<_> = bytes.chunks(1).collect();
        assert_eq!(watch(Answer::new(&head(content_type), id.is_some()), &single), want, "{text}");
    }
}

#[test]
fn an_id_is_told_as_soon_as_it_is_known() {
    let mut answer = Answer::new(&head("text/event-stream"), true);
    let created = RESPONSES_STREAM.find("event: response.output").unwrap();
    let seen = answer.push(&RESPONSES_STREAM.as_bytes()[..created]);
    assert_eq!(seen, Seen { first_token: false, stored: Some("resp_2".into()) });
}

#[test]
fn what_announces_a_response_is_no_token_of_it() {
    let mut answer = Answer::new(&head("text/event-stream"), true);
    let events: Vec<_> = RESPONSES_STREAM.split_inclusive("\r\n\r\n").collect();
    let progress = events[0].replace("response.created", "response.in_progress");
    let seen = [events[0], &progress, events[1], events[2]].map(|e| answer.push(e.as_bytes()).first_token);
    assert_eq!(seen, [false, false, true, false]);
}

#[test]
fn compressed_and_failed_answers_tell_less() {
    let encoded = ResponseHead { encoded: true, ..head("text/event-stream") };
    assert_eq!(watch(Answer::new(&encoded, true), &[RESPONSES_STREAM.as_bytes()]), (1, vec![], None));
    let failed = ResponseHead { status: 500, ..head("application/json") };
    assert_eq!(watch(Answer::new(&failed, true), &[br#"{"id":"resp_1"}"#]), (0, vec![], None));
    assert_eq!(watch(Answer::new(&head("text/html"), true), &[RESPONSES.as_bytes()]), (0, vec![], None));
    assert_eq!(watch(Answer::new(&head("application/json"), false), &[b"not json"]), (0, vec![], None));
}

#[test]
fn usage_at_the_end_of_a_huge_answer_is_found() {
    let filler = "x \\\"usage\\\":{} ".repeat(40_000);
    let text = format!(
        r#"{{"choices":[{{"text":"{filler}"}}],"usage":{{"prompt_tokens":7,"completion_tokens":3}},"metrics":null}}"#
    );
    let pieces: Vec<_> = text.as_bytes().chunks(16_000).collect();
    assert_eq!(watch(Answer::new(&head("application/json"), false), &pieces).2, usage(7, 3, None));
    let event = format!("data: {text}\n\n");
    assert_eq!(
        watch(Answer::new(&head("text/event-stream"), false), &[event.as_bytes()]).2,
        usage(7, 3, None)
    );
}
