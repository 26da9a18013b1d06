//! The flags and variables of MCAD and InstaScale, and the keys that replace them.
//!
//! Flags override the environment, and both override any text. Flags are parsed strictly, as a
//! command line is; the environment is parsed as the originals did: a switch is on if its value is
//! `true` in any letter case, and an invalid number is ignored.

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches};
use serde_json::Value;

use super::keys::{self, Key};
use super::value_type::{ParsedValue, ValueType};
use super::values::{ConfigMessage, Layer, Origin};

/// One legacy flag, or a flag that is still standard.
#[derive(Clone, Copy, Debug)]
pub struct LegacyFlag {
    /// The flag.
    pub flag: &'static str,
    /// The environment variable.
    pub variable: Option<&'static str>,
    /// What replaces it.
    pub replacement: Replacement,
    /// Where it comes from.
    pub origin: FlagOrigin,
}

/// What replaces a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replacement {
    /// This key.
    Key(&'static str),
    /// Nothing; the originals read it and did not use it either.
    NoEffect,
}

/// The origin of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlagOrigin {
    /// A standard name, in Gantry and elsewhere.
    Standard,
    /// MCAD's.
    Mcad,
}

/// Every flag, in the order of the help.
pub const LEGACY_FLAGS: &[LegacyFlag] = &[
    standard("kubeconfig", "clientConnection.kubeconfig"),
    standard("metrics-bind-address", "metrics.bindAddress"),
    standard("health-probe-bind-address", "health.bindAddress"),
    standard("leader-elect", "leaderElection.leaderElect"),
    standard("check-user-access", "mcad.checkUserAccess"),
    mcad("dynamicpriority", Some("DYNAMICPRIORITY"), "mcad.dynamicPriority"),
    mcad("preemption", Some("PREEMPTION"), "mcad.preemption"),
    mcad("backofftime", Some("BACKOFFTIME"), "mcad.backoffTime"),
    mcad("headoflineholdingtime", Some("HEADOFLINEHOLDINGTIME"), "mcad.headOfLineHoldingTime"),
    mcad("quotaEnabled", Some("QUOTA_ENABLED"), "mcad.quotaEnabled"),
    mcad("dispatcher", Some("DISPATCHER_MODE"), "mcad.dispatcher"),
    mcad("agentconfigs", Some("DISPATCHER_AGENT_CONFIGS"), "mcad.agentConfigs"),
    mcad("healthProbeListenAddr", None, "health.bindAddress"),
    no_effect("secure-port", None),
    no_effect("quotaURL", Some("QUOTA_REST_URL")),
    no_effect("dispatchResourceReservationTimeout", Some("DISPATCH_RESOURCE_RESERVATION_TIMEOUT")),
];

const fn standard(flag: &'static str, key: &'static str) -> LegacyFlag {
    LegacyFlag {
        flag,
        variable: None,
        replacement: Replacement::Key(key),
        origin: FlagOrigin::Standard,
    }
}

const fn mcad(flag: &'static str, variable: Option<&'static str>, key: &'static str) -> LegacyFlag {
    LegacyFlag { flag, variable, replacement: Replacement::Key(key), origin: FlagOrigin::Mcad }
}

const fn no_effect(flag: &'static str, variable: Option<&'static str>) -> LegacyFlag {
    LegacyFlag { flag, variable, replacement: Replacement::NoEffect, origin: FlagOrigin::Mcad }
}

impl LegacyFlag {
    /// Returns the key, unless the flag has no effect.
    fn key(&self) -> Option<&'static Key> {
        match self.replacement {
            Replacement::Key(path) => keys::key(path),
            Replacement::NoEffect => None,
        }
    }
}

/// The values of the command line and the environment, under any of the names.
#[derive(Clone, Debug, Default)]
pub struct FlagOverrides {
    /// The values of the environment; flags override them.
    pub environment: Layer,
    /// The values of flags.
    pub flags: Layer,
    /// Warnings about values that have no effect or may be mistakes.
    pub warnings: Vec<ConfigMessage>,
}

impl FlagOverrides {
    /// Adds a flag as it was typed.
    fn flag(&mut self, name: &LegacyFlag, word: &str) -> Result<(), String> {
        let origin = Origin::Flag(name.flag);
        let Some(key) = name.key() else {
            self.warn(origin, "", DEAD);
            return Ok(());
        };
        let value = match key.value_type.parse_str(word)? {
            ParsedValue::Set(value) => value,
            // A user who types it wants the default, whatever a text says.
            ParsedValue::Default => key.default.value(),
        };
        self.flags.set(key.path, value, origin);
        Ok(())
    }

