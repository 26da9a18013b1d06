//! Paths of the API, built in one place from validated parts.
//!
//! Names, namespaces, groups and kinds come from objects that users write. Formatted into a path as
//! they are, `?watch=1` in the place of a name turns a read of one object into a watch that never
//! ends, and `../secrets/x` reads another kind. An [`ApiPath`] can only be made of segments that
//! were checked and of typed parameters that are percent-encoded, so neither can be written by
//! accident.

use std::borrow::Cow;
use std::fmt;

/// The path of a request to an API server, with its query.
///
/// ```
/// use gantry_reconcile::api_path::{ApiPath, Parameter};
///
/// let path = ApiPath::object("apps/v1", "default", "deployments", "web")?;
/// assert_eq!(path.as_str(), "/apis/apps/v1/namespaces/default/deployments/web");
/// let list = ApiPath::collection("v1", "", "pods")?.with(Parameter::Limit(500));
/// assert_eq!(list.as_str(), "/api/v1/pods?limit=500");
/// assert!(ApiPath::object("v1", "default", "configmaps", "../secrets/x").is_err());
/// # Ok::<(), gantry_reconcile::api_path::InvalidPath>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ApiPath {
    text: Cow<'static, str>,
    /// How much of the text is the path; the query follows.
    path: usize,
}

/// A part that cannot be in a path, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} is not a valid {part}: {why}")]
pub struct InvalidPath {
    /// Which part it was to be, for example `name of an object`.
    pub part: &'static str,
    /// What was given, cut to a readable length.
    pub value: String,
    /// What is wrong with it.
    pub why: &'static str,
}

