//! Every field in both encodings, what is left out and why, and hostile bytes.

use proptest::prelude::*;
use rmpv::Value;

use super::*;
use crate::types::{EngineHash, ExtraKey, Group, StoredBlocks, Tier};

fn bytes(value: &Value) -> Vec<u8> {
    let mut out = vec![];
    rmpv::encode::write_value(&mut out, value).unwrap();
    out
}

fn array(items: Vec<Value>) -> Value {
    Value::Array(items)
}

fn batch_of(events: Vec<Value>) -> Vec<u8> {
    bytes(&array(vec![Value::F64(1.5), array(events), Value::from(3)]))
}

fn hash(hash: &EngineHash) -> Value {
    match hash {
        EngineHash::Int(hash) => Value::from(*hash),
        EngineHash::Bytes(hash) => Value::Binary(hash.to_vec()),
    }
}

fn optional<T>(of: Option<T>, into: impl Fn(T) -> Value) -> Value {
    of.map_or(Value::Nil, into)
}

fn tier(tier: &Tier) -> Value {
    match tier {
        Tier::Gpu => "GPU".into(),
        Tier::Cpu => "CPU".into(),
        Tier::Other(name) => name.to_string().into(),
    }
}

fn keys(keys: &[ExtraKey]) -> Value {
    let key = |key: &ExtraKey| match key {
        ExtraKey::Text(text) => text.to_string().into(),
        ExtraKey::Image { hash, offset } => array(vec![hash.to_string().into(), (*offset).into()]),
        ExtraKey::Unknown => array(vec![Value::from(1)]),
    };
    if keys.is_empty() { Value::Nil } else { array(keys.iter().map(key).collect()) }
}

/// Type and named fields, in the order of the positional layout.
fn parts(event: &KvEvent) -> (&'static str, Vec<(&'static str, Value)>) {
    match event {
        KvEvent::Cleared => ("AllBlocksCleared", vec![]),
        KvEvent::Removed { hashes, tier: of, group } => {
            let fields = vec![
                ("block_hashes", array(hashes.iter().map(hash).collect())),
                ("medium", tier(of)),
                ("group_idx", optional(*group, Value::from)),
            ];
            ("BlockRemoved", fields)
        }
        KvEvent::Stored(s) => {
            let fields = vec![
                ("block_hashes", array(s.hashes.iter().map(hash).collect())),
                ("parent_block_hash", optional(s.parent.as_ref(), hash)),
                ("token_ids", array(s.tokens.iter().map(|t| (*t).into()).collect())),
                ("block_size", s.block_size.into()),
                ("lora_id", optional(s.lora_id, Value::from)),
                ("medium", tier(&s.tier)),
                ("lora_name", optional(s.lora_name.as_deref(), Value::from)),
                ("extra_keys", array(s.extra_keys.iter().map(|own| keys(own)).collect())),
                ("group_idx", optional(s.group.index, Value::from)),
                ("kv_cache_spec_kind", optional(s.group.kind.as_deref(), Value::from)),
                ("kv_cache_spec_sliding_window", optional(s.group.sliding_window, Value::from)),
                ("locality", "LOCAL".into()),
            ];
            ("BlockStored", fields)
        }
    }
}

fn positional_of(event: &KvEvent) -> Value {
    let (kind, fields) = parts(event);
    array(std::iter::once(kind.into()).chain(fields.into_iter().map(|(_, value)| value)).collect())
}

fn named_of(event: &KvEvent, backwards: bool) -> Value {
    let (kind, fields) = parts(event);
    let mut pairs = vec![(Value::from("type"), Value::from(kind))];
    pairs.extend(fields.into_iter().map(|(name, value)| (name.into(), value)));
    pairs.push((Value::from("session_id"), array(vec![Value::Nil, Value::Map(vec![])])));
    pairs.push((Value::from(7), Value::from(8)));
    if backwards {
        pairs.reverse();
    }
    Value::Map(pairs)
}

fn a_hash() -> impl Strategy<Value = EngineHash> {
    prop_oneof![
        any::<u64>().prop_map(EngineHash::Int),
        proptest::collection::vec(any::<u8>(), 0..40).prop_map(|b| EngineHash::Bytes(b.into())),
    ]
}

