//! Adds what a server needs in the schemas of this group besides their canonical form: every old
//! spelling, and the rules across fields as CEL.
//!
//! A server cannot validate a field of unknown type, so no rule here is about `requests`; the
//! webhook checks it.

use serde_json::{Value, json};

use super::AccessMode;
use super::normalise::{
    ATTRIBUTE_MATCHES, CONTSTRAINTS, FLAT_TERM_FIELDS, LEGACY_COUNT_FIELDS, TEMPLATE, TERM_ALIASES,
};
use crate::alias::{self, Alias};
use crate::schema::described;

/// A name without dots.
pub(super) const DNS_LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";

const DNS_SUBDOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";

/// The part of a schema at a path such as `spec.claims[]`.
pub(super) fn schema_of<'a>(schema: &'a mut Value, path: &str) -> &'a mut Value {
    alias::schema_at(schema, path).expect("callers name fields of the types they serve")
}

/// Adds a rule in CEL.
pub(super) fn rule(schema: &mut Value, rule: &str, message: &str) {
    let rule = json!({"rule": rule, "message": message});
    match schema.get_mut("x-kubernetes-validations").and_then(Value::as_array_mut) {
        Some(rules) => rules.push(rule),
        None => schema["x-kubernetes-validations"] = json!([rule]),
    }
}

/// Rejects two names of one field with different values.
pub(super) fn refuse_conflicting_aliases(schema: &mut Value, aliases: &[Alias]) {
    for Alias { old, new, .. } in aliases {
        rule(
            schema,
            &format!("!has(self.{old}) || !has(self.{new}) || self.{old} == self.{new}"),
            &format!("{old} is the old name of {new}, and they differ; keep {new}"),
        );
    }
}

/// Declares the name before `matchAttributes`.
pub(super) fn attribute_matches(schema: &mut Value) {
    alias::declare(&[ATTRIBUTE_MATCHES], schema);
}

/// Allows every spelling of an access mode.
pub(super) fn any_spelling_of_access_mode(schema: &mut Value) {
    let mode = schema_of(schema, "accessMode");
    if let Some(fields) = mode.as_object_mut() {
        fields.shift_remove("enum");
    }
    mode["pattern"] = json!(AccessMode::PATTERN);
    mode["maxLength"] = json!(20);
}

/// A server accepts as a driver every valid object name.
pub(super) fn driver_names(schema: &mut Value) {
    for name in ["driver", "Driver"] {
        if let Some(driver) = alias::schema_at(schema, name) {
            driver["pattern"] = json!(DNS_SUBDOMAIN);
        }
    }
}

/// Amounts below zero are rejected wherever they are amounts of a resource.
pub(super) fn not_negative(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    if fields.contains_key("x-kubernetes-int-or-string") {
        if let Some(pattern) = fields.get("pattern").and_then(Value::as_str) {
            let pattern = pattern.replacen(r"^(\+|-)?", r"^\+?", 1);
            fields.insert("pattern".to_owned(), json!(pattern));
        }
        fields.insert("minimum".to_owned(), json!(0));
        return;
    }
    if let Some(properties) = fields.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(not_negative);
    }
    if let Some(values) = fields.get_mut("additionalProperties") {
        not_negative(values);
    }
}

pub(super) fn attribute(schema: &mut Value) {
    rule(
        schema,
        "[has(self.stringValue), has(self.intValue), has(self.quantityValue), \
         has(self.semVerValue), has(self.boolValue)].exists_one(set, set)",
        "set exactly one of stringValue, intValue, quantityValue, semVerValue and boolValue",
    );
}

pub(super) fn capacity(schema: &mut Value) {
    not_negative(schema);
    rule(
        schema,
        "[has(self.capacity), has(self.counter), has(self.quantity), has(self.block), \
         has(self.accessMode)].exists_one(set, set)",
        "set exactly one of capacity, counter, quantity, block and accessMode",
    );
    rule(
        schema,
        "has(self.capacity) ? !has(self.topologies) : !has(self.blockSize)",
        "blockSize goes with capacity, topologies with every other shape",
    );
}

pub(super) fn privileged_spec(schema: &mut Value) {
    let aliases = [CONTSTRAINTS, TERM_ALIASES[3]];
    alias::declare(&aliases, schema);
    driver_names(schema);
    refuse_conflicting_aliases(schema, &aliases);
    toleration(schema_of(schema, "tolerations[]"));
    rule(schema, "has(self.driver) || has(self.Driver)", "driver is required");
}

/// The claims that a pod's object or annotation lists.
pub(super) fn pod_claims(schema: &mut Value) {
    claim_spec(schema_of(schema, "claim"));
    terms(schema_of(schema, "template"));
    attribute_matches(schema_of(schema, "template"));
    let template = schema_of(schema, "template").clone();
    for field in TEMPLATE {
        let text = format!("Deprecated: use `template.{field}`.");
        schema["properties"][field] = described(template["properties"][field].clone(), &text);
    }
    // `claims` of an empty template may stand beside it.
    make_optional(schema_of(schema, "template"), "claims");
    rule(
        schema,
        "[has(self.claimName), has(self.claimTemplateName), has(self.claim), has(self.template) && \
         has(self.template.claims) || has(self.claims)].exists_one(set, set)",
        "set exactly one of claimName, claimTemplateName, claim and template",
    );
}

