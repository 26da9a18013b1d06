//! Tests properties of every Module, not only of the samples.

use std::sync::LazyLock;

use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{accepted, read};
use crate::alias::Alias;
use crate::decode;
use crate::kernel_modules::normalise::{CONTAINER_ALIASES, driver_container_aliases};
use crate::kernel_modules::{
    Build, BuildArg, Builder, ContainerFields, DaemonSetCounts, DevicePlugin, DriverContainer,
    ExistingSignature, HashAlgorithm, KernelMapping, KernelStatus, LoaderContainer, LocalReference,
    Modprobe, ModprobeArgs, Module, ModuleSpec, ModuleStatus, PluginContainer, Push, Rebuild, Sign,
    SignedImage, Tls, UnsignedImage,
};
use crate::object::Object;
use crate::schema::Schema;

static SERVED: LazyLock<Schema> = LazyLock::new(|| {
    let mut schema = Module::KIND.served_schema();
    schema["properties"]["metadata"] = crate::kubernetes::schema("ObjectMeta");
    Schema::compile(&schema).unwrap()
});

proptest! {
    /// Nothing is lost between a Module and its bytes, `{}` and `[]` included.
    #[test]
    fn a_module_survives_the_way_out_and_back(module in any_module()) {
        let object = Object::Module(Box::new(module));
        let value = object.to_value().unwrap();
        let (from_server, _) = decode::object(&value).map_err(|found| {
            TestCaseError::fail(format!("{:?} in {value}", found.errors))
        })?;
        prop_assert_eq!(&from_server, &object);
        let document = read(&gantry_yaml::write(&value).unwrap());
        prop_assert_eq!(Object::Module(Box::new(accepted(&document).clone())), object);
    }

    /// For every spelling of a Module, a server accepts it and it is the same Module.
    #[test]
    fn every_spelling_means_the_same(module in any_module(), choices in vec(any::<bool>(), 64)) {
        let mut value = serde_json::to_value(&module).unwrap();
        respell(&mut value["spec"], &mut choices.into_iter().cycle());
        prop_assert_eq!(SERVED.check(&value), []);
        let (object, _) = decode::object(&value).map_err(|found| {
            TestCaseError::fail(format!("{:?} in {value}", found.errors))
        })?;
        prop_assert_eq!(object, Object::Module(Box::new(module)));
    }

    /// An empty object on a mapping changes nothing, and a mapping takes precedence.
    #[test]
    fn merging_with_nothing_changes_nothing(build in any_build(), sign in any_sign()) {
        prop_assert_eq!(Build::merged(Some(&build), Some(&Build::default())), Some(build.clone()));
        prop_assert_eq!(Sign::merged(Some(&sign), Some(&Sign::default())), Some(sign.clone()));
        prop_assert_eq!(Sign::merged(Some(&Sign::default()), Some(&sign)), Some(sign));
        let twice = Build::merged(Some(&build), Some(&build));
        prop_assert_eq!(twice, Some(build));
    }
}

/// Rewrites a canonical specification in place to one of the spellings it may have.
fn respell(spec: &mut Value, choices: &mut dyn Iterator<Item = bool>) {
    let mut choose = || choices.next() == Some(true);
    loosen_labels(&mut spec["selector"], &mut choose);
    if let Some(plugin) = spec.get_mut("devicePlugin") {
        loosen_secrets(plugin, "imagePullSecrets", &mut choose);
        if choose() {
            plugin["container"]["name"] = json!("mine");
        }
        lift_container_fields(plugin.as_object_mut().unwrap(), &CONTAINER_ALIASES, &mut choose);
    }
    let Some(driver) = spec.get_mut("driverContainer").and_then(Value::as_object_mut) else {
        return;
    };
    loosen_secrets_in(driver, "imageRepoSecrets", &mut choose);
    let container = driver["container"].as_object_mut().unwrap();
    for mapping in container["kernelMappings"].as_array_mut().unwrap() {
        loosen_parts(mapping.as_object_mut().unwrap(), &mut choose);
    }
    loosen_parts(container, &mut choose);
    if choose() {
        container.insert("image".into(), json!("mine:1"));
    }
    let ours = [
        "kernelMappings",
        "containerImage",
        "build",
        "sign",
        "version",
        "modprobe",
        "inTreeModulesToRemove",
        "registryTLS",
    ];
    let mut moved = Map::new();
    let container_fields = driver_container_aliases().iter().map(|alias| alias.old);
    for field in ours.into_iter().chain(container_fields) {
        if choose()
            && let Some(value) = container.shift_remove(field)
        {
            // A value that is set in both places is read once.
            if choose() {
                container.insert(field.into(), value.clone());
            }
            moved.insert(field.into(), value);
        }
    }
    driver.extend(moved);
}

