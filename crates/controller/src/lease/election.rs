//! The rules of an election, apart from clocks and servers.

use std::fmt;
use std::time::Duration;

use gantry_process::clock::Moment;
use jiff::Timestamp;

use super::record::{Record, Seen};

/// How long things take in an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long a lease that is not written any more keeps others away.
    pub lease: Duration,
    /// How long a holder goes on without having written it.
    pub renew_deadline: Duration,
    /// The pause between two writings, or two looks.
    pub retry: Duration,
}

impl Default for Timing {
    /// As every component of Kubernetes has it.
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

impl Timing {
    /// These times, if they make an election safe and possible.
    ///
    /// # Errors
    /// What is wrong with them. There must be time to try again before the deadline, and time for a
    /// write that was sent before the deadline to arrive before the lease has run out.
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

/// The least time between the end of a holder's own right and the end of its lease: what a request
/// that was sent may take to arrive, and what two clocks may differ by in that time.
const MARGIN: Duration = Duration::from_secs(1);

/// Times with which no election is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimingError {
    /// The pause is too long, or there is none.
    #[error("the retry period ({:?}) must be above zero and at most half of the renew deadline ({:?})", .0.retry, .0.renew_deadline)]
    Retry(Timing),
    /// The deadline is too close to the end of the lease.
    #[error("the renew deadline ({:?}) must be at least {MARGIN:?} below the lease duration ({:?})", .0.renew_deadline, .0.lease)]
    Deadline(Timing),
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing until then.
    Wait(Moment),
    /// This.
    Send(Move),
    /// Nothing more: the lease was held and is lost.
    Stop(Ended),
}

/// What may be done with a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Move {
    /// Look at it.
    Read,
    /// Make it.
    Create(Record),
    /// Write it, if it still has this revision.
    Update(Record, String),
}

/// What is heard of a move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It is like this.
    Found(Seen),
    /// There is none.
    Absent,
    /// It was written and is like this now.
    Wrote(Seen),
    /// Somebody else was first.
    Stale,
    /// Nobody knows.
    Nothing(String),
}

/// How a lease was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It could not be written in time.
    Late,
    /// Somebody else holds it.
    Taken(String),
}

impl fmt::Display for Ended {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Late => to.write_str("it could not be renewed in time"),
            Self::Taken(holder) => write!(to, "{holder} holds it"),
        }
    }
}

/// One who competes.
#[derive(Debug)]
pub struct Election {
    identity: String,
    timing: Timing,
    jitter: fastrand::Rng,
    /// What the lease says, and since when that was seen here.
    sight: Option<Sight>,
    /// What is known well enough to act on.
    known: Known,
    /// Until when this one leads.
    leads_until: Option<Moment>,
    /// Nothing is done before.
    next: Moment,
}

#[derive(Clone, Debug)]
struct Sight {
    seen: Seen,
    since: Moment,
}

/// What is known of the lease right now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// Nothing: it is looked at first.
    Nothing,
    /// That there is none.
    Absent,
    /// What `sight` says.
    Sight,
}

impl Election {
    /// One who knows nothing yet.
    #[must_use]
    pub fn new(identity: String, timing: Timing, jitter: fastrand::Rng) -> Self {
        Self {
            identity,
            timing,
            jitter,
            sight: None,
            known: Known::Nothing,
            leads_until: None,
            next: Moment::default(),
        }
    }

    /// Until when this one leads, if it does.
    #[must_use]
    pub fn leads_until(&self) -> Option<Moment> {
        self.leads_until
    }

    /// How long a move that is made now may take.
    #[must_use]
    pub fn limit(&self, now: Moment) -> Duration {
        let half = self.timing.renew_deadline / 2;
        self.leads_until.map_or(half, |end| half.min(end - now))
    }

