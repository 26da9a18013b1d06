//! Authorizes readers of metrics: the API server reviews them, and its decisions are cached for a
//! while.

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

use crate::operator::cluster::{CallError, RequestDescription, call};

/// How long a decision to allow is cached, after which a revoked token or permission takes effect.
const ALLOWED_TTL: Duration = Duration::from_secs(60);
/// How long a decision to deny is cached, after which a new permission takes effect.
const DENIED_TTL: Duration = Duration::from_secs(10);
/// The maximum number of cached decisions: more than any cluster has scrapers, and little memory.
const MAX_CACHED_DECISIONS: usize = 512;
/// The maximum number of concurrent reviews, so that callers with unknown tokens do not burden the
/// API server.
const MAX_CONCURRENT_REVIEWS: usize = 4;

/// The decision about a token, on one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Its user may read the page.
    Allowed,
    /// Its user is known and may not read the page.
    Denied {
        /// The user.
        user: String,
    },
    /// The token is not valid.
    Unauthenticated,
}

/// The reviews of the API server.
pub(super) trait AccessReviewer: Send + Sync + 'static {
    /// Returns the user of a token; `None` if it is not valid.
    fn authenticate(
        &self,
        token: &str,
    ) -> impl Future<Output = Result<Option<UserInfo>, CallError>> + Send;
    /// Returns whether a user may `get` a path.
    fn can_get(
        &self,
        user: &UserInfo,
        path: &str,
    ) -> impl Future<Output = Result<bool, CallError>> + Send;
}

/// Sends reviews to the API server with the operator's own permissions.
pub(super) struct ApiServerReviewer {
    client: kube::Client,
    clock: Clock,
}

impl ApiServerReviewer {
    pub(super) fn new(client: kube::Client, clock: Clock) -> Self {
        Self { client, clock }
    }
}

fn describe_review(resource: &'static str, about: &str) -> RequestDescription {
    RequestDescription { verb: "create", resource, name: format!("for {about}"), namespace: None }
}

impl AccessReviewer for ApiServerReviewer {
    async fn authenticate(&self, token: &str) -> Result<Option<UserInfo>, CallError> {
        let spec = TokenReviewSpec { token: Some(token.to_owned()), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let api = Api::<TokenReview>::all(self.client.clone());
        let how = PostParams::default();
        let asked = || describe_review("tokenreviews.authentication.k8s.io", "a reader of metrics");
        let review = call(&self.clock, asked, api.create(&how, &review)).await?;
        let status = review.status.filter(|it| it.authenticated == Some(true));
        let user = status.and_then(|it| it.user);
        Ok(user.filter(|it| it.username.as_ref().is_some_and(|name| !name.is_empty())))
    }

    async fn can_get(&self, user: &UserInfo, path: &str) -> Result<bool, CallError> {
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
        let asked =
            || describe_review("subjectaccessreviews.authorization.k8s.io", "a reader of metrics");
        let review = call(&self.clock, asked, api.create(&how, &review)).await?;
        Ok(review.status.is_some_and(|it| it.allowed))
    }
}

/// Decides, and caches decisions for a bounded time and a bounded number of tokens. Tokens
/// themselves are not kept, only digests of them.
pub(super) struct MetricsAuthorizer<R> {
    reviews: R,
    clock: Clock,
    decisions: Mutex<HashMap<Digest, CachedDecision>>,
    review_permits: Semaphore,
    /// Whether the last review failed: each outage is logged once.
    failing: AtomicBool,
}

type Digest = [u8; digest::SHA256_OUTPUT_LEN];

struct CachedDecision {
    decision: Decision,
    expires_at: Moment,
}

impl<R: AccessReviewer> MetricsAuthorizer<R> {
    pub(super) fn new(reviews: R, clock: Clock) -> Self {
        Self {
            reviews,
            clock,
            decisions: Mutex::default(),
            review_permits: Semaphore::new(MAX_CONCURRENT_REVIEWS),
            failing: AtomicBool::new(false),
        }
    }

