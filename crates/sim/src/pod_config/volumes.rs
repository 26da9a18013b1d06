//! Resolves the files of volumes that nodes create from objects.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::fields::{field, resource};
use super::{ResolveContext, Unresolved};
use crate::view::{
    DownwardApiVolumeFile, DownwardApiVolumeSource, KeyToPath, ServiceAccountTokenProjection,
    SourceKind, Volume, VolumeProjection,
};

/// The most bytes of the files of one pod. The objects of one volume are bounded by the API server;
/// a pod may reference many of them.
pub const MAX_POD_BYTES: usize = 16 << 20;
/// The most files of a pod.
const MAX_POD_FILES: usize = 4096;
/// The mode of files without one, as API servers default it.
const DEFAULT_MODE: u32 = 0o644;
/// The mode bits that files may have: neither setuid nor setgid nor sticky.
const MODE_BITS: u32 = 0o777;
/// How long a token without an expiration is valid.
const TOKEN_SECONDS: i64 = 3600;

/// The content of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeContent {
    /// An empty directory; containers write there.
    Scratch,
    /// These files, by path. They are replaced when their sources change.
    Files(BTreeMap<String, VolumeFile>),
    /// A volume that simulated nodes do not provide.
    NotProvided,
}

/// A file of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeFile {
    /// The content of the file.
    pub content: FileContent,
    /// The mode of the file.
    pub mode: u32,
}

/// The content of a file.
#[derive(Clone, PartialEq, Eq)]
pub enum FileContent {
    /// These bytes.
    Bytes(Bytes),
    /// A token of the pod's service account.
    Token {
        /// The audience of the token; the API server when empty.
        audience: String,
        /// How long the token is valid, in seconds.
        expiration_seconds: i64,
    },
}

impl std::fmt::Debug for FileContent {
    /// Formats the content without its bytes: they may be secret.
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(to, "{} bytes", bytes.len()),
            Self::Token { audience, .. } => write!(to, "token for {audience:?}"),
        }
    }
}

/// Returns the volumes of a pod and their content, by name.
///
/// # Errors
/// An object was not read yet, or a required one is missing; the message names the volume.
pub fn volumes(
    context: &ResolveContext<'_>,
) -> Result<BTreeMap<String, VolumeContent>, Unresolved> {
    let mut all = BTreeMap::new();
    let (mut size, mut count) = (0_usize, 0_usize);
    for volume in &context.pod.spec.volumes {
        let failed = |why: String| {
            let name = &volume.name;
            Unresolved::Invalid(format!("MountVolume.SetUp failed for volume {name:?} : {why}"))
        };
        let content = volume_content(context, volume).map_err(|error| match error {
            Unresolved::Pending => Unresolved::Pending,
            Unresolved::Invalid(why) => failed(why),
        })?;
        if let VolumeContent::Files(files) = &content {
            count += files.len();
            size += files.values().map(VolumeFile::size).sum::<usize>();
        }
        if size > MAX_POD_BYTES || count > MAX_POD_FILES {
            return Err(failed(format!(
                "the volumes of a pod on a simulated node may hold {MAX_POD_BYTES} bytes in \
                 {MAX_POD_FILES} files; mount fewer or smaller objects"
            )));
        }
        all.insert(volume.name.clone(), content);
    }
    Ok(all)
}

impl VolumeFile {
    fn size(&self) -> usize {
        match &self.content {
            FileContent::Bytes(bytes) => bytes.len(),
            FileContent::Token { .. } => 0,
        }
    }
}

/// The files that were added so far.
#[derive(Default)]
struct Files {
    files: BTreeMap<String, VolumeFile>,
    mode: u32,
}

impl Files {
    fn new(default_mode: Option<i32>) -> Self {
        Self { files: BTreeMap::new(), mode: mode_bits(default_mode).unwrap_or(DEFAULT_MODE) }
    }

    fn put(&mut self, path: &str, content: FileContent, mode: Option<i32>) -> Result<(), String> {
        let mode = mode_bits(mode).unwrap_or(self.mode);
        self.files.insert(checked_path(path)?, VolumeFile { content, mode });
        Ok(())
    }
}

fn mode_bits(mode: Option<i32>) -> Option<u32> {
    mode.and_then(|it| u32::try_from(it).ok()).map(|it| it & MODE_BITS)
}

fn volume_content(
    context: &ResolveContext<'_>,
    volume: &Volume,
) -> Result<VolumeContent, Unresolved> {
    use SourceKind::{ConfigMap, Secret};
    if volume.empty_dir.is_some() {
        return Ok(VolumeContent::Scratch);
    }
    let files = if let Some(it) = &volume.secret {
        let mut files = Files::new(it.default_mode);
        object_files(context, Secret, (&it.secret_name, it.optional), &it.items, &mut files)?;
        files
    } else if let Some(it) = &volume.config_map {
        let mut files = Files::new(it.default_mode);
        object_files(context, ConfigMap, (&it.name, it.optional), &it.items, &mut files)?;
        files
    } else if let Some(it) = &volume.downward_api {
        let mut files = Files::new(it.default_mode);
        downward_api_files(context, it, &mut files)?;
        files
    } else if let Some(it) = &volume.projected {
        let mut files = Files::new(it.default_mode);
        for source in &it.sources {
            projected_files(context, source, &mut files)?;
        }
        files
    } else {
        return Ok(VolumeContent::NotProvided);
    };
    Ok(VolumeContent::Files(files.files))
}

