//! Dead code elimination, in every scope, backwards.
//!
//! In: first producers; ops that other passes removed already. Out: an op stays if it has an
//! effect, or is the first producer of a value that is live behind it; all others are removed,
//! with all inside them.
//!
//! What is live at the end of a scope: at the top level the program's outputs, elsewhere the
//! results of the owner. Scopes are visited from the innermost outwards. A value that is live at
//! the start of a scope though its owner does not list it as an operand is a use by the owner: a
//! well-formed trace has none, thunder makes some (numbers), and no pass here adds one.
//!
//! Fusions are left alone: all that is inside one stays.

use super::duplicate_producers::FusionScopes;
use super::first_producer::FirstProducers;
use super::{noop_subsymbols, shape_queries, Options};
use crate::analysis::effects::Effects;
use crate::entity::{BitSet, Entity, StampSet};
use crate::ir::{EditList, Op, Program, Reason, Scope, ShapeMention, SymbolFlags, Value};

/// Memory of the pass.
#[derive(Debug, Default)]
pub(super) struct DeadCode {
    live: StampSet,
    live_order: Vec<Value>,
    /// Values that a scope uses from outside beside its owner's operands, and where those of a
    /// scope start.
    captures: Vec<Value>,
    capture_ranges: Vec<(u32, u32)>,
    /// With `keep_shape_numbers`: the numbers in the shapes of tensors, sorted by tensor.
    shape_numbers: Vec<(Value, Value)>,
    /// Scopes inside fusions.
    in_fusion: BitSet,
    /// No value has another name, and no op is rewritten.
    nothing_changed: bool,
    /// Whether positions of queries that nothing reads are dropped.
    drop_positions: bool,
}

impl DeadCode {
    /// Runs the pass. Positions of queries are dropped only on demand: as long as names may still
    /// change, a position that nothing reads may be the first name of a dimension.
    pub(super) fn run(
        &mut self,
        program: &Program,
        effects: &Effects,
        first: &FirstProducers,
        options: Options,
        drop_positions: bool,
        edits: &mut EditList,
    ) {
        self.drop_positions = drop_positions;
        self.live.reset(program.value_count());
        self.captures.clear();
        self.capture_ranges.clear();
        self.capture_ranges.resize(program.scope_count(), (0, 0));
        self.shape_numbers.clear();
        if options.keep_shape_numbers {
            let current = |mention: &ShapeMention| Some((mention.tensor, edits.current(mention.number)?));
            self.shape_numbers.extend(program.shape_mentions().iter().filter_map(current));
            self.shape_numbers.sort_unstable();
        }
        let mut fusions = FusionScopes::default();
        self.in_fusion.reset(program.scope_count());
        if program.may_have(SymbolFlags::FUSION) {
            for scope in program.scopes() {
                if fusions.enter(program, scope) {
                    self.in_fusion.insert(scope.index());
                }
            }
        }
        self.nothing_changed = !edits.has_replacements && edits.rewrites.is_empty();
        for scope in program.scopes().rev() {
            self.visit_scope(program, effects, first, edits, scope);
        }
        // A query that lost positions while its inside was done already: once more, inside it.
        for scope in program.scopes().skip(1) {
            let owner = program.scope_owner(scope).expect("only the top level has no owner");
            let lost_positions = edits.is_kept(owner)
                && program.shape_query(owner).is_some()
                && program.result_range(owner).any(|slot| edits.is_dropped(slot));
            if lost_positions {
                self.visit_scope(program, effects, first, edits, scope);
            }
        }
        remove_inside_removed(program, edits);
    }

