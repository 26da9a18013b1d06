//! The API of the launcher: which request does what.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gantry_http_client::{Body as ClientBody, Bounds, Client};
use gantry_process::clock::Clock;
use gantry_process::tasks::{OnLoss, Tasks};
use gantry_serve::Body;
use http::header::{ACCEPT_RANGES, CONTENT_RANGE, CONTENT_TYPE, RANGE};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::accelerator_map::AcceleratorMap;
use super::binding::{self, Binding, Fence};
use super::config::InstanceConfig;
use super::index::{INSTANCES, index, random_id};
use super::instance::{Instance, InstanceHandle, Progress};
use super::instance_table::{AddError, InstanceTable};
use super::log_file::{self, LogFile, MAX_LOG_FILE_BYTES};
use super::log_range::{self, LogAnswer};
use super::start::Starter;
use super::{FORWARD_TIMEOUT, watch as watching};
use crate::exchange::{self as answer, Call};
use crate::executable::{self, ToolError};
use crate::host::Host;

/// Watchers at one time.
const MAX_WATCHERS: usize = 64;
/// The longest ID of an instance.
const MAX_ID_BYTES: usize = 253;
/// The largest response of an engine that is forwarded.
const MAX_FORWARDED_BYTES: usize = 1 << 20;
/// The header with what identifies this run of the launcher: revisions begin again with it.
const BOOT_HEADER: HeaderName = HeaderName::from_static("gantry-launcher-boot");

/// What a launcher is given.
pub(super) struct LauncherSettings {
    pub(super) host: Host,
    pub(super) clock: Clock,
    pub(super) token: Option<String>,
    pub(super) accelerators: AcceleratorMap,
    /// How long an engine may take to end after SIGTERM.
    pub(super) stop_time: Duration,
    pub(super) forwarder: Client,
}

/// What requests and instances share.
pub(super) struct Shared {
    pub(super) settings: LauncherSettings,
    table: Mutex<InstanceTable>,
    handles: Mutex<BTreeMap<String, InstanceHandle>>,
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

/// A request to start an instance, and where its result goes.
type Order = (String, InstanceConfig, oneshot::Sender<Result<Value, CreateError>>);

/// Why an instance was not created.
#[derive(Debug)]
enum CreateError {
    Refused(AddError),
    Failed(String),
}

/// The launcher.
pub(super) struct Launcher {
    shared: Arc<Shared>,
    orders: mpsc::Sender<Order>,
    fence: Mutex<Fence>,
    watchers: Arc<Semaphore>,
    boot: HeaderValue,
    stop: CancellationToken,
}

impl Launcher {
    pub(super) fn new(
        settings: LauncherSettings,
        starter: Starter,
        tasks: &mut Tasks,
    ) -> std::io::Result<Self> {
        let logs = tempfile::Builder::new().prefix("gantry-launcher-").tempdir()?;
        let shared = Arc::new(Shared {
            settings,
            table: Mutex::default(),
            handles: Mutex::default(),
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
                let Some((id, config, reply)) = order else { break };
                let number = numbers.fetch_add(1, Ordering::Relaxed);
                let log = logs.path().join(format!("{number}.log"));
                let created = create(&inner, &starter, (id, config), log, &mut instances).await;
                // The client may have gone; the instance is there, and is listed.
                let _ = reply.send(created);
            }
            // Stopping the launcher stops all instances.
            while instances.join().await.is_err() {}
            drop(logs);
            Ok(())
        });
        let boot = format!("{:016x}", fastrand::u64(..));
        Ok(Self {
            shared,
            orders,
            fence: Mutex::default(),
            watchers: Arc::new(Semaphore::new(MAX_WATCHERS)),
            boot: HeaderValue::from_str(&boot).unwrap_or(HeaderValue::from_static("")),
            stop: tasks.token().clone(),
        })
    }

