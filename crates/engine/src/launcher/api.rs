//! The API of the launcher: which request does what.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gantry_http_client::Client;
use gantry_process::clock::Clock;
use gantry_process::tasks::{OnLoss, Tasks};
use gantry_serve::Body;
use http::header::{ACCEPT_RANGES, CONTENT_RANGE, CONTENT_TYPE, RANGE};
use http::{HeaderName, HeaderValue, Method, Response, StatusCode};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::accelerator_map::AcceleratorMap;
use super::config::InstanceConfig;
use super::create::{CreateError, Order, create};
use super::fence::{BOOT_HEADER, CallFence, Fence, Refusal};
use super::forward::{self, Forwards};
use super::index::{INSTANCES, index, random_id};
use super::instance::InstanceHandle;
use super::instance_table::{AddError, InstanceTable};
use super::log_file;
use super::log_range::{self, LogAnswer};
use super::start::Starter;
use super::watch as watching;
use crate::detached::Detached;
use crate::exchange::{self as answer, Call};
use crate::executable::{self, ToolError};
use crate::host::Host;

/// Watchers at one time.
const MAX_WATCHERS: usize = 64;
/// The longest ID of an instance.
const MAX_ID_BYTES: usize = 253;
/// How long calls to engines go on after the launcher stops.
const STOP_GRACE: Duration = Duration::from_secs(1);

/// What a launcher is given.
pub(super) struct LauncherSettings {
    pub(super) host: Host,
    pub(super) clock: Clock,
    pub(super) token: Option<String>,
    pub(super) accelerators: AcceleratorMap,
    /// How long an engine may take to end after SIGTERM.
    pub(super) stop_time: Duration,
    pub(super) forwarder: Client,
    pub(super) bounds: LauncherBounds,
}

/// The bounds of a launcher.
#[derive(Clone, Copy, Debug)]
pub(super) struct LauncherBounds {
    /// Instances at one time.
    pub(super) instances: usize,
    /// The size of the log of one.
    pub(super) log_bytes: u64,
}

/// What requests and instances share.
pub(super) struct Shared {
    pub(super) settings: LauncherSettings,
    table: Mutex<InstanceTable>,
    pub(super) handles: Mutex<BTreeMap<String, InstanceHandle>>,
    /// Locked before the table and the handles where both are.
    pub(super) fence: Mutex<Fence>,
    pub(super) forwards: Forwards,
    pub(super) detached: Detached,
    /// Changes with each event.
    pub(super) changes: watch::Sender<u64>,
}

impl Shared {
    pub(super) fn log(&self, line: &str) {
        self.settings.host.log(line);
    }

    pub(super) fn read<T>(&self, read: impl FnOnce(&InstanceTable) -> T) -> T {
        read(&self.table.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the table, and notifies watchers.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut InstanceTable) -> T) -> T {
        let result = change(&mut self.table.lock().unwrap_or_else(PoisonError::into_inner));
        self.changes.send_modify(|it| *it = it.wrapping_add(1));
        result
    }

    fn handle(&self, id: &str) -> Option<InstanceHandle> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    pub(super) fn forget(&self, id: &str) {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }
}

/// The launcher.
pub(super) struct Launcher {
    shared: Arc<Shared>,
    orders: mpsc::Sender<Order>,
    watchers: Arc<Semaphore>,
    boot: String,
    stop: CancellationToken,
}

