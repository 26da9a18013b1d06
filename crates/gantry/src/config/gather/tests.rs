//! Files and ConfigMaps that change under a running operator.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;

use serde_json::json;

use super::*;
use crate::config::reload::{Fault, Step, Watched};
use crate::config::source::{LEGACY, Map, OWN};

/// A namespace in which somebody else writes.
#[derive(Default)]
struct Namespace(RefCell<BTreeMap<&'static str, Vec<(String, String)>>>);

impl Namespace {
    fn write(&self, name: &'static str, texts: &[&str]) {
        let data = texts.iter().enumerate();
        let data = data.map(|(at, text)| (format!("key-{at}"), (*text).to_owned())).collect();
        self.0.borrow_mut().insert(name, data);
    }

    fn delete(&self, name: &str) {
        self.0.borrow_mut().remove(name);
    }
}

impl Maps for Namespace {
    fn called(&self, name: &str) -> String {
        format!("ConfigMap ns/{name}")
    }

    async fn get(&self, name: &str) -> Result<Map, FetchError> {
        Ok(match self.0.borrow().get(name) {
            Some(data) => Map::Present { data: data.clone(), binary: Vec::new() },
            None => Map::Absent,
        })
    }

    async fn create(&self, name: &str, _: &str) -> Result<bool, FetchError> {
        panic!("a second look writes nothing: {name}");
    }
}

fn sources(file: Option<&Path>) -> Sources {
    Sources {
        config: OWN.to_owned(),
        config_file: file.map(Path::to_owned),
        namespace: Some("ns".to_owned()),
        server: None,
        instascale: None,
        instascale_secret: None,
        given: Given::default(),
    }
}

async fn look(sources: &Sources, namespace: &Namespace) -> Seen {
    seen(sources.gather_from(namespace, &Old::default(), Writes::Nothing, &[]).await)
}

async fn start(sources: &Sources, namespace: &Namespace) -> Watched {
    match look(sources, namespace).await {
        Seen::Valid(checked) => Watched::new(&checked),
        other => panic!("{other:?}"),
    }
}

fn applied(step: &Step) -> Vec<(&str, String)> {
    step.applied.iter().map(|it| (it.key, it.new.to_string())).collect()
}

#[tokio::test]
async fn a_file_may_be_replaced_removed_and_brought_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gantry.yaml");
    let write = |text: &str| {
        // As an editor does it, and a volume: the file of that name is another one from now on.
        let beside = folder.path().join("beside");
        std::fs::write(&beside, text).unwrap();
        std::fs::rename(&beside, &path).unwrap();
    };
    write("mcad: {backoffTime: 1}");
    let (sources, namespace) = (sources(Some(&path)), Namespace::default());
    let mut watched = start(&sources, &namespace).await;
    write("mcad: {backoffTime: 2}");
    let step = watched.look(look(&sources, &namespace).await);
    assert_eq!(applied(&step), [("mcad.backoffTime", "2".to_owned())]);
    // Two changes between two looks are one.
    write("mcad: {backoffTime: 3}");
    write("mcad: {backoffTime: 4}\nmcadEnabled: false");
    let step = watched.look(look(&sources, &namespace).await);
    assert_eq!(applied(&step), [("mcad.backoffTime", "4".to_owned())]);
    assert_eq!(step.waiting.len(), 1);
    std::fs::remove_file(&path).unwrap();
    let step = watched.look(look(&sources, &namespace).await);
    let source = format!("ConfigMap ns/{OWN}, config.yaml");
    assert_eq!(step.fault, Some(Fault::Gone { source }), "no file, and no ConfigMap either");
    assert_eq!(watched.in_force().get("mcad.backoffTime"), &json!(4));
    // The ConfigMap is next in line.
    namespace.write(OWN, &["mcad: {backoffTime: 5}"]);
    let step = watched.look(look(&sources, &namespace).await);
    assert_eq!(
        (applied(&step), step.recovered),
        (vec![("mcad.backoffTime", "5".to_owned())], true)
    );
    write("mcad: {backoffTime: 6}");
    let step = watched.look(look(&sources, &namespace).await);
    assert_eq!(applied(&step), [("mcad.backoffTime", "6".to_owned())], "a file wins again");
    // A folder of that name is there and no text.
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    let step = watched.look(look(&sources, &namespace).await);
    assert!(matches!(step.fault, Some(Fault::Unreadable { .. })), "{step:?}");
    assert_eq!(watched.in_force().get("mcad.backoffTime"), &json!(6));
}

#[tokio::test]
async fn a_config_map_may_be_edited_broken_and_deleted() {
    let (sources, namespace) = (sources(None), Namespace::default());
    namespace.write(LEGACY, &["mcad: {backoffTime: 1}"]);
    let mut watched = start(&sources, &namespace).await;
    namespace.write(LEGACY, &["mcad: {backoffTime: 2}"]);
    let step = watched.look(look(&sources, &namespace).await);
    assert_eq!(applied(&step), [("mcad.backoffTime", "2".to_owned())], "under its older name");
    namespace.write(OWN, &["mcad: {backoffTime: 3}"]);
    let step = watched.look(look(&sources, &namespace).await);
    assert_eq!(applied(&step), [("mcad.backoffTime", "3".to_owned())], "the newer name wins");
    namespace.write(OWN, &["mcad: {backoffTime: 4}", "mcad: {backoffTime: 5}"]);
    let step = watched.look(look(&sources, &namespace).await);
    let Some(Fault::Refused(errors)) = &step.fault else { panic!("{step:?}") };
    assert!(errors[0].to_string().contains("found 2: key-0, key-1"), "{errors:?}");
    namespace.write(OWN, &["mcad: {backoffTime: yes}"]);
    let step = watched.look(look(&sources, &namespace).await);
    let Some(Fault::Refused(errors)) = &step.fault else { panic!("{step:?}") };
    assert_eq!(errors[0].key, "mcad.backoffTime");
    assert_eq!(watched.in_force().get("mcad.backoffTime"), &json!(3));
    namespace.delete(OWN);
    namespace.delete(LEGACY);
    let step = watched.look(look(&sources, &namespace).await);
    assert!(matches!(step.fault, Some(Fault::Gone { .. })), "{step:?}");
    assert_eq!(watched.in_force().get("mcad.backoffTime"), &json!(3), "not back to the default");
    namespace.write(OWN, &["mcad: {backoffTime: 3}"]);
    let step = watched.look(look(&sources, &namespace).await);
    assert_eq!(step, Step { recovered: true, ..Step::default() });
}
