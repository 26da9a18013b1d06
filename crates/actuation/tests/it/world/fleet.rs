//! The requesters' stubs, launchers and engines of a simulated cluster.

use std::collections::{BTreeMap, BTreeSet};

use gantry_actuation::calls::{Purpose, read_reply};
use gantry_actuation::labels::{BINDING_HEADER, BOOT_HEADER, INSTANCES_PATH};
use gantry_harness::SimulatedPeer;
use gantry_reconcile::{Call, Reply, Uid};
use jiff::{SignedDuration, Timestamp};

/// The launchers, engines and stubs, with their true state.
#[derive(Clone, Debug)]
pub(crate) struct Fleet {
    /// Whether launchers refuse calls of older bindings.
    pub(crate) is_fenced: bool,
    /// How long an engine takes to answer after its creation.
    pub(crate) start: SignedDuration,
    /// How many calls to sleep each engine refuses, and how many wakes.
    pub(crate) refused_sleeps: u32,
    pub(crate) refused_wakes: u32,
    /// The words of an engine that refuses to wake.
    pub(crate) wake_error: &'static str,
    /// Whether engines have pods of their own. They are awake from their start: no call wakes them
    /// before they are reported as ready.
    pub(crate) is_direct: bool,
    /// Whether launchers do not answer questions.
    pub(crate) is_silent: bool,
    pub(crate) launchers: BTreeMap<Uid, Launcher>,
    /// The direct engines that sleep, or were woken; others are awake from their start.
    pub(crate) direct: BTreeMap<Uid, bool>,
    /// The stubs that are ready.
    pub(crate) ready_stubs: BTreeSet<Uid>,
    /// The requesters for which an engine was created or woken.
    pub(crate) served: BTreeSet<Uid>,
    /// The first requester that was reported as ready before an engine was awake for it.
    pub(crate) ready_unserved: Option<String>,
    /// The first instance that was created twice in one binding.
    pub(crate) created_twice: Option<String>,
    pub(crate) now: Timestamp,
    next_change: Option<Timestamp>,
    creates: BTreeSet<(Uid, u32, String, String)>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Launcher {
    pub(crate) boot: u32,
    /// The counter of the newest binding that it was called for.
    newest: u64,
    /// How many instances it has created, deleted and lost, and when the last time.
    pub(crate) events: (u64, Timestamp),
    pub(crate) instances: BTreeMap<String, Instance>,
}

#[derive(Clone, Debug)]
pub(crate) struct Instance {
    pub(crate) gpus: Vec<String>,
    pub(crate) port: u16,
    pub(crate) config: String,
    pub(crate) is_awake: bool,
    pub(crate) is_stopped: bool,
    /// Whether something beside calls changed it.
    pub(crate) is_disturbed: bool,
    pub(crate) answers_at: Timestamp,
    refused_sleeps: u32,
    refused_wakes: u32,
}

impl Fleet {
    pub(crate) fn new(is_fenced: bool) -> Self {
        Self {
            is_fenced,
            start: SignedDuration::from_secs(2),
            refused_sleeps: 0,
            refused_wakes: 0,
            wake_error: "CUDA error",
            is_direct: false,
            is_silent: false,
            launchers: BTreeMap::new(),
            direct: BTreeMap::new(),
            ready_stubs: BTreeSet::new(),
            served: BTreeSet::new(),
            ready_unserved: None,
            created_twice: None,
            now: Timestamp::UNIX_EPOCH,
            next_change: None,
            creates: BTreeSet::new(),
        }
    }

    pub(crate) fn launcher(&self, uid: &Uid) -> Launcher {
        self.launchers.get(uid).cloned().unwrap_or_default()
    }

    /// Whether the engine of a direct provider is awake.
    pub(crate) fn direct_engine(&self, uid: &Uid) -> bool {
        self.direct.get(uid).copied().unwrap_or(true)
    }

    pub(crate) fn is_sleeping(&self, instance: &Instance) -> Option<bool> {
        let answers = !instance.is_stopped && self.now >= instance.answers_at;
        answers.then_some(!instance.is_awake)
    }

    /// Changes every instance that is awake by something beside calls.
    pub(crate) fn disturb_awake(&mut self, change: fn(&mut Instance)) {
        let all = self.launchers.values_mut().flat_map(|it| it.instances.values_mut());
        for instance in all.filter(|it| it.is_awake) {
            instance.is_disturbed = true;
            change(instance);
        }
    }

    /// Ends every engine that is awake, as its own mistake does.
    pub(crate) fn crash_awake(&mut self) {
        self.disturb_awake(|it| (it.is_awake, it.is_stopped) = (false, true));
        let now = self.now;
        self.launchers.values_mut().for_each(|it| it.events = (it.events.0 + 1, now));
    }

    /// Restarts every launcher: its instances are gone.
    pub(crate) fn restart_launchers(&mut self) {
        for launcher in self.launchers.values_mut() {
            *launcher = Launcher { boot: launcher.boot + 1, ..Launcher::default() };
        }
    }

