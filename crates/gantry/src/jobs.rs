//! Wires the queue: its controllers, the settings they decide by, the kinds their items may be of, and
//! what is counted.

pub mod admission;
mod counts;
pub(crate) mod reviewer;
mod scout;

use std::sync::{Arc, OnceLock};

use gantry_controller::{Actor, Handle, Seat};
use gantry_process::metrics::{Metrics, RegisterError};
use gantry_process::tasks::{OnLoss, Tasks};
use gantry_queue::access::{Recording, Right};
use gantry_queue::app_wrapper::AppWrapper;
use gantry_queue::quota_status::QuotaStatus;
use gantry_queue::{Catalog, Dispatch, Inference, Live, Progress, Settings, UserAccess, charge};
use gantry_reconcile::{Observer, Resource, View as _, World};
use kube::Client;
use serde_json::{Value, json};

use crate::config::operator::{self, DemandInference};

pub use scout::Rights;

use counts::Counts;
use reviewer::Reviewer;
use scout::Scout;

/// Who owns the fields the queue writes, and whom its events come from.
pub(crate) const NAME: &str = "gantry-queue";

/// What the queue finds out itself and no server serves.
pub const FACTS: [Resource; 2] = [Right::RESOURCE, Recording::RESOURCE];

/// AppWrappers that are looked after at once: as many as the decision about all of them has writes under way,
/// so that where requests are limited what was decided gets on as fast as what is decided next.
const HANDS: usize = 16;

/// The queue, ready to be started. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Part {
    settings: Live,
    scout: Arc<Scout>,
    /// Where authors must be allowed to create what they wrap.
    reviewer: Option<Arc<Reviewer>>,
    counts: Arc<Counts>,
    handle: Arc<OnceLock<Handle>>,
}

impl Part {
    /// A queue that decides by these settings, until others are set.
    ///
    /// # Errors
    /// There is one already that is counted here.
    pub fn new(settings: Settings, metrics: &Metrics) -> Result<Self, RegisterError> {
        let handle = Arc::<OnceLock<Handle>>::default();
        let catalog = Catalog::open();
        let reviewer = || Arc::new(Reviewer::new(catalog.clone(), settings.user_access));
        let live = Live::new(settings);
        Ok(Self {
            settings: live.clone(),
            reviewer: settings.user_access.is_checked().then(reviewer),
            scout: Arc::new(Scout::new(catalog)),
            counts: Arc::new(Counts::register(metrics, Arc::clone(&handle), live)?),
            handle,
        })
    }

    /// The controllers of the queue that are wanted, by their names, and who watches on their behalf.
    pub fn seats(&self, actor: &Arc<Actor>, runs: impl Fn(&str) -> bool) -> Vec<Seat> {
        let seat = |controller| Seat::new(controller, Arc::clone(actor));
        let live = self.settings.clone();
        let progress = Progress::new(live.clone(), self.scout.catalog().clone());
        let mut seats = vec![
            // AppWrappers compete: there is one decision about all of them.
            seat(Arc::new(Dispatch::new(live.clone()))).alone(),
            Seat { workers: HANDS, ..seat(Arc::new(progress)) },
        ];
        if self.settings.get().quota {
            let standing =
                move |world: &World, it: &AppWrapper| charge::standing_in(world, it, &live.get());
            // What its pods ask for is said in its message, whenever that is more than was admitted.
            let status = QuotaStatus::new(standing)
                .or_when(|old, new| old.status.message != new.status.message);
            seats.push(seat(Arc::new(status)).alone());
        }
        seats.retain(|it| runs(it.controller.name()));
        seats.push(seat(Arc::<Scout>::clone(&self.scout)).alone());
        let reviewer = self.reviewer.iter().map(|it| seat(Arc::<Reviewer>::clone(it)).alone());
        seats.extend(reviewer);
        seats
    }

    /// What counts AppWrappers as they change.
    #[must_use]
    pub fn observer(&self) -> Arc<dyn Observer> {
        Arc::<Counts>::clone(&self.counts)
    }

    /// Finds out about kinds and authors, and counts, for as long as the tasks run. `client` asks in the name of
    /// whoever makes the items.
    pub fn spawn(&self, tasks: &mut Tasks, handle: &Handle, client: Client, rights: Rights) {
        // A part is started once.
        let _ = self.handle.set(handle.clone());
        if let Some(reviewer) = self.reviewer.clone() {
            let (seen, client) = (handle.clone(), client.clone());
            let clock = tasks.clock().clone();
            tasks.spawn("rights of authors", OnLoss::EndOwner, move |stop| async move {
                tokio::select! {
                    // Either may be dropped: what was found out is put down at once.
                    () = stop.cancelled() => {}
                    () = reviewer.run(&seen, &client, &clock) => {}
                }
                Ok(())
            });
        }
        let (scout, seen) = (Arc::clone(&self.scout), handle.clone());
        let clock = tasks.clock().clone();
        tasks.spawn("kinds of items", OnLoss::EndOwner, move |stop| async move {
            tokio::select! {
                // Either may be dropped: what was found out is put down at once.
                () = stop.cancelled() => {}
                () = scout.run(&seen, &client, &clock, rights) => {}
            }
            Ok(())
        });
        let (counts, seen) = (Arc::clone(&self.counts), handle.clone());
        let clock = tasks.clock().clone();
        tasks.spawn("counts of the queue", OnLoss::EndOwner, move |stop| async move {
            tokio::select! {
                // Either may be dropped: counting can begin anew at any time.
                () = stop.cancelled() => {}
                () = counts.run(&seen, &clock) => {}
            }
            Ok(())
        });
    }

