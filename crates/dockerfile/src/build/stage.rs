//! The state of a stage, and instructions that change settings.

use std::collections::BTreeMap;
use std::rc::Rc;

use gantry_oci::TreePath;
use gantry_oci::build::ImageBuilder;
use gantry_oci::layer::{Attributes, Mtime, NewEntry};
use serde_json::{Map, Value, json};

use super::error::{BuildError, StepProblem};
use super::file_system::{FileSystem, LowerImage, Node, NodeKind};
use super::{Build, PREDEFINED_ARGUMENTS};
use crate::error::DockerfileError;
use crate::expand::{self, ExpandError};
use crate::instruction::{Command, Healthcheck, Instruction, Step};

/// The shell of commands that are texts.
const DEFAULT_SHELL: [&str; 2] = ["/bin/sh", "-c"];

/// The most ports of an image.
const MAX_PORTS: usize = 1000;

/// The most bytes of all variables, labels and other settings of a stage.
const MAX_SETTINGS_BYTES: usize = 1 << 20;

/// What a stage is based on.
#[derive(Clone)]
pub(super) enum StageBase<'a> {
    Scratch,
    Image(Rc<LowerImage<'a>>),
}

/// A stage while it is built, and after that for other stages.
#[derive(Clone)]
pub(super) struct StageState<'a> {
    pub(super) base: StageBase<'a>,
    pub(super) file_system: FileSystem<'a>,
    /// Settings for containers, as an image's configuration has them, without `Env`.
    settings: Map<String, Value>,
    pub(super) env: Vec<(String, String)>,
    args: BTreeMap<String, String>,
    author: Option<String>,
    /// Whether this stage has set `CMD`, so that `ENTRYPOINT` keeps it.
    command_is_own: bool,
    /// Whether files are missing that a real build would have: commands were simulated, or the
    /// base image is not there.
    pub(super) incomplete: bool,
    history: Vec<HistoryStep>,
    modules: Vec<TreePath>,
}

#[derive(Clone)]
struct HistoryStep {
    entries: Option<Vec<NewEntry>>,
    created_by: String,
    comment: &'static str,
}

impl<'a> StageState<'a> {
    pub(super) fn new(base: StageBase<'a>, file_system: FileSystem<'a>) -> Self {
        Self {
            base,
            file_system,
            settings: Map::new(),
            env: Vec::new(),
            args: BTreeMap::new(),
            author: None,
            command_is_own: false,
            incomplete: false,
            history: Vec::new(),
            modules: Vec::new(),
        }
    }

    pub(super) fn on_image(lower: Rc<LowerImage<'a>>, file_system: FileSystem<'a>) -> Self {
        let settings = lower.config().object().get("config").and_then(Value::as_object).cloned();
        let mut settings = settings.unwrap_or_default();
        let env = match settings.remove("Env") {
            Some(Value::Array(variables)) => variables
                .iter()
                .filter_map(|variable| variable.as_str()?.split_once('='))
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
            _ => Vec::new(),
        };
        let new = Self::new(StageBase::Image(lower), file_system);
        Self { settings, env, ..new }
    }

    /// The state of a stage that is based on this one.
    pub(super) fn child(&self) -> Self {
        Self { command_is_own: false, ..self.clone() }
    }

    /// Whether the base image has `ONBUILD` instructions.
    pub(super) fn has_triggers(&self) -> bool {
        let triggers = self.settings.get("OnBuild").and_then(Value::as_array);
        triggers.is_some_and(|triggers| !triggers.is_empty())
    }

    pub(super) fn working_directory(&self) -> &str {
        match self.settings.get("WorkingDir").and_then(Value::as_str) {
            None | Some("") => "/",
            Some(path) => path,
        }
    }

