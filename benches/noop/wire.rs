//! As much of HTTP/1.1 as the load and its origin need: one message after the other, bodies by length or in chunks.

use anyhow::{Context, Result, ensure};
use tokio::{io::AsyncReadExt, net::TcpStream};

const READ: usize = 64 * 1024;

/// A message's head, as far as anybody asks.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The request line, or the status line.
    pub first: String,
    /// `x-chunks`: the events that a request wants its answer to have.
    pub chunks: Option<usize>,
    /// `content-length`; none: in chunks, or nothing.
    length: Option<usize>,
    chunked: bool,
}

impl Head {
    fn parse(bytes: &[u8]) -> Result<Self> {
        let text = std::str::from_utf8(bytes)?;
        let mut lines = text.split("\r\n");
        let mut head = Self { first: lines.next().unwrap_or_default().to_owned(), ..Self::default() };
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            if name.eq_ignore_ascii_case("content-length") {
                head.length = Some(value.parse()?);
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                head.chunked = value.eq_ignore_ascii_case("chunked");
            } else if name.eq_ignore_ascii_case("x-chunks") {
                head.chunks = Some(value.parse()?);
            }
        }
        Ok(head)
    }
}

/// Reads the messages of a connection.
#[derive(Default)]
pub struct Reader {
    held: Vec<u8>,
}

impl Reader {
    /// The head of the next message once all of its body was read and thrown away; `None`: the connection ended.
    ///
    /// # Errors
    /// The connection broke, or what came is no message.
    pub async fn message(&mut self, from: &mut TcpStream) -> Result<Option<Head>> {
        let end = loop {
            if let Some(at) = find(&self.held, b"\r\n\r\n") {
                break at;
            }
            if !self.more(from).await? {
                return Ok(None);
            }
        };
        let head = Head::parse(&self.held[..end])?;
        self.held.drain(..end + 4);
        match head.length {
            Some(length) => self.skip(from, length).await?,
            None if head.chunked => self.skip_chunks(from).await?,
            None => {}
        }
        Ok(Some(head))
    }

    async fn skip_chunks(&mut self, from: &mut TcpStream) -> Result<()> {
        loop {
            let end = loop {
                if let Some(at) = find(&self.held, b"\r\n") {
                    break at;
                }
                ensure!(self.more(from).await?, "a body broke off");
            };
            let size = std::str::from_utf8(&self.held[..end])?;
            let size = usize::from_str_radix(size, 16).with_context(|| size.to_owned())?;
            self.skip(from, end + 2 + size + 2).await?;
            if size == 0 {
                return Ok(());
            }
        }
    }

    async fn skip(&mut self, from: &mut TcpStream, mut bytes: usize) -> Result<()> {
        while bytes > self.held.len() {
            bytes -= self.held.len();
            self.held.clear();
            ensure!(self.more(from).await?, "a body broke off");
        }
        self.held.drain(..bytes);
        Ok(())
    }

    async fn more(&mut self, from: &mut TcpStream) -> Result<bool> {
        self.held.reserve(READ);
        Ok(from.read_buf(&mut self.held).await? > 0)
    }
}

fn find(in_bytes: &[u8], what: &[u8]) -> Option<usize> {
    in_bytes.windows(what.len()).position(|window| window == what)
}
