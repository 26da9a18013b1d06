//! OpenAPI documents of the served resources.

use std::sync::Arc;

use gantry_openapi::{CustomKind, Document, Documents, custom_document};
use http::header::{CACHE_CONTROL, ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH, LOCATION, VARY};
use http::{Response, StatusCode};
use serde_json::Value;

use crate::api::{Api, Entry};
use crate::request::body::{Body, full};
use crate::request::negotiate::{self, SWAGGER_PROTOBUF};
use crate::request::query::Query;
use crate::response;
use crate::response::status::StatusError;

/// `/openapi/v3`.
pub(crate) fn index(api: &Api) -> Response<Body> {
    let index = api.0.openapi.index();
    response::bytes(StatusCode::OK, "text/plain; charset=utf-8", index.json().clone())
}

/// `/openapi/v2`: all schemas in one document, in one of two formats.
pub(crate) async fn swagger(api: &Api, headers: &HeaderMap) -> Result<Response<Body>, StatusError> {
    let Some(form) = negotiate::swagger(headers) else {
        let mut response = Response::new(full(""));
        *response.status_mut() = StatusCode::NOT_ACCEPTABLE;
        vary(&mut response, &["Accept-Encoding", "Accept"]);
        return Ok(response);
    };
    let owner = api.clone();
    // Building it would block an async thread for too long.
    let made = tokio::task::spawn_blocking(move || owner.0.openapi.swagger()).await;
    let swagger = made.map_err(|fault| StatusError::internal(&fault.to_string()))?;
    let bytes = match form {
        SWAGGER_PROTOBUF => swagger.protobuf(),
        _ => swagger.json(),
    };
    let tag = format!("\"{}\"", swagger.hash());
    let mut response = if matches_etag(headers, &tag) {
        response::not_modified()
    } else {
        response::bytes(StatusCode::OK, form, bytes.clone())
    };
    vary(&mut response, &["Accept-Encoding", "Accept"]);
    set_etag(&mut response, &tag);
    Ok(response)
}

/// Adds the `Vary` header.
fn vary(response: &mut Response<Body>, on: &[&'static str]) {
    for name in on {
        response.headers_mut().append(VARY, HeaderValue::from_static(name));
    }
}

/// Adds the headers for conditional requests.
fn set_etag(response: &mut Response<Body>, tag: &str) {
    if let Ok(tag) = HeaderValue::from_str(tag) {
        response.headers_mut().insert(ETAG, tag);
    }
}

/// Whether the client already has the document with this entity tag.
fn matches_etag(headers: &HeaderMap, tag: &str) -> bool {
    let said = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let mut tags = said.flat_map(|tags| tags.split(',')).map(str::trim);
    tags.any(|it| it == "*" || it.strip_prefix("W/").unwrap_or(it) == tag)
}

/// `/openapi/v3/{path}`: a response to a request with the current hash can be cached for ever, and
/// one with an old hash is redirected to the current.
pub(crate) fn document(
    api: &Api,
    path: &str,
    query: &Query,
    headers: &HeaderMap,
) -> Result<Response<Body>, StatusError> {
    let Some(document) = api.0.openapi.get(path) else {
        return Ok(response::page_not_found());
    };
    let asked = query.get("hash");
    if asked.is_some_and(|hash| hash != document.hash()) {
        return Ok(redirect_to_current(path, &document));
    }
    let tag = format!("\"{}\"", document.hash());
    let mut response = if matches_etag(headers, &tag) {
        response::not_modified()
    } else {
        response::bytes(StatusCode::OK, "application/json", document.json().clone())
    };
    vary(&mut response, &["Accept"]);
    set_etag(&mut response, &tag);
    if asked.is_some() {
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
    }
    Ok(response)
}

fn redirect_to_current(path: &str, document: &Document) -> Response<Body> {
    let place = format!("/openapi/v3/{path}?hash={}", document.hash());
    let mut response = Response::new(full(""));
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    if let Ok(place) = HeaderValue::from_str(&place) {
        response.headers_mut().insert(LOCATION, place);
    }
    response
}

/// Adds the custom kinds of a group version. The document is built on request.
pub(crate) fn describe(
    documents: &Documents,
    group: &str,
    version: &str,
    definitions: Vec<Arc<Entry>>,
) {
    let (owned_group, owned_version) = (group.to_owned(), version.to_owned());
    documents.set_custom(group, version, move |edition| {
        let trees = definitions.iter().map(|entry| serde_json::from_slice(&entry.value));
        let trees: Vec<Value> = trees.map(Result::unwrap_or_default).collect();
        let kinds: Vec<CustomKind<'_>> = trees
            .iter()
            .filter_map(|definition| CustomKind::of(definition, &owned_version))
            .collect();
        custom_document(edition, &owned_group, &owned_version, &kinds)
    });
}
