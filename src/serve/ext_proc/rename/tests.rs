//! Answers of every API and hostile ones: only the names change, however they are cut.

use proptest::prelude::*;
use serde_json::Value;

use super::*;

/// What comes of a body in these pieces.
fn renamed(mut renamer: Renamer, pieces: &[&[u8]]) -> Vec<u8> {
    pieces.iter().flat_map(|piece| renamer.step(Bytes::copy_from_slice(piece))).collect()
}

fn of(media: Media, inner: Option<&'static str>) -> Renamer {
    Renamer::new("c\u{e9}\"l", inner, media).unwrap()
}

/// The name above, as JSON.
const NAME: &str = "\"c\u{e9}\\\"l\"";

/// Holds in one piece, in two at every place, and byte by byte. `@` stands for the new name.
fn check(media: Media, inner: Option<&'static str>, body: &str, want: &str) {
    let want = want.replace('@', NAME);
    let bytes = body.as_bytes();
    let text = |pieces: &[&[u8]]| String::from_utf8(renamed(of(media, inner), pieces)).unwrap();
    for cut in 0..=bytes.len() {
        assert_eq!(text(&[&bytes[..cut], &bytes[cut..]]), want, "cut at {cut} of {body}");
    }
    assert_eq!(text(&bytes.chunks(1).collect::<Vec<_>>()), want, "{body}");
}

