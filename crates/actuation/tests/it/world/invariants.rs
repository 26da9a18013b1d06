//! What must hold after every move.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use gantry_actuation::bookkeeping::Bookkeeping;
use gantry_actuation::calls::PROTOCOL;
use gantry_actuation::labels::{INSTANCE_ID_ANNOTATION, REQUESTER_FINALIZER};
use gantry_actuation::view::ActuationPod;
use gantry_harness::{Invariant, Server};
use gantry_reconcile::View as _;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{Fleet, pods};

/// An engine that is awake.
#[derive(Debug)]
pub(crate) struct AwakeEngine {
    /// The model, or the provider of a direct engine.
    pub(crate) label: String,
    /// Its accelerators.
    pub(crate) gpus: Vec<String>,
    /// Its instance, in a launcher.
    instance: Option<String>,
    is_disturbed: bool,
    provider: Rc<ActuationPod>,
}

/// The engines that are awake, in pods whose containers run.
pub(crate) fn awake(server: &Server) -> Vec<AwakeEngine> {
    let pods: Vec<Rc<ActuationPod>> = pods(server).into_iter().map(Rc::new).collect();
    awake_in(server, &pods)
}

fn awake_in(server: &Server, pods: &[Rc<ActuationPod>]) -> Vec<AwakeEngine> {
    let fleet = fleet(server);
    let mut found = Vec::new();
    for pod in pods {
        let is_dead = pod.metadata.deletion_grace_period_seconds == Some(0);
        if !pod.is_provider() || is_dead || pod.ip.is_empty() {
            continue;
        }
        if pod.engine.is_some() {
            if fleet.direct_engine(&pod.metadata.uid) {
                let gpus = pod.annotation("dual-pods.llm-d.ai/accelerators").unwrap_or_default();
                found.push(AwakeEngine {
                    label: "direct".to_owned(),
                    gpus: gpus.split(',').map(str::to_owned).collect(),
                    instance: None,
                    is_disturbed: false,
                    provider: Rc::clone(pod),
                });
            }
            continue;
        }
        for (id, instance) in fleet.launcher(&pod.metadata.uid).instances {
            if instance.is_awake && !instance.is_stopped {
                found.push(AwakeEngine {
                    label: instance.config,
                    gpus: instance.gpus,
                    instance: Some(id),
                    is_disturbed: instance.is_disturbed,
                    provider: Rc::clone(pod),
                });
            }
        }
    }
    found.sort_by(|one, other| (&one.label, &one.gpus).cmp(&(&other.label, &other.gpus)));
    found
}

/// Why an invariant is violated by these engines, which are awake, and these pods.
type Check = fn(&Server, &[AwakeEngine], &[Rc<ActuationPod>]) -> Result<(), String>;

/// The invariants (a) to (f), each with its name.
const INVARIANTS: [(&str, Check); 6] = [
    ("(a) at most one engine is awake on an accelerator", |_, awake, _| {
        one_awake_per_accelerator(awake)
    }),
    ("(b) an engine that is awake is bound", |_, awake, _| awake_is_bound(awake)),
    ("(c) what is routed to is awake", |server, _, pods| routed_is_awake(server, pods)),
    ("(d) what is reported as ready was awake for it", |server, _, _| {
        fleet(server).ready_unserved.clone().map_or(Ok(()), Err)
    }),
    ("(e) a requester is kept while its engine is awake", |_, awake, pods| {
        requester_is_kept(awake, pods)
    }),
    ("(f) no instance is created twice under one ID", |server, _, _| {
        fleet(server).created_twice.clone().map_or(Ok(()), Err)
    }),
];

/// All invariants. Each may be violated for this long, after which it must hold again: zero where
/// launchers refuse late calls.
pub(crate) fn all<'a>(grace: SignedDuration) -> Vec<Invariant<'a>> {
    let pods = Rc::new(DecodedPods::default());
    INVARIANTS.into_iter().map(|(name, check)| invariant(&pods, name, check, grace)).collect()
}

