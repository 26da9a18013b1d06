//! Describes what is served as OpenAPI: built-in kinds as they are, custom kinds made to match.
//!
//! [`custom_document`] turns the custom kinds of one group version into the document a Kubernetes
//! API server publishes for them. [`Documents`] keeps every document, built-in and custom, in the
//! form it is sent in, and makes the one document of version 2 from those of version 3. Nothing is
//! made before someone asks for it.

mod borrowed;
mod custom;
mod document;
mod documents;
mod routes;
mod schema;
mod swagger;

pub use custom::{CustomKind, Edition, custom_document};
pub use document::{Document, builtin_document, builtin_paths, hash, index};
pub use documents::Documents;
pub use swagger::Swagger;
