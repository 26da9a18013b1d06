//! Finds out what the authors of AppWrappers may create.
//!
//! Who waits is asked about when it comes, and again every few seconds for as long as it waits, so that
//! what is decided by is never old. What the server said is put down where the controllers of the queue see
//! it. Nothing is asked by an operator that does not lead.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use gantry_controller::Handle;
use gantry_process::clock::Clock;
use gantry_queue::access::{self, Answer, Attributes, Need, Question, Recording, Right};
use gantry_queue::app_wrapper::AppWrapper;
use gantry_queue::author::{Author, CONFIGURATION};
use gantry_queue::catalog::Entry;
use gantry_queue::{Catalog, UserAccess};
use gantry_reconcile::{ApiPath, Change, Controller, Key, Kind, Plan, Shelf, View, World};
use http::Request;
use jiff::Timestamp;
use kube::Client;
use serde_json::Value;
use tokio::sync::Notify;

use super::scout::get;
use crate::up::SOURCE;

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often those are looked at of whom something is not known.
const AGAIN: Duration = Duration::from_secs(1);
/// How often everybody is looked at who is not decided about, and whether authors are recorded.
const ROUND: Duration = Duration::from_secs(10);
/// How many questions are asked at once.
const SIDE_BY_SIDE: usize = 16;
/// How many answers are kept at most. They are forgotten when nobody needs them any more.
const MOST: usize = 10_000;
/// How long it takes until every replica of a server asks whom it was told to ask.
const HEARD_BY_ALL: Duration = Duration::from_secs(5);
/// How long the kind of an item is waited for, and how often it is looked for.
const KIND: (u32, Duration) = (20, Duration::from_millis(50));

/// Hears of AppWrappers as controllers do, and asks the server about their authors.
#[derive(Debug)]
pub(super) struct Reviewer {
    catalog: Catalog,
    /// With whose rights items are created: what has to be known of authors depends on it.
    access: UserAccess,
    /// Who came, or changed.
    heard: Mutex<BTreeSet<Key>>,
    news: Notify,
}

impl Controller for Reviewer {
    fn name(&self) -> &'static str {
        "queue-rights"
    }

    fn kinds(&self) -> Vec<Kind> {
        [Kind::of::<AppWrapper>()].into_iter().chain(access::kinds()).collect()
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        if change.after::<AppWrapper>().is_some_and(is_undecided) {
            self.heard().insert(change.key.clone());
            self.news.notify_one();
        }
        Vec::new()
    }

    fn plan(&self, _: &World, _: &Key, _: Timestamp) -> Plan {
        Plan::default()
    }
}

/// Whether the rights of its author matter to an AppWrapper.
fn is_undecided(wrapper: &AppWrapper) -> bool {
    wrapper.is_queued() || wrapper.is_pending()
}

/// What is asked of the server, and whom it is told to.
#[derive(Clone, Copy)]
struct Edge<'a> {
    handle: &'a Handle,
    client: &'a Client,
    clock: &'a Clock,
}

impl Reviewer {
    /// One that knows the kinds of items from here.
    pub(super) fn new(catalog: Catalog, access: UserAccess) -> Self {
        Self { catalog, access, heard: Mutex::default(), news: Notify::new() }
    }

    /// Asks whatever has to be known.
    pub(super) async fn run(&self, handle: &Handle, client: &Client, clock: &Clock) {
        handle.filled().await;
        let edge = Edge { handle, client, clock };
        tokio::join!(edge.follow_recording(), self.review(edge));
    }

    async fn review(&self, edge: Edge<'_>) {
        let Edge { handle, clock, .. } = edge;
        let shelf = handle.world().shelf::<AppWrapper>();
        // Those of whom something is not known, what is to be asked, and what is being asked.
        let (mut open, mut wanted) = (BTreeSet::new(), BTreeSet::new());
        let (mut busy, mut under_way) = (BTreeSet::new(), FuturesUnordered::new());
        let (mut round, mut again) = (clock.moment(), clock.moment());
        loop {
            let mut keys = std::mem::take(&mut *self.heard());
            let (moment, now) = (clock.moment(), clock.now());
            if handle.permit().check().is_err() {
                // Whoever leads asks; who begins to looks at everybody.
                (keys, round) = (BTreeSet::new(), moment);
            } else if moment >= round {
                round = moment + ROUND;
                edge.forget(now);
                let all = shelf.all();
                keys.extend(all.iter().filter(|it| is_undecided(it)).map(|it| it.metadata.key()));
            }
            if moment >= again {
                again = moment + AGAIN;
                keys.append(&mut open);
            }
            for key in keys {
                let Some(wrapper) = shelf.get(&key) else { continue };
                let asked = access::questions(handle.world(), &wrapper, self.access, now);
                let unsettled = is_open(handle.world(), &wrapper, self.access, now);
                if unsettled || !asked.is_empty() {
                    open.insert(key);
                }
                wanted.extend(asked.into_iter().filter(|it| !busy.contains(it)));
            }
            while busy.len() < SIDE_BY_SIDE {
                let Some(question) = wanted.pop_first() else { break };
                busy.insert(question.clone());
                under_way.push(self.settle(question, edge));
            }
            tokio::select! {
                // Each may be dropped: a notice is kept, and what is under way stays there.
                () = self.news.notified() => {}
                Some(question) = under_way.next() => {
                    busy.remove(&question);
                }
                () = clock.sleep(AGAIN) => {}
            }
        }
    }