    pub(super) async fn answer(&self, call: Call) -> Response<Body> {
        let mut response = self.route(call).await;
        response.headers_mut().insert(BOOT_HEADER, self.boot.clone());
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
        match (method, call.path.as_str(), parts.as_deref()) {
            ("GET", "/", _) => answer::json(StatusCode::OK, &index()),
            ("GET", "/v2/gpu-debug", _) => self.gpu_debug().await,
            ("GET", _, Some([])) => self.list(&call),
            ("POST", _, Some([])) => self.create(random_id(), &call).await,
            ("DELETE", _, Some([])) => self.delete_all().await,
            ("GET", _, Some(["watch"])) => self.watch(&call),
            ("GET", _, Some([id])) => match self.shared.read(|it| it.state(id)) {
                Some(state) => answer::json(StatusCode::OK, &state),
                None => not_found(id),
            },
            ("PUT", _, Some([id])) => self.create((*id).to_owned(), &call).await,
            ("DELETE", _, Some([id])) => self.delete(id).await,
            ("GET", _, Some([id, "log"])) => self.log(id, &call),
            ("POST", _, Some([id, name @ ("sleep" | "wake_up")]))
            | ("GET", _, Some([id, name @ "is_sleeping"])) => self.forward(id, name, &call).await,
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
        answer::json(StatusCode::OK, &self.shared.read(list))
    }

    async fn create(&self, id: String, call: &Call) -> Response<Body> {
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
        if self.orders.send((id, config, reply)).await.is_err() {
            return stopping();
        }
        match created.await {
            Ok(Ok(state)) => answer::json(StatusCode::CREATED, &state),
            Ok(Err(CreateError::Refused(error @ AddError::Exists(_)))) => {
                answer::detail(StatusCode::CONFLICT, error.to_string())
            }
            Ok(Err(CreateError::Refused(error @ AddError::Full))) => {
                answer::detail(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
            }
            Ok(Err(CreateError::Failed(message))) => {
                answer::detail(StatusCode::INTERNAL_SERVER_ERROR, message)
            }
            Err(_) => stopping(),
        }
    }

    async fn delete(&self, id: &str) -> Response<Body> {
        let Some(handle) = self.shared.handle(id) else { return not_found(id) };
        match handle.delete().await {
            Ok(state) => answer::json(StatusCode::OK, &state),
            Err(message) => answer::detail(StatusCode::INTERNAL_SERVER_ERROR, message),
        }
    }

    async fn delete_all(&self) -> Response<Body> {
        let handles: Vec<InstanceHandle> = {
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

    /// Forwards a call to an engine, unless it is for an older binding than the newest one.
    async fn forward(&self, id: &str, name: &str, call: &Call) -> Response<Body> {
        let Some((port, running)) =
            self.shared.read(|it| Some((it.config(id)?.port(), it.is_running(id))))
        else {
            return not_found(id);
        };
        // A question changes nothing, so it needs no fence.
        if call.method == Method::POST {
            let named = call.headers.get(binding::HEADER).and_then(|it| it.to_str().ok());
            let refused = match Binding::parse(named) {
                Ok(binding) => {
                    let fenced =
                        self.fence.lock().unwrap_or_else(PoisonError::into_inner).admit(binding);
                    fenced.err().map(|it| (StatusCode::CONFLICT, it))
                }
                Err(refusal) => Some((StatusCode::BAD_REQUEST, refusal)),
            };
            if let Some((status, refusal)) = refused {
                return answer::detail(status, refusal.to_string());
            }
        }
        if !running {
            let message = format!("Instance with ID '{id}' is stopped");
            return answer::detail(StatusCode::BAD_GATEWAY, message);
        }
        let query = ["level", "mode", "tags"].iter().filter_map(|it| {
            let value = call.query(it)?;
            let is_plain = value.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'_');
            is_plain.then(|| format!("{it}={value}"))
        });
        let query = query.collect::<Vec<_>>().join("&");
        let query = if query.is_empty() { query } else { format!("?{query}") };
        let address = self.shared.settings.host.local_address();
        let url = answer::url(address, port, &format!("/{name}{query}"));
        let request = Request::builder().method(call.method.clone()).uri(url);
        let Ok(request) = request.body(ClientBody::empty()) else {
            return answer::detail(StatusCode::BAD_REQUEST, "the query cannot be forwarded");
        };
        let bounds = Bounds { time: FORWARD_TIMEOUT, bytes: MAX_FORWARDED_BYTES };
        match self.shared.settings.forwarder.fetch(request, bounds).await {
            Ok(answered) => {
                let status = answered.status();
                let json = answered.headers().get(CONTENT_TYPE).cloned();
                let mut response = answer::text(status, answered.into_body());
                if let Some(content_type) = json {
                    response.headers_mut().insert(CONTENT_TYPE, content_type);
                }
                response
            }
            Err(error) => answer::detail(
                StatusCode::BAD_GATEWAY,
                format!("the engine does not answer: {}", gantry_process::error_chain(&error)),
            ),
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

/// Starts an instance and adds it to the table. Only one is started at a time.
async fn create(
    shared: &Arc<Shared>,
    starter: &Starter,
    (id, config): (String, InstanceConfig),
    log_path: PathBuf,
    instances: &mut Tasks,
) -> Result<Value, CreateError> {
    shared.read(|it| it.check_add(&id)).map_err(CreateError::Refused)?;
    let failed = |error: std::io::Error| {
        CreateError::Failed(format!("could not start instance {id}: {error}"))
    };
    let log = LogFile::create(log_path.clone(), MAX_LOG_FILE_BYTES).map_err(failed)?;
    let mark = format!("{}.{:016x}", id, fastrand::u64(..));
    let clock = shared.settings.clock.clone();
    let (process, output) = starter.start(&config, &mark, &clock).await.map_err(failed)?;
    shared.log(&format!("started instance {id} as process {}", process.id()));
    let handle = InstanceHandle { log: log_path, progress: watch::Sender::new(Progress::Kept) };
    let port = config.port();
    let instance =
        Instance { id: id.clone(), mark, port, process, output, log, handle: handle.clone() };
    let state = shared.change(|table| table.add(&id, config));
    shared.handles.lock().unwrap_or_else(PoisonError::into_inner).insert(id, handle);
    let (inner, own) = (Arc::clone(shared), instances.child());
    instances.spawn("instance", OnLoss::CarryOn, move |_| async move {
        instance.run(inner, own).await;
        Ok(())
    });
    Ok(state)
}

fn insert(response: &mut Response<Body>, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

fn not_found(id: &str) -> Response<Body> {
    answer::detail(StatusCode::NOT_FOUND, format!("Instance with ID '{id}' not found"))
}
