//! A decision as people and programs see it: every candidate, every term of its prediction, and what each step did to it.

use kinference::{
    policy::eval::{Effect, StepTrace},
    types::Prediction,
};
use serde_json::{Value, json};

use crate::{
    cases::Ran,
    output::{Cell, Column, Line, Tone, layout},
    scenario::{Asked, Candidate, Fate, Verdict},
};

/// Milliseconds of a prediction.
type Term = fn(&Prediction) -> f64;

/// The terms of a prediction, and their sum first.
const TERMS: &[(Column, Term)] = &[
    (Column::right("TTFT MS"), |p| p.ttft_ms),
    (Column::right("BASE"), |p| p.base_ms),
    (Column::right("FORWARD"), |p| p.forward_pass_ms),
    (Column::right("BACKLOG"), |p| p.backlog_ms),
    (Column::right("QUEUE"), |p| p.queue_ms),
    (Column::right("PREFILL"), |p| p.prefill_ms),
    (Column::right("RUNNING"), |p| p.running_ms),
    (Column::right("PRESSURE"), |p| p.cache_pressure_ms),
    (Column::right("COLD"), |p| p.saturated_cold_ms),
    (Column::right("ASSUMED"), |p| p.assumed_ms),
    (Column::right("PROVIDER"), |p| p.provider_ms),
];

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
        let written = ran.world.steps(&ran.world.pool.rules[trace.rule]);
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

/// Terms that are zero everywhere are left out.
fn table(ran: &Ran<'_>) -> Vec<Line> {
    let candidates = &ran.decision.candidates;
    let counts = |term: &Term| candidates.iter().any(|one| term(&one.prediction) != 0.0);
    let terms: Vec<_> = TERMS.iter().filter(|(_, term)| counts(term)).collect();
    let mut columns = vec![Column::left("CANDIDATE"), Column::left("MODEL")];
    columns.extend(terms.iter().map(|(column, _)| *column));
    columns.extend([Column::right("CACHED"), Column::left("WHAT BECOMES OF IT")]);
    let row = |(index, one): (usize, &Candidate)| -> Vec<Cell> {
        let p = &one.prediction;
        let (said, tone) = fate(ran, index);
        let names = [one.name.clone(), one.model.clone()].map(Cell::from);
        let values = terms.iter().map(|(_, term)| Cell::from(format!("{:.0}", term(p))));
        let cached = format!("{}/{}", p.cached_blocks, p.blocks);
        names.into_iter().chain(values).chain([cached.into(), Cell::toned(said, tone)]).collect()
    };
    let rows: Vec<_> = candidates.iter().enumerate().map(row).collect();
    if rows.is_empty() { Vec::new() } else { layout(&columns, &rows, None) }
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
        let written = ran.world.steps(&ran.world.pool.rules[trace.rule]);
        let steps = trace.steps.iter().zip(written);
        let steps = steps.map(|(step, written)| json!({ "step": written, "effect": effect(ran, step) }));
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
