//! What one Module means for one kernel: which mapping, which images, what is built and signed.
//!
//! [`KernelPlan::of`] is the only place where mappings are matched, settings merged and variables
//! replaced. Everything that acts on a kernel reads its result: the pipeline, DaemonSets, `gantry
//! explain`.

use std::collections::{BTreeMap, BTreeSet};

use gantry_api::kernel_modules::{
    Build, Builder, DockerfileSource, ExistingSignature, HashAlgorithm, LoaderContainer,
    ModuleSpec, Rebuild, Sign, SignedImage, Template, TemplateError, Tls, UndefinedVariable,
    UnsignedImage,
};
use gantry_kmod::KernelRelease;
use gantry_kmod::release::tag_safe;
use gantry_oci::{Digest, Reference, ReferenceError, Tag};
use gantry_reconcile::Key;

use crate::labels::{KERNEL_LABEL, NFD_KERNEL_LABEL};
use crate::settings::EnabledStages;

/// What a Module means for one kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelPlan {
    /// The kernel.
    pub kernel: KernelRelease,
    /// The index of the mapping that matches it.
    pub mapping: usize,
    /// The image that the mapping names: `${CONTAINER_IMAGE}`.
    pub target_image: String,
    /// How it is built, if it is.
    pub build: Option<BuildStage>,
    /// How it is signed, if it is.
    pub sign: Option<SignStage>,
    /// How far the registry of the final image is trusted.
    pub registry_tls: Tls,
    /// In-tree modules that are unloaded first.
    pub in_tree_modules: Vec<String>,
    /// Build arguments of the user that replace variables of the kernel.
    pub shadowed_variables: Vec<String>,
    /// Whether an image that was made from other inputs is made again.
    pub rebuilds_outdated: bool,
    /// Stages of the Module that do not run here, such as on a spoke.
    pub disabled_stages: Vec<&'static str>,
}

/// How an image is built.
#[derive(Clone, Debug, PartialEq)]
pub struct BuildStage {
    /// The image that is pushed.
    pub output: String,
    /// Where the Dockerfile is.
    pub dockerfile: Dockerfile,
    /// The build arguments: those of the user, then the variables, sorted.
    pub arguments: Vec<(String, String)>,
    /// How far the registries of base images are trusted.
    pub pull: Tls,
    /// How far the registry of the output is trusted.
    pub push: Tls,
    /// A ConfigMap whose entries are files of the build context.
    pub context_config_map: Option<String>,
    /// Secrets that are mounted into the build.
    pub secrets: Vec<String>,
    /// The labels of nodes that the build runs on.
    pub node_selector: BTreeMap<String, String>,
    /// The builder, if it is not the configured one.
    pub builder: Option<Builder>,
}

/// Where a Dockerfile is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dockerfile {
    /// In the Module.
    Inline(String),
    /// In a ConfigMap of the Module's namespace, under the key `dockerfile`.
    ConfigMap(String),
}

/// How an image is signed.
#[derive(Clone, Debug, PartialEq)]
pub struct SignStage {
    /// The image that is pulled.
    pub input: String,
    /// How far its registry is trusted.
    pub pull: Tls,
    /// The image that is pushed.
    pub output: String,
    /// How far its registry is trusted.
    pub push: Tls,
    /// The Secret with credentials for the push, if there is one of its own.
    pub push_secret: Option<String>,
    /// The Secret with the private key.
    pub key_secret: String,
    /// The Secret with the certificate.
    pub cert_secret: String,
    /// The files, as patterns.
    pub files: Vec<String>,
    /// The digest of signatures.
    pub hash_algorithm: HashAlgorithm,
    /// What is done about signatures that files have.
    pub existing_signature: ExistingSignature,
}

