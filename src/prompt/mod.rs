//! Request bodies: capped buffers, parsing per API, tokenization.
