//! Adds what observes Modules and changes nothing: metrics, logs, and the words of failed hooks.

use std::sync::Arc;

use gantry_controller::external::InquiryWithResponder;
use gantry_reconcile::Observer;
use gantry_subsystem::start::{Identity, Setup, StartError, SubsystemComponents};

use super::ACCOUNT;
use super::configuration::Configuration;
use crate::effects::ObjectReader;
use crate::effects::decision_log::DecisionLog;
use crate::effects::metrics::ModuleMetrics;
use crate::facts::FailedHookInquiry;
use crate::settings::LiveSettings;

/// Adds observers to the controllers, where the subsystem is switched on.
pub(super) fn observe(
    setup: Setup<'_>,
    mut components: SubsystemComponents,
) -> Result<SubsystemComponents, StartError> {
    let configuration = Configuration::read(setup.values)?;
    if !configuration.enabled {
        return Ok(components);
    }
    let live = LiveSettings::new(configuration.settings());
    let metrics = Arc::new(ModuleMetrics::register(setup.metrics, live.clone())?);
    let events = ObjectReader::new(setup.clients.reader(&Identity::account(ACCOUNT))?);
    let hooks = InquiryWithResponder::new(FailedHookInquiry, events);
    components.outside.inquiries.push(Arc::new(hooks));
    components.outside.observers.push(Arc::<ModuleMetrics>::clone(&metrics) as Arc<dyn Observer>);
    components.outside.observers.push(Arc::new(DecisionLog::new(live.clone())));
    components.background.push(Box::new(move |tasks, handle| metrics.spawn(tasks, handle)));
    components.reconfigure.push(Arc::new(move |values, _| {
        live.set(Configuration::read(values)?.settings());
        Ok(())
    }));
    Ok(components)
}
