//! Tables: cells in columns that are as wide as their widest cell. Pure.
//!
//! Invariant: where a width is given, no line is longer, as long as the columns that may not be cut fit. Widths are in characters.

/// Between columns.
const GAP: usize = 2;
/// The least that a column is cut to.
const LEAST: usize = 6;

/// A column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    head: &'static str,
    least: usize,
    right: bool,
    elastic: bool,
}

impl Column {
    /// Text, aligned to the left.
    pub const fn left(head: &'static str) -> Self {
        Self { head, least: 0, right: false, elastic: false }
    }

    /// Numbers, aligned to the right.
    pub const fn right(head: &'static str) -> Self {
        Self { right: true, ..Self::left(head) }
    }

    /// It may be cut where the table is too wide.
    pub const fn elastic(self) -> Self {
        Self { elastic: true, ..self }
    }

    /// It is at least that wide.
    pub const fn least(self, least: usize) -> Self {
        Self { least, ..self }
    }
}

/// What a cell means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// Nothing special.
    #[default]
    Plain,
    /// As it should be.
    Good,
    /// To be watched.
    Warning,
    /// Wrong.
    Bad,
    /// Beside the point.
    Faint,
    /// A heading.
    Strong,
}

impl Tone {
    /// The text in this tone's colour.
    pub fn paint(self, text: &str) -> String {
        let code = match self {
            Self::Plain => return text.to_owned(),
            Self::Good => "32",
            Self::Warning => "33",
            Self::Bad => "31",
            Self::Faint => "2",
            Self::Strong => "1",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// A cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// On one line.
    text: String,
    tone: Tone,
}

impl Cell {
    /// In a tone.
    pub fn toned(text: impl Into<String>, tone: Tone) -> Self {
        Self { text: clean(&text.into()), tone }
    }
}

/// A text on one line. What others name may hold anything; a terminal must not obey it.
pub fn clean(text: &str) -> String {
    // Marks that turn the reading direction around make text look like another.
    let turns = |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|c| if c.is_control() || turns(c) { ' ' } else { c }).collect()
}

impl<T: ToString> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::toned(text.to_string(), Tone::Plain)
    }
}

/// A line of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line(pub Vec<Cell>);

impl Line {
    /// With or without colours, no blanks at its end.
    pub fn painted(&self, colours: bool) -> String {
        let Some((last, rest)) = self.0.split_last() else { return String::new() };
        let paint = |cell: &Cell, text: &str| match colours {
            true if !text.is_empty() => cell.tone.paint(text),
            _ => text.to_owned(),
        };
        let mut out: String = rest.iter().map(|cell| paint(cell, &cell.text)).collect();
        out += &paint(last, last.text.trim_end());
        if colours { out } else { out.trim_end().to_owned() }
    }
}

/// The heading and a line for each row, within `width` where one is given.
pub fn layout(columns: &[Column], rows: &[Vec<Cell>], width: Option<usize>) -> Vec<Line> {
    let heads = columns.iter().map(|column| Cell::toned(column.head, Tone::Strong)).collect();
    let mut widths: Vec<_> = columns
        .iter()
        .enumerate()
        .map(|(n, column)| {
            let cells = rows.iter().filter_map(|row| row.get(n)).map(|cell| cell.text.chars().count());
            cells.chain([column.head.chars().count(), column.least]).max().unwrap_or(0)
        })
        .collect();
    if let Some(width) = width {
        shrink(columns, &mut widths, width);
    }
    let line = |row: &Vec<Cell>| {
        let cells = columns.iter().zip(&widths).zip(row).enumerate();
        Line(cells.map(|(n, ((column, width), cell))| padded(cell, *column, (n, *width))).collect())
    };
    [heads].iter().chain(rows).map(line).collect()
}

/// Takes from the widest column that may be cut, one by one.
fn shrink(columns: &[Column], widths: &mut [usize], width: usize) {
    let total = |widths: &[usize]| widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
    while total(widths) > width {
        let cut = |n: &usize| columns[*n].elastic && widths[*n] > LEAST;
        let Some(widest) = (0..columns.len()).filter(cut).max_by_key(|n| widths[*n]) else { return };
        widths[widest] -= 1;
    }
}

fn padded(cell: &Cell, column: Column, (n, width): (usize, usize)) -> Cell {
    let mut text = cell.text.clone();
    if text.chars().count() > width && column.elastic {
        text = text.chars().take(width.saturating_sub(1)).chain(['…']).collect();
    }
    let gap = " ".repeat(if n == 0 { 0 } else { GAP });
    let text = if column.right { format!("{gap}{text:>width$}") } else { format!("{gap}{text:width$}") };
    Cell { text, tone: cell.tone }
}
