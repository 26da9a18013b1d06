//! Decodes request bodies into objects of the requested kind.

use bytes::Bytes;
use gantry_builtin::wire::{self, Envelope, WireError};
use gantry_schema::read_json;
use gantry_yaml::DuplicateKey;
use serde_json::{Value, json};

use crate::api::ResourceRequest;
use crate::request::negotiate::{self, Content};
use crate::request::query::FieldValidation;
use crate::resource::{KindSource, Resource};
use crate::response::status::StatusError;

/// A decoded object: of the right kind, without fields the kind does not have.
#[derive(Debug)]
pub(crate) struct Decoded {
    /// The object, defaulted.
    pub(crate) object: Value,
    /// Warnings for the caller.
    pub(crate) warnings: Vec<String>,
}

/// Fields that a body gives more than once. The last one counts; the messages depend on the
/// encoding of the body.
#[derive(Debug)]
pub(crate) enum Duplicates {
    /// Of JSON: the paths of the fields.
    Paths(Vec<String>),
    /// Of YAML: the message about each key.
    Lines(Vec<String>),
}

impl Default for Duplicates {
    fn default() -> Self {
        Self::Paths(Vec::new())
    }
}

impl Duplicates {
    /// Returns the warnings, one by one, together with those for unknown fields.
    fn warnings(&self, unknown: Vec<String>) -> Vec<String> {
        match self {
            Self::Paths(paths) => {
                let duplicates = paths.iter().map(|path| format!("duplicate field \"{path}\""));
                unknown.into_iter().chain(duplicates).collect()
            }
            Self::Lines(lines) => lines.iter().cloned().chain(unknown).collect(),
        }
    }

    /// Returns why a strict decoder refuses the body. YAML reports one error of many lines.
    fn strict_errors(&self, unknown: Vec<String>) -> Vec<String> {
        match self {
            Self::Lines(_) => self.yaml_error().into_iter().chain(unknown).collect(),
            Self::Paths(_) => self.warnings(unknown),
        }
    }

    /// Returns the error of YAML with duplicate keys.
    pub(crate) fn yaml_error(&self) -> Option<String> {
        let lines = self.duplicate_keys();
        (!lines.is_empty()).then(|| format!("yaml: unmarshal errors:\n  {}", lines.join("\n  ")))
    }

    /// Returns the message about each duplicate key of YAML.
    pub(crate) fn duplicate_keys(&self) -> &[String] {
        match self {
            Self::Lines(lines) => lines,
            Self::Paths(_) => &[],
        }
    }
}

/// Decodes the body of a request that creates or replaces an object.
pub(crate) fn body(
    ask: &ResourceRequest,
    validation: FieldValidation,
) -> Result<Decoded, StatusError> {
    let resource = &ask.resource;
    let content = negotiate::content(&ask.headers, resource.custom().is_some())?;
    let (tree, duplicates) = tree(content, &ask.body, &resource.kind)?;
    object(resource, tree, &duplicates, validation)
}

/// Parses any body as a tree, together with its duplicate fields.
pub(crate) fn tree(
    content: Content,
    body: &Bytes,
    kind: &str,
) -> Result<(Value, Duplicates), StatusError> {
    let unrecognised = |why: &str| {
        let shown = match body.is_empty() {
            true => "<empty>".into(),
            false => String::from_utf8_lossy(&body[..body.len().min(1024)]),
        };
        StatusError::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): couldn't get \
             version/kind; json parse error: {why} ({shown})"
        ))
    };
    match content {
        Content::Json => {
            let read = read_json(body).map_err(|fault| unrecognised(&fault.to_string()))?;
            Ok((read.0, Duplicates::Paths(read.1)))
        }
        Content::Yaml => {
            // Most of what is declared as YAML is JSON, which is parsed much faster.
            if body.first() == Some(&b'{')
                && let Ok((tree, duplicates)) = read_json(body)
                && duplicates.is_empty()
            {
                return Ok((tree, Duplicates::default()));
            }
            let text = std::str::from_utf8(body).map_err(|_| unrecognised("invalid UTF-8"))?;
            let (documents, duplicates) = gantry_yaml::read_last_wins(text).map_err(|fault| {
                let line = fault.at.line;
                let words = format!("error converting YAML to JSON: yaml: line {line}: {fault}");
                StatusError::bad_request(words)
            })?;
            let lines = duplicates.iter().map(|it| {
                let DuplicateKey { line, key } = it;
                format!("line {line}: key {key} already set in map")
            });
            let duplicates = Duplicates::Lines(lines.collect());
            match documents.as_slice() {
                [one] => Ok((one.to_json(), duplicates)),
                [] => Ok((json!({}), duplicates)),
                more => {
                    let count = more.len();
                    let words = format!("the body has {count} YAML documents; send one at a time");
                    Err(StatusError::bad_request(words))
                }
            }
        }
        Content::Protobuf => {
            let decoded = wire::decode(body).map_err(|fault| protobuf_error(body, kind, &fault))?;
            Ok((decoded.value, Duplicates::default()))
        }
    }
}

