//! Tests the rules of the kinds (W-n): valid and invalid values, and the messages.

use serde_json::json;

use super::{driver, driver_with, messages, module, read, refused, warned};
use crate::decode::Document;
use crate::kernel_modules::{ManagedClusterModule, Module, Preflight};

fn mappings(mappings: &str) -> Document {
    driver_with("containerImage: 'a:1'", &format!("kernelMappings: [{mappings}]"))
}

fn preflight(spec: &str) -> Document {
    read(&format!(
        "apiVersion: ooto.sigs.k8s.io/v1alpha1\nkind: Preflight\nmetadata: {{name: p}}\nspec: {spec}\n"
    ))
}

#[test]
fn w_1_regexps_compile() {
    warned("a good one", &mappings(r"{regexp: '^.+\.el8\.x86_64$'}"), &[]);
    warned("an escaped backslash before Q", &mappings(r"{regexp: 'a\\Q'}"), &[]);
    let table = [
        ("'('", "invalid regexp: unclosed group"),
        (
            "'(?=x)'",
            "invalid regexp: look-around, including look-ahead and look-behind, is not supported",
        ),
        (
            r"'\Q5.4\E'",
            r"invalid regexp: \Q…\E is not supported; put a backslash before each special character",
        ),
    ];
    for (regexp, text) in table {
        let document = mappings(&format!("{{regexp: {regexp}}}"));
        refused(regexp, &document, &[("….kernelMappings[0].regexp", text)]);
    }
}

#[test]
fn w_2_literal_and_regexp_exclude_each_other() {
    warned("one is empty", &mappings("{literal: '', regexp: x}"), &[]);
    let text = "literal and regexp exclude each other";
    refused("both", &mappings("{literal: a, regexp: b}"), &[("….kernelMappings[0]", text)]);
}

#[test]
fn w_3_one_of_them_is_set() {
    warned("a literal", &mappings("{literal: a}"), &[]);
    for mapping in ["{}", "{literal: ''}", "{regexp: null}"] {
        let expected = [("….kernelMappings[1]", "set literal or regexp")];
        refused(mapping, &mappings(&format!("{{literal: a}}, {mapping}")), &expected);
    }
}

#[test]
fn w_4_every_mapping_has_an_image() {
    let own =
        "kernelMappings: [{literal: a, containerImage: 'a:1'}, {literal: b, containerImage: ''}]";
    warned("of the container", &driver_with(own, "containerImage: 'a:1'"), &[]);
    refused(
        "none",
        &driver_with(own, "containerImage: ''"),
        &[(
            "….kernelMappings[1].containerImage",
            "no containerImage here and none at container level",
        )],
    );
}

#[test]
fn w_8_a_build_has_one_dockerfile() {
    let none = "set dockerfile or dockerfileConfigMap";
    let two = "dockerfile and dockerfileConfigMap exclude each other";
    let with = |container: &str, mapping: &str| {
        driver_with(
            "containerImage: 'a:1'",
            &format!(
                "build: {container}, kernelMappings: [{{literal: a}}, {{literal: b, build: {mapping}}}]"
            ),
        )
    };
    let both = "{dockerfile: FROM x, dockerfileConfigMap: {name: m}}";
    warned("inherited", &with("{dockerfile: FROM x}", "{}"), &[]);
    warned("switched off", &with("{enabled: false}", "{dockerfile: FROM x, enabled: true}"), &[]);
    warned("overridden", &with("{dockerfile: FROM x}", "{dockerfileConfigMap: {name: m}}"), &[]);
    let at_container = ("….build", none);
    let at_mapping = ("….kernelMappings[1].build", none);
    refused("neither level", &with("{}", "{}"), &[at_container, at_mapping]);
    refused("only the mapping", &with("{}", "{dockerfile: FROM x}"), &[at_container]);
    refused(
        "an empty text is none",
        &with("{dockerfile: ''}", "{dockerfile: FROM x}"),
        &[at_container],
    );
    refused("two", &with(both, "{dockerfile: FROM x}"), &[("….build", two)]);
    refused(
        "two of a mapping",
        &with("{dockerfile: FROM x}", both),
        &[("….kernelMappings[1].build", two)],
    );
    let twice = driver_with(
        "containerImage: 'a:1'",
        "build: {}, kernelMappings: [{literal: a}, {literal: b}]",
    );
    refused("said once", &twice, &[at_container]);
}

