//! The steps on a scripted namespace: races, refusals, and what is written.

use std::cell::RefCell;
use std::collections::VecDeque;

use super::*;
use crate::config::source::{LEGACY, OWN};
use serde_json::json;

/// A namespace with scripted responses, which records the requests.
#[derive(Default)]
struct ScriptedNamespace {
    answers: RefCell<VecDeque<ScriptedResponse>>,
    asked: RefCell<Vec<String>>,
}

enum ScriptedResponse {
    Map(ConfigMapState),
    Created(bool),
    Refused(&'static str),
}

impl ScriptedNamespace {
    fn new(answers: impl IntoIterator<Item = ScriptedResponse>) -> Self {
        Self { answers: RefCell::new(answers.into_iter().collect()), ..Self::default() }
    }

    fn next(&self, asked: String) -> ScriptedResponse {
        self.asked.borrow_mut().push(asked);
        self.answers.borrow_mut().pop_front().unwrap()
    }
}

fn refused(says: &str) -> FetchError {
    let asked = RequestDescription {
        verb: "create",
        resource: "configmaps",
        name: OWN.to_owned(),
        namespace: Some("ns".to_owned()),
    };
    CallError::Forbidden { asked, says: says.to_owned() }.into()
}

impl ConfigMapStore for ScriptedNamespace {
    fn display_name(&self, name: &str) -> String {
        format!("ConfigMap ns/{name}")
    }

    async fn get(&self, name: &str) -> Result<ConfigMapState, FetchError> {
        match self.next(format!("get {name}")) {
            ScriptedResponse::Map(map) => Ok(map),
            ScriptedResponse::Refused(says) => Err(refused(says)),
            ScriptedResponse::Created(_) => panic!("asked for {name}"),
        }
    }

    async fn create(&self, name: &str, text: &str) -> Result<bool, FetchError> {
        assert_eq!(text, render::defaults().unwrap());
        match self.next(format!("create {name}")) {
            ScriptedResponse::Created(created) => Ok(created),
            ScriptedResponse::Refused(says) => Err(refused(says)),
            ScriptedResponse::Map(_) => panic!("created {name}"),
        }
    }
}

fn map(key: &str, text: &str) -> ScriptedResponse {
    ScriptedResponse::Map(ConfigMapState::Present {
        data: vec![(key.to_owned(), text.to_owned())],
        binary: Vec::new(),
    })
}

fn absent() -> ScriptedResponse {
    ScriptedResponse::Map(ConfigMapState::Absent)
}

#[tokio::test]
async fn cf_3_an_absent_map_is_created_once() {
    let script = ScriptedNamespace::new([absent(), absent(), ScriptedResponse::Created(true)]);
    let fetched =
        fetch(ConfigFile::NotConfigured, OWN, WritePolicy::Create, &script).await.unwrap();
    assert_eq!(fetched.outcome, FetchOutcome::Created);
    assert_eq!(fetched.text, render::defaults().unwrap());
    assert_eq!(fetched.source, "ConfigMap ns/gantry-config, config.yaml");
    let asked = ["get gantry-config", "get codeflare-operator-config", "create gantry-config"];
    assert_eq!(*script.asked.borrow(), asked);
}

#[tokio::test]
async fn e_4_none_is_made_two_keys_are_refused_and_a_part_keeps_the_rest() {
    let script = ScriptedNamespace::new([absent(), absent(), ScriptedResponse::Created(true)]);
    let fetched =
        fetch(ConfigFile::NotConfigured, OWN, WritePolicy::Create, &script).await.unwrap();
    assert!(fetched.source.ends_with("config.yaml"), "{}", fetched.source);
    let keys = ["a", "b"].map(|key| (key.to_owned(), String::new()));
    let two = ConfigMapState::Present { data: keys.to_vec(), binary: Vec::new() };
    let script = ScriptedNamespace::new([ScriptedResponse::Map(two)]);
    let error =
        fetch(ConfigFile::NotConfigured, OWN, WritePolicy::Create, &script).await.unwrap_err();
    assert!(error.to_string().contains("exactly one data key must exist, found 2"), "{error}");
    let script = ScriptedNamespace::new([map("any", "mcad: {backoffTime: 7}")]);
    let fetched =
        fetch(ConfigFile::NotConfigured, OWN, WritePolicy::Create, &script).await.unwrap();
    let (layer, report) = crate::config::document::read(&fetched.text, &fetched.source);
    let settings = crate::config::operator::merge_and_check([&layer], report, &[]).unwrap().values;
    assert_eq!(*settings.get("mcad.backoffTime"), 7);
    assert_eq!(*settings.get("mcad.requeueDefaultSeconds"), 300, "as it is by default");
}

#[tokio::test]
async fn cf_3_the_first_created_map_wins() {
    let script = ScriptedNamespace::new([
        absent(),
        absent(),
        ScriptedResponse::Created(false),
        map("theirs", "mcad: {}"),
    ]);
    let fetched =
        fetch(ConfigFile::NotConfigured, OWN, WritePolicy::Create, &script).await.unwrap();
    assert_eq!((fetched.outcome, &*fetched.text), (FetchOutcome::Existing, "mcad: {}"));
    assert_eq!(fetched.source, "ConfigMap ns/gantry-config, theirs");
}

#[tokio::test]
async fn a_flapping_map_fails_the_start() {
    let round = || [absent(), ScriptedResponse::Created(false)];
    let script = ScriptedNamespace::new((0..MAX_SOURCE_STEPS).flat_map(|_| round()));
    let error =
        fetch(ConfigFile::NotConfigured, "x", WritePolicy::Create, &script).await.unwrap_err();
    assert!(matches!(error, FetchError::Unstable { .. }), "{error}");
    assert_eq!(script.asked.borrow().len(), MAX_SOURCE_STEPS);
}

#[tokio::test]
async fn cf_7_the_older_map_is_read_and_never_written() {
    let script = ScriptedNamespace::new([absent(), map("any", "t")]);
    let fetched =
        fetch(ConfigFile::NotConfigured, OWN, WritePolicy::Create, &script).await.unwrap();
    assert_eq!((fetched.outcome, &*fetched.text), (FetchOutcome::Legacy, "t"));
    assert_eq!(fetched.source, format!("ConfigMap ns/{LEGACY}, any"));
    assert_eq!(script.asked.borrow().len(), 2);
}

#[tokio::test]
async fn a_dry_run_writes_nothing() {
    let script = ScriptedNamespace::new([absent()]);
    let fetched =
        fetch(ConfigFile::NotConfigured, "x", WritePolicy::ReadOnly, &script).await.unwrap();
    assert_eq!(fetched.outcome, FetchOutcome::WouldCreate);
    assert_eq!(*script.asked.borrow(), ["get x"]);
}

#[tokio::test]
async fn a_refusal_says_which_right_is_missing() {
    let script = ScriptedNamespace::new([
        absent(),
        absent(),
        ScriptedResponse::Refused("User \"x\" cannot"),
    ]);
    let error =
        fetch(ConfigFile::NotConfigured, OWN, WritePolicy::Create, &script).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "may not create configmaps gantry-config in namespace ns: give the operator's service \
         account the verb create on configmaps, as config/operator does; the server says: User \
         \"x\" cannot"
    );
}

