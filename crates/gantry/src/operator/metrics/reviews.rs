//! Who may read a page: the API server is asked, and its answers are kept for a while.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_lc_rs::digest;
use gantry_process::clock::{Clock, Moment};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::Api;
use kube::api::PostParams;
use tokio::sync::Semaphore;

use crate::operator::cluster::{Asked, CallError, call};

/// How long a reader may go on after its token or its right is gone.
const ALLOWED_TTL: Duration = Duration::from_secs(60);
/// How long a caller that is refused waits for a right it was given.
const REFUSED_TTL: Duration = Duration::from_secs(10);
/// Decisions that are kept. More than any cluster has scrapers, and little memory.
const MOST_DECISIONS: usize = 512;
/// Reviews at one time, so that callers with invented tokens do not burden the API server.
const MOST_REVIEWS: usize = 4;

/// What a token is good for, on one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Its user may read the page.
    Allowed,
    /// Its user is known and may not.
    Denied {
        /// The user.
        user: String,
    },
    /// Nobody knows it.
    Unauthenticated,
}

/// The API server as far as it is asked.
pub(super) trait Reviews: Send + Sync + 'static {
    /// Whose token this is; none if nobody's.
    fn user(&self, token: &str)
    -> impl Future<Output = Result<Option<UserInfo>, CallError>> + Send;
    /// Whether a user may `get` a path.
    fn may_get(
        &self,
        user: &UserInfo,
        path: &str,
    ) -> impl Future<Output = Result<bool, CallError>> + Send;
}

/// Asks the API server with the operator's own rights.
pub(super) struct ApiServer {
    client: kube::Client,
    clock: Clock,
}

impl ApiServer {
    pub(super) fn new(client: kube::Client, clock: Clock) -> Self {
        Self { client, clock }
    }
}

fn asked(resource: &'static str, about: &str) -> Asked {
    Asked { verb: "create", resource, name: format!("for {about}"), namespace: None }
}

impl Reviews for ApiServer {
    async fn user(&self, token: &str) -> Result<Option<UserInfo>, CallError> {
        let spec = TokenReviewSpec { token: Some(token.to_owned()), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let api = Api::<TokenReview>::all(self.client.clone());
        let how = PostParams::default();
        let asked = || asked("tokenreviews.authentication.k8s.io", "a reader of metrics");
        let review = call(&self.clock, asked, api.create(&how, &review)).await?;
        let status = review.status.filter(|it| it.authenticated == Some(true));
        let user = status.and_then(|it| it.user);
        Ok(user.filter(|it| it.username.as_ref().is_some_and(|name| !name.is_empty())))
    }

    async fn may_get(&self, user: &UserInfo, path: &str) -> Result<bool, CallError> {
        let UserInfo { username, uid, groups, extra } = user.clone();
        let what =
            NonResourceAttributes { path: Some(path.to_owned()), verb: Some("get".to_owned()) };
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: username,
                uid,
                groups,
                extra,
                non_resource_attributes: Some(what),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let api = Api::<SubjectAccessReview>::all(self.client.clone());
        let how = PostParams::default();
        let asked = || asked("subjectaccessreviews.authorization.k8s.io", "a reader of metrics");
        let review = call(&self.clock, asked, api.create(&how, &review)).await?;
        Ok(review.status.is_some_and(|it| it.allowed))
    }
}

/// Decides, and remembers for a bounded time and a bounded number of tokens. Tokens themselves are not
/// kept, only digests of them.
pub(super) struct Gate<R> {
    reviews: R,
    clock: Clock,
    kept: Mutex<HashMap<Digest, Kept>>,
    under_way: Semaphore,
    /// Whether the last review failed: one line in the log for each outage.
    failing: AtomicBool,
}

type Digest = [u8; digest::SHA256_OUTPUT_LEN];

struct Kept {
    decision: Decision,
    until: Moment,
}

impl<R: Reviews> Gate<R> {
    pub(super) fn new(reviews: R, clock: Clock) -> Self {
        Self {
            reviews,
            clock,
            kept: Mutex::default(),
            under_way: Semaphore::new(MOST_REVIEWS),
            failing: AtomicBool::new(false),
        }
    }

