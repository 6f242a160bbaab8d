//! What holds between keys: names are unique, references resolve, limits fit each other.
//!
//! Invariant: a relation is judged only when the keys in it are sound, so that one mistake is one error.

use std::collections::HashMap;

use toml::Value;

use super::{
    Config, WorkerEntry,
    report::{Problem, Report, shown_key},
};

/// Everything that holds between keys of the configuration.
pub(super) fn config(config: &Config, report: &mut Report) {
    listeners(config, report);
    config.tls.check(report);
    limits(config, report);
    predictors(config, report);
    references(config, report);
    unique(("profile", config.profiles.iter().map(|p| p.name.as_str())), report);
    unique(("workerset", config.workersets.iter().map(|s| s.name.as_str())), report);
}

fn listeners(config: &Config, report: &mut Report) {
    let clash = config.admin_listen == Some(config.listen) && config.listen.port() != 0;
    if clash && report.clean(|path| path == "listen") {
        report.reject(
            "admin_listen",
            &Value::String(config.listen.to_string()),
            "an address other than `listen`",
        );
    }
}

fn limits(config: &Config, report: &mut Report) {
    let (request, total) = (config.body.request_bytes / 1024, config.body.total_bytes / 1024);
    if request > total && report.clean(|path| path.starts_with("body_max_")) {
        let accepted = format!("at most `body_max_total_kb`, which is {total}");
        report.reject("body_max_request_kb", &Value::Integer(request as i64), accepted);
    }
    let lease = &config.leader_election;
    let sound = report.clean(|path| path.starts_with("leader_election"));
    if lease.renew_grace >= lease.lease_duration && sound {
        let accepted =
            format!("less than `lease_duration_secs`, which is {}", lease.lease_duration.as_secs());
        let value = Value::Integer(lease.renew_grace.as_secs() as i64);
        report.reject("leader_election.renew_grace_secs", &value, accepted);
    }
}

fn predictors(config: &Config, report: &mut Report) {
    for (index, profile) in config.profiles.iter().enumerate() {
        let (peak, falloff) =
            (profile.predictor.q_running_penalty_peak_qr, profile.predictor.q_running_penalty_falloff_qr);
        let prefix = format!("profile[{index}].predictor.q_running_penalty_");
        if falloff < peak && report.clean(|path| path.starts_with(&prefix)) {
            let accepted = format!("at least `q_running_penalty_peak_qr`, which is {peak}");
            report.reject(format!("{prefix}falloff_qr"), &Value::Integer(falloff.into()), accepted);
        }
    }
}

fn references(config: &Config, report: &mut Report) {
    let of_profiles =
        |path: &str| path == "profile" || (path.starts_with("profile[") && !path.contains("]."));
    let of_profile_names = |path: &str| path.starts_with("profile[") && path.ends_with("].name");
    let profiles_known = report.clean(|path| of_profiles(path) || of_profile_names(path));
    let defined: Vec<_> = config.profiles.iter().map(|profile| shown_key(&profile.name)).collect();
    for (index, set) in config.workersets.iter().enumerate().filter(|_| profiles_known) {
        let path = format!("workerset[{index}].profile");
        let known = config.profiles.iter().any(|profile| profile.name == set.profile);
        if !known && report.clean(|wrong| wrong == path) {
            let accepted = format!("the name of a `[[profile]]`; defined: {}", or_none(&defined));
            report.reject(path, &Value::String(set.profile.clone()), accepted);
        }
    }
    let kubernetes_known = report.clean(|path| path == "kubernetes" || path == "kubernetes.enabled");
    let sets_known = report.clean(|path| path == "workerset" || path.starts_with("workerset["));
    let policy_known = report.clean(|path| path == "policy" || path.starts_with("policy."));
    // Pools may have providers alone.
    let pools = config.policy.enabled && !config.policy.files.is_empty();
    let nowhere = !config.kubernetes.enabled && config.workersets.is_empty() && !pools;
    if nowhere && kubernetes_known && sets_known && policy_known {
        let accepted =
            "at least one `[[workerset]]`, `[kubernetes]` with `enabled = true`, or `[policy]` with `files`"
                .into();
        report.push("workerset", Problem::Missing { accepted });
    }
    if config.kubernetes.enabled && config.profiles.is_empty() && profiles_known {
        let accepted = "at least one `[[profile]]`, since `[kubernetes]` is enabled".into();
        report.push("profile", Problem::Missing { accepted });
    }
}

fn or_none(names: &[String]) -> String {
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

fn unique<'c>((array, names): (&str, impl Iterator<Item = &'c str>), report: &mut Report) {
    let mut seen = HashMap::new();
    for (index, name) in names.enumerate().filter(|(_, name)| !name.is_empty()) {
        let first = *seen.entry(name).or_insert(index);
        if first != index {
            let accepted = format!("unique; `{array}[{first}]` has that name");
            report.reject(format!("{array}[{index}].name"), &Value::String(name.into()), accepted);
        }
    }
}

/// Who has which worker id so far.
#[derive(Default)]
pub(super) struct TakenIds {
    names: HashMap<String, String>,
    numbers: HashMap<u64, String>,
}

impl TakenIds {
    /// Reports ids of `workers` that are taken, and takes the others; `owner` says whose a worker is, by its index.
    pub(super) fn take(
        &mut self,
        workers: &[WorkerEntry],
        owner: impl Fn(usize) -> String,
        report: &mut Report,
    ) {
        for (index, worker) in workers.iter().enumerate() {
            let path = |key| format!("workers[{index}].{key}");
            let (name, number) = (worker.worker_id_str.to_string(), worker.worker_id_num);
            let sound = |key| report.clean(|wrong| wrong == path(key));
            let (name_sound, number_sound) = (sound("worker_id_str"), sound("worker_id_num"));
            let unique = |taken_by: &str| format!("unique across every worker set; taken by {taken_by}");
            if let Some(taken_by) = self.names.get(&name).filter(|_| name_sound) {
                report.reject(path("worker_id_str"), &Value::String(name.clone()), unique(taken_by));
            }
            if let Some(taken_by) = self.numbers.get(&number).filter(|_| number_sound) {
                report.reject(path("worker_id_num"), &Value::Integer(number as i64), unique(taken_by));
            }
            if name_sound {
                self.names.entry(name).or_insert_with(|| owner(index));
            }
            if number_sound {
                self.numbers.entry(number).or_insert_with(|| owner(index));
            }
        }
    }
}
