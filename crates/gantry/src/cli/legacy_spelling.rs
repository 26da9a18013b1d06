//! Translates command lines of the original: options with one dash, as Go programs have them.

use std::ffi::OsString;

/// Options of the original `schedule` that take a value, and its only one that does not.
const VALUE_FLAGS: [&str; 6] = ["kubeconfig", "nodes", "claim", "pools", "claims", "pod"];
const SWITCH_FLAGS: [(&str, &str); 1] = [("-v", "--verbose")];

/// Returns the command line as this program spells it. Only `schedule` is translated: everywhere
/// else one dash means one letter.
pub(super) fn translate_legacy_flags(arguments: Vec<OsString>) -> Vec<OsString> {
    let words = arguments.iter().map(|word| word.to_str().unwrap_or_default());
    let Some(at) = words.clone().position(|word| word == "schedule") else { return arguments };
    // Before the command there are global options and the name of its group.
    let command =
        words.skip(1).find(|word| matches!(*word, "schedule" | "devices") || is_command(word));
    if !matches!(command, Some("schedule" | "devices")) {
        return arguments;
    }
    let respell = |word: OsString| {
        let Some(text) = word.to_str() else { return word };
        if let Some((_, new)) = SWITCH_FLAGS.iter().find(|(old, _)| *old == text) {
            return OsString::from(*new);
        }
        let Some(rest) = text.strip_prefix('-').filter(|rest| !rest.starts_with('-')) else {
            return word;
        };
        let name = rest.split_once('=').map_or(rest, |(name, _)| name);
        if VALUE_FLAGS.contains(&name) { OsString::from(format!("-{text}")) } else { word }
    };
    let mut respelled = Vec::with_capacity(arguments.len());
    for (place, word) in arguments.into_iter().enumerate() {
        respelled.push(if place > at { respell(word) } else { word });
    }
    respelled
}

/// Returns whether a word is the name of a command, so that what follows are its arguments.
fn is_command(word: &str) -> bool {
    super::command().get_subcommands().any(|command| command.get_name() == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn the_original_spellings_are_understood() {
        let table = [
            (
                "gantry schedule -v -kubeconfig F web",
                "gantry schedule --verbose --kubeconfig F web",
            ),
            ("gantry schedule -nodes=N -claim C pod", "gantry schedule --nodes=N --claim C pod"),
            (
                "gantry devices schedule -pools P -claims C select",
                "gantry devices schedule --pools P --claims C select",
            ),
            ("gantry schedule -pod web pod", "gantry schedule --pod web pod"),
            ("gantry -v 4 schedule -n ns web", "gantry -v 4 schedule -n ns web"),
            ("gantry schedule --pools P -o json", "gantry schedule --pools P -o json"),
        ];
        for (original, expected) in table {
            assert_eq!(translate_legacy_flags(line(original)), line(expected), "{original}");
        }
    }

    #[test]
    fn other_commands_are_left_alone() {
        for text in ["gantry check -v 3 schedule", "gantry up -v 2", "gantry"] {
            assert_eq!(translate_legacy_flags(line(text)), line(text));
        }
    }
}
