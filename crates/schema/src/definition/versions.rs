//! The versions of a definition, and what they share.

use serde_json::Value;

use super::dump;
use crate::expression::RuleCost;
use crate::field_error::{FieldError, FieldErrorReason};
use crate::go;
use crate::metadata::invalid_value;
use crate::names::dns1035_label;
use crate::props::Props;
use crate::structural::{structural_schema, subschemas, unsupported_reason, valid_field_path};

/// The most fields of one version that may select.
const MAX_SELECTABLE_FIELDS: usize = 8;

/// The members of a version that are told as members of the definition if all versions have the
/// same: that is where they stood before there were many versions.
pub(super) const SHARED_MEMBERS: [&str; 4] =
    ["schema", "subresources", "additionalPrinterColumns", "selectableFields"];

/// The versions of a definition.
pub(super) struct Versions<'spec> {
    list: Vec<Props<'spec>>,
    shared: [bool; 4],
}

impl<'spec> Versions<'spec> {
    pub(super) fn of(list: &'spec [Value]) -> Self {
        let list: Vec<_> = list.iter().filter_map(Props::of).collect();
        // An empty list is the same as none.
        let member = |version: &Props<'spec>, name: &str| {
            version.get(name).filter(|value| value.as_array().is_none_or(|it| !it.is_empty()))
        };
        let is_shared = |name: &str| {
            let first = list.first().and_then(|version| member(version, name));
            list.iter().all(|version| member(version, name) == first)
        };
        Self { shared: SHARED_MEMBERS.map(is_shared), list }
    }

    /// Whether all versions have the same `member`.
    pub(super) fn share(&self, member: &str) -> bool {
        SHARED_MEMBERS.iter().zip(self.shared).any(|(name, is_shared)| *name == member && is_shared)
    }

    pub(super) fn have_defaults(&self) -> bool {
        fn node(props: Props<'_>) -> bool {
            props.default_value().is_some() || subschemas(props).into_iter().any(node)
        }
        self.list.iter().any(|version| schema(*version).and_then(Props::of).is_some_and(node))
    }

    pub(super) fn require_schemas(&self, faults: &mut Vec<FieldError>) {
        for (index, version) in self.list.iter().enumerate() {
            if schema(*version).is_none() {
                let field = format!("spec.versions[{index}].schema.openAPIV3Schema");
                faults.push(FieldError::required(field, ""));
            }
        }
    }

    /// Checks what versions have of their own.
    pub(super) fn validate_each(&self, old: Option<&Value>, faults: &mut Vec<FieldError>) {
        for (index, version) in self.list.iter().enumerate() {
            let field = format!("spec.versions[{index}]");
            let name = version.text("name");
            let wrong = dns1035_label(name);
            if !wrong.is_empty() {
                faults.push(invalid_value(&format!("{field}.name"), name, &wrong.join(",")));
            }
            deprecation(*version, &format!("{field}.deprecationWarning"), faults);
            if !self.share("schema") {
                let field = format!("{field}.schema.openAPIV3Schema");
                let has_status = has_status(*version);
                validate_schema(*version, &field, has_status, cost(*version, old), faults);
            }
            self.validate_members(*version, &field, false, faults);
        }
    }

    /// Checks what all versions share.
    pub(super) fn validate_shared(&self, old: Option<&Value>, faults: &mut Vec<FieldError>) {
        let Some(first) = self.list.first() else { return };
        if self.share("schema") {
            let has_status = self.list.iter().any(|version| has_status(*version));
            let field = "spec.validation.openAPIV3Schema";
            validate_schema(*first, field, has_status, cost(*first, old), faults);
        }
        self.validate_members(*first, "spec", true, faults);
    }

    /// Checks the members that are shared, or those that are not.
    fn validate_members(
        &self,
        version: Props<'_>,
        field: &str,
        shared: bool,
        faults: &mut Vec<FieldError>,
    ) {
        if self.share("subresources") == shared {
            subresources(version, &format!("{field}.subresources"), faults);
        }
        if self.share("additionalPrinterColumns") == shared {
            for (index, value) in version.list("additionalPrinterColumns").iter().enumerate() {
                let field = format!("{field}.additionalPrinterColumns[{index}]");
                Props::of(value).into_iter().for_each(|props| column(props, &field, faults));
            }
        }
        if self.share("selectableFields") == shared {
            selectable(version, &format!("{field}.selectableFields"), shared, faults);
        }
    }
}

