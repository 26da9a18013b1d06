//! Jobs that build and sign images.
//!
//! A Job is made from a [`KernelPlan`](crate::kernel_plan::KernelPlan) and what is known of its
//! Dockerfile and Secrets. Its name follows from the image that it pushes, its annotation
//! [`HASH_ANNOTATION`] from everything that it is made from: a Job with another hash is replaced.
//! Values of users are arguments and variables of containers, never parts of a script.

mod build;
mod sign;
mod simulated_build;

use gantry_api::kernel_modules::Tls;
use gantry_oci::Digest;
use gantry_reconcile::object::controller_reference;
use gantry_reconcile::{Meta, View as _};
use serde_json::{Value, json};

use crate::labels::{
    HASH_ANNOTATION, IMAGE_ANNOTATION, IMAGE_HASH_LABEL, INPUT_HASH, JOB_TYPE_LABEL,
    KERNEL_ANNOTATION, MODULE_LABEL, REBUILD_ANNOTATION, TARGET_KERNEL_LABEL,
};
use crate::module_kernels::ModuleKernels;
use crate::settings::Settings;
use crate::view::Module;

pub use build::{
    BUILD_SCRIPT, build_input_hash, build_job, dockerfile_config_map, dockerfile_name,
};
pub use sign::{sign_input_hash, sign_job};

/// What a Job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobType {
    /// It builds an image.
    Build,
    /// It signs the modules in an image.
    Sign,
}

impl JobType {
    /// The value of [`JOB_TYPE_LABEL`].
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Build => "build",
            Self::Sign => "sign",
        }
    }
}

/// A Job that should exist.
#[derive(Clone, Debug, PartialEq)]
pub struct DesiredJob {
    /// What it does.
    pub job_type: JobType,
    /// Its name.
    pub name: String,
    /// The hash of everything it is made from.
    pub hash: String,
    /// The image that it pushes.
    pub image: String,
    /// The Job.
    pub body: Value,
}

/// What a Job is made for.
#[derive(Clone, Copy, Debug)]
pub struct JobContext<'a> {
    /// The Module.
    pub module: &'a ModuleKernels,
    /// Its metadata.
    pub metadata: &'a Meta,
    /// The kernel.
    pub kernel: &'a str,
    /// The value of the kernel label.
    pub kernel_label: &'a str,
    /// Settings.
    pub settings: &'a Settings,
    /// The `imageRebuildTriggerGeneration` that the Job acts on, if it does.
    pub rebuild_trigger: Option<i64>,
}

/// The first hexadecimal digits of the SHA-256 of texts and their boundaries.
#[must_use]
pub fn short_hash(texts: &[&str], digits: usize) -> String {
    let mut joined = Vec::new();
    for text in texts {
        joined.extend_from_slice(text.as_bytes());
        joined.push(0);
    }
    Digest::sha256(&joined).hex()[..digits].to_owned()
}

/// The value of [`IMAGE_HASH_LABEL`] for an image.
#[must_use]
pub fn image_hash(image: &str) -> String {
    short_hash(&[image], 16)
}

/// The name of the account that the Jobs of a Module run as where they need a role.
#[must_use]
pub fn job_account_name(module: &str) -> String {
    format!("{module}-image-jobs")
}

/// The longest name of a Job: its pods are named after it.
const MAX_NAME_LENGTH: usize = 63;

/// How many hexadecimal digits of a hash are in names.
pub(crate) const NAME_HASH_LENGTH: usize = 10;

/// The name of the Job that pushes an image: `<last part of the repository>-<type>-<hash>`.
///
/// It follows from the image alone. All Modules of a namespace that want an image, and all kernels
/// of one Module that do, want the same Job, and the API server admits one of that name.
#[must_use]
pub fn job_name(job_type: JobType, image: &str) -> String {
    let repository = image.split_once('@').map_or(image, |(name, _)| name);
    let name = repository.rsplit('/').next().unwrap_or_default();
    let name = name.split(':').next().unwrap_or_default();
    let hash = short_hash(&[image], NAME_HASH_LENGTH);
    let lower = name.to_ascii_lowercase();
    let base = lower.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let what = job_type.as_str();
    match base.trim_matches('-') {
        "" => derived_name("image", what, &hash),
        base => derived_name(base, what, &hash),
    }
}

/// `<base>-<what>-<hash>` as a DNS label: its pods are named after it and become host names.
///
/// A base that has to be changed for that is part of the hash, so that two of them never give one
/// name.
pub(crate) fn derived_name(base: &str, what: &str, hash: &str) -> String {
    let room = MAX_NAME_LENGTH - what.len() - hash.len() - 2;
    let kept: String = base.chars().take(room).collect();
    let kept = kept.replace('.', "-");
    let kept = kept.trim_end_matches('-');
    match kept == base {
        true => format!("{base}-{what}-{hash}"),
        false => format!("{kept}-{what}-{}", short_hash(&[hash, base], hash.len())),
    }
}

