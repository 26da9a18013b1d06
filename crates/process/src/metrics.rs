//! The metrics of the process, under one prefix and with each name once.
//!
//! Labels are types that derive `EncodeLabelSet`, so a label cannot be misspelt or forgotten at a
//! call site. Metrics are registered when the parts are wired together; a clash is an error there
//! and not a panic in production.

use std::collections::BTreeSet;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry};

mod usage;

/// The content type of [`Metrics::encode`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All metrics of the process. Clones share them.
#[derive(Clone)]
pub struct Metrics {
    registries: Arc<Mutex<Registries>>,
    is_prefixed: bool,
}

struct Registries {
    names: BTreeSet<(bool, String)>,
    own: Registry,
    /// Separate and without our prefix: every client library calls these `process_…`, and so do the
    /// dashboards that read them. Also those of other projects, whose dashboards name them.
    unprefixed: Registry,
}

/// The running build; exposed as `gantry_build_info`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BuildInfo {
    /// The released version.
    pub version: &'static str,
    /// The commit it was built from.
    pub revision: &'static str,
}

impl Metrics {
    /// Metrics with the build info and the process's resource usage, and nothing else yet.
    #[must_use]
    pub fn new(build: &BuildInfo) -> Self {
        let mut own = Registry::with_prefix("gantry");
        let labels = [("version", build.version), ("revision", build.revision)];
        own.register("build", "The build that is running", Info::new(labels));
        let mut process = Registry::default();
        process.register_collector(Box::new(usage::ProcessCollector));
        let names = BTreeSet::from([(true, "build".to_owned())]);
        let registries = Registries { names, own, unprefixed: process };
        Self { registries: Arc::new(Mutex::new(registries)), is_prefixed: true }
    }

    /// The same metrics, for registrations whose names have no prefix: those that another project
    /// has fixed.
    #[must_use]
    pub fn without_prefix(&self) -> Self {
        Self { registries: Arc::clone(&self.registries), is_prefixed: false }
    }

    /// Registers any metric as `gantry_<name>`, or as the name alone, and returns it.
    ///
    /// # Errors
    /// The name is already registered, or is not valid.
    pub fn register<Kind: Metric + Clone>(
        &self,
        name: &str,
        help: &str,
        metric: Kind,
    ) -> Result<Kind, RegisterError> {
        let is_prefixed = self.is_prefixed;
        check(name, is_prefixed)?;
        let mut registries = self.lock();
        if !registries.names.insert((is_prefixed, name.to_owned())) {
            return Err(RegisterError::DuplicateName { name: name.to_owned() });
        }
        let registry = match is_prefixed {
            true => &mut registries.own,
            false => &mut registries.unprefixed,
        };
        registry.register(name, help, metric.clone());
        Ok(metric)
    }

    /// Counters by label, exposed as `gantry_<name>_total`.
    ///
    /// # Errors
    /// As [`Metrics::register`].
    pub fn counters<Labels: LabelSet>(
        &self,
        name: &str,
        help: &str,
    ) -> Result<Family<Labels, Counter>, RegisterError> {
        self.register(name, help, Family::default())
    }

    /// Gauges by label.
    ///
    /// # Errors
    /// As [`Metrics::register`].
    pub fn gauges<Labels: LabelSet>(
        &self,
        name: &str,
        help: &str,
    ) -> Result<Family<Labels, Gauge>, RegisterError> {
        self.register(name, help, Family::default())
    }

    /// Histograms by label, all with the same buckets.
    ///
    /// # Errors
    /// As [`Metrics::register`].
    pub fn histograms<Labels: LabelSet>(
        &self,
        name: &str,
        help: &str,
        buckets: Buckets,
    ) -> Result<Family<Labels, Histogram, Buckets>, RegisterError> {
        self.register(name, help, Family::new_with_constructor(buckets))
    }

    /// The metrics as OpenMetrics text; see [`CONTENT_TYPE`].
    ///
    /// # Errors
    /// A label could not be encoded.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut page = String::new();
        let registries = self.lock();
        text::encode_registry(&mut page, &registries.own)?;
        text::encode_registry(&mut page, &registries.unprefixed)?;
        text::encode_eof(&mut page)?;
        Ok(page)
    }

    /// A panic while encoding changes nothing, so the data of a poisoned lock is still intact.
    fn lock(&self) -> MutexGuard<'_, Registries> {
        self.registries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Metrics").field(&self.lock().names).finish()
    }
}

/// A set of labels; every type that derives the usual traits is one.
pub trait LabelSet:
    EncodeLabelSet + Clone + Hash + Eq + fmt::Debug + Send + Sync + 'static
{
}

