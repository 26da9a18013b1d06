//! Jobs that build images.

use gantry_api::kernel_modules::Builder;
use gantry_reconcile::{ObjectReference, Resource};
use serde_json::{Value, json};

use super::simulated_build::simulated_builder;
use super::{
    AUTH_DIRECTORY, AUTH_FILE, CA_DIRECTORY, DesiredJob, JobContext, JobType, PodParts,
    auth_volume, job_name, literal, merge_auth, registry_ca, short_hash, verifies,
};
use crate::daemon_set::kernel_label_key;
use crate::kernel_plan::{BuildStage, Dockerfile};
use crate::labels::{INPUT_HASH, JOB_TYPE_LABEL, MODULE_LABEL};
use crate::settings::{BuildEngine, BuildIsolation};

/// What the container of buildah runs: a build with its arguments, then a push. Nothing of a user
/// is in the text; the digest becomes the termination message.
pub const BUILD_SCRIPT: &str = "\
set -eu
buildah --storage-driver \"$STORAGE_DRIVER\" build \"$@\"
buildah --storage-driver \"$STORAGE_DRIVER\" push ${AUTH_FILE:+--authfile \"$AUTH_FILE\"} \
${CERT_DIR:+--cert-dir \"$CERT_DIR\"} \
--tls-verify=\"$PUSH_TLS_VERIFY\" --digestfile /dev/termination-log \"$OUTPUT\"
";

/// Where the Dockerfile and the other files of the build are.
pub(super) const WORKSPACE: &str = "/workspace";
/// Where the host's modules are, so that `depmod` finds in-tree dependencies (MC-4).
const HOST_MODULES: &str = "/host/lib/modules";
/// Where the image of kaniko has the certificates of public authorities.
const KANIKO_CERTIFICATES: &str = "/kaniko/ssl/certs";
/// Where Secrets of builds are.
pub(super) const BUILD_SECRETS: &str = "/run/secrets";

/// The hash of everything that decides about the content of a built image.
#[must_use]
pub fn build_input_hash(stage: &BuildStage, dockerfile_digest: &str) -> String {
    let mut texts = vec!["build", dockerfile_digest];
    for (name, value) in &stage.arguments {
        texts.extend([name.as_str(), value.as_str()]);
    }
    short_hash(&texts, 32)
}

/// The name of the ConfigMap with the inline Dockerfile of a Job.
///
/// The text is part of it: when a Job is replaced, the ConfigMap of the old one may still be there.
#[must_use]
pub fn dockerfile_name(job: &str, dockerfile: &str) -> String {
    format!("{job}-dockerfile-{}", short_hash(&[dockerfile], 8))
}

/// The ConfigMap with an inline Dockerfile, which its Job owns.
#[must_use]
pub fn dockerfile_config_map(
    context: &JobContext<'_>,
    job: &ObjectReference,
    dockerfile: &str,
) -> Value {
    let Resource { kind, .. } = &job.resource;
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": dockerfile_name(job.key.name(), dockerfile),
            "namespace": job.key.namespace(),
            "labels": {
                MODULE_LABEL: context.metadata.name,
                JOB_TYPE_LABEL: JobType::Build.as_str(),
            },
            "ownerReferences": [{
                "apiVersion": job.resource.api_version(),
                "kind": kind,
                "name": job.key.name(),
                "uid": job.uid.as_str(),
                "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
        "immutable": true,
        "data": {"dockerfile": dockerfile},
    })
}

