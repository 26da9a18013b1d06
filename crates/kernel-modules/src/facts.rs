//! What is known outside the API, or read by name on demand: images, Secrets and files of builds.
//!
//! Secrets and ConfigMaps are not watched. They are read one by one while a Module names them, so
//! that the controllers need no right to list them, and no content of a Secret is kept: of a Secret
//! its identity is known, of the files of a build their digest.

mod failed_hook;
mod inputs_of_jobs;

use std::collections::BTreeSet;
use std::time::Duration;

use gantry_api::kernel_modules::Tls;
use gantry_reconcile::inquiry::{Concurrency, InquiryPolicy, WantedQuestions};
use gantry_reconcile::{Change, Fact, Inquiry, Key, Kind, World};
use jiff::Timestamp;

use crate::job::image_hash;
use crate::kernel_plan::{BuildStage, Dockerfile};
use crate::labels::JOB_TYPE_LABEL;
use crate::module_kernels::{ModuleKernels, module_kernels};
use crate::selected_nodes;
use crate::settings::LiveSettings;
use crate::view::{Job, JobState, Module, ModulePod, Node};

pub use failed_hook::{FailedHook, FailedHookInquiry, FailedHookQuery};
pub(crate) use inputs_of_jobs::are_newer;
use inputs_of_jobs::ask_after_jobs;

/// The question whether a registry has an image.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImageQuery {
    /// The namespace whose Secrets are used.
    pub namespace: String,
    /// The image.
    pub image: String,
    /// The Secrets with credentials, in the order they are tried.
    pub secrets: Vec<String>,
    /// The ConfigMap of the namespace with certificates that are trusted as well.
    pub ca_config_map: Option<String>,
    /// Whether plain HTTP is tried.
    pub insecure: bool,
    /// Whether certificates are not verified.
    pub insecure_skip_tls_verify: bool,
    /// The architectures that the image must be there for.
    pub architectures: BTreeSet<String>,
    /// Whether the image is pushed by us: then a registry that hides repositories that do not exist
    /// is asked whether it may be pushed to.
    pub is_pushed: bool,
}

/// Whether a registry has an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageState {
    /// It has it.
    Present {
        /// The digest of its manifest or index.
        digest: String,
        /// The hash of the inputs that it was made from, if it was made by us.
        input_hash: Option<String>,
    },
    /// It does not have it.
    Missing,
    /// It has it, but not for this architecture.
    MissingArchitecture(String),
    /// A Secret with credentials does not exist.
    SecretMissing(String),
    /// The ConfigMap with certificates does not exist, or has no key [`crate::job::CA_KEY`].
    CaBundleMissing(String),
}

impl Fact for ImageState {
    type Subject = ImageQuery;
    const NAME: &'static str = "image";
}

/// The question which version of a Secret there is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecretQuery {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

/// Which version of a Secret there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretState {
    /// It exists.
    Present {
        /// Its UID and resource version.
        version: String,
    },
    /// It does not exist.
    Missing,
}

impl Fact for SecretState {
    type Subject = SecretQuery;
    const NAME: &'static str = "secret";
}

/// The question which files of a build a ConfigMap has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BuildFilesQuery {
    /// The namespace.
    pub namespace: String,
    /// The name of the ConfigMap.
    pub config_map: String,
    /// Which files.
    pub files: BuildFiles,
}

/// Files of a build that a ConfigMap has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BuildFiles {
    /// The Dockerfile, under the key `dockerfile`.
    Dockerfile,
    /// The files that `COPY` and `ADD` find: all keys.
    Context,
}

/// Which files of a build a ConfigMap has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildFilesState {
    /// It has them.
    Present {
        /// The digest of their content.
        digest: String,
        /// What is wrong with them.
        problem: Option<String>,
    },
    /// It has no key `dockerfile`.
    NoKey,
    /// It does not exist.
    Missing,
}

impl Fact for BuildFilesState {
    type Subject = BuildFilesQuery;
    const NAME: &'static str = "build-files";
}

