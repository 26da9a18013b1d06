//! Logs: one line per event, in klog's text form or as JSON, to a writer that is given in.
//!
//! # Verbosity
//! Operators turn one number, `--v=0` to `--v=10`, as with every Kubernetes component. Events say
//! how deep they are with a field `v`, which the lines do not repeat among the fields:
//!
//! | event | shown from | meant for |
//! |---|---|---|
//! | `error!`, `warn!` | 0, whatever `v` says | faults and survived surprises |
//! | `info!`, `info!(v = n)` | 0, or `n` | changes of state |
//! | `debug!`, `debug!(v = n)` | 1, or `n` if higher | 1 decisions, 2 writes, 3 their detail |
//! | `trace!`, `trace!(v = n)` | 4, or `n` if higher | 4 reads, 6 payloads without secrets |
//! | `debug!` of other crates | 8 | looking for a bug in them |
//! | `trace!` of other crates | 10 | the same, for the desperate |
//!
//! The level is the coarse step because it is known before the event is built: below verbosity 4 a
//! `trace!` costs one comparison. Other crates come last because what they print is not ours to
//! keep free of secrets.

use std::io::Write;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::{fmt, panic, thread};

use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber, callsite};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Registry};

use crate::clock::Clock;

mod log_line;

use log_line::{Fields, LogLine};

/// How much is logged, and in which form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The form of a line.
    pub format: Format,
    /// From 0, lifecycle and faults, to [`MOST_VERBOSE`]; see the module's table.
    pub verbosity: u8,
    /// Directives such as `gantry_queue=trace,hyper=debug` that replace the verbosity altogether.
    pub filter: Option<String>,
}

/// The form of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// klog's: `I1115 19:53:02.123456   4242 plan.rs:42] "message" key="value"`, times in UTC.
    #[default]
    Text,
    /// One object a line: `ts`, `level`, `v`, `msg`, `caller`, then the fields.
    Json,
}

/// The highest verbosity there is.
pub const MOST_VERBOSE: u8 = 10;

/// Logs to `writer` from now on, in the whole process; the binary gives standard error.
///
/// Panics are logged as well, with their place: the standard library's own message would put
/// several lines of another form between ours. Which task panicked is logged by its owner.
///
/// # Errors
/// Logging was installed before, or the settings make no sense.
pub fn install(
    settings: &Settings,
    clock: Clock,
    writer: impl Write + Send + 'static,
) -> Result<LogHandle, TelemetryError> {
    let (subscriber, handle) = subscriber(settings, clock, writer)?;
    tracing::subscriber::set_global_default(subscriber)
        .map_err(|_| TelemetryError::AlreadyInstalled)?;
    panic::set_hook(Box::new(|panic| {
        let location = panic.location().map(ToString::to_string).unwrap_or_default();
        let words = panic.payload_as_str().unwrap_or("without words");
        let thread = thread::current().name().unwrap_or("unnamed").to_owned();
        tracing::error!(location, thread, panic = words, "panicked");
    }));
    Ok(handle)
}

/// What [`install`] installs, for a scope: a test, or a process inside another.
///
/// # Errors
/// The settings make no sense.
pub fn subscriber(
    settings: &Settings,
    clock: Clock,
    writer: impl Write + Send + 'static,
) -> Result<(impl Subscriber + Send + Sync + 'static, LogHandle), TelemetryError> {
    let Settings { format, verbosity, filter } = settings;
    let gate = LogFilter {
        verbosity: AtomicU8::new(checked(*verbosity)?),
        filter: RwLock::new(filter.as_deref().map(parsed).transpose()?),
        lost_lines: AtomicU64::new(0),
    };
    let handle = LogHandle(Arc::new(gate));
    let gate = Arc::clone(&handle.0);
    let lines =
        LogLayer { format: *format, clock, filter: gate, writer: Mutex::new(Box::new(writer)) };
    Ok((Registry::default().with(lines), handle))
}

fn checked(verbosity: u8) -> Result<u8, TelemetryError> {
    let fits = verbosity <= MOST_VERBOSE;
    fits.then_some(verbosity).ok_or(TelemetryError::Verbosity { verbosity })
}

fn parsed(filter: &str) -> Result<Targets, TelemetryError> {
    let failed = |source| TelemetryError::Filter { filter: filter.to_owned(), source };
    filter.parse().map_err(failed)
}

/// Changes what is logged while the process runs.
#[derive(Clone, Debug)]
pub struct LogHandle(Arc<LogFilter>);

impl LogHandle {
    /// Sets the verbosity; without effect while a filter replaces it.
    ///
    /// # Errors
    /// It is above [`MOST_VERBOSE`]; nothing has changed.
    pub fn set_verbosity(&self, verbosity: u8) -> Result<(), TelemetryError> {
        self.0.verbosity.store(checked(verbosity)?, Ordering::Relaxed);
        callsite::rebuild_interest_cache();
        Ok(())
    }

