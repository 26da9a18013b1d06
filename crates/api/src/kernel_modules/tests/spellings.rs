//! Tests spellings that differ and mean the same (I-n), and similar ones that are invalid.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{accepted, driver, driver_with, messages, module, refused, warned};
use crate::decode::Document;
use crate::kernel_modules::normalise::{HUB_ALIASES, MODULE_ALIASES, driver_container_aliases};
use crate::kernel_modules::{ContainerFields, LoaderContainer};

fn spec(document: &Document) -> Value {
    serde_json::to_value(&accepted(document).spec).unwrap()
}

fn container(document: &Document) -> Value {
    spec(document)["driverContainer"]["container"].clone()
}

const MAPPING: &str = r#"{literal: 6.8.0, containerImage: "a:1"}"#;

#[test]
fn i_1_mappings_may_stand_above_the_container() {
    let canonical = module(&format!(
        "{{selector: {{}}, driverContainer: {{container: {{kernelMappings: [{MAPPING}]}}}}}}"
    ));
    for driver in [
        format!("{{kernelMappings: [{MAPPING}]}}"),
        format!("{{kernelMappings: [{MAPPING}], container: {{}}}}"),
        format!("{{kernelMappings: [{MAPPING}], container: {{kernelMappings: [{MAPPING}]}}}}"),
    ] {
        let document = module(&format!("{{selector: {{}}, driverContainer: {driver}}}"));
        assert_eq!(spec(&document), spec(&canonical), "{driver}");
        assert_eq!(messages(&document.warnings), [], "{driver}");
    }
    let different = module(&format!(
        "{{selector: {{}}, driverContainer: {{kernelMappings: [], container: {{kernelMappings: [{MAPPING}]}}}}}}"
    ));
    refused(
        "both, and different",
        &different,
        &[(
            "spec.driverContainer.kernelMappings",
            "set here and under container with different values; keep spec.driverContainer.container.kernelMappings",
        )],
    );
}

#[test]
fn i_2_so_may_every_field_that_is_not_of_kubernetes() {
    let names = |schema: Value| -> BTreeSet<String> {
        schema["properties"].as_object().unwrap().keys().cloned().collect()
    };
    let all = names(crate::schema::of::<LoaderContainer>());
    let ours: BTreeSet<_> =
        all.difference(&names(crate::schema::of::<ContainerFields>())).cloned().collect();
    for aliases in [MODULE_ALIASES, HUB_ALIASES] {
        let moved: BTreeSet<_> = aliases.iter().map(|alias| alias.old.to_owned()).collect();
        assert_eq!(moved, ours);
    }
    let document = module(&format!(
        "{{selector: {{}}, driverContainer: {{kernelMappings: [{MAPPING}], containerImage: \"b:1\", build: {{dockerfile: FROM x}}, version: v1, modprobe: {{moduleName: m}}, inTreeModulesToRemove: [d], registryTLS: {{insecure: true}}, sign: {{keySecret: k, certSecret: c, filesToSign: [/opt/m.ko]}}}}}}"
    ));
    let found = container(&document);
    assert_eq!(found.as_object().unwrap().len(), 8, "{found}");
    refused(
        "a version in two places",
        &module(&format!(
            "{{selector: {{}}, driverContainer: {{kernelMappings: [{MAPPING}], version: v1, container: {{version: v2}}}}}}"
        )),
        &[(
            "spec.driverContainer.version",
            "set here and under container with different values; keep spec.driverContainer.container.version",
        )],
    );
}

#[test]
fn i_3_variables_are_left_as_they_are_written() {
    for image in ["a:${KERNEL_VERSION}", "a:${KERNEL_FULL_VERSION}"] {
        let document = driver_with(
            "kernelMappings: [{literal: 6.8.0}]",
            &format!("containerImage: '{image}'"),
        );
        assert_eq!(container(&document)["containerImage"], image);
    }
}