    /// Asks one question, and tells what was said.
    async fn settle(&self, question: Question, edge: Edge<'_>) -> Question {
        let asked = edge.clock.now();
        let found = edge.clock.timeout(PATIENCE, self.ask(&question, edge)).await;
        let answer = match found {
            Ok(Ok(Some(answer))) => answer,
            // Nobody knows yet what kind that is: it is asked again in a moment.
            Ok(Ok(None)) => return question,
            Ok(Err(error)) => Answer::Unanswered(error.to_string()),
            Err(late) => Answer::Unanswered(late.to_string()),
        };
        if let Answer::Unanswered(error) = &answer {
            let namespace = &question.namespace;
            tracing::warn!(
                error,
                namespace,
                "could not ask what an author may create, trying again"
            );
        }
        edge.tell(question.answered(answer, asked));
        question
    }

    async fn ask(&self, question: &Question, edge: Edge<'_>) -> kube::Result<Option<Answer>> {
        let Question { author, namespace, need } = question;
        let Some(author) = Author::read(author) else { return Ok(None) };
        let name = match need {
            Need::Create(name) => name,
            Need::Privilege(privilege) => {
                let asked = Attributes::of(privilege);
                return edge.review(&author, namespace, asked).await.map(Some);
            }
        };
        let (tries, pause) = KIND;
        for _ in 0..tries {
            let resource = match self.catalog.look(name, Timestamp::MIN) {
                Some(Entry::Usable(resource) | Entry::Barred { resource, .. }) => resource,
                Some(Entry::Absent) => return Ok(Some(Answer::NoKind)),
                None => {
                    edge.clock.sleep(pause).await;
                    continue;
                }
            };
            return edge.review(&author, namespace, Attributes::create(&resource)).await.map(Some);
        }
        Ok(None)
    }

    // No code of others runs under the lock, so a poisoned one is still good.
    fn heard(&self) -> MutexGuard<'_, BTreeSet<Key>> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether it is not known yet what the author of an AppWrapper may create.
fn is_open(world: &World, wrapper: &AppWrapper, access: UserAccess, now: Timestamp) -> bool {
    let found = match wrapper.status.can_run {
        true => access::may_create(world, wrapper, access, now),
        false => access::may_pass(world, wrapper, access, now),
    };
    is_undecided(wrapper) && found.is_err_and(|it| it.is_open())
}

/// What a server says to a SubjectAccessReview.
pub(crate) fn read(said: &Value, asked: Attributes) -> Answer {
    let text = |name: &str| said["status"][name].as_str().unwrap_or_default().to_owned();
    if said["status"]["allowed"] == true {
        return Answer::Allowed;
    }
    // What went wrong with a role is why it does not count: who asks for the object itself is told the same.
    let words = [text("reason"), text("evaluationError")];
    let words: Vec<&str> = words.iter().map(String::as_str).filter(|it| !it.is_empty()).collect();
    Answer::Denied { asked, reason: words.join(": ") }
}

impl Edge<'_> {
    /// Asks the server whether an author may do something in a namespace.
    async fn review(
        self,
        author: &Author,
        namespace: &str,
        asked: Attributes,
    ) -> kube::Result<Answer> {
        let body = author.review(namespace, &asked);
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let request = Request::post(path).header(http::header::CONTENT_TYPE, "application/json");
        let request = request.body(body.to_string().into_bytes());
        let request = request.map_err(kube::Error::HttpError)?;
        let said = self.client.request::<Value>(request).await?;
        Ok(read(&said, asked))
    }

