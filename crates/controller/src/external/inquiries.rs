//! Asks the questions that inquiries want answered.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use gantry_process::clock::{Clock, Moment};
use gantry_reconcile::inquiry::{InquiryAttempt, Question, QuestionTable, WantedQuestions};
use gantry_reconcile::{Change, Fact, FactChange, FactKind, Inquiry, Key, Kind, World};
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::BoxFuture;
use crate::lease::Permit;
use crate::metrics::ControllerMetrics;
use crate::run::ManagerHandle;
use crate::subscribers::Subscribers;
use crate::work_queue::WorkQueue;

/// Answers questions about external systems.
pub trait Responder<F: Fact>: Send + Sync {
    /// Returns the answer, or why there is none. It may be dropped at any time.
    fn answer<'a>(
        &'a self,
        question: &'a F::Subject,
        context: &'a ResponderContext,
    ) -> BoxFuture<'a, Result<F, String>>;
}

/// What a responder may use of the manager that asks it.
#[derive(Clone, Debug)]
pub struct ResponderContext {
    /// The handle to the manager's caches, which can also add watches.
    pub handle: ManagerHandle,
    /// The clock of the manager.
    pub clock: Clock,
}

/// An inquiry of any kind of fact, with its responder.
pub trait AnyInquiry: Send + Sync {
    /// The name.
    fn name(&self) -> &'static str;

    /// The kinds that decide what is asked.
    fn kinds(&self) -> Vec<Kind>;

    /// The keys whose questions may differ after a change.
    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key>;

    /// The kinds of facts that decide what is asked.
    fn facts(&self) -> Vec<FactKind>;

    /// The keys whose questions may differ after a change of a fact.
    fn enqueue_for_fact(&self, world: &World, change: &FactChange) -> Vec<Key>;

    /// Asks until it is dropped.
    fn run(self: Arc<Self>, context: InquiryContext) -> BoxFuture<'static, ()>;
}

/// What an inquiry needs of its manager.
#[derive(Clone)]
pub struct InquiryContext {
    pub(crate) subscribers: Arc<Subscribers>,
    pub(crate) queue: Arc<WorkQueue>,
    pub(crate) permit: Permit,
    pub(crate) metrics: ControllerMetrics,
    pub(crate) responder: ResponderContext,
}

impl InquiryContext {
    fn clock(&self) -> &Clock {
        &self.responder.clock
    }
}

impl fmt::Debug for InquiryContext {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Context({:?})", self.permit)
    }
}

/// An inquiry with its responder.
#[derive(Debug)]
pub struct InquiryWithResponder<I, R> {
    inquiry: I,
    responder: R,
}

impl<I: Inquiry, R: Responder<I::Fact>> InquiryWithResponder<I, R> {
    /// Connects an inquiry with the responder that answers its questions.
    #[must_use]
    pub fn new(inquiry: I, responder: R) -> Self {
        Self { inquiry, responder }
    }
}

/// The result of asking a question.
struct InquiryAnswer<F: Fact> {
    question: F::Subject,
    attempt: InquiryAttempt,
    at: Timestamp,
    /// Absent when it is no longer wanted.
    result: Option<Result<F, String>>,
}

impl<I, R> AnyInquiry for InquiryWithResponder<I, R>
where
    I: Inquiry + 'static,
    R: Responder<I::Fact> + 'static,
{
    fn name(&self) -> &'static str {
        self.inquiry.name()
    }

    fn kinds(&self) -> Vec<Kind> {
        self.inquiry.kinds()
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        self.inquiry.enqueue(world, change)
    }

    fn facts(&self) -> Vec<FactKind> {
        self.inquiry.facts()
    }

    fn enqueue_for_fact(&self, world: &World, change: &FactChange) -> Vec<Key> {
        self.inquiry.enqueue_for_fact(world, change)
    }

    fn run(self: Arc<Self>, context: InquiryContext) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let mut run = InquiryRun {
                source: &self,
                table: QuestionTable::new(self.inquiry.concurrency()),
                attempts: BTreeMap::new(),
                context: &context,
            };
            run.run().await;
        })
    }
}

/// A running inquiry.
struct InquiryRun<'a, I: Inquiry, R> {
    source: &'a InquiryWithResponder<I, R>,
    table: QuestionTable<Question<I>, Moment>,
    /// The tokens that cancel the questions in flight.
    attempts: BTreeMap<InquiryAttempt, CancellationToken>,
    context: &'a InquiryContext,
}

