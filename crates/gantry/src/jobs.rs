//! Wires the queue: its controllers, what they ask, what is counted, and the settings they decide by.

use std::sync::{Arc, OnceLock};

use gantry_controller::outside::{AnyInquiry, Asks};
use gantry_controller::{Actor, Handle, Seat};
use gantry_process::metrics::{Metrics, RegisterError};
use gantry_process::tasks::Tasks;
use gantry_queue::access::{AccessReviewer, RecordingCheck};
use gantry_queue::app_wrapper::AppWrapper;
use gantry_queue::effects::access::{AccessResponder, RecordingResponder};
use gantry_queue::effects::admission::AdmissionContext;
use gantry_queue::effects::kind_discovery::{KindResponder, OwnRights};
use gantry_queue::effects::metrics::QueueMetrics;
use gantry_queue::kind_discovery::KindDiscovery;
use gantry_queue::quota_status::QuotaStatus;
use gantry_queue::{Catalog, Dispatch, Live, Progress, Settings, charge};
use gantry_reconcile::{Observer, Resource, View as _, World};
use kube::Client;

/// Who owns the fields the queue writes, and whom its events come from.
pub(crate) const NAME: &str = "gantry-queue";

/// How many AppWrappers are planned at once: as many as the decision about all of them has writes under way,
/// so that where requests are limited what was decided gets on as fast as what is decided next.
const PROGRESS_WORKERS: usize = 16;

/// The queue, ready to be started. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Part {
    settings: Live,
    clients: Clients,
    metrics: Arc<QueueMetrics>,
    handle: Arc<OnceLock<Handle>>,
}

/// How the queue asks a server.
#[derive(Clone)]
pub struct Clients {
    /// Asks in the name of whoever creates the wrapped objects.
    pub asks: Client,
    /// Whether that one has to ask what it may do itself.
    pub rights: OwnRights,
}

impl std::fmt::Debug for Clients {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "Clients({:?})", self.rights)
    }
}

impl Part {
    /// A queue that decides by these settings, until others are set.
    ///
    /// # Errors
    /// There is one already that is counted here.
    pub fn new(
        settings: Settings,
        metrics: &Metrics,
        clients: Clients,
    ) -> Result<Self, RegisterError> {
        let settings = Live::new(settings);
        let metrics = Arc::new(QueueMetrics::register(metrics, settings.clone())?);
        Ok(Self { settings, clients, metrics, handle: Arc::default() })
    }

    /// The controllers of the queue that are wanted, by their names.
    pub fn seats(&self, actor: &Arc<Actor>, runs: impl Fn(&str) -> bool) -> Vec<Seat> {
        let seat = |controller| Seat::new(controller, Arc::clone(actor));
        let live = self.settings.clone();
        let progress = Progress::new(live.clone());
        let mut seats = vec![
            // AppWrappers compete: there is one decision about all of them.
            seat(Arc::new(Dispatch::new(live.clone()))).alone(),
            Seat { workers: PROGRESS_WORKERS, ..seat(Arc::new(progress)) },
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
        seats
    }

    /// What counts AppWrappers as they change.
    #[must_use]
    pub fn observers(&self) -> Vec<Arc<dyn Observer>> {
        vec![Arc::<QueueMetrics>::clone(&self.metrics)]
    }

    /// What the decisions need to know of the server. What authors may create is asked where it matters.
    #[must_use]
    pub fn inquiries(&self) -> Vec<Arc<dyn AnyInquiry>> {
        let Clients { asks, rights } = &self.clients;
        let kinds = KindResponder::new(asks.clone(), *rights);
        let mut inquiries: Vec<Arc<dyn AnyInquiry>> =
            vec![Arc::new(Asks::new(KindDiscovery, kinds))];
        let access = self.settings.get().user_access;
        if access.is_checked() {
            let (reviews, recording) =
                (AccessResponder::new(asks.clone()), RecordingResponder::new(asks.clone()));
            inquiries.push(Arc::new(Asks::new(AccessReviewer::new(access), reviews)));
            inquiries.push(Arc::new(Asks::new(RecordingCheck, recording)));
        }
        inquiries
    }

    /// Counts what a shell sees, for as long as the tasks run, and wakes its decision when settings change.
    pub fn follow(&self, tasks: &mut Tasks, handle: &Handle) {
        // A part is started once.
        let _ = self.handle.set(handle.clone());
        Arc::clone(&self.metrics).spawn(tasks, handle);
    }

    /// What reviews of AppWrappers are decided by.
    pub(crate) fn admission(&self) -> Option<AdmissionContext> {
        let handle = self.handle.get()?.clone();
        Some(AdmissionContext { handle, settings: self.settings.clone() })
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
