//! The simulation against itself: nothing is lost, nothing stays in flight, and a seed is a run.

use std::time::Duration;

use super::{
    arms::{Arm, Name, Setting},
    engine::timing::Preset,
    stats::figures,
    workload::{Shape, Workload, plan},
    world::{Served, World},
};

fn small(workload: Workload) -> Shape {
    let shape = workload.shape();
    Shape { sessions: 12, turns: shape.turns.min(3), first_tokens: 300, prefix_tokens: 400, ..shape }
}

fn run(name: Name, workload: Workload, seed: u64) -> (Vec<Served>, Arm) {
    let setting = Setting { preset: Preset::Documented, engines: 2, replicas: 1, seed };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut arm = Arm::new(name, setting).unwrap();
        let world = World::new(setting.preset, setting.engines, plan(&small(workload), 2.0, seed));
        (world.run(&mut arm).await.0, arm)
    })
}

#[test]
fn every_request_has_one_first_token_and_nothing_stays_in_flight() {
    for workload in [Workload::Control, Workload::SharedPrefix, Workload::MultiTurn, Workload::Agentic] {
        let turns: usize = plan(&small(workload), 2.0, 1).iter().map(|session| session.turns.len()).sum();
        for name in [Name::Random, Name::LeastRequest, Name::Kinference, Name::LoadOnly, Name::Oracle] {
            let (served, arm) = run(name, workload, 1);
            assert_eq!(served.len(), turns, "{workload:?} {name:?}");
            match arm {
                Arm::Kinference(replicas) => assert_eq!(replicas.in_flight(), 0),
                Arm::LeastRequest { active, .. } => assert_eq!(active, [0, 0]),
                _ => {}
            }
        }
    }
}

#[test]
fn a_seed_is_a_run() {
    let of = |seed| {
        let served = run(Name::Kinference, Workload::SharedPrefix, seed).0;
        served.iter().map(|one| (one.ttft, one.cached)).collect::<Vec<_>>()
    };
    assert_eq!(of(3), of(3));
    assert_ne!(of(3), of(4));
}

#[test]
fn prompts_that_share_a_prefix_find_it_and_others_do_not() {
    let cached = |workload| {
        let served = run(Name::Kinference, workload, 1).0;
        figures(&served, (Duration::from_secs(60), Duration::from_secs(1))).cached_share
    };
    assert_eq!(cached(Workload::Control), 0.0);
    assert!(cached(Workload::MultiTurn) > 0.3, "{}", cached(Workload::MultiTurn));
}
