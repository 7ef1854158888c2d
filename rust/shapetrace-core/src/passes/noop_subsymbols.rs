//! No-op ops: what only hands back its inputs does nothing.
//!
//! Such an op defines nothing, so dead code elimination finds it unneeded and asks here for the
//! reason. A nested composite becomes a no-op when all inside it were no-ops; as inner scopes come
//! first, one run reaches the fixed point. An op that is tagged as an effect never gets here.

use super::dce::only_hands_back;
use super::first_producer::FirstProducers;
use crate::ir::{EditList, Op, Program, Reason, Scope, SymbolFlags};

/// Removes an op that nothing needs, and says why.
#[inline(never)]
pub(super) fn remove(program: &Program, first: &FirstProducers, edits: &mut EditList, scope: Scope, op: Op) {
    if !only_hands_back(program, first, op) {
        edits.remove(op, Reason::Dead);
        return;
    }
    edits.remove(op, Reason::NoOp);
    // At the top level it may be an in-place op that somebody forgot to tag: worth a warning.
    let foreign = !program.symbol_flags(op).contains(SymbolFlags::TRUSTED);
    if scope == Scope::TOP && foreign && program.op_scope(op).is_none() {
        edits.only_hands_back.push(op);
    }
}
