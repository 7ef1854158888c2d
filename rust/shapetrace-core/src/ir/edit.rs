//! What the optimizer answers: not a new program, but what to do with the one it was given.

use rustc_hash::FxHashMap;

use crate::entity::{BitSet, Entity, PackedOption};
use crate::ir::{Constant, Number, Op, Operand, ScalarOp, Value};

/// Declares [`Reason`] with the word that reports use and a sentence.
macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// Why an op was removed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Reason {
            $($(#[$doc])* $variant,)*
        }

        impl Reason {
            /// All of them, in the order of reports.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The word that reports and file tests use.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

reasons! {
    /// Nothing reads what it makes.
    Dead = "dead",
    /// It is inside an op that was removed.
    InsideRemoved = "inside-removed",
    /// All it makes was made before, in the same scope.
    DuplicateProducer = "duplicate-producer",
    /// The same dimensions were asked for before, in the same scope.
    DuplicateQuery = "duplicate-query",
    /// All dimensions it asks for are known in the scope under their names.
    RedundantQuery = "redundant-query",
    /// Arithmetic whose result is known: a constant, an operand, or computed before.
    Folded = "folded",
    /// It only hands back what it was given.
    NoOp = "no-op",
}

/// What happens to one op.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OpStatus {
    /// It stays.
    #[default]
    Kept,
    /// It goes.
    Removed(Reason),
}

/// A kept op that becomes another: the same results, computed by other arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rewrite {
    /// The op.
    pub op: Op,
    /// What it computes from now on.
    pub scalar: ScalarOp,
    /// From what; already with the names that are in force afterwards.
    pub operands: [Operand; 2],
    /// Whether it is known that the operands are at hand where the op is.
    pub(crate) settled: bool,
}

/// The answer of the optimizer.
///
/// Read it in this order: an op that is not kept is gone with all inside it; a kept op that is
/// not [`EditList::is_changed`] stays as it is, with all inside it; for a changed op every value
/// that it reads or writes goes by its [`EditList::replacement`], result slots in
/// [`EditList::is_dropped`] are no longer written, and a [`Rewrite`] replaces symbol and operands.
///
/// A constant in an edit list is one of [`EditList::literal_of`], not of the program.
#[derive(Clone, Debug, Default)]
pub struct EditList {
    pub(crate) status: Vec<OpStatus>,
    pub(crate) changed: BitSet,
    pub(crate) dropped: BitSet,
    pub(crate) replacements: Vec<PackedOption<Operand>>,
    pub(crate) reshaped: BitSet,
    pub(crate) rewrites: Vec<Rewrite>,
    pub(crate) reason_counts: [usize; Reason::ALL.len()],
    pub(crate) only_hands_back: Vec<Op>,
    pub(crate) has_replacements: bool,
    pub(crate) literals: Vec<Number>,
    pub(crate) literal_ids: FxHashMap<Number, Constant>,
}

impl EditList {
    /// What happens to an op.
    #[inline]
    pub fn status(&self, op: Op) -> OpStatus {
        self.status[op.index()]
    }

    /// Whether the op stays.
    #[inline]
    pub fn is_kept(&self, op: Op) -> bool {
        self.status[op.index()] == OpStatus::Kept
    }

    /// Whether a kept op, or anything inside it, is not what it was.
    #[inline]
    pub fn is_changed(&self, op: Op) -> bool {
        self.changed.contains(op.index())
    }

    /// Whether a result slot (an index among all slots of the program) is no longer written.
    #[inline]
    pub fn is_dropped(&self, slot: usize) -> bool {
        self.dropped.contains(slot)
    }

    /// What stands for a value from now on, everywhere; none if it keeps its name.
    #[inline]
    pub fn replacement(&self, value: Value) -> Option<Operand> {
        self.replacements.get(value.index())?.get()
    }

    /// The number that a constant of this edit list stands for.
    ///
    /// # Panics
    /// If the constant comes from elsewhere and is out of range.
    #[inline]
    pub fn literal_of(&self, constant: Constant) -> Number {
        self.literals[constant.index()]
    }

    /// Whether any value goes by another name.
    #[inline]
    pub fn has_replacements(&self) -> bool {
        self.has_replacements
    }

    /// The rewrite of an op, if it has one. Logarithmic in the number of rewrites.
    #[inline]
    pub fn rewrite(&self, op: Op) -> Option<&Rewrite> {
        if self.rewrites.is_empty() {
            return None;
        }
        let found = self.rewrites.binary_search_by_key(&op, |rewrite| rewrite.op);
        found.ok().map(|index| &self.rewrites[index])
    }

