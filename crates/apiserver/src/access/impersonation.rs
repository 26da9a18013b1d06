//! User impersonation.

use std::collections::BTreeMap;
use std::fmt;

use gantry_rbac::Attributes;
use http::HeaderMap;

use crate::access::Caller;
use crate::api::Api;
use crate::request::query::decode;
use crate::response::status::StatusError;

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
/// The API group of the permissions to impersonate UIDs and extra attributes.
const AUTHENTICATION_GROUP: &str = "authentication.k8s.io";

/// An attribute that a caller impersonates, each with a permission of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ImpersonatedAttribute {
    User(String),
    ServiceAccount { namespace: String, name: String },
    Group(String),
    Extra { key: String, value: String },
    Uid(String),
}

/// Reads the impersonation headers of a request; most requests have none.
///
/// # Errors
/// A user must be impersonated for any other attribute to be impersonated.
pub(crate) fn parse_headers(headers: &HeaderMap) -> Result<Vec<ImpersonatedAttribute>, String> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let first = |name| headers.get(name).map(text).filter(|text| !text.is_empty());
    let mut guises = Vec::new();
    let user = first(USER);
    let named = user.is_some();
    guises.extend(user.map(|user| match parse_service_account(&user) {
        Some((namespace, name)) => ImpersonatedAttribute::ServiceAccount { namespace, name },
        None => ImpersonatedAttribute::User(user),
    }));
    guises.extend(headers.get_all(GROUP).iter().map(text).map(ImpersonatedAttribute::Group));
    let mut keys: Vec<&str> = headers.keys().map(http::HeaderName::as_str).collect();
    keys.retain(|name| name.starts_with(EXTRA));
    keys.sort_unstable();
    for header in keys {
        let key = unescaped(header.strip_prefix(EXTRA).unwrap_or_default());
        let values = headers.get_all(header).iter().map(text);
        guises.extend(values.map(|value| ImpersonatedAttribute::Extra { key: key.clone(), value }));
    }
    guises.extend(first(UID).map(ImpersonatedAttribute::Uid));
    if named || guises.is_empty() {
        return Ok(guises);
    }
    let asked: Vec<String> = guises.iter().map(ImpersonatedAttribute::to_string).collect();
    Err(format!("requested [{}] without impersonating a user", asked.join(" ")))
}

/// Decodes the key of an extra attribute; one with a broken escape stays as it is.
fn unescaped(key: &str) -> String {
    let mut escapes = key.split('%').skip(1);
    let whole = |it: &str| {
        it.as_bytes().get(..2).is_some_and(|pair| pair.iter().all(u8::is_ascii_hexdigit))
    };
    if escapes.all(whole) { decode(key, false) } else { key.to_owned() }
}

/// Splits the user name of a service account into namespace and name.
fn parse_service_account(user: &str) -> Option<(String, String)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    let usable = gantry_schema::names::dns1123_label(namespace).is_empty()
        && gantry_schema::names::dns1123_subdomain(name).is_empty();
    usable.then(|| (namespace.to_owned(), name.to_owned()))
}

