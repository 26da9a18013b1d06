//! Garbage collection: manifests that nothing needs, and content that no manifest needs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gantry_oci::Digest;
use jiff::{SignedDuration, Timestamp};

use super::files::{blob_directory, digest_of_link, link_path};
use super::record::BlobRecord;
use super::{ALGORITHMS, RepositoryPart, Storage, StorageError, TagRecord};
use crate::manifest_content::ManifestContent;
use crate::name::RepositoryName;

/// What may be collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GarbageCollection {
    /// The age from which manifests without a tag are removed, unless another manifest needs them;
    /// with `None` they stay. Users pull by digest, so removing them is a decision.
    pub untagged_after: Option<Duration>,
    /// The age from which blobs and untagged manifests may be removed at all. A push uploads them
    /// first and refers to them last, so it must be longer than a push takes.
    pub minimum_age: Duration,
}

impl Default for GarbageCollection {
    fn default() -> Self {
        Self { untagged_after: None, minimum_age: Duration::from_secs(60 * 60) }
    }
}

/// What was collected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GarbageReport {
    /// Manifests that were removed from repositories.
    pub manifests: u64,
    /// Blobs that were removed from repositories.
    pub links: u64,
    /// Contents that were removed from the disk.
    pub contents: u64,
    /// Their size.
    pub bytes: u64,
    /// Repositories that were left alone because a manifest in them cannot be read.
    pub unreadable: Vec<RepositoryName>,
}

impl Storage {
    /// Removes what nothing needs. `leased` contents stay.
    ///
    /// Pushes and pulls go on meanwhile, but for the time that one repository takes.
    ///
    /// # Errors
    /// The disk failed. What was not removed is still there and consistent.
    pub fn collect_garbage(
        &self,
        settings: GarbageCollection,
        now: Timestamp,
        leased: impl Fn(&Digest) -> bool,
    ) -> Result<GarbageReport, StorageError> {
        let mut report = GarbageReport::default();
        for repository in self.repositories()? {
            let _links = self.write_links();
            let Some(needed) = self.needed(&repository, settings, now)? else {
                report.unreadable.push(repository);
                continue;
            };
            report.manifests += self.unlink(RepositoryPart::Manifests, &repository, |it| {
                !needed.manifests.contains(it)
            })?;
            let old = |it: &Digest| -> Result<bool, StorageError> {
                let path = link_path(RepositoryPart::Blobs, &repository, it);
                let record = self.record::<BlobRecord>(&path)?;
                Ok(record.is_some_and(|it| age(it.created, now) >= settings.minimum_age))
            };
            let mut unneeded = BTreeSet::new();
            for name in self.names(&RepositoryPart::Blobs.of(&repository))? {
                let Some(digest) = digest_of_link(&name) else { continue };
                if !needed.blobs.contains(&digest) && !leased(&digest) && old(&digest)? {
                    unneeded.insert(digest);
                }
            }
            report.links +=
                self.unlink(RepositoryPart::Blobs, &repository, |it| unneeded.contains(it))?;
        }
        let _links = self.write_links();
        (report.contents, report.bytes) = self.sweep_unlinked(|it| !leased(it))?;
        Ok(report)
    }

    /// Removes content that no repository links and that may go; returns number and bytes.
    ///
    /// The caller holds the lock of the links.
    pub(super) fn sweep_unlinked(
        &self,
        may_go: impl Fn(&Digest) -> bool,
    ) -> Result<(u64, u64), StorageError> {
        let mut linked = BTreeSet::new();
        for repository in self.repositories()? {
            for part in [RepositoryPart::Blobs, RepositoryPart::Manifests] {
                let names = self.names(&part.of(&repository))?;
                linked.extend(names.iter().filter_map(|name| digest_of_link(name)));
            }
        }
        let (mut count, mut bytes) = (0, 0);
        for algorithm in ALGORITHMS {
            let directory = blob_directory(algorithm);
            for hex in self.names(&directory)? {
                let Ok(digest) = format!("{}:{hex}", algorithm.name()).parse::<Digest>() else {
                    continue;
                };
                if linked.contains(&digest) || !may_go(&digest) {
                    continue;
                }
                let size = self.open_content(&digest)?.map_or(0, |blob| blob.size);
                self.remove(&format!("{directory}/{hex}"))?;
                (count, bytes) = (count + 1, bytes + size);
            }
            self.sync(&directory)?;
        }
        Ok((count, bytes))
    }

    /// Removes links and makes that durable, before any content is removed.
    fn unlink(
        &self,
        part: RepositoryPart,
        repository: &RepositoryName,
        unneeded: impl Fn(&Digest) -> bool,
    ) -> Result<u64, StorageError> {
        let directory = part.of(repository);
        let mut count = 0;
        for name in self.names(&directory)? {
            if digest_of_link(&name).is_some_and(|it| unneeded(&it)) {
                self.remove(&format!("{directory}/{name}"))?;
                count += 1;
            }
        }
        if count > 0 {
            self.sync(&directory)?;
        }
        Ok(count)
    }

    /// Returns what the tags of a repository need, and manifests that are kept without a tag;
    /// `None` if a manifest cannot be read.
    fn needed(
        &self,
        repository: &RepositoryName,
        settings: GarbageCollection,
        now: Timestamp,
    ) -> Result<Option<Needed>, StorageError> {
        let mut stored = BTreeMap::new();
        for (digest, record) in self.manifests(repository)? {
            let Some(manifest) = self.manifest_linked(repository, &digest)? else {
                return Ok(None);
            };
            let content = ManifestContent::parse(&manifest.bytes, Some(&record.media_type));
            let Ok(content) = content else { return Ok(None) };
            stored.insert(digest, (record, content));
        }
        let mut open: Vec<Digest> = Vec::new();
        let tags = RepositoryPart::Tags.of(repository);
        for name in self.names(&tags)? {
            let record = self.record::<TagRecord>(&format!("{tags}/{name}"))?;
            open.extend(record.map(|record| record.digest));
        }
        for (digest, (record, _)) in &stored {
            let age = age(record.created, now);
            let kept = settings.untagged_after.is_none_or(|limit| age < limit);
            // What says something about another manifest lives as long as that.
            let kept = kept && record.subject.as_ref().is_none_or(|it| !stored.contains_key(it));
            if kept || age < settings.minimum_age {
                open.push(digest.clone());
            }
        }
        let mut needed = Needed::default();
        loop {
            while let Some(digest) = open.pop() {
                let Some((_, content)) = stored.get(&digest) else { continue };
                if needed.manifests.insert(digest) {
                    needed.blobs.extend(content.blobs.iter().cloned());
                    open.extend(content.manifests.iter().cloned());
                }
            }
            let about_needed = stored.iter().filter(|(digest, (record, _))| {
                let subject = record.subject.as_ref();
                !needed.manifests.contains(digest)
                    && subject.is_some_and(|it| needed.manifests.contains(it))
            });
            open.extend(about_needed.map(|(digest, _)| digest.clone()));
            if open.is_empty() {
                return Ok(Some(needed));
            }
        }
    }
}

/// What may not be removed from a repository.
#[derive(Debug, Default)]
struct Needed {
    manifests: BTreeSet<Digest>,
    blobs: BTreeSet<Digest>,
}

/// The time since `then`; zero if the clock was set back.
fn age(then: Timestamp, now: Timestamp) -> Duration {
    let passed: SignedDuration = now.duration_since(then);
    Duration::try_from(passed).unwrap_or_default()
}
