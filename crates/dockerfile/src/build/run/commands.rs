//! What known commands would leave.

use std::rc::Rc;

use gantry_oci::layer::Attributes;
use gantry_oci::{Pattern, TreePath};

use super::super::copy::{absolute, has_wildcard, parent};
use super::super::error::StepProblem;
use super::super::file_system::{Kind, Node, NodeKind};
use super::super::modules::{is_module_name, listed_modules};
use super::super::ownership::parse_mode;
use super::super::stage::StageState;
use super::{Build, Ended, SIMULATED_PREFIX, Shell, Word};

/// A file that gets the output of a command.
pub(super) struct OutputFile {
    pub(super) path: TreePath,
    pub(super) append: bool,
}

/// Where modules that are not the kernel's own are installed, unless `INSTALL_MOD_DIR` says so.
const DEFAULT_MODULE_DIRECTORY: &str = "updates";

/// Targets of `make` that do not build modules.
const TARGETS_WITHOUT_MODULES: [&str; 4] = ["clean", "help", "install", "test"];

impl<'a> Build<'a> {
    /// Simulates one command.
    pub(super) fn simple(
        &mut self,
        state: &mut StageState<'a>,
        shell: &mut Shell,
        words: &[Word],
        output: Option<OutputFile>,
    ) -> Result<Ended, StepProblem> {
        let Some((Some(program), words)) = words.split_first() else {
            return Ok(Ended::Status(0));
        };
        let program = program.rsplit('/').next().unwrap_or_default();
        if program == "make" {
            self.make(state, shell, words)?;
            return Ok(Ended::Status(0));
        }
        // Of every other command all words matter.
        let Some(words) = words.iter().cloned().collect::<Option<Vec<String>>>() else {
            return Ok(Ended::Status(0));
        };
        match program {
            "false" => return Ok(Ended::Status(1)),
            "exit" => {
                let code = words.first().and_then(|word| word.parse::<i64>().ok()).unwrap_or(0);
                // A shell keeps the lowest byte.
                return Ok(Ended::Exit(u8::try_from(code.rem_euclid(256)).unwrap_or(1)));
            }
            "set" => {
                let sets = words.iter().any(|word| word.starts_with('-') && word.contains('e'));
                shell.exit_on_error |= sets || words.iter().any(|word| word == "errexit");
            }
            "cd" => {
                let path = words.first().map_or("/", String::as_str);
                shell.directory = absolute(path, &shell.directory.to_string())?;
            }
            "export" => {
                for (name, value) in words.iter().filter_map(|word| word.split_once('=')) {
                    shell.variables.insert(name.to_owned(), Some(value.to_owned()));
                }
            }
            "echo" => self.redirect(state, shell, output, &echo(&words))?,
            "printf" => {
                if let Some(text) = printf(&words) {
                    self.redirect(state, shell, output, text.as_bytes())?;
                }
            }
            "cat" => {
                let mut content = Some(Vec::new());
                for word in &words {
                    let file = shell.readable(state, word)?;
                    content = content.zip(file).map(|(all, file)| [&all, &*file].concat());
                }
                if let Some(content) = content.filter(|_| !words.is_empty()) {
                    self.redirect(state, shell, output, &content)?;
                }
            }
            "touch" => {
                for word in words.iter().filter(|word| !word.starts_with('-')) {
                    let path = shell.path(word)?;
                    if state.file_system.resolve(&path, true)?.1.is_none() {
                        self.write(state, shell, &path, Rc::from(&b""[..]), 0o644)?;
                    }
                }
            }
            "mkdir" => {
                let arguments = Arguments::read(&words, "m");
                self.directories(state, shell, &arguments.operands, arguments.mode(0o755)?)?;
            }
            "ln" => self.link(state, shell, &words)?,
            "rm" => {
                for word in words.iter().filter(|word| !word.starts_with('-')) {
                    state.file_system.remove_new(&shell.path(word)?);
                }
            }
            "cp" | "mv" | "install" => self.copy_files(state, shell, program, &words)?,
            _ => {}
        }
        Ok(Ended::Status(0))
    }