    fn handle(&mut self, call: &Call) -> (Purpose, u16, &'static str) {
        let purpose = Purpose::from_name(call.purpose).unwrap();
        let uid = call.target.uid.clone();
        let path = call.request["path"].as_str().unwrap().to_owned();
        match purpose {
            Purpose::RelayReady => {
                if !self.served.contains(&uid) && !self.is_direct {
                    let what = format!("{uid} is reported as ready without an engine");
                    self.ready_unserved.get_or_insert(what);
                }
                self.ready_stubs.insert(uid);
                return (purpose, 200, "OK");
            }
            Purpose::RelayUnready => {
                self.ready_stubs.remove(&uid);
                return (purpose, 200, "OK");
            }
            Purpose::ConfigureProxy => return (purpose, 200, ""),
            Purpose::CreateInstance | Purpose::DeleteInstance | Purpose::Sleep | Purpose::Wake => {}
        }
        let header = |name: &str| call.request["headers"][name].as_str().unwrap_or_default();
        let (requester, counter) = header(BINDING_HEADER).rsplit_once('/').unwrap_or_default();
        let below = path.strip_prefix(INSTANCES_PATH).map(|it| it.trim_start_matches('/'));
        if let Some(below) = below {
            let launcher = self.launchers.entry(uid.clone()).or_default();
            if self.is_fenced {
                let counter: u64 = counter.parse().unwrap();
                let boot = header(BOOT_HEADER);
                if counter < launcher.newest || (boot != format!("b{}", launcher.boot)) {
                    return (purpose, 412, "an older binding or another launcher process");
                }
                launcher.newest = counter;
            }
            let id = below.split(['/', '?']).next().unwrap_or_default().to_owned();
            let boot = launcher.boot;
            return match purpose {
                Purpose::CreateInstance => {
                    if launcher.instances.contains_key(&id) {
                        return (purpose, 409, "exists");
                    }
                    let body = &call.request["body"];
                    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
                    let gpus = body["gpu_uuids"].as_array().unwrap().iter().map(text).collect();
                    let annotation = |name: &str| text(&body["annotations"][name]);
                    let instance = Instance {
                        gpus,
                        port: annotation("inference-port").parse().unwrap(),
                        config: annotation("isc-name"),
                        is_awake: true,
                        is_stopped: false,
                        is_disturbed: false,
                        answers_at: self.now + self.start,
                        refused_sleeps: self.refused_sleeps,
                        refused_wakes: self.refused_wakes,
                    };
                    self.next_change = Some(instance.answers_at);
                    launcher.instances.insert(id.clone(), instance);
                    launcher.events = (launcher.events.0 + 1, self.now);
                    self.served.insert(Uid::new(requester));
                    let once = (uid, boot, id.clone(), counter.to_owned());
                    if !self.creates.insert(once) && self.is_fenced {
                        self.created_twice.get_or_insert_with(|| format!("{id} is created twice"));
                    }
                    (purpose, 201, "")
                }
                Purpose::DeleteInstance => match launcher.instances.remove(&id) {
                    Some(_) => {
                        launcher.events = (launcher.events.0 + 1, self.now);
                        (purpose, 200, "")
                    }
                    None => (purpose, 404, ""),
                },
                _ => {
                    let found = launcher.instances.get_mut(&id);
                    let served = found.map(|it| switch(it, purpose, self.now, self.wake_error));
                    self.note(purpose, requester, served)
                }
            };
        }
        let port: u16 = call.target.address.rsplit_once(':').unwrap().1.parse().unwrap();
        if let Some(launcher) = self.launchers.get_mut(&uid) {
            let mut all = launcher.instances.values_mut();
            let found = all.find(|it| it.port == port && !it.is_stopped);
            let served = found.map(|it| switch(it, purpose, self.now, self.wake_error));
            return self.note(purpose, requester, served);
        }
        self.direct.insert(uid, purpose == Purpose::Wake);
        (purpose, 200, "")
    }

    fn note(
        &mut self,
        purpose: Purpose,
        requester: &str,
        answer: Option<(u16, &'static str)>,
    ) -> (Purpose, u16, &'static str) {
        let (status, text) = answer.unwrap_or((404, "no such instance"));
        if purpose == Purpose::Wake && status == 200 {
            self.served.insert(Uid::new(requester));
        }
        (purpose, status, text)
    }
}

/// Puts an instance to sleep, or wakes it.
fn switch(
    instance: &mut Instance,
    purpose: Purpose,
    now: Timestamp,
    wake_error: &'static str,
) -> (u16, &'static str) {
    if instance.is_stopped || now < instance.answers_at {
        return (503, "connection refused");
    }
    let is_wake = purpose == Purpose::Wake;
    let refused = if is_wake { &mut instance.refused_wakes } else { &mut instance.refused_sleeps };
    if *refused > 0 {
        *refused -= 1;
        return (500, if is_wake { wake_error } else { "busy" });
    }
    instance.is_awake = is_wake;
    (200, "")
}

impl SimulatedPeer for Fleet {
    fn call(&mut self, call: &Call, now: Timestamp) -> Reply {
        self.now = now;
        let (purpose, status, text) = self.handle(call);
        read_reply(purpose, status, text.as_bytes())
    }

    fn advance_to(&mut self, now: Timestamp) {
        self.now = now;
        self.next_change = self.next_change.filter(|it| *it > now);
    }

    fn next_change(&self) -> Option<Timestamp> {
        self.next_change
    }
}
