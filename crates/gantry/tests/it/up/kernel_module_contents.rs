//! What is in the images of Modules, and what nodes do with it: dependencies, arguments, devices.

use super::kernel_module_images::{
    DOCKERFILE, NODES, all_have, built, devices, ephemeral, loaded, ready, signed, with_devices,
};
use super::kernel_modules::MODULES;
use super::*;

const WRAPPERS: &str = "/apis/workload.codeflare.dev/v1beta1/namespaces/default/appwrappers";

/// Two modules in a loading order, and a module of the kernel that is in their way.
#[tokio::test(flavor = "multi_thread")]
async fn kms_86_modules_are_loaded_in_order_and_all_are_gone_after_deletion() {
    let cluster = ephemeral().await;
    // Loads a module of the kernel, and leaves it there.
    let mut loader = built(&cluster, "loader", "FROM scratch\n");
    let container = &mut loader["spec"]["driverContainer"]["container"];
    container["modprobe"] = Value::Null;
    container["command"] = json!(["sleep", "infinity"]);
    container["lifecycle"] = json!({"postStart": {"exec": {"command": ["modprobe", "dummy"]}}});
    cluster.post(MODULES, &loader).await;
    let has_dummy = |it: &Value| loaded(it) == ["dummy"];
    cluster.wait_until(NODES, "have dummy", |it| all_have(it, has_dummy)).await;
    cluster.delete_module("loader").await;
    assert!(all_have(&cluster.get(NODES).await, has_dummy));

    let dockerfile = "FROM example.com/toolkit:1 AS builder\nWORKDIR /src\nRUN make\n\
                      FROM example.com/base:1\nARG KERNEL_FULL_VERSION\n\
                      COPY --from=builder /src/first.ko /src/second.ko \
                      /opt/lib/modules/$KERNEL_FULL_VERSION/\n";
    let mut module = signed(built(&cluster, "ordered", dockerfile), &["first", "second"]);
    let container = &mut module["spec"]["driverContainer"]["container"];
    container["modprobe"] =
        json!({"moduleName": "first", "modulesLoadingOrder": ["first", "second"]});
    container["inTreeModulesToRemove"] = json!(["dummy"]);
    cluster.post(MODULES, &module).await;
    let path = format!("{MODULES}/ordered");
    cluster.wait_until(&path, "is ready on three kernels", |it| ready(it)[0] == 3).await;
    let nodes = cluster.get(NODES).await;
    for node in nodes["items"].as_array().unwrap() {
        assert_eq!(loaded(node), ["second", "first"], "what others need is loaded first");
    }
    cluster.delete_module("ordered").await;
    let is_empty = |it: &Value| loaded(it).is_empty();
    cluster.wait_until(NODES, "have no module", |it| all_have(it, is_empty)).await;
}

/// What a build is made from is in its image, and the driver container reads it.
#[tokio::test(flavor = "multi_thread")]
async fn kms_87_secrets_arguments_kernels_and_defaults_are_in_the_image() {
    let cluster = ephemeral().await;
    let secret = json!({"metadata": {"name": "ci"}, "stringData": {"token": "s3cret\n"}});
    cluster.post("/api/v1/namespaces/default/secrets", &secret).await;
    let dockerfile = "FROM scratch\nARG KERNEL_FULL_VERSION\nARG GIVEN\nARG DEFAULTED=by-default\n\
                      RUN cat /run/secrets/ci/token > /secret\nRUN echo $GIVEN > /given\n\
                      RUN echo $DEFAULTED > /default\nRUN echo $KERNEL_FULL_VERSION > /kernel\n";
    let mut module = built(&cluster, "contents", dockerfile);
    let container = &mut module["spec"]["driverContainer"]["container"];
    container["modprobe"] = Value::Null;
    container["build"]["secrets"] = json!([{"name": "ci"}]);
    container["build"]["buildArgs"] = json!([{"name": "GIVEN", "value": "by-the-user"}]);
    container["command"] =
        json!(["sh", "-c", "cat /secret /given /default /kernel && sleep infinity"]);
    cluster.post(MODULES, &module).await;
    let path = format!("{MODULES}/contents");
    cluster.wait_until(&path, "is ready on three kernels", |it| ready(it)[0] == 3).await;
    let log = cluster.job_log("ooto.sigs.k8s.io/role%3Ddriver-container").await;
    for kernel in ["6.1.0-54-amd64", "6.8.0-45-generic", "6.12.100+deb13-amd64"] {
        let text = format!("s3cret\nby-the-user\nby-default\n{kernel}\n");
        assert!(log.contains(&text), "{kernel}: {log}");
    }
    let built = cluster.job_log("ooto.sigs.k8s.io/job-type%3Dbuild").await;
    assert!(!built.contains("s3cret"), "{built}");
}