    /// Writes the output of a command to the file it is redirected to.
    fn redirect(
        &mut self,
        state: &mut StageState<'a>,
        shell: &Shell,
        output: Option<OutputFile>,
        text: &[u8],
    ) -> Result<(), StepProblem> {
        let Some(OutputFile { path, append }) = output else { return Ok(()) };
        if path.names().next() == Some(b"dev") {
            return Ok(());
        }
        let old = if append { state.file_system.read_one(&path)? } else { None };
        let content = [&*old.unwrap_or_default(), text].concat();
        self.write(state, shell, &path, Rc::from(content), 0o644)
    }

    fn write(
        &mut self,
        state: &mut StageState<'a>,
        shell: &Shell,
        path: &TreePath,
        content: Rc<[u8]>,
        mode: u32,
    ) -> Result<(), StepProblem> {
        // A file behind a link is changed, and not the link.
        let (path, _) = state.file_system.resolve(path, true)?;
        let attributes = self.new_attributes(shell, mode);
        state.file_system.write(&path, Node { kind: NodeKind::File(content), attributes })?;
        self.log(&format!("{SIMULATED_PREFIX}: created {path}"));
        Ok(())
    }

    fn new_attributes(&self, shell: &Shell, mode: u32) -> Attributes {
        let (uid, gid) = (shell.owner.uid, shell.owner.gid);
        Attributes { mode, uid, gid, ..self.attributes() }
    }

    fn directories(
        &mut self,
        state: &mut StageState<'a>,
        shell: &Shell,
        paths: &[String],
        mode: u32,
    ) -> Result<(), StepProblem> {
        for path in paths {
            let attributes = self.new_attributes(shell, mode);
            let node = Node { kind: NodeKind::Directory, attributes };
            state.file_system.write(&shell.path(path)?, node)?;
        }
        Ok(())
    }

    fn link(
        &mut self,
        state: &mut StageState<'a>,
        shell: &Shell,
        words: &[String],
    ) -> Result<(), StepProblem> {
        let arguments = Arguments::read(words, "");
        let [target, link] = arguments.operands.as_slice() else { return Ok(()) };
        if !arguments.has('s') {
            return Ok(());
        }
        let mut path = shell.path(link)?;
        let (_, kind) = state.file_system.resolve(&path, true)?;
        if kind == Some(Kind::Directory) {
            let name = target.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
            path = path.join(name.as_bytes());
        }
        let kind = NodeKind::Symlink(target.clone().into_bytes());
        let attributes = self.new_attributes(shell, 0o777);
        state.file_system.write(&path, Node { kind, attributes })?;
        Ok(())
    }

    /// Simulates `cp`, `mv` and `install`. Modules that are not there become synthetic ones.
    fn copy_files(
        &mut self,
        state: &mut StageState<'a>,
        shell: &Shell,
        program: &str,
        words: &[String],
    ) -> Result<(), StepProblem> {
        let arguments = Arguments::read(words, if program == "install" { "mogtS" } else { "tS" });
        let mode = arguments.mode(if program == "install" { 0o755 } else { 0o644 })?;
        let mut sources = arguments.operands.clone();
        if program == "install" && arguments.has('d') {
            return self.directories(state, shell, &sources, mode);
        }
        let destination = match arguments.value('t') {
            Some(directory) => format!("{directory}/"),
            None => match sources.pop() {
                Some(destination) if !sources.is_empty() => destination,
                Some(_) | None => return Ok(()),
            },
        };
        let target = shell.path(&destination)?;
        let name = target.file_name().unwrap_or_default();
        let is_directory = destination.ends_with(['/', '.'])
            || sources.len() > 1
            || has_wildcard(&sources[0])
            || state.file_system.resolve(&target, true)?.1 == Some(Kind::Directory)
            // A directory that a command before has made, which was not run.
            || is_module_name(sources[0].as_bytes()) && !is_module_name(name);
        for source in &sources {
            for (source, module) in self.sources(state, shell, source)? {
                let name = source.file_name().unwrap_or_default();
                let target = if is_directory { target.join(name) } else { target.clone() };
                if module {
                    self.write_module(state, &target)?;
                    continue;
                }
                let Some(content) = shell.readable(state, &source.to_string())? else {
                    continue;
                };
                let is_module = state.is_module(&source);
                self.write(state, shell, &target, content, mode)?;
                if is_module {
                    state.add_module(target);
                }
                if program == "mv" {
                    state.file_system.remove_new(&source);
                }
            }
        }
        Ok(())
    }

