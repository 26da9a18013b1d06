//! Where the objects that are to be installed come from: this build, or the folder of a commit.

use std::io;
use std::path::{Path, PathBuf};

use gantry_api::yaml::{self, SyntaxError};
use serde_json::Value;

use crate::inventory::FMA_GROUP;
use crate::manifest::{BadManifest, Manifest};
use crate::policies;

/// What a commit wants a cluster to have.
#[derive(Clone, Debug)]
pub struct Source {
    /// The definitions.
    pub definitions: Vec<Manifest>,
    /// The policies and their bindings.
    pub policies: Vec<Value>,
}

/// What is to be installed could not be found out.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// There is no such group.
    #[error("--group {group}: no such API group; choose from {known}")]
    UnknownGroup {
        /// The group that was asked for.
        group: String,
        /// Those that there are.
        known: String,
    },
    /// A folder cannot be listed.
    #[error("could not list {}", path.display())]
    List {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file cannot be read.
    #[error("could not read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file is no YAML.
    #[error("cannot use {}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Why.
        source: SyntaxError,
    },
    /// A file holds something else than definitions.
    #[error("{}", path.display())]
    Definition {
        /// The file.
        path: PathBuf,
        /// Why.
        source: BadManifest,
    },
    /// A file holds something else than policies.
    #[error("{} holds something else than policies and their bindings", .0.display())]
    Policy(PathBuf),
    /// A folder holds nothing to install.
    #[error("{} holds no YAML files", .0.display())]
    Empty(PathBuf),
}

impl Source {
    /// What this build wants, for these groups; for all if none is named.
    ///
    /// # Errors
    /// There is no such group.
    pub fn built_in(groups: &[String]) -> Result<Self, SourceError> {
        check(groups)?;
        let policies = if concerns_models(groups) { policies::policies() } else { Vec::new() };
        Ok(Self { definitions: Manifest::built_in(groups), policies })
    }

    /// What the commit wants whose folder `config` this is.
    ///
    /// # Errors
    /// A file cannot be read, or holds something else.
    pub fn folder(folder: &Path, groups: &[String]) -> Result<Self, SourceError> {
        check(groups)?;
        let mut definitions = Vec::new();
        for (file, object) in objects_below(&folder.join("crd"))? {
            let read = Manifest::read(object);
            let manifest = read.map_err(|source| SourceError::Definition { path: file, source })?;
            if groups.is_empty() || groups.iter().any(|it| it == manifest.group()) {
                definitions.push(manifest);
            }
        }
        let mut found = Vec::new();
        for (file, object) in objects_below(&folder.join("validating-admission-policies"))? {
            if policies::kind(&object).is_none() {
                return Err(SourceError::Policy(file));
            }
            found.push(object);
        }
        // A binding before its policy would be in effect without it.
        found.sort_by_key(|it| (policies::kind(it), it["metadata"]["name"].to_string()));
        let policies = if concerns_models(groups) { found } else { Vec::new() };
        Ok(Self { definitions, policies })
    }
}

fn concerns_models(groups: &[String]) -> bool {
    groups.is_empty() || groups.iter().any(|it| it == FMA_GROUP)
}

fn check(groups: &[String]) -> Result<(), SourceError> {
    let known = gantry_api::object::groups();
    match groups.iter().find(|it| !known.contains(&it.as_str())) {
        Some(wrong) => {
            let (group, known) = (wrong.clone(), known.join(", "));
            Err(SourceError::UnknownGroup { group, known })
        }
        None => Ok(()),
    }
}

/// Every object of every YAML file below a folder, in the order of their names.
fn objects_below(folder: &Path) -> Result<Vec<(PathBuf, Value)>, SourceError> {
    let mut files = Vec::new();
    files_below(folder, &mut files)?;
    files.sort();
    let mut objects = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file)
            .map_err(|source| SourceError::Read { path: file.clone(), source })?;
        let documents = yaml::read(&text)
            .map_err(|source| SourceError::Syntax { path: file.clone(), source })?;
        objects.extend(documents.iter().map(|it| (file.clone(), it.to_json())));
    }
    if objects.is_empty() {
        return Err(SourceError::Empty(folder.to_owned()));
    }
    Ok(objects)
}

fn files_below(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), SourceError> {
    let failed = |source| SourceError::List { path: folder.to_owned(), source };
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            files_below(&path, files)?;
        } else if path.extension().is_some_and(|it| it == "yaml" || it == "yml") {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use gantry_process::error_chain;

    use super::*;

    #[test]
    fn what_cannot_be_installed_names_the_file_and_the_reason() {
        let definition = "apiVersion: v1\nkind: ConfigMap\n";
        let table = [
            ("nothing there", None, "could not list {}/crd: No such file"),
            ("no YAML", Some(("crd/README.md", "x")), "{}/crd holds no YAML files"),
            ("half a document", Some(("crd/a.yaml", "a: [")), "cannot use {}/crd/a.yaml: "),
            ("another kind", Some(("crd/below/a.yml", definition)), "{}/crd/below/a.yml: "),
        ];
        for (why, file, expected) in table {
            let folder = tempfile::tempdir().unwrap();
            if let Some((name, text)) = file {
                let path = folder.path().join(name);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
            let error = error_chain(&Source::folder(folder.path(), &[]).unwrap_err());
            let expected = expected.replace("{}", &folder.path().display().to_string());
            assert!(error.starts_with(&expected), "{why}: {error}");
        }
        let error = Source::built_in(&["x.test".to_owned()]).unwrap_err().to_string();
        assert!(error.starts_with("--group x.test: no such API group; choose from "), "{error}");
    }

    #[test]
    fn policies_come_from_files_with_nothing_else_in_them() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let kept = Manifest::built_in(&[FMA_GROUP.to_owned()]).remove(0);
        write("crd/a.yaml", &kept.object().to_string());
        let text: Vec<String> = policies::policies().iter().map(Value::to_string).collect();
        write("validating-admission-policies/a.yaml", &text.join("\n---\n"));
        let source = Source::folder(folder.path(), &[]).unwrap();
        assert_eq!((source.definitions.len(), source.policies.len()), (1, 4));
        write("validating-admission-policies/b.yaml", "apiVersion: v1\nkind: ConfigMap\n");
        let error = Source::folder(folder.path(), &[]).unwrap_err().to_string();
        assert!(error.ends_with("b.yaml holds something else than policies and their bindings"));
    }
}
