//! Where the configuration comes from: decided here from what was found, step by step, so that
//! nothing is looked at that is not needed.

use std::path::PathBuf;

/// The ConfigMap of an operator that was not told another name.
pub const OWN: &str = "gantry-config";
/// The ConfigMap of the operator that Gantry replaces. It is read, never written.
pub const LEGACY: &str = "codeflare-operator-config";
/// The ConfigMap in which an operator publishes the settings in effect, by the name of the ConfigMap
/// it is configured by.
#[must_use]
pub fn in_effect(config: &str) -> String {
    format!("{config}-in-effect")
}
/// The key of a ConfigMap that the operator writes.
pub const WRITTEN_KEY: &str = "config.yaml";

/// What is known so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen<'a> {
    /// The file of `--config-file`.
    pub file: File,
    /// The name of the ConfigMap: [`OWN`], or that of `--config`.
    pub name: &'a str,
    /// The ConfigMap of that name.
    pub named: Map,
    /// The ConfigMap [`LEGACY`].
    pub legacy: Map,
}

/// A file that may be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum File {
    /// None was named.
    Unnamed,
    /// The volume it is in may be optional, so that this is no mistake.
    Absent,
    /// It says this.
    Text {
        /// Where it is.
        path: PathBuf,
        /// All of it.
        text: String,
    },
}

