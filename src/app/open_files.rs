//! The limit of open files: each worker takes several connections, and what asks for one beyond the limit fails, the
//! probes of the process itself included.

/// Less than this is too little for a fleet of a few hundred workers.
const ENOUGH: u64 = 8192;

/// Raises the limit as far as it may be raised.
pub(super) fn raise() {
    match rlimit::increase_nofile_limit(u64::MAX) {
        Ok(limit) if limit < ENOUGH => {
            tracing::warn!(limit, "few files may be open at once: a large fleet needs more");
        }
        Ok(limit) => tracing::debug!(limit, "open files"),
        Err(error) => tracing::warn!(%error, "the limit of open files could not be raised"),
    }
}
