//! `gantry modules gather`: collects what helps to find out why a module is not loaded.

mod redaction;
mod selection;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::Context as _;
use gantry_process::clock::Clock;
use gantry_reconcile::{ApiPath, Key, Parameter};
use gantry_subsystem::explain::ExplainPage;
use gantry_subsystem::settings::Values;
use serde_json::{Value, json};

use self::redaction::Redaction;
use self::selection::{
    CLUSTER_KINDS, GatheredKind, NAMESPACED_KINDS, OPERATOR_KINDS, is_of_modules,
};
use crate::cli::CommandOutcome;
use crate::cli::cluster_client::{ClusterClient, ClusterFlags, ClusterRequestError};
use crate::cli::explain::object::{ObjectPage, SectionWorld};
use crate::cli::gather::OutputDirectory;
use crate::cli::queue::settings::SettingsFlags;
use crate::output::Output;
use crate::subsystems::SUBSYSTEMS;
use crate::up::STATUS_PATH;
use crate::version::VERSION;

/// How many lines of each log are gathered, the last ones.
const LOG_LINES: u32 = 5000;

/// Collect what is needed to find out why a kernel module is not built, signed or loaded.
///
/// There is one YAML file for each object and a text that describes it: definitions, Modules and
/// their like, nodes, and in each namespace with Modules their DaemonSets, Jobs, pods, service
/// accounts, role bindings, Dockerfiles and events; of the operator its Deployment, configuration
/// and pods. Of their containers there are the current and the previous log.
///
/// Of Secrets there are names, types and names of keys. Their values are searched for in
/// everything else, and replaced; values of environment variables are left out. What could not be
/// read is in `errors.txt`, and never ends the command.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry modules gather                        into ./must-gather/TIME
  gantry modules gather --namespace drivers    Modules of one namespace
  gather                                       the same, in Gantry's image

Exit codes:
  0  everything was read
  1  something could not be read: errors.txt says what; the rest was written")]
pub(super) struct Arguments {
    /// The output directory; created if it does not exist. By default must-gather/TIME.
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Collect only this namespace, and cluster-scoped objects.
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,

    #[command(flatten)]
    reach: ClusterFlags,
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> anyhow::Result<CommandOutcome> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(gather(arguments, output))
}

async fn gather(arguments: &Arguments, output: &mut Output) -> anyhow::Result<CommandOutcome> {
    let clock = Clock::system();
    let started = clock.now();
    let directory = arguments.output.clone().unwrap_or_else(|| {
        let time = started.strftime("%Y%m%dT%H%M%SZ");
        PathBuf::from("must-gather").join(time.to_string())
    });
    let cluster = arguments.reach.connect().await?;
    if let Some(namespace) = &arguments.namespace {
        cluster.check_namespace(namespace).await?;
    }
    // A server that does not answer this does not answer anything.
    let served = cluster.get(&ApiPath::from_static("/version")).await?;
    let collector = Collector {
        cluster: &cluster,
        clock: &clock,
        files: OutputDirectory::new(&directory),
        redaction: Redaction::default(),
        errors: Vec::new(),
        status: None,
        output,
    };
    let only = arguments.namespace.as_deref();
    let (mut files, errors) = collector.collect(only, &served, &started.to_string()).await?;
    let text: String = errors.iter().map(|it| format!("{it}\n")).collect();
    files.write_text("errors.txt", &text)?;
    output.result(format_args!("{} files in {}", files.count(), directory.display()))?;
    if errors.is_empty() {
        return Ok(CommandOutcome::Success);
    }
    output.warning(format_args!(
        "{} things could not be read; {} says which",
        errors.len(),
        directory.join("errors.txt").display()
    ));
    Ok(CommandOutcome::Failure)
}

/// What is collected, and where it goes.
struct Collector<'a, 'o> {
    cluster: &'a ClusterClient,
    clock: &'a Clock,
    files: OutputDirectory<'a>,
    redaction: Redaction,
    /// What could not be read, and why.
    errors: Vec<String>,
    /// What the controllers of `gantry up` hold.
    status: Option<Value>,
    output: &'o mut Output,
}