    /// Finds out since when authors are recorded, for as long as it is asked to.
    async fn follow_recording(self) {
        let Self { client, clock, .. } = self;
        loop {
            let found = clock.timeout(PATIENCE, recording(client)).await;
            let pause = match found {
                Ok(Ok(Some(since))) => {
                    self.record(Some(since));
                    ROUND
                }
                Ok(Ok(None)) => {
                    tracing::warn!(
                        CONFIGURATION,
                        "authors are not recorded: there is no such MutatingWebhookConfiguration"
                    );
                    self.record(None);
                    AGAIN
                }
                Ok(Err(error)) => {
                    tracing::warn!(%error, CONFIGURATION, "could not find out whether authors are recorded, trying again");
                    if matches!(&error, kube::Error::Api(status) if status.code == 403) {
                        self.record(None);
                    }
                    AGAIN
                }
                Err(late) => {
                    tracing::warn!(error = %late, CONFIGURATION, "could not find out whether authors are recorded, trying again");
                    AGAIN
                }
            };
            clock.sleep(pause).await;
        }
    }

    fn record(self, since: Option<Timestamp>) {
        shelf::<Recording>(self.handle, |shelf| {
            let known = shelf.get(&Recording::key()).map(|it| it.since);
            match since {
                _ if known == since => None,
                Some(since) => Some(shelf.set(Recording::new(since))),
                None => shelf.unset(&Recording::key()),
            }
        });
    }

    fn tell(self, right: Right) {
        shelf::<Right>(self.handle, |shelf| {
            let fits = shelf.len() < MOST || shelf.get(&right.metadata.key()).is_some();
            fits.then(|| shelf.set(right))
        });
    }

    /// Forgets what nobody has needed for a while.
    fn forget(self, now: Timestamp) {
        let all = self.handle.world().shelf::<Right>().all();
        for right in all.iter().filter(|it| access::is_over(it, now)) {
            shelf::<Right>(self.handle, |shelf| shelf.unset(&right.metadata.key()));
        }
    }
}

/// Changes a shelf, and tells it.
fn shelf<V: View>(handle: &Handle, act: impl FnOnce(&Shelf<V>) -> Option<Change>) {
    handle.make(&V::RESOURCE, |shelf| {
        let change = shelf.as_any().downcast_ref::<Shelf<V>>().and_then(act);
        (change.into_iter().collect(), ())
    });
}

/// Since when authors are recorded, by the object that tells the server to have them recorded.
async fn recording(client: &Client) -> kube::Result<Option<Timestamp>> {
    const CONFIGURATIONS: ApiPath =
        ApiPath::from_static("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations");
    let path = CONFIGURATIONS.item(CONFIGURATION);
    let path = path.map_err(|error| kube::Error::Service(error.into()))?;
    match client.request::<Value>(get(&path)?).await {
        Ok(object) => Ok(since(&object)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

/// Since when what a server is told by an object is done.
pub(crate) fn since(object: &Value) -> Option<Timestamp> {
    let made: Timestamp = object["metadata"]["creationTimestamp"].as_str()?.parse().ok()?;
    match object["metadata"]["annotations"][SOURCE].is_string() {
        // A server that told itself, in one process, does it at once.
        true => Some(made),
        false => made.checked_add(HEARD_BY_ALL).ok(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ds_9_what_is_not_allowed_is_denied_in_the_words_of_the_server() {
        let jobs = gantry_reconcile::Resource::namespaced("batch", "v1", "jobs", "Job");
        let asked = || Attributes::create(&jobs);
        let denied = |reason: &str| Answer::Denied { asked: asked(), reason: reason.to_owned() };
        let table = [
            (json!({"allowed": true, "reason": "RBAC: allowed"}), Answer::Allowed),
            (json!({"allowed": false}), denied("")),
            (json!({"allowed": false, "reason": "no"}), denied("no")),
            (json!({"allowed": false, "reason": "no", "evaluationError": "e"}), denied("no: e")),
            (json!({"allowed": false, "evaluationError": "no role"}), denied("no role")),
            (json!({}), denied("")),
        ];
        for (status, expected) in table {
            assert_eq!(read(&json!({"status": status}), asked()), expected, "{status}");
        }
    }

    #[test]
    fn ds_9_a_server_of_many_takes_a_while_to_ask() {
        let mut object = json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}});
        let at = |text: &str| Some(text.parse().unwrap());
        assert_eq!(since(&object), at("2026-01-01T00:00:05Z"));
        object["metadata"]["annotations"] = json!({SOURCE: "x"});
        assert_eq!(since(&object), at("2026-01-01T00:00:00Z"), "one that told itself does not");
        assert_eq!(since(&json!({})), None);
    }
}
