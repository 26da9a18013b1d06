//! The DaemonSets of a Module.

use std::process::Command;

use gantry_api::kernel_modules::ModuleSpec;
use serde_json::{Value, json};

use super::{DesiredDaemonSet, driver_daemon_set, plugin_daemon_set};
use crate::settings::{KernelLabeling, Settings};
use crate::test_support::{PLUS, RHEL, metadata, planned, spec, with_kernel};
use crate::view::DaemonSet;

/// A Module with a prebuilt image and everything that a user may add.
fn full_spec() -> ModuleSpec {
    spec(json!({
        "selector": {"gpu": "yes"},
        "driverContainer": {
            "container": {
                "kernelMappings": [{"regexp": ".", "containerImage": "quay.io/a/driver:${KERNEL_VERSION}"}],
                "command": ["sleep", "infinity"],
                "volumeMounts": [{"name": "own", "mountPath": "/own"}],
            },
            "imageRepoSecrets": [{"name": "r0"}, {"name": "r1"}],
            "volumes": [{"name": "own", "emptyDir": {}}],
        },
        "devicePlugin": {
            "container": {
                "image": "quay.io/a/plugin:1",
                "securityContext": {"privileged": false, "runAsUser": 0},
                "volumeMounts": [{"name": "sys", "mountPath": "/sys"}],
            },
            "imagePullSecrets": [{"name": "p0"}],
            "volumes": [{"name": "sys", "hostPath": {"path": "/sys"}}],
        },
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
    }))
}

fn driver(spec: &ModuleSpec, kernel: &str, settings: &Settings) -> DesiredDaemonSet {
    let module = with_kernel(spec, kernel);
    let label = planned(spec, kernel).kernel.label_safe();
    let plan = planned(spec, kernel);
    let container = spec.driver_container.as_ref().unwrap();
    driver_daemon_set(&module, &metadata(), container, (&label, &plan), settings)
}

fn plugin(spec: &ModuleSpec) -> DesiredDaemonSet {
    let mut module = match &spec.driver_container {
        Some(_) => with_kernel(spec, RHEL),
        None => with_kernel(&full_spec(), RHEL),
    };
    module.spec = spec.clone().into();
    let plugin = spec.device_plugin.as_ref().unwrap();
    plugin_daemon_set(&module, &metadata(), plugin, &plugin.container.image)
}

fn pod(set: &DesiredDaemonSet) -> &Value {
    &set.body["spec"]["template"]["spec"]
}

fn owner() -> Value {
    json!([{
        "apiVersion": "ooto.sigs.k8s.io/v1alpha1", "kind": "Module", "name": "hello",
        "uid": "uid-hello", "controller": true, "blockOwnerDeletion": true,
    }])
}

/// A DaemonSet without its hash, which is another test's.
fn without_hash(set: &DesiredDaemonSet) -> Value {
    let mut body = set.body.clone();
    let annotations = body["metadata"]["annotations"].as_object_mut().unwrap();
    assert_eq!(annotations.shift_remove("ooto.sigs.k8s.io/last-hash"), Some(json!(set.hash)));
    body
}

#[test]
fn kms_20_a_prebuilt_image_gives_exactly_this_daemon_set() {
    let set = driver(&full_spec(), PLUS, &Settings::default());
    let labels = json!({
        "oot.node.kubernetes.io/module.name": "hello",
        "ooto.sigs.k8s.io/role": "driver-container",
        "oot.node.kubernetes.io/kernel-version.full": "5.10.133",
    });
    let expected = json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "name": set.name,
            "namespace": "drivers",
            "labels": labels,
            "annotations": {"ooto.sigs.k8s.io/kernel-version": "5.10.133+"},
            "ownerReferences": owner(),
        },
        "spec": {
            "selector": {"matchLabels": labels},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
            "template": {
                "metadata": {"labels": labels, "annotations": {}},
                "spec": {
                    "containers": [{
                        "name": "driver-container",
                        "image": "quay.io/a/driver:5.10.133_",
                        "command": ["sleep", "infinity"],
                        "securityContext": {
                            "allowPrivilegeEscalation": false,
                            "capabilities": {"add": ["SYS_MODULE"]},
                            "runAsUser": 0,
                            "seLinuxOptions": {"type": "spc_t"},
                        },
                        "terminationMessagePolicy": "FallbackToLogsOnError",
                        "volumeMounts": [
                            {"name": "node-lib-modules", "mountPath": "/lib/modules", "readOnly": true},
                            {"name": "node-usr-lib-modules", "mountPath": "/usr/lib/modules", "readOnly": true},
                            {"name": "node-lib-modules", "mountPath": "/host/lib/modules", "readOnly": true},
                            {"name": "own", "mountPath": "/own"},
                        ],
                    }],
                    "nodeSelector": {
                        "gpu": "yes",
                        "oot.node.kubernetes.io/kernel-version.full": "5.10.133",
                    },
                    "serviceAccountName": "hello-driver-container",
                    "terminationGracePeriodSeconds": 60,
                    "volumes": [
                        {"name": "node-lib-modules", "hostPath": {"path": "/lib/modules"}},
                        {"name": "node-usr-lib-modules", "hostPath": {"path": "/usr/lib/modules"}},
                        {"name": "own", "emptyDir": {}},
                    ],
                    "priorityClassName": "system-node-critical",
                    "imagePullSecrets": [{"name": "r0"}, {"name": "r1"}],
                    "tolerations": [{"key": "gpu", "operator": "Exists"}],
                },
            },
        },
    });
    assert_eq!(without_hash(&set), expected);
    assert!(set.name.starts_with("hello-driver-"), "{}", set.name);
}

