//! Writes objects, and records what was acknowledged about them.

use std::collections::BTreeMap;

use gantry_process::error_chain;
use serde_json::{Value, json};

use super::collection::{COLLECTIONS, Collection, Objects, revision, without_type_meta};
use super::shared::SharedField;
use super::{Numbered, Report, ServerLifetime};
use crate::http::{Client, Request, Response};

/// Objects of one writer in one collection: few, so that each has a long history.
const OBJECTS: usize = 3;

/// Writes objects of its own, and a field of the object that all writers share.
#[derive(Debug)]
pub(super) struct Writer {
    number: usize,
    random: fastrand::Rng,
    records: BTreeMap<(Collection, String), ObjectRecord>,
    pub(super) share: SharedField,
    step: u64,
    acknowledged: u64,
    done_unanswered: u64,
    not_done: u64,
}

/// The known state of one object.
#[derive(Debug, Default)]
struct ObjectRecord {
    /// The acknowledged state; nothing if its deletion was acknowledged, or if it was never
    /// created.
    acknowledged: Option<Value>,
    /// The write that was sent and not answered.
    unanswered: Option<Attempt>,
}

#[derive(Clone, Debug)]
enum Attempt {
    Create(Value),
    Replace(Value),
    Patch(Value),
    Delete,
}

impl Numbered for Writer {
    fn number(&self) -> usize {
        self.number
    }
}

impl Writer {
    pub(super) fn new(number: usize, random: fastrand::Rng) -> Self {
        Self {
            number,
            random,
            records: BTreeMap::new(),
            share: SharedField::of(number),
            step: 0,
            acknowledged: 0,
            done_unanswered: 0,
            not_done: 0,
        }
    }

    /// Writes until the server is down.
    pub(super) async fn run(
        mut self,
        client: Client,
        life: ServerLifetime,
    ) -> Result<Self, String> {
        loop {
            let going = match self.random.u8(..) {
                ..40 => self.share.write(&client, &life).await?,
                40.. => self.write(&client, &life).await?,
            };
            if !going {
                return Ok(self);
            }
        }
    }

    pub(super) fn add_to_report(&self, report: &mut Report) {
        report.acknowledged += self.acknowledged;
        report.done_unanswered += self.done_unanswered;
        report.not_done += self.not_done;
        self.share.add_to_report(report);
    }

    /// Writes once; false when the server is down.
    async fn write(&mut self, client: &Client, life: &ServerLifetime) -> Result<bool, String> {
        let collection = COLLECTIONS[self.random.usize(..COLLECTIONS.len())];
        let name = format!("w{}-{}", self.number, self.random.usize(..OBJECTS));
        let content = self.content();
        let attempt = match &self.record(collection, &name).acknowledged {
            None => Attempt::Create(content),
            Some(_) => match self.random.u8(..8) {
                0..3 => Attempt::Replace(content),
                3..6 => Attempt::Patch(content),
                6.. => Attempt::Delete,
            },
        };
        let account = self.record(collection, &name);
        account.unanswered = Some(attempt.clone());
        let request = request(collection, &name, account.acknowledged.as_ref(), &attempt);
        let answer = match client.send(request).await {
            Ok(answer) => answer,
            Err(_) if life.is_ending() => return Ok(false),
            Err(error) => return Err(error_chain(&error)),
        };
        // A stopping server refuses; a server that was just killed may have sent any answer before.
        if !answer.status.is_success() && life.is_ending() {
            return Ok(false);
        }
        account.apply_response(collection, &name, &attempt, &answer, life)?;
        self.acknowledged += 1;
        life.count_acknowledged();
        Ok(true)
    }

    fn record(&mut self, collection: Collection, name: &str) -> &mut ObjectRecord {
        self.records.entry((collection, name.to_owned())).or_default()
    }

    /// Returns content that was never written before. Its letters are base64, as secrets require.
    fn content(&mut self) -> Value {
        self.step += 1;
        let length = 4 * self.random.usize(1..400);
        let fill: String =
            std::iter::repeat_with(|| self.random.alphanumeric()).take(length).collect();
        json!({ "step": format!("{:08}", self.step), "fill": fill })
    }

