//! Generates `docs/operator-configuration.md`: every key of the operator and every legacy name.

use std::fmt::Write as _;

use gantry::config::keys::{DefaultValue, Effect, KEYS, Key};
use gantry::config::legacy::{LEGACY_FLAGS, Replacement};
use gantry::config::value_type::ValueType;

use super::Generated;
use crate::tree::Tree;

/// Renders the page from the tables the program uses.
pub(super) fn make(_: &Tree) -> anyhow::Result<Vec<Generated>> {
    let mut page = String::from(
        "# Configuration of the operator\n\n\
         Every key of the configuration that `gantry operator` reads, and every flag and variable \
         that sets one.\nThe page is made from the tables the program uses. [Running the \
         operator](operator.md) says where the configuration is\nlooked for, what wins over what, \
         and how to move from MCAD, InstaScale and the CodeFlare operator.\n\n\
         ## Keys\n\n\
         All keys are optional; null stands for the default. \"At once\" means that a running \
         operator takes a change over;\n[the \
         others](operator.md#changing-it-while-the-operator-runs) need a start.\n\n\
         | Key | Type | Default | Meaning | A change acts |\n|---|---|---|---|---|\n",
    );
    for key in KEYS.iter() {
        let Key { path, value_type: form, default, effect, about } = key;
        let acts = match effect {
            Effect::Live => "at once",
            Effect::Restart => "after a start",
            Effect::Never(_) => "never",
        };
        let (form, default) = (called(*form), shown(*default));
        writeln!(page, "| `{path}` | {form} | {default} | {about} | {acts} |")?;
    }
    page.push_str(
        "\n## Flags and variables\n\n\
         A flag wins over its variable, and both over the file and the ConfigMap. Flags without a \
         variable of their own\nare the usual names; the others are MCAD's.\n\n\
         | Flag | Variable | Key |\n|---|---|---|\n",
    );
    for name in LEGACY_FLAGS {
        let variable = name.variable.map_or_else(|| "–".to_owned(), |it| format!("`{it}`"));
        let key = match name.replacement {
            Replacement::Key(path) => format!("`{path}`"),
            Replacement::NoEffect => {
                "none: accepted with a warning, without effect here as before".to_owned()
            }
        };
        writeln!(page, "| `--{}` | {variable} | {key} |", name.flag)?;
    }
    Ok(vec![Generated { path: "docs/operator-configuration.md".to_owned(), content: page }])
}

fn called(form: ValueType) -> String {
    match form {
        ValueType::Word(words) => {
            words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(" or ")
        }
        ValueType::Bool
        | ValueType::Integer { .. }
        | ValueType::Number
        | ValueType::Text
        | ValueType::Duration { .. }
        | ValueType::Address { .. }
        | ValueType::Name
        | ValueType::Namespace
        | ValueType::Texts
        | ValueType::Switches
        | ValueType::Opaque => form.type_name().to_owned(),
    }
}

fn shown(default: DefaultValue) -> String {
    match default {
        DefaultValue::Unset => "unset".to_owned(),
        DefaultValue::Empty | DefaultValue::Text("") => "empty".to_owned(),
        DefaultValue::Flag(flag) => format!("`{flag}`"),
        DefaultValue::Count(number) => format!("`{number}`"),
        DefaultValue::Text(text) => format!("`{text}`"),
    }
}
