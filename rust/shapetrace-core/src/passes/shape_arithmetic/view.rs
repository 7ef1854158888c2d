//! The program as the edits made so far leave it.

use crate::ir::{EditList, Number, Op, Program, ScalarOp, Value};

/// Reads ops under the names and with the rewrites that are in force.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) program: &'a Program,
    pub(super) edits: &'a EditList,
}

/// What an op reads.
#[derive(Clone, Copy)]
pub(super) enum Read {
    Value(Value),
    Number(Number),
}

impl<'a> View<'a> {
    /// The result slots; none where nothing, or a literal, is written.
    pub(super) fn results(self, op: Op) -> impl Iterator<Item = Option<Value>> + 'a {
        self.program.result_range(op).zip(self.program.results(op)).map(move |(slot, result)| {
            let value = result.get().filter(|_| !self.edits.is_dropped(slot))?;
            self.edits.current(value)
        })
    }

    pub(super) fn result_values(self, op: Op) -> impl Iterator<Item = Value> + 'a {
        self.results(op).flatten()
    }

    pub(super) fn operand_values(self, op: Op) -> impl Iterator<Item = Value> + 'a {
        self.edits.current_operands(self.program, op)
    }

    pub(super) fn operands(self, op: Op) -> impl Iterator<Item = Read> + 'a {
        let rewrite = self.edits.rewrite(op);
        let operands = rewrite.map_or(self.program.operands(op), |rewrite| &rewrite.operands);
        operands.iter().map(move |&operand| {
            let literal_of_edits = |constant| Read::Number(self.edits.literal_of(constant));
            match (operand.value(), operand.constant()) {
                (Some(value), _) => match self.edits.replacement(value) {
                    None => Read::Value(value),
                    Some(other) => match (other.value(), other.constant()) {
                        (Some(value), _) => Read::Value(value),
                        (_, Some(constant)) => literal_of_edits(constant),
                        _ => unreachable!("an operand is a value or a constant"),
                    },
                },
                (_, Some(constant)) if rewrite.is_some() => literal_of_edits(constant),
                (_, Some(constant)) => Read::Number(self.program.constant(constant)),
                _ => unreachable!("an operand is a value or a constant"),
            }
        })
    }

    /// As [`Program::scalar_op`].
    pub(super) fn scalar_op(self, op: Op) -> Option<(ScalarOp, Value)> {
        self.program.scalar_operation(op)?;
        let (scalar, _) = self.program.scalar_op(op)?;
        let result = self.result_values(op).next()?;
        Some((self.edits.rewrite(op).map_or(scalar, |rewrite| rewrite.scalar), result))
    }
}
