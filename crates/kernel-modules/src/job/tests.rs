//! The Jobs that build and sign.

mod identity;
mod registries;

use gantry_api::kernel_modules::{Builder, LocalReference, ModuleSpec};
use gantry_reconcile::{Meta, ObjectReference, View as _};
use serde_json::{Value, json};

use super::{
    BUILD_SCRIPT, DesiredJob, JobContext, build_input_hash, build_job, dockerfile_config_map,
    dockerfile_name, image_hash, sign_input_hash, sign_job,
};
use crate::settings::{BuildIsolation, Settings};
use crate::test_support::{RHEL, driver_spec, metadata, planned, with_kernel};
use crate::view::Job;

/// The digest of a Dockerfile.
const DIGEST: &str = "sha256:aa";
/// Text that a shell would act on.
const HOSTILE: &str = "$(reboot) `reboot` ; reboot\n\"'";

fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.builder.buildah_image = "quay.io/buildah:1".to_owned();
    settings.builder.kaniko_image = "kaniko:1".to_owned();
    settings.jobs.gantry_image = "gantry:1".to_owned();
    settings
}

/// A Module that builds and signs with all settings.
fn full_spec() -> ModuleSpec {
    let container = json!({
        "containerImage": "quay.io/vendor/driver:v1-${KERNEL_VERSION}",
        "build": {
            "dockerfile": "FROM a",
            "buildArgs": [{"name": "A", "value": HOSTILE}],
            "secrets": [{"name": "licence"}, {"name": "git"}],
            "selector": {"builds": "here"},
        },
        "sign": {
            "keySecret": {"name": "the-key"},
            "certSecret": {"name": "the-cert"},
            "filesToSign": ["/opt/lib/modules/${KERNEL_VERSION}/a.ko", "/opt/b*.ko"],
            "signedImage": {"name": "${CONTAINER_IMAGE}", "pushSecretRef": {"name": "push"}},
        },
    });
    let mut spec = driver_spec(container, json!({"regexp": "."}));
    let driver = spec.driver_container.as_mut().unwrap();
    driver.image_repo_secrets =
        serde_json::from_value(json!([{"name": "r0"}, {"name": "r1"}])).unwrap();
    spec.tolerations =
        serde_json::from_value(json!([{"key": "gpu", "operator": "Exists"}])).unwrap();
    spec
}

/// The Jobs of a Module for one kernel.
struct Jobs {
    build: DesiredJob,
    sign: DesiredJob,
}

/// What Jobs are made from, besides the Module.
#[derive(Clone)]
struct JobInputs {
    settings: Settings,
    dockerfile: &'static str,
    key_version: &'static str,
    cert_version: &'static str,
    trigger: Option<i64>,
}

impl Default for JobInputs {
    fn default() -> Self {
        Self {
            settings: settings(),
            dockerfile: DIGEST,
            key_version: "1",
            cert_version: "1",
            trigger: None,
        }
    }
}

fn jobs(spec: &ModuleSpec, inputs: &JobInputs) -> Jobs {
    let module = with_kernel(spec, RHEL);
    let metadata = metadata();
    let context = JobContext {
        module: &module,
        metadata: &metadata,
        kernel: RHEL,
        kernel_label: "label",
        settings: &inputs.settings,
        rebuild_trigger: inputs.trigger,
    };
    let plan = planned(spec, RHEL);
    let (build, sign) = (plan.build.unwrap(), plan.sign.unwrap());
    let built = build_input_hash(&build, inputs.dockerfile);
    let hash = sign_input_hash(&sign, Some(&built), inputs.key_version, inputs.cert_version);
    Jobs {
        build: build_job(&context, &build, inputs.dockerfile),
        sign: sign_job(&context, &sign, &hash),
    }
}

fn pod(job: &DesiredJob) -> &Value {
    &job.body["spec"]["template"]["spec"]
}

