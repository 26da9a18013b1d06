//! Tests how settings of the container and of a mapping are merged (3.3, 3.4).

use serde_json::{Value, json};

use super::{accepted, read};
use crate::kernel_modules::{Build, DockerfileSource, Sign};

fn build(value: &Value) -> Option<Build> {
    serde_json::from_value(value.clone()).unwrap()
}

fn sign(value: &Value) -> Option<Sign> {
    serde_json::from_value(value.clone()).unwrap()
}

#[test]
fn mod_63_a_mapping_overrides_the_build_of_the_container() {
    let args = |pairs: &[(&str, &str)]| -> Value {
        pairs.iter().map(|(name, value)| json!({"name": name, "value": value})).collect()
    };
    let table = [
        ("nothing anywhere", json!(null), json!(null), json!(null)),
        ("container only", json!({"dockerfile": "c"}), json!(null), json!({"dockerfile": "c"})),
        ("mapping only", json!(null), json!({"dockerfile": "m"}), json!({"dockerfile": "m"})),
        ("`{}` inherits", json!({"dockerfile": "c"}), json!({}), json!({"dockerfile": "c"})),
        ("`{}` alone is a build", json!(null), json!({}), json!({})),
        (
            "the mapping's Dockerfile wins",
            json!({"dockerfile": "c"}),
            json!({"dockerfile": "m"}),
            json!({"dockerfile": "m"}),
        ),
        (
            "one source discards both",
            json!({"dockerfile": "c", "dockerfileConfigMap": {"name": "c"}}),
            json!({"dockerfileConfigMap": {"name": "m"}}),
            json!({"dockerfileConfigMap": {"name": "m"}}),
        ),
        (
            "the other source discards both",
            json!({"dockerfileConfigMap": {"name": "c"}}),
            json!({"dockerfile": "m"}),
            json!({"dockerfile": "m"}),
        ),
        (
            "arguments are replaced in place, new ones sorted behind",
            json!({"buildArgs": args(&[("Z", "1"), ("B", "2")])}),
            json!({"buildArgs": args(&[("Y", "3"), ("B", "4"), ("A", "5")])}),
            json!({"buildArgs": args(&[("Z", "1"), ("B", "4"), ("A", "5"), ("Y", "3")])}),
        ),
        (
            "pull is replaced as a whole",
            json!({"pull": {"insecure": true}}),
            json!({"pull": {"insecureSkipTLSVerify": true}}),
            json!({"pull": {"insecureSkipTLSVerify": true}}),
        ),
        (
            "pull is replaced even by nothing",
            json!({"pull": {"insecure": true}}),
            json!({"pull": {}}),
            json!({"pull": {}}),
        ),
        (
            "pull is inherited",
            json!({"pull": {"insecure": true}}),
            json!({}),
            json!({"pull": {"insecure": true}}),
        ),
        (
            "push is replaced, its name is not",
            json!({"push": {"name": "c:1", "insecure": true}}),
            json!({"push": {"insecureSkipTLSVerify": true}}),
            json!({"push": {"name": "c:1", "insecureSkipTLSVerify": true}}),
        ),
        (
            "the mapping's push name wins",
            json!({"push": {"name": "c:1", "insecure": true}}),
            json!({"push": {"name": "m:1"}}),
            json!({"push": {"name": "m:1"}}),
        ),
        (
            "push is inherited",
            json!({"push": {"name": "c:1", "insecure": true}}),
            json!({}),
            json!({"push": {"name": "c:1", "insecure": true}}),
        ),
        (
            "secrets are added once",
            json!({"secrets": [{"name": "b"}, {"name": "a"}]}),
            json!({"secrets": [{"name": "c"}, {"name": "a"}]}),
            json!({"secrets": [{"name": "b"}, {"name": "a"}, {"name": "c"}]}),
        ),
        (
            "a selector replaces",
            json!({"selector": {"a": "1"}}),
            json!({"selector": {"b": "2"}}),
            json!({"selector": {"b": "2"}}),
        ),
        (
            "an empty selector does not",
            json!({"selector": {"a": "1"}}),
            json!({"selector": {}}),
            json!({"selector": {"a": "1"}}),
        ),
        (
            "the builder of the mapping wins",
            json!({"builder": "kaniko"}),
            json!({"builder": "buildah"}),
            json!({"builder": "buildah"}),
        ),
        (
            "the context is replaced on its own",
            json!({"dockerfile": "c", "contextConfigMap": {"name": "c"}}),
            json!({"contextConfigMap": {"name": "m"}}),
            json!({"dockerfile": "c", "contextConfigMap": {"name": "m"}}),
        ),
        (
            "another Dockerfile keeps the context",
            json!({"dockerfile": "c", "contextConfigMap": {"name": "c"}}),
            json!({"dockerfile": "m"}),
            json!({"dockerfile": "m", "contextConfigMap": {"name": "c"}}),
        ),
        (
            "the mapping decides about rebuilds",
            json!({"rebuild": "onChange"}),
            json!({"rebuild": "never"}),
            json!({"rebuild": "never"}),
        ),
        (
            "rebuilds are inherited",
            json!({"rebuild": "onChange"}),
            json!({}),
            json!({"rebuild": "onChange"}),
        ),
        (
            "a mapping opts out",
            json!({"dockerfile": "c"}),
            json!({"enabled": false}),
            json!({"dockerfile": "c", "enabled": false}),
        ),
        (
            "a mapping opts in",
            json!({"dockerfile": "c", "enabled": false}),
            json!({"enabled": true}),
            json!({"dockerfile": "c", "enabled": true}),
        ),
    ];
    for (why, container, mapping, expected) in table {
        let merged = Build::merged(build(&container).as_ref(), build(&mapping).as_ref());
        assert_eq!(serde_json::to_value(merged).unwrap(), expected, "{why}");
    }
}