impl ImageQuery {
    /// The question about an image of a Module.
    #[must_use]
    pub fn new(
        module: &ModuleKernels,
        image: &str,
        tls: Tls,
        kernel: &str,
        is_pushed: bool,
    ) -> Self {
        let nodes = module.nodes.get(kernel);
        Self {
            namespace: module.key.namespace().to_owned(),
            image: image.to_owned(),
            secrets: module.repo_secrets.clone(),
            ca_config_map: module.ca_config_map.clone(),
            insecure: tls.insecure,
            insecure_skip_tls_verify: tls.insecure_skip_tls_verify,
            architectures: nodes.map(|it| it.architectures.clone()).unwrap_or_default(),
            is_pushed,
        }
    }
}

/// How often a Secret or a ConfigMap that exists is read again.
const OBJECT_REFRESH_INTERVAL: Duration = Duration::from_secs(60);
/// How often one that is missing is looked for.
const MISSING_OBJECT_INTERVAL: Duration = Duration::from_secs(5);
/// The first delay after a registry could not answer.
const FIRST_RETRY_DELAY: Duration = Duration::from_secs(5);
/// The longest such delay.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(300);

/// The kinds that decide which questions a Module has.
fn kinds() -> Vec<Kind> {
    vec![Kind::of::<Module>(), Kind::of::<Node>(), Kind::of::<Job>(), Kind::of::<ModulePod>()]
}

/// The Modules whose questions may differ after a change.
fn enqueue(world: &World, change: &Change) -> Vec<Key> {
    if change.is::<Module>() {
        return vec![change.key.clone()];
    }
    if change.is::<Node>() {
        return selected_nodes::affected_modules(world, change);
    }
    // A Job may push what several Modules of its namespace want.
    let is_ours = change.both::<Job>().any(|it| it.metadata.labels.contains_key(JOB_TYPE_LABEL));
    let namespace = is_ours.then(|| change.key.namespace());
    let of_jobs = namespace.map(|it| world.store::<Module>().in_namespace(it));
    let of_jobs = of_jobs.into_iter().flatten().map(|it| it.metadata.key());
    let of_pods = change.both::<ModulePod>().filter(|it| it.failed_pull().is_some());
    let of_pods = of_pods.filter_map(ModulePod::module);
    let keys: BTreeSet<Key> = of_jobs.chain(of_pods).collect();
    keys.into_iter().collect()
}

/// Asks registries which images they have.
#[derive(Clone, Debug)]
pub struct ImageInquiry {
    settings: LiveSettings,
}

impl ImageInquiry {
    /// Asks with these settings.
    #[must_use]
    pub fn new(settings: LiveSettings) -> Self {
        Self { settings }
    }
}

impl Inquiry for ImageInquiry {
    type Fact = ImageState;

    fn name(&self) -> &'static str {
        "module-images"
    }

    fn kinds(&self) -> Vec<Kind> {
        kinds()
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        enqueue(world, change)
    }

    fn wanted_questions(
        &self,
        world: &World,
        key: &Key,
        now: Timestamp,
    ) -> WantedQuestions<ImageQuery> {
        let Some(module) = module_kernels(world, key, &self.settings.get()) else {
            return WantedQuestions::default();
        };
        let questions: BTreeSet<ImageQuery> = module
            .plans()
            .flat_map(|(kernel, plan)| image_queries(&module, kernel, plan))
            .collect();
        let stale = stale_images(world, &module, &questions);
        let requeue_at = next_second(world, &questions).filter(|at| *at > now);
        WantedQuestions { questions, stale, requeue_at, ..WantedQuestions::default() }
    }

    fn policy(&self, _: &ImageQuery) -> InquiryPolicy {
        let settings = self.settings.get();
        InquiryPolicy {
            refresh_interval: settings.image_present_refresh,
            timeout: settings.registry_timeout,
            first_retry_delay: FIRST_RETRY_DELAY,
            max_retry_delay: MAX_RETRY_DELAY,
            leader_only: true,
        }
    }

    fn refresh_interval(&self, _: &ImageQuery, answer: &ImageState) -> Duration {
        let settings = self.settings.get();
        match answer {
            ImageState::Present { .. } => settings.image_present_refresh,
            ImageState::Missing | ImageState::MissingArchitecture(_) => {
                settings.image_missing_refresh
            }
            ImageState::SecretMissing(_) | ImageState::CaBundleMissing(_) => {
                MISSING_OBJECT_INTERVAL
            }
        }
    }

    fn concurrency(&self) -> Concurrency {
        Concurrency { total: 16, per_group: 4 }
    }

    fn group(&self, question: &ImageQuery) -> String {
        question.namespace.clone()
    }
}