#[test]
fn kms_21_a_device_plugin_gives_exactly_this_daemon_set() {
    let set = plugin(&full_spec());
    let labels = json!({
        "oot.node.kubernetes.io/module.name": "hello",
        "ooto.sigs.k8s.io/role": "device-plugin",
    });
    let expected = json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "name": set.name,
            "namespace": "drivers",
            "labels": labels,
            "annotations": {},
            "ownerReferences": owner(),
        },
        "spec": {
            "selector": {"matchLabels": labels},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
            "template": {
                "metadata": {"labels": labels, "annotations": {}},
                "spec": {
                    "containers": [{
                        "name": "device-plugin",
                        "image": "quay.io/a/plugin:1",
                        "securityContext": {"privileged": true, "runAsUser": 0},
                        "volumeMounts": [
                            {"name": "kubelet-device-plugins",
                             "mountPath": "/var/lib/kubelet/device-plugins"},
                            {"name": "sys", "mountPath": "/sys"},
                        ],
                    }],
                    "nodeSelector": {"oot.node.kubernetes.io/drivers.hello.ready": ""},
                    "serviceAccountName": "hello-device-plugin",
                    "volumes": [
                        {"name": "kubelet-device-plugins",
                         "hostPath": {"path": "/var/lib/kubelet/device-plugins"}},
                        {"name": "sys", "hostPath": {"path": "/sys"}},
                    ],
                    "imagePullSecrets": [{"name": "p0"}],
                    "tolerations": [{"key": "gpu", "operator": "Exists"}],
                },
            },
        },
    });
    assert_eq!(without_hash(&set), expected);
}

#[test]
fn kms_21_a_device_plugin_without_a_driver_runs_on_selected_nodes() {
    let mut spec = full_spec();
    spec.driver_container = None;
    assert_eq!(pod(&plugin(&spec))["nodeSelector"], json!({"gpu": "yes"}));
}

#[test]
fn kms_21_init_containers_are_privileged_and_tokens_are_the_users_choice() {
    let mut spec = full_spec();
    assert_eq!(pod(&plugin(&spec)).get("automountServiceAccountToken"), None);
    let part = spec.device_plugin.as_mut().unwrap();
    part.init_container =
        serde_json::from_value(json!({"image": "i:1", "command": ["wait"]})).unwrap();
    part.automount_service_account_token = Some(false);
    part.service_account_name = Some("mine".to_owned());
    let set = plugin(&spec);
    let pod = pod(&set);
    assert_eq!(
        pod["initContainers"],
        json!([{
            "name": "device-plugin-init", "image": "i:1", "command": ["wait"],
            "securityContext": {"privileged": true},
        }])
    );
    assert_eq!(pod["automountServiceAccountToken"], false);
    assert_eq!(pod["serviceAccountName"], "mine");
}

#[test]
fn the_security_context_of_a_driver_is_the_users_if_there_is_one() {
    let mut spec = full_spec();
    let default = driver(&spec, RHEL, &Settings::default());
    let context = |set: &DesiredDaemonSet| pod(set)["containers"][0]["securityContext"].clone();
    assert_eq!(context(&default).get("privileged"), None);
    let own = json!({"privileged": true});
    let container = &mut spec.driver_container.as_mut().unwrap().container;
    container.fields.security_context = serde_json::from_value(own.clone()).unwrap();
    assert_eq!(context(&driver(&spec, RHEL, &Settings::default())), own);
    // An empty one is one: nothing is added.
    let container = &mut spec.driver_container.as_mut().unwrap().container;
    container.fields.security_context = serde_json::from_value(json!({})).unwrap();
    assert_eq!(context(&driver(&spec, RHEL, &Settings::default())), json!({}));
}

