//! A cursor over MessagePack bytes: one token at a time, borrowed, nothing allocated.
//!
//! Owner: the decoder. Invariant: reads stay inside the slice; a token consumes at least one byte, so that
//! no walk is longer than the payload, however deep or long its containers claim to be.

use super::faults::DecodeError;

/// One token. Containers give their length; their items follow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Token<'a> {
    /// nil
    Nil,
    /// true, false
    Bool(bool),
    /// A number that is not negative.
    Uint(u64),
    /// A negative number.
    Int(i64),
    /// Of either width.
    Float(f64),
    /// Text, not checked to be UTF-8.
    Str(&'a [u8]),
    /// Bytes.
    Bin(&'a [u8]),
    /// Length in items.
    Array(u32),
    /// Length in pairs.
    Map(u32),
    /// An extension value, skipped whole.
    Ext,
}

/// Where reading stands.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// At the first byte.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Bytes read so far.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Back to an earlier position.
    pub fn rewind(&mut self, position: usize) {
        self.at = position.min(self.at);
    }

    /// Bytes left.
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// How much room to reserve for `claimed` items: never more than the bytes left could hold, nor than
    /// what a real event needs.
    pub fn room(&self, claimed: u32) -> usize {
        const MOST: usize = 4096;
        (claimed as usize).min(self.remaining()).min(MOST)
    }

    /// The next token.
    #[inline]
    pub fn token(&mut self) -> Result<Token<'a>, DecodeError> {
        let marker = self.byte()?;
        Ok(match marker {
            0x00..=0x7f => Token::Uint(marker.into()),
            0x80..=0x8f => Token::Map((marker & 0x0f).into()),
            0x90..=0x9f => Token::Array((marker & 0x0f).into()),
            0xa0..=0xbf => Token::Str(self.take((marker & 0x1f).into())?),
            0xe0..=0xff => Token::Int(i64::from(marker.cast_signed())),
            0xcc => Token::Uint(self.byte()?.into()),
            0xcd => Token::Uint(u16::from_be_bytes(self.array()?).into()),
            0xce => Token::Uint(u32::from_be_bytes(self.array()?).into()),
            0xcf => Token::Uint(u64::from_be_bytes(self.array()?)),
            _ => return self.rarer(marker),
        })
    }

    fn rarer(&mut self, marker: u8) -> Result<Token<'a>, DecodeError> {
        let signed = |n: i64| u64::try_from(n).map_or(Token::Int(n), Token::Uint);
        Ok(match marker {
            0xc0 => Token::Nil,
            0xc2 => Token::Bool(false),
            0xc3 => Token::Bool(true),
            0xc4 | 0xd9 | 0xc5 | 0xda | 0xc6 | 0xdb => {
                let len = match marker {
                    0xc4 | 0xd9 => self.byte()?.into(),
                    0xc5 | 0xda => u16::from_be_bytes(self.array()?).into(),
                    _ => u32::from_be_bytes(self.array()?),
                };
                let bytes = self.take(len as usize)?;
                if marker < 0xd9 { Token::Bin(bytes) } else { Token::Str(bytes) }
            }
            0xc7..=0xc9 => {
                let len = match marker {
                    0xc7 => self.byte()?.into(),
                    0xc8 => u16::from_be_bytes(self.array()?).into(),
                    _ => u32::from_be_bytes(self.array()?),
                };
                self.ext(len as usize)?
            }
            0xd4..=0xd8 => self.ext(1 << (marker - 0xd4))?,
            0xca => Token::Float(f32::from_be_bytes(self.array()?).into()),
            0xcb => Token::Float(f64::from_be_bytes(self.array()?)),
            0xd0 => signed(i8::from_be_bytes(self.array()?).into()),
            0xd1 => signed(i16::from_be_bytes(self.array()?).into()),
            0xd2 => signed(i32::from_be_bytes(self.array()?).into()),
            0xd3 => signed(i64::from_be_bytes(self.array()?)),
            0xdc => Token::Array(u16::from_be_bytes(self.array()?).into()),
            0xdd => Token::Array(u32::from_be_bytes(self.array()?)),
            0xde => Token::Map(u16::from_be_bytes(self.array()?).into()),
            0xdf => Token::Map(u32::from_be_bytes(self.array()?)),
            _ => return Err(DecodeError::Reserved),
        })
    }

    /// Steps over one whole value. Not recursive: depth costs nothing.
    pub fn skip_value(&mut self) -> Result<(), DecodeError> {
        let mut left = 1u64;
        while left > 0 {
            left -= 1;
            match self.token()? {
                Token::Array(items) => left += u64::from(items),
                Token::Map(pairs) => left += 2 * u64::from(pairs),
                _ => {}
            }
        }
        Ok(())
    }

    #[inline]
    fn byte(&mut self) -> Result<u8, DecodeError> {
        let byte = *self.bytes.get(self.at).ok_or(DecodeError::Truncated)?;
        self.at += 1;
        Ok(byte)
    }

    #[inline]
    fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let taken = self.bytes[self.at..].get(..len).ok_or(DecodeError::Truncated)?;
        self.at += len;
        Ok(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let taken = self.bytes[self.at..].first_chunk::<N>().ok_or(DecodeError::Truncated)?;
        self.at += N;
        Ok(*taken)
    }

    /// The type byte and the data.
    fn ext(&mut self, len: usize) -> Result<Token<'a>, DecodeError> {
        self.byte()?;
        self.take(len)?;
        Ok(Token::Ext)
    }
}