fn schema(version: Props<'_>) -> Option<&Value> {
    version.schema("schema")?.get("openAPIV3Schema")
}

fn has_status(version: Props<'_>) -> bool {
    version.schema("subresources").is_some_and(|it| it.get("status").is_some())
}

/// What a rule of a version may cost: the schema of a version that did not change was accepted with
/// the rules it has, by this server or another.
fn cost(version: Props<'_>, old: Option<&Value>) -> RuleCost {
    let versions = old.and_then(|old| old.pointer("/spec/versions")?.as_array());
    let mut versions = versions.into_iter().flatten().filter_map(Props::of);
    let is_unchanged = versions
        .find(|old| old.text("name") == version.text("name"))
        .is_some_and(|old| schema(old) == schema(version));
    if is_unchanged { RuleCost::Accepted } else { RuleCost::Limited }
}

fn validate_schema(
    version: Props<'_>,
    field: &str,
    has_status: bool,
    cost: RuleCost,
    faults: &mut Vec<FieldError>,
) {
    let Some(schema) = schema(version) else { return };
    if has_status {
        faults.extend(Props::of(schema).and_then(|props| status_root_error(props, field)));
    }
    faults.append(&mut structural_schema(schema, field, cost));
}

/// What may stand at the root beside a status that is written on its own: nothing that would have
/// to be asked of the whole object.
const ALLOWED_WITH_STATUS: [&str; 22] = [
    "Description",
    "Type",
    "Format",
    "Title",
    "Maximum",
    "ExclusiveMaximum",
    "Minimum",
    "ExclusiveMinimum",
    "MaxLength",
    "MinLength",
    "Pattern",
    "MaxItems",
    "MinItems",
    "UniqueItems",
    "MultipleOf",
    "Required",
    "Items",
    "Properties",
    "ExternalDocs",
    "Example",
    "XPreserveUnknownFields",
    "XValidations",
];

fn status_root_error(props: Props<'_>, field: &str) -> Option<FieldError> {
    for (go_name, name) in dump::MEMBERS {
        if !props.is_set(name) {
            continue;
        }
        let kind = props.text("type");
        if go_name == "Type" && kind != "object" {
            let detail = "only \"object\" is allowed as the type at the root of the schema if the \
                          status subresource is enabled";
            return Some(invalid_value(&format!("{field}.type"), kind, detail));
        }
        if !ALLOWED_WITH_STATUS.contains(&go_name) {
            let message = format!(
                "Invalid value: {}: only [{}] fields are allowed at the root of the schema if the \
                 status subresource is enabled",
                dump::schema(props),
                ALLOWED_WITH_STATUS.join(" ")
            );
            return Some(FieldError::new(field, FieldErrorReason::Invalid, message));
        }
    }
    None
}

fn deprecation(version: Props<'_>, field: &str, faults: &mut Vec<FieldError>) {
    let Some(warning) = version.optional_text("deprecationWarning") else { return };
    let mut tell = |detail: &str| faults.push(invalid_value(field, warning, detail));
    if !version.flag("deprecated") {
        tell("can only be set for deprecated versions");
        return;
    }
    if warning.len() > 256 {
        tell("must be <= 256 characters long");
    }
    if warning.is_empty() {
        tell("must not be an empty string");
    }
    if let Some((index, _)) = warning.char_indices().find(|(_, it)| !go::is_printable(*it)) {
        tell(&format!(
            "must only contain printable UTF-8 characters; non-printable character found at index \
             {index}"
        ));
    }
}