/// The values that follow an option.
fn values<'a>(container: &'a Value, option: &str) -> Vec<&'a str> {
    let args = texts(&container["args"]);
    let options = args.iter().zip(args.iter().skip(1));
    options.filter(|(name, _)| **name == option).map(|(_, value)| *value).collect()
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().map(|it| it.iter().map(|it| it.as_str().unwrap()).collect()).unwrap_or_default()
}

/// Where a Secret is mounted in a container of a pod.
fn mount_of<'a>(pod: &'a Value, container: &'a Value, secret: &str) -> &'a Value {
    let volumes = pod["volumes"].as_array().unwrap();
    let volume = volumes.iter().find(|it| it["secret"]["secretName"] == secret).unwrap();
    let mounts = container["volumeMounts"].as_array().unwrap();
    mounts.iter().find(|it| it["name"] == volume["name"]).unwrap()
}

#[test]
fn kms_39_a_build_has_its_arguments_secrets_and_variables() {
    let job = jobs(&full_spec(), &JobInputs::default()).build;
    let pod = pod(&job);
    let container = &pod["containers"][0];
    let input_hash = job.body["metadata"]["annotations"]["ooto.sigs.k8s.io/input-hash"].as_str();
    let label = format!("ooto.sigs.k8s.io/input-hash={}", input_hash.unwrap());
    let expected = [
        "buildah",
        "--isolation",
        "chroot",
        "--tls-verify=true",
        "--file",
        "/workspace/Dockerfile",
        "--label",
        &label,
        "--authfile",
        "/run/auth/config.json",
        "--build-arg",
        &format!("A={HOSTILE}").replace('$', "$$"),
        "--build-arg",
        &format!("CONTAINER_IMAGE=quay.io/vendor/driver:v1-{RHEL}"),
        "--build-arg",
        &format!("KERNEL_FULL_VERSION={RHEL}"),
        "--build-arg",
        "KERNEL_RHEL_ARCH=x86_64",
        "--build-arg",
        "KERNEL_RHEL_RELEASE=348.el8",
        "--build-arg",
        "KERNEL_RHEL_VERSION=el8",
        "--build-arg",
        &format!("KERNEL_VERSION={RHEL}"),
        "--build-arg",
        "KERNEL_X=4",
        "--build-arg",
        "KERNEL_XYZ=4.18.0",
        "--build-arg",
        "KERNEL_Y=18",
        "--build-arg",
        "KERNEL_Z=0",
        "--build-arg",
        "MOD_NAME=hello",
        "--build-arg",
        "MOD_NAMESPACE=drivers",
        "--volume",
        "/run/secrets/licence:/run/secrets/licence:ro",
        "--volume",
        "/run/secrets/git:/run/secrets/git:ro",
        "--volume",
        "/host/lib/modules:/host/lib/modules:ro",
        "--tag",
        &job.image,
        "/workspace",
    ];
    assert_eq!(texts(&container["args"]), expected);
    for secret in ["licence", "git"] {
        let path = format!("/run/secrets/{secret}");
        let mount = mount_of(pod, container, secret);
        assert_eq!((&mount["mountPath"], &mount["readOnly"]), (&json!(path), &json!(true)));
    }
    assert_eq!(job.image, format!("quay.io/vendor/driver:v1-{RHEL}_drivers_hello_unsigned"));
    assert_eq!(pod["nodeSelector"], json!({"builds": "here"}));
    let preferred =
        &pod["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
    let terms = &preferred[0]["preference"]["matchExpressions"][0];
    assert_eq!(terms["key"], "oot.node.kubernetes.io/kernel-version.full");
    assert_eq!(terms["values"], json!(["label"]), "in-tree modules of the kernel are there");
}

#[test]
fn kms_39_a_dockerfile_is_mounted_from_its_config_map() {
    let spec = full_spec();
    let build = jobs(&spec, &JobInputs::default()).build;
    let source = |job: &DesiredJob| {
        let volumes = pod(job)["volumes"].as_array().unwrap().clone();
        let workspace = volumes.into_iter().find(|it| it["name"] == "workspace").unwrap();
        workspace["projected"]["sources"][0]["configMap"].clone()
    };
    let items = json!([{"key": "dockerfile", "path": "Dockerfile"}]);
    let name = dockerfile_name(&build.name, "FROM a");
    assert_eq!(source(&build), json!({"name": name, "items": items}));
    let module = with_kernel(&spec, RHEL);
    let (metadata, settings) = (metadata(), settings());
    let context = JobContext {
        module: &module,
        metadata: &metadata,
        kernel: RHEL,
        kernel_label: "label",
        settings: &settings,
        rebuild_trigger: None,
    };
    let meta =
        Meta { name: build.name.clone(), namespace: "drivers".to_owned(), ..Meta::default() };
    let owner = ObjectReference::to(&Job::RESOURCE, &meta);
    let map = dockerfile_config_map(&context, &owner, "FROM a");
    assert_eq!(map["metadata"]["name"], json!(name));
    assert_eq!((&map["immutable"], &map["data"]["dockerfile"]), (&json!(true), &json!("FROM a")));
    assert_eq!(map["metadata"]["ownerReferences"][0]["name"], json!(build.name));
    // The ConfigMap of a replaced Job may be there still: another text has another name.
    assert_ne!(dockerfile_name(&build.name, "FROM b"), name);
    let mut other = spec;
    let container = &mut other.driver_container.as_mut().unwrap().container;
    let build = container.build.as_mut().unwrap();
    build.dockerfile = None;
    build.dockerfile_config_map = Some(LocalReference::new("mine"));
    let job = jobs(&other, &JobInputs::default()).build;
    assert_eq!(source(&job), json!({"name": "mine", "items": items}), "used as it is");
}

#[test]
fn user_values_are_never_in_a_script() {
    let spec = full_spec();
    let Jobs { build, sign } = jobs(&spec, &JobInputs::default());
    let container = &pod(&build)["containers"][0];
    assert_eq!(container["command"], json!(["/bin/sh", "-c", BUILD_SCRIPT]));
    let mut other = spec;
    let fields = &mut other.driver_container.as_mut().unwrap().container;
    fields.build.as_mut().unwrap().build_args[0].value = "another".to_owned();
    fields.container_image = Some("other.example/x:2".to_owned());
    let changed = jobs(&other, &JobInputs::default()).build;
    assert_eq!(pod(&changed)["containers"][0]["command"], container["command"]);
    assert_eq!(pod(&sign)["containers"][0]["command"], json!(["/usr/bin/gantry"]));
    // Variables in the script are quoted, so that no value is split or expanded.
    for line in BUILD_SCRIPT.lines().filter(|it| it.contains('$')) {
        // Options that are there only if their variable has a value; the value itself is quoted.
        let bare = [("AUTH_FILE", "--authfile"), ("CERT_DIR", "--cert-dir")]
            .map(|(name, option)| format!("${{{name}:+{option} \"${name}\"}}"))
            .iter()
            .fold(line.to_owned(), |line, optional| line.replace(optional, ""));
        for (at, _) in bare.match_indices('$') {
            assert_eq!(bare[..at].matches('"').count() % 2, 1, "unquoted in {line}");
        }
    }
}

/// What a kubelet makes of an argument: `$(NAME)` is the value of a variable, `$$` is `$`.
fn expanded(text: &str, env: &[(&str, &str)]) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
            continue;
        }
        let name = rest.strip_prefix('(').and_then(|it| it.split_once(')'));
        let value = name.and_then(|(name, _)| env.iter().find(|it| it.0 == name));
        match (name, value) {
            (Some((_, after)), Some((_, value))) => {
                out.push_str(value);
                rest = after;
            }
            _ => out.push('$'),
        }
    }
    out + rest
}

