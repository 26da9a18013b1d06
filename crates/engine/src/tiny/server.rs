//! The root process of an engine: its interface, its times and its faults.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use gantry_process::clock::{Clock, Moment};
use gantry_process::tasks::{OnLoss, Tasks};
use gantry_serve::Body;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Response, StatusCode};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use rustix::process::{Signal, getpid, kill_process};
use serde_json::{Value, json};

use super::completion::{CompletionRequest, pieces};
use super::core_child::{CORE_TIMEOUT, done, start_core};
use super::core_process::{CoreReply, CoreRequest, CoreSettings};
use super::fault::{Fault, Faults};
use super::link::Link;
use super::options::{Arguments, Options};
use super::state::{Gate, Serving, SleepMode};
use crate::confinement::EngineSlot;
use crate::detached::Detached;
use crate::exchange::{self, Call, ServerBounds};
use crate::host::Host;

/// The largest request.
const MAX_BODY_BYTES: usize = 1 << 20;
/// How long requests may take when it stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// The exit code of wrong options.
const USAGE_EXIT_CODE: u8 = 2;
/// The exit code of an engine that failed.
const FAILED_EXIT_CODE: u8 = 1;

/// The engine, as its requests see it.
struct Engine {
    options: Options,
    clock: Clock,
    started: Moment,
    gate: Gate,
    /// One at a time sleeps, wakes or generates.
    core: tokio::sync::Mutex<Link>,
    /// One at a time sleeps or wakes.
    transition: tokio::sync::Mutex<()>,
    asleep: AtomicBool,
    wedged: AtomicBool,
    faults: Mutex<Faults>,
    served: AtomicU64,
    fingerprint: String,
    host: Host,
    /// What must not end with its request.
    detached: Detached,
}

/// Runs until the tasks stop, and returns the exit code.
pub async fn run(arguments: Arguments, host: Host, mut tasks: Tasks) -> u8 {
    let options = match Options::resolve(arguments, &host) {
        Ok(options) => options,
        Err(message) => {
            host.log(&message);
            return USAGE_EXIT_CODE;
        }
    };
    match serve(options, &host, &mut tasks).await {
        Ok(()) => 0,
        Err(message) => {
            host.log(&message);
            FAILED_EXIT_CODE
        }
    }
}

async fn serve(options: Options, host: &Host, tasks: &mut Tasks) -> Result<(), String> {
    let (clock, stop) = (tasks.clock().clone(), tasks.token().clone());
    let faults = options.faults.clone();
    let _slot = host.confinement().map(|it| EngineSlot::take(&it)).transpose()?;
    host.log(&format!("loading {} on [{}]", options.model, options.accelerators.join(",")));
    let loading = async {
        let (core, mut link) = start_core(host, &clock, tasks).await?;
        let settings = CoreSettings {
            model: options.model.clone(),
            instance: options.instance.clone(),
            ledgers: host.ledgers(),
            accelerators: options.accelerators.clone(),
            weight_bytes: options.weight_bytes,
            cache_bytes: options.cache_bytes,
            residue_bytes: options.residue_bytes,
        };
        let fingerprint = done(link.ask(&CoreRequest::Load(settings)).await)?;
        let slow = faults.time(Fault::SlowStart);
        clock.sleep(options.load_time + options.move_time() + slow).await;
        Ok::<_, String>((core, link, fingerprint))
    };
    let (core, link, fingerprint) = tokio::select! {
        biased;
        // May be dropped: the core is killed with its group, as it would be by any early end.
        () = stop.cancelled() => return Ok(()),
        loaded = loading => loaded?,
    };
    if faults.has(Fault::CrashBeforeListening) {
        return Err("RuntimeError: fault crash-before-listening".to_owned());
    }
    fill_log(host, faults.count(Fault::FillLog));
    let (address, port) = (options.address, options.port);
    let engine = Arc::new(Engine {
        started: clock.moment(),
        clock: clock.clone(),
        gate: Gate::new(),
        core: tokio::sync::Mutex::new(link),
        transition: tokio::sync::Mutex::default(),
        asleep: AtomicBool::new(false),
        wedged: AtomicBool::new(false),
        faults: Mutex::new(faults.clone()),
        served: AtomicU64::new(0),
        fingerprint,
        host: host.clone(),
        options,
        detached: Detached::new(tasks, DRAIN_TIMEOUT),
    });
    if !faults.has(Fault::NeverListen) {
        let bounds = ServerBounds { max_body_bytes: MAX_BODY_BYTES, drain: DRAIN_TIMEOUT };
        let shared = Arc::clone(&engine);
        let answer = move |call: Call| {
            let engine = Arc::clone(&shared);
            async move { engine.answer(call).await }
        };
        let listening =
            exchange::listen(tasks, "engine", (address, port).into(), bounds, answer).await;
        listening.map_err(|error| gantry_process::error_chain(&error))?;
        host.log(&format!("listening on {address}:{port}"));
        (host.set_ready)(true);
    }
    if faults.has(Fault::CrashAfter) {
        let (time, clock) = (faults.time(Fault::CrashAfter), clock.clone());
        tasks.spawn("crash", OnLoss::CarryOn, move |_| async move {
            clock.sleep(time).await;
            crash();
            Ok(())
        });
    }
    stop.cancelled().await;
    if faults.has(Fault::IgnoreTerminate) {
        host.log("fault ignore-terminate");
        std::future::pending::<()>().await;
    }
    if faults.has(Fault::LeaveChild) {
        crash();
    }
    while tasks.join().await.is_err() {}
    let mut link = engine.core.lock().await;
    // A core that does not answer is killed when it is dropped.
    let ended = clock.timeout(CORE_TIMEOUT, link.ask::<CoreReply>(&CoreRequest::End)).await;
    if !matches!(ended, Ok(Ok(_))) {
        host.log("the engine core did not give its memory back");
    }
    drop(core);
    Ok(())
}

