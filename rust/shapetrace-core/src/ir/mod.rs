//! The program: ops, values and scopes as dense ids, in structure-of-arrays form.

mod apply;
mod builder;
mod edit;
mod entities;
mod flags;
mod outline;
mod program;
mod symbol;

pub use apply::{apply, apply_with_ops, Applied};
pub use builder::{OpSpec, ProgramBuilder};
pub use edit::{EditList, OpStatus, Reason, Rewrite};
pub use entities::{Constant, Op, Operand, Scope, Symbol, Value};
pub use flags::{OpFlags, SymbolFlags};
pub use outline::OutlineBuilder;
pub use program::{Program, ShapeMention, ValueKind};
pub use symbol::{Number, NumberType, ScalarOp, SymbolData};
