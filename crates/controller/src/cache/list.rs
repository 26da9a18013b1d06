//! Lists a kind.

use bytes::Bytes;
use gantry_reconcile::{Parameter, Revision};
use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{ListWatchError, Reflector, ReflectorState};
use crate::api_request::{build_request, send_request};

/// The page size that every Kubernetes client uses.
const PAGE_SIZE: u32 = 500;

#[derive(Deserialize)]
struct Page<'page> {
    #[serde(default)]
    metadata: PageMeta,
    /// Servers written in Go send `null` for an empty list.
    #[serde(borrow, default)]
    items: Option<Vec<&'page RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PageMeta {
    #[serde(rename = "resourceVersion")]
    revision: Revision,
    #[serde(rename = "continue")]
    continue_token: Option<String>,
}

impl Reflector {
    /// Replaces the content of the store with a list, and delivers the changes.
    pub(super) async fn list(&self, progress: &mut ReflectorState) -> Result<(), ListWatchError> {
        let (bodies, revision) = self.list_pages(progress.unpaged).await?;
        let pages: Result<Vec<Page<'_>>, _> =
            bodies.iter().map(|body| serde_json::from_slice(body)).collect();
        let pages = pages.map_err(ListWatchError::Malformed)?;
        let items = pages.iter().flat_map(|page| page.items.iter().flatten());
        let items: Vec<&str> = items.map(|item| item.get()).collect();
        let replaced =
            self.subscribers.update_store(&self.store_id, |shelf| shelf.replace(&items, revision));
        let unreadable = replaced.unwrap_or_default();
        progress.unreadable.retain(|key| unreadable.iter().any(|it| it.key == *key));
        for object in &unreadable {
            self.report_unreadable(progress, object);
        }
        self.subscribers.notify_synced();
        progress.unpaged = false;
        progress.from = Some(revision);
        progress.objects.set(i64::try_from(items.len() - unreadable.len()).unwrap_or(i64::MAX));
        let kind = &self.name;
        self.metrics.listed(kind);
        tracing::debug!(kind, objects = items.len(), revision = revision.0, "listed");
        Ok(())
    }

    /// Reads all pages, and the revision they are of.
    async fn list_pages(&self, whole: bool) -> Result<(Vec<Bytes>, Revision), ListWatchError> {
        let (mut pages, mut more, mut revision) = (Vec::new(), None::<String>, None);
        loop {
            let parameters: &[Parameter<'_>] = match &more {
                Some(token) => &[Parameter::Limit(PAGE_SIZE), Parameter::Continue(token)],
                None if whole => &[Parameter::Limit(0)],
                None => &[Parameter::Limit(PAGE_SIZE)],
            };
            self.limiter.wait().await;
            let request = build_request(Method::GET, &self.path(parameters)?, "", Vec::new())?;
            let reply =
                send_request(&self.client, &self.clock, self.timeouts.page, request).await?;
            if reply.status == StatusCode::GONE {
                return Err(ListWatchError::Expired(revision.unwrap_or_default()));
            }
            if !reply.status.is_success() {
                let status = reply.error_status();
                let wait = reply.retry_delay(&status);
                return Err(ListWatchError::Refused {
                    code: reply.status,
                    message: status.message,
                    retry_after: wait,
                });
            }
            let page: Page<'_> =
                serde_json::from_slice(&reply.body).map_err(ListWatchError::Malformed)?;
            let of = *revision.get_or_insert(page.metadata.revision);
            more = page.metadata.continue_token.filter(|token| !token.is_empty());
            pages.push(reply.body);
            if more.is_none() {
                return Ok((pages, of));
            }
        }
    }
}
