//! `modprobe`: loads a module after those it needs, or removes one with those that are not needed
//! any more.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::pin::Pin;

use gantry_kmod::{Compression, ModuleInfo};

use super::config::{Config, DIRECTORIES, SoftDependency};
use super::options::{GivenOptions, OptionSpec, parse_options};
use super::{FAILED, LoadFile, ModuleBytes, Shell};
use crate::image::module_name;
use crate::kernel::{MAX_MODULE_BYTES, RemoveError, canonical_name, in_tree_modules};

/// The most modules that one command reads.
const MAX_PROBED_MODULES: usize = 64;
/// The most files of configuration that are read of one directory.
const MAX_CONFIG_FILES: usize = 64;

const OPTIONS: OptionSpec = OptionSpec {
    short: "arw:RibfDcnC:d:S:sqvVh1",
    long: &[
        ("--all", 'a'),
        ("--remove", 'r'),
        ("--wait", 'w'),
        ("--first-time", '1'),
        ("--ignore-install", 'i'),
        ("--ignore-remove", 'i'),
        ("--use-blacklist", 'b'),
        ("--force", 'f'),
        ("--resolve-alias", 'R'),
        ("--show-depends", 'D'),
        ("--showconfig", 'c'),
        ("--show-config", 'c'),
        ("--dry-run", 'n'),
        ("--show", 'n'),
        ("--config", 'C'),
        ("--dirname", 'd'),
        ("--set-version", 'S'),
        ("--syslog", 's'),
        ("--quiet", 'q'),
        ("--verbose", 'v'),
        ("--version", 'V'),
        ("--help", 'h'),
    ],
};

/// Options that change more than a simulated kernel has.
const NOT_SIMULATED: [char; 4] = ['R', 'c', 'f', 'C'];

/// A module that was found.
#[derive(Clone, Debug)]
struct ProbedModule {
    path: String,
    bytes: ModuleBytes,
    links: ModuleLinks,
}

/// The modules that belong to one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ModuleLinks {
    depends: Vec<String>,
    pre: Vec<String>,
    post: Vec<String>,
}

/// The modules below one directory, and what is configured about them.
struct ModuleTree {
    directory: String,
    release: String,
    /// The files by module.
    files: BTreeMap<String, String>,
    config: Config,
}

impl ModuleTree {
    fn base(&self) -> String {
        format!("{}/lib/modules/{}", self.directory, self.release)
    }
}

