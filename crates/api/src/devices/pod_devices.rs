//! PodDevices: the claims of a pod, kept beside it.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::term::{RequiredSelection, check_terms};
use super::{ClaimSpec, TemplateMetadata, normalise, serve};
use crate::finding::Findings;
use crate::kind::Trust;
use crate::meta::dns_label_problem;
use crate::object::object;
use gantry_yaml::node::Path;

object! {
    /// PodDevices says which devices a pod wants and which of its containers get them, for pods
    /// whose annotation `devmgmtproto.k8s.io/pod-devices` names it.
    pub struct PodDevices {
        /// The claims, and the containers that use them.
        pub spec: PodClaims,
    }
    group: "devmgmtproto.k8s.io",
    version: "v1alpha1",
    plural: "poddevices",
    scope: Namespaced,
    short_names: &["pd"],
    trust: Trust::Tenant,
    any_case: true,
    serve: |schema| serve::pod_claims(serve::schema_of(schema, "spec.deviceClaims[]")),
    normalise: |node, findings| {
        if let Some(claims) = node.get_mut("spec").and_then(|spec| spec.get_mut("deviceClaims")) {
            normalise::pod_claims(claims, &Path::of("spec.deviceClaims"), findings);
        }
    },
}

/// The claims of a pod, and the containers that use them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodClaims {
    /// The claims. All of them are allocated before the pod runs, also those that no container
    /// refers to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub device_claims: Vec<PodClaim>,
    /// The devices that containers get, by the name of the container.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "containers")]
    pub containers: BTreeMap<String, Vec<DeviceReference>>,
}

/// A claim of a pod. Exactly one of `claimName`, `claimTemplateName`, `claim` and `template` is
/// set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodClaim {
    /// Name by which containers refer to the claim; not needed if none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub name: Option<String>,
    /// Where the claim comes from.
    #[serde(flatten)]
    #[schemars(with = "SourceFields")]
    pub source: ClaimSource,
}

/// Where a pod's claim comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ClaimSource {
    /// An existing claim, possibly shared with other pods.
    ClaimName(String),
    /// A template object, or a claim used as one.
    ClaimTemplateName(String),
    /// Written here.
    Claim(ClaimSpec),
    /// Written here, with metadata.
    Template(InlineTemplate),
}

impl ClaimSource {
    /// The fields that hold a source of each kind.
    pub(super) const FIELDS: [&str; 4] = ["claimName", "claimTemplateName", "claim", "template"];

    /// What the claim asks for, if that is written in the pod.
    #[must_use]
    pub fn inline(&self) -> Option<&ClaimSpec> {
        match self {
            Self::Claim(spec) => Some(spec),
            Self::Template(template) => Some(&template.spec),
            Self::ClaimName(_) | Self::ClaimTemplateName(_) => None,
        }
    }
}

/// How [`ClaimSource`] looks in a schema.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "only its schema is used")]
struct SourceFields {
    /// Name of a DeviceClaim in the pod's namespace. Pods that name the same claim share devices.
    #[schemars(length(min = 1, max = 253))]
    claim_name: Option<String>,
    /// Name of a DeviceClaimTemplate in the pod's namespace, or of a DeviceClaim to copy. The pod
    /// gets a claim of its own.
    #[schemars(length(min = 1, max = 253))]
    claim_template_name: Option<String>,
    /// A claim of the pod's own: the spec of a DeviceClaim, or the fields of its only entry.
    claim: Option<ClaimSpec>,
    /// A claim of the pod's own, with metadata.
    template: Option<InlineTemplate>,
}

/// A claim template that is written in a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InlineTemplate {
    /// Labels and annotations that the claim gets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,
    /// What the claim asks for.
    #[serde(flatten)]
    pub spec: ClaimSpec,
}

/// A device that a container gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceReference {
    /// Name of one of the pod's claims or, if none has it, of an entry of a claim written in the
    /// pod.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
}

/// Most containers whose devices can be listed; far more than any pod has.
const MAX_CONTAINERS: usize = 128;

fn containers(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let mut schema = BTreeMap::<String, Vec<DeviceReference>>::json_schema(generator);
    schema.insert("maxProperties".to_owned(), MAX_CONTAINERS.into());
    if let Some(Value::Object(list)) = schema.get_mut("additionalProperties") {
        list.insert("maxItems".to_owned(), 64.into());
    }
    schema
}

impl PodDevices {
    /// Checks the rules that span several fields.
    pub fn validate(&self, findings: &mut Findings) {
        let path = Path::of("spec");
        self.spec.validate_claims(&path.key("deviceClaims"), findings);
        for (container, references) in &self.spec.containers {
            let path = path.key("containers").key(container);
            self.spec.validate_references(references, &path, findings);
        }
    }
}

impl PodClaims {
    pub(super) fn validate_claims(&self, path: &Path, findings: &mut Findings) {
        let mut seen = BTreeSet::new();
        for (index, claim) in self.device_claims.iter().enumerate() {
            let path = path.index(index);
            if let Some(name) = &claim.name {
                if let Some(problem) = dns_label_problem(name) {
                    let text = format!("Invalid value: \"{name}\": {problem}");
                    findings.error(&path.key("name"), text);
                }
                if !seen.insert(name) {
                    findings.error(&path.key("name"), format!("Duplicate value: \"{name}\""));
                }
            }
            let (field, spec) = match &claim.source {
                ClaimSource::Claim(spec) => ("claim", spec),
                ClaimSource::Template(template) => ("template", &template.spec),
                ClaimSource::ClaimName(_) | ClaimSource::ClaimTemplateName(_) => continue,
            };
            let path = path.key(field).key("claims");
            check_terms(&spec.claims, &path, RequiredSelection::ClassOrType, findings);
        }
    }

    /// Refuses references of a container that lead nowhere or to several places.
    pub(super) fn validate_references(
        &self,
        references: &[DeviceReference],
        path: &Path,
        findings: &mut Findings,
    ) {
        for (index, reference) in references.iter().enumerate() {
            let name = &reference.name;
            let path = path.index(index).key("name");
            match self.resolve(name).as_slice() {
                [_] => {}
                [] => findings.error(
                    &path,
                    format!("Not found: \"{name}\" names no claim of the pod and no entry of one"),
                ),
                [_, _, ..] => findings.error(
                    &path,
                    format!(
                        "Invalid value: \"{name}\" is ambiguous: several claims have an entry of \
                         that name; refer to a claim"
                    ),
                ),
            }
        }
    }

    /// The claims that `name` leads to, by place: the one of that name or else every one that has
    /// an entry of that name. A valid reference leads to one.
    #[must_use]
    pub fn resolve(&self, name: &str) -> Vec<usize> {
        let places = || self.device_claims.iter().enumerate();
        let named: Vec<_> = places()
            .filter(|(_, claim)| claim.name.as_deref() == Some(name))
            .map(|(place, _)| place)
            .collect();
        if !named.is_empty() {
            return named;
        }
        let has_entry = |claim: &PodClaim| {
            claim.source.inline().is_some_and(|spec| spec.claims.iter().any(|t| t.name == name))
        };
        places().filter(|(_, claim)| has_entry(claim)).map(|(place, _)| place).collect()
    }
}
