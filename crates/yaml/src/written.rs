//! YAML as it is written: scalars with their style and tag, and maps with all of their entries.
//!
//! [`crate::read`] decides what a scalar means and refuses duplicate keys. Readers of other
//! dialects decide that themselves: the same text stands for another value where YAML 1.1 of Python
//! is meant, and tags such as `!vault` have a meaning there.

use std::collections::HashMap;

use granit_parser::{Event, Options, Parser, ScalarStyle, ScanError, Span, Tag};

use crate::node::Position;
use crate::text::{MAX_DEPTH, SyntaxError, with_stack};

/// One value of a document as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenNode {
    /// Where the value begins; for an alias, where the alias stands.
    pub at: Position,
    /// The tag as the document spells it, for instance `!vault`.
    pub tag: Option<String>,
    /// The value itself.
    pub content: Written,
}

/// What a [`WrittenNode`] holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// A scalar without quotes. Its text decides about its type; where nothing stands it is `~`.
    Plain(String),
    /// A scalar in quotes or a block of text, which is a string.
    Quoted(String),
    /// A list.
    List(Vec<WrittenNode>),
    /// The entries of a map in order, with duplicate keys and merge keys.
    Map(Vec<(WrittenNode, WrittenNode)>),
}

/// Reads the documents of a text without interpreting scalars. Aliases are replaced by what they
/// stand for.
///
/// # Errors
/// The first syntax error: nothing after it can be trusted.
pub fn read_written(text: &str) -> Result<Vec<WrittenNode>, SyntaxError> {
    // Frames are on the heap, but the parser's own stack is not known.
    with_stack(|| Builder::default().read(text))
}

/// The maximum number of values that aliases of one text may add.
const MAX_ALIASED_NODES: usize = 100_000;

/// A list or map whose end was not read yet.
struct Frame {
    at: Position,
    tag: Option<String>,
    anchor: usize,
    items: Vec<WrittenNode>,
    is_map: bool,
    /// Levels below this one.
    height: usize,
}

/// A value with an anchor, and how much an alias of it adds.
struct Anchored {
    node: WrittenNode,
    height: usize,
    size: usize,
}

#[derive(Default)]
struct Builder {
    frames: Vec<Frame>,
    anchors: HashMap<usize, Anchored>,
    documents: Vec<WrittenNode>,
    aliased: usize,
}

impl Builder {
    fn read(mut self, text: &str) -> Result<Vec<WrittenNode>, SyntaxError> {
        let mut options = Options::default();
        options.set_emit_comments(false);
        let mut parser = Parser::new_from_str_with_options(text, options);
        while let Some(event) = parser.next_event() {
            let (event, span) = event.map_err(|error| explain(&error))?;
            self.take(event, &span)?;
        }
        Ok(self.documents)
    }

    fn take(&mut self, event: Event<'_>, span: &Span) -> Result<(), SyntaxError> {
        let at = position(span);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let text = text.into_owned();
                let content = match style {
                    ScalarStyle::Plain => Written::Plain(text),
                    ScalarStyle::SingleQuoted
                    | ScalarStyle::DoubleQuoted
                    | ScalarStyle::Literal
                    | ScalarStyle::Folded => Written::Quoted(text),
                };
                let node = WrittenNode { at, tag: tag.map(|tag| spelling(&tag)), content };
                self.remember(anchor, &node, 0);
                self.push(node, 0);
            }
            Event::SequenceStart(_, anchor, tag) => self.open(at, anchor, tag.as_deref(), false)?,
            Event::MappingStart(_, anchor, tag) => self.open(at, anchor, tag.as_deref(), true)?,
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::Alias(anchor) => self.alias(anchor, at)?,
            // Events of streams, documents and presentation.
            _ => {}
        }
        Ok(())
    }

    fn open(
        &mut self,
        at: Position,
        anchor: usize,
        tag: Option<&Tag>,
        is_map: bool,
    ) -> Result<(), SyntaxError> {
        if self.frames.len() >= MAX_DEPTH {
            return Err(too_deep(at));
        }
        let tag = tag.map(spelling);
        self.frames.push(Frame { at, tag, anchor, items: Vec::new(), is_map, height: 0 });
        Ok(())
    }

    fn close(&mut self) {
        let Some(frame) = self.frames.pop() else { return };
        let Frame { at, tag, anchor, items, is_map, height } = frame;
        let content = if is_map {
            let mut entries = Vec::with_capacity(items.len() / 2);
            let mut items = items.into_iter();
            while let (Some(key), Some(value)) = (items.next(), items.next()) {
                entries.push((key, value));
            }
            Written::Map(entries)
        } else {
            Written::List(items)
        };
        let node = WrittenNode { at, tag, content };
        self.remember(anchor, &node, height + 1);
        self.push(node, height + 1);
    }

    fn alias(&mut self, anchor: usize, at: Position) -> Result<(), SyntaxError> {
        let Some(anchored) = self.anchors.get(&anchor) else {
            return Err(SyntaxError {
                at,
                what: "an alias stands for a value that contains it".to_owned(),
                remedy: "write out what the alias stands for",
            });
        };
        if self.frames.len() + anchored.height > MAX_DEPTH {
            return Err(too_deep(at));
        }
        self.aliased += anchored.size;
        if self.aliased > MAX_ALIASED_NODES {
            return Err(SyntaxError {
                at,
                what: "aliases stand for too many values".to_owned(),
                remedy: "split the file, or write out what its aliases stand for",
            });
        }
        let (node, height) = (WrittenNode { at, ..anchored.node.clone() }, anchored.height);
        self.push(node, height);
        Ok(())
    }

    fn remember(&mut self, anchor: usize, node: &WrittenNode, height: usize) {
        if anchor != 0 {
            let size = size(node);
            self.anchors.insert(anchor, Anchored { node: node.clone(), height, size });
        }
    }

    fn push(&mut self, node: WrittenNode, height: usize) {
        match self.frames.last_mut() {
            Some(frame) => {
                frame.height = frame.height.max(height);
                frame.items.push(node);
            }
            None => self.documents.push(node),
        }
    }
}

