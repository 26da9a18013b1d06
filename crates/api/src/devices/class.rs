//! DeviceClass: an administrator's definition of devices that claims can request.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    AccessMode, ConfigReference, check_config, check_constraints, check_device_type, check_driver,
    normalise, serve,
};
use crate::alias::{Alias, AliasNotice};
use crate::finding::Findings;
use crate::kind::{Column, Trust};
use crate::kubernetes;
use crate::meta::dns_label_problem;
use crate::object::object;
use gantry_yaml::node::Path;

object! {
    /// DeviceClass is a prepared way to ask for devices of one type: which of them qualify, how
    /// many a claim may take, and how they are configured. Claims name the class and may narrow it.
    pub struct DeviceClass {
        /// Which devices, and how they are handed out. A change does not touch existing
        /// allocations.
        pub spec: ClassSpec,
        /// Which drivers serve the class at present.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub status: Option<ClassStatus>,
    }
    group: "devmgmtproto.k8s.io",
    version: "v1alpha1",
    plural: "deviceclasses",
    scope: Cluster,
    short_names: &["dclass"],
    status: true,
    columns: &[
        Column::new("Type", "string", ".spec.deviceType"),
        Column::new("Driver", "string", ".spec.driver"),
        Column::new("Ready", "string", ".status.conditions[?(@.type==\"Ready\")].status"),
        Column::wide("Admin", "boolean", ".spec.adminAccess"),
        Column::AGE,
    ],
    trust: Trust::Administrator,
    any_case: true,
    aliases: &ALIASES,
    serve: serve_class,
    normalise: |node, findings| {
        if let Some(spec) = node.get_mut("spec") {
            normalise::class_spec(spec, &Path::of("spec"), findings);
        }
    },
}

/// Which devices belong to a class, and how they are handed out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClassSpec {
    /// Type of the devices, as drivers register it, such as `gpu`.
    #[schemars(length(min = 1, max = 63))]
    pub device_type: String,
    /// Name of the driver whose devices qualify; any driver registered for the type if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub driver: Option<String>,
    /// CEL expression over `device` that a device must satisfy.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 10_240))]
    pub constraints: Option<String>,
    /// The least number of devices a claim takes; 1 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub min_device_count: Option<u32>,
    /// The greatest number of devices a claim may take; no limit if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub max_device_count: Option<u32>,
    /// Attributes that must be equal on all devices of an entry that names the class.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 253)))]
    pub match_attributes: Vec<String>,
    /// How the devices are shared. A claim that says otherwise is invalid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_mode: Option<AccessMode>,
    /// Whether devices are given out regardless of who holds them. Only namespaces with the label
    /// `devmgmtproto.k8s.io/admin-access: "true"` may use such a class.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub admin_access: bool,
    /// Objects that configure the devices. What they say when a claim is allocated is recorded in
    /// the claim's status.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub configs: Vec<ClassConfig>,
}

/// An object, in any namespace, that configures the devices of a class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClassConfig {
    /// Group and version of the object, such as `v1` or `foozer.example.com/v1alpha1`.
    #[schemars(length(min = 1, max = 317))]
    pub api_version: String,
    /// Kind of the object. Secrets are refused: the object is copied into the claim's status.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Namespace of the object.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// Name of the object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

impl ClassConfig {
    fn reference(&self) -> ConfigReference<'_> {
        let Self { api_version, kind, name, .. } = self;
        ConfigReference { api_version, kind, name }
    }
}

/// What the cluster makes of a class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClassStatus {
    /// Names of the drivers that serve the class at present, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drivers: Vec<String>,
    /// `Ready`: a registered driver serves the class. `ConstraintsValid`: its constraints compile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "kubernetes::conditions")]
    pub conditions: Vec<Condition>,
}

const ALIASES: [Alias; 5] = [
    Alias {
        within: "spec",
        old: "deviceMaxCount",
        new: "maxDeviceCount",
        notice: AliasNotice::Rename,
    },
    Alias {
        within: "spec",
        old: "deviceMinCount",
        new: "minDeviceCount",
        notice: AliasNotice::Rename,
    },
    Alias {
        within: "spec",
        old: "contstraints",
        new: "constraints",
        notice: AliasNotice::Because(
            "ignoring it would open the class to the devices of every vendor",
        ),
    },
    Alias { within: "spec", old: "Driver", new: "driver", notice: AliasNotice::Rename },
    Alias { within: "spec", old: "DeviceType", new: "deviceType", notice: AliasNotice::Rename },
];

fn serve_class(schema: &mut Value) {
    let spec = serve::schema_of(schema, "spec");
    serve::attribute_matches(spec);
    serve::any_spelling_of_access_mode(spec);
    serve::driver_names(spec);
    spec["properties"]["deviceTypes"] = json!({
        "description": "Deprecated: use `deviceType`. One type, or a list of one.",
        "x-kubernetes-preserve-unknown-fields": true,
    });
    // Expressions cannot see a field of unknown type, so this is not one.
    spec["anyOf"] = json!([
        {"required": ["deviceType"]},
        {"required": ["deviceTypes"]},
        {"required": ["DeviceType"]},
    ]);
    serve::refuse_conflicting_aliases(spec, &ALIASES);
    serve::rule(
        spec,
        "(has(self.minDeviceCount) ? self.minDeviceCount : has(self.deviceMinCount) ? \
         self.deviceMinCount : 1) <= (has(self.maxDeviceCount) ? self.maxDeviceCount : \
         has(self.deviceMaxCount) ? self.deviceMaxCount : 2147483647)",
        "minDeviceCount must not be above maxDeviceCount",
    );
}

impl DeviceClass {
    /// Checks the rules that span several fields.
    pub fn validate(&self, findings: &mut Findings) {
        let path = Path::of("spec");
        let spec = &self.spec;
        check_device_type(&spec.device_type, &path.key("deviceType"), findings);
        if let Some(driver) = &spec.driver {
            check_driver(driver, &path.key("driver"), findings);
        }
        check_constraints(spec.constraints.as_deref(), &path, findings);
        let least = spec.min_device_count.unwrap_or(1);
        if let Some(most) = spec.max_device_count
            && least > most
        {
            let text = format!("Invalid value: {most}: below minDeviceCount, which is {least}");
            findings.error(&path.key("maxDeviceCount"), text);
        }
        for (index, config) in spec.configs.iter().enumerate() {
            let path = path.key("configs").index(index);
            check_config(config.reference(), &path, findings);
            if let Some(problem) = dns_label_problem(&config.namespace) {
                let text = format!("Invalid value: \"{}\": {problem}", config.namespace);
                findings.error(&path.key("namespace"), text);
            }
        }
    }
}
