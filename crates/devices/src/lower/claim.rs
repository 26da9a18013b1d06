//! What a claim asks for, held against the classes it names.

use std::collections::BTreeSet;
use std::fmt;

use gantry_api::devices::{
    AccessMode, AllocationMode, Ask, ClaimSpec, ClassSpec, PrivilegedClaimSpec, Requests, Term,
};
use gantry_api::finding::Source;
use gantry_api::quantity::Quantity;

use super::catalog::Catalog;
use super::selector::{Conditions, Selector};
use crate::constraint::Constraints;
use crate::problem::{self, Alternative, Count, Draws, Request};

/// What one of a pod's claims asks for.
#[derive(Clone, Copy, Debug)]
pub enum Wanted<'a> {
    /// Devices.
    Claim(&'a ClaimSpec),
    /// Every device of a driver, whoever holds it.
    Privileged(&'a PrivilegedClaimSpec),
}

/// A request, and what its author should know.
#[derive(Clone, Debug, Default)]
pub struct Lowered {
    /// The request.
    pub request: Request,
    /// In the order of the claims.
    pub notes: Vec<Note>,
}

/// Something that was understood, and not as its author may think.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A limit is passed to the driver and bounds nothing here.
    LimitNotEnforced {
        /// The claim.
        claim: String,
        /// Its term.
        term: String,
        /// What is limited.
        name: String,
    },
    /// A class is not looked for, because the files have no class at all.
    ClassIgnored {
        /// The claim.
        claim: String,
        /// Its term.
        term: String,
        /// The class.
        class: String,
    },
}

impl fmt::Display for Note {
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
    /// What is wrong.
    pub fault: Fault,
}

/// What is wrong with a term of a claim.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Its class does not exist. It may come.
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
    #[error("accessMode {} is not {}, the accessMode of the device class", own.as_str(), class.as_str())]
    Mode {
        /// The term's mode.
        own: AccessMode,
        /// The class's mode.
        class: AccessMode,
    },
    /// It asks for fewer or more devices than its class gives.
    #[error("{field} {count} is outside of what the device class gives: {least} to {most}")]
    Count {
        /// What sets the number.
        field: &'static str,
        /// The number.
        count: u32,
        /// The least the class gives.
        least: u32,
        /// The most the class gives, in words if there is no bound.
        most: String,
    },
    /// A number of devices is not a number.
    #[error("{field} {amount} is not a number of devices")]
    NotANumber {
        /// What sets the number.
        field: &'static str,
        /// What it is set to.
        amount: Quantity,
    },
    /// It asks for all devices of a class that bounds their number.
    #[error(
        "allocationMode All takes any number of devices, and the device class gives {least} to {most}"
    )]
    All {
        /// The least the class gives.
        least: u32,
        /// The most the class gives, in words if there is no bound.
        most: String,
    },
}

impl Fault {
    pub(super) fn no_class(name: &str) -> Self {
        Self::NoClass(name.to_owned())
    }
}

/// Makes claims of what is wanted, and collects the selectors that their alternatives refer to.
pub(super) struct Lower<'a> {
    pub(super) catalog: &'a Catalog,
    pub(super) constraints: &'a Constraints,
    pub(super) selectors: Vec<Selector>,
    /// Which selector says what a term says: terms of a claim mostly say the same, and to write down
    /// what tells selectors apart takes longer than all else here.
    asked: Vec<(Conditions<'a>, usize)>,
    pub(super) notes: Vec<Note>,
}

impl<'a> Lower<'a> {
    pub(super) fn new(catalog: &'a Catalog, constraints: &'a Constraints) -> Self {
        let (selectors, asked, notes) = (Vec::new(), Vec::new(), Vec::new());
        Self { catalog, constraints, selectors, asked, notes }
    }

    pub(super) fn wanted(
        &mut self,
        name: &str,
        wanted: Wanted<'a>,
    ) -> Result<problem::Claim, ClaimError> {
        match wanted {
            Wanted::Claim(spec) => Ok(problem::Claim {
                match_attributes: unique(&[&spec.match_attributes]),
                distinct_attributes: unique(&[&spec.distinct_attributes]),
                ..self.terms(name, &spec.claims)?
            }),
            Wanted::Privileged(spec) => self.privileged(name, spec),
        }
    }

