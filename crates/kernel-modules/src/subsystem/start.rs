//! Starts the controllers of kernel modules and their inquiries.

use std::collections::BTreeMap;
use std::sync::Arc;

use gantry_controller::external::{AnyInquiry, InquiryWithResponder};
use gantry_controller::{ExternalSystems, Filter, Registration};
use gantry_reconcile::StoreId;
use gantry_subsystem::settings::Values;
use gantry_subsystem::start::{Host, Identity, Setup, StartError, SubsystemComponents};

use super::ACCOUNT;
use super::configuration::Configuration;
use crate::controller::ModuleController;
use crate::effects::{HostRegistryExtension, ImageResponder, ObjectReader, discover_pod_security};
use crate::facts::{DockerfileInquiry, ImageInquiry, SecretInquiry};
use crate::labels::{FIELD_MANAGER, JOB_TYPE_LABEL, MODULE_LABEL};
use crate::node_labels::NodeLabelController;
use crate::settings::{BuildEngine, LiveSettings, PodSecurity, Settings};
use crate::view::{DaemonSet, DockerfileMap, Job, ModulePod, ServiceAccount};

/// The image of Gantry in simulated pods.
pub const SIMULATED_GANTRY_IMAGE: &str = "gantry.dev/gantry:1";

/// The cluster role of an embedded server whose holders push to its registry.
pub const REGISTRY_ROLE: &str = "gantry-registry-pusher";

/// Starts the subsystem where it is switched on.
///
/// # Errors
/// A client cannot be created, or the cluster cannot be asked how it decides which pods may run.
pub(super) async fn start(setup: Setup<'_>) -> Result<SubsystemComponents, StartError> {
    if !Configuration::read(setup.values)?.enabled {
        return Ok(SubsystemComponents::default());
    }
    let account = Identity::account(ACCOUNT);
    let pod_security = match setup.host {
        Host::Embedded => PodSecurity::Admission,
        Host::Cluster => {
            discover_pod_security(&setup.clients.reader(&account)?, setup.clock).await?
        }
    };
    let live = LiveSettings::new(settings(setup.host, setup.values, pod_security)?);
    let actor = setup.actor(&account, FIELD_MANAGER, FIELD_MANAGER)?;
    let objects = ObjectReader::new(setup.clients.reader(&account)?);
    let host = setup.extensions.get::<HostRegistryExtension>().map(|it| Arc::clone(&it.0));
    let images = ImageResponder::new(objects.clone(), host, live.clone());
    let inquiries: Vec<Arc<dyn AnyInquiry>> = vec![
        Arc::new(InquiryWithResponder::new(ImageInquiry::new(live.clone()), images)),
        Arc::new(InquiryWithResponder::new(SecretInquiry::new(live.clone()), objects.clone())),
        Arc::new(InquiryWithResponder::new(DockerfileInquiry::new(live.clone()), objects)),
    ];
    let mut registrations = vec![
        Registration::new(Arc::new(ModuleController::new(live.clone())), Arc::clone(&actor)),
        Registration::new(Arc::new(NodeLabelController::new(live.clone())), actor),
    ];
    registrations.retain(|it| (setup.is_controller_enabled)(it.controller.name()));
    let of_modules = || Filter { labels: MODULE_LABEL.to_owned(), ..Filter::default() };
    let of_jobs = || Filter { labels: JOB_TYPE_LABEL.to_owned(), ..Filter::default() };
    let host = setup.host;
    Ok(SubsystemComponents {
        registrations,
        outside: ExternalSystems { inquiries, ..ExternalSystems::default() },
        filters: BTreeMap::from([
            (StoreId::of::<DaemonSet>(), of_modules()),
            (StoreId::of::<ModulePod>(), of_modules()),
            (StoreId::of::<ServiceAccount>(), of_modules()),
            (StoreId::of::<Job>(), of_jobs()),
            (StoreId::of::<DockerfileMap>(), of_jobs()),
        ]),
        reconfigure: vec![Arc::new(move |values, _| {
            live.set(settings(host, values, pod_security)?);
            Ok(())
        })],
        ..SubsystemComponents::default()
    })
}

/// The settings of plans. Simulated pods run programs of this process instead of images.
fn settings(
    host: Host,
    values: &Values,
    pod_security: PodSecurity,
) -> Result<Settings, serde_json::Error> {
    let mut settings = Configuration::read(values)?.settings();
    settings.pod_security = pod_security;
    match host {
        Host::Cluster => {}
        Host::Embedded => {
            SIMULATED_GANTRY_IMAGE.clone_into(&mut settings.jobs.gantry_image);
            settings.builder.engine = BuildEngine::Simulated;
            settings.jobs.registry_role = Some(REGISTRY_ROLE.to_owned());
        }
    }
    Ok(settings)
}
