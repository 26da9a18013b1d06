//! Credentials of Jobs, and how far they trust registries.

use std::collections::BTreeSet;

use gantry_api::kernel_modules::Builder;
use serde_json::{Value, json};

use super::{BUILD_SCRIPT, JobInputs, Jobs, full_spec, jobs, pod, texts, values};
use crate::settings::BuildEngine;

#[test]
fn kms_44_all_credentials_are_merged_in_their_order() {
    let Jobs { build, sign } = jobs(&full_spec(), &JobInputs::default());
    let merged = |pod: &Value, container: &Value| -> Vec<String> {
        let sources = texts(&container["args"]).split_off(4);
        let secret_at = |path: &str| {
            let mounts = container["volumeMounts"].as_array().unwrap();
            let mount = mounts.iter().find(|it| it["mountPath"] == path).unwrap();
            assert_eq!(mount["readOnly"], true, "{path}");
            let volumes = pod["volumes"].as_array().unwrap();
            let volume = volumes.iter().find(|it| it["name"] == mount["name"]).unwrap();
            volume["secret"]["secretName"].as_str().unwrap().to_owned()
        };
        sources.into_iter().map(secret_at).collect()
    };
    let init = &pod(&build)["initContainers"][0];
    assert_eq!(merged(pod(&build), init), ["r0", "r1"]);
    assert_eq!(
        texts(&init["args"])[..4],
        ["modules", "merge-auth", "--output", "/run/auth/config.json"]
    );
    let [pull, push] = pod(&sign)["initContainers"].as_array().unwrap().as_slice() else {
        panic!("{}", pod(&sign)["initContainers"])
    };
    assert_eq!(merged(pod(&sign), pull), ["r0", "r1"]);
    assert_eq!(merged(pod(&sign), push), ["push", "r0", "r1"], "that of the push comes first");
    let container = &pod(&sign)["containers"][0];
    assert_eq!(values(container, "--auth-file"), ["/run/auth/config.json"]);
    assert_eq!(values(container, "--push-auth-file"), ["/run/auth/push.json"]);
    for job in [&build, &sign] {
        let volumes = pod(job)["volumes"].as_array().unwrap();
        let auth = volumes.iter().find(|it| it["name"] == "auth").unwrap();
        assert_eq!(auth["emptyDir"]["medium"], "Memory", "credentials are not on a disk");
        let names: BTreeSet<&str> = volumes.iter().map(|it| it["name"].as_str().unwrap()).collect();
        assert_eq!(names.len(), volumes.len(), "{names:?}");
    }
    // Without Secrets there is nothing to merge.
    let mut anonymous = full_spec();
    let driver = anonymous.driver_container.as_mut().unwrap();
    driver.image_repo_secrets.clear();
    driver.container.sign.as_mut().unwrap().signed_image = None;
    let Jobs { build, sign } = jobs(&anonymous, &JobInputs::default());
    for job in [&build, &sign] {
        assert_eq!(pod(job).get("initContainers"), None);
        let volumes = pod(job)["volumes"].as_array().unwrap();
        assert!(volumes.iter().all(|it| it["name"] != "auth"));
        let args = texts(&pod(job)["containers"][0]["args"]);
        assert!(args.iter().all(|it| !it.contains("auth")), "{args:?}");
    }
}

