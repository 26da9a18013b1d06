//! Reads Secrets and ConfigMaps that Modules name, and events of their pods, one by one.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use gantry_api::kernel_modules::dockerfile_problem;
use gantry_controller::external::{BoxFuture, Responder, ResponderContext};
use gantry_controller::read::{self, ReadBounds, ReadError};
use gantry_oci::Digest;
use gantry_process::clock::Clock;
use gantry_process::error_chain;
use gantry_reconcile::api_path::Parameter;
use gantry_reconcile::{ApiPath, Key, Resource};
use gantry_registry::CredentialFile;
use kube::Client;
use serde_json::{Value, json};

use crate::facts::{
    BuildFiles, BuildFilesQuery, BuildFilesState, FailedHook, FailedHookQuery, SecretQuery,
    SecretState,
};
use crate::job::CA_KEY;

/// The limits of one read: no Secret and no ConfigMap is larger.
const BOUNDS: ReadBounds = ReadBounds { time: Duration::from_secs(10), bytes: 4 << 20 };

const SECRETS: Resource = Resource::namespaced("", "v1", "secrets", "Secret").without_status();
const CONFIG_MAPS: Resource =
    Resource::namespaced("", "v1", "configmaps", "ConfigMap").without_status();

/// Reads objects by name with the controllers' account.
#[derive(Clone)]
pub struct ObjectReader {
    client: Client,
}

impl std::fmt::Debug for ObjectReader {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("ObjectReader")
    }
}

/// Why credentials could not be read.
#[derive(Debug, thiserror::Error)]
pub enum CredentialReadError {
    /// The Secret does not exist.
    #[error("Secret {0} does not exist")]
    Missing(String),
    /// It could not be read.
    #[error("could not read Secret {name}")]
    Read {
        /// Its name.
        name: String,
        /// Why.
        source: Box<ReadError>,
    },
    /// It holds no credentials.
    #[error(
        "Secret {0} has neither the key .dockerconfigjson nor .dockercfg; create it with `kubectl \
         create secret docker-registry`"
    )]
    NoCredentials(String),
    /// Its credentials are malformed.
    #[error("Secret {name}: {why}")]
    Malformed {
        /// Its name.
        name: String,
        /// Why.
        why: String,
    },
}

impl ObjectReader {
    /// Reads with this client.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// The object with a name; `None` if it does not exist.
    async fn read(
        &self,
        clock: &Clock,
        resource: &Resource,
        key: &Key,
    ) -> Result<Option<Value>, ReadError> {
        // Names come from Modules, and one that no object can have belongs to none.
        let Ok(path): Result<ApiPath, _> = resource.path(key) else { return Ok(None) };
        match read::get(&self.client, clock, &path, BOUNDS).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Which version of a Secret there is. It may be a private key, which signing Jobs alone read:
    /// the server is not asked for its content.
    pub(crate) async fn secret_state(
        &self,
        clock: &Clock,
        SecretQuery { namespace, name }: &SecretQuery,
    ) -> Result<SecretState, String> {
        // A name that no object can have belongs to none.
        let Ok(path) = SECRETS.path(&Key::new(namespace, name)) else {
            return Ok(SecretState::Missing);
        };
        let secret = match read::metadata(&self.client, clock, &path, BOUNDS).await {
            Err(error) if error.is_not_found() => return Ok(SecretState::Missing),
            secret => secret.map_err(|error| error_chain(&error))?,
        };
        let text = |field: &str| secret["metadata"][field].as_str().unwrap_or_default();
        let version = format!("{}/{}", text("uid"), text("resourceVersion"));
        Ok(SecretState::Present { version })
    }

    /// The credentials of a Secret.
    pub(super) async fn credentials(
        &self,
        clock: &Clock,
        namespace: &str,
        name: &str,
    ) -> Result<CredentialFile, CredentialReadError> {
        let secret = self.read(clock, &SECRETS, &Key::new(namespace, name)).await;
        let secret = secret.map_err(|source| CredentialReadError::Read {
            name: name.to_owned(),
            source: Box::new(source),
        })?;
        let secret = secret.ok_or_else(|| CredentialReadError::Missing(name.to_owned()))?;
        let value = [".dockerconfigjson", ".dockercfg"]
            .iter()
            .find_map(|key| secret["data"][*key].as_str())
            .ok_or_else(|| CredentialReadError::NoCredentials(name.to_owned()))?;
        let malformed = |why: String| CredentialReadError::Malformed { name: name.to_owned(), why };
        let text = STANDARD.decode(value).map_err(|_| malformed("not base64".to_owned()))?;
        CredentialFile::parse(&text).map_err(|error| malformed(error_chain(&error)))
    }
}

/// Why certificates could not be read.
#[derive(Debug, thiserror::Error)]
#[error("could not read ConfigMap {name} with certificates of registries")]
pub(super) struct CaBundleError {
    name: String,
    source: Box<ReadError>,
}

impl ObjectReader {
    /// The certificates of registries in a ConfigMap; `None` if there is none, or it has none.
    pub(super) async fn ca_bundle(
        &self,
        clock: &Clock,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Bytes>, CaBundleError> {
        let map = self.read(clock, &CONFIG_MAPS, &Key::new(namespace, name)).await;
        let map = map.map_err(|source| CaBundleError {
            name: format!("{namespace}/{name}"),
            source: Box::new(source),
        })?;
        let text = map.as_ref().and_then(|it| it["data"][CA_KEY].as_str());
        Ok(text.map(|it| Bytes::from(it.to_owned())))
    }
}

impl Responder<SecretState> for ObjectReader {
    fn answer<'a>(
        &'a self,
        question: &'a SecretQuery,
        context: &'a ResponderContext,
    ) -> BoxFuture<'a, Result<SecretState, String>> {
        Box::pin(async move { self.secret_state(&context.clock, question).await })
    }
}

