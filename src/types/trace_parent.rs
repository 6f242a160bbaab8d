//! The `traceparent` header of W3C Trace Context: the trace that a request is part of, and who called.
//!
//! Invariant: neither id is zero.

use std::fmt;

/// The caller's place in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace.
    pub trace_id: u128,
    /// The caller's span.
    pub span_id: u64,
    /// The caller's spans are kept.
    pub sampled: bool,
}

impl TraceParent {
    /// Reads the header; `None`: it is not well-formed, and has to be taken as absent.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().split('-');
        let mut next = |digits| hex(parts.next()?, digits);
        let (version, trace_id, span_id, flags) = (next(2)?, next(32)?, next(16)?, next(2)?);
        // Later versions may add parts, version 0 has none. 255 is never one.
        let known = version != 0xff && (version != 0 || parts.next().is_none());
        let span_id = u64::try_from(span_id).ok()?;
        (known && trace_id != 0 && span_id != 0).then_some(Self {
            trace_id,
            span_id,
            sampled: flags & 1 == 1,
        })
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace_id, self.span_id, u8::from(self.sampled))
    }
}

/// So many digits, in lower case as the standard wants them.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let fine = text.len() == digits && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    u128::from_str_radix(text, 16).ok().filter(|_| fine)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    #[test]
    fn well_formed_ones_are_read_and_written_back() {
        for flags in ["00", "01"] {
            let text = format!("00-{ID}-00f067aa0ba902b7-{flags}");
            let parent = TraceParent::parse(&text).unwrap();
            assert_eq!((parent.to_string(), parent.sampled), (text, flags == "01"));
        }
        let later = TraceParent::parse(&format!(" 01-{ID}-00f067aa0ba902b7-ff-more ")).unwrap();
        assert_eq!((later.span_id, later.sampled), (0x00f0_67aa_0ba9_02b7, true));
    }

    #[test]
    fn others_are_as_good_as_absent() {
        let zero = "0".repeat(32);
        for text in [
            String::new(),
            "00".into(),
            format!("00-{ID}-00f067aa0ba902b7"),
            format!("00-{ID}-00f067aa0ba902b7-01-more"),
            format!("ff-{ID}-00f067aa0ba902b7-01"),
            format!("00-{}-00f067aa0ba902b7-01", ID.to_uppercase()),
            format!("00-{zero}-00f067aa0ba902b7-01"),
            format!("00-{ID}-0000000000000000-01"),
            format!("00-{ID}-+0f067aa0ba902b7-01"),
            format!("00-{ID}1-00f067aa0ba902b7-01"),
            "é".repeat(55),
        ] {
            assert_eq!(TraceParent::parse(&text), None, "{text}");
        }
    }
}
