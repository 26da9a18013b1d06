//! Reads the scales of what autoscalers move.
//!
//! The targets may be of any kind, so no cache has them. Each is read through its `scale`, in the name
//! of the account that the autoscalers' original has.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::StreamExt as _;
use gantry_apiserver::{Api, Caller};
use gantry_controller::Handle;
use gantry_controller::discovery::ResourceList;
use gantry_process::clock::Clock;
use gantry_process::tasks::{OnLoss, Tasks};
use gantry_reconcile::{ApiPath, Key, Meta, Shelf, Uid, View as _};
use gantry_sim::autoscaling::Autoscalers;
use gantry_sim::usage::Sampling;
use gantry_sim::view::{HorizontalPodAutoscaler, ScaleTarget, TargetScale};
use http::{Method, StatusCode};
use serde_json::Value;

use super::Door;

/// How long one scale may take to be read. A kind of another version may wait for its converter.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// How many are read at once: one that is slow delays no other.
const AT_ONCE: usize = 16;

/// Reads the scales of what autoscalers move.
#[derive(Debug)]
pub(super) struct Scales {
    door: Door,
    handle: Handle,
    every: Duration,
}

impl Scales {
    /// Reads as often as usage is sampled.
    pub(super) fn new(api: &Api, handle: &Handle, sampling: Sampling) -> Self {
        let user = format!("system:serviceaccount:kube-system:{}", Autoscalers::ACCOUNT);
        let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system"];
        let groups: Vec<String> = groups.iter().map(|it| (*it).to_owned()).collect();
        let door = Door::of(api, Caller::authenticated(&user, &groups));
        Self { door, handle: handle.clone(), every: sampling.window.unsigned_abs() }
    }

    /// Reads for as long as the tasks run.
    pub(super) fn spawn(self, tasks: &mut Tasks) {
        let clock = tasks.clock().clone();
        tasks.spawn("scales of autoscalers", OnLoss::EndOwner, move |stop| async move {
            tokio::select! {
                // Either may be dropped: what was read is told at once.
                () = stop.cancelled() => {}
                () = self.run(&clock) => {}
            }
            Ok(())
        });
    }

    async fn run(&self, clock: &Clock) {
        self.handle.filled().await;
        loop {
            let all = self.handle.world().shelf::<HorizontalPodAutoscaler>().all();
            let targets: Vec<(Key, ScaleTarget)> = all
                .iter()
                .map(|it| (it.metadata.key(), it.spec.scale_target_ref.clone()))
                .collect();
            self.forget(&targets.iter().map(|it| it.0.clone()).collect());
            let reads = targets.into_iter().map(|(key, target)| self.tell(clock, key, target));
            futures_util::stream::iter(reads).for_each_concurrent(AT_ONCE, |read| read).await;
            clock.sleep(self.every).await;
        }
    }

    /// Reads one scale and says what it is.
    async fn tell(&self, clock: &Clock, key: Key, target: ScaleTarget) {
        let read = clock.timeout(READ_TIMEOUT, self.read(key.namespace(), &target)).await;
        let read = read.unwrap_or_else(|_| {
            Err(format!("no answer within {} seconds", READ_TIMEOUT.as_secs()))
        });
        let mut scale =
            read.unwrap_or_else(|fault| TargetScale { fault, ..TargetScale::default() });
        let (name, namespace) = (key.name().to_owned(), key.namespace().to_owned());
        scale.metadata = Meta { name, namespace, ..Meta::default() };
        scale.target = target;
        scale.read_at = Some(clock.now());
        self.handle.make(&TargetScale::RESOURCE, |shelf| {
            let shelf = shelf.as_any().downcast_ref::<Shelf<TargetScale>>();
            (shelf.map(|shelf| shelf.set(scale)).into_iter().collect(), ())
        });
    }

    /// Forgets the scales of autoscalers that are gone.
    fn forget(&self, there: &BTreeSet<Key>) {
        self.handle.make(&TargetScale::RESOURCE, |shelf| {
            let Some(shelf) = shelf.as_any().downcast_ref::<Shelf<TargetScale>>() else {
                return (Vec::new(), ());
            };
            let keys = shelf.all().into_iter().map(|it| it.metadata.key());
            let gone: Vec<Key> = keys.filter(|key| !there.contains(key)).collect();
            (gone.iter().filter_map(|key| shelf.unset(key)).collect(), ())
        });
    }

    /// The scale of a target, or why it cannot be had.
    async fn read(&self, namespace: &str, target: &ScaleTarget) -> Result<TargetScale, String> {
        let ScaleTarget { api_version, kind, name } = target;
        let (group, _) = api_version.split_once('/').unwrap_or(("", api_version));
        let root = ApiPath::version(api_version).map_err(|invalid| invalid.to_string())?;
        let unknown = || format!("no matches for kind \"{kind}\" in group \"{group}\"");
        let resources = self.ask(&root).await.map_err(|_| unknown())?;
        let resources = ResourceList::read(api_version, &resources).map_err(|_| unknown())?;
        let served = resources.resource_of(kind).ok_or_else(unknown)?;
        let plural = served.resource.plural.as_ref();
        let path = ApiPath::object(api_version, namespace, plural, name);
        let path = path.map_err(|invalid| invalid.to_string())?.subresource("scale");
        let scale = self.ask(&path).await?;
        let count = |part: &str| scale[part]["replicas"].as_i64().unwrap_or_default();
        Ok(TargetScale {
            plural: plural.to_owned(),
            uid: Uid::new(scale["metadata"]["uid"].as_str().unwrap_or_default()),
            spec_replicas: count("spec"),
            status_replicas: count("status"),
            selector: scale["status"]["selector"].as_str().unwrap_or_default().to_owned(),
            ..TargetScale::default()
        })
    }

    async fn ask(&self, path: &ApiPath) -> Result<Value, String> {
        let answer = self.door.ask(Method::GET, path, "application/json", None).await;
        match answer {
            Ok((StatusCode::OK, answer)) => Ok(answer),
            Ok((status, answer)) => {
                let message = answer["message"].as_str().map(str::to_owned);
                Err(message.unwrap_or_else(|| format!("the server answered {status}")))
            }
            Err(error) => Err(format!("{error:#}")),
        }
    }
}
