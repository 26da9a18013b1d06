//! The embedded registry of container images. Its users and their permissions are those of the API
//! server.
//!
//! A repository `team-a/driver` belongs to the namespace `team-a`: pulling from it needs the verb
//! `get` on `repositories.registry.gantry.dev` there, pushing `update`, deleting `delete`. A
//! repository without a slash needs the same in all namespaces, and so does listing all of them.

pub(crate) mod node_images;

use std::fmt;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use gantry_apiserver::{Api, Caller, ClientCertificate};
use gantry_process::clock::Clock;
use gantry_process::tasks::{OnLoss, Tasks};
use gantry_rbac::Attributes;
use gantry_registry::{
    Access, AccessUnavailable, Body, GarbageCollection, GarbageReport, PresentedCredentials,
    Registry, RepositoryName, ServerSettings, Storage, StorageLimits, Verb,
};
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use serde_json::{Value, json};

/// The API group of the permissions.
const GROUP: &str = "registry.gantry.dev";
/// The resource of the permissions.
const RESOURCE: &str = "repositories";

/// How often content that nothing needs is removed.
const GARBAGE_COLLECTION_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// The path at which garbage is collected on request.
pub const GARBAGE_COLLECTION_PATH: &str = "/gantry/registry/gc";

/// The embedded registry.
pub type ImageRegistry = Registry<ApiUsers>;

/// The users of an API server, as users of a registry.
pub struct ApiUsers(Api);

impl fmt::Debug for ApiUsers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiUsers")
    }
}

/// Opens the registry in a directory, and removes what nothing needs from time to time.
///
/// # Errors
/// The directory cannot be used.
pub fn open(directory: &Path, api: &Api, tasks: &mut Tasks) -> anyhow::Result<ImageRegistry> {
    let storage = Storage::open(directory, StorageLimits::default())
        .with_context(|| format!("could not open the registry in {}", directory.display()))?;
    let (clock, random) = (tasks.clock().clone(), fastrand::Rng::new());
    let users = ApiUsers(api.clone());
    let registry = Registry::new(storage, users, clock.clone(), random, ServerSettings::default());
    let collected = registry.clone();
    tasks.spawn("registry garbage collection", OnLoss::EndOwner, |stop| async move {
        // May be dropped: a collection that is not finished is continued by the next one.
        stop.run_until_cancelled(collect_garbage(collected, clock)).await;
        Ok(())
    });
    Ok(registry)
}

async fn collect_garbage(registry: ImageRegistry, clock: Clock) {
    loop {
        clock.sleep(GARBAGE_COLLECTION_INTERVAL).await;
        match registry.collect_garbage(GarbageCollection::default()).await {
            Ok(report) => {
                let (contents, bytes) = (report.contents, report.bytes);
                tracing::info!(contents, bytes, "removed what no image needs from the registry");
            }
            Err(error) => {
                let error = gantry_process::error_chain(&error);
                tracing::warn!(error, "could not collect garbage of the registry");
            }
        }
    }
}

/// Whether a request is for the registry.
#[must_use]
pub fn serves(path: &str) -> bool {
    path == "/v2" || path.starts_with("/v2/") || path == GARBAGE_COLLECTION_PATH
}

