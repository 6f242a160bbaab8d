//! Where the special tokens of a model are in a text: between them are its messages. Byte offsets.
//!
//! Invariant: what is found only says what to encode first; the tokens of a text don't depend on it.

use llm_tokenizer::SpecialTokens;

/// Shorter than this is quicker tokenized than looked for.
const LONG: usize = 1024;

/// The special tokens of a model, as they are written.
#[derive(Default)]
pub(super) struct Marks {
    /// What all of them begin with.
    start: String,
    all: Vec<String>,
}

impl Marks {
    /// Those of a tokenizer.
    pub(super) fn of(tokens: &SpecialTokens) -> Self {
        let SpecialTokens {
            bos_token,
            eos_token,
            unk_token,
            sep_token,
            pad_token,
            cls_token,
            mask_token,
            additional_special_tokens,
        } = tokens;
        let named = [bos_token, eos_token, unk_token, sep_token, pad_token, cls_token, mask_token];
        let all = named.into_iter().flatten().chain(additional_special_tokens);
        let mut all: Vec<String> = all.filter(|token| !token.is_empty()).cloned().collect();
        all.sort_unstable();
        all.dedup();
        // Of equal beginnings the longest counts.
        all.reverse();
        let common = |a: &str, b: &str| {
            a.chars().zip(b.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum()
        };
        let start = match (all.first(), all.last()) {
            (Some(last), Some(first)) => last[..common(last, first)].to_owned(),
            _ => String::new(),
        };
        Self { start, all }
    }

    /// The end of the mark after the one that closes the first long message; `None` where there is none, or nothing
    /// follows it.
    pub(super) fn after_first_long(&self, text: &str) -> Option<usize> {
        let mut from = 0;
        loop {
            let (at, end) = self.next(text, from)?;
            if at - from >= LONG {
                return self.next(text, end).map(|(_, end)| end).filter(|end| *end < text.len());
            }
            from = end;
        }
    }

    /// Where the next mark begins and ends.
    fn next(&self, text: &str, from: usize) -> Option<(usize, usize)> {
        if self.start.is_empty() {
            return None;
        }
        let at = |(at, _)| {
            let rest = &text[from + at..];
            let mark = self.all.iter().find(|mark| rest.starts_with(mark.as_str()))?;
            Some((from + at, from + at + mark.len()))
        };
        text[from..].match_indices(self.start.as_str()).find_map(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(all: &[&str]) -> Marks {
        let additional_special_tokens = all.iter().map(|&token| token.to_owned()).collect();
        Marks::of(&SpecialTokens { additional_special_tokens, ..SpecialTokens::default() })
    }

    #[test]
    fn the_first_long_message_is_found_with_the_mark_after_it() {
        let marks = marks(&["<|end|>", "<|start|>", "<|end|>x"]);
        assert_eq!(marks.start, "<|");
        let long = "<|no mark ".repeat(200);
        let text = format!("<|start|>short<|end|><|start|>{long}<|end|>\n<|start|>question<|end|>");
        let end = marks.after_first_long(&text).unwrap();
        assert!(text[..end].ends_with(&format!("{long}<|end|>\n<|start|>")), "{end}");
        assert_eq!(&text[end..], "question<|end|>");
        let nothing_follows = format!("<|start|>{long}<|end|>x<|start|>");
        for text in ["", "<|start|>short<|end|><|start|>", &long, &nothing_follows, &format!("{long}<|end|>")]
        {
            assert_eq!(marks.after_first_long(text), None);
        }
        assert_eq!(Marks::of(&SpecialTokens::default()).after_first_long(&text), None);
    }

    #[test]
    fn the_longest_of_equal_beginnings_counts() {
        let marks = marks(&["<a", "<a>"]);
        assert_eq!(marks.next("x<a>", 0), Some((1, 4)));
        assert_eq!(marks.next("x<a", 0), Some((1, 3)));
    }
}
