//! The prompt as each candidate's model sees it: once per (model, profile), under the deadline.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, atomic::Ordering},
};

use futures::future::join_all;
use tokio::time::{Instant, timeout_at};

use crate::{
    cache::block_keys,
    config::TokenizeMode,
    fleet::{Member, WorkerSet},
    prompt::{ParsedRequest, Prompts as Given, TokenizeError, TokenizeTarget},
    types::{BlockKeys, Degradation, Overlap, PromptTokens, Stage, WorkerId},
};

use super::{
    Pipeline, Subject,
    clock::Clock,
    field::Seat,
    wording::{Wordings, Words},
};

/// Workers of one group see the same tokens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct GroupKey<'a> {
    profile: &'a str,
    model: Arc<str>,
    /// What its engines are asked for.
    served: &'a Arc<str>,
    adapter: Option<Arc<str>>,
    render_url: Option<&'a str>,
}

/// A worker's seat: its key, and the worker.
type Seen<'a> = ((WorkerId, usize), &'a Arc<Member>);

/// The prompt's keys at a worker's block size, and how much of them it holds.
pub(super) struct Held {
    pub keys: Arc<BlockKeys>,
    pub overlap: Overlap,
}

/// The prompt, ready to be predicted. Empty for a pick on load alone.
#[derive(Default)]
pub(super) struct Prompts {
    /// By seat.
    on: HashMap<(WorkerId, usize), Held>,
    /// Its tokens; where it is longer for one model than for another, the most. `None`: nobody tokenized it.
    tokens: Option<usize>,
    /// Its tokens, where it comes as such.
    given: Option<usize>,
}

impl Prompts {
    /// What is known of the prompt there.
    pub(super) fn on(&self, seat: &Seat) -> Option<&Held> {
        self.on.get(&seat.key()?)
    }

    /// Tokens of the prompt; where it is longer for one model than for another, the most.
    pub(super) fn tokens(&self) -> Option<usize> {
        self.tokens.or(self.given)
    }

    /// Blocks that the prompt takes up where that is held of it. Where it was not tokenized for that model but for another,
    /// as many as there: not to know a prompt must not make it look free.
    pub(super) fn blocks(&self, held: Option<&Held>, set: &WorkerSet) -> usize {
        if let Some(held) = held {
            return held.keys.total_blocks();
        }
        self.tokens().unwrap_or(0).div_ceil(set.kv_block_size.max(1) as usize)
    }

