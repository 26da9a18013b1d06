//! Checks every device, each by itself, against one way to satisfy a claim.

use std::cmp::Reverse;

use gantry_api::devices::{AccessMode, RequestedCapacity, TopologyAssignment, TopologyPolicy};

use super::{
    CapacityResult, DeviceResult, FilePoolResult, RequestedAmount, Wording, index_or_minus_one,
};
use crate::capacity_split::{self, SplitOptions};
use crate::eligible::effective_mode;
use crate::lower::amount_as_asked;
use crate::prepare::{AmountRequest, PreparedAlternative};
use crate::problem::{
    CapacityPart, Device, DeviceReport, Draws, Granularity, Hold, Inventory, PoolDevices,
    PoolReport, Reason, Refusal, TermAllocation,
};

/// Checks every device for one way to satisfy a term.
pub(super) struct DeviceCheck<'a> {
    /// The inventory, less what the claims before have taken.
    pub(super) remaining: &'a Inventory,
    /// The driver that the claim names.
    pub(super) driver: Option<&'a str>,
    /// The driver of each pool.
    pub(super) drivers: &'a [&'a str],
    pub(super) alternative: &'a PreparedAlternative<'a>,
    /// The index of the alternative.
    pub(super) alternative_index: usize,
    /// What the claim gets.
    pub(super) used: Option<&'a TermAllocation>,
    pub(super) wording: Wording,
}

