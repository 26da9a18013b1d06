//! The scenarios a compatible server must get right, numbered as in the specification.

/// Numbers and titles of the scenarios that concern the API itself. Cases name them by number.
pub const TITLES: [(u8, &str); 58] = [
    (1, "aggregated discovery, its media type and its ETag"),
    (2, "legacy discovery documents"),
    (3, "a new definition is visible no later than Established"),
    (4, "storageVersionHash"),
    (5, "protobuf preferred, JSON accepted"),
    (6, "protobuf request bodies are stored like their JSON twins"),
    (7, "protobuf zero values behind pointers survive"),
    (8, "unusable Accept and Content-Type"),
    (9, "bodies without Content-Type, kind or apiVersion"),
    (10, "tables: columns, watch, includeObject"),
    (11, "metadata-only objects and lists"),
    (12, "clients work without the old OpenAPI document"),
    (13, "when answers are compressed"),
    (14, "revisions strictly increase across resources"),
    (15, "stale and unconditional updates"),
    (16, "writes that change nothing"),
    (17, "generateName"),
    (18, "metadata only the server sets"),
    (19, "generation"),
    (20, "finalizers"),
    (21, "graceful deletion of pods"),
    (22, "preconditions of a deletion"),
    (23, "propagation policies"),
    (24, "dependents of absent owners"),
    (25, "deletion of a namespace"),
    (26, "paging"),
    (27, "expired and malformed continue tokens"),
    (28, "resourceVersion and its match"),
    (29, "watches from old and future revisions, and selector transitions"),
    (30, "streamed lists"),
    (31, "bookmarks on an idle resource"),
    (32, "watch over WebSocket"),
    (33, "a stalled watcher harms nobody"),
    (34, "field selectors"),
    (35, "label selectors"),
    (36, "deletion of collections"),
    (37, "dry run"),
    (38, "field validation"),
    (39, "crashes lose nothing that was acknowledged"),
    (40, "JSON patch"),
    (41, "merge patch"),
    (42, "strategic merge patch"),
    (43, "three-way apply of clients"),
    (44, "server-side apply: creation, conflicts, force, co-ownership, release"),
    (45, "server-side apply: list types"),
    (46, "managedFields before the first apply, reset and ageing"),
    (47, "server-side apply on status and scale"),
    (48, "server-side apply: errors"),
    (49, "definitions: establishing, conflicts, approval"),
    (50, "definitions: structural schemas"),
    (51, "custom objects: pruning and defaulting"),
    (52, "custom objects: validation errors"),
    (53, "custom objects: validation rules"),
    (54, "custom objects: versions"),
    (55, "custom objects: columns, scale, selectable fields"),
    (56, "deletion of a definition with a finalized instance"),
    (57, "admission policies"),
    (58, "admission webhooks"),
];

/// The title of a scenario.
#[must_use]
pub fn title(number: u8) -> Option<&'static str> {
    TITLES.iter().find(|(known, _)| *known == number).map(|(_, title)| *title)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_no_gap() {
        for (index, (number, _)) in TITLES.iter().enumerate() {
            assert_eq!(usize::from(*number), index + 1);
        }
        assert_eq!(title(16), Some("writes that change nothing"));
        assert_eq!(title(59), None);
    }
}
