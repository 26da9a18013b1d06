//! Resolves the environment variables of a container.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::command::expand;
use super::fields::{field, resource};
use super::{ResolveContext, Unresolved};
use crate::shell;
use crate::view::{Container, EnvVarSource, KeySelector, ObjectRef, SourceKind};

/// Where containers reach the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiServer {
    /// Its address, without a port.
    pub host: String,
    /// Its port.
    pub port: u16,
}

impl ApiServer {
    /// Returns the variables that kubelets set for the service of the API server.
    fn variables(&self) -> [(&'static str, String); 7] {
        let Self { host, port } = self;
        let url = format!("tcp://{host}:{port}");
        [
            ("KUBERNETES_SERVICE_HOST", host.clone()),
            ("KUBERNETES_SERVICE_PORT", port.to_string()),
            ("KUBERNETES_SERVICE_PORT_HTTPS", port.to_string()),
            ("KUBERNETES_PORT", url.clone()),
            ("KUBERNETES_PORT_443_TCP", url),
            ("KUBERNETES_PORT_443_TCP_PROTO", "tcp".to_owned()),
            ("KUBERNETES_PORT_443_TCP_ADDR", host.clone()),
        ]
    }
}

/// Returns the variables that a container starts with, by name.
///
/// Later ones replace earlier ones, and those of the pod replace those that every container has.
///
/// # Errors
/// An object was not read yet, or a required one is missing.
pub fn environment(
    context: &ResolveContext<'_>,
    container: &Container,
) -> Result<BTreeMap<String, String>, Unresolved> {
    let server = context.api_server.map(ApiServer::variables);
    let server: BTreeMap<String, String> =
        server.into_iter().flatten().map(|(name, value)| (name.to_owned(), value)).collect();
    let mut own = BTreeMap::new();
    for object in &container.env_from {
        let mut add = |kind, reference: Option<&ObjectRef>| {
            let Some(ObjectRef { name, optional }) = reference else { return Ok(()) };
            let data = context.source_data(kind, name, *optional)?.unwrap_or_default();
            for (key, value) in data.iter().filter(|(key, _)| is_variable(key)) {
                own.insert(format!("{}{key}", object.prefix), text(value));
            }
            Ok(())
        };
        add(SourceKind::ConfigMap, object.config_map_ref.as_ref())?;
        add(SourceKind::Secret, object.secret_ref.as_ref())?;
    }
    for variable in &container.env {
        let value = match &variable.value_from {
            None => {
                let known =
                    |name: &str| own.get(name).or_else(|| server.get(name)).map(String::as_str);
                Some(expand(&variable.value, known))
            }
            Some(source) => value_from(context, container, source)?,
        };
        own.extend(value.map(|it| (variable.name.clone(), it)));
    }
    let standard = [
        ("PATH".to_owned(), shell::PATH.to_owned()),
        ("HOME".to_owned(), "/root".to_owned()),
        ("HOSTNAME".to_owned(), hostname(context)),
    ];
    Ok(standard.into_iter().chain(server).chain(own).collect())
}

fn hostname(context: &ResolveContext<'_>) -> String {
    match context.pod.spec.hostname.as_str() {
        "" => context.pod.metadata.name.clone(),
        named => named.to_owned(),
    }
}

/// Returns whether a key can be the name of a variable: anything but `=` and control characters, as
/// in Kubernetes. Others are left out.
fn is_variable(key: &str) -> bool {
    !key.is_empty() && key.chars().all(|it| (' '..='~').contains(&it) && it != '=')
}

fn text(value: &Bytes) -> String {
    String::from_utf8_lossy(value).into_owned()
}

/// Returns the value of a variable with `valueFrom`; `None` if it is optional and missing.
fn value_from(
    context: &ResolveContext<'_>,
    container: &Container,
    source: &EnvVarSource,
) -> Result<Option<String>, Unresolved> {
    let keyed = |kind: SourceKind, reference: &KeySelector| {
        let KeySelector { name, key, optional } = reference;
        let Some(data) = context.source_data(kind, name, *optional)? else { return Ok(None) };
        match data.get(key) {
            Some(value) => Ok(Some(text(value))),
            None if *optional => Ok(None),
            None => {
                let namespace = &context.pod.metadata.namespace;
                let what = kind.title();
                let fault = format!("couldn't find key {key} in {what} {namespace}/{name}");
                Err(Unresolved::Invalid(fault))
            }
        }
    };
    let EnvVarSource { field_ref, resource_field_ref, config_map_key_ref, secret_key_ref } = source;
    if let Some(reference) = field_ref {
        return field(context.pod, reference).map(Some);
    }
    if let Some(reference) = resource_field_ref {
        return resource(context, &container.name, reference).map(Some);
    }
    if let Some(reference) = config_map_key_ref {
        return keyed(SourceKind::ConfigMap, reference);
    }
    if let Some(reference) = secret_key_ref {
        return keyed(SourceKind::Secret, reference);
    }
    let fault = "a variable has a valueFrom of a kind that simulated nodes do not support";
    Err(Unresolved::Invalid(fault.to_owned()))
}
