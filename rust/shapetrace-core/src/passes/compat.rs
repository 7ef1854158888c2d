//! Level "compat": what thunder's own pass does, and only that.
//!
//! thunder's pass looks at the top level only: an op stays if it is tagged as an effect (itself
//! or anything inside it), or if one of its results is live and it is the first producer of that
//! result, *or equal to it*. Then, from the front, numbers that were defined before are written
//! as their value, and an op that writes nothing else goes. In the scopes inside kept ops, no-op
//! ops go: composites with nothing inside, and, unless the owner has an effect, ops that define
//! no value.
//!
//! Two things differ, both where thunder loses a side effect: an op that is tagged as an effect
//! stays when its output is empty or was defined before, and stays inside another op though it is
//! a composite with nothing inside.

use super::dce::remove_inside_removed;
use super::first_producer::FirstProducers;
use crate::analysis::effects::{has_own_effect, EffectRules, Effects};
use crate::entity::{BitSet, Entity, PackedOption, StampSet};
use crate::ir::{EditList, Op, OpFlags, Program, Reason, Scope, SymbolFlags, Value};

/// Memory of the level.
#[derive(Debug, Default)]
pub(super) struct Compat {
    producers: Vec<PackedOption<Op>>,
    live: BitSet,
    seen: StampSet,
}

impl Compat {
    pub(super) fn run(
        &mut self,
        program: &Program,
        effects: &Effects,
        first: &FirstProducers,
        equal: &mut dyn FnMut(Op, Op) -> bool,
        edits: &mut EditList,
    ) {
        self.eliminate_dead_ops(program, effects, first, equal, edits);
        self.drop_known_numbers(program, effects, edits);
        remove_noop_subsymbols(program, effects, edits);
        remove_inside_removed(program, edits);
    }

    fn eliminate_dead_ops(
        &mut self,
        program: &Program,
        effects: &Effects,
        first: &FirstProducers,
        equal: &mut dyn FnMut(Op, Op) -> bool,
        edits: &mut EditList,
    ) {
        self.live.reset(program.value_count());
        for &value in program.outputs() {
            self.live.insert(value.index());
        }
        // Only ops that write what was written before need to be compared with its producer.
        let has_conflicts = !first.conflicts.is_empty();
        if has_conflicts {
            self.producers.clear();
            self.producers.resize(program.value_count(), PackedOption::NONE);
            for op in program.scope_ops(Scope::TOP) {
                for (slot, result) in program.result_range(op).zip(program.results(op)) {
                    if let (true, Some(value)) = (first.definitions.contains(slot), result.get()) {
                        self.producers[value.index()] = op.into();
                    }
                }
            }
        }
        for op in program.scope_ops(Scope::TOP).rev() {
            let mut is_live = |slot: usize, result: PackedOption<Value>| {
                let Some(value) = result.get() else { return false };
                self.live.contains(value.index())
                    && (first.definitions.contains(slot)
                        || (has_conflicts
                            && self.producers[value.index()].get().is_some_and(|producer| equal(op, producer))))
            };
            let needed = effects.has_effect(op)
                || match (program.result_range(op), program.results(op)) {
                    // Most ops.
                    (slots, &[result]) => is_live(slots.start, result),
                    (slots, results) => slots.zip(results).any(|(slot, &result)| is_live(slot, result)),
                };
            if needed {
                for value in program.operand_values(op) {
                    self.live.insert(value.index());
                }
            } else {
                edits.remove(op, Reason::Dead);
            }
        }
    }

    fn drop_known_numbers(&mut self, program: &Program, effects: &Effects, edits: &mut EditList) {
        if !program.has_numbers() {
            return;
        }
        self.seen.reset(program.value_count());
        for op in program.scope_ops(Scope::TOP) {
            if !edits.is_kept(op) {
                continue;
            }
            let slots = || program.result_range(op).zip(program.results(op));
            let all_known = !program.flags(op).contains(OpFlags::LITERAL_RESULT)
                && program.result_values(op).next().is_some()
                && slots().all(|(_, result)| result.get().is_some_and(|value| self.seen.contains(value.index())));
            if all_known && !effects.has_effect(op) {
                edits.remove(op, Reason::DuplicateProducer);
                continue;
            }
            for (slot, result) in slots() {
                let Some(value) = result.get() else { continue };
                if !program.value_kind(value).is_number() {
                    continue;
                }
                if self.seen.contains(value.index()) {
                    edits.dropped.insert(slot);
                    edits.changed.insert(op.index());
                } else {
                    self.seen.insert(value.index());
                }
            }
        }
    }
}

fn remove_noop_subsymbols(program: &Program, effects: &Effects, edits: &mut EditList) {
    for scope in program.scopes().skip(1) {
        let owner = program.scope_owner(scope).expect("only the top level has no owner");
        if !edits.is_kept(owner) {
            continue;
        }
        for op in program.scope_ops(scope) {
            let is_primitive = program.symbol_flags(op).contains(SymbolFlags::PRIMITIVE);
            if is_primitive && program.result_values(op).next().is_some() {
                continue;
            }
            let tagged = has_own_effect(program, op, EffectRules::default());
            let nothing_inside = program.op_scope(op).is_none_or(|inside| program.scope_ops(inside).len() == 0);
            let is_noop = nothing_inside && !is_primitive && !tagged;
            let is_constant = !effects.has_effect(owner)
                && program.result_values(op).next().is_none()
                && !program.flags(op).contains(OpFlags::UNREAD_RESULT);
            if is_noop || is_constant {
                edits.remove(op, Reason::NoOp);
            }
        }
    }
}
