use std::collections::HashSet;

use proptest::prelude::*;
use serde_json::json;

use super::Format::{BinarySi, DecimalExponent, DecimalSi};
use super::*;

fn quantity(text: &str) -> Quantity {
    text.parse().unwrap()
}

/// Every row was computed by k8s.io/apimachinery v0.34.10: the canonical text by
/// `CanonicalizeBytes`, the last column by `Value()`.
#[test]
fn reads_and_writes_as_kubernetes_does() {
    let table = [
        // text, nano-units, family, canonical text, whole units
        // The plain number, its zeros and its signs.
        ("0", 0, DecimalSi, "0", 0),
        ("-0", 0, DecimalSi, "0", 0),
        ("+0", 0, DecimalSi, "0", 0),
        ("00", 0, DecimalSi, "0", 0),
        ("0.0", 0, DecimalSi, "0", 0),
        (".0", 0, DecimalSi, "0", 0),
        ("0.", 0, DecimalSi, "0", 0),
        ("0m", 0, DecimalSi, "0", 0),
        ("0Ki", 0, BinarySi, "0", 0),
        ("0.0Ki", 0, BinarySi, "0", 0),
        ("0e3", 0, DecimalExponent, "0", 0),
        ("5.", 5_000_000_000, DecimalSi, "5", 5),
        (".5", 500_000_000, DecimalSi, "500m", 1),
        ("-.5", -500_000_000, DecimalSi, "-500m", -1),
        ("001", 1_000_000_000, DecimalSi, "1", 1),
        ("100", 100_000_000_000, DecimalSi, "100", 100),
        ("1000", 1_000_000_000_000, DecimalSi, "1k", 1000),
        ("1.0", 1_000_000_000, DecimalSi, "1", 1),
        ("1.500", 1_500_000_000, DecimalSi, "1500m", 2),
        ("-1500m", -1_500_000_000, DecimalSi, "-1500m", -2),
        ("123456789", 123_456_789_000_000_000, DecimalSi, "123456789", 123_456_789),
        // Decimal suffixes: the largest that leaves no fraction.
        ("1n", 1, DecimalSi, "1n", 1),
        ("999n", 999, DecimalSi, "999n", 1),
        ("1000n", 1000, DecimalSi, "1u", 1),
        ("1234567890n", 1_234_567_890, DecimalSi, "1234567890n", 2),
        ("1000u", 1_000_000, DecimalSi, "1m", 1),
        ("1500m", 1_500_000_000, DecimalSi, "1500m", 2),
        ("1000m", 1_000_000_000, DecimalSi, "1", 1),
        ("1001m", 1_001_000_000, DecimalSi, "1001m", 2),
        (".001", 1_000_000, DecimalSi, "1m", 1),
        ("1000k", 1_000_000_000_000_000, DecimalSi, "1M", 1_000_000),
        ("5.k", 5_000_000_000_000, DecimalSi, "5k", 5000),
        (".5k", 500_000_000_000, DecimalSi, "500", 500),
        ("1T", 1_000_000_000_000_000_000_000, DecimalSi, "1T", 1_000_000_000_000),
        ("1P", 1_000_000_000_000_000_000_000_000, DecimalSi, "1P", 1_000_000_000_000_000),
        ("1E", 1_000_000_000_000_000_000_000_000_000, DecimalSi, "1E", 1_000_000_000_000_000_000),
        ("9E", 9_000_000_000_000_000_000_000_000_000, DecimalSi, "9E", 9_000_000_000_000_000_000),
        (
            "9.223372036854775807E",
            9_223_372_036_854_775_807_000_000_000,
            DecimalSi,
            "9223372036854775807",
            9_223_372_036_854_775_807,
        ),
        (
            "9223372036854775807",
            9_223_372_036_854_775_807_000_000_000,
            DecimalSi,
            "9223372036854775807",
            9_223_372_036_854_775_807,
        ),
        // Finer than a nano-unit goes away from zero.
        (".1n", 1, DecimalSi, "1n", 1),
        (".9n", 1, DecimalSi, "1n", 1),
        ("1.1n", 2, DecimalSi, "2n", 1),
        ("0.0000000001", 1, DecimalSi, "1n", 1),
        ("1e-10", 1, DecimalExponent, "1e-9", 1),
        ("1e-999", 1, DecimalExponent, "1e-9", 1),
        ("0.30000000000000004", 300_000_001, DecimalSi, "300000001n", 1),
        // Binary suffixes: whole and at least 1024, or decimal; below one unit the family is lost.
        ("1Ki", 1_024_000_000_000, BinarySi, "1Ki", 1024),
        ("1000Ki", 1_024_000_000_000_000, BinarySi, "1000Ki", 1_024_000),
        ("1023Ki", 1_047_552_000_000_000, BinarySi, "1023Ki", 1_047_552),
        ("1024Ki", 1_048_576_000_000_000, BinarySi, "1Mi", 1_048_576),
        ("1048576Ki", 1_073_741_824_000_000_000, BinarySi, "1Gi", 1_073_741_824),
        ("1.5Ki", 1_536_000_000_000, BinarySi, "1536", 1536),
        ("1.1Ki", 1_126_400_000_000, BinarySi, "1126400m", 1127),
        ("0.5Ki", 512_000_000_000, BinarySi, "512", 512),
        (".0001Ki", 102_400_000, DecimalSi, "102400u", 1),
        ("5.Ki", 5_120_000_000_000, BinarySi, "5Ki", 5120),
        ("+5Mi", 5_242_880_000_000_000, BinarySi, "5Mi", 5_242_880),
        ("1.25Mi", 1_310_720_000_000_000, BinarySi, "1280Ki", 1_310_720),
        ("0.5Gi", 536_870_912_000_000_000, BinarySi, "512Mi", 536_870_912),
        (".5Gi", 536_870_912_000_000_000, BinarySi, "512Mi", 536_870_912),
        ("1.5Gi", 1_610_612_736_000_000_000, BinarySi, "1536Mi", 1_610_612_736),
        ("0.1Gi", 107_374_182_400_000_000, BinarySi, "107374182400m", 107_374_183),
        ("1000000Mi", 1_048_576_000_000_000_000_000, BinarySi, "1000000Mi", 1_048_576_000_000),
        ("3.3Ti", 3_628_388_371_660_800_000_000, BinarySi, "3628388371660800m", 3_628_388_371_661),
        ("1Pi", 1_125_899_906_842_624_000_000_000, BinarySi, "1Pi", 1_125_899_906_842_624),
        (
            "2048Pi",
            2_305_843_009_213_693_952_000_000_000,
            BinarySi,
            "2Ei",
            2_305_843_009_213_693_952,
        ),
        ("7Ei", 8_070_450_532_247_928_832_000_000_000, BinarySi, "7Ei", 8_070_450_532_247_928_832),
        (
            "7.9Ei",
            9_108_079_886_394_091_110_400_000_000,
            BinarySi,
            "9108079886394091110400m",
            9_108_079_886_394_091_111,
        ),
        (
            "7.999999999999999999Ei",
            9_223_372_036_854_775_806_847_078_496,
            BinarySi,
            "9223372036854775806847078496n",
            9_223_372_036_854_775_807,
        ),
        (
            "9007199254740991Ki",
            9_223_372_036_854_774_784_000_000_000,
            BinarySi,
            "9007199254740991Ki",
            9_223_372_036_854_774_784,
        ),
        // Exponents: steps of three.
        ("1e0", 1_000_000_000, DecimalExponent, "1", 1),
        ("1E0", 1_000_000_000, DecimalExponent, "1", 1),
        ("1e1", 10_000_000_000, DecimalExponent, "10", 10),
        ("1e2", 100_000_000_000, DecimalExponent, "100", 100),
        ("1e3", 1_000_000_000_000, DecimalExponent, "1e3", 1000),
        ("1E+3", 1_000_000_000_000, DecimalExponent, "1e3", 1000),
        ("1e4", 10_000_000_000_000, DecimalExponent, "10e3", 10000),
        ("12e6", 12_000_000_000_000_000, DecimalExponent, "12e6", 12_000_000),
        ("12E6", 12_000_000_000_000_000, DecimalExponent, "12e6", 12_000_000),
        ("1.5e1", 15_000_000_000, DecimalExponent, "15", 15),
        ("1.5e3", 1_500_000_000_000, DecimalExponent, "1500", 1500),
        ("100e3", 100_000_000_000_000, DecimalExponent, "100e3", 100_000),
        ("1000e3", 1_000_000_000_000_000, DecimalExponent, "1e6", 1_000_000),
        ("1E-3", 1_000_000, DecimalExponent, "1e-3", 1),
        ("1e-9", 1, DecimalExponent, "1e-9", 1),
        ("100e-9", 100, DecimalExponent, "100e-9", 1),
        ("0e9999", 0, DecimalExponent, "0", 0),
        ("0e-9999", 0, DecimalExponent, "0", 0),
        ("-1e3", -1_000_000_000_000, DecimalExponent, "-1e3", -1000),
    ];
    for (text, nanos, format, canonical, value) in table {
        let read = quantity(text);
        assert_eq!(read.nanos(), nanos, "amount of {text}");
        assert_eq!(read.format(), format, "family of {text}");
        assert_eq!(read.to_string(), canonical, "canonical form of {text}");
        assert_eq!(read.value_rounded_up(), value, "whole units of {text}");
        assert_eq!(read.is_zero(), nanos == 0, "whether {text} is zero");
        assert_eq!(i128::from(read.sign()), nanos.signum(), "sign of {text}");
        assert_eq!(read.is_negative(), nanos < 0, "whether {text} is negative");
    }
}