fn subresources(version: Props<'_>, field: &str, faults: &mut Vec<FieldError>) {
    let scale = version.schema("subresources").and_then(|it| it.schema("scale"));
    let Some(scale) = scale else { return };
    let paths = [("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")];
    for (name, root) in paths {
        let (path, field) = (scale.text(name), format!("{field}.scale.{name}"));
        if path.is_empty() {
            faults.push(FieldError::required(field, ""));
        } else if let Some(fault) = simple_path(path, &field) {
            faults.push(fault);
        } else if !path.starts_with(root) {
            let root = root.trim_end_matches('.');
            faults.push(invalid_value(
                &field,
                path,
                &format!("should be a json path under {root}"),
            ));
        }
    }
    let (path, field) =
        (scale.text("labelSelectorPath"), format!("{field}.scale.labelSelectorPath"));
    if path.is_empty() {
        return;
    }
    if let Some(fault) = simple_path(path, &field) {
        faults.push(fault);
    } else if !paths.iter().any(|(_, root)| path.starts_with(root)) {
        let detail = "should be a json path under either .spec or .status";
        faults.push(invalid_value(&field, path, detail));
    }
}

fn simple_path(path: &str, field: &str) -> Option<FieldError> {
    let detail = "must be a simple json path starting with .";
    (!path.starts_with('.')).then(|| invalid_value(field, path, detail))
}

fn column(column: Props<'_>, field: &str, faults: &mut Vec<FieldError>) {
    if column.text("name").is_empty() {
        faults.push(FieldError::required(format!("{field}.name"), ""));
    }
    let types = ["boolean", "date", "integer", "number", "string"];
    let (kind, detail) = (column.text("type"), format!("must be one of {}", types.join(",")));
    if kind.is_empty() {
        faults.push(FieldError::required(format!("{field}.type"), &detail));
    } else if !types.contains(&kind) {
        faults.push(invalid_value(&format!("{field}.type"), kind, &detail));
    }
    let formats = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
    let format = column.text("format");
    if !format.is_empty() && !formats.contains(&format) {
        let detail = format!("must be one of {}", formats.join(","));
        faults.push(invalid_value(&format!("{field}.format"), format, &detail));
    }
    let (path, field) = (column.text("jsonPath"), format!("{field}.JSONPath"));
    if path.is_empty() {
        faults.push(FieldError::required(field, ""));
    } else {
        faults.extend(simple_path(path, &field));
    }
}

fn selectable(version: Props<'_>, field: &str, shared: bool, faults: &mut Vec<FieldError>) {
    let fields = version.list("selectableFields");
    if fields.is_empty() {
        return;
    }
    let Some(schema) = schema(version).and_then(Props::of) else {
        let detail = match shared {
            true => "may only be set when validations.schema is included",
            false => "may only be set when `version.schema.openAPIV3Schema` is not included",
        };
        faults.push(invalid_value(field, "", detail));
        return;
    };
    if unsupported_reason(schema).is_some() {
        return;
    }
    let mut seen: Vec<String> = Vec::new();
    for (index, selectable) in fields.iter().enumerate() {
        let field = format!("{field}[{index}].jsonPath");
        let path = selectable.get("jsonPath").and_then(Value::as_str).unwrap_or_default();
        if path.is_empty() {
            faults.push(FieldError::required(field, ""));
            continue;
        }
        let found = match valid_field_path(path, schema, false) {
            Ok(found) => found,
            Err(reason) => {
                faults.push(invalid_value(&field, path, &format!("is an invalid path: {reason}")));
                continue;
            }
        };
        if found.first == "metadata" {
            faults.push(invalid_value(&field, path, "must not point to fields in metadata"));
        }
        let kind = found.schema.map(|schema| schema.text("type")).unwrap_or_default();
        if !matches!(kind, "string" | "boolean" | "integer") {
            let detail = "must point to a field of type string, boolean or integer. Enum string \
                          fields and strings with formats are allowed.";
            faults.push(invalid_value(&field, path, detail));
        }
        if seen.contains(&found.text) {
            faults.push(FieldError::duplicate(field, &Value::from(path)));
        } else {
            seen.push(found.text);
        }
    }
    if seen.len() > MAX_SELECTABLE_FIELDS {
        faults.push(FieldError::too_many(field, seen.len(), MAX_SELECTABLE_FIELDS));
    }
}