/// Moves fields of the container to the part that holds it, or copies them there.
fn lift_container_fields(
    part: &mut Map<String, Value>,
    aliases: &[Alias],
    choose: &mut dyn FnMut() -> bool,
) {
    for field in aliases.iter().map(|alias| alias.old) {
        let container = part["container"].as_object_mut().unwrap();
        if let Some(value) = container.get(field).cloned().filter(|_| choose()) {
            if choose() {
                container.shift_remove(field);
            }
            part.insert(field.into(), value);
        }
    }
}

fn loosen_parts(holder: &mut Map<String, Value>, choose: &mut dyn FnMut() -> bool) {
    if let Some(selector) = holder.get_mut("build").and_then(|build| build.get_mut("selector")) {
        loosen_labels(selector, choose);
    }
    let Some(sign) = holder.get_mut("sign") else { return };
    if let Some(image) = sign.get_mut("signedImage") {
        loosen_named(image, "pushSecretRef", choose);
    }
    for field in ["unsignedImage", "signedImage", "keySecret", "certSecret"] {
        loosen_named(sign, field, choose);
    }
}

/// An object that is only a name becomes the name; absent fields become null.
fn loosen_named(holder: &mut Value, field: &str, choose: &mut dyn FnMut() -> bool) {
    if !choose() {
        return;
    }
    match holder.get(field) {
        Some(object) if object.as_object().unwrap().len() == 1 => {
            holder[field] = object["name"].clone();
        }
        Some(_) => {}
        None => holder[field] = Value::Null,
    }
}

fn loosen_secrets(holder: &mut Value, field: &str, choose: &mut dyn FnMut() -> bool) {
    loosen_secrets_in(holder.as_object_mut().unwrap(), field, choose);
}

fn loosen_secrets_in(
    holder: &mut Map<String, Value>,
    field: &str,
    choose: &mut dyn FnMut() -> bool,
) {
    let Some(Value::Array(items)) = holder.get_mut(field) else { return };
    for item in items.iter_mut() {
        if choose() {
            *item = item["name"].clone();
        }
    }
    if let [only] = items.as_slice()
        && choose()
    {
        let only = only.clone();
        let name = if field == "imageRepoSecrets" && choose() { "imageRepoSecret" } else { field };
        holder.shift_remove(field);
        holder.insert(name.into(), only);
    }
}

/// Values that YAML reads as another type lose their quotes.
fn loosen_labels(labels: &mut Value, choose: &mut dyn FnMut() -> bool) {
    for value in labels.as_object_mut().into_iter().flat_map(|labels| labels.values_mut()) {
        let scalar = value.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
        if let Some(scalar) = scalar
            && choose()
        {
            *value = scalar;
        }
    }
}

fn any_module() -> BoxedStrategy<Module> {
    let parts = prop_oneof![
        (any_driver().prop_map(Some), of(any_plugin())),
        any_plugin().prop_map(|plugin| (None, Some(plugin))),
    ];
    let rest = (any_labels(), vec(any_toleration(), 0..3), of(any::<i64>()), of(any_status()));
    (name(), of(name()), parts, rest)
        .prop_map(
            |(name, namespace, (driver, plugin), (selector, tolerations, trigger, status))| {
                let mut module = Module {
                    spec: ModuleSpec {
                        selector,
                        driver_container: driver,
                        device_plugin: plugin,
                        tolerations: tolerations
                            .into_iter()
                            .map(|value| serde_json::from_value(value).unwrap())
                            .collect(),
                        image_rebuild_trigger_generation: trigger,
                    },
                    status,
                    ..Module::default()
                };
                module.metadata.name = Some(name);
                module.metadata.namespace = namespace;
                module
            },
        )
        .boxed()
}

