//! The binary form of files: that nothing is lost, and that no bytes do harm.

mod damage;
mod fixtures;
mod frame;
mod generate;
mod hostile;
mod same;

use proptest::prelude::*;
use shapetrace_core::ir::{Program, ProgramBuilder};
use shapetrace_format::binary::{header, is_binary, read, write, Limits, FORMAT_VERSION};
use shapetrace_format::TraceFile;

use generate::{generate, model, recipes};
use same::assert_same;

fn round_trip(file: &TraceFile) -> Vec<u8> {
    let bytes = write(file).expect("a consistent file is written");
    let again = read(&bytes, &Limits::default()).expect("what was written is read");
    assert_same(file, &again);
    assert_eq!(write(&again).expect("a consistent file"), bytes, "equal files are equal bytes");
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 400, ..ProptestConfig::default() })]

    /// Nothing is lost, whatever is in the file.
    #[test]
    fn files_survive(recipe in recipes(60)) {
        let bytes = round_trip(&generate(&recipe));
        prop_assert!(is_binary(&bytes));
    }
}

/// The generator makes what the tests are meant to see.
#[test]
fn random_files_have_everything() {
    let mut draw = generate::Draw(1);
    let mut seen = [0; 8];
    for _ in 0..100 {
        let recipe: Vec<u64> = (0..40).map(|_| draw.next()).collect();
        let file = generate(&recipe);
        let program = &file.program;
        let features = [
            program.scope_count() > 3,
            program.scopes().any(|scope| program.scope_ops(scope).len() == 0),
            program.values().any(|value| program.given_name(value).is_none()),
            program.values().any(|value| program.given_name(value).is_some_and(|name| name.len() > 20)),
            program.ops().any(|op| program.results(op).iter().any(|result| result.is_none())),
            !program.shape_mentions().is_empty() && !program.pinned().is_empty(),
            file.host.as_ref().is_some_and(|host| host.nodes.len() > 100),
            file.host.is_none(),
        ];
        for (count, feature) in seen.iter_mut().zip(features) {
            *count += usize::from(feature);
        }
    }
    assert!(seen.iter().all(|&count| count >= 10), "{seen:?}");
}

/// An empty program is a file as well, and so is one of scopes inside each other, very deep.
#[test]
fn the_smallest_and_the_deepest_survive() {
    let empty = ProgramBuilder::default().finish().expect("an empty program");
    let bytes = round_trip(&TraceFile { program: empty, host: None });
    let unbuilt = TraceFile { program: Program::default(), host: None };
    assert_eq!(write(&unbuilt).expect("a file"), bytes, "no scope yet is a scope with nothing in it");
    let depth = 100_000;
    let text = format!("trace(%x: tensor) {{\n{}{}}}", "%y = f.g(%x) {\n".repeat(depth), "}\n".repeat(depth));
    let program = shapetrace_core::text::parse(&text).expect("a program");
    assert_eq!(program.scope_count(), depth + 1);
    let bytes = round_trip(&TraceFile { program, host: None });
    assert!(bytes.len() < 4_000, "a pattern packs well: {} bytes", bytes.len());
}

/// The coding knows what traces look like: without it, this takes several times as much.
#[test]
fn what_looks_like_a_trace_is_small() {
    let file = model(32);
    let bytes = round_trip(&file);
    let ops = file.program.op_count();
    assert!(ops > 800, "{ops} ops");
    assert!(bytes.len() < 2 * ops, "{} bytes for {ops} ops", bytes.len());
}

#[test]
fn the_header_tells_who_wrote_a_file() {
    let bytes = write(&model(1)).expect("a file");
    let header = header(&bytes).expect("a header");
    assert_eq!(header.version, FORMAT_VERSION);
    assert_eq!(header.writer, format!("shapetrace-rs {}", env!("CARGO_PKG_VERSION")));
    assert_eq!(header.payload_bytes, frame::payload(&bytes).len() as u64);
}

/// What could not be read again is not written.
#[test]
fn an_inconsistent_file_is_not_written() {
    let mut file = model(1);
    file.host.as_mut().expect("host data").ops.pop();
    assert!(write(&file).is_err());
}

/// The description of the format is enough to take a file apart.
#[test]
fn a_file_put_together_by_the_description_is_read() {
    let file = model(2);
    let payload = frame::payload(&write(&file).expect("a file"));
    let mut sections = frame::sections(&payload);
    assert_eq!(frame::join(&sections), payload);
    // In another order, and with one more that may be passed over.
    sections.reverse();
    sections.push(frame::Section { tag: *b"note", columns: vec![b"anything".to_vec()] });
    let again = read(&frame::file(&frame::join(&sections)), &Limits::default()).expect("a file");
    assert_same(&file, &again);
}
