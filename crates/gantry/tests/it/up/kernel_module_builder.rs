//! `gantry up --builder buildah`: images of Modules are built by the buildah of this machine.

use super::images::host;
use super::kernel_module_images::built;
use super::kernel_modules::MODULES;
use super::*;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// An executable for x86-64, without libraries: it writes [`WORDS`] to its output.
const PROGRAM: &str = "f0VMRgIBAQAAAAAAAAAAAAIAPgABAAAAeABAAAAAAABAAAAAAAAAAAAAAAAAAAAAAAAAAEAAOAABAAAAAA\
    AAAAEAAAAFAAAAAAAAAAAAAAAAAEAAAAAAAAAAQAAAAAAArwAAAAAAAACvAAAAAAAAAAAQAAAAAAAAuAEAAAC/AQAAAEiNNRAAAAC6FgAA\
    AA8FuDwAAAAx/w8FcmFuIGJ5IGEgcmVhbCBidWlsZGVyCg==";
const WORDS: &str = "ran by a real builder";
const DOCKERFILE: &str = "\
FROM scratch
ARG KERNEL_FULL_VERSION
COPY --chmod=755 program /program
RUN [\"/program\"]
";

/// Why real builds do not run here, if they do not.
fn missing() -> Option<&'static str> {
    let buildah = std::process::Command::new("buildah").arg("--version").output();
    if !buildah.is_ok_and(|it| it.status.success()) {
        return Some("buildah is not installed: apt-get install buildah");
    }
    if !rustix::process::getuid().is_root() {
        return Some("only root builds without user namespaces");
    }
    (std::env::consts::ARCH != "x86_64").then_some("the program is for x86_64")
}

#[tokio::test(flavor = "multi_thread")]
async fn real_builds_run_the_commands_of_a_dockerfile() {
    if let Some(why) = missing() {
        println!("skipped: {why}");
        return;
    }
    let flags = ["--ephemeral", "--builder", "buildah"];
    let plan =
        flags.iter().fold(Plan::new(env!("CARGO_BIN_EXE_gantry")), |it, flag| it.flag(*flag));
    let cluster = Cluster::start(plan).await;
    let files = json!({"metadata": {"name": "files"}, "binaryData": {"program": PROGRAM}});
    cluster.post(CONFIG_MAPS, &files).await;
    let mut module = built(&cluster, "real", DOCKERFILE);
    let container = &mut module["spec"]["driverContainer"]["container"];
    container["build"]["contextConfigMap"] = json!({"name": "files"});
    container["command"] = json!(["sleep", "infinity"]);
    container.as_object_mut().unwrap().remove("modprobe");
    cluster.post(MODULES, &module).await;
    let ready = |it: &Value| it["status"]["driverContainer"]["numberReady"].as_u64() > Some(0);
    cluster.wait_until(&format!("{MODULES}/real"), "its image was built and runs", ready).await;
    let log = cluster.job_log("ooto.sigs.k8s.io/job-type%3Dbuild").await;
    assert!(log.contains(WORDS), "the command has run: {log}");
    assert!(!log.contains("simulated"), "{log}");

    // The next build starts from an image of the cluster's registry, with the pod's credentials.
    let base = format!("{}/default/real:v1-6.8.0-gantry", host(&cluster));
    let mut next = built(&cluster, "next", &format!("FROM {base}\nRUN [\"/program\"]\n"));
    let container = &mut next["spec"]["driverContainer"]["container"];
    container["command"] = json!(["sleep", "infinity"]);
    container.as_object_mut().unwrap().remove("modprobe");
    cluster.post(MODULES, &next).await;
    cluster.wait_until(&format!("{MODULES}/next"), "the second image was built", ready).await;
    let log = cluster.job_log("oot.node.kubernetes.io/module.name%3Dnext").await;
    assert!(log.contains(WORDS), "{log}");

    // What fails is the failure of the Job, with buildah's own words in its log.
    let mut bad = built(&cluster, "bad", "FROM scratch\nRUN [\"/none\"]\n");
    bad["spec"]["driverContainer"]["container"]["build"]["buildArgs"] =
        json!([{"name": "A", "value": "$(reboot)"}]);
    cluster.post(MODULES, &bad).await;
    let events = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name=bad";
    let failed = |it: &Value| {
        let mut events = it["items"].as_array().into_iter().flatten();
        events.any(|it| {
            let message = it["message"].as_str().unwrap_or_default();
            it["reason"] == "BuildFailed" && message.contains("buildah ended with code")
        })
    };
    cluster.wait_until(events, "the failure is reported", failed).await;
    let log = cluster.job_log("oot.node.kubernetes.io/module.name%3Dbad").await;
    assert!(log.contains("/none"), "{log}");
}

#[test]
fn a_builder_that_is_not_installed_is_reported_before_anything_starts() {
    let empty = tempfile::tempdir().unwrap();
    let path = empty.path().to_str().unwrap();
    let arguments = ["up", "--ephemeral", "--port", "0", "--builder", "buildah"];
    let run = crate::gantry_with(&arguments, &[("PATH", path)], "");
    assert_ne!(run.code, 0, "{}", run.out);
    for part in ["no program buildah in PATH", "apt-get install buildah", "--builder simulated"] {
        assert!(run.err.contains(part), "{}", run.err);
    }
    let run = gantry(&["up", "--builder", "docker"]);
    assert_eq!(run.code, 2, "{}", run.err);
    assert!(run.err.contains("simulated, buildah"), "{}", run.err);
}
