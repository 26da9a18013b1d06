//! The kernel module of `gantry up --demo`: its nodes, its key and its Module.

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gantry_kmod::verify::Enforcement;
use gantry_process::clock::Clock;
use gantry_reconcile::{ApiPath, Parameter};
use gantry_serve::pki::Identity;
use gantry_sim::node_shape::{NodeShape, default_shapes};
use http::{Method, StatusCode};
use serde_json::json;

use super::{InProcessClient, apply};

/// The namespace of the samples; the same text as in their file, so that it is created once.
const NAMESPACE: &str = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: demo\n";
/// The Secret with the key that signs the module, and with its certificate.
const SECRET: &str = "module-signing";
/// The Module.
const MODULE: &str = include_str!("demo-module.yaml");

/// The releases of the kernels of the default nodes, of those with accelerators, and of the node
/// that enforces signatures.
const KERNELS: [&str; 3] =
    ["6.8.0-45-generic", "5.14.0-427.13.1.el9_4.x86_64", "6.12.100+deb13-amd64"];

/// Returns the certificate of the key that signs the module. The key is created where there is
/// none, and stored before any node trusts it.
///
/// # Errors
/// The server rejects the Secret, or what is stored is no certificate.
pub async fn signing_certificate(
    api_client: &InProcessClient,
    clock: &Clock,
) -> anyhow::Result<String> {
    apply(api_client, clock, NAMESPACE).await?;
    let path = ApiPath::object("v1", "demo", "secrets", SECRET)?;
    let kind = "application/json";
    let (status, found) = api_client.request(Method::GET, &path, kind, None).await?;
    if status == StatusCode::OK {
        let text = found["data"]["cert"].as_str().unwrap_or_default();
        let named = || format!("{path} has no certificate under `cert`; delete it");
        let bytes = STANDARD.decode(text).with_context(named)?;
        return String::from_utf8(bytes).with_context(named);
    }
    let now = clock.now();
    let Identity { certificate, key } = Identity::for_code_signing("Gantry demo modules", now)?;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": SECRET, "namespace": "demo"},
        "data": {"key": STANDARD.encode(key), "cert": STANDARD.encode(&certificate)},
    });
    let collection = path.collection_of_item().with(Parameter::FieldManager("gantry"));
    let (status, answer) =
        api_client.request(Method::POST, &collection, kind, Some(&secret)).await?;
    if !status.is_success() {
        let why = answer["message"].as_str().unwrap_or("the server gave no reason");
        bail!("could not create {path}: {why}");
    }
    Ok(certificate)
}

/// The default nodes with three kernels, one of which loads only modules that this certificate
/// verifies.
#[must_use]
pub fn node_shapes(certificate: &str) -> Vec<NodeShape> {
    let [plain, accelerated, enforcing] = KERNELS.map(str::to_owned);
    let mut shapes = default_shapes();
    for shape in &mut shapes {
        let release = if shape.accelerators.is_empty() { &plain } else { &accelerated };
        shape.kernel_version = Some(release.clone());
    }
    shapes.push(NodeShape {
        kernel_version: Some(enforcing),
        module_signatures: Some(Enforcement::Enforce),
        trusted_keys: Some(certificate.to_owned()),
        zone: Some("b".to_owned()),
        ..NodeShape::new("secure")
    });
    shapes
}

/// The Module, for a cluster whose registry has this address.
#[must_use]
pub fn module(registry: &str) -> String {
    MODULE.replace("{registry}", registry)
}