#[test]
fn kms_10_kubelets_expand_nothing_of_the_user() {
    assert_eq!(
        expanded("$(OUTPUT) $$(OUTPUT) $x $(no)", &[("OUTPUT", "o")]),
        "o $(OUTPUT) $x $(no)"
    );
    let value = "$(OUTPUT) $$(OUTPUT) $$$$ $x ${y} $";
    let mut spec = full_spec();
    let container = &mut spec.driver_container.as_mut().unwrap().container;
    container.build.as_mut().unwrap().build_args[0].value = value.to_owned();
    let file = "/opt/$$(OUTPUT)*.ko";
    container.sign.as_mut().unwrap().files_to_sign = vec![file.replace('$', "$$")];
    let Jobs { build, sign } = jobs(&spec, &JobInputs::default());
    let env = [("OUTPUT", "replaced"), ("TMPDIR", "replaced")];
    let argument = expanded(values(&pod(&build)["containers"][0], "--build-arg")[0], &env);
    assert_eq!(argument, format!("A={value}"));
    assert_eq!(expanded(values(&pod(&sign)["containers"][0], "--file")[0], &env), file);
    assert_eq!(expanded(BUILD_SCRIPT, &env), BUILD_SCRIPT);
}

#[test]
fn kaniko_gets_the_same_inputs() {
    let mut spec = full_spec();
    let container = &mut spec.driver_container.as_mut().unwrap().container;
    container.build.as_mut().unwrap().builder = Some(Builder::Kaniko);
    let job = jobs(&spec, &JobInputs::default()).build;
    let container = &pod(&job)["containers"][0];
    assert_eq!((&container["name"], &container["image"]), (&json!("kaniko"), &json!("kaniko:1")));
    assert_eq!(container.get("command"), None, "the image has no shell");
    assert_eq!(values(container, "--destination"), [job.image.as_str()]);
    assert_eq!(values(container, "--build-arg").len(), 13);
    assert_eq!(values(container, "--dockerfile"), ["/workspace/Dockerfile"]);
    assert_eq!(values(container, "--context"), ["dir:///workspace"]);
    let mounts = container["volumeMounts"].as_array().unwrap();
    assert!(mounts.iter().any(|it| it["mountPath"] == "/kaniko/.docker"));
    assert_eq!(mount_of(pod(&job), container, "git")["mountPath"], "/run/secrets/git");
    assert_eq!(pod(&job).get("hostUsers"), None);
}

