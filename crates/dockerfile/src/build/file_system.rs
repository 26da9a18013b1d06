//! The files of a stage: those of its base image, and above them what instructions wrote.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use gantry_oci::layer::{Attributes, MAX_NAME_LENGTH, NewEntry, NewEntryKind};
use gantry_oci::tree::{MAX_SYMLINKS, TreeEntry};
use gantry_oci::{BlobSource, Config, LayerError, Limits, Manifest, Pattern, Tree, TreePath};

use super::error::StepProblem;
use super::input::BaseImage;

/// How deep directories may be within one another.
const MAX_DEPTH: usize = 128;

/// The most bytes that all instructions of a build may write.
pub(super) const MAX_WRITTEN_BYTES: u64 = 512 << 20;

/// The most files that all instructions of a build may write.
const MAX_WRITTEN_FILES: u64 = 100_000;

/// What a build has written.
#[derive(Debug, Default)]
pub(super) struct Budget {
    bytes: Cell<u64>,
    files: Cell<u64>,
}

impl Budget {
    fn spend(&self, bytes: usize) -> Result<(), StepProblem> {
        self.bytes.set(self.bytes.get().saturating_add(bytes as u64));
        self.files.set(self.files.get() + 1);
        if self.bytes.get() > MAX_WRITTEN_BYTES {
            return Err(StepProblem::Limit { what: "bytes of files", limit: MAX_WRITTEN_BYTES });
        }
        if self.files.get() > MAX_WRITTEN_FILES {
            return Err(StepProblem::Limit { what: "files", limit: MAX_WRITTEN_FILES });
        }
        Ok(())
    }

    /// How large the next file may be.
    pub(super) fn left(&self) -> u64 {
        MAX_WRITTEN_BYTES.saturating_sub(self.bytes.get())
    }
}

/// An image below the files of a stage.
pub(super) struct LowerImage<'a> {
    tree: Tree,
    manifest: Manifest,
    config: Config,
    source: Box<dyn BlobSource + 'a>,
}

impl<'a> LowerImage<'a> {
    pub(super) fn read(image: BaseImage<'a>) -> Result<Self, LayerError> {
        let limits = Limits {
            file_bytes: MAX_WRITTEN_BYTES,
            selected_bytes: MAX_WRITTEN_BYTES,
            ..Limits::default()
        };
        let BaseImage { manifest, config, source } = image;
        let tree = Tree::read(&*source, &manifest, &config, &limits)?;
        Ok(Self { tree, manifest, config, source })
    }

    pub(super) const fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    pub(super) const fn config(&self) -> &Config {
        &self.config
    }

    pub(super) fn source(&self) -> &dyn BlobSource {
        &*self.source
    }
}

/// The files of a stage.
#[derive(Clone)]
pub(super) struct FileSystem<'a> {
    lower: Option<Rc<LowerImage<'a>>>,
    written: BTreeMap<TreePath, Node>,
    /// What the current instruction wrote.
    changed: BTreeSet<TreePath>,
    budget: Rc<Budget>,
}

/// Something that an instruction wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) kind: NodeKind,
    pub(super) attributes: Attributes,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NodeKind {
    Directory,
    File(Rc<[u8]>),
    /// A file of the context, whose content is read when it is copied.
    ContextFile,
    Symlink(Vec<u8>),
}

/// Contents and attributes of files, by their paths.
pub(super) type FileContents = BTreeMap<TreePath, (Rc<[u8]>, Attributes)>;

/// What a path is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Directory,
    File,
    Symlink(Vec<u8>),
    Special,
}

impl<'a> FileSystem<'a> {
    pub(super) fn new(budget: &Rc<Budget>) -> Self {
        Self {
            lower: None,
            written: BTreeMap::new(),
            changed: BTreeSet::new(),
            budget: Rc::clone(budget),
        }
    }

    pub(super) fn on(lower: Rc<LowerImage<'a>>, budget: &Rc<Budget>) -> Self {
        Self { lower: Some(lower), ..Self::new(budget) }
    }

    /// What a path is. No part of it but the last may be a symbolic link.
    fn lookup(&self, path: &TreePath) -> Option<Kind> {
        if path.is_root() {
            return Some(Kind::Directory);
        }
        if let Some(node) = self.written.get(path) {
            return Some(match &node.kind {
                NodeKind::Directory => Kind::Directory,
                NodeKind::File(_) | NodeKind::ContextFile => Kind::File,
                NodeKind::Symlink(target) => Kind::Symlink(target.clone()),
            });
        }
        Some(match self.lower.as_ref()?.tree.entry(path).ok()?? {
            TreeEntry::Directory => Kind::Directory,
            TreeEntry::File { .. } => Kind::File,
            TreeEntry::Symlink { target } => Kind::Symlink(target.to_vec()),
            TreeEntry::Special => Kind::Special,
        })
    }