#[test]
fn w_9_build_arguments_are_named_once() {
    let build = |names: &str| {
        let args: Vec<_> =
            names.split(' ').map(|name| format!("{{name: '{name}', value: x}}")).collect();
        driver(&format!("build: {{dockerfile: FROM x, buildArgs: [{}]}}", args.join(", ")))
    };
    warned("good names", &build("A _b C1"), &[]);
    let at = "….build.buildArgs[1].name";
    refused("twice", &build("A A"), &[(at, "duplicate build argument \"A\"")]);
    for name in ["A 1A", "A A-B", "A Ä"] {
        refused(name, &build(name), &[(at, "invalid build argument name")]);
    }
    let on_mapping =
        mappings("{literal: a, build: {dockerfile: FROM x, buildArgs: [{name: '', value: x}]}}");
    let at = "….kernelMappings[0].build.buildArgs[0].name";
    refused("on a mapping", &on_mapping, &[(at, "invalid build argument name")]);
}

#[test]
fn w_10_signing_needs_a_key_a_certificate_and_files() {
    let with = |container: &str, mapping: &str| {
        driver_with(
            "containerImage: 'a:1'",
            &format!("sign: {container}, kernelMappings: [{{literal: x, sign: {mapping}}}]"),
        )
    };
    let files = "filesToSign: [/opt/a.ko]";
    warned("merged", &with("{keySecret: k}", &format!("{{certSecret: c, {files}}}")), &[]);
    refused(
        "nothing",
        &with("{}", "null"),
        &[
            ("….sign.keySecret", "keySecret is required when sign is used"),
            ("….sign.certSecret", "certSecret is required when sign is used"),
            ("….sign.filesToSign", "filesToSign is required when sign is used"),
        ],
    );
    refused(
        "no certificate after merging",
        &with("{keySecret: k}", &format!("{{certSecret: '', {files}}}")),
        &[("….kernelMappings[0].sign.certSecret", "certSecret is required when sign is used")],
    );
}

#[test]
fn w_11_files_to_sign_are_where_they_can_be() {
    let sign = |file: &str, more: &str| {
        driver(&format!("sign: {{keySecret: k, certSecret: c, filesToSign: ['{file}']}}{more}"))
    };
    let opt = ", modprobe: {moduleName: m, dirName: /opt/}";
    warned("anywhere", &sign("/path/${KERNEL_FULL_VERSION}/*.ko", ""), &[]);
    warned("no directory is said", &sign("/path/a.ko", ", modprobe: {moduleName: m}"), &[]);
    warned("below the directory", &sign("/opt/lib/modules/a.ko", opt), &[]);
    let table = [
        ("opt/a.ko", "", "\"opt/a.ko\" must be an absolute path"),
        ("/opt/../a.ko", "", "\"/opt/../a.ko\" must be an absolute path, written as \"/a.ko\""),
        ("/opt//a.ko", "", "\"/opt//a.ko\" must be an absolute path, written as \"/opt/a.ko\""),
        ("/lib/modules/a.ko", "", "\"/lib/modules/a.ko\" is hidden by the host mount"),
        ("/usr/lib/modules/a.ko", "", "\"/usr/lib/modules/a.ko\" is hidden by the host mount"),
        ("/optional/a.ko", opt, "\"/optional/a.ko\" must be below \"/opt\""),
    ];
    for (file, more, text) in table {
        refused(file, &sign(file, more), &[("….sign.filesToSign[0]", text)]);
    }
    let on_mapping = mappings(
        "{literal: a, sign: {keySecret: k, certSecret: c, filesToSign: [/opt/a.ko, b.ko]}}",
    );
    let at = "….kernelMappings[0].sign.filesToSign[1]";
    refused("on a mapping", &on_mapping, &[(at, "\"b.ko\" must be an absolute path")]);
}

