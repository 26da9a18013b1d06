//! Decides whether a definition in the cluster is set to what a commit wants, left alone, or must
//! not be changed.
//!
//! The list of versions in a definition is replaced as a whole, so a commit that knows one version
//! can remove the version of another. Everything here avoids that unless the user asks for it.
//! Every apply names the revision it was decided from, so that a concurrent change is detected.

use serde::Serialize;
use serde_json::{Value, json};

use crate::definition::{Definition, list, text};
use crate::manifest::Manifest;
use crate::merge::would_change;

/// When a definition is applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ApplyMode {
    /// If it does not exist or lacks the version that the commit uses.
    #[default]
    IfVersionMissing,
    /// If it does not exist or differs. The only mode in which a version that is still in
    /// development can be changed.
    IfDiffers,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// What happens to versions that are in the cluster and not in the commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForeignVersions {
    /// Nothing is applied that would remove one.
    #[default]
    Refuse,
    /// They are kept.
    Keep,
    /// They are removed, as far as the server allows it.
    Remove,
}

/// What to do about one definition.
#[derive(Clone, Debug, PartialEq)]
pub enum ApplyDecision {
    /// Nothing.
    Leave(SkipReason),
    /// This object is applied, with force.
    Apply(PlannedApply),
    /// Nothing, although the commit wants something else.
    Refuse(ApplyRefusal),
    /// It is terminating: decide again when it is deleted.
    Wait,
}

/// Why a definition is left alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SkipReason {
    /// It has the version, with any content.
    VersionPresent(String),
    /// It is as wanted.
    Same,
    /// Nothing may be applied.
    Never,
}

impl std::fmt::Display for SkipReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::VersionPresent(version) => write!(f, "it has version {version}"),
            Self::Same => f.write_str("it is up to date"),
            Self::Never => f.write_str("nothing is applied in this mode"),
        }
    }
}

/// An apply of a definition.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedApply {
    /// The object, with the revision that it may replace.
    pub object: Value,
    /// Why.
    pub why: ApplyReason,
    /// The versions that it removes.
    pub removes: Vec<String>,
}

/// Why a definition is applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApplyReason {
    /// It does not exist.
    NotFound,
    /// It lacks the version.
    VersionMissing(String),
    /// It differs.
    Differs,
    /// The mode is to apply always.
    Always,
}

impl std::fmt::Display for ApplyReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotFound => f.write_str("it did not exist"),
            Self::VersionMissing(version) => write!(f, "it lacked version {version}"),
            Self::Differs => f.write_str("it differed"),
            Self::Always => f.write_str("it is always applied in this mode"),
        }
    }
}

/// Why a definition must not be changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all_fields = "camelCase")]
pub enum ApplyRefusal {
    /// It would remove versions that the commit does not know and others may use.
    RemovesVersions {
        /// Those versions.
        versions: Vec<String>,
        /// The version that the commit uses.
        wanted: String,
    },
    /// Objects may be stored in versions that would be removed. A server refuses that too.
    Stored {
        /// Those versions.
        versions: Vec<String>,
    },
}

impl std::fmt::Display for ApplyRefusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::RemovesVersions { versions, wanted } => write!(
                f,
                "setting it to version {wanted} would remove {}, which others may use: keep them \
                 with --merge-versions, or remove them with --allow-version-removal",
                versions.join(", ")
            ),
            Self::Stored { versions } => write!(
                f,
                "objects may be stored in {}, so no server removes it: rewrite every object in \
                 another version, then remove it from status.storedVersions; or keep it with \
                 --merge-versions",
                versions.join(", ")
            ),
        }
    }
}

/// The revision for an object that must not exist yet. A server ignores it on create, and refuses
/// the apply when the object was created in the meantime: no object has the first revision.
const NEVER_EXISTING_REVISION: &str = "1";

/// Decides about one definition.
#[must_use]
pub fn decide(
    wanted: &Manifest,
    found: Option<&Value>,
    mode: ApplyMode,
    foreign: ForeignVersions,
) -> ApplyDecision {
    if mode == ApplyMode::Never {
        return ApplyDecision::Leave(SkipReason::Never);
    }
    let Some(found) = found else {
        let object = fenced(wanted.object().clone(), NEVER_EXISTING_REVISION);
        return ApplyDecision::Apply(PlannedApply {
            object,
            why: ApplyReason::NotFound,
            removes: Vec::new(),
        });
    };
    let present = Definition::read(found);
    if present.terminating {
        return ApplyDecision::Wait;
    }
    let missing = !present.has(wanted.version());
    if mode == ApplyMode::IfVersionMissing && !missing {
        return ApplyDecision::Leave(SkipReason::VersionPresent(wanted.version().to_owned()));
    }
    let mut object = wanted.object().clone();
    if foreign == ForeignVersions::Keep {
        object["spec"]["versions"] = merged_versions(wanted, found);
    }
    let stays = |name: &str| list(&object, "/spec/versions").iter().any(|it| it["name"] == name);
    let names = present.versions.iter().map(|it| it.name.clone());
    let removes: Vec<String> = names.filter(|name| !stays(name)).collect();
    if !removes.is_empty() && foreign == ForeignVersions::Refuse {
        let wanted = wanted.version().to_owned();
        return ApplyDecision::Refuse(ApplyRefusal::RemovesVersions { versions: removes, wanted });
    }
    let stored = removes.iter().filter(|name| present.stored.contains(name));
    let stored: Vec<String> = stored.cloned().collect();
    if !stored.is_empty() {
        return ApplyDecision::Refuse(ApplyRefusal::Stored { versions: stored });
    }
    let why = match mode {
        _ if missing => ApplyReason::VersionMissing(wanted.version().to_owned()),
        ApplyMode::IfDiffers if !would_change(&found["spec"], &object["spec"]) => {
            return ApplyDecision::Leave(SkipReason::Same);
        }
        ApplyMode::IfDiffers => ApplyReason::Differs,
        ApplyMode::Always | ApplyMode::IfVersionMissing | ApplyMode::Never => ApplyReason::Always,
    };
    let object = fenced(object, &present.resource_version);
    ApplyDecision::Apply(PlannedApply { object, why, removes })
}

fn fenced(mut object: Value, revision: &str) -> Value {
    object["metadata"]["resourceVersion"] = json!(revision);
    object
}

/// The versions of the cluster in their order, with those of the commit in their place or after
/// them.
///
/// If objects are stored in a version that the commit does not know, that stays the storage
/// version: it concerns the objects of all users, and is not decided by the last one to apply.
fn merged_versions(wanted: &Manifest, found: &Value) -> Value {
    let foreign = |version: &Value| !wanted.has(text(version, "/name"));
    let mut versions: Vec<Value> = Vec::new();
    for version in list(found, "/spec/versions") {
        let own = wanted.versions().iter().find(|it| it["name"] == version["name"]);
        versions.push(own.unwrap_or(version).clone());
    }
    for version in wanted.versions() {
        if !versions.iter().any(|it| it["name"] == version["name"]) {
            versions.push(version.clone());
        }
    }
    if versions.iter().any(|it| foreign(it) && it["storage"] == true) {
        for version in versions.iter_mut().filter(|it| !foreign(it)) {
            version["storage"] = json!(false);
        }
    }
    Value::Array(versions)
}

#[cfg(test)]
mod tests;
