//! What a pipeline knows: images in registries, Secrets and files of builds.

use gantry_oci::Digest;
use gantry_reconcile::fact::Observed;

use super::states::FoundImage;
use super::{PipelineContext, Progress};
use crate::facts::{
    BuildFiles, BuildFilesQuery, BuildFilesState, ImageQuery, ImageState, SecretQuery, SecretState,
    build_files,
};
use crate::job::{CA_KEY, JobContext, build_input_hash, sign_input_hash};
use crate::kernel_plan::{BuildStage, Dockerfile};

impl PipelineContext<'_> {
    /// What a registry says of an image, or why nothing can be decided.
    pub(super) fn image(&self, query: &ImageQuery) -> Result<FoundImage, Progress> {
        let state = self.world.facts::<ImageState>().get(query);
        let image = &query.image;
        let Some(state) = state else {
            return Err(Progress::pending("Checking", format!("asking for {image}")));
        };
        if let Some(ImageState::Present { input_hash, .. }) = state.value()
            && let Some(Observed { at, .. }) = state.observed.as_deref()
        {
            // Also while the registry does not answer: it was there.
            return Ok(FoundImage::Present { input_hash: input_hash.clone(), at: *at });
        }
        if let Some(failure) = &state.failure {
            let message = format!(
                "could not ask for {image}: {}; nothing is built before the registry answers",
                failure.message
            );
            return Err(Progress::pending("ImageCheckFailed", message));
        }
        let Some(observed) = &state.observed else {
            return Err(Progress::pending("Checking", format!("asking for {image}")));
        };
        match &observed.value {
            ImageState::Present { input_hash, .. } => {
                Ok(FoundImage::Present { input_hash: input_hash.clone(), at: observed.at })
            }
            ImageState::Missing => Ok(FoundImage::Missing),
            ImageState::MissingArchitecture(architecture) => {
                let message = format!(
                    "{image} exists, but not for {architecture}; push it for {architecture} as \
                     well, or name another image for this kernel"
                );
                Err(Progress::failed("ImageMissing", message))
            }
            ImageState::SecretMissing(secret) => Err(self.no_secret(secret)),
            ImageState::CaBundleMissing(name) => {
                let message = format!(
                    "ConfigMap {}/{name} of modules.registry.caConfigMap does not exist or has no \
                     key {CA_KEY}; create it with `kubectl create configmap {name} -n {} \
                     --from-file={CA_KEY}`",
                    query.namespace, query.namespace
                );
                Err(Progress::pending("CABundleNotFound", message))
            }
        }
    }

    fn no_secret(&self, secret: &str) -> Progress {
        let namespace = &self.job.metadata.namespace;
        let message = format!("Secret {namespace}/{secret} does not exist; create it");
        Progress::pending("SecretNotFound", message)
    }

    /// Why a stage cannot have its Secrets yet.
    pub(super) fn missing_secret(&self, secrets: &[String]) -> Option<Progress> {
        secrets.iter().find_map(|secret| match self.secret_version(secret) {
            Ok(Some(_)) => None,
            Ok(None) => Some(Progress::pending("Checking", format!("reading Secret {secret}"))),
            Err(progress) => Some(progress),
        })
    }

    /// The version of a Secret; `None` while it is not known.
    fn secret_version(&self, secret: &str) -> Result<Option<String>, Progress> {
        let namespace = self.job.metadata.namespace.clone();
        let query = SecretQuery { namespace, name: secret.to_owned() };
        let Some(state) = self.world.facts::<SecretState>().get(&query) else { return Ok(None) };
        match state.value() {
            Some(SecretState::Present { version }) => Ok(Some(version.clone())),
            Some(SecretState::Missing) => Err(self.no_secret(secret)),
            None => match &state.failure {
                Some(failure) => {
                    let message = format!("could not read Secret {secret}: {}", failure.message);
                    Err(Progress::pending("SecretNotFound", message))
                }
                None => Ok(None),
            },
        }
    }

    /// The digest of what is built: of the Dockerfile, and of the files that it copies if there are
    /// any.
    pub(super) fn source_digest(&self, stage: &BuildStage) -> Result<String, Progress> {
        let inline = match &stage.dockerfile {
            Dockerfile::Inline(text) => Some(Digest::sha256(text.as_bytes()).to_string()),
            Dockerfile::ConfigMap(_) => None,
        };
        let queries = build_files(&self.job.metadata.namespace, stage);
        let files: Result<Vec<String>, Progress> =
            queries.iter().map(|it| self.files_digest(it)).collect();
        let digests: Vec<String> = inline.into_iter().chain(files?).collect();
        Ok(digests.join("+"))
    }

    /// The digest of files of a ConfigMap, or why there is none.
    fn files_digest(&self, query: &BuildFilesQuery) -> Result<String, Progress> {
        let name = format!("ConfigMap {}/{}", query.namespace, query.config_map);
        let Some(state) = self.world.facts::<BuildFilesState>().get(query) else {
            return Err(Progress::pending("Checking", format!("reading {name}")));
        };
        let (field, key, not_found) = match query.files {
            BuildFiles::Dockerfile => {
                ("build.dockerfileConfigMap", "key dockerfile", "DockerfileNotFound")
            }
            BuildFiles::Context => ("build.contextConfigMap", "files", "BuildContextNotFound"),
        };
        let missing = |message: String| Err(Progress::pending(not_found, message));
        match state.value() {
            Some(BuildFilesState::Present { problem: Some(problem), .. }) => {
                Err(Progress::failed("InvalidDockerfile", format!("{name}, {key}: {problem}")))
            }
            Some(BuildFilesState::Present { digest, problem: None }) => Ok(digest.clone()),
            Some(BuildFilesState::NoKey) => {
                missing(format!("{name} has no key dockerfile; put the Dockerfile under that key"))
            }
            Some(BuildFilesState::Missing) => {
                missing(format!("{name} does not exist; create it, or change {field}"))
            }
            None => match &state.failure {
                Some(failure) => missing(format!("could not read {name}: {}", failure.message)),
                None => Err(Progress::pending("Checking", format!("reading {name}"))),
            },
        }
    }

    /// The hash of what a build is made from; `None` while that is not known.
    pub(super) fn build_hash(&self, stage: &BuildStage) -> Result<Option<String>, Progress> {
        Ok(Some(build_input_hash(stage, &self.source_digest(stage)?)))
    }

    /// The hash of what the final image is made from; `None` while that is not known.
    pub(super) fn expected_hash(&self) -> Result<Option<String>, Progress> {
        let build = self.plan.build.as_ref().map(|build| self.build_hash(build));
        let build = build.transpose()?.flatten();
        let Some(sign) = &self.plan.sign else { return Ok(build) };
        let key = self.secret_version(&sign.key_secret)?;
        let cert = self.secret_version(&sign.cert_secret)?;
        let (Some(key), Some(cert)) = (key, cert) else { return Ok(None) };
        Ok(Some(sign_input_hash(sign, build.as_deref(), &key, &cert)))
    }

    pub(super) fn unsigned_query(&self, build: &BuildStage) -> ImageQuery {
        let JobContext { module, kernel, .. } = self.job;
        ImageQuery::new(module, &build.output, build.push, kernel, true)
    }
}