    /// Compares what exists with what was acknowledged, and removes it from the list.
    pub(super) fn verify(
        &mut self,
        collection: &Collection,
        found: &mut Objects,
    ) -> Result<(), String> {
        let ours = self.records.iter_mut().filter(|((other, _), _)| other == collection);
        for ((_, name), account) in ours {
            let now = found.remove(name);
            let doubt = account.unanswered.take();
            if now == account.acknowledged {
                self.not_done += u64::from(doubt.is_some());
                continue;
            }
            let done = doubt
                .as_ref()
                .is_some_and(|it| it.could_produce(collection, account, now.as_ref()));
            if !done {
                let place = collection.object_path(name);
                let settled = show(account.acknowledged.as_ref());
                let now = show(now.as_ref());
                return Err(format!(
                    "{place}\n  acknowledged: {settled}\n  in doubt: {doubt:?}\n  found: {now}"
                ));
            }
            account.acknowledged = now;
            self.done_unanswered += 1;
        }
        Ok(())
    }
}

impl ObjectRecord {
    /// Records an acknowledgement after checking the object in it.
    fn apply_response(
        &mut self,
        collection: Collection,
        name: &str,
        attempt: &Attempt,
        answer: &Response,
        life: &ServerLifetime,
    ) -> Result<(), String> {
        let place = collection.object_path(name);
        if !answer.status.is_success() {
            return Err(format!("{attempt:?} of {place}: {} {}", answer.status, answer.text()));
        }
        let said = answer.json().map_err(|error| format!("{place}: half an answer: {error}"))?;
        let said = match attempt {
            Attempt::Delete => None,
            Attempt::Create(_) | Attempt::Replace(_) | Attempt::Patch(_) => {
                Some(without_type_meta(said))
            }
        };
        if !attempt.could_produce(&collection, self, said.as_ref()) {
            let (settled, said) = (show(self.acknowledged.as_ref()), show(said.as_ref()));
            return Err(format!("{attempt:?} of {place}\n  was {settled}\n  became {said}"));
        }
        if let Some(object) = &said {
            life.observe_revision(revision(object)?);
        }
        self.acknowledged = said;
        self.unanswered = None;
        Ok(())
    }
}

impl Attempt {
    /// Returns whether an object can be the result of this write.
    fn could_produce(
        &self,
        collection: &Collection,
        before: &ObjectRecord,
        now: Option<&Value>,
    ) -> bool {
        let (Self::Create(content) | Self::Replace(content) | Self::Patch(content)) = self else {
            return now.is_none();
        };
        let Some(now) = now else { return false };
        let whole = now[collection.field] == *content;
        match &before.acknowledged {
            None => whole && now["metadata"]["uid"].is_string(),
            Some(before) => {
                let newer = revision(now).ok() > revision(before).ok();
                whole && newer && now["metadata"]["uid"] == before["metadata"]["uid"]
            }
        }
    }
}

fn request(
    collection: Collection,
    name: &str,
    before: Option<&Value>,
    attempt: &Attempt,
) -> Request {
    match attempt {
        Attempt::Create(content) => {
            Request::post(collection.path, &collection.object(name, content))
        }
        Attempt::Replace(content) => {
            let mut object = collection.object(name, content);
            let revision = before.map(|before| before["metadata"]["resourceVersion"].clone());
            object["metadata"]["resourceVersion"] = revision.unwrap_or_default();
            Request::put(collection.object_path(name), &object)
        }
        Attempt::Patch(content) => {
            let patch = json!({ collection.field: content });
            Request::patch(collection.object_path(name), "application/merge-patch+json", &patch)
        }
        Attempt::Delete => Request::delete(collection.object_path(name)),
    }
}

fn show(object: Option<&Value>) -> String {
    object.map_or_else(|| "nothing".to_owned(), Value::to_string)
}
