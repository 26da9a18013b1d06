//! The lock of a cluster: one run at a time, and what happens to the lock of a run that died.

use serde::{Deserialize, Serialize};

/// Seconds after which a holder writes its lock again.
pub const LOCK_RENEW_SECONDS: u64 = 10;
/// Seconds without that after which the lock is stale.
pub const LOCK_STALE_SECONDS: u64 = 60;

/// Who holds a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Lock {
    /// The run.
    pub run: String,
    /// The user who started it.
    pub user: String,
    /// The machine that it runs on.
    pub controller: String,
    /// When it was taken, in seconds since 1970.
    pub acquired: u64,
    /// When it was written last.
    pub renewed: u64,
}

/// Whether a run may begin or go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockDecision {
    /// Nothing holds the lock: write it, if there is still none.
    Acquire(Lock),
    /// It is ours: write it again, if it is still the same.
    Renew(Lock),
    /// Its holder died: replace it, if it is still the same.
    TakeOver {
        /// What is replaced.
        stale: Lock,
        /// What is written.
        with: Lock,
    },
    /// Another run holds it.
    Held {
        /// Its lock.
        holder: Lock,
        /// Seconds since it was written.
        age: u64,
    },
}

/// Decides about a lock. All times are of the clock of the host that has the lock, so that the
/// clocks of two controllers are never compared.
#[must_use]
pub fn decide(existing: Option<&Lock>, own: &Lock, now: u64) -> LockDecision {
    let renewed = |acquired: u64| Lock { acquired, renewed: now, ..own.clone() };
    let Some(holder) = existing else { return LockDecision::Acquire(renewed(now)) };
    if holder.run == own.run {
        return LockDecision::Renew(renewed(holder.acquired));
    }
    let age = now.saturating_sub(holder.renewed);
    if age >= LOCK_STALE_SECONDS {
        return LockDecision::TakeOver { stale: holder.clone(), with: renewed(now) };
    }
    LockDecision::Held { holder: holder.clone(), age }
}

impl Lock {
    /// Returns the message for the user whose run was refused.
    #[must_use]
    pub fn refusal(&self, cluster: &str, age: u64) -> String {
        let Self { run, user, controller, .. } = self;
        format!(
            "cluster {cluster} is held by run {run} of {user} on {controller}, seen {age} s ago; \
             wait for it, or if it died: gantry cluster unlock (stale after {LOCK_STALE_SECONDS} s)"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(run: &str, renewed: u64) -> Lock {
        Lock {
            run: run.to_owned(),
            user: "ops".to_owned(),
            controller: "desk".to_owned(),
            acquired: 5,
            renewed,
        }
    }

    #[test]
    fn pvs_47_a_lock_is_held_until_it_is_stale() {
        let own = lock("b", 0);
        assert!(matches!(decide(None, &own, 100), LockDecision::Acquire(it) if it.renewed == 100));
        let held = decide(Some(&lock("a", 41)), &own, 100);
        assert_eq!(held, LockDecision::Held { holder: lock("a", 41), age: 59 });
        let stale = decide(Some(&lock("a", 40)), &own, 100);
        assert!(matches!(stale, LockDecision::TakeOver { stale, .. } if stale.run == "a"));
        let renewed = decide(Some(&lock("b", 10)), &own, 100);
        assert!(
            matches!(renewed, LockDecision::Renew(it) if it.acquired == 5 && it.renewed == 100)
        );
        // A clock that went back does not make a living holder stale.
        assert!(matches!(
            decide(Some(&lock("a", 200)), &own, 100),
            LockDecision::Held { age: 0, .. }
        ));
        assert!(lock("a", 1).refusal("mls", 3).contains("run a of ops on desk, seen 3 s ago"));
    }
}
