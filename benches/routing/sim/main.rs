//! The routing benchmark in simulation: the same requests through each router over a fleet of simulated engines, under a
//! virtual clock. `target/bench/routing.json` gets a row for each fleet, workload, arm and rate.
//!
//! Kinference is the real pipeline; engines are vllm-sim's model. Everything follows from the seeds.

#![expect(clippy::print_stdout, reason = "a program of the command line")]

mod arms;
#[path = "../../../src/bin/vllm-sim/engine/mod.rs"]
#[expect(dead_code, reason = "the program itself uses all of it")]
mod engine;
mod report;
mod router;
mod stats;
#[cfg(test)]
mod tests;
mod workload;
mod world;

use std::{path::PathBuf, time::Duration};

use anyhow::Result;
use clap::{Parser, ValueEnum};

use arms::{Arm, Name, Setting};
use engine::timing::Preset;
use report::Row;
use stats::Figures;
use workload::{Session, Shape, Workload};
use world::World;

/// Rates of the curves, in units of the one at which the bars are read.
const LOADS: [f64; 7] = [0.4, 0.7, 1.0, 1.3, 1.7, 2.2, 3.0];
const QUICK: [f64; 3] = [0.5, 1.0, 2.0];

/// Seeds from here on are what calibration learns from.
const LEARNT_ON: u64 = 1000;

#[derive(Parser)]
struct Args {
    /// Workloads to run [default: all]
    #[arg(long, value_enum)]
    workload: Vec<Workload>,
    /// Routers to compare [default: all]
    #[arg(long, value_enum)]
    arm: Vec<Name>,
    /// Engines in the fleet
    #[arg(long, default_value_t = 3)]
    engines: usize,
    /// What each engine is
    #[arg(long, value_enum, default_value = "l40s-27b-fp8")]
    preset: Preset,
    /// Routers side by side, each of which knows its own requests alone
    #[arg(long, default_value_t = 1)]
    replicas: usize,
    /// First seed; repeats have the ones after it
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[arg(long, default_value_t = 3)]
    repeats: u64,
    /// Rates, in units of the one at which random's median is the published one [default: a curve]
    #[arg(long)]
    load: Vec<f64>,
    /// A first token within this counts as good
    #[arg(long, default_value_t = 1000.0)]
    objective_ms: f64,
    /// Fewer rates and arms
    #[arg(long)]
    quick: bool,
    /// The recorded trace
    #[arg(long, default_value = "../shared/data/mooncake-conversation-3000.jsonl")]
    trace: PathBuf,
    #[arg(long, default_value = "target/bench/routing.json")]
    out: PathBuf,
}

/// Random's median TTFT at which the bars are read: as published; the transcripts as the published chat, the recorded trace, whose
/// prompts take seconds on an idle engine, as the published control.
fn target_ms(workload: Workload) -> f64 {
    match workload {
        Workload::Control | Workload::Mooncake => 6920.0,
        Workload::SharedPrefix => 6880.0,
        Workload::MultiTurn | Workload::Agentic => 1700.0,
    }
}

struct Bench {
    args: Args,
    workload: Workload,
    shape: Shape,
}

impl Bench {
    fn plan(&self, rate: f64, seed: u64) -> Result<Vec<Session>> {
        match self.workload {
            Workload::Mooncake => workload::traced(&self.args.trace, &self.shape, rate, seed),
            _ => Ok(workload::plan(&self.shape, rate, seed)),
        }
    }

    /// One run.
    fn run(&self, name: Name, rate: f64, seed: u64) -> Result<Figures> {
        let args = &self.args;
        let setting = Setting { preset: args.preset, engines: args.engines, replicas: args.replicas, seed };
        let plan = self.plan(rate, seed)?;
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
        let (served, took) = runtime.block_on(async {
            let mut arm = Arm::new(name, setting)?;
            if name == Name::KinferenceCalibrated {
                let before = self.plan(rate, seed + LEARNT_ON)?;
                World::new(args.preset, args.engines, before).run(&mut arm).await;
                arm.restarted();
            }
            let begun = plan.first().map_or(Duration::ZERO, |session| session.at);
            let (served, end) = World::new(args.preset, args.engines, plan).run(&mut arm).await;
            anyhow::Ok((served, end - begun))
        })?;
        Ok(stats::figures(&served, (took, Duration::from_secs_f64(args.objective_ms / 1e3))))
    }

