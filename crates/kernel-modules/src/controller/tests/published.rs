//! The published sample with everything in it, on one node of each kind of kernel.

use std::collections::BTreeMap;

use gantry_api::decode::{self, Decoded, Options};
use gantry_harness::Scenario;
use gantry_reconcile::{Resource, View as _};
use serde_json::{Value, json};

use super::cluster::{
    NAMESPACE, Simulation, TestControllers, daemon_sets, jobs, node, secret, stored, text,
};
use super::invariants::jobs_created;
use super::runners::IMAGES;
use crate::kernel_plan::{Dockerfile, KernelPlan};
use crate::settings::Settings;
use crate::view::{Module, Node};

const SAMPLE: &str = include_str!("../../../../api/tests/manifests/modules/updated.yaml");
const TARGET: &str = "ghcr.io/vendor/driver:v1.2.3-";
const INHERITED: &str = "FROM some-image\nRUN some-command\n";
const OF_GKE: &str = "FROM some-new-image\nRUN some-other-command\n";

const EL8: &str = "4.18.0-348.el8.x86_64";
const EL8_5: &str = "4.18.0-348.23.1.el8_5.x86_64";
const FEDORA: &str = "5.16.11-200.fc35.x86_64";
const AZURE: &str = "5.4.0-1089-azure";
const AZURE_FIPS: &str = "5.4.0-1089-azure-fips";
const AWS: &str = "5.15.0-1031-aws";
const GKE: &str = "5.4.0-1054-gke";

/// The sample, with its Secrets named and its image complete.
fn sample() -> Value {
    let text = SAMPLE
        .replace("keySecret:\n", "keySecret: the-key\n")
        .replace("certSecret:\n", "certSecret: the-cert\n");
    let document = decode::documents(&text, Options::default()).unwrap().remove(0);
    let Decoded::Object(object) = document.content else { panic!("{:?}", document.errors) };
    let mut module = object.to_value().unwrap();
    module["metadata"]["namespace"] = json!(NAMESPACE);
    module
}

/// A node that the sample selects.
fn selected(name: &str, kernel: &str) -> (Resource, Value) {
    let (_, mut object) = node(name, kernel);
    object["metadata"]["labels"] = json!({"feature.node.kubernetes.io/cpu-cpuid.VMX": "true"});
    (Node::RESOURCE, object)
}

/// What the table of the sample says about a kernel: index of the mapping, Dockerfile, target,
/// unsigned image.
type Row = (&'static str, usize, &'static str, String, Option<String>);

fn table() -> Vec<Row> {
    let gke = format!("{TARGET}{GKE}-unsigned");
    let aws = "quay.io/vendor/module-sample:aws".to_owned();
    vec![
        (EL8, 0, INHERITED, format!("{TARGET}{EL8}"), None),
        (FEDORA, 1, INHERITED, format!("{TARGET}{FEDORA}-random-suffix"), None),
        (AZURE, 2, INHERITED, format!("{TARGET}{AZURE}"), None),
        (AZURE_FIPS, 2, INHERITED, format!("{TARGET}{AZURE_FIPS}"), None),
        (AWS, 3, INHERITED, aws, None),
        (GKE, 4, OF_GKE, format!("{TARGET}{GKE}"), Some(gke)),
    ]
}