    /// Follows symbolic links and returns the path without them, and what is there.
    pub(super) fn resolve(
        &self,
        path: &TreePath,
        follow_last: bool,
    ) -> Result<(TreePath, Option<Kind>), StepProblem> {
        let mut pending: Vec<Vec<u8>> = path.names().rev().map(<[u8]>::to_vec).collect();
        let mut way = vec![TreePath::root()];
        let mut links = 0;
        let mut exists = true;
        while let Some(name) = pending.pop() {
            match name.as_slice() {
                b"" | b"." => continue,
                b".." => {
                    if way.len() > 1 {
                        way.pop();
                    }
                    exists = true;
                    continue;
                }
                _ => {}
            }
            let parent = last(&way);
            if exists && !matches!(self.lookup(parent), None | Some(Kind::Directory)) {
                return Err(not_a_directory(parent));
            }
            let next = parent.join(&name);
            let kind = if exists { self.lookup(&next) } else { None };
            match kind {
                Some(Kind::Symlink(target)) if follow_last || !pending.is_empty() => {
                    links += 1;
                    if links > MAX_SYMLINKS {
                        let problem = format!("{path} leads through too many symbolic links");
                        return Err(StepProblem::Message(problem));
                    }
                    if target.starts_with(b"/") {
                        way.truncate(1);
                    }
                    pending.extend(target.rsplit(|byte| *byte == b'/').map(<[u8]>::to_vec));
                }
                kind => {
                    exists = kind.is_some();
                    way.push(next);
                }
            }
        }
        let path = way.pop().unwrap_or_default();
        let kind = self.lookup(&path);
        Ok((path, kind))
    }

    /// The names in a directory, sorted.
    pub(super) fn names(&self, directory: &TreePath) -> BTreeSet<Vec<u8>> {
        let depth = directory.names().len();
        let below = self.written.range(directory.clone()..).map(|(path, _)| path);
        let own = below
            .take_while(|path| path.names().take(depth).eq(directory.names()))
            .filter(|path| path.names().len() == depth + 1)
            .filter_map(|path| path.file_name().map(<[u8]>::to_vec));
        let mut names: BTreeSet<Vec<u8>> = own.collect();
        if let Some(lower) = &self.lower {
            names.extend(lower.tree.names(directory).map(<[u8]>::to_vec));
        }
        names
    }

    /// Paths that a pattern matches, sorted. Symbolic links are not followed in it.
    pub(super) fn glob(&self, pattern: &Pattern) -> Vec<TreePath> {
        let mut found = Vec::new();
        self.glob_in(&TreePath::root(), pattern, &mut found);
        found
    }

    fn glob_in(&self, directory: &TreePath, pattern: &Pattern, found: &mut Vec<TreePath>) {
        for name in self.names(directory) {
            let path = directory.join(&name);
            if pattern.matches(&path) {
                found.push(path);
            } else if path.names().len() < pattern.depth()
                && pattern.matches_start(&path)
                && self.lookup(&path) == Some(Kind::Directory)
            {
                self.glob_in(&path, pattern, found);
            }
        }
    }

    /// Everything below a directory, each directory before what is in it.
    pub(super) fn walk(&self, directory: &TreePath) -> Vec<(TreePath, Kind)> {
        let mut all = Vec::new();
        self.walk_into(directory, &mut all);
        all
    }

    fn walk_into(&self, directory: &TreePath, all: &mut Vec<(TreePath, Kind)>) {
        for name in self.names(directory) {
            let path = directory.join(&name);
            let Some(kind) = self.lookup(&path) else { continue };
            let is_directory = kind == Kind::Directory;
            all.push((path.clone(), kind));
            if is_directory && path.names().len() < 2 * MAX_DEPTH {
                self.walk_into(&path, all);
            }
        }
    }

    /// What an instruction wrote at a path, if one did.
    pub(super) fn node(&self, path: &TreePath) -> Option<&Node> {
        self.written.get(path)
    }

    /// Reads files that are not of the context. Paths have no symbolic links.
    pub(super) fn read(&self, paths: &[TreePath]) -> Result<FileContents, StepProblem> {
        let mut files = BTreeMap::new();
        let mut lower_paths = Vec::new();
        for path in paths {
            match self.written.get(path) {
                Some(Node { kind: NodeKind::File(content), attributes }) => {
                    files.insert(path.clone(), (Rc::clone(content), attributes.clone()));
                }
                Some(_) => {}
                None => lower_paths.push(path.clone()),
            }
        }
        if let Some(lower) = self.lower.as_ref().filter(|_| !lower_paths.is_empty()) {
            let (source, manifest, config) = (&*lower.source, &lower.manifest, &lower.config);
            let read = lower.tree.read_files(source, manifest, config, &lower_paths);
            for file in read.map_err(StepProblem::Layer)? {
                files.insert(file.path, (file.content.into(), file.attributes));
            }
        }
        Ok(files)
    }