impl Responder<BuildFilesState> for ObjectReader {
    fn answer<'a>(
        &'a self,
        question: &'a BuildFilesQuery,
        context: &'a ResponderContext,
    ) -> BoxFuture<'a, Result<BuildFilesState, String>> {
        Box::pin(async move {
            let BuildFilesQuery { namespace, config_map, files } = question;
            let key = Key::new(namespace, config_map);
            let map = self.read(&context.clock, &CONFIG_MAPS, &key).await;
            let map = map.map_err(|error| error_chain(&error))?;
            Ok(map.map_or(BuildFilesState::Missing, |it| files_of(&it, *files)))
        })
    }
}

/// The files of a build in a ConfigMap.
fn files_of(map: &Value, files: BuildFiles) -> BuildFilesState {
    let present = |digest: Digest, problem: Option<&str>| BuildFilesState::Present {
        digest: digest.to_string(),
        problem: problem.map(str::to_owned),
    };
    match files {
        BuildFiles::Dockerfile => match map["data"]["dockerfile"].as_str() {
            None => BuildFilesState::NoKey,
            Some(text) => present(Digest::sha256(text.as_bytes()), dockerfile_problem(text)),
        },
        BuildFiles::Context => {
            // Sorted, and with the boundaries of names and contents.
            let mut content = BTreeMap::new();
            for field in ["data", "binaryData"] {
                for (name, text) in map[field].as_object().into_iter().flatten() {
                    content.insert((field, name), text);
                }
            }
            let content: Vec<_> = content.into_iter().collect();
            present(Digest::sha256(json!(content).to_string().as_bytes()), None)
        }
    }
}

/// How many events of a pod are read; kubelets count repetitions in one.
const MAX_EVENTS: u32 = 20;

impl Responder<FailedHook> for ObjectReader {
    fn answer<'a>(
        &'a self,
        question: &'a FailedHookQuery,
        context: &'a ResponderContext,
    ) -> BoxFuture<'a, Result<FailedHook, String>> {
        Box::pin(async move {
            let FailedHookQuery { namespace, pod, uid } = question;
            let fields = format!(
                "involvedObject.name={pod},involvedObject.uid={},reason=FailedPostStartHook",
                uid.as_str()
            );
            let path = ApiPath::collection("v1", namespace, "events");
            let path = path.map_err(|error| error_chain(&error))?;
            let path = path.with(Parameter::FieldSelector(&fields));
            let path = path.with(Parameter::Limit(MAX_EVENTS));
            let events = read::get(&self.client, &context.clock, &path, BOUNDS).await;
            let events = events.map_err(|error| error_chain(&error))?;
            Ok(FailedHook { message: last_hook_message(&events) })
        })
    }
}

