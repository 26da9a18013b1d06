//! Documents that other parts of the process show at the server's door.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use serde_json::Value;

use crate::api::Api;

/// What is shown, by path.
#[derive(Default)]
pub(crate) struct Pages(RwLock<BTreeMap<String, Page>>);

type Page = Arc<dyn Fn() -> Value + Send + Sync>;

impl Api {
    /// Shows a document at a path that is no resource, made anew for each who asks. Roles say who
    /// may: it is a non-resource URL like any other.
    pub fn show(&self, path: &str, page: impl Fn() -> Value + Send + Sync + 'static) {
        let pages = &self.0.pages.0;
        let mut pages = pages.write().unwrap_or_else(PoisonError::into_inner);
        pages.insert(path.to_owned(), Arc::new(page));
    }

    /// The document at a path.
    pub(crate) fn shown_at(&self, path: &str) -> Option<Value> {
        let pages = &self.0.pages.0;
        // Made outside the lock, because it is somebody else's code.
        let page = pages.read().unwrap_or_else(PoisonError::into_inner).get(path).cloned();
        page.map(|page| page())
    }
}

impl fmt::Debug for Pages {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pages = self.0.read().unwrap_or_else(PoisonError::into_inner);
        to.debug_set().entries(pages.keys()).finish()
    }
}