    /// Reads one file by a path that may have symbolic links; none if it is no file.
    pub(super) fn read_one(&self, path: &TreePath) -> Result<Option<Rc<[u8]>>, StepProblem> {
        let (path, kind) = self.resolve(path, true)?;
        if kind != Some(Kind::File) {
            return Ok(None);
        }
        let files = self.read(std::slice::from_ref(&path))?;
        Ok(files.into_iter().next().map(|(_, (content, _))| content))
    }

    /// Writes something. Directories on the way are made, and symbolic links to them followed.
    pub(super) fn write(&mut self, path: &TreePath, node: Node) -> Result<TreePath, StepProblem> {
        let mut names: Vec<&[u8]> = path.names().collect();
        let Some(name) = names.pop() else {
            return match node.kind {
                NodeKind::Directory => Ok(TreePath::root()),
                _ => Err(StepProblem::Message("/ is a directory".to_owned())),
            };
        };
        if path.names().any(|name| name.len() > MAX_NAME_LENGTH) || names.len() >= MAX_DEPTH {
            let problem = format!(
                "a path has a name or a depth beyond {MAX_NAME_LENGTH} or \
                                   {MAX_DEPTH}; shorten it"
            );
            return Err(StepProblem::Message(problem));
        }
        let parent = names.iter().fold(TreePath::root(), |path, name| path.join(name));
        let (parent, _) = self.resolve(&parent, true)?;
        self.make_directories(&parent, &node.attributes)?;
        let mut path = parent.join(name);
        match (self.lookup(&path), &node.kind) {
            (Some(Kind::Directory), NodeKind::Directory) => return Ok(path),
            (Some(Kind::Symlink(_)), NodeKind::Directory) => {
                let (real, kind) = self.resolve(&path, true)?;
                if matches!(kind, None | Some(Kind::Directory)) {
                    path = real;
                    if kind.is_none() {
                        self.make_directories(&path, &node.attributes)?;
                    }
                    return Ok(path);
                }
                return Err(not_a_directory(&path));
            }
            (Some(Kind::Directory), _) => {
                return Err(StepProblem::Message(format!("{path} is a directory")));
            }
            (Some(Kind::File | Kind::Special), NodeKind::Directory) => {
                return Err(not_a_directory(&path));
            }
            _ => {}
        }
        self.insert(path.clone(), node)?;
        Ok(path)
    }

    /// Makes the directories of a path that has no symbolic links.
    fn make_directories(&mut self, path: &TreePath, owner: &Attributes) -> Result<(), StepProblem> {
        let mut directory = TreePath::root();
        for name in path.names() {
            directory = directory.join(name);
            match self.lookup(&directory) {
                Some(Kind::Directory) => {}
                Some(_) => return Err(not_a_directory(&directory)),
                None => {
                    let mtime = owner.mtime;
                    let attributes = Attributes { mode: 0o755, mtime, ..Attributes::default() };
                    let node = Node { kind: NodeKind::Directory, attributes };
                    self.insert(directory.clone(), node)?;
                }
            }
        }
        Ok(())
    }

    fn insert(&mut self, path: TreePath, node: Node) -> Result<(), StepProblem> {
        let bytes = match &node.kind {
            NodeKind::File(content) => content.len(),
            NodeKind::Symlink(target) => target.len(),
            NodeKind::Directory | NodeKind::ContextFile => 0,
        };
        self.budget.spend(bytes)?;
        self.changed.insert(path.clone());
        self.written.insert(path, node);
        Ok(())
    }

    /// Removes a file that the current instruction wrote where there was none.
    pub(super) fn remove_new(&mut self, path: &TreePath) -> bool {
        let lower = self.lower.as_ref().and_then(|lower| lower.tree.entry(path).ok().flatten());
        let is_file = self.written.get(path).is_some_and(|it| it.kind != NodeKind::Directory);
        let removed = is_file && lower.is_none() && self.changed.remove(path);
        if removed {
            self.written.remove(path);
        }
        removed
    }

    /// Takes what the current instruction wrote, as entries of a layer.
    pub(super) fn take_changes(&mut self) -> Vec<NewEntry> {
        let changed = std::mem::take(&mut self.changed);
        let entry = |path: &TreePath| {
            let node = self.written.get(path)?;
            let kind = match &node.kind {
                NodeKind::Directory => NewEntryKind::Directory,
                NodeKind::File(content) => NewEntryKind::File(content.to_vec()),
                NodeKind::Symlink(target) => NewEntryKind::Symlink(target.clone()),
                NodeKind::ContextFile => return None,
            };
            Some(NewEntry { path: path.to_tar_name(), kind, attributes: node.attributes.clone() })
        };
        changed.iter().filter_map(entry).collect()
    }
}

fn last(way: &[TreePath]) -> &TreePath {
    way.last().expect("the root is never removed")
}

fn not_a_directory(path: &TreePath) -> StepProblem {
    StepProblem::Message(format!("{path} is not a directory; choose another path"))
}
