//! Which engine serves on an accelerator, and which sleep: pairs requesters with providers, keeps a
//! stock of launchers, and collects instances that nothing asks for any more.
//!
//! [`PairingController`] decides what each requester is served by, with [`mod@select`] for the
//! choice of a launcher and [`accelerator_use`] for the rule that no two engines are awake on one
//! accelerator. [`nominal_pod`] and [`launcher_template`] write the pods. All of that is pure:
//! [`facts`] are what is known about launchers and engines, [`calls`] what is asked of them.

pub mod accelerator_use;
pub mod actuation_record;
pub mod bookkeeping;
pub mod calls;
pub mod canonical_json;
pub mod collection;
pub mod digest;
pub mod effects;
pub mod engine_failures;
pub mod facts;
pub mod inquiries;
pub mod instance;
pub mod labels;
pub mod launcher_template;
pub mod nominal_pod;
pub mod object_names;
pub mod object_status;
pub mod pairing;
mod pod_copy;
pub mod population;
pub mod routing;
pub mod select;
pub mod server_config_status;
pub mod server_patch_template;
pub mod settings;
pub mod subsystem;
pub mod timeline;
pub mod view;

pub use collection::CollectionController;
pub use object_status::ObjectStatusController;
pub use pairing::PairingController;
pub use population::PopulationController;
pub use server_config_status::ServerConfigStatusController;
pub use settings::{LiveSettings, Settings};