#[test]
fn w_13_names_fit_into_a_label() {
    let named = |metadata: &str| {
        read(&format!(
            "apiVersion: ooto.sigs.k8s.io/v1alpha1\nkind: Module\nmetadata: {metadata}\nspec: {{selector: {{}}, devicePlugin: {{container: {{image: 'a:1'}}}}}}\n"
        ))
    };
    let name = "a".repeat(40);
    warned("42", &named(&format!("{{name: {name}, namespace: bb}}")), &[]);
    let text = "namespace and name together exceed 42 characters (43)";
    let expected = [("metadata.name", text)];
    refused("43", &named(&format!("{{name: {name}, namespace: bbb}}")), &expected);
    let made = format!("{{generateName: {}, namespace: bbb}}", &name[..35]);
    refused("a name to be completed", &named(&made), &expected);
}

#[test]
fn w_14_there_is_something_to_run() {
    warned("a plugin", &module("{selector: {}, devicePlugin: {container: {image: 'a:1'}}}"), &[]);
    let text = "at least one of driverContainer, devicePlugin";
    refused("neither", &module("{selector: {}}"), &[("spec", text)]);
    for spec in [
        "{selector: {}, driverContainer: {container: {}}}",
        "{selector: {}, driverContainer: {container: {kernelMappings: []}}}",
        "{selector: {}, driverContainer: {kernelMappings: []}}",
    ] {
        refused(spec, &module(spec), &[("….kernelMappings", "at least one kernel mapping")]);
    }
    let many = vec!["{literal: x}"; 257].join(", ");
    let document = mappings(&many);
    assert_eq!(
        messages(&document.errors),
        [(
            "spec.driverContainer.container.kernelMappings".to_owned(),
            "Too many: 257: must have at most 256 items"
        )]
    );
}

#[test]
fn w_16_default_volumes_are_reserved() {
    let with = |part: &str, name: &str, path: &str| {
        let driver =
            "driverContainer: {kernelMappings: [{literal: a, containerImage: 'a:1'}], container: {";
        let plugin = "devicePlugin: {container: {image: 'a:1', ";
        let part = if part == "driver" { driver } else { plugin };
        module(&format!(
            "{{selector: {{}}, {part}volumeMounts: [{{name: {name}, mountPath: {path}}}]}}, volumes: [{{name: {name}, emptyDir: {{}}}}]}}}}"
        ))
    };
    for part in ["driver", "plugin"] {
        warned(part, &with(part, "mine", "/lib/modules/extra"), &[]);
    }
    warned("the other part's", &with("plugin", "node-lib-modules", "/lib/modules"), &[]);
    for (name, path) in
        [("node-lib-modules", "/lib/modules/"), ("node-usr-lib-modules", "/usr/lib/modules/")]
    {
        let reserved = format!("\"{name}\" is reserved");
        let mount = format!("mountPath \"{path}\" is reserved");
        refused(
            name,
            &with("driver", name, path),
            &[
                ("spec.driverContainer.volumes[0].name", reserved.as_str()),
                ("….volumeMounts[0].name", reserved.as_str()),
                ("….volumeMounts[0].mountPath", mount.as_str()),
            ],
        );
    }
    refused(
        "of the plugin",
        &with("plugin", "kubelet-device-plugins", "/var/lib/kubelet/device-plugins"),
        &[
            ("spec.devicePlugin.volumes[0].name", "\"kubelet-device-plugins\" is reserved"),
            (
                "spec.devicePlugin.container.volumeMounts[0].name",
                "\"kubelet-device-plugins\" is reserved",
            ),
            (
                "spec.devicePlugin.container.volumeMounts[0].mountPath",
                "mountPath \"/var/lib/kubelet/device-plugins\" is reserved",
            ),
        ],
    );
}

