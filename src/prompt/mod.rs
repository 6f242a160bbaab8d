//! Request bodies: capped buffers, content encodings, parsing per API, and tokenization.
//!
//! Invariant: what is parsed here is only read. The bytes that go to the engine are the bytes that came.
//! A request that this room can't tokenize is no error of the client's: it is routed on load alone.

mod body;
mod chat;
mod declared;
mod encoding;
mod fields;
mod media;
mod rename;
mod request;
mod tokenize;

pub use body::{Body, BodyBudget};
pub use declared::Declared;
pub use encoding::{DecodeError, decoded};
pub use rename::{Splice, ask_usage, joined, name_model, spliced, spliced_len};
pub use request::{ParsedRequest, Prompts, named_model, parse};
pub use tokenize::{LocalModel, TokenizeError, TokenizeTarget, Tokenizers, http_client};
