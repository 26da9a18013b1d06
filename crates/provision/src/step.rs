//! Steps: the smallest units of a run, as data.

use std::borrow::Cow;

use gantry_inventory::Role;
use serde::{Deserialize, Serialize};

use crate::action::Action;
use crate::bundle::BundleLock;
use crate::content::Content;
use crate::facts::Facts;
use crate::journal::Journal;
use crate::settings::Settings;
use crate::state::{Observed, Want};
use crate::user_step::UserStep;

/// A barrier: all hosts finish a stage before one begins the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Facts are gathered.
    Facts,
    /// Nothing is changed; what would fail later is found.
    Preflight,
    /// What all hosts have, whatever their role.
    AllHosts,
    /// Certificates.
    Identity,
    /// etcd.
    Etcd,
    /// The control plane.
    ControlPlane,
    /// Kubelets.
    Join,
    /// The network of pods, and DNS.
    Network,
    /// Storage.
    Storage,
    /// Permissions.
    Access,
    /// What is reached from outside.
    Expose,
    /// Add-ons.
    Addons,
    /// When backups are made.
    Backup,
    /// Whether it works.
    Verify,
}

impl Stage {
    /// All stages in their order.
    pub const ALL: [Self; 14] = [
        Self::Facts,
        Self::Preflight,
        Self::AllHosts,
        Self::Identity,
        Self::Etcd,
        Self::ControlPlane,
        Self::Join,
        Self::Network,
        Self::Storage,
        Self::Access,
        Self::Expose,
        Self::Addons,
        Self::Backup,
        Self::Verify,
    ];

    /// The number of the stage; connecting is 0.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8 + 1
    }

    /// The name of the stage.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Facts => "facts",
            Self::Preflight => "preflight",
            Self::AllHosts => "all-hosts",
            Self::Identity => "identity",
            Self::Etcd => "etcd",
            Self::ControlPlane => "control-plane",
            Self::Join => "join",
            Self::Network => "network",
            Self::Storage => "storage",
            Self::Access => "access",
            Self::Expose => "expose",
            Self::Addons => "addons",
            Self::Backup => "backup",
            Self::Verify => "verify",
        }
    }

    /// The stage with a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stage| stage.name() == name)
    }

    /// Whether the stage needs the whole cluster.
    #[must_use]
    pub fn is_post(self) -> bool {
        self >= Self::Storage
    }
}

/// What a step knows about a host.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// What the inventory says.
    pub settings: &'a Settings,
    /// What the host is.
    pub facts: &'a Facts,
    /// The facts of all hosts of the run, by name.
    pub peers: &'a [(String, Facts)],
    /// The bundle, if there is one.
    pub bundle: Option<&'a BundleLock>,
    /// What was done to the host before.
    pub journal: Option<&'a Journal>,
}

/// What a step makes of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is nothing to do.
    Satisfied(String),
    /// This has to be done.
    Change(Vec<Change>),
    /// What has to be done is known after an earlier step.
    Later(String),
    /// The step does not apply, for a reason.
    Skipped(String),
    /// The step cannot run, for a reason.
    Held(String),
    /// The host is not fit.
    Failed {
        /// What is wrong.
        message: String,
        /// What to do.
        remedy: String,
    },
}

/// An action with the bytes that it writes, if they are made from facts and variables. Those of
/// programs and images come from the bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The action.
    pub action: Action,
    /// What it writes.
    pub content: Option<Content>,
}

impl Change {
    /// A change without bytes of its own.
    #[must_use]
    pub fn of(action: Action) -> Self {
        Self { action, content: None }
    }

    /// A file with its content.
    #[must_use]
    pub fn file(path: &str, mode: u32, content: Content) -> Self {
        let action = Action::File {
            path: path.to_owned(),
            digest: content.digest(),
            mode,
            secret: content.is_secret(),
        };
        Self { action, content: Some(content) }
    }
}

/// The hosts that a step is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepHosts {
    /// All.
    All,
    /// Those with a role.
    With(Role),
    /// Masters and minions.
    Nodes,
}

impl StepHosts {
    /// Whether the step is for a host.
    #[must_use]
    pub fn includes(self, settings: &Settings) -> bool {
        let has = |role: Role| settings.roles.contains(&role);
        match self {
            Self::All => true,
            Self::With(role) => has(role),
            Self::Nodes => has(Role::Master) || has(Role::Minion),
        }
    }

    /// The words for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Nodes => "master,minion",
            Self::With(role) => role.group_names()[0],
        }
    }
}

/// A step.
#[derive(Clone, Debug)]
pub struct Step {
    /// The id, as `kernel.sysctl`.
    pub id: Cow<'static, str>,
    /// The stage.
    pub stage: Stage,
    /// The tags.
    pub tags: Vec<Cow<'static, str>>,
    /// The hosts.
    pub hosts: StepHosts,
    /// Whether it needs root.
    pub needs_root: bool,
    /// What it is for.
    pub about: Cow<'static, str>,
    /// What it owns on the host.
    pub owns: Cow<'static, str>,
    /// What it does.
    pub behavior: Behavior,
}

/// What a step does.
#[derive(Clone, Debug)]
pub enum Behavior {
    /// A step of the catalogue.
    BuiltIn {
        /// Whether it applies; if not, the sentence that says why.
        when: fn(&Context<'_>) -> Result<(), String>,
        /// What has to be observed.
        wants: fn(&Context<'_>) -> Vec<Want>,
        /// What has to be done.
        plan: fn(&Context<'_>, &Observed) -> Verdict,
    },
    /// A step of the user.
    User(Box<UserStep>),
    /// A step that this version names and does not have; it is held.
    NotBuilt,
}

impl Step {
    /// What has to be observed.
    #[must_use]
    pub fn wants(&self, context: &Context<'_>) -> Vec<Want> {
        if self.skip(context).is_some() {
            return Vec::new();
        }
        match &self.behavior {
            Behavior::BuiltIn { wants, .. } => wants(context),
            Behavior::User(step) => step.wants(),
            Behavior::NotBuilt => Vec::new(),
        }
    }

    /// Why the step does not apply to a host, if it does not.
    #[must_use]
    pub fn skip(&self, context: &Context<'_>) -> Option<String> {
        if !self.hosts.includes(context.settings) {
            return Some(format!("hosts: {} only", self.hosts.name()));
        }
        match &self.behavior {
            Behavior::BuiltIn { when, .. } => when(context).err(),
            Behavior::User(step) => step.when(context).err(),
            Behavior::NotBuilt => None,
        }
    }

    /// What has to be done.
    #[must_use]
    pub fn plan(&self, context: &Context<'_>, observed: &Observed) -> Verdict {
        if let Some(reason) = self.skip(context) {
            return Verdict::Skipped(reason);
        }
        match &self.behavior {
            Behavior::BuiltIn { plan, .. } => plan(context, observed),
            Behavior::User(step) => step.plan(observed),
            Behavior::NotBuilt => {
                Verdict::Held(format!("step {} is not built in this version", self.id))
            }
        }
    }

    /// The tags as the selection of a command line takes them.
    #[must_use]
    pub fn tag_names(&self) -> Vec<&str> {
        self.tags.iter().map(AsRef::as_ref).collect()
    }
}
