//! Who asks, and whether they may.
//!
//! Every request is put as a question (`Attributes`) and answered by what roles and bindings say at
//! that moment; see `authority` for how they are kept ready.

use std::collections::BTreeMap;

pub use gantry_rbac::{Attributes, Decision, What};

use gantry_rbac::User;
use http::Method;
use serde_json::{Value, json};

use crate::api::Api;
use crate::query::Query;
use crate::route::{Target, Verb};
use crate::selector::FieldSelector;
use crate::status::Refusal;

/// Who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The name.
    pub name: String,
    /// The identity over recreations of the name; empty when there is none.
    pub uid: String,
    /// The groups.
    pub groups: Vec<String>,
    /// What else is known about them, by key.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// The key in [`Caller::extra`] of what a caller showed.
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// The name of those who showed nothing, and their group.
const ANONYMOUS: &str = "system:anonymous";
const UNKNOWN: &str = "system:unauthenticated";
/// The group of everybody else.
const KNOWN: &str = "system:authenticated";
/// The group that may do everything, whatever roles say.
const ADMINISTRATORS: &str = "system:masters";

impl Caller {
    /// Someone who showed nothing.
    #[must_use]
    pub fn anonymous() -> Self {
        Self { name: ANONYMOUS.to_owned(), groups: vec![UNKNOWN.to_owned()], ..Self::default() }
    }

    /// Someone whose certificate was verified; `sha256` is its digest in hexadecimal.
    #[must_use]
    pub fn certified(name: &str, groups: &[String], sha256: &str) -> Self {
        let credential = vec![format!("X509SHA256={sha256}")];
        Self {
            extra: BTreeMap::from([(CREDENTIAL_ID.to_owned(), credential)]),
            ..Self::authenticated(name, groups)
        }
    }

    /// Someone who is known.
    #[must_use]
    pub fn authenticated(name: &str, groups: &[String]) -> Self {
        let mut groups = groups.to_vec();
        // Whoever says to be unknown is left alone, as on the real server.
        let settled = |group: &String| matches!(group.as_str(), KNOWN | UNKNOWN);
        if name != ANONYMOUS && !groups.iter().any(settled) {
            groups.push(KNOWN.to_owned());
        }
        Self { name: name.to_owned(), groups, ..Self::default() }
    }

    /// The server itself.
    #[must_use]
    pub fn server() -> Self {
        Self::authenticated("system:apiserver", &[ADMINISTRATORS.to_owned()])
    }

    /// One of the server's own controllers, under the name it has in a cluster.
    #[must_use]
    pub fn controller(name: &str) -> Self {
        let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system"];
        let groups = groups.map(str::to_owned);
        Self::authenticated(&format!("system:serviceaccount:kube-system:{name}"), &groups)
    }

    /// The caller in the words of reviews: a `UserInfo`.
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

    /// The caller as roles know them.
    #[must_use]
    pub fn user(&self) -> User<'_> {
        User { name: &self.name, groups: &self.groups }
    }
}

impl Api {
    /// Whether a caller may do something, and why.
    ///
    /// The answer is as of now: whoever has just written a role or a binding sees what it does.
    #[must_use]
    pub fn authorize(&self, caller: &Caller, asked: &Attributes) -> Decision {
        self.0.authority.decide(&self.0.store, caller.user(), asked)
    }

    /// Lets a caller do something or refuses it.
    pub(crate) fn permit(&self, caller: &Caller, asked: &Attributes) -> Result<(), Refusal> {
        let decision = self.authorize(caller, asked);
        if decision.allowed {
            return Ok(());
        }
        let words = asked.refusal(&caller.name);
        let why = match decision.reason.as_str() {
            "" => words,
            reason => format!("{words}: {reason}"),
        };
        Err(match &asked.what {
            What::Path(_) => Refusal::forbidden("", "", "", &why),
            What::Resource { group, resource, name, .. } => {
                Refusal::forbidden(group, resource, name, &why)
            }
        })
    }
}

/// What a request asks of a path that is no resource.
pub(crate) fn of_path(method: &Method, path: &str) -> Attributes {
    Attributes::path(&method.as_str().to_ascii_lowercase(), path)
}

