//! Names that MCAD and InstaScale had for what are keys now.
//!
//! Flags win over the environment, and both over any text. Flags are read strictly, as a command
//! line is; the environment as the originals read it: a switch is on if it says `true` in any letter
//! case, and a number that is none is passed over.

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches};
use serde_json::Value;

use super::form::{Fit, Form};
use super::keys::{self, Key};
use super::values::{Layer, Origin, Remark};

/// One name from before, or one that is a flag in its own right.
#[derive(Clone, Copy, Debug)]
pub struct Name {
    /// The flag.
    pub flag: &'static str,
    /// The variable of the environment.
    pub variable: Option<&'static str>,
    /// What became of it.
    pub now: Now,
    /// Who had it.
    pub whose: Whose,
}

/// What became of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Now {
    /// This key.
    Key(&'static str),
    /// Nothing; the originals read it and did not use it either.
    Dead,
}

/// Whose name it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The usual name for it, in Gantry and elsewhere.
    Usual,
    /// MCAD's.
    Mcad,
}

/// Every name, in the order of the help.
pub const NAMES: &[Name] = &[
    usual("kubeconfig", "clientConnection.kubeconfig"),
    usual("metrics-bind-address", "metrics.bindAddress"),
    usual("health-probe-bind-address", "health.bindAddress"),
    usual("leader-elect", "leaderElection.leaderElect"),
    usual("check-user-access", "mcad.checkUserAccess"),
    mcad("dynamicpriority", Some("DYNAMICPRIORITY"), "mcad.dynamicPriority"),
    mcad("preemption", Some("PREEMPTION"), "mcad.preemption"),
    mcad("backofftime", Some("BACKOFFTIME"), "mcad.backoffTime"),
    mcad("headoflineholdingtime", Some("HEADOFLINEHOLDINGTIME"), "mcad.headOfLineHoldingTime"),
    mcad("quotaEnabled", Some("QUOTA_ENABLED"), "mcad.quotaEnabled"),
    mcad("dispatcher", Some("DISPATCHER_MODE"), "mcad.dispatcher"),
    mcad("agentconfigs", Some("DISPATCHER_AGENT_CONFIGS"), "mcad.agentConfigs"),
    mcad("healthProbeListenAddr", None, "health.bindAddress"),
    dead("secure-port", None),
    dead("quotaURL", Some("QUOTA_REST_URL")),
    dead("dispatchResourceReservationTimeout", Some("DISPATCH_RESOURCE_RESERVATION_TIMEOUT")),
];

const fn usual(flag: &'static str, key: &'static str) -> Name {
    Name { flag, variable: None, now: Now::Key(key), whose: Whose::Usual }
}

const fn mcad(flag: &'static str, variable: Option<&'static str>, key: &'static str) -> Name {
    Name { flag, variable, now: Now::Key(key), whose: Whose::Mcad }
}

const fn dead(flag: &'static str, variable: Option<&'static str>) -> Name {
    Name { flag, variable, now: Now::Dead, whose: Whose::Mcad }
}

impl Name {
    /// The key, unless the name is dead.
    fn key(&self) -> Option<&'static Key> {
        match self.now {
            Now::Key(path) => keys::key(path),
            Now::Dead => None,
        }
    }
}

/// What the command line and the environment say, under any of the names.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// The environment; flags win over it.
    pub environment: Layer,
    /// The flags.
    pub flags: Layer,
    /// What was accepted and has no effect, or may not be meant.
    pub warnings: Vec<Remark>,
}

impl Given {
    /// A flag as it was typed.
    fn flag(&mut self, name: &Name, word: &str) -> Result<(), String> {
        let origin = Origin::Flag(name.flag);
        let Some(key) = name.key() else {
            self.warn(origin, "", DEAD);
            return Ok(());
        };
        let value = match key.form.fit_word(word)? {
            Fit::Is(value) => value,
            // Whoever types it wants the default, whatever a text says.
            Fit::Default => key.default.value(),
        };
        self.flags.set(key.path, value, origin);
        Ok(())
    }

    /// A variable as it was found. An empty one is as good as none.
    fn variable(&mut self, variable: &'static str, name: &Name, word: &str) {
        let origin = Origin::Variable(variable);
        if word.is_empty() {
            return;
        }
        let Some(key) = name.key() else {
            self.warn(origin, "", DEAD);
            return;
        };
        if key.form == Form::Flag {
            let on = word.eq_ignore_ascii_case("true");
            if !on && !word.eq_ignore_ascii_case("false") {
                self.warn(origin.clone(), key.path, format!("found {word:?}, which means false"));
            }
            self.environment.set(key.path, Value::Bool(on), origin);
            return;
        }
        match key.form.fit_word(word) {
            Ok(Fit::Is(value)) => self.environment.set(key.path, value, origin),
            Ok(Fit::Default) => {}
            Err(wrong) => self.warn(origin, key.path, format!("ignored: {wrong}")),
        }
    }

