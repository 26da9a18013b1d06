//! The parameter and result types of a function.

use std::sync::Arc;

use crate::types::{ListKind, ListType, MapType, Type};

/// One way to call a function: `string.(int,int) string` for a member, `(A,list(A)) bool` else.
///
/// A single capital letter stands for any type, the same wherever it occurs; `optional(A)` for an
/// optional. A name that is none of the language's own is that of a value of the library.
#[derive(Clone, Debug)]
pub(crate) struct Signature {
    pub(crate) member: bool,
    pub(crate) params: Vec<TypePattern>,
    pub(crate) result: TypePattern,
}

/// A type with holes.
#[derive(Clone, Debug)]
pub(crate) enum TypePattern {
    Var(usize),
    Plain(Type),
    List(Box<TypePattern>),
    Map(Box<TypePattern>, Box<TypePattern>),
    Optional(Box<TypePattern>),
}

impl Signature {
    /// The signature that `text` spells, or nothing if it spells none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (head, result) = text.rsplit_once(") ")?;
        let (target, params) = match head.strip_prefix('(') {
            Some(params) => (None, params),
            None => head.split_once(".(").map(|(target, params)| (Some(target), params))?,
        };
        let params = split(params);
        let shapes =
            target.into_iter().chain(params).map(TypePattern::parse).collect::<Option<Vec<_>>>()?;
        Some(Self { member: target.is_some(), params: shapes, result: TypePattern::parse(result)? })
    }

    /// The type of the answer for arguments of these types, if there is one.
    pub(crate) fn result_type(&self, args: &[Type]) -> Option<Type> {
        let mut holes = [const { None }; 26];
        let fits = self.params.len() == args.len()
            && self.params.iter().zip(args).all(|(shape, ty)| shape.unify(ty, &mut holes));
        fits.then(|| self.result.substitute(&holes))
    }
}

/// The parts between the commas that are in no bracket.
fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut depth) = (0, 0);
    for (place, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(text[start..place].trim());
                start = place + 1;
            }
            _ => {}
        }
    }
    if !text[start..].trim().is_empty() {
        parts.push(text[start..].trim());
    }
    parts
}

impl TypePattern {
    fn parse(text: &str) -> Option<Self> {
        if let [letter @ b'A'..=b'Z'] = text.as_bytes() {
            return Some(Self::Var(usize::from(letter - b'A')));
        }
        if let Some((head, inner)) = text.strip_suffix(')').and_then(|rest| rest.split_once('(')) {
            let inner = split(inner).into_iter().map(Self::parse).collect::<Option<Vec<_>>>()?;
            let mut inner = inner.into_iter().map(Box::new);
            return Some(match head {
                "list" => Self::List(inner.next()?),
                "map" => Self::Map(inner.next()?, inner.next()?),
                "optional" => Self::Optional(inner.next()?),
                _ => return None,
            });
        }
        Some(Self::Plain(match text {
            "dyn" => Type::Dyn,
            "null" => Type::Null,
            "bool" => Type::Bool,
            "int" => Type::Int,
            "uint" => Type::Uint,
            "double" => Type::Double,
            "string" => Type::string(),
            "bytes" => Type::bytes(),
            "timestamp" => Type::Timestamp,
            "duration" => Type::Duration,
            "type" => Type::Kind,
            other => Type::opaque(other),
        }))
    }

    fn unify(&self, ty: &Type, holes: &mut [Option<Type>; 26]) -> bool {
        match (self, ty) {
            (Self::Var(place), _) => match &holes[*place] {
                None => {
                    holes[*place] = Some(ty.clone());
                    true
                }
                Some(bound) => match join(bound, ty) {
                    Some(joined) => {
                        holes[*place] = Some(joined);
                        true
                    }
                    None => false,
                },
            },
            (Self::Plain(wanted), _) => join(wanted, ty).is_some(),
            (_, ty) if ty.is_dynamic() => true,
            (Self::List(element), Type::List(list)) => element.unify(&list.element, holes),
            (Self::Map(key, value), Type::Map(map)) => {
                key.unify(&map.key, holes) && value.unify(&map.value, holes)
            }
            (Self::Optional(inner), Type::Optional(ty)) => inner.unify(ty, holes),
            (Self::List(_) | Self::Map(..) | Self::Optional(_), _) => false,
        }
    }

    fn substitute(&self, holes: &[Option<Type>; 26]) -> Type {
        match self {
            Self::Var(place) => holes[*place].clone().unwrap_or(Type::Dyn),
            Self::Plain(ty) => ty.clone(),
            Self::List(element) => Type::list(element.substitute(holes)),
            Self::Map(key, value) => Type::Map(Arc::new(MapType {
                key: key.substitute(holes),
                value: value.substitute(holes),
                max_properties: None,
            })),
            Self::Optional(inner) => Type::optional(inner.substitute(holes)),
        }
    }
}

/// A type that values of both types have, if a value can have both.
///
/// It errs on the side of yes: a rule that a real server accepts must be accepted.
pub(crate) fn join(one: &Type, two: &Type) -> Option<Type> {
    match (one, two) {
        (one, two) if one.is_dynamic() || two.is_dynamic() => Some(Type::Dyn),
        (Type::Null, Type::Null) => Some(Type::Null),
        (Type::Null, other) | (other, Type::Null) => other.may_be_null().then(|| other.clone()),
        (Type::String { max_length: a }, Type::String { max_length: b }) => {
            Some(Type::String { max_length: larger(*a, *b) })
        }
        (Type::Bytes { max_length: a }, Type::Bytes { max_length: b }) => {
            Some(Type::Bytes { max_length: larger(*a, *b) })
        }
        (Type::Timestamp | Type::Date, Type::Timestamp | Type::Date) => Some(Type::Timestamp),
        (Type::List(one), Type::List(two)) => {
            let kind = if one.kind == two.kind { one.kind.clone() } else { ListKind::Atomic };
            Some(Type::List(Arc::new(ListType {
                element: join(&one.element, &two.element)?,
                kind,
                max_items: larger(one.max_items, two.max_items),
            })))
        }
        (Type::Map(one), Type::Map(two)) => Some(Type::Map(Arc::new(MapType {
            key: join(&one.key, &two.key)?,
            value: join(&one.value, &two.value)?,
            max_properties: larger(one.max_properties, two.max_properties),
        }))),
        (Type::Object(one), Type::Object(two)) => {
            Some(if one == two { Type::Object(Arc::clone(one)) } else { Type::Dyn })
        }
        (Type::Optional(one), Type::Optional(two)) => Some(Type::optional(join(one, two)?)),
        (one, two) => (one == two).then(|| one.clone()),
    }
}

fn larger(one: Option<u64>, two: Option<u64>) -> Option<u64> {
    one.zip(two).map(|(one, two)| one.max(two))
}
