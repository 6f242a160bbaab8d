//! Tables: widths, cuts, colours.

use super::{Cell, Column, Tone, layout};

const COLUMNS: &[Column] =
    &[Column::left("NAME").elastic(), Column::right("QUEUE"), Column::left("MODELS").elastic()];

fn rows() -> Vec<Vec<Cell>> {
    vec![
        vec!["a".into(), 1.into(), "tiny".into()],
        vec![Cell::toned("a-rather-long-name", Tone::Bad), 200.into(), "some/very-long-model-name".into()],
    ]
}

fn plain(width: Option<usize>) -> Vec<String> {
    layout(COLUMNS, &rows(), width).iter().map(|line| line.painted(false)).collect()
}

#[test]
fn columns_are_as_wide_as_their_widest_cell() {
    let wanted = [
        "NAME                QUEUE  MODELS",
        "a                       1  tiny",
        "a-rather-long-name    200  some/very-long-model-name",
    ];
    assert_eq!(plain(None), wanted);
    assert_eq!(plain(Some(200)), wanted);
}

#[test]
fn a_table_fits_as_long_as_its_fixed_columns_do() {
    for width in (5 + 2 * 2 + 2 * 6)..60 {
        let lines = plain(Some(width));
        assert!(lines.iter().all(|line| line.chars().count() <= width), "{width}: {lines:#?}");
    }
    assert_eq!(plain(Some(32))[2], "a-rather-lo…    200  some/very-…");
}

#[test]
fn colours_enclose_what_they_are_for() {
    let line = &layout(COLUMNS, &rows(), None)[2];
    let painted = line.painted(true);
    assert!(painted.starts_with("\x1b[31ma-rather-long-name\x1b[0m"), "{painted:?}");
    assert_eq!(line.painted(false).matches('\x1b').count(), 0);
}

#[test]
fn a_name_does_not_speak_to_the_terminal() {
    let row = vec![Cell::from("a\x1b[2Jb\nc"), 1.into(), "m".into()];
    let lines = layout(COLUMNS, &[row], None);
    assert_eq!(lines[1].painted(true).trim_end(), "a [2Jb c      1  m");
}
