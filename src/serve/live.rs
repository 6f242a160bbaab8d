//! A value that is looked at again and again and told to any number of streams, which hold no queue of it.
//!
//! Owner: whoever calls [`Live::run`]. Invariant: versions grow by one with every value that differs from the one before,
//! and a value is never told after one that was looked at later.

use std::{convert::Infallible, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{sync::watch, time::timeout};

/// How old a value may get while somebody listens.
const POLL: Duration = Duration::from_millis(200);

/// A value with its version.
#[derive(Debug)]
pub struct Told<T> {
    /// Counts the values.
    pub version: u64,
    /// The value.
    pub value: Arc<T>,
}

impl<T> Clone for Told<T> {
    fn clone(&self) -> Self {
        Self { version: self.version, value: self.value.clone() }
    }
}

/// The value, and how to look at it.
pub struct Live<T> {
    look: Box<dyn Fn() -> T + Send + Sync>,
    turn: Mutex<()>,
    told: watch::Sender<Told<T>>,
}

impl<T: Default + PartialEq + Send + Sync + 'static> Live<T> {
    /// What `look` sees; it is called for one caller at a time.
    pub fn new(look: impl Fn() -> T + Send + Sync + 'static) -> Arc<Self> {
        let told = watch::channel(Told { version: 0, value: Arc::default() }).0;
        Arc::new(Self { look: Box::new(look), turn: Mutex::default(), told })
    }

    /// The value as it is now, and from now on.
    pub fn subscribe(&self) -> watch::Receiver<Told<T>> {
        let receiver = self.told.subscribe();
        self.refresh();
        receiver
    }

    /// Keeps the value fresh for those who listen: at each of `changes`, and every 200 ms for what does not tell.
    pub async fn run(&self, mut changes: watch::Receiver<u64>) -> Infallible {
        loop {
            if self.told.receiver_count() > 0 {
                self.refresh();
            }
            if let Ok(Err(_gone)) = timeout(POLL, changes.changed()).await {
                tokio::time::sleep(POLL).await;
            }
        }
    }

    fn refresh(&self) {
        let _turn = self.turn.lock();
        let value = (self.look)();
        self.told.send_if_modified(|told| {
            let differs = *told.value != value;
            if differs {
                *told = Told { version: told.version + 1, value: Arc::new(value) };
            }
            differs
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_is_looked_at_while_somebody_listens() {
        let looks = Arc::new(AtomicU32::new(0));
        let counted = looks.clone();
        let live = Live::new(move || counted.fetch_add(1, Ordering::Relaxed) / 3);
        let (_registry, changes) = watch::channel(0);
        let passed = timeout(Duration::from_secs(5), live.run(changes.clone())).await;
        assert!(passed.is_err() && looks.load(Ordering::Relaxed) == 0, "nobody listens");
        let mut listener = live.subscribe();
        listener.mark_unchanged();
        let seen = tokio::select! {
            _ = live.run(changes) => unreachable!(),
            changed = listener.changed() => { changed.unwrap(); listener.borrow().clone() }
        };
        assert_eq!((seen.version, *seen.value), (1, 1));
        assert_eq!(looks.load(Ordering::Relaxed), 4);
    }
}
