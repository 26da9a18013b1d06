//! Content negotiation: the formats of responses and request bodies.

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE};

use crate::response::status::StatusError;

/// The format of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// JSON or YAML.
    pub encoding: Encoding,
    /// The object itself, or another representation of it.
    pub shape: Shape,
}

/// How a document is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// `application/json`.
    Json,
    /// `application/yaml`.
    Yaml,
}

/// The representation of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// All of it.
    Object,
    /// A table, with metadata in the given version (`v1` or `v1beta1`).
    Table(&'static str),
    /// Its metadata.
    Metadata(&'static str),
    /// The metadata of a list.
    MetadataList(&'static str),
}

/// The formats of discovery documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discovery {
    /// One document per group.
    Legacy,
    /// All groups in one, in this version of the format.
    Aggregated(&'static str),
}

/// One element of an `Accept` header.
struct AcceptElement<'a> {
    media: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
}

impl AcceptElement<'_> {
    fn parameter(&self, name: &str) -> &str {
        let found = self.parameters.iter().find(|(known, _)| *known == name);
        found.map_or("", |(_, value)| value)
    }
}

/// The elements of `Accept`, best first.
fn accepted(headers: &HeaderMap) -> Vec<AcceptElement<'_>> {
    let mut elements = Vec::new();
    for value in headers.get_all(ACCEPT) {
        let Ok(text) = value.to_str() else { continue };
        for clause in text.split(',') {
            let mut parts = clause.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            if media.is_empty() {
                continue;
            }
            let parameters: Vec<_> = parts.filter_map(|part| part.split_once('=')).collect();
            let quality = parameters.iter().find(|(name, _)| *name == "q");
            let quality = quality.and_then(|(_, it)| it.parse::<f64>().ok()).unwrap_or(1.0);
            elements.push((quality, AcceptElement { media, parameters }));
        }
    }
    elements.sort_by(|(left, _), (right, _)| right.total_cmp(left));
    elements.into_iter().filter(|(quality, _)| *quality > 0.0).map(|(_, element)| element).collect()
}

/// The media types this server can write, as they are listed to callers.
const OFFERED_MEDIA_TYPES: &str =
    "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// The media type of a log.
pub(crate) const LOG_MEDIA_TYPE: &str = "text/plain";

/// The message before the list of media types: known, but not for this response; and not known at
/// all.
const ACCEPTED: &str = "only the following media types are accepted: ";
const AVAILABLE: &str = "406: Not Acceptable\n\nAvailable representations: ";

/// Chooses the format of a response with objects.
///
/// Protobuf is offered by real servers, and never written here: every client that prefers it also
/// accepts JSON. Requested alone it is refused.
///
/// # Errors
/// 406 when no requested format can be written.
pub fn format(headers: &HeaderMap) -> Result<Format, StatusError> {
    choose(headers, true)
}

/// As above for objects without a table: a request for one is ignored.
///
/// # Errors
/// 406 when no requested format can be written.
pub(crate) fn format_without_tables(headers: &HeaderMap) -> Result<Format, StatusError> {
    choose(headers, false)
}

fn choose(headers: &HeaderMap, tables: bool) -> Result<Format, StatusError> {
    let elements = accepted(headers);
    let json = Format { encoding: Encoding::Json, shape: Shape::Object };
    if elements.is_empty() {
        return Ok(json);
    }
    let mut routable = false;
    for element in &elements {
        let encoding = match element.media {
            "application/json" | "*/*" => Encoding::Json,
            "application/yaml" => Encoding::Yaml,
            "application/vnd.kubernetes.protobuf" => {
                routable = true;
                continue;
            }
            _ => continue,
        };
        routable = true;
        if let Some(shape) = shape(element)
            && (tables || !matches!(shape, Shape::Table(_)))
        {
            return Ok(Format { encoding, shape });
        }
    }
    if routable {
        return Err(StatusError::not_acceptable(format!("{ACCEPTED}{OFFERED_MEDIA_TYPES}")));
    }
    Err(StatusError::not_routable(&format!("{AVAILABLE}{OFFERED_MEDIA_TYPES}")))
}

