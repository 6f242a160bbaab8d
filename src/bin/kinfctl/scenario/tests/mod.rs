//! The server and the command line decide alike, whatever the policies, the fleet and the request are.
//!
//! The server's pipeline runs over its real rooms; the description of the fleet that the command line gets is what those
//! rooms say at that instant.

mod random;
mod server;
#[path = "../../../../../tests/pipeline/site.rs"]
#[expect(dead_code, reason = "it serves the tests of the pipeline")]
mod site;

use std::collections::BTreeSet;

use rand::{SeedableRng, rngs::StdRng};

use self::{random::Drawn, server::Server};
use super::{Candidate, Decision, Verdict, World, decide};

/// What was decided, as both can say it.
#[derive(Debug, PartialEq)]
struct Said {
    /// HTTP status and, where a policy rejects, its words; none: it goes somewhere.
    rejected: Option<(u16, String)>,
    /// Rules that were run, in order.
    rules: Vec<String>,
    /// Names and predictions in order; equal predictions by name.
    order: Vec<(String, u64)>,
    /// Those that rules took away.
    taken: BTreeSet<String>,
}

/// Predictions to a tenth of a millisecond: both sum up the same terms, not always in the same order.
fn tenths(ms: f64) -> u64 {
    (ms * 10.0).round() as u64
}

/// The name of a candidate with the model that it is asked for.
fn full_name(candidate: &Candidate) -> String {
    let Candidate { name, model, .. } = candidate;
    let name = name.strip_suffix(&format!("/{model}")).unwrap_or(name);
    match candidate.is_worker {
        true => format!("{name}/{model}"),
        false => format!("provider/{name}/{}", random::upstream(model)),
    }
}

/// What the command line says.
fn offline(world: &World, decision: &Decision) -> Said {
    let name = |n: &usize| full_name(&decision.candidates[*n]);
    let (rejected, left) = match &decision.verdict {
        Verdict::Goes { order, .. } => (None, order.clone()),
        Verdict::Rejected { status, message } => (Some((*status, message.clone())), Vec::new()),
    };
    let order = left.iter().map(|n| (name(n), tenths(decision.candidates[*n].prediction.ttft_ms)));
    let gone = (0..decision.candidates.len()).filter(|n| rejected.is_none() && !left.contains(n));
    let rules = decision.trace.iter().map(|of| &world.pool.rules[of.rule]);
    Said {
        rules: rules.map(|rule| format!("{}/{}", rule.policy, rule.name)).collect(),
        order: by_name_where_equal(order.collect()),
        taken: gone.map(|n| name(&n)).collect(),
        rejected,
    }
}

fn by_name_where_equal(mut order: Vec<(String, u64)>) -> Vec<(String, u64)> {
    order.chunk_by_mut(|a, b| a.1 == b.1).for_each(<[_]>::sort);
    order
}

fn compare(said: &Said, online: &Said, drawn: &Drawn) {
    let policies_say = said.rejected.as_ref().is_some_and(|(status, _)| *status != 503 && *status != 404);
    let words = |said: &Said| {
        let rejected = said.rejected.clone();
        rejected.map(|(status, message)| (status, if policies_say { message } else { String::new() }))
    };
    assert_eq!(words(said), words(online), "{drawn:?}");
    assert_eq!(said.rules, online.rules, "{drawn:?}");
    assert_eq!(said.order, online.order, "{drawn:?}");
    assert_eq!(said.taken, online.taken, "{drawn:?}");
}

/// Triples that are drawn. Some ask for what is not published, some find nobody; most are decided by rules.
const TRIPLES: u64 = 10_000;

#[tokio::test(start_paused = true)]
async fn the_server_and_the_command_line_decide_alike() {
    let mut server = Server::new();
    let (mut rejections, mut ruled, mut picked) = (0, 0, BTreeSet::new());
    let mut rng = StdRng::seed_from_u64(20);
    let (mut resources, mut pool) = (Vec::new(), None);
    for n in 0..TRIPLES {
        // Most of the time goes into reading resources: each is asked a few times.
        if n % 4 == 0 {
            resources = random::resources(&mut rng);
            pool = Some(server.enforce(&resources));
        }
        let drawn = Drawn::new(&mut rng, resources.clone());
        server.populate(&drawn).await;
        let (fleet, placed) = server.decide(&drawn).await;
        let world = World::bare(pool.clone().unwrap());
        let decision = decide(&world, &fleet, &drawn.asked);
        let online = server::said(&placed);
        compare(&offline(&world, &decision), &online, &drawn);
        if let (Verdict::Goes { picks, .. }, Ok(placement)) = (&decision.verdict, &placed) {
            let chosen = server::full_name(placement.decision.primary());
            let picks: Vec<_> = picks.iter().map(|n| full_name(&decision.candidates[*n])).collect();
            assert!(picks.contains(&chosen), "{chosen} of {picks:?}: {drawn:?}");
            picked.insert(chosen.starts_with("provider/"));
        }
        rejections += u64::from(online.rejected.is_some());
        ruled += u64::from(!online.rules.is_empty());
    }
    // The draw is worth something: neither is rare.
    assert!(rejections > TRIPLES / 20 && ruled > TRIPLES * 2 / 5, "{rejections} {ruled}");
    assert_eq!(picked.len(), 2, "workers and providers are picked");
}
