//! Dead code elimination as one would write it down first: sets, recursion, no renaming.

use rustc_hash::FxHashSet;
use shapetrace_core::ir::{Op, OpFlags, Program, Scope, SymbolFlags, Value};

/// How many ops plain dead code elimination removes, those inside removed ops included.
pub(crate) fn count_dead(program: &Program, keep_random: bool) -> usize {
    let live = program.outputs().iter().copied().collect();
    let mut dead = 0;
    visit(program, keep_random, Scope::TOP, live, false, &mut dead);
    dead
}

fn all_inside(program: &Program, op: Op) -> usize {
    let inside = program.op_scope(op).into_iter().flat_map(|scope| program.scope_ops(scope));
    inside.map(|op| 1 + all_inside(program, op)).sum()
}

/// Whether an op, or one inside it, has an effect.
pub(crate) fn has_effect(program: &Program, op: Op, opaque: bool, random: bool) -> bool {
    let flags = program.symbol_flags(op);
    let own = flags.intersects(SymbolFlags::EFFECT | SymbolFlags::RETURN)
        || program.flags(op).contains(OpFlags::EFFECT)
        || (random && flags.contains(SymbolFlags::RANDOM));
    let is_opaque = opaque
        && !flags.contains(SymbolFlags::TRUSTED)
        && program.op_scope(op).is_none()
        && program.result_values(op).count() == 0;
    own || is_opaque
        || program
            .op_scope(op)
            .is_some_and(|scope| program.scope_ops(scope).any(|op| has_effect(program, op, opaque, random)))
}

/// Counts what is dead in a scope; gives back what the scope needs from outside.
fn visit(
    program: &Program,
    keep_random: bool,
    scope: Scope,
    mut live: FxHashSet<Value>,
    keep_all: bool,
    dead: &mut usize,
) -> FxHashSet<Value> {
    let ops: Vec<Op> = program.scope_ops(scope).collect();
    let mut defined: FxHashSet<Value> =
        program.scope_owner(scope).map(|owner| program.operand_values(owner).collect()).unwrap_or_default();
    let mut definitions: Vec<Vec<Value>> = Vec::new();
    for &op in &ops {
        let operands: Vec<Value> = program.operand_values(op).collect();
        let nothing = program.symbol_flags(op).contains(SymbolFlags::DEFINES_NOTHING);
        let results = program.result_values(op).filter(|value| !nothing && !operands.contains(value));
        definitions.push(results.filter(|&value| defined.insert(value)).collect());
    }
    for (&op, defines) in ops.iter().zip(&definitions).rev() {
        let needed =
            keep_all || has_effect(program, op, true, keep_random) || defines.iter().any(|value| live.contains(value));
        if !needed {
            *dead += 1 + all_inside(program, op);
            continue;
        }
        for value in defines {
            live.remove(value);
        }
        live.extend(program.operand_values(op));
        if let Some(inside) = program.op_scope(op) {
            let keep_all = keep_all || program.symbol_flags(op).contains(SymbolFlags::FUSION);
            let results = program.result_values(op).collect();
            live.extend(visit(program, keep_random, inside, results, keep_all, dead));
        }
    }
    if let Some(owner) = program.scope_owner(scope) {
        for value in program.operand_values(owner) {
            live.remove(&value);
        }
    }
    live
}