fn a_text() -> impl Strategy<Value = Box<str>> {
    "[a-z]{0,40}".prop_map(Into::into)
}

fn a_tier() -> impl Strategy<Value = Tier> {
    prop_oneof![Just(Tier::Gpu), Just(Tier::Cpu), Just(Tier::Other("DISK".into()))]
}

fn a_key() -> impl Strategy<Value = ExtraKey> {
    prop_oneof![
        a_text().prop_map(ExtraKey::Text),
        (a_text(), any::<i64>()).prop_map(|(hash, offset)| ExtraKey::Image { hash, offset }),
        Just(ExtraKey::Unknown),
    ]
}

fn a_store() -> impl Strategy<Value = StoredBlocks> {
    let sizes = (0usize..5, 1u32..40);
    sizes.prop_flat_map(|(blocks, block_size)| {
        let tokens = blocks * block_size as usize;
        let keys = proptest::collection::vec(proptest::collection::vec(a_key(), 0..3), blocks);
        (
            proptest::collection::vec(a_hash(), blocks),
            proptest::option::of(a_hash()),
            proptest::collection::vec(any::<u32>(), tokens),
            (proptest::option::of(any::<i64>()), proptest::option::of(a_text())),
            (a_tier(), keys),
            (proptest::option::of(any::<u32>()), proptest::option::of(a_text())),
        )
            .prop_map(
                move |(hashes, parent, tokens, (lora_id, lora_name), (tier, keys), (index, kind))| {
                    let any_key = keys.iter().any(|own| !own.is_empty());
                    StoredBlocks {
                        hashes,
                        parent,
                        tokens,
                        block_size,
                        lora_id,
                        lora_name,
                        tier,
                        extra_keys: if any_key { keys } else { vec![] },
                        group: Group { index, kind, sliding_window: index },
                    }
                },
            )
    })
}

fn an_event() -> impl Strategy<Value = KvEvent> {
    let removed = (proptest::collection::vec(a_hash(), 0..4), a_tier(), proptest::option::of(any::<u32>()));
    prop_oneof![
        4 => a_store().prop_map(KvEvent::Stored),
        2 => removed.prop_map(|(hashes, tier, group)| KvEvent::Removed { hashes, tier, group }),
        1 => Just(KvEvent::Cleared),
    ]
}

/// Events that can't be read, and why.
fn a_bad_event() -> impl Strategy<Value = (Value, SkipReason)> {
    use SkipReason::{CountMismatch, Malformed, MissingField, UnknownType};
    let hashes = || array(vec![Value::from(1)]);
    let named =
        |pairs: Vec<(&str, Value)>| Value::Map(pairs.into_iter().map(|(k, v)| (k.into(), v)).collect());
    prop_oneof![
        Just((array(vec!["BlockMoved".into(), hashes()]), UnknownType)),
        Just((named(vec![("type", "BlockMoved".into()), ("block_hashes", "x".into())]), UnknownType)),
        Just((named(vec![("block_hashes", hashes())]), UnknownType)),
        Just((array(vec!["BlockRemoved".into()]), MissingField)),
        Just((named(vec![("type", "BlockRemoved".into())]), MissingField)),
        Just((array(vec!["BlockStored".into(), hashes(), Value::Nil, array(vec![])]), MissingField)),
        Just((array(vec!["BlockRemoved".into(), "no list".into()]), Malformed)),
        Just((array(vec!["BlockRemoved".into(), array(vec![Value::Nil])]), Malformed)),
        Just((array(vec![]), Malformed)),
        Just((Value::Nil, Malformed)),
        Just((
            array(vec!["BlockStored".into(), hashes(), Value::Nil, array(vec![Value::from(-1)]), 1.into()]),
            Malformed
        )),
        Just((
            array(vec!["BlockStored".into(), hashes(), Value::Nil, array(vec![Value::from(1)]), 2.into()]),
            CountMismatch
        )),
    ]
}

