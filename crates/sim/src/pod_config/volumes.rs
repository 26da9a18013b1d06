//! The files of volumes that nodes make of objects.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::fields::{field, resource};
use super::{Surroundings, Unresolved};
use crate::view::{
    DownwardFile, DownwardVolume, KeyPath, Projection, SourceKind, TokenFile, Volume,
};

/// What the files of one pod may take together. The objects of one volume are bounded by the API server;
/// a pod may name many of them.
pub const MAX_POD_BYTES: usize = 16 << 20;
/// How many files a pod may have.
const MAX_POD_FILES: usize = 4096;
/// The mode of files that say none, as API servers fill it in.
const DEFAULT_MODE: u32 = 0o644;
/// The bits of a mode that files here may have: none that lend rights.
const MODE_BITS: u32 = 0o777;
/// For how long a token is good that does not say.
const TOKEN_SECONDS: i64 = 3600;

/// What a volume holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeContent {
    /// Nothing at first; containers write there.
    Scratch,
    /// These files, by path. They are replaced when their sources change.
    Files(BTreeMap<String, VolumeFile>),
    /// Something that simulated nodes do not provide.
    NotProvided,
}

/// A file of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeFile {
    /// What is in it.
    pub content: FileContent,
    /// Its mode.
    pub mode: u32,
}

/// What is in a file.
#[derive(Clone, PartialEq, Eq)]
pub enum FileContent {
    /// These bytes.
    Bytes(Bytes),
    /// A token of the pod's account.
    Token {
        /// For whom it is meant; the API server when empty.
        audience: String,
        /// For how long it is good, in seconds.
        expiration_seconds: i64,
    },
}

impl std::fmt::Debug for FileContent {
    /// Without the bytes: they may be secret.
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(to, "{} bytes", bytes.len()),
            Self::Token { audience, .. } => write!(to, "token for {audience:?}"),
        }
    }
}

