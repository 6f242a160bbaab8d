//! What keeps a case from meaning what it says: names that nothing has, and nothing expected.

use std::collections::BTreeSet;

use kinference::types::Api;

use super::{
    fleet::Fleet,
    test_file::{Case, Then},
    world::World,
};

/// Each with its field.
pub fn problems(world: &World, fleet: &Fleet, case: &Case) -> Vec<(String, String)> {
    let mut out = Vec::new();
    let backends = || world.pool.models.iter().flat_map(|model| &model.backends);
    let sets: BTreeSet<_> = backends().filter(|one| one.provider.is_none()).map(|one| &*one.source).collect();
    for (name, worker) in fleet {
        match worker.worker_set.as_deref() {
            None => out.push((name.clone(), "is no worker of `fleet`, and has no `workerSet`".to_owned())),
            Some(set) if !sets.contains(set) => {
                let message = format!(
                    "is of worker set {set:?}, which is not behind the pool; there are: {}",
                    listed(&sets)
                );
                out.push((name.clone(), message));
            }
            Some(_) => {}
        }
    }
    let mut known: BTreeSet<_> = fleet.keys().map(String::as_str).collect();
    known.extend(backends().filter(|one| one.provider.is_some()).map(|one| &*one.source));
    for name in expected(&case.then).into_iter().filter(|name| !known.contains(without_model(name))) {
        out.push((
            "then".to_owned(),
            format!("names {name:?}, which is no worker and no provider; there are: {}", listed(&known)),
        ));
    }
    if let Some(path) =
        case.when.path.as_deref().filter(|path| Api::ALL.iter().all(|api| api.path() != *path))
    {
        let paths: Vec<_> = Api::ALL.iter().map(|api| api.path()).collect();
        out.push(("when.path".to_owned(), format!("is {path:?}, but must be one of {}", paths.join(", "))));
    }
    if case.then.is_empty() {
        out.push((
            "then".to_owned(),
            "expects nothing; accepted: `picks`, `order`, `rejects`, `rule`".to_owned(),
        ));
    }
    out
}

fn expected(then: &Then) -> BTreeSet<&str> {
    let picks = then.picks.iter().flat_map(|names| names.all());
    picks.chain(then.order.iter().flatten().map(String::as_str)).collect()
}

/// A worker of several models is named with the model.
fn without_model(name: &str) -> &str {
    name.split_once('/').map_or(name, |(worker, _)| worker)
}

fn listed(names: &BTreeSet<&str>) -> String {
    let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
