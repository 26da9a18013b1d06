//! Builds the paths of a custom kind and their operations.

use serde_json::{Map, Value, json};

use crate::custom::{CustomKind, SchemaNames};
use crate::shared_definitions::{COMMON, DELETE_OPTIONS, PATCH, SCALE, SCHEMAS, STATUS};

/// Adds the paths of `kind`.
pub(crate) fn add(paths: &mut Map<String, Value>, names: &SchemaNames<'_>, kind: &CustomKind<'_>) {
    let describe = PathDescriber { names, kind };
    let version = format!("/apis/{}/{}", names.group, names.version);
    let plural = kind.plural;
    let collection = if kind.namespaced {
        paths.insert(format!("{version}/{plural}"), describe.all_namespaces());
        format!("{version}/namespaces/{{namespace}}/{plural}")
    } else {
        format!("{version}/{plural}")
    };
    let item = format!("{collection}/{{name}}");
    if kind.has_status {
        paths.insert(format!("{item}/status"), describe.path(Target::Status));
    }
    if kind.has_scale {
        paths.insert(format!("{item}/scale"), describe.path(Target::Scale));
    }
    paths.insert(item, describe.path(Target::Item));
    paths.insert(collection, describe.path(Target::Collection));
}

/// The target of a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    Collection,
    Item,
    Status,
    Scale,
}

impl Target {
    fn actions(self) -> &'static [Action] {
        match self {
            Self::Collection => &[Action::List, Action::Create, Action::DeleteCollection],
            Self::Item => &[Action::Get, Action::Replace, Action::Delete, Action::Patch],
            Self::Status | Self::Scale => &[Action::Get, Action::Replace, Action::Patch],
        }
    }

    /// Returns the subresource's name in words.
    fn subresource(self) -> Option<&'static str> {
        match self {
            Self::Collection | Self::Item => None,
            Self::Status => Some("status"),
            Self::Scale => Some("scale"),
        }
    }

    /// Returns the subresource's name in operation ids.
    fn suffix(self) -> &'static str {
        match self {
            Self::Collection | Self::Item => "",
            Self::Status => "Status",
            Self::Scale => "Scale",
        }
    }
}

/// An operation at a path.
#[derive(Clone, Copy)]
enum Action {
    List,
    Create,
    DeleteCollection,
    Get,
    Replace,
    Delete,
    Patch,
}

impl Action {
    fn method(self) -> &'static str {
        match self {
            Self::List | Self::Get => "get",
            Self::Create => "post",
            Self::DeleteCollection | Self::Delete => "delete",
            Self::Replace => "put",
            Self::Patch => "patch",
        }
    }

    /// The value of `x-kubernetes-action`.
    fn name(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Create => "post",
            Self::DeleteCollection => "deletecollection",
            Self::Get => "get",
            Self::Replace => "put",
            Self::Delete => "delete",
            Self::Patch => "patch",
        }
    }

    /// Returns the prefix of operation ids, and what follows the group version in them.
    fn verb(self) -> (&'static str, &'static str) {
        match self {
            Self::List => ("list", ""),
            Self::Create => ("create", ""),
            Self::DeleteCollection => ("delete", "Collection"),
            Self::Get => ("read", ""),
            Self::Replace => ("replace", ""),
            Self::Delete => ("delete", ""),
            Self::Patch => ("patch", ""),
        }
    }

    /// Returns the query parameters, sorted by name, without those of the path.
    fn options(self) -> &'static [Value] {
        let common = &*COMMON;
        match self {
            Self::List | Self::DeleteCollection => &common.list,
            Self::Create => &common.create,
            Self::Get => &common.get,
            Self::Replace => &common.replace,
            Self::Delete => &common.delete,
            Self::Patch => &common.patch,
        }
    }

    /// Successful answers, all of the same schema.
    fn responses(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::List | Self::DeleteCollection | Self::Get | Self::Patch => &[("200", "OK")],
            Self::Create => &[("200", "OK"), ("201", "Created"), ("202", "Accepted")],
            Self::Replace => &[("200", "OK"), ("201", "Created")],
            Self::Delete => &[("200", "OK"), ("202", "Accepted")],
        }
    }
}