impl JobContext<'_> {
    /// Finishes a Job: metadata, and the fields that both kinds share.
    fn job(&self, job_type: JobType, image: &str, input_hash: &str, pod: PodParts) -> DesiredJob {
        let PodParts { mut spec, hashed } = pod;
        let name = job_name(job_type, image);
        let tolerations = serde_json::to_value(&self.module.spec.tolerations).unwrap_or_default();
        spec["restartPolicy"] = json!("Never");
        spec["automountServiceAccountToken"] = json!(false);
        if self.settings.job_role().is_some() {
            spec["serviceAccountName"] = json!(job_account_name(&self.metadata.name));
        }
        if tolerations.as_array().is_some_and(|it| !it.is_empty()) {
            spec["tolerations"] = tolerations;
        }
        let labels = json!({
            MODULE_LABEL: self.metadata.name,
            TARGET_KERNEL_LABEL: self.kernel_label,
            JOB_TYPE_LABEL: job_type.as_str(),
            IMAGE_HASH_LABEL: image_hash(image),
            "app.kubernetes.io/name": "gantry",
            "app.kubernetes.io/component": job_type.as_str(),
            "app.kubernetes.io/part-of": "gantry",
        });
        let template = json!({"metadata": {"labels": labels}, "spec": spec});
        let trigger = self.rebuild_trigger.map(|it| it.to_string()).unwrap_or_default();
        let parts = [template.to_string(), input_hash.to_owned(), hashed, trigger];
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let hash = short_hash(&parts, 64);
        let mut annotations = json!({
            KERNEL_ANNOTATION: self.kernel,
            IMAGE_ANNOTATION: image,
            HASH_ANNOTATION: hash,
            INPUT_HASH: input_hash,
        });
        if let Some(trigger) = self.rebuild_trigger {
            annotations[REBUILD_ANNOTATION] = json!(trigger.to_string());
        }
        let body = json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": name,
                "namespace": self.metadata.namespace,
                "labels": labels,
                "annotations": annotations,
                "ownerReferences": [controller_reference(&Module::RESOURCE, self.metadata)],
            },
            "spec": {
                "completions": 1,
                "backoffLimit": 0,
                "activeDeadlineSeconds": self.settings.jobs.active_deadline.as_secs(),
                "template": template,
            },
        });
        DesiredJob { job_type, name, hash, image: image.to_owned(), body }
    }
}

/// The pod of a Job.
struct PodParts {
    spec: Value,
    /// What decides besides the pod, such as versions of Secrets.
    hashed: String,
}

/// Where merged credentials are in the containers of a Job.
const AUTH_DIRECTORY: &str = "/run/auth";
/// The file with merged credentials.
const AUTH_FILE: &str = "/run/auth/config.json";
/// Where the Secrets with credentials are in the container that merges them.
const REGISTRY_SECRETS: &str = "/run/secrets/registry";

/// The init container that merges credentials, with the volumes that it needs; nothing if there are
/// no Secrets.
fn merge_auth(
    settings: &Settings,
    name: &str,
    secrets: &[String],
    file: &str,
) -> Option<(Value, Vec<Value>)> {
    if secrets.is_empty() {
        return None;
    }
    let mut args = vec!["modules".to_owned(), "merge-auth".to_owned(), "--output".to_owned()];
    args.push(file.to_owned());
    let mut mounts = vec![json!({"name": "auth", "mountPath": AUTH_DIRECTORY})];
    let mut volumes = Vec::new();
    for (index, secret) in secrets.iter().enumerate() {
        let path = format!("{REGISTRY_SECRETS}/{index}");
        let volume = format!("{name}-{index}");
        args.push(path.clone());
        mounts.push(json!({"name": volume, "mountPath": path, "readOnly": true}));
        volumes.push(json!({"name": volume, "secret": {"secretName": secret}}));
    }
    let container = json!({
        "name": name,
        "image": settings.jobs.gantry_image,
        "command": [GANTRY],
        "args": args,
        "securityContext": unprivileged(),
        "volumeMounts": mounts,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    });
    Some((container, volumes))
}

/// The key of ConfigMaps with certificates of registries.
pub const CA_KEY: &str = "ca.crt";
/// Where these certificates are in containers. Builders read all files there that end in `.crt`.
const CA_DIRECTORY: &str = "/run/registry-ca";
/// The file with them.
const CA_FILE: &str = "/run/registry-ca/ca.crt";

/// The volume and the mount with certificates of registries, if there are any.
fn registry_ca(settings: &Settings) -> Option<(Value, Value)> {
    let name = settings.registry_ca_config_map.as_ref()?;
    let map = json!({"name": name, "items": [{"key": CA_KEY, "path": CA_KEY}]});
    let mount = json!({"name": "registry-ca", "mountPath": CA_DIRECTORY, "readOnly": true});
    Some((json!({"name": "registry-ca", "configMap": map}), mount))
}

/// The program of Gantry's image.
const GANTRY: &str = "/usr/bin/gantry";
/// The user and the group of containers that need no privileges.
const UNPRIVILEGED_ID: i64 = 65532;

/// The security context of containers that need no privileges.
fn unprivileged() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": true,
        "runAsNonRoot": true,
        "runAsUser": UNPRIVILEGED_ID,
        "runAsGroup": UNPRIVILEGED_ID,
        "seccompProfile": {"type": "RuntimeDefault"},
    })
}

/// A volume in memory for credentials.
fn auth_volume() -> Value {
    json!({"name": "auth", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}})
}

/// A text as an argument of a container: kubelets replace `$(NAME)` there, and `$$` by `$`.
fn literal(text: &str) -> String {
    text.replace('$', "$$")
}

/// Whether certificates are verified. Builders have one switch for plain HTTP and for certificates
/// that are not verified (MC-9).
fn verifies(tls: Tls) -> bool {
    !tls.insecure && !tls.insecure_skip_tls_verify
}

#[cfg(test)]
mod tests;
