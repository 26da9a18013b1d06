//! The admission webhooks of all subsystems: how reviews are answered, and how API servers are configured to send them.

use std::sync::Arc;

use anyhow::Context as _;
use gantry_apiserver::Api;
use gantry_queue::app_wrapper::{AUTHOR, AppWrapper};
use gantry_queue::author;
use gantry_reconcile::{Key, View as _};
use gantry_sharing::inventory::ObjectKind;
use gantry_subsystem::Host;
use gantry_subsystem::admission::{HookCaller, SharedHook};
use gantry_subsystem::settings::Values;
use gantry_subsystem::start::Offers;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::manifests::NAMESPACE;
use crate::subsystems::SUBSYSTEMS;
use crate::up::{Door, SOURCE};

/// The service behind which the operator answers.
pub const SERVICE: &str = "gantry-webhook";

/// The webhooks that are switched on. Clones are the same ones.
#[derive(Clone, Debug, Default)]
pub struct AdmissionHooks(Arc<[SharedHook]>);

/// What tells a server to ask, and in whose name it is written.
#[derive(Clone, Debug, PartialEq)]
pub struct HookConfiguration {
    /// Who owns its fields.
    pub manager: &'static str,
    /// A MutatingWebhookConfiguration or a ValidatingWebhookConfiguration.
    pub configuration: Value,
}

impl AdmissionHooks {
    /// Those of all subsystems.
    ///
    /// # Errors
    /// The settings were not checked.
    pub fn new(values: &Values, offers: &Offers) -> Result<Self, serde_json::Error> {
        let mut all = Vec::new();
        for subsystem in SUBSYSTEMS {
            all.extend((subsystem.hooks)(values, offers)?);
        }
        Ok(Self(all.into()))
    }

    /// What they are about, for people; nothing where none is switched on.
    #[must_use]
    pub fn topics(&self) -> Option<String> {
        let topics: Vec<&str> = self.0.iter().map(|it| it.topic()).collect();
        (!topics.is_empty()).then(|| topics.join(" and "))
    }

    /// The answer to a review that was sent to a path; nothing where nothing is asked there.
    #[must_use]
    pub fn review(&self, path: &str, review: &Value) -> Option<Value> {
        self.called_at(path).map(|it| it.review(path, review))
    }

    /// Whether anything is asked at a path.
    #[must_use]
    pub fn is_called_at(&self, path: &str) -> bool {
        self.called_at(path).is_some()
    }

    fn called_at(&self, path: &str) -> Option<&SharedHook> {
        self.0.iter().find(|it| it.is_called_at(path))
    }

    /// Whether the user of the operator has to be known for the configurations.
    #[must_use]
    pub fn names_user(&self) -> bool {
        self.0.iter().any(|it| it.names_user())
    }

    /// What tells a server to ask.
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

/// Lets the embedded server ask, of which nothing is heard outside the process. The configurations are
/// objects like any other; when a user deletes them, no reviews are sent until the next start.
///
/// # Errors
/// The server refuses them.
pub async fn settle(api: &Api, door: &Door, hooks: &AdmissionHooks) -> anyhow::Result<()> {
    let answers = hooks.clone();
    api.answer(NAMESPACE, SERVICE, move |path, review| {
        answers.review(path, review).unwrap_or_else(|| json!({}))
    });
    let records_authors = hooks.is_called_at(author::PATH);
    if !records_authors {
        // Nobody answers, and what is made until somebody does has no author that can be believed.
        let path = ObjectKind::MutatingWebhookConfiguration.path(author::CONFIGURATION)?;
        let (_, found) = door.ask(Method::GET, &path, "application/json", None).await?;
        // That of an operator is left to it.
        if found["metadata"]["annotations"][SOURCE].is_string() {
            let (status, said) = door.ask(Method::DELETE, &path, "application/json", None).await?;
            let gone = status.is_success() || status == StatusCode::NOT_FOUND;
            anyhow::ensure!(gone, "could not remove {path}: {}", said["message"]);
        }
    }
    let path = ObjectKind::MutatingWebhookConfiguration.path(author::CONFIGURATION)?;
    let (status, _) = door.ask(Method::GET, &path, "application/json", None).await?;
    let begins = records_authors && status == StatusCode::NOT_FOUND;
    let client = |path: &str| service(NAMESPACE, path);
    let caller = HookCaller { client: &client, host: Host::Embedded, user: "" };
    for HookConfiguration { configuration, .. } in hooks.configurations(&caller) {
        let kind = configuration["kind"].as_str().unwrap_or_default();
        let kind = ObjectKind::of(kind).context("a configuration is of an unknown kind")?;
        let path = kind.path(configuration["metadata"]["name"].as_str().unwrap_or_default())?;
        let installed = door.install(&path, &configuration).await;
        installed.with_context(|| format!("could not install {path}"))?;
    }
    if begins {
        remove_unrecorded_authors(door).await?;
    }
    Ok(())
}

/// Removes the authors that AppWrappers name from before authors were recorded: anybody could write those.
///
/// The queue compares times for that, which are whole seconds. One that was written in the very second in which
/// recording began would be believed, and its items created in the name of whomever it names.
async fn remove_unrecorded_authors(door: &Door) -> anyhow::Result<()> {
    let all = AppWrapper::RESOURCE.collection("")?;
    let (status, list) = door.ask(Method::GET, &all, "application/json", None).await?;
    anyhow::ensure!(status.is_success(), "could not list AppWrappers: {}", list["message"]);
    for object in list["items"].as_array().into_iter().flatten() {
        let metadata = &object["metadata"];
        if metadata["annotations"][AUTHOR].is_null() {
            continue;
        }
        let text = |field: &str| metadata[field].as_str().unwrap_or_default();
        let path = AppWrapper::RESOURCE.path(&Key::new(text("namespace"), text("name")))?;
        let patch = json!({"metadata": {"annotations": {AUTHOR: null}}});
        let merge = "application/merge-patch+json";
        let (status, said) = door.ask(Method::PATCH, &path, merge, Some(&patch)).await?;
        let done = status.is_success() || status == StatusCode::NOT_FOUND;
        anyhow::ensure!(done, "could not remove the author from {path}: {}", said["message"]);
    }
    Ok(())
}

/// How a server reaches the service, at a path.
pub(crate) fn service(namespace: &str, path: &str) -> Value {
    json!({"service": {"namespace": namespace, "name": SERVICE, "port": 443, "path": path}})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::document;
    use crate::config::keys::KEYS;

    #[test]
    fn what_is_switched_on_is_asked_and_nothing_else() {
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
            let values = Values::stack(KEYS.as_slice(), [&layer]);
            let hooks = AdmissionHooks::new(&values, &Offers::default()).unwrap();
            assert_eq!(hooks.topics().as_deref(), topics, "{why}");
            assert_eq!(names(&hooks), configured, "{why}");
            assert_eq!(hooks.names_user(), devices, "{why}");
            let paths = [(author::PATH, recorded), ("/devices/mutate", devices), ("/x", false)];
            for (path, asked) in paths {
                assert_eq!(hooks.is_called_at(path), asked, "{why}: {path}");
                assert_eq!(hooks.review(path, &review).is_some(), asked, "{why}: {path}");
            }
        }
    }
}
