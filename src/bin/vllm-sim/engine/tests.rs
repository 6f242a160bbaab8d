//! The engine by hand-computed steps, and by properties over random traffic.

use std::collections::HashMap;

use proptest::prelude::*;

use super::{hash::Lora, timing::Preset, *};

const BLOCK: usize = 4;

fn config(num_blocks: u32) -> EngineConfig {
    EngineConfig {
        block_size: BLOCK,
        num_blocks,
        max_num_seqs: 4,
        max_batched_tokens: 16,
        timing: Preset::Documented.profile().timing,
        seed: 7,
    }
}

fn engine(config: EngineConfig) -> Engine {
    Engine::new(config, Vocabulary::new(&[900, 901, 902]).unwrap())
}

fn arrival(id: u64, prompt: std::ops::Range<u32>, max_tokens: u32) -> Arrival {
    Arrival { id: RequestId(id), prompt: prompt.collect(), max_tokens, salts: Salts::default() }
}

/// Steps until idle: durations and results.
fn drain(engine: &mut Engine) -> Vec<(Duration, StepResult)> {
    let mut steps = Vec::new();
    while let Some(duration) = engine.begin_step() {
        steps.push((duration, engine.finish_step()));
    }
    steps
}

fn events(steps: &[(Duration, StepResult)]) -> Vec<CacheEvent> {
    steps.iter().flat_map(|(_, result)| result.events.clone()).collect()
}

