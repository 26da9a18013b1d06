//! The places of accelerators on a launcher's node, by UUID.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use gantry_process::clock::Clock;
use http::Method;

use super::Arguments;
use crate::allocation::{self, MAP_NAME};
use crate::executable;
use crate::host::Host;
use crate::kubernetes::request;
use crate::ledger::Ledger;
use crate::vendor_tool;

/// The variable with the places of accelerators, as an item of `gpu-map` has them: for a launcher
/// that cannot read that itself.
pub const MAP_VARIABLE: &str = "GANTRY_ACCELERATOR_MAP";

/// The places of accelerators, by UUID.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AcceleratorMap {
    places: BTreeMap<String, u32>,
    /// Where accelerators are described that are used later.
    ledgers: Option<PathBuf>,
}

/// A UUID that no accelerator of the node has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("GPU UUID {0} is not on this node")]
pub(super) struct UnknownAccelerator(String);

impl AcceleratorMap {
    /// Finds the accelerators: in ConfigMap `gpu-map`, invented, or by the vendor tool.
    pub(super) async fn find(
        arguments: &Arguments,
        host: &Host,
        clock: &Clock,
    ) -> Result<Self, String> {
        let given = host.variable(MAP_VARIABLE).and_then(|it| serde_json::from_str(it).ok());
        let places = match (given, arguments.mock_gpus) {
            (Some(places), _) => places,
            (None, true) => match Self::of_config_map(host).await {
                Some(places) => places,
                // Those that somebody described on this node are no other ones.
                None => match Self::described(host) {
                    places if places.is_empty() => Self::invented(arguments.mock_gpu_count),
                    places => places,
                },
            },
            (None, false) => Self::of_vendor_tool(host, clock).await,
        };
        let map = Self { places, ledgers: host.ledgers() };
        if let Some(directory) = &map.ledgers {
            for (uuid, index) in &map.places {
                let described = Ledger::of(directory, uuid)
                    .and_then(|it| it.describe(*index, host.default_capacity()));
                described.map_err(|error| gantry_process::error_chain(&error))?;
            }
        }
        Ok(map)
    }

    async fn of_config_map(host: &Host) -> Option<BTreeMap<String, u32>> {
        let (node, namespace) = (host.pod.node.as_deref()?, host.pod.namespace.as_deref()?);
        let api = host.kubernetes.as_deref()?;
        let path = format!("/api/v1/namespaces/{namespace}/configmaps/{MAP_NAME}");
        match request(api, Method::GET, &path, "application/json", None).await {
            Ok(map) => {
                let found = allocation::accelerators_of(&map, node);
                (!found.is_empty()).then_some(found)
            }
            Err(error) => {
                host.log(&format!("accelerators are invented: {error}"));
                None
            }
        }
    }

    /// Returns the accelerators of the node's ledgers.
    fn described(host: &Host) -> BTreeMap<String, u32> {
        let Some(directory) = host.ledgers() else { return BTreeMap::new() };
        let read = |it: Ledger| Some((it.uuid().to_owned(), it.read().ok()?.accelerator.index));
        let all = Ledger::all(&directory).unwrap_or_else(|error| {
            host.log(&format!("no accelerators: {}", gantry_process::error_chain(&error)));
            Vec::new()
        });
        all.into_iter().filter_map(read).collect()
    }

    fn invented(count: u32) -> BTreeMap<String, u32> {
        (0..count).map(|it| (format!("GPU-{it}"), it)).collect()
    }

    async fn of_vendor_tool(host: &Host, clock: &Clock) -> BTreeMap<String, u32> {
        let query = ["--query-gpu=index,uuid".to_owned(), "--format=csv,noheader".to_owned()];
        let printed = match host.ledgers() {
            Some(directory) => {
                vendor_tool::run(&query, Some(&directory), None).map_err(|error| error.to_string())
            }
            None => match executable::run_vendor_tool(host, clock, &query).await {
                Ok((0, text)) => Ok(text),
                Ok((code, text)) => Err(format!("nvidia-smi failed with code {code}: {text}")),
                Err(error) => Err(error.to_string()),
            },
        };
        match printed {
            Ok(text) => text.lines().filter_map(place).collect(),
            Err(message) => {
                host.log(&format!("no accelerators: {message}"));
                BTreeMap::new()
            }
        }
    }

    /// Returns the places of accelerators, in their order, as an environment has them.
    pub(super) fn places(&self, uuids: &[String]) -> Result<String, UnknownAccelerator> {
        let described = |uuid: &str| {
            let ledger = Ledger::find(self.ledgers.as_deref()?, uuid)?;
            Some(ledger.read().ok()?.accelerator.index)
        };
        let place = |uuid: &String| {
            let found = self.places.get(uuid).copied().or_else(|| described(uuid));
            found.map(|it| it.to_string()).ok_or_else(|| UnknownAccelerator(uuid.clone()))
        };
        Ok(uuids.iter().map(place).collect::<Result<Vec<_>, _>>()?.join(","))
    }
}

/// Reads a line of the vendor tool: place and UUID.
fn place(line: &str) -> Option<(String, u32)> {
    let (index, uuid) = line.split_once(',')?;
    Some((uuid.trim().to_owned(), index.trim().parse().ok()?))
}

impl fmt::Display for AcceleratorMap {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs: Vec<String> =
            self.places.iter().map(|(uuid, at)| format!("{uuid}={at}")).collect();
        to.write_str(if pairs.is_empty() { "none" } else { "" })?;
        to.write_str(&pairs.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_61_uuids_become_places_in_their_order() {
        let map = AcceleratorMap { places: AcceleratorMap::invented(3), ledgers: None };
        let uuids = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(map.places(&uuids("GPU-2 GPU-0")).unwrap(), "2,0");
        assert_eq!(map.places(&[]).unwrap(), "");
        let unknown = map.places(&uuids("GPU-0 GPU-9")).unwrap_err();
        assert_eq!(unknown, UnknownAccelerator("GPU-9".into()));
        assert_eq!(place("1, GPU-x"), Some(("GPU-x".into(), 1)));
        assert_eq!(place("x"), None);
    }
}
