//! What the schemas of this group must say to a server besides their canonical form: every old
//! spelling, and the rules across fields as CEL.
//!
//! A server cannot see into a field of unknown type, so no rule here speaks of `requests`; the
//! webhook does.

use serde_json::{Value, json};

use super::AccessMode;
use super::normalise::{ATTRIBUTE_MATCHES, CONTSTRAINTS, COUNTS, FLAT, TEMPLATE, TERM_ALIASES};
use crate::alias::{self, Alias};
use crate::schema::described;

/// A name without dots.
pub(super) const DNS_LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";

const DNS_SUBDOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";

/// The part of a schema at a path such as `spec.claims[]`.
pub(super) fn part<'a>(schema: &'a mut Value, path: &str) -> &'a mut Value {
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

/// Refuses two names of one field with different values.
pub(super) fn twins(schema: &mut Value, aliases: &[Alias]) {
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

/// Lets every spelling of an access mode through.
pub(super) fn any_spelling_of_access_mode(schema: &mut Value) {
    let mode = part(schema, "accessMode");
    if let Some(fields) = mode.as_object_mut() {
        fields.shift_remove("enum");
    }
    mode["pattern"] = json!(AccessMode::PATTERN);
    mode["maxLength"] = json!(20);
}

/// A server takes for a driver what can be the name of an object.
pub(super) fn driver_names(schema: &mut Value) {
    for name in ["driver", "Driver"] {
        if let Some(driver) = alias::schema_at(schema, name) {
            driver["pattern"] = json!(DNS_SUBDOMAIN);
        }
    }
}

/// Amounts below zero are refused wherever they are amounts of something.
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
        "[has(self.stringValue), has(self.intValue), has(self.quantityValue), has(self.semVerValue), has(self.boolValue)].exists_one(set, set)",
        "set exactly one of stringValue, intValue, quantityValue, semVerValue and boolValue",
    );
}

pub(super) fn capacity(schema: &mut Value) {
    not_negative(schema);
    rule(
        schema,
        "[has(self.capacity), has(self.counter), has(self.quantity), has(self.block), has(self.accessMode)].exists_one(set, set)",
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
    twins(schema, &aliases);
    toleration(part(schema, "tolerations[]"));
    rule(schema, "has(self.driver) || has(self.Driver)", "driver is required");
}

/// The claims that a pod's object or annotation lists.
pub(super) fn pod_claims(schema: &mut Value) {
    claim_spec(part(schema, "claim"));
    terms(part(schema, "template"));
    attribute_matches(part(schema, "template"));
    let template = part(schema, "template").clone();
    for field in TEMPLATE {
        let text = format!("Deprecated: use `template.{field}`.");
        schema["properties"][field] = described(template["properties"][field].clone(), &text);
    }
    // `claims` of an empty template may stand beside it.
    loosen(part(schema, "template"), "claims");
    rule(
        schema,
        "[has(self.claimName), has(self.claimTemplateName), has(self.claim), has(self.template) && has(self.template.claims) || has(self.claims)].exists_one(set, set)",
        "set exactly one of claimName, claimTemplateName, claim and template",
    );
}

/// The spec of a claim, which may also be written flat.
pub(super) fn claim_spec(schema: &mut Value) {
    terms(schema);
    attribute_matches(schema);
    let term = part(schema, "claims[]");
    if let Some(fields) = term["properties"].as_object().cloned() {
        alias::declare_all(&fields, schema, "claims[]");
    }
    loosen(schema, "claims");
    let flat: Vec<&str> = FLAT
        .into_iter()
        .filter(|field| *field != "requests")
        .chain(TERM_ALIASES.iter().map(|alias| alias.old))
        .collect();
    rule(
        schema,
        &format!("has(self.claims) ? !({}) : {ONE_SOURCE}", any(&flat)),
        "set claims, or else exactly one of deviceClass, deviceType and oneOf; what belongs to an entry goes into claims",
    );
    ask_rules(schema);
}

/// The terms below `claims`.
fn terms(schema: &mut Value) {
    let term = part(schema, "claims[]");
    loosen(term, "name");
    part(term, "name")["pattern"] = json!(DNS_LABEL);
    ask(term);
    let alternative = part(term, "oneOf[]");
    ask(alternative);
    rule(
        alternative,
        "has(self.deviceClass) != (has(self.deviceType) || has(self.DeviceType))",
        "set exactly one of deviceClass and deviceType",
    );
    rule(term, ONE_SOURCE, "set exactly one of deviceClass, deviceType and oneOf");
    rule(
        term,
        &format!("!has(self.oneOf) || !({})", any(&BESIDE_ONE_OF)),
        "with oneOf, only name may be set beside it",
    );
    rule(
        schema,
        "!has(self.claims) || self.claims.all(a, !has(a.name) || self.claims.exists_one(b, has(b.name) && b.name == a.name))",
        "the names of the entries must differ",
    );
}

const ONE_SOURCE: &str = "[has(self.deviceClass), has(self.deviceType) || has(self.DeviceType), has(self.oneOf)].exists_one(set, set)";

/// What a term with alternatives must not set, apart from what [`ONE_SOURCE`] looks at.
const BESIDE_ONE_OF: [&str; 18] = [
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
fn ask(schema: &mut Value) {
    for (name, holder) in COUNTS {
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
    not_negative(part(schema, "limits"));
    toleration(part(schema, "tolerations[]"));
    ask_rules(schema);
}

fn ask_rules(schema: &mut Value) {
    // Comparing constraints, at their length, is beyond what a server spends on a pod's entries.
    for alias in TERM_ALIASES.iter().filter(|alias| alias.new != CONTSTRAINTS.new) {
        twins(schema, &[*alias]);
    }
    rule(
        schema,
        "!has(self.count) || !has(self.minDeviceCount) || self.count == self.minDeviceCount",
        "count and minDeviceCount both mean requests.count, and they differ",
    );
    rule(
        schema,
        "!has(self.minDeviceCount) || !has(self.maxDeviceCount) || self.minDeviceCount <= self.maxDeviceCount",
        "minDeviceCount must not be above maxDeviceCount",
    );
    rule(
        schema,
        &format!(
            "!has(self.allocationMode) || self.allocationMode != 'All' || !({} || has(self.limits) && 'count' in self.limits)",
            any(&["count", "minDeviceCount", "maxDeviceCount", "deviceMinCount", "deviceMaxCount"])
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
fn any(fields: &[&str]) -> String {
    let set: Vec<String> = fields.iter().map(|field| format!("has(self.{field})")).collect();
    set.join(" || ")
}

/// Old forms leave out what is required of the canonical one.
fn loosen(schema: &mut Value, field: &str) {
    let Some(fields) = schema.as_object_mut() else { return };
    if let Some(required) = fields.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| name != field);
        if required.is_empty() {
            fields.shift_remove("required");
        }
    }
}
