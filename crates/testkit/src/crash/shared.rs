//! Tests optimistic concurrency on one object that all writers update: each has a field in it, and
//! reads the whole object before writing it.
//!
//! A write that does not respect the revision it was based on reverts what another writer got
//! acknowledged.

use gantry_process::error_chain;
use serde_json::{Value, json};

use super::collection::{
    COLLECTIONS, Collection, Objects, SHARED_OBJECT, revision, send_expecting_success,
};
use super::writer::Writer;
use super::{Report, ServerLifetime};
use crate::http::{Client, Request};

/// The collection the object is in.
const SHARED_COLLECTION: Collection = COLLECTIONS[0];

/// What was acknowledged to one writer about its field.
#[derive(Debug)]
pub(super) struct SharedField {
    field: String,
    /// The last value that was acknowledged.
    acknowledged_value: u64,
    /// A greater value that was sent and not answered.
    unanswered: Option<u64>,
    acknowledged: u64,
    conflicts: u64,
}

pub(super) async fn prepare(client: &Client) -> Result<(), String> {
    send_expecting_success(
        client,
        Request::post(SHARED_COLLECTION.path, &SHARED_COLLECTION.object(SHARED_OBJECT, &json!({}))),
    )
    .await
    .map(|_| ())
}

/// Compares every field with what was acknowledged to its writer.
pub(super) fn verify(
    collection: &Collection,
    found: &mut Objects,
    writers: &mut [Writer],
) -> Result<(), String> {
    if *collection != SHARED_COLLECTION {
        return Ok(());
    }
    let object = found.remove(SHARED_OBJECT).ok_or("the shared object is gone")?;
    writers.iter_mut().try_for_each(|writer| writer.share.verify(&object))
}

impl SharedField {
    pub(super) fn of(number: usize) -> Self {
        let field = format!("w{number}");
        Self { field, acknowledged_value: 0, unanswered: None, acknowledged: 0, conflicts: 0 }
    }

    pub(super) fn add_to_report(&self, report: &mut Report) {
        report.acknowledged += self.acknowledged;
        report.conflicts += self.conflicts;
    }

    /// Reads and writes once; false when the server is down.
    pub(super) async fn write(
        &mut self,
        client: &Client,
        life: &ServerLifetime,
    ) -> Result<bool, String> {
        let mut object =
            match client.send(Request::get(SHARED_COLLECTION.object_path(SHARED_OBJECT))).await {
                Ok(answer) if answer.status.is_success() => {
                    answer.json().map_err(|error| format!("half an answer: {error}"))?
                }
                _ if life.is_ending() => return Ok(false),
                Ok(answer) => return Err(format!("shared: {} {}", answer.status, answer.text())),
                Err(error) => return Err(error_chain(&error)),
            };
        self.verify(&object)?;
        // Every value is sent once, so that it identifies the attempt that was carried out.
        let next = self.acknowledged_value.max(self.unanswered.unwrap_or(0)) + 1;
        object[SHARED_COLLECTION.field][&self.field] = json!(next.to_string());
        self.unanswered = Some(next);
        match client.send(Request::put(SHARED_COLLECTION.object_path(SHARED_OBJECT), &object)).await
        {
            Ok(answer) if answer.status.is_success() => {
                let said = answer.json().map_err(|error| format!("half an answer: {error}"))?;
                life.observe_revision(revision(&said)?);
                (self.acknowledged_value, self.unanswered) = (next, None);
                self.acknowledged += 1;
                life.count_acknowledged();
                Ok(true)
            }
            Ok(answer) if answer.status.as_u16() == 409 => {
                self.unanswered = None;
                self.conflicts += 1;
                Ok(true)
            }
            _ if life.is_ending() => Ok(false),
            Ok(answer) => Err(format!("shared: {} {}", answer.status, answer.text())),
            Err(error) => Err(error_chain(&error)),
        }
    }

    fn verify(&mut self, object: &Value) -> Result<(), String> {
        let text = object[SHARED_COLLECTION.field][&self.field].as_str();
        let found =
            text.map_or(Ok(0), str::parse).map_err(|_| format!("no writer wrote {object}"))?;
        if found != self.acknowledged_value && self.unanswered != Some(found) {
            let Self { field, acknowledged_value: settled, unanswered: doubt, .. } = self;
            return Err(format!(
                "{field} of the shared object: {settled} acknowledged, {doubt:?} in doubt, \
                 {found} found"
            ));
        }
        (self.acknowledged_value, self.unanswered) = (found, None);
        Ok(())
    }
}
