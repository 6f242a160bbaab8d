//! A byte buffer of bounded size: all of what was pushed, or the end of it.

/// Bytes kept whole.
const WHOLE: usize = 256 * 1024;
/// Bytes kept of what grew beyond that.
const KEPT: usize = 16 * 1024;

/// The bytes pushed so far, or the last of them.
#[derive(Debug, Default)]
pub struct Tail {
    bytes: Vec<u8>,
    cut: bool,
}

impl Tail {
    /// Adds bytes; drops the beginning when there are too many.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() > WHOLE {
            self.cut = true;
            self.bytes.drain(..self.bytes.len() - KEPT);
            self.bytes.shrink_to(WHOLE);
        }
    }

    /// What is held.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether the beginning was dropped.
    pub fn is_cut(&self) -> bool {
        self.cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_kept() {
        let mut tail = Tail::default();
        tail.push(&vec![b'a'; WHOLE]);
        assert!(!tail.is_cut());
        tail.push(b"end");
        assert!(tail.is_cut() && tail.bytes().len() == KEPT && tail.bytes().ends_with(b"aend"));
    }
}