/// A ConfigMap that may be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Map {
    /// Nobody has looked.
    Unknown,
    /// It is not there.
    Absent,
    /// It has this.
    Present {
        /// Keys and texts.
        data: Vec<(String, String)>,
        /// Keys of `binaryData`.
        binary: Vec<String>,
    },
}

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// Use this text.
    Use {
        /// What messages call it.
        source: Source<'a>,
        /// All of it.
        text: &'a str,
    },
    /// Find out about this ConfigMap.
    Look(&'a str),
    /// Create the ConfigMap with the defaults, and use them.
    Create(&'a str),
}

/// Where a text is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source<'a> {
    /// A file.
    File(&'a PathBuf),
    /// A key of the ConfigMap that was named.
    Named {
        /// The ConfigMap.
        name: &'a str,
        /// The key.
        key: &'a str,
    },
    /// A key of the ConfigMap of the operator that Gantry replaces.
    Legacy {
        /// The key.
        key: &'a str,
    },
}

/// A ConfigMap that says nothing, or more than one thing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot use ConfigMap {name}: exactly one data key must exist, found {}", found(.data, .binary))]
pub struct KeysError {
    /// The ConfigMap.
    pub name: String,
    /// Its keys.
    pub data: Vec<String>,
    /// Its keys of `binaryData`.
    pub binary: Vec<String>,
}

fn found(data: &[String], binary: &[String]) -> String {
    let mut found = match data {
        [] => "none".to_owned(),
        keys => format!("{}: {}", keys.len(), keys.join(", ")),
    };
    if !binary.is_empty() {
        found.push_str(&format!("; binaryData does not count ({})", binary.join(", ")));
    }
    found
}

/// What to do next: the file if it is there, else the ConfigMap that was named, else, if that is
/// Gantry's own, the one of the operator that it replaces, else the defaults.
///
/// # Errors
/// A ConfigMap has not exactly one key. None is skipped for that: whoever wrote it means it.
pub fn choose<'a>(seen: &'a Seen<'_>) -> Result<Step<'a>, KeysError> {
    let Seen { file, name, named, legacy } = seen;
    match file {
        File::Text { path, text } => return Ok(Step::Use { source: Source::File(path), text }),
        File::Unnamed | File::Absent => {}
    }
    match named {
        Map::Unknown => return Ok(Step::Look(name)),
        Map::Present { data, binary } => {
            let (key, text) = only(name, data, binary)?;
            return Ok(Step::Use { source: Source::Named { name, key }, text });
        }
        Map::Absent => {}
    }
    match legacy {
        _ if *name != OWN => Ok(Step::Create(name)),
        Map::Unknown => Ok(Step::Look(LEGACY)),
        Map::Present { data, binary } => {
            let (key, text) = only(LEGACY, data, binary)?;
            Ok(Step::Use { source: Source::Legacy { key }, text })
        }
        Map::Absent => Ok(Step::Create(name)),
    }
}

pub(super) fn only<'a>(
    name: &str,
    data: &'a [(String, String)],
    binary: &[String],
) -> Result<(&'a str, &'a str), KeysError> {
    match (data, binary) {
        ([(key, text)], []) => Ok((key, text)),
        _ => Err(KeysError {
            name: name.to_owned(),
            data: data.iter().map(|(key, _)| key.clone()).collect(),
            binary: binary.to_vec(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(keys: &[&str]) -> Map {
        let data = keys.iter().map(|key| ((*key).to_owned(), format!("text of {key}"))).collect();
        Map::Present { data, binary: Vec::new() }
    }

    fn step(file: &File, name: &str, named: &Map, legacy: &Map) -> String {
        let seen = Seen { file: file.clone(), name, named: named.clone(), legacy: legacy.clone() };
        match choose(&seen) {
            Ok(Step::Look(name)) => format!("look {name}"),
            Ok(Step::Create(name)) => format!("create {name}"),
            Ok(Step::Use { source: Source::File(path), text }) => {
                format!("file {} {text}", path.display())
            }
            Ok(Step::Use { source: Source::Named { name, key }, text }) => {
                format!("map {name} {key} {text}")
            }
            Ok(Step::Use { source: Source::Legacy { key }, text }) => format!("old {key} {text}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn cf_6_the_order_of_sources() {
        let file = File::Text { path: "/f".into(), text: "t".to_owned() };
        let (unknown, there) = (Map::Unknown, map(&["a"]));
        let table = [
            // why                     file            name   named    legacy    expected
            ("a file needs no server", &file, OWN, &unknown, &unknown, "file /f t"),
            ("a file wins", &file, "x", &there, &there, "file /f t"),
            ("a map is looked at", &File::Unnamed, OWN, &unknown, &unknown, "look gantry-config"),
            ("also without its file", &File::Absent, "x", &unknown, &unknown, "look x"),
            ("it is used", &File::Absent, OWN, &there, &unknown, "map gantry-config a text of a"),
            ("under any name", &File::Absent, "x", &there, &unknown, "map x a text of a"),
        ];
        for (why, file, name, named, legacy, expected) in table {
            assert_eq!(step(file, name, named, legacy), expected, "{why}");
        }
    }

    #[test]
    fn cf_7_the_older_name_is_read_when_ours_is_absent() {
        let (unknown, absent, there) = (Map::Unknown, Map::Absent, map(&["a"]));
        let table = [
            ("the older one is looked for", OWN, &unknown, "look codeflare-operator-config"),
            ("it is used", OWN, &there, "old a text of a"),
            ("else ours is created", OWN, &absent, "create gantry-config"),
            ("a name that was given stands alone", "x", &unknown, "create x"),
            ("even if the older one is there", "x", &there, "create x"),
            ("given as our own", LEGACY, &unknown, "create codeflare-operator-config"),
        ];
        for (why, name, legacy, expected) in table {
            assert_eq!(step(&File::Unnamed, name, &absent, legacy), expected, "{why}");
        }
    }

    #[test]
    fn cf_2_a_map_has_exactly_one_key() {
        let cannot = "cannot use ConfigMap gantry-config: exactly one data key must exist, found";
        let both = Map::Present {
            data: vec![("a".to_owned(), String::new())],
            binary: vec!["b".to_owned()],
        };
        let table = [
            (map(&["any-name"]), "map gantry-config any-name text of any-name".to_owned()),
            (map(&[]), format!("{cannot} none")),
            (map(&["a", "b"]), format!("{cannot} 2: a, b")),
            (both, format!("{cannot} 1: a; binaryData does not count (b)")),
        ];
        for (named, expected) in table {
            assert_eq!(step(&File::Unnamed, OWN, &named, &Map::Unknown), expected);
        }
        let old = step(&File::Unnamed, OWN, &Map::Absent, &map(&["a", "b"]));
        assert!(old.starts_with("cannot use ConfigMap codeflare-operator-config"), "{old}");
    }
}