/// A parameter of a query. Values are percent-encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameter<'a> {
    /// The manager that owns the fields that are written.
    FieldManager(&'a str),
    /// Fields of other managers are taken over.
    Force,
    /// The server checks the write and does not store it.
    DryRun,
    /// Objects per page; 0 for all in one.
    Limit(u32),
    /// The token that the page before this one ended with.
    Continue(&'a str),
    /// Labels of the objects that are wanted.
    LabelSelector(&'a str),
    /// Fields of the objects that are wanted.
    FieldSelector(&'a str),
    /// The answer is a stream of changes.
    Watch,
    /// The server reports its progress in a watch without changes.
    AllowWatchBookmarks,
    /// The revision that is read, or that a watch continues from.
    ResourceVersion(u64),
    /// How long a watch may last.
    TimeoutSeconds(u64),
    /// The container of a pod whose log is wanted.
    Container(&'a str),
    /// The log of the container's run before the last restart is wanted.
    Previous,
    /// How many lines of a log are wanted, the last ones.
    TailLines(u32),
}

/// The longest part of an [`InvalidPath`] that is shown.
const MAX_SHOWN_CHARS: usize = 64;
/// The longest name of an object. Kubernetes limits most names to 253 characters, and names of
/// roles by nothing but the size of a request.
const MAX_NAME_BYTES: usize = 1024;
/// The longest DNS subdomain, and the longest label of one.
const MAX_SUBDOMAIN_BYTES: usize = 253;
const MAX_LABEL_BYTES: usize = 63;

impl ApiPath {
    /// A path that is part of the program, and so holds no data: `/version`, or the collection of a
    /// kind that is known.
    #[must_use]
    pub const fn from_static(path: &'static str) -> Self {
        Self { path: path.len(), text: Cow::Borrowed(path) }
    }

    /// The discovery document of a group: its versions.
    ///
    /// # Errors
    /// The group is no DNS subdomain.
    pub fn group(group: &str) -> Result<Self, InvalidPath> {
        check_subdomain("API group", group)?;
        Ok(Self::without_parameters(format!("/apis/{group}")))
    }

    /// The discovery document of a group and version, as objects spell it: `v1`, `apps/v1`.
    ///
    /// # Errors
    /// The group is no DNS subdomain, or the version no DNS label.
    pub fn version(api_version: &str) -> Result<Self, InvalidPath> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        // A slash needs something before it: "/v1" is not the core group.
        if api_version.contains('/') {
            check_subdomain("API group", group)?;
        }
        Self::of_version(group, version)
    }

    /// The same for a group that is empty for the core group.
    pub(crate) fn of_version(group: &str, version: &str) -> Result<Self, InvalidPath> {
        check_label("API version", version)?;
        if group.is_empty() {
            return Ok(Self::without_parameters(format!("/api/{version}")));
        }
        check_subdomain("API group", group)?;
        Ok(Self::without_parameters(format!("/apis/{group}/{version}")))
    }

    /// All objects of a kind, or those in one namespace if that is not empty.
    ///
    /// # Errors
    /// A part is not what it should be.
    pub fn collection(
        api_version: &str,
        namespace: &str,
        plural: &str,
    ) -> Result<Self, InvalidPath> {
        Self::version(api_version)?.within(namespace, plural)
    }

    /// One object; the namespace is empty for an object of cluster scope.
    ///
    /// # Errors
    /// A part is not what it should be.
    pub fn object(
        api_version: &str,
        namespace: &str,
        plural: &str,
        name: &str,
    ) -> Result<Self, InvalidPath> {
        Self::collection(api_version, namespace, plural)?.item(name)
    }

    pub(crate) fn within(self, namespace: &str, plural: &str) -> Result<Self, InvalidPath> {
        check_label("plural name of a kind", plural)?;
        let mut text = self.text.into_owned();
        if !namespace.is_empty() {
            check_label("name of a namespace", namespace)?;
            text.push_str("/namespaces/");
            text.push_str(namespace);
        }
        text.push('/');
        text.push_str(plural);
        Ok(Self::without_parameters(text))
    }

    /// One object of this collection. A query of the collection is left out.
    ///
    /// # Errors
    /// No object can have this name.
    pub fn item(&self, name: &str) -> Result<Self, InvalidPath> {
        let why = match name {
            "" => Some("it is empty"),
            "." | ".." => Some("it is a step in a path"),
            _ if name.len() > MAX_NAME_BYTES => Some("it is longer than 1024 bytes"),
            _ if name.contains(['/', '%']) => Some("it contains '/' or '%'"),
            _ if name.contains(char::is_control) => Some("it contains a control character"),
            _ => None,
        };
        if let Some(why) = why {
            return Err(invalid("name of an object", name, why));
        }
        let mut text = self.without_query().to_owned();
        text.push('/');
        encode_into(name, b":@", &mut text);
        Ok(Self::without_parameters(text))
    }

    /// The collection that this object is in.
    #[must_use]
    pub fn collection_of_item(&self) -> Self {
        let path = self.without_query();
        Self::without_parameters(
            path.rsplit_once('/').map_or(path, |(collection, _)| collection).to_owned(),
        )
    }

    /// A subresource of this object, such as `status`. Its name is part of the program.
    #[must_use]
    pub fn subresource(&self, name: &'static str) -> Self {
        Self::without_parameters(format!("{}/{name}", self.without_query()))
    }

    /// The same path with one more parameter.
    #[must_use]
    pub fn with(self, parameter: Parameter<'_>) -> Self {
        let Self { text, path } = self;
        let mut text = text.into_owned();
        text.push(if text.len() == path { '?' } else { '&' });
        let number;
        let (name, value) = match parameter {
            Parameter::FieldManager(manager) => ("fieldManager", manager),
            Parameter::Force => ("force", "true"),
            Parameter::DryRun => ("dryRun", "All"),
            Parameter::Continue(token) => ("continue", token),
            Parameter::LabelSelector(selector) => ("labelSelector", selector),
            Parameter::FieldSelector(selector) => ("fieldSelector", selector),
            Parameter::Watch => ("watch", "true"),
            Parameter::AllowWatchBookmarks => ("allowWatchBookmarks", "true"),
            Parameter::Limit(limit) => {
                number = limit.to_string();
                ("limit", number.as_str())
            }
            Parameter::ResourceVersion(revision) => {
                number = revision.to_string();
                ("resourceVersion", number.as_str())
            }
            Parameter::TimeoutSeconds(seconds) => {
                number = seconds.to_string();
                ("timeoutSeconds", number.as_str())
            }
            Parameter::Container(name) => ("container", name),
            Parameter::Previous => ("previous", "true"),
            Parameter::TailLines(lines) => {
                number = lines.to_string();
                ("tailLines", number.as_str())
            }
        };
        text.push_str(name);
        text.push('=');
        encode_into(value, b"", &mut text);
        Self { text: Cow::Owned(text), path }
    }

    /// The path and its query, as they are sent.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The path alone.
    #[must_use]
    pub fn without_query(&self) -> &str {
        &self.text[..self.path]
    }

    fn without_parameters(text: String) -> Self {
        Self { path: text.len(), text: Cow::Owned(text) }
    }
}

impl fmt::Display for ApiPath {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.text)
    }
}

/// Percent-encodes everything but what is unreserved in a URL, and these bytes.
fn encode_into(text: &str, kept: &[u8], to: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                to.push(char::from(byte));
            }
            byte if kept.contains(&byte) => to.push(char::from(byte)),
            byte => {
                to.push('%');
                to.push(char::from(DIGITS[usize::from(byte >> 4)]));
                to.push(char::from(DIGITS[usize::from(byte & 15)]));
            }
        }
    }
}

fn invalid(part: &'static str, value: &str, why: &'static str) -> InvalidPath {
    let value = match value.char_indices().nth(MAX_SHOWN_CHARS) {
        Some((end, _)) => format!("{}...", &value[..end]),
        None => value.to_owned(),
    };
    InvalidPath { part, value, why }
}

const LABEL_RULE: &str = "use 1 to 63 lower-case letters, digits and '-', with a letter or digit \
                          at both ends";
const SUBDOMAIN_RULE: &str = "use a DNS subdomain: lower-case letters, digits, '-' and '.', at \
                              most 253 characters";

fn check_label(part: &'static str, text: &str) -> Result<(), InvalidPath> {
    if is_label(text) && text.len() <= MAX_LABEL_BYTES {
        return Ok(());
    }
    Err(invalid(part, text, LABEL_RULE))
}

