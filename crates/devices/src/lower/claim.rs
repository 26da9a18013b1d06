//! Converts claims to requests, and checks them against the classes they name.

use std::collections::BTreeSet;
use std::fmt;

use gantry_api::devices::{
    AccessMode, AllocationMode, ClaimSpec, ClassSpec, DeviceRequest, PrivilegedClaimSpec, Requests,
    Term,
};
use gantry_api::finding::Source;
use gantry_api::quantity::Quantity;

use super::catalog::Catalog;
use super::selector::{Conditions, DeviceSelector};
use crate::constraint::Constraints;
use crate::problem::{self, Alternative, Count, Draws, Request};

/// What one of a pod's claims requests.
#[derive(Clone, Copy, Debug)]
pub enum ClaimSpecRef<'a> {
    /// Devices.
    Claim(&'a ClaimSpec),
    /// Every device of a driver, regardless of other holders.
    Privileged(&'a PrivilegedClaimSpec),
}

/// A request, and warnings for its author.
#[derive(Clone, Debug, Default)]
pub struct LoweredRequest {
    /// The request.
    pub request: Request,
    /// Warnings in the order of the claims.
    pub warnings: Vec<ClaimWarning>,
}

/// A warning: something that was understood, but not as its author may expect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimWarning {
    /// A limit is passed to the driver and is not enforced here.
    LimitNotEnforced {
        /// The claim.
        claim: String,
        /// Its term.
        term: String,
        /// The limited resource.
        name: String,
    },
    /// A class is ignored, because the files contain no class at all.
    ClassIgnored {
        /// The claim.
        claim: String,
        /// Its term.
        term: String,
        /// The class.
        class: String,
    },
}

impl fmt::Display for ClaimWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LimitNotEnforced { claim, term, name } => {
                write!(f, "claim {claim}, entry {term}: the limit on \"{name}\" is not enforced")
            }
            Self::ClassIgnored { claim, term, class } => write!(
                f,
                "claim {claim}, entry {term}: there are no classes here, so \"{class}\" is ignored"
            ),
        }
    }
}

/// A claim that cannot be allocated, whatever devices there are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("claim {claim}, entry {term}: {fault}")]
pub struct ClaimError {
    /// The claim.
    pub claim: String,
    /// Its term.
    pub term: String,
    /// The problem.
    pub fault: TermProblem,
}

/// A problem of a term of a claim.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TermProblem {
    /// Its class does not exist. It may be created later.
    #[error("device class \"{0}\" not found")]
    NoClass(String),
    /// It names a driver that is not its class's.
    #[error("driver \"{own}\" is not \"{class}\", the driver of the device class")]
    Driver {
        /// The term's driver.
        own: String,
        /// The class's driver.
        class: String,
    },
    /// It names a mode that is not its class's.
    #[error(
        "accessMode {} is not {}, the accessMode of the device class",
        own.as_str(),
        class.as_str()
    )]
    Mode {
        /// The term's mode.
        own: AccessMode,
        /// The class's mode.
        class: AccessMode,
    },
    /// It requests fewer or more devices than its class allows.
    #[error("{field} {count} is outside of what the device class allows: {least} to {most}")]
    Count {
        /// The field that sets the number.
        field: &'static str,
        /// The number.
        count: u32,
        /// The least number the class allows.
        least: u32,
        /// The largest number the class allows, as a word if there is no bound.
        most: String,
    },
    /// A number of devices is not an integer.
    #[error("{field} {amount} is not a number of devices")]
    NotANumber {
        /// The field that sets the number.
        field: &'static str,
        /// Its value.
        amount: Quantity,
    },
    /// It requests all devices of a class that bounds their number.
    #[error(
        "allocationMode All takes any number of devices, and the device class allows {least} to \
         {most}"
    )]
    All {
        /// The least number the class allows.
        least: u32,
        /// The largest number the class allows, as a word if there is no bound.
        most: String,
    },
}

impl TermProblem {
    pub(super) fn no_class(name: &str) -> Self {
        Self::NoClass(name.to_owned())
    }
}