impl Shell<'_> {
    pub(super) async fn modprobe(&mut self, arguments: &[&str]) -> u8 {
        let (options, words) = match parse_options(OPTIONS, arguments) {
            Ok(parsed) => parsed,
            Err(why) => return self.fail(&format!("modprobe: {why}"), FAILED).await,
        };
        if options.has('V') {
            return self.print("kmod version 30\n").await;
        }
        if let Some(letter) = NOT_SIMULATED.into_iter().find(|it| options.has(*it)) {
            let message = format!("modprobe: option -{letter} is not simulated");
            return self.fail(&message, FAILED).await;
        }
        let Some((name, parameters)) = words.split_first() else {
            return self.fail("modprobe: ERROR: missing parameters. See -h.", FAILED).await;
        };
        let tree = self.module_tree(&options).await;
        let mut command = Modprobe { shell: self, tree: &tree, options: &options };
        if options.has('r') {
            return command.remove_all(&words).await;
        }
        if !options.has('a') {
            return command.insert(name, &parameters.join(" ")).await;
        }
        let mut code = 0;
        for name in &words {
            code = code.max(command.insert(name, "").await);
        }
        code
    }

    async fn module_tree(&mut self, options: &GivenOptions) -> ModuleTree {
        let running = self.release();
        let release = options.last_value('S').map_or_else(|| running.clone(), str::to_owned);
        let directory = options.last_value('d').map(|it| self.resolve(it)).unwrap_or_default();
        let directory = directory.trim_end_matches('/').to_owned();
        let paths = self.context.root.module_files(&directory, &release, &running);
        let updates = format!("{directory}/lib/modules/{release}/updates/");
        let mut files = BTreeMap::new();
        // What `depmod` finds below `updates` counts more than the rest.
        let (first, rest): (Vec<_>, Vec<_>) =
            paths.into_iter().partition(|it| it.starts_with(&updates));
        for path in first.into_iter().chain(rest) {
            if let Some(name) = module_name(&path) {
                files.entry(name).or_insert(path);
            }
        }
        let config = self.modprobe_config(options).await;
        ModuleTree { directory, release, files, config }
    }

    async fn modprobe_config(&mut self, options: &GivenOptions) -> Config {
        let mut config = Config::default();
        let mut known = BTreeSet::new();
        for directory in DIRECTORIES {
            let mounted = self.context.files.list(directory).await;
            let image = || self.context.root.image().and_then(|it| it.list(directory));
            let names = mounted.or_else(image).unwrap_or_default();
            for name in names.iter().filter(|it| it.ends_with(".conf")).take(MAX_CONFIG_FILES) {
                // A file hides those of the same name in the directories after it.
                if known.insert(name.clone())
                    && let Ok(bytes) = self.read_file(&format!("{directory}/{name}")).await
                {
                    config.add(&String::from_utf8_lossy(&bytes));
                }
            }
        }
        if !options.has('q') {
            for line in std::mem::take(&mut config.ignored) {
                self.print_error(&format!("modprobe: WARNING: not simulated: {line}")).await;
            }
        }
        config
    }
}

/// One run of `modprobe`.
struct Modprobe<'c, 's, 'x> {
    shell: &'c mut Shell<'x>,
    tree: &'s ModuleTree,
    options: &'s GivenOptions,
}

