//! The rules of an election, without clocks and servers.

use std::fmt;
use std::time::Duration;

use gantry_process::clock::Moment;
use jiff::Timestamp;

use super::record::{LeaseRecord, ObservedLease};

/// The timings of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The lease duration: how long a lease that is not renewed keeps others from acquiring it.
    pub lease: Duration,
    /// How long a holder remains leader without a successful renewal.
    pub renew_deadline: Duration,
    /// The delay between two renewals, or two reads.
    pub retry: Duration,
}

impl Default for Timing {
    /// The defaults of Kubernetes components.
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

impl Timing {
    /// Checks that these timings make an election safe and possible.
    ///
    /// # Errors
    /// What is wrong with them. There must be time for a retry before the deadline, and time for a
    /// write that was sent before the deadline to arrive before the lease has expired.
    pub fn checked(self) -> Result<Self, TimingError> {
        if self.retry.is_zero() || self.retry * 2 > self.renew_deadline {
            return Err(TimingError::Retry(self));
        }
        if self.renew_deadline + MARGIN > self.lease {
            return Err(TimingError::Deadline(self));
        }
        Ok(self)
    }
}

/// The least time between the renew deadline of a holder and the expiry of its lease: what a
/// request that was sent may take to arrive, and what two clocks may drift apart in that time.
const MARGIN: Duration = Duration::from_secs(1);

/// Invalid timings of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimingError {
    /// The retry period is zero or too long.
    #[error("the retry period ({:?}) must be above zero and at most half of the renew deadline \
             ({:?})", .0.retry, .0.renew_deadline)]
    Retry(Timing),
    /// The renew deadline is too close to the lease duration.
    #[error(
        "the renew deadline ({:?}) must be at least {MARGIN:?} below the lease duration ({:?})",
        .0.renew_deadline,
        .0.lease
    )]
    Deadline(Timing),
}

/// The next step of an election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Do nothing until then.
    Wait(Moment),
    /// Send this request.
    Send(LeaseRequest),
    /// Stop: the lease was held and is lost.
    Stop(LossReason),
}

/// A request about the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseRequest {
    /// Reads it.
    Read,
    /// Creates it.
    Create(LeaseRecord),
    /// Updates it, if it still has this revision.
    Update(LeaseRecord, String),
}

/// The response to a request about the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseResponse {
    /// This is the lease.
    Found(ObservedLease),
    /// There is no lease.
    NotFound,
    /// It was written and is this now.
    Written(ObservedLease),
    /// Another process was first.
    Conflict,
    /// The outcome is unknown.
    Unknown(String),
}

/// Why a lease was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LossReason {
    /// It could not be renewed in time.
    RenewDeadlineExceeded,
    /// Another process holds it.
    HeldByOther(String),
}

impl fmt::Display for LossReason {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RenewDeadlineExceeded => to.write_str("it could not be renewed in time"),
            Self::HeldByOther(holder) => write!(to, "{holder} holds it"),
        }
    }
}

/// The election as one candidate sees it.
#[derive(Debug)]
pub struct Election {
    identity: String,
    timing: Timing,
    jitter: fastrand::Rng,
    /// The last observed lease, and when it was first observed.
    observation: Option<LeaseObservation>,
    /// Whether the observation is recent enough to act on.
    state: ObservationState,
    /// Until when this candidate is the leader.
    leads_until: Option<Moment>,
    /// The time of the next step.
    next: Moment,
}

#[derive(Clone, Debug)]
struct LeaseObservation {
    lease: ObservedLease,
    since: Moment,
}

/// What is known of the lease now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ObservationState {
    /// Nothing: it is read first.
    Unknown,
    /// It does not exist.
    NotFound,
    /// It is as last observed.
    Observed,
}

impl Election {
    /// A candidate that has observed nothing yet.
    #[must_use]
    pub fn new(identity: String, timing: Timing, jitter: fastrand::Rng) -> Self {
        Self {
            identity,
            timing,
            jitter,
            observation: None,
            state: ObservationState::Unknown,
            leads_until: None,
            next: Moment::default(),
        }
    }

    /// Until when this candidate is the leader, if it is.
    #[must_use]
    pub fn leads_until(&self) -> Option<Moment> {
        self.leads_until
    }

    /// The timeout of a request that is sent now.
    #[must_use]
    pub fn request_timeout(&self, now: Moment) -> Duration {
        let half = self.timing.renew_deadline / 2;
        self.leads_until.map_or(half, |end| half.min(end - now))
    }

