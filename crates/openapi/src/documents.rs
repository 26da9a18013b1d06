//! Every document that is served, built-in and custom.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use serde_json::Value;

use crate::custom::Edition;
use crate::document::{Document, builtin_document, builtin_paths, index};
use crate::swagger::Swagger;

/// The documents below `/openapi/v3`, their index, and the one document of `/openapi/v2`.
///
/// A document is made when it is first asked for, by itself or by the index, which holds its hash.
/// A change of a custom document replaces it, the index and the one document as a whole; whoever
/// holds the old ones keeps them. Where a definition claims a built-in group version, the built-in document stays.
#[derive(Debug, Default)]
pub struct Documents {
    // Held for lookups and changes of the maps only, never while a document is made.
    known: RwLock<Known>,
}

/// What is served at one moment.
#[derive(Clone, Debug, Default)]
struct Known {
    custom: BTreeMap<String, Arc<Lazy>>,
    /// The index of just these documents; a change puts an empty one in its place.
    index: Arc<OnceLock<Arc<Document>>>,
    /// The same for the one document of the second version.
    swagger: Arc<OnceLock<Arc<Swagger>>>,
}

impl Documents {
    /// The built-in documents alone.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The document at `path` below `/openapi/v3`: `apis/apps/v1`.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<Arc<Document>> {
        builtin_document(path).or_else(|| {
            let lazy = self.read(|known| known.custom.get(path).cloned())?;
            Some(lazy.document())
        })
    }

    /// Sets the document of a group version of custom kinds to what `make` returns.
    ///
    /// `make` is called when a document is first asked for, or never: once for the third edition,
    /// and for the second each time that any group version has changed.
    pub fn set_custom(
        &self,
        group: &str,
        version: &str,
        make: impl Fn(Edition) -> Value + Send + Sync + 'static,
    ) {
        let lazy = Arc::new(Lazy::new(make));
        self.change(|custom| custom.insert(path_of(group, version), lazy));
    }

    /// Removes the document of a group version that no longer has custom kinds.
    pub fn remove_custom(&self, group: &str, version: &str) {
        self.change(|custom| custom.remove(&path_of(group, version)));
    }

    /// The index of all documents, itself a document.
    #[must_use]
    pub fn index(&self) -> Arc<Document> {
        let known = self.read(Known::clone);
        known.index.get_or_init(|| Arc::new(Document::new(&known.list()))).clone()
    }

    /// Everything in one document of the second version.
    #[must_use]
    pub fn swagger(&self) -> Arc<Swagger> {
        let known = self.read(Known::clone);
        let make = || Arc::new(Swagger::new(known.custom.values().map(|it| it.fragment())));
        known.swagger.get_or_init(make).clone()
    }

    fn read<T>(&self, look: impl FnOnce(&Known) -> T) -> T {
        // No holder of the lock can leave a change half done, so a poisoned one is as good.
        look(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn change<T>(&self, change: impl FnOnce(&mut BTreeMap<String, Arc<Lazy>>) -> T) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut known.custom);
        known.index = Arc::default();
        known.swagger = Arc::default();
    }
}

impl Known {
    fn list(&self) -> Value {
        let custom = self.custom.iter().map(|(path, lazy)| (path.as_str(), lazy.document()));
        let builtin = builtin_paths().filter_map(|path| Some((path, builtin_document(path)?)));
        // Where both have a path, the index keeps the last.
        index(custom.chain(builtin).map(|(path, it)| (path.to_owned(), it.hash().to_owned())))
    }
}

fn path_of(group: &str, version: &str) -> String {
    format!("apis/{group}/{version}")
}

type Make = Box<dyn Fn(Edition) -> Value + Send + Sync>;

/// A custom document that may not have been made yet.
struct Lazy {
    make: Make,
    document: OnceLock<Arc<Document>>,
}

impl Lazy {
    fn new(make: impl Fn(Edition) -> Value + Send + Sync + 'static) -> Self {
        Self { make: Box::new(make), document: OnceLock::new() }
    }

    fn document(&self) -> Arc<Document> {
        let made = || Arc::new(Document::new(&(self.make)(Edition::Third)));
        self.document.get_or_init(made).clone()
    }

    fn fragment(&self) -> Value {
        (self.make)(Edition::Second)
    }
}

impl std::fmt::Debug for Lazy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { make: _, document } = self;
        f.debug_struct("Lazy").field("document", document).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
