//! Terms: the entries of a claim.

use std::collections::{BTreeMap, BTreeSet};

use schemars::{JsonSchema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::request::{COUNT, check_amounts};
use super::{
    AccessMode, ConfigReference, Requests, check_config, check_constraints, check_device_type,
    check_driver,
};
use crate::finding::{Findings, Source};
use crate::kubernetes;
use crate::meta::dns_label_problem;
use crate::quantity::Quantity;
use gantry_yaml::node::Path;

/// One entry of a claim: a set of devices of one kind, or the first of several kinds that is to be
/// had.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Term {
    /// Name of the entry in its claim, by which containers and results refer to it. If absent it is
    /// `main` in a claim with one entry, and `claim-0`, `claim-1` and so on in others.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// What is asked for, unless `oneOf` lists alternatives.
    #[serde(flatten)]
    pub ask: DeviceRequest,
    /// Alternatives in order of preference. The first that the whole pod can be placed with is
    /// taken. With `oneOf`, nothing but `name` may be set beside it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 2, max = 8))]
    pub one_of: Vec<Alternative>,
}

/// One of several ways to satisfy a term.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Alternative {
    /// Name of the alternative, for people; results refer to it by its place in the list.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub name: Option<String>,
    /// What is asked for.
    #[serde(flatten)]
    pub ask: DeviceRequest,
}

/// What devices are asked for, how many, and how they relate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeviceRequest {
    /// Name of the DeviceClass to take devices from.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub device_class: Option<String>,
    /// Device type to take devices of, from any class of that type that is not for administrators;
    /// if there is no such class, from any driver registered for the type.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub device_type: Option<String>,
    /// Name of the driver whose devices qualify. If the class names a driver it must be the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub driver: Option<String>,
    /// CEL expression over `device` that a device must satisfy, besides that of the class.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 10_240))]
    pub constraints: Option<String>,
    /// What the devices must have to give. Either a map from resource name to amount, met by all
    /// devices together; or a list of `{name, counter|quantity|accessMode: {request}}`, met by each
    /// device alone. `count` is the number of devices; if absent, the least the class allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "kubernetes::raw")]
    pub requests: Option<Requests>,
    /// Upper bounds by resource name. Only `count`, the number of devices, is enforced; others are
    /// passed on to the driver.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "limits")]
    pub limits: BTreeMap<String, Quantity>,
    /// Whether a number of devices is wanted, or all there are on the node. `ExactCount` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocation_mode: Option<AllocationMode>,
    /// Attributes that must be equal on all devices of this entry. A device without the attribute
    /// does not qualify.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 253)))]
    pub match_attributes: Vec<String>,
    /// Attributes that must differ between any two devices of this entry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 253)))]
    pub distinct_attributes: Vec<String>,
    /// How the devices are shared with other claims. It must not contradict the class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_mode: Option<AccessMode>,
    /// Topologies in which all parts of one device's resources should lie together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub topologies: Vec<TopologyRule>,
    /// Device taints that are put up with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub tolerations: Vec<Toleration>,
    /// Objects in the claim's namespace that configure the devices. What they say when the claim is
    /// allocated is recorded in its status.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub configs: Vec<TermConfig>,
}

/// How many devices a term gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AllocationMode {
    /// As many as requested.
    ExactCount,
    /// Every device of the node that qualifies, at least one.
    All,
}

/// A topology that parts should share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TopologyRule {
    /// Kind of place, such as `numa`.
    #[schemars(length(min = 1, max = 63))]
    pub r#type: String,
    /// Whether sharing is wished for or insisted on.
    #[serde(default)]
    pub policy: TopologyPolicy,
}

/// How much a shared topology matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum TopologyPolicy {
    /// Parts in different places lower the score.
    #[default]
    Prefer,
    /// Parts in different places do not satisfy the request.
    Require,
}

/// A device taint that is put up with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Toleration {
    /// Key of the taint; absent, with operator `Exists`, matches every key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 317))]
    pub key: Option<String>,
    /// How the value is compared.
    #[serde(default)]
    pub operator: TolerationOperator,
    /// Value of the taint, with operator `Equal`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub value: Option<String>,
    /// Effect of the taint; absent matches every effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<TolerationEffect>,
}

/// How a toleration compares values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TolerationOperator {
    /// The value must be the same.
    #[default]
    Equal,
    /// Any value will do.
    Exists,
}

/// The effects that can be tolerated. A taint without effect needs no toleration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TolerationEffect {
    /// The device is not given to new claims.
    NoSchedule,
    /// Pods that use the device are removed.
    NoExecute,
}

/// An object in the claim's namespace that configures its devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TermConfig {
    /// Group and version of the object, such as `foozer.example.com/v1alpha1`.
    #[schemars(length(min = 1, max = 317))]
    pub api_version: String,
    /// Kind of the object. Secrets are refused: the object is copied into the claim's status.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Name of the object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

impl TermConfig {
    pub(super) fn reference(&self) -> ConfigReference<'_> {
        let Self { api_version, kind, name } = self;
        ConfigReference { api_version, kind, name }
    }
}

/// The fields that a term must set for devices to be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequiredSelection {
    /// A class or a type; in files of the oldest kinds of claims a driver alone is enough.
    ClassOrType,
    /// Nothing: it is offered the devices of all pools.
    Nothing,
}

impl Term {
    /// Returns the ways to satisfy the term, best first: its alternatives, or its own request.
    pub fn alternatives(&self) -> impl Iterator<Item = &DeviceRequest> {
        let own = self.one_of.is_empty().then_some(&self.ask);
        own.into_iter().chain(self.one_of.iter().map(|alternative| &alternative.ask))
    }
}