fn invariant<'a>(
    decoded: &Rc<DecodedPods>,
    name: &'static str,
    check: Check,
    grace: SignedDuration,
) -> Invariant<'a> {
    let decoded = Rc::clone(decoded);
    let since: Cell<Option<Timestamp>> = Cell::new(None);
    let check = move |server: &Server| {
        let pods = decoded.all(server);
        let Err(why) = check(server, &awake_in(server, &pods), &pods) else {
            since.set(None);
            return Ok(());
        };
        let now = server.now();
        // Another run begins at an earlier time.
        let began = since.get().filter(|it| *it <= now).unwrap_or(now);
        since.set(Some(began));
        match now.duration_since(began) < grace {
            true => Ok(()),
            false => Err(why),
        }
    };
    Invariant { name, check: Box::new(check) }
}

fn fleet(server: &Server) -> &Fleet {
    server.peer::<Fleet>(PROTOCOL)
}

/// The pods as of the last move: most moves change none.
#[derive(Default)]
struct DecodedPods(RefCell<BTreeMap<String, (Value, Rc<ActuationPod>)>>);

impl DecodedPods {
    fn all(&self, server: &Server) -> Vec<Rc<ActuationPod>> {
        let mut cache = self.0.borrow_mut();
        let decode = |object: &Value| {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            if let Some((known, pod)) = cache.get(name)
                && known == object
            {
                return Rc::clone(pod);
            }
            let pod: Rc<ActuationPod> = Rc::new(serde_json::from_value(object.clone()).unwrap());
            cache.insert(name.to_owned(), (object.clone(), Rc::clone(&pod)));
            pod
        };
        server.list(&ActuationPod::RESOURCE).into_iter().map(decode).collect()
    }
}

fn one_awake_per_accelerator(awake: &[AwakeEngine]) -> Result<(), String> {
    for (place, one) in awake.iter().enumerate() {
        for other in &awake[place + 1..] {
            if one.gpus.iter().any(|it| other.gpus.contains(it)) {
                let name =
                    |it: &AwakeEngine| format!("{} in {}", it.label, it.provider.metadata.name);
                return Err(format!("{} and {} are awake", name(one), name(other)));
            }
        }
    }
    Ok(())
}

fn awake_is_bound(awake: &[AwakeEngine]) -> Result<(), String> {
    for engine in awake {
        let pod = &engine.provider;
        let recorded = pod.annotation(INSTANCE_ID_ANNOTATION);
        let is_own = pod.engine.is_some() || recorded == engine.instance.as_deref();
        if !is_own || (pod.binding().is_none() && !pod.metadata.is_terminating()) {
            return Err(format!("{} in {} is not bound", engine.label, pod.metadata.name));
        }
    }
    Ok(())
}

fn routed_is_awake(server: &Server, pods: &[Rc<ActuationPod>]) -> Result<(), String> {
    let fleet = fleet(server);
    for pod in pods {
        let Ok(it) = Bookkeeping::read(pod) else { continue };
        let is_dead = pod.metadata.deletion_grace_period_seconds == Some(0);
        let launcher = fleet.launcher(&pod.metadata.uid);
        // An instance that is gone with its launcher was not put to sleep by a call.
        let Some(instance) = launcher.instances.get(&it.id) else { continue };
        let routed = it.routing.is_partly_applied_to(pod);
        if routed && !instance.is_awake && !instance.is_disturbed && !is_dead {
            return Err(format!("{} routes to {}, which sleeps", pod.metadata.name, it.id));
        }
    }
    Ok(())
}

fn requester_is_kept(awake: &[AwakeEngine], pods: &[Rc<ActuationPod>]) -> Result<(), String> {
    for engine in awake {
        let Some(binding) = engine.provider.binding() else { continue };
        let requester = pods.iter().find(|it| it.metadata.uid == binding.uid);
        let is_kept = |it: &Rc<ActuationPod>| {
            it.metadata.finalizers.iter().any(|it| it == REQUESTER_FINALIZER)
        };
        if !requester.is_some_and(is_kept) && !engine.is_disturbed {
            return Err(format!("{} is awake for {}", engine.label, binding.name));
        }
    }
    Ok(())
}
