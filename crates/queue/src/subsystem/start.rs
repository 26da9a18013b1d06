//! Starts the queue: its controllers, what they ask, and what is counted.

use std::sync::Arc;

use gantry_controller::outside::{AnyInquiry, Asks};
use gantry_controller::{Actor, Outside, Seat};
use gantry_reconcile::{Observer, World};
use gantry_subsystem::settings::Values;
use gantry_subsystem::start::{Background, Host, Identity, Parts, Setup, StartError};

use super::configuration::{embedded_settings, is_enabled, settings};
use super::{ACCOUNT, SUBSYSTEM};
use crate::access::{AccessReviewer, RecordingCheck};
use crate::app_wrapper::AppWrapper;
use crate::effects::access::{AccessResponder, RecordingResponder};
use crate::effects::admission::{AdmissionContext, LeafAdmission};
use crate::effects::kind_discovery::{KindResponder, OwnRights};
use crate::effects::metrics::QueueMetrics;
use crate::kind_discovery::KindDiscovery;
use crate::quota_status::QuotaStatus;
use crate::{Dispatch, Live, Progress, Settings, charge};

/// Who owns the fields the queue writes, and whom its events come from.
pub const NAME: &str = "gantry-queue";

/// How many AppWrappers are planned at once: as many as the decision about all of them has writes under way,
/// so that where requests are limited what was decided gets on as fast as what is decided next.
const PROGRESS_WORKERS: usize = 16;

/// Starts the queue where it is switched on.
pub(super) fn start(setup: Setup<'_>) -> Result<Parts, StartError> {
    let mut controllers = SUBSYSTEM.features[0].controllers.iter();
    if !is_enabled(setup.values) || !controllers.any(|it| (setup.runs)(it.name)) {
        return Ok(Parts::default());
    }
    let host = setup.host;
    let settings = read(host, setup.values)?;
    let live = Live::new(settings);
    let account = Identity::account(ACCOUNT).for_users();
    let actor = setup.actor(&account, NAME, NAME)?;
    let asks = setup.clients.reader(&account)?;
    let rights = match host {
        // The account may do everything with wrapped kinds that their authors may.
        Host::Embedded => OwnRights::Unrestricted,
        Host::Cluster => OwnRights::Reviewed,
    };
    let metrics = Arc::new(QueueMetrics::register(setup.metrics, live.clone())?);
    let mut seats = seats(&actor, &live);
    seats.retain(|it| (setup.runs)(it.controller.name()));
    let mut inquiries: Vec<Arc<dyn AnyInquiry>> =
        vec![Arc::new(Asks::new(KindDiscovery, KindResponder::new(asks.clone(), rights)))];
    if settings.user_access.is_checked() {
        let reviews = AccessResponder::new(asks.clone());
        let access = AccessReviewer::new(settings.user_access);
        inquiries.push(Arc::new(Asks::new(access, reviews)));
        inquiries.push(Arc::new(Asks::new(RecordingCheck, RecordingResponder::new(asks))));
    }
    let outside = Outside {
        observers: vec![Arc::<QueueMetrics>::clone(&metrics) as Arc<dyn Observer>],
        inquiries,
        ..Outside::default()
    };
    let leaves = setup.offers.get::<LeafAdmission>().cloned();
    let admits_by = live.clone();
    let background: Background = Box::new(move |tasks, handle| {
        metrics.spawn(tasks, handle);
        if let Some(leaves) = leaves {
            let context = AdmissionContext { handle: handle.clone(), settings: admits_by };
            leaves.follow(Some(context));
        }
    });
    Ok(Parts {
        seats,
        outside,
        background: vec![background],
        reconfigure: vec![Arc::new(move |values, handle| {
            live.set(read(host, values)?);
            handle.wake(Dispatch::NAME, Dispatch::queue());
            Ok(())
        })],
        ..Parts::default()
    })
}

fn read(host: Host, values: &Values) -> Result<Settings, serde_json::Error> {
    match host {
        Host::Embedded => embedded_settings(values),
        Host::Cluster => settings(values),
    }
}

fn seats(actor: &Arc<Actor>, live: &Live) -> Vec<Seat> {
    let seat = |controller| Seat::new(controller, Arc::clone(actor));
    let mut seats = vec![
        // AppWrappers compete: there is one decision about all of them.
        seat(Arc::new(Dispatch::new(live.clone()))).alone(),
        Seat { workers: PROGRESS_WORKERS, ..seat(Arc::new(Progress::new(live.clone()))) },
    ];
    if live.get().quota {
        let live = live.clone();
        let standing =
            move |world: &World, it: &AppWrapper| charge::standing_in(world, it, &live.get());
        // What its pods ask for is said in its message, whenever that is more than was admitted.
        let status =
            QuotaStatus::new(standing).or_when(|old, new| old.status.message != new.status.message);
        seats.push(seat(Arc::new(status)).alone());
    }
    seats
}
