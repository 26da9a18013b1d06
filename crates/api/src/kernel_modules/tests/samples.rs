//! The samples of the document that defines the kind, and of the kinds around it.

use serde_json::json;

use super::{accepted, messages, read, refused};
use crate::decode::{self, Decoded, Options};
use crate::kernel_modules::{
    Build, DaemonSetCounts, DockerfileSource, HashAlgorithm, ModuleReference, Tls,
    VerificationStage, VerificationStatus,
};
use crate::object::{KINDS, Object};
use crate::schema::Schema;

const SIGNING: &str = include_str!("../../../tests/manifests/modules/signing.yaml");
const TWO_DAEMONSETS: &str = include_str!("../../../tests/manifests/modules/two-daemonsets.yaml");
const UNCORRECTED: &str =
    include_str!("../../../tests/manifests/modules/two-daemonsets-uncorrected.yaml");
const UPDATED: &str = include_str!("../../../tests/manifests/modules/updated.yaml");
const MODPROBE: &str = include_str!("../../../tests/manifests/modules/modprobe.yaml");
const PLUGIN_ONLY: &str = include_str!("../../../tests/manifests/modules/device-plugin-only.yaml");
const PREFLIGHT: &str = include_str!("../../../tests/manifests/modules/preflight.yaml");
const HUB: &str = include_str!("../../../tests/manifests/modules/managed-cluster-module.yaml");

/// The sample with both Secrets named.
fn with_secrets(sample: &str) -> String {
    sample
        .replace("keySecret:\n", "keySecret: the-key\n")
        .replace("certSecret:\n", "certSecret: the-cert\n")
}

#[test]
fn kms_11_the_signing_sample_is_read_once_complete() {
    let expected = [
        ("….build", "set dockerfile or dockerfileConfigMap"),
        ("….sign.keySecret", "keySecret is required when sign is used"),
        ("….sign.certSecret", "certSecret is required when sign is used"),
    ];
    let document = read(SIGNING);
    refused("as shown", &document, &expected);
    let line = SIGNING.lines().nth(document.errors[0].at.line as usize - 1).unwrap();
    assert_eq!(line.trim(), "build: {}", "the line the user wrote");

    let complete = with_secrets(SIGNING).replace("build: {}", "build: {dockerfile: FROM scratch}");
    let document = read(&complete);
    let module = accepted(&document);
    let value = serde_json::to_value(&module.spec).unwrap();
    let image = "quay.io/vendor/module-sample:fedora-5.16.11-200.fc35.x86_64";
    let expected = json!({
        "selector": {},
        "driverContainer": {"container": {
            "kernelMappings": [{"literal": "5.16.11-200.fc35.x86_64", "containerImage": image}],
            "build": {"dockerfile": "FROM scratch"},
            "sign": {
                "unsignedImage": {"name": "registry.com/vendor/driver:v1-unsigned"},
                "signedImage": {"name": "registry.com/vendor/driver:v1-signed"},
                "keySecret": {"name": "the-key"},
                "certSecret": {"name": "the-cert"},
                "filesToSign": ["/path/to/module0.ko", "/path/to/module1.ko"],
            },
        }},
    });
    assert_eq!(value, expected);
}

#[test]
fn kms_11_the_two_daemonsets_sample_is_read() {
    let document = read(TWO_DAEMONSETS);
    let expected = json!({
        "selector": {"feature.node.kubernetes.io/cpu-cpuid.VMX": "true"},
        "driverContainer": {
            "container": {
                "kernelMappings": [{
                    "literal": "5.16.11-200.fc35.x86_64",
                    "containerImage": "quay.io/vendor/module-sample:fedora-5.16.11-200.fc35.x86_64",
                }],
                "securityContext": {
                    "capabilities": {"add": ["SYS_MODULE"]},
                    "seLinuxOptions": {"type": "spc_t"},
                },
                "volumeMounts": [],
            },
            "serviceAccountName": "some-sa",
        },
        "devicePlugin": {
            "container": {"image": "some-image", "volumeMounts": []},
            "serviceAccountName": "some-sa",
        },
    });
    assert_eq!(serde_json::to_value(&accepted(&document).spec).unwrap(), expected);
    assert_eq!(messages(&document.warnings), [], "both places are equally right");
}

#[test]
fn i_5_an_empty_list_with_elements_is_not_yaml() {
    let error = decode::documents(UNCORRECTED, Options::default()).unwrap_err();
    let line = UNCORRECTED.lines().nth(error.at.line as usize - 1).unwrap();
    assert!(line.contains("- literal:"), "{error} at {}", error.at);
}

