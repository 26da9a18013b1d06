//! What API servers ask about what is written, who answers, and how they are told to ask.

use anyhow::Context as _;
use gantry_apiserver::Api;
use gantry_placement::admission::{self, Failure, Mode, Question};
use gantry_queue::app_wrapper::{AUTHOR, AppWrapper};
use gantry_queue::author;
use gantry_reconcile::{Key, View as _};
use gantry_sharing::inventory::ObjectKind;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::manifests::NAMESPACE;
use crate::up::{Door, SOURCE};
use gantry_queue::effects::admission::LeafAdmission;

/// The service behind which the operator answers.
pub const SERVICE: &str = "gantry-webhook";

/// What is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Questions {
    /// About pods that claim devices, and the objects of their group; nobody asks where there is none.
    pub devices: Option<Mode>,
    /// Who makes AppWrappers.
    pub authors: bool,
}

/// What tells a server to ask, and in whose name it is written.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// Who owns its fields.
    pub manager: &'static str,
    /// A MutatingWebhookConfiguration or a ValidatingWebhookConfiguration.
    pub configuration: Value,
}

impl Questions {
    /// What it is about, for people; nothing where nothing is asked.
    #[must_use]
    pub fn topics(&self) -> Option<&'static str> {
        match (self.devices.is_some(), self.authors) {
            (true, true) => Some("devices and the authors of AppWrappers"),
            (true, false) => Some("devices"),
            (false, true) => Some("the authors of AppWrappers"),
            (false, false) => None,
        }
    }

    /// The answer to a review that was sent to a path; nothing where nothing is asked there.
    #[must_use]
    pub fn answer(&self, path: &str, review: &Value) -> Option<Value> {
        if self.authors && path == author::PATH {
            return Some(author::answer(review));
        }
        let (mode, question) = self.devices.zip(Question::at(path))?;
        Some(admission::answer(mode, question, review))
    }

    /// The same, with what the queue says about the leaves that AppWrappers name.
    #[must_use]
    pub fn answer_with(&self, path: &str, review: &Value, leaves: &LeafAdmission) -> Option<Value> {
        let answer = self.answer(path, review)?;
        Some(if path == author::PATH { leaves.complete(review, answer) } else { answer })
    }

    /// Whether anything is asked at a path.
    #[must_use]
    pub fn are_asked_at(&self, path: &str) -> bool {
        self.authors && path == author::PATH
            || self.devices.is_some() && Question::at(path).is_some()
    }

    /// What tells a server to ask. `client` says how whoever answers is reached at a path; `pods` what
    /// becomes of pods with devices when nobody does; `allocator` is the user that gives devices to pods.
    #[must_use]
    pub fn configurations(
        &self,
        client: impl Fn(&str) -> Value,
        pods: Failure,
        allocator: &str,
    ) -> Vec<Told> {
        let devices = self.devices.map(|_| admission::configurations(&client, pods, allocator));
        let devices = devices.into_iter().flatten();
        let devices = devices
            .map(|it| Told { manager: gantry_placement::subsystem::MANAGER, configuration: it });
        let authors = self.authors.then(|| author::configuration(&client));
        let authors =
            authors.map(|it| Told { manager: gantry_queue::subsystem::NAME, configuration: it });
        devices.chain(authors).collect()
    }
}

/// Lets the embedded server ask, of which nothing is heard outside the process. The configurations are
/// objects like any other; whoever deletes them is not asked any more until the next start.
///
/// # Errors
/// The server refuses them.
pub async fn settle(
    api: &Api,
    door: &Door,
    questions: Questions,
    leaves: LeafAdmission,
) -> anyhow::Result<()> {
    api.answer(NAMESPACE, SERVICE, move |path, review| {
        questions.answer_with(path, review, &leaves).unwrap_or_else(|| json!({}))
    });
    if !questions.authors {
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
    let begins = questions.authors && status == StatusCode::NOT_FOUND;
    // It cannot be absent while the server is there; where a server is started without it, on the
    // same directory, pods are as on any other.
    let client = |path: &str| service(NAMESPACE, path);
    for told in
        questions.configurations(client, Failure::Ignore, gantry_placement::subsystem::ACCOUNT)
    {
        let configuration = told.configuration;
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

    #[test]
    fn what_is_switched_on_is_asked_and_nothing_else() {
        let (devices, authors) = (Some(Mode::Gate), author::PATH);
        let review = json!({"request": {"uid": "u"}});
        let names = |questions: Questions| -> Vec<String> {
            let all = questions.configurations(|_| json!({}), Failure::Refuse, "u");
            let name =
                |it: &Told| it.configuration["metadata"]["name"].as_str().unwrap().to_owned();
            all.iter().map(name).collect()
        };
        let table = [
            (None, false, None, vec![]),
            (devices, false, Some("devices"), vec!["gantry-devices", "gantry-devices"]),
            (None, true, Some("the authors of AppWrappers"), vec!["gantry-queue"]),
            (
                devices,
                true,
                Some("devices and the authors of AppWrappers"),
                vec!["gantry-devices", "gantry-devices", "gantry-queue"],
            ),
        ];
        for (devices, is_on, topics, configured) in table {
            let questions = Questions { devices, authors: is_on };
            assert_eq!(questions.topics(), topics);
            assert_eq!(names(questions), configured);
            let paths = [(authors, is_on), ("/devices/mutate", devices.is_some()), ("/x", false)];
            for (path, asked) in paths {
                assert_eq!(questions.are_asked_at(path), asked, "{path}");
                assert_eq!(questions.answer(path, &review).is_some(), asked, "{path}");
            }
        }
    }
}
