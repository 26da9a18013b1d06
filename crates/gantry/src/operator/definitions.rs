//! Whether the kinds the operator works on exist in the cluster.

use std::time::Duration;

use gantry_api::kind::Kind;
use gantry_process::clock::Clock;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;

use super::cluster::{Asked, CallError, call};

/// A definition that is needed and of no use as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The name of the CustomResourceDefinition.
    pub name: String,
    /// What is wrong with it.
    pub why: Lack,
}

/// What is wrong with a definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lack {
    /// It is not there.
    Absent,
    /// The server does not serve it yet, or never will; its conditions say why.
    NotEstablished,
    /// It does not serve the version that Gantry speaks.
    NotServed {
        /// The version.
        version: &'static str,
    },
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, why } = self;
        match why {
            Lack::Absent => write!(f, "{name} (absent)"),
            Lack::NotEstablished => write!(f, "{name} (not established)"),
            Lack::NotServed { version } => write!(f, "{name} (does not serve {version})"),
        }
    }
}

/// What tells the user which definitions are missing and how to install them.
#[must_use]
pub fn complaint(missing: &[Missing]) -> String {
    let names: Vec<_> = missing.iter().map(ToString::to_string).collect();
    format!(
        "the cluster lacks CustomResourceDefinitions that the configuration needs: {}; install \
         them with: gantry crds | kubectl apply --server-side -f -",
        names.join(", ")
    )
}

/// How long a server may take to serve definitions that are there: it answers for a kind a moment
/// before it says so, and takes five seconds where there are several servers.
const PATIENCE: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(100);

/// The definitions of these kinds that cannot be used. Those that lack nothing but the server's word
/// are given some time.
///
/// # Errors
/// The server did not say.
pub async fn missing_definitions(
    client: &kube::Client,
    clock: &Clock,
    kinds: &[&Kind],
) -> Result<Vec<Missing>, CallError> {
    let give_up = clock.moment() + PATIENCE;
    let mut waits = false;
    loop {
        let missing = look(client, clock, kinds).await?;
        let soon = missing.iter().all(|it| it.why == Lack::NotEstablished);
        if missing.is_empty() || !soon || clock.moment() >= give_up {
            return Ok(missing);
        }
        if !std::mem::replace(&mut waits, true) {
            let names: Vec<_> = missing.iter().map(|it| it.name.as_str()).collect();
            let names = names.join(", ");
            tracing::info!(names, "waiting for the server to serve new definitions");
        }
        clock.sleep(PAUSE).await;
    }
}

/// The definitions of these kinds that cannot be used at this moment.
async fn look(
    client: &kube::Client,
    clock: &Clock,
    kinds: &[&Kind],
) -> Result<Vec<Missing>, CallError> {
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    let mut missing = Vec::new();
    for kind in kinds {
        let name = kind.crd_name();
        let asked = || Asked {
            verb: "get",
            resource: "customresourcedefinitions.apiextensions.k8s.io",
            name: name.clone(),
            namespace: None,
        };
        let found = call(clock, asked, definitions.get_opt(&name)).await?;
        missing.extend(judge(kind, found.as_ref()).map(|why| Missing { name, why }));
    }
    Ok(missing)
}