/// The media types of objects, sent and received.
const OBJECT_MEDIA_TYPES: &[&str] = &["application/json", "application/yaml"];

/// The media types of patches. A custom kind has no strategic merge: clients read that here.
const PATCH_MEDIA_TYPES: &[&str] = &[
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
];

struct PathDescriber<'a> {
    names: &'a SchemaNames<'a>,
    kind: &'a CustomKind<'a>,
}

impl PathDescriber<'_> {
    /// Adds the list over all namespaces: with one operation only, its options are the path's.
    fn all_namespaces(&self) -> Value {
        let mut parameters = Action::List.options().to_vec();
        parameters.push(COMMON.pretty.clone());
        parameters.sort_by(|left, right| left["name"].as_str().cmp(&right["name"].as_str()));
        let id = self.operation_id(Action::List, &format!("{}ForAllNamespaces", self.kind.kind));
        let operation = self.operation(Action::List, Target::Collection, &id);
        json!({ "get": operation, "parameters": parameters })
    }

    fn path(&self, target: Target) -> Value {
        let namespaced = if self.kind.namespaced { "Namespaced" } else { "" };
        let subject = format!("{namespaced}{}{}", self.kind.kind, target.suffix());
        let mut path = Map::new();
        for &action in target.actions() {
            let id = self.operation_id(action, &subject);
            let mut operation = self.operation(action, target, &id);
            operation["parameters"] = action.options().to_vec().into();
            path.insert(action.method().to_owned(), operation);
        }
        path.insert("parameters".to_owned(), self.path_parameters(target).into());
        Value::Object(path)
    }

    /// The parameters that all operations of a path have, sorted by name.
    fn path_parameters(&self, target: Target) -> Vec<Value> {
        let mut parameters = Vec::new();
        if target != Target::Collection {
            parameters.push(json!({
                "name": "name",
                "in": "path",
                "description": format!("name of the {}", self.kind.kind),
                "required": true,
                "schema": { "type": "string", "uniqueItems": true },
            }));
        }
        if self.kind.namespaced {
            parameters.push(COMMON.namespace.clone());
        }
        parameters.push(COMMON.pretty.clone());
        parameters
    }

    /// Returns an operation without its parameters.
    fn operation(&self, action: Action, target: Target, id: &str) -> Value {
        let tag = format!(
            "{}_{}",
            identifier(short_group(self.names.group), false),
            identifier(self.names.version, false)
        );
        let mut responses = Map::new();
        let content = content(OBJECT_MEDIA_TYPES, self.response_schema(action, target));
        for (code, text) in action.responses() {
            let answer = json!({ "description": text, "content": content });
            responses.insert((*code).to_owned(), answer);
        }
        responses.insert("401".to_owned(), json!({ "description": "Unauthorized" }));
        let mut operation = json!({
            "tags": [tag],
            "description": self.description(action, target),
            "operationId": id,
            "responses": responses,
            "x-kubernetes-action": action.name(),
            "x-kubernetes-group-version-kind": self.names.qualified(self.kind.kind),
        });
        if let Some(body) = self.body(action, target) {
            operation["requestBody"] = body;
        }
        operation
    }

    /// Returns the name of the response's schema.
    fn response_schema(&self, action: Action, target: Target) -> &str {
        match action {
            Action::List => &self.names.list_schema,
            Action::DeleteCollection | Action::Delete => STATUS,
            Action::Create | Action::Get | Action::Replace | Action::Patch => self.object(target),
        }
    }

    fn body(&self, action: Action, target: Target) -> Option<Value> {
        match action {
            Action::List | Action::Get | Action::DeleteCollection => None,
            Action::Delete => {
                Some(json!({ "content": content(OBJECT_MEDIA_TYPES, DELETE_OPTIONS) }))
            }
            Action::Patch => {
                Some(json!({ "content": content(PATCH_MEDIA_TYPES, PATCH), "required": true }))
            }
            Action::Create | Action::Replace => Some(json!({
                "content": content(OBJECT_MEDIA_TYPES, self.object(target)), "required": true,
            })),
        }
    }

    /// The name of the schema of the object at a path.
    fn object(&self, target: Target) -> &str {
        match target {
            Target::Collection | Target::Item | Target::Status => &self.names.schema,
            Target::Scale => SCALE,
        }
    }

    fn description(&self, action: Action, target: Target) -> String {
        let kind = self.kind.kind;
        let part = target.subresource().map(|name| format!(" {name} of")).unwrap_or_default();
        match action {
            Action::List => format!("list objects of kind {kind}"),
            Action::Create => format!("create{}{kind}", article(kind)),
            Action::DeleteCollection => format!("delete collection of {kind}"),
            Action::Get => format!("read{part} the specified {kind}"),
            Action::Replace => format!("replace{part} the specified {kind}"),
            Action::Delete => format!("delete{}{kind}", article(kind)),
            Action::Patch => format!("partially update{part} the specified {kind}"),
        }
    }

    fn operation_id(&self, action: Action, subject: &str) -> String {
        let (verb, part) = action.verb();
        let group = identifier(short_group(self.names.group), true);
        let version = identifier(self.names.version, true);
        format!("{verb}{group}{version}{}", identifier(&format!("{part}{subject}"), true))
    }
}