    /// What an operand of the program is from now on: itself, or its replacement.
    #[inline]
    pub(crate) fn current(&self, value: Value) -> Option<Value> {
        if !self.has_replacements {
            return Some(value);
        }
        match self.replacement(value) {
            None => Some(value),
            Some(operand) => operand.value(),
        }
    }

    /// The values that a kept op reads from now on.
    #[inline]
    pub(crate) fn current_operands<'a>(
        &'a self,
        program: &'a crate::ir::Program,
        op: Op,
    ) -> impl Iterator<Item = Value> + 'a {
        // What a rewrite reads has the names that are in force, so nothing stands for it.
        self.operand_row(program, op).iter().filter_map(move |operand| self.current(operand.value()?))
    }

    /// What an op reads, before renaming.
    #[inline]
    pub(crate) fn operand_row<'a>(&'a self, program: &'a crate::ir::Program, op: Op) -> &'a [Operand] {
        self.rewrite(op).map_or(program.operands(op), |rewrite| &rewrite.operands)
    }

    /// The values that an op keeps alive in its scope: those that it reads, if it stays. thunder's
    /// pass (`compat`) also counts those of an op that goes because all it makes is known.
    pub fn values_needed_by<'a>(
        &'a self,
        program: &'a crate::ir::Program,
        op: Op,
        compat: bool,
    ) -> impl Iterator<Item = Value> + 'a {
        let counts = match self.status(op) {
            OpStatus::Kept => true,
            OpStatus::Removed(reason) => compat && reason != Reason::Dead,
        };
        counts.then(|| self.current_operands(program, op)).into_iter().flatten()
    }

    pub(crate) fn literal(&mut self, number: Number) -> Constant {
        if let Some(&constant) = self.literal_ids.get(&number) {
            return constant;
        }
        let constant = Constant::from_index(self.literals.len());
        self.literals.push(number);
        self.literal_ids.insert(number, constant);
        constant
    }

    /// Whether the shape of a tensor mentions a number that was replaced.
    #[inline]
    pub fn is_reshaped(&self, tensor: Value) -> bool {
        self.reshaped.contains(tensor.index())
    }

    /// The ops that compute the same by other arithmetic, in the order of the program.
    pub fn rewrites(&self) -> &[Rewrite] {
        &self.rewrites
    }

    /// Removed top-level ops of symbols that are not the host's own, which only hand back their
    /// argument and are not tagged: possibly in-place ops that somebody forgot to tag.
    pub fn only_hands_back(&self) -> &[Op] {
        &self.only_hands_back
    }

    /// How many ops were removed for a reason.
    pub fn removed_count(&self, reason: Reason) -> usize {
        self.reason_counts[reason as usize]
    }

    /// Whether any op was changed.
    pub fn any_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Whether anything at all is different.
    pub fn is_identity(&self) -> bool {
        self.reason_counts.iter().all(|&count| count == 0) && self.changed.is_empty()
    }

    pub(crate) fn reset(&mut self, ops: usize, slots: usize) {
        self.status.clear();
        self.status.resize(ops, OpStatus::Kept);
        self.changed.reset(ops);
        self.dropped.reset(slots);
        self.replacements.clear();
        self.reshaped.reset(0);
        self.rewrites.clear();
        self.reason_counts = [0; Reason::ALL.len()];
        self.only_hands_back.clear();
        self.has_replacements = false;
        self.literals.clear();
        self.literal_ids.clear();
    }

    /// Gives another reason for an op that is removed already.
    pub(crate) fn recount(&mut self, op: Op, reason: Reason) {
        if let OpStatus::Removed(before) = self.status[op.index()] {
            self.reason_counts[before as usize] -= 1;
            self.reason_counts[reason as usize] += 1;
            self.status[op.index()] = OpStatus::Removed(reason);
        }
    }

    /// How many ops are removed, slots dropped and ops rewritten.
    pub(crate) fn extent(&self) -> (usize, usize, usize) {
        (self.reason_counts.iter().sum(), self.dropped.len(), self.rewrites.len())
    }

    pub(crate) fn remove(&mut self, op: Op, reason: Reason) {
        debug_assert!(self.is_kept(op));
        self.status[op.index()] = OpStatus::Removed(reason);
        self.reason_counts[reason as usize] += 1;
    }
}
