//! Compiles the schema of a definition to the arena.

mod object_meta;

use std::collections::BTreeMap;
use std::mem::discriminant;

use serde_json::Value;

use crate::checks::{Bound, Checks, Clause, Kind, Rule};
use crate::format::Format;
use crate::pattern::{PatternCache, PatternError};
use crate::props::{Additional, Items, Props};
use crate::structural::valid_field_path;
use crate::tree::{Builder, Field, ListType, MergeStrategy, Node, NodeId, Scalar, Schema, Shape};

pub use object_meta::object_meta;

/// Why a schema cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// It is no object.
    #[error("the schema must be an object")]
    NotAnObject,
    /// A pattern is malformed or too large.
    #[error("pattern {pattern:?} cannot be used")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        source: PatternError,
    },
}

/// Compiles `openAPIV3Schema` of a version of a definition.
///
/// At the root, `apiVersion`, `kind` and `metadata` are always known. The schema is expected to be
/// structural; one that is not compiles to something that keeps and accepts more than it says.
///
/// # Errors
/// If the schema is no object, or a pattern in it cannot be used.
pub fn compile(openapi_v3_schema: &Value) -> Result<Schema, CompileError> {
    let props = Props::of(openapi_v3_schema).ok_or(CompileError::NotAnObject)?;
    compile_node(props, true)
}

/// Compiles the schema of a part; with `is_object` it is a whole object.
pub(crate) fn compile_node(props: Props<'_>, is_object: bool) -> Result<Schema, CompileError> {
    let mut compiler =
        Compiler { builder: Builder::new(), meta: None, patterns: PatternCache::default() };
    let root = compiler.node(props, is_object, false)?;
    Ok(compiler.builder.build(root.id))
}

struct Compiler {
    builder: Builder,
    /// The nodes of unrestricted object metadata.
    meta: Option<NodeId>,
    patterns: PatternCache,
}

/// A node, and whether it or one below it has rules.
struct Compiled {
    id: NodeId,
    has_rules: bool,
}

impl Compiler {
    /// `preserves`: entries of the value are kept although nothing declares them, because the list
    /// the value stands in says so.
    fn node(
        &mut self,
        props: Props<'_>,
        is_object: bool,
        preserves: bool,
    ) -> Result<Compiled, CompileError> {
        let mut checks = checks(props, &mut self.patterns)?;
        let preserves = preserves || props.preserves_unknown_fields();
        let mut has_rules = !checks.rules.is_empty();
        let is_resource = is_object || props.is_embedded();
        let shape = match checks.kind {
            Some(Kind::IntegerOrString) => Shape::Scalar(Scalar::IntOrString),
            Some(Kind::String) => Shape::Scalar(Scalar::String),
            Some(Kind::Integer) => Shape::Scalar(Scalar::Integer),
            Some(Kind::Number) => Shape::Scalar(Scalar::Number),
            Some(Kind::Boolean) => Shape::Scalar(Scalar::Boolean),
            Some(Kind::Array) => self.list(props, preserves, &mut has_rules)?,
            Some(Kind::Object) => {
                self.object(props, is_resource, preserves, &mut checks, &mut has_rules)?
            }
            None if is_resource || props.is_set("properties") => {
                self.object(props, is_resource, preserves, &mut checks, &mut has_rules)?
            }
            None if matches!(props.items(), Items::Schema(_)) => {
                self.list(props, preserves, &mut has_rules)?
            }
            None => Shape::Any,
        };
        checks.has_rules = has_rules;
        let default = props.default_value().cloned();
        let id = self.builder.add(Node { shape, nullable: checks.nullable, default });
        self.builder.check(id, checks);
        Ok(Compiled { id, has_rules })
    }

    fn list(
        &mut self,
        props: Props<'_>,
        preserves: bool,
        has_rules: &mut bool,
    ) -> Result<Shape, CompileError> {
        let items = match props.item() {
            Some(item) => {
                let item = self.node(item, false, preserves)?;
                *has_rules |= item.has_rules;
                item.id
            }
            None => self.untyped(),
        };
        let keys = props.map_keys();
        let list_type = match props.list_type() {
            Some("set") => ListType::Set,
            Some("map") => ListType::Map(keys.into_iter().map(Into::into).collect()),
            _ => ListType::Atomic,
        };
        Ok(Shape::List { items, list_type })
    }

    fn object(
        &mut self,
        props: Props<'_>,
        is_resource: bool,
        preserves: bool,
        checks: &mut Checks,
        has_rules: &mut bool,
    ) -> Result<Shape, CompileError> {
        let atomic = props.map_type() == Some("atomic");
        let properties = props.properties();
        let additional = match props.additional() {
            Additional::Absent => None,
            Additional::Allowed(allowed) => {
                checks.deny_additional = !allowed;
                Some(self.untyped())
            }
            Additional::Schema(schema) => {
                let values = self.node(schema, false, false)?;
                *has_rules |= values.has_rules;
                Some(values.id)
            }
        };
        if let (Some(values), true, false) = (additional, properties.is_empty(), is_resource) {
            return Ok(Shape::Map { values, atomic });
        }
        let mut fields = BTreeMap::new();
        for (name, schema) in properties {
            let field = if is_resource && name == "metadata" {
                self.metadata(schema)?
            } else {
                self.node(schema, false, false)?
            };
            *has_rules |= field.has_rules;
            fields.insert(name.into(), plain(field.id));
        }
        if is_resource {
            for name in ["apiVersion", "kind"] {
                if !fields.contains_key(name) {
                    let text = self.builder.add(Node { shape: TEXT, ..Node::default() });
                    fields.insert(name.into(), plain(text));
                }
            }
            if !fields.contains_key("metadata") {
                fields.insert("metadata".into(), plain(self.free_metadata()));
            }
        }
        checks.additional = additional;
        let preserve_unknown = preserves || additional.is_some();
        Ok(Shape::Struct { fields, atomic, preserve_unknown, embedded: props.is_embedded() })
    }

