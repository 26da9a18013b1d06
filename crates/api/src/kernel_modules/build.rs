//! How a driver image is built, and how settings of two levels are merged.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::reference::{LocalReference, Tls};
use crate::finding::Findings;
use gantry_yaml::node::Path;

/// How to build an image that the registry does not have. On a kernel mapping these settings
/// override those of the container field by field; an empty object there means "build as the
/// container says".
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Build {
    /// The text of the Dockerfile. It is used as it is: kernel variables reach it as build
    /// arguments, through `ARG`. Exclusive with `dockerfileConfigMap`; a mapping that sets either
    /// of them overrides both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dockerfile: Option<String>,
    /// A ConfigMap in the namespace of the Module that holds the Dockerfile under the key
    /// `dockerfile`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dockerfile_config_map: Option<LocalReference>,
    /// A ConfigMap in the namespace of the Module whose entries are the files that `COPY` and `ADD`
    /// find, at most 1 MiB together. Larger sources are copied from an image. That of a mapping
    /// replaces that of the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_config_map: Option<LocalReference>,
    /// Build arguments. A mapping replaces the values of names that the container has and adds the
    /// others. Kernel variables are added to them unless an argument of the same name is here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub build_args: Vec<BuildArg>,
    /// How far registries are trusted when base images are pulled and when it is checked whether
    /// the image is there. A mapping replaces the object as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull: Option<Tls>,
    /// Where the result goes. A mapping replaces the object as a whole, except for `name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub push: Option<Push>,
    /// Secrets that the build may read, each mounted at `/run/secrets/<name>/`. Those of a mapping
    /// are added to those of the container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<LocalReference>,
    /// Labels of the nodes that builds run on; the selector of the Module by default.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub selector: BTreeMap<String, String>,
    /// The program that builds; set by the operator's configuration by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub builder: Option<Builder>,
    /// Whether to build at all; true by default. False on a mapping opts it out of the build that
    /// the container describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Whether an image that is there is built again after the Dockerfile, an argument or the base
    /// has changed; `never` by default, and then only an Event says that it is outdated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rebuild: Option<Rebuild>,
}

/// What happens to an image that was built from other inputs than those of now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Rebuild {
    /// It is left alone.
    #[default]
    Never,
    /// It is built again.
    OnChange,
}

/// A build argument.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BuildArg {
    /// Name of the argument: letters, digits and `_`, not starting with a digit.
    pub name: String,
    /// Value of the argument. Variables in it are not replaced.
    pub value: String,
}

/// Where the image that was built goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Push {
    /// The image to push to. `${CONTAINER_IMAGE}` by default; if the image is signed afterwards, a
    /// name of its own, so that the unsigned image is never taken for the signed one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How far the registry is trusted.
    #[serde(flatten)]
    pub tls: Tls,
}

/// A program that turns a Dockerfile into an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Builder {
    /// Buildah, without privileges.
    Buildah,
    /// Kaniko. Its project is archived.
    Kaniko,
}

/// The source of the Dockerfile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DockerfileSource<'a> {
    /// In the object; this is its text.
    Inline(&'a str),
    /// Under the key `dockerfile` of the ConfigMap with this name.
    ConfigMap(&'a str),
}

/// What is wrong with the text of a Dockerfile, wherever it is: it must name a base image. The rest
/// is for the builder to say.
#[must_use]
pub fn dockerfile_problem(text: &str) -> Option<&'static str> {
    let is_from = |line: &str| {
        line.split_whitespace().next().is_some_and(|word| word.eq_ignore_ascii_case("FROM"))
    };
    let found = text.lines().any(is_from);
    (!found).then_some("no FROM instruction; start with FROM image or FROM scratch")
}

