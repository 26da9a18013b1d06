//! Variables of the command line.

use gantry_yaml::node::Position;

use crate::finding::Place;
use crate::inventory::ExtraVariables;
use crate::reader::Reader;
use crate::shell_words;
use crate::source::{read_map, read_variables};
use crate::tree::Assignment;
use crate::value::{Node, Value};

/// Reads all `--extra-vars`, in order.
pub(crate) fn read(reader: &mut Reader<'_>, given: &[ExtraVariables]) -> Vec<Assignment> {
    let mut assignments = Vec::new();
    for extra in given {
        match extra {
            ExtraVariables::File(file) => {
                assignments.extend(read_variables(reader, file).assignments);
            }
            ExtraVariables::Text(text) => read_text(reader, text, &mut assignments),
        }
    }
    assignments
}

fn read_text(reader: &mut Reader<'_>, text: &str, assignments: &mut Vec<Assignment>) {
    let file = reader.files.add("--extra-vars", text);
    if text.trim_start().starts_with(['{', '[']) {
        read_map(reader, file, text, assignments);
        return;
    }
    let place = |column: usize| {
        let column = u32::try_from(column + 1).unwrap_or(u32::MAX);
        Place { file, at: Position { line: 1, column } }
    };
    let Ok(words) = shell_words::split(text, false) else {
        reader.error(place(0), 1, "a quote is not closed", "expected a second quote");
        return;
    };
    for word in words {
        let at = place(word.column);
        match word.text.split_once('=').filter(|(name, _)| !name.is_empty()) {
            Some((name, value)) => assignments.push(Assignment {
                name: name.to_owned(),
                at,
                value: Node { at, value: Value::Text(value.to_owned()) },
            }),
            None => {
                let remedy = "expected name=value, a map in YAML or JSON, or @FILE";
                reader.error(at, word.text.chars().count(), "not a variable", remedy);
            }
        }
    }
}