/// The words of the last event about a failed hook: without those of the kubelet, which newer
/// kubelets send alone.
fn last_hook_message(events: &Value) -> String {
    let time = |event: &Value| {
        let times = ["lastTimestamp", "eventTime", "firstTimestamp"];
        times.iter().find_map(|it| event[*it].as_str()).unwrap_or_default().to_owned()
    };
    let last = events["items"].as_array().into_iter().flatten().max_by_key(|it| time(it));
    let message = last.and_then(|it| it["message"].as_str()).unwrap_or_default();
    let message = message.strip_prefix("PostStartHook failed").unwrap_or(message);
    message.trim_start_matches([':', ' ']).to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use gantry_controller::transport::in_process;
    use gantry_process::clock::FakeClock;
    use http::header::ACCEPT;
    use http::{Request, Response};
    use http_body_util::Full;
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn the_last_event_about_a_hook_is_read() {
        let event = |message: &str, at: &str| json!({"message": message, "lastTimestamp": at});
        let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:09Z");
        let table = [
            (json!({"items": []}), ""),
            (json!({}), ""),
            (json!({"items": [event("PostStartHook failed", early)]}), ""),
            (json!({"items": [event("PostStartHook failed: b", late)]}), "b"),
            (json!({"items": [event("c", early)]}), "c"),
            (
                json!({"items": [
                    event("PostStartHook failed: new", late),
                    event("PostStartHook failed: old", early),
                    {"message": "PostStartHook failed: no time"},
                ]}),
                "new",
            ),
        ];
        for (events, expected) in table {
            assert_eq!(last_hook_message(&events), expected, "{events}");
        }
    }

    #[test]
    fn files_of_a_build_are_known_by_their_content() {
        let digest = |map: Value, files: BuildFiles| match files_of(&map, files) {
            BuildFilesState::Present { digest, .. } => digest,
            BuildFilesState::NoKey => "no key".to_owned(),
            BuildFilesState::Missing => "missing".to_owned(),
        };
        let context = |map: Value| digest(map, BuildFiles::Context);
        let first = context(json!({"data": {"a": "1", "b": "2"}}));
        assert_eq!(first, context(json!({"data": {"b": "2", "a": "1"}, "metadata": {}})));
        let others = [
            json!({"data": {"a": "1", "b": "3"}}),
            json!({"data": {"a": "1", "c": "2"}}),
            json!({"data": {"a": "1"}}),
            json!({"data": {"a": "1"}, "binaryData": {"b": "2"}}),
            json!({}),
        ];
        for other in others {
            assert_ne!(context(other.clone()), first, "{other}");
        }
        let dockerfile = |map: Value| digest(map, BuildFiles::Dockerfile);
        assert_eq!(dockerfile(json!({"data": {"a": "1"}})), "no key");
        let text = Digest::sha256(b"FROM a").to_string();
        assert_eq!(dockerfile(json!({"data": {"dockerfile": "FROM a", "a": "1"}})), text);
        let map = json!({"data": {"dockerfile": "RUN make"}});
        let state = files_of(&map, BuildFiles::Dockerfile);
        let BuildFilesState::Present { problem: Some(problem), .. } = state else {
            panic!("{state:?}")
        };
        assert!(problem.contains("start with FROM image"), "{problem}");
    }

    /// MC-11: of a key its version is known; the server is not even asked for the rest.
    #[tokio::test]
    async fn the_content_of_keys_is_not_requested() {
        let accepted = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&accepted);
        let client = in_process(move |request: Request<Bytes>| {
            let accept = request.headers()[ACCEPT].to_str().unwrap().to_owned();
            let is_metadata = accept.contains("as=PartialObjectMetadata");
            log.lock().unwrap().push((request.uri().path().to_owned(), accept));
            // As a server would that ignores the header.
            let mut secret = json!({"metadata": {"uid": "u", "resourceVersion": "7"}});
            if !is_metadata {
                secret["data"] = json!({"key": "cHJpdmF0ZQ=="});
            }
            async move { Response::new(Full::new(Bytes::from(secret.to_string()))) }
        });
        let reader = ObjectReader::new(client);
        let query = SecretQuery { namespace: "drivers".to_owned(), name: "signing".to_owned() };
        let clock = FakeClock::at(Timestamp::UNIX_EPOCH).clock();
        let state = reader.secret_state(&clock, &query).await;
        assert_eq!(state, Ok(SecretState::Present { version: "u/7".to_owned() }));
        let accepted = accepted.lock().unwrap();
        let [(path, accept)] = accepted.as_slice() else { panic!("{accepted:?}") };
        assert_eq!(path, "/api/v1/namespaces/drivers/secrets/signing");
        assert!(accept.contains("as=PartialObjectMetadata"), "{accept}");
    }
}
