//! Reads recorded requests to kube-apiserver, and uses this crate as a server would.

use std::net::IpAddr;

use gantry_kinds::service::{AllocationError, ServiceAllocationError, ServiceAllocator};
use gantry_kinds::{
    Behaviour, admission_plugins, admission_policies, behaviour, service, validate_metadata,
};
use gantry_schema::FieldError;
use serde_json::{Value, json};

/// The placeholder for the time of every write.
pub(crate) const NOW: &str = "2024-01-01T00:00:00Z";

/// One row of a recording.
pub(crate) struct Row(pub(crate) Value);

impl Row {
    pub(crate) fn read(text: &str) -> Vec<Self> {
        serde_json::from_str::<Vec<Value>>(text).unwrap().into_iter().map(Self).collect()
    }

    pub(crate) fn text(&self, field: &str) -> &str {
        self.0[field].as_str().unwrap_or_default()
    }

    pub(crate) fn name(&self) -> String {
        format!("{}: {}", self.text("resource"), self.text("why"))
    }

    pub(crate) fn namespaced(&self) -> bool {
        self.0["namespaced"].as_bool().unwrap()
    }

    pub(crate) fn behaviour(&self) -> &'static Behaviour {
        behaviour(self.text("group"), self.text("resource"))
    }

    /// Returns the object that was sent, as it reaches this crate: with name and namespace set by
    /// the server.
    pub(crate) fn sent(&self) -> Value {
        let mut object = self.0["send"].clone();
        if self.namespaced() {
            object["metadata"]["namespace"] = json!("kinds");
        }
        object
    }
}

/// Allocates the values that kube-apiserver printed in a dry run.
struct PlaceholderAllocator;

impl ServiceAllocator for PlaceholderAllocator {
    fn reserve_cluster_ip(&mut self, _wanted: IpAddr) -> Result<(), AllocationError> {
        Ok(())
    }

    fn allocate_cluster_ip(&mut self) -> Result<IpAddr, AllocationError> {
        Ok(IpAddr::from([10, 96, 0, 0]))
    }

    fn reserve_node_port(&mut self, _wanted: i64) -> Result<(), AllocationError> {
        Ok(())
    }

    fn allocate_node_port(&mut self) -> Result<i64, AllocationError> {
        Ok(30_000)
    }
}

/// Allocates the addresses and ports of a service, as a server does before it validates the rest.
pub(crate) fn allocate(object: &mut Value, old: Option<&Value>) -> Result<(), Vec<FieldError>> {
    service::allocate(object, old, &mut PlaceholderAllocator).map_err(|refusal| match refusal {
        ServiceAllocationError::Invalid(faults) => faults,
        ServiceAllocationError::Internal(words) | ServiceAllocationError::Failure(words) => {
            unreachable!("the placeholder allocator is never exhausted: {words}")
        }
    })
}

/// Does everything a server does to a new object before it is stored.
pub(crate) fn create(row: &Row) -> Result<Value, Vec<FieldError>> {
    let kind = row.behaviour();
    let mut object = row.sent();
    kind.default(&mut object);
    match row.text("resource") {
        "pods" => {
            admission_plugins::service_account(&mut object, Some(&json!({})), "xxxxx").unwrap();
            admission_plugins::priority(&mut object, None).unwrap();
            admission_plugins::default_tolerations(&mut object);
        }
        "nodes" => admission_plugins::taint_new_node(&mut object),
        "persistentvolumeclaims" => {
            admission_plugins::default_storage_class(&mut object, std::iter::empty());
        }
        _ => {}
    }
    admission_plugins::protect_storage(&mut object, row.text("resource"));
    kind.prepare_create(&mut object, NOW);
    if row.text("resource") == "services" {
        allocate(&mut object, None)?;
    }
    let (mut faults, _) = validate_metadata(&object, None, row.namespaced(), kind);
    faults.extend(kind.validate_create(&object));
    if row.text("resource") == "validatingadmissionpolicies" {
        // Expressions are checked elsewhere, by a CEL compiler.
        faults.extend(admission_policies::validate_policy(&object, None, &mut |_, _| None));
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    Ok(object)
}

/// Fields that a typed writer prints even if they are empty, which is not part of this crate.
const PRINTED: [&str; 23] = [
    "resources",
    "status",
    "metadata",
    "strategy",
    "source",
    "loadBalancer",
    "conditions",
    "firstTimestamp",
    "lastTimestamp",
    "eventTime",
    "reportingComponent",
    "reportingInstance",
    "currentMetrics",
    "topologyKeys",
    "daemonEndpoints",
    "nodeInfo",
    "service",
    "lastProbeTime",
    "spec",
    "data",
    "default",
    "defaultRequest",
    "lastTransitionTime",
];
/// Counters that are printed even if they are zero.
const COUNTERS: [&str; 11] = [
    "replicas",
    "availableReplicas",
    "currentNumberScheduled",
    "numberMisscheduled",
    "desiredNumberScheduled",
    "numberReady",
    "desiredReplicas",
    "disruptionsAllowed",
    "currentHealthy",
    "desiredHealthy",
    "expectedPods",
];

/// Returns an object without fields that differ from run to run or that only a writer adds.
pub(crate) fn without_volatile_fields(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in ["uid", "creationTimestamp", "resourceVersion", "managedFields"] {
            metadata.shift_remove(field);
        }
    }
    remove_volatile_fields(&mut object);
    object
}

fn remove_volatile_fields(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (_, field) in fields.iter_mut() {
                remove_volatile_fields(field);
            }
            fields.retain(|key, field| {
                // No type prints an empty list that a client may leave out.
                if field.is_null() || *field == json!([]) {
                    return false;
                }
                let texts = field.as_object().is_some_and(|it| it.values().all(|it| it == ""));
                let empty = texts
                    || *field == json!("")
                    || *field == json!({ "kubeletEndpoint": { "Port": 0 } });
                let zero = *field == json!(0) && COUNTERS.contains(&key.as_str());
                !(empty && PRINTED.contains(&key.as_str()) || zero)
            });
            fields.retain(|key, field| !(*field == json!({}) && PRINTED.contains(&key.as_str())));
            for field in ["lastPhaseTransitionTime", "lastTransitionTime"] {
                if fields.get(field).is_some_and(Value::is_string) {
                    fields.insert(field.to_owned(), json!("masked"));
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(remove_volatile_fields),
        Value::String(text) => {
            if text.starts_with("kube-api-access-") {
                "kube-api-access-masked".clone_into(text);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns field, reason and message of every error, as a client receives them.
pub(crate) fn causes(faults: &[FieldError]) -> Vec<String> {
    faults
        .iter()
        .map(|it| format!("{} | {} | {}", it.field, it.reason.as_str(), it.message))
        .collect()
}

/// Returns the causes of a recorded rejection, in the same form.
pub(crate) fn recorded_causes(row: &Row) -> Vec<String> {
    let causes = row.0["causes"].as_array().unwrap();
    let part = |cause: &Value, name: &str| cause[name].as_str().unwrap_or_default().to_owned();
    causes
        .iter()
        .map(|it| {
            format!("{} | {} | {}", part(it, "field"), part(it, "reason"), part(it, "message"))
        })
        .collect()
}

/// Compares all rows before failing, so that one run shows every difference.
pub(crate) fn all_agree(rows: &[Row], check: impl Fn(&Row) -> Option<String>) {
    let found: Vec<String> = rows
        .iter()
        .filter_map(|row| Some(format!("\n## {}\n{}", row.name(), check(row)?)))
        .collect();
    assert!(found.is_empty(), "{} of {} differ{}", found.len(), rows.len(), found.concat());
}
