//! Parses request paths.

use http::Method;

/// The meaning of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// `/`: the list of paths.
    Index,
    /// `/healthz`, `/livez`, `/readyz` and the checks below them.
    Health {
        /// Which of the three.
        probe: String,
        /// One check, when the path names one.
        check: Option<String>,
    },
    /// `/version`.
    Version,
    /// `/metrics`.
    Metrics,
    /// `/.well-known/openid-configuration`: how service account tokens are verified.
    TokenConfiguration,
    /// `/openid/v1/jwks`: the key that verifies them.
    TokenKeys,
    /// `/openapi/v2`.
    OpenapiV2,
    /// `/openapi/v3`.
    OpenapiIndex,
    /// `/openapi/v3/apis/{group}/{version}` and its like; the part after `v3/`.
    Openapi(String),
    /// `/api`.
    CoreVersions,
    /// `/apis`.
    Groups,
    /// `/apis/{group}`.
    Group(String),
    /// `/api/v1`, `/apis/{group}/{version}`.
    GroupVersion {
        /// The group; empty for the core group.
        group: String,
        /// The version.
        version: String,
    },
    /// A resource, an object or a subresource.
    Resource(RequestInfo),
    /// A path below a group version with an empty segment, which names nothing.
    EmptySegment {
        /// The group; empty for the core group.
        group: String,
        /// The version; empty for the core group, which responds for all its paths.
        version: String,
    },
    /// A path that is not served.
    Unknown,
}

/// A resource, an object or a subresource, as a path names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// The group; empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The namespace; empty for cluster scope or all namespaces.
    pub namespace: String,
    /// The plural name.
    pub resource: String,
    /// The object; empty for the collection.
    pub name: String,
    /// The subresource.
    pub subresource: String,
    /// The old `watch/` prefix was used.
    pub watch_prefix: bool,
}

/// Parses a decoded path. Empty segments are not ignored.
#[must_use]
pub fn route(path: &str) -> Route {
    let trimmed = path.strip_prefix('/').unwrap_or(path);
    if trimmed.is_empty() {
        return Route::Index;
    }
    let trimmed = trimmed.trim_end_matches('/');
    let mut segments: Vec<&str> = trimmed.split('/').collect();
    if let ["api", _, "namespaces", _, "pods" | "services", _, "proxy", ..] = segments.as_slice() {
        // Below a proxy the path belongs to the backend, and may have empty segments.
        let below = segments.split_off(7);
        segments.extend(below.into_iter().filter(|segment| !segment.is_empty()));
    }
    if trimmed.contains('\0') {
        return Route::Unknown;
    }
    if segments.iter().any(|segment| segment.is_empty()) {
        return match segments.as_slice() {
            ["api", ..] => Route::EmptySegment { group: String::new(), version: String::new() },
            ["apis", group, version, _, ..] => {
                Route::EmptySegment { group: (*group).to_owned(), version: (*version).to_owned() }
            }
            _ => Route::Unknown,
        };
    }
    match segments.as_slice() {
        ["version"] => Route::Version,
        ["metrics"] => Route::Metrics,
        [probe @ ("healthz" | "livez" | "readyz"), rest @ ..] if rest.len() <= 1 => Route::Health {
            probe: (*probe).to_owned(),
            check: rest.first().map(|&check| check.to_owned()),
        },
        [".well-known", "openid-configuration"] => Route::TokenConfiguration,
        ["openid", "v1", "jwks"] => Route::TokenKeys,
        ["openapi", "v2"] => Route::OpenapiV2,
        ["openapi", "v3"] => Route::OpenapiIndex,
        ["openapi", "v3", rest @ ..] => Route::Openapi(rest.join("/")),
        ["api"] => Route::CoreVersions,
        ["apis"] => Route::Groups,
        ["apis", group] => Route::Group((*group).to_owned()),
        ["api", version] => {
            Route::GroupVersion { group: String::new(), version: (*version).to_owned() }
        }
        ["apis", group, version] => {
            Route::GroupVersion { group: (*group).to_owned(), version: (*version).to_owned() }
        }
        ["api", version, rest @ ..] => Route::Resource(target("", version, rest)),
        ["apis", group, version, rest @ ..] => Route::Resource(target(group, version, rest)),
        _ => Route::Unknown,
    }
}

fn target(group: &str, version: &str, segments: &[&str]) -> RequestInfo {
    let mut target = RequestInfo {
        group: group.to_owned(),
        version: version.to_owned(),
        ..RequestInfo::default()
    };
    let mut segments = segments;
    if let ["watch", rest @ ..] = segments
        && !rest.is_empty()
    {
        target.watch_prefix = true;
        segments = rest;
    }
    // A Namespace object, or a subresource of it, is not a namespaced resource.
    let inside = match segments {
        ["namespaces", namespace, part, ..] if !matches!(*part, "status" | "finalize") => {
            Some(*namespace)
        }
        _ => None,
    };
    if let Some(namespace) = inside {
        namespace.clone_into(&mut target.namespace);
        segments = &segments[2..];
    }
    let part = |place: usize| segments.get(place).map_or_else(String::new, |&it| it.to_owned());
    target.resource = part(0);
    target.name = part(1);
    target.subresource = segments.get(2..).map_or_else(String::new, |rest| rest.join("/"));
    target
}