    /// Replaces the verbosity by directives, or removes them.
    ///
    /// # Errors
    /// They cannot be understood; nothing has changed.
    pub fn set_filter(&self, filter: Option<&str>) -> Result<(), TelemetryError> {
        let filter = filter.map(parsed).transpose()?;
        *self.0.filter.write().unwrap_or_else(PoisonError::into_inner) = filter;
        callsite::rebuild_interest_cache();
        Ok(())
    }

    /// How many lines the writer refused. They cannot be logged, so they are counted.
    #[must_use]
    pub fn lost_lines(&self) -> u64 {
        self.0.lost_lines.load(Ordering::Relaxed)
    }
}

/// Why logging is not as asked for.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// A process has one log.
    #[error("cannot install logging twice")]
    AlreadyInstalled,
    /// Out of range.
    #[error("cannot use verbosity {verbosity}: choose 0 to {MOST_VERBOSE}")]
    Verbosity {
        /// What was asked for.
        verbosity: u8,
    },
    /// Not a list of directives.
    #[error("cannot use log filter {filter:?}: write target=level, separated by commas")]
    Filter {
        /// What was asked for.
        filter: String,
        /// What is wrong with it.
        source: tracing_subscriber::filter::ParseError,
    },
}

/// Decides what is logged.
#[derive(Debug)]
struct LogFilter {
    verbosity: AtomicU8,
    filter: RwLock<Option<Targets>>,
    lost_lines: AtomicU64,
}

impl LogFilter {
    /// Whether any event from this place in the code may be logged.
    fn may_log(&self, place: &Metadata<'_>) -> bool {
        self.is_logged(place, event_verbosity(place, None))
    }

    fn is_logged(&self, place: &Metadata<'_>, depth: u8) -> bool {
        let filter = self.filter.read().unwrap_or_else(PoisonError::into_inner);
        match &*filter {
            Some(filter) => filter.would_enable(place.target(), place.level()),
            None => depth <= self.verbosity.load(Ordering::Relaxed),
        }
    }
}

/// The verbosity from which an event is shown, given what its own `v` says. The table is in the
/// module's documentation.
fn event_verbosity(place: &Metadata<'_>, v: Option<u8>) -> u8 {
    let ours = place.target().starts_with("gantry");
    let least = match (*place.level(), ours) {
        (Level::ERROR | Level::WARN, _) => return 0,
        (Level::INFO, _) => 0,
        (Level::DEBUG, true) => 1,
        (Level::TRACE, true) => 4,
        (Level::DEBUG, false) => 8,
        (Level::TRACE, false) => MOST_VERBOSE,
    };
    v.unwrap_or(least).clamp(least, MOST_VERBOSE)
}

struct LogLayer {
    format: Format,
    clock: Clock,
    filter: Arc<LogFilter>,
    writer: Mutex<Box<dyn Write + Send>>,
}

impl<S: Subscriber + for<'span> LookupSpan<'span>> Layer<S> for LogLayer {
    fn register_callsite(&self, place: &'static Metadata<'static>) -> Interest {
        if self.filter.may_log(place) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, place: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.filter.may_log(place)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        let filter = self.filter.filter.read().unwrap_or_else(PoisonError::into_inner);
        match (&*filter, self.filter.verbosity.load(Ordering::Relaxed)) {
            (Some(_), _) => None,
            (None, 0) => Some(LevelFilter::INFO),
            (None, 1..=3) => Some(LevelFilter::DEBUG),
            (None, 4..) => Some(LevelFilter::TRACE),
        }
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        span.extensions_mut().insert(fields);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(fields) = span.extensions_mut().get_mut::<Fields>() {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut own = Fields::default();
        event.record(&mut own);
        let (message, v) = (own.take("message"), own.take("v"));
        let v = v.and_then(|v| v.as_u64()).map(|v| u8::try_from(v).unwrap_or(u8::MAX));
        let depth = event_verbosity(event.metadata(), v);
        if !self.filter.is_logged(event.metadata(), depth) {
            return;
        }
        let mut fields = Fields::default();
        for span in context.event_scope(event).into_iter().flat_map(|scope| scope.from_root()) {
            if let Some(of_span) = span.extensions().get::<Fields>() {
                fields.extend(of_span);
            }
        }
        fields.extend(&own);
        let message = message.map(log_line::plain).unwrap_or_default();
        let line = LogLine {
            at: self.clock.now(),
            metadata: event.metadata(),
            verbosity: depth,
            message,
            fields,
        };
        let line = match self.format {
            Format::Text => line.text(),
            Format::Json => line.json(),
        };
        // In one call and under a lock, so that lines of two threads never mix.
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if writer.write_all(line.as_bytes()).and_then(|()| writer.flush()).is_err() {
            self.filter.lost_lines.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for LogLayer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Lines").field("format", &self.format).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
