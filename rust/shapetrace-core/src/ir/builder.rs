//! The only way to make a program: scope by scope, refusing what is malformed.

use rustc_hash::FxHashMap;

use crate::entity::{Entity, PackedOption};
use crate::error::BuildError;
use crate::ir::{
    Constant, Number, Op, OpFlags, Operand, Program, Scope, ShapeMention, Symbol, SymbolData, Value, ValueKind,
};

/// One op for [`ProgramBuilder::op`].
#[derive(Clone, Debug)]
pub struct OpSpec<'a> {
    /// What is applied.
    pub symbol: Symbol,
    /// What holds for this op alone.
    pub flags: OpFlags,
    /// What it reads.
    pub operands: &'a [Operand],
    /// What it writes.
    pub results: &'a [PackedOption<Value>],
}

/// Builds a [`Program`].
///
/// Ops go to the scope that was opened last. Scopes must come in pre-order: open the top level,
/// add all its ops, then open the scope inside the first op that has one, add all its ops, and
/// so on. That is the order of a depth-first walk with an explicit stack, so a program of any
/// depth is built without recursion.
///
/// ```
/// use shapetrace_core::ir::{NumberType, OpFlags, OpSpec, ProgramBuilder, SymbolData, ValueKind};
///
/// let mut builder = ProgramBuilder::default();
/// let sin = builder.symbol(SymbolData { name: "prims.sin".into(), ..Default::default() })?;
/// let x = builder.named_value("x", ValueKind::Tensor)?;
/// let y = builder.named_value("y", ValueKind::Tensor)?;
/// builder.open_top_scope()?;
/// builder.op(&OpSpec { symbol: sin, flags: OpFlags::empty(), operands: &[x.into()], results: &[y.into()] })?;
/// builder.output(y)?;
/// let program = builder.finish()?;
/// assert_eq!(program.op_count(), 1);
/// # Ok::<(), shapetrace_core::error::BuildError>(())
/// ```
#[derive(Debug, Default)]
pub struct ProgramBuilder {
    program: Program,
    constants: FxHashMap<Number, Constant>,
    names: FxHashMap<String, Value>,
}

impl ProgramBuilder {
    /// Starts over with the memory and the symbols of a program that is no longer needed.
    pub fn recycle(mut program: Program) -> Self {
        program.constants.clear();
        program.value_kinds.clear();
        program.value_hints.clear();
        program.value_names.clear();
        program.op_symbols.clear();
        program.op_flags.clear();
        program.op_scopes.clear();
        program.operands.clear();
        program.results.clear();
        program.scope_ops.clear();
        program.scope_owners.clear();
        program.scope_parents.clear();
        program.inputs.clear();
        program.outputs.clear();
        program.pinned.clear();
        program.mentions.clear();
        program.has_numbers = false;
        Self { program, constants: FxHashMap::default(), names: FxHashMap::default() }
    }

    /// Adds a symbol. The caller interns: every call makes a new one.
    ///
    /// # Errors
    /// [`BuildError::TooLarge`].
    pub fn symbol(&mut self, data: SymbolData) -> Result<Symbol, BuildError> {
        let index = next_index(self.program.symbols.len(), "symbols")?;
        self.program.symbol_flags.push(data.flags);
        self.program.symbol_scalars.push(data.scalar);
        self.program.any_symbol_flags |= data.flags;
        self.program.symbols.push(data);
        Ok(Symbol::from_index(index))
    }

    /// The id of a literal.
    ///
    /// # Errors
    /// [`BuildError::TooLarge`].
    pub fn constant(&mut self, number: Number) -> Result<Constant, BuildError> {
        if let Some(&constant) = self.constants.get(&number) {
            return Ok(constant);
        }
        let index = next_index(self.program.constants.len(), "constants")?;
        let constant = Constant::from_index(index);
        self.program.constants.push(number);
        self.constants.insert(number, constant);
        Ok(constant)
    }

    /// Adds a value without a name. The caller interns: every call makes a new one.
    ///
    /// # Errors
    /// [`BuildError::TooLarge`].
    #[inline]
    pub fn value(&mut self, kind: ValueKind) -> Result<Value, BuildError> {
        let index = next_index(self.program.value_kinds.len(), "values")?;
        self.program.has_numbers |= kind.is_number();
        self.program.value_kinds.push(kind);
        Ok(Value::from_index(index))
    }