/// Why a Module has no plan for a kernel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KernelError {
    /// The mapping is invalid.
    #[error("kernelMappings[{index}]: {why}")]
    Mapping {
        /// Which one.
        index: usize,
        /// Why.
        why: String,
    },
    /// A field is no template.
    #[error("{field}: {source}")]
    Template {
        /// The field.
        field: &'static str,
        /// Why.
        source: TemplateError,
    },
    /// A variable of a field has no value for this kernel.
    #[error("{field} \"{text}\": {source}, or map kernel {kernel} to an image without it")]
    Undefined {
        /// The field.
        field: &'static str,
        /// The template.
        text: String,
        /// The kernel.
        kernel: String,
        /// Which variable.
        source: UndefinedVariable,
    },
    /// A field is no image once its variables are replaced.
    #[error("{field}: {source}")]
    Image {
        /// The field.
        field: &'static str,
        /// Why.
        source: ReferenceError,
    },
    /// An image has neither tag nor digest.
    #[error("{field}: image \"{image}\" needs an explicit tag or digest")]
    NoTag {
        /// The field.
        field: &'static str,
        /// The image.
        image: String,
    },
    /// A stage would push to a digest.
    #[error("{field}: cannot push to a digest: \"{image}\"; name a tag")]
    PushToDigest {
        /// The field.
        field: &'static str,
        /// The image.
        image: String,
    },
    /// The mapping has no image.
    #[error("kernelMappings[{0}]: no containerImage here and none at container level")]
    NoImage(usize),
    /// There is nothing to sign.
    #[error("sign: nothing to sign; set unsignedImage, or build")]
    NothingToSign,
    /// What is built is not what is signed.
    #[error("sign.unsignedImage \"{unsigned}\" differs from build.push.name \"{built}\"")]
    DifferentUnsignedImage {
        /// The image to sign.
        unsigned: String,
        /// The image that is built.
        built: String,
    },
    /// A stage lacks a setting.
    #[error("{field}: {why}")]
    Missing {
        /// The field.
        field: &'static str,
        /// What.
        why: String,
    },
}

impl KernelError {
    /// The reason of the event about it.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Template { .. } | Self::Undefined { .. } => "TemplateError",
            Self::Mapping { .. }
            | Self::Image { .. }
            | Self::NoTag { .. }
            | Self::PushToDigest { .. }
            | Self::NoImage(_)
            | Self::NothingToSign
            | Self::DifferentUnsignedImage { .. }
            | Self::Missing { .. } => "InvalidSpec",
        }
    }
}

impl KernelPlan {
    /// Plans a Module for a kernel; `None` if no mapping matches it.
    ///
    /// # Errors
    /// The mapping that matches cannot be used for this kernel.
    pub fn of(
        module: &Key,
        spec: &ModuleSpec,
        kernel: &KernelRelease,
    ) -> Result<Option<Self>, KernelError> {
        let Some(driver) = &spec.driver_container else { return Ok(None) };
        let container = &driver.container;
        let Some(index) = matching(container, kernel.as_str())? else { return Ok(None) };
        let mapping = &container.kernel_mappings[index];
        let values = Values::new(module, kernel);
        let image = container.image_of(mapping).ok_or(KernelError::NoImage(index))?;
        let target = values.image("containerImage", image)?;
        let values = values.with_image(&target);
        let build = container.build_of(mapping);
        let sign = container.sign_of(mapping);
        let registry_tls = container.registry_tls_of(mapping);
        let rebuild = build.as_ref().and_then(|it| it.rebuild).unwrap_or_default();
        let (build, shadowed_variables) = match &build {
            Some(build) => {
                // Builds need not run on nodes with the kernel.
                let mut selector = spec.selector.clone();
                selector.retain(|key, _| ![KERNEL_LABEL, NFD_KERNEL_LABEL].contains(&key.as_str()));
                let (mut stage, shadowed) =
                    values.build(build, sign.is_some(), selector, module)?;
                stage.push = registry_tls.unwrap_or(stage.push);
                (Some(stage), shadowed)
            }
            None => (None, Vec::new()),
        };
        let sign = match &sign {
            Some(sign) => Some(values.sign(sign, build.as_ref(), registry_tls)?),
            None => None,
        };
        let registry_tls = registry_tls.unwrap_or_else(|| {
            let stages = build.iter().flat_map(|it| [it.pull, it.push]);
            stages.chain(sign.iter().map(|it| it.push)).fold(Tls::default(), weaker)
        });
        Ok(Some(Self {
            kernel: kernel.clone(),
            mapping: index,
            target_image: target,
            build,
            sign,
            registry_tls,
            in_tree_modules: container.in_tree_modules_of(mapping).to_vec(),
            shadowed_variables,
            rebuilds_outdated: rebuild == Rebuild::OnChange,
            disabled_stages: Vec::new(),
        }))
    }

    /// The plan where only some stages run: the others are ignored, as if the Module had none.
    #[must_use]
    pub fn limited_to(mut self, stages: EnabledStages) -> Self {
        if !stages.build && self.build.take().is_some() {
            self.disabled_stages.push("build");
        }
        if !stages.sign && self.sign.take().is_some() {
            self.disabled_stages.push("sign");
        }
        self
    }