impl DeviceCheck<'_> {
    pub(super) fn pool(&self, report: &PoolReport) -> FilePoolResult {
        let pool = &self.remaining.pools()[report.pool];
        let mut result =
            FilePoolResult { best: -1, pool_name: pool.name.clone(), ..FilePoolResult::default() };
        if let Some(text) = self.driver_mismatch(report) {
            return FilePoolResult { failure_reason: Some(text), ..result };
        }
        let PoolDevices::Listed(devices) = &pool.devices else {
            result.failure_reason = report.reason.as_ref().map(|reason| self.reason_text(reason));
            return result;
        };
        let devices: Vec<DeviceResult> = devices
            .iter()
            .enumerate()
            .map(|(at, device)| {
                let refused = report.devices.iter().find(|refused| refused.device == at);
                let hold =
                    self.holds().find(|hold| hold.pool == report.pool && hold.device == Some(at));
                self.device(device, refused, hold)
            })
            .collect();
        let own = self.holds().find(|hold| hold.pool == report.pool).and_then(|hold| hold.device);
        let best = own.or_else(|| best(&devices));
        result.best = index_or_minus_one(best);
        result.score = best.and_then(|at| devices.get(at)).map_or(0, |device| device.score);
        if best.is_none() {
            result.failure_reason = Some(match &pool.invalid_reason {
                Some(fault) => Reason::Invalid(fault.clone()).to_string(),
                None => format!("no {}s in pool with sufficient capacity", self.noun()),
            });
        }
        FilePoolResult { device_results: Some(devices), ..result }
    }

    fn holds(&self) -> impl Iterator<Item = &Hold> {
        self.used.into_iter().flat_map(|used| &used.holds)
    }

    fn noun(&self) -> &'static str {
        self.wording.noun()
    }

    /// Returns why a pool is not searched: its driver is another.
    fn driver_mismatch(&self, report: &PoolReport) -> Option<String> {
        let reason = report.reason.as_ref()?;
        let Reason::Refused(Refusal::Driver) = reason else { return None };
        Some(match (self.driver, self.drivers.get(report.pool)) {
            (Some(wants), Some(has)) => {
                format!("pool driver \"{has}\" mismatch claim driver \"{wants}\"")
            }
            // The class names the driver.
            (None, _) | (_, None) => reason.to_string(),
        })
    }

    fn device(
        &self,
        device: &Device,
        refused: Option<&DeviceReport>,
        hold: Option<&Hold>,
    ) -> DeviceResult {
        let device_name = device.name.clone();
        match refused {
            Some(DeviceReport { reason, .. }) => DeviceResult {
                capacity_results: self.partial_results(device, reason),
                device_name,
                failure_reason: Some(self.reason_text(reason)),
                score: 0,
            },
            None => {
                let taken: Vec<Vec<CapacityPart>> = self
                    .alternative
                    .amounts
                    .iter()
                    .map(|want| self.parts(device, want, hold))
                    .collect();
                let score = match (hold, self.used) {
                    (Some(_), Some(used)) => used.score,
                    (Some(_) | None, _) => self.score(device, &taken),
                };
                let results = self.results(device, &taken, hold.map(|hold| hold.mode));
                let capacity_results = Some(results);
                DeviceResult { capacity_results, device_name, failure_reason: None, score }
            }
        }
    }

    /// Returns what each request would get of a device that does not serve all of them; `None` if
    /// it was not refused for lack of capacity.
    fn partial_results(&self, device: &Device, reason: &Reason) -> Option<Vec<CapacityResult>> {
        let failed = match reason {
            Reason::NoCapacity { name, .. }
            | Reason::Mismatch { name, .. }
            | Reason::Insufficient { name, .. } => name,
            Reason::NoneAvailable
            | Reason::Refused(_)
            | Reason::Invalid(_)
            | Reason::Tainted { .. }
            | Reason::PoolExhausted { .. } => return None,
        };
        let taken: Vec<Vec<CapacityPart>> =
            self.alternative.amounts.iter().map(|want| self.parts(device, want, None)).collect();
        let mut results = self.results(device, &taken, None);
        for result in results.iter_mut().filter(|result| result.capacity == *failed) {
            result.failure_reason = Some(self.reason_text(reason));
        }
        Some(results)
    }

    /// Returns the parts that serve a request: those that are taken, or else would be.
    fn parts(
        &self,
        device: &Device,
        want: &AmountRequest<'_>,
        hold: Option<&Hold>,
    ) -> Vec<CapacityPart> {
        let of_name = |part: &&CapacityPart| {
            device
                .capacities
                .get(part.capacity_index)
                .is_some_and(|entry| Some(entry.name) == want.name)
        };
        if let Some(hold) = hold {
            return hold.parts.iter().filter(of_name).copied().collect();
        }
        let manner = SplitOptions {
            whole: self.alternative.each,
            few: !self.alternative.rules.is_empty(),
            required: &[],
        };
        let used = |at: usize| device.capacities[at].used;
        let ways =
            capacity_split::find_splits(&device.capacities, &used, want, want.amount, manner);
        ways.and_then(|ways| ways.into_iter().next()).unwrap_or_default()
    }

    /// Returns the score of a device by itself: the score that the allocator would give a term with
    /// nothing but it.
    fn score(&self, device: &Device, taken: &[Vec<CapacityPart>]) -> u32 {
        let split: usize = taken.iter().map(|parts| parts.len().saturating_sub(1)).sum();
        let symbols = self.remaining.symbols();
        let unmet = self.alternative.source.topologies.iter().filter(|rule| {
            let kind = symbols.find(&rule.r#type);
            let mut places = taken
                .iter()
                .flatten()
                .filter_map(|part| device.capacities.get(part.capacity_index))
                .flat_map(|entry| &entry.domains)
                .filter(|place| Some(place.kind) == kind)
                .map(|place| place.name);
            let first = places.next();
            rule.policy == TopologyPolicy::Prefer && places.any(|other| Some(other) != first)
        });
        let lost = 10 * self.alternative_index + 20 * unmet.count() + 5 * split;
        u32::try_from(100_usize.saturating_sub(lost).max(1)).unwrap_or(1)
    }

    /// Returns what each request gets, in the order of the requests; a request that gets nothing is
    /// shown as requested.
    fn results(
        &self,
        device: &Device,
        taken: &[Vec<CapacityPart>],
        granted: Option<AccessMode>,
    ) -> Vec<CapacityResult> {
        let mut results = Vec::new();
        for (name, _) in &self.alternative.access {
            let mode = granted.unwrap_or_else(|| effective_mode(device, self.alternative));
            let access_mode = Some(RequestedAmount { request: mode });
            results.push(CapacityResult { access_mode, ..empty(name) });
        }
        for (want, parts) in self.alternative.amounts.iter().zip(taken) {
            if parts.is_empty() {
                results.push(self.amount(want, want.amount, Vec::new()));
            }
            for part in parts {
                let Some(entry) = device.capacities.get(part.capacity_index) else { continue };
                let symbols = self.remaining.symbols();
                let topologies = entry.domains.iter().map(|place| TopologyAssignment {
                    r#type: symbols.name(place.kind).to_owned(),
                    name: symbols.name(place.name).to_owned(),
                });
                results.push(self.amount(want, part.amount, topologies.collect()));
            }
        }
        // Access is requested among the others.
        let order: Vec<&str> = self.alternative.source.draws.names().collect();
        results.sort_by_key(|result| order.iter().position(|name| *name == result.capacity));
        results
    }

    fn amount(
        &self,
        want: &AmountRequest<'_>,
        nanos: i128,
        topologies: Vec<TopologyAssignment>,
    ) -> CapacityResult {
        let result = CapacityResult { topologies, ..empty(want.text) };
        let typed = match &self.alternative.source.draws {
            Draws::Each(list) => list.iter().find(|request| request.name == want.text),
            Draws::Together(_) => None,
        };
        match typed.map(|request| &request.draw) {
            Some(RequestedCapacity::Counter { .. }) => {
                let whole = i64::try_from(nanos / Granularity::UNIT).unwrap_or(i64::MAX);
                CapacityResult { counter: Some(RequestedAmount { request: whole }), ..result }
            }
            Some(RequestedCapacity::Quantity { .. } | RequestedCapacity::AccessMode { .. })
            | None => {
                let request = amount_as_asked(self.alternative.source, want.text, nanos);
                CapacityResult { quantity: Some(RequestedAmount { request }), ..result }
            }
        }
    }

    /// Returns a reason in the words that the users of the files know.
    fn reason_text(&self, reason: &Reason) -> String {
        let noun = self.noun();
        match reason {
            Reason::Refused(Refusal::Constraints) => "does not meet constraints".to_owned(),
            Reason::Refused(Refusal::Error(text)) => {
                format!("error evaluating against constraints: {text}")
            }
            Reason::NoCapacity { name, device } => {
                format!("no capacity \"{name}\" present in {noun} \"{device}\"")
            }
            Reason::Insufficient { name, device } => {
                format!("insufficient capacity \"{name}\" present in {noun} \"{device}\"")
            }
            Reason::Mismatch { name, device, problem } => {
                format!("error evaluating capacity \"{name}\" in {noun} \"{device}\": {problem}")
            }
            Reason::NoneAvailable
            | Reason::Refused(Refusal::Driver | Refusal::DeviceType)
            | Reason::Invalid(_)
            | Reason::Tainted { .. }
            | Reason::PoolExhausted { .. } => reason.to_string(),
        }
    }
}

fn empty(name: &str) -> CapacityResult {
    CapacityResult {
        access_mode: None,
        capacity: name.to_owned(),
        counter: None,
        failure_reason: None,
        quantity: None,
        topologies: Vec::new(),
    }
}

/// Returns the first device with the highest score, of those that serve.
fn best(devices: &[DeviceResult]) -> Option<usize> {
    let serving = devices.iter().enumerate().filter(|(_, device)| device.failure_reason.is_none());
    serving.min_by_key(|(at, device)| (Reverse(device.score), *at)).map(|(at, _)| at)
}
