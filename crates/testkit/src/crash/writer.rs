//! One writer, and what it was told about its own objects.

use std::collections::BTreeMap;

use gantry_process::error_chain;
use serde_json::{Value, json};

use super::collection::{COLLECTIONS, Collection, Objects, bare, revision};
use super::shared::Share;
use super::{Life, Numbered, Report};
use crate::http::{Client, Request, Response};

/// Objects of one writer in one collection: few, so that each has a long history.
const OBJECTS: usize = 3;

/// Writes objects that nobody else writes, and a share of one that everybody does.
#[derive(Debug)]
pub(super) struct Writer {
    number: usize,
    random: fastrand::Rng,
    ledger: BTreeMap<(Collection, String), Account>,
    pub(super) share: Share,
    step: u64,
    acknowledged: u64,
    done_unanswered: u64,
    not_done: u64,
}

/// What is known about one object.
#[derive(Debug, Default)]
struct Account {
    /// As it was acknowledged; nothing if its deletion was, or if it never was.
    settled: Option<Value>,
    /// What was asked and not answered.
    doubt: Option<Attempt>,
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
            ledger: BTreeMap::new(),
            share: Share::of(number),
            step: 0,
            acknowledged: 0,
            done_unanswered: 0,
            not_done: 0,
        }
    }

    /// Writes until the server is gone.
    pub(super) async fn run(mut self, client: Client, life: Life) -> Result<Self, String> {
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

    pub(super) fn tell(&self, report: &mut Report) {
        report.acknowledged += self.acknowledged;
        report.done_unanswered += self.done_unanswered;
        report.not_done += self.not_done;
        self.share.tell(report);
    }

    /// Writes once; false when the server is gone.
    async fn write(&mut self, client: &Client, life: &Life) -> Result<bool, String> {
        let collection = COLLECTIONS[self.random.usize(..COLLECTIONS.len())];
        let name = format!("w{}-{}", self.number, self.random.usize(..OBJECTS));
        let content = self.content();
        let attempt = match &self.account(collection, &name).settled {
            None => Attempt::Create(content),
            Some(_) => match self.random.u8(..8) {
                0..3 => Attempt::Replace(content),
                3..6 => Attempt::Patch(content),
                6.. => Attempt::Delete,
            },
        };
        let account = self.account(collection, &name);
        account.doubt = Some(attempt.clone());
        let request = request(collection, &name, account.settled.as_ref(), &attempt);
        let answer = match client.send(request).await {
            Ok(answer) => answer,
            Err(_) if life.is_ending() => return Ok(false),
            Err(error) => return Err(error_chain(&error)),
        };
        // A server that stops refuses; one that was killed just now may have said anything before.
        if !answer.status.is_success() && life.is_ending() {
            return Ok(false);
        }
        account.settle(collection, &name, &attempt, &answer, life)?;
        self.acknowledged += 1;
        life.answered();
        Ok(true)
    }

    fn account(&mut self, collection: Collection, name: &str) -> &mut Account {
        self.ledger.entry((collection, name.to_owned())).or_default()
    }

    /// Something that was never written before. Its letters are base64, as secrets want them.
    fn content(&mut self) -> Value {
        self.step += 1;
        let length = 4 * self.random.usize(1..400);
        let fill: String =
            std::iter::repeat_with(|| self.random.alphanumeric()).take(length).collect();
        json!({ "step": format!("{:08}", self.step), "fill": fill })
    }

    /// Compares what is there with what was said, and takes it from the list.
    pub(super) fn judge(
        &mut self,
        collection: &Collection,
        found: &mut Objects,
    ) -> Result<(), String> {
        let ours = self.ledger.iter_mut().filter(|((other, _), _)| other == collection);
        for ((_, name), account) in ours {
            let now = found.remove(name);
            let doubt = account.doubt.take();
            if now == account.settled {
                self.not_done += u64::from(doubt.is_some());
                continue;
            }
            let done =
                doubt.as_ref().is_some_and(|it| it.explains(collection, account, now.as_ref()));
            if !done {
                let place = collection.place(name);
                let settled = show(account.settled.as_ref());
                let now = show(now.as_ref());
                return Err(format!(
                    "{place}\n  acknowledged: {settled}\n  in doubt: {doubt:?}\n  found: {now}"
                ));
            }
            account.settled = now;
            self.done_unanswered += 1;
        }
        Ok(())
    }
}

impl Account {
    /// Takes an answer at its word, after looking at the word.
    fn settle(
        &mut self,
        collection: Collection,
        name: &str,
        attempt: &Attempt,
        answer: &Response,
        life: &Life,
    ) -> Result<(), String> {
        let place = collection.place(name);
        if !answer.status.is_success() {
            return Err(format!("{attempt:?} of {place}: {} {}", answer.status, answer.text()));
        }
        let said = answer.json().map_err(|error| format!("{place}: half an answer: {error}"))?;
        let said = match attempt {
            Attempt::Delete => None,
            Attempt::Create(_) | Attempt::Replace(_) | Attempt::Patch(_) => Some(bare(said)),
        };
        if !attempt.explains(&collection, self, said.as_ref()) {
            let (settled, said) = (show(self.settled.as_ref()), show(said.as_ref()));
            return Err(format!("{attempt:?} of {place}\n  was {settled}\n  became {said}"));
        }
        if let Some(object) = &said {
            life.saw(revision(object)?);
        }
        self.settled = said;
        self.doubt = None;
        Ok(())
    }
}

impl Attempt {
    /// Whether an object can be what this made of what was there before.
    fn explains(&self, collection: &Collection, before: &Account, now: Option<&Value>) -> bool {
        let (Self::Create(content) | Self::Replace(content) | Self::Patch(content)) = self else {
            return now.is_none();
        };
        let Some(now) = now else { return false };
        let whole = now[collection.field] == *content;
        match &before.settled {
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
            Request::put(collection.place(name), &object)
        }
        Attempt::Patch(content) => {
            let patch = json!({ collection.field: content });
            Request::patch(collection.place(name), "application/merge-patch+json", &patch)
        }
        Attempt::Delete => Request::delete(collection.place(name)),
    }
}

fn show(object: Option<&Value>) -> String {
    object.map_or_else(|| "nothing".to_owned(), Value::to_string)
}
