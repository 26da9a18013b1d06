//! Reads the ConfigMaps and Secrets that pods reference, one by one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::view::{SourceKey, SourceKind, SourceObject};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use gantry_controller::external::{BoxFuture, Responder, ResponderContext};
use gantry_controller::read::{self, ReadBounds};
use gantry_process::clock::Clock;
use gantry_reconcile::ApiPath;
use serde_json::Value;

/// The limits of one read. Objects have a megabyte and a half at most; base64 adds a third.
const SOURCE_READ_BOUNDS: ReadBounds = ReadBounds { time: Duration::from_secs(9), bytes: 4 << 20 };

/// Reads objects by name.
#[derive(Clone)]
pub(super) struct SourceReader {
    pub(super) client: kube::Client,
    pub(super) clock: Clock,
}

impl Responder<SourceObject> for SourceReader {
    fn answer<'a>(
        &'a self,
        question: &'a SourceKey,
        _: &'a ResponderContext,
    ) -> BoxFuture<'a, Result<SourceObject, String>> {
        Box::pin(async move {
            let SourceKey { kind, namespace, name } = question;
            let plural = match kind {
                SourceKind::ConfigMap => "configmaps",
                SourceKind::Secret => "secrets",
            };
            let path = ApiPath::object("v1", namespace, plural, name);
            let path = path.map_err(|error| error.to_string())?;
            match read::get(&self.client, &self.clock, &path, SOURCE_READ_BOUNDS).await {
                Ok(object) => Ok(SourceObject::Present(Arc::new(data(*kind, &object)?))),
                Err(error) if error.is_not_found() => Ok(SourceObject::Absent),
                Err(error) => Err(error.to_string()),
            }
        })
    }
}

/// Returns the values of an object by key.
fn data(kind: SourceKind, object: &Value) -> Result<BTreeMap<String, Bytes>, String> {
    let mut all = BTreeMap::new();
    let texts: &[(&str, bool)] = match kind {
        SourceKind::ConfigMap => &[("data", false), ("binaryData", true)],
        SourceKind::Secret => &[("data", true)],
    };
    for (field, encoded) in texts {
        for (key, value) in object[*field].as_object().into_iter().flatten() {
            let text = value.as_str().unwrap_or_default();
            let bytes = match encoded {
                true => STANDARD.decode(text).map_err(|_| format!("key {key} is not base64"))?,
                false => text.as_bytes().to_vec(),
            };
            all.insert(key.clone(), bytes.into());
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_decoded() {
        let config = json!({"data": {"a": "1"}, "binaryData": {"b": "AAE="}});
        let found = data(SourceKind::ConfigMap, &config).unwrap();
        assert_eq!(found["a"].as_ref(), b"1");
        assert_eq!(found["b"].as_ref(), [0, 1]);
        let secret = json!({"data": {"k": "aHVzaA=="}, "stringData": {"never": "stored"}});
        let found = data(SourceKind::Secret, &secret).unwrap();
        assert_eq!((found.len(), found["k"].as_ref()), (1, b"hush".as_ref()));
        assert!(data(SourceKind::Secret, &json!({"data": {"k": "?"}})).is_err());
        assert!(data(SourceKind::Secret, &json!({})).unwrap().is_empty());
    }
}
