//! A decision as people and programs see it: every candidate, every term of its prediction, and what each step did to it.

use kinference::policy::eval::{Effect, StepTrace};
use serde_json::{Value, json};

use crate::{
    cases::Ran,
    output::{Line, Tone},
    scenario::{Asked, Candidate, Fate, Verdict},
};

use super::candidates::{self, Row};

/// For people.
pub fn lines(ran: &Ran<'_>, colours: bool) -> Vec<String> {
    let decision = &ran.decision;
    let mut out = vec![format!("request: {}", request(&ran.case.when))];
    let rule = |index: usize| {
        let rule = &ran.world.pool.rules[index];
        format!("`{}` of {}", rule.name, rule.policy)
    };
    for (index, why) in &decision.unknown {
        out.push(format!("rule {} can't be told to match: {why}", rule(*index)));
    }
    if decision.rules.is_empty() && !decision.candidates.is_empty() {
        out.push("no rule matches: by predicted time to first token".to_owned());
    }
    for trace in &decision.trace {
        out.push(format!("rule {}:", rule(trace.rule)));
        let written = &ran.world.pool.rules[trace.rule].texts;
        for (n, (step, written)) in trace.steps.iter().zip(written).enumerate() {
            out.push(format!("  {}. {written}: {}", n + 1, effect(ran, step)));
        }
    }
    out.extend(table(ran).iter().map(|line| line.painted(colours)));
    out.push(match &decision.verdict {
        Verdict::Goes { picks, .. } => format!("goes to {}", decision.names(picks).join(" or ")),
        Verdict::Rejected { status, message } => format!("is rejected with {status}: {message}"),
    });
    out
}

fn request(asked: &Asked) -> String {
    let mut parts = vec![format!("model {}", asked.model)];
    parts.extend(asked.tenant.as_ref().map(|tenant| format!("tenant {tenant}")));
    if !asked.tags.is_empty() {
        parts.push(format!("tags {}", asked.tags.join(" ")));
    }
    parts.extend(asked.prompt_tokens.map(|tokens| format!("{tokens} tokens")));
    parts.extend(asked.path.clone());
    parts.join(", ")
}

fn effect(ran: &Ran<'_>, step: &StepTrace) -> String {
    let names = |of: &[usize]| ran.decision.names(of).join(", ");
    match &step.effect {
        Effect::Narrowed if step.removed.is_empty() => "takes none away".to_owned(),
        Effect::Narrowed => format!("takes {} away", names(&step.removed)),
        Effect::WouldEmpty(on_empty) => format!("leaves none: {on_empty:?}"),
        Effect::NonePreferred => "none is preferred, all stay".to_owned(),
        Effect::OthersFaster(ms) => format!("another is faster by {ms:.0} ms, all stay"),
        Effect::Ordered(ranked) => {
            let order: Vec<_> = ranked.iter().map(|one| one.candidate).collect();
            format!("orders {}", names(&order))
        }
    }
}

fn table(ran: &Ran<'_>) -> Vec<Line> {
    let row = |(index, one): (usize, &Candidate)| Row {
        name: one.name.clone(),
        model: one.model.clone(),
        prediction: one.prediction.clone(),
        fate: fate(ran, index),
    };
    candidates::table(&ran.decision.candidates.iter().enumerate().map(row).collect::<Vec<_>>())
}

fn fate(ran: &Ran<'_>, index: usize) -> (String, Tone) {
    match ran.decision.fate(index) {
        Fate::Picked => ("picked".to_owned(), Tone::Good),
        Fate::Left(place) => (format!("left, number {place}"), Tone::Plain),
        Fate::Removed(rule, step) => {
            let name = ran.world.pool.rules.get(rule).map_or("", |rule| &*rule.name);
            match step {
                0 => ("left, but rejected".to_owned(), Tone::Faint),
                step => (format!("taken away by step {step} of `{name}`"), Tone::Faint),
            }
        }
    }
}

/// For programs.
pub fn object(ran: &Ran<'_>) -> Value {
    let decision = &ran.decision;
    let rule = |index: usize| {
        let rule = &ran.world.pool.rules[index];
        json!({ "policy": &*rule.policy, "rule": &*rule.name })
    };
    let candidates = decision.candidates.iter().enumerate().map(|(n, one)| {
        json!({
            "candidate": one.name,
            "source": one.source,
            "model": one.model,
            "prediction": one.prediction,
            "fate": fate(ran, n).0,
        })
    });
    let trace = decision.trace.iter().map(|trace| {
        let written = &ran.world.pool.rules[trace.rule].texts;
        let steps = trace.steps.iter().zip(written);
        let steps = steps.map(|(step, written)| json!({ "step": &**written, "effect": effect(ran, step) }));
        json!({ "by": rule(trace.rule), "steps": steps.collect::<Vec<_>>() })
    });
    json!({
        "case": ran.case.it,
        "place": ran.place,
        "rules": decision.rules.iter().map(|index| rule(*index)).collect::<Vec<_>>(),
        "candidates": candidates.collect::<Vec<_>>(),
        "trace": trace.collect::<Vec<_>>(),
        "verdict": match &decision.verdict {
            Verdict::Goes { picks, order } => {
                json!({ "picks": decision.names(picks), "order": decision.names(order) })
            }
            Verdict::Rejected { status, message } => json!({ "status": status, "message": message }),
        },
    })
}
