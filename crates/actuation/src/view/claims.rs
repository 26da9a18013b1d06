//! The devices that a requester's claims were given.

use std::collections::BTreeMap;

use gantry_api::devices::{DEVICE_CLAIMS_ANNOTATION, POD_DEVICES_ANNOTATION};
use gantry_reconcile::Uid;
use serde::Deserialize;
use serde_json::Value;

use crate::labels::INFERENCE_SERVER;

/// Annotation of a pod with DeviceClaims, written when it is bound: the devices of each container.
const ALLOCATIONS_ANNOTATION: &str = "devmgmtproto.k8s.io/device-allocations";

/// How many devices of a pool of identical ones are distinguished.
const MAX_IDENTICAL_DEVICES: u32 = 1024;

/// The claims of a requester's container `inference-server`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequesterClaims {
    /// The devices of its DeviceClaims; `None` without such claims.
    pub device_claims: Option<Allocation>,
    /// The ResourceClaims that it uses.
    pub resource_claims: Vec<UsedResourceClaim>,
}

/// What DeviceClaims were given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// Nothing yet.
    Pending,
    /// These devices.
    Devices(Vec<ClaimedDevice>),
    /// The annotation cannot be read.
    Unreadable(String),
}

/// A device of a claim, or several of a pool of identical ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(default)]
pub struct ClaimedDevice {
    /// The pool.
    pub pool: String,
    /// The device; empty in a pool of identical ones.
    pub device: String,
    /// How many of them.
    pub count: Option<u32>,
}

/// A ResourceClaim that a container uses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UsedResourceClaim {
    /// Its name in the pod.
    pub entry: String,
    /// The name of the claim; `None` until it is made.
    pub name: Option<String>,
    /// The request in it; empty for all.
    pub request: String,
}

impl RequesterClaims {
    /// Reads the claims of a pod.
    pub(super) fn read(
        annotations: &BTreeMap<String, String>,
        spec: &Value,
        statuses: &Value,
    ) -> Self {
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let named = |all: &[Value], name: &Value| {
            let found = all.iter().find(|it| it["name"] == *name);
            found.and_then(|it| it["resourceClaimName"].as_str().map(str::to_owned))
        };
        let has = |key: &str| annotations.get(key).is_some_and(|it| !it.is_empty());
        let is_managed = has(DEVICE_CLAIMS_ANNOTATION)
            || has(POD_DEVICES_ANNOTATION)
            || !list(&spec["deviceClaims"]).is_empty();
        let containers = list(&spec["containers"]);
        let server = containers.iter().find(|it| it["name"] == INFERENCE_SERVER);
        let used = server.map(|it| list(&it["resources"]["claims"])).unwrap_or_default();
        let (entries, made) = (list(&spec["resourceClaims"]), list(statuses));
        let resource_claims = used.iter().map(|it| UsedResourceClaim {
            entry: it["name"].as_str().unwrap_or_default().to_owned(),
            name: named(&entries, &it["name"]).or_else(|| named(&made, &it["name"])),
            request: it["request"].as_str().unwrap_or_default().to_owned(),
        });
        Self {
            device_claims: is_managed.then(|| Allocation::read(annotations)),
            resource_claims: resource_claims.collect(),
        }
    }
}

impl Allocation {
    fn read(annotations: &BTreeMap<String, String>) -> Self {
        let Some(text) = annotations.get(ALLOCATIONS_ANNOTATION).filter(|it| !it.is_empty()) else {
            return Self::Pending;
        };
        match serde_json::from_str::<BTreeMap<String, Vec<ClaimedDevice>>>(text) {
            Ok(mut all) => Self::Devices(all.remove(INFERENCE_SERVER).unwrap_or_default()),
            Err(error) => Self::Unreadable(format!("annotation {ALLOCATIONS_ANNOTATION}: {error}")),
        }
    }
}