/// The verb of a request for a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Read one object.
    Get,
    /// Read a collection.
    List,
    /// Watch a collection.
    Watch,
    /// Create an object.
    Create,
    /// Replace an object.
    Update,
    /// Patch an object.
    Patch,
    /// Delete an object.
    Delete,
    /// Delete a collection.
    DeleteCollection,
}

impl Verb {
    /// Returns the verb of a method on an object or a collection; `None` if there is none.
    #[must_use]
    pub fn of(method: &Method, target: &RequestInfo, watch: bool) -> Option<Self> {
        let named = !target.name.is_empty();
        match *method {
            Method::GET if target.watch_prefix => Some(Self::Watch),
            _ if target.watch_prefix => None,
            Method::GET if named => Some(Self::Get),
            Method::GET if watch => Some(Self::Watch),
            Method::GET => Some(Self::List),
            Method::POST => Some(Self::Create),
            Method::PUT => Some(Self::Update),
            Method::PATCH => Some(Self::Patch),
            Method::DELETE if named => Some(Self::Delete),
            Method::DELETE => Some(Self::DeleteCollection),
            _ => None,
        }
    }

    /// Returns the verb as discovery and RBAC rules name it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }

    /// Whether it changes anything.
    #[must_use]
    pub fn is_mutating(self) -> bool {
        match self {
            Self::Get | Self::List | Self::Watch => false,
            Self::Create | Self::Update | Self::Patch | Self::Delete | Self::DeleteCollection => {
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_paths_are_parsed() {
        let table = [
            ("/api/v1/pods", "", "pods", "", ""),
            ("/api/v1/namespaces/x", "", "namespaces", "x", ""),
            ("/api/v1/namespaces/x/status", "", "namespaces", "x", "status"),
            ("/api/v1/namespaces/x/finalize", "", "namespaces", "x", "finalize"),
            ("/api/v1/namespaces/x/pods", "x", "pods", "", ""),
            ("/api/v1/namespaces/x/pods/p", "x", "pods", "p", ""),
            ("/api/v1/namespaces/x/pods/p/log", "x", "pods", "p", "log"),
            ("/api/v1/namespaces/x/pods/p/proxy/a/b", "x", "pods", "p", "proxy/a/b"),
            ("/api/v1/namespaces/x/services/p/proxy//a//", "x", "services", "p", "proxy/a"),
            ("/api/v1/nodes/n/status/", "", "nodes", "n", "status"),
        ];
        for (path, namespace, resource, name, subresource) in table {
            let Route::Resource(target) = route(path) else { panic!("{path} names no resource") };
            let found = [&target.namespace, &target.resource, &target.name, &target.subresource];
            assert_eq!(found, [namespace, resource, name, subresource], "{path}");
        }
    }

    #[test]
    fn non_resource_paths_are_parsed() {
        let version = |group: &str, version: &str| Route::GroupVersion {
            group: group.to_owned(),
            version: version.to_owned(),
        };
        let misspelt = |group: &str, version: &str| Route::EmptySegment {
            group: group.to_owned(),
            version: version.to_owned(),
        };
        let table = [
            ("/", Route::Index),
            ("/version/", Route::Version),
            ("/api", Route::CoreVersions),
            ("/api/v1", version("", "v1")),
            ("/apis/apps", Route::Group("apps".to_owned())),
            ("/apis/apps/v1/", version("apps", "v1")),
            ("/api/v1//", version("", "v1")),
            ("/api//v1", misspelt("", "")),
            ("/api/v1//namespaces", misspelt("", "")),
            ("/api/v1/namespaces//pods/p/proxy//a", misspelt("", "")),
            ("/api/v1/namespaces/x/pods//proxy/a", misspelt("", "")),
            ("/apis/apps/v1//deployments", misspelt("apps", "v1")),
            ("/apis//v1", Route::Unknown),
            ("//", Route::Unknown),
            ("//api/v1", Route::Unknown),
            ("/nothing", Route::Unknown),
            ("/openapi/v3/apis/apps/v1", Route::Openapi("apis/apps/v1".to_owned())),
        ];
        for (path, expected) in table {
            assert_eq!(route(path), expected, "{path}");
        }
    }

    #[test]
    fn the_watch_prefix_means_a_watch() {
        let Route::Resource(target) = route("/api/v1/watch/namespaces/x/pods/p") else {
            panic!("no resource")
        };
        assert_eq!((target.watch_prefix, target.name.as_str()), (true, "p"));
        assert_eq!(Verb::of(&Method::GET, &target, false), Some(Verb::Watch));
    }
}
