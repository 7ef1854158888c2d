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
use crate::entity::{BitSet, Entity, PackedOption, StampSet};
use crate::ir::{EditList, Op, Program, Reason, Scope, ShapeMention, SymbolFlags, Value};

/// Memory of the pass.
#[derive(Debug, Default)]
pub(super) struct DeadCode {
    live: StampSet,
    /// How many values are live.
    live_count: usize,
    /// With `keep_shape_numbers`, at the top level: what became live, in order.
    live_order: Vec<Value>,
    notes_order: bool,
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
    positions: DeadPositions,
}

/// What is done about positions of queries that nothing reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Treated {
    #[default]
    Ignored,
    Noted,
    Dropped,
}

/// Positions of queries that nothing reads.
#[derive(Clone, Copy, Debug, Default)]
struct DeadPositions {
    treated: Treated,
    /// Whether there was one.
    any: bool,
    /// Whether a query with a scope inside had one: that scope was visited before.
    around_scope: bool,
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
        let treated = match (drop_positions, edits.extent()) {
            (true, _) => Treated::Dropped,
            (false, (0, 0, 0)) => Treated::Noted,
            // As something was found already, there will be another round for these.
            _ => Treated::Ignored,
        };
        self.positions = DeadPositions { treated, ..DeadPositions::default() };
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
        let again = if self.positions.treated == Treated::Dropped && self.positions.around_scope {
            program.scope_count()
        } else {
            0
        };
        for scope in program.scopes().take(again).skip(1) {
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

    /// Whether the last run saw positions of queries that nothing reads.
    pub(super) fn saw_dead_positions(&self) -> bool {
        self.positions.any
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
        let ask_queries =
            self.positions.treated != Treated::Ignored && !keep_all && program.may_have(SymbolFlags::SHAPE_QUERY);
        let has_shape_numbers = scope == Scope::TOP && !self.shape_numbers.is_empty();
        self.live.clear();
        self.live_count = 0;
        self.live_order.clear();
        self.notes_order = has_shape_numbers;
        match program.scope_owner(scope) {
            None => {
                for &value in program.outputs() {
                    self.mark(value);
                }
            }
            Some(owner) => {
                let start = program.result_range(owner).start;
                for (index, result) in program.results(owner).iter().enumerate() {
                    if edits.is_dropped(start + index) {
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
            let (slots, results) = (program.result_range(op), program.results(op));
            // Most ops make one value; what they define is then known already.
            let (defines_live, only) = match results {
                &[result] => {
                    let only = Self::definition(first, edits, slots.start, result);
                    (only.is_some_and(|value| self.live.contains(value.index())), only)
                }
                _ => (self.defines_live(first, edits, slots.start, results), None),
            };
            if !(defines_live || keep_all || effects.has_effect(op)) {
                noop_subsymbols::remove(program, first, edits, scope, op);
                continue;
            }
            let asks = ask_queries && program.symbol_flags(op).contains(SymbolFlags::SHAPE_QUERY);
            if asks && effects.may_merge(op) {
                self.find_dead_positions(program, edits, op);
            }
            // Not live in front of its definition, unless something there reads it: then it comes
            // from outside the scope.
            match (results, only) {
                ([_], Some(value)) => self.unmark(value),
                ([_], None) => {}
                _ => self.unmark_definitions(first, edits, slots.start, results),
            }
            let seen = self.live_order.len();
            self.mark_operands(program, edits, op);
            if has_shape_numbers {
                self.mark_shape_numbers(seen);
            }
        }
        let start = self.captures.len() as u32;
        if let Some(owner) = program.scope_owner(scope) {
            // What is still live at the start of the scope comes from its owner, or is a capture.
            if self.live_count > 0 {
                for value in edits.current_operands(program, owner) {
                    self.unmark(value);
                }
            }
            if self.live_count > 0 {
                self.find_captures(program, edits, scope, owner);
            }
        }
        if self.captures.len() as u32 > start {
            self.capture_ranges[scope.index()] = (start, self.captures.len() as u32);
        }
    }

    #[inline(never)]
    fn find_dead_positions(&mut self, program: &Program, edits: &mut EditList, op: Op) {
        let is_live = |value: Value| self.live.contains(value.index());
        let drop = self.positions.treated == Treated::Dropped;
        let dead = shape_queries::dead_positions(program, edits, op, drop, is_live);
        self.positions.any |= dead;
        self.positions.around_scope |= dead && program.op_scope(op).is_some();
    }

    #[inline(never)]
    fn unmark_definitions(
        &mut self,
        first: &FirstProducers,
        edits: &EditList,
        start: usize,
        results: &[PackedOption<Value>],
    ) {
        for (index, &result) in results.iter().enumerate() {
            if let Some(value) = Self::definition(first, edits, start + index, result) {
                self.unmark(value);
            }
        }
    }

    /// Lists what is live at the start of a scope though its owner does not read it: somebody in
    /// the scope does, or the owner makes it.
    #[cold]
    fn find_captures(&mut self, program: &Program, edits: &EditList, scope: Scope, owner: Op) {
        for value in program.result_values(owner).filter_map(|value| edits.current(value)) {
            self.capture(value);
        }
        for op in program.scope_ops(scope).filter(|&op| edits.is_kept(op)) {
            for value in edits.current_operands(program, op) {
                self.capture(value);
            }
            if let Some(inside) = program.op_scope(op) {
                let (start, end) = self.capture_ranges[inside.index()];
                for index in start..end {
                    self.capture(self.captures[index as usize]);
                }
            }
        }
    }

    fn capture(&mut self, value: Value) {
        if self.live.contains(value.index()) {
            self.unmark(value);
            self.captures.push(value);
        }
    }

    #[inline]
    fn mark(&mut self, value: Value) {
        if self.live.insert(value.index()) {
            self.live_count += 1;
            if self.notes_order {
                self.live_order.push(value);
            }
        }
    }

    #[inline]
    fn unmark(&mut self, value: Value) {
        self.live_count -= usize::from(self.live.remove(value.index()));
    }

    /// Marks the numbers in the shapes of the tensors that became live from `start` on.
    #[cold]
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

    /// What a result slot defines.
    #[inline]
    fn definition(first: &FirstProducers, edits: &EditList, slot: usize, result: PackedOption<Value>) -> Option<Value> {
        if first.definitions.contains(slot) {
            result.get().and_then(|value| edits.current(value))
        } else {
            None
        }
    }

    #[inline(never)]
    fn defines_live(
        &self,
        first: &FirstProducers,
        edits: &EditList,
        start: usize,
        results: &[PackedOption<Value>],
    ) -> bool {
        results.iter().enumerate().any(|(index, &result)| {
            let definition = Self::definition(first, edits, start + index, result);
            definition.is_some_and(|value| self.live.contains(value.index()))
        })
    }

    /// What a kept op reads is live in front of it, and so is what is captured inside it.
    #[inline]
    fn mark_operands(&mut self, program: &Program, edits: &EditList, op: Op) {
        if self.nothing_changed {
            for value in program.operand_values(op) {
                self.mark(value);
            }
        } else {
            for value in edits.current_operands(program, op) {
                self.mark(value);
            }
        }
        if self.captures.is_empty() {
            return;
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
    let mut slots = program.result_range(op).zip(program.results(op)).filter(|(_, result)| !result.is_none());
    // Most ops hand nothing back.
    slots.next().is_some_and(|(slot, _)| first.handed_back.contains(slot))
        && slots.all(|(slot, _)| first.handed_back.contains(slot))
        && !program.symbol_flags(op).contains(SymbolFlags::RETURN)
}