#[test]
fn w_18_modprobe_has_a_name_or_raw_arguments() {
    warned("a name", &driver("modprobe: {moduleName: m}"), &[]);
    warned("raw", &driver("modprobe: {rawArgs: {load: [-v, m], unload: [-r, m]}}"), &[]);
    warned("own commands", &driver("command: [sleep], args: [infinity]"), &[]);
    let both = "load and unload rawArgs are both needed without moduleName";
    let table = [
        ("{moduleName: m, rawArgs: {load: [a], unload: [b]}}", "rawArgs exclude moduleName"),
        ("{rawArgs: {load: [a]}}", both),
        ("{rawArgs: {unload: [a]}}", both),
        ("{moduleName: ''}", both),
        ("{}", both),
    ];
    for (modprobe, text) in table {
        let document = driver(&format!("modprobe: {modprobe}"));
        refused(modprobe, &document, &[("….modprobe.rawArgs", text)]);
    }
    for field in ["command: [x]", "args: [x]", "lifecycle: {preStop: {exec: {command: [x]}}}"] {
        let text = "modprobe excludes command, args and lifecycle";
        let document = driver(&format!("modprobe: {{moduleName: m}}, {field}"));
        refused(field, &document, &[("….modprobe", text)]);
    }
}

#[test]
fn w_19_a_loading_order_starts_with_the_module() {
    let order = |order: &str| {
        driver(&format!("modprobe: {{moduleName: my-mod, modulesLoadingOrder: {order}}}"))
    };
    warned("in order", &order("[my_mod, b, c]"), &[]);
    warned("none", &order("[]"), &[]);
    let at = |rest: &str| format!("….modprobe.modulesLoadingOrder{rest}");
    let table = [
        ("[my-mod]", at(""), "needs at least two modules; remove it if there is only one"),
        ("[b, my-mod]", at("[0]"), "must start with moduleName \"my-mod\""),
        ("[my-mod, b, my_mod]", at("[2]"), "duplicate module \"my_mod\""),
    ];
    for (written, at, text) in table {
        refused(written, &order(written), &[(at.as_str(), text)]);
    }
}

#[test]
fn w_20_in_tree_modules_are_not_our_own() {
    let modprobe = "modprobe: {moduleName: a, modulesLoadingOrder: [a, b-c]}";
    let with = |modules: &str| driver(&format!("{modprobe}, inTreeModulesToRemove: {modules}"));
    warned("others, and an older build of the same", &with("[dummy, a]"), &[]);
    let needs = "needs modprobe: without it the container unloads modules itself";
    let without = driver("inTreeModulesToRemove: [x]");
    refused("no modprobe", &without, &[("….inTreeModulesToRemove", needs)]);
    let table = [
        ("[x, 'a b']", "[1]", "\"a b\" is not a module name: letters, digits, `-` and `_`"),
        ("['']", "[0]", "\"\" is not a module name: letters, digits, `-` and `_`"),
        ("[x-y, x_y]", "[1]", "duplicate module \"x_y\""),
        ("[b_c]", "[0]", "\"b_c\" is loaded by modulesLoadingOrder"),
    ];
    for (modules, index, text) in table {
        let at = format!("….inTreeModulesToRemove{index}");
        refused(modules, &with(modules), &[(at.as_str(), text)]);
    }
    let on_mapping = mappings("{literal: a, inTreeModulesToRemove: [x]}");
    refused("on a mapping", &on_mapping, &[("….kernelMappings[0].inTreeModulesToRemove", needs)]);
}

#[test]
fn w_21_tolerations_are_what_a_server_takes() {
    let with = |toleration: &str| {
        module(&format!(
            "{{selector: {{}}, tolerations: [{toleration}], devicePlugin: {{container: {{image: 'a:1'}}}}}}"
        ))
    };
    for good in [
        "{operator: Exists}",
        "{key: example.com/a, value: b, effect: NoSchedule}",
        "{key: a, operator: Exists, effect: NoExecute, tolerationSeconds: 5}",
    ] {
        warned(good, &with(good), &[]);
    }
    let key = "Invalid value: \"a b\": must be a label key: a name of at most 63 letters, digits, `-`, `_` and `.`, optionally after a DNS prefix and `/`";
    let value = "Invalid value: \"b c\": must be a label value: at most 63 letters, digits, `-`, `_` and `.`, starting and ending with a letter or digit";
    let table = [
        ("{key: 'a b'}", "key", key),
        ("{value: b}", "operator", "must be Exists when key is empty"),
        ("{key: a, operator: Exists, value: b}", "value", "must be empty when operator is Exists"),
        ("{key: a, value: b c}", "value", value),
        ("{key: a, operator: In}", "operator", "unknown operator \"In\"; use Equal or Exists"),
        (
            "{key: a, effect: Never}",
            "effect",
            "unknown effect \"Never\"; use NoSchedule, PreferNoSchedule or NoExecute",
        ),
        ("{key: a, tolerationSeconds: 5}", "tolerationSeconds", "effect must be NoExecute"),
    ];
    for (toleration, field, text) in table {
        let at = format!("spec.tolerations[0].{field}");
        refused(toleration, &with(toleration), &[(at.as_str(), text)]);
    }
}

