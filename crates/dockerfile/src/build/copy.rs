//! `COPY` and `ADD`.

use std::collections::BTreeMap;
use std::io::Read;
use std::rc::Rc;

use gantry_oci::layer::{Attributes, MAX_PATH_LENGTH};
use gantry_oci::{Config, Descriptor, Family, Manifest, MediaType, MemoryBlobs, Pattern, TreePath};
use serde_json::json;

use super::error::StepProblem;
use super::file_system::{Budget, FileSystem, Kind, LowerImage, Node, NodeKind};
use super::input::BaseImage;
use super::modules::{is_module_name, listed_modules};
use super::ownership::{Owner, parse_mode, parse_owner};
use super::run::SIMULATED_PREFIX;
use super::stage::StageState;
use super::{Build, MissingBases, stage_number};
use crate::expand::{ExpandError, expand_heredoc};
use crate::instruction::CopySources;

/// Where files are copied from.
struct Source<'a> {
    files: Rc<FileSystem<'a>>,
    /// The stage, if it is one.
    stage: Option<Rc<StageState<'a>>>,
    /// Whether a real build could have more files there.
    incomplete: bool,
    /// Whether copies keep their owners, as those of archives do; others belong to root.
    keeps_owner: bool,
    /// What it is called in messages.
    description: String,
}

/// A file or a directory that is copied.
struct CopiedPath {
    /// Its path without symbolic links.
    path: TreePath,
    kind: Kind,
    /// The name of a copy in a directory, which is that of a symbolic link and not of its target.
    name: Vec<u8>,
}

impl<'a> Source<'a> {
    fn new(files: Rc<FileSystem<'a>>, description: String) -> Self {
        Self { files, stage: None, incomplete: false, keeps_owner: false, description }
    }
}

/// What copied files get.
#[derive(Clone, Copy, Default)]
struct Changes {
    owner: Option<Owner>,
    mode: Option<u32>,
}

/// Where files are copied to.
struct Destination {
    path: TreePath,
    is_directory: bool,
}

impl From<ExpandError> for StepProblem {
    fn from(error: ExpandError) -> Self {
        Self::Message(error.to_string())
    }
}

/// Reads a path that is relative to a directory. As in Docker, `..` stays within the root.
pub(super) fn absolute(path: &str, directory: &str) -> Result<TreePath, StepProblem> {
    let joined =
        if path.starts_with('/') { path.to_owned() } else { format!("{directory}/{path}") };
    if joined.len() > MAX_PATH_LENGTH || joined.contains('\0') {
        let problem = format!("a path has more than {MAX_PATH_LENGTH} bytes, or a zero byte");
        return Err(StepProblem::Message(problem));
    }
    let mut names: Vec<&str> = Vec::new();
    for name in joined.split('/') {
        match name {
            "" | "." => {}
            ".." => {
                names.pop();
            }
            name => names.push(name),
        }
    }
    Ok(names.iter().fold(TreePath::root(), |path, name| path.join(name.as_bytes())))
}

impl<'a> Build<'a> {
    pub(super) fn copy(
        &mut self,
        state: &mut StageState<'a>,
        copy: &CopySources,
        unpack: bool,
    ) -> Result<(), StepProblem> {
        if let Some(flag) = copy.unsupported_flags.first() {
            let problem = format!("--{flag} is not supported here; build with buildah and push");
            return Err(StepProblem::Message(problem));
        }
        let expand = |text: &String| self.expand(state, text);
        let sources: Vec<String> = copy.sources.iter().map(expand).collect::<Result<_, _>>()?;
        let destination = expand(&copy.destination)?;
        let chown = copy.chown.as_ref().map(expand).transpose()?;
        let chmod = copy.chmod.as_ref().map(expand).transpose()?;
        let from = copy.from.as_ref().map(expand).transpose()?;
        let changes = Changes {
            owner: chown.map(|owner| parse_owner(&owner, &state.file_system)).transpose()?,
            mode: chmod.map(|mode| parse_mode(&mode)).transpose()?,
        };
        let source = self.source(from.as_deref())?;
        let mut found: Vec<CopiedPath> = Vec::new();
        let mut modules: Vec<String> = Vec::new();
        for text in &sources {
            if unpack && is_url(text) {
                return Err(StepProblem::Message(format!(
                    "cannot add {text}: a build here has no network; add the file to the build \
                     context, or copy it from an image"
                )));
            }
            let matches = find(&source.files, text)?;
            if matches.is_empty() {
                modules.extend(self.missing(&source, text)?);
            }
            found.extend(matches);
        }
        let count = found.len() + modules.len() + copy.heredocs.len();
        let destination = locate(state, &destination, count)?;
        for name in modules {
            let target = destination.of_file(name.as_bytes());
            self.write_module(state, &target)?;
        }
        for heredoc in &copy.heredocs {
            let content = if heredoc.expand {
                let lookup = |name: &str| state.variable(name).map(str::to_owned);
                expand_heredoc(&heredoc.content, self.escape, &lookup)?
            } else {
                heredoc.content.clone()
            };
            let target = destination.of_file(heredoc.name.as_bytes());
            let kind = NodeKind::File(Rc::from(content.into_bytes()));
            let attributes = changes.apply(self.attributes(), true);
            state.file_system.write(&target, Node { kind, attributes })?;
        }
        for copied in found {
            let content = match copied.kind {
                Kind::File if unpack => self.archive(&source, &copied.path)?,
                Kind::File | Kind::Directory | Kind::Symlink(_) | Kind::Special => None,
            };
            match content {
                Some(content) => self.unpack(state, content, &destination, changes)?,
                None => self.copy_one(state, &source, &copied, &destination, changes)?,
            }
        }
        Ok(())
    }