    /// Returns the decision about a token on this path.
    ///
    /// # Errors
    /// The review failed; failures are not cached.
    pub(super) async fn decide(&self, token: &str, path: &str) -> Result<Decision, CallError> {
        let digest = digest_of(token, path);
        if let Some(decision) = self.cached_decision(&digest) {
            return Ok(decision);
        }
        // Never closed. Waiting requests are bounded by the server's limit.
        let _review = self.review_permits.acquire().await;
        // Another request with the same token may have been first.
        if let Some(decision) = self.cached_decision(&digest) {
            return Ok(decision);
        }
        let decision = self.review(token, path).await;
        let failed = decision.is_err();
        if self.failing.swap(failed, Ordering::Relaxed) != failed {
            match &decision {
                Ok(_) => tracing::info!("readers of metrics are reviewed again"),
                Err(error) => tracing::warn!(
                    error = error as &(dyn std::error::Error + 'static),
                    "could not review a reader of metrics; new readers are denied"
                ),
            }
        }
        let decision = decision?;
        self.cache_decision(digest, decision.clone());
        Ok(decision)
    }

    async fn review(&self, token: &str, path: &str) -> Result<Decision, CallError> {
        let Some(user) = self.reviews.authenticate(token).await? else {
            return Ok(Decision::Unauthenticated);
        };
        Ok(match self.reviews.can_get(&user, path).await? {
            true => Decision::Allowed,
            false => Decision::Denied { user: user.username.unwrap_or_default() },
        })
    }

    fn cached_decision(&self, digest: &Digest) -> Option<Decision> {
        let now = self.clock.moment();
        let kept = self.lock();
        kept.get(digest).filter(|it| now < it.expires_at).map(|it| it.decision.clone())
    }

    fn cache_decision(&self, digest: Digest, decision: Decision) {
        let now = self.clock.moment();
        let ttl = match decision {
            Decision::Allowed => ALLOWED_TTL,
            Decision::Denied { .. } | Decision::Unauthenticated => DENIED_TTL,
        };
        let mut kept = self.lock();
        if kept.len() >= MAX_CACHED_DECISIONS {
            kept.retain(|_, it| now < it.expires_at);
        }
        // Denials are evicted first, so that unknown tokens do not displace those of readers.
        while kept.len() >= MAX_CACHED_DECISIONS {
            let first = kept.iter().min_by_key(|(_, it)| it.expires_at).map(|(digest, _)| *digest);
            let Some(first) = first else { break };
            kept.remove(&first);
        }
        kept.insert(digest, CachedDecision { decision, expires_at: now + ttl });
    }

    /// Consistent after every statement that changes it, so a poisoned lock is still usable.
    fn lock(&self) -> MutexGuard<'_, HashMap<Digest, CachedDecision>> {
        self.decisions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn digest_of(token: &str, path: &str) -> Digest {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(path.as_bytes());
    // No path contains it, so that no two pairs have the same bytes.
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

    use gantry_process::clock::FakeClock;
    use jiff::Timestamp;

    use super::*;

    /// Knows the tokens of two users, one of whom may read; counts its reviews.
    #[derive(Clone, Default)]
    struct FakeReviewer {
        asked: Arc<AtomicUsize>,
        most_at_once: Arc<AtomicUsize>,
        at_once: Arc<AtomicUsize>,
        is_down: Arc<AtomicBool>,
    }

    impl FakeReviewer {
        fn review_count(&self) -> usize {
            self.asked.swap(0, Ordering::SeqCst)
        }
    }

    impl AccessReviewer for FakeReviewer {
        async fn authenticate(&self, token: &str) -> Result<Option<UserInfo>, CallError> {
            self.asked.fetch_add(1, Ordering::SeqCst);
            let now = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
            self.most_at_once.fetch_max(now, Ordering::SeqCst);
            tokio::task::yield_now().await;
            self.at_once.fetch_sub(1, Ordering::SeqCst);
            if self.is_down.load(Ordering::SeqCst) {
                let asked = describe_review("tokenreviews.authentication.k8s.io", "x");
                return Err(CallError::Refused { asked, says: "down".to_owned() });
            }
            let user =
                |name: &str| UserInfo { username: Some(name.to_owned()), ..UserInfo::default() };
            Ok(matches!(token, "prometheus" | "tenant").then(|| user(token)))
        }

        async fn can_get(&self, user: &UserInfo, path: &str) -> Result<bool, CallError> {
            Ok(user.username.as_deref() == Some("prometheus") && path == "/metrics")
        }
    }

    fn authorizer() -> (FakeClock, FakeReviewer, MetricsAuthorizer<FakeReviewer>) {
        let (hand, server) = (FakeClock::at(Timestamp::UNIX_EPOCH), FakeReviewer::default());
        let gate = MetricsAuthorizer::new(server.clone(), hand.clock());
        (hand, server, gate)
    }

    #[tokio::test]
    async fn a_reader_needs_a_token_and_the_right() {
        let (_, _, gate) = authorizer();
        let denied = |user: &str| Decision::Denied { user: user.to_owned() };
        let table = [
            ("prometheus", "/metrics", Decision::Allowed),
            ("prometheus", "/status", denied("prometheus")),
            ("tenant", "/metrics", denied("tenant")),
            ("invented", "/metrics", Decision::Unauthenticated),
        ];
        // Twice: the cached decision is the same.
        for (token, path, expected) in table.iter().chain(&table) {
            assert_eq!(gate.decide(token, path).await.unwrap(), *expected, "{token} {path}");
        }
    }

    #[tokio::test]
    async fn decisions_expire() {
        let (hand, server, gate) = authorizer();
        let start = hand.clock().moment();
        for (token, ttl) in [("prometheus", ALLOWED_TTL), ("tenant", DENIED_TTL), ("x", DENIED_TTL)]
        {
            let begun = hand.clock().moment();
            for _ in 0..3 {
                gate.decide(token, "/metrics").await.unwrap();
            }
            assert_eq!(server.review_count(), 1, "{token}");
            hand.jump_to(begun + (ttl - Duration::from_millis(1)));
            gate.decide(token, "/metrics").await.unwrap();
            assert_eq!(server.review_count(), 0, "{token}");
            hand.jump_to(begun + ttl);
            gate.decide(token, "/metrics").await.unwrap();
            assert_eq!(server.review_count(), 1, "{token}");
        }
        assert!(hand.clock().moment() > start);
    }

    #[tokio::test]
    async fn failed_reviews_deny_and_are_not_cached() {
        let (_, server, gate) = authorizer();
        server.is_down.store(true, Ordering::SeqCst);
        assert!(gate.decide("prometheus", "/metrics").await.is_err());
        server.is_down.store(false, Ordering::SeqCst);
        assert_eq!(gate.decide("prometheus", "/metrics").await.unwrap(), Decision::Allowed);
    }

    #[tokio::test]
    async fn unknown_tokens_do_not_evict_readers() {
        let (_, server, gate) = authorizer();
        gate.decide("prometheus", "/metrics").await.unwrap();
        for at in 0..MAX_CACHED_DECISIONS * 3 {
            gate.decide(&format!("invented-{at}"), "/metrics").await.unwrap();
        }
        assert_eq!(gate.lock().len(), MAX_CACHED_DECISIONS);
        server.review_count();
        gate.decide("prometheus", "/metrics").await.unwrap();
        assert_eq!(server.review_count(), 0, "the reader is still known");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn reviews_are_bounded_and_one_per_token() {
        let (_, server, gate) = authorizer();
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
        assert!(server.most_at_once.load(Ordering::SeqCst) <= MAX_CONCURRENT_REVIEWS);
        // Requests that started together may be reviewed together; all others use the cached
        // decision.
        assert!(server.review_count() <= 100 + MAX_CONCURRENT_REVIEWS);
    }
}
