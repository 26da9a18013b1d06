//! DeviceDriver: a driver and the device types it handles.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{DRIVER_NAME, check_device_type, normalise, serve};
use crate::finding::Findings;
use crate::kind::{Column, Trust};
use crate::kubernetes;
use crate::object::object;
use gantry_yaml::node::Path;

object! {
    /// DeviceDriver registers a driver. Its name is what pools and classes put in `driver`.
    pub struct DeviceDriver {
        /// The types of the devices that the driver handles, such as `gpu` or `sriov-nic`. A claim
        /// or class that asks for a type is offered the devices of every driver that lists it.
        #[schemars(
            length(min = 1, max = 64),
            inner(length(min = 1, max = 63)),
            extend("x-kubernetes-list-type" = "set")
        )]
        pub device_types: Vec<String>,
        /// What the cluster makes of the driver.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub status: Option<DriverStatus>,
    }
    group: "devmgmtproto.k8s.io",
    version: "v1alpha1",
    plural: "devicedrivers",
    scope: Cluster,
    short_names: &["dd"],
    status: true,
    columns: &[
        Column::wide("Types", "string", ".deviceTypes"),
        Column::wide("Ready", "string", ".status.conditions[?(@.type==\"Ready\")].status"),
        Column::AGE,
    ],
    trust: Trust::Administrator,
    any_case: true,
    serve: serve_driver,
    normalise: normalise::driver,
}

/// What the cluster makes of a driver.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DriverStatus {
    /// `Ready`: at least one pool names the driver.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "kubernetes::conditions")]
    pub conditions: Vec<Condition>,
}

fn serve_driver(schema: &mut Value) {
    serve::schema_of(schema, "deviceTypes")["items"]["pattern"] = json!(serve::DNS_LABEL);
    let types = serve::schema_of(schema, "deviceTypes").clone();
    schema["properties"]["spec"] = json!({
        "type": "object",
        "description": "Deprecated: use `deviceTypes` beside `metadata`.",
        "properties": {
            "deviceTypes": crate::schema::described(
                types,
                "Deprecated: use `deviceTypes` beside `metadata`.",
            ),
        },
    });
    if let Some(fields) = schema.as_object_mut() {
        fields.shift_remove("required");
    }
    serve::rule(
        schema,
        "has(self.deviceTypes) != (has(self.spec) && has(self.spec.deviceTypes)) || \
         (has(self.deviceTypes) && self.deviceTypes == self.spec.deviceTypes)",
        "deviceTypes is required beside metadata; if spec.deviceTypes is set as well, it must be \
         the same",
    );
    serve::rule(
        schema,
        "size(self.metadata.name) <= 63",
        "the name of a driver has at most 63 characters",
    );
}

impl DeviceDriver {
    /// Checks the rules that span several fields.
    pub fn validate(&self, findings: &mut Findings) {
        if let Some(name) = &self.metadata.name
            && name.len() > DRIVER_NAME
        {
            let text =
                format!("Too long: the name of a driver has at most {DRIVER_NAME} characters");
            findings.error(&Path::of("metadata.name"), text);
        }
        let mut seen = std::collections::BTreeSet::new();
        for (index, device_type) in self.device_types.iter().enumerate() {
            let path = Path::of("deviceTypes").index(index);
            check_device_type(device_type, &path, findings);
            if !seen.insert(device_type) {
                findings.error(&path, format!("Duplicate value: \"{device_type}\""));
            }
        }
    }
}
