//! Content encodings of request bodies: read through a capped decoder, never forwarded decoded. Bytes.
//!
//! Invariant: no stage of a stack of encodings holds more than the cap, whatever its input claims.

use async_compression::{
    tokio::bufread::{BrotliDecoder, DeflateDecoder, GzipDecoder, ZlibDecoder, ZstdDecoder},
    zstd::DParameter,
};
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt};

/// How many encodings may be stacked on one body.
const MAX_STACKED: usize = 4;
/// Largest zstd window, log2: 8 MiB, what RFC 8878 asks every decoder to support.
const ZSTD_WINDOW_LOG: u32 = 23;
/// Decoded between two points where other tasks may run.
const STEP: usize = 64 * 1024;

/// Why a body does not decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// An encoding that is not known, or too many of them.
    #[error("the content encoding is not supported (gzip, deflate, br and zstd are)")]
    UnknownEncoding,
    /// The bytes are not what the encoding says, or end early.
    #[error("the body is not what its content encoding says")]
    Corrupt,
    /// More bytes than the cap come out.
    #[error("the decoded body is too large")]
    TooLarge,
}

#[derive(Clone, Copy)]
enum Encoding {
    Gzip,
    Deflate,
    Brotli,
    Zstd,
}

/// The encodings of a header value, in the order in which they were applied.
fn encodings(header: &str) -> Result<Vec<Encoding>, DecodeError> {
    let mut out = Vec::new();
    for name in header.split(',').map(|name| name.trim().to_ascii_lowercase()) {
        out.push(match name.as_str() {
            "" | "identity" => continue,
            "gzip" | "x-gzip" => Encoding::Gzip,
            "deflate" => Encoding::Deflate,
            "br" => Encoding::Brotli,
            "zstd" => Encoding::Zstd,
            _ => return Err(DecodeError::UnknownEncoding),
        });
    }
    if out.len() > MAX_STACKED { Err(DecodeError::UnknownEncoding) } else { Ok(out) }
}

/// The body as its `content-encoding` decodes it; at most `cap` bytes. Without an encoding: the body itself.
///
/// # Errors
/// See [`DecodeError`].
pub async fn decoded(encoding: Option<&str>, body: Bytes, cap: usize) -> Result<Bytes, DecodeError> {
    let mut body = body;
    for encoding in encodings(encoding.unwrap_or_default())?.into_iter().rev() {
        body = stage(encoding, &body, cap).await?;
    }
    if body.len() > cap { Err(DecodeError::TooLarge) } else { Ok(body) }
}

async fn stage(encoding: Encoding, body: &[u8], cap: usize) -> Result<Bytes, DecodeError> {
    match encoding {
        Encoding::Gzip => {
            let mut decoder = GzipDecoder::new(body);
            decoder.multiple_members(true);
            drain(decoder, cap).await
        }
        // Named `deflate`, meant as zlib (RFC 9110), and yet sent raw by some clients.
        Encoding::Deflate if is_zlib(body) => drain(ZlibDecoder::new(body), cap).await,
        Encoding::Deflate => drain(DeflateDecoder::new(body), cap).await,
        Encoding::Brotli => drain(BrotliDecoder::new(body), cap).await,
        Encoding::Zstd => {
            let window = DParameter::window_log_max(ZSTD_WINDOW_LOG);
            let mut decoder = ZstdDecoder::with_params(body, &[window]);
            decoder.multiple_members(true);
            drain(decoder, cap).await
        }
    }
}

/// RFC 1950: the method is 8 and the first two bytes are a multiple of 31.
fn is_zlib(body: &[u8]) -> bool {
    matches!(body, [cmf, flg, ..] if cmf & 0x0f == 8 && u16::from_be_bytes([*cmf, *flg]).is_multiple_of(31))
}

