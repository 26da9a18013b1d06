//! Non-resource paths: discovery, schemas, version, health.

use http::header::{ETAG, HeaderValue, IF_NONE_MATCH, VARY};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use serde_json::{Value, json};

use crate::api::{Api, is_builtin};
use crate::request::body::{Body, full};
use crate::request::negotiate::{self, Discovery};
use crate::request::query::Query;
use crate::request::route::Route;
use crate::response::status::StatusError;
use crate::response::{self, OutputStyle};
use crate::{discovery, discovery::openapi, tokens};

/// Serves a request for a non-resource path.
pub(crate) async fn handle(
    api: &Api,
    route: &Route,
    parts: &Parts,
    style: OutputStyle,
) -> Result<Response<Body>, StatusError> {
    if *route == Route::Unknown {
        let page = api.page_at(parts.uri.path()).filter(|_| parts.method == Method::GET);
        return Ok(match page {
            Some(page) => response::document(StatusCode::OK, style, &page),
            None => response::page_not_found(),
        });
    }
    let registry = api.registry();
    if let Route::EmptySegment { group, version } = route {
        // Built-in groups respond for resources they do not have.
        let versions = registry.group(group).into_iter().flat_map(|it| &it.versions);
        let known = version.is_empty() || versions.into_iter().any(|it| it.name == *version);
        return match known && is_builtin(&registry, group) {
            true => Err(StatusError::unknown_resource()),
            false => Ok(response::page_not_found()),
        };
    }
    if parts.method != Method::GET {
        return Err(StatusError::method_not_allowed());
    }
    let query = Query::read(parts.uri.query());
    match route {
        Route::Index => Ok(response::document(StatusCode::OK, style, &index(api))),
        Route::Health { probe, check } => Ok(health(api, probe, check.as_deref(), &query)),
        Route::Version => Ok(response::document(StatusCode::OK, style, &version(api))),
        Route::Metrics => metrics(api),
        Route::TokenConfiguration => {
            negotiate::check_media_type(&parts.headers, "application/json")?;
            Ok(tokens::cacheable_document("application/json", &tokens::openid_configuration(api)))
        }
        Route::TokenKeys => {
            let kind = "application/jwk-set+json";
            negotiate::check_media_type(&parts.headers, kind)?;
            Ok(tokens::cacheable_document(kind, &api.0.settings.authenticator.key().jwks()))
        }
        Route::OpenapiV2 => openapi::swagger(api, &parts.headers).await,
        Route::OpenapiIndex => Ok(openapi::index(api)),
        Route::Openapi(path) => openapi::document(api, path, &query, &parts.headers),
        Route::CoreVersions => {
            let legacy = discovery::core_versions(api.address());
            discovery_document(api, parts, style, true, &legacy)
        }
        Route::Groups => {
            let mut groups = discovery::groups(&registry);
            if let Some(list) = groups["groups"].as_array_mut() {
                list.extend(api.aggregated_groups());
            }
            discovery_document(api, parts, style, false, &groups)
        }
        Route::Group(name) => match registry.group(name) {
            Some(group) => {
                negotiate::format(&parts.headers)?;
                Ok(response::document(StatusCode::OK, style, &discovery::group(group)))
            }
            None => match api.aggregated_group(name) {
                Some(group) => {
                    negotiate::format(&parts.headers)?;
                    Ok(response::document(StatusCode::OK, style, &group))
                }
                None => Ok(response::page_not_found()),
            },
        },
        Route::GroupVersion { group, version } => {
            if let Some(resources) = api.aggregated_resources(group, version) {
                negotiate::format(&parts.headers)?;
                return Ok(response::document(StatusCode::OK, style, &resources));
            }
            let Some(known) = registry.group(group) else { return Ok(response::page_not_found()) };
            negotiate::format(&parts.headers)?;
            match known.versions.iter().find(|it| it.name == *version) {
                Some(version) => {
                    let document = discovery::resources(group, version);
                    Ok(response::document(StatusCode::OK, style, &document))
                }
                None => Err(StatusError::unknown_resource()),
            }
        }
        Route::Resource(_) | Route::EmptySegment { .. } | Route::Unknown => {
            Ok(response::page_not_found())
        }
    }
}

