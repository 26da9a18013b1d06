//! Callers, and the authorization of their requests.
//!
//! Every request is turned into `Attributes` and authorized by the roles and bindings stored at
//! that moment; see `authorizer` for how they are indexed.

use std::collections::BTreeMap;

pub use gantry_rbac::{Attributes, AttributesTarget, Decision};

use gantry_rbac::User;
use http::Method;
use serde_json::{Value, json};

use crate::api::Api;
use crate::request::query::Query;
use crate::request::route::{RequestInfo, Verb};
use crate::request::selector::FieldSelector;
use crate::response::status::StatusError;

pub(crate) mod authentication;
pub(crate) mod authorizer;
pub(crate) mod impersonation;
pub(crate) mod privilege_escalation;
pub(crate) mod roles;

/// The authenticated user of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The name.
    pub name: String,
    /// The UID; empty when there is none.
    pub uid: String,
    /// The groups.
    pub groups: Vec<String>,
    /// Extra attributes, by key.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// The key in [`Caller::extra`] that identifies the credential a caller used.
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// The name of anonymous callers, and their group.
const ANONYMOUS: &str = "system:anonymous";
const UNAUTHENTICATED_GROUP: &str = "system:unauthenticated";
/// The group of all authenticated callers.
const AUTHENTICATED_GROUP: &str = "system:authenticated";
/// The group that may do everything, whatever roles say.
const MASTERS_GROUP: &str = "system:masters";

impl Caller {
    /// Makes an anonymous caller.
    #[must_use]
    pub fn anonymous() -> Self {
        Self {
            name: ANONYMOUS.to_owned(),
            groups: vec![UNAUTHENTICATED_GROUP.to_owned()],
            ..Self::default()
        }
    }

    /// Makes a caller from a verified certificate; `sha256` is its digest in hexadecimal.
    #[must_use]
    pub fn certified(name: &str, groups: &[String], sha256: &str) -> Self {
        let credential = vec![format!("X509SHA256={sha256}")];
        Self {
            extra: BTreeMap::from([(CREDENTIAL_ID.to_owned(), credential)]),
            ..Self::authenticated(name, groups)
        }
    }

    /// Makes an authenticated caller.
    #[must_use]
    pub fn authenticated(name: &str, groups: &[String]) -> Self {
        let mut groups = groups.to_vec();
        // A caller in the unauthenticated group does not get the authenticated one, as upstream.
        let settled =
            |group: &String| matches!(group.as_str(), AUTHENTICATED_GROUP | UNAUTHENTICATED_GROUP);
        if name != ANONYMOUS && !groups.iter().any(settled) {
            groups.push(AUTHENTICATED_GROUP.to_owned());
        }
        Self { name: name.to_owned(), groups, ..Self::default() }
    }

    /// Makes the caller that stands for the server itself.
    #[must_use]
    pub fn server() -> Self {
        Self::authenticated("system:apiserver", &[MASTERS_GROUP.to_owned()])
    }

    /// Makes the caller for one of the server's own controllers, under the name it has in a
    /// cluster.
    #[must_use]
    pub fn controller(name: &str) -> Self {
        let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system"];
        let groups = groups.map(str::to_owned);
        Self::authenticated(&format!("system:serviceaccount:kube-system:{name}"), &groups)
    }

    /// Returns the caller as a `UserInfo`.
    #[must_use]
    pub fn user_info(&self) -> Value {
        let Self { name, uid, groups, extra } = self;
        let mut info = json!({ "username": name });
        if !uid.is_empty() {
            info["uid"] = json!(uid);
        }
        if !groups.is_empty() {
            info["groups"] = json!(groups);
        }
        if !extra.is_empty() {
            info["extra"] = json!(extra);
        }
        info
    }

    /// Returns the caller as an RBAC user.
    #[must_use]
    pub fn user(&self) -> User<'_> {
        User { name: &self.name, groups: &self.groups }
    }
}

impl Api {
    /// Decides whether a caller may do something, and why.
    ///
    /// The decision uses the current state: a role or binding is in effect as soon as its write
    /// returns.
    #[must_use]
    pub fn authorize(&self, caller: &Caller, asked: &Attributes) -> Decision {
        self.0.authorizer.decide(&self.0.store, caller.user(), asked)
    }

    /// Returns `Ok` if a caller may do something, otherwise the refusal.
    pub(crate) fn check_authorized(
        &self,
        caller: &Caller,
        asked: &Attributes,
    ) -> Result<(), StatusError> {
        let decision = self.authorize(caller, asked);
        if decision.allowed {
            return Ok(());
        }
        let words = asked.forbidden_message(&caller.name);
        let why = match decision.reason.as_str() {
            "" => words,
            reason => format!("{words}: {reason}"),
        };
        Err(match &asked.target {
            AttributesTarget::NonResourcePath(_) => StatusError::forbidden("", "", "", &why),
            AttributesTarget::Resource { group, resource, name, .. } => {
                StatusError::forbidden(group, resource, name, &why)
            }
        })
    }
}

/// Returns the attributes of a request for a non-resource path.
pub(crate) fn path_attributes(method: &Method, path: &str) -> Attributes {
    Attributes::path(&method.as_str().to_ascii_lowercase(), path)
}

