//! Which ops must stay for what they do, and which may be merged.

use crate::entity::{BitSet, Entity};
use crate::ir::{Op, OpFlags, Program, SymbolFlags};

/// Which kinds of op count as having an effect beside those that are tagged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EffectRules {
    /// An op that defines no value exists for an effect, unless its symbol is trusted.
    pub opaque_ops: bool,
    /// Random ops count: removing one would shift the random stream.
    pub random_ops: bool,
}

/// The answer of [`find_effects`].
#[derive(Clone, Debug, Default)]
pub struct Effects {
    effects: BitSet,
    unmergeable: BitSet,
}

impl Effects {
    /// Whether the op must stay for what it, or anything inside it, does.
    #[inline]
    pub fn has_effect(&self, op: Op) -> bool {
        self.effects.contains(op.index())
    }

    /// Whether an op may be dropped because another op made the same values before: neither it
    /// nor anything inside it has an effect, draws random numbers or writes to an argument.
    ///
    /// This is not the same as "may go when unused": an unused random op may.
    #[inline]
    pub fn may_merge(&self, op: Op) -> bool {
        !self.unmergeable.contains(op.index())
    }

    /// Looks again at a program some of whose ops are gone: an op inside which a random op was
    /// dead may be merged when that is gone. Whether there is such an op.
    ///
    /// No op with an effect ever goes, so effects stay what they are.
    pub fn relax(&mut self, program: &Program, rules: EffectRules, is_there: impl Fn(Op) -> bool) -> bool {
        if self.unmergeable.len() == self.effects.len() {
            // All that may not be merged has an effect.
            return false;
        }
        let before = std::mem::take(&mut self.unmergeable);
        find_among(program, rules, &is_there, self);
        program.ops().any(|op| before.contains(op.index()) && is_there(op) && self.may_merge(op))
    }
}

/// Finds what has an effect itself or anywhere inside.
///
/// One walk over scopes from the innermost outwards; linear in the number of ops.
pub fn find_effects(program: &Program, rules: EffectRules, found: &mut Effects) {
    find_among(program, rules, |_| true, found);
}

fn find_among(program: &Program, rules: EffectRules, is_there: impl Fn(Op) -> bool, found: &mut Effects) {
    found.effects.reset(program.op_count());
    found.unmergeable.reset(program.op_count());
    let unmergeable = SymbolFlags::RANDOM | SymbolFlags::IN_PLACE;
    for scope in program.scopes().rev() {
        let (mut any_effect, mut any_unmergeable) = (false, false);
        for op in program.scope_ops(scope) {
            // Most ops: what is inside came first, and has marked its owner.
            if is_plain(program, op) && found.may_merge(op) || !is_there(op) {
                continue;
            }
            // Scopes inside came first, so their owners are marked already.
            if found.has_effect(op) || has_own_effect(program, op, rules) {
                found.effects.insert(op.index());
                found.unmergeable.insert(op.index());
                any_effect = true;
            }
            if !found.may_merge(op) || program.symbol_flags(op).intersects(unmergeable) {
                found.unmergeable.insert(op.index());
                any_unmergeable = true;
            }
        }
        if let Some(owner) = program.scope_owner(scope) {
            if any_effect {
                found.effects.insert(owner.index());
            }
            if any_unmergeable {
                found.unmergeable.insert(owner.index());
            }
        }
    }
}

/// Whether neither the symbol nor the op itself says anything about effects or merging.
#[inline]
fn is_plain(program: &Program, op: Op) -> bool {
    let telling = SymbolFlags::RETURN
        | SymbolFlags::EFFECT
        | SymbolFlags::NO_EFFECT
        | SymbolFlags::RANDOM
        | SymbolFlags::IN_PLACE
        | SymbolFlags::TRUSTED;
    (program.symbol_flags(op) & telling) == SymbolFlags::TRUSTED
        && !program.flags(op).intersects(OpFlags::EFFECT | OpFlags::NO_EFFECT)
}

/// Whether the op has an effect, leaving aside what is inside it.
#[inline]
pub fn has_own_effect(program: &Program, op: Op, rules: EffectRules) -> bool {
    let symbol = program.symbol_flags(op);
    if symbol.contains(SymbolFlags::RETURN) || program.flags(op).contains(OpFlags::EFFECT) {
        return true;
    }
    if symbol.contains(SymbolFlags::NO_EFFECT) || program.flags(op).contains(OpFlags::NO_EFFECT) {
        return false;
    }
    symbol.contains(SymbolFlags::EFFECT)
        || (rules.random_ops && symbol.contains(SymbolFlags::RANDOM))
        || (rules.opaque_ops && is_opaque(program, op))
}

/// Whether the op is of a foreign symbol, makes no value and has nothing inside that could tell why.
pub fn is_opaque(program: &Program, op: Op) -> bool {
    !program.symbol_flags(op).contains(SymbolFlags::TRUSTED)
        && program.op_scope(op).is_none()
        && program.result_values(op).next().is_none()
}
