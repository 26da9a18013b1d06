//! The variables of admission expressions, and compiled programs.

use gantry_cel::{CompileError, Environment, Limits, Program, Type};
use gantry_kinds::admission_policies::ExpressionKind;

use crate::authorizer;

/// How large an expression may be: bounded by the request it comes in and by what a parser takes.
const LIMITS: Limits = Limits { max_bytes: 100_000, max_depth: 250 };

/// What may be mentioned besides what always may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OptionalVariables {
    /// The parameters of a policy.
    pub(crate) params: bool,
    /// Who knows about rights. The words of a refusal may not ask.
    pub(crate) authorizer: bool,
}

/// What an expression may mention; `variables` are those of a policy that come before it, none if a
/// policy has none at all.
pub(crate) fn environment(
    mentions: OptionalVariables,
    variables: Option<&[(String, Type)]>,
) -> Environment {
    let mut environment = authorizer::extend(Environment::new().with_limits(LIMITS))
        .with_variable("object", Type::Dyn)
        .with_variable("oldObject", Type::Dyn)
        .with_variable("namespaceObject", namespace_type())
        .with_variable("request", request_type());
    if mentions.params {
        environment = environment.with_variable("params", Type::Dyn);
    }
    if mentions.authorizer {
        let [whole, resource] = authorizer::VARIABLE_TYPES;
        environment = environment
            .with_variable("authorizer", Type::opaque(whole))
            .with_variable("authorizer.requestResource", Type::opaque(resource));
    }
    if let Some(variables) = variables {
        let fields = variables.iter().cloned();
        environment =
            environment.with_variable("variables", Type::object("kubernetes.variables", fields));
        for (name, ty) in variables {
            environment = environment.with_variable(&format!("variables.{name}"), ty.clone());
        }
    }
    environment
}

/// The program of an expression, or why there is none, in the words of a server.
pub(crate) fn compile(
    environment: &Environment,
    role: ExpressionKind<'_>,
    source: &str,
) -> Result<Program, String> {
    let program = environment.compile(source, None).map_err(|error| match error {
        CompileError::Invalid(_) => error.to_string(),
        CompileError::TooLong { .. }
        | CompileError::TooDeep { .. }
        | CompileError::WrongResult { .. }
        | CompileError::Internal(_) => format!("compilation failed: {error}"),
    })?;
    let found = program.result_type();
    let (fits, wanted) = match role {
        ExpressionKind::Condition | ExpressionKind::Validation => {
            (matches!(found, Type::Bool), "bool")
        }
        ExpressionKind::Message => (matches!(found, Type::String { .. }), "string"),
        ExpressionKind::Annotation => {
            (matches!(found, Type::String { .. } | Type::Null), "one of [string null_type]")
        }
        ExpressionKind::Variable(_) => (true, ""),
    };
    if fits {
        return Ok(program);
    }
    Err(format!("must evaluate to {wanted} but got {}", type_name(found)))
}

/// The name of a type where it stands alone, which differs from its name inside a fault.
fn type_name(ty: &Type) -> String {
    match ty {
        Type::Null => "null_type".to_owned(),
        Type::Timestamp | Type::Date => "google.protobuf.Timestamp".to_owned(),
        Type::Duration => "google.protobuf.Duration".to_owned(),
        Type::Kind => "type".to_owned(),
        Type::List(list) => format!("list({})", type_name(&list.element)),
        Type::Map(map) => format!("map({}, {})", type_name(&map.key), type_name(&map.value)),
        Type::Optional(inner) => format!("optional_type({})", type_name(inner)),
        Type::Dyn
        | Type::Bool
        | Type::Int
        | Type::Uint
        | Type::Double
        | Type::String { .. }
        | Type::Bytes { .. }
        | Type::IntOrString { .. }
        | Type::Object(_)
        | Type::Opaque(_) => ty.to_string(),
    }
}

fn object(name: &str, fields: &[(&str, Type)]) -> Type {
    Type::object(name, fields.iter().map(|(name, ty)| ((*name).to_owned(), ty.clone())))
}

fn request_type() -> Type {
    let text = Type::string;
    let kind = object(
        "kubernetes.GroupVersionKind",
        &[("group", text()), ("version", text()), ("kind", text())],
    );
    let resource = object(
        "kubernetes.GroupVersionResource",
        &[("group", text()), ("version", text()), ("resource", text())],
    );
    let user = object(
        "kubernetes.UserInfo",
        &[
            ("username", text()),
            ("uid", text()),
            ("groups", Type::list(text())),
            ("extra", Type::map(Type::list(text()))),
        ],
    );
    object(
        "kubernetes.AdmissionRequest",
        &[
            ("kind", kind.clone()),
            ("resource", resource.clone()),
            ("subResource", text()),
            ("requestKind", kind),
            ("requestResource", resource),
            ("requestSubResource", text()),
            ("name", text()),
            ("namespace", text()),
            ("operation", text()),
            ("userInfo", user),
            ("dryRun", Type::Bool),
            ("options", Type::Dyn),
        ],
    )
}

fn namespace_type() -> Type {
    let text = Type::string;
    let condition = object(
        "kubernetes.NamespaceCondition",
        &[
            ("status", text()),
            ("type", text()),
            ("lastTransitionTime", Type::Timestamp),
            ("message", text()),
            ("reason", text()),
        ],
    );
    let metadata = object(
        "kubernetes.NamespaceMetadata",
        &[
            ("name", text()),
            ("generateName", text()),
            ("namespace", text()),
            ("labels", Type::map(text())),
            ("annotations", Type::map(text())),
            ("UID", text()),
            ("creationTimestamp", Type::Timestamp),
            ("deletionGracePeriodSeconds", Type::Int),
            ("deletionTimestamp", Type::Timestamp),
            ("generation", Type::Int),
            ("resourceVersion", text()),
            ("finalizers", Type::list(text())),
        ],
    );
    let spec = object("kubernetes.NamespaceSpec", &[("finalizers", Type::list(text()))]);
    let status = object(
        "kubernetes.NamespaceStatus",
        &[("conditions", Type::list(condition)), ("phase", text())],
    );
    object("kubernetes.Namespace", &[("metadata", metadata), ("spec", spec), ("status", status)])
}
