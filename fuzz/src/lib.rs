//! What has to hold of any program that the core accepts, and of any trace file, however strange.

use shapetrace_core::ir::{apply, OpFlags, Program, SymbolFlags};
use shapetrace_core::passes::{Context, Level, Options};
use shapetrace_core::text::{parse, print};
use shapetrace_core::verifier::{verify, verify_form, Form};
use shapetrace_format::binary::{read, write, Limits};
use shapetrace_format::optimize::optimize;
use shapetrace_format::statistics::statistics;
use shapetrace_format::text::print_within;
use shapetrace_format::TraceFile;

/// So long a text of a file is printed.
const MOST_TEXT: usize = 1 << 18;

/// Runs everything on a program: the printer, the parser, the verifier and both levels.
///
/// # Panics
/// If something of it does, or if an answer is worse than what went in.
pub fn exercise(program: &Program) {
    // A small program can have a very long text: a number in a dimension far behind the others.
    let text = shapetrace_core::text::print_within(program, MOST_TEXT);
    match text.as_deref().map(parse) {
        Some(Ok(again)) => assert_eq!(Some(print(&again)), text, "printing is not a fixed point"),
        // A builder can make what no text says, but then the error says so.
        Some(Err(error)) => assert!(!error.to_string().is_empty()),
        None => {}
    }
    let broken = !verify(program).is_empty();
    let mut context = Context::default();
    for (level, bits) in [(Level::Compat, 0), (Level::Full, 0), (Level::Full, 7), (Level::Full, 4)] {
        let options =
            Options { keep_random: bits & 1 != 0, keep_shape_numbers: bits & 2 != 0, floor_division: bits & 4 != 0 };
        let edits = context.run(program, level, &options).clone();
        let after = apply(program, &edits);
        assert!(after.op_count() <= program.op_count());
        for op in program.ops().filter(|&op| program.flags(op).contains(OpFlags::EFFECT)) {
            let inside_fusion_or_kept = edits.is_kept(op) || program.symbol_flags(op).contains(SymbolFlags::FUSION);
            assert!(inside_fusion_or_kept, "{level:?} lost an effect\n{text:?}");
        }
        if !broken && level == Level::Full {
            assert_eq!(verify_form(&after, Form::Traced), [], "{text:?}");
        }
        let _ = context.run(&after, level, &options);
    }
}

/// Does with a file all that can be done with one: each answer has to be a file in full as well.
///
/// # Panics
/// If one is not.
pub fn exercise_file(file: &TraceFile) {
    file.check().expect("what was read is consistent");
    let bytes = write(file).expect("a consistent file is written");
    let again = read(&bytes, &Limits::default()).expect("what was written is read");
    assert_eq!(write(&again).as_ref(), Ok(&bytes), "writing is not a fixed point");
    let _ = statistics(file);
    exercise_text(file);
    let mut context = Context::default();
    for level in [Level::Full, Level::Compat] {
        let after = optimize(file, &mut context, level, &Options::default()).expect("a small file");
        after.check().expect("an optimized file is consistent");
        exercise_text(&after);
    }
}

fn exercise_text(file: &TraceFile) {
    // A small file can have a very long text.
    let Ok(text) = print_within(file, MOST_TEXT) else { return };
    match shapetrace_format::text::parse(&text) {
        Ok(again) => assert_eq!(print_within(&again, MOST_TEXT), Ok(text), "printing is not a fixed point"),
        Err(error) => panic!("{error}\n{text}"),
    }
}
