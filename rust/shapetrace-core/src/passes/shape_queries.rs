//! Shape queries: only the positions that something reads are written.
//!
//! Value numbering gives two queries of one tensor the same names, so the second is a duplicate
//! producer and gone before this. What is left here are the positions of a kept query that
//! nothing reads: they are dropped, and print as `_`.

use crate::entity::Entity;
use crate::ir::{EditList, Op, Program, SymbolFlags, Value};

/// Finds the positions of a shape query that are not live behind it; whether there are any. Drops them if `drop`.
pub(super) fn dead_positions(
    program: &Program,
    edits: &mut EditList,
    op: Op,
    drop: bool,
    is_live: impl Fn(Value) -> bool,
) -> bool {
    let mut any = false;
    if !program.symbol_flags(op).contains(SymbolFlags::USUAL_PRINTER) || program.shape_query(op).is_none() {
        return false;
    }
    for (slot, result) in program.result_range(op).zip(program.results(op)) {
        let Some(value) = result.get() else { continue };
        if edits.is_dropped(slot) {
            continue;
        }
        let live = edits.current(value).is_some_and(&is_live);
        any |= !live;
        if !live && drop {
            edits.dropped.insert(slot);
            edits.changed.insert(op.index());
        }
    }
    any
}