impl Modprobe<'_, '_, '_> {
    fn is_verbose(&self) -> bool {
        self.options.has('v') || self.options.has('D')
    }

    fn is_dry_run(&self) -> bool {
        self.options.has('n') || self.options.has('D')
    }

    fn is_loaded(&self, name: &str) -> bool {
        self.shell.kernel().is_some_and(|it| it.is_loaded(name))
    }

    /// Reports a failure and returns its exit code.
    async fn fail(&mut self, message: &str) -> u8 {
        if !self.options.has('q') {
            self.shell.print_error(&format!("modprobe: {message}")).await;
        }
        FAILED
    }

    async fn insert(&mut self, word: &str, parameters: &str) -> u8 {
        let name = self.tree.config.resolve(word);
        if !self.tree.files.contains_key(&name) {
            let level = if self.options.has('a') { "WARNING" } else { "FATAL" };
            let base = self.tree.base();
            return self
                .fail(&format!("{level}: Module {word} not found in directory {base}"))
                .await;
        }
        if self.is_loaded(&name) && !self.options.has('D') {
            return match self.options.has('1') {
                true => {
                    let why = "Module already in kernel";
                    self.fail(&format!("ERROR: could not insert '{word}': {why}")).await
                }
                false => 0,
            };
        }
        let modules = self.probe(&name).await;
        let links = modules.iter().map(|(name, it)| (name.clone(), it.links.clone())).collect();
        for (next, required) in probe_order(&name, &links) {
            let Some(module) = modules.get(&next) else { continue };
            if self.is_loaded(&next) && !self.options.has('D') {
                continue;
            }
            let mut words = self.tree.config.parameters(&next);
            words.extend((next == name && !parameters.is_empty()).then_some(parameters));
            let parameters = words.join(" ");
            if self.is_verbose() {
                let line = format!("insmod {} {parameters}\n", module.path);
                self.shell.print(&line).await;
            }
            if self.is_dry_run() {
                continue;
            }
            let (path, bytes) = (module.path.clone(), module.bytes.clone());
            let loaded = self.shell.load("modprobe", LoadFile { path, bytes, parameters }).await;
            // Of two processes that load a module, one finds that it is there.
            let loaded = loaded.or_else(|error| match self.is_loaded(&next) {
                true => Ok(()),
                false => Err(error),
            });
            if let Err(error) = loaded
                && required
            {
                let why = error.modprobe_message();
                return self.fail(&format!("ERROR: could not insert '{word}': {why}")).await;
            }
        }
        0
    }

    /// Reads a module, and those it needs or that are loaded with it.
    async fn probe(&mut self, name: &str) -> BTreeMap<String, ProbedModule> {
        let mut found = BTreeMap::new();
        let mut wanted = VecDeque::from([name.to_owned()]);
        while let Some(next) = wanted.pop_front() {
            if found.contains_key(&next) || found.len() == MAX_PROBED_MODULES {
                continue;
            }
            if let Some(module) = self.read(&next).await {
                let ModuleLinks { depends, pre, post } = &module.links;
                wanted.extend(depends.iter().chain(pre).chain(post).cloned());
                found.insert(next, module);
            }
        }
        found
    }

    async fn read(&mut self, name: &str) -> Option<ProbedModule> {
        let release = &self.tree.release;
        let root = &self.shell.context.root;
        let path = match self.tree.files.get(name) {
            Some(path) => path.clone(),
            // A dependency may be part of the kernel, where the container sees its modules.
            None => {
                let in_tree = in_tree_modules().iter();
                let mut known = in_tree.filter(|it| canonical_name(it.name) == name);
                let module = known.next().filter(|_| root.has_host_modules())?;
                let path = format!("/lib/modules/{release}/{}", module.file);
                let depends = module.depends.iter().map(|it| canonical_name(it)).collect();
                let links = self.links(name, depends, &[]);
                return Some(ProbedModule { path, bytes: ModuleBytes::InTree(module), links });
            }
        };
        if let Some(module) = root.in_tree_module(&path, release) {
            let depends = module.depends.iter().map(|it| canonical_name(it)).collect();
            let links = self.links(name, depends, &[]);
            return Some(ProbedModule { path, bytes: ModuleBytes::InTree(module), links });
        }
        let bytes = self.shell.read_file(&path).await.ok()?;
        let (depends, soft) = tokio::task::spawn_blocking({
            let (bytes, name) = (bytes.clone(), name.to_owned());
            move || file_links(&name, &bytes)
        })
        .await
        .ok()?;
        let links = self.links(name, depends, &soft);
        Some(ProbedModule { path, bytes: ModuleBytes::File(bytes), links })
    }

    /// Joins what a module's file and the configuration say. The configuration replaces the file.
    fn links(&self, name: &str, depends: Vec<String>, soft: &[SoftDependency]) -> ModuleLinks {
        let configured = self.tree.config.soft_dependencies.iter().find(|it| it.module == name);
        let soft = configured.or_else(|| soft.first()).cloned().unwrap_or_default();
        ModuleLinks { depends, pre: soft.pre, post: soft.post }
    }

    async fn remove_all(&mut self, words: &[String]) -> u8 {
        let mut code = 0;
        for word in words {
            let name = self.tree.config.resolve(word);
            if !self.tree.files.contains_key(&name) {
                code = self.fail(&format!("FATAL: Module {word} not found.")).await;
                continue;
            }
            code = code.max(self.remove(&name, &mut BTreeSet::new()).await);
        }
        code
    }

    /// Removes a module: those after it, itself, its dependencies that nothing uses any more, and
    /// those before it, in this order.
    fn remove<'a>(
        &'a mut self,
        name: &'a str,
        visited: &'a mut BTreeSet<String>,
    ) -> Pin<Box<dyn Future<Output = u8> + Send + 'a>> {
        Box::pin(async move {
            if visited.len() == MAX_PROBED_MODULES || !visited.insert(name.to_owned()) {
                return 0;
            }
            if !self.is_loaded(name) {
                return match self.options.has('1') {
                    true => self.fail(&format!("FATAL: Module {name} is not in kernel.")).await,
                    false => 0,
                };
            }
            let links = self.read(name).await.map(|it| it.links).unwrap_or_default();
            for post in links.post.iter().rev() {
                if self.remove(post, visited).await != 0 {
                    return FAILED;
                }
            }
            let dependencies = self.loaded_dependencies(name);
            if self.shell.kernel().is_some_and(|it| !it.users(name).is_empty()) {
                return self.fail(&format!("FATAL: Module {name} is in use.")).await;
            }
            if self.remove_one(name).await != 0 {
                return FAILED;
            }
            for unused in dependencies {
                let in_use = self.shell.kernel().is_none_or(|it| !it.users(&unused).is_empty());
                if !in_use {
                    self.remove_one(&unused).await;
                }
            }
            for pre in links.pre.iter().rev() {
                self.remove(pre, visited).await;
            }
            0
        })
    }

    /// Returns the loaded modules that a module uses, also through others, the nearest first.
    fn loaded_dependencies(&self, name: &str) -> Vec<String> {
        let Some(kernel) = self.shell.kernel() else { return Vec::new() };
        let mut found: Vec<String> = Vec::new();
        let mut next = VecDeque::from([name.to_owned()]);
        while let Some(name) = next.pop_front() {
            let module = kernel.modules().find(|it| it.name == name);
            for depends in module.iter().flat_map(|it| &it.depends) {
                // A module that is needed by several is removed after all of them.
                found.retain(|it| it != depends);
                found.push(depends.clone());
                next.push_back(depends.clone());
            }
        }
        found
    }

    async fn remove_one(&mut self, name: &str) -> u8 {
        if self.is_verbose() {
            self.shell.print(&format!("rmmod {name}\n")).await;
        }
        if self.is_dry_run() {
            return 0;
        }
        match self.shell.unload(name) {
            // Of two processes that remove a module, one finds that it is gone.
            Ok(Ok(()) | Err(RemoveError::NotLoaded)) => 0,
            Ok(Err(RemoveError::InUse)) => {
                self.fail(&format!("FATAL: Module {name} is in use.")).await
            }
            Err(why) => self.fail(&format!("ERROR: could not remove '{name}': {why}")).await,
        }
    }
}

