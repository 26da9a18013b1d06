//! Rust source split into code and comments, so that a check is not fooled by a string literal.

use crate::tree::Tree;

/// One Rust file, seen two ways. Both have the lines of the file.
#[derive(Debug)]
pub(crate) struct RustFile {
    /// Where it is, relative to the workspace root.
    pub(crate) path: String,
    /// Code only: comments and the insides of literals are blank.
    pub(crate) code: String,
    /// Comments only: everything else is blank.
    pub(crate) comments: String,
}

impl RustFile {
    /// Splits one file.
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let (mut code, mut comments) = (String::new(), String::new());
        let mut start = 0;
        for (part, end) in spans(text) {
            let slice = &text[start..end];
            match part {
                SpanKind::Code => {
                    code.push_str(slice);
                    comments.extend(slice.chars().map(blank));
                }
                SpanKind::Comment => {
                    code.extend(slice.chars().map(blank));
                    comments.push_str(slice);
                }
                SpanKind::Literal => {
                    code.extend(slice.chars().map(blank));
                    comments.extend(slice.chars().map(blank));
                }
            }
            start = end;
        }
        Self { path: path.to_owned(), code, comments }
    }

    /// Every Rust file of the tree, in order.
    pub(crate) fn all(tree: &Tree) -> Vec<Self> {
        let rust = tree.texts().filter(|(path, _)| path.ends_with(".rs"));
        rust.map(|(path, text)| Self::new(path, text)).collect()
    }

    /// Whether the whole file is test code, by its name or folder.
    pub(crate) fn is_test_file(&self) -> bool {
        self.path.ends_with("/tests.rs") || self.path.contains("/tests/")
    }
}

/// One attribute: the byte where it starts in the code, and what is between its brackets.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Attribute<'a> {
    /// Offset of `#` in [`RustFile::code`].
    pub(crate) start: usize,
    /// Offset of the closing bracket.
    pub(crate) end: usize,
    /// The text between the brackets, insides of literals blank.
    pub(crate) body: &'a str,
}

/// Every attribute in code whose comments and literals are blank.
pub(crate) fn attributes(code: &str) -> Vec<Attribute<'_>> {
    let mut found = Vec::new();
    for (start, _) in code.match_indices('#') {
        let after = &code[start + 1..];
        let after = after.strip_prefix('!').unwrap_or(after);
        let Some(inside) = after.strip_prefix('[') else { continue };
        let open = code.len() - inside.len();
        if let Some(length) = closing(inside, '[', ']') {
            found.push(Attribute { start, end: open + length, body: &inside[..length] });
        }
    }
    found
}

/// Where the bracket that was opened just before `inside` closes.
pub(crate) fn closing(inside: &str, open: char, close: char) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, character) in inside.char_indices() {
        if character == open {
            depth += 1;
        } else if character == close {
            match depth {
                0 => return Some(at),
                _ => depth -= 1,
            }
        }
    }
    None
}

/// The line, counted from one, that holds the byte at `offset`.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}

/// What a stretch of source is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SpanKind {
    Code,
    Comment,
    Literal,
}

/// A blank in place of a character, so that lines stay what they were.
fn blank(character: char) -> char {
    if character == '\n' { '\n' } else { ' ' }
}

/// Cuts source into stretches, each given by where it ends. Quotes belong to the literal.
fn spans(text: &str) -> Vec<(SpanKind, usize)> {
    let mut parts = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let (part, length) = if rest.starts_with("//") {
            (SpanKind::Comment, rest.find('\n').unwrap_or(rest.len()))
        } else if rest.starts_with("/*") {
            (SpanKind::Comment, block_comment(rest))
        } else if let Some(hashes) = raw_string(text, at) {
            (SpanKind::Literal, raw_length(rest, hashes))
        } else if rest.starts_with('"') {
            (SpanKind::Literal, quoted(rest))
        } else if let Some(length) = character(rest) {
            (SpanKind::Literal, length)
        } else {
            (SpanKind::Code, rest.chars().next().map_or(1, char::len_utf8))
        };
        at += length;
        parts.push((part, at));
    }
    parts
}

/// Length of the block comment that `rest` starts with; they nest.
fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        let here = &rest.as_bytes()[at..];
        if here.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if here.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// The number of hashes if a raw string (`r"`, `br#"`, …) has its `r` at `at`.
fn raw_string(text: &str, at: usize) -> Option<usize> {
    let after = text[at..].strip_prefix('r')?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    let before = &text[..at];
    let before = before.strip_suffix(['b', 'c']).unwrap_or(before);
    let inside_a_word = before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
    (after[hashes..].starts_with('"') && !inside_a_word).then_some(hashes)
}

