//! The ids of the IR.

use crate::entity::{entity, Entity};

entity! {
    /// One op: an application of a symbol to operands. thunder calls it a bound symbol.
    pub Op, "op"
}
entity! {
    /// One value: everything that goes by one name. thunder calls it a proxy.
    pub Value, "v"
}
entity! {
    /// One list of ops: the top level, or what one op does inside. MLIR calls it a region that
    /// is isolated from above: its ops use what the owner of the scope takes, and what the scope
    /// itself defined before.
    pub Scope, "scope"
}
entity! {
    /// What an op applies: a primitive, a composite or an executor's operation.
    pub Symbol, "sym"
}
entity! {
    /// A literal number, interned.
    pub Constant, "c"
}

impl Scope {
    /// The top level of the program.
    pub const TOP: Self = Self(0);
}

/// What an op reads: a value, or a literal number where a pass has use for it. Four bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Operand(u32);

const CONSTANT_BIT: u32 = 1 << 31;

impl Operand {
    /// The value that is read, if it is one.
    #[inline]
    pub fn value(self) -> Option<Value> {
        (self.0 & CONSTANT_BIT == 0).then_some(Value(self.0))
    }

    /// The literal that is read, if it is one.
    #[inline]
    pub fn constant(self) -> Option<Constant> {
        (self.0 & CONSTANT_BIT != 0).then_some(Constant(self.0 & !CONSTANT_BIT))
    }
}

impl From<Value> for Operand {
    #[inline]
    fn from(value: Value) -> Self {
        debug_assert!(value.0 & CONSTANT_BIT == 0);
        Self(value.0)
    }
}

impl From<Constant> for Operand {
    #[inline]
    fn from(constant: Constant) -> Self {
        Self(constant.0 | CONSTANT_BIT)
    }
}

impl Entity for Operand {
    fn from_index(index: usize) -> Self {
        Self(index as u32)
    }
    fn index(self) -> usize {
        self.0 as usize
    }
}

impl std::fmt::Debug for Operand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.value(), self.constant()) {
            (Some(value), _) => value.fmt(f),
            (_, Some(constant)) => constant.fmt(f),
            _ => unreachable!("an operand is a value or a constant"),
        }
    }
}
