//! Keeps every served document, built-in and custom.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use serde_json::Value;

use crate::custom::OpenApiVersion;
use crate::document::{Document, builtin_document, builtin_paths, index};
use crate::swagger::Swagger;

/// The documents below `/openapi/v3`, their index, and the one document of `/openapi/v2`.
///
/// A document is built when it is first requested, by itself or by the index, which holds its hash.
/// A change of a custom document replaces it, the index and the `/openapi/v2` document as a whole;
/// readers that hold the old ones keep them. Where a definition claims a built-in group version,
/// the built-in document stays.
#[derive(Debug, Default)]
pub struct Documents {
    // Held for lookups and changes of the maps only, never while a document is built.
    served: RwLock<ServedDocuments>,
}

/// The documents that are served at one moment.
#[derive(Clone, Debug, Default)]
struct ServedDocuments {
    custom: BTreeMap<String, Arc<LazyDocument>>,
    /// The index of exactly these documents; a change replaces it by an empty one.
    index: Arc<OnceLock<Arc<Document>>>,
    /// The same for the single document of version 2.
    swagger: Arc<OnceLock<Arc<Swagger>>>,
}

impl Documents {
    /// Creates the set with the built-in documents alone.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the document at `path` below `/openapi/v3`: `apis/apps/v1`.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<Arc<Document>> {
        builtin_document(path).or_else(|| {
            let lazy = self.read(|known| known.custom.get(path).cloned())?;
            Some(lazy.document())
        })
    }

    /// Sets the document of a group version of custom kinds to what `make` returns.
    ///
    /// `make` is called when a document is first requested, or never: once for version 3, and for
    /// version 2 each time that any group version has changed.
    pub fn set_custom(
        &self,
        group: &str,
        version: &str,
        make: impl Fn(OpenApiVersion) -> Value + Send + Sync + 'static,
    ) {
        let lazy = Arc::new(LazyDocument::new(make));
        self.change(|custom| custom.insert(path_of(group, version), lazy));
    }

    /// Removes the document of a group version that no longer has custom kinds.
    pub fn remove_custom(&self, group: &str, version: &str) {
        self.change(|custom| custom.remove(&path_of(group, version)));
    }

    /// Returns the index of all documents, itself a document.
    #[must_use]
    pub fn index(&self) -> Arc<Document> {
        let known = self.read(ServedDocuments::clone);
        known.index.get_or_init(|| Arc::new(Document::new(&known.list()))).clone()
    }

    /// Returns everything in one document of version 2.
    #[must_use]
    pub fn swagger(&self) -> Arc<Swagger> {
        let known = self.read(ServedDocuments::clone);
        let make = || Arc::new(Swagger::new(known.custom.values().map(|it| it.fragment())));
        known.swagger.get_or_init(make).clone()
    }

    fn read<T>(&self, look: impl FnOnce(&ServedDocuments) -> T) -> T {
        // A change is never left half done under the lock, so a poisoned one can be used.
        look(&self.served.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn change<T>(&self, change: impl FnOnce(&mut BTreeMap<String, Arc<LazyDocument>>) -> T) {
        let mut known = self.served.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut known.custom);
        known.index = Arc::default();
        known.swagger = Arc::default();
    }
}

impl ServedDocuments {
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

type BuildDocument = Box<dyn Fn(OpenApiVersion) -> Value + Send + Sync>;

/// A custom document that may not have been built yet.
struct LazyDocument {
    build: BuildDocument,
    document: OnceLock<Arc<Document>>,
}

impl LazyDocument {
    fn new(make: impl Fn(OpenApiVersion) -> Value + Send + Sync + 'static) -> Self {
        Self { build: Box::new(make), document: OnceLock::new() }
    }

    fn document(&self) -> Arc<Document> {
        let made = || Arc::new(Document::new(&(self.build)(OpenApiVersion::V3)));
        self.document.get_or_init(made).clone()
    }

    fn fragment(&self) -> Value {
        (self.build)(OpenApiVersion::V2)
    }
}

impl std::fmt::Debug for LazyDocument {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { build: _, document } = self;
        f.debug_struct("Lazy").field("document", document).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
