//! The section `instascale` of the configuration.

use std::time::Duration;

use gantry_subsystem::settings::read::length;
use gantry_subsystem::settings::{Effect, Form, Key, Report, Usual, Values, Zero};
use serde::{Deserialize, Deserializer};

use crate::effects::{SERVICE, TOKENS, may_call};
use crate::settings::Limits;

const COUNT: Form = Form::Integer { least: 0, most: i32::MAX, zero: Zero::Itself };

/// The keys of scaling.
pub const KEYS: &[Key] = &[
    Key {
        path: "instascale.enabled",
        form: Form::Flag,
        default: Usual::Flag(false),
        effect: Effect::Restart,
        about: "Whether scaling runs.",
    },
    Key {
        path: "instascale.maxScaleoutAllowed",
        form: COUNT,
        default: Usual::Count(5),
        effect: Effect::Live,
        about: "The most nodes that scaling adds.",
    },
    Key {
        path: "instascale.machineSetsStrategy",
        form: Form::Word(&["reuse", "duplicate"]),
        default: Usual::Text("reuse"),
        effect: Effect::Restart,
        about: "Whether a MachineSet is scaled up, or a copy of it made.",
    },
    Key {
        path: "instascale.ocmSecretRef.name",
        form: Form::Name,
        default: Usual::Unset,
        effect: Effect::Restart,
        about: "A Secret with the key `token`. If set, machine pools are scaled, not MachineSets.",
    },
    Key {
        path: "instascale.ocmSecretRef.namespace",
        form: Form::Namespace,
        default: Usual::Unset,
        effect: Effect::Restart,
        about: "Where that Secret is.",
    },
    Key {
        path: "instascale.ocmUrl",
        form: Form::Text,
        default: Usual::Text(SERVICE),
        effect: Effect::Restart,
        about: "Where the service that manages the cluster is, for machine pools.",
    },
    Key {
        path: "instascale.ocmTokenUrl",
        form: Form::Text,
        default: Usual::Text(TOKENS),
        effect: Effect::Restart,
        about: "Where that Secret's token is exchanged for those the service believes.",
    },
    Key {
        path: "instascale.provisionTimeout",
        form: Form::Duration { zero: Zero::Default },
        default: Usual::Text("20m0s"),
        effect: Effect::Live,
        about: "How long new nodes may take to come.",
    },
    Key {
        path: "instascale.cooldown",
        form: Form::Duration { zero: Zero::Itself },
        default: Usual::Text("0s"),
        effect: Effect::Live,
        about: "How long nodes stay after they are no longer needed.",
    },
    Key {
        path: "instascale.inferShapes",
        form: Form::Flag,
        default: Usual::Flag(false),
        effect: Effect::Restart,
        about: "Whether nodes are chosen for AppWrappers without the label `orderedinstance`: the smallest with which all pods fit.",
    },
];

/// Whether and how nodes are added.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Configuration {
    /// Whether scaling runs.
    pub enabled: bool,
    /// The most nodes that are added.
    pub max_scaleout_allowed: u32,
    /// How machines are added.
    pub machine_sets_strategy: MachineSets,
    /// The Secret for machine pools; none for MachineSets.
    #[serde(deserialize_with = "optional_secret")]
    pub ocm_secret_ref: Option<SecretReference>,
    /// Where the service of machine pools is.
    pub ocm_url: String,
    /// Where tokens for it are handed out.
    pub ocm_token_url: String,
    /// How long new nodes may take to come.
    #[serde(deserialize_with = "length")]
    pub provision_timeout: Duration,
    /// How long nodes stay after they are no longer needed.
    #[serde(deserialize_with = "length")]
    pub cooldown: Duration,
    /// Whether nodes are chosen for jobs that name no types.
    pub infer_shapes: bool,
}

/// How machines are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MachineSets {
    /// A MachineSet is scaled up.
    Reuse,
    /// A copy of it is made.
    Duplicate,
}

/// A Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretReference {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Reads a reference; one without a name or a namespace refers to nothing.
fn optional_secret<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<SecretReference>, D::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Both {
        name: Option<String>,
        namespace: Option<String>,
    }
    let Both { name, namespace } = Both::deserialize(deserializer)?;
    Ok(name.zip(namespace).map(|(name, namespace)| SecretReference { namespace, name }))
}

impl Configuration {
    /// Reads the section.
    ///
    /// # Errors
    /// The keys and the fields disagree: no value that has the form of its key is refused.
    pub fn read(values: &Values) -> Result<Self, serde_json::Error> {
        values.section("instascale")
    }

    /// What may change while scaling runs.
    #[must_use]
    pub fn limits(&self) -> Limits {
        Limits {
            nodes: self.max_scaleout_allowed,
            provision: self.provision_timeout,
            cooldown: self.cooldown,
        }
    }
}

/// Checks the rules that span keys.
pub fn check(values: &mut Values, report: &mut Report) {
    check_secret(values, report);
    // Tokens are sent there.
    for key in ["instascale.ocmUrl", "instascale.ocmTokenUrl"] {
        let url = values.text(key);
        if !may_call(url) && !report.blames(&[key]) {
            let text = format!("found {url:?}, expected https://<host>, or http:// on loopback");
            report.refuse(values, key, text);
        }
    }
}

fn check_secret(values: &Values, report: &mut Report) {
    const NAME: &str = "instascale.ocmSecretRef.name";
    const NAMESPACE: &str = "instascale.ocmSecretRef.namespace";
    if report.blames(&[NAME, NAMESPACE]) {
        return;
    }
    let (there, missing) = match (values.get(NAME).is_null(), values.get(NAMESPACE).is_null()) {
        (false, true) => (NAME, NAMESPACE),
        (true, false) => (NAMESPACE, NAME),
        (true, true) | (false, false) => return,
    };
    report.refuse(values, there, format!("is of no use without {missing}; set both or none"));
}