/// The spec of a claim, which may also be written flat.
pub(super) fn claim_spec(schema: &mut Value) {
    terms(schema);
    attribute_matches(schema);
    let term = schema_of(schema, "claims[]");
    if let Some(fields) = term["properties"].as_object().cloned() {
        alias::declare_all(&fields, schema, "claims[]");
    }
    make_optional(schema, "claims");
    let flat: Vec<&str> = FLAT_TERM_FIELDS
        .into_iter()
        .filter(|field| *field != "requests")
        .chain(TERM_ALIASES.iter().map(|alias| alias.old))
        .collect();
    rule(
        schema,
        &format!("has(self.claims) ? !({}) : {ONE_SOURCE}", any_set(&flat)),
        "set claims, or else exactly one of deviceClass, deviceType and oneOf; what belongs to an \
         entry goes into claims",
    );
    device_request_rules(schema);
}

/// The terms below `claims`.
fn terms(schema: &mut Value) {
    let term = schema_of(schema, "claims[]");
    make_optional(term, "name");
    schema_of(term, "name")["pattern"] = json!(DNS_LABEL);
    device_request(term);
    let alternative = schema_of(term, "oneOf[]");
    device_request(alternative);
    rule(
        alternative,
        "has(self.deviceClass) != (has(self.deviceType) || has(self.DeviceType))",
        "set exactly one of deviceClass and deviceType",
    );
    rule(term, ONE_SOURCE, "set exactly one of deviceClass, deviceType and oneOf");
    rule(
        term,
        &format!("!has(self.oneOf) || !({})", any_set(&FORBIDDEN_WITH_ONE_OF)),
        "with oneOf, only name may be set beside it",
    );
    rule(
        schema,
        "!has(self.claims) || self.claims.all(a, !has(a.name) || self.claims.exists_one(b, \
         has(b.name) && b.name == a.name))",
        "the names of the entries must differ",
    );
}

const ONE_SOURCE: &str = "[has(self.deviceClass), has(self.deviceType) || has(self.DeviceType), \
                          has(self.oneOf)].exists_one(set, set)";

/// What a term with alternatives must not set, apart from what [`ONE_SOURCE`] looks at.
const FORBIDDEN_WITH_ONE_OF: [&str; 18] = [
    "driver",
    "Driver",
    "constraints",
    "contstraints",
    "limits",
    "allocationMode",
    "matchAttributes",
    "attributeMatches",
    "distinctAttributes",
    "accessMode",
    "topologies",
    "tolerations",
    "configs",
    "count",
    "minDeviceCount",
    "maxDeviceCount",
    "deviceMinCount",
    "deviceMaxCount",
];

/// What a term and an alternative have in common.
fn device_request(schema: &mut Value) {
    for (name, holder) in LEGACY_COUNT_FIELDS {
        schema["properties"][name] = json!({
            "description": format!("Deprecated: use `{holder}.count`."),
            "type": "integer",
            "format": "int64",
            "minimum": 1,
            "maximum": i32::MAX,
        });
    }
    alias::declare(&TERM_ALIASES, schema);
    attribute_matches(schema);
    any_spelling_of_access_mode(schema);
    driver_names(schema);
    not_negative(schema_of(schema, "limits"));
    toleration(schema_of(schema, "tolerations[]"));
    device_request_rules(schema);
}

fn device_request_rules(schema: &mut Value) {
    // Comparing constraints, at their length, is beyond what a server spends on a pod's entries.
    for alias in TERM_ALIASES.iter().filter(|alias| alias.new != CONTSTRAINTS.new) {
        refuse_conflicting_aliases(schema, &[*alias]);
    }
    rule(
        schema,
        "!has(self.count) || !has(self.minDeviceCount) || self.count == self.minDeviceCount",
        "count and minDeviceCount both mean requests.count, and they differ",
    );
    rule(
        schema,
        "!has(self.minDeviceCount) || !has(self.maxDeviceCount) || self.minDeviceCount <= \
         self.maxDeviceCount",
        "minDeviceCount must not be above maxDeviceCount",
    );
    rule(
        schema,
        &format!(
            "!has(self.allocationMode) || self.allocationMode != 'All' || !({} || has(self.limits) \
             && 'count' in self.limits)",
            any_set(&[
                "count",
                "minDeviceCount",
                "maxDeviceCount",
                "deviceMinCount",
                "deviceMaxCount"
            ])
        ),
        "allocationMode All takes every device there is; remove the counts",
    );
}

fn toleration(schema: &mut Value) {
    rule(
        schema,
        "has(self.operator) && self.operator == 'Exists' ? !has(self.value) : has(self.key)",
        "operator Equal needs a key, operator Exists takes no value",
    );
}

/// CEL for "one of these fields is set".
fn any_set(fields: &[&str]) -> String {
    let set: Vec<String> = fields.iter().map(|field| format!("has(self.{field})")).collect();
    set.join(" || ")
}

/// Old forms leave out fields that are required in the canonical one.
fn make_optional(schema: &mut Value, field: &str) {
    let Some(fields) = schema.as_object_mut() else { return };
    if let Some(required) = fields.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| name != field);
        if required.is_empty() {
            fields.shift_remove("required");
        }
    }
}
