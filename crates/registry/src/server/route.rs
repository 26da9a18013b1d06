//! What the path of a request means.

use gantry_oci::{Digest, Tag};

use super::response::{ErrorCode, Failure};
use crate::name::RepositoryName;
use crate::path_query::decode;

/// What the path of a request means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// `/v2/`
    Base,
    /// `/v2/_catalog`
    Catalog,
    /// Something of a repository.
    Repository(RepositoryName, Resource),
}

/// A resource of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    /// `manifests/<tag or digest>`
    Manifest(ManifestName),
    /// `blobs/<digest>`
    Blob(Digest),
    /// `blobs/uploads/`
    Uploads,
    /// `blobs/uploads/<id>`
    Upload(String),
    /// `tags/list`
    Tags,
    /// `referrers/<digest>`
    Referrers(Digest),
}

/// How a request names a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ManifestName {
    Tag(Tag),
    Digest(Digest),
}

/// The longest path: the longest name, an upload and the words between.
const MAX_PATH_BYTES: usize = 1024;

/// Reads a path.
pub(crate) fn route(path: &str) -> Result<Route, Failure> {
    let not_found = || Failure::new(ErrorCode::NotFound, "there is nothing at this path");
    if path.len() > MAX_PATH_BYTES {
        return Err(not_found());
    }
    let path = decode(path).ok_or_else(not_found)?;
    let rest = match path.as_str() {
        "/v2" | "/v2/" => return Ok(Route::Base),
        "/v2/_catalog" => return Ok(Route::Catalog),
        path => path.strip_prefix("/v2/").ok_or_else(not_found)?,
    };
    // From the end, because the words of the API are also valid parts of names.
    let parts: Vec<&str> = rest.split('/').collect();
    let (name, resource) = match parts.as_slice() {
        [name @ .., "blobs", "uploads"] | [name @ .., "blobs", "uploads", ""] => {
            (name, Resource::Uploads)
        }
        [name @ .., "blobs", "uploads", id] => (name, Resource::Upload((*id).to_owned())),
        [name @ .., "blobs", text] => (name, Resource::Blob(digest(text)?)),
        [name @ .., "manifests", text] => (name, Resource::Manifest(manifest_name(text)?)),
        [name @ .., "tags", "list"] => (name, Resource::Tags),
        [name @ .., "referrers", text] => (name, Resource::Referrers(digest(text)?)),
        _ => return Err(not_found()),
    };
    let name = name.join("/");
    let invalid = |why| Failure::new(ErrorCode::NameInvalid, format!("repository {name:?}: {why}"));
    Ok(Route::Repository(name.parse().map_err(invalid)?, resource))
}

/// Reads a digest of a path or a query.
pub(crate) fn digest(text: &str) -> Result<Digest, Failure> {
    let invalid = |why| Failure::new(ErrorCode::DigestInvalid, format!("digest {text:?}: {why}"));
    text.parse().map_err(invalid)
}

fn manifest_name(text: &str) -> Result<ManifestName, Failure> {
    if text.contains(':') {
        return Ok(ManifestName::Digest(digest(text)?));
    }
    let invalid =
        |_| Failure::new(ErrorCode::ManifestInvalid, format!("{text:?} is not a valid tag"));
    Ok(ManifestName::Tag(text.parse().map_err(invalid)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths_mean_what_the_specification_says() {
        let digest = Digest::sha256(b"x");
        let repository =
            |name: &str, resource| Ok(Route::Repository(name.parse().unwrap(), resource));
        let tag = |text: &str| Resource::Manifest(ManifestName::Tag(text.parse().unwrap()));
        let table = [
            ("/v2".to_owned(), Ok(Route::Base)),
            ("/v2/".to_owned(), Ok(Route::Base)),
            ("/v2/_catalog".to_owned(), Ok(Route::Catalog)),
            ("/v2/a/b/tags/list".to_owned(), repository("a/b", Resource::Tags)),
            ("/v2/a/manifests/v1".to_owned(), repository("a", tag("v1"))),
            ("/v2/a/manifests/manifests/v1".to_owned(), repository("a/manifests", tag("v1"))),
            ("/v2/a/blobs/uploads/".to_owned(), repository("a", Resource::Uploads)),
            ("/v2/a/blobs/uploads".to_owned(), repository("a", Resource::Uploads)),
            ("/v2/a/blobs/uploads/7".to_owned(), repository("a", Resource::Upload("7".to_owned()))),
            (format!("/v2/a/blobs/{digest}"), repository("a", Resource::Blob(digest.clone()))),
            (
                format!("/v2/a/blobs/{}", digest.as_str().replace(':', "%3A")),
                repository("a", Resource::Blob(digest.clone())),
            ),
            (
                format!("/v2/a/manifests/{digest}"),
                repository("a", Resource::Manifest(ManifestName::Digest(digest.clone()))),
            ),
            (format!("/v2/a/referrers/{digest}"), repository("a", Resource::Referrers(digest))),
            ("/".to_owned(), Err(ErrorCode::NotFound)),
            ("/v1/".to_owned(), Err(ErrorCode::NotFound)),
            ("/v2/a".to_owned(), Err(ErrorCode::NotFound)),
            ("/v2/a/tags".to_owned(), Err(ErrorCode::NotFound)),
            ("/v2/tags/list".to_owned(), Err(ErrorCode::NameInvalid)),
            ("/v2/../tags/list".to_owned(), Err(ErrorCode::NameInvalid)),
            ("/v2/%2e%2e/tags/list".to_owned(), Err(ErrorCode::NameInvalid)),
            ("/v2/a%2f..%2fb/tags/list".to_owned(), Err(ErrorCode::NameInvalid)),
            ("/v2/A/tags/list".to_owned(), Err(ErrorCode::NameInvalid)),
            ("/v2//a/tags/list".to_owned(), Err(ErrorCode::NameInvalid)),
            ("/v2/a/blobs/sha256:x".to_owned(), Err(ErrorCode::DigestInvalid)),
            ("/v2/a/blobs/md5:x".to_owned(), Err(ErrorCode::DigestInvalid)),
            ("/v2/a/manifests/..".to_owned(), Err(ErrorCode::ManifestInvalid)),
            (format!("/v2/{}/tags/list", "a".repeat(2000)), Err(ErrorCode::NotFound)),
        ];
        for (path, expected) in table {
            assert_eq!(route(&path).map_err(|failure| failure.code), expected, "{path}");
        }
    }

    proptest! {
        /// Whatever a path is, no name of a file that is made from it leaves its directory.
        #[test]
        fn reg_12_no_path_leads_out(
            path in "(/v2/)?[a-z./%2eEfF:_-]{0,30}(/tags/list|/manifests/[.a%]{1,4})?",
        ) {
            if let Ok(Route::Repository(name, resource)) = route(&path) {
                prop_assert!(!name.as_str().split('/').any(|it| matches!(it, "" | "." | "..")));
                if let Resource::Manifest(ManifestName::Tag(tag)) = resource {
                    prop_assert!(!tag.as_str().contains('/') && !tag.as_str().starts_with('.'));
                }
            }
        }
    }
}