impl ClaimedDevice {
    /// The names that the stub may have for it, one list for each device.
    fn names(&self) -> Vec<Vec<String>> {
        let Self { pool, device, count } = self;
        match device.as_str() {
            "" => {
                let count = count.unwrap_or(1).min(MAX_IDENTICAL_DEVICES);
                (0..count).map(|it| vec![format!("{pool}-{it}")]).collect()
            }
            name => vec![vec![name.to_owned(), format!("{pool}/{name}")]],
        }
    }
}

/// Reads the devices that a ResourceClaim was given for a request of a pod.
///
/// # Errors
/// It was given none, or not for this pod.
pub fn read_resource_claim(
    claim: &Value,
    pod: &Uid,
    request: &str,
) -> Result<Vec<ClaimedDevice>, String> {
    let name = claim["metadata"]["name"].as_str().unwrap_or_default();
    let reserved = claim["status"]["reservedFor"].as_array().into_iter().flatten();
    if !reserved.into_iter().any(|it| it["uid"] == pod.as_str()) {
        return Err(format!("ResourceClaim {name} is not reserved for the requester"));
    }
    let results = &claim["status"]["allocation"]["devices"]["results"];
    let Some(results) = results.as_array() else {
        return Err(format!("ResourceClaim {name} is not allocated"));
    };
    // The result of alternatives is `request/alternative`.
    let is_of = |it: &&Value| {
        let of = it["request"].as_str().unwrap_or_default();
        request.is_empty() || of.split('/').next() == Some(request)
    };
    let text = |it: &Value, field: &str| it[field].as_str().unwrap_or_default().to_owned();
    let device = |it: &Value| ClaimedDevice {
        pool: text(it, "pool"),
        device: text(it, "device"),
        count: None,
    };
    Ok(results.iter().filter(is_of).map(device).collect())
}

