//! Where the objects that are to be installed come from: this build, or the folder of a commit.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use gantry_api::yaml;
use gantry_sharing::inventory::FMA_GROUP;
use gantry_sharing::manifest::Manifest;
use gantry_sharing::policies;
use serde_json::Value;

/// What a commit wants a cluster to have.
#[derive(Clone, Debug)]
pub struct Source {
    /// The definitions.
    pub definitions: Vec<Manifest>,
    /// The policies and their bindings.
    pub policies: Vec<Value>,
}

impl Source {
    /// What this build wants, for these groups; for all if none is named.
    ///
    /// # Errors
    /// There is no such group.
    pub fn built_in(groups: &[String]) -> anyhow::Result<Self> {
        check(groups)?;
        let policies = if concerns_models(groups) { policies::policies() } else { Vec::new() };
        Ok(Self { definitions: Manifest::built_in(groups), policies })
    }

    /// What the commit wants whose folder `config` this is.
    ///
    /// # Errors
    /// A file cannot be read, or holds something else.
    pub fn folder(folder: &Path, groups: &[String]) -> anyhow::Result<Self> {
        check(groups)?;
        let mut definitions = Vec::new();
        for (file, object) in objects_below(&folder.join("crd"))? {
            let manifest = Manifest::read(object).with_context(|| file.display().to_string())?;
            if groups.is_empty() || groups.iter().any(|it| it == manifest.group()) {
                definitions.push(manifest);
            }
        }
        let mut found = Vec::new();
        for (file, object) in objects_below(&folder.join("validating-admission-policies"))? {
            if policies::kind(&object).is_none() {
                bail!("{} holds something else than policies and their bindings", file.display());
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

fn check(groups: &[String]) -> anyhow::Result<()> {
    let known = gantry_api::object::groups();
    match groups.iter().find(|it| !known.contains(&it.as_str())) {
        Some(wrong) => {
            bail!("--group {wrong}: no such API group; choose from {}", known.join(", "))
        }
        None => Ok(()),
    }
}

/// Every object of every YAML file below a folder, in the order of their names.
fn objects_below(folder: &Path) -> anyhow::Result<Vec<(PathBuf, Value)>> {
    let mut files = Vec::new();
    files_below(folder, &mut files)?;
    files.sort();
    let mut objects = Vec::new();
    for file in files {
        let shown = file.display();
        let text =
            std::fs::read_to_string(&file).with_context(|| format!("could not read {shown}"))?;
        let documents = yaml::read(&text).with_context(|| format!("cannot use {shown}"))?;
        objects.extend(documents.iter().map(|it| (file.clone(), it.to_json())));
    }
    if objects.is_empty() {
        bail!("{} holds no YAML files", folder.display());
    }
    Ok(objects)
}

fn files_below(folder: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let read = || format!("could not list {}", folder.display());
    for entry in std::fs::read_dir(folder).with_context(read)? {
        let path = entry.with_context(read)?.path();
        if path.is_dir() {
            files_below(&path, files)?;
        } else if path.extension().is_some_and(|it| it == "yaml" || it == "yml") {
            files.push(path);
        }
    }
    Ok(())
}