/// Ends this process as a crash does: nothing is cleaned up, and children live on.
fn crash() {
    let _ = kill_process(getpid(), Signal::KILL);
}

fn fill_log(host: &Host, bytes: u64) {
    let line = [b'x'; 1023];
    let mut left = bytes;
    while left > 0 {
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(line.len());
        let _ = (host.output)(&[&line[..count], b"\n"].concat());
        left = left.saturating_sub(1024);
    }
}

impl Engine {
    async fn answer(self: Arc<Self>, call: Call) -> Response<Body> {
        let (get, post) = (call.method == Method::GET, call.method == Method::POST);
        let admin = self.options.developer_mode || self.options.startup_delay.is_some();
        match call.path.as_str() {
            "/health" if get => match self.is_started() {
                true => exchange::text(StatusCode::OK, ""),
                false => exchange::text(StatusCode::SERVICE_UNAVAILABLE, "starting\n"),
            },
            "/v1/models" if get => {
                let model = |name: &String| {
                    json!({
                        "id": name, "object": "model", "owned_by": "gantry",
                        "root": self.options.model,
                    })
                };
                let all: Vec<Value> = self.options.names.iter().map(model).collect();
                exchange::json(StatusCode::OK, &json!({"object": "list", "data": all}))
            }
            "/metrics" if get => self.metrics(),
            "/v1/completions" | "/v1/chat/completions" if post => self.complete(&call).await,
            "/is_sleeping" if get && admin => {
                let asleep = self.asleep.load(Ordering::SeqCst);
                exchange::json(StatusCode::OK, &json!({"is_sleeping": asleep}))
            }
            "/sleep" if post && admin => {
                let engine = Arc::clone(&self);
                self.detach(async move { engine.sleep(&call).await }).await
            }
            "/wake_up" if post && admin => {
                let engine = Arc::clone(&self);
                self.detach(async move { engine.wake().await }).await
            }
            "/is_sleeping" | "/sleep" | "/wake_up" if admin => {
                exchange::detail(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed")
            }
            "/health" | "/v1/models" | "/metrics" | "/v1/completions" | "/v1/chat/completions" => {
                exchange::detail(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed")
            }
            _ => exchange::detail(StatusCode::NOT_FOUND, "Not Found"),
        }
    }

    /// Does what goes on when its client is gone.
    async fn detach(
        &self,
        work: impl Future<Output = Response<Body>> + Send + 'static,
    ) -> Response<Body> {
        let stopping =
            || exchange::detail(StatusCode::SERVICE_UNAVAILABLE, "the engine is stopping");
        self.detached.run(work).await.unwrap_or_else(stopping)
    }

    fn is_started(&self) -> bool {
        let delay = self.options.startup_delay.unwrap_or_default();
        self.clock.moment() >= self.started + delay
    }

    fn consume(&self, fault: Fault) -> bool {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).consume(fault)
    }

    fn fault_time(&self, fault: Fault) -> Duration {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).time(fault)
    }