#[test]
fn i_6_an_image_is_an_object_or_its_name() {
    let rest = "keySecret: k, certSecret: c, filesToSign: [/opt/m.ko]";
    let as_text = driver(&format!(
        "sign: {{signedImage: '${{CONTAINER_IMAGE}}', unsignedImage: 'u:1', {rest}}}"
    ));
    let as_object = driver(&format!(
        "sign: {{signedImage: {{name: '${{CONTAINER_IMAGE}}'}}, unsignedImage: {{name: 'u:1'}}, {rest}}}"
    ));
    assert_eq!(container(&as_text)["sign"], container(&as_object)["sign"]);
    assert_eq!(container(&as_text)["sign"]["signedImage"], json!({"name": "${CONTAINER_IMAGE}"}));
}

#[test]
fn i_7_a_secret_is_an_object_or_its_name_or_not_there() {
    let document = driver(
        "sign: {signedImage: {name: 's:1', pushSecretRef: p, insecure: null}, unsignedImage: {name: 'u:1'}, keySecret: k, certSecret: {name: c}, filesToSign: [/opt/m.ko]}",
    );
    let expected = json!({
        "signedImage": {"name": "s:1", "pushSecretRef": {"name": "p"}},
        "unsignedImage": {"name": "u:1"},
        "keySecret": {"name": "k"},
        "certSecret": {"name": "c"},
        "filesToSign": ["/opt/m.ko"],
    });
    assert_eq!(container(&document)["sign"], expected);
    // Without anything to sign, null counts as absent.
    let off = driver_with(
        "kernelMappings: [{literal: 6.8.0, build: null, sign: null}]",
        "containerImage: 'a:1', sign: ",
    );
    assert_eq!(container(&off).get("sign"), None);
}

#[test]
fn i_8_scalars_in_selectors_become_text() {
    let document = module(
        "{selector: {a: true, b: 1, c: 1.5, d: x, e: ''}, devicePlugin: {container: {image: 'a:1'}}}",
    );
    let expected = json!({"a": "true", "b": "1", "c": "1.5", "d": "x", "e": ""});
    assert_eq!(spec(&document)["selector"], expected);
    let text = "expected a string, a number or a boolean; write \"\" for an empty value";
    for value in ["{x: y}", "[x]", "null"] {
        let document = module(&format!(
            "{{selector: {{a: {value}}}, devicePlugin: {{container: {{image: 'a:1'}}}}}}"
        ));
        refused(value, &document, &[("spec.selector.a", text)]);
    }
    let build = driver("build: {dockerfile: FROM x, selector: {a: true, b: []}}");
    refused("a build's selector", &build, &[("….build.selector.b", text)]);
}

#[test]
fn i_9_secrets_are_lists_or_one_or_names() {
    let table = [
        ("[{name: a}, {name: b}]", json!([{"name": "a"}, {"name": "b"}])),
        ("[a, {name: b}]", json!([{"name": "a"}, {"name": "b"}])),
        ("{name: a}", json!([{"name": "a"}])),
        ("a", json!([{"name": "a"}])),
    ];
    for (written, expected) in table {
        let document = module(&format!(
            "{{selector: {{}}, driverContainer: {{kernelMappings: [{MAPPING}], imageRepoSecrets: {written}}}, devicePlugin: {{container: {{image: 'a:1'}}, imagePullSecrets: {written}}}}}"
        ));
        assert_eq!(spec(&document)["driverContainer"]["imageRepoSecrets"], expected, "{written}");
        assert_eq!(spec(&document)["devicePlugin"]["imagePullSecrets"], expected, "{written}");
    }
}