    /// The files that a word of `cp` means, and whether each is a module that is not there.
    fn sources(
        &self,
        state: &StageState<'a>,
        shell: &Shell,
        word: &str,
    ) -> Result<Vec<(TreePath, bool)>, StepProblem> {
        let path = shell.path(word)?;
        let name = path.file_name().unwrap_or_default();
        if !has_wildcard(word) {
            let exists = shell.readable(state, word)?.is_some();
            let module = !exists && is_module_name(name);
            return Ok(if exists || module { vec![(path, module)] } else { Vec::new() });
        }
        let Ok(pattern) = path.to_string().parse::<Pattern>() else { return Ok(Vec::new()) };
        let found = state.file_system.glob(&pattern);
        if !found.is_empty() || !is_module_name(name) {
            return Ok(found.into_iter().map(|path| (path, false)).collect());
        }
        let directory = parent(&path);
        let listed = listed_modules(&state.file_system, &directory)?;
        let names = self.select_modules(&String::from_utf8_lossy(name), listed)?;
        Ok(names.iter().map(|name| (directory.join(name.as_bytes()), true)).collect())
    }

    /// Simulates `make`: modules that the makefile lists are built, or installed.
    fn make(
        &mut self,
        state: &mut StageState<'a>,
        shell: &Shell,
        words: &[Word],
    ) -> Result<(), StepProblem> {
        let mut directory = shell.directory.clone();
        let (mut targets, mut variables) = (Vec::new(), Vec::new());
        let mut words = words.iter().flatten();
        while let Some(word) = words.next() {
            match (word.as_str(), word.split_once('=')) {
                ("-C" | "--directory", _) => {
                    if let Some(path) = words.next() {
                        directory = absolute(path, &directory.to_string())?;
                    }
                }
                ("-f" | "-j" | "-I" | "-o", _) => {
                    words.next();
                }
                (_, Some(variable)) => variables.push(variable),
                (option, None) if option.starts_with('-') => {}
                (target, None) => targets.push(target),
            }
        }
        let variable = |name: &str| {
            let own = variables.iter().rev().find(|(own, _)| *own == name);
            let shell_value = || shell.variables.get(name).cloned().flatten();
            own.map(|(_, value)| (*value).to_owned())
                .or_else(shell_value)
                .or_else(|| state.variable(name).map(str::to_owned))
        };
        if let Some(source) = variable("M").or_else(|| variable("KBUILD_EXTMOD")) {
            directory = absolute(&source, &shell.directory.to_string())?;
        }
        let modules = listed_modules(&state.file_system, &directory)?;
        if !targets.contains(&"modules_install") {
            if targets.iter().any(|target| TARGETS_WITHOUT_MODULES.contains(target)) {
                return Ok(());
            }
            for module in modules {
                self.write_module(state, &directory.join(module.as_bytes()))?;
            }
            return Ok(());
        }
        let root = variable("INSTALL_MOD_PATH").unwrap_or_default();
        let subdirectory = variable("INSTALL_MOD_DIR");
        let subdirectory = subdirectory.as_deref().unwrap_or(DEFAULT_MODULE_DIRECTORY);
        if modules.is_empty() {
            self.log(&format!(
                "{SIMULATED_PREFIX}: which modules are installed is not known, since no makefile \
                 in {directory} lists them"
            ));
            return Ok(());
        }
        let release = match variable("KERNELRELEASE") {
            Some(release) => release,
            None => self.kernel(state, &directory)?.to_string(),
        };
        let path = absolute(&format!("/{root}/lib/modules/{release}/{subdirectory}"), "/")?;
        for module in modules {
            self.write_module(state, &path.join(module.as_bytes()))?;
        }
        Ok(())
    }
}

