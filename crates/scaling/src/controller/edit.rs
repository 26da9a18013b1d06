//! What is changed about the job itself, in one write.

use gantry_reconcile::Write;
use serde_json::{Map, Value};

use super::{change, fields};
use crate::marks::FINALIZER;
use crate::view::AppWrapper;

/// Whether a job stays until everything is given back.
pub(super) fn is_held(job: &AppWrapper) -> bool {
    job.metadata.finalizers.iter().any(|it| it == FINALIZER)
}

/// Changes that were decided and not written yet.
#[derive(Debug, Default)]
pub(super) struct Edit {
    finalizers: Option<Vec<String>>,
    annotations: Map<String, Value>,
}

impl Edit {
    /// Makes a job stay until everything is given back.
    pub(super) fn hold(&mut self, job: &AppWrapper) {
        let mut all = job.metadata.finalizers.clone();
        all.push(FINALIZER.to_owned());
        self.finalizers = Some(all);
    }

    /// Lets a job go.
    pub(super) fn let_go(&mut self, job: &AppWrapper) {
        if is_held(job) {
            let others = job.metadata.finalizers.iter().filter(|it| *it != FINALIZER);
            self.finalizers = Some(others.cloned().collect());
        }
    }

    /// Sets an annotation; `null` takes it away.
    pub(super) fn annotate(&mut self, name: &str, value: Value) {
        self.annotations.insert(name.to_owned(), value);
    }

    /// The write, if there is anything to change.
    pub(super) fn write(self, job: &AppWrapper) -> Option<Write> {
        let Self { finalizers, annotations } = self;
        let nothing = finalizers.is_none() && annotations.is_empty();
        (!nothing).then(|| change(job, fields(finalizers, annotations)))
    }
}
