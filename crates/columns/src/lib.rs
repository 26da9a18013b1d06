//! Lays out text in columns, as kubectl prints tables.
//!
//! There are no borders, and no cell is wrapped or cut: output is read by `awk` and `grep` as often
//! as on a terminal. Widths are numbers of characters, as in kubectl.

/// The spaces between two columns of a table, as in kubectl.
pub const TABLE_GAP: usize = 3;

/// Aligns the cells of all rows, with `gap` spaces between two columns.
///
/// Rows may have different numbers of cells. Lines have no trailing whitespace, and each ends with
/// a line break.
///
/// ```
/// use gantry_columns::{TABLE_GAP, align};
///
/// let rows = [["NAME", "STATE"], ["training", "Running"]];
/// assert_eq!(align(&rows, TABLE_GAP), "NAME       STATE\ntraining   Running\n");
/// ```
#[must_use]
pub fn align<Row, Cell>(rows: &[Row], gap: usize) -> String
where
    Row: AsRef<[Cell]>,
    Cell: AsRef<str>,
{
    let mut widths: Vec<usize> = Vec::new();
    for row in rows {
        for (column, cell) in row.as_ref().iter().enumerate() {
            let width = cell.as_ref().chars().count();
            match widths.get_mut(column) {
                Some(widest) => *widest = width.max(*widest),
                None => widths.push(width),
            }
        }
    }
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.as_ref().iter().zip(&widths) {
            let cell = cell.as_ref();
            let padding = width.saturating_sub(cell.chars().count()) + gap;
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', padding));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn cells_start_where_the_widest_cell_of_the_column_before_ends() {
        let table: [(&str, &[&[&str]], &str); 7] = [
            ("no rows", &[], ""),
            ("a row without cells", &[&[]], "\n"),
            ("a table", &[&["A", "LONG"], &["wide", "b"]], "A      LONG\nwide   b\n"),
            ("rows of different lengths", &[&["A", "B"], &["c"], &[]], "A   B\nc\n\n"),
            ("an empty column", &[&["a", "", "c"]], "a      c\n"),
            ("an empty last cell", &[&["A", "B"], &["c", ""]], "A   B\nc\n"),
            ("characters, not bytes", &[&["é", "x"], &["ab", "y"]], "é    x\nab   y\n"),
        ];
        for (why, rows, expected) in table {
            assert_eq!(align(rows, TABLE_GAP), expected, "{why}");
        }
        assert_eq!(align(&[["a", "b"]], 2), "a  b\n", "another gap");
    }

    proptest! {
        /// Cells of one column start at the same place, and no text is lost.
        #[test]
        fn columns_are_aligned(
            rows in prop::collection::vec(prop::collection::vec("[a-zé]{1,9}", 3), 1..9),
            gap in 1_usize..5,
        ) {
            let text = align(&rows, gap);
            let lines: Vec<Vec<char>> = text.lines().map(|it| it.chars().collect()).collect();
            prop_assert_eq!(lines.len(), rows.len());
            let mut start = 0;
            for column in 0..3 {
                for (line, row) in lines.iter().zip(&rows) {
                    let cell: Vec<char> = row[column].chars().collect();
                    prop_assert_eq!(&line[start..start + cell.len()], &cell[..]);
                }
                let widest = rows.iter().map(|it| it[column].chars().count()).max();
                start += widest.unwrap_or(0) + gap;
            }
        }
    }
}