/// Returns the refusal of a body in protobuf; it names the claimed kind, if there is one.
fn protobuf_error(body: &[u8], wanted: &str, fault: &WireError) -> StatusError {
    let envelope = wire::envelope(body).ok().filter(|envelope| !envelope.kind.is_empty());
    StatusError::bad_request(match (envelope, fault) {
        (Some(Envelope { kind, api_version, .. }), WireError::UnknownKind { .. }) => format!(
            "{kind} in version \"{version}\" cannot be handled as a {wanted}: no kind \"{kind}\" \
             is registered for version \"{api_version}\" in scheme \"pkg/runtime/scheme.go:110\"",
            version = api_version.rsplit('/').next().unwrap_or_default(),
        ),
        (Some(Envelope { kind, api_version, .. }), fault) => format!(
            "{kind} in version \"{version}\" cannot be handled as a {wanted}: {fault}",
            version = api_version.rsplit('/').next().unwrap_or_default(),
        ),
        (None, fault) => {
            let shown = hex(&body[..body.len().min(1024)]);
            let why = match body {
                b"k8s\0" => "empty body".to_owned(),
                _ => fault.to_string(),
            };
            format!(
                "the object provided is unrecognized (must be of type {wanted}): {why} ({shown})"
            )
        }
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Converts a tree into an object of the resource's kind.
pub(crate) fn object(
    resource: &Resource,
    mut tree: Value,
    duplicates: &Duplicates,
    validation: FieldValidation,
) -> Result<Decoded, StatusError> {
    check_kind(resource, &mut tree)?;
    let (mut object, unknown) = resource.prune(tree)?;
    let unknown = unknown.iter().map(|path| format!("unknown field \"{path}\"")).collect();
    let warnings = match validation {
        FieldValidation::Ignore => Vec::new(),
        FieldValidation::Warn => duplicates.warnings(unknown),
        FieldValidation::Strict => {
            let faults = duplicates.strict_errors(unknown);
            if !faults.is_empty() {
                let faults = faults.join(", ");
                return Err(StatusError::bad_request(strict_error(resource, &faults)));
            }
            faults
        }
    };
    resource.default(&mut object);
    Ok(Decoded { object, warnings })
}

fn strict_error(resource: &Resource, problems: &str) -> String {
    let Resource { kind, .. } = resource;
    format!(
        "{kind} in version \"{}\" cannot be handled as a {kind}: strict decoding error: {problems}",
        resource.version
    )
}

/// Checks that the body is of this kind. Built-in kinds may leave that to the path.
fn check_kind(resource: &Resource, tree: &mut Value) -> Result<(), StatusError> {
    let expected = resource.api_version();
    if !tree.is_object() {
        let words = format!(
            "the object provided is unrecognized (must be of type {}): couldn't \
             get version/kind; json parse error: json: cannot unmarshal {} into Go value of type \
             struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \
             \"json:\\\"kind,omitempty\\\"\" }} ({})",
            resource.kind,
            gantry_schema::json_kind(tree),
            text_start(&tree.to_string())
        );
        return Err(StatusError::bad_request(words));
    }
    let text = |name: &str| tree.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (kind, version) = (text("kind"), text("apiVersion"));
    match &resource.source {
        KindSource::Builtin(_) => {
            let fault = |version: &str, why: String| {
                let wanted = &resource.kind;
                Err(StatusError::bad_request(format!(
                    "{kind} in version \"{version}\" cannot be handled as a {wanted}: {why}",
                )))
            };
            let (group, other) = version.split_once('/').unwrap_or(("", &version));
            // Another known kind is decoded, and then found to be the wrong one.
            let known =
                kind != resource.kind && gantry_builtin::kind_type(group, other, &kind).is_some();
            if !version.is_empty() && version != expected && !known {
                let kind = if kind.is_empty() { &resource.kind } else { &kind };
                let why = format!(
                    "no kind \"{kind}\" is registered for version \"{version}\" in scheme \
                     \"k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30\""
                );
                let version = version.rsplit('/').next().unwrap_or_default().to_owned();
                return fault(&version, why);
            }
            if !kind.is_empty() && kind != resource.kind {
                let package = if resource.group.is_empty() { "core" } else { &resource.group };
                let package = package.split('.').next().unwrap_or_default();
                let wanted = &resource.kind;
                let version = if known { other } else { &resource.version };
                let why = format!(
                    "converting ({version}.{kind}) to ({package}.{wanted}): unknown conversion"
                );
                return fault(version, why);
            }
            tree["kind"] = json!(resource.kind);
            tree["apiVersion"] = json!(expected);
        }
        KindSource::Custom(_) => {
            if kind.is_empty() {
                let (kind, shown) = (&resource.kind, tree.to_string());
                return Err(StatusError::bad_request(format!(
                    "the object provided is unrecognized (must be of type {kind}): Object 'Kind' \
                     is missing in '{shown}' ({})",
                    text_start(&shown)
                )));
            }
            if version != expected {
                let mut refusal = StatusError::bad_request(format!(
                    "the API version in the data ({version}) does not match the expected API \
                     version ({expected})"
                ));
                // An unknown version has no fields of its own.
                let own = tree.as_object().into_iter().flatten().map(|(name, _)| name);
                let own =
                    own.filter(|name| !matches!(name.as_str(), "apiVersion" | "kind" | "metadata"));
                refusal.warnings = own.map(|name| format!("unknown field \"{name}\"")).collect();
                return Err(refusal);
            }
        }
    }
    Ok(())
}

/// Returns the start of a document, as upstream quotes what it could not parse.
fn text_start(text: &str) -> String {
    text.chars().take(1024).collect()
}
