//! Decides which devices qualify for an alternative, regardless of what is held.

use std::sync::Arc;

use gantry_api::devices::Attribute;

use super::catalog::Catalog;
use super::claim::TermProblem;
use crate::constraint::{Constraint, Constraints, Subject};
use crate::problem::{Refusal, Verdict};

/// The properties of devices that driver, type and constraints are checked against.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct DeviceProfile {
    pub(super) driver: String,
    pub(super) types: Vec<String>,
    pub(super) pool_attributes: Arc<[Attribute]>,
    pub(super) device_attributes: Vec<Attribute>,
    pub(super) pool: String,
    pub(super) name: Option<String>,
}

/// The conditions on driver, type and attributes of an alternative.
#[derive(Clone, Debug)]
pub(super) struct DeviceSelector {
    /// The driver that the term names.
    driver: Option<String>,
    /// The requested type.
    device_type: Option<String>,
    /// The classes of which one must be met; `None` if no class is requested.
    classes: Option<Vec<ClassCondition>>,
    /// The constraint of the term.
    constraint: Option<Arc<Constraint>>,
    /// A key that differs for selectors with different conditions.
    key: String,
}

#[derive(Clone, Debug)]
struct ClassCondition {
    driver: Option<String>,
    constraint: Option<Arc<Constraint>>,
}

/// The conditions of a term on driver, type and constraints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Conditions<'a> {
    pub(super) driver: Option<&'a str>,
    pub(super) class: Option<&'a str>,
    pub(super) device_type: Option<&'a str>,
    pub(super) constraints: Option<&'a str>,
}

impl DeviceSelector {
    pub(super) fn new(
        asked: &Conditions<'_>,
        catalog: &Catalog,
        constraints: &Constraints,
    ) -> Result<Self, TermProblem> {
        let class = match asked.class {
            Some(name) => Some(catalog.class(name).ok_or_else(|| TermProblem::no_class(name))?),
            None => None,
        };
        let device_type = class.map(|class| class.device_type.as_str()).or(asked.device_type);
        let classes: Option<Vec<_>> = match (class, asked.device_type) {
            (Some(class), _) => Some(vec![class]),
            (None, Some(device_type)) => {
                let mut of_type =
                    catalog.classes_of(device_type).map(|(_, class)| class).peekable();
                let any = of_type.peek().is_some();
                any.then(|| of_type.filter(|class| !class.admin_access).collect())
            }
            (None, None) => None,
        };
        let of_classes = classes.iter().flatten();
        let of_classes = of_classes.flat_map(|c| [c.driver.as_deref(), c.constraints.as_deref()]);
        let asked_classes = classes.as_ref().map(|_| "");
        let texts = [asked.driver, device_type, asked_classes, asked.constraints].into_iter();
        let key = key(texts.chain(of_classes));
        let condition = |class: &gantry_api::devices::ClassSpec| ClassCondition {
            driver: class.driver.clone(),
            constraint: constraints.get(class.constraints.as_deref()),
        };
        Ok(Self {
            driver: asked.driver.map(ToOwned::to_owned),
            device_type: device_type.map(ToOwned::to_owned),
            classes: classes.map(|classes| classes.into_iter().map(condition).collect()),
            constraint: constraints.get(asked.constraints),
            key,
        })
    }

    /// Returns the key: two selectors with the same key have the same verdict about every device.
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// Whether it can tell devices apart that differ only in their names or their pools' names.
    pub(super) fn depends_on_identity(&self) -> bool {
        let classes = self.classes.iter().flatten().filter_map(|class| class.constraint.as_ref());
        classes.chain(&self.constraint).any(|constraint| constraint.depends_on_identity())
    }

    /// Evaluates it for devices with this profile.
    pub(super) fn evaluate(&self, look: &DeviceProfile) -> Verdict {
        let is = |driver: &Option<String>| driver.as_ref().is_none_or(|name| *name == look.driver);
        if !is(&self.driver) {
            return Verdict::Refused(Refusal::Driver);
        }
        // A class that names another driver is reported before the type, like a term that does.
        if let Some(classes) = &self.classes
            && !classes.is_empty()
            && !classes.iter().any(|class| is(&class.driver))
        {
            return Verdict::Refused(Refusal::Driver);
        }
        if let Some(wanted) = &self.device_type
            && !look.types.contains(wanted)
        {
            return Verdict::Refused(Refusal::DeviceType);
        }
        let device = Subject {
            device_attributes: &look.device_attributes,
            pool_attributes: &look.pool_attributes,
            driver: &look.driver,
            pool: &look.pool,
            name: look.name.as_deref(),
            device_type: match look.types.as_slice() {
                [only] => Some(only),
                [] | [_, _, ..] => None,
            },
        };
        let judge = |constraint: &Option<Arc<Constraint>>| match constraint {
            Some(constraint) => constraint.evaluate(&device),
            None => Verdict::Met,
        };
        let by_class = match &self.classes {
            None => Verdict::Met,
            Some(classes) => {
                let judged = classes.iter().filter(|class| is(&class.driver));
                best_verdict(judged.map(|class| judge(&class.constraint)))
            }
        };
        match by_class {
            Verdict::Met => judge(&self.constraint),
            refused @ Verdict::Refused(_) => refused,
        }
    }
}

/// Joins texts with their lengths or a mark for `None`: two lists have one key only if they are
/// equal.
fn key<'a>(texts: impl Iterator<Item = Option<&'a str>>) -> String {
    let mut key = String::new();
    for text in texts {
        match text {
            Some(text) => {
                key.push_str(&text.len().to_string());
                key.push(':');
                key.push_str(text);
            }
            None => key.push('-'),
        }
    }
    key
}

/// Returns the best verdict: one that is met suffices; of the others, an error tells most.
fn best_verdict(verdicts: impl Iterator<Item = Verdict>) -> Verdict {
    let mut best = Verdict::Refused(Refusal::Constraints);
    for verdict in verdicts {
        match (&verdict, &best) {
            (Verdict::Met, _) => return verdict,
            (Verdict::Refused(Refusal::Error(_)), Verdict::Refused(Refusal::Constraints)) => {
                best = verdict;
            }
            (Verdict::Refused(_), _) => {}
        }
    }
    best
}