    /// The value of this name; the first mention fixes its kind.
    ///
    /// # Errors
    /// [`BuildError::TooLarge`].
    pub fn named_value(&mut self, name: &str, kind: ValueKind) -> Result<Value, BuildError> {
        if let Some(&value) = self.names.get(name) {
            return Ok(value);
        }
        let value = self.value(kind)?;
        // Values without a name may have come before.
        self.program.value_names.resize(value.index(), String::new());
        self.program.value_names.push(name.to_owned());
        self.names.insert(name.to_owned(), value);
        Ok(value)
    }

    /// The value of this name, if it was mentioned.
    pub fn find_value(&self, name: &str) -> Option<Value> {
        self.names.get(name).copied()
    }

    /// Records what a number was when the program was recorded.
    ///
    /// # Errors
    /// [`BuildError::TooLarge`], [`BuildError::UnknownValue`].
    pub fn hint(&mut self, value: Value, number: Number) -> Result<(), BuildError> {
        self.check_value(value)?;
        let constant = self.constant(number)?;
        let hints = &mut self.program.value_hints;
        if hints.len() <= value.index() {
            hints.resize(value.index() + 1, PackedOption::NONE);
        }
        hints[value.index()] = constant.into();
        Ok(())
    }

    /// Opens the top level.
    ///
    /// # Errors
    /// [`BuildError::ScopeOrder`] if it is not the first scope.
    pub fn open_top_scope(&mut self) -> Result<Scope, BuildError> {
        if !self.program.scope_ops.is_empty() {
            return Err(BuildError::ScopeOrder {
                scope: Scope::TOP,
                hint: "the top level is opened once, before every other scope",
            });
        }
        self.push_scope(PackedOption::NONE)
    }

    /// Opens the scope inside `owner`; ops added from now on belong to it.
    ///
    /// # Errors
    /// [`BuildError::ScopeOrder`] if `owner` has a scope already or does not exist.
    pub fn open_scope(&mut self, owner: Op) -> Result<Scope, BuildError> {
        let scope = Scope::from_index(self.program.scope_ops.len());
        let Some(slot) = self.program.op_scopes.get(owner.index()) else {
            return Err(BuildError::ScopeOrder {
                scope,
                hint: "the owner of a scope is added before the scope is opened",
            });
        };
        if !slot.is_none() {
            return Err(BuildError::ScopeOrder { scope, hint: "an op owns at most one scope" });
        }
        let scope = self.push_scope(owner.into())?;
        self.program.op_scopes[owner.index()] = scope.into();
        Ok(scope)
    }

    fn push_scope(&mut self, owner: PackedOption<Op>) -> Result<Scope, BuildError> {
        let index = next_index(self.program.scope_ops.len(), "scopes")?;
        let start = self.program.op_symbols.len() as u32;
        let parent = owner.get().map(|owner| self.scope_around(owner));
        self.program.scope_ops.push((start, start));
        self.program.scope_owners.push(owner);
        self.program.scope_parents.push(parent.into());
        Ok(Scope::from_index(index))
    }

    /// The scope that an op is in. Where scopes come in pre-order, it is the last one or around
    /// that, so the way up is short: each scope is left once.
    fn scope_around(&self, op: Op) -> Scope {
        let mut scope = Scope::from_index(self.program.scope_ops.len() - 1);
        loop {
            if self.program.scope_range(scope).contains(&op.index()) {
                return scope;
            }
            match self.program.scope_parent(scope) {
                Some(parent) => scope = parent,
                None => return self.program.scope_of(op),
            }
        }
    }

    /// Adds an op to the scope that was opened last.
    ///
    /// # Errors
    /// [`BuildError`] that names the op and the value if an id is unknown or the program grows
    /// beyond 31 bits.
    pub fn op(&mut self, spec: &OpSpec<'_>) -> Result<Op, BuildError> {
        for &operand in spec.operands {
            self.push_operand(operand);
        }
        for &result in spec.results {
            self.push_result(result);
        }
        self.finish_op(spec.symbol, spec.flags)
    }

    /// Adds an operand to the op that [`ProgramBuilder::finish_op`] will end.
    #[inline]
    pub fn push_operand(&mut self, operand: Operand) {
        self.program.operands.push_item(operand);
    }

    /// Adds a result slot to the op that [`ProgramBuilder::finish_op`] will end.
    #[inline]
    pub fn push_result(&mut self, result: PackedOption<Value>) {
        self.program.results.push_item(result);
    }

    /// The operands pushed so far for the op that is being built.
    #[inline]
    pub fn open_operands(&self) -> &[Operand] {
        self.program.operands.open_row()
    }

    /// The result slots pushed so far for the op that is being built.
    #[inline]
    pub fn open_results(&self) -> &[PackedOption<Value>] {
        self.program.results.open_row()
    }