    fn seeds(&self) -> impl Iterator<Item = u64> + use<> {
        self.args.seed..self.args.seed + self.args.repeats
    }

    /// The rate at which random's median TTFT is the published one: the mean over the seeds, by bisection.
    fn rate(&self) -> Result<f64> {
        let (mut low, mut high) = (0.01 * self.args.engines as f64, 20.0 * self.args.engines as f64);
        for _ in 0..12 {
            let middle = (low * high).sqrt();
            let medians = self
                .seeds()
                .map(|seed| Ok(self.run(Name::Random, middle, seed)?.ttft_p50_ms))
                .collect::<Result<Vec<_>>>()?;
            let mean = medians.iter().sum::<f64>() / medians.len() as f64;
            if mean < target_ms(self.workload) { low = middle } else { high = middle }
        }
        Ok((low * high).sqrt())
    }

    fn rows(&self, arms: &[Name], loads: &[f64]) -> Result<Vec<Row>> {
        let base = self.rate()?;
        let mut rows = Vec::new();
        for &load in loads {
            let mut runs = vec![Vec::new(); arms.len()];
            // Repeats are interleaved, not that it mattered under a virtual clock.
            for seed in self.seeds() {
                for (name, runs) in arms.iter().zip(&mut runs) {
                    runs.push(self.run(*name, base * load, seed)?);
                }
            }
            for (arm, runs) in arms.iter().zip(runs) {
                rows.push(self.row(*arm, (base, load), &runs));
            }
        }
        Ok(rows)
    }

    fn row(&self, arm: Name, (base, load): (f64, f64), runs: &[Figures]) -> Row {
        let (median, spread) = report::summed(runs);
        let row = Row {
            fleet: fleet(&self.args),
            workload: self.workload,
            arm,
            mode: "sim",
            rate_rps: base * load,
            load,
            median,
            errors: 0,
            repeats: runs.len(),
            spread,
            objective_ms: self.args.objective_ms,
            seeds: self.seeds().collect(),
            replicas: self.args.replicas,
            shape: self.shape.clone(),
        };
        println!(
            "{} {:?} x{load} ({:.2}/s) {arm:?}: p50 {:.0} p95 {:.0} mean {:.0} ms, cached {:.2}, good {:.1}/min",
            row.fleet,
            row.workload,
            row.rate_rps,
            median.ttft_p50_ms,
            median.ttft_p95_ms,
            median.ttft_mean_ms,
            median.cached_share,
            median.goodput_rpm
        );
        row
    }
}

fn fleet(args: &Args) -> String {
    let card = match args.preset {
        Preset::L40s27bFp8 => "L40S".to_owned(),
        other => other.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned()),
    };
    format!("{}x{card}", args.engines)
}

fn main() -> Result<()> {
    let args = Args::parse();
    let all =
        |given: &[Name]| if given.is_empty() { Name::value_variants().to_vec() } else { given.to_vec() };
    let arms = all(&args.arm);
    let workloads = match &*args.workload {
        [] => Workload::value_variants().to_vec(),
        given => given.to_vec(),
    };
    let loads: Vec<f64> = match &*args.load {
        [] if args.quick => QUICK.to_vec(),
        [] => LOADS.to_vec(),
        given => given.to_vec(),
    };
    let (mut rows, mut args) = (Vec::new(), Some(args));
    for workload in workloads {
        let Some(given) = args.take() else { break };
        if workload == Workload::Mooncake && !given.trace.exists() {
            println!("SKIPPED: {workload:?}: {} is not here", given.trace.display());
            args = Some(given);
            continue;
        }
        let mut shape = workload.shape();
        shape.sessions = shape.sessions * given.engines / 3;
        shape.prefixes = shape.prefixes * given.engines / 3;
        let bench = Bench { args: given, workload, shape };
        rows.extend(bench.rows(&arms, &loads)?);
        report::write(&bench.args.out, &rows)?;
        args = Some(bench.args);
    }
    Ok(())
}