impl<I: Inquiry, R: Responder<I::Fact>> InquiryRun<'_, I, R> {
    async fn run(&mut self) {
        let InquiryContext { queue, permit, .. } = self.context;
        let clock = self.context.clock();
        let mut under_way = FuturesUnordered::new();
        loop {
            while let Some(key) = queue.try_next() {
                let next = self.refresh(&key);
                queue.done(&key, next);
            }
            let is_leader = permit.check().is_ok();
            let moment = clock.moment();
            for question in self.table.startable(moment) {
                if !is_leader && self.source.inquiry.policy(&question).leader_only {
                    continue;
                }
                let Some(asked) = self.table.start(&question) else { continue };
                let dropped = CancellationToken::new();
                self.attempts.insert(asked, dropped.clone());
                under_way.push(ask_responder(self.source, self.context, question, asked, dropped));
            }
            let next = self.table.next_due(moment);
            let due = async {
                match next {
                    Some(at) => clock.sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let leads = async {
                match is_leader {
                    // No task is left that could grant it: the manager stops.
                    false if permit.granted().await.is_err() => std::future::pending().await,
                    false => {}
                    true => std::future::pending().await,
                }
            };
            tokio::select! {
                // Each is cancel-safe: they only wait, and questions in flight stay in the set.
                () = queue.wait_until_ready() => {}
                Some(answer) = under_way.next() => self.end(answer),
                () = due => {}
                () = leads => {}
            }
        }
    }

    /// Updates the questions of a key. Returns when they may differ even if nothing changes.
    fn refresh(&mut self, key: &Key) -> Option<Moment> {
        let InquiryContext { subscribers: audience, metrics: meters, .. } = self.context;
        let clock = self.context.clock();
        let (inquiry, world, now) = (&self.source.inquiry, audience.world(), clock.now());
        let wanted = AssertUnwindSafe(|| inquiry.wanted_questions(world, key, now));
        let Ok(wanted) = std::panic::catch_unwind(wanted) else {
            meters.panicked(inquiry.name());
            tracing::error!(inquiry = inquiry.name(), %key, "inquiry panicked on a key");
            return None;
        };
        let WantedQuestions { questions, stale, expedited, requeue_at } = wanted;
        let moment = clock.moment();
        let dropped = self.table.set_wanted(key, questions, |it| inquiry.group(it), moment);
        let facts = world.facts::<I::Fact>();
        for question in &stale {
            // A failed question is retried when its delay has passed.
            if facts.get(question).is_none_or(|it| it.failure.is_none()) {
                self.table.expedite(question, moment);
            }
        }
        expedited.iter().for_each(|it| self.table.expedite(it, moment));
        for (question, asked) in dropped {
            let attempt = asked.and_then(|it| self.attempts.remove(&it));
            if let Some(attempt) = attempt {
                attempt.cancel();
            }
            if let Some(change) = facts.forget(&question) {
                audience.notify_fact(&change);
            }
        }
        let wait = |at: Timestamp| Duration::try_from(at.duration_since(now)).unwrap_or_default();
        requeue_at.map(|at| moment + wait(at))
    }

    /// Records an answer, and notifies the controllers.
    fn end(&mut self, answer: InquiryAnswer<I::Fact>) {
        let InquiryAnswer { question, attempt: asked, at, result: said } = answer;
        let InquiryContext { subscribers: audience, metrics: meters, .. } = self.context;
        let clock = self.context.clock();
        let inquiry = &self.source.inquiry;
        let name = inquiry.name();
        let Some(said) = said else {
            meters.inquired(name, "dropped");
            return;
        };
        self.attempts.remove(&asked);
        let facts = audience.world().facts::<I::Fact>();
        let known = facts.get(&question);
        let failures = known.and_then(|it| it.failure.as_ref().map(|it| it.count)).unwrap_or(0);
        let wait = match &said {
            Ok(fact) => inquiry.refresh_interval(&question, fact),
            Err(_) => inquiry.policy(&question).retry_delay(failures.saturating_add(1)),
        };
        if !self.table.end(&question, asked, clock.moment() + wait) {
            return;
        }
        let change = match said {
            Ok(fact) => {
                meters.inquired(name, "answered");
                facts.record(question, fact, at)
            }
            Err(error) => {
                meters.inquired(name, "failed");
                tracing::warn!(
                    inquiry = name, ?question, error, retry_in = ?wait,
                    "inquiry failed"
                );
                facts.fail(question, error, clock.now())
            }
        };
        audience.notify_fact(&change);
    }
}

async fn ask_responder<I: Inquiry, R: Responder<I::Fact>>(
    asks: &InquiryWithResponder<I, R>,
    context: &InquiryContext,
    question: Question<I>,
    asked: InquiryAttempt,
    dropped: CancellationToken,
) -> InquiryAnswer<I::Fact> {
    let clock = context.clock();
    let (at, timeout) = (clock.now(), asks.inquiry.policy(&question).timeout);
    let answer = asks.responder.answer(&question, &context.responder);
    let answer = AssertUnwindSafe(answer).catch_unwind();
    let said = tokio::select! {
        biased;
        // Cancel-safe: it only waits.
        () = dropped.cancelled() => None,
        // Cancel-safe: a question changes nothing.
        said = clock.timeout(timeout, answer) => Some(match said {
            Ok(Ok(said)) => said,
            Ok(Err(_)) => Err("the responder panicked: see the log".to_owned()),
            Err(late) => Err(late.to_string()),
        }),
    };
    InquiryAnswer { question, attempt: asked, at, result: said }
}