#[test]
fn w_22_a_device_plugin_has_an_image() {
    let with = |plugin: &str| module(&format!("{{selector: {{}}, devicePlugin: {plugin}}}"));
    let good = "{container: {image: 'a:1'}, initContainer: {image: 'a:1'}}";
    warned("both containers", &with(good), &[]);
    let text = "image is required";
    refused("none", &with("{container: {}}"), &[("spec.devicePlugin.container.image", text)]);
    refused(
        "none to begin with",
        &with("{container: {image: 'a:1'}, initContainer: {image: ''}}"),
        &[("spec.devicePlugin.initContainer.image", text)],
    );
}

#[test]
fn w_23_a_version_neither_comes_nor_goes() {
    let module = Module::KIND.served_schema();
    let spec = &module["properties"]["spec"];
    let hub = ManagedClusterModule::KIND.served_schema();
    for spec in [spec, &hub["properties"]["spec"]["properties"]["moduleSpec"]] {
        let driver = &spec["properties"]["driverContainer"];
        let rule = &driver["x-kubernetes-validations"][0];
        let text = "version cannot be added or removed on an existing Module; recreate it";
        assert_eq!(rule["message"], text);
        for place in [driver, &driver["properties"]["container"]] {
            assert_eq!(
                place["properties"]["version"]["maxLength"], 63,
                "the rule's cost is bounded"
            );
        }
    }
}

#[test]
fn w_24_privileges_are_remarked_upon() {
    let privileged = |flag: &str| driver(&format!("securityContext: {{privileged: {flag}}}"));
    warned("not privileged", &privileged("false"), &[]);
    warned(
        "privileged",
        &privileged("true"),
        &[(
            "….securityContext.privileged",
            "a privileged container can do anything to the node; the capability SYS_MODULE is usually enough",
        )],
    );
}

#[test]
fn w_24_mappings_that_no_kernel_reaches_are_remarked_upon() {
    let table = [
        ("different literals", "{literal: a}, {literal: b}", None),
        ("an expression behind a literal", "{literal: a}, {regexp: a}", None),
        ("two expressions", "{regexp: a}, {regexp: b}", None),
        ("a literal the expression does not match", r"{regexp: '^b'}, {literal: ab}", None),
        ("an escaped end", r"{regexp: '.*\$'}, {regexp: b}", None),
        ("the same literal", "{literal: a}, {literal: a}", Some(0)),
        ("the literal without +", "{literal: 6.1.0}, {literal: 6.1.0+}", Some(0)),
        (
            "a literal behind its expression",
            r"{literal: x}, {regexp: '^6\.'}, {literal: 6.1.0}",
            Some(1),
        ),
        ("the same expression", "{regexp: a.b}, {regexp: a.b}", Some(0)),
        ("anything", "{regexp: .*}, {regexp: b}", Some(0)),
        ("anything, anchored", "{regexp: ^.+$}, {regexp: b}", Some(0)),
        ("anything, grouped", "{regexp: '^(?:.*)$'}, {regexp: b}", Some(0)),
        ("an anchor alone", "{regexp: ^}, {regexp: b}", Some(0)),
    ];
    for (why, written, earlier) in table {
        let document = mappings(written);
        let last = written.matches('}').count() - 1;
        let at = format!("….kernelMappings[{last}]");
        let text = earlier.map(|earlier| {
            format!(
                "never used: kernelMappings[{earlier}] comes first and matches the same kernels"
            )
        });
        let expected: Vec<_> = text.iter().map(|text| (at.as_str(), text.as_str())).collect();
        warned(why, &document, &expected);
    }
}