    fn metrics(&self) -> Response<Body> {
        let text = format!(
            "# TYPE vllm:num_requests_running gauge\n\
             vllm:num_requests_running{{model_name=\"{model}\"}} {running}\n\
             # TYPE vllm:request_success counter\n\
             vllm:request_success_total{{model_name=\"{model}\"}} {served}\n\
             # TYPE vllm:engine_sleep_state gauge\n\
             vllm:engine_sleep_state{{model_name=\"{model}\"}} {asleep}\n",
            model = self.options.names.first().map_or("", String::as_str),
            running = self.gate.under_way(),
            served = self.served.load(Ordering::SeqCst),
            asleep = u8::from(self.asleep.load(Ordering::SeqCst)),
        );
        exchange::text(StatusCode::OK, text)
    }

    async fn sleep(&self, call: &Call) -> Response<Body> {
        let bad = |message: String| exchange::detail(StatusCode::BAD_REQUEST, message);
        let level = match call.query("level").as_deref() {
            None => 1,
            Some(text) => match text.parse() {
                Ok(level @ 0..=2) => level,
                Ok(_) | Err(_) => return bad(format!("level {text:?} is not 0, 1 or 2")),
            },
        };
        let mode = match SleepMode::parse(call.query("mode").as_deref()) {
            Ok(mode) => mode,
            Err(message) => return bad(message),
        };
        if mode != SleepMode::Wait {
            self.gate.end_drain(mode);
        }
        let _turn = self.transition.lock().await;
        if self.asleep.load(Ordering::SeqCst) {
            self.host.log("WARNING: the engine is asleep already");
            return exchange::text(StatusCode::OK, "");
        }
        self.host.log(&format!("going to sleep, level {level}"));
        if self.consume(Fault::CrashInSleep) {
            crash();
        }
        if self.consume(Fault::RefuseSleep) {
            return exchange::detail(StatusCode::INTERNAL_SERVER_ERROR, "fault refuse-sleep");
        }
        if mode == SleepMode::Wait {
            self.gate.set(Serving::Draining, mode);
            self.gate.drain().await;
            self.gate.end_drain(mode);
        } else {
            self.gate.set(Serving::Asleep, mode);
        }
        // Level 0 pauses, and moves nothing.
        if level > 0 {
            let options = &self.options;
            let slow = self.fault_time(Fault::SlowSleep);
            self.clock.sleep(options.sleep_time + options.move_time() + slow).await;
            let reply = self.core.lock().await.ask(&CoreRequest::Sleep { level }).await;
            if let Err(message) = done(reply) {
                self.gate.set(Serving::Awake, mode);
                return exchange::detail(StatusCode::INTERNAL_SERVER_ERROR, message);
            }
        }
        self.asleep.store(true, Ordering::SeqCst);
        exchange::text(StatusCode::OK, "")
    }

    async fn wake(&self) -> Response<Body> {
        let _turn = self.transition.lock().await;
        if !self.asleep.load(Ordering::SeqCst) {
            self.host.log("WARNING: the engine is awake already");
            return exchange::text(StatusCode::OK, "");
        }
        if self.consume(Fault::CrashInWake) {
            crash();
        }
        let no_memory = "CUDA out of memory: fault refuse-wake".to_owned();
        let woken = if self.wedged.load(Ordering::SeqCst) || self.consume(Fault::RefuseWake) {
            Err(no_memory)
        } else {
            let taken = done(self.core.lock().await.ask(&CoreRequest::Wake).await).map(drop);
            let options = &self.options;
            let slow = self.fault_time(Fault::SlowWake);
            if taken.is_ok() {
                self.clock.sleep(options.wake_time + options.move_time() + slow).await;
            }
            taken
        };
        match woken {
            Ok(()) => {
                self.asleep.store(false, Ordering::SeqCst);
                self.gate.set(Serving::Awake, SleepMode::Abort);
                exchange::text(StatusCode::OK, "")
            }
            Err(message) => {
                self.host.log(&format!("could not wake: {message}"));
                if self.options.faults.has(Fault::WedgeAfterWake) {
                    self.wedged.store(true, Ordering::SeqCst);
                }
                exchange::detail(StatusCode::INTERNAL_SERVER_ERROR, message)
            }
        }
    }

