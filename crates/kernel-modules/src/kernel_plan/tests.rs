//! What Modules mean for kernels.

mod variables;

use gantry_api::decode::{self, Decoded, Options};
use gantry_api::kernel_modules::{ModuleSpec, Tls};
use gantry_api::object::Object;
use serde_json::{Value, json};

use super::{Dockerfile, KernelError, KernelPlan};
use crate::labels::{KERNEL_LABEL, NFD_KERNEL_LABEL};
use crate::settings::EnabledStages;
use crate::test_support::{PLUS, RHEL, driver_spec, plan, planned, release, spec};

/// A Module with these mappings; each image is named after its index.
fn mapped(mappings: &[(&str, &str)]) -> ModuleSpec {
    let mappings = mappings.iter().enumerate().map(|(index, (field, text))| {
        json!({*field: text, "containerImage": format!("quay.io/a/b:{index}")})
    });
    let mappings: Vec<Value> = mappings.collect();
    spec(json!({
        "selector": {},
        "driverContainer": {"container": {"kernelMappings": mappings}},
    }))
}

fn mapping_of(mappings: &[(&str, &str)], kernel: &str) -> Option<usize> {
    plan(&mapped(mappings), kernel).unwrap().map(|it| it.mapping)
}

#[test]
fn kms_1_a_literal_matches_the_kernel_that_it_equals() {
    let literal = [("literal", RHEL)];
    assert_eq!(mapping_of(&literal, RHEL), Some(0));
    for other in ["4.18.0-348.el8.X86_64", "4.18.0-348.el8.x86_64.1", "14.18.0-348.el8.x86_64"] {
        assert_eq!(mapping_of(&literal, other), None, "{other}");
    }
    let dots = [("literal", "4.18.0")];
    assert_eq!(mapping_of(&dots, "4.18x0"), None, "a literal is no expression");
}

#[test]
fn kms_2_an_expression_is_searched_for() {
    for expression in ["348", "^4", r"x86_64$", r"^4\.18\.0-348\.el8\.x86_64$"] {
        assert_eq!(mapping_of(&[("regexp", expression)], RHEL), Some(0), "{expression}");
    }
    assert_eq!(mapping_of(&[("regexp", "^18")], RHEL), None);
}

#[test]
fn kms_3_the_first_mapping_that_matches_is_used() {
    let mappings = [("regexp", "el9"), ("regexp", r"el8"), ("literal", RHEL), ("regexp", ".")];
    assert_eq!(mapping_of(&mappings, RHEL), Some(1), "also before a later literal");
    let image = planned(&mapped(&mappings), RHEL).target_image;
    assert_eq!(image, "quay.io/a/b:1");
    assert_eq!(mapping_of(&mappings[2..], RHEL), Some(0));
    assert_eq!(mapping_of(&mappings, "6.8.0-1009-aws"), Some(3));
}

#[test]
fn kms_4_an_invalid_expression_is_an_error() {
    for (invalid, says) in [("(", "unclosed group"), (r"\Qa\E", "not supported")] {
        let spec = mapped(&[("literal", "6.8.0"), ("regexp", invalid), ("regexp", ".")]);
        let error = plan(&spec, RHEL).unwrap_err();
        assert!(error.to_string().starts_with("kernelMappings[1]: invalid regexp"), "{error}");
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!(error.reason(), "InvalidSpec");
        // A kernel that an earlier mapping matches has a plan.
        assert_eq!(planned(&spec, "6.8.0").mapping, 0);
    }
}

#[test]
fn kms_5_a_kernel_without_a_mapping_has_no_plan() {
    assert_eq!(mapping_of(&[("literal", "6.8.0"), ("regexp", "^5")], RHEL), None);
    let plugin = spec(json!({"selector": {}, "devicePlugin": {"container": {"image": "a:1"}}}));
    assert_eq!(plan(&plugin, RHEL), Ok(None), "no driver container");
}