/// The Job that builds an image.
#[must_use]
pub fn build_job(
    context: &JobContext<'_>,
    stage: &BuildStage,
    dockerfile_digest: &str,
) -> DesiredJob {
    let input_hash = build_input_hash(stage, dockerfile_digest);
    let config_map = match &stage.dockerfile {
        Dockerfile::Inline(text) => dockerfile_name(&job_name(JobType::Build, &stage.output), text),
        Dockerfile::ConfigMap(name) => name.clone(),
    };
    let file = json!({
        "name": config_map,
        "items": [{"key": "dockerfile", "path": "Dockerfile"}],
    });
    let mut sources = vec![json!({"configMap": file})];
    let context_files = stage.context_config_map.as_ref();
    sources.extend(context_files.map(|name| json!({"configMap": {"name": name}})));
    let mut volumes = vec![json!({"name": "workspace", "projected": {"sources": sources}})];
    let mut mounts = vec![json!({"name": "workspace", "mountPath": WORKSPACE, "readOnly": true})];
    let engine = context.settings.builder.engine;
    if engine == BuildEngine::Container {
        volumes.push(json!({"name": "host-lib-modules", "hostPath": {"path": "/lib/modules"}}));
        volumes.push(json!({"name": "storage", "emptyDir": {}}));
        let mount =
            json!({"name": "host-lib-modules", "mountPath": HOST_MODULES, "readOnly": true});
        mounts.push(mount);
    }
    for (index, secret) in stage.secrets.iter().enumerate() {
        let volume = format!("build-secret-{index}");
        let path = format!("{BUILD_SECRETS}/{secret}");
        volumes.push(json!({"name": volume, "secret": {"secretName": secret}}));
        mounts.push(json!({"name": volume, "mountPath": path, "readOnly": true}));
    }
    if let Some((volume, mount)) = registry_ca(context.settings) {
        volumes.push(volume);
        mounts.push(mount);
    }
    let secrets = &context.module.repo_secrets;
    let auth = merge_auth(context.settings, "merge-auth", secrets, AUTH_FILE);
    if let Some((_, secret_volumes)) = &auth {
        volumes.push(auth_volume());
        volumes.extend(secret_volumes.iter().cloned());
    }
    let builder = stage.builder.unwrap_or(Builder::Buildah);
    let container = match (engine, builder) {
        (BuildEngine::Simulated, _) => {
            simulated_builder(context, stage, &input_hash, auth.is_some(), mounts)
        }
        (BuildEngine::Container, Builder::Buildah) => {
            buildah(context, stage, &input_hash, auth.is_some(), mounts)
        }
        (BuildEngine::Container, Builder::Kaniko) => {
            kaniko(context, stage, &input_hash, auth.is_some(), mounts)
        }
    };
    let mut spec = json!({
        "containers": [container],
        "volumes": volumes,
        "nodeSelector": stage.node_selector,
        // In-tree modules of the kernel are there, if a node that runs it is free.
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
            "weight": 100,
            "preference": {"matchExpressions": [{
                "key": kernel_label_key(context.settings),
                "operator": "In",
                "values": [context.kernel_label],
            }]},
        }]}},
    });
    if let Some((init_container, _)) = auth {
        spec["initContainers"] = json!([init_container]);
    }
    if (engine, builder) == (BuildEngine::Container, Builder::Buildah) {
        match context.settings.builder.isolation {
            BuildIsolation::UserNamespace => spec["hostUsers"] = json!(false),
            BuildIsolation::Unconfined => {}
        }
    }
    let hashed = dockerfile_digest.to_owned();
    context.job(JobType::Build, &stage.output, &input_hash, PodParts { spec, hashed })
}

