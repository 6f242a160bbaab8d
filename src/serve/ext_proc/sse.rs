//! Server-sent events out of bytes that are cut anywhere: where their `data` is, and whole events of it.
//!
//! Invariant: what is reported does not depend on where the bytes were cut. An event is held in bounded memory.

use std::ops::Range;

use super::tail::Tail;

const MARK: &[u8] = b"\xef\xbb\xbf";
const FIELD: &[u8] = b"data:";

/// Where in a line the scanner is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Matching the byte order mark that a stream may begin with, that many bytes so far.
    Mark(usize),
    /// Matching the field name, that many bytes so far.
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

/// A part of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// A data line begins. Several of them make one value, joined by line feeds.
    Line,
    /// These of the bytes pushed are of a data line's value.
    Value(Range<usize>),
    /// A blank line: what data lines came before it are one event.
    End,
}

/// Tells the parts of a stream piece by piece.
#[derive(Debug)]
pub struct SseScanner {
    at: At,
    /// The line before ended with CR: an LF now belongs to it.
    after_cr: bool,
}

impl Default for SseScanner {
    fn default() -> Self {
        Self { at: At::Mark(0), after_cr: false }
    }
}

impl SseScanner {
    /// Takes the next bytes and reports the parts in them.
    pub fn push(&mut self, bytes: &[u8], part: &mut impl FnMut(Part)) {
        let mut here = 0;
        while let Some(&byte) = bytes.get(here) {
            if std::mem::take(&mut self.after_cr) && byte == b'\n' {
                here += 1;
                continue;
            }
            if byte == b'\n' || byte == b'\r' {
                self.after_cr = byte == b'\r';
                self.end_line(part);
                here += 1;
                continue;
            }
            here += self.inside(bytes, here, part);
        }
    }

    /// The stream ended: an event without its blank line counts too.
    pub fn finish(&mut self, part: &mut impl FnMut(Part)) {
        self.at = At::LineStart;
        self.end_line(part);
    }

    /// Takes bytes of one line, the first of which is no line end; answers how many.
    fn inside(&mut self, bytes: &[u8], here: usize, part: &mut impl FnMut(Part)) -> usize {
        let byte = bytes[here];
        let matched = match self.at {
            At::Mark(n) if MARK[n] == byte => {
                self.at = if n + 1 == MARK.len() { At::LineStart } else { At::Mark(n + 1) };
                return 1;
            }
            At::Mark(0) | At::LineStart => 0,
            At::Name(n) => n,
            At::ValueStart if byte == b' ' => {
                self.at = At::Value;
                return 1;
            }
            At::ValueStart | At::Value | At::Mark(_) | At::Skip => return self.run(bytes, here, part),
        };
        self.at = match FIELD.get(matched) {
            Some(want) if *want == byte && matched + 1 == FIELD.len() => {
                part(Part::Line);
                At::ValueStart
            }
            Some(want) if *want == byte => At::Name(matched + 1),
            _ => At::Skip,
        };
        1
    }

    /// Takes the rest of the line, as far as it is here.
    fn run(&mut self, bytes: &[u8], here: usize, part: &mut impl FnMut(Part)) -> usize {
        let rest = &bytes[here..];
        let length = rest.iter().position(|b| matches!(b, b'\n' | b'\r')).unwrap_or(rest.len());
        self.at = match self.at {
            At::ValueStart | At::Value => {
                part(Part::Value(here..here + length));
                At::Value
            }
            _ => At::Skip,
        };
        length
    }

    fn end_line(&mut self, part: &mut impl FnMut(Part)) {
        if self.at == At::LineStart {
            part(Part::End);
        }
        self.at = At::LineStart;
    }
}

/// Reads events piece by piece.
#[derive(Debug, Default)]
pub struct SseReader {
    scanner: SseScanner,
    /// The event so far, once it has a data line.
    data: Option<Tail>,
}

impl SseReader {
    /// Takes the next bytes and reports each event that they complete.
    pub fn push(&mut self, bytes: &[u8], event: &mut impl FnMut(&Tail)) {
        let data = &mut self.data;
        self.scanner.push(bytes, &mut |part| collect(data, bytes, part, event));
    }

    /// The stream ended: an event without its blank line counts too.
    pub fn finish(&mut self, event: &mut impl FnMut(&Tail)) {
        let data = &mut self.data;
        self.scanner.finish(&mut |part| collect(data, &[], part, event));
    }
}

fn collect(data: &mut Option<Tail>, bytes: &[u8], part: Part, event: &mut impl FnMut(&Tail)) {
    match (part, &mut *data) {
        (Part::Line, Some(data)) => data.push(b"\n"),
        (Part::Line, None) => *data = Some(Tail::default()),
        (Part::Value(range), Some(data)) => data.push(&bytes[range]),
        (Part::Value(_) | Part::End, None) => {}
        (Part::End, Some(_)) => {
            if let Some(data) = data.take() {
                event(&data);
            }
        }
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
        assert_eq!(read(&["\u{feff}data: one\n\n\u{feff}data: no\n\n".as_bytes()]), ["one"]);
    }

    proptest! {
        #[test]
        fn cuts_do_not_matter(
            lines in prop::collection::vec(("(\u{feff})?(data:|data: |event:|: |)[a-z \u{e9}]{0,6}", "(\n|\r\n|\r)"), 0..12),
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
