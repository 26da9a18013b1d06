//! Adds what a server must accept besides the canonical form, and the rules that only a server can
//! check.

use serde_json::{Value, json};

use super::normalise::{CONTAINER_ALIASES, driver_container_aliases};
use crate::alias::{Alias, schema_at};

/// A version turns node labels into switches; adding or removing one would strand the nodes (W-23).
/// It may be set in two places, so the rule is above both.
const VERSION_STAYS: &str = "((has(self.version) && self.version != '') || (has(self.container) && \
                             has(self.container.version) && self.container.version != '')) == \
                             ((has(oldSelf.version) && oldSelf.version != '') || \
                             (has(oldSelf.container) && has(oldSelf.container.version) && \
                             oldSelf.container.version != ''))";

/// The device plugin has an image (W-22), which may stand in two places.
const IMAGE_IS_SET: &str = "has(self.image) || (has(self.container) && has(self.container.image))";

/// Extends the schema of a ModuleSpec with every spelling that [`super::normalise`] reads, and
/// removes constraints that OpenAPI would report with other messages than the rules of the kind do.
pub(super) fn module_spec(spec: &mut Value) {
    accept_any_label_values(spec, "selector");
    declare(
        spec,
        "imageRepoSecret",
        json!({"x-kubernetes-preserve-unknown-fields": true}),
        "Deprecated: use `driverContainer.imageRepoSecrets` and `devicePlugin.imagePullSecrets`.",
    );
    if let Some(driver) = schema_at(spec, "driverContainer") {
        driver_container(driver);
    }
    if let Some(plugin) = schema_at(spec, "devicePlugin") {
        device_plugin(plugin);
    }
}

/// Allows the values of a map of labels to be any scalar.
///
/// They are nullable so that a server keeps a null: dropped, it would select more nodes than
/// intended.
pub(super) fn accept_any_label_values(holder: &mut Value, field: &str) {
    if let Some(labels) = schema_at(holder, field) {
        labels["additionalProperties"] = json!({
            "description": "Value of the label. Numbers and booleans are read as text.",
            "nullable": true,
            "x-kubernetes-preserve-unknown-fields": true,
        });
    }
}

fn driver_container(driver: &mut Value) {
    for place in ["container.", ""] {
        for holder in ["", "kernelMappings[]."] {
            if let Some(build) = schema_at(driver, &format!("{place}{holder}build")) {
                accept_any_label_values(build, "selector");
            }
            if let Some(sign) = schema_at(driver, &format!("{place}{holder}sign")) {
                accept_legacy_sign(sign);
            }
        }
        if let Some(mappings) = schema_at(driver, &format!("{place}kernelMappings")) {
            mappings["minItems"] = json!(1);
        }
    }
    accept_legacy_secrets(driver, "imageRepoSecrets");
    declare(
        driver,
        "imageRepoSecret",
        json!({"x-kubernetes-preserve-unknown-fields": true}),
        "Deprecated: use `imageRepoSecrets`.",
    );
    if let Some(container) = schema_at(driver, "container") {
        let text = json!({"type": "string"});
        declare(
            container,
            "name",
            text.clone(),
            "Deprecated: ignored, Gantry names the container.",
        );
        declare(container, "image", text, "Deprecated: ignored, use `containerImage`.");
    }
    accept_container_fields(driver, driver_container_aliases());
    driver["x-kubernetes-validations"] = json!([{
        "rule": VERSION_STAYS,
        "message": "version cannot be added or removed on an existing Module; recreate it",
        "fieldPath": ".container.version",
    }]);
}

fn device_plugin(plugin: &mut Value) {
    accept_legacy_secrets(plugin, "imagePullSecrets");
    for field in ["container", "initContainer"] {
        let Some(container) = schema_at(plugin, field) else { continue };
        let text = json!({"type": "string"});
        declare(container, "name", text, "Deprecated: ignored, Gantry names the container.");
        container["properties"]["image"]["minLength"] = json!(1);
        if field == "initContainer" {
            container["required"] = json!(["image"]);
        }
    }
    accept_container_fields(plugin, &CONTAINER_ALIASES);
    // The image may stand in two places (W-22).
    declare(plugin, "image", json!({"type": "string"}), "Deprecated: use `container.image`.");
    plugin["x-kubernetes-validations"] = json!([{
        "rule": IMAGE_IS_SET,
        "message": "image is required",
        "fieldPath": ".container",
    }]);
}

/// Declares the fields of a container beside `container`, which they make optional. What is in
/// them is checked after they have moved: their schemas would be half of the definition.
fn accept_container_fields(part: &mut Value, aliases: &[Alias]) {
    for alias in aliases {
        let description = format!("Deprecated: use `{}`.", alias.new);
        let schema = json!({"x-kubernetes-preserve-unknown-fields": true});
        declare(part, alias.old, schema, &description);
    }
    if let Some(required) = part.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|field| field != "container");
    }
    if part["required"].as_array().is_some_and(Vec::is_empty)
        && let Some(fields) = part.as_object_mut()
    {
        fields.shift_remove("required");
    }
}

fn accept_legacy_sign(sign: &mut Value) {
    for field in ["unsignedImage", "signedImage", "keySecret", "certSecret"] {
        if let Some(union) = schema_at(sign, field) {
            accept_name_as_text(union);
        }
    }
    if let Some(union) = schema_at(sign, "signedImage.pushSecretRef") {
        accept_name_as_text(union);
    }
}

/// Allows a text in place of an object with that name. The fields stay declared, for `kubectl
/// explain`.
fn accept_name_as_text(union: &mut Value) {
    preserve_unknown(union, "Just the name, as text, is read too.");
}

fn accept_legacy_secrets(holder: &mut Value, field: &str) {
    if let Some(secrets) = schema_at(holder, field) {
        preserve_unknown(
            secrets,
            "A list of objects with `name`; names alone, or a single one, are read too.",
        );
        if let Some(fields) = secrets.as_object_mut() {
            fields.shift_remove("items");
        }
    }
}

fn preserve_unknown(schema: &mut Value, note: &str) {
    let text = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    schema["description"] = json!(format!("{text} {note}").trim());
    schema["x-kubernetes-preserve-unknown-fields"] = json!(true);
    if let Some(fields) = schema.as_object_mut() {
        fields.shift_remove("type");
        fields.shift_remove("required");
    }
}

fn declare(holder: &mut Value, field: &str, mut schema: Value, description: &str) {
    schema["description"] = json!(description);
    holder["properties"][field] = schema;
}