    /// Answers a prompt. While the engine sleeps this waits, as large engines do.
    async fn complete(self: Arc<Self>, call: &Call) -> Response<Body> {
        let error = |status: StatusCode, message: String| {
            exchange::json(status, &json!({"error": {"message": message, "code": status.as_u16()}}))
        };
        let request = match CompletionRequest::parse(call, &self.options.names) {
            Ok(request) => request,
            Err((status, message)) => return error(status, message),
        };
        let id = format!("cmpl-{:016x}", fastrand::u64(..));
        if !request.stream {
            let mut all = String::new();
            let passage = self.gate.enter().await;
            let text = match self.generate(&request).await {
                Ok(text) => text,
                Err(message) => return error(StatusCode::INTERNAL_SERVER_ERROR, message),
            };
            for piece in pieces(&text) {
                if !self.next_token().await {
                    return exchange::json(
                        StatusCode::OK,
                        &self.choice(&request, &id, &all, "abort"),
                    );
                }
                all.push_str(piece);
            }
            drop(passage);
            self.served.fetch_add(1, Ordering::SeqCst);
            return exchange::json(StatusCode::OK, &self.choice(&request, &id, &all, "length"));
        }
        let events = stream::once(async move { self.stream(request, id).await });
        let events = futures_util::StreamExt::flatten(events);
        let body = StreamBody::new(events).boxed_unsync();
        let mut response = Response::new(body);
        let event_stream = HeaderValue::from_static("text/event-stream; charset=utf-8");
        response.headers_mut().insert(CONTENT_TYPE, event_stream);
        response
    }

    async fn generate(self: &Arc<Self>, request: &CompletionRequest) -> Result<String, String> {
        let asked =
            CoreRequest::Generate { prompt: request.prompt.clone(), count: request.max_tokens };
        let engine = Arc::clone(self);
        // A reply that nobody waits for would be taken for that of the next request.
        let asked = async move { engine.core.lock().await.ask(&asked).await };
        match self.detached.run(asked).await {
            Some(Ok(CoreReply::Text { text })) => Ok(text),
            Some(other) => done(other).map(|_| String::new()),
            None => Err("the engine is stopping".to_owned()),
        }
    }

    /// Waits for the time of a token; returns whether the request goes on.
    async fn next_token(&self) -> bool {
        if !self.options.token_time.is_zero() {
            self.clock.sleep(self.options.token_time).await;
        }
        self.gate.go_on().await
    }

    async fn stream(
        self: Arc<Self>,
        request: CompletionRequest,
        id: String,
    ) -> impl stream::Stream<Item = std::io::Result<Frame<Bytes>>> + use<> {
        let passage = SharedPassage::enter(Arc::clone(&self)).await;
        let generated = self.generate(&request).await;
        let pieces: Vec<String> = match &generated {
            Ok(text) => pieces(text).map(str::to_owned).collect(),
            Err(_) => Vec::new(),
        };
        let state = (self, request, id, pieces.into_iter(), Some(passage), generated.err());
        stream::unfold(state, |state| async move {
            let (engine, request, id, mut pieces, passage, failed) = state;
            let passage = passage?;
            if let Some(message) = failed {
                let event = format!("data: {}\n\n", json!({"error": {"message": message}}));
                let state = (engine, request, id, pieces, None, None);
                return Some((Ok(Frame::data(event.into())), state));
            }
            let event = |value: Value| format!("data: {value}\n\n");
            let (text, left) = match pieces.next() {
                Some(piece) if engine.next_token().await => {
                    let chunk = engine.choice(&request, &id, &piece, "");
                    (event(chunk), Some(passage))
                }
                Some(_) => (event(engine.choice(&request, &id, "", "abort")), None),
                None => {
                    engine.served.fetch_add(1, Ordering::SeqCst);
                    let last = event(engine.choice(&request, &id, "", "length"));
                    (format!("{last}data: [DONE]\n\n"), None)
                }
            };
            Some((Ok(Frame::data(text.into())), (engine, request, id, pieces, left, None)))
        })
    }

    fn choice(&self, request: &CompletionRequest, id: &str, text: &str, end: &str) -> Value {
        let created = self.clock.now().as_second();
        request.response(id, created, &self.fingerprint, text, end)
    }
}

/// A request under way whose response is a stream: it has the engine as long as the stream lives.
struct SharedPassage(Arc<Engine>);

impl SharedPassage {
    async fn enter(engine: Arc<Engine>) -> Self {
        engine.gate.enter_owned().await;
        Self(engine)
    }
}

impl Drop for SharedPassage {
    fn drop(&mut self) {
        self.0.gate.leave();
    }
}
