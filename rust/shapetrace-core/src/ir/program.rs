//! The frozen program.

use crate::entity::{Csr, Entity, PackedOption};
use crate::ir::{Constant, Number, Op, OpFlags, Operand, ScalarOp, Scope, Symbol, SymbolData, SymbolFlags, Value};

/// What kind of thing a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ValueKind {
    /// A tensor.
    Tensor,
    /// A Python number of this type.
    Number(crate::ir::NumberType),
    /// Anything else: a string, a collection, an opaque object.
    Other,
}

impl ValueKind {
    /// Whether this is a number.
    pub fn is_number(self) -> bool {
        matches!(self, Self::Number(_))
    }
}

/// A number that stands in the shape of a tensor: the host says that the dimension has this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ShapeMention {
    /// The tensor.
    pub tensor: Value,
    /// Which of its dimensions.
    pub position: u32,
    /// The number.
    pub number: Value,
}

/// A program: read it with the accessors, make it with [`crate::ir::ProgramBuilder`].
///
/// Scopes are numbered in pre-order and the ops of a scope are contiguous, so a scope comes
/// before all scopes inside it: walking scopes backwards visits what is inside first.
///
/// Memory: per op 4 bytes of symbol, 1 of flags, 4 for the end of its operands, 4 for the end of
/// its results, 4 for its scope inside; 4 per operand and per result.
#[derive(Clone, Debug, Default)]
pub struct Program {
    pub(crate) symbols: Vec<SymbolData>,
    /// The flags of the symbols once more, closer together: every pass asks for them.
    pub(crate) symbol_flags: Vec<SymbolFlags>,
    /// So is their arithmetic.
    pub(crate) symbol_scalars: Vec<Option<ScalarOp>>,
    /// What any symbol has.
    pub(crate) any_symbol_flags: SymbolFlags,
    pub(crate) constants: Vec<Number>,
    pub(crate) value_kinds: Vec<ValueKind>,
    pub(crate) value_hints: Vec<PackedOption<Constant>>,
    pub(crate) value_names: Vec<String>,
    pub(crate) op_symbols: Vec<Symbol>,
    pub(crate) op_flags: Vec<OpFlags>,
    pub(crate) op_scopes: Vec<PackedOption<Scope>>,
    pub(crate) operands: Csr<Operand>,
    pub(crate) results: Csr<PackedOption<Value>>,
    pub(crate) scope_ops: Vec<(u32, u32)>,
    pub(crate) scope_owners: Vec<PackedOption<Op>>,
    pub(crate) scope_parents: Vec<PackedOption<Scope>>,
    pub(crate) inputs: Vec<Value>,
    pub(crate) outputs: Vec<Value>,
    pub(crate) pinned: Vec<Value>,
    pub(crate) mentions: Vec<ShapeMention>,
    pub(crate) has_numbers: bool,
}

impl Program {
    /// Number of ops in all scopes.
    pub fn op_count(&self) -> usize {
        self.op_symbols.len()
    }

    /// Number of values.
    pub fn value_count(&self) -> usize {
        self.value_kinds.len()
    }

    /// Number of scopes, the top level included.
    pub fn scope_count(&self) -> usize {
        self.scope_ops.len()
    }

    /// All ops, scope by scope.
    pub fn ops(&self) -> impl DoubleEndedIterator<Item = Op> + ExactSizeIterator {
        (0..self.op_count()).map(Op::from_index)
    }