    fn insert(&mut self, pipeline: &Pipeline, (seats, tokens): (&[Seen<'_>], &PromptTokens)) {
        let mut by_size: Vec<(Arc<BlockKeys>, HashMap<WorkerId, Overlap>)> = Vec::new();
        self.tokens = self.tokens.max(Some(tokens.ids.len()));
        self.on.reserve(seats.len());
        for (key, member) in seats {
            let size = member.worker.set.kv_block_size;
            let known = by_size.iter().position(|(keys, _)| keys.block_size == size);
            let at = known.unwrap_or_else(|| {
                let keys = Arc::new(block_keys(tokens, size));
                let overlap = pipeline.rooms.index.overlap(&keys);
                by_size.push((keys, overlap));
                by_size.len() - 1
            });
            let (keys, overlap) = &by_size[at];
            let overlap = overlap.get(&key.0).copied().unwrap_or_default();
            self.on.insert(*key, Held { keys: keys.clone(), overlap });
        }
    }
}

/// Tokenizes for every group of workers at once: how a provider counts is not known. What fails or is late is missing, and said.
pub(super) async fn prepare(
    pipeline: &Pipeline,
    subject: &mut Subject,
    (seats, wordings): (&[Seat], &Wordings),
    (deadline, clock): (Instant, &mut Clock),
) -> Prompts {
    let Some(parsed) = subject.parsed.clone() else { return Prompts::default() };
    // In order, so that equal requests are told alike.
    let mut groups: BTreeMap<GroupKey<'_>, Vec<Seen<'_>>> = BTreeMap::new();
    for seat in seats {
        if let (Some(served), Some(member), Some(key)) = (&seat.model, seat.member(), seat.key()) {
            groups.entry(group_of(member, served)).or_default().push((key, member));
        }
    }
    let turn = pipeline.turn.fetch_add(1, Ordering::Relaxed);
    let work = groups.into_iter().map(|(key, seats)| {
        let parsed = &parsed;
        async move {
            let target = target(&key, &seats, turn);
            let work = tokenized(pipeline, (parsed, wordings), (&key, &target), deadline);
            let tokens = timeout_at(deadline, work).await;
            (seats, tokens)
        }
    });
    let mut prompts = Prompts { given: parsed.given_tokens(), ..Prompts::default() };
    let began = Instant::now();
    let all = join_all(work).await;
    clock.passed(Stage::Tokenize, began);
    for (seats, tokens) in all {
        match tokens {
            Ok(Ok(tokens)) => {
                if tokens.credit_until.is_some_and(|until| until < tokens.ids.len()) {
                    subject.lacks(Degradation::UnknownSalt);
                }
                clock.during(Stage::Lookup, || prompts.insert(pipeline, (&seats, &tokens)));
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, model = subject.model.as_deref(), "a prompt was not tokenized");
                subject.lacks(Degradation::TokenizeFailed);
            }
            Err(_) => subject.lacks(Degradation::Deadline),
        }
    }
    prompts
}

/// The prompt's tokens for a group, whose engines may know the model by another name than the request.
async fn tokenized(
    pipeline: &Pipeline,
    (parsed, wordings): (&ParsedRequest, &Wordings),
    (key, target): (&GroupKey<'_>, &TokenizeTarget),
    deadline: Instant,
) -> Result<PromptTokens, TokenizeError> {
    let tokenizers = &pipeline.rooms.tokenizers;
    if parsed.model.as_ref() == Some(key.served) {
        return tokenizers.tokenize(parsed, target).await;
    }
    let mut parsed = parsed.clone();
    parsed.model = Some(key.served.clone());
    // Only engines are shown the body.
    let shown = target.mode != TokenizeMode::Local && !matches!(parsed.prompts, Given::TokenIds(_));
    if !shown {
        return tokenizers.tokenize(&parsed, target).await;
    }
    let room = pipeline.decoding.room(parsed.body.len(), deadline).await;
    let _room = room.map_err(|rejection| TokenizeError::Unsupported(rejection.message))?;
    parsed.body = wordings.body(&Words::of(key.served)).unwrap_or(parsed.body);
    tokenizers.tokenize(&parsed, target).await
}

fn group_of<'a>(member: &'a Member, served: &'a Arc<str>) -> GroupKey<'a> {
    let set = &member.worker.set;
    GroupKey {
        profile: &set.profile.name,
        model: member.model().unwrap_or_default(),
        served,
        adapter: member.serves(served).and_then(|served| served.adapter),
        render_url: set.render_url.as_deref(),
    }
}

/// Engines of a group answer renders in turn; one that does not even answer its scrapes is left out while
/// another does, or it would hold up its share of all requests until their deadline.
fn target(key: &GroupKey<'_>, seats: &[Seen<'_>], turn: usize) -> TokenizeTarget {
    let answers = |member: &Member| member.status.missed_scrapes.load(Ordering::Relaxed) == 0;
    let urls = |answering: bool| -> Vec<&String> {
        let asked = seats.iter().filter(|(_, member)| !answering || answers(member));
        asked.filter_map(|(_, member)| member.worker.http_url.as_ref()).collect()
    };
    let urls = Some(urls(true)).filter(|urls| !urls.is_empty()).unwrap_or_else(|| urls(false));
    let first = &seats[0].1.worker;
    TokenizeTarget {
        mode: first.set.profile.tokenize_mode,
        model: key.model.clone(),
        lora_name: key.adapter.clone(),
        http_url: (!urls.is_empty()).then(|| urls[turn % urls.len()].clone()),
        render_url: key.render_url.map(str::to_owned),
    }
}