    fn visit_scope(
        &mut self,
        program: &Program,
        effects: &Effects,
        first: &FirstProducers,
        edits: &mut EditList,
        scope: Scope,
    ) {
        let keep_all = self.in_fusion.contains(scope.index());
        let has_shape_numbers = scope == Scope::TOP && !self.shape_numbers.is_empty();
        self.live.clear();
        self.live_order.clear();
        match program.scope_owner(scope) {
            None => {
                for &value in program.outputs() {
                    self.mark(value);
                }
            }
            Some(owner) => {
                for (slot, result) in program.result_range(owner).zip(program.results(owner)) {
                    if edits.is_dropped(slot) {
                        continue;
                    }
                    if let Some(value) = result.get().and_then(|value| edits.current(value)) {
                        self.mark(value);
                    }
                }
            }
        }
        if has_shape_numbers {
            self.mark_shape_numbers(0);
        }
        for op in program.scope_ops(scope).rev() {
            if !edits.is_kept(op) {
                continue;
            }
            let seen = self.live_order.len();
            let needed = keep_all || effects.has_effect(op) || self.defines_live(program, first, edits, op);
            if needed {
                if self.drop_positions && !keep_all && effects.may_merge(op) {
                    shape_queries::drop_dead_positions(program, edits, op, |value| self.live.contains(value.index()));
                }
                self.keep(program, first, edits, op);
                if has_shape_numbers {
                    self.mark_shape_numbers(seen);
                }
            } else {
                noop_subsymbols::remove(program, first, edits, scope, op);
            }
        }
        let start = self.captures.len() as u32;
        if let Some(owner) = program.scope_owner(scope) {
            // What is still live at the start of the scope comes from its owner, or is a capture.
            for value in edits.current_operands(program, owner) {
                self.live.remove(value.index());
            }
            for &value in &self.live_order {
                if self.live.remove(value.index()) {
                    self.captures.push(value);
                }
            }
        }
        self.capture_ranges[scope.index()] = (start, self.captures.len() as u32);
    }

    #[inline]
    fn mark(&mut self, value: Value) {
        if self.live.insert(value.index()) {
            self.live_order.push(value);
        }
    }

    /// Marks the numbers in the shapes of the tensors that became live from `start` on.
    fn mark_shape_numbers(&mut self, start: usize) {
        let numbers = std::mem::take(&mut self.shape_numbers);
        for index in start..self.live_order.len() {
            let tensor = self.live_order[index];
            let first = numbers.partition_point(|&(other, _)| other < tensor);
            for &(_, number) in numbers[first..].iter().take_while(|&&(other, _)| other == tensor) {
                self.mark(number);
            }
        }
        self.shape_numbers = numbers;
    }

    #[inline]
    fn defines_live(&self, program: &Program, first: &FirstProducers, edits: &EditList, op: Op) -> bool {
        program.result_range(op).zip(program.results(op)).any(|(slot, result)| {
            first.definitions.contains(slot)
                && result
                    .get()
                    .and_then(|value| edits.current(value))
                    .is_some_and(|value| self.live.contains(value.index()))
        })
    }

    #[inline]
    fn keep(&mut self, program: &Program, first: &FirstProducers, edits: &mut EditList, op: Op) {
        for (slot, result) in program.result_range(op).zip(program.results(op)) {
            if first.definitions.contains(slot) {
                // Not live in front of its definition, unless something there reads it: then it
                // comes from outside the scope.
                if let Some(value) = result.get().and_then(|value| edits.current(value)) {
                    self.live.remove(value.index());
                }
            }
        }
        if self.nothing_changed {
            for value in program.operand_values(op) {
                self.mark(value);
            }
        } else {
            for value in edits.current_operands(program, op) {
                self.mark(value);
            }
        }
        if let Some(inside) = program.op_scope(op) {
            let (start, end) = self.capture_ranges[inside.index()];
            for index in start..end {
                self.mark(self.captures[index as usize]);
            }
        }
    }
}

/// All that is inside a removed op is removed with it.
pub(super) fn remove_inside_removed(program: &Program, edits: &mut EditList) {
    for scope in program.scopes() {
        if program.scope_owner(scope).is_some_and(|owner| !edits.is_kept(owner)) {
            for op in program.scope_ops(scope) {
                if edits.is_kept(op) {
                    edits.remove(op, Reason::InsideRemoved);
                } else {
                    edits.recount(op, Reason::InsideRemoved);
                }
            }
        }
    }
}

/// Whether the op only hands back values that it was given.
pub(super) fn only_hands_back(program: &Program, first: &FirstProducers, op: Op) -> bool {
    let mut slots =
        program.result_range(op).zip(program.results(op)).filter(|(_, result)| !result.is_none()).peekable();
    slots.peek().is_some()
        && slots.all(|(slot, _)| first.handed_back.contains(slot))
        && !program.symbol_flags(op).contains(SymbolFlags::RETURN)
}
