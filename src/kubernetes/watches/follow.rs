//! The loop of one watch: list, follow the changes, begin again where that broke off.
//!
//! Invariant: the version that is followed from is never ahead of what the store has taken in, nor for long of the API
//! server: one that was restored from a backup sends nothing until it is there again, and does not say so.

use std::{convert::Infallible, time::Duration};

use futures::{FutureExt, Stream, StreamExt};
use kube::{
    Api, Client, Error,
    api::{ListParams, Request, WatchParams},
    core::WatchEvent,
};
use serde::Deserialize;
use serde_json::Value;
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout, timeout_at},
};

use super::{
    Pace, Selector, Watchable,
    instruments::Restart,
    report::Slot,
    store::{Store, Unreadable, older, version},
    watched::Shelf,
};
use crate::kubernetes::{
    backoff::Backoff,
    failure::{ApiError, Failure, Verb},
};

/// Objects in one page of a list.
const PAGE: u32 = 500;
/// Changes taken in before readers are told.
const BATCH: usize = 512;
/// A watch that ends sooner than this has not been one.
const BRIEF: Duration = Duration::from_secs(1);

/// So many of the longest waits pass before what is not allowed, and not needed, is asked for again.
const PATIENT: u32 = 6;

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Next {
    /// List, in pages or all at once.
    List { paged: bool },
    /// See whether the API server has got as far as this version.
    Check { version: String },
    /// Follow what came after this version.
    Watch { version: String },
}

impl Next {
    /// After a failure. Only an answer that says so, or none that can be read, makes a version worthless: through all else
    /// we resume where we were.
    fn after(self, failure: &Failure) -> Self {
        match (self, failure) {
            // A list so long that its pages expire under way is asked for whole.
            (Self::List { .. }, Failure::Expired) => Self::List { paged: false },
            (next @ Self::List { .. }, _) => next,
            (_, Failure::Expired | Failure::NotServed | Failure::Invalid(_) | Failure::Unreadable(_)) => {
                Self::List { paged: true }
            }
            // It may be another API server, or another database, that answers next.
            (Self::Watch { version } | Self::Check { version }, _) => Self::Check { version },
        }
    }
}

/// A page of a list.
#[derive(Deserialize)]
struct Page {
    metadata: PageMeta,
    #[serde(default)]
    items: Option<Vec<Value>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PageMeta {
    resource_version: String,
    r#continue: String,
}

/// One watch.
pub(super) struct Follow<K> {
    client: Client,
    request: Request,
    selector: Selector,
    pace: Pace,
    store: Store<K>,
    publish: watch::Sender<Shelf<K>>,
    slot: Slot,
    backoff: Backoff,
    /// The last version that was followed from.
    reached: String,
    /// When the API server was last known to have got there.
    checked: Instant,
}

impl<K: Watchable> Follow<K> {
    pub(super) fn new(
        (api, selector): (Api<K>, Selector),
        pace: Pace,
        (publish, slot, backoff): (watch::Sender<Shelf<K>>, Slot, Backoff),
    ) -> Self {
        let request = Request::new(api.resource_url());
        let store = Store::default();
        let (client, reached, checked) = (api.into_client(), String::new(), Instant::now());
        Self { client, request, selector, pace, store, publish, slot, backoff, reached, checked }
    }

    pub(super) async fn run(mut self) -> Infallible {
        let mut next = Next::List { paged: true };
        loop {
            next = match self.act(&mut next).await {
                Ok(then) => then,
                Err(error) => {
                    self.slot.failed(&error);
                    self.note(&error);
                    sleep(self.after(&error.failure)).await;
                    next.after(&error.failure)
                }
            };
        }
    }

    async fn act(&mut self, next: &mut Next) -> Result<Next, ApiError> {
        Ok(match next {
            Next::List { paged } => Next::Watch { version: self.list(*paged).await? },
            Next::Check { version } => {
                self.check(version).await?;
                Next::Watch { version: std::mem::take(version) }
            }
            Next::Watch { version } => {
                let as_asked = self.watch(version).await?;
                let version = std::mem::take(version);
                match as_asked && self.checked.elapsed() < self.pace.check {
                    true => Next::Watch { version },
                    false => Next::Check { version },
                }
            }
        })
    }

