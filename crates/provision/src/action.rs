//! What is done to a host, and how each action is undone.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::content::{Digest, Salt};
use crate::state::{Observed, State, Want};

/// A change of a host. It says which state is reached, so doing it twice is doing it once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Action {
    /// Writes a file whose bytes come with the request, and the folders above it.
    File {
        /// The absolute path.
        path: String,
        /// What is written.
        digest: Digest,
        /// The permissions.
        mode: u32,
        /// Whether the content is shown as a digest only.
        secret: bool,
    },
    /// Writes back what a file contained before.
    Restore {
        /// The absolute path.
        path: String,
        /// Under which name the content was saved on the host.
        saved: String,
        /// The digest as in the journal.
        digest: Digest,
        /// The permissions.
        mode: u32,
        /// Owner and group.
        owner: (u32, u32),
    },
    /// Makes a folder.
    Directory {
        /// The absolute path.
        path: String,
        /// The permissions.
        mode: u32,
    },
    /// Makes a symbolic link.
    Link {
        /// The absolute path.
        path: String,
        /// Where it leads.
        target: String,
    },
    /// Removes a file, a link, or a folder that is empty.
    Remove {
        /// The absolute path.
        path: String,
    },
    /// Installs packages of the distribution.
    Packages {
        /// Their names.
        names: Vec<String>,
    },
    /// Purges packages that nothing else needs.
    RemovePackages {
        /// Their names.
        names: Vec<String>,
    },
    /// Brings a unit into a state, and restarts it if its configuration is another one.
    Unit {
        /// The name, with its suffix.
        name: String,
        /// Whether it starts with the host.
        enabled: bool,
        /// Whether it runs.
        active: bool,
        /// The digest of the configuration that it has to have been started with.
        config: Option<Digest>,
    },
    /// Sets a kernel setting.
    Sysctl {
        /// The key, with dots.
        key: String,
        /// The value.
        value: String,
    },
    /// Loads a kernel module.
    Module {
        /// The name.
        name: String,
    },
    /// Mounts a file system.
    Mount {
        /// Where it is mounted.
        path: String,
        /// What is mounted.
        source: String,
        /// The type of the file system.
        file_system: String,
        /// The options, with commas.
        options: String,
    },
    /// Unmounts what is mounted at a path.
    Unmount {
        /// Where it is mounted.
        path: String,
    },
    /// Imports an image whose archive comes with the request.
    Image {
        /// The reference.
        reference: String,
        /// The digest of its manifest.
        digest: String,
        /// The digest of the archive.
        archive: Digest,
    },
    /// Removes an image.
    RemoveImage {
        /// The reference.
        reference: String,
    },
    /// Turns swap on or off.
    Swap {
        /// Whether it is in use.
        on: bool,
    },
    /// Runs a program; the last resort.
    Run {
        /// The program by its absolute path, and its arguments.
        argv: Vec<String>,
        /// What exists when it does not have to run.
        creates: Want,
        /// How it is undone.
        undo: Undo,
    },
    /// Runs the program that undoes another.
    RunUndo {
        /// The program by its absolute path, and its arguments.
        argv: Vec<String>,
        /// What does not exist afterwards.
        removes: Want,
    },
}

/// How a program's effect is undone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Undo {
    /// By a program: its absolute path, and its arguments.
    Argv(Vec<String>),
    /// It cannot be undone.
    Impossible(Reason),
}

/// A sentence that is not empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Reason(String);

impl Reason {
    /// Returns nothing for a blank text.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        (!text.is_empty()).then(|| Self(text.to_owned()))
    }
}

impl TryFrom<String> for Reason {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::new(&text).ok_or("a reason must not be empty")
    }
}