async fn drain(decoder: impl AsyncRead, cap: usize) -> Result<Bytes, DecodeError> {
    let mut decoder = std::pin::pin!(decoder);
    let mut out = Vec::new();
    loop {
        let step = (&mut decoder).take(STEP as u64).read_to_end(&mut out).await;
        match step {
            Err(_) => return Err(DecodeError::Corrupt),
            Ok(_) if out.len() > cap => return Err(DecodeError::TooLarge),
            Ok(0) => return Ok(out.into()),
            Ok(_) => tokio::task::consume_budget().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use async_compression::tokio::bufread as codec;
    use proptest::prelude::*;

    use super::*;

    const ALL: [&str; 5] = ["gzip", "deflate", "deflate raw", "br", "zstd"];

    async fn encode(name: &str, body: &[u8]) -> Bytes {
        let mut out = Vec::new();
        match name {
            "gzip" => codec::GzipEncoder::new(body).read_to_end(&mut out).await,
            "deflate" => codec::ZlibEncoder::new(body).read_to_end(&mut out).await,
            "deflate raw" => codec::DeflateEncoder::new(body).read_to_end(&mut out).await,
            "br" => codec::BrotliEncoder::new(body).read_to_end(&mut out).await,
            _ => codec::ZstdEncoder::new(body).read_to_end(&mut out).await,
        }
        .unwrap();
        out.into()
    }

    fn header(name: &str) -> &str {
        name.split(' ').next().unwrap()
    }

    #[tokio::test]
    async fn every_encoding_comes_back_alone_and_stacked() {
        let text = br#"{"model":"tiny","prompt":"The quick brown fox"}"#.repeat(50);
        for outer in ALL {
            let once = encode(outer, &text).await;
            assert_eq!(decoded(Some(header(outer)), once, 1 << 20).await.unwrap(), text, "{outer}");
            for inner in ALL {
                let twice = encode(outer, &encode(inner, &text).await).await;
                let stack = format!("{}, identity,{}", header(inner), header(outer).to_uppercase());
                assert_eq!(decoded(Some(&stack), twice, 1 << 20).await.unwrap(), text, "{inner} in {outer}");
            }
        }
    }

    #[tokio::test]
    async fn bombs_stop_at_the_cap() {
        let bomb = vec![b' '; 20 << 20];
        for name in ALL {
            let packed = encode(name, &bomb).await;
            assert!(packed.len() < 1 << 18, "{name}");
            assert_eq!(
                decoded(Some(header(name)), packed, 1 << 20).await,
                Err(DecodeError::TooLarge),
                "{name}"
            );
        }
    }

    #[tokio::test]
    async fn what_is_not_known_or_not_true_is_an_error() {
        let text = Bytes::from_static(b"{}");
        assert_eq!(decoded(None, text.clone(), 2).await.unwrap(), text);
        assert_eq!(decoded(None, text.clone(), 1).await, Err(DecodeError::TooLarge));
        assert_eq!(decoded(Some("lzma"), text.clone(), 9).await, Err(DecodeError::UnknownEncoding));
        let stack = ["gzip"; MAX_STACKED + 1].join(",");
        assert_eq!(decoded(Some(&stack), text.clone(), 9).await, Err(DecodeError::UnknownEncoding));
        for name in ALL {
            let packed = encode(name, &b"some text that is long enough ".repeat(99)).await;
            let cut = packed.slice(..packed.len() - 9);
            assert_eq!(decoded(Some(header(name)), cut, 1 << 20).await, Err(DecodeError::Corrupt), "{name}");
        }
        for name in ["gzip", "br", "zstd"] {
            assert_eq!(decoded(Some(name), text.clone(), 99).await, Err(DecodeError::Corrupt), "{name}");
        }
    }

    proptest! {
        #[test]
        fn garbage_never_passes_the_cap(bytes in prop::collection::vec(any::<u8>(), 0..400), which in 0..5usize) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            if let Ok(out) = runtime.block_on(decoded(Some(header(ALL[which])), bytes.into(), 1000)) {
                prop_assert!(out.len() <= 1000);
            }
        }
    }
}
