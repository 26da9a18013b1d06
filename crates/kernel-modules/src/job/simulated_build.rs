//! The container that builds images on simulated nodes, which run no containers of others.

use serde_json::{Value, json};

use super::build::{BUILD_SECRETS, WORKSPACE};
use super::{AUTH_DIRECTORY, AUTH_FILE, CA_FILE, GANTRY, JobContext, literal, unprivileged};
use crate::kernel_plan::BuildStage;
use crate::labels::INPUT_HASH;

/// The container that runs `gantry modules build`.
///
/// It has the options of the real builder where both have one, and the modules that the Module
/// loads and signs, because no command of the Dockerfile builds them.
pub(super) fn simulated_builder(
    context: &JobContext<'_>,
    stage: &BuildStage,
    input_hash: &str,
    has_auth: bool,
    mut mounts: Vec<Value>,
) -> Value {
    let mut args = vec!["modules".to_owned(), "build".to_owned()];
    let mut option = |name: &str, value: &str| args.extend([name.to_owned(), value.to_owned()]);
    option("--file", &format!("{WORKSPACE}/Dockerfile"));
    option("--tag", &stage.output);
    option("--kernel", context.kernel);
    // Nodes of an embedded cluster have no network: bases that no registry has are empty.
    option("--missing-base", "empty");
    option("--label", &format!("{INPUT_HASH}={input_hash}"));
    let nodes = context.module.nodes.get(context.kernel);
    if let Some(architecture) = nodes.and_then(|it| it.architectures.first()) {
        option("--platform", &format!("linux/{architecture}"));
    }
    for path in expected_modules(context) {
        option("--module", &literal(&path));
    }
    for (name, value) in &stage.arguments {
        option("--build-arg", &literal(&format!("{name}={value}")));
    }
    for secret in &stage.secrets {
        let path = format!("{BUILD_SECRETS}/{secret}");
        option("--volume", &format!("{path}:{path}:ro"));
    }
    if has_auth {
        option("--auth-file", AUTH_FILE);
        mounts.push(json!({"name": "auth", "mountPath": AUTH_DIRECTORY, "readOnly": true}));
    }
    if context.settings.registry_ca_config_map.is_some() {
        option("--ca-file", CA_FILE);
    }
    let flags = [
        (stage.pull.insecure, "--insecure-pull"),
        (stage.pull.insecure_skip_tls_verify, "--skip-tls-verify-pull"),
        (stage.push.insecure, "--insecure-push"),
        (stage.push.insecure_skip_tls_verify, "--skip-tls-verify-push"),
    ];
    args.extend(flags.iter().filter(|(set, _)| *set).map(|(_, flag)| (*flag).to_owned()));
    args.push(WORKSPACE.to_owned());
    json!({
        "name": "build",
        "image": context.settings.jobs.gantry_image,
        "command": [GANTRY],
        "args": args,
        "securityContext": unprivileged(),
        "volumeMounts": mounts,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    })
}

/// The paths of the modules that the Module loads by name and signs by path.
fn expected_modules(context: &JobContext<'_>) -> Vec<String> {
    let mut paths = Vec::new();
    let modprobe = context.module.spec.driver_container.as_ref();
    if let Some(modprobe) = modprobe.and_then(|it| it.container.modprobe.as_ref()) {
        let directory = modprobe.dir_name.as_deref().unwrap_or("/opt").trim_end_matches('/');
        let names = modprobe.module_name.iter().chain(&modprobe.modules_loading_order);
        paths.extend(names.map(|it| format!("{directory}/lib/modules/{}/{it}.ko", context.kernel)));
    }
    let plans = context.module.plans().filter(|(kernel, _)| *kernel == context.kernel);
    let files = plans.filter_map(|(_, plan)| plan.sign.as_ref()).flat_map(|it| &it.files);
    let is_pattern = |path: &str| path.contains(['*', '?', '[']);
    paths.extend(files.filter(|it| it.ends_with(".ko") && !is_pattern(it)).cloned());
    paths.sort();
    paths.dedup();
    paths
}
