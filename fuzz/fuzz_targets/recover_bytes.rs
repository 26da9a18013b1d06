//! A directory of random files: opening it may fail, never panic, and what opens can be used.
//!
//! Some checksums are made correct, because the code behind the check would never run otherwise.
#![no_main]

use arbitrary::{Result, Unstructured};
use gantry_fuzz::disk::{self, Files};
use gantry_store::{OnDamage, Store};
use libfuzzer_sys::fuzz_target;

const SEGMENT: usize = 4608;

/// A header, and the seed of the records behind it.
fn header(magic: &[u8; 8], format: u32, store: u64, number: u64) -> (Vec<u8>, u32) {
    let mut out = magic.to_vec();
    out.extend_from_slice(&format.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&store.to_le_bytes());
    out.extend_from_slice(&number.to_le_bytes());
    out.resize(60, 0);
    let sum = crc32c::crc32c(&out);
    out.extend_from_slice(&sum.to_le_bytes());
    let seed = if format == 1 { crc32c::crc32c(&out) } else { sum };
    (out, seed)
}

fn revision(u: &mut Unstructured<'_>) -> Result<u64> {
    Ok(match u.int_in_range(0..=15)? {
        0 => u.arbitrary()?,
        1 => u64::MAX - u.int_in_range(0..=2)?,
        _ => u.int_in_range(0..=12)?,
    })
}

fn record(u: &mut Unstructured<'_>, seed: u32, out: &mut Vec<u8>) -> Result<()> {
    let mut payload = Vec::new();
    for _ in 0..3 {
        payload.extend_from_slice(&revision(u)?.to_le_bytes());
    }
    payload.extend_from_slice(&[u.int_in_range(0..=8)?, 0]);
    let space: &[u8] = u.choose(&[&b"s"[..], b"t", b"", b"\xff"])?;
    let key: &[u8] = u.choose(&[&b"k"[..], b"l", b""])?;
    let odd = u.ratio(1, 20)?;
    let length = |is: usize| if odd { u32::MAX } else { u32::try_from(is).unwrap_or(0) };
    payload.extend_from_slice(&u16::try_from(length(space.len()) & 0xffff).unwrap_or(0).to_le_bytes());
    payload.extend_from_slice(&length(key.len()).to_le_bytes());
    payload.extend_from_slice(space);
    payload.extend_from_slice(key);
    let value = u.int_in_range(0..=9)?;
    payload.extend_from_slice(u.bytes(value.min(u.len()))?);
    let length = u32::try_from(payload.len()).unwrap_or(0).to_le_bytes();
    payload.resize(payload.len().next_multiple_of(8), 0);
    let sum = crc32c::crc32c_append(crc32c::crc32c_append(seed, &length), &payload);
    out.extend_from_slice(&length);
    out.extend_from_slice(&if u.ratio(1, 20)? { [0; 4] } else { sum.to_le_bytes() });
    out.extend_from_slice(&payload);
    Ok(())
}

fn file(u: &mut Unstructured<'_>, magic: &[u8; 8], number: u64) -> Result<Vec<u8>> {
    if u.ratio(1, 10)? {
        return u.arbitrary();
    }
    let format = if u.ratio(1, 4)? { 1 } else { 2 };
    let (mut out, seed) = header(magic, format, u.int_in_range(1..=2)?, number);
    for _ in 0..u.int_in_range(0..=8)? {
        record(u, seed, &mut out)?;
    }
    if magic == b"gantrylg" && u.ratio(9, 10)? {
        out.resize(SEGMENT, 0);
    }
    Ok(out)
}

fn files(u: &mut Unstructured<'_>) -> Result<Files> {
    let mut files = Files::new();
    for _ in 0..u.int_in_range(0..=4)? {
        let number = revision(u)?;
        let (name, bytes) = match u.int_in_range(0..=5)? {
            0 => (format!("checkpoint-{number:020}"), file(u, b"gantrycp", number)?),
            1 => (format!("spare-{number:020}"), file(u, b"gantrylg", number)?),
            2 => ("checkpoint.tmp".to_owned(), u.arbitrary()?),
            _ => (format!("log-{number:020}"), file(u, b"gantrylg", number)?),
        };
        files.insert(name, bytes);
    }
    Ok(files)
}

fuzz_target!(|data: &[u8]| {
    let files = gantry_fuzz::or_skip!(files(&mut Unstructured::new(data)));
    for damage in [OnDamage::Refuse, OnDamage::Repair] {
        let directory = disk::directory();
        disk::write(directory.path(), &files);
        let options = disk::options(directory.path(), usize::MAX, damage);
        let Ok((store, _)) = Store::<(), ()>::open(&options) else { continue };
        let (revision, picture) = (store.revision(), disk::picture(&store));
        store.close().expect("the disk is in order");
        drop(store);
        let (store, again) = Store::<(), ()>::open(&options).expect("it could be opened before");
        assert_eq!(again.repair, None, "what was repaired is in order");
        assert_eq!((store.revision(), disk::picture(&store)), (revision, picture));
        store.close().expect("the disk is in order");
    }
});