#[test]
fn kms_11_the_updated_sample_is_read_once_its_secrets_are_named() {
    let expected = [
        ("….kernelMappings[4].sign.keySecret", "keySecret is required when sign is used"),
        ("….kernelMappings[4].sign.certSecret", "certSecret is required when sign is used"),
    ];
    refused("as shown", &read(UPDATED), &expected);

    let document = read(&with_secrets(UPDATED));
    let module = accepted(&document);
    let driver = module.spec.driver_container.as_ref().unwrap();
    let secrets: Vec<_> = driver.image_repo_secrets.iter().map(|secret| &secret.name).collect();
    assert_eq!(secrets, ["pull-secret-0", "pull-secret-1"]);
    let container = &driver.container;
    let build = container.build.as_ref().unwrap();
    let dockerfile = "FROM some-image\nRUN some-command\n";
    assert_eq!(build.source(), Ok(DockerfileSource::Inline(dockerfile)));
    assert_eq!(build.pull, Some(Tls::default()));
    assert_eq!(build.push.as_ref().unwrap().name.as_deref(), Some("${CONTAINER_IMAGE}"));
    assert_eq!(container.kernel_mappings.len(), 5);
    assert_eq!(container.kernel_mappings[0].build, None, "absent");
    assert_eq!(container.kernel_mappings[2].build, Some(Build::default()), "present and empty");
    let counts =
        DaemonSetCounts { desired_number_scheduled: 1, number_ready: 1, number_available: 1 };
    let status = module.status.as_ref().unwrap();
    assert_eq!((status.driver_container, status.device_plugin), (Some(counts), Some(counts)));
}

#[test]
fn every_extension_is_read() {
    let document = read(MODPROBE);
    assert_eq!(messages(&document.warnings), []);
    let module = accepted(&document);
    let container = &module.spec.driver_container.as_ref().unwrap().container;
    let [first, second] = container.kernel_mappings.as_slice() else { panic!("{container:?}") };
    assert_eq!(container.build_of(first), None, "opted out");
    assert!(container.build_of(second).is_some(), "inherited");
    assert_eq!(container.registry_tls_of(first), Some(Tls::default()), "replaced as a whole");
    let skip = Tls { insecure_skip_tls_verify: true, ..Tls::default() };
    assert_eq!(container.registry_tls_of(second), Some(skip));
    assert_eq!(container.in_tree_modules_of(first), [""; 0], "replaced by nothing");
    assert_eq!(container.in_tree_modules_of(second), ["dummy"]);
    assert_eq!(container.modprobe.as_ref().unwrap().directory(), "/opt");
    let sign = container.sign_of(second).unwrap();
    assert_eq!(sign.hash_algorithm, Some(HashAlgorithm::Sha512));
}

#[test]
fn a_module_may_be_a_device_plugin_only() {
    let document = read(PLUGIN_ONLY);
    assert_eq!(accepted(&document).spec.driver_container, None);
}

#[test]
fn a_preflight_is_read() {
    let document = read(PREFLIGHT);
    let Decoded::Object(Object::Preflight(preflight)) = &document.content else {
        panic!("{:?}", document.errors)
    };
    assert_eq!(preflight.spec.labels["node.example.com/generation"], "3");
    let module = ModuleReference { namespace: "drivers".into(), name: "module-sample".into() };
    assert_eq!(preflight.spec.modules, [module]);
    let status = preflight.status.as_ref().unwrap();
    let [entry] = status.modules.as_slice() else { panic!("{status:?}") };
    assert_eq!(entry.verification_stage, VerificationStage::Sign);
    assert_eq!(entry.verification_status, VerificationStatus::InProgress);
    let short = read(
        "{apiVersion: ooto.sigs.k8s.io/v1alpha1, kind: Preflight, metadata: {name: x}, spec: {kernelVersion: 6.8.0}}",
    );
    let Decoded::Object(object) = &short.content else { panic!("{:?}", short.errors) };
    let spec = object.to_value().unwrap()["spec"].clone();
    assert_eq!(spec, json!({"kernelVersion": "6.8.0", "pushBuiltImage": false}));
}

#[test]
fn a_managed_cluster_module_is_as_tolerant_as_a_module() {
    let document = read(HUB);
    let Decoded::Object(Object::ManagedClusterModule(object)) = &document.content else {
        panic!("{:?}", document.errors)
    };
    let deprecated = "deprecated name; use \"imageRepoSecrets\", a list";
    let path = "spec.moduleSpec.imageRepoSecret".to_owned();
    assert_eq!(messages(&document.warnings), [(path, deprecated)]);
    assert_eq!(object.spec.selector["example.com/edge"], "true");
    let module = &object.spec.module_spec;
    let driver = module.driver_container.as_ref().unwrap();
    assert_eq!(driver.image_repo_secrets[0].name, "pull-secret-0");
    assert_eq!(
        driver.container.sign.as_ref().unwrap().key_secret.as_ref().unwrap().name,
        "signing"
    );
    let plugin = module.device_plugin.as_ref().unwrap();
    assert_eq!(plugin.image_pull_secrets[0].name, "pull-secret-0");
}

/// A server receives these before Gantry does, nulls and all.
#[test]
fn servers_let_every_sample_through() {
    for sample in [SIGNING, TWO_DAEMONSETS, UPDATED, MODPROBE, PLUGIN_ONLY, PREFLIGHT, HUB] {
        let value = gantry_yaml::read(sample).unwrap().remove(0).to_json();
        let kind = KINDS.iter().find(|kind| value["kind"] == kind.kind).unwrap();
        let mut served = kind.served_schema();
        served["properties"]["metadata"] = crate::kubernetes::schema("ObjectMeta");
        let schema = Schema::compile(&served).unwrap();
        assert_eq!(schema.check(&value), [], "{sample}");
    }
}
