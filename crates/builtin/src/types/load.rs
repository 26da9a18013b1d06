//! Loads the table from the generated file. The file is ours, so an error in it is a bug of this
//! crate: it panics, and the tests load all of it.

use std::collections::HashMap;
use std::sync::OnceLock;

use gantry_schema::{ListType, MergeStrategy};
use serde::Deserialize;
use serde_json::Value;

use super::{Field, KindVersion, Omit, RawKind, Slot, Table, Type, TypeId, ValueType, Wire};
use crate::data;

#[derive(Deserialize)]
struct File {
    types: Vec<FileType>,
    kinds: Vec<FileKind>,
}

#[derive(Deserialize)]
struct FileType {
    #[serde(rename = "n")]
    name: Box<str>,
    #[serde(rename = "g")]
    go: Box<str>,
    #[serde(rename = "a", default)]
    atomic: bool,
    #[serde(rename = "f")]
    fields: Vec<FileField>,
}

#[derive(Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "it mirrors the file")]
struct FileField {
    #[serde(rename = "j", default)]
    name: Box<str>,
    #[serde(rename = "t")]
    value: Box<str>,
    #[serde(rename = "i", default)]
    inline: bool,
    #[serde(rename = "p", default)]
    pointer: bool,
    #[serde(rename = "o", default)]
    omit_empty: bool,
    #[serde(rename = "z", default)]
    omit_zero: bool,
    #[serde(rename = "w", default)]
    number: u32,
    #[serde(rename = "ps", default)]
    strategy: Box<str>,
    #[serde(rename = "pk", default)]
    merge_key: Box<str>,
    #[serde(rename = "r", default)]
    required: bool,
    #[serde(rename = "lt", default)]
    list_type: Box<str>,
    #[serde(rename = "lk", default)]
    list_keys: Vec<Box<str>>,
    #[serde(rename = "a", default)]
    atomic: bool,
    #[serde(rename = "e", default)]
    allowed: Vec<Box<str>>,
    #[serde(rename = "d", default)]
    default: Option<Value>,
}

#[derive(Deserialize)]
struct FileKind {
    #[serde(rename = "g", default)]
    group: Box<str>,
    #[serde(rename = "v")]
    version: Box<str>,
    #[serde(rename = "k")]
    kind: Box<str>,
    #[serde(rename = "t")]
    place: u16,
}

pub(super) fn table() -> Table {
    let file: File = data::parse(data::TYPES);
    let types: Vec<Type> = file.types.iter().map(|ty| load_type(&file, ty)).collect();
    let names = file.types.iter().enumerate().map(|(place, ty)| (ty.name.clone(), id(place)));
    let mut kinds: HashMap<Box<str>, Vec<KindVersion>> = HashMap::new();
    for kind in &file.kinds {
        let known = KindVersion {
            group: kind.group.clone(),
            version: kind.version.clone(),
            id: TypeId(kind.place),
        };
        kinds.entry(kind.kind.clone()).or_default().push(known);
    }
    Table { types, names: names.collect(), kinds }
}

fn id(place: usize) -> TypeId {
    TypeId(u16::try_from(place).expect("there are fewer than 65536 types"))
}

fn load_type(file: &File, ty: &FileType) -> Type {
    let mut fields = Vec::new();
    let mut wire = Vec::new();
    flatten(file, ty, &mut fields, Some(&mut wire));
    wire.sort_by_key(|(number, _)| *number);
    let places = fields
        .iter()
        .enumerate()
        .map(|(place, field): (usize, &Field)| (field.name.clone(), place));
    Type {
        name: ty.name.clone(),
        go: ty.go.clone(),
        atomic: ty.atomic,
        keeps_empty: ty.name.starts_with("io.k8s.apiextensions-apiserver.")
            || ty.name.starts_with("io.k8s.kube-aggregator."),
        field_indexes: places.collect(),
        fields,
        wire,
        zero: OnceLock::new(),
    }
}

/// Adds the fields of `ty`. The wire numbers of an embedded struct belong to its own message, so
/// only those of the outermost are taken.
fn flatten(
    file: &File,
    ty: &FileType,
    fields: &mut Vec<Field>,
    mut wire: Option<&mut Vec<(u32, Wire)>>,
) {
    for field in &ty.fields {
        let meaning = if field.inline {
            let inner = struct_id(&field.value);
            flatten(file, &file.types[usize::from(inner.0)], fields, None);
            Wire::Embedded(inner)
        } else {
            fields.push(load_field(file, field));
            Wire::Field(fields.len() - 1)
        };
        if let Some(wire) = wire.as_deref_mut()
            && field.number > 0
        {
            wire.push((field.number, meaning));
        }
    }
}

