//! Non-resource pages that other parts of the process add to the server.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use serde_json::Value;

use crate::api::Api;

/// The pages by path.
#[derive(Default)]
pub(crate) struct NonResourcePages(RwLock<BTreeMap<String, Page>>);

type Page = Arc<dyn Fn() -> Value + Send + Sync>;

impl Api {
    /// Adds a page at a non-resource path, produced for each request. It is authorized by RBAC like
    /// any other non-resource URL.
    pub fn serve_page(&self, path: &str, page: impl Fn() -> Value + Send + Sync + 'static) {
        let pages = &self.0.non_resource_pages.0;
        let mut pages = pages.write().unwrap_or_else(PoisonError::into_inner);
        pages.insert(path.to_owned(), Arc::new(page));
    }

    /// Returns the page at a path.
    pub(crate) fn page_at(&self, path: &str) -> Option<Value> {
        let pages = &self.0.non_resource_pages.0;
        // Produced outside the lock, because it calls code of others.
        let page = pages.read().unwrap_or_else(PoisonError::into_inner).get(path).cloned();
        page.map(|page| page())
    }
}

impl fmt::Debug for NonResourcePages {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pages = self.0.read().unwrap_or_else(PoisonError::into_inner);
        to.debug_set().entries(pages.keys()).finish()
    }
}
