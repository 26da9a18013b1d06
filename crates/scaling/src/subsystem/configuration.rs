//! The section `instascale` of the configuration.

use std::time::Duration;

use gantry_subsystem::settings::read::length;
use gantry_subsystem::settings::{
    ConfigReport, DefaultValue, Effect, Key, ValueType, Values, ZeroMeaning,
};
use serde::{Deserialize, Deserializer};

use crate::effects::{OCM_API_URL, OCM_TOKEN_URL, is_allowed_url};
use crate::settings::Limits;

const COUNT: ValueType = ValueType::Integer { min: 0, max: i32::MAX, zero: ZeroMeaning::Literal };

/// The keys of scaling.
pub const KEYS: &[Key] = &[
    Key {
        path: "instascale.enabled",
        value_type: ValueType::Bool,
        default: DefaultValue::Flag(false),
        effect: Effect::Restart,
        about: "Whether scaling runs.",
    },
    Key {
        path: "instascale.maxScaleoutAllowed",
        value_type: COUNT,
        default: DefaultValue::Count(5),
        effect: Effect::Live,
        about: "The most nodes that scaling adds.",
    },
    Key {
        path: "instascale.machineSetsStrategy",
        value_type: ValueType::Word(&["reuse", "duplicate"]),
        default: DefaultValue::Text("reuse"),
        effect: Effect::Restart,
        about: "Whether a MachineSet is scaled up (`reuse`) or copied (`duplicate`).",
    },
    Key {
        path: "instascale.ocmSecretRef.name",
        value_type: ValueType::Name,
        default: DefaultValue::Unset,
        effect: Effect::Restart,
        about: "A Secret with the key `token`. If set, machine pools are scaled, not MachineSets.",
    },
    Key {
        path: "instascale.ocmSecretRef.namespace",
        value_type: ValueType::Namespace,
        default: DefaultValue::Unset,
        effect: Effect::Restart,
        about: "The namespace of that Secret.",
    },
    Key {
        path: "instascale.ocmUrl",
        value_type: ValueType::Text,
        default: DefaultValue::Text(OCM_API_URL),
        effect: Effect::Restart,
        about: "The address of the service that manages the cluster, for machine pools.",
    },
    Key {
        path: "instascale.ocmTokenUrl",
        value_type: ValueType::Text,
        default: DefaultValue::Text(OCM_TOKEN_URL),
        effect: Effect::Restart,
        about: "Where that Secret's token is exchanged for access tokens.",
    },
    Key {
        path: "instascale.provisionTimeout",
        value_type: ValueType::Duration { zero: ZeroMeaning::Default },
        default: DefaultValue::Text("20m0s"),
        effect: Effect::Live,
        about: "How long new nodes may take to become ready.",
    },
    Key {
        path: "instascale.cooldown",
        value_type: ValueType::Duration { zero: ZeroMeaning::Literal },
        default: DefaultValue::Text("0s"),
        effect: Effect::Live,
        about: "How long nodes stay after they are no longer needed.",
    },
    Key {
        path: "instascale.inferShapes",
        value_type: ValueType::Bool,
        default: DefaultValue::Flag(false),
        effect: Effect::Restart,
        about: "Whether nodes are chosen for AppWrappers without the label `orderedinstance`: the \
                smallest with which all pods fit.",
    },
];

/// Whether and how nodes are added.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Configuration {
    /// Whether scaling runs.
    pub enabled: bool,
    /// The maximum number of nodes that are added.
    pub max_scaleout_allowed: u32,
    /// How machines are added.
    pub machine_sets_strategy: MachineSetsStrategy,
    /// The Secret for machine pools; none for MachineSets.
    #[serde(deserialize_with = "optional_secret")]
    pub ocm_secret_ref: Option<SecretReference>,
    /// The address of the service for machine pools.
    pub ocm_url: String,
    /// The address of the server that issues tokens for it.
    pub ocm_token_url: String,
    /// How long new nodes may take to become ready.
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
pub enum MachineSetsStrategy {
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

/// Reads a reference; one without a name or a namespace is none.
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
    /// Fails when the declared keys and the fields disagree: no value that has the form of its key
    /// is refused.
    pub fn read(values: &Values) -> Result<Self, serde_json::Error> {
        values.section("instascale")
    }

    /// Returns what may change while scaling runs.
    #[must_use]
    pub fn limits(&self) -> Limits {
        Limits {
            max_nodes: self.max_scaleout_allowed,
            provision_timeout: self.provision_timeout,
            cooldown: self.cooldown,
        }
    }
}

/// Checks the rules that span several keys.
pub fn check(values: &mut Values, report: &mut ConfigReport) {
    check_secret(values, report);
    // Tokens are sent there.
    for key in ["instascale.ocmUrl", "instascale.ocmTokenUrl"] {
        let url = values.text(key);
        if !is_allowed_url(url) && !report.has_error_for(&[key]) {
            let text = format!("found {url:?}, expected https://<host>, or http:// on loopback");
            report.refuse(values, key, text);
        }
    }
}

fn check_secret(values: &Values, report: &mut ConfigReport) {
    const NAME: &str = "instascale.ocmSecretRef.name";
    const NAMESPACE: &str = "instascale.ocmSecretRef.namespace";
    if report.has_error_for(&[NAME, NAMESPACE]) {
        return;
    }
    let (there, missing) = match (values.get(NAME).is_null(), values.get(NAMESPACE).is_null()) {
        (false, true) => (NAME, NAMESPACE),
        (true, false) => (NAMESPACE, NAME),
        (true, true) | (false, false) => return,
    };
    report.refuse(values, there, format!("is of no use without {missing}; set both or none"));
}
