//! What the launcher says of itself, and the IDs it makes.

use serde_json::{Value, json};

/// Where instances are.
pub(super) const INSTANCES: &str = "/v2/vllm/instances";

/// A random UUID of version 4.
pub(super) fn random_id() -> String {
    let id =
        (fastrand::u128(..) & 0xffff_ffff_ffff_0fff_3fff_ffff_ffff_ffff) | (4 << 76) | (2 << 62);
    let hex = format!("{id:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// Returns what the launcher is and where its requests go.
pub(super) fn index() -> Value {
    let one = format!("{INSTANCES}/{{instance_id}}");
    json!({
        "name": "Multi-Instance vLLM Management API",
        "version": "2.0",
        "endpoints": {
            "index": "GET /",
            "health": "GET /health",
            "create_instance": format!("POST {INSTANCES}"),
            "create_named_instance": format!("PUT {one}"),
            "delete_instance": format!("DELETE {one}"),
            "delete_all_instances": format!("DELETE {INSTANCES}"),
            "get_instance_status": format!("GET {one}"),
            "get_all_instances": format!("GET {INSTANCES}"),
            "get_instance_logs": format!("GET {one}/log"),
            "watch_instances": format!("GET {INSTANCES}/watch"),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::random_id;

    #[test]
    fn random_ids_are_uuids_of_version_four() {
        for _ in 0..100 {
            let id = random_id();
            let parts: Vec<usize> = id.split('-').map(str::len).collect();
            assert_eq!(parts, [8, 4, 4, 4, 12], "{id}");
            assert_eq!(id.as_bytes()[14], b'4', "{id}");
            assert!(b"89ab".contains(&id.as_bytes()[19]), "{id}");
        }
    }
}
