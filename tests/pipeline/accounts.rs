//! What is counted by whose request it was: tenants told apart as configured, in bounded numbers, whatever policies do.

use std::{collections::BTreeMap, time::Duration};

use kinference::{
    config::{Config, TenantLabels},
    pipeline::Incoming,
    types::{Api, Outcome, Usage},
};
use serde_json::json;

use crate::{
    pools,
    site::{MODEL, Site, call, other, profile, prompt, worker, worker_set},
};

const USAGE: Usage = Usage { prompt_tokens: 64, completion_tokens: 11, cached_tokens: Some(48) };

fn site(labels: TenantLabels) -> Site {
    let p = profile("p", |_| {});
    let site =
        Site::new(std::slice::from_ref(&p), |config: &mut Config| config.metrics.tenant_labels = labels);
    let set = worker_set("s", &p);
    site.registry.replace_set("s", vec![worker(&set, 1), worker(&set, 2)]).unwrap();
    site
}

fn of(tenant: &str) -> Incoming {
    Incoming { tenant: Some(tenant.into()), ..prompt(0..64) }
}

impl Site {
    /// The values of a family's series by the labels that are named, summed over the others.
    fn sums(&self, family: &str, by: &[&str]) -> Vec<(Vec<String>, f64)> {
        let mut sums = BTreeMap::new();
        for line in self.metrics.render().lines() {
            let Some((labels, value)) = line.strip_prefix(family).and_then(|rest| rest.rsplit_once(' '))
            else {
                continue;
            };
            let value: f64 = value.parse().unwrap();
            let Some(labels) = labels.strip_prefix('{').filter(|_| value != 0.0) else { continue };
            let label = |name: &&str| {
                let pairs = labels.trim_end_matches('}').split("\",");
                let own = pairs.filter_map(|pair| pair.split_once("=\"")).find(|(key, _)| key == name);
                own.unwrap().1.trim_end_matches('"').to_owned()
            };
            *sums.entry(by.iter().map(label).collect::<Vec<_>>()).or_default() += value;
        }
        sums.into_iter().collect()
    }
}

fn is(found: Vec<(Vec<String>, f64)>, want: &[(&[&str], f64)]) {
    let want: Vec<_> =
        want.iter().map(|(labels, n)| (labels.iter().map(ToString::to_string).collect(), *n)).collect();
    let want: Vec<(Vec<String>, f64)> = want;
    assert_eq!(found, want);
}

#[tokio::test(start_paused = true)]
async fn only_tenants_that_are_named_have_a_label() {
    for (labels, want) in [
        (TenantLabels::None, &[(&["_none"][..], 1.0), (&["_other"], 3.0)][..]),
        (TenantLabels::Only(vec!["b".into()]), &[(&["_none"], 1.0), (&["_other"], 2.0), (&["b"], 1.0)]),
        (TenantLabels::All, &[(&["_none"], 1.0), (&["a"], 2.0), (&["b"], 1.0)]),
    ] {
        let site = site(labels);
        for request in [of("a"), of("b"), of("a"), prompt(0..64)] {
            site.place(request).await.finish(Outcome::Completed, None);
        }
        is(site.sums("kinference_requests_total", &["tenant"]), want);
    }
}

#[tokio::test(start_paused = true)]
async fn a_header_that_is_never_the_same_grows_nothing() {
    let site = site(TenantLabels::All);
    let mut lines = Vec::new();
    for n in 0..1500 {
        let mut placement = site.place(of(&format!("tenant-{n}"))).await;
        placement.first_token();
        placement.finish(Outcome::Completed, Some(USAGE));
        let wrong = Incoming { tenant: Some(format!("other-{n}").into()), ..call(Api::Completions, "{") };
        site.refused(wrong).await;
        if [999, 1499].contains(&n) {
            lines.push(site.metrics.render().lines().count());
        }
    }
    let tenants = site.sums("kinference_requests_total", &["tenant"]);
    assert_eq!(tenants.len(), 501, "every second place was taken by one that was turned away");
    assert_eq!(tenants[0], (vec!["_other".to_owned()], 1000.0));
    assert_eq!(site.sums("kinference_rejections_total", &["tenant"]).len(), 501);
    assert_eq!(lines[0], lines[1]);
}

