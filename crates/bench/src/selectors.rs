//! Times CEL expressions that select devices: Kubernetes' evaluation of them and Gantry's.
//!
//! Both evaluate the same expressions on the same devices: those of Kubernetes' own benchmark that
//! have a result. The measured time is for one device: Kubernetes builds maps of all published
//! attributes, Gantry passes the expression only what it reads. Results that Gantry's constraints
//! cache are not used.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use serde::Deserialize;

use gantry_cel::{
    Binding, Budget, Environment, EvalError, HostMap, Map, Quantity, Semver, Text, Type, Value,
};
use gantry_process::clock::Clock;

use crate::AllocatorResult;

/// Shared with the program that times Kubernetes.
const SELECTORS: &str = include_str!("../../../testbed/allocator/selectors.json");

/// The cost limit of one evaluation, as in Kubernetes.
const COST_LIMIT: u64 = 1_000_000;

/// How often an expression is evaluated between two readings of the clock, which take as long as
/// the shortest evaluation.
const BATCH: u32 = 64;

/// The measured operation on an expression.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    Compile,
    Evaluate,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Selector {
    name: String,
    expression: String,
    matches: bool,
    #[serde(default)]
    driver: String,
    #[serde(default)]
    allow_multiple_allocations: bool,
    #[serde(default)]
    attributes: BTreeMap<String, Attribute>,
    #[serde(default)]
    capacity: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Attribute {
    String(String),
    Int(i64),
    Bool(bool),
    Version(String),
}

fn selectors() -> anyhow::Result<Vec<Selector>> {
    serde_json::from_str(SELECTORS).context("cannot parse selectors.json")
}

/// The names of all expressions.
pub(crate) fn names() -> anyhow::Result<Vec<String>> {
    Ok(selectors()?.into_iter().map(|it| it.name).collect())
}

/// Times one expression.
pub(crate) fn measure(
    work: Work,
    name: &str,
    time: Duration,
    clock: &Clock,
) -> anyhow::Result<AllocatorResult> {
    let mut all = selectors()?.into_iter();
    let selector = all
        .find(|it| it.name == name)
        .ok_or_else(|| anyhow!("no such expression in selectors.json"))?;
    let environment = environment();
    let source = selector.expression.as_str();
    match work {
        Work::Compile => repeat("compiled", time, clock, || {
            black_box(environment.compile(black_box(source), Some(&Type::Bool))?);
            Ok(())
        }),
        Work::Evaluate => {
            let program = environment.compile(source, Some(&Type::Bool))?;
            let device = Device::new(&selector)?;
            let wanted = selector.matches;
            let answer = if wanted { "matches" } else { "does not match" };
            repeat(answer, time, clock, || {
                let device = Value::Map(Map::Host(black_box(&device)));
                let mut budget = Budget::new(COST_LIMIT, COST_LIMIT);
                match program.evaluate_value(&[(DEVICE, Binding::Value(device))], &mut budget) {
                    Ok(Value::Bool(found)) if found == wanted => Ok(()),
                    other => bail!("{name}: {other:?}"),
                }
            })
        }
    }
}

fn repeat(
    answer: &str,
    time: Duration,
    clock: &Clock,
    mut turn: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<AllocatorResult> {
    turn()?;
    let start = clock.moment();
    let mut turns = 0_u32;
    let took = loop {
        for _ in 0..BATCH {
            turn()?;
        }
        turns += BATCH;
        let took = clock.moment() - start;
        if took >= time {
            break took;
        }
    };
    let seconds_per_turn = took.as_secs_f64() / f64::from(turns);
    Ok(AllocatorResult { answer: answer.to_owned(), why: None, seconds_per_turn })
}

/// The name of the only variable.
const DEVICE: &str = "device";

/// The declarations that Kubernetes has.
fn environment() -> Environment {
    let field = |name: &str, ty: Type| (name.to_owned(), ty);
    let amounts = Type::map(Type::opaque("kubernetes.Quantity"));
    let device = Type::object(
        "kubernetes.DRADevice",
        [
            field("driver", Type::string()),
            field("allowMultipleAllocations", Type::Bool),
            field("attributes", Type::map(Type::map(Type::Dyn))),
            field("capacity", Type::map(amounts)),
        ],
    );
    Environment::new().with_variable(DEVICE, device)
}

/// A device as an inventory keeps it: attributes are grouped by domain, and quantities and versions
/// are parsed.
#[derive(Debug)]
struct Device {
    driver: String,
    allow_multiple_allocations: bool,
    attributes: Domains,
    capacity: Domains,
}

#[derive(Debug, Default)]
struct Domains(BTreeMap<String, Domain>);

#[derive(Debug, Default)]
struct Domain(BTreeMap<String, Value<'static>>);

/// The entries of a domain that the device does not name.
static EMPTY_DOMAIN: Domain = Domain(BTreeMap::new());

impl Device {
    fn new(selector: &Selector) -> anyhow::Result<Self> {
        let (mut attributes, mut capacity) = (Domains::default(), Domains::default());
        for (name, attribute) in &selector.attributes {
            let value = match attribute {
                Attribute::String(text) => Value::text(text.as_str()),
                Attribute::Int(number) => Value::Int(*number),
                Attribute::Bool(truth) => Value::Bool(*truth),
                Attribute::Version(text) => {
                    Value::Semver(Semver::parse(text).map_err(|text| anyhow!(text))?.into())
                }
            };
            attributes.insert(name, &selector.driver, value);
        }
        for (name, amount) in &selector.capacity {
            let amount = Quantity::parse(amount).map_err(|text| anyhow!(text))?;
            capacity.insert(name, &selector.driver, Value::Quantity(amount));
        }
        let allow_multiple_allocations = selector.allow_multiple_allocations;
        Ok(Self {
            driver: selector.driver.clone(),
            allow_multiple_allocations,
            attributes,
            capacity,
        })
    }
}

impl Domains {
    /// A name without a domain belongs to the driver's domain.
    fn insert(&mut self, name: &str, driver: &str, value: Value<'static>) {
        let (domain, name) = name.split_once('/').unwrap_or((driver, name));
        self.0.entry(domain.to_owned()).or_default().0.insert(name.to_owned(), value);
    }
}

impl HostMap for Device {
    fn get(&self, name: &str) -> Result<Option<Value<'_>>, EvalError> {
        Ok(match name {
            "driver" => Some(Value::String(Text::Borrowed(&self.driver))),
            "allowMultipleAllocations" => Some(Value::Bool(self.allow_multiple_allocations)),
            "attributes" => Some(Value::Map(Map::Host(&self.attributes))),
            "capacity" => Some(Value::Map(Map::Host(&self.capacity))),
            _ => None,
        })
    }

    fn has(&self, name: &str) -> bool {
        self.names().contains(&name)
    }

    fn names(&self) -> Vec<&str> {
        vec!["allowMultipleAllocations", "attributes", "capacity", "driver"]
    }
}

impl HostMap for Domains {
    /// A missing domain has no entries, which is not an error.
    fn get(&self, name: &str) -> Result<Option<Value<'_>>, EvalError> {
        Ok(Some(Value::Map(Map::Host(self.0.get(name).unwrap_or(&EMPTY_DOMAIN)))))
    }

    fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    fn names(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).collect()
    }
}

impl HostMap for Domain {
    fn get(&self, name: &str) -> Result<Option<Value<'_>>, EvalError> {
        Ok(self.0.get(name).map(|value| match value {
            Value::String(text) => Value::String(Text::Borrowed(text)),
            other => other.clone(),
        }))
    }

    fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    fn names(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).collect()
    }
}
