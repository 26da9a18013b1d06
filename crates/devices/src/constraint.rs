//! Constraints: expressions that decide which devices qualify.
//!
//! An expression sees one variable, `device`: the attributes of the pool, overlaid by those of the
//! device, over a few reserved entries. Most devices of a cluster look the same to any one
//! expression, because it names a handful of attributes; so it is evaluated once for every
//! combination of values that it can tell apart, and not once for every device.

mod subject;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use gantry_cel::{Binding, Budget, Comparisons, Environment, Program, Type, Value};

pub use subject::Subject;

use crate::problem::{Refusal, Verdict};

/// What one evaluation may cost, in the units of a Kubernetes server.
pub const COST_LIMIT: u64 = 1_000_000;

/// The name of the only variable.
const DEVICE: &str = "device";

/// Answers that one constraint remembers. A cluster has far fewer kinds of devices; past it, a
/// constraint that names what is different everywhere forgets and evaluates again.
const REMEMBERED: usize = 8_192;

/// Sources that are kept compiled. Past it all are forgotten: those in use come back at once.
const COMPILED: usize = 4_096;

static ENVIRONMENT: LazyLock<Environment> = LazyLock::new(|| {
    Environment::new()
        .with_variable(DEVICE, Type::map(Type::Dyn))
        .with_comparisons(Comparisons::Mixed)
});

/// An expression that devices are held against, compiled or known not to compile.
pub struct Constraint {
    compiled: Result<Compiled, String>,
    remembered: Mutex<HashMap<Box<[u8]>, Verdict>>,
}

struct Compiled {
    program: Program,
    /// The entries of `device` that it names; nothing if it may look at any.
    entries: Option<Vec<String>>,
}

impl Constraint {
    /// Compiles an expression. One that does not compile is a constraint too, which no device
    /// meets.
    ///
    /// ```
    /// use gantry_api::devices::{Attribute, AttributeValue};
    /// use gantry_devices::constraint::{Constraint, Subject};
    /// use gantry_devices::problem::{Refusal, Verdict};
    ///
    /// let memory = AttributeValue::Quantity("10Gi".parse()?);
    /// let attributes = [Attribute { name: "memory".to_owned(), value: memory }];
    /// let device = Subject { device_attributes: &attributes, ..Subject::default() };
    /// assert_eq!(Constraint::new("device.memory >= '10Gi'").judge(&device), Verdict::Met);
    /// let refused = Verdict::Refused(Refusal::Constraints);
    /// assert_eq!(Constraint::new("device.memory >= '20Gi'").judge(&device), refused);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn new(source: &str) -> Self {
        let compiled = ENVIRONMENT.compile(source, None).map(|program| {
            let named = program.entries_of(DEVICE);
            let entries = named.map(|names| names.into_iter().map(ToOwned::to_owned).collect());
            Compiled { program, entries }
        });
        let compiled = compiled.map_err(|error| error.to_string());
        Self { compiled, remembered: Mutex::default() }
    }

    /// Why the expression does not compile, if it does not.
    #[must_use]
    pub fn fault(&self) -> Option<&str> {
        self.compiled.as_ref().err().map(String::as_str)
    }

    /// Whether the expression can tell two devices apart that differ in nothing but their names or
    /// the names of their pools.
    #[must_use]
    pub fn looks_at_identity(&self) -> bool {
        match &self.compiled {
            Ok(Compiled { entries: Some(names), .. }) => {
                names.iter().any(|name| subject::IDENTITY.contains(&name.as_str()))
            }
            Ok(Compiled { entries: None, .. }) => true,
            Err(_) => false,
        }
    }

    /// Whether a device meets the constraint. One that cannot be evaluated for a device, or does
    /// not compile, refuses it for that reason; other devices may still qualify.
    #[must_use]
    pub fn judge(&self, device: &Subject<'_>) -> Verdict {
        let compiled = match &self.compiled {
            Ok(compiled) => compiled,
            Err(text) => return failed(text.clone()),
        };
        let entries = match &compiled.entries {
            Some(names) => device.named(names),
            None => device.all(),
        };
        let signature = entries.signature();
        if let Some(known) = self.remembered().get(signature.as_slice()) {
            return known.clone();
        }
        // Evaluated outside the lock: an expensive constraint must not hold up those who know.
        let verdict = compiled.evaluate(&entries);
        let mut remembered = self.remembered();
        if remembered.len() >= REMEMBERED {
            remembered.clear();
        }
        remembered.insert(signature.into_boxed_slice(), verdict.clone());
        verdict
    }

    fn remembered(&self) -> MutexGuard<'_, HashMap<Box<[u8]>, Verdict>> {
        // Nothing is left half-done in the map when a thread dies.
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fault = self.fault();
        f.debug_struct("Constraint").field("fault", &fault).finish_non_exhaustive()
    }
}

impl Compiled {
    fn evaluate(&self, entries: &subject::Entries<'_>) -> Verdict {
        let device = match entries.to_map() {
            Ok(device) => Binding::Value(Value::Map(device)),
            Err(text) => return failed(text),
        };
        let mut budget = Budget::new(COST_LIMIT, COST_LIMIT);
        match self.program.evaluate_value(&[(DEVICE, device)], &mut budget) {
            Ok(Value::Bool(true)) => Verdict::Met,
            Ok(Value::Bool(false)) => Verdict::Refused(Refusal::Constraints),
            Ok(_) => failed("expression returned non-bool value".to_owned()),
            Err(error) => failed(error.to_string()),
        }
    }
}

fn failed(text: String) -> Verdict {
    Verdict::Refused(Refusal::Error(text))
}

/// Every constraint that was asked for, compiled once per source text.
#[derive(Debug, Default)]
pub struct Constraints {
    compiled: Mutex<HashMap<Box<str>, Arc<Constraint>>>,
}

impl Constraints {
    /// The constraint that `source` spells; nothing if there is none, which every device meets.
    #[must_use]
    pub fn get(&self, source: Option<&str>) -> Option<Arc<Constraint>> {
        let source = source.filter(|text| !text.is_empty())?;
        if let Some(known) = self.compiled().get(source) {
            return Some(Arc::clone(known));
        }
        let constraint = Arc::new(Constraint::new(source));
        let mut compiled = self.compiled();
        if compiled.len() >= COMPILED {
            compiled.clear();
        }
        Some(Arc::clone(compiled.entry(source.into()).or_insert(constraint)))
    }

    fn compiled(&self) -> MutexGuard<'_, HashMap<Box<str>, Arc<Constraint>>> {
        self.compiled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a device meets all of the constraints: the first that it does not meet decides.
#[must_use]
pub fn judge_all(constraints: &[Option<Arc<Constraint>>], device: &Subject<'_>) -> Verdict {
    let verdicts = constraints.iter().flatten().map(|constraint| constraint.judge(device));
    verdicts.into_iter().find(|verdict| *verdict != Verdict::Met).unwrap_or(Verdict::Met)
}