/// The questions about the images of one kernel: none where nothing is built or signed, because
/// nodes may reach registries that the controller does not.
pub(crate) fn image_queries(
    module: &ModuleKernels,
    kernel: &str,
    plan: &crate::kernel_plan::KernelPlan,
) -> Vec<ImageQuery> {
    if plan.build.is_none() && plan.sign.is_none() {
        return Vec::new();
    }
    let mut images = vec![final_query(module, kernel, plan)];
    if let (Some(build), Some(_)) = (&plan.build, &plan.sign) {
        images.push(ImageQuery::new(module, &build.output, build.push, kernel, true));
    }
    images
}

/// The question about the final image of a kernel.
pub(crate) fn final_query(
    module: &ModuleKernels,
    kernel: &str,
    plan: &crate::kernel_plan::KernelPlan,
) -> ImageQuery {
    ImageQuery::new(module, plan.final_image(), plan.registry_tls, kernel, true)
}

/// The questions whose answers are older than a Job that pushed the image, or than a node's failure
/// to pull it.
fn stale_images(
    world: &World,
    module: &ModuleKernels,
    questions: &BTreeSet<ImageQuery>,
) -> BTreeSet<ImageQuery> {
    let facts = world.facts::<ImageState>();
    let pods = world.store::<ModulePod>().by_index(&ModulePod::failing_index(&module.key));
    let is_stale = |query: &&ImageQuery| {
        let Some(observed) = facts.observed(query) else { return false };
        let jobs = world.store::<Job>().by_index(&Job::image_index(&image_hash(&query.image)));
        let mut pushed = jobs.iter().filter_map(|job| match job.state() {
            JobState::Succeeded { at } => at,
            JobState::Active | JobState::Failed { .. } => None,
        });
        let is_present = matches!(observed.value, ImageState::Present { .. });
        // Times of Jobs have whole seconds.
        let is_older = |at: Timestamp| observed.at.as_second() <= at.as_second();
        let lost = is_present
            && pods.iter().filter(|pod| !pod.metadata.is_terminating()).any(|pod| {
                let since = pod.status.conditions.iter().find(|it| it.kind == "Ready");
                let since = since.and_then(|it| it.last_transition_time);
                pod.failed_pull().is_some_and(|(image, _)| image == query.image)
                    && since.is_some_and(is_older)
            });
        pushed.any(is_older) || lost
    };
    questions.iter().filter(is_stale).cloned().collect()
}

/// When the second ends in which the last of these images was pushed. Times of Jobs have whole
/// seconds, so an answer from that second may be older than the push.
fn next_second(world: &World, images: &BTreeSet<ImageQuery>) -> Option<Timestamp> {
    let jobs = world.store::<Job>();
    let jobs =
        images.iter().flat_map(|it| jobs.by_index(&Job::image_index(&image_hash(&it.image))));
    let succeeded = jobs.filter_map(|job| match job.state() {
        JobState::Succeeded { at } => at,
        JobState::Active | JobState::Failed { .. } => None,
    });
    Timestamp::from_second(succeeded.max()?.as_second() + 1).ok()
}

/// Reads which versions of Secrets there are.
#[derive(Clone, Debug)]
pub struct SecretInquiry {
    settings: LiveSettings,
}

impl SecretInquiry {
    /// Asks with these settings.
    #[must_use]
    pub fn new(settings: LiveSettings) -> Self {
        Self { settings }
    }
}

/// The policy of questions about objects of the API.
fn object_policy() -> InquiryPolicy {
    InquiryPolicy { refresh_interval: OBJECT_REFRESH_INTERVAL, ..InquiryPolicy::default() }
}

