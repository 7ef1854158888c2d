//! What has to hold of any program that the core accepts, however strange.

use shapetrace_core::ir::{apply, OpFlags, Program, SymbolFlags};
use shapetrace_core::passes::{Context, Level, Options};
use shapetrace_core::text::{parse, print};
use shapetrace_core::verifier::{verify, verify_form, Form};

/// Runs everything on a program: the printer, the parser, the verifier and both levels.
///
/// # Panics
/// If something of it does, or if an answer is worse than what went in.
pub fn exercise(program: &Program) {
    let text = print(program);
    match parse(&text) {
        Ok(again) => assert_eq!(print(&again), text, "printing is not a fixed point"),
        // A builder can make what no text says, but then the error says so.
        Err(error) => assert!(!error.to_string().is_empty()),
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
            assert!(inside_fusion_or_kept, "{level:?} lost an effect\n{text}");
        }
        if !broken && level == Level::Full {
            assert_eq!(verify_form(&after, Form::Traced), [], "{}\nbecame\n{}", text, print(&after));
        }
        let _ = context.run(&after, level, &options);
    }
}
