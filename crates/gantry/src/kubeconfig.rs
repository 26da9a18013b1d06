//! The kubeconfig a user already has, and a context put into it.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use gantry_api::yaml;
use serde_json::{Value, json};

/// The lists of a kubeconfig, by whose names entries are told apart.
const LISTS: [&str; 3] = ["clusters", "users", "contexts"];

/// Puts the cluster, user and context of `ours` into the kubeconfig at `path`, which is made if it
/// is not there, and makes that context the current one.
///
/// What else is in the file stays; comments do not, so the file as it was is kept beside it.
/// Returns where.
///
/// # Errors
/// The file is no kubeconfig, can be read by others, or cannot be written. It is unchanged then.
pub fn add(path: &Path, ours: &str) -> anyhow::Result<Option<PathBuf>> {
    let named = || format!("could not add a context to {}", path.display());
    let before = match std::fs::read_to_string(path) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(error).with_context(named),
    };
    let merged = merge(before.as_deref().unwrap_or_default(), ours).with_context(named)?;
    if before.as_deref() == Some(merged.as_str()) {
        return Ok(None);
    }
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).with_context(named)?;
    }
    let kept = match &before {
        Some(text) => {
            let beside = beside(path);
            gantry_serve::files::write_private(&beside, text.as_bytes()).with_context(named)?;
            Some(beside)
        }
        None => None,
    };
    gantry_serve::files::write_private(path, merged.as_bytes()).with_context(named)?;
    Ok(kept)
}

/// Where a file is kept as it was.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".before-gantry");
    path.with_file_name(name)
}

/// The text of a kubeconfig with the entries of another, which win.
fn merge(theirs: &str, ours: &str) -> anyhow::Result<String> {
    let ours = document(ours)?;
    let mut merged = document(theirs)?;
    if merged.is_null() {
        merged = json!({"apiVersion": "v1", "kind": "Config"});
    }
    if !merged.is_object() || merged["kind"].as_str().is_some_and(|kind| kind != "Config") {
        bail!("it is no kubeconfig: `kind` must be `Config`");
    }
    for list in LISTS {
        let mut entries = match &merged[list] {
            Value::Null => Vec::new(),
            Value::Array(entries) => entries.clone(),
            other => bail!("it is no kubeconfig: `{list}` must be a list, but is {other}"),
        };
        for entry in ours[list].as_array().into_iter().flatten() {
            match entries.iter_mut().find(|old| old["name"] == entry["name"]) {
                Some(old) => old.clone_from(entry),
                None => entries.push(entry.clone()),
            }
        }
        merged[list] = Value::Array(entries);
    }
    merged["current-context"] = ours["current-context"].clone();
    Ok(yaml::write(&merged)?)
}

/// The one document of a text; null if there is none.
fn document(text: &str) -> anyhow::Result<Value> {
    let documents = yaml::read(text)?;
    match documents.as_slice() {
        [] => Ok(Value::Null),
        [one] => Ok(one.to_json()),
        _ => bail!("it holds more than one YAML document"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "
apiVersion: v1
kind: Config
clusters: [{name: gantry, cluster: {server: 'https://127.0.0.1:6443'}}]
users: [{name: gantry-admin, user: {client-key-data: aw==}}]
contexts: [{name: gantry, context: {cluster: gantry, user: gantry-admin}}]
current-context: gantry
";

    fn names(text: &str, list: &str) -> Vec<String> {
        let entries = document(text).unwrap()[list].as_array().unwrap().clone();
        entries.iter().map(|entry| entry["name"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn a_context_joins_those_that_are_there() {
        let theirs = "kind: Config\ncurrent-context: work\npreferences: {colors: true}\n\
                      clusters:\n- name: work\n  cluster: {server: https://work}\n\
                      - name: gantry\n  cluster: {server: https://old}\n";
        let merged = merge(theirs, OURS).unwrap();
        let tree = document(&merged).unwrap();
        assert_eq!(names(&merged, "clusters"), ["work", "gantry"]);
        assert_eq!(tree["clusters"][1]["cluster"]["server"], "https://127.0.0.1:6443");
        assert_eq!(tree["current-context"], "gantry");
        assert_eq!(tree["preferences"]["colors"], true, "what else was there stays");
        assert_eq!(merge(&merged, OURS).unwrap(), merged, "once is enough");
    }

    #[test]
    fn an_empty_file_becomes_a_kubeconfig() {
        let merged = merge("", OURS).unwrap();
        assert_eq!(document(&merged).unwrap()["kind"], "Config");
        assert_eq!(names(&merged, "users"), ["gantry-admin"]);
    }

    #[test]
    fn other_files_are_left_alone() {
        let table = [
            ("kind: Pod", "`kind` must be `Config`"),
            ("- a\n- b", "`kind` must be `Config`"),
            ("kind: Config\nclusters: {}", "`clusters` must be a list, but is {}"),
            ("kind: Config\n---\nkind: Config", "more than one YAML document"),
        ];
        let directory = tempfile::tempdir().unwrap();
        for (text, expected) in table {
            let path = directory.path().join("config");
            std::fs::write(&path, text).unwrap();
            let error = format!("{:#}", add(&path, OURS).unwrap_err());
            assert!(error.contains(expected), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn the_file_as_it_was_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep/config");
        assert_eq!(add(&path, OURS).unwrap(), None, "there was nothing to keep");
        assert_eq!(add(&path, OURS).unwrap(), None, "there is nothing to change");
        std::fs::write(&path, "# mine\nkind: Config\n").unwrap();
        let kept = add(&path, OURS).unwrap().unwrap();
        assert_eq!(std::fs::read_to_string(kept).unwrap(), "# mine\nkind: Config\n");
    }
}
