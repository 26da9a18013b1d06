//! Configurations of images: platform, labels, environment, and which layers there are.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::error::{DocumentError, DocumentProblem};
use super::{MAX_CONFIG_BYTES, MAX_LAYERS};
use crate::digest::Digest;
use crate::json::{self, FieldError, Object};

/// The configuration of an image. OCI's and Docker's have the same form.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    bytes: Vec<u8>,
    digest: Digest,
    diff_ids: Vec<Digest>,
    labels: BTreeMap<String, String>,
    /// How many records of the history stand for a layer; none if there is no history.
    history_layers: Option<usize>,
    object: Object,
}

/// A record of how a layer was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryRecord {
    /// When.
    pub created: Timestamp,
    /// By which command.
    pub created_by: String,
    /// More for people.
    pub comment: String,
}

impl HistoryRecord {
    fn to_json(&self) -> Value {
        json!({
            "created": self.created.to_string(),
            "created_by": self.created_by,
            "comment": self.comment,
        })
    }
}

impl Config {
    /// Reads a configuration.
    ///
    /// # Errors
    ///
    /// [`DocumentError`] if this is not the configuration of an image.
    pub fn parse(bytes: &[u8]) -> Result<Self, DocumentError> {
        if bytes.len() > MAX_CONFIG_BYTES {
            return Err(DocumentProblem::TooLarge { limit: MAX_CONFIG_BYTES }.at(bytes));
        }
        let object = serde_json::from_slice(bytes)
            .map_err(|error| DocumentProblem::NotJson { why: error.to_string() }.at(bytes))?;
        Self::view(object, bytes.to_vec()).map_err(|error| DocumentProblem::field(error).at(bytes))
    }

    /// Writes a configuration from a JSON object.
    ///
    /// # Errors
    ///
    /// [`DocumentError`] if a field that this crate reads is malformed.
    pub fn from_json(object: Object) -> Result<Self, DocumentError> {
        let bytes = Value::Object(object.clone()).to_string().into_bytes();
        Self::view(object, bytes.clone()).map_err(|error| DocumentProblem::field(error).at(&bytes))
    }

    fn view(object: Object, bytes: Vec<u8>) -> Result<Self, FieldError> {
        let rootfs = json::object(&object, "rootfs")?
            .ok_or_else(|| FieldError::new("rootfs", "is missing"))?;
        let diff_ids = json::strings(rootfs, "diff_ids").map_err(|error| error.within("rootfs"))?;
        if diff_ids.len() > MAX_LAYERS {
            let problem = format!("has {} items, and {MAX_LAYERS} is the limit", diff_ids.len());
            return Err(FieldError::new("rootfs.diff_ids", problem));
        }
        let diff_ids = diff_ids
            .iter()
            .enumerate()
            .map(|(index, text)| {
                text.parse().map_err(|error| {
                    FieldError::new(format!("rootfs.diff_ids[{index}]"), format!("{error}"))
                })
            })
            .collect::<Result<_, _>>()?;
        let labels = json::object(&object, "config")?
            .map(|config| json::string_map(config, "Labels"))
            .transpose()
            .map_err(|error| error.within("config"))?
            .unwrap_or_default();
        let history_layers = match json::present(&object, "history") {
            None => None,
            Some(_) => {
                let is_layer = |record: &Object| {
                    Ok(json::present(record, "empty_layer").and_then(Value::as_bool) != Some(true))
                };
                let records = json::objects(&object, "history", is_layer)?;
                Some(records.into_iter().filter(|is_layer| *is_layer).count())
            }
        };
        for key in ["architecture", "os", "variant"] {
            json::string(&object, key)?;
        }
        let digest = Digest::sha256(&bytes);
        Ok(Self { bytes, digest, diff_ids, labels, history_layers, object })
    }

    /// The bytes as they were read or written.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The SHA-256 digest of the bytes, which is the id of the image.
    #[must_use]
    pub const fn digest(&self) -> &Digest {
        &self.digest
    }

    /// The operating system; empty if there is none.
    #[must_use]
    pub fn os(&self) -> &str {
        self.text("os")
    }

    /// The architecture; empty if there is none.
    #[must_use]
    pub fn architecture(&self) -> &str {
        self.text("architecture")
    }

    /// The digests of the layers' tars before compression, the lowest first.
    #[must_use]
    pub fn diff_ids(&self) -> &[Digest] {
        &self.diff_ids
    }

    /// The labels of the image.
    #[must_use]
    pub const fn labels(&self) -> &BTreeMap<String, String> {
        &self.labels
    }

    /// The document as JSON, with all keys.
    #[must_use]
    pub const fn object(&self) -> &Object {
        &self.object
    }

    /// The same configuration with one more layer on top.
    ///
    /// The record is added only to a history that has one record for every layer: to a history
    /// that already disagrees with the layers, any record would be a wrong one.
    #[must_use]
    pub fn with_layer(&self, diff_id: &Digest, record: &HistoryRecord) -> Self {
        let mut config = self.clone();
        config.diff_ids.push(diff_id.clone());
        let created = record.created.to_string();
        if let Some(ids) = config
            .object
            .get_mut("rootfs")
            .and_then(|rootfs| rootfs.as_object_mut())
            .map(|rootfs| rootfs.entry("diff_ids").or_insert_with(|| json!([])))
        {
            *ids = config.diff_ids.iter().map(Digest::as_str).collect();
        }
        if self.has_whole_history() {
            config.push_record(record.to_json());
            config.history_layers = Some(config.diff_ids.len());
        }
        config.object.insert("created".to_owned(), created.into());
        config.rewrite();
        config
    }

    /// The same configuration with a record of a step that made no layer, on the same condition.
    #[must_use]
    pub fn with_empty_layer(&self, record: &HistoryRecord) -> Self {
        let mut config = self.clone();
        if self.has_whole_history() {
            let mut value = record.to_json();
            value["empty_layer"] = true.into();
            config.push_record(value);
            config.rewrite();
        }
        config
    }

    fn has_whole_history(&self) -> bool {
        self.history_layers == Some(self.diff_ids.len())
    }

    fn push_record(&mut self, record: Value) {
        if let Some(history) = self.object.get_mut("history").and_then(Value::as_array_mut) {
            history.push(record);
        }
    }

    /// The same configuration with this label.
    #[must_use]
    pub fn with_label(&self, name: &str, value: &str) -> Self {
        let mut config = self.clone();
        config.labels.insert(name.to_owned(), value.to_owned());
        let mut parent = &mut config.object;
        for key in ["config", "Labels"] {
            let child = parent.entry(key).or_insert_with(|| json!({}));
            if !child.is_object() {
                // Null: other types were refused when the configuration was read.
                *child = json!({});
            }
            let Value::Object(object) = child else { return config };
            parent = object;
        }
        parent.insert(name.to_owned(), value.into());
        config.rewrite();
        config
    }

    fn rewrite(&mut self) {
        self.bytes = Value::Object(self.object.clone()).to_string().into_bytes();
        self.digest = Digest::sha256(&self.bytes);
    }

    fn text(&self, key: &str) -> &str {
        json::present(&self.object, key).and_then(Value::as_str).unwrap_or_default()
    }
}
