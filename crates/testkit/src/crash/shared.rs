//! One object that everybody writes: each has a field in it, and reads it whole before writing it.
//!
//! A write that does not respect the revision it was based on takes back what another was told.

use gantry_process::error_chain;
use serde_json::{Value, json};

use super::collection::{COLLECTIONS, Collection, Objects, SHARED, revision, succeed};
use super::writer::Writer;
use super::{Life, Report};
use crate::http::{Client, Request};

/// The collection the object is in.
const HOME: Collection = COLLECTIONS[0];

/// What one writer was told about its field.
#[derive(Debug)]
pub(super) struct Share {
    field: String,
    /// The last value that was acknowledged.
    settled: u64,
    /// A greater one that was asked for and not answered.
    doubt: Option<u64>,
    acknowledged: u64,
    conflicts: u64,
}

pub(super) async fn prepare(client: &Client) -> Result<(), String> {
    succeed(client, Request::post(HOME.path, &HOME.object(SHARED, &json!({})))).await.map(|_| ())
}

/// Compares every field with what its writer was told.
pub(super) fn judge(
    collection: &Collection,
    found: &mut Objects,
    writers: &mut [Writer],
) -> Result<(), String> {
    if *collection != HOME {
        return Ok(());
    }
    let object = found.remove(SHARED).ok_or("the shared object is gone")?;
    writers.iter_mut().try_for_each(|writer| writer.share.judge(&object))
}

impl Share {
    pub(super) fn of(number: usize) -> Self {
        let field = format!("w{number}");
        Self { field, settled: 0, doubt: None, acknowledged: 0, conflicts: 0 }
    }

    pub(super) fn tell(&self, report: &mut Report) {
        report.acknowledged += self.acknowledged;
        report.conflicts += self.conflicts;
    }

    /// Reads and writes once; false when the server is gone.
    pub(super) async fn write(&mut self, client: &Client, life: &Life) -> Result<bool, String> {
        let mut object = match client.send(Request::get(HOME.place(SHARED))).await {
            Ok(answer) if answer.status.is_success() => {
                answer.json().map_err(|error| format!("half an answer: {error}"))?
            }
            _ if life.is_ending() => return Ok(false),
            Ok(answer) => return Err(format!("shared: {} {}", answer.status, answer.text())),
            Err(error) => return Err(error_chain(&error)),
        };
        self.judge(&object)?;
        // Every value is asked for once, so that it tells which attempt was carried out.
        let next = self.settled.max(self.doubt.unwrap_or(0)) + 1;
        object[HOME.field][&self.field] = json!(next.to_string());
        self.doubt = Some(next);
        match client.send(Request::put(HOME.place(SHARED), &object)).await {
            Ok(answer) if answer.status.is_success() => {
                let said = answer.json().map_err(|error| format!("half an answer: {error}"))?;
                life.saw(revision(&said)?);
                (self.settled, self.doubt) = (next, None);
                self.acknowledged += 1;
                life.answered();
                Ok(true)
            }
            Ok(answer) if answer.status.as_u16() == 409 => {
                self.doubt = None;
                self.conflicts += 1;
                Ok(true)
            }
            _ if life.is_ending() => Ok(false),
            Ok(answer) => Err(format!("shared: {} {}", answer.status, answer.text())),
            Err(error) => Err(error_chain(&error)),
        }
    }

    fn judge(&mut self, object: &Value) -> Result<(), String> {
        let text = object[HOME.field][&self.field].as_str();
        let found = text.map_or(Ok(0), str::parse).map_err(|_| format!("nobody wrote {object}"))?;
        if found != self.settled && self.doubt != Some(found) {
            let Self { field, settled, doubt, .. } = self;
            return Err(format!(
                "{field} of the shared object: {settled} acknowledged, {doubt:?} in doubt, \
                 {found} found"
            ));
        }
        (self.settled, self.doubt) = (found, None);
        Ok(())
    }
}
