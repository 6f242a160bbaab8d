//! The terminal while `top` has it: another screen, keys as they are pressed, all given back however we end.
//!
//! A frame is written in one go over the one before, so that nothing flickers.

use std::io::{self, Write};

use crossterm::{
    cursor::{Hide, MoveTo, Show},
    queue,
    style::Print,
    terminal::{
        BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
        LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, size,
    },
};

use super::frame::Size;
use crate::output;

/// The terminal, taken.
pub struct Screen(());

impl Screen {
    /// Takes it.
    ///
    /// # Errors
    /// It does not let itself be taken.
    pub fn open() -> io::Result<Self> {
        enable_raw_mode()?;
        let screen = Self(());
        written(|out| queue!(out, EnterAlternateScreen, Hide))?;
        Ok(screen)
    }

    /// Draws a frame.
    pub fn draw(&mut self, frame: impl Fn(Size, bool) -> Vec<String>) -> io::Result<()> {
        let (width, height) = size()?;
        let lines = frame(Size { width: width.into(), height: height.into() }, output::colours());
        written(|out| {
            queue!(out, BeginSynchronizedUpdate)?;
            for (row, line) in (0u16..).zip(&lines) {
                queue!(out, MoveTo(0, row), Print(line), Clear(ClearType::UntilNewLine))?;
            }
            if lines.len() < usize::from(height) {
                let below = u16::try_from(lines.len()).unwrap_or(height);
                queue!(out, MoveTo(0, below), Clear(ClearType::FromCursorDown))?;
            }
            queue!(out, EndSynchronizedUpdate)
        })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Nothing can be done about a terminal that is gone.
        let _ = written(|out| queue!(out, LeaveAlternateScreen, Show));
        let _ = disable_raw_mode();
    }
}

fn written(commands: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> io::Result<()> {
    let mut bytes = Vec::new();
    commands(&mut bytes)?;
    let mut out = io::stdout().lock();
    out.write_all(&bytes)?;
    out.flush()
}