#[test]
fn every_suffix_has_its_size() {
    let decimal = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
    for (suffix, power) in decimal.into_iter().zip((0..).step_by(3)) {
        let text = format!("3{suffix}");
        assert_eq!(quantity(&text).nanos(), 3 * 10_i128.pow(power), "{text}");
        assert_eq!(quantity(&text).to_string(), text);
    }
    for (suffix, power) in ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].into_iter().zip((10..).step_by(10))
    {
        let text = format!("3{suffix}");
        assert_eq!(quantity(&text).nanos(), 3 * NANOS_PER_UNIT * 2_i128.pow(power), "{text}");
        assert_eq!(quantity(&text).to_string(), text);
    }
}

#[test]
fn refuses_what_is_not_a_quantity() {
    let no_number = [
        "", "+", "-", ".", "-.", "m", "Ki", "E", "e3", "aoeu", "--1", "+-1", "-+1", " 1", "NaN",
        "inf",
    ];
    for text in no_number {
        let expected = ParseError::NoNumber { text: text.into() };
        assert_eq!(Quantity::parse(text), Err(expected));
    }
    let unknown_suffix = [
        ("1K", "K"),
        ("1ki", "ki"),
        ("1KI", "KI"),
        ("1GB", "GB"),
        ("1Gib", "Gib"),
        ("1i", "i"),
        (".5i", "i"),
        ("0.1mi", "mi"),
        ("1mm", "mm"),
        ("1EE", "EE"),
        ("1e", "e"),
        ("1e+", "e+"),
        ("-3.01e-", "e-"),
        ("1e1.5", "e1.5"),
        ("1e 3", "e 3"),
        ("1e99999999999999999999", "e99999999999999999999"),
        ("1.1.M", ".M"),
        ("1+1.0M", "+1.0M"),
        ("1,000", ",000"),
        ("1_000", "_000"),
        ("0x10", "x10"),
        ("1 ", " "),
        ("1\u{b5}", "\u{b5}"),
        ("1\u{0663}", "\u{0663}"),
    ];
    for (text, suffix) in unknown_suffix {
        let expected = ParseError::UnknownSuffix { text: text.into(), suffix: suffix.into() };
        assert_eq!(Quantity::parse(text), Err(expected));
    }
}

