//! `docs/operator-configuration.md`: every key of the operator and every name from before.

use std::fmt::Write as _;

use gantry::config::form::Form;
use gantry::config::keys::{Effect, KEYS, Key, Usual};
use gantry::config::legacy::{NAMES, Now};

use super::Generated;
use crate::tree::Tree;

/// Makes the page from the tables the program uses.
pub(super) fn make(_: &Tree) -> anyhow::Result<Vec<Generated>> {
    let mut page = String::from(
        "# Configuration of the operator\n\n\
         Every key of the configuration that `gantry operator` reads, and every flag and variable \
         that sets one.\nThe page is made from the tables the program uses. \
         [Running the operator](operator.md) says where the configuration is\nlooked for, what wins \
         over what, and how to move from MCAD, InstaScale and the CodeFlare operator.\n\n\
         ## Keys\n\n\
         All keys are optional; null stands for the default. \"At once\" means that a running \
         operator takes a change over;\n[the others](operator.md#changing-it-while-the-operator-runs) \
         need a start.\n\n\
         | Key | Type | Default | Meaning | A change acts |\n|---|---|---|---|---|\n",
    );
    for key in KEYS.iter() {
        let Key { path, form, default, effect, about } = key;
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
    for name in NAMES {
        let variable = name.variable.map_or_else(|| "–".to_owned(), |it| format!("`{it}`"));
        let key = match name.now {
            Now::Key(path) => format!("`{path}`"),
            Now::Dead => "none: accepted with a warning, without effect here as before".to_owned(),
        };
        writeln!(page, "| `--{}` | {variable} | {key} |", name.flag)?;
    }
    Ok(vec![Generated { path: "docs/operator-configuration.md".to_owned(), content: page }])
}

fn called(form: Form) -> String {
    match form {
        Form::Word(words) => {
            words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(" or ")
        }
        Form::Flag
        | Form::Integer { .. }
        | Form::Number
        | Form::Text
        | Form::Duration { .. }
        | Form::Address { .. }
        | Form::Name
        | Form::Namespace
        | Form::Texts
        | Form::Switches
        | Form::Opaque => form.called().to_owned(),
    }
}

fn shown(default: Usual) -> String {
    match default {
        Usual::Unset => "unset".to_owned(),
        Usual::Empty | Usual::Text("") => "empty".to_owned(),
        Usual::Flag(flag) => format!("`{flag}`"),
        Usual::Count(number) => format!("`{number}`"),
        Usual::Text(text) => format!("`{text}`"),
    }
}