/// Serves a request for the registry. `caller` is who the connection belongs to, if that is known
/// by a certificate.
pub async fn handle(
    registry: &ImageRegistry,
    api: &Api,
    request: Request<Incoming>,
    caller: Option<Caller>,
) -> Response<Body> {
    if request.uri().path() != GARBAGE_COLLECTION_PATH {
        return registry.handle(request, caller).await;
    }
    let caller = caller.or_else(|| api.authenticate(request.headers(), ClientCertificate::Absent));
    let asked = attributes("delete", None);
    let (status, answer) = match caller {
        _ if request.method() != Method::POST => {
            (StatusCode::METHOD_NOT_ALLOWED, json!({"message": "use POST"}))
        }
        None => (StatusCode::UNAUTHORIZED, json!({"message": "invalid credentials"})),
        Some(caller) if !api.authorize(&caller, &asked).allowed => {
            let message = format!(
                "{} may not delete {RESOURCE}.{GROUP} in all namespaces, which this needs",
                caller.name
            );
            (StatusCode::FORBIDDEN, json!({"message": message}))
        }
        Some(_) => match registry.collect_garbage(GarbageCollection::default()).await {
            Ok(report) => {
                let GarbageReport { manifests, links, contents, bytes, unreadable } = report;
                let unreadable: Vec<String> = unreadable.iter().map(ToString::to_string).collect();
                let report = json!({
                    "manifests": manifests, "links": links, "contents": contents, "bytes": bytes,
                    "unreadable": unreadable,
                });
                (StatusCode::OK, report)
            }
            Err(error) => {
                let message = gantry_process::error_chain(&error);
                (StatusCode::INTERNAL_SERVER_ERROR, json!({"message": message}))
            }
        },
    };
    let mut answer = answer;
    if !status.is_success() {
        // In the form in which clients of API servers expect an error.
        answer["kind"] = "Status".into();
        answer["apiVersion"] = "v1".into();
        answer["status"] = "Failure".into();
        answer["code"] = status.as_u16().into();
    }
    let body = Full::new(Bytes::from(answer.to_string())).map_err(|never| match never {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

impl Access for ApiUsers {
    type User = Caller;

    /// Clients of registries send a token as password; the user name is not looked at.
    async fn authenticate(
        &self,
        presented: PresentedCredentials,
    ) -> Result<Option<Caller>, AccessUnavailable> {
        let token = match &presented {
            PresentedCredentials::Bearer(token) => token,
            PresentedCredentials::Basic { password, .. } => password,
        };
        let value = HeaderValue::from_str(&format!("Bearer {}", token.reveal()));
        let Some(value) = value.ok().filter(|_| !token.reveal().trim().is_empty()) else {
            return Ok(None);
        };
        let headers = HeaderMap::from_iter([(AUTHORIZATION, value)]);
        Ok(self.0.authenticate(&headers, ClientCertificate::Absent))
    }

    async fn authorize(
        &self,
        user: Option<&Caller>,
        verb: Verb,
        repository: Option<&RepositoryName>,
    ) -> Result<bool, AccessUnavailable> {
        let Some(user) = user else { return Ok(false) };
        if verb == Verb::Pull && repository.is_some_and(|it| is_own(&user.name, it)) {
            return Ok(true);
        }
        let verb = match verb {
            Verb::Ping => return Ok(true),
            Verb::List => "list",
            Verb::Pull => "get",
            Verb::Push => "update",
            Verb::Delete => "delete",
        };
        Ok(self.0.authorize(user, &attributes(verb, repository)).allowed)
    }
}

/// Whether a user is a service account of the namespace that a repository belongs to: pods may pull
/// the images of their own namespace.
fn is_own(user: &str, repository: &RepositoryName) -> bool {
    let account = user.strip_prefix("system:serviceaccount:").and_then(|it| it.split_once(':'));
    let owner = repository.as_str().split_once('/').map(|(namespace, _)| namespace);
    matches!((account, owner), (Some((namespace, _)), Some(owner)) if namespace == owner)
}

/// What a request asks for, as the roles of the API server know it.
fn attributes(verb: &str, repository: Option<&RepositoryName>) -> Attributes {
    let asked = Attributes::resource(verb, GROUP, RESOURCE);
    let Some(repository) = repository else { return asked };
    match repository.as_str().split_once('/') {
        Some((namespace, name)) => asked.in_namespace(namespace).with_name(name),
        None => asked.with_name(repository.as_str()),
    }
}

/// The roles for users: those who may view a namespace may pull from its repositories, those who
/// may edit it may push to them. Those who only push have a role that nothing aggregates.
pub(crate) fn roles() -> [Value; 3] {
    let role = |name: &str, labels: &[&str], verbs: &[&str]| {
        let labels = labels.iter().map(|it| {
            (format!("rbac.authorization.k8s.io/aggregate-to-{it}"), Value::from("true"))
        });
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": name, "labels": labels.collect::<serde_json::Map<_, _>>()},
            "rules": [{"apiGroups": [GROUP], "resources": [RESOURCE], "verbs": verbs}],
        })
    };
    [
        role("gantry-registry-viewer", &["view"], &["get"]),
        role("gantry-registry-editor", &["edit", "admin"], &["get", "update", "delete"]),
        role(gantry_kernel_modules::subsystem::REGISTRY_ROLE, &[], &["get", "update"]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repositories_belong_to_the_namespace_of_their_first_part() {
        let asked = |name: &str| attributes("get", Some(&name.parse().unwrap()));
        let expected = Attributes::resource("get", GROUP, RESOURCE);
        let table = [
            ("team-a/driver", expected.clone().in_namespace("team-a").with_name("driver")),
            ("team-a/gpu/driver", expected.clone().in_namespace("team-a").with_name("gpu/driver")),
            ("driver", expected.clone().with_name("driver")),
        ];
        for (name, expected) in table {
            assert_eq!(asked(name), expected, "{name}");
        }
        assert_eq!(attributes("list", None), expected.with_verb("list"));
    }

    #[test]
    fn pods_pull_from_their_own_namespace() {
        let table = [
            ("system:serviceaccount:team-a:default", "team-a/driver", true),
            ("system:serviceaccount:team-a:default", "team-a/gpu/driver", true),
            ("system:serviceaccount:team-a:default", "team-b/driver", false),
            ("system:serviceaccount:team-a:default", "team-a", false),
            ("system:serviceaccount:team-a", "team-a/driver", false),
            ("team-a", "team-a/driver", false),
        ];
        for (user, repository, expected) in table {
            assert_eq!(is_own(user, &repository.parse().unwrap()), expected, "{user} {repository}");
        }
    }

    #[test]
    fn paths_of_the_registry_are_told_from_those_of_the_api() {
        for (path, expected) in [
            ("/v2/", true),
            ("/v2", true),
            ("/v2/a/b/tags/list", true),
            ("/v2x", false),
            ("/", false),
            (GARBAGE_COLLECTION_PATH, true),
        ] {
            assert_eq!(serves(path), expected, "{path}");
        }
    }
}
