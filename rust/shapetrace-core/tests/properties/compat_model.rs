//! thunder's own pass, written down anew as simply as can be, and level "compat" against it.

use proptest::prelude::*;
use rustc_hash::FxHashMap;
use shapetrace_core::ir::{EditList, Op, OpFlags, OpStatus, Program, Scope, SymbolFlags, Value};
use shapetrace_core::passes::{Context, Level, Options};
use shapetrace_core::text::print;

use crate::generate::{generate, recipes, Style};
use crate::oracle::has_effect;

/// What is left of an op.
#[derive(Clone, Debug, PartialEq)]
struct Kept {
    op: Op,
    /// Its results; none where a literal is written.
    output: Vec<Option<Value>>,
    inside: Vec<Kept>,
}

/// The ops that stay, and what they write.
///
/// It differs from thunder's pass only where that loses a side effect: a tagged op stays when its
/// output is empty or known, and when it is a composite with nothing inside.
fn thunder(program: &Program) -> Vec<Kept> {
    let tagged = |op| has_effect(program, op, false, false);
    let equal = |a: Op, b: Op| {
        let keywords = (program.flags(a) | program.flags(b)).contains(OpFlags::KEYWORDS);
        a == b
            || (!keywords
                && program.symbol_id(a) == program.symbol_id(b)
                && program.operands(a) == program.operands(b)
                && program.results(a) == program.results(b))
    };
    let mut producers: FxHashMap<Value, Op> = FxHashMap::default();
    for op in program.scope_ops(Scope::TOP) {
        if program.symbol_flags(op).contains(SymbolFlags::DEFINES_NOTHING) {
            continue;
        }
        let inputs: Vec<Value> = program.operand_values(op).collect();
        for value in program.result_values(op) {
            if !inputs.contains(&value) {
                producers.entry(value).or_insert(op);
            }
        }
    }
    let mut needed_values: Vec<Value> = program.outputs().to_vec();
    let mut needed_ops = Vec::new();
    for op in program.scope_ops(Scope::TOP).rev() {
        let makes_needed = program.result_values(op).any(|value| {
            needed_values.contains(&value) && producers.get(&value).is_some_and(|&producer| equal(producer, op))
        });
        if tagged(op) || makes_needed {
            needed_values.extend(program.operand_values(op));
            needed_ops.push(op);
        }
    }
    needed_ops.reverse();

    let mut seen: Vec<Value> = Vec::new();
    let mut kept = Vec::new();
    for op in needed_ops {
        let slots: Vec<Option<Value>> = program.results(op).iter().map(|result| result.get()).collect();
        let has_literal = program.flags(op).contains(OpFlags::LITERAL_RESULT);
        let all_seen = !has_literal && slots.iter().all(|slot| slot.is_some_and(|value| seen.contains(&value)));
        if all_seen && !tagged(op) {
            continue;
        }
        let mut output = Vec::new();
        for slot in slots {
            let is_number = slot.is_some_and(|value| program.value_kind(value).is_number());
            let known = slot.is_some_and(|value| seen.contains(&value));
            output.push(slot.filter(|_| !(is_number && known)));
            if let (true, Some(value)) = (is_number, slot) {
                seen.push(value);
            }
        }
        kept.push(Kept { op, output, inside: without_noops(program, op) });
    }
    kept
}

fn without_noops(program: &Program, owner: Op) -> Vec<Kept> {
    let has_inside = |op| program.op_scope(op).is_some_and(|scope| program.scope_ops(scope).len() > 0);
    let mut kept = Vec::new();
    for op in program.op_scope(owner).into_iter().flat_map(|scope| program.scope_ops(scope)) {
        let is_primitive = program.symbol_flags(op).contains(SymbolFlags::PRIMITIVE);
        if !has_inside(op) && !is_primitive && !has_effect(program, op, false, false) {
            continue;
        }
        if !has_effect(program, owner, false, false) && program.result_values(op).count() == 0 {
            continue;
        }
        let output = program.results(op).iter().map(|result| result.get()).collect();
        kept.push(Kept { op, output, inside: without_noops(program, op) });
    }
    kept
}

/// What the optimizer left, in the same form.
fn optimized(program: &Program) -> Vec<Kept> {
    let mut context = Context::default();
    let edits = context.run(program, Level::Compat, &Options::default());
    optimized_scope(program, edits, Scope::TOP)
}

fn optimized_scope(program: &Program, edits: &EditList, scope: Scope) -> Vec<Kept> {
    let ops = program.scope_ops(scope).filter(|&op| edits.status(op) == OpStatus::Kept);
    let mut kept = Vec::new();
    for op in ops {
        let slots = program.result_range(op).zip(program.results(op));
        let output = slots.map(|(slot, result)| result.get().filter(|_| !edits.is_dropped(slot))).collect();
        let inside = program.op_scope(op).map(|inside| optimized_scope(program, edits, inside)).unwrap_or_default();
        kept.push(Kept { op, output, inside });
    }
    kept
}

proptest! {
    #![proptest_config(ProptestConfig { cases: crate::optimizer::cases(400), failure_persistence: None, ..Default::default() })]

    #[test]
    fn compat_does_what_thunder_does(recipe in recipes(60)) {
        let program = generate(&recipe, Style::default()).program;
        let (model, ours) = (thunder(&program), optimized(&program));
        prop_assert_eq!(model, ours, "{}", print(&program));
    }
}
