//! The prompt as each candidate's model sees it: once per (model, profile), under the deadline.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, atomic::Ordering},
};

use futures::future::join_all;
use tokio::time::{Instant, timeout_at};

use crate::{
    cache::block_keys,
    fleet::{Member, Worker},
    prompt::TokenizeTarget,
    types::{BlockKeys, Degradation, Overlap, PromptTokens, WorkerId},
};

use super::{Pipeline, Subject};

/// Workers of one group see the same tokens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct GroupKey<'a> {
    profile: &'a str,
    model: Arc<str>,
    adapter: Option<Arc<str>>,
    render_url: Option<&'a str>,
}

/// The prompt's keys at one block size, and who holds how much of them.
pub(super) struct Held {
    pub keys: Arc<BlockKeys>,
    pub overlap: HashMap<WorkerId, Overlap>,
}

/// The prompt, ready to be predicted. Empty for a pick on load alone.
#[derive(Default)]
pub(super) struct Prompts {
    held: Vec<Held>,
    /// Where in `held` a worker's is.
    on: HashMap<WorkerId, usize>,
}

impl Prompts {
    /// What is known of the prompt on that worker.
    pub(super) fn on(&self, worker: &Worker) -> Option<&Held> {
        self.on.get(&worker.id).and_then(|at| self.held.get(*at))
    }

    /// Blocks that the prompt takes up on a worker. Where it was not tokenized for the worker's model but for
    /// another's, as many as there: not to know a prompt must not make it look free.
    pub(super) fn blocks_on(&self, worker: &Worker) -> usize {
        if let Some(held) = self.on(worker) {
            return held.keys.total_blocks();
        }
        let tokens = self.held.iter().map(|held| held.keys.tokens).max().unwrap_or(0);
        tokens.div_ceil(worker.set.kv_block_size.max(1) as usize)
    }

    fn insert(&mut self, pipeline: &Pipeline, (members, tokens): (&[&Arc<Member>], &PromptTokens)) {
        let first = self.held.len();
        for worker in members.iter().map(|member| &member.worker) {
            let size = worker.set.kv_block_size;
            let known = self.held[first..].iter().position(|held| held.keys.block_size == size);
            let at = known.map_or(self.held.len(), |at| first + at);
            if at == self.held.len() {
                let keys = Arc::new(block_keys(tokens, size));
                let overlap = pipeline.rooms.index.overlap(&keys);
                self.held.push(Held { keys, overlap });
            }
            self.on.insert(worker.id, at);
        }
    }
}

/// Tokenizes for every group of candidates at once. What fails or is late is missing, and said.
pub(super) async fn prepare(
    pipeline: &Pipeline,
    subject: &mut Subject,
    members: &[Arc<Member>],
    deadline: Instant,
) -> Prompts {
    let (Some(parsed), Some(model)) = (subject.parsed.clone(), subject.model.clone()) else {
        return Prompts::default();
    };
    // In order, so that equal requests are told alike.
    let mut groups: BTreeMap<GroupKey<'_>, Vec<&Arc<Member>>> = BTreeMap::new();
    for member in members {
        groups.entry(group_of(member, &model)).or_default().push(member);
    }
    let turn = pipeline.turn.fetch_add(1, Ordering::Relaxed);
    let work = groups.into_iter().map(|(key, members)| {
        let parsed = &parsed;
        async move {
            let target = target(&key, &members, turn);
            let tokens = timeout_at(deadline, pipeline.rooms.tokenizers.tokenize(parsed, &target)).await;
            (members, tokens)
        }
    });
    let mut prompts = Prompts::default();
    for (members, tokens) in join_all(work).await {
        match tokens {
            Ok(Ok(tokens)) => {
                if tokens.credit_until.is_some_and(|until| until < tokens.ids.len()) {
                    subject.lacks(Degradation::UnknownSalt);
                }
                prompts.insert(pipeline, (&members, &tokens));
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, %model, "a prompt was not tokenized");
                subject.lacks(Degradation::TokenizeFailed);
            }
            Err(_) => subject.lacks(Degradation::Deadline),
        }
    }
    prompts
}

fn group_of<'a>(member: &'a Member, model: &str) -> GroupKey<'a> {
    let set = &member.worker.set;
    GroupKey {
        profile: &set.profile.name,
        model: member.model().unwrap_or_default(),
        adapter: member.serves(model).and_then(|served| served.adapter),
        render_url: set.render_url.as_deref(),
    }
}

/// Engines of a group answer renders in turn; one that does not even answer its scrapes is left out while
/// another does, or it would hold up its share of all requests until their deadline.
fn target(key: &GroupKey<'_>, members: &[&Arc<Member>], turn: usize) -> TokenizeTarget {
    let answers = |m: &&&Arc<Member>| m.status.missed_scrapes.load(Ordering::Relaxed) == 0;
    let urls = |answering: bool| -> Vec<&String> {
        let asked = members.iter().filter(|m| !answering || answers(m));
        asked.filter_map(|m| m.worker.http_url.as_ref()).collect()
    };
    let urls = Some(urls(true)).filter(|urls| !urls.is_empty()).unwrap_or_else(|| urls(false));
    let first = &members[0].worker;
    TokenizeTarget {
        mode: first.set.profile.tokenize_mode,
        model: key.model.clone(),
        lora_name: key.adapter.clone(),
        http_url: (!urls.is_empty()).then(|| urls[turn % urls.len()].clone()),
        render_url: key.render_url.map(str::to_owned),
    }
}