/// The volumes of a pod and what they hold, by name.
///
/// # Errors
/// An object was not read yet, or something that must be there is missing; the words name the volume.
pub fn volumes(around: &Surroundings<'_>) -> Result<BTreeMap<String, VolumeContent>, Unresolved> {
    let mut all = BTreeMap::new();
    let (mut size, mut count) = (0_usize, 0_usize);
    for volume in &around.pod.spec.volumes {
        let failed = |why: String| {
            let name = &volume.name;
            Unresolved::Fault(format!("MountVolume.SetUp failed for volume {name:?} : {why}"))
        };
        let content = content(around, volume).map_err(|error| match error {
            Unresolved::Pending => Unresolved::Pending,
            Unresolved::Fault(why) => failed(why),
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

/// Files as they are added.
#[derive(Default)]
struct Files {
    files: BTreeMap<String, VolumeFile>,
    mode: u32,
}

impl Files {
    fn new(default_mode: Option<i32>) -> Self {
        Self { files: BTreeMap::new(), mode: bits(default_mode).unwrap_or(DEFAULT_MODE) }
    }

    fn put(&mut self, path: &str, content: FileContent, mode: Option<i32>) -> Result<(), String> {
        let mode = bits(mode).unwrap_or(self.mode);
        self.files.insert(checked_path(path)?, VolumeFile { content, mode });
        Ok(())
    }
}

fn bits(mode: Option<i32>) -> Option<u32> {
    mode.and_then(|it| u32::try_from(it).ok()).map(|it| it & MODE_BITS)
}

fn content(around: &Surroundings<'_>, volume: &Volume) -> Result<VolumeContent, Unresolved> {
    use SourceKind::{ConfigMap, Secret};
    if volume.empty_dir.is_some() {
        return Ok(VolumeContent::Scratch);
    }
    let files = if let Some(it) = &volume.secret {
        let mut files = Files::new(it.default_mode);
        object(around, Secret, (&it.secret_name, it.optional), &it.items, &mut files)?;
        files
    } else if let Some(it) = &volume.config_map {
        let mut files = Files::new(it.default_mode);
        object(around, ConfigMap, (&it.name, it.optional), &it.items, &mut files)?;
        files
    } else if let Some(it) = &volume.downward_api {
        let mut files = Files::new(it.default_mode);
        downward(around, it, &mut files)?;
        files
    } else if let Some(it) = &volume.projected {
        let mut files = Files::new(it.default_mode);
        for source in &it.sources {
            project(around, source, &mut files)?;
        }
        files
    } else {
        return Ok(VolumeContent::NotProvided);
    };
    Ok(VolumeContent::Files(files.files))
}

fn project(
    around: &Surroundings<'_>,
    source: &Projection,
    files: &mut Files,
) -> Result<(), Unresolved> {
    use SourceKind::{ConfigMap, Secret};
    let Projection {
        secret,
        config_map,
        downward_api,
        service_account_token,
        cluster_trust_bundle,
    } = source;
    if let Some(it) = secret {
        object(around, Secret, (&it.name, it.optional), &it.items, files)?;
    }
    if let Some(it) = config_map {
        object(around, ConfigMap, (&it.name, it.optional), &it.items, files)?;
    }
    if let Some(it) = downward_api {
        downward(around, it, files)?;
    }
    if let Some(TokenFile { audience, expiration_seconds, path }) = service_account_token {
        let expiration_seconds = expiration_seconds.unwrap_or(TOKEN_SECONDS);
        let token = FileContent::Token { audience: audience.clone(), expiration_seconds };
        files.put(path, token, None).map_err(Unresolved::Fault)?;
    }
    if cluster_trust_bundle.is_some() {
        let fault = "clusterTrustBundle is not provided by simulated nodes: remove this source";
        return Err(Unresolved::Fault(fault.to_owned()));
    }
    Ok(())
}

fn object(
    around: &Surroundings<'_>,
    kind: SourceKind,
    (name, optional): (&str, bool),
    items: &[KeyPath],
    files: &mut Files,
) -> Result<(), Unresolved> {
    let Some(data) = around.object(kind, name, optional)? else { return Ok(()) };
    if items.is_empty() {
        for (key, value) in data.iter() {
            let content = FileContent::Bytes(value.clone());
            files.put(checked_key(key)?, content, None).map_err(Unresolved::Fault)?;
        }
    }
    for KeyPath { key, path, mode } in items {
        match data.get(key) {
            Some(value) => {
                let content = FileContent::Bytes(value.clone());
                files.put(path, content, *mode).map_err(Unresolved::Fault)?;
            }
            None if optional => {}
            None => {
                return Err(Unresolved::Fault(match kind {
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

fn downward(
    around: &Surroundings<'_>,
    volume: &DownwardVolume,
    files: &mut Files,
) -> Result<(), Unresolved> {
    for DownwardFile { path, field_ref, resource_field_ref, mode } in &volume.items {
        let value = match (field_ref, resource_field_ref) {
            (Some(reference), _) => field(around.pod, reference)?,
            (None, Some(reference)) => resource(around, "", reference)?,
            (None, None) => {
                let fault = format!("the file {path:?} names neither a field nor a resource");
                return Err(Unresolved::Fault(fault));
            }
        };
        let content = FileContent::Bytes(value.into());
        files.put(path, content, *mode).map_err(Unresolved::Fault)?;
    }
    Ok(())
}

/// A key that is a name of a file. API servers check that; a key that leaves the volume is refused here
/// whatever the server let through.
fn checked_key(key: &str) -> Result<&str, Unresolved> {
    match key.contains('/') {
        true => Err(Unresolved::Fault(format!("the key {key:?} is no name of a file"))),
        false => Ok(key),
    }
}

/// A path that stays inside of the directory it is put below, in its shortest form.
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
    // Names with two dots in front are those of the directories that files are swapped with.
    if parts.iter().any(|it| it.starts_with("..") || it.len() > 255) {
        return refused("has a part that begins with `..` or is too long");
    }
    if parts.is_empty() {
        return refused("names no file");
    }
    Ok(parts.join("/"))
}
