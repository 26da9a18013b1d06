//! A device plugin without hardware: it offers devices to the kubelet of its node.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use gantry_process::tasks::Tasks;

use super::{Binary, ProgramContext};
use crate::kernel::NodeKernel;
use crate::kubelet::device_plugins::DEVICE_PLUGIN_DIRECTORY;
use crate::view::RegisteredDevices;

mod arguments;
mod registration;

use arguments::Arguments;
pub use registration::{DevicePluginSocket, DeviceRegistration};

/// The exit code of a plugin whose arguments are wrong.
const USAGE_EXIT_CODE: u8 = 2;
/// The exit code of a plugin that cannot register.
const REFUSED_EXIT_CODE: u8 = 1;

/// A device plugin, whose arguments say what it offers:
///
/// | argument | meaning |
/// |---|---|
/// | `--resource example.com/gpu` | the extended resource |
/// | `--count 4` | the number of devices, from 1 to 1024; 1 |
/// | `--module hello` | the kernel module that the devices need; none |
/// | `--driver gpu.example.com` | publish a DevicePool of this driver, too |
/// | `--attribute model=a100` | an attribute of the devices in that pool, any number of times |
///
/// It is ready, and the node has the devices, while it runs and the module is loaded.
#[derive(Clone, Copy, Debug)]
pub struct DevicePlugin;

impl Binary for DevicePlugin {
    fn run(
        &self,
        context: ProgramContext,
        tasks: Tasks,
    ) -> Pin<Box<dyn Future<Output = u8> + Send>> {
        Box::pin(run(context, tasks))
    }
}

async fn run(context: ProgramContext, tasks: Tasks) -> u8 {
    let (plugin, socket) = match prepare(&context) {
        Ok(prepared) => prepared,
        Err((code, message)) => {
            context.termination_message.set(&message);
            (context.log)(&message);
            return code;
        }
    };
    let stop = tasks.token().clone();
    tokio::select! {
        biased;
        // May be dropped: the devices are gone when their registration is dropped.
        () = stop.cancelled() => {}
        () = plugin.offer(&context, socket) => {}
    }
    (context.log)("stopped");
    0
}

/// What a plugin offers, and under which condition.
struct Plugin {
    devices: RegisteredDevices,
    /// The kernel module that the devices need, and the kernel of the node.
    module: Option<(String, Arc<NodeKernel>)>,
}

/// Reads the arguments, and checks whether the kubelet takes the registration. An error has the
/// exit code.
fn prepare(context: &ProgramContext) -> Result<(Plugin, &DevicePluginSocket), (u8, String)> {
    let Arguments { devices, module } =
        Arguments::parse(&context.args).map_err(|message| (USAGE_EXIT_CODE, message))?;
    let refused = |message: String| (REFUSED_EXIT_CODE, message);
    let socket = context.device_plugins.as_ref().ok_or_else(|| {
        refused(format!(
            "cannot register {}: the kubelet's socket is missing; mount the hostPath \
             {DEVICE_PLUGIN_DIRECTORY} of the node at {DEVICE_PLUGIN_DIRECTORY} in container {}",
            devices.resource, context.container
        ))
    })?;
    let checked = socket.check(&devices.resource);
    checked.map_err(|why| refused(format!("cannot register {}: {why}", devices.resource)))?;
    let module = match module {
        None => None,
        Some(module) => {
            let kernel = context.shell.as_ref().and_then(|it| it.kernel.as_ref());
            let kernel = kernel.ok_or_else(|| {
                refused(format!(
                    "cannot look for kernel module {module}: the kernel of node {} is not known; \
                     `gantry explain node {}` says why",
                    context.node, context.node
                ))
            })?;
            Some((module, Arc::clone(&kernel.kernel)))
        }
    };
    Ok((Plugin { devices, module }, socket))
}

impl Plugin {
    /// Registers the devices whenever the module is loaded. It ends only by being dropped.
    async fn offer(&self, context: &ProgramContext, socket: &DevicePluginSocket) {
        let RegisteredDevices { resource, count, .. } = &self.devices;
        loop {
            if let Some((module, kernel)) = &self.module
                && !kernel.is_loaded(module)
            {
                (context.set_ready)(false);
                (context.log)(&format!("waiting for kernel module {module}"));
                kernel.wait_until_loaded(module, true).await;
            }
            let registration = socket.register(self.devices.clone());
            (context.log)(&format!("registered {resource}: {count}"));
            (context.set_ready)(true);
            match &self.module {
                Some((module, kernel)) => {
                    kernel.wait_until_loaded(module, false).await;
                    drop(registration);
                    (context.log)(&format!(
                        "unregistered {resource}: kernel module {module} was removed"
                    ));
                }
                None => std::future::pending::<()>().await,
            }
        }
    }
}
