//! Decides for a request over a described fleet: predictions, the pool's rules, then the pick, all by the server's code.

use std::collections::BTreeSet;

use kinference::{
    config::PickerConfig,
    policy::eval::{self, Request, RuleTrace},
    route::{pick, rank},
    types,
};
use rand::{SeedableRng, rngs::StdRng};

use super::{
    candidates::{Candidate, candidates, index_of, routed, state},
    fleet::Fleet,
    test_file::Asked,
    world::World,
};

/// Among equals the pick is by chance: so many picks show nearly all that it may be.
const DRAWS: u64 = 64;

/// What was decided, and what it followed from.
#[derive(Debug)]
pub struct Decision {
    /// Every candidate, in the order of the backends and the fleet.
    pub candidates: Vec<Candidate>,
    /// Indices of the pool's rules that matched, in order.
    pub rules: Vec<usize>,
    /// Rules of which it can't be told whether they match, and why.
    pub unknown: Vec<(usize, String)>,
    /// What each step did.
    pub trace: Vec<RuleTrace>,
    /// What becomes of the request.
    pub verdict: Verdict,
}

/// What became of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It may be picked.
    Picked,
    /// It is left, at this place.
    Left(usize),
    /// A step took it away: of this rule, counted from 1.
    Removed(usize, usize),
}

/// What becomes of a request.
#[derive(Debug)]
pub enum Verdict {
    /// It goes to one of `picks`; `order` is what is left, the best first. Indices of candidates.
    Goes { picks: BTreeSet<usize>, order: Vec<usize> },
    /// It is answered with an error: HTTP status and message.
    Rejected { status: u16, message: String },
}

/// Decides.
pub fn decide(world: &World, fleet: &Fleet, asked: &Asked) -> Decision {
    let pool = &world.pool;
    let tenant = asked.tenant.as_deref();
    let Some(model) = pool.find(&asked.model, tenant) else {
        return rejected(404, pool.unpublished(&asked.model, asked.tenant.as_deref()));
    };
    let (candidates, known) = candidates(world, fleet, (model, asked));
    let request = Request {
        model: &pool.models[model].name,
        tenant,
        tags: &asked.tags,
        prompt_tokens: asked.prompt_tokens.map(u64::from),
        output_tokens: asked.max_tokens.map(u64::from),
    };
    let matched = pool.rules_for(model, &request, &state(pool, model, fleet));
    let (rules, unknown) = (matched.rules.clone(), matched.unknown.clone());
    if candidates.is_empty() {
        let nobody = "no worker and no provider may serve it".to_owned();
        return Decision { rules, unknown, ..rejected(503, nobody) };
    }
    let outcome = matched.run(&known);
    let verdict = concluded(world, (&candidates, &known), outcome.verdict);
    Decision { candidates, rules, unknown, trace: outcome.trace, verdict }
}

/// For people, and for the rules; side by side.
type Candidates<'a> = (&'a [Candidate], &'a [eval::Candidate]);

fn concluded(world: &World, candidates: Candidates<'_>, verdict: eval::Verdict) -> Verdict {
    match verdict {
        eval::Verdict::Order(ranked) => Verdict::Goes {
            picks: picks(world, candidates, &ranked),
            order: ranked.iter().map(|one| one.candidate).collect(),
        },
        eval::Verdict::Reject(_, rejection) => {
            Verdict::Rejected { status: rejection.status, message: rejection.message }
        }
    }
}

fn rejected(status: u16, message: String) -> Decision {
    Decision {
        candidates: Vec::new(),
        rules: Vec::new(),
        unknown: Vec::new(),
        trace: Vec::new(),
        verdict: Verdict::Rejected { status, message },
    }
}

/// What the picker may pick of candidates that are left.
fn picks(world: &World, (shown, known): Candidates<'_>, left: &[eval::Ranked]) -> BTreeSet<usize> {
    let of = |one: &eval::Ranked| {
        let n = one.candidate;
        let routed = routed(n, &shown[n], known[n].worker, world);
        types::Candidate { level: one.level, ..routed }
    };
    let mut ranked: Vec<_> = left.iter().map(of).collect();
    rank(&mut ranked);
    // Providers have no profile: that of the best worker decides, as in the server.
    let best = ranked.iter().find_map(|one| one.target.worker());
    let standard = PickerConfig::default();
    let picker = best.map_or(&standard, |best| &world.profile(&best.workerset).0.picker);
    let draw = |seed| pick(picker, &ranked, None, &mut StdRng::seed_from_u64(seed));
    let picked = (0..DRAWS).filter_map(draw).map(|choice| &ranked[choice.chosen]);
    picked.filter_map(|one| index_of(one, shown)).collect()
}

impl Decision {
    /// What became of a candidate.
    pub fn fate(&self, candidate: usize) -> Fate {
        match &self.verdict {
            Verdict::Goes { picks, .. } if picks.contains(&candidate) => Fate::Picked,
            Verdict::Goes { order, .. } if order.contains(&candidate) => {
                Fate::Left(order.iter().position(|one| *one == candidate).unwrap_or_default() + 1)
            }
            _ => self.removed(candidate),
        }
    }

    /// By the last rule that was run: earlier ones had no say.
    fn removed(&self, candidate: usize) -> Fate {
        let last = self.trace.last();
        let step = last.and_then(|of| of.steps.iter().position(|step| step.removed.contains(&candidate)));
        Fate::Removed(last.map_or(0, |of| of.rule), step.map_or(0, |step| step + 1))
    }

    /// The index of the rule that decided, if one did.
    pub fn decided_by(&self) -> Option<usize> {
        let last = self.trace.last()?;
        let passed_on = last.steps.last().is_some_and(|step| {
            step.effect == eval::Effect::WouldEmpty(kinference::policy::crd::OnEmpty::NextRule)
        });
        (!passed_on).then_some(last.rule)
    }

    /// Names of candidates.
    pub fn names<'a>(&'a self, of: impl IntoIterator<Item = &'a usize>) -> Vec<&'a str> {
        of.into_iter().map(|n| self.candidates[*n].name.as_str()).collect()
    }
}
