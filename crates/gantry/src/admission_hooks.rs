//! The admission webhooks of all subsystems: how reviews are answered, and how API servers are
//! configured to send them.

use std::sync::Arc;

use anyhow::Context as _;
use gantry_apiserver::Api;
use gantry_queue::app_wrapper::{AUTHOR_ANNOTATION, AppWrapper};
use gantry_queue::author;
use gantry_reconcile::{Key, View as _};
use gantry_sharing::inventory::ObjectKind;
use gantry_subsystem::Host;
use gantry_subsystem::admission::{HookCaller, SharedHook};
use gantry_subsystem::settings::Values;
use gantry_subsystem::start::HostExtensions;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::manifests::NAMESPACE;
use crate::subsystems::SUBSYSTEMS;
use crate::up::{InProcessClient, SOURCE_ANNOTATION};

/// The service through which the API server calls the operator.
pub const SERVICE: &str = "gantry-webhook";

/// The enabled webhooks. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct AdmissionHooks(Arc<[SharedHook]>);

/// A webhook configuration object, and its field manager.
#[derive(Clone, Debug, PartialEq)]
pub struct HookConfiguration {
    /// The field manager of the object.
    pub manager: &'static str,
    /// A MutatingWebhookConfiguration or a ValidatingWebhookConfiguration.
    pub configuration: Value,
}

impl AdmissionHooks {
    /// Creates the webhooks of all subsystems.
    ///
    /// # Errors
    /// The settings were not checked.
    pub fn new(values: &Values, offers: &HostExtensions) -> Result<Self, serde_json::Error> {
        let mut all = Vec::new();
        for subsystem in SUBSYSTEMS {
            all.extend((subsystem.hooks)(values, offers)?);
        }
        Ok(Self(all.into()))
    }

    /// Describes the subjects of the webhooks, for logs; `None` if none is enabled.
    #[must_use]
    pub fn topics(&self) -> Option<String> {
        let topics: Vec<&str> = self.0.iter().map(|it| it.topic()).collect();
        (!topics.is_empty()).then(|| topics.join(" and "))
    }

    /// Answers a review that was sent to a path; `None` if no webhook has this path.
    #[must_use]
    pub fn review(&self, path: &str, review: &Value) -> Option<Value> {
        self.called_at(path).map(|it| it.review(path, review))
    }

    /// Returns whether a webhook has this path.
    #[must_use]
    pub fn handles_path(&self, path: &str) -> bool {
        self.called_at(path).is_some()
    }

    fn called_at(&self, path: &str) -> Option<&SharedHook> {
        self.0.iter().find(|it| it.handles_path(path))
    }

    /// Returns whether the configurations need the name of the operator's user.
    #[must_use]
    pub fn needs_operator_user(&self) -> bool {
        self.0.iter().any(|it| it.needs_operator_user())
    }

    /// Returns the webhook configurations.
    #[must_use]
    pub fn configurations(&self, caller: &HookCaller<'_>) -> Vec<HookConfiguration> {
        let of = |hook: &SharedHook| {
            let manager = hook.manager();
            let all = hook.configurations(caller).into_iter();
            all.map(move |configuration| HookConfiguration { manager, configuration })
                .collect::<Vec<_>>()
        };
        self.0.iter().flat_map(of).collect()
    }
}

/// Installs the webhooks in the embedded server, which calls them inside the process. The
/// configurations are objects like any other; when a user deletes them, no reviews are sent until
/// the next start.
///
/// # Errors
/// The server rejects the configurations.
pub async fn install_webhooks(
    api: &Api,
    api_client: &InProcessClient,
    hooks: &AdmissionHooks,
) -> anyhow::Result<()> {
    let answers = hooks.clone();
    api.register_webhook_handler(NAMESPACE, SERVICE, move |path, review| {
        answers.review(path, review).unwrap_or_else(|| json!({}))
    });
    let records_authors = hooks.handles_path(author::WEBHOOK_PATH);
    if !records_authors {
        // No webhook records authors, so the authors of objects created until then cannot be
        // trusted.
        let path = ObjectKind::MutatingWebhookConfiguration.path(author::CONFIGURATION)?;
        let (_, found) = api_client.request(Method::GET, &path, "application/json", None).await?;
        // The configuration of a separate operator is left alone.
        if found["metadata"]["annotations"][SOURCE_ANNOTATION].is_string() {
            let (status, said) =
                api_client.request(Method::DELETE, &path, "application/json", None).await?;
            let gone = status.is_success() || status == StatusCode::NOT_FOUND;
            anyhow::ensure!(gone, "could not remove {path}: {}", said["message"]);
        }
    }
    let path = ObjectKind::MutatingWebhookConfiguration.path(author::CONFIGURATION)?;
    let (status, _) = api_client.request(Method::GET, &path, "application/json", None).await?;
    let begins = records_authors && status == StatusCode::NOT_FOUND;
    let client = |path: &str| service(NAMESPACE, path);
    let caller = HookCaller { client: &client, host: Host::Embedded, user: "" };
    for HookConfiguration { configuration, .. } in hooks.configurations(&caller) {
        let kind = configuration["kind"].as_str().unwrap_or_default();
        let kind = ObjectKind::of(kind).context("a configuration is of an unknown kind")?;
        let path = kind.path(configuration["metadata"]["name"].as_str().unwrap_or_default())?;
        let installed = api_client.install(&path, &configuration).await;
        installed.with_context(|| format!("could not install {path}"))?;
    }
    if begins {
        remove_unrecorded_authors(api_client).await?;
    }
    Ok(())
}

