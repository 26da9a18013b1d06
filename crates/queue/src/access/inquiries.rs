//! Inquiries about the authors of AppWrappers, and when they are made.

use std::time::Duration;

use gantry_reconcile::inquiry::{InquiryPolicy, WantedQuestions};
use gantry_reconcile::{Change, Inquiry, Key, Kind, World};
use jiff::Timestamp;

use super::{
    ALLOWED_VALIDITY, AccessQuestion, AccessReview, AuthorRecording, CREATION_TIME_PRECISION,
    DENIED_VALIDITY, is_creating_items, is_review_valid, needs_access_review, questions,
};
use crate::app_wrapper::AppWrapper;
use crate::settings::UserAccess;

/// How long one answer may take.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);
/// The first and the longest delay after a failed attempt.
const REVIEW_RETRY_DELAYS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));
/// When an allowed review is renewed, so that there is another before it expires.
const ALLOWED_REFRESH_INTERVAL: Duration = Duration::from_secs(15);
/// How often at most an answer is requested again that is not valid for an AppWrapper.
const STALE_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How often it is checked whether authors are recorded: while they are, and while they are not.
const RECORDING_REFRESH_INTERVALS: (Duration, Duration) =
    (Duration::from_secs(10), Duration::from_secs(1));

/// Asks what the authors of AppWrappers may create.
///
/// An AppWrapper is asked about when it is created and for as long as it is pending, so that
/// decisions never use an old answer. Only the leader asks.
#[derive(Clone, Copy, Debug)]
pub struct AccessReviewer {
    access: UserAccess,
}

impl AccessReviewer {
    /// The name of the inquiry.
    pub const NAME: &str = "queue-access-reviews";

    /// Creates the inquiry for items that are created with these permissions.
    #[must_use]
    pub fn new(access: UserAccess) -> Self {
        Self { access }
    }
}

impl Inquiry for AccessReviewer {
    type Fact = AccessReview;

    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<AppWrapper>()]
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        let (before, after) = (change.before::<AppWrapper>(), change.after::<AppWrapper>());
        let same = match (before, after) {
            (Some(before), Some(after)) => {
                let stage = |it: &AppWrapper| (needs_access_review(it), is_creating_items(it));
                let items = before.items().iter().zip(after.items());
                let mut items = items.map(|(a, b)| a.name == b.name && a.privilege == b.privilege);
                stage(before) == stage(after)
                    && before.author() == after.author()
                    && before.items().len() == after.items().len()
                    && items.all(|it| it)
            }
            (None, _) | (_, None) => false,
        };
        let matters = change.both::<AppWrapper>().any(needs_access_review);
        if same || !matters { Vec::new() } else { vec![change.key.clone()] }
    }

    fn wanted_questions(
        &self,
        world: &World,
        key: &Key,
        now: Timestamp,
    ) -> WantedQuestions<AccessQuestion> {
        let Some(wrapper) = world.store::<AppWrapper>().get(key) else {
            return WantedQuestions::default();
        };
        let mut wanted: WantedQuestions<AccessQuestion> =
            questions(&wrapper, self.access).into_iter().collect();
        let reviews = world.facts::<AccessReview>();
        let made = wrapper.metadata.creation_timestamp.unwrap_or(Timestamp::MIN);
        let mut checked = false;
        for question in &wanted.questions {
            let Some(review) = reviews.observed(question) else {
                // An answer that is in flight may be older than this AppWrapper requires.
                let since = made.checked_add(CREATION_TIME_PRECISION + REVIEW_TIMEOUT);
                checked |= is_creating_items(&wrapper) || since.is_ok_and(|it| now < it);
                continue;
            };
            let counts = is_review_valid(&review.value, review.at, &wrapper, now);
            let needs_other = match review.value {
                AccessReview::Allowed => false,
                AccessReview::Denied { .. } => !counts,
                // The kind may have been installed since.
                AccessReview::NoSuchKind => !counts || is_creating_items(&wrapper),
            };
            checked |= needs_other;
            if needs_other && review.age(now) >= STALE_CHECK_INTERVAL {
                wanted.stale.insert(question.clone());
            }
        }
        wanted.requeue_at = checked.then(|| now.checked_add(STALE_CHECK_INTERVAL).ok()).flatten();
        wanted
    }

    fn policy(&self, _: &AccessQuestion) -> InquiryPolicy {
        let (first_retry_delay, longest_retry_delay) = REVIEW_RETRY_DELAYS;
        InquiryPolicy {
            refresh_interval: ALLOWED_REFRESH_INTERVAL,
            timeout: REVIEW_TIMEOUT,
            first_retry_delay,
            max_retry_delay: longest_retry_delay,
            leader_only: true,
        }
    }

    fn refresh_interval(&self, _: &AccessQuestion, answer: &AccessReview) -> Duration {
        match answer {
            AccessReview::Allowed => ALLOWED_REFRESH_INTERVAL,
            AccessReview::Denied { .. } | AccessReview::NoSuchKind => DENIED_VALIDITY,
        }
    }
}

/// Asks whether the server has authors recorded, while there are AppWrappers.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecordingCheck;

impl RecordingCheck {
    /// The name of the inquiry.
    pub const NAME: &str = "queue-author-recording";

    /// Returns the only key.
    fn key() -> Key {
        Key::cluster("authors")
    }
}

impl Inquiry for RecordingCheck {
    type Fact = AuthorRecording;

    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<AppWrapper>()]
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        let stays =
            change.before::<AppWrapper>().is_some() && change.after::<AppWrapper>().is_some();
        if stays { Vec::new() } else { vec![Self::key()] }
    }

    fn wanted_questions(&self, world: &World, _: &Key, _: Timestamp) -> WantedQuestions<()> {
        let is_used = !world.store::<AppWrapper>().is_empty();
        is_used.then_some(()).into_iter().collect()
    }

    fn policy(&self, (): &()) -> InquiryPolicy {
        let (refresh_interval, retry_delay) = RECORDING_REFRESH_INTERVALS;
        InquiryPolicy {
            refresh_interval,
            timeout: REVIEW_TIMEOUT,
            first_retry_delay: retry_delay,
            max_retry_delay: retry_delay,
            // Quota leaves are bound to authors, on every replica.
            leader_only: false,
        }
    }

    fn refresh_interval(&self, (): &(), answer: &AuthorRecording) -> Duration {
        let (recorded, not_recorded) = RECORDING_REFRESH_INTERVALS;
        if answer.since.is_some() { recorded } else { not_recorded }
    }
}

// An allowed review is renewed while it is valid.
const _: () = assert!(
    ALLOWED_REFRESH_INTERVAL.as_secs() + REVIEW_TIMEOUT.as_secs() < ALLOWED_VALIDITY.as_secs()
);
