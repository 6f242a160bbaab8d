//! The prefix cache against encoding the whole, what it costs, and where images end the credit.

use std::{
    any::Any,
    sync::{
        LazyLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use llm_tokenizer::{Decoder, Encoder, Encoding, SpecialTokens};
use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::types::Api;

fn dir() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tokenizer"))
}

fn inner() -> Arc<dyn TokenizerTrait> {
    create_tokenizer_with_chat_template(dir().to_str().unwrap(), None).unwrap()
}

fn chat(messages: &[Value]) -> ParsedRequest {
    let body = json!({"model": "tiny", "messages": messages});
    ParsedRequest::read(Api::ChatCompletions, &Bytes::from(body.to_string())).unwrap()
}

/// Encodes with another tokenizer, counting the bytes that it is given.
struct Counting(Arc<dyn TokenizerTrait>, AtomicUsize);

impl Encoder for Counting {
    fn encode(&self, input: &str, add_special_tokens: bool) -> anyhow::Result<Encoding> {
        self.1.fetch_add(input.len(), Ordering::Relaxed);
        self.0.encode(input, add_special_tokens)
    }

    fn encode_batch(&self, inputs: &[&str], add_special_tokens: bool) -> anyhow::Result<Vec<Encoding>> {
        self.0.encode_batch(inputs, add_special_tokens)
    }
}

impl Decoder for Counting {
    fn decode(&self, token_ids: &[u32], skip_special_tokens: bool) -> anyhow::Result<String> {
        self.0.decode(token_ids, skip_special_tokens)
    }
}

impl TokenizerTrait for Counting {
    fn vocab_size(&self) -> usize {
        self.0.vocab_size()
    }

    fn get_special_tokens(&self) -> &SpecialTokens {
        self.0.get_special_tokens()
    }

    fn token_to_id(&self, token: &str) -> Option<u32> {
        self.0.token_to_id(token)
    }

    fn id_to_token(&self, id: u32) -> Option<String> {
        self.0.id_to_token(id)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn apply_chat_template(
        &self,
        messages: &[Value],
        params: ChatTemplateParams<'_>,
    ) -> anyhow::Result<String> {
        self.0.apply_chat_template(messages, params)
    }
}

#[test]
fn a_growing_conversation_costs_its_new_turn() {
    let counting = Arc::new(Counting(inner(), AtomicUsize::new(0)));
    let model = LocalModel::caching(Arc::<Counting>::clone(&counting), PREFIX_BYTES);
    let turn = "What does an engine do with a prefix that it has seen before? ".repeat(10);
    let mut messages = vec![json!({"role": "system", "content": turn})];
    for n in 0..20 {
        messages.push(json!({"role": "user", "content": format!("{n} {turn}")}));
        let before = counting.1.load(Ordering::Relaxed);
        model.tokenize(&chat(&messages)).unwrap();
        let cost = counting.1.load(Ordering::Relaxed) - before;
        let new_turns = 2 * (turn.len() + 100);
        assert!(cost > turn.len() && cost < new_turns, "turn {n} costs {cost} bytes");
        messages.push(json!({"role": "assistant", "content": turn}));
    }
    let before = counting.1.load(Ordering::Relaxed);
    model.tokenize(&chat(&messages[..2])).unwrap();
    assert_eq!(counting.1.load(Ordering::Relaxed), before, "a repeated prompt costs nothing");
}

#[test]
fn a_system_prompt_is_tokenized_once_for_all_conversations() {
    let counting = Arc::new(Counting(inner(), AtomicUsize::new(0)));
    let model = LocalModel::caching(Arc::<Counting>::clone(&counting), PREFIX_BYTES);
    let prompt =
        |name: &str| format!("You answer for {name}. {}", "Be brief, and say what you know. ".repeat(100));
    let cost = |system: &str, question: &str| {
        let before = counting.1.load(Ordering::Relaxed);
        let messages = [("system", system), ("user", question)];
        model
            .tokenize(&chat(&messages.map(|(role, content)| json!({"role": role, "content": content}))))
            .unwrap();
        counting.1.load(Ordering::Relaxed) - before
    };
    for system in [prompt("one"), prompt("another")] {
        let (first, second) = (cost(&system, "What is a block?"), cost(&system, "Who holds it?"));
        assert!(first > system.len() && first < system.len() + 500, "the first costs {first} bytes");
        assert!(second < 500, "the second costs {second} bytes");
    }
}

#[test]
fn the_prefix_cache_stays_within_its_bytes() {
    let bytes = 64 * 1024;
    let model = LocalModel::caching(inner(), bytes);
    for n in 0..30 {
        // 4,000 tokens, 16 KB: four of them fill the cache.
        let unlike = format!("{n} ").repeat(2000);
        model.tokenize(&chat(&[json!({"role": "user", "content": unlike})])).unwrap();
        let stats = model.tokenizer.l1_cache_stats().unwrap();
        assert!(stats.entries > 0 && stats.memory_bytes <= bytes, "{} bytes", stats.memory_bytes);
    }
}

/// Text that likes to break where it should not: markers, marks that combine, spaces, line ends.
fn content() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[a-z]{1,8}",
        " {1,3}",
        "\n{1,3}",
        Just("<|im_end|>".to_owned()),
        Just("<|im_start|>".to_owned()),
        Just("<|endoftext|>".to_owned()),
        Just("<|im_".to_owned()),
        Just("\u{301}e\u{301}".to_owned()),
        Just("你好🙂".to_owned()),
        any::<char>().prop_map(String::from),
    ];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn cached_ids_are_the_ids_of_the_whole(
        system in content(),
        turns in prop::collection::vec((content(), content()), 1..6),
    ) {
        static INNER: LazyLock<Arc<dyn TokenizerTrait>> = LazyLock::new(inner);
        static SHARED: LazyLock<LocalModel> = LazyLock::new(|| LocalModel::caching(Arc::clone(&INNER), PREFIX_BYTES));
        let mut messages = vec![json!({"role": "system", "content": system})];
        for (user, assistant) in turns {
            messages.push(json!({"role": "user", "content": user}));
            let ids = SHARED.tokenize(&chat(&messages)).unwrap().ids;
            let params = ChatTemplateParams { add_generation_prompt: true, ..ChatTemplateParams::default() };
            let whole = INNER.apply_chat_template(&messages, params).unwrap();
            let encoding = INNER.encode(&whole, false).unwrap();
            prop_assert_eq!(&*ids, encoding.token_ids());
            messages.push(json!({"role": "assistant", "content": assistant}));
        }
    }
}

