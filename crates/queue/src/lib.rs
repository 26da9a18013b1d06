//! Which AppWrappers run now, what each is charged to, and who makes room.

pub mod fair;
pub mod quota;
pub mod quota_status;