fn metrics(api: &Api) -> Result<Response<Body>, StatusError> {
    let text = api.0.settings.metrics.encode();
    let text = text.map_err(|fault| StatusError::internal(&fault.to_string()))?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(response::bytes(StatusCode::OK, kind, text.into()))
}

fn discovery_document(
    api: &Api,
    parts: &Parts,
    style: OutputStyle,
    core: bool,
    legacy: &Value,
) -> Result<Response<Body>, StatusError> {
    let version = match negotiate::discovery(&parts.headers)? {
        Discovery::Legacy => {
            return Ok(response::document(StatusCode::OK, style, legacy));
        }
        Discovery::Aggregated(version) => version,
    };
    let (bytes, tag) = api.discover_all(core, version);
    let content_type = match version {
        "v2" => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        _ => "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
    };
    let known = parts.headers.get(IF_NONE_MATCH).is_some_and(|it| it.as_bytes() == tag.as_bytes());
    let mut response = if known {
        let mut response = Response::new(full(""));
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        response::bytes(StatusCode::OK, content_type, bytes)
    };
    response.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(ETAG, tag);
    }
    Ok(response)
}

fn version(api: &Api) -> Value {
    json!({
        "major": "1", "minor": "34",
        "emulationMajor": "1", "emulationMinor": "34",
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "33",
        "gitVersion": format!("v1.34.10+gantry.{}", api.0.settings.version),
        "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, architecture()),
    })
}

/// Returns the processor's name as Go spells it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Returns the served paths.
fn index(api: &Api) -> Value {
    let mut paths: Vec<String> = [
        "/api",
        "/api/v1",
        "/apis",
        "/healthz",
        "/livez",
        "/openapi/v2",
        "/openapi/v3",
        "/readyz",
        "/version",
    ]
    .map(str::to_owned)
    .to_vec();
    for group in api.registry().groups.iter().filter(|group| !group.name.is_empty()) {
        paths.push(format!("/apis/{}", group.name));
        for version in &group.versions {
            paths.push(format!("/apis/{}/{}", group.name, version.name));
        }
    }
    for entry in api.aggregated_groups() {
        let name = entry["name"].as_str().unwrap_or_default();
        paths.push(format!("/apis/{name}"));
        let versions = entry["versions"].as_array().into_iter().flatten();
        let versions = versions.filter_map(|it| it["groupVersion"].as_str());
        paths.extend(versions.map(|it| format!("/apis/{it}")));
    }
    paths.sort();
    json!({ "paths": paths })
}

/// `/healthz` and its like: one line when all is well, one line per check on request.
fn health(api: &Api, probe: &str, check: Option<&str>, query: &Query) -> Response<Body> {
    // A check, and why it fails. A full or missing disk is no reason to restart the server, so only
    // readiness reports it.
    let store = match probe {
        "readyz" => api.0.store.check_ready().err().map(|why| why.to_string()),
        _ => api.0.store.failed().map(|_| "the store failed".to_owned()),
    };
    let mut checks = vec![("ping", None), ("store", store)];
    if probe == "readyz" {
        let stopping = api.0.stop.is_cancelled();
        checks.push(("shutdown", stopping.then(|| "the server is stopping".to_owned())));
    }
    if let Some(name) = check {
        return match checks.iter().find(|(known, _)| *known == name) {
            Some((_, None)) => response::text(StatusCode::OK, "ok"),
            Some((_, Some(why))) => {
                let words = format!("internal server error: {why}\n");
                response::text(StatusCode::INTERNAL_SERVER_ERROR, words)
            }
            None => response::page_not_found(),
        };
    }
    let excluded: Vec<&str> = query.all("exclude").collect();
    let mut lines = String::new();
    let mut well = true;
    for (name, fails) in checks {
        match fails {
            _ if excluded.contains(&name) => lines.push_str(&format!("[+]{name} excluded: ok\n")),
            None => lines.push_str(&format!("[+]{name} ok\n")),
            Some(why) => {
                well = false;
                lines.push_str(&format!("[-]{name} failed: {why}\n"));
            }
        }
    }
    if !well {
        lines.push_str(&format!("{probe} check failed\n"));
        return response::text(StatusCode::INTERNAL_SERVER_ERROR, lines);
    }
    if query.get("verbose").is_some() {
        lines.push_str(&format!("{probe} check passed\n"));
        return response::text(StatusCode::OK, lines);
    }
    response::text(StatusCode::OK, "ok")
}