/// A workload that needs the devices of a module waits in the queue until the module is loaded.
#[tokio::test(flavor = "multi_thread")]
async fn an_app_wrapper_waits_for_the_devices_of_a_module() {
    let cluster = ephemeral().await;
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"},
        "spec": {"template": {"spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "example.com/train:1",
                "resources": {"limits": {"example.com/gpu": "2"}}}],
        }}},
    });
    let wrapper = json!({
        "apiVersion": "workload.codeflare.dev/v1beta1", "kind": "AppWrapper",
        "metadata": {"name": "train"},
        "spec": {"resources": {"GenericItems": [
            {"generictemplate": job, "completionstatus": "Complete"},
        ]}},
    });
    cluster.post(WRAPPERS, &wrapper).await;
    let path = format!("{WRAPPERS}/train");
    let is_pending = |it: &Value| it["status"]["state"] == "Pending";
    cluster.wait_until(&path, "waits", is_pending).await;
    let said = cluster.run_gantry(&["explain", "appwrapper/train"]).await;
    assert!(said.contains("example.com/gpu: needs 2, 0 available"), "{said}");
    assert!(said.contains("may wait for a kernel module"), "{said}");

    let module = with_devices(signed(built(&cluster, "hello", DOCKERFILE), &["hello"]));
    cluster.post(MODULES, &module).await;
    let is_done = |it: &Value| it["status"]["state"] == "Completed";
    cluster.wait_until(&path, "ran on devices of the module", is_done).await;
    let pools = "/apis/devmgmtproto.k8s.io/v1alpha1/devicepools";
    let count = |it: &Value| it["items"].as_array().map_or(0, Vec::len);
    cluster.wait_until(pools, "there is one for each node", |it| count(it) == 3).await;
    cluster.delete_module("hello").await;
    cluster.wait_until(pools, "there is none", |it| count(it) == 0).await;
    let has_none = |it: &Value| devices(it) == "0";
    cluster.wait_until(NODES, "have no devices", |it| all_have(it, has_none)).await;
}

/// `--demo` shows all of it.
#[tokio::test(flavor = "multi_thread")]
async fn the_module_of_the_demo_is_loaded_on_three_kernels() {
    let plan = Plan::new(env!("CARGO_BIN_EXE_gantry")).flag("--ephemeral").flag("--demo");
    let cluster = Cluster::start(plan).await;
    let nodes = cluster.get(NODES).await;
    let nodes = nodes["items"].as_array().unwrap();
    let kernel =
        |it: &Value| it["status"]["nodeInfo"]["kernelVersion"].as_str().unwrap().to_owned();
    let kernels: std::collections::BTreeSet<String> = nodes.iter().map(kernel).collect();
    assert_eq!((nodes.len(), kernels.len()), (4, 3), "{kernels:?}");
    let enforcing = |it: &&Value| {
        it["metadata"]["annotations"]["sim.gantry.dev/module-signatures"] == "enforce"
    };
    assert_eq!(nodes.iter().filter(enforcing).count(), 1);
    let path = MODULES.replace("/default/", "/demo/") + "/sample";
    cluster.wait_until(&path, "is ready on all nodes", |it| ready(it) == [4, 4]).await;
    let is_loaded = |it: &Value| loaded(it) == ["sample"];
    cluster.wait_until(NODES, "have the module", |it| all_have(it, is_loaded)).await;
}
