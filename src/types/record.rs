//! A decision as it is remembered: who asked for what, what was decided, how long each stage took, how it ended.
//!
//! Invariant: nothing of a prompt is in it, neither text nor tokens, and what a client chose is short: see [`brief`].
//! Times since the request's head was read.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::{Decision, Degradation, Outcome, Rejection, TraceParent, Usage, WorkerId};

/// A part of the way to a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// The body arrives.
    Buffer,
    /// It is decoded and read.
    Parse,
    /// The prompt becomes tokens, for every model that may serve it.
    Tokenize,
    /// Who holds how much of it.
    Lookup,
    /// The rules of its pool are matched and run.
    Policy,
    /// The time to first token on every candidate.
    Predict,
    /// One of them, and the reservation of its load.
    Pick,
}

impl Stage {
    /// Every one, in their order.
    pub const ALL: [Self; 7] =
        [Self::Buffer, Self::Parse, Self::Tokenize, Self::Lookup, Self::Policy, Self::Predict, Self::Pick];

    /// The metric label, and the word in logs and traces.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Buffer => "buffer",
            Self::Parse => "parse",
            Self::Tokenize => "tokenize",
            Self::Lookup => "lookup",
            Self::Policy => "policy",
            Self::Predict => "predict",
            Self::Pick => "pick",
        }
    }
}

/// When a stage began, and how long it took in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Took {
    /// Since the request's head was read.
    pub from: Duration,
    /// All of its parts together.
    pub took: Duration,
}

/// The stages that a request went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages([Option<Took>; Stage::ALL.len()]);

impl Stages {
    /// Adds a part of a stage.
    pub fn add(&mut self, stage: Stage, part: Took) {
        let all = self.0[stage as usize].get_or_insert(Took { from: part.from, took: Duration::ZERO });
        all.took += part.took;
    }

    /// Those that it went through, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Stage, Took)> {
        Stage::ALL.into_iter().filter_map(|stage| self.0[stage as usize].map(|took| (stage, took)))
    }
}

/// Bytes that are kept of an id or a name which a client chose.
const LONGEST_NAME: usize = 256;
/// Tags that are kept.
const MOST_TAGS: usize = 32;
/// Bytes that are kept of the text of a rejection.
const LONGEST_MESSAGE: usize = 1024;

/// As much of an id or a name as is remembered: a client may choose one of any length.
pub fn brief(name: &str) -> &str {
    cut(name, LONGEST_NAME)
}

fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

/// A decision as it is remembered. Made by [`Record::brief`], unless by a test.
#[derive(Clone, Debug)]
pub struct Record {
    /// When the request's head was read.
    pub at: SystemTime,
    /// `x-request-id`, or one of our own. Several requests may have the same.
    pub request_id: Arc<str>,
    /// Whose request it is, where that is known.
    pub tenant: Option<Arc<str>>,
    /// Its tags.
    pub tags: Vec<Arc<str>>,
    /// The InferencePool that its route belongs to.
    pub pool: Option<Arc<str>>,
    /// What is called: see `RequestKind::label`.
    pub call: &'static str,
    /// The model that was asked for, as far as that was read.
    pub model: Option<Arc<str>>,
    /// The proxy's `traceparent`.
    pub traceparent: Option<TraceParent>,
    /// What it went through.
    pub stages: Stages,
    /// From the request's head to the decision.
    pub took: Duration,
    /// What was decided.
    pub decided: Result<Arc<Decision>, Arc<Rejection>>,
}

impl Record {
    /// The same with all that is long cut short, so that a hostile client does not decide how much is held.
    #[must_use]
    pub fn brief(mut self) -> Self {
        let short = |name: &mut Arc<str>| {
            if name.len() > LONGEST_NAME {
                *name = brief(name).into();
            }
        };
        short(&mut self.request_id);
        self.tags.truncate(MOST_TAGS);
        self.tags.iter_mut().for_each(short);
        [&mut self.tenant, &mut self.pool, &mut self.model].into_iter().flatten().for_each(short);
        if let Err(rejection) = &mut self.decided
            && rejection.message.len() > LONGEST_MESSAGE
        {
            let message = cut(&rejection.message, LONGEST_MESSAGE).to_owned();
            *rejection = Arc::new(Rejection { message, ..Rejection::clone(rejection) });
        }
        self
    }

    /// Those whom it looked at, for whoever has to bound what is held of decisions.
    pub fn candidates(&self) -> usize {
        let all = |decision: &Arc<Decision>| {
            decision.candidates.len() + decision.taken.len() + decision.removed.len()
        };
        self.decided.as_ref().map_or_else(|rejection| rejection.removed.len(), all)
    }

    /// What the decision was made without: of it as a whole, and of the candidate that was chosen.
    pub fn degraded(&self) -> impl Iterator<Item = Degradation> {
        let decision = self.decided.as_ref().ok();
        decision.into_iter().flat_map(|decision| decision.lacks())
    }
}

/// How a placed request ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ending {
    /// How.
    pub outcome: Outcome,
    /// From the decision to the first token, of streamed answers.
    pub ttft: Option<Duration>,
    /// The time to first token that the pick was made on.
    pub predicted: Duration,
    /// The worker that served it; none: a provider did.
    pub served_by: Option<WorkerId>,
    /// From the decision to the end.
    pub took: Duration,
    /// What it used, where that was seen.
    pub usage: Option<Usage>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::ErrorKind;

    #[test]
    fn what_clients_chose_is_cut_short_between_characters() {
        let long = "\u{e9}".repeat(40_000);
        let record = Record {
            at: SystemTime::UNIX_EPOCH,
            request_id: format!("x{long}").into(),
            tenant: Some(long.as_str().into()),
            tags: vec![long.as_str().into(); 100],
            pool: Some(long.as_str().into()),
            call: "other",
            model: Some(long.as_str().into()),
            traceparent: None,
            stages: Stages::default(),
            took: Duration::ZERO,
            decided: Err(Arc::new(Rejection::new(ErrorKind::BadRequest, long))),
        }
        .brief();
        assert_eq!((record.request_id.len(), &*record.request_id), (255, brief(&record.request_id)));
        let names = [&record.tenant, &record.pool, &record.model];
        assert!(names.iter().all(|name| name.as_ref().unwrap().len() == 256));
        assert_eq!((record.tags.len(), record.tags[31].len()), (32, 256));
        assert_eq!(record.decided.unwrap_err().message.len(), 1024);
        assert_eq!(brief("short"), "short");
    }

    #[test]
    fn parts_of_a_stage_add_up_from_where_the_first_began() {
        let ms = Duration::from_millis;
        let mut stages = Stages::default();
        stages.add(Stage::Policy, Took { from: ms(3), took: ms(1) });
        stages.add(Stage::Parse, Took { from: ms(1), took: ms(2) });
        stages.add(Stage::Policy, Took { from: ms(9), took: ms(4) });
        let all: Vec<_> = stages.iter().collect();
        let policy = Took { from: ms(3), took: ms(5) };
        assert_eq!(all, [(Stage::Parse, Took { from: ms(1), took: ms(2) }), (Stage::Policy, policy)]);
    }
}