    fn source(&mut self, from: Option<&str>) -> Result<Source<'a>, StepProblem> {
        let Some(from) = from else {
            let (files, description) = (self.context_files()?, "the build context".to_owned());
            return Ok(Source::new(files, description));
        };
        let number = stage_number(&self.stage_names[..self.stages.len()], from, true);
        if let Some(stage) = number.and_then(|number| self.stages[number].clone()) {
            let files = Rc::new(stage.file_system.clone());
            let source = Source::new(files, format!("stage {from}"));
            let incomplete = stage.incomplete;
            return Ok(Source { stage: Some(stage), incomplete, ..source });
        }
        let description = format!("image {from}");
        match self.open_base(from, self.request.platform) {
            Ok(lower) => {
                let files = Rc::new(FileSystem::on(lower, &self.budget));
                Ok(Source::new(files, description))
            }
            Err(StepProblem::BaseImage { reference, source })
                if self.request.missing_bases == MissingBases::Empty =>
            {
                self.log(&format!(
                    "image {reference} could not be opened ({source}); an empty image takes its \
                     place"
                ));
                let files = Rc::new(FileSystem::new(&self.budget));
                Ok(Source { incomplete: true, ..Source::new(files, description) })
            }
            Err(problem) => Err(problem),
        }
    }

    /// The files of the context, without their content.
    fn context_files(&mut self) -> Result<Rc<FileSystem<'a>>, StepProblem> {
        if let Some(files) = &self.context {
            return Ok(Rc::clone(files));
        }
        let fail = |source| StepProblem::Context { path: "the list of files".to_owned(), source };
        let mut files = FileSystem::new(&Rc::new(Budget::default()));
        for path in self.request.context.paths().map_err(fail)? {
            let attributes = self.attributes();
            files
                .write(&absolute(&path, "/")?, Node { kind: NodeKind::ContextFile, attributes })?;
        }
        let files = Rc::new(files);
        self.context = Some(Rc::clone(&files));
        Ok(files)
    }

    /// What is done about a source that does not exist: names of modules that take its place.
    fn missing(&mut self, source: &Source<'_>, text: &str) -> Result<Vec<String>, StepProblem> {
        let description = &source.description;
        if !source.incomplete {
            return Err(StepProblem::Message(format!(
                "{text:?} is not in {description}; check its path"
            )));
        }
        let path = absolute(text, "/")?;
        let name = path.file_name().unwrap_or_default();
        if is_module_name(name) {
            let name = String::from_utf8_lossy(name).into_owned();
            let modules = if has_wildcard(&name) {
                let listed = listed_modules(&source.files, &parent(&path))?;
                self.select_modules(&name, listed)?
            } else {
                vec![name]
            };
            if !modules.is_empty() {
                return Ok(modules);
            }
        }
        self.log(&format!(
            "{SIMULATED_PREFIX}: nothing is copied, since {text} is not in {description}, whose \
             commands were not run"
        ));
        Ok(Vec::new())
    }

    /// Of listed and expected modules, those that a pattern of names matches.
    pub(super) fn select_modules(
        &self,
        pattern: &str,
        listed: Vec<String>,
    ) -> Result<Vec<String>, StepProblem> {
        let pattern: Pattern = format!("/{pattern}").parse().map_err(message)?;
        let expected = || {
            let names = self.request.expected_modules.iter().filter_map(|it| it.rsplit('/').next());
            names.map(str::to_owned).collect()
        };
        let mut names: Vec<String> = if listed.is_empty() { expected() } else { listed };
        names.retain(|name| pattern.matches(&TreePath::root().join(name.as_bytes())));
        names.sort();
        names.dedup();
        Ok(names)
    }

    fn copy_one(
        &mut self,
        state: &mut StageState<'a>,
        source: &Source<'a>,
        copied: &CopiedPath,
        destination: &Destination,
        changes: Changes,
    ) -> Result<(), StepProblem> {
        let CopiedPath { path, kind, name } = copied;
        let mut items: Vec<(TreePath, Kind, TreePath)> = Vec::new();
        if *kind == Kind::Directory {
            let target = destination.path.clone();
            items.push((path.clone(), Kind::Directory, target.clone()));
            let depth = path.names().len();
            for (below, kind) in source.files.walk(path) {
                let rest = below.names().skip(depth);
                let target = rest.fold(target.clone(), |path, name| path.join(name));
                items.push((below, kind, target));
            }
        } else {
            let target = destination.of_file(name);
            items.push((path.clone(), kind.clone(), target));
        }
        let paths: Vec<TreePath> = items
            .iter()
            .filter(|(_, kind, _)| *kind == Kind::File)
            .map(|(path, _, _)| path.clone())
            .collect();
        let contents = source.files.read(&paths)?;
        for (path, kind, target) in items {
            let is_file = kind == Kind::File;
            let (kind, attributes) = match kind {
                Kind::Directory => {
                    let own = source.files.node(&path).map(|node| node.attributes.clone());
                    let default = Attributes { mode: 0o755, ..self.attributes() };
                    (NodeKind::Directory, own.unwrap_or(default))
                }
                Kind::Symlink(target) => {
                    (NodeKind::Symlink(target), Attributes { mode: 0o777, ..self.attributes() })
                }
                Kind::Special => {
                    self.log(&format!("{path} is a device or a pipe and is not copied"));
                    continue;
                }
                Kind::File => match contents.get(&path) {
                    Some((content, attributes)) => {
                        (NodeKind::File(Rc::clone(content)), attributes.clone())
                    }
                    None => self.context_file(&path)?,
                },
            };
            let attributes = match kind {
                NodeKind::Symlink(_) => attributes,
                _ => changes.apply(attributes, !source.keeps_owner),
            };
            let real = state.file_system.write(&target, Node { kind, attributes })?;
            let is_module = source.stage.as_ref().is_some_and(|stage| stage.is_module(&path));
            if is_file && is_module {
                state.add_module(real);
            }
        }
        Ok(())
    }

    fn context_file(&self, path: &TreePath) -> Result<(NodeKind, Attributes), StepProblem> {
        let name = path.to_string();
        let name = name.trim_start_matches('/');
        let read = self.request.context.read(name, self.budget.left());
        let file = read.map_err(|source| StepProblem::Context { path: name.to_owned(), source })?;
        let attributes = Attributes { mode: file.mode & 0o7777, ..self.attributes() };
        Ok((NodeKind::File(Rc::from(file.content)), attributes))
    }

    /// The content of a file that is an archive; none if it is another file.
    fn archive(
        &self,
        source: &Source<'a>,
        path: &TreePath,
    ) -> Result<Option<Vec<u8>>, StepProblem> {
        if source.files.node(path).is_none_or(|node| node.kind != NodeKind::ContextFile) {
            return Ok(None);
        }
        let (NodeKind::File(content), _) = self.context_file(path)? else { return Ok(None) };
        if content.starts_with(b"BZh") || content.starts_with(b"\xfd7zXZ\0") {
            return Err(StepProblem::Message(format!(
                "cannot unpack {path}: archives are read plain or compressed with gzip; use one \
                 of these, or COPY for the file as it is"
            )));
        }
        Ok(is_tar(&content).then(|| content.to_vec()))
    }

    /// Unpacks an archive into the destination. It is read as a layer is, with the same bounds.
    fn unpack(
        &mut self,
        state: &mut StageState<'a>,
        content: Vec<u8>,
        destination: &Destination,
        changes: Changes,
    ) -> Result<(), StepProblem> {
        let layer = Descriptor::of(MediaType::OciLayer, &content);
        let config = json!({ "rootfs": { "type": "layers", "diff_ids": [] } });
        let config = Config::parse(config.to_string().as_bytes()).map_err(message)?;
        let descriptor = Descriptor::of(MediaType::OciConfig, config.bytes());
        let manifest = Manifest::new(Family::Oci, &descriptor, &[layer], &BTreeMap::new());
        let mut blobs = MemoryBlobs::default();
        blobs.insert(content);
        let image = BaseImage { manifest, config, source: Box::new(blobs) };
        let lower = LowerImage::read(image).map_err(StepProblem::Layer)?;
        let files = Rc::new(FileSystem::on(Rc::new(lower), &self.budget));
        let source = Source::new(files, "the archive".to_owned());
        let source = Source { keeps_owner: true, ..source };
        let changes = Changes { mode: None, ..changes };
        let root = CopiedPath { path: TreePath::root(), kind: Kind::Directory, name: Vec::new() };
        self.copy_one(state, &source, &root, destination, changes)
    }
}

