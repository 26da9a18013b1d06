//! Schemas of what is served.

use std::sync::Arc;

use gantry_openapi::{CustomKind, Document, Documents, custom_document};
use http::header::{CACHE_CONTROL, ETAG, HeaderValue, LOCATION, VARY};
use http::{Response, StatusCode};
use serde_json::Value;

use crate::answer;
use crate::api::Api;
use crate::body::{Body, full};
use crate::query::Query;
use crate::status::Refusal;

/// `/openapi/v3`.
pub(crate) fn index(api: &Api) -> Response<Body> {
    let index = api.0.openapi.index();
    answer::bytes(StatusCode::OK, "text/plain; charset=utf-8", index.json().clone())
}

/// `/openapi/v3/{path}`: who names the hash may keep the answer for ever, and who names an old one
/// is sent to the current.
pub(crate) fn document(api: &Api, path: &str, query: &Query) -> Result<Response<Body>, Refusal> {
    let Some(document) = api.0.openapi.get(path) else {
        return Ok(answer::no_page());
    };
    let asked = query.get("hash");
    if asked.is_some_and(|hash| hash != document.hash()) {
        return Ok(moved(path, &document));
    }
    let mut response = answer::bytes(StatusCode::OK, "application/json", document.json().clone());
    let headers = response.headers_mut();
    headers.insert(VARY, HeaderValue::from_static("Accept"));
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{}\"", document.hash())) {
        headers.insert(ETAG, tag);
    }
    if asked.is_some() {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
    }
    Ok(response)
}

fn moved(path: &str, document: &Document) -> Response<Body> {
    let place = format!("/openapi/v3/{path}?hash={}", document.hash());
    let mut response = Response::new(full(""));
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    if let Ok(place) = HeaderValue::from_str(&place) {
        response.headers_mut().insert(LOCATION, place);
    }
    response
}

/// Describes the custom kinds of a group version. The text is made when someone asks for it.
pub(crate) fn describe(
    documents: &Documents,
    group: &str,
    version: &str,
    definitions: Vec<Arc<Value>>,
) {
    let (owned_group, owned_version) = (group.to_owned(), version.to_owned());
    documents.set_custom(group, version, move || {
        let kinds: Vec<CustomKind<'_>> = definitions
            .iter()
            .filter_map(|definition| CustomKind::of(definition, &owned_version))
            .collect();
        custom_document(&owned_group, &owned_version, &kinds)
    });
}