impl Build {
    /// Returns the build settings of a mapping, given those of the container and its own; nothing
    /// if neither has any.
    #[must_use]
    pub fn merged(container: Option<&Self>, mapping: Option<&Self>) -> Option<Self> {
        let (container, mapping) = match (container, mapping) {
            (None, None) => return None,
            (Some(only), None) | (None, Some(only)) => return Some(only.clone()),
            (Some(container), Some(mapping)) => (container, mapping),
        };
        let source = if mapping.names_a_source() { mapping } else { container };
        let selector = if mapping.selector.is_empty() { container } else { mapping };
        Some(Self {
            dockerfile: source.dockerfile.clone(),
            dockerfile_config_map: source.dockerfile_config_map.clone(),
            context_config_map: mapping
                .context_config_map
                .as_ref()
                .or(container.context_config_map.as_ref())
                .cloned(),
            build_args: merged_args(&container.build_args, &mapping.build_args),
            pull: mapping.pull.or(container.pull),
            push: merged_push(container.push.as_ref(), mapping.push.as_ref()),
            secrets: merged_secrets(&container.secrets, &mapping.secrets),
            selector: selector.selector.clone(),
            builder: mapping.builder.or(container.builder),
            enabled: mapping.enabled.or(container.enabled),
            rebuild: mapping.rebuild.or(container.rebuild),
        })
    }

    /// Returns whether these settings lead to a build.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.enabled.unwrap_or(true)
    }

    /// Returns the source of the Dockerfile.
    ///
    /// # Errors
    /// The message of rule W-8, unless there is exactly one source.
    pub fn source(&self) -> Result<DockerfileSource<'_>, &'static str> {
        match (self.inline(), self.config_map()) {
            (Some(text), None) => Ok(DockerfileSource::Inline(text)),
            (None, Some(name)) => Ok(DockerfileSource::ConfigMap(name)),
            (None, None) => Err("set dockerfile or dockerfileConfigMap"),
            (Some(_), Some(_)) => Err("dockerfile and dockerfileConfigMap exclude each other"),
        }
    }

    fn inline(&self) -> Option<&str> {
        self.dockerfile.as_deref().filter(|text| !text.is_empty())
    }

    fn config_map(&self) -> Option<&str> {
        self.dockerfile_config_map.as_ref().map(|map| map.name.as_str()).filter(|n| !n.is_empty())
    }

    fn names_a_source(&self) -> bool {
        self.inline().is_some() || self.config_map().is_some()
    }

    /// Rule W-8, as far as the text of the Dockerfile is concerned. It must name a base image; the
    /// rest is for the builder to say.
    pub(super) fn check_dockerfile(&self, path: &Path, findings: &mut Findings) {
        if let Some(problem) = self.inline().and_then(dockerfile_problem) {
            findings.error(&path.key("dockerfile"), problem);
        }
    }

    /// Rule W-9, on one level: merging two levels cannot break it.
    pub(super) fn check_args(&self, path: &Path, findings: &mut Findings) {
        let mut seen = BTreeSet::new();
        for (index, arg) in self.build_args.iter().enumerate() {
            let path = path.key("buildArgs").index(index).key("name");
            if !is_variable_name(&arg.name) {
                findings.error(&path, "invalid build argument name");
            } else if !seen.insert(&arg.name) {
                findings.error(&path, format!("duplicate build argument \"{}\"", arg.name));
            }
        }
    }
}

fn is_variable_name(name: &str) -> bool {
    name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && name.bytes().next().is_some_and(|first| !first.is_ascii_digit())
}

/// Returns the container's arguments in their order, with the mapping's values, then those that
/// only the mapping has, by name: the order decides whether a builder may use its cache.
fn merged_args(container: &[BuildArg], mapping: &[BuildArg]) -> Vec<BuildArg> {
    let mut own: BTreeMap<&str, &BuildArg> =
        mapping.iter().map(|arg| (arg.name.as_str(), arg)).collect();
    let mut merged: Vec<BuildArg> =
        container.iter().map(|arg| own.remove(arg.name.as_str()).unwrap_or(arg).clone()).collect();
    merged.extend(own.into_values().cloned());
    merged
}

fn merged_push(container: Option<&Push>, mapping: Option<&Push>) -> Option<Push> {
    let mut push = mapping.or(container)?.clone();
    if push.name.is_none() {
        push.name = container.and_then(|container| container.name.clone());
    }
    Some(push)
}

fn merged_secrets(container: &[LocalReference], mapping: &[LocalReference]) -> Vec<LocalReference> {
    let mut seen = BTreeSet::new();
    container.iter().chain(mapping).filter(|secret| seen.insert(&secret.name)).cloned().collect()
}