impl Shell {
    /// The content of a file that a command can read.
    fn readable(
        &self,
        state: &StageState<'_>,
        word: &str,
    ) -> Result<Option<Rc<[u8]>>, StepProblem> {
        let path = self.path(word)?;
        let text = path.to_string();
        match self.secrets.iter().rev().find(|(own, _)| *own == text) {
            Some((_, content)) => Ok(Some(Rc::from(content.as_slice()))),
            None => state.file_system.read_one(&path),
        }
    }

    fn path(&self, word: &str) -> Result<TreePath, StepProblem> {
        absolute(word, &self.directory.to_string())
    }
}

/// Options and operands of a command.
struct Arguments {
    options: Vec<(char, Option<String>)>,
    operands: Vec<String>,
}

impl Arguments {
    /// Reads words; `with_value` are the options that have a value.
    fn read(words: &[String], with_value: &str) -> Self {
        let (mut options, mut operands) = (Vec::new(), Vec::new());
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if word == "--" {
                operands.extend(words.by_ref().cloned());
            } else if let Some(long) = word.strip_prefix("--") {
                let (name, value) = long.split_once('=').unwrap_or((long, ""));
                let short = match name {
                    "mode" => 'm',
                    "target-directory" => 't',
                    "directory" => 'd',
                    "symbolic" => 's',
                    _ => continue,
                };
                options.push((short, Some(value.to_owned())));
            } else if let Some(letters) = word.strip_prefix('-').filter(|it| !it.is_empty()) {
                let mut chars = letters.chars();
                while let Some(letter) = chars.next() {
                    if with_value.contains(letter) {
                        let rest = chars.as_str();
                        let value = if rest.is_empty() {
                            words.next().cloned()
                        } else {
                            Some(rest.to_owned())
                        };
                        options.push((letter, value));
                        break;
                    }
                    options.push((letter, None));
                }
            } else {
                operands.push(word.clone());
            }
        }
        Self { options, operands }
    }

    fn has(&self, letter: char) -> bool {
        self.options.iter().any(|(own, _)| *own == letter)
    }

    fn value(&self, letter: char) -> Option<&str> {
        let option = self.options.iter().rev().find(|(own, _)| *own == letter);
        option.and_then(|(_, value)| value.as_deref())
    }

    /// The permissions of `-m` if they are digits.
    fn mode(&self, default: u32) -> Result<u32, StepProblem> {
        match self.value('m') {
            Some(mode) if mode.starts_with(|it: char| it.is_ascii_digit()) => parse_mode(mode),
            Some(_) | None => Ok(default),
        }
    }
}

fn echo(words: &[String]) -> Vec<u8> {
    let is_option = |word: &&String| {
        word.len() > 1 && word.starts_with('-') && word[1..].chars().all(|it| "neE".contains(it))
    };
    let options: Vec<&String> = words.iter().take_while(is_option).collect();
    let mut text = words[options.len()..].join(" ");
    if options.iter().any(|option| option.contains('e')) {
        text = escapes(&text);
    }
    if !options.iter().any(|option| option.contains('n')) {
        text.push('\n');
    }
    text.into_bytes()
}

/// What `printf` prints; none for formats other than `%s`.
fn printf(words: &[String]) -> Option<String> {
    let (format, arguments) = words.split_first()?;
    let format = escapes(format);
    let mut arguments = arguments.iter();
    let mut text = String::new();
    let mut chars = format.chars();
    while let Some(char) = chars.next() {
        match char {
            '%' => match chars.next()? {
                '%' => text.push('%'),
                's' => text.push_str(arguments.next().map_or("", String::as_str)),
                _ => return None,
            },
            char => text.push(char),
        }
    }
    // More arguments repeat the format.
    arguments.next().is_none().then_some(text)
}

fn escapes(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        match (char, chars.as_str().chars().next()) {
            ('\\', Some('n')) => out.push('\n'),
            ('\\', Some('t')) => out.push('\t'),
            ('\\', Some('\\')) => out.push('\\'),
            _ => {
                out.push(char);
                continue;
            }
        }
        chars.next();
    }
    out
}