fn load_field(file: &File, field: &FileField) -> Field {
    let strategies: Vec<&str> = field.strategy.split(',').collect();
    let merge = MergeStrategy {
        merge: strategies.contains(&"merge"),
        merge_key: Some(field.merge_key.clone()).filter(|key| !key.is_empty()),
        replace: strategies.contains(&"replace"),
        retain_keys: strategies.contains(&"retainKeys"),
    };
    let list_type = match &*field.list_type {
        "set" => ListType::Set,
        "map" => ListType::Map(field.list_keys.clone()),
        _ => ListType::Atomic,
    };
    let (make, go) = parse_value_type(file, &field.value);
    Field {
        name: field.name.clone(),
        slot: Slot { value_type: make, go, pointer: field.pointer },
        omit: match (field.omit_zero, field.omit_empty) {
            (true, _) => Omit::Zero,
            (false, true) => Omit::Empty,
            (false, false) => Omit::Never,
        },
        merge,
        list_type,
        atomic: field.atomic,
        required: field.required,
        allowed: field.allowed.clone(),
        default: field.default.clone(),
    }
}

/// Parses the compact notation of types, which the generator describes; returns the type and its Go
/// name.
fn parse_value_type(file: &File, text: &str) -> (ValueType, Box<str>) {
    if let Some(named) = text.strip_prefix('@') {
        let (name, text) = named.split_once(' ').expect("a name is followed by what it names");
        return (parse_value_type(file, text).0, name.into());
    }
    if let Some(text) = text.strip_prefix('!') {
        return list(file, text, true);
    }
    if text.starts_with("[]") {
        return list(file, text, false);
    }
    if let Some(text) = text.strip_prefix("{}") {
        let values = slot(file, text);
        let go = format!("map[string]{}{}", if values.pointer { "*" } else { "" }, values.go);
        return (ValueType::Map(Box::new(values)), go.into());
    }
    if text.starts_with('#') {
        let id = struct_id(text);
        return (ValueType::Struct(id), file.types[usize::from(id.0)].go.clone());
    }
    let schema = || {
        let is_schema = |ty: &FileType| ty.name.ends_with(".apiextensions.v1.JSONSchemaProps");
        id(file.types.iter().position(is_schema).expect("the schema of schemas is in the file"))
    };
    let (make, go) = match text {
        "s" => (ValueType::String, "string"),
        "i" => (ValueType::Int32, "int32"),
        "l" => (ValueType::Int64, "int64"),
        "d" => (ValueType::Float, "float64"),
        "b" => (ValueType::Bool, "bool"),
        "y" => (ValueType::Bytes, "[]uint8"),
        "T" => (ValueType::Time, "v1.Time"),
        "U" => (ValueType::MicroTime, "v1.MicroTime"),
        "Q" => (ValueType::Quantity, "resource.Quantity"),
        "I" => (ValueType::IntOrString, "intstr.IntOrString"),
        "R" => (ValueType::Raw(RawKind::Extension), "runtime.RawExtension"),
        "F" => (ValueType::Raw(RawKind::Json), "v1.FieldsV1"),
        "J" => (ValueType::Raw(RawKind::Json), "v1.JSON"),
        "B" => (ValueType::SchemaOrBool(schema()), "v1.JSONSchemaPropsOrBool"),
        "A" => (ValueType::SchemaOrArray(schema()), "v1.JSONSchemaPropsOrArray"),
        "S" => (ValueType::SchemaOrStrings(schema()), "v1.JSONSchemaPropsOrStringArray"),
        other => unreachable!("the generator wrote the unknown type {other:?}"),
    };
    (make, go.into())
}

fn list(file: &File, text: &str, wrapped: bool) -> (ValueType, Box<str>) {
    let items = slot(file, text.strip_prefix("[]").expect("only lists are wrapped"));
    let go = format!("[]{}{}", if items.pointer { "*" } else { "" }, items.go);
    (ValueType::List { items: Box::new(items), wrapped }, go.into())
}

fn slot(file: &File, text: &str) -> Slot {
    let (pointer, text) = match text.strip_prefix('*') {
        Some(text) => (true, text),
        None => (false, text),
    };
    let (make, go) = parse_value_type(file, text);
    Slot { value_type: make, go, pointer }
}

fn struct_id(text: &str) -> TypeId {
    let place = text.strip_prefix('#').and_then(|place| place.parse().ok());
    TypeId(place.expect("a struct is written as its place"))
}
