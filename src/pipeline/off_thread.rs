//! Large bodies are read off the async threads.

use bytes::Bytes;

/// Bodies above this are.
const INLINE: usize = 64 * 1024;

/// Reads a body, a large one off the async threads. `None` when that panicked.
pub(super) async fn off_thread<T: Send + 'static>(
    body: Bytes,
    read: impl FnOnce(&Bytes) -> T + Send + 'static,
) -> Option<T> {
    if body.len() <= INLINE {
        return Some(read(&body));
    }
    let done = tokio::task::spawn_blocking(move || read(&body)).await;
    done.inspect_err(|error| tracing::error!(%error, "reading a body panicked")).ok()
}
