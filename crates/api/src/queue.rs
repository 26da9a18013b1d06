//! Groups `workload.codeflare.dev` and `quota.codeflare.dev`: jobs that are queued as a whole, and
//! the quota trees they are charged to.

mod app_wrapper;
mod app_wrapper_status;
mod quota_subtree;
mod scheduling_spec;

pub use app_wrapper::{
    AppWrapper, AppWrapperResources, AppWrapperSpec, GenericItem, PodResources, ServiceTemplate,
};
pub use app_wrapper_status::{
    AppWrapperCondition, AppWrapperState, AppWrapperStatus, PendingPod, QueueState,
};
pub use quota_subtree::{
    ChildAllocation, ChildQuota, QuotaSubtree, QuotaSubtreeSpec, QuotaSubtreeStatus, Quotas,
};
pub use scheduling_spec::{DispatchDuration, Requeuing, SchedulingSettings, SchedulingSpec};
