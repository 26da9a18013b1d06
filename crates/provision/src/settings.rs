//! What the inventory says about a host, with expressions replaced.

use std::collections::{BTreeMap, BTreeSet};

use gantry_inventory::{Backend, Cluster, EvaluationError, HostId, Inventory, Role, Value};
use serde_json::Value as Json;

/// The variables and roles of a host in its cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The name of the host in the inventory.
    pub host: String,
    /// The cluster.
    pub cluster: String,
    /// How the cluster is made.
    pub backend: Backend,
    /// The roles of the host.
    pub roles: BTreeSet<Role>,
    /// Variables that are no secrets.
    pub variables: BTreeMap<String, Json>,
}

impl Settings {
    /// Reads the variables of a host.
    ///
    /// # Errors
    /// An expression stands for nothing.
    pub fn read(
        inventory: &Inventory,
        cluster: &Cluster,
        host: HostId,
    ) -> Result<Self, EvaluationError> {
        let mut variables = BTreeMap::new();
        for name in inventory.variables(host).keys() {
            let value = inventory.value(host, name)?;
            // A secret is never an argument or a condition.
            if let Some(value) = value.filter(|it| !matches!(it.value, Value::Vault(_))) {
                variables.insert((*name).to_owned(), value.to_json());
            }
        }
        let has = |role: &Role| cluster.with_role(*role).contains(&host);
        Ok(Self {
            host: inventory.tree.host(host).name.clone(),
            cluster: cluster.name.clone(),
            backend: cluster.backend,
            roles: Role::ALL.into_iter().filter(has).collect(),
            variables,
        })
    }

    /// A variable as text, or its default.
    #[must_use]
    pub fn text<'a>(&'a self, name: &str, default: &'a str) -> &'a str {
        self.variables.get(name).and_then(Json::as_str).unwrap_or(default)
    }

    /// The folder for etcd, NFS and backups.
    #[must_use]
    pub fn data_dir(&self) -> &str {
        self.text("gantry_data_dir", "/data")
    }

    /// The ports of the host that kind publishes.
    #[must_use]
    pub fn published_ports(&self) -> Vec<u16> {
        let port = |value: &Json| {
            let number = value.as_u64().or_else(|| value.get("host").and_then(Json::as_u64));
            number.and_then(|it| u16::try_from(it).ok())
        };
        match self.variables.get("gantry_port_mappings").and_then(Json::as_array) {
            Some(list) => list.iter().filter_map(port).collect(),
            None => vec![80, 443, 8080, 8000],
        }
    }
}