impl Api {
    /// Returns the effective caller of a request.
    ///
    /// # Errors
    /// 403 for the first attribute the caller may not impersonate.
    pub(crate) fn impersonate(
        &self,
        caller: Caller,
        guises: Vec<ImpersonatedAttribute>,
    ) -> Result<Caller, StatusError> {
        if guises.is_empty() {
            return Ok(caller);
        }
        let mut other = Caller::default();
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let says_groups =
            guises.iter().any(|guise| matches!(guise, ImpersonatedAttribute::Group(_)));
        for guise in guises {
            self.check_authorized(&caller, &guise.required_permission())?;
            match guise {
                ImpersonatedAttribute::User(name) => other.name = name,
                ImpersonatedAttribute::ServiceAccount { namespace, name } => {
                    other.name = format!("system:serviceaccount:{namespace}:{name}");
                    if !says_groups {
                        other.groups.push("system:serviceaccounts".to_owned());
                        other.groups.push(format!("system:serviceaccounts:{namespace}"));
                    }
                }
                ImpersonatedAttribute::Group(group) => other.groups.push(group),
                ImpersonatedAttribute::Extra { key, value } => {
                    extra.entry(key).or_default().push(value);
                }
                ImpersonatedAttribute::Uid(uid) => other.uid = uid,
            }
        }
        other.extra = extra;
        let (known, unknown) = ("system:authenticated", "system:unauthenticated");
        let has = |group: &str| other.groups.iter().any(|it| it == group);
        let missing = match other.name == "system:anonymous" {
            true if has(unknown) => None,
            true => Some(unknown),
            false if has(known) || has(unknown) => None,
            false => Some(known),
        };
        other.groups.extend(missing.map(str::to_owned));
        tracing::debug!(by = caller.name, r#as = other.name, "a request impersonates a user");
        Ok(other)
    }
}

impl ImpersonatedAttribute {
    /// Returns the attributes to authorize for it.
    fn required_permission(&self) -> Attributes {
        let on = |group, resource| Attributes::resource("impersonate", group, resource);
        match self {
            Self::User(name) => on("", "users").with_name(name),
            Self::ServiceAccount { namespace, name } => {
                on("", "serviceaccounts").in_namespace(namespace).with_name(name)
            }
            Self::Group(name) => on("", "groups").with_name(name),
            Self::Extra { key, value } => {
                on(AUTHENTICATION_GROUP, "userextras").with_subresource(key).with_name(value)
            }
            Self::Uid(uid) => on(AUTHENTICATION_GROUP, "uids").with_name(uid),
        }
    }
}

/// Formats an object reference as Go does: kind, namespace, name, UID, version, revision, path.
impl fmt::Display for ImpersonatedAttribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = format!("{AUTHENTICATION_GROUP}/v1");
        match self {
            Self::User(name) => write!(f, "{{User  {name}    }}"),
            Self::ServiceAccount { namespace, name } => {
                write!(f, "{{ServiceAccount {namespace} {name}    }}")
            }
            Self::Group(name) => write!(f, "{{Group  {name}    }}"),
            Self::Extra { key, value } => write!(f, "{{UserExtra  {value}  {version}  {key}}}"),
            Self::Uid(uid) => write!(f, "{{UID  {uid}  {version}  }}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn impersonation_headers_are_parsed() {
        let list = headers(&[
            ("impersonate-extra-b%2fc", "1"),
            ("impersonate-group", "g"),
            ("impersonate-uid", "u"),
            ("impersonate-extra-a", "2"),
            ("impersonate-group", "h"),
            ("impersonate-user", "bob"),
            ("impersonate-extra-a", "3"),
        ]);
        let extra = |key: &str, value: &str| ImpersonatedAttribute::Extra {
            key: key.to_owned(),
            value: value.to_owned(),
        };
        let expected = vec![
            ImpersonatedAttribute::User("bob".to_owned()),
            ImpersonatedAttribute::Group("g".to_owned()),
            ImpersonatedAttribute::Group("h".to_owned()),
            extra("a", "2"),
            extra("a", "3"),
            extra("b/c", "1"),
            ImpersonatedAttribute::Uid("u".to_owned()),
        ];
        assert_eq!(parse_headers(&list), Ok(expected));
        assert_eq!(parse_headers(&HeaderMap::new()), Ok(Vec::new()));
    }

    #[test]
    fn service_accounts_are_distinguished_from_users() {
        let table = [
            ("system:serviceaccount:a:b", Some(("a", "b"))),
            ("system:serviceaccount:a:b.c", Some(("a", "b.c"))),
            ("system:serviceaccount:a", None),
            ("system:serviceaccount:a:", None),
            ("system:serviceaccount:A:b", None),
            ("system:serviceaccount:a:b:c", None),
            ("bob", None),
        ];
        for (user, expected) in table {
            let found = parse_service_account(user);
            let found = found.as_ref().map(|(namespace, name)| (&**namespace, &**name));
            assert_eq!(found, expected, "{user}");
        }
    }

    #[test]
    fn keys_are_unescaped_whole_or_not_at_all() {
        let table = [("a", "a"), ("a%2fb", "a/b"), ("a%2fb%zz", "a%2fb%zz"), ("a%", "a%")];
        for (key, expected) in table {
            assert_eq!(unescaped(key), expected, "{key}");
        }
    }

    #[test]
    fn impersonation_requires_a_user() {
        let list = headers(&[("impersonate-uid", "u"), ("impersonate-extra-a", "1")]);
        let words = "requested [{UserExtra  1  authentication.k8s.io/v1  a} \
                     {UID  u  authentication.k8s.io/v1  }] without impersonating a user";
        assert_eq!(parse_headers(&list), Err(words.to_owned()));
        let empty = headers(&[("impersonate-user", ""), ("impersonate-group", "g")]);
        let words = "requested [{Group  g    }] without impersonating a user";
        assert_eq!(parse_headers(&empty), Err(words.to_owned()));
    }
}