fn projected_files(
    context: &ResolveContext<'_>,
    source: &VolumeProjection,
    files: &mut Files,
) -> Result<(), Unresolved> {
    use SourceKind::{ConfigMap, Secret};
    let VolumeProjection {
        secret,
        config_map,
        downward_api,
        service_account_token,
        cluster_trust_bundle,
    } = source;
    if let Some(it) = secret {
        object_files(context, Secret, (&it.name, it.optional), &it.items, files)?;
    }
    if let Some(it) = config_map {
        object_files(context, ConfigMap, (&it.name, it.optional), &it.items, files)?;
    }
    if let Some(it) = downward_api {
        downward_api_files(context, it, files)?;
    }
    if let Some(ServiceAccountTokenProjection { audience, expiration_seconds, path }) =
        service_account_token
    {
        let expiration_seconds = expiration_seconds.unwrap_or(TOKEN_SECONDS);
        let token = FileContent::Token { audience: audience.clone(), expiration_seconds };
        files.put(path, token, None).map_err(Unresolved::Invalid)?;
    }
    if cluster_trust_bundle.is_some() {
        let fault = "clusterTrustBundle is not provided by simulated nodes: remove this source";
        return Err(Unresolved::Invalid(fault.to_owned()));
    }
    Ok(())
}

fn object_files(
    context: &ResolveContext<'_>,
    kind: SourceKind,
    (name, optional): (&str, bool),
    items: &[KeyToPath],
    files: &mut Files,
) -> Result<(), Unresolved> {
    let Some(data) = context.source_data(kind, name, optional)? else { return Ok(()) };
    if items.is_empty() {
        for (key, value) in data.iter() {
            let content = FileContent::Bytes(value.clone());
            files.put(checked_key(key)?, content, None).map_err(Unresolved::Invalid)?;
        }
    }
    for KeyToPath { key, path, mode } in items {
        match data.get(key) {
            Some(value) => {
                let content = FileContent::Bytes(value.clone());
                files.put(path, content, *mode).map_err(Unresolved::Invalid)?;
            }
            None if optional => {}
            None => {
                return Err(Unresolved::Invalid(match kind {
                    SourceKind::ConfigMap => {
                        format!("configmap references non-existent config key: {key}")
                    }
                    SourceKind::Secret => format!("references non-existent secret key: {key}"),
                }));
            }
        }
    }
    Ok(())
}

fn downward_api_files(
    context: &ResolveContext<'_>,
    volume: &DownwardApiVolumeSource,
    files: &mut Files,
) -> Result<(), Unresolved> {
    for DownwardApiVolumeFile { path, field_ref, resource_field_ref, mode } in &volume.items {
        let value = match (field_ref, resource_field_ref) {
            (Some(reference), _) => field(context.pod, reference)?,
            (None, Some(reference)) => resource(context, "", reference)?,
            (None, None) => {
                let fault = format!("the file {path:?} names neither a field nor a resource");
                return Err(Unresolved::Invalid(fault));
            }
        };
        let content = FileContent::Bytes(value.into());
        files.put(path, content, *mode).map_err(Unresolved::Invalid)?;
    }
    Ok(())
}

/// Returns a key that is a valid file name. API servers check that; a key that leaves the volume is
/// rejected here whatever the server accepted.
fn checked_key(key: &str) -> Result<&str, Unresolved> {
    match key.contains('/') {
        true => Err(Unresolved::Invalid(format!("the key {key:?} is not a file name"))),
        false => Ok(key),
    }
}

/// Returns a path that stays inside of the directory it is put below, in its shortest form.
///
/// # Errors
/// It is empty or absolute, names a parent directory, or is no path.
pub fn checked_path(path: &str) -> Result<String, String> {
    let refused = |why: &str| Err(format!("the path {path:?} {why}"));
    if path.starts_with('/') {
        return refused("is absolute: write one that is relative to the volume");
    }
    if path.contains('\0') || path.len() > 4096 {
        return refused("cannot be the path of a file");
    }
    let parts: Vec<&str> = path.split('/').filter(|it| !matches!(*it, "" | ".")).collect();
    // Names with two leading dots are those of the directories that files are swapped with.
    if parts.iter().any(|it| it.starts_with("..") || it.len() > 255) {
        return refused("has a part that begins with `..` or is too long");
    }
    if parts.is_empty() {
        return refused("names no file");
    }
    Ok(parts.join("/"))
}