    /// Whether the API server has got as far as a version: else that is of another history.
    async fn check(&mut self, version: &str) -> Result<(), ApiError> {
        let page = self.page(Some(1), None).await?;
        if older(&page.metadata.resource_version, version) {
            return Err(self.error(Verb::List, Failure::Expired));
        }
        self.checked = Instant::now();
        Ok(())
    }

    /// How long to wait.
    fn after(&mut self, failure: &Failure) -> Duration {
        if self.slot.is_wanted(failure) {
            return self.pace.retry.most * PATIENT;
        }
        let expired = *failure == Failure::Expired;
        self.slot.instruments.restarted(if expired { Restart::Expired } else { Restart::Failed });
        self.backoff.pause()
    }

    /// Takes in all there are; their version.
    async fn list(&mut self, paged: bool) -> Result<String, ApiError> {
        let (mut all, mut from) = (Vec::new(), None);
        let version = loop {
            let page = self.page(paged.then_some(PAGE), from).await?;
            all.extend(page.items.unwrap_or_default());
            match page.metadata {
                meta if meta.r#continue.is_empty() => break meta.resource_version,
                meta => from = Some(meta.r#continue),
            }
        };
        if older(&version, &self.reached) {
            self.store.doubt();
        }
        (self.reached, self.checked) = (version.clone(), Instant::now());
        let (changed, unreadable) = self.store.replace(all);
        unreadable.iter().for_each(|object| self.complain(object));
        self.publish(changed);
        self.slot.worked();
        Ok(version)
    }

    async fn page(&self, limit: Option<u32>, from: Option<String>) -> Result<Page, ApiError> {
        let params = ListParams {
            label_selector: self.selector.labels.clone(),
            field_selector: self.selector.fields.clone(),
            limit,
            continue_token: from,
            ..ListParams::default()
        };
        let ask = async {
            let request = self.request.list(&params).map_err(Error::BuildRequest)?;
            // Not `Client::request`: it logs all of an answer that it can't read.
            let text = self.client.request_text(request).await?;
            serde_json::from_str(&text).map_err(Error::SerdeError)
        };
        self.in_time(Verb::List, ask).await
    }

    /// Takes in changes after `version`, and moves that along, until the API server ends the watch. Whether it did when it
    /// was asked to.
    async fn watch(&mut self, version: &mut String) -> Result<bool, ApiError> {
        let opened = Instant::now();
        let (changes, mut deadline) = self.open(version).await?;
        tokio::pin!(changes);
        self.slot.worked();
        loop {
            let Ok(change) = timeout_at(deadline, changes.next()).await else {
                return Err(self.error(Verb::Watch, Failure::TimedOut));
            };
            let Some(change) = change else { break };
            let mut changed = self.take_in(change, version)?;
            for _ in 1..BATCH {
                let Some(Some(change)) = changes.next().now_or_never() else { break };
                match self.take_in(change, version) {
                    Ok(more) => changed |= more,
                    Err(error) => {
                        self.publish(changed);
                        return Err(error);
                    }
                }
            }
            self.publish(changed);
            self.backoff.reset();
            deadline = deadline.max(Instant::now() + self.pace.answer);
        }
        self.slot.instruments.restarted(Restart::Ended);
        if opened.elapsed() < BRIEF.min(self.pace.watch / 2) {
            sleep(self.backoff.pause()).await;
        } else {
            self.backoff.reset();
        }
        Ok(opened.elapsed() >= self.pace.watch)
    }

    /// Changes, and when the API server should have ended them.
    async fn open(
        &mut self,
        version: &str,
    ) -> Result<(impl Stream<Item = Result<WatchEvent<Value>, Error>> + use<K>, Instant), ApiError> {
        let seconds = self.pace.watch.as_secs().max(1);
        let params = WatchParams {
            label_selector: self.selector.labels.clone(),
            field_selector: self.selector.fields.clone(),
            timeout: u32::try_from(seconds).ok(),
            bookmarks: true,
            send_initial_events: false,
        };
        let ask = async {
            let request = self.request.watch(&params, version).map_err(Error::BuildRequest)?;
            self.client.request_events(request).await
        };
        let changes = self.in_time(Verb::Watch, ask).await?;
        let deadline = Instant::now() + Duration::from_secs(seconds) + self.pace.answer;
        Ok((changes, deadline))
    }

    /// Whether a change changes anything.
    fn take_in(
        &mut self,
        change: Result<WatchEvent<Value>, Error>,
        at: &mut String,
    ) -> Result<bool, ApiError> {
        let change = change.map_err(|error| self.error(Verb::Watch, Failure::of(error, true)))?;
        let (object, gone) = match change {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
            WatchEvent::Deleted(object) => (object, true),
            WatchEvent::Bookmark(mark) => {
                self.move_to(&mark.metadata.resource_version, at)?;
                return Ok(false);
            }
            WatchEvent::Error(status) => {
                return Err(self.error(Verb::Watch, Failure::of_status(&status, true)));
            }
        };
        if let Some(version) = version(&object) {
            self.move_to(version, at)?;
        }
        if gone {
            return Ok(self.store.remove(&object));
        }
        Ok(self.store.put(object).unwrap_or_else(|object| {
            self.complain(&object);
            false
        }))
    }

    /// Versions only ever grow, but for an API server whose history is another than it was.
    fn move_to(&mut self, version: &str, at: &mut String) -> Result<(), ApiError> {
        if older(version, at) {
            return Err(self.error(Verb::Watch, Failure::Expired));
        }
        version.clone_into(at);
        at.clone_into(&mut self.reached);
        Ok(())
    }

    /// Tells nobody: what there is to see is still nothing.
    fn note(&self, error: &ApiError) {
        self.publish.send_if_modified(|shelf| {
            if !shelf.synced {
                shelf.why_not = Some(error.to_string().into());
            }
            false
        });
    }

    fn publish(&self, changed: bool) {
        self.publish.send_if_modified(|shelf| {
            let news = changed || !shelf.synced;
            if news {
                *shelf = Shelf { synced: true, all: self.store.all().into(), why_not: None };
            }
            news
        });
    }

    async fn in_time<T>(
        &self,
        verb: Verb,
        ask: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, ApiError> {
        match timeout(self.pace.answer, ask).await {
            Ok(answer) => answer.map_err(|error| self.error(verb, Failure::of(error, true))),
            Err(_) => Err(self.error(verb, Failure::TimedOut)),
        }
    }

    fn error(&self, verb: Verb, failure: Failure) -> ApiError {
        ApiError { verb, target: self.slot.target.clone(), failure }
    }

    fn complain(&self, object: &Unreadable) {
        let Unreadable { namespace, name, why } = object;
        self.slot.instruments.errors.count(&self.error(Verb::Watch, Failure::Unreadable(why.clone())));
        tracing::warn!(resource = %self.slot.target, namespace, name, why, "an object can't be read: it counts as what it last was");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_worthless_version_makes_a_new_list() {
        let watch = || Next::Watch { version: "7".into() };
        let check = || Next::Check { version: "7".into() };
        assert_eq!(watch().after(&Failure::TimedOut), check());
        assert_eq!(watch().after(&Failure::Forbidden("403".into())), check());
        assert_eq!(check().after(&Failure::TimedOut), check());
        assert_eq!(check().after(&Failure::Expired), Next::List { paged: true });
        assert_eq!(watch().after(&Failure::Expired), Next::List { paged: true });
        assert_eq!(watch().after(&Failure::NotServed), Next::List { paged: true });
        assert_eq!(Next::List { paged: true }.after(&Failure::Expired), Next::List { paged: false });
        assert_eq!(Next::List { paged: true }.after(&Failure::TimedOut), Next::List { paged: true });
    }
}