#[test]
fn credit_ends_before_the_first_message_with_an_image() {
    let model = LocalModel::open(dir()).unwrap();
    let text = json!({"role": "user", "content": "Look at what comes next."});
    let image = json!({"role": "user", "content": [
        {"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": "x"}}]});
    let plain =
        model.tokenize(&chat(&[text.clone(), json!({"role": "user", "content": "What is this?"})])).unwrap();
    let seen = model.tokenize(&chat(&[text.clone(), image.clone()])).unwrap();
    let until = seen.credit_until.unwrap();
    assert_eq!(seen.ids[..until], plain.ids[..until]);
    let turn = model.tokenize(&chat(&[text])).unwrap().ids.len();
    assert!(until > turn - 6 && until < plain.ids.len() - 6, "{until} of {}", plain.ids.len());
    let first = model.tokenize(&chat(&[image])).unwrap().credit_until.unwrap();
    assert!(first < until && first > 0);
}

#[test]
fn hostile_requests_are_errors() {
    let model = LocalModel::open(dir()).unwrap();
    let read = |body: String| ParsedRequest::read(Api::ChatCompletions, &Bytes::from(body)).unwrap();
    let many = format!(r#"{{"messages":[{}]}}"#, vec!["1"; 600_000].join(","));
    let bodies = [
        r#"{"messages":[{"role":"user","content":"\ud800"}]}"#.to_owned(),
        r#"{"messages":[{"role":"user","content":1e400}]}"#.to_owned(),
        r#"{"messages":[]}"#.to_owned(),
        r#"{"messages":[{"content":[[]]}]}"#.to_owned(),
        r#"{"messages":[{"role":"user","content":"a"}],"continue_final_message":true}"#.to_owned(),
        many,
    ];
    for body in bodies {
        let error = model.tokenize(&read(body.clone())).unwrap_err();
        assert!(matches!(error, TokenizeError::Unsupported(_)), "{}", &body[..60.min(body.len())]);
    }
}
