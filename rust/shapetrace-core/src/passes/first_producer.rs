//! First producers: of the ops of a scope that define a value, the first is its definition.
//!
//! In: any program, with renaming in force. Out: for every result slot whether it is a
//! definition; for the slots that are not, the ops that hold them, for the passes behind.
//!
//! An op whose own operands contain a result does not define it (`x = unpack_trivial(x)`, or a
//! result that arithmetic has turned into an operand), and what the owner of a scope takes is
//! defined there from the start, unless it may be from a collection. Comments, prints and the return define nothing.
//!
//! Ops that are removed already define nothing, and neither do slots that are dropped.
//!
//! Candidate rewrites are settled here as well, for this is where it is known what a scope has
//! defined or read so far: one whose operands are not at hand is dropped.

use crate::entity::{BitSet, Entity, PackedOption, StampSet};
use crate::ir::{EditList, Op, OpFlags, Operand, Program, Rewrite, SymbolFlags, Value};

/// Memory and answer of the pass.
#[derive(Debug, Default)]
pub(super) struct FirstProducers {
    /// Result slots that are definitions.
    pub(super) definitions: BitSet,
    /// Result slots whose value the op was given.
    pub(super) handed_back: BitSet,
    /// Ops with a slot that is not a definition, in scope order.
    pub(super) conflicts: Vec<Op>,
    defined: StampSet,
    read_by_op: StampSet,
    /// What the ops of the scope so far read: it was there, wherever it comes from.
    read: StampSet,
}

/// Up to this many pairs of a result and an operand are compared one by one.
const SCAN_LIMIT: usize = 64;

impl FirstProducers {
    /// Runs the pass; on the top level alone if that is all that is asked for.
    pub(super) fn run(&mut self, program: &Program, top_only: bool, edits: &mut EditList) {
        self.definitions.reset(program.result_count());
        self.handed_back.reset(program.result_count());
        self.conflicts.clear();
        self.defined.reset(program.value_count());
        let mut rewrites = std::mem::take(&mut edits.rewrites);
        let mut settled = 0;
        let mut next_rewrite = 0;
        let is_open = |rewrite: &Rewrite| !rewrite.settled;
        let any_open = rewrites.iter().any(is_open);
        let nothing_changed = !edits.has_replacements && edits.dropped.is_empty();
        if any_open {
            self.read.reset(program.value_count());
        }
        let scopes = if top_only { 1 } else { program.scope_count() };
        for scope in program.scopes().take(scopes) {
            self.defined.clear();
            let owner = program.scope_owner(scope);
            if owner.is_some_and(|owner| !edits.is_kept(owner)) {
                // Nothing inside is left.
                continue;
            }
            if any_open {
                self.read.clear();
            }
            // What an owner reads of a collection does not come in under its name, and nothing tells it
            // from what it is given otherwise.
            if let Some(owner) = owner.filter(|&owner| !program.flags(owner).contains(OpFlags::FIXED_NAMES)) {
                for value in program.operand_values(owner) {
                    if let Some(value) = edits.current(value) {
                        self.defined.insert(value.index());
                    }
                }
            }
            if rewrites.is_empty() {
                for op in program.scope_ops(scope) {
                    if edits.is_kept(op) {
                        self.visit(program, edits, op, nothing_changed);
                    }
                }
                continue;
            }
            for op in program.scope_ops(scope).filter(|&op| edits.is_kept(op)) {
                while rewrites.get(next_rewrite).is_some_and(|rewrite| rewrite.op < op) {
                    next_rewrite += 1;
                }
                if rewrites.get(next_rewrite).is_some_and(|rewrite| rewrite.op == op) {
                    let rewrite = rewrites[next_rewrite];
                    next_rewrite += 1;
                    let at_hand = |operand: &Operand| {
                        operand.value().is_none_or(|value| {
                            self.defined.contains(value.index()) || self.read.contains(value.index())
                        })
                    };
                    if rewrite.settled || rewrite.operands.iter().all(at_hand) {
                        rewrites[settled] = Rewrite { settled: true, ..rewrite };
                        settled += 1;
                    }
                }
                if any_open {
                    let rewrite = rewrites[..settled].last().filter(|rewrite| rewrite.op == op);
                    let operands = rewrite.map_or(program.operands(op), |rewrite| &rewrite.operands);
                    for value in operands.iter().filter_map(|operand| edits.current(operand.value()?)) {
                        self.read.insert(value.index());
                    }
                }
                self.visit(program, edits, op, nothing_changed);
            }
        }
        rewrites.truncate(settled);
        edits.rewrites = rewrites;
    }

