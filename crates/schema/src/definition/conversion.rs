//! Validates how versions are converted.

use serde_json::Value;

use super::choice;
use crate::field_error::{FieldError, FieldErrorReason};
use crate::go;
use crate::metadata::invalid_value;
use crate::names::{dns1035_label, dns1123_subdomain};
use crate::props::Props;

const FIELD: &str = "spec.conversion";
const CLIENT: &str = "spec.conversion.webhookClientConfig";

pub(super) fn validate(conversion: Props<'_>, preserves: bool, faults: &mut Vec<FieldError>) {
    let strategy = conversion.text("strategy");
    if strategy != "None" && preserves {
        let detail = "must be None if spec.preserveUnknownFields is true";
        faults.push(invalid_value(&format!("{FIELD}.strategy"), strategy, detail));
    }
    choice(strategy, &["None", "Webhook"], &format!("{FIELD}.strategy"), faults);
    let webhook = conversion.schema("webhook");
    let client = webhook.and_then(|webhook| webhook.schema("clientConfig"));
    let versions = webhook.map(|it| it.texts("conversionReviewVersions")).unwrap_or_default();
    let versions_field = format!("{FIELD}.conversionReviewVersions");
    if strategy == "Webhook" {
        match client {
            None => {
                let detail = "required when strategy is set to Webhook";
                faults.push(FieldError::required(CLIENT, detail));
            }
            Some(client) => client_config(client, faults),
        }
        review_versions(&versions, &versions_field, faults);
        return;
    }
    let detail = "should not be set when strategy is not set to Webhook";
    if client.is_some() {
        faults.push(FieldError::forbidden(CLIENT, detail));
    }
    if !versions.is_empty() {
        faults.push(FieldError::forbidden(versions_field, detail));
    }
}

fn client_config(client: Props<'_>, faults: &mut Vec<FieldError>) {
    match (client.optional_text("url"), client.schema("service")) {
        (Some(address), None) => url(address, faults),
        (None, Some(to)) => service(to, faults),
        (Some(_), Some(_)) | (None, None) => {
            let detail = "exactly one of url or service is required";
            faults.push(FieldError::required(CLIENT, detail));
        }
    }
}

fn url(address: &str, faults: &mut Vec<FieldError>) {
    const FORM: &str = "; desired format: https://host[/path]";
    let field = format!("{CLIENT}.url");
    let (address, fragment) = address.split_once('#').unwrap_or((address, ""));
    let (address, query) = address.split_once('?').unwrap_or((address, ""));
    let (scheme, rest) = address.split_once(':').unwrap_or(("", address));
    if scheme != "https" {
        let detail = format!("'https' is the only allowed URL scheme{FORM}");
        faults.push(invalid_value(&field, scheme, &detail));
    }
    let authority = rest.strip_prefix("//").unwrap_or_default();
    let authority = authority.split('/').next().unwrap_or_default();
    let (user, host) =
        authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    if host.is_empty() {
        faults.push(invalid_value(&field, "", &format!("host must be specified{FORM}")));
    }
    if let Some(user) = user {
        let detail = "user information is not permitted in the URL";
        faults.push(invalid_value(&field, user, detail));
    }
    if !fragment.is_empty() {
        faults.push(invalid_value(&field, fragment, "fragments are not permitted in the URL"));
    }
    if !query.is_empty() {
        faults.push(invalid_value(&field, query, "query parameters are not permitted in the URL"));
    }
}

fn service(service: Props<'_>, faults: &mut Vec<FieldError>) {
    let field = format!("{CLIENT}.service");
    // Upstream takes the two for one another, and so do clients that read its answers.
    for (given, told) in [("namespace", "name"), ("name", "namespace")] {
        if service.text(given).is_empty() {
            faults.push(FieldError::required(format!("{field}.{told}"), ""));
        }
    }
    let port = service.integer("port").unwrap_or_default();
    if !(1..=65535).contains(&port) {
        let message = format!(
            "Invalid value: {port}: port is not valid: must be between 1 and 65535, inclusive"
        );
        faults.push(FieldError::new(format!("{field}.port"), FieldErrorReason::Invalid, message));
    }
    let (path, field) = (service.text("path"), format!("{field}.path"));
    if matches!(path, "" | "/") {
        return;
    }
    if path == "//" {
        faults.push(invalid_value(&field, path, "segment[0] may not be empty"));
        return;
    }
    let rest = path.strip_prefix('/').unwrap_or_else(|| {
        faults.push(invalid_value(&field, path, "must start with a '/'"));
        path.get(1..).unwrap_or_default()
    });
    for (index, step) in rest.strip_suffix('/').unwrap_or(rest).split('/').enumerate() {
        if step.is_empty() {
            faults.push(invalid_value(&field, path, &format!("segment[{index}] may not be empty")));
            continue;
        }
        for detail in dns1123_subdomain(step) {
            faults.push(invalid_value(&field, path, &format!("segment[{index}]: {detail}")));
        }
    }
}

fn review_versions(versions: &[&str], field: &str, faults: &mut Vec<FieldError>) {
    if versions.is_empty() {
        faults.push(FieldError::required(field, ""));
        return;
    }
    for (index, version) in versions.iter().enumerate() {
        let field = format!("{field}[{index}]");
        if versions[..index].contains(version) {
            faults.push(invalid_value(&field, version, "duplicate version"));
            continue;
        }
        for detail in dns1035_label(version) {
            faults.push(invalid_value(&field, version, &detail));
        }
    }
    if !versions.iter().any(|version| matches!(*version, "v1" | "v1beta1")) {
        let shown = go::json(&versions.iter().copied().collect::<Value>());
        let message = format!("Invalid value: {shown}: must include at least one of v1, v1beta1");
        faults.push(FieldError::new(field, FieldErrorReason::Invalid, message));
    }
}