    /// Ends the op whose operands and results were pushed. If it is refused they are forgotten, and
    /// the program is what it was before.
    ///
    /// # Errors
    /// As [`ProgramBuilder::op`].
    #[inline]
    pub fn finish_op(&mut self, symbol: Symbol, flags: OpFlags) -> Result<Op, BuildError> {
        let op = match self.check_op(symbol) {
            Ok(op) => op,
            Err(error) => {
                self.program.operands.abandon_row();
                self.program.results.abandon_row();
                return Err(error);
            }
        };
        if let Some(scope) = self.program.scope_ops.last_mut() {
            scope.1 = op.index() as u32 + 1;
        }
        let fits = self.program.operands.end_row() && self.program.results.end_row();
        self.program.op_symbols.push(symbol);
        self.program.op_flags.push(flags);
        self.program.op_scopes.push(PackedOption::NONE);
        if fits {
            Ok(op)
        } else {
            Err(BuildError::TooLarge { what: "operands" })
        }
    }

    /// As [`ProgramBuilder::finish_op`], for a caller whose ids all come from this very builder:
    /// that they are known is checked in debug builds alone.
    ///
    /// # Errors
    /// [`BuildError::TooLarge`], after which the builder is of no more use.
    #[inline]
    pub fn finish_own_op(&mut self, symbol: Symbol, flags: OpFlags) -> Result<Op, BuildError> {
        debug_assert!(self.check_op(symbol).is_ok());
        let op = Op::from_index(next_index(self.program.op_symbols.len(), "ops")?);
        if let Some(scope) = self.program.scope_ops.last_mut() {
            scope.1 = op.index() as u32 + 1;
        }
        let fits = self.program.operands.end_row() && self.program.results.end_row();
        self.program.op_symbols.push(symbol);
        self.program.op_flags.push(flags);
        self.program.op_scopes.push(PackedOption::NONE);
        if fits {
            Ok(op)
        } else {
            Err(BuildError::TooLarge { what: "operands" })
        }
    }

    /// The id of the op that is being built, unless something is wrong with it.
    #[inline]
    fn check_op(&self, symbol: Symbol) -> Result<Op, BuildError> {
        let op = Op::from_index(next_index(self.program.op_symbols.len(), "ops")?);
        if symbol.index() >= self.program.symbols.len() {
            return Err(BuildError::UnknownSymbol { op, symbol });
        }
        for operand in self.program.operands.open_row() {
            if let Some(value) = operand.value() {
                self.check_value(value)?;
            } else if let Some(constant) = operand.constant() {
                if constant.index() >= self.program.constants.len() {
                    return Err(BuildError::UnknownConstant { constant });
                }
            }
        }
        for result in self.program.results.open_row() {
            if let Some(value) = result.get() {
                self.check_value(value)?;
            }
        }
        if self.program.scope_ops.is_empty() {
            return Err(BuildError::NoScope { op });
        }
        Ok(op)
    }

    #[inline]
    fn check_value(&self, value: Value) -> Result<(), BuildError> {
        if value.index() < self.program.value_kinds.len() {
            Ok(())
        } else {
            Err(BuildError::UnknownValue { value })
        }
    }

    /// Says that the program takes a value. Tell all inputs or none, see [`Program::inputs`].
    ///
    /// # Errors
    /// [`BuildError::UnknownValue`].
    pub fn input(&mut self, value: Value) -> Result<(), BuildError> {
        self.check_value(value)?;
        self.program.inputs.push(value);
        Ok(())
    }

    /// Whether any input was told.
    pub fn has_inputs(&self) -> bool {
        !self.program.inputs.is_empty()
    }

    /// Takes over the values and constants of another program under the ids that they have there.
    pub(crate) fn copy_values(&mut self, other: &Program) {
        self.program.constants.clone_from(&other.constants);
        self.constants.extend(other.constants.iter().enumerate().map(|(i, &n)| (n, Constant::from_index(i))));
        self.program.value_kinds.clone_from(&other.value_kinds);
        self.program.value_hints.clone_from(&other.value_hints);
        self.program.value_names.clone_from(&other.value_names);
        self.program.has_numbers = other.has_numbers;
    }

    /// Makes a value live at the end of the top level.
    ///
    /// # Errors
    /// [`BuildError::UnknownValue`].
    pub fn output(&mut self, value: Value) -> Result<(), BuildError> {
        self.check_value(value)?;
        self.program.outputs.push(value);
        Ok(())
    }