impl Launcher {
    pub(super) fn new(
        settings: LauncherSettings,
        starter: Starter,
        tasks: &mut Tasks,
    ) -> std::io::Result<Self> {
        let mut logs = tempfile::Builder::new();
        logs.prefix("gantry-launcher-");
        let logs = match settings.host.confinement() {
            // A directory that is removed with the pod, also if this process is killed.
            Some(_) => logs.tempdir_in(".")?,
            None => logs.tempdir()?,
        };
        let boot = format!("{:016x}", fastrand::u64(..));
        let shared = Arc::new(Shared {
            settings,
            table: Mutex::default(),
            handles: Mutex::default(),
            fence: Mutex::new(Fence::new(boot.clone())),
            forwards: Forwards::default(),
            detached: Detached::new(tasks, STOP_GRACE),
            changes: watch::Sender::new(0),
        });
        let (orders, mut receiver) = mpsc::channel::<Order>(16);
        let inner = Arc::clone(&shared);
        let mut instances = tasks.child();
        tasks.spawn("instances", OnLoss::EndOwner, move |stop| async move {
            let numbers = AtomicU64::new(0);
            loop {
                let order = tokio::select! {
                    biased;
                    // Each may be dropped: an order that was not received is not lost.
                    () = stop.cancelled() => break,
                    _ = instances.join(), if !instances.is_empty() => continue,
                    order = receiver.recv() => order,
                };
                let Some(order) = order else { break };
                let number = numbers.fetch_add(1, Ordering::Relaxed);
                let log = logs.path().join(format!("{number}.log"));
                create(&inner, &starter, order, log, &mut instances).await;
            }
            // Stopping the launcher stops all instances.
            while instances.join().await.is_err() {}
            drop(logs);
            Ok(())
        });
        Ok(Self {
            shared,
            orders,
            watchers: Arc::new(Semaphore::new(MAX_WATCHERS)),
            boot,
            stop: tasks.token().clone(),
        })
    }

    pub(super) async fn answer(&self, call: Call) -> Response<Body> {
        let mut response = self.route(call).await;
        insert(&mut response, BOOT_HEADER, &self.boot);
        response
    }

