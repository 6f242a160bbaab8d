//! In-flight reservations and scraped load, as one view per worker.