    pub(super) fn user(&self) -> &str {
        self.settings.get("User").and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn shell(&self) -> Vec<String> {
        let shell = self.settings.get("Shell").and_then(Value::as_array);
        let words: Vec<String> = shell
            .map(|shell| shell.iter().filter_map(Value::as_str).map(str::to_owned).collect())
            .unwrap_or_default();
        if words.is_empty() { DEFAULT_SHELL.map(str::to_owned).to_vec() } else { words }
    }

    /// The value of a variable. The environment counts more than arguments.
    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        let env = self.env.iter().find(|(own, _)| own == name).map(|(_, value)| value);
        env.or_else(|| self.args.get(name)).map(String::as_str)
    }

    pub(super) fn set_variable(&mut self, name: &str, value: String) {
        match self.env.iter_mut().find(|(own, _)| own == name) {
            Some(variable) => variable.1 = value,
            None => self.env.push((name.to_owned(), value)),
        }
    }

    /// Makes a layer of what was written since the last one.
    pub(super) fn commit(&mut self, created_by: &str, comment: &'static str) {
        let entries = self.file_system.take_changes();
        let entries = (!entries.is_empty()).then_some(entries);
        self.history.push(HistoryStep { entries, created_by: created_by.to_owned(), comment });
    }

    pub(super) fn layer_count(&self) -> usize {
        let lower = match &self.base {
            StageBase::Scratch => 0,
            StageBase::Image(lower) => lower.manifest().layers().len(),
        };
        lower + self.history.iter().filter(|step| step.entries.is_some()).count()
    }

    pub(super) fn add_module(&mut self, path: TreePath) {
        self.modules.push(path);
    }

    pub(super) fn is_module(&self, path: &TreePath) -> bool {
        self.modules.contains(path)
    }

    pub(super) fn synthetic_modules(&self) -> Vec<String> {
        let mut paths: Vec<String> = self.modules.iter().map(TreePath::to_string).collect();
        paths.sort();
        paths.dedup();
        paths
    }

    /// Gives layers, history and settings to a builder of images.
    pub(super) fn configure(self, mut builder: ImageBuilder) -> Result<ImageBuilder, BuildError> {
        for step in self.history {
            builder = match step.entries {
                None => builder.history(&step.created_by, step.comment),
                Some(entries) => builder.exact_layer(entries, &step.created_by, step.comment)?,
            };
        }
        if let Some(author) = &self.author {
            builder = builder.author(author);
        }
        for (name, value) in &self.env {
            builder = builder.variable(name, value);
        }
        for (key, value) in self.settings {
            builder = builder.set(&key, value);
        }
        Ok(builder)
    }

    /// A setting that is an object. Another value, of a base image, is replaced.
    fn object_setting(&mut self, key: &str) -> &mut Map<String, Value> {
        let value = self.settings.entry(key).or_insert_with(|| json!({}));
        if !value.is_object() {
            *value = json!({});
        }
        value.as_object_mut().expect("it was made an object one line above")
    }

    fn settings_bytes(&self) -> usize {
        let env = self.env.iter().map(|(name, value)| name.len() + value.len());
        let bytes: usize = env.chain(self.args.values().map(String::len)).sum();
        bytes + self.settings.values().map(|value| value.to_string().len()).sum::<usize>()
    }
}

impl<'a> Build<'a> {
    /// Carries out one instruction.
    pub(super) fn step(
        &mut self,
        state: &mut StageState<'a>,
        step: &Step,
    ) -> Result<(), BuildError> {
        let fail = |problem| BuildError::at(step.line, &step.text, problem);
        match &step.instruction {
            Instruction::Copy(copy) => self.copy(state, copy, false).map_err(fail)?,
            Instruction::Add(copy) => self.copy(state, copy, true).map_err(fail)?,
            Instruction::Run { command, heredocs, mounts } => {
                self.run(state, command, heredocs, mounts).map_err(fail)?;
                state.incomplete = true;
                state.commit(&step.text, super::run::SIMULATED_COMMENT);
                return Ok(());
            }
            Instruction::OnBuild(_) => {
                let problem = "ONBUILD is for builds of other images, which this builder does not \
                               do; write the instruction into their Dockerfiles";
                return Err(DockerfileError::new(step.line, &step.text, problem).into());
            }
            other => self.set(state, other).map_err(|error| match error {
                SettingError::Expand(error) => {
                    DockerfileError::new(step.line, &step.text, error.to_string()).into()
                }
                SettingError::Problem(problem) => fail(problem),
            })?,
        }
        if state.settings_bytes() > MAX_SETTINGS_BYTES {
            let limit = MAX_SETTINGS_BYTES as u64;
            return Err(fail(StepProblem::Limit { what: "bytes of settings", limit }));
        }
        state.commit(&step.text, "");
        Ok(())
    }