fn stored(event: &CacheEvent) -> &Stored {
    match event {
        CacheEvent::Stored(stored) => stored,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_long_prompt_is_prefilled_in_chunks_linked_by_parent() {
    let mut engine = engine(config(100));
    engine.submit(arrival(1, 0..38, 3));
    let steps = drain(&mut engine);
    // 16 + 16 + 6 tokens of prompt, then two decoding steps.
    assert_eq!(steps.iter().map(|(_, r)| r.tokens).collect::<Vec<_>>(), [16, 16, 6, 1, 1]);
    assert_eq!(steps.iter().map(|(_, r)| r.outputs.len()).collect::<Vec<_>>(), [0, 0, 1, 1, 1]);
    assert!(steps[4].1.outputs[0].finished && !steps[3].1.outputs[0].finished);
    let events = events(&steps);
    let runs: Vec<_> = events.iter().map(stored).collect();
    assert_eq!(runs.iter().map(|run| run.hashes.len()).collect::<Vec<_>>(), [4, 4, 1, 1]);
    assert_eq!(runs[0].parent, None);
    for pair in runs.windows(2) {
        assert_eq!(pair[1].parent.as_ref(), pair[0].hashes.last());
    }
    // The last block holds two tokens of the answer; its third token was never computed.
    assert_eq!(runs[3].tokens[..2], [36, 37]);
    assert!(runs[3].tokens[2..].iter().all(|token| *token >= 900));
    assert_eq!(engine.cache_usage(), 0.0);
}

#[test]
fn step_times_follow_the_documented_terms() {
    let mut engine = engine(config(100));
    engine.submit(arrival(1, 0..32, 2));
    let ms: Vec<f64> = drain(&mut engine).iter().map(|(d, _)| d.as_secs_f64() * 1e3).collect();
    // One unit of 16 tokens a step, up to one and two units; then one decoding sequence.
    let expected = [18.0 + 2.3 + 0.009, 18.0 + 2.3 + 0.018, 18.25];
    assert_eq!(ms.len(), 3);
    for (got, want) in ms.iter().zip(expected) {
        assert!((got - want).abs() < 1e-6, "{got} {want}");
    }
}

#[test]
fn a_prompt_of_whole_cached_blocks_computes_its_last_block_again() {
    let mut engine = engine(config(100));
    engine.submit(arrival(1, 0..8, 1));
    let first = drain(&mut engine);
    engine.submit(arrival(2, 0..8, 1));
    let again = drain(&mut engine);
    assert_eq!(again[0].1.outputs[0].cached, 4);
    assert_eq!(again[0].1.tokens, 4);
    let (old, new) = (events(&first), events(&again));
    assert_eq!(stored(&new[0]).hashes, stored(&old[0]).hashes[1..]);
    assert_eq!(stored(&new[0]).parent, Some(stored(&old[0]).hashes[0]));
    assert_eq!(engine.counters(), CacheCounters { queries: 16, hits: 4 });

    // Everything is evicted by a prompt that needs the whole cache: both copies say so.
    let all = engine.config.num_blocks as usize - 1;
    engine.submit(Arrival { prompt: (1000..1000 + (all * BLOCK) as u32).collect(), ..arrival(3, 0..1, 1) });
    let removed: Vec<_> = events(&drain(&mut engine))
        .into_iter()
        .filter_map(|event| if let CacheEvent::Removed(hash) = event { Some(hash) } else { None })
        .collect();
    let [head, tail] = stored(&old[0]).hashes[..] else { panic!("two blocks") };
    assert_eq!(removed.iter().filter(|hash| **hash == tail).count(), 2);
    assert_eq!(removed.iter().filter(|hash| **hash == head).count(), 1);
}

#[test]
fn eviction_takes_the_tail_first_and_says_so_before_it_stores() {
    let mut engine = engine(config(6));
    engine.submit(arrival(1, 0..16, 1));
    let old = events(&drain(&mut engine));
    let hashes = &stored(&old[0]).hashes;
    engine.submit(arrival(2, 100..112, 1));
    let new = events(&drain(&mut engine));
    // Five blocks, one of them never used: two of the four old ones go.
    assert_eq!(new[..2], [CacheEvent::Removed(hashes[3]), CacheEvent::Removed(hashes[2])]);
    assert_eq!(stored(&new[2]).hashes.len(), 3);
    engine.submit(arrival(3, 0..16, 1));
    assert_eq!(drain(&mut engine)[0].1.outputs[0].cached, 8);
}

#[test]
fn engines_with_different_seeds_have_different_hashes_and_the_same_answers() {
    let [(one, said), (other, also)] = [1, 2].map(|seed| {
        let mut engine = engine(EngineConfig { seed, ..config(100) });
        engine.submit(arrival(1, 0..8, 5));
        let steps = drain(&mut engine);
        let answer: Vec<u32> =
            steps.iter().flat_map(|(_, r)| &r.outputs).map(|output| output.token).collect();
        (stored(&events(&steps)[0]).hashes.clone(), answer)
    });
    assert!(one.iter().zip(&other).all(|(one, other)| one != other));
    assert_eq!((said.len(), &said), (5, &also));
}

#[test]
fn salts_and_adapters_have_prefixes_of_their_own() {
    let lora = |name: &str| Salts { lora: Some(Lora { id: 1, name: name.into() }), cache_salt: None };
    let salt = |salt: &str| Salts { lora: None, cache_salt: Some(salt.into()) };
    let mut engine = engine(config(100));
    let all = [Salts::default(), lora("a"), lora("b"), salt("a"), salt("b"), salt("a")];
    for (id, salts) in (0..).zip(all) {
        engine.submit(Arrival { salts, ..arrival(id, 0..9, 1) });
        let cached = drain(&mut engine)[0].1.outputs[0].cached;
        // A salt hashes like an adapter of that name on the first block, but not on later ones.
        assert_eq!(cached, [0, 0, 0, 4, 4, 8][id as usize], "request {id}");
    }
}

#[test]
fn a_reset_is_told_with_the_next_step_and_refused_while_blocks_are_used() {
    let mut engine = engine(config(100));
    engine.submit(arrival(1, 0..8, 1));
    drain(&mut engine);
    engine.reset_prefix_cache();
    assert_eq!(engine.begin_step(), None);
    engine.submit(arrival(2, 0..8, 2));
    engine.begin_step();
    engine.reset_prefix_cache();
    let step = engine.finish_step();
    assert_eq!(step.events[0], CacheEvent::Cleared);
    assert_eq!(stored(&step.events[1]).hashes.len(), 2);
    engine.begin_step();
    assert_eq!(engine.finish_step().events, []);
}

#[test]
fn an_abort_frees_its_blocks_and_lets_the_next_one_in() {
    let mut engine = engine(config(6));
    engine.submit(arrival(1, 0..16, 4));
    engine.submit(arrival(2, 100..116, 1));
    engine.begin_step();
    engine.finish_step();
    assert_eq!((engine.running(), engine.waiting()), (1, 1));
    engine.abort(RequestId(1));
    engine.begin_step();
    let outputs = engine.finish_step().outputs;
    assert_eq!(outputs.iter().map(|o| o.id.0).collect::<Vec<_>>(), [2]);
    assert_eq!((engine.running(), engine.cache_usage()), (0, 0.0));
}

#[test]
fn all_presets_are_finite_and_hold_a_long_prompt() {
    for preset in <Preset as clap::ValueEnum>::value_variants() {
        let profile = preset.profile();
        let ms = profile.timing.prefill(8000, 8000) + profile.timing.decode(8000) + profile.timing.step_ms;
        assert!(ms.is_finite() && ms > 10.0 && ms < 5_000.0, "{preset:?}: {ms} ms");
        assert!(profile.cache_tokens > 32_768, "{preset:?}: {}", profile.cache_tokens);
    }
}

/// Random traffic: prompts share prefixes, some are aborted, and steps go on in between.
#[derive(Clone, Debug)]
enum Act {
    Submit { family: u32, len: usize, out: u32 },
    Abort(u64),
    Step,
    Reset,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        4 => (0..3u32, 1..40usize, 1..12u32).prop_map(|(family, len, out)| Act::Submit { family, len, out }),
        1 => (0..40u64).prop_map(Act::Abort),
        8 => Just(Act::Step),
        1 => Just(Act::Reset),
    ];
    prop::collection::vec(act, 1..120)
}

fn play(acts: &[Act]) -> Vec<(Duration, StepResult)> {
    let mut engine = engine(config(20));
    let mut id = 0;
    let mut steps = Vec::new();
    for act in acts {
        match *act {
            Act::Submit { family, len, out } => {
                engine.submit(arrival(id, family * 1000..family * 1000 + len as u32, out));
                id += 1;
            }
            Act::Abort(id) => engine.abort(RequestId(id)),
            Act::Reset => engine.reset_prefix_cache(),
            Act::Step => {
                if let Some(duration) = engine.begin_step() {
                    steps.push((duration, engine.finish_step()));
                }
            }
        }
    }
    steps.extend(drain(&mut engine));
    assert_eq!((engine.running(), engine.waiting(), engine.cache_usage()), (0, 0, 0.0));
    steps
}

proptest! {
    #[test]
    fn random_traffic_keeps_the_books(acts in acts()) {
        let steps = play(&acts);
        prop_assert_eq!(&steps, &play(&acts), "not deterministic");
        let mut copies: HashMap<BlockHash, u32> = HashMap::new();
        for event in events(&steps) {
            match event {
                CacheEvent::Cleared => copies.clear(),
                CacheEvent::Removed(hash) => {
                    let count = copies.get_mut(&hash).filter(|count| **count > 0);
                    prop_assert!(count.is_some(), "removed what is not there");
                    *count.unwrap() -= 1;
                }
                CacheEvent::Stored(stored) => {
                    prop_assert_eq!(stored.tokens.len(), stored.hashes.len() * BLOCK);
                    prop_assert!(stored.parent.is_none_or(|parent| copies.get(&parent).is_some_and(|n| *n > 0)));
                    stored.hashes.iter().for_each(|hash| *copies.entry(*hash).or_default() += 1);
                }
            }
            prop_assert!(copies.values().sum::<u32>() <= 19, "more blocks than there are");
        }
        prop_assert!(steps.iter().all(|(_, result)| result.tokens <= 16));
        let asked = acts.iter().filter(|act| matches!(act, Act::Submit { .. })).count();
        let aborts = acts.iter().filter(|act| matches!(act, Act::Abort(_))).count();
        let finished = steps.iter().flat_map(|(_, r)| &r.outputs).filter(|output| output.finished).count();
        prop_assert!(finished <= asked && finished + aborts >= asked);
    }
}
