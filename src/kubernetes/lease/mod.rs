//! Leader election by a Lease: one replica writes statuses. Every replica routes, whether it leads or not.
//!
//! Invariant: what is told of leadership is never later than the machine; a request is cut off when the lease that it is
//! to renew ends.

mod api;
mod leadership;
mod machine;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::{convert::Infallible, future::pending, time::Duration};

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use prometheus::{IntCounterVec, IntGauge};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, sleep_until, timeout, timeout_at},
};

pub use leadership::{Leadership, Leading, Permit};

use self::{
    api::LeaseApi,
    machine::{Action, Input, Machine, Now, Terms, Written},
};
use super::{
    client::own_namespace,
    failure::{ApiError, Verb},
    instruments::{Errors, Trouble},
};
use crate::{config::LeaderElectionConfig, observe::Metrics};

/// How long giving up the lease may take.
const FAREWELL: Duration = Duration::from_secs(3);

/// Gives up the lease at shutdown, so that another replica takes it at its next look.
pub struct Release(Option<mpsc::Sender<oneshot::Sender<()>>>);

impl Release {
    /// Stops leading, waits for the writes under way, and gives the lease up. What `elect` returned must be running.
    pub async fn give_up(self) {
        let Some(ask) = self.0 else { return };
        let (done, is_done) = oneshot::channel();
        let asking = async {
            ask.send(done).await.ok();
            is_done.await.ok();
        };
        if timeout(FAREWELL, asking).await.is_err() {
            tracing::warn!(
                "the lease was not given up in time: another replica takes it once it has run out"
            );
        }
    }
}

/// Contends for the lease as `identity`, a name that no other replica has, ever. With leader election off this replica
/// leads for good.
pub fn elect(
    client: Client,
    config: &LeaderElectionConfig,
    identity: String,
    metrics: &Metrics,
) -> (Leadership, impl Future<Output = Infallible> + Send + use<>, Release) {
    let gauges = Gauges::new(metrics);
    let first = if config.enabled { Leading::No } else { Leading::Always };
    let (tell, leadership) = Leadership::new(first);
    let (ask, asked) = mpsc::channel(1);
    let candidate = config.enabled.then(|| {
        let namespace = config.namespace.clone().unwrap_or_else(|| own_namespace(&client));
        let terms = Terms { duration: config.lease_duration, grace: config.renew_grace, retry: config.retry };
        Candidate {
            machine: Machine::new(identity, terms),
            terms,
            lease: LeaseApi::new(client, &namespace, config.lease_name.clone()),
            tell,
            leadership: leadership.clone(),
            overdue: false,
            trouble: Trouble::new(
                gauges.errors.clone(),
                "leader election fails",
                "leader election works".into(),
            ),
            gauges: gauges.clone(),
        }
    });
    let run = async move {
        match candidate {
            Some(candidate) => candidate.run(asked).await,
            None => {
                gauges.leader.set(1);
                pending().await
            }
        }
    };
    (leadership, run, Release(config.enabled.then_some(ask)))
}

#[derive(Clone)]
struct Gauges {
    leader: IntGauge,
    changes: IntCounterVec,
    errors: Errors,
}

impl Gauges {
    fn new(metrics: &Metrics) -> Self {
        Self {
            leader: metrics
                .gauges(
                    "kinference_kubernetes_leader",
                    "1: this replica writes the statuses of resources; 0: another does.",
                    &[],
                )
                .with_label_values(&[] as &[&str]),
            changes: metrics.counters_from_zero(
                "kinference_kubernetes_leader_changes_total",
                "How often this replica began and ceased to lead.",
                ("to", &["leading", "following"]),
            ),
            errors: Errors::new(
                metrics,
                "kinference_kubernetes_lease_errors_total",
                "Requests for the lease that failed, by verb and kind of failure.",
            ),
        }
    }
}

/// One replica's part in the election.
struct Candidate {
    machine: Machine,
    terms: Terms,
    lease: LeaseApi,
    tell: watch::Sender<Leading>,
    leadership: Leadership,
    gauges: Gauges,
    trouble: Trouble,
    /// The log knows that we wait for one that does not renew.
    overdue: bool,
}

impl Candidate {
    async fn run(mut self, mut asked: mpsc::Receiver<oneshot::Sender<()>>) -> Infallible {
        let mut next = self.machine.step(Input::Woke, now());
        let leaving = loop {
            let input = tokio::select! {
                input = self.act(next) => input,
                Some(done) = asked.recv() => break done,
            };
            next = self.step(input);
        };
        let mut next = self.step(Input::Leave);
        self.leadership.written().await;
        while next != Action::Rest {
            let input = self.act(next).await;
            next = self.step(input);
        }
        leaving.send(()).ok();
        pending().await
    }

    fn step(&mut self, input: Input) -> Action {
        let now = now();
        let next = self.machine.step(input, now);
        let leading = self.machine.held(now.at).map_or(Leading::No, Leading::Until);
        let before = self.tell.send_replace(leading);
        if (before == Leading::No) != (leading == Leading::No) {
            let leads = leading != Leading::No;
            self.gauges.leader.set(i64::from(leads));
            self.gauges.changes.with_label_values(&[if leads { "leading" } else { "following" }]).inc();
            tracing::info!(leads, "leadership changed");
        }
        self.tell_of_overdue(now.at);
        next
    }

    fn tell_of_overdue(&mut self, now: Instant) {
        let overdue = self.machine.overdue(now);
        if let Some((holder, left)) = overdue
            && !self.overdue
        {
            let secs = left.as_secs();
            tracing::warn!(
                holder,
                secs,
                "the holder of the lease does not renew it, but has taken it for long"
            );
        }
        self.overdue = overdue.is_some();
    }

    async fn act(&mut self, action: Action) -> Input {
        let sent = Instant::now();
        let held = self.machine.held(sent);
        let limit = sent + self.terms.patience();
        let limit = held.map_or(limit, |end| end.min(limit));
        match action {
            Action::Rest => pending().await,
            Action::Wait(until) => {
                // A lease that ends meanwhile is told of when it does.
                sleep_until(held.map_or(until, |end| end.min(until))).await;
                Input::Woke
            }
            Action::Read => {
                let came = timeout_at(limit, self.lease.read()).await;
                let came = came.unwrap_or_else(|_| Err(self.lease.late(Verb::Get)));
                Input::Read(self.note(came))
            }
            Action::Write { record, over } => {
                let verb = if over.is_some() { Verb::Update } else { Verb::Create };
                let came = timeout_at(limit, self.lease.write(&record, over)).await;
                let came = came.unwrap_or_else(|_| Err(self.lease.late(verb)));
                Input::Wrote { sent, came: self.note(came).unwrap_or(Written::Failed) }
            }
        }
    }

    fn note<T>(&mut self, came: Result<T, ApiError>) -> Option<T> {
        self.trouble.note(came.as_ref().err());
        came.ok()
    }
}

fn now() -> Now {
    Now { at: Instant::now(), wall: Timestamp::now() }
}