/// Reads the dependencies of a module from its file.
fn file_links(name: &str, file: &[u8]) -> (Vec<String>, Vec<SoftDependency>) {
    let unpacked = Compression::detect(file).decompress(file, MAX_MODULE_BYTES);
    let info = unpacked.ok().and_then(|it| ModuleInfo::parse(&it).ok());
    let Some(info) = info else { return (Vec::new(), Vec::new()) };
    let soft = info.values("softdep").map(|it| SoftDependency::parse(name, it));
    (info.depends().map(canonical_name).collect(), soft.collect())
}

/// Returns the modules to load in order, each with whether the last one needs it.
fn probe_order(name: &str, links: &BTreeMap<String, ModuleLinks>) -> Vec<(String, bool)> {
    fn visit(
        name: &str,
        required: bool,
        links: &BTreeMap<String, ModuleLinks>,
        visited: &mut BTreeSet<String>,
        order: &mut Vec<(String, bool)>,
    ) {
        let Some(own) = links.get(name) else { return };
        if !visited.insert(name.to_owned()) {
            return;
        }
        for depends in &own.depends {
            visit(depends, required, links, visited, order);
        }
        for pre in &own.pre {
            visit(pre, false, links, visited, order);
        }
        order.push((name.to_owned(), required));
        for post in &own.post {
            visit(post, false, links, visited, order);
        }
    }
    let (mut visited, mut order) = (BTreeSet::new(), Vec::new());
    visit(name, true, links, &mut visited, &mut order);
    order
}
