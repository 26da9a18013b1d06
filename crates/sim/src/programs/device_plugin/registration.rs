//! Registrations of device plugins with the kubelet of their node.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::kubelet::device_plugins::{DEVICE_PLUGIN_DIRECTORY, check_registration};
use crate::view::{DevicePluginKey, Node, RegisteredDevices};

/// Called with a registration: with its devices when it is made, and with none when it ends.
pub(in crate::programs) type RecordDevices =
    Arc<dyn Fn(DevicePluginKey, Option<RegisteredDevices>) + Send + Sync>;

/// The socket on which the kubelet of a node takes registrations of device plugins.
#[derive(Clone)]
pub struct DevicePluginSocket {
    node: Arc<Node>,
    /// The number of the next registration in this process.
    next: Arc<AtomicU64>,
    record: RecordDevices,
}

impl fmt::Debug for DevicePluginSocket {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "DevicePluginSocket({})", self.node.metadata.name)
    }
}

impl DevicePluginSocket {
    /// Returns the socket in a container with these mounts of directories of the node, each with
    /// its path there and in the container; `None` if the socket is in none of them.
    pub(in crate::programs) fn in_container(
        node: Arc<Node>,
        host_paths: &[(String, String)],
        next: Arc<AtomicU64>,
        record: RecordDevices,
    ) -> Option<Self> {
        let has_socket = host_paths.iter().any(|(host, mount)| {
            let below = Path::new(DEVICE_PLUGIN_DIRECTORY).strip_prefix(mount);
            below.is_ok_and(|it| Path::new(host).join(it) == Path::new(DEVICE_PLUGIN_DIRECTORY))
        });
        has_socket.then_some(Self { node, next, record })
    }

    /// Checks whether the kubelet takes a registration of a resource.
    ///
    /// # Errors
    /// Why it is refused, and what to do.
    pub fn check(&self, resource: &str) -> Result<(), String> {
        check_registration(&self.node, resource)
    }

    /// Registers devices. The node has them until the registration is dropped.
    #[must_use]
    pub fn register(&self, devices: RegisteredDevices) -> DeviceRegistration {
        let node = self.node.metadata.name.clone();
        let key = DevicePluginKey { node, number: self.next.fetch_add(1, Ordering::SeqCst) };
        (self.record)(key.clone(), Some(devices));
        DeviceRegistration { key, record: Arc::clone(&self.record) }
    }
}

/// Devices that a node has until this is dropped, however the plugin ends.
pub struct DeviceRegistration {
    key: DevicePluginKey,
    record: RecordDevices,
}

impl fmt::Debug for DeviceRegistration {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "DeviceRegistration({:?})", self.key)
    }
}

impl Drop for DeviceRegistration {
    fn drop(&mut self) {
        (self.record)(self.key.clone(), None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_is_where_its_directory_is_mounted() {
        let directory = DEVICE_PLUGIN_DIRECTORY;
        let table = [
            (directory, directory, true),
            ("/var/lib/kubelet/device-plugins/", "/var/lib/kubelet/device-plugins/", true),
            ("/var/lib/kubelet", "/var/lib/kubelet", true),
            ("/", "/", true),
            ("/", "/host", false),
            (directory, "/plugins", false),
            ("/tmp", directory, false),
            ("/var/lib/kubelet/pods", "/var/lib/kubelet/pods", false),
        ];
        for (host, mount, expected) in table {
            let paths = [("/dev".to_owned(), "/dev".to_owned()), (host.into(), mount.into())];
            let (node, record): (_, RecordDevices) = (Arc::default(), Arc::new(|_, _| {}));
            let socket = DevicePluginSocket::in_container(node, &paths, Arc::default(), record);
            assert_eq!(socket.is_some(), expected, "{host} at {mount}");
        }
    }
}
