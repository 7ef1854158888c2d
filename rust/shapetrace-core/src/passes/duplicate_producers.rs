//! Duplicate producers: what a scope has defined already is not defined again.
//!
//! In: first producers. Out: an op all of whose results were defined before is removed; an op
//! some of whose results were defined before keeps the others. Never an op that has an effect,
//! draws random numbers or writes to an argument, never inside a fusion, and never a result that
//! the op's printer could not leave out, or that may come out of a collection which the op takes.
//!
//! The reason tells what kind of op went: a shape query that repeats an earlier one of the same
//! tensor, a query whose numbers were known anyway, arithmetic, or anything else.

use rustc_hash::FxHashSet;

use super::first_producer::FirstProducers;
use crate::analysis::effects::Effects;
use crate::entity::Entity;
use crate::ir::{EditList, Op, Program, Reason, Scope, SymbolFlags, Value};

/// Memory of the pass.
#[derive(Debug, Default)]
pub(super) struct DuplicateProducers {
    /// The tensors that were asked for their shape so far in the scope; the last few stand aside.
    queried: FxHashSet<Value>,
    recent: Vec<Value>,
}

/// So few tensors are looked through one by one.
const FEW: usize = 8;

impl DuplicateProducers {
    pub(super) fn run(&mut self, program: &Program, effects: &Effects, first: &FirstProducers, edits: &mut EditList) {
        let mut conflicts = first.conflicts.iter().copied().peekable();
        let mut fusions = FusionScopes::default();
        for scope in program.scopes() {
            let skip = fusions.enter(program, scope);
            let range = program.scope_range(scope);
            match conflicts.peek() {
                None => break,
                Some(op) if op.index() >= range.end => continue,
                Some(_) => {
                    self.queried.clear();
                    self.recent.clear();
                }
            }
            let mut seen = range.start;
            while let Some(op) = conflicts.next_if(|op| op.index() < range.end) {
                if skip || !effects.may_merge(op) {
                    continue;
                }
                if program.shape_query(op).is_some() {
                    // Queries up to here, to tell a repeated one from one that was not needed.
                    let earlier = (seen..op.index()).map(Op::from_index);
                    self.recent.extend(earlier.filter_map(|op| program.shape_query(op)));
                    if self.recent.len() > FEW {
                        self.queried.extend(self.recent.drain(..));
                    }
                    seen = op.index();
                }
                self.visit(program, first, edits, op);
            }
        }
    }

    fn visit(&self, program: &Program, first: &FirstProducers, edits: &mut EditList, op: Op) {
        let mut slots = program.result_range(op);
        let defines = slots.clone().any(|slot| first.definitions.contains(slot));
        let hands_back = slots.any(|slot| first.handed_back.contains(slot));
        if !defines {
            let folded = || program.result_values(op).any(|value| edits.current(value).is_none());
            if program.scalar_op(op).is_some() {
                edits.remove(op, Reason::Folded);
            } else if let Some(tensor) = program.shape_query(op) {
                let repeated = self.recent.contains(&tensor) || self.queried.contains(&tensor);
                edits.remove(op, if repeated { Reason::DuplicateQuery } else { Reason::RedundantQuery });
            } else if !hands_back {
                let reason = if folded() { Reason::Folded } else { Reason::DuplicateProducer };
                edits.remove(op, reason);
            }
        } else if program.can_leave_out_results(op) && !hands_back {
            for (slot, result) in program.result_range(op).zip(program.results(op)) {
                if !result.is_none() && !first.definitions.contains(slot) {
                    edits.dropped.insert(slot);
                    edits.changed.insert(op.index());
                }
            }
        }
    }
}

/// Tells whether a scope is inside a fusion, asked in scope order.
#[derive(Debug, Default)]
pub(super) struct FusionScopes {
    inside: Vec<bool>,
}

impl FusionScopes {
    /// Whether `scope` is inside a fusion. Call once a scope, in order.
    #[inline]
    pub(super) fn enter(&mut self, program: &Program, scope: Scope) -> bool {
        program.may_have(SymbolFlags::FUSION) && self.enter_among_fusions(program, scope)
    }

    fn enter_among_fusions(&mut self, program: &Program, scope: Scope) -> bool {
        let inside = program.scope_owner(scope).is_some_and(|owner| {
            let around = program.scope_parent(scope).is_some_and(|parent| self.inside[parent.index()]);
            around || program.symbol_flags(owner).contains(SymbolFlags::FUSION)
        });
        self.inside.push(inside);
        inside
    }
}
