//! Versions and schemas as upstream shows them in messages: by the names of its own structures,
//! with every member.

use std::fmt::Write;

use serde_json::Value;

use super::versions::Versions;
use crate::go;
use crate::props::{Additional, Items, Props};

/// The members of a schema: upstream's names in upstream's order, and the names in JSON.
pub(super) const MEMBERS: [(&str, &str); 44] = [
    ("ID", "id"),
    ("Schema", "$schema"),
    ("Ref", "$ref"),
    ("Description", "description"),
    ("Type", "type"),
    ("Nullable", "nullable"),
    ("Format", "format"),
    ("Title", "title"),
    ("Default", "default"),
    ("Maximum", "maximum"),
    ("ExclusiveMaximum", "exclusiveMaximum"),
    ("Minimum", "minimum"),
    ("ExclusiveMinimum", "exclusiveMinimum"),
    ("MaxLength", "maxLength"),
    ("MinLength", "minLength"),
    ("Pattern", "pattern"),
    ("MaxItems", "maxItems"),
    ("MinItems", "minItems"),
    ("UniqueItems", "uniqueItems"),
    ("MultipleOf", "multipleOf"),
    ("Enum", "enum"),
    ("MaxProperties", "maxProperties"),
    ("MinProperties", "minProperties"),
    ("Required", "required"),
    ("Items", "items"),
    ("AllOf", "allOf"),
    ("OneOf", "oneOf"),
    ("AnyOf", "anyOf"),
    ("Not", "not"),
    ("Properties", "properties"),
    ("AdditionalProperties", "additionalProperties"),
    ("PatternProperties", "patternProperties"),
    ("Dependencies", "dependencies"),
    ("AdditionalItems", "additionalItems"),
    ("Definitions", "definitions"),
    ("ExternalDocs", "externalDocs"),
    ("Example", "example"),
    ("XPreserveUnknownFields", "x-kubernetes-preserve-unknown-fields"),
    ("XEmbeddedResource", "x-kubernetes-embedded-resource"),
    ("XIntOrString", "x-kubernetes-int-or-string"),
    ("XListMapKeys", "x-kubernetes-list-map-keys"),
    ("XListType", "x-kubernetes-list-type"),
    ("XMapType", "x-kubernetes-map-type"),
    ("XValidations", "x-kubernetes-validations"),
];

/// Versions without the members they share.
pub(super) fn versions(list: &[Value], versions: &Versions<'_>) -> String {
    let shown = list.iter().filter_map(Props::of).map(|version| {
        let own = |name: &str| version.get(name).filter(|_| !versions.share(name));
        structure(&[
            ("Name", text(version.text("name"))),
            ("Served", version.flag("served").to_string()),
            ("Storage", version.flag("storage").to_string()),
            ("Deprecated", version.flag("deprecated").to_string()),
            ("DeprecationWarning", value(version.get("deprecationWarning"))),
            ("Schema", own("schema").and_then(Props::of).map_or_else(null, validation)),
            (
                "Subresources",
                own("subresources").and_then(Props::of).map_or_else(null, subresources),
            ),
            ("AdditionalPrinterColumns", list_of(own("additionalPrinterColumns"), column)),
            (
                "SelectableFields",
                list_of(own("selectableFields"), |field| {
                    structure(&[("JSONPath", text(field.text("jsonPath")))])
                }),
            ),
        ])
    });
    format!("[{}]", shown.collect::<Vec<_>>().join(","))
}

/// A schema.
pub(super) fn schema(props: Props<'_>) -> String {
    let members = MEMBERS.map(|(go_name, name)| (go_name, member(props, go_name, name)));
    structure(&members)
}

