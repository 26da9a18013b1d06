use gantry_api::devices::{
    AccessMode, Block, Counter, NodeDevice, NodePool, QuantityCapacity, RequestedCapacity,
    ResourceCapacity, Shape, Sharing, Topology, TopologyAssignment,
};

use super::*;

fn q(text: &str) -> Quantity {
    Quantity::parse(text).unwrap()
}

fn counter(capacity: i64) -> Shape {
    Shape::Counter { counter: Counter { capacity } }
}

fn quantity(capacity: &str) -> Shape {
    Shape::Quantity { quantity: QuantityCapacity { capacity: q(capacity) } }
}

fn block(capacity: &str, size: &str) -> Shape {
    Shape::Block { block: Block { capacity: q(capacity), size: q(size) } }
}

fn whole(capacity: &str, block_size: Option<&str>) -> Shape {
    Shape::Capacity { capacity: q(capacity), block_size: block_size.map(q) }
}

fn sharing(allowed: (bool, bool, bool), held: [u32; 4]) -> Sharing {
    let (allow_read_only_shared, allow_read_write_shared, allow_write_exclusive) = allowed;
    let [read_only_shared, read_write_shared, write_exclusive, read_write_exclusive] = held;
    Sharing {
        allow_read_only_shared,
        allow_read_write_shared,
        allow_write_exclusive,
        read_only_shared,
        read_write_shared,
        write_exclusive,
        read_write_exclusive,
    }
}

fn access(allowed: (bool, bool, bool), held: [u32; 4]) -> Shape {
    Shape::AccessMode { access_mode: sharing(allowed, held) }
}

fn count(request: i64) -> RequestedCapacity {
    RequestedCapacity::Counter { request }
}

fn amount(request: &str) -> RequestedCapacity {
    RequestedCapacity::Quantity { request: q(request) }
}

fn mode(request: AccessMode) -> RequestedCapacity {
    RequestedCapacity::AccessMode { request }
}

fn capacity(name: &str, shape: Shape, numa: Option<&str>) -> ResourceCapacity {
    let place = |name: &str| Topology {
        r#type: "numa".to_owned(),
        name: name.to_owned(),
        group_in_device: true,
    };
    ResourceCapacity {
        name: name.to_owned(),
        shape,
        topologies: numa.map(place).into_iter().collect(),
    }
}