#[test]
fn builds_are_isolated_as_configured() {
    let spec = full_spec();
    let mut inputs = JobInputs::default();
    let job = jobs(&spec, &inputs).build;
    let security = |job: &DesiredJob| pod(job)["containers"][0]["securityContext"].clone();
    assert_eq!(pod(&job)["hostUsers"], false);
    assert_eq!(pod(&job)["automountServiceAccountToken"], false);
    let added = security(&job)["capabilities"]["add"].clone();
    assert!(added.as_array().unwrap().contains(&json!("SYS_ADMIN")), "inside its user namespace");
    inputs.settings.builder.isolation = BuildIsolation::Unconfined;
    let job = jobs(&spec, &inputs).build;
    let context = security(&job);
    assert_eq!(pod(&job).get("hostUsers"), None);
    assert_eq!(context["seccompProfile"]["type"], "Unconfined");
    assert_eq!(context["appArmorProfile"]["type"], "Unconfined");
    let added = context["capabilities"]["add"].as_array().unwrap();
    assert!(!added.contains(&json!("SYS_ADMIN")), "on the node itself");
    for context in [security(&job), context.clone()] {
        assert_eq!(context.get("privileged"), None);
    }
}

#[test]
fn the_signer_has_the_keys_and_no_privileges() {
    let sign = jobs(&full_spec(), &JobInputs::default()).sign;
    let pod = pod(&sign);
    let container = &pod["containers"][0];
    let files = [format!("/opt/lib/modules/{RHEL}/a.ko"), "/opt/b*.ko".to_owned()];
    assert_eq!(values(container, "--file"), files);
    assert_eq!(
        values(container, "--unsigned-image"),
        [format!("quay.io/vendor/driver:v1-{RHEL}_drivers_hello_unsigned")]
    );
    assert_eq!(values(container, "--signed-image"), [format!("quay.io/vendor/driver:v1-{RHEL}")]);
    for (secret, path) in
        [("the-key", "/run/secrets/sign/key"), ("the-cert", "/run/secrets/sign/cert")]
    {
        let mount = mount_of(pod, container, secret);
        assert_eq!((&mount["mountPath"], &mount["readOnly"]), (&json!(path), &json!(true)));
        let volumes = pod["volumes"].as_array().unwrap();
        let volume = volumes.iter().find(|it| it["secret"]["secretName"] == secret).unwrap();
        assert_eq!(volume["secret"]["defaultMode"], 0o440);
    }
    assert_eq!(pod["securityContext"]["fsGroup"], container["securityContext"]["runAsGroup"]);
    assert_eq!(
        container["securityContext"],
        json!({
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": true,
            "runAsNonRoot": true,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        })
    );
    assert_eq!(pod["automountServiceAccountToken"], false);
    assert_eq!(pod.get("nodeSelector"), None, "signing needs no special node");
    let mut inputs = JobInputs::default();
    inputs.settings.jobs.sign_selector = [("signs".to_owned(), "here".to_owned())].into();
    let sign = jobs(&full_spec(), &inputs).sign;
    assert_eq!(super::tests::pod(&sign)["nodeSelector"], json!({"signs": "here"}));
}

