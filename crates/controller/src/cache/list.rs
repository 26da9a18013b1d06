//! Listing a kind.

use bytes::Bytes;
use gantry_reconcile::{Parameter, Revision};
use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Broken, Progress, Reflector};
use crate::ask::{ask, request};

/// Objects per page, as every Kubernetes client asks for them.
const PAGE: u32 = 500;

#[derive(Deserialize)]
struct Page<'page> {
    #[serde(default)]
    metadata: PageMeta,
    /// Servers written in Go say `null` for none.
    #[serde(borrow, default)]
    items: Option<Vec<&'page RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PageMeta {
    #[serde(rename = "resourceVersion")]
    revision: Revision,
    #[serde(rename = "continue")]
    more: Option<String>,
}

impl Reflector {
    /// Makes the shelf hold what there is, and tells what that changed.
    pub(super) async fn list(&self, progress: &mut Progress) -> Result<(), Broken> {
        let (bodies, revision) = self.pages(progress.whole).await?;
        let pages: Result<Vec<Page<'_>>, _> =
            bodies.iter().map(|body| serde_json::from_slice(body)).collect();
        let pages = pages.map_err(Broken::Garbled)?;
        let items = pages.iter().flat_map(|page| page.items.iter().flatten());
        let items: Vec<&str> = items.map(|item| item.get()).collect();
        let replaced = self.audience.make(&self.place, |shelf| shelf.replace(&items, revision));
        let unreadable = replaced.unwrap_or_default();
        progress.unreadable.retain(|key| unreadable.iter().any(|it| it.key == *key));
        for object in &unreadable {
            self.leave_out(progress, object);
        }
        self.audience.filled_one();
        progress.whole = false;
        progress.from = Some(revision);
        progress.objects.set(i64::try_from(items.len() - unreadable.len()).unwrap_or(i64::MAX));
        let kind = &self.name;
        self.meters.listed(kind);
        tracing::debug!(kind, objects = items.len(), revision = revision.0, "listed");
        Ok(())
    }

    /// All pages, and the revision they are of.
    async fn pages(&self, whole: bool) -> Result<(Vec<Bytes>, Revision), Broken> {
        let (mut pages, mut more, mut revision) = (Vec::new(), None::<String>, None);
        loop {
            let parameters: &[Parameter<'_>] = match &more {
                Some(token) => &[Parameter::Limit(PAGE), Parameter::Continue(token)],
                None if whole => &[Parameter::Limit(0)],
                None => &[Parameter::Limit(PAGE)],
            };
            self.limiter.turn().await;
            let request = request(Method::GET, &self.path(parameters)?, "", Vec::new())?;
            let reply = ask(&self.client, &self.clock, self.timing.page, request).await?;
            if reply.status == StatusCode::GONE {
                return Err(Broken::Expired(revision.unwrap_or_default()));
            }
            if !reply.status.is_success() {
                let status = reply.refusal();
                let wait = reply.wait(&status);
                return Err(Broken::Refused { code: reply.status, message: status.message, wait });
            }
            let page: Page<'_> = serde_json::from_slice(&reply.body).map_err(Broken::Garbled)?;
            let of = *revision.get_or_insert(page.metadata.revision);
            more = page.metadata.more.filter(|token| !token.is_empty());
            pages.push(reply.body);
            if more.is_none() {
                return Ok((pages, of));
            }
        }
    }
}
