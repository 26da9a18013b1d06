//! Changes of the job itself, in one write.

use gantry_reconcile::Write;
use serde_json::{Map, Value};

use super::{job_patch, job_write};
use crate::owner_labels::FINALIZER;
use crate::view::AppWrapper;

/// Returns whether a job has the finalizer that keeps it until everything is released.
pub(super) fn has_finalizer(job: &AppWrapper) -> bool {
    job.metadata.finalizers.iter().any(|it| it == FINALIZER)
}

/// Changes that were decided and not written yet.
#[derive(Debug, Default)]
pub(super) struct JobEdit {
    finalizers: Option<Vec<String>>,
    annotations: Map<String, Value>,
}

impl JobEdit {
    /// Adds the finalizer that keeps a job until everything is released.
    pub(super) fn add_finalizer(&mut self, job: &AppWrapper) {
        let mut all = job.metadata.finalizers.clone();
        all.push(FINALIZER.to_owned());
        self.finalizers = Some(all);
    }

    /// Removes the finalizer.
    pub(super) fn remove_finalizer(&mut self, job: &AppWrapper) {
        if has_finalizer(job) {
            let others = job.metadata.finalizers.iter().filter(|it| *it != FINALIZER);
            self.finalizers = Some(others.cloned().collect());
        }
    }

    /// Sets an annotation; `null` removes it.
    pub(super) fn annotate(&mut self, name: &str, value: Value) {
        self.annotations.insert(name.to_owned(), value);
    }

    /// Returns the write, if there is anything to change.
    pub(super) fn write(self, job: &AppWrapper) -> Option<Write> {
        let Self { finalizers, annotations } = self;
        let nothing = finalizers.is_none() && annotations.is_empty();
        (!nothing).then(|| job_write(job, job_patch(finalizers, annotations)))
    }
}
