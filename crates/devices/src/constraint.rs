//! Constraints: CEL expressions that decide which devices qualify.
//!
//! An expression reads one variable, `device`: the attributes of the pool, overlaid by those of the
//! device, over a few reserved entries. Most devices of a cluster are equal for any one expression,
//! because it names a handful of attributes; so it is evaluated once for every combination of
//! values that it can tell apart, and not once for every device.

mod subject;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use gantry_cel::{Binding, Budget, Comparisons, Environment, Program, Type, Value};

pub use subject::Subject;

use crate::problem::{Refusal, Verdict};

/// The cost limit of one evaluation, in the units of a Kubernetes API server.
pub const COST_LIMIT: u64 = 1_000_000;

/// The name of the only variable.
const DEVICE: &str = "device";

/// How many verdicts one constraint caches. A cluster has far fewer kinds of devices; beyond that,
/// a constraint that names what differs everywhere clears its cache and evaluates again.
const MAX_CACHED_VERDICTS: usize = 8_192;

/// How many compiled sources are cached. Beyond that the cache is cleared: those in use are
/// compiled again at once.
const MAX_CACHED_CONSTRAINTS: usize = 4_096;

static ENVIRONMENT: LazyLock<Environment> = LazyLock::new(|| {
    Environment::new()
        .with_variable(DEVICE, Type::map(Type::Dyn))
        .with_comparisons(Comparisons::Mixed)
});

/// An expression that devices are checked against, compiled or known not to compile.
pub struct Constraint {
    compiled: Result<Compiled, String>,
    verdict_cache: Mutex<HashMap<Box<[u8]>, Verdict>>,
}

struct Compiled {
    program: Program,
    /// The entries of `device` that it names; `None` if it may read any.
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
    /// assert_eq!(Constraint::new("device.memory >= '10Gi'").evaluate(&device), Verdict::Met);
    /// let refused = Verdict::Refused(Refusal::Constraints);
    /// assert_eq!(Constraint::new("device.memory >= '20Gi'").evaluate(&device), refused);
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
        Self { compiled, verdict_cache: Mutex::default() }
    }

    /// Returns the compile error, if there is one.
    #[must_use]
    pub fn compile_error(&self) -> Option<&str> {
        self.compiled.as_ref().err().map(String::as_str)
    }

    /// Whether the expression can tell two devices apart that differ in nothing but their names or
    /// the names of their pools.
    #[must_use]
    pub fn depends_on_identity(&self) -> bool {
        match &self.compiled {
            Ok(Compiled { entries: Some(names), .. }) => {
                names.iter().any(|name| subject::IDENTITY.contains(&name.as_str()))
            }
            Ok(Compiled { entries: None, .. }) => true,
            Err(_) => false,
        }
    }

    /// Checks whether a device meets the constraint. One that cannot be evaluated for a device, or
    /// does not compile, refuses it for that reason; other devices may still qualify.
    #[must_use]
    pub fn evaluate(&self, device: &Subject<'_>) -> Verdict {
        let compiled = match &self.compiled {
            Ok(compiled) => compiled,
            Err(text) => return evaluation_error(text.clone()),
        };
        let entries = match &compiled.entries {
            Some(names) => device.named(names),
            None => device.all(),
        };
        let signature = entries.signature();
        if let Some(known) = self.verdict_cache().get(signature.as_slice()) {
            return known.clone();
        }
        // Evaluated outside the lock: an expensive constraint must not block callers whose verdict
        // is cached.
        let verdict = compiled.evaluate(&entries);
        let mut remembered = self.verdict_cache();
        if remembered.len() >= MAX_CACHED_VERDICTS {
            remembered.clear();
        }
        remembered.insert(signature.into_boxed_slice(), verdict.clone());
        verdict
    }

    fn verdict_cache(&self) -> MutexGuard<'_, HashMap<Box<[u8]>, Verdict>> {
        // A panicking thread leaves no partial update in the map.
        self.verdict_cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fault = self.compile_error();
        f.debug_struct("Constraint").field("fault", &fault).finish_non_exhaustive()
    }
}

impl Compiled {
    fn evaluate(&self, entries: &subject::SubjectEntries<'_>) -> Verdict {
        let device = match entries.to_map() {
            Ok(device) => Binding::Value(Value::Map(device)),
            Err(text) => return evaluation_error(text),
        };
        let mut budget = Budget::new(COST_LIMIT, COST_LIMIT);
        match self.program.evaluate_value(&[(DEVICE, device)], &mut budget) {
            Ok(Value::Bool(true)) => Verdict::Met,
            Ok(Value::Bool(false)) => Verdict::Refused(Refusal::Constraints),
            Ok(_) => evaluation_error("expression returned non-bool value".to_owned()),
            Err(error) => evaluation_error(error.to_string()),
        }
    }
}

fn evaluation_error(text: String) -> Verdict {
    Verdict::Refused(Refusal::Error(text))
}

/// Caches compiled constraints by source text.
#[derive(Debug, Default)]
pub struct Constraints {
    compiled: Mutex<HashMap<Box<str>, Arc<Constraint>>>,
}

impl Constraints {
    /// Returns the compiled constraint of `source`; `None` for an empty one, which every device
    /// meets.
    #[must_use]
    pub fn get(&self, source: Option<&str>) -> Option<Arc<Constraint>> {
        let source = source.filter(|text| !text.is_empty())?;
        if let Some(known) = self.compiled().get(source) {
            return Some(Arc::clone(known));
        }
        let constraint = Arc::new(Constraint::new(source));
        let mut compiled = self.compiled();
        if compiled.len() >= MAX_CACHED_CONSTRAINTS {
            compiled.clear();
        }
        Some(Arc::clone(compiled.entry(source.into()).or_insert(constraint)))
    }

    fn compiled(&self) -> MutexGuard<'_, HashMap<Box<str>, Arc<Constraint>>> {
        self.compiled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checks whether a device meets all of the constraints: the first one that it does not meet
/// decides.
#[must_use]
pub fn evaluate_all(constraints: &[Option<Arc<Constraint>>], device: &Subject<'_>) -> Verdict {
    let verdicts = constraints.iter().flatten().map(|constraint| constraint.evaluate(device));
    verdicts.into_iter().find(|verdict| *verdict != Verdict::Met).unwrap_or(Verdict::Met)
}
