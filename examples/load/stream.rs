//! What a streamed answer is read with: lines out of a byte stream, and the usage that the last event tells.
//! Pure. Shared by this load generator and the routing benchmark.

use serde::Deserialize;

/// The `usage` object of the last event.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Usage {
    /// Length of the prompt.
    #[serde(default)]
    pub prompt_tokens: u64,
    /// Length of the answer.
    #[serde(default)]
    pub completion_tokens: u64,
    #[serde(default)]
    prompt_tokens_details: Option<Details>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Details {
    cached_tokens: Option<u64>,
}

impl Usage {
    /// Prompt tokens that the engine took from its prefix cache.
    pub fn cached_tokens(&self) -> u64 {
        self.prompt_tokens_details.as_ref().and_then(|details| details.cached_tokens).unwrap_or(0)
    }
}

/// Cuts a byte stream into lines, however it is chunked.
#[derive(Default)]
pub struct Lines {
    rest: Vec<u8>,
}

impl Lines {
    /// The lines that this chunk completes.
    pub fn push(&mut self, chunk: &[u8]) -> Vec<String> {
        self.rest.extend_from_slice(chunk);
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else { return Vec::new() };
        let rest = self.rest.split_off(end + 1);
        let whole = std::mem::replace(&mut self.rest, rest);
        String::from_utf8_lossy(&whole).lines().map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn lines_do_not_depend_on_chunks(text in "([a-zé ]{0,8}\r?\n){0,12}", size in 1_usize..9) {
            let mut lines = Lines::default();
            let got: Vec<_> = text.as_bytes().chunks(size).flat_map(|chunk| lines.push(chunk)).collect();
            prop_assert_eq!(got, text.lines().map(str::to_owned).collect::<Vec<_>>());
        }
    }
}
