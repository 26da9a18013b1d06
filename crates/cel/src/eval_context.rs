//! The context of a running evaluation.

use std::collections::HashMap;

use crate::cost::CostTracker;
use crate::environment::Comparisons;
use crate::error::EvalError;
use crate::library::regex::{self, Pattern};

/// What functions of the library may use besides their arguments.
#[derive(Debug)]
pub(crate) struct EvalContext<'p> {
    pub(crate) meter: CostTracker,
    /// Which values can be compared with which.
    pub(crate) comparisons: Comparisons,
    /// The patterns that the program spells out, compiled with it.
    patterns: &'p HashMap<String, Pattern>,
    /// Patterns that were computed, kept for the length of one evaluation.
    computed: HashMap<String, Pattern>,
    /// How many of those were compiled.
    compiled: usize,
}

/// Computed patterns that one evaluation keeps: enough for a loop over a list of patterns inside a
/// loop over texts, and little memory.
const MAX_CACHED_PATTERNS: usize = 32;

/// Computed patterns that are compiled for nothing, as on a server.
const MAX_FREE_PATTERN_COMPILES: usize = 32;
/// What compiling any more costs: the price of matching follows the length of a pattern, the work
/// of compiling its repetitions, and a loop can make any number of them.
const PATTERN_COMPILE_COST: u64 = 1_000;

impl<'p> EvalContext<'p> {
    pub(crate) fn new(
        limit: u64,
        patterns: &'p HashMap<String, Pattern>,
        comparisons: Comparisons,
    ) -> Self {
        let meter = CostTracker::new(limit);
        Self { meter, comparisons, patterns, computed: HashMap::new(), compiled: 0 }
    }

    pub(crate) fn charge(&mut self, cost: u64) -> Result<(), EvalError> {
        self.meter.charge(cost)
    }

    /// The pattern that `text` spells.
    pub(crate) fn pattern(&mut self, text: &str) -> Result<Pattern, EvalError> {
        if let Some(known) = self.patterns.get(text).or_else(|| self.computed.get(text)) {
            return Ok(known.clone());
        }
        self.compiled += 1;
        if self.compiled > MAX_FREE_PATTERN_COMPILES {
            self.charge(PATTERN_COMPILE_COST)?;
        }
        let pattern =
            Pattern::compile(text, regex::COMPUTED_PATTERN_MEMORY).map_err(EvalError::failed)?;
        if self.computed.len() == MAX_CACHED_PATTERNS {
            self.computed.clear();
        }
        self.computed.insert(text.to_owned(), pattern.clone());
        Ok(pattern)
    }
}