fn judge(kind: &Kind, found: Option<&CustomResourceDefinition>) -> Option<Lack> {
    let Some(definition) = found else { return Some(Lack::Absent) };
    let conditions = definition.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let established = |it: &str, status: &str| it == "Established" && status == "True";
    let served = |version: &str| version == kind.version;
    let mut versions = definition.spec.versions.iter().filter(|version| version.served);
    if !conditions.into_iter().any(|it| established(&it.type_, &it.status)) {
        Some(Lack::NotEstablished)
    } else if !versions.any(|version| served(&version.name)) {
        Some(Lack::NotServed { version: kind.version })
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use gantry_api::object::KINDS;
    use gantry_process::clock::Hand;
    use http::{Request, Response};
    use http_body_util::Full;
    use serde_json::{Value, json};
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn definition(kind: &Kind, change: impl FnOnce(&mut Value)) -> CustomResourceDefinition {
        let mut value = kind.crd();
        value["status"] = json!({ "conditions": [{ "type": "Established", "status": "True" }] });
        change(&mut value);
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_definition_must_be_established_and_serve_our_version() {
        let kind = &KINDS[0];
        let judged = |change: fn(&mut Value)| judge(kind, Some(&definition(kind, change)));
        assert_eq!(judge(kind, None), Some(Lack::Absent));
        assert_eq!(judged(|_| ()), None);
        assert_eq!(judged(|it| it["status"] = json!(null)), Some(Lack::NotEstablished));
        let refused = |it: &mut Value| it["status"]["conditions"][0]["status"] = json!("False");
        assert_eq!(judged(refused), Some(Lack::NotEstablished));
        let other = Some(Lack::NotServed { version: kind.version });
        assert_eq!(judged(|it| it["spec"]["versions"][0]["name"] = json!("v9")), other);
        assert_eq!(judged(|it| it["spec"]["versions"][0]["served"] = json!(false)), other);
    }

    /// A server that says of its only definition what it is told to, one answer after the other; the last
    /// for ever.
    fn server(answers: Vec<Option<Value>>) -> (kube::Client, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let client = gantry_controller::transport::in_process(move |_: Request<Bytes>| {
            let at = count.fetch_add(1, Ordering::Relaxed).min(answers.len() - 1);
            let (code, body) = match &answers[at] {
                Some(object) => (200, object.clone()),
                None => (404, json!({ "kind": "Status", "code": 404, "reason": "NotFound" })),
            };
            let body = Full::new(Bytes::from(body.to_string()));
            async move { Response::builder().status(code).body(body).unwrap() }
        });
        (client, asked)
    }

    /// Kubernetes lists objects of a kind a moment before it calls its definition established.
    #[tokio::test]
    async fn a_definition_that_is_new_is_waited_for() {
        let kind = &KINDS[0];
        let json = |change: fn(&mut Value)| Some(json!(definition(kind, change)));
        let (new, served) = (json(|it| it["status"] = json!(null)), json(|_| ()));
        let elsewhere = json(|it| it["spec"]["versions"][0]["name"] = json!("v9"));
        let table = [
            ("it comes", vec![new.clone(), new.clone(), served], None, 3..=3),
            ("it never comes", vec![new], Some(Lack::NotEstablished), 2..=151),
            ("it is not there", vec![None], Some(Lack::Absent), 1..=1),
            (
                "another one",
                vec![elsewhere],
                Some(Lack::NotServed { version: kind.version }),
                1..=1,
            ),
        ];
        for (case, answers, expected, times) in table {
            let hand = Hand::at(jiff::Timestamp::UNIX_EPOCH);
            let (client, asked) = server(answers);
            let clock = hand.clock();
            let kinds = [kind];
            let mut looks = pin!(missing_definitions(&client, &clock, &kinds));
            let found = loop {
                tokio::select! {
                    biased;
                    found = &mut looks => break found.unwrap(),
                    () = hand.advance(PAUSE) => {}
                }
            };
            let why = found.first().map(|it| it.why.clone());
            assert_eq!(why, expected, "{case}");
            let asked = asked.load(Ordering::Relaxed);
            assert!(times.contains(&asked), "{case}: asked {asked} times");
        }
    }

    #[test]
    fn the_complaint_names_each_and_the_remedy() {
        let missing = [
            Missing { name: "a.b".to_owned(), why: Lack::Absent },
            Missing { name: "c.d".to_owned(), why: Lack::NotServed { version: "v1" } },
        ];
        let said = complaint(&missing);
        assert!(said.contains("a.b (absent), c.d (does not serve v1); install them"), "{said}");
        assert!(said.ends_with("gantry crds | kubectl apply --server-side -f -"), "{said}");
    }
}
