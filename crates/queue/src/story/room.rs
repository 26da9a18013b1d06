//! What there is for one that waits, and who has the rest.

use std::collections::BTreeMap;

use gantry_pods::Requests;
use gantry_pods::view::Node;
use gantry_reconcile::World;
use serde::Serialize;

use super::spelled;
use crate::amounts::{Amounts, Lack, Rest};
use crate::app_wrapper::AppWrapper;
use crate::books::Books;
use crate::order::Class;
use crate::settings::{Inference, Settings};

/// What there is for one that waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Room {
    /// What all nodes have, whether they take its pods or not.
    pub total: BTreeMap<String, String>,
    /// What is free on nodes that take its pods.
    pub free: BTreeMap<String, String>,
    /// What of that others have reserved and not taken yet.
    pub reserved: BTreeMap<String, String>,
    /// Who has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reserved_by: Vec<Share>,
    /// What others of lower priority take, where that counts as free.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub reclaimable: BTreeMap<String, String>,
    /// Who takes it: the scheduler evicts their pods when it must.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reclaimable_from: Vec<Share>,
    /// What is available to it.
    pub available: BTreeMap<String, String>,
    /// What is missing, if it were alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lacking: Vec<String>,
    /// Whether all nodes together have too little for it.
    pub exceeds_cluster: bool,
}

/// What somebody has of something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Share {
    /// Who: namespace and name.
    pub who: String,
    /// How much.
    pub amounts: BTreeMap<String, String>,
}

/// What there is for one that waits, beside all that was given to others before.
pub(super) fn of(world: &World, wrapper: &AppWrapper, settings: &Settings) -> Room {
    let books = Books::of(world, settings);
    let Books { capacity, holdings, .. } = &books;
    let class = Class::of(wrapper, settings, books.lines.trees());
    let target = settings.preempts().then_some(wrapper.spec.priority);
    let free = capacity.free(&class.reach, &class.node_labels);
    let against = holdings.against(target, &class.reach, capacity);
    let available = against.available(&free);
    let total = total(world, settings);
    let (mut reserved_by, mut reclaimable_from) = (Vec::new(), Vec::new());
    for other in world.shelf::<AppWrapper>().all() {
        let key = other.metadata.key();
        if key == wrapper.metadata.key() {
            continue;
        }
        let none = Default::default();
        let usage = capacity.usage(&key).unwrap_or(&none);
        let who = key.to_string();
        let gives_way = target.is_some_and(|target| other.spec.priority < target);
        if gives_way {
            let on = usage.on.iter().filter(|(barrier, _)| capacity.lets(barrier, &class.reach));
            let taken = on.fold(Amounts::default(), |mut sum, (_, amounts)| {
                sum.add(amounts);
                sum
            });
            if !taken.is_nothing() {
                reclaimable_from.push(Share { who, amounts: spelled(&taken) });
            }
        } else if other.status.can_run {
            let rest = other.demand().by(settings.inference).without(&usage.used);
            if !rest.is_nothing() {
                reserved_by.push(Share { who, amounts: spelled(&rest) });
            }
        }
    }
    Room {
        free: spelled(&free),
        reserved: spelled(&against.reserved),
        reserved_by,
        reclaimable: spelled(&against.reclaimed),
        reclaimable_from,
        available: spelled(&available),
        lacking: class.demand.lacking(&available).iter().map(Lack::to_string).collect(),
        exceeds_cluster: !class.demand.fit(&total),
        total: spelled(&total),
    }
}

fn total(world: &World, settings: &Settings) -> Amounts {
    let rest = match settings.inference {
        Inference::Compat => Rest::Ignored,
        Inference::Full => Rest::Counted,
    };
    let mut total = Amounts::default();
    for node in world.shelf::<Node>().all() {
        total.add(&Amounts::of(&Requests::available(&node.status.allocatable), rest));
    }
    total
}