impl Inquiry for SecretInquiry {
    type Fact = SecretState;

    fn name(&self) -> &'static str {
        "module-secrets"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Module>(), Kind::of::<Node>(), Kind::of::<Job>()]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        enqueue(world, change)
    }

    fn wanted_questions(
        &self,
        world: &World,
        key: &Key,
        now: Timestamp,
    ) -> WantedQuestions<SecretQuery> {
        let module = module_kernels(world, key, &self.settings.get());
        let names = module.iter().flat_map(ModuleKernels::plans).flat_map(|(_, plan)| {
            let sign = plan.sign.iter().flat_map(|it| {
                let push = it.push_secret.clone();
                [it.key_secret.clone(), it.cert_secret.clone()].into_iter().chain(push)
            });
            let build = plan.build.iter().flat_map(|it| it.secrets.clone());
            sign.chain(build)
        });
        let namespace = key.namespace();
        let questions = names.map(|name| SecretQuery { namespace: namespace.to_owned(), name });
        ask_after_jobs::<SecretState>(world, module.as_ref(), questions.collect(), now)
    }

    fn policy(&self, _: &SecretQuery) -> InquiryPolicy {
        object_policy()
    }

    fn refresh_interval(&self, _: &SecretQuery, answer: &SecretState) -> Duration {
        match answer {
            SecretState::Present { .. } => OBJECT_REFRESH_INTERVAL,
            SecretState::Missing => MISSING_OBJECT_INTERVAL,
        }
    }

    fn group(&self, question: &SecretQuery) -> String {
        question.namespace.clone()
    }
}

/// Reads the Dockerfiles and the other files of builds in ConfigMaps.
#[derive(Clone, Debug)]
pub struct DockerfileInquiry {
    settings: LiveSettings,
}

impl DockerfileInquiry {
    /// Asks with these settings.
    #[must_use]
    pub fn new(settings: LiveSettings) -> Self {
        Self { settings }
    }
}

impl Inquiry for DockerfileInquiry {
    type Fact = BuildFilesState;

    fn name(&self) -> &'static str {
        "module-build-files"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Module>(), Kind::of::<Node>(), Kind::of::<Job>()]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        enqueue(world, change)
    }

    fn wanted_questions(
        &self,
        world: &World,
        key: &Key,
        now: Timestamp,
    ) -> WantedQuestions<BuildFilesQuery> {
        let module = module_kernels(world, key, &self.settings.get());
        let builds =
            module.iter().flat_map(ModuleKernels::plans).filter_map(|(_, it)| it.build.as_ref());
        let questions = builds.flat_map(|build| build_files(key.namespace(), build)).collect();
        ask_after_jobs::<BuildFilesState>(world, module.as_ref(), questions, now)
    }

    fn policy(&self, _: &BuildFilesQuery) -> InquiryPolicy {
        object_policy()
    }

    fn refresh_interval(&self, _: &BuildFilesQuery, answer: &BuildFilesState) -> Duration {
        match answer {
            BuildFilesState::Present { problem: None, .. } => OBJECT_REFRESH_INTERVAL,
            BuildFilesState::Present { problem: Some(_), .. }
            | BuildFilesState::NoKey
            | BuildFilesState::Missing => MISSING_OBJECT_INTERVAL,
        }
    }

    fn group(&self, question: &BuildFilesQuery) -> String {
        question.namespace.clone()
    }
}

/// The questions about the files of a build.
pub(crate) fn build_files(namespace: &str, build: &BuildStage) -> Vec<BuildFilesQuery> {
    let query = |config_map: &String, files: BuildFiles| BuildFilesQuery {
        namespace: namespace.to_owned(),
        config_map: config_map.clone(),
        files,
    };
    let dockerfile = match &build.dockerfile {
        Dockerfile::ConfigMap(name) => Some(query(name, BuildFiles::Dockerfile)),
        Dockerfile::Inline(_) => None,
    };
    let context = build.context_config_map.as_ref();
    dockerfile.into_iter().chain(context.map(|it| query(it, BuildFiles::Context))).collect()
}