    /// Adds an environment variable. An empty one is ignored.
    fn variable(&mut self, variable: &'static str, name: &LegacyFlag, word: &str) {
        let origin = Origin::Variable(variable);
        if word.is_empty() {
            return;
        }
        let Some(key) = name.key() else {
            self.warn(origin, "", DEAD);
            return;
        };
        if key.value_type == ValueType::Bool {
            let on = word.eq_ignore_ascii_case("true");
            if !on && !word.eq_ignore_ascii_case("false") {
                self.warn(origin.clone(), key.path, format!("found {word:?}, which means false"));
            }
            self.environment.set(key.path, Value::Bool(on), origin);
            return;
        }
        match key.value_type.parse_str(word) {
            Ok(ParsedValue::Set(value)) => self.environment.set(key.path, value, origin),
            Ok(ParsedValue::Default) => {}
            Err(wrong) => self.warn(origin, key.path, format!("ignored: {wrong}")),
        }
    }

    fn warn(&mut self, origin: Origin, key: &str, text: impl Into<String>) {
        self.warnings.push(ConfigMessage { origin, key: key.to_owned(), text: text.into() });
    }
}

const DEAD: &str = "has no effect, as it had none before; remove it";

impl clap::FromArgMatches for FlagOverrides {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut given = Self::default();
        for name in LEGACY_FLAGS {
            let Some(word) = matches.get_one::<String>(name.flag) else { continue };
            match (matches.value_source(name.flag), name.variable) {
                (Some(ValueSource::EnvVariable), Some(variable)) => {
                    given.variable(variable, name, word);
                }
                _ => given.flag(name, word).map_err(|wrong| {
                    let flag = name.flag;
                    let text = format!("invalid value '{word}' for '--{flag}': {wrong}");
                    clap::Error::raw(ErrorKind::ValueValidation, text)
                })?,
            }
        }
        Ok(given)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for FlagOverrides {
    fn augment_args(command: clap::Command) -> clap::Command {
        LEGACY_FLAGS.iter().fold(command, |command, name| command.arg(argument(name)))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

/// Returns the clap argument of a flag. Go's boolean flags accept a value only after an equals
/// sign.
fn argument(name: &LegacyFlag) -> Arg {
    let mut arg = Arg::new(name.flag).long(name.flag).action(ArgAction::Set);
    arg = match name.key() {
        Some(key) if key.value_type == ValueType::Bool => arg
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .value_name("BOOL"),
        Some(key) => arg.value_name(value_name(key.value_type)),
        None => arg.value_name("VALUE"),
    };
    if let Some(variable) = name.variable {
        arg = arg.env(variable).hide_env_values(true);
    }
    match (name.origin, name.key()) {
        (FlagOrigin::Standard, Some(key)) => {
            arg.help(format!("{} The key {}", key.about, key.path))
        }
        (FlagOrigin::Standard | FlagOrigin::Mcad, None) => {
            arg.help("Accepted without effect").hide_short_help(true).help_heading(HEADING)
        }
        (FlagOrigin::Mcad, Some(key)) => arg
            .help(format!("Sets {}", key.path))
            .hide_short_help(true)
            .help_heading(HEADING)
            .conflicts_with_all(same_key(name)),
    }
}

/// Groups flags for the same key: only one of them may be given.
fn same_key(name: &LegacyFlag) -> impl Iterator<Item = &'static str> {
    let (flag, now) = (name.flag, name.replacement);
    LEGACY_FLAGS
        .iter()
        .filter(move |other| other.replacement == now && other.flag != flag)
        .map(|it| it.flag)
}

/// The heading of the legacy flags in the help.
pub const HEADING: &str = "Names of MCAD and InstaScale";

fn value_name(form: ValueType) -> &'static str {
    match form {
        ValueType::Bool => "BOOL",
        ValueType::Integer { .. } | ValueType::Number => "NUMBER",
        ValueType::Duration { .. } => "DURATION",
        ValueType::Address { .. } => "ADDRESS",
        ValueType::Texts => "LIST",
        ValueType::Name | ValueType::Namespace => "NAME",
        ValueType::Text | ValueType::Word(_) | ValueType::Switches | ValueType::Opaque => "VALUE",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args as _, Command, FromArgMatches as _};
    use serde_json::json;

    fn given(arguments: &[&str]) -> Result<FlagOverrides, String> {
        let command = FlagOverrides::augment_args(Command::new("x"));
        let matches = command
            .try_get_matches_from([&["x"], arguments].concat())
            .map_err(|error| error.to_string())?;
        FlagOverrides::from_arg_matches(&matches).map_err(|error| error.to_string())
    }

    fn from_environment(variable: &str, word: &str) -> FlagOverrides {
        let mut given = FlagOverrides::default();
        let name = LEGACY_FLAGS.iter().find(|name| name.variable == Some(variable)).unwrap();
        given.variable(name.variable.unwrap(), name, word);
        given
    }

    #[test]
    fn every_flag_maps_to_an_existing_key() {
        for name in LEGACY_FLAGS {
            if let Replacement::Key(path) = name.replacement {
                assert!(keys::key(path).is_some(), "--{}", name.flag);
            }
        }
        FlagOverrides::augment_args(Command::new("x")).debug_assert();
    }

    #[test]
    fn op_14_legacy_flags_become_keys() {
        let table = [
            ("--dynamicpriority", "mcad.dynamicPriority", json!(true)),
            ("--dynamicpriority=false", "mcad.dynamicPriority", json!(false)),
            ("--preemption=T", "mcad.preemption", json!(true)),
            ("--backofftime=5", "mcad.backoffTime", json!(5)),
            ("--headoflineholdingtime=7", "mcad.headOfLineHoldingTime", json!(7)),
            ("--quotaEnabled", "mcad.quotaEnabled", json!(true)),
            ("--dispatcher=true", "mcad.dispatcher", json!(true)),
            ("--agentconfigs=a:x,b:y", "mcad.agentConfigs", json!(["a:x", "b:y"])),
            ("--kubeconfig=/k", "clientConnection.kubeconfig", json!("/k")),
            ("--healthProbeListenAddr=:9", "health.bindAddress", json!(":9")),
            ("--metrics-bind-address=:1", "metrics.bindAddress", json!(":1")),
            ("--health-probe-bind-address=:2", "health.bindAddress", json!(":2")),
            ("--leader-elect", "leaderElection.leaderElect", json!(true)),
            ("--metrics-bind-address=", "metrics.bindAddress", json!("127.0.0.1:8080")),
            ("--health-probe-bind-address=", "health.bindAddress", json!("")),
        ];
        for (argument, key, expected) in table {
            let given = given(&[argument]).unwrap();
            assert_eq!(given.flags.get(key), Some(&expected), "{argument}");
            assert_eq!(given.warnings, [], "{argument}");
        }
        assert_eq!(
            given(&["--backofftime", "5"]).unwrap().flags.get("mcad.backoffTime"),
            Some(&json!(5))
        );
    }

    #[test]
    fn flags_that_are_wrong_are_refused_by_name() {
        let table = [
            (
                "--backofftime=x",
                "invalid value 'x' for '--backofftime': found \"x\", expected a whole",
            ),
            ("--backofftime=-1", "invalid value '-1' for '--backofftime': found -1, expected"),
            ("--preemption=maybe", "'--preemption': found \"maybe\", expected true or false"),
            (
                "--metrics-bind-address=8080",
                "'--metrics-bind-address': found \"8080\", expected a port",
            ),
        ];
        for (argument, expected) in table {
            let said = given(&[argument]).unwrap_err();
            assert!(said.contains(expected), "{argument}: {said}");
        }
        let both = given(&["--healthProbeListenAddr=:1", "--health-probe-bind-address=:2"]);
        assert!(both.unwrap_err().contains("cannot be used with"));
    }

    #[test]
    fn flags_without_effect_warn() {
        let given = given(&["--secure-port=6443", "--quotaURL", "http://x"]).unwrap();
        assert!(given.flags.is_empty());
        let said: Vec<_> = given.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(said, [format!("--secure-port: {DEAD}"), format!("--quotaURL: {DEAD}")]);
        let given = from_environment("DISPATCH_RESOURCE_RESERVATION_TIMEOUT", "300000");
        assert!(given.environment.is_empty() && given.warnings.len() == 1);
    }

    #[test]
    fn op_14_legacy_variables_are_read() {
        let table = [
            ("PREEMPTION", "true", Some(json!(true)), 0),
            ("PREEMPTION", "TRUE", Some(json!(true)), 0),
            ("PREEMPTION", "false", Some(json!(false)), 0),
            ("PREEMPTION", "1", Some(json!(false)), 1),
            ("PREEMPTION", "", None, 0),
            ("BACKOFFTIME", "7", Some(json!(7)), 0),
            ("BACKOFFTIME", "soon", None, 1),
            ("BACKOFFTIME", "-7", None, 1),
            ("DISPATCHER_AGENT_CONFIGS", "a:x,b:y", Some(json!(["a:x", "b:y"])), 0),
        ];
        for (variable, word, expected, warnings) in table {
            let given = from_environment(variable, word);
            let name = LEGACY_FLAGS.iter().find(|name| name.variable == Some(variable)).unwrap();
            let value = given.environment.get(name.key().unwrap().path);
            assert_eq!(value, expected.as_ref(), "{variable}={word}");
            assert_eq!(given.warnings.len(), warnings, "{variable}={word}");
        }
    }
}