fn any_driver() -> BoxedStrategy<DriverContainer> {
    (any_loader(), any_references(), of(name()), any_volumes())
        .prop_map(|(container, image_repo_secrets, service_account_name, volumes)| {
            DriverContainer {
                container,
                image_repo_secrets,
                service_account_name,
                volumes: serde_json::from_value(volumes).unwrap(),
            }
        })
        .boxed()
}

/// Settings of both levels are such that every way to merge them is valid: the container has all of
/// them or none, and in the latter case each mapping that has any has all.
fn any_loader() -> BoxedStrategy<LoaderContainer> {
    (of(any_build()), of(any_sign()), of(any_modprobe()))
        .prop_flat_map(|(build, sign, modprobe)| {
            let mappings =
                vec(any_mapping(build.is_some(), sign.is_some(), modprobe.is_some()), 1..4);
            let own_hooks = modprobe.is_none();
            let modules = if own_hooks { 0..1 } else { 0..3 };
            let rest = (
                image(),
                any_fields(own_hooks),
                of(any_tls()),
                proptest::sample::subsequence(
                    vec!["dummy".to_owned(), "nouveau".to_owned()],
                    modules,
                ),
                prop_oneof![Just(String::new()), "[a-z0-9]([a-z0-9.]{0,8}[a-z0-9])?"],
            );
            (mappings, rest).prop_map(move |(kernel_mappings, rest)| {
                let (container_image, fields, registry_tls, modules, version) = rest;
                LoaderContainer {
                    container_image: Some(container_image),
                    kernel_mappings,
                    build: build.clone(),
                    sign: sign.clone(),
                    version,
                    modprobe: modprobe.clone(),
                    in_tree_modules_to_remove: modules,
                    registry_tls,
                    fields,
                }
            })
        })
        .boxed()
}

fn any_mapping(
    inherits_build: bool,
    inherits_sign: bool,
    has_modprobe: bool,
) -> BoxedStrategy<KernelMapping> {
    let build = if inherits_build {
        prop_oneof![Just(Build::default()), any_build()].boxed()
    } else {
        any_build().boxed()
    };
    let sign = if inherits_sign {
        prop_oneof![Just(Sign::default()), any_sign()].boxed()
    } else {
        any_sign().boxed()
    };
    let matcher = prop_oneof![
        r"[4-6]\.[0-9]{1,2}\.0".prop_map(|literal| (Some(literal), None)),
        r"\^\[4-6\]\\\.[0-9]{1,2}\\\.[a-z]{0,4}".prop_map(|regexp| (None, Some(regexp))),
    ];
    let modules = if has_modprobe {
        prop_oneof![Just(vec![]), Just(vec!["dummy".to_owned()])].boxed()
    } else {
        Just(vec![]).boxed()
    };
    (matcher, of(image()), of(build), of(sign), of(any_tls()), of(modules))
        .prop_map(|((literal, regexp), container_image, build, sign, registry_tls, modules)| {
            KernelMapping {
                literal,
                regexp,
                container_image,
                build,
                sign,
                registry_tls,
                in_tree_modules_to_remove: modules,
            }
        })
        .boxed()
}

fn any_build() -> BoxedStrategy<Build> {
    let source = prop_oneof![
        "FROM [a-z]{1,4}\n[ -~]{1,9}\n?".prop_map(|text| (Some(text), None)),
        name().prop_map(|name| (None, Some(LocalReference::new(name)))),
    ];
    let args = btree_map("[A-Z_][A-Z0-9_]{0,4}", "[ -~]{0,6}", 0..3).prop_map(|args| {
        args.into_iter().map(|(name, value)| BuildArg { name, value }).collect::<Vec<_>>()
    });
    let push = of((of(unsigned()), any_tls()).prop_map(|(name, tls)| Push { name, tls }));
    let builder = of(prop_oneof![Just(Builder::Buildah), Just(Builder::Kaniko)]);
    let rebuild = of(prop_oneof![Just(Rebuild::Never), Just(Rebuild::OnChange)]);
    let rest = (any_labels(), builder, of(any::<bool>()), of(name()), rebuild);
    (source, args, of(any_tls()), push, any_references(), rest)
        .prop_map(|(source, build_args, pull, push, secrets, rest)| {
            let (selector, builder, enabled, context, rebuild) = rest;
            Build {
                dockerfile: source.0,
                dockerfile_config_map: source.1,
                context_config_map: context.map(LocalReference::new),
                build_args,
                pull,
                push,
                secrets,
                selector,
                builder,
                enabled,
                rebuild,
            }
        })
        .boxed()
}

