//! Lists of repositories, tags and referrers, page by page.

use gantry_oci::{Digest, MediaType};
use http::header::{HeaderName, LINK};
use http::request::Parts;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::response::{Body, ErrorCode, Failure, document, set};
use super::{Access, Registry};
use crate::manifest_content::ManifestContent;
use crate::name::RepositoryName;
use crate::path_query::{encode, parameter};

/// The largest page.
const MAX_PAGE: usize = 1000;

/// States which filters were applied to a list of referrers.
const FILTERS_APPLIED: HeaderName = HeaderName::from_static("oci-filters-applied");

impl<A: Access> Registry<A> {
    pub(super) async fn catalog(&self, parts: &Parts) -> Result<Response<Body>, Failure> {
        let page = Page::read(parts)?;
        let names = self.blocking(|contents| Ok(contents.storage.repositories()?)).await?;
        let names = names.into_iter().map(|it| it.as_str().to_owned()).collect();
        let (names, next) = page.cut(names);
        let body = json!({"repositories": names}).to_string();
        let mut response = document(StatusCode::OK, "application/json", body);
        link(&mut response, "/v2/_catalog", page.size, next.as_deref(), "");
        Ok(response)
    }

    pub(super) async fn tags(
        &self,
        repository: RepositoryName,
        parts: &Parts,
    ) -> Result<Response<Body>, Failure> {
        let page = Page::read(parts)?;
        let wanted = repository.clone();
        let tags = self.blocking(move |contents| Ok(contents.storage.tags(&wanted)?)).await?;
        let unknown = || {
            let message = format!("there is no repository {repository}");
            Failure::new(ErrorCode::NameUnknown, message)
        };
        let (tags, next) = page.cut(tags.ok_or_else(unknown)?);
        let body = json!({"name": repository.as_str(), "tags": tags}).to_string();
        let mut response = document(StatusCode::OK, "application/json", body);
        let path = format!("/v2/{repository}/tags/list");
        link(&mut response, &path, page.size, next.as_deref(), "");
        Ok(response)
    }

    pub(super) async fn referrers(
        &self,
        repository: RepositoryName,
        subject: Digest,
        parts: &Parts,
    ) -> Result<Response<Body>, Failure> {
        let page = Page::read(parts)?;
        let filter = parameter(parts.uri.query(), "artifactType").filter(|it| !it.is_empty());
        let path = format!("/v2/{repository}/referrers/{subject}");
        let (wanted, size) = (filter.clone(), page.size);
        let (manifests, next) = self
            .blocking(move |contents| {
                let mut digests = Vec::new();
                for (digest, record) in contents.storage.manifests(&repository)? {
                    if record.subject.as_ref() == Some(&subject) {
                        digests.push(digest.as_str().to_owned());
                    }
                }
                let (digests, next) = page.cut(digests);
                let mut found = Vec::new();
                for digest in digests {
                    let Ok(digest) = digest.parse() else { continue };
                    let manifest = contents.storage.manifest(&repository, &digest)?;
                    found.extend(manifest.and_then(|it| {
                        let content =
                            ManifestContent::parse(&it.bytes, Some(&it.media_type)).ok()?;
                        descriptor(&digest, it.bytes.len(), &content, wanted.as_deref())
                    }));
                }
                Ok((found, next))
            })
            .await?;
        let index = MediaType::OciIndex.as_str();
        let body = json!({"schemaVersion": 2, "mediaType": index, "manifests": manifests});
        let mut response = document(StatusCode::OK, index, body.to_string());
        let mut query = String::new();
        if let Some(filter) = filter {
            set(&mut response, FILTERS_APPLIED, "artifactType");
            query = format!("&artifactType={}", encode(&filter));
        }
        link(&mut response, &path, size, next.as_deref(), &query);
        Ok(response)
    }
}

/// Describes a referrer; `None` if it is of another type than wanted.
fn descriptor(
    digest: &Digest,
    size: usize,
    content: &ManifestContent,
    wanted: Option<&str>,
) -> Option<Value> {
    let artifact_type = content.artifact_type.as_deref();
    if wanted.is_some() && wanted != artifact_type {
        return None;
    }
    let media_type = content.media_type.as_str();
    let mut found = json!({"mediaType": media_type, "digest": digest.as_str(), "size": size});
    if let Some(artifact_type) = artifact_type {
        found["artifactType"] = json!(artifact_type);
    }
    if let Some(annotations) = &content.annotations {
        found["annotations"] = Value::Object(annotations.clone());
    }
    Some(found)
}

/// Which part of a list a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Page {
    /// How many items, at most.
    size: usize,
    /// The item before the first one.
    last: Option<String>,
}

impl Page {
    fn read(parts: &Parts) -> Result<Self, Failure> {
        let query = parts.uri.query();
        let last = parameter(query, "last").filter(|it| !it.is_empty());
        let size = match parameter(query, "n") {
            None => MAX_PAGE,
            Some(text) => text.parse::<usize>().map(|it| it.min(MAX_PAGE)).map_err(|_| {
                Failure::new(ErrorCode::SizeInvalid, format!("n must be a number, not {text:?}"))
            })?,
        };
        Ok(Self { size, last })
    }

    /// Returns the items of the page, of all items in order, and the last one if more follow.
    fn cut(&self, items: Vec<String>) -> (Vec<String>, Option<String>) {
        let after = |it: &String| self.last.as_ref().is_none_or(|last| it > last);
        let mut items: Vec<String> = items.into_iter().filter(after).collect();
        let more = items.len() > self.size;
        items.truncate(self.size);
        let next = items.last().filter(|_| more).cloned();
        (items, next)
    }
}

/// Tells where the next page is.
fn link(response: &mut Response<Body>, path: &str, size: usize, next: Option<&str>, query: &str) {
    if let Some(next) = next {
        let target = format!("<{path}?n={size}&last={}{query}>; rel=\"next\"", encode(next));
        set(response, LINK, &target);
    }
}
