//! Files and ConfigMaps that change under a running operator.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;

use serde_json::json;

use super::*;
use crate::config::reload::{ConfigProblem, ConfigTracker, ReloadResult};
use crate::config::source::{ConfigMapState, LEGACY, OWN};

/// A namespace that other clients write to.
#[derive(Default)]
struct FakeNamespace(RefCell<BTreeMap<&'static str, Vec<(String, String)>>>);

impl FakeNamespace {
    fn write(&self, name: &'static str, texts: &[&str]) {
        let data = texts.iter().enumerate();
        let data = data.map(|(at, text)| (format!("key-{at}"), (*text).to_owned())).collect();
        self.0.borrow_mut().insert(name, data);
    }

    fn delete(&self, name: &str) {
        self.0.borrow_mut().remove(name);
    }
}

impl ConfigMapStore for FakeNamespace {
    fn display_name(&self, name: &str) -> String {
        format!("ConfigMap ns/{name}")
    }

    async fn get(&self, name: &str) -> Result<ConfigMapState, FetchError> {
        Ok(match self.0.borrow().get(name) {
            Some(data) => ConfigMapState::Present { data: data.clone(), binary: Vec::new() },
            None => ConfigMapState::Absent,
        })
    }

    async fn create(&self, name: &str, _: &str) -> Result<bool, FetchError> {
        panic!("a second look writes nothing: {name}");
    }
}

fn sources(file: Option<&Path>) -> ConfigSources {
    ConfigSources {
        config: OWN.to_owned(),
        config_file: file.map(Path::to_owned),
        namespace: Some("ns".to_owned()),
        server: None,
        instascale: None,
        instascale_secret: None,
        overrides: FlagOverrides::default(),
    }
}

async fn reload(sources: &ConfigSources, namespace: &FakeNamespace) -> ReloadedConfig {
    to_reloaded_config(
        sources
            .load_from(namespace, &LegacyInstaScale::default(), WritePolicy::ReadOnly, &[])
            .await,
    )
}

async fn start(sources: &ConfigSources, namespace: &FakeNamespace) -> ConfigTracker {
    match reload(sources, namespace).await {
        ReloadedConfig::Valid(checked) => ConfigTracker::new(&checked),
        other => panic!("{other:?}"),
    }
}

fn applied(step: &ReloadResult) -> Vec<(&str, String)> {
    step.applied.iter().map(|it| (it.key, it.new.to_string())).collect()
}

#[tokio::test]
async fn a_file_may_be_replaced_removed_and_brought_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gantry.yaml");
    let write = |text: &str| {
        // As an editor does it, and a volume: the file of that name is a new one from now on.
        let beside = folder.path().join("beside");
        std::fs::write(&beside, text).unwrap();
        std::fs::rename(&beside, &path).unwrap();
    };
    write("mcad: {backoffTime: 1}");
    let (sources, namespace) = (sources(Some(&path)), FakeNamespace::default());
    let mut watched = start(&sources, &namespace).await;
    write("mcad: {backoffTime: 2}");
    let step = watched.apply_reload(reload(&sources, &namespace).await);
    assert_eq!(applied(&step), [("mcad.backoffTime", "2".to_owned())]);
    // Two changes between two reloads are one.
    write("mcad: {backoffTime: 3}");
    write("mcad: {backoffTime: 4}\nmcadEnabled: false");
    let step = watched.apply_reload(reload(&sources, &namespace).await);
    assert_eq!(applied(&step), [("mcad.backoffTime", "4".to_owned())]);
    assert_eq!(step.restart_required.len(), 1);
    std::fs::remove_file(&path).unwrap();
    let step = watched.apply_reload(reload(&sources, &namespace).await);
    let source = format!("ConfigMap ns/{OWN}, config.yaml");
    assert_eq!(
        step.problem,
        Some(ConfigProblem::Deleted { source }),
        "no file, and no ConfigMap either"
    );
    assert_eq!(watched.in_force().get("mcad.backoffTime"), &json!(4));
    // The ConfigMap is the next source.
    namespace.write(OWN, &["mcad: {backoffTime: 5}"]);
    let step = watched.apply_reload(reload(&sources, &namespace).await);
    assert_eq!(
        (applied(&step), step.recovered),
        (vec![("mcad.backoffTime", "5".to_owned())], true)
    );
    write("mcad: {backoffTime: 6}");
    let step = watched.apply_reload(reload(&sources, &namespace).await);
    assert_eq!(applied(&step), [("mcad.backoffTime", "6".to_owned())], "a file wins again");
    // There is a folder of that name, and no text.
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    let step = watched.apply_reload(reload(&sources, &namespace).await);
    assert!(matches!(step.problem, Some(ConfigProblem::Unreadable { .. })), "{step:?}");
    assert_eq!(watched.in_force().get("mcad.backoffTime"), &json!(6));
}

#[tokio::test]
async fn a_config_map_may_be_edited_broken_and_deleted() {
    let (sources, namespace) = (sources(None), FakeNamespace::default());
    namespace.write(LEGACY, &["mcad: {backoffTime: 1}"]);
    let mut watched = start(&sources, &namespace).await;
    namespace.write(LEGACY, &["mcad: {backoffTime: 2}"]);
    let step = watched.apply_reload(reload(&sources, &namespace).await);
    assert_eq!(applied(&step), [("mcad.backoffTime", "2".to_owned())], "under its older name");
    namespace.write(OWN, &["mcad: {backoffTime: 3}"]);
    let step = watched.apply_reload(reload(&sources, &namespace).await);
    assert_eq!(applied(&step), [("mcad.backoffTime", "3".to_owned())], "the newer name wins");
    namespace.write(OWN, &["mcad: {backoffTime: 4}", "mcad: {backoffTime: 5}"]);
    let step = watched.apply_reload(reload(&sources, &namespace).await);
    let Some(ConfigProblem::Invalid(errors)) = &step.problem else { panic!("{step:?}") };
    assert!(errors[0].to_string().contains("found 2: key-0, key-1"), "{errors:?}");
    namespace.write(OWN, &["mcad: {backoffTime: yes}"]);
    let step = watched.apply_reload(reload(&sources, &namespace).await);
    let Some(ConfigProblem::Invalid(errors)) = &step.problem else { panic!("{step:?}") };
    assert_eq!(errors[0].key, "mcad.backoffTime");
    assert_eq!(watched.in_force().get("mcad.backoffTime"), &json!(3));
    namespace.delete(OWN);
    namespace.delete(LEGACY);
    let step = watched.apply_reload(reload(&sources, &namespace).await);
    assert!(matches!(step.problem, Some(ConfigProblem::Deleted { .. })), "{step:?}");
    assert_eq!(watched.in_force().get("mcad.backoffTime"), &json!(3), "not back to the default");
    namespace.write(OWN, &["mcad: {backoffTime: 3}"]);
    let step = watched.apply_reload(reload(&sources, &namespace).await);
    assert_eq!(step, ReloadResult { recovered: true, ..ReloadResult::default() });
}
