//! Whether a definition in the cluster is set to what a commit wants, left alone, or must not be
//! touched.
//!
//! The list of versions in a definition is replaced as a whole, so a commit that knows one version can
//! take away the version of another. Everything here is about not doing that unasked. Whatever is
//! applied names the revision it was decided from, so that somebody who came in between is seen.

use serde::Serialize;
use serde_json::{Value, json};

use crate::definition::{Definition, list, text};
use crate::manifest::Manifest;
use crate::merge::would_change;

/// When a definition is applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// If it is absent or lacks the version that the commit uses.
    #[default]
    IfVersionMissing,
    /// If it is absent or says something else. The only mode in which a version that is still being
    /// worked on can be changed.
    IfDiffers,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// What becomes of versions that are in the cluster and not in the commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Foreign {
    /// Nothing is applied that would take one away.
    #[default]
    Refuse,
    /// They are kept.
    Keep,
    /// They go, as far as the server lets them.
    Remove,
}

/// What is to be done about one definition.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Nothing.
    Leave(Left),
    /// This object is applied, with force.
    Apply(Apply),
    /// Nothing, though the commit wants something else.
    Refuse(Refusal),
    /// It is being deleted: look again when it is gone.
    Wait,
}

/// Why a definition is left alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Left {
    /// The version is there, whatever its contents.
    VersionPresent(String),
    /// It is as wanted.
    Same,
    /// Nothing may be applied.
    Never,
}

impl std::fmt::Display for Left {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::VersionPresent(version) => write!(f, "it has version {version}"),
            Self::Same => f.write_str("it is as wanted"),
            Self::Never => f.write_str("nothing is applied in this mode"),
        }
    }
}

/// What is applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Apply {
    /// The object, which names the revision it may replace.
    pub object: Value,
    /// Why.
    pub why: Why,
    /// The versions that go with it.
    pub removes: Vec<String>,
}

/// Why a definition is applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// There is none.
    Absent,
    /// It lacks the version.
    VersionMissing(String),
    /// It says something else.
    Differs,
    /// It was asked for.
    Always,
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Absent => f.write_str("it was absent"),
            Self::VersionMissing(version) => write!(f, "it lacked version {version}"),
            Self::Differs => f.write_str("it differed"),
            Self::Always => f.write_str("it is always applied in this mode"),
        }
    }
}

/// Why a definition must not be touched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all_fields = "camelCase")]
pub enum Refusal {
    /// Somebody uses versions that the commit does not know.
    RemovesVersions {
        /// Those versions.
        versions: Vec<String>,
        /// The version that the commit uses.
        wanted: String,
    },
    /// Objects may be stored in versions that would go. A server refuses that too.
    Stored {
        /// Those versions.
        versions: Vec<String>,
    },
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::RemovesVersions { versions, wanted } => write!(
                f,
                "setting it to version {wanted} would remove {}, which others may use: keep them \
                 with --merge-versions, or give them up with --allow-version-removal",
                versions.join(", ")
            ),
            Self::Stored { versions } => write!(
                f,
                "objects may be stored in {}, so no server lets it go: store every object anew in \
                 another version, then take it out of status.storedVersions; or keep it with \
                 --merge-versions",
                versions.join(", ")
            ),
        }
    }
}

/// The revision of an object that must not exist yet. A server takes no notice of it when it creates,
/// and refuses when somebody else was quicker: no object has the first revision.
const NOT_THERE: &str = "1";

/// Decides about one definition.
#[must_use]
pub fn decide(wanted: &Manifest, found: Option<&Value>, mode: Mode, foreign: Foreign) -> Decision {
    if mode == Mode::Never {
        return Decision::Leave(Left::Never);
    }
    let Some(found) = found else {
        let object = fenced(wanted.object().clone(), NOT_THERE);
        return Decision::Apply(Apply { object, why: Why::Absent, removes: Vec::new() });
    };
    let present = Definition::read(found);
    if present.terminating {
        return Decision::Wait;
    }
    let missing = !present.has(wanted.version());
    if mode == Mode::IfVersionMissing && !missing {
        return Decision::Leave(Left::VersionPresent(wanted.version().to_owned()));
    }
    let mut object = wanted.object().clone();
    if foreign == Foreign::Keep {
        object["spec"]["versions"] = together(wanted, found);
    }
    let stays = |name: &str| list(&object, "/spec/versions").iter().any(|it| it["name"] == name);
    let names = present.versions.iter().map(|it| it.name.clone());
    let removes: Vec<String> = names.filter(|name| !stays(name)).collect();
    if !removes.is_empty() && foreign == Foreign::Refuse {
        let wanted = wanted.version().to_owned();
        return Decision::Refuse(Refusal::RemovesVersions { versions: removes, wanted });
    }
    let stored = removes.iter().filter(|name| present.stored.contains(name));
    let stored: Vec<String> = stored.cloned().collect();
    if !stored.is_empty() {
        return Decision::Refuse(Refusal::Stored { versions: stored });
    }
    let why = match mode {
        _ if missing => Why::VersionMissing(wanted.version().to_owned()),
        Mode::IfDiffers if !would_change(&found["spec"], &object["spec"]) => {
            return Decision::Leave(Left::Same);
        }
        Mode::IfDiffers => Why::Differs,
        Mode::Always | Mode::IfVersionMissing | Mode::Never => Why::Always,
    };
    let object = fenced(object, &present.resource_version);
    Decision::Apply(Apply { object, why, removes })
}

fn fenced(mut object: Value, revision: &str) -> Value {
    object["metadata"]["resourceVersion"] = json!(revision);
    object
}

/// The versions of the cluster in their order, those of the commit in their place or after them.
///
/// If objects are stored in a version that the commit does not know, that stays so: to be stored
/// otherwise is for everybody's objects, and not for whoever comes last.
fn together(wanted: &Manifest, found: &Value) -> Value {
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