    /// Expands a text with the variables of a stage.
    pub(super) fn expand(&self, state: &StageState<'_>, text: &str) -> Result<String, ExpandError> {
        let lookup = |name: &str| {
            let own = state.variable(name).map(str::to_owned);
            own.or_else(|| self.predefined_argument(name))
        };
        expand::expand(text, self.escape, &lookup)
    }

    /// The value of an argument that need not be declared.
    pub(super) fn predefined_argument(&self, name: &str) -> Option<String> {
        PREDEFINED_ARGUMENTS.contains(&name).then(|| self.args.get(name).cloned()).flatten()
    }

    fn expand_pairs(
        &self,
        state: &StageState<'_>,
        pairs: &[(String, String)],
    ) -> Result<Vec<(String, String)>, ExpandError> {
        let pair = |(name, value): &(String, String)| {
            Ok((self.expand(state, name)?, self.expand(state, value)?))
        };
        pairs.iter().map(pair).collect()
    }

    fn set(
        &mut self,
        state: &mut StageState<'a>,
        instruction: &Instruction,
    ) -> Result<(), SettingError> {
        match instruction {
            Instruction::Cmd(command) => {
                let command = state.command_words(command);
                state.settings.insert("Cmd".to_owned(), json!(command));
                state.command_is_own = true;
            }
            Instruction::Entrypoint(command) => {
                let command = state.command_words(command);
                state.settings.insert("Entrypoint".to_owned(), json!(command));
                if !state.command_is_own {
                    state.settings.insert("Cmd".to_owned(), Value::Null);
                }
            }
            Instruction::Shell(words) => {
                state.settings.insert("Shell".to_owned(), json!(words));
            }
            Instruction::Healthcheck(Healthcheck::None) => {
                let value = json!({ "Test": ["NONE"] });
                state.settings.insert("Healthcheck".to_owned(), value);
            }
            Instruction::Healthcheck(Healthcheck::Test { command, settings }) => {
                let test: Vec<String> = match command {
                    Command::Exec(words) => {
                        ["CMD".to_owned()].iter().chain(words).cloned().collect()
                    }
                    Command::Shell(text) => vec!["CMD-SHELL".to_owned(), text.clone()],
                };
                let mut value = json!({ "Test": test });
                for (key, number) in settings {
                    value[*key] = (*number).into();
                }
                state.settings.insert("Healthcheck".to_owned(), value);
            }
            Instruction::Maintainer(name) => state.author = Some(name.clone()),
            Instruction::Arg(arguments) => {
                for (name, default) in arguments {
                    self.declare(state, name, default.as_deref())?;
                }
            }
            Instruction::Env(pairs) => {
                // All values of one instruction see the environment before it.
                for (name, value) in self.expand_pairs(state, pairs)? {
                    check_name(&name)?;
                    state.set_variable(&name, value);
                }
            }
            Instruction::Label(pairs) => {
                let pairs = self.expand_pairs(state, pairs)?;
                let labels = state.object_setting("Labels");
                labels.extend(pairs.into_iter().map(|(name, value)| (name, value.into())));
            }
            Instruction::User(user) => {
                let user = self.expand(state, user)?;
                state.settings.insert("User".to_owned(), user.into());
            }
            Instruction::StopSignal(signal) => {
                let signal = self.expand(state, signal)?;
                state.settings.insert("StopSignal".to_owned(), signal.into());
            }
            Instruction::Volume(volumes) => {
                for volume in volumes {
                    let volume = self.expand(state, volume)?;
                    state.object_setting("Volumes").insert(volume, json!({}));
                }
            }
            Instruction::Expose(ports) => {
                for ports in ports {
                    let text = self.expand(state, ports)?;
                    let all = state.object_setting("ExposedPorts");
                    for ports in text.split_whitespace().map(parse_ports) {
                        all.extend(ports?.into_iter().map(|port| (port, json!({}))));
                    }
                    if all.len() > MAX_PORTS {
                        let limit = MAX_PORTS as u64;
                        return Err(StepProblem::Limit { what: "ports", limit }.into());
                    }
                }
            }
            Instruction::Workdir(path) => {
                let path = self.expand(state, path)?;
                let path = super::copy::absolute(&path, state.working_directory())?;
                let attributes = Attributes { mode: 0o755, ..self.attributes() };
                state.file_system.write(&path, Node { kind: NodeKind::Directory, attributes })?;
                state.settings.insert("WorkingDir".to_owned(), path.to_string().into());
            }
            Instruction::Copy(_)
            | Instruction::Add(_)
            | Instruction::Run { .. }
            | Instruction::OnBuild(_) => {}
        }
        Ok(())
    }

