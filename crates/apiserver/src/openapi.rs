//! Schemas of what is served.

use http::header::{CACHE_CONTROL, ETAG, EXPIRES, HeaderValue, LOCATION};
use http::request::Parts;
use http::{Response, StatusCode};

use crate::answer;
use crate::api::Api;
use crate::body::Body;
use crate::query::Query;
use crate::status::Refusal;

/// `/openapi/v2` is not served: every client that asks for it goes on without it.
pub(crate) fn v2(_parts: &Parts) -> Result<Response<Body>, Refusal> {
    Ok(answer::no_page())
}

/// `/openapi/v3`.
pub(crate) fn index(api: &Api, parts: &Parts) -> Result<Response<Body>, Refusal> {
    let _ = (api, parts, CACHE_CONTROL, ETAG, EXPIRES, LOCATION, HeaderValue::from_static(""));
    Ok(answer::no_page())
}

/// `/openapi/v3/{path}`.
pub(crate) fn document(
    api: &Api,
    path: &str,
    query: &Query,
    parts: &Parts,
) -> Result<Response<Body>, Refusal> {
    let _ = (api, path, query, parts, StatusCode::OK);
    Ok(answer::no_page())
}