    /// All values.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = Value> + ExactSizeIterator {
        (0..self.value_count()).map(Value::from_index)
    }

    /// All scopes, each before those inside it.
    pub fn scopes(&self) -> impl DoubleEndedIterator<Item = Scope> + ExactSizeIterator {
        (0..self.scope_count()).map(Scope::from_index)
    }

    /// The ops of one scope, in order.
    #[inline]
    pub fn scope_ops(&self, scope: Scope) -> impl DoubleEndedIterator<Item = Op> + ExactSizeIterator + Clone {
        self.scope_range(scope).map(Op::from_index)
    }

    /// The op that a scope is inside of; none for the top level.
    #[inline]
    pub fn scope_owner(&self, scope: Scope) -> Option<Op> {
        self.scope_owners[scope.index()].get()
    }

    /// The scope around a scope; none for the top level.
    #[inline]
    pub fn scope_parent(&self, scope: Scope) -> Option<Scope> {
        self.scope_parents[scope.index()].get()
    }

    /// The range that the ops of a scope take among all ops.
    #[inline]
    pub fn scope_range(&self, scope: Scope) -> std::ops::Range<usize> {
        let (start, end) = self.scope_ops[scope.index()];
        start as usize..end as usize
    }

    /// The scope that an op is in. Logarithmic in the number of scopes.
    pub fn scope_of(&self, op: Op) -> Scope {
        let after = self.scope_ops.partition_point(|&(start, _)| start as usize <= op.index());
        Scope::from_index(after - 1)
    }

    /// The scope inside an op, if it has one.
    #[inline]
    pub fn op_scope(&self, op: Op) -> Option<Scope> {
        self.op_scopes[op.index()].get()
    }

    /// What the op applies.
    #[inline]
    pub fn symbol(&self, op: Op) -> &SymbolData {
        &self.symbols[self.op_symbols[op.index()].index()]
    }

    /// The id of what the op applies.
    #[inline]
    pub fn symbol_id(&self, op: Op) -> Symbol {
        self.op_symbols[op.index()]
    }

    /// All symbols.
    pub fn symbols(&self) -> &[SymbolData] {
        &self.symbols
    }

    /// What holds for every op with the symbol of this op.
    #[inline]
    pub fn symbol_flags(&self, op: Op) -> SymbolFlags {
        self.symbol_flags[self.op_symbols[op.index()].index()]
    }

    /// What holds for this op beside what its symbol says.
    #[inline]
    pub fn flags(&self, op: Op) -> OpFlags {
        self.op_flags[op.index()]
    }

    /// What the op reads, in order.
    #[inline]
    pub fn operands(&self, op: Op) -> &[Operand] {
        self.operands.row(op.index())
    }

    /// The values that the op reads, in order.
    #[inline]
    pub fn operand_values(&self, op: Op) -> impl Iterator<Item = Value> + '_ {
        self.operands(op).iter().filter_map(|operand| operand.value())
    }

    /// The result slots of the op; only a shape query has slots without a value.
    #[inline]
    pub fn results(&self, op: Op) -> &[PackedOption<Value>] {
        self.results.row(op.index())
    }

    /// The values that the op writes, in order.
    #[inline]
    pub fn result_values(&self, op: Op) -> impl Iterator<Item = Value> + '_ {
        self.results(op).iter().filter_map(|result| result.get())
    }

    /// Where the result slots of the op are among all result slots of the program.
    #[inline]
    pub fn result_range(&self, op: Op) -> std::ops::Range<usize> {
        self.results.range(op.index())
    }

    /// Number of result slots of all ops.
    pub fn result_count(&self) -> usize {
        self.results.items().len()
    }

    /// What kind of thing a value is.
    #[inline]
    pub fn value_kind(&self, value: Value) -> ValueKind {
        self.value_kinds[value.index()]
    }

    /// What the value was when the program was recorded, if that is known.
    ///
    /// Only a plausibility check: a number that varies has a hint as well.
    #[inline]
    pub fn value_hint(&self, value: Value) -> Option<Number> {
        self.hint_constant(value).map(|hint| self.constant(hint))
    }

    /// The id of [`Program::value_hint`].
    #[inline]
    pub fn hint_constant(&self, value: Value) -> Option<Constant> {
        self.value_hints.get(value.index())?.get()
    }

    /// The name of a value, or its id where the program was made without names.
    pub fn value_name(&self, value: Value) -> std::borrow::Cow<'_, str> {
        self.given_name(value).map_or_else(|| value.to_string().into(), Into::into)
    }

    /// The name that a value was given; none where the program was made without one.
    #[inline]
    pub fn given_name(&self, value: Value) -> Option<&str> {
        self.value_names.get(value.index()).map(String::as_str).filter(|name| !name.is_empty())
    }

    /// All literals; no two are equal.
    pub fn constants(&self) -> &[Number] {
        &self.constants
    }

    /// The literal behind an id.
    #[inline]
    pub fn constant(&self, constant: Constant) -> Number {
        self.constants[constant.index()]
    }

    /// The values that the program takes, where the maker of the program told them; empty if not.
    ///
    /// Without them, every value that the top level uses and nothing defines is an input.
    pub fn inputs(&self) -> &[Value] {
        &self.inputs
    }

    /// The values that are live at the end of the top level, beside what the return reads.
    pub fn outputs(&self) -> &[Value] {
        &self.outputs
    }

    /// Values whose name is known outside and must stay.
    pub fn pinned(&self) -> &[Value] {
        &self.pinned
    }

    /// The numbers that stand in the shapes of tensors.
    pub fn shape_mentions(&self) -> &[ShapeMention] {
        &self.mentions
    }

    /// Whether a result of the op may be left out: its printer can do that, and it does not take a
    /// collection that may hold the result.
    #[inline]
    pub fn can_leave_out_results(&self, op: Op) -> bool {
        self.symbol_flags(op).contains(SymbolFlags::USUAL_PRINTER) && !self.flags(op).contains(OpFlags::FIXED_NAMES)
    }

    /// Whether the op asks for the dimensions of one tensor; the tensor.
    #[inline]
    pub fn shape_query(&self, op: Op) -> Option<Value> {
        if self.symbol_flags(op).contains(SymbolFlags::SHAPE_QUERY) {
            self.queried_tensor(op)
        } else {
            None
        }
    }

    fn queried_tensor(&self, op: Op) -> Option<Value> {
        match self.operands(op) {
            [tensor] if !self.flags(op).contains(OpFlags::KEYWORDS) => tensor.value(),
            _ => None,
        }
    }

    /// Whether the op is scalar arithmetic: a known operation, applied to numbers and literals
    /// only, with one number as its result.
    #[inline]
    pub fn scalar_op(&self, op: Op) -> Option<(ScalarOp, Value)> {
        self.scalar_operation(op).and_then(|scalar| self.applied_to_numbers(op, scalar))
    }

    /// The arithmetic of the op's symbol, whatever it is applied to.
    #[inline]
    pub(crate) fn scalar_operation(&self, op: Op) -> Option<ScalarOp> {
        self.symbol_scalars[self.op_symbols[op.index()].index()]
    }

    fn applied_to_numbers(&self, op: Op, scalar: ScalarOp) -> Option<(ScalarOp, Value)> {
        if self.flags(op).contains(OpFlags::KEYWORDS) {
            return None;
        }
        let [result] = self.results(op) else { return None };
        let result = result.get()?;
        let operands = self.operands(op);
        let all_numbers = operands.len() == scalar.arity()
            && operands.iter().all(|operand| operand.value().is_none_or(|value| self.value_kind(value).is_number()));
        (all_numbers && self.value_kind(result).is_number()).then_some((scalar, result))
    }

    /// Gives every value a name, in place of those that it had.
    ///
    /// # Panics
    /// If there are not as many names as values.
    pub fn name_values(&mut self, names: Vec<String>) {
        assert_eq!(names.len(), self.value_count(), "a name for each value");
        self.value_names = names;
    }

    /// Forgets the operands for which `keep` is false. Linear.
    pub fn retain_operands(&mut self, mut keep: impl FnMut(Op, Operand) -> bool) {
        let before = std::mem::take(&mut self.operands);
        for row in 0..before.len() {
            for &operand in before.row(row).iter().filter(|&&operand| keep(Op::from_index(row), operand)) {
                self.operands.push_item(operand);
            }
            self.operands.end_row();
        }
    }

    /// Numbers the symbols by their first use and forgets those that no op applies. Returns, for
    /// each symbol that is left, its id before. Linear.
    pub fn renumber_symbols(&mut self) -> Vec<Symbol> {
        let mut new_ids: Vec<PackedOption<Symbol>> = vec![PackedOption::NONE; self.symbols.len()];
        let mut old_ids = Vec::new();
        for symbol in &mut self.op_symbols {
            let known = &mut new_ids[symbol.index()];
            let new = known.get().unwrap_or_else(|| Symbol::from_index(old_ids.len()));
            if known.is_none() {
                *known = new.into();
                old_ids.push(*symbol);
            }
            *symbol = new;
        }
        self.symbols = old_ids.iter().map(|old| self.symbols[old.index()].clone()).collect();
        self.symbol_flags = self.symbols.iter().map(|symbol| symbol.flags).collect();
        self.symbol_scalars = self.symbols.iter().map(|symbol| symbol.scalar).collect();
        old_ids
    }

    /// Whether there may be a symbol with one of these flags.
    pub fn may_have(&self, flags: SymbolFlags) -> bool {
        self.any_symbol_flags.intersects(flags)
    }

    /// Whether any value is a number.
    pub fn has_numbers(&self) -> bool {
        self.has_numbers
    }
}