#[test]
fn refuses_what_is_too_large() {
    let too_large = [
        "8Ei",
        "-8Ei",
        "9007199254740992Ki",
        "9223372036854775808",
        "-9223372036854775808",
        "9223372036854775807.9999999991",
        "9.3E",
        "10E",
        "1e19",
        "1e999",
        "1e4294967296",
        "1e9223372036854775807",
        // 2^127 - 1 nano-units and a half: one more would not fit the integer behind it.
        "170141183460469231731687303715884105727.5n",
        "100000000000000000000000000000000000000000000000000",
        "100000000000000000000000000000000000000000000000000Ei",
    ];
    for text in too_large {
        assert_eq!(Quantity::parse(text), Err(ParseError::OutOfRange { text: text.into() }));
    }
}

#[test]
fn any_number_of_digits_is_exact() {
    let zeros = "0".repeat(1000);
    let table = [
        ("leading zeros are nothing", format!("{zeros}7"), 7 * NANOS_PER_UNIT),
        ("trailing zeros are nothing", format!("7.{zeros}"), 7 * NANOS_PER_UNIT),
        ("one far digit rounds up", format!("7.{zeros}1"), 7 * NANOS_PER_UNIT + 1),
        ("a far digit rounds up below zero too", format!("-7.{zeros}1"), -7 * NANOS_PER_UNIT - 1),
        ("a suffix does not hide it", format!("7.{zeros}1Ei"), ((7 * NANOS_PER_UNIT) << 60) + 1),
        ("digits and exponent may cancel", format!("7{zeros}e-1000"), 7 * NANOS_PER_UNIT),
        ("digits and exponent may cancel upwards", format!("0.{zeros}7e1001"), 7 * NANOS_PER_UNIT),
        ("the smallest exponent is not nothing", format!("7e{}", i64::MIN), 1),
        ("zero stays zero", format!("0.{zeros}e{}", i64::MAX), 0),
    ];
    for (why, text, nanos) in table {
        assert_eq!(quantity(&text).nanos(), nanos, "{why}");
    }
}