    /// What to do now. `wall` is only written down, for people to read.
    pub fn step(&mut self, now: Moment, wall: Timestamp) -> Action {
        if let Some(end) = self.leads_until
            && now >= end
        {
            return Action::Stop(Ended::Late);
        }
        if now < self.next {
            let end = self.leads_until.unwrap_or(self.next);
            return Action::Wait(self.next.min(end));
        }
        match (self.known, &self.sight) {
            (Known::Nothing, _) | (Known::Sight, None) => Action::Send(Move::Read),
            (Known::Absent, Some(sight)) if self.is_kept(sight, now) => {
                // Somebody removed it under its holder, who does not know that yet.
                self.known = Known::Nothing;
                self.next = now + self.pause();
                Action::Wait(self.next)
            }
            (Known::Absent, _) => Action::Send(Move::Create(self.claim(None, wall))),
            (Known::Sight, Some(sight)) => {
                let Seen { record, revision } = &sight.seen;
                if self.leads_until.is_some() && record.holder != self.identity {
                    return Action::Stop(Ended::Taken(record.holder.clone()));
                }
                if !self.is_kept(sight, now) {
                    let claim = self.claim(Some(record), wall);
                    return Action::Send(Move::Update(claim, revision.clone()));
                }
                // Looked at again after a pause: somebody else leads.
                self.known = Known::Nothing;
                self.next = now + self.pause();
                Action::Wait(self.next)
            }
        }
    }

    /// Takes note of what became of a move that was begun at `sent`.
    pub fn heard(&mut self, what: &Move, heard: Heard, sent: Moment, now: Moment) {
        match heard {
            Heard::Found(seen) => {
                self.saw(seen, now);
                self.known = Known::Sight;
            }
            Heard::Absent => self.known = Known::Absent,
            Heard::Wrote(seen) => {
                self.saw(seen, now);
                self.known = Known::Sight;
                // Counted from before it was sent: nobody can have seen it earlier.
                self.leads_until = Some(sent + self.timing.renew_deadline);
                self.next = now + self.timing.retry;
            }
            // Looked at at once: it may be our own writing, of which the reply was lost.
            Heard::Stale => self.known = Known::Nothing,
            Heard::Nothing(_) => {
                // A reply to a writing may be lost while the writing took.
                self.known = match what {
                    Move::Read => self.known,
                    Move::Create(_) | Move::Update(..) => Known::Nothing,
                };
                self.next = now + self.pause();
            }
        }
    }

    /// The move that gives the lease back, if it is held.
    #[must_use]
    pub fn release(&self, wall: Timestamp) -> Option<Move> {
        let Sight { seen, .. } = self.sight.as_ref()?;
        self.leads_until?;
        let Seen { record, revision } = seen;
        if record.holder != self.identity {
            return None;
        }
        let record = Record {
            holder: String::new(),
            duration: Duration::from_secs(1),
            acquired: Some(wall),
            renewed: Some(wall),
            transitions: record.transitions,
        };
        Some(Move::Update(record, revision.clone()))
    }

    /// Whether somebody else holds the lease, by all that can be known here.
    fn is_kept(&self, sight: &Sight, now: Moment) -> bool {
        let Sight { seen: Seen { record, .. }, since } = sight;
        // The longer of what its holder and what we take for the duration.
        let lasts = record.duration.max(self.timing.lease);
        let free = record.holder.is_empty() || record.holder == self.identity;
        !free && now < *since + lasts
    }

    /// What the lease says when it is ours.
    fn claim(&self, before: Option<&Record>, wall: Timestamp) -> Record {
        let kept = before.filter(|record| record.holder == self.identity);
        let transitions = match (before, kept) {
            (None, _) => 0,
            (Some(record), Some(_)) => record.transitions,
            (Some(record), None) => record.transitions.saturating_add(1),
        };
        Record {
            holder: self.identity.clone(),
            duration: self.timing.lease,
            acquired: kept.and_then(|record| record.acquired).or(Some(wall)),
            renewed: Some(wall),
            transitions,
        }
    }

    /// A lease is as old as when this writing of it was first seen.
    fn saw(&mut self, seen: Seen, now: Moment) {
        let same = self.sight.as_ref().is_some_and(|sight| sight.seen == seen);
        if !same {
            self.sight = Some(Sight { seen, since: now });
        }
    }

    /// The pause before the next look: a little longer by chance for those who wait, so that they do
    /// not all come at once.
    fn pause(&mut self) -> Duration {
        let retry = self.timing.retry;
        if self.leads_until.is_some() {
            return retry;
        }
        let fifth = u64::try_from((retry / 5).as_nanos()).unwrap_or(u64::MAX);
        retry + Duration::from_nanos(self.jitter.u64(0..=fifth))
    }
}
