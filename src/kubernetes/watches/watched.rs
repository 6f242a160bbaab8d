//! What readers of a watch see: the objects as last known.

use std::sync::Arc;

use tokio::sync::watch;

/// One state of a watch's objects.
pub(super) struct Shelf<K> {
    pub(super) synced: bool,
    pub(super) all: Arc<Vec<Arc<K>>>,
    /// Why they have not been listed yet.
    pub(super) why_not: Option<Arc<str>>,
}

impl<K> Default for Shelf<K> {
    fn default() -> Self {
        Self { synced: false, all: Arc::default(), why_not: None }
    }
}

/// The objects of one watch. They are kept through every outage; a new list takes their place all at once.
pub struct Watched<K>(pub(super) watch::Receiver<Shelf<K>>);

impl<K> Clone for Watched<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K> Watched<K> {
    /// As last known, in order of namespace and name.
    pub fn all(&self) -> Arc<Vec<Arc<K>>> {
        self.0.borrow().all.clone()
    }

    /// All of them have been seen at least once.
    pub fn is_synced(&self) -> bool {
        self.0.borrow().synced
    }

    /// What keeps them from being seen, if that has failed and none were ever seen. No change of it is told.
    pub fn why_not(&self) -> Option<Arc<str>> {
        self.0.borrow().why_not.clone()
    }

    /// Waits until they are other than when this returned the last time (at first: than when this was made).
    /// The first list counts, even an empty one. Waits for ever once the watch has ended.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending().await
        }
    }
}
