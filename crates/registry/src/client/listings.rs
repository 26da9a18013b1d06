//! Listing tags, and removing blobs.

use gantry_oci::{Digest, Repository, Tag};
use http::Method;
use http::header::LINK;
use serde_json::Value;

use super::error::{Operation, RegistryError};
use super::exchange::RequestSpec;
use super::location::next_page;
use super::{Client, scope};

/// Pages that are read of one list.
const MAX_PAGES: usize = 1000;
/// Tags that are returned.
const MAX_TAGS: usize = 100_000;

impl Client {
    /// Lists the tags of a repository, as the registry orders them. What is not a tag is left out.
    ///
    /// # Errors
    /// As [`RegistryError`] says.
    pub async fn tags(&self, repository: &Repository) -> Result<Vec<Tag>, RegistryError> {
        let time = self.0.settings.time;
        let call =
            self.call(repository, Operation::ListTags, scope(repository, "pull"), "", time)?;
        let mut path = format!("/v2/{}/tags/list", repository.path());
        let mut tags: Vec<Tag> = Vec::new();
        for _ in 0..MAX_PAGES {
            let mut request = RequestSpec::get(call.url(&path)?);
            request.limit = self.0.settings.manifest_bytes;
            let reply = self.send(&call, &request).await?;
            let reply = self.expect_success(&call, reply)?;
            let document: Option<Value> = serde_json::from_slice(&reply.body).ok();
            let page = match document.as_ref().and_then(|it| it.get("tags")) {
                Some(Value::Array(page)) => page.as_slice(),
                Some(Value::Null) => &[],
                Some(_) | None => return Err(call.protocol("its list of tags is not one")),
            };
            tags.extend(page.iter().filter_map(|it| it.as_str()?.parse().ok()));
            if tags.len() > MAX_TAGS {
                return Err(call.protocol(&format!("it has more than {MAX_TAGS} tags")));
            }
            match reply.header(&LINK).and_then(next_page) {
                Some(next) if next != path => path = next,
                Some(_) | None => return Ok(tags),
            }
        }
        Err(call.protocol(&format!("its list of tags has more than {MAX_PAGES} pages")))
    }

    /// Removes a blob of a repository.
    ///
    /// # Errors
    /// As [`RegistryError`] says.
    pub async fn delete_blob(
        &self,
        repository: &Repository,
        digest: &Digest,
    ) -> Result<(), RegistryError> {
        let (actions, time) = (scope(repository, "delete"), self.0.settings.time);
        let call = self.call(repository, Operation::DeleteBlob, actions, digest.as_str(), time)?;
        let uri = call.url(&format!("/v2/{}/blobs/{digest}", repository.path()))?;
        let reply = self.send(&call, &RequestSpec::new(Method::DELETE, uri)).await?;
        self.expect_success(&call, reply).map(drop)
    }
}