#[test]
fn kms_29_the_label_of_node_feature_discovery_is_used_when_configured() {
    let settings =
        Settings { kernel_labeling: KernelLabeling::NodeFeatureDiscovery, ..Settings::default() };
    let set = driver(&full_spec(), RHEL, &settings);
    let key = "feature.node.kubernetes.io/kernel-version.full";
    assert_eq!(pod(&set)["nodeSelector"], json!({"gpu": "yes", key: RHEL}));
    assert_eq!(set.body["metadata"]["labels"][key], RHEL);
    assert!(!set.body.to_string().contains("oot.node.kubernetes.io/kernel-version.full"));
    let own = driver(&full_spec(), RHEL, &Settings::default());
    assert_ne!(set.name, own.name, "a selector cannot be changed");
}

#[test]
fn versions_have_daemon_sets_of_their_own() {
    let mut spec = full_spec();
    let unversioned = [driver(&spec, RHEL, &Settings::default()), plugin(&spec)];
    let mut names: Vec<String> = unversioned.iter().map(|it| it.name.clone()).collect();
    for version in ["1", "2"] {
        spec.driver_container.as_mut().unwrap().container.version = version.to_owned();
        let sets = [driver(&spec, RHEL, &Settings::default()), plugin(&spec)];
        let keys = ["version-driver", "version-plugin"];
        for (set, key) in sets.iter().zip(keys) {
            let key = format!("beta.oot.node.kubernetes.io/{key}.drivers.hello");
            for labels in [
                &set.body["metadata"]["labels"],
                &set.body["spec"]["selector"]["matchLabels"],
                &set.body["spec"]["template"]["metadata"]["labels"],
                &pod(set)["nodeSelector"],
            ] {
                assert_eq!(labels[&key], version);
            }
            names.push(set.name.clone());
        }
        let ready = "oot.node.kubernetes.io/drivers.hello.ready";
        assert_eq!(pod(&sets[1])["nodeSelector"][ready], "", "it waits for the driver as well");
    }
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count, "{names:?}");
}

/// A Module whose commands Gantry writes.
fn with_modprobe(modprobe: Value, in_tree: &[&str]) -> DesiredDaemonSet {
    let mut spec = full_spec();
    let container = &mut spec.driver_container.as_mut().unwrap().container;
    container.fields.command = None;
    container.modprobe = serde_json::from_value(modprobe).unwrap();
    container.in_tree_modules_to_remove = in_tree.iter().map(|it| (*it).to_owned()).collect();
    driver(&spec, RHEL, &Settings::default())
}

fn hook<'a>(set: &'a DesiredDaemonSet, name: &str) -> &'a Value {
    &pod(set)["containers"][0]["lifecycle"][name]["exec"]["command"]
}

#[test]
fn modprobe_becomes_hooks_without_a_shell() {
    let set = with_modprobe(json!({"moduleName": "kmm", "parameters": ["debug=1", "$(x)"]}), &[]);
    assert_eq!(pod(&set)["containers"][0]["command"], json!(["sleep", "infinity"]));
    assert_eq!(
        hook(&set, "postStart"),
        &json!(["modprobe", "-v", "-d", "/opt", "kmm", "debug=1", "$(x)"])
    );
    assert_eq!(hook(&set, "preStop"), &json!(["modprobe", "-rv", "-d", "/opt", "kmm"]));
    assert_eq!(pod(&set)["shareProcessNamespace"], true);
    assert_eq!(
        pod(&driver(&full_spec(), RHEL, &Settings::default())).get("shareProcessNamespace"),
        None
    );
    let own = json!({
        "moduleName": "kmm", "dirName": "/drv",
        "args": {"load": ["-f"], "unload": ["-r", "-w"]},
    });
    let set = with_modprobe(own, &[]);
    assert_eq!(hook(&set, "postStart"), &json!(["modprobe", "-f", "-d", "/drv", "kmm"]));
    assert_eq!(hook(&set, "preStop"), &json!(["modprobe", "-r", "-w", "-d", "/drv", "kmm"]));
    let raw = json!({"rawArgs": {"load": ["-a", "x", "y"], "unload": ["-ra", "y", "x"]}});
    let set = with_modprobe(raw, &[]);
    assert_eq!(hook(&set, "postStart"), &json!(["modprobe", "-a", "x", "y"]));
    assert_eq!(hook(&set, "preStop"), &json!(["modprobe", "-ra", "y", "x"]));
}

