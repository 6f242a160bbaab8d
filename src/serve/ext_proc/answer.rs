//! Watches a response's body go by: its first byte, its usage, the id of a stored response. Changes nothing.
//!
//! Invariant: what is found does not depend on where the body was cut into chunks.

use super::{
    inbound::{Media, ResponseHead},
    sse::SseReader,
    tail::Tail,
    usage::Found,
};
use crate::types::Usage;

enum Format {
    /// Compressed, or of a type that tells no usage.
    Opaque,
    Json(Tail),
    Sse(SseReader),
}

/// A response's body as seen so far.
pub struct Answer {
    streamed: bool,
    begun: bool,
    stored: bool,
    told: bool,
    format: Format,
    found: Found,
}

/// What a chunk brought.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The first byte of a streamed answer, or of a stored one the first event that is more than an announcement.
    pub first_token: bool,
    /// The id of a response that the engine stores.
    pub stored: Option<String>,
}

impl Answer {
    /// A body with that head; `stored`: its id names it in later requests.
    pub fn new(head: &ResponseHead, stored: bool) -> Self {
        let media = head.media();
        let streamed = media == Media::Events;
        let format = match media {
            _ if head.encoded => Format::Opaque,
            Media::Events => Format::Sse(SseReader::default()),
            Media::Json => Format::Json(Tail::default()),
            Media::Other => Format::Opaque,
        };
        let stored = stored && head.status < 400;
        Self { streamed, begun: false, stored, told: false, format, found: Found::default() }
    }

    /// Sees a piece of the body.
    pub fn push(&mut self, bytes: &[u8]) -> Seen {
        let before = self.begun;
        // A stored response is announced before any of it is computed: there, events tell.
        let announced = self.stored && matches!(self.format, Format::Sse(_));
        self.begun |= !announced && !bytes.is_empty();
        match &mut self.format {
            Format::Opaque => {}
            Format::Json(body) => body.push(bytes),
            Format::Sse(reader) => {
                let wants_id = self.stored && !self.told;
                let (found, begun) = (&mut self.found, &mut self.begun);
                reader.push(bytes, &mut |data| {
                    *begun = *begun || !is_announcement(data);
                    event(data, wants_id, found);
                });
            }
        }
        let first_token = self.streamed && self.begun && !before;
        Seen { first_token, stored: self.tell_stored() }
    }

    /// The body is over: what it used, and a stored id not told before.
    pub fn finish(&mut self) -> (Seen, Option<Usage>) {
        match &mut self.format {
            Format::Opaque => {}
            Format::Json(body) => self.found.read(body),
            Format::Sse(reader) => {
                let wants_id = self.stored && !self.told;
                let found = &mut self.found;
                reader.finish(&mut |data| event(data, wants_id, found));
            }
        }
        let stored = self.tell_stored();
        (Seen { first_token: false, stored }, self.found.usage())
    }

    fn tell_stored(&mut self) -> Option<String> {
        let id = self.found.id().filter(|_| self.stored && !self.told)?.to_owned();
        self.told = true;
        Some(id)
    }
}

/// An event of `/v1/responses` that engines send before they compute anything.
fn is_announcement(data: &Tail) -> bool {
    let text = String::from_utf8_lossy(data.bytes());
    ["\"response.created\"", "\"response.in_progress\"", "\"response.queued\""]
        .iter()
        .any(|kind| text.contains(kind))
}

/// Most events are one token each and say nothing for us: those are not parsed.
fn event(data: &Tail, wants_id: bool, found: &mut Found) {
    let text = String::from_utf8_lossy(data.bytes());
    if text.contains("\"usage\"") || (wants_id && text.contains("\"response\"")) {
        found.read(data);
    }
}

#[cfg(test)]
mod tests;