/// Our results are right where Kubernetes' are wrong by its own documentation.
#[test]
fn rounds_away_from_zero_on_both_sides() {
    let table = [
        // text, whole units, thousandths
        ("1.5", 2, 1500),
        ("-1.5", -2, -1500),
        ("1n", 1, 1),
        ("-1n", -1, -1),
        // Kubernetes: 1 and -101.
        ("-.0001Ki", -1, -103),
        // Kubernetes: -553092.
        ("-540.13Ki", -553_094, -553_093_120),
        // Kubernetes: 2681330629, and garbage.
        ("-8193Ti", -9_008_298_766_368_768, -9_008_298_766_368_768_000),
        // Kubernetes: the whole units are right and the thousandths overflow to 0.
        ("1E", 1_000_000_000_000_000_000, 1_000_000_000_000_000_000_000),
        // Kubernetes: -9223372036854775808 and 0; there is no integer above to round to.
        ("9223372036854775807.999999999", i64::MAX, 9_223_372_036_854_775_808_000),
        ("-9223372036854775807.999999999", i64::MIN, -9_223_372_036_854_775_808_000),
    ];
    for (text, value, milli) in table {
        assert_eq!(quantity(text).value_rounded_up(), value, "whole units of {text}");
        assert_eq!(quantity(text).milli_rounded_up(), milli, "thousandths of {text}");
    }
}

#[test]
fn compares_by_amount_alone() {
    let same = ["1Gi", "1024Mi", "1073741824", "1073741824e0", "1073741824000m"].map(quantity);
    for other in same {
        assert_eq!(same[0], other);
        assert_eq!(same[0].cmp(&other), Ordering::Equal);
    }
    assert_eq!(HashSet::from(same).len(), 1);

    let rising = ["-1Gi", "-1G", "-1n", "0", "1n", "999m", "1", "1k", "1Ki", "1e6", "1Mi", "7Ei"];
    assert!(rising.map(quantity).is_sorted_by(|low, high| low < high));
}

#[test]
fn adds_and_subtracts() {
    let table = [
        // why, left, right, sum, difference; from the same oracle
        ("decimal and milli", "1438", "422m", "1438422m", "1437578m"),
        ("binary and binary", "722Ki", "813Gi", "852493010Ki", "-852491566Ki"),
        ("the left family stays", "1920Gi", "336m", "2061584302080336m", "2061584302079664m"),
        ("the left family stays, decimal", "720", "44Gi", "47244640976", "-47244639536"),
        ("exponents", "1079e3", "1079e3", "2158e3", "0"),
        ("zero takes the right family", "0", "1Ki", "1Ki", "-1Ki"),
        ("zero on the right changes nothing", "1Ki", "0e3", "1Ki", "1Ki"),
    ];
    for (why, left, right, sum, difference) in table {
        let (left, right) = (quantity(left), quantity(right));
        assert_eq!(left.checked_add(right).unwrap().to_string(), sum, "{why}");
        assert_eq!(left.checked_sub(right).unwrap().to_string(), difference, "{why}");
    }
}

