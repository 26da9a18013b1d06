//! Checks that the kinds the operator works on exist in the cluster.

use std::time::Duration;

use gantry_api::kind::Kind;
use gantry_process::clock::Clock;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;

use super::cluster::{CallError, RequestDescription, call};

/// A required definition that is missing or unusable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingDefinition {
    /// The name of the CustomResourceDefinition.
    pub name: String,
    /// What is wrong with it.
    pub problem: DefinitionProblem,
}

/// What is wrong with a definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DefinitionProblem {
    /// It does not exist.
    Absent,
    /// The server does not serve it yet, or never will; its conditions say why.
    NotEstablished,
    /// It does not serve the version that Gantry uses.
    NotServed {
        /// The version.
        version: &'static str,
    },
}

impl std::fmt::Display for MissingDefinition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, problem: why } = self;
        match why {
            DefinitionProblem::Absent => write!(f, "{name} (absent)"),
            DefinitionProblem::NotEstablished => write!(f, "{name} (not established)"),
            DefinitionProblem::NotServed { version } => {
                write!(f, "{name} (does not serve {version})")
            }
        }
    }
}

/// Builds the message that names the missing definitions and how to install them.
#[must_use]
pub fn missing_message(missing: &[MissingDefinition]) -> String {
    let names: Vec<_> = missing.iter().map(ToString::to_string).collect();
    format!(
        "the cluster lacks CustomResourceDefinitions that the configuration needs: {}; install \
         them with: gantry crds | kubectl apply --server-side -f -",
        names.join(", ")
    )
}

/// How long a server may take to serve existing definitions: it answers for a kind shortly before
/// the definition is established, and takes five seconds if there are several servers.
const ESTABLISH_TIMEOUT: Duration = Duration::from_secs(15);
const ESTABLISH_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Returns the definitions of these kinds that cannot be used. Definitions that are only not
/// established yet are given some time.
///
/// # Errors
/// The server did not respond.
pub async fn missing_definitions(
    client: &kube::Client,
    clock: &Clock,
    kinds: &[&Kind],
) -> Result<Vec<MissingDefinition>, CallError> {
    let give_up = clock.moment() + ESTABLISH_TIMEOUT;
    let mut waits = false;
    loop {
        let missing = check_definitions(client, clock, kinds).await?;
        let soon = missing.iter().all(|it| it.problem == DefinitionProblem::NotEstablished);
        if missing.is_empty() || !soon || clock.moment() >= give_up {
            return Ok(missing);
        }
        if !std::mem::replace(&mut waits, true) {
            let names: Vec<_> = missing.iter().map(|it| it.name.as_str()).collect();
            let names = names.join(", ");
            tracing::info!(names, "waiting for the server to serve new definitions");
        }
        clock.sleep(ESTABLISH_POLL_INTERVAL).await;
    }
}

/// Returns the definitions of these kinds that cannot be used at this moment.
async fn check_definitions(
    client: &kube::Client,
    clock: &Clock,
    kinds: &[&Kind],
) -> Result<Vec<MissingDefinition>, CallError> {
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    let mut missing = Vec::new();
    for kind in kinds {
        let name = kind.crd_name();
        let asked = || RequestDescription {
            verb: "get",
            resource: "customresourcedefinitions.apiextensions.k8s.io",
            name: name.clone(),
            namespace: None,
        };
        let found = call(clock, asked, definitions.get_opt(&name)).await?;
        missing.extend(
            check_definition(kind, found.as_ref())
                .map(|why| MissingDefinition { name, problem: why }),
        );
    }
    Ok(missing)
}

fn check_definition(
    kind: &Kind,
    found: Option<&CustomResourceDefinition>,
) -> Option<DefinitionProblem> {
    let Some(definition) = found else { return Some(DefinitionProblem::Absent) };
    let conditions = definition.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let established = |it: &str, status: &str| it == "Established" && status == "True";
    let served = |version: &str| version == kind.version;
    let mut versions = definition.spec.versions.iter().filter(|version| version.served);
    if !conditions.into_iter().any(|it| established(&it.type_, &it.status)) {
        Some(DefinitionProblem::NotEstablished)
    } else if !versions.any(|version| served(&version.name)) {
        Some(DefinitionProblem::NotServed { version: kind.version })
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use gantry_api::object::KINDS;
    use gantry_process::clock::FakeClock;
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
        let judged =
            |change: fn(&mut Value)| check_definition(kind, Some(&definition(kind, change)));
        assert_eq!(check_definition(kind, None), Some(DefinitionProblem::Absent));
        assert_eq!(judged(|_| ()), None);
        assert_eq!(
            judged(|it| it["status"] = json!(null)),
            Some(DefinitionProblem::NotEstablished)
        );
        let refused = |it: &mut Value| it["status"]["conditions"][0]["status"] = json!("False");
        assert_eq!(judged(refused), Some(DefinitionProblem::NotEstablished));
        let other = Some(DefinitionProblem::NotServed { version: kind.version });
        assert_eq!(judged(|it| it["spec"]["versions"][0]["name"] = json!("v9")), other);
        assert_eq!(judged(|it| it["spec"]["versions"][0]["served"] = json!(false)), other);
    }

    /// A server that returns scripted responses about its only definition; the last one is
    /// repeated.
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

    /// Kubernetes lists objects of a kind shortly before its definition is established.
    #[tokio::test]
    async fn a_definition_that_is_new_is_waited_for() {
        let kind = &KINDS[0];
        let json = |change: fn(&mut Value)| Some(json!(definition(kind, change)));
        let (new, served) = (json(|it| it["status"] = json!(null)), json(|_| ()));
        let elsewhere = json(|it| it["spec"]["versions"][0]["name"] = json!("v9"));
        let table = [
            ("it comes", vec![new.clone(), new.clone(), served], None, 3..=3),
            ("it never comes", vec![new], Some(DefinitionProblem::NotEstablished), 2..=151),
            ("it is not there", vec![None], Some(DefinitionProblem::Absent), 1..=1),
            (
                "another one",
                vec![elsewhere],
                Some(DefinitionProblem::NotServed { version: kind.version }),
                1..=1,
            ),
        ];
        for (case, answers, expected, times) in table {
            let hand = FakeClock::at(jiff::Timestamp::UNIX_EPOCH);
            let (client, asked) = server(answers);
            let clock = hand.clock();
            let kinds = [kind];
            let mut looks = pin!(missing_definitions(&client, &clock, &kinds));
            let found = loop {
                tokio::select! {
                    biased;
                    found = &mut looks => break found.unwrap(),
                    () = hand.advance(ESTABLISH_POLL_INTERVAL) => {}
                }
            };
            let why = found.first().map(|it| it.problem.clone());
            assert_eq!(why, expected, "{case}");
            let asked = asked.load(Ordering::Relaxed);
            assert!(times.contains(&asked), "{case}: asked {asked} times");
        }
    }

    #[test]
    fn the_message_names_each_and_the_remedy() {
        let missing = [
            MissingDefinition { name: "a.b".to_owned(), problem: DefinitionProblem::Absent },
            MissingDefinition {
                name: "c.d".to_owned(),
                problem: DefinitionProblem::NotServed { version: "v1" },
            },
        ];
        let said = missing_message(&missing);
        assert!(said.contains("a.b (absent), c.d (does not serve v1); install them"), "{said}");
        assert!(said.ends_with("gantry crds | kubectl apply --server-side -f -"), "{said}");
    }
}
