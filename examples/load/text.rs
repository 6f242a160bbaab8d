//! Synthetic text with a known number of tokens: random words, each of which is one token of the model's vocabulary.

use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use llm_tokenizer::Tokenizer;
use rand::{Rng, rngs::StdRng};

/// Enough for no two texts to share their first block.
const WANTED: usize = 1000;

/// Words that are one token each behind a space.
pub struct Words(Vec<String>);

impl Words {
    /// Reads a vocabulary and keeps its words.
    ///
    /// # Errors
    /// The file is no tokenizer, or has too few such words.
    pub fn of(path: &Path) -> Result<Self> {
        let tokenizer = Tokenizer::from_file(&path.to_string_lossy())
            .map_err(|error| anyhow!("{error}"))
            .with_context(|| path.display().to_string())?;
        let word = |token: String| {
            let word = token.strip_prefix(['Ġ', '▁'])?;
            (word.len() > 2 && word.bytes().all(|b| b.is_ascii_lowercase())).then(|| word.to_owned())
        };
        let one_token = |word: &String| {
            tokenizer.encode(&format!(" {word}"), false).is_ok_and(|encoding| encoding.token_ids().len() == 1)
        };
        let ids = 0..u32::try_from(tokenizer.vocab_size())?;
        let tokens = ids.filter_map(|id| tokenizer.id_to_token(id));
        let words: Vec<_> = tokens.filter_map(word).filter(one_token).take(WANTED).collect();
        ensure!(words.len() >= 100, "{}: only {} words of one token", path.display(), words.len());
        Ok(Self(words))
    }

    /// A text of `tokens` random words, which is as many tokens, give or take one.
    pub fn text(&self, tokens: usize, rng: &mut StdRng) -> String {
        let mut out = String::with_capacity(tokens * 7);
        for _ in 0..tokens {
            if !out.is_empty() {
                out.push(' ');
            }
            out.push_str(&self.0[rng.random_range(0..self.0.len())]);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn a_text_has_the_tokens_asked_for() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tokenizer/tokenizer.json");
        let words = Words::of(&path).unwrap();
        let tokenizer = Tokenizer::from_file(path.to_str().unwrap()).unwrap();
        for wanted in [1, 16, 700] {
            let text = words.text(wanted, &mut StdRng::seed_from_u64(7));
            let got = tokenizer.encode(&text, false).unwrap().token_ids().len();
            assert!(got.abs_diff(wanted) <= 1, "{got} tokens for {wanted}");
        }
    }
}