fn taken(name: &str, draw: RequestedCapacity, numa: Option<&str>) -> CapacityResult {
    let place =
        |name: &str| TopologyAssignment { r#type: "numa".to_owned(), name: name.to_owned() };
    CapacityResult {
        name: name.to_owned(),
        draw,
        topologies: numa.map(place).into_iter().collect(),
    }
}

fn text(amount: Option<Quantity>) -> Option<String> {
    amount.map(|amount| amount.to_string())
}

#[test]
fn scenario_29_blocks_are_rounded_and_handed_out_to_the_last() {
    let table = [
        // capacity, size, asked, allocated, remainder
        ("8", "10m", "7127m", "7130m", None),
        ("64Gi", "256Mi", "300Mi", "512Mi", None),
        ("10M", "1M", "1500k", "2M", None),
        ("2Gi", "1Mi", "1", "1048576", None),
        ("100", "7", "50", "56", None),
        ("10M", "3M", "20M", "9M", Some("12M")),
        ("1500k", "1M", "2M", "1M", Some("1M")),
        ("1", "300m", "1", "900m", Some("300m")),
        ("1M", "1M", "2M", "1M", Some("1M")),
    ];
    for (there, size, asked, allocated, remainder) in table {
        let drawn = draw_amount(&block(there, size), q(asked)).unwrap();
        let why = format!("{asked} of {there} in blocks of {size}");
        assert_eq!(text(drawn.allocated).as_deref(), Some(allocated), "{why}");
        assert_eq!(text(drawn.remainder).as_deref(), remainder, "{why}");
    }
}

#[test]
fn draws_give_all_part_or_nothing() {
    let table = [
        ("a counter has enough", counter(10), count(4), Some(count(4)), None),
        ("a counter gives what it has", counter(3), count(4), Some(count(3)), Some(count(1))),
        ("an empty counter gives nothing", counter(0), count(4), None, Some(count(4))),
        ("nothing is served by nothing", counter(0), count(0), Some(count(0)), None),
        ("any amount, not rounded", quantity("8"), amount("7127m"), Some(amount("7127m")), None),
        (
            "the rest is carried",
            quantity("8"),
            amount("8001m"),
            Some(amount("8")),
            Some(amount("1m")),
        ),
        ("none of a quantity", quantity("0"), amount("1"), None, Some(amount("1"))),
        ("less than a block", block("900k", "1M"), amount("1"), None, Some(amount("1M"))),
        ("units unless told", whole("8", None), amount("1500m"), Some(amount("2")), None),
        ("blocks if told", whole("8", Some("250m")), amount("1100m"), Some(amount("1250m")), None),
        ("0 of 0 blocks", block("0", "1M"), amount("0"), Some(amount("0")), None),
    ];
    for (why, shape, request, allocated, remainder) in table {
        assert_eq!(draw(&shape, &request), Ok(Drawn { allocated, remainder }), "{why}");
    }
}

#[test]
fn mismatched_kinds_are_errors() {
    let shapes = [counter(1), quantity("1"), block("1", "1"), whole("1", None)];
    let exclusive = mode(AccessMode::ReadWriteExclusive);
    for shape in &shapes {
        assert_eq!(draw(shape, &exclusive), Err(CapacityError::Mismatch), "{shape:?}");
    }
    for shape in &shapes[1..] {
        assert_eq!(draw(shape, &count(1)), Err(CapacityError::Mismatch), "{shape:?}");
    }
    assert_eq!(draw(&counter(1), &amount("1")), Err(CapacityError::Mismatch));
    let device = access((true, true, true), [0; 4]);
    assert_eq!(draw(&device, &count(1)), Err(CapacityError::Mismatch));
    assert_eq!(draw_amount(&device, q("1")), Err(CapacityError::Mismatch));
    assert_eq!(draw_amount(&counter(9), q("1500m")), Err(CapacityError::Mismatch));
    let drawn = draw_amount(&counter(9), q("2")).unwrap();
    assert_eq!(drawn, Drawn { allocated: Some(q("2")), remainder: None });
    assert_eq!(CapacityError::Mismatch.to_string(), "request/capacity type mismatch");
}

#[test]
fn scenario_30_access_mode_compatibility() {
    let [ro, rw, we, rwe] = AccessMode::UPGRADE_ORDER;
    let table = [
        (ro, [true, true, true, false]),
        (rw, [true, true, false, false]),
        (we, [true, false, false, false]),
        (rwe, [false, false, false, false]),
    ];
    for (wanted, expected) in table {
        let found = [0, 1, 2, 3].map(|held| {
            let mut counts = [0; 4];
            counts[held] = 1;
            allows_holder(&sharing((true, true, true), counts), wanted)
        });
        assert_eq!(found, expected, "{wanted:?}");
        assert!(allows_holder(&sharing((true, true, true), [0; 4]), wanted), "{wanted:?} alone");
    }
    let recorded = |allowed, wanted| draw(&access(allowed, [0; 4]), &mode(wanted)).unwrap();
    assert_eq!(recorded((true, false, true), rw).allocated, Some(mode(we)));
    assert_eq!(recorded((false, false, false), ro).allocated, Some(mode(rwe)));
    let busy = access((true, true, true), [0, 0, 1, 0]);
    assert_eq!(
        draw(&busy, &mode(we)),
        Ok(Drawn { allocated: None, remainder: Some(mode(we)) }),
        "a second writer"
    );
}

#[test]
fn a_mode_is_read_in_any_spelling() {
    assert_eq!(parse_mode("readonly-shared"), Ok(AccessMode::ReadOnlyShared));
    let refused = parse_mode("shared").unwrap_err();
    assert_eq!(refused.to_string(), "invalid request access mode \"shared\"");
}

#[test]
fn scenarios_14_to_18_and_31_what_is_left_of_one_capacity() {
    let [ro, rw, ..] = AccessMode::UPGRADE_ORDER;
    let readers = (true, false, false);
    let writers = (false, true, false);
    let table = [
        ("14", counter(10), count(4), counter(6)),
        ("15", quantity("10M"), amount("1M"), quantity("9M")),
        ("16", block("10M", "1M"), amount("1M"), block("9M", "1M")),
        ("17", access(readers, [3, 0, 0, 0]), mode(ro), access(readers, [4, 0, 0, 0])),
        ("18", access(writers, [0, 3, 0, 0]), mode(rw), access(writers, [0, 4, 0, 0])),
        ("blocks are not rounded again", block("10M", "3M"), amount("1M"), block("9M", "3M")),
        ("the final form", whole("8", None), amount("3"), whole("5", None)),
    ];
    for (why, shape, draw, expected) in table {
        let before = capacity("c", shape.clone(), None);
        let result = reduce(&before, &taken("c", draw, None));
        assert_eq!(result, Ok(capacity("c", expected, None)), "{why}");
        assert_eq!(before, capacity("c", shape, None), "31: the input is left as it was");
    }
}

#[test]
fn scenarios_19_to_27_what_is_left_of_a_device() {
    let test = "counter-test";
    let table = [
        (
            "19",
            vec![capacity(test, counter(10), None)],
            vec![taken("invalid-counter-test", count(4), None)],
            Err("allocated capacity \"invalid-counter-test\" not found in device capacities"),
        ),
        (
            "20",
            vec![capacity(test, counter(10), None)],
            vec![taken(test, count(4), Some("numa-0"))],
            Err("allocated capacity \"counter-test;numa=numa-0\" not found in device capacities"),
        ),
        (
            "21",
            vec![capacity(test, counter(10), None)],
            vec![taken(test, count(4), None)],
            Ok(vec![capacity(test, counter(6), None)]),
        ),
        (
            "22",
            vec![capacity("q", quantity("10M"), None)],
            vec![taken("q", amount("1M"), None)],
            Ok(vec![capacity("q", quantity("9M"), None)]),
        ),
        (
            "23",
            vec![capacity("b", block("10M", "1M"), None)],
            vec![taken("b", amount("1M"), None)],
            Ok(vec![capacity("b", block("9M", "1M"), None)]),
        ),
        (
            "24",
            vec![capacity("a", counter(10), None), capacity("b", counter(10), None)],
            vec![taken("a", count(4), None)],
            Ok(vec![capacity("a", counter(6), None), capacity("b", counter(10), None)]),
        ),
        (
            "25",
            vec![capacity("a", counter(10), None), capacity("b", counter(10), None)],
            vec![taken("a", count(4), None), taken("b", count(1), None)],
            Ok(vec![capacity("a", counter(6), None), capacity("b", counter(9), None)]),
        ),
        (
            "26",
            vec![capacity(test, counter(10), Some("numa-0"))],
            vec![taken(test, count(4), Some("numa-0"))],
            Ok(vec![capacity(test, counter(6), Some("numa-0"))]),
        ),
        (
            "27",
            vec![
                capacity(test, counter(10), Some("numa-0")),
                capacity(test, counter(10), Some("numa-1")),
            ],
            vec![taken(test, count(4), Some("numa-1"))],
            Ok(vec![
                capacity(test, counter(10), Some("numa-0")),
                capacity(test, counter(6), Some("numa-1")),
            ]),
        ),
    ];
    for (why, capacities, results, expected) in table {
        let before = capacities.clone();
        let left = reduce_device(&capacities, &results).map_err(|error| error.to_string());
        assert_eq!(left, expected.map_err(str::to_owned), "{why}");
        assert_eq!(capacities, before, "{why}: the input is left as it was");
    }
}

fn primary() -> NodePool {
    let capacities =
        vec![capacity("pods", counter(100), None), capacity("containers", counter(1000), None)];
    let device = NodeDevice { name: "primary".to_owned(), capacities, ..NodeDevice::default() };
    NodePool { name: "primary".to_owned(), devices: vec![device], ..NodePool::default() }
}

#[test]
fn scenario_28_what_is_left_of_a_pool() {
    let pods = vec![taken("pods", count(4), None)];
    let good = PoolResult { pool: "primary".to_owned(), best: Some(0), devices: vec![pods] };
    let left = reduce_pool(&primary(), &good).unwrap();
    let expected =
        [capacity("pods", counter(96), None), capacity("containers", counter(1000), None)];
    assert_eq!(left.devices[0].capacities, expected);

    let other = PoolResult { pool: "other".to_owned(), ..good.clone() };
    let none = PoolResult { best: None, ..good.clone() };
    let longer = PoolResult { devices: vec![Vec::new(), Vec::new()], ..good };
    let table = [
        (other, "cannot reduce pool \"primary\" capacity using allocation from pool \"other\""),
        (none, "cannot reduce pool \"primary\" capacity from unsatisfied result"),
        (longer, "pool \"primary\" devices and device result list differ in length"),
    ];
    for (result, expected) in table {
        assert_eq!(reduce_pool(&primary(), &result).unwrap_err().to_string(), expected);
    }
}

#[test]
fn overdraws_are_errors() {
    let [_, rw, we, _] = AccessMode::UPGRADE_ORDER;
    let table = [
        (
            counter(10),
            taken("other", count(1), None),
            "cannot reduce capacity \"c\" using request for \"other\"",
        ),
        (counter(10), taken("c", amount("1"), None), "request/capacity type mismatch"),
        (counter(3), taken("c", count(4), None), "cannot take 4 of capacity \"c\": only 3 is left"),
        (
            quantity("1Gi"),
            taken("c", amount("2Gi"), None),
            "cannot take 2Gi of capacity \"c\": only 1Gi is left",
        ),
        (
            access((true, true, true), [0, 1, 0, 0]),
            taken("c", mode(we), None),
            "cannot take WriteExclusive of capacity \"c\": only what other holders allow is left",
        ),
    ];
    for (shape, result, expected) in table {
        let refused = reduce(&capacity("c", shape, None), &result).unwrap_err();
        assert_eq!(refused.to_string(), expected);
    }
    let shared = access((true, true, true), [0, 1, 0, 0]);
    assert!(reduce(&capacity("c", shared, None), &taken("c", mode(rw), None)).is_ok());
}
