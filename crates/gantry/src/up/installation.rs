//! Installs the kinds, roles and samples that Gantry brings.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, bail};
use gantry_api::kind::Kind;
use gantry_api::object::KINDS;
use gantry_process::clock::Clock;
use gantry_reconcile::{ApiPath, Key, Resource, Scope};
use gantry_subsystem::settings::Values;
use gantry_yaml as yaml;
use http::{Method, StatusCode};
use serde_json::Value;

use super::{InProcessClient, accounts, default_storage_class};
use crate::subsystems::SUBSYSTEMS;

/// Installs Gantry's own kinds, the roles for them, and the default StorageClass.
///
/// Validating and compiling definitions is most of the work of a start, so API groups are installed
/// in parallel. Definitions of one group are not: the server resolves their names together.
///
/// # Errors
/// The server rejects one of them.
pub async fn install_kinds(api_client: &InProcessClient, values: &Values) -> anyhow::Result<usize> {
    let mut groups: BTreeMap<&str, Vec<&'static Kind>> = BTreeMap::new();
    for kind in KINDS {
        groups.entry(kind.group).or_default().push(kind);
    }
    let installs = groups.into_values().map(|kinds| {
        let api_client = api_client.clone();
        let runtime = tokio::runtime::Handle::current();
        tokio::task::spawn_blocking(move || runtime.block_on(install_group(&api_client, &kinds)))
    });
    let installs: Vec<_> = installs.collect();
    let roles = install_roles(api_client, values).await;
    // All are awaited before the first error is returned: none goes on in the background.
    let mut results = vec![roles];
    for install in installs {
        results.push(install.await.context("the installation of a group ended early")?);
    }
    results.into_iter().collect::<anyhow::Result<()>>()?;
    default_storage_class::install(api_client).await?;
    Ok(KINDS.len())
}

/// Installs the definitions of one API group.
async fn install_group(api_client: &InProcessClient, kinds: &[&Kind]) -> anyhow::Result<()> {
    for kind in kinds {
        let definition = serde_json::to_value(kind.crd())?;
        let path = path_of(&definition)?;
        let installed = api_client.install(&path, &definition).await;
        installed.with_context(|| format!("could not install {}", kind.crd_name()))?;
    }
    Ok(())
}

/// Installs the roles for users, and the roles and bindings of controllers.
async fn install_roles(api_client: &InProcessClient, values: &Values) -> anyhow::Result<()> {
    let accounts = SUBSYSTEMS.iter().flat_map(|it| (it.accounts)(values));
    let rights = gantry_kube_controllers::rbac::roles_and_bindings()
        .into_iter()
        .chain(gantry_sim::rbac::roles_and_bindings())
        .chain(accounts::rbac_objects());
    let rights = rights.chain(accounts.flat_map(|it| it.objects()));
    for object in gantry_api::roles::roles().into_iter().chain(rights) {
        let path = path_of(&object)?;
        let installed = api_client.install(&path, &object).await;
        installed.with_context(|| format!("could not install {path}"))?;
    }
    Ok(())
}

/// Creates the objects of a text. Returns their number.
///
/// # Errors
/// The text is not YAML with objects, or the server rejects one of them.
pub async fn apply(
    api_client: &InProcessClient,
    clock: &Clock,
    text: &str,
) -> anyhow::Result<usize> {
    let documents = yaml::read(text)?;
    for document in &documents {
        let object = document.to_json();
        let path = path_of(&object)?;
        let installed = api_client.install(&path, &object).await;
        installed.with_context(|| format!("could not create {path}"))?;
        if object["kind"] == "Namespace" {
            wait_for_service_account(
                api_client,
                clock,
                object["metadata"]["name"].as_str().unwrap_or_default(),
            )
            .await?;
        }
    }
    Ok(documents.len())
}

/// How long a controller may take to create the service account of a namespace, and how often it is
/// checked. It takes milliseconds.
const SERVICE_ACCOUNT_WAIT: [Duration; 2] = [Duration::from_secs(60), Duration::from_millis(10)];

/// Waits until a namespace has the default service account, which pods need.
async fn wait_for_service_account(
    api_client: &InProcessClient,
    clock: &Clock,
    namespace: &str,
) -> anyhow::Result<()> {
    let path = ApiPath::object("v1", namespace, "serviceaccounts", "default")?;
    let [patience, pause] = SERVICE_ACCOUNT_WAIT;
    let begun = clock.moment();
    while api_client.request(Method::GET, &path, "application/json", None).await?.0
        != StatusCode::OK
    {
        if clock.moment() - begun >= patience {
            bail!("{path} was not created within {} seconds", patience.as_secs());
        }
        clock.sleep(pause).await;
    }
    Ok(())
}

/// The objects of `--demo`.
pub const DEMO: &str = include_str!("demo.yaml");

/// The models of `--demo`: two that share one accelerator.
pub const DEMO_MODELS: &str = include_str!("demo-models.yaml");

/// Returns the path of a sample object. The samples use few kinds, so no discovery is needed.
pub(super) fn path_of(object: &Value) -> anyhow::Result<ApiPath> {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    let (version, kind) = (&object["apiVersion"], &object["kind"]);
    let (version, kind) = (version.as_str().unwrap_or_default(), kind.as_str().unwrap_or_default());
    let own = gantry_api::object::find(version, kind);
    let plural = match kind {
        "" => bail!("an object has no kind"),
        _ if own.is_some() => own.map_or("", |kind| kind.plural).to_owned(),
        "NetworkPolicy" | "PriorityClass" => format!("{}s", kind.to_lowercase().replace('y', "ie")),
        kind => format!("{}s", kind.to_lowercase()),
    };
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let namespace = if kind == "Namespace" { "" } else { text("namespace") };
    let resource = Resource {
        group: group.to_owned().into(),
        version: version.to_owned().into(),
        plural: plural.into(),
        kind: kind.to_owned().into(),
        scope: if namespace.is_empty() { Scope::Cluster } else { Scope::Namespaced },
        has_status: false,
    };
    Ok(resource.path(&Key::new(namespace, text("name")))?)
}