/// Returns the attributes of a request for a resource.
///
/// They are made from the very target that is served, so that nothing else can be served than what
/// was authorized.
pub(crate) fn resource_attributes(
    method: &Method,
    target: &RequestInfo,
    query: &Query,
) -> Attributes {
    let watch = query.flag("watch").unwrap_or(false);
    let verb = Verb::of(method, target, watch);
    // The namespace of a Namespace object is the object itself.
    let namespace = match (target.resource.as_str(), target.namespace.as_str()) {
        ("namespaces", "") => &target.name,
        _ => &target.namespace,
    };
    let name = match verb {
        Some(Verb::List | Verb::Watch) if target.name.is_empty() => selected_name(query),
        _ => target.name.clone(),
    };
    // The path after the name of a subresource is left to the subresource.
    let part = target.subresource.split('/').next().unwrap_or_default();
    let verb = match verb {
        Some(verb) => verb.as_str(),
        None if target.watch_prefix => "watch",
        None if *method == Method::HEAD => "get",
        None => "",
    };
    Attributes::resource(verb, &target.group, &target.resource)
        .with_subresource(part)
        .in_namespace(namespace)
        .with_name(&name)
}

/// Returns the name of the one object a list is about, if its field selector says so.
fn selected_name(query: &Query) -> String {
    let selector = FieldSelector::read(query.text("fieldSelector")).unwrap_or_default();
    let name = selector.only_name().unwrap_or_default();
    let usable = !matches!(name, "." | "..") && !name.contains(['/', '%']);
    if usable { name.to_owned() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_named_by_its_digest() {
        let caller = Caller::certified("bob", &["devs".to_owned()], "ab12");
        let expected = json!({
            "username": "bob", "groups": ["devs", "system:authenticated"],
            "extra": { CREDENTIAL_ID: ["X509SHA256=ab12"] },
        });
        assert_eq!(caller.user_info(), expected);
        let stranger = json!({
            "username": "system:anonymous", "groups": ["system:unauthenticated"],
        });
        assert_eq!(Caller::anonymous().user_info(), stranger);
    }

    #[test]
    fn authenticated_callers_are_in_system_authenticated() {
        let table: [(&str, &[&str], &[&str]); 5] = [
            ("bob", &[], &[AUTHENTICATED_GROUP]),
            ("bob", &["devs"], &["devs", AUTHENTICATED_GROUP]),
            ("bob", &[AUTHENTICATED_GROUP, "devs"], &[AUTHENTICATED_GROUP, "devs"]),
            ("bob", &[UNAUTHENTICATED_GROUP], &[UNAUTHENTICATED_GROUP]),
            (ANONYMOUS, &["devs"], &["devs"]),
        ];
        for (name, groups, expected) in table {
            let groups: Vec<String> = groups.iter().map(|&it| it.to_owned()).collect();
            assert_eq!(Caller::authenticated(name, &groups).groups, expected, "{name} {groups:?}");
        }
    }

    #[test]
    fn attributes_name_what_the_request_names() {
        let on = Attributes::resource;
        let table = [
            ("GET", "/api/v1/pods", on("list", "", "pods")),
            ("GET", "/api/v1/pods?watch=1", on("watch", "", "pods")),
            ("GET", "/api/v1/watch/pods", on("watch", "", "pods")),
            ("POST", "/api/v1/watch/pods", on("watch", "", "pods")),
            (
                "GET",
                "/api/v1/watch/namespaces/x/pods/p",
                on("watch", "", "pods").in_namespace("x").with_name("p"),
            ),
            (
                "GET",
                "/api/v1/namespaces/x/pods?fieldSelector=metadata.name%3Dp,spec.a!%3Db",
                on("list", "", "pods").in_namespace("x").with_name("p"),
            ),
            (
                "GET",
                "/api/v1/namespaces/x/pods?fieldSelector=metadata.name%3Da/b",
                on("list", "", "pods").in_namespace("x"),
            ),
            (
                "DELETE",
                "/api/v1/namespaces/x/pods?fieldSelector=metadata.name%3Dp",
                on("deletecollection", "", "pods").in_namespace("x"),
            ),
            (
                "GET",
                "/api/v1/namespaces/x/pods/p?watch=1",
                on("get", "", "pods").in_namespace("x").with_name("p"),
            ),
            (
                "PUT",
                "/apis/apps/v1/namespaces/x/deployments/d/scale",
                on("update", "apps", "deployments")
                    .in_namespace("x")
                    .with_name("d")
                    .with_subresource("scale"),
            ),
            (
                "POST",
                "/api/v1/namespaces/x/pods/p/proxy/a/b",
                on("create", "", "pods").in_namespace("x").with_name("p").with_subresource("proxy"),
            ),
            (
                "PATCH",
                "/api/v1/namespaces/x",
                on("patch", "", "namespaces").in_namespace("x").with_name("x"),
            ),
            (
                "PUT",
                "/api/v1/namespaces/x/finalize",
                on("update", "", "namespaces")
                    .in_namespace("x")
                    .with_name("x")
                    .with_subresource("finalize"),
            ),
            ("HEAD", "/api/v1/nodes/n", on("get", "", "nodes").with_name("n")),
            ("OPTIONS", "/api/v1/nodes/n", on("", "", "nodes").with_name("n")),
        ];
        for (method, uri, expected) in table {
            let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
            let crate::request::route::Route::Resource(target) = crate::request::route::route(path)
            else {
                panic!("{uri} names no resource")
            };
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            let asked = resource_attributes(&method, &target, &Query::read(Some(query)));
            assert_eq!(asked, expected, "{method} {uri}");
        }
    }
}