/// What a plan says about trust: of base images, of the output of the build, of the image to sign,
/// of the signed image, of the final image when it is looked for.
fn trust(plan: &KernelPlan) -> [Option<&'static str>; 5] {
    let name = |tls: Tls| match (tls.insecure, tls.insecure_skip_tls_verify) {
        (false, false) => "verified",
        (true, false) => "http",
        (false, true) => "unverified",
        (true, true) => "both",
    };
    let build = plan.build.as_ref();
    let sign = plan.sign.as_ref();
    [
        build.map(|it| name(it.pull)),
        build.map(|it| name(it.push)),
        sign.map(|it| name(it.pull)),
        sign.map(|it| name(it.push)),
        Some(name(plan.registry_tls)),
    ]
}

#[test]
fn kms_7_settings_of_both_levels_are_merged() {
    let http = json!({"insecure": true});
    let unverified = json!({"insecureSkipTLSVerify": true});
    let build = json!({"dockerfile": "FROM a"});
    let with = |base: &Value, field: &str, value: &Value| {
        let mut object = base.clone();
        object[field] = value.clone();
        object
    };
    let sign = json!({
        "keySecret": {"name": "key"}, "certSecret": {"name": "cert"}, "filesToSign": ["/a.ko"],
    });
    let pulled = with(&build, "pull", &http);
    let pushed = with(&build, "push", &unverified);
    let signed = |tls: &Value| {
        let mut sign = sign.clone();
        sign["signedImage"] = with(tls, "name", &json!("quay.io/a/b:signed"));
        sign
    };
    let none = Value::Null;
    let verified = Some("verified");
    let rows = [
        // Container, mapping, and what follows.
        (json!({}), json!({}), [None, None, None, None, verified]),
        (json!({"build": build}), json!({}), [verified, verified, None, None, verified]),
        (json!({}), json!({"build": pulled}), [Some("http"), verified, None, None, Some("http")]),
        (
            json!({"build": pushed}),
            json!({"build": {}}),
            [verified, Some("unverified"), None, None, Some("unverified")],
        ),
        // The object of a mapping replaces that of the container.
        (
            json!({"build": with(&pulled, "push", &unverified)}),
            json!({"build": {"pull": {}, "push": {}}}),
            [verified, verified, None, None, verified],
        ),
        // registryTLS counts instead of what the stages say.
        (
            json!({"build": pushed, "registryTLS": http}),
            json!({}),
            [verified, Some("http"), None, None, Some("http")],
        ),
        (
            json!({"build": pushed, "registryTLS": http}),
            json!({"registryTLS": {}}),
            [verified, verified, None, None, verified],
        ),
        // What was built is pulled as it was pushed.
        (
            json!({"build": pushed, "sign": sign}),
            json!({}),
            [verified, Some("unverified"), Some("unverified"), verified, Some("unverified")],
        ),
        (
            json!({"build": build}),
            json!({"sign": signed(&http)}),
            [verified, verified, verified, Some("http"), Some("http")],
        ),
        (
            json!({"sign": with(&sign, "unsignedImage", &with(&http, "name", &json!("a/b:u")))}),
            json!({"sign": signed(&none)}),
            [None, None, Some("http"), verified, verified],
        ),
    ];
    for (container, mapping, expected) in rows {
        let container = with(&container, "containerImage", &json!("quay.io/a/b:1"));
        let mapping = with(&mapping, "regexp", &json!("."));
        let shown = format!("{container} and {mapping}");
        let plan = planned(&driver_spec(container, mapping), RHEL);
        assert_eq!(trust(&plan), expected, "{shown}");
    }
}

#[test]
fn kms_7_a_mapping_opts_out_of_a_build_and_replaces_an_image() {
    let container = json!({"containerImage": "quay.io/a/b:1", "build": {"dockerfile": "FROM a"}});
    let mapping = json!({
        "regexp": ".", "containerImage": "quay.io/a/c:${KERNEL_XYZ}", "build": {"enabled": false},
    });
    let out = planned(&driver_spec(container.clone(), mapping), RHEL);
    assert_eq!((out.final_image(), out.build.is_none()), ("quay.io/a/c:4.18.0", true));
    // A mapping that names a source discards that of the container.
    let mapping = json!({"regexp": ".", "build": {"dockerfileConfigMap": {"name": "map"}}});
    let other = planned(&driver_spec(container, mapping), RHEL);
    assert_eq!(other.build.unwrap().dockerfile, Dockerfile::ConfigMap("map".to_owned()));
}