    /// The image that driver containers run: the output of the last stage.
    #[must_use]
    pub fn final_image(&self) -> &str {
        match (&self.sign, &self.build) {
            (Some(sign), _) => &sign.output,
            (None, Some(build)) => &build.output,
            (None, None) => &self.target_image,
        }
    }
}

/// The index of the first mapping that matches a kernel.
fn matching(container: &LoaderContainer, kernel: &str) -> Result<Option<usize>, KernelError> {
    for (index, mapping) in container.kernel_mappings.iter().enumerate() {
        if mapping.matches(kernel).map_err(|why| KernelError::Mapping { index, why })? {
            return Ok(Some(index));
        }
    }
    Ok(None)
}

/// The variables of one Module and kernel.
struct Values<'a> {
    kernel: &'a KernelRelease,
    /// As they are.
    raw: BTreeMap<&'static str, String>,
    target: String,
}

impl<'a> Values<'a> {
    fn new(module: &Key, kernel: &'a KernelRelease) -> Self {
        let mut raw = kernel.variables();
        raw.insert("MOD_NAME", module.name().to_owned());
        raw.insert("MOD_NAMESPACE", module.namespace().to_owned());
        Self { kernel, raw, target: String::new() }
    }

    fn with_image(mut self, target: &str) -> Self {
        self.raw.insert("CONTAINER_IMAGE", target.to_owned());
        target.clone_into(&mut self.target);
        self
    }

    fn render(
        &self,
        field: &'static str,
        text: &str,
        value: impl Fn(&str) -> Option<String>,
    ) -> Result<String, KernelError> {
        let template =
            Template::parse(text).map_err(|source| KernelError::Template { field, source })?;
        template.render(value).map_err(|source| KernelError::Undefined {
            field,
            text: text.to_owned(),
            kernel: self.kernel.to_string(),
            source,
        })
    }

    /// An image with its variables replaced; values of the kernel are made safe for tags.
    fn image(&self, field: &'static str, text: &str) -> Result<String, KernelError> {
        let value = |name: &str| {
            let raw = self.raw.get(name)?;
            Some(if name.starts_with("KERNEL_") { tag_safe(raw) } else { raw.clone() })
        };
        let image = self.render(field, text, value)?;
        let parsed: Reference =
            image.parse().map_err(|source| KernelError::Image { field, source })?;
        match parsed.tag().is_none() && parsed.digest().is_none() {
            true => Err(KernelError::NoTag { field, image }),
            false => Ok(image),
        }
    }

    /// The image that a stage pushes.
    fn pushed_image(&self, field: &'static str, text: &str) -> Result<String, KernelError> {
        push_target(field, self.image(field, text)?)
    }

    fn build(
        &self,
        build: &Build,
        signed: bool,
        module_selector: BTreeMap<String, String>,
        module: &Key,
    ) -> Result<(BuildStage, Vec<String>), KernelError> {
        const FIELD: &str = "build.push.name";
        let dockerfile = match build.source() {
            Ok(DockerfileSource::Inline(text)) => Dockerfile::Inline(text.to_owned()),
            Ok(DockerfileSource::ConfigMap(name)) => Dockerfile::ConfigMap(name.to_owned()),
            Err(why) => return Err(KernelError::Missing { field: "build", why: why.to_owned() }),
        };
        let name = build.push.as_ref().and_then(|push| push.name.as_deref());
        let output = match name.filter(|name| !name.is_empty()) {
            Some(name) => self.pushed_image(FIELD, name)?,
            None => {
                let target = push_target(FIELD, self.target.clone())?;
                if signed { unsigned_name(&reference(FIELD, &target)?, module) } else { target }
            }
        };
        let named: BTreeSet<&str> = build.build_args.iter().map(|it| it.name.as_str()).collect();
        let own = build.build_args.iter().map(|it| (it.name.clone(), it.value.clone()));
        let defaults = self.raw.iter().filter(|(name, _)| !named.contains(**name));
        let defaults = defaults.map(|(name, value)| ((*name).to_owned(), value.clone()));
        let arguments = own.chain(defaults).collect();
        let shadowed = named.iter().filter(|it| it.starts_with("KERNEL_"));
        let shadowed = shadowed.filter(|it| self.raw.contains_key(**it));
        let shadowed = shadowed.map(|it| (*it).to_owned()).collect();
        let selector =
            if build.selector.is_empty() { module_selector } else { build.selector.clone() };
        let stage = BuildStage {
            output,
            dockerfile,
            arguments,
            pull: build.pull.unwrap_or_default(),
            push: build.push.as_ref().map(|push| push.tls).unwrap_or_default(),
            context_config_map: build.context_config_map.as_ref().map(|it| it.name.clone()),
            secrets: build.secrets.iter().map(|it| it.name.clone()).collect(),
            node_selector: selector,
            builder: build.builder,
        };
        Ok((stage, shadowed))
    }

