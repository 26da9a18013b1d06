//! Asks the questions that inquiries want answered.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use gantry_process::clock::{Clock, Moment};
use gantry_reconcile::inquiry::{Asked, Question, QuestionTable, Wanted};
use gantry_reconcile::{Change, Fact, Inquiry, Key, Kind, World};
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::Later;
use crate::audience::Audience;
use crate::lease::Permit;
use crate::meters::Meters;
use crate::run::Handle;
use crate::wake_queue::Queue;

/// Answers questions about the outside.
pub trait Responder<F: Fact>: Send + Sync {
    /// Finds the answer, or says why there is none. It may be dropped at any time.
    fn answer<'a>(
        &'a self,
        question: &'a F::Subject,
        context: &'a ResponderContext,
    ) -> Later<'a, Result<F, String>>;
}

/// What a responder may use of the shell that asks it.
#[derive(Clone, Debug)]
pub struct ResponderContext {
    /// What the shell sees, and what it may be told to follow.
    pub handle: Handle,
    /// The clock of the shell.
    pub clock: Clock,
}

/// An inquiry of any sort of facts, and who answers it.
pub trait AnyInquiry: Send + Sync {
    /// The name.
    fn name(&self) -> &'static str;

    /// The kinds that decide what is asked.
    fn kinds(&self) -> Vec<Kind>;

    /// The keys whose questions may differ after a change.
    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key>;

    /// Asks until it is dropped.
    fn run(self: Arc<Self>, context: Context) -> Later<'static, ()>;
}

/// What asking needs of its shell.
#[derive(Clone)]
pub struct Context {
    pub(crate) audience: Arc<Audience>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) permit: Permit,
    pub(crate) meters: Meters,
    pub(crate) responder: ResponderContext,
}

impl Context {
    fn clock(&self) -> &Clock {
        &self.responder.clock
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Context({:?})", self.permit)
    }
}

/// An inquiry with its responder.
#[derive(Debug)]
pub struct Asks<I, R> {
    inquiry: I,
    responder: R,
}

impl<I: Inquiry, R: Responder<I::Fact>> Asks<I, R> {
    /// Has the questions of an inquiry answered.
    #[must_use]
    pub fn new(inquiry: I, responder: R) -> Self {
        Self { inquiry, responder }
    }
}

/// An answer, or why there is none.
struct Answer<F: Fact> {
    question: F::Subject,
    asked: Asked,
    at: Timestamp,
    /// Absent when nobody wants it any more.
    said: Option<Result<F, String>>,
}

impl<I, R> AnyInquiry for Asks<I, R>
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

    fn run(self: Arc<Self>, context: Context) -> Later<'static, ()> {
        Box::pin(async move {
            let mut run = Run {
                asks: &self,
                table: QuestionTable::new(self.inquiry.concurrency()),
                attempts: BTreeMap::new(),
                context: &context,
            };
            run.ask().await;
        })
    }
}

/// One inquiry while it runs.
struct Run<'a, I: Inquiry, R> {
    asks: &'a Asks<I, R>,
    table: QuestionTable<Question<I>, Moment>,
    /// How the questions that are under way are dropped.
    attempts: BTreeMap<Asked, CancellationToken>,
    context: &'a Context,
}

impl<I: Inquiry, R: Responder<I::Fact>> Run<'_, I, R> {
    async fn ask(&mut self) {
        let Context { queue, permit, .. } = self.context;
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
                if !is_leader && self.asks.inquiry.policy(&question).leader_only {
                    continue;
                }
                let Some(asked) = self.table.start(&question) else { continue };
                let dropped = CancellationToken::new();
                self.attempts.insert(asked, dropped.clone());
                under_way.push(answer(self.asks, self.context, question, asked, dropped));
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
                    // Nobody is left who could grant it: the shell ends.
                    false if permit.granted().await.is_err() => std::future::pending().await,
                    false => {}
                    true => std::future::pending().await,
                }
            };
            tokio::select! {
                // Each may be dropped: they only wait, and what is under way stays there.
                () = queue.ready_now() => {}
                Some(answer) = under_way.next() => self.end(answer),
                () = due => {}
                () = leads => {}
            }
        }
    }

    /// Finds out what a key wants to know. Returns when that may differ though nothing changes.
    fn refresh(&mut self, key: &Key) -> Option<Moment> {
        let Context { audience, meters, .. } = self.context;
        let clock = self.context.clock();
        let (inquiry, world, now) = (&self.asks.inquiry, audience.world(), clock.now());
        let wanted = AssertUnwindSafe(|| inquiry.wanted(world, key, now));
        let Ok(wanted) = std::panic::catch_unwind(wanted) else {
            meters.panicked(inquiry.name());
            tracing::error!(inquiry = inquiry.name(), %key, "inquiry panicked on a key");
            return None;
        };
        let Wanted { questions, stale, requeue_at } = wanted;
        let moment = clock.moment();
        let dropped = self.table.want(key, questions, |it| inquiry.group(it), moment);
        let facts = world.facts::<I::Fact>();
        for question in &stale {
            // What fails is tried again when its pause is over.
            if facts.get(question).is_none_or(|it| it.failure.is_none()) {
                self.table.expedite(question, moment);
            }
        }
        for (question, asked) in dropped {
            let attempt = asked.and_then(|it| self.attempts.remove(&it));
            if let Some(attempt) = attempt {
                attempt.cancel();
            }
            if let Some(change) = facts.forget(&question) {
                audience.show_fact(&change);
            }
        }
        let wait = |at: Timestamp| Duration::try_from(at.duration_since(now)).unwrap_or_default();
        requeue_at.map(|at| moment + wait(at))
    }

    /// Records an answer, and shows it to the controllers.
    fn end(&mut self, answer: Answer<I::Fact>) {
        let Answer { question, asked, at, said } = answer;
        let Context { audience, meters, .. } = self.context;
        let clock = self.context.clock();
        let inquiry = &self.asks.inquiry;
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
                tracing::warn!(inquiry = name, ?question, error, retry_in = ?wait, "inquiry failed");
                facts.fail(question, error, clock.now())
            }
        };
        audience.show_fact(&change);
    }
}

async fn answer<I: Inquiry, R: Responder<I::Fact>>(
    asks: &Asks<I, R>,
    context: &Context,
    question: Question<I>,
    asked: Asked,
    dropped: CancellationToken,
) -> Answer<I::Fact> {
    let clock = context.clock();
    let (at, timeout) = (clock.now(), asks.inquiry.policy(&question).timeout);
    let answer = asks.responder.answer(&question, &context.responder);
    let answer = AssertUnwindSafe(answer).catch_unwind();
    let said = tokio::select! {
        biased;
        // May be dropped: it only waits.
        () = dropped.cancelled() => None,
        // May be dropped: a question changes nothing.
        said = clock.timeout(timeout, answer) => Some(match said {
            Ok(Ok(said)) => said,
            Ok(Err(_)) => Err("the responder panicked: see the log".to_owned()),
            Err(late) => Err(late.to_string()),
        }),
    };
    Answer { question, asked, at, said }
}