/// Removes the authors of AppWrappers that were created before authors were recorded: any user
/// could write those.
///
/// The queue compares times for that, which are whole seconds. An AppWrapper that was written in
/// the same second in which recording began would be trusted, and its items created on behalf of
/// the user it names.
async fn remove_unrecorded_authors(api_client: &InProcessClient) -> anyhow::Result<()> {
    let all = AppWrapper::RESOURCE.collection("")?;
    let (status, list) = api_client.request(Method::GET, &all, "application/json", None).await?;
    anyhow::ensure!(status.is_success(), "could not list AppWrappers: {}", list["message"]);
    for object in list["items"].as_array().into_iter().flatten() {
        let metadata = &object["metadata"];
        if metadata["annotations"][AUTHOR_ANNOTATION].is_null() {
            continue;
        }
        let text = |field: &str| metadata[field].as_str().unwrap_or_default();
        let path = AppWrapper::RESOURCE.path(&Key::new(text("namespace"), text("name")))?;
        let patch = json!({"metadata": {"annotations": {AUTHOR_ANNOTATION: null}}});
        let merge = "application/merge-patch+json";
        let (status, said) = api_client.request(Method::PATCH, &path, merge, Some(&patch)).await?;
        let done = status.is_success() || status == StatusCode::NOT_FOUND;
        anyhow::ensure!(done, "could not remove the author from {path}: {}", said["message"]);
    }
    Ok(())
}

/// Returns the client configuration with which a server calls the service, at a path.
pub(crate) fn service(namespace: &str, path: &str) -> Value {
    json!({"service": {"namespace": namespace, "name": SERVICE, "port": 443, "path": path}})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::document;
    use crate::config::keys::KEYS;

    #[test]
    fn only_enabled_webhooks_are_called() {
        let review = json!({"request": {"uid": "u"}});
        let names = |hooks: &AdmissionHooks| -> Vec<String> {
            let caller = HookCaller { client: &|_| json!({}), host: Host::Cluster, user: "u" };
            let name = |it: &HookConfiguration| {
                it.configuration["metadata"]["name"].as_str().unwrap().to_owned()
            };
            hooks.configurations(&caller).iter().map(name).collect()
        };
        let (on, authors) =
            ("devices: {enabled: true, webhook: {enabled: true}}", "checkUserAccess");
        let table = [
            ("nothing", String::new(), (false, false), None, vec![]),
            (
                "devices",
                on.to_owned(),
                (true, false),
                Some("devices"),
                vec!["gantry-devices", "gantry-devices"],
            ),
            (
                "devices without the webhook",
                "devices: {enabled: true}".to_owned(),
                (false, false),
                None,
                vec![],
            ),
            (
                "authors",
                format!("mcad: {{{authors}: true}}"),
                (false, true),
                Some("the authors of AppWrappers"),
                vec!["gantry-queue"],
            ),
            (
                "no authors without a queue",
                format!("mcadEnabled: false\nmcad: {{{authors}: true}}"),
                (false, false),
                None,
                vec![],
            ),
            (
                "both",
                format!("{on}\nmcad: {{{authors}: true}}"),
                (true, true),
                Some("the authors of AppWrappers and devices"),
                vec!["gantry-queue", "gantry-devices", "gantry-devices"],
            ),
        ];
        for (why, text, (devices, recorded), topics, configured) in table {
            let (layer, _) = document::read(&text, "f");
            let values = Values::from_layers(KEYS.as_slice(), [&layer]);
            let hooks = AdmissionHooks::new(&values, &HostExtensions::default()).unwrap();
            assert_eq!(hooks.topics().as_deref(), topics, "{why}");
            assert_eq!(names(&hooks), configured, "{why}");
            assert_eq!(hooks.needs_operator_user(), devices, "{why}");
            let paths =
                [(author::WEBHOOK_PATH, recorded), ("/devices/mutate", devices), ("/x", false)];
            for (path, asked) in paths {
                assert_eq!(hooks.handles_path(path), asked, "{why}: {path}");
                assert_eq!(hooks.review(path, &review).is_some(), asked, "{why}: {path}");
            }
        }
    }
}
