//! The frames of KV-event messages, live and replayed, and of recordings: pure.
//!
//! Live: `[topic, seq, payload]`. Replayed: `[empty, topic, seq, payload]` (vLLM 0.26+; before, no topic), then
//! an end marker whose number is all ones. A number is 8 bytes, big-endian.

use bytes::Bytes;

/// The number of the marker that ends a replay.
const END: u64 = u64::MAX;

/// A numbered payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbered {
    /// The engine's sequence number, from 0.
    pub seq: u64,
    /// Not decoded.
    pub payload: Bytes,
}

impl Numbered {
    /// Whether it ends a replay.
    pub fn ends_replay(&self) -> bool {
        self.seq == END && self.payload.is_empty()
    }
}

/// Frames that are no KV-event message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a KV-event message: {frames} frames, of which the one before the last has {seq_bytes:?} bytes")]
pub struct FramingError {
    frames: usize,
    seq_bytes: Option<usize>,
}

/// Reads a message, live or replayed, of any version: the number and the payload are the last two frames.
///
/// # Errors
/// Other frames.
pub fn numbered(frames: &[Bytes]) -> Result<Numbered, FramingError> {
    let error = FramingError {
        frames: frames.len(),
        seq_bytes: frames.len().checked_sub(2).map(|before_last| frames[before_last].len()),
    };
    match frames {
        [rest @ .., seq, payload] if rest.len() <= 2 => {
            let seq = <[u8; 8]>::try_from(&seq[..]).map_err(|_| error)?;
            Ok(Numbered { seq: u64::from_be_bytes(seq), payload: payload.clone() })
        }
        _ => Err(error),
    }
}

/// The frames that ask for a replay.
pub fn replay_request(from: u64) -> Vec<Bytes> {
    vec![Bytes::new(), Bytes::copy_from_slice(&from.to_be_bytes())]
}

/// A recording that ends inside a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the recording ends inside message {message}")]
pub struct CutRecording {
    /// Its place, from 0.
    pub message: usize,
}

/// Splits a recording into messages: `u32be frame count`, then `u32be length` and bytes per frame, repeated.
///
/// # Errors
/// A recording cut short.
pub fn recorded(mut bytes: Bytes) -> Result<Vec<Vec<Bytes>>, CutRecording> {
    let mut messages = vec![];
    while !bytes.is_empty() {
        let cut = CutRecording { message: messages.len() };
        let mut frames = vec![];
        for _ in 0..number(&mut bytes).ok_or(cut)? {
            let len = number(&mut bytes).ok_or(cut)? as usize;
            if len > bytes.len() {
                return Err(cut);
            }
            frames.push(bytes.split_to(len));
        }
        messages.push(frames);
    }
    Ok(messages)
}

fn number(bytes: &mut Bytes) -> Option<u32> {
    let number = u32::from_be_bytes(*bytes.first_chunk()?);
    bytes::Buf::advance(bytes, 4);
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(frames: &[&'static [u8]]) -> Vec<Bytes> {
        frames.iter().map(|frame| Bytes::from_static(frame)).collect()
    }

    #[test]
    fn live_and_both_replay_framings_read_alike() {
        let seq = b"\0\0\0\0\0\0\x01\x02";
        let shapes: [&[&[u8]]; 4] =
            [&[b"kv", seq, b"p"], &[b"", b"kv", seq, b"p"], &[b"", b"", seq, b"p"], &[b"", seq, b"p"]];
        for shape in shapes {
            let read = numbered(&frames(shape)).unwrap();
            assert_eq!(read, Numbered { seq: 0x102, payload: Bytes::from_static(b"p") });
        }
    }

    #[test]
    fn both_end_markers_end_a_replay() {
        for shape in [&[b"" as &[u8], b"", &[0xff; 8], b""][..], &[b"", &[0xff; 8], b""]] {
            assert!(numbered(&frames(shape)).unwrap().ends_replay());
        }
        assert!(!numbered(&frames(&[b"", b"", &[0; 8], b""])).unwrap().ends_replay());
    }

    #[test]
    fn other_frames_are_refused() {
        let shapes: [&[&[u8]]; 4] =
            [&[], &[b"12345678"], &[b"kv", b"1234567", b"p"], &[b"", b"", b"", &[0; 8], b"p"]];
        for shape in shapes {
            assert!(numbered(&frames(shape)).is_err(), "{shape:?}");
        }
    }

    #[test]
    fn a_cut_recording_says_where() {
        let whole = Bytes::from_static(b"\0\0\0\x01\0\0\0\x01a\0\0\0\x01\0\0\0\x02b");
        assert_eq!(recorded(whole.clone()), Err(CutRecording { message: 1 }));
        assert_eq!(recorded(whole.slice(..9)).unwrap(), [frames(&[b"a"])]);
        assert_eq!(recorded(Bytes::from_static(b"\xff\xff\xff\xff")), Err(CutRecording { message: 0 }));
    }
}
