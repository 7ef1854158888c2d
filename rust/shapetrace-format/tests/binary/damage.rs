//! Every byte string gives a file or an error.

use proptest::prelude::*;
use shapetrace_format::binary::{read, write, Limits};
use shapetrace_format::TraceFile;

use crate::frame;
use crate::generate::{generate, model, recipes, Draw};
use crate::same::assert_same;

/// What a hostile file may ask for in these tests.
fn limits() -> Limits {
    Limits { file_bytes: 1 << 20, payload_bytes: 1 << 22, entries: 1 << 16, text_bytes: 1 << 22 }
}

fn samples() -> Vec<TraceFile> {
    let mut draw = Draw(7);
    let mut samples: Vec<TraceFile> =
        (0..4).map(|_| generate(&(0..8).map(|_| draw.next()).collect::<Vec<_>>())).collect();
    samples.push(model(1));
    samples
}

/// Reads; what is read is a file in full: it can be written, and read again.
fn try_payload(payload: &[u8]) -> bool {
    match read(&frame::file(payload), &limits()) {
        Ok(file) => {
            let bytes = write(&file).expect("what was read can be written");
            assert_same(&file, &read(&bytes, &Limits::default()).expect("and be read again"));
            true
        }
        Err(error) => {
            assert!(error.to_string().len() < 400, "{error}");
            false
        }
    }
}

#[test]
fn no_prefix_is_a_file() {
    for file in samples() {
        let bytes = write(&file).expect("a file");
        for length in 0..bytes.len() {
            assert!(read(&bytes[..length], &limits()).is_err(), "{length} of {} bytes", bytes.len());
        }
    }
}

/// A flipped bit is found, or changes nothing (some bits of deflate have no meaning).
#[test]
fn no_flipped_bit_goes_unseen() {
    for file in samples() {
        let mut bytes = write(&file).expect("a file");
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            if let Ok(read) = read(&bytes, &limits()) {
                assert_same(&file, &read);
            }
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

/// As above behind the checksum: the parser is reached, and is not harmed.
#[test]
fn no_changed_byte_of_the_payload_does_harm() {
    let (mut read, mut refused) = (0, 0);
    for file in samples() {
        let mut payload = frame::payload(&write(&file).expect("a file"));
        for index in 0..payload.len() {
            let before = payload[index];
            let often = [before ^ 1, before ^ 0x80, [0, 0xff, before ^ 2][index % 3]];
            for other in often {
                payload[index] = other;
                *(if try_payload(&payload) { &mut read } else { &mut refused }) += 1;
            }
            payload[index] = before;
        }
        for length in 0..payload.len() {
            try_payload(&payload[..length]);
        }
    }
    assert!(read > 1_000 && refused > 1_000, "both ways are seen: {read} read, {refused} refused");
}

/// Changes the bytes of a column in one of the ways that parsers are bad at.
fn change(column: &mut Vec<u8>, donor: &[u8], draw: &mut Draw) {
    let at = draw.below(column.len() + 1);
    let end = (at + draw.below(5)).min(column.len());
    let numbers = [0, 1, 0x7f, 0x80, u64::from(u32::MAX), 1 << 31, 1 << 62, u64::MAX];
    match draw.below(7) {
        0 => drop(column.drain(at..end)),
        1 => drop(column.splice(at..end, frame::number(draw.pick(&numbers).expect("some")))),
        2 => drop(column.splice(at..at, column[at..end].to_vec())),
        3 => drop(column.splice(at..end, donor.iter().copied().skip(draw.below(donor.len())).take(9))),
        4 if at < column.len() => column[at] = draw.next() as u8,
        5 if at < column.len() => column[at] ^= 1 << draw.below(8),
        _ => column.insert(at, draw.next() as u8),
    }
}

/// How many cases the next test tries; set the variable to search for longer.
fn cases() -> u32 {
    std::env::var("SHAPETRACE_FUZZ_CASES").ok().map_or(1_000, |cases| cases.parse().expect("a number of cases"))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: cases(), ..ProptestConfig::default() })]

    /// Files with changed columns, whose lengths and checksums are right: what is behind them is
    /// reached.
    #[test]
    fn no_changed_column_does_harm(recipe in recipes(30), seed in any::<u64>(), changes in 1..6_usize) {
        let mut draw = Draw(seed);
        let payload = frame::payload(&write(&generate(&recipe)).expect("a file"));
        let mut sections = frame::sections(&payload);
        for _ in 0..changes {
            let index = draw.below(sections.len());
            let donors = &sections[draw.below(sections.len())].columns;
            let donor = donors[draw.below(donors.len())].clone();
            let columns = &mut sections[index].columns;
            let column = draw.below(columns.len());
            if draw.one_in(20) {
                columns.remove(column);
                if columns.is_empty() {
                    columns.push(Vec::new());
                }
            } else {
                change(&mut columns[column], &donor, &mut draw);
            }
        }
        try_payload(&frame::join(&sections));
    }

    /// Bytes that never were a file.
    #[test]
    fn no_other_bytes_do_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(read(&bytes, &limits()).is_err());
        try_payload(&bytes);
    }
}