/// A Module that builds with these arguments at both levels.
fn with_arguments(container: &Value, mapping: &Value) -> KernelPlan {
    let argument = |list: &Value| -> Vec<Value> {
        let fields = list.as_object().unwrap().iter();
        fields.map(|(name, value)| json!({"name": name, "value": value})).collect()
    };
    let container = json!({
        "containerImage": "quay.io/a/b:1",
        "build": {"dockerfile": "FROM a", "buildArgs": argument(container)},
    });
    let mapping = json!({"regexp": ".", "build": {"buildArgs": argument(mapping)}});
    planned(&driver_spec(container, mapping), RHEL)
}

fn arguments(plan: &KernelPlan) -> Vec<(&str, &str)> {
    let build = plan.build.as_ref().unwrap();
    build.arguments.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

#[test]
fn kms_8_arguments_are_replaced_in_place_and_followed_by_variables() {
    let plan = with_arguments(
        &json!({"Z": "1", "B": "2"}),
        &json!({"C": "5", "Z": "3", "A": "4", "KERNEL_Y": "mine"}),
    );
    let expected = [
        ("Z", "3"),
        ("B", "2"),
        ("A", "4"),
        ("C", "5"),
        ("KERNEL_Y", "mine"),
        ("CONTAINER_IMAGE", "quay.io/a/b:1"),
        ("KERNEL_FULL_VERSION", RHEL),
        ("KERNEL_RHEL_ARCH", "x86_64"),
        ("KERNEL_RHEL_RELEASE", "348.el8"),
        ("KERNEL_RHEL_VERSION", "el8"),
        ("KERNEL_VERSION", RHEL),
        ("KERNEL_X", "4"),
        ("KERNEL_XYZ", "4.18.0"),
        ("KERNEL_Z", "0"),
        ("MOD_NAME", "hello"),
        ("MOD_NAMESPACE", "drivers"),
    ];
    assert_eq!(arguments(&plan), expected);
    assert_eq!(plan.shadowed_variables, ["KERNEL_Y"], "the user's value is used, and reported");
    let own = with_arguments(&json!({"MOD_NAME": "x", "KERNEL_DEBIAN_FLAVOR": "y"}), &json!({}));
    assert_eq!(own.shadowed_variables, [""; 0], "this kernel has no such variable");
}

#[test]
fn kms_10_dockerfiles_and_arguments_are_no_templates() {
    let text = "FROM a:${KERNEL_XYZ}\nRUN echo $KERNEL_VERSION ${\n";
    let container = json!({
        "containerImage": "quay.io/a/b:1",
        "build": {
            "dockerfile": text,
            "buildArgs": [{"name": "A", "value": "${KERNEL_XYZ} $$ ${"}],
        },
    });
    let plan = planned(&driver_spec(container, json!({"regexp": "."})), RHEL);
    assert_eq!(arguments(&plan)[0], ("A", "${KERNEL_XYZ} $$ ${"));
    assert_eq!(plan.build.unwrap().dockerfile, Dockerfile::Inline(text.to_owned()));
}

#[test]
fn kms_12_a_variable_without_a_value_fails_its_kernel_only() {
    let container = json!({"containerImage": "quay.io/a/b:${KERNEL_DEBIAN_FLAVOR}"});
    let spec = driver_spec(container, json!({"regexp": "."}));
    let error = plan(&spec, RHEL).unwrap_err();
    assert_eq!(error.reason(), "TemplateError");
    let text = error.to_string();
    for part in ["containerImage", "KERNEL_DEBIAN_FLAVOR", RHEL, "or map kernel"] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(planned(&spec, "5.10.0-13-amd64").target_image, "quay.io/a/b:amd64");
    let container = json!({"containerImage": "quay.io/a/b:${KERNEL_DEBIAN_FLAVOR:-other}"});
    let spec = driver_spec(container, json!({"regexp": "."}));
    assert_eq!(planned(&spec, RHEL).target_image, "quay.io/a/b:other");
}

#[test]
fn kms_13_a_plus_sign_is_kept_where_it_may_be() {
    let container = json!({
        "containerImage": "quay.io/a/b:v1-${KERNEL_VERSION}",
        "build": {"dockerfile": "FROM a"},
        "sign": {
            "keySecret": {"name": "key"}, "certSecret": {"name": "cert"},
            "filesToSign": ["/opt/lib/modules/${KERNEL_FULL_VERSION}/a.ko"],
        },
    });
    let spec = driver_spec(container, json!({"literal": "5.10.133"}));
    let plan = planned(&spec, PLUS);
    assert_eq!(plan.target_image, "quay.io/a/b:v1-5.10.133_", "tags have no plus");
    assert!(arguments(&plan).contains(&("KERNEL_VERSION", PLUS)));
    assert_eq!(plan.sign.unwrap().files, ["/opt/lib/modules/5.10.133+/a.ko"]);
    assert_eq!(release(PLUS).label_safe(), "5.10.133");
}

#[test]
fn kms_14_both_names_of_the_kernel_have_one_value() {
    for kernel in [RHEL, PLUS, "6.12-amd64", "5.4.0-104-generic"] {
        let image = json!({"containerImage": "a/b:${KERNEL_VERSION}-${KERNEL_FULL_VERSION}"});
        let plan = planned(&driver_spec(image, json!({"regexp": "."})), kernel);
        let tag = plan.target_image.strip_prefix("a/b:").unwrap();
        let (one, other) = tag.split_at(tag.len() / 2);
        assert_eq!(format!("-{one}"), other, "{kernel}");
    }
}

/// A Module that signs, and perhaps builds.
fn signed(target: &str, mut build: Value, sign: &Value) -> ModuleSpec {
    let mut container = json!({"containerImage": target, "sign": {
        "keySecret": {"name": "key"}, "certSecret": {"name": "cert"}, "filesToSign": ["/a.ko"],
    }});
    for (name, value) in sign.as_object().unwrap() {
        container["sign"][name] = value.clone();
    }
    if build.is_object() {
        build["dockerfile"] = json!("FROM a");
        container["build"] = build;
    }
    driver_spec(container, json!({"regexp": "."}))
}

/// Output of the build, input of the signer, final image.
fn images(plan: &KernelPlan) -> [&str; 3] {
    let built = plan.build.as_ref().map_or("", |it| &it.output);
    let unsigned = plan.sign.as_ref().map_or("", |it| &it.input);
    [built, unsigned, plan.final_image()]
}

#[test]
fn kms_62_images_of_stages_have_their_names() {
    let target = "quay.io/a/b:1";
    let unsigned = "quay.io/a/b:1_drivers_hello_unsigned";
    let build = driver_spec(
        json!({"containerImage": target, "build": {"dockerfile": "FROM a"}}),
        json!({"regexp": "."}),
    );
    assert_eq!(images(&planned(&build, RHEL)), [target, "", target], "build without sign");
    let named = json!({"push": {"name": "quay.io/c/${MOD_NAME}:${KERNEL_X}"}});
    let rows = [
        // Sign without build.
        (
            Value::Null,
            json!({"unsignedImage": {"name": "quay.io/a/b:u"}}),
            ["", "quay.io/a/b:u", target],
        ),
        (
            Value::Null,
            json!({"unsignedImage": {"name": "quay.io/a/b@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}}),
            [
                "",
                "quay.io/a/b@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                target,
            ],
        ),
        // Both, with the default name between them.
        (json!({}), json!({}), [unsigned, unsigned, target]),
        (
            json!({}),
            json!({"signedImage": {"name": "quay.io/a/s:${KERNEL_X}"}}),
            [unsigned, unsigned, "quay.io/a/s:4"],
        ),
        (
            json!({}),
            json!({"signedImage": {"name": "${CONTAINER_IMAGE}-signed"}}),
            [unsigned, unsigned, "quay.io/a/b:1-signed"],
        ),
        // Both, with names.
        (named.clone(), json!({}), ["quay.io/c/hello:4", "quay.io/c/hello:4", target]),
        (
            named,
            json!({"unsignedImage": {"name": "quay.io/c/hello:4"}}),
            ["quay.io/c/hello:4", "quay.io/c/hello:4", target],
        ),
    ];
    for (build, sign, expected) in rows {
        let shown = format!("{build} and {sign}");
        let plan = planned(&signed(target, build, &sign), RHEL);
        assert_eq!(images(&plan), expected, "{shown}");
    }
}

#[test]
fn kms_62_a_tag_that_is_too_long_is_cut() {
    let fits = format!("quay.io/a/b:{}", "t".repeat(128 - "_drivers_hello_unsigned".len()));
    let plan = planned(&signed(&fits, json!({}), &json!({})), RHEL);
    assert_eq!(images(&plan)[0], format!("{fits}_drivers_hello_unsigned"));
    let long = format!("{fits}t");
    let plan = planned(&signed(&long, json!({}), &json!({})), RHEL);
    let tag = images(&plan)[0].strip_prefix("quay.io/a/b:").unwrap().to_owned();
    assert!(tag.starts_with(&format!("{}_", "t".repeat(100))), "{tag}");
    assert!(tag.ends_with("_unsigned") && tag.len() == 118, "{tag}");
    // Two tags that differ beyond what is kept do not become one.
    let other = planned(&signed(&format!("{fits}u"), json!({}), &json!({})), RHEL);
    assert_ne!(images(&other)[0], images(&plan)[0]);
    // A target that is too long itself is refused.
    let long = format!("quay.io/a/b:{}", "t".repeat(129));
    let error = super::tests::plan(&signed(&long, json!({}), &json!({})), RHEL).unwrap_err();
    assert!(matches!(error, KernelError::Image { field: "containerImage", .. }), "{error}");
}

#[test]
fn what_cannot_be_pushed_or_signed_is_an_error_with_its_field() {
    let digest =
        "quay.io/a/b@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    let tagged = "quay.io/a/b:1";
    let other = json!({"unsignedImage": {"name": "quay.io/a/other:1"}});
    let rows = [
        (signed(digest, json!({}), &json!({})), "build.push.name: cannot push to a digest"),
        (signed(tagged, json!({"push": {"name": digest}}), &json!({})), "build.push.name: cannot"),
        (signed(digest, Value::Null, &other), "sign.signedImage: cannot push to a digest"),
        (signed(tagged, Value::Null, &json!({})), "sign: nothing to sign"),
        (signed(tagged, json!({}), &other), "differs from build.push.name"),
        (signed("quay.io/a/b", Value::Null, &other), "needs an explicit tag or digest"),
        (signed("Quay/A", Value::Null, &other), "containerImage: "),
        (signed("a/b:${", Value::Null, &other), "containerImage: "),
        (signed(tagged, json!({}), &json!({"keySecret": null})), "sign.keySecret: required"),
        (signed(tagged, json!({}), &json!({"certSecret": {"name": ""}})), "sign.certSecret: req"),
        (signed(tagged, json!({}), &json!({"filesToSign": []})), "sign.filesToSign: required"),
        (signed(tagged, json!({}), &json!({"filesToSign": ["/${NOPE}"]})), "sign.filesToSign"),
        (driver_spec(json!({}), json!({"regexp": "."})), "kernelMappings[0]: no containerImage"),
        (
            driver_spec(json!({"containerImage": tagged, "build": {}}), json!({"regexp": "."})),
            "build: set dockerfile or dockerfileConfigMap",
        ),
    ];
    for (spec, expected) in rows {
        let error = plan(&spec, RHEL).unwrap_err().to_string();
        assert!(error.contains(expected), "{error:?} lacks {expected:?}");
    }
}

#[test]
fn builds_run_on_selected_nodes_of_any_kernel() {
    let mut spec = driver_spec(
        json!({"containerImage": "a/b:1", "build": {"dockerfile": "FROM a"}}),
        json!({"regexp": "."}),
    );
    for label in [KERNEL_LABEL, NFD_KERNEL_LABEL] {
        spec.selector.insert(label.to_owned(), RHEL.to_owned());
    }
    let selector = |spec: &ModuleSpec| planned(spec, RHEL).build.unwrap().node_selector;
    assert_eq!(json!(selector(&spec)), json!({"gpu": "yes"}));
    let container = &mut spec.driver_container.as_mut().unwrap().container;
    container.build.as_mut().unwrap().selector = [("builds".to_owned(), "here".to_owned())].into();
    assert_eq!(json!(selector(&spec)), json!({"builds": "here"}));
}

#[test]
fn stages_that_do_not_run_here_are_ignored() {
    let spec = signed("quay.io/a/b:1", json!({"push": {"name": "quay.io/a/b:u"}}), &json!({}));
    let limited = |build, sign| planned(&spec, RHEL).limited_to(EnabledStages { build, sign });
    let all = limited(true, true);
    assert_eq!((images(&all), all.disabled_stages.len()), (images(&planned(&spec, RHEL)), 0));
    let none = limited(false, false);
    assert_eq!(images(&none), ["", "", "quay.io/a/b:1"]);
    assert_eq!(none.disabled_stages, ["build", "sign"]);
    assert_eq!(images(&limited(false, true)), ["", "quay.io/a/b:u", "quay.io/a/b:1"]);
}

/// The last sample of the document that defines the kind, with its Secrets named.
fn published_sample() -> ModuleSpec {
    let text = include_str!("../../../api/tests/manifests/modules/updated.yaml");
    let text = text
        .replace("keySecret:\n", "keySecret: the-key\n")
        .replace("certSecret:\n", "certSecret: the-cert\n");
    let document = decode::documents(&text, Options::default()).unwrap().remove(0);
    match document.content {
        Decoded::Object(Object::Module(module)) => module.spec,
        _ => panic!("{:?}", document.errors),
    }
}

#[test]
fn the_published_sample_means_this_for_each_kernel() {
    let spec = published_sample();
    let container = Some("FROM some-image\nRUN some-command\n");
    let own = Some("FROM some-new-image\nRUN some-other-command\n");
    let driver = "ghcr.io/vendor/driver:v1.2.3";
    let rows = [
        ("4.18.0-348.el8.x86_64", Some((0, container, format!("{driver}-4.18.0-348.el8.x86_64")))),
        ("4.18.0-348.23.1.el8_5.x86_64", None),
        (
            "5.16.11-200.fc35.x86_64",
            Some((1, container, format!("{driver}-5.16.11-200.fc35.x86_64-random-suffix"))),
        ),
        ("5.4.0-1089-azure", Some((2, container, format!("{driver}-5.4.0-1089-azure")))),
        ("5.4.0-1089-azure-fips", Some((2, container, format!("{driver}-5.4.0-1089-azure-fips")))),
        ("5.15.0-1031-aws", Some((3, container, "quay.io/vendor/module-sample:aws".to_owned()))),
        ("5.4.0-1054-gke", Some((4, own, format!("{driver}-5.4.0-1054-gke")))),
    ];
    for (kernel, expected) in rows {
        let plan = plan(&spec, kernel).unwrap();
        let found = plan.as_ref().map(|plan| {
            let dockerfile = plan.build.as_ref().map(|build| match &build.dockerfile {
                Dockerfile::Inline(text) => text.as_str(),
                Dockerfile::ConfigMap(name) => name.as_str(),
            });
            (plan.mapping, dockerfile, plan.final_image().to_owned())
        });
        assert_eq!(found, expected, "{kernel}");
    }
    let gke = planned(&spec, "5.4.0-1054-gke");
    let unsigned = format!("{driver}-5.4.0-1054-gke-unsigned");
    let expected = [unsigned.as_str(), &unsigned, &format!("{driver}-5.4.0-1054-gke")];
    assert_eq!(images(&gke), expected);
    let sign = gke.sign.as_ref().unwrap();
    assert_eq!((sign.key_secret.as_str(), sign.cert_secret.as_str()), ("the-key", "the-cert"));
    assert_eq!(arguments(&gke)[0], ("SOME_AWS_KEY", "SOME_AWS_VALUE"), "of the container");
}