    /// What those decide by who answer the API server about AppWrappers.
    pub(crate) fn admission(&self) -> Option<admission::Known> {
        let handle = self.handle.get()?.clone();
        Some(admission::Known { handle, settings: self.settings.clone() })
    }

    /// The settings it decides by, as they change.
    pub(crate) fn live(&self) -> Live {
        self.settings.clone()
    }

    /// Lets other settings apply from now on.
    pub fn set(&self, settings: Settings) {
        self.settings.set(settings);
        if let Some(handle) = self.handle.get() {
            handle.wake(Dispatch::NAME, Dispatch::queue());
        }
    }
}

/// Who acts for the queue through a client.
#[must_use]
pub fn actor(client: Client) -> Actor {
    Actor::new(client, NAME, NAME)
}

/// What the queue does with its own objects and with pods, in every namespace.
#[must_use]
pub fn rules() -> Vec<Value> {
    let own = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
    let wrappers = ["appwrappers", "appwrappers/finalizers", "appwrappers/status"];
    vec![
        rule("workload.codeflare.dev", &wrappers, &own),
        rule("", &["pods"], &["delete", "get", "list", "watch"]),
        rule("", &["nodes"], &["get", "list", "watch"]),
        rule("", &["events"], &["create", "patch"]),
    ]
}

/// What it does with quota trees.
#[must_use]
pub fn quota_rules() -> Vec<Value> {
    let verbs = ["get", "list", "patch", "update", "watch"];
    vec![rule("quota.codeflare.dev", &["quotasubtrees", "quotasubtrees/status"], &verbs)]
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

/// The settings of the queue as the configuration has them, beside the controllers of devices or without.
#[must_use]
pub fn settings(keys: &operator::Queue, devices: &operator::Devices) -> Settings {
    let operator::Queue {
        dynamic_priority,
        preemption,
        backoff_time,
        head_of_line_holding_time,
        quota_enabled,
        require_quota_bindings,
        // Refused when it is on.
        dispatcher: _,
        agent_configs: _,
        demand_inference,
        honor_node_selector,
        requeue_default,
        requeue_check_interval,
        wake_on_release,
        packing_check,
        fairness,
        active_eviction,
        check_user_access,
    } = keys;
    Settings {
        dynamic_priority: *dynamic_priority,
        preemption: *preemption,
        backoff: *backoff_time,
        holding: *head_of_line_holding_time,
        quota: *quota_enabled,
        require_quota_bindings: *require_quota_bindings,
        inference: match demand_inference {
            DemandInference::Compat => Inference::Compat,
            DemandInference::Full => Inference::Full,
        },
        honor_node_selector: *honor_node_selector,
        requeue_default: *requeue_default,
        requeue_interval: *requeue_check_interval,
        wake_on_release: *wake_on_release,
        packing_check: *packing_check,
        fairness: *fairness,
        active_eviction: *active_eviction,
        user_access: match check_user_access {
            true => UserAccess::Reviewed,
            false => UserAccess::Unchecked,
        },
        devices: devices.enabled,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::document;
    use crate::config::operator::settle;
    use crate::operator::CONTROLLERS;

    fn of(text: &str) -> Settings {
        let (layer, report) = document::read(text, "f");
        let found = settle([&layer], report, CONTROLLERS).unwrap().settings;
        settings(&found.mcad, &found.devices)
    }

    #[test]
    fn cf_4_what_nobody_configured_is_as_the_queue_has_it() {
        assert_eq!(of(""), Settings::default());
        let other =
            of("mcad: {backoffTime: 7, headOfLineHoldingTime: 3, demandInference: compat, \
                        requireQuotaBindings: true, \
                        requeueCheckInterval: 5s, wakeOnRelease: false, quotaEnabled: true, \
                        packingCheck: true, fairness: true, activeEviction: true, \
                        checkUserAccess: true}\n\
                        devices: {enabled: true}");
        let expected = Settings {
            backoff: std::time::Duration::from_secs(7),
            holding: std::time::Duration::from_secs(3),
            inference: Inference::Compat,
            require_quota_bindings: true,
            requeue_interval: std::time::Duration::from_secs(5),
            wake_on_release: false,
            quota: true,
            packing_check: true,
            fairness: true,
            active_eviction: true,
            user_access: UserAccess::Reviewed,
            devices: true,
            ..Settings::default()
        };
        assert_eq!(other, expected);
    }
}
