//! In which form an answer is given, and in which form a body came.

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE};

use crate::status::Refusal;

/// The form of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// JSON or YAML.
    pub encoding: Encoding,
    /// The object itself, or something made of it.
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

/// What of an object is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// All of it.
    Object,
    /// Rows for people, with metadata in the given version (`v1` or `v1beta1`).
    Table(&'static str),
    /// Its metadata.
    Metadata(&'static str),
    /// The metadata of a list.
    MetadataList(&'static str),
}

/// Discovery documents have forms of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discovery {
    /// One document per group, as ever.
    Legacy,
    /// All groups in one, in this version of the format.
    Aggregated(&'static str),
}

/// One element of an `Accept` header.
struct Element<'a> {
    media: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
}

impl Element<'_> {
    fn parameter(&self, name: &str) -> &str {
        let found = self.parameters.iter().find(|(known, _)| *known == name);
        found.map_or("", |(_, value)| value)
    }
}

/// The elements of `Accept`, best first.
fn accepted(headers: &HeaderMap) -> Vec<Element<'_>> {
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
            elements.push((quality, Element { media, parameters }));
        }
    }
    elements.sort_by(|(left, _), (right, _)| right.total_cmp(left));
    elements.into_iter().filter(|(quality, _)| *quality > 0.0).map(|(_, element)| element).collect()
}

/// What this server can write, as it is listed to callers.
const OFFERED: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// The form of a log.
pub(crate) const LOG: &str = "text/plain";

/// The words before what can be written: known, but not for this answer; and not known at all.
const ACCEPTED: &str = "only the following media types are accepted: ";
const AVAILABLE: &str = "406: Not Acceptable\n\nAvailable representations: ";

/// Chooses the form of an answer about objects.
///
/// Protobuf is offered by the servers clients know, and never written here: every client that
/// prefers it also takes JSON. Asked for alone it is refused.
///
/// # Errors
/// 406 when nothing that is asked for can be given.
pub fn format(headers: &HeaderMap) -> Result<Format, Refusal> {
    choose(headers, true)
}

/// The same for objects that have no table: a request for one is as if it asked for nothing.
///
/// # Errors
/// 406 when nothing that is asked for can be given.
pub(crate) fn format_without_tables(headers: &HeaderMap) -> Result<Format, Refusal> {
    choose(headers, false)
}

fn choose(headers: &HeaderMap, tables: bool) -> Result<Format, Refusal> {
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
        return Err(Refusal::not_acceptable(format!("{ACCEPTED}{OFFERED}")));
    }
    Err(Refusal::not_routable(&format!("{AVAILABLE}{OFFERED}")))
}

/// Chooses the form of an answer about an object or, if one is named, about a part of it.
///
/// Whoever wants a conversation asks for no document, so the form only matters to refusals. A log is
/// plain text, but it must be asked for as if it were a document.
///
/// # Errors
/// 406 when nothing that is asked for can be given.
pub fn format_of_part(headers: &HeaderMap, part: &str) -> Result<Format, Refusal> {
    match part.split('/').next().unwrap_or_default() {
        "exec" | "attach" | "portforward" | "proxy" => {
            Ok(format(headers).unwrap_or(Format { encoding: Encoding::Json, shape: Shape::Object }))
        }
        "log" => format(headers).map_err(|refusal| {
            let plain = accepted(headers).iter().any(|it| it.media == LOG);
            match refusal.details {
                Some(_) if plain => Refusal::not_acceptable(format!("{ACCEPTED}{OFFERED}")),
                Some(_) => Refusal::not_routable(&format!("{AVAILABLE}{LOG}, {OFFERED}")),
                None => refusal,
            }
        }),
        _ => format(headers),
    }
}

/// Whether a document that has one form only is asked for in that form.
pub(crate) fn only(headers: &HeaderMap, media: &str) -> Result<(), Refusal> {
    let elements = accepted(headers);
    if elements.is_empty() || elements.iter().any(|it| it.media == media || it.media == "*/*") {
        return Ok(());
    }
    Err(Refusal::not_routable(&format!("{AVAILABLE}{media}")))
}

/// The form of the one document of OpenAPI v2: its media type, or nothing if it has none that is
/// asked for. The binary form has two names, of which the older is not a media type by its letters.
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

/// The forms of the one document of OpenAPI v2.
pub(crate) const SWAGGER_JSON: &str = "application/json";
pub(crate) const SWAGGER_PROTOBUF: &str =
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// What an element asks for, if it is known.
fn shape(element: &Element<'_>) -> Option<Shape> {
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

/// Chooses the form of a discovery document.
///
/// # Errors
/// 406 when nothing that is asked for can be given.
pub fn discovery(headers: &HeaderMap) -> Result<Discovery, Refusal> {
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

/// The form of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// JSON, also when nothing is said.
    Json,
    /// YAML.
    Yaml,
    /// The binary form of built-in kinds.
    Protobuf,
}

/// The media type of a body without its parameters.
#[must_use]
pub fn media_type(headers: &HeaderMap) -> &str {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    value.unwrap_or_default().split(';').next().unwrap_or_default().trim()
}

/// How to read a body that is an object. Custom kinds have no binary form.
///
/// # Errors
/// 415 for anything else.
pub fn content(headers: &HeaderMap, custom: bool) -> Result<Content, Refusal> {
    match media_type(headers) {
        "" | "application/json" => Ok(Content::Json),
        "application/yaml" => Ok(Content::Yaml),
        "application/vnd.kubernetes.protobuf" if !custom => Ok(Content::Protobuf),
        _ => {
            let offered = if custom { "application/json, application/yaml" } else { OFFERED };
            let words = "the body of the request was in an unknown format - accepted media types \
                         include: ";
            Err(Refusal::unsupported_media_type(format!("{words}{offered}")))
        }
    }
}

/// The ways to say a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// By the merge keys of built-in kinds.
    Strategic,
    /// The fields one manager wants, the rest is left alone.
    Apply,
}

/// How to read a patch.
///
/// # Errors
/// 415 for anything else.
pub fn patch_type(headers: &HeaderMap, custom: bool) -> Result<PatchType, Refusal> {
    match media_type(headers) {
        "application/json-patch+json" => Ok(PatchType::Json),
        "application/merge-patch+json" => Ok(PatchType::Merge),
        "application/strategic-merge-patch+json" if !custom => Ok(PatchType::Strategic),
        "application/apply-patch+yaml" => Ok(PatchType::Apply),
        "application/strategic-merge-patch+json" => {
            let words = "the body of the request was in an unknown format - accepted media types \
                         include: application/json-patch+json, application/merge-patch+json, \
                         application/apply-patch+yaml";
            Err(Refusal::unsupported_media_type(words))
        }
        _ => Err(Refusal::unroutable_media_type()),
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
    fn the_first_that_can_be_given_is_given() {
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
    fn quality_orders_before_place() {
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
