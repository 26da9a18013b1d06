//! The little of Markdown that our checks need: lines, fences, tables.

/// Lines outside fenced code, each with its number counted from one.
pub(crate) fn outside_fences(text: &str) -> impl Iterator<Item = (usize, &str)> {
    fenced(text).filter(|line| !line.fenced).map(|line| (line.number, line.text))
}

/// Lines inside fenced code, each with its number counted from one; not the fences themselves.
pub(crate) fn inside_fences(text: &str) -> impl Iterator<Item = (usize, &str)> {
    fenced(text).filter(|line| line.fenced && !line.fence).map(|line| (line.number, line.text))
}

/// The cells of a table row, trimmed; `None` if the line is no row. `\|` does not split.
pub(crate) fn cells(line: &str) -> Option<Vec<String>> {
    let inside = line.trim().strip_prefix('|')?;
    let inside = inside.strip_suffix('|').unwrap_or(inside);
    let kept = inside.replace("\\|", "\u{0}");
    Some(kept.split('|').map(|cell| cell.trim().replace('\u{0}', "|")).collect())
}

/// Whether these are the cells of the dashes below a table's header.
pub(crate) fn is_separator_row(cells: &[String]) -> bool {
    cells.iter().all(|cell| cell.contains('-') && cell.chars().all(|c| matches!(c, '-' | ':')))
}

/// One line and where it stands.
struct MarkdownLine<'a> {
    number: usize,
    text: &'a str,
    fenced: bool,
    fence: bool,
}

/// Every line, with what the fences before it make of it.
fn fenced(text: &str) -> impl Iterator<Item = MarkdownLine<'_>> {
    let mut open: Option<&str> = None;
    text.lines().enumerate().map(move |(index, text)| {
        let mark = fence_mark(text);
        let (fenced, fence) = match (open, mark) {
            (None, None) => (false, false),
            (None, Some(mark)) => {
                open = Some(mark);
                (true, true)
            }
            // Only a bare mark at least as long as the opening one closes it.
            (Some(opened), Some(mark)) if mark.starts_with(opened) && text.trim() == mark => {
                open = None;
                (true, true)
            }
            (Some(_), _) => (true, false),
        };
        MarkdownLine { number: index + 1, text, fenced, fence }
    })
}

/// The run of backticks or tildes that opens or closes a fence on this line.
fn fence_mark(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let mark = line.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let length = line.len() - line.trim_start_matches(mark).len();
    let info = &line[length..];
    // "```a``` b" is inline code at the start of a line.
    (length >= 3 && !info.contains('`')).then(|| &line[..length])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_divide_the_lines() {
        let text = "a\n```sh\nb\n~~~\n```\nc\n~~~~\n~~~\nd\n~~~~\n```e``` f\n";
        let outside: Vec<_> = outside_fences(text).collect();
        let inside: Vec<_> = inside_fences(text).collect();
        assert_eq!(outside, [(1, "a"), (6, "c"), (11, "```e``` f")]);
        assert_eq!(inside, [(3, "b"), (4, "~~~"), (8, "~~~"), (9, "d")]);
    }

    #[test]
    fn rows_become_cells() {
        let table: [(&str, &str, Option<&[&str]>); 4] = [
            ("plain", "| a | b |", Some(&["a", "b"])),
            ("an escaped bar stays", r"| a \| b | c |", Some(&["a | b", "c"])),
            ("the last bar may be missing", "| a | b", Some(&["a", "b"])),
            ("prose is no row", "a | b", None),
        ];
        for (why, line, expected) in table {
            let expected =
                expected.map(|cells| cells.iter().map(|&cell| cell.to_owned()).collect());
            assert_eq!(cells(line), expected, "{why}");
        }
        assert!(is_separator_row(&cells("|---|:-:|").unwrap()));
        assert!(!is_separator_row(&cells("| – | a |").unwrap()));
    }
}
