//! The variables of a container.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::command::expand;
use super::fields::{field, resource};
use super::{Surroundings, Unresolved};
use crate::shell;
use crate::view::{Container, KeyRef, ObjectRef, SourceKind, VariableSource};

/// Where containers reach the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiServer {
    /// Its address, without a port.
    pub host: String,
    /// Its port.
    pub port: u16,
}

impl ApiServer {
    /// The variables that kubelets set for the service of the API server.
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

/// The variables that a container starts with, by name.
///
/// Later ones replace earlier ones, and what the pod says replaces what every container has.
///
/// # Errors
/// An object was not read yet, or something that must be there is missing.
pub fn environment(
    around: &Surroundings<'_>,
    container: &Container,
) -> Result<BTreeMap<String, String>, Unresolved> {
    let server = around.api_server.map(ApiServer::variables);
    let server: BTreeMap<String, String> =
        server.into_iter().flatten().map(|(name, value)| (name.to_owned(), value)).collect();
    let mut own = BTreeMap::new();
    for object in &container.env_from {
        let mut add = |kind, reference: Option<&ObjectRef>| {
            let Some(ObjectRef { name, optional }) = reference else { return Ok(()) };
            let data = around.object(kind, name, *optional)?.unwrap_or_default();
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
            Some(source) => value_from(around, container, source)?,
        };
        own.extend(value.map(|it| (variable.name.clone(), it)));
    }
    let standard = [
        ("PATH".to_owned(), shell::PATH.to_owned()),
        ("HOME".to_owned(), "/root".to_owned()),
        ("HOSTNAME".to_owned(), hostname(around)),
    ];
    Ok(standard.into_iter().chain(server).chain(own).collect())
}

fn hostname(around: &Surroundings<'_>) -> String {
    match around.pod.spec.hostname.as_str() {
        "" => around.pod.metadata.name.clone(),
        named => named.to_owned(),
    }
}

/// Whether a key can be the name of a variable: anything but `=` and control characters, as Kubernetes has
/// it. Others are left out.
fn is_variable(key: &str) -> bool {
    !key.is_empty() && key.chars().all(|it| (' '..='~').contains(&it) && it != '=')
}

fn text(value: &Bytes) -> String {
    String::from_utf8_lossy(value).into_owned()
}

/// The value of a variable that is read elsewhere; none if it may be missing and is.
fn value_from(
    around: &Surroundings<'_>,
    container: &Container,
    source: &VariableSource,
) -> Result<Option<String>, Unresolved> {
    let keyed = |kind: SourceKind, reference: &KeyRef| {
        let KeyRef { name, key, optional } = reference;
        let Some(data) = around.object(kind, name, *optional)? else { return Ok(None) };
        match data.get(key) {
            Some(value) => Ok(Some(text(value))),
            None if *optional => Ok(None),
            None => {
                let namespace = &around.pod.metadata.namespace;
                let what = kind.title();
                let fault = format!("couldn't find key {key} in {what} {namespace}/{name}");
                Err(Unresolved::Fault(fault))
            }
        }
    };
    let VariableSource { field_ref, resource_field_ref, config_map_key_ref, secret_key_ref } =
        source;
    if let Some(reference) = field_ref {
        return field(around.pod, reference).map(Some);
    }
    if let Some(reference) = resource_field_ref {
        return resource(around, &container.name, reference).map(Some);
    }
    if let Some(reference) = config_map_key_ref {
        return keyed(SourceKind::ConfigMap, reference);
    }
    if let Some(reference) = secret_key_ref {
        return keyed(SourceKind::Secret, reference);
    }
    let fault = "a variable has a valueFrom of a kind that simulated nodes do not know";
    Err(Unresolved::Fault(fault.to_owned()))
}
