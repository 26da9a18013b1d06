//! A single rule of a role: what it allows, and how it is written.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::attributes::{Attributes, AttributesTarget};

/// The wildcard for verbs, groups, resources and paths.
const WILDCARD: &str = "*";

/// What a role allows. A rule is about resources or about paths; one that names both applies to
/// either.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rule {
    /// What may be done; `*` for everything.
    #[serde(deserialize_with = "texts")]
    pub verbs: Vec<String>,
    /// In which groups; `*` for all.
    #[serde(deserialize_with = "texts", skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Vec<String>,
    /// To which resources: `pods`, `pods/log`, `*/scale`, or `*` for all.
    #[serde(deserialize_with = "texts", skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// To which objects; none means all.
    #[serde(deserialize_with = "texts", skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    /// To which paths; a trailing `*` stands for any rest.
    #[serde(rename = "nonResourceURLs")]
    #[serde(deserialize_with = "texts", skip_serializing_if = "Vec::is_empty")]
    pub non_resource_urls: Vec<String>,
}

/// A list that may be written as null.
fn texts<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// The rules of a role.
///
/// Rules are validated when they are written. A rule that nevertheless cannot be read allows
/// nothing.
#[must_use]
pub fn rules(role: &Value) -> Vec<Rule> {
    let rules = role["rules"].as_array().into_iter().flatten();
    rules.map(|rule| Rule::deserialize(rule).unwrap_or_default()).collect()
}

impl Rule {
    /// Whether the rule allows this.
    #[must_use]
    pub fn allows(&self, asked: &Attributes) -> bool {
        if !has_or_wildcard(&self.verbs, &asked.verb) {
            return false;
        }
        match &asked.target {
            AttributesTarget::Resource { group, resource, subresource, name, namespace: _ } => {
                has_or_wildcard(&self.api_groups, group)
                    && self.resources.iter().any(|it| matches_resource(it, resource, subresource))
                    && (self.resource_names.is_empty() || self.resource_names.contains(name))
            }
            AttributesTarget::NonResourcePath(path) => {
                self.non_resource_urls.iter().any(|it| matches_path(it, path))
            }
        }
    }

    /// Returns the rule as JSON.
    ///
    /// # Panics
    /// Never: lists of strings can always be serialized.
    #[must_use]
    pub fn to_value(&self) -> Value {
        serde_json::to_value(self).expect("lists of texts can be written")
    }
}

/// Whether a list contains a string or the wildcard.
pub(crate) fn has_or_wildcard(list: &[String], text: &str) -> bool {
    list.iter().any(|it| it == WILDCARD || it == text)
}

/// Whether an entry of `resources` matches this resource.
fn matches_resource(word: &str, resource: &str, subresource: &str) -> bool {
    if word == WILDCARD {
        return true;
    }
    if subresource.is_empty() {
        return word == resource;
    }
    match word.split_once('/') {
        // A resource in a request cannot contain a slash, but one in an access review can.
        Some((WILDCARD, part)) if part == subresource => true,
        _ => word.strip_suffix(subresource).and_then(|it| it.strip_suffix('/')) == Some(resource),
    }
}

/// Whether an entry of `nonResourceURLs` matches this path.
pub(crate) fn matches_path(word: &str, path: &str) -> bool {
    word == path || (word.ends_with('*') && path.starts_with(word.trim_end_matches('*')))
}

/// Formats the rule for error messages: `{APIGroups:[""], Resources:["pods"], Verbs:["get"]}`.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ];
        let said: Vec<String> = parts
            .iter()
            .filter(|(_, list)| !list.is_empty())
            .map(|(name, list)| format!("{name}:{}", quoted(list)))
            .collect();
        write!(f, "{{{}}}", said.join(", "))
    }
}

/// Formats a list of strings for messages: `["a" "b"]`.
pub(crate) fn quoted(list: &[String]) -> String {
    let list: Vec<String> = list.iter().map(|text| gantry_schema::quote(text)).collect();
    format!("[{}]", list.join(" "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rule(value: Value) -> Rule {
        Rule::deserialize(value).unwrap()
    }

    #[test]
    fn a_rule_allows_what_it_names() {
        let on = Attributes::resource;
        let pods = json!({ "verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"] });
        let named = json!({
            "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "resourceNames": ["a", "b"],
        });
        let parts = json!({
            "verbs": ["update"], "apiGroups": ["apps"], "resources": ["*/scale", "pods/log"],
        });
        let paths = json!({
            "verbs": ["get"], "nonResourceURLs": ["/version", "/api/*", "/x**"],
            "apiGroups": [""], "resources": ["nodes"],
        });
        let none = json!({ "verbs": null, "apiGroups": ["*"], "resources": ["*"] });
        let table = [
            (&pods, on("get", "", "pods"), true),
            (&pods, on("get", "", "pods").in_namespace("x").with_name("y"), true),
            (&pods, on("create", "", "pods"), false),
            (&pods, on("get", "apps", "pods"), false),
            (&pods, on("get", "", "pods").with_subresource("log"), false),
            (&pods, Attributes::path("get", "pods"), false),
            (&named, on("get", "x", "y").with_name("b"), true),
            (&named, on("get", "x", "y").with_subresource("z").with_name("a"), true),
            (&named, on("get", "x", "y").with_name("c"), false),
            (&named, on("list", "x", "y"), false),
            (&named, Attributes::path("get", "/"), false),
            (&parts, on("update", "apps", "sets").with_subresource("scale"), true),
            (&parts, on("update", "apps", "pods").with_subresource("log"), true),
            (&parts, on("update", "apps", "pods").with_subresource("logs"), false),
            (&parts, on("update", "apps", "sets"), false),
            (&parts, on("update", "apps", "pods/log"), true),
            (&parts, on("update", "apps", "x/scale"), false),
            (&parts, on("update", "apps", "x").with_subresource("y/scale"), false),
            (&parts, on("update", "apps", "").with_subresource("scale"), true),
            (&paths, Attributes::path("get", "/version"), true),
            (&paths, Attributes::path("get", "/version/"), false),
            (&paths, Attributes::path("get", "/api/"), true),
            (&paths, Attributes::path("get", "/api/v1/pods"), true),
            (&paths, Attributes::path("get", "/api"), false),
            (&paths, Attributes::path("get", "/xyz"), true),
            (&paths, Attributes::path("post", "/version"), false),
            (&paths, on("get", "", "nodes"), true),
            (&none, on("get", "", "nodes"), false),
        ];
        for (value, asked, expected) in table {
            assert_eq!(rule(value.clone()).allows(&asked), expected, "{value} {asked:?}");
        }
    }

    #[test]
    fn a_rule_is_shown_without_what_it_leaves_out() {
        let shown = rule(json!({
            "verbs": ["get", "li\"st"], "apiGroups": [""], "resources": ["pods"],
            "resourceNames": ["n"],
        }));
        let expected =
            r#"{APIGroups:[""], Resources:["pods"], ResourceNames:["n"], Verbs:["get" "li\"st"]}"#;
        assert_eq!(shown.to_string(), expected);
        let paths = rule(json!({ "nonResourceURLs": ["/a"], "verbs": ["get"] }));
        assert_eq!(paths.to_string(), r#"{NonResourceURLs:["/a"], Verbs:["get"]}"#);
        let written = json!({ "verbs": ["get"], "nonResourceURLs": ["/a"] });
        assert_eq!(paths.to_value(), written);
    }
}