    #[inline]
    fn visit(&mut self, program: &Program, edits: &EditList, op: Op, nothing_changed: bool) {
        if program.symbol_flags(op).contains(SymbolFlags::DEFINES_NOTHING) {
            return;
        }
        // Most ops have one result. What takes a while elsewhere is to look for what is different.
        let (start, results, operands) = (program.result_range(op).start, program.results(op), program.operands(op));
        let conflict = match (results, nothing_changed) {
            (&[result], true) => self.is_conflict(start, result, operands),
            (&[result], false) if operands.len() <= SCAN_LIMIT => {
                self.is_renamed_conflict(edits, start, result, operands)
            }
            _ => self.visit_others(program, edits, op, nothing_changed),
        };
        if conflict {
            self.conflicts.push(op);
        }
    }

    #[inline(never)]
    fn visit_others(&mut self, program: &Program, edits: &EditList, op: Op, nothing_changed: bool) -> bool {
        let (start, results, operands) = (program.result_range(op).start, program.results(op), program.operands(op));
        if results.len() * operands.len() > SCAN_LIMIT {
            return self.visit_wide(program, edits, op);
        }
        let mut conflict = false;
        for (index, &result) in results.iter().enumerate() {
            conflict |= if nothing_changed {
                self.is_conflict(start + index, result, operands)
            } else {
                self.is_renamed_conflict(edits, start + index, result, operands)
            };
        }
        conflict
    }

    /// Whether a result of an op is no definition. Under the names that the program has.
    #[inline]
    fn is_conflict(&mut self, slot: usize, result: PackedOption<Value>, operands: &[Operand]) -> bool {
        result.get().is_some_and(|value| !self.define(slot, value, operands.contains(&value.into())))
    }

    /// As [`FirstProducers::is_conflict`], under the names that are in force.
    #[inline]
    fn is_renamed_conflict(
        &mut self,
        edits: &EditList,
        slot: usize,
        result: PackedOption<Value>,
        operands: &[Operand],
    ) -> bool {
        match Self::result(edits, slot, result) {
            Ok(value) => {
                let is_it = |operand: &Operand| operand.value().and_then(|other| edits.current(other)) == Some(value);
                !self.define(slot, value, operands.iter().any(is_it))
            }
            Err(conflict) => conflict,
        }
    }

    /// The value of a result slot; if there is none, whether that is a conflict: a literal took its place.
    #[inline]
    fn result(edits: &EditList, slot: usize, result: PackedOption<Value>) -> Result<Value, bool> {
        if edits.is_dropped(slot) {
            return Err(false);
        }
        result.get().and_then(|value| edits.current(value)).ok_or(!result.is_none())
    }

    /// Whether a result is a definition, and notes it.
    #[inline]
    fn define(&mut self, slot: usize, value: Value, handed_back: bool) -> bool {
        if handed_back {
            self.handed_back.insert(slot);
            return false;
        }
        let new = self.defined.insert(value.index());
        if new {
            self.definitions.insert(slot);
        }
        new
    }

    /// An op with so many operands that it does not do to look through them for each result.
    #[cold]
    fn visit_wide(&mut self, program: &Program, edits: &EditList, op: Op) -> bool {
        self.stamp_operands(program, edits, op);
        let mut conflict = false;
        for (slot, &result) in program.result_range(op).zip(program.results(op)) {
            conflict |= match Self::result(edits, slot, result) {
                Ok(value) => !self.define(slot, value, self.read_by_op.contains(value.index())),
                Err(conflict) => conflict,
            };
        }
        conflict
    }

    fn stamp_operands(&mut self, program: &Program, edits: &EditList, op: Op) {
        self.read_by_op.clear_for(program.value_count());
        for value in program.operand_values(op) {
            if let Some(value) = edits.current(value) {
                self.read_by_op.insert(value.index());
            }
        }
    }
}
