//! What the controllers read beside objects: the scales of what autoscalers move.

use std::fmt;
use std::sync::Arc;

use gantry_controller::discovery;
use gantry_controller::external::{
    AnyInquiry, BoxFuture, InquiryWithResponder, Responder, ResponderContext,
};
use gantry_controller::read::{self, ReadBounds};
use gantry_process::clock::Clock;
use gantry_reconcile::{ApiPath, Uid};
use jiff::SignedDuration;
use kube::Client;

use crate::autoscaling::{READ_TIMEOUT, ScaleInquiry};
use crate::view::{AutoscalerTarget, Scale, ScaleTarget, TargetScale};

/// The limits of reading one scale.
const SCALE_BOUNDS: ReadBounds = ReadBounds { time: READ_TIMEOUT, bytes: 1 << 20 };
/// The limits of reading the discovery document of a group and version.
const DISCOVERY_BOUNDS: ReadBounds =
    ReadBounds { time: READ_TIMEOUT, bytes: discovery::DISCOVERY_BOUNDS.bytes };

/// Creates the inquiry that reads the scales of autoscaler targets through this client, as often as
/// usage is sampled.
#[must_use]
pub fn scale_inquiry(client: Client, clock: Clock, window: SignedDuration) -> Arc<dyn AnyInquiry> {
    Arc::new(InquiryWithResponder::new(ScaleInquiry::new(window), ScaleReader { client, clock }))
}

/// Reads scales, with the permissions of its client.
struct ScaleReader {
    client: Client,
    clock: Clock,
}

impl fmt::Debug for ScaleReader {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("ScaleReader")
    }
}

impl Responder<TargetScale> for ScaleReader {
    fn answer<'a>(
        &'a self,
        target: &'a AutoscalerTarget,
        _: &'a ResponderContext,
    ) -> BoxFuture<'a, Result<TargetScale, String>> {
        Box::pin(async move { Ok(self.scale(target).await) })
    }
}

impl ScaleReader {
    /// Reads the scale of a target within the timeout; the result includes why that failed.
    async fn scale(&self, target: &AutoscalerTarget) -> TargetScale {
        let read = self.clock.timeout(READ_TIMEOUT, self.read(target)).await;
        let late = || format!("no response within {} seconds", READ_TIMEOUT.as_secs());
        TargetScale(read.unwrap_or_else(|_| Err(late())))
    }

    /// Reads the scale of a target.
    async fn read(&self, target: &AutoscalerTarget) -> Result<Scale, String> {
        let AutoscalerTarget { namespace, target: ScaleTarget { api_version, kind, name } } =
            target;
        let (group, _) = api_version.split_once('/').unwrap_or(("", api_version));
        let served = (api_version.as_str(), kind.as_str());
        let served = discovery::find(&self.client, &self.clock, served, DISCOVERY_BOUNDS).await;
        let served = served.map_err(|error| error.to_string())?;
        let served =
            served.ok_or_else(|| format!("no matches for kind \"{kind}\" in group \"{group}\""))?;
        let plural = &served.resource.plural;
        let path = ApiPath::object(api_version, namespace, plural, name);
        let path = path.map_err(|invalid| invalid.to_string())?.subresource("scale");
        let scale = read::get(&self.client, &self.clock, &path, SCALE_BOUNDS).await;
        let scale = scale.map_err(|error| error.to_string())?;
        let count = |part: &str| scale[part]["replicas"].as_i64().unwrap_or_default();
        Ok(Scale {
            plural: plural.to_string(),
            uid: Uid::new(scale["metadata"]["uid"].as_str().unwrap_or_default()),
            spec_replicas: count("spec"),
            status_replicas: count("status"),
            selector: scale["status"]["selector"].as_str().unwrap_or_default().to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use gantry_controller::transport::in_process;
    use gantry_process::clock::FakeClock;
    use http::{Request, Response, StatusCode};
    use http_body_util::Full;
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;

    fn reader(clock: Clock) -> ScaleReader {
        let client = in_process(|request: Request<Bytes>| async move {
            let (code, body) = match request.uri().path() {
                "/apis/apps/v1" => (
                    200,
                    json!({"resources": [
                        {"name": "deployments/scale", "kind": "Scale", "namespaced": true, "verbs": []},
                        {"name": "deployments", "kind": "Deployment", "namespaced": true, "verbs": []},
                    ]}),
                ),
                "/apis/apps/v1/namespaces/n/deployments/web/scale" => (
                    200,
                    json!({"metadata": {"uid": "u"}, "spec": {"replicas": 3},
                        "status": {"replicas": 2, "selector": "app=web"}}),
                ),
                "/apis/apps/v1/namespaces/n/deployments/slow/scale" => std::future::pending().await,
                "/apis/closed/v1" => (403, json!({"message": "not for you"})),
                path => (404, json!({"message": format!("{path} not found")})),
            };
            let mut answer = Response::new(Full::new(Bytes::from(body.to_string())));
            *answer.status_mut() = StatusCode::from_u16(code).unwrap();
            answer
        });
        ScaleReader { client, clock }
    }

    fn target(api_version: &str, kind: &str, name: &str) -> AutoscalerTarget {
        let [api_version, kind, name] = [api_version, kind, name].map(str::to_owned);
        let target = ScaleTarget { api_version, kind, name };
        AutoscalerTarget { namespace: "n".to_owned(), target }
    }

    #[tokio::test]
    async fn scales_are_read_and_errors_are_reported() {
        let reader = reader(Clock::system());
        let web = Scale {
            plural: "deployments".to_owned(),
            uid: Uid::new("u"),
            spec_replicas: 3,
            status_replicas: 2,
            selector: "app=web".to_owned(),
        };
        let missing = "/apis/apps/v1/namespaces/n/deployments/none/scale not found";
        let table = [
            ("apps/v1", "Deployment", "web", Ok(web)),
            ("apps/v1", "Deployment", "none", Err(missing)),
            ("apps/v1", "Scale", "web", Err("no matches for kind \"Scale\" in group \"apps\"")),
            ("gone/v1", "X", "x", Err("no matches for kind \"X\" in group \"gone\"")),
            ("closed/v1", "X", "x", Err("not for you")),
        ];
        for (version, kind, name, expected) in table {
            let target = target(version, kind, name);
            let read = reader.scale(&target).await;
            assert_eq!(read.0, expected.map_err(str::to_owned), "{target:?}");
        }
    }

    #[tokio::test]
    async fn reading_a_scale_times_out() {
        let hand = FakeClock::at(Timestamp::UNIX_EPOCH);
        let (reader, slow) = (reader(hand.clock()), target("apps/v1", "Deployment", "slow"));
        let wait = READ_TIMEOUT + std::time::Duration::from_secs(1);
        let (read, ()) = tokio::join!(reader.scale(&slow), hand.advance(wait));
        let why = read.0.unwrap_err();
        assert!(why.contains("timed out waiting for the response"), "{why}");
    }
}