/// Converts claims to requests, and collects the selectors that their alternatives refer to.
pub(super) struct ClaimLowering<'a> {
    pub(super) catalog: &'a Catalog,
    pub(super) constraints: &'a Constraints,
    pub(super) selectors: Vec<DeviceSelector>,
    /// Maps the conditions of a term to its selector: terms of a claim mostly have the same, and
    /// computing the key of a selector takes longer than everything else here.
    selector_cache: Vec<(Conditions<'a>, usize)>,
    pub(super) warnings: Vec<ClaimWarning>,
}

impl<'a> ClaimLowering<'a> {
    pub(super) fn new(catalog: &'a Catalog, constraints: &'a Constraints) -> Self {
        let (selectors, asked, notes) = (Vec::new(), Vec::new(), Vec::new());
        Self { catalog, constraints, selectors, selector_cache: asked, warnings: notes }
    }

    pub(super) fn claim(
        &mut self,
        name: &str,
        wanted: ClaimSpecRef<'a>,
    ) -> Result<problem::Claim, ClaimError> {
        match wanted {
            ClaimSpecRef::Claim(spec) => Ok(problem::Claim {
                match_attributes: unique(&[&spec.match_attributes]),
                distinct_attributes: unique(&[&spec.distinct_attributes]),
                ..self.terms(name, &spec.claims)?
            }),
            ClaimSpecRef::Privileged(spec) => self.privileged(name, spec),
        }
    }

    /// Converts a claim with terms, without conditions that span them.
    pub(super) fn terms(
        &mut self,
        name: &str,
        terms: &'a [Term],
    ) -> Result<problem::Claim, ClaimError> {
        let mut lowered = Vec::with_capacity(terms.len());
        for term in terms {
            // There is mostly one, and an alternative is large.
            let mut alternatives = Vec::with_capacity(1);
            for ask in term.alternatives() {
                let way = self.alternative(name, &term.name, ask).map_err(|fault| ClaimError {
                    claim: name.to_owned(),
                    term: term.name.clone(),
                    fault,
                })?;
                alternatives.push(way);
            }
            lowered.push(problem::Term { name: term.name.clone(), alternatives });
        }
        Ok(problem::Claim { name: name.to_owned(), terms: lowered, ..problem::Claim::default() })
    }

    fn privileged(
        &mut self,
        name: &str,
        spec: &'a PrivilegedClaimSpec,
    ) -> Result<problem::Claim, ClaimError> {
        let conditions = Conditions {
            driver: Some(&spec.driver),
            constraints: spec.constraints.as_deref(),
            ..Conditions::default()
        };
        let selector = self.selector(conditions).map_err(|fault| ClaimError {
            claim: name.to_owned(),
            term: DEFAULT_TERM_NAME.to_owned(),
            fault,
        })?;
        let all = Alternative {
            selector,
            count: Count::All,
            admin: true,
            tolerations: spec.tolerations.clone(),
            ..Alternative::default()
        };
        let term = problem::Term { name: DEFAULT_TERM_NAME.to_owned(), alternatives: vec![all] };
        Ok(problem::Claim { name: name.to_owned(), terms: vec![term], ..problem::Claim::default() })
    }

    fn selector(&mut self, conditions: Conditions<'a>) -> Result<usize, TermProblem> {
        if let Some((_, known)) = self.selector_cache.iter().find(|(asked, _)| *asked == conditions)
        {
            return Ok(*known);
        }
        let selector = DeviceSelector::new(&conditions, self.catalog, self.constraints)?;
        let known = self.selectors.iter().position(|known| known.key() == selector.key());
        let known = known.unwrap_or_else(|| {
            self.selectors.push(selector);
            self.selectors.len() - 1
        });
        self.selector_cache.push((conditions, known));
        Ok(known)
    }

