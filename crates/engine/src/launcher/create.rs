//! Creates instances, unless a newer call comes while they are created.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

use gantry_process::tasks::{OnLoss, Tasks};
use serde_json::Value;
use tokio::sync::{oneshot, watch};

use super::api::Shared;
use super::config::InstanceConfig;
use super::fence::{CallFence, Refusal};
use super::instance::{Instance, InstanceHandle, Progress};
use super::instance_table::AddError;
use super::log_file::LogFile;
use super::start::Starter;

/// A request to start an instance, and where its result goes.
pub(super) struct Order {
    pub(super) id: String,
    pub(super) config: InstanceConfig,
    pub(super) fence: CallFence,
    pub(super) reply: oneshot::Sender<Result<Value, CreateError>>,
}

/// Why an instance was not created.
#[derive(Debug)]
pub(super) enum CreateError {
    Refused(AddError),
    /// A call of a newer binding came while it was being created.
    Overtaken(Refusal),
    Failed(String),
}

/// Starts an instance and adds it to the table. Only one is started at a time.
pub(super) async fn create(
    shared: &Arc<Shared>,
    starter: &Starter,
    order: Order,
    log_path: PathBuf,
    instances: &mut Tasks,
) {
    let Order { id, config, fence, reply } = order;
    let created = start(shared, starter, (id, config, fence), log_path, instances).await;
    // The client may have gone; the instance is there, and is listed.
    let _ = reply.send(created);
}

async fn start(
    shared: &Arc<Shared>,
    starter: &Starter,
    (id, config, fence): (String, InstanceConfig, CallFence),
    log_path: PathBuf,
    instances: &mut Tasks,
) -> Result<Value, CreateError> {
    let bounds = shared.settings.bounds;
    shared.read(|it| it.check_add(&id, bounds.instances)).map_err(CreateError::Refused)?;
    let failed = |error: std::io::Error| {
        CreateError::Failed(format!("could not start instance {id}: {error}"))
    };
    let mut log = LogFile::create(log_path.clone(), bounds.log_bytes).map_err(failed)?;
    let withheld = starter.withheld(&config);
    if !withheld.is_empty() {
        let line = format!("variables that engines of simulated pods do not get: {withheld}\n");
        shared.log(&format!("instance {id}: {}", line.trim_end()));
        log.append(line.as_bytes()).map_err(failed)?;
    }
    let mark = format!("{}.{:016x}", id, fastrand::u64(..));
    let clock = shared.settings.clock.clone();
    let (process, output) = starter.start(&config, &mark, &clock).await.map_err(failed)?;
    shared.log(&format!("started instance {id} as process {}", process.id()));
    let handle = InstanceHandle { log: log_path, progress: watch::Sender::new(Progress::Kept) };
    let port = config.port();
    let started =
        Instance { id: id.clone(), mark, port, process, output, log, handle: handle.clone() };
    let added = {
        let newest = shared.fence.lock().unwrap_or_else(PoisonError::into_inner);
        newest.check(&fence).map(|()| {
            let mut handles = shared.handles.lock().unwrap_or_else(PoisonError::into_inner);
            handles.insert(id.clone(), handle);
            shared.change(|table| table.add(&id, config))
        })
    };
    let state = match added {
        Ok(state) => state,
        Err(refusal) => {
            started.discard(shared).await;
            return Err(CreateError::Overtaken(refusal));
        }
    };
    let (inner, own) = (Arc::clone(shared), instances.child());
    instances.spawn("instance", OnLoss::CarryOn, move |_| async move {
        started.run(inner, own).await;
        Ok(())
    });
    Ok(state)
}