#[test]
fn arithmetic_refuses_to_leave_the_range() {
    let most = quantity("9223372036854775807.999999999");
    let least = quantity("-9223372036854775807.999999999");
    let nano = quantity("1n");
    assert!(most.checked_add(nano).is_err());
    assert!(least.checked_sub(nano).is_err());
    assert_eq!(most.checked_add(least), Ok(Quantity::ZERO));
    assert!(most.round_up_to(quantity("1")).is_err());
    assert!(least.round_down_to(quantity("1")).is_err());
    assert_eq!(most.round_down_to(quantity("1")), Ok(quantity("9223372036854775807")));
    assert!(Quantity::from_int(i64::MIN, DecimalSi).is_err());

    let error = quantity("8E").checked_add(quantity("2E")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot add 8E and 2E: the result must stay between -2^63 and 2^63; use smaller amounts"
    );
}

#[test]
fn integers_go_in_and_come_out() {
    for units in [i64::MIN + 1, -1, 0, 1, 1024, i64::MAX] {
        for format in [DecimalSi, BinarySi, DecimalExponent] {
            let made = Quantity::from_int(units, format).unwrap();
            assert_eq!(made.to_int(), Some(units));
            assert_eq!(made.format(), format);
            assert_eq!(quantity(&made.to_string()), made);
        }
    }
    assert_eq!(Quantity::from(7), quantity("7"));
    for text in ["1n", "1500m", "-0.5", "1.1Ki", "9223372036854775807.5"] {
        assert_eq!(quantity(text).to_int(), None, "{text}");
    }
}

#[test]
fn displays_in_the_family_it_is_given() {
    let table = [
        ("64Mi", DecimalSi, "67108864"),
        ("64Mi", DecimalExponent, "67108864"),
        ("1M", DecimalExponent, "1e6"),
        ("1e6", DecimalSi, "1M"),
        ("1048576", BinarySi, "1Mi"),
        ("1M", BinarySi, "1000000"),
        ("1000", BinarySi, "1k"),
        ("1.5", BinarySi, "1500m"),
        ("0", BinarySi, "0"),
        ("0Ki", DecimalExponent, "0"),
    ];
    for (text, format, expected) in table {
        let shown = quantity(text).with_format(format);
        assert_eq!(shown.to_string(), expected, "{text} in {format:?}");
        assert_eq!(shown.format(), format);
        assert_eq!(shown, quantity(text));
    }
    assert_eq!(format!("[{:>6}]", quantity("1Gi")), "[   1Gi]");
}

/// Takes a request from a capacity that is allocated in blocks, in the request's family.
fn take(capacity: &str, block: &str, request: &str) -> (String, String) {
    let block = quantity(block);
    let request = quantity(request).round_up_to(block).unwrap();
    let capacity = quantity(capacity).round_down_to(block).unwrap().with_format(request.format());
    let taken = request.min(capacity);
    (taken.to_string(), request.checked_sub(taken).unwrap().to_string())
}

#[test]
fn rounds_to_blocks() {
    let table = [
        // capacity, block, request, taken, remainder
        ("8", "10m", "7127m", "7130m", "0"),
        ("64Gi", "256Mi", "300Mi", "512Mi", "0"),
        ("10M", "1M", "1500k", "2M", "0"),
        ("2Gi", "1Mi", "1", "1048576", "0"),
        ("100", "7", "50", "56", "0"),
        ("10M", "3M", "20M", "9M", "12M"),
        ("1500k", "1M", "2M", "1M", "1M"),
        ("1", "300m", "1", "900m", "300m"),
        ("1M", "1M", "2M", "1M", "1M"),
        ("1", "7", "0", "0", "0"),
    ];
    for (capacity, block, request, taken, remainder) in table {
        assert_eq!(
            take(capacity, block, request),
            (taken.to_owned(), remainder.to_owned()),
            "{request} of {capacity} in blocks of {block}"
        );
    }
    for (value, up, down) in [("-1", "0", "-7"), ("-7", "-7", "-7"), ("-8", "-7", "-14")] {
        assert_eq!(quantity(value).round_up_to(quantity("7")), Ok(quantity(up)));
        assert_eq!(quantity(value).round_down_to(quantity("7")), Ok(quantity(down)));
    }
}