fn any_sign() -> BoxedStrategy<Sign> {
    let unsigned = (unsigned(), any_tls()).prop_map(|(name, tls)| UnsignedImage { name, tls });
    let signed = (image(), of(name()), any_tls()).prop_map(|(name, secret, tls)| SignedImage {
        name,
        push_secret_ref: secret.map(LocalReference::new),
        tls,
    });
    let files = btree_map(r"/opt/[a-z]{1,4}\.ko", Just(()), 1..3)
        .prop_map(|files| files.into_keys().collect::<Vec<_>>());
    let hash = of(prop_oneof![
        Just(HashAlgorithm::Sha256),
        Just(HashAlgorithm::Sha384),
        Just(HashAlgorithm::Sha512),
    ]);
    let existing = of(prop_oneof![
        Just(ExistingSignature::Append),
        Just(ExistingSignature::Replace),
        Just(ExistingSignature::Skip),
    ]);
    (of(unsigned), of(signed), name(), name(), files, hash, existing)
        .prop_map(
            |(unsigned_image, signed_image, key, cert, files_to_sign, hash_algorithm, existing)| {
                Sign {
                    unsigned_image,
                    signed_image,
                    key_secret: Some(LocalReference::new(key)),
                    cert_secret: Some(LocalReference::new(cert)),
                    files_to_sign,
                    hash_algorithm,
                    existing_signature: existing,
                }
            },
        )
        .boxed()
}

fn any_modprobe() -> BoxedStrategy<Modprobe> {
    let words = || vec("[ -~]{1,5}", 0..3);
    let args = || (words(), words()).prop_map(|(load, unload)| ModprobeArgs { load, unload });
    let named = (name(), any::<bool>()).prop_map(|(name, ordered)| Modprobe {
        modules_loading_order: if ordered { vec![name.clone(), "Next".into()] } else { vec![] },
        module_name: Some(name),
        ..Modprobe::default()
    });
    let raw = args().prop_map(|mut args| {
        args.load.push("x".into());
        args.unload.push("x".into());
        Modprobe { raw_args: Some(args), ..Modprobe::default() }
    });
    (prop_oneof![named, raw], of(Just("/opt".to_owned())), words(), of(args()), of(name()), words())
        .prop_map(|(modprobe, dir_name, parameters, args, firmware_path, pre_unload)| Modprobe {
            dir_name,
            parameters,
            args,
            firmware_path,
            pre_unload,
            ..modprobe
        })
        .boxed()
}

fn any_plugin() -> BoxedStrategy<DevicePlugin> {
    let container = || {
        (plugin_image(), any_fields(true))
            .prop_map(|(image, fields)| PluginContainer { image, fields })
    };
    (container(), of(container()), any_references(), of(name()), of(any::<bool>()), any_volumes())
        .prop_map(|(container, init_container, secrets, account, automount, volumes)| {
            DevicePlugin {
                container,
                init_container,
                image_pull_secrets: secrets,
                service_account_name: account,
                automount_service_account_token: automount,
                volumes: serde_json::from_value(volumes).unwrap(),
            }
        })
        .boxed()
}