    /// A value of which nothing is known but that it is kept.
    fn untyped(&mut self) -> NodeId {
        self.builder.add(Node { shape: Shape::Scalar(Scalar::Untyped), ..Node::default() })
    }

    fn free_metadata(&mut self) -> NodeId {
        *self.meta.get_or_insert_with(|| object_meta(&mut self.builder))
    }

    /// Metadata that a schema restricts: its fields are those of all metadata, with the checks the
    /// schema has for them.
    fn metadata(&mut self, props: Props<'_>) -> Result<Compiled, CompileError> {
        let mut fields = object_meta::fields(&mut self.builder);
        let mut checks = checks(props, &mut self.patterns)?;
        let mut has_rules = !checks.rules.is_empty();
        for (name, schema) in props.properties() {
            let Some(field) = fields.get_mut(name) else { continue };
            let restricted = self.node(schema, false, false)?;
            has_rules |= restricted.has_rules;
            field.node = self.with_known_shape(restricted.id, field.node, schema)?;
        }
        checks.has_rules = has_rules;
        let shape =
            Shape::Struct { fields, atomic: false, preserve_unknown: false, embedded: false };
        let default = props.default_value().cloned();
        let id = self.builder.add(Node { shape, nullable: checks.nullable, default });
        self.builder.check(id, checks);
        Ok(Compiled { id, has_rules })
    }

    /// A field of metadata keeps its parts even where a schema says less about them.
    fn with_known_shape(
        &mut self,
        restricted: NodeId,
        known: NodeId,
        schema: Props<'_>,
    ) -> Result<NodeId, CompileError> {
        let (restricted_node, known_node) =
            (self.builder.node(restricted), self.builder.node(known));
        if discriminant(&restricted_node.shape) == discriminant(&known_node.shape) {
            return Ok(restricted);
        }
        let node = Node { shape: known_node.shape.clone(), ..restricted_node.clone() };
        let id = self.builder.add(node);
        let checks = checks(schema, &mut self.patterns)?;
        self.builder.check(id, checks);
        Ok(id)
    }
}

const TEXT: Shape = Shape::Scalar(Scalar::String);

fn plain(node: NodeId) -> Field {
    Field { node, merge: MergeStrategy::default() }
}

/// The checks of a node or a clause, without those of its parts.
fn checks(props: Props<'_>, patterns: &mut PatternCache) -> Result<Checks, CompileError> {
    let bound = |name, exclusive| {
        props.number(name).map(|value| Bound { value, exclusive: props.flag(exclusive) })
    };
    let pattern = match props.text("pattern") {
        "" => None,
        text => Some(
            patterns
                .compile(text)
                .map_err(|source| CompileError::Pattern { pattern: text.to_owned(), source })?
                .clone(),
        ),
    };
    let kind = match props.is_int_or_string() {
        true => Some(Kind::IntegerOrString),
        false => Kind::from_name(props.text("type")),
    };
    Ok(Checks {
        kind,
        nullable: props.flag("nullable"),
        format: Format::from_name(props.text("format")),
        minimum: bound("minimum", "exclusiveMinimum"),
        maximum: bound("maximum", "exclusiveMaximum"),
        multiple_of: props.number("multipleOf"),
        min_length: props.integer("minLength"),
        max_length: props.integer("maxLength"),
        pattern,
        min_items: props.integer("minItems"),
        max_items: props.integer("maxItems"),
        min_properties: props.integer("minProperties"),
        max_properties: props.integer("maxProperties"),
        required: props.texts("required").into_iter().map(Into::into).collect(),
        enum_values: props.list("enum").to_vec(),
        deny_additional: false,
        additional: None,
        all_of: clauses(props, "allOf", patterns)?,
        any_of: clauses(props, "anyOf", patterns)?,
        one_of: clauses(props, "oneOf", patterns)?,
        not: props.schema("not").map(|it| clause(it, patterns)).transpose()?.map(Box::new),
        rules: props.schemas("x-kubernetes-validations").into_iter().map(rule(props)).collect(),
        has_rules: false,
    })
}

fn clauses(
    props: Props<'_>,
    name: &str,
    patterns: &mut PatternCache,
) -> Result<Vec<Clause>, CompileError> {
    props.schemas(name).into_iter().map(|it| clause(it, patterns)).collect()
}

fn clause(props: Props<'_>, patterns: &mut PatternCache) -> Result<Clause, CompileError> {
    let fields = props
        .properties()
        .into_iter()
        .map(|(name, schema)| Ok((name.into(), clause(schema, patterns)?)))
        .collect::<Result<_, CompileError>>()?;
    let items = props.item().map(|it| clause(it, patterns)).transpose()?.map(Box::new);
    Ok(Clause { checks: checks(props, patterns)?, fields, items })
}

/// Reads an entry of `x-kubernetes-validations` of a schema.
fn rule(schema: Props<'_>) -> impl Fn(Props<'_>) -> Rule {
    move |props| {
        let text =
            |name| props.optional_text(name).filter(|it| !it.is_empty()).map(ToOwned::to_owned);
        let field_path = text("fieldPath");
        let field = field_path
            .as_ref()
            .and_then(|path| valid_field_path(path, schema, true).ok())
            .map(|found| found.text);
        Rule {
            rule: props.text("rule").to_owned(),
            message: text("message"),
            message_expression: text("messageExpression"),
            reason: text("reason"),
            field_path,
            field,
            optional_old_self: props.optional_flag("optionalOldSelf"),
        }
    }
}
