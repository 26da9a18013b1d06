//! Parsers of amounts and counts on the command line; zero and less are rejected with an example.

use gantry_api::quantity::Quantity;
use gantry_sim::node_shape::MAX_NODES_PER_SHAPE;

/// An amount of a resource, such as `8`, `500m` or `64Gi`.
pub(super) fn quantity(text: &str) -> Result<Quantity, String> {
    const WRITE: &str = "write an amount such as 8, 500m or 64Gi";
    let parsed = Quantity::parse(text).map_err(|error| format!("{error}; {WRITE}"))?;
    match parsed.sign() {
        1 => Ok(parsed),
        _ => Err(format!("must be more than zero; {WRITE}")),
    }
}

/// Parses a number of nodes.
pub(super) fn nodes(text: &str) -> Result<u32, String> {
    parse_count(text, MAX_NODES_PER_SHAPE)
}

/// Parses any other count.
pub(super) fn count(text: &str) -> Result<u32, String> {
    parse_count(text, i32::MAX.unsigned_abs())
}

/// Parses a number of steps. Zero is valid: the result is undecided then.
pub(super) fn steps(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "write a whole number, 0 or more".to_owned())
}

/// Parses accelerators, written as RESOURCE=NUMBER.
pub(super) fn accelerators(text: &str) -> Result<(String, u32), String> {
    let (resource, number) =
        text.split_once('=').ok_or_else(|| "write it like nvidia.com/gpu=8".to_owned())?;
    if !resource.contains('/') {
        return Err(format!(
            "{resource:?} is not a resource name: it needs a domain, as in nvidia.com/gpu=8"
        ));
    }
    let number = count(number).map_err(|why| format!("{number:?} is not a count: {why}"))?;
    Ok((resource.to_owned(), number))
}

fn parse_count(text: &str, most: u32) -> Result<u32, String> {
    let number = text.parse().ok().filter(|it| (1..=most).contains(it));
    number.ok_or_else(|| format!("write a whole number from 1 to {most}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_more_than_zero() {
        for text in ["1", "500m", "64Gi", "1e3", "0.5"] {
            assert!(quantity(text).is_ok(), "{text}");
        }
        for text in ["0", "-4", "-64Gi", "0Gi", "-0", "", "x", "1 Gi", "--memory"] {
            let said = quantity(text).unwrap_err();
            assert!(said.ends_with("write an amount such as 8, 500m or 64Gi"), "{text:?}: {said}");
        }
    }

    #[test]
    fn counts_are_more_than_zero_and_bounded() {
        assert_eq!((nodes("1"), nodes("3840"), count("5000")), (Ok(1), Ok(3840), Ok(5000)));
        for text in ["0", "-1", "3841", "1.5", "", "one", "4294967296"] {
            assert_eq!(nodes(text).unwrap_err(), "write a whole number from 1 to 3840", "{text:?}");
        }
        for text in ["0", "-1", "2147483648"] {
            assert!(count(text).unwrap_err().contains("from 1 to 2147483647"), "{text}");
        }
        assert_eq!((steps("0"), steps("9")), (Ok(0), Ok(9)));
        for text in ["-1", "x"] {
            assert!(steps(text).is_err(), "{text}");
        }
    }

    #[test]
    fn accelerators_have_a_name_and_a_count() {
        assert_eq!(accelerators("nvidia.com/gpu=8"), Ok(("nvidia.com/gpu".to_owned(), 8)));
        let table = [
            ("nvidia.com/gpu", "write it like nvidia.com/gpu=8"),
            ("gpu=8", "\"gpu\" is not a resource name"),
            ("=8", "\"\" is not a resource name"),
            ("nvidia.com/gpu=0", "\"0\" is not a count: write a whole number from 1"),
            ("nvidia.com/gpu=-2", "\"-2\" is not a count"),
            ("nvidia.com/gpu=", "\"\" is not a count"),
        ];
        for (text, expected) in table {
            let said = accelerators(text).unwrap_err();
            assert!(said.contains(expected), "{text}: {said}");
        }
    }
}
