//! Who asks, and whether they may.
//!
//! Until roles are served, there are two sorts of callers: administrators, who may do everything,
//! and strangers, who may see health and version.

use std::collections::BTreeMap;

use http::Method;
use serde_json::{Value, json};

use crate::query::Query;
use crate::route::{Target, Verb};
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

/// The group that may do everything.
const ADMINISTRATORS: &str = "system:masters";

impl Caller {
    /// Someone who showed nothing.
    #[must_use]
    pub fn anonymous() -> Self {
        Self {
            name: "system:anonymous".to_owned(),
            groups: vec!["system:unauthenticated".to_owned()],
            ..Self::default()
        }
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
    fn authenticated(name: &str, groups: &[String]) -> Self {
        let mut groups = groups.to_vec();
        groups.push("system:authenticated".to_owned());
        Self { name: name.to_owned(), groups, ..Self::default() }
    }

    /// The server itself.
    #[must_use]
    pub fn server() -> Self {
        Self::authenticated("system:apiserver", &[ADMINISTRATORS.to_owned()])
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

    /// Whether this caller may do everything.
    #[must_use]
    pub fn is_administrator(&self) -> bool {
        self.groups.iter().any(|group| group == ADMINISTRATORS)
    }
}

/// Whether the caller may see a path that is no resource.
///
/// # Errors
/// 403 with the words clients print.
pub fn check_path(caller: &Caller, method: &Method, path: &str) -> Result<(), Refusal> {
    let trimmed = path.trim_end_matches('/');
    let open = ["/healthz", "/livez", "/readyz", "/version"];
    if caller.is_administrator() || (*method == Method::GET && open.contains(&trimmed)) {
        return Ok(());
    }
    let verb = method.as_str().to_ascii_lowercase();
    let why = format!("User \"{}\" cannot {verb} path \"{path}\"", caller.name);
    Err(Refusal::forbidden("", "", "", &why))
}

/// Whether the caller may do this to a resource.
///
/// # Errors
/// 403 with the words clients print.
pub fn check_resource(
    caller: &Caller,
    method: &Method,
    target: &Target,
    query: &Query,
) -> Result<(), Refusal> {
    if caller.is_administrator() {
        return Ok(());
    }
    let watch = query.flag("watch").unwrap_or(false);
    let verb = Verb::of(method, target, watch).map_or("", Verb::word);
    let resource = match target.subresource.as_str() {
        "" => target.resource.clone(),
        part => format!("{}/{part}", target.resource),
    };
    let place = match target.namespace.as_str() {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace \"{namespace}\""),
    };
    let why = format!(
        "User \"{}\" cannot {verb} resource \"{resource}\" in API group \"{}\" {place}",
        caller.name, target.group
    );
    Err(Refusal::forbidden(&target.group, &target.resource, &target.name, &why))
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
}