#[test]
fn kms_11_the_updated_sample_has_the_listed_mappings_and_images() {
    let module: Module = serde_json::from_value(sample()).unwrap();
    let spec = module.spec.unwrap();
    let key = module.metadata.key();
    let plan = |kernel: &str| KernelPlan::of(&key, &spec, &kernel.parse().unwrap()).unwrap();
    assert_eq!(plan(EL8_5), None, "`.el8.` is not in it");
    for (kernel, mapping, dockerfile, target, unsigned) in table() {
        let plan = plan(kernel).unwrap_or_else(|| panic!("{kernel} has no mapping"));
        assert_eq!(plan.mapping, mapping, "{kernel}");
        assert_eq!(plan.target_image, target, "{kernel}");
        assert_eq!(plan.final_image(), target, "{kernel}");
        let build = plan.build.as_ref().unwrap();
        assert_eq!(build.dockerfile, Dockerfile::Inline(dockerfile.to_owned()), "{kernel}");
        assert_eq!(build.output, *unsigned.as_ref().unwrap_or(&target), "{kernel}");
        let argument = build.arguments.iter().find(|(name, _)| name == "SOME_AWS_KEY");
        assert_eq!(argument.map(|(_, value)| value.as_str()), Some("SOME_AWS_VALUE"), "{kernel}");
        assert_eq!(plan.sign.is_some(), unsigned.is_some(), "{kernel}");
        let Some(sign) = &plan.sign else { continue };
        assert_eq!(Some(&sign.input), unsigned.as_ref(), "{kernel}");
        assert_eq!(sign.output, target, "{kernel}");
        assert_eq!((sign.key_secret.as_str(), sign.cert_secret.as_str()), ("the-key", "the-cert"));
        assert_eq!(sign.files, ["/path/to/module0.ko", "/path/to/module1.ko"]);
    }
}

#[test]
fn kms_11_the_updated_sample_gives_exactly_these_daemon_sets() {
    let controllers = TestControllers::new(Settings::default());
    let all = controllers.all();
    let kernels = [EL8, EL8_5, FEDORA, AZURE, AZURE_FIPS, AWS, GKE];
    let nodes = kernels.iter().enumerate().map(|(at, it)| selected(&format!("n{at}"), it));
    let secrets = ["the-key", "the-cert", "pull-secret-0", "pull-secret-1"].map(secret);
    let objects = nodes.chain(secrets).chain([stored(sample())]).collect();
    let scenario: Scenario<'_> = controllers.scenario(&all, objects);
    let mut cluster = Simulation::new(&scenario);
    cluster.advance(120);
    let server = cluster.run.server();
    let mut expected: Vec<(String, String)> =
        table().into_iter().map(|(kernel, _, _, target, _)| (kernel.to_owned(), target)).collect();
    expected.sort();
    assert_eq!(daemon_sets(server, "driver-container"), expected);
    let plugin = (String::new(), "some-image".to_owned());
    assert_eq!(daemon_sets(server, "device-plugin"), [plugin]);
    assert_eq!([jobs_created(server, "build"), jobs_created(server, "sign")], [6, 1]);
    let images = server.list(&IMAGES);
    let pushed: BTreeMap<&str, &Value> =
        images.iter().map(|it| (text(it, "/image"), *it)).collect();
    assert_eq!(pushed.len(), 7, "six, and the unsigned one: {:?}", pushed.keys());
    let status = server.list(&Module::RESOURCE)[0]["status"].clone();
    let six = json!({"desiredNumberScheduled": 6, "numberReady": 6, "numberAvailable": 6});
    assert_eq!(status, json!({"driverContainer": six, "devicePlugin": six}));
    assert_eq!(cluster.held(), Vec::<String>::new());
}

/// The sample as it was published names no Secrets: the rule says so, and nothing is started.
#[test]
fn kms_11_the_updated_sample_without_secrets_starts_nothing() {
    let mut module = sample();
    let sign = &mut module["spec"]["driverContainer"]["container"]["kernelMappings"][4]["sign"];
    sign["keySecret"] = Value::Null;
    sign["certSecret"] = Value::Null;
    let controllers = TestControllers::new(Settings::default());
    let all = controllers.all();
    let scenario = controllers.scenario(&all, vec![selected("n", GKE), stored(module)]);
    let mut cluster = Simulation::new(&scenario);
    assert_eq!(jobs(cluster.run.server()), []);
    let held = cluster.held();
    assert_eq!(held.len(), 1, "{held:?}");
    assert!(
        held[0].contains("kernelMappings[4].sign.keySecret: keySecret is required"),
        "{held:?}"
    );
}
