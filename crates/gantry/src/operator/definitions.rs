//! Whether the kinds the operator works on exist in the cluster.

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

/// The definitions of these kinds that cannot be used.
///
/// # Errors
/// The server did not say.
pub async fn missing_definitions(
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
    use gantry_api::object::KINDS;
    use serde_json::{Value, json};

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