/// The accelerators that claims were given, in their order and with the names by which the stub
/// reports them.
///
/// # Errors
/// What differs between the claims and the report of the stub.
pub fn agreed_accelerators(
    claimed: &[ClaimedDevice],
    reported: &[String],
) -> Result<Vec<String>, String> {
    let (mut agreed, mut missing) = (Vec::new(), Vec::new());
    for names in claimed.iter().flat_map(ClaimedDevice::names) {
        match names.iter().find(|it| reported.contains(it)) {
            Some(name) => agreed.push(name.clone()),
            None => missing.extend(names.last().cloned()),
        }
    }
    let more: Vec<&str> =
        reported.iter().filter(|it| !agreed.contains(it)).map(String::as_str).collect();
    if missing.is_empty() && more.is_empty() {
        return Ok(agreed);
    }
    let part = |what: &str, names: String| match names.is_empty() {
        true => String::new(),
        false => format!("; {what}: {names}"),
    };
    Err(format!(
        "the accelerators of the claims differ from those that the requester reports{}{}; \
         check its claims and its container {INFERENCE_SERVER}",
        part("only in the claims", missing.join(", ")),
        part("only reported", more.join(", ")),
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fd_15_claims_are_read_for_the_container_that_serves() {
        let spec = json!({
            "containers": [
                {"name": "side", "resources": {"claims": [{"name": "net"}]}},
                {"name": "inference-server", "resources": {"claims": [
                    {"name": "gpu"}, {"name": "made", "request": "one"}, {"name": "late"}]}},
            ],
            "resourceClaims": [
                {"name": "gpu", "resourceClaimName": "mine"},
                {"name": "made", "resourceClaimTemplateName": "t"},
                {"name": "late", "resourceClaimTemplateName": "t"},
                {"name": "net", "resourceClaimName": "net"},
            ],
        });
        let statuses = json!([{"name": "made", "resourceClaimName": "r-made-x"}]);
        let claims = RequesterClaims::read(&BTreeMap::new(), &spec, &statuses);
        let used = |entry: &str, name: Option<&str>, request: &str| UsedResourceClaim {
            entry: entry.to_owned(),
            name: name.map(str::to_owned),
            request: request.to_owned(),
        };
        let expected = [
            used("gpu", Some("mine"), ""),
            used("made", Some("r-made-x"), "one"),
            used("late", None, ""),
        ];
        assert_eq!(
            claims,
            RequesterClaims { device_claims: None, resource_claims: expected.into() }
        );
        assert_eq!(
            RequesterClaims::read(&BTreeMap::new(), &Value::Null, &Value::Null),
            RequesterClaims::default()
        );
    }

    #[test]
    fn fd_15_device_claims_are_read_from_what_the_scheduler_wrote() {
        let of = |annotations: &[(&str, &str)], spec: &Value| {
            let annotations =
                annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            RequesterClaims::read(&annotations.collect(), spec, &Value::Null).device_claims
        };
        let claims = (DEVICE_CLAIMS_ANNOTATION, "[]");
        assert_eq!(of(&[claims], &Value::Null), Some(Allocation::Pending));
        assert_eq!(of(&[(POD_DEVICES_ANNOTATION, "d")], &Value::Null), Some(Allocation::Pending));
        let spec = json!({"deviceClaims": [{"claimName": "c"}]});
        assert_eq!(of(&[], &spec), Some(Allocation::Pending));
        let written = r#"{"inference-server": [{"driver": "d", "pool": "p", "claim": "c", "device": "g"}],
            "side": [{"pool": "q", "count": 2}]}"#;
        let device = ClaimedDevice { pool: "p".to_owned(), device: "g".to_owned(), count: None };
        let expected = Allocation::Devices(vec![device]);
        assert_eq!(of(&[claims, (ALLOCATIONS_ANNOTATION, written)], &Value::Null), Some(expected));
        let bad = of(&[claims, (ALLOCATIONS_ANNOTATION, "[")], &Value::Null);
        assert!(matches!(bad, Some(Allocation::Unreadable(_))), "{bad:?}");
    }

    #[test]
    fn fd_15_resource_claims_count_if_they_are_reserved_for_the_requester() {
        let result = |request: &str, device: &str| json!({"request": request, "driver": "d", "pool": "p", "device": device});
        let results = [result("one", "a"), result("two/x", "b")];
        let mut claim = json!({
            "metadata": {"name": "c"},
            "status": {"reservedFor": [{"resource": "pods", "name": "r", "uid": "u"}]},
        });
        let read = |claim: &Value, pod: &str, request: &str| {
            let devices = read_resource_claim(claim, &Uid::new(pod), request);
            devices.map(|all| all.into_iter().map(|it| it.device).collect::<Vec<_>>())
        };
        assert!(read(&claim, "u", "").unwrap_err().contains("is not allocated"));
        claim["status"]["allocation"] = json!({"devices": {"results": results}});
        assert_eq!(read(&claim, "u", ""), Ok(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(read(&claim, "u", "two"), Ok(vec!["b".to_owned()]));
        assert!(read(&claim, "other", "").unwrap_err().contains("not reserved"));
    }

    #[test]
    fn fd_15_claims_decide_and_the_stub_must_agree() {
        let device = |pool: &str, device: &str, count: Option<u32>| ClaimedDevice {
            pool: pool.to_owned(),
            device: device.to_owned(),
            count,
        };
        let uuids = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        let claimed = [device("p", "g1", None), device("p", "GPU-0", None)];
        let agreed = agreed_accelerators(&claimed, &uuids(&["GPU-0", "p/g1"]));
        assert_eq!(agreed, Ok(uuids(&["p/g1", "GPU-0"])), "in the order of the claims");
        let agreed = agreed_accelerators(&[device("q", "", Some(2))], &uuids(&["q-1", "q-0"]));
        assert_eq!(agreed, Ok(uuids(&["q-0", "q-1"])));
        let error = agreed_accelerators(&claimed, &uuids(&["GPU-0", "GPU-7"])).unwrap_err();
        assert!(error.contains("only in the claims: p/g1; only reported: GPU-7"), "{error}");
        assert!(agreed_accelerators(&claimed, &[]).is_err());
        assert!(agreed_accelerators(&[], &uuids(&["GPU-0"])).is_err());
    }
}