#[test]
fn mod_63_a_mapping_overrides_the_signing_of_the_container() {
    let table = [
        ("nothing anywhere", json!(null), json!(null), json!(null)),
        (
            "container only",
            json!({"keySecret": {"name": "c"}}),
            json!(null),
            json!({"keySecret": {"name": "c"}}),
        ),
        ("mapping only", json!(null), json!({}), json!({})),
        (
            "images are replaced as a whole",
            json!({
                "unsignedImage": {"name": "c:u", "insecure": true},
                "signedImage": {"name": "c:s", "pushSecretRef": {"name": "p"}},
            }),
            json!({"unsignedImage": {"name": "m:u"}, "signedImage": {"name": "m:s"}}),
            json!({"unsignedImage": {"name": "m:u"}, "signedImage": {"name": "m:s"}}),
        ),
        (
            "images are inherited one by one",
            json!({"unsignedImage": {"name": "c:u"}, "signedImage": {"name": "c:s"}}),
            json!({"signedImage": {"name": "m:s"}}),
            json!({"unsignedImage": {"name": "c:u"}, "signedImage": {"name": "m:s"}}),
        ),
        (
            "the mapping's secrets win",
            json!({"keySecret": {"name": "c"}, "certSecret": {"name": "c"}}),
            json!({"certSecret": {"name": "m"}}),
            json!({"keySecret": {"name": "c"}, "certSecret": {"name": "m"}}),
        ),
        (
            "files are added once",
            json!({"filesToSign": ["/b", "/a"]}),
            json!({"filesToSign": ["/c", "/a"]}),
            json!({"filesToSign": ["/b", "/a", "/c"]}),
        ),
        (
            "the mapping's choices win",
            json!({"hashAlgorithm": "sha384", "existingSignature": "skip"}),
            json!({"hashAlgorithm": "sha256", "existingSignature": "append"}),
            json!({"hashAlgorithm": "sha256", "existingSignature": "append"}),
        ),
        (
            "choices are inherited",
            json!({"hashAlgorithm": "sha384", "existingSignature": "skip"}),
            json!({}),
            json!({"hashAlgorithm": "sha384", "existingSignature": "skip"}),
        ),
    ];
    for (why, container, mapping, expected) in table {
        let merged = Sign::merged(sign(&container).as_ref(), sign(&mapping).as_ref());
        assert_eq!(serde_json::to_value(merged).unwrap(), expected, "{why}");
    }
}

/// The table of 3.9, as far as it is about merging.
#[test]
fn mod_62_the_updated_sample_merges_as_worked_out() {
    let sample = include_str!("../../../tests/manifests/modules/updated.yaml")
        .replace("keySecret:\n", "keySecret: k\n")
        .replace("certSecret:\n", "certSecret: c\n");
    let document = read(&sample);
    let container = &accepted(&document).spec.driver_container.as_ref().unwrap().container;
    let common = "ghcr.io/vendor/driver:v1.2.3-${KERNEL_FULL_VERSION}";
    let inherited = "FROM some-image\nRUN some-command\n";
    let target = "${CONTAINER_IMAGE}";
    let unsigned = "ghcr.io/vendor/driver:v1.2.3-${KERNEL_VERSION}-unsigned";
    let table = [
        (0, common, inherited, target, false),
        (
            1,
            "ghcr.io/vendor/driver:v1.2.3-${KERNEL_VERSION}-random-suffix",
            inherited,
            target,
            false,
        ),
        (2, common, inherited, target, false),
        (3, "quay.io/vendor/module-sample:aws", inherited, target, false),
        (4, common, "FROM some-new-image\nRUN some-other-command\n", unsigned, true),
    ];
    for (index, image, dockerfile, push, signed) in table {
        let mapping = &container.kernel_mappings[index];
        assert_eq!(container.image_of(mapping), Some(image), "{index}");
        let build = container.build_of(mapping).unwrap();
        assert_eq!(build.source(), Ok(DockerfileSource::Inline(dockerfile)), "{index}");
        assert_eq!(build.push.unwrap().name.as_deref(), Some(push), "{index}");
        assert_eq!(build.build_args.len(), 1, "{index}");
        assert!(build.pull.is_some(), "{index}");
        assert_eq!(container.sign_of(mapping).is_some(), signed, "{index}");
    }
}
