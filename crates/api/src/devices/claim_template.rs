//! DeviceClaimTemplate: the template of claims, one per pod.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{ClaimSpec, PrivilegedClaimSpec, normalise, serve};
use crate::finding::Findings;
use crate::kind::Trust;
use crate::object::object;
use gantry_yaml::node::Path;

object! {
    /// DeviceClaimTemplate is what a claim is made from for each pod that names it. The claim
    /// belongs to the pod and goes with it.
    pub struct DeviceClaimTemplate {
        /// The claim to make.
        pub spec: TemplateSpec,
    }
    group: "devmgmtproto.k8s.io",
    version: "v1alpha1",
    plural: "deviceclaimtemplates",
    scope: Namespaced,
    short_names: &["dct"],
    trust: Trust::Tenant,
    any_case: true,
    serve: serve_template,
    normalise: |node, findings| {
        if let Some(spec) = node.get_mut("spec") {
            normalise::template_spec(spec, &Path::of("spec"), findings);
        }
    },
}

/// A claim to make. Exactly one of `claimSpec` and `privilegedClaimSpec` is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateSpec {
    /// Labels and annotations that the claim gets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,
    /// The spec that the claim gets.
    #[serde(flatten)]
    #[schemars(with = "SourceFields")]
    pub source: TemplateSource,
}

/// Metadata that a claim gets from its template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TemplateMetadata {
    /// Labels of the claim.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the claim.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// The spec of the claim to make.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TemplateSource {
    /// A DeviceClaim is made.
    ClaimSpec(ClaimSpec),
    /// A DevicePrivilegedClaim is made.
    PrivilegedClaimSpec(PrivilegedClaimSpec),
}

impl TemplateSource {
    /// The fields that hold a spec of each kind.
    pub(super) const FIELDS: [&str; 2] = ["claimSpec", "privilegedClaimSpec"];
}

impl Default for TemplateSource {
    fn default() -> Self {
        Self::ClaimSpec(ClaimSpec::default())
    }
}

/// How [`TemplateSource`] looks in a schema.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "only its schema is used")]
struct SourceFields {
    /// The spec of the DeviceClaim to make.
    claim_spec: Option<ClaimSpec>,
    /// The spec of the DevicePrivilegedClaim to make.
    privileged_claim_spec: Option<PrivilegedClaimSpec>,
}

fn serve_template(schema: &mut Value) {
    let spec = serve::schema_of(schema, "spec");
    serve::claim_spec(serve::schema_of(spec, "claimSpec"));
    serve::privileged_spec(serve::schema_of(spec, "privilegedClaimSpec"));
    let set = "Deprecated: use `claimSpec.claims`.";
    let match_attributes = serve::schema_of(spec, "claimSpec.matchAttributes").clone();
    let terms = serve::schema_of(spec, "claimSpec.claims").clone();
    spec["properties"]["setClaimSpec"] = json!({
        "type": "object",
        "description": "Deprecated: use `claimSpec`.",
        "properties": {
            "matchAttributes": crate::schema::described(
                match_attributes,
                "Deprecated: use `claimSpec.matchAttributes`.",
            ),
            "claimSpec": crate::schema::described(terms, set),
        },
    });
    serve::rule(
        spec,
        "[has(self.claimSpec), has(self.privilegedClaimSpec), \
         has(self.setClaimSpec)].exists_one(set, set)",
        "set exactly one of claimSpec and privilegedClaimSpec",
    );
}

impl DeviceClaimTemplate {
    /// Checks the rules that span several fields.
    pub fn validate(&self, findings: &mut Findings) {
        let path = Path::of("spec");
        match &self.spec.source {
            TemplateSource::ClaimSpec(spec) => spec.validate(&path.key("claimSpec"), findings),
            TemplateSource::PrivilegedClaimSpec(spec) => {
                spec.validate(&path.key("privilegedClaimSpec"), findings);
            }
        }
    }
}