#[tokio::test]
async fn cf_6_a_file_needs_no_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.yaml");
    let script = ScriptedNamespace::new([map("a", "from the map")]);
    let file = read_file(Some(&path)).unwrap();
    assert_eq!(file, ConfigFile::Absent);
    let fetched = fetch(file, "x", WritePolicy::Create, &script).await.unwrap();
    assert_eq!(fetched.text, "from the map");

    std::fs::write(&path, "from the file").unwrap();
    let file = read_file(Some(&path)).unwrap();
    let fetched =
        fetch(file, "x", WritePolicy::Create, &ScriptedNamespace::default()).await.unwrap();
    assert_eq!(fetched.text, "from the file");
    assert_eq!(fetched.source, path.display().to_string());
}

#[test]
fn invalid_configuration_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.yaml");
    let refusal = |path: &Path| match read_file(Some(path)).unwrap_err() {
        FetchError::File { error, .. } => error.to_string(),
        other => panic!("{other}"),
    };
    assert!(refusal(folder.path()).contains("directory"));
    std::fs::write(&path, [0xff]).unwrap();
    assert_eq!(refusal(&path), "it is not UTF-8");
    std::fs::write(&path, vec![b' '; 1 + (1 << 20)]).unwrap();
    assert_eq!(refusal(&path), "it is larger than a megabyte");
}

#[test]
fn cf_1_the_namespace_is_given_or_read_from_the_pod() {
    let none = || Err(io::Error::from(io::ErrorKind::NotFound));
    let pod = || Ok("of-pod\n".to_owned());
    assert_eq!(namespace(Some("said"), pod).unwrap(), "said");
    assert_eq!(namespace(None, pod).unwrap(), "of-pod");
    assert_eq!(namespace(Some(""), pod).unwrap(), "of-pod");
    let unknown = namespace(None, none).unwrap_err().to_string();
    assert!(unknown.contains("set NAMESPACE or use --namespace"), "{unknown}");
    let unfit = namespace(Some("A b"), none).unwrap_err().to_string();
    assert!(unfit.starts_with("cannot use \"A b\" as the operator's namespace"), "{unfit}");
}

#[test]
fn op_18_the_objects_of_an_instascale_alone_become_keys() {
    let map = |pairs: &[(&str, &str)]| ConfigMapState::Present {
        data: pairs.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect(),
        binary: Vec::new(),
    };
    let most = "instascale.maxScaleoutAllowed";
    let (layer, report) = translate_instascale(
        &map(&[("maxScaleoutAllowed", "12"), ("machineSetsStrategy", "Duplicate")]),
        "m",
    );
    assert_eq!(report, ConfigReport::default());
    assert_eq!(layer.get(most), Some(&json!(12)));
    assert_eq!(layer.get("instascale.machineSetsStrategy"), Some(&json!("duplicate")));

    let (layer, report) = translate_instascale(&map(&[("useMachineSets", "x")]), "m");
    assert_eq!(layer.get(most), Some(&json!(3)), "alone, three was the default");
    assert_eq!(report.unknown_keys, ["useMachineSets"]);

    let (_, report) = translate_instascale(&map(&[("maxScaleoutAllowed", "many")]), "m");
    let said = report.errors[0].to_string();
    assert!(
        said.starts_with("m, maxScaleoutAllowed: instascale.maxScaleoutAllowed: found \"many\""),
        "{said}"
    );

    let (layer, report) = translate_instascale(&ConfigMapState::Absent, "m");
    assert!(layer.is_empty() && report.warnings.len() == 1);
}