impl Changes {
    fn apply(self, attributes: Attributes, reset_owner: bool) -> Attributes {
        let owner = self.owner.or_else(|| reset_owner.then(Owner::default));
        let attributes = match owner {
            None => attributes,
            Some(Owner { uid, gid }) => {
                let (user, group) = (Vec::new(), Vec::new());
                Attributes { uid, gid, user, group, ..attributes }
            }
        };
        Attributes { mode: self.mode.unwrap_or(attributes.mode), ..attributes }
    }
}

impl Destination {
    fn of_file(&self, name: &[u8]) -> TreePath {
        if self.is_directory { self.path.join(name) } else { self.path.clone() }
    }
}

fn locate(state: &StageState<'_>, text: &str, count: usize) -> Result<Destination, StepProblem> {
    let path = absolute(text, state.working_directory())?;
    let (_, kind) = state.file_system.resolve(&path, true)?;
    let is_directory =
        text.ends_with('/') || text == "." || text.ends_with("/.") || kind == Some(Kind::Directory);
    if count > 1 && !is_directory {
        return Err(StepProblem::Message(format!(
            "several files are copied to {text:?}, which is no directory; end it with a slash"
        )));
    }
    Ok(Destination { path, is_directory })
}

/// What a source is, or what its pattern matches.
fn find(files: &FileSystem<'_>, text: &str) -> Result<Vec<CopiedPath>, StepProblem> {
    let path = absolute(text, "/")?;
    let paths = if has_wildcard(text) {
        let pattern: Pattern = path.to_string().parse().map_err(message)?;
        files.glob(&pattern)
    } else {
        vec![path]
    };
    let mut found = Vec::new();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_vec();
        let (path, kind) = files.resolve(&path, true)?;
        found.extend(kind.map(|kind| CopiedPath { path, kind, name }));
    }
    Ok(found)
}

/// Whether a text is a pattern.
pub(super) fn has_wildcard(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// The directory of a path.
pub(super) fn parent(path: &TreePath) -> TreePath {
    let count = path.names().len().saturating_sub(1);
    path.names().take(count).fold(TreePath::root(), |path, name| path.join(name))
}

fn is_url(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    ["http://", "https://", "ftp://", "git://", "git@"].iter().any(|it| text.starts_with(it))
}

/// Whether a content is a tar, plain or compressed with gzip.
fn is_tar(content: &[u8]) -> bool {
    let mut block = Vec::new();
    let read = if content.starts_with(&[0x1f, 0x8b]) {
        flate2::read::MultiGzDecoder::new(content).take(512).read_to_end(&mut block)
    } else {
        content.take(512).read_to_end(&mut block)
    };
    if !matches!(read, Ok(512)) {
        return false;
    }
    let text = String::from_utf8_lossy(&block[148..156]);
    let stored = u32::from_str_radix(text.trim_matches(['\0', ' ']), 8).ok();
    block[148..156].fill(b' ');
    stored == Some(block.iter().map(|byte| u32::from(*byte)).sum())
}

fn message(error: impl std::fmt::Display) -> StepProblem {
    StepProblem::Message(error.to_string())
}