/// Containers with one field of every shape that Kubernetes has.
fn any_fields(own_hooks: bool) -> BoxedStrategy<ContainerFields> {
    let samples = [
        ("env", json!([{"name": "A", "value": "1"}])),
        ("resources", json!({"limits": {"cpu": "500m"}, "requests": {"example.com/gpu": "1"}})),
        ("securityContext", json!({"runAsUser": 0, "capabilities": {"add": ["SYS_MODULE"]}})),
        ("livenessProbe", json!({"tcpSocket": {"port": 80}, "periodSeconds": 5})),
        ("startupProbe", json!({"tcpSocket": {"port": "http"}})),
        ("volumeMounts", json!([{"name": "scratch", "mountPath": "/scratch"}])),
        ("ports", json!([{"containerPort": 80, "protocol": "TCP"}])),
        ("tty", json!(true)),
        ("workingDir", json!("/")),
        ("envFrom", json!([])),
        ("command", json!(["sleep", "infinity"])),
        ("lifecycle", json!({"preStop": {"exec": {"command": ["modprobe", "-r", "x"]}}})),
    ];
    let count = if own_hooks { samples.len() } else { samples.len() - 2 };
    proptest::sample::subsequence(samples[..count].to_vec(), 0..=count)
        .prop_map(|fields| {
            let fields: Map<_, _> =
                fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            serde_json::from_value(Value::Object(fields)).unwrap()
        })
        .boxed()
}

fn any_status() -> BoxedStrategy<ModuleStatus> {
    let counts = || {
        (0..9i32, 0..9i32, 0..9i32).prop_map(|(desired, ready, available)| DaemonSetCounts {
            desired_number_scheduled: desired,
            number_ready: ready,
            number_available: available,
        })
    };
    let kernels = btree_map("[4-6][.][0-9]{1,2}", (image(), name()), 0..3).prop_map(|kernels| {
        kernels
            .into_iter()
            .map(|(version, (image, state))| KernelStatus { version, image, state })
            .collect()
    });
    (of(counts()), of(counts()), of(any::<i64>()), of(0..9i32), kernels, of(any::<i64>()))
        .prop_map(|(driver_container, device_plugin, generation, nodes, kernels, trigger)| {
            ModuleStatus {
                driver_container,
                device_plugin,
                observed_generation: generation,
                nodes_matching_selector: nodes,
                kernels,
                image_rebuild_trigger_generation: trigger,
            }
        })
        .boxed()
}

fn any_toleration() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!({"operator": "Exists"})),
        Just(json!({"key": "example.com/gpu", "value": "true", "effect": "NoSchedule"})),
        (0..99i64).prop_map(|seconds| {
            json!({"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds})
        }),
    ]
}

fn any_volumes() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!([])),
        Just(json!([{"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}}])),
        Just(json!([{"name": "dev", "hostPath": {"path": "/dev", "type": "Directory"}}])),
    ]
}

fn any_labels() -> impl Strategy<Value = std::collections::BTreeMap<String, String>> {
    let value =
        prop_oneof!["[a-z][a-z0-9]{0,4}", "true|false|[1-9][0-9]{0,3}|1\\.5", Just(String::new())];
    btree_map("([a-z]{1,4}\\.example/)?[a-zA-Z]{1,4}", value, 0..3)
}

fn any_tls() -> impl Strategy<Value = Tls> {
    (any::<bool>(), any::<bool>())
        .prop_map(|(insecure, skip)| Tls { insecure, insecure_skip_tls_verify: skip })
}

fn any_references() -> impl Strategy<Value = Vec<LocalReference>> {
    btree_map(name(), Just(()), 0..3)
        .prop_map(|names| names.into_keys().map(LocalReference::new).collect())
}

fn name() -> impl Strategy<Value = String> {
    "[a-z]{1,8}"
}

/// The one image that is built and not yet signed: both settings that name it agree (W-12).
fn unsigned() -> impl Strategy<Value = String> {
    Just("built/unsigned:${KERNEL_FULL_VERSION}".to_owned())
}

/// One image for all kernels.
fn plugin_image() -> impl Strategy<Value = String> {
    "[a-z]{1,4}(/\\$MOD_NAME)?(:[a-z0-9]{1,4})?"
}

fn image() -> impl Strategy<Value = String> {
    "[a-z]{1,4}/[a-z]{1,4}:[a-z0-9]{1,4}(-\\$\\{KERNEL_FULL_VERSION\\})?"
}