fn size(node: &WrittenNode) -> usize {
    match &node.content {
        Written::Plain(_) | Written::Quoted(_) => 1,
        Written::List(items) => 1 + items.iter().map(size).sum::<usize>(),
        Written::Map(entries) => 1 + entries.iter().map(|(k, v)| size(k) + size(v)).sum::<usize>(),
    }
}

fn spelling(tag: &Tag) -> String {
    match tag.core_suffix() {
        Some(suffix) => format!("!!{suffix}"),
        None => tag.original(),
    }
}

fn position(span: &Span) -> Position {
    let to_u32 = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Position { line: to_u32(span.start.line()), column: to_u32(span.start.col() + 1) }
}

fn too_deep(at: Position) -> SyntaxError {
    SyntaxError {
        at,
        what: "too many levels".to_owned(),
        remedy: "nest less deeply: at most 100 levels are read",
    }
}

fn explain(error: &ScanError) -> SyntaxError {
    let mark = error.marker();
    let to_u32 = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let at = Position { line: to_u32(mark.line()), column: to_u32(mark.col() + 1) };
    let text = error.info().replace('\n', " ");
    let (what, remedy) = if text.contains("tabs disallowed") {
        ("a tab is used for indentation".to_owned(), "indent with spaces")
    } else if text.contains("nesting") || text.contains("recursion") {
        return too_deep(at);
    } else {
        (format!("not valid YAML: {text}"), "check indentation, brackets and quotes on this line")
    };
    SyntaxError { at, what, remedy }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one(text: &str) -> WrittenNode {
        let mut documents = read_written(text).unwrap();
        assert_eq!(documents.len(), 1);
        documents.remove(0)
    }

    fn entries(node: &WrittenNode) -> &[(WrittenNode, WrittenNode)] {
        let Written::Map(entries) = &node.content else { panic!("{node:?}") };
        entries
    }

    #[test]
    fn scalars_keep_text_style_tag_and_place() {
        let map = one("a: yes\nb: 'no'\nc: !vault |\n  1\n  2\n? \"d\"\n: !!str 7\ne:\n");
        let entries = entries(&map);
        let values: Vec<_> = entries.iter().map(|(_, value)| value.content.clone()).collect();
        let expected = [
            Written::Plain("yes".to_owned()),
            Written::Quoted("no".to_owned()),
            Written::Quoted("1\n2\n".to_owned()),
            Written::Plain("7".to_owned()),
            Written::Plain("~".to_owned()),
        ];
        assert_eq!(values, expected);
        assert_eq!(entries[2].1.tag.as_deref(), Some("!vault"));
        assert_eq!(entries[3].1.tag.as_deref(), Some("!!str"));
        assert_eq!(entries[1].1.at, Position { line: 2, column: 4 });
        assert_eq!(entries[3].0.content, Written::Quoted("d".to_owned()));
    }

    #[test]
    fn duplicate_and_merge_keys_stay() {
        let map = one("x: &x {a: 1}\ny: {<<: *x, a: 2, a: 3}\n");
        let inner = entries(&entries(&map)[1].1);
        assert_eq!(inner.len(), 3);
        assert_eq!(inner[0].1.at, Position { line: 2, column: 9 }, "an alias has its own place");
        assert!(matches!(inner[0].1.content, Written::Map(_)));
    }

    #[test]
    fn bombs_cycles_and_depth_are_refused() {
        let mut bomb = String::from("- &b0 [x, x, x, x, x, x, x, x, x]\n");
        for level in 1..9 {
            let old = level - 1;
            bomb += &format!("- &b{level} [{}]\n", vec![format!("*b{old}"); 9].join(", "));
        }
        let chain = (0..40).fold("- &c0 [x]\n".to_owned(), |text, level| {
            let inner = format!("{}*c{level}{}", "[".repeat(20), "]".repeat(20));
            format!("{text}- &c{} {inner}\n", level + 1)
        });
        let table = [
            ("many values", bomb, "too many values"),
            ("itself", "a: &a [*a]\n".to_owned(), "contains it"),
            ("flow depth", "[".repeat(300), "levels"),
            ("chained depth", chain, "levels"),
            ("a tab", "a:\n\tb: 1\n".to_owned(), "tab"),
            ("no anchor", "a: *b\n".to_owned(), "not valid YAML"),
        ];
        for (why, text, what) in table {
            let error = read_written(&text).unwrap_err();
            assert!(error.to_string().contains(what), "{why}: {error}");
            assert!(error.at.line > 0, "{why}: {error}");
        }
    }

    proptest! {
        /// Both readers accept the same texts, but for what their documentation says.
        #[test]
        fn no_text_makes_it_panic(text in "[a-c:{}\\[\\]\\-#&*!|>'\"%@` \n\t]{0,200}") {
            let _ = read_written(&text);
        }
    }
}
