//! Server-sent events out of bytes that are cut anywhere: only their `data`, one event at a time.
//!
//! Invariant: what is reported does not depend on where the bytes were cut. An event is held in bounded memory.

use super::tail::Tail;

const FIELD: &[u8] = b"data:";

/// Where in a line the reader is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    /// Matching the field name, that many bytes so far.
    #[default]
    LineStart,
    /// Inside the field name.
    Name(usize),
    /// Right after `data:`; one space here is not part of the value.
    ValueStart,
    /// In the value.
    Value,
    /// In a line of another field, or a comment.
    Skip,
}

/// Reads events piece by piece.
#[derive(Debug, Default)]
pub struct SseReader {
    at: At,
    /// The line before ended with CR: an LF now belongs to it.
    after_cr: bool,
    /// The event so far, once it has a data line.
    data: Option<Tail>,
}

impl SseReader {
    /// Takes the next bytes and reports each event that they complete.
    pub fn push(&mut self, mut bytes: &[u8], event: &mut impl FnMut(&Tail)) {
        while let Some(&byte) = bytes.first() {
            if std::mem::take(&mut self.after_cr) && byte == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            if byte == b'\n' || byte == b'\r' {
                self.after_cr = byte == b'\r';
                self.end_line(event);
                bytes = &bytes[1..];
                continue;
            }
            bytes = &bytes[self.inside(bytes)..];
        }
    }

    /// The stream ended: an event without its blank line counts too.
    pub fn finish(&mut self, event: &mut impl FnMut(&Tail)) {
        self.at = At::LineStart;
        self.end_line(event);
    }

    /// Takes bytes of one line, the first of which is no line end; answers how many.
    fn inside(&mut self, bytes: &[u8]) -> usize {
        let matched = match self.at {
            At::LineStart => 0,
            At::Name(n) => n,
            At::ValueStart if bytes[0] == b' ' => {
                self.at = At::Value;
                return 1;
            }
            At::ValueStart | At::Value | At::Skip => return self.run(bytes),
        };
        self.at = match FIELD.get(matched) {
            Some(want) if *want == bytes[0] && matched + 1 == FIELD.len() => {
                self.open_line();
                At::ValueStart
            }
            Some(want) if *want == bytes[0] => At::Name(matched + 1),
            _ => At::Skip,
        };
        1
    }

    /// Takes the rest of the line, as far as it is here.
    fn run(&mut self, bytes: &[u8]) -> usize {
        let length = bytes.iter().position(|b| matches!(b, b'\n' | b'\r')).unwrap_or(bytes.len());
        if self.at != At::Skip {
            self.at = At::Value;
            if let Some(data) = &mut self.data {
                data.push(&bytes[..length]);
            }
        }
        length
    }

    /// Several data lines make one value, joined by line feeds.
    fn open_line(&mut self) {
        match &mut self.data {
            Some(data) => data.push(b"\n"),
            None => self.data = Some(Tail::default()),
        }
    }

    fn end_line(&mut self, event: &mut impl FnMut(&Tail)) {
        if self.at == At::LineStart
            && let Some(data) = self.data.take()
        {
            event(&data);
        }
        self.at = At::LineStart;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(pieces: &[&[u8]]) -> Vec<String> {
        let mut reader = SseReader::default();
        let mut out = Vec::new();
        let mut take = |data: &Tail| out.push(String::from_utf8_lossy(data.bytes()).into_owned());
        for piece in pieces {
            reader.push(piece, &mut take);
        }
        reader.finish(&mut take);
        out
    }

    #[test]
    fn events_as_the_standard_reads_them() {
        let stream = b": hi\nevent: x\ndata: one\n\ndata:two\ndata:  three\r\n\r\nid: 4\n\ndat: no\ndatax: no\n\rdata: [DONE]";
        assert_eq!(read(&[stream]), ["one", "two\n three", "[DONE]"]);
    }

    proptest! {
        #[test]
        fn cuts_do_not_matter(
            lines in prop::collection::vec(("(data:|data: |event:|: |)[a-z \u{e9}]{0,6}", "(\n|\r\n|\r)"), 0..12),
            cuts in prop::collection::vec(0usize..120, 0..8),
        ) {
            let text: String = lines.into_iter().map(|(line, end)| line + &end).collect();
            let bytes = text.as_bytes();
            let mut at: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            at.extend([0, bytes.len()]);
            at.sort_unstable();
            let pieces: Vec<_> = at.windows(2).map(|w| &bytes[w[0]..w[1]]).collect();
            prop_assert_eq!(read(&pieces), read(&[bytes]));
        }
    }
}
