//! The program as the edits made so far leave it.

use crate::entity::PackedOption;
use crate::ir::{EditList, Number, Op, Operand, Program, ScalarOp, Value};

/// Reads ops under the names and with the rewrites that are in force. It is `PLAIN` where no edit but
/// the removal of whole ops is: then nothing of an op has to be looked up.
#[derive(Clone, Copy)]
pub(super) struct View<'a, const PLAIN: bool> {
    pub(super) program: &'a Program,
    pub(super) edits: &'a EditList,
}

/// What an op reads.
#[derive(Clone, Copy)]
pub(super) enum Read {
    Value(Value),
    Number(Number),
}

/// Whether a view of a program with these edits is plain.
pub(super) fn is_plain(edits: &EditList) -> bool {
    !edits.has_replacements && edits.rewrites.is_empty() && edits.dropped.is_empty()
}

impl<'a, const PLAIN: bool> View<'a, PLAIN> {
    /// What a result slot writes; none where nothing, or a literal, is written.
    #[inline]
    pub(super) fn result(self, slot: usize, result: PackedOption<Value>) -> Option<Value> {
        if PLAIN {
            return result.get();
        }
        let value = result.get().filter(|_| !self.edits.is_dropped(slot))?;
        self.edits.current(value)
    }

    /// The result slots, as [`View::result`].
    #[inline]
    pub(super) fn results(self, op: Op) -> impl Iterator<Item = Option<Value>> + 'a {
        let start = self.program.result_range(op).start;
        self.program.results(op).iter().enumerate().map(move |(index, &result)| self.result(start + index, result))
    }

    #[inline]
    pub(super) fn result_values(self, op: Op) -> impl Iterator<Item = Value> + 'a {
        self.results(op).flatten()
    }

    /// What the op reads, before renaming.
    #[inline]
    pub(super) fn operand_row(self, op: Op) -> &'a [Operand] {
        if PLAIN {
            return self.program.operands(op);
        }
        self.edits.operand_row(self.program, op)
    }

    /// The value that an operand is, if it is one.
    #[inline]
    pub(super) fn value(self, operand: Operand) -> Option<Value> {
        if PLAIN {
            return operand.value();
        }
        self.edits.current(operand.value()?)
    }

    #[inline]
    pub(super) fn operand_values(self, op: Op) -> impl Iterator<Item = Value> + 'a {
        self.operand_row(op).iter().filter_map(move |&operand| self.value(operand))
    }

    /// What an operand of [`View::operand_row`] is. The literals of a rewrite are those of the edits.
    #[inline]
    pub(super) fn read(self, operand: Operand, is_rewritten: bool) -> Read {
        let replacement = |value| if PLAIN { None } else { self.edits.replacement(value) };
        let (operand, of_edits) = match operand.value().and_then(replacement) {
            Some(other) => (other, true),
            None => (operand, is_rewritten),
        };
        match (operand.value(), operand.constant()) {
            (Some(value), _) => Read::Value(value),
            (_, Some(constant)) if of_edits => Read::Number(self.edits.literal_of(constant)),
            (_, Some(constant)) => Read::Number(self.program.constant(constant)),
            _ => unreachable!("an operand is a value or a constant"),
        }
    }

    /// Whether the op computes something else than its symbol says.
    #[inline]
    pub(super) fn is_rewritten(self, op: Op) -> bool {
        !PLAIN && self.edits.rewrite(op).is_some()
    }

    /// As [`Program::scalar_op`].
    #[inline]
    pub(super) fn scalar_op(self, op: Op) -> Option<(ScalarOp, Value)> {
        let (scalar, result) = self.program.scalar_op(op)?;
        if PLAIN {
            return Some((scalar, result));
        }
        let result = self.result(self.program.result_range(op).start, result.into())?;
        Some((self.edits.rewrite(op).map_or(scalar, |rewrite| rewrite.scalar), result))
    }
}