/// Chooses the format of a response with an object or, if one is named, a subresource.
///
/// Requests for a stream ask for no document, so the format only matters to refusals. A log is
/// plain text, but must be requested as if it were a document.
///
/// # Errors
/// 406 when no requested format can be written.
pub fn format_of_subresource(headers: &HeaderMap, part: &str) -> Result<Format, StatusError> {
    match part.split('/').next().unwrap_or_default() {
        "exec" | "attach" | "portforward" | "proxy" => {
            Ok(format(headers).unwrap_or(Format { encoding: Encoding::Json, shape: Shape::Object }))
        }
        "log" => format(headers).map_err(|refusal| {
            let plain = accepted(headers).iter().any(|it| it.media == LOG_MEDIA_TYPE);
            match refusal.details {
                Some(_) if plain => {
                    StatusError::not_acceptable(format!("{ACCEPTED}{OFFERED_MEDIA_TYPES}"))
                }
                Some(_) => StatusError::not_routable(&format!(
                    "{AVAILABLE}{LOG_MEDIA_TYPE}, {OFFERED_MEDIA_TYPES}"
                )),
                None => refusal,
            }
        }),
        _ => format(headers),
    }
}

/// Whether a document with a single format is requested in that format.
pub(crate) fn check_media_type(headers: &HeaderMap, media: &str) -> Result<(), StatusError> {
    let elements = accepted(headers);
    if elements.is_empty() || elements.iter().any(|it| it.media == media || it.media == "*/*") {
        return Ok(());
    }
    Err(StatusError::not_routable(&format!("{AVAILABLE}{media}")))
}

/// Returns the media type of the OpenAPI v2 document, or `None` if no requested one is available.
/// The binary form has two names, of which the older is not a valid media type.
pub(crate) fn swagger(headers: &HeaderMap) -> Option<&'static str> {
    let elements = accepted(headers);
    if elements.is_empty() {
        return Some(SWAGGER_JSON);
    }
    elements.iter().find_map(|element| match element.media {
        SWAGGER_JSON | "application/*" | "*/*" => Some(SWAGGER_JSON),
        SWAGGER_PROTOBUF | "application/com.github.proto-openapi.spec.v2@v1.0+protobuf" => {
            Some(SWAGGER_PROTOBUF)
        }
        _ => None,
    })
}

/// The formats of the OpenAPI v2 document.
pub(crate) const SWAGGER_JSON: &str = "application/json";
pub(crate) const SWAGGER_PROTOBUF: &str =
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// Returns what an element asks for, if it is known.
fn shape(element: &AcceptElement<'_>) -> Option<Shape> {
    let version = match element.parameter("v") {
        "v1" => "v1",
        "v1beta1" => "v1beta1",
        _ => "",
    };
    let known = element.parameter("g") == "meta.k8s.io" && !version.is_empty();
    match element.parameter("as") {
        "" => Some(Shape::Object),
        "Table" if known => Some(Shape::Table(version)),
        "PartialObjectMetadata" if known => Some(Shape::Metadata(version)),
        "PartialObjectMetadataList" if known => Some(Shape::MetadataList(version)),
        _ => None,
    }
}

/// Chooses the format of a discovery document.
///
/// # Errors
/// 406 when no requested format can be written.
pub fn discovery(headers: &HeaderMap) -> Result<Discovery, StatusError> {
    for element in &accepted(headers) {
        if !matches!(element.media, "application/json" | "*/*") {
            continue;
        }
        let version = match element.parameter("v") {
            "v2" => "v2",
            "v2beta1" => "v2beta1",
            _ => "",
        };
        match element.parameter("as") {
            "APIGroupDiscoveryList"
                if element.parameter("g") == "apidiscovery.k8s.io" && !version.is_empty() =>
            {
                return Ok(Discovery::Aggregated(version));
            }
            "" => return Ok(Discovery::Legacy),
            _ => {}
        }
    }
    format(headers).map(|_| Discovery::Legacy)
}