#[test]
fn i_9_one_secret_may_have_the_old_name() {
    let with = |spec: &str, driver: &str, plugin: &str| {
        module(&format!(
            "{{selector: {{}}, {spec} driverContainer: {{kernelMappings: [{MAPPING}], {driver}}}, devicePlugin: {{container: {{image: 'a:1'}}, {plugin}}}}}"
        ))
    };
    let deprecated = "deprecated name; use \"imageRepoSecrets\", a list";

    let document = with("", "imageRepoSecret: {name: a}", "");
    warned("on the part", &document, &[("spec.driverContainer.imageRepoSecret", deprecated)]);
    assert_eq!(spec(&document)["driverContainer"]["imageRepoSecrets"], json!([{"name": "a"}]));
    assert_eq!(spec(&document)["devicePlugin"].get("imagePullSecrets"), None);

    let document = with("imageRepoSecret: a,", "", "");
    warned("on the specification", &document, &[("spec.imageRepoSecret", deprecated)]);
    assert_eq!(spec(&document)["driverContainer"]["imageRepoSecrets"], json!([{"name": "a"}]));
    assert_eq!(spec(&document)["devicePlugin"]["imagePullSecrets"], json!([{"name": "a"}]));

    let document = with("imageRepoSecret: a,", "imageRepoSecrets: [a]", "imagePullSecrets: b");
    assert_eq!(spec(&document)["devicePlugin"]["imagePullSecrets"], json!([{"name": "b"}]));

    let document = with("imageRepoSecret: a,", "imageRepoSecrets: [a, b]", "");
    let new = "spec.driverContainer.imageRepoSecrets";
    let text = format!("set here and at {new} with different values; keep {new}");
    refused("different", &document, &[("spec.imageRepoSecret", text.as_str())]);
}

#[test]
fn i_10_a_mapping_may_be_a_regexp_only() {
    let document = driver_with("kernelMappings: [{regexp: '^.+$'}]", "containerImage: 'a:1'");
    let module = accepted(&document);
    let container = &module.spec.driver_container.as_ref().unwrap().container;
    assert_eq!(container.image_of(&container.kernel_mappings[0]), Some("a:1"));
}

#[test]
fn i_11_a_signed_image_may_be_that_of_the_container() {
    let document = driver_with(
        "containerImage: 'a:1'",
        "kernelMappings: [{regexp: gke, sign: {signedImage: '${CONTAINER_IMAGE}', keySecret: k, certSecret: c, filesToSign: [/opt/m.ko]}}]",
    );
    let module = accepted(&document);
    let container = &module.spec.driver_container.as_ref().unwrap().container;
    assert_eq!(container.image_of(&container.kernel_mappings[0]), Some("a:1"));
}

#[test]
fn i_12_fields_of_a_container_may_stand_beside_it() {
    let names: BTreeSet<String> = crate::schema::of::<ContainerFields>()["properties"]
        .as_object()
        .unwrap()
        .keys()
        .cloned()
        .collect();
    let moved = driver_container_aliases().iter().map(|alias| alias.old.to_owned());
    assert_eq!(moved.collect::<BTreeSet<_>>(), names, "every field, and no other");

    let flat = module(&format!(
        "{{selector: {{}}, driverContainer: {{kernelMappings: [{MAPPING}], command: [a], env: [{{name: B, value: c}}]}}, devicePlugin: {{image: 'a:1', args: [x], volumeMounts: []}}}}"
    ));
    let nested = module(&format!(
        "{{selector: {{}}, driverContainer: {{container: {{kernelMappings: [{MAPPING}], command: [a], env: [{{name: B, value: c}}]}}}}, devicePlugin: {{container: {{image: 'a:1', args: [x], volumeMounts: []}}}}}}"
    ));
    assert_eq!(spec(&flat), spec(&nested));
    warned("nested", &nested, &[]);
    warned(
        "flat",
        &flat,
        &[
            (
                "spec.driverContainer.command",
                "deprecated place; move it to spec.driverContainer.container.command",
            ),
            (
                "spec.driverContainer.env",
                "deprecated place; move it to spec.driverContainer.container.env",
            ),
            (
                "spec.devicePlugin.args",
                "deprecated place; move it to spec.devicePlugin.container.args",
            ),
            (
                "spec.devicePlugin.volumeMounts",
                "deprecated place; move it to spec.devicePlugin.container.volumeMounts",
            ),
            (
                "spec.devicePlugin.image",
                "deprecated place; move it to spec.devicePlugin.container.image",
            ),
        ],
    );
    let twice = module(
        "{selector: {}, devicePlugin: {image: 'a:1', tty: true, container: {image: 'b:1', tty: true}}}",
    );
    refused(
        "W-15: in both places, and different",
        &twice,
        &[(
            "spec.devicePlugin.image",
            "set here and under container with different values; keep spec.devicePlugin.container.image",
        )],
    );
    // The image of a driver container comes from its mapping, so it has no second place.
    let image = module(&format!(
        "{{selector: {{}}, driverContainer: {{kernelMappings: [{MAPPING}], image: 'a:1'}}}}"
    ));
    assert!(!image.errors.is_empty());
}