    fn sign(
        &self,
        sign: &Sign,
        build: Option<&BuildStage>,
        registry_tls: Option<Tls>,
    ) -> Result<SignStage, KernelError> {
        let named = |image: &Option<UnsignedImage>| {
            image.as_ref().filter(|it| !it.name.is_empty()).cloned()
        };
        let (input, pull) = match (named(&sign.unsigned_image), build) {
            (Some(unsigned), build) => {
                let image = self.image("sign.unsignedImage", &unsigned.name)?;
                if let Some(built) = build.filter(|it| it.output != image) {
                    let built = built.output.clone();
                    return Err(KernelError::DifferentUnsignedImage { unsigned: image, built });
                }
                (image, unsigned.tls)
            }
            (None, Some(build)) => (build.output.clone(), build.push),
            (None, None) => return Err(KernelError::NothingToSign),
        };
        let SignedImage { mut name, push_secret_ref, tls } =
            sign.signed_image.clone().unwrap_or_default();
        if name.is_empty() {
            "${CONTAINER_IMAGE}".clone_into(&mut name);
        }
        let output = self.pushed_image("sign.signedImage", &name)?;
        let secret = |field: &'static str, secret: &Option<_>| {
            let name =
                secret.as_ref().map(|it: &gantry_api::kernel_modules::LocalReference| &it.name);
            name.filter(|name| !name.is_empty()).cloned().ok_or_else(|| KernelError::Missing {
                field,
                why: "required when sign is used".to_owned(),
            })
        };
        let raw = |name: &str| self.raw.get(name).cloned();
        let files = sign.files_to_sign.iter();
        let files: Vec<String> =
            files.map(|it| self.render("sign.filesToSign", it, raw)).collect::<Result<_, _>>()?;
        if files.is_empty() {
            let why = "required when sign is used".to_owned();
            return Err(KernelError::Missing { field: "sign.filesToSign", why });
        }
        Ok(SignStage {
            input,
            pull,
            output,
            push: registry_tls.unwrap_or(tls),
            push_secret: push_secret_ref.map(|it| it.name).filter(|it| !it.is_empty()),
            key_secret: secret("sign.keySecret", &sign.key_secret)?,
            cert_secret: secret("sign.certSecret", &sign.cert_secret)?,
            files,
            hash_algorithm: sign.hash_algorithm.unwrap_or_default(),
            existing_signature: sign.existing_signature.unwrap_or_default(),
        })
    }
}

/// What a registry is trusted with that is trusted by either.
fn weaker(one: Tls, other: Tls) -> Tls {
    Tls {
        insecure: one.insecure || other.insecure,
        insecure_skip_tls_verify: one.insecure_skip_tls_verify || other.insecure_skip_tls_verify,
    }
}

fn reference(field: &'static str, image: &str) -> Result<Reference, KernelError> {
    image.parse().map_err(|source| KernelError::Image { field, source })
}

/// Returns an image that a stage may push.
fn push_target(field: &'static str, image: String) -> Result<String, KernelError> {
    match reference(field, &image)?.digest() {
        Some(_) => Err(KernelError::PushToDigest { field, image }),
        None => Ok(image),
    }
}

/// The longest tag.
const MAX_TAG_LENGTH: usize = 128;
/// How much is kept of a tag that is too long.
const KEPT_TAG_LENGTH: usize = 100;

/// The name of an image that is built to be signed: a tag of its own, so that it is never taken for
/// the signed one.
fn unsigned_name(target: &Reference, module: &Key) -> String {
    let tag = target.tag().map_or(Tag::LATEST, |tag| tag.as_str());
    let full = format!("{tag}_{}_{}_unsigned", module.namespace(), module.name());
    let tag = if full.len() <= MAX_TAG_LENGTH {
        full
    } else {
        let digest = Digest::sha256(full.as_bytes());
        let kept: String = tag.chars().take(KEPT_TAG_LENGTH).collect();
        format!("{kept}_{}_unsigned", &digest.hex()[..8])
    };
    format!("{}:{tag}", target.repository())
}

#[cfg(test)]
mod tests;