#[test]
fn in_tree_modules_are_unloaded_first_and_values_are_quoted() {
    let modprobe =
        json!({"moduleName": "kmm", "parameters": ["a=$(reboot)"], "preUnload": ["sh", "it's"]});
    let set = with_modprobe(modprobe, &["dummy", "snd-hda"]);
    let script = "if [ -e /sys/module/dummy ]; then modprobe -rv dummy; fi && \
                  if [ -e /sys/module/snd_hda ]; then modprobe -rv snd-hda; fi && \
                  modprobe -v -d /opt kmm 'a=$(reboot)'";
    assert_eq!(hook(&set, "postStart"), &json!(["/bin/sh", "-c", script]));
    let script = "sh 'it'\\''s' && modprobe -rv -d /opt kmm";
    assert_eq!(hook(&set, "preStop"), &json!(["/bin/sh", "-c", script]));
}

/// What a real shell does with the hook: modules are directories of the root, and `modprobe` prints
/// its arguments and fails for one of them.
#[test]
fn a_module_that_cannot_be_unloaded_keeps_the_new_one_out() {
    let set = with_modprobe(json!({"moduleName": "kmm"}), &["usr", "nowhere", "etc"]);
    let script = hook(&set, "postStart")[2].as_str().unwrap().replace("/sys/module/", "/");
    let run = |fails: &str| {
        let modprobe = format!("modprobe() {{ echo \"$@\"; [ \"$2\" != {fails} ]; }}; ");
        let output = Command::new("/bin/sh").arg("-c").arg(modprobe + &script).output().unwrap();
        (String::from_utf8(output.stdout).unwrap(), output.status.success())
    };
    let load = "-v -d /opt kmm\n";
    assert_eq!(run("none"), (format!("-rv usr\n-rv etc\n{load}"), true), "nowhere is not loaded");
    assert_eq!(run("usr"), ("-rv usr\n".to_owned(), false));
    assert_eq!(run("etc"), ("-rv usr\n-rv etc\n".to_owned(), false));
}

#[test]
fn firmware_is_copied_and_removed_again() {
    let set = with_modprobe(json!({"moduleName": "kmm", "firmwarePath": "/firm ware/"}), &[]);
    let load = "cp -r '/firm ware/.' /var/lib/gantry-firmware/ && modprobe -v -d /opt kmm";
    assert_eq!(hook(&set, "postStart"), &json!(["/bin/sh", "-c", load]));
    let unload = "modprobe -rv -d /opt kmm && cd '/firm ware' && \
                  find . -type f -exec rm -f /var/lib/gantry-firmware/{} \\;";
    assert_eq!(hook(&set, "preStop"), &json!(["/bin/sh", "-c", unload]));
    let volumes = pod(&set)["volumes"].as_array().unwrap();
    let host = json!({"path": "/var/lib/firmware", "type": "DirectoryOrCreate"});
    assert!(volumes.contains(&json!({"name": "node-firmware", "hostPath": host})), "{volumes:?}");
    let mounts = pod(&set)["containers"][0]["volumeMounts"].as_array().unwrap();
    let mount = json!({"name": "node-firmware", "mountPath": "/var/lib/gantry-firmware"});
    assert!(mounts.contains(&mount), "it is written to");
}

#[test]
fn the_order_of_modules_is_a_file_of_modprobe() {
    let order = json!({"moduleName": "a", "modulesLoadingOrder": ["a", "b", "c"]});
    let set = with_modprobe(order, &[]);
    let annotation = "ooto.sigs.k8s.io/softdep";
    let annotations = &set.body["spec"]["template"]["metadata"]["annotations"];
    assert_eq!(annotations[annotation], "softdep a pre: b\nsoftdep b pre: c\n");
    let volumes = pod(&set)["volumes"].as_array().unwrap();
    let volume = volumes.iter().find(|it| it["name"] == "modules-order").unwrap();
    assert_eq!(
        volume["downwardAPI"]["items"],
        json!([{
            "path": "softdep.conf",
            "fieldRef": {"fieldPath": format!("metadata.annotations['{annotation}']")},
        }])
    );
    let mounts = pod(&set)["containers"][0]["volumeMounts"].as_array().unwrap();
    let mount = mounts.iter().find(|it| it["name"] == "modules-order").unwrap();
    assert_eq!(
        (&mount["mountPath"], &mount["readOnly"]),
        (&json!("/etc/modprobe.d"), &json!(true))
    );
    assert_eq!(hook(&set, "preStop"), &json!(["modprobe", "-rv", "-d", "/opt", "a", "b", "c"]));
}