fn member(props: Props<'_>, go_name: &str, name: &str) -> String {
    match go_name {
        "ID" | "Schema" | "Description" | "Type" | "Format" | "Title" | "Pattern" => {
            text(props.text(name))
        }
        "Nullable" | "ExclusiveMaximum" | "ExclusiveMinimum" | "UniqueItems"
        | "XEmbeddedResource" | "XIntOrString" => props.flag(name).to_string(),
        "AllOf" | "OneOf" | "AnyOf" => list_of(props.get(name), schema),
        "Not" => props.schema(name).map_or_else(null, schema),
        "Properties" | "PatternProperties" | "Definitions" => {
            if props.get(name).is_none() {
                return null();
            }
            let entries = props.table(name);
            let entries =
                entries.iter().map(|(key, props)| format!("{}:{}", text(key), schema(*props)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(","))
        }
        "Items" => match props.items() {
            Items::Absent => null(),
            Items::Schema(item) => structure(&[("Schema", schema(item)), ("JSONSchemas", null())]),
            Items::Each(_) => {
                let each = list_of(props.get(name), schema);
                structure(&[("Schema", null()), ("JSONSchemas", each)])
            }
        },
        "AdditionalProperties" => match props.additional() {
            Additional::Absent => null(),
            Additional::Allowed(allowed) => {
                structure(&[("Allows", allowed.to_string()), ("Schema", null())])
            }
            Additional::Schema(props) => {
                structure(&[("Allows", true.to_string()), ("Schema", schema(props))])
            }
        },
        "ExternalDocs" => props.schema(name).map_or_else(null, |docs| {
            let (description, url) = (text(docs.text("description")), text(docs.text("url")));
            structure(&[("Description", description), ("URL", url)])
        }),
        "XValidations" => list_of(props.get(name), rule),
        _ => value(props.get(name)),
    }
}

fn rule(rule: Props<'_>) -> String {
    structure(&[
        ("Rule", text(rule.text("rule"))),
        ("Message", text(rule.text("message"))),
        ("MessageExpression", text(rule.text("messageExpression"))),
        ("Reason", value(rule.get("reason"))),
        ("FieldPath", text(rule.text("fieldPath"))),
        ("OptionalOldSelf", value(rule.get("optionalOldSelf"))),
    ])
}

fn validation(props: Props<'_>) -> String {
    structure(&[("OpenAPIV3Schema", props.schema("openAPIV3Schema").map_or_else(null, schema))])
}

fn subresources(props: Props<'_>) -> String {
    let scale = props.schema("scale").map_or_else(null, |scale| {
        structure(&[
            ("SpecReplicasPath", text(scale.text("specReplicasPath"))),
            ("StatusReplicasPath", text(scale.text("statusReplicasPath"))),
            ("LabelSelectorPath", value(scale.get("labelSelectorPath"))),
        ])
    });
    structure(&[("Status", value(props.get("status"))), ("Scale", scale)])
}

fn column(column: Props<'_>) -> String {
    structure(&[
        ("Name", text(column.text("name"))),
        ("Type", text(column.text("type"))),
        ("Format", text(column.text("format"))),
        ("Description", text(column.text("description"))),
        ("Priority", column.integer("priority").unwrap_or_default().to_string()),
        ("JSONPath", text(column.text("jsonPath"))),
    ])
}

fn structure(members: &[(&str, String)]) -> String {
    let mut out = String::from("{");
    for (place, (name, value)) in members.iter().enumerate() {
        let comma = if place > 0 { "," } else { "" };
        write!(out, "{comma}\"{name}\":{value}").expect("writing to a string cannot fail");
    }
    out.push('}');
    out
}

fn list_of<'schema>(
    list: Option<&'schema Value>,
    show: impl Fn(Props<'schema>) -> String,
) -> String {
    let Some(Value::Array(list)) = list else { return null() };
    let shown: Vec<_> = list.iter().filter_map(Props::of).map(show).collect();
    format!("[{}]", shown.join(","))
}

fn text(text: &str) -> String {
    go::json(&Value::from(text))
}

fn value(value: Option<&Value>) -> String {
    value.map_or_else(null, go::json)
}

fn null() -> String {
    "null".to_owned()
}