#[test]
fn kms_45_trust_in_registries_becomes_flags() {
    let tls = |insecure: bool, unverified: bool| json!({"insecure": insecure, "insecureSkipTLSVerify": unverified});
    for (insecure, unverified) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut spec = full_spec();
        let container = &mut spec.driver_container.as_mut().unwrap().container;
        let build = container.build.as_mut().unwrap();
        build.pull = serde_json::from_value(tls(insecure, unverified)).unwrap();
        build.push = serde_json::from_value(tls(unverified, insecure)).unwrap();
        let mut signed = tls(insecure, unverified);
        signed["name"] = json!("${CONTAINER_IMAGE}");
        container.sign.as_mut().unwrap().signed_image = serde_json::from_value(signed).unwrap();
        let Jobs { build, sign } = jobs(&spec, &JobInputs::default());
        // buildah has one switch for both.
        let container = &pod(&build)["containers"][0];
        let verifies = !insecure && !unverified;
        let flag = format!("--tls-verify={verifies}");
        assert!(texts(&container["args"]).contains(&flag.as_str()), "{flag}");
        let env = container["env"].as_array().unwrap();
        let push = env.iter().find(|it| it["name"] == "PUSH_TLS_VERIFY").unwrap();
        assert_eq!(push["value"], json!(verifies.to_string()));
        let expected = [
            // What was built is pulled as it was pushed.
            ("--insecure-pull", unverified),
            ("--skip-tls-verify-pull", insecure),
            ("--insecure-push", insecure),
            ("--skip-tls-verify-push", unverified),
        ];
        let args = texts(&pod(&sign)["containers"][0]["args"]);
        for (flag, expected) in expected {
            assert_eq!(args.contains(&flag), expected, "{flag}");
        }
        let container = &mut spec.driver_container.as_mut().unwrap().container;
        container.build.as_mut().unwrap().builder = Some(Builder::Kaniko);
        let build = jobs(&spec, &JobInputs::default()).build;
        let args = texts(&pod(&build)["containers"][0]["args"]);
        let expected = [
            ("--insecure-pull", insecure),
            ("--skip-tls-verify-pull", unverified),
            ("--insecure", unverified),
            ("--skip-tls-verify", insecure),
        ];
        for (flag, expected) in expected {
            assert_eq!(args.contains(&flag), expected, "kaniko {flag}");
        }
    }
}

/// MC-9: a bundle of certificates reaches every builder and the signer.
#[test]
fn kms_45_certificates_of_registries_are_in_every_job() {
    let mut inputs = JobInputs::default();
    let without = jobs(&full_spec(), &inputs);
    for job in [&without.build, &without.sign] {
        assert!(!job.body.to_string().contains("registry-ca"), "{}", job.body);
    }
    inputs.settings.registry_ca_config_map = Some("trusted".to_owned());
    let Jobs { build, sign } = jobs(&full_spec(), &inputs);
    let mut spec = full_spec();
    let container = &mut spec.driver_container.as_mut().unwrap().container;
    container.build.as_mut().unwrap().builder = Some(Builder::Kaniko);
    let kaniko = jobs(&spec, &inputs).build;
    inputs.settings.builder.engine = BuildEngine::Simulated;
    let simulated = jobs(&full_spec(), &inputs).build;
    for job in [&build, &sign, &kaniko, &simulated] {
        let volumes = pod(job)["volumes"].as_array().unwrap();
        let volume = volumes.iter().find(|it| it["name"] == "registry-ca").unwrap();
        let map = json!({"name": "trusted", "items": [{"key": "ca.crt", "path": "ca.crt"}]});
        assert_eq!(volume["configMap"], map);
        let mounts = pod(job)["containers"][0]["volumeMounts"].as_array().unwrap();
        let mount = mounts.iter().find(|it| it["name"] == "registry-ca").unwrap();
        let expected =
            json!({"name": "registry-ca", "mountPath": "/run/registry-ca", "readOnly": true});
        assert_eq!(*mount, expected);
    }
    let buildah = &pod(&build)["containers"][0];
    assert_eq!(values(buildah, "--cert-dir"), ["/run/registry-ca"], "for base images");
    let env = |container: &Value, name: &str| -> Value {
        let env = container["env"].as_array().unwrap();
        env.iter().find(|it| it["name"] == name).map_or(Value::Null, |it| it["value"].clone())
    };
    assert_eq!(env(buildah, "CERT_DIR"), "/run/registry-ca", "for the push");
    assert!(BUILD_SCRIPT.contains("${CERT_DIR:+--cert-dir \"$CERT_DIR\"}"));
    let kaniko = &pod(&kaniko)["containers"][0];
    assert_eq!(env(kaniko, "SSL_CERT_DIR"), "/kaniko/ssl/certs:/run/registry-ca");
    for job in [&sign, &simulated] {
        let container = &pod(job)["containers"][0];
        assert_eq!(values(container, "--ca-file"), ["/run/registry-ca/ca.crt"]);
    }
    assert_ne!(build.hash, without.build.hash, "a Job that failed is replaced");
    assert_ne!(sign.hash, without.sign.hash);
}
