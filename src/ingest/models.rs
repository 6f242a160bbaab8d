//! Polls of `/v1/models`.
