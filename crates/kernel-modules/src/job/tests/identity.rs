//! Names and hashes of Jobs.

use std::collections::BTreeSet;

use gantry_api::kernel_modules::{LoaderContainer, ModuleSpec};
use serde_json::json;

use super::super::{DesiredJob, JobType, derived_name, job_name, short_hash};
use super::{JobInputs, Jobs, full_spec, jobs};

/// Whether a text is a DNS label.
fn is_dns_label(text: &str) -> bool {
    let valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=63).contains(&text.len())
        && text.chars().all(valid)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

#[test]
fn names_are_valid_and_differ() {
    let long = "r".repeat(200);
    let images = [
        "a:1".to_owned(),
        "quay.io/vendor/driver:v1".to_owned(),
        "quay.io:5000/vendor/driver".to_owned(),
        "quay.io/vendor/driver@sha256:aa".to_owned(),
        format!("quay.io/vendor/{long}:v1"),
        format!("quay.io/vendor/{long}s:v1"),
        "quay.io/vendor/a__b.c--d:v1".to_owned(),
        format!("quay.io/a/{}.{}:v1", "x".repeat(45), "y"),
        ":".to_owned(),
    ];
    let mut names = BTreeSet::new();
    for image in &images {
        for job_type in [JobType::Build, JobType::Sign] {
            let name = job_name(job_type, image);
            assert!(is_dns_label(&name), "{name} of {image}");
            assert!(names.insert(name.clone()), "{name} is of two images");
        }
    }
    assert!(job_name(JobType::Build, &images[1]).starts_with("driver-build-"));
    // The longest names of Modules, and those that differ where they are cut or changed.
    let cut = "m".repeat(41);
    let modules = [cut.clone(), format!("{cut}n"), format!("{cut}m"), "a.b".into(), "a-b".into()];
    for what in ["driver", "device-plugin"] {
        for module in &modules {
            let name = derived_name(module, what, "0123456789");
            assert!(is_dns_label(&name), "{name}");
            assert!(names.insert(name.clone()), "{name} is of two Modules");
        }
    }
    assert_eq!(derived_name("hello", "driver", "0123456789"), "hello-driver-0123456789");
}

#[test]
fn one_image_has_one_job_for_all_kernels_and_modules() {
    assert_eq!(
        job_name(JobType::Build, "quay.io/a/b:1"),
        job_name(JobType::Build, "quay.io/a/b:1")
    );
    assert_ne!(
        job_name(JobType::Build, "quay.io/a/b:1"),
        job_name(JobType::Build, "quay.io/a/b:2")
    );
    assert_ne!(
        job_name(JobType::Build, "quay.io/a/b:1"),
        job_name(JobType::Build, "quay.io/c/b:1")
    );
}

#[test]
fn every_input_changes_the_hash() {
    let base = full_spec();
    let inputs = JobInputs::default();
    let first = jobs(&base, &inputs);
    let again = jobs(&base, &inputs);
    assert_eq!(
        (&first.build, &first.sign),
        (&again.build, &again.sign),
        "equal inputs, equal Jobs"
    );
    let container = |change: &dyn Fn(&mut LoaderContainer)| {
        let mut spec = base.clone();
        change(&mut spec.driver_container.as_mut().unwrap().container);
        spec
    };
    // Whether the build and the signing differ, and whether the content of the image does.
    let specs = [
        (
            "argument",
            container(&|it| {
                it.build.as_mut().unwrap().build_args[0].value = "b".into();
            }),
            [true, true],
            [true, true],
        ),
        (
            "secret",
            container(&|it| {
                it.build.as_mut().unwrap().secrets.truncate(1);
            }),
            [true, false],
            [false, false],
        ),
        (
            "selector",
            container(&|it| {
                it.build.as_mut().unwrap().selector.clear();
            }),
            [true, false],
            [false, false],
        ),
        (
            "pull",
            container(&|it| {
                it.build.as_mut().unwrap().pull =
                    serde_json::from_value(json!({"insecure": true})).unwrap();
            }),
            [true, false],
            [false, false],
        ),
        (
            "files",
            container(&|it| {
                it.sign.as_mut().unwrap().files_to_sign.truncate(1);
            }),
            [false, true],
            [false, true],
        ),
        (
            "key",
            container(&|it| {
                it.sign.as_mut().unwrap().key_secret =
                    serde_json::from_value(json!({"name": "k"})).unwrap();
            }),
            [false, true],
            [false, true],
        ),
        (
            "cert",
            container(&|it| {
                it.sign.as_mut().unwrap().cert_secret =
                    serde_json::from_value(json!({"name": "k"})).unwrap();
            }),
            [false, true],
            [false, true],
        ),
        (
            "digest",
            container(&|it| {
                it.sign.as_mut().unwrap().hash_algorithm =
                    serde_json::from_value(json!("sha512")).unwrap();
            }),
            [false, true],
            [false, true],
        ),
        (
            "existing",
            container(&|it| {
                it.sign.as_mut().unwrap().existing_signature =
                    serde_json::from_value(json!("skip")).unwrap();
            }),
            [false, true],
            [false, true],
        ),
        (
            "push secret",
            container(&|it| {
                let signed = json!({"name": "${CONTAINER_IMAGE}"});
                it.sign.as_mut().unwrap().signed_image = serde_json::from_value(signed).unwrap();
            }),
            [false, true],
            [false, false],
        ),
        (
            "tolerations",
            ModuleSpec { tolerations: Vec::new(), ..base.clone() },
            [true, true],
            [false, false],
        ),
    ];
    let input_hash = |job: &DesiredJob| {
        job.body["metadata"]["annotations"]["ooto.sigs.k8s.io/input-hash"].clone()
    };
    let compare = |what: &str, changed: &Jobs, hashes: [bool; 2], contents: [bool; 2]| {
        let found = [first.build.hash != changed.build.hash, first.sign.hash != changed.sign.hash];
        assert_eq!(found, hashes, "hash after a change of {what}");
        let found = [
            input_hash(&first.build) != input_hash(&changed.build),
            input_hash(&first.sign) != input_hash(&changed.sign),
        ];
        assert_eq!(found, contents, "content after a change of {what}");
    };
    for (what, spec, hashes, contents) in specs {
        compare(what, &jobs(&spec, &inputs), hashes, contents);
    }
    let with = |change: &dyn Fn(&mut JobInputs)| {
        let mut inputs = inputs.clone();
        change(&mut inputs);
        jobs(&base, &inputs)
    };
    compare("Dockerfile", &with(&|it| it.dockerfile = "sha256:bb"), [true, true], [true, true]);
    compare("key version", &with(&|it| it.key_version = "2"), [false, true], [false, true]);
    compare("cert version", &with(&|it| it.cert_version = "2"), [false, true], [false, true]);
    compare("trigger", &with(&|it| it.trigger = Some(1)), [true, true], [false, false]);
    let other = with(&|it| it.settings.builder.buildah_image = "b:2".into());
    compare("builder", &other, [true, false], [false, false]);
    let other = with(&|it| it.settings.jobs.gantry_image = "g:2".into());
    compare("signer", &other, [true, true], [false, false]);
}

#[test]
fn boundaries_of_texts_are_part_of_a_hash() {
    assert_ne!(short_hash(&["ab", "c"], 16), short_hash(&["a", "bc"], 16));
    assert_ne!(short_hash(&["a", ""], 16), short_hash(&["a"], 16));
}