    async fn route(&self, call: Call) -> Response<Body> {
        if call.path == "/health" && call.method == Method::GET {
            return answer::json(StatusCode::OK, &json!({"status": "OK"}));
        }
        if let Some(token) = &self.shared.settings.token
            && !call.presents(token)
        {
            return answer::detail(StatusCode::UNAUTHORIZED, "a bearer token is required");
        }
        let method = call.method.as_str();
        let path = call.path.strip_prefix(INSTANCES);
        let parts: Option<Vec<&str>> = path.and_then(|it| match it {
            "" => Some(Vec::new()),
            rest => rest.strip_prefix('/').map(|it| it.split('/').collect()),
        });
        // What changes nothing needs no fence.
        let fence = match &call.method {
            &Method::GET => Ok(CallFence::default()),
            _ => CallFence::read(&call.headers),
        };
        let fence = match fence {
            Ok(fence) => fence,
            Err(refusal) => return forward::refused(&refusal),
        };
        match (method, call.path.as_str(), parts.as_deref()) {
            ("GET", "/", _) => answer::json(StatusCode::OK, &index()),
            ("GET", "/v2/gpu-debug", _) => self.gpu_debug().await,
            ("GET", _, Some([])) => self.list(&call),
            ("POST", _, Some([])) => self.create(random_id(), &call, fence).await,
            ("DELETE", _, Some([])) => self.delete_all(&fence).await,
            ("GET", _, Some(["watch"])) => self.watch(&call),
            ("GET", _, Some([id])) => match self.shared.read(|it| it.state(id)) {
                Some(state) => answer::json(StatusCode::OK, &state),
                None => not_found(id),
            },
            ("PUT", _, Some([id])) => self.create((*id).to_owned(), &call, fence).await,
            ("DELETE", _, Some([id])) => self.delete(id, &fence).await,
            ("GET", _, Some([id, "log"])) => self.log(id, &call),
            ("POST", _, Some([id, name @ ("sleep" | "wake_up")]))
            | ("GET", _, Some([id, name @ "is_sleeping"])) => {
                forward::forward(&self.shared, (id, name), &call, fence).await
            }
            (_, "/" | "/health" | "/v2/gpu-debug", _)
            | (_, _, Some([] | [_] | [_, "log" | "sleep" | "wake_up" | "is_sleeping"])) => {
                answer::detail(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed")
            }
            _ => answer::detail(StatusCode::NOT_FOUND, "Not Found"),
        }
    }

    fn list(&self, call: &Call) -> Response<Body> {
        let detail = match call.query("detail").map(|it| it.to_ascii_lowercase()).as_deref() {
            None | Some("true" | "1" | "yes" | "on" | "t" | "y") => true,
            Some("false" | "0" | "no" | "off" | "f" | "n") => false,
            Some(other) => {
                let problem = json!([{
                    "type": "bool_parsing",
                    "loc": ["query", "detail"],
                    "msg": "Input should be a valid boolean, unable to interpret input",
                    "input": other,
                }]);
                return answer::detail(StatusCode::UNPROCESSABLE_ENTITY, problem);
            }
        };
        let list = |table: &InstanceTable| if detail { table.list() } else { table.list_ids() };
        let mut list = self.shared.read(list);
        // By which controllers know that calls are fenced.
        list["boot_id"] = json!(self.boot);
        answer::json(StatusCode::OK, &list)
    }

    /// Admits a call, and records its counter.
    fn admit(&self, fence: &CallFence) -> Result<(), Refusal> {
        self.shared.fence.lock().unwrap_or_else(PoisonError::into_inner).admit(fence)
    }

    async fn create(&self, id: String, call: &Call, fence: CallFence) -> Response<Body> {
        if let Err(refusal) = self.admit(&fence) {
            return forward::refused(&refusal);
        }
        let config = match InstanceConfig::parse(&call.body) {
            Ok(config) => config,
            Err(problems) => return answer::detail(StatusCode::UNPROCESSABLE_ENTITY, problems),
        };
        if id.is_empty() || id.len() > MAX_ID_BYTES {
            let message = format!("the ID of an instance has 1 to {MAX_ID_BYTES} bytes");
            return answer::detail(StatusCode::BAD_REQUEST, message);
        }
        let uuids = config.gpu_uuids.as_deref();
        let places = match uuids.map(|it| self.shared.settings.accelerators.places(it)) {
            None => None,
            Some(Ok(places)) => Some(places),
            Some(Err(unknown)) => {
                return answer::detail(StatusCode::BAD_REQUEST, unknown.to_string());
            }
        };
        let config = config.with_places(places.as_deref());
        let (reply, created) = oneshot::channel();
        let stopping =
            || answer::detail(StatusCode::SERVICE_UNAVAILABLE, "the launcher is stopping");
        let order = Order { id, config, fence, reply };
        if self.orders.send(order).await.is_err() {
            return stopping();
        }
        match created.await {
            Ok(Ok(state)) => answer::json(StatusCode::CREATED, &state),
            Ok(Err(CreateError::Refused(error @ AddError::Exists(_)))) => {
                answer::detail(StatusCode::CONFLICT, error.to_string())
            }
            Ok(Err(CreateError::Refused(error @ AddError::Full(_)))) => {
                answer::detail(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
            }
            Ok(Err(CreateError::Overtaken(refusal))) => forward::refused(&refusal),
            Ok(Err(CreateError::Failed(message))) => {
                answer::detail(StatusCode::INTERNAL_SERVER_ERROR, message)
            }
            Err(_) => stopping(),
        }
    }

    async fn delete(&self, id: &str, fence: &CallFence) -> Response<Body> {
        let handle = {
            // Under one lock: an instance that is being created is found here, or finds that it
            // was overtaken.
            let mut newest = self.shared.fence.lock().unwrap_or_else(PoisonError::into_inner);
            if let Err(refusal) = newest.admit(fence) {
                return forward::refused(&refusal);
            }
            self.shared.handle(id)
        };
        let Some(handle) = handle else { return not_found(id) };
        match handle.delete().await {
            Ok(state) => answer::json(StatusCode::OK, &state),
            Err(message) => answer::detail(StatusCode::INTERNAL_SERVER_ERROR, message),
        }
    }

    async fn delete_all(&self, fence: &CallFence) -> Response<Body> {
        let handles: Vec<InstanceHandle> = {
            let mut newest = self.shared.fence.lock().unwrap_or_else(PoisonError::into_inner);
            if let Err(refusal) = newest.admit(fence) {
                return forward::refused(&refusal);
            }
            let handles = self.shared.handles.lock().unwrap_or_else(PoisonError::into_inner);
            handles.values().cloned().collect()
        };
        // All at once: each may take its time to stop.
        let ended = futures_util::future::join_all(handles.iter().map(InstanceHandle::delete));
        match ended.await.into_iter().collect::<Result<Vec<Value>, String>>() {
            Ok(states) => answer::json(
                StatusCode::OK,
                &json!({
                    "status": "all_stopped",
                    "total_stopped": states.len(),
                    "stopped_instances": states,
                }),
            ),
            Err(message) => answer::detail(StatusCode::INTERNAL_SERVER_ERROR, message),
        }
    }

    fn log(&self, id: &str, call: &Call) -> Response<Body> {
        let Some(handle) = self.shared.handle(id) else { return not_found(id) };
        let range = call.headers.get(RANGE).map(|it| it.to_str().unwrap_or("unreadable"));
        let answered = log_file::length(&handle.log).and_then(|total| {
            let part = |status: StatusCode, start: u64, end: u64| {
                let bytes = log_file::read(&handle.log, start, end)?;
                let mut response = answer::respond(status, "application/octet-stream", bytes);
                let range = format!("bytes {start}-{}/{total}", end.saturating_sub(1));
                insert(&mut response, CONTENT_RANGE, &range);
                Ok(response)
            };
            match log_range::answer(range, total) {
                LogAnswer::Whole { start, end } => part(StatusCode::OK, start, end),
                LogAnswer::Part { start, end } => part(StatusCode::PARTIAL_CONTENT, start, end),
                LogAnswer::Empty => {
                    Ok(answer::respond(StatusCode::OK, "application/octet-stream", ""))
                }
                LogAnswer::NotSatisfiable => {
                    let status = StatusCode::RANGE_NOT_SATISFIABLE;
                    let mut response = answer::respond(status, "application/octet-stream", "");
                    insert(&mut response, CONTENT_RANGE, &format!("bytes */{total}"));
                    Ok(response)
                }
                LogAnswer::Malformed => {
                    let message = format!(
                        "Range {:?} is not bytes=A-B, bytes=A- or bytes=-N",
                        range.unwrap_or_default()
                    );
                    Ok(answer::detail(StatusCode::BAD_REQUEST, message))
                }
            }
        });
        match answered {
            Ok(mut response) => {
                insert(&mut response, ACCEPT_RANGES, "bytes");
                response
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => not_found(id),
            Err(error) => answer::text(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("could not read the log: {error}"),
            ),
        }
    }

    fn watch(&self, call: &Call) -> Response<Body> {
        let since = match call.query("since").map(|it| (it.parse::<u64>(), it)) {
            None => None,
            Some((Ok(since), _)) => Some(since),
            Some((Err(_), text)) => {
                let problem = json!([{
                    "type": "int_parsing",
                    "loc": ["query", "since"],
                    "msg": "Input should be a valid integer, unable to parse string as an integer",
                    "input": text,
                }]);
                return answer::detail(StatusCode::UNPROCESSABLE_ENTITY, problem);
            }
        };
        let with_ready = call.query("events").as_deref() == Some("all");
        let Ok(permit) = Arc::clone(&self.watchers).try_acquire_owned() else {
            let message = format!("there are {MAX_WATCHERS} watches already");
            return answer::detail(StatusCode::SERVICE_UNAVAILABLE, message);
        };
        match watching::stream_events(&self.shared, self.stop.clone(), since, with_ready, permit) {
            Ok(body) => {
                let mut response = Response::new(body);
                insert(&mut response, CONTENT_TYPE, "application/x-ndjson");
                insert(&mut response, http::header::X_CONTENT_TYPE_OPTIONS, "nosniff");
                response
            }
            Err(error) => answer::detail(StatusCode::GONE, error.to_string()),
        }
    }

    async fn gpu_debug(&self) -> Response<Body> {
        let host = &self.shared.settings.host;
        if let Some(directory) = host.ledgers() {
            let words = ["-L".to_owned()];
            let (out, error, code) = match crate::vendor_tool::run(&words, Some(&directory), None) {
                Ok(text) => (text, String::new(), 0),
                Err(error) => (String::new(), error.to_string(), 6),
            };
            let value = json!({"stdout": out, "stderr": error, "returncode": code});
            return answer::json(StatusCode::OK, &value);
        }
        match executable::run_vendor_tool(host, &self.shared.settings.clock, &[]).await {
            Ok((code, out)) => {
                let value = json!({"stdout": out, "stderr": "", "returncode": code});
                answer::json(StatusCode::OK, &value)
            }
            Err(error) => {
                let status = match error {
                    ToolError::Missing => StatusCode::NOT_IMPLEMENTED,
                    ToolError::TooSlow => StatusCode::GATEWAY_TIMEOUT,
                    ToolError::NotRun(_) => StatusCode::INTERNAL_SERVER_ERROR,
                };
                answer::detail(status, error.to_string())
            }
        }
    }
}

fn insert(response: &mut Response<Body>, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

pub(super) fn not_found(id: &str) -> Response<Body> {
    answer::detail(StatusCode::NOT_FOUND, format!("Instance with ID '{id}' not found"))
}
