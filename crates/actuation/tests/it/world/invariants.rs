//! What must hold after every move.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use gantry_actuation::bookkeeping::Bookkeeping;
use gantry_actuation::calls::PROTOCOL;
use gantry_actuation::labels::{INSTANCE_ID_ANNOTATION, REQUESTER_FINALIZER};
use gantry_actuation::view::ActuationPod;
use gantry_harness::{Invariant, Server};
use gantry_reconcile::View as _;
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
    let fleet = server.peer::<Fleet>(PROTOCOL);
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

/// All invariants.
pub(crate) fn all<'a>() -> Vec<Invariant<'a>> {
    let decoded = DecodedPods::default();
    let check = move |server: &Server| {
        let pods = decoded.all(server);
        let awake = awake_in(server, &pods);
        one_awake_per_accelerator(&awake)?;
        awake_is_bound(&awake)?;
        routed_is_awake(server, &pods)?;
        calls(server)?;
        requester_is_kept(&awake, &pods)
    };
    vec![Invariant { name: "(a) to (f)", check: Box::new(check) }]
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
                return Err(format!("(a) {} and {} are awake", name(one), name(other)));
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
            return Err(format!("(b) {} in {} is not bound", engine.label, pod.metadata.name));
        }
    }
    Ok(())
}

fn routed_is_awake(server: &Server, pods: &[Rc<ActuationPod>]) -> Result<(), String> {
    let fleet = server.peer::<Fleet>(PROTOCOL);
    for pod in pods {
        let Ok(it) = Bookkeeping::read(pod) else { continue };
        let is_dead = pod.metadata.deletion_grace_period_seconds == Some(0);
        let launcher = fleet.launcher(&pod.metadata.uid);
        // An instance that is gone with its launcher was not put to sleep by a call.
        let Some(instance) = launcher.instances.get(&it.id) else { continue };
        let routed = it.routing.is_partly_applied_to(pod);
        if routed && !instance.is_awake && !instance.is_disturbed && !is_dead {
            return Err(format!("(c) {} routes to {}, which sleeps", pod.metadata.name, it.id));
        }
    }
    Ok(())
}

fn calls(server: &Server) -> Result<(), String> {
    server.peer::<Fleet>(PROTOCOL).violation.clone().map_or(Ok(()), Err)
}

fn requester_is_kept(awake: &[AwakeEngine], pods: &[Rc<ActuationPod>]) -> Result<(), String> {
    for engine in awake {
        let Some(binding) = engine.provider.binding() else { continue };
        let requester = pods.iter().find(|it| it.metadata.uid == binding.uid);
        let is_kept = |it: &Rc<ActuationPod>| {
            it.metadata.finalizers.iter().any(|it| it == REQUESTER_FINALIZER)
        };
        if !requester.is_some_and(is_kept) && !engine.is_disturbed {
            return Err(format!("(e) {} is awake for {}", engine.label, binding.name));
        }
    }
    Ok(())
}