impl From<Reason> for String {
    fn from(reason: Reason) -> Self {
        reason.0
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How an action is undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inverse {
    /// By these actions, in this order.
    Actions(Vec<Action>),
    /// Not at all.
    Irreversible(String),
}

impl Action {
    /// The resources that the action changes. Those that it changes besides, as folders above a
    /// file and packages that another needs, are in what is recorded before it.
    #[must_use]
    pub fn targets(&self) -> Vec<Want> {
        match self {
            Self::File { path, .. }
            | Self::Restore { path, .. }
            | Self::Directory { path, .. }
            | Self::Link { path, .. }
            | Self::Remove { path } => vec![Want::Path(path.clone())],
            Self::Packages { names } | Self::RemovePackages { names } => {
                names.iter().cloned().map(Want::Package).collect()
            }
            Self::Unit { name, .. } => vec![Want::Unit(name.clone())],
            Self::Sysctl { key, .. } => vec![Want::Sysctl(key.clone())],
            Self::Module { name } => vec![Want::Module(name.clone())],
            Self::Mount { path, .. } | Self::Unmount { path } => vec![Want::Mount(path.clone())],
            Self::Image { reference, .. } | Self::RemoveImage { reference } => {
                vec![Want::Image(reference.clone())]
            }
            Self::Swap { .. } => vec![Want::Swap],
            Self::Run { creates: want, .. } | Self::RunUndo { removes: want, .. } => {
                vec![want.clone()]
            }
        }
    }

    /// The state in which the action leaves a resource that it changes.
    #[must_use]
    pub fn after(&self, want: &Want) -> State {
        let owner = (0, 0);
        match self {
            Self::File { path, digest, mode, secret: _ } => {
                if *want == Want::Path(path.clone()) {
                    State::File { digest: digest.clone(), mode: *mode, owner }
                } else {
                    State::Directory { mode: PARENT_MODE, owner }
                }
            }
            Self::Restore { path: _, saved: _, digest, mode, owner } => {
                State::File { digest: digest.clone(), mode: *mode, owner: *owner }
            }
            Self::Directory { path, mode } => {
                let own = *want == Want::Path(path.clone());
                State::Directory { mode: if own { *mode } else { PARENT_MODE }, owner }
            }
            Self::Link { path, target } => {
                if *want == Want::Path(path.clone()) {
                    State::Link { target: target.clone() }
                } else {
                    State::Directory { mode: PARENT_MODE, owner }
                }
            }
            Self::Unit { name: _, enabled, active, config } => {
                State::Unit { enabled: *enabled, active: *active, config: config.clone() }
            }
            Self::Sysctl { key: _, value } => State::Value { value: value.clone() },
            Self::Mount { path: _, source, file_system, options: _ } => {
                State::Mounted { source: source.clone(), file_system: file_system.clone() }
            }
            Self::Swap { on: true }
            | Self::Packages { .. }
            | Self::Module { .. }
            | Self::Image { .. }
            | Self::Run { .. } => State::Present,
            Self::Remove { .. }
            | Self::RemovePackages { .. }
            | Self::Unmount { .. }
            | Self::RemoveImage { .. }
            | Self::RunUndo { .. }
            | Self::Swap { on: false } => State::Absent,
        }
    }

    /// Whether a resource is in the state that the action brings it into, so that there is nothing
    /// to do.
    #[must_use]
    pub fn is_reached(&self, want: &Want, state: &State) -> bool {
        match (self, state) {
            // Without a configuration, the one that it runs with is as good as any.
            (
                Self::Unit { name: _, enabled, active, config },
                State::Unit { enabled: is_enabled, active: is_active, config: current },
            ) => {
                let is_configured = config.is_none() || config == current;
                enabled == is_enabled && active == is_active && is_configured
            }
            (Self::Directory { mode, .. }, State::Directory { mode: current, .. }) => {
                mode == current
            }
            (Self::Image { digest, .. }, State::Image { digest: current }) => digest == current,
            (_, state) => state.matches(&self.after(want)),
        }
    }

    /// How the action is undone, from what was there before and where a file was saved. There is no
    /// action without an answer: the compiler asks for it when one is added.
    #[must_use]
    pub fn inverse(&self, before: &Observed, saved: Option<&str>) -> Inverse {
        let mut actions = Vec::new();
        match self {
            Self::Module { .. } => {
                let reason = "other programs may use the module; it is not loaded at the next boot";
                return Inverse::Irreversible(reason.to_owned());
            }
            Self::RemovePackages { .. } => {
                let reason = "the packages may not be to be had any more";
                return Inverse::Irreversible(reason.to_owned());
            }
            Self::RunUndo { .. } => {
                return Inverse::Irreversible("it undoes another program".to_owned());
            }
            Self::RemoveImage { .. } => {
                return Inverse::Irreversible("the image is not on the host any more".to_owned());
            }
            Self::Run { argv: _, creates, undo } => {
                // What existed before was not made by the program.
                if *before.get(creates) != State::Absent {
                    return Inverse::Actions(Vec::new());
                }
                return match undo {
                    Undo::Argv(argv) => Inverse::Actions(vec![Self::RunUndo {
                        argv: argv.clone(),
                        removes: creates.clone(),
                    }]),
                    Undo::Impossible(reason) => Inverse::Irreversible(reason.to_string()),
                };
            }
            Self::Packages { .. } => {
                let absent = before.iter().filter(|(_, state)| **state == State::Absent);
                let name = |(want, _): (&Want, &State)| match want {
                    Want::Package(name) => Some(name.clone()),
                    Want::Path(_)
                    | Want::Text(_)
                    | Want::Unit(_)
                    | Want::Sysctl(_)
                    | Want::Module(_)
                    | Want::Mount(_)
                    | Want::Image(_)
                    | Want::Port(_)
                    | Want::Swap => None,
                };
                let names: Vec<String> = absent.filter_map(name).collect();
                if !names.is_empty() {
                    actions.push(Self::RemovePackages { names });
                }
            }
            Self::File { .. }
            | Self::Restore { .. }
            | Self::Directory { .. }
            | Self::Link { .. }
            | Self::Remove { .. }
            | Self::Unit { .. }
            | Self::Sysctl { .. }
            | Self::Mount { .. }
            | Self::Unmount { .. }
            | Self::Image { .. }
            | Self::Swap { .. } => {
                // Of a path and the folders above it, the longest goes first.
                let mut all: Vec<(&Want, &State)> = before.iter().collect();
                all.sort_by(|one, other| other.0.cmp(one.0));
                for (want, state) in all {
                    match self.back(want, state, saved) {
                        Ok(action) => actions.extend(action),
                        Err(reason) => return Inverse::Irreversible(reason.to_owned()),
                    }
                }
            }
        }
        Inverse::Actions(actions)
    }

    /// The action that brings one resource back.
    fn back(
        &self,
        want: &Want,
        before: &State,
        saved: Option<&str>,
    ) -> Result<Option<Self>, &'static str> {
        if self.after(want) == *before {
            return Ok(None);
        }
        Ok(Some(match (want, before) {
            (Want::Path(path), State::Absent) => Self::Remove { path: path.clone() },
            (Want::Path(path), State::File { digest, mode, owner }) => {
                let saved = saved.ok_or("what the file contained was not saved")?;
                Self::Restore {
                    path: path.clone(),
                    saved: saved.to_owned(),
                    digest: digest.clone(),
                    mode: *mode,
                    owner: *owner,
                }
            }
            (Want::Path(path), State::Directory { mode, owner: _ }) => {
                Self::Directory { path: path.clone(), mode: *mode }
            }
            (Want::Path(path), State::Link { target }) => {
                Self::Link { path: path.clone(), target: target.clone() }
            }
            (Want::Path(_), _) => return Err("it was neither a file nor a folder nor a link"),
            (Want::Unit(name), State::Unit { enabled, active, config: _ }) => {
                Self::Unit { name: name.clone(), enabled: *enabled, active: *active, config: None }
            }
            // The unit came with a package or a file, and goes with it.
            (Want::Unit(name), _) => {
                Self::Unit { name: name.clone(), enabled: false, active: false, config: None }
            }
            (Want::Sysctl(key), State::Value { value }) => {
                Self::Sysctl { key: key.clone(), value: value.clone() }
            }
            (Want::Mount(path), State::Absent) => Self::Unmount { path: path.clone() },
            (Want::Mount(path), State::Mounted { source, file_system }) => Self::Mount {
                path: path.clone(),
                source: source.clone(),
                file_system: file_system.clone(),
                options: "defaults".to_owned(),
            },
            (Want::Image(reference), State::Absent) => {
                Self::RemoveImage { reference: reference.clone() }
            }
            (Want::Image(_), _) => return Ok(None),
            (Want::Swap, state) => Self::Swap { on: *state != State::Absent },
            (Want::Sysctl(_), _) => return Err("the setting was not there"),
            (Want::Mount(_), _) => return Err("it is not known what was mounted"),
            (Want::Text(_) | Want::Package(_) | Want::Module(_) | Want::Port(_), _) => {
                return Err("it is not a resource of this action");
            }
        }))
    }

    /// The action as a journal has it.
    #[must_use]
    pub fn salted(mut self, salt: &Salt) -> Self {
        if let Self::File { digest, .. } | Self::Image { archive: digest, .. } = &mut self {
            *digest = digest.salted(salt);
        }
        if let Self::Unit { config: Some(config), .. } = &mut self {
            *config = config.salted(salt);
        }
        self
    }

    /// The digest of the body that comes with the request, if there is one.
    #[must_use]
    pub fn body(&self) -> Option<&Digest> {
        match self {
            Self::File { digest, .. } | Self::Image { archive: digest, .. } => Some(digest),
            Self::Restore { .. }
            | Self::Directory { .. }
            | Self::Link { .. }
            | Self::Remove { .. }
            | Self::Packages { .. }
            | Self::RemovePackages { .. }
            | Self::Unit { .. }
            | Self::Sysctl { .. }
            | Self::Module { .. }
            | Self::Mount { .. }
            | Self::Unmount { .. }
            | Self::RemoveImage { .. }
            | Self::Swap { .. }
            | Self::Run { .. }
            | Self::RunUndo { .. } => None,
        }
    }
}

/// The permissions of folders that are made above a file.
pub const PARENT_MODE: u32 = 0o755;

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, mode, secret, .. } => {
                let secret = if *secret { ", secret" } else { "" };
                write!(f, "write {path} (mode {mode:04o}{secret})")
            }
            Self::Restore { path, .. } => write!(f, "restore {path}"),
            Self::Directory { path, mode } => write!(f, "make folder {path} (mode {mode:04o})"),
            Self::Link { path, target } => write!(f, "link {path} -> {target}"),
            Self::Remove { path } => write!(f, "remove {path}"),
            Self::Packages { names } => write!(f, "install {}", names.join(", ")),
            Self::RemovePackages { names } => write!(f, "purge {}", names.join(", ")),
            Self::Unit { name, enabled, active, config: _ } => {
                let enabled = if *enabled { "enabled" } else { "disabled" };
                let active = if *active { "started" } else { "stopped" };
                write!(f, "unit {name}: {enabled}, {active}")
            }
            Self::Sysctl { key, value } => write!(f, "set {key} = {value}"),
            Self::Module { name } => write!(f, "load module {name}"),
            Self::Mount { path, source, .. } => write!(f, "mount {source} at {path}"),
            Self::Unmount { path } => write!(f, "unmount {path}"),
            Self::Image { reference, .. } => write!(f, "import image {reference}"),
            Self::RemoveImage { reference } => write!(f, "remove image {reference}"),
            Self::Swap { on } => write!(f, "turn swap {}", if *on { "on" } else { "off" }),
            Self::Run { argv, .. } | Self::RunUndo { argv, .. } => {
                write!(f, "run {}", argv.join(" "))
            }
        }
    }
}
