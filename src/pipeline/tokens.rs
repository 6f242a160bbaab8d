//! The prompt as each candidate's model sees it: once per (model, profile), under the deadline.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::future::join_all;
use tokio::time::{Instant, timeout_at};

use crate::{
    cache::block_keys,
    fleet::Member,
    prompt::TokenizeTarget,
    types::{BlockKeys, Degradation, Overlap, PromptTokens, WorkerId},
};

use super::{Pipeline, Subject};

/// Workers of one group see the same tokens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct GroupKey {
    profile: String,
    model: Arc<str>,
    lora: Option<Arc<str>>,
    render_url: Option<String>,
}

/// The prompt's keys at one block size, and who holds how much of them.
pub(super) struct Held {
    pub keys: Arc<BlockKeys>,
    pub overlap: HashMap<WorkerId, Overlap>,
}

/// The prompt, ready to be predicted. Empty for a pick on load alone.
#[derive(Default)]
pub(super) struct Prompts {
    groups: HashMap<(GroupKey, u32), Held>,
}

impl Prompts {
    /// What is known of the prompt on that worker.
    pub(super) fn on(&self, member: &Member, model: Option<&str>) -> Option<&Held> {
        self.groups.get(&(group_of(member, model), member.worker.set.kv_block_size))
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
    let mut groups: HashMap<GroupKey, Vec<&Arc<Member>>> = HashMap::new();
    for member in members {
        groups.entry(group_of(member, Some(&model))).or_default().push(member);
    }
    let work = groups.into_iter().map(|(key, members)| {
        let parsed = &parsed;
        async move {
            let target = target(&key, &members);
            let tokens = timeout_at(deadline, pipeline.rooms.tokenizers.tokenize(parsed, &target)).await;
            (key, members, tokens)
        }
    });
    let mut prompts = Prompts::default();
    for (key, members, tokens) in join_all(work).await {
        let why = match tokens {
            Ok(Ok(tokens)) => {
                note_unknown_salt(subject, &tokens);
                prompts.insert(pipeline, &key, (&members, &tokens));
                continue;
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, model = %key.model, "a prompt was not tokenized");
                Degradation::TokenizeFailed
            }
            Err(_) => Degradation::Deadline,
        };
        if !subject.degraded.contains(&why) {
            subject.degraded.push(why);
        }
    }
    prompts
}

impl Prompts {
    fn insert(
        &mut self,
        pipeline: &Pipeline,
        key: &GroupKey,
        (members, tokens): (&[&Arc<Member>], &PromptTokens),
    ) {
        for member in members {
            let size = member.worker.set.kv_block_size;
            self.groups.entry((key.clone(), size)).or_insert_with(|| {
                let keys = Arc::new(block_keys(tokens, size));
                let overlap = pipeline.rooms.index.overlap(&keys);
                Held { keys, overlap }
            });
        }
    }
}

fn note_unknown_salt(subject: &mut Subject, tokens: &PromptTokens) {
    if tokens.credit_until.is_some_and(|until| until < tokens.ids.len())
        && !subject.degraded.contains(&Degradation::UnknownSalt)
    {
        subject.degraded.push(Degradation::UnknownSalt);
    }
}

fn group_of(member: &Member, model: Option<&str>) -> GroupKey {
    let set = &member.worker.set;
    let card = model.and_then(|model| member.serves(model));
    GroupKey {
        profile: set.profile.name.clone(),
        model: member.worker.model_name.clone(),
        lora: card.filter(|card| card.parent.is_some()).map(|card| card.id),
        render_url: set.render_url.clone(),
    }
}

/// Engines of a group answer renders in turn; one that does not even answer its scrapes is left out while
/// another does, or it would hold up its share of all requests until their deadline.
fn target(key: &GroupKey, members: &[&Arc<Member>]) -> TokenizeTarget {
    static TURN: AtomicUsize = AtomicUsize::new(0);
    let answers = |m: &&&Arc<Member>| m.status.missed_scrapes.load(Ordering::Relaxed) == 0;
    let urls = |answering: bool| -> Vec<&String> {
        let asked = members.iter().filter(|m| !answering || answers(m));
        asked.filter_map(|m| m.worker.http_url.as_ref()).collect()
    };
    let urls = Some(urls(true)).filter(|urls| !urls.is_empty()).unwrap_or_else(|| urls(false));
    let turn = TURN.fetch_add(1, Ordering::Relaxed);
    TokenizeTarget {
        mode: members[0].worker.set.profile.tokenize_mode,
        model: key.model.clone(),
        lora_name: key.lora.clone(),
        http_url: (!urls.is_empty()).then(|| urls[turn % urls.len()].clone()),
        render_url: key.render_url.clone(),
    }
}