/// The format of a request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// JSON, also without a content type.
    Json,
    /// YAML.
    Yaml,
    /// Protobuf, which only built-in kinds have.
    Protobuf,
}

/// Returns the media type of a body without its parameters.
#[must_use]
pub fn media_type(headers: &HeaderMap) -> &str {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    value.unwrap_or_default().split(';').next().unwrap_or_default().trim()
}

/// Returns the format of a body that is an object. Custom kinds have no protobuf form.
///
/// # Errors
/// 415 for anything else.
pub fn content(headers: &HeaderMap, custom: bool) -> Result<Content, StatusError> {
    match media_type(headers) {
        "" | "application/json" => Ok(Content::Json),
        "application/yaml" => Ok(Content::Yaml),
        "application/vnd.kubernetes.protobuf" if !custom => Ok(Content::Protobuf),
        _ => {
            let offered =
                if custom { "application/json, application/yaml" } else { OFFERED_MEDIA_TYPES };
            let words = "the body of the request was in an unknown format - accepted media types \
                         include: ";
            Err(StatusError::unsupported_media_type(format!("{words}{offered}")))
        }
    }
}

/// The patch types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// Strategic merge patch, by the merge keys of built-in kinds.
    Strategic,
    /// Server-side apply: the fields one manager wants; others are left alone.
    Apply,
}

/// Returns the type of a patch.
///
/// # Errors
/// 415 for anything else.
pub fn patch_type(headers: &HeaderMap, custom: bool) -> Result<PatchType, StatusError> {
    match media_type(headers) {
        "application/json-patch+json" => Ok(PatchType::Json),
        "application/merge-patch+json" => Ok(PatchType::Merge),
        "application/strategic-merge-patch+json" if !custom => Ok(PatchType::Strategic),
        "application/apply-patch+yaml" => Ok(PatchType::Apply),
        "application/strategic-merge-patch+json" => {
            let words = "the body of the request was in an unknown format - accepted media types \
                         include: application/json-patch+json, application/merge-patch+json, \
                         application/apply-patch+yaml";
            Err(StatusError::unsupported_media_type(words))
        }
        _ => Err(StatusError::unroutable_media_type()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept(text: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, http::HeaderValue::from_static(text));
        headers
    }

    #[test]
    fn the_first_supported_media_type_is_chosen() {
        let table = [
            ("*/*", Some(Shape::Object)),
            ("application/json", Some(Shape::Object)),
            ("application/vnd.kubernetes.protobuf,application/json", Some(Shape::Object)),
            ("application/vnd.kubernetes.protobuf, */*", Some(Shape::Object)),
            ("application/vnd.kubernetes.protobuf", None),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
                Some(Shape::Table("v1")),
            ),
            (
                "application/json;as=Nonsense;v=v1;g=meta.k8s.io,application/json",
                Some(Shape::Object),
            ),
            ("application/json;as=Nonsense;v=v1;g=meta.k8s.io", None),
            ("text/html;q=0.9,*/*;q=0.1", Some(Shape::Object)),
            ("application/*", None),
            ("text/html", None),
            (
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
                Some(Shape::Metadata("v1")),
            ),
        ];
        for (text, expected) in table {
            assert_eq!(format(&accept(text)).ok().map(|it| it.shape), expected, "{text}");
        }
    }

    #[test]
    fn quality_orders_before_position() {
        let chosen = format(&accept("application/json;q=0.5,application/yaml")).unwrap();
        assert_eq!(chosen.encoding, Encoding::Yaml);
    }

    #[test]
    fn discovery_is_aggregated_on_request() {
        let v2 =
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
        assert_eq!(discovery(&accept(v2)).unwrap(), Discovery::Aggregated("v2"));
        assert_eq!(discovery(&accept("application/json")).unwrap(), Discovery::Legacy);
        assert_eq!(discovery(&HeaderMap::new()).unwrap(), Discovery::Legacy);
    }
}