#[test]
fn i_12_name_and_image_are_ignored_where_gantry_sets_them() {
    let text = "ignored: Gantry sets it to \"driver-container\"; remove it";
    let image = "ignored: Gantry sets it from the kernel mapping; use \"containerImage\"";
    let document = driver("name: x, image: 'y:1', command: [sleep, infinity]");
    warned("name and image", &document, &[("….name", text), ("….image", image)]);
    assert_eq!(container(&document).get("name"), None);
    let document = module(
        "{selector: {}, devicePlugin: {container: {name: x, image: 'a:1'}, initContainer: {name: y, image: 'a:1'}}}",
    );
    let texts: Vec<_> = document.warnings.iter().map(|remark| remark.text.as_str()).collect();
    assert_eq!(
        texts,
        [
            "ignored: Gantry sets it to \"device-plugin\"; remove it",
            "ignored: Gantry sets it to \"device-plugin-init\"; remove it",
        ]
    );
}

#[test]
fn i_13_both_kinds_of_push_secrets_are_kept() {
    let document = module(&format!(
        "{{selector: {{}}, driverContainer: {{imageRepoSecrets: [r], kernelMappings: [{MAPPING}], sign: {{signedImage: {{name: 's:1', pushSecretRef: {{name: p}}}}, keySecret: k, certSecret: c, filesToSign: [/opt/m.ko]}}}}}}"
    ));
    let driver = &spec(&document)["driverContainer"];
    assert_eq!(driver["imageRepoSecrets"], json!([{"name": "r"}]));
    assert_eq!(driver["container"]["sign"]["signedImage"]["pushSecretRef"], json!({"name": "p"}));
}

#[test]
fn i_15_sign_may_be_on_either_level() {
    let sign = "sign: {keySecret: k, certSecret: c, filesToSign: [/opt/m.ko]}";
    let on_container = driver(sign);
    let on_mapping = driver_with(
        &format!("kernelMappings: [{{literal: 6.8.0, {sign}}}]"),
        "containerImage: 'a:1'",
    );
    let merged = |document: &Document| {
        let container = &accepted(document).spec.driver_container.as_ref().unwrap().container;
        container.sign_of(&container.kernel_mappings[0])
    };
    assert!(merged(&on_container).is_some());
    assert_eq!(merged(&on_container), merged(&on_mapping));
}

#[test]
fn w_15_unions_have_a_legal_shape() {
    let text = "expected a string or an object with name";
    let rest = "filesToSign: [/opt/m.ko]";
    let document = driver(&format!(
        "sign: {{signedImage: {{name: 's:1', pushSecretRef: [p]}}, unsignedImage: 5, keySecret: {{nmae: k}}, certSecret: {{}}, {rest}}}"
    ));
    refused(
        "images and secrets",
        &document,
        &[
            ("….sign.unsignedImage", text),
            ("….sign.keySecret", text),
            ("….sign.certSecret", text),
            ("….sign.signedImage.pushSecretRef", text),
        ],
    );
    let document = module(&format!(
        "{{selector: {{}}, driverContainer: {{kernelMappings: [{MAPPING}], imageRepoSecrets: [a, 5, {{}}, {{name: null}}]}}}}"
    ));
    refused(
        "lists",
        &document,
        &[
            ("spec.driverContainer.imageRepoSecrets[1]", text),
            ("spec.driverContainer.imageRepoSecrets[2]", text),
            ("spec.driverContainer.imageRepoSecrets[3]", text),
        ],
    );
}