fn content(types: &[&str], schema: &str) -> Value {
    let schema = json!({ "schema": { "$ref": format!("{SCHEMAS}{schema}") } });
    Value::Object(types.iter().map(|&name| (name.to_owned(), schema.clone())).collect())
}

/// Formats a group as operation ids name it.
fn short_group(group: &str) -> &str {
    group.strip_suffix(".k8s.io").unwrap_or(group)
}

/// Converts `text` to camel case: a character that cannot be part of an identifier starts a new
/// word.
fn identifier(text: &str, mut capital: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for (place, letter) in text.char_indices() {
        if letter.is_alphabetic() || letter == '_' || (place != 0 && letter.is_ascii_digit()) {
            out.push(if capital { letter.to_ascii_uppercase() } else { letter });
            capital = false;
        } else {
            capital = true;
        }
    }
    out
}

/// The article of `noun` with the blanks around it. A plural has none.
fn article(noun: &str) -> &'static str {
    if noun.ends_with('s') && !noun.ends_with("ss") {
        " "
    } else if noun.starts_with(['a', 'e', 'i', 'o', 'u', 'A', 'E', 'I', 'O', 'U']) {
        " an "
    } else {
        " a "
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_in_camel_case() {
        let table = [
            ("rich.openapi.example.com", true, "RichOpenapiExampleCom"),
            ("rich.openapi.example.com", false, "richOpenapiExampleCom"),
            ("v1.x-y.k8s-ext", true, "V1XYK8sExt"),
            ("9lives.example.com", false, "LivesExampleCom"),
            ("v1beta1", true, "V1beta1"),
            ("snake_case", true, "Snake_case"),
            ("", true, ""),
        ];
        for (text, capital, expected) in table {
            assert_eq!(identifier(text, capital), expected, "{text}");
        }
    }

    #[test]
    fn articles_follow_the_noun() {
        let table = [
            ("Apple", " an "),
            ("Unit", " an "),
            ("Pear", " a "),
            ("HTTPHour", " a "),
            ("Class", " a "),
            ("Access", " an "),
            ("Settings", " "),
        ];
        for (noun, expected) in table {
            assert_eq!(article(noun), expected, "{noun}");
        }
    }

    #[test]
    fn groups_of_kubernetes_are_shortened() {
        assert_eq!(short_group("gateway.networking.k8s.io"), "gateway.networking");
        assert_eq!(short_group("k8s.io.example.com"), "k8s.io.example.com");
    }
}
