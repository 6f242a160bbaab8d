//! The way from decisions to whoever writes them down elsewhere: bounded, and never waited for.
//!
//! Invariant: what waits holds at most [`ROOM`] candidates together, however many a decision has.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    time::timeout,
};

/// Candidates that decisions on their way have together: some hundred bytes each.
const ROOM: usize = 65_536;

/// The near end. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Queue<T> {
    sender: mpsc::UnboundedSender<Message<T>>,
    room: Arc<Semaphore>,
}

/// The far end.
pub(super) type Waiting<T> = mpsc::UnboundedReceiver<Message<T>>;

/// What comes out at the far end.
#[derive(Debug)]
pub(super) enum Message<T> {
    /// Something to be written; its place in the queue is free when this is dropped.
    Item(T, OwnedSemaphorePermit),
    /// Everything before this is to be written now, and then told.
    Flush(oneshot::Sender<()>),
}

/// An empty queue.
pub(super) fn queue<T>() -> (Queue<T>, Waiting<T>) {
    let (sender, waiting) = mpsc::unbounded_channel();
    (Queue { sender, room: Arc::new(Semaphore::new(ROOM)) }, waiting)
}

impl<T> Queue<T> {
    /// Puts something in that has so many candidates; `false`: there is no room, or nobody at the far end.
    pub fn put(&self, item: T, candidates: usize) -> bool {
        let size = u32::try_from(candidates.saturating_add(1).min(ROOM)).unwrap_or(u32::MAX);
        let Ok(permit) = self.room.clone().try_acquire_many_owned(size) else { return false };
        self.sender.send(Message::Item(item, permit)).is_ok()
    }

    /// Waits until everything that is in it now is written, but no longer than `most`; whether it is.
    pub async fn flush(&self, most: Duration) -> bool {
        let (done, is_done) = oneshot::channel();
        self.sender.send(Message::Flush(done)).is_ok() && matches!(timeout(most, is_done).await, Ok(Ok(())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn candidates_take_room_until_they_are_written() {
        let (queue, mut waiting) = queue();
        assert!(queue.put("most", ROOM - 2) && queue.put("rest", 0) && !queue.put("more", 0));
        drop(waiting.recv().await);
        // One that is larger than all of it has to wait for all of it, and gets through.
        assert!(!queue.put("huge", usize::MAX));
        drop(waiting.recv().await);
        assert!(queue.put("huge", usize::MAX));
        drop(waiting);
        assert!(!queue.put("late", 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_flush_waits_for_what_came_before_and_not_for_ever() {
        let (queue, mut waiting) = queue();
        assert!(queue.put("one", 0));
        let write = async {
            let Some(Message::Item("one", _)) = waiting.recv().await else { panic!("the item comes first") };
            let Some(Message::Flush(done)) = waiting.recv().await else { panic!("then the flush") };
            done.send(()).unwrap();
        };
        assert!(tokio::join!(queue.flush(Duration::from_secs(1)), write).0);
        assert!(!queue.flush(Duration::from_secs(1)).await, "nobody reads");
    }
}
