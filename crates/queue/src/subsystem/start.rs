//! Starts the queue: its controllers, its inquiries to the API server, and its metrics.

use std::sync::Arc;

use gantry_controller::external::{AnyInquiry, InquiryWithResponder};
use gantry_controller::{Actor, ExternalSystems, Registration};
use gantry_reconcile::{Observer, World};
use gantry_subsystem::settings::Values;
use gantry_subsystem::start::{
    BackgroundTask, Host, Identity, Setup, StartError, SubsystemComponents,
};

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
use crate::{Dispatch, LiveSettings, Progress, Settings, charge};

/// The field manager of the fields the queue writes, and the reporting component of its events.
pub const FIELD_MANAGER: &str = "gantry-queue";

/// How many AppWrappers are reconciled at once: as many as the admission cycle has writes in
/// flight, so that where requests are rate-limited, admitted AppWrappers progress as fast as new
/// ones are admitted.
const PROGRESS_WORKERS: usize = 16;

/// Starts the queue where it is switched on.
pub(super) fn start(setup: Setup<'_>) -> Result<SubsystemComponents, StartError> {
    let mut controllers = SUBSYSTEM.features[0].controllers.iter();
    if !is_enabled(setup.values) || !controllers.any(|it| (setup.is_controller_enabled)(it.name)) {
        return Ok(SubsystemComponents::default());
    }
    let host = setup.host;
    let settings = read_settings(host, setup.values)?;
    let live = LiveSettings::new(settings);
    let account = Identity::account(ACCOUNT).impersonating_users();
    let actor = setup.actor(&account, FIELD_MANAGER, FIELD_MANAGER)?;
    let asks = setup.clients.reader(&account)?;
    let rights = match host {
        // The account has every permission on wrapped kinds that their authors may have.
        Host::Embedded => OwnRights::Unrestricted,
        Host::Cluster => OwnRights::Reviewed,
    };
    let metrics = Arc::new(QueueMetrics::register(setup.metrics, live.clone())?);
    let mut seats = registrations(&actor, &live);
    seats.retain(|it| (setup.is_controller_enabled)(it.controller.name()));
    let mut inquiries: Vec<Arc<dyn AnyInquiry>> = vec![Arc::new(InquiryWithResponder::new(
        KindDiscovery,
        KindResponder::new(asks.clone(), rights),
    ))];
    if settings.user_access.is_checked() {
        let reviews = AccessResponder::new(asks.clone());
        let access = AccessReviewer::new(settings.user_access);
        inquiries.push(Arc::new(InquiryWithResponder::new(access, reviews)));
        inquiries.push(Arc::new(InquiryWithResponder::new(
            RecordingCheck,
            RecordingResponder::new(asks),
        )));
    }
    let outside = ExternalSystems {
        observers: vec![Arc::<QueueMetrics>::clone(&metrics) as Arc<dyn Observer>],
        inquiries,
        ..ExternalSystems::default()
    };
    let leaves = setup.extensions.get::<LeafAdmission>().cloned();
    let admits_by = live.clone();
    let background: BackgroundTask = Box::new(move |tasks, handle| {
        metrics.spawn(tasks, handle);
        if let Some(leaves) = leaves {
            let context = AdmissionContext { handle: handle.clone(), settings: admits_by };
            leaves.set_context(Some(context));
        }
    });
    Ok(SubsystemComponents {
        registrations: seats,
        outside,
        background: vec![background],
        reconfigure: vec![Arc::new(move |values, handle| {
            live.set(read_settings(host, values)?);
            handle.enqueue(Dispatch::NAME, Dispatch::queue_key());
            Ok(())
        })],
        ..SubsystemComponents::default()
    })
}

fn read_settings(host: Host, values: &Values) -> Result<Settings, serde_json::Error> {
    match host {
        Host::Embedded => embedded_settings(values),
        Host::Cluster => settings(values),
    }
}

fn registrations(actor: &Arc<Actor>, live: &LiveSettings) -> Vec<Registration> {
    let seat = |controller| Registration::new(controller, Arc::clone(actor));
    let mut seats = vec![
        // AppWrappers compete, so one worker decides about all of them.
        seat(Arc::new(Dispatch::new(live.clone()))).with_single_worker(),
        Registration { workers: PROGRESS_WORKERS, ..seat(Arc::new(Progress::new(live.clone()))) },
    ];
    if live.get().quota {
        let live = live.clone();
        let standing =
            move |world: &World, it: &AppWrapper| charge::held_quota_in(world, it, &live.get());
        // Its message says what its pods request, whenever that is more than was admitted.
        let status = QuotaStatus::new(standing)
            .or_on_change(|old, new| old.status.message != new.status.message);
        seats.push(seat(Arc::new(status)).with_single_worker());
    }
    seats
}