    fn alternative(
        &mut self,
        claim: &str,
        term: &str,
        ask: &'a DeviceRequest,
    ) -> Result<Alternative, TermProblem> {
        let named = ask.device_class.as_deref();
        let ignored = named.filter(|_| self.ignores_classes());
        if let Some(class) = ignored {
            let (claim, term) = (claim.to_owned(), term.to_owned());
            self.warnings.push(ClaimWarning::ClassIgnored { claim, term, class: class.to_owned() });
        }
        for name in ask.limits.keys().filter(|name| *name != COUNT_REQUEST) {
            let (claim, term) = (claim.to_owned(), term.to_owned());
            self.warnings.push(ClaimWarning::LimitNotEnforced { claim, term, name: name.clone() });
        }
        let conditions = Conditions {
            driver: ask.driver.as_deref(),
            class: named.filter(|_| ignored.is_none()),
            device_type: ask.device_type.as_deref(),
            constraints: ask.constraints.as_deref(),
        };
        let selector = self.selector(conditions)?;
        let class = conditions.class.and_then(|name| self.catalog.class(name));
        if let (Some(own), Some(class)) = (&ask.driver, class.and_then(|c| c.driver.as_ref()))
            && own != class
        {
            return Err(TermProblem::Driver { own: own.clone(), class: class.clone() });
        }
        let class_mode = class.and_then(|class| class.access_mode);
        if let (Some(own), Some(class)) = (ask.access_mode, class_mode)
            && own != class
        {
            return Err(TermProblem::Mode { own, class });
        }
        let of_class = class.map_or(&[] as &[String], |class| &class.match_attributes);
        Ok(Alternative {
            selector,
            count: count(ask, class)?,
            draws: draws(ask.requests.as_ref()),
            mode: ask.access_mode.or(class_mode),
            admin: class.is_some_and(|class| class.admin_access),
            tolerations: ask.tolerations.clone(),
            match_attributes: unique(&[of_class, &ask.match_attributes]),
            distinct_attributes: unique(&[&ask.distinct_attributes]),
            topologies: ask.topologies.clone(),
        })
    }

    /// Whether classes are ignored: claims of the oldest files name a class that never existed.
    fn ignores_classes(&self) -> bool {
        match self.catalog.source() {
            Source::File => !self.catalog.has_classes(),
            Source::Server => false,
        }
    }
}

/// The name of the request for the number of devices.
const COUNT_REQUEST: &str = "count";

/// The name of the only term of a claim that has no terms of its own.
const DEFAULT_TERM_NAME: &str = "main";

/// Returns how many devices an alternative gets: what it requests, within what its class allows.
fn count(ask: &DeviceRequest, class: Option<&ClassSpec>) -> Result<Count, TermProblem> {
    let class_least = class.and_then(|class| class.min_device_count).unwrap_or(1);
    let class_most = class.and_then(|class| class.max_device_count);
    let in_words = || class_most.map_or_else(|| "any number".to_owned(), |most| most.to_string());
    if ask.allocation_mode == Some(AllocationMode::All) {
        return if class_least > 1 || class_most.is_some() {
            Err(TermProblem::All { least: class_least, most: in_words() })
        } else {
            Ok(Count::All)
        };
    }
    let within = |field, amount: Option<Quantity>| {
        let Some(amount) = amount else { return Ok(None) };
        let count = amount.to_int().and_then(|count| u32::try_from(count).ok());
        let count =
            count.filter(|count| *count > 0).ok_or(TermProblem::NotANumber { field, amount })?;
        if count < class_least || class_most.is_some_and(|most| count > most) {
            return Err(TermProblem::Count { field, count, least: class_least, most: in_words() });
        }
        Ok(Some(count))
    };
    let least = within("requests.count", ask.requests.as_ref().and_then(Requests::count))?;
    let most = within("limits.count", ask.limits.get(COUNT_REQUEST).copied())?;
    Ok(Count::Between {
        least: least.unwrap_or(class_least),
        most: most.or(class_most).unwrap_or(u32::MAX),
    })
}

/// Returns what is requested besides the number of devices.
fn draws(requests: Option<&Requests>) -> Draws {
    match requests {
        None => Draws::default(),
        Some(Requests::Amounts(amounts)) => {
            let named = amounts.iter().filter(|(name, _)| *name != COUNT_REQUEST);
            Draws::Together(named.map(|(name, amount)| (name.clone(), *amount)).collect())
        }
        Some(Requests::Typed(list)) => {
            Draws::Each(list.iter().filter(|entry| entry.name != COUNT_REQUEST).cloned().collect())
        }
    }
}

/// Returns every name once, in the order of first occurrence.
fn unique(lists: &[&[String]]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    lists.iter().copied().flatten().filter(|name| seen.insert(*name)).cloned().collect()
}
