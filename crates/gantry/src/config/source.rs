//! Chooses the source of the configuration, step by step from what was found, so that nothing is
//! read that is not needed.

use std::path::PathBuf;

/// The default name of the operator's ConfigMap.
pub const OWN: &str = "gantry-config";
/// The ConfigMap of the operator that Gantry replaces. It is read, never written.
pub const LEGACY: &str = "codeflare-operator-config";
/// Returns the name of the ConfigMap in which an operator publishes its effective settings, from
/// the name of the ConfigMap it is configured by.
#[must_use]
pub fn effective_config_map(config: &str) -> String {
    format!("{config}-in-effect")
}
/// The key of the ConfigMap that the operator creates.
pub const WRITTEN_KEY: &str = "config.yaml";

/// What is known so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceState<'a> {
    /// The file of `--config-file`.
    pub file: ConfigFile,
    /// The name of the ConfigMap: [`OWN`], or that of `--config`.
    pub name: &'a str,
    /// The ConfigMap of that name.
    pub named: ConfigMapState,
    /// The ConfigMap [`LEGACY`].
    pub legacy: ConfigMapState,
}

/// The state of the configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigFile {
    /// No file is configured.
    NotConfigured,
    /// The file does not exist. Its volume may be optional, so this is not an error.
    Absent,
    /// The file has this text.
    Text {
        /// The path of the file.
        path: PathBuf,
        /// The whole text.
        text: String,
    },
}

/// The state of a ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigMapState {
    /// It has not been read.
    NotRead,
    /// It does not exist.
    Absent,
    /// It exists with these keys.
    Present {
        /// Keys and texts.
        data: Vec<(String, String)>,
        /// Keys of `binaryData`.
        binary: Vec<String>,
    },
}

/// The next step to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextStep<'a> {
    /// Use this text.
    Use {
        /// Its name in messages.
        source: TextSource<'a>,
        /// The whole text.
        text: &'a str,
    },
    /// Read this ConfigMap.
    Read(&'a str),
    /// Create the ConfigMap with the defaults, and use them.
    Create(&'a str),
}

/// The source of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextSource<'a> {
    /// A file.
    File(&'a PathBuf),
    /// A key of the configured ConfigMap.
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

/// A ConfigMap without keys, or with more than one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot use ConfigMap {name}: exactly one data key must exist, found {}",
    found(.data, .binary)
)]
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

/// Returns the next step: use the file if it exists, else the configured ConfigMap, else, if that
/// is Gantry's own, the one of the operator that it replaces, else the defaults.
///
/// # Errors
/// A ConfigMap does not have exactly one key. Such a ConfigMap is not skipped: its author
/// intended it to be used.
pub fn next_step<'a>(seen: &'a SourceState<'_>) -> Result<NextStep<'a>, KeysError> {
    let SourceState { file, name, named, legacy } = seen;
    match file {
        ConfigFile::Text { path, text } => {
            return Ok(NextStep::Use { source: TextSource::File(path), text });
        }
        ConfigFile::NotConfigured | ConfigFile::Absent => {}
    }
    match named {
        ConfigMapState::NotRead => return Ok(NextStep::Read(name)),
        ConfigMapState::Present { data, binary } => {
            let (key, text) = single_key(name, data, binary)?;
            return Ok(NextStep::Use { source: TextSource::Named { name, key }, text });
        }
        ConfigMapState::Absent => {}
    }
    match legacy {
        _ if *name != OWN => Ok(NextStep::Create(name)),
        ConfigMapState::NotRead => Ok(NextStep::Read(LEGACY)),
        ConfigMapState::Present { data, binary } => {
            let (key, text) = single_key(LEGACY, data, binary)?;
            Ok(NextStep::Use { source: TextSource::Legacy { key }, text })
        }
        ConfigMapState::Absent => Ok(NextStep::Create(name)),
    }
}

pub(super) fn single_key<'a>(
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

    fn map(keys: &[&str]) -> ConfigMapState {
        let data = keys.iter().map(|key| ((*key).to_owned(), format!("text of {key}"))).collect();
        ConfigMapState::Present { data, binary: Vec::new() }
    }

    fn step(
        file: &ConfigFile,
        name: &str,
        named: &ConfigMapState,
        legacy: &ConfigMapState,
    ) -> String {
        let seen =
            SourceState { file: file.clone(), name, named: named.clone(), legacy: legacy.clone() };
        match next_step(&seen) {
            Ok(NextStep::Read(name)) => format!("look {name}"),
            Ok(NextStep::Create(name)) => format!("create {name}"),
            Ok(NextStep::Use { source: TextSource::File(path), text }) => {
                format!("file {} {text}", path.display())
            }
            Ok(NextStep::Use { source: TextSource::Named { name, key }, text }) => {
                format!("map {name} {key} {text}")
            }
            Ok(NextStep::Use { source: TextSource::Legacy { key }, text }) => {
                format!("old {key} {text}")
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn cf_6_the_order_of_sources() {
        let file = ConfigFile::Text { path: "/f".into(), text: "t".to_owned() };
        let (unknown, there) = (ConfigMapState::NotRead, map(&["a"]));
        let table = [
            // why                     file            name   named    legacy    expected
            ("a file needs no server", &file, OWN, &unknown, &unknown, "file /f t"),
            ("a file wins", &file, "x", &there, &there, "file /f t"),
            (
                "a map is looked at",
                &ConfigFile::NotConfigured,
                OWN,
                &unknown,
                &unknown,
                "look gantry-config",
            ),
            ("also without its file", &ConfigFile::Absent, "x", &unknown, &unknown, "look x"),
            (
                "it is used",
                &ConfigFile::Absent,
                OWN,
                &there,
                &unknown,
                "map gantry-config a text of a",
            ),
            ("under any name", &ConfigFile::Absent, "x", &there, &unknown, "map x a text of a"),
        ];
        for (why, file, name, named, legacy, expected) in table {
            assert_eq!(step(file, name, named, legacy), expected, "{why}");
        }
    }

    #[test]
    fn cf_7_the_older_name_is_read_when_ours_is_absent() {
        let (unknown, absent, there) =
            (ConfigMapState::NotRead, ConfigMapState::Absent, map(&["a"]));
        let table = [
            ("the older one is looked for", OWN, &unknown, "look codeflare-operator-config"),
            ("it is used", OWN, &there, "old a text of a"),
            ("else ours is created", OWN, &absent, "create gantry-config"),
            ("a name that was given stands alone", "x", &unknown, "create x"),
            ("even if the older one is there", "x", &there, "create x"),
            ("given as our own", LEGACY, &unknown, "create codeflare-operator-config"),
        ];
        for (why, name, legacy, expected) in table {
            assert_eq!(step(&ConfigFile::NotConfigured, name, &absent, legacy), expected, "{why}");
        }
    }

    #[test]
    fn cf_2_a_map_has_exactly_one_key() {
        let cannot = "cannot use ConfigMap gantry-config: exactly one data key must exist, found";
        let both = ConfigMapState::Present {
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
            assert_eq!(
                step(&ConfigFile::NotConfigured, OWN, &named, &ConfigMapState::NotRead),
                expected
            );
        }
        let old = step(&ConfigFile::NotConfigured, OWN, &ConfigMapState::Absent, &map(&["a", "b"]));
        assert!(old.starts_with("cannot use ConfigMap codeflare-operator-config"), "{old}");
    }
}