#[test]
fn both_jobs_have_what_they_share() {
    let Jobs { build, sign } = jobs(&full_spec(), &JobInputs::default());
    for (job, kind) in [(&build, "build"), (&sign, "sign")] {
        let DesiredJob { body, name, hash, image, .. } = job;
        let labels = json!({
            "oot.node.kubernetes.io/module.name": "hello",
            "ooto.sigs.k8s.io/target-kernel": "label",
            "ooto.sigs.k8s.io/job-type": kind,
            "ooto.sigs.k8s.io/image-hash": image_hash(image),
            "app.kubernetes.io/name": "gantry",
            "app.kubernetes.io/component": kind,
            "app.kubernetes.io/part-of": "gantry",
        });
        assert_eq!(body["metadata"]["labels"], labels);
        assert_eq!(body["spec"]["template"]["metadata"]["labels"], labels);
        let annotations = &body["metadata"]["annotations"];
        assert_eq!(annotations["ooto.sigs.k8s.io/kernel-version"], RHEL);
        assert_eq!(annotations["ooto.sigs.k8s.io/image"], json!(image));
        assert_eq!(annotations["ooto.sigs.k8s.io/last-hash"], json!(hash));
        assert_eq!(body["metadata"]["namespace"], "drivers");
        assert_eq!(body["metadata"]["name"], json!(name));
        assert_eq!(
            body["metadata"]["ownerReferences"],
            json!([{
                "apiVersion": "ooto.sigs.k8s.io/v1alpha1", "kind": "Module", "name": "hello",
                "uid": "uid-hello", "controller": true, "blockOwnerDeletion": true,
            }])
        );
        let job = &body["spec"];
        assert_eq!((&job["completions"], &job["backoffLimit"]), (&json!(1), &json!(0)));
        assert_eq!(job["activeDeadlineSeconds"], 7200);
        assert_eq!(job.get("ttlSecondsAfterFinished"), None, "Gantry deletes them");
        assert_eq!(
            pod(&DesiredJob { body: body.clone(), ..build.clone() })["restartPolicy"],
            "Never"
        );
    }
}

#[test]
fn kms_50_jobs_tolerate_what_the_module_does() {
    let Jobs { build, sign } = jobs(&full_spec(), &JobInputs::default());
    for job in [&build, &sign] {
        assert_eq!(pod(job)["tolerations"], json!([{"key": "gpu", "operator": "Exists"}]));
    }
    let mut none = full_spec();
    none.tolerations.clear();
    let Jobs { build, sign } = jobs(&none, &JobInputs::default());
    for job in [&build, &sign] {
        assert_eq!(pod(job).get("tolerations"), None);
    }
}
