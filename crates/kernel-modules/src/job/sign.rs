//! Jobs that sign the modules in images.

use gantry_api::kernel_modules::{ExistingSignature, HashAlgorithm, Tls};
use serde_json::json;

use super::{
    AUTH_DIRECTORY, AUTH_FILE, CA_FILE, DesiredJob, GANTRY, JobContext, JobType, PodParts,
    UNPRIVILEGED_ID, auth_volume, literal, merge_auth, registry_ca, short_hash, unprivileged,
};
use crate::kernel_plan::SignStage;
use crate::labels::INPUT_HASH;

/// Where the private key is.
const KEY_DIRECTORY: &str = "/run/secrets/sign/key";
/// Where the certificate is.
const CERT_DIRECTORY: &str = "/run/secrets/sign/cert";
/// The file with the credentials of the push.
const PUSH_AUTH_FILE: &str = "/run/auth/push.json";
/// Where the signer keeps blobs.
const WORKSPACE: &str = "/workspace";

/// The hash of everything that decides about the content of a signed image. Keys are known by the
/// versions of their Secrets: only the Job reads them.
#[must_use]
pub fn sign_input_hash(
    stage: &SignStage,
    unsigned_input_hash: Option<&str>,
    key_version: &str,
    cert_version: &str,
) -> String {
    let mut texts = vec![
        "sign",
        unsigned_input_hash.unwrap_or(&stage.input),
        &stage.key_secret,
        key_version,
        &stage.cert_secret,
        cert_version,
        hash_name(stage.hash_algorithm),
        existing_name(stage.existing_signature),
    ];
    texts.extend(stage.files.iter().map(String::as_str));
    short_hash(&texts, 32)
}

/// The Job that signs an image.
#[must_use]
pub fn sign_job(context: &JobContext<'_>, stage: &SignStage, input_hash: &str) -> DesiredJob {
    let settings = context.settings;
    let mut args = vec!["modules".to_owned(), "sign".to_owned()];
    let mut option = |name: &str, value: &str| args.extend([name.to_owned(), value.to_owned()]);
    option("--unsigned-image", &stage.input);
    option("--signed-image", &stage.output);
    for file in &stage.files {
        option("--file", &literal(file));
    }
    option("--key-file", KEY_DIRECTORY);
    option("--cert-file", CERT_DIRECTORY);
    option("--hash", hash_name(stage.hash_algorithm));
    option("--existing", existing_name(stage.existing_signature));
    option("--label", &format!("{INPUT_HASH}={input_hash}"));
    option("--termination-log", "/dev/termination-log");
    let flags = [
        (stage.pull, "--insecure-pull", "--skip-tls-verify-pull"),
        (stage.push, "--insecure-push", "--skip-tls-verify-push"),
    ];
    for (Tls { insecure, insecure_skip_tls_verify }, plain, unverified) in flags {
        args.extend(insecure.then(|| plain.to_owned()));
        args.extend(insecure_skip_tls_verify.then(|| unverified.to_owned()));
    }
    let mut volumes = vec![
        json!({"name": "key", "secret": {"secretName": stage.key_secret, "defaultMode": 0o440}}),
        json!({"name": "cert", "secret": {"secretName": stage.cert_secret, "defaultMode": 0o440}}),
        json!({"name": "workspace", "emptyDir": {}}),
    ];
    let mut mounts = vec![
        json!({"name": "key", "mountPath": KEY_DIRECTORY, "readOnly": true}),
        json!({"name": "cert", "mountPath": CERT_DIRECTORY, "readOnly": true}),
        json!({"name": "workspace", "mountPath": WORKSPACE}),
    ];
    if let Some((volume, mount)) = registry_ca(settings) {
        volumes.push(volume);
        mounts.push(mount);
        args.extend(["--ca-file".to_owned(), CA_FILE.to_owned()]);
    }
    let repo_secrets = &context.module.repo_secrets;
    let push_secrets: Vec<String> = stage.push_secret.iter().chain(repo_secrets).cloned().collect();
    let mut init_containers = Vec::new();
    let credentials = [
        ("merge-auth", repo_secrets, AUTH_FILE, "--auth-file"),
        ("merge-push-auth", &push_secrets, PUSH_AUTH_FILE, "--push-auth-file"),
    ];
    for (name, secrets, file, option) in credentials {
        if option == "--push-auth-file" && stage.push_secret.is_none() {
            continue;
        }
        let Some((container, secret_volumes)) = merge_auth(settings, name, secrets, file) else {
            continue;
        };
        init_containers.push(container);
        volumes.extend(secret_volumes);
        args.extend([option.to_owned(), file.to_owned()]);
    }
    if !init_containers.is_empty() {
        volumes.push(auth_volume());
        mounts.push(json!({"name": "auth", "mountPath": AUTH_DIRECTORY, "readOnly": true}));
    }
    let container = json!({
        "name": "sign",
        "image": settings.jobs.gantry_image,
        "command": [GANTRY],
        "args": args,
        "env": [{"name": "TMPDIR", "value": WORKSPACE}],
        "securityContext": unprivileged(),
        "volumeMounts": mounts,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    });
    let mut spec = json!({
        "containers": [container],
        "volumes": volumes,
        "securityContext": {"fsGroup": UNPRIVILEGED_ID},
    });
    if !init_containers.is_empty() {
        spec["initContainers"] = json!(init_containers);
    }
    if !settings.jobs.sign_selector.is_empty() {
        spec["nodeSelector"] = json!(settings.jobs.sign_selector);
    }
    let hashed = String::new();
    context.job(JobType::Sign, &stage.output, input_hash, PodParts { spec, hashed })
}

/// The name of a digest on the signer's command line.
fn hash_name(algorithm: HashAlgorithm) -> &'static str {
    match algorithm {
        HashAlgorithm::Sha256 => "sha256",
        HashAlgorithm::Sha384 => "sha384",
        HashAlgorithm::Sha512 => "sha512",
    }
}

/// The name of what is done about signatures on the signer's command line.
fn existing_name(existing: ExistingSignature) -> &'static str {
    match existing {
        ExistingSignature::Append => "append",
        ExistingSignature::Replace => "replace",
        ExistingSignature::Skip => "skip",
    }
}
