//! KV-cache events: decoding, the sequence machine, subscriptions, replay.