    /// Says that the name of a value is known outside: no pass renames it.
    ///
    /// # Errors
    /// [`BuildError::UnknownValue`].
    pub fn pin(&mut self, value: Value) -> Result<(), BuildError> {
        self.check_value(value)?;
        self.program.pinned.push(value);
        Ok(())
    }

    /// Says that a number stands in the shape of a tensor, as the dimension at `position`.
    ///
    /// # Errors
    /// [`BuildError::UnknownValue`].
    pub fn shape_mention(&mut self, tensor: Value, position: u32, number: Value) -> Result<(), BuildError> {
        self.check_value(tensor)?;
        self.check_value(number)?;
        self.program.mentions.push(ShapeMention { tensor, position, number });
        Ok(())
    }

    /// What kind of thing a value is.
    pub fn value_kind(&self, value: Value) -> ValueKind {
        self.program.value_kind(value)
    }

    /// What holds for every op of a symbol.
    pub fn symbol_data(&self, symbol: Symbol) -> &SymbolData {
        &self.program.symbols[symbol.index()]
    }

    /// Whether any value so far is a number.
    pub fn has_numbers(&self) -> bool {
        self.program.has_numbers
    }

    /// Number of ops so far.
    pub fn op_count(&self) -> usize {
        self.program.op_symbols.len()
    }

    /// The program.
    ///
    /// # Errors
    /// [`BuildError::ScopeOrder`] if scopes were not opened in pre-order.
    pub fn finish(mut self) -> Result<Program, BuildError> {
        if self.program.scope_ops.is_empty() {
            self.open_top_scope()?;
        }
        // Pre-order means: the owners, read in scope order, form a depth-first walk.
        let mut stack: Vec<Scope> = vec![Scope::TOP];
        let mut expected = Vec::new();
        let mut next = 0;
        while let Some(scope) = stack.pop() {
            if scope.index() != next {
                return Err(BuildError::ScopeOrder {
                    scope,
                    hint: "scopes are opened in pre-order: an op's scope, with all inside it, before its sibling's",
                });
            }
            next += 1;
            expected.clear();
            expected.extend(self.program.scope_ops(scope).filter_map(|op| self.program.op_scope(op)));
            stack.extend(expected.iter().rev());
        }
        Ok(self.program)
    }
}

#[inline]
fn next_index(len: usize, what: &'static str) -> Result<usize, BuildError> {
    // Bit 31 tells a constant from a value in an operand.
    if len < (1 << 31) - 1 {
        Ok(len)
    } else {
        Err(BuildError::TooLarge { what })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A builder in an open top level, with a symbol and a value.
    fn begun() -> (ProgramBuilder, Symbol, Value) {
        let mut builder = ProgramBuilder::default();
        builder.open_top_scope().expect("the first scope");
        let symbol = builder.symbol(SymbolData { name: "my.f".into(), ..SymbolData::default() }).expect("few");
        let value = builder.value(ValueKind::Tensor).expect("few");
        (builder, symbol, value)
    }

    #[test]
    fn what_was_never_added_is_refused() {
        let (mut builder, symbol, value) = begun();
        let constant = builder.constant(Number::Int(3)).expect("few");
        let far = Constant::from_index(constant.index() + 1);
        let results = [PackedOption::from(value)];
        let mut add = |symbol, operands: &[Operand]| {
            builder.op(&OpSpec { symbol, flags: OpFlags::empty(), operands, results: &results })
        };
        assert_eq!(add(symbol, &[far.into()]), Err(BuildError::UnknownConstant { constant: far }));
        let unknown = Value::from_index(7);
        assert_eq!(add(symbol, &[unknown.into()]), Err(BuildError::UnknownValue { value: unknown }));
        let op = Op::from_index(0);
        let other = Symbol::from_index(5);
        assert_eq!(add(other, &[]), Err(BuildError::UnknownSymbol { op, symbol: other }));
        assert_eq!(add(symbol, &[constant.into()]), Ok(op));
    }

    #[test]
    fn a_refused_op_leaves_nothing_to_the_next() {
        let (mut builder, symbol, value) = begun();
        builder.push_operand(value.into());
        builder.push_operand(Value::from_index(9).into());
        builder.push_result(value.into());
        assert!(builder.finish_op(symbol, OpFlags::empty()).is_err());
        let op = builder.finish_op(symbol, OpFlags::empty()).expect("an op without anything");
        let program = builder.finish().expect("well formed");
        assert_eq!(program.op_count(), 1);
        assert_eq!(program.operands(op), []);
        assert_eq!(program.results(op), []);
    }
}