#[test]
fn settings_decide_about_priority_and_grace_period() {
    let settings = Settings {
        driver_priority_class: String::new(),
        driver_grace_period: std::time::Duration::from_secs(5),
        ..Settings::default()
    };
    let set = driver(&full_spec(), RHEL, &settings);
    assert_eq!(pod(&set).get("priorityClassName"), None);
    assert_eq!(pod(&set)["terminationGracePeriodSeconds"], 5);
}

#[test]
fn changes_of_others_are_noticed() {
    let set = driver(&full_spec(), RHEL, &Settings::default());
    let stored = |change: &dyn Fn(&mut Value)| -> DaemonSet {
        let mut body = set.body.clone();
        change(&mut body);
        serde_json::from_value(body).unwrap()
    };
    assert!(set.is_current(&stored(&|_| {})));
    assert!(
        set.is_current(&stored(&|it| it["spec"]["template"]["spec"]["dnsPolicy"] = json!("x")))
    );
    let template = |it: &mut Value, field: &str, value: Value| {
        it["spec"]["template"]["spec"][field] = value;
    };
    assert!(!set.is_current(&stored(&|it| it["metadata"]["annotations"] = json!({}))));
    assert!(!set.is_current(&stored(&|it| template(it, "nodeSelector", json!({})))));
    assert!(!set.is_current(&stored(&|it| {
        it["spec"]["template"]["spec"]["containers"][0]["image"] = json!("other:1");
    })));
    let other = ModuleSpec { tolerations: Vec::new(), ..full_spec() };
    let other = driver(&other, RHEL, &Settings::default());
    assert!(other.name == set.name && !other.is_current(&stored(&|_| {})), "patched in place");
}

/// A release of Gantry that changes one of these restarts every driver of this shape: modules are
/// unloaded and loaded again on all nodes. So a change here is meant, and CHANGELOG.md says it.
#[test]
fn kms_89_another_release_of_gantry_restarts_no_driver() {
    let versioned = |mut spec: ModuleSpec| {
        "1".clone_into(&mut spec.driver_container.as_mut().unwrap().container.version);
        spec
    };
    let modprobe = json!({
        "moduleName": "hello", "parameters": ["debug=1"], "firmwarePath": "/firmware",
        "modulesLoadingOrder": ["hello", "base"],
    });
    let nfd =
        Settings { kernel_labeling: KernelLabeling::NodeFeatureDiscovery, ..Settings::default() };
    let settings = Settings::default();
    let table = [
        (
            "a driver",
            driver(&full_spec(), RHEL, &settings),
            "hello-driver-25a555317e",
            "e451d3f2c712f34a",
        ),
        (
            "with a plus",
            driver(&full_spec(), PLUS, &settings),
            "hello-driver-34ee70fa12",
            "b8052682297262fd",
        ),
        (
            "with a version",
            driver(&versioned(full_spec()), RHEL, &settings),
            "hello-driver-d8104d079d",
            "05b39481cb26a1b3",
        ),
        (
            "by another label",
            driver(&full_spec(), RHEL, &nfd),
            "hello-driver-69a2188cd4",
            "ed61cdbb7d939f11",
        ),
        (
            "with modprobe",
            with_modprobe(modprobe, &["nouveau"]),
            "hello-driver-25a555317e",
            "28627f4fa0290f39",
        ),
        (
            "a device plugin",
            plugin(&full_spec()),
            "hello-device-plugin-6e340b9cff",
            "d4e80c716489ddd0",
        ),
        (
            "a device plugin with a version",
            plugin(&versioned(full_spec())),
            "hello-device-plugin-e79e418e48",
            "17ff974eadd651a9",
        ),
    ];
    let mut differs = Vec::new();
    for (why, set, name, hash) in table {
        if (set.name.as_str(), &set.hash[..16]) != (name, hash) {
            differs.push(format!("{why}: \"{}\", \"{}\"", set.name, &set.hash[..16]));
        }
    }
    assert_eq!(differs, Vec::<String>::new());
}