    /// Attributes of a new file.
    pub(super) fn attributes(&self) -> Attributes {
        let seconds = self.request.created.as_second().max(0);
        let mtime = Mtime { seconds, nanoseconds: 0 };
        Attributes { mode: 0o644, mtime, ..Attributes::default() }
    }

    fn declare(
        &mut self,
        state: &mut StageState<'a>,
        name: &str,
        default: Option<&str>,
    ) -> Result<(), SettingError> {
        check_name(name)?;
        self.used.insert(name.to_owned());
        let default = default.map(|default| self.expand(state, default)).transpose()?;
        let value =
            self.args.get(name).cloned().or(default).or_else(|| {
                self.global.get(name).cloned().or_else(|| self.platform_argument(name))
            });
        if let Some(value) = value {
            state.args.insert(name.to_owned(), value);
        }
        Ok(())
    }
}

impl StageState<'_> {
    fn command_words(&self, command: &Command) -> Vec<String> {
        match command {
            Command::Exec(words) => words.clone(),
            Command::Shell(text) if text.is_empty() => Vec::new(),
            Command::Shell(text) => {
                let mut words = self.shell();
                words.push(text.clone());
                words
            }
        }
    }
}

fn check_name(name: &str) -> Result<(), StepProblem> {
    if name.is_empty() || name.contains(['=', '\0']) || name.contains(char::is_whitespace) {
        let problem = format!("cannot use {name:?} as the name of a variable");
        return Err(StepProblem::Message(problem));
    }
    Ok(())
}

/// Reads a port or a range of ports, each with its protocol.
fn parse_ports(text: &str) -> Result<Vec<String>, StepProblem> {
    let refuse = || {
        StepProblem::Message(format!(
            "cannot use {text:?} as a port; write for instance 8080, 53/udp or 8000-8010"
        ))
    };
    let (ports, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
    let protocol = protocol.to_ascii_lowercase();
    if !matches!(protocol.as_str(), "tcp" | "udp" | "sctp") {
        return Err(refuse());
    }
    let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
    let (first, last): (u16, u16) = match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if first <= last && first > 0 => (first, last),
        _ => return Err(refuse()),
    };
    if usize::from(last - first) >= MAX_PORTS {
        return Err(StepProblem::Limit { what: "ports", limit: MAX_PORTS as u64 });
    }
    Ok((first..=last).map(|port| format!("{port}/{protocol}")).collect())
}

/// Why a setting cannot be set.
#[derive(Debug, thiserror::Error)]
enum SettingError {
    #[error(transparent)]
    Expand(#[from] ExpandError),
    #[error(transparent)]
    Problem(#[from] StepProblem),
}
