//! Composes images from files, from nothing or on top of another image.
//!
//! The same input gives the same digests: entries are sorted, and times come from the caller.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::blob::{self, BlobError, BlobSink};
use crate::json::Object;
use crate::layer::{Attributes, Mtime, NewEntry, NewEntryKind, write_layer};
use crate::manifest::{Config, Descriptor, DocumentError, HistoryRecord, Manifest, Platform};
use crate::media_type::{Family, MediaType};

#[cfg(test)]
mod tests;

/// An image under construction.
#[derive(Clone, Debug)]
pub struct ImageBuilder {
    base: Base,
    family: Family,
    created: Timestamp,
    steps: Vec<Step>,
    author: Option<String>,
    settings: Object,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

/// What the image is built on.
#[derive(Clone, Debug)]
enum Base {
    Nothing(Platform),
    Image { layers: Vec<Descriptor>, config: Box<Config> },
}

/// A record of the history, with the layer it stands for.
#[derive(Clone, Debug)]
struct Step {
    entries: Option<Vec<NewEntry>>,
    created_by: String,
    comment: String,
}

/// Why an image could not be composed.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A blob could not be written.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// The configuration would be malformed.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// A layer could not be written.
    #[error("could not write a layer")]
    Write(#[source] io::Error),
    /// A path that no file can have.
    #[error("cannot put a file at {path:?}: {why}")]
    Path {
        /// The path.
        path: String,
        /// What is wrong with it.
        why: &'static str,
    },
}

impl ImageBuilder {
    /// Starts with no layer.
    #[must_use]
    pub fn from_scratch(platform: Platform, created: Timestamp) -> Self {
        Self::on(Base::Nothing(platform), Family::Oci, created)
    }

    /// Starts with the layers and the configuration of an image. Its blobs are not copied.
    #[must_use]
    pub fn from_image(manifest: &Manifest, config: &Config, created: Timestamp) -> Self {
        let layers = manifest.layers().to_vec();
        let base = Base::Image { layers, config: Box::new(config.clone()) };
        Self::on(base, manifest.family(), created)
    }

    fn on(base: Base, family: Family, created: Timestamp) -> Self {
        Self {
            base,
            family,
            created,
            steps: Vec::new(),
            author: None,
            settings: Object::new(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
        }
    }

    /// Writes documents of this family; OCI's unless the base has others.
    #[must_use]
    pub const fn family(mut self, family: Family) -> Self {
        self.family = family;
        self
    }

    /// Adds a layer. Directories that its entries need are added, owned by root.
    ///
    /// # Errors
    ///
    /// [`BuildError::Path`] for a path that no file can have.
    pub fn layer(mut self, entries: Vec<NewEntry>, created_by: &str) -> Result<Self, BuildError> {
        check_paths(&entries)?;
        let entries = Some(with_parents(entries, self.created));
        let (created_by, comment) = (created_by.to_owned(), String::new());
        self.steps.push(Step { entries, created_by, comment });
        Ok(self)
    }

    /// Adds a layer with these entries and no others, so that directories of lower layers keep
    /// their owners and permissions.
    ///
    /// # Errors
    ///
    /// [`BuildError::Path`] for a path that no file can have.
    pub fn exact_layer(
        mut self,
        entries: Vec<NewEntry>,
        created_by: &str,
        comment: &str,
    ) -> Result<Self, BuildError> {
        check_paths(&entries)?;
        let (created_by, comment) = (created_by.to_owned(), comment.to_owned());
        self.steps.push(Step { entries: Some(entries), created_by, comment });
        Ok(self)
    }

    /// Adds a record to the history for a step that changed no file.
    #[must_use]
    pub fn history(mut self, created_by: &str, comment: &str) -> Self {
        let (created_by, comment) = (created_by.to_owned(), comment.to_owned());
        self.steps.push(Step { entries: None, created_by, comment });
        self
    }

    /// Sets who made the image.
    #[must_use]
    pub fn author(mut self, author: &str) -> Self {
        self.author = Some(author.to_owned());
        self
    }

    /// Sets the program that containers run, with its first arguments.
    #[must_use]
    pub fn entrypoint(self, command: &[&str]) -> Self {
        self.set("Entrypoint", json!(command))
    }

    /// Sets the arguments that users may replace.
    #[must_use]
    pub fn command(self, arguments: &[&str]) -> Self {
        self.set("Cmd", json!(arguments))
    }

    /// Sets the user, by name or number, with an optional group after a colon.
    #[must_use]
    pub fn user(self, user: &str) -> Self {
        self.set("User", user.into())
    }

    /// Sets the directory in which containers start.
    #[must_use]
    pub fn working_directory(self, path: &str) -> Self {
        self.set("WorkingDir", path.into())
    }

    /// Sets a variable of the environment. One with the same name is replaced.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        let inherited = || match &self.base {
            Base::Image { config, .. } => config.object().get("config")?.get("Env").cloned(),
            Base::Nothing(_) => None,
        };
        let old = self.settings.get("Env").cloned().or_else(inherited);
        let mut variables: Vec<Value> =
            old.and_then(|it| it.as_array().cloned()).unwrap_or_default();
        let prefix = format!("{name}=");
        variables.retain(|variable| !variable.as_str().is_some_and(|it| it.starts_with(&prefix)));
        variables.push(format!("{prefix}{value}").into());
        self.settings.insert("Env".to_owned(), variables.into());
        self
    }

