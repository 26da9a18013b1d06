//! Which accelerators a requester has: those of its claims, or else those that its stub reports.

use super::Planner;
use crate::facts::{ClaimAllocation, RequesterAccelerators};
use crate::inquiries::{claim_question, requester_endpoint};
use crate::view::{ActuationPod, Allocation, ClaimedDevice, agreed_accelerators};

impl Planner<'_> {
    /// The accelerators of a requester. What its claims were given decides; the stub is asked only
    /// to see that it agrees.
    pub(super) fn accelerators(&mut self, requester: &ActuationPod) -> Option<Vec<String>> {
        let reported = self.reported_accelerators(requester)?;
        let claims = &requester.claims;
        if claims.device_claims.is_none() && claims.resource_claims.is_empty() {
            return Some(reported);
        }
        let claimed = self.claimed_devices(requester)?;
        match agreed_accelerators(&claimed, &reported) {
            Ok(accelerators) => Some(accelerators),
            Err(text) => {
                self.report(requester, text, &[]);
                None
            }
        }
    }

    /// The accelerators that the stub reports.
    fn reported_accelerators(&mut self, requester: &ActuationPod) -> Option<Vec<String>> {
        let endpoint = requester_endpoint(requester)?;
        let known = self.world.facts::<RequesterAccelerators>().get(&endpoint);
        match known.as_ref().and_then(|it| it.value()) {
            Some(it) if it.uuids.is_empty() => {
                let text = "the requester has no accelerators; set a limit for them".to_owned();
                self.report(requester, text, &[]);
                None
            }
            Some(it) => Some(it.uuids.clone()),
            None => {
                let failure = known.and_then(|it| it.failure.clone());
                match failure {
                    Some(it) => {
                        let text = format!("cannot read the accelerators: {}", it.message);
                        self.report(requester, text, &[]);
                    }
                    None => {
                        let message = "asks the requester for its accelerators".to_owned();
                        self.hold(requester, "AwaitingAccelerators", message);
                    }
                }
                None
            }
        }
    }

    /// The devices that the claims of a requester were given.
    fn claimed_devices(&mut self, requester: &ActuationPod) -> Option<Vec<ClaimedDevice>> {
        let mut devices = Vec::new();
        match &requester.claims.device_claims {
            None => {}
            Some(Allocation::Devices(allocated)) => devices.extend(allocated.iter().cloned()),
            Some(Allocation::Pending) => {
                let message = "its DeviceClaims are not allocated".to_owned();
                self.hold(requester, "AwaitingClaims", message);
                return None;
            }
            Some(Allocation::Unreadable(text)) => {
                self.report(requester, text.clone(), &[]);
                return None;
            }
        }
        for used in &requester.claims.resource_claims {
            let Some(question) = claim_question(requester, used) else {
                let message = format!("no ResourceClaim was made for its claim {}", used.entry);
                self.hold(requester, "AwaitingClaims", message);
                return None;
            };
            let known = self.world.facts::<ClaimAllocation>().get(&question);
            if let Some(allocated) = known.as_ref().and_then(|it| it.value()) {
                devices.extend(allocated.devices.iter().cloned());
                continue;
            }
            let name = question.claim.name();
            match known.and_then(|it| it.failure.clone()) {
                Some(it) => {
                    let text = format!("cannot use ResourceClaim {name}: {}", it.message);
                    self.report(requester, text, &[]);
                }
                None => {
                    let message = format!("reads ResourceClaim {name}");
                    self.hold(requester, "AwaitingClaims", message);
                }
            }
            return None;
        }
        Some(devices)
    }
}