#[test]
fn the_name_at_the_top_of_a_whole_answer() {
    let table = [
        (r#"{"model":"a"}"#, r#"{"model":@}"#),
        (
            "{ \"id\" : 1e400,\n\t\"model\" :\r\n \"a\\\"b\\\\\" , \"x\" : -0.0 }\n",
            "{ \"id\" : 1e400,\n\t\"model\" :\r\n @ , \"x\" : -0.0 }\n",
        ),
        (
            r#"{"mod\u0065l":"a","\u006d\u006f\u0064\u0065\u006C":"b"}"#,
            r#"{"mod\u0065l":@,"\u006d\u006f\u0064\u0065\u006C":@}"#,
        ),
        (r#"{"model":"a","model":null,"model":1e400}"#, r#"{"model":@,"model":@,"model":@}"#),
        (
            r#"{"x":{"model":"a"},"y":[{"model":"a"}],"model":"a"}"#,
            r#"{"x":{"model":"a"},"y":[{"model":"a"}],"model":@}"#,
        ),
        (r#"{"x":"\"model\":\"a\"}","model":"a"}"#, r#"{"x":"\"model\":\"a\"}","model":@}"#),
        (r#"{"x":"}{][\\","model":"a"}"#, r#"{"x":"}{][\\","model":@}"#),
        (
            "\u{feff} {\"m\u{f6}del\":\"a\",\"model\":\"\u{1f600}\"}",
            "\u{feff} {\"m\u{f6}del\":\"a\",\"model\":@}",
        ),
        (r#"{"model":{"model":"a"},"x":1}"#, r#"{"model":{"model":"a"},"x":1}"#),
        (r#"{"model":["a"],"model":"b"}"#, r#"{"model":["a"],"model":@}"#),
        (
            r#"{"response":{"model":"a"},"message":{"model":"a"}}"#,
            r#"{"response":{"model":"a"},"message":{"model":"a"}}"#,
        ),
        (
            r#"{"models":"a","mode":"a","Model":"a","":"model"}"#,
            r#"{"models":"a","mode":"a","Model":"a","":"model"}"#,
        ),
        (r#"{"x":true,"model":false}"#, r#"{"x":true,"model":@}"#),
    ];
    for (body, want) in table {
        check(Media::Json, Some("response"), body, want);
    }
    let long = format!(r#"{{"{}model":"a","model":"{}"}}"#, "k".repeat(300), "v".repeat(300));
    check(Media::Json, None, &long, &format!(r#"{{"{}model":"a","model":@}}"#, "k".repeat(300)));
}

#[test]
fn what_is_no_object_stays_and_one_that_breaks_off_is_all_there() {
    for body in [
        "",
        "[{\"model\":\"a\"}]",
        "\"model\"",
        "model: {\"model\":\"a\"}",
        "{\"model\" \"a\"}",
        "{{\"model\":\"a\"}}",
        "{\"x\":1}{\"model\":\"a\"}",
        "{\"model\":}",
        "{\"x\":],\"model\":\"a\"}",
    ] {
        check(Media::Json, None, body, body);
    }
    for (body, want) in [
        ("{\"id\":\"x\",\"mod", "{\"id\":\"x\",\"mod"),
        ("{\"model\":\"a", "{\"model\":@"),
        ("{\"model\":nul", "{\"model\":@"),
    ] {
        check(Media::Json, None, body, want);
    }
}

#[test]
fn names_in_events_of_every_api() {
    let chat = "data: {\"id\":\"c\",\"model\":@,\"choices\":[{\"delta\":{\"content\":\"model \\\"model\\\":\"}}]}\n\n";
    let (crlf, cr) = (chat.replace('\n', "\r\n"), chat.replace('\n', "\r"));
    let table = [
        (None, format!("{chat}{chat}data: [DONE]\n\n")),
        (None, format!("\u{feff}: model\r\n{crlf}")),
        (None, format!("event: model\rid: {{\"model\":\"keep\"}}\r{cr}data:{{\"model\":@}}")),
        (None, "data:{\"x\":1,\ndata: \"model\":\ndata:@\n:c\ndata: }\n\ndata:{\"model\":@\ndata:,\"model\":@}\n\n".into()),
        (Some("response"), "event: response.created\ndata: {\"type\":\"x\",\"response\":{\"id\":\"r\",\"model\":@,\"y\":{\"model\":\"keep\"}},\"model\":@}\n\n".into()),
        (Some("message"), "event: message_start\ndata: {\"message\":{\"message\":{\"model\":\"keep\"},\"model\":@},\"response\":{\"model\":\"keep\"}}\n\n".into()),
        (None, "data: {\"response\":{\"model\":\"keep\"},\"message\":{\"model\":\"keep\"}}\n\n".into()),
        (Some("message"), "data: {\"message\":[{\"model\":\"keep\"}],\"message\":{},\"model\":@}\n\n".into()),
        (None, "data: no {\"model\":\"keep\"}\n\ndatax: {\"model\":\"keep\"}\n\n".into()),
    ];
    for (inner, events) in table {
        for old in ["\"a\"", "12", "null", "\"\\\"}\\\\\""] {
            check(Media::Events, inner, &events.replace('@', old), &events);
        }
    }
    // What a string that does not end with its line goes on with is still of the string, as far as the event goes.
    let open = "data: {\"model\":\"a\ndata: b\"}\n\ndata: {\"model\":\"a\n\ndata: {\"model\":\"a\"}\n\n";
    let want = "data: {\"model\":@\ndata: }\n\ndata: {\"model\":@\n\ndata: {\"model\":@}\n\n";
    check(Media::Events, None, open, want);
}

#[test]
fn what_each_api_answers_in() {
    assert!(Renamer::new("x", None, Media::Other).is_none());
    assert_eq!(inner(&RequestKind::Inference(Api::Responses)), Some("response"));
    assert_eq!(inner(&RequestKind::StoredResponse("r".into())), Some("response"));
    assert_eq!(inner(&RequestKind::Inference(Api::Messages)), Some("message"));
    assert_eq!(inner(&RequestKind::Inference(Api::ChatCompletions)), None);
}

/// An 8 MB answer whose name comes last costs no memory of that size: pieces without a name go on as they are.
#[test]
fn pieces_without_a_name_are_the_same_memory() {
    let mut renamer = of(Media::Json, None);
    let filler = Bytes::from(format!("{{\"text\":\"{}\"", "x".repeat(8 * 1024 * 1024)));
    let out = renamer.step(filler.clone());
    assert_eq!((out.as_ptr(), out.len()), (filler.as_ptr(), filler.len()));
    assert_eq!(renamer.step(Bytes::from_static(b",\"model\":1}")), format!(",\"model\":{NAME}}}"));
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<i32>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from)
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from), object(inner)]
    })
}

fn object(inner: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    prop::collection::hash_map("model|response|[a-c\"\\\\]{1,3}", inner, 0..5)
        .prop_map(|fields| Value::Object(fields.into_iter().collect()))
}

/// The name where it belongs, by the book.
fn rename_parsed(value: &mut Value, inner: Option<&str>) {
    let Some(fields) = value.as_object_mut() else { return };
    for (key, value) in fields {
        if key == "model" && !value.is_object() && !value.is_array() {
            *value = "c\u{e9}\"l".into();
        } else if Some(key.as_str()) == inner {
            rename_parsed(value, None);
        }
    }
}

fn cut<'a>(bytes: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut at: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    at.extend([0, bytes.len()]);
    at.sort_unstable();
    at.windows(2).map(|w| &bytes[w[0]..w[1]]).collect()
}

proptest! {
    #[test]
    fn an_answer_is_the_same_but_for_its_name(
        mut answers in prop::collection::vec(object(value()), 1..4),
        pretty: bool,
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let text = |answer: &Value| {
            if pretty { serde_json::to_string_pretty(answer) } else { serde_json::to_string(answer) }.unwrap()
        };
        let whole = text(&answers[0]);
        let out = renamed(of(Media::Json, Some("response")), &cut(whole.as_bytes(), &cuts));
        let mut want = answers[0].clone();
        rename_parsed(&mut want, None);
        prop_assert_eq!(String::from_utf8(out).unwrap(), text(&want));

        let event = |answer: &Value| format!("data: {}\n\n", text(answer).replace('\n', "\r\ndata:"));
        let events: String = answers.iter().map(event).collect();
        let out = renamed(of(Media::Events, Some("response")), &cut(events.as_bytes(), &cuts));
        answers.iter_mut().for_each(|answer| rename_parsed(answer, Some("response")));
        let want: String = answers.iter().map(event).collect();
        prop_assert_eq!(String::from_utf8(out).unwrap(), want);
    }

    /// Not JSON at all, but made of what JSON and events are made of.
    #[test]
    fn cuts_do_not_matter(
        words in prop::collection::vec(prop::sample::select(vec![
            "{", "}", "[", "]", ":", ",", "\"", "\\", "\\u006d", "model", "\"model\"", "\"model\":", "response", "\"response\":{",
            "data:", "data: ", "\n", "\r", "\r\n", "\n\ndata: {", " ", "null", "1e400", "\u{feff}", "\u{e9}", "event: x\n",
        ]), 0..40),
        json: bool,
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let (text, media) = (words.concat(), if json { Media::Json } else { Media::Events });
        let whole = renamed(of(media, Some("response")), &[text.as_bytes()]);
        prop_assert_eq!(&renamed(of(media, Some("response")), &cut(text.as_bytes(), &cuts)), &whole);
        if !text.contains("model") && !text.contains("\\u") {
            prop_assert_eq!(whole, text.into_bytes());
        }
    }
}