    /// The next step. `wall` is only recorded in the lease, for users to read.
    pub fn step(&mut self, now: Moment, wall: Timestamp) -> Action {
        if let Some(end) = self.leads_until
            && now >= end
        {
            return Action::Stop(LossReason::RenewDeadlineExceeded);
        }
        if now < self.next {
            let end = self.leads_until.unwrap_or(self.next);
            return Action::Wait(self.next.min(end));
        }
        match (self.state, &self.observation) {
            (ObservationState::Unknown, _) | (ObservationState::Observed, None) => {
                Action::Send(LeaseRequest::Read)
            }
            (ObservationState::NotFound, Some(sight)) if self.is_held_by_other(sight, now) => {
                // It was deleted while it is held, and its holder does not know that yet.
                self.state = ObservationState::Unknown;
                self.next = now + self.retry_delay();
                Action::Wait(self.next)
            }
            (ObservationState::NotFound, _) => {
                Action::Send(LeaseRequest::Create(self.claim(None, wall)))
            }
            (ObservationState::Observed, Some(sight)) => {
                let ObservedLease { record, revision } = &sight.lease;
                if self.leads_until.is_some() && record.holder != self.identity {
                    return Action::Stop(LossReason::HeldByOther(record.holder.clone()));
                }
                if !self.is_held_by_other(sight, now) {
                    let claim = self.claim(Some(record), wall);
                    return Action::Send(LeaseRequest::Update(claim, revision.clone()));
                }
                // Read again after a delay: another process is the leader.
                self.state = ObservationState::Unknown;
                self.next = now + self.retry_delay();
                Action::Wait(self.next)
            }
        }
    }

    /// Processes the response to a request that was sent at `sent`.
    pub fn observe_response(
        &mut self,
        what: &LeaseRequest,
        heard: LeaseResponse,
        sent: Moment,
        now: Moment,
    ) {
        match heard {
            LeaseResponse::Found(seen) => {
                self.observe(seen, now);
                self.state = ObservationState::Observed;
            }
            LeaseResponse::NotFound => self.state = ObservationState::NotFound,
            LeaseResponse::Written(seen) => {
                self.observe(seen, now);
                self.state = ObservationState::Observed;
                // Counted from before it was sent: no process can have observed it earlier.
                self.leads_until = Some(sent + self.timing.renew_deadline);
                self.next = now + self.timing.retry;
            }
            // Read at once: it may be our own write, of which the response was lost.
            LeaseResponse::Conflict => self.state = ObservationState::Unknown,
            LeaseResponse::Unknown(_) => {
                // The response to a write may be lost although the write succeeded.
                self.state = match what {
                    LeaseRequest::Read => self.state,
                    LeaseRequest::Create(_) | LeaseRequest::Update(..) => ObservationState::Unknown,
                };
                self.next = now + self.retry_delay();
            }
        }
    }

    /// The request that releases the lease, if it is held.
    #[must_use]
    pub fn release(&self, wall: Timestamp) -> Option<LeaseRequest> {
        let LeaseObservation { lease: seen, .. } = self.observation.as_ref()?;
        self.leads_until?;
        let ObservedLease { record, revision } = seen;
        if record.holder != self.identity {
            return None;
        }
        let record = LeaseRecord {
            holder: String::new(),
            duration: Duration::from_secs(1),
            acquired: Some(wall),
            renewed: Some(wall),
            transitions: record.transitions,
        };
        Some(LeaseRequest::Update(record, revision.clone()))
    }

    /// Whether another process holds the lease, as far as this candidate can know.
    fn is_held_by_other(&self, sight: &LeaseObservation, now: Moment) -> bool {
        let LeaseObservation { lease: ObservedLease { record, .. }, since } = sight;
        // The longer of the holder's and our own lease duration.
        let lasts = record.duration.max(self.timing.lease);
        let free = record.holder.is_empty() || record.holder == self.identity;
        !free && now < *since + lasts
    }

    /// The content of the lease when this candidate holds it.
    fn claim(&self, before: Option<&LeaseRecord>, wall: Timestamp) -> LeaseRecord {
        let kept = before.filter(|record| record.holder == self.identity);
        let transitions = match (before, kept) {
            (None, _) => 0,
            (Some(record), Some(_)) => record.transitions,
            (Some(record), None) => record.transitions.saturating_add(1),
        };
        LeaseRecord {
            holder: self.identity.clone(),
            duration: self.timing.lease,
            acquired: kept.and_then(|record| record.acquired).or(Some(wall)),
            renewed: Some(wall),
            transitions,
        }
    }

    /// Records an observation. The age of a lease counts from when its revision was first observed.
    fn observe(&mut self, seen: ObservedLease, now: Moment) {
        let same = self.observation.as_ref().is_some_and(|sight| sight.lease == seen);
        if !same {
            self.observation = Some(LeaseObservation { lease: seen, since: now });
        }
    }

    /// The delay before the next read: randomly longer for candidates that wait, so that they do
    /// not all read at once.
    fn retry_delay(&mut self) -> Duration {
        let retry = self.timing.retry;
        if self.leads_until.is_some() {
            return retry;
        }
        let fifth = u64::try_from((retry / 5).as_nanos()).unwrap_or(u64::MAX);
        retry + Duration::from_nanos(self.jitter.u64(0..=fifth))
    }
}