/// Length of the raw string with so many hashes that `rest` starts with.
fn raw_length(rest: &str, hashes: usize) -> usize {
    let open = 1 + hashes + 1;
    let close = format!("\"{}", "#".repeat(hashes));
    rest[open..].find(&close).map_or(rest.len(), |inside| open + inside + close.len())
}

/// Length of the string literal that `rest` starts with.
fn quoted(rest: &str) -> usize {
    let mut escaped = false;
    for (at, character) in rest.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// Length of the character literal that `rest` starts with; a lifetime is none.
fn character(rest: &str) -> Option<usize> {
    let inside = rest.strip_prefix('\'')?;
    let mut characters = inside.char_indices();
    let (_, first) = characters.next()?;
    if first == '\\' {
        let (escaped, _) = characters.next()?;
        let after = escaped + inside[escaped..].chars().next().map_or(0, char::len_utf8);
        return inside[after..].find('\'').map(|more| 1 + after + more + 1);
    }
    let (close, next) = characters.next()?;
    (next == '\'').then_some(1 + close + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_kept_and_the_rest_is_blank() {
        let table = [
            // why                          source                        code without blanks at the
            // end
            ("a line comment goes", "a(); // b\nc();", "a();\nc();"),
            ("a doc comment goes", "/// a\nfn b() {}", "\nfn b() {}"),
            ("block comments nest", "a /* b /* c */ d */ e", "a                   e"),
            ("an open comment runs to the end", "a /* b", "a"),
            ("a string goes", "a(\"b\")", "a(   )"),
            ("an escaped quote does not end it", r#"a("\"b") c"#, "a(     ) c"),
            ("an escaped backslash does", r#"a("\\") c"#, "a(    ) c"),
            ("a comment in a string is none", r#"a("// b") c"#, "a(      ) c"),
            ("a raw string goes", r###"a(r#"b"c"#) d"###, "a(        ) d"),
            ("a raw byte string goes", "a(br\"\\\") d", "a(b    ) d"),
            ("a raw identifier stays", "r#fn a", "r#fn a"),
            ("a word that ends in r stays", "for\"b\" c", "for    c"),
            ("a character goes", "a('\"') b", "a(   ) b"),
            ("an escaped quote as character", r"a('\'') b", "a(    ) b"),
            ("a long escape", r"a('\u{1F600}') b", "a(           ) b"),
            ("a lifetime stays", "fn a<'b>(c: &'b str)", "fn a<'b>(c: &'b str)"),
            ("wide characters keep their place in line", "a('ö', \"ü\") b", "a(   ,    ) b"),
            ("lines stay", "a(\"b\nc\") d", "a(\n  ) d"),
        ];
        for (why, source, expected) in table {
            let file = RustFile::new("a.rs", source);
            let code: Vec<&str> = file.code.lines().map(str::trim_end).collect();
            assert_eq!(code.join("\n"), expected, "{why}");
            assert_eq!(file.code.lines().count(), source.lines().count(), "{why}");
        }
    }

    #[test]
    fn comments_are_kept_and_the_rest_is_blank() {
        let file = RustFile::new("a.rs", "a(\"// b\"); // c\n/* d */ e");
        assert_eq!(file.comments, "           // c\n/* d */  ");
    }

    #[test]
    fn attributes_are_found_whole() {
        let code = "#![a]\n#[b(c[0], d)]\nfn e() { f#g; }\n#[h";
        let found: Vec<_> = attributes(code).into_iter().map(|one| (one.start, one.body)).collect();
        assert_eq!(found, [(0, "a"), (6, "b(c[0], d)")]);
        assert_eq!(&code[attributes(code)[1].end..][..2], "]\n");
    }

    #[test]
    fn files_of_tests_are_known_by_name_or_folder() {
        let table = [
            ("crates/a/src/plan/tests.rs", true),
            ("crates/a/tests/it/main.rs", true),
            ("crates/a/src/plan/tests/order.rs", true),
            ("crates/a/src/contests.rs", false),
        ];
        for (path, expected) in table {
            assert_eq!(RustFile::new(path, "").is_test_file(), expected, "{path}");
        }
    }

    #[test]
    fn lines_count_from_one() {
        let table = [(0, 1), (1, 1), (2, 2), (3, 3)];
        for (offset, expected) in table {
            assert_eq!(line_of("a\n\nb", offset), expected, "{offset}");
        }
    }
}