#[test]
fn a_block_is_above_zero() {
    for block in ["0", "-1n", "-1Gi"].map(quantity) {
        let value = quantity("5");
        let expected = ArithmeticError::BlockNotPositive { value, block };
        assert_eq!(value.round_up_to(block), Err(expected.clone()));
        assert_eq!(value.round_down_to(block), Err(expected));
    }
    assert_eq!(
        quantity("5").round_up_to(Quantity::ZERO).unwrap_err().to_string(),
        "cannot round 5 to blocks of 0: give a block size above 0"
    );
}

#[test]
fn errors_name_the_value_and_the_remedy() {
    let table = [
        ("m", r#"cannot read "m" as a quantity: start with a number, as in 2, 500m or 1.5Gi"#),
        (
            "1GB",
            r#"cannot read "1GB" as a quantity: "GB" is not a suffix; use one of n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei or a whole exponent such as e3"#,
        ),
        ("8Ei", r#"cannot hold "8Ei" as a quantity: write an amount between -2^63 and 2^63"#),
    ];
    for (text, expected) in table {
        assert_eq!(Quantity::parse(text).unwrap_err().to_string(), expected);
    }
}

#[test]
fn json_may_be_a_string_or_a_number() {
    let table = [
        (r#""1024Ki""#, "1Mi", BinarySi),
        (r#""1e3""#, "1e3", DecimalExponent),
        ("0", "0", DecimalSi),
        ("1000", "1k", DecimalSi),
        ("-5", "-5", DecimalSi),
        ("9223372036854775807", "9223372036854775807", DecimalSi),
        ("0.1", "100m", DecimalSi),
        ("2.5", "2500m", DecimalSi),
        ("-0.0", "0", DecimalSi),
        ("0.000000001", "1n", DecimalSi),
        ("1e3", "1k", DecimalSi),
        ("1e18", "1E", DecimalSi),
        ("1e-300", "1n", DecimalSi),
    ];
    for (text, canonical, format) in table {
        let read: Quantity = serde_json::from_str(text).unwrap();
        assert_eq!(read.format(), format, "family of {text}");
        assert_eq!(serde_json::to_value(read).unwrap(), json!(canonical), "{text}");
        let value: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::from_value::<Quantity>(value).unwrap(), read, "{text}");
    }
}

#[test]
fn json_errors_say_what_was_wanted() {
    let table = [
        (r#""1GB""#, r#"cannot read "1GB" as a quantity"#),
        ("9223372036854775808", r#"cannot hold "9223372036854775808" as a quantity"#),
        ("1e300", "as a quantity: write an amount between"),
        ("null", "invalid type: null, expected a quantity: a number, or a string"),
        ("true", "invalid type: boolean `true`, expected a quantity"),
        ("[1]", "invalid type: sequence, expected a quantity"),
    ];
    for (text, expected) in table {
        let error = serde_json::from_str::<Quantity>(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn schema_is_inline_int_or_string() {
    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Holder {
        /// How much.
        amount: Quantity,
    }
    let schema = serde_json::to_value(schemars::schema_for!(Holder)).unwrap();
    let expected = json!({
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "description": "How much.",
        "pattern": "^(\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))))?$",
        "x-kubernetes-int-or-string": true,
    });
    assert_eq!(schema["properties"]["amount"], expected);
}

fn any_format() -> impl Strategy<Value = Format> {
    prop_oneof![Just(DecimalSi), Just(BinarySi), Just(DecimalExponent)]
}

/// Amounts of every size: even spread would make nearly all of them enormous and fractional.
fn any_quantity() -> impl Strategy<Value = Quantity> {
    let unit = prop_oneof![
        Just(1),
        Just(1_000_000),
        Just(NANOS_PER_UNIT),
        Just(1024 * NANOS_PER_UNIT),
        Just(NANOS_PER_UNIT << 30)
    ];
    let nanos = (any::<i64>(), 0..64_u32, unit).prop_map(|(number, shift, unit)| {
        let number = i128::from(number >> shift);
        (number * unit).clamp(1 - LIMIT, LIMIT - 1)
    });
    (nanos, any_format()).prop_map(|(nanos, format)| Quantity { nanos, format })
}

proptest! {
    /// What is displayed is read back as the same amount, and is already canonical.
    #[test]
    fn display_is_read_back(quantity in any_quantity()) {
        let text = quantity.to_string();
        let read = Quantity::parse(&text).unwrap();
        prop_assert_eq!(read.nanos(), quantity.nanos());
        prop_assert_eq!(&read.to_string(), &text);
        prop_assert_eq!(serde_json::from_value::<Quantity>(json!(text)).unwrap(), quantity);
    }

    /// Canonical text has no fraction, and no larger suffix of its family would leave none.
    #[test]
    fn display_uses_the_largest_suffix(quantity in any_quantity()) {
        let text = quantity.to_string();
        let QuantityText { whole: number, fraction, suffix, .. } = QuantityText::split(&text);
        prop_assert!(fraction.is_empty());
        let number: i128 = number.parse().unwrap();
        let step = if suffix.ends_with('i') { 1024 } else { 1000 };
        let whole_binary = quantity.format() == BinarySi && number >= 1024 && suffix.is_empty();
        if whole_binary {
            prop_assert_ne!(number % 1024, 0);
        } else {
            prop_assert!(number == 0 || number % step != 0 || suffix == "Ei");
        }
    }

    /// Any text either is rejected or is read as the amount its canonical form has.
    #[test]
    fn any_text_is_refused_or_canonical(text in "[+-]?[0-9]{0,30}[.]?[0-9]{0,30}([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,3})?") {
        if let Ok(read) = Quantity::parse(&text) {
            prop_assert_eq!(Quantity::parse(&read.to_string()), Ok(read));
            prop_assert!(read.nanos().abs() < LIMIT);
        }
    }

    /// No text at all makes the parser panic.
    #[test]
    fn any_text_is_answered(text in any::<String>()) {
        let _ = Quantity::parse(&text);
    }

    /// Order is that of the exact integers, whatever the families.
    #[test]
    fn order_is_exact(left in any_quantity(), right in any_quantity()) {
        prop_assert_eq!(left.cmp(&right), left.nanos().cmp(&right.nanos()));
        prop_assert_eq!(left == right, left.nanos() == right.nanos());
        let shown = |q: Quantity| Quantity::parse(&q.to_string()).unwrap();
        prop_assert_eq!(shown(left).cmp(&shown(right)), left.cmp(&right));
    }

    /// Addition is exact or fails, and subtraction reverses it.
    #[test]
    fn subtracting_undoes_adding(left in any_quantity(), right in any_quantity()) {
        match left.checked_add(right) {
            Ok(sum) => {
                prop_assert_eq!(sum.nanos(), left.nanos() + right.nanos());
                prop_assert_eq!(sum.checked_sub(right), Ok(left));
            }
            Err(_) => prop_assert!((left.nanos() + right.nanos()).abs() >= LIMIT),
        }
    }

    /// Rounding finds the nearest multiples on either side, or fails if there is none in range.
    #[test]
    fn rounding_brackets_the_amount(value in any_quantity(), block in any_quantity()) {
        prop_assume!(block.sign() > 0);
        if let Ok(up) = value.round_up_to(block) {
            prop_assert!(up >= value && up.nanos() - value.nanos() < block.nanos());
            prop_assert_eq!(up.nanos() % block.nanos(), 0);
            prop_assert_eq!(up.format(), value.format());
        }
        if let Ok(down) = value.round_down_to(block) {
            prop_assert!(down <= value && value.nanos() - down.nanos() < block.nanos());
            prop_assert_eq!(down.nanos() % block.nanos(), 0);
            prop_assert_eq!(down.format(), value.format());
        }
    }

    /// Whole units and thousandths never fall short of the amount, nor exceed it by one.
    #[test]
    fn rounding_up_never_falls_short(value in any_quantity()) {
        let excess = i128::from(value.value_rounded_up()).abs() * NANOS_PER_UNIT - value.nanos().abs();
        prop_assert!(excess < NANOS_PER_UNIT && (excess >= 0 || value.value_rounded_up() == i64::MAX));
        let excess = value.milli_rounded_up().abs() * (NANOS_PER_UNIT / 1000) - value.nanos().abs();
        prop_assert!((0..NANOS_PER_UNIT / 1000).contains(&excess));
    }
}