#[test]
fn w_25_a_preflight_names_a_kernel() {
    for kernel in ["4.18.0-348.el8.x86_64", "6.12-amd64", "4.18", "5.10.133+", "5.15.167.4-WSL2"] {
        warned(kernel, &preflight(&format!("{{kernelVersion: '{kernel}'}}")), &[]);
    }
    for kernel in ["test", "4", "", "v5.4.0", "5."] {
        let text = format!("not a kernel version: \"{kernel}\"");
        let document = preflight(&format!("{{kernelVersion: '{kernel}'}}"));
        refused(kernel, &document, &[("spec.kernelVersion", text.as_str())]);
    }
}

#[test]
fn w_26_the_kernel_of_a_preflight_stays() {
    let schema = Preflight::KIND.served_schema();
    let kernel = &schema["properties"]["spec"]["properties"]["kernelVersion"];
    let rule = json!([{"rule": "self == oldSelf", "message": "immutable"}]);
    assert_eq!(kernel["x-kubernetes-validations"], rule);
    assert_eq!(kernel["maxLength"], 64, "the rule's cost is bounded");
    assert_eq!(schema["properties"]["spec"]["required"], json!(["kernelVersion"]));
}

#[test]
fn w_28_a_managed_module_keeps_the_rules_of_a_module() {
    let hub = |namespace: &str, module: &str| {
        read(&format!(
            "apiVersion: hub.ooto.sigs.k8s.io/v1alpha1\nkind: ManagedClusterModule\nmetadata: {{name: m}}\nspec: {{spokeNamespace: {namespace}, selector: {{}}, moduleSpec: {module}}}\n"
        ))
    };
    let plugin = "{selector: {}, devicePlugin: {container: {image: 'a:1'}}}";
    warned("a good one", &hub("drivers", plugin), &[]);
    refused(
        "a dotted namespace",
        &hub("a.b", plugin),
        &[(
            "spec.spokeNamespace",
            "Invalid value: \"a.b\": must be a DNS label: at most 63 lower case letters, digits and `-`, starting and ending with a letter or digit",
        )],
    );
    refused(
        "a bad module",
        &hub(
            "drivers",
            "{selector: {}, driverContainer: {kernelMappings: [{}], containerImage: 'a:1'}}",
        ),
        &[("spec.moduleSpec.driverContainer.container.kernelMappings[0]", "set literal or regexp")],
    );
    let long = "n".repeat(42);
    let text = "namespace and name together exceed 42 characters (43)";
    refused("names on the spoke", &hub(&long, plugin), &[("metadata.name", text)]);
}

#[test]
fn labels_have_the_syntax_of_labels() {
    let value = "must be a label value: at most 63 letters, digits, `-`, `_` and `.`, starting and ending with a letter or digit";
    let bad_value = format!("Invalid value: \"b c\": {value}");
    let version = format!("Invalid value: \"-v\": {value}");
    refused("a version", &driver("version: -v"), &[("….version", version.as_str())]);
    warned("a good version", &driver("version: v1.2_3"), &[]);
    let selector = module("{selector: {a: b c}, devicePlugin: {container: {image: 'a:1'}}}");
    refused("nodes", &selector, &[("spec.selector.a", bad_value.as_str())]);
    let build = driver("build: {dockerfile: FROM x, selector: {a: b c}}");
    refused("builds", &build, &[("….build.selector.a", bad_value.as_str())]);
    let preflight = preflight("{kernelVersion: 6.8.0, labels: {a: b c}}");
    refused("imagined nodes", &preflight, &[("spec.labels.a", bad_value.as_str())]);
    let key = module("{selector: {/a: b}, devicePlugin: {container: {image: 'a:1'}}}");
    assert!(key.errors[0].text.contains("must be a label key"), "{:?}", key.errors);
}
