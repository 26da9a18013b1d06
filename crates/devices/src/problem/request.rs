//! The request of a pod, with everything resolved that does not depend on the choice of devices.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use gantry_api::devices::{AccessMode, Toleration, TopologyRule, TypedRequest};
use gantry_api::quantity::Quantity;

use super::inventory::Signature;

/// The claims of one pod that are still to be allocated, all of them or none.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The claims, in the order in which they choose.
    pub claims: Vec<Claim>,
    /// The verdicts of constraints: a row for each selector, a column for each [`Signature`].
    pub verdicts: Vec<Arc<[Verdict]>>,
    /// Topology rules that apply to all parts of all claims.
    pub topologies: Vec<TopologyRule>,
    /// Which of several solutions is preferred.
    pub policy: Policy,
}

/// A claim: terms that are satisfied together.
#[derive(Clone, Debug, Default)]
pub struct Claim {
    /// Name, for reports.
    pub name: String,
    /// The terms, in the order in which they choose.
    pub terms: Vec<Term>,
    /// Attributes whose value is the same on all devices of the claim.
    pub match_attributes: Vec<String>,
    /// Attributes whose value differs between any two devices of the claim.
    pub distinct_attributes: Vec<String>,
    /// Topology rules that apply to all parts of the claim.
    pub topologies: Vec<TopologyRule>,
}

/// One entry of a claim, and the ways to satisfy it.
#[derive(Clone, Debug, Default)]
pub struct Term {
    /// Name, for reports.
    pub name: String,
    /// The alternatives, best first; never empty.
    pub alternatives: Vec<Alternative>,
}

/// One way to satisfy a term.
#[derive(Clone, Debug, Default)]
pub struct Alternative {
    /// The row of [`Request::verdicts`] that decides which devices qualify.
    pub selector: usize,
    /// The number of devices.
    pub count: Count,
    /// The amounts they must offer.
    pub draws: Draws,
    /// How they are shared, if the term or its class specifies it.
    pub mode: Option<AccessMode>,
    /// Whether it has administrator access: holds ignore others and are invisible to them.
    pub admin: bool,
    /// The device taints that are tolerated.
    pub tolerations: Vec<Toleration>,
    /// Attributes whose value is the same on all devices of the term: its own and its class's.
    pub match_attributes: Vec<String>,
    /// Attributes whose value differs between any two devices of the term.
    pub distinct_attributes: Vec<String>,
    /// Topology rules that apply to all parts of the term.
    pub topologies: Vec<TopologyRule>,
}

/// How many devices a term gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// As few as possible, within these bounds.
    Between {
        /// At least so many, never 0.
        least: u32,
        /// At most so many.
        most: u32,
    },
    /// Every candidate of the node, and at least one.
    All,
}

impl Count {
    /// Creates the count of exactly so many.
    #[must_use]
    pub const fn exactly(count: u32) -> Self {
        Self::Between { least: count, most: count }
    }
}

impl Default for Count {
    fn default() -> Self {
        Self::exactly(1)
    }
}

/// What the devices of a term have to give.
///
/// A resource that a device lists several times is drawn from one of the entries or from several
/// of them, if all of these may be split. A set of entries serves in listed order, each giving what
/// it has in whole blocks until nothing is missing, and is no choice if one of them gives nothing.
/// Sets are tried
/// - in the order of their lists of entries, compared from the front, if no topology rule applies
///   to the term: earlier entries are used up before later ones are touched;
/// - else smaller ones first, then in that order.
///
/// A request for nothing is served by any single entry, with nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum Draws {
    /// From each device alone: a set of entries is a choice only if it serves the whole request.
    /// What one entry lacks is carried to the next after rounding to the entry's blocks.
    Each(Vec<TypedRequest>),
    /// From all devices of the term in sum, in the order of their names here. A device gives as
    /// much as it can of what is still missing: sets of entries that give less than another set in
    /// the same required topology domains are not tried. What is missing is not rounded.
    Together(Vec<(String, Quantity)>),
}

impl Draws {
    /// Returns the requested names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let (each, together) = match self {
            Self::Each(list) => (list.as_slice(), [].as_slice()),
            Self::Together(list) => ([].as_slice(), list.as_slice()),
        };
        let each = each.iter().map(|request| request.name.as_str());
        each.chain(together.iter().map(|(name, _)| name.as_str()))
    }

    /// Whether anything is requested besides the devices themselves.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names().next().is_none()
    }
}

impl Default for Draws {
    fn default() -> Self {
        Self::Together(Vec::new())
    }
}

/// The verdict of driver, device type and constraints about a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It qualifies.
    Met,
    /// It does not qualify.
    Refused(Refusal),
}

/// Why a device does not qualify.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// It has another driver.
    Driver,
    /// It is of another type.
    DeviceType,
    /// A constraint could not be evaluated, for this reason.
    Error(String),
    /// A constraint is false.
    Constraints,
}

/// Which of several solutions is preferred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// The one that uses the fewest pools.
    #[default]
    FewestPools,
    /// The one with the first devices.
    FirstFit,
}

/// The limits of a search.
#[derive(Clone, Copy, Debug)]
pub struct Budget<'a> {
    /// Steps for one node. They are counted the same on every machine.
    pub steps: u64,
    /// Set by another thread when it takes too long; checked every few thousand steps.
    pub stop: Option<&'a AtomicBool>,
}

impl Budget<'_> {
    /// The default number of steps: about a second.
    pub const STEPS: u64 = 5_000_000;
}

impl Default for Budget<'_> {
    fn default() -> Self {
        Self { steps: Self::STEPS, stop: None }
    }
}

impl Request {
    /// Returns the verdict about devices of a signature. A signature that was not evaluated does
    /// not qualify.
    #[must_use]
    pub fn verdict(&self, selector: usize, signature: Signature) -> &Verdict {
        const UNKNOWN: &Verdict = &Verdict::Refused(Refusal::Constraints);
        let row = self.verdicts.get(selector);
        row.and_then(|row| row.get(signature.index())).unwrap_or(UNKNOWN)
    }
}