fn check_subdomain(part: &'static str, text: &str) -> Result<(), InvalidPath> {
    if text.len() <= MAX_SUBDOMAIN_BYTES && text.split('.').all(is_label) {
        return Ok(());
    }
    Err(invalid(part, text, SUBDOMAIN_RULE))
}

fn is_label(text: &str) -> bool {
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    ends(bytes.first())
        && ends(bytes.last())
        && bytes.iter().all(|it| matches!(it, b'a'..=b'z' | b'0'..=b'9' | b'-'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths_are_those_of_kubernetes() {
        let text = |path: Result<ApiPath, InvalidPath>| path.unwrap().to_string();
        assert_eq!(text(ApiPath::version("v1")), "/api/v1");
        assert_eq!(text(ApiPath::version("ray.io/v1alpha1")), "/apis/ray.io/v1alpha1");
        assert_eq!(text(ApiPath::group("apps")), "/apis/apps");
        assert_eq!(text(ApiPath::collection("v1", "", "nodes")), "/api/v1/nodes");
        let object = ApiPath::object("batch/v1", "a", "jobs", "j.1").unwrap();
        assert_eq!(object.as_str(), "/apis/batch/v1/namespaces/a/jobs/j.1");
        assert_eq!(object.subresource("status").as_str(), format!("{object}/status"));
        let roles = ApiPath::from_static("/apis/rbac.authorization.k8s.io/v1/clusterroles");
        let role = roles.item("system:a b").unwrap();
        assert_eq!(role.as_str(), format!("{roles}/system:a%20b"));
        let query = object
            .with(Parameter::FieldManager("me/1"))
            .with(Parameter::Force)
            .with(Parameter::Limit(5));
        assert_eq!(
            query.as_str(),
            "/apis/batch/v1/namespaces/a/jobs/j.1?fieldManager=me%2F1&force=true&limit=5"
        );
        assert_eq!(query.without_query(), "/apis/batch/v1/namespaces/a/jobs/j.1");
        assert_eq!(query.subresource("scale").as_str(), format!("{}/scale", query.without_query()));
    }

    #[test]
    fn invalid_path_segments_are_refused() {
        let long = "a".repeat(64);
        let versions = [
            "", "/v1", "apps/", "../v1", "a/b/c", "a/v1?x=y", "V1", "v1?", "v1#", "a..b/v1", &long,
        ];
        for version in versions {
            assert!(ApiPath::version(version).is_err(), "{version}");
        }
        let names = ["", ".", "..", "a/b", "%2e", "..%2fsecrets", "a\nb", "\u{7f}"];
        for name in names {
            assert!(ApiPath::object("v1", "a", "configmaps", name).is_err(), "{name:?}");
        }
        for (namespace, plural) in [("A", "pods"), ("a/b", "pods"), ("a", "pods/status"), ("a", "")]
        {
            assert!(ApiPath::collection("v1", namespace, plural).is_err(), "{namespace} {plural}");
        }
        let error = ApiPath::object("v1", "a", "configmaps", "x/y").unwrap_err();
        let said = r#""x/y" is not a valid name of an object: it contains '/' or '%'"#;
        assert_eq!(error.to_string(), said);
    }

    #[test]
    fn special_characters_are_encoded() {
        for (name, encoded) in [
            ("?watch=1", "%3Fwatch%3D1"),
            ("a#b", "a%23b"),
            ("?limit=5", "%3Flimit%3D5"),
            ("ü", "%C3%BC"),
        ] {
            let path = ApiPath::object("v1", "a", "configmaps", name).unwrap();
            assert_eq!(path.as_str(), format!("/api/v1/namespaces/a/configmaps/{encoded}"));
        }
    }

    proptest! {
        /// For any input, the path has the segments it was made of and no query.
        #[test]
        fn nothing_escapes_its_segment(version in ".{0,12}", namespace in ".{0,8}", plural in ".{0,8}", name in ".{0,12}") {
            if let Ok(path) = ApiPath::object(&version, &namespace, &plural, &name) {
                let text = path.as_str();
                let segments: Vec<&str> = text.split('/').collect();
                let groups = if version.contains('/') { 2 } else { 1 };
                let namespaces = if namespace.is_empty() { 0 } else { 2 };
                prop_assert_eq!(segments.len(), 2 + groups + namespaces + 2, "{}", text);
                prop_assert!(!text.contains(['?', '#', ' ', '\\']), "{}", text);
                prop_assert!(segments[1..].iter().all(|it| !matches!(*it, "" | "." | "..")), "{}", text);
                prop_assert!(text.bytes().all(|it| it.is_ascii_graphic()), "{}", text);
            }
        }

        /// For any value of a parameter, the query has exactly that one value.
        #[test]
        fn a_parameter_stays_one(value in ".{0,20}") {
            let path = ApiPath::from_static("/api/v1/pods").with(Parameter::Continue(&value));
            let path = path.with(Parameter::Limit(1));
            let query = path.as_str().split_once('?').map_or("", |it| it.1);
            prop_assert_eq!(query.split('&').count(), 2, "{}", path);
            prop_assert!(!query.contains(['#', '?', '/', ' ']), "{}", path);
        }
    }
}