/// What a request asks of a resource.
///
/// It is made from the very target that is served, so that nothing else can be served than what was
/// asked about.
pub(crate) fn of_target(method: &Method, target: &Target, query: &Query) -> Attributes {
    let watch = query.flag("watch").unwrap_or(false);
    let verb = Verb::of(method, target, watch);
    // A namespace is in itself.
    let namespace = match (target.resource.as_str(), target.namespace.as_str()) {
        ("namespaces", "") => &target.name,
        _ => &target.namespace,
    };
    let name = match verb {
        Some(Verb::List | Verb::Watch) if target.name.is_empty() => selected_name(query),
        _ => target.name.clone(),
    };
    // What follows the name of a part is the part's own business.
    let part = target.subresource.split('/').next().unwrap_or_default();
    let verb = match verb {
        Some(verb) => verb.word(),
        None if target.watch_prefix => "watch",
        None if *method == Method::HEAD => "get",
        None => "",
    };
    Attributes::resource(verb, &target.group, &target.resource)
        .part(part)
        .inside(namespace)
        .named(&name)
}

/// The one object a list is about, if its field selector says so.
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
    fn everybody_known_is_in_one_more_group() {
        let table: [(&str, &[&str], &[&str]); 5] = [
            ("bob", &[], &[KNOWN]),
            ("bob", &["devs"], &["devs", KNOWN]),
            ("bob", &[KNOWN, "devs"], &[KNOWN, "devs"]),
            ("bob", &[UNKNOWN], &[UNKNOWN]),
            (ANONYMOUS, &["devs"], &["devs"]),
        ];
        for (name, groups, expected) in table {
            let groups: Vec<String> = groups.iter().map(|&it| it.to_owned()).collect();
            assert_eq!(Caller::authenticated(name, &groups).groups, expected, "{name} {groups:?}");
        }
    }

    #[test]
    fn a_request_asks_what_it_names() {
        let on = Attributes::resource;
        let table = [
            ("GET", "/api/v1/pods", on("list", "", "pods")),
            ("GET", "/api/v1/pods?watch=1", on("watch", "", "pods")),
            ("GET", "/api/v1/watch/pods", on("watch", "", "pods")),
            ("POST", "/api/v1/watch/pods", on("watch", "", "pods")),
            (
                "GET",
                "/api/v1/watch/namespaces/x/pods/p",
                on("watch", "", "pods").inside("x").named("p"),
            ),
            (
                "GET",
                "/api/v1/namespaces/x/pods?fieldSelector=metadata.name%3Dp,spec.a!%3Db",
                on("list", "", "pods").inside("x").named("p"),
            ),
            (
                "GET",
                "/api/v1/namespaces/x/pods?fieldSelector=metadata.name%3Da/b",
                on("list", "", "pods").inside("x"),
            ),
            (
                "DELETE",
                "/api/v1/namespaces/x/pods?fieldSelector=metadata.name%3Dp",
                on("deletecollection", "", "pods").inside("x"),
            ),
            (
                "GET",
                "/api/v1/namespaces/x/pods/p?watch=1",
                on("get", "", "pods").inside("x").named("p"),
            ),
            (
                "PUT",
                "/apis/apps/v1/namespaces/x/deployments/d/scale",
                on("update", "apps", "deployments").inside("x").named("d").part("scale"),
            ),
            (
                "POST",
                "/api/v1/namespaces/x/pods/p/proxy/a/b",
                on("create", "", "pods").inside("x").named("p").part("proxy"),
            ),
            ("PATCH", "/api/v1/namespaces/x", on("patch", "", "namespaces").inside("x").named("x")),
            (
                "PUT",
                "/api/v1/namespaces/x/finalize",
                on("update", "", "namespaces").inside("x").named("x").part("finalize"),
            ),
            ("HEAD", "/api/v1/nodes/n", on("get", "", "nodes").named("n")),
            ("OPTIONS", "/api/v1/nodes/n", on("", "", "nodes").named("n")),
        ];
        for (method, uri, expected) in table {
            let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
            let crate::route::Route::Resource(target) = crate::route::route(path) else {
                panic!("{uri} names no resource")
            };
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            let asked = of_target(&method, &target, &Query::read(Some(query)));
            assert_eq!(asked, expected, "{method} {uri}");
        }
    }
}