pub(super) fn check_terms(
    terms: &[Term],
    path: &Path,
    needs: RequiredSelection,
    findings: &mut Findings,
) {
    let mut seen = BTreeSet::new();
    for (index, term) in terms.iter().enumerate() {
        let path = path.index(index);
        let name = path.key("name");
        if let Some(problem) = dns_label_problem(&term.name) {
            findings.error(&name, format!("Invalid value: \"{}\": {problem}", term.name));
        }
        if !seen.insert(&term.name) {
            findings.error(&name, format!("Duplicate value: \"{}\"", term.name));
        }
        if term.one_of.is_empty() {
            check_device_request(&term.ask, &path, needs, findings);
            continue;
        }
        for field in term.ask.set_fields() {
            let text = "Forbidden: set beside \"oneOf\"; move it into each alternative";
            findings.error(&path.key(field), text);
        }
        for (index, alternative) in term.one_of.iter().enumerate() {
            check_device_request(
                &alternative.ask,
                &path.key("oneOf").index(index),
                needs,
                findings,
            );
        }
    }
}

fn check_device_request(
    ask: &DeviceRequest,
    path: &Path,
    needs: RequiredSelection,
    findings: &mut Findings,
) {
    check_source(ask, path, needs, findings);
    if let Some(driver) = &ask.driver {
        check_driver(driver, &path.key("driver"), findings);
    }
    check_constraints(ask.constraints.as_deref(), path, findings);
    if let Some(requests) = &ask.requests {
        requests.validate(&path.key("requests"), findings);
    }
    check_amounts(&ask.limits, &path.key("limits"), findings);
    check_counts(ask, path, findings);
    check_tolerations(&ask.tolerations, &path.key("tolerations"), findings);
    for (index, config) in ask.configs.iter().enumerate() {
        let path = path.key("configs").index(index);
        check_config(config.reference(), &path, findings);
    }
}

fn check_source(
    ask: &DeviceRequest,
    path: &Path,
    needs: RequiredSelection,
    findings: &mut Findings,
) {
    match (&ask.device_class, &ask.device_type) {
        (Some(class), Some(device_type)) => {
            let text = format!(
                "set beside deviceClass \"{class}\" as \"{device_type}\"; keep one of deviceClass \
                 and deviceType"
            );
            findings.error(&path.key("deviceType"), text);
        }
        (None, Some(device_type)) => {
            check_device_type(device_type, &path.key("deviceType"), findings);
        }
        (Some(_), None) => {}
        (None, None) => {
            let enough = match (needs, findings.source) {
                (RequiredSelection::Nothing, Source::File | Source::Server) => true,
                (RequiredSelection::ClassOrType, Source::File) => ask.driver.is_some(),
                (RequiredSelection::ClassOrType, Source::Server) => false,
            };
            if !enough {
                let text = "Required value: set exactly one of deviceClass, deviceType and oneOf";
                findings.error(&path.key("deviceClass"), text);
            }
        }
    }
}

fn check_counts(ask: &DeviceRequest, path: &Path, findings: &mut Findings) {
    let least = ask.requests.as_ref().and_then(Requests::count);
    let most = ask.limits.get(COUNT).copied();
    if let (Some(least), Some(most)) = (least, most)
        && least > most
    {
        let text = format!("Invalid value: \"{most}\": below requests.count, which is \"{least}\"");
        findings.error(&path.key("limits").key(COUNT), text);
    }
    if ask.allocation_mode == Some(AllocationMode::All) {
        for (field, set) in [("requests", least.is_some()), ("limits", most.is_some())] {
            if set {
                let text = "Forbidden: allocationMode \"All\" takes every device there is";
                findings.error(&path.key(field).key(COUNT), text);
            }
        }
    }
}

pub(super) fn check_tolerations(tolerations: &[Toleration], path: &Path, findings: &mut Findings) {
    for (index, toleration) in tolerations.iter().enumerate() {
        let path = path.index(index);
        let keyless = toleration.key.as_ref().is_none_or(String::is_empty);
        match toleration.operator {
            TolerationOperator::Equal if keyless => findings.error(
                &path.key("key"),
                "Required value: without a key, use operator \"Exists\" to tolerate every taint",
            ),
            TolerationOperator::Exists if toleration.value.is_some() => findings.error(
                &path.key("value"),
                "Forbidden: operator \"Exists\" does not look at the value",
            ),
            TolerationOperator::Equal | TolerationOperator::Exists => {}
        }
    }
}

impl DeviceRequest {
    /// The names of the fields that are set.
    fn set_fields(&self) -> Vec<&'static str> {
        let Self {
            device_class,
            device_type,
            driver,
            constraints,
            requests,
            limits,
            allocation_mode,
            match_attributes,
            distinct_attributes,
            access_mode,
            topologies,
            tolerations,
            configs,
        } = self;
        let fields = [
            ("deviceClass", device_class.is_some()),
            ("deviceType", device_type.is_some()),
            ("driver", driver.is_some()),
            ("constraints", constraints.is_some()),
            ("requests", requests.is_some()),
            ("limits", !limits.is_empty()),
            ("allocationMode", allocation_mode.is_some()),
            ("matchAttributes", !match_attributes.is_empty()),
            ("distinctAttributes", !distinct_attributes.is_empty()),
            ("accessMode", access_mode.is_some()),
            ("topologies", !topologies.is_empty()),
            ("tolerations", !tolerations.is_empty()),
            ("configs", !configs.is_empty()),
        ];
        fields.into_iter().filter(|(_, set)| *set).map(|(name, _)| name).collect()
    }
}

fn limits(generator: &mut SchemaGenerator) -> schemars::Schema {
    let mut schema = BTreeMap::<String, Quantity>::json_schema(generator);
    schema.insert("maxProperties".to_owned(), 32.into());
    schema
}