/// The container that runs buildah.
fn buildah(
    context: &JobContext<'_>,
    stage: &BuildStage,
    input_hash: &str,
    has_auth: bool,
    mut mounts: Vec<Value>,
) -> Value {
    let settings = &context.settings.builder;
    let mut args = vec![
        "buildah".to_owned(),
        "--isolation".to_owned(),
        "chroot".to_owned(),
        format!("--tls-verify={}", verifies(stage.pull)),
        "--file".to_owned(),
        format!("{WORKSPACE}/Dockerfile"),
        "--label".to_owned(),
        format!("{INPUT_HASH}={input_hash}"),
    ];
    if has_auth {
        args.extend(["--authfile".to_owned(), AUTH_FILE.to_owned()]);
        mounts.push(json!({"name": "auth", "mountPath": AUTH_DIRECTORY, "readOnly": true}));
    }
    let has_ca = context.settings.registry_ca_config_map.is_some();
    if has_ca {
        args.extend(["--cert-dir".to_owned(), CA_DIRECTORY.to_owned()]);
    }
    for (name, value) in &stage.arguments {
        args.extend(["--build-arg".to_owned(), literal(&format!("{name}={value}"))]);
    }
    for secret in &stage.secrets {
        let path = format!("{BUILD_SECRETS}/{secret}");
        args.extend(["--volume".to_owned(), format!("{path}:{path}:ro")]);
    }
    args.extend(["--volume".to_owned(), format!("{HOST_MODULES}:{HOST_MODULES}:ro")]);
    args.extend(["--tag".to_owned(), stage.output.clone(), WORKSPACE.to_owned()]);
    mounts.push(json!({"name": "storage", "mountPath": "/var/lib/containers"}));
    let mut security = json!({
        "runAsUser": 0,
        "capabilities": {"drop": ["ALL"], "add": [
            "CHOWN", "DAC_OVERRIDE", "FOWNER", "SETFCAP", "SETGID", "SETUID", "SYS_CHROOT",
        ]},
    });
    let mut env = vec![
        json!({"name": "STORAGE_DRIVER", "value": settings.storage_driver}),
        json!({"name": "PUSH_TLS_VERIFY", "value": verifies(stage.push).to_string()}),
        json!({"name": "OUTPUT", "value": stage.output}),
    ];
    if has_auth {
        env.push(json!({"name": "AUTH_FILE", "value": AUTH_FILE}));
    }
    if has_ca {
        env.push(json!({"name": "CERT_DIR", "value": CA_DIRECTORY}));
    }
    match settings.isolation {
        BuildIsolation::UserNamespace => {
            if let Some(added) = security["capabilities"]["add"].as_array_mut() {
                added.push(json!("SYS_ADMIN"));
            }
            // The kubelet has made the user namespace: buildah makes none of its own.
            env.push(json!({"name": "_CONTAINERS_USERNS_CONFIGURED", "value": "1"}));
        }
        BuildIsolation::Unconfined => {
            security["seccompProfile"] = json!({"type": "Unconfined"});
            security["appArmorProfile"] = json!({"type": "Unconfined"});
        }
    }
    json!({
        "name": "buildah",
        "image": settings.buildah_image,
        "command": ["/bin/sh", "-c", BUILD_SCRIPT],
        "args": args,
        "env": env,
        "securityContext": security,
        "volumeMounts": mounts,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    })
}

/// The container that runs kaniko.
fn kaniko(
    context: &JobContext<'_>,
    stage: &BuildStage,
    input_hash: &str,
    has_auth: bool,
    mut mounts: Vec<Value>,
) -> Value {
    let mut args = vec![
        "--dockerfile".to_owned(),
        format!("{WORKSPACE}/Dockerfile"),
        "--context".to_owned(),
        format!("dir://{WORKSPACE}"),
        "--destination".to_owned(),
        stage.output.clone(),
        "--label".to_owned(),
        format!("{INPUT_HASH}={input_hash}"),
        "--digest-file".to_owned(),
        "/dev/termination-log".to_owned(),
    ];
    for (name, value) in &stage.arguments {
        args.extend(["--build-arg".to_owned(), literal(&format!("{name}={value}"))]);
    }
    let flags = [
        (stage.pull.insecure, "--insecure-pull"),
        (stage.pull.insecure_skip_tls_verify, "--skip-tls-verify-pull"),
        (stage.push.insecure, "--insecure"),
        (stage.push.insecure_skip_tls_verify, "--skip-tls-verify"),
    ];
    args.extend(flags.iter().filter(|(set, _)| *set).map(|(_, flag)| (*flag).to_owned()));
    if has_auth {
        mounts.push(json!({"name": "auth", "mountPath": "/kaniko/.docker", "readOnly": true}));
    }
    let mut container = json!({
        "name": "kaniko",
        "image": context.settings.builder.kaniko_image,
        "args": args,
        "volumeMounts": mounts,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    });
    if context.settings.registry_ca_config_map.is_some() {
        // Its option for certificates wants the name of every registry, also of base images.
        let directories = format!("{KANIKO_CERTIFICATES}:{CA_DIRECTORY}");
        container["env"] = json!([{"name": "SSL_CERT_DIR", "value": directories}]);
    }
    container
}