/// The objects of one kind.
struct Gathered {
    kind: &'static GatheredKind,
    items: Vec<Value>,
}

impl<'a> Collector<'a, '_> {
    /// Collects everything; returns what was written, and what could not be read.
    async fn collect(
        mut self,
        only: Option<&str>,
        served: &Value,
        started: &str,
    ) -> anyhow::Result<(OutputDirectory<'a>, Vec<String>)> {
        let modules = self.list(&selection::MODULES, only.unwrap_or_default(), None).await;
        let deployments =
            self.list(&selection::DEPLOYMENTS, "", Some(selection::OPERATOR_SELECTOR)).await;
        let mut namespaces: BTreeSet<String> = modules.iter().map(namespace_of).collect();
        namespaces.extend(only.map(str::to_owned));
        let operators: BTreeSet<String> = deployments.iter().map(namespace_of).collect();
        // Secrets come first: their values must not be in anything that is written.
        let mut secrets = BTreeMap::new();
        for namespace in namespaces.union(&operators) {
            secrets.insert(namespace.clone(), self.read_secrets(namespace).await);
        }
        let about = json!({
            "gantry": VERSION.version, "commit": VERSION.commit, "started": started,
            "server": self.cluster.location.server, "serverVersion": served["gitVersion"],
        });
        self.write("about.yaml", about)?;
        self.read_status().await?;
        for (namespace, list) in secrets {
            if let Some(list) = list {
                self.write(&format!("namespaces/{namespace}/secrets.yaml"), list)?;
            }
        }
        for kind in CLUSTER_KINDS {
            let mut items = self.list(kind, "", None).await;
            items.retain(|it| (kind.wanted)(it));
            self.write_objects("cluster", &Gathered { kind, items }, &[])?;
        }
        for namespace in &namespaces {
            let own = modules.iter().filter(|it| namespace_of(it) == *namespace);
            let own: Vec<Value> = own.cloned().collect();
            self.collect_namespace(namespace, own).await?;
        }
        for namespace in &operators {
            self.collect_operator(namespace).await?;
        }
        Ok((self.files, self.errors))
    }

    /// Collects what belongs to the Modules of a namespace.
    async fn collect_namespace(
        &mut self,
        namespace: &str,
        modules: Vec<Value>,
    ) -> anyhow::Result<()> {
        let folder = format!("namespaces/{namespace}");
        let events = self.collect_events(namespace).await?;
        for kind in NAMESPACED_KINDS {
            let mut items = self.list(kind, namespace, None).await;
            items.retain(|it| (kind.wanted)(it) || is_of_modules(it, &modules));
            let gathered = Gathered { kind, items };
            self.write_objects(&folder, &gathered, &events)?;
            if kind.has_logs() {
                self.collect_logs(&folder, &gathered.items).await?;
            }
        }
        let gathered = Gathered { kind: &selection::MODULES, items: modules };
        self.write_objects(&folder, &gathered, &events)?;
        self.explain_modules(&folder, &gathered.items, &events).await
    }

    /// Collects the operator in a namespace.
    async fn collect_operator(&mut self, namespace: &str) -> anyhow::Result<()> {
        let folder = format!("operator/{namespace}");
        let events = self.collect_events_in(namespace, &folder).await?;
        for kind in OPERATOR_KINDS {
            let mut items = self.list(kind, namespace, None).await;
            items.retain(|it| (kind.wanted)(it));
            let gathered = Gathered { kind, items };
            self.write_objects(&folder, &gathered, &events)?;
            if kind.has_logs() {
                self.collect_logs(&folder, &gathered.items).await?;
            }
        }
        Ok(())
    }

    /// Lists the objects of a kind; none if the server does not have the kind.
    async fn list(
        &mut self,
        kind: &GatheredKind,
        namespace: &str,
        selector: Option<&str>,
    ) -> Vec<Value> {
        let resource = kind.resource();
        let listed = async {
            let path = ApiPath::collection(kind.api_version, namespace, kind.plural)?;
            let path = match selector {
                Some(selector) => path.with(Parameter::LabelSelector(selector)),
                None => path,
            };
            self.cluster.items(&path).await
        };
        match listed.await {
            Ok(mut items) => {
                items.retain(Value::is_object);
                for item in &mut items {
                    // Items of a list need not have them.
                    item["apiVersion"] = kind.api_version.into();
                    item["kind"] = kind.kind.into();
                }
                items
            }
            Err(ClusterRequestError::NotFound { .. }) => Vec::new(),
            Err(error) => {
                self.fail(&format!("{resource} in namespace {namespace:?}"), &error);
                Vec::new()
            }
        }
    }

    /// Reads the Secrets of a namespace: what may be gathered of them, if they could be read.
    async fn read_secrets(&mut self, namespace: &str) -> Option<Value> {
        let listed = async {
            let path = ApiPath::collection("v1", namespace, "secrets")?;
            self.cluster.items(&path).await
        };
        match listed.await {
            Ok(secrets) => {
                let known = secrets.iter().map(|it| self.redaction.add_secret(it));
                Some(known.collect())
            }
            Err(error) => {
                let what = format!("Secrets in namespace {namespace}");
                self.fail(&what, &error);
                self.errors.push(format!(
                    "{what}: their values could not be searched for; review logs, arguments and \
                     annotations of this namespace before you share them"
                ));
                None
            }
        }
    }

    /// Reads what the controllers of `gantry up` hold; only that serves the page.
    async fn read_status(&mut self) -> anyhow::Result<()> {
        match self.cluster.get(&ApiPath::from_static(STATUS_PATH)).await {
            Ok(page) => {
                self.write("status.yaml", page.clone())?;
                self.status = Some(page);
            }
            Err(ClusterRequestError::NotFound { .. } | ClusterRequestError::Forbidden { .. }) => {}
            Err(error) => self.fail("what controllers hold", &error),
        }
        Ok(())
    }

    async fn collect_events(&mut self, namespace: &str) -> anyhow::Result<Vec<Value>> {
        let folder = format!("namespaces/{namespace}");
        self.collect_events_in(namespace, &folder).await
    }

    /// Writes the events of a namespace into one file.
    async fn collect_events_in(
        &mut self,
        namespace: &str,
        folder: &str,
    ) -> anyhow::Result<Vec<Value>> {
        let events = self.list(&selection::EVENTS, namespace, None).await;
        if !events.is_empty() {
            let list = json!({"apiVersion": "v1", "kind": "List", "items": events});
            self.write(&format!("{folder}/events.yaml"), list)?;
        }
        Ok(events)
    }

    /// Writes each object as YAML and as text.
    fn write_objects(
        &mut self,
        folder: &str,
        Gathered { kind, items }: &Gathered,
        events: &[Value],
    ) -> anyhow::Result<()> {
        let resource = kind.resource();
        for item in items {
            let name = item["metadata"]["name"].as_str().unwrap_or_default();
            let key = Key::new(&namespace_of(item), name);
            let file = format!("{folder}/{}/{}", kind.folder(), file_name(name));
            let page = ObjectPage::of_object(&resource, &key, item, self.status.as_ref(), events);
            self.write(&format!("{file}.yaml"), item.clone())?;
            self.write_text(&format!("{file}.txt"), &page.text())?;
        }
        if !items.is_empty() {
            let text =
                format!("  {:<52} {} objects", format!("{folder}/{}", kind.folder()), items.len());
            self.output.note(text);
        }
        Ok(())
    }

    /// Replaces the texts about Modules by those that `gantry explain` shows.
    async fn explain_modules(
        &mut self,
        folder: &str,
        modules: &[Value],
        events: &[Value],
    ) -> anyhow::Result<()> {
        let kind = &selection::MODULES;
        let resource = kind.resource();
        let about = |it: &&ExplainPage| (it.resource)().plural == resource.plural;
        let page = SUBSYSTEMS.iter().flat_map(|it| it.explain).find(about);
        let Some(page) = page.filter(|_| !modules.is_empty()) else { return Ok(()) };
        let values = self.settings().await;
        let read = SectionWorld::read(self.cluster, page, None, self.output).await;
        let read = match read {
            Ok(read) => read,
            Err(error) => {
                self.fail("the objects that Modules are explained with", &error);
                return Ok(());
            }
        };
        for module in modules {
            let name = module["metadata"]["name"].as_str().unwrap_or_default();
            let key = Key::new(&namespace_of(module), name);
            let status = self.status.as_ref();
            let mut text = ObjectPage::of_object(&resource, &key, module, status, events);
            text.explain_with(page, &read, &key, &values, self.clock.now());
            let file = format!("{folder}/{}/{}.txt", kind.folder(), file_name(name));
            self.write_text(&file, &text.text())?;
        }
        Ok(())
    }

    /// The settings in effect; the defaults if they cannot be read.
    async fn settings(&mut self) -> Values {
        match SettingsFlags::default().load(self.cluster).await {
            Ok(found) => found.all,
            Err(error) => {
                self.fail("the settings of the operator", &error);
                Values::from_layers(&[], [])
            }
        }
    }

    /// Writes the current and the previous log of each container.
    async fn collect_logs(&mut self, folder: &str, pods: &[Value]) -> anyhow::Result<()> {
        for pod in pods {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            let namespace = namespace_of(pod);
            for (container, has_previous) in selection::containers(pod) {
                for previous in [false, true].into_iter().take(1 + usize::from(has_previous)) {
                    let read = async {
                        let path = ApiPath::object("v1", &namespace, "pods", name)?;
                        let path = path.subresource("log");
                        let path = path.with(Parameter::Container(&container));
                        let path = path.with(Parameter::TailLines(LOG_LINES));
                        let path = if previous { path.with(Parameter::Previous) } else { path };
                        self.cluster.log(&path).await
                    };
                    let which = if previous { ".previous" } else { "" };
                    match read.await {
                        Ok(text) => {
                            let file = format!(
                                "{folder}/pods/{}/{}{which}.log",
                                file_name(name),
                                file_name(&container)
                            );
                            self.write_text(&file, &text)?;
                        }
                        Err(error) => {
                            let what = format!("log{which} of {namespace}/{name} {container}");
                            self.fail(&what, &error);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes an object, without values of Secrets.
    fn write(&mut self, name: &str, mut content: Value) -> anyhow::Result<()> {
        self.redaction.clean_object(&mut content);
        for item in content.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
            self.redaction.clean_object(item);
        }
        self.files.write(name, &content).context("the rest was not gathered")
    }

    /// Writes a text, without values of Secrets.
    fn write_text(&mut self, name: &str, text: &str) -> anyhow::Result<()> {
        let text = self.redaction.clean_text(text);
        self.files.write_text(name, &text).context("the rest was not gathered")
    }

    /// Records what could not be read, without values of Secrets.
    fn fail(&mut self, what: &str, error: &dyn std::fmt::Display) {
        let text = format!("{what}: {error}");
        let text = self.redaction.clean_text(&text).replace('\n', " ");
        if !self.errors.contains(&text) {
            self.errors.push(text);
        }
    }
}

fn namespace_of(object: &Value) -> String {
    object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned()
}

/// The name of an object as the name of a file: names of roles and the like may hold anything.
fn file_name(name: &str) -> String {
    let safe = |it: char| it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | '.');
    let text: String = name.chars().map(|it| if safe(it) { it } else { '_' }).collect();
    if text.trim_matches('.').is_empty() { format!("_{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kms_91_names_of_objects_lead_nowhere_else() {
        let table = [
            ("hello-driver.1", "hello-driver.1"),
            ("system:node/../../x", "system_node_.._.._x"),
            ("..", "_.."),
            ("", "_"),
        ];
        for (name, expected) in table {
            assert_eq!(file_name(name), expected);
        }
    }
}