proptest! {
    #[test]
    fn both_encodings_say_the_same(events in proptest::collection::vec(an_event(), 0..6), back in any::<bool>()) {
        let positional = decode(&batch_of(events.iter().map(positional_of).collect())).unwrap();
        let named = decode(&batch_of(events.iter().map(|e| named_of(e, back)).collect())).unwrap();
        prop_assert_eq!(&positional, &named);
        prop_assert_eq!(positional, Batch { ts: 1.5, rank: Some(3), events, skipped: vec![] });
    }

    #[test]
    fn a_bad_event_costs_only_itself(
        good in proptest::collection::vec(an_event(), 1..5),
        (bad, reason) in a_bad_event(),
        at in any::<prop::sample::Index>(),
    ) {
        let at = at.index(good.len() + 1);
        let mut values: Vec<Value> = good.iter().map(|event| named_of(event, false)).collect();
        values.insert(at, bad);
        let read = decode(&batch_of(values)).unwrap();
        prop_assert_eq!(read.events, good);
        prop_assert_eq!(read.skipped, [Skipped { index: u32::try_from(at).unwrap(), reason }]);
    }

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode(&bytes);
        // As the events of a batch, so that more than the head is reached.
        let _ = decode(&[&[0x92, 0xc0 + 0x0b, 0, 0, 0, 0, 0, 0, 0, 0, 0x9f], &bytes[..]].concat());
    }

    #[test]
    fn mutated_bytes_never_panic(
        events in proptest::collection::vec(an_event(), 1..4),
        hits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        keep in any::<prop::sample::Index>(),
    ) {
        let mut bytes = batch_of(events.iter().map(|event| named_of(event, false)).collect());
        let _ = decode(&bytes[..keep.index(bytes.len())]);
        for (at, byte) in hits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = decode(&bytes);
    }

    #[test]
    fn a_payload_cut_anywhere_is_truncated(event in an_event(), keep in any::<prop::sample::Index>()) {
        let bytes = batch_of(vec![positional_of(&event)]);
        prop_assert_eq!(decode(&bytes[..keep.index(bytes.len())]), Err(DecodeError::Truncated));
    }
}

#[test]
fn claimed_lengths_and_depth_cost_nothing() {
    let head = [0x93, 0xcb, 0, 0, 0, 0, 0, 0, 0, 0];
    let deep = [&head[..], &[0x91; 1_000_000]].concat();
    assert_eq!(decode(&deep), Err(DecodeError::Truncated));
    for marker in [0xdd, 0xdf, 0xc6, 0xdb, 0xc9] {
        let long = [&head[..], &[0x91, marker, 0xff, 0xff, 0xff, 0xff]].concat();
        assert_eq!(decode(&long), Err(DecodeError::Truncated), "{marker:x}");
    }
    let many = [&head[..], &[0xdd, 0xff, 0xff, 0xff, 0xff]].concat();
    assert_eq!(decode(&many), Err(DecodeError::Truncated));
}

#[test]
fn what_is_no_batch_is_refused() {
    let two = [0x92, 0xcb, 0, 0, 0, 0, 0, 0, 0, 0, 0x90];
    assert_eq!(decode(&two), Ok(Batch { ts: 0.0, rank: None, events: vec![], skipped: vec![] }));
    assert_eq!(decode(&[&two[..], &[0]].concat()), Err(DecodeError::Trailing));
    assert_eq!(decode(b""), Err(DecodeError::Truncated));
    assert_eq!(decode(b"\xc1"), Err(DecodeError::Reserved));
    for other in [Value::Nil, array(vec![1.into()]), array(vec!["x".into(), array(vec![])])] {
        assert_eq!(decode(&bytes(&other)), Err(DecodeError::Shape), "{other}");
    }
}

#[test]
fn a_signed_hash_is_its_bits_and_blocks_without_tokens_pass() {
    let stored = array(vec![
        "BlockStored".into(),
        array(vec![Value::from(-1)]),
        Value::Nil,
        array(vec![]),
        Value::from(16),
        Value::Nil,
        "CPU".into(),
    ]);
    let read = decode(&batch_of(vec![stored])).unwrap();
    let [KvEvent::Stored(blocks)] = &read.events[..] else { panic!("{read:?}") };
    assert_eq!(blocks.hashes, [EngineHash::Int(u64::MAX)]);
    assert_eq!((&blocks.tier, blocks.tokens.len()), (&Tier::Cpu, 0));
}