    /// A claim of terms, without conditions that span them.
    pub(super) fn terms(
        &mut self,
        name: &str,
        terms: &'a [Term],
    ) -> Result<problem::Claim, ClaimError> {
        let mut lowered = Vec::with_capacity(terms.len());
        for term in terms {
            // Mostly one, and an alternative is large.
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
            term: MAIN.to_owned(),
            fault,
        })?;
        let all = Alternative {
            selector,
            count: Count::All,
            admin: true,
            tolerations: spec.tolerations.clone(),
            ..Alternative::default()
        };
        let term = problem::Term { name: MAIN.to_owned(), alternatives: vec![all] };
        Ok(problem::Claim { name: name.to_owned(), terms: vec![term], ..problem::Claim::default() })
    }

    fn selector(&mut self, conditions: Conditions<'a>) -> Result<usize, Fault> {
        if let Some((_, known)) = self.asked.iter().find(|(asked, _)| *asked == conditions) {
            return Ok(*known);
        }
        let selector = Selector::new(&conditions, self.catalog, self.constraints)?;
        let known = self.selectors.iter().position(|known| known.key() == selector.key());
        let known = known.unwrap_or_else(|| {
            self.selectors.push(selector);
            self.selectors.len() - 1
        });
        self.asked.push((conditions, known));
        Ok(known)
    }

    fn alternative(&mut self, claim: &str, term: &str, ask: &'a Ask) -> Result<Alternative, Fault> {
        let named = ask.device_class.as_deref();
        let ignored = named.filter(|_| self.ignores_classes());
        if let Some(class) = ignored {
            let (claim, term) = (claim.to_owned(), term.to_owned());
            self.notes.push(Note::ClassIgnored { claim, term, class: class.to_owned() });
        }
        for name in ask.limits.keys().filter(|name| *name != COUNT) {
            let (claim, term) = (claim.to_owned(), term.to_owned());
            self.notes.push(Note::LimitNotEnforced { claim, term, name: name.clone() });
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
            return Err(Fault::Driver { own: own.clone(), class: class.clone() });
        }
        let class_mode = class.and_then(|class| class.access_mode);
        if let (Some(own), Some(class)) = (ask.access_mode, class_mode)
            && own != class
        {
            return Err(Fault::Mode { own, class });
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

    /// Claims of the oldest files name a class that never was.
    fn ignores_classes(&self) -> bool {
        match self.catalog.source() {
            Source::File => !self.catalog.has_classes(),
            Source::Server => false,
        }
    }
}

/// The request that stands for the number of devices.
const COUNT: &str = "count";

/// The name of the only term of a claim that has no terms of its own.
const MAIN: &str = "main";

/// How many devices an alternative gets: what it says, within what its class gives.
fn count(ask: &Ask, class: Option<&ClassSpec>) -> Result<Count, Fault> {
    let class_least = class.and_then(|class| class.min_device_count).unwrap_or(1);
    let class_most = class.and_then(|class| class.max_device_count);
    let in_words = || class_most.map_or_else(|| "any number".to_owned(), |most| most.to_string());
    if ask.allocation_mode == Some(AllocationMode::All) {
        return if class_least > 1 || class_most.is_some() {
            Err(Fault::All { least: class_least, most: in_words() })
        } else {
            Ok(Count::All)
        };
    }
    let within = |field, amount: Option<Quantity>| {
        let Some(amount) = amount else { return Ok(None) };
        let count = amount.to_int().and_then(|count| u32::try_from(count).ok());
        let count = count.filter(|count| *count > 0).ok_or(Fault::NotANumber { field, amount })?;
        if count < class_least || class_most.is_some_and(|most| count > most) {
            return Err(Fault::Count { field, count, least: class_least, most: in_words() });
        }
        Ok(Some(count))
    };
    let least = within("requests.count", ask.requests.as_ref().and_then(Requests::count))?;
    let most = within("limits.count", ask.limits.get(COUNT).copied())?;
    Ok(Count::Between {
        least: least.unwrap_or(class_least),
        most: most.or(class_most).unwrap_or(u32::MAX),
    })
}

/// What is asked for besides the number of devices.
fn draws(requests: Option<&Requests>) -> Draws {
    match requests {
        None => Draws::default(),
        Some(Requests::Amounts(amounts)) => {
            let named = amounts.iter().filter(|(name, _)| *name != COUNT);
            Draws::Together(named.map(|(name, amount)| (name.clone(), *amount)).collect())
        }
        Some(Requests::Typed(list)) => {
            Draws::Each(list.iter().filter(|entry| entry.name != COUNT).cloned().collect())
        }
    }
}

/// Every name once, in the order in which they first come.
fn unique(lists: &[&[String]]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    lists.iter().copied().flatten().filter(|name| seen.insert(*name)).cloned().collect()
}
