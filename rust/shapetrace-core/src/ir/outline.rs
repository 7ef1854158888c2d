//! Builds a program in the order of its text: an op, then what is inside it, then the next op.

use crate::entity::{Csr, PackedOption};
use crate::error::BuildError;
use crate::ir::{Op, OpFlags, OpSpec, Operand, Program, ProgramBuilder, Symbol, Value};

/// A [`ProgramBuilder`] for callers that meet the ops of a program in the order of its text,
/// such as a parser. [`ProgramBuilder`] wants each scope as a whole; this one keeps the ops until
/// they can be given to it so. No recursion, whatever the depth.
///
/// ```
/// use shapetrace_core::ir::{OpFlags, OpSpec, OutlineBuilder, SymbolData, ValueKind};
///
/// let mut outline = OutlineBuilder::default();
/// let f = outline.builder().symbol(SymbolData { name: "f".into(), ..Default::default() })?;
/// let x = outline.builder().named_value("x", ValueKind::Tensor)?;
/// let spec = OpSpec { symbol: f, flags: OpFlags::empty(), operands: &[], results: &[x.into()] };
/// outline.op(&spec);
/// outline.open_scope();
/// outline.op(&spec);
/// outline.close_scope();
/// let (program, ops) = outline.finish()?;
/// assert_eq!((program.scope_count(), ops.len()), (2, 2));
/// # Ok::<(), shapetrace_core::error::BuildError>(())
/// ```
#[derive(Debug, Default)]
pub struct OutlineBuilder {
    builder: ProgramBuilder,
    ops: Vec<OutlineOp>,
    operands: Csr<Operand>,
    results: Csr<PackedOption<Value>>,
    open: Vec<usize>,
}

#[derive(Debug)]
struct OutlineOp {
    symbol: Symbol,
    flags: OpFlags,
    has_scope: bool,
    /// One past the last op inside.
    end: usize,
}

impl OutlineBuilder {
    /// The builder behind this one: for symbols, values, constants, outputs; not for ops.
    pub fn builder(&mut self) -> &mut ProgramBuilder {
        &mut self.builder
    }

    /// Adds an op to the scope that is open. Its index counts ops in the order of the text.
    pub fn op(&mut self, spec: &OpSpec<'_>) -> usize {
        for &operand in spec.operands {
            self.operands.push_item(operand);
        }
        for &result in spec.results {
            self.results.push_item(result);
        }
        // A row too many is found again, and refused, by the builder behind.
        self.operands.end_row();
        self.results.end_row();
        let index = self.ops.len();
        self.ops.push(OutlineOp { symbol: spec.symbol, flags: spec.flags, has_scope: false, end: index + 1 });
        index
    }

    /// Opens the scope inside the op that was added last.
    ///
    /// # Panics
    /// If there is no op yet, or the last op of the open scope had its scope already.
    pub fn open_scope(&mut self) {
        let owner = self.ops.len().checked_sub(1).expect("a scope is inside an op");
        assert!(!self.ops[owner].has_scope, "an op owns at most one scope");
        self.ops[owner].has_scope = true;
        self.open.push(owner);
    }

    /// Ends the scope that was opened last. `false` if only the top level is open.
    pub fn close_scope(&mut self) -> bool {
        let Some(owner) = self.open.pop() else { return false };
        self.ops[owner].end = self.ops.len();
        true
    }

    /// How many scopes are open beside the top level.
    pub fn depth(&self) -> usize {
        self.open.len()
    }

    /// The program, and the id of each op in the order of the text. Scopes still open are closed.
    ///
    /// # Errors
    /// As [`ProgramBuilder::op`] and [`ProgramBuilder::finish`].
    ///
    /// # Panics
    /// Never: each op is given to the builder once, and an owner before its scope.
    pub fn finish(mut self) -> Result<(Program, Vec<Op>), BuildError> {
        while self.close_scope() {}
        let Self { mut builder, ops, operands, results, .. } = self;
        let mut ids = vec![PackedOption::<Op>::NONE; ops.len()];
        builder.open_top_scope()?;
        // Scopes whose ops have not been given yet, the next one last: their owner and range.
        let mut pending: Vec<(Option<usize>, usize, usize)> = vec![(None, 0, ops.len())];
        while let Some((owner, start, end)) = pending.pop() {
            if let Some(owner) = owner {
                builder.open_scope(ids[owner].get().expect("an owner comes before its scope"))?;
            }
            let first_inside = pending.len();
            let mut index = start;
            while index < end {
                let op = &ops[index];
                let spec = OpSpec {
                    symbol: op.symbol,
                    flags: op.flags,
                    operands: operands.row(index),
                    results: results.row(index),
                };
                ids[index] = builder.op(&spec)?.into();
                if op.has_scope {
                    pending.push((Some(index), index + 1, op.end));
                }
                index = op.end;
            }
            pending[first_inside..].reverse();
        }
        let ids = ids.into_iter().map(|id| id.get().expect("every op was given")).collect();
        Ok((builder.finish()?, ids))
    }
}
