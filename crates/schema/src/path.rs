//! Where in an object a walk stands. Steps live on the stack and become text only for a fault.

use std::fmt::Write;

/// A place in an object, as the way from its root.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path<'up> {
    parent: Option<&'up Path<'up>>,
    step: Step<'up>,
}

#[derive(Clone, Copy, Debug)]
enum Step<'up> {
    Root,
    Field(&'up str),
    Entry(&'up str),
    Index(usize),
}

impl<'up> Path<'up> {
    /// The object itself.
    pub(crate) const ROOT: Path<'static> = Path { parent: None, step: Step::Root };

    /// A declared entry.
    pub(crate) fn field(&'up self, name: &'up str) -> Self {
        Self { parent: Some(self), step: Step::Field(name) }
    }

    /// An entry with a free name.
    pub(crate) fn entry(&'up self, name: &'up str) -> Self {
        Self { parent: Some(self), step: Step::Entry(name) }
    }

    /// An element.
    pub(crate) fn index(&'up self, index: usize) -> Self {
        Self { parent: Some(self), step: Step::Index(index) }
    }

    /// Whether it is the object itself.
    pub(crate) fn is_root(&self) -> bool {
        self.parent.is_none()
    }

    /// As messages about values name it: every name after a point. A free name at the root has one
    /// too, which is how upstream words it.
    pub(crate) fn in_body(&self) -> String {
        self.text(|out, step| match step {
            Step::Root => {}
            Step::Field(name) => dotted(out, name),
            Step::Entry(name) => {
                out.push('.');
                out.push_str(name);
            }
            Step::Index(index) => indexed(out, index),
        })
    }

    /// As the fields of faults are named: free names in brackets. The object itself is `<nil>`.
    pub(crate) fn in_cause(&self) -> String {
        if self.is_root() {
            return "<nil>".to_owned();
        }
        self.in_cause_under("")
    }

    /// As [`in_cause`](Self::in_cause), below another field.
    pub(crate) fn in_cause_under(&self, above: &str) -> String {
        let mut text = above.to_owned();
        self.write(&mut text, |out, step| match step {
            Step::Root => {}
            Step::Field(name) => dotted(out, name),
            Step::Entry(name) => {
                out.push('[');
                out.push_str(name);
                out.push(']');
            }
            Step::Index(index) => indexed(out, index),
        });
        text
    }

    /// As unknown and duplicate fields are named: every name after a point, none before the first.
    pub(crate) fn in_warning(&self) -> String {
        self.text(|out, step| match step {
            Step::Root => {}
            Step::Field(name) | Step::Entry(name) => dotted(out, name),
            Step::Index(index) => indexed(out, index),
        })
    }

    fn text(&self, step: impl Fn(&mut String, Step<'_>) + Copy) -> String {
        let mut out = String::new();
        self.write(&mut out, step);
        out
    }

    fn write(&self, out: &mut String, step: impl Fn(&mut String, Step<'_>) + Copy) {
        if let Some(parent) = self.parent {
            parent.write(out, step);
        }
        step(out, self.step);
    }
}

fn dotted(out: &mut String, name: &str) {
    if !out.is_empty() {
        out.push('.');
    }
    out.push_str(name);
}

fn indexed(out: &mut String, index: usize) {
    write!(out, "[{index}]").expect("writing to a string cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_formatted_per_reader() {
        let root = Path::ROOT;
        let (spec, free) = (root.field("spec"), root.entry("a"));
        let (map, list) = (spec.entry("k"), spec.index(2));
        let table = [
            (&root, "", "<nil>", ""),
            (&spec, "spec", "spec", "spec"),
            (&free, ".a", "[a]", "a"),
            (&map, "spec.k", "spec[k]", "spec.k"),
            (&list, "spec[2]", "spec[2]", "spec[2]"),
        ];
        for (path, body, cause, warning) in table {
            assert_eq!((path.in_body(), path.in_cause()), (body.to_owned(), cause.to_owned()));
            assert_eq!(path.in_warning(), warning);
        }
    }
}