    fn warn(&mut self, origin: Origin, key: &str, text: impl Into<String>) {
        self.warnings.push(Remark { origin, key: key.to_owned(), text: text.into() });
    }
}

const DEAD: &str = "has no effect, as it had none before; remove it";

impl clap::FromArgMatches for Given {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut given = Self::default();
        for name in NAMES {
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

impl clap::Args for Given {
    fn augment_args(command: clap::Command) -> clap::Command {
        NAMES.iter().fold(command, |command, name| command.arg(argument(name)))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

/// How a name is typed. Go's flags of switches take a value only behind an equals sign.
fn argument(name: &Name) -> Arg {
    let mut arg = Arg::new(name.flag).long(name.flag).action(ArgAction::Set);
    arg = match name.key() {
        Some(key) if key.form == Form::Flag => arg
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .value_name("BOOL"),
        Some(key) => arg.value_name(value_name(key.form)),
        None => arg.value_name("VALUE"),
    };
    if let Some(variable) = name.variable {
        arg = arg.env(variable).hide_env_values(true);
    }
    match (name.whose, name.key()) {
        (Whose::Usual, Some(key)) => arg.help(format!("{} The key {}", key.about, key.path)),
        (Whose::Usual | Whose::Mcad, None) => {
            arg.help("Accepted and without effect").hide_short_help(true).help_heading(HEADING)
        }
        (Whose::Mcad, Some(key)) => arg
            .help(format!("Sets {}", key.path))
            .hide_short_help(true)
            .help_heading(HEADING)
            .conflicts_with_all(same_key(name)),
    }
}

/// Flags for the same key: only one of them can be meant.
fn same_key(name: &Name) -> impl Iterator<Item = &'static str> {
    let (flag, now) = (name.flag, name.now);
    NAMES.iter().filter(move |other| other.now == now && other.flag != flag).map(|it| it.flag)
}

/// What the help calls the names of before.
pub const HEADING: &str = "Names of MCAD and InstaScale";

fn value_name(form: Form) -> &'static str {
    match form {
        Form::Flag => "BOOL",
        Form::Integer { .. } | Form::Number => "NUMBER",
        Form::Duration { .. } => "DURATION",
        Form::Address { .. } => "ADDRESS",
        Form::Texts => "LIST",
        Form::Name | Form::Namespace => "NAME",
        Form::Text | Form::Word(_) | Form::Switches | Form::Opaque => "VALUE",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args as _, Command, FromArgMatches as _};
    use serde_json::json;

    fn given(arguments: &[&str]) -> Result<Given, String> {
        let command = Given::augment_args(Command::new("x"));
        let matches = command
            .try_get_matches_from([&["x"], arguments].concat())
            .map_err(|error| error.to_string())?;
        Given::from_arg_matches(&matches).map_err(|error| error.to_string())
    }

    fn of_environment(variable: &str, word: &str) -> Given {
        let mut given = Given::default();
        let name = NAMES.iter().find(|name| name.variable == Some(variable)).unwrap();
        given.variable(name.variable.unwrap(), name, word);
        given
    }

    #[test]
    fn every_name_stands_for_a_key_that_exists() {
        for name in NAMES {
            if let Now::Key(path) = name.now {
                assert!(keys::key(path).is_some(), "--{}", name.flag);
            }
        }
        Given::augment_args(Command::new("x")).debug_assert();
    }

    #[test]
    fn op_14_flags_of_before_become_keys() {
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
    fn dead_names_are_accepted_with_a_warning() {
        let given = given(&["--secure-port=6443", "--quotaURL", "http://x"]).unwrap();
        assert!(given.flags.is_empty());
        let said: Vec<_> = given.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(said, [format!("--secure-port: {DEAD}"), format!("--quotaURL: {DEAD}")]);
        let given = of_environment("DISPATCH_RESOURCE_RESERVATION_TIMEOUT", "300000");
        assert!(given.environment.is_empty() && given.warnings.len() == 1);
    }

    #[test]
    fn op_14_the_environment_is_read_as_it_was() {
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
            let given = of_environment(variable, word);
            let name = NAMES.iter().find(|name| name.variable == Some(variable)).unwrap();
            let value = given.environment.get(name.key().unwrap().path);
            assert_eq!(value, expected.as_ref(), "{variable}={word}");
            assert_eq!(given.warnings.len(), warnings, "{variable}={word}");
        }
    }
}
