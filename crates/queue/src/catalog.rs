//! The kinds a server has, by how objects name them.

use std::collections::BTreeMap;

use gantry_pods::view::Pod;
use gantry_reconcile::{Kind, Resource, View as _};

use crate::app_wrapper::AppWrapper;
use crate::wrapped::Wrapped;

/// The kinds that may be wrapped: by `apiVersion` and `kind`, how the API addresses each.
#[derive(Clone, Debug, Default)]
pub struct Catalog(BTreeMap<(String, String), Resource>);

impl Catalog {
    /// These kinds. Pods need not be among them.
    #[must_use]
    pub fn new(kinds: impl IntoIterator<Item = Resource>) -> Self {
        let pods = [Pod::RESOURCE, AppWrapper::RESOURCE];
        let entry = |it: Resource| ((it.api_version(), it.kind.to_string()), it);
        // What is read by everybody is addressed in one way.
        Self(kinds.into_iter().chain(pods).map(entry).collect())
    }

    /// The kind that objects call so.
    #[must_use]
    pub fn find(&self, api_version: &str, kind: &str) -> Option<&Resource> {
        self.0.get(&(api_version.to_owned(), kind.to_owned()))
    }

    /// The kinds whose objects must be seen to know what became of items; pods and AppWrappers are
    /// seen anyway.
    pub fn watched(&self) -> impl Iterator<Item = &Resource> {
        let seen = [Pod::RESOURCE, AppWrapper::RESOURCE];
        let namespaced = |it: &&Resource| it.scope == gantry_reconcile::Scope::Namespaced;
        self.0.values().filter(move |it| !seen.contains(it)).filter(namespaced)
    }

    /// Shelves for [`watched`](Catalog::watched).
    pub fn kinds(&self) -> impl Iterator<Item = Kind> {
        self.watched().map(|it| Kind::at::<Wrapped>(it.clone()))
    }
}