    /// Sets a label.
    #[must_use]
    pub fn label(mut self, name: &str, value: &str) -> Self {
        self.labels.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Sets an annotation of the manifest, which Docker's manifests do not have.
    #[must_use]
    pub fn annotation(mut self, name: &str, value: &str) -> Self {
        self.annotations.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Sets a key of the settings for containers, such as `Volumes`; null removes it.
    #[must_use]
    pub fn set(mut self, key: &str, value: Value) -> Self {
        self.settings.insert(key.to_owned(), value);
        self
    }

    /// Writes the new blobs, the manifest last.
    ///
    /// # Errors
    ///
    /// [`BuildError`]; blobs that were written before stay in `sink`.
    pub fn build(self, sink: &mut dyn BlobSink) -> Result<Manifest, BuildError> {
        let (mut layers, mut config) = match self.base {
            Base::Nothing(platform) => (Vec::new(), empty_config(&platform, self.created)?),
            Base::Image { layers, config } => (layers, *config),
        };
        for step in self.steps {
            let (created_by, comment) = (step.created_by, step.comment);
            let record = HistoryRecord { created: self.created, created_by, comment };
            let Some(entries) = step.entries else {
                config = config.with_empty_layer(&record);
                continue;
            };
            let written = write_layer(&entries).map_err(BuildError::Write)?;
            let descriptor = written.descriptor(self.family);
            blob::put_bytes(sink, &descriptor, &written.content)?;
            layers.push(descriptor);
            config = config.with_layer(&written.diff_id, &record);
        }
        config = with_settings(&config, self.author, self.settings, self.created)?;
        for (name, value) in &self.labels {
            config = config.with_label(name, value);
        }
        let descriptor = Descriptor::of(MediaType::config_of(self.family), config.bytes());
        blob::put_bytes(sink, &descriptor, config.bytes())?;
        let annotations = match self.family {
            Family::Oci => self.annotations,
            Family::Docker => BTreeMap::new(),
        };
        let manifest = Manifest::new(self.family, &descriptor, &layers, &annotations);
        blob::put_bytes(sink, &manifest.descriptor(), manifest.bytes())?;
        Ok(manifest)
    }
}

impl NewEntry {
    /// A file that root owns and all may read.
    #[must_use]
    pub fn file(path: &str, content: Vec<u8>, mode: u32) -> Self {
        Self::owned_by_root(path, NewEntryKind::File(content), mode)
    }

    /// A directory that root owns.
    #[must_use]
    pub fn directory(path: &str, mode: u32) -> Self {
        Self::owned_by_root(path, NewEntryKind::Directory, mode)
    }

    /// A symbolic link.
    #[must_use]
    pub fn symlink(path: &str, target: &str) -> Self {
        Self::owned_by_root(path, NewEntryKind::Symlink(target.as_bytes().to_vec()), 0o777)
    }

    fn owned_by_root(path: &str, kind: NewEntryKind, mode: u32) -> Self {
        let path = path.trim_matches('/').as_bytes().to_vec();
        Self { path, kind, attributes: Attributes { mode, ..Attributes::default() } }
    }
}

fn empty_config(platform: &Platform, created: Timestamp) -> Result<Config, DocumentError> {
    let mut object = Object::new();
    object.insert("created".to_owned(), created.to_string().into());
    object.insert("architecture".to_owned(), platform.architecture().into());
    if let Some(variant) = platform.variant() {
        object.insert("variant".to_owned(), variant.into());
    }
    object.insert("os".to_owned(), platform.os().into());
    object.insert("config".to_owned(), json!({}));
    object.insert("rootfs".to_owned(), json!({ "type": "layers", "diff_ids": [] }));
    object.insert("history".to_owned(), json!([]));
    Config::from_json(object)
}

fn with_settings(
    config: &Config,
    author: Option<String>,
    settings: Object,
    created: Timestamp,
) -> Result<Config, DocumentError> {
    let mut object = config.object().clone();
    object.insert("created".to_owned(), created.to_string().into());
    if let Some(author) = author {
        object.insert("author".to_owned(), author.into());
    }
    let inner = object.entry("config").or_insert_with(|| json!({}));
    if inner.is_null() {
        *inner = json!({});
    }
    if let Some(inner) = inner.as_object_mut() {
        for (key, value) in settings {
            if value.is_null() {
                inner.remove(&key);
            } else {
                inner.insert(key, value);
            }
        }
    }
    Config::from_json(object)
}

fn check_paths(entries: &[NewEntry]) -> Result<(), BuildError> {
    let mut listed: BTreeSet<&[u8]> = BTreeSet::new();
    for entry in entries {
        let refuse =
            |why| BuildError::Path { path: String::from_utf8_lossy(&entry.path).into_owned(), why };
        let mut parts = entry.path.split(|byte| *byte == b'/');
        if parts.any(|part| matches!(part, b"" | b"." | b"..") || part.contains(&0)) {
            return Err(refuse("it must be relative, without empty parts, `.` and `..`"));
        }
        if !listed.insert(&entry.path) {
            return Err(refuse("two entries have this path"));
        }
    }
    Ok(())
}

/// Adds the directories that entries need and that are not among them.
fn with_parents(mut entries: Vec<NewEntry>, created: Timestamp) -> Vec<NewEntry> {
    let listed: BTreeSet<Vec<u8>> = entries.iter().map(|entry| entry.path.clone()).collect();
    let mut parents = BTreeSet::new();
    for path in &listed {
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        parents.extend(slashes.map(|(place, _)| path[..place].to_vec()));
    }
    let mtime = Mtime { seconds: created.as_second().max(0), nanoseconds: 0 };
    let attributes = Attributes { mode: 0o755, mtime, ..Attributes::default() };
    entries.extend(parents.difference(&listed).map(|path| NewEntry {
        path: path.clone(),
        kind: NewEntryKind::Directory,
        attributes: attributes.clone(),
    }));
    entries
}