#[tokio::test(start_paused = true)]
async fn a_model_that_nobody_serves_is_no_label() {
    let site = site(TenantLabels::None);
    let body = |model: &str| json!({"model": model, "prompt": [1, 2, 3]}).to_string();
    for n in 0..20 {
        site.refused(call(Api::Completions, body(&format!("made-up-{n}")))).await;
    }
    site.place(call(Api::Completions, body(MODEL))).await.finish(Outcome::Completed, None);
    assert!(!site.metrics.render().contains("made-up"));
    is(site.sums("kinference_decisions_total", &["model", "basis"]), &[(&[MODEL, "prompt"], 1.0)]);
}

#[tokio::test(start_paused = true)]
async fn times_and_tokens_go_to_the_tenants_account() {
    let site = site(TenantLabels::All);
    let mut placement = site.place(of("a")).await;
    tokio::time::advance(Duration::from_millis(400)).await;
    placement.first_token();
    tokio::time::advance(Duration::from_secs(2)).await;
    placement.finish(Outcome::Completed, Some(USAGE));
    let own = |family: &str| site.sums(family, &["tenant", "model", "workerset"]);
    let account: &[&str] = &["a", MODEL, "s"];
    is(own("kinference_ttft_seconds_sum"), &[(account, 0.4)]);
    is(own("kinference_inter_token_seconds_sum"), &[(account, 0.2)]);
    is(own("kinference_e2e_seconds_sum"), &[(account, 2.4)]);
    is(
        site.sums("kinference_tokens_total", &["kind"]),
        &[(&["cached_prompt"], 48.0), (&["output"], 11.0), (&["uncached_prompt"], 16.0)],
    );
    // A whole answer has no first token, and one that broke off no length.
    site.place(of("a")).await.finish(Outcome::Completed, Some(USAGE));
    site.place(of("a")).await.finish(Outcome::Failed, None);
    is(own("kinference_inter_token_seconds_count"), &[(account, 1.0)]);
    is(own("kinference_e2e_seconds_count"), &[(account, 2.0)]);
}

#[tokio::test(start_paused = true)]
async fn a_prediction_is_held_against_whom_it_is_of() {
    let site = site(TenantLabels::None);
    let observed = async |edit: fn(Incoming) -> Incoming, elsewhere: bool| {
        let subset = Some(vec!["10.0.0.1:8000".into()]);
        let mut placement = site.place(edit(Incoming { subset, ..prompt(0..64) })).await;
        tokio::time::advance(Duration::from_secs(1)).await;
        if elsewhere {
            placement.served_by("10.0.0.2:8000");
        }
        placement.first_token();
    };
    observed(|asked| asked, false).await;
    observed(|asked| asked, true).await;
    observed(|_| other(), false).await;
    assert_eq!(site.sums("kinference_ttft_seconds_count", &[])[0].1, 3.0);
    is(site.sums("kinference_ttft_error_seconds_count", &["model", "sign"]), &[(&[MODEL, "under"], 1.0)]);
    is(site.sums("kinference_ttft_predicted_seconds_count", &["workerset"]), &[(&["s"], 1.0)]);
}

#[tokio::test(start_paused = true)]
async fn counts_go_on_whatever_policies_are_in_force() {
    let site = pools::site(|_| {});
    let mut wanted: Vec<(&[&str], f64)> = Vec::new();
    for (behind, model, account) in [
        ("big", "qwen-32b", &["standard", "big"][..]),
        ("small", "qwen-4b", &["standard", "small"]),
        ("big", "qwen-32b", &["standard", "big"]),
    ] {
        let backends = json!([{"workerSet": {"name": behind, "model": model}}]);
        let models = json!([{"name": "standard", "backends": backends}]);
        site.enforce(&[("InferencePool", "chat", json!({"models": models}))]);
        site.place(pools::asks("standard")).await.finish(Outcome::Completed, Some(USAGE));
        match wanted.iter_mut().find(|(known, _)| *known == account) {
            Some((_, count)) => *count += 1.0,
            None => wanted.push((account, 1.0)),
        }
        is(site.sums("kinference_requests_total", &["model", "workerset"]), &wanted);
    }
    site.pipeline.policies().store(None);
    is(site.sums("kinference_requests_total", &["model", "workerset"]), &wanted);
    is(site.sums("kinference_tokens_total", &["kind"])[1..2].to_vec(), &[(&["output"], 33.0)]);
}