    /// What a token is good for on this path.
    ///
    /// # Errors
    /// The API server could not be asked; nothing is remembered of that.
    pub(super) async fn decide(&self, token: &str, path: &str) -> Result<Decision, CallError> {
        let digest = digest_of(token, path);
        if let Some(decision) = self.kept(&digest) {
            return Ok(decision);
        }
        // Never closed. Those that wait are bounded by the requests the server takes.
        let _review = self.under_way.acquire().await;
        // Another request with the same token may have been first.
        if let Some(decision) = self.kept(&digest) {
            return Ok(decision);
        }
        let decision = self.review(token, path).await;
        let failed = decision.is_err();
        if self.failing.swap(failed, Ordering::Relaxed) != failed {
            match &decision {
                Ok(_) => tracing::info!("readers of metrics are reviewed again"),
                Err(error) => tracing::warn!(
                    error = error as &(dyn std::error::Error + 'static),
                    "could not review a reader of metrics; nobody can read them"
                ),
            }
        }
        let decision = decision?;
        self.keep(digest, decision.clone());
        Ok(decision)
    }

    async fn review(&self, token: &str, path: &str) -> Result<Decision, CallError> {
        let Some(user) = self.reviews.user(token).await? else {
            return Ok(Decision::Unauthenticated);
        };
        Ok(match self.reviews.may_get(&user, path).await? {
            true => Decision::Allowed,
            false => Decision::Denied { user: user.username.unwrap_or_default() },
        })
    }

    fn kept(&self, digest: &Digest) -> Option<Decision> {
        let now = self.clock.moment();
        let kept = self.lock();
        kept.get(digest).filter(|it| now < it.until).map(|it| it.decision.clone())
    }

    fn keep(&self, digest: Digest, decision: Decision) {
        let now = self.clock.moment();
        let ttl = match decision {
            Decision::Allowed => ALLOWED_TTL,
            Decision::Denied { .. } | Decision::Unauthenticated => REFUSED_TTL,
        };
        let mut kept = self.lock();
        if kept.len() >= MOST_DECISIONS {
            kept.retain(|_, it| now < it.until);
        }
        // Refusals end first, so that invented tokens do not push out those of readers.
        while kept.len() >= MOST_DECISIONS {
            let first = kept.iter().min_by_key(|(_, it)| it.until).map(|(digest, _)| *digest);
            let Some(first) = first else { break };
            kept.remove(&first);
        }
        kept.insert(digest, Kept { decision, until: now + ttl });
    }

    /// Whole after every statement that changes it, so a poisoned lock is still good.
    fn lock(&self) -> MutexGuard<'_, HashMap<Digest, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn digest_of(token: &str, path: &str) -> Digest {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(path.as_bytes());
    // No path has it, so that no two pairs are the same bytes.
    context.update(&[0]);
    context.update(token.as_bytes());
    let mut digest = Digest::default();
    digest.copy_from_slice(context.finish().as_ref());
    digest
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use gantry_process::clock::Hand;
    use jiff::Timestamp;

    use super::*;

    /// Knows the tokens of two users, one of whom may read; counts what it is asked.
    #[derive(Clone, Default)]
    struct Server {
        asked: Arc<AtomicUsize>,
        most_at_once: Arc<AtomicUsize>,
        at_once: Arc<AtomicUsize>,
        is_down: Arc<AtomicBool>,
    }

    impl Server {
        fn asked(&self) -> usize {
            self.asked.swap(0, Ordering::SeqCst)
        }
    }

    impl Reviews for Server {
        async fn user(&self, token: &str) -> Result<Option<UserInfo>, CallError> {
            self.asked.fetch_add(1, Ordering::SeqCst);
            let now = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
            self.most_at_once.fetch_max(now, Ordering::SeqCst);
            tokio::task::yield_now().await;
            self.at_once.fetch_sub(1, Ordering::SeqCst);
            if self.is_down.load(Ordering::SeqCst) {
                let asked = asked("tokenreviews.authentication.k8s.io", "x");
                return Err(CallError::Refused { asked, says: "down".to_owned() });
            }
            let user =
                |name: &str| UserInfo { username: Some(name.to_owned()), ..UserInfo::default() };
            Ok(matches!(token, "prometheus" | "tenant").then(|| user(token)))
        }

        async fn may_get(&self, user: &UserInfo, path: &str) -> Result<bool, CallError> {
            Ok(user.username.as_deref() == Some("prometheus") && path == "/metrics")
        }
    }

    fn gate() -> (Hand, Server, Gate<Server>) {
        let (hand, server) = (Hand::at(Timestamp::UNIX_EPOCH), Server::default());
        let gate = Gate::new(server.clone(), hand.clock());
        (hand, server, gate)
    }

    #[tokio::test]
    async fn a_reader_needs_a_token_and_the_right() {
        let (_, _, gate) = gate();
        let denied = |user: &str| Decision::Denied { user: user.to_owned() };
        let table = [
            ("prometheus", "/metrics", Decision::Allowed),
            ("prometheus", "/status", denied("prometheus")),
            ("tenant", "/metrics", denied("tenant")),
            ("invented", "/metrics", Decision::Unauthenticated),
        ];
        // Twice: what is remembered is the same.
        for (token, path, expected) in table.iter().chain(&table) {
            assert_eq!(gate.decide(token, path).await.unwrap(), *expected, "{token} {path}");
        }
    }

    #[tokio::test]
    async fn answers_are_kept_for_a_while_and_no_longer() {
        let (hand, server, gate) = gate();
        let start = hand.clock().moment();
        for (token, ttl) in
            [("prometheus", ALLOWED_TTL), ("tenant", REFUSED_TTL), ("x", REFUSED_TTL)]
        {
            let begun = hand.clock().moment();
            for _ in 0..3 {
                gate.decide(token, "/metrics").await.unwrap();
            }
            assert_eq!(server.asked(), 1, "{token}");
            hand.jump_to(begun + (ttl - Duration::from_millis(1)));
            gate.decide(token, "/metrics").await.unwrap();
            assert_eq!(server.asked(), 0, "{token}");
            hand.jump_to(begun + ttl);
            gate.decide(token, "/metrics").await.unwrap();
            assert_eq!(server.asked(), 1, "{token}");
        }
        assert!(hand.clock().moment() > start);
    }

    #[tokio::test]
    async fn a_failure_is_not_remembered_and_lets_nobody_in() {
        let (_, server, gate) = gate();
        server.is_down.store(true, Ordering::SeqCst);
        assert!(gate.decide("prometheus", "/metrics").await.is_err());
        server.is_down.store(false, Ordering::SeqCst);
        assert_eq!(gate.decide("prometheus", "/metrics").await.unwrap(), Decision::Allowed);
    }

    #[tokio::test]
    async fn invented_tokens_neither_fill_memory_nor_push_readers_out() {
        let (_, server, gate) = gate();
        gate.decide("prometheus", "/metrics").await.unwrap();
        for at in 0..MOST_DECISIONS * 3 {
            gate.decide(&format!("invented-{at}"), "/metrics").await.unwrap();
        }
        assert_eq!(gate.lock().len(), MOST_DECISIONS);
        server.asked();
        gate.decide("prometheus", "/metrics").await.unwrap();
        assert_eq!(server.asked(), 0, "the reader is still known");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn few_reviews_are_under_way_at_once_and_one_for_each_token() {
        let (_, server, gate) = gate();
        let gate = Arc::new(gate);
        let mut callers = tokio::task::JoinSet::new();
        for at in 0..200 {
            let gate = Arc::clone(&gate);
            callers.spawn(async move {
                let token = if at % 2 == 0 { "prometheus".to_owned() } else { format!("x{at}") };
                gate.decide(&token, "/metrics").await.unwrap()
            });
        }
        let allowed = callers.join_all().await.into_iter().filter(|it| *it == Decision::Allowed);
        assert_eq!(allowed.count(), 100);
        assert!(server.most_at_once.load(Ordering::SeqCst) <= MOST_REVIEWS);
        // Callers that were let in together may ask together; all others find the answer.
        assert!(server.asked() <= 100 + MOST_REVIEWS);
    }
}
