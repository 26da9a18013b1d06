//! The objects to install: those of this build, or those in the `config` folder of a commit.

use std::io;
use std::path::{Path, PathBuf};

use gantry_yaml::{self as yaml, SyntaxError};
use serde_json::Value;

use crate::inventory::FMA_GROUP;
use crate::manifest::{InvalidManifest, Manifest};
use crate::policies;

/// The objects that a commit wants a cluster to have.
#[derive(Clone, Debug)]
pub struct InstallSource {
    /// The definitions.
    pub definitions: Vec<Manifest>,
    /// The policies and their bindings.
    pub policies: Vec<Value>,
}

/// The objects to install could not be determined.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// There is no such group.
    #[error("--group {group}: no such API group; choose from {known}")]
    UnknownGroup {
        /// The group that was asked for.
        group: String,
        /// The known groups.
        known: String,
    },
    /// A folder cannot be listed.
    #[error("could not list {}", path.display())]
    List {
        /// The folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file cannot be read.
    #[error("could not read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file is not YAML.
    #[error("cannot use {}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: SyntaxError,
    },
    /// A file contains something other than definitions.
    #[error("{}", path.display())]
    Definition {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: InvalidManifest,
    },
    /// A file contains something other than policies.
    #[error("{} contains something other than policies and their bindings", .0.display())]
    Policy(PathBuf),
    /// A folder contains nothing to install.
    #[error("{} contains no YAML files", .0.display())]
    Empty(PathBuf),
}

impl InstallSource {
    /// The objects of this build, for these groups; for all if none is named.
    ///
    /// # Errors
    /// A group does not exist.
    pub fn built_in(groups: &[String]) -> Result<Self, SourceError> {
        check(groups)?;
        let policies = if concerns_models(groups) { policies::policies() } else { Vec::new() };
        Ok(Self { definitions: Manifest::built_in(groups), policies })
    }

    /// The objects of the commit whose `config` folder this is.
    ///
    /// # Errors
    /// A file cannot be read, or contains something else.
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
        // Policies come before bindings: a binding before its policy would be in effect without it.
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
            ("no YAML", Some(("crd/README.md", "x")), "{}/crd contains no YAML files"),
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
            let error = error_chain(&InstallSource::folder(folder.path(), &[]).unwrap_err());
            let expected = expected.replace("{}", &folder.path().display().to_string());
            assert!(error.starts_with(&expected), "{why}: {error}");
        }
        let error = InstallSource::built_in(&["x.test".to_owned()]).unwrap_err().to_string();
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
        let source = InstallSource::folder(folder.path(), &[]).unwrap();
        assert_eq!((source.definitions.len(), source.policies.len()), (1, 4));
        write("validating-admission-policies/b.yaml", "apiVersion: v1\nkind: ConfigMap\n");
        let error = InstallSource::folder(folder.path(), &[]).unwrap_err().to_string();
        assert!(
            error.ends_with("b.yaml contains something other than policies and their bindings")
        );
    }
}