impl<Labels> LabelSet for Labels where
    Labels: EncodeLabelSet + Clone + Hash + Eq + fmt::Debug + Send + Sync + 'static
{
}

/// The upper bounds of a histogram's buckets, ascending.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Buckets(pub &'static [f64]);

impl Buckets {
    /// For durations from a cache hit to a request at its timeout.
    pub const SECONDS: Self = Self(&[
        0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0,
    ]);
}

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

/// Why a metric was not registered. Both are mistakes in the wiring.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// The name is already registered.
    #[error("cannot register metric {name}: the name is taken")]
    DuplicateName {
        /// The name, without the prefix.
        name: String,
    },
    /// The name is not valid.
    #[error("cannot register metric {name}: {why}")]
    InvalidName {
        /// The name, without the prefix.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
}

/// Endings that the text format adds by itself: a name that brings its own would be exposed with
/// two of them, or clash with the samples of another metric.
const RESERVED_SUFFIXES: [&str; 6] = ["_total", "_created", "_bucket", "_count", "_sum", "_info"];

fn check(name: &str, is_prefixed: bool) -> Result<(), RegisterError> {
    let unfit = |why| Err(RegisterError::InvalidName { name: name.to_owned(), why });
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(fits) {
        return unfit("use lower-case letters, digits and underscores, and begin with a letter");
    }
    // Other projects have gauges that end in `_count`.
    let mut reserved = RESERVED_SUFFIXES.iter().filter(|it| is_prefixed || **it != "_count");
    if reserved.any(|ending| name.ends_with(ending)) {
        return unfit("leave out the ending, the format adds it");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
    struct Verb {
        verb: &'static str,
    }

    fn metrics() -> Metrics {
        Metrics::new(&BuildInfo { version: "1.2.3", revision: "abc" })
    }

    #[test]
    fn a_name_is_registered_once() {
        let metrics = metrics();
        let table = [
            ("requests", "ok"),
            ("requests", "cannot register metric requests: the name is taken"),
            ("build", "cannot register metric build: the name is taken"),
            (
                "writes_total",
                "cannot register metric writes_total: leave out the ending, the format adds it",
            ),
            (
                "Writes",
                "cannot register metric Writes: use lower-case letters, digits and underscores, \
                 and begin with a letter",
            ),
        ];
        for (name, expected) in table {
            let registered = metrics.counters::<Verb>(name, "Help");
            let outcome = registered.map_or_else(|error| error.to_string(), |_| "ok".to_owned());
            assert_eq!(outcome, expected);
        }
    }

    #[test]
    fn everything_is_on_the_page() {
        let metrics = metrics();
        let get = Verb { verb: "get" };
        metrics.counters("requests", "Answered").unwrap().get_or_create(&get).inc();
        metrics.gauges("open", "Open now").unwrap().get_or_create(&get).set(-3);
        let seconds = metrics.histograms("took_seconds", "Time", Buckets::SECONDS).unwrap();
        seconds.get_or_create(&get).observe(0.03);
        metrics.register("one", "Alone", Gauge::<i64>::default()).unwrap().set(4);
        let page = metrics.encode().unwrap();
        for line in [
            r#"gantry_build_info{version="1.2.3",revision="abc"} 1"#,
            r#"gantry_requests_total{verb="get"} 1"#,
            r#"gantry_open{verb="get"} -3"#,
            r#"gantry_took_seconds_bucket{le="0.02",verb="get"} 0"#,
            r#"gantry_took_seconds_bucket{le="0.05",verb="get"} 1"#,
            "gantry_one 4",
            "# HELP gantry_requests Answered.",
        ] {
            assert!(page.lines().any(|have| have == line), "no {line} in\n{page}");
        }
        let other = metrics.without_prefix();
        let count: Gauge =
            other.register("other_count", "Of another project", Gauge::default()).unwrap();
        count.set(2);
        assert!(other.gauges::<Verb>("other_count", "Twice").is_err());
        assert!(other.gauges::<Verb>("other_total", "No gauge").is_err());
        let page = metrics.encode().unwrap();
        assert!(page.lines().any(|it| it == "other_count 2"), "{page}");
        assert!(page.ends_with("# EOF\n") && page.matches("# EOF").count() == 1);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_process_measures_itself() {
        let page = metrics().encode().unwrap();
        let value = |name: &str| -> f64 {
            let line = page.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().parse().unwrap()
        };
        assert!(value("process_resident_memory_bytes ") > 100_000.0);
        assert!(value("process_open_fds ") >= 3.0);
        assert!(value("process_cpu_seconds_total ") >= 0.0);
        assert!(value("process_start_time_seconds ") > 1.6e9);
    }
}
